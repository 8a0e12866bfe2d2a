"""What recording CUDA adds to an allocation and its release, and to a launch, in instructions; and that a program which does not use CUDA pays one environment variable
and nothing else, nor does the recorder.

Method: as test_instructions.py: cachegrind counts what the program runs, bare and recorded, with N and with 3 N calls. The doubles give no records of work (those are
CUPTI's cost, and are read on a thread of its own), so what is counted is our callbacks, and about 520 instructions of the doubles in a pair and 190 in a launch.
"""
import os
import re

from gpu_run import build, doubles
from tidemark_test import counted, instructions_of, main, settled, test

CALLS = 3000
FLAGS = ("-DWITHOUT_cuptiActivityRegisterCallbacks",)
PAIR, LAUNCH, START = 2560, 795, 5100 # about a tenth above what is reached


def instructions(t, where, arguments, options):
    """Of the program alone; options None: bare. A start costs more the more variables there are: here they are the same few on every machine."""
    env = {**{name: None for name in os.environ if name not in ("HOME", "LC_ALL", "PATH")}, **doubles(where)}
    command = counted(f"{where}/driver", *arguments)
    done = t.run(command, env=env, status=0) if options is None else t.record(command, "--force", *options, output=t.path("run.tmk"), env=env)
    if options is not None:
        t.check("lost         nothing" in done.errors, f"the recording lost something:\n{done.errors}")
    return instructions_of(done)


def prepare(t):
    t.need("valgrind")
    if t.sanitized:
        t.skip("this build has checks compiled in")
    return build(t, *FLAGS)


def at_most(t, limit, scenario, *options):
    where = prepare(t)
    each = lambda o: (instructions(t, where, (scenario, str(3 * CALLS)), o) - instructions(t, where, (scenario, str(CALLS)), o)) / (2 * CALLS)
    cost = settled(lambda: each(options) - each(None), lambda figure: 50 < figure <= limit)
    print(f"{cost:.1f} instructions more for one of {scenario}, at most {limit}")
    t.check(cost <= limit, f"recording adds {cost:.1f} instructions to one of {scenario}; at most {limit} are allowed")
    t.check(cost > 50, f"{cost:.1f} instructions: nothing was recorded")


@test
def an_allocation_and_its_release(t):
    """With a stack of 34 frames, which is taken anew each time."""
    at_most(t, PAIR, "pairs")


@test
def a_launch(t):
    at_most(t, LAUNCH, "launches")


@test
def start_without_cuda(t):
    """--gpu=auto against --gpu=off, in a program that is linked with the driver and does not call it: the whole difference is one variable of the environment, and a
    look at its open files at the end."""
    where = prepare(t)
    start = lambda how: instructions(t, where, ("none",), (f"--gpu={how}",))
    more = settled(lambda: start("auto") - start("off"), lambda figure: 0 < figure <= START)
    print(f"{more} instructions more with --gpu=auto, at most {START}")
    t.check(0 < more <= START, f"{more} instructions more than with --gpu=off")


LOOK = """
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
static void list(const char *path) {
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) printf("%s/%s\\n", path + 11, e->d_name[0] == '.' || strstr(path, "task") ? "*" : e->d_name);
	if (d) closedir(d);
}
static void show(int pid, int whole) {
	char path[64], line[4096], perms[8], name[4096];
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f)) {
		name[0] = 0;
		sscanf(line, "%*s %7s %*s %*s %*s %4095[^\\n]", perms, name);
		if (whole || name[0] == '/') printf("%d %s %s\\n", whole, perms, name);
	}
	if (f) fclose(f);
}
int main(void) {
	for (char **e = environ; *e; e++) printf("%s\\n", *e);
	show(getpid(), 1);
	show(getppid(), 0);
	list("/proc/self/task");
	list("/proc/self/fd");
	return 0;
}
"""


@test
def nothing_at_all_without_cuda(t):
    """NVIDIA's libraries (the doubles) are there, and nobody touches them: with --gpu=auto the program sees what it sees with --gpu=off, but for one variable, and it
    and the recorder open the same files and start as many threads."""
    if t.sanitized:
        t.skip("sanitizers open files and map memory of their own")
    where, source = build(t), t.path("look.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(LOOK)
    program = t.program(source)
    seen = {how: sorted(re.sub("SESSION=.*", "SESSION=", line) for line in t.record([program], "--quiet", f"--gpu={how}", output=t.path(f"{how}.tmk"), env=doubles(where)).text.splitlines())
            for how in ("auto", "off")}
    more = [line for line in seen["auto"] if line not in seen["off"]]
    t.equal([line.split("=")[0] for line in more], ["CUDA_INJECTION64_PATH"], "what the program sees more")
    t.equal(len(seen["auto"]), len(seen["off"]) + 1, "how much it sees")
    t.check(sum(line.startswith("0 ") for line in seen["auto"]) > 10, "the recorder's mappings were not seen")
    for line in seen["auto"]:
        t.check(line.startswith(("LD_LIBRARY_PATH", "TIDEMARK", "CUDA_INJ")) or not re.search("libcuda|cupti|nvidia", line), f"it is there: {line}")
    t.need("strace")
    lived, files = {"auto": [], "off": []}, {}
    # The recorder's thread that compresses starts when there is something to do in time: one more now and then. The fewest are what is compared.
    while not files or (min(lived["auto"]) != min(lived["off"]) and len(lived["auto"]) < 12):
        for how in ("auto", "off"):
            # Whether names are looked up while the program runs, by processes of their own, is a matter of time.
            command = ["strace", "-f", "-o", t.path(how), "-e", "trace=%file,clone,clone3,fork,vfork", t.tidemark, "record", "--quiet", "--names=none", f"--gpu={how}",
                       "-o", t.path("traced.tmk"), "--force", "--", program]
            if t.run(command, env=doubles(where)).status:
                t.skip("no program can be traced here")
            with open(t.path(how), encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
            # A call may be interrupted and begin again: who lived is counted by their numbers, not by the calls that made them.
            lived[how].append(len({line.split()[0] for line in lines}))
            calls = [re.sub(r"^\d+ +", "", line) for line in lines if " resumed>" not in line] # the rest of a call, when others came between
            for line in calls:
                t.check(line.startswith("exec") or not re.search(r"libcuda\.|libcupti|nvidia", line.replace(where, "")), f"somebody looked for it: {line}")
            files[how] = {re.sub(r"\d+", "#", found[1]) for found in (re.search('"(/[^"]*)"', line) for line in calls) if found}
    t.equal(min(lived["auto"]), min(lived["off"]), "threads and processes")
    t.check(min(lived["auto"]) >= 3, "tidemark, its recorder and the program were not all seen")
    # How often /proc is read depends on the time.
    t.equal(sorted(f for f in files["auto"] ^ files["off"] if not f.startswith(("/proc/", "/sys/"))), [], "files that only one of them asks for")


main()
