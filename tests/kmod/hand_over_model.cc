// SPDX-License-Identifier: Apache-2.0
// Owns the model of how bytes pass from one tenant to another (Documentation/driver.md, hosts and
// partitions): a host attaches a partition while an administrator takes its slice away, scrubs it
// and grants it to another one, and a second administrator takes over at any moment. Every actor
// may stop anywhere for any time; hosts may lose power and come back.
//
// Two orders are kept in the code although the search finds nothing without them: a host reads the
// claims again before it maps, and use lines are read before host lines.
//
// One slice, of partition P at first, then of Q. Host 0 uses P, host 1 uses Q. Lines are atomic and
// drained; the orders of steps are what is searched. Nobody may touch the slice while another does.
#include "../model/engine.hpp"

namespace kvpool::model {
namespace {

class HandOver {
public:
  struct Rules {
    bool announce_first = true;
    bool drain_first = true;
    bool scrub_announced = true;
    bool scrub_rechecked = true;
    bool other_scrub_asked = true;
    bool unmap_first = true;
    bool no_time = true;
    bool scrub_withdrawn_last = true;
  };

  enum Table : uint8_t { kActive, kDraining, kGranted };
  enum Claim : uint8_t { kNoClaim, kClaimed, kInForce };
  enum HostStep : uint8_t {
    kIdle,
    kAnnounced,
    kReadClaims,
    kReadTable,
    kAttached,
    kOut,
    kDown,
    kBack
  };
  enum AdminStep : uint8_t {
    kStarts,
    kTakes,
    kCopies,
    kDrains,
    kReadsUse,
    kReadsHosts,
    kDecides,
    kAnnounces,
    kRechecks,
    kScrubs,
    kWithdraws,
    kGrants,
    kStops
  };

  struct Host {
    uint8_t step, area, seen, mapped;
    uint8_t incarnation;  // what runs now
    uint8_t line;         // what its host line says
    uint8_t use, use_of;  // its use line, and of which incarnation that is
  };
  struct Admin {
    uint8_t step, scrub_use, scrubbing;
    uint8_t saw_use[2], saw_of[2], saw_line[2], saw_scrub;
  };
  struct State {
    uint8_t table[2], claim;
    Host host[2];
    Admin admin[2];
  };

  static constexpr const char *kName = "hand_over";
  static constexpr const char *kCovers =
      "attach against hand-over, scrub, take-over of the administrator, hosts that lose power";
  static constexpr Mutant<Rules> kMutants[] = {
      {"table-read-first", &Rules::announce_first, "driver",
       "a host announces its use before it reads the table"},
      {"use-read-first", &Rules::drain_first, "driver",
       "the table says DRAINING before the use lines are read"},
      {"scrub-not-announced", &Rules::scrub_announced, "driver", "a scrub is announced like a use"},
      {"scrub-not-rechecked", &Rules::scrub_rechecked, "driver",
       "an administrator looks for a higher claim between announcing a scrub and scrubbing"},
      {"other-scrub-ignored", &Rules::other_scrub_asked, "driver",
       "a scrub of another administrator holds the units"},
      {"withdrawn-while-mapped", &Rules::unmap_first, "driver",
       "a host withdraws its use after its mappings are gone"},
      {"silence-is-proof", &Rules::no_time, "driver", "a silent host is not out"},
      {"withdrawn-while-scrubbing", &Rules::scrub_withdrawn_last, "driver",
       "a scrub is withdrawn after it ended"},
  };
  static constexpr const char *kMarks[] = {
      "granted and used by the next tenant", "scrubbed while the other administrator claims",
      "held by a host that is down", "proven out by a new incarnation",
      "both administrators granted"};

  HandOver(const Rules &rules, Mode mode) : rules_(rules), lives_(mode == Mode::kLong ? 2 : 1) {}

  State initial() const {
    State s{};
    s.admin[0].step = first();
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t h = 0; h < 2; h++) host(s, h, emit);
    for (uint8_t a = 0; a < 2; a++) admin(s, a, emit);
  }

  const char *violation(const State &s) const {
    const bool scrub = s.admin[0].scrubbing != 0 || s.admin[1].scrubbing != 0;
    if (s.host[0].mapped != 0 && s.host[1].mapped != 0) return "two tenants have the slice mapped";
    if (scrub && (s.host[0].mapped != 0 || s.host[1].mapped != 0))
      return "a mapped slice is scrubbed";
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const Admin &b = s.admin[1];
    return (s.host[1].mapped != 0) | (s.admin[0].scrubbing != 0 && s.claim == kClaimed) << 1 |
           (s.host[0].step == kDown && s.host[0].use != 0 && b.step == kDecides && !out(s, b, 0))
               << 2 |
           (b.step == kDecides && b.saw_use[0] != 0 && b.saw_of[0] != b.saw_line[0]) << 3 |
           (s.table[0] == kGranted && s.table[1] == kGranted) << 4;
  }

