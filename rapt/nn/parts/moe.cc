// SPDX-License-Identifier: Apache-2.0
// Weights, forward, what can be seen, costs.
#include "rapt/nn/parts/moe.h"

#include <algorithm>

#include "rapt/nn/sites.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/grouped_linear.h"

namespace rapt {
namespace {

RouteSpec spec_of(const MoeRecipe& m) {
  const RouterRecipe& r = m.router;
  RouteSpec s{.experts = m.experts,
              .used = m.used,
              .renormalise = r.renormalise,
              .eps = r.eps,
              .scale = r.scale,
              .eps_least = r.eps_as == RouterRecipe::Eps::least};
  s.score = r.over == RouterRecipe::Over::chosen      ? RouteSpec::Score::chosen
            : r.score == RouterRecipe::Score::sigmoid ? RouteSpec::Score::sigmoid
                                                      : RouteSpec::Score::softmax;
  if (r.groups) {
    s.groups = r.groups->count;
    s.groups_used = r.groups->used;
    s.group_score = r.groups->score == GroupsRecipe::Score::max ? RouteSpec::GroupScore::max
                                                                : RouteSpec::GroupScore::top2;
  }
  return s;
}

}  // namespace

Moe build(PartBuilder& builder, const MoeRecipe& m) {
  WeightTable& table = builder.table;
  const std::string name = builder.name;
  const Dim C = builder.recipe.width;
  Moe out;
  out.recipe = m;
  out.spec = spec_of(m);
  out.router = build_linear(table, name + ".router", m.experts, C, m.router.bias);
  if (m.router.choice_bias) out.choice = table.vector(name + ".router.choice", m.experts, 0);
  for (Dim e = 0; e < m.experts; ++e) {
    const auto linear = [&](const char* which, Dim rows, Dim cols) {
      const LinearLayer l = build_linear(table, concat(name, ".experts.", e, which), rows, cols, m.bias);
      return Projection{l.w, l.b};
    };
    if (m.kind == FfnRecipe::Kind::glu) out.gate.push_back(linear(".gate", m.width, C));
    out.up.push_back(linear(".up", m.width, C));
    out.down.push_back(linear(".down", C, m.width));
  }
  if (m.shared) {
    FfnRecipe f = expert_of(m);
    f.width = m.shared->width;
    builder.name = name + ".shared";
    out.shared = build(builder, f);
    builder.name = name;
    if (m.shared->gated) out.shared_gate = table.matrix(name + ".shared_gate.weight", 1, C);
  }
  return out;
}

void prepare(Run& run, Pass& pass, const Moe& m) {
  if (!run.training || m.recipe.balance_over != MoeRecipe::Pooling::stack || pass.expert_load) return;
  pass.expert_load = run.arena.take_array<std::int64_t>(m.recipe.experts);
  std::fill_n(pass.expert_load, m.recipe.experts, 0);
}

// ------------------------------------------------------------------------------------------------ forward
namespace {

// The rows of each expert side by side, through its net, and back into the rows' sums.
Tensor run_experts(Run& run, const Moe& m, const Tensor& x, const Routing& routing) {
  const MoeRecipe& r = m.recipe;
  const bool at_input = r.router.weight_at == RouterRecipe::WeightAt::input;
  RowGroups groups{.count = r.experts, .rows = routing.rows * routing.used, .begin = routing.begin};
  // The products take the rows of x from where they are, unless they must be weighted or have gradients.
  RowGroups from = groups;
  if (!at_input && !run.tape) from.from = routing.slots, from.per = routing.used;
  const Tensor rows = from.from ? x : dispatch(run, x, routing, at_input);  // [T k, C]
  Tensor hidden;                                                            // [T k, F]
  if (r.kind == FfnRecipe::Kind::glu) {
    Tensor both[2];
    const std::span<const Projection> parts[] = {m.gate, m.up};
    grouped_linear(run, rows, from, parts, both);
    hidden = glu(run, {r.act, r.clamp, r.alpha, r.up_offset}, both[0], both[1]);
  } else {
    const std::span<const Projection> part = m.up;
    grouped_linear(run, rows, from, {&part, 1}, {&hidden, 1});
    hidden = activation(run, r.act, hidden);
  }
  if (run.training && r.dropout > 0)
    hidden = dropout_by(run, hidden, r.dropout,
                        slot_keys(run, routing, row_keys(run, routing.rows, random_site(run, 1))));
  const std::span<const Projection> down = m.down;
  Tensor y;
  grouped_linear(run, hidden, groups, {&down, 1}, {&y, 1});
  return combine(run, y, routing, !at_input);
}

// y + the shared expert, times its gate.
Tensor add_shared(Run& run, const Moe& m, const Tensor& x, const Tensor& y) {
  const Ffn& f = m.shared;
  const FfnRecipe& r = f.recipe;
  Tensor hidden;
  if (r.kind == FfnRecipe::Kind::glu) {
    Tensor both[2];
    const Projection parts[] = {{f.gate.w, f.gate.b}, {f.up.w, f.up.b}};
    project(run, x, parts, both);
    hidden = glu(run, {r.act, r.clamp, r.alpha, r.up_offset}, both[0], both[1]);
  } else {
    hidden = activation(run, r.act, linear(run, x, *f.up.w, f.up.b));
  }
  hidden = dropout(run, hidden, r.dropout, random_site(run, 2));
  if (!m.shared_gate) return linear_add(run, y, hidden, *f.down.w, f.down.b);
  const Tensor shared = linear(run, hidden, *f.down.w, f.down.b), open = linear(run, x, *m.shared_gate);
  const Tensor gated = gate(run, {.act = Act::sigmoid, .grain = GateGrain::head},
                            shared.reshape({shared[0], 1, shared[1]}), open);
  return add(run, y, gated.reshape({shared[0], shared[1]}));
}

void show_choice(Run& run, const Routing& r) {
  if (!run.wants(site::expert_indices)) return;
  const Tensor chosen = run.make({r.rows, r.used});
  for (Dim i = 0; i < r.rows * r.used; ++i) chosen.set(i, static_cast<double>(r.chosen[i]));
  tap(run, site::expert_indices, chosen.constant());
}

}  // namespace

Tensor run_part(Run& run, const Moe& m, const Tensor& input, const Pass& pass, Sum&) {
  const Tensor x = tap(run, site::ffn_in, input);
  const Tensor z = tap(run, site::router, linear(run, x, *m.router.w, m.router.b));  // [T,E]
  // A second run of a layer finds its rows counted.
  const Balance balance{.factor = run.training ? m.recipe.balance * run.loss_share : 0,
                        .load = pass.expert_load,
                        .counted = pass.expert_load && run.recomputing};
  Routing routing = route(run, m.spec, z, m.choice, balance);
  show_choice(run, routing);
  routing.weights = tap(run, site::expert_weights, routing.weights);
  const Tensor y = run_experts(run, m, x, routing);
  return tap(run, site::ffn_out, m.shared.up.w ? add_shared(run, m, x, y) : y);
}

// ----------------------------------------------------------------------------------------- what can be seen
namespace {

// Axis E: experts, k: those that a row uses.
// clang-format off
const PartPoint<Moe> kPoints[] = {
  {"mlp_norm_scale", site::resid_in, "T1", "", nullptr, PointKind::norm_scale, kComputedBeside},
  {"mlp_normalized", site::resid_in, "TC", "", nullptr, PointKind::normalized, kComputedBeside},
  {"mlp_in", site::ffn_in, "TC", "mlp.hook_in"},
  {"router_logits", site::router, "TE", ""},
  {"expert_indices", site::expert_indices, "Tk", "", nullptr, PointKind::value,
   "the choice follows from the logits; edit router_logits"},
  {"expert_weights", site::expert_weights, "Tk", ""},
  {"mlp_out", site::ffn_out, "TC", "mlp.hook_out mlp.out.hook_out"},
  {"mlp_out_post", site::part_out, "TC", "hook_mlp_out"},
};
// clang-format on

}  // namespace

std::span<const PartPoint<Moe>> part_points(Of<Moe>) { return kPoints; }

Dim axis_size(const Moe& m, char axis) { return axis == 'E' ? m.recipe.experts : m.recipe.used; }

PartCost cost(const Moe& m, Dim context) {
  PartCost c;
  if (m.shared.up.w) c = cost(m.shared, context);
  const double expert =
      (m.gate.empty() ? 0 : operations(m.gate[0].w)) + operations(m.up[0].w) + operations(m.down[0].w);
  c.matrices +=
      operations(m.router.w) + operations(m.shared_gate) + static_cast<double>(m.recipe.used) * expert;
  Dim sizes = 0;
  for (const auto* list : {&m.gate, &m.up, &m.down})
    if (!list->empty()) sizes += (*list)[0].w->size() + ((*list)[0].bias ? (*list)[0].bias->size() : 0);
  c.idle = (m.recipe.experts - m.recipe.used) * sizes;
  return c;
}

}  // namespace rapt
