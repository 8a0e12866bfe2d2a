"""What can go wrong around a recording: each failure is one line that says what, on what and why, and the program never suffers from it."""
import glob
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import time

from tidemark_test import main, test


def one_line(t, outcome, *words):
    lines = outcome.errors.splitlines()
    t.equal(len(lines), 1, f"lines on standard error ({outcome.errors!r})")
    t.check(lines[0].startswith("tidemark"), f"who speaks: {lines[0]}")
    for word in words:
        t.check(word in lines[0], f"{word!r} is not in: {lines[0]}")


@test
def command_not_found(t):
    done = t.record(["no-such-command-here"], status=127)
    one_line(t, done, "no-such-command-here")
    one_line(t, t.record(["./no-such-file"], status=127), "./no-such-file")
    one_line(t, t.record([""], status=127), "'': No such file or directory")


@test
def nobody_listens_to_the_analyzer(t):
    """An export that warns while its file is half written, with nobody to hear it: the signal ends it, and the file goes."""
    db = t.imported(t.record([t.program("prog_marks.c")]))
    ear, mouth = os.pipe()
    os.close(ear)
    done = subprocess.run([t.tidemark, "export", "chrome", db.path, "-o", t.path("x.json"), "--max-events=1"], stderr=mouth, check=False, timeout=60)
    os.close(mouth)
    t.equal(done.returncode, -signal.SIGPIPE, "how it ended")
    t.equal([name for name in os.listdir(t.dir) if "x.json" in name], [], "nothing is left")


@test
def not_executable(t):
    with open(t.path("text"), "w", encoding="ascii") as file:
        file.write("no program\n")
    one_line(t, t.record([t.path("text")], status=126), "text")
    one_line(t, t.record([t.dir], status=126), t.dir)


@test
def a_directory_that_cannot_be_made(t):
    """What is said is why it could not be made, not that it is not there."""
    for path in (t.recorder, t.library):
        shutil.copy(path, t.dir)
    os.mkdir(t.path("shut"), mode=0o555)
    os.chmod(t.dir, 0o755)
    drop = (lambda: os.setuid(65534)) if os.geteuid() == 0 else None
    done = t.run([t.path("tidemark-record"), "-o", t.path("shut/new/x.tmk"), "--", "true"], preexec=drop, status=125)
    t.equal(done.errors, f"tidemark-record: cannot make directory '{t.path('shut/new')}': Permission denied\n", "what is said")


@test
def a_link_that_leads_nowhere(t):
    """It is something that is there, and what it leads to is made only with --force."""
    link, target = t.path("link.tmk"), t.path("target")
    os.symlink(target, link)
    done = t.record(["true"], output=link, status=125)
    t.equal(done.errors, f"tidemark-record: cannot create '{link}': File exists (--force overwrites it)\n", "what is said")
    t.check(not os.path.lexists(target), "it was followed")
    t.record(["true"], "--force", "--quiet", output=link)
    t.equal((os.path.islink(link), t.imported(target).value("select command from process")), (True, "true"), "with --force")


@test
def an_older_recording_stays(t):
    """Where the command is not there, or cannot be run, nothing is written over; and what is written over is for its owner's eyes only from then on."""
    older = t.path("older.tmk")
    for path in (older, t.path("text")):
        with open(path, "w", encoding="ascii") as file:
            file.write("older\n")
    os.chmod(older, 0o644)
    for name, line in (("lost", "/no/such/interpreter -x"), ("barred", t.path("text"))):
        with open(t.path(name), "w", encoding="utf-8") as file:
            file.write(f"#! {line}\n")
        os.chmod(t.path(name), 0o755)
    for command, status in (("./no-such-file", 127), (t.path("lost"), 127), ("lost", 127), (t.path("barred"), 126), ("no-such-command-here", 127), (t.path("text"), 126), (t.dir, 126), ("text", 126), (t.path("text/x"), 126)):
        done = t.run([t.recorder, "--force", "-o", older, "--", command], env={"PATH": f"{t.dir}:/bin"}, status=status)
        one_line(t, done, command)
        with open(older, encoding="ascii") as file:
            t.equal(file.read(), "older\n", f"the older file, after {command}")
    t.equal(stat.S_IMODE(os.stat(older).st_mode), 0o644, "its mode")
    t.imported(t.record(["true"], "--force", "--quiet", output=older))
    t.equal(stat.S_IMODE(os.stat(older).st_mode), 0o600, "the mode of a trace")


