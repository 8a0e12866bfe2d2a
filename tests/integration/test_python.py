"""Python frames in call stacks, on every CPython of this machine.

Method: a program says itself, with sys._getframe(), where it is when it allocates a block of a size of its own (fixtures/programs/probe.py); the Python frames
of that block's stack in the database must be the same: function, file and line, in the same order. Random programs (python_programs.py) go through
everything that makes a frame. What else is asked is worked out by hand beside the script that it is asked of.
"""
import json
import os
import re

from python_programs import HEAD, KINDS, program
from pythons import candidates, each
from tidemark_test import ROOT, Failed, main, test

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/programs/probe.py")
PROBE_LINE = next(i for i, line in enumerate(open(PROBE, encoding="utf-8"), 1) if "the line of the probe" in line)
# What native frames are called says nothing of Python's, and to look it up takes most of a recording's time: whoever reads no native names does without.
UNNAMED = "--names=none"
STACK = """WITH RECURSIVE up(id, parent, frame, depth) AS (
             SELECT id, parent_id, frame_id, depth FROM stack WHERE id = ?
             UNION ALL SELECT s.id, s.parent_id, s.frame_id, s.depth FROM stack s JOIN up ON s.id = up.parent WHERE s.id != 0)
           SELECT f.kind, f.function, f.file, f.line FROM up JOIN frame f ON f.id = up.frame ORDER BY up.depth DESC"""


def frames_of(db, stack):
    """Innermost first."""
    return db.rows(STACK, stack)


def python_frames(db, stack):
    return [[file, line, function] for kind, function, file, line in frames_of(db, stack) if kind == "python"]


def blocks_of_malloc(db):
    """size -> [(stack, number of blocks), ...]: once for all that is asked of a recording."""
    found = {}
    for size, stack, count in db.rows("SELECT size_bytes, stack_id, count(*) FROM allocation WHERE api = 'malloc' GROUP BY 1, 2"):
        found.setdefault(size, []).append((stack, count))
    return found


def write(t, name, text):
    with open(t.path(name), "w", encoding="utf-8") as file:
        file.write(text)
    with open(PROBE, encoding="utf-8") as source, open(t.path("probe.py"), "w", encoding="utf-8") as file:
        file.write(source.read())
    return t.path(name)


def compare(t, db, out, python, least=1):
    """Every probe of the output against its block in the database."""
    probes, found = 0, blocks_of_malloc(db)
    for line in out.splitlines():
        match = re.match(rb"(\d+) (\[\[.*)", line)
        if not match:
            continue
        size, wanted = int(match[1]), json.loads(match[2])
        stacks = found.get(size, [])
        t.equal([count for _, count in stacks], [1], f"{python}: blocks of {size} bytes, by stack")
        got = python_frames(db, stacks[0][0])
        wanted = [[t.path("probe.py"), PROBE_LINE, "probe"]] + wanted
        if got[:len(wanted)] != wanted or len(got) > max(len(wanted), 100):
            different = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            raise Failed(f"{python}: probe {size}: frame {different} from the inside: got {got[different:different + 3]}, expected "
                         f"{wanted[different:different + 3]} ({len(got)} and {len(wanted)} frames)")
        probes += 1
    t.check(probes >= least, f"{python}: {probes} probes, expected {least}")
    return probes


@test
def random_programs(t):
    """Every kind of frame in every program, in random order."""
    pythons = each(t)
    for python in pythons:
        for seed in range(12 if t.long else 2):
            script = write(t, f"random{seed}.py", program(seed))
            recording = t.record([python.path, script], *(() if python is pythons[-1] else (UNNAMED,)))
            probes = compare(t, t.imported(recording), recording.out, f"{python}, seed {seed}", least=10)
            print(f"{python}, seed {seed}: {probes} stacks agree")


