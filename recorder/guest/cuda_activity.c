/* cuda_activity.c - CUPTI's records of what devices did: kernels, copies, sets, and its own overhead.
 *
 * Flow:     CUPTI asks for a buffer, fills it, and gives it back on a thread of its own (or on that which flushes) -> records -> emit_gpu.c -> ring
 * Sudden:   by itself, and by its own periodic flush, CUPTI gives only full buffers back, on its own thread; what is in the others a sudden end of the process
 *           would take along. So a thread that calls the driver anyway fetches what is complete, now and then, and reads it: at most a buffer of each thread's.
 * Owns:     the buffers, in memory that no hook sees. A few are kept for the next time.
 * Records:  are read by the places of their fields, as far as they lie in the buffer. Kinds that we do not know are passed by. How long a record is
 *           only CUPTI knows.
 * Times:    CUPTI stamps with our clock where it can be told so (11.6); else with its own, and two readings of both clocks turn one into the other.
 * Names:    of kernels come again and again: each is told once in a ring, with the number of a slot, which then stands for it. One thread at a time uses the
 *           slots; another that comes meanwhile tells its names in full.
 * Losses:   records that CUPTI dropped for want of buffers are counted by it, and told; so is work that it could not time, unless the driver refused it,
 *           and a buffer that cannot be read to its end.
 */
#include "cuda_calls.h"
#include "heaps.h"
#include "hot.h"
#include "raw.h"

#include <string.h>
#include <time.h>

#define BUFFER_BYTES (256u << 10) /* a thousand kernels: what is in a buffer that is not full yet is read within a call of the program's (Sudden) */
#define BUFFERS_KEPT 16u
#define FETCH_TICKS (1u << 30) /* a second where a tick is a nanosecond, less where it is a processor's */

/* --- buffers --- */

static void *_Atomic kept[BUFFERS_KEPT];

static void request_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
	void *found = NULL;
	for (unsigned i = 0; i < BUFFERS_KEPT && !found; i++) found = atomic_exchange(&kept[i], NULL);
	if (!found && !tm_is_sandboxed()) found = tm_raw_map(BUFFER_BYTES);
	*buffer = found;
	*size = found ? BUFFER_BYTES : 0;
	*max_records = 0; /* as many as fit */
}

/* Where CUPTI is told that buffers are empty it does not empty them, which takes it a millisecond, within a call of the program's. */
static void tell_buffers_are_empty(uint8_t are) {
	size_t bytes = sizeof are;
	if (tm_cupti.cuptiActivitySetAttribute) tm_cupti.cuptiActivitySetAttribute(TM_CUPTI_ATTRIBUTE_ZEROED_BUFFERS, &bytes, &are);
}

static void keep_buffer(void *buffer, size_t used) {
	void *none = NULL;
	memset(buffer, 0, used);
	for (unsigned i = 0; i < BUFFERS_KEPT; i++, none = NULL)
		if (atomic_compare_exchange_strong(&kept[i], &none, buffer)) return;
	tm_raw_unmap(buffer, BUFFER_BYTES);
}

/* --- times --- */

static bool is_our_clock;
static struct clocks {
	uint64_t theirs, ours;
} first;

/* What CUPTI stamps with where nobody has told it otherwise. */
static uint64_t system_clock(void) {
	return tm_clock_ns(CLOCK_REALTIME);
}

static struct clocks read_clocks(void) {
	struct clocks c = { 0 };
	if (!tm_cupti.cuptiGetTimestamp || tm_cupti.cuptiGetTimestamp(&c.theirs) != TM_CUPTI_OK) c.theirs = system_clock();
	c.ours = tm_now();
	return c;
}

/* Their time as ticks, by the readings at the beginning and now. */
static uint64_t ticks_of(const struct clocks *now, uint64_t theirs) {
	if (is_our_clock) return theirs;
	if (now->theirs <= first.theirs) return now->ours;
	double rate = (double)(now->ours - first.ours) / (double)(now->theirs - first.theirs);
	return now->ours - (uint64_t)(int64_t)(rate * (double)(int64_t)(now->theirs - theirs));
}

/* --- names --- */

static struct {
	_Atomic uint32_t busy;
	struct tm_ring *ring;
	uint32_t generation;
	uint64_t told[TM_RING_NAME_SLOTS]; /* hash of the name that the slot stands for, 0 none */
} slots TM_ROOMY;