  std::string show(const State &s) const {
    std::string line = text("tables %d %d claim %d", s.table[0], s.table[1], s.claim);
    for (const Host &h : s.host) {
      line += text(" | host step %d mapped %d inc %d line %d use %d of %d", h.step, h.mapped,
                   h.incarnation, h.line, h.use, h.use_of);
    }
    for (const Admin &a : s.admin) {
      line += text(" | admin step %d scrub %d/%d", a.step, a.scrub_use, a.scrubbing);
    }
    return line;
  }

private:
  // The mutant reads the use lines before it writes the table.
  uint8_t first() const { return rules_.drain_first ? kDrains : kReadsUse; }
  static uint8_t in_force(const State &s) { return s.claim == kInForce ? 1 : 0; }
  // What makes the slice this host's: P's is active, Q's is granted.
  static bool owns(uint8_t table, uint8_t h) { return table == (h == 0 ? kActive : kGranted); }

  bool out(const State &s, const Admin &a, uint8_t h) const {
    if (!rules_.no_time && s.host[h].step == kDown) return true;
    return a.saw_use[h] == 0 || a.saw_of[h] != a.saw_line[h];
  }

  template <class Change>
  static void step(const State &s, Sink<State> &emit, const char *label, Change change) {
    State n = s;
    change(n);
    emit(n, label);
  }

  void attach(const State &s, uint8_t h, Sink<State> &emit) const {
    const Host &now = s.host[h];
    const uint8_t first = rules_.announce_first ? kIdle : kReadTable;
    const auto announce = [&](HostStep to) {
      step(s, emit, "a host announces its use", [&](State &n) {
        n.host[h].use = 1;
        n.host[h].use_of = now.incarnation;
        n.host[h].step = to;
      });
    };
    if (now.step == first && rules_.announce_first) announce(kAnnounced);
    if (now.step == (rules_.announce_first ? kAnnounced : kIdle)) {
      step(s, emit, "it reads the claims", [&](State &n) {
        n.host[h].area = in_force(s);
        n.host[h].step = kReadClaims;
      });
    }
    if (now.step == kReadClaims) {
      step(s, emit, "it reads the table", [&](State &n) {
        n.host[h].seen = s.table[now.area];
        n.host[h].step = kReadTable;
      });
    }
    if (now.step != kReadTable) return;
    if (!rules_.announce_first && now.use == 0) {
      announce(kReadTable);
      return;
    }
    const bool same = now.area == in_force(s) && now.seen == s.table[now.area];
    if (rules_.announce_first && !same) {
      step(s, emit, "claims or table changed: once more",
           [&](State &n) { n.host[h].step = kAnnounced; });
    } else if (owns(now.seen, h)) {
      step(s, emit, "it maps", [&](State &n) {
        n.host[h].mapped = 1;
        n.host[h].step = kAttached;
      });
    } else {
      step(s, emit, "it withdraws", [&](State &n) {
        n.host[h].use = 0;
        n.host[h].step = kIdle;
        n.host[h].area = n.host[h].seen = 0;
      });
    }
  }

  void host(const State &s, uint8_t h, Sink<State> &emit) const {
    const Host &now = s.host[h];
    attach(s, h, emit);
    if (now.step == kAttached && !owns(s.table[in_force(s)], h)) {
      step(s, emit, rules_.unmap_first ? "a host takes its mappings away" : "a host withdraws",
           [&](State &n) {
             (rules_.unmap_first ? n.host[h].mapped : n.host[h].use) = 0;
             n.host[h].step = kOut;
           });
    }
    if (now.step == kOut) {
      step(s, emit, "and the rest", [&](State &n) {
        n.host[h].mapped = n.host[h].use = 0;
        n.host[h].step = kIdle;
        n.host[h].area = n.host[h].seen = 0;
      });
    }
    if (now.step != kDown && now.step != kBack && now.incarnation < lives_) {
      step(s, emit, "a host seems down", [&](State &n) {
        // It may only be silent: its mappings stay until it really is.
        n.host[h].step = kDown;
      });
    }
    if (now.step == kDown) {
      step(s, emit, "it comes back, another incarnation, caches empty", [&](State &n) {
        n.host[h].mapped = 0;
        n.host[h].incarnation++;
        n.host[h].line = n.host[h].incarnation;
        n.host[h].step = kBack;
        n.host[h].area = n.host[h].seen = 0;
      });
    }
    if (now.step == kBack) {
      step(s, emit, "its use lines are empty", [&](State &n) {
        n.host[h].use = 0;
        n.host[h].use_of = now.incarnation;
        n.host[h].step = kIdle;
      });
    }
  }

