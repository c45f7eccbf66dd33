// SPDX-License-Identifier: Apache-2.0
// The few huge numbers of the residual stream, and what the model is without them.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/documents.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

Text criterion(const MassiveOptions& o) {
  return say("inspect.massive.criterion", shortest(o.above), shortest(o.ratio));
}

const Activation& strongest(const Massive& m) {
  return *std::max_element(m.top.begin(), m.top.end(), [](const Activation& a, const Activation& b) {
    return (a.row > 0) < (b.row > 0) || ((a.row > 0) == (b.row > 0) && a.ratio < b.ratio);
  });
}

Text verdict(const Massive& m, const std::vector<std::string>& words, const MassiveOptions& o) {
  const Activation& a = strongest(m);
  const Text most = say("inspect.massive.most", a.channel, a.token, words[static_cast<std::size_t>(a.token)],
                        fixed(a.value, 1), row_name(a.row), times_text(a.ratio),
                        fixed(m.median[static_cast<std::size_t>(a.row)], 3));
  if (m.found) return say("inspect.massive.yes", row_name(m.first_row), most, criterion(o));
  return say("inspect.massive.no", criterion(o), most);
}

Table largest_table(const Massive& m, const std::vector<std::string>& words, const std::string& prefix) {
  Table t{.title = in_stack(prefix, say("inspect.massive.table")),
          .columns = {say("inspect.layer"), say("inspect.token"), say("inspect.word"), say("inspect.channel"),
                      say("inspect.value"), say("inspect.massive.times"), say("inspect.massive.median_x"),
                      say("inspect.massive.massive")},
          .rows = {}};
  for (const Activation& a : m.top)
    t.rows.push_back({row_name(a.row), Cell(static_cast<double>(a.token), 0),
                      words[static_cast<std::size_t>(a.token)], Cell(static_cast<double>(a.channel), 0),
                      Cell(a.value, 1), Cell(a.ratio, 0), Cell(m.median[static_cast<std::size_t>(a.row)], 3),
                      a.massive ? Cell(say("lab.yes")) : Cell("")});
  return t;
}

Chart trace_chart(const Massive& m, const std::string& prefix) {
  Chart chart{.title = in_stack(prefix, say("inspect.massive.chart")),
              .x_label = say("inspect.layer"),
              .y_label = "|x|",
              .curves = {},
              .log_y = true};
  for (std::size_t c = 0; c < m.channels.size(); ++c) {
    Curve curve{.name = say("inspect.massive.channel", m.channels[c]), .x = {}, .y = {}};
    for (int r = 0; r < m.rows; ++r) {
      curve.x.push_back(r - 1);
      curve.y.push_back(std::abs(
          static_cast<double>(m.trace[c * static_cast<std::size_t>(m.rows) + static_cast<std::size_t>(r)])));
    }
    chart.curves.push_back(std::move(curve));
  }
  Curve median{.name = say("inspect.massive.median"), .x = {}, .y = m.median};
  for (int r = 0; r < m.rows; ++r) median.x.push_back(r - 1);
  chart.curves.push_back(std::move(median));
  return chart;
}

HeatMap ratio_map(const Massive& m, const std::vector<std::string>& words, const std::string& prefix) {
  HeatMap map{.title = in_stack(prefix, say("inspect.massive.map")),
              .rows = row_names(m.rows),
              .columns = words,
              .values = {},
              .top = 0};
  map.row_name = say("inspect.layer"), map.column_name = say("inspect.token"),
  map.value_name = say("inspect.massive.log_ratio");
  for (int r = 0; r < m.rows; ++r)
    for (Dim t = 0; t < m.tokens; ++t) map.values.push_back(m.log_ratio(r, t));
  return map;
}

// The text in windows, each with what the tokenizer puts before a text.
std::vector<std::vector<std::int32_t>> windows_of(const Subject& s, Dim length) {
  std::vector<std::int32_t> before;
  if (const Tokenizer* t = s.tokenizer()) before = t->before;
  std::span<const std::int32_t> rest = s.ids;
  if (rest.size() >= before.size() && std::equal(before.begin(), before.end(), rest.begin()))
    rest = rest.subspan(before.size());
  else before.clear();
  const std::size_t step =
      static_cast<std::size_t>(std::max<Dim>(1, length - static_cast<Dim>(before.size())));
  std::vector<std::vector<std::int32_t>> windows;
  for (std::size_t at = 0; at < rest.size(); at += step) {
    const auto piece = rest.subspan(at, std::min(step, rest.size() - at));
    // A shorter one at the end would have other places.
    if (!windows.empty() && piece.size() < step) break;
    windows.push_back(before);
    windows.back().insert(windows.back().end(), piece.begin(), piece.end());
  }
  return windows;
}

