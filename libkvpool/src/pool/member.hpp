// SPDX-License-Identifier: Apache-2.0
// A member (proto 6, 8, 9, 11, 12): joins, looks up and validates one-sidedly, reserves blocks,
// asks the owner for decisions, accepts its answers, and reports to a new owner. Reads take no
// lock; requests hold one mutex; the lease has its own. Call tick() about every 20 to 100 ms from a
// thread of its own.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pool/hand.hpp"
#include "pool/host_keeper.hpp"
#include "pool/lease.hpp"
#include "pool/lookup.hpp"
#include "pool/mailbox.hpp"
#include "pool/ring.hpp"

namespace kvpool::pool {

struct MemberOptions {
  u32 host = 0;
  u64 group = 0;  // members of one engine; 0: a group of its own
  u16 rank = 0;
  u16 world = 1;
  u32 pid = 0;
  u8 standby_slot = media::kNoStandby;
  HostIdentity host_identity;
  std::string name;
  u64 slice_ns = 0;  // not 0: for so long one caller at most keeps others from a bind
};

template <PoolEnv Env>
class Member {
public:
  Member(Env &env, const media::Geometry &geo)
      : env_(env),
        geo_(geo),
        claims_(env, geo_),
        reader_(env, geo_, claims_),
        lease_(env, geo_, claims_.sealer()),
        host_(env, geo_, claims_.sealer()),
        mailbox_(env, geo_, claims_.sealer()),
        outstanding_(geo_.response_slots + kAnsweredMax),
        doubts_(geo_.response_slots + kAnsweredMax) {}

  // ---- life -------------------------------------------------------------------------------------

  // Takes a slot of the host. 0; -EUSERS no free slot; -ESTALE another life; -EUCLEAN no readable
  // area.
  int join(const MemberOptions &options);
  // Reads who owns the store without joining: one-sided calls work, requests are refused.
  int attach() { return refresh_session(); }
  // After the lease was lost: a new incarnation in the same slot. What was in hand or in doubt is
  // gone.
  int rejoin();
  // Gives everything back by leaving: LEFT proves this incarnation QUIET.
  void leave();
  // Renews the lease; accepts what was answered; reports to a new owner; serves notices.
  // 0, -ESTALE when this incarnation is dead; -ENOTUNIQ: it is, because another host uses this
  // one's id, so no other may follow it.
  int tick();

  // The heartbeat alone; an owner's serving loop calls it for its own member.
  bool renew();

  bool alive() { return lease_.alive(); }
  u64 lease_expiry_ns() const { return lease_.expiry_ns(); }
  bool joined() const { return joined_; }
  u32 slot() const { return slot_; }
  u64 incarnation() const { return lease_.incarnation(); }
  u64 group() const { return options_.group; }
  const media::Geometry &geometry() const { return geo_; }
  Claims<Env> &claims() { return claims_; }
  IndexReader<Env> &reader() { return reader_; }
  Env &env() { return env_; }

  // The active owner's area as known now; never null after join(). Valid while the member lives.
  const Session *session() const { return session_.load(std::memory_order_acquire); }

  // Looks who owns the store, and opens its area when that changed. 0, -ESTALE, -EAGAIN, -EUCLEAN,
  // -EFBIG.
  int follow_owner() { return refresh_session(); }

  // ---- one-sided (any thread) -------------------------------------------------------------------

  // proto 10. 0, -ESTALE, -EAGAIN when areas change faster than they can be read.
  int lookup(NsRef ns, const Key *keys, u32 count, LookupOptions options, Hit *ret_hits);
  // valid[i]: the copy made of hits[i] counts, and is of *keys[i] where one is given. -EAGAIN:
  // another area is active, look up again.
  int validate(const Hit *hits, u32 count, bool *ret_valid, const Key *const *keys = nullptr);
  // Finds a namespace by fingerprint without an owner. -ENOENT.
  int find_ns(const u8 fingerprint[16], u32 &ret_id, media::NamespaceLine &ret_line);
  int read_ns(u32 id, media::NamespaceLine &ret_line);
  // A sampled, lossy hint that these entries were used (proto 12).
  void touch(const Hit *hits, u32 count);

