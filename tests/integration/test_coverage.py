"""What a recording does not know of the run: every answer says so, and `check` does not call a budget kept that might not be.

Oracle: traces written here by hand, whose processes end, run on, or stop their recording at known times; and one program that is copied while it runs.
"""
import json
import os
import re
import signal
import time

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, step, text

# The commands that give figures, and how each is asked.
ASKED = (("peak",), ("leaks", "--all"), ("snapshot", "--at=exit"), ("processes",), ("summary",), ("temporary",), ("timeline",))
GAPS = "select process_id, kind, start_ns, end_ns from coverage_gap order by 1, 3"


def verdicts(t, db, status, *budgets):
    return {r["budget"]: r["verdict"] for r in json.loads(t.ask("check", db, "--format=json", *budgets, status=status).text)}


def is_complete(t, trace, database, wanted):
    """The trace says the same as the database that was made of it, and as its summary."""
    said = [re.search(r"complete +(\w+)", t.ask("info", path, status=0).text)[1] for path in (trace, database)]
    head, row = t.ask("summary", database, status=0).text.splitlines()[1:3]
    column = re.search(r"\bcomplete\b", head).start()
    t.equal([*said, row[column:].split()[0]], [wanted] * 3, f"complete, by the trace {trace}, by its database and by its summary")


def page_says(t, db, wanted, unwanted):
    path = t.path("page.html")
    t.ask("report", db, "-o", path, "--force", status=0)
    with open(path, encoding="utf-8") as file:
        page = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", file.read()).replace("\xa0", " "))
    for words in wanted:
        t.check(words in page, f"the report lacks '{words}'")
    for words in unwanted:
        t.check(words not in page, f"the report says '{words}'")


def two_processes(t, name, ends=(1, 2), closed=True, note=None):
    """Process 1 has 10 bytes live of 30 at most, process 2 has 7; `ends`: those whose ends are told."""
    trace = Trace()
    for n in (1, 2):
        trace.process(n, pid=99 + n, parent=n - 1)
        trace.thread(n, process=n)
    stack = trace.stack("main")
    trace.events(1, [malloc(10, 0x1000, 10, stack), malloc(20, 0x2000, 20, stack), free(30, 0x2000)], watermark=50)
    trace.events(2, [malloc(15, 0x3000, 7, stack)], watermark=50)
    for n in ends:
        trace.exit(n, 60)
        trace.end(n, 70)
    if note:
        trace.note(*note)
    return t.imported(trace.save(t.path(name), closed=closed))


@test
def of_a_bound_and_a_clock(t):
    """Stopped by --max-size with nothing left out, and a process that gave up the clock: part of the run; with both ended, and no note, all of it."""
    for name, note, wanted in (("size.tmk", (0, 65, "max-size", "stopped"), "part"), ("clock.tmk", (2, 65, "no-clock", "gone"), "part"), ("whole.tmk", None, "yes")):
        is_complete(t, t.path(name), two_processes(t, name, note=note).path, wanted)


