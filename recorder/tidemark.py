"""tidemark - tell tidemark what your Python program is doing. One file, no dependency, Python 3.8 and later.

    import tidemark

    @tidemark.profile
    def train():
        for i in range(100):
            tidemark.step(i)
            with tidemark.scope("forward"):
                ...

While the program is recorded (`tidemark record python3 train.py`) each call leaves an event in the trace. While it is not, nothing happens:
a scope is an empty `with`, profile() returns the function as it is, and stats() returns zeros.

    scope("name")       with scope("name"): ...  What is allocated inside belongs to the scope. An exception closes it, is marked, and goes on unchanged.
                        One object may be entered again, also while it is open, on any thread.
    @profile            A scope around every call, with the function's qualified name; @profile("name") gives another. Also for async functions,
                        generators and async generators: there it is open only while the body runs, not while it is suspended.
    step(n)             Step n of the process begins, and the one before ends.
    mark("name")        An instant with a name.
    snapshot("label")   Keeps what is live now.
    baseline()          Statistics begin anew here.
    stop()  start()     Recording off and on, for the whole process. Frees of recorded blocks are still seen.
    stats(heap)         live_bytes, live_count, peak_bytes, peak_since_reset_bytes, allocations, frees, exact: as of now.
    reset_peak(heap)    peak_since_reset_bytes begins anew.

A heap is named as in tidemark's tables: "malloc", "mmap", "torch.cpu", "torch.cuda:0", a pool of the program's. A number, a device object, or
None for the current device means torch.cuda:N. A device or heap that is not there is a ValueError that says which are; what is there only
the recorder knows. All other errors of arguments are the same without it.

Names may be any text. What has no UTF-8 is written as backslashreplace does ("\\udcff", of bytes "\\xff"), and a zero byte as "\\x00".

Tasks. A scope belongs to the thread that opened it, and an event to the scope opened last on its thread. Where one thread runs several tasks, a scope is
therefore closed while its task is suspended, and opened again when it goes on: each stretch is an instance of its own, and other tasks see nothing of it.
This holds for asyncio's own loop, and on any loop for scopes inside of what @profile decorates. In a generator without @profile a scope stays open over
`yield`, and what the caller does until then counts in it.
"""
import contextvars
import ctypes
import functools
import inspect
import sys
import threading
from collections import namedtuple

__all__ = ["scope", "profile", "step", "mark", "snapshot", "baseline", "start", "stop", "stats", "reset_peak", "Stats"]

Stats = namedtuple("Stats", "live_bytes live_count peak_bytes peak_since_reset_bytes allocations frees exact")

_NAMED_HEAPS = ("malloc", "mmap", "mmap-file", "python", "torch.cpu")
_DEVICES_ASKED = 16
_NO_SUCH_HEAP = -2


class _RawStats(ctypes.Structure):
    _fields_ = [("figures", ctypes.c_uint64 * 6), ("exact", ctypes.c_int)]


def _functions():
    """The recorder's functions by name, as the library in this process exports them; {} if it is not there."""
    text, number, size, pointer = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.POINTER(_RawStats)
    known = {"mark": (None, text), "snapshot": (None, text), "baseline": (None,), "step": (None, ctypes.c_int64), "start": (None,), "stop": (None,),
             "range_begin": (number, text, text), "range_end": (None, number, ctypes.c_int), "stats": (ctypes.c_int, text, pointer, size),
             "reset_peak": (None, text), "pool_state": (None, text, number, number, number, number)}
    found = {}
    try:
        quick, slow = ctypes.PyDLL(None), ctypes.CDLL(None)  # only what waits gives other threads the time
        for name, (result, *arguments) in known.items():
            function = getattr(slow if name == "stats" else quick, "tidemark_api_%s_v1" % name)
            function.restype, function.argtypes = result, arguments
            found[name] = function
    except (OSError, AttributeError):
        return {}
    return found


_api = _functions()


