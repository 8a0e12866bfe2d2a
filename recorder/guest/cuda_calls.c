/* cuda_calls.c - calls of the CUDA driver's memory functions, as CUPTI tells them on the thread that makes them.
 *
 * Flow:     driver -> CUPTI -> tm_cuda_call() -> cuda_blocks.h (which heap) -> emit_gpu.c -> ring;  cuda_work.c: launches, copies, sets
 * Order:    what gives memory is recorded when the driver has returned, with what it returned; what takes memory back before the driver does it,
 *           since the address may
 *           be given to another thread at once. Where the driver then refuses (the context is broken), the block is recorded as allocated again.
 * Physical: cuMemCreate's memory lives until its handle is released and its last mapping is gone, whichever is later. Its address in the trace is a number.
 * Host:     frames and scopes are those of the thread, as for malloc.
 */
#include "cuda_blocks.h"
#include "cuda_calls.h"
#include "cupti.h"
#include "emit.h"
#include "heaps.h"
#include "hot.h"

#include <string.h>

#define DEVICES_MAX 64
#define PHYSICAL_ADDRESS (1ull << 56) /* and what cannot be an address of a device */

static _Atomic uint64_t last_physical, last_pool, devices_told;
static _Atomic uint32_t streams_gone; /* counts calls by which a stream may go */
static _Atomic uint32_t current_pool[DEVICES_MAX]; /* heap of the pool that cuDeviceSetMemPool made the device's, 0: its own */
_Atomic uint64_t tm_cuda_low = UINT64_MAX, tm_cuda_high;

/* Between enter and exit of one call that takes memory back: at most one a thread is under way. */
static __thread struct tm_cuda_block leaving __attribute__((tls_model("initial-exec")));

/* --- heaps --- */

static size_t put_number(char *to, unsigned n) {
	char digits[12];
	size_t count = 0;
	do digits[count++] = (char)('0' + n % 10);
	while (n /= 10);
	for (size_t i = 0; i < count; i++) to[i] = digits[count - 1 - i];
	return count;
}

/* "cuda-va:3", "cuda-pool:0#2" */
static uint32_t heap_of(const char *name, const char *kind, int device, unsigned number, uint32_t parent) {
	char text[64];
	size_t n = strlen(name);
	memcpy(text, name, n);
	n += put_number(text + n, (unsigned)device);
	if (number) text[n++] = '#';
	if (number) n += put_number(text + n, number);
	return tm_heap_number(text, n, kind, parent, device);
}

/* The heaps that every device has, looked up once. */
enum device_heap { HEAP_DEVICE, HEAP_POOL, HEAP_GRAPH, HEAP_ADDRESSES, HEAP_MAPPED, HEAP_IMPORTED, DEVICE_HEAPS };
static TM_ROOMY _Atomic uint32_t device_heaps[DEVICES_MAX][DEVICE_HEAPS];

static uint32_t device_heap(int device, enum device_heap which) {
	static const struct {
		const char *name, *kind;
		bool inside; /* of cuda:N */
	} heaps[DEVICE_HEAPS] = { { "cuda:", "device", false },         { "cuda-pool:", "device-pool", true },   { "cuda-graph:", "device-graph", true },
				  { "cuda-va:", "address-space", false }, { "cuda-map:", "device-mapping", true }, { "cuda-ipc:", "imported", false } };
	if (device < 0 || device >= DEVICES_MAX) device = 0;
	uint32_t heap = atomic_load_explicit(&device_heaps[device][which], memory_order_relaxed);
	if (TM_LIKELY(heap)) return heap;
	heap = heap_of(heaps[which].name, heaps[which].kind, device, 0, heaps[which].inside ? device_heap(device, HEAP_DEVICE) : 0);
	atomic_store_explicit(&device_heaps[device][which], heap, memory_order_relaxed);
	return heap;
}

uint32_t tm_cuda_device_heap(int device) {
	return tm_cuda_is_recorded() && device >= 0 && device < DEVICES_MAX ? device_heap(device, HEAP_DEVICE) : 0;
}

static uint32_t host_heap(const char *name, const char *kind) {
	return tm_heap_number(name, strlen(name), kind, 0, -1);
}

/* A context's number comes once: of the thread's last one the device need not be asked for again. */
static int device_of(const struct tm_cupti_call *call) {
	static __thread struct {
		void *context;
		uint32_t uid;
		int device;
	} last __attribute__((tls_model("initial-exec")));
	uint32_t device = 0;
	int number = 0;
	if (TM_LIKELY(call->context && last.context == call->context && last.uid == call->context_uid)) return last.device;
	if (tm_cupti.cuptiGetDeviceId && call->context && tm_cupti.cuptiGetDeviceId(call->context, &device) == TM_CUPTI_OK && device < DEVICES_MAX) {
		last.context = call->context;
		last.uid = call->context_uid;
		return last.device = (int)device;
	}
	if (tm_cupti.cuCtxGetDevice && tm_cupti.cuCtxGetDevice(&number) == 0 && number >= 0 && number < DEVICES_MAX) return number;
	return 0;
}

/* Name, uuid and size of a device, before its first event. */
static void tell_device(struct tm_thread *t, int device) {
	char text[16 + 256];
	size_t total = 0, uuid_bytes = 0;
	uint64_t bit = 1ull << device;
	if (TM_LIKELY(atomic_load_explicit(&devices_told, memory_order_relaxed) & bit) || atomic_fetch_or(&devices_told, bit) & bit) return;
	if ((tm_cupti.cuDeviceGetUuid_v2 && tm_cupti.cuDeviceGetUuid_v2(text, device) == 0) ||
	    (tm_cupti.cuDeviceGetUuid && tm_cupti.cuDeviceGetUuid(text, device) == 0))
		uuid_bytes = 16;
	if (!tm_cupti.cuDeviceGetName || tm_cupti.cuDeviceGetName(text + uuid_bytes, 256, device) != 0) text[uuid_bytes] = 0;
	bool known = tm_cupti.cuDeviceTotalMem_v2 && tm_cupti.cuDeviceTotalMem_v2(&total, device) == 0;
	uint64_t words[2] = { (uint64_t)device, known ? total : UINT64_MAX };
	tm_emit_control(t, TM_CTL_DEVICE, 0, (unsigned)uuid_bytes, words, 2, text, uuid_bytes + strnlen(text + uuid_bytes, 255));
}

