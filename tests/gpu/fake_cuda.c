/* fake_cuda.c - a libcuda.so.1 without a device: hands out addresses, keeps count, and tells a profiling interface of every call as the real one does.
 *
 * Addresses are never touched. Each device has FAKE_CUDA_BYTES; a call that would go beyond is refused with 2. A freed address of a size is the next
 * one that is given
 * for that size, as allocators do. One mutex guards all; it is not held while hooks run.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEVICES_MAX 8
#define BLOCKS_MAX 65536
#define OOM 2
#define INVALID 1

struct fake_context {
	int device;
	uint32_t uid;
};
struct fake_pool {
	int device; /* -1: host or managed memory, of which there is enough */
	uint64_t size, used; /* size: taken from the device, and kept until it is trimmed */
	char name[32];       /* of its heap */
};
struct block {
	uint64_t address, bytes;
	int device, kind; /* 0 free, 1 device, 2 managed, 3 host, 4 pool, 5 reserved, 6 mapped, 7 of others */
	struct fake_pool *pool;
	CUcontext context; /* with which it ends, or NULL */
	uint64_t physical;
};
struct physical {
	uint64_t bytes;
	int device, handles, mappings;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_hooks hooks;
static int device_count = 2, log_file = -1, initialized;
static uint64_t device_bytes = 1ull << 30, used_bytes[DEVICES_MAX], next_address = 0x7f1000000000;
static struct block blocks[BLOCKS_MAX];
static int block_count;
static struct physical physicals[4096];
static uint64_t physical_count;
static struct fake_pool pools[64], *current_pools[DEVICES_MAX];
static int pool_count;
static uint32_t last_correlation, last_context;
static int visible[DEVICES_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 }; /* which the process sees, by its numbers */
static struct fake_context first_context;
static __thread CUcontext current;

static void say(const char *format, ...) {
	char line[256];
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	if (n >= (int)sizeof line) line[(n = (int)sizeof line) - 1] = '\n';
	if (log_file >= 0 && write(log_file, line, (size_t)n) != n) abort();
}

static uint64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static CUcontext context(void) {
	if (!current) current = &first_context;
	return current;
}

int fake_cuda_device(CUcontext c) {
	return c ? c->device : 0;
}

void fake_cuda_hook(const struct fake_hooks *h) {
	if (h) hooks = *h;
	else memset(&hooks, 0, sizeof hooks);
}

/* --- around a call --- */

struct around {
	struct fake_call call;
	uint64_t own;
	CUresult result;
	uint32_t id;
};

static void enter(struct around *a, uint32_t id, const char *function, const void *parameters) {
	memset(a, 0, sizeof *a);
	a->id = id;
	a->call.function = function;
	a->call.parameters = parameters;
	a->call.result = &a->result;
	a->call.context = context();
	a->call.context_uid = context()->uid;
	a->call.own = &a->own;
	a->call.correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
	if (hooks.call) hooks.call(id, &a->call);
}

static CUresult leave(struct around *a, CUresult result) {
	a->result = result;
	a->call.site = 1;
	if (hooks.call) hooks.call(a->id, &a->call);
	return result;
}

/* --- blocks --- */

static struct block *find(uint64_t address, int kind) {
	for (int i = block_count - 1; i >= 0; i--)
		if (blocks[i].address == address && blocks[i].kind && (!kind || blocks[i].kind == kind)) return &blocks[i];
	return NULL;
}

static struct block *new_block(int kind, int device, uint64_t bytes, uint64_t address) {
	struct block *b = NULL;
	for (int i = block_count - 1; i >= 0 && !b && !address; i--)
		if (!blocks[i].kind && blocks[i].bytes == bytes) b = &blocks[i];
	if (!b && block_count == BLOCKS_MAX)
		for (int i = 0; i < BLOCKS_MAX && !b; i++)
			if (!blocks[i].kind) b = &blocks[i], b->address = 0;
	if (!b) {
		if (block_count == BLOCKS_MAX) abort();
		b = &blocks[block_count++];
		b->address = 0;
	}
	if (address) b->address = address;
	if (!b->address) {
		b->address = next_address;
		next_address += (bytes + 511) / 512 * 512 + 512;
	}
	b->bytes = bytes;
	b->kind = kind;
	b->device = device;
	b->pool = NULL;
	b->context = NULL;
	b->physical = 0;
	return b;
}

static bool pool_grows(struct fake_pool *pool, uint64_t bytes) {
	uint64_t size = (pool->used + bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
	if (size <= pool->size || pool->device < 0) return true;
	if (used_bytes[pool->device] + size - pool->size > device_bytes) return false;
	used_bytes[pool->device] += size - pool->size;
	pool->size = size;
	usleep(100); /* that takes the driver longer than to hand out what it has */
	return true;
}

/* Memory of a device, or 0. */
static uint64_t take(int kind, int device, uint64_t bytes, struct fake_pool *pool, const char *heap, const char *name) {
	uint64_t address = 0;
	pthread_mutex_lock(&lock);
	if (pool ? pool_grows(pool, bytes) : kind == 3 || used_bytes[device] + bytes <= device_bytes) {
		struct block *b = new_block(kind, device, bytes, 0);
		address = b->address;
		b->pool = pool;
		b->context = pool ? NULL : context();
		if (pool) pool->used += bytes;
		else if (kind != 3) used_bytes[device] += bytes;
		say("alloc %s %llx %llu %s\n", heap, (unsigned long long)address, (unsigned long long)bytes, name);
	}
	pthread_mutex_unlock(&lock);
	return address;
}

static CUresult give(uint64_t address, int kind, struct block *was, const char *name) {
	pthread_mutex_lock(&lock);
	struct block *b = find(address, kind);
	if (b) {
		*was = *b;
		if (b->pool) b->pool->used -= b->bytes;
		else if (b->kind != 3 && b->kind != 7) used_bytes[b->device] -= b->bytes;
		b->kind = 0;
		say("free %llx %s\n", (unsigned long long)address, name);
	}
	pthread_mutex_unlock(&lock);
	return b ? 0 : INVALID;
}

static struct fake_pool *new_pool(int type, const int *location);

static const char *heap_name(const char *name, int device) {
	static __thread char text[32];
	snprintf(text, sizeof text, "%s%d", name, device);
	return text;
}

#include "fake_graphs.h"

static CUresult alloc(uint32_t id, const char *name, const char *heap, int kind, CUdeviceptr *address, size_t bytes, const void *parameters,
		      struct fake_pool *pool, int device) {
	struct around a;
	enter(&a, id, name, parameters);
	CUresult result = bytes ? 0 : INVALID;
	if (!result && !(*address = take(kind, device, bytes, pool, heap, name))) result = OOM;
	if (result) say("refused %s %llu %d %llu %s\n", heap, (unsigned long long)bytes, result, (unsigned long long)(device_bytes - used_bytes[device]), name);
	return leave(&a, result);
}

static CUresult release(uint32_t id, const char *name, CUdeviceptr address, int kind, const void *parameters) {
	struct around a;
	struct block b;
	enter(&a, id, name, parameters);
	if (graph_free(address, name)) return leave(&a, 0);
	CUresult result = address ? give(address, kind, &b, name) : 0;
	if (!result && getenv("FAKE_CUDA_BROKEN")) { /* it was not given back */
		pthread_mutex_lock(&lock);
		new_block(b.kind, b.device, b.bytes, address);
		used_bytes[b.device] += b.bytes;
		say("alloc %s %llx %llu cuMemAlloc\n", heap_name("cuda:", b.device), (unsigned long long)address, (unsigned long long)b.bytes);
		pthread_mutex_unlock(&lock);
		result = 700;
	}
	return leave(&a, result);
}

/* --- the driver --- */

static void leaving(void) {
	if (hooks.left) hooks.left();
}

CUresult cuInit(unsigned flags) {
	const char *path = getenv("CUDA_INJECTION64_PATH"), *log = getenv("FAKE_CUDA_LOG");
	if (flags) return INVALID;
	if (initialized++) return 0;
	if (getenv("FAKE_CUDA_CORRELATION")) last_correlation = (uint32_t)strtoul(getenv("FAKE_CUDA_CORRELATION"), NULL, 10);
	if (getenv("FAKE_CUDA_DEVICES")) device_count = atoi(getenv("FAKE_CUDA_DEVICES"));
	if (getenv("FAKE_CUDA_BYTES")) device_bytes = strtoull(getenv("FAKE_CUDA_BYTES"), NULL, 10);
	char *order = getenv("CUDA_VISIBLE_DEVICES");
	for (device_count = order ? 0 : device_count; order && *order && device_count < DEVICES_MAX; order += *order == ',')
		visible[device_count++] = (int)strtol(order, &order, 10);
	if (log) log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	for (int i = 0; i < device_count; i++) {
		pools[i].device = i;
		current_pools[i] = &pools[i];
		snprintf(pools[i].name, sizeof pools[i].name, "cuda-pool:%d", i);
	}
	pool_count = device_count;
	atexit(leaving);
	void *tool = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*initialize)(void);
	void *function = tool ? dlsym(tool, "InitializeInjection") : NULL;
	memcpy(&initialize, &function, sizeof initialize);
	if (initialize) initialize();
	return 0;
}

CUresult cuDeviceGet(CUdevice *device, int number);
CUresult cuCtxSynchronize(void);
CUresult cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option);

