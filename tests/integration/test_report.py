"""`tidemark report`: the page's text and the page's script, against SQL to the byte, and driven in a real browser as a person drives it.

What the script shows is read from the page's own words (data-v of its totals, its tables); wanted values are worked out in SQL from `allocation`, which the
report's sums do not come from. Screenshots stay in the build directory (test-shots/).
"""
import html.parser
import json
import os
import re
import resource
import shutil
import sqlite3
import subprocess

from chromium import Browser
from tidemark_test import ROOT, Database, data_of, main, test
from trace_writer import Trace, free, malloc, step

NASTY = ['<script>document.title="owned"</script>', '</script><img src=x onerror="document.title=1">', 'a"b\'c&amp;<b>', 'nul\0behind', '--><!--@data-->', '\u202eesrever', 'x' * 100_000]


def make_db(t, name, more="", small=True):
    """The database that tests/cli counts with a pencil, or an empty one."""
    path = t.path(name)
    connection = sqlite3.connect(path)
    for script in ("schema/tables.sql", "schema/views.sql", *(("tests/cli/small_db.sql", "tests/cli/small_losses.sql") if small else ())):
        with open(os.path.join(ROOT, script), encoding="utf-8") as file:
            connection.executescript(file.read())
    connection.executescript(more)
    connection.commit()
    connection.close()
    return Database(path)


def report(t, db, *options, name="report.html"):
    """(path, text of the file)"""
    path = t.path(name)
    t.ask("report", db.path, "-o", path, "--force", *options)
    with open(path, encoding="utf-8") as file:
        return path, file.read()


def sums(rows, key):
    return sum(rows[key][1::2])


