// SPDX-License-Identifier: Apache-2.0
// Processors' files. Defaults are those of the classes of transformers 5.22; what the files of released
// models add to them stands in kUsual.
//
//   size      = N | [height, width] | {"height", "width"} | {"shortest_edge"}
//   crop_size = N | [height, width] | {"height", "width"}         N: a square; of `size` the shortest edge in
//                                                                 classes that keep proportions
#include <cmath>
#include <filesystem>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/image/preprocess.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

using Channels = std::array<double, 3>;
constexpr Channels kHalf{0.5, 0.5, 0.5};
constexpr Channels kClipMean{0.48145466, 0.4578275, 0.40821073}, kClipStd{0.26862954, 0.26130258, 0.27577711};
constexpr Channels kImageNetMean{0.485, 0.456, 0.406}, kImageNetStd{0.229, 0.224, 0.225};

struct ProcessorClass {
  std::string_view name;
  Dim side, shortest, crop;  // 0: none
  Resample resample;
  Channels mean, std;
  bool convert_rgb;
  bool int_is_square;  // what a plain number as `size` means
  bool rescale_first = false;
};
constexpr ProcessorClass kClasses[] = {
    {"ViTImageProcessor", 224, 0, 0, Resample::bilinear, kHalf, kHalf, false, true},
    {"DeiTImageProcessor", 256, 0, 224, Resample::bicubic, kHalf, kHalf, false, true},
    {"BitImageProcessor", 0, 224, 224, Resample::bicubic, kClipMean, kClipStd, true, false},
    {"CLIPImageProcessor", 0, 224, 224, Resample::bicubic, kClipMean, kClipStd, true, false},
    {"SiglipImageProcessor", 224, 0, 0, Resample::bicubic, kHalf, kHalf, true, false},
    {"DINOv3ViTImageProcessor", 224, 0, 0, Resample::bilinear, kImageNetMean, kImageNetStd, false, true,
     true},
};

struct Family {
  std::string_view model_type, type;
  bool image_net;  // released files have ImageNet's mean and std
};
constexpr Family kFamilies[] = {
    {"vit", "ViTImageProcessor", false},
    {"deit", "DeiTImageProcessor", true},
    {"dinov2", "BitImageProcessor", true},
    {"dinov2_with_registers", "BitImageProcessor", true},
    {"dinov3_vit", "DINOv3ViTImageProcessor", true},
    {"clip", "CLIPImageProcessor", false},
    {"clip_vision_model", "CLIPImageProcessor", false},
    {"siglip", "SiglipImageProcessor", false},
    {"siglip_vision_model", "SiglipImageProcessor", false},
};

const Family* family_of(std::string_view model_type) {
  for (const Family& f : kFamilies)
    if (f.model_type == model_type) return &f;
  return nullptr;
}

const ProcessorClass* class_of(std::string_view name) {
  for (const ProcessorClass& c : kClasses)
    if (c.name == name) return &c;
  return nullptr;
}

ImageProcess defaults_of(const ProcessorClass& c) {
  ImageProcess p;
  p.type = c.name;
  p.height = p.width = c.side;
  p.shortest_edge = c.shortest;
  p.resample = c.resample;
  p.center_crop = c.crop > 0;
  p.crop_height = p.crop_width = c.crop;
  p.mean = c.mean, p.std = c.std;
  p.convert_rgb = c.convert_rgb;
  p.rescale_first = c.rescale_first;
  return p;
}