@test
def every_kind_of_frame(t):
    """Each kind calls the probe itself."""
    for python in each(t):
        text = HEAD
        for i, kind in enumerate(sorted(KINDS)):
            text += KINDS[kind].format(i=i, j=i, call="probe()" if kind != "exec" else "bool(probe())") + f"f{i}()\n"
        recording = t.record([python.path, write(t, "kinds.py", text)], UNNAMED)
        compare(t, t.imported(recording), recording.out, python, least=len(KINDS))


def one(t, python, text, *options, size=123457, **how):
    """The frames of the one block of `size` bytes of a script, innermost first."""
    recording = t.record([python.path, write(t, "one.py", text)], UNNAMED, *options, **how)
    db = t.imported(recording)
    return frames_of(db, db.value("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", size)), db


@test
def whole_stack_is_as_documented(t):
    """The user's functions outermost, from <module> on; the frames that the block came through below; the site is the user's line."""
    text = """import ctypes
malloc = ctypes.CDLL(None).malloc
def step():
    malloc(123457)
def train():
    for i in range(1):
        step()
train()
"""
    for python in each(t):
        frames, db = one(t, python, text, "--names=embed")
        script = t.path("one.py")
        t.equal(frames[-3:], [("python", "step", script, 4), ("python", "train", script, 7), ("python", "<module>", script, 8)], f"{python}: outer frames")
        t.check(len(frames) > 3 and all(kind in ("native", "inline") for kind, *_ in frames[:-3]), f"{python}: native frames below: {frames[:-3]}")
        t.equal(db.row("SELECT function, file, line FROM site WHERE allocated_bytes = 123457"), ("step", script, 4), f"{python}: the site")
        stack = db.value("SELECT stack_id FROM allocation WHERE size_bytes = 123457")
        t.check(db.value("SELECT text FROM stack_text WHERE stack_id = ?", stack).startswith("<module>;train;step;"), f"{python}: as text")


@test
def option_python_off(t):
    for python in each(t)[-1:]:
        frames, _ = one(t, python, "import ctypes\nctypes.CDLL(None).malloc(123457)\n", "--python=off")
        t.check(frames and not any(kind == "python" for kind, *_ in frames), f"native frames only: {frames}")


@test
def without_native_stacks(t):
    """--stacks=fp gets little of an interpreter without frame pointers; --stacks=off asks for no stacks at all."""
    for python in each(t)[-1:]:
        text = "import ctypes\ndef f():\n    ctypes.CDLL(None).malloc(123457)\nf()\n"
        frames, _ = one(t, python, text, "--stacks=fp")
        t.equal([f[1:] for f in frames if f[0] == "python"], [("f", t.path("one.py"), 3), ("<module>", t.path("one.py"), 4)], "with frame pointers")
        recording = t.record([python.path, t.path("one.py")], UNNAMED, "--stacks=off")
        db = t.imported(recording)
        t.equal(db.value("SELECT stack_id FROM allocation WHERE size_bytes = 123457"), 0, "without stacks")


@test
def frame_pointers_that_come_again(t):
    """Stacks that end early, in an interpreter without frame pointers, are soon known (2,000 from one place, without the GIL): they keep their Python frames."""
    text = ("import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nlibc.free.argtypes = [ctypes.c_void_p]\ndef f():\n"
            "    libc.free(libc.malloc(123457))\nfor i in range(2000): f()\n")
    for python in each(t):
        with open(t.path("again.py"), "w", encoding="ascii") as file:
            file.write(text)
        db = t.imported(t.record([python.path, t.path("again.py")], UNNAMED, "--stacks=fp"))
        rows = db.rows("""SELECT s.text, count(*) FROM allocation AS a JOIN stack_text AS s USING (stack_id) WHERE a.size_bytes = 123457 GROUP BY 1""")
        t.equal(sum(n for text, n in rows if text.startswith("<module>;f;")), 2000, f"with Python frames, {python.path}: {rows}")


