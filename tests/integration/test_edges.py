"""Calls at the edge of what libc, the loader and the kernel allow: a recorded program is answered as a bare one.

Method: prog_edges.c says what it was answered, bare and recorded; where the old recorder hung, the program ends itself by an alarm.
"""
import os

from tidemark_test import main, test


def notes(db, kind):
    return [text for text, in db.rows("select text from note where kind = ?", kind)]


@test
def loader_lock_that_waits_for_the_program(t):
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    recording = t.same_as_bare([t.program("prog_edges.c"), "held", plugin])
    t.equal((recording.status, recording.out), (0, b"ok\n"), "a malloc while it is held")
    rows = t.imported(recording).rows("select text, count(*) from allocation join stack_text using (stack_id) where size_bytes = 4001 group by 1")
    t.equal(rows, [("main;held;run;allocate_one", 5)], "the plugin is known as soon as it can be looked at")
    recording = t.same_as_bare([t.program("prog_edges.c"), "inside"])
    t.equal((recording.status, recording.out), (0, b"leaving\n"), "the end while it is held")


@test
def sanitizer_that_is_preloaded(t):
    """It ends a program in which another library comes first."""
    library = t.run(["gcc", "-print-file-name=libasan.so"]).text.strip()
    if not os.path.isabs(library) or t.sanitized:
        t.skip("gcc has no libasan here, or the recorder bears none")
    child = t.program("prog_child.c")
    # The shell runs the child as its own child, with an environment of the child's.
    recording = t.same_as_bare(["sh", "-c", f"ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD={library} {child}; exit $?"])
    t.equal((recording.status, recording.out), (4, b"child\n"), "a child")
    db = t.imported(recording)
    t.equal(["prog_child" in text and "sanitizer" in text for text in notes(db, "not-recordable")], [True], "a note")
    t.equal(db.value("select count(*) from allocation where size_bytes = 777"), 0, "no block of the child's")
    recording = t.record([child], status=None, env={"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"})
    t.equal((recording.status, recording.out), (4, b"child\n"), "the command")
    t.equal(["prog_child" in text and "sanitizer" in text for text in notes(t.imported(recording), "not-recordable")], [True], "a note of the command")


@test
def break_that_stays(t):
    for where in ("zero", "low", "far"):
        recording = t.same_as_bare([t.program("prog_edges.c"), "break", where])
        t.check(recording.out.endswith(b"moved: no\n"), f"{where}: {recording.out}")
        db = t.imported(recording)
        t.equal(db.rows("select size_bytes, count(free_ns) from allocation where api = 'sbrk'"), [(1 << 20, 0)], f"{where}: the break")
        t.equal(db.rows("select size_bytes, count(free_ns) from allocation where api = 'mmap' and size_bytes = 8192"), [(8192, 0)], f"{where}: what lies below")


@test
def names_that_only_the_library_has(t):
    with open(t.path("names.c"), "w", encoding="ascii") as file:
        file.write("void cfree(void *p) {}\nvoid free_sized(void *p, unsigned long n) {}\nint InitializeInjectionNvtx2(void *p) { return 0; }\n")
    library = t.program(t.path("names.c"), "-shared", "-fPIC", name="names.so")
    recording = t.same_as_bare([t.program("prog_edges.c"), "names", library])
    t.equal(recording.text.count(": found, no error"), 4, "names that are found")
    t.equal(recording.text.count("undefined symbol: no_such_name"), 1, "the one that is not")
    db = t.imported(recording)
    t.equal(db.rows("select kind, count, reason from loss"), [], "losses")


@test
def strings_without_an_end(t):
    recording = t.same_as_bare([t.program("prog_edges.c"), "torn"])
    t.equal((recording.status, recording.out.count(b"Bad address")), (0, 4), "answers of exec and spawn")


@test
def tool_of_a_process_that_is_not_recorded(t):
    """A child that is not followed is not told that we are its tool; and who loads us by hand is not recorded for that."""
    program = t.program("prog_edges.c")
    os.mkdir(t.path("here"))
    recording = t.same_as_bare([t.program("prog_run.c"), "fork", program, "tool"], "--follow=off", cwd=t.path("here"))
    t.equal((recording.status, recording.out), (0, b"no tool\n"), "a child")
    done = t.run([program, "tool"], env={"INTEL_LIBITTNOTIFY64": t.library, "TIDEMARK_VERBOSE": "1"}, cwd=t.path("here"), status=0)
    t.equal(done.out, b"loaded\n", "by hand")
    t.check("not preloaded" in done.errors, f"a word why: {done.errors}")
    t.equal(os.listdir(t.path("here")), [], "traces of their own")


@test
def programs_started_without_a_descriptor_left(t):
    recording = t.same_as_bare([t.program("prog_edges.c"), "full", t.program("prog_child.c")])
    t.equal((recording.status, recording.out), (0, b"child\nchild\nchild\n400\n400\n400\n"), "what they say and return")
    db = t.imported(recording)
    t.equal(db.value("select count(*) from allocation where size_bytes = 777"), 3, "they are recorded")
    t.equal(db.rows("select kind, text from note"), [], "notes")


@test
def programs_spawned_from_another_directory(t):
    """By a path from there. One with a sanitizer runs as it would, and another one is recorded where the directory is told by its path."""
    if t.run(["gcc", "-fsanitize=address", "-x", "c", "-o", t.path("probe"), "-"], input=b"int main(void) { return 0; }").status:
        t.skip("gcc has no libasan here")
    with open(t.path("says.c"), "w", encoding="ascii") as file:
        file.write("#include <stdio.h>\n#include <stdlib.h>\nint main(void) { free(malloc(777)); return puts(\"hello\") < 0; }\n")
    os.mkdir(t.path("there"))
    for name, flags in (("plain", []), ("sanitized", ["-fsanitize=address"])):
        t.run(["gcc", "-O0", "-w", "-fno-builtin", *flags, "-o", t.path(f"there/{name}"), t.path("says.c")], status=0)
    for how, name, blocks, reasons in (("path", "plain", 1, 0), ("path", "sanitized", 0, 1), ("fd", "plain", 0, 1), ("fd", "sanitized", 0, 1)):
        recording = t.same_as_bare([t.program("prog_edges.c"), "moved", how, t.path("there"), f"./{name}"])
        t.equal((recording.status, recording.out), (0, b"hello\n0\n"), f"{how} {name}")
        db = t.imported(recording)
        t.equal(db.value("select count(*) from allocation where size_bytes = 777"), blocks, f"{how} {name}: blocks")
        t.equal(len(notes(db, "not-recordable")), reasons, f"{how} {name}: notes")


@test
def mappings_of_dev_zero(t):
    """They are anonymous memory, of the heap mmap and the process' own; a mapped file is neither."""
    for options in ([], ["--stacks=off"]):
        db = t.imported(t.same_as_bare([t.program("dev_zero.c")], *options))
        t.equal(db.rows("select h.name, sum(a.size_bytes) from allocation a join heap h on h.id = a.heap_id where a.size_bytes in (4194304, 2097152, 4096) and h.name like 'mmap%' group by 1"
                        " order by 1"), [("mmap", 6 << 20), ("mmap-file", 4096)], f"with {options}")


main()