// Fields of one object; null is as good as absent.
class ProcessFields {
 public:
  ProcessFields(const Json& json, const std::string& where) : json_(json), where_(where) {
    if (!json.is_object())
      fail(where, ": is ", json.type_name(), " instead of an object with the fields of an ",
           "image processor");
  }
  const Json* find(std::string_view key) const {
    const Json* value = json_.find(key);
    return value && !value->is_null() ? value : nullptr;
  }
  template <class... Parts>
  [[noreturn]] void refuse(std::string_view key, const Parts&... parts) const {
    fail(where_, ": '", key, "' ", parts...);
  }
  void read(std::string_view key, bool& out) const {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_bool()) refuse(key, "is ", value->type_name(), " instead of true or false");
    out = value->boolean();
  }
  Dim side(std::string_view key, const Json& value) const {
    if (!value.is_integer()) refuse(key, "is ", value.type_name(), " instead of a whole number of pixels");
    const Dim n = value.integer();
    if (n < 1 || n > kMostModelSide)
      refuse(key, "is ", n, " pixels; 1 to ", with_commas(kMostModelSide), " are possible");
    return n;
  }
  // A number, a pair or an object with both; {0, 0} where it is something else.
  std::pair<Dim, Dim> rectangle(std::string_view key, const Json& value) const {
    if (value.is_number()) return {side(key, value), side(key, value)};
    if (value.is_array()) {
      if (value.array().size() != 2) refuse(key, "has ", value.array().size(), " numbers instead of two");
      return {side(key, value.array()[0]), side(key, value.array()[1])};
    }
    if (!value.is_object()) refuse(key, "is ", value.type_name(), " instead of a size");
    const Json *height = value.find("height"), *width = value.find("width");
    if (!height || !width || value.object().size() != 2) return {0, 0};
    return {side(concat(key, ".height"), *height), side(concat(key, ".width"), *width)};
  }
  double number(std::string_view key, const Json& value) const {
    if (!value.is_number() || !std::isfinite(value.number()))
      refuse(key, "is ", value.is_number() ? "not finite" : value.type_name(), " instead of a number");
    if (std::abs(value.number()) > 1e6) refuse(key, "is ", shortest(value.number()), ", beyond a million");
    return value.number();
  }
  void read(std::string_view key, Channels& out) const {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_array()) {
      out.fill(number(key, *value));
      return;
    }
    if (value->array().size() != 3)
      refuse(key, "has ", value->array().size(), " numbers instead of three (red, green, blue)");
    for (std::size_t c = 0; c < 3; ++c) out[c] = number(key, value->array()[c]);
  }

 private:
  const Json& json_;
  const std::string& where_;
};

std::string text_field(const ProcessFields& fields, std::string_view key) {
  const Json* value = fields.find(key);
  if (!value) return "";
  if (!value->is_string()) fields.refuse(key, "is ", value->type_name(), " instead of a name");
  return value->string();
}

