"""Exports in readers that are not ours: Chrome traces in the trace viewer of chrome://tracing, collapsed stacks in flamegraph.pl.

Debian's Chromium comes without its trace viewer, but Go's sources carry the same one (catapult). A page on loopback imports a trace through it and
writes into its body what the viewer made of it, and Chromium prints that body: what is checked is the viewer's model, not our text.
"""
import collections
import functools
import glob
import gzip
import html
import http.server
import json
import os
import re
import shutil
import sqlite3
import threading
import urllib.parse

from tidemark_test import ROOT, main, test

VIEWER = "trace_viewer_full.html"
FLAMEGRAPH = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"

# The result is written percent-encoded, so that no name in it meets the page's own mark-up. HTML imports come with webcomponents.min.js.
PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<script src="webcomponents.min.js"></script>
<link rel="import" href="trace_viewer_full.html">
<pre id="result">nothing</pre>
<script>
function slicesOf(group) {
  return group.slices.map(s => ({name: s.title, category: s.category, start: s.start, duration: s.duration, depth: slicesOf.depth(s)}));
}
slicesOf.depth = s => s.parentSlice ? slicesOf.depth(s.parentSlice) + 1 : 0;

function describe(model) {
  const warnings = model.importWarnings.map(w => w.type + ': ' + w.message);
  const processes = Object.values(model.processes).map(p => ({
    pid: p.pid, name: p.name, labels: p.labels,
    instants: p.instantEvents.map(i => i.title),
    threads: Object.values(p.threads).map(t => ({
      tid: t.tid, name: t.name, slices: slicesOf(t.sliceGroup),
      asyncs: t.asyncSliceGroup.slices.map(s => ({name: s.title, start: s.start, duration: s.duration})),
    })),
    counters: Object.values(p.counters).map(c => ({
      name: c.name, category: c.category,
      series: c.series.map(s => ({name: s.name, values: s.samples.map(v => v.value), times: s.samples.map(v => v.timestamp)})),
    })),
  }));
  return {warnings, processes};
}

function finish(what) {
  document.getElementById('result').textContent = encodeURIComponent(JSON.stringify(what));
}

async function load() {
  const response = await fetch('TRACE');
  const trace = 'TRACE'.endsWith('.gz') ? await response.arrayBuffer() : await response.text();
  const model = new tr.Model();
  new tr.importer.Import(model).importTraces([trace]);
  finish(describe(model));
}

document.addEventListener('HTMLImportsLoaded', () => load().catch(error => finish({error: String(error.stack || error)})));
</script>
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def viewed(t, trace):
    """What the viewer made of a trace, a file in the test's directory; any warning of its importer is a failure."""
    t.need("chromium")
    found = [path for place in ("cmd/trace", "internal/trace/traceviewer") for path in glob.glob(f"/usr/share/go-1.*/src/{place}/static/{VIEWER}")]
    if not found:
        t.skip("Go's trace viewer is not installed (Debian: golang-src)")
    site = t.path("site")
    os.makedirs(site, exist_ok=True)
    for source in (found[0], os.path.join(os.path.dirname(found[0]), "webcomponents.min.js"), trace):
        shutil.copy(source, site)
    with open(os.path.join(site, "index.html"), "w", encoding="utf-8") as page:
        page.write(PAGE.replace("TRACE", os.path.basename(trace)))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        # Every other name resolves to nothing: the browser asks nobody on the network.
        done = t.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
                      "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                      f"--user-data-dir={t.path('profile')}", "--virtual-time-budget=20000", "--dump-dom", f"http://127.0.0.1:{server.server_port}/index.html"],
                     env={"HOME": t.dir}, timeout=90)
    finally:
        server.shutdown()
        server.server_close()
    result = re.search(r'<pre id="result">(.*?)</pre>', done.text, re.S)
    t.check(result and result[1] != "nothing", f"the viewer did not start, chromium ended with {done.status}: {done.text[:1000]} {done.errors[-2000:]}")
    model = json.loads(urllib.parse.unquote(html.unescape(result[1])))
    t.check("error" not in model, f"the viewer refused the trace: {model.get('error')}")
    t.equal(model["warnings"], [], "warnings of the viewer's importer")
    return model["processes"]


