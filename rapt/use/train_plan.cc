// SPDX-License-Identifier: Apache-2.0
// Formulas of data parallelism and its three ways to share state, on top of the counts of a recipe.
#include "rapt/use/train_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/nn/size.h"
#include "rapt/nn/weight_table.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/loss.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/leaves.h"
#include "rapt/use/ranks.h"

namespace rapt {
namespace {

// Every kernel does nothing.
Kernels idle_kernels(const Kernels& of) {
  Kernels out = of;
#define RAPT_IDLE(name, Stem) out.name = [](Queue&, const Stem##Args&) noexcept {};
#define RAPT_IDLE_BOTH(name, Stem) \
  RAPT_IDLE(name, Stem)            \
  out.name##_backward = [](Queue&, const Stem##BackwardArgs&) noexcept {};
  RAPT_OPS(RAPT_IDLE_BOTH)
  RAPT_PLAIN_KERNELS(RAPT_IDLE)
#undef RAPT_IDLE
#undef RAPT_IDLE_BOTH
  return out;
}

Dim depth_of(const Recipe& r) {
  return (r.encoder ? r.encoder->layers : 0) + (r.decoder ? r.decoder->layers : 0);
}

// What a rank sends to share `bytes` with `copies` ranks, `near` of them in its machine.
struct Sent {
  double bytes, seconds;
};
// Each to each, as Comm does it.
Sent directly(double bytes, double copies, double near, const PlanMachine& m) {
  const double inside = bytes * (near - 1) / copies, outside = bytes * (copies - near) / copies;
  return {inside + outside, (m.link > 0 ? inside / m.link : 0) + (m.network > 0 ? outside / m.network : 0)};
}
// First inside of machines, then between them: each rank with its part.
Sent by_levels(double bytes, double copies, double near, const PlanMachine& m) {
  const double machines = copies / near, inside = bytes * (near - 1) / near,
               outside = bytes / near * (machines - 1) / machines;
  return {bytes * (copies - 1) / copies,
          (m.link > 0 ? inside / m.link : 0) + (m.network > 0 ? outside / m.network : 0)};
}

}  // namespace

void read_plan_machine(const std::string& text, PlanMachine& machine) {
  const std::array<std::pair<const char*, double*>, 6> reals = {{{"flops", &machine.flops},
                                                                 {"efficiency", &machine.efficiency},
                                                                 {"link", &machine.link},
                                                                 {"network", &machine.network},
                                                                 {"number", &machine.number},
                                                                 {"activation", &machine.activation}}};
  const std::array<std::pair<const char*, Dim*>, 5> counts = {{{"node", &machine.node},
                                                               {"tensor", &machine.tensor},
                                                               {"pipeline", &machine.pipeline},
                                                               {"chunks", &machine.chunks},
                                                               {"context", &machine.context}}};
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    const std::size_t equals = one.find('=');
    const std::string key = one.substr(0, equals);
    std::optional<double> value;
    if (double x = 0; equals != one.npos) {
      const char *begin = one.data() + equals + 1, *last = one.data() + one.size();
      if (const auto [stop, error] = std::from_chars(begin, last, x); error == std::errc{} && stop == last)
        value = x;
    }
    const std::string where = concat("--plan-machine ", one, ": ");
    bool known = false;
    std::vector<std::string> names;
    for (const auto& [name, into] : reals) {
      names.emplace_back(name);
      if (key != name) continue;
      known = true;
      if (!value || !(*value > 0) || !std::isfinite(*value)) fail_usage(where, "wants a number above 0");
      *into = *value;
    }
    for (const auto& [name, into] : counts) {
      names.emplace_back(name);
      if (key != name) continue;
      known = true;
      if (!value || !(*value >= 1) || *value > 1e6 || *value != std::floor(*value))
        fail_usage(where, "wants a whole number from 1");
      *into = static_cast<Dim>(*value);
    }
    if (!known) fail_usage(where, "no such key; ", name_hint(key, names));
  }
}

