"""The pages of summary, peak, scopes and leaks: no line is wider than the terminal, names stay readable, numbers are SQL's, and a pipe gets whole names.

A trace with names as bad as they come (700 letters of C++, wide, combining and right-to-left letters, marks that turn a line) is shown on real terminals of
several widths. Widths are measured here with Python's tables of characters, sizes are put into words here, and figures come from SQL.
"""
import fcntl
import os
import pty
import re
import select
import sqlite3
import struct
import subprocess
import termios
import unicodedata

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, scope, step

WIDTHS = (60, 80, 120, 200)
NAMES = ("void boost::detail::" + "deeply<nested, templates<" * 28 + "int>::operator()(std::string const&)", "読み込み::行列を割り当てる(大きさ)", "קצהא::הקצאה_של_זיכרון",
         "cafe\u0301::cre\u0300me()", "turned\u202edetrever", "plain")
PAGES = {"summary": ["summary"], "peak": ["peak"], "sites": ["peak", "--sites"], "scopes": ["scopes"], "tree": ["scopes", "--tree"], "means": ["scopes", "--means"],
         "steps": ["scopes", "--steps"], "leaks": ["leaks", "--all"], "stacks": ["leaks", "--all", "--stack"], "snapshot": ["snapshot", "--at=peak"],
         "processes": ["processes"], "temporary": ["temporary"]}