  // ---- requests (any thread; each waits until `deadline`, absolute on the env's clock) ----------

  // Blocks for payloads of `block_bytes` (media::BlockShape) each. All or none. 0; -ENOSPC; -EAGAIN
  // no owner; -ETIMEDOUT; -EINVAL; -ESTALE.
  int reserve(u64 block_bytes, u32 count, u64 deadline, Block *ret_blocks);
  // The same, for as many as there are without waiting, at least one: their number, or an error.
  // `ns`: whose quota must have room (-EDQUOT), where an extent has to be asked for; 0: any.
  int reserve_some(u64 block_bytes, u32 count, u64 deadline, Block *ret_blocks,
                   int *ret_why_fewer = nullptr, u16 ns = 0);
  // Of a block that nobody else knows of.
  void abort(const Block &block);
  // Of one whose ticket others may have, after close_shard() of all its shards: it is free when all
  // who write it are done.
  // `reserver`: the incarnation that reserved it; by another, or when its lease is over, nothing is
  // done: the block is not this member's any more.
  void abort_shared(const Block &block, u64 reserver);
  // As abort() for one that could not be read back: nothing of its extent is used any more.
  void abort_lost(const Block &block);
  // Publishes; each publication's result says what became of it. The payload must be drained.
  // Returns 0 when every publication has an answer, else -ETIMEDOUT, -EAGAIN, -ESTALE with the rest
  // in doubt; so, with -ECANCELED, soon after `cancelled` (may be null) is set.
  int publish(Publication *publications, u32 count, u64 deadline,
              const std::atomic<bool> *cancelled = nullptr);
  // Announces that a key is being computed for about `duration_ms`; 0 withdraws. Waits for nothing.
  int pending(NsRef ns, const Key &key, u32 duration_ms);
  // version 0: any. -ENOENT, -ESTALE when another version is there by now.
  // `damaged`: for those who hear of decisions.
  int remove(const Key &key, u64 version, u64 deadline, bool damaged = false);
  int pin(const Hit &hit, const Key &key, u32 ttl_ms, u64 deadline, Pin &ret_pin);
  // Ends a pin. What cannot be told to the owner now is told at a later tick.
  void unpin(const Pin &pin);
  // Whether the block of a pin that has time left went nevertheless: its entry turned out bad, and
  // an owner said so when the pin was reported.
  bool pin_lost(const Pin &pin);
  int ns_open(const media::NsOpenBody &body, u64 deadline, media::NsAnswer &ret_answer);
  // -ENOENT: it is not there any more. -ESTALE: the epoch named is over.
  int ns_control(const media::NsControlBody &body, u64 deadline, media::NsAnswer &ret_answer);
  // Asks for another size of the pool (proto 14); asked again and again until it is 0, and given up
  // by the owner when it is not. -EBUSY on its way; -EINVAL the owner's plan is another; else as
  // above.
  int resize(u64 pool_bytes, u32 extents, u64 deadline, media::ResizeAnswer &ret_answer);
  // An empty request: the round trip alone, with or without accept (benchmarks).
  int ping(u32 count, u32 depth, bool accept, u64 deadline);

  // ---- tickets of a group (proto 8) -------------------------------------------------------------

