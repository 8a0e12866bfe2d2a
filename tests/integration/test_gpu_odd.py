"""Recording of CUDA where it is odd: memory that goes other ways than it came, contexts, graphs, refusals that pass, forks, closed libraries, numbers that come again,
clocks that run at another rate, buffers that come late, functions that the machine's libraries lack; and nothing at all where CUDA is not used.

Method: scenarios of tests/gpu/driver.c over the doubles; every figure is worked out by hand from the scenario, or is what the double of the driver wrote down.
"""
import os
import re

from gpu_run import Run, build, check_work, doubles
from tidemark_test import main, test

MIB = 1 << 20
ON = "from allocation as a join heap as h on h.id = a.heap_id where h.name"


def mark_ns(run, name):
    return run.db.value("select ts_ns from mark where name = ?", name)


def whole(t, run):
    run.compare(t)
    t.equal(run.notes(), [], "notes")
    t.equal(run.db.rows("select kind, count from loss"), [], "losses")


@test
def memory_of_another_process_opened_twice(t):
    run = Run(t, "ipc")
    whole(t, run)
    t.equal(run.db.rows(f"select a.free_ns > ? {ON} = 'cuda-ipc:0'", mark_ns(run, "closed once")), [(1,)], "it is open until it is closed as often")


@test
def a_primary_context_released(t):
    run = Run(t, "primary")
    whole(t, run)
    live = f"select count(*) {ON} = 'cuda:0' and a.size_bytes = 1000 and a.alloc_ns <= :at and coalesce(a.free_ns, 1 << 62) > :at"
    t.equal([run.db.value(live.replace(":at", str(mark_ns(run, name)))) for name in ("released once", "released")], [3, 0], "live after each release")
    t.equal(run.db.rows(f"select a.size_bytes, a.free_ns {ON} = 'cuda:1'"), [(700, None)], "another device's")
    without = Run(t, "primary", flags=("-DWITHOUT_cuDevicePrimaryCtxGetState",))
    t.equal(without.db.value(f"select count(*) {ON} = 'cuda:0' and a.size_bytes = 1000 and a.free_ns is null"), 3, "where nobody says that it was the last")


@test
def graphs(t):
    run = Run(t, "graphs")
    whole(t, run)
    t.equal(run.db.rows(f"select a.size_bytes, a.api, a.free_ns is null {ON} = 'cuda-graph:0' order by a.alloc_ns"),
            [(3 * MIB, "cuGraphAddMemAllocNode", 0), (MIB, "cuGraphAddMemAllocNode", 0), (2 * MIB, "cuGraphAddMemAllocNode", 0), (5000, "cuMemAllocAsync", 1),
             (7000, "cuMemAllocAsync", 1), (9000, "cuMemAllocFromPoolAsync", 1)], "memory of nodes")
    t.equal(run.db.rows("select allocated_bytes, reserved_bytes from pool_state as p join heap as h on h.id = p.heap_id where h.name = 'cuda-graph:0' order by ts_ns"),
            [(3 * MIB + 21000, 3 * MIB + 21000), (21000, 3 * MIB + 21000), (21000, 21000)], "what graphs hold: two launches, and the trim")
    work = run.db.rows("select a.kind, a.name, n.text from gpu_activity as a left join scope_packed as p on p.id = a.scope_id left join scope_name as n"
                       " on n.id = p.name_id order by a.correlation_id, a.start_ns, a.kind")
    one = [("kernel", "first_of_graph"), ("kernel", "second_of_graph"), ("memset", None)]
    t.equal(sorted(work, key=str), sorted([(*w, "replay") for w in one] + [(*w, None) for w in one], key=str), "work of a graph, in the scope of its launch")
    t.equal(run.db.row("select graphs, uses_known from gpu_process"), (2, 0), "what graphs use is not known")
    without = Run(t, "graphs", flags=("-DWITHOUT_cuDeviceGetGraphMemAttribute", "-DWITHOUT_cuStreamIsCapturing"))
    t.equal(without.db.value("select count(*) from pool_state as p join heap as h on h.id = p.heap_id where h.name like 'cuda-graph%'"), 0, "no function, no states")
    t.equal(without.db.rows(f"select a.size_bytes {ON} = 'cuda-pool:0' order by 1"), [(5000,), (6000,), (7000,), (8000,), (9000,)], "a captured block is taken for one of the pool")


