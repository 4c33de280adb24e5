// SPDX-License-Identifier: Apache-2.0
// Owns the model of lines in two copies when hosts lose devices (Documentation/driver.md, a device
// that goes): an administrator takes a slice away and scrubs it while a host starts, attaches, lets
// go and leaves, and each of the two may lose one of the two devices at any moment without a word.
//
// What is stored to a lost device is nowhere, and nothing intact is read from it. A store is read
// back and compared, so who stores knows of the loss then, if not before. One administrator: his
// succession is in hand_over_model.cc. Lines are atomic; copies are written one after the other.
#include "../model/engine.hpp"

namespace kvpool::model {
namespace {

class TwoCopies {
public:
  struct Rules {
    bool proof_by_both = true;
    bool table_on_both = true;
    bool start_on_both = true;
    bool stronger_copy = true;
  };

  enum HostStep : uint8_t {
    kLeft,
    kStarts,
    kIdle,
    kAnnounces,
    kReads,
    kMapped,
    kWithdraws,
    kSecondWithdraws,
    kLeaves,
    kStopped
  };
  enum AdminStep : uint8_t { kRests, kDrains, kLooks, kAsks, kDecides, kScrubs, kGivesUp };

  struct State {
    uint8_t draining[2], up[2], use[2];  // copies
    uint8_t host, host_lost, mapped;
    uint8_t admin, admin_lost;
    uint8_t saw_copies, saw_use, saw_up;
  };

  static constexpr const char *kName = "two_copies";
  static constexpr const char *kCovers =
      "attach against hand-over when hosts lose one of the devices with lines, unnoticed at first";
  static constexpr Mutant<Rules> kMutants[] = {
      {"proof-by-one-copy", &Rules::proof_by_both, "driver",
       "a use line proves a host out only by both copies"},
      {"table-on-one-copy", &Rules::table_on_both, "driver",
       "who cannot write both copies of the table administers no more"},
      {"start-on-one-copy", &Rules::start_on_both, "driver",
       "a host whose first line is not on both devices does not start"},
      {"weaker-copy", &Rules::stronger_copy, "driver",
       "of two copies the one counts that says more"},
  };
  static constexpr const char *kMarks[] = {
      "scrubbed after the host withdrew", "scrubbed while the host has left",
      "held by a copy that cannot be read", "mapped by a host that writes one copy",
      "each has lost another device, and the host has it mapped"};

  TwoCopies(const Rules &rules, Mode mode) : rules_(rules) { (void)mode; }

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t device = 1; device <= 2; device++) {
      if (s.host_lost == 0) {
        step(s, emit, "the host loses a device", [&](State &n) { n.host_lost = device; });
      }
      if (s.admin_lost == 0) {
        step(s, emit, "the administrator loses a device", [&](State &n) { n.admin_lost = device; });
      }
    }
    starts(s, emit);
    uses(s, emit);
    admin(s, emit);
  }

  const char *violation(const State &s) const {
    return s.admin == kScrubs && s.mapped != 0 ? "a mapped slice is scrubbed" : nullptr;
  }

  uint32_t marks(const State &s) const {
    return (s.admin == kScrubs && s.up[0] != 0 && s.up[1] != 0) |
           (s.admin == kScrubs && s.host == kLeft) << 1 |
           (s.admin == kDecides && s.saw_up != 0 && s.saw_copies < 2) << 2 |
           (s.mapped != 0 && s.use[0] != s.use[1]) << 3 |
           (s.mapped != 0 && s.host_lost != 0 && s.admin_lost == 3 - s.host_lost) << 4;
  }

  std::string show(const State &s) const {
    return text(
        "draining %d%d up %d%d use %d%d | host step %d lost %d mapped %d | admin step %d lost %d",
        s.draining[0], s.draining[1], s.up[0], s.up[1], s.use[0], s.use[1], s.host, s.host_lost,
        s.mapped, s.admin, s.admin_lost);
  }

private:
  template <class Change>
  static void step(const State &s, Sink<State> &emit, const char *label, Change change) {
    State n = s;
    change(n);
    emit(n, label);
  }

  static bool reaches(uint8_t lost, int copy) { return lost != copy + 1; }

  static void put(uint8_t (&line)[2], uint8_t lost, int copy, uint8_t value) {
    if (reaches(lost, copy)) line[copy] = value;
  }

