"""What the analyzer answers about devices: uses and what they prove, segments and refusals, pools and resets, libraries and lines, gaps, every list of
`tidemark gpu`, and the other commands on heaps of devices.

Method: trace_writer.py writes the events; every figure is worked out by hand beside them.
"""
import json
import sqlite3
from random import Random

from tidemark_test import main, test
from trace_writer import PYTHON, Trace, free, launch, malloc, oom, scope, text, use

MS, MIB = 1_000_000, 1 << 20
A, B, C = 0x7f0000000000, 0x7f1000000000, 0x7f2000000000


def new_trace(**more):
    t = Trace(**more)
    t.minor = 2
    add_process(t, 1)
    return t


def add_process(t, id, heaps=10, **more):
    """Process, its thread of the same number, and heaps: +1 malloc, +2 cuda:0, +3 torch.cuda:0 in it, +4 cuda-host, +5 cuda-map:0, +6 cuda-va:0."""
    first = heaps * (id - 1)
    t.process(id, pid=100 * id, **more)
    t.thread(id, process=id)
    t.heap(first + 1, id, "malloc", "host")
    t.heap(first + 2, id, "cuda:0", "device", device=0)
    t.heap(first + 3, id, "torch.cuda:0", "tensor", parent=first + 2, device=0)
    t.heap(first + 4, id, "cuda-host", "pinned")
    t.heap(first + 5, id, "cuda-map:0", "device-mapping", parent=first + 2, device=0)
    t.heap(first + 6, id, "cuda-va:0", "address-space", device=0)


def alloc(time, addr, size, stack=0, heap=2):
    return malloc(time, addr, size, stack, op="torch_alloc" if heap % 10 == 3 else "cuda_alloc", usable="unknown", heap=heap)


def release(time, addr, heap=2):
    return free(time, addr, op="torch_free" if heap % 10 == 3 else "cuda_free", heap=heap)


def finish(t, trace, exit_ns, end_ns=None, processes=(1,), name="run.tmk"):
    for id in processes:
        trace.exit(id, exit_ns)
        trace.end(id, end_ns or exit_ns)
    return t.imported(trace.save(t.path(name)), options=("--quiet",))


def lives(trace, with_uses=True, launches=True):
    """Events of one thread. Launches at 3, 11 and 13 ms; exit at 20 ms."""
    early, late, idle, never, leak, churn = (trace.stack("main", f) for f in ("early", "late", "idle", "never", "leak", "churn"))
    kernel, fill = trace.string("cuLaunchKernel"), trace.string("cuMemsetD8Async")
    e = [alloc(1 * MS, A, 4096, early), alloc(2 * MS, B, 8192, late), alloc(2 * MS + 500_000, C, 100, idle)]
    work = [[launch(3 * MS, kernel, 1)] if launches else [], [launch(11 * MS, kernel, 2)] if launches else [], [launch(13 * MS, fill, 3)] if launches else []]
    if with_uses:
        work[0] += [use(3 * MS, B + 64, 1), use(3 * MS, C + 99, 1), use(3 * MS, C + 100, 1)]  # inside, the last byte, just behind
        work[1] += [use(11 * MS, A, 2), use(11 * MS, A + 1 * MIB, 2)]
        work[2] += [use(13 * MS, C, 3)]
    e += work[0] + [alloc(4 * MS, A + 65536, 300, never), alloc(5 * MS, A + 1 * MIB, 5000, leak)]
    for i in range(12):
        e += [alloc(6 * MS + 20_000 * i, A + 2 * MIB, 256, churn), release(6 * MS + 20_000 * i + 10_000, A + 2 * MIB)]
    e += work[1] + [release(12 * MS, A)] + work[2] + [release(14 * MS, C), release(15 * MS, B), release(16 * MS, A + 65536)]
    return e


FOUND = "select kind, function, count, bytes, longest_duration_ns, launches from gpu_inefficiency order by kind, function"


@test
def what_lives_prove(t):
    trace = new_trace()
    trace.events(1, lives(trace))
    db = finish(t, trace, 20 * MS)
    t.equal(db.rows("select size_bytes, uses, first_use_ns, last_use_ns, idle_duration_ns, idle_from_ns, launches_before, launches_idle, launches_after from gpu_block"
                    " where size_bytes <> 256 order by alloc_ns"),
            [(4096, 1, 11 * MS, 11 * MS, 0, None, 1, 0, 0), (8192, 1, 3 * MS, 3 * MS, 0, None, 0, 0, 2), (100, 2, 3 * MS, 13 * MS, 10 * MS, 3 * MS, 0, 1, 0),
             (300, 0, None, None, None, None, 2, None, None), (5000, 1, 11 * MS, 11 * MS, 0, None, 0, 0, 1)], "blocks and their uses")
    t.equal(db.rows(FOUND),
            [("allocated_early", "early", 1, 4096, 10 * MS, 1), ("churn", "churn", 12, 3072, 10_000, None), ("freed_late", "late", 1, 8192, 12 * MS, 2),
             ("idle", "idle", 1, 100, 10 * MS, 1), ("leaked", "leak", 1, 5000, 9 * MS, 1), ("never_used", "churn", 12, 3072, 10_000, 0),
             ("never_used", "never", 1, 300, 12 * MS, 2), ("redundant", "churn", 11, 2816, None, None)], "findings")
    t.equal(db.rows("select launches, told_launches, kernels, told_kernels, graphs, uses, stray_uses, uses_known from gpu_process"), [(3, 3, 2, 2, 0, 5, 1, 1)],
            "what the process told")
    t.equal(db.value("select round(byte_seconds, 6) from gpu_inefficiency where kind = 'idle'"), round(100 * 0.010, 6), "byte seconds")
    for block, address in db.rows("select allocation_id, address from gpu_block"):
        t.equal(db.value("select address from allocation where id = ?", block), address, "the block is the allocation's row")


def judged(t, name, make, exit_ns=200 * MS):
    """{function: [(kind, count, longest_duration_ns, launches)]} of a trace whose events make() gives; a kernel that uses memory of another block comes first."""
    trace = new_trace()
    kernel = trace.string("cuLaunchKernel")
    trace.events(1, [alloc(100, C, 64), launch(200, kernel, 1), use(200, C, 1), *make(trace, kernel), release(exit_ns - 100, C)])
    db = finish(t, trace, exit_ns, name=name + ".tmk")
    t.equal(db.value("select uses_known from gpu_process"), 1, "uses are known")
    found = {}
    for function, *row in db.rows("select function, kind, count, longest_duration_ns, launches from gpu_inefficiency where function is not null order by 1, 2"):
        found.setdefault(function, []).append(tuple(row))
    return found


