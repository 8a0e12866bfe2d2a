"""The public API and its kin: what a program says of itself arrives as it said it, whatever way it says it wrongly.

The figures are those of the opening comments of fixtures/programs/scopes.c, scopes_cxx.cc, asks.c and annotated.c. NVTX's and ITT's loaders are played by
annotated.c; the packages nvtx and ittapi for Python are a second proof where they are installed.
"""
import os
import sys
import time

from tidemark_test import counted, instructions_of, main, test

OWN = """select s.name, s.category, (select p.name from scope p where p.id = s.parent_id and p.id <> 0), s.end_kind,
         (select coalesce(sum(a.size_bytes), 0) from allocation a join heap h on h.id = a.heap_id where a.scope_id = s.id and h.name = 'malloc')
         from scope s where s.id <> 0 order by s.id"""


def story(t, word, *, status=0, source="scopes.c", flags=("-ldl",), options=(), cc="gcc"):
    recording = t.record([t.program(source, *flags, cc=cc), word], *options, status=status)
    return t.imported(recording)


def losses(db):
    return dict(db.rows("select kind, sum(count) from loss group by kind"))


def said(db, kind):
    """The text of the note of this kind, None where there is none. `tidemark info` shows every note."""
    return db.value("select group_concat(text, '; ') from note where kind = ?", kind)


@test
def nested(t):
    for flags, cc in ((("-ldl",), "gcc"), (("-O2", "-ldl"), "gcc"), (("-O2", "-ldl"), "clang")):
        db = story(t, "nested", flags=flags, cc=cc)
        t.equal(db.rows(OWN), [("outer", "user", None, "closed", 2004), ("inner", "user", "outer", "closed", 1002)], f"scopes, {cc} {flags}")
        t.equal(db.value("select total_allocated_bytes from scope_total where name = 'outer' and heap = 'malloc'"), 3006, "total of outer")
        t.equal(losses(db), {}, "losses")
    t.equal(db.rows("select * from note"), [], "nothing is odd")


@test
def every_way_out_of_a_block(t):
    db = story(t, "ways")
    t.equal(db.rows("select name, end_kind, count(*) from scope where id <> 0 group by 1, 2 order by 1, 2"),
            [("after", "closed", 1), ("outer", "closed", 1), ("way", "abandoned", 1), ("way", "closed", 4)], "ends")
    own = {}
    for name, _, _, _, size in db.rows(OWN):
        own[name] = own.get(name, 0) + size
    t.equal(own, {"outer": 50, "way": 500, "after": 7}, "bytes of their own")
    t.equal(losses(db), {}, "losses")


@test
def a_block_that_is_jumped_out_of_again_and_again(t):
    db = story(t, "loop")
    t.equal(db.rows(OWN), [("again", "user", None, kind, 20) for kind in ("abandoned", "abandoned", "closed")], "scopes")


@test
def pops_too_many(t):
    db = story(t, "pops")
    t.equal(db.rows(OWN), [("one", "user", None, "closed", 11)], "scopes")
    t.equal(losses(db), {"unmatched-scope-end": 3}, "what is counted")
    t.check("unmatched" in t.ask("info", db.path).text, "info shows it")
    page = t.path("pops.html")
    t.ask("report", db.path, "-o", page)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    t.check("Nothing was lost" in text and "Incomplete" not in text, "the report: an end too many is nothing that is missing")


@test
def odd_names(t):
    recording = t.record([t.program("scopes.c", "-ldl"), "names"])
    db = t.imported(recording)
    db.connection.text_factory = bytes
    names = [name for name, in db.rows("select cast(name as blob) from scope where id <> 0 order by id")]
    t.equal(names[0], b"x" * 4096, "a name of 10,000 bytes is cut at 4,096")
    t.equal(names[2], b"", "an empty name")
    t.equal(names[3], b"x" * 4094, "and no character is cut in the middle")
    t.equal(len(names), 4, "scopes")
    info = t.ask("info", db.path).text
    t.check("cut-texts" in info and "scope-names-not-utf8" in info and "1 name of a scope is no UTF-8" in info, f"info: {info}")
    t.check("cut-texts" in t.ask("info", recording.trace).text, "so it says of the trace")
    t.check(names[1] in (b"\xff\xfe", b"\xef\xbf\xbd\xef\xbf\xbd"), f"a name that is no UTF-8: {names[1]}")


@test
def ten_thousand_deep(t):
    db = story(t, "deep")
    t.equal(db.row("select count(*), max(depth), sum(end_kind = 'closed') from scope where id <> 0"), (10000, 9999, 10000), "scopes")
    t.equal(db.value("select total_allocated_bytes from scope_total where name = 'level' and heap = 'malloc'"), 10000, "a name inside itself counts once")
    t.equal(said(db, "deep-scopes"), "10000 scopes were open inside of each other", "info")


