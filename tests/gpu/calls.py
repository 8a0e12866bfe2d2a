"""The CUDA driver's memory functions, one after another, without PyTorch: calls.py FIGURES | --turns | --open=HANDLE. Writes what was asked for to FIGURES (JSON).

With --turns: cuMemAllocAsync and cuMemFreeAsync, as many times as each line of the input says, and for each line the nanoseconds for a pair. With --open: a process of its own, which opens another one's memory, prints how
long it is, and closes it again. What a driver does not have or support is left out and listed as missing; what fails otherwise is listed as failed, and the rest goes on.
"""
import ctypes
import json
import mmap
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cuda import MIB, Failed, call, cuda, first_context, of_device, run, size, took, u64, write  # noqa: E402


class Descriptor(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_uint), ("channels", ctypes.c_uint)]


class Descriptor3D(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t), ("format", ctypes.c_uint), ("channels", ctypes.c_uint),
                ("flags", ctypes.c_uint)]


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class NodeParameters(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS: CUmemPoolProps, who may reach it, bytes, address."""
    _fields_ = [("pool", ctypes.c_int32 * 22), ("access", ctypes.c_void_p), ("access_count", ctypes.c_size_t), ("bytes", ctypes.c_size_t),
                ("address", ctypes.c_uint64)]


context, device = first_context()
p, handle, host = u64(), u64(), ctypes.c_void_p()
if "--turns" in sys.argv:
    pool, keep = ctypes.c_void_p(), u64(1 << 40)
    call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), device)
    call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))  # release threshold: nothing goes back to the system
    alloc, free, place, bytes_ = cuda.cuMemAllocAsync, cuda.cuMemFreeAsync, ctypes.byref(p), size(4096)
    print("ready", flush=True)
    for line in sys.stdin:
        n = int(line)
        begin = time.perf_counter_ns()
        for _ in range(n):
            alloc(place, bytes_, None)
            free(p, None)
        print(json.dumps({"pair": (time.perf_counter_ns() - begin) / n}), flush=True)
    raise SystemExit(0)


opens = next((bytes.fromhex(a.split("=")[1]) for a in sys.argv if a.startswith("--open=")), None)
if opens:
    base, length = u64(), size(0)
    call("cuIpcOpenMemHandle_v2", ctypes.byref(p), Handle((ctypes.c_ubyte * 64)(*opens)), 1)
    call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(length), p)
    call("cuIpcCloseMemHandle", p)
    print(length.value)
    raise SystemExit(0)


def on_device():
    pitch = size(0)
    call("cuMemAlloc_v2", ctypes.byref(p), size(3 * MIB))
    took("cuda:0", "cuMemAlloc", 3 * MIB)
    call("cuMemFree_v2", p)
    call("cuMemAllocPitch_v2", ctypes.byref(p), ctypes.byref(pitch), size(1000), size(64), 4)
    took("cuda:0", "cuMemAllocPitch", pitch.value * 64)
    call("cuMemFree_v2", p)


def managed():
    call("cuMemAllocManaged", ctypes.byref(p), size(2 * MIB), 1)
    took("cuda-managed", "cuMemAllocManaged", 2 * MIB)
    call("cuMemFree_v2", p)


def on_host():
    for name, bytes_, more in (("cuMemHostAlloc", 4096, (0,)), ("cuMemAllocHost_v2", 8192, ())):
        call(name, ctypes.byref(host), size(bytes_), *more)
        took("cuda-host", "cuMemHostAlloc", bytes_)
        call("cuMemFreeHost", host)
    memory = mmap.mmap(-1, 16384)
    there = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    call("cuMemHostRegister_v2", there, size(16384), 0)
    took("cuda-host-registered", "cuMemHostRegister", 16384)
    call("cuMemHostUnregister", there)


def in_pools():
    pool = ctypes.c_void_p()
    call("cuMemAllocAsync", ctypes.byref(p), size(5 * MIB), None)
    took("cuda-pool:0", "cuMemAllocAsync", 5 * MIB)
    call("cuMemFreeAsync", p, None)
    call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
    call("cuMemAllocFromPoolAsync", ctypes.byref(p), size(3 * MIB), pool, None)
    took("cuda-pool:0#1", "cuMemAllocFromPoolAsync", 3 * MIB)
    call("cuMemFreeAsync", p, None)
    call("cuCtxSynchronize")
    call("cuMemPoolTrimTo", pool, size(0))
    call("cuMemPoolDestroy", pool)


def mapped():
    granularity, again = size(0), u64()
    call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), 0)
    step = max(2 * MIB, granularity.value)
    call("cuMemAddressReserve", ctypes.byref(p), size(2 * step), size(0), u64(0), u64(0))
    took("cuda-va:0", "cuMemAddressReserve", 2 * step)
    call("cuMemCreate", ctypes.byref(handle), size(step), ctypes.byref(properties), u64(0))
    took("cuda:0", "cuMemCreate", step)
    call("cuMemMap", p, size(step), size(0), handle, u64(0))
    took("cuda-map:0", "cuMemMap", step)
    call("cuMemRelease", handle)
    call("cuMemRetainAllocationHandle", ctypes.byref(again), p)
    call("cuMemUnmap", p, size(step))
    call("cuMemRelease", again)
    call("cuMemAddressFree", p, size(2 * step))


def arrays():
    array, descriptor = ctypes.c_void_p(), Descriptor(64, 16, 0x20, 4)
    call("cuArrayCreate_v2", ctypes.byref(array), ctypes.byref(descriptor))
    took("cuda:0", "cuArrayCreate", 64 * 16 * 16)
    call("cuArrayDestroy", array)
    deep = Descriptor3D(64, 32, 0, 0x20, 4, 0)
    call("cuMipmappedArrayCreate", ctypes.byref(array), ctypes.byref(deep), 4)
    took("cuda:0", "cuMipmappedArrayCreate", (64 * 32 + 32 * 16 + 16 * 8 + 8 * 4) * 16)
    call("cuMipmappedArrayDestroy", array)


def of_another_process():
    """A process of its own opens memory of this one: nobody may open one's own."""
    shared = Handle()
    call("cuMemAlloc_v2", ctypes.byref(p), size(6 * MIB))
    took("cuda:0", "cuMemAlloc", 6 * MIB)
    try:
        call("cuIpcGetMemHandle", ctypes.byref(shared), p)
        other = subprocess.run([sys.executable, __file__, "-", "--open=" + bytes(shared.bytes).hex()], capture_output=True, text=True, timeout=60)
        if other.returncode:
            raise Failed(f"opening memory of another process: {other.stderr.strip().splitlines()[-1:]}")
        took("cuda-ipc:0", "cuIpcOpenMemHandle", int(other.stdout))
    finally:
        call("cuMemFree_v2", p)


def in_graphs():
    graph, runs, node, last = (ctypes.c_void_p() for _ in range(4))
    parameters = NodeParameters(bytes=2 * MIB)
    parameters.pool[0], parameters.pool[2] = 1, 1
    call("cuGraphCreate", ctypes.byref(graph), 0)
    call("cuGraphAddMemAllocNode", ctypes.byref(node), graph, None, size(0), ctypes.byref(parameters))
    took("cuda-graph:0", "cuGraphAddMemAllocNode", 2 * MIB)
    call("cuGraphAddMemFreeNode", ctypes.byref(last), graph, ctypes.byref(node), size(1), u64(parameters.address))
    call("cuGraphInstantiateWithFlags", ctypes.byref(runs), graph, u64(0))
    call("cuGraphLaunch", runs, None)
    call("cuCtxSynchronize")
    call("cuGraphExecDestroy", runs)
    call("cuGraphDestroy", graph)
    call("cuDeviceGraphMemTrim", device)


def captured():
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(stream), 1)
    call("cuStreamBeginCapture_v2", stream, 2)
    call("cuMemAllocAsync", ctypes.byref(p), size(4 * MIB), stream)
    took("cuda-graph:0", "cuMemAllocAsync", 4 * MIB)
    call("cuMemFreeAsync", p, stream)
    call("cuStreamEndCapture", stream, ctypes.byref(graph))
    call("cuGraphDestroy", graph)
    call("cuStreamDestroy_v2", stream)


def with_a_context():
    other = ctypes.c_void_p()
    call("cuCtxCreate_v2", ctypes.byref(other), 0, device)
    call("cuMemAlloc_v2", ctypes.byref(p), size(7 * MIB))
    took("cuda:0", "cuMemAlloc", 7 * MIB)
    call("cuCtxDestroy_v2", other)
    call("cuCtxSetCurrent", context)


properties = of_device()
run((on_device, managed, on_host, in_pools, mapped, arrays, in_graphs, captured, of_another_process, with_a_context))
call("cuMemAlloc_v2", ctypes.byref(p), size(1 << 50), fails=True)
write(sys.argv[1], refused=1)
