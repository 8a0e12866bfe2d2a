"""Recording of CUDA through doubles of libcuda and libcupti (tests/gpu/): every way to get memory, refusals, work, other tools, odd interfaces, every way to end.

Method: the double of the driver writes down what it really did; the database must say the same, by heap, size, order and function. No device is needed.
"""
import json
import os
import sqlite3
import sys

from gpu_run import SOURCES, Run, build, check_work, doubles
from tidemark_test import ROOT, main, test

sys.path.insert(0, SOURCES)
import real_figures  # noqa: E402


@test
def every_way_to_get_memory(t):
    run = Run(t, "every-way")
    run.compare(t)
    t.equal(run.notes(), [], "notes")
    t.equal(run.db.rows("select kind, count from loss"), [], "losses")
    t.equal(run.db.rows("select name, uuid, total_bytes from gpu_device order by device"),
            [("Fake GPU 0", "10" * 16, 1 << 30), ("Fake GPU 1", "11" * 16, 1 << 30)], "devices")
    t.equal(run.db.rows("select distinct text from allocation as a join heap as h on h.id = a.heap_id join stack_text as s using (stack_id)"
                        " where h.name like 'cuda%' and size_bytes <> 3 * 1048576"), [("main;every_way",)], "stacks have no frame of the driver or CUPTI")
    t.equal(run.db.rows("select distinct text from allocation as a join stack_text as s using (stack_id) where size_bytes = 3 * 1048576"),
            [("main;every_way;load_weights",)], "stack of cuMemAlloc")
    parents = dict(run.db.rows("select h.name, p.name from heap as h left join heap as p on p.id = h.parent_id where h.name like 'cuda%'"))
    t.equal({name: parents[name] for name in ("cuda:0", "cuda-pool:1", "cuda-pool:1#2", "cuda-va:0", "cuda-map:1", "cuda-host", "cuda-managed")},
            {"cuda:0": None, "cuda-pool:1": "cuda:1", "cuda-pool:1#2": "cuda:1", "cuda-va:0": None, "cuda-map:1": "cuda:1", "cuda-host": None,
             "cuda-managed": None}, "parents")
    # The first block of cuMemCreate outlives the release of its handle, and the unmapping, until the retained handle is released.
    order = run.db.rows("select a.size_bytes, a.free_ns, (select max(m.free_ns) from allocation as m join heap as g on g.id = m.heap_id where g.name ="
                        " 'cuda-map:0' and m.size_bytes = a.size_bytes) from allocation as a join heap as h on h.id = a.heap_id where h.name = 'cuda:0' and api ="
                        " 'cuMemCreate' order by 1")
    t.equal([size for size, _, _ in order], [2 << 20, 4 << 20], "blocks of cuMemCreate")
    t.check(all(free >= unmapped for _, free, unmapped in order), f"a physical block ends before its mapping: {order}")
    trims = [line.split()[1:] for line in run.lines if line.startswith("trim")]
    for device, used, size in trims:
        t.check((f"cuda-pool:{device}", int(used), int(size)) in run.db.rows(
            "select h.name, allocated_bytes, reserved_bytes from pool_state as p join heap as h on h.id = p.heap_id"), f"state of pool {device} after its trim")
    t.check(run.db.value("select count(*) from gpu_overhead where kind = 'call' and end_ns >= start_ns") >= 40, "calls of the driver were not timed")


@test
def contexts_take_their_memory_along(t):
    run = Run(t, "contexts")
    run.compare(t)
    t.equal(len([1 for *_, freed in run.truth() if freed in ("cuCtxDestroy", "cuDevicePrimaryCtxReset")]), 9, "blocks that ended with a context")
    t.equal(run.notes() + run.db.rows("select kind, count from loss"), [], "notes and losses")


