"""What is chosen of a recording with several processes, windows and categories: each answer has that and nothing else.

Oracle: traces that are written here, with the expected rows worked out by hand.
"""
import csv
import io
import json

from tidemark_test import data_of, main, test
from trace_writer import Trace, malloc, mark, s, scope, step, v


def ranks_of(t, name, count, events):
    """A trace of so many processes with one thread each; events(trace, process) gives what each does."""
    trace = Trace()
    trace.minor = 2
    for p in range(1, count + 1):
        trace.process(p, pid=100 + p, rank=p - 1, world_size=count)
        trace.thread(p, process=p)
    trace.segments([(p, events(trace, p)) for p in range(1, count + 1)], watermark=80_000)
    return trace, t.path(f"{name}.tmk")


def ended(t, trace, path, count):
    for p in range(1, count + 1):
        trace.exit(p, 85_000)
        trace.end(p, 90_000)
    return t.imported(trace.save(path))


def rows_of(t, *command):
    return list(csv.DictReader(io.StringIO(t.ask(*command, "--format=csv").text)))


@test
def work_of_devices_from_a_mark(t):
    """Each process has a mark of the same name, at another time, and one kernel before its own and one behind it."""
    trace, path = ranks_of(t, "gpu", 2, lambda trace, p: [mark((1000, 5000)[p - 1], trace.string("warm"))])
    name = trace.string("add")
    for p, at in ((1, 1000), (2, 5000)):
        trace.heap(10 * p, p, "cuda:0", "device", device=0)
        trace.pool_state(10 * p, at - 100, allocated=1, reserved=2)
        trace.pool_state(10 * p, at + 100, allocated=3, reserved=4)
        trace.activities(p, [dict(kind=1, name=name, start=at + d, end=at + d + 50, device=0, stream=7, correlation=1) for d in (-500, 200)])
    db = ended(t, trace, path, 2)
    t.equal([(r["process_id"], r["count"], r["first_ns"]) for r in rows_of(t, "gpu", db.path, "--activity", "--from=mark:warm")], [("1", "1", "1200"), ("2", "1", "5200")],
            "kernels behind the mark")
    t.equal([(r["process_id"], r["count"], r["first_ns"]) for r in rows_of(t, "gpu", db.path, "--activity", "--to=mark:warm")], [("1", "1", "500"), ("2", "1", "4500")], "before it")
    t.equal(sorted((r["process_id"], r["ts_ns"]) for r in rows_of(t, "gpu", db.path, "--pools", "--from=mark:warm")), [("1", "1100"), ("2", "5100")], "states of pools")


@test
def alerts_in_a_window(t):
    trace, path = ranks_of(t, "alerts", 1, lambda trace, p: [malloc(500, 0x1000, 64, trace.stack("main")), malloc(5500, 0x2000, 64, trace.stack("main"))])
    for ns in (1000, 6000):
        trace.meta(trace.record(17, v(1) + v(ns) + s("rss > 1KB") + v(2048)))
        trace.recorder_mark(1, ns, "alert: rss > 1KB")
    db = ended(t, trace, path, 1)
    for window, first, second in (((), 1, 1), (("--from=2us",), 0, 1), (("--to=2us",), 1, 0), (("--from=2us", "--to=3us"), 0, 0), (("--from=start", "--to=exit"), 1, 1)):
        wanted = [ns for ns, there in (("1000", first), ("6000", second)) if there]
        t.equal([r["ts_ns"] for r in rows_of(t, "alerts", db.path, *window)], wanted, f"crossings, {window}")
        t.equal([r["ts_ns"] for r in rows_of(t, "alerts", db.path, "--sites", *window)], wanted, f"sites, {window}")
    t.check("--heap is for the sites" in t.ask("alerts", db.path, "--heap=malloc", status=2).errors, "a heap without sites")


@test
def the_gap_of_the_smallest_of_many(t):
    """Twenty processes with a saw of resident memory: the last one has the lowest peak and the smallest teeth."""
    def teeth(trace, p):
        for k in range(1, 25):
            trace.sample(p, k * 1000, rss=1_000_000 - p + k % 2 * (21 - p) * 1000)
        return [malloc(500 + p, 0x1000, 100_000 - 1000 * p, trace.stack("main"))]
    trace, path = ranks_of(t, "gap", 20, teeth)
    db = ended(t, trace, path, 20)
    jumps = rows_of(t, "timeline", db.path, "--jumps", "--process=20", "--limit=0")
    t.equal([(int(j["process_id"]), abs(int(j["change_bytes"]))) for j in jumps], [(20, 1000)] * 16, "jumps of the last one: 320 are kept in all")
    t.equal([j["process_id"] for j in rows_of(t, "timeline", db.path, "--jumps", "--limit=20")], ["1"] * 16 + ["2"] * 4, "and of all")
    t.ask("report", db.path, "--process=20", "-o", t.path("report.html"), status=0)
    with open(t.path("report.html"), encoding="utf-8") as file:
        gap = data_of(file.read())["gap"]
    t.check(len(gap) == 1 and gap[0], f"the report's readings: {gap}")


