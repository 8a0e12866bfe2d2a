"""--sample=BYTES: Poisson sampling gives unbiased estimates of bytes and counts, and says that they are estimates.

Method: fixtures/programs/sizes.c (20000 x 100, 2000 x 1500, 50 x 100000 bytes; 10 MB in all) is recorded R times with a mean of M = 4096 bytes. A block of s
bytes is kept with probability p = 1 - exp(-s / M) and counts 1 / p, so an estimate over n blocks of s bytes has the expectation n (or n s), and the
variance n (1 - p) / p blocks. The mean over R runs must lie within z = 4 standard errors of the exact figure: a sound sampler fails one such
comparison in 16,000; there are six, and only who fails twice is called unsound.
"""
import json
import math
import os
import re
import sqlite3

from tidemark_test import main, test
from trace_writer import Trace, free, malloc, mark, scope, step

MEAN = 4096
FIGURES = {"small": (20000, 100), "medium": (2000, 1500), "large": (50, 100000)}


def probability(size):
    return 1 - math.exp(-size / MEAN)


def are_unbiased(t, runs):
    program = t.program("sizes.c")
    estimates = {function: [] for function in FIGURES}
    for i in range(runs):
        db = t.imported(t.record([program], f"--sample={MEAN}"))
        t.equal(db.value("select sample_bytes from trace"), MEAN, "sample_bytes")
        for function, (_, size) in FIGURES.items():
            count, total = db.row("""select coalesce(sum(weight), 0), coalesce(sum(weight * size_bytes), 0) from allocation a
                                     join stack_text s on s.stack_id = a.stack_id where s.text like '%' || ?""", function)
            rows, weight = db.row("select count(*), max(weight) from allocation where size_bytes = ?", size)
            if rows:
                t.check(abs(weight - 1 / probability(size)) < 1e-6 / probability(size), f"weight of {size}: {weight}")
            listed = db.row("select coalesce(sum(allocations), 0), coalesce(sum(allocated_bytes), 0) from site where function = ?", function)
            t.check(abs(listed[0] - count) <= 1 and abs(listed[1] - total) <= size, f"{function}: the view says {listed}, its rows {count, total}")
            estimates[function].append((count, total))
    far = []
    for function, (n, size) in FIGURES.items():
        p = probability(size)
        error = math.sqrt(n * (1 - p) / p / runs)
        for which, exact, width in ((0, n, error), (1, n * size, error * size)):
            mean = sum(e[which] for e in estimates[function]) / runs
            print(f"{function}: {'count' if which == 0 else 'bytes'} {mean:.1f}, exactly {exact}, 4 standard errors {4 * width:.1f}, {runs} runs")
            if abs(mean - exact) > 4 * width + exact * 1e-9:
                far.append(f"{function}: the mean of {runs} estimates is {mean}, more than 4 standard errors ({4 * width}) from {exact}")
    spread = [e[0] for e in estimates["small"]]
    t.check(len(set(spread)) > 1, "every run gave the same estimate: the generator is not random")
    return far


@test
def estimates_are_unbiased(t):
    runs = 40 if t.long else 10
    far = are_unbiased(t, runs) and are_unbiased(t, runs)
    t.equal(far, [], "estimates")


@test
def first_samples_of_children_and_threads(t):
    """Each of 200 blocks of 1000 bytes is a sample with the same probability p, whoever comes to it: the number of samples lies
    within 5 standard deviations. Of clone's children those that lie between two samples of their parent have one distance, drawn for it: here that is drawn
    anew from time to time, as it allocates as well."""
    program, p = t.program("sampled_children.c"), probability(1000)
    for how, function in (("fork", "child"), ("forkpty", "child"), ("clone", "child"), ("destructors", "last")):
        db = t.imported(t.same_as_bare([program, how], f"--sample={MEAN}"))
        t.equal(db.rows("select * from loss"), [], f"{how}: losses")
        n = db.value("select count(*) from allocation a join stack_text s using (stack_id) where s.text like '%;' || ?", function)
        width = 5 * math.sqrt(200 * p * (1 - p))
        t.check(abs(n - 200 * p) < width, f"{how}: {n} samples, {200 * p:.1f} +- {width:.1f} expected")


@test
def refusals_of_large_requests(t):
    """Whatever asks for 64 KiB and more is told of when it is refused, sample or not; the longest distance between samples is drawn again and again."""
    for _ in range(5):
        db = t.imported(t.same_as_bare([t.program("sampled_children.c"), "refused"], "--sample=64MiB"))
        t.equal(db.rows("select count(*), max(size_bytes) from oom"), [(1, 100000)], "requests that were refused")


@test
def the_first_call_is_aligned(t):
    """A library's constructor runs before ours."""
    library = t.program("sampled_children.c", "-DFIRST", "-shared", "-fPIC", name="libsampled_first.so")
    program = t.program("sampled_children.c", "-Wl,-rpath," + os.path.dirname(library), "-Wl,--no-as-needed", library, name="sampled_first")
    db = t.imported(t.same_as_bare([program], f"--sample={MEAN}"))
    t.equal(db.rows("select api, size_bytes from allocation"), [("posix_memalign", 100 << 20)], "the first call")


