// SPDX-License-Identifier: Apache-2.0
// rapt lab massive MODEL: which numbers of the residual stream are massive, whether they are the same
// whatever the text, and what the model and its sink are without them.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "rapt/base/text.h"
#include "rapt/inspect/massive.h"
#include "rapt/lab/real.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kTokens = 128;  // of each text

struct TextMassive {
  Massive m;
  Activation most;  // the furthest above the median of its layer
  std::set<Dim> channels, tokens;  // of those that meet the criterion
  int first_layer = -1, last_layer = -1;  // of those
  double sink = 0;  // mean weight on the first token
};

TextMassive look_for_massive(const Lab& lab, const Model& model, const TokenIds& ids) {
  TextMassive t{.m = std::move(massive(lab.device, model, ids, {}, {.top = 8}).front())};
  for (const Activation& a : t.m.top) {
    if (a.row == 0) continue;
    // A massive one stands before all others; of equals the one furthest above its layer's median.
    if (a.massive != t.most.massive ? a.massive : a.ratio > t.most.ratio) t.most = a;
    if (!a.massive) continue;
    t.channels.insert(a.channel);
    t.tokens.insert(a.token);
    if (t.first_layer < 0) t.first_layer = a.row - 1;
    t.last_layer = a.row - 1;
  }
  t.sink = mean_of(first_weights(lab, model, std::vector<TokenIds>{ids}));
  return t;
}

std::string listed_numbers(const std::set<Dim>& numbers, std::size_t most = 4) {
  std::string out;
  std::size_t n = 0;
  for (const Dim x : numbers) {
    if (n++ == most) return out + " …";
    out += concat(out.empty() ? "" : ", ", x);
  }
  return out.empty() ? "–" : out;
}

// Those of one window, as edits after the layer.
WindowEdits set_after(const Model& model, const MassiveEffect& effect) {
  return [&model, &effect](std::size_t w, Taps& taps) {
    taps.edit(site::resid_out, [&model, &effect, w](const Tapped& t) {
      if (t.layer != effect.layer || t.stack != Stack::decoder) return;
      for (std::size_t i = 0; i < effect.set.size(); ++i)
        if (effect.window[i] == static_cast<int>(w))
          t.value.set(
              (effect.set[i].token + model.recipe.embed.sink_tokens) * t.value[1] + effect.set[i].channel,
              effect.became[i]);
    });
  };
}

// The first layer after which they have half of the size that they ever reach: some models go on adding to
// them for many layers, and what is set earlier would come back.
int grown_layer(const Massive& m) {
  std::vector<double> peak;
  for (int r = 1; r < m.rows; ++r) {
    const auto first = m.largest.begin() + static_cast<std::ptrdiff_t>(r) * m.tokens;
    peak.push_back(static_cast<double>(*std::max_element(first, first + m.tokens)));
  }
  // Not the last layer: there is nothing behind it.
  const auto end = peak.size() > 1 ? peak.end() - 1 : peak.end();
  const double half = *std::max_element(peak.begin(), end) / 2;
  return static_cast<int>(std::find_if(peak.begin(), end, [&](double x) { return x >= half; }) -
                          peak.begin());
}

double mean_behind(const std::vector<double>& by_layer, int layer) {  // of the layers behind it
  std::vector<double> rest;
  for (std::size_t l = static_cast<std::size_t>(layer) + 1; l < by_layer.size(); ++l)
    if (std::isfinite(by_layer[l])) rest.push_back(by_layer[l]);
  return rest.empty() ? std::nan("") : mean_of(rest);
}

double mean_up_to(const std::vector<double>& by_layer, int layer) {
  std::vector<double> rest;
  for (std::size_t l = 0; l <= static_cast<std::size_t>(layer); ++l)
    if (std::isfinite(by_layer[l])) rest.push_back(by_layer[l]);
  return mean_of(rest);
}

}  // namespace

