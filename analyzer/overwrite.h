/* overwrite.h - what an output may take the place of.
 *
 * Used by:  import.c, cmd_export.c, cmd_report.c and cmd_check.c, before they write anything: an older result may be replaced, never the only copy of
 *           an input, nor a recording, which cannot be made again. store.c and export_output.c ask where a link leads: what is written under
 *           another name first takes the place of the file that is meant, not of the link to it.
 * Fails:    a file that cannot be looked at is no database and no trace.
 */
#ifndef TIDEMARK_ANALYZER_OVERWRITE_H
#define TIDEMARK_ANALYZER_OVERWRITE_H

#include <stdbool.h>

/* Both exist and are one file, whatever links lead to it. */
bool tm_is_same_file(const char *a, const char *b);

/* A regular file, or a link to one, that holds nothing. */
bool tm_is_empty_file(const char *path);

/* Above 0: a database that tidemark made, and its schema version; 0: none; -1: nobody can say, for another process has it locked. */
int tm_is_tidemark_database(const char *path);

/* The path where a file that is written to `path` comes to lie: the end of its symbolic links, there or not. To be freed; NULL: errno says why. */
char *tm_written_path(const char *path);

/* A result that was made from input and its database may go to `output`: 0, or TM_EXIT_FAILED after saying why. replaces: what is there would go. */
int tm_check_output(const char *output, const char *input, const char *database, bool replaces);

#endif