@test
def deep_recursion(t):
    """10,000 deep: the innermost frames are kept, as many as --max-depth says, and a note says that stacks were cut."""
    text = """import ctypes, sys, threading
sys.setrecursionlimit(30000)
malloc = ctypes.CDLL(None).malloc
def down(n):
    if n:
        return down(n - 1)
    malloc(123457)
threading.stack_size(512 << 20)
t = threading.Thread(target=down, args=(10000,))
t.start(); t.join()
"""
    for python in each(t):
        frames, db = one(t, python, text, "--max-depth=4096")
        rows = [f for f in frames if f[0] == "python"]
        t.check(len(rows) >= 4000 or python.minor < 11 and len(rows) >= 500, f"{python}: {len(rows)} Python frames")
        t.equal(rows[0][1:], ("down", t.path("one.py"), 7), f"{python}: innermost")
        t.check(all(f[1:] == ("down", t.path("one.py"), 6) for f in rows[1:4000]), f"{python}: the rest")
        t.check(db.value("SELECT count(*) FROM note WHERE text LIKE '%deeper%' OR text LIKE '%cut%' OR kind LIKE '%cut%'") > 0, f"{python}: a note about cut stacks")


@test
def few_frames(t):
    """As many as --max-depth says, the innermost ones, be they ever so few."""
    text = """import ctypes
def down(n):
    if n: down(n - 1)
    else: ctypes.CDLL(None).malloc(123457)
down(20)
"""
    for python in each(t):
        for depth in (1, 8, 15, 16, 17):
            frames, _ = one(t, python, text, f"--max-depth={depth}")
            t.equal([function for kind, function, *_ in frames if kind == "python"], ["down"] * depth, f"{python}: --max-depth={depth}")


@test
def stacks_of_half_a_ring(t):
    """Two of them, and what is left up to the ring's end where the second does not fit, are more than the ring: it is waited for twice, and nothing is lost."""
    text = """import ctypes, sys
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
sys.setrecursionlimit(20000)
def one(n): return one(n - 1) if n else free(malloc(1000001))
def other(n): return other(n - 1) if n else free(malloc(2000002))
def turns():
    for i in range(100):
        one(4200)
        for k in range(i % 30): bytearray(600)
        other(4200)
turns()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "one.py", text)], UNNAMED, "--max-depth=4096", "--ring=64KiB")
        t.check("lost         nothing" in recording.errors, f"{python}: {recording.errors}")
        db = t.imported(recording)
        for size, function in ((1000001, "one"), (2000002, "other")):
            stacks = db.rows("SELECT s.depth FROM allocation a JOIN stack s ON s.id = a.stack_id WHERE size_bytes = ? AND api = 'malloc'", size)
            t.equal((len(stacks), min(depth for depth, in stacks) >= 4096), (100, True), f"{python}: {function}")


@test
def reused_code_objects(t):
    """Code objects are freed and others come to lie where they were, with the same file name, function name and first line."""
    text = """import ctypes
malloc = ctypes.CDLL(None).malloc
for i in range(200):
    lines = i % 7
    exec(compile("x = 1\\n" + "\\n" * lines + "malloc(1000000 + i)", "<same>", "exec"))
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "one.py", text)], UNNAMED)
        db = t.imported(recording)
        for i in range(200):
            got = python_frames(db, db.value("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", 1000000 + i))
            t.equal(got, [["<same>", i % 7 + 2, "<module>"], [t.path("one.py"), 5, "<module>"]], f"{python}: block {i}")


