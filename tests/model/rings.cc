// SPDX-License-Identifier: Apache-2.0
// Owns the model of request rings, response rings and doorbells (proto 12): two members, one on the
// owner's host and one elsewhere, an owner that reads the rings of recently active members in every
// wave and the doorbells and all rings now and then, and that may sleep.
//
// A doorbell is a hint: it may be lost, and it may ring for nothing. What is checked: every request
// is answered in the end, once, and its answer is read. The timed wake-up of a sleeping owner,
// which bounds a wait and does not replace the rule, is left out.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Rings {
public:
  struct Rules {
    bool all_rings_now_and_then = true;
    bool ring_line_decides = true;
    bool depth_kept = true;
    bool awake_for_remote = true;
    bool post_wakes_owner = true;
    bool look_again_before_sleep = true;
    bool answer_at_its_place = true;
  };

  static constexpr uint8_t kDepth = 2;
  enum Where : uint8_t { kLocal, kRemote };  // member 0 is on the owner's host

  struct Member {
    uint8_t posted, read;  // requests sent, answers read
    uint8_t live;
    uint8_t ring[kDepth];    // request lines: sequence
    uint8_t answer[kDepth];  // response lines: sequence
    uint8_t unrung;          // a post whose doorbell is still to come
  };
  struct State {
    Member member[2];
    uint8_t served[2];    // the owner's: last sequence it executed
    uint8_t executed[2];  // ghost: how many executions there were
    uint8_t active[2];    // recently active: its ring is in every wave
    uint8_t rings[2];     // the doorbell's counter differs from what the owner saw
    uint8_t sleeping, about_to_sleep;
    uint8_t false_rings;
  };

  static constexpr const char *kName = "rings";
  static constexpr const char *kCovers =
      "request and response rings, doorbells as hints, a sleeping owner";
  static constexpr Mutant<Rules> kMutants[] = {
      {"never-all-rings", &Rules::all_rings_now_and_then, "12",
       "the owner reads all rings now and then"},
      {"doorbell-believed", &Rules::ring_line_decides, "12",
       "a doorbell is only a hint: the line's sequence decides"},
      {"depth-overrun", &Rules::depth_kept, "12",
       "no request is sent before the answer a ring ago was read"},
      {"sleeps-despite-remote", &Rules::awake_for_remote, "12",
       "the owner sleeps only when no live member is outside its host"},
      {"post-wakes-nobody", &Rules::post_wakes_owner, "12", "a post on the owner's host wakes it"},
      {"sleeps-without-looking", &Rules::look_again_before_sleep, "12",
       "before it sleeps the owner announces it and reads the rings once more"},
      {"answer-anywhere", &Rules::answer_at_its_place, "12",
       "an answer stands at its sequence modulo the depth"},
  };
  static constexpr const char *kMarks[] = {"all answers read", "a doorbell was lost",
                                           "rang for nothing", "the owner slept", "two under way"};

  Rings(const Rules &rules, Mode mode) : rules_(rules), requests_(mode == Mode::kLong ? 4 : 3) {}

  State initial() const {
    State s{};
    s.member[kLocal].live = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t m = 0; m < 2; m++) {
      member(s, m, emit);
    }
    owner(s, emit);
  }

  const char *violation(const State &s) const {
    for (int m = 0; m < 2; m++) {
      if (s.executed[m] > s.member[m].posted) {
        return "the owner executed a request twice";
      }
    }
    return nullptr;
  }

  bool settled(const State &s) const {
    for (const Member &m : s.member) {
      if (m.live != 0 && m.read != m.posted) {
        return false;
      }
    }
    return true;
  }

  uint32_t marks(const State &s) const {
    const Member &remote = s.member[kRemote];
    return (remote.live && remote.read == requests_) |
           (remote.posted > s.served[kRemote] && !remote.unrung && !s.rings[kRemote]) << 1 |
           (s.false_rings != 0) << 2 | (s.sleeping != 0) << 3 |
           (remote.posted == remote.read + 2) << 4;
  }

  std::string show(const State &s) const {
    std::string out =
        text("owner %s%s ", s.sleeping ? "sleeps" : "awake", s.about_to_sleep ? ", announced" : "");
    for (int m = 0; m < 2; m++) {
      const Member &x = s.member[m];
      out +=
          text("[%s live%d posted %d read %d ring %d%d answers %d%d served %d active%d rings%d] ",
               m == kLocal ? "local" : "remote", x.live, x.posted, x.read, x.ring[0], x.ring[1],
               x.answer[0], x.answer[1], s.served[m], s.active[m], s.rings[m]);
    }
    return out;
  }

