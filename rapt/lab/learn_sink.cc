// SPDX-License-Identifier: Apache-2.0
// Experiments on the first token: the attention that idles there, the activations that grow there, and what
// gates do to both.
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
  if (!run.end().gate_idle.empty())
    return 0.5 * (mean_of(run.end().gate_idle) + mean_of(run.end().gate_active));
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
  toys.push_back(toy("no beginning token", toy_recipe()));
  toys.back().task = no_begin;
  toys.push_back(toy("QK-norm", with(toy_recipe(), [](AttnRecipe& a) { a.qk_norm = QkNormRecipe{}; })));
  toys.push_back(toy(
      "off by one", with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::zero_logit; })));
  toys.push_back(toy("learned logit", with(toy_recipe(), [](AttnRecipe& a) {
                       a.extra.kind = ExtraRecipe::Kind::learned_logit;
                     })));
  toys.push_back(toy("learned sink token", toy_recipe()));
  toys.back().recipe.embed.sink_tokens = 1;
  toys.push_back(toy("small embeddings", toy_recipe()));
  toys.back().small_tokens = true;
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const ToyLook &soft = runs[0].end(), &gated = runs[1].end(), &sig = runs[2].end(), &bare = runs[3].end(),
                &normed = runs[4].end(), &zero = runs[5].end(), &logit = runs[6].end(),
                &token = runs[7].end(), &small = runs[8].end();

  LabResult out;
  Table table{
      .title = "after training: weight of idle and of copying queries on the first token",
      .columns = {"variant", "excess loss", "idle by layer", "idle mean", "of the row's sum", "copying mean",
                  "|v| first/others", "|k| first/others", "cosine of idle queries with the first key",
                  "with others", "peak |h| first token"}};
  for (const Trained& r : runs) {
    const ToyLook& l = r.end();
    table.rows.push_back({r.name, Cell(l.excess, 4), joined(l.idle), Cell(mean_of(l.idle)),
                          Cell(mean_of(l.idle_of_sum)), Cell(mean_of(l.trigger)),
                          Cell(l.value_ratio[sink_layer(l)], 2), Cell(l.key_ratio[sink_layer(l)], 2),
                          Cell(l.first_cosine[sink_layer(l)], 2), Cell(l.other_cosine[sink_layer(l)], 2),
                          Cell(most_of(l.first_peak), 1)});
  }
  const std::size_t at = sink_layer(soft);
  Table looks{.title = concat("softmax on the way (value norm: layer ", at, ")"),
              .columns = {"step", "excess loss", "idle by layer", "copying by layer", "|v| first/others"}};
  Chart emergence{
      .title = "the sink emerges", .x_label = "step", .y_label = "weight of idle queries on the first token"};
  for (std::size_t layer = 0; layer < soft.idle.size(); ++layer)
    emergence.curves.push_back({.name = concat("layer ", layer)});
  std::string emerged;
  for (const ToyLook& l : runs[0].looks) {
    looks.rows.push_back({Cell(static_cast<double>(l.step), 0), Cell(l.excess, 4), joined(l.idle),
                          joined(l.trigger), Cell(l.value_ratio[at], 2)});
    for (std::size_t layer = 0; layer < l.idle.size(); ++layer) {
      emergence.curves[layer].x.push_back(static_cast<double>(l.step));
      emergence.curves[layer].y.push_back(l.idle[layer]);
    }
    if (emerged.empty() && most_of(l.idle) > 0.3)
      emerged = concat("; the look at step ", l.step, " is the first with more than 0.3");
  }
  out.document.parts = {
      toy_words(), table, looks, emergence,
      attention_picture(
          lab.device, *runs[0].model, task, 32, static_cast<int>(at),
          concat("softmax, layer ", at, ": rows that copy (*) look back, the others at the beginning"))};
  const double share = mean_of(soft.idle);
  auto against = [&](const ToyLook& l) { return mean_of(l.idle) / share; };
  // The scores' difference |q| |k1| c1 - |q| |k| c, divided by |q| |k|, is (c1 - c) + (|k1| / |k| - 1) c1.
  const double direction = soft.first_cosine[at] - soft.other_cosine[at],
               size = (soft.key_ratio[at] - 1) * soft.first_cosine[at];
  const double normed_key = normed.key_ratio[sink_layer(normed)];
  out.findings = {
      above("weight of idle queries on the first token, strongest layer", soft.idle[at], 0.3, "",
            "another measure, the share of heads with more than 0.3: 97 % in Mistral-7B, 99 % in Llama 3 8B "
            "(Gu et al. 2025)"),
      above("the same at the end against before training", soft.idle[at] / runs[0].looks.front().idle[at], 2,
            "x", "appears between 1,000 and 2,000 steps (Gu et al. 2025)"),
      below("copying against idle queries on the first token", mean_of(soft.trigger) / share, 0.1, "x",
            "heads are dormant or active by token (Guo et al. 2024)"),
      below("value norm of the first token against the others, sink layer", soft.value_ratio[at], 1, "x",
            "near zero in Llama 3 8B (Gu et al. 2025, figure 2)"),
      above("cosine of idle queries with the first key minus with the others, sink layer", direction, 0, "",
            "the cosine makes the sink (Gu et al. 2025, figure 2)"),
      above("first key's advantage in score: by direction minus by size", direction - size, 0, "|q||k|", "",
            false),
      below("key norm of the first token against the others, sink layer", soft.key_ratio[at], 1, "x",
            "about a fifth in Llama 3 8B (Gu et al. 2025, figure 2)", false),
      above("idle weight on the first token with QK-norm, strongest layer", most_of(normed.idle), 0.3, ""),
      below("idle weight on the first token, gate G1 against softmax", against(gated), 1, "x",
            "0.467 -> 0.048 (Qiu et al. 2025, table 4)"),
      below("idle weight on the first token, sigmoid attention against softmax", against(sig), 1, "x"),
      below("the same as a share of what the row gives in all (sigmoid's rows do not sum to 1)",
            mean_of(sig.idle_of_sum) / share, 1, "x",
            "heads with more than 0.3 of the row's sum: 18.18 % -> 0.44 % (Gu et al. 2025)", false),
      below("idle weight on the first token where no sequence has a beginning token, against softmax",
            against(bare), 0.3, "x"),
      below("idle weight on the first token, softmax off by one against softmax", against(zero), 1, "x",
            "zero sink still needs first tokens: perplexity 29214 without, 18.0 with four (Xiao et al. 2024)",
            false),
      below("idle weight on the first token, learned logit against softmax", against(logit), 1, "x",
            "not the same: an extra learned key of value zero removes it (Gu et al. 2025)", false),
      below("idle weight on the first token, learned sink token before it, against softmax", against(token),
            1, "x", "removed, 74 % of heads on the learned token instead (Gu et al. 2025)", false),
      above("idle weight on that learned token, strongest layer", most_of(token.idle_learned), 0.3, "", "",
            false),
      above("idle weight on the first token where embeddings start small, strongest layer",
            most_of(small.idle), 0.3, "", "", false),
  };
  out.verdict = concat(
      "Queries that have nothing to look for put ", digits(soft.idle[at], 2),
      " of their attention on the first token in layer ", at, ", those that copy ",
      digits(soft.trigger[at], 3), emerged, ". Its value has ", digits(soft.value_ratio[at], 2),
      " of the others' norm. Of its key's advantage in score, direction makes ", digits(direction, 2),
      " and size ", digits(size, 2), " (in units of |q||k|): ",
      direction <= size        ? "size counts no less, as the story says"
      : soft.key_ratio[at] < 1 ? "direction makes the sink, the key is even the smaller one"
                               : "direction counts more, though the key is not the smaller one as in Llama 3",
      ". With QK-norm the first key is ", digits(normed_key, 2),
      " times as large as the others and the strongest layer gives the first token ",
      digits(most_of(normed.idle), 2),
      most_of(normed.idle) > 0.3 && normed_key < 1.1 ? ": the sink needs no large norm. " : ". ",
      "Sigmoid attention ",
      against(sig) < 0.1 ? "has no sink"
      : against(sig) < 1 ? "weakens the sink but does not remove it"
                         : "does not weaken it",
      " (", digits(against(sig), 2), " times); the gate leaves ", digits(against(gated), 2),
      " of it, softmax off by one ", digits(against(zero), 2), ", a learned logit ",
      digits(against(logit), 2), ", a learned token before the first ", digits(against(token), 2),
      ", no beginning token ", digits(against(bare), 2), ". ",
      most_of(small.idle) > 0.3 ? "Where embeddings start small it forms as well"
                                : "Where embeddings start small it does not form",
      " (", digits(most_of(small.idle), 2), " in the strongest layer).");
  return out;
}