class Outline(html.parser.HTMLParser):
    """The tables of a page, cell by cell, and the elements that could run something."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.table, self.cell, self.scripts, self.handlers = {}, None, None, 0, []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.scripts += tag == "script"
        self.handlers += [name for name in attributes if name.startswith("on")] + [tag] * (tag in ("img", "iframe", "object", "link"))
        if tag == "table":
            self.table = self.tables.setdefault(attributes.get("id", len(self.tables)), [])
        elif tag == "tr" and self.table is not None:
            self.table.append([])
        elif tag in ("td", "th") and self.table:
            self.cell = ["", attributes.get("data-v")]
            self.table[-1].append(self.cell)

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None
        elif tag == "table":
            self.table = None

    def handle_data(self, data):
        if self.cell:
            self.cell[0] += data


def shots(t):
    directory = os.path.join(t.build, "test-shots")
    os.makedirs(directory, exist_ok=True)
    return directory


def browser(t):
    t.need("chromium")
    return Browser(t.dir)


def live_at(db, ns, heap=None):
    return db.value("select coalesce(sum(a.size_bytes), 0) from allocation a join heap h on h.id = a.heap_id join process p on p.id = a.process_id"
                    " where iif(?2 is null, h.is_root, h.name = ?2) and a.alloc_ns <= ?1 and (a.free_ns is null or a.free_ns > ?1) and ?1 <= p.end_ns", ns, heap)


def check_data(t, db, page, what, heap=None):
    """The sums of the page's data are those of SQL: in all, and at each instant of its grid. heap: the one that they are of, None the process' own memory."""
    data = data_of(page)
    counted = [data["heaps"][of]["counted"] for of in data["keys"]["heap"]]
    total = lambda name: sum(sums(data[name], key) for key in range(len(counted)) if counted[key])
    t.equal(total("made"), db.value("select coalesce(sum(allocated_bytes), 0) from heap_summary where heap is ?", heap), f"{what}: allocated")
    t.equal(total("freed"), db.value("select coalesce(sum(freed_bytes), 0) from heap_summary where heap is ?", heap), f"{what}: freed")
    t.equal(total("kept"), db.value("select coalesce(sum(live_at_exit_bytes), 0) from heap_summary where heap is ?", heap), f"{what}: live at exit")
    t.equal(sum(p for p, c in zip(data["keys"]["peak"], counted) if c), db.value("select coalesce(sum(live_bytes), 0) from peak where heap is ?", heap), f"{what}: peak")
    grid = []
    for step in data["grid"]:
        grid.append(step + (grid[-1] if grid else 0))
    def at_points(rows):
        changes = [0] * (len(grid) + 1)
        for row in rows:
            at = 0
            for ahead, value in zip(row[::2], row[1::2]):
                at += ahead
                changes[at] += value
        return changes

    # What the flame graph shows at an instant: what its keys made, less what they gave back, until the end of their process.
    for i in range(0, len(grid), 7):
        shown = [key for key, of in enumerate(data["keys"]["heap"]) if counted[key] and i < data["processes"][data["heaps"][of]["process"]]["endPoint"]]
        made, freed = (sum(at_points([data[name][key] for key in shown])[:i + 1]) for name in ("made", "freed"))
        t.equal(made - freed, live_at(db, grid[i], heap), f"{what}: live at {grid[i]} by call stack")
    for by in data["by"]:
        if by == "version":
            continue
        changes = at_points(data["by"][by]["change"])
        live = [sum(changes[:i + 1]) for i in range(len(grid))]
        for i in range(0, len(grid), 7):
            t.equal(live[i], live_at(db, grid[i], heap), f"{what}: live at {grid[i]} by {by}")
    return data


@test
def adds_up(t):
    """By hand, a fork and an exec, scopes, devices, and a real program: every sum and every instant."""
    for name, db in (("small", make_db(t, "small.db")), ("family", t.imported(os.path.join(ROOT, "fixtures/golden/v1-recorded-family.tmk"), options=("--quiet",))),
                     ("scopes", t.imported(os.path.join(ROOT, "fixtures/golden/v1.1-scopes.tmk"), options=("--quiet",))),
                     ("viewed", t.imported(t.record([t.program("viewed.c")], "--quiet")))):
        _, page = report(t, db)
        check_data(t, db, page, name)


@test
def no_level_that_never_was(t):
    """One process drops 1 GiB and 10 MiB just before another takes 1 GiB: the levels that are kept of each are of other instants, and no sum of them is shown. Of
    one process the line is finer than the grid, and ends where its peak was."""
    trace, gib, mib, ns = Trace(), 1 << 30, 1 << 20, 100 << 16  # all of it within one stretch of the time line
    main = trace.stack("main")
    for process in (1, 2):
        trace.process(process, 100 + process)
        trace.thread(process, process)
    trace.segments([(1, [malloc(ns + 100, 0x1000, 10 * mib, main), malloc(ns + 200, 0x2000, gib, main), free(ns + 1000, 0x2000), free(ns + 30_000, 0x1000),
                         malloc(99_000_000, 0x5000, 8, main)]),
                    (2, [malloc(ns + 5000, 0x1000, gib, main), free(ns + 8000, 0x1000), malloc(99_000_000, 0x5000, 8, main)])])
    trace.end(1, 100_000_000)
    trace.end(2, 100_000_000)
    trace.save(t.path("two.tmk"))
    db = t.imported(t.path("two.tmk"), options=("--quiet",))
    data = check_data(t, db, report(t, db)[1], "two")
    highest = max(live_at(db, at) for (at,) in db.rows("select alloc_ns from allocation"))
    t.equal(highest, gib + 10 * mib, "what was live at most")
    t.check(max(data["total"]["v"], default=0) <= highest, f"the line of two processes has {max(data['total']['v'], default=0)}")
    t.equal(max(data_of(report(t, db, "--process=2")[1])["total"]["v"]), gib, "the line of one")


@test
def no_host_memory(t):
    """A snapshot of PyTorch, and a trace of devices alone: the page is about the tensors of the device that held most, and tells of the others."""
    db = t.imported(os.path.join(ROOT, "fixtures/golden/v1.2-gpu.tmk"), options=("--quiet",))
    check_data(t, db, report(t, db)[1], "gpu", "cuda:0")
    db = t.imported(os.path.join(ROOT, "fixtures/foreign/snapshot.pickle"), options=("--quiet",))
    path = t.path("snapshot.html")
    done = t.ask("report", db.path, "-o", path)
    t.check("no host memory was recorded: the page is about torch.cuda:0; --heap=NAME" in done.errors, f"it is said: {done.errors}")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    data = check_data(t, db, page, "snapshot", "torch.cuda:0")
    t.equal(data["total"]["v"], [1000, 3_001_000, 3_001_100, 3_000_100, 100, 2_000_100, 2_000_100], "the line of tensors, by hand")
    names = {heap["id"]: heap["name"] for heap in data["heaps"]}
    t.equal(sorted(names.values()), ["cuda:0", "cuda:1", "torch.cuda:0", "torch.cuda:1"], "all heaps are there")
    devices = {names[one["of"]]: one["v"] for one in data["devices"]}
    t.equal(devices["torch.cuda:0"], [[None, 1000, 3_001_000, 3_001_000, 3_001_100, 3_000_100, 100, 2_000_100, 2_000_100, 2_000_896],
                                      [20 << 20] * 3 + [22 << 20] * 7, [None] * 9 + [5_001_216]],
            "what tensors held is known all the time, what is active at the end; the snapshot rounds blocks up")
    t.equal(devices["cuda:1"][0][-1], 2 << 20, "the other device has its chart")
    t.equal(sorted({row[1][0] for row in Outline(page).tables["leak-table"][1:]}), ["cuda:0", "cuda:1", "torch.cuda:0", "torch.cuda:1"], "what is live at exit is listed of all")
    t.equal([[row[1][0], row[-1][0]] for row in Outline(page).tables["oom-table"][1:]], [["torch.cuda:0", "step"]], "and what was refused")
    t.check("held at most 2.9 MiB of heap torch.cuda:0" in re.sub(r"<[^>]+>", "", page).replace("\xa0", " "), "the verdict")
    lines = t.ask("timeline", db.path)
    t.check(lines.text.count("torch.cuda:0") == 7 and "2.9 MiB" in lines.text and "(all)" not in lines.text, f"the table of levels is of it, too: {lines.text}")
    t.check("shown is torch.cuda:0" in lines.errors, f"it is said: {lines.errors}")
    _, page = report(t, db, "--heap=torch.cuda:1")
    t.equal([one["name"] for one in data_of(page)["heaps"]], ["torch.cuda:1"], "--heap is another one alone")
    connection = sqlite3.connect(db.path)
    connection.executescript("""INSERT INTO heap VALUES (9, 1, 'malloc', 'host', NULL, NULL, 1, 0); CREATE TEMP TABLE one AS SELECT * FROM heap_total WHERE heap_id = 2;
        UPDATE one SET heap_id = 9, live_at_exit_bytes = 0, live_at_exit_count = 0; INSERT INTO heap_total SELECT * FROM one;""")
    connection.close()
    page = report(t, db)[1]
    t.check("No host memory was live when the program began to leave, but memory of devices was" in page, "with host memory, all given back, devices are no totals")
    t.equal({heap["name"]: heap["counted"] for heap in data_of(page)["heaps"]}["torch.cuda:0"], False, "nor are tensors")


@test
def text_is_there(t):
    """Without a script: the verdict's figures, the tree of scopes, the leaks; only one heap, only one process."""
    db = make_db(t, "small.db", """INSERT INTO scope_name VALUES (1, 'outer'), (2, 'inner');
        INSERT INTO scope_packed VALUES (1, NULL, 1, 1, 1, NULL, 1000000000, 9000000000, 0, 0, NULL), (2, 1, 1, 1, 2, NULL, 2000000000, 3000000000, 0, 1, NULL),
          (3, 1, 1, 1, 2, NULL, 4000000000, 5000000000, 0, 1, NULL);
        INSERT INTO scope_instance_aggregate VALUES (1, 1, 500, 1800, 0, 0, 1, 3, 0, 0, 0, 700, 1500, 900, 800), (2, 1, 1000, 1000, 0, 0, 1, 1, 0, 0, 0, 1000, 1, 1, 1000),
          (3, 1, 300, 300, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 300);""")
    path, page = report(t, db)
    tables = Outline(page).tables
    numbers = lambda row: [int(v) for _, v in row if v is not None]
    tree = tables["scope-table"]
    t.equal([row[0][0] for row in tree[1:]], ["outer", "inner", "[unscoped]"], "scopes, largest inside their own")
    t.equal(numbers(tree[1]), [1, 8000000000, 500, 1800, 700, 800], "outer: calls, time, self, total, retained, peak")
    t.equal(numbers(tree[2]), [2, 2000000000, 1300, 1300, 1000, 1000], "inner: sums of both calls, the higher peak")
    ranks = make_db(t, "ranks.db", """INSERT INTO scope_name VALUES (1, 'outer'), (2, 'inner'), (3, 'inner'), (4, 'outer');
        INSERT INTO scope_packed VALUES (1, NULL, 1, 1, 1, NULL, 1000, 5000, 0, 0, NULL), (2, 1, 1, 1, 2, NULL, 2000, 3000, 0, 1, NULL),
          (3, NULL, 2, 3, 4, NULL, 1000, 8000, 0, 0, NULL), (4, 3, 2, 3, 3, NULL, 2000, 4000, 0, 1, NULL);""")
    t.equal([(row[0][0], *numbers(row)[:2]) for row in Outline(report(t, ranks)[1]).tables["scope-table"][1:3]], [("outer", 2, 11000), ("inner", 2, 3000)],
            "scopes of two traces, whose names have numbers of their own, are one line")
    leaks = {row[0][0].split("\n")[0]: numbers(row) for row in tables["leak-table"][1:]}
    t.equal(sorted(v[:2] for v in leaks.values()), sorted([b, n] for b, n in db.rows("select live_bytes, live_count from live_at_exit")), "leaks: bytes and blocks")
    real = t.imported(t.record([t.program("leak.c")], "--quiet"))
    rows = Outline(report(t, real, name="real.html")[1]).tables["leak-table"]
    scored = real.value("select count(*) from leak_candidate") > 0
    shown = [(int(cell[1]), row[-1][0].replace(" (suppressed)", "")) for row in rows[1:] for cell in row[2:3]]
    t.equal(shown, real.rows("select live_bytes, coalesce(reason, 'live at exit') from leak_candidate order by suppressed, score desc nulls last, live_bytes desc, stack_id")
            if scored else real.rows("select live_bytes, 'live at exit' from live_at_exit order by live_bytes desc, stack_id"), "leaks in their order, with their evidence")
    heaps = sorted(numbers(row)[3] for row in tables["heap-table"][1:])
    t.equal(heaps, sorted(b for b, in db.rows("select peak_bytes from heap_summary")), "peaks of heaps")
    verdict = re.sub(r"<[^>]+>", "", page.split('id="verdict"')[1].split("</section>")[0])
    for words in ("5.5 KiB", "3.000 s after the start", "mmap 73", "Incomplete.", "3 events are missing", "864 B"):
        t.check(words in verdict.replace("\xa0", " "), f"the verdict lacks '{words}': {verdict}")
    t.check("ring full" in page and "killed by signal 9" in page, "losses and notes")
    _, page = report(t, db, "--heap=mmap")
    data = data_of(page)
    t.equal([sum(sums(data["made"], key) for key in range(len(data["made"])))], [4096], "only one heap")
    _, page = report(t, db, "--process=2")
    t.check(" events</span>" not in page and " events</span>" in report(t, db)[1], "of one of two processes the trace's events are not told")
    data = data_of(page)
    t.equal([sum(sums(data["made"], key) for key in range(len(data["made"])))], [64], "only one process")


