"""Against heaptrack on the same deterministic programs: allocation counts, peak and leaked bytes.

Differences that are no error: heaptrack counts what happens before main's constructors and after its own shutdown differently (it leaves the exit handlers
out, we judge leaks at exit); its peak is that of its own order of events, which on one thread is the program's. So single-threaded programs must agree to
the byte on what their own functions did, and in total up to what libc allocates at start and end (at most 8 calls).
"""
import glob
import re

from tidemark_test import main, test


def by_heaptrack(t, program, *arguments):
    """(calls to allocation functions, peak bytes, leaked bytes, {function: calls}) from heaptrack's own report."""
    t.run(["heaptrack", "-o", t.path("ht"), program, *arguments], status=None)
    found = glob.glob(t.path("ht*.zst")) + glob.glob(t.path("ht*.gz"))
    t.check(found, "heaptrack wrote nothing")
    text = t.run(["heaptrack_print", "-f", found[0], "-F", t.path("stacks"), "--flamegraph-cost-type", "allocations", "-p", "0", "-a", "0", "-T", "0", "-l", "0"]).text
    calls = int(re.search(r"calls to allocation functions: (\d+)", text)[1])
    stacks = {}
    with open(t.path("stacks"), encoding="utf-8", errors="replace") as file:
        for line in file:
            stack, count = line.rsplit(" ", 1)
            name = stack.split(";")[-1]
            stacks[name] = stacks.get(name, 0) + int(count)
    return calls, text, stacks


def human(text, what):
    """heaptrack prints sizes as 1.08M with units of 1000: (bytes, half of the last digit's worth)."""
    number, unit = re.search(what + r": ([\d.]+)([BKMG]?)", text).groups()
    factor = {"": 1, "B": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit]
    digits = len(number.split(".")[1]) if "." in number else 0
    return float(number) * factor, 0.51 * factor / 10 ** digits


def compare(t, source, *arguments, functions=()):
    t.need("heaptrack", "heaptrack_print")
    program = t.program(source)
    calls, text, stacks = by_heaptrack(t, program, *arguments)
    db = t.imported(t.record([program, *arguments], status=None))
    # heaptrack counts a realloc that moves or grows as a call, as we count a row.
    ours = db.value("select sum(allocations) from site where heap = 'malloc'")
    t.check(abs(ours - calls) <= 8, f"allocations: {ours} here, {calls} by heaptrack")
    for function in functions:
        mine = db.value("select sum(allocations) from site where heap = 'malloc' and function = ?", function)
        t.equal(mine, stacks.get(function), f"allocations of {function}(), here and by heaptrack")
    peak = db.value("select live_bytes from peak where heap = 'malloc'")
    theirs, slack = human(text, "peak heap memory consumption")
    t.check(abs(peak - theirs) <= slack + 8192, f"peak: {peak} here, {theirs} by heaptrack")
    leaked = db.value("select coalesce(sum(live_bytes), 0) from live_at_end where heap = 'malloc'")
    theirs, slack = human(text, "total memory leaked")
    t.check(abs(leaked - theirs) <= slack + 8192, f"leaked: {leaked} at end here, {theirs} by heaptrack")


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
    """1,000 threads: libc's own allocation for each thread is in both."""
    compare(t, "short_threads.c", functions=("visit",))


main()
