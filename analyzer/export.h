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

#endif
