// SPDX-License-Identifier: Apache-2.0
// What comes back of the clean text, place by place.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/base/text.h"
#include "rapt/inspect/documents.h"
#include "rapt/report/facts.h"
#include "rapt/text/words.h"

namespace rapt {
namespace {

HeatMap map_of(const PatchedGrid& g, const std::vector<std::string>& words) {
  const bool heads = g.what == "heads";
  HeatMap map{.title = say("inspect.patching." + g.what),
              .rows = g.layers,
              .columns = {},
              .values = g.recovered,
              .top = 0,
              .scale = HeatMap::Scale::both_signs};
  map.row_name = say("inspect.layer"), map.column_name = say(heads ? "inspect.head" : "inspect.token"),
  map.value_name = say("inspect.patching.recovered");
  for (Dim c = 0; c < g.columns; ++c)
    map.columns.push_back(heads ? std::to_string(c) : words[static_cast<std::size_t>(c)]);
  return map;
}

Table strongest_table(const PatchedGrid& g, const std::vector<std::string>& words) {
  Table t{.title = say("inspect.patching.strongest"),
          .columns = {say("inspect.layer"), say(g.what == "heads" ? "inspect.head" : "inspect.token"),
                      say("inspect.patching.metric"), say("inspect.patching.recovered")},
          .rows = {}};
  std::vector<std::size_t> order(g.value.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const double x = std::abs(g.recovered[a]), y = std::abs(g.recovered[b]);
    return x != y ? x > y : a < b;
  });
  const auto columns = static_cast<std::size_t>(g.columns);
  for (std::size_t i = 0; i < std::min<std::size_t>(5, order.size()); ++i) {
    const std::size_t at = order[i], column = at % columns;
    t.rows.push_back({g.layers[at / columns],
                      g.what == "heads" ? std::to_string(column) : concat(column, " ", words[column]),
                      Cell(g.value[at], 4), Cell(g.recovered[at], 3)});
  }
  return t;
}

}  // namespace

Document patching_document(const Subject& s, Ids corrupted, const Metric& metric,
                           const PatchingOptions& options) {
  const Patching p = patching(s.device(), s.net(), metric, s.ids, corrupted, options);
  Document d{.name = "patching", .title = say("inspect.patching.title", model_line(s)), .parts = {}};
  d.parts.push_back(Words{say("inspect.patching.about")});
  d.parts.push_back(Words{say("inspect.patching.is", metric_text(p.metric, s.tokenizer()), p.metric.position,
                              fixed(p.clean, 4), fixed(p.corrupted, 4))});
  const std::vector<std::string> clean = s.words_of(last_stack(s.net()));
  std::vector<std::string> words =
      token_texts(s.tokenizer(), corrupted);  // clean|corrupted where they differ
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = visible_text(words[i]);
    if (s.ids[i] != corrupted[i]) words[i] = concat(clean[i], "|", words[i]);
  }
  Json::Array grids;
  for (const PatchedGrid& g : p.grids) {
    d.parts.push_back(map_of(g, words));
    d.parts.push_back(strongest_table(g, words));
    const auto columns = static_cast<std::size_t>(g.columns);
    Json::Array layers;
    for (const std::string& l : g.layers) layers.emplace_back(l);
    grids.push_back(Json::Object{{"what", g.what},
                                 {"layers", std::move(layers)},
                                 {"value", grid_json(g.value, columns)},
                                 {"recovered", grid_json(g.recovered, columns)}});
  }
  d.facts.set("metric", metric_json(p.metric));
  Json::Array ids;
  for (const std::int32_t id : corrupted) ids.emplace_back(static_cast<std::int64_t>(id));
  d.facts.set("corrupted_ids", std::move(ids));
  d.facts.set("clean", p.clean);
  d.facts.set("corrupted", p.corrupted);
  d.facts.set("grids", std::move(grids));
  name_axes(d, "grids[].value", {"layer", "token or head"});
  name_axes(d, "grids[].recovered", {"layer", "token or head"});
  return d;
}

}  // namespace rapt
