"""Against heaptrack on the same deterministic programs: allocation counts, peak and leaked bytes.

What differs and why: heaptrack's preloaded library is C++ and brings libstdc++ with it, whose emergency pool (one block of 72,704 bytes) is then live in
every program; ours brings nothing. So heaptrack's figures for hello.c, less the one block of 111 bytes that it allocates, are taken off its other figures.
heaptrack prints sizes rounded to three digits: figures are compared within that. Calls are compared exactly, function by function and in all.
"""
import glob
import os
import re

from tidemark_test import main, test


def by_heaptrack(t, program, *arguments):
    """(calls to allocation functions, peak bytes, leaked bytes, {function: calls}) from heaptrack's own report."""
    for old in glob.glob(t.path("ht*")):
        os.unlink(old)
    t.run(["heaptrack", "-o", t.path("ht"), program, *arguments])
    found = [path for path in glob.glob(t.path("ht*")) if path.endswith((".zst", ".gz"))]
    t.check(found, "heaptrack wrote nothing")
    text = t.run(["heaptrack_print", "-f", found[0], "-F", t.path("stacks"), "--flamegraph-cost-type", "allocations", "-p", "0", "-a", "0", "-T", "0", "-l", "0"]).text
    calls = int(re.search(r"calls to allocation functions: (\d+)", text)[1])
    stacks = {}
    with open(t.path("stacks"), encoding="utf-8", errors="replace") as file:
        for line in file:
            stack, count = line.rsplit(" ", 1)
            name = stack.rstrip(";").split(";")[-1].split(" (")[0]
            stacks[name] = stacks.get(name, 0) + int(count)
    return calls, text, stacks


def human(text, what):
    """heaptrack prints sizes as 1.08M with units of 1000: (bytes, half of the last digit's worth)."""
    number, unit = re.search(what + r": ([\d.]+)([BKMG]?)", text).groups()
    factor = {"": 1, "B": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit]
    digits = len(number.split(".")[1]) if "." in number else 0
    return float(number) * factor, 0.51 * factor / 10 ** digits


def compare(t, source, *arguments, functions=(), chance=0):
    t.need("heaptrack", "heaptrack_print")
    program = t.program(source)
    bare_calls, bare_text, _ = by_heaptrack(t, t.program("hello.c"))
    calls, text, stacks = by_heaptrack(t, program, *arguments)
    db = t.imported(t.record([program, *arguments], status=None))
    t.equal(db.value("select sum(allocations) from site where heap = 'malloc'"), calls - (bare_calls - 1), "allocations, here and by heaptrack")
    for function in functions:
        mine = db.value("select sum(allocations) from site where heap = 'malloc' and function = ?", function)
        t.equal(mine, stacks.get(function), f"allocations of {function}(), here and by heaptrack")
    for what, mine in (("peak heap memory consumption", db.value("select live_bytes from peak where heap = 'malloc'")),
                       ("total memory leaked", db.value("select coalesce(sum(live_bytes), 0) from live_at_end where heap = 'malloc'"))):
        theirs, slack = human(text, what)
        base, base_slack = human(bare_text, what)
        print(f"{what}: {mine} here, {theirs} - {base} + 111 by heaptrack")
        t.check(abs(mine - (theirs - base + 111)) <= slack + base_slack + chance, f"{what}: {mine} here, {theirs - base + 111} by heaptrack")


@test
def leak(t):
    compare(t, "leak.c", functions=("parse", "remember", "build_index"))


@test
def sizes(t):
    compare(t, "sizes.c", functions=("small", "medium", "large"))


@test
def recursion(t):
    compare(t, "recursion.c", "50", functions=("dive", "main"))


@test
def short_threads(t):
    """1,000 threads: libc's own block for each thread (its vector of thread-local modules, below 512 bytes) is in both, but how many of 50 threads
    live at once is up to the scheduler."""
    compare(t, "short_threads.c", functions=("visit",), chance=50 * 512)


main()
