// SPDX-License-Identifier: Apache-2.0
// rapt lab sink MODEL: how much attention the first token collects over texts of many kinds, and whether the
// length of its key or the direction makes it.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/sink_score.h"
#include "rapt/lab/real.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kLength = 64;  // tokens of a text, as in the paper: the score falls with it
constexpr double kSinkHead = 0.3;

struct SinkGroup {
  Text name;
  RealText::Kind kind;
  std::vector<TokenIds> texts;
  SinkScore score;
};

// By layer: the mean of a figure over its heads.
std::vector<double> layers_of(const SinkScore& score, int depth, double (*figure)(const HeadSink&)) {
  std::vector<double> sum(static_cast<std::size_t>(depth)), count(sum);
  for (const HeadSink& h : score.heads) {
    sum[static_cast<std::size_t>(h.place.layer)] += figure(h);
    count[static_cast<std::size_t>(h.place.layer)] += 1;
  }
  for (std::size_t l = 0; l < sum.size(); ++l) sum[l] = count[l] > 0 ? sum[l] / count[l] : std::nan("");
  return sum;
}

double weight_on_first(const HeadSink& h) { return h.alpha[0]; }
double key_ratio(const HeadSink& h) { return h.key_first / h.key_others; }
double value_ratio(const HeadSink& h) { return h.value_first / h.value_others; }
double cosine_first(const HeadSink& h) { return h.cosine_first; }
double cosine_others(const HeadSink& h) { return h.cosine_others; }

double median_of(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

bool absolute_positions(const Recipe& r) { return r.embed.pos != EmbedRecipe::Pos::none; }

std::vector<SinkGroup> groups_of(const RealSubject& s) {
  std::vector<SinkGroup> groups;
  const Dim pieces = std::max<Dim>(4, (s.tokens > 0 ? s.tokens : 1024) / kLength);
  for (const RealText& t : s.texts) {
    SinkGroup g{.name = t.name, .kind = t.kind};
    if (t.kind == RealText::Kind::repeated) continue;
    g.texts = framed_pieces(s, groups.empty() ? s.prose : t.ids, kLength,
                            t.kind == RealText::Kind::random ? 8
                            : groups.empty()                 ? pieces
                                                             : 1);
    groups.push_back(std::move(g));
  }
  // One token again and again, as many such texts: nothing before it, so that no token stands apart.
  for (const RealText& t : s.texts) {
    if (t.kind != RealText::Kind::repeated) continue;
    SinkGroup g{.name = t.name, .kind = t.kind};
    g.texts.push_back(TokenIds(kLength, t.ids[0]));
    for (const RealText& other : s.texts)
      for (std::size_t i = 0;
           other.kind == RealText::Kind::random && i < std::min<std::size_t>(7, other.ids.size()); ++i)
        g.texts.push_back(TokenIds(kLength, other.ids[i]));
    groups.push_back(std::move(g));
  }
  return groups;
}

}  // namespace

