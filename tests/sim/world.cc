// SPDX-License-Identifier: Apache-2.0
// Behaviour of the simulated fabric; world.hpp says what it promises.
#include "world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvpool::sim {

namespace {

constexpr u64 kBufferMax = 12;     // a core has about that many write-combining buffers
constexpr u64 kInFlightMax = 64;   // posted writes of one host
constexpr u64 kRecentMax = 256;
constexpr u64 kOnes = ~u64{0};

constexpr u64 bit(u32 index) { return u64{1} << index; }

[[noreturn]] void out_of_bounds(PoolOffset off) {
  std::fprintf(stderr, "kvpool-sim: access outside the pool: device %u byte %llu\n", off.device(),
               static_cast<unsigned long long>(off.byte()));
  std::abort();
}

void merge(Line &into, const Line &from, u8 mask) {
  for (u32 k = 0; k < 8; ++k) {
    if (mask & (1u << k)) into.w[k] = from.w[k];
  }
}

}  // namespace

World::World() = default;

World::~World() {
  for (Device &device : devices_) {
    for (u32 page : device.touched) page_pool_.push_back(device.pages[page]);
  }
  for (Page *page : page_pool_) {
    for (HostPage *cache : page->cache) delete cache;
    delete page;
  }
  for (HostPage *page : host_page_pool_) delete page;
}

void World::reset(const WorldOptions &options, Rng rng) {
  for (Device &device : devices_) {
    for (u32 index : device.touched) {
      Page *page = device.pages[index];
      for (HostPage *&cache : page->cache) {
        if (cache) host_page_pool_.push_back(cache);
        cache = nullptr;
      }
      page_pool_.push_back(page);
      device.pages[index] = nullptr;
    }
    device.touched.clear();
  }
  options_ = options;
  rng_ = rng;
  now_ = 0;
  steps_ = changes_ = 0;
  devices_.resize(options.device_bytes.size());
  for (u64 d = 0; d < devices_.size(); ++d) {
    devices_[d].bytes = options.device_bytes[d];
    devices_[d].lost = false;
    devices_[d].pages.resize((options.device_bytes[d] + kPageBytes - 1) / kPageBytes, nullptr);
  }
  hosts_.resize(options.hosts);
  for (Host &host : hosts_) {
    host.link_up = true;
    host.in_flight.clear();
    host.recent.clear();
    host.recent_next = 0;
    host.dirty.clear();
    host.next_due = kNever;
  }
  thread_count_ = 0;
  for (LineRef &ref : noted_) ref = LineRef{};
  noted_next_ = 0;
}

u32 World::add_thread(u32 host) {
  if (thread_count_ == threads_.size()) threads_.emplace_back();
  Thread &thread = threads_[thread_count_];
  thread.host = host;
  thread.dead = false;
  thread.buffer.clear();
  thread.flushes.clear();
  return thread_count_++;
}

World::Page *World::page_of(u32 device, u64 index) {
  Page *&slot = devices_[device].pages[index];
  if (!slot) {
    if (page_pool_.empty()) {
      slot = new Page;
    } else {
      slot = page_pool_.back();
      page_pool_.pop_back();
    }
    std::memset(slot->data, 0, sizeof slot->data);
    slot->poison = 0;
    for (u64 &hint : slot->in_flight) hint = 0;
    slot->device = device;
    devices_[device].touched.push_back(static_cast<u32>(index));
  }
  return slot;
}

World::LineRef World::line_ref(PoolOffset off) {
  if (off.device() >= devices_.size() || off.byte() >= devices_[off.device()].bytes) {
    out_of_bounds(off);
  }
  return {page_of(off.device(), off.byte() / kPageBytes),
          static_cast<u32>(off.byte() % kPageBytes / kLineBytes)};
}

