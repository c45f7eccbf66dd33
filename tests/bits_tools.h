// SPDX-License-Identifier: Apache-2.0
// What the comparisons of bits share: a counter of memcmps, and small decoders to compare.
#pragma once
#include <cstring>
#include <vector>

#include "rapt/recipe/recipe.h"

namespace rapt::test {

struct Count {
  int compared = 0, different = 0;
  void compare(const std::vector<double>& a, const double* b) {
    ++compared;
    different += std::memcmp(a.data(), b, a.size() * sizeof(double)) != 0;
  }
  // Of one length, or different.
  void compare(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() == b.size()) return compare(a, b.data());
    ++compared;
    ++different;
  }
};

inline PartRecipe self(const AttnRecipe& a, const NormRecipe& n) { return {.norm_in = n, .body = a}; }
inline PartRecipe feed(const FfnRecipe& f, const NormRecipe& n) { return {.norm_in = n, .body = f}; }

// Two layers of attention and feed-forward.
inline Recipe small_decoder(const char* name, Dim width, const AttnRecipe& a, const FfnRecipe& f,
                            const NormRecipe& n) {
  Recipe r;
  r.name = name;
  r.width = width;
  r.vocab = 53;
  r.context = 2048;
  LayerRecipe layer;
  layer.parts = {self(a, n), feed(f, n)};
  r.decoder = StackRecipe{.layers = 2, .kinds = {{"L", layer}}, .final_norm = n};
  return r;
}

}  // namespace rapt::test
