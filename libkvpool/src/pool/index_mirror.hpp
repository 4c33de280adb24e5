// SPDX-License-Identifier: Apache-2.0
// The owner's copy of the index in its own memory (proto 7): finds keys and free lines without a
// trip, and keeps what is not on the medium: recency, parents, per-namespace lists. No memory of
// the pool is touched here. Single thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "arch/big_array.hpp"
#include "arch/line_words.hpp"
#include "arch/prefetch.hpp"
#include "arch/stream_local.hpp"
#include "media/index_hash.hpp"
#include "pool/types.hpp"

namespace kvpool::pool {

inline constexpr u32 kNoEntry = ~u32{0};
inline constexpr u32 kClearedList = 0;  // list of entries of cleared namespaces: they go first

class IndexMirror {
public:
  struct Found {
    u32 visible = kNoEntry;   // PUBLISHED or PENDING
    u32 draining = kNoEntry;
    u32 free_first = kNoEntry;   // a free line of the first group
    u32 free_second = kNoEntry;  // of the second
    u64 group_first = 0, group_second = 0;
  };

  // Memory for so many groups, faulted in: what a standby can do before it is needed.
  // Calls `meanwhile` now and then.
  template <class F>
  void prepare(u64 groups, F &&meanwhile) {
    if (groups_ == groups) return;
    lines_ = BigArray<Group>(groups);
    groups_ = groups;
    untouched_ = true;
    constexpr u64 kPage = 4096 / sizeof(Group), kStretch = kPage * 2048;
    for (u64 g = 0; g < groups; g += kPage) {
      lines_[g].tag[0] = 0;
      if (g % kStretch == 0) meanwhile();
    }
  }

  // ---- the scan of a take-over: reset(), place() for every line, join(), scanned() ----

  template <class F>
  void reset(u64 groups, u32 namespaces, F &&meanwhile) {
    prepare(groups, meanwhile);
    blank_ = untouched_;
    untouched_ = false;
    lists_.assign(namespaces, List{});
    clock_ = 0;
  }

  // Memory is far: of new memory only what is not plainly empty is touched.
  bool blank() const { return blank_; }
  static bool plain(const Line &line) {
    const media::EntryView view(line);
    return (view.state() == media::EntryState::kEmpty) & !view.spill();
  }

  // A line as it was scanned. Threads may place lines of different groups at the same time; each
  // drains before the others read them.
  void place(u64 n, const Line &line) {
    Group &g = lines_[n / media::kGroupLines];
    const u32 i = n % media::kGroupLines;
    const media::EntryView view(line);
    if (blank_ && plain(line)) return;
    stream_local(&g.entry[i], line);
    g.tag[i] = view.state() == media::EntryState::kEmpty ? 0 : tag_of(line.w);
    if (i == 0 && view.spill()) g.tag[0] |= kSpills;
    g.flags[i] = Flags{};
  }

  void prefetch_flag(u64 group) const { prefetch_local(&lines_[group]); }
  // Brings nearer what place() of a line that is not empty will touch.
  void prefetch_place(u64 n) const {
    prefetch_local(&lines_[n / media::kGroupLines]);
  }

  // A list being made of lines in ascending order, the last one in front; later joined to the one
  // of its namespace.
  struct Chain {
    u32 head = kNoEntry, tail = kNoEntry;
    u64 count = 0;
  };
  void chain(u32 n, u32 ns, Chain &chain) {
    set_links(n, ns, n + 1, chain.head);
    if (chain.head != kNoEntry) prev(chain.head) = n;
    chain.head = n;
    if (chain.tail == kNoEntry) chain.tail = n;
    ++chain.count;
  }
  void join(u32 ns, const Chain &chain) {
    if (chain.count == 0) return;
    List &list = lists_[ns];
    next(chain.tail) = list.head;
    (list.head == kNoEntry ? list.tail : prev(list.head)) = chain.tail;
    list.head = chain.head;
    list.count += chain.count;
  }
  void scanned() { clock_ = static_cast<u32>(count()); }

