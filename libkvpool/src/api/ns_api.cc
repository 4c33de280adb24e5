// SPDX-License-Identifier: Apache-2.0
// Namespaces, keys, local memory.
#include "api/handles.hpp"

using namespace kvpool;
using namespace kvpool::api;

namespace {

void take(std::string &to, const char *from) {
  if (from != nullptr) to = from;
}

int ns_options(const char *name, const kvpool_ns_opts &o, store::NsOptions &ret, std::string *why) {
  store::Description &d = ret.description;
  d.name = name;
  take(d.model, o.model);
  take(d.dtype, o.dtype);
  take(d.layout, o.layout);
  take(d.quant, o.quant);
  take(d.padding, o.padding);
  if (o.salt == nullptr && o.salt_bytes != 0) {
    return options_error(why, -EINVAL, "namespace: salt_bytes without salt");
  }
  if (o.salt_bytes > store::kSaltBytesMax) {
    return options_error(why, -EINVAL, "namespace: salt of more than 256 bytes");
  }
  if (o.salt != nullptr) d.salt.assign(static_cast<const char *>(o.salt), o.salt_bytes);
  if (o.block_tokens != 0) d.block_tokens = o.block_tokens;
  if (o.tp_groups != 0) d.tp_groups = o.tp_groups;
  d.hash = static_cast<store::HashKind>(o.hash);
  if ((o.components == nullptr) != (o.component_count == 0) ||
      o.component_count > KVPOOL_COMPONENTS_MAX) {
    return options_error(why, -EINVAL, "namespace: components and component_count do not agree, or "
                                       "more than 8 components");
  }
  for (u32 c = 0; c < o.component_count; ++c) {
    const kvpool_component &from = o.components[c];
    if (from.reserved != 0) return options_error(why, -EINVAL, "component: reserved must be 0");
    d.components.push_back(
        {from.name != nullptr ? from.name : "", from.block_bytes, from.trailing});
  }
  if (o.verify > KVPOOL_VERIFY_OFF) return options_error(why, -EINVAL, "namespace: unknown verify");
  if (o.weight > 100) return options_error(why, -EINVAL, "namespace: weight is not in 1 to 100");
  if (o.block_bytes % kLineBytes != 0 || o.block_bytes > store::kBlockBytesMax) {
    return options_error(why, -EINVAL,
                         "namespace: block_bytes is no multiple of 64, or above 1 GiB");
  }
  ret.open_only = o.flags & KVPOOL_NS_F_OPEN_ONLY;
  ret.verify = static_cast<store::Verify>(o.verify);
  ret.verify_sample = o.verify_sample;
  ret.weight = o.weight == 0 ? 10 : static_cast<u8>(o.weight);
  ret.block_bytes = o.block_bytes;
  ret.quota_bytes = o.quota_bytes;
  ret.deadline_ns = o.deadline_ns;
  return 0;
}

kvpool_ns_info info_to(const store::NsInfo &info) {
  kvpool_ns_info out{};
  std::strncpy(out.name, info.name.c_str(), sizeof out.name - 1);
  std::memcpy(out.fingerprint, info.fingerprint, sizeof out.fingerprint);
  out.quota_bytes = info.quota_bytes;
  out.block_bytes = info.block_bytes;
  out.id = info.id;
  out.epoch = info.epoch;
  out.bypassed = info.bypassed;
  out.weight = info.weight;
  out.verify = static_cast<uint32_t>(info.verify);
  return out;
}

}  // namespace

