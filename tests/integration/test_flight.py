"""The flight recorder (--max-size=SIZE,ring): a bounded file whose live set is true.

Oracle: fixtures/programs/flight.c churns memory in the same way each time and prints what it still holds by call site; and the same program recorded
whole. The ring is so small that the file is written anew many times.
"""
import os
import re
import resource
import signal
import subprocess
import time

from tidemark_test import main, test

KIB = 1024

# What is live at the end in the words of the program: heap, scope, function that allocated, api; blocks, bytes as asked for and as given.
HELD = """select h.name, s.name, f.function, a.api, count(*), sum(a.size_bytes), sum(a.usable_bytes)
          from allocation a join heap h on h.id = a.heap_id left join scope s on s.id = coalesce(a.scope_id, 0)
          join stack k on k.id = a.stack_id join frame f on f.id = k.site_frame_id
          where a.free_ns is null group by 1, 2, 3, 4 order by 1, 2, 3, 4"""


# Stacks that are no call site's, nor outside of one. An allocator's function that was inlined is left out of sites, but is there with its frame.
NEEDLESS = """with recursive needed(id) as (select stack_id from site_total union select parent_id from stack join needed using(id))
              select count(*) from stack s join frame f on f.id = s.frame_id
              where f.kind != 'inline' and s.id not in (select id from needed where id is not null)"""


def printed(text):
    return {site: (int(size), int(count)) for site, size, count in (line.split() for line in text.splitlines())}


def held_by_site(db):
    rows = db.rows("select function, sum(live_bytes), sum(live_count) from live_at_exit where heap = 'malloc' and function like 'site_%' group by 1")
    return {function: (size, count) for function, size, count in rows}


def record_both_ways(t, size, *arguments):
    program = t.program("flight.c")
    whole = t.record([program, *arguments])
    ring = t.record([program, *arguments], f"--max-size={size}KiB,ring")
    t.equal(ring.out, whole.out, "what the program says")
    return whole, ring


def compare(t, size, *arguments):
    whole, ring = record_both_ways(t, size, *arguments)
    all_events, db = t.imported(whole), t.imported(ring)
    t.check(os.path.getsize(whole.trace) > 5 * size * KIB, "the ring did not go round often enough for the test to mean anything")
    t.equal(held_by_site(db), printed(ring.text), "live at exit by site")
    t.equal(db.rows(HELD), all_events.rows(HELD), "live at the end by heap, scope, site and api")
    for each, name in ((all_events, "the whole recording"), (db, "the ring")):
        t.equal(each.value(NEEDLESS), 0, f"stacks that nothing needs in {name}")
    early = "select count(distinct k.id) from stack k join frame f on f.id = k.frame_id where f.function = 'only_early'"
    t.check(all_events.value(early) > 100, "the whole recording has no stacks of the beginning")
    t.equal(db.value(early), 0, "stacks of the beginning in the ring")
    t.equal(all_events.rows("select kind from loss"), [], "losses of the whole recording")
    t.equal([kind for kind, in db.rows("select kind from loss")], ["dropped"], "losses of the ring")
    t.equal(db.value("select complete from trace"), 0, "complete")
    # Nothing is lost without being counted: what was dropped and what is there add up.
    dropped = db.value("select count from loss where kind = 'dropped'")
    t.check(f"dropped      {dropped:,} events, the oldest" in ring.errors, f"the recorder's last words say that {dropped} were dropped: {ring.errors}")
    t.equal(db.value("select events from trace") + dropped, all_events.value("select events from trace"), "events, dropped ones and those that are there")
    return all_events, db


@test
def live_set_is_true(t):
    whole, db = compare(t, 512, "600000", "7")
    start = int(db.value("select value from trace_info where key = 'window_start_ns'"))
    # Of what was allocated before the window only what outlived its beginning is there; from there on, everything is.
    # A realloc that was under way when the window began has its event in it: the old block ended a moment before.
    ended = ("select count(*) from allocation a where free_ns < ?"
             " and not exists (select 1 from allocation b where b.realloc_of_id = a.id and b.alloc_ns >= ?)")
    t.equal(db.value(ended, start, start), 0, "blocks that ended before the window")
    t.check(db.value("select count(*) from allocation where alloc_ns < ? and free_ns > ?", start, start) > 50, "no block was freed across the cut")
    early = "select count(*) from allocation where size_bytes = 123456 and alloc_ns < ? and free_ns > ?"
    t.equal(db.value(early, start, start), 1, "the block that lived from the beginning to the end")
    refused = t.ask("snapshot", db.path, "--at", "1ms", status=1)
    t.check("was kept within a bound, and knows that from" in refused.errors, refused.errors)
    for instant in ("exit", "peak", f"{start / 1e9 + 0.001:.6f}s"):
        t.ask("snapshot", db.path, "--at", instant, status=0)
    frees = "select count(*) from allocation where free_ns >= ?"
    t.check(db.value(frees, start) > 10000, "the window holds hardly anything")
    t.equal(db.value("select count(*) from note where kind = 'flight'"), 1, "the note that says what the trace is")
    t.equal(db.rows("select live_bytes from live_at_exit where heap = 'mmap' and function = 'main'"), [(35 * 4096,)], "a mapping that was cut before the window")
    t.check(whole.value("select max(peak_bytes) from heap_total") > 0, "peak of the whole")


@test
def threads(t):
    compare(t, 512, "150000", "3", "4")


@test
def blocks_that_change_hands(t):
    """Four threads fight for a few addresses, where stamps say little about order: no block is left behind by what was dropped."""
    for _ in range(10 if t.long else 4):
        db = t.imported(t.record([t.program("passing.c"), "300000"], "--max-size=256KiB,ring", "--force"))
        t.equal(db.rows("select kind from loss"), [("dropped",)], "losses")
        t.equal(db.value("select count(*) from allocation where free_ns is null and size_bytes in (32, 48, 64, 80)"), 0, "blocks that were never freed")
        start = int(db.value("select value from trace_info where key = 'window_start_ns'"))
        t.check(db.value("select count(*) from allocation where alloc_ns > ?", start) > 10000, "the window holds hardly anything")