/* --- what calls ask for --- */

struct request {
	enum tm_op op;
	enum tm_cuda_key kind;
	int device;
	uint32_t heap;
	uint64_t key, size_bytes, address;
};

static void widen(uint64_t address, uint64_t size) {
	uint64_t low = atomic_load_explicit(&tm_cuda_low, memory_order_relaxed), high = atomic_load_explicit(&tm_cuda_high, memory_order_relaxed);
	while (address < low && !atomic_compare_exchange_weak(&tm_cuda_low, &low, address)) continue;
	while (address + size > high && !atomic_compare_exchange_weak(&tm_cuda_high, &high, address + size)) continue;
}

/* Of one channel. */
static unsigned format_bytes(uint32_t format) {
	switch (format) {
	case 0x01:
	case 0x08:
	case 0xc0 ... 0xc2: /* normalized, of 1, 2 and 4 channels */
	case 0xc6 ... 0xc8: return 1;
	case 0x02:
	case 0x09:
	case 0x10:
	case 0xc3 ... 0xc5:
	case 0xc9 ... 0xcb: return 2;
	case 0x03:
	case 0x0a:
	case 0x20: return 4;
	default: return 0; /* planar and compressed ones: what they take is the driver's to know */
	}
}

/* A level of a mipmapped array has half of the sides of the one before; layers and faces of cubes, which are told as its depth, are as many. */
static uint64_t array_bytes(const uint8_t *descriptor, bool deep, unsigned levels) {
	size_t side[3] = { 0, 0, 0 };
	uint32_t format[3] = { 0, 0, 0 }; /* then channels and flags */
	uint64_t all = 0;
	memcpy(side, descriptor, (deep ? 3 : 2) * sizeof side[0]);
	memcpy(format, descriptor + (deep ? TM_CU_ARRAY_3D_FORMAT : TM_CU_ARRAY_FORMAT), (deep ? 3 : 2) * sizeof format[0]);
	unsigned halved = format[2] & (TM_CU_ARRAY_LAYERED | TM_CU_ARRAY_CUBE) ? 2 : 3;
	for (unsigned level = 0; level < levels && level < 32; level++) {
		uint64_t elements = 1;
		for (unsigned i = 0; i < halved; i++) elements *= side[i] >> level ? side[i] >> level : 1;
		if (halved < 3) elements *= side[2];
		all += elements * format_bytes(format[0]) * format[1];
	}
	return all;
}

/* The device of a place, `otherwise` where it is a part of some device; -1: it is host memory. */
static int device_at(const int32_t location[2], int otherwise) {
	if (location[0] >= TM_CU_LOCATION_HOST && location[0] <= TM_CU_LOCATION_HOST_CURRENT) return -1;
	return location[0] == TM_CU_LOCATION_DEVICE && location[1] >= 0 && location[1] < DEVICES_MAX ? location[1] : otherwise;
}

static int place_of(const uint8_t *properties, int otherwise) {
	int32_t location[2];
	memcpy(location, properties + TM_CU_PROPERTIES_LOCATION, sizeof location);
	return device_at(location, otherwise);
}

static uint32_t pool_heap_of(int device) {
	uint32_t heap = atomic_load_explicit(&current_pool[device], memory_order_relaxed);
	return heap ? heap : device_heap(device, HEAP_POOL);
}

/* A capturing stream allocates nothing: it makes a node of a graph, as cuGraphAddMemAllocNode does. To the functions of which each thread has a default
 * stream of its own (_ptsz), no stream is that one, which goes by another name elsewhere; to the others it is the one that cannot capture. */
static bool captures(uint32_t id, void *stream) {
	int status = 0;
	if (!stream && (id == TM_CALL_cuMemAllocAsync_ptsz || id == TM_CALL_cuMemAllocFromPoolAsync_ptsz)) stream = TM_CU_STREAM_PER_THREAD;
	return stream && tm_cupti.cuStreamIsCapturing && tm_cupti.cuStreamIsCapturing(stream, &status) == 0 && status == TM_CU_CAPTURES;
}

static void of_graph(struct request *r) {
	r->kind = TM_KEY_GRAPH;
	if (r->device < 0) r->device = 0;
	r->heap = device_heap(r->device, HEAP_GRAPH);
}

/* What another process, or interface, allocated there. */
static uint64_t bytes_at(uint64_t address) {
	uint64_t base;
	size_t bytes = 0;
	return address && tm_cupti.cuMemGetAddressRange_v2 && tm_cupti.cuMemGetAddressRange_v2(&base, &bytes, address) == 0 ? bytes : 0;
}

static uint64_t value_at(const uint64_t *place, bool done) {
	return place && done ? *place : 0;
}

static bool adds_node(uint32_t id) {
	return id == TM_CALL_cuGraphAddNode || id == TM_CALL_cuGraphAddNode_v2 || id == TM_CALL_cuGraphAddNode_v3;
}

/* What cuGraphAddNode is told of a node of that kind, or NULL: it is of another. */
static const uint8_t *node_of(uint32_t id, const void *parameters, int kind) {
	const struct tm_cu_graph_node *call = parameters;
	const uint8_t *node = call->rest[id == TM_CALL_cuGraphAddNode ? 1 : 2];
	int32_t is;
	if (!node) return NULL;
	memcpy(&is, node, sizeof is);
	return is == kind ? node + TM_CU_NODE_PARAMETERS : NULL;
}

