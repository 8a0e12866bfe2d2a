"""Other libraries that stand behind ours and have functions that are hooked, too: each call goes to the next function of its own name, and counts once.

Method: fixtures/programs/interposed.c, bare and recorded, with one of its libraries preloaded.
"""
from tidemark_test import main, test


def recorded(t, library, *arguments, flags=()):
    behind = t.program("interposed.c", f"-D{library}", *flags, "-shared", "-fPIC")
    return t.same_as_bare(["env", f"LD_PRELOAD={behind}", t.program("interposed.c", "-DPROGRAM"), *arguments])


def mappings(t, recording):
    return t.imported(recording).rows("select api, count(*), count(free_ns) from allocation where size_bytes = 1 << 20 group by 1")


@test
def a_mmap_that_calls_mmap64(t):
    for flags in [], ["-O2"]:
        t.equal(mappings(t, recorded(t, "MMAP", flags=flags)), [("mmap", 100, 0)], f"mappings with {flags}")


@test
def a_mmap64_alone(t):
    """The program was compiled with files' offsets of 64 bits, or without: one function takes both, so it is asked for both."""
    behind = t.program("interposed.c", "-DMMAP64", "-shared", "-fPIC")
    program = t.program("interposed.c", "-DPROGRAM", "-D_FILE_OFFSET_BITS=64")
    recording = t.same_as_bare(["env", f"LD_PRELOAD={behind}", program])
    t.equal(recording.text.splitlines()[:1], ["100 by mmap64"], "the library was asked")
    t.equal(mappings(t, recording), [("mmap", 100, 0)], "mappings")


@test
def an_exit_that_calls_another(t):
    recording = recorded(t, "EXIT")
    t.equal(recording.text, "leaving\n", "output")
    t.equal(t.imported(recording).rows("select end_kind, end_code from process where end_kind <> 'exec'"), [("exit", 5)], "how the program ended")


@test
def a_search_of_its_own_for_programs(t):
    """execvp and execlp are libc's execvpe with `environ`, but for such a library: that may call the one in the other, or have but one of them. Where it does not come
    to our execve, what a vfork child has made of `environ` stays so."""
    for library, name, said, traced in ("EXECVPE", "echo", 7, 6), ("EXECVP", "no-such-program", 3, 3):
        recording = recorded(t, library, name)
        t.equal(sum(":" not in line for line in recording.text.splitlines()), said, f"{library}: children that ran")
        db = t.imported(recording)
        t.equal(db.value("select count(*) from process where command like 'echo %'"), traced, f"{library}: children in the trace")
        t.equal(db.rows("select kind, text from note where kind = 'not-followed'"), [], f"{library}: notes")


@test
def children_by_another_hook(t):
    """One that a fork makes by _Fork, or a posix_spawnp by posix_spawn, is one child."""
    db = t.imported(recorded(t, "CHILDREN", "echo"))
    t.equal(db.value("select count(*) from process where command like 'echo %'"), 7, "children")
    t.equal(db.rows("select count(*), sum(forked), sum(recorded = 0) from process"), [(2 + 7 + 5, 5, 0)], "processes: before and behind each exec")
    t.equal(db.value("select count(*) from note"), 0, "notes")


main()