@test
def a_million_names(t):
    recording = t.record([t.program("scopes.c", "-ldl"), "million"])
    t.check("lost         nothing" in recording.errors, recording.errors)
    db = t.imported(recording)
    t.equal(db.row("select count(*), count(distinct name) from scope where id <> 0"), (1000000, 1000000), "scopes")
    t.equal(said(db, "many-scope-names"), "its scopes have 1000000 different names", "info")


@test
def across_threads(t):
    db = story(t, "across")
    t.equal([row[:4] for row in db.rows(OWN)], [("range", "user", None, "closed")], "scopes")
    t.equal(db.value("select count(*) from allocation where size_bytes = 300 and scope_id <> 0"), 1, "while it was open")
    t.equal(said(db, "scopes-across-threads"), "1 scope was closed by another thread than opened it", "info")
    t.equal(db.value("select count(*) from allocation where size_bytes = 400 and scope_id <> 0"), 0, "after it")
    t.equal(losses(db), {}, "losses")


@test
def fork_inside_a_scope(t):
    db = story(t, "fork")
    t.equal([row[:4] for row in db.rows(OWN)], [("parent", "user", None, "closed")], "scopes")
    t.equal(db.value("select count(*) from allocation where size_bytes = 555 and scope_id <> 0"), 0, "the child is in no scope")
    t.equal(losses(db), {"unmatched-scope-end": 1}, "its pop finds nothing")
    t.equal(said(db, "fork-in-scope"), "the process forked once while scopes were open: in the child none of them is", "info")


@test
def killed_inside_a_scope(t):
    db = story(t, "die", status=137)
    t.equal(db.rows(OWN), [("block", "user", None, "process", 0), ("pushed", "user", "block", "process", 77)], "scopes")


@test
def thread_that_ends_inside(t):
    db = story(t, "thread")
    t.equal(db.rows(OWN), [("first", "user", None, "thread", 0), ("second", "user", "first", "thread", 88)], "scopes")


@test
def exceptions(t):
    for standard in ("c++98", "c++17"):
        db = story(t, "", source="scopes_cxx.cc", flags=(f"-std={standard}",), cc="g++")
        rows = [(name, parent, end) for name, _, parent, end, _ in db.rows(OWN)]
        t.equal(rows, [("outer", None, "closed"), ("fall", "outer", "exception"), ("cleanup", "fall", "closed"), ("handler", "outer", "closed")], standard)
        sizes = {name: size for name, _, _, _, size in db.rows(OWN)}
        t.equal((sizes["cleanup"], sizes["handler"], sizes["outer"]), (7, 30, 0), "bytes of their own")


@test
def steps(t):
    db = story(t, "steps")
    t.equal([n for n, in db.rows("select n from step order by start_ns")], [-1, 0, 7], "steps")
    t.equal(db.rows("""select s.n, sum(a.size_bytes) from step s join allocation a on a.alloc_ns >= s.start_ns and a.alloc_ns < s.end_ns
                       where a.size_bytes in (10, 20, 30) group by 1 order by s.start_ns"""), [(-1, 10), (0, 20), (7, 30)], "bytes")


@test
def stopped_for_a_while(t):
    for options in ((), ("--stacks=off",)):
        db = story(t, "stop", options=options)
        t.equal(db.rows("select size_bytes, free_ns is null from allocation where size_bytes in (100, 200, 201, 300, 400) order by 1"), [(100, 0), (400, 1)],
                f"what is recorded {options}")
        t.equal(db.rows("""select a.size_bytes from allocation a join heap h on h.id = a.heap_id where h.name = 'mmap' and a.free_ns is null
                           and a.size_bytes in (4096, 8192)"""), [(4096,)], "of the mapping what was not mapped over is left")
    sampled = story(t, "stop", options=("--sample=1",))
    t.equal(sampled.value("select count(*) from allocation where size_bytes in (200, 201, 300)"), 0, "with --sample")


@test
def declared_heaps(t):
    db = story(t, "heaps")
    t.equal(db.rows("select h.name, h.kind, p.name from heap h left join heap p on p.id = h.parent_id where h.kind = 'pool' order by h.id"),
            [("pool", "pool", "malloc"), ("sub", "pool", "pool")], "heaps")
    rows = db.rows("""select h.name, a.size_bytes, a.free_ns is null, a.api, s.text from allocation a join heap h on h.id = a.heap_id join stack_text s
                      on s.stack_id = a.stack_id where h.kind = 'pool' order by a.id""")
    t.equal(sorted(rows), [("pool", 500, 1, "tidemark_heap_alloc", "main;heaps"), ("sub", 300, 0, "tidemark_heap_alloc", "main;heaps")], "blocks")
    t.equal(db.value("select live_bytes from live_at_exit where heap = 'pool'"), 500, "live in the pool")
    process = db.value("select live_bytes from peak where heap is null")
    t.check(process < 1000 + 4096 + 500 or process >= 1000, "the pool lies inside of malloc")
    roots = db.value("select sum(p.live_bytes) from peak p where p.heap = 'malloc'")
    t.check(process <= roots + (db.value("select coalesce(sum(live_bytes), 0) from peak where heap in ('mmap', 'mmap-file')")), "and is not added to the process")


