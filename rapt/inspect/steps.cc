// SPDX-License-Identifier: Apache-2.0
// The numbers from a capture, then the document, then the picture.
#include "rapt/inspect/steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/base/text.h"
#include "rapt/inspect/capture.h"
#include "rapt/report/diagram.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

constexpr std::size_t kChannels = 8;  // of values and of their sum that are shown

std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

const Attention& self_attention(const Model& model, int layer) {
  const LayerStack& stack = stack_of(model, last_stack(model));
  if (stack.layers.empty()) fail("steps: ", model.recipe.name, " has recurrent cells, no layers with heads");
  if (layer < 0 || layer >= static_cast<int>(stack.layers.size()))
    fail_usage("--layer ", layer, ": the model has layers 0 to ", stack.layers.size() - 1);
  const Attention* found = nullptr;
  int count = 0;
  for (const Part& p : stack.layers[at(layer)].parts)
    if (const Attention* a = std::get_if<Attention>(&p.body); a && !a->spec.cross) found = a, ++count;
  if (count != 1)
    fail("steps: layer ", layer, " has ", count, " self-attentions; choose a layer that has one (rapt show)");
  if (found->spec.score != Score::dot)
    fail("steps: scores of layer ", layer,
         " are no products of queries and keys, and their steps are others");
  return *found;
}

double length_of(const std::vector<double>& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

}  // namespace

double AttentionSteps::weights() const {
  double sum = 0;
  for (const Key& k : keys) sum += k.weight;
  return sum;
}

AttentionSteps attention_steps(Device& device, const Model& model, Ids ids, const StepsOptions& options,
                               Ids source) {
  AttentionSteps s;
  const int layers = static_cast<int>(stack_of(model, last_stack(model)).layers.size());
  s.layer = options.layer < 0 ? options.layer + layers : options.layer;
  s.head = options.head;
  const Attention& a = self_attention(model, s.layer);
  if (s.head < 0 || s.head >= a.spec.heads)
    fail_usage("--head ", s.head, ": the layer has heads 0 to ", a.spec.heads - 1);
  s.kv_head = static_cast<int>(s.head / (a.spec.heads / a.spec.kv_heads));
  s.scale = a.spec.scale, s.cap = a.spec.cap;

  std::vector<std::string> names;
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_scores", "attn_weights"})
    names.push_back(concat(model.encoder && model.decoder ? "decoder." : "", name, ".", s.layer));
  const Capture c = capture(device, model, ask_points(model, names), ids, source);
  const Captured &q = c.of(names[0]), &k = c.of(names[1]), &v = c.of(names[2]), &scores = c.of(names[3]),
                 &weights = c.of(names[4]);
  const Dim T = q.shape[0], S = k.shape[0], D = k.shape[2], V = v.shape[2];
  s.token = options.token < 0 ? options.token + T : options.token;
  if (s.token < 0 || s.token >= T)
    fail_usage("--token ", options.token, ": the text has tokens 0 to ", T - 1);

  s.keys.resize(at(S));
  s.values.resize(at(S));
  s.z.assign(at(V), 0);
  for (Dim i = 0; i < S; ++i) {
    AttentionSteps::Key& key = s.keys[at(i)];
    const std::size_t pair = at((s.head * T + s.token) * S + i);
    for (Dim d = 0; d < D; ++d)
      key.product += static_cast<double>(q.values[at((s.token * a.spec.heads + s.head) * D + d)]) *
                     static_cast<double>(k.values[at((i * a.spec.kv_heads + s.kv_head) * D + d)]);
    key.scaled = s.scale * key.product;
    if (s.cap > 0) key.scaled = s.cap * std::tanh(key.scaled / s.cap);
    key.score = static_cast<double>(scores.values[pair]);
    key.seen = std::isfinite(key.score);
    key.weight = static_cast<double>(weights.values[pair]);
    for (Dim d = 0; d < V; ++d) {
      s.values[at(i)].push_back(static_cast<double>(v.values[at((i * a.spec.kv_heads + s.kv_head) * V + d)]));
      s.z[at(d)] += key.weight * s.values[at(i)].back();
    }
    key.length = length_of(s.values[at(i)]);
  }
  return s;
}

// ------------------------------------------------------------------------------------------------ document
namespace {

bool adds(const AttentionSteps& s) {
  return std::any_of(s.keys.begin(), s.keys.end(), [](const auto& k) {
    return k.seen && std::abs(k.added()) > 1e-4 * (1 + std::abs(k.score));
  });
}

std::string digits(double x) { return fixed(x, std::abs(x) < 10 ? 3 : 1); }

}  // namespace