@test
def refusals(t):
    run = Run(t, "out-of-memory")
    run.compare(t)
    wanted = [tuple(line.split()[1:6]) for line in run.lines if line.startswith("refused") and line.split()[3] == "2"]
    rows = run.db.rows("select h.name, o.size_bytes, o.api, o.result, o.device_free_bytes, o.device_total_bytes, s.text, n.text from oom as o join heap as h"
                       " on h.id = o.heap_id join stack_text as s using (stack_id) join scope_packed as p on p.id = o.scope_id join scope_name as n on"
                       " n.id = p.name_id order by o.ts_ns")
    t.equal(rows, [(heap, int(size), api, "CUDA_ERROR_OUT_OF_MEMORY", int(free), 1 << 30, "main;out_of_memory", "too much")
                   for heap, size, _, free, api in wanted], "refusals")
    t.equal(len(rows), 3, "refusals")


@test
def work(t):
    run = Run(t, "work")
    run.compare(t)
    check_work(t, run)
    first = run.db.value("select min(correlation_id) from gpu_activity where kind = 'kernel'")
    a, b = (row[0] for row in run.db.rows("select address from allocation as a join heap as h on h.id = a.heap_id where h.name = 'cuda:0' order by alloc_ns"))
    t.equal(run.db.rows("select address from gpu_use where correlation_id = ? order by 1", first), [(a,), (b + 64,)], "what the kernel's arguments name")
    t.equal(run.db.rows("select name, count(*) from gpu_overhead where kind = 'overhead' group by 1"), [("lazy function loading", 4)], "overhead")


@test
def a_module_loaded_when_its_kernel_is_asked_for(t):
    """What the driver allocates while we ask about a kernel is the program's: each block once, with its stack, and its end."""
    run = Run(t, "lazy")
    t.equal(run.lines.count("loaded lazy,8"), 1, "the module is loaded")
    where = " from allocation as a join heap as h on h.id = a.heap_id join stack_text as s using (stack_id) where h.name = 'malloc' and s.text like '%load_lazily%'"
    t.equal(run.db.row("select count(*), count(a.free_ns), sum(a.size_bytes)" + where), (300, 150, sum(range(1000, 1300))), "blocks of it, ended, bytes")
    t.equal(run.db.rows("select distinct s.text like 'main;lazy_module;cuLaunchKernel;%;load_lazily'" + where), [(1,)], "their stacks come from the launch")
    t.equal(run.db.rows("select * from loss"), [], "losses")
    t.equal(run.db.value("select count(*) from gpu_use"), 2, "uses")


@test
def old_records(t):
    """Records and interface of CUDA 11.2: shorter; and a clock of CUPTI's own."""
    check_work(t, Run(t, "work", FAKE_CUPTI_OLD=1, FAKE_CUPTI_CLOCK="realtime"))
    Run(t, "every-way", FAKE_CUPTI_OLD=1).compare(t)


@test
def records_longer_than_known_and_unknown_kinds(t):
    run = Run(t, "work", FAKE_CUPTI_LONG=264, FAKE_CUPTI_ODD=1)
    check_work(t, run)


@test
def dropped_records_are_counted(t):
    run = Run(t, "work", FAKE_CUPTI_DROPPED=17)
    t.equal(run.db.rows("select kind, count from loss"), [("gpu-records", 17)], "losses")
    t.equal(run.db.value("select complete from trace"), 0, "complete")


@test
def missing_functions_cost_their_feature(t):
    for name in ("cuptiGetStreamIdEx", "cuptiActivitySetAttribute", "cuptiGetTimestamp", "cuptiActivityRegisterTimestampCallback",
                 "cuptiActivityGetNumDroppedRecords", "cuptiGetDeviceId"):
        run = Run(t, "work", flags=(f"-DWITHOUT_{name}",))
        run.compare(t)
        check_work(t, run)
    run = Run(t, "work", flags=("-DWITHOUT_cuptiActivityRegisterCallbacks",))
    run.compare(t)
    t.equal(run.db.value("select count(*) from gpu_activity"), 0, "activities without their interface")
    t.equal(run.db.value("select count(*) from gpu_use"), 15, "uses are told by callbacks")


