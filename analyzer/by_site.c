/* by_site.c - SQL that adds up what call stacks did by their call sites; see by_site.h. */
#include "by_site.h"

#include "columns.h"
#include "live_sets.h"
#include "scans.h"

/* sum() fails where it is too large, which total() does not: it is exact up to 8 PiB, and what no integer holds becomes the largest that one does. Sums of
 * times stay fractions, for those may well be larger. */
static void put_sums(sqlite3_str *sql, const char *row, const char *const *sums, bool is_rounded) {
	for (size_t i = 0; sums[i]; i++) {
		bool is_time = tm_column_kind(sums[i]) == TM_COLUMN_INSTANT;
		sqlite3_str_appendf(sql, is_rounded && !is_time ? "%s CAST(round(total(%s.%s)) AS INTEGER) AS %s" : "%s total(%s.%s) AS %s",
				    i % 3 ? "," : ",\n        ", row, sums[i], sums[i]);
	}
}

void tm_sql_by_site(sqlite3_str *sql, const char *stacks, const char *const *sums, bool are_estimates) {
	/* The other columns of a row with max() are those of the row that has it. */
	sqlite3_str_appendf(sql, "frame_sum AS (\n  SELECT b.heap_id, s.site_frame_id, b.stack_id, max(b.%s) AS most", sums[0]);
	put_sums(sql, "b", sums, false);
	sqlite3_str_appendf(sql,
			    "%s\n  FROM %s AS b LEFT JOIN stack AS s ON s.id = b.stack_id GROUP BY b.heap_id, s.site_frame_id),\n"
			    "by_site AS (\n  SELECT h.process_id, h.name AS heap, k.stack_id, max(k.most) AS most",
			    are_estimates ? ", sum(b.variance) AS variance, sum(b.count_variance) AS count_variance" : "", stacks);
	put_sums(sql, "k", sums, true);
	sqlite3_str_appendall(sql, ",\n         f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated");
	if (are_estimates)
		sqlite3_str_appendf(sql,
				    ",\n         round(sqrt(sum(k.variance)) / round(sum(k.%s)), 4) AS relative_error,\n"
				    "         round(sqrt(sum(k.count_variance)) / round(sum(k.%s)), 4) AS count_relative_error",
				    sums[0], sums[1]);
	sqlite3_str_appendall(
		sql,
		"\n  FROM frame_sum AS k CROSS JOIN heap AS h ON h.id = k.heap_id LEFT JOIN frame AS f ON f.id = k.site_frame_id\n"
		"  LEFT JOIN module AS m ON m.id = f.module_id\n"
		"  GROUP BY k.heap_id, f.function, f.file, f.line, iif(f.file IS NULL, m.path, NULL), iif(f.function IS NULL, f.module_offset, NULL))");
}

const char *const tm_peak_sums[] = { "live_bytes", "live_count", "process_peak_bytes", "process_peak_count", NULL };
const char *const tm_live_sums[] = { "live_bytes", "live_count", NULL };

/* What lies in `block` is of stacks; that they are added up further is said, so that estimates are rounded once. */
static void put_live(sqlite3_str *sql, const struct tm_database *d, const char *instants, const struct tm_options *o) {
	struct tm_options added_up = *o;
	added_up.by = TM_BY_SITE;
	tm_sql_block_stacks(sql, d, instants, &added_up, "");
	sqlite3_str_appendall(sql, ",\n");
	tm_sql_by_site(sql, "block", tm_live_sums, d->estimated);
}

void tm_sql_sites_at_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	struct tm_options whole = tm_without_window(o);
	tm_sql_peak_instants(sql, d, o);
	sqlite3_str_appendall(sql, ",\n");
	put_live(sql, d, "top", &whole);
}

void tm_sql_sites_at_exit(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	tm_sql_instants(sql, o, &at_exit);
	sqlite3_str_appendall(sql, ",\n");
	put_live(sql, d, "instant", o);
}
