"""Small programs of which every figure is known: what the database says is what their opening comments say.

Rows are chosen by the function that called the allocator, or by sizes that nothing else uses: the C library's own allocations are recorded too.
"""
import glob
import os
import re
import resource
import signal
import struct

from tidemark_test import main, test

# Of one function: rows, bytes, and what of them was freed. The function is found by the site of the row's stack.
BY_FUNCTION = """select coalesce(sum(allocations), 0), coalesce(sum(allocated_bytes), 0), coalesce(sum(live_bytes), 0)
                 from site where heap = 'malloc' and function = ?"""


def recorded(t, source, *arguments, options=(), status=0, flags=(), cc="gcc"):
    recording = t.record([t.program(source, *flags, cc=cc), *arguments], *options, status=status)
    return t.imported(recording)


def by_size(db, low, high):
    return db.rows("select size_bytes, count(*), sum(free_ns is null) from allocation where size_bytes between ? and ? group by 1 order by 1", low, high)


def nothing_lost(t, db):
    t.equal(db.rows("select kind, count, bytes, reason from loss"), [], "losses")
    t.equal(db.rows("select complete from trace"), [(1,)], "complete")


def sound_intervals(t, db):
    """No block is freed before it is allocated, and no address is live twice at a time."""
    t.equal(db.value("select count(*) from allocation where free_ns < alloc_ns"), 0, "blocks freed before they were allocated")
    overlaps = db.value("""select count(*) from (select address, alloc_ns, lag(coalesce(free_ns, 9223372036854775807)) over
        (partition by process_id, heap_id, address order by alloc_ns, id) as freed from allocation where size_bytes > 0) where alloc_ns < freed""")
    t.equal(overlaps, 0, "addresses live twice at a time")


@test
def family(t):
    db = recorded(t, "family.c", status=7)
    nothing_lost(t, db)
    rows = db.rows("""select size_bytes, api, free_ns is null from allocation a join stack_text s on s.stack_id = a.stack_id
                      where s.text = 'main' order by a.id""")
    t.equal(sorted(rows), sorted([(1001, "malloc", 0), (1002, "calloc", 0), (1003, "realloc", 0), (1004, "reallocarray", 1),
                                  (1005, "posix_memalign", 0), (1006, "aligned_alloc", 1), (1007, "memalign", 1), (1008, "valloc", 1),
                                  (1009, "pvalloc", 1), (0, "malloc", 0), (2001, "realloc", 1), (2002, "reallocarray", 1)]), "rows of main")
    t.equal(db.rows("""select n.size_bytes, o.size_bytes, o.free_ns <= n.alloc_ns from allocation n join allocation o on o.id = n.realloc_of_id
                       where n.size_bytes in (2001, 2002) order by 1"""), [(2001, 1001, 1), (2002, 1002, 1)], "what was grown")
    t.equal(db.row("select sum(live_bytes), sum(live_count) from live_at_exit where function = 'main' and heap = 'malloc'"), (9037, 7), "live at exit")
    t.check(db.value("select usable_bytes from allocation where size_bytes = 1009") in (None, 4096 * 1 + 8, 4096, 4104), "usable bytes of pvalloc")
    for size in (1001, 1005, 2002):
        usable = db.value("select usable_bytes from allocation where size_bytes = ?", size)
        t.check(size <= usable < size + 64, f"usable bytes of {size}: {usable}")
    t.equal(db.row("select end_kind, end_code from process"), ("exit", 7), "end")
    # Where only main allocates, the peak is the whole heap's.
    if db.value("select count(*) from allocation a join heap h on h.id = a.heap_id where h.name = 'malloc'") == 12:
        t.equal(db.row("select live_bytes, live_count from peak where heap = 'malloc'"), (11045, 9), "peak")
    sound_intervals(t, db)


def usable_is_as_said(t, *libraries):
    recording = t.record([t.program("usable.c", *libraries)])
    said = dict(tuple(map(int, line.split())) for line in recording.out.decode().splitlines())
    t.equal(len(said), 320, "blocks")
    db = t.imported(recording)
    wanted = {size: [(n if n - size < 65535 else None,)] for size, n in said.items()} # more than that a record does not hold
    t.equal({size: db.rows("select usable_bytes from allocation where size_bytes = ?", size) for size in said}, wanted, "usable bytes")


