// SPDX-License-Identifier: Apache-2.0
// The owner (proto 7, 8, 10, 12): takes a store over, serves requests, evicts, watches members. One
// thread calls everything here; its member is renewed by the serving loop itself. Every decision is
// one line of its area, drained strictly before it is answered; the mirror in DRAM only makes it
// fast.
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "media/entry_line.hpp"
#include "pool/area_writer.hpp"
#include "pool/devices.hpp"
#include "pool/index_mirror.hpp"
#include "pool/member.hpp"
#include "pool/space_map.hpp"

namespace kvpool::pool {

struct OwnerOptions {
  u64 free_target_permille = 10;  // space kept free ahead of puts
  u32 leaving_at_once = 512;      // extents of a shrinking pool looked at in one round of chores
  u64 versions = media::kVersionNumberMax;  // publications of one epoch, no more than that
  DecisionSink sink;
};

// A living owner's heartbeat moves this often whatever the lease: standbys suspect it by that.
inline constexpr u64 kBeatNs = 50'000'000;
inline constexpr u64 kVersionsLeft = 16;  // a share of an epoch's versions: time to take over in
inline constexpr u64 kCrowdedFew = 16;  // puts that found no line: not worth a larger index yet

template <PoolEnv Env>
class Owner {
public:
  // `member` has joined; this thread renews its lease from now on.
  Owner(Env &env, Member<Env> &member, OwnerOptions options = {})
      : env_(env),
        geo_(member.geometry()),
        member_(member),
        claims_(member.claims()),
        options_(options),
        pen_(env, geo_, claims_.sealer()) {}

  // Memory for the mirror of the store as it is now, faulted in, so that a take-over need not wait
  // for it. Optional; what a standby does while it has time.
  void prepare() {
    index_.prepare(claims_.read().active.index_groups, [] {});
  }
  // Claims, settles, scans, copies forward, activates (proto 7). The caller holds the lock of the
  // standby slot. 0; -EAGAIN a rival is ahead; -ESTALE another life; -EUCLEAN nothing to build on;
  // -EFBIG the pool has more bytes than this process can map.
  // `index_groups`: the size of the index from now on, 0 for the one that it has. Where a larger
  // one would not take every entry it stays as it is.
  int take_over(u32 standby_slot, u64 index_groups = 0);

  // One round of the serving loop. >0: requests served; 0: idle; -ESTALE: no longer the owner;
  // -EIO: nor anybody, since the device with the lines of members is lost.
  int step();
  // Whether so many puts find both groups of their key full that a larger index, for which there
  // is room, is worth a take-over.
  bool wants_larger_index() const;
  // Takes the store over from itself with an index twice as large, or as large as there is room
  // for. As take_over(); it serves again, with another epoch, when that succeeds.
  int enlarge_index();
  // proto 14: whether a change of the pool's size that a member asked for can be made now: it
  // grows, or what is to go is empty.
  bool wants_resize() const {
    return serving_ && !outbid() && resize_ && resize_->ready && !other_area_lost_;
  }
  // Takes the store over from itself with the other table of regions. As take_over().
  int resize_now();
  // proto 14: the device of the area is lost, and decisions are on no medium before it is moved.
  bool wants_other_area() const { return serving_ && area_lost(); }
  // Takes the store over from itself, out of its mirror, into an area on another device. As
  // take_over().
  int move_area();
  // Whether nearly as many publications were made as an epoch has versions for.
  bool wants_new_epoch() const {
    return serving_ && !outbid() && !other_area_lost_ &&
           version_number_ >= options_.versions - options_.versions / kVersionsLeft;
  }
  // Takes the store over from itself, for an epoch with versions of its own. As take_over().
  int renew_epoch() {
    serving_ = false;
    return take_over(standby_);
  }
  // How long ago the last request was served: what the loop around step() rests by.
  u64 idle_ns() const;
  // Takes no further request, and lets a successor know by letting go. The area stays as it is.
  void stop() { serving_ = false; }

