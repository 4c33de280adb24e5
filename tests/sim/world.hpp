// SPDX-License-Identifier: Apache-2.0
// The simulated fabric: a medium of 64-byte lines, hosts whose caches lie, threads with buffers of
// streaming stores. It owns every byte of a simulated pool and all of protocol.md 1 (A1 to A9).
//
// A store takes three steps: thread buffer -> host domain (a fence forces it) -> medium (within
// delta of the fence, lines in any order; a read-back by the same host forces its line). Cached
// stores make a line dirty, and its write-back carries the whole line. What the world may do of
// itself at any verb it does at random: evict, write back, prefetch, drain, land, let a flush take
// effect early.
#pragma once

#include <memory>
#include <vector>

#include "arch/types.hpp"
#include "rng.hpp"

namespace kvpool::sim {

using Time = u64;  // true nanoseconds, which nobody in the pool can read

inline constexpr u32 kHostsMax = 8;
inline constexpr u64 kLinesPerPage = 64;
inline constexpr u64 kPageBytes = kLinesPerPage * kLineBytes;
inline constexpr Time kNever = ~Time{0};

struct WorldOptions {
  u32 hosts = 2;
  std::vector<u64> device_bytes{1 << 20};
  Time delta_ns = 1'000'000;  // A8: a fenced store reaches the medium within this
  bool torn_lines = false;    // lines are stored and loaded in pieces (A1)
  u32 torn_permille = 200;    // of the stores of whole lines then, those in two pieces
  bool cached_words = false;  // publish_word is a cached store and a flush, not a streaming store
  // Chance per verb, in permille, of each kind of spontaneous step.
  u32 evict = 30;
  u32 prefetch = 60;
  u32 drain = 60;
  u32 land = 60;
  u32 flush_early = 60;
};

class World {
public:
  World();
  ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  void reset(const WorldOptions &options, Rng rng);
  u32 add_thread(u32 host);

  // Verbs of one thread. None of them yields: the scheduler decides who runs between them.
  bool load_line(u32 thread, PoolOffset off, Line &line);
  bool load_word(u32 thread, PoolOffset off, u64 &word);
  void stream_words(u32 thread, PoolOffset line_off, const Line &line, u8 mask);
  // One legal course of stream_words, taken quickly: the line is on the medium at once.
  void stream_through(u32 thread, PoolOffset line_off, const Line &line);
  void store_word(u32 thread, PoolOffset off, u64 word);      // through the cache: line gets dirty
  void store_half_word(u32 thread, PoolOffset off, u32 value);  // four bytes, through the cache
  void flush(u32 thread, PoolOffset off);                     // CLFLUSHOPT: unordered until a fence
  void fence(u32 thread);                                     // store and flush side of any fence
  void read_back(u32 thread, PoolOffset off);                 // drain_strict's load of one device
  void prefetch(u32 thread, PoolOffset off);

  // Whole lines of a device of that host, behind a root port. A write takes the line out of the
  // cache and is on its way to the medium, or, where the port allocates, stays in the cache as a
  // dirty line, until something drives it out. A read hits whatever the cache holds.
  void device_store(u32 host, PoolOffset off, const Line &line, bool allocates);
  bool device_load(u32 host, PoolOffset off, Line &line);
  // Drives a line out of that host's cache, as a kernel thread does: within delta it is there.
  void kernel_flush(u32 host, PoolOffset off);

  // Spontaneous steps; the scheduler calls this at each verb.
  void nature();
  // Time passed: what is overdue lands.
  void advance(Time now);
  Time now() const { return now_; }

  // Faults.
  void crash_thread(u32 thread);  // killed: what it executed drains, nothing more comes
  void leave_core(u32 thread);    // stopped for long: what it executed drains
  void crash_host(u32 host);      // power: each dirty line and each store in flight kept or lost
  // The same without chance. A line that has n stores on their way (its dirty copy counts as the
  // last) may arrive with the 0 to n oldest of them, or without the first of two pieces of one. The
  // choices of all lines are numbered: 0 loses everything. More than `bound` are too many to count:
  // then 0 loses and 1 keeps everything, and the others are a sample: a single line kept, a single
  // line lost, or all choices drawn.
  u64 crash_ways(u32 host, u64 bound) const;
  void crash_host_keeping(u32 host, u64 way, u64 bound);
  void set_poison(PoolOffset off);
  void set_link(u32 host, bool up);
  void bring_back_device(u32 device);  // with what stood there
  void lose_device(u32 device);   // every load fails from now on, stores vanish
  void settle_all();              // everything buffered or dirty reaches the medium (end of a run)

