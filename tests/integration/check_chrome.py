#!/usr/bin/env python3
"""Checks Chrome trace JSON against the rules that its viewers set; written from their documentation, knowing nothing of the exporter.

    check_chrome.py FILE        (plain or gzip, - for standard input) prints a summary, or every broken rule and exits with 1

Rules: valid JSON without duplicate keys or NaN; no displayTimeUnit; only phases that current Perfetto reads; microseconds with exactly
three decimals, none negative; X events nest within their thread and come parents first; B/E not mixed with X; async b/e in pairs with one
id; counters have a category, numbers only, and times that never go back within a series; every process is named; instants have a scope.
"""
import collections
import gzip
import json
import re
import sys

PHASES = set("BEbenXCRIistfM")


def no_duplicates(pairs):
    keys = [k for k, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError(f"duplicate key in {keys}")
    return dict(pairs)


class Number(str):
    """A number as it is written, so that its decimals can be checked."""


def load(path):
    data = sys.stdin.buffer.read() if path == "-" else open(path, "rb").read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    text = data.decode("utf-8")

    def constant(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(text, object_pairs_hook=no_duplicates, parse_float=Number, parse_constant=constant)


def nanoseconds(event, key, broken):
    value = event.get(key)
    if not isinstance(value, Number) or not re.fullmatch(r"\d+\.\d{3}", value):
        broken.append(f"{key} {value!r} is not microseconds with three decimals: {event}")
        return 0
    return int(value.replace(".", ""))


def check(trace):
    broken = []
    counts = collections.Counter()
    if "displayTimeUnit" in trace:
        broken.append("displayTimeUnit is set")
    open_scopes = collections.defaultdict(list)  # thread -> ends of the open X events
    last_start = {}
    phases = collections.defaultdict(set)
    pairs = {}
    last_count = {}
    named, used = set(), set()
    for e in trace["traceEvents"]:
        phase = e.get("ph")
        counts[phase] += 1
        if phase not in PHASES:
            broken.append(f"phase {phase!r} is not read by viewers: {e}")
        if not isinstance(e.get("pid"), int) or not isinstance(e.get("tid"), int) or not isinstance(e.get("name"), str):
            broken.append(f"pid, tid or name is missing: {e}")
            continue
        if phase == "M":
            if e["name"] == "process_name":
                named.add(e["pid"])
            if not isinstance(e.get("args"), dict) or len(e["args"]) != 1:
                broken.append(f"metadata without its argument: {e}")
            continue
        used.add(e["pid"])
        thread = (e["pid"], e["tid"])
        phases[thread].add(phase)
        ts = nanoseconds(e, "ts", broken)
        if phase == "X":
            end = ts + nanoseconds(e, "dur", broken)
            start, longest = last_start.get(thread, (-1, 0))
            if ts < start or (ts == start and end > longest):
                broken.append(f"scopes are not sorted, parents first: {e}")
            last_start[thread] = (ts, end)
            ends = open_scopes[thread]
            while ends and ends[-1] <= ts:
                ends.pop()
            if ends and end > ends[-1]:
                broken.append(f"scope does not lie within its parent: {e}")
            ends.append(end)
        elif phase == "C":
            if not e.get("cat"):
                broken.append(f"counter without a category: {e}")
            if not e.get("args") or not all(isinstance(v, (int, Number)) and not isinstance(v, bool) for v in e["args"].values()):
                broken.append(f"counter without numbers: {e}")
            series = (e["pid"], e["name"])
            if ts < last_count.get(series, 0):
                broken.append(f"counter goes back in time: {e}")
            last_count[series] = ts
        elif phase in "ben":
            key = (e.get("cat"), e.get("id"))
            if None in key:
                broken.append(f"async event without id or category: {e}")
            elif phase == "b":
                if key in pairs:
                    broken.append(f"async id used twice: {e}")
                pairs[key] = ts
            elif phase == "e" and pairs.pop(key, ts + 1) > ts:
                broken.append(f"async end without a begin before it: {e}")
        elif phase in "iI" and e.get("s") not in ("t", "p", "g"):
            broken.append(f"instant without a scope: {e}")
    for thread, seen in phases.items():
        if "X" in seen and seen & {"B", "E"}:
            broken.append(f"X and B/E are mixed on {thread}")
    broken += [f"async begin without an end: {key}" for key in pairs]
    broken += [f"process {pid} has no name" for pid in sorted(used - named)]
    return broken, counts


def main():
    try:
        trace = load(sys.argv[1])
        broken, counts = check(trace)
    except (ValueError, KeyError, OSError, EOFError) as error:
        broken, counts = [f"not a trace: {error}"], {}
    for rule in broken[:50]:
        print(rule)
    if broken:
        return 1
    print(" ".join(f"{phase}={n}" for phase, n in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
