/* journal.h - what an import that was killed while it added to a database left beside it.
 *
 * Flow:     database.c, import.c and overwrite.c, which read databases -> here; store.c, which puts a new one in its place -> here
 * Idea:     SQLite keeps the pages of before in DB-journal until a transaction is over. Whoever opens the database next puts them back, but
 *           not a connection that may only read: it is refused. And it puts them into whatever file has the name by then.
 */
#ifndef TIDEMARK_ANALYZER_JOURNAL_H
#define TIDEMARK_ANALYZER_JOURNAL_H

#include <sqlite3.h>

/* sqlite3_open_v2() to read only, after what such an import left was put back. flags: further ones. */
int tm_journal_open(const char *path, sqlite3 **handle, int flags);

/* A new file is about to take this name: what an older one left is not its own. */
void tm_journal_forget(const char *path);

#endif
