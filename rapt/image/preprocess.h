// SPDX-License-Identifier: Apache-2.0
// From a picture to what a vision model reads: resize, crop, rescale, normalise, by the rules that stand
// beside the weights (preprocessor_config.json), with the numbers of transformers' processors that use
// Pillow. Order and precision: bytes until after the crop, then
//
//   y = (float(byte · rescale_factor) − float(mean)) / float(std)     the product in double, the rest in f32
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/image/image.h"
#include "rapt/image/resize.h"

namespace rapt {

struct ImageProcess {
  std::string type;  // ViTImageProcessor, …
  bool resize = true;
  Dim height = 0, width = 0;  // the size to resize to; or
  Dim shortest_edge = 0;  // that of the shorter side, the other in proportion, rounded down
  Resample resample = Resample::bilinear;
  bool center_crop = false;
  Dim crop_height = 0, crop_width = 0;  // what is smaller is padded with black
  bool rescale_first = false;  // before the resize, which then gives numbers and not bytes (DINOv3)
  bool rescale = true;
  double rescale_factor = 1.0 / 255;
  bool normalize = true;
  std::array<double, 3> mean{}, std{};
  bool convert_rgb = false;  // files are read as RGB either way
};

// The most a side of `size` and `crop_size` may have: twice what the largest known models take.
inline constexpr Dim kMostModelSide = 4096;

// Of a processor's JSON object; a missing field, or null, has the default of its class. `model_type`, that of
// the model's config.json, names the class where the object does not (files of 2021). `where` stands in
// messages.
ImageProcess parse_image_process(const Json& json, const std::string& where,
                                 std::string_view model_type = "");
// What released models of a family use, for folders without the file; image_size: that of config.json, or 0.
// None for a family that is not known.
std::optional<ImageProcess> usual_image_process(std::string_view model_type, Dim image_size = 0);
// Of a model's folder: processor_config.json where it has an image_processor, else preprocessor_config.json,
// else what is usual for the family, else an error that says what is missing.
ImageProcess read_image_process(const std::string& folder, std::string_view model_type, Dim image_size = 0);

struct PreparedImage {
  Dim height = 0, width = 0;
  std::vector<float> pixels;  // [3][height][width]
};
// `name` stands in messages: a strip that would become larger than the limit is refused.
PreparedImage preprocess(const ImageProcess& process, const Image& image, std::string_view name = "picture");
// Read, turned upright and prepared.
PreparedImage read_prepared_image(const ImageProcess& process, const std::string& path);

}  // namespace rapt
