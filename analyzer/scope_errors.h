/* scope_errors.h - the standard errors of what was estimated for scopes and steps.
 *
 * Flow:  cmd_scopes.c, cmd_diff.c -> here: scope_blocks.h, or common table expressions over the view `allocation` -> listing.h
 * Idea:  a block counts once in a scope, or in all of a name: those around the scope that it was allocated in, and freed in, are looked up for each scope, and
 *        what they sum up to is compared with what import has. Where the two differ (scopes that overlap have blocks in common of which the scopes around a
 *        block do not tell) there is no error. Shares, as elsewhere.
 * Each function appends expressions ("name AS (...)") without a comma behind them, to those that come before them in the query.
 * Fails: with one line on standard error and an exit status.
 */
#ifndef TIDEMARK_ANALYZER_SCOPE_ERRORS_H
#define TIDEMARK_ANALYZER_SCOPE_ERRORS_H

#include "database.h"
#include "options.h"

/* Rows that scopes were added up to; the key of a scope s says which, as an expression. */
struct tm_scope_rows {
	const char *rows;   /* process_id, heap and the sums */
	const char *scopes; /* id, end_ns and what the key is made of */
	const char *key;    /* of a scope s */
	const char *same;   /* of a row v */
	const char *schema; /* "main", or what is attached */
	const char *name;   /* of the answer */
	const char *slack;  /* by how many bytes rounding may set its sums apart, of a row v */
};

/* Expressions up to `name`: the rows with errors of what was allocated, freed and both (net), by itself and in total, of what of theirs was freed anywhere, and
 * of what was retained. lines: rows of a tree, which have fewer sums. */
int tm_sql_scope_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r);
int tm_sql_line_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r);
/* The same with allocated_variance and retained_variance, in total, of rows that are added up further; NULL where there would be no error. */
int tm_sql_scope_variances(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o, const struct tm_scope_rows *r);

/* Expressions up to `step_of_samples`: the rows of the view step_total with errors, but for those of peaks. */
int tm_sql_step_errors(sqlite3_str *sql, const struct tm_database *d, const struct tm_options *o);

#endif