@test
def given_back_elsewhere(t):
    """Stream-ordered memory on another stream, by another thread with another device, and by cuMemFree."""
    run = Run(t, "streams")
    whole(t, run)
    t.equal(run.db.rows(f"select a.size_bytes, a.free_ns is not null, a.free_thread_id = a.thread_id {ON} = 'cuda-pool:0' order by 1"),
            [(1000, 1, 1), (2000, 1, 0), (3000, 1, 1)], "blocks")


@test
def refused_then_trimmed_then_given(t):
    """512 MiB in a pool, of which 128 are handed out: 768 are refused. After a trim there are 896 free, so they are given. Then a launch and a context are refused."""
    run = Run(t, "refused-and-again")
    whole(t, run)
    rows = run.db.rows("select heap, api, size_bytes, device_free_bytes, device_total_bytes, pool_idle_bytes, live_bytes from gpu_oom order by ts_ns")
    t.equal(rows, [("cuda:0", "cuMemAlloc", 768 * MIB, 512 * MIB, 1 << 30, 384 * MIB, 128 * MIB), ("cuda:0", "cuLaunchKernel", None, 128 * MIB, 1 << 30, 128 * MIB, 768 * MIB),
                   ("cuda:5", "cuDevicePrimaryCtxRetain", None, None, None, None, 0)], "refusals")
    t.equal(run.db.rows("select why from gpu_oom order by ts_ns"),
            [("asked for 768.0 MiB, 512.0 MiB of the device's 1024.0 MiB were free; this process held 128.0 MiB on cuda:0; 384.0 MiB were kept by the driver's pools and not in use",),
             ("wanted memory for itself, how much is not told, 128.0 MiB of the device's 1024.0 MiB were free; this process held 768.0 MiB on cuda:0; 128.0 MiB were kept by"
              " the driver's pools and not in use",),
             ("wanted memory for itself, how much is not told",)], "why")
    t.equal(run.db.rows("select heap, live_bytes, live_count from gpu_oom_site where oom_id = 1"), [("cuda-pool:0", 128 * MIB, 1)], "what was live")
    t.check(run.db.value(f"select a.alloc_ns {ON} = 'cuda:0' and a.size_bytes = ?", 768 * MIB) > run.db.value("select min(ts_ns) from oom"), "then it was given")
    t.equal(run.db.value("select count(*) from gpu_activity"), 0, "what was refused did not run")


@test
def managed_memory_asked_for_in_advance(t):
    run = Run(t, "managed")
    whole(t, run)
    t.equal(run.db.rows("select uses, launches_before, launches_after from gpu_block"), [(1, 0, 0)], "one kernel read it")


@test
def names_of_any_kind(t):
    run = Run(t, "names")
    names = [name for name, in run.db.rows("select name from gpu_activity order by correlation_id")]
    t.equal(len(names), 2, "kernels")
    t.equal(names[0], "n" * 4096, "a name of 6,000 bytes ends after 4,096")
    t.check(names[1] and "n" not in names[1], f"a name that is no text: {names[1]!r}")


@test
def forks_in_the_middle(t):
    """Twenty children of a process whose threads allocate: each calls the driver, which it must not, and leaves. None hangs, none asks CUPTI, none is recorded."""
    run = Run(t, "forks")
    run.compare(t)
    t.equal(run.db.value("select count(*) from process"), 21, "processes")
    t.equal(run.db.rows(f"select distinct a.process_id {ON} like 'cuda%'"), [(1,)], "who allocated")
    t.equal(run.db.rows("select distinct end_kind, end_code from process"), [("exit", 0)], "ends")


