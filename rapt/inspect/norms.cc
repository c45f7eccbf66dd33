// SPDX-License-Identifier: Apache-2.0
// One pass. A part's output counts with its residual scale; q, k, v are those that self-attention reads.
#include "rapt/inspect/norms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace rapt {
namespace {

// L2 of each vector of x [.., n].
std::vector<float> lengths(const Tensor& x) {
  std::vector<float> out;
  with_values(x, [&](auto values) {
    const auto n = static_cast<std::size_t>(x.last());
    for (std::size_t i = 0; i + n <= values.size(); i += n) {
      double sum = 0;
      for (std::size_t j = i; j < i + n; ++j)
        sum += static_cast<double>(values[j]) * static_cast<double>(values[j]);
      out.push_back(static_cast<float>(std::sqrt(sum)));
    }
  });
  return out;
}

}  // namespace

Norms norms(Device& device, const Model& model, Ids ids, Ids source) {
  Norms out;
  Taps taps;
  watch_residual(taps, model, [&](Stack stack, int row, const Tensor& x) {
    if (row == 0) out.grids.push_back({.stack = stack, .tokens = x[0]});
    NormGrid& g = out.grids.back();
    g.rows = row + 1;
    const std::vector<float> now = lengths(x);
    g.residual.insert(g.residual.end(), now.begin(), now.end());
  });
  const auto grid_of = [](NormGrid& g, const Part& part) -> std::vector<float>& {
    if (part.ffn() || part.moe()) return g.ffn_out;
    return part.attention() && part.attention()->spec.cross ? g.cross_out : g.attn_out;  // what mixes rows
  };
  // Of parts that share a grid: what those before have added.
  std::map<const std::vector<float>*, std::vector<double>> added;
  taps.see(site::part_out, [&](const Tapped& t) {
    NormGrid& g = out.grids.back();
    const Part& part = part_of(model, t);
    std::vector<float>& grid = grid_of(g, part);
    const Tensor x = text_rows(model, t.stack, t.value);
    const std::vector<Part>& parts = stack_of(model, t.stack).layers[static_cast<std::size_t>(t.layer)].parts;
    const auto here = [&](auto from, auto to) {
      return std::count_if(from, to, [&](const Part& p) { return &grid_of(g, p) == &grid; });
    };
    const auto all = here(parts.begin(), parts.end()), before = here(parts.begin(), parts.begin() + t.part);
    // Layers without such a part.
    if (before == 0) grid.resize(static_cast<std::size_t>(t.layer) * static_cast<std::size_t>(g.tokens));
    if (all == 1) {
      for (float length : lengths(x))
        grid.push_back(length * static_cast<float>(std::abs(part.residual_scale)));
      return;
    }
    std::vector<double>& sum = added[&grid];
    if (before == 0) sum.assign(static_cast<std::size_t>(x.elements()), 0);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.residual_scale * x.at(static_cast<Dim>(i));
    if (before + 1 < all) return;
    const auto C = static_cast<std::size_t>(x.last());
    for (std::size_t i = 0; i < sum.size(); i += C)
      grid.push_back(static_cast<float>(std::sqrt(std::inner_product(&sum[i], &sum[i] + C, &sum[i], 0.0))));
  });
  const auto heads = [&](HeadNorm::Of of) {
    return [&, of](const Tapped& t) {
      if (t.cross) return;
      const Tensor x = text_rows(model, t.stack, t.value);  // [T,H,D]
      const std::vector<float> all = lengths(x);
      const Dim T = x[0], H = x[1];
      for (Dim h = 0; h < H; ++h) {
        HeadNorm n{.of = of,
                   .stack = t.stack,
                   .layer = t.layer,
                   .number = part_number(part_of(model, t)),
                   .head = static_cast<int>(h)};
        n.first = n.others = static_cast<double>(all[static_cast<std::size_t>(h)]);
        if (T > 1) {
          n.others = 0;
          for (Dim r = 1; r < T; ++r)
            n.others +=
                static_cast<double>(all[static_cast<std::size_t>(r * H + h)]) / static_cast<double>(T - 1);
        }
        out.heads.push_back(n);
      }
    };
  };
  taps.see(site::q, heads(HeadNorm::Of::q));
  taps.see(site::k, heads(HeadNorm::Of::k));
  taps.see(site::v, heads(HeadNorm::Of::v));
  look(device, model, taps, ids, source);
  for (NormGrid& g : out.grids) {
    const std::size_t cells = static_cast<std::size_t>(g.rows - 1) * static_cast<std::size_t>(g.tokens);
    g.attn_out.resize(cells);
    g.ffn_out.resize(cells);
    if (!g.cross_out.empty()) g.cross_out.resize(cells);
  }
  return out;
}

}  // namespace rapt
