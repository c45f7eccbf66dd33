// SPDX-License-Identifier: Apache-2.0
// Experiments on the first token: the attention that idles there, the activations that grow there, and what gates do to both.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

Recipe with(Recipe r, const std::function<void(AttnRecipe&)>& change) {
  change(self_attn(r));
  return r;
}
Recipe with_gate(const GateRecipe& g) {
  return with(toy_recipe(), [&](AttnRecipe& a) { a.gate.push_back(g); });
}

// Of the layer where the sink is strongest.
std::size_t sink_layer(const ToyLook& look) {
  return static_cast<std::size_t>(std::max_element(look.idle.begin(), look.idle.end()) - look.idle.begin());
}

double mean_gate(const Trained& run) {  // over layers and rows; of a constant gate: of its values
  if (!run.end().gate_idle.empty()) return 0.5 * (mean_of(run.end().gate_idle) + mean_of(run.end().gate_active));
  double sum = 0, count = 0;
  for (const Weight& w : run.model->weights)
    if (w.name.find(".gate") != std::string::npos && w.name.ends_with(".value"))
      for (Dim i = 0; i < w.size(); ++i) sum += 1 / (1 + std::exp(-w.get(0, i))), count += 1;
  return count > 0 ? sum / count : NAN;
}

Cell number_or(double x, int decimals = 3) { return std::isfinite(x) ? Cell(x, decimals) : Cell("-"); }

}  // namespace