# 4,000 blocks of 3,000 to 90,999 bytes, of which 400 live at a time and 400 at the end: an allocator maps for them, and gives back. And three mappings of the program's.
MAPPED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
	static void *kept[400];
	for (int i = 0; i < 4000; i++) {
		free(kept[i % 400]);
		kept[i % 400] = memset(malloc(3000 + (size_t)i * 22), 1, 3000);
	}
	for (size_t pages = 1; pages <= 3; pages++) mmap(NULL, pages * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	puts("done");
	return 0;
}
"""


def allocator_maps_for_itself(t, name):
    """Calls that are no sample go straight to the allocator: what that maps meanwhile is no mapping of the program's, as it is none where all calls are recorded."""
    library = t.shared_library(name)
    if t.sanitized:
        t.skip("the recorder is preloaded, too, and a sanitizer wants to be first")
    with open(t.path("mapped.c"), "w", encoding="ascii") as file:
        file.write(MAPPED)
    program = t.program(t.path("mapped.c"))
    exact = sum(3000 + i * 22 for i in range(4000))
    error = math.sqrt(sum(size ** 2 * math.exp(-size / 65536) / (1 - math.exp(-size / 65536)) for size in (3000 + i * 22 for i in range(4000))))
    for options in ((), ("--sample=64KiB",)):
        db = t.imported(t.same_as_bare([program], *options, env={"LD_PRELOAD": library}))
        t.equal(db.rows("select size_bytes, free_ns from allocation a join heap h on h.id = heap_id where name = 'mmap' order by 1"), [(4096, None), (8192, None), (12288, None)],
                f"mappings with {options}")
        t.equal(db.rows("select * from loss"), [], f"losses with {options}")
        estimate = db.value("select sum(weight * size_bytes) from allocation where size_bytes between 3000 and 90978 and (size_bytes - 3000) % 22 = 0 and heap_id ="
                            " (select id from heap where name = 'malloc' and is_root)")
        t.check(abs(estimate - exact) <= (5 * error if options else 0), f"{estimate} bytes, exactly {exact}, 5 standard errors {5 * error} with {options}")


@test
def jemalloc_maps_for_itself(t):
    allocator_maps_for_itself(t, "libjemalloc.so.2")


@test
def tcmalloc_maps_for_itself(t):
    allocator_maps_for_itself(t, "libtcmalloc_minimal.so.4")


@test
def mimalloc_maps_for_itself(t):
    allocator_maps_for_itself(t, "libmimalloc.so.2")


def drawn_behind_gaps(t, function, blocks, recordings):
    """How far the number of samples is from the expected one, in standard deviations."""
    program = t.program("gaps.c")
    traces = [t.record([program, *(["first"] if function == "first" else [])], f"--sample={MEAN}", "--mappings=off").trace for _ in range(recordings)]
    db = t.imported(*traces)
    p, n = probability(100), blocks * recordings
    drawn = db.value("select count(*) from allocation a join site s using (stack_id, process_id) where s.function = ?", function)
    print(f"{function}: {drawn} of {n} were drawn, {n * p:.1f} expected")
    return abs(drawn - n * p) / math.sqrt(n * p * (1 - p))


@test
def blocks_behind_unrecorded_ones(t):
    """A sample that falls on what is not recorded (while recording is stopped; in our own calls as a process begins) is not moved to the next block."""
    for function, blocks, recordings in (("resumed", 2000, 1), ("first", 1, 60)):
        far = drawn_behind_gaps(t, function, blocks, recordings)
        if far > 4:
            far = drawn_behind_gaps(t, function, blocks, recordings)
        t.check(far <= 4, f"{function}: {far:.1f} standard deviations from the expected number, twice")


@test
def estimates_are_marked(t):
    recording = t.record([t.program("sizes.c")], f"--sample={MEAN}", "--alert=live(malloc) > 50KiB")
    for verb, *options in (("info",), ("summary",), ("peak",), ("leaks",), ("alerts",), ("alerts", "--sites")):
        done = t.ask(verb, *options, recording.trace)
        said = (done.text + done.errors).replace(t.dir, "").lower()
        t.check("estimate" in said or "sampl" in said, f"{verb} does not say that its figures are estimates")


def by_hand(t, name, mean):
    """One block of 1000 bytes, two of 100 that stay, one that does not, in a scope and a step; 64 KiB become resident meanwhile."""
    trace = Trace(sample_bytes=mean, host=name)
    trace.process(1, pid=7 + (mean > 0))
    trace.thread(1, process=1)
    few, many = trace.stack("main", "few"), trace.stack("main", "many")
    trace.sample(1, 500, rss=65536, tool_rss=0)
    work = trace.string("work")
    trace.events(1, [step(600, 1), scope("scope_push", 700, name=work, category=trace.string("user")), malloc(1000, 0x1000, 1000, few),
                     malloc(1100, 0x2000, 100, many), malloc(1200, 0x3000, 100, many), malloc(1300, 0x4000, 100, many), free(1400, 0x4000),
                     scope("scope_end", 1500), mark(1600, trace.string("done"))], watermark=2500)
    trace.sample(1, 2000, rss=131072, tool_rss=0)
    trace.exit(1, 2500)
    trace.end(1, 3000)
    trace.save(t.path(name))
    return t.path(name)


