// SPDX-License-Identifier: Apache-2.0
// From a recipe to the weights it names. Reads a resolved recipe: nothing is checked again here.
#include "rapt/nn/layers.h"

#include <algorithm>

#include "rapt/nn/recurrent.h"

namespace rapt {
namespace {

// The kinds stand in both variants in the same order.
template <class... X, class... Y>
consteval bool same_order(const std::variant<X...>*, const std::variant<Y...>*) {
  return (std::is_same_v<decltype(build(std::declval<PartBuilder&>(), std::declval<const X&>())), Y> && ...);
}
static_assert(same_order(static_cast<AnyPartRecipe*>(nullptr), static_cast<AnyPart*>(nullptr)));

// A place in the cache of its own, for parts that keep something there.
template <class Y>
void number_slot(PartBuilder& builder, Y& y) {
  if constexpr (requires { y.slot; }) y.slot = builder.slots++;
}

}  // namespace

LayerStack build_stack(WeightTable& table, const Recipe& recipe, const StackRecipe& stack,
                       const std::string& name) {
  LayerStack out;
  out.dropout = stack.dropout;
  if (stack.recurrent) {
    out.recurrent = build_recurrent(table, recipe, *stack.recurrent, name);
    return out;
  }
  PartBuilder builder{table, recipe, name};
  for (Dim i = 0; i < stack.layers; ++i)
    for (const PartRecipe& p : stack.layer(i).parts)
      std::visit([&](const auto& body) { build_shared(builder, body); }, p.body);

  const Dim C = recipe.width;
  for (Dim i = 0; i < stack.layers; ++i) {
    const LayerRecipe& l = stack.layer(i);
    const bool causal = is_causal(l);
    if (const Dim group = stack.group_of(i); i > 0 && group == stack.group_of(i - 1) && stack.groups > 0) {
      Layer again = out.layers.back();  // the same weights, a place of its own in the cache
      for (Part& p : again.parts) std::visit([&](auto& body) { number_slot(builder, body); }, p.body);
      again.first_weight = table.count();
      out.layers.push_back(std::move(again));
      continue;
    }
    const std::string at = concat(name, ".", stack.group_of(i));
    Layer layer;
    layer.first_weight = table.count();
    layer.parallel = l.parallel;
    layer.norm_in = build_norm(table, l.norm_in, at + ".norm_in", C, causal);
    for (std::size_t n = 0; n < l.parts.size(); ++n) {
      const PartRecipe& p = l.parts[n];
      const auto same = [&](const PartRecipe& other) { return part_name(other).word == part_name(p).word; };
      Part part{.name = part_name(p), .residual_scale = p.residual_scale, .dropout = p.dropout};
      part.number = static_cast<int>(
          std::count_if(l.parts.begin(), l.parts.begin() + static_cast<std::ptrdiff_t>(n), same));
      part.of = static_cast<int>(std::count_if(l.parts.begin(), l.parts.end(), same));
      builder.name = concat(at, ".", part.name.word, part.number > 0 ? std::to_string(part.number + 1) : "");
      part.norm_in = build_norm(table, p.norm_in, builder.name + ".norm_in", C, causal);
      part.norm_out = build_norm(table, p.norm_out, builder.name + ".norm_out", C, causal);
      part.norm_sum = build_norm(table, p.norm_sum, builder.name + ".norm_sum", C, causal);
      if (p.layer_scale != 0)
        part.layer_scale = table.vector(builder.name + ".layer_scale", C, p.layer_scale);
      part.body = std::visit([&](const auto& body) -> AnyPart { return build(builder, body); }, p.body);
      layer.parts.push_back(std::move(part));
    }
    out.layers.push_back(std::move(layer));
  }
  out.final_norm = build_norm(table, stack.final_norm, name + ".norm", C);
  return out;
}

}  // namespace rapt
