"""Recording of CUDA where memory lies in other places than a device, comes from other processes, and is named by work in every way that there is; and where
CUPTI does not do what it is asked: function by function, record by record, in the middle of the process' end.

Method: scenarios of tests/gpu/places.c and driver.c over the doubles; what the double of the driver wrote down, or figures worked out by hand from them.
"""
from gpu_run import Run, build, check_work, doubles
from tidemark_test import main, test

ON = "from allocation as a join heap as h on h.id = a.heap_id where h.name"


def whole(t, run):
    run.compare(t)
    t.equal(run.notes(), [], "notes")
    t.equal(run.db.rows("select kind, count from loss"), [], "losses")


@test
def every_way_to_name_memory(t):
    run = Run(t, "uses", command=("places", "uses"))
    whole(t, run)
    uses = dict(run.db.rows("select size_bytes, uses from gpu_block as g join heap as h on h.id = g.heap_id where g.uses is not null"))
    t.equal(sorted(size for size, n in uses.items() if n == 0), [9998, 9999], "blocks that no work named")
    t.equal(sorted(set(n for size, n in uses.items() if size < 9998)), [1], "uses of every other block")
    t.equal(len(uses), 2 + 21 + 1 + 110, "blocks")
    t.equal(run.db.row("select some_untold, uses_known from gpu_process"), (0, 1), "all is told")
    t.equal(run.db.rows("select sum(count), sum(bytes) from gpu_inefficiency where kind = 'never_used'"), [(2, 9998 + 9999)], "never used")


@test
def work_that_does_not_tell(t):
    """One launch whose parameters are not known makes the uses of all blocks unknown; without it the same program is judged."""
    for how, known in (("", 1), ("kernel", 0), ("grid", 0)):
        run = Run(t, f"untold-{how}", command=("places", "untold", how))
        whole(t, run)
        t.equal(run.db.row("select some_untold, uses_known from gpu_process"), (1 - known, known), f"{how}: known")
        t.equal(run.db.rows("select bytes from gpu_inefficiency where kind = 'never_used'"), [(2000,)] if known else [], f"{how}: never used")
        t.equal(run.db.value("select count(*) from gpu_use"), 1, f"{how}: uses")
        t.equal(run.db.value("select count(*) from gpu_activity where launch_ns is null"), 0, f"{how}: work has its launch")


@test
def pools_of_every_place(t):
    run = Run(t, "pools", command=("places", "pools"))
    whole(t, run)
    t.equal(run.db.rows("select a.size_bytes, h.name, h.device " + ON + " like 'cuda%' order by 1"),
            [(1000, "cuda-pool:0#1", 0), (1001, "cuda-host", None), (1002, "cuda-host", None), (1003, "cuda-managed", None), (2000, "cuda-host", None),
             (2100, "cuda-managed", None), (2200, "cuda-pool:0", 0), (3000, "cuda-pool:0#1", 0), (3100, "cuda-pool:0", 0)], "heaps")
    t.equal(run.db.rows("select distinct h.name from pool_state as p join heap as h on h.id = p.heap_id where h.device is null"), [], "states of heaps that are no pools")


@test
def memory_of_others(t):
    run = Run(t, "imports", command=("places", "imports"))
    whole(t, run)
    t.equal(run.db.rows("select h.name, a.api, a.size_bytes, a.free_ns is not null " + ON + " like 'cuda%' order by a.alloc_ns"),
            [("cuda-ipc:0", "cuMemPoolImportPointer", 3 << 20, 1), ("cuda-ipc:0", "cuExternalMemoryGetMappedBuffer", 5 << 20, 1),
             ("cuda-ipc:0", "cuMemPoolImportPointer", 3 << 20, 0), ("cuda:0", "cuMipmappedArrayCreate", (2048 + 512 + 128 + 32) * 16, 1)], "blocks")
    without = Run(t, "imports", command=("places", "imports"), flags=("-DWITHOUT_cuMemGetAddressRange_v2",))
    t.equal(without.db.rows("select a.size_bytes " + ON + " = 'cuda-ipc:0' order by 1"), [(0,), (0,), (5 << 20,)], "where nobody says how long it is")


