// SPDX-License-Identifier: Apache-2.0
// What a pass computes, by name: any tensor, the weights of any head, what the model would say after each
// layer; and changes of a pass. The model is looked at as it runs: fused, quantized, with its own masks.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rapt/api/model.h"

namespace rapt::RAPT_FACE {

struct LookOptions {
  std::vector<Token> source{};  // of a translating model: what its encoder reads
  // Of this pass: "L5H3:zero", "resid_post.8@-1:scale=0.5" (docs/edits.md).
  std::vector<std::string> edits{};
};

// A name that this model has; L stands for its layers.
struct PointInfo {
  std::string name;              // "resid_post.L"
  std::string transformer_lens;  // "blocks.L.hook_resid_post", or ""
  std::string shape;             // "[T,64]"
  int layers = 0;                // that have it; 0: it belongs to the whole model
  bool editable = false;
};
RAPT_API std::vector<PointInfo> points(const Model& model);

// Tensors of one pass, in the order asked: "resid_post.*", "attn_weights.0", "logits"; TransformerLens's
// names work too. A * gives one for each layer. Fails with the reason where the model has no such point,
// where an edit touches nothing, or where they take over `most_bytes`.
RAPT_API std::vector<Tensor> capture(const Model& model, const std::vector<std::string>& points,
                                     std::span<const Token> tokens, const LookOptions& options = {},
                                     double most_bytes = 1024.0 * 1024 * 1024);

// One head: an attention's layer, and whether it is the cross-attention of a decoder.
struct HeadPlace {
  int layer = 0, head = 0;
  bool encoder = false;  // of a model that has both: its encoder's
  bool cross = false;
  int number = 0;  // which of a layer's attentions of that kind, from 1; 0: the only one
};
// The weights of a head [rows, keys], over the tokens of the text (learned sinks before it are left out).
RAPT_API Tensor attention(const Model& model, const HeadPlace& place, std::span<const Token> tokens,
                          const LookOptions& options = {});

// What each head does on a text: mean weights over its rows.
struct HeadInfo {
  HeadPlace place;
  // On the first token, on itself, on the one before, after earlier occurrences.
  double first = 0, self = 0, previous = 0, induction = 0;
  double entropy = 0, distance = 0;  // nats; tokens
  std::string label;  // "previous token 0.92"; "" where nothing stands out
};
RAPT_API std::vector<HeadInfo> heads(const Model& model, std::span<const Token> tokens,
                                     const LookOptions& options = {});

// Final norm and output matrix applied after every layer: row 0 is the embedding, row l + 1 comes after
// layer l, the last is the answer.
struct Lens {
  int rows = 0, top = 0;
  std::int64_t tokens = 0;
  std::vector<Token> ids;  // [rows][tokens][top], most probable first
  std::vector<float> probabilities;  // the same
  std::vector<float> entropy;  // [rows][tokens], nats
  Token best(int row, std::int64_t token) const {
    return ids[static_cast<std::size_t>((row * tokens + token) * top)];
  }
};
RAPT_API Lens lens(const Model& model, std::span<const Token> tokens, int top = 1,
                   std::span<const Token> source = {});

}  // namespace rapt::RAPT_FACE