CUresult cuDeviceGet(CUdevice *device, int number) {
	*device = number;
	return number < device_count ? 0 : 101;
}

/* A handle that is given up may be the next one's, before the call that gave it up has returned. */
static void *_Atomic again;

static void give_up(void *handle) {
	if (!getenv("FAKE_CUDA_AGAIN")) return;
	again = handle;
	while (again) usleep(1000);
}

int fake_cuda_gives_up(void) {
	return again != NULL;
}

static CUcontext new_context(CUdevice device) {
	CUcontext c = __atomic_exchange_n(&again, NULL, __ATOMIC_SEQ_CST);
	if (!c) c = calloc(1, sizeof *c);
	c->device = device;
	c->uid = __atomic_add_fetch(&last_context, 1, __ATOMIC_RELAXED);
	return c;
}

static CUcontext primaries[DEVICES_MAX];
static int retained[DEVICES_MAX];

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice device) {
	struct { CUcontext *c; CUdevice device; } p = { c, device };
	struct around a;
	enter(&a, 386, "cuDevicePrimaryCtxRetain", &p);
	if (device >= device_count) return leave(&a, OOM); /* as a device that others have filled */
	if (!primaries[device]) primaries[device] = new_context(device);
	retained[device]++;
	*c = primaries[device];
	return leave(&a, 0);
}