/* Names have hundreds of bytes, and each kernel has one. */
static uint64_t hash_of(const char *name, size_t n) {
	uint64_t hash = n;
	for (size_t at = 0; at < n; at += 8) {
		uint64_t word = 0;
		memcpy(&word, name + at, n - at < 8 ? n - at : 8);
		hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
		hash ^= hash >> 32;
	}
	return hash | 1;
}

static bool slots_begin(struct tm_thread *t) {
	uint32_t generation = atomic_load(&t->ring->generation);
	if (atomic_exchange_explicit(&slots.busy, 1, memory_order_acquire)) return false;
	if (slots.ring != t->ring || slots.generation != generation) memset(slots.told, 0, sizeof slots.told);
	slots.ring = t->ring;
	slots.generation = generation;
	return true;
}

static void emit_named(struct tm_thread *t, struct tm_gpu_activity *a, const char *name, bool has_slots) {
	size_t n = name ? strnlen(name, TM_RING_TEXT_MAX) : 0;
	uint64_t before = tm_position(t);
	if (!n) {
		tm_emit_activity(t, a);
		return;
	}
	uint64_t hash = hash_of(name, n), slot = hash >> 7 & (TM_RING_NAME_SLOTS - 1);
	bool told = has_slots && slots.told[slot] == hash;
	a->name_slot = has_slots ? (uint32_t)slot + 1 : 0;
	a->name = told ? NULL : name;
	a->name_bytes = told ? 0 : n;
	tm_emit_activity(t, a);
	if (has_slots) slots.told[slot] = tm_position(t) != before ? hash : 0;
}

/* --- records --- */

struct reading {
	struct tm_thread *t;
	struct clocks now;
	const uint8_t *record, *end;
	uint64_t untimed; /* work without times */
	bool has_slots;
};

static uint64_t number_at(const struct reading *r, size_t at, size_t bytes) {
	uint64_t value = 0;
	if ((size_t)(r->end - r->record) >= at + bytes) memcpy(&value, r->record + at, bytes);
	return value;
}

static uint64_t u64(const struct reading *r, size_t at) {
	return number_at(r, at, 8);
}

static uint32_t u32(const struct reading *r, size_t at) {
	return (uint32_t)number_at(r, at, 4);
}

static struct tm_gpu_activity ran(const struct reading *r, enum tm_activity_kind kind) {
	return (struct tm_gpu_activity){ .kind = kind, .start = ticks_of(&r->now, u64(r, 16)), .end = ticks_of(&r->now, u64(r, 24)),
					 .size_bytes = UINT64_MAX, .stream = UINT32_MAX, .device = UINT32_MAX };
}

/* --- what was refused --- */

static _Atomic uint64_t refused_work[64]; /* correlations, the last of each place */

static _Atomic uint64_t *refused_place(uint32_t correlation) {
	return &refused_work[correlation % (sizeof refused_work / sizeof refused_work[0])];
}

void tm_cuda_activity_refused(uint32_t correlation) {
	atomic_store_explicit(refused_place(correlation), correlation, memory_order_relaxed);
}

/* A record of work that CUPTI could not time has a start of 0, and so has one of work that the driver refused: that never ran. */
static bool is_timed(struct reading *r, size_t correlation_at) {
	bool is = u64(r, 16) != 0 && u64(r, 24) >= u64(r, 16);
	uint32_t correlation = u32(r, correlation_at);
	bool ran = !correlation || atomic_load_explicit(refused_place(correlation), memory_order_relaxed) != correlation;
	r->untimed += !is && ran && r->end - r->record >= 32;
	return is;
}

static void take_kernel(struct reading *r) {
	struct tm_gpu_activity a = ran(r, TM_ACTIVITY_KERNEL);
	if (!is_timed(r, 92)) return;
	a.device = u32(r, 40);
	a.stream = u32(r, 48);
	a.correlation = u32(r, 92);
	emit_named(r->t, &a, (const char *)(uintptr_t)u64(r, 104), r->has_slots);
}

static void take_copy(struct reading *r, size_t correlation_at) {
	struct tm_gpu_activity a = ran(r, TM_ACTIVITY_MEMCPY);
	if (!is_timed(r, correlation_at)) return;
	a.direction = correlation_at == 60 ? TM_DIRECTION_P2P : tm_direction_of_copy(number_at(r, 4, 1));
	a.size_bytes = u64(r, 8);
	a.device = u32(r, 32);
	a.stream = u32(r, 40);
	a.correlation = u32(r, correlation_at);
	tm_emit_activity(r->t, &a);
}

