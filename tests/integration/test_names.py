"""Names of addresses: function, file, line and inlined calls, against other people's tools.

Method: a trace is written here whose stacks hold thousands of addresses of a small program, built in many ways; `tidemark-record names` names
them, and the result is compared with addr2line (gcc's builds), llvm-symbolizer (all builds, where it is installed) and readelf's symbol
table. Binutils 2.40 loses inlined calls of clang's DWARF 5 and mixes up files that are included inside of a function, so it judges names and lines
of gcc's builds only.
"""
import bisect
import collections
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import zlib

import tmkread
from tidemark_test import ROOT, free_port, main, test
from trace_writer import Trace

PROGRAMS = os.path.join(ROOT, "fixtures/programs")
BUILDS = [  # compiler, flags
    ("g++", ["-O0", "-g"]),
    ("g++", ["-O2", "-g"]),
    ("g++", ["-O3", "-g", "-gdwarf-4", "-fno-pie", "-no-pie"]),
    ("g++", ["-O2", "-g", "-gsplit-dwarf"]),
    ("g++", ["-O2", "-g", "-gz=zlib", "-ffunction-sections"]),
    ("clang++", ["-O1", "-g", "-gdwarf-5"]),
    ("clang++", ["-O2", "-g", "-gdwarf-4"]),
]
BIAS = 0x7F0000000000
Function = collections.namedtuple("Function", "name file line")


# --- programs

def build(t, compiler, flags, name="naming"):
    t.need(compiler)
    out = t.path(name)
    t.run([compiler, "-std=c++17", *flags, "-o", out, f"{PROGRAMS}/naming.cc", f"{PROGRAMS}/naming.S"], status=0)
    return out


BUILT = tempfile.TemporaryDirectory(prefix="tidemark-names-")


def built_once(t, compiler, flags):
    """The same for tests that only read it."""
    path = os.path.join(BUILT.name, re.sub(r"[^\w=-]", "_", compiler + "".join(flags)), "naming")
    if not os.path.exists(path):
        t.need(compiler)
        os.makedirs(os.path.dirname(path))
        t.run([compiler, "-std=c++17", *flags, "-o", path, f"{PROGRAMS}/naming.cc", f"{PROGRAMS}/naming.S"], status=0, cwd=os.path.dirname(path))
    return path


def build_id(path):
    found = re.search(r"Build ID: ([0-9a-f]+)", subprocess.run(["readelf", "-n", path], capture_output=True, text=True).stdout)
    return bytes.fromhex(found[1]) if found else b""


def symbols(path, *options):
    """(low, high, name) of everything in the symbol table that is code and has a size."""
    out = subprocess.run(["readelf", "-W", *(options or ["--syms"]), path], capture_output=True, text=True).stdout
    found = []
    for line in out.splitlines():
        word = line.split()
        if len(word) == 8 and word[3] in ("FUNC", "IFUNC", "NOTYPE") and word[6].isdigit() and int(word[2], 0):
            found.append((int(word[1], 16), int(word[1], 16) + int(word[2], 0), word[7].split("@")[0]))
    return found


def text_addresses(path, step=3):
    out = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True).stdout
    low, size = re.search(r" \.text +PROGBITS +([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", out).groups()
    return list(range(int(low, 16), int(low, 16) + int(size, 16), step))


# --- traces

def v(n):
    out = b""
    while n >= 0x80:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def s(text):
    data = text if isinstance(text, bytes) else text.encode()
    return v(len(data)) + data


def record(tag, body):
    return v(tag) + v(len(body)) + body


def chunk(sequence, kind, payload):
    header = b"TMCK" + bytes([kind, 0, 1, 0]) + b"".join(n.to_bytes(4, "little") for n in (sequence, len(payload), len(payload), zlib.crc32(payload), 0))
    return header + zlib.crc32(header).to_bytes(4, "little") + payload


class Module:
    """A module of a process; offsets become frames, in order."""

    def __init__(self, path, offsets, bias=BIAS, identity=None, load_ns=0):
        self.path, self.offsets, self.bias, self.load_ns = path, offsets, bias, load_ns
        self.identity = build_id(path) if identity is None else identity


