"""Writes traces from Python, as schema/format.md says, for tests that need exact events at exact times.

    t = Trace(start_unix_ns=10**18)
    t.process(1, pid=100)
    t.thread(1, process=1)
    main, load = t.stack("main"), t.stack("main", "load")
    t.events(1, [malloc(1000, 0x1000, 64, load), free(2000, 0x1000)], watermark=2500)
    t.exit(1, 2500); t.end(1, 3000)
    t.save(path)

Every code is sent in its plainest form (no prediction), so this shares nothing with the C encoder.
"""
import zlib

OPS = {"malloc": 0x00, "calloc": 0x01, "realloc_new": 0x02, "posix_memalign": 0x04, "free": 0x20, "realloc": 0x40, "mmap": 0x60, "mmap_file": 0x61,
       "sbrk": 0x62, "munmap": 0x80, "sbrk_shrink": 0x81, "mremap": 0xA0, "mark": 0xC0,
       "heap_alloc": 0x09, "torch_alloc": 0x0A, "python_alloc": 0x0D, "realloc_alone": 0x1F, "heap_free": 0x25, "torch_free": 0x26, "python_free": 0x29,
       "snapshot": 0xC1, "baseline": 0xC2, "stop": 0xC3, "start": 0xC4, "reset_peak": 0xC5, "scope_push": 0xD0, "scope_block": 0xD1, "scope_range": 0xD2,
       "scope_end": 0xD3, "scope_exception": 0xD4, "step": 0xD5, "oom": 0xD6, "launch": 0xD7, "use": 0xD8,
       "cuda_alloc": 0x0E, "cuda_alloc_async": 0x13, "cuda_create": 0x15, "cuda_free": 0x2A, "cuda_free_async": 0x2D, "cuda_release": 0x2E}
META, STACKS, EVENTS, NAMES, END, ACTIVITY = 1, 2, 3, 4, 5, 6
NATIVE, PYTHON = 1, 2
FORKED, EXECED, UNRECORDED = 1, 2, 4
MASK = (1 << 64) - 1


