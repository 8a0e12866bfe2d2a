/* check_headers.c - our declarations of the CUDA driver's and CUPTI's interface against NVIDIA's own headers. Compiling it is the test. */
#include "recorder/guest/cupti.h" /* first: cuda.h makes macros of some names */

#include <cuda.h>
#include <cupti.h>
#include <stddef.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SAME(ours, our_field, theirs, field) AT(ours, our_field, offsetof(theirs, field))
#define NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME(struct tm_cupti_call, site, CUpti_CallbackData, callbackSite);
SAME(struct tm_cupti_call, function, CUpti_CallbackData, functionName);
SAME(struct tm_cupti_call, parameters, CUpti_CallbackData, functionParams);
SAME(struct tm_cupti_call, result, CUpti_CallbackData, functionReturnValue);
SAME(struct tm_cupti_call, context, CUpti_CallbackData, context);
SAME(struct tm_cupti_call, own, CUpti_CallbackData, correlationData);
SAME(struct tm_cupti_call, correlation, CUpti_CallbackData, correlationId);

NUMBER(TM_CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
NUMBER(TM_CUPTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
NUMBER(TM_CUPTI_ENTER, CUPTI_API_ENTER);
NUMBER(TM_CUPTI_EXIT, CUPTI_API_EXIT);
NUMBER(TM_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
NUMBER(TM_CUPTI_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
NUMBER(TM_CUPTI_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
NUMBER(TM_CUPTI_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL);
NUMBER(TM_CUPTI_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
NUMBER(TM_CUPTI_OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD);
NUMBER(TM_CUPTI_MEMCPY_PEER, CUPTI_ACTIVITY_KIND_MEMCPY2);
NUMBER(TM_CUPTI_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY2);
NUMBER(TM_CUPTI_MEMORY_POOL, CUPTI_ACTIVITY_KIND_MEMORY_POOL);
NUMBER(TM_CU_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
NUMBER(TM_CU_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
NUMBER(TM_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);

#define CALL(ours, theirs) NUMBER(TM_CALL_##ours, CUPTI_DRIVER_TRACE_CBID_##theirs)
CALL(MEM_ALLOC, cuMemAlloc_v2);
CALL(MEM_ALLOC_PITCH, cuMemAllocPitch_v2);
CALL(MEM_FREE, cuMemFree_v2);
CALL(MEM_ALLOC_MANAGED, cuMemAllocManaged);
CALL(MEM_HOST_ALLOC, cuMemHostAlloc_v2);
CALL(MEM_ALLOC_HOST, cuMemAllocHost_v2);
CALL(MEM_FREE_HOST, cuMemFreeHost);
CALL(MEM_HOST_REGISTER, cuMemHostRegister_v2);
CALL(MEM_HOST_UNREGISTER, cuMemHostUnregister);
CALL(MEM_ADDRESS_RESERVE, cuMemAddressReserve);
CALL(MEM_ADDRESS_FREE, cuMemAddressFree);
CALL(MEM_CREATE, cuMemCreate);
CALL(MEM_RELEASE, cuMemRelease);
CALL(MEM_MAP, cuMemMap);
CALL(MEM_UNMAP, cuMemUnmap);
CALL(MEM_IMPORT, cuMemImportFromShareableHandle);
CALL(MEM_RETAIN, cuMemRetainAllocationHandle);
CALL(MEM_ALLOC_ASYNC, cuMemAllocAsync);
CALL(MEM_ALLOC_ASYNC_PTSZ, cuMemAllocAsync_ptsz);
CALL(MEM_FREE_ASYNC, cuMemFreeAsync);
CALL(MEM_FREE_ASYNC_PTSZ, cuMemFreeAsync_ptsz);
CALL(POOL_TRIM, cuMemPoolTrimTo);
CALL(POOL_SET_ATTRIBUTE, cuMemPoolSetAttribute);
CALL(POOL_CREATE, cuMemPoolCreate);
CALL(POOL_DESTROY, cuMemPoolDestroy);
CALL(DEVICE_SET_POOL, cuDeviceSetMemPool);
CALL(MEM_ALLOC_FROM_POOL, cuMemAllocFromPoolAsync);
CALL(MEM_ALLOC_FROM_POOL_PTSZ, cuMemAllocFromPoolAsync_ptsz);
CALL(GRAPH_ADD_ALLOC, cuGraphAddMemAllocNode);
CALL(GRAPH_ADD_FREE, cuGraphAddMemFreeNode);
CALL(GRAPH_TRIM, cuDeviceGraphMemTrim);
CALL(ARRAY_CREATE, cuArrayCreate_v2);
CALL(ARRAY_3D_CREATE, cuArray3DCreate_v2);
CALL(ARRAY_DESTROY, cuArrayDestroy);
CALL(MIPMAPPED_CREATE, cuMipmappedArrayCreate);
CALL(MIPMAPPED_DESTROY, cuMipmappedArrayDestroy);
CALL(IPC_OPEN, cuIpcOpenMemHandle_v2);
CALL(IPC_CLOSE, cuIpcCloseMemHandle);
CALL(MEM_HOST_ALLOC_FIRST, cuMemHostAlloc);
CALL(MEM_HOST_REGISTER_FIRST, cuMemHostRegister);
CALL(IPC_OPEN_FIRST, cuIpcOpenMemHandle);
CALL(GRAPH_ADD_NODE, cuGraphAddNode);
CALL(GRAPH_ADD_NODE_2, cuGraphAddNode_v2);
CALL(CTX_CREATE, cuCtxCreate_v2);
CALL(CTX_CREATE_3, cuCtxCreate_v3);
CALL(CTX_CREATE_4, cuCtxCreate_v4);
CALL(CTX_DESTROY, cuCtxDestroy_v2);
CALL(PRIMARY_RELEASE, cuDevicePrimaryCtxRelease);
CALL(PRIMARY_RELEASE_2, cuDevicePrimaryCtxRelease_v2);
CALL(PRIMARY_RESET, cuDevicePrimaryCtxReset);
CALL(PRIMARY_RESET_2, cuDevicePrimaryCtxReset_v2);
CALL(PRIMARY_RETAIN, cuDevicePrimaryCtxRetain);
NUMBER(TM_CU_GRAPH_USED, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
NUMBER(TM_CU_GRAPH_RESERVED, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
NUMBER(TM_CU_CAPTURES, CU_STREAM_CAPTURE_STATUS_ACTIVE);
NUMBER(TM_CU_NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
NUMBER(TM_CU_NODE_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE);

/* Work: the ends of the ranges that the list of cuda_functions.h has. */
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel == 307 && CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz == 442, "cuLaunchKernel");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx == 652 && CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz == 653, "cuLaunchKernelEx");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel == 477 && CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch == 514, "cuGraphLaunch");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2 == 276 && CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz == 421, "cuMemcpyHtoD");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2 == 278 && CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz == 422, "cuMemcpyDtoH");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2 == 280 && CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz == 423, "cuMemcpyDtoD");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer == 318 && CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz == 426, "cuMemcpyPeer");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2 == 249 && CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz == 430, "cuMemset");

/* Those that take memory for themselves. */
#define IS(name, number) _Static_assert(CUPTI_DRIVER_TRACE_CBID_##name == (number), #name)
IS(cuModuleLoad, 18);
IS(cuModuleLoadData, 19);
IS(cuModuleLoadDataEx, 20);
IS(cuModuleLoadFatBinary, 21);
IS(cuLibraryLoadData, 678);
IS(cuLibraryLoadFromFile, 679);
IS(cuStreamCreate, 124);
IS(cuStreamCreateWithPriority, 367);
IS(cuGraphInstantiate, 513);
IS(cuGraphInstantiate_v2, 578);
IS(cuGraphInstantiateWithFlags, 643);
IS(cuGraphInstantiateWithParams, 656);
IS(cuGraphInstantiateWithParams_ptsz, 657);
IS(cuGraphUpload, 580);
IS(cuGraphUpload_ptsz, 581);

/* Places in records, as cuda_activity.c reads them, and in what the driver's calls point to. */
AT(CUpti_ActivityMemory4, memoryOperationType, 4);
AT(CUpti_ActivityMemory4, memoryKind, 8);
AT(CUpti_ActivityMemory4, correlationId, 12);
AT(CUpti_ActivityMemory4, address, 16);
AT(CUpti_ActivityMemory4, bytes, 24);
AT(CUpti_ActivityMemory4, timestamp, 32);
AT(CUpti_ActivityMemory4, deviceId, 52);
AT(CUpti_ActivityMemory4, streamId, 60);
AT(CUpti_ActivityMemory4, memoryPoolConfig, 80);
AT(CUpti_ActivityMemory4, memoryPoolConfig.utilizedSize, 112);
AT(CUpti_ActivityMemory4, memoryPoolConfig.pool.size, 104);
AT(CUpti_ActivityMemoryPool3, memoryPoolType, 8);
AT(CUpti_ActivityMemoryPool3, deviceId, 20);
AT(CUpti_ActivityMemoryPool3, size, 40);
AT(CUpti_ActivityMemoryPool3, timestamp, 56);
AT(CUpti_ActivityMemoryPool3, utilizedSize, 64);
AT(CUpti_ActivityKernel10, start, 16);
AT(CUpti_ActivityKernel10, end, 24);
AT(CUpti_ActivityKernel10, deviceId, 40);
AT(CUpti_ActivityKernel10, streamId, 48);
AT(CUpti_ActivityKernel10, correlationId, 92);
AT(CUpti_ActivityKernel10, name, 104);
AT(CUpti_ActivityMemcpy6, copyKind, 4);
AT(CUpti_ActivityMemcpy6, bytes, 8);
AT(CUpti_ActivityMemcpy6, start, 16);
AT(CUpti_ActivityMemcpy6, deviceId, 32);
AT(CUpti_ActivityMemcpy6, streamId, 40);
AT(CUpti_ActivityMemcpy6, correlationId, 44);
AT(CUpti_ActivityMemcpyPtoP4, correlationId, 60);
AT(CUpti_ActivityMemset4, bytes, 8);
AT(CUpti_ActivityMemset4, correlationId, 44);
AT(CUpti_ActivityOverhead3, overheadKind, 4);
AT(CUpti_ActivityOverhead3, start, 24);
AT(CUpti_ActivityOverhead3, end, 32);
AT(CUmemAllocationProp, location, TM_CU_PROPERTIES_LOCATION);
AT(CUmemPoolProps, location, TM_CU_PROPERTIES_LOCATION);
AT(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize, TM_CU_GRAPH_ALLOC_SIZE);
AT(CUDA_MEM_ALLOC_NODE_PARAMS, dptr, TM_CU_GRAPH_ALLOC_ADDRESS);
AT(CUgraphNodeParams, alloc, TM_CU_NODE_PARAMETERS);
AT(CUDA_MEM_ALLOC_NODE_PARAMS_v2, bytesize, TM_CU_GRAPH_ALLOC_SIZE);
AT(CUDA_MEM_ALLOC_NODE_PARAMS_v2, dptr, TM_CU_GRAPH_ALLOC_ADDRESS);
AT(CUDA_ARRAY_DESCRIPTOR, Format, TM_CU_ARRAY_FORMAT);
AT(CUDA_ARRAY3D_DESCRIPTOR, Format, TM_CU_ARRAY_3D_FORMAT);