static void end_blocks_of(CUcontext c, const char *name) {
	pthread_mutex_lock(&lock);
	for (int i = 0; c && i < block_count; i++) {
		struct block *b = &blocks[i];
		if (!b->kind || b->context != c) continue;
		if (b->kind != 3 && b->kind != 7) used_bytes[b->device] -= b->bytes;
		b->kind = 0;
		say("free %llx %s\n", (unsigned long long)b->address, name);
	}
	pthread_mutex_unlock(&lock);
}

CUresult cuCtxDestroy_v2(CUcontext c) {
	struct { CUcontext c; } p = { c };
	struct around a;
	enter(&a, 322, "cuCtxDestroy_v2", &p);
	end_blocks_of(c, "cuCtxDestroy");
	give_up(c);
	return leave(&a, 0);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
	struct { CUdevice device; } p = { device };
	struct around a;
	enter(&a, 545, "cuDevicePrimaryCtxReset_v2", &p);
	end_blocks_of(primaries[device], "cuDevicePrimaryCtxReset");
	return leave(&a, 0);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	struct { CUdevice device; } p = { device };
	struct around a;
	enter(&a, 544, "cuDevicePrimaryCtxRelease_v2", &p);
	if (!--retained[device]) end_blocks_of(primaries[device], "cuDevicePrimaryCtxRelease");
	return leave(&a, 0);
}