  u64 groups() const { return groups_; }
  u64 count() const { return groups_ * media::kGroupLines; }
  // A line's entry as it stands on the medium; nothing was ever placed in lines of memory that is
  // new.
  media::Entry as_written(u32 n) const {
    if (taken(n)) return entry_at(n);
    media::Entry e{};
    e.state = static_cast<u8>(static_cast<u8>(media::EntryState::kEmpty) | spill_flag(n));
    return e;
  }
  media::Entry &entry(u32 n) { return entry_at(n); }
  const media::Entry &entry(u32 n) const { return entry_at(n); }

  // Two steps that bring what a publication of the key will touch nearer; many keys at a time.
  void prefetch_tags(const u64 *key) const {
    prefetch_local(&lines_[media::first_group(key, groups_)]);
  }
  // Returns the line where the key is or may go, if its first group has room.
  u32 prefetch_line(const u64 *key) const {
    const u64 first = media::first_group(key, groups_);
    const u64 group = first * media::kGroupLines;
    u64 n = group;
    while (n < group + media::kGroupLines - 1 && taken(n) && !tagged(n, tag_of(key))) ++n;
    prefetch_local(&entry_at(n));
    if (goes_on(first)) prefetch_local(&lines_[media::second_group(key, groups_)]);
    return static_cast<u32>(n);
  }

  // Looks in both groups wherever the key may stand in the second or may have to go there (proto
  // 10): nothing is inserted there before the first group's flag says so.
  // `blind` leaves what stands in the second group unseen: only a mutant asks for that.
  Found find(const u64 *key, bool blind = false) const {
    Found found;
    found.group_first = media::first_group(key, groups_);
    found.group_second = media::second_group(key, groups_);
    search(key, found.group_first, found, found.free_first);
    if (!goes_on(found.group_first)) return found;
    const u32 visible = found.visible, draining = found.draining;
    search(key, found.group_second, found, found.free_second);
    if (blind) {
      found.visible = visible;
      found.draining = draining;
    }
    return found;
  }

  // Whether an entry in that state is found, or may be revived.
  static bool counts(media::EntryState state) {
    return state == media::EntryState::kPublished || state == media::EntryState::kPending ||
           state == media::EntryState::kDraining;
  }
  // An entry of that group that counts and has the key of entry n, which counts too; kNoEntry.
  u32 same_key_in(u64 group, u32 n) const {
    const u16 as = static_cast<u16>(tag(n) & ~kSpills);
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      const u32 m = static_cast<u32>(group * media::kGroupLines + i);
      if (m == n || !tagged(m, as) || !counts(entry_at(m).entry_state())) continue;
      const bool same =
          std::memcmp(entry_at(m).key, entry_at(n).key, sizeof(media::Entry::key)) == 0;
      if (same && counts(entry_at(n).entry_state())) return m;
    }
    return kNoEntry;
  }

  // The entry's key, state or occupancy was changed by the caller.
  void retag(u32 n) {
    const media::Entry &e = entry_at(n);
    set_tag(n, e.entry_state() == media::EntryState::kEmpty ? 0 : tag_of(e.key));
    if (e.state & media::kEntrySpill) set_spill(n / media::kGroupLines);
  }

  // A line that is free, or PENDING, becomes a block. Nothing of it is read: its memory is far.
  void put(u32 n, const Line &line, u32 ns, u64 parent_word) {
    copy_words(line, &entry_at(n));
    set_tag(n, tag_of(line.w));
    push_front(n, ns);
    const u32 parent = parent_of(n, parent_word);
    if (parent == kNoEntry) return;
    flags(n).parented = 1;
    family(n).parent[n % media::kGroupLines] = parent;
    u16 &count = family(parent).children[parent % media::kGroupLines];
    count = flags(parent).fruitful ? static_cast<u16>(count + 1) : u16{1};
    flags(parent).fruitful = 1;
  }

