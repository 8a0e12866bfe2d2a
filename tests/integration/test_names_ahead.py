"""Names that are looked up while the program runs: they must be those that are found afterwards, whatever happens to the readers.

Method: a program that loads a library after a while is recorded several times: in peace, with its readers killed while it runs, with the library's
file replaced by other bytes, and without names. What a recording calls its frames is compared with what `tidemark-record names` finds.
"""
import os
import shutil
import signal
import subprocess
import time

import tmkread
from tidemark_test import main, settled, test

PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static __attribute__((noinline)) void *early(int n) { return malloc(n); }
static __attribute__((noinline)) void *late(int n) { return malloc(n); }
int main(int argc, char **argv) {
	void *p = early(10);
	void *library = dlopen(argv[1], RTLD_NOW);
	void *(*made)(int) = library ? (void *(*)(int))dlsym(library, "made") : NULL;
	if (!made) return 1;
	free(made(20));
	puts("ready");
	fflush(stdout);
	char answer = 'g';
	if (argc > 2 && read(0, &answer, 1) != 1) return 2;
	free(late(30));
	free(p);
	return 0;
}
"""
# What is called first when the program leaves is not named before the end.
LIBRARY = r"""
#include <stdlib.h>
static __attribute__((noinline)) void *inner(int n) { return malloc(n); }
static __attribute__((noinline)) void *last(int n) { return malloc(n); }
void *made(int n) { void *p = inner(n); *(volatile char *)p = 1; return p; }
__attribute__((destructor)) static void leave(void) { free(last(40)); }
"""


def compiled(t, name, source, *flags):
    with open(t.path(name + ".c"), "w", encoding="ascii") as file:
        file.write(source)
    t.run(["gcc", "-O1", "-g", "-fno-builtin", "-fno-optimize-sibling-calls", "-o", t.path(name), t.path(name + ".c"), *flags], status=0)
    return t.path(name)


def programs(t):
    t.need("gcc")
    return compiled(t, "ahead", PROGRAM, "-ldl"), compiled(t, "libahead.so", LIBRARY, "-shared", "-fPIC")


# Whether the loader's list of what it has mapped needs more room depends on the addresses that it is given, which differ from run to run.
NOW_AND_THEN = {"_dl_find_object_update_1", "_dlfo_mappings_segment_allocate", "calloc", "malloc"}


def functions(trace):
    """The functions of all names in the trace, but for those."""
    texts, found = {}, set()
    with open(trace, "rb") as file:
        for line in tmkread.dump(file.read()):
            word = line.split()
            if word[0] == "string":
                texts[word[1][3:]] = word[2][6:]
            elif word[0] == "name":
                found |= {texts.get(number.split("=")[1]) for number in word[2::3]}
    return found - NOW_AND_THEN


def readers_of(pid):
    children, found = [], []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children += file.read().split()
        except OSError:
            pass
    for child in children:
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                if b"names-reader" in file.read():
                    found.append(int(child))
        except OSError:
            pass
    return found


def holds(pid, path):
    """Whether the process has the file open, or mapped."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return path in file.read() or path in [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False