@test
def usable_bytes(t):
    """What the allocator gave, by its own word: of its first blocks, of later ones, and of those that have a mapping of their own."""
    usable_is_as_said(t)


@test
def usable_bytes_of_jemalloc(t):
    """It is asked what it gives for a size, and for a block where that is large or aligned: an alignment of a page makes a page of a few bytes."""
    usable_is_as_said(t, t.shared_library("libjemalloc.so.2"))


@test
def usable_bytes_of_tcmalloc(t):
    usable_is_as_said(t, t.shared_library("libtcmalloc_minimal.so.4"))


@test
def allocator_in_front_of_libcs(t):
    """One that is preloaded, calls itself, and cannot say how large a block is."""
    plain = t.program("front_allocator.c", "-shared", "-fPIC", name="libfront_allocator.so")
    jumping = t.program("front_allocator.c", "-shared", "-fPIC", "-O2", name="libfront_allocator_jumping.so") # calloc ends by a jump to malloc
    program = t.program("front_allocator.c", "-DPROGRAM")
    for library, *options in ([plain], [plain, "--stacks=off"], [plain, "--sample=1"], [jumping]):
        db = t.imported(t.same_as_bare(["env", f"LD_PRELOAD={library}", program], *options))
        rows = db.rows("""select case when size_bytes between 2000 and 2009 then 2000 else size_bytes end, api, count(*), count(free_ns), count(usable_bytes)
                          from allocation where size_bytes in (999, 1234) or size_bytes between 2000 and 2009 group by 1, 2 order by 1""")
        t.equal(rows, [(999, "calloc", 10, 10, 0), (1234, "malloc", 1, 0, 0), (2000, "realloc", 10, 10, 0)], f"blocks with {options}")
        t.equal(db.rows("select kind, count, reason from loss"), [], f"losses with {options}")


@test
def calls_that_end_by_a_jump(t):
    """From a function behind ours into another one of ours: nothing stands between the two on the stack, and what it does is the first one's all the same."""
    maps = t.program("tail_calls.c", "-DMAPS", "-shared", "-fPIC", "-O2", name="libtail_calls_maps.so")
    allocator = t.program("tail_calls.c", "-shared", "-fPIC", "-O2", "-fno-builtin", name="libtail_calls.so")
    program = t.program("tail_calls.c", "-DPROGRAM")
    for library, *options in ([maps], [maps, "--stacks=off"], [allocator], [allocator, "--sample=1"]):
        db = t.imported(t.same_as_bare(["env", f"LD_PRELOAD={library}", program], *options))
        rows = db.rows("""select api, size_bytes, count(*), count(free_ns) from allocation
                          where size_bytes >= 1 << 20 or size_bytes = 10000 group by 1, 2 order by 1""")
        t.equal(rows, [("malloc", 10000, 100, 0), ("mmap", 1 << 20, 100, 100), ("mremap", 2 << 20, 100, 100)], f"{library}: blocks and mappings with {options}")
        t.equal(db.rows("select kind, count, reason from loss"), [], f"{library}: losses with {options}")


@test
def allocator_without_functions_that_align(t):
    """libc's give such blocks then, which the library cannot be asked about: pvalloc() beside jemalloc, every one beside a library that has none of them."""
    library = t.program("half_allocator.c", "-shared", "-fPIC", name="libhalf_allocator.so")
    program = t.program("half_allocator.c", "-DPROGRAM")
    for preload in (library, None):
        preload = preload or t.shared_library("libjemalloc.so.2")
        db = t.imported(t.same_as_bare(["env", f"LD_PRELOAD={preload}", program]))
        rows = {size: (api, usable) for size, api, usable in db.rows("select size_bytes, api, usable_bytes from allocation"
                                                                     " where size_bytes in (100, 200, 300, 400, 500, 600) and api <> 'calloc'")}
        t.equal({size: api for size, (api, _) in rows.items()}, {100: "malloc", 200: "posix_memalign", 300: "aligned_alloc", 400: "memalign", 500: "valloc", 600: "pvalloc"},
                f"{preload}: the blocks")
        t.equal((rows[100][1], rows[600][1]), (112, None), f"{preload}: what is given for them")
        t.equal([rows[size][1] is None for size in (200, 300, 400, 500)], [preload == library] * 4, f"{preload}: whose the aligned ones are")