  // For checkers only: what the medium holds, past all caches.
  Line peek(PoolOffset off) const;
  void poke(PoolOffset off, const Line &line);
  bool poisoned(PoolOffset off) const;
  u64 steps() const { return steps_; }
  u64 changes() const { return changes_; }  // stores made or moved on, by anybody
  u64 device_bytes(u32 device) const { return devices_[device].bytes; }
  const WorldOptions &options() const { return options_; }

private:
  struct HostPage {
    u64 present = 0;
    u64 dirty = 0;
    Line data[kLinesPerPage];
  };
  struct Page {
    Line data[kLinesPerPage];
    u64 poison = 0;
    u64 in_flight[kHostsMax] = {};  // hint: a store of this host to this line may be under way
    HostPage *cache[kHostsMax] = {};
    u32 device = 0;
  };
  struct LineRef {
    Page *page = nullptr;
    u32 index = 0;
    bool operator==(const LineRef &) const = default;
  };
  struct Store {
    LineRef ref;
    u8 mask = 0;
    u32 thread = 0;
    Time due = kNever;
    Line data;
  };
  struct Device {
    u64 bytes = 0;
    bool lost = false;
    std::vector<Page *> pages;
    std::vector<u32> touched;
  };
  struct Host {
    bool link_up = true;
    std::vector<Store> in_flight;  // left the core, not yet on the medium; oldest first
    std::vector<LineRef> recent;   // ring of lines fetched: candidates for eviction
    u32 recent_next = 0;
    std::vector<LineRef> dirty;
    Time next_due = kNever;
  };
  struct Thread {
    u32 host = 0;
    bool dead = false;
    std::vector<Store> buffer;     // streaming stores, oldest first
    std::vector<LineRef> flushes;  // executed, maybe not yet in effect
  };

  LineRef line_ref(PoolOffset off);
  Page *page_of(u32 device, u64 page);
  HostPage &host_page(Page &page, u32 host);
  bool fetch(u32 host, LineRef ref);
  void remember(Host &host, LineRef ref);
  bool cached(u32 host, LineRef ref) const;
  void drop(u32 host, u32 thread, LineRef ref);
  void absorb(u32 host, const Store &store);
  void drain_line(u32 thread, LineRef ref);
  void drain_one(u32 thread, u64 position);
  void write_back(u32 host, u32 thread, LineRef ref);
  void land_at(u32 host, u64 position);
  void land_line(u32 host, LineRef ref);
  void land_random(u32 host);
  void note(LineRef ref);
  void make_dirty(u32 host, LineRef ref);
  void retire_in_flight(u32 host, u64 position);
  struct Unsettled {
    LineRef ref;
    std::vector<Store> stores;  // oldest first
    bool in_pieces() const {
      const u64 n = stores.size();
      return n >= 2 && (stores[n - 1].mask & stores[n - 2].mask) == 0;
    }
    u64 choices() const { return stores.size() + 1 + in_pieces(); }
  };
  std::vector<Unsettled> unsettled(u32 host) const;
  void forget_caches(u32 host);
  void spontaneous_fetch();
  void spontaneous_evict();

  WorldOptions options_;
  Rng rng_;
  Time now_ = 0;
  u64 steps_ = 0;
  u64 changes_ = 0;
  std::vector<Device> devices_;
  std::vector<Host> hosts_;
  std::vector<Thread> threads_;
  u32 thread_count_ = 0;
  LineRef noted_[64];  // lines lately touched by anybody: candidates for prefetching
  u32 noted_next_ = 0;
  std::vector<Page *> page_pool_;
  std::vector<HostPage *> host_page_pool_;
};

}  // namespace kvpool::sim
