"""Import of damaged traces: never a crash; status 0 with a one-line warning when a sound part was imported, else 1 and one line that says why.

Method: every trace of fixtures/damaged/; the tiny trace cut at every byte, and with a byte flipped in the header and payload of every chunk; a real
recording cut at random places; and a dump of the flight recorder, cut, flipped, and changed under right checksums. What is imported is compared with what the reader of the page reads up to the same place.
"""
import glob
import os
import random

import tmkread
from tidemark_test import ROOT, Database, main, test
from trace_writer import STACKS, Trace

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


def import_one(t, data, what, dropped=False):
    """dropped: of a trace that was kept within a bound, which is never complete; but its record of that may be what is damaged."""
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
    if not dropped or offset is not None:
        t.equal(found.value("select complete from trace"), 0 if offset is not None else 1, f"{what}: complete")
    found.connection.close()


def import_changed(t, data, what):
    """What is sound by the page may still make no sense (an id 0): import stops there, and says so, or had better read no more than the page allows."""
    path, db = t.path("damaged.tmk"), t.path("damaged.db")
    with open(path, "wb") as file:
        file.write(data)
    if os.path.exists(db):
        os.unlink(db)
    done = t.run([t.tidemark, "import", "--quiet", path, "-o", db])
    t.check(done.status in (0, 1) and len(done.errors.splitlines()) <= 1, f"{what}: exit status {done.status}: {done.errors}")
    t.check(done.status == 0 or done.errors.startswith("tidemark: cannot import '"), f"{what}: {done.errors}")
    wanted = expected(data)
    if done.status or not wanted:
        return
    found = Database(db)
    t.check(found.value("select count(*) from allocation") <= wanted[1], f"{what}: more rows than there are allocations")
    t.equal(found.value("select count(*) from allocation where free_ns < alloc_ns or size_bytes < 0"), 0, f"{what}: rows that cannot be")
    t.equal(found.rows("pragma integrity_check"), [("ok",)], f"{what}: the database")
    found.connection.close()


@test
def damaged_fixtures(t):
    for path in sorted(glob.glob(os.path.join(ROOT, "fixtures/damaged/*.tmk"))):
        import_one(t, read(path), os.path.basename(path))


@test
def cut_at_every_byte(t):
    """At every fourth one and around the edges of chunks, unless the tests may take long."""
    data = read(TINY)
    start, step = random.randrange(4), 1 if t.long else 4
    edges = {at + delta for at, _, _ in tmkread.chunks(data) for delta in (-1, 0, 1)}
    for n in range(len(data)):
        if n < 20 or n in edges or n % step == start % step:
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


def chunk(kind, sequence, payload):
    header = b"TMCK" + bytes([kind, 0, kind <= 5, 0]) + sequence.to_bytes(4, "little") + len(payload).to_bytes(4, "little") * 2
    header += tmkread.zlib.crc32(payload).to_bytes(4, "little") + bytes(4)
    return header + tmkread.zlib.crc32(header).to_bytes(4, "little") + payload


def slim(data):
    """The dump with the live set and what came right after it, its chunks not packed: [(kind, payload), ...]."""
    at, sequence, kept, events = 16, 0, [], 0
    while at < len(data):
        kind, end, payload = tmkread.read_chunk(data, at, sequence)
        events += kind == 3
        if kind != 3 or events <= 2:
            kept.append((kind, payload.data))
        at, sequence = end, sequence + 1
    return kept


def joined(data, chunks):
    return data[:16] + b"".join(chunk(kind, n, payload) for n, (kind, payload) in enumerate(chunks))


def changed(chance, payload):
    payload = bytearray(payload)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, what = chance.randrange(len(payload)), chance.randrange(4)
        if what == 0:
            payload[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif what == 1:
            payload[at:at] = bytes([chance.randrange(256)])
        elif what == 2 and len(payload) > 1:
            del payload[at]
        else:
            payload[at] ^= 1 << chance.randrange(8)
    return bytes(payload)


@test
def dumps_of_the_flight_recorder(t):
    """They begin with what was live before their window, as no other trace does. fixtures/programs/bounded.c leaves one behind."""
    program, before, runs = t.program("bounded.c"), 0, 0
    while not before and (runs := runs + 1) <= 10:  # on a busy machine the program may be over before anything was dropped
        t.record([program], "--max-size=256KiB,ring", "--interval=0", "--alert=live(malloc) > 2MB", output=t.path(f"run{runs}.tmk"))
        data = read(t.path(f"run{runs}.dump1.tmk"))
        db = t.imported(t.path(f"run{runs}.dump1.tmk"))
        before = db.value("select count(*) from allocation where alloc_ns < (select cast(value as integer) from trace_info where key = 'window_start_ns')")
        db.connection.close()
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    import_one(t, data, "the dump", True)
    for n in [chance.randrange(len(data)) for _ in range(3)]:
        import_one(t, data[:n], f"seed {seed}, cut at {n} of {len(data)}", True)
        flipped = bytearray(data)
        flipped[n] ^= 1 << chance.randrange(8)
        import_one(t, flipped, f"seed {seed}, a bit of byte {n} flipped", True)
    chunks = slim(data)
    whole = joined(data, chunks)
    import_one(t, whole, "the slim dump", True)
    db = Database(t.path("damaged.db"))
    start = int(db.value("select value from trace_info where key = 'window_start_ns'"))
    live = db.value("select count(*) from allocation where alloc_ns <= ?1 and coalesce(free_ns, ?1 + 1) > ?1 and size_bytes between 100 and 200", start)
    t.check(live in (39, 40), f"what was live before the window, which may begin where one is replaced: {live}")
    db.connection.close()
    for i in range(60 if t.long else 20):
        which = chance.randrange(len(chunks))
        damaged = list(chunks)
        damaged[which] = (chunks[which][0], changed(chance, chunks[which][1]))
        import_changed(t, joined(data, damaged), f"seed {seed}, round {i}, chunk {which}")


@test
def imported_once(t):
    """The database that was made beside a damaged trace is known again, however little of the trace tells which recording it is."""
    traces = {os.path.basename(path): read(path) for path in glob.glob(os.path.join(ROOT, "fixtures/damaged/*.tmk"))}
    for place in range(3):  # before, in and behind the process' chunk; nothing of the stacks before it is read
        trace = Trace()
        for chunk in range(3):
            if chunk == place:
                trace.chunks.append((STACKS, b"\xff" * 5))
            elif chunk == 1:
                trace.process(1, 100)
        traces[f"stacks{place}.tmk"] = trace.bytes()
    known = 0
    for name, data in traces.items():
        with open(t.path(name), "wb") as file:
            file.write(data)
        if t.ask("summary", t.path(name), status=None).status == 0:
            known += 1
            said = t.ask("summary", t.path(name)).errors.splitlines()[0]
            t.equal(said, f"tidemark: using '{t.path(name)[:-4]}.db', imported from '{t.path(name)}' before", name)
    t.check(known > 20, f"{known} traces that have something to import")


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
