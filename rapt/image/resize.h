// SPDX-License-Identifier: Apache-2.0
// Pictures of another size: of bytes, to the bit as Pillow's Image.resize makes them; of numbers, as
// torch.nn.functional.interpolate(antialias=True), which has the same filters and rounds nothing.
#pragma once
#include "rapt/image/image.h"

namespace rapt {

// Pillow's numbers: they stand in files of models.
enum class Resample { nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

Image resize_image(const Image& image, Dim height, Dim width, Resample resample);

// One channel [height][width]; bilinear or bicubic.
struct Plane {
  Dim width = 0, height = 0;
  std::vector<float> values;
};
Plane resize_plane(const Plane& plane, Dim height, Dim width, Resample resample);

}  // namespace rapt