@test
def file_stays_within_its_bound(t):
    size, most, whole = 1024 * KIB, 0, 0  # what is live of it, and is kept whatever the bound, takes up to half of that where the recorder comes late
    trace = t.path("bound.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--names=none", f"--max-size={size},ring", "--", t.program("flight.c"), "1500000", "5"],
                    stdout=open(t.path("out"), "wb"))
    last, times = None, 0
    while child.poll() is None:
        try:
            status = os.stat(trace)
            most = max(most, status.st_size)
            # A file that is gone leaves its number to the next one.
            times += last not in (None, status.st_ino)
            last = status.st_ino
        except FileNotFoundError:
            pass
        time.sleep(0.002)
    t.equal(child.returncode, 0, "status")
    t.check(times >= 3, f"the file was seen to be written anew only {times} times")
    t.check(0 < most <= size, f"the file had {most} bytes, {size} are allowed")
    t.equal([name for name in os.listdir(t.dir) if ".ring" in name], [], "files left behind")
    with open(t.path("out"), encoding="ascii") as file:
        wanted = printed(file.read())
    db = t.imported(trace)
    whole = db.rows("select sum(live_bytes), sum(live_count) from live_at_exit where heap = 'malloc' and stack_id in (select id from stack where depth > 1)")
    t.equal(whole, [(sum(s for s, _ in wanted.values()), sum(c for _, c in wanted.values()))], "live at exit, without names")


@test
def what_lies_beside_stays(t):
    """The names under which the file would be written anew are somebody's: a file, a link to one, and a link that leads nowhere."""
    victim, ring = t.path("victim"), t.path("beside.tmk.ring")
    for path in (victim, ring):
        with open(path, "w", encoding="ascii") as file:
            file.write("somebody's")
    os.symlink(victim, ring + "2")
    os.symlink(t.path("nowhere"), ring + "3")
    recording = t.record([t.program("flight.c"), "300000", "7"], "--max-size=512KiB,ring", "--names=none", output=t.path("beside.tmk"))
    db = t.imported(recording)
    t.equal([kind for kind, in db.rows("select kind from loss")], ["dropped"], "losses")
    t.equal(sorted(name for name in os.listdir(t.dir) if ".ring" in name), ["beside.tmk.ring", "beside.tmk.ring2", "beside.tmk.ring3"], "files beside the trace")
    t.check(os.path.islink(ring + "2") and os.path.islink(ring + "3") and not os.path.exists(t.path("nowhere")), "a link is gone, or was followed")
    for path in (victim, ring):
        with open(path, encoding="ascii") as file:
            t.equal(file.read(), "somebody's", path)


def most_bytes(t, trace, size, *program, stopped_s=0.0):
    """How large the file was at most. stopped_s: the recorder stands still for so long at a time, so that every thread's buffer fills."""
    child = t.start([t.recorder, "-o", trace, "--quiet", "--names=none", f"--max-size={size}", "--", *program], stdout=open(t.path("out"), "wb"))
    most, looks = 0, 0
    while child.poll() is None:
        if os.path.exists(trace):
            most, looks = max(most, os.path.getsize(trace)), looks + 1
        if stopped_s and looks % 20 == 0:
            child.send_signal(signal.SIGSTOP)
            time.sleep(stopped_s)
            child.send_signal(signal.SIGCONT)
        time.sleep(0.001)
    t.equal(child.returncode, 0, "status")
    return max(most, os.path.getsize(trace))