@test
def lines_that_moved(t):
    """A function is compiled again and again with an empty line at one of two places: code objects lie where freed ones did, their tables of lines differ in the
    middle alone, by changes that are equal."""
    text = """import ctypes, itertools
malloc, sizes = ctypes.CDLL(None).malloc, itertools.count(1000000)
def a(): malloc(next(sizes))
for lines, places in ((14, (0, 13)), (42, (0, 41)), (60, (10, 50)), (150, (40, 60))):
    for i in range(12):
        body = [" a()"] * lines
        body.insert(places[i % 2], "")
        names = {"a": a}
        exec(compile("def f():\\n" + "\\n".join(body), "<same>", "exec"), names)
        names.pop("f")()
"""
    expected = []
    for lines, places in ((14, (0, 13)), (42, (0, 41)), (60, (10, 50)), (150, (40, 60))):
        for i in range(12):
            expected += [2 + line + (line >= places[i % 2]) for line in range(lines)]
    for python in each(t):
        db = t.imported(t.record([python.path, write(t, "one.py", text)], UNNAMED))
        lines_of = {}
        got = []
        for size, stack in db.rows("SELECT size_bytes, stack_id FROM allocation WHERE size_bytes >= 1000000 AND api = 'malloc' ORDER BY size_bytes"):
            if size == 1000000 + len(got):
                lines_of[stack] = lines_of.get(stack) or python_frames(db, stack)[1][:2]
                got.append(lines_of[stack])
        t.equal(got, [["<same>", line] for line in expected], f"{python}: where the blocks were allocated")


@test
def reused_texts(t):
    """What is compiled in a loop has its texts, too, where those of the freed one were. With --sample, and while recording is stopped, nothing is seen of the
    compiler's own allocations in between."""
    text = """import ctypes
import tidemark
malloc = ctypes.CDLL(None).malloc
for i in range(200):
    exec(compile("%s", "<cell %%03d>" %% i, "exec"))
"""
    for python in each(t):
        for what, option, code in (("all", "--quiet", "malloc(1000000 + i)"), ("sampled", "--sample=4K", "malloc(1000000 + i)"),
                                   ("stopped", "--quiet", "tidemark.start(); malloc(1000000 + i); tidemark.stop()")):
            recording = t.record([python.path, write(t, "one.py", text % code)], UNNAMED, option, env={"PYTHONPATH": os.path.join(ROOT, "recorder")})
            db = t.imported(recording)
            found = blocks_of_malloc(db)
            for i in range(200):
                ((stack, count),) = found[1000000 + i]
                t.equal(count, 1, f"{python}, {what}: blocks of the size of {i}")
                got = python_frames(db, stack)
                t.equal(got, [[f"<cell {i:03}>", 1, "<module>"], [t.path("one.py"), 5, "<module>"]], f"{python}, {what}: block {i}")


@test
def codes_without_events(t):
    """Code objects that are made and freed with no event in between, since Python's own allocator has the room: frames, instructions and addresses are the same."""
    text = """import ctypes, gc
malloc = ctypes.CDLL(None).malloc
code = compile("malloc(n)", "", "exec")
gc.disable()
def run(i):
    exec(code.replace(co_filename="cell%03d" % i), {"malloc": malloc, "n": 1000000 + i})
for i in range(200):
    run(i)
"""
    for python in each(t):
        db = t.imported(t.record([python.path, write(t, "one.py", text)], UNNAMED))
        for i in range(200):
            got = python_frames(db, db.value("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", 1000000 + i))
            t.equal(got, [[f"cell{i:03}", 1, "<module>"], [t.path("one.py"), 6, "run"], [t.path("one.py"), 8, "<module>"]], f"{python}: block {i}")


@test
def file_names_that_change(t):
    """As importers change them where a compiled file was moved: the code object stays where it is, and others are freed meanwhile."""
    text = """import ctypes, _imp
malloc = ctypes.CDLL(None).malloc
def work(): malloc(size)
for i in range(20):
    size = 1000000 + i
    _imp._fix_co_filename(work.__code__, "file%02d" % i)
    compile("1", "x", "eval")
    work()
"""
    for python in each(t):
        db = t.imported(t.record([python.path, write(t, "one.py", text)], UNNAMED))
        for i in range(20):
            got = python_frames(db, db.value("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", 1000000 + i))
            t.equal(got, [[f"file{i:02}", 3, "work"], [t.path("one.py"), 8, "<module>"]], f"{python}: block {i}")


