// SPDX-License-Identifier: Apache-2.0
#include "api/handles.hpp"

namespace kvpool::api {

namespace {

struct Detail {
  const kvpool_ctx *ctx;
  char text[480];
};
constinit thread_local Detail last_detail{nullptr, {}};

}  // namespace

void set_detail(const kvpool_ctx *ctx, const char *text) noexcept {
  last_detail.ctx = ctx;
  std::strncpy(last_detail.text, text, sizeof last_detail.text - 1);
}

int options_error(std::string *why, int err, const char *text) {
  *why = text;
  return err;
}

void keys_of(const kvpool_key *keys, std::size_t n, std::vector<pool::Key> &ret) {
  ret.resize(n);
  std::memcpy(static_cast<void *>(ret.data()), keys, n * sizeof(pool::Key));
}

bool hit_of(const kvpool_hit &hit, u16 life_tag, pool::Hit &ret) {
  if (hit.state != KVPOOL_STATE_HIT || hit.opaque[2] == 0) return false;
  if (hit.opaque[2] >> 48 != life_tag || hit.entry > ~u32{0}) return false;
  if (hit.opaque[0] % media::kLocatorUnit != 0) return false;  // no block stands there
  pool::Hit out;
  out.presence = pool::Presence::kHit;
  out.reason = pool::MissReason::kNone;
  out.entry = static_cast<u32>(hit.entry);
  out.version = hit.version;
  out.payload_bytes = hit.bytes;
  out.shards = hit.shards;
  out.address = hit.opaque[0];
  out.check_hash = hit.opaque[1];
  out.epoch = static_cast<u32>(hit.opaque[2] & 0xFFFFFF);
  out.tainted = hit.opaque[2] >> 31 & 1;
  out.ns = static_cast<u16>(hit.opaque[2] >> 32);
  ret = out;
  return true;
}

namespace {

// Where fragments without a memory handle lie: the span from the lowest to the highest byte, so
// that the engine's checks hold for them as well.
int bare_memory(const kvpool_run &run, transfer::Run &ret_run, transfer::LocalMemory &ret_memory,
                std::string *why) {
  const __int128 first = run.local_offset;
  const __int128 step = run.local_stride;
  const __int128 last = first + step * (run.count > 0 ? static_cast<__int128>(run.count) - 1 : 0);
  const __int128 low = std::min(first, last);
  const __int128 high = std::max(first, last) + run.fragment_bytes;
  constexpr __int128 kEnd = __int128{1} << 63;
  if (low <= 0 || high >= kEnd || run.count > (u64{1} << 62)) {
    *why = "plan: a run without memory handle leaves the address space";
    return -ERANGE;
  }
  ret_memory.base = reinterpret_cast<std::byte *>(static_cast<std::uintptr_t>(low));
  ret_memory.bytes = static_cast<u64>(high - low);
  ret_run.local_offset = static_cast<u64>(first - low);
  return 0;
}

}  // namespace

int add_plan(const kvpool_ctx *ctx, const kvpool_plan &plan, BatchRoom &room, PlanAt &ret,
             std::string *why) {
  ret = {room.runs.size(), 0};
  if (plan.buf != nullptr) {
    if (plan.runs != nullptr) {
      *why = "plan: either buf or runs, not both";
      return -EINVAL;
    }
    room.memories.push_back({static_cast<std::byte *>(plan.buf), plan.bytes});
    room.runs.push_back({.memory_index = 0, .fragment_bytes = plan.bytes, .count = 1});
    ret.runs = 1;
    return 0;
  }
  if (plan.runs == nullptr && plan.run_count != 0) {
    *why = "plan: run_count without runs";
    return -EINVAL;
  }
  for (u64 i = 0; i < plan.run_count; ++i) {
    const kvpool_run &run = plan.runs[i];
    transfer::Run out{.memory_index = i,
                      .local_offset = run.local_offset,
                      .block_offset = run.block_offset,
                      .fragment_bytes = run.fragment_bytes,
                      .count = run.count,
                      .local_stride = run.local_stride,
                      .block_stride = run.block_stride};
    transfer::LocalMemory memory;
    if (run.mem != nullptr) {
      if (run.mem->ctx != ctx) {
        *why = "plan: a memory handle of another context";
        return -EINVAL;
      }
      memory = {run.mem->base, run.mem->bytes};
    } else if (int err = bare_memory(run, out, memory, why)) {
      return err;
    }
    room.runs.push_back(out);
    room.memories.push_back(memory);
  }
  ret.runs = plan.run_count;
  return 0;
}

store::MemoryPlan plan_at(const BatchRoom &room, const PlanAt &at) {
  return {std::span(room.runs).subspan(at.run, at.runs),
          std::span(room.memories).subspan(at.run, at.runs)};
}

}  // namespace kvpool::api

extern "C" {

const char *kvpool_strerror_detail(const kvpool_ctx *ctx) {
  const auto &detail = kvpool::api::last_detail;
  return detail.ctx == ctx ? detail.text : "";
}

const char *kvpool_version(void) { return KVPOOL_VERSION_STRING; }

enum kvpool_class kvpool_error_class(int result) {
  if (result >= 0) return KVPOOL_CLASS_OK;
  switch (-result) {
    case EAGAIN:
    case EBUSY:
    case ETIMEDOUT:
    case EINPROGRESS:
    case ENOTCONN:
    case EKEYREVOKED:
    case ECANCELED:
    case ENOMEM:
    case EMFILE: return KVPOOL_CLASS_RETRY;
    case ENOSPC:
    case ESHUTDOWN:
    case EBADMSG:
    case EKEYEXPIRED: return KVPOOL_CLASS_RECOMPUTE;
    case ESTALE:
    case EIDRM: return KVPOOL_CLASS_REOPEN;
    case EACCES:
    case EADDRINUSE:
    case EEXIST:
    case EFBIG:
    case EIO:
    case EMEDIUMTYPE:
    case ENODATA:
    case ENODEV:
    case ENOENT:
    case ENOTSUP:
    case EROFS:
    case EUCLEAN:
    case EUSERS:
    case EREMOTE: return KVPOOL_CLASS_OPERATOR;
    default: return KVPOOL_CLASS_CALLER;
  }
}

const char *kvpool_status_name(enum kvpool_status status) {
  switch (status) {
    case KVPOOL_STATUS_OK: return "ok";
    case KVPOOL_STATUS_EXISTS: return "exists";
    case KVPOOL_STATUS_MISS: return "miss";
    case KVPOOL_STATUS_PENDING: return "pending";
    case KVPOOL_STATUS_STALE: return "stale";
    case KVPOOL_STATUS_FULL: return "full";
    case KVPOOL_STATUS_GONE: return "gone";
    case KVPOOL_STATUS_CORRUPT: return "corrupt";
    case KVPOOL_STATUS_DOUBT: return "doubt";
    case KVPOOL_STATUS_BYPASSED: return "bypassed";
    case KVPOOL_STATUS_RANGE: return "range";
    case KVPOOL_STATUS_UNTRIED: return "untried";
  }
  return "?";
}

}  // extern "C"
