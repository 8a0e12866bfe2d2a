/* times.c - from the words for a point in time to SQL. */
#include "times.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "schema/units.h"

static const struct {
	const char *word;
	enum tm_time_kind kind;
} words[] = { { "start", TM_TIME_START },
	      { "peak", TM_TIME_PEAK },
	      { "exit", TM_TIME_EXIT },
	      { "end", TM_TIME_END },
	      { "baseline", TM_TIME_BASELINE } };

static const struct {
	const char *word;
	enum tm_time_kind kind;
	bool is_number;
} prefixes[] = { { "mark:", TM_TIME_MARK, false },
		 { "step:", TM_TIME_STEP, true },
		 { "step-end:", TM_TIME_STEP_END, true },
		 { "scope:", TM_TIME_SCOPE, false },
		 { "scope-end:", TM_TIME_SCOPE_END, false },
		 { "snapshot:", TM_TIME_SNAPSHOT, false } };

static bool take_number(const char *text, int64_t *out) {
	const char *digits = text + (*text == '-');
	char *end;
	errno = 0;
	*out = strtoll(text, &end, 10);
	return *digits >= '0' && *digits <= '9' && !*end && !errno;
}

/* The process's own, else the first of any. */
static void put_step(sqlite3_str *sql, const struct tm_time_point *point, const char *process) {
	const char *column = point->kind == TM_TIME_STEP ? "start_ns" : "end_ns";
	sqlite3_str_appendf(
		sql, "coalesce((SELECT min(%s) FROM step WHERE n = %lld AND process_id = %s), (SELECT min(%s) FROM step WHERE n = %lld))",
		column, (sqlite3_int64)point->step, process, column, (sqlite3_int64)point->step);
}

static void put_scope(sqlite3_str *sql, const struct tm_time_point *point, const char *process) {
	const char *column = point->kind == TM_TIME_SCOPE ? "start_ns" : "end_ns";
	const char *names = "(SELECT id FROM scope_name WHERE text = ";
	sqlite3_str_appendf(sql,
			    "coalesce((SELECT %s FROM scope_packed WHERE process_id = %s AND name_id IN %s%Q) ORDER BY id LIMIT 1), "
			    "(SELECT %s FROM scope_packed WHERE id > 0 AND name_id IN %s%Q) ORDER BY id LIMIT 1))",
			    column, process, names, point->mark, column, names, point->mark);
}

const char *tm_label_prefix(const char *label, size_t n) {
#define TM_LABEL(label) label,
	static const char *const ours[] = { TM_OWN_LABELS(TM_LABEL) };
#undef TM_LABEL
	bool is_ours = n >= 5 && memcmp(label, "mark:", 5) == 0;
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		is_ours = is_ours || (n == strlen(ours[i]) && memcmp(label, ours[i], n) == 0);
	}
	return is_ours ? "snapshot:" : "";
}

static void put_snapshot(sqlite3_str *sql, const struct tm_time_point *point, const char *process) {
	const char *prefix = tm_label_prefix(point->mark, strlen(point->mark));
	sqlite3_str_appendf(sql,
			    "coalesce((SELECT min(ts_ns) FROM snapshot WHERE label = '%s%q' AND process_id = %s), "
			    "(SELECT min(ts_ns) FROM snapshot WHERE label = '%s%q'))",
			    prefix, point->mark, process, prefix, point->mark);
}

static void put_baseline(sqlite3_str *sql, const char *process) {
	sqlite3_str_appendf(sql,
			    "coalesce((SELECT max(ts_ns) FROM snapshot WHERE label = 'baseline' AND process_id = %s), "
			    "(SELECT max(ts_ns) FROM snapshot WHERE label = 'baseline'))",
			    process);
}

bool tm_time_point_parse(const char *text, struct tm_time_point *out) {
	*out = (struct tm_time_point){ .kind = TM_TIME_UNSET };
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(text, words[i].word) == 0) out->kind = words[i].kind;
	}
	if (out->kind != TM_TIME_UNSET) return true;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t n = strlen(prefixes[i].word);
		if (strncmp(text, prefixes[i].word, n) != 0) continue;
		*out = (struct tm_time_point){ .kind = prefixes[i].kind, .mark = text + n };
		return !prefixes[i].is_number || take_number(text + n, &out->step); /* a name may be empty */
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
	case TM_TIME_KNOWN:
		sqlite3_str_appendf(
			sql,
			"(SELECT min(end_ns, coalesce((SELECT max(g.end_ns) FROM coverage_gap AS g WHERE g.process_id = process.id AND "
			"g.kind = 'dropped'), start_ns)) FROM process WHERE id = %s)",
			process);
		break;
	case TM_TIME_STEP:
	case TM_TIME_STEP_END: put_step(sql, point, process); break;
	case TM_TIME_SCOPE:
	case TM_TIME_SCOPE_END: put_scope(sql, point, process); break;
	case TM_TIME_SNAPSHOT: put_snapshot(sql, point, process); break;
	case TM_TIME_BASELINE: put_baseline(sql, process); break;
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
