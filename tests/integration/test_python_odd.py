"""What Python programs do besides calling functions: greenlets, event loops with threads, pools, forks in scopes, generators that the collector closes.

Method: blocks of sizes of their own; the database must say in which scope, in which process and from which line of the script each came. A line is found in the
script by its `# LINE` comment, so that the figures stand beside what they are about. On every CPython of this machine.
"""
import itertools
import os

from pythons import each, with_libraries
from tidemark_test import ROOT, main, test

# What native frames are called says nothing of Python's, and to look it up takes most of a recording's time.
UNNAMED = "--names=none"

HEAD = """import ctypes, os, sys, threading
import tidemark
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
m = libc.malloc
"""
SCOPE = "(SELECT s.name FROM scope s WHERE s.id = a.scope_id AND a.scope_id <> 0)"


def write(t, text):
    with open(t.path("odd.py"), "w", encoding="utf-8") as file:
        file.write(HEAD + text)
    return t.path("odd.py")


def record(t, python, text, *options, flags=(), **how):
    how.setdefault("env", {"PYTHONPATH": os.pathsep.join(filter(None, (os.path.join(ROOT, "recorder"), os.environ.get("PYTHONPATH"))))})
    return t.record([python.path, *flags, write(t, text)], UNNAMED, *options, **how)


def line_of(text, word):
    """The line of the script on which `# word` stands."""
    return next(n for n, line in enumerate((HEAD + text).splitlines(), 1) if line.endswith("# " + word))


def blocks(db, first, last):
    """size -> (scope, its end, process), of malloc's blocks in a range of sizes; each size is one block."""
    rows = db.rows(f"SELECT a.size_bytes, {SCOPE}, (SELECT s.end_kind FROM scope s WHERE s.id = a.scope_id), a.process_id FROM allocation a "
                   "WHERE a.api = 'malloc' AND a.size_bytes BETWEEN ? AND ?", first, last)
    assert len({row[0] for row in rows}) == len(rows), rows
    return {size: (scope, end if scope else None, process) for size, scope, end, process in rows}


def lines(db, size):
    """The Python lines of a block's stack, innermost first, within the script."""
    return db.rows("""WITH RECURSIVE up(id, parent, frame, depth) AS (
                        SELECT s.id, s.parent_id, s.frame_id, s.depth FROM stack s WHERE s.id = (SELECT stack_id FROM allocation WHERE api = 'malloc' AND size_bytes = ?)
                        UNION ALL SELECT s.id, s.parent_id, s.frame_id, s.depth FROM stack s JOIN up ON s.id = up.parent WHERE s.id != 0)
                      SELECT f.function, f.line FROM up JOIN frame f ON f.id = up.frame WHERE f.kind = 'python' AND f.file LIKE '%/odd.py' ORDER BY up.depth DESC""", size)


def innermost(db, size):
    """The innermost Python function of a block's stack."""
    return db.value("SELECT s.function FROM site s JOIN allocation a USING (process_id, stack_id) WHERE a.api = 'malloc' AND a.size_bytes = ?", size)


@test
def a_full_buffer(t):
    """A program without scopes loses events, and of other records only those of its libraries: what a Python stack needs goes with the event that it was for."""
    text = """import signal
os.kill(os.getppid(), signal.SIGSTOP)
for i in range(20000):
    bytearray(600)
os.kill(os.getppid(), signal.SIGCONT)
"""
    for python in each(t):
        db = t.imported(record(t, python, text, "--on-full=drop", "--ring=64KiB"))
        lost = dict(db.rows("select kind, sum(count) from loss group by kind"))
        t.check(lost.get("ring-full", 0) > 15000 and lost.get("records", 0) < 100, f"what is lost: {lost}")


