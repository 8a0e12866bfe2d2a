"""Programs that take away from themselves what a recorder might need - system calls, address space, memory that may be paged, the time after a
thread's last destructor, sound pointers - behave as without us, and what was recorded of them is right.

The figures are in the opening comment of fixtures/programs/confined.c.
"""
from tidemark_test import main, test


def confined(t, mode, *options):
    recording = t.same_as_bare([t.program("confined.c"), mode], *options)
    t.equal(recording.status, 0, "exit status")
    return recording


@test
def system_call_filter(t):
    """No call that the filter would answer by killing the program; every event is there, and a note says what is missing."""
    db = t.imported(confined(t, "filter"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 1000, "blocks of 100 bytes")
    t.equal(db.value("select count(*) from loss"), 0, "losses")
    t.equal(db.value("select count(*) from note where kind = 'sandbox' and text like '%seccomp%'"), 1, "notes of the filter")


@test
def system_call_filter_by_system_call(t):
    """The same where the filter is set by syscall(), which is ours for that: what it passes on it passes as it was."""
    db = t.imported(confined(t, "syscall"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 100 and free_ns is not null"), 1000, "blocks of 100 bytes")
    t.equal(db.value("select count(*) from loss"), 0, "losses")
    t.equal(db.value("select count(*) from note where kind = 'sandbox' and text like '%seccomp%'"), 1, "notes of the filter")


@test
def full_ring_behind_a_filter(t):
    """A ring that is full several times over is waited for without a system call."""
    db = t.imported(confined(t, "filter", "--ring=16KiB"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 100"), 1000, "blocks of 100 bytes")


@test
def strict_mode(t):
    """Strict mode takes the clock away: the recording of the process ends with a note."""
    db = t.imported(confined(t, "strict"))
    t.equal(db.value("select count(*) from note where kind = 'sandbox' and text like '%time stamp counter%'"), 1, "notes")
    t.equal(db.value("select count(*) from allocation where size_bytes = 100"), 0, "blocks after it")


@test
def limited_address_space(t):
    """The rings take little of a limited address space."""
    db = t.imported(confined(t, "space"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 10000000"), 20, "blocks of 10 MB")
    t.equal(db.value("select count(*) from allocation where size_bytes = 33"), 1, "blocks of the thread")


@test
def locked_memory(t):
    """The rings are not locked in by the gigabyte."""
    db = t.imported(confined(t, "locked"))
    t.equal(db.value("select count(*) from allocation where size_bytes = 1000"), 1, "blocks of 1,000 bytes")


@test
def frees_after_the_last_destructor(t):
    """What libc frees for a thread after all key destructors is paired with its allocation."""
    db = t.imported(confined(t, "ended"))
    t.equal(db.rows("select kind, count, reason from loss"), [], "losses")
    t.check(db.value("select count(*) from allocation where thread_id <> free_thread_id or free_ns is null") < 20, "blocks that another thread freed")
    t.equal(db.value("select count(distinct thread_id) from allocation a join thread t on t.id = a.thread_id"), 1001, "threads")


@test
def wrong_pointers(t):
    """The kernel refuses wrong pointers of an exec, and we do not follow them."""
    confined(t, "pointers")


main()
