"""tidemark - tell tidemark what your Python program is doing. One file, no dependency, Python 3.8 and later.

    import tidemark

    @tidemark.profile
    def train():
        for i in range(100):
            tidemark.step(i)
            with tidemark.scope("forward"):
                ...

While the program is recorded (`tidemark record python3 train.py`) each call leaves an event in the trace. While it is not, nothing
happens (nor ever in a Python without ctypes): a scope is an empty `with`, profile() returns the function as it is, and stats() returns zeros.

    scope("name")       with scope("name"): ...  What is allocated inside belongs to the scope. An exception closes it, is marked, and goes on unchanged.
                        One object may be entered again, also while it is open, on any thread. Copied or pickled it is another one of that name.
    @profile            A scope around every call, with the function's qualified name; @profile("name") gives another. Also for async functions,
                        generators and async generators: there it is open only while the body runs, not while it is suspended.
    step(n)             Step n of the process begins, and the one before ends.
    mark("name")        An instant with a name.
    snapshot("label")   Keeps what is live now: `tidemark snapshot DB --at snapshot:LABEL`.
    baseline()          Statistics begin anew here.
    stop()  start()     Recording off and on, for the whole process. Frees of recorded blocks are still seen.
    stats(heap)         live_bytes, live_count, peak_bytes, peak_since_reset_bytes, allocations, frees, exact: as of now.
    reset_peak(heap)    peak_since_reset_bytes begins anew.

A heap is named as in tidemark's tables: "malloc", "mmap", "torch.cpu", "torch.cuda:0", a pool of the program's. A number, a device object, or
None for the current device means torch.cuda:N. A device or heap that is not there is a ValueError that says which are; what is there only
the recorder knows. All other errors of arguments are the same without it.

Names may be any text. What has no UTF-8 is written as backslashreplace does ("\\udcff", of bytes "\\xff"), and a zero byte as "\\x00".

Tasks. A scope belongs to the thread that opened it, and an event to the scope opened last on its thread. Where one thread runs several
tasks, a scope is therefore closed while its task is suspended, and opened again when it goes on: each stretch is an instance of its own,
and other tasks see nothing of it, whatever contexts they share. This holds for asyncio's own loops, and on any loop for scopes inside of
what @profile decorates. A task that begins eagerly (eager_task_factory) is a call of its creator until it is first suspended. In a
generator without @profile a scope stays open over `yield`, and what the caller does until then counts in it.

Compiled code. In what torch.compile() compiles (PyTorch 2.1 and later) scope(), step(), mark() and snapshot() do nothing: its memory belongs to the
scope around the call. There `with tidemark.scope("name")` is to make its scope itself: torch.compile() does not follow one that was made outside.
A function of @profile is compiled in parts while the program is recorded, which fullgraph=True refuses.

Signals. An exception that a signal's handler raises (a timeout by signal.alarm()) just while a scope is being entered or left can leave it open:
what its thread, or its task, does from then on counts in it. Nothing tells it from a scope that a suspended generator holds open.

@profile returns what it was given: a function, a coroutine function, a staticmethod, a partial, a bound method stay what they are, as far
as isinstance() and inspect can tell, and so do callable objects (a functools.lru_cache keeps its cache_info()). A class is a TypeError: it
is its methods that run. A wrapper is in between all the same, while recorded: a call takes two to seven times as much of the recursion
limit, stacklevel=2 of a warning is the wrapper, and inspect.getfullargspec() of a plain function has no arguments (signature() has them).
"""
import copy
import functools
import inspect
import os
import sys
import threading
import time
import types
import weakref
from collections import namedtuple

try:
    import ctypes
except ImportError:  # a Python without it: nothing can be told
    ctypes = None

__all__ = ["scope", "profile", "step", "mark", "snapshot", "baseline", "start", "stop", "stats", "reset_peak", "Stats"]

Stats = namedtuple("Stats", "live_bytes live_count peak_bytes peak_since_reset_bytes allocations frees exact")

