"""What recording adds to a malloc and its free, in instructions: a guard that does not depend on how busy the machine is.

Method: tests/bench/pairs.c runs under cachegrind with N and with 3 N pairs, bare and recorded. The difference between the two runs is 2 N pairs without start-up
and end; what it is more when recorded, divided by 2 N, is what a pair costs. Repeats to an instruction or two. The limits are about a tenth above what is
reached, so that whoever makes the hot path dearer sees it here.
"""
import os
import re
import shutil
import sqlite3
import sys

from tidemark_test import ROOT, counted, instructions_of, main, settled, test
from trace_writer import Trace, free, launch, malloc, scope, use

PAIRS = 20000
ONE, RANDOM, OFF, SAMPLED, FP, FP_RANDOM = 385, 850, 175, 21, 465, 870
# What clang makes is dearer there; the others hold for both compilers.
ONE_BY_CLANG, RANDOM_BY_CLANG, OFF_BY_CLANG, SAMPLED_BY_CLANG = 410, 930, 185, 26
COLLECTOR_ONE_BY_CLANG, COLLECTOR_RANDOM_BY_CLANG, COLLECTOR_PYTHON_BY_CLANG = 400, 1345, 620
FRAMED_ONE, FRAMED_LEAF, FRAMED_RANDOM = 465, 555, 1310 # programs built with frame pointers, as Fedora and Ubuntu build all: two words a frame
FRAMED = ("-fno-omit-frame-pointer",)
DEVICE_BLOCK, LOADED, FOLDED_FRAME, GROUPED_BLOCK, LISTED_ROW = 82000, 150000, 43, 7500, 30000
CHANGED_STACK, ENDED_STACK, RANGED_BLOCK = 93000, 23500, 640
LISTED_BLOCK = {"peak": 2150, "timeline": 2950}
BESIDE_SAMPLES = 47
SAMPLED_BLOCK = {"peak": 5800, "timeline": 27000, "summary": 3000, "processes": 3000}
PPROF_SAMPLE, PPROF_WINDOW_SAMPLE, REPORT_STACK, CHECKED_STACK, COMPARED_STACK, CHOSEN_STACK = 23000, 168000, 44000, 5700, 25500, 3700
ADDED_STACK = 15500
EXPORTED_STACK = {"speedscope": 26000, "csv": 26000, "heaptrack": 23500}
COLLECTOR_ONE, COLLECTOR_RANDOM, COLLECTOR_PYTHON = 400, 1225, 575 # an event, compression and writing included; valgrind counts each byte of "rep movsb", some 30 an event


def instructions(t, pairs, program, stacks, options):
    """Of the program alone, not of the recorder."""
    command = counted(program, f"--pairs={pairs}", "--depth=30", f"--stacks={stacks}")
    done = t.run(command, status=0) if options is None else t.record(command, "--force", *options, output=t.path("pairs.tmk"))
    if options is not None:
        t.check("lost         nothing" in done.errors, f"the recording lost something:\n{done.errors}")
    return instructions_of(done)


BARE = {}  # what a pair takes when nobody records: the same in each test


def a_pair(t, program, stacks, options):
    return (instructions(t, 3 * PAIRS, program, stacks, options) - instructions(t, PAIRS, program, stacks, options)) / (2 * PAIRS)


def need_counts(t):
    t.need("valgrind")
    if t.sanitized:
        t.skip("this build has checks compiled in")


def added(t, stacks, *options, flags=()):
    need_counts(t)
    program = t.program(os.path.join(ROOT, "tests/bench/pairs.c"), "-O2", *flags)
    if (program, stacks) not in BARE:
        BARE[program, stacks] = a_pair(t, program, stacks, None)
    return a_pair(t, program, stacks, options) - BARE[program, stacks]


def pair_at_most(t, limit, measure):
    cost = settled(measure, lambda figure: 5 < figure <= limit)
    print(f"{cost:.1f} instructions a pair, at most {limit}")
    t.check(cost <= limit, f"recording adds {cost:.1f} instructions to a malloc and its free; at most {limit} are allowed")
    t.check(cost > 5, f"{cost:.1f} instructions: nothing was recorded")


def at_most(t, limit, *arguments, **how):
    pair_at_most(t, limit, lambda: added(t, *arguments, **how))