  bool serving() const { return serving_; }
  // proto 14: another claims; this one decides nothing more and goes when that one is active.
  bool outbid() const { return outbid_ns_ != 0; }
  u32 epoch() const { return epoch_; }
  const OwnerStats &stats() const { return stats_; }
  const SpaceMap &space() const { return space_; }
  const IndexMirror &index() const { return index_; }
  u64 in_grace() const { return grace_.size() + grace_pinned_.size(); }
  u64 pinned() const { return pins_.size(); }  // entries
  bool awaits_reports() const { return reports_awaited_ > 0; }

private:
  enum class Life : u8 { kAbsent, kLive, kDead };
  // What a member is to acknowledge.
  struct Owed {
    u64 incarnation = 0;  // 0: nothing
    u32 slot = 0;
    u32 aborted = 0;  // number of the aborts; 0: a death
    friend bool operator==(const Owed &, const Owed &) = default;
  };
  struct MemberState {
    Life life = Life::kAbsent;
    bool given_up = false;  // dead by time alone: it may still store
    bool reported = true;
    bool pins = false;        // must report pins before anything may be evicted
    u64 incarnation = 0, group = 0;
    u64 counter = 0, seen_ns = 0;  // heartbeat, and when it last moved here
    PoolOffset ring_at{}, answers_at{};
    u32 ring_place = 0;  // of the next line in the ring
    u32 next_sequence = 0;
    u32 window = 4;
    bool ahead = false;  // the window was flushed already, in front of a drain's fence
    u64 served_ns = 0;
    bool due = true;  // its doorbell rang, or it is new: its ring has not been found empty since
    u32 notice_sequence = 0;
    Owed told{};         // what its notice names, and since when
    u64 told_ns = 0;
    u32 report_begun = 0;     // BEGINs of its reports: tells the pins of the last one from others
    std::vector<u32> named;   // extents its report has named so far
  };
  // A dead incarnation whose blocks are not free yet.
  struct Quarantine {
    u32 slot;
    u64 incarnation;  // or its tag, where the map alone remembers it
    u64 until_ns;     // not before, without a proof
    u64 quiet_at_ns;  // from when the proof of QUIET that was seen is believed; kNever: none was
    std::vector<u32> awaited;  // slots of its group whose members have not acknowledged
    bool group_known = true;
    u64 group = 0;
    // Those of its group who were given up by time and may be in the middle of a shard: no proof of
    // QUIET helps, only time and taint.
    std::vector<u16> late{};
  };
  static constexpr u64 kNever = ~u64{0};
  // Who tainted extents, and whether it is known by now that no more stores of it can come.
  struct Taint {
    u16 mark;
    u64 quiet_at_ns = kNever;
    bool over = false;
  };
  // Blocks that a living member of a group aborted and others of it may be writing. Soft: it asks
  // again until it has an answer.
  struct Aborts {
    u32 slot;
    u64 incarnation;
    u32 number;
    u64 since_ns;               // nothing is answered before
    std::vector<u32> awaited;   // slots that have not acknowledged
    std::vector<u16> late{};    // marks of those that were given up by time
  };
  struct Returned {
    u32 slot, extent;
    bool tainted = false;
    u16 mark = 0;
  };
  struct Announced {
    u32 entry;
    u64 until_ns;  // by this owner's clock; anew from its activation on
  };
  struct Grace {
    u64 due_ns;
    u32 entry;
    u32 stamp;  // of the entry when it was hidden: a revival changes it
  };
  struct PinHold {
    u64 id;
    u64 until_ns;
    u64 incarnation, group;  // of the holder
    u32 report_begun;        // by it when it pinned, or pinned again
  };
  // A change of the pool's size on its way: soft, the asker asks again and again.
  struct Resize {
    u32 now;                   // the epoch whose table it was planned for
    media::RegionTable table;  // then
    bool ready = false;
    u64 asked_ns = 0;          // last
    u32 next = 0;              // extent looked at next
    u32 leaving = 0, held = 0, pinned = 0;       // of the round that goes on
    u32 leaving_said = 0, held_said = 0, pinned_said = 0;  // of the last whole one
    u64 told_ns = 0;           // members, what to give back
  };
  struct Response {
    PoolOffset at;
    Line line;
  };