/* What a call that gives memory asks for, and with `done` what it got. false: it is no such call. */
static bool read_request(uint32_t id, const struct tm_cupti_call *call, bool done, struct request *r) {
	const struct tm_cu_alloc *a = call->parameters;
	const struct tm_cu_alloc_pitch *pitch = call->parameters;
	const struct tm_cu_alloc_from_pool *from = call->parameters;
	const struct tm_cu_create *create = call->parameters;
	const struct tm_cu_register *host = call->parameters;
	const struct tm_cu_array *array = call->parameters;
	const struct tm_cu_graph_alloc *graph = call->parameters;
	const struct tm_cu_map *map = call->parameters;
	const struct tm_cu_external *external = call->parameters;
	struct tm_cuda_block pool;
	const uint8_t *node;
	unsigned levels;
	int device = device_of(call);
	*r = (struct request){ .op = TM_OP_CUDA_ALLOC, .kind = TM_KEY_POINTER, .device = device };
	switch (id) {
	case TM_CALL_cuMemAlloc_v2: r->heap = device_heap(device, HEAP_DEVICE); break;
	case TM_CALL_cuMemAllocManaged:
		r->op = TM_OP_CUDA_ALLOC_MANAGED;
		r->heap = host_heap("cuda-managed", "managed");
		break;
	case TM_CALL_cuMemHostAlloc_v2:
	case TM_CALL_cuMemHostAlloc:
	case TM_CALL_cuMemAllocHost_v2:
		r->op = TM_OP_CUDA_HOST_ALLOC;
		r->heap = host_heap("cuda-host", "pinned");
		break;
	case TM_CALL_cuMemAllocAsync:
	case TM_CALL_cuMemAllocAsync_ptsz:
		r->op = TM_OP_CUDA_ALLOC_ASYNC;
		r->heap = pool_heap_of(device);
		if (done && captures(id, a->stream)) of_graph(r);
		break;
	case TM_CALL_cuMemAllocFromPoolAsync:
	case TM_CALL_cuMemAllocFromPoolAsync_ptsz:
		r->op = TM_OP_CUDA_ALLOC_FROM_POOL;
		r->heap = device_heap(device, HEAP_POOL);
		if (tm_cuda_block_find(TM_KEY_POOL, (uintptr_t)from->pool, &pool)) {
			r->heap = pool.heap;
			r->device = pool.device;
		}
		if (done && captures(id, from->stream)) of_graph(r);
		break;
	case TM_CALL_cuMemAllocPitch_v2:
		r->op = TM_OP_CUDA_ALLOC_PITCH;
		r->heap = device_heap(device, HEAP_DEVICE);
		r->size_bytes = (done && pitch->pitch ? *pitch->pitch : pitch->width) * pitch->height;
		r->key = value_at(pitch->address, done);
		return true;
	case TM_CALL_cuMemAddressReserve:
		r->op = TM_OP_CUDA_RESERVE;
		r->kind = TM_KEY_RESERVED;
		r->heap = device_heap(device, HEAP_ADDRESSES);
		break;
	case TM_CALL_cuMemHostRegister_v2:
	case TM_CALL_cuMemHostRegister:
		*r = (struct request){ TM_OP_CUDA_HOST_REGISTER, TM_KEY_REGISTERED, device, 0, host->address, host->size, 0 };
		r->heap = host_heap("cuda-host-registered", "pinned");
		return true;
	case TM_CALL_cuMemCreate:
		r->op = TM_OP_CUDA_CREATE;
		r->kind = TM_KEY_HANDLE;
		r->device = create->properties ? place_of(create->properties, device) : device;
		r->heap = r->device < 0 ? host_heap("cuda-host", "pinned") : device_heap(r->device, HEAP_DEVICE);
		break;
	case TM_CALL_cuMemImportFromShareableHandle:
		r->op = TM_OP_CUDA_IMPORT;
		r->kind = TM_KEY_HANDLE;
		r->heap = device_heap(device, HEAP_IMPORTED);
		r->key = value_at(a->address, done);
		return true;
	case TM_CALL_cuMemPoolImportPointer:
		r->op = TM_OP_CUDA_POOL_IMPORT;
		r->heap = device_heap(device, HEAP_IMPORTED);
		r->key = value_at(a->address, done);
		r->size_bytes = bytes_at(r->key);
		return true;
	case TM_CALL_cuExternalMemoryGetMappedBuffer:
		r->op = TM_OP_CUDA_EXTERNAL;
		r->heap = device_heap(device, HEAP_IMPORTED);
		r->key = value_at(a->address, done);
		r->size_bytes = external->place ? external->place[1] : 0;
		return true;
	case TM_CALL_cuMemMap:
		*r = (struct request){ TM_OP_CUDA_MAP, TM_KEY_MAPPED, device, device_heap(device, HEAP_MAPPED), map->address, map->size, 0 };
		return true;
	case TM_CALL_cuArrayCreate_v2:
	case TM_CALL_cuArray3DCreate_v2:
	case TM_CALL_cuMipmappedArrayCreate:
		r->op = id == TM_CALL_cuMipmappedArrayCreate ? TM_OP_CUDA_MIPMAPPED_CREATE : TM_OP_CUDA_ARRAY_CREATE;
		r->kind = TM_KEY_ARRAY;
		r->heap = device_heap(device, HEAP_DEVICE);
		r->key = value_at(array->handle, done);
		levels = id == TM_CALL_cuMipmappedArrayCreate ? array->levels : 1;
		r->size_bytes = array->descriptor ? array_bytes(array->descriptor, id != TM_CALL_cuArrayCreate_v2, levels) : 0;
		return true;
	case TM_CALL_cuGraphAddMemAllocNode:
	case TM_CALL_cuGraphAddNode:
	case TM_CALL_cuGraphAddNode_v2:
	case TM_CALL_cuGraphAddNode_v3:
		node = id == TM_CALL_cuGraphAddMemAllocNode ? graph->parameters : node_of(id, call->parameters, TM_CU_NODE_ALLOC);
		if (!node) return false;
		r->op = TM_OP_CUDA_GRAPH_ALLOC;
		of_graph(r);
		memcpy(&r->size_bytes, node + TM_CU_GRAPH_ALLOC_SIZE, sizeof r->size_bytes);
		if (done) memcpy(&r->key, node + TM_CU_GRAPH_ALLOC_ADDRESS, sizeof r->key);
		return true;
	case TM_CALL_cuIpcOpenMemHandle_v2:
	case TM_CALL_cuIpcOpenMemHandle:
		r->op = TM_OP_CUDA_IPC_OPEN;
		r->kind = TM_KEY_IPC;
		r->heap = device_heap(device, HEAP_IMPORTED);
		r->key = value_at(a->address, done);
		r->size_bytes = bytes_at(r->key);
		return true;
	default: return false;
	}
	r->size_bytes = a->size; /* those whose first parameters are a place for the result, and a size */
	r->key = value_at(a->address, done);
	return true;
}

/* --- memory is given --- */

