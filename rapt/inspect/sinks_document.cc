// SPDX-License-Identifier: Apache-2.0
// How much attention the first tokens collect, and whether length or direction does it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/inspect/documents.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

Text counted_texts(Dim n) { return say(n == 1 ? "inspect.text" : "inspect.texts", n); }

double ratio(double a, double b) { return b > 0 ? a / b : std::nan(""); }

}  // namespace

// Pieces of `length` tokens, each framed as a text of its own. Where the text is short, itself.
std::vector<std::vector<std::int32_t>> sink_texts(const Subject& s, const SinksOptions& o) {
  if (s.ids.picture)
    fail(
        "sinks: first tokens of many texts are compared, and a picture has none; `rapt inspect attention "
        "--image` shows what its rows look at, `massive` which of them are huge");
  const std::vector<std::int32_t>& all = s.source.empty() ? s.ids : s.source;
  std::vector<std::int32_t> body = all, before, after;
  if (const Tokenizer* t = s.tokenizer()) before = t->before, after = t->after;
  const bool framed = all.size() >= before.size() + after.size() &&
                      std::equal(before.begin(), before.end(), all.begin()) &&
                      std::equal(after.rbegin(), after.rend(), all.rbegin());
  const Dim frame = framed ? static_cast<Dim>(before.size() + after.size()) : 0;
  if (framed)
    body.assign(all.begin() + static_cast<Dim>(before.size()), all.end() - static_cast<Dim>(after.size()));
  const Dim each = std::max<Dim>(1, o.length - frame), n = static_cast<Dim>(body.size());
  std::vector<std::vector<std::int32_t>> out;
  for (Dim at = 0; at + each <= n && static_cast<Dim>(out.size()) < o.texts; at += each) {
    std::vector<std::int32_t> piece(body.begin() + at, body.begin() + at + each);
    out.push_back(frame > 0 ? s.tokenizer()->frame(piece) : std::move(piece));
  }
  if (out.empty()) {
    if (o.note)
      o.note(concat("the text has ", all.size(), " tokens, fewer than ", o.length,
                    ": the score rises as texts get shorter"));
    out.push_back(all);
  }
  return out;
}

Document sinks_document(const Subject& s, const SinksOptions& o) {
  const std::vector<std::vector<std::int32_t>> texts = sink_texts(s, o);
  const SinkScore score = sink_score(s.device(), s.net(), texts, o.score);
  Document d{.name = "sinks", .title = say("inspect.sinks.title", model_line(s)), .parts = {}};
  Text by_token;
  for (std::size_t k = 0; k < score.sink.size(); ++k) {
    const Text one = say("inspect.sinks.token", k + 1, fixed(100 * score.sink[k], 2));
    by_token = k ? say("list.more", by_token, one) : one;
  }
  d.parts.push_back(
      Words{say(s.source.empty() ? "inspect.sinks.share" : "inspect.sinks.share_encoder",
                fixed(o.score.epsilon, 2), counted_texts(score.texts), score.tokens, by_token)});
  int most = 0;
  for (const HeadSink& h : score.heads) most = std::max(most, h.head + 1);
  HeatMap map{.title = say("inspect.sinks.map"), .rows = {}, .columns = {}, .values = {}, .top = 1};
  map.row_name = say("inspect.layer"), map.column_name = say("inspect.head"),
  map.value_name = say("inspect.sinks.weight");
  for (int h = 0; h < most; ++h) map.columns.push_back(std::to_string(h));
  Table table{
      .title = say("inspect.sinks.table"),
      .columns = {say("inspect.layer"), say("inspect.sinks.sinks"), say("inspect.sinks.first"), "|k1|",
                  say("inspect.sinks.k_others"), say("inspect.ratio"), "|v1|", say("inspect.sinks.v_others"),
                  say("inspect.ratio"), "cos(q,k1)", say("inspect.sinks.cos_others")},
      .rows = {}};
  Json::Array heads;
  for (std::size_t i = 0; i < score.heads.size();) {
    const AttentionPlace place = score.heads[i].place;
    HeadSink mean;
    double share = 0, alpha = 0, n = 0;
    for (; i < score.heads.size() && score.heads[i].place == place; ++i, ++n) {
      const HeadSink& h = score.heads[i];
      share += h.share[0], alpha += h.alpha[0];
      mean.key_first += h.key_first, mean.key_others += h.key_others, mean.value_first += h.value_first,
          mean.value_others += h.value_others;
      mean.cosine_first += h.cosine_first, mean.cosine_others += h.cosine_others;
      map.values.push_back(h.alpha[0]);
      Json j = Json::Object{};
      j.set("stack", stack_name(place.stack));
      j.set("layer", place.layer);
      if (place.number > 0) j.set("number", place.number);
      j.set("head", h.head);
      Json::Array alphas, shares;
      for (double x : h.alpha) alphas.push_back(x);
      for (double x : h.share) shares.push_back(x);
      j.set("alpha", std::move(alphas));
      j.set("share", std::move(shares));
      j.set("key_first", h.key_first);
      // One token has no others.
      const auto others = [&](double x) { return score.tokens > 1 ? Json(x) : Json(); };
      j.set("key_others", others(h.key_others));
      j.set("value_first", h.value_first);
      j.set("value_others", others(h.value_others));
      j.set("cosine_first", others(h.cosine_first));
      j.set("cosine_others", score.tokens > 2 ? Json(h.cosine_others) : Json());
      heads.push_back(std::move(j));
    }
    for (int h = static_cast<int>(n); h < most; ++h)
      map.values.push_back(std::numeric_limits<double>::quiet_NaN());
    map.rows.push_back(concat(stack_prefix(s.net(), place.stack), layer_label(place.layer, place.number)));
    table.rows.push_back({map.rows.back(), Cell(100 * share / n, 1), Cell(alpha / n),
                          Cell(mean.key_first / n, 2), Cell(mean.key_others / n, 2),
                          Cell(ratio(mean.key_first, mean.key_others), 2), Cell(mean.value_first / n, 2),
                          Cell(mean.value_others / n, 2), Cell(ratio(mean.value_first, mean.value_others), 2),
                          Cell(mean.cosine_first / n), Cell(mean.cosine_others / n)});
  }
  d.parts.push_back(std::move(map));
  d.parts.push_back(std::move(table));
  d.parts.push_back(Words{say("inspect.sinks.why")});
  Json::Array sinks;
  for (double x : score.sink) sinks.push_back(x);
  d.facts.set("epsilon", o.score.epsilon);
  d.facts.set("texts", static_cast<std::int64_t>(score.texts));
  d.facts.set("tokens", static_cast<std::int64_t>(score.tokens));
  d.facts.set("sink", std::move(sinks));
  d.facts.set("heads", std::move(heads));
  return d;
}

}  // namespace rapt
