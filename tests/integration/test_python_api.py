"""tidemark.py and --python-heap=on, on every CPython of this machine.

Method: blocks of sizes of their own are allocated inside and outside of scopes; the database must give each the scope that the script's own reading says. The
heap python is compared with tracemalloc, which counts in the program itself, line by line.
"""
import collections
import json
import os

from pythons import each, library_of
from tidemark_test import ROOT, main, test

# What native frames are called says nothing of Python's, and to look it up takes most of a recording's time.
UNNAMED = "--names=none"

HEAD = """import asyncio, ctypes, sys, threading
import tidemark
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def m(size): libc.malloc(size)
"""


def record(t, python, text, *options, **how):
    with open(t.path("api.py"), "w", encoding="utf-8") as file:
        file.write(text)
    return t.record([python.path, t.path("api.py")], UNNAMED, *options, env={"PYTHONPATH": os.path.join(ROOT, "recorder")}, **how)


def scopes_of(db, first, last):
    """Size -> (scope, how it ended), of the blocks of malloc in a range of sizes."""
    rows = db.rows("""SELECT a.size_bytes, CASE WHEN a.scope_id THEN s.name END, s.end_kind FROM allocation a JOIN scope s ON s.id = a.scope_id
                      WHERE a.api = 'malloc' AND a.size_bytes BETWEEN ? AND ?""", first, last)
    return {size: (name, end) for size, name, end in rows}


@test
def pypy(t):
    """The same file in an interpreter whose ctypes has no calls that keep the interpreter's lock."""
    t.need("pypy3")
    with open(t.path("api.py"), "w", encoding="utf-8") as file:
        file.write(HEAD + """
with tidemark.scope("a"):
    m(500001)
    try:
        with tidemark.scope("b"):
            m(500002)
            raise KeyError("k")
    except KeyError: pass
    m(500003)
@tidemark.profile
def g():
    m(500004)
    yield 1
    m(500005)
assert list(g()) == [1]
m(500006)
tidemark.mark("middle"); tidemark.step(7)
stats = tidemark.stats("malloc")
assert stats.live_bytes >= 3000021, stats
gathered = []
tidemark.profile(gathered.append)(tidemark.profile(str.upper)("x"))
assert gathered == ["X"]
""")
    db = t.imported(t.record(["pypy3", t.path("api.py")], UNNAMED, env={"PYTHONPATH": os.path.join(ROOT, "recorder")}))
    t.equal(scopes_of(db, 500000, 500099), {500001: ("a", "closed"), 500002: ("b", "exception"), 500003: ("a", "closed"), 500004: ("g", "closed"),
                                            500005: ("g", "closed"), 500006: (None, None)}, "scopes")
    t.equal((db.rows("select name from mark"), db.rows("select n from step")), ([("middle",)], [(7,)]), "marks and steps")


@test
def scopes(t):
    """Nesting, exceptions, generators; the error goes on unchanged."""
    text = HEAD + """
with tidemark.scope("a"):
    m(500001)
    with tidemark.scope("b"):
        m(500002)
    m(500003)
class C:
    @tidemark.profile
    def method(self): m(500004); return self
    @tidemark.profile("named")
    def other(self): m(500005)
    @staticmethod
    @tidemark.profile
    def static(): m(500006)
c = C()
assert c.method() is c
c.other(); C.static()
error = KeyError("k")
try:
    with tidemark.scope("x"):
        m(500007)
        raise error
except KeyError as caught:
    assert caught is error and caught.__traceback__.tb_next is None, "changed"
@tidemark.profile
def fails(): m(500008); raise error
try: fails()
except KeyError as caught: assert caught is error
@tidemark.profile
def g():
    m(500010)
    y = yield 1
    m(500011)
    with tidemark.scope("in g"):
        m(500012)
        try: yield y
        except ValueError: m(500013)
    return 7
def outer():
    assert (yield from g()) == 7
it = outer(); assert next(it) == 1; m(500020)
with tidemark.scope("caller"):
    assert it.send("v") == "v"; m(500021)
try: it.throw(ValueError())
except StopIteration: pass
left = g(); next(left); left.close(); m(500022)
tidemark.profile(len)([])
for name in ("x" * 10000, "\\0", "n\\0ul", "\\udcff", "\\ud800", b"\\xff\\xfe", "", 7): 
    with tidemark.scope(name): m(500030)
m(500031)
"""
    method, static = "C.method", "C.static"
    wanted = {500001: ("a", "closed"), 500002: ("b", "closed"), 500003: ("a", "closed"), 500004: (method, "closed"), 500005: ("named", "closed"),
              500006: (static, "closed"), 500007: ("x", "exception"), 500008: ("fails", "exception"), 500010: ("g", "closed"), 500011: ("g", "closed"),
              500012: ("in g", "closed"), 500013: ("in g", "closed"), 500020: (None, None), 500021: ("caller", "closed"), 500022: (None, None), 500031: (None, None)}
    for python in each(t):
        db = t.imported(record(t, python, text))
        got = scopes_of(db, 500000, 500031)
        for size, (name, end) in wanted.items():
            t.equal(got[size][0], name, f"{python}: scope of {size}")
            if name:
                t.equal(got[size][1], end, f"{python}: end of {name}")
        t.equal(db.value("SELECT count(*) FROM scope WHERE category = 'python' AND name = 'a'"), 1, f"{python}: instances of a")
        t.equal(db.value("SELECT count(*) FROM scope WHERE length(CAST(name AS BLOB)) = 4096"), 1, f"{python}: the name of 10,000 bytes is cut")


