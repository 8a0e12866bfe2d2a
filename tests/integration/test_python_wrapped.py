"""What @tidemark.profile makes of all that can be called, names of all kinds, and wrong arguments, on every CPython of this machine.

Method: without a recorder profile() returns what it was given, so the same script is its own oracle: it prints what callers and `inspect` see, results and
exceptions, and must print the same when it is recorded. Where the memory belongs is said by blocks of sizes of their own.
"""
import os

from pythons import each
from tidemark_test import ROOT, main, test

HEAD = """import asyncio, copy, ctypes, functools, gc, inspect, pickle, sys, types, warnings, weakref
import tidemark
from tidemark import profile
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
m = libc.malloc
warnings.simplefilter("always")
def tried(f, *args, **kwargs):
    try: return f(*args, **kwargs)
    except BaseException as e: return "%s: %s" % (type(e).__name__, e)
"""


def both(t, python, text):
    """The database of the recorded run, whose output must be that of the run without a recorder."""
    with open(t.path("wrapped.py"), "w", encoding="utf-8") as file:
        file.write(HEAD + text)
    env = {"PYTHONPATH": os.path.join(ROOT, "recorder"), "PYTHONHASHSEED": "0"}
    bare = t.run([python.path, t.path("wrapped.py")], env=env, status=0)
    recording = t.record([python.path, t.path("wrapped.py")], env=env)
    for got, wanted in zip(recording.text.split("\n"), bare.text.split("\n")):
        t.equal(got, wanted, f"{python}: a line that it prints, recorded and not")
    t.equal(len(recording.text), len(bare.text), f"{python}: bytes that it prints, recorded and not")
    t.check(len(bare.text) > 5, f"{python}: it prints something")
    t.equal(recording.program_err.decode(), bare.errors, f"{python}: warnings")
    return t.imported(recording)


def scopes_of(db, first, last):
    """Size -> name of the scope of malloc's blocks in a range of sizes."""
    return dict(db.rows("""SELECT a.size_bytes, CASE WHEN a.scope_id THEN s.name END FROM allocation a JOIN scope s ON s.id = a.scope_id
                           WHERE a.api = 'malloc' AND a.size_bytes BETWEEN ? AND ?""", first, last))


@test
def names_of_all_kinds(t):
    """No name is an error; what has no UTF-8 is written as backslashreplace does, and what was written can be read."""
    text = """
class Bad:
    def __str__(self): raise RuntimeError("no")
class Text(str):
    def encode(self, *_): raise RuntimeError("no")
    def __str__(self): raise RuntimeError("no")
names = ["\\udcff", "\\ud800", "a\\udc80\\ud800b", "\\xe9\\U0001f600", "n\\0ul", b"\\xff\\xfe", b"b\\xc3\\xa9", Bad(), Text("sub"), 7, None, "", "\\\\"]
for n, name in enumerate(names):
    with tidemark.scope(name): m(500100 + n)
    profile(name=name)(lambda: m(500200 + n))()
    tidemark.mark(name); tidemark.snapshot(name)
for heap in ("\\ud800", "malloc\\0x", "x" * 5000): tried(tidemark.stats, heap); tried(tidemark.reset_peak, heap)
print("no error")
"""
    wanted = ["\\udcff", "\\ud800", "a\\udc80\\ud800b", "\xe9\U0001f600", "n\\x00ul", "\\xff\\xfe", "b\xe9", "<unprintable Bad object>", "sub", "7", "None", "", "\\"]
    for python in each(t):
        db = both(t, python, text)
        t.equal(scopes_of(db, 500100, 500120), {500100 + n: name for n, name in enumerate(wanted)}, f"{python}: names of scopes")
        t.equal({size: name for size, name in scopes_of(db, 500200, 500220).items() if size not in (500210, 500211)},
                {500200 + n: name for n, name in enumerate(wanted) if n not in (10, 11)}, f"{python}: names of functions")
        t.equal(db.rows("SELECT name FROM mark WHERE name <> '' ORDER BY ts_ns"), [(name,) for name in wanted if name], f"{python}: marks")
        t.equal(db.value("SELECT count(*) FROM note WHERE kind LIKE '%utf%'"), 0, f"{python}: notes")


@test
def wrong_arguments(t):
    """Each public function, with what it does not take: the same error, recorded or not."""
    text = """
class Device:
    def __init__(self, type, index=None): self.type, self.index = type, index
class Number:
    def __init__(self, n): self.n = n
    def __int__(self): return self.n
class BadNumber:
    def __int__(self): raise LookupError("no number")
for n in ("x", "5", 1.5, float("nan"), float("inf"), None, [], True, 1 << 63, -1 << 63, (1 << 63) - 1, 1 << 200, Number(3), BadNumber(), b"7", "\\ud800"):
    print("step", tried(tidemark.step, n))
for heap in (1.5, True, [], b"malloc", Device(3), Device("cuda", "x"), Device("cuda", True), Device("cpu"), object(), "malloc", "python", "torch.cpu", Device):
    for f in (tidemark.stats, tidemark.reset_peak):
        got = tried(f, heap)
        print(f.__name__, got.split(" at 0x")[0] if isinstance(got, str) else type(got).__name__)
for f in (tidemark.scope, tidemark.mark, tidemark.snapshot, tidemark.step, tidemark.baseline, tidemark.start, tidemark.stop):
    print(f.__name__, tried(f, 1, 2, 3), tried(f, nothing=1), tried(f) if f not in (tidemark.start, tidemark.stop, tidemark.baseline) else 0)
print(tried(tidemark.stats, 1, 2), tried(tidemark.profile, 1, 2, 3))
s = tidemark.scope("s")
print(tried(s), tried(s.__exit__), tried(s.__exit__, None, None, None), s.__enter__() is s, tried(s.__exit__, None, None, None), tried(s.__exit__, None, None, None))
async def with_async():
    async with s: pass
print(tried(with_async().send, None))
"""
    for python in each(t):
        both(t, python, text)


main()
