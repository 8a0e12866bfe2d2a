"""Compares a database with the figures that PyTorch or the driver program wrote of the same run; used on real devices and on the traces kept of them.

Every function returns {claim: [sentences, one for each thing that is not so]}; a claim without sentences holds.
"""


def rows(db, query, *arguments):
    return db.execute(query, arguments).fetchall()


def live_at_mark(db, heap, mark):
    found = rows(db, "select s.live_bytes from snapshot as s join heap as h on h.id = s.heap_id where h.name = ? and s.label = ?", heap, f"mark:{mark}")
    return found[0][0] if found else None


def state_at(db, ts):
    """What PyTorch said of its allocator at that instant."""
    found = rows(db, "select p.allocated_bytes, p.reserved_bytes, p.active_bytes, p.inactive_bytes from pool_state as p join heap as h on h.id = p.heap_id"
                     " where h.name = 'torch.cuda:0' and p.ts_ns <= ? order by p.ts_ns desc limit 1", ts)
    return found[0] if found else (None, None, None, None)


def device_bytes_within(given, ts, segment):
    """Of the addresses of a segment: what the driver had given then, as one block or, with expandable segments, as mappings."""
    return sum(size for address, size, begin, end in given
               if segment["address"] <= address and address + size <= segment["address"] + segment["size"] and begin <= ts < end)


def training(db, figures):
    claims = {name: [] for name in ("allocated, at every mark", "reserved, at every mark", "active and inactive, at every mark", "allocations, at every mark",
                                    "segments are memory of the device", "no more is live than the device says is used", "the peak of allocated",
                                    "the size of the device", "a refusal is recorded", "kernels have scopes")}
    of_device = rows(db, "select address, size_bytes, alloc_ns, coalesce(free_ns, 1 << 62) from allocation as a join heap as h on h.id = a.heap_id"
                         " where h.name in ('cuda:0', 'cuda-map:0')")
    for mark in figures["marks"]:
        at = f"at mark {mark['name']}: "
        ts = rows(db, "select ts_ns from mark where name = ?", mark["name"])
        if not ts:
            claims["allocated, at every mark"].append(at + "there is no such mark")
            continue
        ts = ts[0][0]
        live, state = live_at_mark(db, "torch.cuda:0", mark["name"]), state_at(db, ts)
        if live != mark["allocated"] or state[0] != mark["allocated"]:
            claims["allocated, at every mark"].append(at + f"{live} bytes are live, {state[0]} told, PyTorch says {mark['allocated']}")
        if state[1] != mark["reserved"]:
            claims["reserved, at every mark"].append(at + f"{state[1]}, PyTorch says {mark['reserved']}")
        if state[2:] != (mark["active"], mark["inactive"]):
            claims["active and inactive, at every mark"].append(at + f"{state[2:]}, PyTorch says {mark['active']}, {mark['inactive']}")
        made = rows(db, "select count(*) from allocation as a join heap as h on h.id = a.heap_id where h.name = 'torch.cuda:0' and a.alloc_ns <= ?", ts)[0][0]
        if made != mark["allocations"]:
            claims["allocations, at every mark"].append(at + f"{made}, PyTorch says {mark['allocations']}")
        for segment in mark["segments"]:
            given = device_bytes_within(of_device, ts, segment)
            if given != segment["size"]:
                claims["segments are memory of the device"].append(at + f"{given} bytes of the device at {segment['address']:#x}, a segment of {segment['size']}")
        live = live_at_mark(db, "cuda:0", mark["name"])
        if live is None or live > mark["total"] - mark["free"]:
            claims["no more is live than the device says is used"].append(at + f"{live} live, {mark['total'] - mark['free']} used")
    peak = rows(db, "select max(live_bytes) from peak where heap = 'torch.cuda:0'")[0][0]
    highest = max(mark["allocated_peak"] for mark in figures["marks"])
    if peak != highest:
        claims["the peak of allocated"].append(f"{peak}, PyTorch says {highest}")
    size = rows(db, "select total_bytes from gpu_device where device = 0")
    if size != [(figures["device_bytes"],)]:
        claims["the size of the device"].append(f"{size}, PyTorch says {figures['device_bytes']}")
    if not figures.get("refused"):
        claims["a refusal is recorded"].append("PyTorch was not refused anything")
    elif not rows(db, "select 1 from oom where api like 'cu%' and device_total_bytes > 0"):
        claims["a refusal is recorded"].append("there is none")
    if not rows(db, "select 1 from gpu_activity where kind = 'kernel' and scope_id is not null"):
        claims["kernels have scopes"].append("none has")
    return claims


def calls(db, figures):
    have = sorted(rows(db, "select h.name, a.api, a.size_bytes from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda%'"
                           " and a.free_ns is not null"))
    wanted = sorted((b["heap"], b["api"], b["size"]) for b in figures["blocks"])
    found = len(rows(db, "select 1 from oom where api like 'cu%'"))  # the driver itself is refused room for what it is asked for, too
    return {"every block, with its function, and ended": [f"{block} is missing or not ended" for block in wanted if block not in have],
            "refusals": [] if found == figures["refused"] else [f"{found}, {figures['refused']} were asked for"]}


