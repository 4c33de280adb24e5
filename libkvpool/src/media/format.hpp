// SPDX-License-Identifier: Apache-2.0
// Every structure of a store as it stands on the medium (Documentation/format.md). Fixed-width
// little-endian words, one 64-byte line each unless said otherwise, one writer a line, CRC-32C in
// the last four bytes seeded with store, life, address and, in areas, the epoch that fills the area
// (media/seal.hpp). Nothing valid is all zeros or all ones. No I/O and no policy here.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "arch/types.hpp"

namespace kvpool::media {

inline constexpr u64 kMagic = 0x315F4C4F4F50564Bull;  // "KVPOOL_1" read as a little-endian word
inline constexpr u64 kStripeBytes = u64{2} << 20;     // what lies on one device without a break
inline constexpr u64 kStripLinesPerStripe = 32;       // one check line for each 64 KiB of a stripe
inline constexpr u64 kBlockAlign = 256;               // blocks start and end on this
inline constexpr u64 kLocatorUnit = 256;              // what an entry's locator counts
inline constexpr u32 kMaxDevices = 16;
inline constexpr u32 kMaxHosts = 16;
inline constexpr u32 kMaxMembers = 254;
inline constexpr u32 kMaxMembersPerHost = 16;  // counters of the host's doorbell line
inline constexpr u32 kMaxStandbys = 16;
inline constexpr u32 kMaxNamespaces = 4096;
inline constexpr u32 kMaxRegions = 16;
inline constexpr u32 kMaxShards = 64;
inline constexpr u32 kBlocksPerExtentMax = 512;  // a grant carries their bitmap
inline constexpr u32 kGroupLines = 4;            // entry lines of one index group

// ---- epochs: 20-bit counter, 4-bit standby slot; 0 is no epoch ----------------------------------

constexpr u32 make_epoch(u32 counter, u32 slot) { return counter << 4 | slot; }
constexpr u32 epoch_counter(u32 epoch) { return epoch >> 4; }
constexpr u32 epoch_slot(u32 epoch) { return epoch & 15; }
inline constexpr u32 kEpochCounterMax = (1u << 20) - 1;
// More than this above the second highest is damage (proto 14).
inline constexpr u32 kEpochJumpMax = 1u << 16;

// ---- superblock (proto 5): an identity line and two geometry lines, two copies ------------------

enum class StoreState : u8 { kFormatting = 1, kReady = 2 };

// writer: format, under the format lock; read in every accept and validation
struct alignas(64) Identity {
  u64 magic;
  u8 uuid[16];        // names the store for its whole existence
  u64 nonce;          // names this life of it; never 0
  u32 incompat;       // feature bits a reader must know to open the store at all
  u32 ro_compat;      // feature bits a writer must know
  u32 compat;         // feature bits anyone may ignore
  u8 state;           // StoreState
  u8 device_index;
  u8 device_count;
  u8 version;         // of this format: kFormatVersion; a bump costs the user a new format
  u64 device_bytes;   // size of this device when formatted; regions may lie behind it
  u32 reserved;       // 0
  u32 crc;
};
inline constexpr u8 kFormatVersion = 1;

// writer: format
struct alignas(64) GeometryA {
  u32 lease_ms;          // L (proto 6)
  u32 delta_us;          // bound on how long a fenced store takes to the medium (A8)
  u32 grace_us;          // how long an evicted entry is kept for reads that began earlier
  u8 host_count;
  u8 members_per_host;   // host_count * members_per_host <= kMaxMembers
  u8 standby_count;
  u8 width;              // devices a block is spread over at most
  u16 namespace_lines;   // lines of the namespace table, a power of two; the first and the last are
                         // no namespace's
  u16 request_lines;     // lines of a request ring
  u16 response_slots;    // slots of two lines of a response ring, a power of two
  u8 control_devices;    // 1 or 2: devices that hold control lines
  u8 reserved0;          // 0
  u32 min_block_bytes;   // the index is sized for blocks of this size
  u32 extent_stripes;    // stripes in one extent
  u64 index_groups;      // groups of the index as formatted
  u64 index_groups_max;  // room reserved in each area
  u64 reserved1;         // 0
  u32 reserved2;         // 0
  u32 crc;
};

inline constexpr u8 kAnyHost = 255;

// writer: format
struct alignas(64) GeometryB {
  u64 area_bytes;      // one metadata area, whole 4 KiB pages
  u64 area_offset[2];  // byte on control device 0 and 1 where its areas start
  u64 extent_lines;    // lines of the extent map in each area (8 records a line)
  u8 standby_host[16];  // host id of each standby slot; kAnyHost in file and memory stores
  u64 reserved0;        // 0
  u32 reserved1;        // 0
  u32 crc;
};

// ---- hosts and members (proto 6) ----------------------------------------------------------------

// writer: the holder of the host's lock
struct alignas(64) HostLine {
  u8 machine_id[16];
  u8 boot_id[16];
  u64 incarnation;  // random; a foreign one read back means a host id used twice: fatal for both
  u64 counter;
  u64 reserved0;
  u32 reserved1;
  u32 crc;
};

enum class MemberState : u8 { kJoined = 1, kLeft = 2 };
inline constexpr u8 kMemberHolds = 1;  // has held extents since it joined: must report
inline constexpr u8 kMemberPins = 2;   // has held pins since it joined: must report
inline constexpr u8 kNoStandby = 255;

// writer: the member that holds the slot's lock
struct alignas(64) MemberLine {
  u64 incarnation;     // random, never 0; a newer one proves all earlier ones QUIET
  u64 counter;         // heartbeat
  u64 group;           // members of one engine share it; 0: a group of its own
  u32 reported_epoch;  // highest epoch whose owner this member owes no report
  u8 state;            // MemberState
  u8 flags;            // kMember*
  u8 host;
  u8 standby_slot;     // kNoStandby, or the slot this member stands by on
  u16 rank;
  u16 world;
  u32 pid;             // for people
  char name[16];       // for people; not terminated when full
  u32 reserved;        // 0
  u32 crc;
};

enum class ReaperState : u8 { kNone = 1, kDead = 2, kQuiet = 3 };

// writer: whoever obtained the dead slot's lock (file and memory stores); else the driver
struct alignas(64) ReaperLine {
  u64 incarnation;
  u8 state;  // ReaperState
  u8 reserved0[51];
  u32 crc;
};

// ---- claims (proto 7): one line a standby slot, two copies --------------------------------------

// writer: the incarnation that holds the standby slot
struct alignas(64) ClaimLine {
  u32 claimed;              // highest epoch this slot ever claimed; 0: none
  u32 active;               // epoch of the area it last activated; never cleared
  u64 claimed_incarnation;  // of the member that claimed
  u64 active_incarnation;
  u64 index_groups;         // size of the index in the active area
  u16 claimed_member;
  u16 active_member;
  u8 area;                  // which of its two areas the active one is
  u8 claimed_control;       // how often lines and rings had moved, by the claim; even: device 0
  u8 active_control;        // and by the activation: where they stand now
  u8 reserved0;
  u8 reserved1[20];
  u32 crc;
};

// ---- areas: regions, namespaces, extent map, index, in this order -------------------------------

inline constexpr u32 kRegionLines = 4;         // head and three places lines
inline constexpr u32 kPlacesPerLine = 7;
inline constexpr u8 kRegionUnused = 1;
inline constexpr u8 kRegionUsed = 2;

// writer: the owner (append-only, copied forward). Extents of a region are dealt to its places
// stripe by stripe; a device with more weight stands in several places.
struct alignas(64) RegionHead {
  u32 first_extent;
  u32 extent_count;
  u8 state;        // kRegionUnused, kRegionUsed
  u8 place_count;  // <= kMaxDevices
  u8 reserved0[2];
  u8 device[16];   // device of each place
  u32 retired_extents;  // of its last ones: out of use, their bytes given back (proto 14)
  u8 reserved1[28];
  u32 crc;
};

struct RegionPlace {
  u32 data_page;    // first byte of its stripes, in 4 KiB pages from the start of the device
  u32 strip_page;   // first byte of their check strip, likewise
};

// writer: the owner
struct alignas(64) RegionPlaces {
  RegionPlace place[kPlacesPerLine];
  u32 reserved;
  u32 crc;
};

inline constexpr u16 kNsUsed = 1;      // the line names a namespace
inline constexpr u16 kNsBypass = 2;    // lookups miss, puts are refused
inline constexpr u16 kNsEmpty = 4;     // a free line: valid, but names nothing

// writer: the owner
struct alignas(64) NamespaceLine {
  u8 fingerprint[16];  // first half of the SHA-256 over its canonical description (proto 13)
  u64 quota_bytes;     // 0: no quota
  u64 clear_version;   // version counter at its last clear; older entries go first
  u32 epoch;           // enters the keys; a clear increments it
  u32 block_lines;     // payload of one block in lines; 0: any size
  u16 flags;           // kNs*
  u8 weight;           // 1 to 100
  u8 verify;           // VerifyPolicy of the store layer
  char name[16];       // for people; not terminated when full
  u32 crc;
};

// Line 0 of the table, which no namespace has, says how far versions went (proto 8): clear_version
// is the highest that this owner had given when it last emptied a line, or one before it; the first
// bytes hold the highest known of each owner before, the last one first. 0: none is known.
inline constexpr u32 kFormersKept = 3;
static_assert(kFormersKept * sizeof(u64) == offsetof(NamespaceLine, clear_version));
inline void read_formers(const NamespaceLine &line, u64 *ret_versions) {
  std::memcpy(ret_versions, &line, kFormersKept * sizeof(u64));
}
inline void write_formers(NamespaceLine &line, const u64 *versions) {
  std::memcpy(static_cast<void *>(&line), versions, kFormersKept * sizeof(u64));
}

// One aligned word an extent, so that it never tears (proto 8):
// holder 8 | tag 16 | size class 6 | flags 6 | namespace 12 | crc 16, from the low end.
inline constexpr u32 kMapRecordsPerLine = 8;
inline constexpr u8 kHolderOwner = 255;   // free, or holding published blocks only
inline constexpr u8 kHolderFormer = 254;  // a former life of the store: in quarantine
inline constexpr u8 kMapTainted = 1;      // a writer that may be alive wrote here: verify always
inline constexpr u8 kMapRunTail = 2;      // belongs to the run that starts at an earlier extent
inline constexpr u8 kMapRunHead = 4;
struct MapRecord {
  u8 holder;      // member slot, kHolderOwner or kHolderFormer
  u16 tag;        // low bits of the holder's incarnation
  u8 size_class;  // index into the class table; kClassRun; kClassNone for an unused extent
  u8 flags;       // kMap*
  u16 ns;         // namespace it is reserved for, 0: any; where tainted, by whom: taint_mark()
  friend bool operator==(const MapRecord &, const MapRecord &) = default;
};
// Whose stores may still come to a tainted extent: a member slot, and four bits of the incarnation.
// 0: several members', or of an earlier life of the store.
constexpr u16 taint_mark(u32 slot, u64 incarnation) {
  return static_cast<u16>((slot + 1) | (incarnation >> 1 & 15) << 8);
}
inline constexpr u64 kTaintBit = 2;  // of an incarnation: turned, it makes another mark
constexpr u32 taint_slot(u16 mark) { return (mark & 255u) - 1; }
inline constexpr u8 kClassNone = 62;
inline constexpr u8 kClassRun = 63;

enum class EntryState : u8 {
  kEmpty = 1,
  kPending = 2,    // somebody computes this block; no locator
  kPublished = 3,
  kDraining = 4,   // evicted: new lookups miss, may be revived with its version
  kHidden = 5,     // removed, replaced or cleared: never comes back
};
inline constexpr u8 kEntryStateMask = 7;
inline constexpr u8 kEntryTainted = 0x40;
// In the first line of a group: some key went to its second.
inline constexpr u8 kEntrySpill = 0x80;

// writer: the owner. What changes in a published entry lies in the last word.
struct alignas(64) Entry {
  u64 key[4];
  u64 version;     // 24-bit epoch of the publishing owner, 40-bit number; PENDING: incarnation
  u64 check_hash;  // check_table_hash of its segments; PENDING: slot | duration_ms << 16
  u32 length;      // payload lines (26 bits) | shards - 1 (6 bits) << 26
  u32 locator_low;  // pool address / kLocatorUnit, low 32 bits
  u8 locator_high;
  u8 state;        // EntryState | kEntry*
  u16 ns;
  u32 crc;