@test
def another_tool_holds_cupti(t):
    run = Run(t, "work", FAKE_CUPTI_BUSY=1)
    t.equal(run.recorded(), [], "blocks")
    t.check(len(run.notes()) == 1 and "CUPTI" in run.notes()[0] and "another tool" in run.notes()[0], f"notes: {run.notes()}")
    run = Run(t, "work", FAKE_CUPTI_NEWER=1)
    t.check(len(run.notes()) == 1 and "cuptiSubscribe() answers 15 (CUPTI_ERROR_NOT_INITIALIZED), as where the driver is older" in run.notes()[0], f"notes: {run.notes()}")
    run = Run(t, "work", flags=("-DWITHOUT_cuptiGetResultString",), FAKE_CUPTI_REFUSES="cuptiSubscribe")
    t.check(len(run.notes()) == 1 and "cuptiSubscribe() answers 7; of CUDA" in run.notes()[0], f"notes: {run.notes()}")
    run = Run(t, "work", CUDA_INJECTION64_PATH="/nonexistent/tool.so")
    t.check(len(run.notes()) == 1 and "CUPTI" in run.notes()[0], f"notes: {run.notes()}")
    run = Run(t, "work", TIDEMARK_CUPTI="/nonexistent/libcupti.so")
    t.check(len(run.notes()) == 1 and "was not found" in run.notes()[0], f"notes: {run.notes()}")


@test
def a_tool_of_nvidias_runs_the_program(t):
    """Its way into the program ends that where it finds us named to the driver."""
    run = Run(t, "work", NV_TPS_LAUNCH_TOKEN="Profile")
    t.equal(run.recorded(), [], "blocks")
    t.check(len(run.notes()) == 1 and "NV_TPS_LAUNCH_TOKEN" in run.notes()[0], f"notes: {run.notes()}")
    seen = t.record(["sh", "-c", "NV_TPS_LAUNCH_TOKEN=Profile env"], "--quiet", "--force").text.splitlines()
    t.equal([line for line in seen if line.startswith("CUDA_INJECTION64_PATH")], [], "what the program sees")


@test
def a_driver_that_does_not_ask(t):
    """A program that takes the variable out of its environment before cuInit(), as debuggers do: what it has of the driver's shows that this was used."""
    where, device = build(t), t.path("nvidia-uvm")
    program = ("import ctypes, os, sys\ncuda = ctypes.CDLL('libcuda.so.1')\n"
               "if 'hides' in sys.argv: del os.environ['CUDA_INJECTION64_PATH']\nif 'uses' in sys.argv: cuda.cuInit(0), os.open(sys.argv[-1], os.O_CREAT)\n")
    for arguments, told in ((["hides", "uses"], 1), (["uses"], 0), (["hides"], 0)):
        recording = t.record([sys.executable, "-c", program, *arguments, device], "--force", env=doubles(where))
        notes = [text for text, in t.imported(recording).rows("select text from note where kind = 'gpu'")]
        t.equal(len([text for text in notes if "did not ask" in text]), told, f"notes with {arguments}: {notes}")


@test
def cupti_beside_the_programs_cuda(t):
    """As PyTorch's wheels lie: nvidia/cuda_runtime/lib/libcudart.so.12, which the program has loaded, and nvidia/cuda_cupti/lib/libcupti.so.12."""
    where, wheels = build(t), t.path("nvidia")
    for part in ("cuda_runtime/lib", "cuda_cupti/lib"):
        os.makedirs(os.path.join(wheels, part))
    runtime = f"{wheels}/cuda_runtime/lib/libcudart.so.12"
    t.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.12", "-o", runtime, "-x", "c", "/dev/null"], status=0)
    os.symlink(f"{where}/libcupti.so.12", f"{wheels}/cuda_cupti/lib/libcupti.so.12")
    run = Run(t, "work", TIDEMARK_CUPTI="", LD_PRELOAD=runtime)
    run.compare(t)
    check_work(t, run)


