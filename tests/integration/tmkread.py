#!/usr/bin/env python3
"""A second reader of traces, written from schema/format.md alone, to show that the page is enough and that the C reader agrees with it.

    tmkread.py TRACE     prints everything the trace holds, one thing a line; tmkdump.c prints the same lines with the C reader

Bytes in texts that are not printable ASCII, spaces and backslashes are shown as \\xNN. A chunk that is not sound prints nothing. The last line
is `whole`, or `cut at OFFSET` with the offset of the chunk where reading stopped. zstd frames are decompressed by the zstd command.
"""
import shutil
import subprocess
import sys
import zlib

MASK = (1 << 64) - 1
RAW_MAX = 1 << 26
EVENTS_MAX = 1 << 22
ADDRESS_LIMIT = 1 << 60
CHUNK_KINDS = {1: "META", 2: "STACKS", 3: "EVENTS", 4: "NAMES", 5: "END", 6: "ACTIVITY"}
ALLOC, FREE, REALLOC, MAP, UNMAP, REMAP, TEXT = range(7)
COLUMNS = {  # which op classes have an entry
    "time": {ALLOC, FREE, REALLOC, MAP, UNMAP, REMAP, TEXT},
    "begin": {REALLOC, UNMAP, REMAP},
    "heap": {ALLOC, FREE, REALLOC, MAP, UNMAP, REMAP},
    "addr": {ALLOC, REALLOC, MAP, REMAP},
    "old": {FREE, REALLOC, UNMAP, REMAP},
    "size": {ALLOC, REALLOC, MAP, REMAP},
    "old_size": {UNMAP, REMAP},
    "usable": {ALLOC, REALLOC},
    "stack": {ALLOC, REALLOC, MAP, REMAP},
    "text": {TEXT},
}
# Fields of the records, as the page lists them; +1 is a number sent plus one.
RECORDS = {
    1: ("info", "key:s value:s"),
    2: ("string", "id:v bytes:s"),
    3: ("process_start", "id:v pid:v parent:v start_ns:v flags:v rank:+1 local_rank:+1 world_size:+1 exe:s command:s host:s"),
    4: ("process_exit", "process:v ns:v"),
    5: ("process_end", "process:v ns:v kind:v code:v"),
    6: ("thread_start", "id:v process:v tid:v start_ns:v"),
    7: ("thread_end", "thread:v ns:v"),
    8: ("thread_name", "thread:v name:s"),
    9: ("module_load", "id:v process:v bias:v low:v size:v ns:v path:s build_id:s"),
    10: ("module_unload", "module:v ns:v"),
    11: ("heap", "id:v process:v parent:v device:+1 name:s kind:s"),
    12: ("frame_module", "frame:v module:v"),
    13: ("samples", "process:v ns:v *name:s *value:v"),
    14: ("mark", "process:v thread:v ns:v name:s"),
    15: ("note", "process:v ns:v kind:s text:s"),
    16: ("loss", "process:v thread:v ns:v kind:s count:v bytes:v reason:s"),
    17: ("alert", "process:v ns:v rule:s value:v"),
    18: ("name", "frame:v *function:v *file:v *line:v"),
    19: ("watermark", "ns:v"),
    20: ("totals", "events:v chunks:v end_ns:v"),
    21: ("pool_state", "heap:v ns:v allocated:+1 reserved:+1 active:+1 inactive:+1"),
    22: ("oom", "id:v process:v heap:v size:v result:s free:+1 total:+1"),
    23: ("device", "process:v device:v total:+1 uuid:s name:s"),
}


class Damage(Exception):
    """What the page rules out."""


class Refused(Exception):
    """No trace, or one of a version that is not known."""


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def left(self):
        return len(self.data) - self.at

    def raw(self, n):
        if n > self.left():
            raise Damage("short")
        self.at += n
        return self.data[self.at - n:self.at]

    def varint(self):
        value = 0
        for i in range(10):
            byte = self.raw(1)[0]
            if i == 9 and byte > 1:
                raise Damage("varint over 64 bits")
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value
        raise Damage("varint over 10 bytes")

    def block(self):
        return self.raw(self.varint())


