"""The trace format: the reader written from the page alone and the C reader see the same things, in sound traces and in damaged ones.

Method: both print every golden and damaged trace, and freshly recorded ones, as lines that are compared; the tiny trace is also cut at every
byte, and each of its bytes is flipped in turn.
"""
import glob
import os
import random
import subprocess

import tmkread
from tidemark_test import ROOT, main, test

TINY = os.path.join(ROOT, "fixtures/golden/v1-tiny.tmk")


def by_page(data):
    try:
        return list(tmkread.dump(data))
    except tmkread.Refused:
        return ["refused"]


def by_c(t, path):
    lines = t.run([os.path.join(t.build, "tests/integration/tmkdump"), path]).text.splitlines()
    return ["refused"] if lines and lines[0].startswith("refused") else lines


def compare(t, path, what):
    with open(path, "rb") as file:
        page = by_page(file.read())
    c = by_c(t, path)
    for i, (a, b) in enumerate(zip(page, c)):
        t.equal(b, a, f"{what}: line {i + 1}, by the C reader and by the page")
    t.equal(len(c), len(page), f"{what}: lines")
    return page


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


@test
def golden_traces(t):
    for path in sorted(glob.glob(os.path.join(ROOT, "fixtures/golden/*.tmk"))):
        lines = compare(t, path, os.path.basename(path))
        wanted = read(os.path.splitext(path)[0] + ".dump").decode().splitlines()
        t.check(lines == wanted, f"{path} does not read as its .dump says")
        t.equal(lines[-1], "whole", "end of " + path)


@test
def damaged_traces(t):
    paths = sorted(glob.glob(os.path.join(ROOT, "fixtures/damaged/*.tmk")))
    t.check(len(paths) >= 8, "damaged fixtures are missing")
    for path in paths:
        t.check(compare(t, path, os.path.basename(path))[-1] != "whole", f"{path} reads as whole")


@test
def the_page_shows_the_tiny_trace(t):
    page = t.path("format.md")
    write(page, read(os.path.join(ROOT, "schema/format.md")))
    t.run(["python3", os.path.join(ROOT, "fixtures/make_tiny.py"), "annotate", page], status=0)
    t.check(read(page) == read(os.path.join(ROOT, "schema/format.md")), "the hexdump in schema/format.md is not fixtures/make_tiny.py's")
    t.run(["python3", os.path.join(ROOT, "fixtures/make_tiny.py"), "trace", t.path("tiny.tmk")], status=0)
    t.check(read(t.path("tiny.tmk")) == read(TINY), "fixtures/golden/v1-tiny.tmk is not fixtures/make_tiny.py's")


@test
def cut_at_every_byte(t):
    data, path = read(TINY), t.path("cut.tmk")
    ends = [0]
    for n in range(len(data)):
        lines = compare(t, write(path, data[:n]), f"cut at {n}")
        t.check(lines[-1] != "whole", f"cut at {n} reads as whole")
        ends.append(len(lines))
        t.check(n < 16 or ends[-1] >= ends[-2] or lines == ["refused"], f"cut at {n}: less is read than from less")


@test
def flip_every_byte(t):
    data, path = read(TINY), t.path("flip.tmk")
    for n in range(len(data)):
        flipped = bytearray(data)
        flipped[n] ^= 1 << (n % 8)
        lines = compare(t, write(path, flipped), f"byte {n} flipped")
        # The minor version and the reserved word of the file header are the only bytes that no checksum covers.
        t.check(lines[-1] != "whole" or 10 <= n < 16, f"byte {n} flipped is not noticed")


@test
def nonsense_with_right_checksums(t):
    """Payloads of random changes under a right CRC: damage that only parsing can find."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    chance = random.Random(seed)
    data = read(TINY)
    walk = [at for at, _, _ in tmkread.chunks(data)] + [len(data)]
    for i in range(600):
        which = chance.randrange(len(walk) - 1)
        payload = bytearray(data[walk[which] + 32:walk[which + 1]])
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(payload))
            what = chance.randrange(3)
            if what == 0:
                payload[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            elif what == 1:
                payload[at:at] = bytes([chance.randrange(256)])
            elif len(payload) > 1:
                del payload[at]
        header = bytearray(data[walk[which]:walk[which] + 28])
        header[12:24] = len(payload).to_bytes(4, "little") * 2 + tmkread.zlib.crc32(payload).to_bytes(4, "little")
        header += tmkread.zlib.crc32(header).to_bytes(4, "little")
        path = write(t.path("nonsense.tmk"), data[:walk[which]] + header + payload + data[walk[which + 1]:])
        compare(t, path, f"seed {seed}, round {i}")


@test
def freshly_recorded(t):
    program = t.program("family.c")
    threads = t.program("threads.c")
    for command in ([program], [threads], ["sh", "-c", "ls / | sort | head -3; true"]):
        recording = t.record(command, status=None)
        t.equal(compare(t, recording.trace, " ".join(command))[-1], "whole", "end")


main()
