// SPDX-License-Identifier: Apache-2.0
// What a logit is made of.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/inspect/attribution.h"
#include "rapt/inspect/documents.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

Table parts_table(const Attribution& a) {
  Table t{.title = say("inspect.attribution.parts"),
          .columns = {say("inspect.attribution.part"), say("inspect.attribution.share"),
                      say("inspect.attribution.so_far")},
          .rows = {}};
  double sum = 0;
  for (const Contribution& c : a.parts) {
    sum += c.value;
    t.rows.push_back({c.name, Cell(c.value, 4), Cell(sum, 4)});
  }
  t.rows.push_back({say("inspect.attribution.rest"), Cell(a.rest, 4), Cell(a.logit, 4)});
  return t;
}

Table strongest_table(const Attribution& a) {
  std::vector<Contribution> heads;
  for (const Contribution& c : a.heads)
    if (c.head >= 0) heads.push_back(c);
  std::sort(heads.begin(), heads.end(), [](const Contribution& x, const Contribution& y) {
    const double of_x = std::abs(x.value), of_y = std::abs(y.value);
    return of_x != of_y ? of_x > of_y : x.name < y.name;
  });
  heads.resize(std::min<std::size_t>(heads.size(), 10));
  Table t{.title = say("inspect.attribution.strongest"),
          .columns = {say("inspect.head"), say("inspect.attribution.share")},
          .rows = {}};
  for (const Contribution& c : heads) t.rows.push_back({c.name, Cell(c.value, 4)});
  return t;
}

// Layers by heads; cross-attention has a map of its own.
void add_map(Document& d, const Attribution& a, bool cross) {
  HeatMap map{.title = say(cross ? "inspect.attribution.cross_map" : "inspect.attribution.map"),
              .rows = {},
              .columns = {},
              .values = {},
              .top = 0,
              .scale = HeatMap::Scale::both_signs};
  map.row_name = say("inspect.layer"), map.column_name = say("inspect.head"),
  map.value_name = say("inspect.attribution.share");
  int most = 0;
  for (const Contribution& c : a.heads)
    if (c.cross == cross) most = std::max(most, c.head + 1);
  for (int h = 0; h < most; ++h) map.columns.push_back(std::to_string(h));
  for (const Contribution& c : a.heads) {
    if (c.cross != cross || c.head < 0) continue;
    if (c.head == 0) {
      map.rows.push_back(layer_label(c.layer, c.number));
      map.values.resize(map.rows.size() * map.columns.size(), std::numeric_limits<double>::quiet_NaN());
    }
    map.values[(map.rows.size() - 1) * map.columns.size() + static_cast<std::size_t>(c.head)] = c.value;
  }
  if (!map.rows.empty()) d.parts.push_back(std::move(map));
}

Json contributions(const std::vector<Contribution>& list) {
  Json::Array out;
  for (const Contribution& c : list)
    out.push_back(Json::Object{{"name", c.name},
                               {"layer", c.layer < 0 ? Json() : Json(c.layer)},
                               {"number", c.number > 0 ? Json(c.number) : Json()},
                               {"head", c.head < 0 ? Json() : Json(c.head)},
                               {"cross", c.cross},
                               {"value", c.value}});
  return out;
}

}  // namespace

Document attribution_document(const Subject& s, const Metric& metric) {
  const Attribution a = attribution(s.device(), s.net(), metric, s.ids, s.source);
  Document d{.name = "attribution", .title = say("inspect.attribution.title", model_line(s)), .parts = {}};
  const std::vector<std::string> words = s.words_of(last_stack(s.net()));
  d.parts.push_back(Words{say("inspect.attribution.about")});
  d.parts.push_back(Words{
      sentences({say("inspect.attribution.is", metric_text(a.metric, s.tokenizer()), fixed(a.logit, 4),
                     a.metric.position, concat("'", words[static_cast<std::size_t>(a.metric.position)], "'")),
                 a.capped == a.logit ? Text() : say("inspect.attribution.capped", fixed(a.capped, 4))})});
  d.parts.push_back(parts_table(a));
  if (!a.heads.empty()) {
    d.parts.push_back(strongest_table(a));
    add_map(d, a, false);
    add_map(d, a, true);
  }
  if (!a.gated.empty()) d.parts.push_back(Words{say("inspect.attribution.gated", join(a.gated))});
  if (!a.normed.empty()) d.parts.push_back(Words{say("inspect.attribution.normed", join(a.normed))});
  d.facts.set("metric", metric_json(a.metric));
  d.facts.set("logit", a.logit);
  d.facts.set("capped", a.capped);
  d.facts.set("rest", a.rest);
  d.facts.set("parts", contributions(a.parts));
  d.facts.set("heads", contributions(a.heads));
  return d;
}

}  // namespace rapt
