"""Calls at the edge of what libc, the loader and the kernel allow: a recorded program is answered as a bare one.

Method: prog_edges.c says what it was answered, bare and recorded; where the old recorder hung, the program ends itself by an alarm.
"""
from tidemark_test import main, test


@test
def loader_lock_that_waits_for_the_program(t):
    plugin = t.program("prog_plugin.c", "-shared", "-fPIC", "-DFUNCTION=allocate_one", "-DSIZE=4001", name="plugin_one.so")
    recording = t.same_as_bare([t.program("prog_edges.c"), "held", plugin])
    t.equal((recording.status, recording.out), (0, b"ok\n"), "a malloc while it is held")
    rows = t.imported(recording).rows("select text, count(*) from allocation join stack_text using (stack_id) where size_bytes = 4001 group by 1")
    t.equal(rows, [("main;held;run;allocate_one", 5)], "the plugin is known as soon as it can be looked at")
    recording = t.same_as_bare([t.program("prog_edges.c"), "inside"])
    t.equal((recording.status, recording.out), (0, b"leaving\n"), "the end while it is held")


main()