  // A rank writes a shard that another member of its group reserved: -ENOTCONN when that one is
  // dead; -ESTALE, -EAGAIN or -ETIMEDOUT when that cannot be known. The first time in this member's
  // life takes a request and some heartbeats of that one. Whoever has begun looks whether the shard
  // is open before the first store to it, and ends.
  int begin_shard_write(u64 reserver_incarnation, u64 deadline, u64 &ret_writer);
  void end_shard_write(u64 writer);
  // `at`: the check line of the shard's first segment. Stores are the caller's to drain, and loads
  // its to acquire.
  void open_shard(PoolOffset at, u64 nonce, u32 shard);
  bool close_shard(PoolOffset at, u64 reserver);
  bool shard_is_open(PoolOffset at, u64 nonce);

  u64 blocks_in_hand();
  u64 blocks_in_doubt();
  // For checkers: no block is in doubt that nobody asks about, and whether an extent is in hand.
  bool doubts_accounted();
  u32 run_in_hand(u32 extent);  // how many extents from there on, as one; 0: not in hand

private:
  struct HeldPin {
    u64 handle = 0;  // what pin() returned
    u64 id = 0;      // what the present owner calls it
    u64 expiry_ns = 0;
    Key key{};
    u64 entry = 0;
    u64 version = 0;
  };
  struct Request {
    media::MessageType type{};
    Answer *answer = nullptr;  // of a caller that waits
    bool *done = nullptr;
    Publication *publication = nullptr;  // of a caller that waits
    bool returns_extent = false;
    bool answered = false;
    media::MessageStatus status{};
    u64 version = 0;                     // kPublish: as answered
    media::PublishBody body{};           // kPublish: kept until doubt ends
    Block block{};
    media::GrantBody grant{};            // kGrant: what was asked, and what came
    media::GrantAnswer granted{};
    u16 abort_mark = 0;                  // kAbort: as answered
    HeldPin pin{};                       // kPin: what is held once it is accepted

    // Anew in the same place; what only other types use stays as it is.
    void begin(media::MessageType as) {
      type = as;
      answer = nullptr;
      done = nullptr;
      publication = nullptr;
      returns_extent = answered = false;
      status = {};
      version = 0;
      if (as == media::MessageType::kPublish) body = {};
      if (as == media::MessageType::kPin) pin = {};
    }
  };

  // A report on its way to the owner that the mailbox speaks to.
  struct ReportPart {
    media::MessageType type;
    u64 which;
  };
  enum class PinFate : u8 { kUnnamed, kHeld, kGone };
  struct Report {
    bool begun = false, end_posted = false;
    u64 extent = 0, doubt = 0, pin = 0;  // to be posted next
    std::deque<ReportPart> sent;         // without an answer, in order
    std::vector<u32> foreign;
    std::vector<Answer> resolved;        // of doubts_
    std::vector<HeldPin> pins;           // as they were at BEGIN, then as answered
    std::vector<PinFate> fates;
  };

  // Answers that wait to be accepted together, with room to spare.
  static constexpr u32 kAnsweredMax = 256;
  static constexpr u32 kTakeAtOnce = 64;

  struct ShardWriter {
    u64 reserver, serial;
  };
  struct Aborted {
    Block block;
    u64 before;  // the first writer that did not begin before it was aborted
    bool asked;  // in the round of aborts that is open
  };
  struct AbortsNoticed {
    u64 incarnation = 0;
    u32 number = 0;
    u64 before = 0;
  };
  bool has_room(u32 lines) const { return mailbox_.has_room(lines) && !outstanding_.full(); }