@test
def scopes_used_oddly(t):
    """Recursion through generators, generators in turns, one scope entered many times and on two threads, left on another thread or twice, open at a fork."""
    text = HEAD + """
import contextlib, os
@tidemark.profile
def counts(n):
    m(500100)
    if n:
        for x in counts(n - 1): yield x
    yield n
assert sum(counts(20)) == 210
def tree(n):
    with tidemark.scope("tree"):
        m(500101)
        if n:
            yield from tree(n - 1)
            yield from tree(n - 1)
        yield n
assert len(list(tree(5))) == 63
def turns(name, size):
    with tidemark.scope(name):
        for i in range(3):
            m(size); yield
for _ in zip(turns("ping", 500102), turns("pong", 500103)): pass
one = tidemark.scope("one")
def again(n):
    with one:
        m(500104)
        if n: again(n - 1)
again(4); m(500105)
both = threading.Barrier(2)
def together():
    with one:
        both.wait(); m(500106); both.wait()
threads = [threading.Thread(target=together) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
left = tidemark.scope("left"); left.__enter__()
other = threading.Thread(target=lambda: left.__exit__(None, None, None)); other.start(); other.join()
m(500107); left.__exit__(None, None, None)
with contextlib.ExitStack() as stack:
    for i in range(10000): stack.enter_context(tidemark.scope("deep"))
    m(500108)
with tidemark.scope("forks"):
    child = os.fork()
    m(500109 if child else 500110)
    if child: os.waitpid(child, 0)
if not child: os._exit(0)
m(500111)
"""
    wanted = [(500100, "counts", 21), (500101, "tree", 63), (500102, "ping", 1), (500102, "pong", 2), (500103, "pong", 3), (500104, "one", 5), (500105, None, 1), (500106, "one", 2),
              (500107, None, 1), (500108, "deep", 1), (500109, "forks", 1), (500110, None, 1), (500111, None, 1)]
    for python in each(t):
        db = t.imported(record(t, python, text))
        t.equal(db.rows("""SELECT a.size_bytes, CASE WHEN a.scope_id THEN s.name END, count(*) FROM allocation a JOIN scope s ON s.id = a.scope_id
                           WHERE a.api = 'malloc' AND a.size_bytes BETWEEN 500100 AND 500111 GROUP BY 1, 2 ORDER BY 1"""), wanted, f"{python}: scopes")
        t.equal(db.rows("SELECT name, calls FROM scope_total WHERE name IN ('one', 'left', 'deep') AND heap = 'malloc' ORDER BY name"),
                [("deep", 10000), ("left", 1), ("one", 7)], f"{python}: calls")
        t.equal(db.rows("SELECT DISTINCT end_kind FROM scope WHERE id > 0"), [("closed",)], f"{python}: ends")
        t.equal(db.rows("SELECT kind, count FROM loss"), [], f"{python}: losses; the child closes what is its parent's")
        info = t.ask("info", db.path).text
        t.check(all(word in info for word in ("scopes-overlap", "scopes-across-threads", "fork-in-scope", "deep-scopes")), f"{python}: info says\n{info}")


