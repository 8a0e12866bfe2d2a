"""Small odd programs, and the rows of scope_total that were added up for them by hand.

Each is C behind a common beginning: keep(n) allocates n bytes that stay in k[], on(f) runs f in a thread of its own. A row is name, calls, then the bytes of
the heap malloc: self and total allocated, self freed, own freed, retained, peak of its own; ANY where the figure depends on how far the longjmp or the
range reaches, which other tests say.
"""
import os
import subprocess

from tidemark_test import main, test

BEGIN = """#define _GNU_SOURCE
#include "tidemark.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
void *volatile k[64];
int n;
static void keep(size_t size) { k[n++] = malloc(size); }
static inline void on(void *(*f)(void *)) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); }
#define PUSH tidemark_scope_push
#define POP tidemark_scope_pop
"""
ANY = None
ROWS = """select name, calls, self_allocated_bytes, total_allocated_bytes, self_freed_bytes, own_freed_bytes, retained_bytes, peak_own_bytes from scope_total
          where (heap = 'malloc' or heap is null) and name <> '[unscoped]' order by name"""


def recorded(t, program, level):
    """The database of one run of the program."""
    with open(t.path("odd.c"), "w", encoding="ascii") as file:
        file.write(BEGIN + program)
    t.run(["gcc", level, "-g", "-fno-builtin", "-w", "-I", f"{t.root}/recorder", "-o", "odd", "odd.c", "-pthread"], status=0)
    t.run([t.path("odd")], status=0)
    return t.imported(t.record([t.path("odd")], "--force", output=t.path("odd.tmk")))


def tells(t, program, *wanted, losses=()):
    for level in ("-O0", "-O2"):
        db = recorded(t, program, level)
        rows = [tuple(ANY if wish is ANY else value for value, wish in zip(row, wish_row)) for row, wish_row in zip(db.rows(ROWS), wanted)]
        t.equal((len(db.rows(ROWS)), rows), (len(wanted), list(wanted)), f"scope_total, {level}")
        t.equal(tuple(db.rows("select kind, count from loss")), losses, f"losses, {level}")


@test
def recursion(t):
    tells(t, 'static void f(int d) { TIDEMARK_SCOPE("rec"); keep(10); if (d) f(d - 1); } int main(void) { f(4); return 0; }', ("rec", 5, 50, 50, 0, 0, 50, 50))


@test
def ranges_that_overlap(t):
    tells(t, """int main(void) { uint64_t a = tidemark_range_begin("a"), b = tidemark_range_begin("b"); keep(10); tidemark_range_end(a); keep(20);
                tidemark_range_end(b); keep(30); return 0; }""", ("a", 1, 0, 10, 0, 0, 10, 10), ("b", 1, 30, 30, 0, 0, 30, 30))


@test
def frames_that_overlap(t):
    """A hundred frames of 1 ms and 1000 bytes, each begun before the last one ends."""
    program = """#include <unistd.h>
        int main(void) { uint64_t last = 0; for (int i = 0; i < 100; i++) { uint64_t r = tidemark_range_begin("frame"); if (last) tidemark_range_end(last); last = r;
        k[i % 64] = malloc(1000); usleep(1000); } tidemark_range_end(last); return 0; }"""
    tells(t, program, ("frame", 100, 100000, 100000, 0, 0, 100000, 1000))
    db = recorded(t, program, "-O2")
    t.equal(db.row("select count(*), max(depth), count(parent_id) from scope where id <> 0"), (100, 0, 0), "frames side by side")
    spent, length, calls = db.row("select max(t.duration_ns), (select max(end_ns) - min(start_ns) from scope where name = 'frame'), max(s.mean_duration_ns) "
                                  "from scope_total t, scope_summary s where t.name = 'frame' and s.name = 'frame'")
    t.equal(spent, length, "their time is that from the first to the last")
    t.check(100000000 <= spent and spent / 100 <= calls < spent / 50, f"{spent} ns in all, {calls} ns each")


@test
def freed_in_another_scope(t):
    tells(t, 'int main(void) { PUSH("A"); keep(100); POP(); PUSH("B"); free(k[0]); POP(); return 0; }',
          ("A", 1, 100, 100, 0, 100, 100, 100), ("B", 1, 0, 0, 100, 0, 0, 0))


@test
def grown_in_another_scope(t):
    tells(t, 'int main(void) { PUSH("A"); keep(100); POP(); PUSH("B"); k[0] = realloc(k[0], 300); POP(); return 0; }',
          ("A", 1, 100, 100, 0, 100, 100, 100), ("B", 1, 300, 300, 100, 0, 300, 300))


