/* cuda_work.c - launches, copies and sets: who puts them on a device, and which memory they name.
 *
 * Flow:     cuda_calls.c -> here -> emit_gpu.c -> ring
 * Kernels:  the driver knows how long each parameter of a kernel is (cuFuncGetParamInfo, from CUDA 12.4 on). Every aligned word of them that lies among the
 *           addresses that devices were given is a use. A word that only looks like one is found out at import, where it hits no block.
 */
#include "cuda_calls.h"
#include "raw.h"

#include <string.h>

#define FUNCTIONS 1024u /* whose parameters are remembered; more are asked for each time */
#define PARAMETERS 32u
#define USES 24u        /* of one launch */

struct known { /* `state`: 0 empty, 1 being filled, 2 to be read */
	_Atomic uint32_t state;
	uint32_t count;
	void *function;
	uint16_t words[PARAMETERS]; /* of each parameter */
};
static struct known *_Atomic known;

static unsigned kind_of(uint32_t id) {
	switch (id) {
#define X(name, number, kind) \
	case number: return kind;
		TM_CUDA_WORK(X)
#undef X
	default: return 0;
	}
}

bool tm_cuda_is_work(uint32_t id) {
	return kind_of(id) != 0;
}

bool tm_cuda_is_graph(uint32_t id) {
	return kind_of(id) == TM_WORK_GRAPH;
}

/* --- parameters of kernels --- */

static void ask(void *function, struct known *k) {
	size_t offset, bytes;
	k->function = function;
	for (k->count = 0; k->count < PARAMETERS; k->count++) {
		if (tm_cupti.cuFuncGetParamInfo(function, k->count, &offset, &bytes) != 0) break;
		k->words[k->count] = bytes / 8 < 512 ? (uint16_t)(bytes / 8) : 512;
	}
}

static struct known *table(void) {
	struct known *t = atomic_load(&known), *none = NULL;
	if (TM_LIKELY(t != NULL)) return t;
	t = tm_raw_map(FUNCTIONS * sizeof *t);
	if (t && !atomic_compare_exchange_strong(&known, &none, t)) {
		tm_raw_unmap(t, FUNCTIONS * sizeof *t);
		t = none;
	}
	return t;
}

/* What is known of the function; `other` is filled where it has no place in the table. */
static const struct known *parameters_of(void *function, struct known *other) {
	struct known *t = table(), *k = t ? &t[(uintptr_t)function / 16 * 0x9E3779B1u % FUNCTIONS] : NULL;
	uint32_t empty = 0;
	if (k && atomic_load_explicit(&k->state, memory_order_acquire) == 2 && k->function == function) return k;
	if (k && atomic_compare_exchange_strong(&k->state, &empty, 1)) {
		ask(function, k);
		atomic_store_explicit(&k->state, 2, memory_order_release);
		return k;
	}
	ask(function, other);
	return other;
}

struct uses {
	struct tm_thread *t;
	uint32_t correlation, count;
	uint64_t low, high, seen[USES];
};

static void use(struct uses *u, uint64_t address) {
	if (address - u->low >= u->high - u->low || u->count == USES) return;
	for (uint32_t i = 0; i < u->count; i++)
		if (u->seen[i] == address) return;
	u->seen[u->count++] = address;
	tm_emit_use(u->t, address, u->correlation);
}

static void use_parameters(struct uses *u, void *function, void **values) {
	struct known other;
	uint64_t word;
	if (!tm_cupti.cuFuncGetParamInfo || !function || !values) return;
	const struct known *k = parameters_of(function, &other);
	for (uint32_t i = 0; i < k->count; i++)
		for (uint32_t w = 0; values[i] && w < k->words[i]; w++) {
			memcpy(&word, (const char *)values[i] + 8 * w, sizeof word);
			use(u, word);
		}
}

/* --- the way in --- */

void tm_cuda_work(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call) {
	const uint64_t *p = call->parameters;
	const struct tm_cu_launch *launch = call->parameters;
	const struct tm_cu_launch_ex *ex = call->parameters;
	struct uses u = { .t = t, .correlation = call->correlation };
	u.low = atomic_load_explicit(&tm_cuda_low, memory_order_relaxed);
	u.high = atomic_load_explicit(&tm_cuda_high, memory_order_relaxed);
	tm_emit_launch(t, id, call->correlation);
	if (u.low >= u.high || t->stopped) return;
	switch (kind_of(id)) {
	case TM_WORK_KERNEL: use_parameters(&u, launch->function, launch->parameters); break;
	case TM_WORK_KERNEL_EX: use_parameters(&u, ex->function, ex->parameters); break;
	case TM_WORK_TO_DEVICE:
	case TM_WORK_SET: use(&u, p[0]); break;
	case TM_WORK_FROM_DEVICE: use(&u, p[1]); break;
	case TM_WORK_BOTH: use(&u, p[0]); use(&u, p[1]); break;
	case TM_WORK_PEER: use(&u, p[0]); use(&u, p[2]); break;
	default: break; /* what a graph or a copy of shapes uses is not told in its parameters */
	}
}