@test
def cupti_of_a_toolkit(t):
    """As for programs that nvcc has linked with libcudart.a: nothing that is loaded leads to the toolkit, and the loader does not look there."""
    where, driver = build(t), t.path("driver")
    os.makedirs(driver)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        os.symlink(f"{where}/{name}", f"{driver}/{name}")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        for part in ("lib64", "extras/CUPTI/lib64", "lib"):
            toolkit = t.path(f"{name}-{part.replace('/', '-')}")
            os.makedirs(os.path.join(toolkit, part))
            os.symlink(f"{where}/libcupti.so.12", os.path.join(toolkit, part, "libcupti.so.12"))
            run = Run(t, "work", TIDEMARK_CUPTI="", LD_LIBRARY_PATH=driver, **{"CUDA_HOME": "", "CUDA_PATH": "", name: toolkit})
            run.compare(t)
            t.equal(run.notes(), [], f"{name}, {part}: notes")


@test
def memory_that_the_driver_does_not_take_back(t):
    """A broken context: cuMemFree fails, so the block is live again, from then on."""
    run = Run(t, "out-of-memory", FAKE_CUDA_BROKEN=1)
    t.equal([(size, freed) for _, size, _, freed in run.recorded()], [(64 << 20, False), (64 << 20, True)], "blocks")


@test
def a_profiler_in_the_program(t):
    """It subscribes later: we leave, it gets what it asks for; with --gpu=cupti we stay and it is refused, as by any other tool."""
    where = build(t)
    env = {"LD_PRELOAD": f"{where}/libcupti.so.12"}
    run = Run(t, "profiler", **env)
    t.equal(run.recording.text.splitlines()[0], "profiler: 0", "what the profiler was told")
    t.equal([(size, api) for _, size, api, _ in run.recorded()], [(100, "cuMemAlloc")], "blocks until then")
    t.check(len(run.notes()) == 1 and "CUPTI" in run.notes()[0], f"notes: {run.notes()}")
    run = Run(t, "profiler", "--gpu=cupti", **env)
    t.equal(run.recording.text.splitlines()[0], "profiler: 39", "what the profiler was told")
    t.equal([size for _, size, _, _ in run.recorded()], [100, 200], "blocks")


@test
def a_tracer_in_the_program(t):
    """One that does not subscribe, and switches on kinds of records that are ours, too, before it gives buffers; after cuInit() or before it; with a clock of its own
    or without. It gets what it gets without us, and by the same clock. With --gpu=cupti we stay, and it is told that another tool is there."""
    where = build(t)
    env = {"LD_PRELOAD": f"{where}/libcupti.so.12"}
    for what in ("trace-late", "trace-clock", "trace-early", "trace-early-clock"):
        run = Run(t, what, **env)
        clock = "its own" if "clock" in what else "the system's"
        t.equal(run.recording.text.splitlines()[:2], ["begin: 0 0 0", f"traced: kernels, by {clock} clock"], what)
        t.equal([size for _, size, _, _ in run.recorded()], [] if "early" in what else [100], f"{what}: blocks")
        t.check(len(run.notes()) == 1 and "--gpu=cupti" in run.notes()[0], f"{what}: notes {run.notes()}")
    run = Run(t, "trace-clock", "--gpu=cupti", **env)
    t.equal(run.recording.text.splitlines()[:1], ["begin: 39 39 39"], "with --gpu=cupti")
    t.equal(run.db.value("select count(*) from gpu_activity where kind = 'kernel'"), 1, "our kernels with --gpu=cupti")
    run = Run(t, "trace-clock", "--gpu=off", **env)
    t.equal(run.recording.text.splitlines()[0], "begin: 0 0 0", "with --gpu=off")