static struct tm_cuda_block block_of(const struct request *r) {
	return (struct tm_cuda_block){ .key = r->key, .size_bytes = r->size_bytes, .address = r->address ? r->address : r->key, .heap = r->heap,
				       .device = r->device, .kind = (uint8_t)r->kind, .op = (uint8_t)r->op };
}

static void note_lost_block(struct tm_thread *t) {
	static _Atomic uint32_t noted;
	if (!atomic_exchange(&noted, 1)) tm_emit_note(t, "gpu", "there was no memory to remember a block of a device: when it ends is not in this trace");
}

/* Memory of a pool and of cuMemCreate outlives the context in which it was asked for. */
static uint64_t context_of(const struct request *r, const struct tm_cupti_call *call) {
	bool is_pool = r->op == TM_OP_CUDA_ALLOC_ASYNC || r->op == TM_OP_CUDA_ALLOC_FROM_POOL || r->op == TM_OP_CUDA_POOL_IMPORT;
	bool belongs = (r->kind == TM_KEY_POINTER && !is_pool) || r->kind == TM_KEY_ARRAY || r->kind == TM_KEY_IPC || r->kind == TM_KEY_REGISTERED;
	return belongs ? (uintptr_t)call->context : 0;
}

/* It was given before and is not given a second time: a handle opened again, or one function of the driver told by two numbers, one inside of the other. */
static bool is_known(uint32_t id, const struct request *r) {
	struct tm_cuda_block b;
	if (r->kind == TM_KEY_IPC) return tm_cuda_block_add(TM_KEY_IPC, r->key, 1, 0, &b);
	if (id != TM_CALL_cuMemHostAlloc_v2 && id != TM_CALL_cuMemHostAlloc && id != TM_CALL_cuMemHostRegister_v2 && id != TM_CALL_cuMemHostRegister)
		return false;
	return tm_cuda_block_find(r->kind, r->key, &b) && b.size_bytes == r->size_bytes;
}

static void given(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, struct request *r, const void *frame) {
	const struct tm_cu_map *map = call->parameters;
	struct tm_cuda_block b, physical;
	if (!r->key || is_known(id, r)) return;
	bool numbered = r->kind == TM_KEY_HANDLE || r->kind == TM_KEY_ARRAY;
	uint64_t number = numbered ? atomic_fetch_add(&last_physical, 1) + 1 : 0;
	if (numbered) r->address = PHYSICAL_ADDRESS + 16 * number;
	b = block_of(r);
	b.context = context_of(r, call);
	b.handles = r->kind == TM_KEY_IPC;
	if (r->op == TM_OP_CUDA_ALLOC_FROM_POOL) b.physical = (uintptr_t)((const struct tm_cu_alloc_from_pool *)call->parameters)->pool;
	if (r->kind == TM_KEY_HANDLE) {
		physical = b;
		physical.kind = TM_KEY_PHYSICAL;
		physical.key = number;
		physical.handles = 1;
		if (!tm_cuda_block_put(&physical)) note_lost_block(t);
		b.physical = number;
		b.handles = 1;
	}
	if (id == TM_CALL_cuMemMap && tm_cuda_block_find(TM_KEY_HANDLE, map->handle, &physical)) {
		b.physical = physical.physical;
		tm_cuda_block_add(TM_KEY_PHYSICAL, b.physical, 0, 1, &physical);
	}
	if (!tm_cuda_block_put(&b)) note_lost_block(t);
	if (!numbered && r->kind != TM_KEY_RESERVED && r->kind != TM_KEY_REGISTERED) widen(r->key, r->size_bytes);
	tm_emit_gpu_alloc(t, r->op, r->heap, b.address, r->size_bytes, frame);
}

static void tell_pool(struct tm_thread *t, void *pool, uint32_t heap) {
	uint64_t reserved = UINT64_MAX, handed_out = UINT64_MAX;
	if (!tm_cupti.cuMemPoolGetAttribute || !heap || !pool) return;
	if (tm_cupti.cuMemPoolGetAttribute(pool, TM_CU_POOL_RESERVED, &reserved) != 0) return;
	if (tm_cupti.cuMemPoolGetAttribute(pool, TM_CU_POOL_USED, &handed_out) != 0) return;
	tm_emit_pool(t, heap, handed_out, reserved);
}

/* Of the pool from which the device hands out now, if any was ever seen: before a refusal, which import explains by what it has in store, and at the end.
 * Of the program's other pools that is what they told last. */
static void tell_current_pool(struct tm_thread *t, int device) {
	void *pool;
	if (device < 0 || (!atomic_load(&current_pool[device]) && !atomic_load(&device_heaps[device][HEAP_POOL]))) return;
	if (tm_cupti.cuDeviceGetMemPool && tm_cupti.cuDeviceGetMemPool(&pool, device) == 0) tell_pool(t, pool, pool_heap_of(device));
}

/* is_current: the device is that of the thread's context, of which alone the driver says what is free. */
static void refused(struct tm_thread *t, unsigned function, uint32_t heap, uint64_t size_bytes, bool is_current, const void *frame) {
	size_t free_bytes, total_bytes;
	struct tm_refusal refusal = { function, heap, size_bytes, TM_CUDA_OUT_OF_MEMORY, UINT64_MAX, UINT64_MAX };
	if (is_current && tm_cupti.cuMemGetInfo_v2 && tm_cupti.cuMemGetInfo_v2(&free_bytes, &total_bytes) == 0) {
		refusal.free_bytes = free_bytes;
		refusal.total_bytes = total_bytes;
	}
	tm_emit_refusal(t, &refusal, frame);
}

/* Other results are a wrong argument, or what the device cannot do, and no lack of memory. */
static bool lacked_memory(const struct tm_cupti_call *call) {
	return call->site == TM_CUPTI_EXIT && call->result && *call->result == TM_CUDA_OUT_OF_MEMORY;
}

/* Of a call that makes a context, or keeps one: no other has a device in its parameters. */
static int device_wanted(uint32_t id, const struct tm_cupti_call *call) {
	const char *parameters = call->parameters;
	int device = device_of(call);
	size_t at;
	switch (id) {
	case TM_CALL_cuCtxCreate_v2: at = 12; break;
	case TM_CALL_cuCtxCreate_v3: at = 24; break;
	case TM_CALL_cuCtxCreate_v4: at = 20; break;
	case TM_CALL_cuDevicePrimaryCtxRetain: at = 8; break;
	default: at = 0; break;
	}
	if (at) memcpy(&device, parameters + at, sizeof device);
	return device >= 0 && device < DEVICES_MAX ? device : 0;
}