LabResult real_sink(const Lab& lab, const RealSubject& s) {
  const Checkpoint checkpoint = s.open({});
  const Model& model = predictor(checkpoint, s);
  const int depth = model.decoder->depth();
  std::vector<SinkGroup> groups = groups_of(s);
  const SinkGroup *natural = nullptr, *random = nullptr, *repeated = nullptr;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    SinkGroup& g = groups[i];
    if (lab.progress) lab.progress(g.name, static_cast<double>(i), static_cast<double>(groups.size()));
    g.score = sink_score(lab.device, model, g.texts, {.epsilon = kSinkHead});
    const SinkGroup*& of = g.kind == RealText::Kind::natural  ? natural
                           : g.kind == RealText::Kind::random ? random
                                                              : repeated;
    if (!of) of = &g;
  }
  const SinkScore& score = natural->score;

  Table texts{.title = say("lab.real-sink.t.texts", kLength),
              .columns = {say("lab.real.text.column"), say("lab.real-sink.t.count"), "Sink₁ %", "Sink₂ %",
                          "Sink₃ %", say("lab.real.first_weight")}};
  Chart weights{.title = say("lab.real-sink.c.weights", s.name),
                .x_label = say("lab.layer"),
                .y_label = say("lab.real.first_weight"),
                .share = true};
  for (const SinkGroup& g : groups) {
    std::vector<Cell> row = {g.name, Cell(static_cast<double>(g.score.texts), 0)};
    for (std::size_t k = 0; k < 3; ++k)
      row.push_back(Cell(k < g.score.sink.size() ? 100 * g.score.sink[k] : std::nan(""), 2));
    const std::vector<double> layers = layers_of(g.score, depth, weight_on_first);
    double all = 0;
    for (const HeadSink& h : g.score.heads) all += h.alpha[0] / static_cast<double>(g.score.heads.size());
    row.push_back(Cell(all, 3));
    texts.rows.push_back(std::move(row));
    if (&g == natural || &g == random || &g == repeated) weights.curves.push_back(by_layer(g.name, layers));
  }

  // Which heads sink, and what their first key is.
  std::vector<double> keys, values, apart;
  double longer = 0, nearer = 0;
  for (const HeadSink& h : score.heads) {
    if (!(h.alpha[0] > kSinkHead)) continue;
    keys.push_back(key_ratio(h));
    values.push_back(value_ratio(h));
    apart.push_back(h.cosine_first - h.cosine_others);
    longer += key_ratio(h) > 1;
    nearer += apart.back() > 0;
  }
  const auto sinks = static_cast<double>(keys.size());
  const double key = median_of(keys), value = median_of(values), angle = median_of(apart);
  Table geometry{.title = say("lab.real-sink.t.geometry"),
                 .columns = {say("lab.layer"), say("lab.real.first_weight"), "|k₁|/|k|", "|v₁|/|v|",
                             "cos(q,k₁)", "cos(q,k)"}};
  const std::vector<double> layer_weight = layers_of(score, depth, weight_on_first),
                            layer_key = layers_of(score, depth, key_ratio),
                            layer_value = layers_of(score, depth, value_ratio),
                            layer_first = layers_of(score, depth, cosine_first),
                            layer_others = layers_of(score, depth, cosine_others);
  for (std::size_t l = 0; l < layer_weight.size(); ++l)
    geometry.rows.push_back({Cell(static_cast<double>(l), 0), Cell(layer_weight[l]), Cell(layer_key[l], 2),
                             Cell(layer_value[l], 2), Cell(layer_first[l], 2), Cell(layer_others[l], 2)});
  const Chart lengths{.title = say("lab.real-sink.c.lengths"),
                      .x_label = say("lab.layer"),
                      .y_label = say("lab.real-sink.c.ratio"),
                      .curves = {by_layer("|k₁|/|k|", layer_key), by_layer("|v₁|/|v|", layer_value)},
                      .log_y = true};
  const Chart angles{.title = say("lab.real-sink.c.angles"),
                     .x_label = say("lab.layer"),
                     .y_label = say("lab.real-sink.c.cosine"),
                     .curves = {by_layer(say("lab.real-sink.c.first_key"), layer_first),
                                by_layer(say("lab.real-sink.c.other_keys"), layer_others)}};

  LabResult out;
  const double sink_natural = 100 * score.sink[0];
  out.findings = {
      above(say("lab.real-sink.f.natural"), sink_natural, 30, "%", say("lab.real-sink.p.natural"))};
  if (random)
    out.findings.push_back(above(say("lab.real-sink.f.random"), 100 * random->score.sink[0], 30, "%",
                                 say("lab.real-sink.p.random")));
  if (repeated) {
    Finding f{
        .what = say("lab.real-sink.f.repeated"),
        .measured = 100 * repeated->score.sink[0],
        .unit = "%",
        .expected = say(absolute_positions(model.recipe) ? "lab.real-sink.f.any" : "lab.real-sink.f.zero"),
        .holds = absolute_positions(model.recipe) || repeated->score.sink[0] == 0,
        .paper = say("lab.real-sink.p.repeated")};
    out.findings.push_back(std::move(f));
  }
  std::vector<Text> v;
  if (keys.empty()) {
    v.push_back(say("lab.real-sink.v.none", s.name, digits(sink_natural, 2), kLength));
  } else {
    out.findings.push_back(above(say("lab.real-sink.f.key"), key, 1, "x", say("lab.real-sink.p.key"), false));
    out.findings.push_back(above(say("lab.real-sink.f.angle"), angle, 0, "", "", false));
    out.findings.push_back(
        below(say("lab.real-sink.f.value"), value, 1, "x", say("lab.real-sink.p.value"), false));
    v.push_back(say("lab.real-sink.v.sink", s.name, digits(sink_natural, 2), kLength, static_cast<Dim>(sinks),
                    static_cast<Dim>(score.heads.size())));
  }
  if (random && !keys.empty())
    v.push_back(say(
        random->score.sink[0] > score.sink[0] / 2 ? "lab.real-sink.v.random" : "lab.real-sink.v.random_less",
        digits(100 * random->score.sink[0], 2)));
  if (repeated)
    v.push_back(repeated->score.sink[0] == 0
                    ? say("lab.real-sink.v.repeated_none")
                    : say("lab.real-sink.v.repeated_some", digits(100 * repeated->score.sink[0], 2)));
  if (!keys.empty()) {
    const auto share = [&](double n) { return digits(100 * n / sinks, 0); };
    const bool by_length = longer > sinks / 2, by_angle = nearer > sinks / 2;
    v.push_back(say(by_angle && !by_length   ? "lab.real-sink.v.angle"
                    : by_length && !by_angle ? "lab.real-sink.v.length"
                    : by_length              ? "lab.real-sink.v.both"
                                             : "lab.real-sink.v.neither",
                    digits(key, 2), share(longer), digits(angle, 2), share(nearer)));
    v.push_back(value < 1 ? say("lab.real-sink.v.drained", digits(value, 2))
                          : say("lab.real-sink.v.full", digits(value, 2)));
  }
  out.verdict = sentences(std::move(v));
  out.document.parts = {model_words(s, model), weights, texts, lengths, angles, geometry};
  return out;
}

}  // namespace rapt
