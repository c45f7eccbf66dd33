// SPDX-License-Identifier: Apache-2.0
// The weights of a recurrent stack, by name.
#include "rapt/nn/recurrent.h"

namespace rapt {
namespace {

using Cell = RecurrentRecipe::Cell;
using Start = RecurrentRecipe::Start;
using AlignScore = AlignRecipe::Score;
using Window = AlignRecipe::Window;

}  // namespace

RecurrentStack build_recurrent(WeightTable& table, const Recipe& recipe, const RecurrentRecipe& r,
                               const std::string& name) {
  const Dim C = recipe.width, n = r.width, G = gates_of(r) * n;
  RecurrentStack out;
  out.recipe = r;
  auto cell = [&](const std::string& at, Dim in) {
    CellLayer c;
    c.x = {table.matrix(at + ".x.weight", G, in), table.vector(at + ".x.bias", G)};
    c.h.w = table.matrix(at + ".h.weight", G, n);
    if (r.cell == Cell::gru) c.h.b = table.vector(at + ".h.bias", G);
    return c;
  };
  for (Dim l = 0; l < r.layers; ++l) {
    const std::string at = concat(name, ".", l);
    const Dim in = l == 0 ? C : r.out_width();
    out.cells.push_back(cell(at, in));
    if (r.both_ways) out.back.push_back(cell(at + ".back", in));
  }
  if (r.start == Start::projected)
    for (Dim l = 0; l < r.layers; ++l) {
      const std::string at = concat(name, ".start.", l);
      out.start.push_back(
          {table.matrix(at + ".weight", n, recipe.encoder->recurrent->width), table.vector(at + ".bias", n)});
    }
  if (!r.attention) return out;
  const AlignRecipe& a = *r.attention;
  const Dim M = out.memory = memory_width(recipe), R = readout_width(recipe, a);
  const std::string at = name + ".align";
  if (a.score == AlignScore::general) out.k = table.matrix(at + ".k.weight", n, M);
  if (is_additive(a)) {
    out.q = table.matrix(at + ".q.weight", a.width, n);
    out.k = table.matrix(at + ".k.weight", a.width, M);
    out.score = table.vector(at + ".score.weight", a.width);
  }
  if (a.window == Window::predictive) {
    out.place = table.matrix(at + ".place.weight", a.width, n);
    out.place_score = table.matrix(at + ".place.score.weight", 1, a.width);
  }
  if (a.at == AlignRecipe::At::previous) out.context = table.matrix(at + ".context.weight", G, M);
  if (a.feed) out.feed = table.matrix(at + ".feed.weight", G, C);
  out.out_context.w = table.matrix(name + ".out.context.weight", R, M);
  out.out_state = {table.matrix(name + ".out.state.weight", R, n), table.vector(name + ".out.bias", R)};
  if (a.readout == AlignRecipe::Readout::maxout)
    out.out_input.w = table.matrix(name + ".out.input.weight", R, C);
  return out;
}

}  // namespace rapt
