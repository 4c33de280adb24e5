// SPDX-License-Identifier: Apache-2.0
// An open namespace: what its blocks are, where its line stands, and which epoch of it this
// handle's keys belong to. Owns the rule of clears: when a call finds that the namespace was
// cleared, the next key that is made takes the new epoch, and keys of the old one never match again
// (proto 10, 13).
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "store/context.hpp"
#include "store/keys.hpp"

namespace kvpool::store {

struct NsOptions {
  Description description;
  bool open_only = false;
  Verify verify = Verify::kDefault;
  u32 verify_sample = 0;
  u8 weight = 10;
  u64 block_bytes = 0;
  u64 quota_bytes = 0;
  u64 deadline_ns = 0;
};

// A namespace's line as people see it.
struct NsInfo {
  std::string name;
  u8 fingerprint[16] = {};
  u64 quota_bytes = 0;
  u64 block_bytes = 0;
  u32 id = 0;
  u32 epoch = 0;
  bool bypassed = false;
  u8 weight = 0;
  Verify verify = Verify::kAlways;
};

class Namespace {
public:
  // 0; -EINVAL, -EEXIST, -EMEDIUMTYPE, -ENOENT, -ENOSPC and the context's errors.
  static int open(Context &context, const NsOptions &options,
                  std::unique_ptr<Namespace> &ret_namespace, std::string *why);

  Context &context() const { return context_; }
  pool::NsRef ref() const { return {id_, epoch_.load(std::memory_order_relaxed)}; }
  const Description &description() const { return description_; }
  u64 block_bytes() const { return block_bytes_; }
  Verify verify() const { return verify_; }
  u32 verify_sample() const { return verify_sample_; }
  std::span<const Component> components() const { return description_.components; }
  u32 component_count() const { return static_cast<u32>(description_.components.size()); }

  int clear(u64 deadline, std::string *why);
  int bypass(bool on, u64 deadline, std::string *why);
  int stat(NsInfo &ret_info);

  // A call was refused because the epoch is over: looked at before the next key is made.
  void note_cleared() { cleared_.store(true, std::memory_order_relaxed); }

  // Keys of the whole blocks of `tokens`; at most `max`. The number, or -errno.
  int chain(const Key *parent, std::span<const u32> tokens, u64 max, Key *ret_keys);
  int wrap(std::span<const u8> bytes, Key &ret_key);

private:
  Namespace(Context &context, Description description)
      : context_(context), description_(std::move(description)) {}
  int follow_clears();
  int own_line(media::NamespaceLine &ret_line);
  int explain_own(int err, std::string *why);
  int check_line(const NsOptions &options, const media::NamespaceLine &line, std::string *why);
  int create(const NsOptions &options, u64 deadline, std::string *why);

  Context &context_;
  Description description_;
  Fingerprint fingerprint_{};
  u16 id_ = 0;
  std::atomic<u32> epoch_{0};
  std::atomic<bool> cleared_{false};
  u64 block_bytes_ = 0;
  Verify verify_ = Verify::kAlways;
  u32 verify_sample_ = 16;
};

// All namespaces of the store, in the order of their ids. 0 or -errno.
int list_namespaces(Context &context, std::vector<NsInfo> &ret_infos);

// Whether a removal that was told "not that epoch any more" may have been served, by an owner that
// is gone, and the name opened anew since: that namespace is not removed unasked. `seen`, `now`:
// epoch of the namespace when it was asked, and since; a clear takes one, a removal and an opening
// two. An owner that is still the same answers what it served once by that answer.
constexpr bool maybe_removed(u32 seen, u32 now, bool owner_changed) {
  return owner_changed && now > seen + 1;
}

// -ENOENT when no namespace has that name; -EAGAIN where maybe_removed().
int control_namespace(Context &context, std::string_view name, media::NsOp op, u64 deadline,
                      std::string *why);
int remove_namespace(Context &context, std::string_view name, u64 deadline, std::string *why);

}  // namespace kvpool::store