@test
def beside_an_exact_run(t):
    """In one database what was sampled is weighted and marked, in every list, and what is exact is not. Of two blocks of 100 bytes and one of 1000, with a
    mean of 4096, the two stand for more."""
    db = t.imported(by_hand(t, "exact.tmk", 0), by_hand(t, "sampled.tmk", MEAN))
    small, large = 100 / probability(100), 1000 / probability(1000)
    live = round(2 * small + large)
    t.equal(db.rows("select process_id, function, allocated_bytes, estimated from memory_gap_jump order by 1"),
            [(1, "few", 1000, 0), (2, "many", round(3 * small), 1)], "what came before a jump")
    rows = json.loads(t.ask("scopes", "--torch-compat", "--heap=malloc", "--category=user", db.path, "--format=json").out)
    t.equal([(row["process_id"], row["total_net_bytes"]) for row in rows], [(2, live), (1, 1200)], "as torch.profiler counts")
    budgets = ("--max-peak=1", "--max-leak=1", "--max-allocations=1")
    for verb, *options in (("summary",), ("peak",), ("leaks", "--all"), ("snapshot", "--at=exit"), ("scopes",), ("scopes", "--tree"), ("scopes", "--means"),
                           ("scopes", "--steps"), ("scopes", "--from=0s"), ("scopes", "--torch-compat", "--heap=malloc", "--category=user"), ("timeline",),
                           ("timeline", "--gap"), ("timeline", "--jumps"), ("processes",), ("check", *budgets)):
        for process, is_marked in ((1, False), (2, True)):
            shown = t.ask(verb, *options, db.path, f"--process={process}", status=3 if verb == "check" else 0)
            listed = re.sub(r"^~ estimated:.*?next of the\s+sample\)$", "", shown.text, flags=re.M | re.S)
            t.equal("~" in listed, is_marked, f"{verb} {options} of process {process} has estimates: {shown.text}")
    reasons = dict(db.rows("select process_id, reason from leak_candidate where function = 'many'"))
    sampled = f"~{round(2 / probability(100))} of ~{round(3 / probability(100))} blocks (~{2 * small / 1024:.1f} KiB) were not freed"
    for process, begin in ((1, "2 of 3 blocks (200 B) were not freed"), (2, sampled)):
        t.check(reasons[process].startswith(begin), f"{begin}: {reasons[process]}")
    for form in ("folded", "pprof", "speedscope", "heaptrack"):
        for process, said in ((1, False), (2, True)):
            shown = t.ask("export", form, t.path("exact.tmk" if process == 1 else "sampled.tmk"), "-o", t.path(f"{form}{process}"))
            t.equal("estimates" in shown.errors, said, f"export {form} says that figures are estimates: {shown.errors}")
            t.equal("calls are counts of samples" in shown.errors, said and form == "heaptrack", f"export {form} has no weights for calls: {shown.errors}")
    t.ask("check", *budgets, db.path, f"--junit={t.path('junit.xml')}", status=3)
    with open(t.path("junit.xml"), encoding="utf-8") as file:
        messages = re.findall(r'max-peak" message="(.*?)"', file.read())
    t.equal(len(messages), 2, "peaks that are too high")
    t.equal([" (estimated from a sample), " in message for message in messages], [False, True], f"marked: {messages}")


LEAKING = r"""
#include <stdlib.h>
void *kept[1000];
__attribute__((noinline)) void fill_cache(void) {
	for (int i = 0; i < 1000; i++) kept[i] = malloc(4000);
}
__attribute__((noinline)) void forget(void) {
	*(volatile char *)malloc(400) = 1;
}
__attribute__((noinline)) void work(void) {
	free(malloc(2000));
}
int main(void) {
	fill_cache();
	for (int i = 0; i < 10000; i++) {
		forget();
		work();
	}
	return 0;
}
"""


@test
def leaks_are_scored(t):
    """About 930 of 10,000 leaked blocks are in the sample, and 620 of 1,000 that a cache keeps: the command lists what the view has, by score, as estimates."""
    with open(t.path("leaking.c"), "w", encoding="ascii") as file:
        file.write(LEAKING)
    program = t.program(t.path("leaking.c"), "-O0", "-fno-builtin", name="leaking")
    db = t.imported(t.record([program], f"--sample={MEAN}"))
    shown = t.ask("leaks", db.path)
    t.check(re.search(r"^malloc .* ~[\d.]+ MiB .* forget .*never freed", " ".join(shown.text[shown.text.index("\nmalloc"):].split())), shown.text)
    t.check("fill_cache" not in shown.text and "~ estimated" in shown.text and re.search(r"unlikely \(~[\d.]+ MiB\)", shown.errors), shown.text + shown.errors)
    rows = json.loads(t.ask("leaks", db.path, "--format=json").out)
    wanted = db.rows("select function, score from leak_candidate where not suppressed order by score desc, live_bytes desc, stack_id")
    t.equal([(row["function"], row["score"]) for row in rows], wanted, "what is listed")
    scores = {row["function"]: row["score"] for row in rows}
    t.check(scores["forget"] > 0.8 and scores["fill_cache"] < 0.2, f"scores {scores}")


@test
def exact_without_sampling(t):
    db = t.imported(t.record([t.program("sizes.c")]))
    for function, (n, size) in FIGURES.items():
        t.equal(db.row("select sum(allocations), sum(allocated_bytes) from site where function = ?", function), (n, n * size), function)
    t.equal(db.value("select count(*) from allocation where weight <> 1"), 0, "rows with a weight")


ASKS = """#include "tidemark.h"
#include <stdio.h>
#include <stdlib.h>
static void *blocks[20000];
static void ask(void) {
	struct tidemark_stats s = { 0 };
	if (tidemark_stats("malloc", &s)) exit(9);
	printf("%llu %llu %llu %llu %d\\n", (unsigned long long)s.live_bytes, (unsigned long long)s.live_count, (unsigned long long)s.allocations,
	       (unsigned long long)s.frees, s.exact);
}
int main(void) {
	static char out[4096];
	setvbuf(stdout, out, _IOFBF, sizeof out);
	for (int i = 0; i < 20000; i++) blocks[i] = malloc(100);
	ask();
	for (int i = 0; i < 15000; i++) free(blocks[i]);
	for (int i = 0; i < 1000; i++) blocks[i] = realloc(malloc(1500), 3000);
	ask();
	return 0;
}
"""


