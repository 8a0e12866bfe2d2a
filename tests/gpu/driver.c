/* driver.c - drives the double of the CUDA driver: driver SCENARIO...; each does what its name says. Exit status 0, if the scenario does not end otherwise. */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)

static CUcontext contexts[8];
static void (*mark)(const char *), (*push)(const char *), (*pop)(void);

static void use_device(int device) {
	if (!contexts[device]) cuCtxCreate_v2(&contexts[device], 0, device);
	cuCtxSetCurrent(contexts[device]);
}

static void find(void *place, const char *name) {
	void *function = dlsym(RTLD_DEFAULT, name);
	memcpy(place, &function, sizeof function);
}

static int location[22] = { 1, 0, 1, 0 }; /* CUmemAllocationProp and CUmemPoolProps: place at 8, its number at 12 */

__attribute__((noinline)) static CUdeviceptr load_weights(size_t bytes) {
	CUdeviceptr p = 0;
	cuMemAlloc_v2(&p, bytes);
	return p;
}

/* Every way to get and return memory, one after another, on two devices. */
static void every_way(void) {
	CUdeviceptr p, q, reserved, async[3];
	uint64_t handles[2], again;
	void *host, *host2, *pool, *own, *array;
	size_t pitch;
	static char registered[8192], node[136];
	static struct fake_ipc ipc;
	struct { size_t width, height; int format; unsigned channels; } descriptor = { 64, 16, 0x20, 4 };
	for (int device = 0; device < 2; device++) {
		use_device(device);
		location[3] = device;
		p = load_weights(3 * MIB);
		cuMemAllocPitch_v2(&q, &pitch, 100, 10, 4);
		cuMemFree_v2(p);
		cuMemFree_v2(q);
		cuMemFree_v2(0);
		cuMemAllocManaged(&p, 2 * MIB, 1);
		cuMemHostAlloc(&host, 4096, 0);
		cuMemAllocHost_v2(&host2, 8192);
		cuMemHostRegister_v2(registered, sizeof registered, 0);
		cuMemFree_v2(p);
		cuMemFreeHost(host);
		cuMemHostUnregister(registered);
		cuMemFreeHost(host2);
		cuMemAddressReserve(&reserved, 8 * MIB, 0, 0, 0);
		cuMemCreate(&handles[0], 2 * MIB, location, 0);
		cuMemCreate(&handles[1], 4 * MIB, location, 0);
		cuMemMap(reserved, 2 * MIB, 0, handles[0], 0);
		cuMemMap(reserved + 2 * MIB, 4 * MIB, 0, handles[1], 0);
		cuMemRelease(handles[0]); /* lives on in its mapping */
		cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)reserved);
		cuMemUnmap(reserved, 6 * MIB); /* ends the second's mapping only: the first was retained */
		cuMemRelease(again);
		cuMemRelease(handles[1]);
		cuMemAddressFree(reserved, 8 * MIB);
		for (int i = 0; i < 3; i++) cuMemAllocAsync(&async[i], (size_t)(i + 1) * 1000, NULL);
		cuMemFreeAsync(async[0], NULL);
		cuMemFreeAsync(async[1], NULL);
		cuDeviceGetDefaultMemPool(&pool, device);
		cuMemPoolTrimTo(pool, 0);
		cuMemFreeAsync(async[2], NULL);
		cuMemPoolCreate(&own, location);
		cuMemAllocFromPoolAsync(&p, 5000, own, NULL);
		cuMemFree_v2(p);
		cuMemPoolDestroy(own);
		cuArrayCreate_v2(&array, &descriptor);
		cuArrayDestroy(array);
		cuIpcOpenMemHandle_v2(&p, ipc, 0);
		cuIpcCloseMemHandle(p);
		size_t bytes = 12345;
		memcpy(node + 104, &bytes, sizeof bytes);
		cuGraphAddMemAllocNode(NULL, NULL, NULL, 0, node);
		memcpy(&p, node + 112, sizeof p);
		cuGraphAddMemFreeNode(NULL, NULL, NULL, 0, p);
	}
}