  constexpr u64 locator() const { return u64{locator_high} << 32 | locator_low; }
  void set_locator(u64 loc) {
    locator_low = static_cast<u32>(loc);
    locator_high = static_cast<u8>(loc >> 32);
  }
  constexpr EntryState entry_state() const {
    return static_cast<EntryState>(state & kEntryStateMask);
  }
  constexpr u64 payload_lines() const;
  constexpr u32 shards() const;
};
constexpr u64 payload_lines_of(u32 length) { return length & ((1u << 26) - 1); }
constexpr u32 shards_of(u32 length) { return (length >> 26) + 1; }
constexpr u64 Entry::payload_lines() const { return payload_lines_of(length); }
constexpr u32 Entry::shards() const { return shards_of(length); }
constexpr u32 pack_length(u64 payload_lines, u32 shards) {
  return static_cast<u32>(payload_lines) | (shards - 1) << 26;
}
inline constexpr u64 kPayloadLinesMax = (u64{1} << 26) - 1;
constexpr u64 make_version(u32 epoch, u64 number) { return u64{epoch} << 40 | number; }
inline constexpr u64 kVersionNumberMax = (u64{1} << 40) - 1;

// ---- check strip: one line for each 64 KiB segment (proto 8, 9) ---------------------------------

// writer: the writer of the segment's shard. In the strip, or behind the payload of small blocks.
// Before, the first of each shard is the reserver's, which opens the shard there, and closes it
// when it aborts the block (proto 8): kSegmentOpen.
struct alignas(64) CheckLine {
  u64 check;        // check_fold of the segment
  u64 incarnation;  // who wrote it: provenance
  u64 nonce;        // of the reservation, equal in all segments of one publication
  u32 segment;      // number within the block
  u32 segment_lines;
  u16 shard;
  u16 shard_count;
  u32 reserved0;
  u64 reserved1[2];
  u32 reserved2;
  u32 crc;
};
inline constexpr u32 kSegmentOpen = ~u32{0};  // as `segment`: nothing was written yet

// ---- messages (proto 12) ------------------------------------------------------------------------

inline constexpr u32 kMessageBody = 40;
inline constexpr u32 kMessageLinesMax = 3;
inline constexpr u32 kResponseSlotLines = 2;

enum class MessageType : u8 {
  kNop = 1,
  kGrant,
  kPublish,
  kPending,
  kRemove,
  kReturn,
  kPin,
  kUnpin,
  kTouch,
  kNsOpen,
  kNsControl,
  kReportBegin,
  kReportExtent,
  kReportDoubt,
  kReportPin,
  kReportEnd,
  kDeathAck,
  kLeave,
  kResize,
  kRemoveDamaged,  // as kRemove, by a reader whose bytes did not match their checks
  kAbort,
};

enum class MessageStatus : u8 {
  kOk = 1,
  kExists,    // the key is published already
  kFull,      // no room, and nothing that may be evicted
  kBusy,      // try again: graces are running, or reports are awaited
  kStale,     // what the request names has changed
  kAbsent,    // no such entry
  kRefused,   // the request makes no sense for this member
  kBypassed,  // the namespace is bypassed
  kQuota,     // no room within the namespace's quota
};

// writer: the member (request ring), the owner of that standby slot (response ring)
struct alignas(64) Message {
  u32 epoch;        // of the owner it is for, or from; another owner does not execute it
  u32 sequence;     // from 0 in each epoch and incarnation
  u64 incarnation;  // of the member
  u8 type;          // MessageType
  u8 lines;         // of the whole message, 1 to kMessageLinesMax
  u8 index;         // of this line in it
  u8 status;        // MessageStatus in answers, 0 in requests
  u8 body[kMessageBody];
  u32 crc;
};

// writer: the owner of that standby slot
struct alignas(64) NoticeLine {
  u32 epoch;
  u32 sequence;
  u64 incarnation;     // of the member it is for
  u32 recall_extents;  // give back so many
  u8 flags;            // kNotice*
  u8 reserved0[3];
  u64 dead_incarnation;  // a member of the reader's group, dead or that aborted blocks: to be
  u16 dead_slot;         // acknowledged
  u16 reserved1;
  u32 recall_from;       // give back every extent from this number on; 0: none
  u32 aborted;           // kNoticeAborted: which round of aborts of that member's
  u8 reserved2[16];
  u32 crc;
};
inline constexpr u8 kNoticeReport = 1;     // the owner awaits this member's report
inline constexpr u8 kNoticePeerDead = 2;
inline constexpr u8 kNoticeAborted = 4;

// Message bodies. Multi-line bodies run on over the lines' body fields.
struct GrantBody {
  u8 size_class;   // or kClassRun
  u8 want;         // extents wanted at most, for a class that is cut; 1 for a run
  u16 ns;           // in whose quota the block must have room; 0: any
  u32 run_extents;  // kClassRun: length of the run
};
struct GrantAnswer {
  u32 extent;
  u16 block_count;   // blocks an extent of this class is cut into
  u16 flags;         // kGrant*
  u64 free_bits[kBlocksPerExtentMax / 64];  // blocks the member may use
};
inline constexpr u16 kGrantTainted = 1;  // a writer that may be alive wrote to this extent
struct PublishBody {
  u64 key[4];
  u64 check_hash;
  u64 parent;        // soft: first word of the parent's key, 0 for none
  u32 length;        // as in the entry
  u32 locator_low;
  u8 locator_high;
  u8 flags;          // kPublish*
  u16 ns;
  u32 ns_epoch;      // the namespace's epoch the key was made with
  u32 touch[2];      // entry numbers recently hit, plus one; 0: none
};
inline constexpr u8 kPublishReturnsExtent = 1;  // the extent is used up: it is the owner's again
// kReportDoubt: an owner said OK; `touch` holds the version.
inline constexpr u8 kPublishAnswered = 2;
struct PublishAnswer {
  u64 entry;
  u64 version;
};
struct PendingBody {
  u64 key[4];
  u32 duration_ms;  // 0: withdraw
  u16 ns;
  u16 reserved;
};
struct RemoveBody {
  u64 key[4];
  u64 version;  // seen; 0: any
};
struct ReturnBody {
  u32 extent;
  u32 flags;
};
inline constexpr u32 kReturnUnreadable = 1;  // it cannot be read: look at its devices (proto 14)
// Stores of a rank that was given up may come: of the one whose mark stands above (0: of several).
inline constexpr u32 kReturnTainted = 2;
inline constexpr u32 kReturnMarkShift = 16;
struct PinBody {
  u64 key[4];
  u32 ttl_ms;
  u32 reserved;
};
struct PinAnswer {
  u64 pin;      // names it for unpin
  u64 entry;
  u64 version;
};
struct UnpinBody {
  u64 pin;
  u64 entry;
};
inline constexpr u32 kTouchMax = 10;
struct TouchBody {
  u32 entry[kTouchMax];  // entry numbers plus one; 0: none
};
struct NsOpenBody {
  u8 fingerprint[16];
  char name[16];
  u64 quota_bytes;
  u32 block_lines;
  u8 weight;
  u8 verify;
  u8 create;
  u8 reserved;
};
struct NsAnswer {
  u32 id;
  u32 epoch;
};
enum class NsOp : u8 { kClear = 1, kBypassOn, kBypassOff, kRemove };
struct NsControlBody {
  u32 id;
  u32 epoch;  // seen
  u8 op;      // NsOp
  u8 reserved[7];
  u8 fingerprint[16];  // of the namespace meant: its place may be another's by now
};
struct ReportExtentBody {
  u32 extent;
  u8 size_class;
  u8 reserved[3];
  u64 hand_bits[kBlocksPerExtentMax / 64];  // blocks in hand: not published, not in doubt
};
struct ReportPinBody {
  u64 key[4];
  u64 pin_ttl_ms;
  u64 version;  // of the pinned publication: the key may name another one by now
  u64 entry;    // where it stood
};
struct ResizeBody {
  u64 pool_bytes;  // wanted, as pool_bytes_in_use() counts; 0: only say how large it is
  u32 extents;     // in use then, by the asker's plan; the owner's must be the same
  u32 reserved;
};
struct ResizeAnswer {
  u64 pool_bytes;  // in use now
  u32 extents;     // in use now
  u32 leaving;     // of those that are to go, the ones not empty yet
  u32 held;        // of these, held by members or in quarantine
  u32 pinned;      // with a pinned block
};
struct DeathAckBody {
  u64 incarnation;
  u16 slot;
  u16 reserved;
  u32 aborted;  // as in the notice; 0: of a death
};
// A member asks whether its group still writes blocks that it aborted before it asked.
struct AbortBody {
  u32 number;  // of this round of aborts, not 0
};
struct AbortAnswer {
  u16 mark;  // kStale: the rank whose stores may still come (kMapTainted); 0: several
  u16 reserved;
};

// writer: every member of the host, each its own counter; written back; no CRC: only a hint
struct alignas(64) DoorbellLine {
  u32 counter[kMaxMembersPerHost];
};

// The fields of an entry that a scan of millions decides by, read from its line word by word: a
// copy of the whole line, taken apart, would wait for the stores of that copy.
class EntryView {
public:
  explicit EntryView(const Line &line) : line_(line) {}

