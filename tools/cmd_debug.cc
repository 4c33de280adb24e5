// SPDX-License-Identifier: Apache-2.0
// kvpool debug: the option table as JSON, a damaged block, the parsed form of a trace, a member
// that holds what a member can hold. Hidden: for kvpool's own tests.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "replay/corrupt.hpp"
#include "say.hpp"
#include "trace/trace.hpp"

namespace kvpool::tools {

namespace {

int corrupt(const Args &args) {
  const std::string address = args.text("ADDRESS");
  StoreView view(address);
  const u64 seed = args.number("--seed", 1);
  std::vector<EntryView> published;
  view.for_each_entry([&](const EntryView &at) {
    if (at.entry.entry_state() == media::EntryState::kPublished) published.push_back(at);
    return true;
  });
  if (published.empty()) fail(kExitNothing, address, "there is no published block");
  const EntryView &victim = published[seed % published.size()];
  auto writable = open_writable(address);
  const u64 byte = seed * 2654435761u;
  if (!corrupt_block(view, *writable, victim.entry.key, byte)) {
    fail(kExitFailed, address, "the block went away");
  }
  print_text(entry_key_text(victim.entry.key) + "\n");
  return kExitFine;
}

int parse(const Args &args) {
  Trace trace;
  std::string why;
  const int error = read_trace(args.text("ADDRESS"), {}, trace, why);
  if (error != 0) fail(kExitFailed, {}, why);
  Json list = Json::array();
  for (const Request &request : trace.requests) {
    const auto ids = trace.ids_of(request);
    list.push_back({{"time_ns", request.time_ns},
                    {"input", request.input_tokens},
                    {"output", request.output_tokens},
                    {"turn", request.turn},
                    {"chat", request.chat},
                    {"parent", request.parent_chat},
                    {"ids", std::vector<std::uint64_t>(ids.begin(), ids.end())}});
  }
  print_plain_json({{"dialect", dialect_name(trace.dialect)},
                    {"tokens_per_id", trace.tokens_per_id},
                    {"sorted", trace.was_sorted},
                    {"requests", std::move(list)}});
  return kExitFine;
}

// A member of a group of two, its rank being --seed. It does what it reads from stdin, a line each,
// and answers with a line each: "reserve KEY" (128 KiB in two shards; prints the ticket), "write
// TICKET" (its shard of it), "publish TICKET", "pending KEY", "pin KEY", "put KEY", "get KEY",
// "serve" (from then on, or stand by), "cut BEGIN BYTES" (what stands in these pages of the store's
// first file cannot be read by this process any more, as over a link that gives errors), "cut" (nor
// anything else), "mend" (it can again). Ends with stdin.
class Holder {
public:
  Holder(const std::string &address, std::uint32_t rank)
      : address_(address), rank_(rank), bytes_(131072, 'h') {
    kvpool_open_opts open = KVPOOL_OPTS(kvpool_open_opts);
    const std::string name = fmt::format("rank-{}", rank);
    open.name = name.c_str();
    open.engine_id = 7;
    open.engine_rank = rank;
    open.engine_world = 2;
    open.log = [](void *, kvpool_log_level, const char *text) {
      std::fprintf(stderr, "%s\n", text);
    };
    kvpool_ctx *ctx = nullptr;
    checked(kvpool_open(address.c_str(), &open, &ctx), nullptr, address);
    ctx_.reset(ctx);
  }

  ~Holder() {
    if (!server_.joinable()) return;
    kvpool_serve_stop(ctx_.get());
    server_.join();
  }
  Holder(const Holder &) = delete;
  Holder &operator=(const Holder &) = delete;

  void run() {
    std::printf("ready 0 \n");
    std::fflush(stdout);
    std::string line;
    while (std::getline(std::cin, line)) {
      const std::size_t space = std::min(line.find(' '), line.size());
      const std::string word = line.substr(0, space);
      const std::string rest = space < line.size() ? line.substr(space + 1) : std::string();
      const int result = act(word, rest);
      const std::string why = result < 0 ? kvpool_strerror_detail(ctx_.get()) : said_;
      std::printf("%s %d %s\n", word.c_str(), result, why.c_str());
      std::fflush(stdout);
    }
  }

private:
  // Not before an owner is there, which it may be itself.
  int open_ns() {
    if (ns_) return 0;
    kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
    opts.model = "blob";
    opts.dtype = "u8";
    kvpool_ns *ns = nullptr;
    const int err = kvpool_ns_open(ctx_.get(), "default", &opts, &ns);
    if (err >= 0) ns_.reset(ns);
    return err;
  }

