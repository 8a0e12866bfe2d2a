/* activity.h - ACTIVITY payloads: what devices did and what their driver was busy with, by columns (format.md section 6).
 *
 * Flow:     collector -> tm_put_activities() -> chunk ... chunk -> tm_get_activities() -> analyzer
 * Owns:     tm_get_activities() gives an array that tm_activities_release() frees; writing owns nothing.
 */
#ifndef TIDEMARK_SCHEMA_ACTIVITY_H
#define TIDEMARK_SCHEMA_ACTIVITY_H

#include "kinds.h"
#include "wire.h"

#define TM_ACTIVITY_UNKNOWN UINT64_MAX /* of size_bytes and stream */

struct tm_activity {
	uint64_t start_ns, end_ns; /* end_ns: never before start_ns */
	uint64_t size_bytes, stream, address, correlation; /* address, correlation: 0 none */
	uint32_t name;   /* string id, 0 none */
	int32_t device;  /* -1 none */
	uint8_t kind;    /* enum tm_activity_kind */
	uint8_t direction; /* enum tm_activity_direction */
};

/* Appends the whole payload: activities of one process. */
void tm_put_activities(struct tm_bytes *b, uint64_t process, const struct tm_activity *activities, size_t n);

struct tm_activities {
	uint64_t process;
	struct tm_activity *all; /* owned */
	size_t count;
};

/* 0; -1 malformed; -2 out of memory. Release after any. */
int tm_get_activities(struct tm_cursor *payload, struct tm_activities *out);
void tm_activities_release(struct tm_activities *a);

#endif
