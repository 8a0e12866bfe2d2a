/* info_trace.h - facts about a trace file, read without importing it.
 *
 * Flow:  run.tmk -> reader.h -> here: counts by kind -> rows (topic, name, value) of a table `fact` in a database in memory -> cmd_info.c
 */
#ifndef TIDEMARK_ANALYZER_INFO_TRACE_H
#define TIDEMARK_ANALYZER_INFO_TRACE_H

#include <sqlite3.h>

/* Fills the table fact(topic, name, value) of the handle. 0, or TM_EXIT_FAILED after saying why. */
int tm_info_trace(sqlite3 *handle, const char *path);

#endif
