"""As much of PyTorch as train.py and check_gpu.py use, over the double of the driver: the check for real devices is tried with it where there is none.

A caching allocator in few lines: blocks of 512 bytes' multiples out of segments of 2 MiB (or larger), from cuMemAlloc or, with expandable segments, from mapped
memory of cuMemCreate. It tells the same reporter, and keeps the same figures, under PyTorch's names.
"""
import ctypes
import os
import types

__version__ = "2.11.0+double"
version = types.SimpleNamespace(cuda="13.0")
uint8 = 1
_MIB = 1 << 20
_driver, _here = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
_here.strdup.restype = ctypes.c_void_p
_kernel = ctypes.c_void_p(_here.strdup(b"fake_kernel,8"))  # stays, as a driver's names do, when the interpreter has ended
_expandable = "expandable_segments:True" in os.environ.get("PYTORCH_ALLOC_CONF", "")


class OutOfMemoryError(RuntimeError):
    pass


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]


_report = getattr(_here, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", None)
if _report:
    _report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, _Device]
_segments, _cached, _figures = [], {}, {"allocated": 0, "reserved": 0, "allocated_peak": 0, "reserved_peak": 0, "count": 0, "ooms": 0}
_started = [False]


def _start():
    if not _started[0]:
        context = ctypes.c_void_p()
        _driver.cuInit(0)
        _driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        _driver.cuCtxSetCurrent(context)
        _started[0] = True


def _map(size):
    properties, base = (ctypes.c_int32 * 32)(1, 0, 1, 0), ctypes.c_uint64()
    _driver.cuMemAddressReserve(ctypes.byref(base), ctypes.c_size_t(4 * size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
    for at in range(0, size, 2 * _MIB):
        handle = ctypes.c_uint64()
        if _driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(2 * _MIB), properties, ctypes.c_uint64(0)):
            return None
        _driver.cuMemMap(ctypes.c_uint64(base.value + at), ctypes.c_size_t(2 * _MIB), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        _driver.cuMemRelease(handle)
    return base.value


def _segment(size):
    _start()
    address = ctypes.c_uint64()
    if _expandable:
        address.value = (_map(size) or 0) if size < 1 << 32 else 0
    if not address.value and _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)):
        _figures["ooms"] += 1
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
    segment = {"device": 0, "address": address.value, "total_size": size, "used": 0, "live": 0}
    _segments.append(segment)
    _figures["reserved"] += size
    _figures["reserved_peak"] = max(_figures["reserved_peak"], _figures["reserved"])
    return segment


class Tensor:
    def __init__(self, size):
        self.size = (size + 511) // 512 * 512
        self.address, self.segment = _cached.get(self.size, []).pop() if _cached.get(self.size) else (0, None)
        if not self.segment:
            self.segment = next((s for s in _segments if s["used"] + self.size <= s["total_size"]), None)
            self.segment = self.segment or _segment((self.size + 2 * _MIB - 1) // (2 * _MIB) * 2 * _MIB)
            self.address = self.segment["address"] + self.segment["used"]
            self.segment["used"] += self.size
        self.segment["live"] += 1
        _figures["count"] += 1
        self.tell(self.size)

    def tell(self, size):
        _figures["allocated"] += size
        _figures["allocated_peak"] = max(_figures["allocated_peak"], _figures["allocated"])
        if _report:
            _report(self.address, size, _figures["allocated"], _figures["reserved"], _Device(1, 0))

    def __del__(self):
        if getattr(self, "segment", None):
            self.segment["live"] -= 1
            _cached.setdefault(self.size, []).append((self.address, self.segment))
            self.tell(-self.size)

    def __add__(self, other):
        del other
        _launch()
        return Tensor(self.size)

    def sum(self):
        return Tensor(4)

    def item(self):
        return 0.0

    def backward(self):
        _launch()
        self.gradient = Tensor(40000)


def _launch():
    values = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(ctypes.c_uint64(1)), ctypes.c_void_p))
    _driver.cuLaunchKernel(_kernel, 1, 1, 1, 1, 1, 1, 0, None, values, None)