World::HostPage &World::host_page(Page &page, u32 host) {
  HostPage *&slot = page.cache[host];
  if (!slot) {
    if (host_page_pool_.empty()) {
      slot = new HostPage;
    } else {
      slot = host_page_pool_.back();
      host_page_pool_.pop_back();
    }
    slot->present = 0;
    slot->dirty = 0;
  }
  return *slot;
}

bool World::cached(u32 host, LineRef ref) const {
  const HostPage *page = ref.page->cache[host];
  return page && (page->present & bit(ref.index));
}

void World::note(LineRef ref) {
  noted_[noted_next_++ % 64] = ref;
}

// Brings a line into the host's cache. The host's own stores to that line are ahead of the read on
// the way to the device, so they arrive first.
bool World::fetch(u32 host, LineRef ref) {
  Host &h = hosts_[host];
  if (ref.page->in_flight[host] & bit(ref.index)) land_line(host, ref);
  if (!h.link_up || devices_[ref.page->device].lost) return false;
  if (ref.page->poison & bit(ref.index)) return false;
  HostPage &page = host_page(*ref.page, host);
  page.data[ref.index] = ref.page->data[ref.index];
  page.present |= bit(ref.index);
  page.dirty &= ~bit(ref.index);
  remember(h, ref);
  return true;
}

void World::remember(Host &h, LineRef ref) {
  if (h.recent.size() < kRecentMax) {
    h.recent.push_back(ref);
  } else {
    h.recent[h.recent_next++ % kRecentMax] = ref;
  }
}

bool World::load_line(u32 thread, PoolOffset off, Line &line) {
  ++steps_;
  const LineRef ref = line_ref(off);
  const u32 host = threads_[thread].host;
  drain_line(thread, ref);
  note(ref);
  if (!cached(host, ref) && !fetch(host, ref)) {
    // A lost link shows as an error or as all ones (A6); poison is always an error.
    if (hosts_[host].link_up || rng_.chance(500)) return false;
    for (u64 &word : line.w) word = kOnes;
    return true;
  }
  if (options_.torn_lines && rng_.chance(100)) {
    // Eight loads straddle a refetch: the first words come from the copy we had.
    const u64 cut = rng_.between(1, 7);
    const Line first = ref.page->cache[host]->data[ref.index];
    drop(host, thread, ref);
    nature();
    if (!cached(host, ref) && !fetch(host, ref)) return false;
    line = ref.page->cache[host]->data[ref.index];
    for (u64 k = 0; k < cut; ++k) line.w[k] = first.w[k];
    return true;
  }
  line = ref.page->cache[host]->data[ref.index];
  return true;
}

bool World::load_word(u32 thread, PoolOffset off, u64 &word) {
  ++steps_;
  const LineRef ref = line_ref(off);
  const u32 host = threads_[thread].host;
  drain_line(thread, ref);
  note(ref);
  if (!cached(host, ref) && !fetch(host, ref)) {
    if (hosts_[host].link_up || rng_.chance(500)) return false;
    word = kOnes;
    return true;
  }
  word = ref.page->cache[host]->data[ref.index].w[off.byte() % kLineBytes / 8];
  return true;
}

void World::stream_words(u32 thread, PoolOffset line_off, const Line &line, u8 mask) {
  ++changes_;
  ++steps_;
  Thread &t = threads_[thread];
  const LineRef ref = line_ref(line_off);
  note(ref);
  t.buffer.push_back({ref, mask, thread, kNever, line});
  while (t.buffer.size() > kBufferMax) drain_one(thread, rng_.below(t.buffer.size()));
}

void World::stream_through(u32 thread, PoolOffset line_off, const Line &line) {
  ++changes_;
  Thread &t = threads_[thread];
  const LineRef ref = line_ref(line_off);
  drain_line(thread, ref);
  drop(t.host, thread, ref);
  if (ref.page->in_flight[t.host] & bit(ref.index)) land_line(t.host, ref);
  if (!hosts_[t.host].link_up || devices_[ref.page->device].lost) return;
  ref.page->data[ref.index] = line;
  ref.page->poison &= ~bit(ref.index);
}