def by_clang(t):
    with open(os.path.join(t.build, "lib/libtidemark.so"), "rb") as library:
        return b"clang version" in library.read()


@test
def one_stack(t):
    at_most(t, ONE_BY_CLANG if by_clang(t) else ONE, "one")


@test
def random_stacks(t):
    at_most(t, RANDOM_BY_CLANG if by_clang(t) else RANDOM, "random")


@test
def without_stacks(t):
    at_most(t, OFF_BY_CLANG if by_clang(t) else OFF, "one", "--stacks=off")


@test
def sampled(t):
    at_most(t, SAMPLED_BY_CLANG if by_clang(t) else SAMPLED, "one", "--sample=512KiB")


def spread_pair(t, *options):
    """What one of spread.c's pairs, of which there are 4,608 a round, takes more with --sample than bare."""
    need_counts(t)
    program = t.program("spread.c", "-O2")
    bare, sampled = (of_program(t, recorded, program, "10", options=options) - of_program(t, recorded, program, "2", options=options)
                     for recorded in (False, True))
    return (sampled - bare) / 4608 / (10 - 2)


@test
def sampled_in_all_pages(t):
    """Wherever blocks lie, a free costs no more: the recorder's own memory does not look like the program's."""
    pair_at_most(t, SAMPLED_BY_CLANG if by_clang(t) else SAMPLED, lambda: spread_pair(t, "--sample=1GiB"))


@test
def sampled_beside_samples(t):
    """Nearly each large block is a sample, and so the page of nearly each small one holds one. Of the small ones one in 256 is a sample itself."""
    pair_at_most(t, BESIDE_SAMPLES, lambda: spread_pair(t, "--sample=4KiB"))


@test
def one_framed_stack(t):
    at_most(t, FRAMED_ONE, "one", flags=FRAMED)


@test
def framed_stacks_that_come_again(t):
    at_most(t, FRAMED_LEAF, "leaf", flags=FRAMED)


@test
def random_framed_stacks(t):
    at_most(t, FRAMED_RANDOM, "random", flags=FRAMED)


@test
def by_frame_pointers(t):
    at_most(t, FP, "one", "--stacks=fp", flags=FRAMED)


@test
def random_by_frame_pointers(t):
    at_most(t, FP_RANDOM, "random", "--stacks=fp", flags=FRAMED)


def collector(t, pairs, stacks):
    """Of the recorder alone."""
    program = t.program(os.path.join(ROOT, "tests/bench/pairs.c"), "-O2")
    done = t.run(counted(t.recorder, "--force", "--names=none", "--interval=0", "-o", t.path("pairs.tmk"), "--",
                         program, f"--pairs={pairs}", "--depth=30", f"--stacks={stacks}"), status=0)
    t.check("lost         nothing" in done.errors, f"the recording lost something:\n{done.errors}")
    return instructions_of(done)


JSON = """import json, sys
d = [{"id": i, "name": "x" * (i % 50), "list": list(range(i % 20))} for i in range(300)]
for _ in range(int(sys.argv[1])): json.loads(json.dumps(d))"""


def of_python(t, rounds):
    """The recorder's instructions and its events, of a program whose native and Python stacks both change all the time."""
    done = t.run(counted(t.recorder, "--force", "--names=none", "--interval=0", "-o", t.path("json.tmk"), "--",
                         sys.executable, "-c", JSON, str(rounds)), status=0, env={"PYTHONMALLOC": "malloc"})
    t.check("lost         nothing" in done.errors, f"the recording lost something:\n{done.errors}")
    events = int(re.search(r"events +([\d,]+)", done.errors)[1].replace(",", ""))
    return instructions_of(done), events


def an_event(t, limit, stacks):
    need_counts(t)
    cost = settled(lambda: (collector(t, 12 * PAIRS, stacks) - collector(t, 4 * PAIRS, stacks)) / (2 * 8 * PAIRS), lambda figure: 50 < figure <= limit)
    print(f"{cost:.1f} instructions an event, at most {limit}")
    t.check(50 < cost <= limit, f"the recorder takes {cost:.1f} instructions an event; at most {limit} are allowed")


@test
def recorder_of_one_stack(t):
    an_event(t, COLLECTOR_ONE_BY_CLANG if by_clang(t) else COLLECTOR_ONE, "one")


