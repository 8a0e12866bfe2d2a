/* stack_values.c - composes the sums by stack: from the view site, or from a scan where a window is asked for. */
#include "stack_values.h"

#include <stddef.h>

#include "scans.h"

/* The source of rows (process_id, heap, stack_id) and its columns. */
struct value_source {
	const char *view, *bytes, *blocks;
};

static struct value_source choose_view(const struct tm_options *o, enum tm_export_value value) {
	switch (value) {
	case TM_VALUE_LIVE:
	case TM_VALUE_LEAKED: return (struct value_source){ "site", "live_at_exit_bytes", "live_at_exit_count" };
	case TM_VALUE_ALLOCATED: return (struct value_source){ "site", "allocated_bytes", "allocations" };
	case TM_VALUE_TEMPORARY: return (struct value_source){ "site", "temporary_bytes", "temporary" };
	default: break;
	}
	return o->heap ? (struct value_source){ "site", "peak_bytes", "peak_count" }
		       : (struct value_source){ "site", "process_peak_bytes", "process_peak_count" };
}

/* The process peak within a window, and what was live then, over the root heaps or in one. */
static void put_window_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o) {
	tm_sql_highest(sql, d, o);
	sqlite3_str_appendf(
		sql,
		",\ntop AS MATERIALIZED (\n  SELECT p.id AS process_id, h.id AS heap_id, p.end_ns, k.ts_ns AS at_ns\n"
		"  FROM heap AS h JOIN process AS p ON p.id = h.process_id JOIN highest AS k ON k.process_id = p.id AND k.heap IS %Q),\n",
		o->heap);
	tm_sql_live(sql, d, "top", NULL);
}

/* Appends what scans for a window; returns what to read of it. */
static struct value_source put_window(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, enum tm_export_value value) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	switch (value) {
	case TM_VALUE_PEAK: put_window_peak(sql, d, o); break;
	case TM_VALUE_TEMPORARY: tm_sql_made(sql, d, o); return (struct value_source){ "made", "bytes", "count" };
	case TM_VALUE_ALLOCATED:
		tm_sql_instants(sql, o, NULL);
		sqlite3_str_appendf(sql,
				    ",\nallocated AS (\n  SELECT a.process_id, i.heap, a.stack_id, %s AS bytes, %s AS count\n"
				    "  FROM allocation AS a JOIN instant AS i ON i.heap_id = a.heap_id WHERE true",
				    tm_sql_sum_bytes(d), tm_sql_sum_count(d));
		tm_sql_window(sql, o, "a.alloc_ns", "a.alloc_ns");
		sqlite3_str_appendall(sql, "\n  GROUP BY a.process_id, a.heap_id, a.stack_id)");
		return (struct value_source){ "allocated", "bytes", "count" };
	default:
		tm_sql_instants(sql, o, &at_exit);
		sqlite3_str_appendall(sql, ",\n");
		tm_sql_live(sql, d, "instant", o);
	}
	return (struct value_source){ "live", "live_bytes", "live_count" };
}

void tm_sql_stack_values(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, enum tm_export_value value) {
	struct value_source source = choose_view(o, value);
	sqlite3_str_appendall(sql, "WITH ");
	if (tm_has_window(o)) {
		source = put_window(sql, d, o, value);
		sqlite3_str_appendall(sql, ",\n");
	}
	sqlite3_str_appendf(sql,
			    "by_stack AS MATERIALIZED (\n  SELECT v.process_id, v.heap, v.stack_id, v.%s AS bytes, v.%s AS blocks FROM %s AS v\n"
			    "  JOIN heap AS h ON h.process_id = v.process_id AND h.name = v.heap WHERE (v.%s > 0 OR v.%s > 0)",
			    source.bytes, source.blocks, source.view, source.bytes, source.blocks);
	if (o->heap) sqlite3_str_appendf(sql, " AND v.heap = %Q", o->heap);
	else sqlite3_str_appendall(sql, " AND h.is_root");
	if (o->process_given && o->process_is_rank) {
		sqlite3_str_appendf(sql, " AND v.process_id IN (SELECT id FROM process WHERE rank = %lld)", o->process);
	} else if (o->process_given) {
		sqlite3_str_appendf(sql, " AND v.process_id = %lld", o->process);
	}
	sqlite3_str_appendall(sql, ")\n");
}

const char *tm_value_name(enum tm_export_value value) {
	static const char *const names[] = { "peak", "live", "allocated", "leaked", "temporary" };
	return names[value];
}