@test
def streams_of_allocations(t):
    """Blocks of pools have CUPTI's number of their stream, in which no stream is one, and a thread's own another; graphs' nodes and other blocks have none."""
    streams = ("select h.name, b.size_bytes, b.stream from gpu_block as b join heap as h on h.id = b.heap_id where h.name like 'cuda-pool:%' or b.stream is not null"
               " order by 1, 2")
    run = Run(t, "every-way")
    t.equal(run.db.rows(streams), sorted((f"cuda-pool:{device}{own}", size, 7) for device in (0, 1) for own, size in
                                         (("", 1000), ("", 2000), ("", 3000), (f"#{device + 1}", 5000))), "in no stream")
    t.equal(run.db.rows("select operation, memory_kind, device, count(*) from gpu_memory group by 3 order by 3"),
            [("allocate", "device", 0, 4), ("allocate", "device", 1, 4)], "records")
    t.equal(Run(t, "streams").db.rows(streams), [("cuda-pool:0", 1000 * n, 116) for n in (1, 2, 3)], "in a stream")
    t.equal(Run(t, "streams-again").db.rows(streams), [("cuda-pool:0", 1000, 116), ("cuda-pool:0", 2000, 116), ("cuda-pool:0", 3000, 1116), ("cuda-pool:0", 4000, 1116)],
            "in a stream that has the handle of one that was destroyed")
    t.equal(Run(t, "graphs").db.rows(streams), [("cuda-pool:0", 6000, 7), ("cuda-pool:0", 8000, 8)], "in a thread's own")
    run = Run(t, "turns")
    t.equal(run.db.rows("select stream, count(*), count(distinct address) from gpu_block where stream is not null group by 1"), [(110, 50, 1), (111, 50, 1)],
            "one address, of one stream and the other in turn")
    t.equal(run.db.rows("select size_bytes, stream from gpu_block as b join heap as h on h.id = b.heap_id where h.name = 'cuda:0'"), [(4096, None)],
            "a plain block where those lay")
    run = Run(t, "streams", FAKE_CUPTI_REFUSES="cuptiGetStreamIdEx")
    t.equal((run.db.rows(streams), len(run.notes()), "cuptiGetStreamIdEx" in run.notes()[0]), ([("cuda-pool:0", 1000 * n, None) for n in (1, 2, 3)], 1, True),
            "where CUPTI does not say which")


@test
def a_pool_that_grows(t):
    """Each growth is told at once; what the pool has, it hands out without being asked each time."""
    run = Run(t, "growing-pool")
    run.compare(t)
    states = run.db.rows("select p.allocated_bytes, p.reserved_bytes from pool_state as p join heap as h on h.id = p.heap_id where h.name = 'cuda-pool:0' order by ts_ns")
    mib = 1 << 20
    t.equal(states[:3], [(3 * mib, 4 * mib), (6 * mib, 6 * mib), (9 * mib, 10 * mib)], "states")
    t.equal({reserved for _, reserved in states[3:]}, {10 * mib}, "what it holds of the others")
    t.equal(list(dict.fromkeys(states[-4:]))[-3:], [(6 * mib, 10 * mib), (3 * mib, 10 * mib), (0, 10 * mib)], "what it has got back, and the end")
    asked = sum(line.startswith("asked pool") for line in run.lines)
    t.check(len(states) * 2 <= asked < 1000, f"asked {asked} times about 4,006 allocations and releases, {len(states)} states")


@test
def devices_from_outside(t):
    """What the management library says of each device that the process uses: its own share, all processes', the device's size."""
    where = build(t)
    pid_file = t.path("pid")
    env = {**doubles(where), "FAKE_NVML_PID_FILE": pid_file}
    recording = t.record(["sh", "-c", f"echo $$ > '{pid_file}'; exec '{where}/driver' wait"], "--quiet", env=env)
    db = t.imported(recording, options=("--quiet",))
    mib = 1 << 20
    t.equal(db.rows("select distinct s.name, s.value from sample as s where s.name like 'device%' and s.process_id is not null and s.name not like"
                    " '%used' order by 1"),
            [("device_all:0", 100 * mib), ("device_all:1", 200 * mib), ("device_total:0", 1 << 30), ("device_total:1", 1 << 30),
             ("device_used:0", 10 * mib), ("device_used:1", 20 * mib)], "samples of devices")
    t.check((30 * mib,) in db.rows("select value from sample where name = 'device_used'"), "what the process holds on both")