_NAMED_HEAPS = ("malloc", "mmap", "mmap-file", "python", "torch.cpu")
_DEVICES_ASKED = 16
_UNKNOWN = (1 << 64) - 1
_NO_SUCH_HEAP = -2


if ctypes:
    class _Instance(ctypes.c_uint64):
        """Of a scope, as the recorder numbers it: a class of its own is handed on as it is."""
        __slots__ = ()

    class _RawStats(ctypes.Structure):
        _fields_ = [("figures", ctypes.c_uint64 * 6), ("exact", ctypes.c_int)]


def _functions():
    """The recorder's functions by name, as the library in this process exports them; {} if it is not there. Those of scopes have no
    argument types: to check them takes calls, and a scope that could be opened where the stack is nearly used up must close there, too."""
    if not ctypes:
        return {}
    text, number, size, pointer = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.POINTER(_RawStats)
    known = {"mark": (None, text), "snapshot": (None, text), "baseline": (None,), "step": (None, ctypes.c_int64), "start": (None,), "stop": (None,),
             "range_begin": (_Instance,), "range_end": (None,), "stats": (ctypes.c_int, text, pointer, size),
             "reset_peak": (None, text), "pool_state": (ctypes.c_int, text, number, number, number, number)}
    found = {}
    try:
        # Only what waits gives other threads the time; PyPy has no calls without that.
        quick, slow = getattr(ctypes, "PyDLL", ctypes.CDLL)(None), ctypes.CDLL(None)
        for name, (result, *arguments) in known.items():
            function = getattr(slow if name == "stats" else quick, "tidemark_api_%s_v1" % name)
            function.restype, function.argtypes = result, arguments or None
            found[name] = function
    except (OSError, AttributeError, TypeError):  # TypeError: no system where None is the program itself
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
        self.stray = None   # asyncio: (what runs unwatched, how many scopes were open when it was found)


# A module that is loaded again still has the names it had: of these a second one would not see what the first has wrapped and holds.
_thread = globals().get("_thread") or _Thread()
_GONE = ()


def _compiled():
    """torch.compile() reads the program's code here, and finds a constant: what it compiles has neither scopes nor instants, as where nothing is
    recorded. Asked of nothing that changes, or it would have to compile again."""
    asked = getattr(getattr(sys.modules["torch"], "compiler", None), "is_dynamo_compiling", None)
    return asked is not None and asked()


class _Scope:
    """One `with`. `id` is that of its last instance, None where nobody is inside; `among` are the open scopes that it is one of, None while
    it is suspended, _GONE if its task was freed meanwhile; `more`: those of who entered it meanwhile, by recursion, on another thread or in
    another task. Who takes what is in `free`, in one instruction, is inside of this one itself."""
    __slots__ = ("name", "id", "among", "free", "more")

    def __init__(self, name):
        self.name, self.id, self.among, self.free, self.more = name, None, None, [True], []

    def __enter__(self):
        if not _watched:
            if not _api:  # the interpreter ends, and has cleared this module: from here on nothing is a scope
                return self
            if "asyncio.events" in sys.modules:
                _watch_asyncio()
        try:
            self.free.pop()
            one = self
        except IndexError:
            one = _Scope(self.name)
            self.more.append(one)
        one.begin(_thread.open)
        return self

    def __exit__(self, kind, _value, _traceback):
        if not _api:
            return False
        one = self.innermost(kind) if self.more else self
        one.end(kind is not None and not issubclass(kind, GeneratorExit))
        one.id = None
        if one is self:
            self.free[:] = (True,)
        else:
            self.more.remove(one)
        return False

    def __reduce__(self):
        return scope, (self.name,)  # a copy, perhaps in another process: nobody is inside

    def innermost(self, kind):
        """Of all that were entered by this one, the one that was opened last on this thread; where the collector closes what a task left,
        wherever it finds it, and where none is open here, first the one of a task that is gone."""
        entered = [self, *self.more]
        last = next((one for one in reversed(_thread.open) if one in entered), None)
        if last and kind is not GeneratorExit:
            return last
        gone = [one for one in entered if one.among is _GONE]
        return gone[-1] if gone else last or entered[-1]

    def begin(self, among):
        self.id = _api["range_begin"](b"python", self.name)
        self.among = among
        among.append(self)

    def end(self, exception=False):
        among, self.among = self.among, None
        if not among:
            return  # suspended: closed already
        if among[-1] is self:
            among.pop()
        else:  # not in order, or on another thread
            among.remove(self)
        _api["range_end"](self.id, exception)