@test
def codes_that_run_as_they_are_freed(t):
    """From 3.12 on a watcher sees a code object before it is freed, and may run it. What comes to lie there afterwards is another."""
    text = """import ctypes
malloc = ctypes.CDLL(None).malloc
def template(): malloc(size)
size, is_on, code = 0, False, template.__code__
api = ctypes.pythonapi
api.PyEval_EvalCode.restype, api.PyEval_EvalCode.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
def watch(event, code):
    global is_on, size
    if event == 1 and is_on:
        is_on, size = False, size + 500000
        api.PyEval_EvalCode(code, globals(), globals())
        is_on, size = True, size - 500000
    return 0
callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(watch)
api.PyCode_AddWatcher.argtypes = [type(callback)]
watcher = api.PyCode_AddWatcher(callback)
for i in range(20):
    other = code.replace(co_filename="file%02d" % i)
    compile("1", "x", "eval")
    size = 1000000 + i
    exec(other)
    compile("1", "x", "eval")
    is_on, other = True, None
    is_on = False
api.PyCode_ClearWatcher(watcher)
"""
    pythons = [python for python in each(t) if python.minor >= 12]
    if not pythons:
        t.skip("no CPython from 3.12 on is on this machine")
    for python in pythons:
        db = t.imported(t.record([python.path, write(t, "one.py", text)], UNNAMED))
        for first in (1000000, 1500000):
            for i in range(20):
                got = python_frames(db, db.value("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", first + i))
                t.equal(got[0], [f"file{i:02}", 3, "template"], f"{python}: block {first + i}")


@test
def init_of_classes(t):
    """From 3.13 on the interpreter calls an __init__ from a frame of its own, when it has done so some times: that is none of the program's."""
    text = """from probe import probe
class Thing:
    def __init__(self): probe()
def make(): return Thing()
for i in range(100): make()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "init.py", text)], UNNAMED)
        compare(t, t.imported(recording), recording.out, python, least=100)


# The size of a block tells by which way it was reached; ways come again and again, in threads, by all kinds of calls.
AGAIN = """
import ctypes, functools, json, random, sys, threading
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_void_p], [ctypes.c_size_t]
sizes, lock, callback = {}, threading.Lock(), ctypes.CFUNCTYPE(ctypes.c_int)
def size():
    frame, way = sys._getframe(1), []
    while frame:
        way.append((frame.f_code.co_filename, frame.f_lineno, getattr(frame.f_code, "co_qualname", frame.f_code.co_name)))
        frame = frame.f_back
    with lock:
        return sizes.setdefault(tuple(way), (1 << 24) + 64 * len(sizes))
def leaf(r): libc.free(libc.malloc(size()))
def plain(r, d): return step(r, d)
def partial(r, d): return functools.partial(step, r)(d)
def mapped(r, d): return list(map(lambda q: step(r, q), [d]))
def generator(r, d):
    def values():
        yield step(r, d)
        yield leaf(r)
    for value in values(): pass
def at_last(r, d):
    try: return step(r, d)
    finally: leaf(r)
def key(r, d): return sorted([2, 1], key=lambda q: (step(r, d - 1), q)[1])
def called_back(r, d): return callback(lambda: (step(r, d), 0)[1])()
class Thing:
    def __init__(self, r, d): step(r, d)
def thing(r, d): Thing(r, d)
ways = [plain, partial, mapped, generator, at_last, key, called_back, thing]
def step(r, d):
    if d <= 0:
        for i in range(r.randrange(1, 40)): leaf(r)
        return
    way = r.choice(ways)
    for i in range(r.choice((1, 1, 1, 2, 3))): way(r, d - 1)
def run(seed):
    r = random.Random(seed)
    for i in range(50): step(r, r.randrange(6))