def device(name):
    return name


def _product(shape):
    n = 4
    for side in shape:
        n *= side
    return n


def randn(*shape, device=None):
    del device
    return Tensor(_product(shape))


def randint(low, high, shape, device=None):
    del low, high, device
    return Tensor(2 * _product(shape))


def ones(n, device=None):
    del device
    return Tensor(4 * n)


def empty(n, dtype=None, device=None):
    del dtype, device
    return Tensor(n)


class _Module:
    def __init__(self, *of, **more):
        self.of, self.more = [m for m in of if isinstance(m, _Module)], more

    def to(self, where):
        self.weights, _ = [Tensor(4 << 12) for _ in self.of], where
        return self

    def parameters(self):
        return self.weights

    def __call__(self, x):
        for _ in self.of:
            _launch()
            x = Tensor(x.size)
        return x


class _AdamW:
    def __init__(self, parameters):
        self.parameters, self.state = parameters, []

    def step(self):
        _launch()
        self.state = self.state or [Tensor(p.size) for p in self.parameters]

    def zero_grad(self, set_to_none):
        del set_to_none


def _cross_entropy(output, labels):
    del labels
    _launch()
    return Tensor(output.size)


nn = types.SimpleNamespace(Sequential=_Module, Conv2d=_Module, ReLU=_Module, AdaptiveAvgPool2d=_Module, Flatten=_Module, Linear=_Module,
                           functional=types.SimpleNamespace(cross_entropy=_cross_entropy))
optim = types.SimpleNamespace(AdamW=_AdamW)
autograd = types.SimpleNamespace(DeviceType=types.SimpleNamespace(CUDA=1))


# --- torch.cuda ---

def _stats(where):
    del where
    f = _figures
    return {"allocated_bytes.all.current": f["allocated"], "reserved_bytes.all.current": f["reserved"], "active_bytes.all.current": f["allocated"] + 512,
            "inactive_split_bytes.all.current": 1024, "allocated_bytes.all.peak": f["allocated_peak"], "reserved_bytes.all.peak": f["reserved_peak"],
            "allocation.all.allocated": f["count"], "num_ooms": f["ooms"]}


def _nested_stats(device=None):
    """As PyTorch's: memory_stats() is made of it, each key of the keys on the way to its figure."""
    nested = {}
    for key, value in _stats(device).items():
        *way, last = key.split(".")
        place = nested
        for name in way:
            place = place.setdefault(name, {})
        place[last] = value
    return nested


def _empty_cache():
    for s in [s for s in _segments if not s["live"] and not _expandable]:
        _driver.cuMemFree_v2(ctypes.c_uint64(s["address"]))
        _segments.remove(s)
        _figures["reserved"] -= s["total_size"]
    for size in _cached:
        _cached[size] = [b for b in _cached[size] if b[1] in _segments]


def _mem_get_info(where=None):
    del where
    _start()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


cuda = types.SimpleNamespace(
    is_available=lambda: True, is_initialized=lambda: _started[0], device_count=lambda: 1, get_device_name=lambda n: f"Fake GPU {n}",
    get_device_properties=lambda n: types.SimpleNamespace(total_memory=_mem_get_info()[1]), synchronize=lambda: None, memory_stats=_stats,
    memory_stats_as_nested_dict=_nested_stats,
    mem_get_info=_mem_get_info, memory_snapshot=lambda: [dict(s) for s in _segments], empty_cache=_empty_cache)


# --- torch.profiler: who asks CUPTI for events has them, unless somebody else does ---

class _Profile:
    def __init__(self, **what):
        del what

    def __enter__(self):
        _start()
        subscribe = getattr(_here, "cuptiSubscribe", None) or ctypes.CDLL("libcupti.so.12").cuptiSubscribe
        self.answer = subscribe(ctypes.byref(ctypes.c_void_p()), None, None)
        return self

    def __exit__(self, *error):
        return False

    def events(self):
        return [types.SimpleNamespace(device_type=1 if self.answer == 0 else 0)]


profiler = types.SimpleNamespace(profile=_Profile)