@test
def where_each_rule_begins(t):
    """One nanosecond decides: 1 ms, and a quarter of the block's life; of churn 1 ms, and ten blocks."""
    ms = 10 * MS

    def lives_of(trace, kernel):
        events, at = [], ms
        # name, from allocation to first use, between two uses, from last use to release
        for n, (name, before, between, after) in enumerate((
                ("early", MS, 0, 3 * MS), ("early-too-short", MS - 1, 0, 2 * MS), ("early-in-a-long-life", MS, 0, 3 * MS + 1),
                ("late", 3 * MS, 0, MS), ("late-too-short", 2 * MS, 0, MS - 1), ("late-in-a-long-life", 3 * MS + 1, 0, MS),
                ("idle", 1000, MS, 3 * MS - 1000), ("idle-too-short", 1000, MS - 1, 1000), ("idle-in-a-long-life", 1000, MS, 3 * MS - 999))):
            block, stack = A + n * MIB, trace.stack("main", name)
            first = at + before
            events += [alloc(at, block, 256, stack), launch(at + 10, kernel, 2), use(at + 10, C, 2), launch(first, kernel, 3), use(first, block, 3)]
            if between:
                events += [launch(first + 10, kernel, 4), use(first + 10, C, 4), launch(first + between, kernel, 5), use(first + between, block, 5)]
            events += [launch(first + between + 10, kernel, 6), use(first + between + 10, C, 6), release(first + between + after, block)]
            at += ms
        return events
    found = judged(t, "waits", lives_of)
    of = lambda kind: sorted((name, row[2], row[3]) for name, rows in found.items() for row in rows if row[0] == kind)
    t.equal(of("allocated_early"), [("early", MS, 1), ("late", 3 * MS, 1), ("late-in-a-long-life", 3 * MS + 1, 1), ("late-too-short", 2 * MS, 1)], "early")
    t.equal(of("freed_late"), [("early", 3 * MS, 1), ("early-in-a-long-life", 3 * MS + 1, 1), ("early-too-short", 2 * MS, 1), ("idle", 3 * MS - 1000, 1),
                               ("idle-in-a-long-life", 3 * MS - 999, 1), ("late", MS, 1)], "late")
    t.equal(of("idle"), [("idle", MS, 1)], "idle")

    def churning(trace, kernel):
        events, at = [], MS
        for name, count, life in (("churn", 10, MS - 1), ("too-long", 10, MS), ("too-few", 9, 10)):
            stack = trace.stack("main", name)
            for i in range(count):
                events += [alloc(at, A, 1000 + i, stack), launch(at + 1, kernel, 9), use(at + 1, A, 9), release(at + life, A)]
                at += 2 * MS
        return events
    t.equal(judged(t, "churn", churning), {"churn": [("churn", 10, MS - 1, None)]}, "churn")


@test
def the_time_of_standing_idle_that_counts(t):
    """The longest one had no other work; a shorter one had, and is told."""
    def block(trace, kernel):
        stack = trace.stack("main", "subject")
        events = [alloc(MS, A, 256, stack)] + [e for at in (2 * MS, 12 * MS) for e in (launch(at, kernel, 2), use(at, A, 2))]
        for at in (13 * MS, 14 * MS, 15 * MS):
            events += [launch(at, kernel, 3), use(at, C, 3)]
        for at in (20 * MS, 29 * MS):
            events += [launch(at, kernel, 4), use(at, A, 4)]
        return events + [release(30 * MS, A)]
    t.equal(judged(t, "idle", block), {"subject": [("idle", 1, 8 * MS, 3)]}, "idle")


@test
def pairs_against_a_second_count(t):
    """Blocks of one size and stack that come and go in any order: an allocation that finds an equal block given back is a pair, and each is found once."""
    for seed in range(6):
        random = Random(seed)
        events, live, spare, pairs = [], [], 0, 0
        trace = new_trace()
        stack = trace.stack("main", "subject")
        for i in range(80):
            at = MS + i * 2 * MS
            if live and random.random() < (0.3, 0.5, 0.55, 0.6, 0.7, 0.45)[seed]:
                events.append(release(at, live.pop(random.randrange(len(live)))))
                spare += 1
            else:
                live.append(A + i * 4096)
                events.append(alloc(at, live[-1], 512, stack))
                pairs += spare > 0
                spare -= spare > 0
        trace.events(1, events)
        db = finish(t, trace, 500 * MS, name=f"pairs-{seed}.tmk")
        t.equal(db.rows("select count, bytes from gpu_inefficiency where kind = 'redundant'"), [(pairs, 512 * pairs)] if pairs >= 10 else [], f"seed {seed}")
        t.check(pairs > 3, f"seed {seed}: {pairs} pairs")


@test
def uses_that_are_not_known(t):
    """No use at all; uses of copies but none of kernels; graphs; recording that stood still: nothing is guessed."""
    plain = [("churn", "churn", 12, 3072, 10_000, None), ("leaked", "leak", 1, 5000, None, None), ("redundant", "churn", 11, 2816, None, None)]
    graph = lambda trace: [launch(17 * MS, trace.string("cuGraphLaunch"), 9)]
    copies = lambda trace: [launch(17 * MS, trace.string("cuMemcpyHtoDAsync"), 9), use(17 * MS, A + 1 * MIB, 9)]
    still = lambda trace: [text("stop", 17 * MS), text("start", 18 * MS)]
    for uses, more in ((False, None), (False, copies), (True, graph), (True, still)):
        trace = new_trace()
        trace.events(1, lives(trace, uses) + (more(trace) if more else []))
        db = finish(t, trace, 20 * MS, name=f"{uses}-{more and more.__code__.co_firstlineno}.tmk")
        t.equal(db.value("select count(uses) + count(first_use_ns) + count(launches_before) from gpu_block"), 0, "uses of blocks")
        t.equal(db.rows(FOUND), plain, f"findings, uses {uses}, {more}")


