"""What few programs ask of the CUDA driver: rare.py FIGURES [--without-batches] | --import=FD:POINTER. Writes to FIGURES (JSON), beside what calls.py does, how often each block is used by work, by
its size, which functions were refused memory, and answers of the driver.

With --without-batches: no copies in batches, which no CUPTI tells of that is older than CUDA 13. With --import: a process of its own, which takes a pointer of another one's pool and prints how much memory there is. Needs a compiler of the driver's for what runs (PTX).
"""
import ctypes
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cuda import MIB, PTX, Failed, NotSupported, Properties, call, first_context, of_device, result_of, run, size, took, u64, write  # noqa: E402

OUT_OF_MEMORY = 2
OTHER_PTX = PTX.replace(b".param .u64 at, .param .u32 n", b".param .u32 n, .param .u64 between, .param .u64 at")
DESCRIPTOR_PTX = PTX.replace(b".param .u64 at, .param .u32 n", b".param .align 64 .b8 descriptor[128], .param .u64 at, .param .u32 n")
GREEDY_PTX = PTX.replace(b".reg .u32 %n;", b".reg .u32 %n, %t;\n\t.reg .u64 %l<4>;\n\t.local .align 8 .b8 much[500000];").replace(b"st.global", b"""mov.u64 %l1, much;
	mov.u32 %t, %tid.x;
	mad.wide.u32 %l2, %t, 8, %l1;
	st.local.u32 [%l2], %n;
	mad.wide.u32 %l3, %n, 8, %l1;
	ld.local.u32 %n, [%l3];
	st.global""")
p, stream = u64(), ctypes.c_void_p()
uses, refused, answers = {}, [], {}
context, device = first_context()


def import_pointer(descriptor, pointer):
    pool, base, length = ctypes.c_void_p(), u64(), size(0)
    call("cuMemPoolImportFromShareableHandle", ctypes.byref(pool), ctypes.c_void_p(descriptor), 1, u64(0))
    call("cuMemPoolImportPointer", ctypes.byref(p), pool, (ctypes.c_ubyte * 64)(*pointer))
    call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(length), p)
    call("cuMemFreeAsync", p, None)
    call("cuCtxSynchronize")
    print(length.value)


imports = next((a.split("=")[1].split(":") for a in sys.argv if a.startswith("--import=")), None)
if imports:
    import_pointer(int(imports[0]), bytes.fromhex(imports[1]))
    raise SystemExit(0)


def kernel_of(ptx):
    """(module, function)"""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
    call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"fill"))
    return module, function


def launch_result(function, values=None, extra=None):
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values)) if values else None
    return result_of("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, extra)


def launch(function, values=None, extra=None):
    result = launch_result(function, values, extra)
    if result:
        raise Failed(f"cuLaunchKernel returned {result}")
    call("cuCtxSynchronize")


def used(bytes_, times):
    uses[str(bytes_)] = times


def block(bytes_):
    at = u64()
    call("cuMemAlloc_v2", ctypes.byref(at), size(bytes_))
    took("cuda:0", "cuMemAlloc", bytes_)
    return at


def packed_parameters():
    """As one buffer, which is named in a list, and one by one."""
    at, module_and_function = block(3 * MIB + 1000), kernel_of(PTX)
    buffer, length = (ctypes.c_uint64 * 2)(at.value, 7), size(12)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(length), None)
    launch(module_and_function[1], extra=extra)
    launch(module_and_function[1], values=(at, ctypes.c_uint32(7)))
    used(3 * MIB + 1000, 2)
    call("cuModuleUnload", module_and_function[0])
    call("cuMemFree_v2", at)


