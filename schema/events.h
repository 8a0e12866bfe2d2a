/* events.h - the EVENTS codec: arrays of events to columns and back (format.md section 5).
 *
 * Flow:     drain -> struct tm_event[] -> tm_encode_segment() -> chunk ... chunk -> tm_decode_segment() -> merge
 * Owns:     tm_encoder and tm_decoder own their tables and column buffers (about 1 MiB), reused from segment to segment.
 * Threads:  one object, one thread at a time; segments are independent, so several threads may each decode chunks.
 */
#ifndef TIDEMARK_SCHEMA_EVENTS_H
#define TIDEMARK_SCHEMA_EVENTS_H

#include "kinds.h"
#include "wire.h"

#define TM_USABLE_UNKNOWN UINT64_MAX
#define TM_SEGMENT_EVENTS_MAX (1u << 22) /* bounds what a reader needs: a longer run of a thread is several segments */

struct tm_event {
	uint64_t time_ns;  /* after an allocation, before a free; never decreases within a segment */
	uint64_t begin_ns; /* realloc, unmap, remap: before the call; for other classes equal to time_ns when decoded */
	uint64_t addr;     /* the new address; text: unused */
	uint64_t size;     /* the new size, as requested */
	uint64_t old;      /* free, realloc, unmap, remap: the address given back */
	uint64_t old_size; /* unmap, remap: bytes given back */
	uint64_t usable;   /* alloc, realloc: what the allocator really gave, or TM_USABLE_UNKNOWN */
	uint32_t stack;    /* node id, 0 none */
	uint32_t heap;     /* heap id, 0 the op's default */
	uint32_t text;     /* text class: string id */
	uint8_t op;        /* enum tm_op */
};
/* Fields that an op's class does not use are 0 after decoding (usable: TM_USABLE_UNKNOWN). An op of TM_OP_IS_SCOPE has its key in
 * `addr`, its link in `old` and its category (a string id) in `heap`. */

/* What glibc gives for a request of this size, below the mmap threshold: the codec's default for `usable`. */
uint64_t tm_usable_default(uint64_t size);

#define TM_SIZE_CLASS_MIN 2u
#define TM_SIZE_CLASS_MAX 65u

/* The c of format.md; 0: there is no class. */
static inline unsigned tm_size_class(uint64_t size) {
	uint64_t c = (size + 23) / 16;
	if (c > TM_SIZE_CLASS_MAX) return 0;
	return c < TM_SIZE_CLASS_MIN ? TM_SIZE_CLASS_MIN : (unsigned)c;
}

/* A block of this size, which was given by the alloc or realloc that many back: 1 is the last one before the event. */
static inline uint64_t tm_given_back(uint64_t back, uint64_t size) {
	return back << 7 | tm_size_class(size);
}

struct tm_encoder;
struct tm_encoder *tm_encoder_new(void); /* NULL: out of memory */
void tm_encoder_free(struct tm_encoder *e);
/* Appends one segment. Times must not decrease nor be below base_ns, begin <= time, size < 2^64 - 1, addresses < TM_ADDRESS_LIMIT
 * (a scope's key and link are any numbers), ops of known classes (the caller's duty). More than TM_SEGMENT_EVENTS_MAX events, or no
 * memory for the tables: nothing is appended, out->failed is set. */
void tm_encode_segment(struct tm_encoder *e, struct tm_bytes *out, uint64_t thread, uint64_t base_ns, const struct tm_event *events,
		       size_t n);
/* The same a few events at a time: begin, add as often as needed, finish. What fails is remembered until then. */
void tm_encoder_begin(struct tm_encoder *e, uint64_t base_ns);
void tm_encoder_add(struct tm_encoder *e, const struct tm_event *events, size_t n);
/* In place of it, for a whole segment, by a caller who follows the live blocks anyway: the old_size of a free or realloc says which alloc or realloc of the
 * segment gave the block (tm_given_back(); each may be said once), or is 0. */
void tm_encoder_add_told(struct tm_encoder *e, const struct tm_event *events, size_t n);
void tm_encoder_finish(struct tm_encoder *e, struct tm_bytes *out, uint64_t thread);

/* An EVENTS payload: header, then segments. */
void tm_put_events_header(struct tm_bytes *b, uint64_t watermark_ns, uint64_t segments);
void tm_get_events_header(struct tm_cursor *c, uint64_t *watermark_ns, uint64_t *segments);

struct tm_segment {
	uint64_t thread;
	struct tm_event *events; /* owned by the decoder, valid until its next call */
	size_t count;
};

struct tm_decoder;
struct tm_decoder *tm_decoder_new(void);
void tm_decoder_free(struct tm_decoder *d);
/* 0; -1 malformed (c->bad too); -2 out of memory. A segment's count is bounded by its op column, so by the payload. out is empty
 * after a failure. */
int tm_decode_segment(struct tm_decoder *d, struct tm_cursor *c, struct tm_segment *out);

/* The same a few events at a time, which stay in the cache: tm_decode_begin() moves the cursor behind the segment and says whose it is
 * and how many events it has (events is NULL); then tm_decode_next() as long as it gives some. The payload must stay where it is. */
#define TM_DECODE_EVENTS 512u
int tm_decode_begin(struct tm_decoder *d, struct tm_cursor *c, struct tm_segment *out);
int tm_decode_next(struct tm_decoder *d, struct tm_segment *out); /* out->count 0: that was all. 0, -1 or -2 as above */

#endif