  int act(const std::string &word, const std::string &rest) {
    said_.clear();
    kvpool_plan plan = {};
    plan.buf = bytes_.data();
    plan.bytes = bytes_.size();
    kvpool_ticket ticket = {};
    kvpool_key key = {};
    if (word == "serve") {
      server_ = std::thread([this] {
        const int result = kvpool_serve(ctx_.get(), nullptr);
        std::fprintf(stderr, "serve: %d %s\n", result,
                     result < 0 ? kvpool_strerror_detail(ctx_.get()) : "");
      });
      return kvpool_owner_wait(ctx_.get(), deadline_in(20));
    }
    if (word == "cut") return cut(rest);
    if (word == "mend") return mend();
    if (const int err = open_ns(); err < 0) return err;
    if (word == "write" || word == "publish") {
      for (std::size_t i = 0; i < 8 && rest.size() == 128; ++i) {
        ticket.opaque[i] = std::strtoull(rest.substr(16 * i, 16).c_str(), nullptr, 16);
      }
      if (word == "publish") return kvpool_publish(ns_.get(), &ticket, 1, 0, nullptr);
      const int result = kvpool_write(ctx_.get(), &ticket, rank_, &plan, 0);
      return result < 0 ? result : kvpool_shard_done(ctx_.get(), &ticket, rank_);
    }
    checked(kvpool_key_wrap(ns_.get(), rest.data(), rest.size(), &key), ctx_.get(), rest);
    if (word == "pending") return kvpool_pending(ns_.get(), &key, 1, 600'000);
    if (word == "put") return kvpool_put(ns_.get(), &key, bytes_.data(), bytes_.size(), 0);
    if (word == "get") {
      std::string got(bytes_.size(), 0);
      const int result = kvpool_get(ns_.get(), &key, got.data(), got.size(), 0);
      return result == 1 && got != bytes_ ? -EILSEQ : result;
    }
    if (word == "pin") {
      kvpool_pin_opts pin = KVPOOL_OPTS(kvpool_pin_opts);
      pin.ttl_ms = 600'000;
      return kvpool_pin(ns_.get(), &key, 1, &pin, &ticket);
    }
    if (word != "reserve") return -EINVAL;
    kvpool_reserve_opts reserve = KVPOOL_OPTS(kvpool_reserve_opts);
    reserve.shards = 2;
    reserve.block_bytes = bytes_.size();
    const int result = kvpool_reserve(ns_.get(), &key, nullptr, 1, &reserve, &ticket);
    for (const std::uint64_t part : ticket.opaque) said_ += fmt::format("{:016x}", part);
    return result;
  }

  // The maps of the store's files, other pages of the same length over them. Returns how many.
  int cut(const std::string &range) {
    backend::Address where;
    if (!backend::parse_address(address_.c_str(), where).ok()) return -EINVAL;
    unsigned long first = 0, bytes = ~0ul;
    std::sscanf(range.c_str(), "%lu %lu", &first, &bytes);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long begin = 0, end = 0, offset = 0;
      int path = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &begin, &end, &offset, &path) <
          3) {
        continue;
      }
      const std::string file = line.substr(static_cast<std::size_t>(path));
      const bool known = std::count(where.paths.begin(), where.paths.end(), file) != 0;
      if (!known || (!range.empty() && file != where.paths.front())) continue;
      const unsigned long from = std::max(offset, first);
      const unsigned long to =
          std::min(offset + (end - begin), first + std::min(bytes, ~0ul - first));
      if (from < to) lost_.push_back({begin + (from - offset), to - from, from, file});
    }
    for (const Piece &piece : lost_) {
      if (const int err = map_over(piece, true)) return err;
    }
    return static_cast<int>(lost_.size());
  }

  int mend() {
    for (const Piece &piece : lost_) {
      if (const int err = map_over(piece, false)) return err;
    }
    lost_.clear();
    return 0;
  }

  struct Piece {
    unsigned long at, bytes, offset;
    std::string file;
  };

  static int map_over(const Piece &piece, bool with_nothing) {
    const int fd = with_nothing ? memfd_create("nothing", MFD_CLOEXEC)
                                : ::open(piece.file.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return -errno;
    const off_t offset = with_nothing ? 0 : static_cast<off_t>(piece.offset);
    const void *got = mmap(reinterpret_cast<void *>(piece.at), piece.bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_FIXED, fd, offset);
    const int err = got == MAP_FAILED ? -errno : 0;
    close(fd);
    return err;
  }

  std::string address_;
  std::uint32_t rank_;
  std::string bytes_;
  std::string said_;
  std::vector<Piece> lost_;
  Context ctx_;
  Namespace ns_;
  std::thread server_;
};

}  // namespace

int cmd_debug(const Args &args) {
  const std::string action = args.text("ACTION");
  if (action == "options") {
    print_text(table_as_json());
    return kExitFine;
  }
  if (args.text("ADDRESS").empty()) fail(kExitUsage, {}, action + " needs an ADDRESS");
  if (action == "hold") {
    Holder(args.text("ADDRESS"), static_cast<std::uint32_t>(args.number("--seed", 0))).run();
    return kExitFine;
  }
  if (action == "storm") return storm(args);
  return action == "corrupt" ? corrupt(args) : parse(args);
}

}  // namespace kvpool::tools
