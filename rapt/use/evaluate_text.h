// SPDX-License-Identifier: Apache-2.0
// A checkpoint measured on texts: loss and accuracy over a file, classes of labelled texts. (Perplexity by
// windows: generate.h.)
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/use/evaluate.h"

namespace rapt {

// What a model predicts of a text: the next token, hidden ones, or a translation.
Objective text_objective(const Model& model);

struct TextLossOptions {
  std::optional<Dim> context;  // tokens of a window; absent: the model's, at most 1,024
  Dim batches = 0;             // only the first so many; 0: all
  std::uint64_t seed = 0;      // of the masks of a text that is no packed file
  std::function<void(double done)> reading = {};
  std::function<void(Dim done, Dim of, const Evaluation& sofar)> progress = {};
};
struct TextLoss : DataEvaluation {
  Objective objective = Objective::causal;
  Dim context = 0, batches = 0;
  bool drawn = false;  // masks were drawn from the seed
  double seconds = 0;  // of computing
};
// `file`: a text, a packed file (its held-out part), or "source,target" of an encoder-decoder. Windows one
// after the other; each once. Fails where nothing counts.
TextLoss text_loss(Device& device, const Checkpoint& checkpoint, const std::string& file,
                   const TextLossOptions& options = {});

// A classifier on texts whose classes are known. said: what it says of each. `cut`: texts that are longer
// than it reads.
struct ClassEvaluation : Evaluation {
  std::vector<std::int32_t> said;
};
ClassEvaluation evaluate_classes(Device& device, const Checkpoint& checkpoint,
                                 std::span<const std::string> texts, std::span<const std::int32_t> classes,
                                 const std::function<void(Dim done, Dim of)>& progress = {},
                                 Dim* cut = nullptr);
// Names of all its classes: numbers where the files have none. Fails where the model is no classifier.
std::vector<std::string> class_names_of(const Checkpoint& checkpoint);

}  // namespace rapt
