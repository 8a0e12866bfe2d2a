"""`tidemark top`: what it shows at the end of a trace is what an import of it says, which counts in another way; and while a recording runs it shows what
the program has said that it did, on a terminal and elsewhere."""
import csv
import fcntl
import glob
import io
import json
import os
import resource
import pty
import re
import select
import struct
import subprocess
import time
import termios

from tidemark_test import Failed, main, test
from trace_writer import Trace, free, malloc, realloc, scope

SECOND = 1_000_000_000

STEADY = r"""
#include <poll.h>
#include <stdlib.h>
int main(void) {
	struct pollfd in = { .fd = 0, .events = POLLIN };
	while (poll(&in, 1, 1) == 0) free(malloc(1000));
	for (;;) poll(NULL, 0, -1);
}
"""

STAGES = r"""
#include <stdio.h>
#include <stdlib.h>
#include "tidemark.h"
static void *kept[1000];
static void fill(int from, int n) { for (int i = 0; i < n; i++) kept[from + i] = malloc(1000); }
int main(void) {
	static char in[64], out[64];
	setvbuf(stdin, in, _IOFBF, sizeof in);
	setvbuf(stdout, out, _IOFBF, sizeof out);
	fill(0, 100);
	puts("one"); fflush(stdout); getchar();
	tidemark_scope_push("second");
	fill(100, 50);
	tidemark_scope_pop();
	for (int i = 0; i < 30; i++) free(kept[i]);
	puts("two"); fflush(stdout); getchar();
	return 0;
}
"""


INSIDE = """
#include "tidemark.h"
#include <stdlib.h>
int main(void) {
	TIDEMARK_SCOPE("outer");
	void *volatile gone = malloc(1000), *volatile kept = malloc(70);
	(void)kept;
	{
		TIDEMARK_SCOPE("inner");
		void *volatile first = malloc(300), *volatile stays = malloc(20);
		(void)stays;
		free(first);
	}
	free(gone);
	return 0;
}
"""


def rows(t, *arguments):
    return json.loads(t.ask("top", *arguments, "--format=json").out)


def compare(t, trace):
    db = t.imported(trace)
    for by, columns, wanted in (
            ("heap", ("heap", "live_bytes", "live_count", "peak_bytes", "allocations", "allocated_bytes"),
             "select p.pid, s.heap, s.live_at_end_bytes, s.live_at_end_count, s.peak_bytes, s.allocations, s.allocated_bytes from heap_summary s"
             " join process p on p.id = s.process_id where s.allocations > 0"),
            ("site", ("heap", "function", "line", "live_bytes", "live_count", "peak_bytes", "allocations", "allocated_bytes"),
             "select p.pid, s.heap, s.function, s.line, sum(live_bytes), sum(live_count), sum(peak_bytes), sum(allocations), sum(allocated_bytes)"
             " from site s join process p on p.id = s.process_id where s.function is not null group by 1, 2, 3, s.file, 4"),
            ("scope", ("heap", "name", "category", "calls", "live_bytes", "allocations", "allocated_bytes"),
             "select p.pid, s.heap, s.name, s.category, iif(s.name = '[unscoped]', null, s.calls), s.self_allocated_bytes, s.self_allocations"
             " from scope_total s join process p on p.id = s.process_id where s.self_allocations > 0")):
        mine = rows(t, trace, f"--by={by}")
        pids = dict(db.rows("select id, pid from process"))
        names = {k for k in pids}
        t.check(all(r["process_id"] in names for r in mine), f"{trace}: processes are numbered alike")
        if by == "scope":
            got = sorted(((pids[r["process_id"]], r["heap"], r["name"], r["category"], r["calls"], r["allocated_bytes"], r["allocations"])
                          for r in mine if r["allocations"]), key=repr)
        else:
            got = sorted(((pids[r["process_id"]], *(r[c] for c in columns)) for r in mine if r["allocations"] and (by == "heap" or r["function"] is not None)),
                         key=repr)
        t.equal(got, sorted(map(tuple, db.rows(wanted)), key=repr), f"{os.path.basename(trace)}: by {by}, here and imported")


