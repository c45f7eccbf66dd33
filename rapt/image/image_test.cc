// SPDX-License-Identifier: Apache-2.0
// Every PNG and JPEG of tests/golden/images/files.json has Pillow's pixels, all of them; files of other kinds
// and sizes beyond the limits are refused by name.
#include "rapt/image/image.h"

#include <gtest/gtest.h>

#include "tests/hostile/bytes.h"
#include "tests/image_files.h"

namespace rapt {
namespace {

using test::as_span, test::error_of, test::holds, test::need;

std::uint32_t sum_of(const Image& image) {
  return static_cast<std::uint32_t>(::crc32(0, image.rgb.data(), static_cast<uInt>(image.rgb.size())));
}

TEST(ImageFiles, HavePillowsPixels) {
  int pngs = 0, jpegs = 0, transparent = 0;
  for (const Json& c : need(test::image_golden("files.json"), "cases").array()) {
    const std::string name = need(c, "name").string(), bytes = test::from_base64(need(c, "bytes").string());
    const Image plain = decode_image(as_span(bytes), name);
    EXPECT_EQ(plain.width, need(c, "width").integer()) << name;
    EXPECT_EQ(plain.height, need(c, "height").integer()) << name;
    ASSERT_EQ(static_cast<Dim>(plain.rgb.size()), 3 * plain.width * plain.height) << name;
    EXPECT_EQ(sum_of(plain), need(c, "crc").integer()) << name;
    const Json* white = c.find("over_white");
    EXPECT_EQ(sum_of(decode_image(as_span(bytes), name, Alpha::over_white)),
              (white ? *white : need(c, "crc")).integer())
        << name;
    ++(name.starts_with("png") ? pngs : jpegs);
    transparent += white != nullptr;
  }
  EXPECT_GE(pngs, 40);
  EXPECT_GE(jpegs, 20);
  EXPECT_GE(transparent, 8);
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
