// SPDX-License-Identifier: Apache-2.0
// JPEG by libjpeg-turbo: baseline and progressive, grey, YCbCr, RGB, CMYK and YCCK.
#pragma once
#include "rapt/image/image.h"

namespace rapt {

bool is_jpeg(std::span<const std::byte> bytes);
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name);

}  // namespace rapt