class _Nothing:
    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _traceback):
        return False

    def __reduce__(self):
        return scope, (_text(self.name),)


_Nothing.__name__, _Nothing.__qualname__, _Nothing.__exit__.__qualname__ = _Scope.__name__, _Scope.__qualname__, _Scope.__exit__.__qualname__  # in messages


def scope(name):
    """A context manager: what is allocated inside belongs to the scope of this name."""
    if not _api or "torch" in sys.modules and _compiled():
        return _Nothing(name)  # a new one: torch.compile() follows only those that are made in what it compiles
    if not _watched and "asyncio.events" in sys.modules:
        _watch_asyncio()  # before something is entered, which may be traced then (torch.compile)
    return _Scope(_text(name))


def _forked():
    """What was open at a fork is the parent's: left in the child, it ends nothing there."""
    if _api:
        for one in _thread.open:
            one.id = _Instance()


if _api:
    os.register_at_fork(after_in_child=_forked)


def _suspend(base):
    """Closes the scopes beyond the first `base`; returns them, to be opened again."""
    among = _thread.open
    suspended = among[base:]
    for one in reversed(suspended):
        one.end()
    return suspended


def _resume(suspended):
    for one in suspended:
        if one.id is not None:  # else it was left meanwhile, by another task
            one.begin(_thread.open)


# --- asyncio: scopes of a task are closed between its steps ---

_kept = globals().get("_kept") or {}  # id of a task, or of the handle of another callback -> (a weak reference to it, its suspended scopes)
_watched = globals().get("_watched", False)
_STEPS = ("__step", "__wakeup", "_step", "_wakeup", "task_wakeup", "TaskStepMethWrapper", "TaskWakeupMethWrapper")


def _watch_asyncio():
    """Once asyncio is there: its handles run every step of a task, but for the first one of a task that begins eagerly, in create_task()."""
    global _watched
    handle = getattr(sys.modules.get("asyncio.events"), "Handle", None)
    loop = getattr(sys.modules.get("asyncio.base_events"), "BaseEventLoop", None)
    if _watched or not handle or not loop:
        return
    _watched = True
    handle_run, create_task = handle._run, loop.create_task

    @functools.wraps(handle_run)
    def run(self):
        among, stray = _thread.open, _thread.stray
        if stray:
            _thread.stray = None
            _keep(*stray)
        base = len(among)
        if _kept:
            _resume(_scopes_of(_owner(self)))
        try:
            return handle_run(self)
        finally:
            if len(among) > base:
                _keep(_owner(self), base)
            self = None  # an error that the task keeps has our frame in its traceback's

    @functools.wraps(create_task)
    def create(self, *args, **kwargs):
        among = _thread.open
        base = len(among)
        task = create_task(self, *args, **kwargs)
        if len(among) > base:
            _keep(task, base)
        made = getattr(task, "_source_traceback", None)  # of debug mode: without us
        if made and made[-1][0] == __file__:
            del made[-1]
        return task

    handle._run = run
    if sys.version_info >= (3, 12):
        loop.create_task = create
    frame, creates = sys._getframe(), False
    while frame and frame.f_code is not handle_run.__code__:
        creates = creates or frame.f_code is create_task.__code__
        frame = frame.f_back
    if frame:  # this very step began before we watched
        current = sys.modules["asyncio.tasks"].current_task() if creates else None
        _thread.stray = (current or _owner(frame.f_locals["self"]), len(_thread.open))


