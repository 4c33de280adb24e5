// SPDX-License-Identifier: Apache-2.0
// What every process that uses the store shares: its context, its keys, payload that proves itself,
// and the judge of what was read.
#pragma once

#include <string>
#include <vector>

#include "client.hpp"
#include "shared.hpp"

namespace kvpool::torture {

struct PartyOptions {
  std::string address;
  std::string name;
  std::uint64_t seed = 0;
  std::uint64_t engine = 0;  // group, 0: none
  std::uint32_t rank = 0, world = 1;
  std::uint32_t writer = 0;  // names it in payload
  std::uint32_t verify = 0;  // enum kvpool_verify
  std::uint32_t place = kPartiesMax;  // its entry of inside_since; kPartiesMax: none
};

class Party {
public:
  // Opens the store; patient, since there may be no owner, and every slot taken, for a while.
  Party(const PartyOptions &options, Shared &shared);

  kvpool_ctx *ctx() const { return ctx_.get(); }
  kvpool_ns *ns() const { return ns_.get(); }
  const kvpool_key &key(std::uint32_t number) const { return keys_[number]; }
  bool over() const;
  std::uint64_t rejoins() const;

  // Runs one call, and lets the parent see how long it takes.
  template <class Call>
  int inside(Call call);
  // Inside of a call of this program that waits for others than the store: that is no hang.
  void breathe() {
    if (options_.place < kPartiesMax) shared_.inside_since[options_.place].store(tools::now_ns());
  }

  // Whether `result` is one that a call may end with while processes are killed and stopped.
  bool expected(int result);
  // Counts a result that nothing here explains.
  void unexplained(const std::string &what, int result);

  // New content for a key, in buffer(). Returns its nonce.
  std::uint64_t fill(std::uint32_t key);
  void fill_with(std::uint32_t key, std::uint64_t nonce, std::uint32_t writer);
  char *buffer() { return buffer_.data(); }
  char *copy() { return copy_.data(); }

  // Whether copy() is one whole publication of `key`. `version`: which one, 0 where that is not
  // known; `looked_up` must not be below `newest`.
  bool judge(std::uint32_t key, std::uint64_t version, std::uint64_t newest,
             std::uint64_t looked_up, std::uint64_t *ret_nonce = nullptr);
  void wrong(std::uint32_t key, const std::string &what);
  void refused(std::uint32_t key);

protected:
  Shared &shared_;
  tools::Context ctx_;
  tools::Namespace ns_;
  Random random_;

private:
  bool same_content(std::uint32_t key, std::uint64_t version, std::uint64_t nonce);

  PartyOptions options_;
  std::vector<kvpool_key> keys_;
  std::vector<char> buffer_;
  std::vector<char> copy_;
};

template <class Call>
int Party::inside(Call call) {
  const bool watched = options_.place < kPartiesMax;
  if (watched) shared_.inside_since[options_.place].store(tools::now_ns());
  const int result = call();
  if (watched) shared_.inside_since[options_.place].store(0);
  return result;
}

// Processes of their own; exit codes. `place` is their entry of Shared::inside_since.
int run_member(const std::string &address, std::uint32_t number, std::uint64_t seed,
               Shared &shared);
int run_rank(const std::string &address, std::uint32_t rank, std::uint32_t world,
             std::uint32_t place, std::uint64_t seed, Shared &shared);
int run_resizer(const std::string &address, std::uint64_t seed, Shared &shared);
int run_server(const std::string &address, std::uint32_t number);

// In a child: ends at once with its parent, even stopped.
void die_with_parent();

}  // namespace kvpool::torture
