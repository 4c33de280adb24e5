#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the entries of a store, following Documentation/format.md alone and sharing no code with the library.

Use: read_image.py FILE.lines | read_image.py DEVICE... (raw files, in order). Prints one JSON object. Whatever does not
verify ends it with an error that names the place.
"""
import json
import struct
import sys
from pathlib import Path

MASK64 = 2**64 - 1
STRIPE = 2 << 20


class Damaged(Exception):
    """Something that must verify does not."""


# ---- CRC, seals, checks ----------------------------------------------------------------------------------------------

def crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def crc(register: int, data: bytes) -> int:
    for byte in data:
        register = register >> 8 ^ TABLE[(register ^ byte) & 0xFF]
    return register


def word(value: int) -> bytes:
    return struct.pack("<Q", value)


def splitmix64(seed: int, n: int) -> int:
    z = (seed + n * 0x9E3779B97F4A7C15) & MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


SEED = 0x4B434C4F4F50564B
BASE = [splitmix64(SEED, 1 + k) for k in range(8)]
STEP = [splitmix64(SEED, 9 + k) | 0x0000000100000001 for k in range(8)]


def mix(h: int, v: int) -> int:
    h = (h ^ v) * 0x9E3779B97F4A7C15 & MASK64
    h ^= h >> 29
    return ((h << 23 | h >> 41) + 0x632BE59BD9B4E019) & MASK64


def finish(h: int) -> int:
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93 & MASK64
    return h ^ h >> 32


def segment_check(lines: list[bytes]) -> int:
    p, q, d = [0] * 8, [0] * 8, [0] * 8
    for i, line in enumerate(lines):
        w = struct.unpack("<8Q", line)
        u = [w[k] ^ (BASE[k] + i * STEP[k]) & MASK64 for k in range(8)]
        for k in range(8):
            p[k] = (p[k] + (u[k] & 0xFFFFFFFF) * (u[k] >> 32)) & MASK64
            q[k] = (q[k] + (u[k] & 0xFFFFFFFF) * (u[k ^ 1] >> 32)) & MASK64
            d[k] = (d[k] + w[k]) & MASK64
    h = mix(SEED, len(lines))
    for value in p + q + d:
        h = mix(h, value)
    return finish(h)


def table_hash(checks: list[int]) -> int:
    h = mix(SEED, ~len(checks) & MASK64)
    for value in checks:
        h = mix(h, value)
    return finish(h)


# ---- devices ---------------------------------------------------------------------------------------------------------

def load_lines(path: Path) -> list[bytearray]:
    devices: list[bytearray] = []
    for text in path.read_text().splitlines():
        part = text.split()
        if not part or part[0].startswith("#"):
            continue
        if part[0] == "device":
            devices.append(bytearray(int(part[2])))
            continue
        at = int(part[1], 16)
        devices[int(part[0])][at:at + 64] = struct.pack("<8Q", *(int(w, 16) for w in part[2:]))
    return devices


class Store:
    def __init__(self, devices: list[bytearray]):
        self.devices = devices
        self.superblock()
        self.claims()
        self.region_table()

    def raw(self, device: int, byte: int) -> bytes:
        line = bytes(self.devices[device][byte:byte + 64])
        if len(line) != 64:
            raise Damaged(f"device {device} ends before byte {byte:#x}")
        return line

    def seed(self, device: int, byte: int, epoch: int) -> int:
        return crc(crc(self.base, word(epoch)), word(device << 56 | byte)) or 0x6B767031

    def sealed(self, device: int, byte: int, epoch: int = 0):
        """The line, or None if it does not verify."""
        line = self.raw(device, byte)
        good = crc(self.seed(device, byte, epoch), line[:60]) == struct.unpack("<I", line[60:])[0]
        return line if good and line != b"\xff" * 64 else None

    def need(self, device: int, byte: int, epoch: int, what: str) -> bytes:
        line = self.sealed(device, byte, epoch)
        if line is None:
            raise Damaged(f"{what} at device {device}, byte {byte:#x} does not verify")
        return line

    def superblock(self) -> None:
        self.copies = [(0, 0), (1, 0) if len(self.devices) > 1 else (0, 8192)]
        for device, byte in self.copies:
            line = self.raw(device, byte)
            head = crc(crc(0xFFFFFFFF, b"KVPOOL_1"), word(line[45])) or 0x6B767031
            if line[:8] != b"KVPOOL_1" or crc(head, line[:60]) != struct.unpack("<I", line[60:])[0]:
                continue
            self.uuid, self.nonce = line[8:24], line[24:32]
            if line[47] != 1 or line[46] != len(self.devices) or line[44] != 2:
                raise Damaged("version, device count or state")
            self.base = crc(0xFFFFFFFF, self.uuid + self.nonce)
            a, b = self.sealed(device, byte + 64), self.sealed(device, byte + 128)
            if a is None or b is None:
                continue
            (self.lease_ms, _, _, self.hosts, self.members_per_host, self.standbys, _, self.namespaces, self.request_lines,
             self.response_slots, self.controls, _, _, self.extent_stripes, _, _) = struct.unpack("<IIIBBBBHHHBBIIQQ", a[:48])
            self.area_bytes, *self.area_offset, self.extent_lines = struct.unpack("<QQQQ", b[:32])
            self.extent_bytes = self.extent_stripes * STRIPE
            return
        raise Damaged("no copy of the superblock verifies")

    def claims(self) -> None:
        best = None
        for slot in range(self.standbys):
            copies = [c for device, byte in self.copies if (c := self.sealed(device, byte + (8 + slot) * 64))]
            if not copies:
                raise Damaged(f"claim of slot {slot}")
            claim = max(copies, key=lambda c: struct.unpack("<II", c[:8]))
            active, groups, area = struct.unpack("<I", claim[4:8])[0], struct.unpack("<Q", claim[24:32])[0], claim[36]
            if best is None or active > best[0]:
                best = (active, groups, slot, area)
        self.epoch, self.groups, slot, area = best
        if self.epoch == 0:
            raise Damaged("no active area")
        self.area_device = area if self.controls == 2 else 0
        self.area_byte = self.area_offset[area] + slot * self.area_bytes

    def area_line(self, number: int, what: str) -> bytes:
        return self.need(self.area_device, self.area_byte + number * 64, self.epoch, what)

    def region_table(self) -> None:
        self.regions = []
        for r in range(16):
            head = self.area_line(4 * r, "region")
            pages = b"".join(self.area_line(4 * r + 1 + i, "places")[:56] for i in range(3))
            first, count, state, places = struct.unpack("<IIBB", head[:10])
            if state == 2:
                self.regions.append({"first": first, "count": count, "device": head[12:12 + places],
                                     "page": list(struct.iter_unpack("<II", pages))[:places],
                                     "retired": struct.unpack("<I", head[28:32])[0]})

    def stripe(self, extent: int, stripe: int) -> tuple[int, int, int]:
        """Device, byte of the stripe, byte of its strip."""
        for region in self.regions:
            in_use = region["count"] - region["retired"]
            if region["first"] <= extent < region["first"] + in_use:
                s = (extent - region["first"]) * self.extent_stripes + stripe
                k, row = s % len(region["device"]), s // len(region["device"])
                data, strip = region["page"][k]
                return region["device"][k], data * 4096 + row * STRIPE, strip * 4096 + row * 2048
        raise Damaged(f"extent {extent} is in no region")

    def payload_line(self, address: int) -> tuple[int, int]:
        extent, byte = divmod(address, self.extent_bytes)
        device, data, _ = self.stripe(extent, byte // STRIPE)
        return device, data + byte % STRIPE

    def strip_line(self, unit: int) -> tuple[int, int]:
        extent, byte = divmod(unit * 65536, self.extent_bytes)
        device, _, strip = self.stripe(extent, byte // STRIPE)
        return device, strip + byte % STRIPE // 65536 * 64

    def map_word(self, extent: int) -> dict:
        line = 64 + self.namespaces + extent // 8
        byte = self.area_byte + line * 64 + extent % 8 * 8
        value = struct.unpack("<Q", self.devices[self.area_device][byte:byte + 8])[0]
        c = crc(self.seed(self.area_device, byte, self.epoch), word(value & (1 << 48) - 1))
        if ((c ^ c >> 16) & 0xFFFF or 0x6B76) != value >> 48:
            raise Damaged(f"map word of extent {extent}")
        return {"holder": value & 255, "tag": value >> 8 & 0xFFFF, "class": value >> 24 & 63, "flags": value >> 30 & 63,
                "ns": value >> 36 & 0xFFF}

    # ---- blocks and entries ----

    @staticmethod
    def segments(lines: int, shards: int) -> tuple[bool, list[tuple[int, int, int]]]:
        """Whether the checks stand in the strip; shard, first line and number of lines of each segment."""
        strip = lines % 1024 == 0 and lines // 1024 >= shards
        unit = 1024 if strip else 1
        out = []
        for i in range(shards):
            first, end = lines // unit * i // shards * unit, lines // unit * (i + 1) // shards * unit
            out += [(i, at, min(1024, end - at)) for at in range(first, end, 1024)]
        return strip, out

    def check_block(self, address: int, lines: int, shards: int) -> int:
        """The table hash of a block whose payload was found to match its checks."""
        strip, segments = self.segments(lines, shards)
        checks, nonces = [], set()
        for number, (shard, first, count) in enumerate(segments):
            at = self.strip_line(-(-address // 65536) + number) if strip else self.payload_line(address + (lines + number) * 64)
            line = self.need(*at, 0, "check line")
            check, _, nonce, segment, segment_lines, of, shard_count = struct.unpack("<QQQIIHH", line[:36])
            if (segment, segment_lines, of, shard_count) != (number, count, shard, shards):
                raise Damaged(f"check line of segment {number} at {at}")
            payload = [self.raw(*self.payload_line(address + (first + i) * 64)) for i in range(count)]
            if segment_check(payload) != check:
                raise Damaged(f"payload of segment {number} of the block at {address:#x}")
            checks.append(check)
            nonces.add(nonce)
        if len(nonces) != 1:
            raise Damaged(f"the block at {address:#x} is of several publications")
        return table_hash(checks)

    def entries(self) -> list[dict]:
        out = []
        names = {1: "empty", 2: "pending", 3: "published", 4: "draining", 5: "hidden"}
        for number in range(self.groups * 4):
            line = self.area_line(64 + self.namespaces + self.extent_lines + number, f"entry {number}")
            state = names[line[57] & 7]
            if state == "empty":
                continue
            version, check_hash, length, low, high, _, ns = struct.unpack("<QQIIBBH", line[32:60])
            k0, k1 = struct.unpack("<QQ", line[:16])
            first, second = k0 * self.groups >> 64, k1 * self.groups >> 64
            if first == second:
                second = (second + 1) % self.groups
            if number // 4 not in (first, second):
                raise Damaged(f"entry {number} stands in a foreign group")
            entry = {"entry": number, "key": line[:32].hex(), "state": state, "ns": ns}
            if state == "pending":
                entry |= {"slot": check_hash & 0xFFFF, "duration_ms": check_hash >> 16}
            else:
                lines, shards, address = length & (1 << 26) - 1, (length >> 26) + 1, (high << 32 | low) * 256
                if self.check_block(address, lines, shards) != check_hash:
                    raise Damaged(f"entry {number}: another table of checks was published")
                entry |= {"version": version, "bytes": lines * 64, "shards": shards, "address": address,
                          "class": self.map_word(address // self.extent_bytes)["class"]}
            out.append(entry)
        return out

    def namespace_line(self, n: int) -> bytes:
        """What was stored in part stands whole in the last line of the table, sealed for its own place."""
        try:
            return self.area_line(64 + n, f"namespace {n}")
        except Damaged:
            spare = self.raw(self.area_device, self.area_byte + 64 * (64 + self.namespaces - 1))
            seed = self.seed(self.area_device, self.area_byte + 64 * (64 + n), self.epoch)
            if crc(seed, spare[:60]) != struct.unpack("<I", spare[60:])[0]:
                raise
            return spare

    def listing(self) -> dict:
        namespaces = {}
        for n in range(1, self.namespaces - 1):
            line = self.namespace_line(n)
            if struct.unpack("<H", line[40:42])[0] & 1:
                namespaces[n] = line[44:60].rstrip(b"\0").decode()
        return {"uuid": self.uuid.hex(), "epoch": self.epoch, "extents": sum(r["count"] for r in self.regions),
                "namespaces": namespaces, "entries": self.entries()}


def main() -> int:
    paths = [Path(p) for p in sys.argv[1:]]
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    devices = load_lines(paths[0]) if paths[0].suffix == ".lines" else [bytearray(p.read_bytes()) for p in paths]
    try:
        print(json.dumps(Store(devices).listing(), indent=1))
    except Damaged as what:
        print(f"read_image: {what}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
