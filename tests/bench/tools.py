"""The recorders that are compared: how each is put around a command, and which of them are installed.

A tool's wrap(command, environment, work) gives the command and the environment to run, and the file that the recording goes to (None: it has none).
"""
import glob
import os
import shutil
import subprocess


FLOOR, COUNTS, STAMPS, FRAMES = "hooks that do nothing", "hooks that count bytes", "hooks that read the clock", "hooks that follow frame pointers"


class Tool:
    """has_parent: it runs the program as its child, so that its own cost is outside of the program's; python_only: for a program in Python; framed: for pairs
    that are built with frame pointers, beside what else these are for; judged: a target is about its figures, or shows them beside."""

    def __init__(self, name, wrap, version="", python_only=False, micro=True, programs=True, has_parent=False, framed=False, judged=False):
        self.name, self.wrap, self.version, self.framed, self.judged = name, wrap, version, framed, judged
        self.python_only, self.micro, self.programs, self.has_parent = python_only, micro, programs, has_parent


def first_line(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def preloaded(library, **variables):
    def wrap(command, env, work):
        values = {key: value.format(work=work) for key, value in variables.items()}
        settings = [f"{key}={value}" for key, value in dict(values, LD_PRELOAD=library).items()]
        return ["env", *settings, *command], env, next((v for k, v in values.items() if k == "DUMP_HEAPTRACK_OUTPUT"), None)
    return wrap


def recorded(build, *options):
    def wrap(command, env, work):
        trace = f"{work}/bench.tmk"
        return [f"{build}/bin/tidemark-record", "--quiet", "--force", "-o", trace, *options, "--", *command], env, trace
    return wrap


def heaptrack_raw(command, env, work):
    return ["heaptrack", "--raw", "-o", f"{work}/heaptrack", *command], env, f"{work}/heaptrack.raw.zst"


def memray(*options):
    def wrap(command, env, work):
        out = f"{work}/bench.memray"
        return [command[0], "-m", "memray", "run", "--force", "--quiet", "-o", out, *options, *command[1:]], env, out
    return wrap


def library(*patterns):
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return found[0] if found else None


def floor(work, name, *flags):
    """The library that hands all calls on, built; None: there is no gcc."""
    source, built = os.path.join(os.path.dirname(os.path.abspath(__file__)), "floor", "hooks.c"), f"{work}/{name}.so"
    done = shutil.which("gcc") and subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *flags, "-o", built, source], check=False)
    return built if done and done.returncode == 0 else None


def installed(build, work):
    """Every tool that this machine has; bare is the first."""
    yield Tool("bare", lambda command, env, work: (command, env, None), framed=True, judged=True)
    for name, hooks in ((FLOOR, floor(work, "hooks")), (COUNTS, floor(work, "counts", "-DCOUNTS")), (STAMPS, floor(work, "stamps", "-DSTAMPS"))):
        if hooks:
            yield Tool(name, preloaded(hooks), judged=name != STAMPS)
    following = floor(work, "frames", "-DSTAMPS", "-DFRAMES", "-fno-omit-frame-pointer")
    if following:
        yield Tool(FRAMES, preloaded(following), micro=False, programs=False, framed=True)
    version = first_line(f"{build}/bin/tidemark-record", "--version")
    yield Tool("tidemark", recorded(build), version, has_parent=True, framed=True, judged=True)
    yield Tool("tidemark, native frames alone", recorded(build, "--python=off"), version, python_only=True, micro=False, has_parent=True)
    yield Tool("tidemark fp", recorded(build, "--stacks=fp"), version, has_parent=True, framed=True)
    yield Tool("tidemark sampled", recorded(build, "--sample=512KiB"), version, has_parent=True, judged=True)
    yield Tool("tidemark no stacks", recorded(build, "--stacks=off"), version, has_parent=True, framed=True)
    heaptrack = library("/usr/lib/heaptrack/libheaptrack_preload.so", "/usr/lib/*/heaptrack/libheaptrack_preload.so")
    if heaptrack:
        # Its library writes straight to a file: no second process, its best case.
        yield Tool("heaptrack in-process", preloaded(heaptrack, DUMP_HEAPTRACK_OUTPUT="{work}/heaptrack.raw"), first_line("heaptrack", "--version"))
    if shutil.which("heaptrack"):
        yield Tool("heaptrack raw", heaptrack_raw, first_line("heaptrack", "--version"), micro=False)
    yield Tool("memray", memray(), python_only=True, micro=False)
    yield Tool("memray native", memray("--native"), python_only=True, micro=False)
    tcmalloc = library("/usr/lib/*/libtcmalloc.so.4")
    if tcmalloc:
        # 19 us a pair at depth 30: the real programs would take minutes.
        yield Tool("gperftools", preloaded(tcmalloc, HEAPPROFILE="{work}/gperftools", HEAP_PROFILE_ALLOCATION_INTERVAL="0",
                                           HEAP_PROFILE_INUSE_INTERVAL="0"), os.path.realpath(tcmalloc).rsplit("/", 1)[1], programs=False)
    jemalloc = library("/usr/lib/*/libjemalloc.so.2")
    if jemalloc:
        exact = "prof:true,lg_prof_sample:0,prof_prefix:{work}/jemalloc"
        yield Tool("jemalloc", preloaded(jemalloc, MALLOC_CONF=exact), os.path.realpath(jemalloc).rsplit("/", 1)[1], programs=False)
        yield Tool("jemalloc sampled", preloaded(jemalloc, MALLOC_CONF=exact.replace("sample:0", "sample:19")), programs=False)


def missing():
    """(tool, why) of those that this machine has not."""
    if not shutil.which("heaptrack"):
        yield "heaptrack", "it is not installed (heaptrack)"
    if not library("/usr/lib/*/libtcmalloc.so.4"):
        yield "gperftools", "it is not installed (libgoogle-perftools4)"
    if not library("/usr/lib/*/libjemalloc.so.2"):
        yield "jemalloc", "it is not installed (libjemalloc2)"


def runs(tool, program):
    """Can it record that one of the real programs?"""
    if not tool.python_only:
        return True
    return program.is_python and (not tool.name.startswith("memray") or has_memray(program.command[0]))


def has_memray(python):
    return subprocess.run([python, "-c", "import memray"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
