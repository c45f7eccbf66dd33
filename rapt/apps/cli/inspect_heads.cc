// SPDX-License-Identifier: Apache-2.0
// rapt inspect heads: what every attention head does on a text, and a name for it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/edits.h"
#include "rapt/inspect/headvis.h"

namespace rapt::cli {
namespace {

struct Options {
  std::string metric = "first";
  Dim first = 1, rows = 2048;
  std::optional<std::string> headvis;
  std::vector<std::string> edits;
};

const HeadMetric& metric_named(const std::string& name) {
  std::vector<std::string> known;
  for (const HeadMetric& m : head_metric_list()) {
    if (name == m.key) return m;
    known.push_back(m.key);
  }
  fail_usage("--metric: '", name, "' is no figure of a head; known: ", join(known));
}

std::string place_name(const Model& model, const AttentionPlace& p) {
  return concat(stack_prefix(model, p.stack), p.cross ? "cross " : "", layer_label(p.layer, p.number));
}

Json metrics_json(const HeadMetrics& m) {
  Json j = Json::Object{};
  j.set("stack", stack_name(m.place.stack));
  j.set("layer", m.place.layer);
  if (m.place.number > 0) j.set("number", m.place.number);
  j.set("cross", m.place.cross);
  j.set("head", m.head);
  for (const HeadMetric& metric : head_metric_list())
    if (m.gate >= 0 || !std::string_view(metric.key).starts_with("gate")) j.set(metric.key, metric.of(m));
  // Places of two texts are not compared: cross-attention has no token itself or before.
  if (m.place.cross)
    for (const char* key : {"self", "previous", "induction", "distance", "variance"}) j.set(key, Json());
  j.set("sink", m.sink);
  if (!m.place.cross) {
    Json even = Json::Object{};
    for (const auto& [key, value] :
         {std::pair{"sink", m.even_sink}, std::pair{"self", m.even_self},
          std::pair{"previous", m.even_previous}, std::pair{"induction", m.even_induction}})
      even.set(key, value);
    j.set("equal_weights", std::move(even));
  }
  j.set("label", m.label);
  return j;
}

// Each kind of head: how many are called so, and those that do it most beyond what equal weights give,
// whatever they are called.
Table clearest(const Model& model, const std::vector<HeadMetrics>& all) {
  Table t{.title = "What heads do", .columns = {"kind", "heads", "strongest"}, .rows = {}};
  const auto called = [&](const char* name) {
    return Cell(static_cast<double>(std::count_if(
                    all.begin(), all.end(), [&](const HeadMetrics& m) { return m.label.starts_with(name); })),
                0);
  };
  for (const HeadKind& kind : head_kinds()) {
    std::vector<const HeadMetrics*> heads;
    for (const HeadMetrics& m : all)
      if (!m.place.cross && kind.beyond(m) > 0) heads.push_back(&m);
    std::sort(heads.begin(), heads.end(),
              [&](const HeadMetrics* a, const HeadMetrics* b) { return kind.beyond(*a) > kind.beyond(*b); });
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, heads.size()); ++i)
      names += concat(i ? ", " : "", stack_prefix(model, heads[i]->place.stack), "L",
                      layer_label(heads[i]->place.layer, heads[i]->place.number), "H", heads[i]->head, " ",
                      fixed(heads[i]->*kind.share, 2));
    t.rows.push_back({kind.name, called(kind.name), names});
  }
  t.rows.push_back({"uniform", called("uniform"), ""});
  return t;
}