def _text(name):
    """The name as the recorder takes it: UTF-8 without a zero byte, and never an error."""
    if not isinstance(name, (str, bytes)):
        try:
            name = str(name)
        except Exception:  # pylint: disable=broad-except  # the program's own __str__
            name = "<unprintable %s object>" % type(name).__name__
    if isinstance(name, bytes):
        name = bytes.decode(name, "utf-8", "backslashreplace")
    return str.encode(name, "utf-8", "backslashreplace").replace(b"\0", b"\\x00")


# --- scopes ---

class _Thread(threading.local):
    def __init__(self):
        self.open = []      # scopes, outermost first
        self.stray = None   # asyncio: (context, how many scopes were open before its task opened one)


_thread = _Thread()


class _Scope:
    """One `with`. `id` is that of the open instance; `more`: those of who entered it meanwhile, by recursion, on another thread or in another task."""
    __slots__ = ("name", "id", "among", "entered", "more")

    def __init__(self, name):
        self.name, self.id, self.among, self.entered, self.more = name, None, None, False, []

    def __enter__(self):
        _watch_asyncio()
        one = self
        if self.entered:
            one = _Scope(self.name)
            self.more.append(one)
        self.entered = True
        one.begin(_thread.open)
        return self

    def __exit__(self, kind, _value, _traceback):
        one = self.innermost() if self.more else self
        if one is self:
            self.entered = False
        else:
            self.more.remove(one)
        one.end(kind is not None and not issubclass(kind, GeneratorExit))
        return False

    def innermost(self):
        """Of all that were entered by this one, the one that was opened last on this thread."""
        for one in reversed(_thread.open):
            if one is self or one in self.more:
                return one
        return self.more[-1]

    def begin(self, among):
        self.among = among
        among.append(self)
        self.id = _api["range_begin"](b"python", self.name)

    def end(self, exception=False):
        among, self.among = self.among, None
        if among is None:
            return  # suspended: closed already
        if among[-1] is self:
            among.pop()
        else:  # not in order, or on another thread
            among.remove(self)
        _api["range_end"](self.id, exception)


class _Nothing:
    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _traceback):
        return False


_Nothing.__name__, _Nothing.__exit__.__qualname__ = _Scope.__name__, _Scope.__exit__.__qualname__  # in messages
_nothing = _Nothing()


def scope(name):
    """A context manager: what is allocated inside belongs to the scope of this name."""
    return _Scope(_text(name)) if _api else _nothing


def _suspend(base):
    """Closes the scopes beyond the first `base`; returns them, to be opened again."""
    among = _thread.open
    suspended = among[base:]
    for one in reversed(suspended):
        one.end()
    return suspended


def _resume(suspended):
    for one in suspended:
        one.begin(_thread.open)


# --- asyncio: scopes of a task are closed between its steps ---

_suspended = contextvars.ContextVar("tidemark_suspended", default=(None, ()))
_watched = False


def _watch_asyncio():
    """Once asyncio is there: its handles run every step of a task, in a context that is the task's own."""
    global _watched
    events = sys.modules.get("asyncio.events")
    if _watched or not events or not hasattr(events, "Handle"):
        return
    _watched = True
    handle_run = events.Handle._run

    @functools.wraps(handle_run)
    def run(self):
        among, context = _thread.open, self._context
        if _thread.stray:
            _keep(*_thread.stray)
            _thread.stray = None
        base = len(among)
        owner, scopes = context.get(_suspended, (None, ()))
        if scopes and owner is context:
            context.run(_suspended.set, (None, ()))
            _resume(scopes)
        try:
            return handle_run(self)
        finally:
            if len(among) > base:
                _keep(context, base)

    events.Handle._run = run
    frame = sys._getframe()
    while frame and frame.f_code is not handle_run.__code__:
        frame = frame.f_back
    if frame:  # this very step began before we watched
        _thread.stray = (frame.f_locals["self"]._context, len(_thread.open))