@test
def handles_that_come_again_at_once(t):
    """A thread makes a pool, then a context, with the handle of one whose destruction has not returned on another thread."""
    run = Run(t, "again", command=("places", "again"), FAKE_CUDA_AGAIN=1)
    whole(t, run)
    t.equal(run.db.rows("select a.size_bytes, h.name, a.free_ns is null " + ON + " like 'cuda%' order by 1"),
            [(1000, "cuda-pool:1#2", 1), (2000, "cuda:0", 0), (3000, "cuda:1", 1)], "blocks of the pool, of the first context and of the second")


@test
def kernels_whose_handles_come_again(t):
    """Read as the parameters of the kernel before, those of the second one would be read beyond their end, which here ends the program."""
    run = Run(t, "kernels", command=("places", "kernels"))
    whole(t, run)
    t.equal(run.db.rows("select size_bytes, uses from gpu_block order by 1"), [(1000, 2), (2000, 2), (3000, 2)], "uses")


@test
def arrays_of_layers_and_of_normalized_formats(t):
    run = Run(t, "arrays", command=("places", "arrays"))
    whole(t, run)
    t.equal(run.db.rows("select a.size_bytes " + ON + " = 'cuda:0' order by a.alloc_ns"),
            [((64 * 32 + 32 * 16 + 16 * 8) * 5 * 4,), ((64 * 32 + 32 * 16) * 6 * 2,), ((64 * 32 * 4 + 32 * 16 * 2) * 2,)], "arrays")


@test
def contexts_that_are_gone(t):
    run = Run(t, "gone", command=("places", "gone"))
    t.equal(run.db.rows("select a.size_bytes, a.free_ns is not null " + ON + " like 'cuda:%' order by 1"), [(1000, 1), (2000, 1)], "blocks")
    t.equal(run.notes() + run.db.rows("select kind, count from loss"), [], "notes and losses")


@test
def a_handle_retained_by_an_address_inside(t):
    run = Run(t, "inside", command=("places", "inside"))
    whole(t, run)
    t.equal(run.db.rows("select a.size_bytes, a.free_ns > (select ts_ns from mark) " + ON + " = 'cuda:0' order by 1"), [(2 << 20, 0), (4 << 20, 1)], "which lives on")


@test
def threads_that_call_while_the_process_leaves(t):
    for how, status in (("exit", 7), ("_exit", 8), ("abort", 134), ("term", 143)):
        run = Run(t, f"crowd-{how}", command=("places", "crowd", how), status=status)
        t.equal(run.db.rows("select kind, reason, count from loss"), [], f"{how}: losses")
        made = sum(line.startswith("alloc") for line in run.lines)
        recorded = run.db.value("select count(*) " + ON + " = 'cuda:0'")
        t.check(made - 8 <= recorded <= made and made > 8, f"{how}: {recorded} blocks of {made}, of which each of 8 threads may have been about to tell one")


