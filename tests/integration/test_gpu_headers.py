"""Our declarations of the interfaces of the CUDA driver, CUPTI and NVML (recorder/guest/cupti.h, recorder/cuda_functions.h, recorder/collector/nvml.c) against
NVIDIA's own headers, of each version found: the numbers of functions, their parameters, the places of fields in every version of every record, constants.

Method: headers are looked for in /usr/local/cuda*, $CUDA_HOME, wheels (nvidia/*/include beside Python's packages) and $CUDA_INCLUDES (directories, ':' between
those of one version, ';' between versions). Names are read from them by regular expressions; places are compared by static assertions that gcc compiles. What
the headers of an older version do not have is left out; in those of CUDA 13 everything must be there.
"""
import glob
import os
import re
import sys

from tidemark_test import ROOT, main, test

OURS = os.path.join(ROOT, "recorder/guest/cupti.h")
FUNCTIONS = os.path.join(ROOT, "recorder/cuda_functions.h")

# Constants: ours, NVIDIA's.
NUMBERS = [line.split() for line in """
TM_CUPTI_OK CUPTI_SUCCESS
TM_CUPTI_MULTIPLE_SUBSCRIBERS CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
TM_CUPTI_NO_MORE_RECORDS CUPTI_ERROR_MAX_LIMIT_REACHED
TM_CUPTI_NOT_INITIALIZED CUPTI_ERROR_NOT_INITIALIZED
7 CUPTI_ERROR_INVALID_OPERATION
TM_CUPTI_DOMAIN_DRIVER CUPTI_CB_DOMAIN_DRIVER_API
TM_CUPTI_ENTER CUPTI_API_ENTER
TM_CUPTI_EXIT CUPTI_API_EXIT
TM_CUDA_INVALID_VALUE CUDA_ERROR_INVALID_VALUE
TM_CUDA_OUT_OF_MEMORY CUDA_ERROR_OUT_OF_MEMORY
TM_CUDA_INVALID_HANDLE CUDA_ERROR_INVALID_HANDLE
TM_CUPTI_MEMCPY CUPTI_ACTIVITY_KIND_MEMCPY
TM_CUPTI_MEMSET CUPTI_ACTIVITY_KIND_MEMSET
TM_CUPTI_KERNEL CUPTI_ACTIVITY_KIND_KERNEL
TM_CUPTI_CONCURRENT_KERNEL CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
TM_CUPTI_OVERHEAD CUPTI_ACTIVITY_KIND_OVERHEAD
TM_CUPTI_MEMCPY_PEER CUPTI_ACTIVITY_KIND_MEMCPY2
1 CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
2 CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
3 CUPTI_ACTIVITY_MEMCPY_KIND_HTOA
4 CUPTI_ACTIVITY_MEMCPY_KIND_ATOH
5 CUPTI_ACTIVITY_MEMCPY_KIND_ATOA
6 CUPTI_ACTIVITY_MEMCPY_KIND_ATOD
7 CUPTI_ACTIVITY_MEMCPY_KIND_DTOA
8 CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
9 CUPTI_ACTIVITY_MEMCPY_KIND_HTOH
10 CUPTI_ACTIVITY_MEMCPY_KIND_PTOP
1 CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER
1<<16 CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH
2<<16 CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION
3<<16 CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE
4<<16 CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING
5<<16 CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING
6<<16 CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL
7<<16 CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST
8<<16 CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT
TM_CU_POOL_RESERVED CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
TM_CU_POOL_USED CU_MEMPOOL_ATTR_USED_MEM_CURRENT
TM_CU_GRAPH_USED CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
TM_CU_GRAPH_RESERVED CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
TM_CU_STREAM_PER_THREAD CU_STREAM_PER_THREAD
TM_CU_CAPTURES CU_STREAM_CAPTURE_STATUS_ACTIVE
TM_CU_NODE_ALLOC CU_GRAPH_NODE_TYPE_MEM_ALLOC
TM_CU_NODE_FREE CU_GRAPH_NODE_TYPE_MEM_FREE
TM_CU_LOCATION_DEVICE CU_MEM_LOCATION_TYPE_DEVICE
TM_CU_LOCATION_HOST CU_MEM_LOCATION_TYPE_HOST
TM_CU_LOCATION_HOST_NODE CU_MEM_LOCATION_TYPE_HOST_NUMA
TM_CU_LOCATION_HOST_CURRENT CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
TM_CU_TYPE_PINNED CU_MEM_ALLOCATION_TYPE_PINNED
TM_CU_TYPE_MANAGED CU_MEM_ALLOCATION_TYPE_MANAGED
TM_CU_MEMORY_HOST CU_MEMORYTYPE_HOST
TM_CU_MEMORY_ARRAY CU_MEMORYTYPE_ARRAY
TM_CU_OPERAND_POINTER CU_MEMCPY_OPERAND_TYPE_POINTER
TM_CU_WAIT_32 CU_STREAM_MEM_OP_WAIT_VALUE_32
TM_CU_WRITE_32 CU_STREAM_MEM_OP_WRITE_VALUE_32
TM_CU_WAIT_64 CU_STREAM_MEM_OP_WAIT_VALUE_64
TM_CU_WRITE_64 CU_STREAM_MEM_OP_WRITE_VALUE_64
TM_CU_REDUCE CU_STREAM_MEM_OP_ATOMIC_REDUCTION
1 CU_AD_FORMAT_UNSIGNED_INT8
2 CU_AD_FORMAT_UNSIGNED_INT16
3 CU_AD_FORMAT_UNSIGNED_INT32
8 CU_AD_FORMAT_SIGNED_INT8
9 CU_AD_FORMAT_SIGNED_INT16
10 CU_AD_FORMAT_SIGNED_INT32
16 CU_AD_FORMAT_HALF
32 CU_AD_FORMAT_FLOAT
192 CU_AD_FORMAT_UNORM_INT8X1
194 CU_AD_FORMAT_UNORM_INT8X4
195 CU_AD_FORMAT_UNORM_INT16X1
197 CU_AD_FORMAT_UNORM_INT16X4
198 CU_AD_FORMAT_SNORM_INT8X1
200 CU_AD_FORMAT_SNORM_INT8X4
201 CU_AD_FORMAT_SNORM_INT16X1
203 CU_AD_FORMAT_SNORM_INT16X4
TM_CU_ARRAY_LAYERED CUDA_ARRAY3D_LAYERED
TM_CU_ARRAY_CUBE CUDA_ARRAY3D_CUBEMAP
""".split("\n") if line]

