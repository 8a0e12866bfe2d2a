"""Exports and reports: each is loaded by a reader that is not ours, or checked against the rules of its format, and its figures against the database."""
import csv
import io
import json
import os
import random
import re
import sqlite3
import sys

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, mark, step


def seeded():
    """Random numbers whose seed is printed, so that a failure can be made again."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    return random.Random(seed)


@test
def folded(t):
    recording = t.record([t.program("leak.c")])
    db = t.imported(recording)
    for value, wanted in (("leaked", {"main;serve;handle;remember": 51200}), ("peak", {"main;serve;handle;build_index": 1 << 20, "main;serve;handle;remember": 61 * 512}),
                          ("allocated", {"main;serve;handle;parse": 256000, "main;serve;handle;remember": 51200})):
        out = t.path(f"{value}.folded")
        t.ask("export", "folded", db.path, "-o", out, f"--value={value}", "--heap=malloc")
        stacks = {}
        with open(out, encoding="utf-8") as file:
            for line in file:
                stack, count = line.rstrip("\n").rsplit(" ", 1)
                t.check(stack not in stacks and stack and int(count) > 0, f"a line of its own for each stack: {line}")
                stacks[stack] = int(count)
        for stack, size in wanted.items():
            t.equal(stacks.get(stack), size, f"{value} of {stack}")


@test
def folded_lines_are_merged_and_sorted(t):
    """Random stacks of names that begin alike, in two processes, against texts that SQL puts together: equal ones are one line, in the order of their bytes."""
    dice = seeded()
    trace = Trace()
    for process in (1, 2):
        trace.process(process, pid=100 + process, parent=process - 1)
        trace.thread(process, process=process)
        stacks = [[trace.frame(dice.choice(("a", "a b", "a:b", "a<int>", "ab", "az", "A", "\u00e9")), address=dice.randrange(4096)) for _ in range(dice.randrange(6))]
                  for _ in range(300)]
        trace.events(process, [malloc(1000 + i, 0x10000 + 64 * i, dice.randrange(1, 64), trace.stack(*stack) if stack else 0) for i, stack in enumerate(stacks)])
    for process in (1, 2):
        trace.exit(process, 5000 + process)
        trace.end(process, 6000 + process)
    db = t.imported(trace.save(t.path("random.tmk")))
    out = t.path("random.folded")
    t.ask("export", "folded", db.path, "-o", out, "--value=allocated")
    expected = db.rows("select iif(text = '', '[no stack]', text), sum(allocated_bytes) from site join stack_text using (stack_id) group by text order by text")
    t.check(len(expected) > 100 and expected[0][0] == "[no stack]", f"{len(expected)} lines, the first one of no stack")
    with open(out, encoding="utf-8") as file:
        t.equal(file.read().split("\n"), [f"{text} {size}" for text, size in expected] + [""], "lines")


@test
def stacks_of_csv_share_their_beginnings(t):
    """Random stacks, most of which begin as another one, of names that need quotation marks and that need none, against the texts that SQL puts together."""
    dice = seeded()
    trace = Trace()
    trace.process(1, pid=101)
    trace.thread(1, process=1)
    stacks = [[]]
    for _ in range(300):
        outer = dice.choice(stacks)
        stacks.append(outer[:dice.randrange(len(outer) + 1)] + [dice.choice(("a", "b,c", 'd"e', "f\ng", "h i", "\u00e9", "x;y")) for _ in range(dice.randrange(4))])
    dice.shuffle(stacks)
    trace.events(1, [malloc(1000 + i, 0x10000 + 64 * i, 8, trace.stack(*stack) if stack else 0) for i, stack in enumerate(stacks)])
    trace.exit(1, 5000)
    trace.end(1, 6000)
    db = t.imported(trace.save(t.path("random.tmk")))
    for view, key in (("allocation", "id"), ("site", "stack_id"), ("stack_text", "stack_id")):
        t.ask("export", "csv", db.path, "-o", t.path("random.csv"), "--force", f"--view={view}")
        with open(t.path("random.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        expected = db.rows(f"select v.{key}, t.text from {view} as v join stack_text as t using (stack_id) order by 1")
        t.check(len(expected) > 50, f"{view} has {len(expected)} rows")
        t.equal(sorted((int(row[key]), row.get("stack", row.get("text"))) for row in rows), expected, view)


@test
def heaptrack_events_are_in_the_order_of_time(t):
    """Two processes at once, in whose traces blocks end in an order of their own, many at one instant: what ends goes first, then what is made, then what lives for no
    time; of one kind the block comes first that the database has first."""
    dice = seeded()
    trace = Trace()
    for process in (1, 2):
        trace.process(process, pid=100 + process, parent=process - 1)
        trace.thread(process, process=process)
        events, live, ns = [], [], 0
        for i in range(1500):
            ns += dice.choice((0, 0, 0, 1, 1000, 700_000))
            if live and dice.random() < 0.45:
                events.append(free(ns, live.pop(dice.randrange(len(live)))))
            else:
                live.append(0x10000 + 64 * i)
                events.append(malloc(ns, live[-1], dice.randrange(1, 9), trace.stack("main", dice.choice("abc"))))
        trace.events(process, events)
    for process in (1, 2):
        trace.exit(process, 10 ** 10 + process)
        trace.end(process, 2 * 10 ** 10 + process)
    db = t.imported(trace.save(t.path("random.tmk")))
    t.ask("export", "heaptrack", db.path, "-o", t.path("random.heaptrack"))
    kinds, nodes, instructions, strings, got, ms = [], [None], [None], [None], [], 0
    with open(t.path("random.heaptrack"), encoding="utf-8") as file:
        for letter, _, rest in (line.rstrip("\n").partition(" ") for line in file):
            numbers = [int(word, 16) for word in rest.split()] if letter in "tia+-c" else []
            if letter == "s":
                strings.append(rest.split(" ", 1)[1])
            elif letter == "i":
                instructions.append(strings[numbers[2]])
            elif letter == "t":
                nodes.append(instructions[numbers[0]])
            elif letter == "a":
                kinds.append((numbers[0], nodes[numbers[1]]))
            elif letter == "c":
                ms = numbers[0]
            elif letter in "+-":
                got.append((ms, letter, *kinds[numbers[0]]))
    blocks = db.rows("select a.id, alloc_ns, free_ns, size_bytes, function from allocation as a join stack as s on s.id = stack_id join frame as f on f.id = frame_id")
    expected = [(ns, 1, number, "+", size, name) for number, ns, _, size, name in blocks]
    expected += [(end, 2 * (end == ns), number, "-", size, name) for number, ns, end, size, name in blocks if end is not None]
    expected.sort()
    t.check(len(expected) > 2500 and len({event[:2] for event in expected}) < len(expected) - 500, "too few events at one instant")
    t.equal(got, [(ns // 1_000_000, *event) for ns, _, _, *event in expected], "events")


def events_of(t, *programs, **how):
    recording = t.record(list(programs), **how)
    db = t.imported(recording)
    t.ask("export", "chrome", db.path, "-o", t.path("trace.json"))
    with open(t.path("trace.json"), encoding="utf-8") as file:
        data = json.load(file)
    return db, data["traceEvents"] if isinstance(data, dict) else data, data


@test
def chrome(t):
    """The rules that the viewers taught: what they do not read is not there, slices nest, counters come in order."""
    db, events, data = events_of(t, t.program("threads.c"))
    t.check("displayTimeUnit" not in data, "displayTimeUnit is left out")
    t.check(events and all(event["ph"] in "BEbenXCRIistfM" for event in events), f"phases: {sorted({event['ph'] for event in events})}")
    timed = [event for event in events if event["ph"] != "M"]
    t.check(all(event["ts"] >= 0 and event["ts"] < 3.6e9 for event in timed), "times are microseconds since the start")
    counters = {}
    for event in events:
        if event["ph"] == "C":
            t.check("cat" in event, "counters have a category")
            counters.setdefault((event["pid"], event["name"]), []).append(event["ts"])
    t.check(counters, "there are counters")
    for name, times in counters.items():
        t.equal(times, sorted(times), f"times of {name}")
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    t.check({"worker-0", "worker-3"} <= names, f"thread names: {names}")
    peak = db.value("select max(live_bytes) from peak where heap = 'malloc'")
    values = [value for event in events if event["ph"] == "C" for value in event.get("args", {}).values() if isinstance(value, (int, float))]
    t.check(peak in values, "the peak is among the counters' values")


FRAMES = """#include "tidemark.h"
int main(void) {
	uint64_t last = 0;
	for (int i = 0; i < 4; i++) {
		uint64_t frame = tidemark_range_begin("frame");
		tidemark_scope_push("inner");
		tidemark_scope_pop();
		if (last) tidemark_range_end(last);
		last = frame;
	}
	return 0;
}
"""


@test
def chrome_scopes_that_overlap(t):
    """Each frame begins before the last one ends: none is cut short. The first one nests, those after it have a track of their own."""
    with open(t.path("frames.c"), "w", encoding="ascii") as file:
        file.write(FRAMES)
    t.run(["gcc", "-I", os.path.join(t.root, "recorder"), "-o", t.path("frames"), t.path("frames.c")], status=0)
    db, events, _ = events_of(t, t.path("frames"))
    shown = {event["id"]: [event["name"], event["ts"]] for event in events if event["ph"] == "b" and event["cat"] == "scope"}
    for event in events:
        if event["ph"] == "e" and event["cat"] == "scope":
            shown[event["id"]] += [event["ts"], event["args"]["end"]]
    rows = [[name, round(start / 1000, 3), round(end / 1000, 3), kind]
            for name, start, end, kind in db.rows("select name, start_ns, end_ns, end_kind from scope where name = 'frame' order by id")]
    t.equal(sorted(shown.values()), rows[1:], "frames in pairs")
    whole = [(event["name"], event["ts"], round(event["ts"] + event["dur"], 3)) for event in events if event["ph"] == "X"]
    t.equal([tuple(row[:3]) for row in rows[:1]], [row for row in whole if row[0] == "frame"], "the first one")
    t.equal(len([row for row in whole if row[0] == "inner"]), 4, "what does nest")
    t.run([sys.executable, os.path.join(t.root, "tests/integration/check_chrome.py"), t.path("trace.json")], status=0)


@test
def chrome_marks(t):
    _, events, _ = events_of(t, t.program("prog_marks.c"))
    instants = [event["name"] for event in events if event["ph"] in "iIR"]
    t.equal([name for name in instants if name.startswith("step")], [f"step {i}" for i in range(5)], "marks")


@test
def chrome_of_times_below_zero(t):
    """No import writes them; a database that was damaged may have them, and its export is JSON nevertheless."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    trace.events(1, [step(1000, 1), malloc(2000, 0x1000, 5, trace.stack("main"))])
    trace.exit(1, 8000)
    trace.end(1, 9000)
    db = t.imported(trace.save(t.path("run.tmk")))
    base = sqlite3.connect(db.path)
    base.execute("update step set start_ns = -1001")
    base.execute("update timeline set ts_ns = -1 where ts_ns < 2000")
    base.commit()
    base.close()
    for text in re.findall(r'"(?:ts|dur)":([^,}]*)', t.ask("export", "chrome", db.path, "-o", "-").text):
        t.check(re.fullmatch(r"\d+\.\d{3}", text), f"a time: {text}")