TORCH = """
import ctypes, sys, types
class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]
cuda, here = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
cuda.cuInit(0)
segment = ctypes.c_uint64()
cuda.cuMemAlloc_v2(ctypes.byref(segment), ctypes.c_size_t(2 << 20))
report = here._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, Device]
torch = sys.modules["torch"] = types.ModuleType("torch")
stats = {}
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 2, # of the second one nothing is ever reported
                                   memory_stats_as_nested_dict=lambda device: sys.exit("asked about a device in vain") if device else stats)
def says(allocated, active, inactive):
    for name, bytes in (("allocated", allocated), ("reserved", 2 << 20), ("active", active), ("inactive_split", inactive)):
        stats[name + "_bytes"] = {"all": {"current": bytes, "peak": bytes}}
import tidemark
report(segment.value, 1024, 1024, 2 << 20, Device(1, 0))
report(segment.value + 1024, 512, 1536, 2 << 20, Device(1, 0))
says(1536, 1600, 100)
tidemark.mark("both")
report(segment.value, -1024, 512, 2 << 20, Device(1, 0))
says(512, 1536, 50)
tidemark.step(1)
"""


SLOW_TO_ANSWER = """
import time
asked = []
def answer(device):
    asked.append(device)
    time.sleep(0.002)
    return stats
torch.cuda.memory_stats_as_nested_dict = answer
begin = time.monotonic()
for n in range(1000):
    tidemark.step(n)
print(len(asked), time.monotonic() - begin)
"""


@test
def tensors_lie_inside_of_the_device(t):
    """A program that reports as PyTorch's caching allocator does. With CUPTI torch.cuda:0 lies in cuda:0; without it is alone. Its states at marks and steps are
    what `torch` says, active and inactive included; without tidemark.py they are what the reports say."""
    where, script = build(t), t.path("script.py")
    with open(script, "w", encoding="ascii") as file:
        file.write(TORCH)
    env = {**doubles(where), "PYTHONPATH": os.path.join(ROOT, "recorder")}
    for busy in ("", "1"):
        db = t.imported(t.record(["python3", script], "--quiet", env={**env, "FAKE_CUPTI_BUSY": busy}), options=("--quiet",))
        t.equal(db.rows("select h.name, p.name, h.device, h.is_root from heap as h left join heap as p on p.id = h.parent_id where h.name like 'torch%'"),
                [("torch.cuda:0", None if busy else "cuda:0", 0, 0)], "heap")
        t.equal(db.rows("select size_bytes, free_ns is not null from allocation as a join heap as h on h.id = a.heap_id where h.name = 'torch.cuda:0' order by 1"),
                [(512, 0), (1024, 1)], "blocks")
        t.equal(db.value("select count(*) from pool_state where coalesce(allocated_bytes, reserved_bytes, active_bytes) is null"), 0, "states that say nothing")
        t.equal(db.rows("select allocated_bytes, reserved_bytes, active_bytes, inactive_bytes from pool_state where active_bytes is not null order by ts_ns"),
                [(1536, 2 << 20, 1600, 100), (512, 2 << 20, 1536, 50)], "states at the mark and the step")
        ts = db.value("select ts_ns from mark where name = 'both'")
        t.equal(db.value("select allocated_bytes from pool_state where ts_ns <= ? order by ts_ns desc limit 1", ts), 1536, "the latest state before the mark")
    with open(script, "w", encoding="ascii") as file:
        file.write(TORCH.replace("tidemark.step(1)", SLOW_TO_ANSWER))
    asked, took_s = map(float, t.record(["python3", script], "--quiet", env=env, status=0).text.split())
    t.check(1 <= asked <= 2 + took_s / 0.4, f"a thousand steps in {took_s} s asked {asked} times what takes 2 ms to answer: more than a two-hundredth of the time")
    with open(script, "w", encoding="ascii") as file:
        file.write(TORCH.replace("import tidemark", "class tidemark: mark = lambda name: here.tidemark_api_mark_v1(name.encode()); step = lambda n: 0"))
    db = t.imported(t.record(["python3", script], "--quiet", env=env), options=("--quiet",))
    ts = db.value("select ts_ns from mark where name = 'both'")
    t.equal(db.value("select allocated_bytes from pool_state where ts_ns <= ? order by ts_ns desc limit 1", ts), 1536, "reported right before the mark")


