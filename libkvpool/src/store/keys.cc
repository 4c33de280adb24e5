// SPDX-License-Identifier: Apache-2.0
#include "store/keys.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <new>

namespace kvpool::store {

namespace {

constexpr u32 kKindChain = 1;
constexpr u32 kKindWrapped = 2;

void append(std::string &text, std::string_view name, std::string_view value) {
  text.append(name).append("=").append(std::to_string(value.size())).append(":").append(value);
  text.append("\n");
}

bool lower_equal(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == y;
  });
}

int refuse(std::string *why, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return -EINVAL;
}

}  // namespace

int check_description(const Description &d, std::string *why) {
  if (d.name.empty() || d.name.size() > kNameBytesMax) {
    return refuse(why, "namespace: its name has 1 to 16 bytes");
  }
  if (d.model.empty()) return refuse(why, "namespace: a model is required (name and revision)");
  if (d.dtype.empty()) return refuse(why, "namespace: a dtype is required, as \"bf16\"");
  if (lower_equal(d.dtype, "auto")) {
    return refuse(why, "namespace: dtype \"auto\" may mean different types in different engines: "
                       "give the effective one");
  }
  if (d.layout.empty() || d.quant.empty() || d.padding.empty()) {
    return refuse(why, "namespace: layout, quant and padding may be left out but not empty");
  }
  if (d.salt.size() > kSaltBytesMax) return refuse(why, "namespace: salt of more than 256 bytes");
  if (d.block_tokens == 0 || d.block_tokens > kBlockTokensMax) {
    return refuse(why, "namespace: block_tokens " + std::to_string(d.block_tokens) +
                           " is not in 1 to 4096");
  }
  if (d.tp_groups == 0 || d.tp_groups > 65536) {
    return refuse(why, "namespace: tp_groups is not in 1 to 65536");
  }
  if (d.components.size() > kComponentsMax) {
    return refuse(why, "namespace: more than 8 components");
  }
  for (const Component &c : d.components) {
    if (c.name.empty()) return refuse(why, "namespace: a component has no name");
    if (c.block_bytes % kLineBytes != 0) {
      return refuse(why, "namespace: block_bytes of component '" + c.name +
                             "' is no multiple of 64");
    }
    const auto same = [&](const Component &o) { return o.name == c.name; };
    if (std::ranges::count_if(d.components, same) > 1) {
      return refuse(why, "namespace: two components are called '" + c.name + "'");
    }
  }
  if (d.hash != HashKind::kSha256 && d.hash != HashKind::kBlake2) {
    return refuse(why, "namespace: unknown hash");
  }
  return 0;
}

std::string canonical_description(const Description &d) {
  std::string text = "kvpool namespace 1\n";
  append(text, "name", d.name);
  append(text, "model", d.model);
  append(text, "dtype", d.dtype);
  append(text, "layout", d.layout);
  append(text, "quant", d.quant);
  append(text, "padding", d.padding);
  append(text, "salt", d.salt);
  append(text, "block_tokens", std::to_string(d.block_tokens));
  append(text, "tp_groups", std::to_string(d.tp_groups));
  append(text, "hash", d.hash == HashKind::kSha256 ? "sha256" : "blake2b");
  if (d.components.empty()) {
    append(text, "component", "kv");
    append(text, "component_bytes", "0");
    append(text, "component_trailing", "0");
  }
  for (const Component &c : d.components) {
    append(text, "component", c.name);
    append(text, "component_bytes", std::to_string(c.block_bytes));
    append(text, "component_trailing", std::to_string(c.trailing));
  }
  return text;
}