/* A launch, a context, a module for which there was no memory. */
static void function_refused(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, const void *frame) {
	int device = device_wanted(id, call);
	tell_device(t, device);
	tell_current_pool(t, device);
	refused(t, TM_RING_FUNCTION | id, device_heap(device, HEAP_DEVICE), 0, device == device_of(call), frame);
}

/* --- memory is taken back --- */

static void release_physical(struct tm_thread *t, uint64_t number, int handles, int mappings) {
	struct tm_cuda_block b;
	if (number && tm_cuda_block_add(TM_KEY_PHYSICAL, number, -handles, -mappings, &b) && !b.handles && !b.mappings)
		tm_emit_heap_free(t, TM_OP_CUDA_RELEASE, b.heap, (const void *)(uintptr_t)b.address);
}

/* The function's op and how its first parameter, of eight bytes, names what it gives back. */
static bool names_first(uint32_t id, enum tm_op *op, enum tm_cuda_key *kind) {
	*kind = TM_KEY_POINTER;
	switch (id) {
	case TM_CALL_cuMemFree_v2: *op = TM_OP_CUDA_FREE; return true;
	case TM_CALL_cuMemFreeHost: *op = TM_OP_CUDA_HOST_FREE; return true;
	case TM_CALL_cuMemFreeAsync:
	case TM_CALL_cuMemFreeAsync_ptsz: *op = TM_OP_CUDA_FREE_ASYNC; return true;
	case TM_CALL_cuMemHostUnregister: *op = TM_OP_CUDA_HOST_UNREGISTER; *kind = TM_KEY_REGISTERED; return true;
	case TM_CALL_cuMemAddressFree: *op = TM_OP_CUDA_ADDRESS_FREE; *kind = TM_KEY_RESERVED; return true;
	case TM_CALL_cuArrayDestroy: *op = TM_OP_CUDA_ARRAY_DESTROY; *kind = TM_KEY_ARRAY; return true;
	case TM_CALL_cuMipmappedArrayDestroy: *op = TM_OP_CUDA_MIPMAPPED_DESTROY; *kind = TM_KEY_ARRAY; return true;
	case TM_CALL_cuIpcCloseMemHandle: *op = TM_OP_CUDA_IPC_CLOSE; *kind = TM_KEY_IPC; return true;
	default: return false;
	}
}

static bool read_release(uint32_t id, const void *parameters, enum tm_op *op, enum tm_cuda_key *kind, uint64_t *key) {
	const struct tm_cu_graph_free *graph = parameters;
	const uint8_t *node;
	if (names_first(id, op, kind)) {
		memcpy(key, parameters, sizeof *key);
		return true;
	}
	*op = TM_OP_CUDA_GRAPH_FREE;
	*kind = TM_KEY_GRAPH;
	if (id == TM_CALL_cuGraphAddMemFreeNode) {
		*key = graph->address;
		return true;
	}
	node = adds_node(id) ? node_of(id, parameters, TM_CU_NODE_FREE) : NULL;
	if (node) memcpy(key, node, sizeof *key);
	return node != NULL;
}

/* The call takes back. What it was is kept until the driver has agreed. */
static void taken_back(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call) {
	enum tm_op op;
	enum tm_cuda_key kind;
	uint64_t key;
	leaving.kind = TM_KEY_NONE;
	if (!read_release(id, call->parameters, &op, &kind, &key) || !key) return;
	if (kind == TM_KEY_IPC) {
		if (!tm_cuda_block_add(kind, key, -1, 0, &leaving)) return;
		if (leaving.handles) { /* it is open once more */
			leaving.kind = TM_KEY_NONE;
			return;
		}
		leaving.handles = 1;
	} else if (!tm_cuda_block_take(kind, key, &leaving) && !(kind == TM_KEY_POINTER && tm_cuda_block_take(TM_KEY_GRAPH, key, &leaving))) {
		return; /* what a graph's node allocated may be freed as any other memory */
	}
	tm_emit_heap_free(t, op, leaving.heap, (const void *)(uintptr_t)leaving.address);
}

static void not_taken_back(struct tm_thread *t, const void *frame) {
	if (leaving.kind && tm_cuda_block_put(&leaving))
		tm_emit_gpu_alloc(t, (enum tm_op)leaving.op, leaving.heap, leaving.address, leaving.size_bytes, frame);
	leaving.kind = TM_KEY_NONE;
}

/* A range may hold several mappings. */
static void unmapped(struct tm_thread *t, const struct tm_cu_range *range) {
	struct tm_cuda_block b;
	for (uint64_t at = range->address, end = at + range->size; at < end;) {
		if (!tm_cuda_block_take(TM_KEY_MAPPED, at, &b)) return;
		tm_emit_heap_free(t, TM_OP_CUDA_UNMAP, b.heap, (const void *)(uintptr_t)b.address);
		release_physical(t, b.physical, 0, 1);
		at += b.size_bytes ? b.size_bytes : range->size;
	}
}

static void released(struct tm_thread *t, uint64_t handle) {
	struct tm_cuda_block b;
	if (tm_cuda_block_add(TM_KEY_HANDLE, handle, -1, 0, &b)) release_physical(t, b.physical, 1, 0);
}

/* Any address of a mapping will do. */
static void retained(const struct tm_cu_retain *r) {
	struct tm_cuda_block b, handle;
	if (!r->handle || !tm_cuda_block_around(TM_KEY_MAPPED, r->address, &b) || !b.physical) return;
	tm_cuda_block_add(TM_KEY_PHYSICAL, b.physical, 1, 0, &handle);
	if (tm_cuda_block_add(TM_KEY_HANDLE, *r->handle, 1, 0, &handle)) return;
	handle = b;
	handle.kind = TM_KEY_HANDLE;
	handle.key = *r->handle;
	handle.handles = 1;
	handle.mappings = 0;
	tm_cuda_block_put(&handle);
}

/* --- contexts --- */

static void context_ends(struct tm_thread *t, enum tm_op op, uint64_t context, int device) {
	uint64_t at = 0;
	struct tm_cuda_block b;
	while (tm_cuda_block_take_of(&at, context, device, &b)) tm_emit_heap_free(t, op, b.heap, (const void *)(uintptr_t)b.address);
}