  // Keeps the spill flag of a group's first line, which shares its state byte.
  void set_state(u32 n, media::EntryState state) {
    u8 &byte = entry_at(n).state;
    byte = static_cast<u8>((byte & ~media::kEntryStateMask) | static_cast<u8>(state));
  }
  // The flag of a group; its first line's state byte carries it to the medium.
  bool spills(u64 group) const { return tag(group * media::kGroupLines) & kSpills; }
  void set_spill(u64 group) {
    tag(group * media::kGroupLines) |= kSpills;
    entry_at(group * media::kGroupLines).state |= media::kEntrySpill;
  }
  // What a line's state byte carries beside its state.
  u8 spill_flag(u32 n) const {
    return n % media::kGroupLines == 0 && spills(n / media::kGroupLines) ? media::kEntrySpill : 0;
  }

  // ---- recency: one list a namespace, most recent first ----

  void link(u32 n, u32 ns) {
    const Flags kin = flags(n);
    push_front(n, ns);
    flags(n).parented = kin.parented;
    flags(n).fruitful = kin.fruitful;
  }
  void unlink(u32 n) {
    if (!linked(n)) return;
    List &list = lists_[list_of(n)];
    (prev(n) == kNoEntry ? list.head : next(prev(n))) = next(n);
    (next(n) == kNoEntry ? list.tail : prev(next(n))) = prev(n);
    flags(n).linked = 0;
    --list.count;
  }
  void touch(u32 n) {
    if (n >= count() || !linked(n)) return;
    const u32 ns = list_of(n);
    unlink(n);
    link(n, ns);
  }
  // Every entry of a namespace goes to the list that is evicted first. O(entries), DRAM only.
  u64 clear_list(u32 ns) {
    u64 moved = 0;
    while (lists_[ns].tail != kNoEntry) {
      const u32 n = lists_[ns].tail;
      unlink(n);
      link(n, kClearedList);
      ++moved;
    }
    return moved;
  }
  u32 oldest(u32 ns) const { return lists_[ns].tail; }
  u32 newer(u32 n) const { return group(n).prev[n % media::kGroupLines]; }
  u32 stamp(u32 n) const { return group(n).stamp[n % media::kGroupLines]; }
  u32 clock() const { return clock_; }
  u64 list_count(u32 ns) const { return lists_[ns].count; }
  bool linked(u32 n) const { return flags(n).linked; }
  u32 lists() const { return static_cast<u32>(lists_.size()); }
  u32 list_of(u32 n) const { return flags(n).list; }

  // ---- parents: soft, by the first word of the parent's key ----

  // The line of a parent with that first word, in its first group; kNoEntry. Never n itself.
  u32 parent_of(u32 n, u64 parent_word) const {
    if (parent_word == 0) return kNoEntry;
    const u64 group = media::scale_word(parent_word, groups_) * media::kGroupLines;
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      const u32 p = static_cast<u32>(group + i);
      if (p != n && taken(p) && entry_at(p).key[0] == parent_word) return p;
    }
    return kNoEntry;
  }
  // The entry stops being a block: its parent loses a child.
  void drop_parent(u32 n) {
    if (!flags(n).parented) return;
    flags(n).parented = 0;
    const u32 p = family(n).parent[n % media::kGroupLines];
    if (!flags(p).fruitful) return;
    if (--family(p).children[p % media::kGroupLines] == 0) flags(p).fruitful = 0;
  }
  bool has_children(u32 n) const { return flags(n).fruitful; }
  // A line that is emptied or takes another key has no children any more.
  void forget_children(u32 n) { flags(n).fruitful = 0; }

