// SPDX-License-Identifier: Apache-2.0
// What a gate after attention does: on the copying task, which has a sink, and on text, with feed-forward
// parts and at equal size; and the reason that is told for it, W_V W_O being one map of low rank.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 48, kFfn = 96, kHeads = 3, kLength = 48;

Recipe gated(Recipe r, const GateRecipe& g) {
  self_attn(r).gate.push_back(g);
  return r;
}

double mean_gate(const Trained& run) {  // over layers and rows; of a constant gate: of its values
  const ToyLook& l = run.end();
  if (!l.gate_idle.empty())
    return mean_of(l.gate_active) > 0 ? 0.5 * (mean_of(l.gate_idle) + mean_of(l.gate_active))
                                      : mean_of(l.gate_idle);
  double sum = 0, count = 0;
  for (const Weight& w : run.model->weights)
    if (w.name.find(".gate") != std::string::npos && w.name.ends_with(".value"))
      for (Dim i = 0; i < w.size(); ++i) sum += 1 / (1 + std::exp(-w.get(0, i))), count += 1;
  return count > 0 ? sum / count : NAN;
}

Cell number_or(double x, int decimals = 3) { return std::isfinite(x) ? Cell(x, decimals) : Cell("-"); }

// Eigenvalues of a symmetric matrix [n][n], by Jacobi's rotations.
std::vector<double> eigenvalues(std::vector<double> a, Dim n) {
  auto at = [&](Dim i, Dim j) -> double& { return a[static_cast<std::size_t>(i * n + j)]; };
  for (int sweep = 0; sweep < 30; ++sweep)
    for (Dim p = 0; p < n; ++p)
      for (Dim q = p + 1; q < n; ++q) {
        if (at(p, q) == 0) continue;
        const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (Dim k = 0; k < n; ++k) {
          const double x = at(k, p), y = at(k, q);
          at(k, p) = c * x - s * y, at(k, q) = s * x + c * y;
        }
        for (Dim k = 0; k < n; ++k) {
          const double x = at(p, k), y = at(q, k);
          at(p, k) = c * x - s * y, at(q, k) = s * x + c * y;
        }
      }
  std::vector<double> out;
  for (Dim i = 0; i < n; ++i) out.push_back(std::max(0.0, at(i, i)));
  return out;
}

// Of a product of two matrices that are symmetric and not negative: a = L L^T, and L^T b L has the same ones.
std::vector<double> product_eigenvalues(std::vector<double> a, const std::vector<double>& b, Dim n) {
  auto in = [n](auto& m, Dim i, Dim j) -> auto& { return m[static_cast<std::size_t>(i * n + j)]; };
  double trace = 0;
  for (Dim i = 0; i < n; ++i) trace += in(a, i, i);
  std::vector<double> l(a.size()), lb(a.size()), out(a.size());
  for (Dim j = 0; j < n; ++j)
    for (Dim i = j; i < n; ++i) {
      double x = in(a, i, j);
      for (Dim k = 0; k < j; ++k) x -= in(l, i, k) * in(l, j, k);
      const double least = 1e-12 * trace;  // a may be singular
      in(l, i, j) = i == j ? std::sqrt(std::max(x, least)) : x / std::max(in(l, j, j), least);
    }
  for (Dim i = 0; i < n; ++i)
    for (Dim j = 0; j < n; ++j)
      for (Dim k = 0; k < n; ++k) in(lb, i, j) += in(l, k, i) * in(b, k, j);
  for (Dim i = 0; i < n; ++i)
    for (Dim j = 0; j < n; ++j)
      for (Dim k = 0; k < n; ++k) in(out, i, j) += in(lb, i, k) * in(l, k, j);
  return eigenvalues(std::move(out), n);
}

// Of eigenvalues that are squares of singular values: exp of the entropy of the singular values' shares.
double effective_rank(const std::vector<double>& squares) {
  double sum = 0, entropy = 0;
  for (double x : squares) sum += std::sqrt(x);
  for (double x : squares)
    if (const double p = std::sqrt(x) / sum; p > 0) entropy -= p * std::log(p);
  return std::exp(entropy);
}

// A head reads its input through W_V and writes through W_O. With gate g_t the map of row t is
// M_t = W_O diag(g_t) W_V. Means over heads and layers.
struct HeadMaps {
  double rank = 0;  // effective rank of W_O W_V
  double maps = 0;  // effective number of different maps M_t over rows: 1 without a gate
  double not_fixed = 0;  // share of the head's output that a gate standing at its mean does not give
};

