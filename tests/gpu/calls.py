"""The CUDA driver's memory functions, one after another, without PyTorch: calls.py FIGURES [--many=N]. Writes what was asked for to FIGURES (JSON).

With --many: N times cuMemAllocAsync and cuMemFreeAsync; writes nanoseconds for a pair.
"""
import ctypes
import json
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
blocks = []


def call(name, *arguments, fails=False):
    result = getattr(cuda, name)(*arguments)
    if (result != 0) != fails:
        raise SystemExit(f"{name} returned {result}")


def u64(value=0):
    return ctypes.c_uint64(value)


def size(value):
    return ctypes.c_size_t(value)


def took(heap, api, bytes_):
    blocks.append({"heap": heap, "api": api, "size": bytes_})


class Properties(ctypes.Structure):
    """CUmemAllocationProp: type, handle types, place, its number; the rest is 0."""
    _fields_ = [("words", ctypes.c_int32 * 32)]


call("cuInit", 0)
context, device = ctypes.c_void_p(), ctypes.c_int()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
many = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--many=")), 0)
p, handle, host = u64(), u64(), ctypes.c_void_p()
if many:
    pool, keep = ctypes.c_void_p(), u64(1 << 40)
    call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), device)
    call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))  # release threshold: nothing goes back to the system
    alloc, free, place, bytes_ = cuda.cuMemAllocAsync, cuda.cuMemFreeAsync, ctypes.byref(p), size(4096)
    for n in (1000, many):
        begin = time.perf_counter_ns()
        for _ in range(n):
            alloc(place, bytes_, None)
            free(p, None)
        pair_ns = (time.perf_counter_ns() - begin) / n
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump({"pairs": many, "pair_ns": pair_ns}, file)
    raise SystemExit(0)
call("cuMemAlloc_v2", ctypes.byref(p), size(3 * MIB))
took("cuda:0", "cuMemAlloc", 3 * MIB)
call("cuMemFree_v2", p)
call("cuMemAllocManaged", ctypes.byref(p), size(2 * MIB), 1)
took("cuda-managed", "cuMemAllocManaged", 2 * MIB)
call("cuMemFree_v2", p)
call("cuMemHostAlloc", ctypes.byref(host), size(4096), 0)
took("cuda-host", "cuMemHostAlloc", 4096)
call("cuMemFreeHost", host)
call("cuMemAllocAsync", ctypes.byref(p), size(5 * MIB), None)
took("cuda-pool:0", "cuMemAllocAsync", 5 * MIB)
call("cuMemFreeAsync", p, None)
call("cuCtxSynchronize")
properties = Properties()
properties.words[0], properties.words[2] = 1, 1
granularity = size(0)
call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), 0)
step = max(2 * MIB, granularity.value)
call("cuMemAddressReserve", ctypes.byref(p), size(2 * step), size(0), u64(0), u64(0))
took("cuda-va:0", "cuMemAddressReserve", 2 * step)
call("cuMemCreate", ctypes.byref(handle), size(step), ctypes.byref(properties), u64(0))
took("cuda:0", "cuMemCreate", step)
call("cuMemMap", p, size(step), size(0), handle, u64(0))
took("cuda-map:0", "cuMemMap", step)
call("cuMemRelease", handle)
call("cuMemUnmap", p, size(step))
call("cuMemAddressFree", p, size(2 * step))
call("cuMemAlloc_v2", ctypes.byref(p), size(1 << 50), fails=True)
with open(sys.argv[1], "w", encoding="ascii") as file:
    json.dump({"blocks": blocks, "refused": 1}, file, indent=1)
