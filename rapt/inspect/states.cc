// SPDX-License-Identifier: Apache-2.0
// One pass with three taps; then a table of heads, and two maps of heads and tokens.
#include "rapt/inspect/states.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "rapt/base/text.h"
#include "rapt/nn/parts/delta.h"

namespace rapt {

bool has_states(const Model& model) {
  for (const auto* stack : {&model.encoder, &model.decoder})
    if (*stack)
      for (const Layer& layer : (*stack)->layers)
        for (const Part& p : layer.parts)
          if (p.delta()) return true;
  return false;
}

double StateTrace::mean(const std::vector<double>& of, Dim head) const {
  double sum = 0;
  for (std::size_t i = static_cast<std::size_t>(head); i < of.size(); i += static_cast<std::size_t>(heads))
    sum += of[i];
  return sum / (static_cast<double>(of.size()) / static_cast<double>(heads));
}

double StateTrace::half_life(Dim head) const {
  double sum = 0, tokens = 0;
  for (std::size_t i = static_cast<std::size_t>(head); i < stays.size(); i += static_cast<std::size_t>(heads))
    sum += std::log(stays[i]), ++tokens;
  return sum < 0 ? std::log(0.5) * tokens / sum : std::numeric_limits<double>::infinity();
}

std::vector<StateTrace> state_traces(Device& device, const Model& model, Ids ids, Ids source) {
  if (!has_states(model))
    fail("state: model ", model.recipe.name,
         " has no layer with a state (a part `delta` of its recipe has one)");
  std::map<std::tuple<Stack, int, int>, StateTrace> found;
  Taps taps;
  const auto watch = [&](Site site, std::vector<double> StateTrace::* into, bool exponent) {
    taps.see(site, [&, into, exponent](const Tapped& t) {
      StateTrace& s = found[{t.stack, t.layer, t.part}];
      s.stack = t.stack, s.layer = t.layer, s.heads = t.value.last();
      s.number = part_number(part_of(model, t));
      with_values(text_rows(model, t.stack, t.value),
                  [&](auto values) { (s.*into).assign(values.begin(), values.end()); });
      if (exponent)
        for (double& x : s.*into) x = std::exp(x);
    });
  };
  watch(site::delta_state_norm, &StateTrace::norm, false);
  watch(site::delta_decay, &StateTrace::stays, true);
  watch(site::delta_beta, &StateTrace::writes, false);
  look(device, model, taps, ids, source);
  std::vector<StateTrace> out;
  for (auto& [place, s] : found) out.push_back(std::move(s));
  return out;
}

// ------------------------------------------------------------------------------------------------ document
namespace {

Json grid_json(const std::vector<double>& values, Dim heads) {  // [token][head]
  Json::Array rows;
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(heads)) {
    Json::Array row;
    for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) row.emplace_back(values[i + h]);
    rows.emplace_back(std::move(row));
  }
  return rows;
}

Json trace_json(const StateTrace& s) {
  Json j = Json::Object{};
  j.set("stack", stack_name(s.stack));
  j.set("layer", s.layer);
  if (s.number > 0) j.set("number", s.number);
  j.set("heads", s.heads);
  j.set("norm", grid_json(s.norm, s.heads));
  j.set("stays", grid_json(s.stays, s.heads));
  j.set("writes", grid_json(s.writes, s.heads));
  return j;
}

// Layer and head by token.
HeatMap map_of(const Subject& s, Stack stack, const std::vector<const StateTrace*>& layers, Text title,
               Text value, std::vector<double> StateTrace::* what, double top) {
  HeatMap map{.title = std::move(title), .rows = {}, .columns = s.words_of(stack), .values = {}, .top = top};
  map.row_name = say("inspect.states.row"), map.column_name = say("inspect.token"),
  map.value_name = std::move(value);
  for (const StateTrace* t : layers)
    for (Dim h = 0; h < t->heads; ++h) {
      map.rows.push_back(concat(layer_label(t->layer, t->number), ":", h));
      const std::vector<double>& values = t->*what;
      for (std::size_t i = static_cast<std::size_t>(h); i < values.size();
           i += static_cast<std::size_t>(t->heads))
        map.values.push_back(values[i]);
    }
  return map;
}

}  // namespace

Document states_document(const Subject& s) {
  const std::vector<StateTrace> all = state_traces(s.device(), s.net(), s.ids, s.source);
  Document d{.name = "state", .title = say("inspect.states.title", model_line(s)), .parts = {}};
  d.parts.push_back(Words{say("inspect.states.about")});
  Json::Array facts;
  for (const Stack stack : {Stack::encoder, Stack::decoder}) {
    std::vector<const StateTrace*> layers;
    for (const StateTrace& t : all)
      if (t.stack == stack) layers.push_back(&t);
    if (layers.empty()) continue;
    const std::string prefix = stack_prefix(s.net(), stack);
    Table table{.title = in_stack(prefix, say("inspect.states.table")),
                .columns = {say("inspect.layer"), say("inspect.head"), say("inspect.states.stays"),
                            say("inspect.states.half_life"), say("inspect.states.writes"),
                            say("inspect.states.last"), say("inspect.states.largest")},
                .rows = {}};
    for (const StateTrace* t : layers) {
      for (Dim h = 0; h < t->heads; ++h) {
        double last = 0, most = 0;
        for (std::size_t i = static_cast<std::size_t>(h); i < t->norm.size();
             i += static_cast<std::size_t>(t->heads))
          last = t->norm[i], most = std::max(most, last);
        const double half = t->half_life(h);
        table.rows.push_back({layer_label(t->layer, t->number), Cell(static_cast<double>(h), 0),
                              Cell(t->mean(t->stays, h), 4),
                              std::isfinite(half) ? Cell(half, 1) : Cell(say("inspect.states.never")),
                              Cell(t->mean(t->writes, h), 3), Cell(last, 3), Cell(most, 3)});
      }
      facts.push_back(trace_json(*t));
    }
    d.parts.push_back(std::move(table));
    d.parts.push_back(map_of(s, stack, layers, in_stack(prefix, say("inspect.states.length_map")),
                             say("inspect.states.length"), &StateTrace::norm, 0));
    d.parts.push_back(map_of(s, stack, layers, in_stack(prefix, say("inspect.states.stays_map")),
                             say("inspect.states.stays"), &StateTrace::stays, 1));
  }
  d.facts.set("states", std::move(facts));
  return d;
}

}  // namespace rapt