  // take-over
  int look_before_claim(const ClaimView &view, u64 index_groups);
  int pick_area(const ClaimView &view, u8 &ret_area);
  bool area_reads_back();
  int scan(const ClaimView &base, u64 index_groups, bool in_parts = true);
  int scan_regions(PoolOffset base, u32 base_epoch);
  void scan_namespaces(PoolOffset base, u32 base_epoch);
  bool whole_ns(Line &line, bool good, u32 id, PoolOffset base, u32 base_epoch);
  void scan_map(PoolOffset base, u32 base_epoch);
  bool scan_entries(PoolOffset base, u32 base_epoch, bool in_parts);
  int scan_into_larger(PoolOffset base, u32 base_epoch, u64 base_groups);
  void write_index();
  void hide_twin(u32 a, u32 b);
  void load_window(PoolOffset from, u64 lines, Line *ret_lines, bool *ret_good);
  void repair_runs();
  void find_in_unread(PoolOffset base, u32 base_epoch, u64 entries);
  bool told_by_entries(u32 extent) const;
  void classify_unread();
  bool unread(u32 extent) const;
  bool in_unread_run(u32 extent, const media::MapRecord *before, u32 first,
                     media::MapRecord &ret) const;
  void settle_runs();
  class EntryScan;
  bool renew_while_scanning();
  void first_members();
  void know_the_dead(const std::vector<MemberState> &before);

  // serving
  u32 poll_members(bool all);
  class Lookahead;
  u32 serve_member(u32 slot, const Line *lines, u32 count);
  void handle(u32 slot, const media::MessageHead &head, const unsigned char *body);
  void answer(u32 slot, media::MessageType type, media::MessageStatus status, const void *body,
              u32 bytes);
  void flush_ahead(const u32 *slots, u32 count);
  void finish_batch();
  // The i-th line from the head of a member's ring; i is less than the ring's length.
  PoolOffset ring_line(const MemberState &m, u32 i) const {
    u32 place = m.ring_place + i;
    if (place >= geo_.request_lines) place -= geo_.request_lines;
    return m.ring_at + place * kLineBytes;
  }
  bool may_serve(const MemberState &m, media::MessageType type) const;

  // decisions
  media::MessageStatus publish(u32 slot, const media::PublishBody &body, bool doubt,
                               media::PublishAnswer &ret);
  media::MessageStatus insert(u32 slot, const media::PublishBody &body,
                              const IndexMirror::Found &found, SpaceMap::Spot spot,
                              media::PublishAnswer &ret);
  media::MessageStatus revive(u32 number, media::PublishAnswer &ret);
  void spill_before(const IndexMirror::Found &found, u32 number);
  media::MessageStatus grant(u32 slot, const media::GrantBody &body, media::GrantAnswer &ret);
  media::MessageStatus pending(u32 slot, const media::PendingBody &body);
  media::MessageStatus remove(u32 slot, const media::RemoveBody &body, Decision why);
  media::MessageStatus pin(u32 slot, const u64 *key, u64 ttl_ms, media::PinAnswer &ret);
  media::MessageStatus pin_reported(u32 slot, const media::ReportPinBody &body,
                                    media::PinAnswer &ret);
  media::MessageStatus pin_entry(u32 slot, u32 entry, u64 ttl_ms, media::PinAnswer &ret);
  void unpin(u32 slot, const media::UnpinBody &body);
  void drop_pendings(u32 ns);
  bool announced_by(u32 number, u32 slot) const;
  void begin_pending(u32 number);
  void forget_pending(u32 number) {
    std::erase_if(pendings_, [number](const Announced &a) { return a.entry == number; });
  }
  void end_pendings();
  media::MessageStatus ns_open(const media::NsOpenBody &body, media::NsAnswer &ret);
  media::MessageStatus ns_control(u32 slot, const media::NsControlBody &body,
                                  media::NsAnswer &ret);
  media::MessageStatus resize(const media::ResizeBody &body, media::ResizeAnswer &ret);
  void empty_leaving();
  bool is_leaving(u32 entry) const;
  bool still_leaving(u32 extent, u64 now);
  void recall_leaving();
  void forget_resize();
  bool decided_before(const media::PublishBody &body, const SpaceMap::Spot &spot,
                      media::PublishAnswer &ret);
  bool overtaken(const media::PublishBody &body) const;
  bool of_unknown_clear(const media::PublishBody &body) const;
  void take_back(u32 number);
  void note_formers();
  bool report_extent(u32 slot, const media::ReportExtentBody &body);
  void report_end(u32 slot);
  void take_return(u32 slot, const media::ReturnBody &body);
  void return_extent(const Returned &back);
  void release(u32 extent, bool tainted, u16 mark = 0);
  bool others_hold(u32 slot) const;
  bool holds(u32 slot, u32 extent) const;
  bool has_ns(u32 id) const {
    return id > 0 && id < ns_.size() && (ns_[id].flags & media::kNsUsed);
  }
  bool fits(const media::PublishBody &body, SpaceMap::Spot spot) const;
  u64 room_in(u32 extent) const;
  u32 free_line(const IndexMirror::Found &found);
  bool cleared(u32 number, const media::NamespaceLine &ns) const;
  bool let_cleared_go(u32 number, const media::NamespaceLine &ns);
  void displace(const IndexMirror::Found &found);
  bool quota_refuses(u32 ns, u64 bytes) const;

