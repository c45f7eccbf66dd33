// SPDX-License-Identifier: Apache-2.0
// Files of pictures for a model.
#include "rapt/use/picture_files.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "rapt/io/folder.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kAtOnce = 16;  // 9 MiB of pixels at 224 x 224

bool is_picture_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// "model_type" of config.json, which names the family as transformers does; "" where there is none.
std::string model_type_of(const Checkpoint& checkpoint) {
  const std::string path = (fs::path(checkpoint.path) / "config.json").string();
  std::error_code ignored;
  if (checkpoint.format != "folder" || !fs::exists(path, ignored)) return "";
  const Json config = parse_json(read_text_file(path), path);
  const Json* type = config.find("model_type");
  return type && type->is_string() ? std::string(type->string()) : "";
}

}  // namespace

ImageProcess image_process_of(const Checkpoint& checkpoint, const char* verb) {
  const Recipe& r = checkpoint.model->recipe;
  if (!r.embed.patches)
    fail_usage(verb, ": ", checkpoint.path, " (", checkpoint.family, ") reads ",
               r.vocab > 0 ? "texts" : "vectors", ", not pictures: leave --image away");
  const PatchRecipe& p = *r.embed.patches;
  if (p.channels != 3)
    fail(verb, ": ", checkpoint.path, " reads pictures of ", p.channels,
         " channels; files have three (red, green, blue). `rapt logits --pixels` takes others");
  if (!checkpoint.preprocessor.empty()) {  // written by us, perhaps: with the family it comes from
    const Json how = parse_json(checkpoint.preprocessor, checkpoint.path);
    const Json* family = how.find("model_type");
    const std::string type = family && family->is_string() ? std::string(family->string()) : "";
    if (!type.empty() && how.object().size() == 1)
      if (const auto usual = usual_image_process(type, p.rows * p.size)) return *usual;
    if (!type.empty() || checkpoint.format == "gguf") return parse_image_process(how, checkpoint.path, type);
  }
  return read_image_process(checkpoint.path, model_type_of(checkpoint), p.rows * p.size);
}

std::vector<std::string> picture_paths(std::span<const std::string> names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    std::error_code error;
    if (!fs::is_directory(name, error)) {
      out.push_back(name);
      continue;
    }
    const std::size_t before = out.size();
    for (const fs::path& path : paths_in(name, error))
      if (is_picture_name(path)) out.push_back(path.string());
    if (error) fail(name, ": the folder cannot be read: ", error.message());
    if (out.size() == before)
      fail(name, ": this folder has no pictures (files that end in .png, .jpg or .jpeg)");
  }
  return out;
}

void read_picture_files(const ImageProcess& process, std::span<const std::string> paths,
                        const TakePictures& take) {
  for (std::size_t first = 0; first < paths.size(); first += kAtOnce) {
    std::vector<PreparedImage> images;
    std::vector<Picture> pictures;
    std::exception_ptr unreadable;  // those before it are not lost
    try {
      for (const std::string& path : paths.subspan(first, std::min(kAtOnce, paths.size() - first)))
        images.push_back(read_prepared_image(process, path));
    } catch (const Error&) {
      unreadable = std::current_exception();
    }
    for (const PreparedImage& image : images) pictures.push_back({image.pixels, image.height, image.width});
    if (!pictures.empty()) take(first, pictures);
    if (unreadable) std::rethrow_exception(unreadable);
  }
}

}  // namespace rapt
