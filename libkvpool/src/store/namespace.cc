// SPDX-License-Identifier: Apache-2.0
#include "store/namespace.hpp"

#include <algorithm>
#include <cstring>

namespace kvpool::store {

namespace {

int fail(std::string *why, int err, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return err;
}

std::string name_of(const media::NamespaceLine &line) {
  return std::string(line.name, strnlen(line.name, sizeof line.name));
}

NsInfo info_of(u32 id, const media::NamespaceLine &line) {
  NsInfo info;
  info.name = name_of(line);
  std::memcpy(info.fingerprint, line.fingerprint, sizeof info.fingerprint);
  info.quota_bytes = line.quota_bytes;
  info.block_bytes = u64{line.block_lines} * kLineBytes;
  info.id = id;
  info.epoch = line.epoch;
  info.bypassed = line.flags & media::kNsBypass;
  info.weight = line.weight;
  info.verify = static_cast<Verify>(line.verify);
  return info;
}

media::NsControlBody request(u32 id, const media::NamespaceLine &line, media::NsOp op) {
  media::NsControlBody body{};
  body.id = id;
  body.epoch = line.epoch;
  body.op = static_cast<u8>(op);
  std::memcpy(body.fingerprint, line.fingerprint, sizeof body.fingerprint);
  return body;
}

// Another namespace that goes by the name; 0 ids: none.
int find_by_name(Context &context, std::string_view name, u32 &ret_id,
                 media::NamespaceLine &ret_line) {
  for (u32 id = 1; id <= context.geometry().namespaces_max(); ++id) {
    media::NamespaceLine line;
    const int err = context.member().read_ns(id, line);
    if (err == -EUCLEAN) continue;  // unreadable: it has lost its name
    if (err) return err;
    if (!(line.flags & media::kNsUsed) || name_of(line) != name) continue;
    ret_id = id;
    ret_line = line;
    return 0;
  }
  return -ENOENT;
}

}  // namespace

int Namespace::open(Context &context, const NsOptions &options,
                    std::unique_ptr<Namespace> &ret_namespace, std::string *why) {
  if (int err = check_description(options.description, why)) return err;
  std::unique_ptr<Namespace> ns(new Namespace(context, options.description));
  if (ns->description_.components.empty()) ns->description_.components.push_back({"kv", 0, 0});
  if (make_fingerprint(ns->description_, ns->fingerprint_) != 0) {
    return fail(why, -EIO, "namespace: this OpenSSL has no SHA-256");
  }
  const KeyMaker probe(ns->fingerprint_, 0, options.description.hash);
  if (!probe.ok()) {
    return fail(why, probe.error(), probe.error() == -ENOMEM
                                        ? "no memory"
                                        : "namespace: this OpenSSL lacks the hash asked for");
  }
  const u64 deadline = deadline_of(options.deadline_ns);
  u32 id = 0;
  media::NamespaceLine line;
  int err = context.member().find_ns(ns->fingerprint_.data(), id, line);
  if (err == -ENOENT) {
    if (int e = ns->create(options, deadline, why)) return e;
    err = context.member().find_ns(ns->fingerprint_.data(), id, line);
  }
  if (err) return context.explain(err, why);
  if (int e = ns->check_line(options, line, why)) return e;
  ns->id_ = static_cast<u16>(id);
  ns->epoch_.store(line.epoch);
  ret_namespace = std::move(ns);
  return 0;
}

int Namespace::create(const NsOptions &options, u64 deadline, std::string *why) {
  const std::string &name = description_.name;
  u32 other;
  media::NamespaceLine line;
  const int found = find_by_name(context_, name, other, line);
  // Another member may have created it since we looked by fingerprint.
  if (found == 0 && std::equal(fingerprint_.begin(), fingerprint_.begin() + sizeof line.fingerprint,
                               line.fingerprint)) {
    return 0;
  }
  if (found == 0) {
    return fail(why, -EEXIST,
                "namespace '" + name + "' exists with another description (model, dtype, layout, "
                "quant, padding, salt, block tokens, tensor-parallel groups or components)");
  }
  if (found != -ENOENT) return context_.explain(found, why);
  if (options.open_only) return fail(why, -ENOENT, "namespace '" + name + "' does not exist");
  if (context_.read_only()) return fail(why, -EROFS, "namespace '" + name + "' does not exist, and "
                                                     "the store is open read-only");
  media::NsOpenBody body{};
  std::memcpy(body.fingerprint, fingerprint_.data(), sizeof body.fingerprint);
  std::memcpy(body.name, name.data(), std::min(name.size(), sizeof body.name));
  body.quota_bytes = options.quota_bytes;
  body.block_lines = static_cast<u32>(options.block_bytes / kLineBytes);
  body.weight = options.weight;
  const Verify stored = options.verify == Verify::kDefault ? Verify::kAlways : options.verify;
  body.verify = static_cast<u8>(stored);
  body.create = 1;
  media::NsAnswer answer;
  const int err = context_.member().ns_open(body, deadline, answer);
  if (err == -ENOSPC) {
    return fail(why, err,
                "namespace '" + name +
                    "': the table of namespaces is full; remove one, or "
                    "format with more");
  }
  return context_.explain(err, why);
}

int Namespace::check_line(const NsOptions &options, const media::NamespaceLine &line,
                          std::string *why) {
  block_bytes_ = u64{line.block_lines} * kLineBytes;
  if (options.block_bytes != 0 && options.block_bytes != block_bytes_) {
    return fail(why, -EMEDIUMTYPE,
                "namespace '" + description_.name + "' has blocks of " +
                    (block_bytes_ == 0 ? "any size" : std::to_string(block_bytes_) + " bytes") +
                    ", not of " + std::to_string(options.block_bytes));
  }
  verify_ = options.verify == Verify::kDefault ? static_cast<Verify>(line.verify) : options.verify;
  if (verify_ == Verify::kDefault) verify_ = Verify::kAlways;
  if (options.verify_sample != 0) verify_sample_ = options.verify_sample;
  return 0;
}

// The line, if it is still this namespace's: a removed one's place is given to another.
int Namespace::own_line(media::NamespaceLine &ret_line) {
  if (int err = context_.member().read_ns(id_, ret_line)) return err;
  const bool same =
      std::memcmp(ret_line.fingerprint, fingerprint_.data(), sizeof ret_line.fingerprint) == 0;
  return (ret_line.flags & media::kNsUsed) && same ? 0 : -ENOENT;
}

int Namespace::explain_own(int err, std::string *why) {
  if (err != -ENOENT) return context_.explain(err, why);
  return fail(why, err, "namespace '" + description_.name + "' was removed; open it again");
}

int Namespace::clear(u64 deadline, std::string *why) {
  media::NamespaceLine line;
  if (int err = own_line(line)) return explain_own(err, why);
  media::NsAnswer answer;
  const auto body = request(id_, line, media::NsOp::kClear);
  const int err = context_.member().ns_control(body, deadline, answer);
  if (err == 0) {
    epoch_.store(answer.epoch);
    return 0;
  }
  if (err == -ESTALE && context_.member().alive()) {  // somebody cleared it since this call began
    note_cleared();
    return 0;
  }
  return explain_own(err, why);
}

int Namespace::bypass(bool on, u64 deadline, std::string *why) {
  const auto op = on ? media::NsOp::kBypassOn : media::NsOp::kBypassOff;
  media::NamespaceLine line;
  if (int err = own_line(line)) return explain_own(err, why);
  media::NsAnswer answer;
  const int err = context_.member().ns_control(request(id_, line, op), deadline, answer);
  return explain_own(err, why);
}

int Namespace::stat(NsInfo &ret_info) {
  media::NamespaceLine line;
  if (int err = own_line(line)) return err;
  ret_info = info_of(id_, line);
  return 0;
}

int Namespace::follow_clears() {
  if (!cleared_.load(std::memory_order_relaxed)) return 0;
  NsInfo info;
  if (int err = stat(info)) return err;
  cleared_.store(false, std::memory_order_relaxed);
  epoch_.store(info.epoch, std::memory_order_relaxed);
  return 0;
}

int Namespace::chain(const Key *parent, std::span<const u32> tokens, u64 max, Key *ret_keys) {
  if (int err = follow_clears()) return err;
  KeyMaker maker(fingerprint_, ref().epoch, description_.hash);
  const u64 size = description_.block_tokens;
  const u64 count = std::min(tokens.size() / size, max);
  for (u64 b = 0; b < count; ++b) {
    const Key *before = b == 0 ? parent : ret_keys + b - 1;
    if (int err = maker.chain(before, tokens.subspan(b * size, size), ret_keys[b])) return err;
  }
  return static_cast<int>(count);
}

int Namespace::wrap(std::span<const u8> bytes, Key &ret_key) {
  if (int err = follow_clears()) return err;
  KeyMaker maker(fingerprint_, ref().epoch, description_.hash);
  return maker.wrap(bytes, ret_key);
}

int list_namespaces(Context &context, std::vector<NsInfo> &ret_infos) {
  std::vector<NsInfo> infos;
  for (u32 id = 1; id <= context.geometry().namespaces_max(); ++id) {
    media::NamespaceLine line;
    const int err = context.member().read_ns(id, line);
    if (err == -EUCLEAN) continue;
    if (err) return err;
    if (line.flags & media::kNsUsed) infos.push_back(info_of(id, line));
  }
  ret_infos = std::move(infos);
  return 0;
}

int control_namespace(Context &context, std::string_view name, media::NsOp op, u64 deadline,
                      std::string *why) {
  auto &member = context.member();
  for (u32 seen = 0, owner = 0;;) {
    u32 id = 0;
    media::NamespaceLine line;
    int err = find_by_name(context, name, id, line);
    media::NsAnswer answer;
    const bool owner_changed = member.session()->epoch != owner;
    if (err == 0 && seen != 0 && maybe_removed(seen, line.epoch, owner_changed)) {
      return fail(why, -EAGAIN,
                  "the owner of the store changed and namespace '" + std::string(name) +
                      "' was cleared, or removed and opened anew, meanwhile; look at it (kvpool "
                      "ns list) and ask again");
    }
    if (seen == 0) owner = member.session()->epoch;
    if (err == 0) {
      seen = line.epoch;
      err = member.ns_control(request(id, line, op), deadline, answer);
      // Gone since it was looked up, perhaps by this very request, which a former owner served.
      if (err == -ENOENT && op == media::NsOp::kRemove) return 0;
    }
    if (err == -ENOENT) {
      return fail(why, err, "namespace '" + std::string(name) + "' does not exist");
    }
    // Somebody cleared it since it was looked up: to remove it, it is looked at again.
    const bool cleared = err == -ESTALE && context.member().alive();
    if (cleared && op == media::NsOp::kClear) return 0;
    if (!cleared || monotonic_ns() >= deadline)
      return context.explain(cleared ? -EAGAIN : err, why);
  }
}

int remove_namespace(Context &context, std::string_view name, u64 deadline, std::string *why) {
  return control_namespace(context, name, media::NsOp::kRemove, deadline, why);
}

}  // namespace kvpool::store