# What CUPTI refuses: words of the note, and what is lost: blocks, activities, uses.
REFUSALS = {
    "cuptiSubscribe": (["CUPTI cannot be used", "cuptiSubscribe() answers 7 (CUPTI_ERROR_INVALID_OPERATION);", "PyTorch"], False, False),
    "cuptiEnableCallback": ([], True, True),  # then all functions of the driver are switched on together
    "cuptiEnableCallback,cuptiEnableDomain": (["cuptiEnableCallback() answers 7", "blocks and launches"], False, True),
    "cuptiGetStreamIdEx": ([], True, True),  # nothing is in a stream here
    "cuptiGetDeviceId": ([], True, True),  # the driver says it
    "cuptiGetTimestamp": ([], True, True),  # our clock is CUPTI's
    "cuptiActivityRegisterTimestampCallback": ([], True, True),  # the clocks are compared
    "cuptiActivityRegisterTimestampCallback,cuptiGetTimestamp": (["cuptiGetTimestamp() answers 7", "clock"], True, True),
    "cuptiActivityRegisterCallbacks": (["cuptiActivityRegisterCallbacks() answers 7", "kernels, copies and sets"], True, False),
    "cuptiActivityEnable": (["cuptiActivityEnable(CONCURRENT_KERNEL) answers 7", "cuptiActivityEnable(MEMSET) answers 7", "copies between devices"], True, False),
    "cuptiActivityDisable": ([], True, True),
    "cuptiActivitySetAttribute": ([], True, True),  # then CUPTI empties buffers itself
    "cuptiActivityFlushAll": (["cuptiActivityFlushAll"], True, None),
    "cuptiActivityGetNextRecord": ([], True, False),  # a loss says so
    "cuptiActivityGetNumDroppedRecords": ([], True, True),
    "cuptiUnsubscribe": ([], True, True),
}


@test
def each_function_of_cupti_refuses(t):
    """The program goes on, and says what it says without us; one note names the function and what it costs; the rest is recorded."""
    where = build(t)
    bare = t.run([f"{where}/driver", "work"], env=doubles(where), status=0).text
    for names, (words, blocks, activities) in REFUSALS.items():
        run = Run(t, "work", FAKE_CUPTI_REFUSES=names)
        t.equal(run.recording.text, bare, f"{names}: what the program says")
        t.equal(len(run.notes()), int(bool(words)), f"{names}: notes {run.notes()}")
        for word in words:
            t.check(word in run.notes()[0], f"{names}: {word!r} is not in the note: {run.notes()[0]}")
        t.equal(len(run.recorded()), 2 if blocks else 0, f"{names}: blocks")
        if activities is not None:
            t.equal(run.db.value("select count(*) from gpu_activity") > 0, activities, f"{names}: activities")
        losses = run.db.rows("select distinct kind from loss")
        t.equal(losses, [("gpu-records",)] if "GetNextRecord" in names else [], f"{names}: losses")
        if blocks and activities and "GetTimestamp" not in names:
            run.compare(t)
            check_work(t, run)


@test
def a_subscription_that_cannot_be_ended(t):
    """The program wants CUPTI, and CUPTI does not let us go: the program is refused, as by any other tool, and a note says why."""
    run = Run(t, "profiler", LD_PRELOAD=f"{build(t)}/libcupti.so.12", FAKE_CUPTI_REFUSES="cuptiUnsubscribe")
    t.equal(run.recording.text.splitlines()[0], "profiler: 39", "what the profiler was told")
    t.check(any("cuptiUnsubscribe" in note for note in run.notes()) and len(run.notes()) == 2, f"notes: {run.notes()}")


@test
def each_function_of_cupti_is_missing(t):
    """As where it refuses."""
    for names, words in ((("cuptiEnableCallback",), []), (("cuptiEnableCallback", "cuptiEnableDomain"), ["cuptiEnableCallback() is missing"]),
                         (("cuptiActivityGetNextRecord",), ["cuptiActivityGetNextRecord() is missing", "kernels"]),
                         (("cuptiActivityGetNumDroppedRecords",), ["cuptiActivityGetNumDroppedRecords() is missing", "not counted"]),
                         (("cuptiGetStreamIdEx",), ["cuptiGetStreamIdEx() is missing", "no stream"]),
                         (("cuptiActivityFlushAll",), ["cuptiActivityFlushAll() is missing", "last records"]),
                         (("cuptiGetDeviceId", "cuCtxGetDevice"), ["cuptiGetDeviceId() is missing", "device 0"]),
                         (("cuptiActivityRegisterTimestampCallback", "cuptiGetTimestamp"), ["cuptiGetTimestamp() is missing", "clock"])):
        run = Run(t, "work", flags=tuple(f"-DWITHOUT_{name}" for name in names))
        t.equal(len(run.notes()), int(bool(words)), f"{names}: notes {run.notes()}")
        for word in words:
            t.check(word in run.notes()[0], f"{names}: {word!r} is not in the note: {run.notes()[0]}")
        t.equal(len(run.recorded()), 0 if "cuptiEnableDomain" in names else 2, f"{names}: blocks")