@test
def tasks_are_kept_apart(t):
    """Scopes of one task of an event loop do not take what others on the thread allocate."""
    text = HEAD + """
async def sub(base):
    m(base); await asyncio.sleep(0); m(base + 1)
async def task(n, base):
    with tidemark.scope("task%d" % n):
        m(base + 1); await asyncio.sleep(0.01 * n); m(base + 2)
        with tidemark.scope("inner%d" % n):
            await asyncio.gather(sub(base + 10), sub(base + 20))
            m(base + 3)
        m(base + 4)
@tidemark.profile
async def prof(base):
    m(base + 1)
    with tidemark.scope("in prof"):
        m(base + 2); await asyncio.sleep(0.005); m(base + 3)
    await asyncio.sleep(0); m(base + 4)
    raise LookupError
@tidemark.profile
async def ag(base):
    for i in range(2):
        m(base + i); await asyncio.sleep(0)
        try: yield i
        finally: m(base + 5 + i)
async def cancelled(base):
    with tidemark.scope("cancelled"):
        m(base); await asyncio.sleep(100)
async def main():
    with tidemark.scope("main"):
        one = asyncio.ensure_future(cancelled(550000))
        got = await asyncio.gather(task(1, 510000), task(2, 520000), prof(530000), return_exceptions=True)
        assert isinstance(got[2], LookupError), got
        async for i in ag(540000): m(560000 + i)
        one.cancel()
        try: await one
        except asyncio.CancelledError: m(560005)
    m(560006)
loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop)
loop.run_until_complete(main())
def drive(coroutine):   # a loop that is not asyncio's
    try:
        while True: coroutine.send(None)
    except StopIteration as end: return end.value
class Wait:
    def __await__(self): yield
@tidemark.profile
async def own(base):
    with tidemark.scope("own inner"):
        m(base); await Wait(); m(base + 1)
    return 3
a, b = own(570000), own(571000)
a.send(None); m(570010); b.send(None); m(570011)
assert drive(a) == 3 and drive(b) == 3
"""
    wanted = {560000: "main", 560001: "main", 560005: "main", 560006: None, 530001: "prof", 530002: "in prof", 530003: "in prof", 530004: "prof",
              540000: "ag", 540001: "ag", 540005: "ag", 540006: "ag", 550000: "cancelled", 570000: "own inner", 570001: "own inner", 570010: None,
              570011: None, 571000: "own inner", 571001: "own inner"}
    for n, base in ((1, 510000), (2, 520000)):
        wanted.update({base + 1: f"task{n}", base + 2: f"task{n}", base + 3: f"inner{n}", base + 4: f"task{n}",
                       base + 10: None, base + 11: None, base + 20: None, base + 21: None})
    for python in each(t):
        db = t.imported(record(t, python, text))
        got = {size: name for size, (name, _) in scopes_of(db, 510000, 580000).items()}
        t.equal({size: got.get(size) for size in wanted}, wanted, f"{python}: scopes")
        t.equal(db.value("SELECT count(*) FROM scope WHERE end_kind NOT IN ('closed', 'exception') AND category = 'python'"), 0, f"{python}: scopes left open")
        t.check(db.value("SELECT count(*) FROM scope WHERE name = 'prof' AND end_kind = 'exception'") == 1, f"{python}: prof is marked")


