/* stacks_ahead.c - decodes STACKS chunks ahead; see stacks_ahead.h. */
#include "stacks_ahead.h"

#include <pthread.h>
#include <stdlib.h>

#define SLOTS 2u

struct slot {
	uint64_t offset; /* of the chunk */
	int result;      /* as tm_stacks_ahead_take() */
	struct tm_stacks stacks;
};

struct tm_stacks_ahead {
	struct tm_reader reader;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct slot slots[SLOTS];
	unsigned first, count; /* of the slots that are full; the first one may be its taker's */
	bool taken;            /* it is */
	bool ended, stopping;
};

/* NULL: nobody wants more. */
static struct slot *free_slot(struct tm_stacks_ahead *a) {
	pthread_mutex_lock(&a->lock);
	while (a->count == SLOTS && !a->stopping) pthread_cond_wait(&a->changed, &a->lock);
	struct slot *slot = a->stopping ? NULL : &a->slots[(a->first + a->count) % SLOTS];
	pthread_mutex_unlock(&a->lock);
	return slot;
}

static void note(struct tm_stacks_ahead *a, bool is_full) {
	pthread_mutex_lock(&a->lock);
	if (is_full) a->count++;
	else a->ended = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

static int decode(struct tm_stacks_ahead *a, const struct tm_chunk_header *h, struct tm_stacks *out) {
	struct tm_cursor payload;
	if (tm_reader_payload(&a->reader, h, &payload)) return 0; /* whoever walks over all chunks says what is wrong with it */
	int rc = tm_get_stacks(&payload, out);
	return rc ? rc : 1;
}

static void *decode_all(void *argument) {
	struct tm_stacks_ahead *a = argument;
	struct tm_chunk_header h;
	while (tm_reader_find(&a->reader, TM_CHUNK_STACKS, &h)) {
		struct slot *slot = free_slot(a);
		if (!slot) break;
		slot->offset = a->reader.chunk_offset;
		slot->result = decode(a, &h, &slot->stacks);
		note(a, true);
	}
	note(a, false);
	return NULL;
}

static void release(struct tm_stacks_ahead *a) {
	for (unsigned i = 0; i < SLOTS; i++) tm_stacks_release(&a->slots[i].stacks);
	tm_reader_release(&a->reader);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	free(a);
}

struct tm_stacks_ahead *tm_stacks_ahead_start(const struct tm_reader *reader) {
	struct tm_stacks_ahead *a = calloc(1, sizeof *a);
	if (!a) return NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	if (tm_reader_again(&a->reader, reader) == 0 && pthread_create(&a->thread, NULL, decode_all, a) == 0) return a;
	release(a);
	return NULL;
}

void tm_stacks_ahead_stop(struct tm_stacks_ahead *a) {
	if (!a) return;
	pthread_mutex_lock(&a->lock);
	a->stopping = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	release(a);
}

static void give_back(struct tm_stacks_ahead *a) {
	a->first = (a->first + 1) % SLOTS;
	a->count--;
	a->taken = false;
	pthread_cond_broadcast(&a->changed);
}

int tm_stacks_ahead_take(struct tm_stacks_ahead *a, uint64_t offset, const struct tm_stacks **out) {
	int result = 0;
	pthread_mutex_lock(&a->lock);
	if (a->taken) give_back(a);
	for (;;) {
		while (!a->count && !a->ended) pthread_cond_wait(&a->changed, &a->lock);
		if (!a->count || a->slots[a->first].offset >= offset) break;
		give_back(a); /* one that was not asked for */
	}
	const struct slot *slot = &a->slots[a->first];
	if (a->count && slot->offset == offset) {
		a->taken = true;
		result = slot->result;
		*out = &slot->stacks;
	}
	pthread_mutex_unlock(&a->lock);
	return result;
}
