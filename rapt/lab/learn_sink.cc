// SPDX-License-Identifier: Apache-2.0
// Experiments on the first token: the attention that idles there, and the activations that grow there. What
// gates do to both: learn_gate.cc.
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
Recipe with_extra(ExtraRecipe::Kind kind) {
  return with(toy_recipe(), [&](AttnRecipe& a) { a.extra.kind = kind; });
}
Recipe with_sigmoid() {
  return with(toy_recipe(), [](AttnRecipe& a) { a.normal = Normal::sigmoid; });
}

// Of the layer where the sink is strongest.
std::size_t sink_layer(const ToyLook& look) {
  return static_cast<std::size_t>(std::max_element(look.idle.begin(), look.idle.end()) - look.idle.begin());
}

}  // namespace

LabResult sink(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed), no_begin = copy_task(lab.seed, false);
  auto toy = [&](Text name, Recipe recipe) {
    return Toy{.name = std::move(name), .recipe = std::move(recipe), .task = task, .seed = lab.seed};
  };
  std::vector<Toy> toys;
  toys.push_back(toy("softmax", toy_recipe()));
  toys.back().looks = 10;
  toys.push_back(toy(say("lab.sinks.g1"), with_gate({})));
  toys.push_back(toy(say("lab.sinks.sigmoid"), with_sigmoid()));
  toys.push_back(toy(say("lab.sinks.bare"), toy_recipe()));
  toys.back().task = no_begin;
  toys.push_back(toy("QK-norm", with(toy_recipe(), [](AttnRecipe& a) { a.qk_norm = QkNormRecipe{}; })));
  toys.push_back(toy(say("lab.sinks.zero"), with_extra(ExtraRecipe::Kind::zero_logit)));
  toys.push_back(toy(say("lab.sinks.logit"), with_extra(ExtraRecipe::Kind::learned_logit)));
  toys.push_back(toy(say("lab.sinks.token"), toy_recipe()));
  toys.back().recipe.embed.sink_tokens = 1;
  toys.push_back(toy(say("lab.sinks.small"), toy_recipe()));
  toys.back().small_tokens = true;
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const ToyLook &soft = runs[0].end(), &gated = runs[1].end(), &sig = runs[2].end(), &bare = runs[3].end(),
                &normed = runs[4].end(), &zero = runs[5].end(), &logit = runs[6].end(),
                &token = runs[7].end(), &small = runs[8].end();

  LabResult out;
  Table table{.title = say("lab.sink.table"),
              .columns = {say("lab.variant"), say("lab.excess_loss"), say("lab.sinks.idle_layers"),
                          say("lab.sinks.idle_mean"), say("lab.sink.of_sum"), say("lab.sink.copying_mean"),
                          say("lab.sinks.value_ratio"), say("lab.sink.key_ratio"),
                          say("lab.sink.first_cosine"), say("lab.sink.other_cosine"), say("lab.sinks.peak")}};
  for (const Trained& r : runs) {
    const ToyLook& l = r.end();
    table.rows.push_back({r.name, Cell(l.excess, 4), joined(l.idle), Cell(mean_of(l.idle)),
                          Cell(mean_of(l.idle_of_sum)), Cell(mean_of(l.trigger)),
                          Cell(l.value_ratio[sink_layer(l)], 2), Cell(l.key_ratio[sink_layer(l)], 2),
                          Cell(l.first_cosine[sink_layer(l)], 2), Cell(l.other_cosine[sink_layer(l)], 2),
                          Cell(most_of(l.first_peak), 1)});
  }
  const std::size_t at = sink_layer(soft);
  Table looks{.title = say("lab.sink.on_the_way", at),
              .columns = {say("lab.step"), say("lab.excess_loss"), say("lab.sinks.idle_layers"),
                          say("lab.sink.copying_layers"), say("lab.sinks.value_ratio")}};
  Chart emergence{.title = say("lab.sink.emerges"),
                  .x_label = say("lab.step"),
                  .y_label = say("lab.sinks.weight_on_first"),
                  .share = true};
  for (std::size_t layer = 0; layer < soft.idle.size(); ++layer)
    emergence.curves.push_back({.name = say("lab.sink.idle_curve", layer)});
  emergence.curves.push_back({.name = say("lab.sink.copying_curve", at)});
  Dim emerged = -1;
  for (const ToyLook& l : runs[0].looks) {
    looks.rows.push_back({Cell(static_cast<double>(l.step), 0), Cell(l.excess, 4), joined(l.idle),
                          joined(l.trigger), Cell(l.value_ratio[at], 2)});
    for (std::size_t layer = 0; layer <= l.idle.size(); ++layer) {
      emergence.curves[layer].x.push_back(static_cast<double>(l.step));
      emergence.curves[layer].y.push_back(layer < l.idle.size() ? l.idle[layer] : l.trigger[at]);
    }
    if (emerged < 0 && most_of(l.idle) > 0.3) emerged = l.step;
  }
  out.document.parts = {toy_words(), emergence, table, looks,
                        attention_picture(lab.device, *runs[0].model, task, 32, static_cast<int>(at),
                                          say("lab.sink.picture", at))};
  const double share = mean_of(soft.idle);
  auto against = [&](const ToyLook& l) { return mean_of(l.idle) / share; };
  // The scores' difference |q| |k1| c1 - |q| |k| c, divided by |q| |k|, is (c1 - c) + (|k1| / |k| - 1) c1.
  const double direction = soft.first_cosine[at] - soft.other_cosine[at],
               size = (soft.key_ratio[at] - 1) * soft.first_cosine[at];
  const double normed_key = normed.key_ratio[sink_layer(normed)];
  out.findings = {
      above(say("lab.sink.f.idle"), soft.idle[at], 0.3, "", say("lab.sink.p.heads")),
      above(say("lab.sink.f.growth"), soft.idle[at] / runs[0].looks.front().idle[at], 2, "x",
            say("lab.sink.p.steps")),
      below(say("lab.sink.f.copying"), mean_of(soft.trigger) / share, 0.1, "x", say("lab.sink.p.dormant")),
      below(say("lab.sink.f.value"), soft.value_ratio[at], 1, "x", say("lab.sink.p.value")),
      above(say("lab.sink.f.cosine"), direction, 0, "", say("lab.sink.p.cosine")),
      above(say("lab.sink.f.direction"), direction - size, 0, "|q||k|", "", false),
      below(say("lab.sink.f.key"), soft.key_ratio[at], 1, "x", say("lab.sink.p.key"), false),
      above(say("lab.sink.f.qk_norm"), most_of(normed.idle), 0.3, ""),
      below(say("lab.sink.f.g1"), against(gated), 1, "x", say("lab.sinks.qiu_to", "0.467", "0.048")),
      below(say("lab.sink.f.sigmoid"), against(sig), 1, "x"),
      below(say("lab.sink.f.sigmoid_sum"), mean_of(sig.idle_of_sum) / share, 1, "x",
            say("lab.sink.p.sigmoid"), false),
      below(say("lab.sink.f.bare"), against(bare), 0.3, "x"),
      below(say("lab.sink.f.zero"), against(zero), 1, "x", say("lab.sink.p.zero"), false),
      below(say("lab.sink.f.logit"), against(logit), 1, "x", say("lab.sink.p.logit"), false),
      below(say("lab.sink.f.token"), against(token), 1, "x", say("lab.sink.p.token"), false),
      above(say("lab.sink.f.on_token"), most_of(token.idle_learned), 0.3, "", "", false),
      above(say("lab.sink.f.small"), most_of(small.idle), 0.3, "", "", false),
  };
  out.verdict = sentences(
      {say(soft.idle[at] > 0.3 ? "lab.sink.v.share" : "lab.sink.v.no_sink", digits(soft.idle[at], 2), at,
           digits(soft.trigger[at], 3)),
       emerged < 0 ? Text() : say("lab.sink.v.step", emerged),
       say("lab.sink.v.value", digits(soft.value_ratio[at], 2)),
       say(direction <= size        ? "lab.sink.v.size"
           : soft.key_ratio[at] < 1 ? "lab.sink.v.direction"
                                    : "lab.sink.v.direction_more",
           digits(direction, 2), digits(size, 2)),
       say(most_of(normed.idle) > 0.3 && normed_key < 1.1 ? "lab.sink.v.qk_norm_sink" : "lab.sink.v.qk_norm",
           digits(normed_key, 2), digits(most_of(normed.idle), 2)),
       say(against(sig) < 0.1 ? "lab.sink.v.sigmoid_none"
           : against(sig) < 1 ? "lab.sink.v.sigmoid_less"
                              : "lab.sink.v.sigmoid_not",
           digits(against(sig), 2)),
       say("lab.sink.v.left", digits(against(gated), 2), digits(against(zero), 2), digits(against(logit), 2),
           digits(against(token), 2), digits(against(bare), 2)),
       say(most_of(small.idle) > 0.3 ? "lab.sink.v.small" : "lab.sink.v.small_not",
           digits(most_of(small.idle), 2))});
  return out;
}