def words_of(page, part):
    return re.sub(r"<[^>]+>", "", page.split(part)[1].split("</p>")[0]).replace("\xa0", " ")


@test
def leaks_in_words(t):
    """Only what is likely a leak is named, and of a site that has blocks in a heap and in one inside of it, the bytes of one of them."""
    leaking, sound = (t.imported(t.record([t.program(source)], "--quiet")) for source in ("leak.c", "viewed.c"))
    words = words_of(report(t, leaking)[1], 'id="verdict-leaks">')
    t.check("Look first at remember leak.c:26 (50.0 KiB). The evidence" in words, words)
    connection = sqlite3.connect(leaking.path)
    connection.executescript("""INSERT INTO heap SELECT 99, process_id, 'tensors', 'tensor', NULL, id, 0, 0 FROM heap WHERE name = 'malloc';""")
    for table in ("leak_score", "site_total"):
        columns = [name for _, name, *_ in connection.execute(f"pragma table_info({table})")]
        chosen = ", ".join("99" if name == "heap_id" else name for name in columns)
        connection.execute(f"INSERT INTO {table}({', '.join(columns)}) SELECT {chosen} FROM {table} WHERE heap_id = (SELECT id FROM heap WHERE name = 'malloc')")
    connection.commit()
    t.equal(connection.execute("select count(*) from leak_candidate where function = 'remember'").fetchone()[0], 2, "candidates of one site")
    connection.close()
    words = words_of(report(t, leaking)[1], 'id="verdict-leaks">')
    t.check("Look first at remember leak.c:26 (50.0 KiB). The evidence" in words, f"in two heaps, one inside of the other: {words}")
    t.check((sound.value("select max(score) from leak_candidate where not suppressed") or 0) < 0.5, "no candidate is a likely leak")
    words = words_of(report(t, sound)[1], 'id="verdict-leaks">')
    t.check("Look first" not in words, f"of what is no likely leak: {words}")
    with sqlite3.connect(sound.path) as connection:
        connection.execute("update leak_score set suppressed = 1")
    connection.close()
    words = words_of(report(t, sound)[1], 'id="verdict-leaks">')
    t.check("Look first" not in words and "No call site looks like one" in words, f"where all are known: {words}")