#ifndef WITHOUT_cuDevicePrimaryCtxGetState
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
	*flags = 0;
	*active = retained[device] > 0;
	return 0;
}
#endif

CUresult cuCtxSynchronize(void) {
	return 0;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) {
	(void)properties;
	(void)option;
	*bytes = 2u << 20;
	return 0;
}

CUresult cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice device) {
	struct { CUcontext *c; unsigned flags; CUdevice device; } p = { c, flags, device };
	struct around a;
	enter(&a, 235, "cuCtxCreate_v2", &p);
	*c = new_context(device);
	current = *c;
	return leave(&a, 0);
}

CUresult cuCtxSetCurrent(CUcontext c) {
	current = c;
	return 0;
}

#ifndef WITHOUT_cuCtxGetDevice
CUresult cuCtxGetDevice(CUdevice *device) {
	*device = context()->device;
	return 0;
}
#endif

CUresult cuDeviceGetCount(int *count) {
	*count = device_count;
	return 0;
}

#ifndef WITHOUT_cuDeviceGetName
CUresult cuDeviceGetName(char *name, int n, CUdevice device) {
	snprintf(name, (size_t)n, "Fake GPU %d", visible[device]);
	return 0;
}
#endif

#ifndef WITHOUT_cuDeviceGetUuid_v2
CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device) {
	memset(uuid, 0x10 + visible[device], 16);
	return 0;
}
#endif

#ifndef WITHOUT_cuDeviceTotalMem_v2
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
	(void)device;
	*bytes = device_bytes;
	return 0;
}
#endif

#ifndef WITHOUT_cuMemGetInfo_v2
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
	*free_bytes = device_bytes - used_bytes[context()->device];
	*total_bytes = device_bytes;
	return 0;
}
#endif

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
	struct { CUdeviceptr *address; size_t bytes; } p = { address, bytes };
	return alloc(243, "cuMemAlloc", heap_name("cuda:", context()->device), 1, address, bytes, &p, NULL, context()->device);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
	struct { CUdeviceptr *address; size_t *pitch, width, height; unsigned element; } p = { address, pitch, width, height, element };
	*pitch = (width + 511) / 512 * 512;
	return alloc(244, "cuMemAllocPitch", heap_name("cuda:", context()->device), 1, address, *pitch * height, &p, NULL, context()->device);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
	struct { CUdeviceptr address; } p = { address };
	return release(245, "cuMemFree", address, 0, &p);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
	struct { CUdeviceptr *address; size_t bytes; unsigned flags; } p = { address, bytes, flags };
	return alloc(371, "cuMemAllocManaged", "cuda-managed", 2, address, bytes, &p, NULL, context()->device);
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
	struct { void **address; size_t bytes; unsigned flags; } p = { address, bytes, flags };
	return alloc(271, "cuMemHostAlloc", "cuda-host", 3, (CUdeviceptr *)(void *)address, bytes, &p, NULL, context()->device);
}

CUresult cuMemAllocHost_v2(void **address, size_t bytes) {
	struct { void **address; size_t bytes; } p = { address, bytes };
	return alloc(294, "cuMemHostAlloc", "cuda-host", 3, (CUdeviceptr *)(void *)address, bytes, &p, NULL, context()->device);
}

