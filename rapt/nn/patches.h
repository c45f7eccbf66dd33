// SPDX-License-Identifier: Apache-2.0
// Pictures as rows of a model (EmbedRecipe::patches): cls, distill, registers, then the patches, row by row.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "rapt/nn/basic_layers.h"
#include "rapt/nn/pass.h"
#include "rapt/recipe/recipe.h"
#include "rapt/run/batch.h"

namespace rapt {

struct PatchLayer {
  PatchRecipe recipe;
  LinearLayer product;  // [C, channels * size * size]: of channels, rows and columns of a patch
  const Weight *cls = nullptr, *distill = nullptr;  // [1,C]
  const Weight* registers = nullptr;                // [n,C]
  const Weight* positions = nullptr;                // [named + rows * columns, C]
};
PatchLayer build_patches(WeightTable& table, const Recipe& recipe);

// Whole patches of a picture; what is left at its right and bottom is not read. Fails where there is none.
struct PatchGrid {
  Dim rows = 0, columns = 0;
  Dim patches() const { return rows * columns; }
};
PatchGrid patch_grid(const PatchRecipe& p, Dim height, Dim width);
// Whole pictures side by side, one sequence for each, with ids from 0 on. The pixels must outlive the pass.
Batch picture_batch(const Recipe& recipe, std::span<const Picture> pictures);
// Where the rows of all pictures stand (Pass::places).
std::vector<Pass::Place> picture_places(const PatchRecipe& p, std::span<const Picture> pictures);
// What a row of a picture is to people: "cls", "distill", "register 0", "patch 3,4".
std::string row_name(const PatchRecipe& p, PatchGrid grid, Dim row);

// Patches as rows [n, channels * size * size] of all pictures, one after the other: a constant.
Tensor patch_rows(Run& run, const PatchRecipe& p, std::span<const Picture> pictures);
// Rows of all pictures, with positions [T,C].
Tensor embed_pictures(Run& run, const PatchLayer& layer, std::span<const Picture> pictures);

}  // namespace rapt