// Moves one buffered store into the host's domain; an older one to the same line goes first.
void World::drain_one(u32 thread, u64 position) {
  Thread &t = threads_[thread];
  u64 first = position;
  for (u64 i = 0; i < position; ++i) {
    if (t.buffer[i].ref == t.buffer[position].ref) {
      first = i;
      break;
    }
  }
  Store &store = t.buffer[first];
  if (options_.torn_lines && (store.mask & (store.mask - 1)) && rng_.chance(250)) {
    // Written in pieces: some words leave now, the rest stays.
    const u8 now_mask = static_cast<u8>(store.mask & rng_.next());
    if (now_mask && now_mask != store.mask) {
      Store part = store;
      part.mask = now_mask;
      store.mask = static_cast<u8>(store.mask & ~now_mask);
      absorb(t.host, part);
      return;
    }
  }
  const Store whole = store;
  t.buffer.erase(t.buffer.begin() + static_cast<std::ptrdiff_t>(first));
  absorb(t.host, whole);
}

void World::drain_line(u32 thread, LineRef ref) {
  Thread &t = threads_[thread];
  for (u64 i = 0; i < t.buffer.size();) {
    if (!(t.buffer[i].ref == ref)) {
      ++i;
      continue;
    }
    const Store store = t.buffer[i];
    t.buffer.erase(t.buffer.begin() + static_cast<std::ptrdiff_t>(i));
    absorb(t.host, store);
  }
}

// A streaming store enters the host's domain: it takes the line out of the caches on its way.
void World::absorb(u32 host, const Store &store) {
  ++changes_;
  drop(host, store.thread, store.ref);
  Host &h = hosts_[host];
  while (h.in_flight.size() >= kInFlightMax) land_random(host);
  store.ref.page->in_flight[host] |= bit(store.ref.index);
  h.in_flight.push_back(store);
  note(store.ref);
}

void World::write_back(u32 host, u32 thread, LineRef ref) {
  ++changes_;
  HostPage &page = *ref.page->cache[host];
  page.dirty &= ~bit(ref.index);
  Host &h = hosts_[host];
  while (h.in_flight.size() >= kInFlightMax) land_random(host);
  ref.page->in_flight[host] |= bit(ref.index);
  // One that nobody asked for has no fence to wait for: it is on its way.
  const Time due = thread == ~u32{0} ? now_ + options_.delta_ns : kNever;
  if (due < h.next_due) h.next_due = due;
  h.in_flight.push_back({ref, 0xff, thread, due, page.data[ref.index]});
}

// Written back if dirty, then forgotten. A write-back of the line that went on its way unasked
// becomes the flushing thread's concern: its fence and its read-back cover it.
void World::drop(u32 host, u32 thread, LineRef ref) {
  if (thread != ~u32{0} && (ref.page->in_flight[host] & bit(ref.index))) {
    for (Store &store : hosts_[host].in_flight) {
      if (store.ref == ref && store.thread == ~u32{0}) store.thread = thread;
    }
  }
  if (!cached(host, ref)) return;
  HostPage &page = *ref.page->cache[host];
  if (page.dirty & bit(ref.index)) write_back(host, thread, ref);
  page.present &= ~bit(ref.index);
}

void World::land_at(u32 host, u64 position) {
  ++changes_;
  Host &h = hosts_[host];
  u64 first = position;
  for (u64 i = 0; i < position; ++i) {
    if (h.in_flight[i].ref == h.in_flight[position].ref) {
      first = i;
      break;
    }
  }
  const Store &store = h.in_flight[first];
  Page &page = *store.ref.page;
  if (h.link_up && !devices_[page.device].lost) {
    merge(page.data[store.ref.index], store.data, store.mask);
    if (store.mask == 0xff) page.poison &= ~bit(store.ref.index);
  }
  retire_in_flight(host, first);
}