@test
def what_the_program_is_told(t):
    """tidemark_stats() weighs counts as it weighs bytes: all its figures are what the trace's blocks stand for."""
    with open(t.path("asks.c"), "w", encoding="ascii") as file:
        file.write(ASKS)
    t.run(["gcc", "-fno-builtin", "-I", os.path.join(t.root, "recorder"), "-o", t.path("asks"), t.path("asks.c")], status=0)
    recording = t.record([t.path("asks")], f"--sample={MEAN}")
    db = t.imported(recording)
    first, last = ([int(word) for word in line.split()] for line in recording.out.splitlines())
    kinds = dict(db.rows("select size_bytes, sum(weight) from allocation where api in ('malloc', 'realloc') group by 1"))
    t.check(12000 < kinds[100] < 28000 and kinds.keys() == {100, 1500, 3000}, f"{kinds}: what was recorded")
    t.check(abs(first[1] - kinds[100]) <= 1 and abs(first[2] - kinds[100]) <= 1 and first[3] == 0, f"{first}: {kinds}")
    live = db.row("select sum(weight * size_bytes), sum(weight) from allocation where free_ns is null")
    t.check(abs(last[0] - live[0]) <= 20000 and abs(last[1] - live[1]) <= 1, f"{last}: {live}")
    t.check(abs(last[2] - sum(kinds.values())) <= 1, f"{last}: {kinds}")
    t.check(abs(last[3] - db.value("select sum(weight) from allocation where free_ns is not null")) <= 1, f"{last}: frees")
    t.equal((first[4], last[4]), (0, 0), "exact")


RESIZES = """#define _GNU_SOURCE
#include <stdlib.h>
#define BLOCKS 20000
static void *blocks[BLOCKS];
int main(void) {
	for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(100);
	for (int i = 0; i < BLOCKS; i++) blocks[i] = i & 1 ? realloc(blocks[i], 300) : reallocarray(blocks[i], 3, 100);
	return 0;
}
"""


@test
def reallocations(t):
    """Most blocks that a realloc made were made of one that was not drawn: 20,000 in all, less or more than 6 standard errors of 514. What only a whole recording knows is not told."""
    with open(t.path("resizes.c"), "w", encoding="ascii") as file:
        file.write(RESIZES)
    for sample, most in ((MEAN, 6 * math.sqrt(20000 * (1 - probability(300)) / probability(300))), (0, 0)):
        db = t.imported(t.record([t.program(t.path("resizes.c"))], f"--sample={sample}"), options=("--quiet", "--force"))
        count, total, chains = db.row("select sum(realloc_count), sum(reallocated_bytes), max(longest_chain_count) from realloc_site where heap = 'malloc'")
        t.check(abs(count - 20000) <= most and abs(total - 300 * count) <= 300, f"{count} reallocations of {total} bytes, 20,000 of 300 were made, {most} allowed")
        t.equal(chains, None if sample else 1, "longest chain")
        t.equal(db.value("select sum(same_size_count) from churn where heap = 'malloc'"), None if sample else 19999 + 2 * 9999, "same size again")
        t.equal(db.value("select count(*) from allocation where size_bytes = 300 and api not in ('realloc', 'reallocarray')"), 0, "api")
        asked = t.ask("query", db.path, "@growing-vectors", status=0)
        t.equal("holds a Poisson sample, one in 4.0 KiB on average: figures of sampled heaps are estimates" in asked.errors, sample > 0, f"a question says so: {asked.errors}")


MANY = """#include <stdlib.h>
#define BLOCKS 300000
static void *blocks[BLOCKS];
int main(void) {
	for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(64);
	for (int i = 0; i < BLOCKS; i++) free(blocks[i * 7919L % BLOCKS]);
	return 0;
}
"""


@test
def many_that_live_at_once(t):
    """About 190,000 samples that are all there at once, and are freed in another order: the end of each is found, and of nothing else."""
    with open(t.path("many.c"), "w", encoding="ascii") as file:
        file.write(MANY)
    recording = t.record([t.program(t.path("many.c"), "-O1", "-fno-builtin", name="many")], "--sample=64", "--mappings=off")
    db = t.imported(recording)
    blocks, live = db.row("select count(*), count(*) filter (where free_ns is null) from allocation where size_bytes = 64")
    t.check(188000 < blocks < 191500, f"{blocks} samples of 300,000 blocks, of which 1 - 1/e are expected to be")
    t.equal(live, 0, "without an end")
    t.equal(db.rows("select distinct kind from loss"), [], "what was lost")


EMPTY = """#include "tidemark.h"
#include <stdio.h>
#include <stdlib.h>
static void ask(tidemark_heap heap) {
	struct tidemark_stats s;
	if (tidemark_stats(heap, &s)) exit(9);
	printf("%llu %llu %d\\n", (unsigned long long)s.live_bytes, (unsigned long long)s.allocations, s.exact);
}
int main(void) {
	static char out[4096];
	static char *volatile block, place[64];
	setvbuf(stdout, out, _IOFBF, sizeof out);
	tidemark_heap pool = tidemark_heap_create("pool", NULL);
	for (int i = 0; i < 20000; i++) block = malloc(0);
	for (int i = 0; i < 10; i++) tidemark_heap_alloc(pool, (char *)place + i, 3);
	ask("malloc");
	ask(pool);
	return 0;
}
"""


@test
def pools_and_blocks_of_no_bytes(t):
    """tidemark_stats() counts a block of no bytes as one of one byte, as the sampling and the analyzer do. A pool's figures are no estimate."""
    with open(t.path("empty.c"), "w", encoding="ascii") as file:
        file.write(EMPTY)
    t.run(["gcc", "-fno-builtin", "-I", os.path.join(t.root, "recorder"), "-o", t.path("empty"), t.path("empty.c")], status=0)
    recording = t.record([t.path("empty")], "--sample=64")
    blocks, pool = ([int(word) for word in line.split()] for line in recording.out.splitlines())
    wanted = t.imported(recording).value("select sum(weight) from allocation where api = 'malloc' and size_bytes = 0")
    t.check(10000 < wanted < 40000 and abs(blocks[1] - wanted) <= 1 and not blocks[2], f"{blocks}: {wanted}")
    t.equal(pool, [30, 10, 1], "the pool")