@test
def signal_handler(t):
    tells(t, """static void handler(int s) { TIDEMARK_SCOPE("handler"); keep(50); }
                int main(void) { signal(SIGUSR1, handler); PUSH("main"); keep(7); raise(SIGUSR1); keep(8); POP(); return 0; }""",
          ("handler", 1, 50, 50, 0, 0, 50, 50), ("main", 1, 15, 65, 0, 0, 65, 65))


@test
def peaks(t):
    tells(t, """int main(void) { PUSH("P"); keep(1000); free(k[0]); keep(500); PUSH("Q"); keep(20); free(k[2]); POP(); POP(); return 0; }""",
          ("P", 1, 1500, 1520, 1000, 1020, 500, 1000), ("Q", 1, 20, 20, 20, 20, 0, 20))


@test
def jump_out_of_recursion(t):
    tells(t, """static jmp_buf out;
                static void c(int d) { TIDEMARK_SCOPE("c"); keep(5); PUSH("pushed"); keep(2); if (!d) longjmp(out, 1); c(d - 1); }
                static void z(void) { TIDEMARK_SCOPE("z"); keep(9); }
                int main(void) { TIDEMARK_SCOPE("m"); if (!setjmp(out)) c(2); z(); keep(1); return 0; }""",
          ("c", 3, 15, 21, 0, 0, 21, 21), ("m", 1, 1, 31, 0, 0, 31, 31), ("pushed", 3, 6, ANY, 0, 0, ANY, ANY), ("z", 1, 9, 9, 0, 0, 9, 9))


@test
def range_of_a_thread_that_is_gone(t):
    tells(t, """static uint64_t id; static void *opens(void *x) { id = tidemark_range_begin("R"); keep(11); return x; }
                int main(void) { on(opens); tidemark_range_end(id); keep(12); return 0; }""", ("R", 1, 11, 11, 0, 0, 11, 11))


@test
def two_stacks_of_one_thread(t):
    tells(t, """static ucontext_t m, c; static char stack[65536];
                static void co(void) { TIDEMARK_SCOPE("co"); keep(100); swapcontext(&c, &m); keep(200); }
                int main(void) { getcontext(&c); c.uc_stack.ss_sp = stack; c.uc_stack.ss_size = sizeof stack; c.uc_link = &m; makecontext(&c, co, 0);
                TIDEMARK_SCOPE("main"); swapcontext(&m, &c); keep(3); swapcontext(&m, &c); keep(4); return 0; }""",
          ("co", 1, 303, 303, 0, 0, 303, 303), ("main", 1, 4, 307, 0, 0, 307, 307))


@test
def two_coroutines_near_each_other(t):
    """The first one's block lies further down than the second's, and was not left: what follows is of the block opened last, whichever coroutine runs."""
    tells(t, """static ucontext_t m, a, b; static char stacks[2][65536];
                static void in_a(void) { TIDEMARK_SCOPE("a"); keep(10); swapcontext(&a, &m); keep(20); }
                static void in_b(void) { TIDEMARK_SCOPE("b"); keep(100); swapcontext(&b, &m); keep(200); }
                static void make(ucontext_t *c, char *stack, void (*f)(void)) { getcontext(c); c->uc_stack.ss_sp = stack; c->uc_stack.ss_size = 65536;
                c->uc_link = &m; makecontext(c, f, 0); }
                int main(void) { make(&a, stacks[0], in_a); make(&b, stacks[1], in_b); swapcontext(&m, &a); swapcontext(&m, &b); swapcontext(&m, &a);
                swapcontext(&m, &b); return 0; }""",
          ("a", 1, 10, 130, 0, 0, 130, 130), ("b", 1, 320, 320, 0, 0, 320, 320))


@test
def handler_on_a_stack_above_its_threads(t):
    tells(t, """static char arena[1 << 19] __attribute__((aligned(4096)));
                static void handle(int s) { TIDEMARK_SCOPE("handler"); keep(5); }
                static void *work(void *x) { stack_t other = { .ss_sp = arena + (1 << 18), .ss_size = 1 << 18 }; sigaltstack(&other, 0);
                TIDEMARK_SCOPE("work"); keep(10); raise(SIGUSR1); keep(20); return x; }
                int main(void) { struct sigaction s = { .sa_handler = handle, .sa_flags = SA_ONSTACK }; pthread_attr_t own; pthread_t thread;
                sigaction(SIGUSR1, &s, 0); pthread_attr_init(&own); pthread_attr_setstack(&own, arena, 1 << 18);
                pthread_create(&thread, &own, work, 0); pthread_join(thread, 0); return 0; }""",
          ("handler", 1, 5, 5, 0, 0, 5, 5), ("work", 1, 30, 35, 0, 0, 35, 35))


