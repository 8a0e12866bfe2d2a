/* cuda_work.c - launches, copies and sets: who puts them on a device, and which memory they name.
 *
 * Flow:     cuda_calls.c -> here -> emit_gpu.c -> ring: a launch and what it uses in one piece, by one stamp
 * Kernels:  the driver knows how long each parameter of a kernel is (cuFuncGetParamInfo, from CUDA 12.4 on). Every aligned word of them that lies among the
 *           addresses that devices were given is a use. A word that only looks like one is found out at import, where it hits no block.
 *           What it says is remembered by the kernel's handle until some kernel may be gone, as another may have its handle then.
 * Asking:   is done outside of the hook: of a kernel that has not run yet the driver loads the module first, and allocates for it what the launch would have
 *           allocated a moment later (ten thousands of blocks, for one of cuDNN's).
 * Untold:   where work uses memory that we cannot learn of, one use of address 0 says so, once a process: import then judges no block by its uses.
 */
#include "cuda_calls.h"
#include "raw.h"

#include <string.h>

#define FUNCTIONS 1024u /* whose parameters are remembered; the last one of those that want the same place is */
#define PARAMETERS TM_CUDA_PARAMETERS
#define WORDS_MAX 4096u /* a kernel's parameters have at most 32,764 bytes */
#define SEEN 32u        /* addresses of one launch that are not told a second time: the first ones of each TM_USES_MAX */
#define BATCH_MAX 4096u /* copies of one call; of more, what they use is not told */

struct known {
	_Atomic uint32_t state; /* age * 2: to be read, of that age; odd: being filled */
	struct tm_cuda_kernel kernel;
};
#define UNKNOWN UINT32_MAX
static struct known *_Atomic known;
static _Atomic uint32_t age = 1; /* what is older is forgotten */

void tm_cuda_work_forgets(void) {
	atomic_fetch_add(&age, 1);
}

static const uint8_t kinds[TM_CUDA_IDS] = {
#define X(name, number, kind) [number] = kind,
	TM_CUDA_WORK(X)
#undef X
};

bool tm_cuda_is_work(uint32_t id) {
	return id < TM_CUDA_IDS && kinds[id];
}

bool tm_cuda_is_graph(uint32_t id) {
	return id < TM_CUDA_IDS && kinds[id] == TM_WORK_GRAPH;
}

struct uses {
	struct tm_thread *t;
	const struct tm_cuda_kernel *kernel; /* that was asked about just now; NULL: none was */
	uint32_t work_id; /* 0: the launch was told */
	uint32_t correlation, count;
	uint64_t low, high, addresses[TM_USES_MAX];
};

static void tell(struct uses *u) {
	tm_emit_work(u->t, u->work_id, u->correlation, u->addresses, u->count);
	u->work_id = u->count = 0;
}

static void add(struct uses *u, uint64_t address) {
	if (u->count == TM_USES_MAX) tell(u);
	u->addresses[u->count++] = address;
}

static void use(struct uses *u, uint64_t address) {
	if (address - u->low >= u->high - u->low) return;
	for (uint32_t i = 0; i < u->count && i < SEEN; i++)
		if (u->addresses[i] == address) return;
	add(u, address);
}

static void use_untold(struct uses *u) {
	static _Atomic bool told;
	if (!atomic_load_explicit(&told, memory_order_relaxed) && !atomic_exchange(&told, true)) add(u, 0);
}

/* --- parameters of kernels --- */

/* A kernel of a library (CUkernel) may be launched as a function, and is asked for by another name where the driver does not take it for one. */
static int parameter_of(void *function, size_t i, size_t *bytes) {
	size_t offset;
	int result = tm_cupti.cuFuncGetParamInfo(function, i, &offset, bytes);
	if (result == TM_CUDA_INVALID_HANDLE && tm_cupti.cuKernelGetParamInfo) result = tm_cupti.cuKernelGetParamInfo(function, i, &offset, bytes);
	return result;
}

