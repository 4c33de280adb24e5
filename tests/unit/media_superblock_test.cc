// SPDX-License-Identifier: Apache-2.0
// Shows: whatever is given as a store is opened or refused with the right error and a reason in
// words.
// How: good images in memory, then truncated, zeroed, flipped, newer, foreign, stale, mixed up
// ones.
#include <criterion/criterion.h>

#include "golden/image.hpp"

using namespace kvpool;
using namespace kvpool::media;
using kvpool::test::golden_store;
using kvpool::test::Image;
using kvpool::test::tiny_options;

namespace {

struct Opened {
  int err;
  std::string why;
  SuperblockRead read{};
};

Opened open_store(LineReader &image) {
  Opened o{};
  o.err = read_superblock(image, o.read, &o.why);
  return o;
}

void expect_error(LineReader &image, int err, const char *words) {
  const Opened o = open_store(image);
  cr_expect(o.err == err, "%d instead of %d: %s", o.err, err, o.why.c_str());
  cr_expect(o.why.find(words) != std::string::npos, "'%s' not in: %s", words, o.why.c_str());
}

void flip(Image &image, PoolOffset at, u32 bit = 77) {
  image.line(at).w[bit / 64] ^= u64{1} << bit % 64;
}

void rewrite_identities(Image &image, u32 device, void (*change)(Identity &)) {
  for (u32 copy = 0; copy < 2; ++copy) {
    const PoolOffset at = image.geo().identity_at(copy);
    if (at.device() != device) continue;
    auto id = image.get<Identity>(at);
    change(id);
    image.line(at) = Sealer::sealed_identity(id);
  }
  if (device >= 2) {
    auto id = image.get<Identity>(PoolOffset(device, 0));
    change(id);
    image.line(PoolOffset(device, 0)) = Sealer::sealed_identity(id);
  }
}

// The devices of an image in another order or number.
class Rearranged final : public LineReader {
public:
  Rearranged(Image &image, std::vector<u32> order) : image_(image), order_(std::move(order)) {}
  u32 device_count() const override { return static_cast<u32>(order_.size()); }
  u64 device_bytes(u32 d) const override { return image_.device_bytes(order_[d]); }
  bool read_line(PoolOffset at, Line &ret_line) override {
    return image_.read_line(PoolOffset(order_[at.device()], at.byte()), ret_line);
  }

private:
  Image &image_;
  std::vector<u32> order_;
};

}  // namespace

Test(media_superblock, good_stores_open) {
  for (u32 devices : {1u, 2u, 3u, 16u}) {
    Image image(tiny_options(devices));
    const Opened o = open_store(image);
    cr_expect(o.err == 0, "%u devices: %s", devices, o.why.c_str());
    cr_expect(o.read.geometry == image.geo());
    cr_expect(o.read.copy_intact[0] && o.read.copy_intact[1] && !o.read.copies_differ);
    StoreView view{};
    std::string why;
    cr_expect(read_view(image, o.read, view, &why) == 0, "%s", why.c_str());
    cr_expect(view.area_known && view.regions == image.regions());
    cr_expect(view.epoch() == image.epoch() && view.area() == image.area());
  }
}

Test(media_superblock, one_copy_is_enough) {
  for (u32 devices : {1u, 2u, 3u}) {
    for (u32 copy = 0; copy < 2; ++copy) {
      for (u32 line = 0; line < 3; ++line) {
        Image image(tiny_options(devices));
        flip(image, image.geo().identity_at(copy) + line * kLineBytes);
        const Opened o = open_store(image);
        cr_expect(o.err == 0, "%u devices, copy %u, line %u: %s", devices, copy, line,
                  o.why.c_str());
        cr_expect(!o.read.copy_intact[copy] && o.read.copy_intact[1 - copy]);
        cr_expect(o.read.geometry == image.geo());
      }
    }
  }
}