@test
def addresses_that_are_used_again(t):
    """Two blocks one after the other at one address: each has its own uses. A block of cuMemCreate has no address that work could name."""
    trace = new_trace()
    one, two = trace.stack("main", "one"), trace.stack("main", "two")
    kernel = trace.string("cuLaunchKernelEx")
    trace.events(1, [alloc(1000, A, 64, one), launch(1100, kernel, 1), use(1100, A + 8, 1), use(1100, A + 16, 1), release(1200, A), launch(1300, kernel, 2),
                     use(1300, A, 2), alloc(1400, A, 64, two), alloc(1450, 1 << 56, 2 * MIB, two), launch(1500, kernel, 3), use(1500, A, 3)])
    db = finish(t, trace, 9000)
    t.equal(db.rows("select alloc_ns, uses, last_use_ns, launches_before, launches_after from gpu_block order by alloc_ns"),
            [(1000, 2, 1100, 0, 0), (1400, 1, 1500, 0, 0), (1450, None, None, None, None)], "uses")
    t.equal(db.value("select stray_uses from gpu_process"), 1, "a use between the two")


@test
def a_lost_free(t):
    """A block is there when the next one is allocated at its address: it ended then."""
    trace = new_trace()
    trace.events(1, [alloc(1000, A, 64), launch(1100, trace.string("cuLaunchKernel"), 1), use(1100, A, 1), alloc(2000, A, 128)])
    db = finish(t, trace, 9000)
    t.equal(db.rows("select size_bytes, free_ns, uses from gpu_block order by alloc_ns"), [(64, 2000, 1), (128, None, 0)], "blocks")


def segments_and_refusal(trace, heap, extents, process=1):
    """Tensors of 8 and 6 MiB at 0 and 10 MiB of A; one of 1 MiB in B, freed; NCCL's 4 MiB at C. At 5000 a request for 16 MiB is refused."""
    base = 10 * (process - 1)
    trace.module(process, process, 0x400000 * process, 0x100000, "/usr/lib/libnccl.so.2")
    trace.module(process + 10, process, 0x800000 * process, 0x100000, "/opt/torch/lib/libc10_cuda.so")
    trace.module(process + 20, process, 0x1000000 * process, 0x100000, "/opt/torch/lib/libtorch_cuda.so")
    train = trace.frame([("train", "train.py", 42)], kind=PYTHON)
    cached = trace.frame("c10::cuda::CUDACachingAllocator::Native::alloc_block", module=process + 10)
    segment = trace.stack("main", train, trace.frame("at::empty_cuda", module=process + 20), cached)
    tensor = trace.stack("main", train, trace.frame("at::empty_cuda", module=process + 20))
    conv = trace.stack("main", train, trace.frame("at::native::raw_cudnn_convolution_forward_out", module=process + 20),
                       trace.frame("at::empty_cuda", module=process + 20))
    nccl = trace.stack("main", trace.frame("c10d::ProcessGroupNCCL::init", module=process + 20), trace.frame(None, module=process, address=0x400000 * process + 64))
    refused = trace.oom(process, base + 2, 16 * MIB, free=1 * MIB, total=32 * MIB)
    trace.pool_state(base + 3, 3000, allocated=14 * MIB, reserved=22 * MIB)
    trace.sample(process, 4000, **{"device_used": 28 * MIB, "device_used:0": 28 * MIB, "device_all:0": 31 * MIB, "device_total:0": 32 * MIB})
    events = [alloc(1000 + i, address, size, segment, base + heap) for i, (address, size) in enumerate(extents)]
    events += [alloc(1100, A, 8 * MIB, tensor, base + 3), alloc(1200, A + 10 * MIB, 6 * MIB, conv, base + 3), alloc(1300, B, 1 * MIB, tensor, base + 3),
               alloc(1400, C, 4 * MIB, nccl, base + 2), release(2000, B, base + 3), oom(5000, trace.string("cuMemAlloc"), refused, tensor),
               release(6000, A, base + 3)]
    return events


@test
def a_refusal_explained(t):
    trace = new_trace()
    trace.events(1, segments_and_refusal(trace, 2, [(A, 20 * MIB), (B, 2 * MIB)]))
    db = finish(t, trace, 9000)
    t.equal(db.rows("select segment_bytes, segment_free_bytes, largest_free_bytes, explained from oom"), [(22 * MIB, 8 * MIB, 4 * MIB, 1)], "segments")
    t.equal(db.rows("select size_bytes, live_bytes, allocated_bytes, reserved_bytes, active_bytes, inactive_bytes, cached_bytes, largest_free_bytes, gap_bytes,"
                    " other_bytes, function, file, line from gpu_oom"),
            [(16 * MIB, 26 * MIB, 14 * MIB, 22 * MIB, None, None, 8 * MIB, 4 * MIB, 2 * MIB, 3 * MIB, "train", "train.py", 42)], "the refusal")
    t.equal(db.value("select why from gpu_oom"), "asked for 16.0 MiB, 1.0 MiB of the device's 32.0 MiB were free; this process held 26.0 MiB on cuda:0; 8.0 MiB were cached by"
            " the framework and not in use, in pieces of at most 4.0 MiB; 2.0 MiB more of this process were not recorded (context, modules, libraries);"
            " other processes held 3.0 MiB", "why")
    t.equal(db.rows("select heap, library, live_bytes, live_count from gpu_oom_site order by heap, live_bytes desc"),
            [("cuda:0", "PyTorch's caching allocator", 22 * MIB, 2), ("cuda:0", "NCCL", 4 * MIB, 1), ("torch.cuda:0", "PyTorch", 8 * MIB, 1),
             ("torch.cuda:0", "cuDNN", 6 * MIB, 1)], "what was live")
    t.equal(db.rows("select tenants, size_bytes from gpu_block where heap_id = (select id from heap where name = 'cuda:0') order by alloc_ns"),
            [(2, 20 * MIB), (1, 2 * MIB), (0, 4 * MIB)], "tensors that began in each block")
    t.equal(db.rows("select kind, heap, bytes from gpu_inefficiency order by heap, kind"), [("leaked", "cuda:0", 4 * MIB), ("leaked", "torch.cuda:0", 6 * MIB)],
            "segments are not judged")
    t.equal(db.rows("select heap, library, live_bytes from gpu_peak_library order by heap, live_bytes desc"),
            [("cuda:0", "PyTorch's caching allocator", 22 * MIB), ("cuda:0", "NCCL", 4 * MIB), ("torch.cuda:0", "PyTorch", 9 * MIB), ("torch.cuda:0", "cuDNN", 6 * MIB)],
            "at the peak, by library")
    t.equal(db.rows("select heap, file, line, live_bytes, live_count from gpu_peak_line where file = 'train.py' order by heap"),
            [("cuda:0", "train.py", 42, 22 * MIB, 2), ("torch.cuda:0", "train.py", 42, 15 * MIB, 3)], "at the peak, by line")
    t.equal(db.rows("select used_bytes, recorded_bytes, gap_bytes, other_bytes, total_bytes from gpu_gap"), [(28 * MIB, 26 * MIB, 2 * MIB, 3 * MIB, 32 * MIB)], "gap")