def v(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def zigzag(n):
    return ((n << 1) ^ (n >> 63)) & MASK


def s(text):
    data = text if isinstance(text, bytes) else text.encode()
    return v(len(data)) + data


def plus(n):
    return v(0 if n is None else n + 1)


def address_code(d):
    return 2 * zigzag(d // 16) if d % 16 == 0 else 2 * zigzag(d) + 1


def malloc(time, addr, size, stack=0, op="malloc", usable=None, heap=0):
    return dict(op=op, time=time, addr=addr, size=size, stack=stack, usable=usable, heap=heap)


def free(time, old, op="free", heap=0):
    return dict(op=op, time=time, old=old, heap=heap)


def realloc(begin, time, old, addr, size, stack=0):
    return dict(op="realloc", begin=begin, time=time, old=old, addr=addr, size=size, stack=stack, usable=None)


def mmap(time, addr, size, stack=0, op="mmap"):
    return dict(op=op, time=time, addr=addr, size=size, stack=stack)


def munmap(begin, time, old, size, op="munmap"):
    return dict(op=op, begin=begin, time=time, old=old, old_size=size)


def mremap(begin, time, old, old_size, addr, size, stack=0):
    return dict(op="mremap", begin=begin, time=time, old=old, old_size=old_size, addr=addr, size=size, stack=stack)


def mark(time, text):
    return dict(op="mark", time=time, text=text)


def text(op, time, text=0):
    """mark, snapshot, baseline, stop, start, reset_peak."""
    return dict(op=op, time=time, text=text)


def scope(op, time, name=0, category=0, key=0, link=0):
    """scope_push, scope_block, scope_range, scope_end, scope_exception; name and category are string ids."""
    return dict(op=op, time=time, text=name, key=key, link=link, category=category)


def oom(time, api, id, stack=0):
    """A refusal: api is a string id, id that of Trace.oom()."""
    return dict(op="oom", time=time, text=api, key=id, link=stack)


def launch(time, api, correlation, stack=0):
    return dict(op="launch", time=time, text=api, key=correlation, link=stack)


def use(time, address, correlation=0):
    return dict(op="use", time=time, text=0, key=address, link=correlation)


def step(time, n):
    return dict(op="step", time=time, text=0, key=zigzag(n))


def default_usable(size):
    return max(24, ((size + 23) & ~15) - 8)


def segment(thread, events, base=0):
    columns = {name: bytearray() for name in ("op", "time", "begin", "heap", "addr", "old", "size", "old_size", "usable", "stack", "text")}
    last_time, last_addr, last_old = base, 0, 0
    for e in events:
        columns["op"].append(OPS[e["op"]])
        columns["time"] += v(e["time"] - last_time)
        last_time = e["time"]
        if "begin" in e:
            columns["begin"] += v(e["time"] - e["begin"])
        if "text" not in e:
            columns["heap"] += v(e.get("heap", 0))
        if "stack" in e:
            columns["stack"] += v(e["stack"] + 1)
        if "size" in e:
            columns["size"] += v(e["size"] + 1)
        if "old" in e:
            if e["op"] not in ("munmap", "sbrk_shrink", "mremap"):
                columns["old"] += v(0)
            columns["old"] += v(address_code(e["old"] - last_old))
            last_old = e["old"]
        if "addr" in e:
            columns["addr"] += v(address_code(e["addr"] - (e["old"] if "old" in e else last_addr)) + 1)
            last_addr = e["addr"]
        if "old_size" in e:
            columns["old_size"] += v(e["old_size"])
        if "usable" in e:
            usable = e["usable"]
            columns["usable"] += v(1 if usable == "unknown" else 0 if usable is None else zigzag(usable - default_usable(e["size"])) + 1
                                   if usable != default_usable(e["size"]) else 0)
        if "text" in e:
            columns["text"] += v(e["text"])
            if OPS.get(e["op"], 0) >= 0xD0:
                columns["text"] += v(e.get("key", 0)) + v(e.get("link", 0)) + v(e.get("category", 0))
    return v(thread) + v(base) + v(len(events)) + b"".join(v(len(c)) + bytes(c) for c in columns.values())


class Trace:
    """A trace in the making: a list of chunks."""

    minor = 0

    def __init__(self, start_unix_ns=1_700_000_000_000_000_000, **info):
        self.chunks, self.frames, self.nodes, self.strings, self.names = [], {}, {}, {}, []
        self.event_count, self.last_ns, self.oom_count = 0, 0, 0
        pairs = {"tool_version": "0.0.test", "start_unix_ns": start_unix_ns, "sample_bytes": 0, "clock": "tsc", "host": "node", **info}
        self.meta(*(self.record(1, s(k) + s(str(x))) for k, x in pairs.items()))
        self.pending_frames, self.pending_nodes = [], []

    @staticmethod
    def record(tag, body):
        return v(tag) + v(len(body)) + body

    def meta(self, *records):
        self.chunks.append((META, b"".join(records)))

    def process(self, id, pid, parent=0, start=0, flags=0, rank=None, local_rank=None, world_size=None, exe="/bin/x", command=b"x\0-y", host="node"):
        self.meta(self.record(3, v(id) + v(pid) + v(parent) + v(start) + v(flags) + plus(rank) + plus(local_rank) + plus(world_size) + s(exe)
                              + s(command) + s(host)))

    def thread(self, id, process, tid=None, start=0):
        self.meta(self.record(6, v(id) + v(process) + v(tid or 1000 + id) + v(start)))

    def module(self, id, process, bias, size, path, ns=0, build_id=b"\xab\xcd"):
        self.meta(self.record(9, v(id) + v(process) + v(bias) + v(bias) + v(size) + v(ns) + s(path) + s(build_id)))

    def heap(self, id, process, name, kind, parent=0, device=None):
        self.meta(self.record(11, v(id) + v(process) + v(parent) + plus(device) + s(name) + s(kind)))

    def exit(self, process, ns):
        self.meta(self.record(4, v(process) + v(ns)))

    def end(self, process, ns, kind=1, code=0):
        self.meta(self.record(5, v(process) + v(ns) + v(kind) + v(code)))
        self.last_ns = max(self.last_ns, ns)

    def sample(self, process, ns, **values):
        self.meta(self.record(13, v(process) + v(ns) + b"".join(s(k) + v(x) for k, x in values.items())))

    def recorder_mark(self, process, ns, name):
        self.meta(self.record(14, v(process) + v(0) + v(ns) + s(name)))

    def pool_state(self, heap, ns, allocated=None, reserved=None, active=None, inactive=None):
        self.meta(self.record(21, v(heap) + v(ns) + plus(allocated) + plus(reserved) + plus(active) + plus(inactive)))

    def oom(self, process, heap, size, result="CUDA_ERROR_OUT_OF_MEMORY", free=None, total=None):
        """The id of the refusal; an event of it says when and where."""
        self.oom_count += 1
        self.meta(self.record(22, v(self.oom_count) + v(process) + v(heap) + v(size) + s(result) + plus(free) + plus(total)))
        return self.oom_count

    def device(self, process, device, total=None, uuid=b"", name=""):
        self.meta(self.record(23, v(process) + v(device) + plus(total) + s(uuid) + s(name)))

    def activities(self, process, activities):
        """Dicts of kind, direction, name (string id), device, stream, start, end, size, address, correlation."""
        columns, before = [bytearray() for _ in range(9)], {}
        for a in activities:
            codes = (a["kind"] + 16 * a.get("direction", 0), a.get("name", 0), a.get("device", -1) + 1, a.get("stream", -1) + 1,
                     zigzag(a["start"] - before.get("start", 0)), a["end"] - a["start"], a.get("size", -1) + 1,
                     zigzag(a.get("address", 0) - before.get("address", 0)), zigzag(a.get("correlation", 0) - before.get("correlation", 0)))
            for column, code in zip(columns, codes):
                column += v(code)
            before = a
        self.chunks.append((ACTIVITY, v(process) + v(len(activities)) + b"".join(s(bytes(c)) for c in columns)))

    def note(self, process, ns, kind, text):
        self.meta(self.record(15, v(process) + v(ns) + s(kind) + s(text)))

    def loss(self, process, thread, ns, kind, count, bytes, reason):
        self.meta(self.record(16, v(process) + v(thread) + v(ns) + s(kind) + v(count) + v(bytes) + s(reason)))

    def string(self, text):
        """The id of a string; defined in a META chunk when it is new."""
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.meta(self.record(2, v(self.strings[text]) + s(text)))
        return self.strings[text]

    def frame(self, functions, kind=NATIVE, module=0, address=None):
        """functions: a name, or [(function, file, line), ...] innermost first; None: not named."""
        key = (str(functions), kind, module, address)
        if key in self.frames:
            return self.frames[key]
        self.frames[key] = id = len(self.frames) + 1
        self.pending_frames.append((kind, module, address if address is not None else 0x1000 * id))
        if isinstance(functions, str):
            functions = [(functions, functions + ".c", id)]
        if functions:
            self.names.append((id, [(self.string(f) if f else 0, self.string(file) if file else 0, line) for f, file, line in functions]))
        return id

    def stack(self, *frames):
        """The node of a stack, outermost frame first; a frame is a name or what frame() gave."""
        parent = 0
        for f in frames:
            key = (parent, f if isinstance(f, int) else self.frame(f))
            if key not in self.nodes:
                self.nodes[key] = len(self.nodes) + 1
                self.pending_nodes.append((self.nodes[key], *key))
            parent = self.nodes[key]
        return parent

    def flush_stacks(self):
        frames, nodes = self.pending_frames, self.pending_nodes
        if not frames and not nodes:
            return
        first_frame = len(self.frames) - len(frames) + 1
        body, last = v(first_frame) + v(len(frames)), 0
        for kind, module, address in frames:
            body += v(kind) + v(1) + v(module) + v(zigzag(address - last))
            last = address
        body += v(nodes[0][0] if nodes else len(self.nodes) + 1) + v(len(nodes)) + b"".join(v(id - parent) for id, parent, _ in nodes)
        last = 0
        for _, _, frame in nodes:
            body += v(zigzag(frame - last))
            last = frame
        self.chunks.append((STACKS, body))
        self.pending_frames, self.pending_nodes = [], []

    def segments(self, segments, watermark=0):
        """One EVENTS chunk: [(thread, events), ...]."""
        self.flush_stacks()
        self.chunks.append((EVENTS, v(watermark) + v(len(segments)) + b"".join(segment(thread, events) for thread, events in segments)))
        for _, events in segments:
            self.event_count += len(events)
            self.last_ns = max([self.last_ns] + [e["time"] for e in events])

    def events(self, thread, events, watermark=0):
        self.segments([(thread, events)], watermark)

    def name_chunk(self):
        self.flush_stacks()
        records = [self.record(18, v(id) + b"".join(v(f) + v(file) + v(line) for f, file, line in functions)) for id, functions in self.names]
        self.chunks.append((NAMES, b"".join(records)))

    def bytes(self, closed=True, names=True):
        if names:
            self.name_chunk()
        self.flush_stacks()
        chunks = self.chunks + ([(END, self.record(20, v(self.event_count) + v(len(self.chunks)) + v(self.last_ns)))] if closed else [])
        out = b"TIDEMARK" + (1).to_bytes(2, "little") + self.minor.to_bytes(2, "little") + bytes(4)
        for sequence, (kind, payload) in enumerate(chunks):
            header = (b"TMCK" + bytes([kind, 0, kind <= END, 0]) + sequence.to_bytes(4, "little") + len(payload).to_bytes(4, "little") * 2
                      + zlib.crc32(payload).to_bytes(4, "little") + bytes(4))
            out += header + zlib.crc32(header).to_bytes(4, "little") + payload
        return out

    def save(self, path, **how):
        with open(path, "wb") as file:
            file.write(self.bytes(**how))
        return path