  // eviction
  void hide(u32 entry, media::EntryState state);
  void hide(u32 entry, media::EntryState state, Decision why,
            u32 member = DecisionEvent::kNobody);
  void tell_sink(Decision what, const media::Entry &entry, u32 member) const;
  void tell_sink(Decision what, const u64 *key, u32 ns, u64 version, u64 payload_lines,
                 u32 member) const;
  void evict(u32 entry);
  bool evictable(u32 entry) const;
  bool pinned(u32 entry) const;
  u32 oldest_evictable(u32 ns) const;
  u64 pinned_bytes() const;
  bool makes_room(u32 entry) const;
  u64 evict_oldest(u64 bytes);
  u64 evict_neighbours(const media::Entry &of, u32 stamp);
  void evict_extent(u32 extent);
  bool can_empty(u32 extent, u64 &ret_newest);
  bool run_on_its_way(u32 run);
  u32 pick_to_empty(u32 length);
  void evict_for(u32 run);
  void forget_grants(u64 elapsed_ns);
  void keep_free_ahead();
  void empty_cleared();
  void run_graces();
  void note_before_emptying(u32 entry);
  bool still_hidden(const Grace &g) const;
  void clear_entry(u32 entry);
  void free_run(u32 head);
  u64 entry_bytes(const media::Entry &entry) const;
  u64 pinned_until(u32 entry) const;
  void forget_pins();
  template <class Over>
  void end_pins(Over &&over);
  void end_pins_of_dead(const MemberState &dead);

  // lost devices
  bool moves_control() const { return geo_.control != geo_.control_before; }
  void outlast_leases();
  bool watch_devices();
  bool on_lost_device(u32 extent) const;
  bool block_out(u32 extent) const;
  void lose_extents();
  void lose_entry(u32 number);
  void take_back_extents();
  bool area_lost() const;
  bool awaits_successor(const ClaimView &view, u64 now);
  PoolOffset other_area() const;
  void write_mirror(u32 former);

  // members
  void watch_members();
  bool load_member(u32 slot, Line &ret_line);
  bool stands_unread(u32 slot, const Line &line);
  void mend_line(u32 slot, const Line &seen);
  void excuse(u32 slot);
  void write_quiet(u32 slot, u64 incarnation);
  bool said_quiet(u32 slot, u64 incarnation);
  void quarantine_strangers(u32 slot, bool quiet);
  void quarantine(u32 slot, u64 incarnation, bool quiet, bool group_known, u64 group);
  u64 quiet_from_now() const;
  void believe_quiet(u32 slot);
  static bool same_group(const Quarantine &death, const MemberState &peer);
  void meet(u32 slot, const media::MemberLine &line);
  void bury(u32 slot, bool quiet);
  void check_death(u32 slot, u64 now);
  void run_quarantines();
  void reclaim(u32 slot, u64 incarnation, bool tainted, u16 mark);
  void note_taint(u16 mark);
  bool taint_over(u16 mark) const;
  void add_taint(media::MapRecord &to, const media::MapRecord &of) const;
  bool tainter_quiet(u16 mark);
  void watch_taints();
  Owed unacknowledged(u32 slot) const;
  media::MessageStatus aborts(u32 slot, const media::AbortBody &body, media::AbortAnswer &ret);
  void acknowledged(u32 slot, const media::DeathAckBody &body);
  void repeat_deaths();
  void tell(u32 slot, u8 flags, u32 recall);
  void recall_from_others(u32 asking);
  void set_map(u32 extent, media::MapRecord record);
  static u16 tag_of(u64 incarnation) { return static_cast<u16>(incarnation | 1); }