def notes(db):
    return {kind for kind, in db.rows("select kind from note")}


@test
def pools_used_wrongly(t):
    for options in ((), ("--sample=100",)):
        db = story(t, "pools", options=options)
        t.equal(db.rows("select h.name, p.name, h.is_root from heap h left join heap p on p.id = h.parent_id where h.kind = 'pool' order by h.id"),
                [("root", None, 1), ("deep", "root", 0), ("deeper", "deep", 0), ("torch.cpu", "malloc", 0), ("lost", None, 1)], f"heaps {options}")
        rows = db.rows("""select h.name, a.size_bytes, a.free_ns is null from allocation a join heap h on h.id = a.heap_id where h.kind = 'pool'
                          order by h.id, a.alloc_ns, a.id""")
        t.equal(rows, [("root", 10000, 1), ("deep", 4000, 0), ("deeper", 1000, 0), ("deeper", 1000, 0), ("deeper", 1500, 1), ("torch.cpu", 50, 1), ("lost", 60, 1)],
                f"blocks {options}")
        t.equal(dict(db.rows("select heap, live_bytes from peak where heap in (select name from heap where kind = 'pool')")),
                {"root": 10000, "deep": 4000, "deeper": 1500, "torch.cpu": 50, "lost": 60}, f"peaks {options}")
        t.equal(losses(db), {"lost-free": 1, "unmatched-free": 2}, f"what is counted {options}")
        t.check("unknown-heap" in notes(db), "a parent that there is not")
        info = t.ask("info", db.path).text
        t.check(all(word in info for word in ("lost-free", "unmatched-free", "unknown-heap")), f"info: {info}")
        if not options:
            t.equal(db.value("select live_bytes from peak where heap is null"), 20000 + 10000 + 60, "the process: malloc, root and lost")


@test
def ways_to_end(t):
    open_ones = [("block", "user", None, "process", 0), ("pushed", "user", "block", "process", 77)]
    for word, status in (("exit", 3), ("_exit", 4), ("term", 143)):
        t.equal(story(t, word, status=status).rows(OWN), open_ones, word)
    t.equal(story(t, "exec").rows(OWN), open_ones + [("outer", "user", None, "closed", 2004), ("inner", "user", "outer", "closed", 1002)], "exec")
    t.equal([row[3] for row in story(t, "cancel").rows(OWN)], ["thread", "thread"], "a thread that is cancelled")
    t.equal([row[3] for row in story(t, "cancel", flags=("-fexceptions", "-pthread")).rows(OWN)], ["closed", "abandoned"], "the same, with its cleanups")
    db = story(t, "inherit")
    t.equal(db.rows(OWN), [("inherited", "user", None, "closed", 0), ("own", "user", None, "closed", 66)], "fork in a block")
    t.equal(losses(db), {"unmatched-scope-end": 1}, "the end of what the child inherited")


LIMITS = """#include "tidemark.h"
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
	static char text[4001];
	for (int i = 0; argc == 2 && i < 600; i++) {
		snprintf(text, sizeof text, "pool %d", i);
		tidemark_heap h = tidemark_heap_create(text, "malloc");
		tidemark_heap_alloc(h || *argv[1] == 's' ? h : text, text + i, 10);
	}
	memset(text, 'x', 4000);
	for (int i = 0; argc == 3 && i < 70000; i++) {
		text[sprintf(text, "%d", i)] = 'x';
		tidemark_scope_push(text);
		tidemark_scope_pop();
	}
	return 0;
}
"""


def limits(t, *words):
    with open(t.path("limits.c"), "w", encoding="ascii") as file:
        file.write(LIMITS)
    t.run(["gcc", "-I", os.path.join(t.root, "recorder"), "-o", t.path("limits"), t.path("limits.c")], status=0)
    return t.record([t.path("limits"), *words])


@test
def more_pools_than_there_is_room_for(t):
    """A program that hands out blocks in the pool that it did not get, and one that does so in the name that has no pool."""
    for name in ("pools", "silent"):
        db = t.imported(limits(t, name))
        t.equal(db.row("select count(*), sum(size_bytes) from allocation a join heap h on h.id = a.heap_id where h.kind = 'pool'"), (512, 5120), "blocks")
        t.check("too-many-heaps" in t.ask("info", db.path).text, f"{name}: info says so")
    for heaps in (100, 600):
        recording = t.record([t.program("annotated.c", "-ldl"), "itt", str(heaps)])
        t.equal("too-many-heaps" in t.ask("info", recording.trace).text, heaps == 600, f"{heaps} heaps of ITT")


