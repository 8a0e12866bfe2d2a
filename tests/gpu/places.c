/* places.c - what is odd about memory and its uses, over the double of the CUDA driver: places SCENARIO. Blocks are told apart by their sizes. */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*mark)(const char *);

static CUdeviceptr block(size_t bytes) {
	CUdeviceptr p = 0;
	cuMemAlloc_v2(&p, bytes);
	return p;
}

static void put(void *at, size_t offset, uint64_t value) {
	memcpy((char *)at + offset, &value, sizeof value);
}

#define KERNEL(n) ((void *)(n))

/* Every way in which work names memory: each block is named once, by one of them; that of 9999 bytes by none. Kinds of memory: 1 host, 2 device, 3 array. */
static void uses(void) {
	uint64_t copy[24] = { 0 }, batch[2][14] = { { 0 } }, values[3][6] = { { 0 } }, many[110], number = 7;
	size_t sizes[2] = { 8, 8 }, packed_bytes = 24;
	CUdeviceptr to[2] = { block(1400), block(1410) }, from[2] = { block(1500), block(1510) }, managed, fill = 5;
	char long_name[600] = "many_parameters", *at = long_name + strlen(long_name);
	void *parameters[100], *array;
	struct { size_t width, height; int format; unsigned channels; } descriptor = { 8, 8, 0x20, 1 };
	block(9999);
	cuArrayCreate_v2(&array, &descriptor);
	put(copy, 16, 2), put(copy, 32, block(1000)), put(copy, 72, 2), put(copy, 88, block(1100));
	cuMemcpy2D_v2(copy);
	memset(copy, 0, sizeof copy);
	put(copy, 32, 2), put(copy, 48, block(1200)), put(copy, 120, 4), put(copy, 136, block(1300));
	cuMemcpy3D_v2(copy);
	put(copy, 32, 3), put(copy, 120, 3); /* arrays: what the other fields say is not looked at */
	cuMemcpy3D_v2(copy);
	cuMemcpyBatchAsync(to, from, sizes, 2, NULL, NULL, 0, NULL, NULL);
	put(batch[0], 0, 1), put(batch[0], 8, block(1600)), put(batch[0], 40, 1), put(batch[0], 48, block(1700));
	put(batch[1], 0, 2), put(batch[1], 8, block(9998)), put(batch[1], 40, 1), put(batch[1], 48, block(1710)); /* its first end is an array */
	cuMemcpy3DBatchAsync(2, batch, NULL, 0, NULL);
	cuMemcpyDtoA_v2(array, 0, block(2100) + 16, 8);
	cuMemcpyAtoD_v2(block(2200), array, 0, 8);
	cuStreamWriteValue32_v2(NULL, block(2300), 1, 0);
	put(values[0], 0, 1), put(values[0], 8, block(2400)), put(values[1], 0, 6), put(values[2], 0, 8), put(values[2], 16, block(2410));
	cuStreamBatchMemOp_v2(NULL, 3, values, 0);
	cuMemAllocManaged(&managed, 2500, 1);
	cuMemcpyHtoD_v2(block(2510), (void *)(uintptr_t)managed, 8);
	uint64_t packed[3] = { 1, block(1800), 2 };
	void *extra[] = { (void *)1, packed, (void *)2, &packed_bytes, NULL };
	cuLaunchKernel(KERNEL("packed,8,8,8"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
	packed[1] = block(1810);
	cuLaunchKernelEx(NULL, KERNEL("packed,8,8,8"), NULL, extra);
	for (int i = 0; i < 100; i++) {
		at += snprintf(at, 8, ",8");
		parameters[i] = &fill;
	}
	CUdeviceptr last = block(1900);
	parameters[99] = &last;
	cuLaunchKernel(KERNEL(long_name), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	for (int i = 0; i < 110; i++) many[i] = block(3000 + (size_t)i);
	parameters[0] = many;
	parameters[1] = &number;
	cuLaunchKernel(KERNEL("all_at_once,880,8"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	last = block(1910);
	parameters[0] = &last;
	cuLaunchKernel(KERNEL("@of_a_library,8"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

/* One kernel whose parameters nobody tells of, beside one that tells all. */
static void untold(const char *how) {
	CUdeviceptr p = block(1000), q = block(2000);
	void *parameters[] = { &p };
	cuLaunchKernel(KERNEL("told,8"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	parameters[0] = &q;
	if (!strcmp(how, "kernel")) cuLaunchKernel(KERNEL("untold,8"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	if (!strcmp(how, "grid")) cuLaunchGrid(KERNEL("old,8"), 1, 1);
}

/* Pools of host and of managed memory, those that a place has from the beginning, and one that is a device's until it is destroyed. */
static void pools(void) {
	int device[22] = { 1, 0, 1, 0 }, host[22] = { 1, 0, 2, 0 }, node[22] = { 1, 0, 3, 1 }, managed[22] = { 2, 0, 1, 0 };
	const int *const places[] = { device, host, node, managed };
	CUdeviceptr p;
	void *pool[6];
	for (int i = 0; i < 4; i++) {
		cuMemPoolCreate(&pool[i], places[i]);
		cuMemAllocFromPoolAsync(&p, 1000 + (size_t)i, pool[i], NULL);
		if (i != 1) cuMemFreeAsync(p, NULL);
	}
	cuMemGetDefaultMemPool(&pool[4], host + 2, 1);
	cuMemAllocFromPoolAsync(&p, 2000, pool[4], NULL);
	cuMemGetDefaultMemPool(&pool[5], device + 2, 2);
	cuMemAllocFromPoolAsync(&p, 2100, pool[5], NULL);
	cuMemGetDefaultMemPool(&pool[5], device + 2, 1);
	cuMemAllocFromPoolAsync(&p, 2200, pool[5], NULL);
	cuMemSetMemPool(device + 2, 1, pool[0]);
	cuMemAllocAsync(&p, 3000, NULL);
	cuMemPoolDestroy(pool[0]);
	cuMemAllocAsync(&p, 3100, NULL);
}

/* Memory of other processes and interfaces, and a mipmapped array. */
static void imports(void) {
	uint64_t place[10] = { 4096, 5 << 20 };
	struct { size_t sides[3]; int format; unsigned channels, flags; } descriptor = { { 64, 32, 0 }, 0x20, 4, 0 };
	CUdeviceptr p, q;
	void *array;
	cuMemPoolImportPointer(&p, NULL, NULL);
	cuExternalMemoryGetMappedBuffer(&q, NULL, place);
	cuMemFreeAsync(p, NULL);
	cuMemFree_v2(q);
	cuMemPoolImportPointer(&p, NULL, NULL);
	cuMipmappedArrayCreate(&array, &descriptor, 4); /* (64 * 32 + 32 * 16 + 16 * 8 + 8 * 4) elements of 16 bytes */
	cuMipmappedArrayDestroy(array);
}

/* Mipmapped arrays of normalized formats: of 5 layers, of 6 faces, and a deep one. */
static void arrays(void) {
	struct { size_t sides[3]; int format; unsigned channels, flags; } descriptor = { { 64, 32, 5 }, 0xc2, 4, 1 };
	void *array;
	cuMipmappedArrayCreate(&array, &descriptor, 3);
	descriptor.sides[2] = 6, descriptor.format = 0xc9, descriptor.channels = 1, descriptor.flags = 4;
	cuMipmappedArrayCreate(&array, &descriptor, 2);
	descriptor.sides[2] = 4, descriptor.format = 0xc7, descriptor.channels = 2, descriptor.flags = 0;
	cuMipmappedArrayCreate(&array, &descriptor, 2);
}

static void *busy(void *nothing) {
	void *parameters[] = { &nothing };
	for (;;) {
		CUdeviceptr p = block(512);
		cuLaunchKernel(KERNEL("busy,8"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
		cuMemFree_v2(p);
	}
	return NULL;
}

/* Eight threads call the driver while the process leaves. */
static void crowd(const char *how) {
	pthread_t thread;
	for (int i = 0; i < 8; i++) pthread_create(&thread, NULL, busy, NULL);
	usleep(100000);
	if (!strcmp(how, "exit")) exit(7);
	if (!strcmp(how, "_exit")) _exit(8);
	if (!strcmp(how, "abort")) abort();
	raise(SIGTERM);
}

/* A context that is gone is still a thread's current one. */
static void gone(void) {
	CUcontext first, second;
	cuCtxCreate_v2(&first, 0, 0);
	block(1000);
	cuCtxCreate_v2(&second, 0, 1);
	cuCtxDestroy_v2(first);
	cuCtxSetCurrent(NULL);
	CUdeviceptr p = block(2000);
	cuMemFree_v2(p);
	cuCtxDestroy_v2(first); /* a second time */
}

/* A handle is retained by an address inside of its mapping: its memory lives until that is released, too. */
static void inside(void) {
	int properties[22] = { 1, 0, 1, 0 };
	uint64_t handles[2], again;
	CUdeviceptr at;
	cuMemAddressReserve(&at, 6u << 20, 0, 0, 0);
	cuMemCreate(&handles[0], 2u << 20, properties, 0);
	cuMemCreate(&handles[1], 4u << 20, properties, 0);
	cuMemMap(at, 2u << 20, 0, handles[0], 0);
	cuMemMap(at + (2u << 20), 4u << 20, 0, handles[1], 0);
	cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + (5u << 20)));
	cuMemRelease(handles[0]);
	cuMemRelease(handles[1]);
	cuMemUnmap(at, 6u << 20);
	if (mark) mark("unmapped");
	cuMemRelease(again);
	cuMemAddressFree(at, 6u << 20);
}

static void *destroy_pool(void *pool) {
	cuMemPoolDestroy(pool);
	return NULL;
}

static void *destroy_context(void *context) {
	cuCtxDestroy_v2(context);
	return NULL;
}

/* A pool and a context that get the handles of others, whose ends have not been told yet. */
static void again(void) {
	int first[22] = { 1, 0, 1, 0 }, second[22] = { 1, 0, 1, 1 };
	CUcontext own, one, two, primary;
	CUdeviceptr p;
	pthread_t thread;
	void *pool;
	cuMemPoolCreate(&pool, first);
	pthread_create(&thread, NULL, destroy_pool, pool);
	while (!fake_cuda_gives_up()) usleep(1000);
	cuMemPoolCreate(&pool, second);
	pthread_join(thread, NULL);
	cuMemAllocFromPoolAsync(&p, 1000, pool, NULL);
	cuCtxCreate_v2(&own, 0, 0);
	cuCtxCreate_v2(&one, 0, 0);
	block(2000);
	cuCtxSetCurrent(own);
	pthread_create(&thread, NULL, destroy_context, one);
	while (!fake_cuda_gives_up()) usleep(1000);
	cuCtxCreate_v2(&two, 0, 1);
	pthread_join(thread, NULL);
	block(3000);
	cuDevicePrimaryCtxRetain(&primary, 0);
	cuDevicePrimaryCtxReset_v2(0);
	if (pool == NULL || one != two) abort();
}

/* A kernel with the handle of one whose module was unloaded. It has a parameter less: what stands behind its only one is not for it. */
static void kernels(void) {
	char handle[16] = "kernel,8,8";
	CUdeviceptr p = block(1000), q = block(2000), r = block(3000);
	void *two[] = { &p, &q }, *one[] = { &r, (void *)8 };
	for (int i = 0; i < 2; i++) cuLaunchKernel(KERNEL(handle), 1, 1, 1, 1, 1, 1, 0, NULL, two, NULL);
	cuModuleUnload(handle);
	strcpy(handle, "kernel,8");
	for (int i = 0; i < 2; i++) cuLaunchKernel(KERNEL(handle), 1, 1, 1, 1, 1, 1, 0, NULL, one, NULL);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
	void *function = dlsym(RTLD_DEFAULT, "tidemark_api_mark_v1");
	memcpy(&mark, &function, sizeof mark);
	if (cuInit(0)) return 1;
	if (!strcmp(what, "uses")) uses();
	else if (!strcmp(what, "untold")) untold(how);
	else if (!strcmp(what, "pools")) pools();
	else if (!strcmp(what, "imports")) imports();
	else if (!strcmp(what, "crowd")) crowd(how);
	else if (!strcmp(what, "gone")) gone();
	else if (!strcmp(what, "inside")) inside();
	else if (!strcmp(what, "arrays")) arrays();
	else if (!strcmp(what, "again")) again();
	else if (!strcmp(what, "kernels")) kernels();
	else return 1;
	puts("done");
	return 0;
}