/* A context takes its memory along. Its end is recorded before the driver begins with it; only whether a release was the last one is known afterwards. */
static void context_call(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call) {
	const uint64_t *const *made = call->parameters;
	const uint64_t *context = call->parameters; /* eight bytes of them are there for a context, four for a device */
	const int *device = call->parameters;
	struct tm_cuda_block b;
	bool enters = call->site == TM_CUPTI_ENTER, done = !enters && call->result && *call->result == 0;
	unsigned flags;
	int active = 1;
	if (id == TM_CALL_cuDevicePrimaryCtxRetain) return;
	if (enters) tm_cuda_work_forgets();
	atomic_fetch_add(&streams_gone, 1);
	if (id == TM_CALL_cuCtxDestroy_v2) {
		if (!enters || !*context) return;
		context_ends(t, TM_OP_CUDA_CONTEXT_DESTROY, *context, -1);
		tm_cuda_block_take(TM_KEY_CONTEXT, *context, &b); /* the next one may have its handle */
	} else if (id == TM_CALL_cuDevicePrimaryCtxReset || id == TM_CALL_cuDevicePrimaryCtxReset_v2) {
		if (enters) context_ends(t, TM_OP_CUDA_CONTEXT_RESET, 0, *device);
	} else if (id == TM_CALL_cuDevicePrimaryCtxRelease || id == TM_CALL_cuDevicePrimaryCtxRelease_v2) {
		if (done && tm_cupti.cuDevicePrimaryCtxGetState && tm_cupti.cuDevicePrimaryCtxGetState(*device, &flags, &active) == 0 && !active)
			context_ends(t, TM_OP_CUDA_CONTEXT_RELEASE, 0, *device);
	} else if (done && *made) {
		b = (struct tm_cuda_block){ .key = **made, .kind = TM_KEY_CONTEXT };
		tm_cuda_block_put(&b);
	}
}

/* --- pools --- */

#define SLOW_TICKS (1u << 14) /* some microseconds: the pool grew */
#define SELDOM_TICKS (1u << 21) /* a millisecond or so */

/* A block came from a pool, or went there: what that holds is asked for when it may have grown, and now and then. NULL: the device's current pool. */
static void tell_pool_after(struct tm_thread *t, const struct tm_cupti_call *call, void *pool, uint32_t heap, int device, uint64_t now) {
	static TM_ROOMY _Atomic uint64_t told[TM_HEAPS_MAX];
	const uint64_t *begin = call->own;
	bool grew = begin && now - *begin >= SLOW_TICKS;
	if (heap >= TM_HEAPS_MAX || (!grew && now - atomic_load_explicit(&told[heap], memory_order_relaxed) < SELDOM_TICKS)) return;
	atomic_store_explicit(&told[heap], now, memory_order_relaxed);
	if (!pool && (!tm_cupti.cuDeviceGetMemPool || tm_cupti.cuDeviceGetMemPool(&pool, device) != 0)) return;
	tell_pool(t, pool, heap);
}

/* One that the program has destroyed meanwhile must not be asked. */
static void tell_pool_of(struct tm_thread *t, const struct tm_cupti_call *call, const struct tm_cuda_block *b, uint64_t now) {
	struct tm_cuda_block pool;
	if (b->kind != TM_KEY_POINTER || b->device < 0 || (b->op != TM_OP_CUDA_ALLOC_ASYNC && b->op != TM_OP_CUDA_ALLOC_FROM_POOL)) return;
	if (b->physical && tm_cuda_block_find(TM_KEY_POOL, b->physical, &pool) && pool.heap == b->heap)
		tell_pool_after(t, call, (void *)(uintptr_t)b->physical, b->heap, b->device, now);
	else if (b->heap == pool_heap_of(b->device)) tell_pool_after(t, call, NULL, b->heap, b->device, now);
}

/* CUPTI's number of a stream, as work has it. Asking takes 0.2 us: of the thread's last one it is known while no stream was destroyed. */
static bool number_of_stream(const struct tm_cupti_call *call, void *stream, bool is_threads, uint32_t *number) {
	static __thread struct {
		void *context, *stream;
		uint32_t uid, gone, number;
		bool is_threads, known;
	} last __attribute__((tls_model("initial-exec")));
	uint32_t gone = atomic_load_explicit(&streams_gone, memory_order_acquire);
	bool same = last.known && last.stream == stream && last.context == call->context && last.uid == call->context_uid;
	if (same && last.gone == gone && last.is_threads == is_threads) {
		*number = last.number;
		return true;
	}
	if (tm_cupti.cuptiGetStreamIdEx(call->context, stream, is_threads, number) != TM_CUPTI_OK) return false;
	last.context = call->context;
	last.stream = stream;
	last.uid = call->context_uid;
	last.gone = gone;
	last.number = *number;
	last.is_threads = is_threads;
	last.known = true;
	return true;
}

/* As of when the block was recorded, right before. CUPTI's own records of allocations would say so, too, and with them these functions take thrice as
 * long. */
static void tell_stream(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, const struct request *r, void *stream) {
	static const char no_stream[] = "CUPTI does not tell of a stream which it is (cuptiGetStreamIdEx): blocks of it have none";
	static _Atomic bool noted;
	struct tm_gpu_activity a = { .kind = TM_ACTIVITY_MEMORY, .direction = TM_DIRECTION_ALLOC, .start = t->last_ticks, .end = t->last_ticks,
				     .address = r->key, .size_bytes = r->size_bytes, .device = (uint32_t)r->device, .correlation = call->correlation,
				     .name = "device", .name_bytes = 6 };
	bool is_threads = id == TM_CALL_cuMemAllocAsync_ptsz || id == TM_CALL_cuMemAllocFromPoolAsync_ptsz;
	if (!tm_cupti.cuptiGetStreamIdEx) return;
	if (number_of_stream(call, stream, is_threads, &a.stream)) tm_emit_activity(t, &a);
	else if (!atomic_exchange(&noted, true)) tm_emit_note(t, "gpu", no_stream);
}