def _owner(handle):
    """The task whose step the handle runs, or the handle itself: a callback's scopes are its own, also where it runs again."""
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    if task is None:
        return handle
    name = getattr(callback, "__name__", type(callback).__name__)
    return task if name in _STEPS else handle


def _keep(owner, base):
    suspended, key = _suspend(base), id(owner)
    if not suspended:
        return

    def gone(_):
        for one in _kept.pop(key, (None, ()))[1]:
            one.among = _GONE
    try:
        reference = weakref.ref(owner, gone)
    except TypeError:  # a task of somebody's own
        def reference():
            return owner
    _kept[key] = (reference, suspended)


def _scopes_of(owner):
    reference, scopes = _kept.pop(id(owner), (None, ()))
    return scopes if reference and reference() is owner else ()


# --- what is suspended in between: the scope is open only while the body runs ---

class _Stretches:
    """Runs one stretch of a body after another, each inside of the scope; scopes that the body has open are closed and opened with it. What
    is sent or thrown into the body is held here only until it goes on, as the body itself would."""
    __slots__ = ("inner", "body", "scopes", "value", "error", "runs")

    def __init__(self, name):
        self.inner = self.body = self.value = self.error = None
        self.runs = None  # a step is on its way: what is raised is the body's, and was not thrown in by the caller
        own = _Scope(name)
        own.id = 0
        self.scopes = [own]

    def step(self):
        value, error, self.value, self.error = self.value, self.error, None, None
        if not _api:
            result = self.body.send(value) if error is None else self.body.throw(error)
            self.runs = False
            return result
        base, own = len(_thread.open), self.scopes[0]
        try:
            _resume(self.scopes)
            result = self.body.send(value) if error is None else self.body.throw(error)
        except BaseException as raised:
            if self.body is not self.inner and isinstance(raised, StopIteration):
                self.scopes = _suspend(base)  # an async generator has come to a `yield`
            else:
                for one in _thread.open[:base:-1]:
                    one.end()
                own.end(not isinstance(raised, (StopIteration, StopAsyncIteration, GeneratorExit)))
                self.scopes = [own]
            raise
        finally:
            value = error = None  # else a traceback would hold the error that holds it
        self.scopes = _suspend(base)
        self.runs = False
        return result


class _OfCoroutine(_Stretches):
    __slots__ = ()

    def __del__(self):
        """Of a coroutine that was never begun the one around it warns."""
        if self.runs is None and getattr(self.inner, "cr_await", self) is None:
            self.inner.close()


def _drive(stretches):
    """A generator that does as the body does, in stretches."""
    while True:
        stretches.runs = True
        try:
            stretches.value = yield stretches.step()
        except BaseException as error:
            if not stretches.runs:
                stretches.error = error
            elif isinstance(error, StopIteration):
                return error.value
            else:
                raise


_drive_awaited = types.coroutine(lambda stretches: (yield from _drive(stretches)))


@types.coroutine
def _iterable_coroutine(stretches):
    return (yield from _drive(stretches))


async def _coroutine(stretches):
    return await _drive_awaited(stretches)


async def _async_generator(stretches):
    while True:
        stretches.runs = True
        try:
            stretches.value = yield await _async_step(stretches)
        except BaseException as error:
            if not stretches.runs:
                stretches.error = error
            elif isinstance(error, StopAsyncIteration):
                return
            else:
                raise


async def _async_step(stretches):
    """One step of an async generator: its awaitable has send, throw and close, as a generator has. The event loop hears of ours alone."""
    value, error, stretches.value, stretches.error = stretches.value, stretches.error, None, None
    if not _api:
        result = await (stretches.inner.asend(value) if error is None else stretches.inner.athrow(error))
        stretches.runs = False
        return result
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        step = stretches.inner.asend(value) if error is None else stretches.inner.athrow(error)
    finally:
        sys.set_asyncgen_hooks(*hooks)
        value = error = None
    stretches.body = step.__await__()
    result = await _drive_awaited(stretches)
    stretches.runs = False
    return result


