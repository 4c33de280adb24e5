// SPDX-License-Identifier: Apache-2.0
// Keys and namespace fingerprints (proto 13): 32 uniform bytes over what a block is. Owns the one
// definition of both; golden vectors stand in tests/golden/keys.json. Pure: no pool, no clock.
//
// A key is a hash over one 64-byte head and a body:
//   head  fingerprint 32 | namespace epoch u32 | kind u32 (1 chain, 2 wrapped) | 24 zero bytes
//   body  kind 1: key of the block before (32 zero bytes for none), then the block's tokens, u32
//   each
//         kind 2: the engine's own key bytes
// All words little-endian. kSha256: SHA-256 of head and body. kBlake2: BLAKE2b with the head as its
// key and 32 bytes of output, over the body. The fingerprint is a SHA-256 of the canonical text
// that canonical_description() makes.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pool/types.hpp"

namespace kvpool::store {

using pool::Key;

enum class HashKind : u32 { kSha256 = 0, kBlake2 = 1 };

inline constexpr u64 kWrappedBytesMax = 256;
inline constexpr u64 kSaltBytesMax = 256;
inline constexpr u64 kNameBytesMax = 16;
inline constexpr u32 kBlockTokensMax = 4096;
inline constexpr u32 kComponentsMax = 8;

// A part of the cache that has blocks of its own under each key of a chain (movement.md, layout).
struct Component {
  std::string name;
  u64 block_bytes = 0;  // 0: any
  u32 trailing = 0;     // 0: needed for every block of a prefix; n: for its last n only
};

// What the blocks of a namespace are. Everything here enters the fingerprint.
struct Description {
  std::string name;  // of the namespace, 1 to 16 bytes: two teams with one model stay apart
  std::string model;
  std::string dtype;
  std::string layout = "hg-l-kv-t-h-d";
  std::string quant = "none";
  std::string padding = "none";
  std::string salt;
  u32 block_tokens = 16;
  u32 tp_groups = 1;
  HashKind hash = HashKind::kSha256;
  std::vector<Component> components;  // empty: one called "kv", needed for every block
};

using Fingerprint = std::array<u8, 32>;

// 0, or -EINVAL with the reason in *why.
int check_description(const Description &d, std::string *why);

// One "name=length:value" line a member, in fixed order, so that no two descriptions share a text.
std::string canonical_description(const Description &d);

// 0 or -EIO (the hash is not available in this OpenSSL).
int make_fingerprint(const Description &d, Fingerprint &ret_fingerprint);

// Makes keys of one namespace epoch. Not for use by several threads at once; making one allocates,
// making keys does not.
class KeyMaker {
public:
  // Check ok() before use: OpenSSL may lack the hash, or memory.
  KeyMaker(const Fingerprint &fingerprint, u32 ns_epoch, HashKind hash) noexcept;
  ~KeyMaker();
  KeyMaker(const KeyMaker &) = delete;
  KeyMaker &operator=(const KeyMaker &) = delete;

  bool ok() const { return ok_; }
  // Why not: -ENOMEM, or -ENOTSUP when this OpenSSL lacks the hash.
  int error() const { return ok_ ? 0 : engine_ == nullptr ? -ENOMEM : -ENOTSUP; }

  // Key of the block of `tokens` behind `parent` (null: it is the first). 0 or -EIO.
  int chain(const Key *parent, std::span<const u32> tokens, Key &ret_key) noexcept;

  // Key for an engine's own key bytes, 1 to kWrappedBytesMax. 0, -EINVAL, -EIO, error().
  int wrap(std::span<const u8> bytes, Key &ret_key) noexcept;

private:
  struct Engine;
  int hash(u32 kind, const void *a, u64 a_bytes, const void *b, u64 b_bytes, Key &ret_key) noexcept;

  std::unique_ptr<Engine> engine_;
  bool ok_ = false;
};

// The key of component `component` of a block: the block's key with the component's number mixed
// into its last word. Keys are uniform, so two blocks meet only where their hashes nearly collide.
constexpr Key component_key(const Key &key, u32 component) {
  Key out = key;
  out.w[3] ^= component * 0x9E3779B97F4A7C15ull;
  return out;
}

}  // namespace kvpool::store