/* Contexts that end with memory of theirs, while that of pools, of cuMemCreate and of other contexts stays; what is given back twice, or is nobody's. */
static void contexts_end(void) {
	CUcontext one, two, primary;
	CUdeviceptr p, kept, async;
	uint64_t handle;
	void *host;
	cuCtxCreate_v2(&one, 0, 0);
	for (int i = 0; i < 5; i++) load_weights(1000);
	cuMemHostAlloc(&host, 4096, 0);
	cuMemAllocAsync(&async, 700, NULL);
	cuMemCreate(&handle, 2 * MIB, location, 0);
	cuCtxCreate_v2(&two, 0, 0);
	kept = load_weights(2000);
	cuMemFree_v2(0x12345);
	cuCtxDestroy_v2(one);
	p = load_weights(1000); /* at an address that has just ended */
	cuMemFree_v2(p);
	cuMemFree_v2(p);
	cuDevicePrimaryCtxRetain(&primary, 0);
	cuCtxSetCurrent(primary);
	for (int i = 0; i < 3; i++) load_weights(3000);
	cuDevicePrimaryCtxReset_v2(0);
	cuMemFree_v2(kept);
	cuMemFreeAsync(async, NULL);
}

static void out_of_memory(void) {
	CUdeviceptr p, q = load_weights(64 * MIB);
	uint64_t handle;
	if (push) push("too much");
	if (cuMemAlloc_v2(&p, 2048 * MIB) != 2) abort();
	if (cuMemAllocAsync(&p, 4096 * MIB, NULL) != 2) abort();
	if (cuMemCreate(&handle, 8192 * MIB, location, 0) != 2) abort();
	if (cuMemAlloc_v2(&p, 0) != 1) abort(); /* a wrong argument is no lack of memory */
	if (pop) pop();
	cuMemFree_v2(q);
}

