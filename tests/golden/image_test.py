#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: a reader made from Documentation/format.md alone reads the golden store, and sees damage in it.
How: read_image.py lists store-v1.lines; the listing is what tests/golden/image.hpp put there; then single bits are flipped.
"""
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import read_image  # noqa: E402

IMAGE = HERE / "store-v1.lines"


def key(n: int) -> str:
    return struct.pack("<4Q", *(read_image.splitmix64(n, i) for i in range(1, 5))).hex()


EXPECTED = {
    key(1): ("published", 1, 4096, 1), key(2): ("published", 1, 65536, 1), key(3): ("published", 1, 131072, 2),
    key(4): ("published", 3, 8128, 3), key(5): ("draining", 1, 4096, 1), key(6): ("hidden", 1, 4096, 1),
    key(7): ("pending", 3, None, None),
}


def listing_is_as_built() -> bool:
    listing = read_image.Store(read_image.load_lines(IMAGE)).listing()
    found = {e["key"]: (e["state"], e["ns"], e.get("bytes"), e.get("shards")) for e in listing["entries"]}
    pending = [e for e in listing["entries"] if e["state"] == "pending"]
    return (found == EXPECTED and listing["namespaces"] == {1: "golden-model", 3: "another"}
            and listing["epoch"] == 0x10 and (pending[0]["slot"], pending[0]["duration_ms"]) == (0, 500))


def payload_is_as_built() -> bool:
    store = read_image.Store(read_image.load_lines(IMAGE))
    entry = next(e for e in store.entries() if e["key"] == key(3))
    k0 = read_image.splitmix64(3, 1)
    for line in range(entry["bytes"] // 64):
        want = [read_image.splitmix64(k0, line * 8 + w + 1) if line % 16 == 0 else 0 for w in range(8)]
        if store.raw(*store.payload_line(entry["address"] + line * 64)) != struct.pack("<8Q", *want):
            return False
    return True


def damage_is_seen() -> bool:
    good = read_image.Store(read_image.load_lines(IMAGE))
    entry = next(e for e in good.entries() if e["key"] == key(3))
    places = [good.payload_line(entry["address"] + 64 * 1500), good.strip_line(entry["address"] // 65536 + 1),
              (good.area_device, good.area_byte + 64 * 5), (good.area_device, good.area_byte + 64 * (64 + 2)),
              (good.area_device, good.area_byte + 64 * (64 + good.namespaces) + 8)]
    for device, byte in places:
        devices = read_image.load_lines(IMAGE)
        devices[device][byte + 3] ^= 0x20
        try:
            read_image.Store(devices).listing()
        except read_image.Damaged:
            continue
        print(f"a flipped bit at device {device}, byte {byte:#x} was not seen", file=sys.stderr)
        return False
    return True


def torn_namespace_is_read_from_the_spare_line() -> bool:
    devices = read_image.load_lines(IMAGE)
    store = read_image.Store(devices)
    devices[store.area_device][store.area_byte + 64 * (64 + 3) + 3] ^= 0x20
    return read_image.Store(devices).listing()["namespaces"][3] == "another"


def raw_files_are_read_too() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "device0"
        path.write_bytes(read_image.load_lines(IMAGE)[0])
        run = [sys.executable, str(HERE / "read_image.py"), str(path)]
        good = subprocess.run(run, capture_output=True, check=False)
        path.write_bytes(bytes(1 << 20))
        bad = subprocess.run(run, capture_output=True, check=False)
    return good.returncode == 0 and bad.returncode == 4


CHECKS = [listing_is_as_built, payload_is_as_built, damage_is_seen, torn_namespace_is_read_from_the_spare_line,
          raw_files_are_read_too]
failed = [check.__name__ for check in CHECKS if not check()]
for name in failed:
    print(f"failed: {name}", file=sys.stderr)
print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
sys.exit(1 if failed else 0)
