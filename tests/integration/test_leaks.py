"""Leak candidates, suppressions, `tidemark diff` and `tidemark check`.

The corpus of fixtures/leaks says how often the scores are right. The other traces are written event by event (trace_writer.py), so that every
figure here can be added up with a pencil. JUnit files are read by Python's own XML parser.
"""
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from pythons import all_torches
from tidemark_test import main, test
from trace_writer import EXECED, FORKED, UNRECORDED, Trace, free, malloc, mmap, munmap, realloc, scope, step

SCORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/leaks/score.py")


def score(t, *options):
    if t.sanitized:
        t.skip("scores are the same in a build that is instrumented, and take long")
    done = subprocess.run([sys.executable, SCORE, f"--build={t.build}", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode()
    print(text)
    t.check(done.returncode == 0, f"fewer than 95 % of the leaks found, or more than 5 % false alarms:\n{text}")
    t.check(re.search(r"\b[1-9]\d* of \d+ leaks", text), f"no leak was looked for:\n{text}")


@test
def corpus_in_part(t):
    score(t, "--quick", "--without=torch", "--tries=3")


@test(long=True)
def corpus(t):
    """With the newest PyTorch that is found; without one its programs are skipped."""
    score(t, *(f"--python={python}" for python, _ in all_torches()[-1:]))


def trace_of(t, name, events, exit_ns=None, notes=(), **info):
    """One process and thread with the events that `events(trace)` gives; returns the trace's path."""
    trace = Trace(**info)
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    made = events(trace)
    trace.events(1, made, watermark=made[-1]["time"])
    for note in notes:
        trace.note(*note)
    trace.exit(1, exit_ns or made[-1]["time"] + 1)
    trace.end(1, (exit_ns or made[-1]["time"]) + 10)
    return trace.save(t.path(f"{name}.tmk"))


def stepped(trace):
    """20 steps of 1 ms: `keep` leaves 100 bytes in each, `work` gives back its 1,000 before the step ends, `table` makes 3 blocks in step 0."""
    keep, work, table = trace.stack("main", "keep"), trace.stack("main", "work"), trace.stack("main", "table")
    events, address = [], 0x10000
    for n in range(20):
        begin = 1_000_000 * (n + 1)
        events.append(step(begin, n))
        if n == 0:
            for k in range(3):
                events.append(malloc(begin + 10 + k, 0x1000 + 64 * k, 50, table))
        events.append(malloc(begin + 100, address, 100, keep))
        events.append(malloc(begin + 200, address + 4096, 1000, work))
        events.append(free(begin + 300, address + 4096))
        address += 8192
    return events


@test
def candidates_by_hand(t):
    db = t.imported(trace_of(t, "steps", stepped, exit_ns=21_000_000))
    rows = {r[0]: r[1:] for r in db.rows("SELECT function, live_bytes, live_count, allocations, growth_bytes_per_step, first_ns, last_ns, score, suppressed,"
                                         " reason FROM leak_candidate")}
    t.equal(sorted(rows), ["keep", "table"], "what was live at exit")
    live, count, allocations, growth, first, last, likely, suppressed, reason = rows["keep"]
    t.equal((live, count, allocations, growth, first, last, suppressed), (2000, 20, 20, 100, 1_000_100, 20_000_100, 0), "keep")
    t.check(likely > 0.8 and "100 B a step" in reason, f"keep: {likely} {reason}")
    live, count, allocations, growth, first, last, likely, suppressed, reason = rows["table"]
    t.equal((live, count, allocations, growth, first, last), (150, 3, 3, 0, 1_000_010, 1_000_012), "table")
    t.check(likely < 0.1 and "by the end of the first 2 steps, as warm-up" in reason, f"table: {likely} {reason}")


def theil_sen(levels):
    """The median slope of all pairs, by its definition."""
    return statistics.median((b - a) / (k - i) for i, a in enumerate(levels) for k, b in enumerate(levels) if k > i)


@test
def more_candidates_than_are_judged_at_a_time(t):
    """20,000 sites and 60 steps are more levels than are gathered at once. Each site keeps a block of its own size in every fourth step."""
    sites, steps, warm_up = 20_000, 60, 6

    def size_of(site):
        return 16 + site % 997

    def events(trace):
        stacks, made = [trace.stack("main", f"f{site}") for site in range(sites)], []
        for n in range(steps):
            made.append(step(1_000_000 * (n + 1), n))
            for site in range(n % 4, sites, 4):
                made.append(malloc(1_000_000 * (n + 1) + 1 + site, 0x100000 + (n * sites + site) * 1024, size_of(site), stacks[site]))
        return made
    db = t.imported(trace_of(t, "many", events))
    rows = {function: rest for function, *rest in db.rows("SELECT function, live_bytes, growth_bytes_per_step FROM leak_candidate")}
    t.equal(len(rows), sites, "candidates")
    # a look is at the begin of a step: what the steps before it kept
    slopes = [theil_sen([len(range(phase, n, 4)) for n in range(warm_up, steps)]) for phase in range(4)]
    expected = {f"f{site}": [size_of(site) * len(range(site % 4, steps, 4)), size_of(site) * slopes[site % 4]] for site in range(sites)}
    wrong = [f"{name}: {rows[name]}, expected {want}" for name, want in expected.items()
             if rows[name][0] != want[0] or abs(rows[name][1] - want[1]) > 1e-6 * want[1]]
    t.check(not wrong, f"{len(wrong)} sites: {wrong[:5]}")


@test
def one_row_for_a_call_site(t):
    """Three ways lead to one line that forgets; a fourth line of the same function is another row."""
    def events(trace):
        site, other = trace.frame([("forget", "f.c", 7)], address=0x7000), trace.frame([("forget", "f.c", 9)], address=0x7100)
        ways = [trace.stack("main", way, site) for way in ("a", "b", "c")]
        made = []
        for n in range(30):
            made.append(malloc(1000 * n + 1, 0x1000 + 0x100 * n, 10 * (n % 3 + 1), ways[n % 3]))
        return made + [malloc(40_000, 0x90000, 5, trace.stack("main", "a", other))]
    db = t.imported(trace_of(t, "ways", events))
    rows = db.rows("SELECT c.line, c.live_bytes, c.live_count, c.stacks, s.text FROM leak_candidate c JOIN stack_text s USING (stack_id) ORDER BY 1")
    t.equal(rows, [(7, 600, 30, 3, "main;c;forget"), (9, 5, 1, 1, "main;a;forget")], "candidates; the stack is the one of most bytes")


@test
def parts_are_no_allocations(t):
    """A mapping loses its second page: two of its three parts live on. Three mappings lose their last page. One of 16 pages is trimmed page by page at its end:
    its one live part is no owner that was replaced again and again."""
    def events(trace):
        cut, trim, peel = trace.stack("main", "cut"), trace.stack("main", "trim"), trace.stack("main", "peel")
        made = [mmap(1000, 0x100000, 0x10000, cut), munmap(1900, 2000, 0x101000, 4096)]
        for k in range(3):
            made += [mmap(3000 + 100 * k, 0x200000 + 0x10000 * k, 8192, trim), munmap(3040 + 100 * k, 3050 + 100 * k, 0x201000 + 0x10000 * k, 4096)]
        made.append(mmap(4000, 0x300000, 0x10000, peel))
        return made + [munmap(4000 + 10 * k, 4005 + 10 * k, 0x310000 - 4096 * k, 4096) for k in range(1, 5)]
    db = t.imported(trace_of(t, "parts", events))
    rows = db.rows("SELECT function, allocations, live_count, live_bytes, reason FROM leak_candidate ORDER BY function")
    t.equal([row[:4] for row in rows], [("cut", 1, 2, 15 * 4096), ("peel", 1, 1, 12 * 4096), ("trim", 3, 3, 3 * 4096)], "candidates")
    t.equal(db.rows("SELECT function, allocations, live_count FROM site ORDER BY function"), [("cut", 1, 2), ("peel", 1, 1), ("trim", 3, 3)], "sites")
    for (function, *_, reason), share in zip(rows, ("2 of 3 parts of 1 block ", "1 of 5 parts of 1 block ", "3 of 6 parts of 3 blocks ")):
        t.check(share in reason, f"{function}: {reason}")


@test
def nothing_after_exec_and_nothing_after_exit(t):
    def events(trace):
        return [malloc(10, 0x1000, 64, trace.stack("main"))]
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, events(trace), watermark=20)
    trace.end(1, 100, kind=3)
    t.equal(t.imported(trace.save(t.path("exec.tmk"))).rows("SELECT * FROM leak_candidate"), [], "live at an exec")
    late = lambda trace: [malloc(10, 0x1000, 64, trace.stack("main")), free(500, 0x1000), malloc(600, 0x2000, 32, trace.stack("main"))]
    db = t.imported(trace_of(t, "late", late, exit_ns=400))
    t.equal(db.rows("SELECT live_bytes, live_count FROM leak_candidate"), [(64, 1)], "live at exit, whatever came later")


@test
def an_owner_that_grows(t):
    """One block, doubled from 64 bytes to 1 MiB at even distances of its doublings, among other work: the last one at two thirds."""
    def events(trace):
        buffer, work = trace.stack("main", "append"), trace.stack("main", "work")
        made, size, address, filled = [malloc(1, 0x1000, 64, buffer)], 64, 0x1000, 0
        for n in range(6000):
            filled += 256
            now = 1000 * (n + 1)
            if filled > size:
                size, address = 2 * size, address + 0x1000000
                made.append(realloc(now + 1, now + 2, address - 0x1000000, address, size, buffer))
            made += [malloc(now + 10, 0x10, 16, work), free(now + 20, 0x10)]
        return made
    db = t.imported(trace_of(t, "owner", events))
    bytes_now, count, likely, reason = db.row("SELECT live_bytes, live_count, score, reason FROM leak_candidate")
    t.equal((bytes_now, count), (2 << 20, 1), "the block")
    t.check(likely >= 0.5 and "grew by being replaced" in reason, f"{likely} {reason}")


def at_work(trace, until_ns, window_ns):
    """A thousand rounds of 10 us: `forget` leaves a block in each, `cache` one that lives for 40 rounds, `table` one in each of the first 50, and `work` 20 that
    live for 20 ns. What begins from until_ns on is left out, and what ended before window_ns: events in order."""
    forget, cache, table, work = (trace.stack("main", name) for name in ("forget", "cache", "table", "work"))
    blocks = []
    for n in range(1000):
        now = 10_000 * (n + 1)
        blocks += [(now + 1, None, 700, forget), (now + 2, now + 400_002, 800, cache)]
        blocks += [(now + 3, None, 900, table)] * (n < 50)
        blocks += [(now + 50 + 100 * k, now + 70 + 100 * k, 100, work) for k in range(20)]
    events = []
    for number, (begin, end, size, stack) in enumerate(blocks):
        ends = end is not None and end < until_ns
        if begin < until_ns and not (ends and end < window_ns):
            events.append(malloc(begin, 0x10000 + 1024 * number, size, stack))
            events += [free(end, 0x10000 + 1024 * number)] * ends
    return sorted(events, key=lambda e: e["time"])


def judged_as_they_are(t, db, what):
    rows = {r[0]: r[1:] for r in db.rows("SELECT function, score, reason FROM leak_candidate")}
    t.check(rows["forget"][0] > 0.8, f"{what}, the leak: {rows['forget']}")
    t.check(rows["cache"][0] < 0.5 and rows["table"][0] < 0.1, f"{what}, what is none: {rows}")
    return [rows["forget"][1], rows["table"][1]]


@test
def recordings_that_keep_the_newest_events(t):
    """Of the events before the window only those are told whose blocks were live then: too few to tell how far the program was."""
    for window_ns in (0, 5_010_000, 9_810_000):
        info = {"window_start_ns": window_ns} if window_ns else {}
        db = t.imported(trace_of(t, f"window{window_ns}", lambda trace, window_ns=window_ns: at_work(trace, 10_010_000, window_ns), 10_020_000, **info))
        told = judged_as_they_are(t, db, f"from {window_ns} ns on")
        words = f"what was freed before {window_ns / 1e6:.2f} ms is not known"
        t.equal([words in reason for reason in told], [window_ns > 0] * 2, f"whether the window is told: {told}")


@test
def recordings_that_stopped_before_the_program_did(t):
    """At --max-size: what nobody looked at is no time in which nothing grew."""
    note = (0, 1_001_000, "max-size", "recording stopped when the trace reached --max-size; the program ran on")
    db = t.imported(trace_of(t, "stopped", lambda trace: at_work(trace, 1_000_000, 0), 10_020_000, notes=[note]))
    judged_as_they_are(t, db, "stopped at 1 ms")


@test
def suppressions(t):
    db = t.imported(trace_of(t, "steps", stepped, exit_ns=21_000_000))
    list_of = lambda *options: [r["function"] for r in json.loads(t.ask("leaks", db.path, "--format=json", *options).text)]
    t.equal(list_of(), ["keep", "table"], "by score")
    for pattern, left in (("keep", ["table"]), ("^main$", []), ("^ke*$", ["table"]), ("eep.c", ["table"]), ("nothing", ["keep", "table"])):
        with open(t.path("known"), "w", encoding="ascii") as file:
            file.write(f"# known\nleak:{pattern}\n")
        t.equal(list_of(f"--suppressions={t.path('known')}"), left, f"with leak:{pattern}")
        t.equal(list_of(f"--suppressions={t.path('known')}", "--all"), ["keep", "table"], "with --all")
    table = t.ask("leaks", db.path, f"--suppressions={t.path('known')}")
    t.check("table" not in table.text and "1 unlikely (150 B)" in table.errors, f"a table: {table.text}{table.errors}")
    with open(t.path("known"), "w", encoding="ascii") as file:
        file.write("leak:x\nthread:y\n")
    bad = t.ask("leaks", db.path, f"--suppressions={t.path('known')}", status=1)
    t.check("line 2: 'thread:y' is not leak:PATTERN" in bad.errors, bad.errors)
    # What stands before a zero byte may be a part of the name, or nothing, which would match everything.
    for line in ("leak:\0keep", "leak:k\0eep"):
        with open(t.path("known"), "w", encoding="ascii") as file:
            file.write(f"# known\n{line}\n")
        bad = t.ask("leaks", db.path, f"--suppressions={t.path('known')}", status=1)
        t.check("line 2: 'leak:" in bad.errors and "is not leak:PATTERN" in bad.errors, bad.errors)
    t.ask("leaks", db.path, "--suppressions=/nowhere", status=1)
    # The ids of a database are any numbers: they cost no memory, and what has them is found.
    strange = sqlite3.connect(db.path)
    strange.executescript("update stack set frame_id = 1 << 62 where frame_id in (select id from frame where function = 'keep');"
                          "update frame set id = 1 << 62 where function = 'keep'; insert into stack select 1 << 62, parent_id, frame_id, depth, site_frame_id from stack where id = 1")
    strange.close()
    with open(t.path("known"), "w", encoding="ascii") as file:
        file.write("leak:^keep$\n")
    t.equal(list_of(f"--suppressions={t.path('known')}"), ["table"], "with ids of any size")


@test
def suppressed_stacks_of_a_row(t):
    """One row stands for two stacks of a call site. Of the one that a file names nothing is in the row, as check measures it; --all
    has it in a row of its own."""
    def both(trace):
        known, other, rest = trace.stack("main", "known", "wrap", "make"), trace.stack("main", "other", "wrap", "make"), trace.stack("main", "rest")
        events = [malloc(1000 * n, 0x100000 + 0x1000 * n, 1000, known) for n in range(1, 901)]
        events += [malloc(1000 * n + 500, 0x800000 + 0x1000 * n, 10, other) for n in (1, 450, 890)] + [malloc(800_100, 0x2000, 7, rest)]
        return sorted(events, key=lambda event: event["time"])

    db = t.imported(trace_of(t, "both", both, exit_ns=1_000_000))
    t.equal(db.rows("select live_bytes, live_count, stacks from leak_candidate where function = 'make'"), [(900_030, 903, 2)], "one row")
    known, other, rest = ((900_000, 900, "known"), (30, 3, "other"), (7, 1, "main"))

    def rows_of(*options):
        rows = json.loads(t.ask("leaks", db.path, "--format=json", *options).text)
        caller = lambda row: db.value("select f.function from stack s join stack p on p.id = s.parent_id join stack q on q.id = p.parent_id "
                                      f"join frame f on f.id = q.frame_id where s.id = {row['stack_id']}") if row["function"] == "make" else "main"
        return sorted((row["live_bytes"], row["live_count"], caller(row), row["suppressed"]) for row in rows)

    for patterns, left, named in ((("known",), [other, rest], [known]), (("other",), [known, rest], [other]), (("other", "known"), [rest], [(900_030, 903, "known")]),
                                  (("rest",), [(900_030, 903, "known")], [rest]), (("nothing",), [(900_030, 903, "known"), rest], [])):
        option = hush(t, *patterns)
        t.equal(rows_of(option), sorted((*row, 0) for row in left), f"left by {patterns}")
        t.equal(rows_of(option, "--all"), sorted([(*row, 0) for row in left] + [(*row, 1) for row in named]), f"all, with {patterns}")
        most = sum(row[0] for row in left)
        t.ask("check", db.path, f"--max-leak={most}", option)
        t.ask("check", db.path, f"--max-leak={most - 1}", option, status=3)
    table = t.ask("leaks", db.path, hush(t, "known"), "--min-score=0")
    t.check("judged with 900 blocks that are suppressed" in " ".join(table.text.split()), f"what the reason is about: {table.text}")
    t.check("1 suppressed (878.9 KiB)" in table.errors, f"what is not listed: {table.errors}")


def hush(t, *patterns, end="\n", before=b""):
    with open(t.path("hush"), "wb") as file:
        file.write(before + "".join(f"leak:{p}{end}" for p in patterns).encode())
    return f"--suppressions={t.path('hush')}"


def three_ways(trace):
    """Events: one line forgets 10 blocks each of 10, 20 and 30 bytes, by three stacks."""
    site = trace.frame([("forget", "f.c", 7)], address=0x7000)
    ways = [trace.stack("main", way, site) for way in ("a_way", "b_way", "c_way")]
    return [malloc(1000 * n + 1, 0x1000 + 0x100 * n, 10 * (n % 3 + 1), ways[n % 3]) for n in range(30)]


@test
def a_row_is_hidden_where_all_its_stacks_are(t):
    """Three ways to one line that forgets 600 bytes: what hides some of them takes these from the budget, but the row stays."""
    db = t.imported(trace_of(t, "ways", three_ways))
    listed = lambda *patterns: len(json.loads(t.ask("leaks", db.path, "--format=json", hush(t, *patterns)).text))
    for patterns, rows, left in ((["c_way"], 1, 300), (["a_way", "b_way"], 1, 300), (["a_way", "c_way", "^b_*y$"], 0, 0), (["main"], 0, 0), (["d_way"], 1, 600)):
        t.equal(listed(*patterns), rows, f"rows with {patterns}")
        t.ask("check", db.path, f"--max-leak={left}", hush(t, *patterns))
        if left:
            t.ask("check", db.path, f"--max-leak={left - 1}", hush(t, *patterns), status=3)


@test
def rows_of_one_stack_are_hidden_apart(t):
    """Stacks are a trace's: the first process forgets by two ways in malloc and by one in a pool, its child by that one. What hides that way hides the rows
    of pool and child, and in the first process' malloc what came by it, of a row that stands for both."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.process(2, pid=101, parent=1, flags=FORKED)
    for n in (1, 2):
        trace.thread(n, process=n)
    trace.heap(1, 1, "malloc", "host")
    trace.heap(2, 1, "pool", "pool", parent=1)
    site = trace.frame([("forget", "f.c", 7)], address=0x7000)
    known, other = (trace.stack("main", way, site) for way in ("known_way", "other_way"))
    trace.segments([(1, [malloc(1000, 0x1000, 300, known), malloc(2000, 0x2000, 200, other), malloc(3000, 0x1000, 30, known, op="heap_alloc", heap=2)]),
                    (2, [malloc(4000, 0x5000, 50, known)])], watermark=5000)
    for n in (1, 2):
        trace.exit(n, 8000)
        trace.end(n, 9000)
    db = t.imported(trace.save(t.path("two.tmk")))
    listed = lambda *options: [(r["process_id"], r["heap"], r["live_bytes"], r["suppressed"])
                               for r in json.loads(t.ask("leaks", db.path, "--format=json", "--sort=-live_bytes", *options).text)]
    every = [(1, "malloc", 500), (2, "malloc", 50), (1, "pool", 30)]
    t.equal(listed(), [(*row, 0) for row in every], "all of them")
    t.equal(listed(hush(t, "known_way")), [(1, "malloc", 200, 0)], "the row that has another way, too")
    t.equal(listed(hush(t, "known_way"), "--all"), [(1, "malloc", 300, 1), (1, "malloc", 200, 0), *((*row, 1) for row in every[1:])], "what each is")
    t.check("3 suppressed (380 B)" in t.ask("leaks", db.path, "--min-score=0", hush(t, "known_way")).errors, "how many are not listed")


@test
def one_caller_of_many(t):
    """A maker of blocks for a table of 300, for work that frees 600, and for one that forgets 40, as it goes: a row for each, and only the last is a leak."""
    def events(trace):
        site = trace.frame([("make", "f.c", 7)], address=0x7000)
        table, work, forget = (trace.stack("main", way, site) for way in ("table", "work", "forget"))
        made, now, address = [], 0, 0x1000
        for way, count in ((table, 300), (work, 600)):
            for n in range(count):
                now, address = now + 10, address + 0x100
                made.append(malloc(now, address, 10, way))
                if way == work:
                    made.append(free(now + 5, address))
                    if n % 15 == 0:
                        made.append(malloc(now + 6, 0x900000 + n * 0x100, 10, forget))
        return made
    db = t.imported(trace_of(t, "callers", events))
    rows = {r[0]: r[1:] for r in db.rows("SELECT s.text, c.live_count, c.score >= 0.5, c.reason FROM leak_candidate c JOIN stack_text s USING (stack_id)")}
    t.equal({k: v[:2] for k, v in rows.items()}, {"main;table;make": (300, 0), "main;forget;make": (40, 1)}, "rows: what is live, and whether it is a leak")
    t.check(re.search("of those made for forget at line [0-9]+, not for others", rows["main;forget;make"][2]), rows)


def shared_maker(trace, fill, rounds):
    """Events: `fill` has so many blocks of 100 bytes made at a line of `make`. rounds: lists of callers that have one made then, with '-' before them where it takes the
    oldest one's place, and of '-', which frees that; another block comes and goes in each round."""
    site, other = trace.frame([("make", "f.c", 7)], address=0x7000), trace.stack("main", "other")
    stacks, held, made = {}, [], []

    def act(word):
        now, caller = 10 * (len(made) + 1), word.lstrip("-")
        if word.startswith("-"):
            made.append(free(now, held.pop(0)))
        if caller:
            address = 0x10000 + 0x100 * len(made)
            made.append(malloc(now + 5, address, 100, stacks.setdefault(caller, trace.stack("main", caller, site))))
            if word.startswith("-") or caller == "fill":
                held.append(address)
    for word in ["fill"] * fill:
        act(word)
    for words in rounds:
        for word in words:
            act(word)
        now = 10 * (len(made) + 1)
        made += [malloc(now, 0x10, 16, other), free(now + 5, 0x10)]
    return made


@test
def a_caller_that_takes_over_what_another_had(t):
    """A cache that one function fills and others keep fresh does not grow. While nothing of theirs was freed it may be a leak, and is told behind others.
    What grows beside it is a leak as it was, and so is what is forgotten while something else is freed, less of it, more of it, or all at once."""
    forget = [["forget"] if n % 4 == 0 else [] for n in range(400)]
    cases = {"not yet all of it": ([["-refresh"]] * 60, {"refresh": 60}),
             "all of it": ([["-refresh"]] * 120, {}),
             "again and again": ([["-refresh"]] * 480, {}),
             "in turn": ([["-one"], ["-two"]] * 80, {}),
             "one after the other": ([["-one"]] * 70 + [["-two"]] * 400, {}),
             "refreshed, and a leak": ([["-refresh", *(["forget"] if n % 16 == 0 else [])] for n in range(480)], {"forget": 30}),
             "a leak": (forget, {"forget": 100}),
             "less is freed": ([[*words, *(["-"] if n % 8 == 0 else [])] for n, words in enumerate(forget)], {"forget": 100}),
             "more is freed": ([[*words, *(["-"] if n % 10 == 9 else []), *(["-"] if n % 8 == 1 else [])] for n, words in enumerate(forget)], {"forget": 100}),
             "all at once": ([*forget[:200], ["-"] * 80, *forget[200:]], {"forget": 100})}
    for name, (rounds, leaks) in cases.items():
        db = t.imported(trace_of(t, name.replace(" ", "-"), lambda trace, rounds=rounds: shared_maker(trace, max(100, len(rounds) * 5 // 6), rounds)))
        rows = db.rows("SELECT replace(replace(s.text, 'main;', ''), ';make', ''), c.live_count, c.score, c.reason FROM leak_candidate c JOIN stack_text s USING (stack_id)")
        t.equal({r[0]: r[1] for r in rows if r[2] >= 0.5}, leaks, f"{name}: leaks among {rows}")
        t.check(all(r[2] > 0.85 if r[0] != "refresh" else r[2] < 0.6 and "may have taken" in r[3] for r in rows if r[0] in leaks), f"{name}: {rows}")


@test
def a_small_cache_beside_a_large_leak(t):
    """A site that grows through one caller after the other, 200 blocks of 10,000 bytes in all, also refreshes a cache of 300 times 16 bytes: that hides nothing."""
    def events(trace):
        site = trace.frame([("make", "f.c", 7)], address=0x7000)
        made, held = [], []

        def make(caller, size):
            made.append(malloc(10 * len(made) + 5, 0x10000 + 0x10000 * len(made), size, trace.stack("main", caller, site)))
            held.append(made[-1]["addr"])
        for _ in range(300):
            make("fill", 16)
        for phase in range(10):
            for _ in range(20):
                make(f"phase{phase}", 10_000)
        for n in range(300):
            made.append(free(10 * len(made) + 1, held[n]))
            make("refresh", 16)
        return made
    rows = t.imported(trace_of(t, "phases", events)).rows("SELECT live_count, score, reason FROM leak_candidate WHERE live_count >= 200")
    t.check(len(rows) == 1 and rows[0][1] > 0.85, f"the site: {rows}")


@test
def lines_of_one_caller(t):
    """Where two lines of one function have blocks made, it is told of which line the forgotten ones are."""
    def events(trace):
        site = trace.frame([("make", "f.c", 7)], address=0x7000)
        table, forget = (trace.stack("main", trace.frame([("work", "f.c", line)], address=0x8000 + line), site) for line in (20, 30))
        made = [malloc(10 * n + 1, 0x1000 + 0x100 * n, 10, table) for n in range(300)]
        for n in range(300, 900):
            made += [malloc(10 * n, 0x900000, 10, trace.stack("main")), free(10 * n + 2, 0x900000)]
            made += [malloc(10 * n + 5, 0xA00000 + 0x100 * n, 10, forget)] * (n % 15 == 0)
        return made
    rows = t.imported(trace_of(t, "lines", events)).rows("SELECT live_count, reason FROM leak_candidate WHERE score >= 0.5")
    t.equal([count for count, _ in rows], [40], "leaks")
    t.check("of those made for work at line 30, not for others" in rows[0][1], rows)


UNJOINED = """
#include <pthread.h>
#include <stdlib.h>
static void *work(void *p) { return p; }
int main(int n, char **words) {
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL)) return 1;
        if (n > 1) pthread_join(thread, NULL);
        free(malloc(100));
    }
    return words == NULL;
}
"""


@test
def threads_that_nobody_joins(t):
    source, program = t.path("threads.c"), t.path("threads")
    with open(source, "w", encoding="ascii") as file:
        file.write(UNJOINED)
    t.run(["gcc", "-g", "-o", program, source, "-pthread"], status=0)
    for words, listed in (([], 1), (["join"], 0)):
        trace = t.path(f"threads{listed}.tmk")
        t.run([os.path.join(t.build, "bin/tidemark-record"), "--quiet", "-o", trace, "--", program, *words], status=0)
        rows = json.loads(t.ask("leaks", t.imported(trace).path, "--format=json", "--min-score=0.5").text)
        t.equal([("nobody joined these" in r["reason"], r["live_count"] >= 50) for r in rows], [(True, True)] * listed, f"rows with {words}")


@test
def lists_of_other_editors(t):
    db = t.imported(trace_of(t, "steps", stepped, exit_ns=21_000_000))
    names = lambda option: [r["function"] for r in json.loads(t.ask("leaks", db.path, "--format=json", option).text)]
    t.equal(names(hush(t, "keep", end="\r\n")), ["table"], "lines that end in CR LF")
    t.equal(names(hush(t, "keep", before=b"\xef\xbb\xbf")), ["table"], "a byte order mark before the list")
    t.equal(names(hush(t, "keep", end="")), ["table"], "no end of line")
    t.equal(names(hush(t, "keep", before=b"\r\n \t\n# leak:table\n  ")), ["table"], "empty lines and a comment")
    t.equal(names(hush(t, "^keep$", "^tab$", "ble^")), ["table"], "marks that do not match")
    t.equal(names(hush(t, "KEEP", " keep")), ["keep", "table"], "capitals and spaces count")
    t.check("line 2: 'leak:'" in t.ask("leaks", db.path, hush(t, "a", ""), status=1).errors, "an empty pattern")


THREE_LEAKS = """
#include <cstdlib>
#include <cstring>
namespace ns {
struct Foo { void *load(int n); };
__attribute__((noinline)) void *Foo::load(int n) { return memset(malloc(n), 1, n); }
}
extern "C" __attribute__((noinline)) void *le_le(int n) { return memset(malloc(n), 1, n); }
extern "C" __attribute__((noinline)) void *upload_file(int n) { return memset(malloc(n), 1, n); }
__attribute__((noinline)) void tidy() { volatile char old[4000]; for (char volatile &c : old) c = 0; }
int main() {
    ns::Foo foo;
    for (int i = 0; i < 40; i++) { foo.load(10); le_le(20); upload_file(30); }
    tidy();
    return 0;
}
"""


def leak_sanitizer_says(t, oracle, options=""):
    """Its report; empty when nothing leaks, which it also says now and then on a busy machine where something does: so it has to say that five times. What is
    neither, as when it may not trace the program: asked again, then skipped."""
    silent = 0
    for _ in range(12):
        asked = t.run([oracle], env=dict(os.environ, LSAN_OPTIONS=options))
        silent += asked.status == 0 and not asked.errors
        if "detected memory leaks" in asked.errors or silent == 5:
            return asked.errors
    t.skip(f"LeakSanitizer does not work here: exit status {asked.status}, {asked.errors[:300]!r}")


@test
def as_leak_sanitizer_does_it(t):
    """The same lists for the same program under LeakSanitizer leave the same functions."""
    t.need("g++")
    source, program, oracle, trace = (t.path(name) for name in ("three.cc", "three", "oracle", "three.tmk"))
    with open(source, "w", encoding="ascii") as file:
        file.write(THREE_LEAKS)
    names = re.compile(r"\b(?:ns::Foo::load|le_le|upload_file)\b")
    t.run(["g++", "-g", "-o", program, source], status=0)
    built = t.run(["g++", "-g", "-fsanitize=leak", "-o", oracle, source])
    if built.status or len(set(names.findall(leak_sanitizer_says(t, oracle)))) != 3:
        t.skip("LeakSanitizer does not work here")
    t.run([os.path.join(t.build, "bin/tidemark-record"), "--quiet", "-o", trace, "--", program], status=0)
    db = t.imported(trace)
    for pattern in ("le$", "^le_le$", "^le", "load", "^ns::Foo::load", "ns::Foo::load$", "^ns::Foo::load(int)$", "Foo::load(*)$", "^upload_file$", "lo$d", "*", "up*le",
                    "le_le*$", "$", "^$", "LE", "three.cc", "^main$", " le_le"):
        option = hush(t, pattern)
        theirs = leak_sanitizer_says(t, oracle, f"suppressions={t.path('hush')}:print_suppressions=0")
        rows = json.loads(t.ask("leaks", db.path, "--format=json", "--min-score=0.5", option).text)
        t.equal({r["function"].split("(")[0] for r in rows}, set(names.findall(theirs)), f"functions that leak:{pattern} leaves")


INLINED = """
#include <stdlib.h>
static inline __attribute__((always_inline)) void *innermost(void) { return malloc(100); }
static inline __attribute__((always_inline)) void *middle(void) { return innermost(); }
__attribute__((noinline)) void *outer(void) { void *p = middle(); __asm__ volatile("" : "+r"(p)); return p; }
int main(void) { for (int i = 0; i < 40; i++) outer(); return 0; }
"""


@test
def inlined_functions_and_modules(t):
    source, program, trace = t.path("inlined.c"), t.path("some_program"), t.path("inlined.tmk")
    with open(source, "w", encoding="ascii") as file:
        file.write(INLINED)
    t.run(["gcc", "-g", "-O2", "-o", program, source], status=0)
    t.run([os.path.join(t.build, "bin/tidemark-record"), "--quiet", "-o", trace, "--", program], status=0)
    db = t.imported(trace)
    for pattern, rows in (("^innermost$", 0), ("^middle$", 0), ("^outer$", 0), ("inlined.c$", 0), ("/some_program$", 0), ("some_prog*m", 0),
                          ("^some_program", 1), ("libnothing.so", 1)):
        found = json.loads(t.ask("leaks", db.path, "--format=json", "--min-score=0.5", hush(t, pattern)).text)
        t.equal(len(found), rows, f"rows with leak:{pattern}")


KNOWS = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
%s
const char *__lsan_default_suppressions(void) { %s }
__attribute__((noinline)) void *known(void) { void *p = malloc(100); __asm__ volatile("" : "+r"(p)); return p; }
__attribute__((noinline)) void *unknown(void) { void *p = malloc(50); __asm__ volatile("" : "+r"(p)); return p; }
int main(void) {
    if (!fork()) { known(); unknown(); exit(0); }
    wait(NULL);
    known(); unknown();
    return 0;
}
"""


@test
def what_the_program_knows(t):
    """Read from the executable where it is a constant; else a note says that it was not. A fork knows what its parent knows."""
    constant = KNOWS % ("", 'return "# a comment\\nleak:^known$\\n";')
    variable = KNOWS % ('const char *volatile list = "leak:^known$";', "return list;")
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    for number, (compiler, options) in enumerate((c, o) for c in compilers for o in (["-O0"], ["-O2"], ["-O2", "-fno-pie", "-no-pie"])):
        for word, text, wanted in (("constant", constant, 1), ("variable", variable, 0)):
            source, program, trace = (t.path(f"{word}{number}{end}") for end in (".c", "", ".tmk"))
            with open(source, "w", encoding="ascii") as file:
                file.write(text)
            t.run([compiler, "-g", *options, "-o", program, source], status=0)
            t.run([os.path.join(t.build, "bin/tidemark-record"), "--quiet", "-o", trace, "--", program], status=0)
            db = t.imported(trace)
            rows = db.rows("SELECT DISTINCT function, suppressed, count(*) FROM leak_candidate WHERE function LIKE '%known' GROUP BY 1, 2 ORDER BY 1")
            t.equal(rows, [("known", wanted, 2), ("unknown", 0, 2)], f"{word} list, {compiler} {options}")
            t.equal(db.rows("SELECT DISTINCT kind FROM note WHERE kind LIKE 'suppressions%'"), [("suppressions" if wanted else "suppressions-unread",)], "notes")


def pooled(*used):
    """20 steps, in which the heap `pool` does something only in those of `used` (step, blocks of 10 bytes): they are freed in the step behind."""
    def events(trace):
        main, made, blocks = trace.stack("main"), [], dict(used)
        trace.heap(1, 1, "pool", "pool")
        for n in range(20):
            begin = 1_000_000 * (n + 1)
            made += [step(begin, n), malloc(begin + 1, 0x1000 + 64 * n, 8, main)]
            made += [free(begin + 10 + k, 0x100000 + 64 * k, heap=1) for k in range(blocks.get(n - 1, 0))]
            made += [malloc(begin + 1000 + k, 0x100000 + 64 * k, 10, main, heap=1) for k in range(blocks.get(n, 0))]
        return made
    return events


@test
def check_counts_steps_in_which_a_heap_did_nothing(t):
    """Each has its place among the first tenth, the rest and what growth is between, whatever a heap did in it."""
    for name, used, budget, wanted in (("late", [(5, 30)], "--max-allocations=10", ("max-allocations", 30, "exceeded")),
                                       ("early", [(0, 30), (15, 1)], "--max-allocations=10", ("max-allocations", 1, "ok")),
                                       ("never again", [(0, 30)], "--max-allocations=10", ("max-allocations", 0, "ok")),
                                       ("level", [(3, 1), (7, 2), (12, 3), (13, 4), (14, 5)], "--max-growth=1", ("max-growth", 0, "ok")),
                                       ("seldom", [(15, 1)], "--max-growth=1", ("max-growth", 0, "ok"))):
        db = t.imported(trace_of(t, name, pooled(*used), exit_ns=21_000_000))
        done = t.ask("check", db.path, budget, "--heap=pool", "--format=json", status=0 if wanted[2] == "ok" else 3)
        t.equal([(r["budget"], r["measured_count"] if r["measured_bytes"] is None else r["measured_bytes"], r["verdict"]) for r in json.loads(done.text)], [wanted], name)


@test
def check_and_junit(t):
    """Live at exit 2,150 bytes; growth 100 bytes a step; 2 allocations in every step but the first; most live at once: 3,150."""
    db = t.imported(trace_of(t, "steps", stepped, exit_ns=21_000_000))
    for options, status in ((["--max-peak=3150"], 0), (["--max-peak=3149"], 3), (["--max-leak=2150"], 0), (["--max-leak=2149"], 3), (["--max-growth=100"], 0),
                            (["--max-growth=99"], 3), (["--max-allocations=2"], 0), (["--max-allocations=1"], 3), ([], 2), (["--max-leak=a"], 2),
                            (["--max-peak=1G", "--max-leak=0"], 3)):
        t.ask("check", db.path, *options, status=status)
    with open(t.path("known"), "w", encoding="ascii") as file:
        file.write("leak:keep\n")
    t.ask("check", db.path, "--max-leak=150", f"--suppressions={t.path('known')}")
    t.ask("check", db.path, "--max-leak=149", f"--suppressions={t.path('known')}", status=3)
    junit = t.path("j.xml")
    done = t.ask("check", db.path, "--max-peak=1M", "--max-leak=100", "--max-growth=1", f"--junit={junit}", "--format=json", status=3)
    rows = {r["budget"]: (r["measured_bytes"], r["allowed_bytes"], r["verdict"]) for r in json.loads(done.text)}
    t.equal(rows, {"max-peak": (3150, 1 << 20, "ok"), "max-leak": (2150, 100, "exceeded"), "max-growth": (100, 1, "exceeded")}, "JSON")
    suite = ElementTree.parse(junit).getroot()
    t.equal((suite.tag, suite.get("tests"), suite.get("failures")), ("testsuite", "3", "2"), "the suite")
    cases = {c.get("classname"): c.find("failure") for c in suite.findall("testcase")}
    t.equal({k for k, v in cases.items() if v is None}, {"tidemark.max-peak"}, "cases without a failure")
    t.check("2150 bytes, 100 allowed" in cases["tidemark.max-leak"].get("message") and "keep at keep.c" in cases["tidemark.max-leak"].text, "a failure")
    before = open(db.path, "rb").read()
    t.ask("check", db.path, "--max-leak=0", f"--junit={db.path}", status=1)
    t.check(open(db.path, "rb").read() == before, "the database is as it was")


@test
def check_lists_what_is_exceeded_first(t):
    """30 processes, of which the last two hold 5,000 bytes: a table, which ends after 20 rows, shows them."""
    trace = Trace()
    for n in range(1, 31):
        trace.process(n, pid=100 + n)
        trace.thread(n, process=n)
    for n in range(1, 31):
        trace.events(n, [malloc(10 * n, 0x1000 * n, 5000 if n > 28 else 100, trace.stack("main"))], watermark=10 * n)
    for n in range(1, 31):
        trace.exit(n, 400)
        trace.end(n, 500)
    db = t.imported(trace.save(t.path("many.tmk")))
    budgets = ("--max-peak=1000", "--max-allocations=1")
    table = t.ask("check", db.path, *budgets, status=3)
    t.equal(table.text.count("exceeded"), 2, f"exceeded budgets in {table.text}")
    found = json.loads(t.ask("check", db.path, *budgets, "--format=json", status=3).text)
    rows = [(r["verdict"], r["budget"], r["process_id"]) for r in found]
    ok = [("ok", budget, n) for budget, last in (("max-allocations", 30), ("max-peak", 28)) for n in range(1, last + 1)]
    t.equal(rows, [("exceeded", "max-peak", 29), ("exceeded", "max-peak", 30)] + ok, "rows")


def junit_sites(t, db, *options):
    """{budget: (measured bytes, {(heap, function): (bytes, blocks)})} of the failures."""
    t.ask("check", db.path, *options, f"--junit={t.path('sites.xml')}", status=3)
    out = {}
    for failure in ElementTree.parse(t.path("sites.xml")).getroot().iter("failure"):
        sites = {}
        for line in failure.text.splitlines():
            size, unit, per, blocks, heap, function = re.fullmatch(
                r"([\d.]+) (B|KiB)( a step)? in (\d+) blocks? of heap (\w+): (\w+) at \S+:\d+", line).groups()
            t.check((heap, function) not in sites, f"a line for each site: {line}")
            t.equal(bool(per), failure.get("type") == "max-growth", line)
            sites[heap, function] = (int(float(size) * {"B": 1, "KiB": 1024}[unit]), int(blocks))
        out[failure.get("type")] = (int(failure.get("message").split(" ")[0]), sites)
    return out


@test
def junit_sites_are_what_was_measured(t):
    """Live bytes of malloc: 5120 at 10, 0 at 20, 512 at 40, 768 at 60; of mmap: 8192 from 30 to 50, 4096 at 70; of a pool in malloc: 128.
    The process has its peak at 40: 8192 + 512."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.heap(1, 1, "malloc", "host")
    trace.heap(2, 1, "pool", "pool", parent=1)
    early, load, keep, file, stay, inner = (trace.stack("main", name) for name in ("early", "load", "keep", "file", "stay", "inner"))
    trace.events(1, [malloc(10, 0x1000, 5120, early), free(20, 0x1000), mmap(30, 0x100000, 8192, file), malloc(40, 0x3000, 512, load),
                     munmap(49, 50, 0x100000, 8192), malloc(60, 0x4000, 256, keep),
                     malloc(65, 0x4010, 128, inner, usable="unknown", op="heap_alloc", heap=2), mmap(70, 0x200000, 4096, stay)],
                 watermark=70)
    trace.exit(1, 80)
    trace.end(1, 90)
    db = t.imported(trace.save(t.path("sites.tmk")))
    at_process_peak = {("mmap", "file"): (8192, 1), ("malloc", "load"): (512, 1)}
    loaded, kept, stayed = ({(heap, function): (size, 1)} for heap, function, size in
                            (("malloc", "load", 512), ("malloc", "keep", 256), ("mmap", "stay", 4096)))
    both = ("--max-peak=0", "--max-leak=0")
    for options, peak, leak in (((), (8704, at_process_peak), (4864, loaded | kept | stayed)),
                                (("--heap=malloc",), (5120, {("malloc", "early"): (5120, 1)}), (768, loaded | kept)),
                                (("--heap=mmap",), (8192, {("mmap", "file"): (8192, 1)}), (4096, stayed)),
                                (("--heap=pool",), (128, {("pool", "inner"): (128, 1)}), (128, {("pool", "inner"): (128, 1)})),
                                ((hush(t, "keep"),), (8704, at_process_peak), (4608, loaded | stayed)),
                                ((hush(t, "keep"), "--heap=malloc"), (5120, {("malloc", "early"): (5120, 1)}), (512, loaded))):
        t.equal(junit_sites(t, db, *both, *options), {"max-peak": peak, "max-leak": leak}, f"failures with {options}")
    db = t.imported(trace_of(t, "steps", stepped, exit_ns=21_000_000))
    for options in ((), (hush(t, "keep"),), ("--heap=malloc",)):  # growth is of everything that is live, known or not
        found = junit_sites(t, db, "--max-growth=1", *options)
        t.equal(found, {"max-growth": (100, {("malloc", "keep"): (100, 20)})}, f"growth with {options}")


@test
def what_comes_late_is_no_growth_from_step_to_step(t):
    """100 bytes in each of 20 steps, and 4 MiB in the middle of the last one, 50 blocks more at its end, and one block in the tenth: none of these
    is what grows."""
    def events(trace):
        late, many, once = (trace.stack("main", name) for name in ("late", "many", "once"))
        more = [malloc(10_500_000, 0x900000, 50_000, once), malloc(20_500_000, 0xa00000, 4 << 20, late)]
        more += [malloc(20_900_000 + n, 0x2000000 + 4096 * n, 3000, many) for n in range(50)]
        return sorted(stepped(trace) + more, key=lambda e: e["time"])
    db = t.imported(trace_of(t, "late", events, exit_ns=21_000_000))
    rows = db.rows("SELECT function, growth_bytes_per_step, reason LIKE '%a step%' FROM leak_candidate ORDER BY 1")
    t.equal(rows, [("keep", 100.0, 1), ("late", 0.0, 0), ("many", 0.0, 0), ("once", 0.0, 0), ("table", 0.0, 0)], "growth")
    t.equal(junit_sites(t, db, "--max-growth=1")["max-growth"][1], {("malloc", "keep"): (100, 20)}, "the report")


@test
def junit_sites_of_a_row_that_is_hidden_in_part(t):
    """A line forgets 100, 200 and 300 bytes in 10 blocks each, called in three ways: with the third suppressed it has lost 300 in 20."""
    db = t.imported(trace_of(t, "ways", three_ways))
    for patterns, left in (((), (600, 30)), (("c_way",), (300, 20)), (("a_way", "b_way"), (300, 10))):
        found = junit_sites(t, db, "--max-leak=0", hush(t, *patterns))
        t.equal(found, {"max-leak": (left[0], {("malloc", "forget"): left})}, f"with {patterns}")


@test
def junit_takes_the_place_of_no_recording(t):
    """Neither of the trace that is checked, nor of another, nor of a database; what is refused writes nothing, and an older report goes when the new one is whole."""
    events = lambda trace: [malloc(1, 0x1000, 8, trace.stack("main"))]
    path, other = trace_of(t, "one", events), trace_of(t, "two", events)
    database, kept = t.imported(other).path, t.path("old.xml")
    with open(kept, "w", encoding="ascii") as file:
        file.write("older")
    before = [open(p, "rb").read() for p in (path, other, database, kept)]
    said = [t.ask("check", path, "--max-peak=1M", f"--junit={p}", status=1).errors for p in (path, t.path("one.db"), other, database)]
    t.equal(["the output is the input" in s for s in said], [True, True, False, False], said)
    t.equal(["it holds a recording" in s for s in said], [False, False, True, True], said)
    t.ask("check", path, "--max-peak=1M", f"--junit={kept}", "--sort=nonsense", status=2)

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
    t.run([t.tidemark, "check", path, "--max-peak=1M", f"--junit={kept}"], status=1, preexec=small)
    t.equal([open(p, "rb").read() for p in (path, other, database, kept)], before, "all are as they were")
    t.ask("check", path, "--max-peak=1M", f"--junit={kept}")
    t.equal(ElementTree.parse(kept).getroot().get("tests"), "1", "the new report")
    t.equal([name for name in os.listdir(t.dir) if ".xml" in name], ["old.xml"], "nothing is left over")


@test
def junit_of_what_could_not_be_checked(t):
    """An older report, of a check that held, does not stay for one that judged nothing."""
    path, junit = trace_of(t, "one", lambda trace: [malloc(1, 0x1000, 8, trace.stack("main"))]), t.path("j.xml")
    for options in (("--max-growth=1",), ("--max-peak=1M", "--heap=none"), ("--max-leak=1", "--suppressions=" + t.path("none"))):
        t.ask("check", path, "--max-peak=1M", f"--junit={junit}", status=0)
        t.equal(ElementTree.parse(junit).getroot().get("errors"), "0", "the older one")
        t.ask("check", path, f"--junit={junit}", *options, status=1)
        suite = ElementTree.parse(junit).getroot()
        t.equal((suite.get("tests"), suite.get("errors"), [c.find("error") is not None for c in suite]), ("1", "1", [True]), f"of {options}")
    t.ask("check", t.path("none.tmk"), "--max-peak=1M", f"--junit={t.path('new.xml')}", status=1)
    t.equal(ElementTree.parse(t.path("new.xml")).getroot().get("errors"), "1", "of no trace")


@test
def check_without_steps(t):
    def events(trace):
        return [malloc(10 * n + 1, 0x1000 * (n + 1), 8, trace.stack("main")) for n in range(7)]
    path = trace_of(t, "plain", events)
    t.ask("check", path, "--max-allocations=7")
    t.ask("check", path, "--max-allocations=6", status=3)
    t.check("has 4 steps" in t.ask("check", path, "--max-growth=1G", status=1).errors, "growth without steps")


@test
def check_of_what_is_not_whole(t):
    """A budget that is kept by the part of a run that was recorded is not known to be kept; one that is exceeded there is. It is said of a database, too."""
    def events(trace):
        return [malloc(10 * n + 1, 0x1000 * (n + 1), 8, trace.stack("main")) for n in range(7)]
    path = trace_of(t, "whole", events)
    t.equal(t.ask("check", path, "--max-peak=56").errors.count("not complete"), 0, "of a whole trace")
    with open(path, "rb") as whole, open(t.path("cut.tmk"), "wb") as cut:
        cut.write(whole.read()[:-1])
    t.run([t.tidemark, "import", "-q", t.path("cut.tmk"), "-o", t.path("cut.db")], status=0)
    for status, limit, verdict in ((1, 56, "unknown"), (3, 55, "exceeded")):
        done = t.ask("check", t.path("cut.db"), f"--max-peak={limit}", "--format=json", f"--junit={t.path('j.xml')}", status=status)
        t.check("is not complete (tidemark info says why)" in done.errors, f"of a cut trace, at most {limit}: {done.errors}")
        t.equal([r["verdict"] for r in json.loads(done.text)], [verdict], "the verdict")
        suite = ElementTree.parse(t.path("j.xml")).getroot()
        t.equal((suite.get("failures"), suite.get("errors")), ("0", "1") if status == 1 else ("1", "0"), "the report")
    with open(path, "rb") as whole, open(t.path("head.tmk"), "wb") as cut:
        cut.write(whole.read()[:70])
    said = t.ask("check", t.path("head.tmk"), "--max-peak=56", status=1).errors
    t.check("cannot check" in said, f"of a trace without events: {said}")


@test
def what_comes_slowly_after_much(t):
    """5,000 blocks at the start, then 200: made in one go at the end they are a result; one each 5 ms for a second they are what a service never frees."""
    for name, apart_ns, is_leak in (("result", 10_000, False), ("service", 5_000_000, True)):
        def events(trace):
            first = [malloc(200 * n + 1, 0x100000 + 0x100 * n, 64, trace.stack("load")) for n in range(5000)]
            return first + [malloc(2_000_000 + n * apart_ns, 0x900000 + 0x100 * n, 100, trace.stack("remember")) for n in range(200)]
        score, reason = t.imported(trace_of(t, name, events)).row("SELECT score, reason FROM leak_candidate WHERE function = 'remember'")
        t.equal(score >= 0.5, is_leak, f"{name}: {score} {reason}")
        t.equal("made in one go" in reason, not is_leak, reason)


@test
def what_came_before_long_work(t):
    """1,000 blocks in 2 ms and then 50 that come and go: within 2 ms they are a loop's end, over 100 ms work for which a table was filled."""
    for name, apart_ns, is_leak in (("loop", 40_000, True), ("table", 2_000_000, False)):
        def events(trace):
            rest = [2_000_000 + n * apart_ns for n in range(50)]
            return ([malloc(2000 * n + 1, 0x100000 + 0x100 * n, 64, trace.stack("remember")) for n in range(1000)] +
                    [e for ns in rest for e in (malloc(ns, 0x900000, 100, trace.stack("work")), free(ns + 10, 0x900000))])
        score, reason = t.imported(trace_of(t, name, events)).row("SELECT score, reason FROM leak_candidate WHERE function = 'remember'")
        t.equal(score >= 0.5, is_leak, f"{name}: {score} {reason}")


def seven_blocks(t, name, *losses):
    """The database of a process that allocates 7 blocks of 8 bytes, and has these losses."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, [malloc(10 * n + 1, 0x1000 * (n + 1), 8, trace.stack("main")) for n in range(7)], watermark=80)
    for loss in losses:
        trace.loss(*loss)
    trace.exit(1, 90)
    trace.end(1, 95)
    return t.imported(trace.save(t.path(name)))


def judged(t, db, verdicts):
    """verdicts: of each option, its exit status."""
    for option, status in verdicts:
        verdict = {0: "ok", 1: "unknown", 3: "exceeded"}[status]
        t.equal([r["verdict"] for r in json.loads(t.ask("check", db.path, option, "--format=json", status=status).text)], [verdict], option)


@test
def check_of_what_was_lost(t):
    """5 events were lost, which allocated 40 bytes: what they might have exceeded is not known to be kept."""
    db = seven_blocks(t, "lossy.tmk", (1, 1, 70, "ring-full", 5, 40, "the ring was full"), (1, 1, 70, "records", 1000, 0, "scopes"))
    judged(t, db, (("--max-peak=55", 1), ("--max-peak=56", 1), ("--max-peak=95", 1), ("--max-peak=96", 0), ("--max-leak=95", 1), ("--max-leak=96", 0),
                   ("--max-allocations=6", 3), ("--max-allocations=11", 1), ("--max-allocations=12", 0)))
    for file in (t.path("lossy.tmk"), db.path):  # a scope has no bytes, and so neither a number of them nor an unknown one
        text = t.ask("info", file).text
        t.check("count 5, bytes 40: the ring was full" in text and "count 1000: scopes" in text, f"info of {file}: {text}")


@test
def check_of_lost_bytes_that_nobody_counted(t):
    """5 events of threads without a buffer: how much they allocated is not known, so no limit of bytes is known to be kept."""
    db = seven_blocks(t, "unringed.tmk", (0, 0, 70, "no-ring", 5, 0, "no buffer"))
    t.equal(db.rows("select kind, count, bytes from loss"), [("no-ring", 5, None)], "loss")
    judged(t, db, (("--max-peak=1G", 1), ("--max-leak=1G", 1), ("--max-allocations=11", 1), ("--max-allocations=12", 0)))
    for file in (t.path("unringed.tmk"), db.path):
        t.check("count 5, bytes unknown: no buffer" in t.ask("info", file).text, f"info of {file}")


@test
def check_of_what_was_not_recorded(t):
    """A shell that starts a static program: the budgets are kept by the shell, which is no promise for the program."""
    trace = Trace()
    trace.process(1, pid=100, rank=0)
    trace.thread(1, process=1)
    trace.process(2, pid=101, parent=1, start=50, flags=EXECED | UNRECORDED, rank=1)
    trace.events(1, [malloc(10, 0x1000, 8, trace.stack("main"))], watermark=20)
    for n in (1, 2):
        trace.exit(n, 80)
        trace.end(n, 90)
    db = t.imported(trace.save(t.path("static.tmk"))).path
    for options, status, warned in (((), 0, 1), (("--process=1",), 0, 0), (("--process=rank:0",), 0, 0), (("--process=2",), 1, 0)):
        said = t.ask("check", db, "--max-peak=8", *options, status=status).errors
        t.equal(said.count("1 process could not be recorded"), warned, f"{options}: {said}")


@test
def junit_of_a_stripped_program(t):
    """Where no name is known, there is the place in the file that addr2line takes, as tables have it."""
    with open(t.path("bare.c"), "w", encoding="ascii") as file:
        file.write("#include <stdlib.h>\nint main(void) { return malloc(64) == 0; }\n")
    program = t.program(t.path("bare.c"), "-s", name="bare")
    db = t.imported(t.record([program], "--quiet"))
    offset = db.value("select module_offset from leak_candidate where function is null")
    t.ask("check", db.path, "--max-leak=0", f"--junit={t.path('j.xml')}", status=3)
    failure = ElementTree.parse(t.path("j.xml")).getroot().find("testcase/failure")
    t.equal(failure.text, f"64 B in 1 block of heap malloc: bare+{offset:#x}\n", "the site")


@test
def junit_of_names_that_break_xml(t):
    trace = Trace()
    trace.process(1, pid=100, command=b"<a & \"b\">\x01\xff]]>\0x")
    trace.thread(1, process=1)
    trace.events(1, [malloc(10, 0x1000, 64, trace.stack("f<int>&\"'\x02"))], watermark=20)
    trace.exit(1, 30)
    trace.end(1, 40)
    t.ask("check", trace.save(t.path("odd.tmk")), "--max-leak=0", f"--junit={t.path('j.xml')}", status=3)
    failure = ElementTree.parse(t.path("j.xml")).getroot().find("testcase/failure")
    t.check("f<int>&\"'" in failure.text, f"the function: {failure.text}")


def run_of(lines):
    """lines: {(function, line): (blocks that stay, blocks that are freed)} of 100 bytes."""
    def events(trace):
        made, now, address = [], 0, 0x1000
        for (function, line), (kept, freed) in lines.items():
            stack = trace.stack("main", trace.frame([(function, f"/build/{len(lines)}/x.c", line)], address=0x5000 + line * 16))
            for n in range(kept + freed):
                now, address = now + 10, address + 0x1000
                made.append(malloc(now, address, 100, stack))
                if n >= kept:
                    made.append(free(now + 5, address))
        return made
    return events


@test
def diff_by_hand(t):
    """`same` and its line are in both; `moved` is three lines further down, `twice` has two lines that moved; `gone` and `fresh` are in one."""
    before = trace_of(t, "before", run_of({("same", 5): (2, 1), ("moved", 10): (3, 0), ("twice", 20): (1, 0), ("twice", 22): (5, 0), ("gone", 30): (4, 0)}))
    after = trace_of(t, "after", run_of({("same", 5): (4, 1), ("moved", 13): (3, 0), ("twice", 23): (2, 0), ("twice", 25): (5, 0), ("fresh", 40): (9, 0),
                                         ("twice", 60): (1, 0)}))
    done = t.ask("diff", before, after, "--format=json")
    rows = {(r["function"], r["line"]): (r["before_line"], r["before_live_bytes"], r["after_live_bytes"], r["change_live_bytes"], r["change_allocations"])
            for r in json.loads(done.text)}
    t.equal(rows, {("same", 5): (5, 200, 400, 200, 2), ("moved", 13): (10, 300, 300, 0, 0), ("twice", 23): (20, 100, 200, 100, 1),
                   ("twice", 25): (22, 500, 500, 0, 0), ("twice", 60): (None, None, 100, 100, 1), ("gone", 30): (30, 400, None, -400, -4),
                   ("fresh", 40): (None, None, 900, 900, 9)}, "changes")
    t.equal([r["function"] for r in json.loads(done.text)][:3], ["fresh", "gone", "same"], "largest change first")
    table = t.ask("diff", t.path("before.db"), t.path("after.db"))
    t.check("moved" not in table.text and "fresh" in table.text and "(all)" in table.text, table.text)
    itself = t.ask("diff", t.path("before.db"), t.path("before.db"))
    t.check(itself.text.startswith("no call site differs"), itself.text)
    t.ask("diff", before, status=2)
    t.ask("diff", before, t.path("nothing.db"), status=1)
    t.ask("diff", before, after, "--heap=cuda:0", status=1)
    sql = t.ask("diff", t.path("before.db"), t.path("after.db"), "--sql").text
    t.check(sql.startswith("-- to be run on AFTER by sqlite3"), f"how it is to be run: {sql.splitlines()[0]}")
    t.need("sqlite3")
    out = t.run(["sqlite3", t.path("after.db")], input=sql.encode(), status=0).text
    t.equal(len([line for line in out.splitlines() if line.startswith("malloc|")]), 5, "rows that sqlite3 gives for --sql")


def two_ranks(t, name, ids, blocks):
    """ids: of the processes of ranks 0 and 1; blocks: how many of 1,024 bytes each of them keeps in `work`, within a scope of that name."""
    trace, segments = Trace(), []
    for rank in sorted(ids, key=ids.get):
        process = ids[rank]
        trace.process(process, pid=100 + process, rank=rank, world_size=2)
        trace.thread(process, process=process)
        stack = trace.stack("main", trace.frame([("work", "/build/x.c", 5)], address=0x5000))
        kept = [malloc(10 + n, 0x1000 * (n + 1), 1024, stack) for n in range(blocks[rank])]
        segments.append((process, [scope("scope_push", 5, trace.string("work")), *kept, scope("scope_end", 500)]))
    trace.segments(segments, watermark=600)
    for process in ids.values():
        trace.exit(process, 900)
        trace.end(process, 1000)
    return t.imported(trace.save(t.path(name + ".tmk")))


@test
def diff_of_one_process(t):
    """Rank 1 is process 2 before and process 1 after. What is compared, in all parts of the page, is the chosen process of each side."""
    before = two_ranks(t, "before", {0: 1, 1: 2}, {0: 1, 1: 10}).path
    after = two_ranks(t, "after", {0: 2, 1: 1}, {0: 3, 1: 30}).path
    for option, wanted in (([], (11, 33)), (["--process=rank:0"], (1, 3)), (["--process=rank:1"], (10, 30)), (["--process=1"], (1, 30)),
                           (["--process=2"], (10, 3))):
        wanted = tuple(1024 * n for n in wanted)
        figures = [(r["function"], r["before_live_bytes"], r["after_live_bytes"]) for r in json.loads(t.ask("diff", before, after, "--format=json", *option).text)]
        t.equal(figures, [("work", *wanted)], f"sites {option}")
        sql = t.ask("diff", before, after, "--sql", "--format=json", *option).text.partition(";\n")[2]
        with sqlite3.connect(after) as db:
            db.execute("ATTACH ? AS before", (before,))
            cursor = db.execute(sql)
            columns = [c[0] for c in cursor.description]
            rows = [dict(zip(columns, row)) for row in cursor]
        t.equal([(r["function"], r["before_live_bytes"], r["after_live_bytes"]) for r in rows], figures, f"--sql {option}")
        page = t.ask("diff", before, after, *option).text
        texts = tuple(f"{n // 1024}.0 KiB" for n in wanted)
        for line in (r"\(all\)", "malloc", r"malloc +work +0"): # peaks of the heaps, what the scope retained
            t.equal(re.findall(rf"^{line} +(\d+\.0 KiB) +(\d+\.0 KiB) ", page, re.MULTILINE), [texts], f"{line} {option}: {page}")
    missing = t.ask("diff", before, after, "--process=rank:2", status=1)
    t.check("no process with rank 2" in missing.errors, missing.errors)


main()
