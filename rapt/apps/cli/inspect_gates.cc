// SPDX-License-Identifier: Apache-2.0
// rapt inspect gates: how far the gates on attention are open.
#include <algorithm>
#include <limits>
#include <map>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/gates.h"

namespace rapt::cli {
namespace {

using Heads = std::vector<const GateStats*>;  // of one gate of one attention
using Places = std::map<std::pair<int, int>, Heads>;  // by layer and number

// The histogram as a line of bars, the tallest full.
std::string bars(const Heads& heads) {
  static constexpr const char* kBars[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::array<Dim, GateStats::kBins> bins{};
  for (const GateStats* g : heads)
    for (std::size_t b = 0; b < bins.size(); ++b) bins[b] += g->histogram[b];
  const Dim tallest = std::max<Dim>(1, *std::max_element(bins.begin(), bins.end()));
  std::string line;
  for (Dim n : bins) line += kBars[n == 0 ? 0 : 1 + 7 * n / tallest];
  return line;
}

void add_place(Document& d, const std::string& place, const Places& layers) {
  Table t{.title = concat("Gate at ", place),
          .columns = {"layer", "heads", "mean", "closed %", "least open head", "most open head",
                      "values 0 ... 1"},
          .rows = {}};
  HeatMap map{.title = concat("Mean of the gate at ", place, ", layer by head"),
              .rows = {},
              .columns = {},
              .values = {},
              .top = 1};
  map.row_name = "layer", map.column_name = "head", map.value_name = "mean of the gate";
  std::size_t most_heads = 0;
  for (const auto& [layer, heads] : layers) most_heads = std::max(most_heads, heads.size());
  for (std::size_t h = 0; h < most_heads; ++h) map.columns.push_back(std::to_string(h));
  for (const auto& [layer, heads] : layers) {
    const auto [least, most] = std::minmax_element(
        heads.begin(), heads.end(), [](const GateStats* a, const GateStats* b) { return a->mean < b->mean; });
    const auto named = [](const GateStats& g) {
      return concat(g.head < 0 ? "all" : std::to_string(g.head), ": ", fixed(g.mean, 3));
    };
    double mean = 0, closed = 0;
    const auto n = static_cast<double>(heads.size());
    for (const GateStats* g : heads) mean += g->mean / n, closed += g->closed / n;
    t.rows.push_back({layer_label(layer.first, layer.second), Cell(n, 0), Cell(mean, 3),
                      Cell(100 * closed, 1), named(**least), named(**most), bars(heads)});
    map.rows.push_back(layer_label(layer.first, layer.second));
    for (std::size_t h = 0; h < most_heads; ++h)
      map.values.push_back(h < heads.size() ? heads[h]->mean : std::numeric_limits<double>::quiet_NaN());
  }
  d.parts.push_back(std::move(t));
  if (most_heads > 1) d.parts.push_back(std::move(map));
}

Json gate_json(const GateStats& g) {
  Json j = Json::Object{};
  j.set("stack", stack_name(g.stack));
  j.set("layer", g.layer);
  if (g.number > 0) j.set("number", g.number);
  j.set("at", gate_name(g.at));
  j.set("cross", g.cross);
  j.set("constant", g.constant);
  j.set("head", g.head);
  j.set("mean", g.mean);
  j.set("closed", g.closed);
  Json::Array bins;
  for (Dim n : g.histogram) bins.push_back(Json(n));
  j.set("histogram", std::move(bins));
  return j;
}

Document view(const Subject& s) {
  const std::vector<GateStats> all = gates(s.device(), s.net(), s.ids, s.source);
  Document d{.name = "gates", .title = concat("Gates on attention: ", model_line(s)), .parts = {}};
  std::map<std::string, Places> places;
  double mean = 0, closed = 0, values = 0;
  Json::Array facts;
  for (const GateStats& g : all) {
    places[concat(stack_prefix(s.net(), g.stack), g.cross ? "cross " : "", gate_name(g.at),
                  g.constant ? " (constant)" : "")][{g.layer, g.number}]
        .push_back(&g);
    const auto n = static_cast<double>(g.values);
    mean += g.mean * n, closed += g.closed * n, values += n;
    facts.push_back(gate_json(g));
  }
  d.parts.push_back(Words{concat(
      "Over all gates the mean is ", fixed(mean / values, 3), ", and ", fixed(100 * closed / values, 1),
      " % of the values are below 0.1 (closed). A gate at sdpa stands on a head's result, at q, k, v on what "
      "enters it, at out behind the output projection. In the paper (Qiu et al. 2025) "
      "gates at sdpa have a mean of "
      "0.116.")});
  for (const auto& [place, layers] : places) add_place(d, place, layers);
  d.facts.set("gates", std::move(facts));
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args&) { return view; }

}  // namespace

extern const View kGatesView;
const View kGatesView = {"gates", "how far the gates on attention are open, head by head", "", parse};

}  // namespace rapt::cli