def _in_stretches(name, flags, make, args, kwargs):
    """What stands for what make() returns: a generator, a coroutine or an async generator, as the flags of its code say. Ours is made first,
    so that the collector, where it finds both, closes it first."""
    stretches = _Stretches(name)
    if flags & inspect.CO_COROUTINE:
        outer = _coroutine(stretches)
    elif flags & inspect.CO_ASYNC_GENERATOR:
        outer = _async_generator(stretches)
    else:
        outer = _iterable_coroutine(stretches) if flags & inspect.CO_ITERABLE_COROUTINE else _drive(stretches)
    try:
        inner = make(*args, **kwargs)
    except BaseException:
        if flags & inspect.CO_COROUTINE:
            outer.close()  # else it warns that nobody awaited it
        raise
    stretches.inner = stretches.body = inner
    if isinstance(inner, types.CoroutineType):
        stretches.__class__ = _OfCoroutine  # not before: __del__ may find the stack used up
    outer.__name__, outer.__qualname__ = inner.__name__, inner.__qualname__
    return outer


def _followed(name, result):
    """What a call returned, if that runs later."""
    for kind, code in ((types.CoroutineType, "cr_code"), (types.GeneratorType, "gi_code"), (types.AsyncGeneratorType, "ag_code")):
        if isinstance(result, kind):
            return _in_stretches(name, getattr(result, code).co_flags, lambda: result, (), {})
    return result


# --- functions ---

class _Proxy:
    """Stands for a callable that is no plain function: it is called inside of the scope, and all else is the callable's own."""
    __slots__ = ("__wrapped__", "_tidemark_name", "_tidemark_suspends", "__weakref__")

    def __init__(self, function, name, suspends):
        object.__setattr__(self, "__wrapped__", function)
        object.__setattr__(self, "_tidemark_name", name)
        object.__setattr__(self, "_tidemark_suspends", suspends)

    def __call__(self, *args, **kwargs):
        with _Scope(self._tidemark_name):
            result = self.__wrapped__(*args, **kwargs)
        return _followed(self._tidemark_name, result) if self._tidemark_suspends else result

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name, value):
        setattr(self.__wrapped__, name, value)

    def __delattr__(self, name):
        delattr(self.__wrapped__, name)

    def __dir__(self):
        return dir(self.__wrapped__)

    def __repr__(self):
        return repr(self.__wrapped__)

    def __reduce_ex__(self, protocol):
        """By its name, as functions are, where that leads here; else what profile() was given, in its own way, and again with a scope."""
        function = self.__wrapped__
        if _named(self) is self and (isinstance(function, types.FunctionType) or isinstance(function.__reduce_ex__(protocol), str)):
            return function.__qualname__
        return profile, (function, self._tidemark_name)

    def __copy__(self):
        return self._tidemark_again(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo):
        return self._tidemark_again(copy.deepcopy(self.__wrapped__, memo))

    def _tidemark_again(self, function):
        return self if function is self.__wrapped__ else type(self)(function, self._tidemark_name, self._tidemark_suspends)

    __class__ = property(lambda self: self.__wrapped__.__class__)
    __doc__ = property(lambda self: self.__wrapped__.__doc__)
    __module__ = property(lambda self: self.__wrapped__.__module__)


# Of a generator function, a coroutine function, an async generator function: what a call returns runs, not the call.
class _Function(_Proxy):
    __slots__ = ()
    __doc__, __module__ = _Proxy.__doc__, _Proxy.__module__

    def __call__(self, *args, **kwargs):
        function = self.__wrapped__
        if not _api:
            return function(*args, **kwargs)
        return _in_stretches(self._tidemark_name, function.__code__.co_flags, function, args, kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)


def _bind(self, instance, owner=None):
    bound = type(self.__wrapped__).__get__(self.__wrapped__, instance, owner)
    if bound is self.__wrapped__:
        return self
    if isinstance(bound, types.MethodType) and bound.__func__ is self.__wrapped__:
        return types.MethodType(self, bound.__self__)
    return _proxy(bound, self._tidemark_name, self._tidemark_suspends)


