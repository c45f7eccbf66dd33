// SPDX-License-Identifier: Apache-2.0
// PNG, all of it: five colour types, depths 1 to 16, interlacing, transparency.
#pragma once
#include "rapt/image/image.h"

namespace rapt {

bool is_png(std::span<const std::byte> bytes);
Image decode_png(std::span<const std::byte> bytes, const std::string& name, Alpha alpha);

}  // namespace rapt