@test
def event_loop_and_threads(t):
    """A task hands work to threads while its scope is open: what the threads allocate is in their own scopes, or in none."""
    text = """import asyncio
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
def work(n):
    m(500100 + n)
    with tidemark.scope("work"):
        m(500200 + n)
async def task(n):
    with tidemark.scope("task"):
        m(500300 + n)
        await asyncio.get_running_loop().run_in_executor(pool, work, n)
        m(500400 + n)  # RESUMED
    m(500500 + n)
async def run():
    await asyncio.gather(*(task(n) for n in range(8)))
asyncio.run(run())
"""
    for python in each(t):
        db = t.imported(record(t, python, text))
        got = blocks(db, 500100, 500507)
        t.equal({size: scope for size, (scope, _, _) in got.items()},
                {base + n: scope for base, scope in ((500100, None), (500200, "work"), (500300, "task"), (500400, "task"), (500500, None)) for n in range(8)},
                f"{python}: scopes")
        t.equal(db.row("SELECT calls, self_allocated_bytes FROM scope_total WHERE name = 'work' AND heap = 'malloc'")[0], 8, f"{python}: calls of work")
        t.equal(lines(db, 500407)[0], ("task", line_of(text, "RESUMED")), f"{python}: the line of a task that goes on")


@test
def pool_of_processes(t):
    """multiprocessing.Pool, forked and spawned: each job in its scope, in one of two processes of their own, from its line."""
    text = """import multiprocessing
def job(n):
    with tidemark.scope("job"):
        m(500100 + n)  # JOB
    return os.getpid()
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1] if len(sys.argv) > 1 else "fork").Pool(2) as pool:
        pids = pool.map(job, range(8), chunksize=1)
    pool.join()
    m(500200)
"""
    pythons = each(t)
    for python in pythons:
        script = write(t, text)
        for method in ("fork", "spawn") if python is pythons[-1] else ("fork",):
            recording = t.record([python.path, script, method], UNNAMED, env={"PYTHONPATH": os.path.join(ROOT, "recorder")})
            db = t.imported(recording)
            got = blocks(db, 500100, 500200)
            t.equal({size: scope for size, (scope, _, _) in got.items()}, {**{500100 + n: "job" for n in range(8)}, 500200: None}, f"{python}: {method}: scopes")
            workers = {process for size, (_, _, process) in got.items() if size < 500200}
            t.check(workers and got[500200][2] not in workers and len(workers) <= 2, f"{python}: {method}: jobs in processes {workers}")
            t.equal(db.value("SELECT sum(self_allocated_bytes) >= 8 * 500100 FROM scope_total WHERE name = 'job' AND heap = 'malloc'"), 1, f"{python}: bytes of job")
            for n in range(8):
                t.equal(lines(db, 500100 + n)[0], ("job", line_of(text, "JOB")), f"{python}: {method}: the line of job {n}")


@test
def fork_in_a_scope(t):
    """A child begins without its parent's scopes: its blocks are in those that it opens itself, and what it closes of its parent's is nobody's."""
    text = """with tidemark.scope("around"):
    m(500001)
    pid = os.fork()
    if not pid:
        m(500002)  # CHILD
        with tidemark.scope("in the child"):
            m(500003)
        m(500004)
    else:
        os.waitpid(pid, 0)
        m(500005)
if not pid:
    m(500006)
    os._exit(0)
m(500007)
"""
    for python in each(t):
        db = t.imported(record(t, python, text))
        got = blocks(db, 500001, 500007)
        t.equal({size: scope for size, (scope, _, _) in got.items()},
                {500001: "around", 500002: None, 500003: "in the child", 500004: None, 500005: "around", 500006: None, 500007: None}, f"{python}: scopes")
        t.equal([size for size, (_, _, process) in sorted(got.items()) if process == got[500001][2]], [500001, 500005, 500007], f"{python}: blocks of the parent")
        t.equal(db.value("SELECT count(*) FROM scope WHERE name = 'around'"), 1, f"{python}: instances of around")
        t.equal(lines(db, 500002), [("<module>", line_of(text, "CHILD"))], f"{python}: the child's line")


