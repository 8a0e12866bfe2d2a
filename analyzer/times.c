/* times.c - from the words for a point in time to SQL. */
#include "times.h"

#include <inttypes.h>
#include <string.h>

#include "schema/units.h"

static const struct {
	const char *word;
	enum tm_time_kind kind;
} words[] = { { "start", TM_TIME_START }, { "peak", TM_TIME_PEAK }, { "exit", TM_TIME_EXIT }, { "end", TM_TIME_END } };

bool tm_time_point_parse(const char *text, struct tm_time_point *out) {
	*out = (struct tm_time_point){ .kind = TM_TIME_UNSET };
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(text, words[i].word) == 0) out->kind = words[i].kind;
	}
	if (out->kind != TM_TIME_UNSET) return true;
	if (strncmp(text, "mark:", 5) == 0) {
		*out = (struct tm_time_point){ .kind = TM_TIME_MARK, .mark = text + 5 };
		return text[5] != '\0';
	}
	/* Times are signed 64-bit numbers in SQL. */
	if (!tm_parse_time(text, &out->ns) || out->ns > INT64_MAX) return false;
	out->kind = TM_TIME_NS;
	return true;
}

void tm_time_point_sql(sqlite3_str *sql, const struct tm_time_point *point, const char *process, const char *heap) {
	switch (point->kind) {
	case TM_TIME_UNSET: break;
	case TM_TIME_NS: sqlite3_str_appendf(sql, "%lld", (sqlite3_int64)point->ns); break;
	case TM_TIME_START: sqlite3_str_appendf(sql, "(SELECT start_ns FROM process WHERE id = %s)", process); break;
	case TM_TIME_EXIT: sqlite3_str_appendf(sql, "(SELECT coalesce(exit_ns, end_ns) FROM process WHERE id = %s)", process); break;
	case TM_TIME_END: sqlite3_str_appendf(sql, "(SELECT end_ns FROM process WHERE id = %s)", process); break;
	case TM_TIME_PEAK:
		sqlite3_str_appendf(sql, "(SELECT min(ts_ns) FROM peak WHERE process_id = %s AND heap IS %Q)", process, heap);
		break;
	case TM_TIME_MARK:
		sqlite3_str_appendf(sql,
				    "coalesce((SELECT min(ts_ns) FROM mark WHERE name = %Q AND process_id = %s), "
				    "(SELECT min(ts_ns) FROM mark WHERE name = %Q))",
				    point->mark, process, point->mark);
		break;
	}
}