def write_trace(t, modules, name="run.tmk", start_unix_ns=None, end=True):
    """Frame ids go through the modules' offsets. A string 1 exists, so that new ids must start at 2."""
    start = time.time_ns() if start_unix_ns is None else start_unix_ns
    meta = record(1, s("start_unix_ns") + s(str(start))) + record(2, v(1) + s("already here"))
    frames, address = b"", 0
    for i, module in enumerate(modules, 1):
        meta += record(9, v(i) + v(i) + v(module.bias) + v(module.bias) + v(0x100000) + v(module.load_ns) + s(module.path) + s(module.identity))
        for offset in module.offsets:
            now = (module.bias + offset + 1) & tmkread.MASK  # a return address
            difference = (now - address) & tmkread.MASK
            difference -= (difference >> 63) << 64
            frames += v(1) + v(i) + v(i) + v(tmkread.zigzag(difference))
            address = now
    count = sum(len(module.offsets) for module in modules)
    chunks = [(1, meta), (2, v(1) + v(count) + frames + v(0) + v(0))]
    if end:
        chunks.append((5, record(20, v(0) + v(2) + v(99) + b"later") + record(77, b"unknown")))
    path = t.path(name)
    with open(path, "wb") as file:
        file.write(b"TIDEMARK" + bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        for sequence, (kind, payload) in enumerate(chunks):
            file.write(chunk(sequence, kind, payload))
    return path


def unshown(text):
    return re.sub(rb"\\x(..)", lambda m: bytes([int(m[1], 16)]), b"" if text == "''" else text.encode()).decode(errors="replace")


def read_names(path):
    """Frame -> chain of functions, innermost first; and the last line of the dump."""
    with open(path, "rb") as file:
        lines = list(tmkread.dump(file.read()))
    strings, names = {0: None}, {}
    for line in lines:
        word = line.split()
        if word[0] == "string":
            number = int(word[1][3:])
            assert number not in strings, "a string id is given twice"
            strings[number] = unshown(word[2][6:])
        elif word[0] == "name":
            numbers = [int(w.split("=")[1]) for w in word[2:]]
            names[int(word[1][6:])] = [Function(strings[a], strings[b], c) for a, b, c in zip(*[iter(numbers)] * 3)]
    return names, lines


def name_trace(t, trace, *options, status=0, **how):
    return t.run([t.recorder, "names", trace, *options], status=status, **how)


def named(t, path, offsets, *options):
    """Offset -> chain."""
    names, lines = read_names_of(t, [Module(path, offsets)], *options)
    t.equal(lines[-1], "whole", "end of the named trace")
    return {offset: names.get(i, []) for i, offset in enumerate(offsets, 1)}


def read_names_of(t, modules, *options):
    trace = write_trace(t, modules)
    name_trace(t, trace, *options)
    return read_names(trace)


# --- oracles

def demangled(names):
    out = subprocess.run(["c++filt"], input="\n".join(names) + "\n", capture_output=True, text=True).stdout
    return dict(zip(names, out.splitlines()))


SUFFIX = re.compile(r"(\.(constprop|isra|part|cold|lto_priv|llvm|\d+))+$")


def parse_answers(text, demangle):
    """addr2line -a -f -i and llvm-symbolizer --output-style=GNU -a -f -i, with names as the linker knows them."""
    answers, chain, name = {}, None, None
    for line in text.splitlines():
        if re.fullmatch(r"0x[0-9a-f]+", line):
            chain = answers.setdefault(int(line, 16), [])
        elif line and name is None:
            name = line
        elif line:
            file, number = re.sub(r" \(discriminator.*", "", line).rsplit(":", 1)
            known = "?" not in file and file not in ("", ".")
            chain.append(Function(None if name == "??" else SUFFIX.sub("", name), os.path.normpath(file) if known else None,
                                  int(number) if number.isdigit() and known else 0))
            name = None
    if demangle:
        table = demangled(sorted({f.name for chain in answers.values() for f in chain if f.name}))
        answers = {a: [f._replace(name=f.name and table[f.name]) for f in chain] for a, chain in answers.items()}
    return answers


def ask(command, offsets):
    out = subprocess.run(command, input="\n".join(map(hex, offsets)) + "\n", capture_output=True, text=True).stdout
    return parse_answers(out, True)


def same_function(ours, theirs):
    """They may know a function without a linkage name by its plain name; we add its scope, or take its symbol."""
    if ours == theirs or theirs is None:
        return ours == theirs
    scoped = "::" + (ours or "")
    return scoped.endswith("::" + theirs) or f"::{theirs}(" in scoped


def compare_chains(t, what, path, ours, theirs, files):
    """Where no symbol covers an address, they take the nearest one before it; the contract forbids us that."""
    covered = symbols(path)
    wrong = []
    for offset in ours:
        a, b = ours[offset], [f for f in theirs[offset] if f != Function(None, None, 0)]
        if not any(low <= offset < high for low, high, _ in covered):
            b = [f._replace(name=None) for f in b if f.line]
        if len(b) > 1 and a and b[0].name == a[-1].name:  # addr2line puts the symbol where the innermost function has no linkage name
            b[0] = b[0]._replace(name=a[0].name)
        good = len(a) == len(b) and all(same_function(x.name, y.name) and x.line == y.line and (not files or x.file == y.file)
                                        for x, y in zip(a, b))
        if not good:
            wrong.append(f"{offset:#x}: ours {a}\n    theirs {b}")
    t.check(not wrong, f"{what}: {len(wrong)} of {len(ours)} addresses differ:\n" + "\n".join(wrong[:5]))


def find_llvm_symbolizer():
    return next((c for c in ["llvm-symbolizer", *(f"llvm-symbolizer-{n}" for n in range(20, 12, -1))] if shutil.which(c)), None)


# --- tests

@test
def chains_as_addr2line(t):
    for compiler, flags in BUILDS:
        if compiler != "g++" or "-gsplit-dwarf" in flags:
            continue
        path = built_once(t, compiler, flags)
        twins = [r for r in symbols(path) if r[2] == "twin"][0]
        offsets = [a for a in text_addresses(path) if not twins[0] <= a < twins[1]]
        t.check(len(offsets) > 1000, "enough addresses")
        theirs = ask(["addr2line", "-a", "-f", "-i", "-e", path], offsets)
        ours = named(t, path, offsets)
        t.check(any(len(chain) > 3 for chain in ours.values()) or "-O0" in flags, "deep inlining is in the program")
        compare_chains(t, f"{compiler} {' '.join(flags)}", path, ours, theirs, files=False)


@test
def chains_as_llvm_symbolizer(t):
    symbolizer = find_llvm_symbolizer()
    if not symbolizer:
        t.skip("llvm-symbolizer is not installed")
    for compiler, flags in BUILDS:
        path = built_once(t, compiler, flags)
        twins = [r for r in symbols(path) if r[2] == "twin"][0]
        offsets = [a for a in text_addresses(path) if not twins[0] <= a < twins[1]]
        theirs = ask([symbolizer, "-e", path, "-a", "-f", "-i", "--no-demangle", "--output-style=GNU"], offsets)
        compare_chains(t, f"{compiler} {' '.join(flags)}", path, named(t, path, offsets), theirs, files=True)


@test
def symbols_alone(t):
    """Without debug information: a name if and only if a symbol covers the address."""
    path = built_once(t, "g++", ["-O2"])
    ranges = symbols(path)
    names = demangled(sorted({SUFFIX.sub("", n) for _, _, n in ranges}))
    offsets = text_addresses(path)
    ours = named(t, path, offsets)
    seen = collections.Counter()
    for offset in offsets:
        wanted = {names[SUFFIX.sub("", n)] for low, high, n in ranges if low <= offset < high}
        got = ours[offset][0].name if ours[offset] else None
        t.check(got in wanted if wanted else got is None, f"{offset:#x} is {got}, symbols there: {wanted}")
        seen[bool(wanted)] += 1
    t.check(seen[True] > 1000 and seen[False] > 10, f"addresses with and without symbol: {seen}")


@test
def aliases_and_labels(t):
    path = built_once(t, "g++", ["-O2"])
    low, high, _ = [r for r in symbols(path) if r[2] == "twin"][0]
    end = [r for r in symbols(path) if r[2] == "assembled"][0][1]
    ours = named(t, path, [low, high - 1, high, end, end + 8])
    t.equal([f.name for f in ours[low]], ["twin"], "the alias without underscores")
    t.equal([f.name for f in ours[high - 1]], ["twin"], "its last byte")
    t.check(not ours[high] or ours[high][0].name != "twin", "the byte behind it is not its")
    t.equal((ours[end], ours[end + 8]), ([], []), "a label without size names nothing")


@test
def stripped(t):
    """Only .dynsym is left; most addresses have no name, and none gets the name of the symbol before it."""
    path = build(t, "g++", ["-O2", "-rdynamic"])
    t.run(["strip", path], status=0)
    ranges = symbols(path, "--dyn-syms")
    names = demangled(sorted({n for _, _, n in ranges}))
    offsets = text_addresses(path)
    ours = named(t, path, offsets)
    for offset in offsets:
        wanted = {names[n] for low, high, n in ranges if low <= offset < high}
        got = ours[offset][0].name if ours[offset] else None
        t.check(got in wanted if wanted else got is None, f"{offset:#x} is {got}, symbols there: {wanted}")
    t.check(any(ours.values()) and not all(ours.values()), "some have names, some not")


@test
def separate_debug_files(t):
    """The same names from a separate debug file, wherever a debug directory has it, as from the program itself."""
    path = build(t, "g++", ["-O2", "-g"])
    offsets = text_addresses(path, 7)
    whole = named(t, path, offsets)
    identity = build_id(path).hex()
    debug = t.path("kept")  # the standard lookup would find naming.debug beside the program
    t.run(["objcopy", "--only-keep-debug", path, debug], status=0)
    t.run(["strip", path], status=0)
    t.check(named(t, path, offsets) != whole, "stripping takes names away")
    places = [f".build-id/{identity[:2]}/{identity[2:]}.debug", "naming.debug", path[1:] + ".debug", "naming"]
    for place in places:
        directory = t.path("debugdir")
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(os.path.dirname(os.path.join(directory, place)))
        shutil.copy(debug, os.path.join(directory, place))
        t.equal(named(t, path, offsets, "--debug-dir", directory), whole, f"names with the debug file at DIR/{place}")
    away = t.path("away")
    os.rename(path, away)
    t.equal(read_names_of(t, [Module(path, offsets, identity=bytes.fromhex(identity))], "--debug-dir=" + directory)[0],
            {i: whole[o] for i, o in enumerate(offsets, 1) if whole[o]}, "names where the program itself is not there")
    other = build(t, "g++", ["-O1", "-g"], "other")
    shutil.copy(other, os.path.join(directory, "naming"))
    trace = write_trace(t, [Module(path, offsets, identity=bytes.fromhex(identity))])
    done = name_trace(t, trace, "--debug-dir", directory)
    t.check("build-id differs" in done.errors, f"the refusal is told: {done.errors}")
    t.equal(read_names(trace)[0], {}, "names from a file with another build-id")


@test
def debuginfod_only_when_asked(t):
    """A server on this machine has the program, which is not at its path any more."""
    t.need("debuginfod")
    path = build(t, "g++", ["-O2", "-g"])
    offsets = text_addresses(path, 50)
    module = Module(path, offsets)
    whole = named(t, path, offsets)
    port, served = free_port(), t.path("served")
    os.mkdir(served)
    os.rename(path, os.path.join(served, "naming"))
    with open(t.path("server.log"), "wb") as log:
        t.start(["debuginfod", "-F", "-d", ":memory:", "-p", str(port), "-t", "1", served], env={"HOME": t.dir}, stdout=log, stderr=log)
    env = {"DEBUGINFOD_URLS": f"http://127.0.0.1:{port}", "DEBUGINFOD_CACHE_PATH": t.path("cache"), "HOME": t.dir, "http_proxy": "", "no_proxy": "*"}
    t.check(name_until(t, module, env, "--debuginfod") == {i: whole[o] for i, o in enumerate(offsets, 1) if whole[o]}, "names from the server")
    t.check(os.path.exists(t.path("cache")), "the client's cache was used")
    shutil.rmtree(t.path("cache"))
    trace = write_trace(t, [module])
    name_trace(t, trace, env=env)
    t.equal(read_names(trace)[0], {}, "names without --debuginfod")
    t.check(not os.path.exists(t.path("cache")), "nobody was asked")


def name_until(t, module, env, *options):
    """Names the module until there are names: the server takes its time to scan the directory."""
    for _ in range(100):
        trace = write_trace(t, [module])
        name_trace(t, trace, *options, env=env)
        names = read_names(trace)[0]
        if names:
            return names
        shutil.rmtree(env["DEBUGINFOD_CACHE_PATH"], ignore_errors=True)  # it remembers what the server did not have
        time.sleep(0.2)
    return {}


@test
def mini_debug_information(t):
    t.need("xz")
    path = build(t, "g++", ["-O2", "-g"])
    mini = t.path("mini")
    t.run(["objcopy", "-S", "--remove-section", ".comment", "--keep-symbol=main", path, mini], status=0)
    t.run(["xz", mini], status=0)
    t.run(["strip", path], status=0)
    t.run(["objcopy", "--add-section", f".gnu_debugdata={mini}.xz", path], status=0)
    low = [r for r in symbols(build(t, "g++", ["-O2", "-g"], "again")) if r[2] == "main"][0][0]
    t.equal([f.name for f in named(t, path, [low + 4])[low + 4]], ["main"], "a name from .gnu_debugdata")


@test
def other_file_at_the_path(t):
    """A program that was rebuilt, deleted, or changed since it was loaded gives no names, and says so once."""
    path = build(t, "g++", ["-O2", "-g"])
    offsets = text_addresses(path, 50)
    identity = build_id(path)
    build(t, "g++", ["-O1", "-g"])
    for prepare, reason in [(lambda: None, "its build-id differs"), (lambda: os.remove(path), "does not exist"),
                            (lambda: shutil.copy("/etc/passwd", path), "no ELF program or library")]:
        prepare()
        trace = write_trace(t, [Module(path, offsets, identity=identity), Module(path, offsets, identity=identity, bias=BIAS * 2)])
        done = name_trace(t, trace)
        t.equal(done.errors.count(reason), 1, f"how often it says '{reason}' in: {done.errors}")
        t.equal(read_names(trace)[0], {}, "names")
    os.remove(path)
    os.mkfifo(path)
    name_trace(t, write_trace(t, [Module(path, offsets, identity=identity)]), timeout=30)


@test
def paths_of_the_process_itself(t):
    """What lies below /proc/self is another file for us: it counts as missing. While its process lives, that one's is found."""
    done = name_trace(t, write_trace(t, [Module("/proc/self/cmdline", [0x10], identity=b"\x12")]))
    t.check("does not exist" in done.errors and "no ELF" not in done.errors, done.errors)
    library = t.program("prog_memory_library.c", "-shared", "-fPIC", "-g")
    recording = t.record([t.program("prog_memory_library.c", "-g"), library], "--quiet")
    db = t.imported(recording)
    t.equal(db.rows("select f.module_id is not null, m.path glob '/proc/self/fd/*', f.file like '%/prog_memory_library.c' from frame f join module m on m.id = f.module_id "
                    "where f.function = 'in_memory'"), [(1, 1, 1)], "the library's function")
    t.equal(db.rows("select text from note where text like '%/proc/self%'"), [], "notes")


@test
def call_of_no_known_file(t):
    """DWARF 2 knows what was inlined, but not in which file and line it was called."""
    with open(t.path("inlined.c"), "w") as f:
        f.write("#include <stdlib.h>\n__attribute__((noinline)) void *grab(int n) { return malloc((size_t)n * 8); }\n"
                "static inline __attribute__((always_inline)) void *inlined(int n) { void *p = grab(n); return (char *)p + n; }\n"
                "int main(int argc, char **argv) { return inlined(argc) == argv; }\n")
    program = t.path("inlined")
    t.run(["gcc", "-gdwarf-2", "-gstrict-dwarf", "-O1", "-o", program, t.path("inlined.c")], status=0)
    db = t.imported(t.record([program], "--quiet"))
    source = os.path.realpath(t.path("inlined.c"))
    t.equal(db.rows("select function, file, line from frame where function in ('grab', 'inlined', 'main') order by 1"),
            [("grab", source, 2), ("inlined", source, 3), ("main", None, None)], "files and lines")


@test
def no_build_id(t):
    path = build(t, "g++", ["-O1", "-g", "-Wl,--build-id=none"])
    offsets = text_addresses(path, 50)
    t.check(any(named(t, path, offsets).values()), "a program without build-id is named, if it is unchanged")
    changed_ns = os.stat(path).st_mtime_ns
    trace = write_trace(t, [Module(path, offsets)], start_unix_ns=changed_ns - 10**9)
    done = name_trace(t, trace)
    t.check("has been changed since it was loaded" in done.errors, done.errors)
    t.equal(read_names(trace)[0], {}, "names")
    trace = write_trace(t, [Module(path, offsets, load_ns=2 * 10**9)], start_unix_ns=changed_ns - 10**9)
    name_trace(t, trace)
    t.check(read_names(trace)[0], "built during the recording, loaded after that")


@test
def one_file_many_processes(t):
    """Each text is written once, and frames of all processes get it; modules without a file are passed over."""
    path = build(t, "g++", ["-O2", "-g"])
    offsets = text_addresses(path, 11)
    names, lines = read_names_of(t, [Module(path, offsets), Module("[vdso]", [0x600], identity=b""), Module(path, offsets, bias=0x1000),
                                     Module("", [1, 2], identity=b"")])
    n = len(offsets)
    t.equal({i: names.get(i) for i in range(1, n + 1)}, {i: names.get(i + n + 1) for i in range(1, n + 1)}, "names in both processes")
    t.check(len(names) > n, "both have names")
    texts = [line.split()[2] for line in lines if line.startswith("string ")]
    t.equal(len(set(texts)), len(texts), "different texts")
    t.equal(sorted(int(line.split()[1][3:]) for line in lines if line.startswith("string ")), list(range(1, len(texts) + 1)), "string ids count up")


@test
def trace_around_the_names(t):
    """All other chunks stay, sequence numbers go on, END counts the new chunks and keeps what it does not know."""
    path = build(t, "g++", ["-O2", "-g"])
    trace = write_trace(t, [Module(path, text_addresses(path, 20))])
    with open(trace, "rb") as file:
        before = file.read()
    os.chmod(trace, 0o640)
    out = t.path("out.tmk")
    name_trace(t, trace, "-o", out)
    with open(trace, "rb") as file:
        t.check(file.read() == before, "with -o the trace itself stays as it was")
    with open(out, "rb") as file:
        after = file.read()
    at_end = before.index(chunk(2, 5, record(20, v(0) + v(2) + v(99) + b"later") + record(77, b"unknown")))
    t.check(after[:at_end] == before[:at_end], "the chunks before END are the same bytes")
    kinds = [line for line in tmkread.dump(after) if line.startswith(("chunk", "totals", "whole"))]
    new = len(kinds) - 5
    t.equal(kinds, ["chunk META", "chunk STACKS"] + ["chunk NAMES"] * new + ["chunk END", f"totals events=0 chunks={2 + new} end_ns=99", "whole"],
            "chunks of the named trace")
    t.check(after.endswith(chunk(2 + new, 5, record(20, v(0) + v(2 + new) + v(99) + b"later") + record(77, b"unknown"))), "END keeps the rest")
    t.equal(os.stat(out).st_mode & 0o777, 0o640, "the mode")
    t.equal(name_trace(t, trace, "-o", out, status=1).errors, f"tidemark-record: cannot name '{trace}': '{out}' exists (--force overwrites it)\n", "-o")
    link = t.path("link.tmk")
    os.symlink(trace, link)
    name_trace(t, link, "--quiet")
    t.check(os.path.islink(link), "a link stays a link")
    with open(trace, "rb") as file:
        t.check(file.read() == after, "in place: the same result")
    t.check("named 0 of " in name_trace(t, trace).errors, "a second time only those are asked for that no symbol covers")
    with open(trace, "rb") as file:
        t.check(file.read() == after, "when nothing is found, nothing is written")
    name_trace(t, trace, "--again", "--quiet")
    t.equal(read_names(trace)[0], read_names(out)[0], "named again, the names are the same")
    t.equal([f for f in os.listdir(t.dir) if f.endswith(".tmp")], [], "temporary files left")


@test
def cut_and_damaged_traces(t):
    path = build(t, "g++", ["-O2", "-g"])
    module = Module(path, text_addresses(path, 20))
    whole = read_names_of(t, [module])[0]
    unclosed = write_trace(t, [module], end=False)
    name_trace(t, unclosed)
    names, lines = read_names(unclosed)
    t.equal(names, whole, "names of a trace without END")
    t.check(lines[-1].startswith("cut at "), "it stays cut")
    trace = write_trace(t, [module])
    with open(trace, "rb") as file:
        data = file.read()
    end = len(data) - len(chunk(2, 5, record(20, v(0) + v(2) + v(99) + b"later") + record(77, b"unknown")))
    with open(trace, "wb") as file:
        file.write(data[:-5])
    done = name_trace(t, trace)
    t.check(f"is cut at offset {end}" in done.errors, done.errors)
    t.equal(read_names(trace)[0], whole, "names of a cut trace")
    broken = bytearray(data)
    broken[-3] ^= 1
    with open(trace, "wb") as file:
        file.write(broken)
    done = name_trace(t, trace, status=1)
    t.equal(done.errors, f"tidemark-record: cannot name '{trace}': payload checksum mismatch at offset {end}; to name what comes before and keep "
            "this file, choose another with -o\n", "a damaged trace in place")
    with open(trace, "rb") as file:
        t.check(file.read() == broken, "it is left as it was")
    name_trace(t, trace, "-o", t.path("sound.tmk"))
    t.equal(read_names(t.path("sound.tmk"))[0], whole, "names of the sound part")


@test
def names_that_are_not_to_be_had(t):
    """Who imports a cut trace without names is told to look them up, until that was done: whatever was found."""
    nameless, trace = Trace(), t.path("run.tmk")
    nameless.process(1, 100)
    nameless.module(1, 1, 0x1000, 0x10000, "/nowhere/at/all.so")
    for n in range(9):
        nameless.frame([], module=1, address=0x2000 + n)
    nameless.save(trace, closed=False, names=False)
    advice = "it has few names or none: `tidemark names` looks them up"
    t.check(advice in t.ask("import", trace).errors, "before")
    t.check("named 0 of 9 addresses" in name_trace(t, trace).errors, "nothing is found")
    t.check(advice not in t.ask("import", trace, "--force").errors, "after")
    t.check("of 9 addresses without a name, 0 got one later" in t.ask("info", trace).text, "what was done is told")
    with open(trace, "rb") as file:
        once = file.read()
    name_trace(t, trace, "--again")
    with open(trace, "rb") as file:
        t.check(file.read() == once, "a second time nothing is written")


@test
def trace_that_is_still_written(t):
    """It is named into another file; it is not replaced, for what the recorder has yet to write would be lost."""
    with open(t.path("waits.c"), "w") as f:
        f.write("#include <stdlib.h>\n#include <unistd.h>\nchar *volatile kept;\n"
                "int main(void) { kept = malloc(1000); char c; if (read(0, &c, 1) == 1) kept = malloc(5000000); return 0; }\n")
    trace, other = t.path("live.tmk"), t.path("other.tmk")
    child = t.start([t.recorder, "--quiet", "--names=none", "-o", trace, "--", t.program(t.path("waits.c"), "-g")], stdin=subprocess.PIPE)
    for _ in range(600):
        named_copy = os.path.exists(trace) and re.search(r"named [1-9]\d* of", t.run([t.recorder, "names", trace, "-o", other, "--force"]).errors)
        if named_copy:
            break
        time.sleep(0.1)
    t.check(named_copy, "a named copy")
    refused = f"tidemark-record: cannot name '{trace}': a recorder is still writing '{trace}'; name it when that has ended, or write a named copy with -o\n"
    t.equal(name_trace(t, trace, status=1).errors, refused, "in place")
    t.check(f"a recorder is still writing '{trace}'\n" in t.run([t.recorder, "names", other, "-o", trace, "--force"], status=1).errors, "in its place")
    t.equal(child.communicate(b"x")[1] or b"", b"", "what the recorder says")
    name_trace(t, trace)
    db = t.imported(trace)
    t.equal(db.rows("select size_bytes from allocation where size_bytes in (1000, 5000000) order by 1"), [(1000,), (5000000,)], "both allocations")
    t.equal(db.value("select count(*) from frame where function = 'main'") > 0, True, "names")


@test
def failures(t):
    """One line each, and the trace stays as it was."""
    path = build(t, "g++", ["-O2", "-g"])
    trace = write_trace(t, [Module(path, text_addresses(path))])
    with open(trace, "rb") as file:
        before = file.read()
    newer = t.path("newer.tmk")
    with open(newer, "wb") as file:
        file.write(before[:8] + b"\x02" + before[9:])

    def full_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, len(before) + 100))

    for arguments, status, pattern, how in [
            ([t.path("none.tmk")], 1, "cannot name '.*': No such file or directory", {}),
            ([t.dir], 1, "cannot name '.*': it is not a regular file", {}),
            (["/etc/passwd"], 1, "cannot name '/etc/passwd': it is not a tidemark trace", {}),
            ([newer], 1, r"cannot name '.*': its format is newer than this version \(1\.\d+\) knows", {}),
            ([trace, "-o", t.path("no/such/directory.tmk")], 1, "cannot name '.*': cannot create a file beside '.*': No such file or directory", {}),
            ([trace], 1, "cannot name '.*': cannot write '.*': File too large", {"preexec": full_disk}),
            ([], 2, "names: no trace to name .*", {}),
            ([trace, trace], 2, "names: one trace at a time.*", {}),
            ([trace, "--nonsense"], 2, "names: unknown option '--nonsense' .*", {}),
            ([trace, "-o"], 2, "names: option needs a value: '-o' .*", {})]:
        done = t.run([t.recorder, "names", *arguments], status=status, **how)
        t.check(re.fullmatch(f"tidemark-record: {pattern}\n", done.errors), f"{arguments}: {done.errors}")
    with open(trace, "rb") as file:
        t.check(file.read() == before, "the trace is as it was")
    t.equal([f for f in os.listdir(t.dir) if f.endswith(".tmp")], [], "temporary files left")
    t.check("usage:" in name_trace(t, "--help").text, "--help")