@test
def generators_that_the_collector_closes(t):
    """Left in the middle and part of a cycle: their scopes close when the collector finds them, and their last block is from the line of `finally`."""
    text = """import gc
gc.disable()
def left(n, holder):
    with tidemark.scope("left"):
        m(500100 + n)
        try:
            yield holder
        finally:
            m(500200 + n)  # FINALLY
@tidemark.profile
def profiled(n, holder):
    m(500300 + n)
    try:
        yield holder
    finally:
        m(500400 + n)
for n in range(3):
    for kind in (left, profiled):
        holder = []
        it = kind(n, holder)
        holder.append(it)
        next(it)
        del holder, it
    m(500500 + n)
    gc.collect()  # COLLECT
    m(500600 + n)
"""
    wanted = {100: "left", 200: "left", 300: "profiled", 400: "profiled", 500: "left", 600: None}
    for python in each(t):
        db = t.imported(record(t, python, text))
        got = blocks(db, 500100, 500602)
        t.equal({size: scope for size, (scope, _, _) in got.items()}, {500000 + base + n: scope for base, scope in wanted.items() for n in range(3)}, f"{python}: scopes")
        t.equal(db.value("SELECT count(*) FROM scope WHERE category = 'python' AND end_kind NOT IN ('closed', 'exception')"), 0, f"{python}: scopes left open")
        t.equal(lines(db, 500201), [("left", line_of(text, "FINALLY")), ("<module>", line_of(text, "COLLECT"))], f"{python}: the stack of finally")


@test
def scopes_ten_thousand_deep(t):
    """Each level keeps 10 bytes: 100,010 in all, counted once."""
    text = """sys.setrecursionlimit(100000)
def down(n):
    with tidemark.scope("down"):
        m(10)
        if n: down(n - 1)
        else: m(500001)  # BOTTOM
threading.stack_size(512 << 20)
thread = threading.Thread(target=down, args=(10000,))
thread.start(); thread.join()
"""
    for python in each(t)[-1:]:
        db = t.imported(record(t, python, text, "--stacks=off"))
        t.equal(db.value("SELECT count(*) FROM scope WHERE name = 'down'"), 10001, f"{python}: instances")
        t.equal(db.value("SELECT max(depth) - min(depth) FROM scope WHERE name = 'down'"), 10000, f"{python}: depth")
        t.equal(db.value("SELECT sum(size_bytes) FROM allocation a JOIN scope s ON s.id = a.scope_id WHERE s.name = 'down' AND api = 'malloc' AND size_bytes = 10"), 100010,
                f"{python}: bytes of 10")
        calls, own, total, retained = db.row("SELECT calls, self_allocated_bytes, total_allocated_bytes, retained_bytes FROM scope_total WHERE name = 'down' AND heap = 'malloc'")
        t.equal((calls, own), (10001, total), f"{python}: all of its total is its own, counted once")
        t.check(600011 <= retained <= total, f"{python}: what it keeps: {retained} of {total}")


@test
def import_times(t):
    """-X importtime, and other flags that change what runs: the line and the scope of a block are the same."""
    text = """def f():
    with tidemark.scope("s"):
        m(500001)  # F
f()
"""
    others = (("-X", "dev"), ("-O", "-O"), ("-X", "utf8", "-B", "-s"))
    pythons = each(t)
    for python in pythons:
        for flags in (("-X", "importtime"), *(others if python is pythons[-1] else ())):
            recording = record(t, python, text, flags=flags)
            db = t.imported(recording)
            t.equal(blocks(db, 500001, 500001)[500001][:2], ("s", "closed"), f"{python} {flags}: the scope")
            t.equal(lines(db, 500001)[0], ("f", line_of(text, "F")), f"{python} {flags}: the line")
            t.check("importtime" not in flags or recording.program_err.count(b"import time:") > 20, f"{python}: its times are there")