LabResult massive(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  auto toy = [&](std::string name, Recipe recipe) {
    return Toy{.name = std::move(name), .recipe = std::move(recipe), .task = task, .seed = lab.seed};
  };
  const std::vector<Trained> runs = train_toys(
      lab, {toy("softmax", toy_recipe()), toy("gate G1", with_gate({})),
            toy("value gate G2", with_gate({.at = GateRecipe::At::v})),
            toy("key/value slot",
                with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::kv_slots; })),
            toy("off by one",
                with(toy_recipe(), [](AttnRecipe& a) { a.extra.kind = ExtraRecipe::Kind::zero_logit; })),
            toy("sigmoid", with(toy_recipe(), [](AttnRecipe& a) { a.normal = Normal::sigmoid; }))});
  LabResult out;
  Table table{.title = "the residual stream after each layer",
              .columns = {"variant", "excess loss", "peak |h|, first token", "peak, others",
                          "peak over median", "massive (Sun et al.)", "idle weight on the first token"}};
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
    table.rows.push_back({r.name, Cell(l.excess, 4), joined(l.first_peak, 1), joined(l.other_peak, 1),
                          Cell(over_median(l), 1), top > 100 && over_median(l) > 1000 ? "yes" : "no",
                          Cell(mean_of(l.idle))});
    Curve c{.name = r.name};
    for (std::size_t i = 0; i < l.first_peak.size(); ++i)
      c.x.push_back(static_cast<double>(i + 1)), c.y.push_back(l.first_peak[i]);
    chart.curves.push_back(std::move(c));
  }
  out.document.parts = {toy_words(), table, chart};
  const double share = mean_of(runs[0].end().idle);
  auto peak_left = [&](std::size_t r) { return peak(runs[r]) / peak(runs[0]); };
  auto share_left = [&](std::size_t r) { return mean_of(runs[r].end().idle) / share; };
  auto apart = [&](std::size_t r) { return peak_left(r) / share_left(r); };
  std::size_t parting = 1;
  for (std::size_t r = 2; r < 5; ++r)  // those with softmax
    if (apart(r) < apart(parting)) parting = r;
  const ToyLook& soft = runs[0].end();
  const bool is_massive = over_median(soft) > 1000 && std::max(peak(runs[0]), most_of(soft.other_peak)) > 100;
  out.findings = {
      below("peak |h| of the first token, gate G1 against softmax", peak_left(1), 1, "x",
            "1053 -> 94 (Qiu et al. 2025, table 4)"),
      below("peak |h| of the first token, value gate G2 against softmax", peak_left(2), 1, "x",
            "1053 -> 125 (Qiu et al. 2025)", false),
      below("idle weight on the first token, value gate G2 against softmax", share_left(2), 1, "x",
            "0.467 -> 0.297 (Qiu et al. 2025)", false),
      below("what G2 leaves of the peak over what it leaves of the attention", apart(2), 0.7, "x",
            "0.19: 0.12 of the peak, 0.64 of the attention (Qiu et al. 2025, table 4)", false),
      below("idle weight on the first token, learned key/value slot against softmax", share_left(3), 1, "x",
            "heads with more than 0.3: 18.18 % -> 0.04 % (Gu et al. 2025)", false),
      below("peak |h| of the first token, learned key/value slot against softmax", peak_left(3), 1, "x",
            "no massive activations with an attention bias, loss 3.04 either way (Sun et al. 2024)", false),
      above("peak over median, softmax", over_median(soft), 1000, "x",
            "massive: about 1,000 and above 100 (Sun et al. 2024); Pythia-160M 330", false),
  };
  out.verdict = concat(
      is_massive ? "Activations are massive here" : "Nothing here is massive", ": the first token's peak is ",
      digits(peak(runs[0]), 1), ", the others' ", digits(most_of(soft.other_peak), 1), ", ",
      digits(over_median(soft), 0),
      " times the median (1,000 is meant; Pythia-160M reaches 330). The value gate leaves ",
      digits(peak_left(2), 2), " of the peak and ", digits(share_left(2), 2), " of the attention: ",
      apart(2) > 0.7
          ? (apart(2) < 1.4 ? "in this run they go together." : "the attention falls further than the peak.")
      : share_left(2) > 0.9 ? "the peak falls and the attention stays."
                            : "the peak falls further than the attention.",
      " They part most with ", runs[parting].name, ", which leaves ", digits(peak_left(parting), 2),
      " of the peak and ", digits(share_left(parting), 2), " of the attention.");
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
  // From here on with feed-forward parts, whose losses are another matter.
  const std::size_t alike = toys.size();
  add("none, feed-forward", with_ffn(toy_recipe()));
  add("G1, feed-forward", with_ffn(with_gate({})));
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{.title = "gates side by side (steps whose loss is 0.1 above the local median count as spikes)",
              .columns = {"gate", "parameters", "excess loss", "spikes", "gate mean", "idle rows",
                          "copying rows", "idle weight on the first token", "peak |h|, first token",
                          "paper: gate mean", "first token", "peak"}};
  auto paper = [](const std::string& name) -> std::vector<Cell> {  // Qiu et al. 2025, table 4
    if (name == "none") return {"-", "0.467", "1053"};
    if (name == "G1") return {"0.116", "0.048", "94"};
    if (name == "G1 per head") return {"0.172", "0.073", "98"};
    if (name == "G2 (v)") return {"0.221", "0.297", "125"};
    if (name == "G1 constant") return {"0.335", "0.364", "471"};
    if (name == "G1 ns-sigmoid") return {"0.653", "0.451", "892"};
    return {"", "", ""};
  };
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
  Chart chart{.title = "loss", .x_label = "step", .y_label = "nats above the floor", .log_y = true};
  for (std::size_t i : {0, 1, 6, 7, 8, 11}) chart.curves.push_back(loss_curve(runs[i]));
  out.document.parts = {toy_words(), table, chart};

  const ToyLook &none = runs[0].end(), &g1 = runs[1].end();
  auto share = [&](std::size_t i) { return mean_of(runs[i].end().idle) / mean_of(none.idle); };
  auto loss = [&](std::size_t i) { return runs[i].end().excess; };
  const double wide = mean_of(runs[alike + 1].end().idle) / mean_of(runs[alike].end().idle);
  std::size_t best = 0, control = 5;
  for (std::size_t i = 1; i < alike; ++i)
    if (loss(i) < loss(best)) best = i;
  std::string losses;
  for (std::size_t i : {0, 7, 5, 6, 9, 10, 1}) {  // the controls stand between none and G1
    losses += concat(losses.empty() ? "" : ", ", runs[i].name, " ", digits(loss(i), 4));
    if (i != 0 && i != 1 && loss(i) < loss(control)) control = i;
  }
  const double more = 100 * (static_cast<double>(runs[1].model->parameters()) /
                                 static_cast<double>(runs[0].model->parameters()) -
                             1);
  out.findings = {
      below("idle weight on the first token, G1 against none", share(1), 1, "x",
            "0.467 -> 0.048 (Qiu et al. 2025, table 4)"),
      below("peak |h| of the first token, G1 against none", most_of(g1.first_peak) / most_of(none.first_peak),
            1, "x", "1053 -> 94 (Qiu et al. 2025, table 4)"),
      below("gate G1 of idle rows against copying rows", mean_of(g1.gate_idle) / mean_of(g1.gate_active), 1,
            "x", "gates are sparse and follow the query"),
      below("loss, G1 minus none", loss(1) - loss(0), 0.002, "nats",
            "perplexity 6.026 -> 5.761, 0.045 nats; 0.009 to 0.012 late in the 3.5T-token runs"),
      below("loss, G1 minus the best control (norm on z, ns-sigmoid, constant, G3, G4)",
            loss(1) - loss(control), 0, "nats",
            "perplexity 5.761 against 5.847 (norm), 5.900, 5.917, 6.016, 5.981 (Qiu et al. 2025)", false),
      above("idle weight with a gate that cannot close (ns-sigmoid) against G1", share(5) / share(1), 1, "x",
            "0.451 against 0.048 (Qiu et al. 2025)", false),
      above("idle weight with a gate that does not read the input against G1", share(6) / share(1), 1, "x",
            "0.364 against 0.048 (Qiu et al. 2025)", false),
      below("idle weight on the first token with feed-forward parts, G1 against none", wide, 1, "x", "",
            false),
  };
  out.verdict = concat(
      "G1 brings the idle attention on the first token to ", digits(share(1), 2), " and the peak to ",
      digits(most_of(g1.first_peak) / most_of(none.first_peak), 2), " times those without a gate",
      wide < 1 ? ", with feed-forward parts the attention to "
               : "; with feed-forward parts it does not weaken the sink: ",
      digits(wide, 2), " times. It stands at ", digits(mean_of(g1.gate_idle), 2),
      " for rows with nothing to copy and at ", digits(mean_of(g1.gate_active), 2), " for the others; ",
      digits(100 * g1.gate_low, 0), " % of its values are below 0.1",
      g1.gate_least > 0 ? ", none is 0. " : ". ", "Controls leave of the attention: ns-sigmoid ",
      digits(share(5), 2), ", constant ", digits(share(6), 2), ", a norm on z ", digits(share(7), 2), ": ",
      share(5) <= share(1) || share(6) <= share(1)
          ? "in this run closing by the query is not what made the difference. "
      : share(7) <= share(1)
          ? "a gate that cannot close or does not see the query does less, but a norm on z does as much. "
          : "what counts is that the gate can close, and does so by the query. ",
      "Loss above the floor: ", losses, "; ",
      std::abs(loss(1) - loss(control)) < 0.001
          ? concat("the best control (", runs[control].name, ") does as well as G1")
      : loss(1) > loss(control) ? concat("G1 gains less than a control does (", runs[control].name, ")")
      : loss(1) < loss(0)       ? std::string("G1 gains more than non-linearity or parameters alone do")
                                : std::string("G1 gains nothing"),
      ". It has ", digits(more, 0), " % more parameters than none; the lowest loss of all has ",
      runs[best].name, ". ",
      runs[0].spikes + runs[1].spikes == 0
          ? "There are no spikes with or without it, so of the papers' 109 -> 0 this says nothing."
          : concat("Spikes: ", runs[0].spikes, " without it, ", runs[1].spikes,
                   " with it (papers: 109 -> 0)."));
  return out;
}

}  // namespace rapt