const ProcessorClass& find_class(const ProcessFields& fields, std::string_view model_type) {
  std::string_view key = "image_processor_type";
  std::string name = text_field(fields, key);
  if (name.empty()) {  // before transformers 4.26
    key = "feature_extractor_type";
    name = text_field(fields, key);
  }
  if (name.ends_with("FeatureExtractor"))
    name.replace(name.size() - std::string_view("FeatureExtractor").size(), std::string::npos,
                 "ImageProcessor");
  if (name.empty()) {
    const Family* family = family_of(model_type);
    if (!family)
      fields.refuse("image_processor_type", "is missing, and none is known for the model type '", model_type,
                    "': name the class there");
    name = family->type;
  }
  for (const std::string_view ending : {"Fast", "Pil"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  if (const ProcessorClass* c = class_of(name)) return *c;
  std::vector<std::string> known;
  for (const ProcessorClass& c : kClasses) known.emplace_back(c.name);
  fields.refuse(key, "is ", quote_name(name), ", which is not known; ", name_hint(name, known));
}

void read_size(const ProcessFields& fields, const ProcessorClass& c, ImageProcess& p) {
  const Json* value = fields.find("size");
  if (!value) return;
  p.height = p.width = p.shortest_edge = 0;
  const Json* shortest_edge = value->find("shortest_edge");
  if (value->is_number() && !c.int_is_square) {
    p.shortest_edge = fields.side("size", *value);
  } else if (shortest_edge && value->object().size() == 1) {
    p.shortest_edge = fields.side("size.shortest_edge", *shortest_edge);
  } else {
    std::tie(p.height, p.width) = fields.rectangle("size", *value);
    if (p.height == 0)
      fields.refuse("size", "must have height and width, or shortest_edge, and nothing else");
  }
}

void read_crop(const ProcessFields& fields, ImageProcess& p) {
  if (const Json* value = fields.find("crop_size")) {
    std::tie(p.crop_height, p.crop_width) = fields.rectangle("crop_size", *value);
    if (p.crop_height == 0) fields.refuse("crop_size", "must have height and width and nothing else");
  }
  if (p.center_crop && p.crop_height == 0)
    fields.refuse("do_center_crop", "is true, but there is no crop_size");
}

void read_resample(const ProcessFields& fields, ImageProcess& p) {
  const Json* value = fields.find("resample");
  if (!value) return;
  if (!value->is_integer() || value->integer() < 0 || value->integer() > 5)
    fields.refuse("resample", "is ",
                  value->is_integer() ? std::to_string(value->integer()) : value->type_name(),
                  "; known: 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming");
  p.resample = static_cast<Resample>(value->integer());
}

}  // namespace

ImageProcess parse_image_process(const Json& json, const std::string& where, std::string_view model_type) {
  const ProcessFields fields(json, where);
  const ProcessorClass& c = find_class(fields, model_type);
  ImageProcess p = defaults_of(c);
  fields.read("do_resize", p.resize);
  fields.read("do_center_crop", p.center_crop);
  fields.read("do_rescale", p.rescale);
  fields.read("do_normalize", p.normalize);
  fields.read("do_convert_rgb", p.convert_rgb);
  bool pad = false;
  fields.read("do_pad", pad);
  if (pad) fields.refuse("do_pad", "is true: padding pictures of a batch to one size is not done");
  read_size(fields, c, p);
  read_crop(fields, p);
  read_resample(fields, p);
  if (p.rescale_first && p.center_crop)
    fields.refuse("do_center_crop", "is true, which is not known of a ", p.type);
  if (p.rescale_first && p.resample != Resample::bilinear && p.resample != Resample::bicubic)
    fields.refuse("resample", "is ", static_cast<int>(p.resample), "; a ", p.type, " knows 2 and 3");
  if (const Json* value = fields.find("rescale_factor"))
    p.rescale_factor = fields.number("rescale_factor", *value);
  fields.read("image_mean", p.mean);
  fields.read("image_std", p.std);
  for (const double s : p.std)
    if (p.normalize && !(s > 1e-6))
      fields.refuse("image_std", "is ", shortest(s), ", which divides every pixel");
  return p;
}

std::optional<ImageProcess> usual_image_process(std::string_view model_type, Dim image_size) {
  const Family* family = family_of(model_type);
  if (!family) return std::nullopt;
  ImageProcess p = defaults_of(*class_of(family->type));
  if (family->image_net) p.mean = kImageNetMean, p.std = kImageNetStd;
  // DINOv2 takes any size: its files crop to 224 although it was trained at 518.
  const bool any_size = family->type == "BitImageProcessor";
  const Dim side = image_size <= 0 ? 224 : any_size ? std::min<Dim>(image_size, 224) : image_size;
  if (side > kMostModelSide)
    fail("image_size is ", side, " in config.json; models of at most ", kMostModelSide, " are read");
  const Dim larger = side * 256 / 224;  // what DeiT and DINOv2 resize to before the crop
  if (p.center_crop) p.crop_height = p.crop_width = side;
  if (p.shortest_edge > 0) p.shortest_edge = any_size ? larger : side;
  else p.height = p.width = p.center_crop ? larger : side;
  return p;
}

ImageProcess read_image_process(const std::string& folder, std::string_view model_type, Dim image_size) {
  const auto read = [&](const std::string& name) -> std::optional<Json> {
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return std::nullopt;
    check_link(folder, path);
    return parse_json(read_text_file(path, std::uint64_t{1} << 20), path);
  };
  const std::string nested = "processor_config.json", plain = "preprocessor_config.json";
  const auto path = [&](const std::string& name) { return (std::filesystem::path(folder) / name).string(); };
  if (const auto json = read(nested))
    if (const Json* inside = json->find("image_processor"))
      return parse_image_process(*inside, path(nested) + ": image_processor", model_type);
  if (const auto json = read(plain)) return parse_image_process(*json, path(plain), model_type);
  if (auto usual = usual_image_process(model_type, image_size)) return *std::move(usual);
  fail(folder, ": has no ", plain, ", and how pictures are prepared for the model type '", model_type,
       "' is not known: copy the file from where the model came from");
}

}  // namespace rapt