@test
def of_a_process_that_ran_on(t):
    """A copy of a trace, made at 70 while process 2 ran; and a recorder that waited for it no longer, at 65."""
    for name, note, kind, until_ns, words in (("copy.tmk", None, "copy", 70, "was written while the program ran on, at 70 ns"),
                                              ("left.tmk", (2, 65, "still-running", "it runs"), "still-running", 65, "ended before some process did, at 65 ns")):
        db = two_processes(t, name, ends=(1,) if not note else (1, 2), note=note)
        t.equal(db.rows(GAPS), [(2, kind, until_ns, None)], f"{name}: gaps")
        is_complete(t, t.path(name), db.path, "part")
        for process, status in ((1, 0), (2, 1)):
            verdict = "unknown" if status else "ok"
            t.equal(verdicts(t, db.path, status, f"--process={process}", "--max-peak=1K", "--max-leak=1K", "--max-allocations=5"),
                    {"max-peak": verdict, "max-leak": verdict, "max-allocations": verdict}, f"{name}: process {process}")
        t.equal(verdicts(t, db.path, 3, "--process=2", "--max-peak=6"), {"max-peak": "exceeded"}, f"{name}: a peak was there")
        t.equal(verdicts(t, db.path, 3, "--process=2", "--max-allocations=0"), {"max-allocations": "exceeded"}, f"{name}: so were allocations")
        t.equal(verdicts(t, db.path, 1, "--process=2", "--max-leak=6"), {"max-leak": "unknown"}, f"{name}: what it holds it may free")
        for command in ASKED:
            t.check(words in t.ask(command[0], db.path, *command[1:], status=0).errors, f"{name}: {command} is silent")
            t.equal(t.ask(command[0], db.path, "--process=1", *command[1:], status=0).errors, "", f"{name}: {command} of the process that ended")
        t.check("knows that up to" in t.ask("snapshot", db.path, "--process=2", "--at=80ns", status=1).errors, f"{name}: behind the end")
        t.check("knows that up to" in t.ask("snapshot", db.path, "--at=80ns", status=int(note is None)).errors, f"{name}: of both")
        t.equal(db.value("select end_ns from process where id = 2"), 70, f"{name}: it lived on behind its last event")
        held = json.loads(t.ask("snapshot", db.path, "--process=2", "--at=60ns", "--format=json", status=0).text)
        t.equal([(r["live_bytes"], r["live_count"]) for r in held], [(7, 1)], f"{name}: what it held while it was quiet")
        for command in ("peak", "leaks", "timeline"):
            t.check(words in t.ask(command, db.path, "--to=exit", status=0).errors, f"{name}: {command} --to=exit")
        for command in (("leaks",), ("alerts",), ("gpu", "--oom"), ("scopes",), ("processes",)):
            for window, expected in (("--to=80ns", True), ("--to=60ns", False)):
                said = t.ask(command[0], db.path, *command[1:], "--from=5ns", window, status=0).errors
                t.equal(words in said and "the window reaches there" in said, expected, f"{name}: {command} {window}: {said}")
        said = t.ask("peak", db.path, "--process=1", "--from=5ns", "--to=60ns", status=0).errors
        t.equal(said, "", f"{name}: a window in what is known")
        t.check("process 2 from" in t.ask("info", db.path, status=0).text, f"{name}: info")
        page_says(t, db.path, ("Part of the run.", "still live when the recording ended", "not of the whole run"),
                  ("Complete.", "Incomplete.", "began to leave", "every call counted"))


@test
def of_a_cut_trace(t):
    """All before 50 is known; process 1 told its end, at 70, and had no time to tell what came before."""
    db = two_processes(t, "cut.tmk", ends=(1,), closed=False)
    t.equal(db.rows(GAPS), [(1, "cut", 50, None), (2, "cut", 50, None)], "gaps")
    t.check("is cut off, and knows that up to 50 ns" in t.ask("snapshot", db.path, "--at=60ns", status=1).errors, "between them")
    for command in ASKED:
        t.check("is cut off at" in t.ask(command[0], db.path, *command[1:], status=0).errors, f"{command} is silent")
    t.check("is cut off, and knows that up to" in t.ask("snapshot", db.path, "--at=1ms", status=1).errors, "behind the cut")
    page_says(t, db.path, ("where the trace is cut off", "Of what could be read nothing was lost."), (">Nothing was lost.", "Complete. Nothing"))


@test
def of_one_among_others(t):
    """Beside a whole trace lie a ring's, a cut one in which a process ended long before, one that lost events of whomever, and one that is cut off before its
    first process."""
    def trace_of(name, watermark, end, ring=False, lossy=False, **how):
        trace = Trace(**({"window_start_ns": 10} if ring else {}))
        trace.process(1, pid=100 + len(name))
        trace.thread(1, process=1)
        trace.events(1, [malloc(15, 0x1000, 10, trace.stack("main"))], watermark=watermark)
        if ring:
            trace.loss(0, 0, 10, "dropped", 5, 1000000, "older than the window")
        if lossy:
            trace.loss(0, 0, 20, "ring-full", 5, 1000000, "the ring was full")
        if end:
            trace.exit(1, end - 1)
            trace.end(1, end)
        return trace.save(t.path(name), **how)
    whole, ring, cut = trace_of("whole.tmk", 20, 40), trace_of("ring.tmk", 20, 40, ring=True), trace_of("cut.tmk", 50, 40, closed=False)
    lossy, empty = trace_of("of_many.tmk", 20, 40, lossy=True), t.path("empty.tmk")
    with open(whole, "rb") as file, open(empty, "wb") as out:
        out.write(file.read(40))
    db = t.path("all.db")
    t.ask("import", whole, ring, cut, lossy, "-o", db, status=0)
    every = ("--max-peak=1K", "--max-leak=1K", "--max-allocations=5")
    for process, wanted, status in ((1, ("ok", "ok", "ok"), 0), (2, ("unknown", "ok", "unknown"), 1), (3, ("ok", "ok", "ok"), 0),
                                    (4, ("unknown", "unknown", "unknown"), 1)):
        t.equal(verdicts(t, db, status, f"--process={process}", *every), dict(zip(("max-peak", "max-leak", "max-allocations"), wanted)), f"process {process}")
    t.equal(t.ask("peak", db, "--process=1", status=0).errors, "", "a word of other traces")
    path = t.path("one.html")
    t.ask("report", db, "-o", path, "--process=1", status=0)
    with open(path, encoding="utf-8") as file:
        page = file.read()
    t.check("Complete.</strong> Nothing was lost" in page, f"the report of one process speaks of other traces: {re.findall('verdict-[lg].*', page)}")
    t.ask("import", empty, "--append", "-o", db, status=0)
    t.check("of a trace in it no process could be read" in t.ask("check", db, "--max-peak=1K", status=1).errors, "check")
    t.check("no process could be read" in t.ask("peak", db, status=0).errors, "peak")
    t.equal(verdicts(t, db, 0, "--process=1", *every)["max-peak"], "ok", "of a process that was read")