Document steps_document(const Subject& subject, const AttentionSteps& s) {
  std::vector<std::string> words = subject.words_of(last_stack(subject.net()));
  while (words.size() < s.keys.size()) words.insert(words.begin(), "sink");
  const std::string& query = words[at(s.token)];
  Document d{.name = "steps", .title = say("inspect.steps.title", s.layer, s.head, query), .parts = {}};
  d.parts.push_back(Words{say("inspect.steps.about", model_line(subject))});
  const bool added = adds(s);

  Table scores{.title = say("inspect.steps.one"),
               .columns = {say("inspect.steps.key"), "q·k",
                           say("inspect.steps.scaled", shortest(std::round(1e4 * s.scale) / 1e4))},
               .rows = {}};
  if (s.cap > 0)
    scores.columns[2] =
        say("inspect.steps.capped", shortest(std::round(1e4 * s.scale) / 1e4), shortest(s.cap));
  if (added) scores.columns.push_back(say("inspect.steps.added"));
  scores.columns.push_back(say("inspect.steps.score"));
  Table softmax{.title = say("inspect.steps.two"),
                .columns = {say("inspect.steps.key"), "e^(s − max)", say("inspect.steps.weight")},
                .rows = {}};
  Table sum{.title = say("inspect.steps.three"),
            .columns = {say("inspect.steps.key"), say("inspect.steps.weight"), "|v|"},
            .rows = {}};
  const std::size_t channels = std::min(kChannels, s.z.size());
  for (std::size_t c = 0; c < channels; ++c) sum.columns.push_back(concat("v", c));
  double most = -INFINITY;
  for (const auto& k : s.keys)
    if (k.seen) most = std::max(most, k.score);
  HeatMap map{.title = say("inspect.steps.map", s.layer, s.head, query),
              .rows = {query},
              .columns = {},
              .values = {},
              .row_name = say("inspect.steps.query"),
              .column_name = say("inspect.steps.key"),
              .value_name = say("inspect.steps.weight")};
  Json::Array facts;
  for (std::size_t i = 0; i < s.keys.size(); ++i) {
    const auto& k = s.keys[i];
    std::vector<Cell> row = {words[i], Cell(k.product, 3), Cell(k.scaled, 3)};
    if (added) row.push_back(k.seen ? Cell(k.added(), 3) : Cell(""));
    row.push_back(k.seen ? Cell(k.score, 3) : Cell(say("inspect.steps.masked")));
    scores.rows.push_back(std::move(row));
    map.columns.push_back(words[i]);
    map.values.push_back(k.weight);
    map.cells.push_back(k.seen ? fixed(k.weight, 3) : "");
    facts.push_back(Json::Object{{"key", static_cast<std::int64_t>(i)},
                                 {"token", words[i]},
                                 {"seen", k.seen},
                                 {"product", k.product},
                                 {"scaled", k.scaled},
                                 {"score", k.seen ? Json(k.score) : Json()},
                                 {"weight", k.weight},
                                 {"value_length", k.length}});
    if (!k.seen) continue;
    softmax.rows.push_back({words[i], Cell(std::exp(k.score - most), 4), Cell(k.weight, 4)});
    sum.rows.push_back({words[i], Cell(k.weight, 4), Cell(k.length, 3)});
    for (std::size_t c = 0; c < channels; ++c) sum.rows.back().push_back(Cell(s.values[i][c], 3));
  }
  softmax.rows.push_back({say("inspect.steps.sum"), "", Cell(s.weights(), 4)});
  sum.rows.push_back({"z = Σ w v", Cell(s.weights(), 4), Cell(length_of(s.z), 3)});
  for (std::size_t c = 0; c < channels; ++c) sum.rows.back().push_back(Cell(s.z[c], 3));
  d.parts.push_back(std::move(scores));
  d.parts.push_back(std::move(softmax));
  d.parts.push_back(std::move(map));
  d.parts.push_back(std::move(sum));
  d.facts =
      Json::Object{{"layer", s.layer}, {"head", s.head}, {"kv_head", s.kv_head}, {"token", s.token},
                   {"scale", s.scale}, {"cap", s.cap},   {"sum", s.weights()},   {"keys", std::move(facts)}};
  Json::Array z;
  for (double x : s.z) z.emplace_back(x);
  d.facts.set("z", std::move(z));
  return d;
}