CUresult cuMemFreeHost(void *address) {
	struct { void *address; } p = { address };
	return release(38, "cuMemFreeHost", (uintptr_t)address, 3, &p);
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
	struct { void *address; size_t bytes; unsigned flags; } p = { address, bytes, flags };
	struct around a;
	enter(&a, 379, "cuMemHostRegister_v2", &p);
	say("alloc cuda-host-registered %llx %llu cuMemHostRegister\n", (unsigned long long)(uintptr_t)address, (unsigned long long)bytes);
	return leave(&a, 0);
}

CUresult cuMemHostUnregister(void *address) {
	struct { void *address; } p = { address };
	struct around a;
	enter(&a, 302, "cuMemHostUnregister", &p);
	say("free %llx cuMemHostUnregister\n", (unsigned long long)(uintptr_t)address);
	return leave(&a, 0);
}

/* --- virtual memory --- */

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr where, unsigned long long flags) {
	struct { CUdeviceptr *address; size_t bytes, alignment; CUdeviceptr where; unsigned long long flags; } p = { address, bytes, alignment, where, flags };
	struct around a;
	enter(&a, 547, "cuMemAddressReserve", &p);
	pthread_mutex_lock(&lock);
	*address = next_address = (next_address + (2u << 20) - 1) / (2u << 20) * (2u << 20);
	next_address += bytes;
	pthread_mutex_unlock(&lock);
	say("alloc %s %llx %llu cuMemAddressReserve\n", heap_name("cuda-va:", context()->device), (unsigned long long)*address, (unsigned long long)bytes);
	return leave(&a, 0);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
	struct { CUdeviceptr address; size_t bytes; } p = { address, bytes };
	struct around a;
	enter(&a, 548, "cuMemAddressFree", &p);
	say("free %llx cuMemAddressFree\n", (unsigned long long)address);
	return leave(&a, 0);
}

CUresult cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, unsigned long long flags) {
	struct { uint64_t *handle; size_t bytes; const void *properties; unsigned long long flags; } p = { handle, bytes, properties, flags };
	struct around a;
	int device = ((const int *)properties)[3];
	CUresult result = 0;
	enter(&a, 549, "cuMemCreate", &p);
	pthread_mutex_lock(&lock);
	if (used_bytes[device] + bytes > device_bytes) {
		result = OOM;
	} else {
		used_bytes[device] += bytes;
		*handle = ++physical_count;
		physicals[*handle] = (struct physical){ .bytes = bytes, .device = device, .handles = 1 };
	}
	pthread_mutex_unlock(&lock);
	if (result) say("refused %s %llu %d %llu cuMemCreate\n", heap_name("cuda:", device), (unsigned long long)bytes, result,
			(unsigned long long)(device_bytes - used_bytes[context()->device]));
	else say("alloc %s p%llu %llu cuMemCreate\n", heap_name("cuda:", device), (unsigned long long)*handle, (unsigned long long)bytes);
	return leave(&a, result);
}

static void physical_changes(uint64_t number, int handles, int mappings) {
	struct physical *x = &physicals[number];
	x->handles += handles;
	x->mappings += mappings;
	if (x->handles || x->mappings) return;
	used_bytes[x->device] -= x->bytes;
	say("free p%llu cuMemRelease\n", (unsigned long long)number);
}