Test(media_superblock, every_flipped_bit_is_seen) {
  Image image(tiny_options());
  for (u32 line = 0; line < 3; ++line) {
    for (u32 bit = 0; bit < 512; ++bit) {
      const PoolOffset at = image.geo().identity_at(0) + line * kLineBytes;
      flip(image, at, bit);
      const Opened o = open_store(image);
      cr_expect(o.err == 0 && !o.read.copy_intact[0], "line %u bit %u", line, bit);
      flip(image, at, bit);
    }
  }
}

Test(media_superblock, no_store) {
  Image image(tiny_options());
  for (auto &device : image.devices()) std::fill(device.begin(), device.end(), Line{});
  expect_error(image, -ENODATA, "never formatted");
  for (auto &device : image.devices()) {
    for (Line &line : device) line.w[0] = 0x464C457F;
  }
  expect_error(image, -ENODATA, "other data");
}

Test(media_superblock, both_copies_damaged) {
  Image image(tiny_options());
  flip(image, image.geo().identity_at(0));
  flip(image, image.geo().identity_at(1));
  expect_error(image, -EUCLEAN, "both copies");
  Image geometry(tiny_options());
  flip(geometry, geometry.geo().geometry_at(0, 1));
  flip(geometry, geometry.geo().geometry_at(1, 0));
  expect_error(geometry, -EUCLEAN, "geometry");
  Image poisoned(tiny_options());
  poisoned.poison(poisoned.geo().identity_at(0));
  poisoned.poison(poisoned.geo().identity_at(1));
  expect_error(poisoned, -EUCLEAN, "can be read");
}

Test(media_superblock, formatting_not_finished) {
  Image image(tiny_options(3));
  image.geo().state = StoreState::kFormatting;
  image.write_superblock();
  expect_error(image, -ENODATA, "not finished");
  SuperblockRead read{};
  cr_expect(read_superblock_any_state(image, read, nullptr) == 0);
  Image begun(tiny_options());  // killed after the first line
  const Line first = begun.line(PoolOffset(0, 0));
  for (Line &line : begun.devices()[0]) line = Line{};
  auto id = from_line<Identity>(first);
  id.state = static_cast<u8>(StoreState::kFormatting);
  begun.line(PoolOffset(0, 0)) = Sealer::sealed_identity(id);
  expect_error(begun, -ENODATA, "not finished");
}

Test(media_superblock, newer_formats) {
  Image image(tiny_options());
  rewrite_identities(image, 0, [](Identity &id) { id.version = kFormatVersion + 1; });
  expect_error(image, -EPROTONOSUPPORT, "format version 2");
  Image feature(tiny_options());
  rewrite_identities(feature, 0, [](Identity &id) { id.incompat = 0x40; });
  expect_error(feature, -EPROTONOSUPPORT, "0x40");
}

Test(media_superblock, devices_that_do_not_belong) {
  Image image(tiny_options(3));
  Rearranged fewer(image, {0, 1});
  expect_error(fewer, -ENODEV, "3 devices, 2 given");
  Rearranged only_second(image, {2});
  expect_error(only_second, -ENODEV, "3 devices, 1 given");
  Rearranged swapped(image, {0, 2, 1});
  expect_error(swapped, -EINVAL, "wrong order");
  Rearranged turned(image, {1, 0, 2});
  expect_error(turned, -EINVAL, "wrong order");
  Image foreign(tiny_options(3));
  rewrite_identities(foreign, 2, [](Identity &id) { ++id.uuid[3]; });
  expect_error(foreign, -EXDEV, "device 2 belongs to another store");
  Image stale(tiny_options(3));
  rewrite_identities(stale, 1, [](Identity &id) { ++id.nonce; });
  expect_error(stale, -ESTALE, "device 1");
  Image blank(tiny_options(3));
  blank.line(PoolOffset(2, 0)) = Line{};
  expect_error(blank, -EUCLEAN, "device 2");
}

Test(media_superblock, truncated_device) {
  for (u32 device = 0; device < 3; ++device) {
    Image image(tiny_options(3));
    image.devices()[device].resize(image.devices()[device].size() - 1);
    expect_error(image, -EUCLEAN, "truncated");
  }
  Image nothing(tiny_options());
  nothing.devices()[0].clear();
  expect_error(nothing, -EUCLEAN, "can be read");
}

