/* export_speedscope.c - a file for speedscope.app: a sampled profile for each kind of value, whose weights are bytes.
 *
 * Each stack that has something of a value is one sample, a list of numbers of frames from the outermost inward. The profile that --value
 * names is the one that is shown first. The frames are written last, when it is known which were used; they are numbered as they are met.
 * Source: https://www.speedscope.app/file-format-schema.json
 */
#include "export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "stack_frames.h"
#include "stack_values.h"
#include "talk.h"

static const struct {
	enum tm_export_value value;
	const char *title;
} profiles[] = {
	{ TM_VALUE_PEAK, "live at the peak" },
	{ TM_VALUE_LIVE, "live at exit" },
	{ TM_VALUE_ALLOCATED, "allocated" },
	{ TM_VALUE_TEMPORARY, "temporary" },
};
#define PROFILE_COUNT (sizeof(profiles) / sizeof(profiles[0]))

struct speedscope {
	const struct tm_database *d;
	const struct tm_options *o;
	struct tm_output *out;
	struct tm_stack_frames frames;
	uint32_t *numbers; /* of frames in the file, 1 more; 0: not met yet. By frame id */
	uint32_t *met;     /* frame ids, by number */
	uint32_t frame_count;
	int64_t *bytes;             /* of the profile that is being written, by stack id */
	struct tm_bytes text, list; /* list: the numbers of the last stack's frames, each with a comma */
	int status;
};

static int fail(const struct speedscope *s, const char *why) {
	return tm_fail("cannot read '%s': %s", s->d->path, why);
}

/* Adds the bytes of a profile up by stack; *total: of all. */
static int read_values(struct speedscope *s, enum tm_export_value value, int64_t *total) {
	sqlite3_str *sql = sqlite3_str_new(s->d->handle);
	sqlite3_stmt *row = NULL;
	int step = SQLITE_DONE;
	memset(s->bytes, 0, (size_t)s->frames.stack_count * sizeof(*s->bytes));
	tm_sql_stack_values(sql, s->d, s->o, value);
	sqlite3_str_appendall(sql, "SELECT stack_id, bytes FROM by_stack WHERE bytes > 0");
	char *query = sqlite3_str_finish(sql);
	int status = tm_database_prepare(s->d, query, &row);
	while (!status && (step = sqlite3_step(row)) == SQLITE_ROW) {
		int64_t *sum = &s->bytes[tm_stack_frames_check(&s->frames, sqlite3_column_int64(row, 0))],
			bytes = sqlite3_column_int64(row, 1);
		if (__builtin_add_overflow(*total, bytes, total)) status = fail(s, "integer overflow");
		else *sum += bytes;
	}
	if (!status && step != SQLITE_DONE) status = fail(s, sqlite3_errmsg(s->d->handle));
	sqlite3_finalize(row);
	sqlite3_free(query);
	return status;
}

/* Writes the stack as a list of frames, which it numbers as they are met. */
static void put_sample(struct speedscope *s, uint32_t stack) {
	struct tm_bytes *list = &s->list;
	size_t kept = 0;
	s->status = tm_stack_frames_enter(&s->frames, stack, &kept);
	if (s->status) return;
	list->size = tm_stack_frames_text_end(&s->frames, kept);
	for (size_t i = kept; i < s->frames.path.count; i++) {
		uint32_t frame = s->frames.frame[s->frames.path.items[i].stack];
		if (!s->numbers[frame]) {
			s->met[s->frame_count] = frame;
			s->numbers[frame] = ++s->frame_count;
		}
		tm_put_integer(list, s->numbers[frame] - 1);
		tm_put_raw(list, ",", 1);
		s->frames.path.items[i].text_end = list->size;
	}
	tm_put_raw(&s->text, "[", 1);
	tm_put_raw(&s->text, list->data, list->size ? list->size - 1 : 0);
	tm_put_raw(&s->text, "]", 1);
	s->text.failed |= list->failed;
}

/* The stacks, or what each of them is worth. */
static void write_list(struct speedscope *s, bool is_weights) {
	bool first = true;
	for (int64_t stack = 0; !s->status && !s->out->failed && stack < s->frames.stack_count; stack++) {
		if (!s->bytes[stack]) continue;
		if (!first) tm_put_raw(&s->text, ",", 1);
		first = false;
		if (is_weights) tm_put_integer(&s->text, s->bytes[stack]);
		else put_sample(s, (uint32_t)stack);
		tm_output_flush(s->out, &s->text);
	}
}