/* 0: the pool is of host or managed memory, whose heap holds other memory as well. */
static uint32_t heap_of_pool(void *pool, int device) {
	struct tm_cuda_block b;
	if (!tm_cuda_block_find(TM_KEY_POOL, (uintptr_t)pool, &b)) return device_heap(device, HEAP_POOL);
	return b.device < 0 ? 0 : b.heap;
}

/* A pool that is seen for the first time: made by the program, or one that a place has from the beginning. */
static void know_pool(void *pool, int type, const int32_t location[2], int device, bool is_made) {
	struct tm_cuda_block b = { .key = (uintptr_t)pool, .kind = TM_KEY_POOL, .device = device_at(location, device) };
	if (type == TM_CU_TYPE_MANAGED) b.device = -1;
	if (type == TM_CU_TYPE_MANAGED) b.heap = host_heap("cuda-managed", "managed");
	else if (b.device < 0) b.heap = host_heap("cuda-host", "pinned");
	else if (!is_made) b.heap = device_heap(b.device, HEAP_POOL);
	if (!b.heap) b.heap = heap_of("cuda-pool:", "device-pool", b.device, (unsigned)atomic_fetch_add(&last_pool, 1) + 1, device_heap(b.device, HEAP_DEVICE));
	tm_cuda_block_put(&b);
}

static void set_pool(int device, void *pool) {
	if (device >= 0 && device < DEVICES_MAX) atomic_store(&current_pool[device], heap_of_pool(pool, device));
}

/* Its handle, too, may be the next one's at once. A device whose pool it was has its own one again. */
static void pool_ends(const struct tm_cupti_call *call) {
	void *const *pool = call->parameters;
	if (call->site == TM_CUPTI_ENTER) {
		leaving.kind = TM_KEY_NONE;
		tm_cuda_block_take(TM_KEY_POOL, (uintptr_t)*pool, &leaving);
		return;
	}
	bool done = call->result && *call->result == 0;
	if (leaving.kind && !done) tm_cuda_block_put(&leaving);
	for (unsigned i = 0; leaving.kind && done && leaving.device >= 0 && i < DEVICES_MAX; i++)
		if (atomic_load(&current_pool[i]) == leaving.heap) atomic_store(&current_pool[i], 0);
	leaving.kind = TM_KEY_NONE;
}

/* What the graphs of a device hold, which outlives their launches. */
static void tell_graphs(struct tm_thread *t, int device) {
	uint64_t reserved, handed_out;
	if (device < 0 || device >= DEVICES_MAX || !tm_cupti.cuDeviceGetGraphMemAttribute || !atomic_load(&device_heaps[device][HEAP_GRAPH])) return;
	if (tm_cupti.cuDeviceGetGraphMemAttribute(device, TM_CU_GRAPH_RESERVED, &reserved) != 0) return;
	if (tm_cupti.cuDeviceGetGraphMemAttribute(device, TM_CU_GRAPH_USED, &handed_out) != 0) return;
	tm_emit_pool(t, device_heap(device, HEAP_GRAPH), handed_out, reserved);
}

void tm_cuda_tell_pools(struct tm_thread *t) {
	for (int device = 0; device < DEVICES_MAX; device++) tell_current_pool(t, device);
}

static void pool_call(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call) {
	const struct tm_cu_pool_create *create = call->parameters;
	const struct tm_cu_set_pool *set = call->parameters;
	void *const *first = call->parameters;
	const struct tm_cu_pool_of *of = call->parameters;
	const struct tm_cu_set_pool_of *set_of = call->parameters;
	struct tm_cuda_block b;
	int32_t words[4]; /* type, kinds of handles, place */
	int device = device_of(call);
	switch (id) {
	case TM_CALL_cuMemPoolCreate:
		if (!create->pool || !create->properties) return;
		memcpy(words, create->properties, sizeof words);
		know_pool(*create->pool, words[0], words + TM_CU_PROPERTIES_LOCATION / 4, device, true);
		break;
	case TM_CALL_cuMemGetDefaultMemPool:
	case TM_CALL_cuMemGetMemPool:
		if (!of->pool || !of->location || tm_cuda_block_find(TM_KEY_POOL, (uintptr_t)*of->pool, &b)) return;
		know_pool(*of->pool, of->type, of->location, device, false);
		break;
	case TM_CALL_cuMemSetMemPool:
		if (!set_of->location || set_of->type != TM_CU_TYPE_PINNED || set_of->location[0] != TM_CU_LOCATION_DEVICE) return;
		set_pool(set_of->location[1], set_of->pool);
		break;
	case TM_CALL_cuDeviceSetMemPool: set_pool(set->device, set->pool); break;
	default: tell_pool(t, *first, heap_of_pool(*first, device)); break; /* trimmed, or told how much to keep */
	}
}

/* --- the way in --- */

/* How long the driver took. Which function it was, the collector knows by the op. */
static void tell_call(struct tm_thread *t, enum tm_op op, const struct tm_cupti_call *call, uint64_t now) {
	struct tm_gpu_activity a = { .kind = TM_ACTIVITY_CALL, .start = call->own ? *call->own : 0, .end = now, .size_bytes = UINT64_MAX, .address = op,
				     .device = UINT32_MAX, .stream = UINT32_MAX, .correlation = call->correlation };
	if (a.start) tm_emit_activity(t, &a);
}

static void entered(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call) {
	if (call->own) *call->own = tm_now();
	if (id == TM_CALL_cuMemUnmap) unmapped(t, call->parameters);
	else if (id == TM_CALL_cuMemRelease) released(t, *(const uint64_t *)call->parameters);
	else taken_back(t, id, call);
}

static enum tm_op release_op(uint32_t id) {
	enum tm_op op;
	enum tm_cuda_key kind;
	if (id == TM_CALL_cuMemUnmap) return TM_OP_CUDA_UNMAP;
	if (id == TM_CALL_cuGraphAddMemFreeNode) return TM_OP_CUDA_GRAPH_FREE;
	return names_first(id, &op, &kind) ? op : TM_OP_CUDA_RELEASE;
}

static void came_from_pool(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, const struct request *r, uint64_t now) {
	const struct tm_cu_alloc *a = call->parameters;
	const struct tm_cu_alloc_from_pool *from = call->parameters;
	bool names_pool = r->op == TM_OP_CUDA_ALLOC_FROM_POOL;
	if (!names_pool && r->op != TM_OP_CUDA_ALLOC_ASYNC) return;
	tell_stream(t, id, call, r, names_pool ? from->stream : a->stream);
	if (r->device >= 0) tell_pool_after(t, call, names_pool ? from->pool : NULL, r->heap, r->device, now);
}