@test
def recorder_of_random_stacks(t):
    an_event(t, COLLECTOR_RANDOM_BY_CLANG if by_clang(t) else COLLECTOR_RANDOM, "random")


@test
def recorder_of_python(t):
    need_counts(t)

    def an_event_of_python():
        few, many = of_python(t, 4), of_python(t, 16)
        return (many[0] - few[0]) / (many[1] - few[1])

    cost = settled(an_event_of_python, lambda figure: 50 < figure <= COLLECTOR_PYTHON)
    limit = COLLECTOR_PYTHON_BY_CLANG if by_clang(t) else COLLECTOR_PYTHON
    print(f"{cost:.1f} instructions an event, at most {limit}")
    t.check(50 < cost <= limit, f"the recorder takes {cost:.1f} instructions an event; at most {limit} are allowed")


MAPPINGS = """#include <stdlib.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
	for (int i = 0; i < atoi(argv[argc - 1]); i++)
		if (mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
	return 0;
}
"""


@test
def recorder_of_many_mappings(t):
    """Each below the last: what there is already may not be moved for one more."""
    need_counts(t)
    with open(t.path("mappings.c"), "w") as f:
        f.write(MAPPINGS)
    program = t.program(t.path("mappings.c"))

    def of_mappings(n, *options):
        done = t.run(counted(t.recorder, "--force", "--names=none", "--interval=0", *options, "-o", t.path("mappings.tmk"), "--", program, str(n)), status=0)
        t.check("lost         nothing" in done.errors, f"the recording lost something:\n{done.errors}")
        return instructions_of(done)

    for options, limit in (((), 4000), (("--max-size=16MiB,ring",), 20000)):
        def a_mapping():
            return (of_mappings(20000, *options) - of_mappings(10000, *options)) / 10000

        cost = settled(a_mapping, lambda figure: 50 < figure <= limit)
        print(f"{cost:.1f} instructions a mapping {' '.join(options)}, at most {limit}")
        t.check(50 < cost <= limit, f"the recorder takes {cost:.1f} instructions for one of many mappings {options}; at most {limit} are allowed")


# Coroutines that take turns, on the main thread and on another one; then threads that are all there at once. There are a thousand mappings besides.
STACKS = """#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define COROUTINES 16
#define BYTES 65536

static __thread ucontext_t back, of[COROUTINES];
static pthread_barrier_t all_there;
static void *volatile sink;

__attribute__((noinline)) static void work(void) {
	sink = malloc(100);
	free(sink);
	__asm__ volatile("");
}

static void body(int number) {
	for (;;) {
		work();
		swapcontext(&of[number], &back);
	}
}

static void *take_turns(void *turns) {
	for (int i = 0; i < COROUTINES; i++) {
		char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (getcontext(&of[i]) || stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE)) exit(1);
		of[i].uc_stack.ss_sp = stack;
		of[i].uc_stack.ss_size = BYTES;
		makecontext(&of[i], (void (*)(void))body, 1, i);
	}
	for (long i = 0; i < (long)turns; i++) swapcontext(&back, &of[i % COROUTINES]);
	return NULL;
}

static void *be_there(void *unused) {
	work();
	pthread_barrier_wait(&all_there);
	return unused;
}

int main(int argc, char **argv) {
	long n = atol(argv[2]);
	pthread_t threads[1000];
	for (int i = 0; i < 1000; i++)
		if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
	if (*argv[1] == 'm') {
		take_turns((void *)n);
	} else if (*argv[1] == 'o') {
		if (pthread_create(threads, NULL, take_turns, (void *)n) || pthread_join(threads[0], NULL)) return 1;
	} else {
		pthread_barrier_init(&all_there, NULL, (unsigned)n);
		for (long i = 0; i < n; i++)
			if (pthread_create(&threads[i], NULL, be_there, NULL)) return 1;
		for (long i = 0; i < n; i++) pthread_join(threads[i], NULL);
	}
	return argc != 3;
}
"""


def of_program(t, recorded, *command, options=()):
    """Instructions of a program, bare or recorded with these options."""
    command = counted("--max-threads=300", *command)
    done = t.record(command, "--force", "--names=none", *options, output=t.path("counted.tmk")) if recorded else t.run(command, status=0)
    return instructions_of(done)