@test
def forked_child_ends_what_its_parent_opened(t):
    """That closes nothing of the child's own, and is counted."""
    tells(t, """#include <sys/wait.h>
                #include <unistd.h>
                static uint64_t id; static pthread_barrier_t at;
                static void *own(void *x) { uint64_t mine = tidemark_range_begin("own"); keep(10); pthread_barrier_wait(&at); pthread_barrier_wait(&at);
                keep(20); tidemark_range_end(mine); return x; }
                static void *opens(void *x) { id = tidemark_range_begin("parent"); if (fork()) { wait(0); tidemark_range_end(id); return x; }
                pthread_t thread; pthread_barrier_init(&at, 0, 2); pthread_create(&thread, 0, own, 0); pthread_barrier_wait(&at); tidemark_range_end(id);
                pthread_barrier_wait(&at); pthread_join(thread, 0); _exit(0); }
                int main(void) { on(opens); return 0; }""",
          ("own", 1, 30, 30, 0, 0, 30, 30), ("parent", 1, 0, 0, 0, 0, 0, ANY), losses=(("unmatched-scope-end", 1),))


@test
def block_without_a_name(t):
    tells(t, """static const char *none; int main(void) { { TIDEMARK_SCOPE(none); keep(1); } TIDEMARK_SCOPE("named"); keep(2); return 0; }""",
          ("named", 1, 2, 2, 0, 0, 2, 2))


@test
def long_names_of_pools(t):
    """Those that agree in 240 bytes are one pool, and a note says so; a UTF-8 character at the end of what is kept is kept whole or not at all."""
    db = recorded(t, r"""int main(void) { static char a[301], b[301], wide[301]; memset(a, 'x', 300); memset(b, 'x', 299);
                for (int i = 0; i < 300; i += 3) memcpy(wide + i, i ? "\xe2\x82\xac" : "abc", 3); memmove(wide, wide + 2, 299);
                tidemark_heap_alloc(tidemark_heap_create(a, 0), a, 1000); tidemark_heap_alloc(tidemark_heap_create(b, 0), b, 2000);
                tidemark_heap_alloc(tidemark_heap_create(wide, 0), wide, 3000); return 0; }""", "-O2")
    t.equal(db.rows("select h.name, sum(a.size_bytes) from heap h join allocation a on a.heap_id = h.id where h.kind = 'pool' group by h.id order by 2, 1"),
            [("c" + 79 * "\u20ac", 3000), (240 * "x", 3000)], "pools")
    t.equal(db.value("select count(*) from note where kind = 'cut-texts' and text like '%240 bytes%'"), 1, "notes")


@test
def pool_that_a_librarys_constructor_makes(t):
    """It comes before the recorder's own where that is preloaded by hand."""
    with open(t.path("lib.c"), "w", encoding="ascii") as file:
        file.write(BEGIN + """static tidemark_heap pool; static char block; __attribute__((constructor)) static void make(void) { pool = tidemark_heap_create("early", 0); }
                              int use(void) { tidemark_heap_alloc(pool, &block, 12345); return pool != 0; }""")
    with open(t.path("early.c"), "w", encoding="ascii") as file:
        file.write("int use(void); int main(void) { return use() + 1; }")
    t.run(["gcc", "-shared", "-fPIC", "-w", "-I", f"{t.root}/recorder", "-o", "libearly.so", "lib.c"], status=0)
    t.run(["gcc", "-o", "early", "early.c", "./libearly.so"], status=0)
    t.run([t.path("early")], status=1)
    preloaded = t.path("preloaded.tmk")
    t.run([t.path("early")], env={"LD_PRELOAD": t.library, "TIDEMARK_OPTIONS": f"--quiet -o {preloaded}"}, status=2)
    for name, trace in (("recorded", t.record([t.path("early")], status=2)), ("preloaded", t.whole(preloaded))):
        t.equal(t.imported(trace).rows("select h.name, a.size_bytes from heap h join allocation a on a.heap_id = h.id where h.kind = 'pool'"), [("early", 12345)], name)


@test
def two_threads_at_once(t):
    tells(t, """static void *w(void *x) { TIDEMARK_SCOPE("w"); for (int i = 0; i < 1000; i++) { void *p = malloc(64); PUSH("in"); free(p); POP(); } return x; }
                int main(void) { pthread_t a, b; pthread_create(&a, 0, w, 0); pthread_create(&b, 0, w, 0); pthread_join(a, 0); pthread_join(b, 0); return 0; }""",
          ("in", 2000, 0, 0, 128000, 0, 0, 0), ("w", 2, 128000, 128000, 0, 128000, 0, 64))


@test
def blocks_in_a_loop_of_gotos(t):
    tells(t, """int main(void) { int i = 0; again: { TIDEMARK_SCOPE("g"); keep(3); if (++i < 5) goto again; } { TIDEMARK_SCOPE("h"); keep(4); } return 0; }""",
          ("g", 5, 15, 15, 0, 0, 15, 3), ("h", 1, 4, 4, 0, 0, 4, 4))