@test
def sites_behind_allocators(t):
    """Functions of CUDA's runtime and of PyTorch's allocators are no sites, named or not; of another library's function without a name module and offset are shown."""
    trace = new_trace()
    for number, path in ((2, "/opt/lib/libcudart.so.13"), (3, "/opt/lib/libcublas.so.13"), (4, "/opt/lib/libc10_cuda.so")):
        trace.module(number, 1, 0x1000000 * number, 0x100000, path)
    unnamed = lambda module: trace.frame(None, module=module, address=0x1000000 * module + 64)
    runtime = (trace.frame("cudaMalloc", module=2), unnamed(2))
    library = trace.stack("main", unnamed(3), *runtime)
    caching = trace.stack("main", "at::native::run_conv_plan(cudnnContext*, int)", "at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)",
                          trace.frame("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)", module=4), *runtime)
    meta = trace.stack("main", "at::TensorIteratorBase::build(at::TensorIteratorConfig&)",
                       "at::(anonymous namespace)::structured_threshold_backward_out_functional::set_output_raw_strided(long)",
                       "at::(anonymous namespace)::create_out(c10::ArrayRef<long>)")
    trace.events(1, [alloc(1000, A, 1 * MIB, library), alloc(1100, B, 2 * MIB, caching), alloc(1200, C, 3 * MIB, meta)])
    db = finish(t, trace, 9000)
    t.equal(db.rows("select function, module, live_bytes from gpu_peak_line order by live_bytes"),
            [(None, "/opt/lib/libcublas.so.13", 1 * MIB), ("at::native::run_conv_plan(cudnnContext*, int)", None, 2 * MIB),
             ("at::TensorIteratorBase::build(at::TensorIteratorConfig&)", None, 3 * MIB)], "sites")
    t.equal(db.rows("select function, module, module_offset from gpu_inefficiency where bytes = ?", MIB), [(None, "/opt/lib/libcublas.so.13", 64)], "of what was leaked")
    t.check("libcublas.so.13+0x40" in t.run([t.tidemark, "gpu", db.path, "--lines"], status=0).text, "the table names it by its module")


@test
def segments_that_grow(t):
    """Mapped parts that lie side by side are one piece, also where no tensor begins in one of them; blocks of the driver that do so are not."""
    for heap, wanted in ((5, (22 * MIB, 8 * MIB, 4 * MIB)), (2, (14 * MIB, 4 * MIB, 2 * MIB))):
        trace = new_trace()
        trace.events(1, segments_and_refusal(trace, heap, [(A, 12 * MIB), (A + 12 * MIB, 8 * MIB), (B, 2 * MIB)]))
        db = finish(t, trace, 9000, name=f"{heap}.tmk")
        t.equal(db.rows("select segment_bytes, segment_free_bytes, largest_free_bytes from oom"), [wanted], f"segments in heap {heap}")


@test
def refusals_that_say_little(t):
    """No stack, no scope, no figures, no heap; page-locked memory: each has its row, and what is unknown is NULL."""
    trace = new_trace()
    ids = [trace.oom(1, 2, 100), trace.oom(1, 0, 200, result="CUDA_ERROR_NOT_PERMITTED"), trace.oom(1, 4, 300)]
    trace.events(1, [alloc(500, C, 70, 0, 4)] + [oom(1000 * (i + 1), trace.string("cuMemHostAlloc"), id) for i, id in enumerate(ids)])
    db = finish(t, trace, 9000)
    t.equal(db.rows("select size_bytes, heap, live_bytes, allocated_bytes, cached_bytes, largest_free_bytes, gap_bytes, scope, function, why from gpu_oom order by ts_ns"),
            [(100, "cuda:0", 0, 0, None, None, None, None, None, "asked for 100 bytes"), (200, None, None, None, None, None, None, None, None, "asked for 200 bytes"),
             (300, "cuda-host", 70, None, None, None, None, None, None, "asked for 300 bytes; this process held 70 bytes in cuda-host")], "refusals")
    t.equal(db.rows("select oom_id, heap, stack_id, live_bytes from gpu_oom_site"), [(3, "cuda-host", 0, 70)], "what was live")
    with sqlite3.connect(db.path) as connection:  # lengths that went below zero, and what others come to
        for size_bytes, words in ((2**63 - 1, "8.0 EiB"), (2**60, "1.0 EiB"), (2**59, "512.0 PiB"), (2**53, "8192.0 TiB")):
            connection.execute("update oom set size_bytes = ? where size_bytes = (select max(size_bytes) from oom)", (size_bytes,))
            why, = connection.execute("select why from gpu_oom where size_bytes = ?", (size_bytes,)).fetchone()
            t.equal(why, f"asked for {words}; this process held 70 bytes in cuda-host", f"{size_bytes} bytes")


@test
def a_tensor_refused(t):
    """PyTorch's heap refuses: its 6 MiB lie in the driver's 8 and count once; where no block of the driver was recorded they are all that is known."""
    for segments, wanted in (([alloc(500, A, 8 * MIB)], 8 * MIB), ([], 6 * MIB)):
        trace = new_trace()
        refused = trace.oom(1, 3, 100)
        trace.events(1, segments + [alloc(600, A, 6 * MIB, 0, 3), oom(1000, trace.string("malloc"), refused)])
        db = finish(t, trace, 9000, name=f"{wanted}.tmk")
        t.equal(db.rows("select heap, live_bytes, allocated_bytes from gpu_oom"), [("torch.cuda:0", wanted, 6 * MIB)], "held")