Json effect_json(const MassiveEffect& e, const char* to) {
  Json j = Json::Object{};
  j.set("to", to);
  j.set("layer", e.layer);
  j.set("criterion_met", e.criterion);
  j.set("perplexity_before", e.before);
  j.set("perplexity_after", e.after);
  j.set("perplexity_control", e.control);
  j.set("tokens", e.predicted);
  Json::Array set;
  for (std::size_t i = 0; i < e.set.size(); ++i) {
    Json one = Json::Object{};
    one.set("window", e.window[i]);
    one.set("token", e.set[i].token);
    one.set("channel", e.set[i].channel);
    one.set("was", e.set[i].value);
    one.set("became", e.became[i]);
    set.push_back(std::move(one));
  }
  j.set("set", std::move(set));
  return j;
}

void add_effects(Document& d, const Subject& s, const MassiveDocumentOptions& flags) {
  const std::vector<std::vector<std::int32_t>> windows = windows_of(s, flags.window);
  d.parts.push_back(Words{say("inspect.massive.without"), true});
  Table t{.title = say("inspect.massive.perplexity"),
          .columns = {say("inspect.massive.done"), say("inspect.massive.ppl"), say("inspect.massive.change")},
          .rows = {}};
  Json::Array facts;
  MassiveEffect last;
  for (const bool zero : {true, false}) {
    if (!(zero ? flags.zero : flags.mean)) continue;
    MassiveEdit edit{.to = zero ? MassiveEdit::To::zero : MassiveEdit::To::mean,
                     .layer = flags.layer,
                     .which = flags.which};
    last = massive_effect(s.device(), s.net(), windows, edit);
    const auto change = [&](double after) -> Text {
      if (after >= 10 * last.before) return times_text(after / last.before);
      return concat(after >= last.before ? "+" : "", fixed(100 * (after / last.before - 1), 2), " %");
    };
    if (t.rows.empty()) {
      t.rows.push_back({say("inspect.massive.nothing"), Cell(last.before, 3), ""});
      t.rows.push_back({say("inspect.massive.ordinary"), Cell(last.control, 3), change(last.control)});
    }
    t.rows.push_back(
        {say(concat("inspect.massive.", last.criterion ? "massive" : "largest", zero ? "_zero" : "_mean")),
         Cell(last.after, 3), change(last.after)});
    facts.push_back(effect_json(last, zero ? "zero" : "mean"));
  }
  d.parts.push_back(std::move(t));
  const Text activations = say(
      last.set.size() == 1 ? "inspect.massive.activation" : "inspect.massive.activations", last.set.size());
  const Text in_windows =
      say(windows.size() == 1 ? "inspect.massive.window" : "inspect.massive.windows", windows.size());
  d.parts.push_back(
      Words{sentences({say("inspect.massive.set", last.layer, activations, in_windows, last.predicted),
                       last.criterion ? Text() : say("inspect.massive.stand_in"),
                       flags.mean && windows.size() == 1 ? say("inspect.massive.one_window") : Text(),
                       say("inspect.massive.paper")})});
  d.facts.set("interventions", std::move(facts));
}

}  // namespace

Document massive_document(const Subject& s, const MassiveDocumentOptions& flags) {
  Document d{.name = "massive", .title = say("inspect.massive.title", model_line(s)), .parts = {}};
  Json::Array stacks;
  for (const Massive& m : massive(s.device(), s.net(), s.ids, s.source, flags.which)) {
    const std::vector<std::string> words = s.words_of(m.stack);
    const std::string prefix = stack_prefix(s.net(), m.stack);
    const Text said = verdict(m, words, flags.which);
    d.parts.push_back(
        Words{prefix.empty() ? said : say("inspect.massive.in_stack", stack_name(m.stack), said)});
    d.parts.push_back(ratio_map(m, words, prefix));
    d.parts.push_back(trace_chart(m, prefix));
    d.parts.push_back(largest_table(m, words, prefix));
    Json j = Json::Object{};
    j.set("stack", stack_name(m.stack));
    j.set("found", m.found);
    j.set("appears_after_layer", m.first_row - 1);
    Json::Array channels;
    for (Dim c : m.channels) channels.push_back(Json(c));
    j.set("channels", std::move(channels));
    j.set("trace", grid_json(m.trace, static_cast<std::size_t>(m.rows)));
    j.set("median", list_json(m.median));
    j.set("largest", grid_json(m.largest, static_cast<std::size_t>(m.tokens)));
    stacks.push_back(std::move(j));
  }
  d.facts.set("above", flags.which.above);
  d.facts.set("ratio", flags.which.ratio);
  d.facts.set("stacks", std::move(stacks));
  name_axes(d, "stacks[].trace", {"channel of channels", "row"});
  name_axes(d, "stacks[].median", {"row"});
  name_axes(d, "stacks[].largest", {"row", "token"});
  if (flags.zero || flags.mean) add_effects(d, s, flags);
  return d;
}

}  // namespace rapt