def on_stacks(t, what, few, many, limit):
    """Where the program maps much, nobody may read all mappings again and again to know which of them is the stack."""
    need_counts(t)
    with open(t.path("stacks.c"), "w") as f:
        f.write(STACKS)
    program = t.program(t.path("stacks.c"), "-O2", "-pthread")

    def of(n, recorded):
        return of_program(t, recorded, program, what, str(n))

    cost = settled(lambda: (of(many, True) - of(few, True) - of(many, False) + of(few, False)) / (many - few), lambda figure: 50 < figure <= limit)
    print(f"{what}: {cost:.1f} instructions, at most {limit}")
    t.check(50 < cost <= limit, f"{what}: {cost:.1f} instructions; at most {limit} are allowed")


@test
def coroutines_of_the_main_thread(t):
    on_stacks(t, "main", 2000, 6000, 5000)


@test
def coroutines_of_another_thread(t):
    on_stacks(t, "other", 2000, 6000, 5000)


@test
def threads_at_once(t):
    on_stacks(t, "threads", 50, 250, 20000)


LOADS = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	for (int i = 0; i < atoi(argv[2]); i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%d.so", argv[1], i);
		void *library = dlopen(path, RTLD_NOW);
		if (!library) return 1;
		free(((void *(*)(void))dlsym(library, "allocate"))());
	}
	return argc != 3;
}
"""


@test
def libraries_one_after_the_other(t):
    """Each is looked into once, not again with each that comes after it."""
    need_counts(t)
    with open(t.path("loads.c"), "w") as f:
        f.write(LOADS)
    with open(t.path("library.c"), "w") as f:
        f.write("#include <stdlib.h>\nvoid *allocate(void) { char *volatile block = malloc(77); return block; }\n")
    program = t.program(t.path("loads.c"), "-O2", "-ldl")
    library = t.program(t.path("library.c"), "-O2", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-s")
    os.mkdir(t.path("libraries"))
    for i in range(600):
        shutil.copy(library, t.path(f"libraries/{i}.so"))

    def of(n, recorded):
        return of_program(t, recorded, program, t.path("libraries"), str(n))

    cost = settled(lambda: (of(600, True) - of(300, True) - of(600, False) + of(300, False)) / 300, lambda figure: 1000 < figure <= LOADED)
    print(f"{cost:.1f} instructions a library, at most {LOADED}")
    t.check(1000 < cost <= LOADED, f"one more library costs {cost:.1f} instructions; at most {LOADED} are allowed")


def grows_evenly(t, what, run, n):
    """run(n) gives the instructions of n: from 2 n to 4 n it is twice as many more as from n to 2 n, where each costs the same, and four times where each costs as
    much as there are."""
    need_counts(t)

    def growth():
        few, some, many = run(n), run(2 * n), run(4 * n)
        print(f"{what}: {few} instructions of {n}, {some} of {2 * n}, {many} of {4 * n}")
        return (many - some) / (some - few)

    ratio = settled(growth, lambda figure: 1 < figure < 2.4)
    t.check(1 < ratio < 2.4, f"{what}: instructions grow {ratio:.2f} times as much as they did one doubling before")


def of_command(t, *arguments, status=0):
    return instructions_of(t.run(counted(t.tidemark, *arguments), status=status))


def imported(t, trace):
    """There is no database before: to replace one takes instructions, too."""
    if os.path.exists(t.path("import.db")):
        os.unlink(t.path("import.db"))
    return of_command(t, "import", trace, "-o", t.path("import.db"))


def in_ranges(t, ranges, heaps, order):
    """Ranges that are all open at once, in each of which each heap is touched, and freed when most have ended."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    for i in range(heaps):
        trace.heap(10 + i, 1, f"pool-{i}", "program")
    steps = []
    for i in range(ranges):
        steps.append(lambda ns, i=i: scope("scope_range", ns, trace.string(f"range-{i}"), key=i + 1))
        steps += [lambda ns, i=i, k=k: malloc(ns, 0x10000 + 64 * (heaps * i + k), 64, op="heap_alloc", heap=10 + k) for k in range(heaps)]
    for i in sorted(range(ranges), key=order):
        steps += [lambda ns, i=i, k=k: free(ns, 0x10000 + 64 * (heaps * i + k), op="heap_free", heap=10 + k) for k in range(0, heaps, 2)]
    for i in sorted(range(ranges), key=order):
        steps.append(lambda ns, i=i: scope("scope_end", ns, key=i + 1))
    trace.events(1, [step(1000 + i) for i, step in enumerate(steps)])
    trace.exit(1, 1000 + len(steps))
    trace.end(1, 1001 + len(steps))
    return imported(t, trace.save(t.path("ranges.tmk")))


