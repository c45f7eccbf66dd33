// SPDX-License-Identifier: Apache-2.0
// Formats by their first bytes; those that are not read are refused by name.
#include "rapt/image/image.h"

#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/image/jpeg.h"
#include "rapt/image/png.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

struct Signature {
  std::size_t at;
  std::string_view bytes, name;
};
constexpr Signature kForeign[] = {
    {0, "GIF87a", "a GIF"},
    {0, "GIF89a", "a GIF"},
    {8, "WEBP", "a WebP picture"},
    {0, "BM", "a BMP picture"},
    {0, {"II*\0", 4}, "a TIFF picture"},
    {0, {"MM\0*", 4}, "a TIFF picture"},
    {4, "ftypavif", "an AVIF picture"},
    {4, "ftypheic", "a HEIC picture"},
    {4, "ftypmif1", "a HEIF picture"},
    {0, {"\0\0\0\x0CJXL ", 8}, "a JPEG XL picture"},
    {0, "\xFF\x0A", "a JPEG XL picture"},
    {0, {"\0\0\0\x0CjP  ", 8}, "a JPEG 2000 picture"},
    {0, {"\0\0\1\0", 4}, "an icon (ICO)"},
    {0, "qoif", "a QOI picture"},
    {0, "8BPS", "a Photoshop file"},
    {0, "%PDF", "a PDF"},
    {0, "<svg", "an SVG drawing"},
};

std::string_view foreign_picture(std::string_view bytes) {
  for (const Signature& s : kForeign)
    if (bytes.size() > s.at && bytes.substr(s.at).starts_with(s.bytes)) return s.name;
  return "";
}

}  // namespace

void check_image_size(std::string_view name, std::uint64_t width, std::uint64_t height) {
  if (width == 0 || height == 0)
    fail(name, ": the picture is ", width, " x ", height, " pixels: without pixels there is nothing to see");
  if (width > kMostSide || height > kMostSide)
    fail(name, ": the picture is ", width, " x ", height, " pixels; a side may have ", with_commas(kMostSide),
         " at most: make it smaller first");
  if (width * height > static_cast<std::uint64_t>(kMostPixels))
    fail(name, ": the picture is ", width, " x ", height, " pixels, ",
         with_commas(static_cast<Dim>(width * height)), " together; at most ", with_commas(kMostPixels),
         " are read: make it smaller first");
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name, Alpha alpha) {
  if (bytes.size() > kMostImageBytes)
    fail(name, ": has ", byte_count(static_cast<double>(bytes.size())), "; pictures of at most ",
         byte_count(static_cast<double>(kMostImageBytes)), " are read");
  if (is_png(bytes)) return decode_png(bytes, name, alpha);
  if (is_jpeg(bytes)) return decode_jpeg(bytes, name);
  if (bytes.empty()) fail(name, ": is empty (is the download complete?)");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 64));
  if (const std::string_view kind = foreign_picture(text); !kind.empty())
    fail(name, ": is ", kind, ", which is not read: save it as PNG or JPEG first");
  if (const std::string kind = foreign_format(bytes); !kind.empty()) fail(name, ": is no picture but ", kind);
  fail(name, ": is no picture that is known by its first bytes; PNG and JPEG are read");
}

Image read_image(const std::string& path, Alpha alpha) {
  const std::string bytes = read_text_file(path, kMostImageBytes);
  return decode_image(std::as_bytes(std::span(bytes.data(), bytes.size())), path, alpha);
}

}  // namespace rapt