def check_model(t, processes, db, events):
    """The viewer's model against the database, and its counters point by point against the file."""
    names = [name for name, in db.rows("select replace(exe, rtrim(exe, replace(exe, '/', '')), '') from process")]
    machine = ["machine"] * db.value("select exists (select 1 from sample where process_id is null)")  # its samples show as a process of their own
    t.equal(sorted(p["name"] for p in processes), sorted(names + machine), "processes")
    pids = {int(re.search(r"pid (\d+)", " ".join(p["labels"]))[1]): p for p in processes if p["name"] != "machine"}
    t.equal(sorted(pids), sorted(pid for pid, in db.rows("select pid from process")), "process ids in the labels")
    in_file = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            in_file[event["pid"], event["name"]].append((event["ts"], *event["args"].values()))
    shown = {}
    for p in processes:
        for counter in p["counters"]:
            t.equal(len(counter["series"]), 1, f"series of {counter['name']}")
            shown[p["pid"], counter["name"]] = counter["series"][0]
    t.equal(sorted(shown), sorted(in_file), "counters")
    for key, series in shown.items():
        t.equal(series["values"], [value for _, value in in_file[key]], f"values of {key}")
    for real, p in pids.items():
        process = db.value("select id from process where pid = ?", real)
        threads = {thread["tid"]: thread["name"] for thread in p["threads"] if thread["tid"]}
        t.equal(threads, dict(db.rows("select tid, coalesce(name, 'thread ' || tid) from thread where process_id = ?", process)), f"threads of {real}")
        marks = [mark["name"] for thread in p["threads"] for mark in sorted(thread["slices"], key=lambda s: s["start"]) if mark["category"] == "mark"]
        t.equal(sorted(marks), sorted(name for name, in db.rows("select name from mark where process_id = ?", process)), f"marks of {real}")
        for name, tid in db.rows("select m.name, t.tid from mark as m join thread as t on t.id = m.thread_id where m.process_id = ?", process):
            of_thread = [s for thread in p["threads"] if thread["tid"] == tid for s in thread["slices"] if s["name"] == name]
            t.equal([s["duration"] for s in of_thread], [0], f"instants '{name}' of thread {tid}")
        for heap, peak in db.rows("select coalesce(heap, 'all heaps'), live_bytes from peak where process_id = ?", process):
            t.check((p["pid"], heap) in shown, f"a counter for {heap} of {real}")
            t.equal(max(shown[p["pid"], heap]["values"]), peak, f"peak of {heap} of {real}, in the viewer and in SQL")


