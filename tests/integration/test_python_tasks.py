"""Scopes of asyncio's tasks where they begin eagerly, share a context, run at each other's side with callbacks, or are left by others.

Method: blocks of sizes of their own, allocated before and after each await; the scope of each must be the one that stands around it in
its own task's text. The eager factory changes when a task begins, but not whose memory is whose: the same program is run with it and
without. On every CPython of this machine.
"""
import os

from pythons import each
from tidemark_test import ROOT, main, test

# What native frames are called says nothing of Python's, and to look it up takes most of a recording's time.
UNNAMED = "--names=none"

HEAD = """import asyncio, ctypes, sys
import tidemark
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
m = libc.malloc
EAGER = "eager" in sys.argv
def run(main):
    loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop)
    if EAGER: loop.set_task_factory(asyncio.eager_task_factory)
    loop.set_debug("debug" in sys.argv)
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
"""


def scopes_of(t, python, text, *arguments):
    """Size -> names of the scopes of malloc's blocks of that size, in the order of time."""
    with open(t.path("tasks.py"), "w", encoding="utf-8") as file:
        file.write(HEAD + text)
    recording = t.record([python.path, t.path("tasks.py"), *arguments], UNNAMED, env={"PYTHONPATH": os.path.join(ROOT, "recorder")})
    db = t.imported(recording)
    left = db.rows("SELECT name, end_kind FROM scope WHERE category = 'python' AND end_kind NOT IN ('closed', 'exception')")
    t.equal(left, [], f"{python} {arguments}: left open")
    t.equal(db.value("SELECT count(*) FROM loss"), 0, f"{python} {arguments}: losses")
    got = {}
    for size, name in db.rows("""SELECT a.size_bytes, CASE WHEN a.scope_id THEN s.name END FROM allocation a
                                 JOIN scope s ON s.id = a.scope_id
                                 WHERE a.api = 'malloc' AND a.size_bytes BETWEEN 500000 AND 599999 ORDER BY a.alloc_ns"""):
        got.setdefault(size, []).append(name)
    return got


def ways(python, *others):
    """Arguments of the script: without and with eager tasks, where there are such."""
    return [(*eager, *other) for eager in ((), ("eager",))[:2 if python.minor >= 12 else 1] for other in ((), *others)]


@test
def eager_tasks(t):
    """Until it is first suspended a task is its creator's call; then both have their own scopes, as have tasks that it creates in turn."""
    text = """
async def leaf(base):
    await asyncio.sleep(0)
    m(base)
    with tidemark.scope("leaf"):
        m(base + 1); await asyncio.sleep(0); m(base + 2)
async def task(n):
    with tidemark.scope("task%d" % n):
        m(500010 + n)
        with tidemark.scope("inner%d" % n):
            m(500020 + n); await asyncio.sleep(0.001 * n); m(500030 + n)
        made = asyncio.ensure_future(leaf(500100 + 10 * n)); m(500040 + n)
        await asyncio.sleep(0); m(500050 + n)
        await made; m(500060 + n)
    m(500070 + n)
@tidemark.profile
async def profiled(n):
    m(500080)
    with tidemark.scope("in profiled"): m(500081); await asyncio.sleep(0); m(500082)
    m(500083)
async def at_once():
    with tidemark.scope("at once"): m(500090)
async def fails():
    with tidemark.scope("fails"): m(500091); await asyncio.sleep(0); m(500092); raise KeyError
async def main():
    m(500000)
    with tidemark.scope("main"):
        tasks = []
        for n in range(3): tasks.append(asyncio.ensure_future(task(n))); m(500001)
        tasks.append(asyncio.ensure_future(profiled(1))); m(500002)
        tasks.append(asyncio.ensure_future(at_once())); m(500003)
        tasks.append(asyncio.ensure_future(fails())); m(500004)
        await asyncio.gather(*tasks, return_exceptions=True)
        m(500005)
    m(500006)
run(main)
"""
    wanted = {500000: [None], 500001: ["main"] * 3, **{500002 + n: ["main"] for n in range(4)}, 500006: [None],
              500080: ["profiled"], 500081: ["in profiled"], 500082: ["in profiled"], 500083: ["profiled"], 500090: ["at once"], 500091: ["fails"], 500092: ["fails"]}
    for n in range(3):
        wanted.update({500000 + at + n: [f"task{n}"] for at in (10, 40, 50, 60)})
        wanted.update({500020 + n: [f"inner{n}"], 500030 + n: [f"inner{n}"], 500070 + n: [None]})
        wanted.update({500100 + 10 * n: [None], 500101 + 10 * n: ["leaf"], 500102 + 10 * n: ["leaf"]})
    for python in each(t):
        for arguments in ways(python, ("debug",)):
            t.equal(scopes_of(t, python, text, *arguments), wanted, f"{python} {arguments}: scopes")