@test
def a_tree_with_scopes_that_touched_nothing(t):
    """outer allocates, quiet in it does not; two scopes of one name are of different categories."""
    def events(trace, p):
        f, user, nvtx = trace.stack("main"), trace.string("user"), trace.string("nvtx")
        outer, quiet, deep, both = (trace.string(word) for word in ("outer", "quiet", "deep", "both"))
        end = lambda ns, category: scope("scope_end", ns, 0, category)
        return [scope("scope_push", 1000, outer, user), malloc(1100, 0x1000, 64, f), scope("scope_push", 1200, quiet, user), scope("scope_push", 1210, deep, user), end(1220, user),
                end(1300, user), end(1400, user), scope("scope_push", 2000, both, user), malloc(2100, 0x2000, 10, f), end(2200, user),
                scope("scope_push", 3000, both, nvtx), malloc(3100, 0x3000, 5, f), end(3200, nvtx)]
    trace, path = ranks_of(t, "tree", 1, events)
    db = ended(t, trace, path, 1)
    all_lines = [("malloc", "outer", "0"), ("", "quiet", "1"), ("", "deep", "2"), ("malloc", "both", "0")]
    for options, lines in (((), all_lines), (("--category=user",), all_lines), (("--category=nvtx",), all_lines[3:])):
        t.equal([(r["heap"], r["name"], r["depth"]) for r in rows_of(t, "scopes", db.path, "--tree", *options)], lines, f"{options}")
    t.check("not --category with --steps" in t.ask("scopes", db.path, "--steps", "--category=user", status=2).errors, "steps have no category")


@test
def losses_of_one_process(t):
    trace, path = ranks_of(t, "loss", 2, lambda trace, p: [malloc(500, 0x1000, 4096, trace.stack("main"))])
    trace.loss(1, 1, 1000, "full-ring", 77, 1234, "its buffer was full")
    db = ended(t, trace, path, 2)
    for process, lost in ((1, True), (2, False)):
        t.ask("report", db.path, f"--process={process}", "-o", t.path(f"{process}.html"), status=0)
        with open(t.path(f"{process}.html"), encoding="utf-8") as file:
            page = file.read()
        t.equal(("its buffer was full" in page, "Nothing was lost.</p>" in page), (lost, not lost), f"the report of process {process}")


@test
def a_level_holds_until_the_end(t):
    """The last state of a pool lies before the window: it is what the window begins with."""
    trace, path = ranks_of(t, "pool", 1, lambda trace, p: [malloc(500, 0x1000, 64, trace.stack("main"))])
    trace.heap(3, 1, "torch.cuda:0", "tensor", device=0)
    trace.pool_state(3, 1000, allocated=100, reserved=4096)
    trace.pool_state(3, 2000, allocated=50, reserved=8192)
    db = ended(t, trace, path, 1)
    counters = [e for e in json.loads(t.ask("export", "chrome", db.path, "--from=3us", "-o", "-").out)["traceEvents"] if e.get("cat") == "pool"]
    t.equal(sorted((e["name"], e["ts"], list(e["args"].values())[0]) for e in counters), [("torch.cuda:0 allocated", 3, 50), ("torch.cuda:0 reserved", 3, 8192)], "levels")


@test
def half_a_byte_a_step(t):
    """A block of one byte every second step exceeds a growth of nothing, and JUnit's line says by how much."""
    def events(trace, p):
        f, out = trace.stack("main"), []
        for k in range(20):
            out.append(step(1000 + 200 * k, k))
            if k % 2:
                out.append(malloc(1100 + 200 * k, 0x10000 + k * 64, 1, f))
        return out
    trace, path = ranks_of(t, "growth", 1, events)
    db = ended(t, trace, path, 1)
    t.ask("check", db.path, "--max-growth=0", f"--junit={t.path('junit.xml')}", status=3)
    with open(t.path("junit.xml"), encoding="utf-8") as file:
        t.check('message="0.50 bytes, 0 allowed"' in file.read(), "the failure's message")


main()