# Places of fields: NVIDIA's structure, field and place ('@' is a blank). NAME#N is every version of that record from N on.
PLACES = [line.split() for line in """
CUpti_ActivityKernel#3 start 16
CUpti_ActivityKernel#3 end 24
CUpti_ActivityKernel#3 deviceId 40
CUpti_ActivityKernel#3 streamId 48
CUpti_ActivityKernel#3 correlationId 92
CUpti_ActivityKernel#3 name 104
CUpti_ActivityMemcpy#0 copyKind 4
CUpti_ActivityMemcpy#0 bytes 8
CUpti_ActivityMemcpy#0 start 16
CUpti_ActivityMemcpy#0 end 24
CUpti_ActivityMemcpy#0 deviceId 32
CUpti_ActivityMemcpy#0 streamId 40
CUpti_ActivityMemcpy#0 correlationId 44
CUpti_ActivityMemcpyPtoP#0 copyKind 4
CUpti_ActivityMemcpyPtoP#0 bytes 8
CUpti_ActivityMemcpyPtoP#0 start 16
CUpti_ActivityMemcpyPtoP#0 end 24
CUpti_ActivityMemcpyPtoP#0 deviceId 32
CUpti_ActivityMemcpyPtoP#0 streamId 40
CUpti_ActivityMemcpyPtoP#0 correlationId 60
CUpti_ActivityMemset#0 bytes 8
CUpti_ActivityMemset#0 start 16
CUpti_ActivityMemset#0 end 24
CUpti_ActivityMemset#0 deviceId 32
CUpti_ActivityMemset#0 streamId 40
CUpti_ActivityMemset#0 correlationId 44
CUpti_ActivityOverhead#0 overheadKind 4
CUpti_ActivityOverhead#0 start 24
CUpti_ActivityOverhead#0 end 32
CUmemAllocationProp type 0
CUmemAllocationProp location TM_CU_PROPERTIES_LOCATION
CUmemPoolProps allocType 0
CUmemPoolProps location TM_CU_PROPERTIES_LOCATION
CUmemLocation type 0
CUmemLocation id 4
CUDA_MEM_ALLOC_NODE_PARAMS bytesize TM_CU_GRAPH_ALLOC_SIZE
CUDA_MEM_ALLOC_NODE_PARAMS dptr TM_CU_GRAPH_ALLOC_ADDRESS
CUDA_MEM_ALLOC_NODE_PARAMS_v2 bytesize TM_CU_GRAPH_ALLOC_SIZE
CUDA_MEM_ALLOC_NODE_PARAMS_v2 dptr TM_CU_GRAPH_ALLOC_ADDRESS
CUDA_MEM_FREE_NODE_PARAMS dptr 0
CUgraphNodeParams type 0
CUgraphNodeParams alloc TM_CU_NODE_PARAMETERS
CUgraphNodeParams free TM_CU_NODE_PARAMETERS
CUDA_ARRAY_DESCRIPTOR Format TM_CU_ARRAY_FORMAT
CUDA_ARRAY_DESCRIPTOR NumChannels TM_CU_ARRAY_FORMAT+4
CUDA_ARRAY3D_DESCRIPTOR Format TM_CU_ARRAY_3D_FORMAT
CUDA_ARRAY3D_DESCRIPTOR NumChannels TM_CU_ARRAY_3D_FORMAT+4
CUDA_MEMCPY2D srcMemoryType TM_CU_COPY_2D_FROM
CUDA_MEMCPY2D srcHost TM_CU_COPY_2D_FROM+8
CUDA_MEMCPY2D srcDevice TM_CU_COPY_2D_FROM+16
CUDA_MEMCPY2D dstMemoryType TM_CU_COPY_2D_TO
CUDA_MEMCPY2D dstHost TM_CU_COPY_2D_TO+8
CUDA_MEMCPY2D dstDevice TM_CU_COPY_2D_TO+16
CUDA_MEMCPY3D srcMemoryType TM_CU_COPY_3D_FROM
CUDA_MEMCPY3D srcHost TM_CU_COPY_3D_FROM+8
CUDA_MEMCPY3D srcDevice TM_CU_COPY_3D_FROM+16
CUDA_MEMCPY3D dstMemoryType TM_CU_COPY_3D_TO
CUDA_MEMCPY3D dstHost TM_CU_COPY_3D_TO+8
CUDA_MEMCPY3D dstDevice TM_CU_COPY_3D_TO+16
CUDA_MEMCPY3D_PEER srcMemoryType TM_CU_COPY_3D_FROM
CUDA_MEMCPY3D_PEER srcDevice TM_CU_COPY_3D_FROM+16
CUDA_MEMCPY3D_PEER dstMemoryType TM_CU_COPY_3D_TO
CUDA_MEMCPY3D_PEER dstDevice TM_CU_COPY_3D_TO+16
CUDA_MEMCPY3D_BATCH_OP src.type 0
CUDA_MEMCPY3D_BATCH_OP src.op.ptr.ptr 8
CUDA_MEMCPY3D_BATCH_OP dst.type TM_CU_COPY_3D_BATCH_TO
CUDA_MEMCPY3D_BATCH_OP dst.op.ptr.ptr TM_CU_COPY_3D_BATCH_TO+8
CUstreamBatchMemOpParams operation 0
CUstreamBatchMemOpParams waitValue.address 8
CUstreamBatchMemOpParams writeValue.address 8
CUDA_EXTERNAL_MEMORY_BUFFER_DESC size 8
CUpti_CallbackData callbackSite offsetof(struct@tm_cupti_call,site)
CUpti_CallbackData functionName offsetof(struct@tm_cupti_call,function)
CUpti_CallbackData functionParams offsetof(struct@tm_cupti_call,parameters)
CUpti_CallbackData functionReturnValue offsetof(struct@tm_cupti_call,result)
CUpti_CallbackData symbolName offsetof(struct@tm_cupti_call,symbol)
CUpti_CallbackData context offsetof(struct@tm_cupti_call,context)
CUpti_CallbackData contextUid offsetof(struct@tm_cupti_call,context_uid)
CUpti_CallbackData correlationData offsetof(struct@tm_cupti_call,own)
CUpti_CallbackData correlationId offsetof(struct@tm_cupti_call,correlation)
""".split("\n") if line]