namespace {

double top_peak(const ToyLook& l) { return std::max(most_of(l.first_peak), most_of(l.other_peak)); }
double over_median(const ToyLook& l) {  // of the layer where it is largest
  double most = 0;
  for (std::size_t i = 0; i < l.median.size(); ++i)
    most = std::max(most, l.median[i] > 0 ? std::max(l.first_peak[i], l.other_peak[i]) / l.median[i] : 0);
  return most;
}
bool is_massive(const ToyLook& l) { return top_peak(l) > 100 && over_median(l) >= 1000; }  // Sun et al. 2024

Recipe with_relu(Recipe recipe, Dim width) {
  recipe = with_ffn(std::move(recipe), width);
  ffn_of(recipe).kind = FfnRecipe::Kind::mlp;
  ffn_of(recipe).act = Act::relu;
  return recipe;
}

}  // namespace

LabResult massive(const Lab& lab) {
  constexpr double kPlanted = 1000;
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](Text name, Recipe recipe) -> Toy& {
    toys.push_back({.name = std::move(name), .recipe = std::move(recipe), .task = task, .seed = lab.seed});
    return toys.back();
  };
  add("softmax", toy_recipe());
  // Variants of it, to see what they leave of the peak and of the attention.
  add(say("lab.sinks.g1"), with_gate({}));
  add(say("lab.sinks.g2"), with_gate({.at = GateRecipe::At::v}));
  add(say("lab.sinks.slot"), with_extra(ExtraRecipe::Kind::kv_slots));
  add(say("lab.sinks.zero"), with_extra(ExtraRecipe::Kind::zero_logit));
  add(say("lab.sinks.sigmoid"), with_sigmoid());
  const std::size_t planted = toys.size();
  add(say("lab.massive.n.planted"), toy_recipe()).plant = kPlanted;
  // Settings in which activations might become massive by themselves.
  const std::size_t tried = toys.size();
  auto hot = [&](Text name, Recipe recipe) -> Toy& {
    Toy& t = add(std::move(name), std::move(recipe));
    t.rate = 0.01, t.batch = 16;
    return t;
  };
  hot(say("lab.massive.n.glu"), with_ffn(toy_recipe()));
  hot(say("lab.massive.n.relu"), with_relu(toy_recipe(), 192));
  hot(say("lab.massive.n.no_decay"), with_relu(toy_recipe(), 192)).decay = 0;
  hot(say("lab.massive.n.deep"), with_ffn(toy_recipe(6))).steps = 600;
  Recipe narrow = with_relu(toy_recipe(), 96);
  narrow.width = 16;
  hot(say("lab.massive.n.narrow"), narrow);
  const TextTask text = text_task(lab, true);
  Toy& on_text = hot(say("lab.massive.n.text"), with_ffn(toy_recipe(3, 3, text.vocab)));
  on_text.task = text.task, on_text.length = 48, on_text.steps = 600;
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{.title = say("lab.massive.table"),
              .columns = {say("lab.variant"), say("lab.loss"), say("lab.massive.first_peak"),
                          say("lab.massive.other_peak"), say("lab.massive.over_median"),
                          say("lab.massive.is_massive"), say("lab.sinks.idle_mean")}};
  Chart chart{.title = say("lab.massive.chart"),
              .x_label = say("lab.layer"),
              .y_label = say("lab.massive.ratio_axis"),
              .log_y = true};
  for (const Trained& r : runs) {
    const ToyLook& l = r.end();
    table.rows.push_back({r.name, Cell(l.excess, 4), joined(l.first_peak, 1), joined(l.other_peak, 1),
                          Cell(over_median(l), 1), say(is_massive(l) ? "lab.yes" : "lab.no"),
                          Cell(mean_of(l.idle))});
  }
  for (std::size_t i : {std::size_t{0}, planted, tried, tried + 1, tried + 3, tried + 5}) {
    const ToyLook& l = runs[i].end();
    Curve c{.name = runs[i].name};
    for (std::size_t layer = 0; layer < l.median.size(); ++layer) {
      c.x.push_back(static_cast<double>(layer + 1));
      c.y.push_back(std::max(l.first_peak[layer], l.other_peak[layer]) / std::max(l.median[layer], 1e-9));
    }
    chart.curves.push_back(std::move(c));
  }
  const ToyLook& soft = runs[0].end();
  auto peak_left = [&](std::size_t r) {
    return most_of(runs[r].end().first_peak) / most_of(soft.first_peak);
  };
  auto share_left = [&](std::size_t r) { return mean_of(runs[r].end().idle) / mean_of(soft.idle); };
  Table left{.title = say("lab.massive.left"),
             .columns = {say("lab.variant"), say("lab.massive.peak_left"), say("lab.massive.share_left"),
                         say("lab.massive.paper_left")}};
  for (std::size_t r = 1; r < planted; ++r)
    left.rows.push_back({runs[r].name, Cell(peak_left(r), 2), Cell(share_left(r), 2),
                         r == 1   ? "0.09, 0.10 (Qiu et al. 2025)"
                         : r == 2 ? "0.12, 0.64 (Qiu et al. 2025)"
                                  : ""});
  out.document.parts = {toy_words(), chart, table, left};

  // The planted activation, taken out of the model that learned with it.
  const std::unique_ptr<Model> without = with_weights(*runs[planted].model, runs[planted].model->recipe);
  for (Weight& w : without->weights)
    if (w.name == "embed.tokens") w.set(w.rows - 1, 0, 0);
  const ToyLook taken = look_at(lab.device, *without, task, scaled_batch(lab, 128), 32);
  const ToyLook& grown = runs[planted].end();

  std::size_t nearest = 0;
  int found = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0 && i < tried) continue;
    found += is_massive(runs[i].end());
    if (over_median(runs[i].end()) > over_median(runs[nearest].end())) nearest = i;
  }
  const double apart = peak_left(2) / share_left(2), planted_share = mean_of(grown.idle) / mean_of(soft.idle),
               taken_share = mean_of(taken.idle) / mean_of(grown.idle);
  out.findings = {
      above(say("lab.massive.f.nearest"), over_median(runs[nearest].end()), 1000, "x",
            say("lab.massive.p.criterion"), false),
      above(say("lab.massive.f.sink"), most_of(soft.idle), 0.3, ""),
      above(say("lab.massive.f.planted"), planted_share, 1, "x", "", false),
      below(say("lab.massive.f.taken"), taken_share, 1, "x", "", false),
      below(say("lab.massive.f.g1_peak"), peak_left(1), 1, "x", say("lab.sinks.qiu_to", "1053", "94")),
      below(say("lab.massive.f.g2_peak"), peak_left(2), 1, "x", say("lab.sinks.qiu_to", "1053", "125"),
            false),
      below(say("lab.massive.f.g2_share"), share_left(2), 1, "x", say("lab.sinks.qiu_to", "0.467", "0.297"),
            false),
      below(say("lab.massive.f.apart"), apart, 0.7, "x", say("lab.massive.p.apart"), false),
      below(say("lab.massive.f.slot_share"), share_left(3), 1, "x", say("lab.massive.p.slot_share"), false),
      below(say("lab.massive.f.slot_peak"), peak_left(3), 1, "x", say("lab.massive.p.slot_peak"), false),
  };
  out.verdict = sentences({say(found > 0 ? "lab.massive.v.some" : "lab.massive.v.none",
                               runs.size() - tried + 1, digits(over_median(runs[nearest].end()), 0),
                               runs[nearest].name, digits(top_peak(runs[nearest].end()), 0), found),
                           say(most_of(soft.idle) > 0.3 ? "lab.massive.v.sink" : "lab.massive.v.no_sink",
                               digits(most_of(soft.idle), 2), digits(over_median(soft), 0)),
                           say(planted_share > 1.1   ? "lab.massive.v.planted_more"
                               : planted_share < 0.9 ? "lab.massive.v.planted_less"
                                                     : "lab.massive.v.planted_same",
                               digits(kPlanted, 0), digits(over_median(grown), 0), digits(planted_share, 2)),
                           say(taken_share < 0.5 ? "lab.massive.v.taken_less" : "lab.massive.v.taken_stays",
                               digits(taken_share, 2), digits(grown.excess, 3), digits(taken.excess, 3)),
                           say(apart > 1.4           ? "lab.massive.v.share_further"
                               : apart > 0.7         ? "lab.massive.v.together"
                               : share_left(2) > 0.9 ? "lab.massive.v.peak_alone"
                                                     : "lab.massive.v.peak_further",
                               digits(peak_left(2), 2), digits(share_left(2), 2)),
                           found > 0 ? Text() : say("lab.massive.v.ask")});
  return out;
}

}  // namespace rapt
