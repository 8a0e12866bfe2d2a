"""Import of damaged traces: never a crash; status 0 with a one-line warning when a sound part was imported, else 1 and one line that says why.

Method: every trace of fixtures/damaged/; the tiny trace cut at every byte, and with a byte flipped in the header and payload of every chunk; and a real
recording cut at random places. What is imported is compared with what the reader of the page reads up to the same place.
"""
import glob
import os
import random

import tmkread
from tidemark_test import ROOT, Database, main, test

TINY = os.path.join(ROOT, "fixtures/golden/v1-tiny.tmk")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def expected(data):
    """What a reader finds: (offset where it stops or None, allocation rows), or None when it is no trace of ours."""
    try:
        lines = list(tmkread.dump(data))
    except tmkread.Refused:
        return None
    rows = sum(int(line.split()[1], 16) >> 5 in (0, 2, 3, 5) for line in lines if line.startswith("event "))
    return (int(lines[-1].split()[-1]) if lines[-1] != "whole" else None), rows


def import_one(t, data, what):
    path, db = t.path("damaged.tmk"), t.path("damaged.db")
    with open(path, "wb") as file:
        file.write(data)
    if os.path.exists(db):
        os.unlink(db)
    done = t.run([t.tidemark, "import", path, "-o", db])
    wanted = expected(data)
    lines = [line for line in done.errors.splitlines() if not line.startswith("tidemark: imported ")]
    if wanted is None:
        t.equal(done.status, 1, f"{what}: exit status ({done.errors})")
        t.equal(len(lines), 1, f"{what}: lines on standard error ({done.errors})")
        t.check(lines[0].startswith("tidemark: cannot import '"), f"{what}: {lines[0]}")
        return
    offset, rows = wanted
    t.check(done.status in (0, 1), f"{what}: exit status {done.status}: {done.errors}")
    t.equal(len(lines), 0 if offset is None else 1, f"{what}: lines on standard error ({done.errors})")
    if offset is not None:
        t.check(f"offset {offset}" in lines[0], f"{what}: the line does not say offset {offset}: {lines[0]}")
    if done.status == 1:
        t.equal(rows, 0, f"{what}: nothing was imported, but these rows are sound")
        return
    found = Database(db)
    t.equal(found.value("select count(*) from allocation"), rows, f"{what}: allocation rows")
    t.equal(found.value("select complete from trace"), 0 if offset is not None else 1, f"{what}: complete")
    found.connection.close()


@test
def damaged_fixtures(t):
    for path in sorted(glob.glob(os.path.join(ROOT, "fixtures/damaged/*.tmk"))):
        import_one(t, read(path), os.path.basename(path))


@test
def cut_at_every_byte(t):
    data = read(TINY)
    for n in range(len(data)):
        import_one(t, data[:n], f"cut at {n}")


@test
def flipped_in_every_chunk(t):
    data = read(TINY)
    walk = [at for at, _, _ in tmkread.chunks(data)] + [len(data)]
    for i, start in enumerate(walk[:-1]):
        for at in (start, start + 4, start + 5, start + 8, start + 12, start + 16, start + 20, start + 24, start + 28, start + 32, walk[i + 1] - 1):
            flipped = bytearray(data)
            flipped[at] ^= 0x10
            import_one(t, flipped, f"byte {at} of chunk {i} flipped")


@test
def real_recording_cut(t):
    recording = t.record([t.program("threads.c")])
    data = read(recording.trace)
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    walk = [at for at, _, _ in tmkread.chunks(data)]
    places = [chance.randrange(len(data)) for _ in range(12)] + [at + delta for at in walk[:12] for delta in (0, 1)]
    for n in places:
        import_one(t, data[:n], f"seed {seed}, cut at {n} of {len(data)}")


@test
def other_verbs_refuse_alike(t):
    """A verb that is given a trace imports it first: the same line, the same status."""
    for name in ("empty", "not-a-trace", "newer-major-version"):
        path = os.path.join(ROOT, f"fixtures/damaged/{name}.tmk")
        for verb in ("info", "summary", "peak"):
            done = t.run([t.tidemark, verb, path])
            t.equal(done.status, 1, f"{verb} of {name}: exit status ({done.errors})")
            t.check(1 <= len(done.errors.splitlines()) <= 2 and path in done.errors.splitlines()[-1], f"{verb} of {name}: {done.errors}")
            t.equal(done.out, b"", "standard output")
    done = t.run([t.tidemark, "peak", t.path("there-is-nothing")])
    t.equal(done.status, 1, "exit status for a file that does not exist")
    t.equal(len(done.errors.splitlines()), 1, f"lines: {done.errors}")


main()