static void work(void) {
	CUdeviceptr a = load_weights(MIB), b = load_weights(MIB), inside = b + 64;
	uint32_t small = 7;
	uint64_t number = 1;
	static char host[MIB];
	void *parameters[] = { &a, &small, &inside, &number };
	if (push) push("forward");
	cuMemcpyHtoD_v2(a, host, 4096);
	cuLaunchKernel((void *)"add_kernel,8,4,8,8", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	if (pop) pop();
	cuMemcpyDtoD_v2(b, a, 8192);
	cuMemsetD8_v2(b, 0, 100);
	cuMemcpyPeer(b, NULL, a, NULL, 300);
	for (int i = 0; i < 3; i++) cuLaunchKernel((void *)"add_kernel,8,4,8,8", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	cuMemcpyDtoH_v2(host, b, 50);
	cuMemFree_v2(a);
	cuMemFree_v2(b);
}

/* Opened twice by one process, closed twice; the second close ends it, a third one is nobody's. */
static void ipc(void) {
	struct fake_ipc handle = { { 0 } };
	CUdeviceptr p, q;
	cuIpcOpenMemHandle_v2(&p, handle, 0);
	cuIpcOpenMemHandle_v2(&q, handle, 0);
	cuIpcCloseMemHandle(p);
	if (mark) mark("closed once");
	cuIpcCloseMemHandle(q);
	cuIpcCloseMemHandle(q);
}

/* Retained twice: the first release leaves its memory, the last one takes it along. Another device's stays. */
static void primary(void) {
	CUcontext one, other;
	cuDevicePrimaryCtxRetain(&one, 0);
	cuDevicePrimaryCtxRetain(&one, 0);
	cuDevicePrimaryCtxRetain(&other, 1);
	cuCtxSetCurrent(other);
	load_weights(700);
	cuCtxSetCurrent(one);
	for (int i = 0; i < 3; i++) load_weights(1000);
	cuDevicePrimaryCtxRelease_v2(0);
	if (mark) mark("released once");
	cuDevicePrimaryCtxRelease_v2(0);
	if (mark) mark("released");
	cuCtxSetCurrent(contexts[0]);
}

/* Nodes by each of three functions and by capture; launched twice; one given back by a node, one by cuMemFreeAsync, one by cuMemFree, one never. */
static void graphs(void) {
	static char parameters[136], node[256];
	CUdeviceptr p[4], plain, other;
	void *graph, *pool;
	size_t bytes = 3 * MIB;
	int kind = 10;
	memcpy(parameters + 104, &bytes, sizeof bytes);
	cuGraphAddMemAllocNode(NULL, NULL, NULL, 0, parameters);
	memcpy(&p[0], parameters + 112, sizeof p[0]);
	for (int i = 1; i < 3; i++) {
		memcpy(node, &kind, sizeof kind);
		bytes = (size_t)i * MIB;
		memcpy(node + 16 + 104, &bytes, sizeof bytes);
		if (i == 1) cuGraphAddNode(NULL, NULL, NULL, 0, node);
		else cuGraphAddNode_v2(NULL, NULL, NULL, NULL, 0, node);
		memcpy(&p[i], node + 16 + 112, sizeof p[i]);
	}
	cuMemAllocAsync(&p[3], 5000, FAKE_CAPTURING);
	cuMemAllocAsync(&plain, 6000, NULL);
	cuStreamBeginCapture_v2(FAKE_PER_THREAD, 1);
	cuMemAllocAsync_ptsz(&other, 7000, NULL);
	cuStreamEndCapture(FAKE_PER_THREAD, &graph);
	cuGraphDestroy(graph);
	cuMemAllocAsync_ptsz(&other, 8000, NULL);
	cuDeviceGetDefaultMemPool(&pool, 0);
	cuMemAllocFromPoolAsync(&other, 9000, pool, FAKE_CAPTURING);
	kind = 11;
	memcpy(node, &kind, sizeof kind);
	memcpy(node + 16, &p[0], sizeof p[0]);
	cuGraphAddNode(NULL, NULL, NULL, 0, node);
	kind = 0; /* a kernel: no memory of its own */
	memcpy(node, &kind, sizeof kind);
	cuGraphAddNode(NULL, NULL, NULL, 0, node);
	if (push) push("replay");
	cuGraphLaunch(NULL, NULL);
	if (pop) pop();
	if (mark) mark("launched");
	cuMemFreeAsync(p[1], NULL);
	cuMemFree_v2(p[2]);
	cuGraphLaunch(NULL, NULL);
	if (mark) mark("launched again");
	cuDeviceGraphMemTrim(0);
	cuMemFreeAsync(plain, NULL);
}

static void *free_elsewhere(void *address) {
	use_device(1);
	cuMemFreeAsync((CUdeviceptr)(uintptr_t)address, (void *)0x20);
	return NULL;
}

/* Stream-ordered blocks that are given back on another stream, by another thread with another device, and by cuMemFree. */
static void streams(void) {
	CUdeviceptr p[3];
	pthread_t thread;
	for (int i = 0; i < 3; i++) cuMemAllocAsync(&p[i], 1000 * (size_t)(i + 1), (void *)0x10);
	cuMemFreeAsync(p[0], (void *)0x20);
	pthread_create(&thread, NULL, free_elsewhere, (void *)(uintptr_t)p[1]);
	pthread_join(thread, NULL);
	cuMemFree_v2(p[2]);
}

/* A stream that is made where one was destroyed has its handle, and is another. */
static void streams_again(void) {
	CUdeviceptr p[4];
	for (int i = 0; i < 4; i++) {
		if (i % 2 == 0 && i) cuStreamDestroy_v2((void *)0x10);
		cuMemAllocAsync(&p[i], 1000 * (size_t)(i + 1), (void *)0x10);
	}
}

/* The pool keeps what was given back, so there is no room; once it is trimmed there is. Then what launches and contexts want for themselves. */
static void refused_and_again(void) {
	CUdeviceptr p[4], q;
	CUcontext c;
	void *pool;
	for (int i = 0; i < 4; i++) cuMemAllocAsync(&p[i], 128 * MIB, NULL);
	for (int i = 1; i < 4; i++) cuMemFreeAsync(p[i], NULL);
	cuDeviceGetDefaultMemPool(&pool, 0);
	if (cuMemAlloc_v2(&q, 768 * MIB) != 2) abort();
	cuMemPoolTrimTo(pool, 0);
	if (cuMemAlloc_v2(&q, 768 * MIB) != 0) abort();
	cuMemFreeAsync(p[0], NULL);
	if (cuLaunchKernel((void *)"huge_kernel,8", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 2) abort();
	if (cuDevicePrimaryCtxRetain(&c, 5) != 2) abort();
	cuMemFree_v2(q);
}

/* An address of one stream and of another in turn, and then a plain block there. */
static void take_turns(void) {
	CUdeviceptr p;
	for (int i = 0; i < 100; i++) {
		cuMemAllocAsync(&p, 4096, (void *)(uintptr_t)(10 + i % 2));
		cuMemFreeAsync(p, NULL);
	}
	load_weights(4096);
}

/* A pool that grows three times, then hands out what it has, and then gets all back, with pauses. */
static void growing_pool(void) {
	CUdeviceptr p, kept[3];
	for (int i = 0; i < 3; i++) cuMemAllocAsync(&kept[i], 3 * MIB, NULL);
	for (int i = 0; i < 2000; i++) {
		cuMemAllocAsync(&p, 1000, NULL);
		cuMemFreeAsync(p, NULL);
	}
	for (int i = 0; i < 3; i++) {
		usleep(10000);
		cuMemFreeAsync(kept[i], NULL);
	}
	load_weights(1000);
}

/* Asked for in advance, it is neither used nor given back. */
static void managed(void) {
	CUdeviceptr p;
	void *parameters[] = { &p };
	cuMemAllocManaged(&p, 2 * MIB, 1);
	cuMemPrefetchAsync(p, 2 * MIB, 1, NULL);
	cuLaunchKernel((void *)"reads,8", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	cuMemPrefetchAsync(p, 2 * MIB, -1, NULL);
	cuMemFree_v2(p);
}

/* A kernel whose module the driver loads when it is first asked about it. */
static void lazy_module(void) {
	CUdeviceptr p = load_weights(1000);
	void *parameters[] = { &p };
	for (int i = 0; i < 2; i++) cuLaunchKernel((void *)"lazy,8", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void name_of_any_length(void) {
	static char name[6000];
	memset(name, 'n', sizeof name - 1);
	cuLaunchKernel(name, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	cuLaunchKernel((void *)"\xff\xfe", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void *churn(void *number) {
	int me = (int)(intptr_t)number;
	CUdeviceptr kept[64] = { 0 };
	unsigned random = 12345u + (unsigned)me;
	use_device(me % 2);
	for (int i = 0; i < 5000; i++) {
		random = random * 1103515245u + 12345u;
		unsigned slot = random >> 16 & 63;
		if (kept[slot]) {
			cuMemFree_v2(kept[slot]);
			kept[slot] = 0;
		} else {
			cuMemAlloc_v2(&kept[slot], 512 + (random >> 22) * 8);
		}
	}
	for (int i = 0; i < 64; i += 2)
		if (kept[i]) cuMemFree_v2(kept[i]);
	return NULL;
}

static void threads(void) {
	pthread_t all[4];
	use_device(0);
	use_device(1);
	for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, churn, (void *)(intptr_t)i);
	for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
}

/* Children of a process whose threads are in the middle of calls. They do what a child must not, and leave. */
static void forks(void) {
	pthread_t all[3];
	use_device(0);
	use_device(1);
	for (int i = 0; i < 3; i++) pthread_create(&all[i], NULL, churn, (void *)(intptr_t)i);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		int ended = -1;
		if (!child) {
			alarm(60); /* it hangs: the parent sees that */
			cuMemPoolDestroy(NULL); /* takes no lock of the double's, but tells the tool */
			exit(0);
		}
		if (waitpid(child, &ended, 0) != child || ended) abort();
	}
	for (int i = 0; i < 3; i++) pthread_join(all[i], NULL);
}

/* For counting instructions: pairs at a depth of thirty calls, and launches of a kernel with two blocks among its parameters. */
__attribute__((noinline)) static int deep_pairs(int depth, int count) {
	CUdeviceptr p;
	if (depth) return deep_pairs(depth - 1, count) + 1;
	for (int i = 0; i < count; i++) {
		cuMemAlloc_v2(&p, 512);
		cuMemFree_v2(p);
	}
	return 0;
}

static void *volatile kept;

/* Host memory and a device's from the same thread at depths that go up and down: its size says at which. */
__attribute__((noinline)) static int deeper(int depth, int size, int kind) {
	CUdeviceptr p;
	if (depth) return deeper(depth - 1, size, kind) + 1;
	if (kind == 0) kept = malloc((size_t)size);
	else if (kind == 1) cuMemAlloc_v2(&p, (size_t)size);
	else if (cuMemAlloc_v2(&p, (size_t)size << 30) != 2) abort();
	return 0;
}

static void mixed(void) {
	unsigned random = 1;
	for (int i = 0; i < 400; i++) {
		random = random * 1103515245u + 12345u;
		deeper((int)(random >> 16) % 40, 100000 + (int)(random >> 16) % 40, (int)(random >> 24) % 3);
	}
	if (!kept) abort();
}

static void launches(int count) {
	CUdeviceptr a = load_weights(MIB), b = load_weights(MIB);
	uint32_t small = 7;
	void *parameters[] = { &a, &small, &b, &small };
	for (int i = 0; i < count; i++) cuLaunchKernel((void *)"add_kernel,8,4,8,4", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void many(void) {
	CUdeviceptr p;
	for (int i = 0; i < 1000000; i++) {
		cuMemAlloc_v2(&p, 512);
		cuMemFree_v2(p);
	}
}

/* As torch.profiler does it: through the symbols that this program sees. */
static void profiler(void) {
	int (*subscribe)(void **, void (*)(void *, int, uint32_t, const struct fake_call *), void *);
	void *handle = NULL;
	load_weights(100);
	find(&subscribe, "cuptiSubscribe");
	printf("profiler: %d\n", subscribe ? subscribe(&handle, NULL, NULL) : -1);
	load_weights(200);
}

static int traced;

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most) {
	static uint8_t room[1 << 16] __attribute__((aligned(8)));
	*buffer = memset(room, 0xff, sizeof room); /* which it is CUPTI's to empty */
	*size = sizeof room;
	*most = 0;
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
	(void)context, (void)stream, (void)buffer, (void)size;
	traced += valid > 0;
}

/* A tool that never subscribes and only wants records, as NVIDIA's first example: kinds, then buffers. With `clock` it begins by bringing one. */
static uint64_t clock_of_its_own(void) {
	return 42;
}

static void begin_trace(bool clock) {
	int (*enable)(int), (*buffers)(void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
	int (*stamps)(uint64_t (*)(void));
	find(&enable, "cuptiActivityEnable");
	find(&buffers, "cuptiActivityRegisterCallbacks");
	find(&stamps, "cuptiActivityRegisterTimestampCallback");
	int a = clock ? stamps(clock_of_its_own) : 0, b = enable(10), c = buffers(give_buffer, take_buffer);
	printf("begin: %d %d %d\n", a, b, c);
}

static void end_trace(void) {
	int (*flush)(uint32_t), (*stamp)(uint64_t *);
	struct timespec now;
	uint64_t ns = 0;
	find(&flush, "cuptiActivityFlushAll");
	find(&stamp, "cuptiGetTimestamp");
	cuLaunchKernel((void *)"tick,8", 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &ns }, NULL);
	flush(1);
	stamp(&ns);
	clock_gettime(CLOCK_REALTIME, &now);
	printf("traced: %s, by %s clock\n", traced ? "kernels" : "nothing",
	       ns == 42 ? "its own" : ns / 1000000000 + 1 - (uint64_t)now.tv_sec < 3 ? "the system's" : "some other");
}

/* Long enough to be looked at from outside. */
static void wait_a_little(void) {
	for (int device = 1; device >= 0; device--) {
		use_device(device);
		load_weights(1000);
	}
	usleep(800000);
}

static void *exit_elsewhere(void *nothing) {
	(void)nothing;
	exit(5);
}

/* Half a second lies between two launches: long, for a clock that runs at another rate. */
static void slowly(void) {
	CUdeviceptr p = load_weights(100);
	void *parameters[] = { &p };
	for (int i = 0; i < 3; i++) {
		cuLaunchKernel((void *)"tick,8", 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
		usleep(i < 2 ? 500000 : 0);
	}
}

/* In a handler of exit() that was there before the driver, so comes when all of the driver's and CUPTI's have run. */
static void leave_late(void) {
	usleep(1200000);
	load_weights(3000);
}

static int leave_by(const char *how) {
	CUdeviceptr p = load_weights(1000);
	cuLaunchKernel((void *)"leaves,8", 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &p }, NULL);
	fflush(stdout);
	if (!strcmp(how, "_exit")) _exit(3);
	if (!strcmp(how, "quick_exit")) quick_exit(4);
	if (!strcmp(how, "term")) raise(SIGTERM);
	if (!strcmp(how, "fault")) raise(SIGSEGV);
	if (!strcmp(how, "thread")) {
		pthread_t thread;
		pthread_create(&thread, NULL, exit_elsewhere, NULL);
		pause();
	}
	if (!strcmp(how, "abort")) abort();
	if (!strcmp(how, "kill")) {
		usleep(1200000);
		load_weights(2000);
		kill(getpid(), SIGKILL);
	}
	if (!strcmp(how, "exec")) execlp("true", "true", NULL);
	if (!strcmp(how, "fork")) {
		pid_t child = fork();
		int ended = -1;
		if (!child) {
			usleep(1200000); /* records would be fetched now */
			cuLaunchKernel((void *)"in a child", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
			exit(0);
		}
		if (waitpid(child, &ended, 0) != child || ended) abort();
		load_weights(2000);
	}
	return 0;
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	find(&mark, "tidemark_api_mark_v1");
	find(&push, "tidemark_api_scope_push_v1");
	find(&pop, "tidemark_api_scope_pop_v1");
	int count = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(what, "none")) return 0;
	bool traces = !strncmp(what, "trace-", 6), brings_clock = strstr(what, "clock") != NULL;
	if (traces && strstr(what, "early")) begin_trace(brings_clock);
	if (!strcmp(what, "late")) atexit(leave_late);
	if (cuInit(0)) return 1;
	use_device(0);
	if (traces) load_weights(100);
	if (traces && !strstr(what, "early")) begin_trace(brings_clock);
	if (!strcmp(what, "every-way")) every_way();
	else if (!strcmp(what, "out-of-memory")) out_of_memory();
	else if (!strcmp(what, "contexts")) contexts_end();
	else if (!strcmp(what, "work")) work();
	else if (!strcmp(what, "threads")) threads();
	else if (!strcmp(what, "forks")) forks();
	else if (!strcmp(what, "ipc")) ipc();
	else if (!strcmp(what, "slowly")) slowly();
	else if (!strcmp(what, "primary")) primary();
	else if (!strcmp(what, "graphs")) graphs();
	else if (!strcmp(what, "streams")) streams();
	else if (!strcmp(what, "streams-again")) streams_again();
	else if (!strcmp(what, "refused-and-again")) refused_and_again();
	else if (!strcmp(what, "managed")) managed();
	else if (!strcmp(what, "turns")) take_turns();
	else if (!strcmp(what, "growing-pool")) growing_pool();
	else if (!strcmp(what, "lazy")) lazy_module();
	else if (!strcmp(what, "names")) name_of_any_length();
	else if (!strcmp(what, "many")) many();
	else if (!strcmp(what, "mixed")) mixed();
	else if (!strcmp(what, "pairs")) deep_pairs(30, count);
	else if (!strcmp(what, "launches")) launches(count);
	else if (!strcmp(what, "profiler")) profiler();
	else if (traces) end_trace();
	else if (!strcmp(what, "wait")) wait_a_little();
	else return leave_by(what);
	if (mark) mark("done");
	puts("done");
	return 0;
}
