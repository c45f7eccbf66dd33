// SPDX-License-Identifier: Apache-2.0
// rapt lab streaming MODEL [TEXT]: StreamingLLM's table on a model of one's own, with a verdict.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/lab/real.h"
#include "rapt/lab/toy.h"

namespace rapt {

LabResult streaming_result(const StreamingReport& r, const std::string& model) {
  const bool anew = r.recomputed > 0;
  Table table{.title = say("lab.real-streaming.t.perplexity", with_commas(r.tokens), with_commas(r.samples)),
              .columns = {say("lab.real-streaming.t.cache"), say("lab.real.perplexity")}};
  if (anew) table.columns.push_back(say("lab.real-streaming.t.against"));
  Table cost{.title = say("lab.real-streaming.t.cost"),
             .columns = {say("lab.real-streaming.t.cache"), say("lab.real-streaming.t.begin"),
                         say("lab.real-streaming.t.middle"), say("lab.real-streaming.t.end"),
                         say("lab.real-streaming.t.pages"), "MiB", say("lab.real-streaming.t.seconds")}};
  Chart chart{.title = say("lab.real-streaming.c.title", model, r.window),
              .x_label = say("lab.real-streaming.c.keep"),
              .y_label = say("lab.real.perplexity"),
              .curves = {{.name = say("lab.real-streaming.c.streamed")}},
              .log_y = true};
  Chart times{.title = say("lab.real-streaming.c.times"),
              .x_label = say("lab.real-streaming.c.place"),
              .y_label = say("lab.real-streaming.c.ms")};
  const StreamingRow *none = nullptr, *one = nullptr, *most = nullptr, *best = nullptr;
  for (const StreamingRow& row : r.rows) {
    const std::string cache = concat(row.keep, "+", r.window);
    std::vector<Cell> cells = {cache, thousands(row.perplexity)};
    if (anew) cells.push_back(change_text(row.perplexity, r.recomputed_perplexity));
    table.rows.push_back(std::move(cells));
    cells = {cache};
    Curve time{.name = cache};
    for (std::size_t i = 0; i < 3; ++i) {
      cells.push_back(Cell(1000 * row.token_seconds[i], 2));
      time.x.push_back(50.0 * static_cast<double>(i));
      time.y.push_back(1000 * row.token_seconds[i]);
    }
    cells.push_back(concat(row.pages[0], " / ", row.pages[1], " / ", row.pages[2]));
    cells.push_back(Cell(static_cast<double>(row.bytes[2]) / 1048576, 1));
    cells.push_back(Cell(row.seconds, 0));
    cost.rows.push_back(std::move(cells));
    times.curves.push_back(std::move(time));
    chart.curves[0].x.push_back(static_cast<double>(row.keep));
    chart.curves[0].y.push_back(row.perplexity);
    if (row.keep == 0) none = &row;
    if (row.keep == 1) one = &row;
    if (row.keep > 0 && (!most || row.keep > most->keep)) most = &row;
    if (row.keep > 0 && (!best || row.perplexity < best->perplexity)) best = &row;
  }
  if (anew) {
    table.rows.push_back({say("lab.real-streaming.t.anew", r.recomputed), thousands(r.recomputed_perplexity),
                          change_text(r.recomputed_perplexity, r.recomputed_perplexity)});
    chart.curves.push_back({.name = say("lab.real-streaming.c.anew"),
                            .x = chart.curves[0].x,
                            .y = std::vector<double>(chart.curves[0].x.size(), r.recomputed_perplexity)});
  }

  LabResult out;
  std::vector<Text> v;
  if (none && best) {
    const double factor = none->perplexity / best->perplexity;
    out.findings.push_back(above(say("lab.real-streaming.f.none", best->keep), factor, 1.1, "x",
                                 say("lab.real-streaming.p.none")));
    v.push_back(say(factor > 1.1 ? "lab.real-streaming.v.collapses" : "lab.real-streaming.v.stands", r.window,
                    thousands(none->perplexity), best->keep, thousands(best->perplexity), digits(factor, 2)));
  }
  if (one && most && most != one) {
    const double ratio = one->perplexity / most->perplexity;
    out.findings.push_back(below(say("lab.real-streaming.f.one", most->keep), ratio, 1.03, "x",
                                 say("lab.real-streaming.p.one"), false));
    v.push_back(say(ratio < 1.03 ? "lab.real-streaming.v.one" : "lab.real-streaming.v.more",
                    thousands(one->perplexity), most->keep, thousands(most->perplexity)));
  }
  if (anew && best) {
    const double ratio = best->perplexity / r.recomputed_perplexity;
    out.findings.push_back(below(say("lab.real-streaming.f.anew", best->keep), ratio, 1.05, "x",
                                 say("lab.real-streaming.p.anew"), false));
    v.push_back(say(ratio < 1.05 ? "lab.real-streaming.v.anew" : "lab.real-streaming.v.anew_worse",
                    r.recomputed, thousands(r.recomputed_perplexity), digits(100 * (ratio - 1), 1)));
  }
  if (!r.rows.empty()) {
    const StreamingRow& last = r.rows.back();
    const double grown = static_cast<double>(last.bytes[2]) / static_cast<double>(last.bytes[1]);
    out.findings.push_back(between(say("lab.real-streaming.f.memory"), grown, 0.8, 1.2, "x"));
    v.push_back(say(grown < 1.2 ? "lab.real-streaming.v.memory" : "lab.real-streaming.v.memory_grows",
                    digits(static_cast<double>(last.bytes[2]) / 1048576, 1), r.window + last.keep));
  }
  out.verdict = sentences(std::move(v));
  out.document.parts = {chart, table, times, cost};
  Json::Array rows;
  for (const StreamingRow& row : r.rows) {
    Json::Array seconds, pages, bytes;
    for (std::size_t i = 0; i < 3; ++i) {
      seconds.emplace_back(row.token_seconds[i]);
      pages.emplace_back(static_cast<Dim>(row.pages[i]));
      bytes.emplace_back(static_cast<Dim>(row.bytes[i]));
    }
    rows.push_back(Json::Object{{"keep", row.keep},
                                {"nll", row.nll},
                                {"perplexity", row.perplexity},
                                {"seconds", row.seconds},
                                {"token_seconds", std::move(seconds)},
                                {"pages", std::move(pages)},
                                {"bytes", std::move(bytes)}});
  }
  Json& facts = out.document.facts;
  facts.set("model", model);
  facts.set("tokens", r.tokens);
  facts.set("samples", r.samples);
  facts.set("window", r.window);
  facts.set("rows", std::move(rows));
  if (anew)
    facts.set("recomputed", Json::Object{{"tokens", r.recomputed},
                                         {"nll", r.recomputed_nll},
                                         {"perplexity", r.recomputed_perplexity},
                                         {"seconds", r.recomputed_seconds}});
  return out;
}

LabResult real_streaming(const Lab& lab, const RealSubject& s) {
  const TokenIds ids = framed(s, s.prose);
  const auto there = static_cast<Dim>(ids.size());
  StreamingOptions o = s.streaming;
  o.tokens = s.tokens > 0 ? s.tokens : std::min(o.tokens, there);
  if (there < o.tokens)
    fail("streaming: the text has ", with_commas(there), " tokens, ", with_commas(o.tokens),
         " are asked for; give a longer text or --tokens");
  const StreamingReport report = run_streaming(
      lab.device, s.path, ids, o, [&](const std::string& what, Dim done, Dim of, double perplexity) {
        if (lab.progress)
          lab.progress(concat(what, ", perplexity ", fixed(perplexity, 2)), static_cast<double>(done),
                       static_cast<double>(of));
      });
  return streaming_result(report, s.name);
}

}  // namespace rapt