threads = [threading.Thread(target=run, args=(int(sys.argv[1]) + i,)) for i in (1, 2)]
for x in threads: x.start()
run(int(sys.argv[1]))
for x in threads: x.join()
print(json.dumps([[number, way] for way, number in sizes.items()]))
"""


@test
def stacks_that_come_again(t):
    """Most are found to be the last one's without a call of the interpreter's; none may be so that is not."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    for python in each(t):
        recording = t.record([python.path, write(t, "again.py", AGAIN), str(seed)], UNNAMED)
        db, blocks, ways = t.imported(recording), 0, json.loads(recording.out)
        found = blocks_of_malloc(db)
        for size, way in ways:
            for stack, count in found.get(size, []):
                t.equal(python_frames(db, stack), way, f"{python}: {count} blocks of {size} bytes")
                blocks += count
        t.check(blocks > 5 * len(ways) > 500, f"{python}: {blocks} blocks by {len(ways)} ways")


@test
def threads(t):
    """Eight threads at once, each with stacks of its own."""
    text = """import sys, threading
from probe import probe
def leaf(n): probe()
for k in range(8):
    exec("def work%d(n):\\n" % k + "\\n" * k + "    for i in range(n):\\n        leaf(i)\\n        [leaf(j) for j in (1,)]\\n")
all = [threading.Thread(target=globals()["work%d" % (k % 8)], args=(20,)) for k in range(8)]
for x in all: x.start()
for x in all: x.join()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "threads.py", text)], UNNAMED)
        compare(t, t.imported(recording), recording.out, python, least=320)


@test
def short_threads(t):
    """Hundreds of threads, one after the other: rings are used again, and what a number meant there before means nothing."""
    text = """import threading
from probe import probe
for k in range(300):
    space = {"probe": probe}
    exec(compile("def work():\\n" + "\\n" * (k % 50) + "    probe()\\n", "file%d.py" % k, "exec"), space)
    x = threading.Thread(target=space["work"]); x.start(); x.join()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "threads.py", text)], UNNAMED)
        compare(t, t.imported(recording), recording.out, python, least=300)


@test
def tracing_and_faulthandler(t):
    """A trace function, a profile function, and faulthandler's own walks change nothing. Its thread never wakes: while the program runs its walk is a race,
    which CPython 3.13 loses without us, too."""
    text = """import faulthandler, signal, sys, threading
from probe import probe
faulthandler.enable()
faulthandler.register(signal.SIGUSR1, file=open("/dev/null", "w"))
faulthandler.dump_traceback_later(3600)
def tracer(frame, event, arg): return tracer
def inner():
    signal.raise_signal(signal.SIGUSR1)
    x = [
        probe() for _ in (1,)]
def outer():
    inner()
sys.settrace(tracer)
for _ in range(30): outer()
sys.settrace(None)
sys.setprofile(lambda *a: None)
for _ in range(30): outer()
sys.setprofile(None)
faulthandler.cancel_dump_traceback_later()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "tracing.py", text)], UNNAMED)
        compare(t, t.imported(recording), recording.out, python, least=60)


@test
def forks(t):
    """A fork's child, from the main thread and from another, goes on with right stacks; os._exit and a kill lose none."""
    text = """import os, sys, threading, signal
from probe import probe, FIRST
import probe as module
def child(k):
    module.count = 1000 * k
    probe()
    if k == 2: os._exit(3)
    if k == 3: os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)
def make(k):
    pid = os.fork()
    if not pid: child(k)
    os.waitpid(pid, 0)
def start():
    make(4)
probe()
for k in (1, 2, 3): make(k)
x = threading.Thread(target=start); x.start(); x.join()
probe()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "forks.py", text)], UNNAMED)
        compare(t, t.imported(recording), recording.out, python, least=6)


@test
def first_sample(t):
    """The first block of a fork's child or a thread that is recorded, long after its start, has its lines as all others have."""
    text = """import os, threading
from probe import libc
def first(): libc.free(libc.malloc(64 << 20))
def second(): libc.free(libc.malloc(65 << 20))
def work():
    first()
    second()
work()
pid = os.fork()
if not pid:
    work()
    os._exit(0)
os.waitpid(pid, 0)
x = threading.Thread(target=work); x.start(); x.join()
"""
    for python in each(t):
        db = t.imported(t.record([python.path, write(t, "first.py", text)], UNNAMED, "--sample=1MiB"))
        for name, size in (("first", 64 << 20), ("second", 65 << 20)):
            stacks = db.rows("SELECT stack_id FROM allocation WHERE size_bytes = ?", size)
            t.equal([[f[2] for f in python_frames(db, stack)[:2]] for (stack,) in stacks], [[name, "work"]] * 3, f"{python}: {name}")