@test
def stopped_inside(t):
    """What was allocated before the stop is seen to go; what came after it was never there."""
    tells(t, """int main(void) { PUSH("S"); keep(10); tidemark_stop(); keep(20); PUSH("T"); free(k[0]); free(k[1]); POP(); tidemark_start(); keep(30); POP();
                return 0; }""", ("S", 1, 40, 40, 0, 10, 30, 30), ("T", 1, 0, 0, 10, 0, 0, 0))


@test
def one_name_twice(t):
    tells(t, """int main(void) { PUSH("x"); uint64_t i = tidemark_range_begin("x"); keep(1); tidemark_range_end(i); keep(2); POP(); POP(); return 0; }""",
          ("x", 2, 3, 3, 0, 0, 3, 3), losses=(("unmatched-scope-end", 1),))


@test
def steps_inside(t):
    tells(t, """int main(void) { tidemark_step(1); PUSH("x"); keep(1); tidemark_step(2); keep(2); POP(); tidemark_step(2); keep(4); return 0; }""",
          ("x", 1, 3, 3, 0, 0, 3, 3))


@test
def names_of_every_length(t):
    db = recorded(t, """int main(void) { static char text[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"; for (int i = sizeof text - 1; i >= 0; i--) { text[i] = 0;
                       PUSH(text); POP(); } return 0; }""", "-O0")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"
    names = [name for name, in db.rows("select name from scope where id <> 0 order by id")]
    t.equal(names, [letters[:n] for n in range(len(letters), -1, -1)], "names")


@test
def names_that_end_where_memory_ends(t):
    """Names are read a register at a time: never beyond the page that they end in, and what lies behind their end is no part of them."""
    db = recorded(t, """#include <sys/mman.h>
        int main(void) { char *end = (char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096; munmap(end, 4096);
        memset(end - 200, 'x', 200);
        for (int n = 0; n < 50; n++) for (int from = 50; from < 100; from += 7) { memset(end - 200, 'x', 200); memset(end - from, 'a' + n % 26, n); end[n - from] = 0;
        PUSH(end - from); POP(); { TIDEMARK_SCOPE(end - from); } }
        for (int n = 0; n < 50; n++) { memset(end - 200, 'y', 200); end[-1] = 0; PUSH(end - 1 - n); POP(); } return 0; }""", "-O2")
    names = [name for name, in db.rows("select name from scope where id <> 0 order by id")]
    t.equal(names, [chr(ord("a") + n % 26) * n for n in range(50) for _ in range(16)] + ["y" * n for n in range(50)], "names")


@test
def every_thread_asks_of_its_pool(t):
    program = t.program("pool_asks.c", "-pthread")
    t.equal(t.run([program], status=0).text, "400 200\n", "answers while nothing records")
    for _ in range(3):
        t.equal(t.record([program], "--force", output=t.path("asks.tmk")).text, "0 0\n", "wrong answers")


@test
def lines_of_a_tree_that_begin_alike(t):
    """Of those that allocated the same the name decides; what lies in one follows it, also where another's name goes on as its does."""
    program = '''static void f(const char *name) { PUSH(name); PUSH("in"); keep(10); POP(); POP(); }
                 int main(void) { f("a!"); f("a0"); f("a"); return 0; }'''
    db = recorded(t, program, "-O0")
    rows = t.run([t.tidemark, "scopes", db.path, "--tree", "--heap=malloc", "--format=csv"], status=0).text.splitlines()
    t.equal([row.split(",")[2] for row in rows[1:]], ["a", "in", "a!", "in", "a0", "in"], "the names in order")


@test
def a_tree_of_many_levels(t):
    """Where each line of the tree held the names of all those around it, ten thousand levels took gigabytes."""
    db = recorded(t, """#include <stdio.h>
                int main(void) { for (int i = 0; i < 10000; i++) { char name[20]; sprintf(name, "level %d", i); PUSH(name); free(malloc(5)); } return 0; }""", "-O0")
    with open(t.path("tree.csv"), "wb") as out:
        child = subprocess.Popen([os.path.join(t.build, "bin/tidemark"), "scopes", db.path, "--tree", "--limit=0", "--format=csv"], stdout=out,
                                 stdin=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    with open(t.path("tree.csv"), encoding="utf-8") as out:
        names = [row.split(",")[2] for row in out.read().splitlines()[1:]]
    t.equal((child.returncode, names), (0, [f"level {i}" for i in range(10000)]), "the exit status and the lines")
    if t.sanitized:
        t.skip("memory is not what it would be without the sanitizer")
    t.check(used.ru_maxrss <= 300 << 10, f"{used.ru_maxrss >> 10} MiB for a tree of 10000 lines")


main()