@test
def names_that_hold_control_characters(t):
    """What is said stays on its line, and does nothing to a terminal."""
    odd, said = "a\nb\x1b[31m\x7f\u009b\u00e9", r"a\nb\x1b[31m\x7f\x9b" + "\u00e9"
    trace = t.path(odd)
    t.run([t.recorder, "-o", trace, "--", "true"], status=0)
    for command, status in ((["-o", trace, "--", "true"], 125), (["--force", "-o", t.path("x"), "--", "./no" + odd], 127), (["names", t.path("no" + odd)], 1), (["--stacks=" + odd, "--", "true"], 125),
                            (["--" + odd, "--", "true"], 125), (["names", "--" + odd], 2), (["dump", "--" + odd], 2)):
        one_line(t, t.run([t.recorder, *command], status=status), said)
    done = t.run([t.recorder, "-o", trace, "--force", "--verbose", "--alert=live(" + odd + ") > 1", "--", "true"], status=0)
    t.equal(len([line for line in done.errors.splitlines() if said in line and line.startswith("tidemark-record: ")]), 3, f"lines that name it: {done.errors!r}")
    t.check("\x1b" not in done.errors, "what acts on a terminal")


@test
def exit_statuses(t):
    program = t.program("hello.c")
    for status in (0, 1, 42, 125, 126, 127, 255):
        done = t.record([program, str(status)], status=status)
        t.equal(done.out, b"hello\n", "output")


@test
def ends_by_signal(t):
    program = t.program("hello.c")
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGINT, signal.SIGHUP):
        recording = t.record([program, "signal", str(int(number))], status=128 + number)
        t.equal(recording.out, b"hello\n", "output")
        db = t.imported(recording)
        t.equal(db.row("select end_kind, end_code from process"), ("signal", number), "end")
        t.equal(db.value("select count(*) from allocation where size_bytes = 111"), 1, "rows")


@test
def ignored_signals(t):
    """What was ignored around a recording is ignored in the program, and nothing else: services and CI runners start theirs without SIGPIPE."""
    show = ["grep", "^Sig[IB]", "/proc/self/status"]
    for numbers in ([], [signal.SIGPIPE, signal.SIGXFSZ], [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]):
        def ignore():
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
        bare = t.run(show, status=0, preexec=ignore).out
        for tool in ([t.tidemark, "record"], [t.recorder]):
            done = t.run([*tool, "--force", "-o", t.path("run.tmk"), "--", *show], status=0, preexec=ignore)
            t.equal(done.out, bare, f"signals of a program recorded by {os.path.basename(tool[0])}, {numbers} ignored around it")


@test
def output_exists(t):
    program = t.program("hello.c")
    first = t.record([program])
    before = os.stat(first.trace).st_size
    again = t.record([program], output=first.trace, status=125)
    one_line(t, again, first.trace)
    t.equal(os.stat(first.trace).st_size, before, "size of the file that was there")
    t.equal(again.out, b"", "the command does not run")
    t.record([program], "--force", output=first.trace)


@test
def output_directory_cannot_be_made(t):
    with open(t.path("file"), "w", encoding="ascii"):
        pass
    path = t.path("file/directory/run.tmk")
    done = t.record([t.program("hello.c")], output=path, status=125)
    one_line(t, done, t.path("file"))
    t.equal(done.out, b"", "the command does not run")


@test
def output_directory_is_made(t):
    recording = t.record([t.program("hello.c")], output=t.path("a/b/c/run.tmk"))
    t.check(os.path.exists(recording.trace), "the trace")