SIZES = [("CUDA_MEMCPY3D_BATCH_OP", "TM_CU_COPY_3D_BATCH_BYTES"), ("CUstreamBatchMemOpParams", "TM_CU_STREAM_VALUE_BYTES"), ("CUpti_CallbackData", "72"),
         ("CUuuid", "16")]

# Parameters of functions: functions, our structure, and its fields with NVIDIA's names for them. No structure: places in bytes.
PARAMETERS = [
    ("cuMemAlloc_v2 cuMemAllocManaged", "tm_cu_alloc", "address=dptr size=bytesize"),
    ("cuMemHostAlloc cuMemAllocHost_v2", "tm_cu_alloc", "address=pp size=bytesize"),
    ("cuMemAllocAsync cuMemAllocAsync_ptsz", "tm_cu_alloc", "address=dptr size=bytesize stream=hStream"),
    ("cuMemAllocPitch_v2", "tm_cu_alloc_pitch", "address=dptr pitch=pPitch width=WidthInBytes height=Height"),
    ("cuMemHostRegister_v2", "tm_cu_register", "address=p size=bytesize"),
    ("cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz", "tm_cu_alloc_from_pool", "address=dptr size=bytesize pool=pool stream=hStream"),
    ("cuMemAddressReserve", "tm_cu_reserve", "address=ptr size=size"),
    ("cuMemCreate", "tm_cu_create", "handle=handle size=size properties=prop"),
    ("cuMemMap", "tm_cu_map", "address=ptr size=size offset=offset handle=handle"),
    ("cuMemImportFromShareableHandle", "tm_cu_import", "handle=handle"),
    ("cuMemRetainAllocationHandle", "tm_cu_retain", "handle=handle address=addr"),
    ("cuMemUnmap cuMemAddressFree", "tm_cu_range", "address=ptr size=size"),
    ("cuMemPoolCreate", "tm_cu_pool_create", "pool=pool properties=poolProps"),
    ("cuDeviceSetMemPool", "tm_cu_set_pool", "device=dev pool=pool"),
    ("cuMemGetDefaultMemPool", "tm_cu_pool_of", "pool=pool_out location=location type=type"),
    ("cuMemGetMemPool", "tm_cu_pool_of", "pool=pool location=location type=type"),
    ("cuMemSetMemPool", "tm_cu_set_pool_of", "location=location type=type pool=pool"),
    ("cuExternalMemoryGetMappedBuffer", "tm_cu_external", "address=devPtr memory=extMem place=bufferDesc"),
    ("cuGraphAddMemAllocNode", "tm_cu_graph_alloc", "node=phGraphNode graph=hGraph parameters=nodeParams"),
    ("cuGraphAddMemFreeNode", "tm_cu_graph_free", "node=phGraphNode graph=hGraph address=dptr"),
    ("cuArrayCreate_v2 cuArray3DCreate_v2", "tm_cu_array", "handle=pHandle descriptor=pAllocateArray"),
    ("cuMipmappedArrayCreate", "tm_cu_array", "handle=pHandle descriptor=pMipmappedArrayDesc levels=numMipmapLevels"),
    ("cuIpcOpenMemHandle_v2", "tm_cu_ipc_open", "address=pdptr"),
    ("cuMemPoolImportPointer", "tm_cu_alloc", "address=ptr_out"),
    ("cuLaunchKernel cuLaunchKernel_ptsz", "tm_cu_launch", "function=f stream=hStream parameters=kernelParams extra=extra"),
    ("cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz", "tm_cu_launch", "function=f parameters=kernelParams"),
    ("cuLaunchKernelEx cuLaunchKernelEx_ptsz", "tm_cu_launch_ex", "config=config function=f parameters=kernelParams extra=extra"),
    ("cuGraphAddNode", None, "32=nodeParams"), ("cuGraphAddNode_v2 cuGraphAddNode_v3", None, "40=nodeParams"),
    ("cuCtxCreate_v2", None, "12=dev"), ("cuCtxCreate_v3", None, "24=dev"), ("cuCtxCreate_v4", None, "20=dev"), ("cuDevicePrimaryCtxRetain", None, "8=dev"),
    ("cuMemFree_v2 cuMemFreeAsync cuMemFreeAsync_ptsz cuIpcCloseMemHandle", None, "0=dptr"), ("cuMemFreeHost cuMemHostUnregister", None, "0=p"),
    ("cuMemRelease", None, "0=handle"), ("cuArrayDestroy", None, "0=hArray"), ("cuMipmappedArrayDestroy", None, "0=hMipmappedArray"),
    ("cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolDestroy", None, "0=pool"), ("cuDeviceGraphMemTrim", None, "0=device"),
    ("cuCtxDestroy_v2", None, "0=ctx"), ("cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRelease_v2", None, "0=dev"),
    ("cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2", None, "0=dstDevice 8=srcHost"), ("cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2", None, "0=dstHost 8=srcDevice"),
    ("cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2", None, "0=dstDevice 8=srcDevice"), ("cuMemcpy cuMemcpyAsync", None, "0=dst 8=src"),
    ("cuMemcpyPeer cuMemcpyPeerAsync", None, "0=dstDevice 16=srcDevice"), ("cuMemcpyAtoD_v2", None, "0=dstDevice"), ("cuMemcpyAtoH_v2", None, "0=dstHost"),
    ("cuMemcpyDtoA_v2", None, "16=srcDevice"), ("cuMemcpyHtoA_v2 cuMemcpyHtoAAsync_v2", None, "16=srcHost"),
    ("cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemcpy3D_v2 cuMemcpy3DAsync_v2 cuMemcpy3DPeer cuMemcpy3DPeerAsync", None, "0=pCopy"),
    ("cuMemcpyBatchAsync cuMemcpyBatchAsync_v2", None, "0=dsts 8=srcs 24=count"), ("cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_v2", None, "0=numOps 8=opList"),
    ("cuMemcpyWithAttributesAsync", None, "0=dst 8=src"), ("cuMemcpy3DWithAttributesAsync", None, "0=op"),
    ("cuMemsetD8_v2 cuMemsetD32Async cuMemsetD2D16_v2", None, "0=dstDevice"),
    ("cuStreamWaitValue32_v2 cuStreamWriteValue64_v2 cuStreamWriteValue32_v2", None, "8=addr"), ("cuStreamBatchMemOp_v2", None, "8=count 16=paramArray"),
]

