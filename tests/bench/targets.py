"""What recording is meant to cost at most, held against what was measured: the first table of the results page.

The sections of run.py hand in their figures; what was not measured is shown as such.
"""
from tools import COUNTS, FLOOR, FRAMES, STAMPS

PROGRAMS = [("sqlite3, 1M rows", 1.12), ("clang++ -O2", 1.20), ("cc1plus -O2", 1.18), ("PyTorch CPU training", 1.15), ("python3 json, malloc", 1.80),
            ("redis, server CPU", 1.15), ("redis, pipelined, server CPU", 1.15), ("compute (hardly allocates)", 1.01)]
SAMPLED, BYTES_OF_EVENT, PROCESS_KIB, THREAD_KIB = 1.03, 3.5, 4096, 256
TRUES, OWN_TRUE, SMALL_FILES = "1,000 runs of true in one recording", "true, each in a recording of its own", "make of 100 small C files"
START_MS, IMPORT_RATE = 3.0, 4.0
NAMED_NODES, NAMES_S, NAMES_MIB = 2_000_000, 10, 500


class Targets:
    def __init__(self):
        self.wall, self.bytes, self.cpu, self.added, self.heaptrack, self.counts, self.private, self.starts, self.rates, self.shares = ({} for _ in range(10))
        self.names = None

    # --- what the sections tell ---

    def program(self, name, tool, ratio, bytes_of_event):
        self.wall[name, tool] = ratio
        if tool == "tidemark" and bytes_of_event:
            self.bytes[name] = bytes_of_event

    def pair(self, case, tool, cpu, added, heaptrack):
        self.cpu[case, tool], self.added[case, tool], self.heaptrack[case] = cpu, added, heaptrack

    def instructions(self, stacks, tool, added):
        self.counts[stacks, tool] = added

    def memory(self, threads, tool, kib):
        self.private[threads, tool] = kib

    def start(self, name, ratio, ms_each):
        self.starts[name] = (ratio, ms_each)

    def imported(self, name, events, rate, memory_share, sqlite_rate):
        """Rates in million events a second; SQLite's is of processor time."""
        self.rates[name] = (events, rate, sqlite_rate)
        self.shares[name] = memory_share

    def named(self, nodes, wall_s, peak_mib):
        self.names = (nodes, wall_s, peak_mib)

    # --- the table ---

    def page(self):
        lines = ["## Targets", "", "| what | target | measured | met |", "|---|---:|---:|---|"]
        for what, target, measured, met in self.rows():
            lines.append(f"| {what} | {target} | {'not measured' if measured is None else measured} | {'-' if measured is None else 'yes' if met else '**no**'} |")
        return "\n".join(lines)

    def rows(self):
        yield from self.pair_rows()
        yield from self.program_rows()
        yield from self.other_rows()

    def share(self, case, parts):
        ours, theirs = self.added.get((case, "tidemark")), self.heaptrack.get(case)
        known = ours is not None and theirs
        return (f"added CPU of a pair, {case}, of heaptrack's in-process mode", f"<= 1/{parts}", f"{ours / theirs:.3f} = 1/{theirs / ours:.1f}" if known else None,
                known and ours <= theirs / parts)

    def count(self, stacks, what, limit):
        added = self.counts.get((stacks, "tidemark"))
        return (f"instructions added to a pair at depth 30, {what}", f"<= {limit}", None if added is None else f"{added:.0f}", added is not None and added <= limit)

    def ratio(self, what, values, one, other, limit, beside=()):
        """beside: (case, tool) whose ratios are shown with it, of what does less."""
        known = one in values and other in values and values[other] > 0
        value = values[one] / values[other] if known else None
        floors = "; ".join(f"{tool}: {values[case, tool] / values[other]:.2f}" for case, tool in beside if (case, tool) in values) if known else ""
        return (what, f"<= {limit}", f"{value:.2f}{f' ({floors})' if floors else ''}" if known else None, known and value <= limit)

    def pair_rows(self):
        yield self.share("depth 30, one stack", 8)
        yield self.share("depth 30, random", 5)
        yield self.count("one", "one stack", 450)
        yield self.count("random", "random stacks", 850)
        yield self.ratio("the program's CPU a pair, 2 threads over one", self.cpu, ("depth 30, 2 threads", "tidemark"), ("depth 30, one stack", "tidemark"), 1.1)
        for case in ("depth 30, one stack, frame pointers", "depth 30, random, frame pointers"):
            yield self.ratio(f"--stacks=fp over --stacks=unwind, added CPU of a pair, {case}", self.added, (case, "tidemark fp"), (case, "tidemark"), 0.5,
                             [(case, FRAMES), (case, "tidemark no stacks")])

    def floor(self, program, *tools):
        """What no recorder can be below there."""
        known = [f"{tool}: {self.wall[program, tool]:.3f}" for tool in tools if (program, tool) in self.wall]
        return f" ({'; '.join(known)})" if known else ""

    def program_rows(self):
        for name, limit in PROGRAMS:
            value = self.wall.get((name, "tidemark"))
            yield (f"{name.removesuffix(', server CPU')}, {'server CPU' if 'server' in name else 'wall'} over bare", f"<= {limit:.2f}",
                   None if value is None else f"{value:.3f}{self.floor(name, STAMPS)}", value is not None and value <= limit)
        sampled = {name: value for (name, tool), value in self.wall.items() if tool == "tidemark sampled"}
        worst = max(sampled, key=sampled.get, default=None)
        yield ("sampling at 512 KiB, the worst of the programs", f"<= {SAMPLED:.2f}",
               f"{sampled[worst]:.3f}, {worst}{self.floor(worst, FLOOR, COUNTS)}" if worst else None, worst and sampled[worst] <= SAMPLED)
        mean = sum(self.bytes.values()) / len(self.bytes) if self.bytes else None
        yield ("bytes an event, mean of the programs", f"<= {BYTES_OF_EVENT}", f"{mean:.2f}" if mean else None, mean and mean <= BYTES_OF_EVENT)

    def other_rows(self):
        for threads in (1, 8, 64):
            kib, limit = self.private.get((threads, "tidemark")), PROCESS_KIB + THREAD_KIB * threads
            yield (f"private memory of the program, {threads} threads", f"<= +{limit:,} KiB", None if kib is None else f"{kib:+,} KiB", kib is not None and kib <= limit)
        for name in (TRUES, OWN_TRUE):
            ms = self.starts.get(name, (None, None))[1]
            yield (f"start-up, {name}", f"<= {START_MS:.0f} ms each", None if ms is None else f"{ms:.2f} ms", ms is not None and ms <= START_MS)
        ratio = self.starts.get(SMALL_FILES, (None, None))[0]
        yield (SMALL_FILES + ", wall over bare", "<= 1.30", None if ratio is None else f"{ratio:.3f}", ratio is not None and ratio <= 1.3)
        large = {name: rates for name, (events, *rates) in self.rates.items() if events >= 1_000_000}
        slowest = min(large, key=large.get, default=None)
        rate, alone = large.get(slowest, (0, 0))
        yield ("import, traces of a million events and more, the slowest", f">= {IMPORT_RATE:.0f} M events/s",
               f"{rate:.2f} ({slowest}; SQLite alone, copying the rows: {alone:.2f})" if slowest else None, slowest and rate >= IMPORT_RATE)
        fullest = max(self.shares, key=self.shares.get, default=None)
        yield ("import, peak memory over its bound, the worst", "<= 1.00", f"{self.shares[fullest]:.2f} ({fullest})" if fullest else None,
               fullest and self.shares[fullest] <= 1)
        nodes, wall_s, peak_mib = self.names or (0, 0, 0)
        yield (f"names of a PyTorch trace of {NAMED_NODES:,} stack nodes", f"<= {NAMES_S} s, {NAMES_MIB} MiB",
               f"{wall_s:.1f} s, {peak_mib:.0f} MiB ({nodes:,} nodes)" if self.names else None, self.names and wall_s <= NAMES_S and peak_mib <= NAMES_MIB)
