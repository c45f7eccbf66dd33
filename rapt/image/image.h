// SPDX-License-Identifier: Apache-2.0
// A picture in memory, and how it gets there from PNG and JPEG files. Sizes are taken from the header and
// compared with the limits before anything is unpacked or allocated: a file of a hundred bytes that claims
// a billion pixels ends in a message. What a model wants of a picture: preprocess.h.
//
// Colours are those of Pillow's Image.convert("RGB"): grey three times, palettes looked up, CMYK mixed, no
// colour profile and no EXIF rotation applied.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

struct Image {
  Dim width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // [height][width][3]
};

// What becomes of transparency: it is ignored (Pillow's convert), or the picture is laid on a white ground
// (what processors of transformers 5 with do_convert_rgb do).
enum class Alpha { drop, over_white };

inline constexpr Dim kMostPixels = 64'000'000, kMostSide = 65'535;  // the side: JPEG's own limit
inline constexpr std::uint64_t kMostImageBytes = std::uint64_t{256} << 20;

// PNG or JPEG, told by their first bytes; `name` stands in messages.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, Alpha alpha = Alpha::drop);
Image read_image(const std::string& path, Alpha alpha = Alpha::drop);

// For the readers of formats: fails where a header claims no pixels or more than the limits.
void check_image_size(std::string_view name, std::uint64_t width, std::uint64_t height);

}  // namespace rapt