@test
def estimates_are_rounded_once(t):
    """Of 50 call stacks with a block of 100 bytes each, by whatever they are added up: not the sum of what was rounded for each."""
    trace = Trace(sample_bytes=MEAN)
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, [malloc(1000 + i, 0x10000 + 256 * i, 100, trace.stack(f"caller_{i}", "load")) for i in range(50)])
    trace.exit(1, 5000)
    trace.end(1, 6000)
    db = t.imported(trace.save(t.path("fifty.tmk")))
    count, size = round(50 / probability(100)), round(5000 / probability(100))
    t.check(count != 50 * round(1 / probability(100)) and size != 50 * round(100 / probability(100)), "rounding each makes a difference")
    p = probability(100)
    wanted, of_count = math.sqrt(50 * 100 * 100 * (1 - p) / p / p) / (5000 / p), math.sqrt(50 * (1 - p) / p / p) / count
    for question in (["timeline", "--from=2us"], ["peak", "--sites"], ["peak", "--sites", "--from=1us"], *(["snapshot", "--at=2us", f"--by={by}"] for by in ("heap", "site", "function", "file", "library", "thread", "size", "scope"))):
        rows = json.loads(t.ask(question[0], db.path, *question[1:], "--format=json").text)
        t.equal({(row["live_count"], row["live_bytes"]) for row in rows}, {(count, size)}, " ".join(question))
        errors = {(row["relative_error"], row["count_relative_error"]) for row in rows if question[0] != "timeline"}
        t.check(all(abs(bytes_error - wanted) < 1e-4 and abs(count_error - of_count) < 1e-4 for bytes_error, count_error in errors), f"{question}: {errors}")
    page = t.ask("summary", db.path).text
    for title in "live at the peak of each heap, by call site", "live at exit, by call site":
        line = page.partition(title)[2].splitlines()[2]
        t.check(f" ~{count:,} " in line and " load " in line, f"{title}: {line}")


def variance(*blocks, power=2):
    """Of the bytes (power 2) or the number (0) of so many blocks of so many bytes."""
    return sum(n * (1 - probability(size)) / probability(size) ** 2 * size ** power for n, size in blocks)


def estimate(*blocks, power=1):
    return round(sum(n / probability(size) * size ** power for n, size in blocks))


def fits(t, row, column, exact, what):
    """The error in the row, of a column that it has as well: `exact` is the standard error itself."""
    found, of = row[what], row[column]
    t.check((found is None) if not of else found is not None and abs(found - exact / abs(of)) < 1e-4, f"{what}, {exact} of {column}: {row}")


def kept_and_dropped(t, name, kept, dropped, mean=MEAN):
    """In a scope, `load` with so many blocks of 100 bytes, each from another caller, that stay, and `drop` with so many of 300, freed before exit."""
    trace, time, address = Trace(sample_bytes=mean), 1000, 0x10000
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    events, last = [scope("scope_push", 500, name=trace.string("work"), category=trace.string("user"))], []
    for n, size, stack, places in ((kept, 100, lambda i: trace.stack(f"caller_{i}", "load"), []), (dropped, 300, lambda _: trace.stack("drop"), last)):
        for i in range(n):
            places.append(address := address + 512)
            events.append(malloc(time := time + 1, address, size, stack(i)))
    events += [free(time := time + 1, place) for place in last] + [scope("scope_end", time + 1)]
    trace.events(1, events)
    trace.exit(1, time + 10)
    trace.end(1, time + 20)
    return t.imported(trace.save(t.path(name)))


@test
def errors_of_changes(t):
    """The variances of two runs add, and one that was not sampled has none. Call stacks of a site are added up before they are rounded."""
    few, many, exact = kept_and_dropped(t, "few.tmk", 50, 10), kept_and_dropped(t, "many.tmk", 80, 14), kept_and_dropped(t, "exact.tmk", 60, 12, mean=0)
    t.check(estimate((50, 100)) != 50 * estimate((1, 100)), "rounding each makes a difference")
    for before, after, old, new in ((few, many, (50, 10), (80, 14)), (exact, many, None, (80, 14)), (few, exact, (50, 10), None), (many, many, (80, 14), (80, 14))):
        sides = [side for side in (old, new) if side]
        rows = json.loads(t.ask("diff", before.path, after.path, "--format=json").text)
        t.equal(sorted(row["function"] for row in rows), ["drop", "load"], "call sites")
        for row in rows:
            which, size = (0, 100) if row["function"] == "load" else (1, 300)
            for side, counts, count in (("before", old, (60, 12)), ("after", new, (60, 12))):
                t.equal((row[f"{side}_allocated_bytes"], row[f"{side}_allocations"]),
                        (estimate((counts[which], size)), estimate((counts[which], size), power=0)) if counts else (count[which] * size, count[which]), f"{side}: {row}")
            blocks = [(side[which], size) for side in sides]
            of_bytes, of_count = math.sqrt(variance(*blocks)), math.sqrt(variance(*blocks, power=0))
            fits(t, row, "change_live_bytes", of_bytes, "change_live_relative_error")
            fits(t, row, "change_live_count", of_count, "change_live_count_relative_error")
            fits(t, row, "change_allocated_bytes", of_bytes, "change_allocated_relative_error")
            fits(t, row, "change_allocations", of_count, "change_allocated_count_relative_error")
            fits(t, row, "change_peak_bytes", of_bytes, "change_peak_relative_error")
        attach, listed = t.ask("diff", before.path, after.path, "--format=json", "--sql").text.split(";\n", 1)
        also = t.ask("diff", before.path, after.path, "--sql").text.split("\n\n-- the table also lists: ")[1:]
        of_heaps, of_scopes = ("\n".join(line[3:] for line in query.rstrip().splitlines()[1:]) for query in also)
        base = sqlite3.connect(after.path)
        base.row_factory = sqlite3.Row
        base.execute(attach)
        t.equal([dict(row) for row in base.execute(listed)], rows, "what --sql prints")
        heaps = base.execute(of_heaps).fetchall()
        t.equal([row["heap"] for row in heaps], [None, "malloc"], "heaps")
        for row in map(dict, heaps):
            left, made = ([block for side in sides for block in ((side[0], 100), (side[1], 300))[:n]] for n in (1, 2))
            fits(t, row, "change_live_bytes", math.sqrt(variance(*left)), "change_live_relative_error")
            fits(t, row, "change_peak_bytes", math.sqrt(variance(*made)), "change_peak_relative_error")
            fits(t, row, "change_allocations", math.sqrt(variance(*made, power=0)), "change_allocated_count_relative_error")
        scopes = [dict(row) for row in base.execute(of_scopes)]
        t.equal([row["name"] for row in scopes], ["work", "[unscoped]"] if before != after else [], "scopes")
        for row in scopes[:1]:
            fits(t, row, "change_retained_bytes", math.sqrt(variance(*left)), "change_retained_relative_error")
            fits(t, row, "change_allocated_bytes", math.sqrt(variance(*made)), "change_allocated_relative_error")
            table = t.ask("diff", before.path, after.path).text.partition("scopes, matched by name")[2]
            t.check(f"{100 * row['change_retained_relative_error']:.1f}%" in table, f"the table says so: {table}")
    t.check("relative_error" not in t.ask("diff", exact.path, exact.path, "--format=json").text, "of exact runs nothing is an estimate")