@test
def steps_of_one_heap(t):
    """Step 2 allocates 40 bytes of the pool and 7 of malloc, step 3 frees the former; step 1 does nothing in the pool."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.heap(1, 1, "pool", "pool")
    main = trace.stack("main")
    trace.events(1, [step(1000, 1), malloc(1100, 0x1000, 5, main), step(2000, 2), malloc(2100, 0x2000, 40, main, heap=1), malloc(2200, 0x3000, 7, main), step(3000, 3),
                     free(3100, 0x2000, heap=1)], watermark=3100)
    trace.exit(1, 4000)
    trace.end(1, 4500)
    db = t.imported(trace.save(t.path("pools.tmk")))
    for options, wanted in ((["--heap=pool"], [(1, 0, 0, 0, 0, 0, 0), (2, 40, 0, 0, 40, 40, 40), (3, 0, 40, 40, 0, 40, 0)]),
                            ([], [(1, 5, 0, 0, 5, 5, 5), (2, 47, 0, 5, 52, 52, 47), (3, 0, 40, 52, 12, 52, 0)])):
        _, page = report(t, db, *options)
        t.equal("<span>4 events</span>" in page, not options, "events, which are those of the whole trace")
        t.equal([(n, *rest) for _, n, _, _, *rest in data_of(page)["steps"]], wanted, f"the chart, {options}")
        table = next(rows for rows in Outline(page).tables.values() if rows and rows[0][0][0] == "step")
        t.equal([tuple(int(cell[1] or 0) for cell in row) for row in table[1:]],
                [(n, 1000, made, made - freed, end, peak, survived) for n, made, freed, _, end, peak, survived in wanted], f"the table, {options}")
        summary = t.ask("summary", db.path, *options).text.split("steps, those")[1].splitlines()
        t.check((" pool " if options else " (all) ") in summary[2] and ("40 B" if options else "47 B") in summary[2], f"summary: {summary}")


@test
def one_origin_of_time(t):
    """Process 2 starts at 6.5 s, has its peak at 7 s, and is refused 10 bytes at 7.25 s: all that a page shows of it counts from its own start, and says so."""
    db = make_db(t, "small.db", "INSERT INTO oom(id, process_id, ts_ns, heap_id, api, size_bytes, result, stack_id, explained) VALUES (1, 2, 7250000000, 3, 'malloc', 10,"
                 " 'ENOMEM', 0, 0); INSERT INTO gap VALUES (2, 7500000000, 10000, 64, 500);"
                 "INSERT INTO note VALUES (1, 1000000000, 'made', 'of the first'), (2, 8000000000, 'made', 'of the second'), (NULL, 9000000000, 'made', 'of all');")
    for options, origin, footer in (((), 0, "Times count from the start of the earliest recording."),
                                    (("--process=2",), 6_500_000_000, "Times count from the start of the first process shown, 6.500 s after that of the earliest recording,"
                                     " from which other commands count.")):
        _, page = report(t, db, *options)
        tables = Outline(page).tables
        t.equal(data_of(page)["grid"][0], origin, "the chart's axis begins")
        t.equal([int(row[6][1]) for row in tables["heap-table"][1:] if row[1][0] == "malloc"][-1], 7_000_000_000 - origin, "heaps")
        t.equal(int(tables["oom-table"][1][0][1]), 7_250_000_000 - origin, "refused requests")
        t.check("1 request for memory was refused" in words_of(page, 'id="verdict-oom"'), f"refused requests in words {options}")
        notes = re.findall(r'<li><b title="([^"]*)">[^<]*</b> <em><bdi>made</bdi></em> <bdi>([^<]*)', page)
        t.equal(notes, [(f"{at - origin:,} ns", f"of {whose}") for whose, at in (("the first", 10**9), ("the second", 8 * 10**9), ("all", 9 * 10**9)) if at > origin], "notes")
        t.check(footer in words_of(page, "<footer><p>"), f"the footer: {words_of(page, '<footer><p>')}")
    t.check("verdict-oom" not in report(t, db, "--process=1")[1], "what another process was refused is not this one's")
    for part, when in (("peak", "500.00 ms"), ("gap", "1.000 s")):
        t.check(f"{when} after the start" in words_of(page, f'id="verdict-{part}">'), f"{part}: {words_of(page, f'verdict-{part}')}")


@test
def no_gap(t):
    """Of 10,000 resident bytes: 3,000 are live and 500 tidemark's; all are live, and more; 9,600 are live and the rest tidemark's."""
    for live, wanted in ((3000, "live blocks and tidemark's own memory explain all of it but 6.3 KiB: code,"), (20480, "live blocks, 20.0 KiB then, explain all of it: what a program never"),
                         (9600, "live blocks and tidemark's own memory explain all of it.")):
        db = make_db(t, f"{live}.db", f"INSERT INTO gap(process_id, ts_ns, rss_bytes, live_bytes, tool_bytes) VALUES (1, 1000000000, 10000, {live}, 500);")
        gap = words_of(report(t, db, name=f"{live}.html")[1], 'id="verdict-gap">')
        t.check(wanted in gap and " 0 B" not in gap, gap)
    db = make_db(t, "unknown.db", "INSERT INTO gap(process_id, ts_ns, rss_bytes, live_bytes) VALUES (1, 1000000000, 10000, 3000);")
    gap = words_of(report(t, db)[1], 'id="verdict-gap">')
    t.check("live blocks explain all of it but 6.8 KiB: code," in gap, f"without what tidemark itself holds: {gap}")


# What sticks out of the window at its right, where nothing scrolls to it.
BEYOND = """[...document.querySelectorAll('body *')].filter(e => {
  if (e.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let around = e; around !== document.body; around = around.parentElement) if (getComputedStyle(around).overflowX !== 'visible') return false;
  return true;
}).map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""


@test
def names_are_names(t):
    """Names that would be mark-up, end the data, or turn the line round."""
    more = "".join(f"UPDATE frame SET function = cast(x'{name.encode().hex()}' as text), file = cast(x'{name.encode().hex()}' as text) WHERE id = {i + 1};"
                   for i, name in enumerate(NASTY[:5]))
    more += "".join(f"INSERT INTO scope_name VALUES ({i + 1}, cast(x'{name.encode().hex()}' as text));"
                    f"INSERT INTO scope_packed VALUES ({i + 1}, NULL, 1, 1, {i + 1}, NULL, 1000000000, 2000000000, 0, 0, NULL);"
                    f"INSERT INTO mark VALUES ({i + 10}, 1, NULL, cast(x'{name.encode().hex()}' as text), 1500000000);"
                    f"INSERT INTO note VALUES (1, 5, 'k', cast(x'{name.encode().hex()}' as text));" for i, name in enumerate(NASTY))
    more += "UPDATE trace SET command = cast(x'" + NASTY[0].encode().hex() + "' as text), host = cast(x'FFFE3C623E' as text);"
    more += "UPDATE heap SET name = cast(x'" + NASTY[1].encode().hex() + "' as text) WHERE id = 2;"
    db = make_db(t, "nasty.db", more)
    path, page = report(t, db)
    outline = Outline(page)
    t.equal(outline.scripts, 2, "script elements: the data and our own")
    t.equal(outline.handlers, [], "handlers, and elements that fetch")
    t.check("\u202e" not in page and "\0" not in page, "no mark that turns the line, no NUL")
    t.check(os.path.getsize(path) < 300_000, "long names are cut")
    for text in ("\\u202eesrever", "nul\\x00behind"):
        t.check(text in page, f"{text} is shown as what it is")
    with browser(t) as b:
        shown = b.page(f"file://{path}")
        shown.settle()
        t.equal(shown.errors, [], "errors in the page")
        t.equal([url for url in shown.requests if not url.startswith("file:")], [], "requests")
        t.equal(shown.value("document.title"), NASTY[0] + " - tidemark", "title, by which tabs are told apart")
        t.check(NASTY[0] in shown.value("report.frames.text"), "the name is in the data as it is")
        t.equal(shown.value("document.querySelectorAll('b img, iframe, img').length"), 0, "elements made of names")
        long = make_db(t, "long.db", f"UPDATE frame SET function = function || '{'_Z' + 'x' * 300}'; UPDATE heap SET name = name || '{'x' * 300}' WHERE id > 1;")
        for width in (320, 390, 1280):
            shown = b.page(f"file://{report(t, long, name='long.html')[0]}", width)
            for by in range(shown.value("document.querySelectorAll('#stack-by button').length")):
                shown.value(f"document.querySelectorAll('#stack-by button')[{by}].click()")
                shown.settle()
                t.equal(shown.value(BEYOND), [], f"what nobody can see, {width} wide, stacked by {by}")


@test
def without_a_script(t):
    """What only a script fills is not there without one: no empty chart, no button that does nothing, no word of devices but what is known."""
    for name, db in ("plain", make_db(t, "plain.db")), ("gpu", device_db(t)):
        path = report(t, db, name=f"{name}.html")[0]
        with browser(t) as b:
            page = b.page("about:blank", ready=None)
            page.call("Emulation.setScriptExecutionDisabled", value=True)
            page.call("Page.navigate", url=f"file://{path}")
            page.wait("document.readyState === 'complete' && document.getElementById('lost') !== null")
            shown = page.value("document.body.innerText")
            for text in ("Without JavaScript", "Live at exit, and why", "What is missing"):
                t.check(text in shown, f"{name}: '{text}' is shown")
            for text in ("Loading", "No device memory", "Zoom in"):
                t.check(text not in shown, f"{name}: '{text}' is shown")
            t.equal(page.value("[...document.querySelectorAll('main canvas, main .chart, main button, main select, main input')]"
                               ".filter(e => e.getClientRects().length).map(e => e.outerHTML.slice(0, 60))"), [], f"{name}: what does nothing")