HeadMaps head_maps(Device& device, const Model& model, const ToyTask& task, Dim length) {
  std::vector<std::vector<double>> gates, z;  // by layer: [rows][heads][d]
  Taps taps;
  auto values = [](const Tensor& t) {
    std::vector<double> out;
    for (Dim i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
    return out;
  };
  taps.see(site::gate(GateRecipe::At::sdpa), [&](const Tapped& t) { gates.push_back(values(t.value)); });
  taps.see(site::z, [&](const Tapped& t) { z.push_back(values(t.value)); });
  Run run(device);
  run.taps = &taps;
  const CopyTask::Batch data = task(~std::uint64_t{4}, 4, length);
  forward(run, model, toy_batch(data, length));
  auto weight = [&](std::size_t layer, const char* name) -> const Weight& {
    for (const Weight& w : model.weights)
      if (w.name == concat("decoder.", layer, ".self.", name, ".weight")) return w;
    fail("no weight '", name, "' in layer ", layer);
  };
  HeadMaps out;
  double heads = 0;
  for (std::size_t l = 0; l < z.size(); ++l) {
    const Weight &v = weight(l, "v"), &o = weight(l, "o");
    const Dim d = v.rows / model.recipe.decoder->layer(0).parts[0].self()->heads, all = v.rows,
              rows = static_cast<Dim>(z[l].size()) / all;
    for (Dim h = 0; h < all / d; ++h) {
      // Products of the columns of W_O, and of the rows of W_V.
      std::vector<double> oo(static_cast<std::size_t>(d * d)), vv(oo);
      for (Dim i = 0; i < d; ++i)
        for (Dim j = 0; j < d; ++j) {
          const auto ij = static_cast<std::size_t>(i * d + j);
          for (Dim c = 0; c < o.rows; ++c) oo[ij] += o.get(c, h * d + i) * o.get(c, h * d + j);
          for (Dim c = 0; c < v.cols; ++c) vv[ij] += v.get(h * d + i, c) * v.get(h * d + j, c);
        }
      out.rank += effective_rank(product_eigenvalues(oo, vv, d));
      auto gate = [&](Dim r, Dim i) {
        return gates.empty() ? 1.0 : gates[l][static_cast<std::size_t>(r * all + h * d + i)];
      };
      std::vector<double> gg(static_cast<std::size_t>(d * d)), kernel(gg), mean(static_cast<std::size_t>(d));
      for (Dim i = 0; i < d; ++i)
        for (Dim j = 0; j < d; ++j) {
          const auto ij = static_cast<std::size_t>(i * d + j);
          for (Dim r = 0; r < rows; ++r) gg[ij] += gate(r, i) * gate(r, j);
          kernel[ij] = oo[ij] * vv[ij];  // <o_i v_i^T, o_j v_j^T>
        }
      out.maps += effective_rank(product_eigenvalues(kernel, gg, d));
      for (Dim i = 0; i < d; ++i)
        for (Dim r = 0; r < rows; ++r)
          mean[static_cast<std::size_t>(i)] += gate(r, i) / static_cast<double>(rows);
      double moved = 0, size = 0;
      for (Dim r = 0; r < rows; ++r)
        for (Dim c = 0; c < o.rows; ++c) {
          double y = 0, fixed = 0;
          for (Dim i = 0; i < d; ++i) {
            const double part = o.get(c, h * d + i) * z[l][static_cast<std::size_t>(r * all + h * d + i)];
            y += part, fixed += part * mean[static_cast<std::size_t>(i)] / gate(r, i);
          }
          moved += (y - fixed) * (y - fixed), size += y * y;
        }
      out.not_fixed += moved > 1e-12 * size ? moved / size : 0;
      heads += 1;
    }
  }
  heads = std::max(heads, 1.0);
  out.rank /= heads, out.maps /= heads, out.not_fixed /= heads;
  return out;
}

// Weight of rows on the first token by the head that gives it most.
double strongest_head(Device& device, const Model& model, const ToyTask& task, Dim length) {
  const CopyTask::Batch data = task(~std::uint64_t{1}, 32, length);
  std::vector<double> shares;
  Taps taps;
  taps.first_keys = 1;
  taps.see(site::attn_stats, [&](const Tapped& t) {
    for (Dim h = 0; h < t.value[1]; ++h) {
      double sum = 0, rows = 0;
      for (Dim r = 0; r < t.value[0]; ++r)
        if (data.kind[static_cast<std::size_t>(r)] == 0)
          sum += t.value.at((r * t.value[1] + h) * t.value[2] + AttentionStat::first), rows += 1;
      shares.push_back(sum / rows);
    }
  });
  Run run(device);
  run.taps = &taps;
  forward(run, model, toy_batch(data, length));
  return most_of(shares);
}

// Qiu et al. 2025, tables 3 and 4: gate mean, weight on the first token, peak, perplexity.
const char* paper_row(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kRows[] = {
      {"none", "- / 0.467 / 1053 / 6.026"},
      {"G1", "0.116 / 0.048 / 94 / 5.761"},
      {"G1 per head", "0.172 / 0.073 / 98 / 5.792"},
      {"G1 shared by heads", "0.271 / 0.301 / 286 / 5.801"},
      {"G1 SiLU", "- / - / - / 5.822"},
      {"G1 added SiLU", "- / - / - / 5.821"},
      {"G1 ns-sigmoid", "0.653 / 0.451 / 892 / 5.900"},
      {"G1 constant", "0.335 / 0.364 / 471 / 5.917"},
      {"norm on z", "- / - / - / 5.847"},
      {"G2 (v)", "0.221 / 0.297 / 125 / 5.820"},
      {"G3 (k)", "- / - / - / 6.016"},
      {"G4 (q)", "- / - / - / 5.981"},
      {"G5 (out)", "- / - / - / 6.017"}};
  for (const auto& [gate, numbers] : kRows)
    if (name == gate) return numbers;
  return "";
}

}  // namespace

