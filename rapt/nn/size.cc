// SPDX-License-Identifier: Apache-2.0
// A weight belongs to the group that its name says; operations come from the parts themselves.
#include "rapt/nn/size.h"

#include <algorithm>

#include "rapt/nn/model.h"

namespace rapt {
namespace {

Model planned(const Recipe& recipe) { return Model(recipe, DType::f32, without_storage); }

// "decoder.3.self2.q.weight" -> "decoder attention". `norms`: those around parts, which are listed
// after them.
std::string group_of(const Model& m, const std::string& name, bool& norms) {
  norms = false;
  if (name == "embed.positions") return "positions";
  if (name.starts_with("embed")) return "embedding";
  if (name.starts_with("head")) return "head";
  std::string stack = name.substr(0, name.find('.'));
  const LayerStack& its = stack == "encoder" ? *m.encoder : *m.decoder;
  const std::string_view rest = std::string_view(name).substr(stack.size() + 1);  // 3.self2.q.weight
  if (its.recurrent)
    return concat(stack, rest.starts_with("align.") || rest.starts_with("out.") ? " attention" : " cells");
  if (rest.starts_with("buckets") || rest.starts_with("relative")) return concat(stack, " attention");
  norms = rest.starts_with("norm.") || rest.find(".norm_in.") != rest.npos ||
          rest.find(".norm_out.") != rest.npos || rest.find(".norm_sum.") != rest.npos;
  if (norms) return concat(stack, " norms");
  const std::size_t part = rest.find('.') + 1;
  if (rest.substr(rest.find('.', part)).starts_with(".gate_")) return concat(stack, " gates");
  const std::string_view word = rest.substr(part, rest.find('.', part) - part);  // self2
  for (const Part& p : its.layers[static_cast<std::size_t>(std::atol(name.c_str() + stack.size() + 1))].parts)
    if (word == concat(p.name.word, p.number > 0 ? std::to_string(p.number + 1) : ""))
      return concat(stack, " ", p.name.group);
  return stack;
}

void add(ParameterCount& count, const std::string& group, Dim n) {
  const auto it =
      std::find_if(count.groups.begin(), count.groups.end(), [&](const auto& g) { return g.first == group; });
  if (it == count.groups.end()) count.groups.emplace_back(group, n);
  else it->second += n;
  count.total += n;
}

// Of a recurrent stack. Half of what is kept of the source are keys and half values, or both are the same:
// two operations for each.
void add_recurrent(Cost& cost, Cost::Pass& pass, const RecurrentStack& s, Dim width, Dim context, bool last) {
  const RecurrentRecipe& r = s.recipe;
  for (const auto* cells : {&s.cells, &s.back})
    for (const CellLayer& c : *cells) pass.matrices += operations(c.x.w) + operations(c.h.w);
  const bool lstm = r.cell == RecurrentRecipe::Cell::lstm;
  if (last)
    cost.state_values = r.layers * (r.both_ways ? 2 : 1) * r.width * (lstm ? 2 : 1) + (s.feed ? width : 0);
  if (!r.attention) return;
  for (const Weight* w :
       {s.q, s.place, s.place_score, s.context, s.feed, s.out_context.w, s.out_state.w, s.out_input.w})
    pass.matrices += operations(w);
  cost.source.matrices += operations(s.k);
  const Dim kept = s.memory + (s.k ? s.k->rows : 0);
  const Dim seen = r.attention->window == AlignRecipe::Window::none
                       ? context
                       : std::min(context, 2 * r.attention->reach + 1);
  pass.attention += 2 * static_cast<double>(seen) * static_cast<double>(kept * (s.k ? 1 : 2));
  cost.memory_values += kept;
}

void add_stack(Cost& cost, Cost::Pass& pass, const LayerStack& s, Dim width, Dim context, bool last) {
  if (s.recurrent) return add_recurrent(cost, pass, *s.recurrent, width, context, last);
  for (const Layer& layer : s.layers)
    for (const Part& p : layer.parts) {
      const PartCost c = std::visit([&](const auto& body) { return rapt::cost(body, context); }, p.body);
      pass.matrices += c.matrices;
      pass.attention += c.attention;
      cost.source.matrices += c.source;
      if (!last) continue;
      cost.kv_values += c.kv_values;
      cost.kv_forgotten += c.kv_forgotten;
      cost.memory_values += c.memory_values;
      cost.state_values += c.state_values;
    }
}

}  // namespace

ParameterCount count_parameters(const Recipe& recipe) {
  const Model m = planned(recipe);
  ParameterCount out;
  std::vector<std::pair<std::string, Dim>> norms;  // of the stack being counted
  const auto close = [&] {
    for (const auto& [group, n] : norms) add(out, group, n);
    norms.clear();
  };
  std::string stack;
  for (const Weight& w : m.weights) {
    if (!is_parameter(w)) continue;
    if (w.name.ends_with(".bias")) out.biases += w.size();
    if (const std::string now = w.name.substr(0, w.name.find('.')); now != stack) close(), stack = now;
    bool norm = false;
    const std::string group = group_of(m, w.name, norm);
    if (norm) norms.emplace_back(group, w.size());
    else add(out, group, w.size());
  }
  close();
  out.active = out.total;
  for (const auto* each : {&m.encoder, &m.decoder})
    if (*each)
      for (const Layer& layer : (*each)->layers)
        for (const Part& p : layer.parts)
          out.active -= std::visit([&](const auto& body) { return rapt::cost(body, 1).idle; }, p.body);
  return out;
}

Cost count_cost(const Recipe& recipe, Dim context) {
  const Model m = planned(recipe);
  Cost cost;
  const bool both = m.encoder && m.decoder;
  if (both) add_stack(cost, cost.source, *m.encoder, recipe.width, context, false);
  add_stack(cost, cost.token, m.decoder ? *m.decoder : *m.encoder, recipe.width, context,
            m.decoder.has_value());
  if (recipe.head.kind == HeadRecipe::Kind::vocab)
    cost.token.matrices += operations(m.head.w) + operations(m.transform.w);
  return cost;
}

}  // namespace rapt