void World::retire_in_flight(u32 host, u64 position) {
  Host &h = hosts_[host];
  const LineRef ref = h.in_flight[position].ref;
  h.in_flight.erase(h.in_flight.begin() + static_cast<std::ptrdiff_t>(position));
  for (const Store &store : h.in_flight) {
    if (store.ref == ref) return;
  }
  ref.page->in_flight[host] &= ~bit(ref.index);
}

void World::land_line(u32 host, LineRef ref) {
  Host &h = hosts_[host];
  for (u64 i = 0; i < h.in_flight.size();) {
    if (h.in_flight[i].ref == ref) {
      land_at(host, i);
    } else {
      ++i;
    }
  }
}

void World::land_random(u32 host) {
  Host &h = hosts_[host];
  if (!h.in_flight.empty()) land_at(host, rng_.below(h.in_flight.size()));
}

void World::make_dirty(u32 host, LineRef ref) {
  HostPage &page = *ref.page->cache[host];
  if (page.dirty & bit(ref.index)) return;
  page.dirty |= bit(ref.index);
  hosts_[host].dirty.push_back(ref);
  if (hosts_[host].dirty.size() > 1024) {
    std::erase_if(hosts_[host].dirty, [&](LineRef r) {
      const HostPage *p = r.page->cache[host];
      return !p || !(p->dirty & bit(r.index));
    });
  }
}

void World::store_word(u32 thread, PoolOffset off, u64 word) {
  ++steps_;
  const LineRef ref = line_ref(off);
  const u32 host = threads_[thread].host;
  drain_line(thread, ref);
  if (!cached(host, ref) && !fetch(host, ref)) return;  // a store to a dead line vanishes
  ref.page->cache[host]->data[ref.index].w[off.byte() % kLineBytes / 8] = word;
  ++changes_;
  make_dirty(host, ref);
  note(ref);
}

void World::store_half_word(u32 thread, PoolOffset off, u32 value) {
  ++steps_;
  const LineRef ref = line_ref(off);
  const u32 host = threads_[thread].host;
  drain_line(thread, ref);
  if (!cached(host, ref) && !fetch(host, ref)) return;
  u64 &word = ref.page->cache[host]->data[ref.index].w[off.byte() % kLineBytes / 8];
  const u32 shift = off.byte() % 8 == 0 ? 0 : 32;
  word = (word & ~(u64{0xffffffff} << shift)) | (u64{value} << shift);
  ++changes_;
  make_dirty(host, ref);
  note(ref);
}

// A device's writes are ordered behind nothing that a thread of the host does; they are fenced by
// nobody, and due when any store that left its core is.
void World::device_store(u32 host, PoolOffset off, const Line &line, bool allocates) {
  ++steps_;
  ++changes_;
  const LineRef ref = line_ref(off);
  Host &h = hosts_[host];
  note(ref);
  if (allocates) {
    HostPage &page = host_page(*ref.page, host);
    page.data[ref.index] = line;
    page.present |= bit(ref.index);
    make_dirty(host, ref);
    remember(h, ref);
    return;
  }
  drop(host, ~u32{0}, ref);
  while (h.in_flight.size() >= kInFlightMax) land_random(host);
  ref.page->in_flight[host] |= bit(ref.index);
  h.in_flight.push_back({ref, 0xff, ~u32{0}, now_ + options_.delta_ns, line});
  h.next_due = std::min(h.next_due, now_ + options_.delta_ns);
}

bool World::device_load(u32 host, PoolOffset off, Line &line) {
  ++steps_;
  const LineRef ref = line_ref(off);
  note(ref);
  if (cached(host, ref)) {
    line = ref.page->cache[host]->data[ref.index];
    return true;
  }
  if (ref.page->in_flight[host] & bit(ref.index)) land_line(host, ref);
  if (!hosts_[host].link_up || devices_[ref.page->device].lost) return false;
  if (ref.page->poison & bit(ref.index)) return false;
  line = ref.page->data[ref.index];
  return true;
}

void World::kernel_flush(u32 host, PoolOffset off) {
  ++steps_;
  drop(host, ~u32{0}, line_ref(off));
}

