// SPDX-License-Identifier: Apache-2.0
// One pass over a text whose attention is asked afterwards: statistics of every row, figures of every head,
// rows of weights computed anew (inspect/attention_map.h).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/apps/python/inspect.h"
#include "rapt/base/text.h"
#include "rapt/inspect/heads.h"

namespace rapt::python {
namespace {

constexpr const char* kStatNames[] = {"entropy",  "first",     "self",      "previous",
                                      "distance", "strongest", "max_logit", "sum"};
static_assert(std::size(kStatNames) == AttentionStat::count);

// One thread at a time asks: keys that were computed anew are kept. The device's lease is the lock, so that a
// function inside a pass may ask, too.
struct Record {
  ModelPtr model;
  std::unique_ptr<AttentionRecord> record;

  template <class F>
  auto ask(const F& f) {
    return without_gil([&] {
      const Lease lease(model->on().team());
      return f();
    });
  }
};

std::shared_ptr<Record> attention_record(const ModelPtr& m, const TokenIds& ids, const TokenIds& source,
                                         std::int64_t first_keys, double limit) {
  refuse_adapters(*m);
  auto out = std::make_shared<Record>();
  out->model = m;
  without_gil([&] {
    Edited edited(*m, Passes::one);
    // Edits of keys, queries and so on: the record must know of them.
    out->record = std::make_unique<AttentionRecord>(
        m->on(), m->net(), ids, source,
        RecordOptions{
            .first_keys = first_keys, .row_stats = true, .taps = edited.edits(), .most_bytes = limit});
    edited.check();
  });
  return out;
}

// Attentions of one kind of one stack, those of a layer beside each other: a grid of layers and heads.
struct Grid {
  std::vector<AttentionPlace> places;
  std::vector<Dim> columns;  // where the heads of each begin in their layer's row
  Dim layers = 0, heads = 0, tokens = 0;
};
Grid grid_of(const Record& r, Stack stack, bool cross) {
  Grid g;
  std::vector<Dim> filled;
  for (const AttentionPlace& p : r.record->places()) {
    if (p.stack != stack || p.cross != cross) continue;
    filled.resize(std::max(filled.size(), static_cast<std::size_t>(p.layer) + 1));
    Dim& column = filled[static_cast<std::size_t>(p.layer)];
    g.places.push_back(p);
    g.columns.push_back(column);
    column += r.record->heads(p);
    g.heads = std::max(g.heads, column);
    g.tokens = static_cast<Dim>(r.record->row_ids(p).size());
  }
  const Model& model = r.model->net();
  if (g.places.empty())
    fail_usage(model.recipe.name, " has no ", cross ? "cross-attention" : "self-attention", " in its ",
               stack_name(stack));
  g.layers = stack_of(model, stack).depth();
  return g;
}
Stack stack_named(const std::string& name) {
  for (const Stack s : {Stack::encoder, Stack::decoder})
    if (name == stack_name(s)) return s;
  fail_usage("stack is encoder or decoder, not '", name, "'");
}

// {statistic: [layers, heads, T]}; NaN where a layer has fewer heads, or none.
nb::dict record_stats(Record& r, const std::string& stack, bool cross) {
  const Grid g = grid_of(r, stack_named(stack), cross);
  const auto cells = static_cast<std::size_t>(g.layers * g.heads * g.tokens);
  const auto all = std::make_shared<const std::vector<float>>(r.ask([&] {
    std::vector<float> out(AttentionStat::count * cells, std::nanf(""));
    for (std::size_t i = 0; i < g.places.size(); ++i) {
      const std::vector<float> some = r.record->row_stats(g.places[i]);
      const auto each = some.size() / AttentionStat::count;  // heads x T
      for (std::size_t c = 0; c < AttentionStat::count; ++c)
        std::copy_n(some.begin() + static_cast<Dim>(c * each), each,
                    out.begin() + static_cast<Dim>(c * cells) +
                        (g.places[i].layer * g.heads + g.columns[i]) * g.tokens);
    }
    return out;
  }));
  nb::dict out;
  for (std::size_t c = 0; c < AttentionStat::count; ++c)
    out[kStatNames[c]] = array_of(all, all->data() + c * cells, Sizes{g.layers, g.heads, g.tokens});
  return out;
}

// A table: {column: list}, a row for each head of every attention.
nb::dict record_heads(Record& r, std::int64_t most_rows) {
  const std::vector<HeadMetrics> all = r.ask([&] { return head_metrics(*r.record, most_rows); });
  nb::dict out;
  const auto column = [&](const char* name, const auto& of) {
    nb::list values;
    for (const HeadMetrics& m : all) values.append(of(m));
    out[name] = std::move(values);
  };
  const auto figures = [&](const char* name, const auto& of) {
    std::vector<double> values;
    for (const HeadMetrics& m : all) values.push_back(of(m));
    out[name] = array_of(std::move(values));
  };
  column("stack", [](const HeadMetrics& m) { return stack_name(m.place.stack); });
  column("layer", [](const HeadMetrics& m) { return m.place.layer; });
  column("number", [](const HeadMetrics& m) { return m.place.number; });
  column("cross", [](const HeadMetrics& m) { return m.place.cross; });
  column("head", [](const HeadMetrics& m) { return m.head; });
  column("label", [](const HeadMetrics& m) { return m.label; });
  const bool gated = std::any_of(all.begin(), all.end(), [](const HeadMetrics& m) { return m.gate >= 0; });
  for (const HeadMetric& metric : head_metric_list()) {
    const std::string_view key = metric.key;
    if (!gated && key.starts_with("gate")) continue;
    // Places of two texts are not compared.
    const bool places =
        key == "self" || key == "previous" || key == "induction" || key == "distance" || key == "variance";
    figures(metric.key,
            [&](const HeadMetrics& m) { return places && m.place.cross ? std::nan("") : metric.of(m); });
  }
  figures("sink", [](const HeadMetrics& m) { return m.sink; });
  return out;
}

// Weights [rows, keys] of one head, or [heads, rows, keys] of all of the layer's.
nb::object record_rows(Record& r, const std::string& stack, bool cross, int layer, int number, int head,
                       std::vector<Dim> rows, double limit) {
  const AttentionPlace place{.stack = stack_named(stack), .layer = layer, .cross = cross, .number = number};
  const Dim heads = r.record->heads(place), keys = static_cast<Dim>(r.record->key_ids(place).size()),
            n = static_cast<Dim>(rows.size()), shown = head < 0 ? heads : 1;
  if (head >= heads) fail_usage("layer ", layer, " has no head ", head, "; it has ", heads);
  const double bytes = 4.0 * static_cast<double>(shown) * static_cast<double>(n) * static_cast<double>(keys);
  if (bytes > limit)
    fail("these weights take ", byte_count(bytes), ", more than the ", byte_count(limit),
         " allowed; ask for fewer rows (rows=slice(0, 100)) or one head");
  std::vector<Dim> sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != rows) fail_usage("rows are asked for in ascending order");
  std::vector<float> values(static_cast<std::size_t>(shown * n * keys));
  r.ask([&] {
    std::vector<Dim> next(static_cast<std::size_t>(heads));
    r.record->rows(place, head, rows, [&](Dim, int h, std::span<const float> weights) {
      const Dim row = (head < 0 ? h * n : 0) + next[static_cast<std::size_t>(h)]++;
      std::copy(weights.begin(), weights.end(), values.begin() + row * keys);
    });
    return 0;
  });
  return array_of(std::move(values), head < 0 ? Sizes{heads, n, keys} : Sizes{n, keys});
}

nb::list record_places(const Record& r) {
  nb::list out;
  for (const AttentionPlace& p : r.record->places())
    out.append(nb::make_tuple(stack_name(p.stack), p.layer, p.number, p.cross, r.record->heads(p)));
  return out;
}

// Ids of the rows, and of the keys.
nb::tuple record_ids(const Record& r, const std::string& stack, bool cross) {
  const AttentionPlace place = grid_of(r, stack_named(stack), cross).places[0];
  const auto rows = r.record->row_ids(place), keys = r.record->key_ids(place);
  return nb::make_tuple(TokenIds(rows.begin(), rows.end()), TokenIds(keys.begin(), keys.end()));
}

}  // namespace

void add_inspect_attention(nb::module_& m) {
  nb::class_<Record>(m, "AttentionRecord");
  m.def("attention_record", &attention_record, "model"_a, "ids"_a, "source"_a, "first_keys"_a, "limit"_a);
  m.def("record_stats", &record_stats, "record"_a, "stack"_a, "cross"_a);
  m.def("record_heads", &record_heads, "record"_a, "most_rows"_a);
  m.def("record_rows", &record_rows, "record"_a, "stack"_a, "cross"_a, "layer"_a, "number"_a, "head"_a,
        "rows"_a, "limit"_a);
  m.def("record_places", &record_places, "record"_a);
  m.def("record_ids", &record_ids, "record"_a, "stack"_a, "cross"_a);
}

}  // namespace rapt::python