@test
def greenlets(t):
    """Several stacks on one thread: each block has the lines of the greenlet that allocated it, and of no other."""
    text = """import greenlet
def leaf(n):
    m(500100 + n)  # LEAF
def first():
    for n in range(0, 20, 2):
        leaf(n)  # FIRST
        b.switch()
def deeper(n):
    leaf(n)  # DEEPER
    a.switch()
def second():
    for n in range(1, 20, 2):
        deeper(n)  # SECOND
a, b = greenlet.greenlet(first), greenlet.greenlet(second)
a.switch()
m(500200)  # MAIN
"""
    found = [python for python in each(t) if t.run([python.path, "-c", "import greenlet"], env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")}).status == 0]
    if not found:
        t.skip("no Python here imports greenlet")
    for python in found:
        db = t.imported(record(t, python, text))
        for n in range(20):
            outer = [("first", line_of(text, "FIRST"))] if n % 2 == 0 else [("deeper", line_of(text, "DEEPER")), ("second", line_of(text, "SECOND"))]
            t.equal(lines(db, 500100 + n), [("leaf", line_of(text, "LEAF")), *outer], f"{python}: block {n}")
        t.equal(lines(db, 500200), [("<module>", line_of(text, "MAIN"))], f"{python}: the main greenlet")


@test
def embedded_in_a_program_that_knows_code_objects(t):
    """A program that is linked with the interpreter's library and asks what is a code object holds the type itself: the linker copies it there."""
    with open(t.path("embed.c"), "w", encoding="utf-8") as file:
        file.write("""#include <stdio.h>
extern char PyCode_Type[];
void Py_Initialize(void), Py_Finalize(void);
int PyRun_SimpleString(const char *text);
int main(int argc, char **argv) {
	Py_Initialize();
	if (!(PyCode_Type[0] | PyCode_Type[3]) || PyRun_SimpleString("import ctypes\\ndef inner(n):\\n ctypes.CDLL(None).malloc(n)\\ninner(770000)\\n")) return 1;
	Py_Finalize();
	return 0;
}
""")
    for i, (python, library, home) in enumerate(with_libraries(t)):
        program = t.program(t.path("embed.c"), *library, name=f"embed{i}")
        db = t.imported(t.record([program], UNNAMED, env={"PYTHONHOME": home}))
        t.equal(db.rows("SELECT s.function FROM site s JOIN allocation a USING (process_id, stack_id) WHERE a.api = 'malloc' AND a.size_bytes = 770000"),
                [("inner",)], f"{python}: the innermost functions")


# A thread's state that another thread runs, or deletes, while the thread itself goes on in C.
STATES = """
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void Py_InitializeEx(int);
int PyRun_SimpleStringFlags(const char *, void *);
void *PyInterpreterState_Main(void), *PyThreadState_New(void *), *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *), PyThreadState_Clear(void *), PyThreadState_Delete(void *);
static void *state;
static volatile int step;
static void wait_for(int n) { while (step < n) usleep(1000); }
static void *borrow(void *unused) {
	PyEval_RestoreThread(state);
	PyRun_SimpleStringFlags("for i in range(600): deep(i % 200)", NULL);
	state = PyEval_SaveThread();
	step = 1;
	return unused;
}
static void fill(size_t low, size_t high, unsigned count) {
	for (size_t n = low; n < high; n += 8)
		for (unsigned i = 0; i < count; i++) {
			unsigned long *block = malloc(n);
			for (size_t at = 0; at < n / 8; at++) block[at] = 0x123456789ab8ul;
		}
}
static void *lose(void *unused) {
	state = PyThreadState_New(PyInterpreterState_Main());
	PyEval_RestoreThread(state);
	PyRun_SimpleStringFlags("deep(30)", NULL);
	PyEval_SaveThread();
	step = 1;
	wait_for(2);
	fill(16, 1500, 3);
	for (int i = 0; i < 1000; i++) free(malloc(200001));
	return unused;
}
int main(int count, char **words) {
	pthread_t thread;
	mallopt(M_ARENA_MAX, 1);
	Py_InitializeEx(0);
	PyRun_SimpleStringFlags("def deep(n): return [0] * 70000 if n == 0 else deep(n - 1)", NULL);
	PyRun_SimpleStringFlags("deep(5)", NULL);
	void *own = state = PyEval_SaveThread();
	if (count > 1 && !strcmp(words[1], "borrow")) {
		pthread_create(&thread, NULL, borrow, NULL);
		while (!step) free(malloc(200001));
		pthread_join(thread, NULL);
		return 0;
	}
	pthread_create(&thread, NULL, lose, NULL);
	wait_for(1);
	PyEval_RestoreThread(own);
	PyThreadState_Clear(state);
	PyThreadState_Delete(state);
	fill(100, 1500, 3);
	PyEval_SaveThread();
	step = 2;
	pthread_join(thread, NULL);
	return 0;
}
"""


@test
def states_of_threads_that_others_have(t):
    """The thread's blocks have no Python frames, as it is in no Python function; nothing is followed that is not its own."""
    with open(t.path("states.c"), "w", encoding="utf-8") as file:
        file.write(STATES)
    for i, (python, library, home) in enumerate(with_libraries(t)):
        program = t.program(t.path("states.c"), *library, name=f"states{i}")
        for how, *options in (("borrow",), ("lose",), ("lose", "--stacks=fp"), ("lose", "--max-depth=1")):  # native stacks that are cut say less
            if t.run([program, how], env={"PYTHONHOME": home}).status:
                print(f"skipped: {python} aborts at '{how}' by itself, as debug builds do")
                continue
            db = t.imported(t.record([program, how], UNNAMED, *options, env={"PYTHONHOME": home}))
            blocks = "SELECT count(*) FROM allocation a WHERE size_bytes = 200001"
            python_frame = "stack_id IN (WITH RECURSIVE inside(id) AS (SELECT s.id FROM stack s JOIN frame f ON f.id = s.frame_id WHERE f.kind = 'python' " \
                           "UNION SELECT s.id FROM stack s JOIN inside ON s.parent_id = inside.id) SELECT id FROM inside)"
            t.check(db.value(blocks) >= 100, f"{python}, {how} {options}: blocks")
            t.equal(db.value(f"{blocks} AND {python_frame}"), 0, f"{python}, {how} {options}: blocks with Python frames")
            t.check(db.value(f"SELECT count(*) FROM allocation WHERE size_bytes >= 560000 AND {python_frame}") > 0, f"{python}, {how} {options}: Python's own blocks")


# While a thread loads a library that needs the interpreter's, and another one that takes long to be made ready, the main thread comes for the first time into
# code of a library that it has loaded: the recorder looks at the list of modules.
SLOW = """
#include <time.h>
static void slow_one(void) {}
static void *choose(void) {
	struct timespec time = { 0, 700000000 };
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(35), "D"(&time), "S"(0) : "rcx", "r11", "memory");
	return slow_one;
}
void slow(void) __attribute__((ifunc("choose")));
void (*slow_pointer)(void) = slow;
"""
EARLY = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *load(void *name) { return dlopen(name, RTLD_NOW | RTLD_GLOBAL); }
int main(int count, char **words) {
	pthread_t thread;
	void *handle, (*allocate)(void) = dlsym(dlopen(words[1], RTLD_NOW), "allocate");
	free(malloc(77));
	pthread_create(&thread, NULL, load, words[2]);
	usleep(350000);
	for (int i = 0; i < 200; i++) allocate();
	for (int i = 0; i < 200; i++) free(malloc(77));
	pthread_join(thread, &handle);
	if (count != 3 || !handle) return 1;
	((void (*)(int))dlsym(handle, "Py_InitializeEx"))(0);
	return ((int (*)(const char *, void *))dlsym(handle, "PyRun_SimpleStringFlags"))("def inner(): return [0] * 70000\\ninner()", NULL);
}
"""


@test
def listed_before_it_is_ready(t):
    """The loader lists a library before its addresses are right: nothing of it is called then, and later it is found."""
    def compiled(name, text, *flags):
        with open(t.path(name + ".c"), "w", encoding="utf-8") as file:
            file.write(text)
        return t.program(t.path(name + ".c"), *flags, name=name)

    shared = ("-shared", "-fPIC")
    if os.uname().machine != "x86_64":
        t.skip("the slow library makes a system call of x86-64")
    slow = compiled("slow.so", SLOW, *shared)
    plug = compiled("plug.so", "#include <stdlib.h>\nvoid allocate(void) { void *volatile block = malloc(55); free(block); }\n", *shared)
    program = compiled("early", EARLY)
    for i, (python, library, home) in enumerate(itertools.islice(with_libraries(t), 3)):
        needs = compiled(f"needs{i}.so", "int nothing;\n", *shared, "-Wl,--no-as-needed", *library, slow)
        db = t.imported(t.record([program, plug, needs], UNNAMED, env={"PYTHONHOME": home}))
        t.equal(db.rows("SELECT s.function FROM site s JOIN allocation a USING (process_id, stack_id) WHERE a.api = 'malloc' AND a.size_bytes = 560000"),
                [("inner",)], f"{python}: the innermost functions")


@test
def beside_another_that_counts_codes(t):
    """A program puts a function of its own where code objects' type says how they are freed, in front of ours; extension modules are loaded after that."""
    text = """slot = ctypes.c_void_p.from_address(id(type((lambda: 0).__code__)) + ctypes.sizeof(ctypes.c_void_p) * SLOT)
kind = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
first = slot.value
before = kind(first)
freed = 0
def count(code):
    global freed
    freed += 1
    before(code)
counter = kind(count)
slot.value = ctypes.cast(counter, ctypes.c_void_p).value
import _lzma, _sqlite3, zlib, _decimal
code = compile("m(n)", "", "exec")
def run(i):
    exec(code.replace(co_name="code%03d" % i, **{"co_qualname": "code%03d" % i} if sys.version_info >= (3, 11) else {}), {"m": m, "n": 600000 + i})
for i in range(200):
    run(i)
slot.value = first
print(freed)
"""
    for python in each(t):
        script = text.replace("SLOT", "8" if python.free_threaded else "6")
        recording = record(t, python, script)
        t.check(int(recording.out) >= 200, f"{python}: its function was called {recording.out} times")
        db = t.imported(recording)
        t.equal([innermost(db, 600000 + i) for i in range(200)], [f"code{i:03}" for i in range(200)], f"{python}: the innermost functions")


@test
def beside_memray(t):
    """memray looks up what it replaces by several ways, and writes a warning where they differ: mmap and mmap64 are one function in libc, and here."""
    text = """def address(name):
    return ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
print(address("mmap") == address("mmap64"), address("mmap") == address("munmap"))
"""
    recording = record(t, each(t)[-1], text)
    t.equal(recording.out.strip(), b"True False", "one function by two names")


@test
def a_function_of_400_000_lines(t):
    """Its line table is cut: lines from which on are not known have none, and not the function's first."""
    python = next((python for python in each(t) if python.minor >= 11), None)
    if not python:
        t.skip("no CPython from 3.11 on, whose line tables grow so long")
    text = "d = {\n1: bytearray(7000001), # EARLY\n" + "2: int(),\n" * 420000 + "3: bytearray(8000001),\n}\n"
    db = t.imported(record(t, python, text))
    t.equal(db.rows("select allocated_bytes, function, line from site where allocated_bytes in (7000002, 8000002) order by 1"),
            [(7000002, "<module>", line_of(text, "EARLY")), (8000002, "<module>", None)], "lines")


@test
def a_fork_inside_of_scopes(t):
    """In the child nothing of them is open: to leave them there, or to go on in a generator, ends nothing and loses nothing."""
    text = """import ctypes, os
import tidemark
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
@tidemark.profile
def body():
    with tidemark.scope("inner"):
        child = os.fork() == 0
        child or os.wait()
        libc.malloc(600001 + child)
        yield child
    libc.malloc(600003 + child)
    yield child
with tidemark.scope("outer"):
    running = body()
    child = next(running)
    if child:
        with tidemark.scope("child's"):
            libc.malloc(600006)
    next(running)
libc.malloc(600007 + child)
if child: os._exit(0)
"""
    for python in each(t):
        with open(t.path("forks.py"), "w", encoding="ascii") as file:
            file.write(text)
        db = t.imported(t.record([python.path, t.path("forks.py")], "--names=none", env={"PYTHONPATH": os.path.join(ROOT, "recorder")}))
        scopes = dict(db.rows("SELECT a.size_bytes, s.name FROM allocation a LEFT JOIN scope s ON s.id = a.scope_id WHERE a.size_bytes BETWEEN 600001 AND 600008"))
        t.equal(scopes, {600001: "inner", 600002: "[unscoped]", 600003: "body", 600004: "body", 600006: "child's", 600007: "[unscoped]", 600008: "[unscoped]"},
                f"{python}: scopes")
        t.equal(db.rows("SELECT kind, count FROM loss"), [], f"{python}: losses")
        t.check("fork-in-scope" in t.ask("info", db.path).text, f"{python}: the note")


main()