@test
def golden_traces_end_as_imported(t):
    for trace in sorted(glob.glob(os.path.join(t.root, "fixtures/golden/*.tmk"))):
        copy = t.path(os.path.basename(trace))
        with open(trace, "rb") as a, open(copy, "wb") as b:
            b.write(a.read())
        if not t.imported(copy).value("select count(*) from trace where sample_bytes > 0"):
            compare(t, copy)


@test
def recorded_programs_end_as_imported(t):
    for source in ("threads.c", "passing.c", "scopes.c", "prog_maps.c", "family.c", "recursion.c"):
        compare(t, t.record([t.program(source)], status=None).trace)


@test
def what_waits_is_not_waited_for_in_vain(t):
    """A block's free was lost, and another thread gets its address: where its end is waited for, the wait ends after a millisecond also in a program that does
    something every microsecond. Live then are 10 bytes, not 100, and at most 1,010."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.thread(2, process=1)
    f = trace.stack("main")
    busy = [e for ns in range(1_200_000, 2_500_000, 1000) for e in (malloc(ns, 0x2000, 5, f), free(ns + 500, 0x2000))]
    trace.segments([(1, [malloc(1_000_000, 0x1000, 100, f), *busy, malloc(2_500_000, 0x3000, 1000, f), free(2_500_500, 0x3000)]),
                    (2, [malloc(1_100_000, 0x1000, 10, f)])])
    trace.exit(1, 2_900_000)
    trace.end(1, 3_000_000)
    path = trace.save(t.path("waits.tmk"))
    t.equal([(r["heap"], r["live_bytes"], r["peak_bytes"]) for r in rows(t, path, "--by=heap") if r["heap"] == "malloc"], [("malloc", 10, 1010)], "by heap")
    compare(t, path)


@test
def while_a_thread_stands_still(t):
    """Thread 1 is stopped from 3000 on in the middle of a realloc, whose old place another thread takes. What that one does is shown two seconds later, by the time
    of a sample; and when the realloc is over, it ends no block of another."""
    def of(name, goes_on):
        trace = Trace()
        trace.process(1, pid=100)
        trace.thread(1, process=1)
        trace.thread(2, process=1)
        main = trace.stack("main")
        trace.events(1, [malloc(1000, 0x1000, 100, main)], watermark=3000)
        trace.events(2, [malloc(3_000_000, 0x1000, 1, main), *(malloc(n * SECOND, 0x2000 + 0x100 * n, 10, main) for n in range(1, 8))], watermark=3000)
        trace.sample(1, 9 * SECOND + 500, rss=4096)
        trace.events(2, [malloc(9 * SECOND, 0x8000, 1000, main)], watermark=3000)
        if goes_on:
            trace.events(1, [realloc(3000, 11 * SECOND, 0x1000, 0x9000, 200, main)], watermark=12 * SECOND)
        return trace.save(t.path(name), closed=False)
    for name, goes_on, wanted in (("still.tmk", False, (7 * SECOND + 500, 71, 8)), ("over.tmk", True, (12 * SECOND, 1271, 10))):
        row = next(r for r in rows(t, of(name, goes_on)) if r["heap"] == "malloc")
        t.equal((row["ts_ns"], row["live_bytes"], row["live_count"]), wanted, name)


@test
def a_database_says_the_same(t):
    """What scopes have live is what they allocated themselves: what a scope inside frees of its own is not missing from the outer one."""
    with open(t.path("inside.c"), "w", encoding="ascii") as file:
        file.write(INSIDE)
    for program in ([t.program(t.path("inside.c"), name="inside")], [t.program("scopes.c", "-ldl"), "nested"], [t.program("scopes.c", "-ldl"), "pools"]):
        trace = t.record(program).trace
        db = t.imported(trace)
        for by in ("heap", "site", "scope"):
            mine, its = ([{k: v for k, v in r.items() if not k.endswith(("_per_second", "rss_bytes", "module", "module_offset"))}
                          for r in rows(t, x, f"--by={by}")] for x in (trace, db.path))
            t.check(its, f"nothing by {by}")
            t.equal(sorted(mine, key=repr), sorted(its, key=repr), f"by {by}, of the trace and of the database")
        if program[-1].endswith("inside"):
            t.equal({r["name"]: (r["live_bytes"], r["live_count"]) for r in rows(t, db.path, "--by=scope") if r["category"]}, {"outer": (70, 1), "inner": (20, 1)},
                    "live of each scope")


@test
def rates_are_of_the_time_that_is_known(t):
    """4 allocations of 100 bytes in 2 s, of 10: the last 2, which a ring kept with two blocks of before, or the first 2, before --max-size stopped it."""
    def of(name, start, stop):
        trace = Trace(**({"window_start_ns": start} if start else {}))
        trace.process(1, pid=100)
        trace.thread(1, process=1)
        main, load = trace.stack("main"), trace.string("load")
        old = [malloc(1000, 0x1000, 5000, main), malloc(2000, 0x8000, 3000, main), free(start, 0x8000)] if start else []
        new = [malloc(max(start, 1000) + 100_000_000 * n, 0x2000 + 0x1000 * n, 100, main) for n in range(4)]
        trace.events(1, [scope("scope_push", 500, load), *old, *new], watermark=stop)
        if start:
            trace.loss(0, 0, start, "dropped", 50, 50000, "older than the window")
        else:
            trace.note(0, stop, "max-size", "stopped")
        trace.exit(1, 10 * SECOND - 1)
        trace.end(1, 10 * SECOND)
        return trace.save(t.path(name))
    for name, start, stop, all_bytes in (("ring.tmk", 8 * SECOND, 10 * SECOND, 8400), ("stopped.tmk", 0, 2 * SECOND, 400)):
        trace = of(name, start, stop)
        for which in trace, t.imported(trace).path:
            for by in ("heap", "site", "scope"):
                found = [(r["allocations_per_second"], r["bytes_per_second"], r["allocated_bytes"]) for r in rows(t, which, f"--by={by}") if r["allocations"]]
                t.equal(found, [(2, 200, all_bytes)] * (2 if by == "heap" else 1), f"{which}: by {by}")


@test
def a_reading_behind_the_end(t):
    """How long a run took is when its last process ended: what was measured a moment later does not count."""
    trace = Trace()
    trace.process(1, 100)
    trace.thread(1, process=1)
    trace.heap(1, 1, "malloc", "host")
    trace.segments([(1, [malloc(1_000_000, 0x1000, 10, trace.stack("main"))])])
    trace.sample(1, 9_000_000, rss=4096)
    trace.exit(1, 4_000_000)
    trace.end(1, 5_000_000)
    trace.save(t.path("run.tmk"))
    t.check("run.tmk  ended, 5.00 ms, 1 event" in t.ask("top", t.path("run.tmk")).text, "the heading")


@test
def rates_of_what_ended_before_the_window(t):
    """Of process 2 the ring has what it held at its end, long before: it did nothing in the time that is known, and the rate of that is 0, not any."""
    trace = Trace(window_start_ns=8 * SECOND)
    main, load = trace.stack("main"), trace.string("load")
    for process in (1, 2):
        trace.process(process, pid=100 + process)
        trace.thread(process, process=process)
    trace.segments([(1, [malloc(9 * SECOND, 0x1000, 100, main)]), (2, [scope("scope_push", 500, load), malloc(1000, 0x2000, 5000, main)])])
    trace.exit(2, SECOND - 1)
    trace.end(2, SECOND)
    trace.exit(1, 10 * SECOND - 1)
    trace.end(1, 10 * SECOND)
    path = trace.save(t.path("early.tmk"))
    for which in path, t.imported(path).path:
        for by in ("heap", "site", "scope"):
            found = {(r["process_id"], r["allocations_per_second"], r["bytes_per_second"], r["live_bytes"]) for r in rows(t, which, f"--by={by}") if r["allocations"]}
            t.equal(found, {(1, 1, 50, 100), (2, 0, 0, 5000)}, f"{which}: by {by}")
            t.equal({r["ts_ns"] for r in rows(t, which, f"--by={by}")}, {10 * SECOND}, f"{which}: of when, by {by}")


@test
def scopes_that_allocate_nothing_themselves(t):
    """`idle` does nothing, and `outer` only what `inner` does in it: each has one row, without a heap and without figures, of a trace as of a database."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    main, (idle, outer, inner) = trace.stack("main"), map(trace.string, ("idle", "outer", "inner"))
    opened = [scope("scope_push", 10, idle), scope("scope_end", 20), scope("scope_push", 30, outer), scope("scope_push", 40, inner)]
    trace.events(1, [*opened, malloc(50, 0x1000, 100, main), scope("scope_end", 60), scope("scope_end", 70)], watermark=80)
    trace.exit(1, 90)
    trace.end(1, 100)
    path = trace.save(t.path("idle.tmk"))
    for which in path, t.imported(path).path:
        found = sorted((r["name"], r["heap"], r["calls"], r["live_bytes"], r["live_count"], r["allocations"], r["allocated_bytes"], r["bytes_per_second"] is None)
                       for r in rows(t, which, "--by=scope"))
        nothing = (None, 1, None, None, None, None, True)
        t.equal(found, [("idle", *nothing), ("inner", "malloc", 1, 100, 1, 1, 100, False), ("outer", *nothing)], which)


