// SPDX-License-Identifier: Apache-2.0
// Models that read pictures: vectors of them, their classes, and how well texts describe them (CLIP, SigLIP).
// Pictures come as the model wants them: float [channels, height, width], scaled and normalised
// (rapt/image). No picture's result depends on its neighbours.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/use/read_texts.h"

namespace rapt {

// What the model's head gives for each picture, several in one pass: logits of a classifier [classes], a
// vector, or [rows * width] hidden states, row by row, where there is no head or `hidden` is asked for.
// `verb` begins messages.
std::vector<std::vector<float>> read_pictures(Device& device, const Checkpoint& checkpoint,
                                              std::span<const Picture> pictures, const char* verb,
                                              bool hidden = false, const ReadProgress& progress = {});

// One vector for each picture: the model's own (CLIP's projection, SigLIP's pooled row, ViT's pooler), else
// the row of cls, else the mean of the patches. `pool`: that of the hidden states instead. Of length 1 where
// `normalize`.
std::vector<std::vector<float>> embed_pictures(Device& device, const Checkpoint& checkpoint,
                                               std::span<const Picture> pictures,
                                               std::optional<Pool> pool = {}, bool normalize = false,
                                               const ReadProgress& progress = {});

// Probabilities [pictures][classes] of a classifier, as classify_texts().
std::vector<std::vector<float>> classify_pictures(Device& device, const Checkpoint& checkpoint,
                                                  std::span<const Picture> pictures,
                                                  const ReadProgress& progress = {});

// How well each text describes each picture. Both towers are opened from one folder (LoadOptions::tower).
struct PictureTextMatch {
  std::vector<std::vector<float>> logits;         // [pictures][texts]: e^scale * cosine (+ bias)
  std::vector<std::vector<float>> probabilities;  // a softmax over the texts (CLIP), or a logistic of each (SigLIP)
  Dim cut = 0;  // texts that are longer than the model reads
};
PictureTextMatch match_pictures(Device& device, const Checkpoint& vision, const Checkpoint& text,
                                std::span<const Picture> pictures, std::span<const std::string> texts,
                                const ReadProgress& progress = {});
// The same from vectors of any length: what both towers gave.
PictureTextMatch match_vectors(const Checkpoint& vision, std::span<const std::vector<float>> pictures,
                               std::span<const std::vector<float>> texts);

}  // namespace rapt