# Functions that give or take memory, or put work on a device, and are not listened to.
MEMORY = re.compile(r"cu(Mem(Alloc|Free|Host(Alloc|Reg|Unreg)|Create|Release|Map|Unmap|Import|Retain|Address(Res|Free)|Pool(Create|Destroy|Trim|Import))"
                    r"|Memcpy|MemsetD|Array(3D)?Create|ArrayDestroy|MipmappedArray(Create|Destroy)|Ipc(Open|Close)Mem|GraphAddMem(Alloc|Free)|GraphAddNode"
                    r"|GraphLaunch|Launch|ExternalMemoryGetMapped|GraphMemTrim|DeviceSetMemPool|Ctx(Create|Destroy|Detach|Attach)|DevicePrimaryCtx(Re|Retain))")
LEFT_ALONE = {
    "of interfaces with 32-bit addresses, before CUDA 3.2":
        r"cuMem(Alloc|AllocPitch|AllocHost|Free)|cuMemcpy(HtoD|DtoH|DtoD|DtoA|AtoD|HtoA|AtoH|AtoA)(Async)?|cuMemcpy(2D|2DUnaligned|3D)(Async)?"
        r"|cuMemsetD\w+|cuArray(3D)?Create|cuCtx(Create|Destroy|Attach|Detach)|cuMemcpy_v2",
    "runs on the host": r"cuLaunchHostFunc(_v2)?(_ptsz)?",
    "images of other interfaces, whose memory is theirs": r"cuExternalMemoryGetMappedMipmappedArray",
    "adds nodes that copy and set": r"cuGraphAddMem(cpy|set)Node",
}


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def sources(directory):
    return {name: read(os.path.join(directory, name)) for name in sorted(os.listdir(directory)) if name.endswith(".h")}