LabResult real_massive(const Lab& lab, const RealSubject& s) {
  const Checkpoint checkpoint = open_numbers(s);
  const Model& model = *checkpoint.model;
  const double steps = static_cast<double>(s.texts.size()) + 4;
  double done = 0;
  const auto progress = [&](std::string_view what) {
    if (lab.progress) lab.progress(what, done++, steps);
  };

  // Whatever the text?
  std::vector<TextMassive> found;
  for (const RealText& text : s.texts) {
    progress(text.name);
    found.push_back(look_for_massive(lab, model, framed(s, first_tokens(text.ids, kTokens))));
  }
  const TextMassive& one = found.front();
  const Dim channel = one.most.channel;
  Dim natural = 0, same = 0;
  Table texts{.title = say("lab.real-massive.t.texts"),
              .columns = {say("lab.real.text.column"), say("lab.real-massive.t.largest"),
                          say("lab.real-massive.t.ratio"), say("lab.real-massive.t.met"),
                          say("lab.real-massive.t.channels"), say("lab.real-massive.t.layers"),
                          say("lab.real-massive.t.tokens"), say("lab.real-massive.t.where"),
                          say("lab.real-massive.t.sink")}};
  Chart peaks{.title = say("lab.real-massive.c.peaks"),
              .x_label = say("lab.layer"),
              .y_label = say("lab.real-massive.c.size"),
              .log_y = true};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const TextMassive& t = found[i];
    const RealText& text = s.texts[i];
    if (text.kind == RealText::Kind::natural) {
      ++natural;
      same += t.most.channel == channel;
    }
    const TokenIds ids = framed(s, text.ids);  // its first ones were read
    const std::set<Dim> channels = t.m.found ? t.channels : std::set<Dim>{t.most.channel};
    texts.rows.push_back(
        {text.name, Cell(t.most.value, 1), Cell(t.most.ratio, 0), say(t.m.found ? "lab.yes" : "lab.no"),
         listed_numbers(channels),
         t.m.found ? Text(concat(t.first_layer, " – ", t.last_layer)) : Text(concat(t.most.row - 1)),
         listed_numbers(t.m.found ? t.tokens : std::set<Dim>{t.most.token}),
         s.word ? s.word(ids[static_cast<std::size_t>(t.most.token)]) : "", Cell(t.sink, 2)});
    Curve curve{.name = text.name};
    for (int r = 1; r < t.m.rows; ++r) {
      const auto first = t.m.largest.begin() + static_cast<std::ptrdiff_t>(r) * t.m.tokens;
      curve.x.push_back(r - 1);
      curve.y.push_back(static_cast<double>(*std::max_element(first, first + t.m.tokens)));
    }
    peaks.curves.push_back(std::move(curve));
  }
  peaks.curves.push_back(by_layer(say("lab.real-massive.c.median"),
                                  std::vector<double>(one.m.median.begin() + 1, one.m.median.end())));

  // What the model is without them, and its sink.
  const std::vector<TokenIds> windows =
      framed_pieces(s, s.prose, 256, std::max<Dim>(2, (s.tokens > 0 ? s.tokens : 1024) / 256));
  progress("zero");
  const int layer = grown_layer(one.m);
  const MassiveEffect zero =
      massive_effect(lab.device, model, windows, {.to = MassiveEdit::To::zero, .layer = layer});
  progress("mean");
  const MassiveEffect mean =
      massive_effect(lab.device, model, windows, {.to = MassiveEdit::To::mean, .layer = layer});
  progress("sink");
  const std::span<const TokenIds> few(windows.data(), std::min<std::size_t>(2, windows.size()));
  const std::vector<double> plain = first_weights(lab, model, few),
                            at_zero = first_weights(lab, model, few, set_after(model, zero)),
                            at_mean = first_weights(lab, model, few, set_after(model, mean));
  const double early = mean_up_to(plain, layer), behind = mean_behind(plain, layer),
               zero_behind = mean_behind(at_zero, layer), mean_behind_it = mean_behind(at_mean, layer);

  Table effects{.title = say("lab.real-massive.t.effects", layer, static_cast<Dim>(zero.set.size()),
                             static_cast<Dim>(windows.size()), zero.predicted),
                .columns = {say("lab.real-massive.t.done"), say("lab.real.perplexity"),
                            say("lab.real.change"), say("lab.real-massive.t.behind", layer)}};
  const auto row = [&](const char* what, double perplexity, double weight) {
    effects.rows.push_back({say(concat("lab.real-massive.t.", what)), thousands(perplexity),
                            change_text(perplexity, zero.before), Cell(weight, 3)});
  };
  row("nothing", zero.before, behind);
  row("control", zero.control, std::nan(""));
  row("zero", zero.after, zero_behind);
  row("mean", mean.after, mean_behind_it);
  Chart sink{.title = say("lab.real-massive.c.sink"),
             .x_label = say("lab.layer"),
             .y_label = say("lab.real.first_weight"),
             .curves = {by_layer(say("lab.real-massive.t.nothing"), plain),
                        by_layer(say("lab.real-massive.t.zero"), at_zero),
                        by_layer(say("lab.real-massive.t.mean"), at_mean)},
             .share = true};

  LabResult out;
  const double factor = zero.after / zero.before, mean_factor = mean.after / mean.before,
               control = zero.control / zero.before, left = zero_behind / behind,
               mean_left = mean_behind_it / behind;
  out.findings = {
      above(say("lab.real-massive.f.ratio"), one.most.ratio, 1000, "x", say("lab.real-massive.p.criterion")),
      above(say("lab.real-massive.f.same", channel), static_cast<double>(same) / static_cast<double>(natural),
            0.99, "", say("lab.real-massive.p.channels")),
      above(say("lab.real-massive.f.zero"), factor, 2, "x", say("lab.real-massive.p.zero")),
      below(say("lab.real-massive.f.mean"), mean_factor, 1.05, "x", say("lab.real-massive.p.mean")),
      below(say("lab.real-massive.f.control"), control, 1.05, "x"),
      below(say("lab.real-massive.f.sink_zero", layer), left, 0.5, "x"),
      between(say("lab.real-massive.f.sink_mean", layer), mean_left, 0.9, 1.1, "x"),
  };

  std::vector<Text> v;
  const std::string word =
      s.word ? s.word(framed(s, s.texts[0].ids)[static_cast<std::size_t>(one.most.token)]) : "";
  v.push_back(one.m.found ? say("lab.real-massive.v.found", s.name, channel, thousands(one.most.value),
                                one.most.row - 1, thousands(one.most.ratio), one.most.token, word)
                          : say("lab.real-massive.v.none", s.name, thousands(one.most.value),
                                thousands(one.most.ratio), channel));
  v.push_back(same == natural ? say("lab.real-massive.v.same", natural, channel)
                              : say("lab.real-massive.v.differ", channel, same, natural));
  const Text before = thousands(zero.before), after = thousands(zero.after),
             ordinary = change_text(zero.control, zero.before);
  v.push_back(factor > 2      ? say("lab.real-massive.v.needed", before, after, thousands(factor), ordinary)
              : factor > 1.05 ? say("lab.real-massive.v.felt", before, after, ordinary)
                              : say("lab.real-massive.v.not_needed", before, after, ordinary));
  if (factor > 1.05) {
    const char* as_mean = std::abs(mean_factor - 1) < 1e-6   ? "lab.real-massive.v.identical"
                          : std::abs(mean_factor - 1) < 0.05 ? "lab.real-massive.v.constant"
                                                             : "lab.real-massive.v.content";
    v.push_back(say(as_mean, thousands(mean.after), change_text(mean.after, mean.before)));
  }
  if (!(behind > 0.1)) {
    v.push_back(say("lab.real-massive.v.no_sink", layer, digits(behind, 2)));
  } else {
    const char* coin = left < 0.5   ? "lab.real-massive.v.coin"
                       : left < 0.9 ? "lab.real-massive.v.weaker"
                       : left < 1.1 ? "lab.real-massive.v.two_coins"
                                    : "lab.real-massive.v.grows";
    v.push_back(say(coin, layer, digits(behind, 2), digits(zero_behind, 2), digits(mean_behind_it, 2)));
    v.push_back(early > 0.5 * behind ? say("lab.real-massive.v.sink_first", layer, digits(early, 2))
                                     : say("lab.real-massive.v.together", layer, digits(early, 2)));
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    if (s.texts[i].kind == RealText::Kind::repeated && one.m.found && found[i].sink < 0.3 &&
        std::abs(found[i].most.value) > std::abs(one.most.value) / 2)
      v.push_back(
          say("lab.real-massive.v.without_sink", thousands(found[i].most.value), digits(found[i].sink, 2)));
  out.verdict = sentences(std::move(v));
  const char* how =
      model.parameters() <= kMostNumbers ? "lab.real-massive.how" : "lab.real-massive.how_stored";
  out.document.parts = {model_words(s, model), sink, peaks, texts, effects, Words{say(how)}};
  return out;
}

}  // namespace rapt
