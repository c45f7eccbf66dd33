// SPDX-License-Identifier: Apache-2.0
// One pass with three taps; then load, a map of layers and experts, choices token by token.
#include "rapt/inspect/experts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "rapt/base/text.h"
#include "rapt/nn/parts/moe.h"

namespace rapt {

// ------------------------------------------------------------------------------------------------ choices
bool has_experts(const Model& model) {
  for (const auto* stack : {&model.encoder, &model.decoder})
    if (*stack)
      for (const Layer& layer : (*stack)->layers)
        for (const Part& p : layer.parts)
          if (p.moe()) return true;
  return false;
}

std::vector<ExpertChoice> expert_choices(Device& device, const Model& model, Ids ids, Ids source) {
  if (!has_experts(model))
    fail("experts: model ", model.recipe.name, " has no experts (a part `moe` of its recipe has)");
  std::map<std::tuple<Stack, int, int>, ExpertChoice> found;
  Taps taps;
  const auto at = [&](const Tapped& t) -> ExpertChoice& {
    ExpertChoice& c = found[{t.stack, t.layer, t.part}];
    c.load.stack = t.stack, c.load.layer = t.layer, c.load.part = t.part;
    c.number = part_number(part_of(model, t));
    return c;
  };
  taps.see(site::router,
           [&](const Tapped& t) { add_logits(at(t).load, text_rows(model, t.stack, t.value)); });
  taps.see(site::expert_indices, [&](const Tapped& t) {
    const Tensor rows = text_rows(model, t.stack, t.value);
    add_choices(at(t).load, rows);
    with_values(rows, [&](auto values) { at(t).experts.assign(values.begin(), values.end()); });
  });
  taps.see(site::expert_weights, [&](const Tapped& t) {
    with_values(text_rows(model, t.stack, t.value),
                [&](auto values) { at(t).weights.assign(values.begin(), values.end()); });
  });
  look(device, model, taps, ids, source);
  std::vector<ExpertChoice> out;
  for (auto& [place, c] : found) {
    const auto used = static_cast<std::size_t>(c.load.used);
    for (std::size_t row = 0; row < c.experts.size();
         row += used) {  // the heaviest first, of equals the first
      std::vector<std::pair<double, std::int32_t>> order;
      for (std::size_t j = row; j < row + used; ++j) order.emplace_back(-c.weights[j], c.experts[j]);
      std::sort(order.begin(), order.end());
      for (std::size_t j = 0; j < used; ++j)
        c.weights[row + j] = -order[j].first, c.experts[row + j] = order[j].second;
    }
    out.push_back(std::move(c));
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ document
namespace {

Json choice_json(const ExpertChoice& c) {
  Json j = Json::Object{};
  j.set("stack", stack_name(c.load.stack));
  j.set("layer", c.load.layer);
  if (c.number > 0) j.set("number", c.number);
  j.set("experts", c.load.experts);
  j.set("used", c.load.used);
  j.set("balance", c.load.balance());
  j.set("largest", c.load.largest());
  j.set("entropy", c.load.entropy());
  Json::Array load, chosen, weights;
  for (double n : c.load.chosen) load.emplace_back(static_cast<std::int64_t>(n));
  const auto used = static_cast<std::size_t>(c.load.used);
  for (std::size_t row = 0; row < c.experts.size(); row += used) {
    Json::Array e, w;
    for (std::size_t i = row; i < row + used; ++i) e.emplace_back(c.experts[i]), w.emplace_back(c.weights[i]);
    chosen.emplace_back(std::move(e));
    weights.emplace_back(std::move(w));
  }
  j.set("load", std::move(load));
  j.set("chosen", std::move(chosen));
  j.set("weights", std::move(weights));
  return j;
}

// Tokens by layers: the experts of each, the heaviest first.
Table choice_table(const Subject& s, Stack stack, const std::vector<const ExpertChoice*>& layers) {
  Table t{.title = in_stack(stack_prefix(s.net(), stack), say("inspect.experts.choice")),
          .columns = {say("inspect.token")},
          .rows = {}};
  for (const ExpertChoice* c : layers) t.columns.push_back(layer_label(c->load.layer, c->number));
  const std::vector<std::string> words = s.words_of(stack);
  for (std::size_t row = 0; row < words.size(); ++row) {
    std::vector<Cell> cells = {words[row]};
    for (const ExpertChoice* c : layers) {
      std::string text;
      const auto used = static_cast<std::size_t>(c->load.used);
      for (std::size_t i = row * used; i < (row + 1) * used && i < c->experts.size(); ++i)
        text += concat(text.empty() ? "" : " ", c->experts[i]);
      cells.emplace_back(std::move(text));
    }
    t.rows.push_back(std::move(cells));
  }
  return t;
}

}  // namespace

Document experts_document(const Subject& s) {
  const std::vector<ExpertChoice> all = expert_choices(s.device(), s.net(), s.ids, s.source);
  Document d{.name = "experts", .title = say("inspect.experts.title", model_line(s)), .parts = {}};
  d.parts.push_back(Words{say("inspect.experts.about")});
  Json::Array facts;
  for (const Stack stack : {Stack::encoder, Stack::decoder}) {
    std::vector<const ExpertChoice*> layers;
    Dim most = 0;
    for (const ExpertChoice& c : all)
      if (c.load.stack == stack) layers.push_back(&c), most = std::max(most, c.load.experts);
    if (layers.empty()) continue;
    const std::string prefix = stack_prefix(s.net(), stack);
    Table t{.title = in_stack(prefix, say("inspect.experts.load")),
            .columns = {say("inspect.layer"), say("inspect.experts.experts"), say("inspect.experts.used"),
                        say("inspect.experts.busiest"), say("inspect.experts.which"),
                        say("inspect.experts.unused"), say("inspect.experts.entropy"),
                        say("inspect.experts.balance")},
            .rows = {}};
    HeatMap map{.title = in_stack(prefix, say("inspect.experts.map")),
                .rows = {},
                .columns = {},
                .values = {},
                .top = 0};
    map.row_name = say("inspect.layer"), map.column_name = say("inspect.experts.expert"),
    map.value_name = say("inspect.experts.share");
    for (Dim e = 0; e < most; ++e) map.columns.push_back(std::to_string(e));
    for (const ExpertChoice* c : layers) {
      const ExpertLoad& l = c->load;
      const auto busiest = std::max_element(l.chosen.begin(), l.chosen.end()) - l.chosen.begin();
      t.rows.push_back({layer_label(l.layer, c->number), Cell(static_cast<double>(l.experts), 0),
                        Cell(static_cast<double>(l.used), 0), Cell(l.largest(), 2),
                        Cell(static_cast<double>(busiest), 0), Cell(static_cast<double>(l.idle()), 0),
                        Cell(l.entropy(), 3), Cell(l.balance(), 3)});
      map.rows.push_back(layer_label(l.layer, c->number));
      for (Dim e = 0; e < most; ++e)
        map.values.push_back(e < l.experts
                                 ? l.chosen[static_cast<std::size_t>(e)] / static_cast<double>(l.rows)
                                 : std::nan(""));
      facts.push_back(choice_json(*c));
    }
    d.parts.push_back(std::move(t));
    d.parts.push_back(std::move(map));
    d.parts.push_back(choice_table(s, stack, layers));
  }
  d.facts.set("experts", std::move(facts));
  return d;
}

}  // namespace rapt
