// SPDX-License-Identifier: Apache-2.0
// A store as its medium has it, read without joining: what info, stat, ls, why and top show. Lines
// are freshly acquired, nothing is written, no owner is asked. What does not verify is left out and
// counted, never believed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch/x86_memory.hpp"
#include "backend/backend.hpp"
#include "media/classes.hpp"
#include "media/seal.hpp"
#include "media/superblock.hpp"
#include "say.hpp"

namespace kvpool::tools {

struct MemberView {
  u32 slot = 0;
  u32 host = 0;
  std::string name;
  media::MemberLine line{};
  bool joined = false;  // says JOINED
  bool lock_known = true;  // false: of another host, over a device
  bool alive = false;   // its slot's lock is held
};

struct NsView {
  u32 id = 0;
  std::string name;
  media::NamespaceLine line{};
};

struct EntryView {
  u64 number = 0;
  media::Entry entry{};
};

// Sums over the index.
struct IndexCounts {
  u64 published = 0, pending = 0, draining = 0, hidden = 0, empty = 0, unreadable = 0;
  u64 published_bytes = 0;
  std::vector<bool> used_extents;  // where an entry's block is, in any state
  struct PerNs {
    u64 published = 0;
    u64 bytes = 0;
  };
  std::vector<PerNs> by_ns;
};

// Sums over the extent map.
struct ExtentCounts {
  u64 owner = 0, members = 0, former = 0, tainted = 0, unreadable = 0;
  u64 largest_free_run = 0;  // of extents in one region that the owner holds and no block lies in
  std::vector<u64> by_member;  // held by each slot
};

// Failure when the driver took the mappings away: what was read or written since means nothing.
void must_be_mapped(const backend::Backend &backend);

// Lines of a mapped pool, each freshly acquired.
class FreshReader final : public media::LineReader {
public:
  FreshReader(X86Memory &memory, const backend::Backend &backend)
      : memory_(memory), backend_(backend) {}
  u32 device_count() const override { return static_cast<u32>(backend_.devices().size()); }
  u64 device_bytes(u32 device) const override { return backend_.devices()[device].bytes; }
  std::string device_name(u32 device) const override { return backend_.devices()[device].name; }
  u64 device_file_bytes(u32 device) const override { return backend_.file_bytes(device); }
  bool read_line(PoolOffset at, Line &ret_line) override {
    if (!inside(at)) return false;
    memory_.acquire(at, kLineBytes);
    const bool loaded = memory_.load_line(at, ret_line);
    must_be_mapped(backend_);  // after the load: zeros would look like damage
    return loaded;
  }

private:
  X86Memory &memory_;
  const backend::Backend &backend_;
};

class StoreView {
public:
  // Failure: no store (exit code 3), damaged beyond reading (4), no rights (1).
  explicit StoreView(const std::string &address);

  const std::string &address() const { return address_; }
  const media::Geometry &geometry() const { return geometry_; }
  const media::RegionTable &regions() const { return regions_; }
  media::StoreState state() const { return geometry_.state; }
  const std::string &active_copy_note() const { return copy_note_; }
  // Of the first two devices; empty where both are there.
  const std::string &lost_device() const { return lost_device_; }

  // Reads claims again: an owner may have changed. False when no area is active or its regions do
  // not verify, with the reason in why().
  bool refresh();
  // Throws Failure where that stays so for a while: nothing can be said of such a store.
  void must_be_readable();
  const std::string &why() const { return why_; }
  u32 epoch() const { return epoch_; }
  u32 owner_slot() const { return owner_member_; }
  bool ever_owned() const { return epoch_ != 0 && ever_owned_; }
  u64 entry_count() const { return index_groups_ * media::kGroupLines; }
  PoolOffset area() const { return area_; }

  std::vector<MemberView> members();
  std::vector<NsView> namespaces();
  IndexCounts count_index();
  ExtentCounts count_extents(const IndexCounts &index);
  // Every entry whose line verifies; stops when `visit` says false.
  void for_each_entry(const std::function<bool(const EntryView &)> &visit);
  // Entries of the key's two groups that hold this key, in any state.
  std::vector<EntryView> find_key(const u64 key[4]);

  backend::Backend &backend() { return *backend_; }
  X86Memory &memory() { return *memory_; }
  media::LineReader &reader() { return *reader_; }
  const media::Sealer &sealer() const { return sealer_; }

private:
  bool load(PoolOffset at, u32 epoch, Line &ret);
  void open();
  void adopt();
  bool follow_life();

  std::string address_;
  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<X86Memory> memory_;
  std::unique_ptr<media::LineReader> reader_;
  media::SuperblockRead superblock_{};
  media::Geometry geometry_{};
  media::RegionTable regions_{};
  media::Sealer sealer_;
  std::string copy_note_;
  std::string lost_device_;
  std::string why_;
  u32 epoch_ = 0;
  u32 owner_member_ = 0;
  bool ever_owned_ = false;
  u64 index_groups_ = 0;
  PoolOffset area_ = kNoOffset;
};

// The parts of opening that check and repair need on their own, since they work on damaged stores.
struct OpenPool {
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<X86Memory> memory;
  std::unique_ptr<FreshReader> reader;
};
// Says which device of it is lost; empty where none is.
std::string lost_device_of(const backend::Backend &backend);
inline constexpr const char *kLostHint =
    "bring it back from a copy; what lay there is lost, the rest goes on";
OpenPool open_pool(const std::string &address, backend::OpenMode mode);
// Whether a device has more bytes than when it was opened: the pool may have grown.
bool has_grown(const backend::Backend &backend);

// The command that makes a new store where `address` leads, over what stands there: with --size
// where what stands there has none of its own, or has lost a part of it.
enum class Over : u8 { kNothing, kOther, kDamaged };  // nothing, as far as is known
std::string format_command(const std::string &address, Over over);

// What a store would be that is not there yet.
Json plan_json(const media::Layout &layout);
std::string plan_text(const media::Layout &layout);

// The exit code for what opening a store gave: `why` tells a device that was cut from one that this
// process cannot map.
int exit_code_of_open(int error, const std::string &why);

// Failure for what kvpool_open() gave, with the way on.
[[noreturn]] void refuse_open(const std::string &address, int error, std::string why);

// The way on where no copy of the superblock can be used, `why` being what was found.
std::string unusable_hint(const std::string &address, const std::string &why);

// Failure with the exit code that the error of read_superblock() deserves.
[[noreturn]] void fail_superblock(const std::string &address, int error, const std::string &why);

// Whether a readable superblock stands at the address. Failure only when the address makes no
// sense.
bool store_exists(const std::string &address);

// What `info` and `format` say about a store.
Json store_summary(const std::string &address);

std::string uuid_text(const u8 uuid[16]);
std::string entry_key_text(const u64 key[4]);
const char *entry_state_name(media::EntryState state);
std::string fixed_name(const char *bytes, std::size_t max);

}  // namespace kvpool::tools
