// SPDX-License-Identifier: Apache-2.0
// Any bytes as a picture: they give all the pixels of their size, or end in rapt::Error. Sums of PNG chunks
// are made right first (but for one file in eight), so that what stands behind them is reached.
#include <cstdint>
#include <cstdlib>

#include "rapt/image/image.h"

// Sums of tests/image_files.h need no golden files here.
#ifndef RAPT_SOURCE_DIR
#define RAPT_SOURCE_DIR ""
#endif
#include "tests/image_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size % 8 != 0) rapt::test::repair_png(bytes);
  const auto alpha = size % 2 ? rapt::Alpha::drop : rapt::Alpha::over_white;
  try {
    const rapt::Image image =
        rapt::decode_image(std::as_bytes(std::span(bytes.data(), bytes.size())), "fuzz", alpha);
    if (image.width < 1 || image.height < 1 || image.width * image.height > rapt::kMostPixels ||
        static_cast<rapt::Dim>(image.rgb.size()) != 3 * image.width * image.height)
      std::abort();
  } catch (const rapt::Error&) {}
  return 0;
}
