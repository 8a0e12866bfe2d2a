"""What @tidemark.profile makes of all that can be called, names of all kinds, and wrong arguments, on every CPython of this machine.

Method: without a recorder profile() returns what it was given, so the same script is its own oracle: it prints what callers and
`inspect` see, results and exceptions, and must print the same when it is recorded. Where the memory belongs is said by blocks of sizes
of their own.
"""
import os
import sys

from pythons import each
from tidemark_test import ROOT, main, test

# What native frames are called says nothing of Python's, and to look it up takes most of a recording's time.
UNNAMED = "--names=none"

HEAD = """import asyncio, copy, ctypes, functools, gc, inspect, pickle, sys, types, warnings, weakref
import tidemark
from tidemark import profile
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
m = libc.malloc
warnings.simplefilter("always")
def tried(f, *args, **kwargs):
    try: return f(*args, **kwargs)
    except BaseException as e: return "%s: %s" % (type(e).__name__, e)
"""


def both(t, python, text):
    """The database of the recorded run, whose output must be that of the run without a recorder."""
    with open(t.path("wrapped.py"), "w", encoding="utf-8") as file:
        file.write(HEAD + text)
    env = {"PYTHONPATH": os.path.join(ROOT, "recorder"), "PYTHONHASHSEED": "0"}
    bare = t.run([python.path, t.path("wrapped.py")], env=env, status=0)
    recording = t.record([python.path, t.path("wrapped.py")], UNNAMED, env=env)
    for got, wanted in zip(recording.text.split("\n"), bare.text.split("\n")):
        t.equal(got, wanted, f"{python}: a line that it prints, recorded and not")
    t.equal(len(recording.text), len(bare.text), f"{python}: bytes that it prints, recorded and not")
    t.check(len(bare.text) > 5, f"{python}: it prints something")
    t.equal(recording.program_err.decode(), bare.errors, f"{python}: warnings")
    return t.imported(recording)


def scopes_of(db, first, last):
    """Size -> name of the scope of malloc's blocks in a range of sizes."""
    return dict(db.rows("""SELECT a.size_bytes, CASE WHEN a.scope_id THEN s.name END FROM allocation a JOIN scope s ON s.id = a.scope_id
                           WHERE a.api = 'malloc' AND a.size_bytes BETWEEN ? AND ?""", first, last))


