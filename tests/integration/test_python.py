"""Python frames in call stacks, on every CPython of this machine.

Method: a program says itself, with sys._getframe(), where it is when it allocates a block of a size of its own (fixtures/programs/probe.py); the Python frames
of that block's stack in the database must be the same: function, file and line, in the same order. Random programs (python_programs.py) go through
everything that makes a frame. What else is asked is worked out by hand beside the script that it is asked of.
"""
import json
import os
import re

from python_programs import KINDS, program
from pythons import each
from tidemark_test import Failed, main, test

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/programs/probe.py")
PROBE_LINE = next(i for i, line in enumerate(open(PROBE, encoding="utf-8"), 1) if "the line of the probe" in line)
STACK = """WITH RECURSIVE up(id, parent, frame, depth) AS (
             SELECT id, parent_id, frame_id, depth FROM stack WHERE id = ?
             UNION ALL SELECT s.id, s.parent_id, s.frame_id, s.depth FROM stack s JOIN up ON s.id = up.parent WHERE s.id != 0)
           SELECT f.kind, f.function, f.file, f.line FROM up JOIN frame f ON f.id = up.frame ORDER BY up.depth DESC"""


def frames_of(db, stack):
    """Innermost first."""
    return db.rows(STACK, stack)


def python_frames(db, stack):
    return [[file, line, function] for kind, function, file, line in frames_of(db, stack) if kind == "python"]


def write(t, name, text):
    with open(t.path(name), "w", encoding="utf-8") as file:
        file.write(text)
    with open(PROBE, encoding="utf-8") as source, open(t.path("probe.py"), "w", encoding="utf-8") as file:
        file.write(source.read())
    return t.path(name)


def compare(t, db, out, python, least=1):
    """Every probe of the output against its block in the database."""
    probes = 0
    for line in out.splitlines():
        match = re.match(rb"(\d+) (\[\[.*)", line)
        if not match:
            continue
        size, wanted = int(match[1]), json.loads(match[2])
        rows = db.rows("SELECT stack_id FROM allocation WHERE size_bytes = ? AND api = 'malloc'", size)
        t.equal(len(rows), 1, f"{python}: blocks of {size} bytes")
        got = python_frames(db, rows[0][0])
        wanted = [[t.path("probe.py"), PROBE_LINE, "probe"]] + wanted
        if got[:len(wanted)] != wanted or len(got) > max(len(wanted), 100):
            different = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            raise Failed(f"{python}: probe {size}: frame {different} from the inside: got {got[different:different + 3]}, expected "
                         f"{wanted[different:different + 3]} ({len(got)} and {len(wanted)} frames)")
        probes += 1
    t.check(probes >= least, f"{python}: {probes} probes, expected {least}")
    return probes


@test
def random_programs(t):
    """Every kind of frame in every program, in random order."""
    for python in each(t):
        for seed in range(12 if t.long else 2):
            script = write(t, f"random{seed}.py", program(seed))
            recording = t.record([python.path, script])
            probes = compare(t, t.imported(recording), recording.out, f"{python}, seed {seed}", least=10)
            print(f"{python}, seed {seed}: {probes} stacks agree")


main()