  void take_over(const State &s, Sink<State> &emit) const {
    const Admin &b = s.admin[1];
    if (b.step == kStarts) {
      step(s, emit, "another administrator claims", [&](State &n) {
        n.claim = kClaimed;
        n.admin[1].step = kTakes;
      });
    }
    if (b.step == kTakes) {
      step(s, emit, "it copies the table in force", [&](State &n) {
        n.table[1] = s.table[0];
        n.admin[1].step = kCopies;
      });
    }
    if (b.step == kCopies) {
      step(s, emit, "it activates", [&](State &n) {
        n.claim = kInForce;
        n.admin[1].step = s.table[1] == kGranted ? static_cast<uint8_t>(kStops) : first();
      });
    }
  }

  static bool outbid(const State &s, uint8_t a) { return a == 0 && s.claim != kNoClaim; }

  void read_hosts(const State &s, uint8_t a, Sink<State> &emit) const {
    const Admin &now = s.admin[a];
    const auto use = [&](State &n) {
      for (int h = 0; h < 2; h++) {
        n.admin[a].saw_use[h] = s.host[h].use;
        n.admin[a].saw_of[h] = s.host[h].use_of;
      }
      n.admin[a].saw_scrub = s.admin[1 - a].scrub_use;
    };
    const AdminStep after = rules_.drain_first ? kDecides : kDrains;
    if (now.step == kReadsUse) {
      step(s, emit, "an administrator reads use lines", [&](State &n) {
        use(n);
        n.admin[a].step = kReadsHosts;
      });
    }
    if (now.step == kReadsHosts) {
      step(s, emit, "then host lines", [&](State &n) {
        for (int h = 0; h < 2; h++) n.admin[a].saw_line[h] = s.host[h].line;
        n.admin[a].step = after;
      });
    }
  }

  void admin(const State &s, uint8_t a, Sink<State> &emit) const {
    const Admin &now = s.admin[a];
    if (a == 1) take_over(s, emit);
    if (now.step == kDrains) {
      step(s, emit, "an administrator writes DRAINING", [&](State &n) {
        n.admin[a].step = outbid(s, a) ? kStops : rules_.drain_first ? kReadsUse : kDecides;
        if (!outbid(s, a)) n.table[a] = kDraining;
      });
    }
    read_hosts(s, a, emit);
    if (now.step == kDecides) {
      const bool free =
          out(s, now, 0) && out(s, now, 1) && (now.saw_scrub == 0 || !rules_.other_scrub_asked);
      step(s, emit, free ? "all are out" : "held", [&](State &n) {
        n.admin[a].step = free ? (rules_.scrub_announced ? kAnnounces : kRechecks) : kReadsUse;
      });
    }
    scrub(s, a, emit);
  }

  void scrub(const State &s, uint8_t a, Sink<State> &emit) const {
    const Admin &now = s.admin[a];
    if (now.step == kAnnounces) {
      step(s, emit, "it announces the scrub", [&](State &n) {
        n.admin[a].scrub_use = 1;
        n.admin[a].step = kRechecks;
      });
    }
    if (now.step == kRechecks) {
      const bool stop = outbid(s, a) && rules_.scrub_rechecked;
      step(s, emit, stop ? "a higher claim: it withdraws" : "it scrubs", [&](State &n) {
        n.admin[a].step = stop ? kStops : kScrubs;
        n.admin[a].scrubbing = stop ? 0 : 1;
        if (stop || !rules_.scrub_withdrawn_last) n.admin[a].scrub_use = 0;
      });
    }
    if (now.step == kScrubs) {
      step(s, emit, "the scrub ends", [&](State &n) {
        n.admin[a].scrubbing = 0;
        n.admin[a].step = kWithdraws;
      });
    }
    if (now.step == kWithdraws) {
      step(s, emit, "it withdraws the scrub", [&](State &n) {
        n.admin[a].scrub_use = 0;
        n.admin[a].step = kGrants;
      });
    }
    if (now.step == kGrants) {
      step(s, emit, outbid(s, a) ? "a higher claim: no grant" : "it grants the slice",
           [&](State &n) {
             if (!outbid(s, a)) n.table[a] = kGranted;
             n.admin[a].step = kStops;
           });
    }
  }

  const Rules rules_;
  const uint8_t lives_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::HandOver>().main(argc, argv);
}