void World::flush(u32 thread, PoolOffset off) {
  ++steps_;
  const LineRef ref = line_ref(off);
  // Ordered after this thread's older stores to the line; the rest waits for the fence.
  drain_line(thread, ref);
  if (rng_.chance(options_.flush_early)) {
    drop(threads_[thread].host, thread, ref);
  } else {
    threads_[thread].flushes.push_back(ref);
  }
}

// Every store is in the host's domain and every flush has taken effect; a line may have been
// fetched again between its flush and this fence.
void World::fence(u32 thread) {
  ++steps_;
  Thread &t = threads_[thread];
  while (!t.buffer.empty()) drain_one(thread, rng_.below(t.buffer.size()));
  for (u64 i = 0; i < t.flushes.size(); ++i) {
    drop(t.host, thread, t.flushes[i]);
    if (rng_.chance(options_.prefetch / 4)) fetch(t.host, t.flushes[i]);
  }
  t.flushes.clear();
  Host &h = hosts_[t.host];
  for (Store &store : h.in_flight) {
    if (store.thread != thread || store.due != kNever) continue;
    store.due = now_ + options_.delta_ns;
    if (store.due < h.next_due) h.next_due = store.due;
  }
}

// A load that reaches the device behind this thread's stores to it: they are on the medium.
void World::read_back(u32 thread, PoolOffset off) {
  ++steps_;
  const u32 host = threads_[thread].host;
  Host &h = hosts_[host];
  for (u64 i = 0; i < h.in_flight.size();) {
    const Store &store = h.in_flight[i];
    if (store.thread == thread && store.ref.page->device == off.device()) {
      land_line(host, store.ref);
      i = 0;
    } else {
      ++i;
    }
  }
}

void World::prefetch(u32 thread, PoolOffset off) {
  ++steps_;
  const LineRef ref = line_ref(off);
  const u32 host = threads_[thread].host;
  if (!cached(host, ref) && rng_.chance(900)) fetch(host, ref);
}

void World::spontaneous_fetch() {
  const LineRef ref = noted_[rng_.below(64)];
  if (!ref.page) return;
  const u32 host = static_cast<u32>(rng_.below(hosts_.size()));
  if (!cached(host, ref)) fetch(host, ref);
}

void World::spontaneous_evict() {
  const u32 host = static_cast<u32>(rng_.below(hosts_.size()));
  Host &h = hosts_[host];
  if (h.recent.empty()) return;
  const LineRef ref = h.recent[rng_.below(h.recent.size())];
  if (!cached(host, ref)) return;
  HostPage &page = *ref.page->cache[host];
  // Half of the dirty lines are written back and kept, the rest leave.
  if ((page.dirty & bit(ref.index)) && rng_.chance(500)) {
    write_back(host, ~u32{0}, ref);
  } else {
    drop(host, ~u32{0}, ref);
  }
}

void World::nature() {
  const u64 dice = rng_.next();
  const auto roll = [&](u32 k, u32 permille) {
    return ((dice >> (k * 12)) & 0xfff) * 1000 < u64{permille} * 4096;
  };
  if (roll(0, options_.prefetch)) spontaneous_fetch();
  if (roll(1, options_.evict)) spontaneous_evict();
  if (roll(2, options_.land)) land_random(static_cast<u32>(rng_.below(hosts_.size())));
  if (roll(3, options_.drain) && thread_count_ > 0) {
    const u32 thread = static_cast<u32>(rng_.below(thread_count_));
    Thread &t = threads_[thread];
    if (!t.buffer.empty()) drain_one(thread, rng_.below(t.buffer.size()));
  }
  if (roll(4, options_.flush_early) && thread_count_ > 0) {
    Thread &t = threads_[rng_.below(thread_count_)];
    if (!t.flushes.empty()) {
      const u64 i = rng_.below(t.flushes.size());
      drop(t.host, static_cast<u32>(&t - threads_.data()), t.flushes[i]);
      t.flushes[i] = t.flushes.back();
      t.flushes.pop_back();
    }
  }
}