@test
def pools_and_resets(t):
    """torch.cuda:0: 100 live from 1000, 300 from 2000, 50 from 3000; reset at 3500; 80 from 4000. Reserved 1000 at 1500, 600 at 3200, 700 at 5000; what is active
    is told once."""
    trace = new_trace()
    name = trace.string("torch.cuda:0")
    trace.heap(7, 1, "cuda-pool:0", "device-pool", parent=2, device=0)
    for ns, state in ((1500, dict(allocated=100, reserved=1000)), (2500, dict(allocated=300, reserved=1000, active=310, inactive=250)),
                      (3200, dict(allocated=50, reserved=600)), (5000, dict(allocated=80, reserved=700))):
        trace.pool_state(3, ns, **state)
    trace.pool_state(7, 2000, reserved=4096)
    trace.events(1, [alloc(1000, A, 100, 0, 3), alloc(2000, A + 512, 200, 0, 3), release(2900, A, 3), release(3000, A + 512, 3), alloc(3000, B, 50, 0, 3),
                     text("reset_peak", 3500, name), alloc(4000, B + 512, 30, 0, 3), release(4500, B, 3)])
    db = finish(t, trace, 9000)
    t.equal(db.rows("select n, start_ns, end_ns, allocated_bytes, allocated_ns, reserved_bytes, reserved_ns, active_bytes, active_ns, inactive_bytes, idle_bytes, idle_ns,"
                    " fragmentation from pool_peak where heap = 'torch.cuda:0' order by n is not null, n"),
            [(None, 0, 9000, 300, 2000, 1000, 1500, 310, 2500, 250, 900, 1500, 0.25), (0, 0, 3500, 300, 2000, 1000, 1500, 310, 2500, 250, 900, 1500, 0.25),
             (1, 3500, 9000, 80, 4000, 700, 5000, None, None, None, 620, 5000, None)], "peaks of the tensors' pool")
    t.equal(db.rows("select n, allocated_bytes, reserved_bytes, active_bytes from pool_peak where heap = 'cuda-pool:0'"), [(None, None, 4096, None)], "the driver's pool")
    t.equal(db.rows("select h.name, n, start_ns, end_ns, peak_ns, peak_bytes, peak_count from peak_period as p join heap as h on h.id = p.heap_id order by n"),
            [("torch.cuda:0", 0, 0, 3500, 2000, 300, 2), ("torch.cuda:0", 1, 3500, 9000, 4000, 80, 2)], "periods")
    t.equal(db.rows("select heap, live_bytes from peak where heap is null"), [(None, 0)], "devices add nothing to the process")
    listed = json.loads(t.run([t.tidemark, "gpu", db.path, "--pools", "--format=json", "--heap=torch.cuda:0", "--from=3000ns", "--to=4000ns"], status=0).out)
    t.equal([(row["ts_ns"], row["reserved_bytes"], row["idle_bytes"]) for row in listed], [(3200, 600, 550)], "states in a window")


@test
def gaps_of_pools_and_of_tensors_alone(t):
    """What pools hold counts as recorded, not only what they handed out; so does what PyTorch reserved, where the driver was not recorded."""
    trace = new_trace()
    trace.heap(7, 1, "cuda-pool:0", "device-pool", parent=2, device=0)
    trace.process(2, pid=200)
    trace.thread(2, process=2)
    trace.heap(8, 2, "torch.cuda:1", "tensor", device=1)
    trace.pool_state(7, 1500, allocated=10, reserved=1000)
    trace.pool_state(8, 1500, allocated=20, reserved=500)
    trace.sample(1, 1200, **{"device_used:0": 5000})
    trace.sample(1, 2000, **{"device_used:0": 5000})
    trace.sample(2, 2000, **{"device_used:1": 600})
    trace.segments([(1, [alloc(1000, A, 300), alloc(1100, B, 10, 0, 7)]), (2, [alloc(1000, A, 20, 0, 8)])])
    db = finish(t, trace, 9000, processes=(1, 2))
    t.equal(db.rows("select process_id, device, ts_ns, recorded_bytes, gap_bytes, other_bytes from gpu_gap order by 1, 3"),
            [(1, 0, 1200, 310, 4690, None), (1, 0, 2000, 1300, 3700, None), (2, 1, 2000, 500, 100, None)], "gaps")
    t.equal(db.rows("select process_id, device, used_peak_bytes, gap_bytes, peak_bytes from gpu_summary order by 1, 2"),
            [(1, 0, 5000, 4690, 300), (2, 1, 600, 100, None)], "summary")


@test
def devices_of_several_processes(t):
    """Both see the first device under another number; a third process has another device under number 0. Pools count, reserved addresses, imports and tensors do not."""
    trace = Trace()
    trace.minor = 2
    one, two = bytes(range(16)), bytes(range(16, 32))
    for id, device, uuid in ((1, 0, one), (2, 1, one), (3, 0, two)):
        trace.process(id, pid=100 * id)
        trace.thread(id, process=id)
        trace.device(id, device, total=1 << 30, uuid=uuid, name=f"of {id}")
        for k, (name, kind, parent) in enumerate(((f"cuda:{device}", "device", 0), (f"cuda-pool:{device}", "device-pool", 1), (f"cuda-va:{device}", "address-space", 0),
                                                  (f"cuda-ipc:{device}", "imported", 0), (f"torch.cuda:{device}", "tensor", 1)), 10 * id):
            trace.heap(k, id, name, kind, parent=parent and 10 * id, device=device)
    trace.segments([(1, [alloc(1000, A, 100, 0, 10), alloc(1100, B, 7, 0, 11), alloc(1200, C, 5000, 0, 12), alloc(1300, C + 9999, 600, 0, 13),
                         malloc(1400, A, 50, 0, op="torch_alloc", usable="unknown", heap=14), free(3000, A, op="cuda_free", heap=10)]),
                    (2, [alloc(2000, A, 30, 0, 20)]), (3, [alloc(1500, A, 900, 0, 30)])])
    db = finish(t, trace, 9000, processes=(1, 2, 3))
    t.equal(db.rows("select device, uuid, ts_ns, live_bytes, live_at_end_bytes from device_peak order by uuid"),
            [(0, one.hex(), 2000, 137, 37), (0, two.hex(), 1500, 900, 900)], "each device once, over all processes")
    t.equal(db.rows("select process_id, device, name, peak_bytes from gpu_summary order by 1"), [(1, 0, "of 1", 100), (2, 1, "of 2", 30), (3, 0, "of 3", 900)],
            "what each process had there")