class _ByCall(_Proxy):
    """Stands for what was made of a plain function that its name leads to, and may go on to lead to (pool.map(profile(work), ...)): pickle
    takes a function by its name alone. It is called without a frame of ours in between."""
    __slots__ = ("__call__",)
    __doc__, __module__, __get__ = _Proxy.__doc__, _Proxy.__module__, _bind

    def __init__(self, made, name):
        _Proxy.__init__(self, made, name, False)
        object.__setattr__(self, "__call__", made)

    def __reduce_ex__(self, protocol):
        return self.__qualname__ if _named(self) is self else (profile, (self.__wrapped__.__wrapped__, self._tidemark_name))

    def _tidemark_again(self, _function):
        return self


def _forwarding(name):
    def method(self, *args, **kwargs):
        return getattr(type(self.__wrapped__), name)(self.__wrapped__, *args, **kwargs)
    return method


@functools.lru_cache(maxsize=256)
def _proxy_class(kind):
    """Python looks for special methods in the class: those that the callable's class has, this one has."""
    own = {"__init__", "__new__", "__del__", "__getattribute__", "__init_subclass__", "__class_getitem__", "__reduce__", "__getstate__",
           "__setstate__"}
    members = {"__slots__": (), "__doc__": _Proxy.__doc__, "__module__": _Proxy.__module__}
    for name in dir(kind):
        if name[:2] == name[-2:] == "__" and name not in own and name not in _Proxy.__dict__:
            value = getattr(kind, name)
            if callable(value) and not isinstance(value, type) and value is not getattr(object, name, None):
                members[name] = _forwarding(name)
    if hasattr(kind, "__get__"):
        members["__get__"] = _bind
    return type(kind.__name__, (_Proxy,), members)


def _proxy(function, name, suspends):
    return _proxy_class(type(function))(function, name, suspends)


_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _suspends(function):
    """A call of it returns what runs later, in stretches."""
    return isinstance(function, types.FunctionType) and bool(function.__code__.co_flags & _SUSPENDED)


def _named(function):
    """What pickle would find by the function's name."""
    try:
        found = sys.modules.get(function.__module__)
        first, *others = function.__qualname__.split(".")
        found = vars(found).get(first)  # the module's own __getattr__ is not asked for what is about to be defined
        for name in others if found is not None else ():
            found = getattr(found, name)
        return found
    except Exception:  # pylint: disable=broad-except  # no such name, and what a program's attributes may raise
        return None