/* now: when the driver returned, before we took our time. */
static void returned(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call, const void *frame, uint64_t now) {
	struct request r;
	int result = call->result ? *call->result : 0;
	if (read_request(id, call, result == 0, &r)) {
		if (r.device >= 0) tell_device(t, r.device);
		if (result == 0) given(t, id, call, &r, frame);
		if (result == 0 && r.kind == TM_KEY_POINTER) came_from_pool(t, id, call, &r, now);
		else if (lacked_memory(call)) {
			tell_current_pool(t, r.device);
			refused(t, r.op, r.heap, r.size_bytes, r.device < 0 || r.device == device_of(call), frame);
		}
		tell_call(t, r.op, call, now);
	} else if (id == TM_CALL_cuMemRetainAllocationHandle) {
		if (result == 0) retained(call->parameters);
	} else if (id == TM_CALL_cuDeviceGraphMemTrim) {
		if (result == 0) tell_graphs(t, *(const int *)call->parameters);
	} else {
		if (result != 0) not_taken_back(t, frame);
		else tell_pool_of(t, call, &leaving, now);
		leaving.kind = TM_KEY_NONE;
		if (!adds_node(id)) tell_call(t, release_op(id), call, now);
	}
}

static void work_call(struct tm_thread *t, uint32_t id, const struct tm_cupti_call *call) {
	if (call->site == TM_CUPTI_ENTER) tm_cuda_work(t, id, call, NULL);
	else if (tm_cuda_is_graph(id)) tell_graphs(t, device_of(call));
}

/* What is done about a function of the driver. Where CUPTI tells of all of them, most are none of ours. */
enum role { ROLE_NONE, ROLE_MEMORY, ROLE_POOL, ROLE_CONTEXT, ROLE_UNLOAD, ROLE_STREAM };

static enum role role_of(uint32_t id) {
	static const uint8_t roles[TM_CUDA_IDS] = {
#define X(name, number) [number] = ROLE_MEMORY,
		TM_CUDA_CALLS(X)
#undef X
#define X(name, number) [number] = ROLE_POOL,
			TM_CUDA_POOL_CALLS(X)
#undef X
#define X(name, number) [number] = ROLE_CONTEXT,
				TM_CUDA_CONTEXT_CALLS(X)
#undef X
#define X(name, number) [number] = ROLE_UNLOAD,
					TM_CUDA_UNLOAD_CALLS(X)
#undef X
#define X(name, number) [number] = ROLE_STREAM,
						TM_CUDA_STREAM_CALLS(X)
#undef X
	};
	return (enum role)roles[id];
}

static bool takes_for_itself(uint32_t id) {
	static const bool takes[TM_CUDA_IDS] = {
#define X(name, number) [number] = true,
		TM_CUDA_TAKERS(X)
#undef X
	};
	return takes[id];
}

/* A launch, copy or set has returned, and nothing is to be said of that: neither was it refused, nor is it a graph. The process is still the one that was
 * recorded when it was called. */
static void work_has_returned(void) {
	const struct tm_thread *t = tm_tls.thread;
	if (t && atomic_load_explicit(tm_guest.epoch, memory_order_relaxed) == t->epoch && !tm_cuda_is_inherited()) tm_cuda_activity_fetch();
}

/* The launch of a kernel that the driver has to be asked about, which may take long, allocate, and do anything at all. */
TM_COLD static void unknown_work(uint32_t id, const struct tm_cupti_call *call, void *function) {
	struct tm_cuda_kernel kernel;
	tm_cuda_work_learn(function, &kernel);
	struct tm_thread *t = tm_hook_enter();
	if (t && !tm_cuda_is_inherited()) tm_cuda_work(t, id, call, &kernel);
	if (t) tm_hook_leave(t);
}

void tm_cuda_call(void *user, int domain, uint32_t id, const struct tm_cupti_call *call) {
	(void)user;
	if (domain != TM_CUPTI_DOMAIN_DRIVER || id >= TM_CUDA_IDS || !call || !call->parameters || !tm_cuda_is_recorded()) return;
	bool is_work = tm_cuda_is_work(id), can_be_refused = is_work || takes_for_itself(id);
	enum role role = role_of(id);
	if (!can_be_refused && role == ROLE_NONE) return;
	if (is_work && call->site == TM_CUPTI_EXIT && call->result && *call->result != 0) tm_cuda_activity_refused(call->correlation);
	if (is_work && call->site == TM_CUPTI_EXIT && !lacked_memory(call) && !tm_cuda_is_graph(id)) {
		work_has_returned();
		return;
	}
	struct tm_thread *t = tm_hook_enter();
	if (!t) return;
	if (TM_UNLIKELY(tm_cuda_is_inherited())) {
		tm_hook_leave(t);
		return;
	}
	void *unknown = is_work && call->site == TM_CUPTI_ENTER ? tm_cuda_work_unknown(id, call) : NULL;
	if (TM_UNLIKELY(unknown != NULL)) {
		tm_hook_leave(t);
		unknown_work(id, call, unknown);
		return;
	}
	if (can_be_refused && lacked_memory(call)) function_refused(t, id, call, TM_FRAME); /* how much it wanted is not told */
	if (is_work) work_call(t, id, call);
	else if (role == ROLE_CONTEXT) context_call(t, id, call);
	else if (role == ROLE_UNLOAD && call->site == TM_CUPTI_ENTER) tm_cuda_work_forgets();
	else if (role == ROLE_MEMORY && call->site == TM_CUPTI_ENTER) entered(t, id, call);
	else if (role == ROLE_MEMORY) returned(t, id, call, TM_FRAME, tm_now());
	else if (role == ROLE_STREAM) atomic_fetch_add(&streams_gone, 1);
	else if (id == TM_CALL_cuMemPoolDestroy) pool_ends(call);
	else if (role == ROLE_POOL && call->site == TM_CUPTI_EXIT && call->result && *call->result == 0) pool_call(t, id, call);
	tm_hook_leave(t);
	if (call->site == TM_CUPTI_EXIT) tm_cuda_activity_fetch();
}
