/* gpu_work.c - activities added up; see gpu_work.h. */
#include "gpu_work.h"

#define FIRST_SLOTS 256u

void tm_gpu_works_release(struct tm_gpu_works *w) {
	free(w->slots);
	*w = (struct tm_gpu_works){ 0 };
}

static bool is_same(const struct tm_gpu_work *x, const struct tm_gpu_work *y) {
	return x->process == y->process && x->name == y->name && x->device == y->device && x->kind == y->kind &&
	       x->direction == y->direction;
}

/* Its slot, or the empty one where it belongs. */
static struct tm_gpu_work *slot_of(const struct tm_gpu_works *w, const struct tm_gpu_work *x) {
	uint64_t hash = (x->process << 40 ^ (uint64_t)x->name << 12 ^ (uint64_t)(uint32_t)x->device << 8 ^ (uint64_t)x->direction << 4 ^
			 x->kind) *
			0x9E3779B97F4A7C15u;
	size_t i = (size_t)(hash >> 20) & (w->capacity - 1);
	while (w->slots[i].count && !is_same(&w->slots[i], x)) i = (i + 1) & (w->capacity - 1);
	return &w->slots[i];
}

static bool grow(struct tm_gpu_works *w) {
	struct tm_gpu_works larger = { .count = w->count, .capacity = w->capacity ? 2 * w->capacity : FIRST_SLOTS };
	larger.slots = calloc(larger.capacity, sizeof *larger.slots);
	if (!larger.slots) return false;
	for (size_t i = 0; i < w->capacity; i++)
		if (w->slots[i].count) *slot_of(&larger, &w->slots[i]) = w->slots[i];
	free(w->slots);
	*w = larger;
	return true;
}

void tm_gpu_works_add(struct tm_gpu_works *w, uint64_t process, const struct tm_activity *a) {
	if (w->count * 2 >= w->capacity && !grow(w)) {
		w->failed = true;
		return;
	}
	struct tm_gpu_work key = { .process = process, .name = a->name, .device = a->device, .kind = a->kind, .direction = a->direction };
	struct tm_gpu_work *x = slot_of(w, &key);
	uint64_t duration_ns = a->end_ns - a->start_ns;
	if (!x->count) {
		*x = key;
		x->first_ns = a->start_ns;
		w->count++;
	}
	x->count++;
	x->duration_ns += duration_ns;
	if (duration_ns > x->longest_ns) x->longest_ns = duration_ns;
	if (a->start_ns < x->first_ns) x->first_ns = a->start_ns;
	if (a->end_ns > x->last_ns) x->last_ns = a->end_ns;
	if (a->size_bytes != TM_ACTIVITY_UNKNOWN) x->size_bytes += a->size_bytes;
}