int make_fingerprint(const Description &d, Fingerprint &ret_fingerprint) {
  const std::string text = canonical_description(d);
  Fingerprint out{};
  if (EVP_Digest(text.data(), text.size(), out.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return -EIO;
  }
  ret_fingerprint = out;
  return 0;
}

// The algorithms are fetched once and the contexts are used again and again: initialising a context
// without naming its algorithm allocates nothing.
struct KeyMaker::Engine {
  HashKind kind = HashKind::kSha256;
  u8 head[64] = {};
  u32 mac_kind = 0;  // whose head is the MAC's key now
  EVP_MD *md = nullptr;
  EVP_MD_CTX *md_ctx = nullptr;
  EVP_MAC *mac = nullptr;
  EVP_MAC_CTX *mac_ctx = nullptr;

  ~Engine() {
    EVP_MD_CTX_free(md_ctx);
    EVP_MD_free(md);
    EVP_MAC_CTX_free(mac_ctx);
    EVP_MAC_free(mac);
  }

  bool open() {
    if (kind == HashKind::kSha256) {
      md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
      md_ctx = EVP_MD_CTX_new();
      return md != nullptr && md_ctx != nullptr && EVP_DigestInit_ex2(md_ctx, md, nullptr) == 1;
    }
    mac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_BLAKE2BMAC, nullptr);
    mac_ctx = mac == nullptr ? nullptr : EVP_MAC_CTX_new(mac);
    return mac_ctx != nullptr;
  }

  void set_kind(u32 k) { std::memcpy(head + 36, &k, 4); }

  bool sha256(const void *a, u64 a_bytes, const void *b, u64 b_bytes, u8 *out) {
    return EVP_DigestInit_ex2(md_ctx, nullptr, nullptr) == 1 &&
           EVP_DigestUpdate(md_ctx, head, sizeof head) == 1 &&
           EVP_DigestUpdate(md_ctx, a, a_bytes) == 1 &&
           EVP_DigestUpdate(md_ctx, b, b_bytes) == 1 &&
           EVP_DigestFinal_ex(md_ctx, out, nullptr) == 1;
  }

  bool rekey(u32 k) {
    if (mac_kind == k) return EVP_MAC_init(mac_ctx, nullptr, 0, nullptr) == 1;
    size_t bytes = 32;
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &bytes),
                                 OSSL_PARAM_construct_end()};
    mac_kind = k;
    return EVP_MAC_init(mac_ctx, head, sizeof head, params) == 1;
  }

  bool blake2(u32 k, const void *a, u64 a_bytes, const void *b, u64 b_bytes, u8 *out) {
    size_t written = 0;
    return rekey(k) && EVP_MAC_update(mac_ctx, static_cast<const u8 *>(a), a_bytes) == 1 &&
           EVP_MAC_update(mac_ctx, static_cast<const u8 *>(b), b_bytes) == 1 &&
           EVP_MAC_final(mac_ctx, out, &written, 32) == 1 && written == 32;
  }
};

KeyMaker::KeyMaker(const Fingerprint &fingerprint, u32 ns_epoch, HashKind hash) noexcept
    : engine_(new (std::nothrow) Engine) {
  if (!engine_) return;
  engine_->kind = hash;
  std::memcpy(engine_->head, fingerprint.data(), fingerprint.size());
  std::memcpy(engine_->head + 32, &ns_epoch, 4);
  ok_ = engine_->open();
}

KeyMaker::~KeyMaker() = default;

int KeyMaker::hash(u32 kind, const void *a, u64 a_bytes, const void *b, u64 b_bytes,
                   Key &ret_key) noexcept {
  if (!ok_) return error();
  u8 out[32];
  engine_->set_kind(kind);
  const bool good = engine_->kind == HashKind::kSha256
                        ? engine_->sha256(a, a_bytes, b, b_bytes, out)
                        : engine_->blake2(kind, a, a_bytes, b, b_bytes, out);
  if (!good) return -EIO;
  std::memcpy(ret_key.w, out, sizeof out);
  return 0;
}

int KeyMaker::chain(const Key *parent, std::span<const u32> tokens, Key &ret_key) noexcept {
  static constexpr Key kRoot{};
  const Key before = parent == nullptr ? kRoot : *parent;  // ret_key may be the parent
  return hash(kKindChain, before.w, sizeof before.w, tokens.data(), tokens.size_bytes(), ret_key);
}

int KeyMaker::wrap(std::span<const u8> bytes, Key &ret_key) noexcept {
  if (bytes.empty() || bytes.size() > kWrappedBytesMax) return -EINVAL;
  return hash(kKindWrapped, bytes.data(), bytes.size(), bytes.data(), 0, ret_key);
}

}  // namespace kvpool::store