@test
def more_texts_than_are_kept(t):
    db = t.imported(t.record([t.program("annotated.c", "-ldl"), "many"]))
    t.equal(db.value("select count(distinct category) from scope where category like 'nvtx:%'"), 256, "categories")
    unnamed = db.value("select count(*) from scope where id <> 0 and name = ''")
    t.equal(unnamed, 5000 - ((16 << 20) - 300 * 96) // 4096, "ranges without a name: a text of 4,000 bytes takes 4,096, a domain 96")
    t.equal(db.value("select count(*) from scope where name = 'last'"), 1, "a name that is not registered")
    info = t.ask("info", db.path).text
    t.check("too-many-categories" in info and "too-many-texts" in info, f"info: {info}")


@test(long=True)
def more_names_than_the_recorder_keeps(t):
    """256 MiB of different names: the rest share one, and the recorder's memory is bounded."""
    recording = limits(t, "names", "x")
    db = t.imported(recording)
    t.equal(db.value("select count(*) from scope where id <> 0"), 70000, "scopes")
    kept = (256 << 20) // 4000
    t.check(abs(db.value("select count(distinct name) from scope where id <> 0") - kept) <= 2, "names that are kept")
    t.check("too-many-names" in t.ask("info", db.path).text, "info says so")


@test
def not_recorded(t):
    """Without a recorder nothing happens, and a scope is a few instructions."""
    program = t.program("scopes.c", "-ldl")
    for word in ("nested", "ways", "names", "heaps", "stop", "deep"):
        t.run([program, word], status=0)
    t.equal(t.run([t.program("annotated.c", "-ldl"), "nvtx"], status=0).text, "-2 -2 -2 -2 -2 -2 -2\n", "NVTX without a tool")


def answers(outcome):
    return [line.split() for line in outcome.text.splitlines()]


@test
def stats(t):
    program = t.program("asks.c")
    bare = answers(t.run([program], status=0))
    t.check(all(line[1] == "-1" for line in bare if line[0] in ("blocks", "reset", "pool", "nothing", "many", "child")), f"without a recorder: {bare}")
    for _ in range(3):
        recording = t.record([program])
        lines = {line[0]: line[1:] for line in answers(recording)}
        t.equal(lines["blocks"], ["0", "+2000", "+1", "2", "1", "1000", "1"], "blocks")
        t.equal(lines["reset"], ["0", "+0", "+0", "0", "0", "0", "1"], "after reset_peak")
        peak = int(lines["threads"].pop(5))
        t.equal(lines["threads"], ["0", "+128000", "+2000", "4000", "2000", "1"], "of four threads")
        t.check(64 <= peak <= 256, f"their peak: {peak}")
        t.equal(lines["baseline"], ["0", "0"], "counts after the baseline")
        t.equal(lines["pool"], ["0", "+300", "+1", "2", "1", "500", "1"], "a pool")
        t.equal(lines["nothing"], ["-2", "+0", "+0", "0", "0", "0", "0"], "no such heap")
        t.equal(lines["many"], ["0", "0"], "more threads than slots")
        t.equal(lines["child"], ["0", "+123", "+1", "1", "0", "0", "1"], "a fork's child")
        t.equal(t.imported(recording).value("select count(*) from loss"), 0, "losses")
    estimate = {line[0]: line[1:] for line in answers(t.record([program, "x"], "--sample=64"))}
    t.equal(estimate["blocks"][-1], "0", "with --sample it is an estimate")


@test
def stats_of_many_threads(t):
    """400 threads ask at once, of which 16 are answered at a time: those that wait leave the processors to the recorder."""
    source = t.path("crowd.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include "tidemark.h"\n#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n'
                   'static pthread_barrier_t all; static _Atomic int answered;\n'
                   'static void *ask(void *a) { struct tidemark_stats s; free(malloc(3)); pthread_barrier_wait(&all); answered += !tidemark_stats("malloc", &s); return a; }\n'
                   'int main(void) { pthread_t threads[400]; pthread_barrier_init(&all, NULL, 400);\n'
                   'for (int i = 0; i < 400; i++) if (pthread_create(&threads[i], NULL, ask, NULL)) return 9;\n'
                   'for (int i = 0; i < 400; i++) pthread_join(threads[i], NULL);\n'
                   'printf("%d\\n", answered); return 0; }\n')
    answered = int(t.record([t.program(source)]).text)
    t.check(answered > 300, f"{answered} of 400 were answered")


@test
def stats_of_a_recorder_that_is_gone(t):
    """It is killed in the middle: the program goes on, is told so and ends as it would."""
    source = t.path("gone.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include "tidemark.h"\n#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n'
                   'int main(void) { struct tidemark_stats s; int a = tidemark_stats("malloc", &s); kill(getppid(), 9); usleep(200000);\n'
                   'int b = tidemark_stats("malloc", &s); printf("%d %d\\n", a, b < 0); return 0; }\n')
    program = t.path("gone")
    t.run(["gcc", "-I", os.path.join(t.root, "recorder"), "-o", program, source], status=0)
    out = t.path("out")
    t.run(["sh", "-c", f"'{t.recorder}' -o '{t.path('gone.tmk')}' '{program}' > '{out}'"])
    for _ in range(600):
        with open(out, encoding="ascii") as file:
            text = file.read()
        if text:
            break
        time.sleep(0.1)
    t.equal(text, "0 1\n", "answers")


@test
def stats_of_a_recorder_that_shows_no_life(t):
    """It is stopped: who asks a hundred times waits for the first answer alone. Once it goes on there are answers again."""
    source = t.path("silent.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include "tidemark.h"\n#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n'
                   'int main(void) { struct tidemark_stats s; int a = tidemark_stats("malloc", &s), none = 0, again; kill(getppid(), SIGSTOP); usleep(200000);\n'
                   'for (int i = 0; i < 100; i++) none += tidemark_stats("malloc", &s) == TIDEMARK_NO_ANSWER;\n'
                   'kill(getppid(), SIGCONT); while ((again = tidemark_stats("malloc", &s)) == TIDEMARK_NO_ANSWER) usleep(1000);\n'
                   'printf("%d %d %d\\n", a, none, again); return 0; }\n')
    done = t.run([t.recorder, "-o", t.path("silent.tmk"), "--quiet", t.program(source)], status=0, timeout=60)
    t.equal(done.text, "0 100 0\n", "answers")


@test
def nvtx(t):
    program = t.program("annotated.c", "-ldl")
    recording = t.record([program, "nvtx"])
    t.equal(recording.text, "0 1 1 0 -2 0 0\n", "depths")
    db = t.imported(recording)
    t.equal(db.rows(OWN)[:4], [("one", "nvtx", None, "closed", 1001), ("zw\u00f6lf", "nvtx", "one", "closed", 1002), ("registered", "nvtx:dom", None, "closed", 1003),
                              ("started", "nvtx:dom", None, "closed", 1004 + db.rows(OWN)[3][4] - 1004)], "scopes")
    t.equal(db.value("select count(*) from allocation a join scope s on s.id = a.scope_id where a.size_bytes = 1004 and s.name = 'started'"), 1, "while it was on")
    t.equal([row[:4] for row in db.rows(OWN)[4:]], [("", "nvtx", None, "closed")] * 3, "scopes without a name")
    t.equal(losses(db), {"unmatched-scope-end": 2}, "a pop too many, and the end of an id that is none")
    t.equal(sorted(db.rows("select a.size_bytes, a.free_ns is null from allocation a join heap h on h.id = a.heap_id where h.name = 'nvtx:arena'")),
            [(100, 0), (200, 0), (300, 0), (400, 0)], "regions")
    t.equal(db.rows("select h.is_root, a.size_bytes from heap h join allocation a on a.heap_id = h.id where h.name = 'nvtx:far'"), [(0, 5000)], "a device's memory")
    t.equal(db.value("select count(*) from mark where name = 'mark'"), 1, "marks")
    t.equal(db.value("select name from thread order by id limit 1"), "worker bee", "the thread's name")
    t.equal(t.record([program, "nvtx"], "--nvtx=off").text, "-2 -2 -2 -2 -2 -2 -2\n", "--nvtx=off")
    other = t.imported(t.record([program, "nvtx"], env={"NVTX_INJECTION64_PATH": "/another/tool.so"}))
    t.equal((other.value("select count(*) from scope where id <> 0"), other.value("select count(*) from note where kind = 'injection'")), (0, 1), "another tool")


@test
def nvtx_domains_and_heaps_by_address(t):
    recording = t.record([t.program("annotated.c", "-ldl"), "arenas"])
    t.equal(recording.text, "15 5\n", "depths that are told, and not")
    db = t.imported(recording)
    rows = db.rows(OWN)
    t.equal(({row[1] for row in rows[:40]}, len(rows)), ({f"nvtx:{chr(97 + i)}" for i in range(20)}, 46), "domains")
    t.equal([(len(row[0]), row[1], row[3]) for row in rows[44:]], [(1021, "nvtx", "closed"), (4096, "nvtx", "closed")], "long names")
    t.equal(said(db, "cut-texts").count("were cut there"), 2, "both are said")
    t.equal(rows[40:44], [("in a", "nvtx:a", None, "closed", 1005), ("in b", "nvtx:b", None, "closed", 2013), ("", "nvtx:c", None, "closed", 1008),
                        ("", "nvtx:c", None, "closed", 0)], "ranges that overlap, and of payloads")
    t.equal(losses(db), {}, "losses")
    t.equal(db.rows("""select h.name, a.size_bytes, a.free_ns is null from allocation a join heap h on h.id = a.heap_id where h.kind = 'nvtx'
                       order by a.alloc_ns, a.id"""),
            [("nvtx:chunk", 100, 0), ("nvtx:chunk", 200, 0), ("nvtx:chunk", 400, 1), ("nvtx:chunk", 300, 0), ("nvtx:again", 50, 1)], "regions")


@test
def more_regions_than_are_followed(t):
    db = t.imported(t.record([t.program("annotated.c", "-ldl"), "regions"], "--stacks=off"))
    t.equal(db.row("select count(*), sum(free_ns is null) from allocation a join heap h on h.id = a.heap_id where h.name = 'nvtx'"), ((1 << 20) + 10, 10), "regions")
    t.equal(losses(db), {}, "losses")
    t.check("too-many-regions" in t.ask("info", db.path).text, "info says so")


@test
def itt(t):
    program = t.program("annotated.c", "-ldl")
    db = t.imported(t.record([program, "itt"]))
    t.equal(db.rows(OWN), [("first", "itt", None, "closed", 2001), ("second", "itt", "first", "closed", 2002), ("over", "itt", None, "closed", 2003),
                           ("dom", "itt", None, "closed", 2004), ("", "itt", None, "closed", 0), ("early two", "itt", None, "closed", 2005),
                           ("early domain", "itt", None, "closed", 0), ("timed", "itt", None, "closed", 2006), ("timed end", "itt", None, "closed", 0)], "scopes")
    t.equal(db.rows("select a.size_bytes, a.free_ns is null from allocation a join heap h on h.id = a.heap_id where h.name = 'itt:pool' order by a.id"),
            [(500, 0), (700, 0), (50, 1)], "blocks")
    t.equal(db.value("select name from thread"), "itt thread", "the thread's name")
    off = t.imported(t.record([program, "itt"], "--itt=off", env={"INTEL_LIBITTNOTIFY64": t.library}))
    t.equal(off.value("select count(*) from scope where id <> 0"), 0, "--itt=off")


def nvtx_headers(t):
    """Where nvtx3/nvToolsExt.h is: beside the compiler's own headers, CUDA's, or a package's of this Python."""
    places = ["/usr/include", os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")]
    places += [os.path.join(p, "nvidia/nvtx/include") for p in sys.path] + [os.path.join(p, "nvidia/cu13/include") for p in sys.path]
    for place in places:
        if os.path.exists(os.path.join(place, "nvtx3/nvToolsExt.h")):
            return place
    return t.skip("NVIDIA's header nvtx3/nvToolsExt.h is not installed")


@test
def nvtx_with_its_own_headers(t):
    place = nvtx_headers(t)
    memory = os.path.exists(os.path.join(place, "nvtx3/nvToolsExtMem.h"))
    program = t.program("nvtx_real.c", "-isystem", place, *(["-DMEMORY"] if memory else []), "-ldl", "-pthread")
    t.run([program], status=0)
    db = t.imported(t.record([program]))
    rows = [row for row in db.rows(OWN) if row[0] != "cross"]
    t.equal(rows, [("outer", "nvtx", None, "closed", 1001), ("inner", "nvtx:dom", "outer", "closed", 1002), ("wide", "nvtx", None, "closed", 1004)], "scopes")
    t.equal(db.rows("select s.name, s.end_kind from allocation a join scope s on s.id = a.scope_id where a.size_bytes = 1003"), [("cross", "closed")], "cross")
    t.equal(db.rows("select name from mark order by ts_ns"), [("here",), ("there",)], "marks")
    t.equal(db.value("select name from thread order by id limit 1"), "main thread", "the thread's name")
    t.equal(losses(db), {}, "losses")
    if memory:
        t.equal(db.rows("select h.kind, p.name from heap h join heap p on p.id = h.parent_id where h.name = 'nvtx:arena'"), [("nvtx", "malloc")], "the heap")
        t.equal(sorted(db.rows("select a.size_bytes, a.free_ns is null from allocation a join heap h on h.id = a.heap_id where h.name = 'nvtx:arena'")),
                [(100, 0), (150, 1), (200, 0)], "regions")


PYTHON = {
    "nvtx": "import nvtx, threading\nwith nvtx.annotate('outer'):\n  with nvtx.annotate('inner', domain='dom'): pass\n"
            "r = nvtx.start_range('cross')\nt = threading.Thread(target=nvtx.end_range, args=(r,)); t.start(); t.join()\n",
    "ittapi": "import ittapi\nd = ittapi.domain('dom')\nwith ittapi.task('outer', domain=d):\n  with ittapi.task('inner', domain=d): pass\n"
              "with ittapi.task('cross', domain=d, overlapped=True): pass\n",
}


@test
def packages_for_python(t):
    tried = []
    for package, program in PYTHON.items():
        if t.run([sys.executable, "-c", f"import {package}"]).status:
            continue
        db = t.imported(t.record([sys.executable, "-c", program], "--stacks=off"))
        category = {"nvtx": "nvtx", "ittapi": "itt"}[package]
        rows = db.rows("select name, end_kind from scope where category like ? || '%' order by id", category)
        t.equal(rows, [("outer", "closed"), ("inner", "closed"), ("cross", "closed")], package)
        tried.append(package)
    if not tried:
        t.skip("neither of the packages nvtx and ittapi is installed")


STANDARDS = [(cc, standard) for cc, standards in (("gcc", ("gnu89", "c99", "c11", "c17")), ("clang", ("gnu89", "c99", "c17")), ("g++", ("c++98", "c++11", "c++17", "c++20")),
                                                  ("clang++", ("c++98", "c++20"))) for standard in standards]


@test
def header_is_clean(t):
    for cc, standard in STANDARDS:
        t.need(cc)
        source = t.path("clean.cc" if "+" in cc else "clean.c")
        with open(source, "w", encoding="ascii") as file:
            file.write('#include "tidemark.h"\nvoid f(int n);\nvoid f(int n) {\n\tstruct tidemark_stats s;\n\ttidemark_heap h = tidemark_heap_create("p", "malloc");\n'
                       '\tTIDEMARK_SCOPE("f");\n\tif (n) {\n\t\tTIDEMARK_SCOPE("g");\n\t\ttidemark_step(n);\n\t}\n\ttidemark_heap_alloc(h, &s, 1);\n'
                       '\tif (tidemark_stats(h, &s)) tidemark_reset_peak(h);\n\ttidemark_range_end(tidemark_range_begin("r"));\n}\n')
        strict = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion"] + ["-Wused-but-marked-unused", "-Wzero-as-null-pointer-constant"] * ("clang" in cc)
        for level in ("-O0", "-O2"):
            done = t.run([cc, f"-std={standard}", level, *strict, "-pedantic", "-Werror", "-I", os.path.join(t.root, "recorder"), "-c", source,
                          "-o", t.path("clean.o")])
            t.equal((done.status, done.errors), (0, ""), f"{cc} {standard} {level}")
    with open(t.path("alone.cc"), "w", encoding="ascii") as file:
        file.write('#include "tidemark.h"\nint main() { TIDEMARK_SCOPE("f"); return 0; }\n')
    for cc in ("gcc", "clang"):
        done = t.run([cc, "-x", "c++", "-fno-exceptions", "-I", os.path.join(t.root, "recorder"), t.path("alone.cc"), "-o", t.path("alone")])
        t.equal((done.status, done.errors), (0, ""), f"without exceptions and C++'s library: {cc}")


PART = """#include "tidemark.h"
#include <stdlib.h>
%s void *%s(void);
void *%s(void) { TIDEMARK_SCOPE("%s"); return malloc(%d); }
"""
WHOLE = """#include "tidemark.h"
#include <cstdlib>
#include <dlfcn.h>
extern "C" void *part(void);
extern "C" void *in_library(void);
void *volatile kept[4];
static void *in_plugin(const char *path) {
	TIDEMARK_SCOPE("loads");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : 0;
	void *(*function)() = library ? reinterpret_cast<void *(*)()>(dlsym(library, "plugin")) : 0;
	return function ? function() : 0;
}
int main(int argc, char **argv) {
	TIDEMARK_SCOPE("whole");
	kept[0] = part();
#ifndef ALONE
	kept[1] = in_library();
#endif
	kept[2] = in_plugin(argc > 1 ? argv[1] : 0);
	return 0;
}
"""


@test
def parts_of_a_program(t):
    """The header in two languages and files, in a library, in one that is loaded later, position-dependent and static: one recorder serves them all."""
    include = ["-I", os.path.join(t.root, "recorder")]
    for name, text in (("part.c", PART % ("", "part", "part", "part", 1001)), ("library.c", PART % ("", "in_library", "in_library", "library", 1002)),
                       ("plugin.c", PART % ("", "plugin", "plugin", "plugin", 1003)), ("whole.cc", WHOLE)):
        with open(t.path(name), "w", encoding="ascii") as file:
            file.write(text)
    t.run(["gcc", "-std=c99", *include, "-c", "part.c", "-o", "part.o"], status=0)
    dialect = ["-masm=intel"] if os.uname().machine == "x86_64" else []
    for name, flags in (("library", []), ("plugin", dialect)):
        t.run(["gcc", "-O2", "-fPIC", "-shared", *flags, *include, f"{name}.c", "-o", f"lib{name}.so"], status=0)
    wanted = [("whole", None, 0), ("part", "whole", 1001), ("library", "whole", 1002), ("loads", "whole", None), ("plugin", "loads", 1003)]
    for cc, flags in (("g++", ("-std=c++98", "-fPIE", "-pie")), ("g++", ("-O2", "-no-pie", "-fno-pic")), ("clang++", ("-O2", "-flto"))):
        t.need(cc)
        t.run([cc, *flags, *include, "whole.cc", "part.o", "-L.", "-l:liblibrary.so", "-Wl,-rpath," + t.dir, "-ldl", "-o", "whole"], status=0)
        t.run([t.path("whole"), t.path("libplugin.so")], status=0)
        rows = t.imported(t.record([t.path("whole"), t.path("libplugin.so")])).rows(OWN)
        t.equal([(name, parent, None if name == "loads" else size) for name, _, parent, _, size in rows], wanted, f"{cc} {flags}")
        t.equal({end for _, _, _, end, _ in rows}, {"closed"}, "ends")
    t.run(["g++", "-static", "-DALONE", *include, "whole.cc", "part.o", "-o", "alone"], status=0)
    t.run([t.path("alone")], status=0)
    recording = t.record([t.path("alone")])
    t.equal(t.imported(recording).value("select count(*) from scope where id <> 0"), 0, "a static program is not recorded, and runs")


COROUTINES = r"""
#include "tidemark.h"
#include <coroutine>
#include <stdlib.h>
#include <thread>
struct generator {
	struct promise_type {
		generator get_return_object() { return { std::coroutine_handle<promise_type>::from_promise(*this) }; }
		std::suspend_always initial_suspend() { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(int) { return {}; }
		void unhandled_exception() {}
		void return_void() {}
	};
	std::coroutine_handle<promise_type> handle;
};
static void *volatile kept;
static void keep(size_t n) { kept = malloc(n); }
static generator run(const char *name, size_t size) {
	TIDEMARK_SCOPE(name);
	for (int i = 0; i < 3; i++) {
		keep(size);
		co_yield i;
	}
}
static void deeper(generator &g, int calls) {
	if (calls) deeper(g, calls - 1);
	else g.handle.resume();
}
static void plain() {
	TIDEMARK_SCOPE("plain");
	keep(7);
}
int main() {
	generator a = run("a", 100), b = run("b", 1000), c = run("c", 10000);
	deeper(a, 5), plain();
	deeper(b, 1), plain();
	b.handle.resume(), a.handle.resume();
	{
		TIDEMARK_SCOPE("around");
		deeper(b, 3), deeper(b, 4), deeper(a, 9);
	}
	a.handle.resume(), plain();
	std::thread([&] { c.handle.resume(); }).join();
	c.handle.resume();
	c.handle.destroy();
	plain();
	return 0;
}
"""


@test
def a_coroutine_that_is_suspended_in_a_block(t):
    """Its block outlives the frames that it ran in: other blocks open above and below them meanwhile, it ends when its end comes, and what is allocated until then
    is of the scope that began last."""
    t.need("g++")
    with open(t.path("coroutines.cc"), "w", encoding="ascii") as file:
        file.write(COROUTINES)
    db = t.imported(t.record([t.program(t.path("coroutines.cc"), "-std=c++20", cc="g++", name="coroutines")]))
    t.equal(db.rows("select name, end_kind, count(*) from scope where id <> 0 group by name, end_kind"),
            [("a", "closed", 1), ("around", "closed", 1), ("b", "closed", 1), ("c", "closed", 1), ("plain", "closed", 4)], "scopes")
    t.equal(db.rows("select kind from loss"), [], "losses")
    made = db.rows("select s.name, a.size_bytes, count(*) from allocation a join scope s on s.id = a.scope_id where a.size_bytes in (7, 100, 1000, 10000) "
                   "group by s.name, a.size_bytes order by s.name, a.size_bytes")
    t.equal(made, [("[unscoped]", 10000, 1), ("a", 100, 1), ("around", 100, 1), ("around", 1000, 1), ("b", 100, 1), ("b", 1000, 2), ("c", 10000, 1), ("plain", 7, 4)],
            "blocks by scope")


# --- cost

SCOPES = """#include "tidemark.h"
#include <stdlib.h>
static void block(void) { TIDEMARK_SCOPE("a scope"); __asm__ volatile("" ::: "memory"); }
int main(int argc, char **argv) {
	int n = atoi(argv[1]);
	for (int i = 0; i < n; i++) {
		if (argc > 2) block();
		else {
			tidemark_scope_push("a scope");
			tidemark_scope_pop();
		}
	}
	return 0;
}
"""
PAIRS = 20000
PUSHED, BLOCK, BARE = 155, 192, 14


def instructions(t, program, pairs, recorded, *words):
    command = counted(program, str(pairs), *words)
    done = t.record(command, "--force", output=t.path("cost.tmk")) if recorded else t.run(command, status=0)
    if recorded:
        t.check("lost         nothing" in done.errors, done.errors)
    return instructions_of(done)


@test
def cost(t):
    """Instructions of a scope, from the difference of two runs: recorded, and not recorded."""
    t.need("valgrind")
    if t.sanitized:
        t.skip("this build has checks compiled in")
    with open(t.path("cost.c"), "w", encoding="ascii") as file:
        file.write(SCOPES)
    program = t.path("cost")
    t.run(["gcc", "-O2", "-I", os.path.join(t.root, "recorder"), "-o", program, t.path("cost.c")], status=0)
    for words in ((), ("block",)):
        for recorded, limit in ((True, BLOCK if words else PUSHED), (False, BARE)):
            a_scope = (instructions(t, program, 3 * PAIRS, recorded, *words) - instructions(t, program, PAIRS, recorded, *words)) / (2 * PAIRS)
            print(f"{a_scope:.1f} instructions a scope, at most {limit}: {'recorded' if recorded else 'bare'} {words}")
            t.check(a_scope <= limit, f"{a_scope:.1f} instructions a scope, at most {limit} are allowed")
            t.check(a_scope > (20 if recorded else 2), f"{a_scope:.1f} instructions: nothing was done")


main()