static void ask(void *function, struct tm_cuda_kernel *k) {
	size_t bytes;
	int result = 0;
	k->function = function;
	for (k->count = 0; k->count < PARAMETERS && (result = parameter_of(function, k->count, &bytes)) == 0; k->count++) {
		if (bytes / 8 > WORDS_MAX) break;
		k->words[k->count] = (uint16_t)(bytes / 8);
	}
	if (k->count < PARAMETERS && result != TM_CUDA_INVALID_VALUE) k->count = UNKNOWN; /* that is how it says that there are no more */
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

static struct known *place_of(const void *function) {
	struct known *t = table();
	return t ? &t[(uintptr_t)function * 0x9E3779B97F4A7C15u >> 32 & (FUNCTIONS - 1)] : NULL;
}

/* What is known of the function; false: nothing is. Another thread may forget it, and learn of another one in its place. */
static bool recall(void *function, struct tm_cuda_kernel *out) {
	struct known *k = place_of(function);
	uint32_t now = 2 * atomic_load(&age);
	if (!k || atomic_load_explicit(&k->state, memory_order_acquire) != now) return false;
	*out = k->kernel;
	atomic_thread_fence(memory_order_acquire);
	return out->function == function && atomic_load_explicit(&k->state, memory_order_relaxed) == now;
}

void tm_cuda_work_learn(void *function, struct tm_cuda_kernel *out) {
	struct known *k = place_of(function);
	uint32_t now = 2 * atomic_load(&age), before = k ? atomic_load_explicit(&k->state, memory_order_acquire) : 1;
	ask(function, out);
	if (before & 1 || !atomic_compare_exchange_strong(&k->state, &before, now | 1)) return;
	atomic_thread_fence(memory_order_release);
	k->kernel = *out;
	atomic_store_explicit(&k->state, now, memory_order_release);
}

static void use_words(struct uses *u, const void *at, size_t words) {
	uint64_t word;
	for (size_t w = 0; at && w < words; w++) {
		memcpy(&word, (const char *)at + 8 * w, sizeof word);
		use(u, word);
	}
}

static void use_parameters(struct uses *u, void *function, void **values) {
	struct tm_cuda_kernel recalled;
	const struct tm_cuda_kernel *k = u->kernel;
	size_t bytes;
	if (!function) return;
	if (!k && tm_cupti.cuFuncGetParamInfo) {
		if (!recall(function, &recalled)) ask(function, &recalled); /* another thread made us forget it a moment ago */
		k = &recalled;
	}
	if (!k || k->count == UNKNOWN) {
		use_untold(u);
		return;
	}
	for (uint32_t i = 0; i < k->count; i++) use_words(u, values[i], k->words[i]);
	for (size_t i = PARAMETERS; k->count == PARAMETERS && parameter_of(function, i, &bytes) == 0; i++)
		if (bytes / 8 <= WORDS_MAX) use_words(u, values[i], bytes / 8);
}

/* Parameters that were packed into a buffer: a list of names and values, which says where it is and how long. */
static void use_buffer(struct uses *u, void *const *extra) {
	const void *buffer = NULL;
	size_t bytes = 0;
	for (unsigned i = 0; i < 16 && extra[i] != TM_CU_LAUNCH_END; i += 2) {
		if (extra[i] == TM_CU_LAUNCH_BUFFER) buffer = extra[i + 1];
		else if (extra[i] == TM_CU_LAUNCH_BUFFER_SIZE && extra[i + 1]) memcpy(&bytes, extra[i + 1], sizeof bytes);
	}
	if (buffer && bytes / 8 <= WORDS_MAX) use_words(u, buffer, bytes / 8);
	else if (bytes) use_untold(u);
}

static void use_kernel(struct uses *u, void *function, void **values, void *const *extra) {
	if (values) use_parameters(u, function, values);
	else if (extra) use_buffer(u, extra);
}

/* --- copies that are described --- */

static uint64_t word_at(const uint8_t *from, size_t at) {
	uint64_t word;
	memcpy(&word, from + at, sizeof word);
	return word;
}

/* One end of a copy of shapes: a kind of memory, then its addresses of the host, of a device, and an array. */
static void use_end(struct uses *u, const uint8_t *end) {
	uint32_t kind = (uint32_t)word_at(end, 0);
	if (kind != TM_CU_MEMORY_ARRAY) use(u, word_at(end, kind == TM_CU_MEMORY_HOST ? 8 : 16));
}

static void use_shape(struct uses *u, const uint8_t *copy, size_t from, size_t to) {
	if (!copy) return;
	use_end(u, copy + from);
	use_end(u, copy + to);
}

static void use_batch(struct uses *u, const struct tm_cu_pointers *to, uint64_t count) {
	if (count > BATCH_MAX) {
		use_untold(u);
		return;
	}
	use_words(u, to->first, count);
	use_words(u, to->second, count);
}

static void use_operands(struct uses *u, const uint8_t *copies, size_t count) {
	if (count > BATCH_MAX) use_untold(u);
	for (size_t i = 0; copies && count <= BATCH_MAX && i < count; i++, copies += TM_CU_COPY_3D_BATCH_BYTES)
		for (size_t at = 0; at <= TM_CU_COPY_3D_BATCH_TO; at += TM_CU_COPY_3D_BATCH_TO)
			if ((uint32_t)word_at(copies, at) == TM_CU_OPERAND_POINTER) use(u, word_at(copies, at + 8));
}

static void use_values(struct uses *u, const uint8_t *values, uint32_t count) {
	if (count > BATCH_MAX) use_untold(u);
	for (uint32_t i = 0; values && count <= BATCH_MAX && i < count; i++, values += TM_CU_STREAM_VALUE_BYTES) {
		switch ((uint32_t)word_at(values, 0)) {
		case TM_CU_WAIT_32:
		case TM_CU_WAIT_64:
		case TM_CU_WRITE_32:
		case TM_CU_WRITE_64: use(u, word_at(values, 8)); break;
		case TM_CU_REDUCE: use(u, word_at(values, 16)); break;
		default: break; /* a barrier */
		}
	}
}

/* --- the way in --- */

void *tm_cuda_work_unknown(uint32_t id, const struct tm_cupti_call *call) {
	const struct tm_cu_launch *launch = call->parameters;
	const struct tm_cu_launch_ex *ex = call->parameters;
	bool is_ex = kinds[id] == TM_WORK_KERNEL_EX;
	if (kinds[id] != TM_WORK_KERNEL && kinds[id] != TM_WORK_COOPERATIVE && !is_ex) return NULL;
	void *function = is_ex ? ex->function : launch->function;
	if (!function || !(is_ex ? ex->parameters : launch->parameters) || !tm_cupti.cuFuncGetParamInfo) return NULL;
	const struct known *k = place_of(function);
	if (k && k->kernel.function == function && atomic_load_explicit(&k->state, memory_order_relaxed) == 2 * atomic_load(&age)) return NULL;
	return function;
}

void tm_cuda_work(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, const struct tm_cuda_kernel *kernel) {
	const uint64_t *p = call->parameters;
	const struct tm_cu_launch *launch = call->parameters;
	const struct tm_cu_launch_ex *ex = call->parameters;
	const struct tm_cu_pointers *to = call->parameters;
	struct uses u; /* its addresses stay as they are */
	u.t = t;
	u.kernel = kernel;
	u.work_id = id;
	u.correlation = call->correlation;
	u.count = 0;
	u.low = atomic_load_explicit(&tm_cuda_low, memory_order_relaxed);
	u.high = atomic_load_explicit(&tm_cuda_high, memory_order_relaxed);
	enum tm_cuda_work kind = u.low < u.high && !t->stopped ? (enum tm_cuda_work)kinds[id] : TM_WORK_GRAPH;
	switch (kind) {
	case TM_WORK_KERNEL: use_kernel(&u, launch->function, launch->parameters, launch->extra); break;
	case TM_WORK_COOPERATIVE: use_kernel(&u, launch->function, launch->parameters, NULL); break;
	case TM_WORK_KERNEL_EX: use_kernel(&u, ex->function, ex->parameters, ex->extra); break;
	case TM_WORK_UNTOLD: use_untold(&u); break;
	case TM_WORK_FIRST: use(&u, p[0]); break;
	case TM_WORK_SECOND: use(&u, p[1]); break;
	case TM_WORK_THIRD: use(&u, p[2]); break;
	case TM_WORK_BOTH: use(&u, p[0]); use(&u, p[1]); break;
	case TM_WORK_PEER: use(&u, p[0]); use(&u, p[2]); break;
	case TM_WORK_2D: use_shape(&u, to->first, TM_CU_COPY_2D_FROM, TM_CU_COPY_2D_TO); break;
	case TM_WORK_3D: use_shape(&u, to->first, TM_CU_COPY_3D_FROM, TM_CU_COPY_3D_TO); break;
	case TM_WORK_BATCH: use_batch(&u, to, p[3]); break;
	case TM_WORK_3D_BATCH: use_operands(&u, to->second, p[0]); break;
	case TM_WORK_3D_ONE: use_operands(&u, to->first, 1); break;
	case TM_WORK_VALUES: use_values(&u, to->third, (uint32_t)p[1]); break;
	default: break; /* a graph, which import knows by its name, or nothing can be used yet */
	}
	if (u.work_id || u.count) tell(&u);
}