// ------------------------------------------------------------------------------------------------ picture
std::string steps_svg(const AttentionSteps& s, const std::vector<std::string>& words, Language language) {
  constexpr std::size_t kMost = 16;
  constexpr double kLeft = 18, kNames = 150, kPitch = 66, kBar = 56;
  const auto said = [&](std::string_view key, auto&&... values) {
    return say(concat("inspect.steps.", key), std::forward<decltype(values)>(values)...).in(language);
  };
  std::vector<std::size_t> shown(s.keys.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (shown.size() > kMost) {
    std::sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(-s.keys[a].weight, a) < std::pair(-s.keys[b].weight, b);
    });
    shown.resize(kMost);
    std::sort(shown.begin(), shown.end());
  }
  const double wide = kPitch * static_cast<double>(shown.size());
  const auto middle = [&](std::size_t i) { return kLeft + kNames + kPitch * (static_cast<double>(i) + 0.5); };
  using Anchor = Diagram::Anchor;
  Diagram d;
  d.text(kLeft, 30, said("title", s.layer, s.head, words[at(s.token)]), 15, "ink", Anchor::start, true);
  if (shown.size() < s.keys.size())
    d.text(kLeft, 48, said("some", static_cast<Dim>(shown.size()), static_cast<Dim>(s.keys.size())), 11,
           "soft");
  double y = 72;
  d.text(kLeft, y, said("key"), 12, "soft");
  for (std::size_t i = 0; i < shown.size(); ++i)
    d.text(middle(i), y, terminal_text(words[shown[i]], 8), 12, "ink", Anchor::middle,
           shown[i] == at(s.token));
  y += 14;

  // A row of numbers, each under the bar that shows it.
  const auto row = [&](const std::string& name, const char* look, const char* below_look, bool masked,
                       auto&& value) {
    double most = 1e-12;
    bool negative = false;
    for (const std::size_t i : shown)
      if (s.keys[i].seen || !masked)
        most = std::max(most, std::abs(value(s.keys[i]))), negative = negative || value(s.keys[i]) < 0;
    const double half = negative ? kBar / 2 : kBar, zero = y + half;
    d.text(kLeft, zero + (negative ? 4 : -half / 2 + 4), name, 12);
    d.wire({{kLeft + kNames, zero}, {kLeft + kNames + wide, zero}});
    for (std::size_t n = 0; n < shown.size(); ++n) {
      const auto& k = s.keys[shown[n]];
      const bool hidden = masked && !k.seen;
      const double v = value(k), high = hidden ? 0 : std::abs(v) / most * half;
      if (high > 0.3)
        d.box(middle(n) - 18, v < 0 ? zero : zero - high, 36, high, v < 0 ? below_look : look, 1);
      d.text(middle(n), y + kBar + 15, hidden ? "−∞" : digits(v), 11, hidden ? "soft" : "ink",
             Anchor::middle);
    }
    y += kBar + 30;
  };
  const auto step = [&](const std::string& title) {
    y += 14;
    d.text(kLeft, y, title, 13, "ink", Anchor::start, true);
    y += 14;
  };
  step(said("one"));
  row("q·k", "matrix", "gate", false, [](const auto& k) { return k.product; });
  row(s.cap > 0 ? said("capped", shortest(std::round(1e4 * s.scale) / 1e4), shortest(s.cap))
                : said("scaled", shortest(std::round(1e4 * s.scale) / 1e4)),
      "matrix", "gate", false, [](const auto& k) { return k.scaled; });
  if (adds(s))
    row(said("added"), "position", "norm", true, [](const auto& k) { return k.seen ? k.added() : 0; });
  row(said("masked_scores"), "matrix", "gate", true, [](const auto& k) { return k.seen ? k.score : 0; });
  step(said("two"));
  row(said("sum_of", fixed(s.weights(), 3)), "core", "gate", false, [](const auto& k) { return k.weight; });
  step(said("three"));
  row("|v|", "position", "gate", false, [](const auto& k) { return k.length; });
  row("w · |v|", "core", "gate", false, [](const auto& k) { return k.weight * k.length; });
  std::string z = "z = Σ w v = (";
  for (std::size_t c = 0; c < std::min(kChannels, s.z.size()); ++c)
    z += concat(c ? ", " : "", digits(s.z[c]));
  d.text(kLeft, y + 6, concat(z, s.z.size() > kChannels ? ", …" : "", "),  |z| = ", digits(length_of(s.z))),
         12);
  return d.svg(said("title", s.layer, s.head, words[at(s.token)]));
}

}  // namespace rapt