def work_of(trace, process, device, base):
    add = trace.string("add")
    trace.activities(process, [dict(kind=1, name=add, start=base, end=base + 100, device=device, stream=7, correlation=1),
                               dict(kind=1, name=add, start=base + 200, end=base + 500, device=device, stream=7, correlation=2),
                               dict(kind=2, direction=1, start=base + 500, end=base + 600, device=device, size=4096, correlation=3),
                               dict(kind=3, start=base + 600, end=base + 610, device=device, size=64, correlation=4),
                               dict(kind=5, name=trace.string("cuMemAlloc"), start=base, end=base + 30),
                               dict(kind=5, name=trace.string("cuMemAlloc"), start=base + 50, end=base + 60)])


@test
def work_added_up(t):
    trace = new_trace()
    trace.device(1, 0, total=1 << 30, uuid=bytes(16), name="First")
    work_of(trace, 1, 0, 1000)
    work_of(trace, 1, 3, 2000)  # a device of which nothing else is known
    trace.events(1, [alloc(1000, A, 64)])
    db = finish(t, trace, 9000)
    t.equal(db.rows("select device, kind, direction, name, count, total_duration_ns, mean_duration_ns, longest_duration_ns, size_bytes, first_ns, last_ns from gpu_work"
                    " order by device, kind"),
            [(None, "call", None, "cuMemAlloc", 4, 80, 20, 30, None, 1000, 2060), (0, "kernel", None, "add", 2, 400, 200, 300, None, 1000, 1500),
             (0, "memcpy", "h2d", None, 1, 100, 100, 100, 4096, 1500, 1600), (0, "memset", None, None, 1, 10, 10, 10, 64, 1600, 1610),
             (3, "kernel", None, "add", 2, 400, 200, 300, None, 2000, 2500), (3, "memcpy", "h2d", None, 1, 100, 100, 100, 4096, 2500, 2600),
             (3, "memset", None, None, 1, 10, 10, 10, 64, 2600, 2610)], "work")
    t.equal(db.rows("select device, name, total_bytes, kernels, kernel_duration_ns, copies, copy_bytes, sets, peak_bytes, refusals from gpu_summary"),
            [(0, "First", 1 << 30, 2, 400, 1, 4096, 1, 64, 0), (3, None, None, 2, 400, 1, 4096, 1, None, 0)], "summary")
    t.equal(db.rows("select distinct scope_id, thread_id, launch_ns from gpu_activity"), [(None, None, None)], "activities whose launch was not recorded")
    rows = json.loads(t.run([t.tidemark, "gpu", db.path, "--activity", "--format=json", "--from=2000ns", "--to=2200ns"], status=0).out)
    t.equal([(r["device"], r["kind"], r["count"], r["total_duration_ns"]) for r in rows], [(3, "kernel", 2, 400), (None, "call", 2, 40)], "work in a window")


@test
def numbers_that_come_again(t):
    """The driver's numbers of calls come again after 2^32: work belongs to the latest launch of its number that is not after it, up to a second of which clocks may
    differ. Number 0 is none."""
    trace, second = new_trace(), 1000 * MS
    kernel, user = trace.string("cuLaunchKernel"), trace.string("user")
    events = []
    for n, at in enumerate((1, 100, 200)):
        events += [scope("scope_push", at * second, trace.string(f"turn {n}"), user), launch(at * second + 10, kernel, 7), scope("scope_end", at * second + 20, 0, user)]
    events += [launch(300 * second, kernel, 0)]
    starts = [(1 * second + 500, 7), (99 * second, 7), (100 * second - 300 * MS, 7), (150 * second, 7), (200 * second + 11, 7), (900 * second, 7), (400 * second, 0)]
    trace.activities(1, [dict(kind=1, name=trace.string("add"), start=start, end=start + 5, device=0, stream=1, correlation=number) for start, number in starts])
    trace.events(1, events)
    db = finish(t, trace, 1000 * second)
    t.equal(db.rows("select a.start_ns, n.text, a.launch_ns from gpu_activity as a left join scope_packed as p on p.id = a.scope_id left join scope_name as n"
                    " on n.id = p.name_id order by a.start_ns"),
            sorted((start, None, None) if not number else (start, f"turn {turn}", (1, 100, 200)[turn] * second + 10)
                   for (start, number), turn in zip(starts, (0, 0, 1, 1, 2, 2, None))), "the launch of each")


@test
def ranks_and_an_earlier_trace(t):
    """Two ranks in one trace; a trace that began a second earlier is appended: every time of the first moves."""
    trace = new_trace(start_unix_ns=10**18 + 10**9)
    add_process(trace, 2, rank=1)
    trace.segments([(1, lives(trace)), (2, [alloc(1000, A, 64, 0, 12), launch(1100, trace.string("cuLaunchKernel"), 1), use(1100, A, 1)])])
    trace.sample(1, 4000, **{"device_used:0": 100})
    work_of(trace, 1, 0, 1000)
    db = finish(t, trace, 20 * MS, processes=(1, 2))
    t.equal(db.rows("select process_id, uses, count(*) from gpu_block group by 1, 2 order by 1, 2"), [(1, 0, 13), (1, 1, 3), (1, 2, 1), (2, 1, 1)], "each its own uses")
    found = json.loads(t.run([t.tidemark, "gpu", db.path, "--inefficiencies", "--format=json", "--process=rank:1"], status=0).out)
    t.equal([(r["process_id"], r["kind"], r["bytes"]) for r in found], [(2, "leaked", 64)], "of one rank")
    queries = {"block": "select alloc_ns, free_ns, first_use_ns, idle_from_ns, last_use_ns from gpu_block where process_id = 1 order by allocation_id",
               "found": "select kind, stack_id, first_ns, last_ns from gpu_inefficiency where process_id = 1 and kind <> '' order by 1, 2",
               "gap": "select ts_ns from gpu_gap where process_id = 1", "work": "select first_ns, last_ns from gpu_work where process_id = 1 order by kind, 1",
               "use": "select ts_ns from gpu_use where process_id = 1 order by 1"}
    before = {name: db.rows(query) for name, query in queries.items()}
    earlier = new_trace(start_unix_ns=10**18)
    earlier.events(1, [alloc(1000, A, 64), launch(1100, earlier.string("cuLaunchKernel"), 1), use(1100, A, 1)])
    earlier.exit(1, 9000)
    earlier.end(1, 9000)
    t.run([t.tidemark, "import", "--quiet", "--append", earlier.save(t.path("earlier.tmk")), "-o", db.path], status=0)
    stacks = {"found": 2}
    for name, query in queries.items():
        moved = [tuple(x + 10**9 if isinstance(x, int) and i >= stacks.get(name, 0) else x for i, x in enumerate(row)) for row in before[name]]
        t.equal(db.rows(query), moved, f"times of {name}")
    t.equal(db.rows("select kind, bytes from gpu_inefficiency where process_id = 3"), [("leaked", 64)], "of the appended trace")