@test
def calls_by_the_kit(t):
    """The tools that need nothing but libc record the program of `make check-gpu` that makes the driver's calls, and its comparison finds nothing."""
    t.need("make")
    where, kit = build(t), os.path.join(t.build, "gpu-kit")
    if t.sanitized:
        t.skip("a kit with sanitizers is nobody's")
    made = t.run(["make", "-C", ROOT, f"BUILD={t.build}", "gpu-kit"])
    if made.status:
        t.skip("no static libraries to carry: " + made.errors.splitlines()[-1])
    needed = t.run(["sh", "-c", f"readelf -d {kit}/bin/* | sed -n 's/.*(NEEDED).*\\[\\(.*\\)\\]/\\1/p' | sort -u"], status=0).text.split()
    t.equal([name for name in needed if name not in ("libc.so.6", "libm.so.6")], [], "libraries that the kit needs")
    env = doubles(where)
    trace, figures = t.path("calls.tmk"), t.path("calls.json")
    t.run([f"{kit}/bin/tidemark", "record", "--quiet", "-o", trace, "--", "python3", f"{SOURCES}/calls.py", figures], env=env, status=0)
    t.run([f"{kit}/bin/tidemark", "import", "--quiet", trace, "-o", t.path("calls.db")], status=0)
    with open(figures, encoding="ascii") as file:
        t.equal(real_figures.differences("calls", sqlite3.connect(t.path("calls.db")), json.load(file)), [], "differences")
    # As on a machine without compiler and headers: the kit is there, and nothing else has been built.
    os.makedirs(t.path("elsewhere"))
    os.symlink(kit, t.path("elsewhere/gpu-kit"))
    checked = t.run(["make", "-C", ROOT, f"BUILD={t.path('elsewhere')}", "CC=false", "check-gpu", "ONLY=calls"],
                    env={**env, "PYTHONPATH": os.path.join(SOURCES, "fake_torch"), "FAKE_CUPTI_FULL": "1"}, status=0)
    t.check("0 failed" in checked.text and "FAIL" not in checked.text, checked.text)
    t.equal(sorted(os.listdir(t.path("elsewhere/gpu-results/gpu-real"))), ["calls.json", "calls.tmk"], "kept")


@test
def the_check_for_real_devices(t):
    """`make check-gpu` from end to end over the doubles and a double of PyTorch (tests/gpu/fake_torch): every claim that is not one of time holds. It shows that
    the check itself runs and can be passed; what PyTorch and a device do is theirs to show. With figures that are wrong by a byte its claims fail."""
    where, kit = build(t), t.path("kit")
    env = {**os.environ, **doubles(where), "PYTHONPATH": os.path.join(SOURCES, "fake_torch"), "FAKE_CUPTI_FULL": "0"}
    os.makedirs(f"{kit}/cuda/12.0")
    os.symlink(f"{t.build}/bin", f"{kit}/bin")
    os.symlink(f"{t.build}/lib", f"{kit}/lib")
    os.symlink(f"{where}/libcupti.so.12", f"{kit}/cuda/12.0/libcupti.so.12")
    done = t.run([sys.executable, f"{SOURCES}/check_gpu.py", kit, f"--out={t.path('results')}", f"--python={sys.executable}", "--rounds=2", "--pairs=5000"],
                 env=env)
    lines = [line for line in done.text.splitlines() if line.startswith(("PASS", "FAIL"))]
    failed = [line for line in lines if line.startswith("FAIL") and not line.startswith(("FAIL  overhead", "FAIL  cost"))]
    t.equal(failed, [], f"claims\n{done.text}{done.errors}")
    t.equal(len(lines), 2 * 15 + 7 + 8 + (5 + 6) + 3 + 1 + 3 + 2 + 1, f"claims\n{done.text}")
    answers = [line for line in done.text.splitlines() if line.startswith("ANSWER")]
    of_a_trace = real_figures.answers(sqlite3.connect(t.path("results/training.db")))
    t.equal(len([a for a in answers if a.split(": ", 1)[1].startswith(tuple(f"{question}: " for question in of_a_trace))]), 6 * len(of_a_trace), f"answers\n{done.text}")
    turns = [a.split(": ")[1] for a in answers if " in turn: " in a]
    t.equal(turns, ["bare", "all", "with --stacks=off", "bare", "all", "with --gpu=off", "with --stacks=off", "with --gpu=off --stacks=off --torch=off",
                    "torch.profiler, with memory and stacks"], f"what stands side by side\n{done.text}")
    for answer in ("calls: lost: none", "calls: work without a launch: 0"):
        t.check("ANSWER " + answer in answers, f"{answer}: not among\n{done.text}")
    t.equal(sorted(os.listdir(t.path("results/gpu-real"))), [f"{n}.{e}" for n in ("calls", "rare", "training-expandable", "training") for e in ("json", "tmk")],
            "kept")
    with open(t.path("results/report.txt"), encoding="utf-8") as file:
        t.equal(file.read(), done.text, "what is kept of what is said")
    db = sqlite3.connect(t.path("results/training.db"))
    with open(t.path("results/training.json"), encoding="ascii") as file:
        figures = json.load(file)
    last = figures["marks"][-1]
    for key in ("allocated", "reserved", "active", "allocations", "allocated_peak"):
        wrong = {**figures, "marks": [*figures["marks"][:-1], {**last, key: last[key] + 1 + (key == "allocated_peak") * 10 ** 9}]}
        t.equal(len(real_figures.differences("training", db, wrong)), 1, f"differences with {key} wrong")
    wrong = {**figures, "marks": [{**last, "segments": [{**last["segments"][0], "size": last["segments"][0]["size"] + 1}]}]}
    t.check(any("segment" in text for text in real_figures.differences("training", db, wrong)), "a segment of another size")


