// SPDX-License-Identifier: Apache-2.0
// What a kind of part is to the stack around it. Each has a header beside this one, with a struct Y of its
// weights, built from its recipe X (recipe/parts/part.h), and
//   build_shared(builder, x)                 weights that the parts of a stack share, made before its layers
//   build(builder, x) -> Y                   its own weights, some with a starting value (weight_table.h)
//   cached_keys(y) -> optional<CachedKeys>   what a pool of pages keeps of every token for it (kv_pool.h)
//   cached_chunks(y) -> optional<CachedChunks>  … and of the last chunk of tokens, with a state (kv_pool.h)
//   prepare(run, pass, y)                    what it will ask of the pass, before the first layer
//   run_part(run, y, input, pass, sum)       the forward, [T,C] -> [T,C]
//   part_points(Of<Y>), axis_size(y, axis)   what can be seen inside, by name; STEM_in, STEM_normalized and
//                                            STEM_norm_scale among them (PartName::stem)
//   cost(y, context) -> PartCost             operations and what the cache keeps
// and its place in AnyPart (nn/layers.h), the same as in AnyPartRecipe. Whoever asks does so through
// std::visit: a kind that lacks one of these does not compile.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "rapt/nn/basic_layers.h"
#include "rapt/nn/pass.h"
#include "rapt/recipe/recipe.h"
#include "rapt/run/run.h"

namespace rapt {

// Carried from part to part while a stack is built.
struct PartBuilder {
  WeightTable& table;
  const Recipe& recipe;
  std::string stack;  // "decoder"
  std::string name = {};  // of the part being built: "decoder.3.self"
  int slots = 0;  // of the cache, given out so far
  const Weight* shared_buckets = nullptr;  // of distances, one table for the stack
  const Weight* shared_relative = nullptr;  // vectors of distances, likewise, and their norm
  std::optional<NormLayer> shared_relative_norm = {};
};

// The sum that a part's result goes into: residual + scale * result. A part whose last step is one product
// may form it there.
struct Sum {
  const Tensor& residual;
  double scale = 1;
  bool open = false;  // nothing stands between the result and the sum, and nobody looks at the result
  bool done = false;  // the part has formed it
};
// The last product of a part, with the sum where that may be. Observers of the product, at `site`, get it
// apart, computed by the same chain of additions: the same bits.
Tensor last_product(Run& run, const LinearLayer& last, const Tensor& x, Sum& sum, Site site);

// What a part keeps of every token between passes. Parts of equal shape and mask share their pages.
struct CachedKeys {
  int slot;  // the part's number among those of the stack that keep something
  Dim kv_heads, head_dim, v_dim;
  Mask mask;
  bool cross;  // of the memory's rows instead of the text's tokens
  // Keys are made with a bias and then turned by this, with nothing else in between: a pool in blocks may
  // keep them without it (run/kv_view.h). nullptr: not so.
  const RopeSpec* bias_under = nullptr;
  bool values_in_keys = false;  // a value is the first v_dim channels of its key
};

// What a part with a state keeps between passes: numbers of every row of the present chunk of kPageKeys rows
// and of the one before, and a state at the end of a chunk.
struct CachedChunks {
  int slot;
  Dim inputs;  // numbers of a row that a convolution reads again: they come first in a page, [64][inputs]
  Dim row_values;  // numbers of a row, with these
  Dim state_values;  // 0: there is no state, rows are all that is needed
};

// A key for random numbers inside a part; use 0 is the dropout of its result.
inline std::uint64_t random_site(const Run& run, int use) {
  return static_cast<std::uint64_t>(run.part) * 8 + static_cast<std::uint64_t>(use);
}

// Per token, of one part.
struct PartCost {
  double matrices = 0;  // floating-point operations in matrices
  double source = 0;  // … of those, for each row of the memory instead
  double attention = 0;  // … in scores and weighted sums, where a token sees `context` tokens
  Dim kv_values = 0;  // numbers that the cache keeps for it
  Dim kv_forgotten = 0;  // … of which sooner or later forgotten
  Dim memory_values = 0;  // numbers kept per row of the memory
  Dim state_values = 0;  // numbers kept per sequence, whatever its length
  Dim idle = 0;  // parameters that a token does not use: experts that it did not choose
};
inline double operations(const Weight* w) { return w ? 2 * static_cast<double>(w->size()) : 0; }

// Something inside a part that can be asked for by name (inspect/sites.h).
enum class PointKind {
  value,  // a tensor that passes by
  weights,
  scores,  // [H,T,keys], computed row by row on request
  normalized,
  norm_scale,  // of the norm whose input passes by, before its gain: (x - mean) / scale, and scale
};
template <class Y>
struct PartPoint {
  const char* name;  // ours, without prefix and layer
  Site site;
  // T rows, S rows that are looked at, C width, 1; the rest are the part's own: axis_size
  const char* axes;
  const char* hooks;  // TransformerLens's names inside a block, the usual one first
  std::string (*absent)(const Y&) = nullptr;  // why this part has none; "" where it has
  PointKind kind = PointKind::value;
  const char* fixed = "";  // why it cannot be edited
};
inline constexpr const char* kComputedBeside = "it is computed beside the pass; edit what it is made of";

}  // namespace rapt
