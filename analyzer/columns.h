/* columns.h - what a column's name says about its values.
 *
 * Views, JSON keys and --sort share one set of names, and the contract's naming (units last) is enough to know how a value is shown in a
 * table and which way it is sorted. The rules live here once.
 */
#ifndef TIDEMARK_ANALYZER_COLUMNS_H
#define TIDEMARK_ANALYZER_COLUMNS_H

#include <stdbool.h>

enum tm_column_kind {
	TM_COLUMN_TEXT,
	TM_COLUMN_NAME,     /* a function or command: shortened in the middle */
	TM_COLUMN_PATH,     /* a file: shortened at its start */
	TM_COLUMN_SIZE,     /* bytes */
	TM_COLUMN_COUNT,    /* how many */
	TM_COLUMN_SCORE,    /* a figure without a unit */
	TM_COLUMN_SHARE,    /* a part of 1, shown in percent */
	TM_COLUMN_INSTANT,  /* ns since the start */
	TM_COLUMN_DURATION, /* ns */
	TM_COLUMN_ID,       /* a number that names something, or an exact number without a scale */
};

enum tm_column_kind tm_column_kind(const char *name);

/* Bytes, counts, scores and durations: sorted largest first unless told otherwise. Everything else goes upward. */
bool tm_column_is_quantity(const char *name);

#endif