@test
def odd_databases(t):
    """An empty recording, one event, no scopes, no process at all: pages without an error."""
    one = """INSERT INTO meta VALUES ('schema_version', '1'); INSERT INTO trace VALUES (1, 'a.tmk', NULL, NULL, '1.0', NULL, NULL, 0, 0, 1, NULL, NULL, 1, 1, NULL, %d, 0);
        INSERT INTO process VALUES (1, 1, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 'exit', 0, 0, 0, 1, 0, 0, NULL);"""
    event = """INSERT INTO heap VALUES (1, 1, 'malloc', 'host', NULL, NULL, 1, 0); INSERT INTO thread VALUES (1, 1, 7, NULL, 0, NULL);
        INSERT INTO allocation_origin VALUES (1, 1, 1, 1, 'malloc');
        INSERT INTO allocation_packed(id, origin_id, address, size_bytes, alloc_ns, stack_id) VALUES (1, 1, 16, 42, 0, 0);
        INSERT INTO heap_total VALUES (1, 1, 1, 42, 0, 0, 0, 0, 0, 42, 1, 42, 1, 42, 1), (1, 0, 1, 42, 0, 0, 0, 0, 0, 42, 1, 42, 1, 42, 1);
        INSERT INTO site_total(process_id, heap_id, stack_id, allocations, allocated_bytes, frees, freed_bytes, temporary, temporary_bytes, peak_bytes, peak_count, process_peak_bytes,
          process_peak_count, live_at_exit_bytes, live_at_exit_count, live_at_end_bytes, live_at_end_count) VALUES (1, 1, 0, 1, 42, 0, 0, 0, 0, 42, 1, 42, 1, 42, 1, 42, 1);
        INSERT INTO timeline VALUES (1, 0, 0, 42, 1);"""
    cases = {"none": "INSERT INTO meta VALUES ('schema_version', '1');", "empty": one % 0, "one": one % 1 + event}
    version = Database(make_db(t, "v.db").path)
    tables = version.value("select value from meta where key = 'schema_version'")
    pages = {}
    for name, more in cases.items():
        db = make_db(t, f"{name}.db", more.replace("'schema_version', '1'", f"'schema_version', '{tables}'"), small=False)
        pages[name], page = report(t, db, name=f"{name}.html")
        if name != "none":
            check_data(t, db, page, name)
    with browser(t) as b:
        for name, path in pages.items():
            shown = b.page(f"file://{path}")
            shown.settle()
            for mode in "12345i":
                shown.key(mode)
            t.equal(shown.errors, [], f"errors in the page of {name}")
            t.equal(shown.number("#flame-total b"), 42 if name == "one" else 0, f"{name}: what is shown")
            shown.close()


def device_db(t):
    """The golden GPU trace, and what its process occupied on the device."""
    db = t.imported(os.path.join(ROOT, "fixtures/golden/v1.2-gpu.tmk"), options=("--quiet",))
    with sqlite3.connect(db.path) as connection:
        connection.executescript("DELETE FROM gpu_gap_sample; INSERT INTO gpu_gap_sample VALUES (1, 0, 1000, 500000, 0, 0, 0), (1, 0, 4000, 7000000, 4096, 64, 0);")
    return db


@test
def driven(t):
    """Brush, cursor, modes, search, invert, zoom, sort, fold, keys, theme: what the page says is what SQL says."""
    db = t.imported(t.record([t.program("viewed.c")], "--quiet"))
    path, page = report(t, db)
    root = "from allocation a join heap h on h.id = a.heap_id join process p on p.id = a.process_id where h.is_root"
    with browser(t) as b:
        p = b.page(f"file://{path}")
        p.settle()
        t.equal(p.number("#flame-total b"), p.value("report.live[report.peakPoint]"), "live at the cursor, first")
        p.drag("#timeline", 0.3, 0.7)
        chosen = p.value("view.range && view.range.map(i => report.grid[i])")
        t.check(chosen and chosen[0] < chosen[1], f"a stretch is selected: {chosen}")
        for key, time, condition in (("2", "a.alloc_ns", ""), ("3", "a.free_ns", ""),
                                     ("4", "a.alloc_ns", " and p.end_kind <> 'exec' and a.alloc_ns <= p.exit_ns and (a.free_ns is null or a.free_ns > p.exit_ns)")):
            p.key(key)
            wanted = db.value(f"select coalesce(sum(a.size_bytes), 0) {root} and {time} > ?1 and {time} <= ?2 {condition}", *chosen)
            t.equal(p.number("#flame-total b"), wanted, f"mode {key} in the selected stretch")
        p.key("1")
        p.click("#timeline", 0.5)
        t.equal(p.number("#flame-total b"), live_at(db, p.value("report.grid[view.cursor]")), "live where the cursor was put")
        before = p.value("view.cursor")
        p.value("document.getElementById('timeline').focus()")
        p.key("ArrowRight")
        t.equal(p.value("view.cursor"), before + 1, "the cursor after an arrow key")
        p.key("ArrowRight", shift=True)
        t.equal(p.value("view.range"), [before + 1, before + 2], "selected with the keyboard")
        p.key("+")
        t.check(p.value("view.to - view.from < report.end - report.start"), "zoomed in")
        p.key("Escape")
        p.key("-")
        t.equal(p.value("[view.range, view.from === report.start && view.to === report.end]"), [None, True], "cleared, and the whole run again")
        # Search, in the whole run's allocations.
        p.key("2")
        p.key("/")
        p.type("fill")
        stacks = db.value(f"select sum(a.size_bytes) {root} and exists (with recursive up(id, frame) as (select id, frame_id from stack where id = a.stack_id union all"
                          " select s.parent_id, q.frame_id from up join stack s on s.id = up.id join stack q on q.id = s.parent_id)"
                          " select 1 from up join frame f on f.id = up.frame where f.function like '%fill%')")
        t.equal(p.number("#flame-total b:nth-of-type(2)"), stacks, "bytes under what was searched for")
        t.check("fill" in p.text("#function-table tbody tr:first-child"), "the table shows what was searched for")
        p.value("(() => { const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input')); s.blur(); })()")
        p.settle()
        whole = p.number("#flame-total b")
        p.key("i")
        t.equal(p.value("document.getElementById('invert').getAttribute('aria-pressed')"), "true", "inverted")
        t.equal(p.number("#flame-total b"), whole, "inverted: the same bytes")
        largest = db.row("select coalesce(f.function, '?'), sum(v.allocated_bytes) from site_total v join heap h on h.id = v.heap_id join stack s on s.id = v.stack_id"
                         " join frame f on f.id = s.site_frame_id where h.is_root group by 1 order by 2 desc limit 1")
        p.value("document.getElementById('flame-box').focus()")
        p.key("ArrowDown")
        t.check(largest[0] in p.text("#flame-detail") and f"{largest[1]:,}" in p.text("#flame-detail"), f"largest site {largest}: {p.text('#flame-detail')}")
        p.key("Enter")
        t.check(p.value("flame.root !== 0 && !document.getElementById('flame-reset').hidden"), "zoomed into a call")
        p.key("Escape")
        t.equal(p.value("flame.root"), 0, "zoomed out")
        # The table of functions, upward and downward.
        p.click("#function-table thead th:nth-child(3) button")
        totals = p.value("Array.from(document.querySelectorAll('#function-table tbody tr'), r => Number(r.cells[2].dataset.v))")
        t.equal(totals, sorted(totals, reverse=True), "sorted downward")
        p.click("#function-table thead th:nth-child(3) button")
        totals = p.value("Array.from(document.querySelectorAll('#function-table tbody tr'), r => Number(r.cells[2].dataset.v))")
        t.equal(totals, sorted(totals), "sorted upward")
        for by in p.value("report.dimensions"):
            p.click(f"#stack-by button[data-value='{by}']")
            t.equal(p.value("view.by"), by, "stacked by")
        p.screenshot(os.path.join(shots(t), "report-light.png"), 2000)
        p.key("t")
        t.equal(p.value("document.documentElement.dataset.theme"), "dark", "theme")
        p.screenshot(os.path.join(shots(t), "report-dark.png"), 2000)
        p.key("?")
        t.check(p.value("document.getElementById('keys').open"), "the list of keys")
        p.key("Escape")
        p.resize(390, 800)
        p.settle()
        t.check(p.value("document.documentElement.scrollWidth <= 391"), f"fits a narrow window: {p.value('document.documentElement.scrollWidth')}")
        p.screenshot(os.path.join(shots(t), "report-narrow.png"), 2000)
        p.print(os.path.join(shots(t), "report.pdf"))
        with open(os.path.join(shots(t), "report.pdf"), "rb") as file:
            t.check(file.read(5) == b"%PDF-", "a PDF")
        p.resize(760, 1000)
        p.media("print")
        p.settle()
        shown = "(id => { const e = document.querySelector(id); return e.getClientRects().length > 0; })"
        for gone in (".top", "#search", "#flame-mode", "#clear"):
            t.equal(p.value(f"{shown}('{gone}')"), False, f"{gone} on paper")
        for kept in ("#verdict", "#timeline canvas", "#flame-box canvas", "#function-table tbody tr", "#leaks"):
            t.equal(p.value(f"{shown}('{kept}')"), True, f"{kept} on paper")
        for picture in ("#timeline canvas", "#flame-box canvas"):
            t.check(p.value(f"(() => {{ const c = document.querySelector('{picture}'), b = c.getBoundingClientRect();"
                            " return Math.abs(b.height / b.width - c.height / c.width) < 0.02; })()"), f"{picture} keeps its proportions on paper")
        t.equal(p.errors, [], "errors in the page")