CUresult cuMemRelease(uint64_t handle) {
	struct { uint64_t handle; } p = { handle };
	struct around a;
	enter(&a, 550, "cuMemRelease", &p);
	pthread_mutex_lock(&lock);
	physical_changes(handle, -1, 0);
	pthread_mutex_unlock(&lock);
	return leave(&a, 0);
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
	struct { CUdeviceptr address; size_t bytes, offset; uint64_t handle; unsigned long long flags; } p = { address, bytes, offset, handle, flags };
	struct around a;
	enter(&a, 551, "cuMemMap", &p);
	pthread_mutex_lock(&lock);
	physical_changes(handle, 0, 1);
	new_block(6, physicals[handle].device, bytes, address)->physical = handle;
	pthread_mutex_unlock(&lock);
	say("alloc %s %llx %llu cuMemMap\n", heap_name("cuda-map:", context()->device), (unsigned long long)address, (unsigned long long)bytes);
	return leave(&a, 0);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
	struct { CUdeviceptr address; size_t bytes; } p = { address, bytes };
	struct around a;
	enter(&a, 552, "cuMemUnmap", &p);
	pthread_mutex_lock(&lock);
	for (uint64_t at = address; at < address + bytes;) {
		struct block *b = find(at, 6);
		if (!b) break;
		say("free %llx cuMemUnmap\n", (unsigned long long)at);
		at += b->bytes;
		b->kind = 0;
		b->bytes = 0;
		physical_changes(b->physical, 0, -1);
	}
	pthread_mutex_unlock(&lock);
	return leave(&a, 0);
}

CUresult cuMemRetainAllocationHandle(uint64_t *handle, void *address) {
	struct { uint64_t *handle; void *address; } p = { handle, address };
	struct around a;
	enter(&a, 565, "cuMemRetainAllocationHandle", &p);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < block_count; i++) /* any address of the mapping */
		if (blocks[i].kind == 6 && (uintptr_t)address - blocks[i].address < blocks[i].bytes) *handle = blocks[i].physical;
	physical_changes(*handle, 1, 0);
	pthread_mutex_unlock(&lock);
	return leave(&a, 0);
}

/* --- pools --- */

CUresult cuDeviceGetMemPool(void **pool, CUdevice device) {
	*pool = current_pools[device];
	return 0;
}

CUresult cuDeviceGetDefaultMemPool(void **pool, CUdevice device) {
	*pool = &pools[device];
	return 0;
}

/* A node of the graph that is captured. */
static CUresult capture_alloc(uint32_t id, const char *name, CUdeviceptr *address, size_t bytes, const void *call) {
	struct around a;
	char parameters[128] = { 0 };
	memcpy(parameters + 104, &bytes, sizeof bytes);
	enter(&a, id, name, call);
	graph_alloc(parameters, name);
	memcpy(address, parameters + 112, sizeof *address);
	return leave(&a, 0);
}

static CUresult alloc_async(uint32_t id, CUdeviceptr *address, size_t bytes, void *stream) {
	struct { CUdeviceptr *address; size_t bytes; void *stream; } p = { address, bytes, stream };
	int device = context()->device;
	if (is_capturing(stream || id == 598 ? stream : FAKE_PER_THREAD)) return capture_alloc(id, "cuMemAllocAsync", address, bytes, &p);
	return alloc(id, "cuMemAllocAsync", current_pools[device]->name, 4, address, bytes, &p, current_pools[device], device);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, void *stream) {
	return alloc_async(598, address, bytes, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, void *stream) {
	return alloc_async(599, address, bytes, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, void *stream) {
	struct { CUdeviceptr address; void *stream; } p = { address, stream };
	return release(600, "cuMemFreeAsync", address, 0, &p);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, void *pool, void *stream) {
	struct { CUdeviceptr *address; size_t bytes; void *pool, *stream; } p = { address, bytes, pool, stream };
	struct fake_pool *x = pool;
	if (is_capturing(stream)) return capture_alloc(611, "cuMemAllocFromPoolAsync", address, bytes, &p);
	return alloc(611, "cuMemAllocFromPoolAsync", x->name, 4, address, bytes, &p, x, x->device < 0 ? 0 : x->device);
}

CUresult cuMemPoolCreate(void **pool, const void *properties) {
	struct { void **pool; const void *properties; } p = { pool, properties };
	struct around a;
	enter(&a, 607, "cuMemPoolCreate", &p);
	*pool = new_pool(((const int *)properties)[0], (const int *)properties + 2);
	return leave(&a, 0);
}

CUresult cuMemPoolDestroy(void *pool) {
	struct { void *pool; } p = { pool };
	struct around a;
	enter(&a, 608, "cuMemPoolDestroy", &p);
	for (int i = 0; i < device_count; i++)
		if (current_pools[i] == pool) current_pools[i] = &pools[i];
	give_up(pool);
	return leave(&a, 0);
}

CUresult cuMemPoolTrimTo(void *pool, size_t keep) {
	struct { void *pool; size_t keep; } p = { pool, keep };
	struct fake_pool *x = pool;
	struct around a;
	enter(&a, 602, "cuMemPoolTrimTo", &p);
	pthread_mutex_lock(&lock);
	uint64_t size = x->used > keep ? x->used : keep;
	if (size < x->size) {
		used_bytes[x->device] -= x->size - size;
		x->size = size;
	}
	pthread_mutex_unlock(&lock);
	say("trim %d %llu %llu\n", x->device, (unsigned long long)x->used, (unsigned long long)x->size);
	return leave(&a, 0);
}

#ifndef WITHOUT_cuMemPoolGetAttribute
CUresult cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
	const struct fake_pool *x = pool;
	uint64_t number = attribute == 5 ? x->size : x->used;
	say("asked pool %d\n", attribute);
	memcpy(value, &number, sizeof number);
	return attribute == 5 || attribute == 7 ? 0 : INVALID;
}
#endif

CUresult cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
	struct { void *pool; int attribute; void *value; } p = { pool, attribute, value };
	struct around a;
	enter(&a, 603, "cuMemPoolSetAttribute", &p);
	return leave(&a, 0);
}

