"""Compares a database with the figures that PyTorch or the driver program wrote of the same run; used on real devices and on the traces kept of them.

Every function returns a list of sentences, one for each thing that is not equal; none is fine.
"""


def rows(db, query, *arguments):
    return db.execute(query, arguments).fetchall()


def live_at_mark(db, heap, mark):
    found = rows(db, "select s.live_bytes from snapshot as s join heap as h on h.id = s.heap_id where h.name = ? and s.label = ?", heap, f"mark:{mark}")
    return found[0][0] if found else None


def training(db, figures):
    wrong = []
    for mark in figures["marks"]:
        name = mark["name"]
        live = live_at_mark(db, "torch.cuda:0", name)
        if live != mark["allocated"]:
            wrong.append(f"at mark {name}: torch.cuda:0 has {live} bytes live, PyTorch says {mark['allocated']}")
        state = rows(db, "select p.allocated_bytes, p.reserved_bytes from pool_state as p join heap as h on h.id = p.heap_id join mark as m on m.name = ?"
                         " where h.name = 'torch.cuda:0' and p.ts_ns <= m.ts_ns order by p.ts_ns desc limit 1", name)
        if not state or state[0][1] != mark["reserved"]:
            wrong.append(f"at mark {name}: reserved is {state}, PyTorch says {mark['reserved']}")
        ts = rows(db, "select ts_ns from mark where name = ?", name)
        for segment in mark["segments"]:
            if ts and not rows(db, "select 1 from allocation as a join heap as h on h.id = a.heap_id where h.name = 'cuda:0' and a.address = ? and a.size_bytes = ?"
                                   " and a.alloc_ns <= ? and coalesce(a.free_ns, 1 << 62) > ?", segment["address"], segment["size"], ts[0][0], ts[0][0]):
                wrong.append(f"at mark {name}: no live block of cuda:0 for the segment of {segment['size']} bytes at {segment['address']:#x}")
    peak = rows(db, "select max(live_bytes) from peak where heap = 'torch.cuda:0'")[0][0]
    highest = max(mark["allocated_peak"] for mark in figures["marks"])
    if peak != highest:
        wrong.append(f"the peak of torch.cuda:0 is {peak}, PyTorch says {highest}")
    if "refused" in figures and not rows(db, "select 1 from oom where device_total_bytes > 0"):
        wrong.append("no refusal was recorded")
    if not rows(db, "select 1 from gpu_activity where kind = 'kernel' and scope_id is not null"):
        wrong.append("no kernel has a scope")
    return wrong


def calls(db, figures):
    have = sorted(rows(db, "select h.name, a.api, a.size_bytes from allocation as a join heap as h on h.id = a.heap_id where h.name like 'cuda%'"
                           " and a.free_ns is not null"))
    wanted = sorted((b["heap"], b["api"], b["size"]) for b in figures["blocks"])
    wrong = [f"missing or not ended: {block}" for block in wanted if block not in have]
    if len(rows(db, "select 1 from oom")) != figures["refused"]:
        wrong.append("the refusals differ")
    return wrong


COMPARISONS = {"training": training, "calls": calls}