LabResult sink(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed), no_begin = copy_task(lab.seed, false);
  auto toy = [&](std::string name, Recipe recipe) {
    return Toy{.name = std::move(name), .recipe = std::move(recipe), .task = task, .seed = lab.seed};
  };
  std::vector<Toy> toys;
  toys.push_back(toy("softmax", toy_recipe()));
  toys.back().looks = 10;
  toys.push_back(toy("gate G1", with_gate({})));
  toys.push_back(toy("sigmoid", with(toy_recipe(), [](AttnRecipe& a) { a.normal = Normal::sigmoid; })));
  toys.push_back(toy("no first token", toy_recipe()));
  toys.back().task = no_begin;
  toys.push_back(toy("QK-norm", with(toy_recipe(), [](AttnRecipe& a) { a.qk_norm = QkNormRecipe{}; })));
  toys.push_back(toy("off by one", with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::zero_logit; })));
  toys.push_back(toy("learned logit", with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::learned_logit; })));
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const ToyLook &soft = runs[0].end(), &gated = runs[1].end(), &sig = runs[2].end(), &bare = runs[3].end(), &normed = runs[4].end();

  LabResult out;
  Table table{.title = "after training: weight of idle and of copying queries on the first token",
              .columns = {"variant", "excess loss", "idle by layer", "idle mean", "of the row's sum", "copying mean", "|v| first/others",
                          "|k| first/others", "cosine of idle queries with the first key", "with others", "peak |h| first token"}};
  for (const Trained& r : runs) {
    const ToyLook& l = r.end();
    table.rows.push_back({r.name, Cell(l.excess, 4), joined(l.idle), Cell(mean_of(l.idle)), Cell(mean_of(l.idle_of_sum)),
                          Cell(mean_of(l.trigger)), Cell(l.value_ratio[sink_layer(l)], 2), Cell(l.key_ratio[sink_layer(l)], 2),
                          Cell(l.first_cosine[sink_layer(l)], 2), Cell(l.other_cosine[sink_layer(l)], 2), Cell(most_of(l.first_peak), 1)});
  }
  Chart emergence{.title = "the sink emerges", .x_label = "step", .y_label = "weight of idle queries on the first token"};
  for (std::size_t layer = 0; layer < soft.idle.size(); ++layer) {
    Curve c{.name = concat("layer ", layer)};
    for (const ToyLook& l : runs[0].looks) c.x.push_back(static_cast<double>(l.step)), c.y.push_back(l.idle[layer]);
    emergence.curves.push_back(std::move(c));
  }
  const std::size_t at = sink_layer(soft);
  out.document.parts = {table, emergence,
                        attention_picture(lab.device, *runs[0].model, task, 32, static_cast<int>(at),
                                          concat("softmax, layer ", at, ": rows that copy (*) look back, the others at the beginning"))};
  const double share = mean_of(soft.idle);
  out.findings = {
      above("weight of idle queries on the first token, strongest layer", soft.idle[at], 0.3, "",
            "Sink_1 97 % of heads in Mistral-7B, 99 % in Llama 3 8B (Gu et al. 2025)"),
      below("copying against idle queries on the first token", mean_of(soft.trigger) / share, 1, "x",
            "heads are dormant or active by token (Guo et al. 2024)"),
      below("value norm of the first token against the others, sink layer", soft.value_ratio[at], 1, "x",
            "near zero in Llama 3 8B (Gu et al. 2025, figure 2)"),
      below("idle weight on the first token, gate G1 against softmax", mean_of(gated.idle) / share, 1, "x",
            "0.467 -> 0.048 (Qiu et al. 2025, table 4)"),
      below("idle weight on the first token, sigmoid attention against softmax", mean_of(sig.idle) / share, 1, "x",
            "Sink_1 18.18 % -> 0.44 % (Gu et al. 2025)"),
      below("the same as a share of what the row gives in all (sigmoid's rows do not sum to 1)", mean_of(sig.idle_of_sum) / share, 1, "x",
            "", false),
      below("idle weight on the first token where no sequence has a beginning, against softmax", mean_of(bare.idle) / share, 1, "x"),
      above("idle weight on the first token with QK-norm, strongest layer", most_of(normed.idle), 0.3, ""),
      below("idle weight on the first token, softmax off by one against softmax", mean_of(runs[5].end().idle) / share, 1, "x",
            "zero sink still needs first tokens: perplexity 29214 without, 18.0 with four (Xiao et al. 2024)", false),
      below("idle weight on the first token, learned logit against softmax", mean_of(runs[6].end().idle) / share, 1, "x",
            "extra key without a token: Sink_1 0.00 (Gu et al. 2025)", false),
      above("cosine of idle queries with the first key minus with the others, sink layer", soft.first_cosine[at] - soft.other_cosine[at], 0,
            "", "the cosine makes the sink (Gu et al. 2025, figure 2)"),
      below("key norm of the first token against the others, sink layer", soft.key_ratio[at], 1, "x",
            "about a fifth in Llama 3 8B (Gu et al. 2025, figure 2)", false),
  };
  out.verdict =
      concat("Queries that have nothing to look for put ", digits(soft.idle[at], 2), " of their attention on the first token in layer ", at,
             ", those that copy ", digits(soft.trigger[at], 3), "; its value there has ", digits(soft.value_ratio[at], 2),
             " of the others' norm, its key ", digits(soft.key_ratio[at], 2), ", and idle queries point to it with a cosine of ",
             digits(soft.first_cosine[at], 2), " against ", digits(soft.other_cosine[at], 2), " to others: ",
             soft.first_cosine[at] - soft.other_cosine[at] <= 0.2 ? "direction alone does not explain it here. "
             : soft.key_ratio[at] < 1                             ? "direction makes the sink, not size. "
                                                                  : "direction makes the sink far more than size. ",
             "Sigmoid attention ", mean_of(sig.idle) < 0.1 * share ? "has no such need" : "keeps some of it", " (",
             digits(mean_of(sig.idle) / share, 2), " times), the gate makes it ", digits(mean_of(gated.idle) / share, 2),
             " times as strong, QK-norm ", most_of(normed.idle) > 0.3 ? "keeps it" : "weakens it", " (", digits(most_of(normed.idle), 2),
             "); an extra logit ",
             (mean_of(runs[5].end().idle) < 0.5 * share) == (mean_of(runs[6].end().idle) < 0.5 * share)
                 ? (mean_of(runs[5].end().idle) < 0.5 * share ? "took it away in this run, which is not so in every run."
                                                              : "did not take it away here.")
                 : "took it away in one of its two forms only.");
  return out;
}

