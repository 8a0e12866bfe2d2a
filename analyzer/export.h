/* export.h - the forms in which a database leaves for other tools.
 *
 * Flow:  cmd_export.c opens the output -> one of these writes it -> cmd_export.c closes it
 * Each returns 0 or an exit status after saying what failed; failures of the output are the output's to say.
 */
#ifndef TIDEMARK_ANALYZER_EXPORT_H
#define TIDEMARK_ANALYZER_EXPORT_H

#include "database.h"
#include "export_output.h"
#include "options.h"

/* Collapsed stacks, "main;load;parse 4096", as flame graph tools read them. */
int tm_export_folded(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);

/* Chrome trace JSON: counters of each heap, samples, marks, scopes, by process and thread. */
int tm_export_chrome(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);

/* profile.proto of pprof, to be compressed with gzip: allocated and live blocks and bytes, and bytes at the peak; labels heap and process. */
int tm_export_pprof(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);

/* The file format of speedscope.app: a profile each for what was live at the peak, live at exit, allocated and temporary. */
int tm_export_speedscope(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);

/* The text that heaptrack_print and heaptrack_gui read: every allocation and free in the order of time. */
int tm_export_heaptrack(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);

/* Comma-separated values (RFC 4180) of a view or table, all columns; with the whole stack as text where it has a stack_id. */
int tm_export_csv(const struct tm_database *d, const struct tm_options *o, struct tm_output *out);

#endif