@test
def table_json_and_csv_agree(t):
    """Every listing gives the same rows in three formats, and --sql prints a query that gives them too."""
    db = t.imported(t.record([t.program("leak.c")]))
    for verb in ("peak", "leaks", "temporary", "timeline", "processes"):
        rows = json.loads(t.ask(verb, db.path, "--format=json").text)
        t.check(isinstance(rows, list) and rows and isinstance(rows[0], dict), f"{verb}: JSON is an array of objects")
        table = list(csv.reader(io.StringIO(t.ask(verb, db.path, "--format=csv").text)))
        t.equal(table[0], list(rows[0]), f"{verb}: columns")
        t.equal(len(table) - 1, len(rows), f"{verb}: rows")
        query = t.ask(verb, db.path, "--sql").text
        t.equal(len(db.rows(query.strip().rstrip(";"))), len(rows), f"{verb}: rows of the printed query")
        limited = json.loads(t.ask(verb, db.path, "--format=json", "--limit=1").text)
        t.equal(len(limited), 1, f"{verb}: --limit=1")


@test
def names_that_nobody_would_see(t):
    """Heaps that are called "" and " " stand in quotes where people read, and are themselves where programs do; neither is the whole process."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    for number, name in enumerate(("", " "), 2):
        trace.heap(number, 1, name, "pool")
    trace.events(1, [malloc(10 * n, 0x1000 * n, 100 * n, trace.stack("main"), op="heap_alloc", heap=n) for n in (2, 3)], watermark=99)
    trace.exit(1, 100)
    trace.end(1, 200)
    path = trace.save(t.path("blank.tmk"))
    db = t.imported(path)
    for verb, source in (("peak", db.path), ("top", db.path), ("top", path)):
        shown = t.ask(verb, source).text
        for line in (r'"" +200 B', r'" " +300 B'):
            t.check(re.search(f"^{line}|[ms] +{line}", shown, re.M), f"{verb}: {line} is not in\n{shown}")
        rows = json.loads(t.ask(verb, source, "--format=json").text)
        t.equal(sorted((row["heap"], row["live_bytes"]) for row in rows if row["heap"] is not None and row["live_bytes"]), [("", 200), (" ", 300)], f"{verb}: rows")
    t.ask("report", db.path, "-o", t.path("r.html"))
    with open(t.path("r.html"), encoding="utf-8") as file:
        page = file.read()
    t.check("<bdi>&quot; &quot;</bdi>" in page and "<bdi>&quot;&quot;</bdi>" in page, "names in the report")


@test
def query(t):
    db = t.imported(t.record([t.program("leak.c")]))
    t.equal(t.ask("query", db.path, "select 6 * 7 as answer", "--format=csv").text, "answer\n42\n", "a query")
    infinite = "select 1e999 as a, -1e999 as b, null as c, '' as d"
    t.equal(t.ask("query", db.path, infinite, "--format=csv").text, 'a,b,c,d\nInf,-Inf,,""\n', "infinity in CSV is no NULL")
    t.equal(json.loads(t.ask("query", db.path, infinite, "--format=json").text), [{"a": None, "b": None, "c": None, "d": ""}], "JSON has none")
    with open(t.path("q.sql"), "w", encoding="ascii") as file:
        file.write("select count(*) as n from process;\n")
    t.equal(t.ask("query", db.path, t.path("q.sql"), "--format=csv").text, "n\n1\n", "a query from a file")
    refused = t.ask("query", db.path, "delete from process", status=1)
    t.equal(len(refused.errors.splitlines()), 1, f"writing is refused in one line: {refused.errors}")
    t.equal(db.value("select count(*) from process"), 1, "rows after that")


@test
def snapshot(t):
    db = t.imported(t.record([t.program("leak.c")]))
    for when, wanted in (("exit", 51200), ("peak", 61 * 512)):
        rows = json.loads(t.ask("snapshot", db.path, "--at", when, "--format=json", "--heap=malloc").text)
        held = sum(row["live_bytes"] for row in rows if row.get("function") == "remember")
        t.equal(held, wanted, f"remember() at {when}")
    index = db.value("select alloc_ns from allocation where size_bytes = 1048576")
    for delta, wanted in ((-1, 0), (1, 1 << 20)):
        rows = json.loads(t.ask("snapshot", db.path, "--at", f"{index + delta}ns", "--format=json", "--heap=malloc").text)
        t.equal(sum(row["live_bytes"] for row in rows if row.get("function") == "build_index"), wanted, f"build_index() {delta} ns from its call")


@test
def chrome_holds_its_bound_and_its_levels(t):
    """5,000 marks and 1,000 steps do not fit into 1,000 events; 100 bytes are live in a window in which nothing happens, and no others."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    name, main_ = trace.string("seen"), trace.stack("main")
    events = [malloc(5, 0x1000, 100, main_)]
    for n in range(5000):
        events += [step(1000 + 10 * n, n)] * (n % 5 == 0) + [mark(1001 + 10 * n, name)]
    events += [free(90_000, 0x1000), malloc(91_000, 0x1000, 7, main_)]
    trace.events(1, events, watermark=95_000)
    trace.exit(1, 96_000)
    trace.end(1, 97_000)
    db = t.imported(trace.save(t.path("many.tmk")))
    for most in (1000, 20_000):
        said = t.ask("export", "chrome", db.path, "--force", "-o", t.path("many.json"), f"--max-events={most}")
        with open(t.path("many.json"), encoding="utf-8") as file:
            found = json.load(file)["traceEvents"]
        marks, steps = (sum(e.get("cat") == cat and e["ph"] != "e" for e in found) for cat in ("mark", "step"))
        t.check(len(found) <= most * 1.1, f"{len(found)} events, {most} were wanted")
        left_out = re.search(r"(\d+) marks, (\d+) steps", said.errors)
        t.equal((marks, steps), (5000, 1000) if most > 7000 else (5000 - int(left_out[1]), 1000 - int(left_out[2])), said.errors)
    t.ask("export", "chrome", db.path, "--force", "-o", t.path("many.json"), "--from=60us", "--to=80us")
    with open(t.path("many.json"), encoding="utf-8") as file:
        levels = [(e["name"], e["ts"], e["args"]["live_bytes"]) for e in json.load(file)["traceEvents"] if e.get("cat") == "memory"]
    t.equal(sorted(levels), [("all heaps", 60.0, 100), ("malloc", 60.0, 100)], "levels of the window")
    said = t.ask("export", "chrome", db.path, "--force", "-o", t.path("many.json"), "--from=1us", "--to=3us", "--max-events=1000").errors
    t.equal(said, "", "200 marks and 40 steps of a window fit, whatever lies outside of it")


