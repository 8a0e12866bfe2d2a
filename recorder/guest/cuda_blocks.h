/* cuda_blocks.h - which heap an address, handle or pool of the CUDA driver belongs to.
 *
 * Flow:     cuda_calls.c: a call that gives memory out puts it here, the one that takes it back finds its heap here
 * Owns:     one table a process, in memory that no hook sees; it doubles.
 * Threads:  any, under a lock that is held for a few instructions (and while the table doubles). No call leads out of it.
 * Fork:     the child of a fork that came in the middle of a change begins with an empty table: what it inherited is not to be used there, as CUDA is not.
 * When full: no memory to double it: tm_cuda_block_put() says false, and the block's end will not be known.
 */
#ifndef TIDEMARK_GUEST_CUDA_BLOCKS_H
#define TIDEMARK_GUEST_CUDA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum tm_cuda_key {
	TM_KEY_NONE = 0, /* an empty place */
	TM_KEY_POINTER,  /* what cuMemFree and its kin take */
	TM_KEY_REGISTERED,
	TM_KEY_RESERVED, /* addresses */
	TM_KEY_MAPPED,   /* `physical`: what is mapped there */
	TM_KEY_HANDLE,   /* of cuMemCreate; `physical`: whose */
	TM_KEY_PHYSICAL, /* a number of ours */
	TM_KEY_ARRAY,
	TM_KEY_POOL,
	TM_KEY_GRAPH,
	TM_KEY_IPC,      /* `handles`: how often it was opened */
	TM_KEY_CONTEXT,  /* made by cuCtxCreate: none of the devices' own */
};

struct tm_cuda_block {
	uint64_t key, size_bytes;
	uint64_t address;  /* in the trace */
	uint64_t physical; /* number of a TM_KEY_PHYSICAL; of TM_KEY_POINTER: the pool that the call named, or 0 */
	uint64_t context;  /* whose end is its end; 0: it belongs to none */
	uint32_t heap;
	int32_t device;
	uint32_t handles, mappings; /* of TM_KEY_PHYSICAL and, handles, of TM_KEY_HANDLE */
	uint8_t kind;               /* enum tm_cuda_key */
	uint8_t op;                 /* that allocated it */
};

/* What was there under this key goes. */
bool tm_cuda_block_put(const struct tm_cuda_block *b);
bool tm_cuda_block_find(enum tm_cuda_key kind, uint64_t key, struct tm_cuda_block *out);
bool tm_cuda_block_take(enum tm_cuda_key kind, uint64_t key, struct tm_cuda_block *out); /* and removes it */
/* That in which an address lies; their keys are addresses. Looks at all. */
bool tm_cuda_block_around(enum tm_cuda_key kind, uint64_t address, struct tm_cuda_block *out);
/* Adds to handles and mappings; *out is what it is then. Nothing left of both: it is removed. false: there is none. */
bool tm_cuda_block_add(enum tm_cuda_key kind, uint64_t key, int handles, int mappings, struct tm_cuda_block *out);

/* Takes the next block of these contexts: of `context`, or with 0 of whatever context of the device cuCtxCreate did not make.
 * Begin with *at = 0; false: no more, wherever others that came or went meanwhile have moved them. Blocks that come meanwhile may be met or not. */
bool tm_cuda_block_take_of(uint64_t *at, uint64_t context, int device, struct tm_cuda_block *out);

/* A thread of this process is in the middle of one of these, the calling one perhaps. */
bool tm_cuda_blocks_are_locked(void);

#endif
