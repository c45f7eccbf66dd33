// SPDX-License-Identifier: Apache-2.0
// Pictures with a class each: a folder that has one folder of PNG and JPEG files for every class. Of each
// class the last files are held out, unless another such folder is named.
#include <algorithm>
#include <filesystem>

#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/folder.h"
#include "rapt/io/fs.h"
#include "rapt/use/data_parts.h"
#include "rapt/use/picture_files.h"

namespace rapt::data {
namespace {

namespace fs = std::filesystem;

struct LabelledFile {
  std::string path;
  std::int32_t label;
};

struct PictureFolder {
  std::vector<std::string> classes;
  std::vector<std::vector<std::string>> files;  // of each class, by name
};

PictureFolder list_folder(const std::string& path) {
  std::error_code error;
  PictureFolder out;
  std::vector<fs::path> inside = paths_in(path, error);
  if (error) fail(path, ": cannot be listed: ", error.message());
  std::sort(inside.begin(), inside.end());
  for (const fs::path& p : inside) {
    if (!fs::is_directory(p, error) || p.filename().string().starts_with('.')) continue;
    const std::string name = p.string();
    out.classes.push_back(p.filename().string());
    out.files.push_back(picture_paths({&name, 1}));
  }
  if (out.classes.size() < 2)
    fail(path, ": has ", counted(static_cast<Dim>(out.classes.size()), "folder"),
         " of pictures; a classifier learns from at least two, one for each class, named by it");
  return out;
}

class PictureData final : public TrainData {
 public:
  explicit PictureData(const DataOptions& o) : o_(o) {
    o_.progress = nullptr;
    if (o.objective != Objective::classification)
      fail_usage("data: pictures are learned with the objective classification, not ", name_of(o.objective));
    const PictureFolder folder = list_folder(o.path);
    class_names = folder.classes;
    classes = static_cast<Dim>(class_names.size());
    objective = Objective::classification;
    const bool apart = !o.held_out.empty();
    for (std::size_t c = 0; c < folder.classes.size(); ++c) {
      const auto n = static_cast<Dim>(folder.files[c].size());
      const Dim kept = apart ? 0 : static_cast<Dim>(o.share * static_cast<double>(n));
      for (Dim i = 0; i < n; ++i)
        (i < n - kept ? train_ : held_)
            .push_back({folder.files[c][static_cast<std::size_t>(i)], static_cast<std::int32_t>(c)});
    }
    if (apart) add_held_out(o.held_out);
    read_all(o.progress);
  }

  TrainBatch batch(std::uint64_t number) const override {
    const auto n = static_cast<std::uint64_t>(train_.size());
    TrainBatch out;
    for (Dim j = 0; j < o_.batch; ++j) {
      const std::uint64_t at = number * static_cast<std::uint64_t>(o_.batch) + static_cast<std::uint64_t>(j);
      const Permutation order(n, mix_key(key_of(o_.seed, kOrder), at / n));
      add(out, static_cast<std::size_t>(order(at % n)), train_, number);
    }
    return out;
  }

  Dim held_out() const override { return (static_cast<Dim>(held_.size()) + o_.batch - 1) / o_.batch; }

  TrainBatch held_out_batch(Dim number) const override {
    if (number < 0 || number >= held_out())
      fail("data: there is no held-out batch ", number, "; there are ", held_out());
    TrainBatch out;
    const auto end = std::min(static_cast<std::size_t>((number + 1) * o_.batch), held_.size());
    for (auto i = static_cast<std::size_t>(number * o_.batch); i < end; ++i)
      add(out, i, held_, kHeldOutName >> 20 | static_cast<std::uint64_t>(number));
    return out;
  }

  double epochs(std::uint64_t batches) const override {
    return static_cast<double>(batches) * static_cast<double>(o_.batch) / static_cast<double>(train_.size());
  }

  std::string about() const override {
    return concat(counted(static_cast<Dim>(train_.size()), "picture"), " of ", classes, " classes", ", ",
                  with_commas(static_cast<Dim>(held_.size())), " held out");
  }

 private:
  using Pixels = std::shared_ptr<const PreparedImage>;

  void add_held_out(const std::string& path) {
    const PictureFolder other = list_folder(path);
    for (std::size_t c = 0; c < other.classes.size(); ++c) {
      const auto found = std::find(class_names.begin(), class_names.end(), other.classes[c]);
      if (found == class_names.end())
        fail(path, ": class ", json_quote(other.classes[c]), " is not among those of ", o_.path);
      for (const std::string& file : other.files[c])
        held_.push_back({file, static_cast<std::int32_t>(found - class_names.begin())});
    }
  }

  // Every file once: what cannot be read is known before the first step. Kept where they are few enough.
  void read_all(const std::function<void(double done)>& progress) {
    constexpr std::uint64_t kMostKept = std::uint64_t{2} << 30;
    std::uint64_t bytes = 0;
    std::uint64_t id = mix_key(o_.seed, static_cast<std::uint64_t>(o_.batch));
    const double all = static_cast<double>(train_.size() + held_.size());
    for (auto* files : {&train_, &held_}) {
      std::vector<Pixels>& kept = files == &train_ ? train_pixels_ : held_pixels_;
      for (const LabelledFile& f : *files) {
        const Pixels p = read(f);
        id = mix_key(id, crc32(std::as_bytes(std::span(p->pixels))) + static_cast<std::uint64_t>(f.label));
        bytes += p->pixels.size() * sizeof(float);
        kept.push_back(bytes <= kMostKept ? p : nullptr);
        if (progress) progress(++read_ / all);
      }
    }
    identity = id;
  }

  Pixels read(const LabelledFile& f) const {
    return std::make_shared<const PreparedImage>(read_prepared_image(o_.pictures->process, f.path));
  }

  void add(TrainBatch& out, std::size_t i, const std::vector<LabelledFile>& files, std::uint64_t name) const {
    const Pixels& kept = (&files == &train_ ? train_pixels_ : held_pixels_)[i];
    const Pixels pixels = kept ? kept : read(files[i]);
    const PatchGrid grid = patch_grid(o_.pictures->patches, pixels->height, pixels->width);
    const Dim first = out.sequences.empty() ? 0 : out.sequences.back().first + out.sequences.back().count;
    out.sequences.push_back({.first = first,
                             .count = o_.pictures->patches.before() + grid.patches(),
                             .id = sequence_name(name, out.sequences.size())});
    out.pictures.push_back({pixels->pixels, pixels->height, pixels->width});
    out.held.push_back(pixels);
    out.targets.push_back(files[i].label);
    ++out.counted;
  }

  DataOptions o_;
  std::vector<LabelledFile> train_, held_;
  std::vector<Pixels> train_pixels_, held_pixels_;
  double read_ = 0;
};

}  // namespace

std::unique_ptr<TrainData> picture_data(const DataOptions& options) {
  return std::make_unique<PictureData>(options);
}

}  // namespace rapt::data