@test
def parts_are_drawn(t):
    """Devices with a refused request, ranks, resident memory, steps: each chart has something on it."""
    db = device_db(t)
    pages = {"gpu": report(t, db, name="gpu.html")[0]}
    ranks = make_db(t, "ranks.db", """UPDATE process SET rank = id - 1, world_size = 2;
        INSERT INTO gap VALUES (1, 1000000000, 10000, 1000, 500), (1, 5000000000, 20000, 4796, 500);
        INSERT INTO step VALUES (1, 1, 0, 1000000000, 5000000000), (2, 1, 1, 5000000000, 9000000000);
        INSERT INTO step_aggregate VALUES (1, 0, 5596, 3, 1000, 1, 0, 0, 4596, 2, 5596, 4596, 2), (2, 0, 500, 2, 4296, 2, 4596, 2, 800, 2, 4896, 300, 1);""")
    pages["ranks"] = report(t, ranks, name="ranks.html")[0]
    colours = ("(id => { const c = document.querySelector(id + ' canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, s = new Set();"
               " for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size; })")
    with browser(t) as b:
        for name, ids in (("gpu", ["#timeline", "#devices-charts", "#flame-box"]), ("ranks", ["#timeline", "#ranks-chart", "#gap-chart", "#steps-chart"])):
            p = b.page(f"file://{pages[name]}")
            p.settle()
            for element in ids:
                t.check(p.value(f"document.querySelector('{element} canvas') && {colours}('{element}')") >= 3, f"{name}: something is drawn in {element}")
            if name == "gpu":
                t.equal(p.value("report.ooms.length"), db.value("select count(*) from oom"), "refused requests")
                t.check("cuda:0" in p.text("#oom-table"), "the refused request is text, too")
                struck = p.value("""(() => {
                  const plot = Plot.all.find(one => one.box.parentElement.id === 'devices-charts'), canvas = plot.box.querySelector('canvas'), c = canvas.getContext('2d');
                  const real = c.fillText, boxes = [], scale = canvas.width / canvas.getBoundingClientRect().width;
                  c.fillText = (text, x, y) => (text === 'out of memory' && boxes.push([x + c.measureText(text).width, y]), real.call(c, text, x, y));
                  plot.render();
                  c.fillText = real;
                  return boxes.map(([x, y]) => {
                    const d = c.getImageData(Math.ceil(x * scale), y * scale, 1, 12 * scale).data, differ = [];
                    for (let i = 0; i < d.length; i += 4) differ.push(d[i + 3] / 255 * Math.max(255 - d[i], 255 - d[i + 1], 255 - d[i + 2]));
                    return Math.max(...differ);
                  });
                })()""")
                t.check(len(struck) == 1 and 0 < struck[0] < 60, f"the line of the peak behind the label of the refusal is faint: {struck}")
                t.equal(p.value("report.used.map(d => [report.heaps.find(h => h.id === d.of).name, d.v[0]])"), [["cuda-pool:0", [500000, 7000000]]], "occupied")
                cut = p.value("Array.from(document.querySelectorAll('.legend bdi')).filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)")
                t.equal(cut, [], "names in a legend that are cut, in a wide window")
                t.check("occupied on the device by the process" in p.text("#devices-charts") and "6.7 MiB" in p.text("#devices-charts"), "occupied, in its legend")
                t.check("occupied at most 6.7 MiB there" in p.text("#verdict-devices").replace("\xa0", " "), f"devices in the verdict: {p.text('#verdict-devices')}")
                reserved = max(v for series in p.value("report.devices.map(d => d.v[1])") for v in series if v is not None)
                t.equal(reserved, db.value("select max(reserved_bytes) from pool_state"), "most that a pool had reserved")
            else:
                t.equal(p.value("report.ranks.names"), ["rank 0", "rank 1", "other"], "rows of the heat map")
                t.equal(p.value("document.getElementById('ranks').hidden"), False, "the heat map is shown")
            p.screenshot(os.path.join(shots(t), f"report-{name}.png"), 3000)
            t.equal(p.errors, [], f"errors in the page of {name}")
            p.close()