/* --- arrays, other processes, graphs --- */

CUresult cuArrayCreate_v2(void **array, const void *descriptor) {
	struct { void **array; const void *descriptor; } p = { array, descriptor };
	const size_t *sides = descriptor;
	const int *format = (const int *)(sides + 2);
	struct around a;
	enter(&a, 272, "cuArrayCreate_v2", &p);
	*array = malloc(16);
	say("alloc %s a%llx %llu cuArrayCreate\n", heap_name("cuda:", context()->device), (unsigned long long)(uintptr_t)*array,
	    (unsigned long long)(sides[0] * (sides[1] ? sides[1] : 1) * 4 * (size_t)format[1]));
	return leave(&a, 0);
}

CUresult cuArrayDestroy(void *array) {
	struct { void *array; } p = { array };
	struct around a;
	enter(&a, 89, "cuArrayDestroy", &p);
	say("free a%llx cuArrayDestroy\n", (unsigned long long)(uintptr_t)array);
	free(array);
	return leave(&a, 0);
}

/* One address for one handle, however often it is opened. */
static int times_open;
static uint64_t ipc_bytes; /* in these handles: how long the other process' memory is */

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct fake_ipc handle, unsigned flags) {
	struct { CUdeviceptr *address; struct fake_ipc handle; unsigned flags; } p = { address, handle, flags };
	struct around a;
	memcpy(&ipc_bytes, handle.bytes + 8, sizeof ipc_bytes);
	enter(&a, 567, "cuIpcOpenMemHandle_v2", &p);
	*address = 0x7e0000000000;
	if (!times_open++)
		say("alloc %s %llx %llu cuIpcOpenMemHandle\n", heap_name("cuda-ipc:", context()->device), (unsigned long long)*address,
		    (unsigned long long)ipc_bytes);
	return leave(&a, 0);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
	struct { CUdeviceptr address; } p = { address };
	struct around a;
	enter(&a, 330, "cuIpcCloseMemHandle", &p);
	if (times_open && !--times_open) say("free %llx cuIpcCloseMemHandle\n", (unsigned long long)address);
	return leave(&a, 0);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, void *stream) {
	struct { CUdeviceptr address; size_t bytes; CUdevice device; void *stream; } p = { address, bytes, device, stream };
	struct around a;
	enter(&a, 467, "cuMemPrefetchAsync", &p);
	return leave(&a, 0);
}

/* --- work --- */

