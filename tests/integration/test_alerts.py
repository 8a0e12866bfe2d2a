"""Alerts: a threshold is told once a crossing, with what was live at that very event.

Oracle: fixtures/programs/levels.c holds 60, 49, 60, 40 and 60 blocks of 100,000 bytes. So 50 blocks are live when `live >= 5000000` is crossed; 49 are
within 5 % of it, 40 are not: it is crossed twice.
"""
import json
import os
import re
import signal
import time

from tidemark_test import Database, main, test


def alerts(db):
    return db.rows("select rule, value from alert order by ts_ns, rule")


@test
def crossed_twice_with_hysteresis(t):
    done = t.record([t.program("levels.c")], "--alert=live(malloc) >= 5000000", "--alert", "live(malloc)>5MB", "--alert=live( malloc ) < 4.5MB",
                    "--alert=live(malloc) <= 4000000", "--alert=live(mmap) > 1TiB", "--alert=live > 1000%")
    db = t.imported(done)
    first, second = "live(malloc) >= 5000000", "live(malloc)>5MB"
    t.equal(alerts(db), [(first, 5000000), (second, 5100000), ("live( malloc ) < 4.5MB", 4400000), ("live(malloc) <= 4000000", 4000000),
                         (first, 5000000), (second, 5100000)], "alerts")
    t.equal(db.rows("select name from mark order by id"), [("alert: " + rule,) for rule, _ in alerts(db)], "marks")
    for path in (done.trace, db.path):
        told = [row["value"] for row in json.loads(t.ask("info", path, "--format=json", status=0).out) if row["topic"] == "alert"]
        t.equal(told, [f"{value} bytes" for _, value in alerts(db)], f"tidemark info {path}")
    live = db.rows("select rule, sum(live_bytes), sum(live_count), min(function), count(distinct function) from alert_site where heap = 'malloc' "
                   "group by ts_ns, rule order by ts_ns, rule")
    t.equal(live, [(rule, value, value // 100000, "rise_to", 1) for rule, value in alerts(db)], "live sets of the alerts")
    listed = json.loads(t.ask("alerts", db.path, "--format=json", status=0).out)
    t.equal([(row["rule"], row["value"], row["live_bytes"], row["largest_site"]) for row in listed],
            [(rule, value, value, "rise_to") for rule, value in alerts(db)], "tidemark alerts")
    table = [line.split()[-6:-4] for line in t.ask("alerts", db.path, "--sort=value", status=0).text.splitlines()[1:]]
    t.equal(table, [["4.9", "MiB"]] * 2 + [["4.8", "MiB"]] * 2 + [["4.2", "MiB"], ["3.8", "MiB"]], "values are bytes, and the highest comes first")
    summary = t.ask("summary", db.path, status=0).text.partition("\nalerts\n")[2].splitlines()[1:7]
    t.equal([line.split()[-2:] for line in summary], [[f"{value / 1048576:.1f}", "MiB"] for _, value in alerts(db)], "the same in the summary")
    sites = json.loads(t.ask("alerts", db.path, "--sites", "--heap=malloc", "--format=json", status=0).out)
    t.equal([row["live_bytes"] for row in sites], [value for _, value in alerts(db)], "tidemark alerts --sites")
    t.check("\u2588" not in t.ask("alerts", db.path, "--sites", status=0).text, "bars in a pipe are of time lines and histograms")
    t.check("4.2 MiB" in t.ask("snapshot", db.path, "--at", "mark:alert: live( malloc ) < 4.5MB", status=0).text, "snapshot at the alert")


STANDS_STILL = """#define _GNU_SOURCE
#include "tidemark.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static void sleeps(int s) { (void)s; for (;;) pause(); }
static void *run(void *n) {
	void *volatile p = malloc(1 << 26);
	for (long i = 0;; i++) p = realloc(p, (1 << 26) + (i & 1 ? 0 : 1 << 27)); /* by mremap, at whose end the signal comes */
	return n;
}
int main(int count, char **arguments) {
	struct tidemark_stats first, second;
	pthread_t thread;
	signal(SIGUSR1, sleeps);
	for (int i = 0; i < 6; i++) { pthread_create(&thread, NULL, run, NULL); usleep(20000); pthread_kill(thread, SIGUSR1); }
	usleep(100000);
	char memory[300];
	tidemark_heap pool = tidemark_heap_create("pool", 0);
	tidemark_heap_alloc(pool, memory, 300);
	int a = tidemark_stats("pool", &first);
	if (mmap(NULL, 60000000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
	int b = tidemark_stats("mmap", &second);
	for (int i = 0; i < 1500 && access(arguments[1], F_OK); i++) usleep(10000);
	printf("%d %lu %d %d %lu %d\\n", a, (unsigned long)first.live_bytes, first.exact, b, (unsigned long)second.live_bytes, !access(arguments[1], F_OK));
	fflush(stdout);
	_exit(count - 2);
}
"""


@test
def of_others_while_a_thread_stands_still(t):
    """Threads that a handler keeps in the middle of a realloc for ever hold up neither what others ask nor their alerts, of which a copy is there while they run."""
    with open(t.path("still.c"), "w", encoding="ascii") as file:
        file.write(STANDS_STILL)
    done = t.record([t.program(t.path("still.c")), t.path("still.dump1.tmk")], "--alert=live(mmap) >= 50MB", "--max-size=4MiB,ring", output=t.path("still.tmk"))
    t.equal(done.text, "0 300 0 0 60000000 1\n", "answers, which are no exact ones, and the copy")
    t.equal(alerts(t.imported(t.path("still.dump1.tmk"))), [("live(mmap) >= 50MB", 60000000)], "alerts of the copy")
    t.equal(alerts(t.imported(done)), [("live(mmap) >= 50MB", 60000000)], "alerts")


@test
def what_moves_is_not_gone_meanwhile(t):
    """A block and a mapping that grow while the level is above the threshold cross nothing; mapped files are no part of a process' level."""
    with open(t.path("grows.c"), "w", encoding="ascii") as file:
        file.write("""#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
int main(void) {
	char *p = malloc(1000000), *m = mmap(NULL, 1000000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mmap(NULL, 5000000, PROT_READ, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), 0) == MAP_FAILED) return 1;
	for (size_t bytes = 1000000; bytes < 3000000; bytes += 100000) {
		p = realloc(p, bytes + 100000);
		m = mremap(m, bytes, bytes + 100000, MREMAP_MAYMOVE);
	}
	return !p || m == MAP_FAILED;
}
""")
    rules = ["live > 2900000", "live(malloc) > 1450000", "live(mmap) > 1450000"]
    db = t.imported(t.record([t.program(t.path("grows.c"))], *["--alert=" + rule for rule in rules]))
    t.equal(alerts(db), [(rules[1], 1500000), (rules[0], 2900000 + 100000), (rules[2], 1500000)], "alerts")


@test
def read_from_outside(t):
    trace = t.path("rss.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--interval=10", "--alert=rss > 4MB", "--alert=rss>1000GiB", "--alert=rss > 0.0001%", "--",
                     t.program("levels.c"), "pause"])
    victim = t.command_of(child)
    for _ in range(600):  # until it has read what the program holds, and a little longer: a rule is told once
        time.sleep(0.1)
        if t.ask("import", trace, "--force", "-o", t.path("so_far.db"), status=None).status == 0 and len(alerts(Database(t.path("so_far.db")))) >= 2:
            break
    os.kill(victim, signal.SIGKILL)
    t.equal(child.wait(60), 128 + signal.SIGKILL, "status")
    db = t.imported(trace)
    t.equal(sorted(rule for rule, _ in alerts(db)), ["rss > 0.0001%", "rss > 4MB"], "alerts")
    t.equal(db.value("select count(*) from alert a join sample s on s.ts_ns = a.ts_ns and s.name = 'rss' and s.value = a.value and s.process_id = a.process_id"), 2,
            "alerts that agree with a sample")


@test
def pss_is_read_each_time(t):
    """Where a rule is about PSS no reading is without it, but perhaps one of a process that ends meanwhile."""
    if not os.path.exists("/proc/self/smaps_rollup"):
        t.skip("the kernel has no smaps_rollup")
    db = t.imported(t.record([t.program("levels.c"), "slow"], "--quiet", "--interval=10", "--alert=pss > 4MB"))
    rss, pss = (db.value("select count(*) from sample where name = ? and process_id is not null", name) for name in ("rss", "pss"))
    t.check(rss > 20 and pss >= rss - 1, f"{rss} readings, {pss} of them with PSS")
    t.equal(db.value("select count(*) > 0 and min(value) > 4e6 from alert"), 1, "it was crossed")


@test
def heaps_of_the_program_and_children(t):
    source = t.path("own.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('''#include <sys/wait.h>
#include <unistd.h>
#include "tidemark.h"
int main(void) {
	static char memory[1000];
	int child = fork();
	tidemark_heap pool = tidemark_heap_create("my pool", 0);
	for (int i = 0; i < (child ? 8 : 3); i++) tidemark_heap_alloc(pool, memory + i * 100, 100);
	if (child) waitpid(child, 0, 0);
	return 0;
}
''')
    db = t.imported(t.record([t.program(source)], "--alert=live(my pool) >= 250", "--alert=live(my pool) > 700"))
    rows = db.rows("select p.parent_id is null, a.rule, a.value from alert a join process p on p.id = a.process_id order by 1, 3")
    t.equal(rows, [(0, "live(my pool) >= 250", 300), (1, "live(my pool) >= 250", 300), (1, "live(my pool) > 700", 800)], "alerts")


@test
def about_what_never_came(t):
    """A heap whose name is wrong is told of at the end; what could be crossed and was not is not."""
    done = t.run([t.recorder, "-o", t.path("never.tmk"), "--alert=live(maloc) > 1", "--alert=live(malloc) > 1TiB",
                  "--alert=live > 1TiB", "--", t.program("levels.c")], status=0)
    told = [line.split("alert        ")[1] for line in done.errors.splitlines() if "alert  " in line]
    t.equal(told, ["'live(maloc) > 1' had nothing to look at: no heap of that name came up"], "the closing lines")


@test
def nonsense(t):
    for rule in ("", "rss", "rss 8GiB", "rss > ", "rss > x", "rss > 8GiBs", "rss => 8", "peak > 8", "live() > 8", "live(malloc > 8", "rss > 0%", "rss > -1", "rss > 5% x"):
        done = t.run([t.recorder, "--alert", rule, "true"], status=125)
        t.check(f"bad value '{rule}' for --alert" in done.errors, f"{rule}: {done.errors}")
    for rule, why in (("cgroup > 100%", "100% at most"), ("cgroup>=200%", "100% at most"), ("device_used >= 100.5%", "100% at most"), ("cgroup < 96%", "begins 5 % above"),
                      ("device_used <= 100%", "begins 5 % above"), ("live < 0", "less than 0"), ("live(malloc) < 0B", "less than 0"),
                      ("live > 16777215TiB", "that large"), ("swap < 10000PiB", "that large")):
        done = t.run([t.recorder, "--alert", rule, "true"], status=125)
        t.check(re.fullmatch(f"tidemark-record: --alert '{re.escape(rule)}' is never crossed: .*{why}.*\n", done.errors), f"{rule}: {done.errors}")
    for rule in ("cgroup >= 100%", "device_used < 95%", "rss > 100%", "swap > 100%", "live > 200%", "live < 200%", "live <= 0", "rss > 1PiB"):
        t.run([t.recorder, "-o", t.path("taken.tmk"), "--force", "--names=none", "--quiet", "--alert", rule, "true"], status=0)
    many = [f"--alert=rss > {i}GiB" for i in range(17)]
    done = t.run([t.recorder, *many, "true"], status=125)
    t.check("bad value 'rss > 16GiB' for --alert" in done.errors and "16 at most" in done.errors, done.errors)


main()