@test
def instants_and_figures(t):
    """stats() counts to the byte what the script allocates; what it cannot know is a ValueError that names what there is."""
    text = HEAD + """
class Device:
    def __init__(self, type, index=None): self.type, self.index = type, index
    def __str__(self): return self.type if self.index is None else "%s:%d" % (self.type, self.index)
before = tidemark.stats("malloc")
p = libc.malloc(10000000)
after = tidemark.stats("malloc")
assert 10000000 <= after.live_bytes - before.live_bytes < 10100000, (before, after)
assert after.exact and after.peak_bytes >= after.live_bytes
libc.free(ctypes.c_void_p(p))
tidemark.reset_peak("malloc")
again = tidemark.stats("malloc")
assert again.peak_since_reset_bytes < after.live_bytes <= again.peak_bytes, (again, after)
def error(heap):
    try: tidemark.stats(heap)
    except (ValueError, TypeError) as e: return "%s: %s" % (type(e).__name__, e)
print(error("nope")); print(error(3)); print(error(None)); print(error(Device("cuda", 1))); print(error(Device("mps"))); print(error(1.5)); print(error(True))
assert tidemark.stats(Device("cpu")).live_bytes == 0
class Torch:   # as PyTorch would answer with two devices
    class cuda:
        device_count = staticmethod(lambda: 2)
        current_device = staticmethod(lambda: 1)
sys.modules["torch"] = Torch
print(error(2)); print(error(Device("cuda", 7)))
assert tidemark.stats() == tidemark.stats(1) == tidemark.stats(Device("cuda")) and tidemark.stats(0).live_bytes == 0
for n in range(3): tidemark.step(n)
tidemark.mark("a mark"); tidemark.snapshot("a label")
tidemark.stop(); libc.malloc(600001); tidemark.start(); libc.malloc(600002)
tidemark.baseline()
assert tidemark.stats("malloc").peak_bytes < after.live_bytes
"""
    for python in each(t):
        recording = record(t, python, text)
        t.equal(recording.text.replace("\r", "").split("\n"), [
            "ValueError: no heap 'nope': there are malloc, mmap, mmap-file",
            "ValueError: no device torch.cuda:3: there is none", "ValueError: no device torch.cuda:0: there is none",
            "ValueError: no device torch.cuda:1: there is none", "ValueError: no device mps: there is none",
            "TypeError: a heap is a name, a device number, a device or None, not 1.5", "TypeError: a heap is a name, a device number, a device or None, not True",
            "ValueError: no device torch.cuda:2: there are torch.cuda:0, torch.cuda:1",
            "ValueError: no device torch.cuda:7: there are torch.cuda:0, torch.cuda:1", ""], f"{python}: errors")
        db = t.imported(recording)
        t.equal(db.rows("SELECT size_bytes FROM allocation WHERE size_bytes BETWEEN 600000 AND 600010"), [(600002,)], f"{python}: stopped, and started again")
        t.equal(db.rows("SELECT n FROM step ORDER BY n"), [(0,), (1,), (2,)], f"{python}: steps")
        t.check(db.value("SELECT count(*) FROM mark WHERE name = 'a mark'") == 1, f"{python}: the mark")


@test
def nothing_without_a_recorder(t):
    """Not preloaded: no effect, no error, and functions as they were."""
    text = HEAD + """
def f(): return 5
assert tidemark.profile(f) is f and tidemark.profile("x")(f) is f
with tidemark.scope("a"): m(1)
tidemark.step(1); tidemark.mark("x"); tidemark.snapshot("x"); tidemark.baseline(); tidemark.stop(); tidemark.start(); tidemark.reset_peak(99)
assert tidemark.stats("anything") == (0, 0, 0, 0, 0, 0, False) and tidemark.stats(99).live_bytes == 0
print("ok")
"""
    with open(t.path("bare.py"), "w", encoding="utf-8") as file:
        file.write(text)
    for python in each(t):
        done = t.run([python.path, t.path("bare.py")], env={"PYTHONPATH": os.path.join(ROOT, "recorder")}, status=0)
        t.equal((done.text, done.errors), ("ok\n", ""), f"{python}: output")


@test
def nothing_without_ctypes(t):
    """A Python whose ctypes is missing, or finds no functions of the program itself, does as it does without a recorder."""
    text = """import sys
if sys.argv[1] == "missing": sys.modules["_ctypes"] = None
else:
    import ctypes
    def refuses(*_, **__): raise TypeError("bad argument type for built-in operation")
    ctypes.CDLL = ctypes.PyDLL = refuses
import tidemark
def f(): return 5
assert tidemark.profile(f) is f and tidemark.stats("malloc").live_bytes == 0
with tidemark.scope("a"): tidemark.mark("x")
print("ok")
"""
    for python in each(t):
        for how in ("missing", "refuses"):
            with open(t.path("without.py"), "w", encoding="utf-8") as file:
                file.write(text)
            recording = t.record([python.path, t.path("without.py"), how], UNNAMED, env={"PYTHONPATH": os.path.join(ROOT, "recorder")}, status=0)
            t.equal(recording.text, "ok\n", f"{python}: {how}: output")