  Request &new_request(media::MessageType type) {
    Request &r = outstanding_.push_stale();
    r.begin(type);
    grants_under_way_ += type == media::MessageType::kGrant;
    return r;
  }
  void grant_ahead(u8 size_class);
  int refresh_session();
  int bind_owner(u64 deadline);
  int bind_slice(u64 deadline);
  int make_room();
  void announce(media::MessageType type);
  int call(media::MessageType type, const void *body, u32 bytes, u64 deadline, Answer &ret_answer,
           const HeldPin *pin = nullptr);
  void post_publication(Publication &publication);
  u32 post_some(Publication *publications, u32 count);
  void flush_touches();
  void drop_pin(const HeldPin &pin);
  void flush_unpins();
  bool pump();
  bool accept_answered();
  void settle(Request &request);
  void deliver(Request &request, const Answer &answer);
  int wait_for(const bool &done, u64 deadline);
  int check_owner();
  int report(const Session &session, u64 deadline);
  int report_on(u64 deadline);
  bool post_report();
  void hear_report(const ReportPart &part, const Answer &answer);
  void finish_report();
  void settle_pins();
  void collect_doubts();
  void return_idle(u32 at_most);
  void return_leaving();
  void lose(const Block &block);
  int give_back_extent(u32 extent, u32 flags);
  void serve_notice();
  int grant(u8 size_class, u32 run, u16 ns, u64 deadline, bool wait_while_busy);
  bool knows_dead(u64 reserver_incarnation) const;
  int meet_reserver(u64 reserver_incarnation, u64 deadline);
  bool acknowledge(const media::NoticeLine &notice);
  bool writes_for(u64 reserver, u64 serial) const;
  void settle_aborts();
  void settle_round(media::MessageStatus status, u16 mark);
  bool await_aborts(u64 deadline);
  bool give_way(u32 &patience, u64 deadline);
  int finish_join(u64 incarnation, u32 epoch);
  bool lines_elsewhere();
  static int status_errno(media::MessageStatus status);

  Env &env_;
  const media::Geometry geo_;
  Claims<Env> claims_;
  IndexReader<Env> reader_;
  Lease<Env> lease_;
  HostKeeper<Env> host_;
  MemberOptions options_;
  bool joined_ = false;
  u32 slot_ = 0;

  typename Env::Mutex session_mutex_;
  std::atomic<const Session *> session_{nullptr};
  std::vector<std::unique_ptr<const Session>> sessions_;  // readers may still look at old ones

  typename Env::Mutex mutex_;
  u32 grants_under_way_ = 0;  // in outstanding_
  bool ahead_done_ = true;    // no grant that nobody waits for yet is under way
  u8 ahead_class_ = 0;
  u64 granted_ns_ = 0;        // when the last grant was accepted
  Mailbox<Env> mailbox_;
  Answer answers_[kTakeAtOnce];  // room for those just taken
  Hand hand_;
  // Posted, in order; the first ones may be answered, but are not accepted yet.
  Ring<Request> outstanding_;
  u32 answered_ = 0;                 // how many at the front of outstanding_ are
  Ring<Request> doubts_;             // of earlier epochs, to be reported
  bool bound_ = false;               // mailbox_ speaks to the owner of bound_epoch_, report done
  u32 bound_epoch_ = 0;
  Report report_;
  bool owner_lost_ = false;
  u64 owner_checked_ns_ = 0;
  std::vector<HeldPin> pins_;
  std::vector<HeldPin> lost_pins_;     // whose block is gone, until they are given back or over
  std::atomic<u32> lost_pin_count_{0};
  std::vector<media::UnpinBody> unpins_;  // to be told to the owner of bound_epoch_
  u32 notice_sequence_ = 0, acknowledged_sequence_ = 0;
  std::vector<u64> dead_peers_;
  std::vector<u64> met_reservers_;  // in this incarnation's life
  std::vector<ShardWriter> writers_;
  u64 next_writer_ = 1;
  AbortsNoticed aborts_noticed_;
  std::vector<Aborted> aborted_;    // not free yet
  bool abort_round_open_ = false;   // the owner is asked about those that are `asked`
  bool abort_under_way_ = false;    // in outstanding_
  u32 abort_round_ = 0;
  u32 touched_[media::kTouchMax]{};
  u32 touched_count_ = 0;
};

}  // namespace kvpool::pool

#include "pool/member_life.ipp"
#include "pool/member_groups.ipp"
#include "pool/member_reads.ipp"
#include "pool/member_requests.ipp"
#include "pool/member_reports.ipp"