def zigzag(n):
    return ((n << 1) ^ (n >> 63)) & MASK


def unzigzag(v):
    return (v >> 1) ^ -(v & 1)


def unA(code):
    """The signed difference that A(d) codes."""
    return unzigzag(code >> 1) * (1 if code & 1 else 16)


def shown(text):
    return "".join(chr(b) if 0x20 < b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in text) or "''"


def record_line(name, spec, body):
    words, repeated = [name], []

    def field(kind):
        if kind == "s":
            return shown(body.block())
        value = body.varint()
        if kind == "+1" and value > 1 << 63:
            raise Damage("a number out of bounds")
        return str(value) if kind == "v" else str(value - 1) if value else "unknown"

    for part in spec.split():
        key, kind = part.split(":")
        if key[0] == "*":
            repeated.append((key[1:], kind))
        else:
            words.append(f"{key}={field(kind)}")
    while repeated and body.left():
        words += [f"{key}={field(kind)}" for key, kind in repeated]
    return " ".join(words)


def read_records(payload):
    while payload.left():
        tag = payload.varint()
        body = Cursor(payload.block())
        if tag in RECORDS:
            yield record_line(*RECORDS[tag], body)


def id_range(payload):
    first, n = payload.varint(), payload.varint()
    if n > payload.left():
        raise Damage("more entries than bytes")
    if n and (first == 0 or first + n > MASK):
        raise Damage("ids out of range")
    return first, n


def read_stacks(payload):
    first_frame, frames = id_range(payload)
    address = 0
    for i in range(frames):
        kind, process, module = payload.varint(), payload.varint(), payload.varint()
        address = (address + unzigzag(payload.varint())) & MASK
        yield f"frame {first_frame + i} kind={kind} process={process} module={module} address={address:#x}"
    first_node, nodes = id_range(payload)
    parents = []
    for i in range(nodes):
        difference = payload.varint()
        if difference == 0 or difference > first_node + i:
            raise Damage("a parent that is not below its node")
        parents.append(first_node + i - difference)
    frame = 0
    for i in range(nodes):
        frame = (frame + unzigzag(payload.varint())) & MASK
        yield f"node {first_node + i} parent={parents[i]} frame={frame}"
    if payload.left():
        raise Damage("bytes left over")


