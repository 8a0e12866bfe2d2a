/* cupti.h - CUPTI and the CUDA driver as we know them: our own declarations of what is passed between them and a tool.
 *
 * Flow:     cupti_find.c (where they are) -> cuda_inject.c (subscribes) -> cuda_calls.c (calls of the driver), cuda_activity.c (records)
 * Why own:  one library serves CUDA 11.2 to 13 and is built without any of them. Every family of records only ever had fields appended, so a record is read
 *           up to the fields that its CUPTI has and never by a size of ours. tests/integration/test_gpu_headers.py compares all of this
 *           with NVIDIA's headers, of every version that is there.
 */
#ifndef TIDEMARK_GUEST_CUPTI_H
#define TIDEMARK_GUEST_CUPTI_H

#include "../cuda_functions.h"
#include "guest.h"

#define TM_CUPTI_OK 0
#define TM_CUPTI_NOT_INITIALIZED 15
#define TM_CUPTI_MULTIPLE_SUBSCRIBERS 39
#define TM_CUPTI_DOMAIN_DRIVER 1
#define TM_CUPTI_ENTER 0
#define TM_CUPTI_EXIT 1
#define TM_CUDA_INVALID_VALUE 1
#define TM_CUDA_OUT_OF_MEMORY 2
#define TM_CUDA_INVALID_HANDLE 400
#define TM_CUPTI_ATTRIBUTE_ZEROED_BUFFERS 5 /* of uint8_t: buffers are given with zeroes in them */
#define TM_CUPTI_NO_MORE_RECORDS 12 /* CUPTI_ERROR_MAX_LIMIT_REACHED */

struct tm_cupti_call { /* CUpti_CallbackData */
	int site; /* TM_CUPTI_ENTER, TM_CUPTI_EXIT */
	const char *function;
	const void *parameters;
	const int *result; /* at the exit */
	const char *symbol;
	void *context;
	uint32_t context_uid;
	uint64_t *own; /* ours between enter and exit */
	uint32_t correlation;
};

typedef void tm_cupti_callback(void *user, int domain, uint32_t id, const struct tm_cupti_call *call);

/* X(name, arguments, is_needed): what is needed and not there means no CUPTI; what else is missing costs its feature. */
#define TM_CUPTI_FUNCTIONS(X) \
	X(cuptiSubscribe, (void **, tm_cupti_callback *, void *), true) X(cuptiUnsubscribe, (void *), false) \
	X(cuptiEnableCallback, (uint32_t, void *, int, uint32_t), false) X(cuptiEnableDomain, (uint32_t, void *, int), false) \
	X(cuptiGetResultString, (int, const char **), false) X(cuptiGetStreamIdEx, (void *, void *, uint8_t, uint32_t *), false) \
	X(cuptiGetDeviceId, (void *, uint32_t *), false) X(cuptiGetTimestamp, (uint64_t *), false) \
	X(cuptiActivityRegisterCallbacks, \
	  (void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, uint32_t, uint8_t *, size_t, size_t)), false) \
	X(cuptiActivityRegisterTimestampCallback, (uint64_t(*)(void)), false) X(cuptiActivityEnable, (int), false) \
	X(cuptiActivityDisable, (int), false) X(cuptiActivitySetAttribute, (int, size_t *, void *), false) X(cuptiActivityFlushAll, (uint32_t), false) \
	X(cuptiActivityGetNextRecord, (uint8_t *, size_t, uint8_t **), false) \
	X(cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *), false)

/* Functions of the driver that are asked, all of them optional. */
#define TM_CUDA_FUNCTIONS(X) \
	X(cuMemGetInfo_v2, (size_t *, size_t *)) X(cuCtxGetDevice, (int *)) X(cuDeviceGetName, (char *, int, int)) X(cuDeviceGetUuid_v2, (void *, int)) \
	X(cuDeviceGetUuid, (void *, int)) X(cuDeviceTotalMem_v2, (size_t *, int)) X(cuMemPoolGetAttribute, (void *, int, void *)) \
	X(cuFuncGetParamInfo, (void *, size_t, size_t *, size_t *)) X(cuKernelGetParamInfo, (void *, size_t, size_t *, size_t *)) \
	X(cuDevicePrimaryCtxGetState, (int, unsigned *, int *)) X(cuMemGetAddressRange_v2, (uint64_t *, size_t *, uint64_t)) \
	X(cuDeviceGetGraphMemAttribute, (int, int, void *)) X(cuStreamIsCapturing, (void *, int *)) X(cuDeviceGetMemPool, (void **, int))