double plan_step_bytes(const Recipe& resolved, Dim rows, Dim length, bool recompute) {
  if (resolved.embed.patches) return 0;
  const Kernels kernels = idle_kernels(kernels_for(available_isas().back()));
  Device device(kernels, {.threads = 1});
  const Model model(resolved, DType::f32, [](std::string name, Dim r, Dim c, WeightRole role) {
    Weight w = without_storage(std::move(name), r, c, role);
    w.format = DType::f32;
    w.packing = role == WeightRole::matrix ? Packing::panels : Packing::rows;
    return w;
  });
  const bool both = model.encoder && model.decoder;
  // What the forward keeps; on the way back each of it has a gradient.
  const auto kept = [&](Dim n, bool forget) {
    const Dim few = std::max<Dim>(1, std::min(n, length));
    const Sequence sequence{.count = few};
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(few));
    Gradients none(DType::f32);
    Tape tape(none);
    Run run(device);
    run.arena.take(std::size_t{64} << 20);
    run.reset();
    run.tape = &tape;
    run.training = true;
    run.recompute = forget;
    const Batch batch{.tokens = ids, .sequences = {sequence}};
    const Tensor y = forward(run, model, batch, both ? &batch : nullptr);
    const std::vector<std::int32_t> targets(static_cast<std::size_t>(y[0]));
    cross_entropy(run, y, targets, 0);
    const double bytes =
        static_cast<double>(run.arena.mark().chunk == 0 ? run.arena.mark().used : run.arena.reserved());
    tape.clear();
    return bytes;
  };
  constexpr Dim kFew = 16, kMore = 48;
  const auto line = [&](bool forget) {
    const double a = kept(kFew, forget), b = kept(kMore, forget);
    const double few = static_cast<double>(std::min(kFew, length)),
                 more = static_cast<double>(std::min(kMore, length));
    const double each = more > few ? (b - a) / (more - few) : a / few;
    return 2 * each * static_cast<double>(rows);
  };
  if (!recompute) return line(false);
  const double all = line(false);
  return std::min(all, line(true) + all / static_cast<double>(std::max<Dim>(1, depth_of(resolved))));
}