void World::advance(Time now) {
  now_ = now;
  for (u32 host = 0; host < hosts_.size(); ++host) {
    Host &h = hosts_[host];
    if (h.next_due > now) continue;
    for (u64 i = 0; i < h.in_flight.size();) {
      if (h.in_flight[i].due <= now) {
        land_line(host, h.in_flight[i].ref);
        i = 0;
      } else {
        ++i;
      }
    }
    h.next_due = kNever;
    for (const Store &store : h.in_flight) {
      if (store.due < h.next_due) h.next_due = store.due;
    }
  }
}

void World::crash_thread(u32 thread) {
  Thread &t = threads_[thread];
  leave_core(thread);
  for (const LineRef &ref : t.flushes) {
    if (rng_.chance(500)) drop(t.host, ~u32{0}, ref);  // no fence of this thread is to come
  }
  t.flushes.clear();
  t.dead = true;
}

// A processor does not go on to another process without passing a fence.
void World::leave_core(u32 thread) {
  Thread &t = threads_[thread];
  while (!t.buffer.empty()) drain_one(thread, rng_.below(t.buffer.size()));
  Host &h = hosts_[t.host];
  for (Store &store : h.in_flight) {
    if (store.thread != thread || store.due != kNever) continue;
    store.due = now_ + options_.delta_ns;
    if (store.due < h.next_due) h.next_due = store.due;
  }
}

void World::crash_host(u32 host) {
  Host &h = hosts_[host];
  for (u32 i = 0; i < thread_count_; ++i) {
    Thread &t = threads_[i];
    if (t.host != host) continue;
    while (!t.buffer.empty()) {
      const u64 position = rng_.below(t.buffer.size());
      if (rng_.chance(500)) {
        drain_one(i, position);
      } else {
        const LineRef lost = t.buffer[position].ref;
        std::erase_if(t.buffer, [&](const Store &store) { return store.ref == lost; });
      }
    }
    t.flushes.clear();
    t.dead = true;
  }
  for (const LineRef &ref : h.dirty) {
    if (cached(host, ref) && (ref.page->cache[host]->dirty & bit(ref.index)) && rng_.chance(500)) {
      write_back(host, ~u32{0}, ref);
    }
  }
  h.dirty.clear();
  // Stores in flight: of each line any number of the oldest arrives, the rest is lost.
  while (!h.in_flight.empty()) {
    const u64 i = rng_.below(h.in_flight.size());
    if (rng_.chance(500)) {
      land_at(host, i);
    } else {
      const LineRef lost = h.in_flight[i].ref;
      std::erase_if(h.in_flight, [&](const Store &store) { return store.ref == lost; });
      lost.page->in_flight[host] &= ~bit(lost.index);
    }
  }
  forget_caches(host);
}

void World::forget_caches(u32 host) {
  for (Device &device : devices_) {
    for (u32 index : device.touched) {
      HostPage *page = device.pages[index]->cache[host];
      if (page) page->present = page->dirty = 0;
    }
  }
  Host &h = hosts_[host];
  h.recent.clear();
  h.recent_next = 0;
  h.next_due = kNever;
}

std::vector<World::Unsettled> World::unsettled(u32 host) const {
  std::vector<Unsettled> lines;
  const auto add = [&](const Store &store) {
    for (Unsettled &known : lines) {
      if (known.ref == store.ref) return known.stores.push_back(store);
    }
    lines.push_back({store.ref, {store}});
  };
  for (const Store &store : hosts_[host].in_flight) add(store);
  for (u32 i = 0; i < thread_count_; ++i) {
    if (threads_[i].host != host) continue;
    for (const Store &store : threads_[i].buffer) add(store);
  }
  for (const LineRef &ref : hosts_[host].dirty) {
    if (!cached(host, ref) || !(ref.page->cache[host]->dirty & bit(ref.index))) continue;
    add({ref, 0xff, ~u32{0}, kNever, ref.page->cache[host]->data[ref.index]});
  }
  return lines;
}

