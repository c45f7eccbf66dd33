// SPDX-License-Identifier: Apache-2.0
// Pictures for tests: drawn by the rule of tests/golden/make_images.py, the files that Pillow read there, and
// PNG files made chunk by chunk, right or wrong.
#pragma once
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/image/image.h"
#include "rapt/io/reader.h"
#include "tests/tools.h"

namespace rapt::test {

// Ramps, stripes and noise in whole numbers: picture() of tests/golden/make_images.py.
inline Image drawn_picture(Dim width, Dim height, std::uint64_t seed) {
  Image image{width, height, {}};
  image.rgb.reserve(static_cast<std::size_t>(3 * width * height));
  const auto w = static_cast<std::uint64_t>(width), h = static_cast<std::uint64_t>(height);
  for (std::uint64_t y = 0; y < h; ++y)
    for (std::uint64_t x = 0; x < w; ++x)
      for (std::uint64_t c = 0; c < 3; ++c) {
        std::uint64_t n =
            (x * 2654435761u + y * 2246822519u + c * 3266489917u + seed * 668265263u) & 0xFFFFFFFFu;
        n ^= n >> 15;
        n = n * 2246822519u & 0xFFFFFFFFu;
        n ^= n >> 13;
        const std::uint64_t ramp = (x * 255 / std::max<std::uint64_t>(w - 1, 1) * (c + 1) +
                                    y * 255 / std::max<std::uint64_t>(h - 1, 1) * (3 - c)) /
                                   4;
        const std::uint64_t stripe = (x / 5 + y / 7 + seed) % 3 == c ? 64 : 0;
        image.rgb.push_back(
            static_cast<std::uint8_t>(std::min<std::uint64_t>(ramp + stripe + (n & 63), 255)));
      }
  return image;
}

inline std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if ((count += 6) >= 8) out += static_cast<char>(bits >> (count -= 8) & 255);
  }
  return out;
}

inline const Json& image_golden(const std::string& name) {
  static Json files, processors;
  Json& json = name == "files.json" ? files : processors;
  const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/images/" + name;
  if (json.is_null()) json = parse_json(read_text_file(path), path);
  return json;
}
// A file of the goldens.
inline std::string golden_image(std::string_view name) {
  for (const Json& c : need(image_golden("files.json"), "cases").array())
    if (need(c, "name").string() == name) return from_base64(need(c, "bytes").string());
  fail("no golden picture is called ", name);
}

inline std::string big_endian(std::uint64_t n, int bytes = 4) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(n >> (8 * i) & 255);
  return out;
}
inline std::string zlib_packed(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
            static_cast<uLong>(bytes.size()), 9);
  out.resize(size);
  return out;
}
inline std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(data.size()) + body + big_endian(sum);
}
inline const std::string kPngStart("\x89PNG\r\n\x1a\n", 8);
inline std::string png_header(std::uint64_t width, std::uint64_t height, int depth = 8, int color = 2,
                              int interlaced = 0) {
  return png_chunk("IHDR", big_endian(width) + big_endian(height) + static_cast<char>(depth) +
                               static_cast<char>(color) + std::string(2, '\0') +
                               static_cast<char>(interlaced));
}
inline std::string png_pixels(std::string_view rows) { return png_chunk("IDAT", zlib_packed(rows)); }
// The sums of all chunks made right again, as far as their lengths lead.
inline void repair_png(std::string& bytes) {
  if (!bytes.starts_with(kPngStart)) return;
  for (std::size_t at = kPngStart.size(); at + 12 <= bytes.size();) {
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    if (length > bytes.size() - at - 12) return;
    const auto* type = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    bytes.replace(at + 8 + length, 4, big_endian(::crc32(0, type, static_cast<uInt>(length + 4))));
    at += 12 + length;
  }
}

}  // namespace rapt::test
