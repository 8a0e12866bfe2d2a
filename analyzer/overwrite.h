/* overwrite.h - what an output may take the place of.
 *
 * Used by:  import.c and cmd_export.c, before they write anything: --force is for an older result, never for the only copy of an input.
 * Fails:    a file that cannot be looked at is no database and no trace.
 */
#ifndef TIDEMARK_ANALYZER_OVERWRITE_H
#define TIDEMARK_ANALYZER_OVERWRITE_H

#include <stdbool.h>

/* Both exist and are one file, whatever links lead to it. */
bool tm_is_same_file(const char *a, const char *b);

/* A regular file, or a link to one, that holds nothing. */
bool tm_is_empty_file(const char *path);

/* A database that tidemark made, of any version. */
bool tm_is_tidemark_database(const char *path);

#endif