def staged(t, **streams):
    with open(t.path("stages.c"), "w", encoding="ascii") as file:
        file.write(STAGES)
    program = t.program(t.path("stages.c"), name="stages")
    recorder = t.start([t.tidemark, "record", "--quiet", "-o", t.path("live.tmk"), program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **streams)
    t.equal(recorder.stdout.readline(), b"one\n", "the program's first word")
    return recorder


def is_begun(trace):
    return os.path.exists(trace) and os.path.getsize(trace) > 0


def until(t, what, ask, holds):
    for _ in range(300):
        got = ask()
        if holds(got):
            return got
        time.sleep(0.05)
    raise Failed(f"{what} was never shown: {got}")


def fill_row(found):
    found = [r for r in found if r["function"] == "fill"]
    return found[0] if found else {"live_count": 0, "live_bytes": 0, "allocations": 0}


def shows(t, *which):
    return lambda: fill_row(rows(t, *which, "--by=site", "--count=1"))


@test
def a_running_program(t):
    recorder = staged(t)
    trace, child = t.path("live.tmk"), t.command_of(recorder)
    row = until(t, "100 blocks", shows(t, trace), lambda r: r["live_count"] == 100)
    t.equal((row["live_bytes"], row["allocations"], os.path.basename(row["file"])), (100000, 100, "stages.c"), "the first stage")
    for form in "table", "json", "csv":
        with open("/dev/full", "wb") as full:
            watcher = t.start([t.tidemark, "top", trace, f"--format={form}", "--interval=50ms"], stdout=full, stderr=subprocess.PIPE)
            said = watcher.communicate()[1]  # while the program runs on
        t.equal((watcher.returncode, said), (1, b"tidemark: cannot write standard output: No space left on device\n"), f"looks as {form} at a full disk")
    watcher = t.start([t.tidemark, "top", trace, "--by=scope", "--format=csv", "--interval=50ms"], stdout=subprocess.PIPE)
    recorder.stdin.write(b"x")
    recorder.stdin.flush()
    t.equal(recorder.stdout.readline(), b"two\n", "the program's second word")
    row = until(t, "120 blocks", shows(t, f"--pid={child}"), lambda r: r["allocations"] == 150 and r["live_count"] == 120)
    t.equal((row["live_bytes"], row["peak_bytes"]), (120000, 150000), "the second stage")
    recorder.stdin.close()
    t.equal(recorder.wait(), 0, "the recording's status")
    # It has followed by itself, and ends with the recording.
    out = watcher.communicate()[0].decode()
    t.equal(watcher.returncode, 0, "the watcher's status")
    read = list(csv.DictReader(io.StringIO(out)))
    t.equal(out.count("ts_ns"), 1, "headings")
    last = [r for r in read if r["ts_ns"] == read[-1]["ts_ns"] and r["name"] == "second"][-1:]  # the last two looks may be of one time
    t.equal([(r["heap"], r["calls"], r["allocations"], r["live_bytes"]) for r in last], [("malloc", "1", "50", "50000")], "the scope, at the end")
    times = [int(r["ts_ns"]) for r in read]
    t.equal(times, sorted(times), "times of the looks")


STANDS_STILL = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *volatile kept[100];
static void sleeps(int s) { (void)s; for (;;) pause(); }
static void *run(void *p) { for (long i = 0;; i++) p = realloc(p, 10 + i * 7919 % 3001); return p; }
static void fill(void) { for (int i = 0; i < 100; i++) kept[i] = malloc(1000); }
int main(void) {
	pthread_t thread;
	signal(SIGUSR1, sleeps);
	for (int i = 0; i < 5; i++) {
		pthread_create(&thread, NULL, run, NULL);
		usleep(10000);
		pthread_kill(thread, SIGUSR1);
	}
	fill();
	puts("one");
	fflush(stdout);
	getchar();
	_exit(0);
}
"""


@test
def a_program_whose_threads_stand_still(t):
    """Five threads are interrupted by a handler that never returns, mostly in the middle of a realloc: what another one did afterwards is shown."""
    with open(t.path("still.c"), "w", encoding="ascii") as file:
        file.write(STANDS_STILL)
    trace = t.path("still.tmk")
    recorder = t.start([t.tidemark, "record", "--quiet", "-o", trace, t.program(t.path("still.c"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    t.equal(recorder.stdout.readline(), b"one\n", "the program's first word")
    row = until(t, "100 blocks", shows(t, trace), lambda r: r["live_count"] == 100)
    t.equal((row["live_bytes"], row["allocations"]), (100000, 100), "what was done afterwards")
    recorder.stdin.close()
    t.equal(recorder.wait(), 0, "the recording's status")


@test
def rates_between_two_writes(t):
    """Looks come twenty times a second, and the trace grows about once: they repeat the rates of what it told last, until it has been silent for longer."""
    with open(t.path("steady.c"), "w", encoding="ascii") as file:
        file.write(STEADY)
    recorder = t.start([t.tidemark, "record", "--quiet", "-o", t.path("live.tmk"), t.program(t.path("steady.c"), name="steady")], stdin=subprocess.PIPE)
    until(t, "the heap", lambda: rows(t, t.path("live.tmk"), "--count=1") if is_begun(t.path("live.tmk")) else [], bool)
    watcher = t.start([t.tidemark, "top", t.path("live.tmk"), "--heap=malloc", "--format=csv", "--interval=50ms"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    looks = csv.DictReader(io.TextIOWrapper(watcher.stdout))
    seen, told = next(looks), []
    while len(told) < 3:
        look = next(looks)
        if look["ts_ns"] == seen["ts_ns"] and look["ts_ns"] not in told:
            told.append(look["ts_ns"])
            t.equal(look, seen, "a look right after another one, at which the trace said nothing new")
            t.check(int(look["allocations_per_second"]) > 0, f"the program goes on: {look}")
        seen = look
    recorder.stdin.write(b"x")
    recorder.stdin.flush()
    for look in looks:
        if look["allocations_per_second"] == "0":
            break
    t.equal((look["bytes_per_second"], int(look["allocations"]) > 0), ("0", True), "in the end nothing is done any more")


@test
def a_killed_recording_is_shown_as_far_as_it_went(t):
    recorder = staged(t)
    until(t, "100 blocks", shows(t, t.path("live.tmk")), lambda r: r["live_count"] == 100)
    recorder.kill()
    recorder.wait()
    done = t.ask("top", t.path("live.tmk"))
    t.check("cut off: nobody writes it" in done.text, f"it is not called cut off: {done.text[:200]}")
    for option, words in (("--heap=nope", "no heap 'nope' in"), ("--heap=nope", "(heaps: malloc)"), ("--process=9", "no process with id 9 in")):
        done = t.ask("top", t.path("live.tmk"), option, "--format=csv", status=1)
        t.check(words in done.errors and not done.text, f"{option}: {done.errors!r}")


@test
def from_where_the_recorder_is_not_seen(t):
    """From another pid namespace, as from another host: it is written for all that."""
    alone = ["unshare", "-pf", "--mount-proc"]
    if t.run([*alone, "true"]).status:
        t.skip("a pid namespace cannot be made here")
    recorder = staged(t)
    until(t, "100 blocks", shows(t, t.path("live.tmk")), lambda r: r["live_count"] == 100)
    look = [*alone, t.tidemark, "top", t.path("live.tmk"), "--count=1"]
    t.check("live.tmk  recording, " in t.run(look, status=0).text, "while it is recorded")
    recorder.stdin.close()
    recorder.wait()
    t.check("live.tmk  ended, " in t.run(look, status=0).text, "when it has ended")


@test
def a_recording_that_cannot_go_on(t):
    """The disk is full, and the program runs on: the recorder says so at once, and nobody is told that it records."""
    trace = t.path("live.tmk")
    recorder = staged(t, stderr=subprocess.PIPE)
    until(t, "100 blocks", shows(t, trace), lambda r: r["live_count"] == 100)
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (os.path.getsize(trace),) * 2)
    recorder.stdin.write(b"x")
    recorder.stdin.flush()
    t.check(select.select([recorder.stderr], [], [], 30)[0], "the recorder says nothing")
    said = recorder.stderr.readline().decode()
    t.equal(said, f"tidemark-record: cannot write '{trace}' any more: File too large; what the program does from here on is not recorded\n", "what is said")
    t.check("cut off: nobody writes it" in t.ask("top", trace).text, "top says that it is recorded")
    refused = t.run([t.recorder, "--force", "-o", trace, "--", "true"], status=125)
    t.check("another recorder is writing it" in refused.errors, f"the trace is taken from who will say at its end what is missing: {refused.errors}")
    recorder.stdin.close()
    t.equal(recorder.wait(), 0, "the recording's status")


CHURN = r"""
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) static void *keep(void) { void *p = malloc(10000); __asm__ volatile("" : : "r"(p) : "memory"); return p; }
int main(void) {
	char word;
	for (;;) {
		for (int i = 0; i < 20000; i++) { void *volatile p = malloc(100 + i % 1000); free(p); }
		if (read(0, &word, 1) <= 0) return 0;
		keep();
	}
}
"""


@test
def a_ring_is_followed_into_each_of_its_files(t):
    """A ring puts a new file in the place of the old one, many times here: top goes on with it, and rates are those of what was done since the look before."""
    with open(t.path("churn.c"), "w", encoding="ascii") as file:
        file.write(CHURN)
    trace = t.path("ring.tmk")
    recorder = t.start([t.tidemark, "record", "--quiet", "--max-size=256KiB,ring", "-o", trace, t.program(t.path("churn.c"), "-O1", name="churn")], stdin=subprocess.PIPE)
    until(t, "the file", lambda: os.path.exists(trace) and rows(t, trace, "--count=1"), bool)
    for way in ([trace], [f"--pid={recorder.pid}"]):
        watcher = t.start([t.tidemark, "top", *way, "--by=site", "--heap=malloc", "--format=csv", "--interval=100ms"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        files, kept, ratios = [], {}, []
        for look in csv.DictReader(io.TextIOWrapper(watcher.stdout)):
            recorder.stdin.write(b"xxx")
            recorder.stdin.flush()
            now = os.stat(trace).st_ino
            files += [now] * (files[-1:] != [now])
            if look["function"] == "keep":
                t.check(not kept or int(look["live_count"]) >= int(kept["live_count"]), f"less is kept than before: {look} {kept}")
                kept = look
            elif kept and look["ts_ns"] == kept["ts_ns"] and int(kept["live_count"]) >= 100 and int(look["allocations_per_second"]):
                ratios.append(int(kept["allocations_per_second"]) * 20000 / int(look["allocations_per_second"]))
            if len(files) > 6 and len(ratios) > 8:
                break
        t.check(len(ratios) > 8 and sorted(ratios)[len(ratios) // 2] < 3, f"{way}: {len(files)} files; blocks kept for 20,000 that came and went: {ratios}; {watcher.poll()}")
        watcher.kill()
        watcher.wait()
    last = t.start([t.tidemark, "top", trace, "--format=csv", "--interval=100ms"], stdout=subprocess.PIPE)
    looks = csv.DictReader(io.TextIOWrapper(last.stdout))
    next(looks)
    recorder.stdin.close()
    ends = [look["ts_ns"] for look in looks]
    t.equal((recorder.wait(), last.wait()), (0, 0), "the recording's and the watcher's status")
    t.check(ends, "no look after the end")


KEPT = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
static void *volatile kept;
static void wait_for_the_end(void) {
	char word;
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (read(0, &word, 1) > 0) continue;
	exit(0);
}
static void *when_alone(void *unused) {
	char path[64], byte;
	int fd;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)getpid());
	while ((fd = open(path, O_RDONLY)) >= 0 && read(fd, &byte, 1) == 1) close(fd);
	wait_for_the_end();
	return unused;
}
int main(int count, char **words) {
	pthread_t thread;
	(void)count;
	kept = malloc(4321);
	if (!strcmp(words[1], "thread")) {
		pthread_create(&thread, NULL, when_alone, NULL);
		pthread_exit(NULL);
	}
	for (int i = 0; !strcmp(words[1], "title") && environ[i]; i++) memset(environ[i], 'x', strlen(environ[i]));
	wait_for_the_end();
}
"""