@test
def new_with_an_alignment(t):
    """jemalloc's calls aligned_alloc, and its delete nothing of ours: neither is recorded. All others' is either wholly recorded or not at all."""
    program = t.program("aligned_new.cc", "-std=c++17", cc="g++")
    by_function = [(576, 100, 100)]
    everything = [(448, 200, 200), (576, 100, 100), (896, 100, 100)]
    for library in None, "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2", "libtbbmalloc_proxy.so.2":
        if library and not glob.glob(f"/usr/lib/*/{library}"):
            continue
        for options in [], ["--sample=1"]:
            command = ["env", f"LD_PRELOAD={t.shared_library(library)}", program] if library else [program]
            db = t.imported(t.same_as_bare(command, *options))
            rows = db.rows("select size_bytes, count(*), count(free_ns) from allocation where size_bytes in (448, 576, 896) group by 1 order by 1")
            t.check(rows == everything or library and rows == by_function, f"{library}: blocks with {options}: {rows}")
            noted = db.value("select count(*) from note where kind = 'bypassed' and text like '%operator new of its own%'")
            t.check(noted or rows == everything, f"{library}: no note with {options}")


@test
def debugging_allocator_of_libc(t):
    """It is there for old programs alone, by a version that dlsym() does not see, and stays in use: a byte behind a block is noticed."""
    command = ["env", "LD_PRELOAD=libc_malloc_debug.so.0", "MALLOC_CHECK_=3", t.program("behind.c")]
    aborted = 128 + signal.SIGABRT
    if t.run(command).status != aborted:
        t.skip("this C library has no libc_malloc_debug.so")
    t.equal(t.record(command, status=aborted).out, b"malloc_usable_size 20\n", "output")


@test
def what_is_lost_is_counted(t):
    """Every event is in the trace or lost: with all kept, and where the recorder cannot follow. A resize that is lost is two."""
    for options, loses in ([], False), (["--on-full=drop", "--ring=64KiB"], True):
        recording = t.record([t.program("resizes.c")], *options, status=128 + signal.SIGKILL)
        kept = int(re.search(r"events +([0-9,]+)", recording.err.decode()).group(1).replace(",", ""))
        db = t.imported(recording)
        lost = db.value("select coalesce(sum(count), 0) from loss where kind = 'ring-full'")
        t.equal((kept + lost, lost > 0), (840000, loses), f"events with {options}: {kept} and {lost}")


@test
def what_is_lost_and_no_event_is_told_apart(t):
    """Scopes, marks and ends that a full buffer leaves out are counted, but not as events: those are allocations and frees, kept or lost."""
    for options, loses in ([], False), (["--on-full=drop", "--ring=64KiB"], True):
        recording = t.record([t.program("crowded.c")], *options)
        said = [int(n.replace(",", "")) for n in re.findall(r"(?:events|lost) +([0-9,]+)", recording.err.decode())]
        db = t.imported(recording)
        lost = dict(db.rows("select kind, sum(count) from loss where kind in ('ring-full', 'records') group by kind"))
        scopes = db.value("select count(*) from scope where name = 'work'")
        t.equal((said[0] + lost.get("ring-full", 0), sorted(lost)), (240400, ["records", "ring-full"] if loses else []), f"events with {options}: {said}, {lost}")
        t.equal(said[1:], [lost["ring-full"], lost["records"]] if loses else [], "what the closing lines say of it")
        t.check(scopes + lost.get("records", 0) >= 120000, f"{scopes} scopes were kept, {lost} lost")


