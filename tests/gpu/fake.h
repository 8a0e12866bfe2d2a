/* fake.h - what the doubles of libcuda, libcupti and libnvidia-ml share: the ABI as NVIDIA publishes it, written down a second time.
 *
 * Flow:     a test program -> libcuda.so.1 (fake_cuda.c) -> the hook, if libcupti.so (fake_cupti.c) set one -> whoever subscribed
 * Truth:    libcuda writes what it really did, a line each, to FAKE_CUDA_LOG; the tests compare a recording with that.
 * Settings: FAKE_CUDA_DEVICES (2), FAKE_CUDA_BYTES (bytes of each, 1 GiB), FAKE_CUPTI_VERSION, FAKE_CUPTI_BUSY (1: another tool has subscribed),
 *           FAKE_CUPTI_NEWER (1: than the driver, which it cannot use),
 *           FAKE_CUPTI_FULL (bytes with which a buffer counts as full, and is soon given back; 0: never, but at its end),
 *           FAKE_CUPTI_OLD (1: the shortest records of 11.2), FAKE_CUPTI_LONG (bytes that each record is longer than known), FAKE_CUPTI_DROPPED (records said
 *           to be dropped), FAKE_CUPTI_ODD (1: kinds that nobody knows between the others), FAKE_CUPTI_CLOCK (refuses the timestamp callback; realtime: stamps
 *           with that clock; drift: with one of another year that runs three times as fast), FAKE_CUPTI_LATE (1: gives no buffer back before exit(), and
 *           then after the subscriber's own handlers), FAKE_CUDA_CORRELATION (the number before the first call), FAKE_CUDA_BROKEN (1: what is freed stays),
 *           FAKE_CUDA_AGAIN (1: a pool or context that is destroyed waits until another thread has made one with its handle),
 *           FAKE_CUPTI_REFUSES (names of its functions, each of which answers 7), FAKE_CUPTI_REFUSES_KIND and _ID (a kind of records, a function of the
 *           driver that it does not know), FAKE_CUPTI_CUT (1: the last record of a buffer is cut, 2: no record has an end), FAKE_CUPTI_EMPTY (1: gives
 *           buffers back without a record, and some that are none), FAKE_CUPTI_UNTIMED and _REVERSED (a kind of work: of it the records have no start, or end
 *           before it), FAKE_NVML_MIG (1: the devices are parts of others). CUDA_VISIBLE_DEVICES=1,0 gives the
 *           devices other numbers, as NVIDIA's does.
 */
#ifndef TESTS_GPU_FAKE_H
#define TESTS_GPU_FAKE_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t CUdeviceptr;
typedef int CUresult, CUdevice;
typedef struct fake_context *CUcontext;
#define FAKE_CAPTURING ((void *)0x1234) /* a stream whose work goes into a graph */
#define FAKE_PER_THREAD ((void *)2)    /* what NULL is to functions that end on _ptsz; here all threads have the same */

struct fake_ipc { char bytes[64]; }; /* CUipcMemHandle: passed by value */

struct fake_call { /* CUpti_CallbackData */
	int site;
	const char *function;
	const void *parameters;
	void *result;
	const char *symbol;
	CUcontext context;
	uint32_t context_uid;
	uint64_t *own;
	uint32_t correlation;
};

/* What libcuda tells libcupti: around each call, and the work that a launch, copy or set puts on the device. */
struct fake_work {
	int kind; /* 1 memcpy, 2 memset, 10 kernel, 22 peer copy */
	int copy_kind, device;
	uint32_t correlation, stream;
	uint64_t bytes, start, end; /* 0: it was refused, and never ran */
	const char *name;
};
struct fake_hooks {
	void (*call)(uint32_t id, struct fake_call *call);
	void (*work)(const struct fake_work *work);
	void (*left)(void);
};
void fake_cuda_hook(const struct fake_hooks *hooks);
int fake_cuda_device(CUcontext context);
int fake_cuda_streams_gone(void); /* of those of any name */
int fake_cuda_gives_up(void); /* a handle, which the next pool or context has */

CUresult cuInit(unsigned flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int n, CUdevice device);
CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUresult cuMemAllocHost_v2(void **address, size_t bytes);
CUresult cuMemFreeHost(void *address);
CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void *address);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr where, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, unsigned long long flags);
CUresult cuMemRelease(uint64_t handle);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult cuMemRetainAllocationHandle(uint64_t *handle, void *address);
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, void *stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, void *stream);
CUresult cuMemFreeAsync(CUdeviceptr address, void *stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, void *pool, void *stream);
CUresult cuMemPoolCreate(void **pool, const void *properties);
CUresult cuMemPoolDestroy(void *pool);
CUresult cuMemPoolTrimTo(void *pool, size_t keep);
CUresult cuMemPoolGetAttribute(void *pool, int attribute, void *value);
CUresult cuMemPoolSetAttribute(void *pool, int attribute, void *value);
CUresult cuDeviceGetMemPool(void **pool, CUdevice device);
CUresult cuDeviceGetDefaultMemPool(void **pool, CUdevice device);
CUresult cuArrayCreate_v2(void **array, const void *descriptor);
CUresult cuArrayDestroy(void *array);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct fake_ipc handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr address);
CUresult cuGraphAddNode(void **node, void *graph, const void *dependencies, size_t count, void *parameters);
CUresult cuGraphAddNode_v2(void **node, void *graph, const void *dependencies, const void *edges, size_t count, void *parameters);
CUresult cuDeviceGraphMemTrim(CUdevice device);
CUresult cuGraphCreate(void **graph, unsigned flags);
CUresult cuGraphInstantiateWithFlags(void **runs, void *graph, unsigned long long flags);
CUresult cuGraphExecDestroy(void *runs);
CUresult cuStreamCreate(void **stream, unsigned flags);
CUresult cuStreamBeginCapture_v2(void *stream, int mode);
CUresult cuStreamEndCapture(void *stream, void **graph);
CUresult cuStreamDestroy_v2(void *stream);
CUresult cuGraphDestroy(void *graph);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value);
CUresult cuStreamIsCapturing(void *stream, int *status);
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, void *stream);
CUresult cuGraphLaunch(void *graph, void *stream);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuGraphAddMemAllocNode(void **node, void *graph, const void *dependencies, size_t count, void *parameters);
CUresult cuGraphAddMemFreeNode(void **node, void *graph, const void *dependencies, size_t count, CUdeviceptr address);
CUresult cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
			void **parameters, void **extra);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes);
CUresult cuModuleUnload(void *module);
CUresult cuLaunchGrid(void *function, int width, int height);
CUresult cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra);
CUresult cuMemcpy2D_v2(const void *copy);
CUresult cuMemcpy3D_v2(const void *copy);
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count,
			    size_t *failed, void *stream);
CUresult cuMemcpy3DBatchAsync(size_t count, void *copies, size_t *failed, unsigned long long flags, void *stream);
CUresult cuMemcpyDtoA_v2(void *array, size_t offset, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, void *array, size_t offset, size_t bytes);
CUresult cuStreamWriteValue32_v2(void *stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamBatchMemOp_v2(void *stream, unsigned count, void *values, unsigned flags);
CUresult cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *bytes);
CUresult cuMemGetDefaultMemPool(void **pool, const int *location, int type);
CUresult cuMemSetMemPool(const int *location, int type, void *pool);
CUresult cuMemPoolImportPointer(CUdeviceptr *address, void *pool, const void *data);
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, void *memory, const void *place);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CUresult cuMipmappedArrayCreate(void **array, const void *descriptor, unsigned levels);
CUresult cuMipmappedArrayDestroy(void *array);
CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr address);

#endif