@test
def kinds_of_callables(t):
    """What inspect, isinstance, signatures, attributes, copies and pickles say of everything that can be decorated."""
    text = """
def plain(a, b: int = 2, *c, d=4, **e) -> str:
    "doc"
    return a
plain.mark = 1
async def co(a, b=2): return a
def gen(a): yield a
async def agen(a): yield a
@types.coroutine
def iterable(a): yield a
@functools.lru_cache(maxsize=5)
def cached(a): return a
class Callable:
    "its doc"
    def __init__(self): self.x = 7
    def __call__(self, a, b=3): return a + b
    def __len__(self): return 3
    def __getitem__(self, i): return i * 2
    def __iter__(self): return iter([1, 2])
    def __eq__(self, other): return other == 5
    def __bool__(self): return False
    def method(self): return self.x
class Odd:
    def plain(self, a): return (type(self).__name__, a)
    def own(self): return self.plain(1)
    plain = profile(plain)
    @profile
    def method(self, a): return (type(self).__name__, a)
    @profile
    async def co(self, a): return (type(self).__name__, a)
    @profile
    def gen(self, a): yield (type(self).__name__, a)
    @profile
    @staticmethod
    def st(a): return a
    @profile
    @classmethod
    def cl(cls, a): return (cls.__name__, a)
    @profile
    @property
    def prop(self): "prop's doc"; return 9
    @prop.setter
    def prop(self, value): self.set = value
    @profile
    @functools.lru_cache(None)
    def cached(self, a): return a
    part = profile(functools.partialmethod(method, 5))
    builtin = profile(len)
kinds = {"plain": plain, "co": co, "gen": gen, "agen": agen, "iterable": iterable, "cached": cached, "callable": Callable(), "len": len,
         "partial": functools.partial(plain, 1, d=5), "async partial": functools.partial(co, 1), "method": Callable().method,
         "upper": str.upper, "lambda": lambda: 1, "static": Odd.__dict__["st"], "prop": Odd.__dict__["prop"],
         "classmethod": Odd.__dict__["cl"], "partialmethod": Odd.__dict__["part"]}
predicates = [n for n in dir(inspect) if n.startswith("is") and n not in ("iskeyword", "isabstract")]
originals = dict(kinds)
for name, f in kinds.items():
    p = profile(f)
    globals()["p_" + name] = p
    print(name, [n for n in predicates if getattr(inspect, n)(p)], asyncio.iscoroutinefunction(p), callable(p), isinstance(p, type(f)))
    print(name, tried(inspect.signature, p) if callable(f) else None, getattr(p, "__doc__", 0), getattr(p, "__name__", 0), getattr(p,
          "__qualname__", 0), getattr(p, "__module__", 0))
    print(name, getattr(p, "__annotations__", 0), getattr(p, "__defaults__", 0) if name != "plain" else 0, getattr(p, "mark", 0))
    print(name, len(repr(p)) > 0, bool(p), inspect.unwrap(p) is inspect.unwrap(f) if not isinstance(f, (functools.partial,
          types.MethodType)) and callable(f) else None)
p = profile(Callable())
print(p(1), p(1, b=5), len(p), p[4], list(p), p == 5, bool(p), p.x, p.method(), isinstance(p, Callable), repr(p)[:20])
p.x = 8; p.y = 9; print(p.x, p.y, "y" in vars(p), p.method()); del p.y; print(hasattr(p, "y"), copy.copy(p).x, copy.deepcopy(p).x,
      pickle.loads(pickle.dumps(p)).x)
q = copy.copy(p); q.x = 10; print(p.x, q.x, isinstance(q, Callable), q(1))
c = profile(cached); c(1); c(1); c(2)
print(c.cache_info(), tried(c, []), c.__wrapped__(7), isinstance(c, type(cached))); c.cache_clear(); print(c.cache_info(), hasattr(c,
      "cache_parameters"))
co, gen, agen, cached, iterable = map(profile, (co, gen, agen, cached, iterable))
for f in (co, gen, agen, cached, iterable): print(copy.copy(f) is f, copy.deepcopy(f) is f, pickle.loads(pickle.dumps(f)) is f, f.__name__)
o = Odd()
print(o.method(1), tried(o.co(2).send, None), list(o.gen(3)), o.st(4), Odd.st(4), o.cl(5), Odd.cl(5), o.prop, o.cached(6), o.cached(6),
      Odd.cached.cache_info(), o.part(), o.builtin([1, 2]))
o.prop = 3; print(o.set, Odd.prop.__doc__, o.plain(1) is o, tried(setattr, o, "nothing", 1), inspect.ismethod(o.co),
      inspect.iscoroutinefunction(o.co), o.co == o.co, o.co.__self__ is o)
print(profile(functools.partial(plain, 1, d=5)).args, profile(functools.partial(plain, 1, d=5)).keywords, profile(str.upper)("a"),
      profile(o.method)(3), profile(lambda: 1)())
if hasattr(functools, "cached_property"):
    class Late:
        @profile
        @functools.cached_property
        def late(self): return object()
    late = Late(); print(late.late is late.late)
    class Named:
        @functools.cached_property
        def late(self): return object()
    Named.late = profile(Named.late); late = Named(); print(late.late is late.late)
if hasattr(inspect, "markcoroutinefunction"):
    async def inner(a): return a
    @profile
    @inspect.markcoroutinefunction
    def marked(a): return inner(a)
    print(inspect.iscoroutinefunction(marked), tried(marked(3).send, None), inspect.iscoroutine(marked(3)))
    future = profile(inspect.markcoroutinefunction(lambda: asyncio.Future(loop=loop)))
    loop = asyncio.new_event_loop(); print(isinstance(future(), asyncio.Future)); loop.close()
for bad in (5, object, Odd, [], staticmethod(5), types.SimpleNamespace(), property(5), iter([]), True):
    print(tried(profile, bad)[:60] if isinstance(tried(profile, bad), str) else "taken", tried(profile("n"), bad)[:40])
"""
    for python in each(t):
        both(t, python, text)


