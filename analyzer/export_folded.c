/* export_folded.c - collapsed stacks: each call stack on a line, outermost frame first, and its bytes behind it.
 *
 * The sums by stack come from stack_values.c; equal texts (the same stack in several processes) become one line. In this format a semicolon
 * separates frames and a newline lines, so neither may come from a name.
 */
#include "export.h"

#include <stdio.h>
#include <string.h>

#include "display_text.h"
#include "json_text.h"
#include "stack_frames.h"
#include "stack_values.h"
#include "talk.h"

static char *compose(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	tm_sql_stack_values(sql, d, o, o->value);
	/* Not to be put together again for each use of it. */
	sqlite3_str_appendall(sql, "SELECT text, sum(bytes) FROM (SELECT t.text, b.bytes\n"
				   "  FROM (SELECT stack_id, sum(bytes) AS bytes FROM by_stack WHERE bytes > 0 GROUP BY stack_id) AS b\n"
				   "  JOIN stack_text AS t ON t.stack_id = b.stack_id LIMIT -1) GROUP BY text ORDER BY text");
	return sqlite3_str_finish(sql);
}

/* The frames, made harmless: what would end the line or could not be shown becomes a space. */
static void put_frames(struct tm_bytes *line, const char *text) {
	const char *end = text + strlen(text);
	if (text == end) tm_put_raw(line, "[no stack]", 10);
	while (text < end) {
		uint32_t c;
		size_t n = tm_utf8_next(text, end, &c);
		if (c < 0x20 || (c >= 0x7F && c < 0xA0) || tm_is_deceptive(c)) tm_put_raw(line, " ", 1);
		else if (c == 0xFFFD) tm_put_raw(line, "\xEF\xBF\xBD", 3);
		else tm_put_raw(line, text, n);
		text += n;
	}
}

/* By enum tm_export_value. */
static const char *const of_what[] = { "live at the peak", "live at exit", "allocated", "live at exit", "temporary" };

int tm_export_folded(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct tm_bytes line = TM_BYTES_INIT;
	sqlite3_stmt *statement;
	char *sql = compose(d, o);
	int step = SQLITE_DONE, status = tm_database_prepare(d, sql, &statement);
	if (!status) status = tm_stack_frames_examine(d);
	bool nothing = true;
	while (!status && !out->failed && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		nothing = false;
		put_frames(&line, (const char *)sqlite3_column_text(statement, 0));
		tm_put_format(&line, " %lld\n", (long long)sqlite3_column_int64(statement, 1));
		tm_output_flush(out, &line);
	}
	if (!status && !out->failed && step != SQLITE_DONE) status = tm_fail("cannot read '%s': %s", d->path, sqlite3_errmsg(d->handle));
	if (!status && !out->failed && nothing) tm_say("nothing was %s", of_what[o->value]);
	sqlite3_finalize(statement);
	sqlite3_free(sql);
	tm_bytes_release(&line);
	return status;
}