@test
def libraries_that_come_and_go(t):
    """The program knows nothing of CUDA; libraries that use it are closed again, and another may lie at the same address."""
    where = build(t)
    run = Run(t, "host", command=("host", f"{where}/one.so", "one", "1000", f"{where}/two.so", "two", "2000", f"{where}/one.so", "one", "3000"))
    run.compare(t)
    t.equal(run.db.rows(f"select a.size_bytes, a.free_ns is null, (select text from stack_text as s where s.stack_id = a.stack_id) {ON} = 'cuda:0' order by 1"),
            [(size + more, more, f"main;{name}") for size, name in ((1000, "one"), (2000, "two"), (3000, "one")) for more in (0, 1)], "blocks and stacks")
    t.equal(run.notes(), [], "notes")


@test
def stacks_of_both_kinds_of_memory(t):
    """One thread takes memory of the host and of a device in turn, and is refused some, at depths that go up and down; each block's size says at which."""
    run = Run(t, "mixed")
    for query, kinds in (("select a.size_bytes, s.text from allocation as a join heap as h on h.id = a.heap_id join stack_text as s using (stack_id)"
                          " where h.name = ? and a.size_bytes between 100000 and 100039", ("malloc", "cuda:0")),
                         ("select o.size_bytes >> 30, s.text from oom as o join heap as h on h.id = o.heap_id join stack_text as s using (stack_id) where h.name = ?",
                          ("cuda:0",))):
        for heap in kinds:
            rows = run.db.rows(query, heap)
            t.check(len(rows) > 100, f"{len(rows)} blocks in {heap}")
            wrong = [row for row in rows if row[1] != "main;mixed" + ";deeper" * (row[0] - 100000 + 1)]
            t.equal(wrong[:3], [], f"stacks in {heap}")


@test
def numbers_of_devices_and_parts_of_devices(t):
    """A process that sees the devices in another order: what the management library says goes by the uuid. So it does for parts of a device (MIG)."""
    where = build(t)
    for order, mig, wanted in ((None, "", [100, 200]), ("1,0", "", [200, 100]), ("1,0", "1", [200, 100]), (None, "1", [100, 200])):
        env = {**doubles(where), **({"CUDA_VISIBLE_DEVICES": order} if order else {}), **({"FAKE_NVML_MIG": mig} if mig else {})}
        db = t.imported(t.record([f"{where}/driver", "wait"], "--quiet", env=env), options=("--quiet",))
        t.equal([db.value("select max(value) from sample where name = ?", f"device_all:{n}") for n in range(2)], [n * MIB for n in wanted], f"{order} {mig}")
        t.equal(db.rows("select name from gpu_device order by device"), [(f"Fake GPU {n // 100 - 1}",) for n in wanted], "devices")


@test
def numbers_of_calls_that_come_again(t):
    """The driver counts its calls in 32 bits. The sixth call is number 0, which stands for none."""
    run = Run(t, "work", FAKE_CUDA_CORRELATION=2 ** 32 - 6)
    whole(t, run)
    numbers = [int(line.split()[5]) for line in run.lines if line.startswith("work")]
    t.equal(numbers, [2 ** 32 - 2, 2 ** 32 - 1, 0, 1, 2, 3, 4, 5, 6], "numbers")
    t.equal(run.db.rows("select correlation_id, launch_ns is not null from gpu_activity order by start_ns"), [(n or None, int(n != 0)) for n in numbers], "work")
    t.equal(run.db.value("select count(*) from gpu_activity as a join scope_packed as p on p.id = a.scope_id"), 2, "in its scope")


@test
def clocks_of_another_year_and_rate(t):
    """CUPTI's own clock began elsewhere and runs three times as fast; kernels that were launched half a second apart began right after their launches."""
    run = Run(t, "slowly", FAKE_CUPTI_CLOCK="drift")
    whole(t, run)
    off = [abs(start - launch) for start, launch in run.db.rows("select start_ns, launch_ns from gpu_activity where kind = 'kernel' order by 1")]
    t.equal(len(off), 3, "kernels")
    t.check(max(off) < 250_000_000, f"kernels begin {off} ns from their launches")


@test
def buffers_that_come_late(t):
    """CUPTI gives its buffer back when exit() has run the handlers of those that subscribed."""
    run = Run(t, "work", FAKE_CUPTI_LATE=1)
    whole(t, run)
    check_work(t, run)