@test
def interrupted(t):
    """Ctrl-C and its like, before the new file is whole, leave nothing of it, and the trace as it was. It waits where it says how much it named: nobody reads that."""
    path = build(t, "g++", ["-O2", "-g"])
    trace = write_trace(t, [Module(path, text_addresses(path))])
    with open(trace, "rb") as file:
        before = file.read()

    def waiting(**how):
        source, sink = os.pipe()
        os.set_blocking(sink, False)
        while True:
            try:
                os.write(sink, bytes(4096))
            except BlockingIOError:
                break
        os.set_blocking(sink, True)
        child = t.start([t.recorder, "names", trace], stderr=sink, **how)
        os.close(sink)
        while not temporary() and child.poll() is None:
            time.sleep(0.001)
        return child, source

    def temporary():
        return [f for f in os.listdir(t.dir) if f.endswith(".tmp")]

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU):
        child, source = waiting(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        child.send_signal(number)
        t.equal(child.wait(60), -number, "how it ended")
        t.equal(temporary(), [], f"temporary files after {number.name}")
        os.close(source)
    with open(trace, "rb") as file:
        t.check(file.read() == before, "the trace is as it was")
    child, source = waiting(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    child.send_signal(signal.SIGHUP)
    with open(source, "rb") as file:
        t.check(b"named" in file.read(), "what it says, where hang-ups are ignored")
    t.equal((child.wait(60), temporary(), len(read_names(trace)[0]) > 0), (0, [], True), "status, temporary files, names")


@test
def owner_and_mode(t):
    """Root may name another's trace, which stays theirs; who is not root may have it in another of their groups."""
    path = build(t, "g++", ["-O2", "-g"])
    trace = write_trace(t, [Module(path, text_addresses(path))])
    os.chown(trace, *((1234, 1235) if os.geteuid() == 0 else (-1, [*os.getgroups(), os.getegid()][0])))
    os.chmod(trace, 0o640)
    before = os.stat(trace)
    name_trace(t, trace, "-o", t.path("copy.tmk"))
    name_trace(t, trace)
    for name in (trace, t.path("copy.tmk")):
        after = os.stat(name)
        t.equal((after.st_uid, after.st_gid, after.st_mode), (before.st_uid, before.st_gid, before.st_mode), f"owner, group and mode of {name}")
        t.check(after.st_ino != before.st_ino and read_names(name)[0], "names")
    if os.geteuid() == 0:
        os.chown(trace, 0, 0)
        os.chmod(trace, 0o644)
        os.chmod(t.dir, 0o777)
        tool = shutil.copy(t.recorder, t.path("tool"))  # which nobody may reach where it is, perhaps
        t.run([tool, "names", trace, "--again"], preexec=lambda: os.setuid(65534), status=0)
        t.equal(os.stat(trace).st_uid, 65534, "who wrote it anew, and may not give it away")


@test
def options_behind_the_trace(t):
    """Also where POSIXLY_CORRECT lets getopt end at the first word that is no option; the recorder names its own dumps so."""
    path = build(t, "g++", ["-O2", "-g"])
    trace = write_trace(t, [Module(path, text_addresses(path))])
    for arguments in ([trace, "-o", t.path("behind.tmk"), "--quiet"], ["-o", t.path("before.tmk"), "--quiet", trace], ["-o", t.path("last.tmk"), "-q", "--", trace]):
        done = t.run([t.recorder, "names", *arguments], env={"POSIXLY_CORRECT": "1"}, status=0)
        t.equal(done.errors, "", f"what {arguments} says")
    for arguments in ([trace, "--", trace], ["--", trace, "-q"], ["--", trace, trace]):
        done = t.run([t.recorder, "names", *arguments], env={"POSIXLY_CORRECT": "1"}, status=2)
        t.check("names: one trace at a time" in done.errors, done.errors)


@test
def hostile_programs(t):
    """Damaged programs must neither end the recorder nor hang it; the trace gets the names that are to be had."""
    path = build(t, "g++", ["-O1", "-g"])
    identity = build_id(path)
    offsets = text_addresses(path, 40)
    sound = build(t, "g++", ["-O2"], "sound")
    inside_main = [r for r in symbols(sound) if r[2] == "main"][0][0] + 4
    with open(path, "rb") as file:
        data = file.read()
    seed = int(os.environ.get("TM_TEST_SEED", time.time_ns()))
    chance = random.Random(seed)
    print(f"TM_TEST_SEED={seed}")
    hostile = t.path("hostile")
    sections = [(int(m[1], 16), int(m[2], 16)) for m in re.finditer(
        r"\.(?:debug_\w+|symtab|strtab) +\w+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", subprocess.run(["readelf", "-SW", path], capture_output=True, text=True).stdout)]
    for i in range(60):
        bad = bytearray(data)
        if i % 3 == 0:
            del bad[chance.randrange(len(bad)):]
        else:
            low, size = (64, 600) if i % 3 == 1 and i % 2 else chance.choice(sections)
            for _ in range(chance.choice([1, 10, 200])):
                bad[low + chance.randrange(size)] = chance.randrange(256)
        with open(hostile, "wb") as file:
            file.write(bad)
        trace = write_trace(t, [Module(hostile, offsets, identity=identity), Module(sound, [inside_main])])
        done = name_trace(t, trace, status=None, timeout=60)
        t.equal(done.status, 0, f"exit status (seed {seed}, case {i}): {done.errors}")
        names, lines = read_names(trace)
        t.equal(lines[-1], "whole", f"end of the trace (seed {seed}, case {i})")
        t.equal([f.name for f in names.get(len(offsets) + 1, [])], ["main"], f"name in the sound program after it (seed {seed}, case {i})")


main()
