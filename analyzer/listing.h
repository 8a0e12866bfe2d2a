/* listing.h - the one way in which every command that lists gets its rows.
 *
 * Flow:     a verb says where its rows come from (struct tm_listing) -> options are composed into one SQL query -> render.h
 * The query that runs is the query that --sql prints, with every value as a literal, so that it can be pasted into sqlite3. It reads the
 * views of views.sql; only a question about an arbitrary instant or window scans the view `allocation`.
 * Fails:    with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_LISTING_H
#define TIDEMARK_ANALYZER_LISTING_H

#include "database.h"
#include "options.h"
#include "render.h"

struct tm_listing {
	const char *with;         /* common table expressions that `source` uses ("a AS (...), b AS (...)"), or NULL */
	const char *columns;      /* what to select from `source`; NULL: * */
	const char *source;       /* a view, or one of the expressions */
	const char *where;        /* a condition of its own, or NULL */
	const char *order;        /* the usual order, complete: ties included */
	const char *process;      /* the column that --process compares; NULL: process_id; "": none */
	bool has_heap;            /* it has a column heap */
	/* The same rows as `source`, without function, file, line, module and module_offset, which are those of the site of stack_id: these are looked
	 * up for the rows that are listed, unless it is such a name that the rows are sorted by. NULL: none */
	const char *unnamed;
	bool may_be_millions;     /* of rows, which cost less to count than to put in order: a table does so with those that it does not show */
	unsigned rows_shown;      /* of a table without --limit; 0: 20 */
	bool has_device;          /* it has a column device instead: --heap chooses those that the heap lies on */
	const char *title;        /* above a table, or NULL */
	const char *nothing;      /* what a table says instead of no rows; NULL: it has some */
	const char *bar_column;   /* as in struct tm_render_plan */
	const char *share_column; /* as there, unless --sort asks for another quantity */
	const char *value_as;     /* as there, and so it is sorted */
	const char *hidden[24];   /* more columns that its table leaves out */
	const char *estimated[8]; /* columns that are estimates where the trace was sampled */
	const char *null_heap;
	/* A query over the listed rows that a table shows instead of them, because they are too many to read; NULL: none. To be freed with
	 * sqlite3_free(). */
	char *(*condense)(const struct tm_database *d, const struct tm_options *o, const char *sql);
};

/* `unnamed` of a view over site_total, of the columns between stack_id and the names; with those behind them, but for `estimated`. */
#define TM_UNNAMED_SITES(columns) \
	"(SELECT t.process_id, h.name AS heap, t.stack_id, " columns \
	", h.estimated FROM site_total AS t JOIN heap AS h ON h.id = t.heap_id)"

/* An order: processes by the most that each held at once (a heap, where one was asked for), its row for all heaps before those of each. */
#define TM_ORDER_OF_HEAPS(bytes) \
	"coalesce(max(" bytes ") FILTER (WHERE heap IS NULL) OVER (PARTITION BY process_id), max(" bytes \
	") OVER (PARTITION BY process_id)) DESC,\n" \
	"  process_id, heap IS NOT NULL, " bytes " DESC, heap"

/* --heap, --process and marks must exist in the database: 0, or TM_EXIT_FAILED with the names that do. --from behind --to is
 * TM_EXIT_USAGE. */
int tm_listing_check(const struct tm_database *d, const struct tm_options *o);
/* Of the processes that are asked about. */
int64_t tm_count_unrecorded(const struct tm_database *d, const struct tm_options *o);

typedef int tm_lister(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l);

/* Lists, or prints the query with --sql. */
tm_lister tm_listing_run;

/* A further part of a report: lists it under an empty line in a table, and with --sql prints its query as a comment. Other formats have one
 * array only, so they leave it out. */
tm_lister tm_listing_also;

/* The query alone, to be freed with sqlite3_free(); NULL after saying why (*status is the exit status). */
char *tm_listing_sql(const struct tm_database *d, const struct tm_options *o, const struct tm_listing *l, int *status);

/* A whole verb: parses, opens, checks, answers, closes. */
int tm_answer(const struct tm_usage *usage, int argc, char **argv, int (*answer)(const struct tm_database *d, const struct tm_options *o));

/* A condition: a row lies in the window, or reaches into it. process: an expression of its process, with the name of what it is a column of: the tables that
 * an instant is looked up in have a process_id of their own. first, last: its columns of time. NULL: out of memory; else to be freed by sqlite3_free(). */
char *tm_window_condition(const struct tm_database *d, const struct tm_options *o, const char *process, const char *first,
			  const char *last);

#endif