@test
def errors_of_a_view(t):
    """What `top` shows of a database."""
    db, blocks = kept_and_dropped(t, "seen.tmk", 50, 10), [(50, 100), (10, 300)]
    for by, wanted in (("heap", {"heap": [blocks, blocks[:1]]}), ("site", {"load": [blocks[:1], blocks[:1]], "drop": [blocks[1:], []]}),
                       ("scope", {"work": [blocks, blocks[:1]]})):
        for row in json.loads(t.ask("top", db.path, f"--by={by}", "--format=json").text):
            made, live = wanted[row.get("function") or row.get("name") or by]
            t.equal((row["live_bytes"], row["live_count"], row["allocations"], row["allocated_bytes"]),
                    (estimate(*live), estimate(*live, power=0), estimate(*made, power=0), estimate(*made)), f"{by}: {row}")
            for column, of, power, error in (("live_bytes", live, 2, "relative_error"), ("live_count", live, 0, "count_relative_error"),
                                             ("allocated_bytes", made, 2, "allocated_relative_error"), ("allocations", made, 0, "allocated_count_relative_error"),
                                             ("peak_bytes", made, 2, "peak_relative_error")):
                if column in row:
                    fits(t, row, column, math.sqrt(variance(*of, power=power)), error)
    shown = json.loads(t.ask("top", db.path, "--by=site", "--sort=allocated_relative_error", "--format=json").text)
    t.equal([row["function"] for row in shown], ["drop", "load"], "sorted by an error")
    t.check("relative_error" not in t.ask("top", kept_and_dropped(t, "all.tmk", 5, 5, mean=0).path, "--by=site", "--format=json").text, "no estimates")


@test
def errors_of_scopes(t):
    """Of two traces with the same names: `step` with 40 blocks of 100 bytes, inside it another `step` with 30 of 200, and in that `load` with 20 of 300. What is
    inside counts in a total once. In the second thread `early` closes before `late`, which was opened inside it: what both have in common is no scope's inside
    the other, so that the total of `early` has no error."""
    def traced(name, start_ns):
        trace, time, address = Trace(start_ns, sample_bytes=MEAN), 0, 0x10000
        user = trace.string("user")
        trace.process(1, pid=100)
        events, late = [], []
        for text, n, size in (("step", 40, 100), ("step", 30, 200), ("load", 20, 300)):
            events.append(scope("scope_push", time := time + 1, name=trace.string(text), category=user))
            for _ in range(n):
                events.append(malloc(time := time + 1, address := address + 512, size, trace.stack("f")))
        events += [scope("scope_end", time := time + 1) for _ in range(3)]
        for key, text in ((1, "early"), (2, "late")):
            late.append(scope("scope_range", time := time + 1, name=trace.string(text), category=user, key=key))
            late.append(malloc(time := time + 1, address := address + 512, 100, trace.stack("f")))
        late += [scope("scope_end", time := time + 1, key=1), malloc(time := time + 1, address := address + 512, 100, trace.stack("f")),
                 scope("scope_end", time := time + 1, key=2)]
        for thread, of in ((1, events), (2, late)):
            trace.thread(thread, process=1)
            trace.events(thread, of)
        trace.exit(1, time + 10)
        trace.end(1, time + 20)
        return trace.save(t.path(name))
    one, other, parts = traced("one.tmk", 1 << 60), traced("other.tmk", 1 << 61), [(40, 100), (30, 200), (20, 300)]
    db = t.imported(one, other)
    wanted = {"step": (parts[:2], parts), "load": (parts[2:], parts[2:]), "early": ([(1, 100)], None), "late": ([(2, 100)], [(2, 100)])}
    rows = [row for row in json.loads(t.ask("scopes", db.path, "--format=json").text) if row["name"] in wanted]
    t.equal(sorted(row["name"] for row in rows), sorted(2 * list(wanted)), "a row of each name and process")
    for row in rows:
        for of, blocks in zip(("self", "total"), wanted[row["name"]]):
            found = (row[f"{of}_relative_error"], row[f"{of}_count_relative_error"])
            if not blocks:
                t.equal(found, (None, None), f"{of}: {row}")
                continue
            for error, power, column in zip(found, (2, 0), ("allocated_bytes", "allocations")):
                t.check(abs(error - math.sqrt(variance(*blocks, power=power)) / row[f"{of}_{column}"]) < 1e-4, f"{of}_{column}: {row}")
    single = json.loads(t.ask("scopes", db.path, "--from=0", "--process=2", "--format=json").text)
    for row, blocks in zip(single, (parts, parts[1:], parts[2:])):
        t.check(abs(row["total_count_relative_error"] - math.sqrt(variance(*blocks, power=0)) / row["total_allocations"]) < 1e-4, f"a single scope: {row}")
    for window in ((), ("--from=0",)):
        sql = t.ask("scopes", db.path, *window, "--sql").text
        t.equal(t.ask("query", db.path, sql, "--format=json").text, t.ask("scopes", db.path, *window, "--format=json").text, "what --sql prints")