// The other copy says what there is to know; the size is taken for that of the other device.
Test(media_superblock, lost_control_device) {
  for (u32 device = 0; device < 2; ++device) {
    Image image(tiny_options(3));
    const Geometry whole = image.geo();
    image.devices()[device].clear();
    SuperblockRead read{};
    std::string why;
    cr_assert_eq(read_superblock(image, read, &why), 0, "%s", why.c_str());
    cr_expect(!read.copy_intact[device] && read.copy_intact[1 - device]);
    cr_expect_eq(read.geometry.device_bytes[device], whole.device_bytes[1 - device]);
    cr_expect_eq(read.geometry.lines_end(), whole.lines_end());
  }
}

// A later device that cannot be read at all is lost; one of which a line went bad could be another
// store's.
Test(media_superblock, lost_later_device) {
  Image image(tiny_options(3));
  const Geometry whole = image.geo();
  image.devices()[2].clear();
  Opened o = open_store(image);
  cr_assert_eq(o.err, 0, "%s", o.why.c_str());
  cr_expect(o.read.copy_intact[0] && o.read.copy_intact[1]);
  cr_expect_eq(o.read.geometry.device_bytes[2], whole.device_bytes[0]);
  Image poisoned(tiny_options(3));
  poisoned.poison(PoolOffset(2, 0));
  expect_error(poisoned, -EUCLEAN, "device 2");
  poisoned.poison(PoolOffset(2, kPageBytes - kLineBytes));
  cr_expect_eq(open_store(poisoned).err, 0);
}

// A geometry that is sealed but makes no sense is refused, in both copies or in one.
Test(media_superblock, nonsense_geometry) {
  Image image(tiny_options());
  for (u32 copy = 0; copy < 2; ++copy) {
    auto b = image.get<GeometryB>(image.geo().geometry_at(copy, 1));
    b.area_bytes = 4096;
    image.put(image.geo().geometry_at(copy, 1), b);
  }
  expect_error(image, -EUCLEAN, "areas are too small");
}

// Guards: rings that no format makes, and that a mailbox cannot keep track of, were accepted.
Test(media_superblock, impossible_rings) {
  for (u32 which = 0; which < 2; ++which) {
    Image image(tiny_options());
    for (u32 copy = 0; copy < 2; ++copy) {
      auto a = image.get<GeometryA>(image.geo().geometry_at(copy, 0));
      if (which == 0) a.request_lines = 4;
      if (which == 1) a.response_slots = 8192;
      image.put(image.geo().geometry_at(copy, 0), a);
    }
    expect_error(image, -EUCLEAN, which == 0 ? "request ring" : "response ring");
  }
}

Test(media_superblock, views_without_an_area) {
  Image image = golden_store();
  const Opened o = open_store(image);
  cr_assert(o.err == 0);
  StoreView view{};
  std::string why;
  flip(image, image.geo().region_line(image.area(), 2));
  cr_expect(read_view(image, o.read, view, &why) == -EUCLEAN);
  cr_expect(!view.area_known && view.claim_readable[0] && view.epoch() == image.epoch());
  flip(image, image.geo().claim_at(0, 0));
  flip(image, image.geo().claim_at(1, 0));
  cr_expect(read_view(image, o.read, view, &why) == -EUCLEAN);
  cr_expect(!view.area_known && !view.claim_readable[0] && view.claim_readable[1]);
  cr_expect(why.find("active") != std::string::npos, "%s", why.c_str());
}

Test(media_superblock, mapped_reader_stays_inside) {
  const Line lines[4] = {};
  const MappedReader::Device device = {lines, sizeof(lines)};
  MappedReader reader(&device, 1);
  Line line;
  cr_expect(reader.read_line(PoolOffset(0, 192), line));
  cr_expect(!reader.read_line(PoolOffset(0, 256), line));
  cr_expect(!reader.read_line(PoolOffset(0, 32), line));
  cr_expect(!reader.read_line(PoolOffset(1, 0), line));
  cr_expect(!reader.read_line(kNoOffset, line));
}