@test
def chrome_trace(t):
    """A real recording with two threads, marks of both, and a child process: plain, compressed, and thinned."""
    db = t.imported(t.record([t.program("viewed.c")]))
    t.equal(db.value("select count(*) from process"), 2, "processes recorded")
    t.equal(db.rows("select name from mark order by ts_ns"), [("start",), ("reading",), ("child",), ("end <&>",)], "marks recorded")
    for name, options in (("trace.json", ()), ("trace.json.gz", ()), ("thin.json", ("--max-events=300",))):
        path = t.path(name)
        t.ask("export", "chrome", db.path, "-o", path, *options)
        with (gzip.open if name.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        t.check(sum(event["ph"] == "C" for event in events) > 100, f"{name} has counters")
        processes = viewed(t, path)
        check_model(t, processes, db, events)
        t.check("reader" in {thread["name"] for p in processes for thread in p["threads"]}, f"thread names in {name}")


@test
def chrome_scopes(t):
    """Scopes that lie in each other, one that ends after its parent, one never closed; steps; marks among the scopes: a database made by hand."""
    path = t.path("small.db")
    connection = sqlite3.connect(path)
    for script in ("schema/tables.sql", "schema/views.sql", "tests/cli/small_db.sql"):
        with open(os.path.join(ROOT, script), encoding="utf-8") as file:
            connection.executescript(file.read())
    connection.executescript("""INSERT INTO scope_name VALUES (1, 'outer'), (2, 'first'), (3, 'too "long"'), (4, 'open'), (5, 'api'), (6, 'nvtx');
        INSERT INTO scope_packed VALUES (1, NULL, 1, 1, 1, 5, 1000000000, 9000000000, 0, 0, NULL),
        (2, 1, 1, 1, 2, NULL, 1000000000, 2000000500, 0, 1, NULL), (3, 1, 1, 1, 3, 6, 3000000000, 9500000001, 2, 1, NULL),
        (4, NULL, 1, 2, 4, 5, 6000000000, NULL, 4, 0, NULL);
        INSERT INTO step VALUES (1, 1, 0, 1000000000, 2000000000), (2, 1, 1, 2000000000, NULL)""")
    end_ns, marks = [connection.execute(query).fetchone()[0] for query in ("select end_ns from process where id = 1", "select count(*) from mark")]
    connection.close()
    t.ask("export", "chrome", path, "-o", t.path("scopes.json"))
    processes = viewed(t, t.path("scopes.json"))
    slices = [s for p in processes for thread in p["threads"] for s in thread["slices"]]
    scopes = sorted((s["name"], round(s["duration"] * 1e6), s["depth"]) for s in slices if s["category"] != "mark")
    t.equal(scopes, [("first", 1000000500, 1), ("open", end_ns - 6000000000, 0), ("outer", 8000000000, 0)],
            "scopes, their length in ns and how deep they lie")
    steps = sorted((a["name"], round(a["duration"] * 1e6)) for p in processes for thread in p["threads"] for a in thread["asyncs"])
    t.equal(steps, [("step 0", 1000000000), ("step 1", end_ns - 2000000000), ('too "long"', 6500000001)], "steps, and a scope that ends after the one around it")
    shown = sum(s["category"] == "mark" for s in slices) + sum(len(p["instants"]) for p in processes)
    t.check(shown >= marks > 0, f"{marks} marks, {shown} instants shown")


@test
def chrome_blocks(t):
    """Blocks with their lifetimes: those of at least 700 bytes of a real recording."""
    db = t.imported(t.record([t.program("viewed.c")]))
    t.ask("export", "chrome", db.path, "-o", t.path("blocks.json"), "--lifetimes=700")
    shown = sorted((a["name"], round(a["start"] * 1e6), round(a["duration"] * 1e6), thread["tid"])
                   for p in viewed(t, t.path("blocks.json")) for thread in p["threads"] for a in thread["asyncs"])
    wanted = db.rows("select coalesce(f.function, '?'), a.alloc_ns, coalesce(a.free_ns, p.end_ns) - a.alloc_ns, r.tid from allocation as a"
                     " join process as p on p.id = a.process_id join thread as r on r.id = a.thread_id join stack as s on s.id = a.stack_id"
                     " left join frame as f on f.id = s.site_frame_id where a.size_bytes >= 700 order by 1, 2, 3, 4")
    t.check(len(wanted) >= 2, "large blocks were recorded")
    named = [row for row in wanted if row[0] != "?"]
    t.equal([row for row in shown if row[0] in {name for name, *_ in named}], named, "blocks, when they began, how long they lived, on which thread")
    t.equal(len(shown), len(wanted), "number of blocks")


@test
def chrome_devices(t):
    """Device work on the tracks of its streams, an arrow from the scope that launched it, a refused request, and what a pool said."""
    db = t.imported(os.path.join(ROOT, "fixtures/golden/v1.2-gpu.tmk"), options=("--quiet",))
    # The viewer thinks in microseconds; the golden trace is a thousand times too fast for it.
    connection = sqlite3.connect(db.path)
    for table, columns in (("process", ("start_ns", "exit_ns", "end_ns")), ("scope_packed", ("start_ns", "end_ns")), ("oom", ("ts_ns",)), ("pool_state", ("ts_ns",)),
                           ("gpu_activity", ("start_ns", "end_ns", "launch_ns")), ("timeline", ("ts_ns",)), ("sample", ("ts_ns",)), ("mark", ("ts_ns",))):
        connection.execute(f"update {table} set " + ", ".join(f"{column} = {column} * 1000" for column in columns))
    connection.commit()
    connection.close()
    t.ask("export", "chrome", db.path, "-o", t.path("gpu.json"))
    with open(t.path("gpu.json"), encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    arrows = sorted((e["id"], e["ph"], round(e["ts"] * 1000), e["tid"]) for e in events if e["ph"] in "sf")
    tid = db.value("select tid from thread limit 1")
    (stream,) = {e["tid"] for e in events if e.get("cat") == "kernel"}
    t.equal(arrows, [(1, "f", 1300001, stream), (1, "s", 1200000, tid), (2, "f", 2000001, stream), (2, "s", 1950000, tid)], "arrows")
    processes = viewed(t, t.path("gpu.json"))
    tracks = {thread["name"]: thread for p in processes for thread in p["threads"]}
    work = sorted((s["name"], s["category"], round(s["start"] * 1e6), round(s["duration"] * 1e6)) for s in tracks["cuda:0 stream 7"]["slices"])
    t.equal(work, [("add", "kernel", 1300000, 600000), ("memcpy d2h", "memcpy", 2000000, 100000)], "work of the stream")
    marks = [s["name"] for p in processes for thread in p["threads"] for s in thread["slices"]] + [i for p in processes for i in p["instants"]]
    t.check("out of memory: cuda:0, 2147483648 bytes" in marks, f"the refused request is shown: {marks}")
    counters = {c["name"]: c["series"][0]["values"] for p in processes for c in p["counters"]}
    t.equal(counters.get("cuda-pool:0 reserved"), [2 << 20], "what the pool had reserved")


@test
def folded(t):
    """flamegraph.pl takes every line, and its frame "all" is the sum in SQL to the byte."""
    t.need("perl")
    if not os.path.exists(FLAMEGRAPH):
        t.skip("flamegraph.pl is not installed (Debian: libdevel-nytprof-perl)")
    db = t.imported(t.record([t.program("viewed.c")]))
    for value, query in (("peak", "select sum(live_bytes) from peak where heap is null"),
                         ("allocated", "select sum(a.size_bytes) from allocation as a join heap as h on h.id = a.heap_id where h.is_root"),
                         ("leaked", "select sum(l.live_bytes) from live_at_exit as l join heap as h on h.process_id = l.process_id and h.name = l.heap where h.is_root")):
        t.ask("export", "folded", db.path, "-o", t.path("folded"), f"--value={value}", "--force")
        done = t.run(["perl", FLAMEGRAPH, "--countname=bytes", "--minwidth=0", t.path("folded")], status=0)
        t.equal(done.errors, "", f"what flamegraph.pl says of {value}")
        total = re.search(r"all \(([\d,]+) bytes, 100%\)", done.text)
        t.check(total, f"{value}: no frame for everything: {done.text[-500:]}")
        t.equal(int(total[1].replace(",", "")), db.value(query), f"{value}: total in the flame graph and in SQL")
        if value == "allocated":
            frames = sorted(re.findall(r"<title>(\w+) \(([\d,]+) bytes", done.text))
            wanted = [("be_child", "77"), ("fill", "1,000,000"), ("read_input", "300,000")]
            t.equal([frame for frame in frames if frame[0] in ("be_child", "fill", "read_input")], wanted, "frames of the program's own functions")


main()