def record_until_readers(t, program, library, output, then):
    """Waits until readers hold the program and the library; does `then(pids)`, and lets the program go on."""
    child = t.start([t.recorder, "--quiet", "--force", "-o", output, "--", program, library, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    t.equal(child.stdout.readline(), b"ready\n", "the program's output")
    for _ in range(6000):
        readers = readers_of(child.pid)
        ready = all(any(holds(pid, path) for pid in readers) for path in (program, library))
        if ready:
            break
        time.sleep(0.01)
    t.check(ready, f"readers: {readers}")
    then(readers)
    child.stdin.write(b"g")
    child.stdin.close()
    child.stdout.close()
    t.equal(child.wait(), 0, "exit status of the recording")
    return readers


def named_afterwards(t, program, library):
    trace = t.path("after.tmk")
    t.run([t.recorder, "--quiet", "--force", "--names=none", "-o", trace, "--", program, library], status=0)
    t.run([t.recorder, "names", "--quiet", trace], status=0)
    return functions(trace)


@test
def same_names_as_afterwards(t):
    program, library = programs(t)
    wanted = named_afterwards(t, program, library)
    t.check({"early", "late", "inner", "last", "made", "main"} <= wanted, f"names found afterwards: {sorted(wanted)}")
    readers = record_until_readers(t, program, library, t.path("ahead.tmk"), lambda pids: time.sleep(0.3))
    t.equal(functions(t.path("ahead.tmk")), wanted, "names found ahead")
    t.equal([pid for pid in readers if os.path.exists(f"/proc/{pid}")], [], "readers that are left")


KIDS = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();
		if (child == 0) {
			void *library = dlopen(argv[1], RTLD_NOW);
			free(((void *(*)(int))dlsym(library, "made"))(20 + i));
			_exit(0);
		}
		waitpid(child, NULL, 0);
		usleep(400000);
	}
	puts("ready");
	fflush(stdout);
	getchar();
	return 0;
}
"""


@test
def names_are_there_before_the_end(t):
    """Four processes load one library, one after the other; then the recorder is killed. What it has written by then has the names of all of their frames in the library."""
    t.need("gcc")
    program, library = compiled(t, "kids", KIDS, "-ldl"), compiled(t, "libahead.so", LIBRARY, "-shared", "-fPIC")
    output = t.path("killed.tmk")

    def made():
        child = t.start([t.recorder, "--quiet", "--force", "-o", output, "--", program, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        t.equal(child.stdout.readline(), b"ready\n", "the program's output")
        time.sleep(1.5)  # events are written at least once a second
        child.kill()
        child.wait()
        child.stdin.close()  # and the program ends
        child.stdout.close()
        with open(output, "rb") as file:
            lines = [line.split() for line in tmkread.dump(file.read())]
        texts = {w[1][3:]: w[2][6:] for w in lines if w[0] == "string"}
        names = [[texts.get(number.split("=")[1]) for number in w[2::3]] for w in lines if w[0] == "name"]
        return sum("made" in found for found in names), sum("inner" in found for found in names)
    count = settled(made, lambda found: found == (4, 4))
    t.equal(count, (4, 4), "names of the functions that each of four processes ran")


@test
def readers_that_are_killed(t):
    """Some before they have answered anything: their files are read as if there had been no readers."""
    program, library = programs(t)
    wanted = named_afterwards(t, program, library)

    def kill(pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    record_until_readers(t, program, library, t.path("ahead.tmk"), kill)
    t.equal(functions(t.path("ahead.tmk")), wanted, "names found in spite of it")


@test
def readers_that_hang(t):
    """Stopped while the program runs, and going on only when it has ended: nothing waits for them before."""
    program, library = programs(t)
    wanted = named_afterwards(t, program, library)
    started = []

    def stop(pids):
        started.extend(pids)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        script = "sleep 1; kill -CONT " + " ".join(str(pid) for pid in pids) + " 2>/dev/null"
        started.append(subprocess.Popen(["sh", "-c", script]))
    record_until_readers(t, program, library, t.path("ahead.tmk"), stop)
    started[-1].wait()
    t.equal(functions(t.path("ahead.tmk")), wanted, "names found in spite of it")


@test
def a_library_that_is_replaced(t):
    """It was opened before, so its names are there; those of a file that is gone are not known afterwards."""
    program, library = programs(t)
    shutil.copy(library, t.path("libgone.so"))

    record_until_readers(t, program, t.path("libgone.so"), t.path("ahead.tmk"), lambda _: os.remove(t.path("libgone.so")))
    t.check({"inner", "last", "made"} <= functions(t.path("ahead.tmk")), "names of the library that is gone")


@test
def a_library_that_is_replaced_on_a_busy_machine(t):
    """The same where its reader gets no processor when the program ends: nobody else can read the file any more, so that one is waited for."""
    program, library = programs(t)
    shutil.copy(library, t.path("libgone.so"))
    waker = []

    def replace(pids):
        os.remove(t.path("libgone.so"))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        waker.append(subprocess.Popen(["sh", "-c", "sleep 2; kill -CONT " + " ".join(str(pid) for pid in pids) + " 2>/dev/null"]))
    record_until_readers(t, program, t.path("libgone.so"), t.path("ahead.tmk"), replace)
    waker[0].wait()
    t.check({"inner", "last", "made", "early", "late"} <= functions(t.path("ahead.tmk")), "names, those of the library that is gone among them")


MANY = 300
ORDER = [i * 157 % MANY for i in range(MANY)]
FIRST_BYTES = 70000  # nobody else asks for so much


@test
def each_address_its_own_name(t):
    """Of a library with many functions that are called in no order of their addresses, as the program leaves, and that is gone when its reader gets no processor: whoever is asked
    instead sorts them, and must not have the first one's answers told of others. A block's size says which function it is of."""
    program = programs(t)[0]
    bodies = "".join(f"void *f{i}(void) {{ void *p = malloc({FIRST_BYTES + i}); *(volatile char *)p = 1; return p; }}\n" for i in range(MANY))
    calls = "".join(f"free(f{i}());\n" for i in ORDER)
    library = compiled(t, "libmany.so", f"#include <stdlib.h>\n{bodies}void *made(int n) {{ return malloc(n); }}\n"
                       f"__attribute__((destructor)) static void leave(void) {{ {calls} }}\n", "-shared", "-fPIC")
    waker = []

    def replace(pids):
        os.remove(library)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        waker.append(subprocess.Popen(["sh", "-c", "sleep 2; kill -CONT " + " ".join(str(pid) for pid in pids) + " 2>/dev/null"]))
    record_until_readers(t, program, library, t.path("many.tmk"), replace)
    waker[0].wait()
    found = t.imported(t.path("many.tmk")).rows("""SELECT size_bytes, function FROM allocation JOIN stack ON stack.id = stack_id
        JOIN frame ON frame.id = frame_id WHERE size_bytes BETWEEN ? AND ?""", FIRST_BYTES, FIRST_BYTES + MANY - 1)
    t.equal(len(found), MANY, "blocks")
    t.equal([(size, function) for size, function in found if function != f"f{size - FIRST_BYTES}"], [], "blocks of another function")


@test
def readers_that_never_listen(t):
    """Stopped for good, and asked for more than a socket holds: the recording ends nevertheless, and so do they."""
    program = programs(t)[0]
    sites = "".join(f"free(malloc({i % 100 + 1}));\n" for i in range(40000))
    library = compiled(t, "libsites.so", f"#include <stdlib.h>\nvoid *made(int n) {{ {sites} return malloc(n); }}\n", "-O0", "-g0", "-shared", "-fPIC")

    def stop(pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    readers = record_until_readers(t, program, library, t.path("stopped.tmk"), stop)
    t.equal([pid for pid in readers if os.path.exists(f"/proc/{pid}")], [], "readers that are left")
    t.check({"made", "early", "late"} <= functions(t.path("stopped.tmk")), "names of files that are there")


@test
def a_library_without_build_id(t):
    """The path tells whose names they are, as long as nothing else lies there: then there are none, rather than those of the other file."""
    program, library = programs(t)
    plain = compiled(t, "libplain.so", LIBRARY, "-shared", "-fPIC", "-Wl,--build-id=none")
    other = compiled(t, "libother.so", LIBRARY.replace("inner", "wrong"), "-shared", "-fPIC", "-Wl,--build-id=none")
    record_until_readers(t, program, plain, t.path("ahead.tmk"), lambda pids: None)
    t.equal(functions(t.path("ahead.tmk")), named_afterwards(t, program, plain), "names found ahead")
    t.check({"inner", "made"} <= functions(t.path("ahead.tmk")), "those of the library")
    with open(other, "rb") as file:
        bytes_of_other = file.read()

    def replace(pids):
        os.remove(plain)
        with open(plain, "wb") as file:
            file.write(bytes_of_other)
        for pid in pids:  # none of them goes on, and none is waited for
            os.kill(pid, signal.SIGSTOP)
    record_until_readers(t, program, plain, t.path("replaced.tmk"), replace)
    t.equal(functions(t.path("replaced.tmk")) & {"inner", "made", "wrong"}, set(), "names of a library that is another one now")


@test
def two_libraries_at_one_path(t):
    """Neither has a build-id, and one process loaded the first, another the second: what lies there now is not what the first one loaded."""
    program, first = programs(t)[0], t.path("first.so")
    for name, source in (("first", LIBRARY), ("second", LIBRARY.replace("inner", "wrong"))):
        compiled(t, f"{name}.so", source, "-shared", "-fPIC", "-Wl,--build-id=none")
    script = f"{program} {first}; rm {first}; sleep 0.4; cp {t.path('second.so')} {first}; {program} {first}; sleep 0.4"
    t.run([t.recorder, "--quiet", "-o", t.path("two.tmk"), "--", "sh", "-c", script], status=0)
    found = functions(t.path("two.tmk"))
    t.check({"early", "late", "main"} <= found, f"names of the program: {sorted(str(name) for name in found)}")
    t.equal(found & {"inner", "made", "wrong"}, set(), "names of what may be either library")


ELSEWHERE = r"""
#include <stdlib.h>
#include <unistd.h>
static __attribute__((noinline)) void *FUNCTION(int n) { return malloc(n); }
int main(void) {
	free(FUNCTION(100));
	return sleep(1) != 0;
}
"""


@test
def a_program_where_another_lies_for_us(t):
    """By the same path, through a bind mount that the recorder does not see. Neither has a build-id: rather no names than those of the other."""
    t.need("gcc", "unshare", "mount")
    for where in ("here", "there"):
        os.mkdir(t.path(where))
        compiled(t, f"{where}/program", ELSEWHERE, f"-DFUNCTION=of_{where}", "-Wl,--build-id=none")
    mounted = f"mount --bind {t.path('there')} {t.path('here')}"
    unshare = ["unshare", "-m"] if t.run(["unshare", "-m", "sh", "-c", mounted]).status == 0 else ["unshare", "-rm"]
    if t.run([*unshare, "sh", "-c", mounted]).status:
        t.skip("nothing can be mounted here")
    program = t.path("here/program")
    t.check("of_here" in functions(t.record([*unshare, program]).trace), "names where it is the same file in another name space")
    recording = t.record([*unshare, "sh", "-c", f"{mounted} && exec {program}"])
    db = t.imported(recording)
    t.equal(db.rows("select function from site where allocated_bytes = 100"), [(None,)], "names of the other program's call site")
    path = db.value("select path from module where path like '/proc/%/program'")
    t.check(path.endswith("/root" + program), f"its path says from where: {path}")
    t.check(any(path in text for text, in db.rows("select text from note where kind = 'names'")), "a note says so")
    t.run([t.tidemark, "names", recording.trace])
    t.equal(functions(recording.trace) & {"of_here", "of_there"}, set(), "names afterwards")


main()