@test
def of_a_process_that_ended_before_a_rings_window(t):
    """Process 2 ended at 70 with 12 bytes, and what it had freed is gone: its peak is that, then, whoever is asked. Process 1 had 300 bytes when the window began."""
    for sampled in ({}, {"sample_bytes": 1}):
        trace = Trace(window_start_ns=1000, **sampled)
        for n in (1, 2):
            trace.process(n, pid=99 + n, parent=n - 1)
            trace.thread(n, process=n)
        stack = trace.stack("main")
        trace.events(2, [malloc(15, 0x3000, 7, stack), malloc(20, 0x4000, 5, stack)])
        trace.events(1, [malloc(10, 0x1000, 300, stack), free(1100, 0x1000), malloc(1200, 0x2000, 10, stack)], watermark=1900)
        trace.loss(0, 0, 1000, "dropped", 50, 5000, "older than the window")
        for n, ns in ((2, 60), (1, 1990)):
            trace.exit(n, ns)
            trace.end(n, ns + 10)
        db = t.imported(trace.save(t.path("ring.tmk")))
        for process, level in ((1, (1000, 300, 1)), (2, (70, 12, 2))):
            for command in (["peak"], ["peak", "--to=end"], ["peak", "--to=end", "--sql"], ["timeline"], ["timeline", "--to=end"]):
                asked = (command[0], db.path, *command[1:], f"--process={process}", *([] if "--sql" in command else ["--format=json"]))
                found = t.ask(*asked, status=0).text
                rows = db.rows(found) if "--sql" in command else [(r["process_id"], r["heap"], r["ts_ns"], r["live_bytes"], r["live_count"]) for r in json.loads(found)]
                t.equal([r[2:5] for r in rows if r[1] == "malloc"][0], level, f"process {process}, {command}, {sampled}")
            t.equal([r["live_bytes"] for r in json.loads(t.ask("peak", db.path, "--sites", "--to=end", f"--process={process}", "--format=json", status=0).text)],
                    [level[1]], f"process {process}: what its peak was made of")
        t.equal([r["live_bytes"] for r in json.loads(t.ask("peak", db.path, "--to=exit", "--process=2", "--heap=malloc", "--format=json").text)], [12], "at its exit")
        said = "; of a process that had ended, it is what that held at its end"
        for options, wanted in (([], True), (["--process=1"], False), (["--process=2"], True)):
            t.equal(said in t.ask("peak", db.path, *options, status=0).errors, wanted, f"said with {options}")
        page_says(t, db.path, (said, "the one with the highest peak that is known, "), ())


@test
def of_growth_without_the_first_steps(t):
    """20 steps, of which the first `kept` keep 100 bytes each: of all of them it is known what they grew by, of the window from step 10 on it is not."""
    def budgets(name, kept, from_step):
        trace = Trace(**({"window_start_ns": 100 * from_step} if from_step else {}))
        trace.process(1, pid=100)
        trace.thread(1, process=1)
        stack, events = trace.stack("main"), []
        for n in range(20):
            events += [step(100 * n + 100, n)] if n >= from_step else []
            events += [malloc(100 * n + 110, 0x1000 + 0x100 * n, 100, stack)] if n < kept else []
        trace.events(1, events, watermark=2100)
        if from_step:
            trace.loss(0, 0, 100 * from_step, "dropped", from_step, 0, "older than the window")
        trace.exit(1, 2200)
        trace.end(1, 2300)
        return t.imported(trace.save(t.path(name))).path
    for name, kept, from_step, allowed, status in (("whole", 20, 0, 99, 3), ("whole_kept", 20, 0, 100, 0), ("level", 10, 10, 1, 1), ("grows", 20, 10, 99, 1),
                                                   ("kept", 20, 10, 100, 1)):
        found = verdicts(t, budgets(name + ".tmk", kept, from_step), status, f"--max-growth={allowed}")
        t.equal(found, {"max-growth": {0: "ok", 1: "unknown", 3: "exceeded"}[status]}, name)