u64 World::crash_ways(u32 host, u64 bound) const {
  u64 ways = 1;
  for (const Unsettled &line : unsettled(host)) {
    ways *= line.choices();
    if (ways > bound) return bound + 1;
  }
  return ways;
}

void World::crash_host_keeping(u32 host, u64 way, u64 bound) {
  Host &h = hosts_[host];
  const bool counted = crash_ways(host, bound) <= bound;
  const std::vector<Unsettled> lines = unsettled(host);
  const u64 n = lines.size();
  Rng rng(way * 0x9E3779B97F4A7C15ull + steps_);
  const u64 single = rng.below(n);
  u64 rest = way;
  for (u64 i = 0; i < n; ++i) {
    const u64 stores = lines[i].stores.size(), choices = lines[i].choices();
    u64 kept = rng.below(choices);
    if (counted) {
      kept = rest % choices;
      rest /= choices;
    } else if (way < 2) {
      kept = way == 1 ? stores : 0;
    } else if (way % 3 != 2) {
      kept = (i == single) == (way % 3 == 0) ? stores : 0;
    }
    Page &page = *lines[i].ref.page;
    if (!h.link_up || devices_[page.device].lost) continue;
    const bool second_only = kept > stores;
    for (u64 k = 0; k < std::min(kept, stores); ++k) {
      if (second_only && k == stores - 2) continue;
      const Store &store = lines[i].stores[k];
      merge(page.data[store.ref.index], store.data, store.mask);
      if (store.mask == 0xff) page.poison &= ~bit(store.ref.index);
    }
  }
  for (u32 t = 0; t < thread_count_; ++t) {
    if (threads_[t].host != host) continue;
    threads_[t].buffer.clear();
    threads_[t].flushes.clear();
    threads_[t].dead = true;
  }
  for (const Store &store : h.in_flight) store.ref.page->in_flight[host] &= ~bit(store.ref.index);
  h.in_flight.clear();
  h.dirty.clear();
  forget_caches(host);
}

void World::set_poison(PoolOffset off) {
  const LineRef ref = line_ref(off);
  ref.page->poison |= bit(ref.index);
}

void World::set_link(u32 host, bool up) {
  Host &h = hosts_[host];
  h.link_up = up;
}

void World::bring_back_device(u32 device) {
  devices_[device].lost = false;
}

void World::lose_device(u32 device) {
  devices_[device].lost = true;
}

void World::settle_all() {
  for (u32 i = 0; i < thread_count_; ++i) {
    Thread &t = threads_[i];
    while (!t.buffer.empty()) drain_one(i, 0);
    for (const LineRef &ref : t.flushes) drop(t.host, i, ref);
    t.flushes.clear();
  }
  for (u32 host = 0; host < hosts_.size(); ++host) {
    Host &h = hosts_[host];
    for (const LineRef &ref : h.dirty) drop(host, ~u32{0}, ref);
    h.dirty.clear();
    while (!h.in_flight.empty()) land_at(host, 0);
  }
}

Line World::peek(PoolOffset off) const {
  if (off.device() >= devices_.size() || off.byte() >= devices_[off.device()].bytes) {
    out_of_bounds(off);
  }
  const Page *page = devices_[off.device()].pages[off.byte() / kPageBytes];
  return page ? page->data[off.byte() % kPageBytes / kLineBytes] : Line{};
}

void World::poke(PoolOffset off, const Line &line) {
  const LineRef ref = line_ref(off);
  ref.page->data[ref.index] = line;
}

bool World::poisoned(PoolOffset off) const {
  const Page *page = devices_[off.device()].pages[off.byte() / kPageBytes];
  return page && (page->poison & bit(off.byte() % kPageBytes / kLineBytes));
}

}  // namespace kvpool::sim