extern "C" {

int kvpool_ns_open(kvpool_ctx *ctx, const char *name, const kvpool_ns_opts *opts,
                   kvpool_ns **ret_ns) {
  return guarded(ctx, [&](std::string *why) {
    if (name == nullptr || ret_ns == nullptr) {
      return options_error(why, -EINVAL, "namespace: name or ret_ns is NULL");
    }
    kvpool_ns_opts o;
    store::NsOptions options;
    if (int err = read_options(opts, KVPOOL_NS_F_OPEN_ONLY, o, why)) return err;
    if (int err = ns_options(name, o, options, why)) return err;
    auto ns = std::make_unique<kvpool_ns>();
    ns->ctx = ctx;
    std::unique_ptr<store::Namespace> opened;
    if (int err = store::Namespace::open(*ctx->context, options, opened, why)) return err;
    ns->ns = std::move(opened);
    kvpool_ns *handle = ns.get();
    ctx->namespaces.add(std::move(ns));
    *ret_ns = handle;
    return 0;
  });
}

void kvpool_ns_close(kvpool_ns *ns) {
  if (ns != nullptr) ns->ctx->namespaces.take(ns);
}

int kvpool_ns_clear(kvpool_ns *ns, uint64_t deadline_ns) {
  return guarded(ns, [&](std::string *why) {
    return ns->ns->clear(store::deadline_of(deadline_ns), why);
  });
}

int kvpool_ns_bypass(kvpool_ns *ns, int on, uint64_t deadline_ns) {
  return guarded(ns, [&](std::string *why) {
    return ns->ns->bypass(on != 0, store::deadline_of(deadline_ns), why);
  });
}

int kvpool_ns_remove(kvpool_ctx *ctx, const char *name, uint64_t deadline_ns) {
  return guarded(ctx, [&](std::string *why) {
    if (name == nullptr) return options_error(why, -EINVAL, "namespace: name is NULL");
    return store::remove_namespace(*ctx->context, name, store::deadline_of(deadline_ns), why);
  });
}

int kvpool_ns_list(kvpool_ctx *ctx, size_t max, kvpool_ns_info *ret_infos) {
  return guarded(ctx, [&](std::string *why) {
    if (max > 0 && ret_infos == nullptr) {
      return options_error(why, -EINVAL, "namespaces: ret_infos is NULL");
    }
    std::vector<store::NsInfo> infos;
    if (int err = store::list_namespaces(*ctx->context, infos)) {
      return ctx->context->explain(err, why);
    }
    for (size_t i = 0; i < std::min(max, infos.size()); ++i) ret_infos[i] = info_to(infos[i]);
    return static_cast<int>(infos.size());
  });
}

int kvpool_ns_stat(kvpool_ns *ns, kvpool_ns_info *ret_info) {
  return guarded(ns, [&](std::string *why) {
    if (ret_info == nullptr) return options_error(why, -EINVAL, "namespace: ret_info is NULL");
    store::NsInfo info;
    const int err = ns->ns->stat(info);
    if (err == -ENOENT) return options_error(why, err, "namespace: was removed");
    if (err) return ns->ctx->context->explain(err, why);
    *ret_info = info_to(info);
    return 0;
  });
}

int kvpool_key_chain(kvpool_ns *ns, const kvpool_key *parent, const uint32_t *tokens,
                     size_t token_count, size_t max, kvpool_key *ret_keys) {
  return guarded(ns, [&](std::string *why) {
    if ((tokens == nullptr && token_count > 0) || (ret_keys == nullptr && max > 0)) {
      return options_error(why, -EINVAL, "keys: tokens or ret_keys is NULL");
    }
    const u64 size = ns->ns->description().block_tokens;
    const u64 count = std::min<u64>(token_count / size, max);
    if (count > (u64{1} << 20)) {
      return options_error(why, -EINVAL, "keys: more than 1048576 at once");
    }
    RoomLease room(ns->ctx->rooms);
    room->keys.resize(count);
    pool::Key before{};
    if (parent != nullptr) before = key_of(*parent);
    const int made = ns->ns->chain(parent != nullptr ? &before : nullptr, {tokens, token_count},
                                   count, room->keys.data());
    if (made < 0) {
      if (made == -ENOENT) return options_error(why, made, "namespace: was removed");
      return ns->ctx->context->explain(made, why);
    }
    if (made > 0) std::memcpy(ret_keys, room->keys.data(), made * sizeof(kvpool_key));
    return made;
  });
}

int kvpool_key_wrap(kvpool_ns *ns, const void *bytes, size_t byte_count, kvpool_key *ret_key) {
  return guarded(ns, [&](std::string *why) {
    if (bytes == nullptr || ret_key == nullptr) {
      return options_error(why, -EINVAL, "key: bytes or ret_key is NULL");
    }
    if (byte_count == 0 || byte_count > store::kWrappedBytesMax) {
      return options_error(why, -EINVAL, "key: an engine's key has 1 to 256 bytes");
    }
    pool::Key key;
    const int err = ns->ns->wrap({static_cast<const u8 *>(bytes), byte_count}, key);
    if (err == -ENOENT) return options_error(why, err, "namespace: was removed");
    if (err) return ns->ctx->context->explain(err, why);
    *ret_key = key_to(key);
    return 0;
  });
}

int kvpool_key_component(kvpool_ns *ns, const kvpool_key *key, uint32_t component,
                         kvpool_key *ret_key) {
  return guarded(ns, [&](std::string *why) {
    if (key == nullptr || ret_key == nullptr) {
      return options_error(why, -EINVAL, "key: key or ret_key is NULL");
    }
    if (component >= ns->ns->component_count()) {
      return options_error(why, -EINVAL, "key: the namespace has fewer components");
    }
    *ret_key = key_to(store::component_key(key_of(*key), component));
    return 0;
  });
}

int kvpool_mem_register(kvpool_ctx *ctx, void *base, uint64_t bytes, const kvpool_mem_opts *opts,
                        kvpool_mem **ret_mem) {
  return guarded(ctx, [&](std::string *why) {
    kvpool_mem_opts o;
    if (int err = read_options(opts, 0, o, why)) return err;
    if (base == nullptr || bytes == 0 || ret_mem == nullptr) {
      return options_error(why, -EINVAL, "memory: base, bytes or ret_mem is missing");
    }
    if (o.kind != KVPOOL_MEM_HOST || o.device != 0 || o.reserved != 0) {
      return options_error(why, -EINVAL, "memory: only host memory can be registered");
    }
    if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(base)) {
      return options_error(why, -EOVERFLOW, "memory: it leaves the address space");
    }
    auto mem = std::make_unique<kvpool_mem>();
    mem->ctx = ctx;
    mem->base = static_cast<std::byte *>(base);
    mem->bytes = bytes;
    kvpool_mem *handle = mem.get();
    ctx->memories.add(std::move(mem));
    *ret_mem = handle;
    return 0;
  });
}

int kvpool_mem_unregister(kvpool_mem *mem) {
  if (mem == nullptr) return 0;
  return guarded(mem->ctx, [&](std::string *why) {
    if (mem->users.load() != 0) {
      return options_error(why, -EBUSY, "memory: a prepared operation uses it; free that first");
    }
    mem->ctx->memories.take(mem);
    return 0;
  });
}

}  // extern "C"