@test
def python_heap(t):
    """Each line's live blocks and bytes, as tracemalloc counts them in the program at the same instant; nothing is lost, and no total has them."""
    text = """import json, sys, tracemalloc
import tidemark
class Thing:
    def __init__(self, n): self.n, self.text = n, "text %d" % n
def build():
    a = [bytes(100 + i) for i in range(2000)]
    b = {str(i): (i, [i]) for i in range(3000)}
    c = [Thing(i) for i in range(1000)]
    d = "x" * 100000
    for i in range(1000): a.append(bytearray(i))
    del a[::3]
    return a, b, c, d
build()                       # what is made once: caches, specialised code
tracemalloc.start()
tidemark.mark("began")
kept = build()
snapshot = tracemalloc.take_snapshot()
tidemark.mark("taken")
tracemalloc.stop()
lines = {s.traceback[0].lineno: (s.count, s.size) for s in snapshot.statistics("lineno") if s.traceback[0].filename == __file__}
print(json.dumps(lines))
"""
    for python in each(t):
        recording = record(t, python, text, "--python-heap=on")
        wanted = {int(line): tuple(figures) for line, figures in json.loads(recording.text).items() if 3 <= int(line) <= 12}
        db = t.imported(recording)
        began, taken = (db.value("SELECT ts_ns FROM mark WHERE name = ?", name) for name in ("began", "taken"))
        rows = live_by_line(db, began, taken, t.path("api.py"))
        for line, (count, size) in wanted.items():
            t.equal(rows.get(line), (count, size), f"{python}: live blocks and bytes of line {line}")
        t.check(len(wanted) >= 5, f"{python}: lines to compare: {wanted}")
        t.equal(db.rows("SELECT parent_id, is_root FROM heap WHERE name = 'python'"), [(None, 0)], f"{python}: the heap")
        t.equal(db.value("SELECT count(*) FROM loss"), 0, f"{python}: losses, frees that match nothing included")
        whole, roots = db.row("SELECT sum(live_bytes) FILTER (WHERE heap IS NULL), sum(live_bytes) FILTER (WHERE heap IN ('malloc', 'mmap')) FROM peak")
        t.check(whole <= roots, f"{python}: the process peak {whole} has none of it, {roots}")


@test
def cells_of_functions_that_begin(t):
    """From 3.11 on a function makes the cells of its arguments before its first line: they are its own, at the line where it begins."""
    text = """
def outer(n):
    def inner():
        return n
    return inner
kept = [outer(i) for i in range(3000)]
"""
    for python in each(t):
        db = t.imported(record(t, python, text, "--python-heap=on"))
        rows = db.rows("SELECT function, line, sum(live_count) FROM peak_site WHERE heap = 'python' AND file = ? GROUP BY 1, 2", t.path("api.py"))
        live = {row[:2]: row[2] for row in rows}
        t.check(None not in {line for _, line in live}, f"{python}: each has a line: {live}")
        t.check(live["outer", 3] >= 3000, f"{python}: functions: {live}")
        if python.minor >= 11:
            t.equal(live["outer", 2], 3000, f"{python}: cells")


def live_by_line(db, begin, at, file):
    """Line -> (blocks, bytes), made since `begin` and live at `at`."""
    rows = db.rows("""SELECT f.line, count(*), sum(a.size_bytes) FROM allocation a JOIN heap h ON h.id = a.heap_id AND h.name = 'python'
                      JOIN stack s ON s.id = a.stack_id JOIN frame f ON f.id = s.site_frame_id
                      WHERE a.alloc_ns <= ?1 AND (a.free_ns IS NULL OR a.free_ns > ?1) AND a.alloc_ns >= ?2 AND f.file = ?3 GROUP BY f.line""", at, begin, file)
    return {line: (count, size) for line, count, size in rows}