def _keep(context, base):
    suspended = _suspend(base)
    if suspended:
        context.run(_suspended.set, (context, suspended))


# --- functions ---

class _Stretches:
    """Runs one stretch of a body after another, each inside of the scope; scopes that the body has open are closed and opened with it."""
    __slots__ = ("inner", "scopes")

    def __init__(self, name, inner):
        self.inner, self.scopes = inner, [_Scope(name)]

    def run(self, function, *arguments):
        base, own = len(_thread.open), self.scopes[0]
        _resume(self.scopes)
        try:
            result = function(*arguments)
        except BaseException as error:
            for one in _thread.open[:base:-1]:
                one.end()
            own.end(not isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit)))
            self.scopes = [own]
            raise
        self.scopes = _suspend(base)
        return result

    def __iter__(self):
        return self

    def __next__(self):
        return self.run(self.inner.send, None)

    def send(self, value):
        return self.run(self.inner.send, value)

    def throw(self, *error):
        return self.run(self.inner.throw, *error)

    def close(self):
        return self.run(self.inner.close)


def _drive(stretches):
    """A generator or coroutine that does as the inner one does, in stretches."""
    value, error = None, None
    while True:
        try:
            out = stretches.send(value) if error is None else stretches.throw(error)
        except StopIteration as end:
            return end.value
        try:
            value, error = (yield out), None
        except GeneratorExit:
            stretches.close()
            raise
        except BaseException as thrown:
            value, error = None, thrown


class _Await:
    __slots__ = ("stretches",)

    def __init__(self, stretches):
        self.stretches = stretches

    def __await__(self):
        return (yield from _drive(self.stretches))


def _wrapped(function, name):
    if inspect.isasyncgenfunction(function):
        @functools.wraps(function)
        async def run_async_generator(*args, **kwargs):
            inner = function(*args, **kwargs)
            step_of = functools.partial(_async_step, _Stretches(name, None))
            value, error = None, None
            try:
                while True:
                    try:
                        out = await step_of(inner.asend(value) if error is None else inner.athrow(error))
                    except StopAsyncIteration:
                        return
                    try:
                        value, error = (yield out), None
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        value, error = None, thrown
            finally:
                await step_of(inner.aclose())
        return run_async_generator
    if inspect.iscoroutinefunction(function):
        @functools.wraps(function)
        async def run_coroutine(*args, **kwargs):
            return await _Await(_Stretches(name, function(*args, **kwargs)))
        return run_coroutine
    if inspect.isgeneratorfunction(function):
        @functools.wraps(function)
        def run_generator(*args, **kwargs):
            return (yield from _drive(_Stretches(name, function(*args, **kwargs))))
        return run_generator

    @functools.wraps(function)
    def run(*args, **kwargs):
        with _Scope(name):
            return function(*args, **kwargs)
    return run


async def _async_step(stretches, awaitable):
    """One step of an async generator: its awaitable has send, throw and close, as a generator has."""
    stretches.inner = awaitable.__await__()
    return await _Await(stretches)


def profile(function=None, name=None):
    """A scope around every call of the function: @profile, @profile("name") or @profile(name="name")."""
    if isinstance(function, (str, bytes)):
        function, name = None, function
    if function is None:
        return functools.partial(profile, name=name)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(profile(function.__func__, name))
    if not _api:
        return function
    return _wrapped(function, _text(name or getattr(function, "__qualname__", None) or repr(function)))


# --- instants ---

