// SPDX-License-Identifier: Apache-2.0
// A text becomes a Metric; a row of logits becomes its value and its slope.
#include "rapt/inspect/metric.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/text/words.h"

namespace rapt {
namespace {

constexpr std::pair<const char*, Metric::Kind> kKinds[] = {{"logit", Metric::Kind::logit},
                                                           {"difference", Metric::Kind::difference},
                                                           {"logprob", Metric::Kind::logprob},
                                                           {"loss", Metric::Kind::loss}};

std::optional<Dim> number_of(std::string_view text) {
  Dim n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty() ? std::optional(n)
                                                                                   : std::nullopt;
}

double log_sum(std::span<const double> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

double at(std::span<const double> logits, std::int32_t token) {
  return logits[static_cast<std::size_t>(token)];
}

}  // namespace

const char* metric_name(Metric::Kind kind) {
  for (const auto& [name, k] : kKinds)
    if (k == kind) return name;
  return "";
}

std::int32_t one_token(std::string_view text, const Tokenizer* tokenizer) {
  if (text.starts_with("id:")) {
    const std::optional<Dim> id = number_of(text.substr(3));
    if (!id || *id < 0 || *id > INT32_MAX)
      fail_usage("'", text, "' is no token: write id:7, or the token's text");
    return static_cast<std::int32_t>(*id);
  }
  if (!tokenizer)
    fail_usage("'", text, "': the model has no tokenizer here; name tokens by number, as in id:7");
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  if (ids.size() == 1) return ids[0];
  if (const std::optional<std::int32_t> id = tokenizer->id_of(text)) return *id;
  std::string pieces;
  const std::vector<std::string> texts = token_texts(tokenizer, ids);
  for (std::size_t i = 0; i < ids.size(); ++i)
    pieces += concat(i == 0 ? "" : ", ", "'", visible_text(texts[i]), "' (id:", ids[i], ")");
  fail_usage("'", text, "' is ", ids.size(), " tokens of this model, one is needed: ", pieces,
             "; take one of these (a word inside a text often begins with its space)");
}

Metric parse_metric(std::string_view text, const Tokenizer* tokenizer) {
  Metric m;
  std::string_view rest = text;
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos)
    if (const std::optional<Dim> position = number_of(rest.substr(at + 1))) {
      m.position = *position;
      rest = rest.substr(0, at);
    }
  const std::size_t equals = rest.find('=');
  const std::string_view name = rest.substr(0, equals);
  std::vector<std::string> names;
  bool found = false;
  for (const auto& [known, kind] : kKinds) {
    if (name == known) m.kind = kind, found = true;
    names.emplace_back(known);
  }
  if (!found) fail_usage("'", text, "' is no metric; ", name_hint(name, names), " (as in logit=id:7@-1)");
  if (equals == std::string_view::npos) {
    if (m.kind == Metric::Kind::difference)
      fail_usage("metric '", text, "' needs two tokens: difference=A,B");
    return m;
  }
  const std::string_view tokens = rest.substr(equals + 1);
  if (m.kind == Metric::Kind::loss)
    fail_usage("metric '", text, "': the loss is of the whole text; write loss");
  if (m.kind != Metric::Kind::difference) {
    m.token = one_token(tokens, tokenizer);
    return m;
  }
  const std::size_t comma = tokens.find(',');
  if (comma == std::string_view::npos || tokens.find(',', comma + 1) != std::string_view::npos)
    fail_usage("metric '", text,
               "' needs two tokens with a comma between: difference=A,B (a token with a comma "
               "in it: id:7)");
  m.token = one_token(tokens.substr(0, comma), tokenizer);
  m.other = one_token(tokens.substr(comma + 1), tokenizer);
  if (m.token == m.other) fail_usage("metric '", text, "': the two tokens are one and the same");
  return m;
}

Text metric_text(const Metric& m, const Tokenizer* tokenizer) {
  const auto word = [&](std::int32_t id) {
    return concat("'", visible_text(token_texts(tokenizer, {&id, 1})[0]), "'");
  };
  const std::string key = concat("inspect.metric.", metric_name(m.kind));
  if (m.kind == Metric::Kind::loss) return say(key);
  if (m.kind == Metric::Kind::difference) return say(key, word(m.token), word(m.other));
  return say(key, word(m.token));
}

Json metric_json(const Metric& m) {
  const bool tokens = m.kind != Metric::Kind::loss;
  return Json::Object{{"kind", metric_name(m.kind)},
                      {"token", tokens ? Json(m.token) : Json()},
                      {"other", m.kind == Metric::Kind::difference ? Json(m.other) : Json()},
                      {"position", tokens ? Json(m.position) : Json()}};
}

Metric placed(Metric m, const Model& model, Dim tokens) {
  need_vocabulary(model, concat("metric ", metric_name(m.kind)));
  const Dim V = model.recipe.vocab;
  for (const std::int32_t id : {m.token, m.other})
    if (id >= V) fail_usage("metric: token ", id, " is outside the vocabulary of ", V);
  if (m.kind == Metric::Kind::difference && (m.token < 0 || m.other < 0))
    fail_usage("metric: a difference needs two tokens");
  if (m.kind == Metric::Kind::loss) {
    if (model.decoder && tokens < 2)
      fail_usage("metric: the loss of ", counted(tokens, "token"), " has no next token; give a longer text");
    return m;
  }
  const Dim position = m.position < 0 ? tokens + m.position : m.position;
  if (position < 0 || position >= tokens)
    fail_usage("metric: there is no position ", m.position, "; the text has positions 0 to ", tokens - 1);
  m.position = position;
  return m;
}

Metric named(Metric m, std::span<const double> logits) {
  if (m.token < 0 && m.kind != Metric::Kind::loss)
    m.token = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return m;
}

double value_of(const Metric& m, std::span<const double> logits) {
  switch (m.kind) {
    case Metric::Kind::logit: return at(logits, m.token);
    case Metric::Kind::difference: return at(logits, m.token) - at(logits, m.other);
    case Metric::Kind::logprob: return at(logits, m.token) - log_sum(logits);
    case Metric::Kind::loss: break;
  }
  fail("metric: the loss is not that of one row");
}

std::vector<double> slope_of(const Metric& m, std::span<const double> logits) {
  std::vector<double> slope(logits.size());
  if (m.kind == Metric::Kind::logprob) {
    const double all = log_sum(logits);
    for (std::size_t i = 0; i < logits.size(); ++i) slope[i] = -std::exp(logits[i] - all);
  }
  slope[static_cast<std::size_t>(m.token)] += 1;
  if (m.kind == Metric::Kind::difference) slope[static_cast<std::size_t>(m.other)] -= 1;
  return slope;
}

}  // namespace rapt