@test
def what_suspended_bodies_see(t):
    """Generators, coroutines and async generators: send, throw, close, errors of arguments, what is held and what is let go."""
    text = """
class Wait:
    def __await__(self):
        got = yield "waits"
        return got
@types.coroutine
def pause(x): return (yield x)
@profile
def stubborn():
    while True:
        try: x = yield 1
        except GeneratorExit: yield "ignored"; return "end"
        except KeyError as e: yield ("key", e.args)
        except ValueError: raise LookupError("other")
@profile
def returns():
    try: yield 1
    except GeneratorExit: return 33
@profile
def echo():
    x = None
    while True: x = yield x
@profile
def nested():
    r = yield from stubborn()
    yield ("got", r)
for make in (stubborn, returns, echo, nested):
    for how in ("close", "throw exit", "throw class", "throw old", "value", "none", "send first"):
        g = make()
        if how == "send first": print(make.__name__, tried(g.send, 5)); continue
        print(make.__name__, how, next(g), inspect.getgeneratorstate(g), end=" ")
        if how == "close": print(tried(g.close), end=" ")
        elif how == "throw exit": print(tried(g.throw, GeneratorExit()), end=" ")
        elif how == "throw class": print(tried(g.throw, KeyError), tried(g.throw, KeyError("k")), end=" ")
        elif how == "value": print(tried(g.throw, ValueError("v")), end=" ")
        elif how == "throw old" and sys.version_info < (3, 12): print(tried(g.throw, KeyError, "k", None), end=" ")
        print(tried(next, g), tried(next, g), tried(g.close), inspect.getgeneratorstate(g))
print(tried(stubborn, 1), tried(lambda: echo(1)), g.__name__, g.__qualname__, type(g).__name__)
class Thing: pass
class Error(Exception): pass
g = echo(); next(g); thing = Thing(); gone = weakref.ref(thing); g.send(thing); del thing; g.send(None); print("sent is let go",
      gone() is None)
@profile
def yields_new():
    yield Thing()
    yield 2
g = yields_new(); thing = next(g); gone = weakref.ref(thing); del thing; print("yielded is let go", gone() is None)
gc.disable()
@profile
def fails(): yield 1; raise Error("v")
g = fails(); next(g)
try: next(g)
except Error as e: gone = weakref.ref(e)
print("error is let go", gone() is None)
@profile
def takes():
    while True:
        try: yield 1
        except Error: pass
g = takes(); next(g); error = Error("k"); gone = weakref.ref(error); g.throw(error); del error; next(g); print("thrown is let go",
      gone() is None)
g = echo(); next(g); error = Error("k"); gone = weakref.ref(error)
try: g.throw(error)
except Error: pass
error.__traceback__ = None
del error; print("thrown and come back is let go", gone() is None)
gc.enable()

@profile
async def co(a, b=2):
    x = await Wait()
    y = await pause(("pause", x))
    return (a, b, x, y)
@profile
async def fails_at_once(): raise LookupError("l")
@profile
@types.coroutine
def iterable(a):
    x = yield a
    return x
async def awaits(): return await iterable(4)
c = co(1); print(c.__name__, c.__qualname__, inspect.iscoroutine(c), inspect.getcoroutinestate(c), c.send(None), c.send(5), tried(c.send,
      6), inspect.getcoroutinestate(c), tried(c.send, 6))
c = co(1); c.send(None); print(tried(c.throw, KeyError("k")), tried(c.close))
c = co(1); c.send(None); print(c.close(), tried(c.send, None))
c = co(1); print(tried(c.throw, KeyError("t")), tried(c.send, None)); c = co(1); print(c.close())
print(tried(co), tried(co, 1, 2, 3), tried(fails_at_once().send, None))
c = awaits(); print(c.send(None), tried(c.send, 8), inspect.isawaitable(iterable(1)), inspect.isgenerator(iterable(1)), list(iterable(1)))
co(1); gc.collect()
async def stops(): raise StopIteration(1)
print(tried(profile(stops)().send, None))

def asked(a):
    try: a.send(None)
    except StopIteration as e: return ("value", e.value)
    except BaseException as e: return "%s: %s" % (type(e).__name__, e)
    return "suspended"
@profile
async def ag(n):
    for i in range(n):
        try: x = yield i
        except KeyError as e: x = yield ("key", e.args)
        except GeneratorExit:
            if n == 7: yield "ignored"
            raise
        if x: yield ("sent", x)
for n in (2, 7):
    a = ag(n); print(a.__name__, type(a).__name__, inspect.isasyncgen(a), asked(a.asend(1)), asked(a.asend(None)), asked(a.asend("x")),
          asked(a.athrow(KeyError("k"))), asked(a.athrow(ValueError("v"))),
                     asked(a.__anext__()), asked(a.aclose()))
    a = ag(n); print(asked(a.__anext__()), asked(a.aclose()), asked(a.aclose()), asked(a.__anext__()))
    a = ag(n); print(asked(a.__anext__()), asked(a.athrow(GeneratorExit())), asked(a.__anext__()))
    a = ag(n); print(asked(a.aclose()), asked(a.__anext__())); a = ag(n); print(asked(a.athrow(KeyError("u"))), asked(a.__anext__()))
print(tried(ag), asked(ag(0).__anext__()))
closed = []
@profile
async def left(n):
    try: yield n
    finally: await asyncio.sleep(0); closed.append(n)
async def run():
    a = left(1); await a.__anext__(); del a; gc.collect()
    for _ in range(1000): closed or await asyncio.sleep(0.01)
    print(closed)
    global kept; kept = left(2); await kept.__anext__()
    return [x async for x in ag(3)]
loop = asyncio.new_event_loop(); told = []; loop.set_exception_handler(lambda _, what: told.append(str(what)))
print(loop.run_until_complete(run())); loop.run_until_complete(loop.shutdown_asyncgens()); loop.close(); print(closed, told)
"""
    for python in each(t):
        both(t, python, text)