@test
def import_of_ranges_that_overlap(t):
    grows_evenly(t, "ranges", lambda n: in_ranges(t, n, 1, lambda i: i * 7919 % 10007), 1000)


@test
def import_of_scopes_in_many_heaps(t):
    grows_evenly(t, "heaps", lambda n: in_ranges(t, 4, n, lambda i: i), 300)


def of_scopes(t, events):
    """events: of a trace with these, what the one thread does in turn, but for the times."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    steps = events(trace)
    trace.events(1, [dict(step, time=1000 + i) for i, step in enumerate(steps)])
    trace.exit(1, 1000 + len(steps))
    trace.end(1, 1001 + len(steps))
    return imported(t, trace.save(t.path("scopes.tmk")))


@test
def import_of_scopes_on_many_stacks(t):
    """Coroutines, each of which is in a block. The first one's stack is the lowest."""
    def on_many_stacks(n):
        stacks = [0] + list(range(n - 1, 0, -1))
        return of_scopes(t, lambda trace: [scope("scope_block", 0, trace.string("wait"), key=i + 1, link=0x10000000000 + (at << 28)) for i, at in enumerate(stacks)])

    grows_evenly(t, "stacks", on_many_stacks, 1200)


@test
def import_of_pushes_of_many_categories(t):
    """Each is closed before those that were pushed after it."""
    def in_turn(n):
        def events(trace):
            categories = [trace.string(f"domain-{i}") for i in range(n)]
            return ([scope("scope_push", 0, trace.string("wait"), category, link=1) for category in categories] +
                    [scope("scope_end", 0, 0, category) for category in categories])

        return of_scopes(t, events)

    grows_evenly(t, "categories", in_turn, 500)


@test
def scopes_in_a_bounded_file(t):
    """Of those that nobody ends, and of threads and processes that have had one, none is passed again for each that follows."""
    for story in ("ranges", "blocks_inside", "categories", "threads", "processes"):
        def played(n, story=story):
            return instructions_of(t.run(counted(os.path.join(t.build, "tests/integration/flight_scopes"), story, str(n)), status=0))

        grows_evenly(t, story, played, 1000)


def recursion(t, n):
    """The file of a trace in which something is live at each depth of one function, down to n."""
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, [malloc(1000 + i, 0x10000 + 64 * i, 32, trace.stack(*["descend"] * (i + 1))) for i in range(n)])
    trace.exit(1, 1000 + n)
    trace.end(1, 1001 + n)
    return trace.save(t.path("recursion.tmk"))


@test
def import_of_recursion(t):
    """Of each depth something is live."""
    grows_evenly(t, "depth", lambda n: imported(t, recursion(t, n)), 500)


@test
def folded_stacks(t):
    """No text of a call stack is put together but the one that is written: its frames are merged as numbers."""
    need_counts(t)

    def folded(n):
        t.run([t.tidemark, "import", "--force", recursion(t, n), "-o", t.path("folded.db")], status=0)
        return of_command(t, "export", "folded", t.path("folded.db"), "--force", "-o", t.path("folded.txt"))

    cost = settled(lambda: (folded(150) - folded(50)) / (150 * 151 / 2 - 50 * 51 / 2), lambda figure: 20 < figure <= FOLDED_FRAME)
    print(f"{cost:.1f} instructions a frame, at most {FOLDED_FRAME}")
    t.check(20 < cost <= FOLDED_FRAME, f"folded stacks take {cost:.1f} instructions for a frame; at most {FOLDED_FRAME} are allowed")


@test
def import_of_processes(t):
    """Each with functions of its own."""
    def processes(n):
        trace = Trace()
        for i in range(1, n + 1):
            trace.process(i, pid=100 + i, parent=1 if i > 1 else 0)
            trace.thread(i, process=i)
            trace.events(i, [malloc(1000 + i, 0x10000, 32, trace.stack(*[trace.frame(None, address=256 * i + k) for k in range(100)]))])
            trace.exit(i, 10000 + i)
            trace.end(i, 20000 + i)
        return imported(t, trace.save(t.path("processes.tmk")))

    grows_evenly(t, "processes", processes, 250)


