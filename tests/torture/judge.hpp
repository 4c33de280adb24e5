// SPDX-License-Identifier: Apache-2.0
// What a round must leave: blocks that were kept pinned through it, every block that the index
// names, nothing else when the owner dies in between, no space that nobody needs, and metadata and
// payload that verify. The judge is a member of its own that nobody kills; it leaves before the
// store is looked at.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "party.hpp"
#include "store_view.hpp"

namespace kvpool::torture {

class Judge {
public:
  Judge(std::string address, std::uint64_t seed, double round_seconds, Shared &shared);

  void arrive();       // joins, publishes the kept blocks and pins them
  void read_kept();    // they are there, whoever owned the store meanwhile
  void read_all();     // every block that is published, by a fresh reader
  void read_again();   // the same after the owner changed: what was there still is
  bool wait_owner();   // somebody serves
  void depart();
  void look_for_leaks();
  void check();        // as kvpool check --payload

  std::uint64_t leaked() const { return leaked_; }
  const std::string &leaked_what() const { return leaked_what_; }
  std::uint64_t lost() const { return lost_; }
  const std::string &first_lost() const { return first_lost_; }
  std::uint64_t kept_reads() const { return kept_reads_; }
  std::uint64_t kept_skipped() const { return kept_skipped_; }
  std::uint64_t blocks_read() const { return blocks_read_; }
  const tools::Json &findings() const { return findings_; }

private:
  struct Found {
    std::uint64_t version = 0, nonce = 0;
  };
  std::map<std::uint32_t, Found> read_published();
  void lose(std::string what);

  std::string address_;
  Random random_;
  Shared &shared_;
  std::uint32_t pin_ms_;
  std::uint64_t pinned_since_ = 0;
  std::unique_ptr<Party> party_;
  std::vector<kvpool_ticket> pins_;
  std::vector<std::uint32_t> pinned_;  // keys of pins_
  std::uint64_t rejoins_ = 0;
  std::map<std::uint32_t, Found> all_;
  std::uint64_t leaked_ = 0, lost_ = 0, kept_reads_ = 0, kept_skipped_ = 0, blocks_read_ = 0;
  std::string leaked_what_, first_lost_;
  tools::Json findings_ = tools::Json::array();
};

}  // namespace kvpool::torture
