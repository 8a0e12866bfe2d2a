/* fake_shapes.h - the part of fake_cuda.c that has copies which are described, words that streams write, memory and pools of other places and processes, and
 * mipmapped arrays; it stands at the end of that file.
 */

static CUresult plain_work(uint32_t id, const char *function, const void *parameters, int kind, int copy_kind, uint64_t bytes) {
	struct around a;
	enter(&a, id, function, parameters);
	if (kind) work(&a, kind, copy_kind, bytes, NULL);
	return leave(&a, 0);
}

CUresult cuMemcpy2D_v2(const void *copy) {
	struct { const void *copy; } p = { copy };
	return plain_work(287, "cuMemcpy2D_v2", &p, 1, 8, 64);
}

CUresult cuMemcpy3D_v2(const void *copy) {
	struct { const void *copy; } p = { copy };
	return plain_work(290, "cuMemcpy3D_v2", &p, 1, 8, 64);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count,
			    size_t *failed, void *stream) {
	struct { CUdeviceptr *to, *from; size_t *sizes, count; void *attributes; size_t *indices, attribute_count, *failed; void *stream; } p = {
		to, from, sizes, count, attributes, indices, attribute_count, failed, stream };
	return plain_work(776, "cuMemcpyBatchAsync", &p, 1, 8, sizes[0]);
}

CUresult cuMemcpy3DBatchAsync(size_t count, void *copies, size_t *failed, unsigned long long flags, void *stream) {
	struct { size_t count; void *copies; size_t *failed; unsigned long long flags; void *stream; } p = { count, copies, failed, flags, stream };
	return plain_work(778, "cuMemcpy3DBatchAsync", &p, 1, 8, 64);
}

CUresult cuMemcpyDtoA_v2(void *array, size_t offset, CUdeviceptr from, size_t bytes) {
	struct { void *array; size_t offset; CUdeviceptr from; size_t bytes; } p = { array, offset, from, bytes };
	return plain_work(285, "cuMemcpyDtoA_v2", &p, 1, 7, bytes);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, void *array, size_t offset, size_t bytes) {
	struct { CUdeviceptr to; void *array; size_t offset, bytes; } p = { to, array, offset, bytes };
	return plain_work(284, "cuMemcpyAtoD_v2", &p, 1, 6, bytes);
}

CUresult cuStreamWriteValue32_v2(void *stream, CUdeviceptr address, uint32_t value, unsigned flags) {
	struct { void *stream; CUdeviceptr address; uint32_t value; unsigned flags; } p = { stream, address, value, flags };
	return plain_work(663, "cuStreamWriteValue32_v2", &p, 0, 0, 0);
}

CUresult cuStreamBatchMemOp_v2(void *stream, unsigned count, void *values, unsigned flags) {
	struct { void *stream; unsigned count; void *values; unsigned flags; } p = { stream, count, values, flags };
	return plain_work(667, "cuStreamBatchMemOp_v2", &p, 0, 0, 0);
}

CUresult cuModuleUnload(void *module) {
	struct { void *module; } p = { module };
	struct around a;
	enter(&a, 22, "cuModuleUnload", &p);
	return leave(&a, 0);
}

CUresult cuLaunchGrid(void *function, int width, int height) {
	struct { void *function; int width, height; } p = { function, width, height };
	struct around a;
	enter(&a, 116, "cuLaunchGrid", &p);
	work(&a, 10, 0, 0, function);
	return leave(&a, 0);
}

CUresult cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
	struct { const void *config; void *function, **parameters, **extra; } p = { config, function, parameters, extra };
	struct around a;
	enter(&a, 652, "cuLaunchKernelEx", &p);
	work(&a, 10, 0, 0, function);
	return leave(&a, 0);
}

/* A kernel whose string begins with '@' belongs to a library: asked for as a function, it is none. */
CUresult cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *bytes) {
	return parameter_of(kernel, index, offset, bytes);
}

/* --- pools of places --- */

static struct fake_pool *new_pool(int type, const int *location) {
	static int made;
	struct fake_pool *x = __atomic_exchange_n(&again, NULL, __ATOMIC_SEQ_CST);
	if (!x) x = &pools[pool_count++];
	memset(x, 0, sizeof *x);
	x->device = location[0] >= 2 && location[0] <= 4 ? -1 : location[1];
	if (type == 2) snprintf(x->name, sizeof x->name, "cuda-managed");
	else if (x->device < 0) snprintf(x->name, sizeof x->name, "cuda-host");
	else snprintf(x->name, sizeof x->name, "cuda-pool:%d#%d", x->device, ++made);
	if (type == 2) x->device = -1;
	return x;
}

