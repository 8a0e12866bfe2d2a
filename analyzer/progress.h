/* progress.h - one line on a terminal that says how far a long work has come, how fast it goes and how long it will take.
 *
 * Says nothing in the first second, nor where standard error is no terminal. The line is wiped when the work is done.
 * Of what a database is asked nobody knows how far it is; so there it says only for how long.
 */
#ifndef TIDEMARK_ANALYZER_PROGRESS_H
#define TIDEMARK_ANALYZER_PROGRESS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct tm_progress {
	bool enabled, shown; /* enabled: there is a terminal */
	const char *what;    /* "importing 'a.tmk'" */
	uint64_t start_ns, next_ns;
};

void tm_progress_start(struct tm_progress *p, const char *what);
/* done of total bytes, and the events so far. */
void tm_progress_update(struct tm_progress *p, uint64_t done, uint64_t total, uint64_t events);
void tm_progress_end(struct tm_progress *p);

/* From here on, of whatever this connection is asked, but while another work of the above is under way. */
void tm_progress_of_queries(sqlite3 *db);
/* Before anything is written that may go to the terminal, and at the end. The next second begins anew. */
void tm_progress_wipe(void);

#endif