@test
def functions_that_libcuda_lacks(t):
    """Each costs what it is for, and nothing else."""
    def lacking(scenario, name):
        run = Run(t, scenario, flags=(f"-DWITHOUT_{name}",))
        whole(t, run)
        return run.db
    t.equal(lacking("out-of-memory", "cuMemGetInfo_v2").rows("select distinct device_free_bytes, device_total_bytes from oom"), [(None, None)], "what was free")
    for name, column in (("cuDeviceGetName", "name"), ("cuDeviceGetUuid_v2", "uuid"), ("cuDeviceTotalMem_v2", "total_bytes")):
        row = lacking("ipc", name).row("select name, uuid, total_bytes from gpu_device")
        t.equal([not value for value in row], [column == other for other in ("name", "uuid", "total_bytes")], f"a device without {name}: {row}")
    db = lacking("work", "cuFuncGetParamInfo")
    t.equal(db.row("select kernels, told_kernels, uses, uses_known from gpu_process"), (4, 0, 7, 0), "uses, without kernels'")
    db = lacking("streams", "cuMemPoolGetAttribute")
    t.equal(db.value("select count(*) from pool_state"), 0, "what pools hold, which nobody says")
    lacking("threads", "cuCtxGetDevice")


@test
def functions_that_cupti_lacks(t):
    """Each costs what it is for; that a note says so is tried with test_gpu_places.py's refusals."""
    for name in ("cuptiActivityEnable", "cuptiActivityGetNextRecord"):
        run = Run(t, "work", flags=(f"-DWITHOUT_{name}",))
        run.compare(t)
        t.equal(run.db.value("select count(*) from gpu_activity"), 0, f"activities without {name}")
    for name in ("cuptiActivityDisable", "cuptiUnsubscribe", "cuptiEnableCallback"):
        run = Run(t, "work", flags=(f"-DWITHOUT_{name}",))
        whole(t, run)
        check_work(t, run)
    run = Run(t, "work", flags=("-DWITHOUT_cuptiActivityFlushAll",))
    run.compare(t)


KINDS = {"leaked": (1, 4096, 1), "never_used": (1, 4096, 5), "allocated_early": (1, 4096, 5), "freed_late": (1, 4096, 5), "idle": (1, 4096, 5),
         "churn": (None, None, None), "redundant": (11, 11 * 4096, None)}


@test
def each_inefficiency_and_its_opposite(t):
    """tests/gpu/inefficient.c: count, bytes and launches of other work as they follow from the program, with words that say so; the better program has none of it."""
    where = build(t)
    for kind, (count, size, launches) in KINDS.items():
        for how in ("bad", "good"):
            run = Run(t, f"{kind}-{how}", command=("inefficient", kind, how))
            whole(t, run)
            rows = run.db.rows("select count, bytes, launches, evidence, longest_duration_ns from gpu_inefficiency where kind = ? and function = 'subject'", kind)
            t.equal(len(rows), how == "bad", f"{kind}, {how}: {rows}")
            t.equal(run.db.value("select uses_known from gpu_process"), 1, "uses are known")
            if how == "good":
                continue
            row = rows[0]
            if kind == "churn":
                t.check(10 <= row[0] <= 1000 and row[1] == row[0] * 4096, f"churn: {row}")
                t.equal(row[3], f"{row[0]} blocks lived for less than 1 ms", "evidence")
                continue
            t.equal(row[:3], (count, size, launches), f"{kind}: {row}")
            t.check(row[3] and re.search(r"\d", row[3]), f"{kind}: evidence {row[3]!r}")
            if kind in ("never_used", "allocated_early", "freed_late", "idle"):
                t.check(row[4] >= 200_000_000 and "5 pieces of" in row[3], f"{kind}: {row}")
            where_of = run.db.row("select a.size_bytes, f.function from gpu_inefficiency as i join allocation as a on a.id = i.allocation_id join stack as s on"
                                  " s.id = a.stack_id join frame as f on f.id = s.frame_id where i.kind = ? and i.function = 'subject'", kind)
            t.equal(where_of, (4096, "subject"), "the block that is shown for it")


main()
