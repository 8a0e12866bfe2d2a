#!/usr/bin/env python3
"""Makes inputs for the fuzz targets of traces: seed.py CORPUS TRACE...     (CORPUS: tests/fuzz/corpus)

A payload target's input is one byte that chooses and a payload; fuzz_import's are chunks without their frames. Both come from the sound chunks.
"""
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
import tmkread  # noqa: E402


def sound_chunks(data):
    at, sequence = 16, 0
    while at < len(data):
        try:
            kind, end, payload = tmkread.read_chunk(data, at, sequence)
        except tmkread.Damage:
            return
        yield kind, payload.data
        at, sequence = end, sequence + 1


def write(corpus, target, data):
    os.makedirs(os.path.join(corpus, target), exist_ok=True)
    with open(os.path.join(corpus, target, hashlib.sha1(data).hexdigest()), "wb") as file:
        file.write(data)


def main():
    for path in sys.argv[2:]:
        with open(path, "rb") as file:
            data = file.read()
        write(sys.argv[1], "fuzz_payload", b"\0" + data)
        chunks = list(sound_chunks(data)) if data[:8] == b"TIDEMARK" else []
        for kind, payload in chunks:
            write(sys.argv[1], "fuzz_payload", bytes([kind]) + payload)
        if chunks and all(len(payload) < 65536 for _, payload in chunks):
            write(sys.argv[1], "fuzz_import", b"".join(bytes([kind]) + len(payload).to_bytes(2, "little") + payload for kind, payload in chunks))


if __name__ == "__main__":
    main()