static void take_set(struct reading *r) {
	struct tm_gpu_activity a = ran(r, TM_ACTIVITY_MEMSET);
	if (!is_timed(r, 44)) return;
	a.size_bytes = u64(r, 8);
	a.device = u32(r, 32);
	a.stream = u32(r, 40);
	a.correlation = u32(r, 44);
	tm_emit_activity(r->t, &a);
}

static void take_overhead(const struct reading *r) {
	static const char *const reasons[] = { "buffer flush",      "instrumentation",        "resource",           "module loading", "lazy function loading",
					       "command buffer full", "activity buffer request", "managed memory setup" };
	uint32_t kind = u32(r, 4), high = kind >> 16;
	uint64_t start = u64(r, 24), end = u64(r, 32);
	if (!start || end < start) return;
	struct tm_gpu_activity a = { .kind = TM_ACTIVITY_OVERHEAD, .start = ticks_of(&r->now, start), .end = ticks_of(&r->now, end), .size_bytes = UINT64_MAX,
				     .device = UINT32_MAX, .stream = UINT32_MAX };
	const char *name = kind == 1 ? "driver compiler" : high && high <= sizeof reasons / sizeof reasons[0] ? reasons[high - 1] : NULL;
	emit_named(r->t, &a, name, r->has_slots);
}

/* false: the buffer ends within it. */
static bool take_record(struct reading *r) {
	size_t room = (size_t)(r->end - r->record);
	switch (u32(r, 0)) {
	case TM_CUPTI_KERNEL:
	case TM_CUPTI_CONCURRENT_KERNEL: take_kernel(r); return room >= 112;
	case TM_CUPTI_MEMCPY: take_copy(r, 44); return room >= 48;
	case TM_CUPTI_MEMCPY_PEER: take_copy(r, 60); return room >= 64;
	case TM_CUPTI_MEMSET: take_set(r); return room >= 48;
	case TM_CUPTI_OVERHEAD: take_overhead(r); return room >= 40;
	default: return room >= 4; /* of a later version */
	}
}

static void tell_lost(struct tm_thread *t, uint64_t count, const char *text, size_t n) {
	tm_emit_control(t, TM_CTL_LOST, 0, 0, &count, 1, text, n);
}

static void take_buffer(struct tm_thread *t, void *context, uint32_t stream, uint8_t *buffer, size_t valid) {
	static const char cut_text[] = "gpu-records\0a buffer of CUPTI's could not be read to its end: one, or more";
	static const char dropped_text[] = "gpu-records\0CUPTI had no buffer for them", untimed_text[] = "gpu-records\0CUPTI could not time them";
	struct reading r = { .t = t, .end = buffer + valid };
	size_t dropped = 0, cut = 0;
	int answer = TM_CUPTI_NO_MORE_RECORDS;
	uint8_t *record = NULL;
	if (!is_our_clock) r.now = read_clocks();
	r.has_slots = slots_begin(t);
	while (valid && (answer = tm_cupti.cuptiActivityGetNextRecord(buffer, valid, &record)) == TM_CUPTI_OK) {
		if (record < buffer || record >= r.end || record <= r.record) break; /* it leads nowhere */
		r.record = record;
		if (!take_record(&r)) cut = 1;
	}
	if (answer != TM_CUPTI_NO_MORE_RECORDS) cut = 1;
	if (r.has_slots) atomic_store_explicit(&slots.busy, 0, memory_order_release);
	if (cut) tell_lost(t, cut, cut_text, sizeof cut_text - 1);
	if (r.untimed) tell_lost(t, r.untimed, untimed_text, sizeof untimed_text - 1);
	if (tm_cupti.cuptiActivityGetNumDroppedRecords && tm_cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == TM_CUPTI_OK && dropped)
		tell_lost(t, dropped, dropped_text, sizeof dropped_text - 1);
}

static void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
	struct tm_thread *t;
	if (!buffer) return;
	t = tm_hook_enter();
	if (t) {
		take_buffer(t, context, stream, buffer, valid < size ? valid : size);
		tm_hook_leave(t);
	}
	if (size == BUFFER_BYTES) keep_buffer(buffer, valid < size ? valid : size);
}

/* --- on and off --- */