CUresult cuMemGetDefaultMemPool(void **pool, const int *location, int type) {
	static struct fake_pool *of_host, *of_managed;
	struct { void **pool; const int *location; int type; } p = { pool, location, type };
	struct around a;
	enter(&a, 801, "cuMemGetDefaultMemPool", &p);
	if (location[0] == 1 && type == 1) *pool = &pools[location[1]];
	else if (type == 2) *pool = of_managed = of_managed ? of_managed : new_pool(type, location);
	else *pool = of_host = of_host ? of_host : new_pool(type, location);
	return leave(&a, 0);
}

CUresult cuMemSetMemPool(const int *location, int type, void *pool) {
	struct { const int *location; int type; void *pool; } p = { location, type, pool };
	struct around a;
	enter(&a, 803, "cuMemSetMemPool", &p);
	if (location[0] == 1 && type == 1) current_pools[location[1]] = pool;
	return leave(&a, 0);
}

/* --- memory of others --- */

static CUresult import(uint32_t id, const char *function, const void *parameters, CUdeviceptr *address, size_t bytes) {
	struct around a;
	enter(&a, id, function, parameters);
	pthread_mutex_lock(&lock);
	struct block *b = new_block(7, context()->device, bytes, 0);
	b->context = context();
	*address = b->address;
	say("alloc %s %llx %llu %s\n", heap_name("cuda-ipc:", b->device), (unsigned long long)b->address, (unsigned long long)bytes, function);
	pthread_mutex_unlock(&lock);
	return leave(&a, 0);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, void *pool, const void *data) {
	struct { CUdeviceptr *address; void *pool; const void *data; } p = { address, pool, data };
	return import(616, "cuMemPoolImportPointer", &p, address, 3 << 20);
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, void *memory, const void *place) {
	struct { CUdeviceptr *address; void *memory; const void *place; } p = { address, memory, place };
	return import(486, "cuExternalMemoryGetMappedBuffer", &p, address, ((const size_t *)place)[1]);
}

#ifndef WITHOUT_cuMemGetAddressRange_v2
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
	const struct block *b = find(address, 0);
	*base = address;
	*bytes = b ? b->bytes : times_open && address == 0x7e0000000000 ? ipc_bytes : 0;
	return *bytes ? 0 : INVALID;
}
#endif

/* --- mipmapped arrays: each level has half of the sides of the one before, at least 1, but for layers; 4 bytes a channel, normalized 1 or 2 --- */

CUresult cuMipmappedArrayCreate(void **array, const void *descriptor, unsigned levels) {
	struct { void **array; const void *descriptor; unsigned levels; } p = { array, descriptor, levels };
	const size_t *sides = descriptor;
	const unsigned *format = (const unsigned *)(sides + 3);
	unsigned long long bytes = 0;
	struct around a;
	enter(&a, 347, "cuMipmappedArrayCreate", &p);
	for (unsigned i = 0; i < levels; i++) {
		unsigned long long elements = 1;
		for (int k = 0; k < (format[2] ? 2 : 3); k++) elements *= sides[k] >> i > 1 ? sides[k] >> i : 1;
		bytes += elements * (format[0] < 0xc0 ? 4 : (format[0] - 0xc0) / 3 % 2 + 1) * format[1] * (format[2] ? sides[2] : 1);
	}
	*array = malloc(16);
	say("alloc %s a%llx %llu cuMipmappedArrayCreate\n", heap_name("cuda:", context()->device), (unsigned long long)(uintptr_t)*array, bytes);
	return leave(&a, 0);
}

CUresult cuMipmappedArrayDestroy(void *array) {
	struct { void *array; } p = { array };
	struct around a;
	enter(&a, 349, "cuMipmappedArrayDestroy", &p);
	say("free a%llx cuMipmappedArrayDestroy\n", (unsigned long long)(uintptr_t)array);
	free(array);
	return leave(&a, 0);
}

/* Of a process that others may open: nothing is kept. */
CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr address) {
	const struct block *b = find(address, 0);
	memset(handle, 0, 64);
	memcpy(handle, &address, sizeof address);
	if (b) memcpy((char *)handle + 8, &b->bytes, sizeof b->bytes);
	return b ? 0 : INVALID;
}
