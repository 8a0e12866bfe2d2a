"""A handler of signals that interrupts a call of the malloc family and does not come back to it: what it did, and what comes after it.

Method: fixtures/programs/interrupted.c; an allocator behind ours raises the signal, so that it always comes in the middle of a malloc.
"""
from tidemark_test import main, test


def interrupted(t, how, count, *options, status=3):
    library = t.program("raising_malloc.c", "-shared", "-fPIC", "-fno-builtin", name="libraising_malloc.so")
    program = t.program("interrupted.c", "-O1", "-fno-builtin", "-pthread")
    return t.record(["env", f"LD_PRELOAD={library}", program, how, str(count)], "--quiet", *options, status=status)


def no_loss(t, db, what):
    t.equal(db.rows("select kind, count from loss"), [], f"losses ({what})")


def blocks(db, *sizes):
    return {size: n for size in sizes if (n := db.value(f"select count(*) from allocation where size_bytes = {size}"))}


@test
def handler_that_leaps(t):
    """However many blocks it allocated: mappings, a fork and its wait, and the exit are recorded, also deeper in the stack than the malloc was called."""
    for count in (0, 3, 6, 40):
        db = t.imported(interrupted(t, "leap", count))
        no_loss(t, db, count)
        expected = {1 << 20: 100, 4242: count, 4300: 1} if count else {1 << 20: 100, 4300: 1}
        t.equal(blocks(db, 1 << 20, 4242, 4300), expected, f"mappings and blocks ({count})")
        t.equal(db.rows("select end_kind, end_code from process where end_kind <> 'exec' order by id"), [("exit", 3), ("exit", 5)], f"processes ({count})")


@test
def handler_that_leaps_to_an_exit(t):
    for count in (3, 5):
        db = t.imported(interrupted(t, "exit", count))
        no_loss(t, db, count)
        t.equal(blocks(db, 4242, 4300), {4242: count, 4300: 1}, f"blocks ({count})")
        t.equal(db.value("select exit_ns < end_ns from process where end_kind = 'exit'"), 1, f"the exit has begun before the end ({count})")


@test
def sampled_blocks_after_a_leap(t):
    """Calls that are no samples are not kept: they do not say how far the handler has come."""
    for count in (3, 5, 40):
        db = t.imported(interrupted(t, "frees", count, "--sample=1"))
        t.equal(db.value("select count(free_ns) from allocation where size_bytes = 4000"), count, f"blocks that the handler freed ({count})")
        found = blocks(db, 5000).get(5000, 0)
        t.check(found >= 99, f"{found} of 100 blocks that came next ({count})")


@test
def handler_that_ends_its_thread(t):
    for count in (0, 3, 7):
        db = t.imported(interrupted(t, "thread", count, status=0))
        no_loss(t, db, count)
        t.equal(blocks(db, 4242), {4242: 3 * count} if count else {}, f"blocks ({count})")
        t.equal(db.value("select count(*) from thread where end_ns is not null"), 3, f"threads that ended ({count})")


@test
def handler_that_ends_the_process(t):
    """By an exit: what it did is recorded, and what the handlers of that exit do, with its begin."""
    for how, block in (("exit", {4300: 1}), ("_exit", {}), ("quick_exit", {4300: 1})):
        for count in (3, 5, 70):
            db = t.imported(interrupted(t, f"end_{how}", count, status=7))
            lost = max(count - 64, 0)
            t.equal(db.rows("select kind, count from loss"), [("nested", lost)] if lost else [], f"losses ({how}, {count})")
            t.equal(blocks(db, 4242, 4300), {4242: count - lost, **block}, f"blocks ({how}, {count})")
            t.equal(db.rows("select end_kind, end_code, exit_ns < end_ns from process where end_kind <> 'exec'"), [("exit", 7, 1)], f"process ({how}, {count})")


@test
def handler_whose_process_is_ended(t):
    """Killed, or become another program, which may have failed: what the handler did is not recorded, but counted."""
    for how, status in (("kill", 137), ("abort", 134), ("exec", 0)):
        for count in (0, 5, 70):
            db = t.imported(interrupted(t, f"end_{how}", count, status=status))
            t.equal(db.rows("select kind, sum(count) from loss group by 1"), [("nested", count)] if count else [], f"losses ({how}, {count})")


@test
def handler_with_a_vfork_child(t):
    """Its child leaves, and not the process: the hook is returned to."""
    db = t.imported(interrupted(t, "vfork", 5))
    no_loss(t, db, "vfork")
    t.equal(blocks(db, 777, 4242, 4300, 5000), {777: 1, 4242: 5, 4300: 1, 5000: 100}, "blocks")


TELLS = """#include "tidemark.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static char space[8];
static tidemark_heap pool;
static int made, answer;
static void handle(int number) {
	for (int i = 1; i < 4; i++) tidemark_heap_alloc(pool, space + i, 100 * i);
	tidemark_heap_free(pool, space + 1);
	tidemark_heap_free(pool, space);
	made = tidemark_heap_create("another", NULL) != NULL;
	tidemark_reset_peak("pool");
	tidemark_mark("told");
	struct tidemark_stats s;
	answer = tidemark_stats("pool", &s);
}
int main(void) {
	pool = tidemark_heap_create("pool", NULL);
	tidemark_heap_alloc(pool, space, 50);
	signal(SIGUSR1, handle);
	void *volatile block = malloc(777);
	struct tidemark_stats s;
	int later = tidemark_stats("pool", &s);
	printf("%d %d %d %d %d\\n", made, answer, later, (int)s.live_bytes, s.exact);
}
"""


@test
def handler_that_tells(t):
    """Of a pool's blocks in the middle of a malloc: they are kept, as the heap's are. What cannot be said there (a new pool, a peak, a mark) is counted, and a
    question has no answer."""
    with open(t.path("tells.c"), "w", encoding="ascii") as file:
        file.write(TELLS)
    library = t.program("raising_malloc.c", "-shared", "-fPIC", "-fno-builtin", name="libraising_malloc.so")
    for options in ((), ("--sample=1M",)):
        recording = t.record(["env", f"LD_PRELOAD={library}", t.program(t.path("tells.c"))], *options)
        t.equal(recording.text, "0 -3 0 500 1\n", "what the program hears")
        db = t.imported(recording)
        t.equal(db.rows("select a.size_bytes, a.free_ns is null, a.weight from allocation a join heap h on h.id = a.heap_id where h.name = 'pool' order by 1"),
                [(50, 0, 1), (100, 0, 1), (200, 1, 1), (300, 1, 1)], "blocks of the pool, and whether they live")
        t.equal(db.rows("select kind, count from loss"), [("records", 3)], "losses")


main()