@test
def switched_off(t):
    run = Run(t, "work", "--gpu=off")
    t.equal(run.recorded(), [], "blocks")
    t.equal(run.notes(), [], "notes")


@test
def nothing_without_cuda(t):
    """A process that never calls the driver: no heap, no note, and CUPTI is not loaded."""
    run = Run(t, "none")
    t.equal(run.db.value("select count(*) from heap where name like 'cuda%'"), 0, "heaps")
    t.equal(run.notes(), [], "notes")
    t.equal(run.db.value("select count(*) from module where path like '%libcupti%'"), 0, "CUPTI is loaded")


@test
def threads_and_devices(t):
    run = Run(t, "threads")
    run.compare(t)
    t.equal(run.db.rows("select kind, count from loss"), [], "losses")
    t.equal(run.db.value("select count(distinct thread_id) from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda:%'"), 4, "threads")


@test
def every_way_to_end(t):
    for how, status in (("exit", 0), ("_exit", 3), ("quick_exit", 4), ("thread", 5), ("abort", 134), ("term", 143), ("fault", 139),
                        ("kill", 137), ("exec", 0), ("fork", 0), ("late", 0)):
        run = Run(t, how, status=status, FAKE_CUPTI_FULL=0)
        wanted = [1000, 2000] if how in ("fork", "kill") else [1000, 3000] if how == "late" else [1000]
        t.equal([size for _, size, _, _ in run.recorded()], wanted, f"{how}: blocks")
        t.equal(run.db.rows("select kind, count from loss"), [], f"{how}: losses")
        if how in ("exit", "quick_exit", "thread", "late", "kill"):  # killed, it had called the driver a second later
            t.equal(run.db.rows("select name from gpu_activity"), [("leaves,8",)], f"{how}: the record of the kernel")


@test
def same_as_bare(t):
    where = build(t)
    env = doubles(where)
    for scenario in ("every-way", "out-of-memory", "work", "threads"):
        t.same_as_bare([f"{where}/driver", scenario], env=env)


@test(long=True)
def a_million_allocations(t):
    run = Run(t, "many")
    t.equal(run.db.value("select count(*) from allocation as a join heap as h on h.id = a.heap_id where h.name = 'cuda:0' and free_ns is not null"), 1000000,
            "blocks")
    t.equal(run.db.rows("select kind, count from loss"), [], "losses")


main()
