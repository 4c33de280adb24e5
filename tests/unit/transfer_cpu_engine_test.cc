// SPDX-License-Identifier: Apache-2.0
// Shows: gather, scatter and rows are byte-exact on any geometry (tails, holes, one-byte fragments,
// ranges, stripe edges, poison), with every instruction set, and the checks they compute are the
// reference's.
// How: random plans from a fixed seed against plain loops over a copy of the block.
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arch/x86_memory.hpp"
#include "transfer/cpu_engine.hpp"

using namespace kvpool;
using namespace kvpool::transfer;

namespace {

struct Random {
  u64 state;
  u64 operator()() {
    u64 z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  u64 below(u64 n) { return (*this)() % n; }
  u64 between(u64 low, u64 high) { return low + below(high - low + 1); }
};

constexpr u64 kDevices = 3;
constexpr u64 kDeviceBytes = 2 << 20;

// Three devices in ordinary memory, and blocks in pieces over them.
struct Pool {
  int fd = memfd_create("transfer-test", 0);
  std::byte *base = nullptr;
  std::unique_ptr<X86Memory> mem;

  explicit Pool(const X86Options &options = {}) {
    cr_assert_eq(ftruncate(fd, kDevices * kDeviceBytes), 0);
    void *p = mmap(nullptr, kDevices * kDeviceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(p, MAP_FAILED);
    base = static_cast<std::byte *>(p);
    std::vector<DeviceMapping> devices;
    for (u64 d = 0; d < kDevices; ++d) devices.push_back({base + d * kDeviceBytes, kDeviceBytes});
    mem = std::make_unique<X86Memory>(devices, options);
  }
  ~Pool() {
    munmap(base, kDevices * kDeviceBytes);
    close(fd);
  }
  std::byte *at(PoolOffset off) const { return base + off.device() * kDeviceBytes + off.byte(); }

  // Pieces of random length that take turns on the devices.
  std::vector<Piece> pieces(Random &random, u64 bytes) const {
    std::vector<Piece> list;
    u64 next[kDevices] = {};
    while (bytes > 0) {
      const u32 device = static_cast<u32>(list.size() % kDevices);
      const u64 longest = std::min(bytes, kDeviceBytes / 8) / kLineBytes;
      const u64 n = random.between(1, longest) * kLineBytes;
      next[device] += random.below(3) * kLineBytes;
      list.push_back({PoolOffset(device, next[device]), n});
      next[device] += n;
      bytes -= n;
    }
    for (const u64 end : next) cr_assert_leq(end, kDeviceBytes);
    return list;
  }
  std::vector<std::byte> image(const std::vector<Piece> &pieces) const {
    std::vector<std::byte> bytes;
    for (const Piece &piece : pieces) {
      bytes.insert(bytes.end(), at(piece.pool), at(piece.pool) + piece.bytes);
    }
    return bytes;
  }
  void fill(const std::vector<Piece> &pieces, Random &random) const {
    for (const Piece &piece : pieces) {
      for (u64 i = 0; i < piece.bytes; i += 8) {
        const u64 word = random();
        std::memcpy(at(piece.pool) + i, &word, 8);
      }
    }
  }
};

std::vector<X86Options> instruction_sets() {
  std::vector<X86Options> list;
  for (const Isa isa : {Isa::kSse2, Isa::kAvx2, Isa::kAvx512, Isa::kMovdir64b}) {
    X86Choice choice;
    std::string error;
    if (choose_x86({isa, FlushInsn::kAuto}, choice, error) == 0) list.push_back({isa});
  }
  return list;
}

// A random plan: runs that do not overlap in the block nor in local memory.
struct Geometry {
  std::vector<Run> runs;
  u64 block_bytes = 0;
  u64 local_bytes = 0;
};

void add_single_fragments(Random &random, Geometry &g) {
  const u64 typical = u64{1} << random.below(16);
  u64 at = random.below(3) == 0 ? random.below(300) : 0;
  while (at < g.block_bytes && g.runs.size() < 1000) {
    const u64 bytes = std::min(g.block_bytes - at, random.between(1, 2 * typical));
    g.runs.push_back({0, g.local_bytes + random.below(70), at, bytes, 1, 0, 0});
    g.local_bytes = g.runs.back().local_offset + bytes;
    at += bytes;
    if (random.below(4) == 0) at += random.below(random.below(2) == 0 ? 100 : 9000);
  }
}

// Runs side by side in each period of the block, as K and V of a layer.
void add_strided(Random &random, Geometry &g) {
  const u64 lanes = random.between(1, 4);
  u64 sizes[4];
  u64 period = random.below(2) * random.below(200);
  for (u64 i = 0; i < lanes; ++i) {
    sizes[i] = random.below(2) == 0 ? random.between(1, 200) : random.between(1, 80) * kLineBytes;
    period += sizes[i];
  }
  const u64 count = std::min(g.block_bytes / period, random.between(1, 300));
  u64 at = 0;
  for (u64 i = 0; i < lanes && count > 0; ++i) {
    const u64 stride = sizes[i] + random.below(2) * random.below(100);
    const bool down = random.below(3) == 0;
    const u64 first = g.local_bytes + (down ? (count - 1) * stride : 0);
    const auto step = static_cast<std::int64_t>(stride);
    g.runs.push_back({0, first, at, sizes[i], count, down ? -step : step, period});
    g.local_bytes += count * stride;
    at += sizes[i];
  }
}

Geometry random_geometry(Random &random) {
  Geometry g;
  const u64 longest = u64{1} << random.between(0, 14);
  g.block_bytes = random.between(1, std::min(longest, u64{16000})) * kLineBytes;
  g.block_bytes = std::min(g.block_bytes, u64{700} << 10);
  if (random.below(2) == 0) {
    add_single_fragments(random, g);
  } else {
    add_strided(random, g);
  }
  g.local_bytes += 128;
  for (u64 i = g.runs.size(); i > 1; --i) std::swap(g.runs[i - 1], g.runs[random.below(i)]);
  return g;
}

// What every byte of the block has to be after writing.
std::vector<std::byte> expected_block(const Geometry &g, const std::byte *local) {
  std::vector<std::byte> block(g.block_bytes);
  for (const Run &run : g.runs) {
    for (u64 i = 0; i < run.count; ++i) {
      std::memcpy(block.data() + run.block_offset + i * run.block_stride,
                  local + run.local_offset + static_cast<std::int64_t>(i) * run.local_stride,
                  run.fragment_bytes);
    }
  }
  return block;
}

// What local memory has to be after reading [begin, end).
void expected_local(const Geometry &g, const std::vector<std::byte> &block, Range range,
                    std::vector<std::byte> &local) {
  for (const Run &run : g.runs) {
    for (u64 i = 0; i < run.count; ++i) {
      const u64 at = run.block_offset + i * run.block_stride;
      const u64 to =
          run.local_offset + static_cast<u64>(static_cast<std::int64_t>(i) * run.local_stride);
      for (u64 k = 0; k < run.fragment_bytes; ++k) {
        if (at + k >= range.begin && at + k < range.end) local[to + k] = block[at + k];
      }
    }
  }
}

u64 reference_check(const std::byte *from, u64 bytes) {
  CheckLanes lanes{};
  check_add_reference(lanes, from, bytes / kLineBytes, 0);
  return check_fold(lanes, bytes / kLineBytes);
}

std::vector<std::byte> random_bytes(Random &random, u64 bytes) {
  std::vector<std::byte> list(bytes + 8);
  for (u64 i = 0; i < bytes; i += 8) {
    const u64 word = random();
    std::memcpy(list.data() + i, &word, 8);
  }
  list.resize(bytes);
  return list;
}

Segments random_segments(Random &random, u64 block_bytes) {
  const u64 shards = random.below(3) == 0 ? random.between(1, 8) : 1;
  const u64 lines = block_bytes / kLineBytes;
  return {block_bytes, std::max<u64>((lines + shards - 1) / shards, 1) * kLineBytes};
}

void write_and_compare(Random &random, const Pool &pool, u64 round) {
  const Geometry g = random_geometry(random);
  const std::vector<std::byte> local = random_bytes(random, g.local_bytes);
  const std::vector<Piece> pieces = pool.pieces(random, g.block_bytes);
  pool.fill(pieces, random);
  const LocalMemory memories[] = {{const_cast<std::byte *>(local.data()), local.size()}};
  Plan plan;
  cr_assert_eq(plan.prepare(g.runs, memories, g.block_bytes, Direction::kWrite), 0, "round %lu",
               round);
  const Segments segments = random_segments(random, g.block_bytes);
  const bool checked = random.below(4) != 0;
  std::vector<u64> checks(segments.count());
  for (u64 at = 0; at < g.block_bytes; at += segments.shard_bytes) {
    const Range shard{at, std::min(at + segments.shard_bytes, g.block_bytes)};
    u64 *ret_checks = checked ? checks.data() + segments.index_of(at) : nullptr;
    cr_assert_eq(gather_write(*pool.mem, pieces, plan, shard, ret_checks), 0);
  }
  pool.mem->drain();
  const std::vector<std::byte> expected = expected_block(g, local.data());
  const std::vector<std::byte> image = pool.image(pieces);
  cr_assert_eq(std::memcmp(image.data(), expected.data(), expected.size()), 0, "round %lu", round);
  for (u64 i = 0; checked && i < checks.size(); ++i) {
    const Range r = segments.range_of(i);
    cr_assert_eq(checks[i], reference_check(expected.data() + r.begin, r.end - r.begin),
                 "round %lu segment %lu", round, i);
  }
}

void read_and_compare(Random &random, const Pool &pool, u64 round) {
  const Geometry g = random_geometry(random);
  std::vector<std::byte> local = random_bytes(random, g.local_bytes);
  const std::vector<Piece> pieces = pool.pieces(random, g.block_bytes);
  pool.fill(pieces, random);
  const std::vector<std::byte> block = pool.image(pieces);
  Range range{0, g.block_bytes};
  if (random.below(3) == 0) {
    range.begin = random.below(g.block_bytes);
    range.end = random.between(range.begin, g.block_bytes);
  }
  std::vector<std::byte> expected = local;
  expected_local(g, block, range, expected);
  const LocalMemory memories[] = {{local.data(), local.size()}};
  Plan plan;
  cr_assert_eq(plan.prepare(g.runs, memories, g.block_bytes, Direction::kRead), 0, "round %lu",
               round);
  const Segments segments = random_segments(random, g.block_bytes);
  constexpr u64 kUntouched = 0x5A5A5A5A5A5A5A5Aull;
  std::vector<u64> checks(segments.count(), kUntouched);
  const bool checked = random.below(2) != 0;
  cr_assert_eq(
      scatter_read(*pool.mem, pieces, plan, range, segments, checked ? checks.data() : nullptr), 0);
  cr_assert_eq(std::memcmp(local.data(), expected.data(), expected.size()), 0, "round %lu", round);
  const Range whole = segments.whole_in(range);
  for (u64 i = 0; checked && i < checks.size(); ++i) {
    const Range r = segments.range_of(i);
    const bool inside = r.begin >= range.begin && r.end <= range.end && range.begin < range.end;
    cr_assert_eq(i >= whole.begin && i < whole.end, inside, "round %lu segment %lu", round, i);
    const u64 want = inside ? reference_check(block.data() + r.begin, r.end - r.begin) : kUntouched;
    cr_assert_eq(checks[i], want, "round %lu segment %lu", round, i);
  }
}

}  // namespace

Test(transfer_cpu_engine, gather_is_exact_on_random_geometry, .timeout = 60) {
  Random random{1};
  for (const X86Options &options : instruction_sets()) {
    const Pool pool(options);
    for (u64 round = 0; round < 400; ++round) write_and_compare(random, pool, round);
  }
}

Test(transfer_cpu_engine, scatter_is_exact_on_random_geometry, .timeout = 60) {
  Random random{2};
  for (const X86Options &options : instruction_sets()) {
    const Pool pool(options);
    for (u64 round = 0; round < 600; ++round) read_and_compare(random, pool, round);
  }
}

Test(transfer_cpu_engine, one_byte_fragments_fill_windows_to_their_bounds) {
  const Pool pool;
  Random random{3};
  // Every second byte, descending in local memory: as many copies a line as there can be with gaps.
  constexpr u64 kBlock = 128 * 1024;
  for (const u64 stride : {1u, 2u, 3u}) {
    Geometry g;
    g.block_bytes = kBlock;
    const u64 count = (kBlock - 1) / stride + 1;
    g.local_bytes = 2 * count;
    g.runs.push_back({0, 2 * (count - 1), 0, 1, count, -2, stride});
    std::vector<std::byte> local = random_bytes(random, g.local_bytes);
    const std::vector<Piece> pieces = pool.pieces(random, kBlock);
    const LocalMemory memories[] = {{local.data(), local.size()}};
    Plan plan;
    cr_assert_eq(plan.prepare(g.runs, memories, kBlock, Direction::kWrite), 0);
    cr_assert_eq(gather_write(*pool.mem, pieces, plan, {0, kBlock}, nullptr), 0);
    pool.mem->drain();
    const std::vector<std::byte> block = pool.image(pieces);
    cr_assert(block == expected_block(g, local.data()));
    std::vector<std::byte> back(local.size());
    std::vector<std::byte> expected = back;
    expected_local(g, block, {0, kBlock}, expected);
    const LocalMemory to[] = {{back.data(), back.size()}};
    cr_assert_eq(plan.prepare(g.runs, to, kBlock, Direction::kRead), 0);
    const Segments segments = Segments::unsharded(kBlock);
    u64 checks[2];
    cr_assert_eq(scatter_read(*pool.mem, pieces, plan, {0, kBlock}, segments, checks), 0);
    cr_assert(back == expected);
    cr_assert_eq(checks[1], reference_check(block.data() + kSegmentBytes, kSegmentBytes));
  }
}

Test(transfer_cpu_engine, each_line_is_flushed_once_and_round_trips_do_not_grow) {
  const Pool pool;
  Random random{4};
  constexpr u64 kBlock = 512 * 1024;
  std::vector<std::byte> local(kBlock);
  const std::vector<Piece> pieces = pool.pieces(random, kBlock);
  const LocalMemory memories[] = {{local.data(), local.size()}};
  const Run run{0, 0, 0, kBlock / 128, 128, kBlock / 128, kBlock / 128};
  Plan plan;
  cr_assert_eq(plan.prepare({&run, 1}, memories, kBlock, Direction::kRead), 0);
  const Counters before = pool.mem->total_counters();
  cr_assert_eq(
      scatter_read(*pool.mem, pieces, plan, {0, kBlock}, Segments::unsharded(kBlock), nullptr), 0);
  const Counters after = pool.mem->total_counters();
  cr_assert_eq(after.lines_fetched - before.lines_fetched, kBlock / kLineBytes);
  cr_assert_eq(after.data_waves - before.data_waves, 1u);
  cr_assert_eq(after.round_trips, before.round_trips);
  // A plan that wants two lines of a block fetches two lines.
  const Run two[] = {{0, 0, 100, 8, 1, 0, 0}, {0, 8, 300000, 8, 1, 0, 0}};
  cr_assert_eq(plan.prepare(two, memories, kBlock, Direction::kRead), 0);
  cr_assert_eq(
      scatter_read(*pool.mem, pieces, plan, {0, kBlock}, Segments::unsharded(kBlock), nullptr), 0);
  cr_assert_eq(pool.mem->total_counters().lines_fetched - after.lines_fetched, 2u);
}

Test(transfer_cpu_engine, a_gate_ends_a_write_and_poison_ends_a_read) {
  Pool pool;
  Random random{5};
  constexpr u64 kBlock = 256 * 1024;
  std::vector<std::byte> local = random_bytes(random, kBlock);
  const std::vector<Piece> pieces = {{PoolOffset(2, kDeviceBytes - kBlock), kBlock}};
  const LocalMemory memories[] = {{local.data(), local.size()}};
  const Run run{0, 0, 0, kBlock, 1, 0, 0};
  Plan plan;
  cr_assert_eq(plan.prepare({&run, 1}, memories, kBlock, Direction::kWrite), 0);
  int asked = 0;
  const auto gate = [&asked] { return ++asked <= 2; };
  cr_assert_eq(gather_write(*pool.mem, pieces, plan, {0, kBlock}, nullptr, gate), -ECANCELED);
  pool.mem->drain();
  const std::byte *block = pool.at(pieces[0].pool);
  cr_assert_eq(std::memcmp(block, local.data(), 2 * kSegmentBytes), 0);
  for (u64 i = 2 * kSegmentBytes; i < kBlock; ++i) cr_assert_eq(block[i], std::byte{0});
  // The end of the last device goes away.
  cr_assert_eq(ftruncate(pool.fd, kDevices * kDeviceBytes - 4096), 0);
  cr_assert_eq(plan.prepare({&run, 1}, memories, kBlock, Direction::kRead), 0);
  const Segments segments = Segments::unsharded(kBlock);
  cr_assert_eq(scatter_read(*pool.mem, pieces, plan, {0, kBlock}, segments, nullptr), -EIO);
  cr_assert_eq(scatter_read(*pool.mem, pieces, plan, {0, kBlock - 4096}, segments, nullptr), 0);
}

Test(transfer_cpu_engine, wrong_ranges_are_refused) {
  const Pool pool;
  std::vector<std::byte> local(4096);
  const LocalMemory memories[] = {{local.data(), local.size()}};
  const std::vector<Piece> pieces = {{PoolOffset(0, 0), 4096}};
  const Run run{0, 0, 0, 4096, 1, 0, 0};
  Plan plan;
  cr_assert_eq(plan.prepare({&run, 1}, memories, 4096, Direction::kRead), 0);
  const Segments segments = Segments::unsharded(4096);
  cr_assert_eq(gather_write(*pool.mem, pieces, plan, {0, 100}, nullptr), -EINVAL);
  cr_assert_eq(gather_write(*pool.mem, pieces, plan, {64, 0}, nullptr), -EINVAL);
  cr_assert_eq(gather_write(*pool.mem, pieces, plan, {0, 8192}, nullptr), -ERANGE);
  cr_assert_eq(scatter_read(*pool.mem, pieces, plan, {10, 5}, segments, nullptr), -EINVAL);
  cr_assert_eq(scatter_read(*pool.mem, pieces, plan, {0, 4097}, segments, nullptr), -ERANGE);
  cr_assert_eq(scatter_read(*pool.mem, pieces, plan, {0, 64}, {4096, 100}, nullptr), -EINVAL);
  const std::vector<Piece> half = {{PoolOffset(0, 0), 2048}};
  cr_assert_eq(scatter_read(*pool.mem, half, plan, {0, 64}, segments, nullptr), -ERANGE);
  cr_assert_eq(gather_write(*pool.mem, half, plan, {0, 64}, nullptr), -ERANGE);
}

// ---- rows ---------------------------------------------------------------------------------------

namespace {

struct RowsGeometry {
  u64 block_count, block_bytes, rows_per_block, row_bytes, row_stride, block_offset;
};

RowsGeometry random_rows(Random &random) {
  RowsGeometry g{};
  g.block_count = random.between(1, 6);
  g.row_bytes = random.below(4) == 0 ? 1 : random.between(1, random.below(8) == 0 ? 9000 : 300);
  g.row_stride = g.row_bytes + random.below(2) * random.below(64);
  g.block_offset = random.below(200);
  g.rows_per_block = random.between(1, std::max<u64>(1, 60000 / g.row_stride));
  const u64 end = g.block_offset + (g.rows_per_block - 1) * g.row_stride + g.row_bytes;
  g.block_bytes = (end + random.below(100) + kLineBytes - 1) / kLineBytes * kLineBytes;
  return g;
}

void rows_and_compare(Random &random, const Pool &pool, u64 round) {
  const RowsGeometry g = random_rows(random);
  std::vector<std::vector<Piece>> blocks;
  std::vector<std::byte> image;
  std::vector<Piece> all = pool.pieces(random, g.block_count * g.block_bytes);
  pool.fill(all, random);
  // Cuts the common list of pieces into blocks, so that blocks begin and end in the middle of
  // pieces.
  u64 piece = 0, used = 0;
  for (u64 b = 0; b < g.block_count; ++b) {
    std::vector<Piece> list;
    for (u64 need = g.block_bytes; need > 0;) {
      const u64 n = std::min(need, all[piece].bytes - used);
      list.push_back({all[piece].pool + used, n});
      need -= n;
      used += n;
      if (used == all[piece].bytes) {
        ++piece;
        used = 0;
      }
    }
    const std::vector<std::byte> block = pool.image(list);
    image.insert(image.end(), block.begin(), block.end());
    blocks.push_back(list);
  }
  std::vector<std::int64_t> rows(random.below(3000));
  for (auto &row : rows) {
    row = random.below(8) == 0
              ? -1
              : static_cast<std::int64_t>(random.below(g.block_count * g.rows_per_block));
  }
  RowsPlan plan{rows, g.row_bytes, g.row_stride, g.rows_per_block, g.block_offset, {}, 0, 0};
  plan.local_offset = random.below(64);
  plan.local_stride = g.row_bytes + random.below(32);
  std::vector<std::byte> local =
      random_bytes(random, plan.local_offset + rows.size() * plan.local_stride + 64);
  std::vector<std::byte> expected = local;
  for (u64 i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0) continue;
    const u64 row = static_cast<u64>(rows[i]);
    const u64 from = row / g.rows_per_block * g.block_bytes + g.block_offset +
                     row % g.rows_per_block * g.row_stride;
    std::memcpy(expected.data() + plan.local_offset + i * plan.local_stride, image.data() + from,
                g.row_bytes);
  }
  plan.local = {local.data(), local.size()};
  const auto find = [&blocks](u64 i) { return std::span<const Piece>(blocks[i]); };
  cr_assert_eq(rows_read(*pool.mem, find, g.block_count, g.block_bytes, plan), 0, "round %lu",
               round);
  cr_assert_eq(std::memcmp(local.data(), expected.data(), expected.size()), 0, "round %lu", round);
}

}  // namespace

Test(transfer_cpu_engine, a_place_in_stripes_is_where_the_pieces_say) {
  Random random(77);
  for (u32 round = 0; round < 2000; ++round) {
    std::vector<Piece> pieces;
    const u64 count = random.between(1, 5);
    for (u64 i = 0; i < count; ++i) {
      const bool inner = i != 0 && i + 1 != count;
      const u64 lines = inner ? kPieceStripe / kLineBytes
                              : random.between(1, kPieceStripe / kLineBytes);
      const PoolOffset at(static_cast<u32>(random.below(4)), i * 3 * kPieceStripe);
      pieces.push_back({at, lines * kLineBytes});
    }
    cr_assert(is_striped(pieces));
    for (u32 i = 0; i < 50; ++i) {
      const u64 offset = random.below(pieces_bytes(pieces));
      u64 run = 0, expected_run = 0;
      const PoolOffset expected = PieceCursor(pieces).at(offset, expected_run);
      cr_assert_eq(place_in_stripes(pieces, offset, run).raw(), expected.raw());
      cr_assert_eq(run, expected_run);
    }
    if (count < 3) continue;
    pieces[1].bytes -= kLineBytes;
    cr_assert_not(is_striped(pieces));
  }
}

Test(transfer_cpu_engine, rows_are_exact_on_random_geometry, .timeout = 60) {
  Random random{6};
  for (const X86Options &options : instruction_sets()) {
    const Pool pool(options);
    for (u64 round = 0; round < 300; ++round) rows_and_compare(random, pool, round);
  }
}

// A block beyond 2^32 bytes of pool and rows x width beyond 2^31, in a sparse mapping.
Test(transfer_cpu_engine, offsets_beyond_four_gigabytes) {
  constexpr u64 kBytes = u64{12} << 30;
  void *p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert_neq(p, MAP_FAILED);
  auto *base = static_cast<std::byte *>(p);
  const DeviceMapping devices[] = {{base, kBytes}};
  X86Memory mem(devices);
  constexpr u64 kBlock = u64{4} << 30;
  const Piece pieces[] = {{PoolOffset(0, u64{5} << 30), kBlock}};
  constexpr u64 kAt = kBlock - 4096 - 10;
  std::memset(base + pieces[0].pool.byte() + kAt, 0x5C, 4096);
  // Local memory is the same sparse mapping: its first 4 GiB and a little.
  const LocalMemory memories[] = {{base, u64{5} << 30}};
  const u64 local = (u64{4} << 30) + 3;
  const Run run{0, local, kAt, 4096, 1, 0, 0};
  Plan plan;
  cr_assert_eq(plan.prepare({&run, 1}, memories, kBlock, Direction::kRead), 0);
  cr_assert_eq(scatter_read(mem, pieces, plan, {0, kBlock}, Segments::unsharded(kBlock), nullptr),
               0);
  cr_assert_eq(std::memcmp(base + local, base + pieces[0].pool.byte() + kAt, 4096), 0);
  // 100 million rows of 32 bytes: the last of them.
  constexpr u64 kRows = 100'000'000;
  std::memset(base + pieces[0].pool.byte() + (kRows - 1) * 32, 0x77, 32);
  const std::int64_t rows[] = {-1, static_cast<std::int64_t>(kRows - 1)};
  RowsPlan rows_plan{rows, 32, 32, kRows, 0, {base, u64{5} << 30}, local + 8192, 32};
  const auto find = [&pieces](u64) { return std::span<const Piece>(pieces); };
  cr_assert_eq(rows_read(mem, find, 1, kBlock, rows_plan), 0);
  cr_assert_eq(base[local + 8192 + 32], std::byte{0x77});
  cr_assert_eq(base[local + 8192 + 63], std::byte{0x77});
  cr_assert_eq(base[local + 8192 + 31], std::byte{0});
  munmap(p, kBytes);
}