def running(program):
    """Its number here, which is another one in a namespace of its own."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/exe") == os.path.realpath(program):
                return int(name)
        except OSError:
            pass
    raise Failed(f"{program} does not run")


@test
def by_the_number_of_any_recorded_process(t):
    """Of one that started its recorder itself, one that wrote its title over its environment, as servers do, one whose first thread has ended, and one
    that is the first of a namespace of its own: top shows it, and dump gets its trace."""
    with open(t.path("kept.c"), "w", encoding="ascii") as file:
        file.write(KEPT)
    program = t.program(t.path("kept.c"), name="kept")
    record = [t.recorder, "--quiet", "-o", "%q{WAY}.tmk", "--", program]
    ways = {"preloaded": [program, "alone"], "title": [*record, "title"], "thread": [*record, "thread"]}
    if t.run(["unshare", "-pf", "--mount-proc", "true"]).status == 0:
        ways["namespace"] = ["unshare", "-pf", "--mount-proc", *record, "alone"]
    for way, command in ways.items():
        env = {"WAY": way, **({"LD_PRELOAD": t.library, "TIDEMARK_OPTIONS": "-o preloaded.tmk"} if way == "preloaded" else {})}
        child = t.start(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pid = int(child.stdout.readline())
        if way == "namespace":
            pid = running(program)
        kept = lambda pid=pid: [r["live_bytes"] for r in rows(t, f"--pid={pid}", "--by=site", "--count=1") if r["live_bytes"] == 4321]
        until(t, f"what is kept ({way})", kept, bool)
        dump = t.run([t.tidemark, "dump", f"--pid={pid}"], status=0, timeout=60).text.strip()
        t.equal(dump, t.path(f"{way}.dump1.tmk"), f"what dump prints ({way})")
        t.equal(t.imported(dump).value("select count(*) from allocation where size_bytes = 4321 and free_ns is null"), 1, f"of the dump ({way})")
        child.communicate("", 60)


@test
def what_cannot_be_followed(t):
    for arguments, status, words in ((["--pid=1"], 1, "no recording"), (["--pid=999999999"], 1, "no such process"), ([], 2, "is needed"),
                                     (["a", "--pid=1"], 2, "is needed"), (["--pid=0"], 2, "invalid value"), (["x", "--interval=0"], 2, "invalid value"),
                                     (["x", "--by=stack"], 2, "heap, site or scope"), (["x", "--sort=nothing"], 2, "cannot sort")):
        done = t.ask("top", *arguments, status=status)
        t.check(words in done.errors and done.errors.count("\n") == 1, f"{arguments}: {done.errors}")


def on_terminal(t, keys, size, env=None, options=()):
    """Runs top on a terminal of this size, pressing a key at each new picture: (status, all that was written)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    before = termios.tcgetattr(slave)
    watcher = t.start([t.tidemark, "top", t.path("live.tmk"), "--interval=100ms", *options], stdin=slave, stdout=slave, stderr=slave,
                      env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", "COLUMNS": None, "LINES": None, **(env or {})})
    out, seen = b"", 0
    while watcher.poll() is None:
        if select.select([master], [], [], 0.1)[0]:
            out += os.read(master, 65536)
        if out.count(b"\x1b[J") > seen and keys:
            seen = out.count(b"\x1b[J")
            os.write(master, keys[:1])
            keys = keys[1:]
    while select.select([master], [], [], 0)[0]:
        out += os.read(master, 65536)
    t.equal(termios.tcgetattr(slave), before, "the terminal's settings afterwards")
    os.close(master)
    os.close(slave)
    return watcher.returncode, out.decode()


@test
def a_terminal(t):
    staged(t)
    until(t, "100 blocks", shows(t, t.path("live.tmk")), lambda r: r["live_count"] == 100)
    for lines, columns in ((12, 60), (24, 80), (40, 120), (50, 200)):
        status, out = on_terminal(t, b"abplntq", (lines, columns))
        t.equal(status, 0, "status")
        t.check("\x1b[?1049h" in out and out.count("\x1b[?1049l") == 1, "the screen is not given back")
        pictures = re.findall(r"\x1b\[H(.*?)\x1b\[J", out, re.S)
        t.check(len(pictures) >= 6, f"{len(pictures)} pictures")
        for picture in pictures:
            plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", picture).replace("\r", "").split("\n")
            t.equal(len(plain), lines, f"lines of a picture of {lines}x{columns}")
            t.check(max(map(len, plain)) <= columns, f"a line is too wide for {columns}: {max(plain, key=len)}")
        t.check("fill" in pictures[-1] and "recording" in pictures[-1], f"what a picture shows: {pictures[-1]}")
        t.check("\x1b[1m" in pictures[-1], "headings are not bold")
    # One list, and as many of its rows as were asked for.
    for by, shown in (("heap", "heaps"), ("site", "call sites"), ("scope", "scopes")):
        status, out = on_terminal(t, b"pq", (24, 80), options=(f"--by={by}", "--limit=1"))
        picture = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", re.findall(r"\x1b\[H(.*?)\x1b\[J", out, re.S)[-1]).replace("\r", "").split("\n")
        titles = [line for line in picture if re.match("heaps|call sites|scopes", line)]
        t.equal((status, [title.startswith(shown) for title in titles]), (0, [True]), f"titles of a screen by {by}: {titles}")
        t.equal(len([line for line in picture if "malloc" in line]) <= 1 and sum(map(bool, picture[2:-1])) <= 5, True, f"one row by {by}: {picture}")
    status, out = on_terminal(t, b"q", (24, 80), {"NO_COLOR": "1"})
    t.check("\x1b[1m" not in out and "fill" in out, "NO_COLOR is not heeded")


MANY = r"""
#include <stdio.h>
#include <stdlib.h>
#include "tidemark.h"
static void *kept[100];
static int n;
#define PLACE(k) __attribute__((noinline)) void place_with_a_long_name_##k(void) { kept[n++] = malloc(1000 * k + 123456); }
#define PLACES(k) PLACE(k##1) PLACE(k##2) PLACE(k##3) PLACE(k##4) PLACE(k##5)
#define CALL(k) place_with_a_long_name_##k();
#define CALLS(k) CALL(k##1) CALL(k##2) CALL(k##3) CALL(k##4) CALL(k##5)
PLACES(1) PLACES(2) PLACES(3)
int main(void) {
	CALLS(1)
	tidemark_scope_push("one"); CALLS(2) tidemark_scope_pop();
	tidemark_scope_push("two"); CALLS(3) tidemark_scope_pop();
	puts("done"); fflush(stdout); getchar();
	return 0;
}
"""


@test
def parts_of_a_small_terminal(t):
    """However many lines the headings take, each part that is begun has rows, and scopes are left out only where lines are few."""
    with open(t.path("many.c"), "w", encoding="ascii") as file:
        file.write(MANY)
    recorder = t.start([t.tidemark, "record", "--quiet", "-o", t.path("live.tmk"), t.program(t.path("many.c"), name="many")],
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    t.equal(recorder.stdout.readline(), b"done\n", "the program's word")
    until(t, "15 places", lambda: rows(t, t.path("live.tmk"), "--by=site", "--count=1"), lambda r: len(r) >= 15)
    for lines in (17, 18, 20, 22, 24, 30):
        for columns in (60, 80, 100, 120):
            _, out = on_terminal(t, b"tllq", (lines, columns))
            for picture in re.findall(r"\x1b\[H(.*?)\x1b\[J", out, re.S):
                plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", picture).replace("\r", "")
                parts = dict(re.findall(r"^(heaps|call sites|scopes)\b[^\n]*\n(.*?)(?=^$|^q quit)", plain, re.M | re.S))
                t.check(all(re.search("^malloc", part, re.M) for part in parts.values()), f"a part without rows, {lines}x{columns}:\n{plain}")
                t.check("call sites" in parts and ("scopes" in parts or lines < 24), f"a part is missing, {lines}x{columns}:\n{plain}")
                wide = [part.count("left out here") for part in parts.values() if "allocations" not in re.sub(r"\s", "", part.split("left out")[0])]
                t.check(all(wide), f"the end of a part is missing, {lines}x{columns}:\n{plain}")
    recorder.communicate(b"\n", 60)


if __name__ == "__main__":
    main()