@test
def kinds_and_functions_that_cupti_does_not_know(t):
    for kind, word in ((10, "kernels"), (1, "copies"), (22, "copies between devices"), (2, "sets"), (17, "takes for itself")):
        run = Run(t, "work", FAKE_CUPTI_REFUSES_KIND=kind)
        run.compare(t)
        t.check(len(run.notes()) == 1 and "answers 21" in run.notes()[0] and word in run.notes()[0], f"{kind}: {run.notes()}")
        t.equal(run.db.value("select count(*) from gpu_activity"), 9 - {10: 4, 1: 3, 22: 1, 2: 1}.get(kind, 0), f"{kind}: other records")
    run = Run(t, "work", FAKE_CUPTI_REFUSES_ID=863)
    whole(t, run)  # a number above all others: of a later CUDA
    run = Run(t, "work", FAKE_CUPTI_REFUSES_ID=245)
    t.equal([(size, freed) for _, size, _, freed in run.recorded()], [(1 << 20, True), (1 << 20, True)], "then all are switched on together")


@test
def times_without_callbacks_of_records(t):
    """A clock of another year and rate, and no way to get buffers: nothing of it is looked at."""
    run = Run(t, "slowly", flags=("-DWITHOUT_cuptiActivityRegisterCallbacks",), FAKE_CUPTI_CLOCK="drift")
    run.compare(t)
    t.check(len(run.notes()) == 1 and "cuptiActivityRegisterCallbacks() is missing" in run.notes()[0], f"notes: {run.notes()}")
    t.equal(run.db.value("select count(*) from gpu_activity"), 0, "activities")
    t.equal(run.db.value("select count(*) from gpu_use"), 3, "uses")
    begin, end = run.db.row("select start_ns, end_ns from process")
    t.equal(run.db.value("select count(*) from gpu_use where ts_ns < ? or ts_ns > ?", begin, end), 0, "uses outside of the run")


@test
def buffers_that_are_odd(t):
    """The last record of a buffer is cut off; one that leads to itself; buffers without any record."""
    run = Run(t, "work", FAKE_CUPTI_CUT=1)
    run.compare(t)
    t.equal(run.db.rows("select distinct kind, reason from loss"), [("gpu-records", "a buffer of CUPTI's could not be read to its end: one, or more")], "a cut record is a loss")
    t.check(run.db.value("select count(*) from gpu_activity") > 0, "what stands before it is read")
    run = Run(t, "work", FAKE_CUPTI_CUT=2)
    run.compare(t)
    t.equal(run.db.rows("select distinct kind from loss"), [("gpu-records",)], "a buffer without an end is a loss")
    run = Run(t, "work", FAKE_CUPTI_EMPTY=1)
    whole(t, run)
    t.equal(run.db.value("select count(*) from gpu_activity"), 0, "no records")


@test
def work_without_times(t):
    """CUPTI's records of four kernels have no start, or an end before it: they are none of ours, and are counted; copies and sets are there."""
    for setting in ("FAKE_CUPTI_UNTIMED", "FAKE_CUPTI_REVERSED"):
        run = Run(t, "work", **{setting: 10})
        run.compare(t)
        t.equal(run.db.rows("select kind, sum(count), reason from loss group by kind, reason"), [("gpu-records", 4, "CUPTI could not time them")], f"{setting}: losses")
        t.equal(run.db.rows("select kind, count(*) from gpu_activity group by 1"), [("memcpy", 4), ("memset", 1)], f"{setting}: what is there")


main()