@test
def errors_of_what_scopes_free_and_keep(t):
    """Of `outer` with 10 blocks of 100 bytes, and in it `inner` with 20 of 200, which frees 4 and 5 of them. A step begins; `outer` frees 3 more of the 20. Behind
    both come 2 blocks of 300, and one of the 10 is freed. What is allocated and freed in one scope, or step, changes a net in no way."""
    trace, clock = Trace(sample_bytes=MEAN), iter(range(100, 1 << 20, 5))
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    user = trace.string("user")

    def opened(name):
        return scope("scope_push", next(clock), name=trace.string(name), category=user)

    def made(first, n, size):
        return [malloc(next(clock), 0x10000 * first + 512 * i, size, trace.stack("f")) for i in range(n)]

    def freed(first, begin, n):
        return [free(next(clock), 0x10000 * first + 512 * i) for i in range(begin, begin + n)]
    events = [step(next(clock), 1), opened("outer"), *made(1, 10, 100), opened("inner"), *made(2, 20, 200), *freed(1, 0, 4), *freed(2, 0, 5), scope("scope_end", next(clock), category=user),
              step(next(clock), 2), *freed(2, 5, 3), scope("scope_end", next(clock), category=user), *made(3, 2, 300), *freed(1, 4, 1)]
    trace.events(1, events)
    trace.exit(1, end := next(clock))
    trace.end(1, end + 10)
    db = t.imported(trace.save(t.path("kept.tmk")))
    A, B, C = 100, 200, 300
    wanted = {"outer": {"self": [(10, A)], "total": [(10, A), (20, B)], "self_freed": [(3, B)], "total_freed": [(4, A), (8, B)], "self_net": [(10, A), (3, B)],
                        "total_net": [(6, A), (12, B)], "own_freed": [(5, A), (8, B)], "retained": [(6, A), (12, B)]},
              "inner": {"self": [(20, B)], "total": [(20, B)], "self_freed": [(4, A), (5, B)], "total_freed": [(4, A), (5, B)], "self_net": [(4, A), (15, B)],
                        "total_net": [(4, A), (15, B)], "own_freed": [(8, B)], "retained": [(15, B)]},
              "[unscoped]": {"self": [(2, C)], "total": [(2, C)], "self_freed": [(1, A)], "total_freed": [(1, A)], "self_net": [(2, C), (1, A)],
                             "total_net": [(2, C), (1, A)], "own_freed": [], "retained": [(2, C)]}}
    counted = {"self": "self_allocations", "total": "total_allocations", "self_freed": "self_frees", "total_freed": "total_frees"}
    sized = {"self": "self_allocated_bytes", "total": "total_allocated_bytes"}

    def errors_fit(row, of, count=False):
        blocks = wanted[row["name"]][of]
        fits(t, row, sized.get(of, of + "_bytes"), math.sqrt(variance(*blocks)), of + "_relative_error")
        if count:
            fits(t, row, counted[of], math.sqrt(variance(*blocks, power=0)), of + "_count_relative_error")
    for options, names in (((), {"outer", "inner", "[unscoped]"}), (("--from=0",), {"outer", "inner"})):
        rows = json.loads(t.ask("scopes", db.path, *options, "--format=json").text)
        t.equal({row["name"] for row in rows}, names, "scopes")
        for row in rows:
            for of in wanted[row["name"]]:
                errors_fit(row, of, of in counted)
    for row in json.loads(t.ask("scopes", db.path, "--tree", "--format=json").text):
        for of in ("self", "total", "total_net", "retained"):
            errors_fit(row, of)
    for row in json.loads(t.ask("scopes", db.path, "--means", "--format=json").text):
        fits(t, row, "mean_allocated_bytes", math.sqrt(variance(*wanted[row["name"]]["total"])), "mean_allocated_relative_error")
        fits(t, row, "net_bytes", math.sqrt(variance(*wanted[row["name"]]["total_net"])), "net_relative_error")
        errors_fit(row, "retained")
    of_steps = {1: {"allocated": [(10, A), (20, B)], "freed": [(4, A), (5, B)], "net": [(6, A), (15, B)], "live_begin": [], "live_end": [(6, A), (15, B)],
                    "survived": [(6, A), (15, B)]},
                2: {"allocated": [(2, C)], "freed": [(1, A), (3, B)], "net": [(2, C), (1, A), (3, B)], "live_begin": [(6, A), (15, B)],
                    "live_end": [(5, A), (12, B), (2, C)], "survived": [(2, C)]}}
    rows = json.loads(t.ask("scopes", db.path, "--steps", "--format=json").text)
    t.equal([(row["n"], row["heap"]) for row in rows], [(1, None), (1, "malloc"), (2, None), (2, "malloc")], "steps")
    for row in rows:
        for of, blocks in of_steps[row["n"]].items():
            fits(t, row, of + "_bytes", math.sqrt(variance(*blocks)), of + "_relative_error")
            count = {"allocated": "allocations", "freed": "frees", "survived": "survived_count"}.get(of)
            if count:
                fits(t, row, count, math.sqrt(variance(*blocks, power=0)), of + "_count_relative_error")
    for options in ((), ("--from=0",), ("--tree",), ("--means",), ("--steps",)):
        sql = t.ask("scopes", db.path, *options, "--format=json", "--sql").text
        t.equal(t.ask("query", db.path, sql, "--format=json").text, t.ask("scopes", db.path, *options, "--format=json").text, f"what --sql prints with {options}")


