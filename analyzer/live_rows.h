/* live_rows.h - what a live trace shows now, as tables of a database in memory, so that it is listed as everything else is.
 *
 * Flow:     live.c, live_names.c -> here -> listing.c
 * Tables:   live_heap, live_site, live_scope, and process as far as listing.c needs it.
 * Rates:    of the interval that live.h tells of; the first one begins with the recording.
 * Owns:     the database.
 */
#ifndef TIDEMARK_ANALYZER_LIVE_ROWS_H
#define TIDEMARK_ANALYZER_LIVE_ROWS_H

#include "database.h"
#include "live_names.h"

/* 0 or -1: out of memory. Release after either, with tm_database_close(). */
int tm_live_rows_open(struct tm_database *d, const char *path);
/* Replaces the rows. 0 or -1: out of memory. */
int tm_live_rows_take(struct tm_database *d, struct tm_live *l, struct tm_live_names *names);

#endif