@test
def streams_of_blocks(t):
    """The driver's record of an allocation has its stream; ten blocks of one size on one stream are one after the other, and on two streams are not."""
    for streams, times in ((1, 11), (2, 0)):
        trace = new_trace()
        stack, events, said = trace.stack("main", "again"), [], []
        trace.heap(8, 1, "cuda-pool:0", "device-pool", parent=2, device=0)
        for i in range(12 if streams == 1 else 10):
            events += [alloc(10 * MS * i + 1000, A, 64, stack, 8), release(10 * MS * i + 5 * MS, A, 8)]
            said.append(dict(kind=6, direction=8, start=10 * MS * i + 900, end=10 * MS * i + 900, device=0, stream=i % streams + 1, size=64, address=A))
        trace.activities(1, said)
        trace.events(1, events)
        db = finish(t, trace, 200 * MS, name=f"{streams}.tmk")
        t.equal(db.rows("select distinct stream from gpu_block order by 1"), [(i + 1,) for i in range(streams)], "streams")
        t.equal(db.rows("select count from gpu_inefficiency where kind = 'redundant'"), [(times,)] if times else [], "pairs")


@test
def other_commands_on_heaps_of_devices(t):
    trace = new_trace()
    name, user = trace.string("forward"), trace.string("user")
    step = trace.stack("main", trace.frame([("step", "train.py", 7)], kind=PYTHON))
    trace.pool_state(3, 2500, allocated=300, reserved=1000)
    trace.events(1, [alloc(1000, A, 1000, step), alloc(1100, A, 100, step, 3), scope("scope_push", 2000, name, user), alloc(2200, A + 512, 200, step, 3),
                     scope("scope_end", 3000, 0, user), release(4000, A + 512, 3)])
    db = finish(t, trace, 9000)

    def ask(*arguments):
        return json.loads(t.run([t.tidemark, *arguments, "--format=json"], status=0).out)
    t.equal([(r["live_bytes"], r["line"]) for r in ask("snapshot", db.path, "--at", "peak", "--heap=torch.cuda:0")], [(300, 7)], "snapshot")
    t.equal([(r["ts_ns"], r["live_bytes"]) for r in ask("peak", db.path, "--heap=torch.cuda:0")], [(2200, 300)], "peak")
    t.equal([(r["name"], r["self_allocated_bytes"]) for r in ask("scopes", db.path, "--heap=torch.cuda:0") if r["calls"]],
            [("forward", 200)], "scopes")
    t.equal([(r["ts_ns"], r["live_bytes"]) for r in ask("timeline", db.path, "--heap=cuda:0")], [(0, 0), (1000, 1000), (9000, 1000)], "timeline")
    t.equal([(r["phase"], r["live_bytes"], r["reserved_bytes"], r["active_bytes"]) for r in ask("snapshot", db.path, "--scope", "forward", "--heap=torch.cuda:0")],
            [("baseline", 0, None, None), ("before", 100, None, None), ("peak", 300, None, None), ("after", 300, 1000, None)], "scope")
    t.equal(db.rows("select heap, live_bytes from peak where heap is null"), [(None, 0)], "nothing of it is the process'")
    page = t.run([t.tidemark, "summary", db.path], status=0).text
    t.check("\ndevices" in page, f"summary shows no device: {page}")


@test
def lists_of_devices_by_heap(t):
    """--heap chooses the device that the heap lies on, of every list whose rows are devices; a heap that lies on none has none."""
    trace = new_trace()
    trace.heap(7, 1, "cuda:1", "device", device=1)
    for device, name in ((0, "first"), (1, "second")):
        trace.activities(1, [dict(kind=1, name=trace.string(name), start=2000, end=2100, device=device, stream=1, correlation=1 + device)])
    for ns in (1500, 2500):
        trace.sample(1, ns, **{"device_used:0": 5000, "device_used:1": 700})
    trace.events(1, [alloc(1000, A, 1000), alloc(1100, B, 100, 0, 3), alloc(1200, C, 10, 0, 7), malloc(1300, 1 << 20, 5)])
    db = finish(t, trace, 9000)

    def devices(*arguments):
        return [row["device"] for row in json.loads(t.run([t.tidemark, "gpu", db.path, *arguments, "--format=json"], status=0).out)]
    for option, rows in (((), 1), (("--gap",), 2), (("--activity",), 1), (("--gap", "--from=2000ns"), 1), (("--activity", "--from=1ns"), 1)):
        t.equal(devices(*option), [0, 1] * rows, f"{option}")
        for heap, wanted in (("cuda:0", [0] * rows), ("torch.cuda:0", [0] * rows), ("cuda:1", [1] * rows), ("malloc", [])):
            t.equal(devices(*option, f"--heap={heap}"), wanted, f"{option} of {heap}")
    page = t.run([t.tidemark, "gpu", db.path, "--gap", "--heap=malloc"], status=0).text
    t.equal(page.splitlines()[-1], "nothing, of the devices that this heap lies on", "what is said of none")