# What a chart writes: [text, left, top, right, bottom].
WRITTEN = """(id => {
  const boxes = [], kind = CanvasRenderingContext2D.prototype, real = kind.fillText;
  kind.fillText = function(text, x, y) {
    const width = this.measureText(text).width, left = x - width * {right: 1, center: 0.5, left: 0}[this.textAlign], top = y - (this.textBaseline === 'middle' ? 6 : 0);
    boxes.push([String(text), left, top, left + width, top + 12]);
    return real.call(this, text, x, y);
  };
  Plot.all.filter(plot => plot.box.id === id)[0].render();
  kind.fillText = real;
  return boxes;
})"""


@test
def labels_lie_apart(t):
    """Marks close together, at the ends, and of one instant, and steps of long numbers: no text of a chart lies on another one."""
    marks = [(f"mark number {i}", at) for i, at in enumerate([1, 1, 2, 3_999_000_000, 4_000_000_000, 9_999_000_000, 10_000_000_000])]
    marks += [(f"dense {i}", 5_000_000_000 + i * 10_000_000) for i in range(60)]
    steps = 40
    db = make_db(t, "labels.db", "".join(f"INSERT INTO mark VALUES ({i + 10}, 1, NULL, '{name}', {at});" for i, (name, at) in enumerate(marks))
                 + "".join(f"INSERT INTO step VALUES ({i + 1}, 1, {10**9 + i}, {i * 10**8}, {(i + 1) * 10**8});"
                           f"INSERT INTO step_aggregate VALUES ({i + 1}, 0, 5596, 3, 1000, 1, 0, 0, 4596, 2, 5596, 4596, 2);" for i in range(steps)))
    path = report(t, db)[0]
    with browser(t) as b:
        for width in (390, 900, 1280):
            p = b.page(f"file://{path}", width)
            p.settle()
            for chart in ("timeline", "steps-chart"):
                boxes = p.value(f"{WRITTEN}('{chart}')")
                over = [(one[0], other[0]) for i, one in enumerate(boxes) for other in boxes[:i]
                        if one[1] < other[3] and other[1] < one[3] and one[2] < other[4] and other[2] < one[4]]
                t.equal(over, [], f"texts of {chart} that lie on each other, {width} wide")
                words = [box[0] for box in boxes]
                t.check(len(words) > 4 and (chart != "timeline" or sum(word.startswith("mark") for word in words) >= 3), f"{chart} has labels: {words}")
            p.screenshot(os.path.join(shots(t), f"labels-{width}.png"), 1200)
        t.equal(p.errors, [], "errors in the page")


def nanoseconds(label):
    """What a label of a time axis says: 1.5 ms, 2 min 20 s, 1:02:03.5."""
    if ":" in label:
        return sum(float(part) * 60**i for i, part in enumerate(reversed(label.split(":")))) * 1e9
    units = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9}
    words = label.split()
    return sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2]))


@test
def rows_and_axes(t):
    """Processes of one program in the heat map, each with a name of its own that is whole in the chart; axes of runs up to a year."""
    db = make_db(t, "processes.db", "UPDATE process SET exe = '/usr/bin/worker-of-the-program';")
    with browser(t) as b:
        p = b.page(f"file://{report(t, db)[0]}", 390)
        p.settle()
        labels = [box for box in p.value(f"{WRITTEN}('ranks-chart')") if "\u2026" in box[0]]
        t.equal(sorted(text[-4:] for text, *_ in labels), sorted(f"{pid})"[-4:] for pid, in db.rows("select pid from process")), f"processes: {labels}")
        t.check(all(left >= 0 for _, left, *_ in labels), f"no name begins outside of the chart: {labels}")
        p.resize(1280, 900)
        p.settle()
        t.equal(sorted(box[0] for box in p.value(f"{WRITTEN}('ranks-chart')") if "pid" in box[0]),
                sorted(f"worker-of-the-program (pid {pid})" for pid, in db.rows("select pid from process")), "where there is room, the names are whole")
        for seconds in (1e-6, 0.5, 90, 400, 3600, 50 * 3600, 10 * 86400, 365 * 86400):
            ticks = p.value(f"timeTicks(0, {seconds * 1e9}, 8)")
            t.check(2 <= len(ticks) <= 9, f"ticks of {seconds} s: {ticks}")
        # Every tick of an axis, zoomed in or not, says its own time; the steps between are 1, 2 or 5 of a power of ten up to 20 s, and half minutes from there.
        for begin, end in ((0, 1e-6), (1e-3, 1.001e-3), (0, 0.5), (88.671, 88.672), (0, 90), (0, 125), (59.5, 60.5), (300, 300.5), (0, 400), (7200, 7260),
                           (7200.25, 7200.29), (3540, 3660), (0, 36000)):
            ticks = p.value(f"timeTicks({begin * 1e9} + report.start, {end * 1e9} + report.start, 8).map(t => t - report.start)")
            step = p.value(f"timeStep({(end - begin) * 1e9}, 8)")
            labels = p.value(f"{ticks}.map(t => tickTime(t, {step}, {end * 1e9}))")
            t.check(all(abs(nanoseconds(label) - tick) < step / 100 for label, tick in zip(labels, ticks)), f"axis from {begin} s to {end} s: {labels} at {ticks}")
            t.check(max(map(len, labels)) <= 14, f"labels are short: {labels}")
        t.equal(p.value("[20, 40, 60, 100, 120].map(s => tickTime(s * 1e9, 20e9, 125e9))"), ["20 s", "40 s", "1 min 00 s", "1 min 40 s", "2 min 00 s"], "one way to tell")
        p.media("screen", True)
        p.settle()
        p.value("['beforeprint', 'afterprint'].forEach(name => dispatchEvent(new Event(name)))")
        t.equal([p.text("#theme"), p.value("isDark()")], ["Light", True], "the theme, and what its button says, after printing where the system is dark")
        t.equal(p.value("timeTicks(0, 36000e9, 8).slice(0, 3).map(formatTime)"), ["0 ns", "2 h 00 min", "4 h 00 min"], "ticks of ten hours")


@test
def processes_of_one_rank(t):
    """What a rank's program forks is of that rank, too: each process has a name of its own; a rank that has one process is named by its number."""
    names = lambda db: sorted({row[0][0] for row in Outline(report(t, db)[1]).tables["heap-table"][1:]})
    pids = lambda db: [pid for pid, in db.rows("select pid from process order by pid")]
    shared = make_db(t, "shared.db", "UPDATE process SET rank = 10, exe = '/bin/worker';")
    t.equal(names(shared), [f"rank 10, worker (pid {pid})" for pid in pids(shared)], "two processes of a rank")
    alone = make_db(t, "alone.db", "UPDATE process SET rank = 10 + id;")
    t.equal(names(alone), ["rank 11", "rank 12"], "a process each")