struct tm_cupti {
#define X(name, arguments, is_needed) int(*name) arguments;
	TM_CUPTI_FUNCTIONS(X)
#undef X
#define X(name, arguments) int(*name) arguments;
	TM_CUDA_FUNCTIONS(X)
#undef X
	struct {
		uintptr_t low, high;
	} code[2]; /* of CUPTI and the driver: frames in it are none of the program's */
};
extern struct tm_cupti tm_cupti TM_HIDDEN;

/* --- cupti_find.c --- */

/* Finds CUPTI and the driver; NULL: found, else why not. Takes the loader's lock; opens CUPTI if nobody has. */
const char *tm_cupti_find(void);
/* A function of the CUPTI that the program itself has loaded, for calls that came by us; NULL: there is none. */
void *tm_cupti_original(const char *name);
/* Learns where the code of both lies, once their modules are known. */
void tm_cupti_find_code(struct tm_thread *t);
bool tm_cupti_is_code(uintptr_t pc);

/* --- the driver's calls that we listen to: X(identifier, callback id) --- */
#define TM_CUDA_CALLS(X) \
	X(cuMemAlloc_v2, 243) X(cuMemAllocPitch_v2, 244) X(cuMemFree_v2, 245) X(cuMemAllocManaged, 371) X(cuMemHostAlloc_v2, 271) \
	X(cuMemAllocHost_v2, 294) X(cuMemFreeHost, 38) X(cuMemHostRegister_v2, 379) X(cuMemHostUnregister, 302) \
	X(cuMemAddressReserve, 547) X(cuMemAddressFree, 548) X(cuMemCreate, 549) X(cuMemRelease, 550) X(cuMemMap, 551) \
	X(cuMemUnmap, 552) X(cuMemImportFromShareableHandle, 555) X(cuMemRetainAllocationHandle, 565) X(cuMemAllocAsync, 598) \
	X(cuMemAllocAsync_ptsz, 599) X(cuMemFreeAsync, 600) X(cuMemFreeAsync_ptsz, 601) X(cuMemAllocFromPoolAsync, 611) \
	X(cuMemAllocFromPoolAsync_ptsz, 612) X(cuGraphAddMemAllocNode, 638) X(cuGraphAddMemFreeNode, 639) X(cuDeviceGraphMemTrim, 640) \
	X(cuArrayCreate_v2, 272) X(cuArray3DCreate_v2, 274) X(cuArrayDestroy, 89) X(cuMipmappedArrayCreate, 347) \
	X(cuMipmappedArrayDestroy, 349) X(cuIpcOpenMemHandle_v2, 567) X(cuIpcCloseMemHandle, 330) X(cuMemHostAlloc, 39) \
	X(cuMemHostRegister, 301) X(cuIpcOpenMemHandle, 329) X(cuGraphAddNode, 712) X(cuGraphAddNode_v2, 723) \
	X(cuMemPoolImportPointer, 616) X(cuExternalMemoryGetMappedBuffer, 486) X(cuGraphAddNode_v3, 863)
/* of pools, and of contexts */
#define TM_CUDA_POOL_CALLS(X) \
	X(cuMemPoolTrimTo, 602) X(cuMemPoolSetAttribute, 603) X(cuMemPoolCreate, 607) X(cuMemPoolDestroy, 608) \
	X(cuDeviceSetMemPool, 609) X(cuMemGetDefaultMemPool, 801) X(cuMemGetMemPool, 802) X(cuMemSetMemPool, 803)
#define TM_CUDA_CONTEXT_CALLS(X) \
	X(cuCtxCreate_v2, 235) X(cuCtxCreate_v3, 645) X(cuCtxCreate_v4, 757) X(cuCtxDestroy_v2, 322) X(cuDevicePrimaryCtxRelease, 387) \
	X(cuDevicePrimaryCtxRelease_v2, 544) X(cuDevicePrimaryCtxReset, 389) X(cuDevicePrimaryCtxReset_v2, 545) \
	X(cuDevicePrimaryCtxRetain, 386)
/* by which streams go, as they do with their context */
#define TM_CUDA_STREAM_CALLS(X) X(cuStreamDestroy, 127) X(cuStreamDestroy_v2, 326)
/* by which kernels go, as they do with their context */
#define TM_CUDA_UNLOAD_CALLS(X) X(cuModuleUnload, 22) X(cuLibraryUnload, 680)