static void write_profile(struct speedscope *s, size_t index) {
	int64_t total = 0;
	s->status = read_values(s, profiles[index].value, &total);
	tm_put_format(&s->text, "%s\n{\"type\":\"sampled\",\"name\":\"%s%s\",\"unit\":\"bytes\",\"startValue\":0,\"samples\":[",
		      index ? "," : "", profiles[index].title, s->d->estimated ? " (estimated)" : "");
	write_list(s, false);
	tm_put_format(&s->text, "],\"weights\":[");
	write_list(s, true);
	tm_put_format(&s->text, "],\"endValue\":%lld}", (long long)total);
	tm_output_flush(s->out, &s->text);
}

static void write_frames(struct speedscope *s) {
	sqlite3_stmt *statement = NULL;
	s->status = tm_database_prepare(
		s->d, "SELECT t.text, f.file, f.line FROM frame AS f JOIN frame_text AS t ON t.frame_id = f.id WHERE f.id = ?1", &statement);
	for (uint32_t i = 0; !s->status && !s->out->failed && i < s->frame_count; i++) {
		sqlite3_bind_int64(statement, 1, s->met[i]);
		if (sqlite3_step(statement) != SQLITE_ROW) {
			s->status = tm_fail("cannot read '%s': frame %u is missing", s->d->path, s->met[i]);
			break;
		}
		const char *name = (const char *)sqlite3_column_text(statement, 0), *file = (const char *)sqlite3_column_text(statement, 1);
		tm_put_format(&s->text, "%s\n{\"name\":", i ? "," : "");
		tm_json_string(&s->text, name ? name : "", (size_t)sqlite3_column_bytes(statement, 0));
		if (file) {
			tm_put_format(&s->text, ",\"file\":");
			tm_json_string(&s->text, file, (size_t)sqlite3_column_bytes(statement, 1));
		}
		if (sqlite3_column_type(statement, 2) != SQLITE_NULL)
			tm_put_format(&s->text, ",\"line\":%lld", (long long)sqlite3_column_int64(statement, 2));
		tm_put_raw(&s->text, "}", 1);
		tm_output_flush(s->out, &s->text);
		sqlite3_reset(statement);
	}
	sqlite3_finalize(statement);
}

static void write_all(struct speedscope *s) {
	size_t active = 0;
	for (size_t i = 0; i < PROFILE_COUNT; i++) {
		if (profiles[i].value == s->o->value) active = i;
	}
	if (s->o->value == TM_VALUE_LEAKED) active = 1;
	tm_put_format(&s->text,
		      "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"tidemark %s\",\n\"activeProfileIndex\":%zu,"
		      "\"profiles\":[",
		      TM_TOOL_VERSION, active);
	for (size_t i = 0; !s->status && i < PROFILE_COUNT; i++) write_profile(s, i);
	tm_put_format(&s->text, "\n],\n\"shared\":{\"frames\":[");
	if (!s->status) write_frames(s);
	tm_put_format(&s->text, "\n]}}\n");
	tm_output_flush(s->out, &s->text);
}

int tm_export_speedscope(const struct tm_database *d, const struct tm_options *o, struct tm_output *out) {
	struct speedscope s = { .d = d, .o = o, .out = out };
	s.status = tm_stack_frames_load(&s.frames, d);
	if (!s.status) {
		s.numbers = calloc((size_t)s.frames.frame_count, sizeof(*s.numbers));
		s.met = calloc((size_t)s.frames.frame_count, sizeof(*s.met));
		s.bytes = calloc((size_t)s.frames.stack_count, sizeof(*s.bytes));
		if (!s.numbers || !s.met || !s.bytes) s.status = tm_fail("cannot export '%s': out of memory", d->path);
		else write_all(&s);
	}
	free(s.numbers);
	free(s.met);
	free(s.bytes);
	tm_bytes_release(&s.text);
	tm_bytes_release(&s.list);
	tm_stack_frames_release(&s.frames);
	return s.status;
}
