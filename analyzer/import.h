/* import.h - from trace files to a database.
 *
 * Flow:     cmd_import.c, and database.c for a command that was given a trace -> here -> run.db
 * Promise:  the database is there whole or not at all. A damaged or cut trace is imported as far as it is sound, with a warning.
 * Memory:   follows the live blocks and the stacks, not the length of the trace.
 * Threads:  uses one of its own while stacks are read (stacks_ahead.c), three while events are played (ahead.c, feed.c, bulk.c), one where leaks are judged
 *           (leaks.c), and then up to five to write the rows (bulk.c, tree_rows.c, function_rows.c, import_trace.c, site_rows.c). One import at a time in a
 *           process.
 * Fails:    with one line on standard error.
 */
#ifndef TIDEMARK_ANALYZER_IMPORT_H
#define TIDEMARK_ANALYZER_IMPORT_H

#include "store.h"

#include <stddef.h>

struct tm_import_options {
	enum tm_store_mode mode;
	bool quiet; /* no closing line; warnings are said anyway */
	/* For each path, whether nobody named it (it was found in a directory): a copy of another trace is then left out with a warning,
	 * which else is refused. NULL: all were named. */
	const bool *was_found;
};

/* Many traces become one database. 0, or TM_EXIT_FAILED after saying what failed. */
int tm_import(const char *const *paths, size_t n, const char *database, const struct tm_import_options *options);

/* For a command that was given a trace: replaces the database if there is one. */
int tm_import_beside(const char *trace, const char *database);

enum tm_import_likeness {
	TM_IMPORT_SAME,
	TM_IMPORT_OTHER,
	TM_IMPORT_UNTOLD, /* it does not say when it was made, or is another tool's and was not translated */
};

/* Is one of the traces in a database this recording? One of ours is known by its first chunks. Another tool's has to be translated, which costs a good
 * part of an import; one that cannot be is OTHER. */
enum tm_import_likeness tm_import_compare(sqlite3 *database, const char *trace, bool may_translate);

/* The verb, in cmd_import.c; argv[0] is "import". Returns the exit status. */
int tm_cmd_import(int argc, char **argv);

#endif