@test
def tree_of_scopes_that_touch_no_heap(t):
    """Whether a line has one with a heap is not asked for each of its scopes."""
    def tree(n):
        trace = Trace()
        trace.process(1, pid=100)
        trace.thread(1, process=1)
        name = trace.string("empty")
        events = [malloc(1000, 0x10000, 32)]
        for i in range(n):
            events += [scope("scope_push", 2000 + 10 * i, name=name), scope("scope_end", 2005 + 10 * i)]
        trace.events(1, events)
        trace.exit(1, 3000 + 10 * n)
        trace.end(1, 4000 + 10 * n)
        t.run([t.tidemark, "import", "--force", trace.save(t.path("tree.tmk")), "-o", t.path("tree.db")], status=0)
        return of_command(t, "scopes", "--tree", t.path("tree.db"), "--format=csv")

    grows_evenly(t, "scopes", tree, 500)


@test
def import_of_device_blocks(t):
    """What each proves is asked in SQL, mostly of blocks that prove nothing."""
    need_counts(t)

    def device_blocks(n):
        trace = Trace()
        trace.process(1, pid=100)
        trace.thread(1, process=1)
        trace.device(1, 0, 1 << 34, b"u" * 16, "H")
        trace.heap(10, 1, "cuda:0", "cuda", device=0)
        kernel = trace.string("kernel")
        events = [malloc(1000 + i, 0x7f0000000000 + 512 * i, 512, op="cuda_alloc", heap=10) for i in range(n)]
        for i in range(n):
            events += [launch(1000 + n + i, kernel, i + 1), use(1000 + n + i, 0x7f0000000000 + 512 * i, i + 1)]
        trace.events(1, events)
        trace.exit(1, 1000 + 2 * n)
        trace.end(1, 1001 + 2 * n)
        return imported(t, trace.save(t.path("device.tmk")))

    cost = settled(lambda: (device_blocks(1200) - device_blocks(300)) / 900, lambda figure: 5000 < figure <= DEVICE_BLOCK)
    print(f"{cost:.1f} instructions a block, at most {DEVICE_BLOCK}")
    t.check(5000 < cost <= DEVICE_BLOCK, f"the import takes {cost:.1f} instructions for a block of a device; at most {DEVICE_BLOCK} are allowed")


@test
def windows_of_processes(t):
    """Their stretches of time are read together: each of their blocks once, not once for each process."""
    def windowed(n):
        trace = Trace()
        for i in range(1, n + 1):
            trace.process(i, pid=100 + i, parent=1 if i > 1 else 0)
            trace.thread(i, process=i)
            trace.events(i, [malloc(1000 + 10 * i + k, 0x10000 + 64 * k, 32, trace.stack("main")) for k in range(10)])
        for i in range(1, n + 1):
            trace.exit(i, 100000 + i)
            trace.end(i, 200000 + i)
        t.run([t.tidemark, "import", "--force", trace.save(t.path("windows.tmk")), "-o", t.path("windows.db")], status=0)
        return of_command(t, "peak", t.path("windows.db"), "--from=1500ns", "--to=90us", "--limit=1", "--format=csv")

    grows_evenly(t, "windows", windowed, 60)


def big_database(t, *shape):
    """The path of a database of a trace of that shape: events, blocks that live at once, nodes of the tree of stacks, threads."""
    need_counts(t)
    db = t.path("big.db")
    t.run([os.path.join(t.build, "tests/integration/big_trace"), t.path("big.tmk"), *map(str, shape)], status=0)
    t.run([t.tidemark, "import", "--force", t.path("big.tmk"), "-o", db], status=0)
    return db


def a_site(t, limit, *question, status=0, nodes=(5000, 20000)):
    """What each call stack that allocated makes the answer dearer."""
    def of(n):
        base = sqlite3.connect(big_database(t, 2 * n, n, n, 3))
        sites = base.execute("SELECT count(*) FROM site_total").fetchone()[0]
        base.close()
        return of_command(t, *question, t.path("big.db"), status=status), sites

    few, many = map(of, nodes)
    cost = (many[0] - few[0]) / (many[1] - few[1])
    print(f"{question[0]}: {cost:.1f} instructions a stack, at most {limit}")
    t.check(100 < cost <= limit, f"{question} takes {cost:.1f} instructions for a call stack; at most {limit} are allowed")