@test
def one_context_of_several_tasks(t):
    """Tasks and callbacks that are given one context (from 3.11 on) have their own scopes all the same."""
    text = """
import contextvars
async def task(n):
    with tidemark.scope("task%d" % n):
        for i in range(4): m(500000 + n); await asyncio.sleep(0.0005 * (n + 1))
    m(500010 + n)
async def quiet():
    for i in range(6): m(500020); await asyncio.sleep(0.0005)
async def main():
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(task(n), context=context) for n in range(3)] + [loop.create_task(quiet(), context=context)]
    for i in range(4): loop.call_later(0.0005 * i, m, 500030, context=context)
    loop.call_soon(tasks[0].done, context=context)
    m(500040)
    await asyncio.gather(*tasks)
    m(500041)
run(main)
"""
    wanted = {**{500000 + n: [f"task{n}"] * 4 for n in range(3)}, **{500010 + n: [None] for n in range(3)}, 500020: [None] * 6, 500030: [None] * 4,
              500040: [None], 500041: [None]}
    for python in each(t):
        for arguments in ways(python) if python.minor >= 11 else ():
            t.equal(scopes_of(t, python, text, *arguments), wanted, f"{python} {arguments}: scopes")


@test
def left_by_others(t):
    """A scope that another task leaves while its own is suspended does not come back; a callback's scope is open for nobody else."""
    text = """
shared = tidemark.scope("shared")
async def both(n):
    with shared: m(500010 + n); await asyncio.sleep(0.001); m(500020 + n)
    m(500030 + n)
async def agen():
    with tidemark.scope("agen"): m(500040); yield 1; m(500041)
async def cancelled():
    with tidemark.scope("cancelled"):
        try: m(500050); await asyncio.sleep(10)
        finally: m(500051)
class Repeats(asyncio.Protocol):
    scope = tidemark.scope("connection")
    def connection_made(self, transport): self.scope.__enter__(); m(500060)
    def connection_lost(self, error): m(500061); self.scope.__exit__(None, None, None); m(500062)
async def main():
    one, entered, left = tidemark.scope("held"), asyncio.Event(), asyncio.Event()
    task = asyncio.ensure_future(holds(one, entered, left)); await entered.wait()
    one.__exit__(None, None, None); m(500070); left.set()
    await task
    await asyncio.gather(both(0), both(1))
    a = agen(); await a.__anext__(); del a
    task = asyncio.ensure_future(cancelled()); await asyncio.sleep(0.0005)
    asyncio.get_event_loop().call_soon(task.cancel); m(500052)
    try: await task
    except asyncio.CancelledError: pass
    m(500053)
    import socket
    here, there = socket.socketpair()
    transport, _ = await asyncio.get_event_loop().create_connection(Repeats, sock=here)
    m(500063); await asyncio.sleep(0.001); m(500064)
    transport.close(); await asyncio.sleep(0.001); m(500065); there.close()
async def holds(one, entered, left):
    one.__enter__(); m(500071); entered.set(); await left.wait(); m(500072)
run(main)
"""
    wanted = {500010: ["shared"], 500011: ["shared"], 500020: ["shared"], 500021: ["shared"], 500030: [None], 500031: [None],
              500040: ["agen"], 500050: ["cancelled"], 500051: ["cancelled"], 500052: [None], 500053: [None],
              500060: ["connection"], **{500061 + n: [None] for n in range(5)}, 500070: [None], 500071: ["held"], 500072: [None]}
    for python in each(t):
        for arguments in ways(python):
            got = scopes_of(t, python, text, *arguments)
            t.equal({size: got.get(size) for size in wanted}, {**wanted}, f"{python} {arguments}: scopes")