@test
def words_for_numbers(t):
    """The script words a number as the page's text does: rounding comes before the choice of the unit."""
    wanted = {"formatSize": {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1048524: "1023.9 KiB", 1048575: "1.0 MiB", 2**60: "1.0 EiB"},
              "formatTime": {999: "999 ns", 1000: "1.0 us", 999_940: "999.9 us", 999_950: "1.00 ms", 198_475_000: "198.48 ms", 999_600_000: "999.60 ms",
                             999_995_000: "1.000 s", 61_400_000_000: "1 min 01 s", 3_599_600_000_000: "1 h 00 min", 86_400 * 10**9: "24 h 00 min"}}
    db = make_db(t, "small.db", "".join(f"INSERT INTO oom(id, process_id, ts_ns, heap_id, api, size_bytes, result, stack_id, explained)"
                                        f" VALUES ({i + 1}, 1, {10**18 + i}, 1, 'malloc', {size}, 'ENOMEM', 0, 0);" for i, size in enumerate(wanted["formatSize"]))
                 + "".join(f"INSERT INTO note VALUES (1, {ns}, 'made', '');" for ns in wanted["formatTime"]))
    path, page = report(t, db)
    text = page.replace("\u00a0", " ")
    told = {"formatSize": [row[2][0].replace("\u00a0", " ") for row in Outline(page).tables["oom-table"][1:]],
            "formatTime": re.findall(r"<li><b[^>]*>([^<]*)</b> <em><bdi>made", text)}
    with browser(t) as b:
        p = b.page(f"file://{path}")
        for function, numbers in wanted.items():
            t.equal(p.value(f"{list(numbers)}.map(n => {function}(n))"), list(numbers.values()), f"{function} of the script")
            t.equal(told[function], list(numbers.values()), f"{function}: the page's text")


@test
def one_of_a_kind(t):
    """One event is no "1 events", neither in the page nor in the recorder's closing lines."""
    done = t.record([t.program("hello.c")])
    db = t.imported(done)
    t.equal(db.row("select (select sum(events) from trace), (select count(*) from allocation), (select count(*) from allocation where free_ns is not null)"), (1, 1, 0),
            "a program with one event")
    t.check("events       1 (1 allocation, 0 frees) of 1 process, 1 thread" in done.errors, f"closing lines: {done.errors}")
    t.check("<span>1 process</span><span>1 event</span>" in report(t, db)[1], "the page's head")


@test
def many_stacks(t):
    """More call stacks than can be followed: the page stays small, and what is cut still adds up."""
    trace = t.path("big.tmk")
    t.run([os.path.join(t.build, "tests/integration/big_trace"), trace, "200000", "3000", "30000", "2"], status=0)
    db = t.imported(trace, options=("--quiet",))
    t.check(db.value("select count(*) from site_total") > 5000, "there are many call stacks")
    path, page = report(t, db)
    data = check_data(t, db, page, "many stacks")
    t.check(len(data["made"]) < 1500, f"{len(data['made'])} sums over time")
    t.check(os.path.getsize(path) < 3_000_000, f"{os.path.getsize(path)} bytes")
    commands = re.findall(r"The first [^<]*<code>tidemark ([^<]*)</code>", page)
    t.check(commands, "a table ends before all is listed, and names the command that lists it")
    for verb, *options in map(str.split, commands):
        rest = t.ask(verb, db.path, *options).errors
        t.equal(rest, "", f"what `tidemark {verb}` with {options} leaves out")


@test
def deep_stacks_show_both_ends(t):
    """Of 150 frames the innermost are those that allocate; what is left out is counted. 100 are all there."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    names = {depth: [f"d{depth}_f{n}" for n in range(1, depth + 1)] for depth in (100, 150)}
    trace.events(1, [malloc(1000 + depth, 0x1000 * depth, 5000, trace.stack(*frames)) for depth, frames in names.items()])
    trace.exit(1, 10_000)
    trace.end(1, 11_000)
    _, page = report(t, t.imported(trace.save(t.path("deep.tmk"))))
    lists = [re.findall("<li[^>]*>(.*?)</li>", re.sub("</?bdi>", "", part)) for part in re.findall('<ol class="stack">(.*?)</ol>', page)]
    shown = {items[0]: items for items in lists}
    t.equal(shown.get("d100_f1"), names[100], "100 frames")
    deep = names[150]
    t.equal(shown.get("d150_f1"), deep[:20] + ["\u2026 50 frames not shown \u2026"] + deep[70:], "150 frames")
    t.check(f'<li value="71"><bdi>{deep[70]}</bdi></li>' in page, "frames keep their numbers")


@test
def sampled_is_marked(t):
    db = t.imported(t.record([t.program("viewed.c")], "--quiet", "--sample=4096"))
    _, page = report(t, db)
    verdict = page.split('id="verdict"')[1].split("</section>")[0]
    t.check("Sampled." in verdict and "\u2248" in verdict and "estimates" in verdict, f"the verdict says so: {verdict}")
    t.equal(data_of(page)["estimated"], True, "the script knows")


@test
def output(t):
    """Where it may write, and where not; a disk that fills leaves no file; a trace is imported first."""
    db = make_db(t, "small.db")
    path, _ = report(t, db)
    done = t.ask("report", db.path, "-o", path, status=1)
    t.check("it exists" in done.errors, f"an existing file: {done.errors}")
    t.check("is the input" in t.ask("report", db.path, "-o", db.path, "--force", status=1).errors, "the input")
    t.check("holds a recording" in t.ask("report", db.path, "-o", make_db(t, "other.db").path, "--force", status=1).errors, "another recording")
    t.ask("report", db.path, status=2)
    t.check("no heap" in t.ask("report", db.path, "-o", t.path("x.html"), "--heap=nothing", status=1).errors, "a heap that is not there")
    out = t.ask("report", db.path, "-o", "-")
    t.check(out.text.startswith("<!DOCTYPE html>") and out.text.rstrip().endswith("</html>"), "standard output")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    done = t.run([t.tidemark, "report", db.path, "-o", t.path("full.html")], preexec=limit)
    t.check(done.status == 1 and "cannot write" in done.errors, f"a full disk: {done.status} {done.errors}")
    t.equal([name for name in os.listdir(t.dir) if name.startswith("full")], [], "files left by it")
    shutil.copy(os.path.join(ROOT, "fixtures/golden/v1-tiny.tmk"), t.path("tiny.tmk"))
    t.ask("report", t.path("tiny.tmk"), "-o", t.path("tiny.html"))
    t.check(os.path.exists(t.path("tiny.db")) and os.path.getsize(t.path("tiny.html")) > 50_000, "a trace")


main()