LabResult gate(const Lab& lab) {
  using At = GateRecipe::At;
  const ToyTask copies = copy_task(lab.seed);
  const TextTask text = text_task(lab, true);
  std::vector<Toy> toys;
  auto on_text = [&](Text name, Recipe recipe) {
    toys.push_back({.name = std::move(name),
                    .recipe = std::move(recipe),
                    .task = text.task,
                    .seed = lab.seed,
                    .steps = 550,
                    .batch = 16,
                    .length = kLength});
  };
  auto base = [&](Dim ffn = kFfn) { return with_ffn(toy_recipe(2, kHeads, text.vocab), ffn); };
  enum { none, again, wide, g1, per_head, shared, silu, added, ns, constant, z_norm, g2, g3, g4, g5 };
  on_text(say("lab.gate.n.none"), base());
  on_text(say("lab.gate.n.again"), base());  // what a seed alone changes
  toys.back().seed = lab.seed + 1000;
  on_text(say("lab.gate.n.wide"), base(kFfn + kWidth / 3));  // three matrices instead of one of [48, 48]
  on_text("G1", gated(base(), {}));
  on_text(say("lab.gate.n.per_head"), gated(base(), {.grain = GateGrain::head}));
  on_text(say("lab.gate.n.shared"), gated(base(), {.heads = GateRecipe::Heads::shared}));
  on_text("G1 SiLU", gated(base(), {.act = Act::silu}));
  on_text(say("lab.gate.n.added"), gated(base(), {.act = Act::silu, .op = GateRecipe::Op::add}));
  on_text("G1 ns-sigmoid", gated(base(), {.act = Act::ns_sigmoid}));
  on_text(say("lab.gate.n.constant"), gated(base(), {.from = GateRecipe::From::constant}));
  Recipe normed = base();
  self_attn(normed).z_norm = NormRecipe{};
  on_text(say("lab.gate.n.z_norm"), normed);
  on_text("G2 (v)", gated(base(), {.at = At::v}));
  on_text("G3 (k)", gated(base(), {.at = At::k}));
  on_text("G4 (q)", gated(base(), {.at = At::q}));
  on_text("G5 (out)", gated(base(), {.at = At::out}));
  const std::size_t copy = toys.size();  // from here on the copying task
  auto on_copies = [&](Text name, Recipe recipe) {
    toys.push_back({.name = std::move(name), .recipe = std::move(recipe), .task = copies, .seed = lab.seed});
  };
  on_copies(say("lab.gate.n.copy"), toy_recipe());
  on_copies(say("lab.gate.n.copy_g1"), gated(toy_recipe(), {}));
  on_copies(say("lab.gate.n.copy_ns"), gated(toy_recipe(), {.act = Act::ns_sigmoid}));
  on_copies(say("lab.gate.n.copy_constant"), gated(toy_recipe(), {.from = GateRecipe::From::constant}));
  on_copies(say("lab.gate.n.copy_ffn"), with_ffn(toy_recipe()));
  on_copies(say("lab.gate.n.copy_ffn_g1"), with_ffn(gated(toy_recipe(), {})));
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{.title = say("lab.gate.text_table"),
              .columns = {say("lab.gate.gate"), say("lab.gate.parameters"), say("lab.gate.held_out"),
                          say("lab.gate.mean"), say("lab.gate.first"), say("lab.gate.strongest"),
                          say("lab.sinks.peak"), say("lab.gate.paper")}};
  std::vector<double> strongest;
  for (std::size_t i = 0; i < copy; ++i) {
    const ToyLook& l = runs[i].end();
    strongest.push_back(strongest_head(lab.device, *runs[i].model, text.task, kLength));
    table.rows.push_back({runs[i].name, Cell(static_cast<double>(runs[i].model->parameters()), 0),
                          Cell(l.loss, 4), number_or(mean_gate(runs[i])), Cell(mean_of(l.idle)),
                          Cell(strongest.back()), Cell(most_of(l.first_peak), 1), paper_row(runs[i].name)});
  }
  Table copied{.title = say("lab.gate.copy_table"),
               .columns = {say("lab.gate.gate"), say("lab.gate.parameters"), say("lab.excess_loss"),
                           say("lab.gate.spikes"), say("lab.gate.mean_idle"), say("lab.gate.mean_copying"),
                           say("lab.sinks.idle_mean"), say("lab.sinks.peak")}};
  for (std::size_t i = copy; i < runs.size(); ++i) {
    const ToyLook& l = runs[i].end();
    const bool reads = !l.gate_idle.empty();
    copied.rows.push_back({runs[i].name, Cell(static_cast<double>(runs[i].model->parameters()), 0),
                           Cell(l.excess, 4), Cell(runs[i].spikes, 0),
                           number_or(reads ? mean_of(l.gate_idle) : mean_gate(runs[i])),
                           number_or(reads ? mean_of(l.gate_active) : mean_gate(runs[i])),
                           Cell(mean_of(l.idle)), Cell(most_of(l.first_peak), 1)});
  }
  const HeadMaps bare = head_maps(lab.device, *runs[none].model, text.task, kLength),
                 open = head_maps(lab.device, *runs[g1].model, text.task, kLength);
  Table maps{.title = say("lab.gate.map_table"),
             .columns = {say("lab.gate.gate"), say("lab.gate.head_width"), say("lab.gate.rank"),
                         say("lab.gate.maps"), say("lab.gate.not_fixed")}};
  maps.rows.push_back({runs[none].name, Cell(kWidth / kHeads, 0), Cell(bare.rank, 1), Cell(bare.maps, 1),
                       Cell(100 * bare.not_fixed, 1)});
  maps.rows.push_back({runs[g1].name, Cell(kWidth / kHeads, 0), Cell(open.rank, 1), Cell(open.maps, 1),
                       Cell(100 * open.not_fixed, 1)});
  auto held_out = [&](std::size_t i) { return runs[i].end().loss; };
  Chart chart{
      .title = say("lab.gate.chart"), .x_label = say("lab.step"), .y_label = say("lab.gate.gain_axis")};
  for (std::size_t i : {wide, g1, per_head, constant, g2}) {  // what each gains on the model without a gate
    Curve gain = loss_curve(runs[i]);
    const Curve base_curve = loss_curve(runs[none]);
    double smooth = 0;
    for (std::size_t k = 0; k < gain.y.size(); ++k) {
      smooth = k == 0 ? gain.y[k] - base_curve.y[k] : 0.8 * smooth + 0.2 * (gain.y[k] - base_curve.y[k]);
      gain.y[k] = smooth;
    }
    chart.curves.push_back(std::move(gain));
  }
  out.document.parts = {Words{say("lab.gate.models", kWidth, kHeads, kFfn, kLength)}, chart, table, copied,
                        maps};

  const ToyLook &plain = runs[copy].end(), &closed = runs[copy + 1].end();
  auto share = [&](std::size_t i) { return mean_of(runs[copy + i].end().idle); };
  const double wide_share = share(5) / share(4);
  std::size_t best = none, control = ns;
  for (std::size_t i = 0; i < copy; ++i)
    if (i != again && held_out(i) < held_out(best)) best = i;
  for (std::size_t i : {ns, constant, z_norm, g3, g4})
    if (held_out(i) < held_out(control)) control = i;
  const bool text_sink = strongest[none] > 0.3;
  const double gate_mean = mean_gate(runs[g1]), text_gate = std::isfinite(gate_mean) ? gate_mean : 1;
  const double text_share = mean_of(runs[g1].end().idle) / mean_of(runs[none].end().idle);
  out.findings = {
      below(say("lab.gate.f.loss"), held_out(g1) - held_out(none), 0, "nats", say("lab.gate.p.loss"), false),
      below(say("lab.gate.f.equal"), held_out(g1) - held_out(wide), 0, "nats", say("lab.gate.p.equal"),
            false),
      below(say("lab.gate.f.control"), held_out(g1) - held_out(control), 0, "nats", say("lab.gate.p.control"),
            false),
      above(say("lab.gate.f.text_sink"), strongest[none], 0.3, "", say("lab.sinks.qiu", "0.467"), false),
      below(say("lab.gate.f.text_share"), text_share, 1, "x", say("lab.sinks.qiu_to", "0.467", "0.048"),
            false),
      below(say("lab.gate.f.mean"), text_gate, 0.5, "", say("lab.sinks.qiu", "0.116"), false),
      below(say("lab.gate.f.share"), share(1) / share(0), 1, "x", say("lab.sinks.qiu_to", "0.467", "0.048")),
      below(say("lab.gate.f.peak"), most_of(closed.first_peak) / most_of(plain.first_peak), 1, "x",
            say("lab.sinks.qiu_to", "1053", "94")),
      below(say("lab.gate.f.follows"), mean_of(closed.gate_idle) / mean_of(closed.gate_active), 1, "x",
            say("lab.gate.p.follows")),
      below(say("lab.gate.f.copy_loss"), closed.excess - plain.excess, 0.002, "nats"),
      above(say("lab.gate.f.ns"), share(2) / share(1), 1, "x", say("lab.sinks.qiu", "0.451 / 0.048"), false),
      above(say("lab.gate.f.constant"), share(3) / share(1), 1, "x", say("lab.sinks.qiu", "0.364 / 0.048"),
            false),
      below(say("lab.gate.f.ffn_share"), wide_share, 1, "x", "", false),
      below(say("lab.gate.f.rank"), bare.rank, static_cast<double>(kWidth / kHeads) + 0.01, ""),
      above(say("lab.gate.f.maps"), open.maps, 1.5, "", say("lab.gate.p.maps")),
      above(say("lab.gate.f.not_fixed"), 100 * open.not_fixed, 5, "%"),
  };
  const double gain = held_out(none) - held_out(g1), equal = held_out(wide) - held_out(g1),
               noise = std::abs(held_out(again) - held_out(none));
  out.verdict = sentences(
      {say(gain <= noise    ? "lab.gate.v.no_gain"
           : equal > noise  ? "lab.gate.v.gain"
           : equal > -noise ? "lab.gate.v.gain_of_size"
                            : "lab.gate.v.gain_less",
           digits(held_out(none), 3), digits(held_out(g1), 3), digits(held_out(wide), 3), digits(noise, 3)),
       say(held_out(control) - held_out(g1) > noise ? "lab.gate.v.control_worse"
                                                    : "lab.gate.v.control_as_well",
           runs[control].name, digits(held_out(control), 3), runs[best].name, digits(held_out(best), 3)),
       say("lab.gate.v.text_mean", digits(text_gate, 2)),
       say(text_sink ? (text_share < 1 ? "lab.gate.v.text_sink_less" : "lab.gate.v.text_sink_more")
                     : "lab.gate.v.text_no_sink",
           digits(strongest[none], 2), digits(strongest[g1], 2), digits(mean_of(runs[none].end().idle), 2),
           digits(equal_share(kLength), 2)),
       say(share(1) < share(0) ? "lab.gate.v.share" : "lab.gate.v.share_not", digits(share(0), 2),
           digits(share(1), 2), digits(most_of(closed.first_peak) / most_of(plain.first_peak), 2)),
       say(wide_share < 1 ? "lab.gate.v.ffn_less" : "lab.gate.v.ffn_more", digits(share(4), 2),
           digits(share(5), 2)),
       closed.gate_idle.empty()
           ? Text()
           : say(closed.gate_least > 0 ? "lab.gate.v.follows" : "lab.gate.v.follows_zero",
                 digits(mean_of(closed.gate_idle), 2), digits(mean_of(closed.gate_active), 2),
                 digits(100 * closed.gate_low, 0)),
       say(share(2) <= share(1) || share(3) <= share(1) ? "lab.gate.v.closing_not" : "lab.gate.v.closing",
           digits(share(2), 2), digits(share(3), 2)),
       say(open.maps > 1.5 ? "lab.gate.v.maps" : "lab.gate.v.maps_not", kWidth / kHeads, digits(bare.rank, 1),
           digits(open.rank, 1), digits(open.maps, 1), digits(100 * open.not_fixed, 0)),
       runs[copy].spikes + runs[copy + 1].spikes == 0
           ? say("lab.gate.v.no_spikes")
           : say("lab.gate.v.spikes", runs[copy].spikes, runs[copy + 1].spikes)});
  return out;
}

}  // namespace rapt