TrainPlanned plan_training(TrainingPlan plan, Dim ranks, const PlanMachine& m) {
  Recipe recipe = fill_plan(plan);
  recipe.context = std::max(recipe.context, plan.data.length);
  const Recipe r = resolve(recipe);
  const Dim split = m.tensor * m.pipeline;  // ranks that share the weights of one copy
  if (ranks % (split * m.context) != 0)
    fail_usage("--plan: ", ranks, " ranks are no multiple of tensor ", m.tensor, " x pipeline ", m.pipeline,
               " x context ", m.context);
  if (m.tensor > m.node)
    fail_usage("--plan: a matrix is split over ", m.tensor, " ranks, a machine has ", m.node,
               "; --plan-machine node=N");
  TrainPlanned out{.recipe = r.name, .ranks = ranks, .copies = ranks / (split * m.context)};
  const DataOptions& d = plan.data;
  out.rows = d.batch_tokens > 0 ? d.batch_tokens : d.batch * d.length;
  out.leaves = plan.options.accumulate;
  out.tokens = out.rows * out.leaves;
  for (int c = 0; c < static_cast<int>(std::min<Dim>(out.copies, out.leaves)); ++c) {
    const LeafRange mine = leaves_of(out.leaves, c, static_cast<int>(out.copies));
    out.most_leaves = std::max(out.most_leaves, mine.end - mine.first);
    out.most_nodes = std::max(out.most_nodes, static_cast<Dim>(nodes_of(mine).nodes().size()));
  }

  const TrainMemory one = train_memory(r, plan.options.optimizer);
  out.parameters = one.parameters;
  const bool smaller = m.number != 4;
  const Dim sharing = ranks / split;  // that share state; context, too
  const auto width = static_cast<double>(r.width), layers = static_cast<double>(depth_of(r)),
             leaf_rows = static_cast<double>(out.rows), steps = static_cast<double>(out.most_leaves);
  const double N = one.parameters / static_cast<double>(split),  // weights of a rank
      state = one.moments / static_cast<double>(split) + (smaller ? 4 * N : 0),
               copies = static_cast<double>(sharing),
               near = std::clamp(static_cast<double>(std::min(m.node, ranks)) / static_cast<double>(m.tensor),
                                 1.0, copies),
               gradients = leaf_gradients(std::max<Dim>(out.most_leaves, 1));
  double activations = plan_step_bytes(r, out.rows, d.length, plan.options.recompute);
  if (m.activation > 0) {
    // Of a pipeline's first stage as many leaves as there are stages. Of forgotten layers their input, and
    // one that is there again; the logits, in f32, too, and their gradient.
    const double stages = static_cast<double>(m.pipeline), flying = std::min(stages, steps),
                 row = leaf_rows * width, stage = layers / stages * flying;
    activations =
        ((plan.options.recompute ? m.number * row * stage + m.activation * row : m.activation * row * stage) +
         leaf_rows * static_cast<double>(r.vocab) * (m.number + 8) / stages) /
        static_cast<double>(m.tensor * m.context);
  }
  double layer = 0;
  {
    double stacks = 0;
    for (const WeightShape& w : weight_shapes(r))
      if (w.name.starts_with("encoder.") || w.name.starts_with("decoder."))
        stacks += static_cast<double>(w.rows) * static_cast<double>(w.cols);
    layer = stacks / std::max(1.0, layers) / static_cast<double>(m.tensor);
  }

  const Cost cost = count_cost(r, d.length);
  // Forward and twice that back; a third forward of forgotten layers. A causal row sees half of its sequence.
  const double passes = plan.options.recompute ? 4 : 3,
               each = passes * (cost.token.matrices + cost.source.matrices +
                                (cost.token.attention + cost.source.attention) / (r.decoder ? 2 : 1)),
               compute = m.flops > 0 ? static_cast<double>(out.tokens) * each /
                                           (static_cast<double>(ranks) * m.flops * m.efficiency)
                                     : 0;
  const double t = static_cast<double>(m.tensor), p = static_cast<double>(m.pipeline);
  const double rows_of_rank = static_cast<double>(out.tokens) / static_cast<double>(out.copies * m.context),
               sums =
                   m.link > 0 ? 8 * rows_of_rank * width * (t - 1) / t * layers / p * m.number / m.link : 0;
  const double bubble = (p - 1) / (static_cast<double>(m.chunks) * steps + p - 1);

  const auto form = [&](const char* name, bool built, int shared, const Sent& grads, const Sent& weights) {
    PlanForm f{.name = name, .built = built};
    const auto part = [&](int from) { return shared >= from ? copies : 1.0; };
    f.weights = m.number * N / part(3);
    // In a pipeline weights stay gathered and gradients whole until the step ends: a leaf passes in no time.
    f.gradients = 4 * N * (built ? gradients : 1) / (p > 1 ? 1 : part(2));
    f.moments = state / part(1);
    f.gathered = shared < 3 ? 0 : p > 1 ? m.number * N : 2 * layer * m.number;
    f.activations = activations;
    f.saving = built ? one.saving : 0;
    f.sent_gradients = grads.bytes, f.sent_weights = weights.bytes;
    if (compute > 0) {
      f.compute = compute, f.traffic = grads.seconds + weights.seconds, f.sums = sums;
      f.step = (std::max(f.compute, f.traffic) + f.sums) / (1 - bubble);
    }
    out.forms.push_back(f);
  };
  const double g = 4 * N, w = m.number * N;
  const bool whole = split == 1 && m.context == 1 && !smaller;
  form("data parallel", false, 0, by_levels(2 * g, copies, near, m), {});
  form("ZeRO-1", whole, 1,
       directly(g * static_cast<double>(std::max<Dim>(1, out.most_nodes)), copies, near, m),
       directly(w, copies, near, m));
  const double times = p > 1 ? 1 : steps;
  form("ZeRO-2", false, 2, by_levels(g * times, copies, near, m), by_levels(w, copies, near, m));
  form("ZeRO-3", false, 3, by_levels(g * times, copies, near, m),
       by_levels((p > 1 ? 1 : 2) * w * times, copies, near, m));
  return out;
}

}  // namespace rapt
