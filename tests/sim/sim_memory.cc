// SPDX-License-Identifier: Apache-2.0
// The verbs over the simulated fabric. Costs are rough figures of a CXL pool behind a switch.
#include "sim_memory.hpp"

#include <cstring>

namespace kvpool::sim {

namespace {
constexpr Time kLoadNs = 20;
constexpr Time kStoreNs = 10;
constexpr Time kFenceNs = 80;
constexpr Time kRoundTripNs = 600;
constexpr u64 kSmallLines = 64;
constexpr u32 kSlowPermille = 40;
}  // namespace

bool SimMemory::reach(PoolOffset end) noexcept {
  if (mapped_.empty()) return true;
  sim_->step(kLoadNs, "map", end.raw());
  const std::vector<u64> &files = sim_->files();
  if (end.byte() > files[end.device()]) return false;
  mapped_[end.device()] = std::max(mapped_[end.device()], files[end.device()]);
  return true;
}

void SimMemory::touch(PoolOffset off, bool store) {
  if (mapped_.empty()) return;
  if (off.byte() >= mapped_[off.device()]) {
    sim_->fail("touches byte %#llx of device %u, of which it has mapped %#llx",
               static_cast<unsigned long long>(off.byte()), off.device(),
               static_cast<unsigned long long>(mapped_[off.device()]));
  }
  for (const Sim::Hole &hole : sim_->holes()) {
    const bool inside =
        hole.device == off.device() && off.byte() >= hole.begin && off.byte() < hole.end;
    if (inside && store && sim_->may_store()) sim_->fail("stores to bytes that were given back");
  }
}

bool SimMemory::load_line(PoolOffset off, Line &line) noexcept {
  sim_->step(kLoadNs, "load", off.raw());
  const bool ok = sim_->world().load_line(thread(), off, line);
  if (!ok) ++counters().poison_hits;
  return ok;
}

bool SimMemory::load_word(PoolOffset off, u64 &word) noexcept {
  sim_->step(kLoadNs, "load word", off.raw());
  const bool ok = sim_->world().load_word(thread(), off, word);
  if (!ok) ++counters().poison_hits;
  return ok;
}

// Where lines are stored in pieces, the process may be stopped or killed between two of them.
void SimMemory::stream_whole(PoolOffset off, const Line &line) {
  World &world = sim_->world();
  if (!world.options().torn_lines || !sim_->rng().chance(world.options().torn_permille)) {
    world.stream_words(thread(), off, line, 0xff);
    return;
  }
  const u32 cut = static_cast<u32>(sim_->rng().between(1, 7));
  const u8 first = static_cast<u8>((1u << cut) - 1);
  world.stream_words(thread(), off, line, first);
  sim_->step(kStoreNs, "torn store", off.raw());
  world.stream_words(thread(), off, line, static_cast<u8>(~first));
}

void SimMemory::publish_line(PoolOffset off, const Line &line) noexcept {
  sim_->step(kStoreNs, "publish", off.raw(), line.w[0]);
  ++counters().lines_published;
  stream_whole(off, line);
}

void SimMemory::publish_word(PoolOffset off, u64 word) noexcept {
  sim_->step(kStoreNs, "publish word", off.raw(), word);
  ++counters().words_published;
  World &world = sim_->world();
  if (world.options().cached_words) {
    world.store_word(thread(), off, word);
    world.flush(thread(), off);
    return;
  }
  Line line{};
  const u64 k = off.byte() % kLineBytes / 8;
  line.w[k] = word;
  world.stream_words(thread(), off, line, static_cast<u8>(1u << k));
}

void SimMemory::ring_doorbell(PoolOffset off, u32 value) noexcept {
  sim_->step(kStoreNs, "doorbell", off.raw(), value);
  ++counters().doorbells;
  sim_->world().store_half_word(thread(), off, value);
  sim_->world().flush(thread(), off);
}

void SimMemory::drain() noexcept {
  sim_->step(kFenceNs, "drain");
  ++counters().drains;
  sim_->world().fence(thread());
}

void SimMemory::drain_strict(const PoolOffset *offs, u64 n) noexcept {
  sim_->step(kFenceNs, "drain strict", n);
  sim_->world().fence(thread());
  ++counters().drains_strict;
  for (u64 i = 0; i < n; ++i) {
    sim_->step(kRoundTripNs, "read back", offs[i].raw());
    sim_->world().read_back(thread(), offs[i]);
  }
}

void SimMemory::begin_wave() noexcept {
  sim_->step(kFenceNs, "wave");
  sim_->world().fence(thread());
}

void SimMemory::flush(PoolOffset off) noexcept {
  sim_->step(kStoreNs, "flush", off.raw());
  ++counters().lines_acquired;
  sim_->world().flush(thread(), off);
}

void SimMemory::end_wave() noexcept {
  sim_->step(kRoundTripNs, "end wave");
  ++counters().round_trips;
  sim_->world().fence(thread());
}

void SimMemory::end_poll() noexcept {
  sim_->step(kRoundTripNs, "end poll");
  ++counters().polls;
  sim_->world().fence(thread());
}

void SimMemory::prefetch(PoolOffset off) noexcept {
  sim_->world().prefetch(thread(), off);
}

void SimMemory::acquire(PoolOffset off, u64 bytes) noexcept {
  begin_wave();
  for (u64 at = 0; at < bytes; at += kLineBytes) flush(off + at);
  end_wave();
}

void SimMemory::retire(PoolOffset off, u64 bytes) noexcept {
  for (u64 at = 0; at < bytes; at += kLineBytes) {
    sim_->step(kStoreNs, "retire", (off + at).raw());
    ++counters().lines_retired;
    sim_->world().flush(thread(), off + at);
  }
  sim_->step(kFenceNs, "retire fence");
  ++counters().retires;
  sim_->world().fence(thread());
}

void SimMemory::device_retire(PoolOffset off, u64 bytes) noexcept {
  if (bytes == 0) return;
  for (u64 at = 0; at < bytes; at += kLineBytes) {
    sim_->step(kStoreNs, "device retire", (off + at).raw());
    ++counters().lines_device_retired;
    sim_->world().flush(thread(), off + at);
  }
  sim_->step(kFenceNs, "device retire fence");
  sim_->world().fence(thread());
  sim_->step(kRoundTripNs, "read back", off.raw());
  sim_->world().read_back(thread(), off);
  ++counters().device_retires;
}

void SimMemory::device_acquire(PoolOffset off, u64 bytes) noexcept {
  sim_->step(kFenceNs, "device acquire");
  sim_->world().fence(thread());
  for (u64 at = 0; at < bytes; at += kLineBytes) {
    sim_->step(kStoreNs, "device flush", (off + at).raw());
    ++counters().lines_device_acquired;
    sim_->world().flush(thread(), off + at);
  }
  sim_->step(kRoundTripNs, "device acquire fence");
  sim_->world().fence(thread());
  ++counters().device_acquires;
}

void SimMemory::stream_lines(PoolOffset off, const void *src, u64 n, CheckLanes *lanes,
                             u64 first_line) noexcept {
  const auto *from = static_cast<const std::byte *>(src);
  touch(off, true);
  for (u64 i = 0; i < n; ++i) {
    // Of a large block most lines take the shortest legal way; some lie about as control lines do.
    const bool quick = n > kSmallLines && !sim_->rng().chance(kSlowPermille);
    if (i % 4 == 0 && !quick) sim_->step(kStoreNs, "stream", (off + i * kLineBytes).raw(), n - i);
    Line line;
    std::memcpy(&line, from + i * kLineBytes, kLineBytes);
    if (lanes) check_add_reference(*lanes, &line, 1, first_line + i);
    if (quick) {
      sim_->world().stream_through(thread(), off + i * kLineBytes, line);
    } else {
      stream_whole(off + i * kLineBytes, line);
    }
  }
  counters().lines_streamed += n;
}

bool SimMemory::fetch_lines(void *dst, PoolOffset off, u64 n, PoolOffset ahead, CheckLanes *lanes,
                            u64 first_line) noexcept {
  auto *to = static_cast<std::byte *>(dst);
  World &world = sim_->world();
  touch(off, false);
  for (u64 i = 0; i < n; ++i) {
    const u64 stride = n > kSmallLines ? 64 : 4;
    if (i % stride == 0) sim_->step(kLoadNs, "fetch", (off + i * kLineBytes).raw(), n - i);
    Line line;
    if (!world.load_line(thread(), off + i * kLineBytes, line)) {
      ++counters().poison_hits;
      return false;
    }
    if (ahead != kNoOffset) world.flush(thread(), ahead + i * kLineBytes);
    if (lanes) check_add_reference(*lanes, &line, 1, first_line + i);
    std::memcpy(to + i * kLineBytes, &line, kLineBytes);
  }
  counters().lines_fetched += n;
  return true;
}

void SimMemory::flush_lines(PoolOffset off, u64 n) noexcept {
  sim_->step(kStoreNs, "flush lines", off.raw(), n);
  counters().lines_flushed += n;
  for (u64 i = 0; i < n; ++i) sim_->world().flush(thread(), off + i * kLineBytes);
}

void SimMemory::fence() noexcept {
  sim_->step(kRoundTripNs, "fence");
  ++counters().fences;
  sim_->world().fence(thread());
}

}  // namespace kvpool::sim
