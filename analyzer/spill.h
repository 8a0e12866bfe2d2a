/* spill.h - an array of records that may outgrow memory: it lies in a file without a name.
 *
 * Flow:     scopes.c, scope_totals.c (in the order in which scopes end) -> here -> scope_rows.c (in the order of their ids)
 * Owns:     a file beside the database, unlinked as soon as it is made, and its mapping. The page cache keeps what is worked on.
 * When full: room is reserved before it is mapped, so a full disk is an error here and never a signal.
 * Fails:    with NULL; `error` is the errno.
 */
#ifndef TIDEMARK_ANALYZER_SPILL_H
#define TIDEMARK_ANALYZER_SPILL_H

#include <stddef.h>
#include <stdint.h>

#define TM_SPILL_RECORDS 16384u /* mapped together */

struct tm_spill {
	const char *beside; /* path of a file in the directory to be used */
	size_t record_bytes, segment_count;
	char **segments;
	uint64_t count;
	int fd, error;
};

/* A new file without a name in the directory of `beside`: its descriptor, or -1 with errno. */
int tm_scratch_open(const char *beside);

/* beside must outlive it. */
void tm_spill_init(struct tm_spill *s, const char *beside, size_t record_bytes);
void tm_spill_release(struct tm_spill *s);
/* A new record, zeroed, number `count` - 1. It stays where it is. */
void *tm_spill_push(struct tm_spill *s);

/* index: below count. */
static inline void *tm_spill_at(const struct tm_spill *s, uint64_t index) {
	return s->segments[index / TM_SPILL_RECORDS] + index % TM_SPILL_RECORDS * s->record_bytes;
}

#endif