static const struct {
	int kind;
	const char *function, *cost;
} wanted[] = {
	{ TM_CUPTI_CONCURRENT_KERNEL, "cuptiActivityEnable(CONCURRENT_KERNEL)", "kernels are not in this trace" },
	{ TM_CUPTI_MEMCPY, "cuptiActivityEnable(MEMCPY)", "copies are not in this trace" },
	{ TM_CUPTI_MEMCPY_PEER, "cuptiActivityEnable(MEMCPY2)", "copies between devices are not in this trace" },
	{ TM_CUPTI_MEMSET, "cuptiActivityEnable(MEMSET)", "sets are not in this trace" },
	{ TM_CUPTI_OVERHEAD, "cuptiActivityEnable(OVERHEAD)", "what it takes for itself is not in this trace" },
};
#define KINDS (sizeof wanted / sizeof wanted[0])

static _Atomic uint64_t fetched; /* when, the last time */
static _Atomic bool has_ended;

static bool register_buffers(void) {
	static const char cost[] = "kernels, copies and sets are not in this trace";
	int answer = 0;
	const char *lacking = !tm_cupti.cuptiActivityRegisterCallbacks ? "cuptiActivityRegisterCallbacks()"
			      : !tm_cupti.cuptiActivityEnable	       ? "cuptiActivityEnable()"
			      : !tm_cupti.cuptiActivityGetNextRecord   ? "cuptiActivityGetNextRecord()"
								       : NULL;
	if (!lacking) answer = tm_cupti.cuptiActivityRegisterCallbacks(request_buffer, buffer_completed);
	if (answer) lacking = "cuptiActivityRegisterCallbacks()";
	if (lacking) tm_cuda_lacks(lacking, answer, cost);
	return !lacking;
}

static void find_clock(void) {
	uint64_t now;
	is_our_clock = tm_cupti.cuptiActivityRegisterTimestampCallback && tm_cupti.cuptiActivityRegisterTimestampCallback(tm_ticks) == TM_CUPTI_OK;
	int answer = !is_our_clock && tm_cupti.cuptiGetTimestamp ? tm_cupti.cuptiGetTimestamp(&now) : TM_CUPTI_OK;
	if (!is_our_clock && (!tm_cupti.cuptiGetTimestamp || answer)) tm_cuda_lacks("cuptiGetTimestamp()", answer, "its clock is taken to be the system's");
	first = read_clocks();
}

void tm_cuda_activity_start(void) {
	if (!register_buffers()) return;
	find_clock(); /* before any kind is switched on */
	tell_buffers_are_empty(1);
	for (size_t i = 0; i < KINDS; i++) {
		int refused = tm_cupti.cuptiActivityEnable(wanted[i].kind);
		if (refused) tm_cuda_lacks(wanted[i].function, refused, wanted[i].cost);
	}
	if (!tm_cupti.cuptiActivityGetNumDroppedRecords) tm_cuda_lacks("cuptiActivityGetNumDroppedRecords()", 0, "records that it drops are not counted");
	atomic_store(&fetched, tm_now());
}

/* Our clock may not stay: the next one takes CUPTI's times for the system's, unless it brings a clock, and CUPTI has no way back to its own. */
void tm_cuda_activity_stop(void) {
	for (size_t i = 0; tm_cupti.cuptiActivityDisable && i < KINDS; i++) tm_cupti.cuptiActivityDisable(wanted[i].kind);
	if (is_our_clock) tm_cupti.cuptiActivityRegisterTimestampCallback(system_clock);
	tell_buffers_are_empty(0);
}

void tm_cuda_activity_fetch(void) {
	uint64_t now = tm_now(), last = atomic_load_explicit(&fetched, memory_order_relaxed);
	if (TM_LIKELY(now - last < FETCH_TICKS) || !tm_cupti.cuptiActivityFlushAll || tm_is_sandboxed() || atomic_load(&has_ended)) return;
	if (atomic_compare_exchange_strong(&fetched, &last, now)) tm_cupti.cuptiActivityFlushAll(0); /* buffers of which all is complete */
}

/* CUPTI's own end comes after ours, and what still calls the driver then must not lead us back to it. */
int tm_cuda_activity_fetch_last(void) {
	atomic_store(&has_ended, true);
	return tm_cupti.cuptiActivityFlushAll ? tm_cupti.cuptiActivityFlushAll(1) : TM_CUPTI_OK; /* also buffers of which not all is complete */
}
