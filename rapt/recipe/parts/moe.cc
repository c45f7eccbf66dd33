// SPDX-License-Identifier: Apache-2.0
// Rules of the mixture of experts, then its lines in a drawing.
#include "rapt/recipe/parts/moe.h"

#include "rapt/recipe/drawing.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

FfnRecipe expert_of(const MoeRecipe& m) {
  return {.kind = m.kind,
          .act = m.act,
          .width = m.width,
          .bias = m.bias,
          .clamp = m.clamp,
          .alpha = m.alpha,
          .up_offset = m.up_offset,
          .dropout = m.dropout};
}

void resolve(MoeRecipe& m, const PartPlace& place) {
  const std::string& path = place.path;
  FfnRecipe expert = expert_of(m);
  resolve(expert, place);
  m.width = expert.width;
  constexpr Dim kMostExperts = 65536;
  if (m.experts > kMostExperts)
    fail(path, ".experts: is ", m.experts, ", surely a mistake: at most ", kMostExperts);
  if (m.used > m.experts)
    fail(path, ".used: a row cannot use ", m.used, " of ", m.experts, " experts; use fewer or add experts");
  const RouterRecipe& r = m.router;
  const bool chosen = r.over == RouterRecipe::Over::chosen;
  if (chosen && r.score == RouterRecipe::Score::sigmoid)
    fail(path, ".router.over: sigmoid looks at each logit alone; over chosen belongs to score softmax");
  if (chosen && !r.renormalise)
    fail(path,
         ".router.renormalise: weights over the chosen add up to 1 as they are; remove it, or use over all");
  if (chosen && r.groups)
    fail(path,
         ".router.groups: groups are compared by scores over all experts; use over all with renormalise");
  if (r.eps != 0 && (chosen || !r.renormalise))
    fail(path, ".router.eps: stands in the sum that renormalise divides by, and nothing is divided here");
  if (r.eps == 0 && r.eps_as == RouterRecipe::Eps::least)
    fail(path, ".router.eps_as: says how eps is used, and eps is 0");
  if (r.groups) {
    const GroupsRecipe& g = *r.groups;
    if (m.experts % g.count != 0)
      fail(path, ".router.groups.count: ", m.experts, " experts cannot be cut into ", g.count,
           " groups of equal size");
    if (g.used > g.count)
      fail(path, ".router.groups.used: a row cannot use ", g.used, " of ", g.count, " groups");
    const Dim size = m.experts / g.count;
    if (m.used > g.used * size)
      fail(path, ".used: ", g.used, " groups of ", size, " experts cannot give ", m.used,
           "; use more groups or fewer experts");
    if (g.score == GroupsRecipe::Score::top2 && size < 2)
      fail(path, ".router.groups.score: top2 adds the best two of a group, and each has ", size,
           " expert; use max or fewer groups");
  }
  if (m.shared && m.shared->width == 0) m.shared->width = m.width;
  if (m.balance == 0 && m.balance_over != MoeRecipe::Pooling::layer)
    fail(path, ".balance_over: belongs to balance, which is 0");
}

void draw(Drawing& d, const MoeRecipe& m, Dim C, const std::string& stream) {
  const RouterRecipe& r = m.router;
  const bool sigmoid = r.score == RouterRecipe::Score::sigmoid, chosen = r.over == RouterRecipe::Over::chosen;
  d.inside("router", concat(with_commas(C), " → ", with_commas(m.experts), r.bias ? " + bias" : "", ", ",
                            chosen ? "softmax over the chosen" : name_text(r.score)));
  std::string choice = concat(m.used, " of ", with_commas(m.experts), " experts");
  if (r.groups)
    choice += concat(" in ", r.groups->used, " of ", r.groups->count, " groups by ",
                     r.groups->score == GroupsRecipe::Score::max ? "their best" : "their best two");
  if (r.choice_bias) choice += ", chosen by score + bias";
  d.inside("use", choice);
  std::string weights = chosen           ? "of the softmax"
                        : !r.renormalise ? sigmoid ? "the sigmoids as they are" : "the softmax as it is"
                                         : "divided by their sum";
  if (r.scale != 1) weights += concat(", times ", shortest(r.scale));
  if (r.weight_at == RouterRecipe::WeightAt::input) weights += ", on the input";
  d.inside("weights", weights);
  draw(d, expert_of(m), C, stream);
  if (m.shared)
    d.inside("shared", concat("one more of width ", with_commas(m.shared->width), " for every row",
                              m.shared->gated ? ", times sigmoid of a learned gate" : ""));
  if (m.balance > 0)
    d.inside("balance", concat("loss + ", shortest(m.balance), " · E Σ f·P, ",
                               m.balance_over == MoeRecipe::Pooling::layer ? "each layer" : "all layers"));
}

}  // namespace rapt