def places_of_headers():
    """[[include directories of one version]]"""
    found = [version.split(":") for version in os.environ.get("CUDA_INCLUDES", "").split(";") if version]
    for root in sorted({os.path.realpath(path) for path in glob.glob("/usr/local/cuda*") + [os.environ.get("CUDA_HOME", "")] if path}):
        found.append([os.path.join(root, part) for part in ("extras/CUPTI/include", "include")])
    for packages in sys.path:
        nvidia = os.path.join(packages, "nvidia")
        found += [[os.path.join(path, "include")] for path in glob.glob(nvidia + "/cu[0-9]*")]
        found.append([os.path.join(nvidia, part, "include") for part in ("cuda_cupti", "cuda_runtime")])
    have = lambda paths, name: any(os.path.exists(os.path.join(path, name)) for path in paths)
    return [[path for path in paths if os.path.isdir(path)] for paths in found if have(paths, "cupti.h") and have(paths, "cuda.h")]


class Headers:
    def __init__(self, directories):
        self.directories, texts = directories, {}
        for directory in directories:
            texts = {**sources(directory), **texts}
        self.version = int(re.search(r"#define CUDA_VERSION (\d+)", texts["cuda.h"])[1])
        # From 13.5 on functions that no driver has any more are called cuda271 and the like: "" here.
        self.callbacks = {int(n): re.sub(r"^cuda\d+$", "", name)
                          for name, n in re.findall(r"CUPTI_DRIVER_TRACE_CBID_(cu\w+)\s*=\s*(\d+)", texts["cupti_driver_cbid.h"])}
        self.parameters = texts["generated_cuda_meta.h"]
        self.words = set()
        for name, text in texts.items():
            if name.startswith(("cuda.h", "cupti_")):
                self.words |= set(re.findall(r"\w+", re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)))

    def records(self, family, first):
        """Names of all versions of a record."""
        return [word for word in self.words if re.fullmatch(family + r"\d*", word) and int(word[len(family):] or 0) >= first
                and word != "CUpti_ActivityMemcpy2"]  # an older name of CUpti_ActivityMemcpyPtoP