enum tm_cuda_call {
#define X(name, id) TM_CALL_##name = id,
	TM_CUDA_CALLS(X)
	TM_CUDA_POOL_CALLS(X)
	TM_CUDA_CONTEXT_CALLS(X)
#undef X
};

/* --- the parameters of those calls, as the driver lays them out --- */
struct tm_cu_alloc { uint64_t *address; size_t size; void *stream; };        /* Alloc, AllocManaged, HostAlloc, AllocHost; AllocAsync: with a stream */
struct tm_cu_alloc_pitch { uint64_t *address; size_t *pitch, width, height; };
struct tm_cu_register { uint64_t address; size_t size; };
struct tm_cu_alloc_from_pool { uint64_t *address; size_t size; void *pool, *stream; };
struct tm_cu_reserve { uint64_t *address; size_t size; };
struct tm_cu_create { uint64_t *handle; size_t size; const uint8_t *properties; };
struct tm_cu_map { uint64_t address; size_t size, offset; uint64_t handle; };
struct tm_cu_import { uint64_t *handle; };
struct tm_cu_retain { uint64_t *handle; uint64_t address; };
struct tm_cu_range { uint64_t address; size_t size; };                       /* AddressFree, Unmap */
struct tm_cu_pool_create { void **pool; const uint8_t *properties; };
struct tm_cu_set_pool { int device; void *pool; };
struct tm_cu_graph_alloc { void *node, *graph; const void *dependencies; size_t count; const uint8_t *parameters; };
struct tm_cu_graph_free { void *node, *graph; const void *dependencies; size_t count; uint64_t address; };
struct tm_cu_graph_node { void *node, *graph; const void *dependencies; const void *rest[3]; }; /* `rest`: from 12.3 on there is one more before the last */
struct tm_cu_array { uint64_t *handle; const uint8_t *descriptor; unsigned levels; };
struct tm_cu_ipc_open { uint64_t *address; };
struct tm_cu_pool_of { void **pool; const int32_t *location; int type; };       /* MemGetDefaultMemPool, MemGetMemPool */
struct tm_cu_set_pool_of { const int32_t *location; int type; void *pool; };
struct tm_cu_external { uint64_t *address; void *memory; const uint64_t *place; };  /* where in it, and how long */
struct tm_cu_launch { void *function; unsigned numbers[7]; void *stream; void **parameters, **extra; }; /* a cooperative one has no `extra` */
struct tm_cu_launch_ex { const void *config; void *function; void **parameters, **extra; };
struct tm_cu_pointers { const void *first, *second, *third; };

/* Places within what those point to. */
enum {
	TM_CU_PROPERTIES_LOCATION = 8,  /* CUmemAllocationProp, CUmemPoolProps: kind of place, then its number */
	TM_CU_GRAPH_ALLOC_SIZE = 104,   /* CUDA_MEM_ALLOC_NODE_PARAMS */
	TM_CU_GRAPH_ALLOC_ADDRESS = 112,
	TM_CU_NODE_PARAMETERS = 16,     /* CUgraphNodeParams: kind of node, then what it has */
	TM_CU_ARRAY_FORMAT = 16,        /* CUDA_ARRAY_DESCRIPTOR: after width and height */
	TM_CU_ARRAY_3D_FORMAT = 24,
	TM_CU_COPY_2D_FROM = 16,        /* CUDA_MEMCPY2D: kind of memory of the one end, and of the other; then their addresses */
	TM_CU_COPY_2D_TO = 72,
	TM_CU_COPY_3D_FROM = 32,        /* CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER */
	TM_CU_COPY_3D_TO = 120,
	TM_CU_COPY_3D_BATCH_TO = 40,    /* CUDA_MEMCPY3D_BATCH_OP: its two ends */
	TM_CU_COPY_3D_BATCH_BYTES = 112,
	TM_CU_STREAM_VALUE_BYTES = 48,  /* CUstreamBatchMemOpParams */
};
#define TM_CU_LAUNCH_END ((void *)0) /* names in the list of extra parameters */
#define TM_CU_LAUNCH_BUFFER ((void *)1)
#define TM_CU_LAUNCH_BUFFER_SIZE ((void *)2)
enum { TM_CU_ARRAY_LAYERED = 1, TM_CU_ARRAY_CUBE = 4 }; /* flags of CUDA_ARRAY3D_DESCRIPTOR */
enum { TM_CU_MEMORY_HOST = 1, TM_CU_MEMORY_ARRAY = 3, TM_CU_OPERAND_POINTER = 1 };
enum { TM_CU_WAIT_32 = 1, TM_CU_WRITE_32 = 2, TM_CU_WAIT_64 = 4, TM_CU_WRITE_64 = 5, TM_CU_REDUCE = 8 };
/* Kinds of places and of allocations. Kinds that are not named here lie on a device. */
enum { TM_CU_LOCATION_NONE = 0, TM_CU_LOCATION_DEVICE = 1, TM_CU_LOCATION_HOST = 2, TM_CU_LOCATION_HOST_NODE = 3, TM_CU_LOCATION_HOST_CURRENT = 4 };
enum { TM_CU_TYPE_PINNED = 1, TM_CU_TYPE_MANAGED = 2 };
#define TM_CU_NODE_ALLOC 10
#define TM_CU_NODE_FREE 11
#define TM_CU_POOL_RESERVED 5 /* attributes of a pool: what it holds, and what of it is handed out */
#define TM_CU_POOL_USED 7
#define TM_CU_GRAPH_USED 0 /* the same of what the graphs of a device hold */
#define TM_CU_GRAPH_RESERVED 2
#define TM_CU_CAPTURES 1 /* CU_STREAM_CAPTURE_STATUS_ACTIVE */
#define TM_CU_STREAM_PER_THREAD ((void *)2)

