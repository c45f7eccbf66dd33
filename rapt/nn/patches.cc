// SPDX-License-Identifier: Apache-2.0
// Pixels are gathered here, positions mixed; the product, the sums and their gradients are ops.
#include "rapt/nn/patches.h"

#include <algorithm>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/nn/sites.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/mix_rows.h"

namespace rapt {

PatchLayer build_patches(WeightTable& table, const Recipe& recipe) {
  const PatchRecipe& p = *recipe.embed.patches;
  const Dim C = recipe.width;
  PatchLayer out{.recipe = p};
  out.product = build_linear(table, "embed.patches", C, p.channels * p.size * p.size, p.bias);
  if (p.cls) out.cls = table.table("embed.cls", 1, C);
  if (p.distill) out.distill = table.table("embed.distill", 1, C);
  if (p.registers > 0) out.registers = table.table("embed.registers", p.registers, C);
  if (recipe.embed.pos == EmbedRecipe::Pos::learned)
    out.positions = table.table("embed.positions", p.positions(), C);
  return out;
}

constexpr Dim kMostPatches = 16384;

PatchGrid patch_grid(const PatchRecipe& p, Dim height, Dim width) {
  const PatchGrid grid{height / p.size, width / p.size};
  if (height < 1 || width < 1 || grid.patches() < 1)
    fail("a picture of ", width, " x ", height, " pixels has no whole patch of ", p.size, " x ", p.size,
         "; enlarge it");
  // Every row looks at all others.
  if (grid.rows > kMostPatches || grid.columns > kMostPatches || grid.patches() > kMostPatches)
    fail("a picture of ", width, " x ", height, " pixels has more than ", kMostPatches, " patches of ",
         p.size, " x ", p.size, "; make it smaller, or the size in preprocessor_config.json");
  return grid;
}

Batch picture_batch(const Recipe& recipe, std::span<const Picture> pictures) {
  if (!recipe.embed.patches)
    fail("model ", recipe.name, " reads ", recipe.vocab > 0 ? "tokens" : "vectors", ", not pictures");
  Batch out;
  out.pictures.assign(pictures.begin(), pictures.end());
  Dim next = 0;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const PatchGrid grid = patch_grid(*recipe.embed.patches, pictures[i].height, pictures[i].width);
    const Dim rows = recipe.embed.patches->before() + grid.patches();
    out.sequences.push_back({.first = next, .count = rows, .id = i});
    next += rows;
  }
  return out;
}

std::vector<Pass::Place> picture_places(const PatchRecipe& p, std::span<const Picture> pictures) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto centre = [](Dim i, Dim of) {
    return 2 * (static_cast<double>(i) + 0.5) / static_cast<double>(of) - 1;
  };
  std::vector<Pass::Place> out;
  for (const Picture& picture : pictures) {
    const PatchGrid grid = patch_grid(p, picture.height, picture.width);
    out.insert(out.end(), static_cast<std::size_t>(p.before()), {kNone, kNone});
    for (Dim i = 0; i < grid.patches(); ++i)
      out.push_back({centre(i / grid.columns, grid.rows), centre(i % grid.columns, grid.columns)});
  }
  return out;
}

std::string row_name(const PatchRecipe& p, PatchGrid grid, Dim row) {
  if (p.cls && row == 0) return "cls";
  if (row < p.named()) return "distill";
  if (row < p.before()) return concat("register ", row - p.named());
  const Dim patch = row - p.before();
  return concat("patch ", patch / grid.columns, ",", patch % grid.columns);
}

