/* module_order.c - bounds how far rings are read where modules come and go: see module_order.h. */
#include "module_order.h"

#include "collector.h"
#include "drain.h"

/* From the ring's tail on. A record that makes no sense ends the search, as it will end the reading. */
static void find(const struct tm_collector *c, struct tm_ring_view *r) {
	uint32_t index = (uint32_t)(r - c->rings);
	const volatile uint64_t *words = (const volatile uint64_t *)tm_session_ring_data(&c->session, index);
	uint64_t mask = tm_session_ring_bytes(&c->session, index) - 1, at = r->tail;
	r->modules.at = r->modules.end = 0;
	while (r->head - at >= 16 && r->head - at <= mask + 1) {
		uint64_t word = words[(at & mask) / 8], bytes = (word >> 16 & 0xffff) * 8;
		if (!bytes || bytes > r->head - at) return;
		if ((uint8_t)word == TM_CTL_MODULE || (uint8_t)word == TM_CTL_UNLOAD) {
			r->modules.at = at;
			r->modules.end = at + bytes;
			r->modules.ticks = words[((at + 8) & mask) / 8];
			return;
		}
		at += bytes;
	}
}

static bool waits(const struct tm_ring_view *r) {
	return r->modules.at != r->modules.end;
}

/* Of another thread of the same process. */
static bool is_beside(const struct tm_ring_view *other, const struct tm_ring_view *r) {
	return other->claimed && other != r && other->number == r->number;
}

void tm_module_order_look(struct tm_collector *c, struct tm_ring_view *r, const struct tm_ring *ring, uint32_t ended) {
	uint32_t begun = atomic_load_explicit(&ring->modules_begun, memory_order_acquire);
	r->modules.blocked = false;
	if (begun == r->modules.read) return;
	find(c, r);
	if (waits(r)) c->modules_wait = true;
	else if (begun == ended) r->modules.read = begun;
}

void tm_module_order_went_on(struct tm_collector *c, struct tm_ring_view *r) {
	r->modules.blocked = false;
	if (!waits(r) || r->tail <= r->modules.at) return;
	r->modules.held_ns = 0;
	find(c, r);
}

static bool may_still_tell(const struct tm_ring_view *other, uint64_t ticks, uint64_t now_ticks) {
	return !other->modules.blocked && other->modules.given_up != other->head + 1 && tm_drain_safe_until(other, now_ticks) < ticks;
}

/* Can no event come from another of the process's rings that was before the record? Rings that are not admitted yet begin later than now_ticks. */
static bool may_take(struct tm_collector *c, struct tm_ring_view *r, uint64_t now_ticks) {
	bool may = r->modules.ticks <= now_ticks;
	for (uint32_t i = 0; i < c->rings_known && may; i++)
		may = !is_beside(&c->rings[i], r) || !may_still_tell(&c->rings[i], r->modules.ticks, now_ticks);
	if (may || c->finishing) return true;
	uint64_t now = tm_monotonic_ns();
	if (!r->modules.held_ns) r->modules.held_ns = now;
	if (now - r->modules.held_ns <= TM_MODULE_HOLD_NS) return false;
	for (uint32_t i = 0; i < c->rings_known; i++) {
		struct tm_ring_view *other = &c->rings[i];
		if (is_beside(other, r) && may_still_tell(other, r->modules.ticks, now_ticks)) other->modules.given_up = other->head + 1;
	}
	return true;
}

static bool is_earlier(const struct tm_ring_view *a, const struct tm_ring_view *b) {
	return a->modules.ticks != b->modules.ticks ? a->modules.ticks < b->modules.ticks : a < b;
}

bool tm_module_order_may_read(struct tm_collector *c, struct tm_ring_view *r, uint64_t now_ticks, uint64_t *end, uint64_t *last) {
	*end = r->head;
	*last = UINT64_MAX;
	if (!c->modules_wait) return true;
	for (uint32_t i = 0; i < c->rings_known; i++) {
		const struct tm_ring_view *other = &c->rings[i];
		if (!is_beside(other, r) || !waits(other) || !other->readable || (waits(r) && is_earlier(r, other))) continue;
		uint64_t before = other->modules.ticks ? other->modules.ticks - 1 : 0;
		if (before < *last) *last = before;
	}
	if (!waits(r)) return true;
	*end = r->modules.at;
	if (r->tail != r->modules.at) return true;
	*end = r->modules.end;
	return may_take(c, r, now_ticks);
}

bool tm_module_order_is_told(const struct tm_collector *c, const struct tm_process *p) {
	for (uint32_t i = 0; i < c->rings_known; i++) {
		const struct tm_ring_view *r = &c->rings[i];
		if (!r->claimed || r->process != p) continue;
		if (atomic_load_explicit(&tm_session_ring(&c->session, i)->modules_begun, memory_order_acquire) != r->modules.read) return true;
	}
	return false;
}

void tm_module_order_check_stack(struct tm_ring_view *r) {
	uint32_t epoch = r->process ? r->process->modules.epoch : 0;
	if (epoch == r->modules.epoch) return;
	r->modules.epoch = epoch;
	r->path_valid = 0;
	r->stack = 0;
	tm_python_native_changed(&r->python, 0);
}