def found_headers(t):
    all_found = [Headers(directories) for directories in places_of_headers()]
    if not all_found:
        t.skip("no CUDA toolkit with cupti.h in /usr/local/cuda, $CUDA_HOME or Python's packages, and none named by $CUDA_INCLUDES")
    print("CUDA " + ", ".join(f"{h.version // 1000}.{h.version % 1000 // 10}" for h in all_found))
    return all_found


def plain(name):
    """Without the endings by which variants of one function differ."""
    return re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name)


@test
def numbers_of_functions(t):
    calls = re.findall(r"X\((cu\w+), (\d+)\)", read(OURS))
    named = re.findall(r'X\("(cu\w+)", (\d+)', read(FUNCTIONS))
    t.check(len(calls) > 50 and len(named) > 150, f"{len(calls)} and {len(named)} functions were read")
    for h in found_headers(t):
        t.equal([(name, number, h.callbacks[int(number)]) for name, number in calls if (h.callbacks.get(int(number)) or name) != name], [], f"{h.version}: calls")
        t.equal([(name, number, h.callbacks[int(number)]) for name, number in named if plain(h.callbacks.get(int(number)) or name) != name], [],
                f"{h.version}: functions")
        missing = [name for name, number in calls + named if int(number) not in h.callbacks]
        later = {13000: ("cuGraphAddNode_v3", "cuMemcpyWithAttributesAsync", "cuMemcpy3DWithAttributesAsync", "cuMulticastBindMem", "cuMulticastBindAddr")}
        if h.version >= 13000:
            t.equal([name for name in missing if name not in later.get(h.version, ())], [], f"{h.version}: functions that are not there")


@test
def no_function_is_forgotten(t):
    ours = {int(n) for n in re.findall(r'X\("?cu\w+"?, (\d+)', read(OURS) + read(FUNCTIONS))}
    for h in found_headers(t):
        others = [name for number, name in sorted(h.callbacks.items()) if number not in ours and MEMORY.match(name)]
        t.equal([name for name in others if not any(re.fullmatch(names, name) for names in LEFT_ALONE.values())], [], f"{h.version}: nobody listens to")


def assertions(h):
    lines, missing = [], []

    def add(condition, *needs):
        if all(need in h.words for need in needs):
            lines.append(f'_Static_assert({condition}, "{condition}");')
        else:
            missing.append(condition)
    for ours, theirs in NUMBERS:
        add(f"(long)({ours}) == (long)({theirs})", theirs)
    for name, field, place in PLACES:
        family, _, first = name.partition("#")
        for struct in h.records(family, int(first)) if first else [name]:
            add(f"offsetof({struct}, {field}) == ({place.replace('@', ' ')})", struct, *field.split("."))
    for name, size in SIZES:
        add(f"sizeof({name}) == ({size})", name)
    for functions, struct, fields in PARAMETERS:
        for function in functions.split():
            body = re.search(r"struct " + function + r"_params_st \{(.*?)\}", h.parameters, re.S)
            for ours, theirs in (field.split("=") for field in fields.split()):
                place = f"offsetof(struct {struct}, {ours})" if struct else ours
                condition = f"offsetof(struct {function}_params_st, {theirs}) == ({place})"
                if body and re.search(r"\b" + theirs + ";", body[1]):
                    lines.append(f'_Static_assert({condition}, "{condition}");')
                else:
                    missing.append(condition)
    return lines, missing


