/* belt.c - items from one thread to another, in batches; see belt.h. */
#include "belt.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct tm_belt_work {
	tm_belt_taker *take;
	void *context;
	size_t batch_bytes, item_bytes;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more, less;
	unsigned batch_count;
	unsigned first, filled; /* of batches: the oldest filled one, and how many are */
	unsigned most;          /* the maker sleeps until no more are filled; batch_count: it does not sleep */
	bool ended;             /* no more will come */
	size_t counts[TM_BELT_BATCHES_MAX];
	uint8_t *batches;
};

/* Who slept for want of filled or of empty batches sleeps until there are so many: waking takes as long as half a batch. */
static unsigned half(const struct tm_belt_work *w) {
	return w->batch_count / 2;
}

/* The oldest filled batch, once there is one; false: there will be none. */
static bool wait_for_batch(struct tm_belt_work *w) {
	pthread_mutex_lock(&w->lock);
	if (!w->filled)
		while (w->filled < half(w) && !w->ended && !(w->filled && w->most < w->batch_count)) pthread_cond_wait(&w->more, &w->lock);
	bool is_there = w->filled;
	pthread_mutex_unlock(&w->lock);
	return is_there;
}

static void give_batch_back(struct tm_belt_work *w) {
	pthread_mutex_lock(&w->lock);
	w->first = (w->first + 1) % w->batch_count;
	bool wakes = --w->filled == w->most;
	pthread_mutex_unlock(&w->lock);
	if (wakes) pthread_cond_signal(&w->less);
}

static void *take_all(void *argument) {
	struct tm_belt_work *w = argument;
	for (; wait_for_batch(w); give_batch_back(w)) w->take(w->context, w->batches + w->first * w->batch_bytes, w->counts[w->first]);
	return NULL;
}

static void free_work(struct tm_belt_work *w) {
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->more);
	pthread_cond_destroy(&w->less);
	free(w->batches);
	free(w);
}

int tm_belt_start(struct tm_belt *r, size_t item_bytes, size_t batch_items, unsigned batches, tm_belt_taker *take, void *context) {
	struct tm_belt_work *w = calloc(1, sizeof *w);
	*r = (struct tm_belt){ 0 };
	if (!w) return -1;
	*w = (struct tm_belt_work){ .take = take,
				    .context = context,
				    .item_bytes = item_bytes,
				    .batch_bytes = item_bytes * batch_items,
				    .batch_count = batches,
				    .most = batches };
	w->batches = malloc(batches * w->batch_bytes);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->less, NULL);
	if (!w->batches || pthread_create(&w->thread, NULL, take_all, w) != 0) return free_work(w), -1;
	*r = (struct tm_belt){ .at = w->batches, .end = w->batches + w->batch_bytes, .item_bytes = item_bytes, .work = w };
	return 0;
}

/* Sleeps until no more than `most` batches wait. */
static void wait_for_less(struct tm_belt_work *w, unsigned most) {
	w->most = most;
	pthread_cond_signal(&w->more); /* however few there are */
	while (w->filled > most) pthread_cond_wait(&w->less, &w->lock);
	w->most = w->batch_count;
}

/* Hands over what is in the batch that is being filled, and finds the next one; `all`: once all are taken. */
static void pass_on(struct tm_belt *r, bool all) {
	struct tm_belt_work *w = r->work;
	pthread_mutex_lock(&w->lock);
	unsigned filling = (w->first + w->filled) % w->batch_count;
	w->counts[filling] = (size_t)(r->at - (w->batches + filling * w->batch_bytes)) / w->item_bytes;
	bool wakes = w->counts[filling] && ++w->filled == half(w);
	if (all && w->filled) wait_for_less(w, 0);
	else if (w->filled == w->batch_count) wait_for_less(w, half(w));
	r->at = w->batches + (w->first + w->filled) % w->batch_count * w->batch_bytes;
	r->end = r->at + w->batch_bytes;
	pthread_mutex_unlock(&w->lock);
	if (wakes) pthread_cond_signal(&w->more);
}

void tm_belt_hand_over(struct tm_belt *r) {
	pass_on(r, false);
}

void tm_belt_settle(struct tm_belt *r) {
	if (r->work) pass_on(r, true);
}

void tm_belt_finish(struct tm_belt *r) {
	struct tm_belt_work *w = r->work;
	if (!w) return;
	pass_on(r, false);
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	free_work(w);
	*r = (struct tm_belt){ 0 };
}