@test
def pprof_samples(t):
    """The totals come in the order of the samples: nothing is sorted, and no name looked up but those of frames, once each."""
    a_site(t, PPROF_SAMPLE, "export", "pprof", "--force", "-o", t.path("big.pb"))


@test
def pprof_samples_of_a_window(t):
    """What was allocated is added up by a hash, and of what was live no names are looked up that are not written."""
    a_site(t, PPROF_WINDOW_SAMPLE, "export", "pprof", "--force", "-o", t.path("big.pb"), "--from=1ms")


@test
def windows_without_kept_stacks(t):
    """A checkpoint before which very many stacks were used keeps none: what was live behind it is added up from the blocks that it lists, by a hash."""
    db = big_database(t, 280000, 40000, 15000, 3)
    base = sqlite3.connect(db)
    blocks = base.execute("SELECT max(id) FROM allocation_packed").fetchone()[0]
    base.execute("UPDATE checkpoint SET has_stacks = 0")
    base.commit()
    base.close()
    for verb, limit in LISTED_BLOCK.items():
        cost = of_command(t, verb, db, "--from=10ms", "--to=10200us", "--format=csv") / blocks
        print(f"{verb}: {cost:.1f} instructions a block, at most {limit}")
        t.check(500 < cost <= limit, f"{verb} of a window takes {cost:.1f} instructions a block; at most {limit} are allowed")


@test
def samples(t):
    """The levels of a window are replayed without SQL's sorter, and one walk over the blocks adds up the errors of all totals."""
    db = big_database(t, 100000, 20000, 1000, 3)
    base = sqlite3.connect(db)
    base.executescript("UPDATE allocation_packed SET weight = 1.5; UPDATE heap SET estimated = 1; UPDATE process SET estimated = 1; UPDATE trace SET sample_bytes = 64")
    base.commit()
    blocks = base.execute("SELECT max(id) FROM allocation_packed").fetchone()[0]
    base.close()
    for verb, limit in SAMPLED_BLOCK.items():
        window = ("--from=300us", "--to=2500us") if verb in ("peak", "timeline") else ()
        cost = of_command(t, verb, db, *window, "--format=csv") / blocks
        print(f"{verb}: {cost:.1f} instructions a block, at most {limit}")
        t.check(50 < cost <= limit, f"{verb} of samples takes {cost:.1f} instructions a block; at most {limit} are allowed")


@test
def temporary_blocks_of_a_window_in_sql(t):
    """The query that --sql prints, which answers of sampled traces as well: of each range of blocks that a checkpoint lists its own are read, not all temporary ones."""
    db = big_database(t, 600000, 100000, 3000, 3)
    base = sqlite3.connect(db)
    base.execute("UPDATE allocation_packed SET free_thread = -1 WHERE id % 500 = 0")
    base.commit()
    blocks, ranges = base.execute("SELECT (SELECT max(id) FROM allocation_packed), (SELECT count(*) FROM checkpoint_live)").fetchone()
    base.close()
    t.check(ranges > 1000, f"{ranges} ranges")
    sql = t.run([t.tidemark, "temporary", db, "--from=10ms", "--to=12ms", "--sql"], status=0).text
    cost = of_command(t, "query", db, sql) / blocks
    print(f"{cost:.1f} instructions a block, at most {RANGED_BLOCK}")
    t.check(100 < cost <= RANGED_BLOCK, f"temporary blocks of a window take {cost:.1f} instructions a block; at most {RANGED_BLOCK} are allowed")


@test
def changes_of_stacks(t):
    """The stacks of each side are added up by the numbers of their sites, by a hash."""
    a_site(t, COMPARED_STACK, "diff", t.path("big.db"))


@test
def changes_between_instants(t):
    """The stacks that are live at each are told apart by numbers, and names are looked up for those that are listed."""
    a_site(t, CHANGED_STACK, "snapshot", "--at=exit", "--against=start")


@test
def sites_of_a_run_that_is_over(t):
    """The stacks are added up by the numbers of their sites, by a hash."""
    a_site(t, ENDED_STACK, "top", "--by=site", nodes=(10000, 30000))


