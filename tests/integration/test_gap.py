"""Resident memory against what is live: what can explain it, and what cannot."""
import os

from tidemark_test import main, test
from trace_writer import Trace, malloc

MIB = 1 << 20
# 64 MiB are never touched. Of what is, 8 MiB are a file's, mapped as shared; as many are shared anonymous memory where there is an argument.
RESERVED = """
#include "tidemark.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char name[] = "/var/tmp/tidemark_gap_XXXXXX";
	int file = mkstemp(name);
	if (file < 0 || unlink(name) || ftruncate(file, 8 << 20)) return 1;
	char *pages = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || memory == MAP_FAILED) return 1;
	memset(pages, 1, 8 << 20);
	if (argc > 1) memset(memory, 1, 8 << 20);
	void *volatile reserved = calloc(1, 64 << 20);
	tidemark_mark("mapped");
	usleep(300000);
	return !reserved;
}
"""


def source(t, name, text):
    path = t.path(name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return t.program(path, name=f"gap_{os.path.splitext(name)[0]}")


@test
def what_is_never_touched_explains_no_file(t):
    program = source(t, "reserved.c", RESERVED)
    for arguments in ((), ("touch",)):
        db = t.imported(t.record([program, *arguments], "--interval=0"))
        explained, live, gap, files, shared = db.row("select explained_bytes, p.live_bytes, p.gap_bytes, file_bytes, shared_bytes from memory_gap_part p"
                                                     " join memory_gap using (process_id, ts_ns)")
        t.check(live >= 72 * MIB, f"{live} bytes live")
        t.check(8 * MIB <= files <= gap < 14 * MIB, f"{arguments}: {files} bytes of files in a gap of {gap}")
        t.equal(shared, 0, "shared memory is explained: it was recorded")
        t.check(explained >= (8 * MIB if arguments else 0), f"{arguments}: {explained} bytes are explained")
        named = db.value("select value from sample where name = 'rss_shared'")
        t.check(8 * MIB <= named < 9 * MIB if arguments else named < MIB, f"{arguments}: {named} bytes of shared memory")


@test
def between_looks_by_hand(t):
    """10,000 live, most of it untouched. Between two looks the smaller number of files' pages counts, before the first one none."""
    trace = Trace()
    trace.process(1, pid=7)
    trace.thread(1, process=1)
    trace.events(1, [malloc(100, 0x1000, 10000, trace.stack("main", "a"))], watermark=6000)
    for ns, files in ((1000, None), (2000, 3000), (3000, None), (4000, 1000), (5000, None)):
        kinds = {} if files is None else {"rss_heap": 2500, "rss_arenas": 0, "rss_anonymous": 0, "rss_stacks": 200, "rss_files": files, "rss_shared": 100}
        trace.sample(1, ns, rss=6500, tool_rss=300, **kinds)
    trace.sample(1, 5500, rss=1200, tool_rss=300)
    trace.exit(1, 5800)
    trace.end(1, 6000)
    path = t.path("looks.tmk")
    trace.save(path)
    db = t.imported(path)
    t.equal(db.rows("select ts_ns, explained_bytes, gap_bytes from memory_gap order by 1"),
            [(1000, 6200, 0), (2000, 3200, 3000), (3000, 5200, 1000), (4000, 5200, 1000), (5000, 5200, 1000), (5500, 0, 900)], "gap")
    t.equal(db.rows("select ts_ns, file_bytes, stack_bytes, shared_bytes, retained_bytes, unknown_bytes from memory_gap_part order by 1"),
            [(2000, 3000, 0, 0, 0, 0), (4000, 1000, 0, 0, 0, 0)], "parts")


main()