Document view(const ViewRequest& s, const Options& o) {
  const HeadMetric& shown = metric_named(o.metric);
  Taps taps;
  const auto check_edits = install_edits(taps, s.net(), parse_edits(o.edits));
  const AttentionRecord record(s.device(), s.net(), s.ids, s.source, {.first_keys = o.first, .taps = &taps});
  check_edits();
  const std::vector<HeadMetrics> all = head_metrics(record, o.rows);
  if (o.headvis) {
    const std::vector<std::string> words = s.words_of(all.back().place.stack);
    write_headvis(record, all, s.net().recipe.name, words, *o.headvis, s.force);
  }
  Document d{.name = "heads", .title = concat("Attention heads of ", model_line(s)), .parts = {}};
  if (!o.edits.empty()) d.parts.push_back(Words{concat("The pass was changed: ", join(o.edits), ".")});
  int most = 0;
  for (const HeadMetrics& m : all) most = std::max(most, m.head + 1);
  HeatMap map{.title = concat(shown.name(), ", layer by head"),
              .rows = {},
              .columns = {},
              .values = {},
              .top = shown.share ? 1.0 : 0.0};
  map.row_name = "layer", map.column_name = "head", map.value_name = shown.name();
  for (int h = 0; h < most; ++h) map.columns.push_back(std::to_string(h));
  Table layers{.title = "Means of each layer",
               .columns = {"layer", "first token", "sinks", "self", "before", "induction", "entropy",
                           "distance", "max score"},
               .rows = {}};
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t begin = i;
    const AttentionPlace place = all[begin].place;
    HeadMetrics sum;
    double sinks = 0, logit = all[begin].max_logit;
    for (; i < all.size() && all[i].place == place; ++i) {
      const HeadMetrics& m = all[i];
      map.values.push_back(shown.of(m));
      sum.first += m.first, sum.self += m.self, sum.previous += m.previous, sum.induction += m.induction,
          sum.entropy += m.entropy, sum.distance += m.distance;
      sinks += m.sink > 0.3;
      logit = std::max(logit, m.max_logit);
    }
    const auto n = static_cast<double>(i - begin);
    map.rows.push_back(place_name(s.net(), place));
    for (int h = static_cast<int>(i - begin); h < most; ++h)
      map.values.push_back(std::numeric_limits<double>::quiet_NaN());
    const auto of_one_text = [&](double x, int digits) {
      return Cell(place.cross ? std::numeric_limits<double>::quiet_NaN() : x, digits);
    };
    layers.rows.push_back({map.rows.back(), Cell(sum.first / n), concat(fixed(sinks, 0), " of ", fixed(n, 0)),
                           of_one_text(sum.self / n, 3), of_one_text(sum.previous / n, 3),
                           of_one_text(sum.induction / n, 3), Cell(sum.entropy / n),
                           of_one_text(sum.distance / n, 1), Cell(logit, 1)});
  }
  d.parts.push_back(std::move(map));
  d.parts.push_back(std::move(layers));
  d.parts.push_back(clearest(s.net(), all));
  if (all[0].sampled < all[0].rows)
    d.parts.push_back(
        Words{concat("Induction, variance and the strongest weight are of ", all[0].sampled,
                     " rows, evenly spread over ", all[0].rows, "; the rest is of every row.")});
  Json::Array heads;
  for (const HeadMetrics& m : all) heads.push_back(metrics_json(m));
  d.facts.set("tokens", static_cast<std::int64_t>(s.ids.size()));
  d.facts.set("first_keys", static_cast<std::int64_t>(o.first));
  d.facts.set("heads", std::move(heads));
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  Options o;
  o.metric = args.value("metric").value_or(o.metric);
  metric_named(o.metric);
  o.first = args.number("first", 1, 64).value_or(o.first);
  o.rows = args.number("sample", 1, Dim{1} << 40).value_or(o.rows);
  o.headvis = args.value("headvis");
  o.edits = args.values("edit");
  return [o](const ViewRequest& s) { return view(s, o); };
}

}  // namespace

extern const View kHeadsView;
const View kHeadsView = {
    "heads", "every attention head: where its weight lies, and what it seems to do",
    "  --metric NAME        what the map shows: first (default), entropy, self, previous, induction,\n"
    "                       distance, variance, strongest, max_logit, gate, gate_closed; the table and\n"
    "                       --json have all\n"
    "  --first K            how many first tokens count as the first (1).\n"
    "                       A head is named after where it gives at least 0.3 of its weight and 0.2 more\n"
    "                       than equal weights would; uniform: 0.9 of their entropy. A sink is counted\n"
    "                       over all rows, seen or not\n"
    "  --sample N           rows computed anew for induction, variance and strongest (2048)\n"
    "  --headvis FOLDER     the files that HeadVis shows\n"
    "  --edit SPEC          changes the pass, as in tensors\n",
    parse};

}  // namespace rapt::cli
