// SPDX-License-Identifier: Apache-2.0
// Names of what a pass computes. A point is one tensor of one layer; ours are written name.layer, and the
// names of TransformerLens (both the old ones and those of its Bridge), their short forms, and those of
// nnterp and of ggml's graphs mean the same tensors. A name that does not exist in this model, that the
// engine does not hold, or that means two things is refused with the reason: a plausible wrong tensor is the
// worst answer.
//
//   name  = [stack "."] own ["." layer ["." number]] z.5  resid_post.-1  attn_weights.*  final_norm
//                                                                        encoder.q.0  z.5.2
//         | block "." layer "." hook              blocks.5.attn.hook_pattern  decoder.2.cross_attn.hook_z
//         | hook | short layer ["ln" n]           hook_embed  unembed.hook_out  k6  pattern0  normalized4ln2
//         | nnterp ["[" layer "]"] | ggml ["-" layer]  layers_output[5]  token_embeddings  l_out-5
//                                                                        result_norm
//   layer = number | "-" number (from the end) | "*" (all that have it)
//   number: which of the parts of one kind in that layer, from 1; needed where there are several
//   stack = "encoder" | "decoder": needed where a model has both
//   block = "blocks" | stack | stack "_blocks"
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/nn/model.h"

namespace rapt {

struct Point {
  // (TransformerLens calls normalized and norm_scale hook_normalized and hook_scale)
  using Kind = PointKind;
  // In the place of a size.
  // Rows of the stack, learned sink tokens included; of the source (cross-attention).
  static constexpr Dim kRows = -1, kKeys = -2;
  static constexpr Dim kResults = -3;  // tokens

  std::string name;  // ours: "z.5", "encoder.resid_post.0"
  Kind kind = Kind::value;
  Site site{"embed"};
  Stack stack = Stack::decoder;
  int layer = -1, part = -1;  // -1: of the whole stack; of whichever part shows it
  std::vector<Dim> shape;
  std::string fixed;  // why it cannot be edited; empty: it can
  const Attention* attention = nullptr;  // the attention it belongs to, if one
  const NormLayer* norm = nullptr;  // normalized, norm_scale: which norm
  bool heads() const { return kind == Kind::value && shape.size() == 3; }
};

// Every point of a name, one or, with a *, many. Fails (a usage error) with the reason and what there is
// instead.
std::vector<Point> find_points(const Model& model, std::string_view name);
// One line for every point that this model has: our name with ".L" for its layers, TransformerLens's name
// (or ""), one of its points.
struct PointLine {
  std::string name, lens;
  Point example;
  int first = -1, layers = 0;  // the first layer that has it, how many have it
};
std::vector<PointLine> list_points(const Model& model);
// What else finds each of these lines: TransformerLens's names, old ones and those of its Bridge, nnterp's
// and ggml's, with an L for the layer.
std::vector<std::vector<std::string>> other_names(const Model& model, std::span<const PointLine> lines);

// Sizes of a point for a text of `rows` tokens (`source`: of the encoder's text, in an encoder-decoder).
std::vector<Dim> point_shape(const Model& model, const Point& point, Dim rows, Dim source);
std::string shape_text(const Point& point);  // "[T,4,64]"

// Whether something that was shown is this point.
bool is_at(const Tapped& t, const Point& point);

}  // namespace rapt