def modules_that_are_unloaded():
    """Kernels of one name with other parameters: the second one may have the handle of the first."""
    at = block(3 * MIB + 2000)
    same = []
    for _ in range(5):
        first, function = kernel_of(PTX)
        launch(function, values=(at, ctypes.c_uint32(7)))
        call("cuModuleUnload", first)
        second, other = kernel_of(OTHER_PTX)
        launch(other, values=(ctypes.c_uint32(7), u64(at.value + 8), at))
        same.append(function.value == other.value)
        call("cuModuleUnload", second)
    used(3 * MIB + 2000, 15)
    answers["kernels of another module that have the handle of the one before"] = f"{sum(same)} of {len(same)}"
    call("cuMemFree_v2", at)


def batches():
    one, other = block(3 * MIB + 3000), block(3 * MIB + 4000)
    attributes = (ctypes.c_int32 * 6)(1)
    places = lambda value: (ctypes.c_uint64 * 3)(*(value + 4096 * i for i in range(3)))
    sizes, first = (ctypes.c_size_t * 3)(4096, 4096, 4096), (ctypes.c_size_t * 1)(0)
    call("cuMemcpyBatchAsync_v2", places(one.value), places(other.value), sizes, size(3), attributes, first, size(1), stream)
    call("cuCtxSynchronize")
    used(3 * MIB + 3000, 3)
    used(3 * MIB + 4000, 3)
    call("cuMemFree_v2", one)
    call("cuMemFree_v2", other)


def descriptors_of_tensors():
    """A descriptor is what the driver makes of an address and shapes, and a kernel's parameter."""
    at, room = block(3 * MIB + 5000), (ctypes.c_uint64 * 24)()
    descriptor = (ctypes.c_uint64 * 16).from_address(ctypes.addressof(room) + -ctypes.addressof(room) % 64)
    call("cuTensorMapEncodeTiled", ctypes.byref(descriptor), 2, 2, at, (ctypes.c_uint64 * 2)(64, 64), (ctypes.c_uint64 * 1)(256), (ctypes.c_uint32 * 2)(16, 16),
         (ctypes.c_uint32 * 2)(1, 1), 0, 0, 0, 0)
    shown = [i for i in range(16) if descriptor[i] == at.value]
    answers["words of a descriptor of a tensor that are its address"] = str(shown)
    module, function = kernel_of(DESCRIPTOR_PTX)
    launch(function, values=(descriptor, at, ctypes.c_uint32(7)))
    used(3 * MIB + 5000, 1)  # of one launch, an address is told once
    call("cuModuleUnload", module)
    call("cuMemFree_v2", at)


def pool_of(type_, place, number, heap, bytes_):
    pool, properties = ctypes.c_void_p(), Properties()
    properties.words[0], properties.words[2], properties.words[3] = type_, place, number
    result = result_of("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
    if result:
        raise NotSupported(f"cuMemPoolCreate, which returned {result}")
    call("cuMemAllocFromPoolAsync", ctypes.byref(p), size(bytes_), pool, None)
    took(heap, "cuMemAllocFromPoolAsync", bytes_)
    call("cuMemFreeAsync", p, None)
    call("cuCtxSynchronize")
    call("cuMemPoolDestroy", pool)


def pool_of_the_host():
    pool_of(1, 2, 0, "cuda-host", 3 * MIB + 6000)


def pool_of_a_node_of_the_host():
    pool_of(1, 3, 0, "cuda-host", 3 * MIB + 7000)


def pool_of_managed_memory():
    pool_of(2, 1, 0, "cuda-managed", 3 * MIB + 8000)


def pointer_of_another_process():
    pool, descriptor, pointer = ctypes.c_void_p(), ctypes.c_int(), (ctypes.c_ubyte * 64)()
    call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(of_device(handle_types=1)))
    call("cuMemAllocFromPoolAsync", ctypes.byref(p), size(6 * MIB), pool, None)
    took("cuda-pool:0#1", "cuMemAllocFromPoolAsync", 6 * MIB)
    call("cuCtxSynchronize")
    call("cuMemPoolExportToShareableHandle", ctypes.byref(descriptor), pool, 1, u64(0))
    call("cuMemPoolExportPointer", pointer, p)
    other = subprocess.run([sys.executable, __file__, f"--import={descriptor.value}:{bytes(pointer).hex()}"], pass_fds=[descriptor.value], capture_output=True, text=True,
                           timeout=60)
    os.close(descriptor.value)
    if other.returncode:
        raise Failed(f"importing a pointer: {other.stderr.strip().splitlines()[-1:]}")
    took("cuda-ipc:0", "cuMemPoolImportPointer", int(other.stdout))
    call("cuMemFreeAsync", p, None)
    call("cuCtxSynchronize")
    call("cuMemPoolDestroy", pool)