  EntryState state() const {
    return static_cast<EntryState>(line_.w[7] >> 8 & kEntryStateMask);
  }
  bool spill() const { return line_.w[7] >> 8 & kEntrySpill; }
  u16 ns() const { return static_cast<u16>(line_.w[7] >> 16); }
  u64 version() const { return line_.w[4]; }
  u32 length() const { return static_cast<u32>(line_.w[6]); }
  u64 locator() const { return (line_.w[7] & 0xff) << 32 | line_.w[6] >> 32; }

private:
  const Line &line_;
};
static_assert(offsetof(Entry, version) == 4 * 8 && offsetof(Entry, length) == 6 * 8);
static_assert(offsetof(Entry, locator_low) == 6 * 8 + 4 && offsetof(Entry, locator_high) == 7 * 8);
static_assert(offsetof(Entry, state) == 7 * 8 + 1 && offsetof(Entry, ns) == 7 * 8 + 2);

// ---- what the compiler can check ----------------------------------------------------------------

template <class T>
concept LineStruct = std::is_trivially_copyable_v<T> && sizeof(T) == kLineBytes;

template <LineStruct T>
T from_line(const Line &line) {
  return std::bit_cast<T>(line);
}
template <LineStruct T>
Line to_line(const T &value) {
  return std::bit_cast<Line>(value);
}

static_assert(LineStruct<Identity> && offsetof(Identity, crc) == 60);
static_assert(LineStruct<GeometryA> && offsetof(GeometryA, crc) == 60);
static_assert(LineStruct<GeometryB> && offsetof(GeometryB, crc) == 60);
static_assert(LineStruct<HostLine> && offsetof(HostLine, crc) == 60);
static_assert(LineStruct<MemberLine> && offsetof(MemberLine, crc) == 60);
static_assert(LineStruct<ReaperLine> && offsetof(ReaperLine, crc) == 60);
static_assert(LineStruct<ClaimLine> && offsetof(ClaimLine, crc) == 60);
static_assert(LineStruct<RegionHead> && offsetof(RegionHead, crc) == 60);
static_assert(LineStruct<RegionPlaces> && offsetof(RegionPlaces, crc) == 60);
static_assert(LineStruct<NamespaceLine> && offsetof(NamespaceLine, crc) == 60);
static_assert(LineStruct<Entry> && offsetof(Entry, crc) == 60);
static_assert(offsetof(Entry, locator_high) == 56, "what changes must lie in the last word");
static_assert(LineStruct<CheckLine> && offsetof(CheckLine, crc) == 60);
static_assert(LineStruct<Message> && offsetof(Message, crc) == 60);
static_assert(offsetof(CheckLine, segment) == 24 && offsetof(CheckLine, shard_count) == 34);

// A check line word by word, as messages are made (message.hpp): many follow on streamed payload.
constexpr Line line_of(const CheckLine &c) {
  return {{c.check, c.incarnation, c.nonce, u64{c.segment} | u64{c.segment_lines} << 32,
           u64{c.shard} | u64{c.shard_count} << 16, 0, 0, 0}};
}
static_assert(LineStruct<NoticeLine> && offsetof(NoticeLine, crc) == 60);
static_assert(LineStruct<DoorbellLine>);
static_assert(sizeof(GrantAnswer) <= kResponseSlotLines * kMessageBody);
static_assert(sizeof(PublishBody) <= 2 * kMessageBody && sizeof(NsOpenBody) <= 2 * kMessageBody);
static_assert(sizeof(ReportExtentBody) <= 2 * kMessageBody);
static_assert(sizeof(ReportPinBody) <= 2 * kMessageBody && sizeof(PinBody) <= kMessageBody);
static_assert(sizeof(TouchBody) <= kMessageBody && sizeof(RemoveBody) <= kMessageBody);
static_assert(sizeof(PendingBody) <= kMessageBody && sizeof(NsControlBody) <= kMessageBody);
static_assert(sizeof(ResizeBody) <= kMessageBody && sizeof(ResizeAnswer) <= kMessageBody);

}  // namespace kvpool::media
