"""The CUDA driver by ctypes, for calls.py, rare.py and check_gpu.py: its calls, a kernel, and what was asked for, which figures are made of."""
import ctypes
import json

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
NOT_SUPPORTED = 801
blocks, missing, failed = [], [], []
# A kernel that writes a number to an address.
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 at, .param .u32 n) {
	.reg .u64 %a<3>;
	.reg .u32 %n;
	ld.param.u64 %a1, [at];
	ld.param.u32 %n, [n];
	cvta.to.global.u64 %a2, %a1;
	st.global.u32 [%a2], %n;
	ret;
}
"""


class NotSupported(Exception):
    pass


class Failed(Exception):
    pass


def result_of(name, *arguments):
    function = getattr(cuda, name, None)
    return function(*arguments) if function else NOT_SUPPORTED


def call(name, *arguments, fails=False):
    result = result_of(name, *arguments)
    if result == NOT_SUPPORTED:
        raise NotSupported(name)
    if (result != 0) != fails:
        raise Failed(f"{name} returned {result}")


def u64(value=0):
    return ctypes.c_uint64(value)


def size(value):
    return ctypes.c_size_t(value)


def took(heap, api, bytes_):
    blocks.append({"heap": heap, "api": api, "size": bytes_})


class Properties(ctypes.Structure):
    """CUmemAllocationProp, CUmemPoolProps: type, handle types, place, its number; the rest is 0."""
    _fields_ = [("words", ctypes.c_int32 * 32)]


def of_device(handle_types=0):
    properties = Properties()
    properties.words[0], properties.words[1], properties.words[2] = 1, handle_types, 1
    return properties


def first_context():
    """Of the first device, current: (context, device)."""
    context, device = ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    return context, device


def run(parts):
    """Each by itself: what one of them lacks does not keep the others from running."""
    for part in parts:
        before = len(blocks)
        try:
            part()
        except (NotSupported, Failed) as which:
            (missing if isinstance(which, NotSupported) else failed).append(f"{part.__name__}: {which}")
            del blocks[before:]


def write(path, **figures):
    with open(path, "w", encoding="ascii") as file:
        json.dump({"blocks": blocks, "missing": missing, "failed": failed, **figures}, file, indent=1)
