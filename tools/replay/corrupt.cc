// SPDX-License-Identifier: Apache-2.0
// Damages published payload (corrupt.hpp). Plain stores do: this host's caches are coherent, and
// the point is a byte that its check does not know.
#include "replay/corrupt.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "replay/replay.hpp"

namespace kvpool::tools {

std::unique_ptr<backend::Backend> open_writable(const std::string &address) {
  backend::Address where;
  auto status = backend::parse_address(address.c_str(), where);
  if (!status.ok()) fail(kExitUsage, {}, status.what);
  std::unique_ptr<backend::Backend> ret;
  status = backend::Backend::open(where, backend::OpenMode::kReadWrite, {}, ret);
  if (!status.ok()) fail(kExitFailed, {}, status.what);
  return ret;
}

bool corrupt_block(StoreView &view, backend::Backend &writable, const u64 key[4], u64 byte) {
  view.refresh();
  for (const EntryView &at : view.find_key(key)) {
    if (at.entry.entry_state() != media::EntryState::kPublished) continue;
    const u64 bytes = at.entry.payload_lines() * kLineBytes;
    const u64 address = at.entry.locator() * media::kLocatorUnit + byte % bytes;
    const PoolOffset where = view.regions().data_at(address);
    if (where == kNoOffset) continue;
    std::byte *victim = writable.devices()[where.device()].base + where.byte();
    *victim ^= std::byte{0x10};
    return true;
  }
  return false;
}

Corruptor::Corruptor(const std::string &address, const Trace &trace) : address_(address) {
  std::unordered_map<std::uint64_t, std::uint64_t> references;
  for (const std::uint64_t id : trace.ids) ++references[id];
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranked;
  for (const auto &[id, count] : references) ranked.emplace_back(count, id);
  std::sort(ranked.begin(), ranked.end(), [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (std::size_t i = 0; i < ranked.size() && i < 256; ++i) ids_.push_back(ranked[i].second);
}

std::string Corruptor::strike() {
  if (ctx_ == nullptr) {
    OpenAs as;
    as.name = "corrupt";
    as.flags = KVPOOL_OPEN_F_READ_ONLY;
    ctx_ = open_store(address_, as);
    view_ = std::make_unique<StoreView>(address_);
    writable_ = open_writable(address_);
  }
  if (ns_ == nullptr) {
    kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
    opts.flags = KVPOOL_NS_F_OPEN_ONLY;
    opts.model = "replay";
    opts.dtype = "u8";
    kvpool_ns *ns = nullptr;
    if (kvpool_ns_open(ctx_.get(), "replay", &opts, &ns) < 0) return {};
    ns_.reset(ns);
  }
  for (std::size_t tries = 0; tries < ids_.size(); ++tries) {
    const IdBytes bytes = id_bytes(ids_[next_++ % ids_.size()]);
    kvpool_key key = {};
    if (kvpool_key_wrap(ns_.get(), bytes.bytes, sizeof(bytes.bytes), &key) < 0) continue;
    u64 words[4];
    std::memcpy(words, key.bytes, sizeof(words));
    // Past the header line, so that it is the payload's own bytes that differ.
    if (corrupt_block(*view_, *writable_, words, 100)) return key_text(key);
  }
  return {};
}

}  // namespace kvpool::tools
