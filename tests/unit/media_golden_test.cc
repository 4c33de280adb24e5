// SPDX-License-Identifier: Apache-2.0
// Shows: a store of each format version so far keeps opening, and what is built now is that format.
// How: tests/golden/store-v1.lines is read into memory, verified whole, and compared with a store
// built afresh. KVPOOL_WRITE_GOLDEN=FILE makes the file anew, which a change of format needs.
#include <criterion/criterion.h>

#include <fstream>
#include <sstream>

#include "golden/image.hpp"
#include "media/verifier.hpp"

using namespace kvpool;
using namespace kvpool::media;
using kvpool::test::Image;

namespace {

// A store as a list of the lines that are not zero.
class Listed final : public LineReader {
public:
  explicit Listed(const std::string &path) {
    std::ifstream file(path);
    std::string text;
    while (std::getline(file, text)) {
      std::istringstream words(text);
      std::string first;
      words >> first;
      if (first.empty() || first[0] == '#') continue;
      if (first == "device") {
        u32 number;
        u64 bytes;
        words >> number >> bytes;
        devices_.resize(number + 1);
        devices_[number].resize(bytes / kLineBytes);
        continue;
      }
      u64 byte;
      words >> std::hex >> byte;
      Line line{};
      for (u64 &word : line.w) words >> word;
      cr_assert(!words.fail(), "%s", text.c_str());
      devices_.at(std::stoul(first)).at(byte / kLineBytes) = line;
    }
  }
  u32 device_count() const override { return static_cast<u32>(devices_.size()); }
  u64 device_bytes(u32 device) const override { return devices_[device].size() * kLineBytes; }
  bool read_line(PoolOffset at, Line &ret_line) override {
    if (!inside(at)) return false;
    ret_line = devices_[at.device()][at.byte() / kLineBytes];
    return true;
  }
  const std::vector<std::vector<Line>> &devices() const { return devices_; }

private:
  std::vector<std::vector<Line>> devices_;
};

void write_listed(Image &image, const char *path) {
  std::ofstream file(path);
  file << "# SPDX-License-Identifier: Apache-2.0\n"
          "# A store of format version 1: device, byte and eight words of each line that is not\n"
          "# zero.\n"
          "# Made by tests/unit/media_golden_test.cc, read also by tests/golden/read_image.py.\n";
  for (u32 d = 0; d < image.device_count(); ++d) {
    file << "device " << d << ' ' << image.device_bytes(d) << '\n';
  }
  for (u32 d = 0; d < image.device_count(); ++d) {
    for (u64 i = 0; i < image.devices()[d].size(); ++i) {
      const Line &line = image.devices()[d][i];
      if (line == Line{}) continue;
      file << std::dec << d << std::hex << ' ' << i * kLineBytes;
      for (u64 word : line.w) file << ' ' << word;
      file << '\n';
    }
  }
}

struct Collect final : FindingSink {
  void found(const FindingAt &finding) override {
    text += std::string(finding_name(finding.finding)) + " " + finding.detail + "; ";
  }
  std::string text;
};

std::string golden_path() {
  const char *root = std::getenv("KVPOOL_SOURCE_DIR");
  return std::string(root != nullptr ? root : "..") + "/tests/golden/store-v1.lines";
}

}  // namespace

Test(media_golden, store_of_version_1) {
  Image built = test::golden_store();
  if (const char *path = std::getenv("KVPOOL_WRITE_GOLDEN")) write_listed(built, path);
  Listed stored(golden_path());
  cr_assert(stored.device_count() == 1, "%s", golden_path().c_str());
  Collect sink;
  VerifyReport report;
  VerifyOptions options;
  options.payload = true;
  cr_expect(verify_store(stored, options, sink, report) == 0, "%s", sink.text.c_str());
  cr_expect(sink.text.empty(), "%s", sink.text.c_str());
  cr_expect(report.entries[static_cast<u32>(EntryState::kPublished)] == 4);
  cr_expect(report.payload_bytes == 4096 + 65536 + 131072 + 8192 - 64);
}

Test(media_golden, what_is_built_now_is_the_same) {
  Image built = test::golden_store();
  Listed stored(golden_path());
  cr_assert(stored.device_count() == built.device_count());
  cr_assert(stored.device_bytes(0) == built.device_bytes(0));
  u64 different = 0;
  for (u64 i = 0; i < built.devices()[0].size(); ++i) {
    different += built.devices()[0][i] != stored.devices()[0][i];
  }
  cr_expect(different == 0, "%llu lines differ", static_cast<unsigned long long>(different));
}