def made(t):
    trace = Trace(host="node")
    trace.process(1, pid=100, command=("a\0" + NAMES[0]).encode())
    trace.thread(1, process=1)
    trace.note(1, 5, "kind", "A sentence that goes on for so long that a narrow terminal cannot show it in one line; it must be wrapped, not cut.")
    trace.loss(1, 1, 6, "event", 3, 96, "a reason that is long enough to be wrapped where the terminal is narrow, whatever else its line has to say")
    stacks = [trace.stack("main", trace.frame([(name, f"/a/very/long/path/to/the/sources/of/{name[:40]}/file.cpp", 1234567)])) for name in NAMES]
    names = [trace.string(name) for name in NAMES]
    events, now = [], 1000
    for n in range(4):
        events.append(step(now := now + 1000, n))
        for i, (stack, name) in enumerate(zip(stacks, names)):
            events.append(scope("scope_push", now := now + 1000, name))
            address = 0x100000 * (1 + i) + 0x10000 * n
            events.append(malloc(now := now + 1000, address, 1_234_567 // (i + 1), stack))
            events.append(malloc(now := now + 1000, address + 0x8000, 77 + i, stack))
            events.append(free(now := now + 1000, address + 0x8000))
            if n % 2:
                events.append(free(now := now + 1000, address))
    for _ in range(4 * len(NAMES)):
        events.append(scope("scope_end", now := now + 1000))
    trace.events(1, events)
    trace.exit(1, now + 1000)
    trace.end(1, now + 2000)
    trace.save(t.path("names.tmk"))
    return t.imported(t.path("names.tmk"))


def width(line):
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def size(n):
    units = ["B", "KiB", "MiB", "GiB"]
    while n >= 1024 and len(units) > 1:
        n /= 1024
        units.pop(0)
    return f"{n} B" if units[0] == "B" else f"{n:.1f} {units[0]}"


def on_terminal_errors(t, command, wanted):
    """What a command writes to standard error where that is a terminal; standard output is no terminal, and holds what is wanted."""
    master, slave = pty.openpty()
    child = t.start(command, stdout=subprocess.PIPE, stderr=slave)
    text = child.communicate()[0].decode()
    out = b""
    while select.select([master], [], [], 0)[0]:
        out += os.read(master, 65536)
    os.close(slave)
    os.close(master)
    t.equal((child.returncode, text), (0, wanted), f"status and output of {command}")
    return out


def on_terminal(t, command, columns, **changes):
    """What a command writes to a terminal of that width, its colours taken out; and whether there were any.

    Our end of it stays open until the command has ended and all was read: a terminal that everybody has closed may be over before a reader has seen what is in it.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", "COLUMNS": "", **changes}
    child = t.start(command, stdout=slave, env=environment)
    out = b""
    while True:
        ended = child.poll() is not None
        while select.select([master], [], [], 0 if ended else 0.01)[0]:
            out += os.read(master, 65536)
        if ended:
            break
    os.close(slave)
    os.close(master)
    t.equal(child.wait(), 0, f"status of {command}")
    text = out.decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\[\d*m", "", text), "\x1b[" in text


@test
def questions_that_take_long(t):
    """While a question takes longer than a second a terminal says so, in a line that is gone when there is an answer; of a short one it says nothing."""
    db = made(t)
    for rows, wanted in ((1000, rb""), (25_000_000, rb"(\r\x1b\[Ktidemark: asking the database: \d+ s)+\r\x1b\[K")):
        query = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT count(*) AS rows FROM n"
        text = on_terminal_errors(t, [t.tidemark, "query", db.path, query, "--format=csv"], f"rows\n{rows}\n")
        t.check(re.fullmatch(wanted, text), f"{rows} rows: {text}")


def check_widths(t, text, columns, what):
    for line in text.splitlines():
        t.check(width(line) <= columns, f"{what}, {columns} columns: a line of {width(line)}: {line}")
        t.check("\u202e" not in line, f"{what}: a mark that turns the line")


@test
def lines_fit(t):
    db = made(t)
    for columns in WIDTHS:
        for what, command in PAGES.items():
            text, colours = on_terminal(t, [t.tidemark, command[0], db.path, *command[1:]], columns)
            t.check(colours or what == "temporary", f"{what}: headings are bold on a terminal")
            check_widths(t, text, columns, what)
            # COLUMNS stands above the terminal's own idea, and counts where there is no terminal.
            other, _ = on_terminal(t, [t.tidemark, command[0], db.path, *command[1:]], 40, COLUMNS=str(columns))
            t.equal(other, text, f"{what}: COLUMNS={columns}")
            piped = t.run([t.tidemark, command[0], db.path, *command[1:]], env={"COLUMNS": str(columns), "LC_ALL": "C.UTF-8"}, status=0).text
            check_widths(t, piped, columns, f"{what} in a pipe")
            t.check("\x1b" not in piped and (what == "temporary" or "\u2588" not in piped), f"{what} in a pipe: neither colours nor bars")


@test
def what_a_list_is_about_stays_to_the_last(t):
    """Two processes, so that there is a column more, whose numbers are wide; in 40 columns every list still has what it is asked for."""
    trace = Trace(host="node")
    for p in (1, 2):
        trace.process(p, pid=100 + p, command=b"a_program")
        trace.thread(p, process=p)
        stack, name = trace.stack("main", trace.frame([("a_function_of_mine", "/some/where/file.cpp", 123)])), trace.string("a scope's name")
        trace.sample(p, 1000, rss=1_234_567_890, tool_rss=1000, rss_heap=1_000_000, rss_arenas=1_000_000, rss_anonymous=1_000_000, rss_stacks=1_000_000,
                     rss_files=1_000_000, rss_shared=1_000_000)
        events = [step(1000, 1), scope("scope_push", 1001, name)]
        for n in range(6):
            events += [malloc(2000 + 10 * n, 0x100000 * (n + 1), 123_456 + n, stack), free(2001 + 10 * n, 0x100000 * (n + 1))]
        events += [malloc(3000, 0x9000000, 1_234_567, stack, usable=1_300_000), scope("scope_end", 3001)]
        trace.events(p, events)
        trace.exit(p, 9000)
    trace.end(1, 10000)
    trace.save(t.path("kept.tmk"))
    db = t.imported(t.path("kept.tmk"))
    for command, kept in (("leaks --all", {"live_bytes", "function"}), ("temporary", {"count", "function"}), ("temporary --churn", {"function"}),
                          ("temporary --oversized", {"slack_bytes", "function"}), ("temporary --histogram=size", {"from_bytes", "allocations"}),
                          ("timeline --gap", {"ts_ns", "live_bytes", "gap_bytes"}), ("snapshot --at=end", {"live_bytes", "function"}),
                          ("snapshot --scope=a scope's name", {"phase", "live_bytes"}), ("peak --sites", {"live_bytes", "function"}),
                          ("scopes", {"name", "total_allocated_bytes"}), ("scopes --sort=retained_bytes", {"name", "retained_bytes"}),
                          ("top --by=site", {"live_bytes", "function"}), ("top --by=site --sort=allocations", {"allocations", "function"}),
                          ("top", {"heap", "live_bytes"}), ("check --max-peak=1KiB --max-allocations=1", {"budget", "process_id", "verdict"})):
        words = re.split(" (?=--)", command)
        text = t.run([t.tidemark, words[0], db.path, *words[1:]], env={"COLUMNS": "40", "LC_ALL": "C.UTF-8"}, status=3 if words[0] == "check" else 0).text
        check_widths(t, text, 40, command)
        gone = set(re.sub(r"(?s).*?columns? left out here:|\n\n.*", "", text).replace(",", "").split())
        t.check(gone and not gone & kept, f"{command} leaves out {gone & kept}: {text}")
    heaps = t.run([t.tidemark, "summary", db.path], env={"COLUMNS": "40"}, status=0).text.split("\n\nheaps\n")[1].split("\n\n")[0]
    t.check("peak_bytes" not in heaps.split("left out here:")[1], f"the peak of each heap: {heaps}")


@test
def numbers_are_those_of_sql(t):
    """Rows of a page, from the first on, against SQL; names that are short enough are whole, others keep both their ends."""
    db = made(t)
    sites = db.rows("select live_bytes, function from peak_site where live_bytes > 0 order by live_bytes desc")
    totals = db.rows("select total_allocated_bytes, name from scope_total order by total_allocated_bytes desc, name")
    peak = db.value("select live_bytes from peak where heap is null")
    for columns in WIDTHS:
        page, _ = on_terminal(t, [t.tidemark, "peak", db.path, "--sites"], columns)
        lines = page.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("malloc"))
        for line, (bytes_, function) in zip(lines[first:], sites):
            t.check(f" {size(bytes_)} " in line, f"{columns} columns: {size(bytes_)} in {line}")
            if len(function) < 10:
                t.check(f" {function} " in line, f"{columns} columns: {function} in {line}")
            elif len(function) > columns:
                t.check(re.search(r" void b\S*.*\u2026.*g const&\)", line), f"{columns} columns: both ends of the long name in {line}")
        page, _ = on_terminal(t, [t.tidemark, "peak", db.path], columns)
        t.check(size(peak) in next(line for line in page.splitlines() if line.startswith("(all)")), f"{columns} columns: the peak {size(peak)} in {page}")
        page, _ = on_terminal(t, [t.tidemark, "scopes", db.path], columns)
        rows = [line for line in page.splitlines() if line.startswith("malloc")]
        t.equal(len(rows), len(totals), f"{columns} columns: rows of scopes")
        for line, (bytes_, _) in zip(rows, totals):
            t.check(f" {size(bytes_)}" in line, f"{columns} columns: {size(bytes_)} in {line}")


@test
def bars_say_how_much(t):
    """The highest row has the longest bar, and each is as long as its number says; without UTF-8 they are ASCII; where there is no room there are none."""
    db = made(t)
    sites = [n for n, in db.rows("select live_bytes from peak_site where live_bytes > 0 order by live_bytes desc")]
    for locale, letter in (("C.UTF-8", "\u2588"), ("C", "#")):
        page, _ = on_terminal(t, [t.tidemark, "peak", db.path, "--sites"], 200, LC_ALL=locale)
        bars = [line.count(letter) for line in page.splitlines() if line.startswith("malloc")]
        t.check(bars and 8 <= bars[0] <= 40, f"{locale}: the longest bar: {bars} in {page!r}")
        for n, wanted in zip(bars, sites):
            t.check(abs(n - wanted / sites[0] * bars[0]) <= 1, f"{locale}: bars {bars} of {sites}")
    page, _ = on_terminal(t, [t.tidemark, "peak", db.path, "--sites"], 60)
    t.check("\u2588" not in page, "no room for bars")
    page, _ = on_terminal(t, [t.tidemark, "peak", db.path, "--sites", "--sort=live_count"], 200)
    bars = {line.count("\u2588") for line in page.splitlines() if line.startswith("malloc")}
    t.equal(len(bars), len(set(db.rows("select live_count from peak_site where live_count > 0"))), "bars go with what the rows are sorted by")


@test
def figures_come_before_bars(t):
    """A time line and a histogram give their bars up, and not a figure, where the terminal has no room for both; what they have is shown where it has."""
    db = made(t)
    with sqlite3.connect(db.path) as connection:
        # A second process: the tables have a column more.
        connection.execute("CREATE TEMP TABLE other AS SELECT * FROM process")
        connection.execute("UPDATE other SET id = 2, pid = 101")
        connection.execute("INSERT INTO process SELECT * FROM other")

    def rows(text):
        cells = [re.sub("[\u2588-\u258f]", "", line).split() for line in text.splitlines()]
        return [row for row in cells if {"malloc", "(all)"} & set(row)]

    for command in (["temporary", "--histogram=size"], ["temporary", "--histogram=lifetime"], ["timeline"]):
        command = [t.tidemark, command[0], db.path, *command[1:]]
        wanted = rows(t.run(command, env={"COLUMNS": "", "LC_ALL": "C.UTF-8"}, status=0).text)
        t.check(len(wanted) > 1, f"{command}: rows {wanted}")
        for columns in (70, 80, 120):
            page, _ = on_terminal(t, command, columns)
            check_widths(t, page, columns, f"{command}")
            t.equal(rows(page), wanted, f"{command}: figures in {columns} columns")
            bars = [line.count("\u2588") for line in page.splitlines()]
            t.check(columns < 120 or max(bars) == 24, f"{command}: the longest bar in {columns} columns: {bars}")


@test
def a_letter_asks_for_help_too(t):
    verbs = re.findall(r"^  ([a-z]+) +[a-z].*", t.run([t.tidemark, "--help"], env={"COLUMNS": ""}, status=0).text.split("examples:")[0], re.M)
    t.check({"record", "names", "dump", "import", "top"} <= set(verbs), f"verbs: {verbs}")
    for words in ([t.tidemark], *([t.tidemark, verb] for verb in verbs), [t.recorder], [t.recorder, "names"], [t.recorder, "dump"]):
        t.equal(t.run([*words, "-h"], status=0).text, t.run([*words, "--help"], status=0).text, f"-h of {words}")


@test
def help_fits(t):
    """Help is as wide as the terminal, but for commands to be copied, which are of 80 columns at most; its words are those of a pipe, where its lines are as written, but that
    alternatives of an option may go on in the next line."""
    def words(text):
        return re.sub(r"\|\s+", "|", text).split()
    verbs = re.findall(r"^  ([a-z]+) +[a-z].*", t.run([t.tidemark, "--help"], env={"COLUMNS": ""}, status=0).text.split("examples:")[0], re.M)
    for command in ((), ("names",), ("dump",)):  # the recorder's is made for 80 columns
        check_widths(t, t.run([t.recorder, *command, "--help"], status=0).text, 80, f"help of the recorder, {command}")
    for verb in [None, *(verb for verb in verbs if verb not in ("record", "names", "dump"))]:
        command = [t.tidemark, *([verb] if verb else []), "--help"]
        wanted = t.run(command, env={"COLUMNS": ""}, status=0).text
        for columns in (40, 60, 80, 200):
            text, _ = on_terminal(t, command, columns)
            t.equal(words(text), words(wanted), f"{verb}: the words in {columns} columns")
            t.check(columns < 200 or text == wanted, f"{verb}: a wide terminal has the lines as they are")
            check_widths(t, "\n".join(line for line in text.splitlines() if not line.startswith("  tidemark ")), columns, f"help of {verb}")
            if columns == 80: check_widths(t, text, columns, f"help of {verb}, its commands too")


@test
def numbers_that_come_late(t):
    """Below the rows that a table's widths come from a number is wider than all before: it is whole, and what stands behind it gives way."""
    made(t)
    query = ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700) SELECT CASE WHEN i < 600 THEN 7 ELSE 7654321 END AS count, "
             "CASE WHEN i < 600 THEN 8 ELSE 8765432 END AS line, CASE WHEN i < 600 THEN 'a' ELSE 'bbbbbb' END || replace(hex(zeroblob(50)), '00', 'name') AS function FROM n")
    for columns in (40, 60, 200):
        page, _ = on_terminal(t, [t.tidemark, "query", t.path("db0.db"), query], columns)
        check_widths(t, page, columns, "late numbers")
        t.equal((page.count("7,654,321"), page.count("8765432")), (101, 101), f"whole numbers in {columns} columns")


@test
def whole_names_in_a_pipe(t):
    db = made(t)
    piped = {"COLUMNS": "", "LC_ALL": "C.UTF-8"}
    for what, command in PAGES.items():
        text = t.run([t.tidemark, command[0], db.path, *command[1:]], env=piped, status=0).text
        t.check("\x1b" not in text and "left out here" not in text, f"{what}: plain, and all its columns")
        if what in ("sites", "scopes", "leaks", "stacks"):
            t.check(all(name in text or "\u202e" in name for name in NAMES), f"{what}: whole names in {text}")
    text = t.run([t.tidemark, "summary", db.path], env=piped, status=0).text
    t.check("it must be wrapped, not cut." in re.sub(r"\s+", " ", text), f"the whole note: {text}")


main()