@test
def of_a_program_that_stopped_recording(t):
    """Stopped from 40 to 50 and from 80 to its end, and that is its own will: budgets are judged on what is left, with a word of it."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    stack = trace.stack("main")
    events = [malloc(10, 0x1000, 10, stack), text("stop", 40), text("start", 50), malloc(60, 0x2000, 20, stack), text("stop", 80)]
    trace.events(1, events, watermark=85)
    trace.exit(1, 90)
    trace.end(1, 95)
    db = t.imported(trace.save(t.path("stopped.tmk")))
    t.equal(db.rows(GAPS), [(1, "stopped", 40, 50), (1, "stopped", 80, None)], "gaps")
    is_complete(t, t.path("stopped.tmk"), db.path, "part")
    t.equal(verdicts(t, db.path, 0, "--max-peak=30", "--max-leak=30"), {"max-peak": "ok", "max-leak": "ok"}, "what is known")
    for command in (*ASKED, ("check", "--max-peak=30")):
        said = t.ask(command[0], db.path, *command[1:], status=0).errors
        t.check("no allocation of the 25 ns in which the program had stopped its recording" in said, f"{command} is silent: {said}")
    page_says(t, db.path, ("Of the 25 ns", "began to leave"), ("Complete.", "Incomplete."))


@test
def of_lost_events(t):
    db = two_processes(t, "whole.tmk")
    for command in ASKED:
        t.equal(t.ask(command[0], db.path, *command[1:], status=0).errors, "", f"{command} of a whole recording")
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, [malloc(10, 0x1000, 10, trace.stack("main"))], watermark=50)
    trace.loss(1, 1, 50, "ring-full", 5, 40, "the ring was full")
    trace.loss(1, 1, 50, "records", 1000, 0, "scopes")
    trace.exit(1, 60)
    trace.end(1, 70)
    db = t.imported(trace.save(t.path("lossy.tmk")))
    for command in ASKED:
        t.check("warning: 5 events of" in t.ask(command[0], db.path, *command[1:], status=0).errors, f"{command} is silent")
    t.equal(t.ask("query", db.path, "select 1", status=0).errors, "", "who asks the tables sees what they have")


@test
def of_a_real_copy_and_its_whole(t):
    """What the recorder writes of a running program, and of one that outlives it."""
    trace, copy = t.path("ring.tmk"), t.path("copy.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--max-size=4MiB,ring", "--", t.program("flight.c"), "100000000", "5"])
    command = t.command_of(child)
    for _ in range(1000):
        if os.path.exists(trace) and os.path.getsize(trace) > 100000:
            break
        time.sleep(0.01)
    t.ask("dump", f"--pid={command}", "-o", copy, status=0)
    db = t.imported(copy)
    running = db.value("select count(*) from process where end_kind = 'unknown'")
    t.check(running > 0, "nothing ran when it was copied")
    t.equal(db.value("select count(*) from coverage_gap where kind = 'copy' and end_ns is null"), running, "gaps of the copy")
    t.check(re.search(rf"running when it was written +{running}\n", t.ask("info", copy, status=0).text), "info of the copy")
    os.kill(command, signal.SIGKILL)
    child.wait(60)
    left = t.path("left.tmk")
    t.run([t.recorder, "-o", left, "--quiet", "--linger=50ms", "--", "sh", "-c", "sleep 2 & exit 0"], status=0)
    db = t.imported(left)
    t.equal(db.rows("select p.command, g.kind from coverage_gap g join process p on p.id = g.process_id"), [("sleep 2", "still-running")], "gaps")
    whole = t.imported(t.record(["sh", "-c", "exit 0"]))
    t.equal(whole.rows(GAPS), [], "gaps of a whole run")
    is_complete(t, left, db.path, "part")


main()
