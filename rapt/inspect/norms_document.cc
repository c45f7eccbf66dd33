// SPDX-License-Identifier: Apache-2.0
// How long the vectors are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "rapt/inspect/documents.h"
#include "rapt/inspect/norms.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

struct FirstAndOthers {
  double first = 0, others = 0;
};
// One row: the first token, the mean of the others.
FirstAndOthers split(const std::vector<float>& grid, int row, Dim tokens) {
  const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(tokens);
  FirstAndOthers f{.first = static_cast<double>(grid[at]),
                   .others = tokens > 1 ? 0.0 : static_cast<double>(grid[at])};
  for (Dim t = 1; t < tokens; ++t)
    f.others += static_cast<double>(grid[at + static_cast<std::size_t>(t)]) / static_cast<double>(tokens - 1);
  return f;
}

Table residual_table(const NormGrid& g, const std::string& prefix) {
  const bool cross = !g.cross_out.empty();
  const Text others = say("inspect.norms.others");
  Table t{.title = in_stack(prefix, say("inspect.norms.table")),
          .columns = {say("inspect.layer"), say("inspect.norms.stream"), others,
                      say("inspect.norms.attention"), others},
          .rows = {}};
  if (cross) t.columns.insert(t.columns.end(), {say("inspect.norms.cross"), others});
  t.columns.insert(t.columns.end(), {say("inspect.norms.ffn"), others});
  for (int r = 0; r < g.rows; ++r) {
    std::vector<Cell> row = {row_name(r)};
    const auto put = [&](const std::vector<float>& grid, int at) {
      if (at < 0) return row.insert(row.end(), {Cell(""), Cell("")}), void();
      const FirstAndOthers f = split(grid, at, g.tokens);
      row.push_back(Cell(f.first, 2));
      row.push_back(Cell(f.others, 2));
    };
    put(g.residual, r);
    put(g.attn_out, r - 1);
    if (cross) put(g.cross_out, r - 1);
    put(g.ffn_out, r - 1);
    t.rows.push_back(std::move(row));
  }
  return t;
}

HeatMap residual_map(const NormGrid& g, const std::vector<std::string>& words, const std::string& prefix) {
  HeatMap map{.title = in_stack(prefix, say("inspect.norms.map")),
              .rows = row_names(g.rows),
              .columns = words,
              .values = {},
              .top = 0};
  map.row_name = say("inspect.layer"), map.column_name = say("inspect.token"),
  map.value_name = say("inspect.norms.log_length");
  double least = std::numeric_limits<double>::infinity();
  for (float v : g.residual)
    if (v > 0) least = std::min(least, static_cast<double>(v));
  for (float v : g.residual) map.values.push_back(v > 0 ? std::log10(static_cast<double>(v) / least) : 0);
  return map;
}

// q, k, v: means over the heads of a layer; and the values of first tokens against the others, head by head.
void add_heads(Document& d, const Norms& n, const NormGrid& g, const std::string& prefix) {
  const Text others = say("inspect.norms.others");
  Table t{.title = in_stack(prefix, say("inspect.norms.qkv")),
          .columns = {say("inspect.layer"), say("inspect.norms.first", "q"), others,
                      say("inspect.norms.first", "k"), others, say("inspect.norms.first", "v"), others},
          .rows = {}};
  HeatMap map{.title = in_stack(prefix, say("inspect.norms.values")),
              .rows = {},
              .columns = {},
              .values = {},
              .top = 1};
  map.row_name = say("inspect.layer"), map.column_name = say("inspect.head"),
  map.value_name = say("inspect.norms.value_ratio");
  std::size_t most = 0;
  for (const HeadNorm& h : n.heads)
    if (h.stack == g.stack && h.of == HeadNorm::Of::v)
      most = std::max(most, static_cast<std::size_t>(h.head) + 1);
  for (std::size_t h = 0; h < most; ++h) map.columns.push_back(std::to_string(h));
  std::set<std::pair<int, int>> places;  // layer and number
  for (const HeadNorm& h : n.heads)
    if (h.stack == g.stack) places.insert({h.layer, h.number});
  for (const auto& [l, number] : places) {
    double sums[3][3] = {};  // q k v; first, others, how many
    std::vector<double> ratios(most, std::numeric_limits<double>::quiet_NaN());
    for (const HeadNorm& h : n.heads) {
      if (h.stack != g.stack || h.layer != l || h.number != number) continue;
      double* sum = sums[static_cast<std::size_t>(h.of)];
      sum[0] += h.first, sum[1] += h.others, sum[2] += 1;
      if (h.of == HeadNorm::Of::v && h.others > 0)
        ratios[static_cast<std::size_t>(h.head)] = h.first / h.others;
    }
    std::vector<Cell> row = {layer_label(l, number)};
    for (const double* sum : sums)
      row.insert(row.end(), {Cell(sum[0] / sum[2], 2), Cell(sum[1] / sum[2], 2)});
    t.rows.push_back(std::move(row));
    map.rows.push_back(layer_label(l, number));
    map.values.insert(map.values.end(), ratios.begin(), ratios.end());
  }
  if (t.rows.empty()) return;
  d.parts.push_back(std::move(t));
  d.parts.push_back(std::move(map));
}

}  // namespace

Document norms_document(const Subject& s) {
  const Norms n = norms(s.device(), s.net(), s.ids, s.source);
  Document d{.name = "norms", .title = say("inspect.norms.title", model_line(s)), .parts = {}};
  d.parts.push_back(Words{say("inspect.norms.about")});
  Json::Array stacks;
  for (const NormGrid& g : n.grids) {
    const std::string prefix = stack_prefix(s.net(), g.stack);
    d.parts.push_back(residual_table(g, prefix));
    d.parts.push_back(residual_map(g, s.words_of(g.stack), prefix));
    add_heads(d, n, g, prefix);
    const auto columns = static_cast<std::size_t>(g.tokens);
    Json j = Json::Object{};
    j.set("stack", stack_name(g.stack));
    j.set("residual", grid_json(g.residual, columns));
    j.set("attn_out", grid_json(g.attn_out, columns));
    if (!g.cross_out.empty()) j.set("cross_out", grid_json(g.cross_out, columns));
    j.set("ffn_out", grid_json(g.ffn_out, columns));
    stacks.push_back(std::move(j));
  }
  d.facts.set("stacks", std::move(stacks));
  name_axes(d, "stacks[].residual", {"row", "token"});
  for (const char* key : {"stacks[].attn_out", "stacks[].cross_out", "stacks[].ffn_out"})
    name_axes(d, key, {"layer", "token"});
  Json::Array heads;
  for (const HeadNorm& h : n.heads) {
    Json j = Json::Object{};
    j.set("of", h.of == HeadNorm::Of::q ? "q" : h.of == HeadNorm::Of::k ? "k" : "v");
    j.set("stack", stack_name(h.stack));
    j.set("layer", h.layer);
    if (h.number > 0) j.set("number", h.number);
    j.set("head", h.head);
    j.set("first", h.first);
    j.set("others", h.others);
    heads.push_back(std::move(j));
  }
  d.facts.set("heads", std::move(heads));
  return d;
}

}  // namespace rapt