  Env &env_;
  const media::Geometry &geo_;
  Member<Env> &member_;
  Claims<Env> &claims_;
  OwnerOptions options_;
  AreaWriter<Env> pen_;
  IndexMirror index_;
  SpaceMap space_;
  std::vector<media::NamespaceLine> ns_;
  std::vector<u64> ns_bytes_;
  std::vector<MemberState> members_;
  std::vector<Quarantine> quarantine_;
  std::vector<Aborts> aborts_;  // one for each member at most
  std::vector<Taint> taints_;
  std::deque<Grace> grace_;          // in order of due_ns
  std::vector<Grace> grace_pinned_;  // over, but pinned
  std::unordered_map<u32, std::vector<PinHold>> pins_;  // by entry
  std::vector<Announced> pendings_;        // PENDING entries
  u64 pendings_due_ns_ = kNever;           // when the first of them ends
  std::vector<PoolOffset> poll_lines_;     // of the wave being made
  std::vector<PoolOffset> ahead_lines_;    // of the next wave, flushed with the drain of this one
  std::vector<Response> responses_;
  u64 base_version_ = 0;     // highest known of the owner before, or its epoch and number 0
  u64 formers_[media::kFormersKept]{};  // and of those before that one
  u64 emptied_version_ = 0;  // of this owner, noted on the medium before a line was emptied
  bool answered_ = false;                  // something was, since the last finish_batch()
  std::vector<Returned> returns_;  // map words after the entry lines
  u32 standby_ = 0;
  u32 epoch_ = 0;
  u64 version_number_ = 0;
  u64 crowded_enough_ = kCrowdedFew;  // before a larger index is worth a try
  u64 crowded_ = 0;  // puts of this epoch that found both groups of their key full
  u64 next_pin_ = 1;
  u64 pin_bucket_ = 0;  // of pins_, looked at next for pins that have expired
  u64 grace_bytes_ = 0;
  u32 run_first_ = 0, run_length_ = 0;  // extents emptied for the last run that found no room
  u64 granted_lately_ = 0;  // bytes
  bool serving_ = false;
  u32 reports_awaited_ = 0;
  u32 pins_awaited_ = 0;
  u64 step_count_ = 0;
  u64 last_request_ns_ = 0, last_watch_ns_ = 0, reapers_read_ns_ = 0, taints_watched_ns_ = 0,
      last_renew_ns_ = 0, last_chores_ns_ = 0, last_all_ns_ = 0, devices_read_ns_ = 0,
      lines_mended_ns_ = 0;
  u32 doorbell_seen_[media::kMaxMembers]{};
  u32 recall_turn_ = 0;
  u32 base_extents_ = 0;  // of the area scanned last
  std::vector<u32> unread_;  // extents whose words could not be read then, in order
  std::unordered_map<u32, u8> found_in_unread_;  // size class of blocks that begin there
  std::optional<Resize> resize_;
  media::ClaimLine claim_{};      // as it was written last
  u32 lost_ = 0, lost_once_ = 0;  // devices, a bit each: now, and at any time since the scan
  bool look_at_devices_ = true;  // at once
  bool area_lost_ = false, other_area_lost_ = false;
  u64 outbid_ns_ = 0;  // since when; 0: not
  bool from_mirror_ = false;     // what a take-over copies forward
  OwnerStats stats_;
};

}  // namespace kvpool::pool

#include "pool/owner_decide.ipp"
#include "pool/owner_evict.ipp"
#include "pool/owner_members.ipp"
#include "pool/owner_lost.ipp"
#include "pool/owner_scan.ipp"
#include "pool/owner_resize.ipp"
#include "pool/owner_serve.ipp"
#include "pool/owner_take_over.ipp"
