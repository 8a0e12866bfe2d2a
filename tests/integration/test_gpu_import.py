"""Import of what a trace says about devices: rows of activities, launches, uses, refusals, pools and samples, each worked out by hand.

Method: trace_writer.py writes the events as schema/format.md says; no recorder and no device is needed.
"""
import os

from tidemark_test import ROOT, main, test
from trace_writer import Trace, free, launch, malloc, oom, scope, use


def trace_with_device():
    t = Trace()
    t.minor = 2
    t.process(1, pid=100)
    t.thread(1, process=1)
    t.thread(2, process=1)
    t.heap(1, 1, "malloc", "host")
    t.heap(2, 1, "cuda:0", "device", device=0)
    t.heap(3, 1, "cuda-host", "pinned")
    return t


def finish(t, trace):
    trace.exit(1, 9000)
    trace.end(1, 9000)
    return t.imported(trace.save(t.path("run.tmk")), options=("--quiet",))


@test
def golden(t):
    db = t.imported(os.path.join(ROOT, "fixtures/golden/v1.2-gpu.tmk"), options=("--quiet",))
    t.equal(db.rows("select kind, direction, name, device, stream, a.start_ns, a.end_ns, size_bytes, s.text, correlation_id, launch_ns from gpu_activity as a"
                    " join scope_packed as p on p.id = a.scope_id join scope_name as s on s.id = p.name_id order by a.start_ns"),
            [("kernel", None, "add", 0, 7, 1300, 1900, None, "step", 7, 1200), ("memcpy", "d2h", None, 0, 7, 2000, 2100, 4096, "step", 8, 1950)],
            "activities")
    t.equal(db.rows("select ts_ns, h.name, api, size_bytes, result, t.text, device_free_bytes, device_total_bytes from oom as o"
                    " join heap as h on h.id = o.heap_id join stack_text as t on t.stack_id = o.stack_id"),
            [(2500, "cuda:0", "cuMemAlloc", 2 << 30, "CUDA_ERROR_OUT_OF_MEMORY", "main;work", (1 << 30) - 4096, 1 << 30)], "refusals")
    t.equal(db.rows("select h.name, p.ts_ns, allocated_bytes, reserved_bytes, active_bytes from pool_state as p join heap as h on h.id = p.heap_id"),
            [("cuda-pool:0", 3000, 64, 2 << 20, None)], "pool states")
    t.equal(db.rows("select heap, ts_ns, live_bytes from peak order by heap"),
            [(None, 0, 0), ("cuda-pool:0", 3000, 64), ("cuda:0", 1100, 4096)], "peaks: devices add nothing to the process")
    t.equal(db.rows("select device, name, uuid, total_bytes from gpu_device"), [(0, "Test GPU", bytes(range(16)).hex(), 1 << 30)], "devices")
    t.equal(db.rows("select ts_ns, address, correlation_id from gpu_use"), [(1200, 0x7f0000000010, 7)], "uses")
    t.equal(db.rows("select kind, name, start_ns, end_ns from gpu_overhead order by start_ns"),
            [("call", "cuMemAlloc", 1050, 1100), ("overhead", "driver compiler", 1250, 1260)], "overhead")
    t.equal(db.rows("select ts_ns, operation, memory_kind, device, stream, address, size_bytes from gpu_memory"),
            [(1090, "allocate", "device", 0, None, 0x7f0000000000, 4096)], "what the driver says of memory")
    t.equal(db.rows("select name, value from sample where process_id is not null order by name"),
            [("device_all:0", 4 << 20), ("device_total:0", 1 << 30), ("device_used", 3 << 20), ("device_used:0", 3 << 20)], "samples")


@test
def launches_of_two_threads_and_none(t):
    """Each thread has its own scope; an activity whose launch was not recorded has none; the stack of a launch that allocates nothing has its rows."""
    trace = trace_with_device()
    name, user, api = trace.string("inner"), trace.string("user"), trace.string("cuLaunchKernel")
    only = trace.stack("main", "only_launches")
    trace.segments([(1, [scope("scope_push", 1000, name, user), launch(1100, api, 1, only), scope("scope_end", 1200, 0, user), launch(1300, api, 3)]),
                    (2, [launch(1150, api, 2, only)])])
    trace.activities(1, [dict(kind=1, start=1200 + i, end=1300 + i, device=0, correlation=i) for i in (1, 2, 3, 4)])
    db = finish(t, trace)
    t.equal(db.rows("select a.correlation_id, th.tid, a.scope_id is not null, t.text from gpu_activity as a left join thread as th on th.id = a.thread_id"
                    " left join stack_text as t on t.stack_id = a.stack_id order by 1"),
            [(1, 1001, 1, "main;only_launches"), (2, 1002, 0, "main;only_launches"), (3, 1001, 0, ""), (4, None, 0, None)], "who launched what")


@test
def ids_that_are_not_there(t):
    """An oom event without its record, a stack that is not there: the chunk is damaged, and what stands before it is used."""
    for event in (oom(1500, 1, 1), launch(1500, 1, 1, 99), use(1500, 0x1000, 5)):
        trace = trace_with_device()
        trace.string("f")
        trace.events(1, [malloc(1000, 0x1000, 8, op="cuda_alloc", usable="unknown", heap=2)])
        trace.events(1, [event, free(1600, 0x1000, op="cuda_free", heap=2)])
        trace.exit(1, 9000)
        trace.end(1, 9000)
        outcome = t.run([t.tidemark, "import", "--force", trace.save(t.path("run.tmk")), "-o", t.path("run.db")], status=0)
        t.equal("damaged" in outcome.errors, event["op"] != "use", f"{event['op']}: {outcome.errors}")


main()
