/* gpu_records.c - activities and devices of the processes: see gpu_records.h. */
#include "gpu_records.h"

#include "../cuda_functions.h"
#include "collector.h"
#include "controls.h"
#include "drain.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_MAX TM_CUDA_IDS
#define NAMES_MAX (FUNCTIONS_MAX + 256u)

/* Functions by the driver's numbers; behind them by their ops. */
static const char *const names[NAMES_MAX] = {
#define X(name, number, kind) [number] = name,
	TM_CUDA_WORK(X)
#undef X
#define X(name, number) [number] = name,
		TM_CUDA_TAKERS(X)
#undef X
#define X(name, code, api) [FUNCTIONS_MAX + (code)] = api,
			TM_OPS(X)
#undef X
};

static uint32_t text_of(struct tm_collector *c, size_t at) {
	if (!names[at]) return 0;
	if (!c->gpu_functions) c->gpu_functions = tm_memory_new(NAMES_MAX, sizeof c->gpu_functions[0]);
	if (!c->gpu_functions[at]) c->gpu_functions[at] = tm_intern(c, names[at], strlen(names[at]));
	return c->gpu_functions[at];
}

uint32_t tm_gpu_function_text(struct tm_collector *c, unsigned id) {
	return id < FUNCTIONS_MAX ? text_of(c, id) : 0;
}

uint32_t tm_gpu_op_text(struct tm_collector *c, uint64_t op) {
	return op < NAMES_MAX - FUNCTIONS_MAX ? text_of(c, FUNCTIONS_MAX + op) : 0;
}

/* The string id of an activity's name. */
static uint32_t name_of(struct tm_collector *c, struct tm_ring_view *r, uint64_t slot, const char *name, size_t n) {
	uint32_t text = n ? tm_intern(c, name, n) : 0;
	if (!slot || slot > TM_RING_NAME_SLOTS) return text;
	if (!r->gpu_names) r->gpu_names = tm_memory_new(TM_RING_NAME_SLOTS, sizeof r->gpu_names[0]);
	if (text) r->gpu_names[slot - 1] = text;
	return r->gpu_names[slot - 1];
}

void tm_gpu_take_activity(struct tm_collector *c, struct tm_ring_view *r, uint32_t x, const uint64_t *numbers, const char *name, size_t name_bytes) {
	uint32_t device = (uint32_t)numbers[2], stream = (uint32_t)(numbers[2] >> 32), kind = x & 0xff, direction = x >> 8;
	bool is_call = kind == TM_ACTIVITY_CALL;
	uint32_t text = is_call ? tm_gpu_op_text(c, numbers[4]) : name_of(c, r, numbers[5] >> 32, name, name_bytes);
	if (kind > 15 || direction > 15 || numbers[1] < numbers[0]) return;
	struct tm_activity *a = tm_group_add_activity(c->group, r->process->id);
	*a = (struct tm_activity){
		.start_ns = numbers[0],
		.end_ns = numbers[1],
		.size_bytes = numbers[3],
		.stream = stream == UINT32_MAX ? TM_ACTIVITY_UNKNOWN : stream,
		.address = is_call ? 0 : numbers[4],
		.correlation = (uint32_t)numbers[5],
		.name = text,
		.device = device <= INT32_MAX ? (int32_t)device : -1,
		.kind = (uint8_t)kind,
		.direction = (uint8_t)direction,
	};
}

void tm_gpu_take_device(struct tm_collector *c, struct tm_process *p, uint32_t uuid_bytes, const uint64_t *numbers, const char *text, size_t text_bytes) {
	if (uuid_bytes > text_bytes || uuid_bytes > 16 || numbers[0] > INT32_MAX) return;
	struct tm_meta *m = tm_group_add(c->group, TM_RECORD_DEVICE);
	m->device = (struct tm_device){ .process = p->id, .device = numbers[0] };
	m->device.total_bytes = numbers[1] <= INT64_MAX ? (int64_t)numbers[1] : -1;
	if (uuid_bytes == 16) tm_sampler_add_device(&c->sampler, p->id, (uint32_t)numbers[0], (const uint8_t *)text);
	m->device.uuid = tm_group_text(c->group, text, uuid_bytes);
	m->device.name = tm_group_text(c->group, text + uuid_bytes, text_bytes - uuid_bytes);
}