@test
def finalization(t):
    """atexit functions have their stacks; what __del__ allocates while modules go is there, and nothing crashes, daemon threads in C code included."""
    text = """import atexit, ctypes, sys, threading
from probe import probe, libc
usleep, malloc, free = libc.usleep, libc.malloc, libc.free
def at_end():
    probe()
atexit.register(at_end)
class Late:
    def __del__(self):
        free(malloc(123457))
keep = Late()
keep.me = keep
def spin():
    while True:
        free(malloc(64)); usleep(1)
for _ in range(4): threading.Thread(target=spin, daemon=True).start()
"""
    for python in each(t):
        for _ in range(5):
            recording = t.record([python.path, write(t, "final.py", text)], UNNAMED, "--quiet")
        compare(t, t.imported(recording), recording.out, python)


@test
def named_at_once(t):
    """Python names are in the trace with the stacks, not only when the recorder looks names up at the end."""
    for python in each(t)[-1:]:
        frames, _ = one(t, python, "import ctypes\ndef f():\n    ctypes.CDLL(None).malloc(123457)\nf()\n", "--names=none")
        t.equal([f[1:] for f in frames if f[0] == "python"], [("f", t.path("one.py"), 3), ("<module>", t.path("one.py"), 4)], "names without --names=embed")


@test
def subinterpreters(t):
    """In another interpreter on the same thread: its stacks, or native ones; never the first interpreter's in their place."""
    text = """import sys
try:
    import _interpreters as i
except ImportError:
    import _xxsubinterpreters as i
inner = '''
import sys, ctypes
def inside():
    ctypes.CDLL(None).malloc(%d)
inside()
'''
from probe import probe
probe()
def outside(n):
    x = i.create()
    (getattr(i, "run_string", None) or i.exec)(x, inner % n)
    i.destroy(x)
for n in (1000001, 1000002): outside(n)
probe()
"""
    for python in each(t):
        recording = t.record([python.path, write(t, "sub.py", text)], UNNAMED, status=None)
        bare = t.run([python.path, t.path("sub.py")])
        t.equal(recording.status, bare.status, f"{python}: exit status, recorded and bare")
        db = t.imported(recording)
        compare(t, db, recording.out, python, least=1)
        for size in (1000001, 1000002):
            stacks = db.rows("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", size)
            if not stacks:
                print(f"skipped: {python} does not import ctypes in a subinterpreter: {bare.errors.strip().splitlines()[-1:]}")
                continue
            names = [name for _, _, name in python_frames(db, stacks[0][0])]
            t.check(not names or names[:2] == ["inside", "<module>"], f"{python}: in another interpreter: {names}")
            print(f"{python}: in another interpreter: {names}")


@test
def older_python(t):
    """Of 3.7, which it does not know, a note says so by the version's usual name."""
    found = [path for path in candidates() if path and os.access(path, os.X_OK) and t.run([path, "--version"], status=None).text.startswith("Python 3.7.")]
    if not found:
        t.skip("no CPython 3.7 is on this machine")
    db = t.imported(t.record([found[0], "-c", "print(len(bytearray(100000)))"]))
    t.equal(db.rows("SELECT text FROM note WHERE kind = 'python'"), [("no Python stacks: tidemark does not know the structures of Python 3.7",)], "the note")


main()
