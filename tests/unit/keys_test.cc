// SPDX-License-Identifier: Apache-2.0
// Shows: keys and fingerprints are what their written definition says, and bind all that they
// should.
// How: golden vectors made by an independent Python program; one changed member at a time.
#include <criterion/criterion.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "store/keys.hpp"

using namespace kvpool;
using namespace kvpool::store;

namespace {

std::string hex(const void *bytes, size_t n) {
  static const char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    const u8 b = static_cast<const u8 *>(bytes)[i];
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}

std::string unhex(const std::string &text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return out;
}

Description from_json(const nlohmann::json &j) {
  Description d;
  d.name = j["name"];
  d.model = j["model"];
  d.dtype = j["dtype"];
  d.layout = j["layout"];
  d.quant = j["quant"];
  d.padding = j["padding"];
  d.salt = unhex(j["salt"]);
  d.block_tokens = j["block_tokens"];
  d.tp_groups = j["tp_groups"];
  d.hash = j["hash"] == "sha256" ? HashKind::kSha256 : HashKind::kBlake2;
  for (const auto &c : j["components"]) d.components.push_back({c[0], c[1], c[2]});
  return d;
}

std::vector<u32> golden_tokens(u32 count) {
  std::vector<u32> tokens(count);
  for (u32 i = 0; i < count; ++i) tokens[i] = i * 2654435761u + 12345u;
  return tokens;
}

Description plain() {
  Description d;
  d.name = "ns";
  d.model = "m@1";
  d.dtype = "bf16";
  return d;
}

std::string fingerprint_of(const Description &d) {
  Fingerprint fp;
  cr_assert_eq(make_fingerprint(d, fp), 0);
  return hex(fp.data(), fp.size());
}

}  // namespace

Test(keys, golden_vectors) {
  const char *root = std::getenv("KVPOOL_SOURCE_DIR");
  std::ifstream in(std::string(root ? root : ".") + "/tests/golden/keys.json");
  cr_assert(in.good(), "tests/golden/keys.json cannot be read: set KVPOOL_SOURCE_DIR");
  const auto json = nlohmann::json::parse(in);
  cr_assert_geq(json["vectors"].size(), 8);
  for (const auto &v : json["vectors"]) {
    const Description d = from_json(v["description"]);
    Fingerprint fp;
    cr_assert_eq(check_description(d, nullptr), 0);
    cr_assert_eq(make_fingerprint(d, fp), 0);
    cr_expect_eq(hex(fp.data(), 32), v["fingerprint"].get<std::string>());
    KeyMaker maker(fp, v["epoch"], d.hash);
    cr_assert(maker.ok());
    const auto tokens = golden_tokens(3 * d.block_tokens);
    Key parent{};
    for (u32 b = 0; b < 3; ++b) {
      const std::span<const u32> part(tokens.data() + b * d.block_tokens, d.block_tokens);
      cr_assert_eq(maker.chain(b == 0 ? nullptr : &parent, part, parent), 0);
      cr_expect_eq(hex(parent.w, 32), v["chain"][b].get<std::string>());
    }
    for (const auto &w : v["wrapped"]) {
      const std::string raw = unhex(w["bytes"]);
      Key key;
      cr_assert_eq(maker.wrap({reinterpret_cast<const u8 *>(raw.data()), raw.size()}, key), 0);
      cr_expect_eq(hex(key.w, 32), w["key"].get<std::string>());
    }
  }
}

Test(keys, every_member_enters_the_fingerprint) {
  std::set<std::string> seen{fingerprint_of(plain())};
  auto differs = [&](auto change) {
    Description d = plain();
    change(d);
    cr_expect(seen.insert(fingerprint_of(d)).second, "a change left the fingerprint alone");
  };
  differs([](Description &d) { d.name = "other"; });
  differs([](Description &d) { d.model = "m@2"; });
  differs([](Description &d) { d.dtype = "f32"; });
  differs([](Description &d) { d.layout = "l-t-c"; });
  differs([](Description &d) { d.quant = "int8"; });
  differs([](Description &d) { d.padding = "64"; });
  differs([](Description &d) { d.salt = "s"; });
  differs([](Description &d) { d.block_tokens = 32; });
  differs([](Description &d) { d.tp_groups = 2; });
  differs([](Description &d) { d.hash = HashKind::kBlake2; });
  differs([](Description &d) { d.components = {{"kv", 64, 0}}; });
  differs([](Description &d) { d.components = {{"kv", 0, 1}}; });
  differs([](Description &d) { d.components = {{"kv", 0, 0}, {"state", 0, 1}}; });
  // A member may not be able to spell what stands behind it.
  differs([](Description &d) { d.model = "m@1\ndtype=4:bf16"; });
  differs([](Description &d) { d.salt = std::string("\n\0x", 3); });
  // "kv" is what leaving components out means.
  Description named = plain();
  named.components = {{"kv", 0, 0}};
  cr_expect_eq(fingerprint_of(named), fingerprint_of(plain()));
}

