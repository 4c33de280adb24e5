// SPDX-License-Identifier: Apache-2.0
// A fuzz input as a list of edits of a good store: which line, what changes, and whether the line
// is sealed again afterwards, so that damage reaches the code behind the CRC. Shared by the fuzz
// target and a unit test. Tests only.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "golden/image.hpp"
#include "media/decode.hpp"
#include "media/verifier.hpp"

namespace kvpool::test {

class MediaEdits {
public:
  MediaEdits() : image_(golden_store()), good_(image_.devices()[0]) { list_targets(); }

  // Applies the edits, reads the store in every way there is, and restores it.
  void run(const u8 *data, u64 size) {
    for (u64 at = 0; at + kEditBytes <= size && at < kEditsMax * kEditBytes; at += kEditBytes) {
      apply(data + at);
    }
    read_everything();
    for (PoolOffset at : edited_) image_.line(at) = good_[at.byte() / kLineBytes];
    edited_.clear();
  }
  u64 clean() const { return clean_; }
  u64 damaged() const { return damaged_; }
  u64 refused() const { return refused_; }

  static constexpr u64 kEditBytes = 16;
  static constexpr u64 kEditsMax = 64;

private:
  struct Target {
    PoolOffset at;
    u32 epoch;
    bool map;
    bool identity;
  };
  struct Count final : FindingSink {
    void found(const FindingAt &finding) override {
      if (finding.detail.size() > 512) std::abort();
      ++count;
    }
    u64 count = 0;
  };

  void list_targets() {
    Geometry &g = image_.geo();
    const auto add = [&](PoolOffset at, u32 epoch) {
      targets_.push_back({at, epoch, false, false});
    };
    for (u32 copy = 0; copy < 2; ++copy) {
      targets_.push_back({g.identity_at(copy), 0, false, true});
      add(g.geometry_at(copy, 0), 0);
      add(g.geometry_at(copy, 1), 0);
      for (u32 s = 0; s < g.standby_count; ++s) add(g.claim_at(copy, s), 0);
    }
    add(g.host_at(0), 0);
    add(g.member_at(0), 0);
    add(g.reaper_at(0), 0);
    add(g.notice_at(1, 1), 0);
    add(g.request_line(0, 2), 0);
    add(g.response_line(1, 0, 1, 0), 0);
    const PoolOffset area = image_.area();
    const u32 epoch = image_.epoch();
    for (u32 i = 0; i < 8; ++i) add(g.region_line(area, i), epoch);
    for (u32 i = 0; i < g.namespace_lines; ++i) add(g.ns_line(area, i), epoch);
    targets_.push_back({g.map_line(area, 0), epoch, true, false});
    for (u64 n = 0; n < g.index_groups * kGroupLines; ++n) {
      add(image_.entry_at(n), epoch);
      const Entry e = image_.entry(n);
      if (e.entry_state() == EntryState::kEmpty || e.locator() == 0) continue;
      const BlockShape shape = block_shape(e);
      const u64 address = e.locator() * kLocatorUnit;
      for (u64 s = 0; s < shape.segments(); ++s) {
        add(check_line_at(image_.regions(), shape, address, s), 0);
      }
      add(image_.regions().data_at(address), 0);
    }
  }

  // op | word | target (2) | bytes of the word that change, as a mask (1) | 3 unused | value (8)
  void apply(const u8 *edit) {
    u16 number;
    u64 value;
    std::memcpy(&number, edit + 2, sizeof(number));
    std::memcpy(&value, edit + 8, sizeof(value));
    const Target &target = targets_[number % targets_.size()];
    Line &line = image_.line(target.at);
    u64 mask = 0;
    for (u32 byte = 0; byte < 8; ++byte) {
      if ((edit[4] >> byte & 1) != 0) mask |= u64{0xFF} << byte * 8;
    }
    u64 &word = line.w[edit[1] % 8];
    const u32 op = edit[0] % 8;
    if (op == 0) word ^= mask;
    if (op == 1 || op >= 5) word = (word & ~mask) | (value & mask);
    if (op == 2) word += value;
    if (op == 3) line = image_.line(targets_[value % targets_.size()].at);
    if (op == 4) line = Line{};
    if (op != 7) seal(target, line);
    edited_.push_back(target.at);
  }

  // Op 7 leaves the old CRC, and so does a change of the map: its words carry their own.
  void seal(const Target &target, Line &line) {
    if (target.identity) {
      line = Sealer::sealed_identity(from_line<Identity>(line));
    } else if (target.map) {
      for (u32 i = 0; i < kMapRecordsPerLine; ++i) {
        const u64 w = line.w[i];
        const MapRecord record{static_cast<u8>(w), static_cast<u16>(w >> 8),
                               static_cast<u8>(w >> 24 & 63), static_cast<u8>(w >> 30 & 7),
                               static_cast<u16>(w >> 36 & 0xFFF)};
        line.w[i] = image_.sealer().pack_map(record, target.at + i * 8, target.epoch);
      }
    } else {
      image_.sealer().seal(line, target.at, target.epoch);
    }
  }

  void read_everything() {
    Count sink;
    VerifyReport report;
    VerifyOptions options;
    options.payload = true;
    const int result = verify_store(image_, options, sink, report);
    if ((result == 0) != (report.count(Severity::kDamage) == 0)) std::abort();
    ++(result == 0 ? clean_ : report.superblock_error != 0 ? refused_ : damaged_);
    std::string why;
    SuperblockRead superblock{};
    if (read_superblock_any_state(image_, superblock, &why) != 0) {
      if (why.empty()) std::abort();
      return;
    }
    StoreView view{};
    read_view(image_, superblock, view, &why);
    for (PoolOffset at : edited_) {
      if (decode_line(view, at, image_.line(at)).text.empty()) std::abort();
    }
  }

  Image image_;
  std::vector<Line> good_;
  std::vector<Target> targets_;
  std::vector<PoolOffset> edited_;
  u64 clean_ = 0, damaged_ = 0, refused_ = 0;
};

}  // namespace kvpool::test
