/* stack_values.c - composes the sums by stack: from the table site_total, or from a scan where a window is asked for. */
#include "stack_values.h"

#include <stddef.h>

#include "live_sets.h"
#include "scans.h"

/* The source v of rows (stack_id and these columns) of heap h, and how they are joined. */
struct value_source {
	const char *from, *bytes, *blocks;
};

/* Heap by heap, as their index and that of the table have the rows: in the order of process, heap and stack nothing is sorted, and no name of a frame is
 * looked up. */
#define TOTALS "heap AS h CROSS JOIN site_total AS v ON v.process_id = h.process_id AND v.heap_id = h.id"
#define OF_SCAN(name) name " AS v JOIN heap AS h ON h.process_id = v.process_id AND h.name = v.heap"

/* Heap h lies in no other one and holds memory, but not the process' own: on a device, or pinned for one. */
#define LIES_APART "NOT h.is_root AND h.parent_id IS NULL AND h.kind NOT IN ('address-space', 'file', 'python')"

char *tm_heaps_apart(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT DISTINCT h.name FROM heap AS h JOIN heap_total AS t ON t.heap_id = h.id\n"
				   "WHERE t.allocations > 0 AND " LIES_APART);
	tm_sql_process(sql, o, " AND", "h.process_id");
	sqlite3_str_appendall(sql, " ORDER BY h.name");
	char *query = sqlite3_str_finish(sql), *names = query ? tm_database_words(d, query) : NULL;
	sqlite3_free(query);
	return names;
}

bool tm_has_only_heaps_apart(const struct tm_database *d, const struct tm_options *o) {
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	for (int own = 1; own >= 0; own--) {
		sqlite3_str_appendf(sql,
				    "%s EXISTS (SELECT 1 FROM heap AS h JOIN heap_total AS t ON t.heap_id = h.id\n"
				    "WHERE t.allocations > 0 AND %s",
				    own ? "SELECT NOT" : " AND", own ? "h.is_root" : LIES_APART);
		tm_sql_process(sql, o, " AND", "h.process_id");
		sqlite3_str_appendall(sql, ")");
	}
	char *query = sqlite3_str_finish(sql);
	bool only = !o->heap && query && tm_database_integer(d, query, 0);
	sqlite3_free(query);
	return only;
}

char *tm_heap_instead(const struct tm_database *d, const struct tm_options *o) {
	if (!tm_has_only_heaps_apart(d, o)) return NULL;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	sqlite3_str_appendall(sql, "SELECT h.name FROM heap AS h JOIN heap_total AS t ON t.heap_id = h.id\n"
				   "WHERE t.allocations > 0 AND (h.kind = 'tensor' OR (" LIES_APART "))");
	tm_sql_process(sql, o, " AND", "h.process_id");
	sqlite3_str_appendall(sql, " GROUP BY h.name ORDER BY max(h.kind = 'tensor') DESC, sum(t.peak_bytes) DESC, h.name LIMIT 1");
	char *query = sqlite3_str_finish(sql), *name = query ? tm_database_words(d, query) : NULL;
	sqlite3_free(query);
	return name;
}

const char *tm_sql_default_heaps(const struct tm_database *d, const struct tm_options *o) {
	return tm_has_only_heaps_apart(d, o) ? LIES_APART : "h.is_root";
}

static struct value_source choose_totals(enum tm_export_value value, bool by_heap) {
	switch (value) {
	case TM_VALUE_LIVE:
	case TM_VALUE_LEAKED: return (struct value_source){ TOTALS, "live_at_exit_bytes", "live_at_exit_count" };
	case TM_VALUE_ALLOCATED: return (struct value_source){ TOTALS, "allocated_bytes", "allocations" };
	case TM_VALUE_TEMPORARY: return (struct value_source){ TOTALS, "temporary_bytes", "temporary" };
	default: break;
	}
	return by_heap ? (struct value_source){ TOTALS, "peak_bytes", "peak_count" }
		       : (struct value_source){ TOTALS, "process_peak_bytes", "process_peak_count" };
}

/* The process peak within a window, and what was live then, over the root heaps; or that of the chosen heap, or of each. */
static void put_window_peak(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, bool by_heap) {
	struct tm_options whole = tm_without_window(o);
	tm_sql_highest(sql, d, o);
	sqlite3_str_appendf(
		sql,
		",\ntop AS MATERIALIZED (\n  SELECT p.id AS process_id, h.id AS heap_id, p.end_ns, k.ts_ns AS at_ns\n"
		"  FROM heap AS h JOIN process AS p ON p.id = h.process_id JOIN highest AS k ON k.process_id = p.id AND k.heap IS %s),\n",
		by_heap ? "h.name" : "NULL");
	tm_sql_live(sql, d, "top", &whole);
}

/* Appends what scans for a window; returns what to read of it. */
static struct value_source put_window(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, enum tm_export_value value,
				      bool by_heap) {
	static const struct tm_time_point at_exit = { .kind = TM_TIME_EXIT };
	switch (value) {
	case TM_VALUE_PEAK: put_window_peak(sql, d, o, by_heap); break;
	case TM_VALUE_TEMPORARY: tm_sql_made(sql, d, o); return (struct value_source){ OF_SCAN("unnamed"), "bytes", "count" };
	case TM_VALUE_ALLOCATED: tm_sql_allocated(sql, d, o); return (struct value_source){ OF_SCAN("allocated"), "bytes", "count" };
	default:
		tm_sql_instants(sql, o, &at_exit);
		sqlite3_str_appendall(sql, ",\n");
		tm_sql_live(sql, d, "instant", o);
	}
	return (struct value_source){ OF_SCAN("unnamed"), "live_bytes", "live_count" };
}

void tm_sql_stack_values(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, enum tm_export_value value) {
	bool by_heap = o->heap || tm_has_only_heaps_apart(d, o);
	struct value_source source = choose_totals(value, by_heap);
	sqlite3_str_appendall(sql, "WITH ");
	if (tm_has_window(o)) {
		sqlite3_str *own = sqlite3_str_new(d->handle); /* tm_sql_highest() asks what was put so far, which WITH is no part of */
		source = put_window(own, d, o, value, by_heap);
		char *window = sqlite3_str_finish(own);
		sqlite3_str_appendf(sql, "%s,\n", window ? window : "");
		sqlite3_free(window);
	}
	sqlite3_str_appendf(
		sql,
		"by_stack AS (\n  SELECT h.process_id, h.name AS heap, h.id AS heap_id, v.stack_id, v.%s AS bytes, v.%s AS blocks\n"
		"  FROM %s\n  WHERE (v.%s > 0 OR v.%s > 0)",
		source.bytes, source.blocks, source.from, source.bytes, source.blocks);
	if (o->heap) sqlite3_str_appendf(sql, " AND h.name = %Q", o->heap);
	else sqlite3_str_appendf(sql, " AND %s", tm_sql_default_heaps(d, o));
	tm_sql_process(sql, o, " AND", "h.process_id");
	sqlite3_str_appendall(sql, ")\n");
}

const char *tm_value_name(enum tm_export_value value) {
	static const char *const names[] = { "peak", "live", "allocated", "leaked", "temporary" };
	return names[value];
}