@test
def many_threads_stay_within_the_bound(t):
    """Eight threads, also when the recorder is slow: no write takes the file beyond its bound."""
    size = 4 << 20
    for stopped_s in (0, 0.03):
        most = most_bytes(t, t.path("many.tmk"), f"{size},ring", t.program("flight.c"), "250000", "5", "8", stopped_s=stopped_s)
        t.check(size // 2 < most <= size, f"the file had {most} bytes, {size} are allowed")
        os.remove(t.path("many.tmk"))


SCOPES = """#include "tidemark.h"
#include <stdlib.h>
void *volatile kept;
int main(void) {
	for (int i = 0; i < 300000; i++) {
		tidemark_scope_push("s");
		if (i % 4 == 0) kept = malloc(i % 77 + 1);
		tidemark_scope_pop();
	}
	return 0;
}
"""


@test
def scopes_beyond_the_bound(t):
    """A scope is no event: the closing lines and the trace count apart what is left out of allocations and of scopes, and what is said to be in the trace is there."""
    with open(t.path("scopes_beyond.c"), "w", encoding="ascii") as file:
        file.write(SCOPES)
    done = t.record([t.program(t.path("scopes_beyond.c"))], "--max-size=256KiB")
    said = {name: int(number.replace(",", "")) for number, name in re.findall(r"([\d,]+) (allocations|of them are in|events\n|records of)", done.errors)}
    db = t.imported(done)
    kept, begun = db.row("select (select count(*) from allocation), (select max(calls) from scope_aggregate)")
    t.equal((said["of them are in"], said["allocations"] - said["events\n"]), (kept, kept), f"blocks in the trace: {done.errors}")
    lost = dict(db.rows("select kind, sum(count) from loss group by 1"))
    t.equal(lost, {"max-size": said["events\n"], "records": said["records of"]}, "what was left out, as events and as scopes' begins and ends")
    t.check(f"{os.path.getsize(done.trace) / kept:.1f} bytes an event" in done.errors, done.errors)
    t.check(abs(kept / said["allocations"] - begun / (begun + said["records of"] / 2)) < 0.05, f"of {kept} blocks and {begun} scopes about the same part is there: {lost}")


@test
def stops_at_the_bound(t):
    """With --max-size=SIZE events that do not fit are left out and counted; the ends of processes and threads come on top."""
    size, ends = 512 * KIB, 16 * KIB
    for threads in ("1", "8"):
        trace = t.path(f"stopped{threads}.tmk")
        most = most_bytes(t, trace, size, t.program("flight.c"), "200000", "5", threads, stopped_s=0.01)
        t.check(size * 9 // 10 < most <= size + ends, f"the file of {threads} threads had {most} bytes, {size} are allowed")
        db = t.imported(trace)
        t.equal(db.rows("select kind from note where kind = 'max-size'"), [("max-size",)], "the note")
        t.equal([kind for kind, in db.rows("select distinct kind from loss order by 1")], ["max-size", "records"], "blocks and scopes that were read and did not fit")
        t.equal(db.value("select cut_reason from trace"), None, "closed in order")
        until_ns = db.value("select start_ns from coverage_gap where kind = 'max-size'")
        t.equal(db.value("select max(ts_ns) from memory_timeline"), until_ns, "the last level that is known")
        t.equal(t.ask("snapshot", db.path, f"--at={until_ns - 1}ns").errors, "", "of what is known")
        t.check("knows that up to" in t.ask("snapshot", db.path, f"--at={until_ns + 1000}ns", status=1).errors, "later")
        t.check("so a peak may be higher" in t.ask("peak", db.path).errors, "the peak")
        t.check("cannot tell whether 1 of 1 check" in t.ask("check", db.path, "--max-peak=1GiB", status=1).errors, "a budget")
    done = t.run([t.recorder, "-o", t.path("resized.tmk"), "--max-size=300KiB", "--", t.program("realloc_loop.c")], status=0)
    read = int(re.search(r"events +([\d,]+) \(", done.errors)[1].replace(",", ""))
    db = t.imported(t.path("resized.tmk"))
    kept, lost = db.value("select sum(events) from trace"), db.value("select sum(count) from loss")
    t.check(read > 100_000 and lost > 0, f"{read} events were read, {lost} did not fit")
    t.check(f", {os.path.getsize(t.path('resized.tmk')) / kept:.1f} bytes an event; stopped" in done.errors, f"of {kept} events: {done.errors}")
    t.equal(kept + lost, read, "events in the trace and those left out, a realloc both allocation and free")


TOUCHES = """#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char large[64 << 20];
int main(void) {
	for (int i = 0; i < 3000000; i++) {
		void *volatile block = malloc((size_t)(i * 7919L % 3001) + 1);
		free(block);
	}
	memset(large, 1, sizeof large);
	usleep(400000);
	return large[12345] != 1;
}
"""


@test
def nothing_is_read_behind_the_bound(t):
    """Where recording has stopped at its bound nothing is sampled either, however long the program runs: here it becomes larger then."""
    with open(t.path("touches.c"), "w", encoding="ascii") as file:
        file.write(TOUCHES)
    program = t.program(t.path("touches.c"))
    largest = "select max(value) from sample where name = 'rss'"
    t.check(t.imported(t.record([program], "--interval=2")).value(largest) >= 64 << 20, "the whole recording did not see it grow")
    db = t.imported(t.record([program], "--interval=2", "--max-size=256KiB", "--force"))
    t.check(db.value(largest) < 64 << 20, "it was sampled behind the stop")
    t.equal(db.value("select count(*) from note where kind = 'max-size'"), 1, "the note")


def start_and_wait(t, trace, rounds):
    child = t.start([t.recorder, "-o", trace, "--quiet", "--max-size=256KiB,ring", "--", t.program("flight.c"), "100000000", "5"])
    last, times = None, 0
    for _ in range(20000):
        if times >= rounds:
            return child, t.command_of(child)
        t.check(child.poll() is None, f"the recorder ended early, status {child.returncode}")
        if os.path.exists(trace):
            number = os.stat(trace).st_ino
            times += last != number
            last = number
        time.sleep(0.001)
    t.check(False, f"the file was written anew only {times} times")
    return None


@test
def program_killed(t):
    child, victim = start_and_wait(t, t.path("killed.tmk"), 4)
    os.kill(victim, signal.SIGKILL)
    t.equal(child.wait(60), 128 + signal.SIGKILL, "status")
    db = t.imported(t.path("killed.tmk"))
    t.equal(db.row("select end_kind, end_code from process"), ("signal", signal.SIGKILL), "end")
    t.equal(db.value("select cut_reason from trace"), None, "cut")
    t.check(db.value("select sum(live_count) from live_at_end where heap = 'malloc'") > 1000, "live set")
    t.equal(db.rows("select kind from loss where kind <> 'dropped'"), [], "losses")


@test
def recorder_killed(t):
    """Wherever it is killed, the old file or the new one is there, sound to its last flush."""
    for i in range(6):
        trace = t.path(f"cut{i}.tmk")
        child, victim = start_and_wait(t, trace, 3 + i)
        time.sleep(i * 0.007)
        child.kill()
        child.wait(60)
        os.kill(victim, signal.SIGKILL)
        db = t.imported(trace)
        t.check(db.value("select sum(live_count) from live_at_end where heap = 'malloc'") > 1000, "live set")
        t.equal(db.rows("select kind from loss where kind <> 'dropped'"), [], "losses")


@test
def directory_moved(t):
    """Time and again, mostly while the file is written anew: it goes on in the place that the directory has then."""
    os.mkdir(t.path("place0"))
    child = t.start([t.recorder, "-o", t.path("place0/moved.tmk"), "--max-size=256KiB,ring", "--names=none", "--", t.program("flight.c"), "100000000", "5"], stderr=subprocess.PIPE)
    victim = t.command_of(child)
    for i in range(100):
        time.sleep(0.01)
        os.rename(t.path(f"place{i}"), t.path(f"place{i + 1}"))
    t.equal(child.poll(), None, "the recorder runs")
    os.kill(victim, signal.SIGKILL)
    errors = child.communicate(timeout=60)[1].decode()
    t.check("cannot" not in errors, errors)
    t.equal(os.listdir(t.path("place100")), ["moved.tmk"], "files")
    db = t.imported(t.path("place100/moved.tmk"))
    t.equal(db.row("select end_kind, end_code from process"), ("signal", signal.SIGKILL), "end")
    t.check(db.value("select sum(live_count) from live_at_end where heap = 'malloc'") > 1000, "live set")
    t.equal(db.rows("select kind from loss where kind <> 'dropped'"), [], "losses")


REFUSED_FOR_EVER = """
#include <pthread.h>
#include <stdlib.h>
static void *run(void *n) {
	void *volatile p;
	for (long i = 0; i < (long)n; i++) { p = malloc((size_t)1 << 62); p = malloc(10); free(p); }
	return NULL;
}
int main(int count, char **arguments) {
	pthread_t threads[4];
	long n = atol(arguments[1]), most = atol(arguments[2]);
	for (long i = 0; i < most; i++) pthread_create(&threads[i], NULL, run, (void *)n);
	for (long i = 0; i < most; i++) pthread_join(threads[i], NULL);
	return 0;
}
"""


@test
def refusals_go_with_their_time(t):
    """A program that is refused memory again and again: what is told of each goes when its event goes, and the file stays within its bound."""
    with open(t.path("refused.c"), "w", encoding="ascii") as file:
        file.write(REFUSED_FOR_EVER)
    program, size = t.program(t.path("refused.c")), 256 * KIB
    for threads in ("1", "4"):
        trace = t.path(f"refused{threads}.tmk")
        most = most_bytes(t, trace, f"{size},ring", program, str(400000 // int(threads)), threads)
        t.check(size // 4 < most <= size, f"the file of {threads} threads had {most} bytes, {size} are allowed")
        db = t.imported(trace)
        start = int(db.value("select value from trace_info where key = 'window_start_ns'"))
        t.equal(db.row("select complete, cut_reason from trace"), (0, None), "read to its end")
        refused, others = db.value("select count(*) from oom"), db.value("select count(*) from allocation where size_bytes = 10 and alloc_ns >= ?", start)
        t.check(refused > 1000 and abs(refused - others) <= int(threads), f"{refused} refusals beside {others} blocks")
        t.equal(db.row("select min(size_bytes), max(size_bytes), min(ts_ns) >= ? from oom", start), (1 << 62, 1 << 62, 1), "what was refused, and when")


RESIZED = """#define _GNU_SOURCE
#include <stdlib.h>
static void *kept[100];
int main(void) {
	for (int i = 0; i < 100; i++) kept[i] = malloc(1000);
	for (int i = 0; i < 100; i++) kept[i] = i % 2 ? realloc(kept[i], 2000) : reallocarray(kept[i], 2, 1000);
	for (int i = 0; i < 1000000; i++) free(malloc(30 + i % 977));
	return 0;
}
"""


@test
def resized_before_the_window(t):
    """What they were is gone; that they were made of something is not."""
    with open(t.path("resized.c"), "w", encoding="ascii") as file:
        file.write(RESIZED)
    db = t.imported(t.record([t.program(t.path("resized.c"))], "--max-size=256KiB,ring"))
    t.check(db.value("select max(alloc_ns) from allocation where size_bytes = 2000") < int(db.value("select value from trace_info where key = 'window_start_ns'")),
            "they are in the window")
    t.equal(db.row("select sum(realloc_count), sum(reallocated_bytes), max(longest_chain_count) from realloc_site"), (100, 200000, 1), "reallocations")
    t.check("was kept within a bound" in t.ask("query", db.path, "@growing-vectors", status=0).errors, "a question says so")


@test
def threads_that_stand_still(t):
    """Fourteen threads are interrupted by a handler that never returns, mostly in the middle of a realloc: the file keeps its bound while another one works on."""
    program, trace, size = t.program("stands_still.c"), t.path("still.tmk"), 256 * KIB
    most = most_bytes(t, trace, f"{size},ring", program)
    t.check(size // 4 < most <= size, f"the file had {most} bytes, {size} are allowed")
    db = t.imported(trace)
    t.equal(db.rows("select kind from loss where kind <> 'dropped'"), [], "losses")
    start = int(db.value("select value from trace_info where key = 'window_start_ns'"))
    t.check(db.value("select count(*) from allocation where size_bytes > 1000 and alloc_ns >= ?", start) > 1000, "the window")
    t.equal(db.value("select count(*) from allocation where size_bytes between 10 and 3010 and alloc_ns >= ? and free_ns is null", start), 1, "what it kept")
    kept = db.value("select sum(live_count) from live_at_end where heap = 'malloc' and module like '%/stands_still%'")
    t.check(1 <= kept <= 15, f"{kept} blocks; who stands still in a realloc has none, who stands elsewhere has one")


def dumps_of(t, trace):
    stem = os.path.basename(trace)[:-4]
    return sorted(name for name in os.listdir(t.dir) if name.startswith(stem + ".dump"))


@test
def dumps_by_alert_and_by_request(t):
    """Each is a whole, named trace of its moment; the program is not stopped."""
    trace = t.path("dumped.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--max-size=512KiB,ring", "--alert=live(malloc) >= 1MB", "--", t.program("flight.c"), "100000000", "5"])
    victim = t.command_of(child)
    for _ in range(6000):
        if os.path.exists(t.path("dumped.dump1.tmk")):
            break
        time.sleep(0.01)
    first = t.imported(t.path("dumped.dump1.tmk"))
    t.equal(first.value("select cut_reason from trace"), None, "cut")
    t.equal([rule for rule, in first.rows("select rule from alert")], ["live(malloc) >= 1MB"], "alerts of the dump")
    t.equal(first.value("select text from note where kind = 'dump'"), "a dump was begun here: alert: live(malloc) >= 1MB", "note")
    held, value = first.row("select sum(live_bytes), max(value) from alert_site where heap = 'malloc'")
    t.equal(held, value, "what was live at the alert")
    t.check(first.value("select count(*) from live_at_end where function like 'site_%'") >= 3, "the dump has no names")
    with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
        helper = next(pid for pid in file.read().split() if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(t.recorder))
    for number, pid in ((2, victim), (3, child.pid), (4, helper)):
        done = t.ask("dump", f"--pid={pid}", status=0)
        t.equal(done.text, t.path(f"dumped.dump{number}.tmk") + "\n", "what dump prints")
    done = t.ask("dump", f"--pid={victim}", "-o", t.path("mine.tmk"), status=0)
    t.check(b"exists" in t.ask("dump", f"--pid={victim}", "-o", t.path("mine.tmk"), status=1).err, "an existing file")
    mine = t.imported(t.path("mine.tmk"))
    t.check(mine.value("select end_ns from trace") > first.value("select end_ns from trace"), "a later dump ends later")
    t.check(mine.value("select count(*) from live_at_end where heap = 'malloc' and live_count > 100") > 2, "live set of the dump")
    t.check(child.poll() is None, "the recorder ended")
    os.kill(victim, signal.SIGKILL)
    t.equal(child.wait(60), 128 + signal.SIGKILL, "status")
    t.equal(dumps_of(t, trace), [f"dumped.dump{number}.tmk" for number in (1, 2, 3, 4)], "dumps")
    t.ask("dump", f"--pid={os.getpid()}", status=1)
    t.ask("dump", status=2)
    t.equal(t.ask("dump", "--pit=1", status=2).errors, "tidemark-record: dump: unknown option '--pit=1' (see tidemark-record dump --help)\n", "who complains, and where help is")
    t.equal(t.ask("dump", "--pid", status=2).errors, "tidemark-record: dump: option needs a value: '--pid' (see tidemark-record dump --help)\n", "the same of a value")


@test
def dump_has_what_was_done_before(t):
    """A program that allocates as fast as it can, four threads at once, asks for a dump each time they have come to a stop: each has all blocks made until then."""
    source = t.path("asks.c")
    with open(source, "w", encoding="ascii") as file:
        file.write("""#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *volatile block;
static void *run(void *unused) {
	for (int i = 0; i < 30000; i++) {
		void *mine = malloc(100);
		block = mine;
		free(mine);
	}
	block = malloc(7777);
	return unused;
}
int main(int argc, char **argv) {
	char path[4096];
	for (int dump = 1; argc > 1 && dump <= 5; dump++) {
		pthread_t threads[4];
		for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run, NULL);
		for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
		kill(getppid(), SIGRTMIN + 5);
		snprintf(path, sizeof path, "%s.dump%d.tmk", argv[1], dump);
		while (access(path, F_OK) != 0) usleep(1000);
	}
	return 0;
}
""")
    for options in ([], ["--max-size=256KiB,ring"]):
        stem = t.path(f"asks{len(options)}")
        t.run([t.recorder, "-o", stem + ".tmk", "--quiet", "--names=none", *options, "--", t.program(source), stem], status=0, timeout=120)
        held = [t.imported(f"{stem}.dump{n}.tmk").value("select count(*) from allocation where size_bytes = 7777 and free_ns is null") for n in range(1, 6)]
        t.equal(held, [4 * n for n in range(1, 6)], f"blocks in each dump, with {options}")


@test
def dumps_have_a_bound(t):
    """levels.c crosses 5 MB three times, but for hysteresis: with a threshold at 58 blocks each rise is a crossing."""
    trace = t.path("few.tmk")
    for number, made in ((2, 2), (0, 0), (9, 3)):
        t.run([t.recorder, "-o", trace, "--force", "--quiet", "--max-size=1MiB,ring", f"--dumps={number}", "--alert=live(malloc) > 5.7MB", "--", t.program("levels.c"), "slow"])
        t.equal(len(dumps_of(t, trace)), made, f"dumps with --dumps={number}")
        for name in dumps_of(t, trace):
            os.unlink(t.path(name))
    t.run([t.recorder, "-o", trace, "--force", "--quiet", "--alert=live(malloc) > 5.7MB", "--", t.program("levels.c")])
    t.equal(dumps_of(t, trace), [], "dumps without a ring")


REFUSED = """#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define HUGE ((size_t)1 << 60)
__attribute__((noinline)) void *held(void) { return malloc(777777); }
__attribute__((noinline)) int refused(void *volatile kept) {
	void *out, *volatile p;
	volatile size_t n = HUGE;
	int said = 0;
	errno = 0;
	said += !(p = malloc(n)) && errno == ENOMEM;
	said += !(p = calloc(n, n));
	said += !(p = realloc(kept, n));
	said += !(p = realloc(NULL, n));
	said += posix_memalign(&out, 64, n) == ENOMEM;
	said += !(p = malloc((size_t)-1));
	said += !(p = reallocarray(kept, n, n)) && errno == ENOMEM;
	said += !(p = reallocarray(NULL, n, n));
	said += posix_memalign(&out, 3, 64) == EINVAL; /* no want of memory */
	return said;
}
int main(int argc, char **argv) {
	void *p = held();
	printf("%d\\n", refused(p));
	if (argc > 1) usleep(atoi(argv[1]) * 1000);
	free(p);
	return 0;
}
"""


@test
def what_malloc_refuses(t):
    """Each refusal is a row with what was live then, and is a reason for a dump; a wrong argument is neither."""
    with open(t.path("refused.c"), "w", encoding="ascii") as file:
        file.write(REFUSED)
    program = t.program(t.path("refused.c"))
    huge = 1 << 60
    rows = [("malloc", huge), ("calloc", 2**63 - 1), ("realloc", huge), ("realloc", huge), ("posix_memalign", huge), ("malloc", 2**63 - 1),
            *[("reallocarray", 2**63 - 1)] * 2]
    for options in ([], ["--sample=512KiB"]):
        recording = t.record([program], "--quiet", "--force", *options)
        t.equal(recording.out, b"9\n", "what the program sees")
        db = t.imported(recording)
        t.equal(db.rows("select o.api, o.size_bytes from oom o join heap h on h.id = o.heap_id where h.name = 'malloc' and o.result = 'ENOMEM'"
                        " and o.device_free_bytes is null order by o.ts_ns, o.id"), rows, f"what was refused {options}")
    db = t.imported(t.record([program], "--quiet", "--force"))
    t.equal(db.rows("select distinct function, heap, why from gpu_oom where api = 'realloc'"),
            [("refused", "malloc", "asked for 1.0 EiB; this process held 759.5 KiB in malloc")], "where, and why")
    t.equal(db.rows("select distinct live_bytes, live_count from gpu_oom_site where function = 'held'"), [(777777, 1)], "what was live")
    t.check("refused" in t.run([t.tidemark, "gpu", "--oom", db.path], status=0).text, "tidemark gpu --oom")
    page = [line.split() for line in t.run([t.tidemark, "summary", db.path, "--limit=0"], status=0).text.splitlines()]
    t.equal(sorted((row[1], int(row[2])) for row in page if len(row) == 9 and row[7] == "refused"),
            [("calloc", 1), ("malloc", 1), ("malloc", 1), ("posix_memalign", 1), ("realloc", 1), ("realloc", 1), ("reallocarray", 1), ("reallocarray", 1)],
            "tidemark summary, by where it was asked")
    t.run([t.tidemark, "report", db.path, "-o", t.path("refused.html"), "--force"], status=0)
    with open(t.path("refused.html"), encoding="utf-8") as file:
        table = file.read().split('<table id="oom-table"')[1].split("</table>")[0]
    t.equal(set(re.findall(r"<bdi>([^<]*)</bdi></td></tr>", table)), {"refused"}, "the report's table, by where it was asked")
    trace = t.path("poor.tmk")
    t.run([t.recorder, "-o", trace, "--quiet", "--max-size=1MiB,ring", "--dumps=1", "--", program, "1500"], status=0)
    t.equal(dumps_of(t, trace), ["poor.dump1.tmk"], "dumps")
    db = t.imported(t.path("poor.dump1.tmk"))
    t.equal(db.rows("select text from note where kind = 'dump'"), [("a dump was begun here: memory was refused",)], "note")
    t.equal(db.value("select sum(live_bytes) from live_at_end where function = 'held'"), 777777, "what was live")


MAPPINGS_REFUSED = """#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ANY PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
#define SAYS_NO(call) (errno = 0, (call) == (void *)-1 && errno == ENOMEM)
__attribute__((noinline)) void *held(void) { return mmap(NULL, 777777, ANY); }
__attribute__((noinline)) int refused(char *kept) {
	char *end = sbrk(0);
	struct rlimit limit;
	int file = open("/proc/self/exe", O_RDONLY), said = 0;
	said += SAYS_NO(mmap(NULL, (size_t)1 << 60, ANY));
	said += SAYS_NO(mmap(NULL, (size_t)1 << 59, PROT_READ, MAP_PRIVATE, file, 0));
	said += SAYS_NO((void *)syscall(SYS_mmap, NULL, (size_t)1 << 58, ANY));
	said += SAYS_NO(sbrk((intptr_t)1 << 46));
	said += SAYS_NO((void *)(intptr_t)brk(end + ((intptr_t)1 << 45)));
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = (rlim_t)1 << 36;
	setrlimit(RLIMIT_AS, &limit);
	said += SAYS_NO(mmap(NULL, (size_t)1 << 40, ANY)); /* there would be addresses for it */
	said += SAYS_NO(mremap(kept, 777777, (size_t)1 << 39, MREMAP_MAYMOVE));
	said += SAYS_NO((void *)syscall(SYS_mremap, kept, 777777, (size_t)1 << 38, MREMAP_MAYMOVE, NULL));
	/* No want of memory: one that may not move, nothing, and no file. */
	said += SAYS_NO(mremap(kept, 777777, (size_t)1 << 37, 0));
	said += mmap(NULL, 0, ANY) == MAP_FAILED && errno == EINVAL;
	said += mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF;
	return said;
}
int main(void) {
	char *p = held();
	printf("%d\\n", refused(p));
	return 0;
}
"""
MAPPING_MALLOC = """#include <string.h>
#include <sys/mman.h>
void *malloc(size_t n) {
	size_t *p = mmap(NULL, n + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) return NULL;
	*p = n;
	return p + 2;
}
void free(void *p) { if (p) munmap((size_t *)p - 2, ((size_t *)p)[-2] + 16); }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *old, size_t n) {
	void *p = malloc(n);
	size_t held = old ? ((size_t *)old)[-2] : 0;
	if (p && old) memcpy(p, old, held < n ? held : n);
	if (p) free(old);
	return p;
}
"""


@test
def mappings_that_the_kernel_refuses(t):
    """Each is a row as malloc's refusals are; one of an allocator's is malloc's refusal, and no second one."""
    with open(t.path("mappings.c"), "w", encoding="ascii") as file:
        file.write(MAPPINGS_REFUSED)
    recording = t.record([t.program(t.path("mappings.c"))], "--quiet")
    t.equal(recording.out, b"11\n", "what the program sees")
    db = t.imported(recording)
    t.equal(db.rows("select h.name, o.api, o.size_bytes, f.function from oom o join heap h on h.id = o.heap_id join stack s on s.id = o.stack_id"
                    " join frame f on f.id = s.site_frame_id where o.result = 'ENOMEM' and o.device_free_bytes is null order by o.ts_ns, o.id"),
            [(heap, api, 1 << bits, "refused") for heap, api, bits in
             (("mmap", "mmap", 60), ("mmap-file", "mmap", 59), ("mmap", "mmap", 58), ("mmap", "sbrk", 46), ("mmap", "brk", 45), ("mmap", "mmap", 40),
              ("mmap", "mremap", 39), ("mmap", "mremap", 38))], "what was refused")
    t.equal(db.rows("select distinct x.live_bytes, x.live_count from gpu_oom_site x join oom o on o.id = x.oom_id where x.function = 'held'"),
            [(777777, 1)], "what was live")
    recording = t.record([t.program(t.path("mappings.c"))], "--quiet", "--mappings=off", "--force")
    t.equal(t.imported(recording).rows("select * from oom"), [], "without mappings")
    with open(t.path("mapping_malloc.c"), "w", encoding="ascii") as file:
        file.write(MAPPING_MALLOC)
    with open(t.path("asking.c"), "w", encoding="ascii") as file:
        file.write("#include <stdlib.h>\nint main(void) { volatile size_t n = (size_t)1 << 60; void *volatile p = malloc(n); return p != NULL; }\n")
    library = t.program(t.path("mapping_malloc.c"), "-shared", "-fPIC", "-fno-builtin", name="libmapping_malloc.so")
    db = t.imported(t.record([t.program(t.path("asking.c"), library)], "--quiet"))
    t.equal(db.rows("select h.name, o.api, o.size_bytes from oom o join heap h on h.id = o.heap_id"), [("malloc", "malloc", 1 << 60)], "by an allocator")


@test
def dump_of_a_child_that_crashes(t):
    source = t.path("crash.c")
    with open(source, "w", encoding="ascii") as file:
        file.write("""#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void *lost(void) { return malloc(54321); }
int main(void) {
	int child = fork();
	if (!child) {
		lost();
		abort();
	}
	waitpid(child, 0, 0);
	sleep(1);
	return 0;
}
""")
    trace = t.path("crashed.tmk")
    t.run([t.recorder, "-o", trace, "--quiet", "--max-size=1MiB,ring", "--", t.program(source)], status=0)
    t.equal(dumps_of(t, trace), ["crashed.dump1.tmk"], "dumps")
    db = t.imported(t.path("crashed.dump1.tmk"))
    t.equal(db.row("select end_kind, end_code from process where parent_id is not null"), ("signal", signal.SIGABRT), "end of the child")
    t.equal(db.rows("select live_bytes from live_at_end where function = 'lost'"), [(54321,)], "what the child held")


STOPS = """#include <stdio.h>
#include <stdlib.h>
#include "tidemark.h"
void *kept[500], *volatile block;
__attribute__((noinline)) void *site_held(void) { return malloc(4321); }
int main(void) {
	static void *held[10];
	tidemark_stop();
	for (int i = 0; i < 500; i++) kept[i] = malloc(100);
	tidemark_start();
	for (int i = 0; i < 10; i++) held[i] = site_held();
	for (int i = 0; i < 400000; i++) {
		block = malloc((size_t)(i * 7919L % 3001) + 1);
		free(block);
	}
	for (int i = 0; i < 500; i++) free(kept[i]);
	return held[9] == NULL;
}
"""


@test
def stops_before_the_window(t):
    """Frees of what was not recorded are no losses, also when the time for which recording was off is dropped."""
    with open(t.path("stops.c"), "w", encoding="ascii") as file:
        file.write(STOPS)
    program = t.program(t.path("stops.c"))
    for options in ([], ["--max-size=256KiB,ring"]):
        db = t.imported(t.record([program], *options))
        t.equal(db.rows("select kind from loss"), [("dropped",)] if options else [], f"losses with {options}")
        t.equal(db.value("select sum(live_count) from live_at_exit where function = 'site_held'"), 10, "blocks that are held")


@test
def nothing_is_told_of_the_time_before_the_window(t):
    """What came and went then was dropped: who asks for its peak is told so, and not what stayed."""
    db = t.imported(t.record([t.program("flight.c"), "250000", "5"], "--max-size=256KiB,ring"))
    window_ns = int(db.value("SELECT value FROM trace_info WHERE key = 'window_start_ns'"))
    before, within = f"{window_ns - 1000}ns", f"{window_ns + 1000}ns"
    for command in (["peak"], ["peak", "--sites"], ["timeline"], ["temporary"], ["export", "folded", "-o", t.path("x")], ["export", "pprof", "-o", t.path("y")],
                    ["export", "chrome", "-o", t.path("z")], ["export", "heaptrack", "-o", t.path("h")]):
        at, force = (2, ["--force"]) if command[0] == "export" else (1, [])
        t.equal("a peak is that from then on" in t.ask(*command[:at], db.path, *command[at:], *force).errors, True, f"{command} without a window")
        for window, status in ((["--from=0s", f"--to={before}"], 1), ([f"--to={before}"], 1), ([f"--from={before}"], 1), ([f"--from={within}"], 0)):
            done = t.ask(*command[:at], db.path, *command[at:], *window, *force, status=status)
            t.equal("was kept within a bound, and knows that from" in done.errors, status == 1, f"{command} {window}: {done.errors}")
    # Lists of what happened are answered, and say what they lack.
    for command in (["leaks"], ["alerts"], ["gpu", "--oom"], ["scopes"], ["processes"], ["export", "csv", "--view=mark", "-o", t.path("c")]):
        at, force = (2, ["--force"]) if command[0] == "export" else (1, [])
        for window, expected in ((["--from=0s", f"--to={before}"], True), ([f"--from={before}", "--to=exit"], True), ([f"--from={within}"], False)):
            said = t.ask(*command[:at], db.path, *command[at:], *window, *force, status=0).errors
            t.equal("which the window reaches into, what came and went is not known" in said, expected, f"{command} {window}: {said}")
    t.check("(marks: none) (kept from " in t.ask("leaks", db.path, "--from=mark:gone", status=1).errors, "a mark may have been dropped")
    t.equal(db.row("select min(ts_ns), min(live_bytes) > 0 from memory_timeline where heap is null"), (window_ns, 1), "levels begin with the window, not at 0")
    t.equal(t.ask("snapshot", db.path, "--at=exit").errors, "", "the exit is known")
    t.check("cannot tell whether 1 of 2 checks" in t.ask("check", db.path, "--max-peak=1GiB", "--max-leak=1GiB", status=1).errors, "a peak is not, a leak is")


@test
def a_dump_that_cannot_be_put_where_it_shall_be(t):
    recorder, _ = start_and_wait(t, t.path("run.tmk"), 4)
    done = t.run([t.tidemark, "dump", f"--pid={recorder.pid}", "-o", t.path("none/x.tmk")], status=1, timeout=60)
    t.check("No such file or directory" in done.errors and f"lies in '{t.path('run.dump1.tmk')}'" in done.errors, done.errors)
    t.imported(t.path("run.dump1.tmk"))
    recorder.kill()
    recorder.wait()


def still(path, least):
    """Waits until the file has at least that size and grows no more."""
    sizes = [0]
    while sizes[-1] < least or len(sizes) < 20 or sizes[-20] != sizes[-1]:
        time.sleep(0.05)
        sizes.append(os.path.getsize(path) if os.path.exists(path) else 0)


@test
def a_dump_of_what_has_stopped(t):
    """Behind the bound nothing is recorded any more, and who asks gets what there is."""
    trace, program = t.path("stopped.tmk"), t.program("flight.c")
    recorder = t.start([t.recorder, "-o", trace, "--quiet", "--max-size=64KiB", "--", program, "100000000", "5"])
    still(trace, 48 * KIB)
    for number in (1, 2):
        done = t.run([t.tidemark, "dump", f"--pid={t.command_of(recorder)}"], status=0, timeout=20)
        t.equal(done.text, t.path(f"stopped.dump{number}.tmk") + "\n", "what dump prints")
    db = t.imported(t.path("stopped.dump2.tmk"))
    t.check(db.value("select count(*) from allocation") > 1000, "blocks in it")
    t.equal(db.row("select cut_reason, (select count(*) from note where text like 'recording stopped when the trace reached --max-size%') from trace"), (None, 1), "it is whole, and says why it ends")
    recorder.kill()
    recorder.wait()


@test
def a_dump_that_cannot_be_written(t):
    """Who asked is told why, at once: where its name would be too long, where the trace could not be written, and where the recorder ends unseen."""
    program, name = t.program("flight.c"), "n" * 245 + ".tmk"
    for trace, is_full, why in ((t.path(name), False, "File name too long"), (t.path("full.tmk"), True, "File too large")):
        recorder = t.start([t.recorder, "-o", trace, "--quiet", "--", program, "100000000", "5"], stderr=subprocess.PIPE)
        victim = t.command_of(recorder)
        if is_full:
            while os.path.getsize(trace) < 16384:
                time.sleep(0.01)
            limit = os.path.getsize(trace) + 4096
            resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (limit, limit))
            still(trace, 16384)
        done = t.run([t.tidemark, "dump", f"--pid={victim}"], status=1, timeout=20)
        t.equal(done.errors, f"tidemark-record: cannot get a dump of process {victim}: {why}\n", "what is said to who asks")
        t.equal([found for found in os.listdir(t.dir) if ".dump" in found], [], "files")
        os.kill(victim, signal.SIGKILL)
        t.check(f"cannot write a dump of '{trace}': {why}" in recorder.communicate(timeout=60)[1].decode(), "and by the recorder")
    recorder = t.start([t.recorder, "-o", t.path("ended.tmk"), "--quiet", "--", program, "100000000", "5"])
    victim = t.command_of(recorder)
    os.kill(recorder.pid, signal.SIGSTOP)
    asker = t.start([t.tidemark, "dump", f"--pid={victim}"], stderr=subprocess.PIPE)
    time.sleep(0.3)
    recorder.kill()  # and it stays, dead, as nobody waits for it
    t.check("its recorder ended" in asker.communicate(timeout=20)[1].decode(), "a dead recorder")
    os.kill(victim, signal.SIGKILL)


@test
def a_dump_beside_one_that_was_left(t):
    """What a killed recorder left half written keeps its name, and the next one is waited for."""
    recorder, victim = start_and_wait(t, t.path("left.tmk"), 1)
    open(t.path("left.dump1.tmk.part"), "w", encoding="ascii").close()
    t.equal(t.run([t.tidemark, "dump", f"--pid={victim}"], status=0, timeout=20).text, t.path("left.dump2.tmk") + "\n", "what dump prints")
    recorder.kill()
    recorder.wait()



PARTS = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
enum { MAPPINGS = 400, PARTS = 100 };
int main(void) {
	for (int i = 0; i < MAPPINGS; i++) {
		size_t bytes = (2 * PARTS + 1) * 4096;
		char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		p = mremap(p, 4096, bytes, MREMAP_MAYMOVE);
		if (p == MAP_FAILED) return 1;
		for (int k = 0; k < PARTS; k++)
			if (munmap(p + (2 * k + 1) * 4096, 4096)) return 2;
	}
	for (int i = 0; i < 300000; i++) {
		void *volatile block = malloc((size_t)i % 5000);
		free(block);
	}
	return 0;
}
"""


@test
def parts_of_mappings_are_of_one_event(t):
    """400 mappings are left in 101 parts each, which the file lists one by one: what was dropped is the rest of the events, by hand 640,800 less what is there yet, and never
    less than none."""
    with open(t.path("parts.c"), "w", encoding="ascii") as file:
        file.write(PARTS)
    recording = t.record([t.program(t.path("parts.c"))], "--max-size=256KiB,ring")
    db = t.imported(recording)
    dropped = db.value("select sum(count) from loss where kind = 'dropped'")
    kept = db.value("select count(*) + count(free_ns) from allocation a join heap h on h.id = a.heap_id where h.name = 'malloc'")
    mallocs = 600_000
    # Of each mapping: the mmap, the mremap (two), the munmaps; its first half is listed, or all of its events are there yet.
    t.check(mallocs - kept <= dropped <= mallocs - kept + 400 * (3 + 100), f"dropped {dropped}, {kept} of malloc are there")
    t.equal(db.value("select count(*) from allocation a join heap h on h.id = a.heap_id where h.name = 'mmap' and free_ns is null"), 400 * 101, "parts")


GOES_ON = """
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_key_t key;
static int rounds;
static volatile int over, seconds;
static void *volatile kept;
static void last(void *value) {
	if (++rounds < 4) {
		pthread_setspecific(key, value);
		return;
	}
	sleep((unsigned)seconds);
	for (int i = 0; i < 50; i++) kept = malloc(77777);
	over = 1;
}
static void *run(void *unused) {
	kept = malloc(10);
	pthread_setspecific(key, &key);
	return unused;
}
int main(int argc, char **argv) {
	pthread_t thread;
	seconds = argc > 1 ? atoi(argv[1]) : 0;
	pthread_key_create(&key, last);
	if (pthread_create(&thread, NULL, run, NULL)) return 1;
	for (unsigned i = 0; !over; usleep(1000))
		for (int k = 0; k < 2000; k++, i++) free(kept = malloc(16 + i * 7919 % 4096));
	pthread_join(thread, NULL);
	return 0;
}
"""


def goes_on(t):
    with open(t.path("goes_on.c"), "w", encoding="ascii") as file:
        file.write(GOES_ON)
    return t.program(t.path("goes_on.c"), "-pthread")


@test(long=True)
def a_thread_that_was_forgotten_goes_on(t):
    recording = t.record([goes_on(t), "13"], "--max-size=256KiB,ring")
    db = t.imported(recording)
    t.equal(db.rows("select cut_reason from trace"), [(None,)], "the file is whole")
    t.equal(db.value("select count(*) from allocation where size_bytes = 77777 and free_ns is null"), 50, "its blocks")


LOSES = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
int main(void) {
	int status;
	if (fork() == 0) {
		for (int i = 0; i < 3000000; i++) free(kept = malloc(10));
		return 0;
	}
	if (wait(&status) < 0 || status) return 1;
	for (int i = 0; i < 300000; i++) {
		free(kept = malloc((size_t)(i * 7919L % 3001)));
		if (i % 1000 == 0) usleep(2000); /* so that enough of it is drained for the file to be written anew, however slow the recorder is */
	}
	return 0;
}
"""


@test
def losses_keep_their_process(t):
    with open(t.path("loses.c"), "w", encoding="ascii") as file:
        file.write(LOSES)
    recording = t.record([t.program(t.path("loses.c"))], "--on-full=drop", "--ring=64K", "--max-size=256KiB,ring")
    db = t.imported(recording)
    lost = dict(db.rows("select process_id, sum(count) from loss where kind = 'ring-full' group by 1"))
    t.check(None not in lost and lost.get(2, 0) > 100_000, f"losses by process: {lost}")
    t.check(db.value("select sum(count) from loss where kind = 'dropped'") > 0, "the file was not written anew")


@test
def through_a_symbolic_link(t):
    """The file that it leads to is the trace, and is written anew where it lies."""
    os.mkdir(t.path("real"))
    with open(t.path("real/run.tmk"), "w", encoding="ascii"):
        pass
    os.symlink("real/run.tmk", t.path("link.tmk"))
    with open(t.path("loses.c"), "w", encoding="ascii") as file:
        file.write(LOSES)
    t.record([t.program(t.path("loses.c"))], "--force", "--max-size=256KiB,ring", output=t.path("link.tmk"))
    t.check(os.path.islink(t.path("link.tmk")), "the link is gone")
    db = t.imported(t.path("real/run.tmk"))
    t.equal(db.rows("select cut_reason from trace"), [(None,)], "the trace is whole")
    t.check(db.value("select sum(count) from loss where kind = 'dropped'") > 0, "the file was not written anew")


@test
def bad_bounds(t):
    for value in ("1MiB,round", "64KiB,ring", ",ring", "1MiB,", "0", "0,stop"):
        done = t.run([t.recorder, f"--max-size={value}", "true"], status=125)
        t.check("expected SIZE[,stop|ring], at least 256KiB with ring" in done.errors, done.errors)
    for option, value, words in (("max-depth", "4097", "N, 1 to 4096"), ("ring", "8GiB", "SIZE, at most 1GiB"), ("alert", "cpu > 1", "EXPR, such as 'rss > 8GiB' or"),
                                 ("interval", "x", "MS, at most 86400000"), ("dumps", "-1", "N, at most 10000")):
        done = t.run([t.recorder, f"--{option}={value}", "true"], status=125)
        t.check(f"expected {words}" in done.errors, done.errors)
    for bound in ([], ["--max-size=1MiB"], ["--max-size=1MiB,ring", "--max-size=1MiB,stop"]):
        done = t.run([t.recorder, "--dumps=4", *bound, "true"], status=125)
        t.equal(done.errors, "tidemark-record: --dumps needs --max-size=SIZE,ring: without a ring no dump is made but on request (see tidemark-record --help)\n",
                f"--dumps with {bound}")


main()