private:
  void member(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &now = s.member[m];
    State n = s;
    if (now.live == 0) {
      if (s.sleeping == 0 && s.about_to_sleep == 0) {  // joining is seen by the owner
        n.member[m].live = 1;
        emit(n, "the remote member joins");
      }
      return;
    }
    const int room = rules_.depth_kept ? kDepth : kDepth + 1;
    if (now.posted < requests_ && now.posted < now.read + room && now.unrung == 0) {
      n.member[m].posted++;
      n.member[m].ring[n.member[m].posted % kDepth] = n.member[m].posted;
      n.member[m].unrung = 1;
      emit(n, "a member writes a request line");
    }
    if (now.unrung != 0) {
      n = s;
      n.member[m].unrung = 0;
      if (m == kLocal && rules_.post_wakes_owner) {
        n.sleeping = 0;
      }
      emit(n, "its doorbell is lost");
      n.rings[m] = 1;
      emit(n, "its doorbell rings");
    }
    const uint8_t want = static_cast<uint8_t>(now.read + 1);
    if (now.read < now.posted && now.answer[want % kDepth] == want) {
      n = s;
      n.member[m].read++;
      emit(n, "a member reads its answer");
    }
    if (s.false_rings == 0) {
      n = s;
      n.rings[m] = 1;
      n.false_rings = 1;
      emit(n, "a doorbell rings for nothing");
    }
  }

  void owner(const State &s, Sink<State> &emit) const {
    if (s.sleeping != 0) {
      return;
    }
    State n = s;
    for (uint8_t m = 0; m < 2; m++) {
      if (s.active[m] != 0) {
        n = s;
        poll(n, m);
        emit(n, "the owner reads an active member's ring");
        n = s;
        n.active[m] = 0;
        emit(n, "a member is no longer recently active");
      }
      if (s.rings[m] != 0) {
        n = s;
        n.rings[m] = 0;
        n.active[m] = 1;
        if (!rules_.ring_line_decides) {
          execute(n, m, s.member[m].ring[s.served[m] % kDepth]);
        }
        emit(n, "the owner reads the doorbells");
      }
      if (rules_.all_rings_now_and_then) {
        n = s;
        poll(n, m);
        emit(n, "the owner reads all rings");
      }
    }
    sleep(s, emit);
  }

  // The next line of the ring, if it carries the sequence that is due.
  void poll(State &n, uint8_t m) const {
    const uint8_t due = static_cast<uint8_t>(n.served[m] + 1);
    if (n.member[m].ring[due % kDepth] == due) {
      n.served[m] = due;
      n.active[m] = 1;
      execute(n, m, due);
    }
  }

  void execute(State &n, uint8_t m, uint8_t sequence) const {
    if (sequence != 0) {
      n.executed[m]++;
      n.member[m].answer[rules_.answer_at_its_place ? sequence % kDepth : 0] = sequence;
    }
  }

  bool pending(const State &s) const {
    for (int m = 0; m < 2; m++) {
      const uint8_t due = static_cast<uint8_t>(s.served[m] + 1);
      if (s.member[m].ring[due % kDepth] == due) {
        return true;
      }
    }
    return false;
  }

  // Two steps: say that it is going to sleep, then look once more and go. A post on this host sees
  // the announcement and wakes it; one that came before is found by the last look.
  void sleep(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.member[kRemote].live != 0 && rules_.awake_for_remote) {
      if (s.about_to_sleep != 0) {
        n.about_to_sleep = 0;
        emit(n, "the owner stays awake");
      }
      return;
    }
    if (s.about_to_sleep == 0) {
      n.about_to_sleep = 1;
      emit(n, "the owner announces its sleep");
    } else {
      n.about_to_sleep = 0;
      if (!pending(s) || !rules_.look_again_before_sleep) {
        n.sleeping = 1;
      }
      emit(n, "the owner looks once more and sleeps if there is nothing");
    }
  }

  const Rules rules_;
  const uint8_t requests_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Rings>().main(argc, argv);
}
