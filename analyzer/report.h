/* report.h - what `tidemark report` gathers of a database before it writes the page.
 *
 * Flow:     cmd_report.c -> report_load.c (who and when) -> report_groups.c (which call stacks, which names)
 *           -> report_scan.c (their bytes over time) -> report_data.c (JSON for the page's script)
 *           and report_text.h (what is text in it) -> report_page.c (one file, with report/page.html, .css and .js)
 * Idea:     the page lets people pick any stretch of time, so it needs bytes by call stack over time. The allocations are read
 *           once and added up between the instants of a grid, for the call stacks that matter most; of all others, for the outer
 *           part that they share. At an instant of the grid, and between two of them, every sum is exact.
 * Owns:     all of its arrays; tm_report_release() gives them back.
 * Memory:   a few MiB for the sums, 36 bytes a call stack, 2 bytes a scope, 20 a frame and its name, 40 a row of site_total.
 * Fails:    with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_REPORT_H
#define TIDEMARK_ANALYZER_REPORT_H

#include "../schema/array.h"
#include "database.h"
#include "id_map.h"
#include "options.h"
#include "stack_frames.h"

#include "schema/wire.h"

#define TM_REPORT_KEYS 900           /* call stacks at most that are followed over time */
#define TM_REPORT_RESTS 400          /* and outer parts of all others */
#define TM_REPORT_CANDIDATES 255     /* names of a dimension that are followed */
#define TM_REPORT_SHOWN 11           /* of these, shown in a stacked chart */
#define TM_REPORT_RANKS 512          /* processes that are followed */
#define TM_REPORT_FILE_BYTES 2900000 /* what the whole page may have */

/* The ways in which the chart of live bytes can be stacked. */
enum tm_report_by { TM_REPORT_HEAP, TM_REPORT_SCOPE, TM_REPORT_LIBRARY, TM_REPORT_FUNCTION, TM_REPORT_PROCESS, TM_REPORT_DIMENSIONS };

struct tm_report_process {
	int64_t id, pid, rank, start_ns, exit_ns, end_ns, peak_ns, peak_bytes; /* rank -1: none */
	bool has_exit;                                                         /* false: it ended by exec, so that nothing in it leaks */
	uint32_t group;                                                        /* in TM_REPORT_PROCESS */
	uint32_t end_point;                                                    /* the first point of the grid behind its end */
};

struct tm_report_heap {
	int64_t id;
	uint32_t process; /* index */
	uint32_t name;    /* index in heap_names */
	uint32_t rest;    /* index of the key of what has no other */
	bool is_root;
	bool is_counted; /* part of the totals: a root heap, or the one that o->heap names */
};

/* A call stack in a heap of a process, or (is_rest) all others that begin with this one. */
struct tm_report_key {
	uint32_t heap; /* index */
	uint32_t stack;
	int64_t peak_bytes, exit_bytes, allocated_bytes;
	bool is_rest;
};

/* Where the blocks of a call stack are counted. */
struct tm_report_stack {
	uint32_t heap, key;         /* of the heap (1 + index) that it was last met in; 0: not met yet */
	uint16_t function, library; /* groups */
};

/* Bytes that begin to be live, or cease to be, between a point of the grid and the one before. */
struct tm_report_dimension {
	TM_ARRAY(char *) names; /* by group; 0 is everything else */
	double *change;         /* points * names.count, those of a point together */
};

struct tm_report_level {
	int64_t ns, bytes;
};

struct tm_report {
	const struct tm_database *d;
	const struct tm_options *o;
	bool heap_is_ours; /* no host memory was recorded: o->heap is of tm_heap_instead(), and only the totals and charts are about it alone */
	TM_ARRAY(struct tm_report_process) processes;
	TM_ARRAY(struct tm_report_heap) heaps;
	TM_ARRAY(char *) heap_names;
	TM_ARRAY(struct tm_report_level) total; /* live bytes over time, finer than the grid; of several processes there are none */
	TM_ARRAY(int64_t) grid;
	TM_ARRAY(struct tm_report_key) keys; /* heaviest first, those with is_rest last */
	size_t shown_keys;                   /* without is_rest */
	struct tm_id_map process_index, heap_index, key_index;
	struct tm_stack_frames stacks;
	struct tm_report_dimension by[TM_REPORT_DIMENSIONS];
	struct tm_report_stack *by_stack;
	uint32_t *site_of_stack, *rest_of_stack; /* frame; outer part that stands for it where it is not followed */
	int64_t *peak_of_site;                   /* by frame: live at the peak of the first process in heaps that are counted */
	uint16_t *group_of_scope;
	int64_t scope_count;
	double *made, *freed, *kept; /* points * keys, those of a point together: bytes allocated, given back, allocated and live at exit */
	int64_t allocations;         /* rows read */
};

/* The steps, in this order. 0 or an exit status. */
int tm_report_load(struct tm_report *r);
int tm_report_choose(struct tm_report *r);
int tm_report_scan(struct tm_report *r);
void tm_report_release(struct tm_report *r);

/* The JSON of the page's script, with the first `keys` call stacks and names of at most `name_bytes`. */
int tm_report_data(struct tm_report *r, struct tm_bytes *out, size_t keys, size_t name_bytes);

/* The process or heap with this id, or NULL where it is left out by --process or --heap. */
struct tm_report_process *tm_report_process(const struct tm_report *r, int64_t id);
struct tm_report_heap *tm_report_heap(const struct tm_report *r, int64_t id);

/* The key that the bytes of this call stack belong to. */
uint32_t tm_report_key_of(const struct tm_report *r, uint32_t heap, uint32_t stack);

/* The instant that all times of the page count from: when the first process shown started. */
static inline int64_t tm_report_origin(const struct tm_report *r) {
	return r->grid.items[0];
}

/* The first point of the grid that is not before this time. */
size_t tm_report_point(const struct tm_report *r, int64_t ns);

/* Calls back for each row; frees the query, which may be NULL (no memory). */
int tm_report_rows(struct tm_report *r, char *query, int (*row)(struct tm_report *r, sqlite3_stmt *s, void *context), void *context);

/* Appends " AND ..." for --process, compared with this column, and for --heap (heap NULL: the column is not there). The other one is for what is told of each
 * heap: where the user named none, it is told of all. */
void tm_report_filter(sqlite3_str *sql, const struct tm_report *r, const char *process, const char *heap);
void tm_report_filter_each(sqlite3_str *sql, const struct tm_report *r, const char *process, const char *heap);

#endif
