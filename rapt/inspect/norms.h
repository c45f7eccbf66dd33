// SPDX-License-Identifier: Apache-2.0
// How long the vectors are: the residual stream token by token, what each part adds to it, and q, k, v of
// every head, the first token apart from the others (a sink has a small value and often a small key: papers
// show it is the angle, not the length, that makes one).
#pragma once
#include <map>
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct NormGrid {  // of one stack
  Stack stack = Stack::decoder;
  Dim tokens = 0;
  int rows = 0;                       // layers + 1
  std::vector<float> residual;        // [rows][tokens]: L2
  // [layers][tokens]: of what self-attention adds, and what all parts that are no attention add (two of a
  // kind: together), after their own norm and residual scale; 0 where a layer has no such part.
  std::vector<float> attn_out, ffn_out;
  std::vector<float> cross_out;  // of cross-attention; empty where there is none
};

struct HeadNorm {  // self-attention; mean L2 over tokens
  enum class Of { q, k, v } of = Of::q;
  Stack stack = Stack::decoder;
  int layer = 0, number = 0, head = 0;  // number: of the attention in its layer (AttentionPlace)
  // The text's first token, and all others (of a text of one token: that one).
  double first = 0, others = 0;
};

struct Norms {
  std::vector<NormGrid> grids;  // encoder first
  std::vector<HeadNorm> heads;  // by layer, q k v, head
};

// The grids alone, of a pass that is somebody else's: the text may come in pieces, one after the other, every
// row once. Must outlive the pass.
class NormReader {
 public:
  NormReader(Taps& taps, const Model& model);
  NormReader(const NormReader&) = delete;
  NormReader& operator=(const NormReader&) = delete;
  std::vector<NormGrid> grids() const;

 private:
  enum Of { residual, attn_out, ffn_out, cross_out };
  using Line = std::vector<float>;  // [tokens]
  const Model& model_;
  std::map<Stack, std::map<std::pair<Of, int>, Line>> lines_;  // by row or layer
  std::map<Of, std::vector<double>> added_;  // of parts that share a grid: what those before have added
};

// `edits`: of the same pass.
Norms norms(Device& device, const Model& model, Ids ids, Ids source = {}, const Taps* edits = nullptr);

}  // namespace rapt