@test
def who_does_nothing_has_lost_nothing(t):
    """More processes than there are buffers, in a small address space: fork's children that wait, and one that execs a program that does. What they are is no event; what each allocates is one."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")
    source = t.path("many.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include <stdlib.h>\n#include <unistd.h>\n#include <sys/wait.h>\n'
                   'int main(int argc, char **argv) {\n\tint at[2], up[2];\n\tchar c;\n\tif (argc < 2 || pipe(at) || pipe(up)) return argc < 2 ? 0 : 1;\n'
                   '\tfor (int i = 0; i < 100; i++) {\n\t\tif (fork()) continue;\n\t\tif (argv[1][0] == \'1\') free(malloc(77));\n'
                   '\t\tclose(at[1]);\n\t\t_exit(write(up[1], "x", 1) != 1 || read(at[0], &c, 1));\n\t}\n'
                   '\tfor (int i = 0; i < 100; i++) if (read(up[0], &c, 1) != 1) return 2;\n'
                   '\tif (!fork()) _exit(execl(argv[0], argv[0], (char *)0));\n\tif (wait(0) < 0) return 3;\n'
                   '\tclose(at[1]);\n\twhile (wait(0) > 0);\n\treturn 0;\n}\n')
    for blocks in (0, 1):
        few = lambda: resource.setrlimit(resource.RLIMIT_AS, (192 << 20, 192 << 20))
        db = t.imported(t.record([t.program(source), str(blocks)], "--ring=4MiB", preexec=few))
        seen = db.value("select count(*) from allocation where size_bytes = 77")
        lost = db.value("select coalesce(sum(count), 0) from loss")
        t.equal((2 * seen + lost, lost > 0), (200 * blocks, blocks == 1), f"events of 100 children that make {blocks} blocks, and whether some are lost")
        t.check(db.value("select count(*) from process") >= 102, "processes")


@test
def family_without_stacks(t):
    db = recorded(t, "family.c", status=7, options=["--stacks=off"])
    t.equal(len(db.rows("select 1 from allocation where size_bytes between 1001 and 1009 or size_bytes in (2001, 2002)")), 11, "rows")
    t.equal(db.value("select count(*) from allocation where stack_id <> 0"), 0, "rows with a stack")


@test
def family_with_frame_pointers(t):
    db = recorded(t, "family.c", status=7, options=["--stacks=fp"], flags=["-fno-omit-frame-pointer"])
    t.equal(db.value("select count(*) from allocation where size_bytes between 1001 and 1009 or size_bytes in (2001, 2002)"), 11, "rows")
    t.equal(db.value("""select count(*) from allocation a join stack_text s on s.stack_id = a.stack_id
                        where (size_bytes between 1001 and 1009 or size_bytes in (2001, 2002)) and s.text like '%main'"""), 11, "in main")


@test
def without_names(t):
    db = recorded(t, "family.c", status=7, options=["--names=none"])
    t.equal(db.value("select count(*) from frame where function is not null"), 0, "names")
    t.equal(db.value("select count(*) from allocation where size_bytes in (2001, 2002)"), 2, "rows")


@test
def threads(t):
    db = recorded(t, "threads.c")
    nothing_lost(t, db)
    rows = db.rows("""select t.name, sum(s.text like '%churn'), sum(case when s.text like '%churn' then size_bytes end),
                             sum(s.text like '%keep'), sum(case when s.text like '%keep' then size_bytes end), sum(s.text like '%keep' and free_ns is null)
                      from allocation a join thread t on t.id = a.thread_id join stack_text s on s.stack_id = a.stack_id
                      where t.name like 'worker-%' group by 1 order by 1""")
    t.equal(rows, [(f"worker-{n}", 1000, 47020, 3, 300 + 3 * n, 3) for n in range(4)], "by thread")
    t.equal(db.row(BY_FUNCTION, "churn"), (4000, 188080, 0), "churn")
    t.equal(db.row(BY_FUNCTION, "keep"), (12, 1218, 1218), "keep")
    t.equal(db.value("select count(*) from temporary where function = 'keep'"), 0, "temporary in keep")
    t.equal(db.row("select sum(count), sum(bytes) from temporary where function = 'churn'"), (4000, 188080), "temporary in churn")
    t.equal(db.value("select count(*) from thread"), 5, "threads")
    t.equal(db.rows("select name from thread where end_ns is null"), [("threads",)], "name of the thread that lives as long as its process")
    sound_intervals(t, db)


@test
def destructors(t):
    db = recorded(t, "destructors.c")
    nothing_lost(t, db)
    t.equal(by_size(db, 501, 502), [(501, 10, 0), (502, 30, 0)], "blocks of key destructors")
    t.equal(db.row(BY_FUNCTION, "destroy"), (30, 30 * 502, 0), "destroy")


@test
def signals(t):
    db = recorded(t, "signals.c")
    nothing_lost(t, db)
    t.equal(by_size(db, 77, 78), [(77, 1000, 1), (78, 100, 0)], "blocks of signal handlers")
    t.equal(db.row(BY_FUNCTION, "on_signal"), (1000, 77000, 77), "on_signal")
    t.equal(db.row(BY_FUNCTION, "on_other_stack"), (100, 7800, 0), "on_other_stack")
    text = db.value("select distinct s.text from allocation a join stack_text s on s.stack_id = a.stack_id where size_bytes = 77")
    t.check(text.startswith("main;") and text.endswith(";on_signal"), f"stack through the signal frame: {text}")


@test
def floods_of_signals(t):
    """Handlers that interrupt hooks and each other all the time, also where threads begin and end: what they allocated is in the trace or counted as lost."""
    library = t.program("floods.c", "-O2", "-fno-builtin", "-shared", "-fPIC", name="libfloods.so")
    program = t.program("floods.c", "-O2", "-fno-builtin", "-DPROGRAM", "-pthread")
    for words in [[], ["threads"]] * (6 if t.long else 1):
        recording = t.record(["env", f"LD_PRELOAD={library}", program, *words])
        made = [int(word) for word in recording.out.split()]
        db = t.imported(recording)
        kept = db.value("select count(*) from allocation where size_bytes in (50, 77, 78) and api = 'malloc'")
        lost = db.value("select coalesce(sum(count), 0) from loss")
        t.equal(kept + lost, sum(made), f"blocks of {made}, of which {lost} are said to be lost, {words}")
        t.equal(db.value("select count(*) from allocation where size_bytes = 50 and api = 'malloc'"), made[0], f"of no handler, {words}")
        t.check(made[1] + made[2] > 1000, f"blocks of handlers: {made}")


@test
def alternate_stack(t):
    for stacks in ("unwind", "fp", "off"):
        recording = t.record([t.program("altstack.c")], f"--stacks={stacks}")
        t.equal(recording.text, "done\n", f"output with --stacks={stacks}")
        db = t.imported(recording)
        nothing_lost(t, db)
        t.equal(by_size(db, 78, 178), [(78, 200, 0), (178, 200, 0)], f"blocks of the handler with --stacks={stacks}")
        if stacks == "unwind":
            t.equal(db.row(BY_FUNCTION, "on_other_stack"), (400, 200 * (78 + 178), 0), "on_other_stack")


@test
def early(t):
    db = recorded(t, "early.c")
    nothing_lost(t, db)
    t.equal(by_size(db, 301, 305), [(301, 1, 1), (302, 1, 1), (303, 1, 0), (304, 1, 0), (305, 1, 1)], "rows")
    own = "stack_id in (select stack_id from allocation where size_bytes between 301 and 305)"
    t.equal(db.row(f"select sum(live_bytes), sum(live_count) from live_at_exit where heap = 'malloc' and {own}"), (1210, 4), "live at exit")
    t.equal(db.row(f"select sum(live_bytes), sum(live_count) from live_at_end where heap = 'malloc' and {own}"), (908, 3), "live at end")


@test
def passing(t):
    db = recorded(t, "passing.c", "50000" if t.long else "20000")
    nothing_lost(t, db)
    rounds = 50000 if t.long else 20000
    t.equal(db.row("select count(*), sum(free_ns is null) from allocation a join stack_text s on s.stack_id = a.stack_id where s.text like '%work'"),
            (4 * rounds, 0), "blocks handed over, and left")
    t.equal(db.rows("select kind, text from note where kind like '%lost%'"), [], "notes of lost frees")
    sound_intervals(t, db)


@test
def thousand_short_threads(t):
    db = recorded(t, "short_threads.c")
    nothing_lost(t, db)
    t.equal(by_size(db, 200, 209), [(200 + n, 100, 0 if n % 2 else 100) for n in range(10)], "blocks")
    t.equal(db.value("select count(*) from thread"), 1001, "threads")
    t.equal(db.row(BY_FUNCTION, "visit"), (1000, 500 * 200 + 100 * 20 + 500 * 200 + 100 * 25, 102000), "visit")


@test
def recursion(t):
    for depth in (1, 100, 900):
        db = recorded(t, "recursion.c", str(depth))
        text = db.value("select s.text from allocation a join stack_text s on s.stack_id = a.stack_id where size_bytes = 64 and s.text like '%dive'")
        t.equal(text, ";".join(["main"] + ["dive"] * depth), f"stack of depth {depth}")
        t.equal(db.row("select self_count, total_count, self_bytes, total_bytes from function_total where function = 'dive'"), (1, 1, 64, 64),
                "a recursive function counts once")
        t.equal(db.row("select total_count, total_bytes from function_total where function = 'main'"), (2, 129), "main")


@test
def deeper_than_the_limit(t):
    db = recorded(t, "recursion.c", "500", options=["--max-depth=20"])
    text, depth = db.row("select s.text, k.depth from allocation a join stack_text s on s.stack_id = a.stack_id join stack k on k.id = a.stack_id where size_bytes = 64")
    t.check(text.endswith(";dive;dive;dive") and depth <= 21, f"stack cut at 20 frames: {depth} {text}")


@test
def outermost_frames(t):
    """Of a thread's start-up nothing is told; what else of libc's is outermost is, whoever's stack it is: one cut by --max-depth, or a coroutine's."""
    for options in ([], ["--max-depth=3"], ["--max-depth=5"], ["--max-depth=6"]):
        db = recorded(t, "outermost.c", options=options, flags=["-fno-builtin"])
        threads = db.rows("select distinct a.thread_id from allocation a where size_bytes between 701 and 804 order by 1")
        t.equal(len(threads), 3, f"{options}: the first thread, the other one, and its child")
        first, *others = [db.rows("select size_bytes % 100, count(*), s.text, k.depth from allocation a join stack_text s using(stack_id) join stack k on k.id = a.stack_id"
                                  " where size_bytes between 701 and 804 and a.thread_id = ? group by 1, 3 order by 1, 3", thread) for thread, in threads]
        first = [(size, count, text.removeprefix("main;"), depth - text.startswith("main;")) for size, count, text, depth in first]
        for other in others:
            t.equal(other, first, f"{options}: what the first thread has, but for main")
        depths = {size: [depth for n, _, _, depth in first if n == size] for size in (1, 2, 3, 4)}
        if options:
            t.check(min(depths[1]) >= int(options[0].split("=")[1]), f"{options}: as many frames as it says, or more where some are inlined: {depths[1]}")
        else:
            t.check(all(text.startswith("work;do_all;deeper;") for size, _, text, _ in first if size == 1), f"whole stacks: {first}")
            t.check(all(text.startswith("work;do_all;interrupt;") and text.endswith(";handle") for size, _, text, _ in first if size == 4), f"a handler's: {first}")
            t.check(all(";visit" in text and not text.startswith("visit") for size, _, text, _ in first if size == 2), f"a coroutine begins in libc: {first}")
            t.check(all("qsort" in text for size, _, text, _ in first if size == 3), f"one that begins in qsort(): {first}")


@test
def cxx(t):
    db = recorded(t, "cxx.cc", cc="g++")
    nothing_lost(t, db)
    t.equal(by_size(db, 701, 706), [(701, 1, 0), (703, 1, 0), (704, 1, 0), (705, 1, 1), (706, 1, 0)], "operator new")
    t.equal(by_size(db, 800, 800), [(800, 100, 0)], "blocks freed by exceptions")
    for function, wanted in (("make()", 3), ("keep()", 1)):
        t.equal(db.value("select sum(allocations) from site where function = ? or function = ?", function, function[:-2]), wanted, function)
    texts = db.rows("select distinct s.text from allocation a join stack_text s on s.stack_id = a.stack_id where size_bytes = 705")
    t.check(texts in ([("main;keep()",)], [("main;keep",)]), f"operator new is no frame: {texts}")


@test
def planted_leak(t):
    recording = t.record([t.program("leak.c")])
    db = t.imported(recording)
    t.equal(recording.out, b"served 1000 requests\n", "output")
    t.equal(db.row("select sum(live_bytes), sum(live_count) from live_at_exit where function = 'remember'"), (51200, 100), "leak")
    t.equal(db.row(BY_FUNCTION, "parse"), (1000, 256000, 0), "parse")
    text = db.value("select t.text from live_at_exit l join stack_text t on t.stack_id = l.stack_id where l.function = 'remember'")
    t.equal(text, "main;serve;handle;remember", "stack")
    file, line = db.row("select file, line from live_at_exit where function = 'remember'")
    source = open(f"{t.root}/fixtures/programs/leak.c", encoding="utf-8").read().splitlines()
    t.check(file.endswith("leak.c") and "malloc(sizeof(*note))" in source[line - 1], f"line of the leak: {file}:{line}")
    t.equal(db.value("select sum(live_bytes) from peak_site where function = 'build_index'"), 1 << 20, "the index at the peak")
    # The peak comes in request 600, just before the index is freed: 61 notes (0, 10, ... 600) and one request.
    t.equal(db.value("select sum(live_count) from peak_site where function = 'remember'"), 61, "notes at the peak")
    t.equal(db.value("select sum(live_bytes) from peak_site where function in ('build_index', 'remember', 'parse')"), 1048576 + 61 * 512 + 256, "peak")


@test
def segments_that_lie_apart(t):
    """A program's code and its unwinding tables, with nothing mapped between them: as ld linked for years, and official builds of Node still are; and with what the
    table leads to among the data, as in NVIDIA's ptxas."""
    written = t.path("written.s")
    with open(written, "w", encoding="ascii") as file:
        file.write('.section .eh_frame,"aw",@progbits\n.section .note.GNU-stack,"",@progbits\n')
    for kind in (["-no-pie", "-fno-pic"], ["-pie", "-fPIE"], ["-no-pie", "-fno-pic", "-Wl,-z,noseparate-code", written]):
        program = t.program("leak.c", *kind, "-fomit-frame-pointer", "-Wl,-z,max-page-size=0x200000")
        if written in kind:
            sections = t.run(["readelf", "-SW", program], status=0).text
            t.check(re.search(r" \.eh_frame +PROGBITS .* WA ", sections), sections)
        db = t.imported(t.record([program]))
        t.equal(db.rows("select distinct t.text from live_at_exit l join stack_text t on t.stack_id = l.stack_id where l.function = 'remember'"),
                [("main;serve;handle;remember",)], "stack")
        t.equal(db.rows("select kind, text from note"), [], "notes")


