"""Programs that define what libc defines, too: an allocator, an environment, strings, a clock. None of it is called for our sake, as libc does not call it either.

Method: the programs set up what they define in main(), or count its calls, so that a call of ours ends them or shows in what they print; they are run bare, recorded
and with the library preloaded, and must do the same. What the library may ask libc for by name stands in a list.
"""
import os
import re
import subprocess

from tidemark_test import main, test

PROGRAMS = {
    # An allocator over a pool that main() makes. Nothing calls malloc before that in a C program.
    "pool": """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static char *pool, *top;
void *malloc(size_t n) { size_t *p = (size_t *)top; top += (n + 31) & ~15ul; p[0] = n; return p + 2; }
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t size) { return memset(malloc(n * size), 0, n * size); }
void *realloc(void *old, size_t n) { void *p = malloc(n); if (old) memcpy(p, old, ((size_t *)old)[-2] < n ? ((size_t *)old)[-2] : n); return p; }
int main(void) {
	pool = top = mmap(0, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("%s, %ld\\n", strdup("it works"), (long)(top - pool));
	return 0;
}
""",
    # An environment as shells have it.
    "environment": """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static struct table { int sets, gets; } *vars;
int setenv(const char *name, const char *value, int over) { (void)name; (void)value; (void)over; vars->sets++; return 0; }
char *getenv(const char *name) { (void)name; vars->gets++; return NULL; }
int main(void) {
	vars = calloc(1, sizeof *vars);
	setenv("A", "1", 1);
	printf("%d set, %d asked for\\n", vars->sets, vars->gets);
	return 0;
}
""",
    # Strings and bytes that count their calls; main() makes none.
    "strings": """#include <stdio.h>
#include <stdlib.h>
static long n;
size_t strlen(const char *s) { size_t k = 0; for (n++; s[k];) k++; return k; }
size_t strnlen(const char *s, size_t most) { size_t k = 0; for (n++; k < most && s[k];) k++; return k; }
void *memcpy(void *to, const void *from, size_t k) { n++; for (size_t i = 0; i < k; i++) ((char *)to)[i] = ((char *)from)[i]; return to; }
void *memset(void *to, int c, size_t k) { n++; for (size_t i = 0; i < k; i++) ((char *)to)[i] = c; return to; }
int memcmp(const void *a, const void *b, size_t k) { n++; for (size_t i = 0; i < k; i++) if (((char *)a)[i] != ((char *)b)[i]) return 1; return 0; }
int strcmp(const char *a, const char *b) { n++; while (*a && *a == *b) a++, b++; return *(unsigned char *)a - *(unsigned char *)b; }
int strncmp(const char *a, const char *b, size_t k) { n++; while (k && *a && *a == *b) a++, b++, k--; return k ? *(unsigned char *)a - *(unsigned char *)b : 0; }
int main(void) {
	for (int i = 0; i < 10; i++) free(malloc(100));
	printf("%ld calls\\n", n);
	return 0;
}
""",
    # A clock that stands still, as under faketime: 300,000 pairs through the smallest ring have to wait for room.
    "clock": """#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static long calls;
int clock_gettime(clockid_t clock, struct timespec *now) { (void)clock; calls++; *now = (struct timespec){ 1000000, 0 }; return 0; }
int main(void) {
	for (long i = 0; i < 300000; i++) free(malloc(100 + i % 1000));
	printf("%ld calls\\n", calls);
	return 0;
}
""",
}
SAYS = {"pool": b"it works, 4144\n", "environment": b"1 set, 0 asked for\n", "strings": b"0 calls\n", "clock": b"0 calls\n"}

# What is libc's by name: what has no other way in, what a program has no reason to define, and what belongs to whoever loads and ends programs.
ASKED_OF_LIBC = {"__cxa_atexit", "__cxa_finalize", "__environ", "environ", "__errno_location", "__libc_stack_end", "__tls_get_addr", "_dl_find_object", "_r_debug",
                 "clock_gettime",  # clock.c, where the kernel gives no function and a system call is not allowed
                 "dl_iterate_phdr", "dladdr1", "dlopen", "dlvsym", "getauxval", "gnu_get_libc_version", "on_exit", "pthread_getspecific", "pthread_key_create",
                 "pthread_setspecific"}


def built(t, name):
    with open(t.path(f"{name}.c"), "w", encoding="ascii") as file:
        file.write(PROGRAMS[name])
    return t.program(t.path(f"{name}.c"), "-O1", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-w")


def same_everywhere(t, name, *options):
    program, says = built(t, name), SAYS[name]
    bare = subprocess.run([program], capture_output=True, check=True).stdout
    if name == "pool":  # stdio's buffer is in it, as large as the file system likes
        says = bare
        t.check(bare.startswith(b"it works, "), f"bare: {bare}")
    t.equal(bare, says, "bare")
    recording = t.record([program], "--quiet", *options)
    t.equal(recording.out, says, "recorded")
    preloaded = dict(os.environ, LD_PRELOAD=os.path.join(t.build, "lib/libtidemark.so"),
                     TIDEMARK_OPTIONS=f"--quiet -o {t.path('preloaded.tmk')} {' '.join(options)}")
    t.equal(t.run([program], status=0, env=preloaded).out, says, "preloaded")
    return t.imported(recording)


@test
def an_allocator_that_main_sets_up(t):
    db = same_everywhere(t, "pool")
    t.equal(db.value("select count(*) from note where kind like '%malloc%' or text like '%malloc%'"), 1, "a note says that it is not seen")


@test
def an_environment_that_main_sets_up(t):
    same_everywhere(t, "environment")


@test
def strings_that_count_their_calls(t):
    db = same_everywhere(t, "strings")
    t.check(db.value("select count(*) from allocation where size_bytes = 100") >= 10, "its blocks are there")


@test
def a_clock_that_stands_still(t):
    db = same_everywhere(t, "clock", "--ring=64KiB")
    t.equal(db.value("select sum(allocations) from site_total as s join stack as k on k.id = s.stack_id"), db.value("select allocations from heap_summary where heap is null"), "sums")
    t.check(db.value("select allocations from heap_summary where heap = 'malloc'") >= 300000, "all of them")


@test
def what_is_asked_of_libc_by_name(t):
    t.need("nm")
    said = t.run(["nm", "-D", "--undefined-only", os.path.join(t.build, "lib/libtidemark.so")], status=0).text
    names = set(re.findall(r"\b[Uw] (\w+)", said)) - {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    t.check("dl_iterate_phdr" in names, f"the list is read: {said}")
    t.equal(sorted(names - ASKED_OF_LIBC), [], "names that a program may have, too")


main()
