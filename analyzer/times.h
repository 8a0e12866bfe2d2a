/* times.h - points in time as people name them: 12.5s, 300ms, start, baseline, peak, exit, end, mark:NAME, step:N, scope:NAME, snapshot:LABEL.
 *
 * A number counts from the start of the database (its earliest trace). The named ones are different instants in different processes, so
 * a time point becomes an SQL expression over a process's id, and a query with it answers for each process at its own exit or peak.
 */
#ifndef TIDEMARK_ANALYZER_TIMES_H
#define TIDEMARK_ANALYZER_TIMES_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tm_time_kind {
	TM_TIME_UNSET,
	TM_TIME_NS,
	TM_TIME_START,
	TM_TIME_PEAK,
	TM_TIME_EXIT,
	TM_TIME_END,
	TM_TIME_MARK,
	TM_TIME_BASELINE, /* the last one */
	TM_TIME_STEP,
	TM_TIME_STEP_END,
	TM_TIME_SCOPE,
	TM_TIME_SCOPE_END,
	TM_TIME_SNAPSHOT,
	TM_TIME_KNOWN /* no word for it: where a ring's window begins, or the process ended before that; of others their start */
};

struct tm_time_point {
	enum tm_time_kind kind;
	uint64_t ns;      /* TM_TIME_NS */
	int64_t step;     /* of steps: the number that the program gave it */
	const char *mark; /* TM_TIME_MARK, scopes and snapshots: the name, looks into the text that was parsed */
};

/* false: not a point in time. */
bool tm_time_point_parse(const char *text, struct tm_time_point *out);

/* The labels of snapshots that are the tool's own, but for those of marks. */
#define TM_OWN_LABELS(X) X("start") X("exit") X("end") X("peak") X("process-peak") X("baseline")

/* What the table snapshot has before a label of the program's: "snapshot:" where it could be taken for one of ours, else "". */
const char *tm_label_prefix(const char *label, size_t n);

/* Appends the expression. process: the SQL that yields the process's id, such as "v.process_id"; heap: whose peak is meant, NULL for the
 * whole process. `peak` is the earliest instant of the highest level. A mark is the process's own first one of that name, else the first
 * of any process; so is a step of that number, a snapshot of that label, and a scope of that name: its first instance. */
void tm_time_point_sql(sqlite3_str *sql, const struct tm_time_point *point, const char *process, const char *heap);

#endif
