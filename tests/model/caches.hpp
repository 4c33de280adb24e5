// SPDX-License-Identifier: Apache-2.0
// Owns the memory that models of bare cache behaviour share: one medium, and on each host a cache
// of clean copies, a buffer of streaming stores that leave it in any order, and a fabric queue of
// stores that are fenced but not yet accepted by the memory device (proto 1: A1, A2, A8, A9).
#pragma once

#include "engine.hpp"

#include <cstdint>

namespace kvpool::model {

template <int kHosts, int kLines>
struct Memory {
  uint8_t medium[kLines];
  uint8_t cache[kHosts][kLines];   // 0: no copy, else value + 1; clean (A9)
  uint8_t dirty[kHosts][kLines];   // 1: the cached copy was stored to and not written back
  uint8_t buffer[kHosts][kLines];  // streaming store not yet fenced, value + 1
  uint8_t fabric[kHosts][kLines];  // left the host, not yet on the medium, value + 1
  uint8_t flush[kHosts][kLines];   // a flush that was issued and has not happened yet

  uint8_t load(int host, int line) const {
    if (cache[host][line] != 0) {
      return cache[host][line] - 1;
    }
    if (buffer[host][line] != 0) {
      return buffer[host][line] - 1;
    }
    return fabric[host][line] != 0 ? fabric[host][line] - 1 : medium[line];
  }

  void stream(int host, int line, uint8_t value) {
    cache[host][line] = 0;  // a streaming store drops its own host's copy
    buffer[host][line] = static_cast<uint8_t>(value + 1);
  }

  void store_cached(int host, int line, uint8_t value) {
    cache[host][line] = static_cast<uint8_t>(value + 1);
    dirty[host][line] = 1;
  }

  // clflushopt with the fences around it: written back when dirty, and gone.
  void flush_now(int host, int line) {
    if (dirty[host][line] != 0) {
      fabric[host][line] = cache[host][line];
      dirty[host][line] = 0;
    }
    cache[host][line] = 0;
  }

  bool fenced(int host) const {
    for (int line = 0; line < kLines; line++) {
      if (buffer[host][line] != 0) {
        return false;
      }
    }
    return true;
  }

  bool on_medium(int host) const {
    for (int line = 0; line < kLines; line++) {
      if (buffer[host][line] != 0 || fabric[host][line] != 0) {
        return false;
      }
    }
    return true;
  }
};

// Every legal spontaneous step of the memory system. `reads` has bit (host * kLines + line) set
// when that host ever loads that line: copies nobody loads cannot matter and are left out.
template <class State, int kHosts, int kLines>
void spontaneous(const State &s, Memory<kHosts, kLines> State::*memory, uint32_t reads,
                 Sink<State> &emit) {
  const auto &m = s.*memory;
  auto change = [&](int host, int line, auto action, const char *label) {
    State n = s;
    action(n.*memory, host, line);
    emit(n, label);
  };
  for (int host = 0; host < kHosts; host++) {
    for (int line = 0; line < kLines; line++) {
      if (m.cache[host][line] == 0 && (reads >> (host * kLines + line) & 1) != 0) {
        change(
            host, line, [](auto &x, int h, int l) { x.cache[h][l] = x.load(h, l) + 1; },
            "prefetch");
      } else if (m.cache[host][line] != 0) {
        change(
            host, line, [](auto &x, int h, int l) { x.flush_now(h, l); }, "evict");
      }
      if (m.buffer[host][line] != 0 && m.fabric[host][line] == 0) {
        change(
            host, line,
            [](auto &x, int h, int l) {
              x.fabric[h][l] = x.buffer[h][l];
              x.buffer[h][l] = 0;
              x.cache[h][l] = 0;
            },
            "store leaves the host");
      }
      if (m.fabric[host][line] != 0) {
        change(
            host, line,
            [](auto &x, int h, int l) {
              x.medium[l] = x.fabric[h][l] - 1;
              x.fabric[h][l] = 0;
            },
            "store reaches the medium");
      }
      if (m.flush[host][line] != 0) {
        change(
            host, line,
            [](auto &x, int h, int l) {
              x.flush_now(h, l);
              x.flush[h][l] = 0;
            },
            "late flush happens");
      }
    }
  }
}

}  // namespace kvpool::model