@test
def nothing_outside_of_scopes(t):
    """A block that is freed and one that stays, both in a scope, in each of 60 processes: rounded one by one, what was freed in the scope may be one more
    than what was allocated less what is live."""
    trace, more_in_scopes = Trace(sample_bytes=MEAN), 0
    for n in range(1, 61):
        trace.process(n, pid=100 + n)
        trace.thread(n, process=n)
        trace.events(n, [scope("scope_push", 100, name=trace.string("work"), category=trace.string("user")), malloc(200, 0x1000, 100 + n, trace.stack("few")),
                         malloc(300, 0x2000, 200 + 3 * n, trace.stack("many")), free(400, 0x1000), scope("scope_end", 500)])
        trace.exit(n, 1000)
        trace.end(n, 2000)
        freed, live = (size / probability(size) for size in (100 + n, 200 + 3 * n))
        more_in_scopes += round(freed) > round(freed + live) - round(live)
    db = t.imported(trace.save(t.path("scoped.tmk")))
    t.check(more_in_scopes > 2, "rounding makes a difference")
    rows = db.rows("select self_allocated_bytes, self_allocations, self_freed_bytes, self_frees, own_freed_bytes from scope_total where name = '[unscoped]'")
    t.check(len(rows) == 60 and all(x in (0, 1) for row in rows for x in row), f"{rows}")


@test
def errors_of_many_calls(t):
    """Of 300 calls with a block of 100 bytes each: the line of a tree adds up what was rounded for each."""
    trace, clock, sizes = Trace(sample_bytes=MEAN), iter(range(100, 1 << 20, 5)), 300 * [100]
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    events = []
    for n, size in enumerate(sizes):
        events += [scope("scope_push", next(clock), name=trace.string("call")), malloc(next(clock), 0x10000 + 4096 * n, size, trace.stack("f")),
                   scope("scope_end", next(clock))]
    trace.events(1, events)
    trace.exit(1, end := next(clock))
    trace.end(1, end + 10)
    db = t.imported(trace.save(t.path("calls.tmk")))
    exact = math.sqrt(variance(*((1, size) for size in sizes)))
    t.check(abs(sum(round(size / probability(size)) - size / probability(size) for size in sizes)) > 3, "rounding each makes a difference")
    for row in json.loads(t.ask("scopes", db.path, "--tree", "--format=json").text):
        for of in ("self_allocated", "total_allocated", "total_net", "retained"):
            fits(t, row, of + "_bytes", exact, of.replace("_allocated", "") + "_relative_error")


@test
def steps_add_up(t):
    """Of 80 steps, each with a block of another size that stays and one that goes, but for each tenth, which frees nothing, and each that allocates nothing."""
    trace, clock, live, wrong = Trace(sample_bytes=MEAN), iter(range(100, 1 << 20, 5)), 0, 0
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    events, kept = [], []
    for n in range(80):
        events.append(step(next(clock), n))
        begin, freed, made = live, 0, 0
        if n % 10 != 5:
            kept.append((0x10000 + 4096 * n, 101 + 7 * n))
            events.append(malloc(next(clock), *kept[-1], trace.stack("f")))
            made = kept[-1][1] / probability(kept[-1][1])
        if n % 10 and len(kept) > 8:
            address, size = kept.pop(0)
            events.append(free(next(clock), address))
            freed = size / probability(size)
        live = begin + made - freed
        wrong += round(begin) + round(made) - round(freed) != round(live)
    trace.events(1, events)
    trace.exit(1, end := next(clock))
    trace.end(1, end + 10)
    db = t.imported(trace.save(t.path("eighty.tmk")))
    t.check(wrong > 5, "rounding makes a difference")
    rows = db.rows("select n, allocations, allocated_bytes, frees, freed_bytes, live_begin_bytes, live_end_bytes from step_total")
    t.equal(len(rows), 160, "steps of the heap, and of the process")
    for n, allocations, allocated, frees, freed, begin, end in rows:
        t.equal(begin + allocated - freed, end, f"step {n}")
        t.check((allocated > 0) == (allocations > 0) and (freed > 0) == (frees > 0), f"step {n}: {allocations, allocated, frees, freed}")


@test
def temporary_blocks_of_all(t):
    """Two of three blocks of a call stack are freed before the next allocation: the third tells how many there were."""
    trace = Trace(sample_bytes=MEAN)
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    stack = trace.stack("f")
    trace.events(1, [malloc(100, 0x1000, 100, stack), free(110, 0x1000), malloc(120, 0x1000, 100, stack), free(130, 0x1000), malloc(140, 0x1000, 100, stack)])
    trace.exit(1, 200)
    trace.end(1, 210)
    db = t.imported(trace.save(t.path("three.tmk")))
    row, = json.loads(t.ask("temporary", db.path, "--format=json").text)
    t.equal((row["count"], row["allocations"]), (estimate((2, 100), power=0), estimate((3, 100), power=0)), "of all")
    t.equal({column[0] for column in db.connection.execute("select * from temporary").description} - set(row), set(), "columns")


main()