@test
def where_the_memory_belongs(t):
    """In each kind the body's blocks are in its scope, the caller's are not; scopes that a body has open go with it over suspensions."""
    text = """
@profile
@types.coroutine
def iterable(base):
    m(base)
    with tidemark.scope("in iterable"): m(base + 1); yield; m(base + 2)
    m(base + 3)
@profile
async def ag(base):
    m(base)
    with tidemark.scope("in ag"): m(base + 1); yield 1; m(base + 2); yield 2; m(base + 3)
    try: yield 3
    finally: m(base + 4)
@profile
def g(base):
    try: yield 1
    except GeneratorExit: m(base); yield 2; m(base + 1)
@profile
@functools.lru_cache(None)
def cached(base): m(base)
class Called:
    def __call__(self, base): m(base)
class AsyncCalled:
    async def __call__(self, base): m(base); await pause(); m(base + 1)
class C:
    @profile
    @property
    def prop(self): m(500160)
    @profile
    @classmethod
    def cl(cls): m(500161)
@types.coroutine
def pause(): yield
async def awaits(): await iterable(500100)
c = awaits(); c.send(None); m(500109); tried(c.send, None)
a = ag(500110)
for n in range(4): tried(a.asend(None).send, None); m(500115 + n)
it = g(500120); next(it); it.throw(GeneratorExit()); m(500122); tried(next, it)
cached(500130); cached(500130); m(500131)
profile(Called())(500140)
c = profile(AsyncCalled())(500141); c.send(None); m(500143); tried(c.send, None)
C().prop; C.cl()
profile(functools.partial(Called().__call__, 500150))(); profile("given")(functools.partial(lambda base: m(base), 500151))()
if hasattr(inspect, "markcoroutinefunction"):
    async def inner(): m(500171); await pause(); m(500172)
    @profile
    @inspect.markcoroutinefunction
    def marked(): m(500170); return inner()
    c = marked(); c.send(None); m(500173); tried(c.send, None)
print("as it is with no recorder")
"""
    wanted = {500100: "iterable", 500101: "in iterable", 500102: "in iterable", 500103: "iterable", 500109: None, 500110: "ag",
          500111: "in ag", 500112: "in ag",
              500113: "in ag", 500114: "ag", 500115: None, 500116: None, 500117: None, 500118: None,
              500120: "g", 500121: "g", 500122: None, 500130: "cached", 500131: None,
              500140: "Called", 500141: "AsyncCalled", 500142: "AsyncCalled", 500143: None,
              500150: "Called.__call__", 500151: "given", 500160: "C.prop", 500161: "C.cl"}
    marked = {500170: "marked", 500171: "marked", 500172: "marked", 500173: None}
    for python in each(t):
        db = both(t, python, text)
        t.equal(scopes_of(db, 500100, 500179), {**wanted, **(marked if python.minor >= 12 else {})}, f"{python}: scopes")
        t.equal(db.rows("SELECT DISTINCT end_kind FROM scope WHERE id > 0"), [("closed",)], f"{python}: ends")