@test
def many_tasks(t):
    """Hundreds of tasks in random turns, each with scopes in each other: every block is where its task's own text says."""
    text = """
import random
from contextlib import ExitStack
r = random.Random(7)
async def task(n, depth, turns):
    for turn in range(turns):
        with ExitStack() as stack:
            for level in range(depth):
                stack.enter_context(tidemark.scope("t%d.%d" % (n, level)))
                m(500000 + n); print(500000 + n, "t%d.%d" % (n, level))
                if r.random() < 0.4: await asyncio.sleep(r.random() * 0.001)
                m(500000 + n); print(500000 + n, "t%d.%d" % (n, level))
                if r.random() < 0.1 and n < 200:
                    begin(2)
                    m(500000 + n); print(500000 + n, "t%d.%d" % (n, level))
made = []
def begin(turns):
    n = len(made); made.append(None); made[n] = asyncio.ensure_future(task(n, r.randrange(1, 5), turns))
async def main():
    for n in range(60): begin(3); m(509999)
    done = 0
    while done < len(made): await made[done]; done += 1
run(main)
"""
    for python in each(t)[-2:]:
        for arguments in ways(python):
            with open(t.path("tasks.py"), "w", encoding="utf-8") as file:
                file.write(HEAD + text)
            recording = t.record([python.path, t.path("tasks.py"), *arguments], UNNAMED, env={"PYTHONPATH": os.path.join(ROOT, "recorder")})
            db = t.imported(recording)
            wanted = sorted(tuple(line.split()) for line in recording.text.splitlines())
            got = db.rows("""SELECT CAST(a.size_bytes AS TEXT), s.name FROM allocation a JOIN scope s ON s.id = a.scope_id
                             WHERE a.api = 'malloc' AND a.size_bytes BETWEEN 500000 AND 509998""")
            differ = len(set(got) ^ set(wanted))
            t.check(len(wanted) > 500 and sorted(got) == wanted, f"{python} {arguments}: {differ} of {len(wanted)} blocks differ")
            own = db.row("SELECT count(*), sum(a.scope_id) FROM allocation a WHERE a.api = 'malloc' AND a.size_bytes = 509999")
            t.equal(own, (60, 0), f"{python} {arguments}: main")


@test
def tasks_end(t):
    """A task that was cancelled inside of a scope is freed with its last reference, without the collector."""
    text = """
import gc, weakref
gc.disable()
async def hangs():
    with tidemark.scope("hangs"): await asyncio.get_running_loop().create_future()
async def main():
    task = asyncio.ensure_future(hangs())
    reference = weakref.ref(task)
    for i in range(2): await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    del task
    await asyncio.sleep(0)
    m(500000 if reference() is None else 500001)
run(main)
"""
    for python in each(t):
        t.equal(scopes_of(t, python, text), {500000: [None]}, f"{python}: freed")


@test
def a_scope_of_tasks_that_are_freed(t):
    """A task that is freed while it is suspended leaves its own instance of a scope that others are inside of, wherever the collector finds it."""
    text = """
import gc
shared = tidemark.scope("shared")
async def hangs(n):
    with shared: m(500000 + n); await asyncio.get_running_loop().create_future()
async def frees(made):
    with shared:
        m(500010); made.clear(); gc.collect(); m(500011); await asyncio.sleep(0); m(500012)
async def lasts(n):
    with shared: m(500020 + n); await asyncio.sleep(0.002); m(500030 + n)
    m(500040 + n)
async def main():
    made, lasting = [], []
    for n in range(3):
        made.append(asyncio.ensure_future(hangs(n))); lasting.append(asyncio.ensure_future(lasts(n)))
    for i in range(3): await asyncio.sleep(0)
    made.pop(); gc.collect(); m(500050)
    await frees(made); m(500051)
    await asyncio.gather(*lasting)
run(main)
"""
    wanted = {**{500000 + n: ["shared"] for n in range(3)}, **{500010 + n: ["shared"] for n in range(3)}, **{500020 + n: ["shared"] for n in range(3)},
              **{500030 + n: ["shared"] for n in range(3)}, **{500040 + n: [None] for n in range(3)}, 500050: [None], 500051: [None]}
    for python in each(t):
        got = scopes_of(t, python, text)
        t.equal({size: got.get(size) for size in wanted}, wanted, f"{python}: scopes")


@test
def loaded_again(t):
    """importlib.reload(tidemark), before and while tasks run, changes nothing of whose memory is whose."""
    text = """
import importlib
importlib.reload(tidemark)
async def task(n):
    with tidemark.scope("one%d" % n):
        m(500000 + n); await asyncio.sleep(0.001)
        m(500010 + n)
        with tidemark.scope("two%d" % n):
            m(500020 + n); await asyncio.sleep(0.002)
            if n == 1: importlib.reload(tidemark)
            m(500030 + n)
        m(500040 + n)
    m(500050 + n)
async def main(): await asyncio.gather(*(task(n) for n in range(3)))
run(main)
"""
    wanted = {base + n: [name and f"{name}{n}"] for n in range(3)
              for base, name in ((500000, "one"), (500010, "one"), (500020, "two"), (500030, "two"), (500040, "one"), (500050, None))}
    for python in each(t):
        t.equal(scopes_of(t, python, text), wanted, f"{python}: scopes")


main()