namespace {

template <class Real>
void gather(const PatchRecipe& p, const Picture& picture, PatchGrid grid, Real* to) {
  const Dim P = p.size;
  for (Dim row = 0; row < grid.rows; ++row)
    for (Dim column = 0; column < grid.columns; ++column)
      for (Dim channel = 0; channel < p.channels; ++channel)
        for (Dim y = 0; y < P; ++y) {
          const float* from =
              picture.pixels.data() + (channel * picture.height + row * P + y) * picture.width + column * P;
          for (Dim x = 0; x < P; ++x) *to++ = static_cast<Real>(from[x]);
        }
}

// What each row takes of the table of positions; registers take nothing.
RowMix position_mix(const PatchRecipe& p, std::span<const PatchGrid> grids) {
  RowMix out;
  const bool antialias = p.resample == PatchRecipe::Resample::antialias;
  for (const PatchGrid& grid : grids) {
    for (Dim i = 0; i < p.before(); ++i) {
      if (i < p.named()) out.add(static_cast<std::int32_t>(i), 1);
      out.end_row();
    }
    const bool own = grid.rows == p.rows && grid.columns == p.columns;
    const RowMix down = own ? RowMix{} : resample_line(p.rows, grid.rows, antialias),
                 across = own ? RowMix{} : resample_line(p.columns, grid.columns, antialias);
    for (Dim row = 0; row < grid.rows; ++row)
      for (Dim column = 0; column < grid.columns; ++column) {
        const auto at = [&](Dim r, Dim c) {
          return static_cast<std::int32_t>(p.named() + r * p.columns + c);
        };
        if (own) out.add(at(row, column), 1);
        else
          for (auto i = static_cast<std::size_t>(down.begin[static_cast<std::size_t>(row)]);
               i < static_cast<std::size_t>(down.begin[static_cast<std::size_t>(row) + 1]); ++i)
            for (auto j = static_cast<std::size_t>(across.begin[static_cast<std::size_t>(column)]);
                 j < static_cast<std::size_t>(across.begin[static_cast<std::size_t>(column) + 1]); ++j)
              out.add(at(down.from[i], across.from[j]), down.share[i] * across.share[j]);
        out.end_row();
      }
  }
  return out;
}

}  // namespace

Tensor patch_rows(Run& run, const PatchRecipe& p, std::span<const Picture> pictures) {
  Dim patches = 0;
  std::vector<PatchGrid> grids;
  for (const Picture& picture : pictures) {
    grids.push_back(patch_grid(p, picture.height, picture.width));
    patches += grids.back().patches();
    if (static_cast<Dim>(picture.pixels.size()) != p.channels * picture.height * picture.width)
      fail("a picture of ", picture.width, " x ", picture.height, " pixels and ", p.channels,
           " channels has ", p.channels * picture.height * picture.width, " numbers, ", picture.pixels.size(),
           " were given");
  }
  const Dim wide = p.channels * p.size * p.size;
  const Tensor out = run.make({patches, wide}).constant();
  Dim at = 0;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    if (out.dtype == DType::f64) gather(p, pictures[i], grids[i], out.as<double>().data() + at * wide);
    else gather(p, pictures[i], grids[i], out.as<float>().data() + at * wide);
    at += grids[i].patches();
  }
  return out;
}

Tensor embed_pictures(Run& run, const PatchLayer& layer, std::span<const Picture> pictures) {
  const PatchRecipe& p = layer.recipe;
  const Tensor patches =
      linear(run, patch_rows(run, p, pictures), *layer.product.w, layer.product.b);  // [patches,C]
  std::vector<PatchGrid> grids;
  for (const Picture& picture : pictures) grids.push_back(patch_grid(p, picture.height, picture.width));

  Tensor x = patches;
  if (p.before() > 0) {  // learned tokens before the patches of each
    const auto n = static_cast<Dim>(pictures.size());
    x = run.make({n * p.before() + patches[0], patches[1]});
    const auto token = [&](const Weight* w) {
      std::vector<std::int32_t> ids(w ? static_cast<std::size_t>(w->rows) : 0);
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
      return w ? embed(run, ids, *w) : Tensor{};
    };
    const Tensor tokens[] = {token(layer.cls), token(layer.distill), token(layer.registers)};
    Dim to = 0, from = 0;
    for (const PatchGrid& grid : grids) {
      for (const Tensor& t : tokens)
        if (t) copy(run, t, x.slice(to, t[0])), to += t[0];
      copy(run, patches.slice(from, grid.patches()), x.slice(to, grid.patches()));
      to += grid.patches(), from += grid.patches();
    }
  }
  x = tap(run, site::tokens, x);
  if (layer.positions)
    x = add(run, x, tap(run, site::positions, mix_rows(run, *layer.positions, position_mix(p, grids))));
  return x;
}

}  // namespace rapt