def rare(db, figures):
    """A use is known by the block that its address lies in, and that by its size, of which there is one."""
    used = dict(rows(db, "select cast(a.size_bytes as text), count(*) from gpu_use as u join allocation as a on u.address >= a.address and u.address < a.address + a.size_bytes"
                         " and u.ts_ns >= a.alloc_ns and u.ts_ns <= a.free_ns join heap as h on h.id = a.heap_id where h.name = 'cuda:0' group by 1"))
    refused = [api for api, in rows(db, "select api from oom where api like 'cu%' and api not like 'cuMem%' order by ts_ns")]
    return {"every block, with its function, and ended": calls(db, {**figures, "refused": 0})["every block, with its function, and ended"],
            "uses": [f"{used.get(bytes_, 0)} of the block of {bytes_} bytes, {times} were made" for bytes_, times in figures["uses"].items() if used.get(bytes_, 0) != times],
            "refusals by function": [] if refused == figures["refused"] else [f"{refused}, {figures['refused']} were refused"]}


def spread(numbers, unit):
    numbers = sorted(numbers)
    if not numbers:
        return "none"
    return f"{numbers[0] / unit:.1f}, {numbers[len(numbers) // 2] / unit:.1f}, {numbers[-1] / unit:.1f} (least, middle, most of {len(numbers)})"


def answers(db):
    """What nobody knew before a real device was seen: {question: answer}, from a recording. None of it is right or wrong."""
    def value(query, *arguments):
        found = rows(db, query, *arguments)
        return found[0][0] if found else None

    def listed(query):
        return ", ".join(" ".join("-" if value is None else str(value) for value in row) for row in rows(db, query)) or "none"
    gpu = "from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda%'"
    in_stacks = "with recursive up(id, stack) as (select distinct a.id, a.stack_id " + gpu + " union select up.id, s.parent_id from up join stack as s on s.id = up.stack)"
    return {
        "which CUPTI and driver": listed("select distinct path from module where path like '%libcupti%' or path like '%libcuda.so%'"),
        "devices": listed("select device, name, uuid, total_bytes from gpu_device"),
        "blocks by heap and function": listed(f"select h.name, a.api, count(*) {gpu} group by 1, 2 order by 1, 2"),
        "blocks whose innermost frame is the driver's": value(
            "select count(*) from allocation as a join heap as h on h.id = a.heap_id join stack as s on s.id = a.stack_id join frame as f on f.id = s.frame_id"
            " join module as m on m.id = f.module_id where h.name like 'cuda%' and (m.path like '%libcuda.so%' or m.path like '%libcupti%')"),
        "blocks by where their stacks begin": listed(in_stacks + " select coalesce(f.function, m.path, 'nowhere'), count(*) from up join stack as s on s.id = up.stack"
                                                     " left join frame as f on f.id = s.frame_id left join module as m on m.id = f.module_id where s.parent_id = 0"
                                                     " group by 1 order by 2 desc"),
        "notes about stacks and devices": listed("select text from note where kind in ('cut-stacks', 'stack', 'gpu')"),
        "microseconds from a launch to its kernel's start": spread([n for n, in rows(
            db, "select start_ns - launch_ns from gpu_activity where kind = 'kernel' and launch_ns is not null")], 1e3),
        "microseconds of a kernel": spread([n for n, in rows(db, "select end_ns - start_ns from gpu_activity where kind = 'kernel'")], 1e3),
        "work without a launch": value("select count(*) from gpu_activity where launch_ns is null"),
        "launches, and of kernels; those that told what they use, and of kernels; uses, and those of no block": listed(
            "select launches, kernels, told_launches, told_kernels, uses, stray_uses from gpu_process"),
        "records of allocations, by kind of memory (streams of blocks; older recorders: what CUPTI says)": listed("select operation, memory_kind, count(*) from gpu_memory group by 1, 2 order by 1, 2"),
        "blocks that have a stream": value("select count(*) from gpu_block where stream is not null"),
        "states of pools, by heap": listed("select h.name, count(*) from pool_state as p join heap as h on h.id = p.heap_id group by 1 order by 1"),
        "what the management library tells": listed("select name, count(*), max(value) from sample where name like 'device%' group by 1 order by 1"),
        "calls of the driver, mean and longest ns": listed("select name, count, mean_duration_ns, longest_duration_ns from gpu_work where kind = 'call' order by 2 desc limit 6"),
        "CUPTI's own time, by reason": listed("select name, count, total_duration_ns from gpu_work where kind = 'overhead' order by 1"),
        "events of memory that have no stack, by function": listed("select h.name, a.api, count(*) from allocation as a join heap as h on h.id = a.heap_id where a.stack_id = 0"
                                                                   " group by 1, 2 order by 3 desc"),
        "refusals": listed("select api, size_bytes, result, device_free_bytes from oom"),
        "lost": listed("select kind, count, reason from loss"),
    }


def tools(db):
    """Of the programs that a program runs: compilers, linkers."""
    found = rows(db, "select p.exe, count(distinct a.stack_id), count(distinct case when s.parent_id = 0 then a.stack_id end) from allocation as a join process as p"
                     " on p.id = a.process_id join stack as s on s.id = a.stack_id group by 1 order by 2 desc limit 12")
    return {"stacks by executable, and those of one frame": ", ".join(" ".join(str(value) for value in row) for row in found)}


COMPARISONS = {"training": training, "calls": calls, "rare": rare}


def differences(kind, db, figures):
    return [f"{claim}: {why}" for claim, wrong in COMPARISONS[kind](db, figures).items() for why in wrong]
