"""Listings by call site: one row for all the stacks that lead to one line, with the sums that the stacks add up to."""
import json

from tidemark_test import main, test
from trace_writer import Trace, free, malloc

NAMES = ("function", "file", "line")


def ask(t, db, *arguments):
    return json.loads(t.ask(arguments[0], db, *arguments[1:], "--format=json").text)


def made(t):
    """A line that 40 stacks of different depths reach, each with little; two calls on one line; one caller that holds a little more than each of them; and
    places without names in two libraries, of which one was loaded twice."""
    trace = Trace()
    trace.process(1, pid=10)
    trace.thread(1, process=1)
    for id, path in ((1, "/lib/one.so"), (2, "/lib/two.so"), (3, "/lib/one.so")):
        trace.module(id, 1, 0x100000 * id, 0x1000, path)
    main_, node = trace.frame([("main", "m.c", 3)], address=0x10), trace.frame([("node", "n.c", 7)], address=0x20)
    again = trace.frame([("node", "n.c", 7)], address=0x28)  # the same line, called from another address
    bare = [trace.frame(None, module=m, address=a) for m, a in ((1, 0x100010), (3, 0x300010), (1, 0x100020), (2, 0x200010))]
    static = [trace.frame([("init", None, 0)], module=m, address=a) for m, a in ((1, 0x100100), (1, 0x100140), (2, 0x200100))]
    stacks = [trace.stack(main_, *[node] * n, node if n % 2 else again) for n in range(40)]
    stacks += [trace.stack(main_)] + [trace.stack(main_, f) for f in bare + static]
    blocks = [malloc(1000 + n, 0x1000 * (n + 1), 100 + (n == 20), stack) for n, stack in enumerate(stacks[:40])]
    blocks += [malloc(1100 + n, 0x100000 + 0x1000 * n, 700 + n, stack) for n, stack in enumerate(stacks[40:])]
    trace.events(1, blocks + [free(2000 + n, 0x1000 * (n + 1)) for n in range(10)] + [free(3000, 0x100000)], watermark=4000)
    trace.exit(1, 4500)
    trace.end(1, 5000)
    return t.imported(trace.save(t.path("sites.tmk")))


SITES = [("node", "n.c", 7, 4001, 40), (None, None, None, 1403, 2), ("init", None, None, 1411, 2), ("main", "m.c", 3, 700, 1), (None, None, None, 703, 1),
         (None, None, None, 704, 1), ("init", None, None, 707, 1)]


@test
def one_row_for_all_stacks(t):
    db = made(t)
    order = lambda rows: sorted(rows, key=repr)
    values = lambda rows: order((*(r[n] for n in NAMES), r["live_bytes"], r["live_count"]) for r in rows)
    for window in ((), ("--from=start",), ("--heap=malloc",), ("--process=1", "--to=3500ns")):
        rows = ask(t, db.path, "peak", "--sites", *window)
        t.equal(values(rows), order(SITES), f"the sites of the peak {window}")
        t.equal([r["live_bytes"] for r in rows], sorted((s[3] for s in SITES), reverse=True), f"their order {window}")
        # The stack of a row is the one that held most of its bytes.
        most = {r[0]: r[1] for r in db.rows("select stack_id, live_bytes from peak_site")}
        t.equal((most[rows[0]["stack_id"]], rows[0]["function"]), (101, "node"), "the stack of most bytes")
        t.equal(ask(t, db.path, "peak", "--sites", *window, "--limit=2"), rows[:2], f"the first two {window}")
    t.equal(ask(t, db.path, "peak", "--sites", "--stack", "--limit=1")[0]["stack"], db.value("select text from stack_text join peak_site using (stack_id) where live_bytes = 101"),
            "the stack that is shown")
    columns = ["process_id", "heap", "stack_id", "live_bytes", "live_count", "process_peak_bytes", "process_peak_count", "function", "file", "line", "module",
               "module_offset", "estimated"]
    t.equal(list(ask(t, db.path, "peak", "--sites")[0]), columns, "columns")
    t.equal({(r["module"], r["module_offset"] & 0xff) for r in ask(t, db.path, "peak", "--sites") if not r["function"]},
            {("/lib/one.so", 0x10), ("/lib/one.so", 0x20), ("/lib/two.so", 0x10)}, "those without names")


@test
def levers_are_sites(t):
    """What no stack held a twentieth of, a line did: nothing is said of many then; where no line did, it is."""
    db = made(t)
    page = t.ask("peak", db.path, status=0).text
    levers = page.partition("what would bring the peak of a process down")[2].splitlines()
    rows = [line.split() for line in levers if line.startswith("malloc")]
    t.equal([(r[1:4], r[4][:2]) for r in rows[:1]], [(["3.9", "KiB", "40"], f"{100 * 4001 // sum(s[3] for s in SITES)}")], f"the first lever of {levers}")
    t.check("lives on for a while" in levers[3] or "short-lived" in levers[3], f"of blocks of which a quarter were freed: {levers}")
    many, alone = Trace(), Trace()
    for trace, lines in ((many, 30), (alone, 1)):
        trace.process(1, pid=10)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000 + n, 0x1000 * (n + 1), 100, trace.stack(f"caller{n}", f"f{n % lines}")) for n in range(30)], watermark=2000)
        trace.end(1, 5000)
        text = t.ask("peak", t.imported(trace.save(t.path(f"of{lines}.tmk"))).path, status=0).text
        t.equal("no call site held a twentieth of it" in text, lines == 30, f"of {lines} lines: {text}")


@test
def the_page_of_a_recording(t):
    db = made(t)
    parts = t.ask("summary", db.path, status=0).text.split("\n\n")
    at_peak, at_exit = ([line for line in part.splitlines() if line.startswith("malloc")] for title in ("live at the peak of each heap, by call site\n", "live at exit, by call site\n")
                        for part in parts if part.startswith(title))
    t.equal([" ".join(lines[0].split()[2:]) for lines in (at_peak, at_exit)], ["3.9 KiB 40 node n.c:7", "2.9 KiB 30 node n.c:7"], f"what comes first: {at_peak} {at_exit}")


main()
