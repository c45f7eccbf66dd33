// SPDX-License-Identifier: Apache-2.0
// Layers with the same rotation, slopes or shared buckets are one entry; vectors are computed by the ops.
#include "rapt/inspect/positions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "rapt/ops/embed.h"

namespace rapt {
namespace {

std::size_t at(Dim row, Dim columns, Dim column) { return static_cast<std::size_t>(row * columns + column); }

std::vector<double> similarities(const std::vector<double>& table, Dim rows, Dim width) {
  std::vector<double> out;
  const auto dot = [&](Dim i, Dim j) {
    double sum = 0;
    for (Dim c = 0; c < width; ++c) sum += table[at(i, width, c)] * table[at(j, width, c)];
    return sum;
  };
  for (Dim i = 0; i < rows; ++i)
    for (Dim j = 0; j < rows; ++j) {
      const double sizes = std::sqrt(dot(i, i) * dot(j, j));
      out.push_back(sizes > 0 ? dot(i, j) / sizes : 0);
    }
  return out;
}

void absolute(Device& device, const Recipe& recipe, const Model* model, const PositionOptions& options,
              Positions& out) {
  out.width = recipe.width;
  out.sinusoid = recipe.embed.pos == EmbedRecipe::Pos::sinusoid;
  out.learned = recipe.embed.pos == EmbedRecipe::Pos::learned;
  if (out.sinusoid) {
    out.shown = options.positions;
    std::vector<std::int32_t> places(static_cast<std::size_t>(out.shown));
    std::iota(places.begin(), places.end(), 0);
    Run run(device);
    with_values(rapt::sinusoid(run, recipe.embed.layout, recipe.embed.table, out.width, places),
                [&](auto values) { out.table.assign(values.begin(), values.end()); });
  } else if (out.learned && model) {
    const Dim all = model->target.positions->rows;
    out.shown = std::min(options.positions, all);
    std::vector<std::int32_t> places(static_cast<std::size_t>(all));
    std::iota(places.begin(), places.end(), 0);
    Run run(device);
    with_values(embed(run, places, *model->target.positions), [&](auto values) {
      for (Dim r = 0; r < all; ++r) {
        double sum = 0;
        for (Dim c = 0; c < out.width; ++c)
          sum += std::pow(static_cast<double>(values[at(r, out.width, c)]), 2);
        out.norms.push_back(std::sqrt(sum));
      }
      out.table.assign(values.begin(), values.begin() + out.shown * out.width);
    });
  }
  out.similarity = similarities(out.table, out.shown, out.width);
}

void add_rope(Positions& out, Stack stack, int layer, const AttnRecipe& a, Dim length) {
  for (RopePairs& r : out.rope)
    if (r.stack == stack && r.spec == a.pos.rope && r.head_dim == a.rope_channels())
      return r.layers.push_back(layer);
  RopePairs r{
      .stack = stack, .layers = {layer}, .spec = a.pos.rope, .head_dim = a.rope_channels(), .length = length};
  const RopeFrequencies f = rope_frequencies(r.spec, r.head_dim, length);
  r.magnitude = f.magnitude;
  r.radians = f.inverse;
  RopeSpec plain = r.spec;
  if (plain.scaling != RopeScaling::proportional) plain.scaling = RopeScaling::none;
  r.unscaled = rope_frequencies(plain, r.head_dim, length).inverse;
  out.rope.push_back(std::move(r));
}

void add_alibi(Positions& out, Stack stack, int layer, const AttnRecipe& a) {
  const std::vector<double> slopes = alibi_slopes(a.heads);
  for (AlibiSlopes& s : out.alibi)
    if (s.stack == stack && s.slopes == slopes) return s.layers.push_back(layer);
  out.alibi.push_back({.stack = stack, .layers = {layer}, .slopes = slopes});
}

void add_buckets(Positions& out, Stack stack, int layer, const AttnRecipe& a, const Weight* table) {
  const BucketRecipe& recipe = a.pos.bucket;
  for (BucketTable& b : out.buckets)
    if (recipe.shared && b.stack == stack) return b.layers.push_back(layer);
  BucketTable b{
      .stack = stack, .layers = {layer}, .count = recipe.count, .max = recipe.max, .heads = a.heads};
  b.both_ways = a.mask == AttnRecipe::MaskKind::full || a.mask == AttnRecipe::MaskKind::prefix;
  std::int32_t last = -1;
  for (Dim d = -recipe.max; d <= (b.both_ways ? recipe.max : 0); ++d) {
    const std::int32_t bucket = relative_bucket(d, b.count, b.max, b.both_ways);
    if (bucket == last) {
      // Of a bucket before the query its nearest place is the last one.
      if (d <= 0) b.distances.back() = d;
      continue;
    }
    last = bucket;
    b.distances.push_back(d);
    b.bucket.push_back(bucket);
  }
  if (table)
    for (std::int32_t row : b.bucket)
      for (Dim h = 0; h < b.heads; ++h) b.bias.push_back(table->get(row, h));
  out.buckets.push_back(std::move(b));
}

}  // namespace

double places_per_turn(double radians) {
  return radians > 0 ? 2 * std::numbers::pi / radians : std::numeric_limits<double>::infinity();
}

Positions positions(Device& device, const Recipe& given, const Model* model, const PositionOptions& options) {
  if (options.positions < 1) fail_usage("positions: ", options.positions, " places; give 1 or more");
  const Recipe recipe = resolve(given);
  const Dim length = options.length > 0 ? options.length : std::max<Dim>(1, recipe.context);
  Positions out;
  absolute(device, recipe, model, options, out);
  for (Stack stack : {Stack::encoder, Stack::decoder}) {
    const std::optional<StackRecipe>& s = stack == Stack::encoder ? recipe.encoder : recipe.decoder;
    if (!s || s->recurrent) continue;
    for (Dim l = 0; l < s->layers; ++l) {
      const std::vector<PartRecipe>& parts = s->layer(l).parts;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        if (!parts[p].self()) continue;
        const AttnRecipe& a = *parts[p].self();
        const int layer = static_cast<int>(l);
        switch (a.pos.kind) {
          case PosRecipe::Kind::rope: add_rope(out, stack, layer, a, length); break;
          case PosRecipe::Kind::alibi: add_alibi(out, stack, layer, a); break;
          case PosRecipe::Kind::bucket:
            add_buckets(out, stack, layer, a,
                        model ? stack_of(*model, stack)
                                    .layers[static_cast<std::size_t>(l)]
                                    .parts[p]
                                    .attention()
                                    ->buckets
                              : nullptr);
            break;
          case PosRecipe::Kind::relative:
            if (out.relative.empty() || out.relative.back().stack != stack)
              out.relative.push_back({stack, {}, a.pos.relative});
            out.relative.back().layers.push_back(layer);
            break;
          case PosRecipe::Kind::xl:
            if (out.xl.empty() || out.xl.back().stack != stack) out.xl.push_back({stack, {}});
            out.xl.back().layers.push_back(layer);
            break;
          case PosRecipe::Kind::grid:  // by rows and columns of a picture, not by places of a text
          case PosRecipe::Kind::none:
            out.none.push_back(concat(stack == Stack::encoder ? "encoder " : "decoder ", layer));
            break;
        }
      }
    }
  }
  return out;
}

}  // namespace rapt