private:
  struct Flags {
    u16 list : 13 = 0;
    u16 linked : 1 = 0;
    u16 parented : 1 = 0;  // the family line names a parent
    u16 fruitful : 1 = 0;  // and counts children
  };
  static_assert(sizeof(Flags) == sizeof(u16));
  struct alignas(kLineBytes) Family {
    u32 parent[media::kGroupLines];
    u16 children[media::kGroupLines];
  };
  // What is read together stands together, on one page: a random access to memory of this size
  // costs more for finding the page than for the line. Whether a key is here, and its place in the
  // list of its namespace, is one line; only entries of chains touch the second.
  struct alignas(kLineBytes) Group {
    u16 tag[media::kGroupLines];
    Flags flags[media::kGroupLines];
    u32 prev[media::kGroupLines], next[media::kGroupLines];  // in the list; kNoEntry at its ends
    u32 stamp[media::kGroupLines];
    Family family;
    alignas(kLineBytes) media::Entry entry[media::kGroupLines];
  };
  static_assert(offsetof(Group, family) == kLineBytes);
  struct List {
    u32 head = kNoEntry, tail = kNoEntry;
    u64 count = 0;
  };

  // A line's tag: kTaken, in the first line of a group kSpills, and 14 bits of the key.
  static constexpr u16 kTaken = 1, kSpills = 2;
  static u16 tag_of(const u64 *key) {
    return static_cast<u16>((key[2] & ~u64{kSpills}) | kTaken);
  }
  u16 &tag(u64 n) { return lines_[n / media::kGroupLines].tag[n % media::kGroupLines]; }
  u16 tag(u64 n) const { return lines_[n / media::kGroupLines].tag[n % media::kGroupLines]; }
  Group &group(u64 n) { return lines_[n / media::kGroupLines]; }
  const Group &group(u64 n) const { return lines_[n / media::kGroupLines]; }
  u32 &prev(u64 n) { return group(n).prev[n % media::kGroupLines]; }
  u32 &next(u64 n) { return group(n).next[n % media::kGroupLines]; }
  Flags &flags(u64 n) { return group(n).flags[n % media::kGroupLines]; }
  const Flags &flags(u64 n) const { return group(n).flags[n % media::kGroupLines]; }
  Family &family(u64 n) { return group(n).family; }
  void set_links(u32 n, u32 list, u32 stamp, u32 after) {
    Group &g = group(n);
    const u32 i = n % media::kGroupLines;
    g.flags[i] = {.list = static_cast<u16>(list), .linked = 1};
    g.stamp[i] = stamp;
    g.prev[i] = kNoEntry;
    g.next[i] = after;
  }
  void push_front(u32 n, u32 ns) {
    List &list = lists_[ns];
    set_links(n, ns, ++clock_, list.head);
    if (list.head != kNoEntry) prev(list.head) = n;
    list.head = n;
    if (list.tail == kNoEntry) list.tail = n;
    ++list.count;
  }
  media::Entry &entry_at(u64 n) {
    return lines_[n / media::kGroupLines].entry[n % media::kGroupLines];
  }
  const media::Entry &entry_at(u64 n) const {
    return lines_[n / media::kGroupLines].entry[n % media::kGroupLines];
  }
  bool taken(u64 n) const { return tag(n) & kTaken; }
  bool tagged(u64 n, u16 as) const { return (tag(n) & ~kSpills) == as; }
  // Whether a key of the group may stand in its second group too, or has to go there.
  bool goes_on(u64 group) const {
    if (spills(group)) return true;
    for (const u16 tag : lines_[group].tag) {
      if (!(tag & kTaken)) return false;
    }
    return true;
  }
  void set_tag(u64 n, u16 to) { tag(n) = static_cast<u16>((tag(n) & kSpills) | to); }

  void search(const u64 *key, u64 group, Found &found, u32 &free_line) const {
    const u16 as = tag_of(key);
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      const u32 n = static_cast<u32>(group * media::kGroupLines + i);
      if (!taken(n)) {
        if (free_line == kNoEntry) free_line = n;
        continue;
      }
      if (!tagged(n, as) || std::memcmp(entry_at(n).key, key, 32) != 0) continue;
      const media::EntryState state = entry_at(n).entry_state();
      if (state == media::EntryState::kPublished || state == media::EntryState::kPending) {
        found.visible = n;
      } else if (state == media::EntryState::kDraining) {
        found.draining = n;
      }
    }
  }

  u64 groups_ = 0;
  bool untouched_ = false;  // lines_ is new memory, all zero
  bool blank_ = false;      // it was when the scan began: lines that were not placed are empty
  BigArray<Group> lines_;  // by group
  std::vector<List> lists_;
  u32 clock_ = 0;
};

}  // namespace kvpool::pool