LabResult massive(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  auto toy = [&](std::string name, Recipe recipe) {
    return Toy{.name = std::move(name), .recipe = std::move(recipe), .task = task, .seed = lab.seed};
  };
  const std::vector<Trained> runs = train_toys(
      lab, {toy("softmax", toy_recipe()), toy("gate G1", with_gate({})), toy("value gate G2", with_gate({.at = GateRecipe::At::v})),
            toy("key/value slot", with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::kv_slots; })),
            toy("off by one", with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::zero_logit; })),
            toy("sigmoid", with(toy_recipe(), [](AttnRecipe& a) { a.normal = Normal::sigmoid; }))});
  LabResult out;
  Table table{.title = "the residual stream after each layer",
              .columns = {"variant", "excess loss", "peak |h|, first token", "peak, others", "peak over median", "massive (Sun et al.)",
                          "idle weight on the first token"}};
  Chart chart{.title = "largest |h| of the first token", .x_label = "layer", .y_label = "|h|"};
  auto peak = [](const Trained& r) { return most_of(r.end().first_peak); };
  auto over_median = [](const ToyLook& l) {
    double most = 0;
    for (std::size_t i = 0; i < l.median.size(); ++i)
      most = std::max(most, l.median[i] > 0 ? std::max(l.first_peak[i], l.other_peak[i]) / l.median[i] : 0);
    return most;
  };
  for (const Trained& r : runs) {
    const ToyLook& l = r.end();
    const double top = std::max(most_of(l.first_peak), most_of(l.other_peak));
    table.rows.push_back({r.name, Cell(l.excess, 4), joined(l.first_peak, 1), joined(l.other_peak, 1), Cell(over_median(l), 1),
                          top > 100 && over_median(l) > 1000 ? "yes" : "no", Cell(mean_of(l.idle))});
    Curve c{.name = r.name};
    for (std::size_t i = 0; i < l.first_peak.size(); ++i) c.x.push_back(static_cast<double>(i + 1)), c.y.push_back(l.first_peak[i]);
    chart.curves.push_back(std::move(c));
  }
  out.document.parts = {table, chart};
  const double share = mean_of(runs[0].end().idle), g2 = mean_of(runs[2].end().idle) / share, g2_peak = peak(runs[2]) / peak(runs[0]);
  // How much further the peak fell than the attention did.
  auto apart = [&](std::size_t r) { return peak(runs[r]) / peak(runs[0]) / (mean_of(runs[r].end().idle) / share); };
  std::size_t parting = 1;
  for (std::size_t r = 2; r < 5; ++r)  // those with softmax
    if (apart(r) < apart(parting)) parting = r;
  const double slot = mean_of(runs[3].end().idle) / share;
  out.findings = {
      below("peak |h| of the first token, gate G1 against softmax", peak(runs[1]) / peak(runs[0]), 1, "x",
            "1053 -> 94 (Qiu et al. 2025, table 4)"),
      below("peak |h| of the first token, value gate G2 against softmax", g2_peak, 1, "x",
            "1053 -> 125, with 0.297 of the attention still on the first token (Qiu et al. 2025)", false),
      below("idle weight on the first token, value gate G2 against softmax", g2, 1, "x", "0.467 -> 0.297 (Qiu et al. 2025)", false),
      below("idle weight on the first token, learned key/value slot against softmax", slot, 1, "x",
            "Sink_1 18.18 % -> 0.04 % (Gu et al. 2025)", false),
      below("peak |h| of the first token, learned key/value slot against softmax", peak(runs[3]) / peak(runs[0]), 1, "x",
            "no massive activations with an attention bias, loss 3.04 either way (Sun et al. 2024)", false),
      below("what is left of the peak over what is left of the attention, where they part most", apart(parting), 1, "x",
            "value gate: 0.12 and 0.64 (Qiu et al. 2025, table 4)"),
      below("peak over median, softmax", over_median(runs[0].end()), 1000, "x", "small models miss the criterion: Pythia-160M about 330"),
  };
  out.verdict = concat(
      "The first token's largest activation is ", digits(peak(runs[0]), 1), " with softmax, ", digits(peak(runs[1]), 1), " with a gate, ",
      digits(peak(runs[3]), 1), " with a learned key/value slot; ", digits(over_median(runs[0].end()), 0), " times the median is ",
      over_median(runs[0].end()) < 1000 ? "below the 1,000 that massive means, as in all small models" : "what massive means",
      ". The two part most with ", runs[parting].name, ": peak ", digits(peak(runs[parting]) / peak(runs[0]), 2), " times, attention ",
      digits(mean_of(runs[parting].end().idle) / share, 2), " times that of softmax",
      apart(parting) < 0.7 ? ", so one goes without the other: they are not one coin."
                           : ", too near each other to say that they are not one coin.",
      " The value gate: ", digits(g2_peak, 2), " and ", digits(g2, 2), " times.");
  return out;
}

