// SPDX-License-Identifier: Apache-2.0
// The few huge numbers of the residual stream, and what the model is without them.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/documents.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

std::string criterion(const MassiveOptions& o) {
  return concat("|x| > ", shortest(o.above), " and at least ", shortest(o.ratio),
                " times the layer's median |x|");
}

const Activation& strongest(const Massive& m) {
  return *std::max_element(m.top.begin(), m.top.end(), [](const Activation& a, const Activation& b) {
    return (a.row > 0) < (b.row > 0) || ((a.row > 0) == (b.row > 0) && a.ratio < b.ratio);
  });
}

std::string verdict(const Massive& m, const std::vector<std::string>& words, const MassiveOptions& o) {
  const Activation& a = strongest(m);
  const std::string most =
      concat("channel ", a.channel, " at token ", a.token, " '", words[static_cast<std::size_t>(a.token)],
             "' is ", fixed(a.value, 1), " after layer ", row_name(a.row), ", ", times_text(a.ratio),
             " the median of ", fixed(m.median[static_cast<std::size_t>(a.row)], 3));
  if (m.found)
    return concat("Yes, there are massive activations, from layer ", row_name(m.first_row), " on: ", most,
                  ". Criterion (Sun et al. 2024): ", criterion(o), ".");
  return concat(
      "No, nothing meets the criterion (", criterion(o),
      "; Sun et al. 2024, made for large models: small ones often miss it). The largest ratio: ", most, ".");
}

Table largest_table(const Massive& m, const std::vector<std::string>& words, const std::string& prefix) {
  Table t{.title = concat(prefix, "largest activations after each layer (tokens counted from 0)"),
          .columns = {"layer", "token", "word", "channel", "value", "times median", "median |x|", "massive"},
          .rows = {}};
  for (const Activation& a : m.top)
    t.rows.push_back({row_name(a.row), Cell(static_cast<double>(a.token), 0),
                      words[static_cast<std::size_t>(a.token)], Cell(static_cast<double>(a.channel), 0),
                      Cell(a.value, 1), Cell(a.ratio, 0), Cell(m.median[static_cast<std::size_t>(a.row)], 3),
                      a.massive ? "yes" : ""});
  return t;
}

Chart trace_chart(const Massive& m, const std::string& prefix) {
  Chart chart{.title = concat(prefix, "largest |x| of the strongest channels, and the median of all"),
              .x_label = "layer",
              .y_label = "|x|",
              .curves = {},
              .log_y = true};
  for (std::size_t c = 0; c < m.channels.size(); ++c) {
    Curve curve{.name = concat("channel ", m.channels[c]), .x = {}, .y = {}};
    for (int r = 0; r < m.rows; ++r) {
      curve.x.push_back(r - 1);
      curve.y.push_back(std::abs(
          static_cast<double>(m.trace[c * static_cast<std::size_t>(m.rows) + static_cast<std::size_t>(r)])));
    }
    chart.curves.push_back(std::move(curve));
  }
  Curve median{.name = "median", .x = {}, .y = m.median};
  for (int r = 0; r < m.rows; ++r) median.x.push_back(r - 1);
  chart.curves.push_back(std::move(median));
  return chart;
}

HeatMap ratio_map(const Massive& m, const std::vector<std::string>& words, const std::string& prefix) {
  HeatMap map{
      .title = concat(prefix,
                      "log10(largest |x| / median |x|), layer by layer (1: ten times, 3: a thousand times)"),
      .rows = row_names(m.rows),
      .columns = words,
      .values = {},
      .top = 0};
  map.row_name = "layer", map.column_name = "token", map.value_name = "log10 of the ratio";
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
  d.parts.push_back(Words{"What the model is without them", true});
  Table t{
      .title = "Perplexity over the text", .columns = {"what was done", "perplexity", "change"}, .rows = {}};
  Json::Array facts;
  MassiveEffect last;
  for (const bool zero : {true, false}) {
    if (!(zero ? flags.zero : flags.mean)) continue;
    MassiveEdit edit{.to = zero ? MassiveEdit::To::zero : MassiveEdit::To::mean,
                     .layer = flags.layer,
                     .which = flags.which};
    last = massive_effect(s.device(), s.net(), windows, edit);
    const auto change = [&](double after) {
      if (after >= 10 * last.before) return times_text(after / last.before);
      return concat(after >= last.before ? "+" : "", fixed(100 * (after / last.before - 1), 2), " %");
    };
    if (t.rows.empty()) {
      t.rows.push_back({"nothing", Cell(last.before, 3), ""});
      t.rows.push_back({"as many ordinary activations (of median size) set to zero", Cell(last.control, 3),
                        change(last.control)});
    }
    t.rows.push_back({concat(last.criterion ? "massive activations" : "largest activation of each window",
                             zero ? " set to zero" : " set to their mean"),
                      Cell(last.after, 3), change(last.after)});
    facts.push_back(effect_json(last, zero ? "zero" : "mean"));
  }
  d.parts.push_back(std::move(t));
  std::string text = concat("After layer ", last.layer, ", ", last.set.size(),
                            last.set.size() == 1 ? " activation" : " activations", " in ", windows.size(),
                            windows.size() == 1 ? " window" : " windows", " of the text were set (",
                            last.predicted, " predicted tokens).");
  if (!last.criterion) text += " None of them meets the criterion, so the largest of each window stands in.";
  if (flags.mean && windows.size() == 1)
    text +=
        " With one window the mean of an activation is often itself: "
        "give a longer text, or a smaller --window.";
  text += " In the paper zero destroys a model and the mean leaves it as it was: they act as constants.";
  d.parts.push_back(Words{text});
  d.facts.set("interventions", std::move(facts));
}

}  // namespace

Document massive_document(const Subject& s, const MassiveDocumentOptions& flags) {
  Document d{.name = "massive", .title = concat("Massive activations: ", model_line(s)), .parts = {}};
  Json::Array stacks;
  for (const Massive& m : massive(s.device(), s.net(), s.ids, s.source, flags.which)) {
    const std::vector<std::string> words = s.words_of(m.stack);
    const std::string prefix = stack_prefix(s.net(), m.stack);
    d.parts.push_back(Words{
        concat(prefix.empty() ? "" : concat("In the ", prefix, "stack: "), verdict(m, words, flags.which))});
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