@test
def names_of_all_kinds(t):
    """No name is an error; what has no UTF-8 is written as backslashreplace does, and what was written can be read."""
    text = """
class Bad:
    def __str__(self): raise RuntimeError("no")
class Text(str):
    def encode(self, *_): raise RuntimeError("no")
    def __str__(self): raise RuntimeError("no")
names = ["\\udcff", "\\ud800", "a\\udc80\\ud800b", "\\xe9\\U0001f600", "n\\0ul", b"\\xff\\xfe", b"b\\xc3\\xa9", Bad(), Text("sub"), 7,
      None, "", "\\\\"]
for n, name in enumerate(names):
    with tidemark.scope(name): m(500100 + n)
    profile(name=name)(lambda: m(500200 + n))()
    tidemark.mark(name); tidemark.snapshot(name)
for heap in ("\\ud800", "malloc\\0x", "x" * 5000): tried(tidemark.stats, heap); tried(tidemark.reset_peak, heap)
print("no error")
"""
    wanted = ["\\udcff", "\\ud800", "a\\udc80\\ud800b", "\xe9\U0001f600", "n\\x00ul", "\\xff\\xfe", "b\xe9", "<unprintable Bad object>",
          "sub", "7", "None", "", "\\"]
    for python in each(t):
        db = both(t, python, text)
        t.equal(scopes_of(db, 500100, 500120), {500100 + n: name for n, name in enumerate(wanted)}, f"{python}: names of scopes")
        t.equal({size: name for size, name in scopes_of(db, 500200, 500220).items() if size not in (500210, 500211)},
                {500200 + n: name for n, name in enumerate(wanted) if n not in (10, 11)}, f"{python}: names of functions")
        t.equal(db.rows("SELECT name FROM mark WHERE name <> '' ORDER BY ts_ns"), [(name,) for name in wanted if name], f"{python}: marks")
        t.equal(db.value("SELECT count(*) FROM note WHERE kind LIKE '%utf%'"), 0, f"{python}: notes")


@test
def wrong_arguments(t):
    """Each public function, with what it does not take: the same error, recorded or not."""
    text = """
class Device:
    def __init__(self, type, index=None): self.type, self.index = type, index
class Number:
    def __init__(self, n): self.n = n
    def __int__(self): return self.n
class BadNumber:
    def __int__(self): raise LookupError("no number")
for n in ("x", "5", 1.5, float("nan"), float("inf"), None, [], True, 1 << 63, -1 << 63, (1 << 63) - 1, 1 << 200, Number(3), BadNumber(),
      b"7", "\\ud800"):
    print("step", tried(tidemark.step, n))
for heap in (1.5, True, [], b"malloc", Device(3), Device("cuda", "x"), Device("cuda", True), Device("cpu"), object(), "malloc", "python",
      "torch.cpu", Device):
    for f in (tidemark.stats, tidemark.reset_peak):
        got = tried(f, heap)
        print(f.__name__, got.split(" at 0x")[0] if isinstance(got, str) else type(got).__name__)
for f in (tidemark.scope, tidemark.mark, tidemark.snapshot, tidemark.step, tidemark.baseline, tidemark.start, tidemark.stop):
    print(f.__name__, tried(f, 1, 2, 3), tried(f, nothing=1), tried(f) if f not in (tidemark.start, tidemark.stop,
          tidemark.baseline) else 0)
print(tried(tidemark.stats, 1, 2), tried(tidemark.profile, 1, 2, 3))
s = tidemark.scope("s")
print(tried(s), tried(s.__exit__), tried(s.__exit__, None, None, None), s.__enter__() is s, tried(s.__exit__, None, None, None),
      tried(s.__exit__, None, None, None))
async def with_async():
    async with s: pass
print(tried(with_async().send, None))
"""
    for python in each(t):
        both(t, python, text)