@test
def notes_in_one_segment(t):
    """The processor's properties, aligned to eight, and the build-id behind them in one segment of notes, as mold lays them out."""
    program = t.path("noted")
    with open(t.program("leak.c"), "rb") as file:
        image = bytearray(file.read())
    table, count = struct.unpack_from("<Q", image, 32)[0], struct.unpack_from("<H", image, 56)[0]
    headers = [list(struct.unpack_from("<IIQQQQQQ", image, table + 56 * i)) for i in range(count)]
    notes = sorted(header[2:6] + [i] for i, header in enumerate(headers) if header[0] == 4)
    (offset, address, _, _, _), end = notes[0], notes[-1][0] + notes[-1][3]
    for *_, i in notes:
        struct.pack_into("<IIQQQQQQ", image, table + 56 * i, 4, 4, offset, address, address, end - offset, end - offset, 8)
    with open(program, "wb") as file:
        file.write(image)
    os.chmod(program, 0o755)
    db = t.imported(t.record([program]))
    t.equal(db.rows("select distinct t.text from live_at_exit l join stack_text t on t.stack_id = l.stack_id where l.function = 'remember'"),
            [("main;serve;handle;remember",)], "stack")
    t.equal(db.rows("select kind, text from note"), [], "notes")


@test
def audited(t):
    """An auditor that follows calls between libraries: the program runs as it does without us, and every call is seen, with its callers."""
    auditor = t.program("audits.c", "-shared", "-fPIC", name="audits.so")
    recording = t.record(["env", f"LD_AUDIT={auditor}", t.program("leak.c")])
    t.equal(recording.out, b"served 1000 requests\n", "output")
    db = t.imported(recording)
    t.equal(db.rows("select function, total_bytes, total_count from function_total where heap = 'malloc' and function in ('parse', 'remember') order by 1"),
            [("parse", 256000, 1000), ("remember", 51200, 100)], "what both allocated")