def hold(t, trace, *options):
    """A recording whose command has begun and goes on when it reads a line; then it makes 200,000 events."""
    script = 'echo ready; read line; exec "$0" 300000'
    child = t.start([t.recorder, *options, "-o", trace, "--", "sh", "-c", script, t.program("passing.c")], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    t.equal(child.stdout.readline(), "ready\n", "the command")
    return child


@test
def output_is_renamed(t):
    """The closing lines, dumps and a ring go by the name that the trace has by then."""
    for number, options in enumerate(((), ("--max-size=256KiB,ring",))):
        before, after = t.path(f"before{number}"), t.path(f"after{number}")
        os.mkdir(before)
        child = hold(t, os.path.join(before, "run.tmk"), *options)
        os.rename(before, after)
        dump = t.run([t.tidemark, "dump", f"--pid={child.pid}"], status=0, timeout=30)
        t.equal(dump.text, os.path.join(after, "run.dump1.tmk") + "\n", f"the dump, {options}")
        _, errors = child.communicate("\n", 60)
        t.equal(child.returncode, 0, f"exit status, {options}")
        trace = os.path.join(after, "run.tmk")
        t.check(f"file         {trace}, " in errors and "cannot" not in errors, f"the file is named: {errors}")
        t.equal(sorted(os.listdir(after)), ["run.dump1.tmk", "run.tmk"], f"files, {options}")
        t.check(not os.path.exists(before), f"the old name stays free, {options}")
        lost = t.imported(trace).rows("select kind from loss")
        t.equal(lost, [("dropped",)] if options else [], f"what is lost, {options}")


@test
def output_is_removed(t):
    """Where the trace has no name any more, that is said, also with --quiet, and no file is named as if it were there; the status is the program's."""
    for options in ((), ("--quiet",)):
        trace = t.path("gone.tmk")
        child = hold(t, trace, *options)
        os.remove(trace)
        _, errors = child.communicate("\n", 60)
        t.equal(child.returncode, 0, "exit status")
        said = f"tidemark-record: cannot keep '{trace}': it was removed while it was written"
        t.equal([line for line in errors.splitlines() if trace in line], [said], f"what is said of the file, {options}")


@test
def output_that_is_being_written(t):
    """--force overwrites what was recorded, never what is being recorded; nor with a ring, whose file is made anew."""
    for options in ((), ("--max-size=256KiB,ring",)):
        trace = t.path("run.tmk")
        child = hold(t, trace, "--force", *options)
        refused = t.run([t.recorder, "--force", "-o", trace, "--", "echo", "no"], status=125)
        t.equal((refused.text, refused.errors), ("", f"tidemark-record: cannot create '{trace}': another recorder is writing it\n"), "the second")
        child.communicate("\n", 60)
        lost = t.imported(trace).rows("select kind from loss")
        t.equal(lost, [("dropped",)] if options else [], f"what is lost, {options}")
        t.run([t.recorder, "--quiet", "--force", "-o", trace, "--", "true"], status=0)
        t.equal(t.imported(trace).value("select command from process where parent_id is null"), "true", "overwritten afterwards")
    child = hold(t, "/dev/null", "--force")
    t.run([t.recorder, "--quiet", "--force", "-o", "/dev/null", "--", "true"], status=0)
    child.communicate("\n", 60)
    t.equal(child.returncode, 0, "a device takes any number")


@test
def a_pipe_that_nobody_writes_to(t):
    """Whoever is given one for a trace says so at once."""
    os.mkfifo(t.path("pipe"))
    for command in (("import", "pipe", "-o", "run.db"), ("info", "pipe"), ("peak", "pipe"), ("top", "pipe"), ("names", "pipe")):
        said = t.run([t.tidemark, *command], timeout=20, status=1).errors
        t.check("not a regular file" in said, f"{command}: {said}")


@test
def a_pipe_without_a_reader(t):
    """The command starts when somebody opens the pipe that the trace goes to; until then what asks the recorder to end ends it, unless it was started to ignore that."""
    pipe = t.path("pipe")
    os.mkfifo(pipe)
    trace = t.path("read.tmk")

    def waiting(**how):
        child = t.start([t.recorder, "--force", "-o", pipe, "--", "echo", "ran"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
        for _ in range(1000):
            with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
                if len(file.read().split()) == 2:  # the witness of its signals, and the command that waits
                    return child
            time.sleep(0.01)
        return t.check(False, "the recorder made no command")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child = waiting()
        child.send_signal(number)
        out, errors = child.communicate(timeout=60)
        t.equal((child.returncode, out, errors), (125, "", f"tidemark-record: cannot create '{pipe}': nobody has opened it to read\n"), number.name)
    child = waiting(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    child.send_signal(signal.SIGHUP)
    with open(pipe, "rb") as source, open(trace, "wb") as copy:
        shutil.copyfileobj(source, copy)
    t.equal((child.communicate(timeout=60)[0], child.returncode), ("ran\n", 0), "what was read, and ignores hang-ups")
    db = t.imported(trace)
    t.equal((db.value("select complete from trace"), db.value("select command from process where parent_id is null")), (1, "echo ran"), "the trace")


@test
def output_names(t):
    program = t.program("hello.c")
    env = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "COLOUR": "blue"}
    t.run([t.tidemark, "record", "-o", t.path("j%j-r%r-%q{COLOUR}-%%.tmk"), "--", program], env=env, status=0)
    t.check(os.path.exists(t.path("j77-r3-blue-%.tmk")), f"{os.listdir(t.dir)}")
    t.run([t.tidemark, "record", "-o", t.path("of%q{COLOUR}.tmk"), "--", program], env={"COLOUR": ""}, status=0)
    t.check(os.path.exists(t.path("of.tmk")), f"a variable may be empty: {os.listdir(t.dir)}")
    for name in ("COLOR", "", "C" * 300):
        refused = t.run([t.tidemark, "record", "-o", t.path("made/of%q{" + name + "}.tmk"), "--", program], env=env, status=125)
        t.equal(refused.text, "", "the command does not run")
        t.equal(refused.errors, f"tidemark-record: the variable of '%q{{{name}}}' in --output is not set\n", "why")
    t.check(not os.path.exists(t.path("made")), "no directory for a name that is none")
    t.run([t.tidemark, "record", "--", program], status=0)
    found = glob.glob(t.path("tidemark.*.tmk"))
    t.equal(len(found), 1, "the default name")
    t.check(os.uname().nodename in found[0], f"the host's name in {found[0]}")


@test
def closed_standard_streams(t):
    """Whichever are closed: no message lands in the session or the trace, and the command finds those descriptors that it would find anyway."""
    show = ["sh", "-c", "for fd in 0 1 2 3 4 5; do test -e /proc/self/fd/$fd && echo $fd >&9; done 9>seen; true"]
    for closed in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        def through(command, redirections=" ".join(f"{fd}>&-" for fd in closed)):
            t.run(["sh", "-c", f'exec "$@" {redirections}', "sh", *command], status=0)
        trace = t.path("without_" + "".join(map(str, closed)) + ".tmk")
        through([t.recorder, "-o", trace, "--", t.program("leak.c")])
        with open(trace, "rb") as file:
            t.check(b"tidemark-record:" not in file.read(), f"without {closed}: a message is in the trace")
        t.equal(t.imported(trace).row("select complete, cut_reason from trace"), (1, None), f"without {closed}: complete, cut")
        for recorder in ([], [t.recorder, "--force", "-o", trace, "--"]):
            through([*recorder, *show])
            with open(t.path("seen"), encoding="ascii") as file:
                t.equal(file.read().split(), [str(fd) for fd in range(3) if fd not in closed], f"without {closed}: the command's descriptors, {recorder}")


@test
def usage(t):
    for arguments in (["record"], ["record", "--no-such-option", "--", "true"], ["record", "--sample=many", "--", "true"], ["no-such-verb"],
                      ["record", "--stacks=some", "--", "true"]):
        done = t.run([t.tidemark, *arguments])
        t.check(done.status in (2, 125), f"exit status of {arguments}: {done.status}")
        t.check(done.errors.startswith("tidemark"), f"{arguments}: {done.errors}")
        t.equal(done.out, b"", "standard output")


@test
def help_and_version(t):
    for tool in (t.tidemark, t.recorder):
        done = t.run([tool, "--help"], status=0)
        t.check(b"--" in done.out, "help")
        done = t.run([tool, "--version"], status=0)
        t.check(b"tidemark" in done.out, "version")
        t.equal(t.run([tool, "-V"], status=0).out, done.out, "version, in short")


@test
def recorder_works_alone(t):
    done = t.run([t.recorder, "-o", t.path("alone.tmk"), "--", t.program("hello.c"), "9"], status=9)
    t.equal(done.out, b"hello\n", "output")
    summary = [line for line in done.errors.splitlines() if line]
    t.check(1 <= len(summary) <= 6, f"closing summary: {summary}")
    t.check(t.path("alone.tmk") in done.errors, "the summary names the file")


@test
def disk_full(t):
    """A trace that may grow no more: the program ends as ever, what was written is sound, and both are said."""
    trace = t.path("full.tmk")
    with open(t.path("out"), "wb") as out, open(t.path("err"), "wb") as err:
        child = t.start([t.recorder, "-o", trace, "--ring=64KiB", "--", t.program("forever.c")], stdout=out, stderr=err)
    program = t.command_of(child)
    while os.path.getsize(trace) < 16384:  # some events are in it
        time.sleep(0.05)
    limit = os.path.getsize(trace) + 4096
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (limit, limit))
    sizes = [0]
    while len(sizes) < 20 or sizes[-20] != sizes[-1]:  # its last chunk that was whole may end anywhere below the limit
        sizes.append(os.path.getsize(trace))
        time.sleep(0.1)
    os.kill(program, signal.SIGTERM)
    t.equal(child.wait(60), 5, "exit status")
    with open(t.path("out"), "rb") as out:
        t.check(out.read().startswith(b"ready\ndone "), "output")
    with open(t.path("err"), encoding="utf-8") as err:
        text = err.read()
    t.check(any(trace in line and "File too large" in line for line in text.splitlines()), f"the failure is said: {text}")
    t.check(0 < os.path.getsize(trace) <= limit, "size of the trace")
    db = t.imported(trace)
    t.equal(db.value("select complete from trace"), 0, "complete")
    written, end_ns = db.rows("select (select count(*) + sum(free_ns is not null) from allocation), max(end_ns) from process")[0]
    read, lost = (int(re.search(pattern, text)[1].replace(",", "")) for pattern in (r"events +([\d,]+) \(", r"lost +([\d,]+) events"))
    t.equal(read - lost, written, "what the closing lines say was read, less what they say was lost")
    t.check(f", {os.path.getsize(trace) / written:.1f} bytes an event; cut off" in text, f"{written} events were written: {text}")
    t.equal(db.rows("select kind, count, bytes, reason from loss"), [("not-written", lost, None, "the trace could not be written any more: File too large")], "and in the trace")
    number, unit = re.search(r"the trace ends at ([\d.]+) (m?s)\n", text).groups()
    t.check(abs(float(number) * {"s": 1e9, "ms": 1e6}[unit] - end_ns) < end_ns / 100, f"the trace ends at {end_ns} ns: {text}")


@test
def little_address_space(t):
    """Where the recorder finds no memory before the command has begun, it says so in one line and starts nothing; and it does not wait for itself. What is enough
    stays so where there is more: rings do not take the room that the recorder itself needs."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")
    seen = []
    for limit in range(5 << 20, 620 << 20, 9 << 20):
        def small(limit=limit):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        trace = t.path("small.tmk")
        done = t.run([t.recorder, "--quiet", "-o", trace, "--", t.program("hello.c")], preexec=small, timeout=20)
        seen.append(done.status)
        if done.status == 125:
            one_line(t, done)
        t.equal(done.out, b"hello\n" if done.status == 0 else b"", "what the command says")
        t.equal(os.path.exists(trace), done.status == 0, "whether there is a trace")
        if done.status == 0:
            os.remove(trace)
    t.check(set(seen) <= {0, 125, 127} and 125 in seen and not any(seen[seen.index(0):]), f"exit statuses: {seen}")


@test
def many_processes_in_little_address_space(t):
    """The recorder's own tables, which grow with the processes, have room wherever they had it under a smaller limit."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")
    script = f'for i in $(seq 80); do "{t.program("leak.c")}"; done'
    for limit in range(72 << 20, 144 << 20, 12 << 20):
        def small(limit=limit):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        recording = t.record(["sh", "-c", script], "--force", preexec=small)
        t.equal(recording.out, b"served 1000 requests\n" * 80, "what the command says")
        t.check("out of memory" not in recording.errors, f"{limit}: {recording.errors}")
        t.equal(t.imported(recording).value("select count(*) from process where exe like '%/leak'"), 80, f"processes under {limit}")


@test
def threads_reserve_nothing(t):
    """Where address space is limited the recorder's threads hold none of it in reserve: libc would take 64 MiB for each that allocates."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")

    def small():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    script = f'for i in $(seq 20); do "{t.program("leak.c")}"; done; cat /proc/$PPID/maps'
    maps = t.record(["sh", "-c", script], "--quiet", preexec=small).out.decode().splitlines()
    ranges = [line.split()[:2] for line in maps if "-" in line.split()[0]]
    reserved = [int(range.split("-")[1], 16) - int(range.split("-")[0], 16) for range, rights in ranges if rights == "---p"]
    t.check(any(line.endswith("/tidemark-record") for line in maps), f"the recorder's maps: {maps}")
    t.check(sum(reserved) < 1 << 20, f"bytes in reserve: {reserved}")


FILLS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
int main(int count, char **words) {
	size_t part = strtoul(words[1], NULL, 10) / 8;
	struct rlimit limit = { 8 * part, 8 * part };
	if (count > 2) {
		setrlimit(RLIMIT_AS, &limit);
		execl(words[0], words[0], words[1], NULL);
	}
	for (int i = 0; i < 5; i++) memset(malloc(part), 1, part);
	puts("filled");
	return 0;
}
"""


@test
def much_of_little_address_space(t):
    """A program that needs five eighths of its limit has them, whether it is recorded or has too little for that, of which a note tells."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")
    with open(t.path("fills.c"), "w", encoding="ascii") as file:
        file.write(FILLS)
    program = t.program(t.path("fills.c"), name="errors_fills")
    recorded = []
    for limit in range(12 << 20, 200 << 20, 9 << 20):
        def small(limit=limit):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        t.equal(t.run([program, str(limit)], preexec=small).out, b"filled\n", "bare")
        done = t.run([t.recorder, "--quiet", "--force", "-o", t.path("outer.tmk"), "--", program, str(limit)], preexec=small)
        t.check(done.out == b"filled\n" if done.status == 0 else done.status == 125, f"{done.status}, {done.out} under {limit}")
        inner = t.record([program, str(limit), "limits"], "--quiet", "--force")
        t.equal(inner.out, b"filled\n", f"with {limit} of its own")
        db = t.imported(inner)
        blocks = db.value("select count(*) from allocation where size_bytes = ?", limit // 8)
        notes = [text for (text,) in db.rows("select text from note where kind = 'not-recordable'")]
        t.check(blocks == 5 and not notes or blocks == 0 and len(notes) == 1 and "ulimit -v" in notes[0], f"{limit}: {blocks} blocks, {notes}")
        recorded.append(blocks == 5)
    t.check(recorded == sorted(recorded) and recorded[-1] and not recorded[0], f"which are recorded: {recorded}")


@test
def many_at_once_with_little_address_space(t):
    """Of each of many programs that live at the same time, and have too little address space, the note says why it is not recorded."""
    if t.sanitized:
        t.skip("a sanitizer reserves address space of its own")
    script = 'for i in $(seq 100); do (ulimit -v 12000; exec sleep 1) & done; wait'
    db = t.imported(t.record(["sh", "-c", script]))
    notes = db.rows("select text, count(*) from note where kind = 'not-recordable' group by text")
    t.check(len(notes) == 1 and notes[0][1] == 100 and "ulimit -v" in notes[0][0], f"notes: {notes}")


ENDED_EARLY = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **arguments) {
	int status;
	pid_t child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0); /* stops as soon as the exec is done */
		execl("/bin/sleep", "sleep", "100", (char *)0);
		_exit(99);
	}
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 1;
	kill(child, SIGKILL);
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 2;
	if (!fork()) {
		execl(arguments[1], arguments[1], (char *)0);
		_exit(99);
	}
	wait(&status);
	return n == 2 && WIFEXITED(status) && WEXITSTATUS(status) == 127 ? 0 : 3;
}
"""


@test
def ended_before_the_loader_ran(t):
    """Of a child that a signal ended, or whose libraries are missing, before anything of ours was loaded, the note says how it ended."""
    for name, text in (("early.c", ENDED_EARLY), ("needed.c", "int needed(void) { return 1; }"), ("needs.c", "int needed(void); int main(void) { return needed(); }")):
        with open(t.path(name), "w", encoding="ascii") as file:
            file.write(text)
    library, program = t.path("libneeded.so"), t.path("needs")
    t.run(["gcc", "-shared", "-fPIC", "-o", library, t.path("needed.c")])
    t.run(["gcc", "-o", program, t.path("needs.c"), library])
    os.remove(library)
    result = t.record([t.program(t.path("early.c"), name="errors_early"), program])
    t.equal(result.status, 0, "the program's own checks")
    notes = [text for (text,) in t.imported(result).rows("select text from note where kind = 'not-recordable'")]
    missing = "is not recorded: it did not load the recording library before"
    t.equal(sorted(notes), sorted([f"'{os.path.realpath('/bin/sleep')}' {missing} signal 9 ended it", f"'{program}' {missing} it ended with exit code 127"]),
            "notes")


@test
def a_recording_in_a_recording(t):
    """The inner one has the program, and the outer one says so."""
    if t.sanitized:
        t.skip("the inner recorder is built with a sanitizer, and not recorded itself")
    program = t.program("leak.c")
    outer = t.record([t.tidemark, "record", "--quiet", "-o", t.path("inner.tmk"), "--", program])
    t.equal(t.imported(t.path("inner.tmk")).value("select allocations from site where function = 'remember'"), 100, "blocks of a function")
    notes = t.imported(outer).rows("select text from note where kind = 'not-recordable'")
    t.equal(notes, [(f"'{os.path.realpath(program)}' is not recorded: the tidemark-record that started it records it",)], "notes of the outer one")


@test
def no_descriptor_to_look_at_a_program(t):
    """A program that cannot be looked at before its exec, nor loaded after it, has its name in the note."""
    script = "ulimit -n 3; exec /usr/bin/env true"
    recording = t.record(["bash", "-c", script], status=127)
    notes = [text for (text,) in t.imported(recording).rows("select text from note where kind = 'not-recordable'")]
    t.check(len(notes) == 1 and notes[0].startswith("'/usr/bin/env' is not recorded"), f"notes: {notes}")


@test
def little_stack(t):
    """What the command may use of its stack is not all that the recorder has: it records, and finds names, where the command can run at all."""
    if t.sanitized:
        t.skip("a sanitizer needs more stack")
    program = t.program("leak.c")
    for limit in (24 << 10, 32 << 10):
        def small(limit=limit):
            resource.setrlimit(resource.RLIMIT_STACK, (limit, limit))

        bare = t.run([program], preexec=small)
        for command, env in (([t.recorder, "-o", t.path("small.tmk"), "--", program], {}), ([program], {"LD_PRELOAD": t.library})):
            if env:
                env["TIDEMARK_OPTIONS"] = "-o " + t.path("small.tmk")
            done = t.run(command, preexec=small, env=env)
            t.equal((done.status, done.out), (bare.status, bare.out), f"{command} with {limit} bytes of stack")
            if bare.status == 0:
                db = t.imported(t.whole(t.path("small.tmk")))
                t.equal(db.value("select allocations from site where function = 'remember'"), 100, "blocks of a function")
                os.remove(t.path("small.tmk"))


LITTLE_DATA = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
int main(int count, char **words) {
	struct rlimit limit = { 4 << 20, 4 << 20 };
	if (count > 1) setrlimit(RLIMIT_DATA, &limit);
	for (int i = 0; i < 1000; i++) free(malloc(77));
	puts(malloc(1 << 20) ? "enough" : words[0]);
	return 0;
}
"""


@test
def little_data(t):
    """A program whose data is limited, by itself or before it began, has what it needs, and its events are all there."""
    with open(t.path("data.c"), "w", encoding="ascii") as file:
        file.write(LITTLE_DATA)
    program = t.program(t.path("data.c"), name="errors_data")
    for command in ([program, "limits"], ["sh", "-c", 'ulimit -d 4096; exec "$0"', program]):
        t.equal(t.run(command).out, b"enough\n", "bare")
        recording = t.record(command)
        t.equal(recording.out, b"enough\n", "recorded")
        t.equal(t.imported(recording).value("select count(*) from allocation where size_bytes = 77 and free_ns is not null"), 1000, "blocks")


@test
def files_may_not_grow_at_all(t):
    """Under a small `ulimit -f` the recorder may be unable to work: then it says so and does not start the command."""
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = t.record([t.program("hello.c")], "--quiet", status=None, preexec=small_files)
    if done.status == 125:
        one_line(t, done)
        t.equal(done.out, b"", "the command does not run")
    else:
        t.equal((done.status, done.out), (0, b"hello\n"), "status and output")


@test
def a_device_is_left_alone(t):
    """A device that is named as the trace is written to, never removed: on a full one the recorder says so and does not start the command."""
    device = t.path("full")
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    except PermissionError:
        t.skip("cannot make a device here")
    done = t.run([t.recorder, "-o", device, "--force", "--", t.program("hello.c")], status=125)
    t.check(f"cannot write '{device}': No space left on device" in done.errors, f"the failure is said: {done.errors}")
    t.equal(done.out, b"", "the command does not run")
    t.check(stat.S_ISCHR(os.stat(device).st_mode), "the device is still there")


@test
def disk_full_for_real(t):
    """The same on a file system without room."""
    mount = t.path("small")
    os.mkdir(mount)
    if os.geteuid() != 0 or t.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", mount]).status != 0:
        t.skip("cannot mount a small file system here")
    try:
        recording = t.record([t.program("passing.c"), "400000"], output=os.path.join(mount, "full.tmk"))
        t.check("space" in recording.errors, f"the failure is said: {recording.errors}")
        db, lost = t.imported(recording), int(re.search(r"lost +([\d,]+) events", recording.errors)[1].replace(",", ""))
        t.equal(db.value("select complete from trace"), 0, "complete")
        t.equal(db.rows("select kind, count from loss where reason like '%No space left on device'"), [("not-written", lost)], "and in the trace")
    finally:
        t.run(["umount", "-l", mount])


@test
def environment_is_kept(t):
    """The user's own LD_PRELOAD stays; NVTX, ITT and CUDA are told of us, unless they have a tool; nothing else of the environment changes."""
    libm = [p for p in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6") if os.path.exists(p)]
    if not libm:
        t.skip("no libm.so.6 to preload")
    if t.sanitized:
        t.skip("a sanitizer wants to be the first preloaded library of the recorder itself")
    env = {"LD_PRELOAD": libm[0], "SOME_VARIABLE": "a b", "NVTX_INJECTION64_PATH": "/a/tool.so"}
    bare = t.run(["env"], env=env).text.splitlines()
    recorded = t.record(["env"], "--quiet", env=env).text.splitlines()
    preload = [line for line in recorded if line.startswith("LD_PRELOAD=")][0]
    t.check(libm[0] in preload and "libtidemark.so" in preload, preload)
    other = lambda lines: sorted(line for line in lines if not line.startswith(("LD_PRELOAD=", "TIDEMARK_", "_=", "PWD=")))
    told = [f"{name}={os.path.realpath(t.library)}" for name in ("INTEL_LIBITTNOTIFY64", "CUDA_INJECTION64_PATH")]
    t.equal(other(recorded), sorted(other(bare) + told), "the environment")
    off = t.record(["env"], "--quiet", "--nvtx=off", "--itt=off", "--gpu=off", env=env).text.splitlines()
    t.equal(other(off), other(bare), "the environment without them")


@test
def another_copy_of_the_library_is_preloaded(t):
    """As by a job script that names one that was installed before: the recorder's own is loaded alone, and counts each call once."""
    if t.sanitized:
        t.skip("a sanitizer wants to be the first preloaded library of the recorder itself")
    os.mkdir(t.path("other"))
    copy, trace = shutil.copy(t.library, t.path("other")), t.path("copies.tmk")
    for entry in (copy, os.path.basename(copy)):
        t.run([t.recorder, "--force", "-o", trace, "--quiet", "--", t.program("leak.c")], status=0,
              env={"LD_PRELOAD": f"libm.so.6 {entry}", "LD_LIBRARY_PATH": t.path("other"), "TIDEMARK_OPTIONS": f"--force --quiet -o {t.path('own.tmk')}"})
        db = t.imported(trace)
        t.equal(db.value("select count(*) from allocation where size_bytes = 512"), 100, f"blocks with {entry}")
        t.equal(db.rows("select count(*) from process"), [(1,)], f"processes with {entry}")


@test
def profilers_of_the_driver_do_not_see_us(t):
    """Nsight's refuse to start where a variable names another tool than theirs: those of our library are not there for them, also where a shell had them first.
    What they run has them, unless they have named themselves there."""
    for name in ("ncu", "nsys", "env"):
        shutil.copy(os.path.realpath(shutil.which("env")), t.path(name))
    ours = os.path.realpath(t.library)
    told = lambda done: {line.split("=")[0]: line.split("=")[1] for line in done.text.splitlines() if line.startswith(("CUDA_INJ", "NVTX_INJ"))}
    both = {"CUDA_INJECTION64_PATH": ours, "NVTX_INJECTION64_PATH": ours}
    for name, wanted in (("env", both), ("ncu", {}), ("nsys", {})):
        for command in ([t.path(name)], ["sh", "-c", f"{t.path(name)}; true"]):
            t.equal(told(t.record(command, "--quiet", "--force")), wanted, f"what {command} sees")
    t.equal(told(t.record([t.path("ncu"), "env"], "--quiet", "--force")), both, "what runs within")
    t.equal(told(t.record([t.path("ncu"), "CUDA_INJECTION64_PATH=/its/own.so", "env"], "--quiet", "--force")), {**both, "CUDA_INJECTION64_PATH": "/its/own.so"},
            "what runs within, where the profiler names itself")
    t.equal(told(t.record([t.path("ncu")], "--quiet", "--force", env={"CUDA_INJECTION64_PATH": "/a/tool.so"})), {"CUDA_INJECTION64_PATH": "/a/tool.so"}, "what others name")


@test
def arguments_can_be_dropped(t):
    """Also those in the title of a child, which takes its program's first argument over."""
    for command, processes in (([t.program("hello.c"), "0", "secret-word"], 1), ([t.program("titled.c"), "secret-word"], 2)):
        recording = t.record(command, "--args=drop")
        with open(recording.trace, "rb") as file:
            t.check(b"secret-word" not in file.read(), "the argument is in the trace")
        t.equal(t.imported(recording).rows("select command from process"), [(command[0],)] * processes, "commands in the database")


@test
def arguments_are_what_proc_shows(t):
    """However the program was started, and what became of them in a child."""
    with open(t.path("shown.c"), "w", encoding="ascii") as file:
        file.write(r"""#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void show(void) {
	FILE *file = fopen("/proc/self/cmdline", "rb");
	for (int c; (c = getc(file)) != EOF;) putchar(c ? c : ' ');
	fclose(file);
	putchar('|');
	fflush(stdout);
}
int main(int count, char **arguments, char **environment) {
	char *first = arguments[0];
	show();
	if (count < 2 || strcmp(arguments[1], "fork") != 0) return 0;
	memset(first, 'x', environment[0] + strlen(environment[0]) - first); /* a title that needs the room of the first variable as well */
	if (fork() == 0) {
		show();
		_exit(0);
	}
	return wait(NULL) < 0;
}
""")
    program = t.program(t.path("shown.c"), name="shown")
    loader = re.search(r"interpreter: ([^]]+)\]", t.run(["readelf", "-lW", program]).text).group(1)
    for command in ([program], [program, "", "a b", "x=1", ""], [loader, program, "by", "hand"], [program, "fork", "off"], ["env", "-i", program, "last"],
                    ["sh", "-c", f"exec -a other {program} 1" if os.path.realpath(shutil.which("sh")).endswith("bash") else f"exec {program} 1"]):
        recording = t.record(command, "--quiet", "--force")
        shown = [text[:-1] for text in recording.out.decode().split("|")[:-1]]
        told = [row[0] for row in t.imported(recording).rows("select command from process order by id")]
        t.equal(told[-len(shown):], shown, f"commands of {command}")
    long = t.imported(t.record([program, "y" * 70_000], "--quiet", "--force")).value("select command from process")
    t.equal((len(long), long[-21:]), (65_536, " [arguments cut here]"), "one that is too long")


@test
def descriptors_are_not_leaked(t):
    """The program sees the same open files as without us."""
    script = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"
    t.same_as_bare(["python3", "-c", script])


@test
def descriptors_are_the_programs_own(t):
    """What a recorder or an unwinder opened is not read or written once the program has put its own files there."""
    with open(t.path("ten"), "wb") as file:
        file.write(b"0123456789")
    program = t.program("descriptors.c")
    for options in ([], ["--stacks=off"]):
        done = t.record([program, t.path("ten")], "--quiet", "--force", *options, status=None)
        t.equal((done.out, done.status), (b"untouched\n", 0), f"with options {options}")
    with open(t.path("ten"), "rb") as file:
        t.equal(file.read(), b"0123456789", "the file")


@test
def hostile_program(t):
    """A program that closes every descriptor and limits what it may use is not harmed."""
    t.same_as_bare(["sh", "-c", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n 16; ls / | head -2; exit 4"])
    t.same_as_bare(["python3", "-c", "import os; os.closerange(3, 1000); print(len(list(range(100000)))); os._exit(6)"])


@test
def one_is_no_plural(t):
    """What a program that makes one block, from one place, is said to have: one of each."""
    with open(t.path("one.c"), "w") as file:
        file.write("#include <stdlib.h>\nint main(void) { return malloc(10) == NULL; }\n")
    recording = t.record([t.program(t.path("one.c"), name="one")], "--verbose")
    said = recording.errors
    for command, status in ((["names", recording.trace, "--again"], 0), (["import", recording.trace, "-o", t.path("one.db")], 0),
                            (["check", t.path("one.db"), "--max-leak=1"], 3), (["top", recording.trace, "--count=1"], 0)):
        done = t.run([t.tidemark, *command], status=status)
        said += done.errors + done.text
    for words in ("1 allocation,", "1 process, 1 thread", "named 1 of 1 address from 1 file\n", "imported 1 event of", "1 of 1 check exceeds its budget"):
        t.check(words in said, f"{words!r} is not in:\n{said}")
    t.equal(re.findall(r"\b1 [a-z]*[a-rt-z]s\b", said), [], f"plurals in:\n{said}")


main()