@test
def the_interpreter_ends(t):
    """What is suspended when the interpreter clears its modules is closed as it is without us, and ends."""
    text = """
def generator(name):
    try:
        with tidemark.scope("inside"): yield m(1)
    except GeneratorExit: print(name, "closed")
    finally: print(name, "left")
async def asynchronous(name):
    try: yield m(1)
    finally: print(name, "left")
async def coroutine(name):
    try: await asyncio.sleep(0)
    finally: print(name, "left")
class Late:
    def __init__(self, f): self.f = f
    def __del__(self): self.f()
late = profile(lambda: None)
sys.kept = [profile(generator)("of sys"), profile(coroutine)("coroutine"), profile(coroutine)("never begun"), Late(late)]
next(sys.kept[0]); sys.kept[1].send(None)
threading = __import__("threading"); threading.kept = profile(generator)("of threading"); next(threading.kept)
sys.modules["kept"] = profile(generator)("of modules"); next(sys.modules["kept"])
sys.later = profile(asynchronous)("asynchronous")
try: sys.later.asend(None).send(None)
except StopIteration: pass
for i in range(5): print(i)
"""
    for python in each(t):
        both(t, python, text)


@test
def the_stack_is_used_up(t):
    """A RecursionError is the program's as ever, also out of what suspends, and no scope stays open: what comes then has its own."""
    text = """
def ends(f):
    try: return f()
    except RecursionError: return "RecursionError"
def call(): return call()
def generator(): yield from generator()
async def coroutine(): await coroutine()
def inside():
    with tidemark.scope("inside"): return inside()
call, generator, coroutine = profile(call), profile(generator), profile(coroutine)
warnings.simplefilter("ignore")
for i in range(3):
    print(ends(call), ends(lambda: list(generator())), ends(lambda: coroutine().send(None)), ends(inside))
    m(520000 + i)
"""
    for python in each(t):
        db = both(t, python, text)
        t.equal(scopes_of(db, 520000, 520009), {520000: None, 520001: None, 520002: None}, f"{python}: scopes afterwards")
        left = db.rows("SELECT name, end_kind FROM scope WHERE category = 'python' AND end_kind NOT IN ('closed', 'exception')")
        t.equal(left, [], f"{python}: left open")


@test
def who_reads_functions(t):
    """The function's own names are found where annotations or source are read (torch.jit.script); all that is thrown in arrives."""
    text = """
@profile
def plain(a, b=2, *, c=3): return a
print(plain.__globals__ is globals(), plain.__defaults__, plain.__kwdefaults__, plain(1), tried(plain))
async def asynchronous():
    try: yield 1
    except StopAsyncIteration: yield "caught"
async def main():
    body = profile(asynchronous)()
    await body.__anext__()
    print(await body.athrow(StopAsyncIteration))
asyncio.run(main())
for i in range(5): print(i)
"""
    for python in each(t):
        both(t, python, text)


@test
def one_scope_of_many_threads(t):
    """Threads that enter one scope at the same moment are each inside of an instance of their own, and all of them are closed."""
    text = """
import threading
sys.setswitchinterval(1e-6)
shared = tidemark.scope("shared")
def enters():
    for i in range(1500):
        with shared:
            with shared: pass
threads = [threading.Thread(target=enters) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
m(530000)
for i in range(8): print(i)
"""
    for python in each(t):
        db = both(t, python, text)
        t.equal(db.rows("SELECT DISTINCT end_kind, count(*) FROM scope WHERE name = 'shared' GROUP BY 1"), [("closed", 12000)], f"{python}: instances")
        t.equal(scopes_of(db, 530000, 530000), {530000: None}, f"{python}: afterwards")