# Wheels have the compiler's part of the headers in another package.
EMPTY = ("__host__", "__device__", "__device_builtin__", "__cudart_builtin__", "CUDARTAPI", "CUDARTAPI_CDECL", "__device_builtin_texture_type__",
         "__device_builtin_surface_type__", "__builtin_align__(n) __attribute__((aligned(n)))", "__align__(n) __attribute__((aligned(n)))")


@test
def places_and_constants(t):
    for h in found_headers(t):
        lines, missing = assertions(h)
        if h.version >= 13000:
            later = ("AddNode_v3", "WithAttributes", "ATOMIC_REDUCTION") if h.version == 13000 else ()
            t.equal([text for text in missing if not any(word in text for word in later)], [], f"{h.version}: not there")
        t.check(len(lines) > 150, f"{h.version}: only {len(lines)} comparisons")
        source, directory = t.path(f"{h.version}.c"), t.path(f"more-{h.version}")
        os.makedirs(directory + "/crt", exist_ok=True)
        if not any(os.path.exists(d + "/crt/host_defines.h") for d in h.directories):
            with open(directory + "/crt/host_defines.h", "w", encoding="ascii") as file:
                file.write("".join(f"#define {name}\n" for name in EMPTY))
        with open(source, "w", encoding="ascii") as file:
            # Ours first: cuda.h makes macros of some names.
            file.write('#include "recorder/guest/cupti.h"\n#include <stddef.h>\n#include <cuda.h>\n#include <cupti.h>\n' + "\n".join(lines) + "\n")
        include = [word for d in [*h.directories, directory] for word in ("-isystem", d)]
        done = t.run(["gcc", "-fsyntax-only", "-std=gnu11", *include, "-I", ROOT, source])
        t.equal([line for line in done.errors.splitlines() if "error" in line][:10], [], f"{h.version}: {len(lines)} comparisons")
        print(f"{h.version}: {len(lines)} comparisons, {len(missing)} not in this version")
        # The comparison can fail: a place that is not so is found.
        with open(source, "a", encoding="ascii") as file:
            file.write('_Static_assert(offsetof(CUpti_ActivityKernel4, end) == 32, "wrong on purpose");\n')
        t.check("wrong on purpose" in t.run(["gcc", "-fsyntax-only", "-std=gnu11", *include, "-I", ROOT, source]).errors, "nothing is compared")


NVML = """
#include <nvml.h>
#include <stddef.h>
struct memory { unsigned long long total, free, used; };
struct user { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
#define SAME(ours, a, theirs, b) _Static_assert(offsetof(ours, a) == offsetof(theirs, b), #a)
SAME(struct memory, total, nvmlMemory_t, total);
SAME(struct memory, free, nvmlMemory_t, free);
SAME(struct memory, used, nvmlMemory_t, used);
SAME(struct user, pid, nvmlProcessInfo_v2_t, pid);
SAME(struct user, bytes, nvmlProcessInfo_v2_t, usedGpuMemory);
_Static_assert(sizeof(struct user) == sizeof(nvmlProcessInfo_v2_t), "size");
_Static_assert(NVML_VALUE_NOT_AVAILABLE == -1, "not known");
nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *) = nvmlDeviceGetHandleByUUID;
nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *) = nvmlDeviceGetMemoryInfo;
nvmlReturn_t (*users)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *) = nvmlDeviceGetComputeRunningProcesses_v3;
"""


@test
def the_management_library(t):
    places = [d for paths in places_of_headers() for d in paths]
    places = [d for d in places if os.path.exists(os.path.join(d, "nvml.h"))]
    if not places:
        t.skip("no nvml.h")
    ours = read(os.path.join(ROOT, "recorder/collector/nvml.c"))
    for struct in re.findall(r"struct (?:memory|user) \{[^}]*\}", NVML):
        t.check(" ".join(struct.split()) in " ".join(ours.split()), f"nvml.c declares it otherwise: {struct}")
    with open(t.path("nvml.c"), "w", encoding="ascii") as file:
        file.write(NVML)
    t.run(["gcc", "-fsyntax-only", "-std=gnu11", "-isystem", places[0], t.path("nvml.c")], status=0)


main()