@test
def exports_of_devices_alone(t):
    """Where nothing but memory of devices was recorded, exports by heap take that, each heap at its own peak, and say so; budgets are not met by what is not there.
    cuda:0: 1000 and 200 at its peak (2200 ns), of which torch.cuda:0 has 100; cuda:1: 7 bytes; cuda-va:0 holds no memory."""
    def write(name, *more):
        trace = new_trace()
        trace.heap(7, 1, "cuda:1", "device", device=1)
        kept, gone = trace.stack("main", "kept"), trace.stack("main", "gone")
        trace.events(1, [*more, alloc(1000, A, 1000, kept), alloc(1100, A, 100, kept, 3), alloc(1200, 1 << 40, 1 << 30, kept, 6), alloc(2200, B, 200, gone),
                         release(3000, B), alloc(4000, C, 7, gone, 7), alloc(5000, B, 20, gone), release(6000, B)])
        return finish(t, trace, 9000, name=name).path

    def folded(db, *options):
        done = t.run([t.tidemark, "export", "folded", db, "-o", "-", *options], status=0)
        return done.text.splitlines(), done.errors
    alone, mixed = write("alone.tmk"), write("mixed.tmk", malloc(900, 1 << 20, 5))
    said = "tidemark: no host memory was recorded: exported is what lies in cuda:0, cuda:1, peaks being each heap's own\n"
    for options, wanted in (((), ["main;gone 207", "main;kept 1000"]), (("--value=allocated",), ["main;gone 227", "main;kept 1000"]),
                            (("--value=leaked",), ["main;gone 7", "main;kept 1000"]), (("--from=2500ns",), ["main;gone 207", "main;kept 1000"]),
                            (("--from=3001ns",), ["main;gone 27", "main;kept 1000"]), (("--from=4500ns", "--value=allocated"), ["main;gone 20"])):
        t.equal(folded(alone, *options), (wanted, said), f"folded, {options}")
    t.equal(folded(alone, "--heap=cuda:1"), (["main;gone 7"], ""), "one heap")
    t.equal(folded(alone, "--heap=cuda:1", "--value=temporary"), ([], "tidemark: nothing was temporary\n"), "nothing at all")
    t.equal(folded(mixed), (["[no stack] 5"], "tidemark: not in it are heaps cuda:0, cuda:1: --heap=NAME exports one\n"), "host memory, too")
    profiles = json.loads(t.run([t.tidemark, "export", "speedscope", alone, "-o", "-"], status=0).out)["profiles"]
    t.equal([p["endValue"] for p in profiles], [1207, 1007, 1227, 220], "speedscope")
    events = [line[0] for line in t.run([t.tidemark, "export", "heaptrack", alone, "-o", "-"], status=0).text.splitlines()]
    t.equal((events.count("+"), events.count("-")), (4, 2), "heaptrack's events")
    refused = t.run([t.tidemark, "check", alone, "--max-peak=1"], status=1).errors
    t.check("no host memory was recorded, --heap=NAME checks one of cuda:0, cuda:1" in refused, f"check: {refused}")
    t.run([t.tidemark, "check", alone, "--max-peak=1", "--heap=cuda:0"], status=3)
    t.run([t.tidemark, "check", mixed, "--max-peak=5"], status=0)
    t.check(t.run([t.tidemark, "snapshot", alone, "--at", "peak"], status=0).text.startswith("no host memory was recorded"), "snapshot at the peak")


@test
def lists(t):
    """Every list, in every form and with --sql; odd requests are said so."""
    trace = new_trace()
    trace.note(1, 10, "gpu", "CUPTI is in use by another tool")
    trace.loss(1, 0, 20, "gpu-records", 7, 0, "CUPTI had no buffer for them")
    trace.events(1, segments_and_refusal(trace, 2, [(A, 20 * MIB), (B, 2 * MIB)]) + [launch(7000, trace.string("cuLaunchKernel"), 1)])
    work_of(trace, 1, 0, 1000)
    db = finish(t, trace, 9000)
    page = t.run([t.tidemark, "gpu", db.path], status=0).text
    for word in ("devices", "train.py:42", "NCCL", "in pieces of at most 4.0 MiB", "leaked", "add", "CUPTI had no buffer", "CUPTI is in use", "told_kernels"):
        t.check(word in " ".join(page.split()), f"the page lacks {word}: {page}")
    for option in ((), ("--lines",), ("--libraries",), ("--pools",), ("--activity",), ("--oom",), ("--inefficiencies",), ("--gap",)):
        for window in ((), ("--from=1ns", "--to=exit")):
            if window and not option:
                t.check("--from and --to go with" in t.run([t.tidemark, "gpu", db.path, *window], status=2).errors, "a window without a list")
                continue
            rows = json.loads(t.run([t.tidemark, "gpu", db.path, *option, *window, "--format=json"], status=0).out)
            t.check(rows, f"{option} {window}: nothing")
            sql = t.run([t.tidemark, "gpu", db.path, *option, *window, "--sql"], status=0).text
            query = sql.split(";\n")[0]
            columns = [c[0] for c in db.connection.execute(query).description]
            t.equal([tuple(r[c] for c in columns) for r in rows], db.rows(query), f"{option} {window}: what --sql shows")
            t.run([t.tidemark, "gpu", db.path, *option, *window, "--format=csv"], status=0)
    rows = json.loads(t.run([t.tidemark, "gpu", db.path, "--oom", "--stack", "--format=json"], status=0).out)
    t.equal([r["stack"] for r in rows], ["main;train;at::empty_cuda"], "a stack")
    for option, word in (("--oom", "live when it was refused"), ("--inefficiencies", "not judged by uses")):
        text = t.run([t.tidemark, "gpu", db.path, option, "--stack"], status=0).text
        t.check(word in text and "at::empty_cuda" in text, f"stacks, and the list beside them: {text}")
    t.run([t.tidemark, "gpu", db.path, "--lines", "--stack"], status=2)
    info = t.run([t.tidemark, "info", db.path], status=0).text
    t.check("gpu-records" in info and "CUPTI is in use by another tool" in info, f"info: {info}")


@test
def no_device_at_all(t):
    trace = Trace()
    trace.process(1, pid=100)
    trace.thread(1, process=1)
    trace.events(1, [malloc(1000, 0x1000, 64)])
    db = finish(t, trace, 9000)
    t.check("no device was used" in t.run([t.tidemark, "gpu", db.path], status=0).text, "it says so")
    t.equal(json.loads(t.run([t.tidemark, "gpu", db.path, "--format=json"], status=0).out), [], "no rows")
    t.check("devices" not in t.run([t.tidemark, "summary", db.path], status=0).text, "summary says nothing of them")


main()
