// SPDX-License-Identifier: Apache-2.0
// Passes of as many pictures as make a few thousand rows; cosines and probabilities in double.
#include "rapt/use/read_pictures.h"

#include <algorithm>
#include <cmath>

#include "rapt/nn/patches.h"
#include "rapt/use/generate.h"

namespace rapt {
namespace {

constexpr Dim kRows = 2048;  // of a pass, at most, unless one picture has more

void check_reads_pictures(const Checkpoint& c, const char* verb) {
  const Recipe& r = c.model->recipe;
  if (r.embed.patches) return;
  fail(verb, ": ", c.path, " (", c.family, ") reads ", r.vocab > 0 ? "texts" : "vectors", ", not pictures",
       c.logit_scale && r.vocab > 0 ? concat("; its other half does: ", c.path, ":vision") : "");
}

void check_numbers(std::span<const float> values, const char* verb) {
  for (const float x : values)
    if (!std::isfinite(x))
      fail(verb,
           ": the model computed something that is no number (damaged weights, pixels that are none, or "
           "numbers beyond the range of its types)");
}

void normalize_row(std::vector<float>& row) {
  double squares = 0;
  for (const float x : row) squares += static_cast<double>(x) * static_cast<double>(x);
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (float& x : row) x = static_cast<float>(static_cast<double>(x) / length);
}

// The rows of one picture's hidden states that stand for it.
std::vector<float> pooled_picture(const Recipe& r, Pool how, std::span<const float> hidden) {
  const auto C = static_cast<std::size_t>(r.width), rows = hidden.size() / C;
  const std::size_t from = how == Pool::mean    ? static_cast<std::size_t>(r.embed.patches->before())
                           : how == Pool::first ? 0
                                                : rows - 1,
                    to = how == Pool::first ? 1 : rows;
  std::vector<float> out;
  for (std::size_t c = 0; c < C; ++c) {
    double sum = 0;
    for (std::size_t row = from; row < to; ++row) sum += static_cast<double>(hidden[row * C + c]);
    out.push_back(static_cast<float>(sum / static_cast<double>(to - from)));
  }
  return out;
}

}  // namespace

std::vector<std::vector<float>> read_pictures(Device& device, const Checkpoint& checkpoint,
                                              std::span<const Picture> pictures, const char* verb,
                                              bool hidden, const ReadProgress& progress) {
  check_reads_pictures(checkpoint, verb);
  const Model& model = *checkpoint.model;
  const bool one_row = model.recipe.head.pools() && !hidden;
  std::vector<std::vector<float>> out;
  Run run(device);
  for (std::size_t at = 0; at < pictures.size();) {
    std::size_t end = at;
    Dim rows = 0;
    for (; end < pictures.size(); ++end) {
      const PatchGrid grid =
          patch_grid(*model.recipe.embed.patches, pictures[end].height, pictures[end].width);
      if (end > at && rows + grid.patches() > kRows) break;
      rows += grid.patches();
    }
    run.reset();
    Batch batch = picture_batch(model.recipe, pictures.subspan(at, end - at));
    batch.want.hidden = hidden;
    for (Sequence& s : batch.sequences) s.adapters = checkpoint.adapters;
    const Tensor y = forward(run, model, batch);
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      const Sequence& s = batch.sequences[i];
      const Dim first = one_row ? static_cast<Dim>(i) : s.first, count = one_row ? 1 : s.count;
      std::vector<float>& values = out.emplace_back();
      for (Dim k = first * y.last(); k < (first + count) * y.last(); ++k)
        values.push_back(static_cast<float>(y.at(k)));
    }
    at = end;
    if (progress) progress(static_cast<Dim>(at), static_cast<Dim>(pictures.size()));
  }
  return out;
}

std::vector<std::vector<float>> embed_pictures(Device& device, const Checkpoint& checkpoint,
                                               std::span<const Picture> pictures, std::optional<Pool> pool,
                                               bool normalize, const ReadProgress& progress) {
  check_reads_pictures(checkpoint, "embed");
  const Recipe& r = checkpoint.model->recipe;
  const bool own = r.head.kind == HeadRecipe::Kind::vector && !pool;
  const Pool how = pool ? *pool : r.embed.patches->cls ? Pool::first : Pool::mean;
  if (!own && how != Pool::first && how != Pool::mean && how != Pool::last)
    fail_usage("embed: a picture's rows are pooled as first, mean or last");
  std::vector<std::vector<float>> out = read_pictures(device, checkpoint, pictures, "embed", !own, progress);
  for (std::vector<float>& row : out) {
    if (!own) row = pooled_picture(r, how, row);
    check_numbers(row, "embed");
    if (normalize) normalize_row(row);
  }
  return out;
}

std::vector<std::vector<float>> classify_pictures(Device& device, const Checkpoint& checkpoint,
                                                  std::span<const Picture> pictures,
                                                  const ReadProgress& progress) {
  check_reads_pictures(checkpoint, "classify");
  if (checkpoint.model->recipe.head.kind != HeadRecipe::Kind::classes)
    fail("classify: ", checkpoint.path, " (", checkpoint.family,
         ") is no classifier: its result is no class");
  std::vector<std::vector<float>> out =
      read_pictures(device, checkpoint, pictures, "classify", false, progress);
  for (std::vector<float>& row : out) {
    check_numbers(row, "classify");
    const double top = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x) - top);
    for (float& x : row) x = static_cast<float>(std::exp(static_cast<double>(x) - top) / sum);
  }
  return out;
}

PictureTextMatch match_vectors(const Checkpoint& vision, std::span<const std::vector<float>> pictures,
                               std::span<const std::vector<float>> texts) {
  if (!vision.logit_scale)
    fail(vision.path, " (", vision.family,
         ") does not say how pictures and texts are compared (logit_scale); CLIP and SigLIP do");
  PictureTextMatch out;
  const auto length = [](std::span<const float> v) {
    double squares = 0;
    for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
    return std::max(std::sqrt(squares), 1e-12);
  };
  for (const std::vector<float>& picture : pictures) {
    std::vector<double> logits;
    for (const std::vector<float>& text : texts) {
      if (text.size() != picture.size())
        fail(vision.path, ": vectors of pictures have ", picture.size(), " numbers, of texts ", text.size(),
             "; the two halves do not belong together");
      double dot = 0;
      for (std::size_t i = 0; i < text.size(); ++i)
        dot += static_cast<double>(picture[i]) * static_cast<double>(text[i]);
      logits.push_back(std::exp(*vision.logit_scale) * dot / (length(picture) * length(text)) +
                       vision.logit_bias.value_or(0));
    }
    std::vector<float>&row = out.logits.emplace_back(), &shares = out.probabilities.emplace_back();
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double x : logits) sum += std::exp(x - top);
    for (const double x : logits) {
      row.push_back(static_cast<float>(x));
      shares.push_back(
          static_cast<float>(vision.logit_bias ? 1 / (1 + std::exp(-x)) : std::exp(x - top) / sum));
    }
  }
  return out;
}

PictureTextMatch match_pictures(Device& device, const Checkpoint& vision, const Checkpoint& text,
                                std::span<const Picture> pictures, std::span<const std::string> texts,
                                const ReadProgress& progress) {
  if (texts.empty()) fail_usage("match: no texts to compare the pictures with");
  Dim cut = 0;
  const auto words = embed_texts(device, text, texts, std::nullopt, false, {}, &cut);
  const auto seen = embed_pictures(device, vision, pictures, std::nullopt, false, progress);
  PictureTextMatch out = match_vectors(vision, seen, words);
  out.cut = cut;
  return out;
}

}  // namespace rapt
