/* import_trace.h - one trace into an open database.
 *
 * Flow:     import.c -> here -> catalog.c, then ahead.c -> merge.c -> replay.c, then the rows
 * Twice:    a chunk can turn out to be damaged only when it is used (its checksum was right, its content is not). What came behind it must
 *           not count then, names included, so the trace is imported again up to that chunk: TM_IMPORT_AGAIN.
 */
#ifndef TIDEMARK_ANALYZER_IMPORT_TRACE_H
#define TIDEMARK_ANALYZER_IMPORT_TRACE_H

#include "catalog.h"
#include "foreign.h"
#include "progress.h"
#include "store.h"

struct tm_import_source {
	const char *path;
	bool was_found;               /* nobody named it: it lay in a directory */
	struct tm_foreign *foreign;   /* what was made of another tool's recording, to be read in the place of `path`; NULL: it is a trace */
	uint64_t limit;           /* chunks at and behind this offset are not used; UINT64_MAX: all are */
	const char *limit_reason; /* why; NULL without a limit */
	struct tm_trace_identity identity;
	/* out: */
	uint64_t sound_bytes;
	const char *cut_reason; /* NULL: closed and whole */
	bool is_nameless;       /* of the most addresses nothing says what they are called, and nobody looked them up */
	uint64_t events;
	char error[256]; /* why it failed, if the store did not */
};

enum tm_import_result {
	TM_IMPORT_DONE = 0,
	TM_IMPORT_FAILED = -1, /* source->error or store->error says why */
	TM_IMPORT_AGAIN = -2,  /* limit and limit_reason have been set: start over with an empty database */
};

/* What an import held in memory, and a thread gives back while others go on: page by page it takes as long as all indexes. Zeroed at first. */
struct tm_import_remains {
	pthread_t thread;
	bool runs;
};

/* clock_offset_ns: added to the trace's times. What it leaves behind is to be waited for, however it ends. */
int tm_import_trace(struct tm_store *store, struct tm_import_source *source, uint64_t clock_offset_ns, struct tm_progress *progress,
		    struct tm_import_remains *remains);
void tm_import_remains_wait(struct tm_import_remains *remains);

#endif
