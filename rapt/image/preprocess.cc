// SPDX-License-Identifier: Apache-2.0
// What a vision model reads of a picture: resize, centre crop, rescale, normalise. The fields that describe
// it: image_process.cc.
#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/image/preprocess.h"

namespace rapt {
namespace {

struct Size {
  Dim height, width;
};

Size resized(const ImageProcess& p, const Image& image, std::string_view name) {
  if (p.shortest_edge == 0) return {p.height, p.width};
  const bool tall = image.width <= image.height;
  const Dim shorter = tall ? image.width : image.height, longer = tall ? image.height : image.width;
  // As Python computes int(size * long / short): one division, exact before it
  const Dim other =
      static_cast<Dim>(static_cast<double>(p.shortest_edge * longer) / static_cast<double>(shorter));
  const Size size = tall ? Size{other, p.shortest_edge} : Size{p.shortest_edge, other};
  if (size.height * size.width > kMostPixels)
    fail(name, ": a picture of ", image.width, " x ", image.height, " whose shorter side becomes ",
         p.shortest_edge, " would be ", size.width, " x ", size.height, ", more than ",
         with_commas(kMostPixels), " pixels: cut it first");
  return size;
}

// The middle of the picture; where it is too small, in the middle of black. Halves are rounded down where
// something is cut and up where something is added.
Image center_crop(const Image& in, Dim height, Dim width) {
  const auto half_down = [](Dim n) { return n >= 0 ? n / 2 : -((1 - n) / 2); };
  const Dim top = half_down(in.height - height), left = half_down(in.width - width);
  Image out{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * width * height))};
  const Dim first = std::max<Dim>(left, 0), last = std::min(left + width, in.width);
  for (Dim y = std::max<Dim>(top, 0); y < std::min(top + height, in.height); ++y) {
    const std::uint8_t* from = in.rgb.data() + 3 * (y * in.width + first);
    std::copy(from, from + 3 * (last - first), out.rgb.data() + 3 * ((y - top) * width + first - left));
  }
  return out;
}

// One value for each byte and channel.
std::array<std::array<float, 256>, 3> value_table(const ImageProcess& p) {
  std::array<std::array<float, 256>, 3> table;
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t v = 0; v < 256; ++v) {
      const auto byte = static_cast<double>(v);
      float x = static_cast<float>(p.rescale ? byte * p.rescale_factor : byte);
      if (p.normalize) x = (x - static_cast<float>(p.mean[c])) / static_cast<float>(p.std[c]);
      table[c][v] = x;
    }
  return table;
}

// DINOv3: numbers are resized, not bytes.
PreparedImage preprocess_numbers(const ImageProcess& p, const Image& image, Size size) {
  PreparedImage out{size.height, size.width, {}};
  for (std::size_t c = 0; c < 3; ++c) {
    Plane plane{image.width, image.height, {}};
    for (std::size_t i = c; i < image.rgb.size(); i += 3) {
      const auto byte = static_cast<double>(image.rgb[i]);
      plane.values.push_back(static_cast<float>(p.rescale ? byte * p.rescale_factor : byte));
    }
    if (p.resize) plane = resize_plane(plane, size.height, size.width, p.resample);
    for (const float x : plane.values)
      out.pixels.push_back(p.normalize ? (x - static_cast<float>(p.mean[c])) / static_cast<float>(p.std[c])
                                       : x);
  }
  return out;
}

}  // namespace

PreparedImage preprocess(const ImageProcess& process, const Image& image, std::string_view name) {
  check_image_size(name, static_cast<std::uint64_t>(image.width), static_cast<std::uint64_t>(image.height));
  const Size size = process.resize ? resized(process, image, name) : Size{image.height, image.width};
  if (process.rescale_first) return preprocess_numbers(process, image, size);
  Image changed;
  const Image* at = &image;
  if (process.resize) {
    changed = resize_image(image, size.height, size.width, process.resample);
    at = &changed;
  }
  if (process.center_crop) {
    changed = center_crop(*at, process.crop_height, process.crop_width);
    at = &changed;
  }
  PreparedImage out{at->height, at->width, {}};
  const auto pixels = static_cast<std::size_t>(at->height * at->width);
  out.pixels.resize(3 * pixels);
  const auto table = value_table(process);
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < pixels; ++i) out.pixels[c * pixels + i] = table[c][at->rgb[3 * i + c]];
  return out;
}

PreparedImage read_prepared_image(const ImageProcess& process, const std::string& path) {
  return preprocess(process, read_upright_image(path), path);
}

}  // namespace rapt
