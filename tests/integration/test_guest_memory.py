"""What the recorder takes of the program's own memory: at most 4 MiB, and 256 KiB a thread, beyond what the program has without it.

Method: tests/bench/memory.c counts its own private pages while all its threads are there, bare and recorded; the difference is ours. The rings are shared with
the collector and not private. Rules for unwinding are looked up as stacks need them, so a program with much code is tried too: Python with its modules. Of its pages only
those that were written count: whether a clean page of its files is private depends on who else runs Python just then.
"""
import os
import re
import sys

from tidemark_test import ROOT, main, test

PROCESS_KIB, THREAD_KIB = 4096, 256

IN_PYTHON = """import json, decimal, sqlite3, ctypes, xml.dom.minidom, asyncio, unittest.mock
for _ in range(20): json.loads(json.dumps([{"a": list(range(20))}] * 50)); decimal.Decimal("1") / 3
kib = private = 0
for line in open("/proc/self/smaps"):
    word = line.split()
    if "-" in word[0] and not word[0].endswith(":"): shared = word[1].endswith("s")
    elif word[0] == "Private_Dirty:" and not shared: private += int(word[1])
print(f"private_kib={private}")"""


def private_kib(t, command, options):
    done = t.run(command, status=0) if options is None else t.record(command, "--force", *options, output=t.path("memory.tmk"))
    return int(re.search(r"private_kib=(\d+)", done.text)[1])


def check(t, command, threads, *options):
    bare = private_kib(t, command, None)
    added = private_kib(t, command, options) - bare
    limit = PROCESS_KIB + THREAD_KIB * threads
    print(f"{threads} threads {' '.join(options)}: {bare} KiB, and {added} more when recorded, at most {limit}")
    t.check(added <= limit, f"recording takes {added} KiB of private memory with {threads} threads; at most {limit} are allowed")
    t.check(added > 50, f"{added} KiB: nothing was recorded")


def with_threads(t, *options):
    if t.sanitized:
        t.skip("this build has checks compiled in")
    program = t.program(os.path.join(ROOT, "tests/bench/memory.c"), "-O2")
    for threads in (1, 8, 64):
        check(t, [program, str(threads)], threads, *options)


@test
def with_stacks(t):
    with_threads(t)


@test
def sampled(t):
    with_threads(t, "--sample=512KiB")


@test
def without_stacks(t):
    with_threads(t, "--stacks=off")


@test
def much_code(t):
    if t.sanitized:
        t.skip("this build has checks compiled in")
    check(t, [sys.executable, "-c", IN_PYTHON], 1)


@test
def many_samples(t):
    """Thousands of them, of which few live at a time: they do not each leave a page behind that was looked for their address in."""
    if t.sanitized:
        t.skip("this build has checks compiled in")
    check(t, ["env", "PYTHONMALLOC=malloc", sys.executable, "-c", IN_PYTHON], 1, "--sample=16KiB")


main()