def external_memory():
    """As memory of another interface: what cuMemCreate gave, by a file descriptor."""
    handle, descriptor, external = u64(), ctypes.c_int(), ctypes.c_void_p()
    call("cuMemCreate", ctypes.byref(handle), size(4 * MIB), ctypes.byref(of_device(handle_types=1)), u64(0))
    took("cuda:0", "cuMemCreate", 4 * MIB)
    call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, 1, u64(0))
    wanted = (ctypes.c_uint64 * 13)(1, descriptor.value, 0, 4 * MIB, 1)
    result = result_of("cuImportExternalMemory", ctypes.byref(external), wanted)
    answers["cuImportExternalMemory of a descriptor of cuMemCreate's"] = str(result)
    if result == 0:
        call("cuExternalMemoryGetMappedBuffer", ctypes.byref(p), external, (ctypes.c_uint64 * 12)(0, 4 * MIB))
        took("cuda-ipc:0", "cuExternalMemoryGetMappedBuffer", 4 * MIB)
        call("cuMemFree_v2", p)
        call("cuDestroyExternalMemory", external)
    else:
        os.close(descriptor.value)
    call("cuMemRelease", handle)


def all_but(bytes_):
    """Holds what the device has left, but for so much: the blocks."""
    held, free, total = [], size(0), size(0)
    while True:
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        wanted = (free.value - bytes_) // (2 * MIB) * 2 * MIB if free.value > bytes_ + 2 * MIB else 0
        wanted = min(wanted, 16 << 30)
        if not wanted:
            return held
        at = u64()
        if result_of("cuMemAlloc_v2", ctypes.byref(at), size(wanted)):
            return held
        held.append(at)


def a_refused_launch():
    """Of a kernel whose threads have half a MiB each of their own, for as many threads as the device can run at once."""
    at = block(3 * MIB + 9000)
    module, function = kernel_of(GREEDY_PTX)
    held = all_but(2 << 30)
    result = launch_result(function, values=(at, ctypes.c_uint32(3)))
    answers["cuLaunchKernel that wants much memory of its own"] = str(result)
    refused.extend(["cuLaunchKernel"] * (result == OUT_OF_MEMORY))
    for each in [*held, at]:
        call("cuMemFree_v2", each)
    call("cuModuleUnload", module)


def a_refused_context():
    other, held = ctypes.c_void_p(), all_but(0)
    result = result_of("cuCtxCreate_v2", ctypes.byref(other), 0, device)
    answers["cuCtxCreate where the device has nothing left"] = str(result)
    refused.extend(["cuCtxCreate"] * (result == OUT_OF_MEMORY))
    if result == 0:
        call("cuCtxDestroy_v2", other)
        call("cuCtxSetCurrent", context)
    for each in held:
        call("cuMemFree_v2", each)


call("cuStreamCreate", ctypes.byref(stream), 1)
parts = (packed_parameters, modules_that_are_unloaded, batches, descriptors_of_tensors, pointer_of_another_process, pool_of_the_host, pool_of_a_node_of_the_host,
     pool_of_managed_memory, external_memory, a_refused_launch, a_refused_context)
run(parts if "--without-batches" not in sys.argv else [part for part in parts if part is not batches])
write(sys.argv[1], uses=uses, refused=refused, answers=answers)
