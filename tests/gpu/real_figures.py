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


def device_bytes_within(db, ts, segment):
    """Of the addresses of a segment: what the driver had given then, as one block or, with expandable segments, as mappings."""
    return rows(db, "select coalesce(sum(a.size_bytes), 0) from allocation as a join heap as h on h.id = a.heap_id where h.name in ('cuda:0', 'cuda-map:0')"
                    " and a.address >= ? and a.address + a.size_bytes <= ? and a.alloc_ns <= ? and coalesce(a.free_ns, 1 << 62) > ?",
                segment["address"], segment["address"] + segment["size"], ts, ts)[0][0]


def training(db, figures):
    claims = {name: [] for name in ("allocated, at every mark", "reserved, at every mark", "active and inactive, at every mark", "allocations, at every mark",
                                    "segments are memory of the device", "no more is live than the device says is used", "the peak of allocated",
                                    "the size of the device", "a refusal is recorded", "kernels have scopes")}
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
            given = device_bytes_within(db, ts, segment)
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
    elif not rows(db, "select 1 from oom where device_total_bytes > 0"):
        claims["a refusal is recorded"].append("there is none")
    if not rows(db, "select 1 from gpu_activity where kind = 'kernel' and scope_id is not null"):
        claims["kernels have scopes"].append("none has")
    return claims


def calls(db, figures):
    have = sorted(rows(db, "select h.name, a.api, a.size_bytes from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda%'"
                           " and a.free_ns is not null"))
    wanted = sorted((b["heap"], b["api"], b["size"]) for b in figures["blocks"])
    found = len(rows(db, "select 1 from oom"))
    return {"every block, with its function, and ended": [f"{block} is missing or not ended" for block in wanted if block not in have],
            "refusals": [] if found == figures["refused"] else [f"{found}, {figures['refused']} were asked for"]}


COMPARISONS = {"training": training, "calls": calls}


def differences(kind, db, figures):
    return [f"{claim}: {why}" for claim, wrong in COMPARISONS[kind](db, figures).items() for why in wrong]
