// SPDX-License-Identifier: Apache-2.0
// One pass. A part's output counts with its residual scale; q, k, v are those that self-attention reads.
#include "rapt/inspect/norms.h"

#include <algorithm>
#include <cmath>
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

NormReader::NormReader(Taps& taps, const Model& model) : model_(model) {
  watch_residual(taps, model, [this](Stack stack, int row, const Tensor& x) {
    Line& line = lines_[stack][{residual, row}];
    const std::vector<float> now = lengths(x);
    line.insert(line.end(), now.begin(), now.end());
  });
  taps.see(site::part_out, [this](const Tapped& t) {
    const auto of = [](const Part& part) {
      if (part.ffn() || part.moe()) return ffn_out;
      return part.attention() && part.attention()->spec.cross ? cross_out : attn_out;  // what mixes rows
    };
    const Part& part = part_of(model_, t);
    const Of mine = of(part);
    Line& line = lines_[t.stack][{mine, t.layer}];
    const Tensor x = text_rows(model_, t.stack, t.value);
    const std::vector<Part>& parts =
        stack_of(model_, t.stack).layers[static_cast<std::size_t>(t.layer)].parts;
    const auto here = [&](auto from, auto to) {
      return std::count_if(from, to, [&](const Part& p) { return of(p) == mine; });
    };
    const auto all = here(parts.begin(), parts.end()), before = here(parts.begin(), parts.begin() + t.part);
    if (all == 1) {
      for (float length : lengths(x))
        line.push_back(length * static_cast<float>(std::abs(part.residual_scale)));
      return;
    }
    std::vector<double>& sum = added_[mine];
    if (before == 0) sum.assign(static_cast<std::size_t>(x.elements()), 0);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.residual_scale * x.at(static_cast<Dim>(i));
    if (before + 1 < all) return;
    const auto C = static_cast<std::size_t>(x.last());
    for (std::size_t i = 0; i < sum.size(); i += C)
      line.push_back(static_cast<float>(std::sqrt(std::inner_product(&sum[i], &sum[i] + C, &sum[i], 0.0))));
  });
}

std::vector<NormGrid> NormReader::grids() const {
  std::vector<NormGrid> out;
  for (const auto& [stack, lines] : lines_) {
    const auto first = lines.find({residual, 0});
    if (first == lines.end()) continue;
    NormGrid& g =
        out.emplace_back(NormGrid{.stack = stack, .tokens = static_cast<Dim>(first->second.size())});
    while (lines.contains({residual, g.rows})) ++g.rows;
    const std::size_t tokens = first->second.size(), cells = static_cast<std::size_t>(g.rows - 1) * tokens;
    for (const auto& [key, line] : lines) {
      const auto& [of, row] = key;
      std::vector<float>& to = of == residual   ? g.residual
                               : of == attn_out ? g.attn_out
                               : of == ffn_out  ? g.ffn_out
                                                : g.cross_out;
      if (to.empty()) to.resize(of == residual ? cells + tokens : cells);  // 0: layers without such a part
      std::copy(line.begin(), line.end(), to.begin() + row * static_cast<std::ptrdiff_t>(tokens));
    }
    g.attn_out.resize(cells);
    g.ffn_out.resize(cells);
  }
  return out;
}

Norms norms(Device& device, const Model& model, Ids ids, Ids source, const Taps* edits) {
  Norms out;
  Taps taps = edits ? *edits : Taps{};
  const NormReader reader(taps, model);
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
  out.grids = reader.grids();
  return out;
}

}  // namespace rapt