LabResult gate(const Lab& lab) {
  using At = GateRecipe::At;
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](std::string name, Recipe recipe) {
    toys.push_back({.name = std::move(name), .recipe = std::move(recipe), .task = task, .seed = lab.seed});
  };
  add("none", toy_recipe());
  add("G1", with_gate({}));
  add("G1 per head", with_gate({.grain = GateGrain::head}));
  add("G1 silu", with_gate({.act = Act::silu}));
  add("G1 added silu", with_gate({.act = Act::silu, .op = GateRecipe::Op::add}));
  add("G1 ns-sigmoid", with_gate({.act = Act::ns_sigmoid}));
  add("G1 constant", with_gate({.from = GateRecipe::From::constant}));
  add("norm on z", with(toy_recipe(), [](AttnRecipe& a) { a.z_norm = NormRecipe{}; }));
  add("G2 (v)", with_gate({.at = At::v}));
  add("G3 (k)", with_gate({.at = At::k}));
  add("G4 (q)", with_gate({.at = At::q}));
  add("G5 (out)", with_gate({.at = At::out}));
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{.title = "gates side by side (steps whose loss is 0.1 above the local median count as spikes)",
              .columns = {"gate", "parameters", "excess loss", "spikes", "gate mean", "idle rows", "copying rows",
                          "idle weight on the first token", "peak |h|, first token", "paper: gate mean", "first token", "peak"}};
  auto paper = [](const std::string& name) -> std::vector<Cell> {  // Qiu et al. 2025, table 4
    if (name == "none") return {"-", "0.467", "1053"};
    if (name == "G1") return {"0.116", "0.048", "94"};
    if (name == "G1 per head") return {"0.172", "0.073", "98"};
    if (name == "G2 (v)") return {"0.221", "0.297", "125"};
    if (name == "G1 constant") return {"0.335", "0.364", "471"};
    if (name == "G1 ns-sigmoid") return {"0.653", "0.451", "892"};
    return {"", "", ""};
  };
  Chart chart{.title = "loss", .x_label = "step", .y_label = "nats above the floor", .log_y = true};
  for (const Trained& r : runs) {
    const ToyLook& l = r.end();
    const bool reads = !l.gate_idle.empty();
    std::vector<Cell> row = {r.name,
                             Cell(static_cast<double>(r.model->parameters()), 0),
                             Cell(l.excess, 4),
                             Cell(r.spikes, 0),
                             number_or(mean_gate(r)),
                             number_or(reads ? mean_of(l.gate_idle) : NAN),
                             number_or(reads ? mean_of(l.gate_active) : NAN),
                             Cell(mean_of(l.idle)),
                             Cell(most_of(l.first_peak), 1)};
    for (Cell& c : paper(r.name)) row.push_back(std::move(c));
    table.rows.push_back(std::move(row));
  }
  for (std::size_t i : {0, 1, 6, 7, 8, 11}) chart.curves.push_back(loss_curve(runs[i]));
  out.document.parts = {table, chart};

  const ToyLook &none = runs[0].end(), &g1 = runs[1].end();
  auto share = [&](std::size_t i) { return mean_of(runs[i].end().idle) / mean_of(none.idle); };
  std::size_t best = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (runs[i].end().excess < runs[best].end().excess) best = i;
  out.findings = {
      below("idle weight on the first token, G1 against none", share(1), 1, "x", "0.467 -> 0.048 (Qiu et al. 2025, table 4)"),
      below("peak |h| of the first token, G1 against none", most_of(g1.first_peak) / most_of(none.first_peak), 1, "x",
            "1053 -> 94 (Qiu et al. 2025, table 4)"),
      below("gate G1 of idle rows against copying rows", mean_of(g1.gate_idle) / mean_of(g1.gate_active), 1, "x",
            "gates are sparse and follow the query"),
      below("loss, G1 minus none", g1.excess - none.excess, 0.002, "nats",
            "perplexity 6.026 -> 5.761, 0.045 nats; 0.009 to 0.012 late in the 3.5T-token runs"),
      above("idle weight with a gate that cannot close (ns-sigmoid) against G1", share(5) / share(1), 1, "x",
            "0.451 against 0.048 (Qiu et al. 2025)", false),
      above("idle weight with a gate that does not read the input against G1", share(6) / share(1), 1, "x",
            "0.364 against 0.048 (Qiu et al. 2025)", false),
      below("spikes, G1 minus none", runs[1].spikes - runs[0].spikes, 0.5, "", "109 -> 0 in the 3.5T-token runs (Qiu et al. 2025)", false),
  };
  out.verdict =
      concat("G1 brings the idle attention on the first token to ", digits(share(1), 2), " and the peak to ",
             digits(most_of(g1.first_peak) / most_of(none.first_peak), 2), " times those without a gate; it stands at ",
             digits(mean_of(g1.gate_idle), 2), " for rows with nothing to copy and at ", digits(mean_of(g1.gate_active), 2),
             " for the others. Controls: ns-sigmoid ", digits(share(5), 2), ", constant ", digits(share(6), 2), ", a norm on z ",
             digits(share(7), 2), " times the attention: ",
             share(5) <= share(1) || share(6) <= share(1) ? "in this run closing by the query is not what made the difference."
             : share(7) <= share(1) ? "a gate that cannot close or does not see the query does less, but so much a norm on z did too."
                                    : "what counts is that the gate can close, and does so by the query.",
             " With G1 the loss is ", digits(std::abs(g1.excess - none.excess), 4), " nats ", g1.excess < none.excess ? "lower" : "higher",
             " (lowest of all: ", runs[best].name, ").");
  return out;
}

}  // namespace rapt