@test
def budgets_over_stacks(t):
    """Without suppressions nobody looks at the frames of what leaks, and names are looked up for the sites that are told of."""
    a_site(t, CHECKED_STACK, "check", "--max-leak=1", "--max-peak=1", "--junit=" + t.path("big.xml"), status=3)


@test
def report_of_stacks(t):
    """They are added up by the numbers of their sites, and only the heaviest of them are put in order."""
    a_site(t, REPORT_STACK, "report", "--force", "-o", t.path("big.html"), nodes=(10000, 30000))


@test
def live_blocks_by_function(t):
    """They are added up by the numbers of their sites, by a hash: neither their stacks nor any text are sorted."""
    db = big_database(t, 80000, 66000, 40000, 3)
    base = sqlite3.connect(db)
    base.execute("UPDATE checkpoint SET has_stacks = 0")
    base.commit()
    blocks = base.execute("SELECT live_at_end_count FROM heap_total WHERE heap_id = 0").fetchone()[0]
    base.close()
    cost = of_command(t, "snapshot", db, "--at=end", "--by=function", "--format=csv") / blocks
    print(f"{cost:.1f} instructions a block, at most {GROUPED_BLOCK}")
    t.check(500 < cost <= GROUPED_BLOCK, f"live blocks by function take {cost:.1f} instructions a block; at most {GROUPED_BLOCK} are allowed")


@test
def tables_of_live_stacks(t):
    """A table puts the rows that it shows in order, and no text together for the others."""
    db = big_database(t, 20000, 10000, 6000, 3)
    for question in (("snapshot", db, "--at=peak", "--stack"), ("snapshot", db, "--at=exit", "--stack")):
        shown = t.run([t.tidemark, *question], status=0)
        rows = len(t.run([t.tidemark, *question, "--format=csv"], status=0).text.splitlines()) - 1
        t.check(rows > 1000 and f"20 of {rows:,} rows shown" in shown.errors, f"{question}: {rows} rows, and {shown.errors}")
        cost = of_command(t, *question) / rows
        print(f"{question[0]}: {cost:.1f} instructions a row, at most {LISTED_ROW}")
        t.check(100 < cost <= LISTED_ROW, f"{question} takes {cost:.1f} instructions a row; at most {LISTED_ROW} are allowed")


@test
def pages_of_live_stacks(t):
    """To choose some of very many call stacks takes no look at the names of the others. Sites are added up by their numbers before any name is looked at."""
    a_site(t, CHOSEN_STACK, "snapshot", "--at=peak", "--limit=20")
    a_site(t, ADDED_STACK, "peak", "--sites", "--limit=20")


@test
def exports_of_many_stacks(t):
    """Nothing is sorted that is stored in order, no text of a stack is put together by SQL, and none of its frames is looked up for each row."""
    db = big_database(t, 30000, 10000, 30000, 3)
    base = sqlite3.connect(db)
    stacks = base.execute("SELECT count(*) FROM site_total").fetchone()[0]
    base.close()
    t.check(stacks > 5000, f"{stacks} stacks")
    for form, limit in EXPORTED_STACK.items():
        cost = of_command(t, "export", form, db, "-o", t.path(form)) / stacks
        print(f"{form}: {cost:.1f} instructions a stack, at most {limit}")
        t.check(500 < cost <= limit, f"export {form} takes {cost:.1f} instructions a stack; at most {limit} are allowed")


@test
def leaks_against_many_suppressions(t):
    """A rule for each of the functions that may leak, of which none is among them."""
    def suppressed(n):
        trace = Trace()
        trace.process(1, pid=100)
        trace.thread(1, process=1)
        trace.events(1, [malloc(1000 + i, 0x10000 + 64 * i, 32, trace.stack("main", f"function_{i}")) for i in range(n)])
        trace.exit(1, 1000 + n)
        trace.end(1, 1001 + n)
        with open(t.path("suppressions.txt"), "w") as f:
            f.write("".join(f"leak:function_{i}*_too\n" for i in range(n)))
        t.run([t.tidemark, "import", "--force", trace.save(t.path("leaks.tmk")), "-o", t.path("leaks.db")], status=0)
        return of_command(t, "leaks", t.path("leaks.db"), f"--suppressions={t.path('suppressions.txt')}")

    grows_evenly(t, "suppressions", suppressed, 300)


main()