@test
def chrome_levels_of_a_window_and_of_processes_that_ended(t):
    """Within one stretch that is kept as its lowest, highest and last level: 5,100 bytes for an instant, 100 in the window, 101 behind it. Process 1 ends long before 2."""
    trace, at = Trace(), 600_000_000
    for n in (1, 2):
        trace.process(n, pid=99 + n, parent=n - 1)
        trace.thread(n, process=n)
    main_ = trace.stack("main")
    trace.events(1, [malloc(5, 0x1000, 7, main_)], watermark=300_000_000)
    trace.exit(1, 300_000_000)
    trace.end(1, 300_000_001)
    trace.events(2, [malloc(at, 0x2000, 100, main_), malloc(at + 1000, 0x3000, 5000, main_), free(at + 2000, 0x3000), malloc(at + 30_000, 0x4000, 1, main_)],
                 watermark=1_000_000_000)
    trace.exit(2, 1_000_000_000)
    trace.end(2, 1_000_000_001)
    db = t.imported(trace.save(t.path("two.tmk")))
    t.equal(db.rows("select ts_ns - ? from memory_timeline where process_id = 2 and heap is null and ts_ns between ? and ?", at, at, at + 50_000),
            [(0,), (1000,), (30_000,)], "what is kept")

    def levels(*window):
        t.ask("export", "chrome", db.path, "--force", "-o", t.path("two.json"), *window)
        with open(t.path("two.json"), encoding="utf-8") as file:
            found = json.load(file)["traceEvents"]
        return [(e["pid"], round(e["ts"] * 1000), e["args"]["live_bytes"]) for e in found if e.get("cat") == "memory" and e["name"] == "malloc"]

    t.equal(levels(f"--from={at + 10_000}ns", f"--to={at + 20_000}ns"), [(2, at + 10_000, 100)], "levels of the window")
    t.equal([row for row in levels() if row[0] == 1][-1], (1, 300_000_002, 0), "what the first one ends with")
    t.equal(levels()[-1], (2, 1_000_000_001, 101), "the last one goes on to the end")


main()