  // What the copies that can be read say together: more counts.
  static uint8_t most(const uint8_t (&line)[2], uint8_t lost) {
    uint8_t value = 0;
    for (int copy = 0; copy < 2; copy++) {
      if (reaches(lost, copy) && line[copy] > value) value = line[copy];
    }
    return value;
  }

  static uint8_t least(const uint8_t (&line)[2], uint8_t lost) {
    uint8_t value = 1;
    for (int copy = 0; copy < 2; copy++) {
      if (reaches(lost, copy) && line[copy] < value) value = line[copy];
    }
    return value;
  }

  void starts(const State &s, Sink<State> &emit) const {
    if (s.host == kLeft && (s.host_lost == 0 || !rules_.start_on_both)) {
      step(s, emit, "the host starts: its line, first copy", [&](State &n) {
        put(n.up, s.host_lost, 0, 1);
        n.host = kStarts;
      });
    }
    if (s.host == kStarts) {
      step(s, emit, "second copy", [&](State &n) {
        put(n.up, s.host_lost, 1, 1);
        n.host = s.host_lost != 0 && rules_.start_on_both ? kStopped : kIdle;
      });
    }
    if (s.host == kIdle) {
      step(s, emit, "the host leaves: first copy", [&](State &n) {
        put(n.up, s.host_lost, 0, 0);
        n.host = kLeaves;
      });
    }
    if (s.host == kLeaves) {
      step(s, emit, "second copy", [&](State &n) {
        put(n.up, s.host_lost, 1, 0);
        n.host = kLeft;
      });
    }
  }

  void uses(const State &s, Sink<State> &emit) const {
    if (s.host == kIdle) {
      step(s, emit, "the host announces its use: first copy", [&](State &n) {
        put(n.use, s.host_lost, 0, 1);
        n.host = kAnnounces;
      });
    }
    if (s.host == kAnnounces) {
      step(s, emit, "second copy", [&](State &n) {
        put(n.use, s.host_lost, 1, 1);
        n.host = kReads;
      });
    }
    if (s.host == kReads || s.host == kMapped) {
      const bool drains = most(s.draining, s.host_lost) != 0;
      if (!drains && s.host == kMapped) return;
      step(s, emit, drains ? "it reads: the slice drains" : "it reads the table and maps",
           [&](State &n) {
             n.mapped = drains ? 0 : 1;
             n.host = drains ? kWithdraws : kMapped;
           });
    }
    if (s.host == kWithdraws) {
      step(s, emit, "it withdraws: first copy", [&](State &n) {
        put(n.use, s.host_lost, 0, 0);
        n.host = kSecondWithdraws;
      });
    }
    if (s.host == kSecondWithdraws) {
      step(s, emit, "second copy", [&](State &n) {
        put(n.use, s.host_lost, 1, 0);
        n.host = kIdle;
      });
    }
  }

  void admin(const State &s, Sink<State> &emit) const {
    const bool stops = s.admin_lost != 0 && rules_.table_on_both;
    if (s.admin == kRests) {
      step(s, emit, "the administrator writes DRAINING: first copy", [&](State &n) {
        put(n.draining, s.admin_lost, 0, 1);
        n.admin = kDrains;
      });
    }
    if (s.admin == kDrains) {
      step(s, emit, stops ? "it cannot write the second copy and stops" : "second copy",
           [&](State &n) {
             put(n.draining, s.admin_lost, 1, 1);
             n.admin = stops ? kGivesUp : kLooks;
           });
    }
    if (s.admin == kLooks) {
      step(s, emit, "it reads the use line", [&](State &n) {
        n.saw_copies = s.admin_lost != 0 ? 1 : 2;
        n.saw_use = rules_.stronger_copy ? most(s.use, s.admin_lost) : least(s.use, s.admin_lost);
        n.admin = kAsks;
      });
    }
    if (s.admin == kAsks) {
      step(s, emit, "then the host line", [&](State &n) {
        n.saw_up = most(s.up, s.admin_lost);
        n.admin = kDecides;
      });
    }
    if (s.admin != kDecides) return;
    const bool out = s.saw_up == 0 ||
                     (s.saw_use == 0 && (s.saw_copies == 2 || !rules_.proof_by_both));
    step(s, emit, out ? "the host is out: it scrubs" : "held", [&](State &n) {
      n.admin = out ? kScrubs : kLooks;
      n.saw_copies = n.saw_use = n.saw_up = 0;
    });
  }

  const Rules rules_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::TwoCopies>().main(argc, argv);
}
