// SPDX-License-Identifier: Apache-2.0
// Every PNG and JPEG of tests/golden/images/files.json has Pillow's pixels, all of them; files of other kinds
// and sizes beyond the limits are refused by name.
#include "rapt/image/image.h"

#include <gtest/gtest.h>

#include "rapt/image/orientation.h"
#include "tests/hostile/bytes.h"
#include "tests/image_files.h"

namespace rapt {
namespace {

using test::as_span, test::error_of, test::holds, test::need;

std::uint32_t sum_of(const Image& image) {
  return static_cast<std::uint32_t>(::crc32(0, image.rgb.data(), static_cast<uInt>(image.rgb.size())));
}

TEST(ImageFiles, HavePillowsPixels) {
  int pngs = 0, jpegs = 0;
  for (const Json& c : need(test::image_golden("files.json"), "cases").array()) {
    const std::string name = need(c, "name").string(), bytes = test::from_base64(need(c, "bytes").string());
    const Image plain = decode_image(as_span(bytes), name);
    EXPECT_EQ(plain.width, need(c, "width").integer()) << name;
    EXPECT_EQ(plain.height, need(c, "height").integer()) << name;
    ASSERT_EQ(static_cast<Dim>(plain.rgb.size()), 3 * plain.width * plain.height) << name;
    EXPECT_EQ(sum_of(plain), need(c, "crc").integer()) << name;
    ++(name.starts_with("png") ? pngs : jpegs);
  }
  EXPECT_GE(pngs, 40);
  EXPECT_GE(jpegs, 20);
}

TEST(ImageFiles, PixelsByHand) {
  // Two rows of two pixels: the second stored as the difference to the first (filter 2).
  const std::string rows("\0\x01\x02\x03\xF0\xF1\xF2\x02\x01\x01\x01\x20\x20\x20", 14);
  const std::string file =
      test::kPngStart + test::png_header(2, 2) + test::png_pixels(rows) + test::png_chunk("IEND", "");
  const Image image = decode_image(as_span(file), "by hand");
  EXPECT_EQ(image.rgb, (std::vector<std::uint8_t>{1, 2, 3, 0xF0, 0xF1, 0xF2, 2, 3, 4, 0x10, 0x11, 0x12}));
}

TEST(ImageFiles, WhatFollowsTheLastChunkIsIgnored) {
  for (const char* name : {"png-2-8", "jpeg-444"}) {
    const std::string bytes = test::golden_image(name);
    EXPECT_EQ(decode_image(as_span(bytes + "trailing"), name).rgb, decode_image(as_span(bytes), name).rgb);
  }
}

TEST(ImageFiles, AreReadFromDisk) {
  const test::TempFolder temp;
  const std::string bytes = test::golden_image("jpeg-420");
  test::put_file(temp / "a.png", bytes);  // the name does not matter
  EXPECT_EQ(read_image(temp / "a.png").rgb, decode_image(as_span(bytes), "x").rgb);
  EXPECT_TRUE(holds(error_of([&] { read_image(temp / "b.png"); }), "no such file"));
  EXPECT_TRUE(holds(error_of([&] { read_image(temp.path()); }), temp.path()));
}

// exif() of make_images.py.
std::string exif(int orientation, bool little) {
  const auto number = [&](std::uint64_t n, int bytes) {
    std::string out = test::big_endian(n, bytes);
    return little ? std::string(out.rbegin(), out.rend()) : out;
  };
  return (little ? std::string("II*\0", 4) : std::string("MM\0*", 4)) + number(8, 4) + number(2, 2) +
         number(0x0100, 2) + number(4, 2) + number(1, 4) + number(7, 4) + number(0x0112, 2) + number(3, 2) +
         number(1, 4) + number(static_cast<std::uint64_t>(orientation), 2) + number(0, 2) + number(0, 4);
}
std::string with_exif(const std::string& jpeg, const std::string& tiff) {
  const std::string notes = std::string("Exif\0\0", 6) + tiff;
  return jpeg.substr(0, 2) + "\xFF\xE1" + test::big_endian(notes.size() + 2, 2) + notes + jpeg.substr(2);
}

TEST(ImageFiles, PhotographsStandUpright) {
  const Json::Array& sums = need(test::image_golden("files.json"), "upright").array();
  const std::string jpeg = test::golden_image("jpeg-444"), png = test::golden_image("png-2-8");
  const auto check = [&](const std::string& file, int orientation, const Json& sum) {
    EXPECT_EQ(exif_orientation(as_span(file)), orientation);
    EXPECT_EQ(sum_of(upright(decode_image(as_span(file), "x"), orientation)), sum.integer()) << orientation;
  };
  for (int o = 1; o <= 8; ++o)
    check(with_exif(jpeg, exif(o, o % 2 == 0)), o, sums[static_cast<std::size_t>(o - 1)]);
  const std::string noted = png.substr(0, 33) + test::png_chunk("eXIf", exif(6, false)) + png.substr(33);
  check(noted, 6, sums[8]);
  const test::TempFolder temp;
  test::put_file(temp / "photo", noted);
  EXPECT_EQ(read_upright_image(temp / "photo").rgb, upright(decode_image(as_span(noted), "x"), 6).rgb);
}

TEST(ImageFiles, DamagedNotesLeaveThePicture) {
  const std::string jpeg = test::golden_image("jpeg-444"), good = exif(6, true);
  EXPECT_EQ(exif_orientation(as_span(jpeg)), 1);
  EXPECT_EQ(exif_orientation({}), 1);
  for (std::size_t n = 0; n + 6 < good.size(); ++n)
    EXPECT_EQ(exif_orientation(as_span(with_exif(jpeg, good.substr(0, n)))), n > 32 ? 6 : 1) << n;
  std::string far = good, many = good, ninth = exif(9, true);
  far.replace(4, 4, "\xFF\xFF\xFF\xFF");
  many.replace(8, 2, "\xFF\xFF");
  many.replace(22, 2, "\x13\x01");
  for (const std::string& tiff : {far, many, ninth, std::string("not a TIFF file at all, but long enough")})
    EXPECT_EQ(exif_orientation(as_span(with_exif(jpeg, tiff))), 1);
}

TEST(ImageFiles, OtherFormatsAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GIF89a and more", "a GIF"},
      {std::string("RIFF\1\0\0\0WEBPVP8 ", 16), "a WebP"},
      {"BM6\1", "a BMP"},
      {std::string("II*\0", 4), "a TIFF"},
      {std::string("\0\0\0\x1c"
                   "ftypavif",
                   12),
       "an AVIF"},
      {std::string("\0\0\0\x1c"
                   "ftypheic",
                   12),
       "a HEIC"},
      {"\xFF\x0A\x01", "a JPEG XL"},
      {"%PDF-1.7", "a PDF"},
      {"", "is empty"},
      {"GGUF\3", "GGUF"},
      {"hello, this is a text", "PNG and JPEG are read"},
      {"\x89PN", "PNG and JPEG are read"}};
  for (const auto& [bytes, words] : cases) {
    const std::string message = error_of([&] { decode_image(as_span(bytes), "file"); });
    EXPECT_TRUE(holds(message, words) && message.starts_with("file: ")) << words << ": " << message;
  }
}

TEST(ImageFiles, TheLimitNamesTheSizes) {
  const auto claim = [](std::uint64_t width, std::uint64_t height) {
    const std::string file = test::kPngStart + test::png_header(width, height);
    return error_of([&] { decode_image(as_span(file), "big.png"); });
  };
  const std::string message = claim(8001, 8000);
  EXPECT_TRUE(
      holds(message, "big.png: the picture is 8001 x 8000 pixels, 64,008,000 together; at most 64,000,000"))
      << message;
  // Exactly the limit passes here, and the pixels are missed.
  EXPECT_TRUE(holds(claim(8000, 8000), "ends before its last chunk")) << claim(8000, 8000);
}

}  // namespace
}  // namespace rapt
