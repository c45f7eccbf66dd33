// SPDX-License-Identifier: Apache-2.0
// How a camera was held (EXIF): photographs of phones lie on their side in the file.
#pragma once
#include "rapt/image/image.h"

namespace rapt {

// EXIF's orientation of a PNG or JPEG file, 1 to 8; 1, upright, where it says none or what it says is
// damaged: nobody loses a picture by its notes.
int exif_orientation(std::span<const std::byte> bytes);
// The picture as it was seen, as Pillow's ImageOps.exif_transpose.
Image upright(Image image, int orientation);

}  // namespace rapt
