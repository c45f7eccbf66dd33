// SPDX-License-Identifier: Apache-2.0
// EXIF is a TIFF file inside the picture: a JPEG's APP1 segment behind "Exif\0\0", a PNG's chunk eXIf.
//
//   tiff  = ("II*\0" | "MM\0*") offset:u32 …       II: little-endian; at `offset` the first directory
//   IFD   = count:u16 entry*                        entry = tag:u16 type:u16 count:u32 value:4
//   orientation: tag 0x0112, type 3 (u16), the value in its first two bytes
#include "rapt/image/orientation.h"

#include <optional>
#include <string_view>

#include "rapt/image/jpeg.h"
#include "rapt/image/png.h"

namespace rapt {
namespace {

using Bytes = std::span<const std::byte>;

std::string_view text_of(Bytes bytes, std::size_t at, std::size_t n) {
  if (at > bytes.size() || n > bytes.size() - at) return "";
  return {reinterpret_cast<const char*>(bytes.data()) + at, n};
}

// None where the bytes end before it.
std::optional<std::size_t> number(Bytes bytes, std::size_t at, std::size_t n, bool little) {
  if (at > bytes.size() || n > bytes.size() - at) return std::nullopt;
  std::size_t v = 0;
  for (std::size_t i = 0; i < n; ++i)
    v = v << 8 | static_cast<std::size_t>(bytes[at + (little ? n - 1 - i : i)]);
  return v;
}

int orientation_of_tiff(Bytes tiff) {
  using namespace std::string_view_literals;
  const bool little = text_of(tiff, 0, 4) == "II*\0"sv;
  if (!little && text_of(tiff, 0, 4) != "MM\0*"sv) return 1;
  const auto directory = number(tiff, 4, 4, little);
  const auto count = directory ? number(tiff, *directory, 2, little) : std::nullopt;
  for (std::size_t i = 0; i < count.value_or(0); ++i) {
    const std::size_t at = *directory + 2 + 12 * i;
    const auto tag = number(tiff, at, 2, little), type = number(tiff, at + 2, 2, little),
               value = number(tiff, at + 8, 2, little);
    if (!value) return 1;
    if (tag == 0x0112 && type == 3) return *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

int orientation_of_jpeg(Bytes bytes) {
  using namespace std::string_view_literals;
  for (std::size_t at = 2; at + 4 <= bytes.size();) {
    const std::size_t marker = *number(bytes, at, 2, false), length = *number(bytes, at + 2, 2, false);
    if (marker < 0xFFC0 || marker == 0xFFDA || length < 2 || length > bytes.size() - at - 2) return 1;
    if (marker == 0xFFE1 && text_of(bytes, at + 4, 6) == "Exif\0\0"sv && length >= 8)
      return orientation_of_tiff(bytes.subspan(at + 10, length - 8));
    at += 2 + length;
  }
  return 1;
}

int orientation_of_png(Bytes bytes) {
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::size_t length = *number(bytes, at, 4, false);
    if (length > bytes.size() - at - 12) return 1;
    if (text_of(bytes, at + 4, 4) == "eXIf") return orientation_of_tiff(bytes.subspan(at + 8, length));
    at += 12 + length;
  }
  return 1;
}

}  // namespace

int exif_orientation(Bytes bytes) {
  return is_jpeg(bytes) ? orientation_of_jpeg(bytes) : is_png(bytes) ? orientation_of_png(bytes) : 1;
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool turned = orientation >= 5;  // rows become columns
  // 2, 3, 7, 8 begin at the right of the file's rows; 3, 4, 6, 7 at the bottom.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{turned ? image.height : image.width, turned ? image.width : image.height, {}};
  out.rgb.reserve(image.rgb.size());
  for (Dim y = 0; y < out.height; ++y)
    for (Dim x = 0; x < out.width; ++x) {
      const Dim across = turned ? y : x, down = turned ? x : y;
      const Dim column = from_right ? image.width - 1 - across : across,
                row = from_bottom ? image.height - 1 - down : down;
      const std::uint8_t* from = image.rgb.data() + 3 * (row * image.width + column);
      out.rgb.insert(out.rgb.end(), from, from + 3);
    }
  return out;
}

}  // namespace rapt
