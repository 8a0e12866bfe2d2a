/* stack_values.h - what a call stack is worth: the bytes and blocks that exports by stack add up.
 *
 * Flow:  export_folded.c, export_pprof.c, export_speedscope.c -> here: SQL over the table site_total, or over scans.h where a window is asked for
 */
#ifndef TIDEMARK_ANALYZER_STACK_VALUES_H
#define TIDEMARK_ANALYZER_STACK_VALUES_H

#include <sqlite3.h>

#include "database.h"
#include "options.h"

/* Appends "WITH ... by_stack AS (...)": one row for each process_id, heap (its name; heap_id) and stack_id that has something of `value`, with its
 * bytes and its blocks. Root heaps only, unless o->heap names one; of o->process only, if that is given. Where no root heap was ever used
 * (tm_has_only_heaps_apart), the heaps that lie apart.
 * TM_VALUE_PEAK is what was live at the peak of each process, with o->heap and of heaps apart at the peak of that heap. */
void tm_sql_stack_values(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, enum tm_export_value value);

/* Heaps apart lie in no other heap and are no part of a process' own memory: cuda:0, cuda-host. The first: no heap is chosen, and what
 * the chosen processes allocated lies in such heaps only. The other: the names of those that were used, to be freed with sqlite3_free(). */
bool tm_has_only_heaps_apart(const struct tm_database *d, const struct tm_options *o);
char *tm_heaps_apart(const struct tm_database *d, const struct tm_options *o);

/* Where there are only such heaps: the name of the one that an answer about a single heap is about, to be freed with sqlite3_free(): tensors before what they
 * lie in, and of several devices the one that held most. NULL: a heap is chosen, or the process' own memory was recorded. */
char *tm_heap_instead(const struct tm_database *d, const struct tm_options *o);

/* The condition that heap h is one of those that are taken where none is chosen. */
const char *tm_sql_default_heaps(const struct tm_database *d, const struct tm_options *o);

/* "peak", "live", ...: as --value takes them. */
const char *tm_value_name(enum tm_export_value value);

#endif