@test
def own_realloc(t):
    """A program that has just a realloc of its own: what is resized by it is not seen, and a note says so. Where all are ours there is none."""
    with open(t.path("own.c"), "w", encoding="ascii") as file:
        file.write("#include <stdlib.h>\nvoid *__libc_realloc(void *, size_t);\nvoid *realloc(void *p, size_t n) { return __libc_realloc(p, n); }\n"
                   "int main(void) { for (int i = 0; i < 10; i++) free(realloc(malloc(3000), 9000)); return 0; }\n")
    program = t.program(t.path("own.c"), name="own_realloc")
    db = t.imported(t.same_as_bare([program]))
    t.equal(db.rows("select text from note where kind = 'static-allocator'"),
            [(f"the program's realloc is defined in {os.path.realpath(program)}, in front of tidemark's: of what goes through it only what it passes on is in this trace",)], "notes")
    t.equal(db.value("select count(*) from allocation where size_bytes = 9000"), 0, "what is resized by it")
    t.equal(t.imported(t.record([t.program("hello.c")], "--quiet")).value("select count(*) from note where kind = 'static-allocator'"), 0, "of another program")


@test
def own_allocator(t):
    """A note says that the program's own malloc is not seen, by the program's name and not by what it is called with."""
    program = t.program("own_malloc.c")
    bare = t.run([program])
    for command in ([program], ["bash", "-c", f"exec -a 'title --secret' {program}"]):
        recording = t.record(command, status=3)
        t.equal(recording.out, bare.out, "output")
        db = t.imported(recording)
        t.equal(db.value("select count(*) from allocation a join process p on p.id = a.process_id where p.end_code = 3 and size_bytes = 40"), 0, "rows")
        t.equal(db.rows("select text from note where kind = 'static-allocator'"),
                [(f"the program's malloc is defined in {os.path.realpath(program)}, in front of tidemark's: of what goes through it only what it passes on is in this trace",)],
                "notes")
        t.check("unrecorded   some allocations: " in recording.errors, f"the summary: {recording.errors}")
        warned = t.ask("check", db.path, "--max-leak=1G").errors
        t.check("of 1 process some allocations may be missing" in warned, f"check: {warned}")


ROOMY = """#include <stdlib.h>
void *volatile kept;
__attribute__((noinline)) static void leaf(int k) { volatile char room[PAD]; room[0] = k; kept = malloc(1000 + k); room[1] = room[0]; }
__attribute__((noinline)) static void outer(int k) { leaf(k); kept = NULL; }
int main(void) { for (int i = 0; i < 5; i++) outer(i); return 0; }
"""


@test
def a_build_id_of_a_whole_project(t):
    """Chosen by hand, it says nothing of what a program is: two of the same layout, whose functions' frames differ, have no rules in common."""
    with open(t.path("roomy.c"), "w", encoding="ascii") as file:
        file.write(ROOMY)
    programs = [t.program(t.path("roomy.c"), "-O2", "-fno-stack-protector", "-Wl,--build-id=0x1122334455667788", f"-DPAD={size}", name=f"roomy{size}") for size in (24, 104)]
    db = t.imported(t.record(["sh", "-c", "; ".join(programs)]))
    t.equal(db.rows("select s.text, count(*) from allocation a join stack_text s on s.stack_id = a.stack_id where a.size_bytes between 1000 and 1004 group by 1"),
            [("main;outer;leaf", 10)], "stacks of both")


main()
