// SPDX-License-Identifier: Apache-2.0
// What `rapt inspect` shows of a text, by value: sinks, massive activations, the logit lens, gates, norms;
// and the report's page.
#include <algorithm>
#include <functional>
#include <map>

#include "rapt/apps/python/inspect.h"
#include "rapt/inspect/documents.h"
#include "rapt/inspect/gates.h"
#include "rapt/inspect/lens.h"
#include "rapt/inspect/norms.h"
#include "rapt/inspect/report.h"
#include "rapt/text/words.h"

namespace rapt::python {
namespace {

// A column of a table.
template <class List, class Of>
nb::list list_of(const List& list, const Of& of) {
  nb::list out;
  for (const auto& x : list) out.append(of(x));
  return out;
}
template <class List, class Of>
nb::object numbers_of(const List& list, const Of& of) {
  std::vector<double> out;
  for (const auto& x : list) out.push_back(of(x));
  return array_of(std::move(out));
}
Dim size_of(const auto& list) { return static_cast<Dim>(list.size()); }

// f(taps with the handle's edits), then whether they touched something.
template <class F>
auto seen(const ModelPtr& m, const F& f) {
  refuse_adapters(*m);
  return without_gil([&] {
    Edited edited(*m, Passes::one);
    auto out = f(edited.edits());
    edited.check();
    return out;
  });
}

nb::dict inspect_sinks(const ModelPtr& m, const TokenIds& ids, const TokenIds& source, double epsilon,
                       int first, std::int64_t length, std::int64_t texts) {
  if (epsilon < 0 || epsilon >= 1) fail_usage("epsilon must be from 0 to below 1");
  if (first < 1 || length < 2 || texts < 1)
    fail_usage("sinks: first and texts are at least 1, length at least 2");
  const Subject s = subject_of(*m, ids, source);
  const SinkScore score = seen(m, [&](const Taps* edits) {
    SinksOptions o{.length = length, .texts = texts};
    o.score.epsilon = epsilon, o.score.keys = first, o.score.taps = edits;
    const auto pieces = sink_texts(s, o);
    return sink_score(s.device(), s.net(), pieces, o.score);
  });
  nb::dict out;
  out["sink"] = array_of(std::vector<double>(score.sink));
  out["texts"] = score.texts, out["tokens"] = score.tokens;
  const auto& heads = score.heads;
  nb::dict table;
  table["stack"] = list_of(heads, [](const HeadSink& h) { return stack_name(h.place.stack); });
  table["layer"] = list_of(heads, [](const HeadSink& h) { return h.place.layer; });
  table["number"] = list_of(heads, [](const HeadSink& h) { return h.place.number; });
  table["head"] = list_of(heads, [](const HeadSink& h) { return h.head; });
  for (const auto& [name, of] :
       {std::pair{"key_first", &HeadSink::key_first}, std::pair{"key_others", &HeadSink::key_others},
        std::pair{"value_first", &HeadSink::value_first}, std::pair{"value_others", &HeadSink::value_others},
        std::pair{"cosine_first", &HeadSink::cosine_first},
        std::pair{"cosine_others", &HeadSink::cosine_others}})
    table[name] = numbers_of(heads, [&](const HeadSink& h) { return h.*of; });
  out["heads"] = std::move(table);
  for (const auto& [name, of] :
       {std::pair{"alpha", &HeadSink::alpha}, std::pair{"share", &HeadSink::share}}) {
    std::vector<double> all;  // [heads][keys]
    for (const HeadSink& h : heads) all.insert(all.end(), (h.*of).begin(), (h.*of).end());
    out[name] = array_of(std::move(all), Sizes{size_of(heads), size_of(score.sink)});
  }
  return out;
}

nb::list inspect_massive(const ModelPtr& m, const TokenIds& ids, const TokenIds& source, double above,
                         double ratio, int top) {
  const std::vector<Massive> all = seen(m, [&](const Taps* edits) {
    return massive(m->on(), m->net(), ids, source,
                   {.above = above, .ratio = ratio, .top = top, .taps = edits});
  });
  nb::list stacks;
  for (const Massive& x : all) {
    nb::dict out;
    out["stack"] = stack_name(x.stack);
    out["rows"] = row_names(x.rows);
    out["median"] = array_of(std::vector<double>(x.median));
    out["largest"] = array_of(std::vector<float>(x.largest), Sizes{x.rows, x.tokens});
    out["channels"] = x.channels;
    out["trace"] = array_of(std::vector<float>(x.trace), Sizes{size_of(x.channels), x.rows});
    out["found"] = x.found;
    out["first_row"] = row_name(x.first_row);
    nb::dict table;
    table["row"] = list_of(x.top, [](const Activation& a) { return row_name(a.row); });
    table["token"] = list_of(x.top, [](const Activation& a) { return a.token; });
    table["channel"] = list_of(x.top, [](const Activation& a) { return a.channel; });
    table["value"] = numbers_of(x.top, [](const Activation& a) { return a.value; });
    table["ratio"] = numbers_of(x.top, [](const Activation& a) { return a.ratio; });
    table["massive"] = list_of(x.top, [](const Activation& a) { return a.massive; });
    out["top"] = std::move(table);
    stacks.append(std::move(out));
  }
  return stacks;
}

nb::dict inspect_lens(const ModelPtr& m, const TokenIds& ids, const TokenIds& source, int top,
                      std::int64_t first, std::int64_t count) {
  Lens l = seen(m, [&](const Taps* edits) {
    return lens(m->on(), m->net(), ids, source, {.top = top, .first = first, .count = count, .taps = edits});
  });
  const Sizes grid{l.rows, l.tokens}, cube{l.rows, l.tokens, l.top};
  nb::list words;  // [rows][tokens][top], each as it would stand there
  for (int r = 0; r < l.rows; ++r) {
    nb::list row;
    for (Dim t = 0; t < l.tokens; ++t) {
      const auto before = static_cast<std::size_t>(l.first + t + (l.own ? 0 : 1));
      nb::list cell;
      for (int k = 0; k < l.top; ++k) {
        const auto at = l.cell(r, t) * static_cast<std::size_t>(l.top) + static_cast<std::size_t>(k);
        const std::string text =
            next_token_text(m->checkpoint->tokenizer.get(), std::span(ids).first(before), l.ids[at]);
        cell.append(text_of(text));
      }
      row.append(std::move(cell));
    }
    words.append(std::move(row));
  }
  nb::dict out;
  out["rows"] = row_names(l.rows);
  out["first"] = l.first;
  out["words"] = std::move(words);
  out["ids"] = array_of(std::move(l.ids), cube);
  out["probabilities"] = array_of(std::move(l.probabilities), cube);
  out["entropy"] = array_of(std::move(l.entropy), grid);
  out["kl"] = array_of(std::move(l.kl), grid);
  out["rank"] = array_of(std::move(l.rank), grid);
  out["truth"] = array_of(std::move(l.truth), grid);
  return out;
}

nb::dict inspect_gates(const ModelPtr& m, const TokenIds& ids, const TokenIds& source) {
  const std::vector<GateStats> all =
      seen(m, [&](const Taps* edits) { return gates(m->on(), m->net(), ids, source, edits); });
  nb::dict out;
  out["stack"] = list_of(all, [](const GateStats& g) { return stack_name(g.stack); });
  out["layer"] = list_of(all, [](const GateStats& g) { return g.layer; });
  out["number"] = list_of(all, [](const GateStats& g) { return g.number; });
  out["cross"] = list_of(all, [](const GateStats& g) { return g.cross; });
  out["at"] = list_of(all, [](const GateStats& g) { return std::string(gate_name(g.at)); });
  out["head"] = list_of(all, [](const GateStats& g) { return g.head; });
  out["constant"] = list_of(all, [](const GateStats& g) { return g.constant; });
  out["values"] = list_of(all, [](const GateStats& g) { return g.values; });
  out["mean"] = numbers_of(all, [](const GateStats& g) { return g.mean; });
  out["closed"] = numbers_of(all, [](const GateStats& g) { return g.closed; });
  std::vector<std::int64_t> bins;
  for (const GateStats& g : all) bins.insert(bins.end(), g.histogram.begin(), g.histogram.end());
  out["histogram"] = array_of(std::move(bins), Sizes{size_of(all), static_cast<Dim>(GateStats::kBins)});
  return out;
}

nb::dict inspect_norms(const ModelPtr& m, const TokenIds& ids, const TokenIds& source) {
  Norms all = seen(m, [&](const Taps* edits) { return norms(m->on(), m->net(), ids, source, edits); });
  nb::list grids;
  for (NormGrid& g : all.grids) {
    nb::dict out;
    const Sizes layers{g.rows - 1, g.tokens};
    out["stack"] = stack_name(g.stack);
    out["residual"] = array_of(std::move(g.residual), Sizes{g.rows, g.tokens});
    out["attn_out"] = array_of(std::move(g.attn_out), layers);
    out["ffn_out"] = array_of(std::move(g.ffn_out), layers);
    out["cross_out"] = g.cross_out.empty() ? nb::none() : array_of(std::move(g.cross_out), layers);
    grids.append(std::move(out));
  }
  constexpr const char* kOf[] = {"q", "k", "v"};
  nb::dict table;
  table["of"] =
      list_of(all.heads, [&](const HeadNorm& h) { return std::string(kOf[static_cast<int>(h.of)]); });
  table["stack"] = list_of(all.heads, [](const HeadNorm& h) { return stack_name(h.stack); });
  table["layer"] = list_of(all.heads, [](const HeadNorm& h) { return h.layer; });
  table["number"] = list_of(all.heads, [](const HeadNorm& h) { return h.number; });
  table["head"] = list_of(all.heads, [](const HeadNorm& h) { return h.head; });
  table["first"] = numbers_of(all.heads, [](const HeadNorm& h) { return h.first; });
  table["others"] = numbers_of(all.heads, [](const HeadNorm& h) { return h.others; });
  nb::dict out;
  out["grids"] = std::move(grids);
  out["heads"] = std::move(table);
  return out;
}

// The page, as bytes.
nb::bytes inspect_report(const ModelPtr& m, const TokenIds& ids, const TokenIds& source, std::int64_t pixels,
                         std::int64_t keys, bool with_lens, const std::optional<std::string>& stack) {
  ReportOptions o{.pixels = pixels, .keys = keys, .lens = with_lens};
  if (stack) {
    if (*stack != "encoder" && *stack != "decoder")
      fail_usage("stack is encoder or decoder, not '", *stack, "'");
    o.stack = *stack == "encoder" ? Stack::encoder : Stack::decoder;
  }
  if (m->edits) fail_usage("a report is of the model without edits; take the views one by one");
  const Subject s = subject_of(*m, ids, source);
  const std::string html = without_gil([&] { return page_html(report_page(s, o)); });
  return nb::bytes(html.data(), html.size());
}

// Tokens as people read them, white space made visible.
nb::list token_words(const ModelPtr& m, const TokenIds& ids) {
  nb::list out;
  for (const std::string& text : token_texts(m->checkpoint->tokenizer.get(), ids))
    out.append(text_of(visible_text(text)));
  return out;
}

}  // namespace

void add_inspect_views(nb::module_& m) {
  m.def("inspect_sinks", &inspect_sinks, "model"_a, "ids"_a, "source"_a, "epsilon"_a, "first"_a, "length"_a,
        "texts"_a);
  m.def("inspect_massive", &inspect_massive, "model"_a, "ids"_a, "source"_a, "above"_a, "ratio"_a, "top"_a);
  m.def("inspect_lens", &inspect_lens, "model"_a, "ids"_a, "source"_a, "top"_a, "first"_a, "count"_a);
  m.def("inspect_gates", &inspect_gates, "model"_a, "ids"_a, "source"_a);
  m.def("inspect_norms", &inspect_norms, "model"_a, "ids"_a, "source"_a);
  m.def("inspect_report", &inspect_report, "model"_a, "ids"_a, "source"_a, "pixels"_a, "keys"_a, "lens"_a,
        "stack"_a.none());
  m.def("token_words", &token_words, "model"_a, "ids"_a);
}

}  // namespace rapt::python