Test(keys, bad_descriptions_are_refused_by_name) {
  auto refused = [](const char *word, auto change) {
    Description d = plain();
    change(d);
    std::string why;
    cr_expect_eq(check_description(d, &why), -EINVAL);
    cr_expect(why.find(word) != std::string::npos, "'%s' does not name %s", why.c_str(), word);
    cr_expect_eq(check_description(d, nullptr), -EINVAL);
  };
  refused("name", [](Description &d) { d.name.clear(); });
  refused("name", [](Description &d) { d.name.assign(17, 'x'); });
  refused("model", [](Description &d) { d.model.clear(); });
  refused("dtype", [](Description &d) { d.dtype.clear(); });
  refused("auto", [](Description &d) { d.dtype = "auto"; });
  refused("auto", [](Description &d) { d.dtype = "AUTO"; });
  refused("layout", [](Description &d) { d.layout.clear(); });
  refused("salt", [](Description &d) { d.salt.assign(257, 'x'); });
  refused("block_tokens", [](Description &d) { d.block_tokens = 0; });
  refused("block_tokens", [](Description &d) { d.block_tokens = 4097; });
  refused("tp_groups", [](Description &d) { d.tp_groups = 0; });
  refused("components", [](Description &d) { d.components.resize(9, {"x", 0, 0}); });
  refused("name", [](Description &d) { d.components = {{"", 0, 0}}; });
  refused("multiple", [](Description &d) { d.components = {{"kv", 65, 0}}; });
  refused("kv", [](Description &d) { d.components = {{"kv", 0, 0}, {"kv", 64, 0}}; });
  refused("hash", [](Description &d) { d.hash = static_cast<HashKind>(9); });
  Description limit = plain();
  limit.salt.assign(256, 'x');
  limit.block_tokens = 4096;
  cr_expect_eq(check_description(limit, nullptr), 0);
}

Test(keys, wrapped_keys_have_bounds) {
  for (HashKind kind : {HashKind::kSha256, HashKind::kBlake2}) {
    KeyMaker maker(Fingerprint{1}, 1, kind);
    const u8 bytes[257] = {};
    Key key{{7, 7, 7, 7}};
    const Key before = key;
    cr_expect_eq(maker.wrap({bytes, 0}, key), -EINVAL);
    cr_expect_eq(maker.wrap({bytes, 257}, key), -EINVAL);
    cr_expect(key == before, "a refused call wrote its output");
    cr_expect_eq(maker.wrap({bytes, 1}, key), 0);
    cr_expect_eq(maker.wrap({bytes, 256}, key), 0);
  }
}

Test(keys, epoch_parent_kind_and_component_separate) {
  std::set<std::string> seen;
  auto fresh = [&](const Key &key) {
    cr_expect(seen.insert(hex(key.w, 32)).second, "two different blocks share a key");
  };
  const std::vector<u32> tokens(16, 5);
  u8 same[32 + 64] = {};  // the body of a chain key, given as an engine's key
  std::memcpy(same + 32, tokens.data(), 64);
  for (HashKind kind : {HashKind::kSha256, HashKind::kBlake2}) {
    for (u32 epoch : {1u, 2u}) {
      KeyMaker maker(Fingerprint{9}, epoch, kind);
      Key first, second, wrapped;
      cr_assert_eq(maker.chain(nullptr, tokens, first), 0);
      cr_assert_eq(maker.chain(&first, tokens, second), 0);
      cr_assert_eq(maker.wrap(same, wrapped), 0);
      fresh(first);
      fresh(second);
      fresh(wrapped);
      for (u32 c = 1; c < kComponentsMax; ++c) fresh(component_key(first, c));
      cr_expect(component_key(first, 0) == first);
    }
  }
}