def _wrapped(function, name):
    if _suspends(function):
        return _Function(function, name, True)
    marked = inspect.iscoroutinefunction(function)  # inspect.markcoroutinefunction(); it returns an awaitable, perhaps a coroutine
    # PyPy's own functions are of that type, too, and have no globals.
    if not isinstance(function, types.FunctionType) or issubclass(type(function), _Proxy) or not isinstance(function.__globals__, dict):
        return _proxy(function, name, marked or _suspends(getattr(type(function), "__call__", None)))

    opened, followed = _Scope, _followed

    def run(*args, **kwargs):
        with opened(name):
            result = function(*args, **kwargs)
        return followed(name, result) if marked else result
    # Who reads annotations or source looks for names in the function's globals.
    made = types.FunctionType(run.__code__, function.__globals__, run.__name__, function.__defaults__, run.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    functools.wraps(function)(made)
    # A method is found by way of its class, where Python, and who reads its classes, takes a function best.
    return _ByCall(made, name) if "." not in function.__qualname__ and _named(function) is function else made


def _name_of(function):
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _property(original, name):
    made = [f and profile(f, name) for f in (original.fget, original.fset, original.fdel)]
    inherited = original.__doc__ == getattr(original.fget, "__doc__", None)
    return type(original)(*made, None if inherited else original.__doc__)


# What holds functions -> those that it holds, and the like of it with others in their place.
_HOLDERS = (
    (staticmethod, lambda h: [h.__func__], lambda h, name: type(h)(profile(h.__func__, name))),
    (classmethod, lambda h: [h.__func__], lambda h, name: type(h)(profile(h.__func__, name))),
    (property, lambda h: filter(None, (h.fget, h.fset, h.fdel)), _property),
    (types.MethodType, lambda h: [h.__func__], lambda h, name: types.MethodType(profile(h.__func__, name), h.__self__)),
    (functools.partialmethod, lambda h: [h.func], lambda h, name: type(h)(profile(h.func, name), *h.args, **h.keywords)),
    (functools.partial, lambda h: [h.func], lambda h, name: _partial(h, name)),
    (getattr(functools, "cached_property", None), lambda h: [h.func], lambda h, name: _cached_property(h, name)),
)


def _partial(original, name):
    made = type(original)(profile(original.func, name), *original.args, **original.keywords)
    made.__dict__.update(original.__dict__)
    return made


def _cached_property(original, name):
    made = type(original)(profile(original.func, name))
    # By call it knows its attribute's name already.
    made.__dict__.update((key, value) for key, value in vars(original).items() if key not in ("func", "lock"))
    return made


def _holder(function):
    kinds = (staticmethod, classmethod) if isinstance(function, (staticmethod, classmethod)) else (type(function),)
    return next((row for row in _HOLDERS if row[0] in kinds and isinstance(function, row[0])), None)


def _check_function(function):
    holder = _holder(function)
    if holder:
        for held in holder[1](function):
            _check_function(held)
    elif isinstance(function, type):
        raise TypeError("profile() takes a function, not the class %r: decorate its methods" % function.__qualname__)
    elif not callable(function):
        raise TypeError("profile() takes a function, not %r" % (function,))


def profile(function=None, name=None):
    """A scope around every call of the function: @profile, @profile("name") or @profile(name="name")."""
    if isinstance(function, (str, bytes)):
        function, name = None, function
    if function is None:
        return functools.partial(profile, name=name)
    _check_function(function)
    if not _api:
        return function
    if not _watched:
        _watch_asyncio()
    holder = _holder(function)
    return holder[2](function, name) if holder else _wrapped(function, _text(name or _name_of(function)))


# --- instants ---

_ASKING_SHARE = 200
_steps_ask_at = 0.0


def _tell_pools():
    """What PyTorch says of its caching allocators, where it has any: only it knows what is active and what is split off.

    PyTorch is asked about a device only when something of that was reported; and by memory_stats_as_nested_dict(): memory_stats(), which makes a key of the keys on
    the way to each figure, takes seven times as long (tests/gpu/seen-h200.md).
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return
        for device in range(cuda.device_count()):
            heap = b"torch.cuda:%d" % device
            if not _api["pool_state"](heap, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN):
                continue
            stats = cuda.memory_stats_as_nested_dict(device)
            _api["pool_state"](heap, *(stats[name + "_bytes"]["all"]["current"] for name in ("allocated", "reserved", "active", "inactive_split")))
    except Exception:  # pylint: disable=broad-except  # another allocator, another version: it is not told
        pass


def _tell_pools_at_step():
    """A step waits for the answer, and so does a device that has nothing to do: it takes one part in 200 of the time at most. Between, what is allocated and reserved
    is known with each block; active and split off are as they were."""
    global _steps_ask_at
    before = time.monotonic()
    if before >= _steps_ask_at:
        _tell_pools()
        after = time.monotonic()
        _steps_ask_at = after + _ASKING_SHARE * (after - before)


def step(n):
    """Step n begins; the step before ends."""
    n = int(n)
    if not -1 << 63 <= n < 1 << 63:
        raise OverflowError("a step is a number of 64 bits, not %d" % n)
    if _api and not ("torch" in sys.modules and _compiled()):
        _tell_pools_at_step()
        _api["step"](n)


def mark(name):
    if _api and not ("torch" in sys.modules and _compiled()):
        _tell_pools()
        _api["mark"](_text(name))


def snapshot(label):
    """Keeps what is live now, under this label."""
    if _api and not ("torch" in sys.modules and _compiled()):
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