/* --- records: kinds, and places of their fields --- */
enum tm_cupti_record {
	TM_CUPTI_MEMCPY = 1,
	TM_CUPTI_MEMSET = 2,
	TM_CUPTI_KERNEL = 3,
	TM_CUPTI_CONCURRENT_KERNEL = 10,
	TM_CUPTI_OVERHEAD = 17,
	TM_CUPTI_MEMCPY_PEER = 22,
};

/* --- cuda_inject.c --- */
bool tm_cuda_is_recorded(void); /* we have subscribed, and are not aside */
/* A function of CUPTI is missing, or refused: one note, when all has been tried, says so and what it costs. `answer` 0: it is missing. */
void tm_cuda_lacks(const char *function, int answer, const char *cost);
/* Between enter and leave: this is the child of a fork, where neither CUDA nor CUPTI can be used and nothing may be asked of them. */
bool tm_cuda_is_inherited(void);
/* The process leaves: what CUPTI still holds is fetched. Outside of every hook. */
void tm_cuda_flush(void);

/* --- cuda_calls.c: between the driver and its caller --- */
void tm_cuda_call(void *user, int domain, uint32_t id, const struct tm_cupti_call *call);
/* Number of the heap cuda:N, for heaps inside of it; 0: the driver is not recorded, or there are too many. */
uint32_t tm_cuda_device_heap(int device);

/* --- cuda_activity.c --- */
void tm_cuda_activity_start(void);
void tm_cuda_activity_stop(void);
/* The driver refused work: its record, if there is one, is of nothing that ran. */
void tm_cuda_activity_refused(uint32_t correlation);
/* After a call of the driver, outside of every hook: fetches what CUPTI holds, if that was long ago. */
void tm_cuda_activity_fetch(void);
/* The process leaves: all that CUPTI holds; CUPTI's answer. */
int tm_cuda_activity_fetch_last(void);

/* --- emit_gpu.c (refusals: emit.h): between enter and leave. `frame` is TM_FRAME; the driver's frames are left out --- */
void tm_emit_gpu_alloc(struct tm_thread *t, enum tm_op op, uint32_t heap, uint64_t address, uint64_t size, const void *frame);
/* A launch, unless work_id is 0: it was told already, and addresses that it uses, TM_USES_MAX at most, as of the same time. */
#define TM_USES_MAX 128u
void tm_emit_work(struct tm_thread *t, unsigned work_id, uint32_t correlation, const uint64_t *used, unsigned count);

struct tm_gpu_activity {
	unsigned kind, direction; /* enum tm_activity_kind, enum tm_activity_direction */
	uint64_t start, end;      /* ticks */
	uint64_t size_bytes;      /* ~0 unknown */
	uint64_t address;
	uint32_t device, stream;  /* ~0 unknown */
	uint32_t correlation;
	uint32_t name_slot;       /* 1 to TM_RING_NAME_SLOTS, or 0: only where `name` says it */
	const char *name;         /* NULL: none, or as that slot was told in this ring */
	size_t name_bytes;
};
void tm_emit_activity(struct tm_thread *t, const struct tm_gpu_activity *a);

#endif