class Segment:
    """The state of the codes within one segment."""

    def __init__(self, columns):
        self.columns = {name: Cursor(data) if data else None for name, data in columns.items()}
        self.sizes = [0] * 4096           # P
        self.stacks = [0] * 4096          # Q
        self.p1 = self.p2 = 0
        self.last_addr = self.last_old = 0
        self.given = []                   # [address, size, given back by its number] of every alloc and realloc
        self.free_addresses = {}          # class -> list, top last

    def code(self, column):
        cursor = self.columns[column]
        return cursor.varint() if cursor else 0

    def stack(self):
        code = self.code("stack")
        i = (((self.p1 * 0x9E3779B1) ^ (self.p2 * 0x85EBCA77)) & 0xFFFFFFFF) >> 20
        stack = code - 1 if code else self.stacks[i]
        if stack >> 32:
            raise Damage("a stack id of more than 32 bits")
        self.stacks[i] = stack
        self.p2, self.p1 = self.p1, stack
        return stack

    def size(self, stack):
        code = self.code("size")
        size = code - 1 if code else self.sizes[stack % 4096]
        self.sizes[stack % 4096] = size
        return size

    def old(self, cls):
        """The address, and for a block known by its number its entry of `given`."""
        if cls in (FREE, REALLOC):
            code = self.code("old")
            if code:
                if code > len(self.given) or self.given[-code][2]:
                    raise Damage("no such block")
                block = self.given[-code]
                block[2] = True
                self.last_old = block[0]
                return block[0], block
        address = (self.last_old + unA(self.code("old"))) & MASK
        if address >= ADDRESS_LIMIT:
            raise Damage("an address out of bounds")
        self.last_old = address
        return address, None

    def size_class(self, size):
        c = max((((size + 23) & MASK) // 16), 2)
        return c if c <= 65 else None

    def addr(self, cls, size, old):
        code = self.code("addr")
        c = self.size_class(size)
        if code == 0:
            if cls != ALLOC or c is None or not self.free_addresses.get(c):
                raise Damage("no free address")
            address = self.free_addresses[c].pop()
        else:
            reference = old if cls in (REALLOC, REMAP) else self.last_addr
            address = (reference + unA(code - 1)) & MASK
            if address >= ADDRESS_LIMIT:
                raise Damage("an address out of bounds")
        self.last_addr = address
        return address

    def push_free(self, block):
        c = self.size_class(block[1])
        if c is not None:
            stack = self.free_addresses.setdefault(c, [])
            if len(stack) == 8:
                del stack[0]
            stack.append(block[0])

    def usable(self, size):
        code = self.code("usable")
        if code == 1:
            return None
        default = max(24, ((((size + 23) & MASK) & ~15) - 8) & MASK)
        return (default + (unzigzag(code - 1) if code else 0)) & MASK

    def done(self):
        if any(cursor and cursor.left() for cursor in self.columns.values()):
            raise Damage("bytes left over in a column")


def limited(value):
    if value >> 32:
        raise Damage("an id of more than 32 bits")
    return value


def read_segment(payload):
    thread, base_ns, n = payload.varint(), payload.varint(), payload.varint()
    if n > EVENTS_MAX:
        raise Damage("too many events in a segment")
    ops = payload.block()
    if len(ops) != n:
        raise Damage("column op is not n bytes")
    segment = Segment({name: payload.block() for name in COLUMNS})
    yield f"segment thread={thread} events={n}"
    time = base_ns
    for op in ops:
        cls = op >> 5
        if cls == 7:
            raise Damage("a reserved op")
        begin = heap = addr = old = size = old_size = stack = text = 0
        usable = block = None
        time += segment.code("time")
        if time > MASK:
            raise Damage("times decrease")
        begin = time
        if cls in COLUMNS["begin"]:
            begin = time - segment.code("begin")
            if begin < 0:
                raise Damage("begin is before 0")
        if cls in COLUMNS["heap"]:
            heap = limited(segment.code("heap"))
        if cls in COLUMNS["stack"]:
            stack = segment.stack()
        if cls in COLUMNS["size"]:
            size = segment.size(stack)
        if cls in COLUMNS["old"]:
            old, block = segment.old(cls)
        if cls in COLUMNS["addr"]:
            addr = segment.addr(cls, size, old)
        if block and (cls == FREE or addr != old):
            segment.push_free(block)
        if cls in COLUMNS["old_size"]:
            old_size = segment.code("old_size")
        if cls in COLUMNS["usable"]:
            usable = segment.usable(size)
        if cls in (ALLOC, REALLOC):
            segment.given.append([addr, size, False])
        if cls in COLUMNS["text"]:
            text = limited(segment.code("text"))
            if op >= 0xD0:  # a scope: key, link, category
                addr, old, heap = segment.code("text"), segment.code("text"), limited(segment.code("text"))
        yield (f"event {op:#04x} time={time} begin={begin} heap={heap} addr={addr:#x} size={size} old={old:#x} old_size={old_size} "
               f"usable={'unknown' if usable is None else usable} stack={stack} text={text}")
    segment.done()


def read_events(payload):
    watermark, segments = payload.varint(), payload.varint()
    yield f"events watermark={watermark} segments={segments}"
    for _ in range(segments):
        yield from read_segment(payload)
    if payload.left():
        raise Damage("bytes left over")


ACTIVITY_COLUMNS = ("kind", "name", "device", "stream", "start", "duration", "size", "address", "correlation")


def read_activities(payload):
    process, n = payload.varint(), payload.varint()
    if n > payload.left():
        raise Damage("more entries than bytes")
    yield f"activities process={process} n={n}"
    columns = []
    for _ in ACTIVITY_COLUMNS:
        data = Cursor(payload.block())
        columns.append([data.varint() for _ in range(n)] if data.left() else [0] * n)
        if data.left():
            raise Damage("bytes left over in a column")
    if payload.left():
        raise Damage("bytes left over")
    start = address = correlation = 0
    for kind, name, device, stream, start_code, duration, size, address_code, correlation_code in zip(*columns):
        start = (start + unzigzag(start_code)) & MASK
        address = (address + unzigzag(address_code)) & MASK
        correlation = (correlation + unzigzag(correlation_code)) & MASK
        if kind > 255 or name >> 32 or device >> 31 or start + duration > MASK:
            raise Damage("a number out of bounds")
        yield (f"activity kind={kind & 15} direction={kind >> 4} name={name} device={device - 1} stream={(stream - 1) & MASK} start={start} "
               f"end={start + duration} size={(size - 1) & MASK} address={address:#x} correlation={correlation}")


def unpack(codec, stored, raw_bytes):
    if codec == 0:
        raw = stored
    elif codec == 1:
        if not shutil.which("zstd"):
            from tidemark_test import Skipped
            raise Skipped("zstd is not installed")
        done = subprocess.run(["zstd", "-dcq"], input=stored, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Damage("not a zstd frame")
        raw = done.stdout
    else:
        raise Damage("unknown codec")
    if len(raw) != raw_bytes:
        raise Damage("raw length")
    return Cursor(raw)


def u(data, offset, size):
    return int.from_bytes(data[offset:offset + size], "little")


def read_chunk(data, at, sequence):
    """Returns (kind, end, raw payload) of the chunk at this offset."""
    header = data[at:at + 32]
    if len(header) < 32 or u(header, 0, 4) != 0x4B434D54 or u(header, 28, 4) != zlib.crc32(header[:28]) or u(header, 8, 4) != sequence:
        raise Damage("chunk header")
    stored_bytes, raw_bytes = u(header, 12, 4), u(header, 16, 4)
    if stored_bytes > RAW_MAX or raw_bytes > RAW_MAX:
        raise Damage("chunk size")
    stored = data[at + 32:at + 32 + stored_bytes]
    if len(stored) < stored_bytes or zlib.crc32(stored) != u(header, 20, 4):
        raise Damage("chunk payload")
    kind = header[4]
    if kind not in CHUNK_KINDS and u(header, 6, 2) & 1:
        raise Damage("needs a newer version")
    return kind, at + 32 + stored_bytes, unpack(header[5], stored, raw_bytes)


def chunks(data):
    """Yields (offset, kind, lines) of each sound chunk; returns the offset where reading stopped and the last kind."""
    if len(data) < 16 or data[:8] != b"TIDEMARK":
        raise Refused("not a tidemark trace")
    if u(data, 8, 2) != 1:
        raise Refused(f"format version {u(data, 8, 2)} is not known")
    readers = {1: read_records, 2: read_stacks, 3: read_events, 4: read_records, 5: read_records, 6: read_activities}
    at, sequence, last = 16, 0, None
    while at < len(data):
        try:
            kind, end, payload = read_chunk(data, at, sequence)
            lines = list(readers[kind](payload)) if kind in readers else []
        except Damage:
            return at, None
        yield at, kind, lines
        at, sequence, last = end, sequence + 1, kind
    return at, last


def dump(data):
    """All lines of a trace."""
    walk = chunks(data)
    while True:
        try:
            _, kind, lines = next(walk)
        except StopIteration as stop:
            at, last = stop.value
            yield "whole" if last == 5 and at == len(data) else f"cut at {at}"
            return
        yield f"chunk {CHUNK_KINDS.get(kind, kind)}"
        yield from lines


def main():
    try:
        with open(sys.argv[1], "rb") as file:
            for line in dump(file.read()):
                print(line)
    except Refused as why:
        print(f"refused: {why}")
        sys.exit(1)


if __name__ == "__main__":
    main()