@test
def python_heap_set_late_and_again(t):
    """PYTHONMALLOC and -X dev set the allocators anew while the interpreter begins: ours has the same blocks, and each free finds its own."""
    text = """import os, sys
x = [bytes(700 + i) for i in range(500)]
os.write(1, b"%d" % sys.getallocatedblocks())
os._exit(0)
"""
    pythons = each(t)
    every, some = ("default", "debug", "malloc", "malloc_debug", "pymalloc", "pymalloc_debug"), ("debug", "pymalloc")
    for python in pythons:
        plain = python_blocks(t, python, text)
        for settings in ({"PYTHONMALLOC": value} for value in (every if python is pythons[-1] or t.long else some)):
            count, live, counted = python_blocks(t, python, text, settings)
            t.check(apart(live, plain[1]) <= 200, f"{python}, {settings}: live at the end, as without but for what hangs on addresses")
            t.check(plain[0] <= count <= plain[0] + 500, f"{python}, {settings}: {count} blocks, {plain[0]} without")
            t.check(counted is None or abs(counted) <= 10, f"{python}, {settings}: {counted} blocks more than Python counts itself")
        for settings, flags in (({}, ["-X", "dev"]), ({"PYTHONDEVMODE": "1", "PYTHONMALLOC": "malloc"}, [])):
            count, live, _ = python_blocks(t, python, text, settings, flags)
            t.check(count >= plain[0], f"{python}, {settings} {flags}: {count} blocks, {plain[0]} without")


def apart(a, b):
    """How many blocks one has and the other has not, by their size. An id is an int of 28 bytes below 2**30 and of 32 above, and one start in twenty of an
    interpreter that is no PIE has its heap above: both sizes are one."""
    difference = collections.Counter()
    for sign, sizes in ((1, a), (-1, b)):
        for size, count in sizes:
            difference[32 if size == 28 else size] += sign * count
    return sum(map(abs, difference.values()))


def python_blocks(t, python, text, settings=(), flags=(), options=()):
    """How many were recorded; size -> number of what was never freed; how many more than the program counted last."""
    with open(t.path("api.py"), "w", encoding="utf-8") as file:
        file.write(text)
    recording = t.record([python.path, *flags, t.path("api.py")], "--python-heap=on", "--names=none", *options,
                         env={"PYTHONPATH": os.path.join(ROOT, "recorder"), "PYTHONHASHSEED": "0", **dict(settings)})
    db = t.imported(recording)
    heap = "a.heap_id = (SELECT id FROM heap WHERE name = 'python')"
    t.equal(db.value("SELECT count(*) FROM loss"), 0, f"{python}, {settings} {flags}: losses, frees that match nothing included")
    own = db.value(f"SELECT count(*) FROM allocation a WHERE {heap} AND size_bytes BETWEEN 733 AND 1232")
    t.check(own >= 500, f"{python}, {settings} {flags}: the script's own")
    live = db.rows(f"SELECT size_bytes, count(*) FROM allocation a WHERE {heap} AND free_ns IS NULL GROUP BY 1")
    said = int(recording.text or "0")  # without pymalloc it counts none
    more = sum(count for _, count in live) - said if said else None
    return db.value(f"SELECT count(*) FROM allocation a WHERE {heap}"), live, more


@test
def python_heap_under_debug_hooks_again(t):
    """PyMem_SetupDebugHooks() does nothing where the debug hooks are there already: so it is with ours over them, and each block is still recorded."""
    text = """import ctypes, os
x = [bytes(60000 + i) for i in range(10)]
ctypes.pythonapi.PyMem_SetupDebugHooks()
first = bytes(3000) # it is what shows that other hooks lie over ours, and may have their 24 bytes
y = [bytes(70000 + i) for i in range(10)]
del x
ctypes.pythonapi.PyMem_SetupDebugHooks()
first = bytes(3000)
z = [bytes(80000 + i) for i in range(10)]
os.write(1, b"whole")
os._exit(0)
"""
    for python in each(t):
        head = int(t.run([python.path, "-c", "import sys; print(sys.getsizeof(b''))"], status=0).text)
        with open(t.path("hooks.py"), "w", encoding="utf-8") as file:
            file.write(text)
        recording = t.record([python.path, t.path("hooks.py")], "--python-heap=on", env={"PYTHONMALLOC": "debug"})
        t.equal(recording.text, "whole", f"{python}: output")
        rows = t.imported(recording).rows("SELECT size_bytes, free_ns IS NULL FROM allocation WHERE heap_id = (SELECT id FROM heap WHERE name = 'python') "
                                          "AND size_bytes BETWEEN 60000 AND 90000 AND size_bytes % 10000 < 100 ORDER BY size_bytes")
        t.equal(rows, [(first + i + head, first != 60000) for first in (60000, 70000, 80000) for i in range(10)], f"{python}: sizes, and what is still live")


