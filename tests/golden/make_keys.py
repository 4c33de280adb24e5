#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes keys.json from the written definition of keys alone (Documentation/format.md), not from the library.

Use: make_keys.py [--check]. With --check, compares with the file beside it and fails when they differ.
"""
import hashlib
import json
import struct
import sys
from pathlib import Path

GOLDEN = Path(__file__).with_name("keys.json")
DEFAULTS = {"name": "default", "layout": "hg-l-kv-t-h-d", "quant": "none", "padding": "none", "salt": "", "block_tokens": 16,
            "tp_groups": 1, "hash": "sha256", "components": []}
DESCRIPTIONS = [
    {"model": "Qwen3-32B@main", "dtype": "bf16"},
    {"model": "Qwen3-32B@main", "dtype": "fp8_e4m3", "salt": "74656e616e7400ff", "hash": "blake2b"},
    {"name": "sixteen-bytes-ns", "model": "DeepSeek-V3.2", "dtype": "fp8_e4m3", "layout": "l-t-c", "quant": "block128", "padding": "64",
     "block_tokens": 64, "tp_groups": 8, "components": [["kv", 0, 0], ["indexer", 10240, 0], ["state", 4096, 2]]},
    {"model": "m", "dtype": "f32", "block_tokens": 1},
]
WRAPPED = [b"\x00", b"engine key", bytes(range(256))]


def canonical(description: dict) -> bytes:
    def line(name: str, value: bytes) -> bytes:
        return name.encode() + b"=" + str(len(value)).encode() + b":" + value + b"\n"

    text = b"kvpool namespace 1\n"
    for name in ("name", "model", "dtype", "layout", "quant", "padding"):
        text += line(name, description[name].encode())
    text += line("salt", bytes.fromhex(description["salt"]))
    for name in ("block_tokens", "tp_groups", "hash"):
        text += line(name, str(description[name]).encode())
    for name, size, trailing in description["components"] or [["kv", 0, 0]]:
        text += line("component", name.encode()) + line("component_bytes", str(size).encode())
        text += line("component_trailing", str(trailing).encode())
    return text


def key(description: dict, fingerprint: bytes, epoch: int, kind: int, body: bytes) -> bytes:
    head = fingerprint + struct.pack("<II", epoch, kind) + bytes(24)
    if description["hash"] == "blake2b":
        return hashlib.blake2b(body, key=head, digest_size=32).digest()
    return hashlib.sha256(head + body).digest()


def tokens_of(count: int) -> list[int]:
    return [(i * 2654435761 + 12345) % 2**32 for i in range(count)]


def vectors() -> list[dict]:
    out = []
    for short in DESCRIPTIONS:
        description = DEFAULTS | short
        fingerprint = hashlib.sha256(canonical(description)).digest()
        for epoch in (1, 4000000000):
            size = description["block_tokens"]
            tokens, parent, chain = tokens_of(3 * size), bytes(32), []
            for block in range(3):
                part = tokens[block * size:(block + 1) * size]
                parent = key(description, fingerprint, epoch, 1, parent + struct.pack(f"<{size}I", *part))
                chain.append(parent.hex())
            out.append({"description": description, "fingerprint": fingerprint.hex(), "epoch": epoch,
                        "tokens": "token i = (i * 2654435761 + 12345) mod 2^32", "chain": chain,
                        "wrapped": [{"bytes": raw.hex(), "key": key(description, fingerprint, epoch, 2, raw).hex()}
                                    for raw in WRAPPED]})
    return out


def main() -> int:
    text = json.dumps({"vectors": vectors()}, indent=1) + "\n"
    if "--check" not in sys.argv:
        GOLDEN.write_text(text)
        return 0
    if GOLDEN.read_text() != text:
        print(f"{GOLDEN.name} is not what its definition gives", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