def _tell_pools():
    """What PyTorch says of its caching allocators, where it has any: only it knows what is active and what is split off."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return
        for device in range(cuda.device_count()):
            stats = cuda.memory_stats(device)
            if stats.get("reserved_bytes.all.peak"):
                _api["pool_state"](b"torch.cuda:%d" % device, *(stats[name + "_bytes.all.current"] for name in (
                    "allocated", "reserved", "active", "inactive_split")))
    except Exception:  # pylint: disable=broad-except  # another allocator, another version: it is not told
        pass


def step(n):
    """Step n begins; the step before ends."""
    n = int(n)
    if not -1 << 63 <= n < 1 << 63:
        raise OverflowError("a step is a number of 64 bits, not %d" % n)
    if _api:
        _tell_pools()
        _api["step"](n)


def mark(name):
    if _api:
        _tell_pools()
        _api["mark"](_text(name))


def snapshot(label):
    """Keeps what is live now, under this label."""
    if _api:
        _tell_pools()
        _api["snapshot"](_text(label))


def baseline():
    """Statistics begin anew here."""
    if _api:
        _api["baseline"]()


def start():
    """Records again after stop()."""
    if _api:
        _api["start"]()


def stop():
    """Records no allocations from here on, in the whole process."""
    if _api:
        _api["stop"]()


# --- figures ---

def _ask(heap):
    raw = _RawStats()
    status = _api["stats"](_text(heap), ctypes.byref(raw), ctypes.sizeof(raw))
    return status, Stats(*raw.figures, bool(raw.exact))


def _device_count():
    """How many CUDA devices PyTorch sees; None if it is not there to ask."""
    torch = sys.modules.get("torch")
    try:
        return torch.cuda.device_count() if torch else None
    except Exception:  # a build without CUDA, or a driver in a bad state: as if it were not there
        return None


def _known_devices():
    count = _device_count()
    if count is not None:
        return ["torch.cuda:%d" % n for n in range(count)]
    return [name for name in ("torch.cuda:%d" % n for n in range(_DEVICES_ASKED)) if _ask(name)[0] == 0]


def _no_device(what):
    devices = _known_devices()
    raise ValueError("no device %s: %s" % (what, "there are " + ", ".join(devices) if devices else "there is none"))


def _current_device():
    torch = sys.modules.get("torch")
    if not torch or not _device_count():
        return 0
    return torch.cuda.current_device()


def _check_heap(heap):
    """What could name a heap; whether there is one of that name is another question."""
    if heap is None or isinstance(heap, str) or isinstance(heap, int) and not isinstance(heap, bool):
        return
    index = getattr(heap, "index", None)
    if not isinstance(getattr(heap, "type", None), str) or isinstance(index, bool) or not isinstance(index, (int, type(None))):
        raise TypeError("a heap is a name, a device number, a device or None, not %r" % (heap,))


def _heap_name(heap):
    """The heap's name, and whether it stands for a device."""
    if isinstance(heap, str):
        return heap, False
    if heap is None:
        return "torch.cuda:%d" % _current_device(), True
    if isinstance(heap, int):
        return "torch.cuda:%d" % heap, True
    if heap.type == "cpu":
        return "torch.cpu", False
    if heap.type != "cuda":
        _no_device(str(heap))
    return "torch.cuda:%d" % (_current_device() if heap.index is None else heap.index), True


def _checked(heap):
    name, is_device = _heap_name(heap)
    count = _device_count() if is_device else None
    if count is not None and not 0 <= int(name.rpartition(":")[2]) < count:
        _no_device(name)
    status, figures = _ask(name)
    if status == _NO_SUCH_HEAP and is_device and count is None:
        _no_device(name)
    if status == _NO_SUCH_HEAP and not is_device:
        known = [other for other in _NAMED_HEAPS if _ask(other)[0] == 0] + _known_devices()
        if name not in _NAMED_HEAPS and name not in known:
            raise ValueError("no heap %r: there are %s" % (name, ", ".join(known)))
    return name, figures


def stats(heap=None):
    """What is live in the heap, and was at most; zeros if nothing is recorded, or nothing was ever allocated there."""
    _check_heap(heap)
    return _checked(heap)[1] if _api else Stats(0, 0, 0, 0, 0, 0, False)


def reset_peak(heap=None):
    """peak_since_reset_bytes of the heap begins anew, at what is live."""
    _check_heap(heap)
    if _api:
        _api["reset_peak"](_text(_checked(heap)[0]))


if _api:
    _watch_asyncio()