@test
def what_a_wrapper_holds_can_be_pickled(t):
    """cloudpickle (Ray, Dask, joblib) sends functions by value, with all that their closures hold."""
    with open(t.path("held.py"), "w", encoding="ascii") as file:
        file.write("""import pickle, types
import tidemark
@tidemark.profile
def f(x):
    return x + 1
assert f(1) == 2
held = [cell.cell_contents for cell in f.__closure__]
assert f.__wrapped__ in held
for one in held:
    if one is not f.__wrapped__:
        assert pickle.loads(pickle.dumps(one)) == one, one
""")
    t.record([sys.executable, t.path("held.py")], env={"PYTHONPATH": os.path.join(ROOT, "recorder")})


@test
def scopes_are_pickled_and_copied(t):
    """With what holds them, recorded or not, by every protocol: another scope of the name, which is not open, whatever that one is."""
    text = """
ways = [(n, lambda one, n=n: pickle.loads(pickle.dumps(one, n))) for n in range(pickle.HIGHEST_PROTOCOL + 1)] + [("copy", copy.copy), ("deepcopy", copy.deepcopy)]
class Holder:
    def __init__(self, scope): self.scope = scope
one = Holder(tidemark.scope("one \\u00e9\\0"))
for size, (way, again) in enumerate(ways, 500200):
    made = [again(one.scope), tried(lambda: again(one).scope)]
    with one.scope:
        made += [again(one.scope)]
    for other in made: print(way, type(other).__name__, type(other.__enter__()).__name__, m(size) > 0, other.__exit__(None, None, None))
    m(size + 100)
print(pickle.dumps(one.scope), pickle.dumps(tidemark.scope(b"\\xff")))
"""
    for python in each(t):
        db = both(t, python, text)
        inside = db.rows("""SELECT s.name, count(*) FROM allocation a JOIN scope s ON s.id = a.scope_id
                            WHERE a.api = 'malloc' AND a.size_bytes BETWEEN 500200 AND 500299 GROUP BY 1""")
        t.equal([count for name, count in inside if name.startswith("one ")], [3 * db.value("SELECT count(*) FROM allocation WHERE size_bytes BETWEEN 500300 AND 500399")],
                f"{python}: blocks in copies of the scope: {inside}")
        t.equal(set(scopes_of(db, 500300, 500399).values()), {None}, f"{python}: scopes that stay open")


@test
def what_is_profiled_by_call_is_pickled(t):
    """As the function itself can be: for the workers of a pool and a process that is spawned, whose jobs have their scope; and by name once the name leads to it."""
    text = """
import multiprocessing
def work(n): return m(500100 + n) and n
def body(n): yield n
@functools.lru_cache(None)
def cached(n): return n + 1
class C:
    def method(self, n): return n + 2
def again(f): return pickle.loads(pickle.dumps(f))
if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(profile(work), range(4)), pool.map(functools.partial(profile(work)), [4]), pool.map(profile(functools.partial(work)), [5]),
              pool.map(profile(cached), [6]), pool.map(profile(C().method), [6]))
        pool.close(); pool.join()
    process = multiprocessing.get_context("spawn").Process(target=profile(work), args=(6,)); process.start(); process.join(); print(process.exitcode)
    print(list(again(profile(body))(1)), again(profile([1].append))(2), again(profile(len))("a"), tried(again, profile(lambda: 1))[:5])
    p = profile(work); print(inspect.isfunction(p), inspect.signature(p), p.__code__.co_name != "", copy.copy(p) is p, profile(p)(7))
    work, body, cached, C.method = map(profile, (work, body, cached, C.method))
    print([again(f) is f for f in (work, body, cached, C.method)], C().method(1), C().method.__self__.__class__, C().method == C().method)
    original = profile(work); print(original(8), again(original)(9))
"""
    pythons = each(t)
    for python in (pythons[0], pythons[-1]):
        db = both(t, python, text)
        own = db.rows("""SELECT a.size_bytes, s.name, count(*) FROM allocation a JOIN scope s ON s.id = a.scope_id
                         WHERE a.api = 'malloc' AND a.size_bytes BETWEEN 500100 AND 500106 GROUP BY 1, 2""")
        t.equal(own, [(500100 + n, "work", 1) for n in range(7)], f"{python}: scopes of the jobs")


main()