/* A kernel is a string "name,8,4,8": the bytes of its parameters. */
static CUresult parameter_of(void *function, size_t index, size_t *offset, size_t *bytes) {
	const char *at = function;
	for (size_t i = 0; at && i <= index; i++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	if (!at) return INVALID;
	*offset = 0;
	*bytes = strtoul(at, NULL, 10);
	return 0;
}

/* As the driver: a kernel's module is loaded when the kernel is first asked for or launched, and half of what that takes stays. */
static void load_lazily(const char *function) {
	static void *blocks[300];
	if (strncmp(function, "lazy", 4) || blocks[0]) return;
	for (size_t i = 0; i < 300; i++) blocks[i] = malloc(1000 + i);
	for (size_t i = 1; i < 300; i += 2) free(blocks[i]);
	say("loaded %s\n", function);
}

#ifndef WITHOUT_cuFuncGetParamInfo
CUresult cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
	load_lazily(function);
	if (strncmp(function, "untold", 6) == 0) return 999;
	return *(const char *)function == '@' ? 400 : parameter_of(function, index, offset, bytes);
}
#endif

static void work(const struct around *a, int kind, int copy_kind, uint64_t bytes, const char *name) {
	struct fake_work w = { kind, copy_kind, context()->device, a->call.correlation, 7, bytes, now_ns(), 0, name };
	w.end = w.start + 1000 + bytes;
	say("work %d %d %d %llu %u %s\n", kind, copy_kind, w.device, (unsigned long long)bytes, w.correlation, name ? name : "-");
	if (hooks.work) hooks.work(&w);
}

/* CUPTI has a record of it all the same. */
static CUresult refuse_work(struct around *a, const char *name) {
	struct fake_work w = { 10, 0, context()->device, a->call.correlation, 7, 0, 0, 0, name };
	if (hooks.work) hooks.work(&w);
	return leave(a, OOM);
}

CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
			void **parameters, void **extra) {
	struct {
		void *function;
		unsigned gx, gy, gz, bx, by, bz, shared;
		void *stream, **parameters, **extra;
	} p = { function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra };
	struct around a;
	enter(&a, 307, "cuLaunchKernel", &p);
	load_lazily(function);
	if (strncmp(function, "huge", 4) == 0) return refuse_work(&a, function); /* wants more local memory than there is */
	work(&a, 10, 0, 0, function);
	return leave(&a, 0);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
	struct { CUdeviceptr to; const void *from; size_t bytes; } p = { to, from, bytes };
	struct around a;
	enter(&a, 276, "cuMemcpyHtoD_v2", &p);
	work(&a, 1, 1, bytes, NULL);
	return leave(&a, 0);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
	struct { void *to; CUdeviceptr from; size_t bytes; } p = { to, from, bytes };
	struct around a;
	enter(&a, 278, "cuMemcpyDtoH_v2", &p);
	work(&a, 1, 2, bytes, NULL);
	return leave(&a, 0);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
	struct { CUdeviceptr to, from; size_t bytes; } p = { to, from, bytes };
	struct around a;
	enter(&a, 280, "cuMemcpyDtoD_v2", &p);
	work(&a, 1, 8, bytes, NULL);
	return leave(&a, 0);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
	struct {
		CUdeviceptr to;
		CUcontext to_context;
		CUdeviceptr from;
		CUcontext from_context;
		size_t bytes;
	} p = { to, to_context, from, from_context, bytes };
	struct around a;
	enter(&a, 318, "cuMemcpyPeer", &p);
	work(&a, 22, 10, bytes, NULL);
	return leave(&a, 0);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
	struct { CUdeviceptr to; unsigned char value; size_t bytes; } p = { to, value, bytes };
	struct around a;
	enter(&a, 249, "cuMemsetD8_v2", &p);
	work(&a, 2, 0, bytes, NULL);
	return leave(&a, 0);
}

#include "fake_shapes.h"