@test
def python_heap_of_interpreters_that_begin_again(t):
    """A program loads the interpreter's library, closes it unused, and then has it begin and end three times, with and without loading it anew, and with
    and without a thread that ends before each time."""
    with open(t.path("again.c"), "w", encoding="utf-8") as file:
        file.write("""#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
static void *library;
static void *work(void *unused) { free(malloc(1000)); return unused; }
static void begin(void) { ((void (*)(int))dlsym(library, "Py_InitializeEx"))(0); }
static int run(const char *text) { return ((int (*)(const char *))dlsym(library, "PyRun_SimpleString"))(text); }
static int end(void) { return ((int (*)(void))dlsym(library, "Py_FinalizeEx"))(); }
int main(int argc, char **argv) {
	int anew = atoi(argv[2]), threads = atoi(argv[3]), failed = 0;
	void *volatile kept;
	dlclose(dlopen(argv[1], RTLD_NOW));
	kept = malloc(770000);
	free(kept);
	library = dlopen(argv[1], RTLD_NOW);
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		if (threads && pthread_create(&thread, NULL, work, NULL) == 0) pthread_join(thread, NULL);
		begin();
		failed |= run("x = bytes(123456)") | end();
		if (anew) dlclose(library), library = dlopen(argv[1], RTLD_NOW);
	}
	return failed;
}
""")
    program, tried, pythons = t.program(t.path("again.c"), "-ldl"), 0, each(t)
    for python in pythons:
        library, home = library_of(t, python)
        if not library:
            continue
        head = int(t.run([python.path, "-c", "import sys; print(sys.getsizeof(b''))"], status=0).text)
        debug = {"PYTHONMALLOC": "debug"}
        every = [({}, "0", "1"), (debug, "1", "0"), ({}, "1", "0"), (debug, "0", "1"), ({}, "0", "0"), (debug, "1", "1")]
        for settings, anew, threads in every if python is pythons[-1] or t.long else every[:2]:
            what = f"{python}, {settings}, loaded anew {anew}, threads {threads}"
            db = t.imported(t.record([program, library, anew, threads], "--python-heap=on", "--names=none", env={"PYTHONHOME": home, **settings}))
            t.equal(db.rows("SELECT count(*), count(free_ns) FROM allocation a JOIN heap h ON h.id = a.heap_id AND h.name = 'python' WHERE size_bytes = ?",
                            123456 + head), [(3, 3)], f"{what}: blocks, and those that were freed")
            t.equal(db.value("SELECT count(*) FROM loss"), 0, f"{what}: losses, frees that match nothing included")
        tried += 1
    if not tried:
        t.skip("no CPython here has a library to load")


@test
def python_heap_and_tracemalloc(t):
    """tracemalloc lies over ours or under it, and is taken off again: each block is recorded once, whatever calls whom."""
    text = """import tracemalloc
a = [bytes(700 + i) for i in range(100)]
tracemalloc.start()
b = [bytes(700 + i) for i in range(200)]
tracemalloc.stop()
c = [bytes(700 + i) for i in range(400)]
del a, b, c
d = [bytes(900 + i) for i in range(500)]
"""
    pythons = each(t)
    both = {"PYTHONTRACEMALLOC": "3"}, {"PYTHONTRACEMALLOC": "3", "PYTHONMALLOC": "debug"}
    for python in pythons:
        plain = python_blocks(t, python, text)
        for settings in both if python is pythons[-1] or t.long else both[1:]:
            for options in ((), ("--stacks=off",), ("--sample=64k",)) if python is pythons[-1] else ((),):
                count, live, _ = python_blocks(t, python, text, settings, options=options)
                t.check(apart(live, plain[1]) <= 200, f"{python}, {settings} {options}: what is live at the end")
                t.check(plain[0] <= count <= plain[0] + 500, f"{python}, {settings} {options}: {count} blocks, {plain[0]} without")


main()
