// SPDX-License-Identifier: Apache-2.0
// One number that a pass ends in: what attribution takes apart, patching measures and gradients go back from.
//
//   metric   = kind ["=" token ["," token]] ["@" position]
//              logit=id:7   difference= Paris, Rome   logprob=id:7@-2   loss
//   kind     = "logit"       of one token; without one: of the most probable
//            | "difference"  of the logits of two
//            | "logprob"     log of a token's probability, nats; without one: of the most probable
//            | "loss"        mean over the text of -log p(next token), nats (an encoder: of the token itself)
//   token    = "id:" number | a text that is one token of the vocabulary
//   position = number         the row whose logits are read; negative: from the end; without one: the last
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "rapt/inspect/look.h"
#include "rapt/report/text.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

struct Metric {
  enum class Kind { logit, difference, logprob, loss } kind = Kind::logit;
  std::int32_t token = -1, other = -1;  // -1: not said
  Dim position = -1;  // negative: from the end
  bool operator==(const Metric&) const = default;
};
Metric parse_metric(std::string_view text, const Tokenizer* tokenizer);
std::int32_t one_token(std::string_view text, const Tokenizer* tokenizer);
const char* metric_name(Metric::Kind kind);

// "logit of ' Paris'", for people; and {"kind", "token", "other", "position"}.
Text metric_text(const Metric& metric, const Tokenizer* tokenizer);
Json metric_json(const Metric& metric);

// The metric with a position from the front; fails where model or text do not have what it names.
Metric placed(Metric metric, const Model& model, Dim tokens);
// With the most probable token in place of none.
Metric named(Metric metric, std::span<const double> logits);
// Of the logits of its row; not the loss.
double value_of(const Metric& metric, std::span<const double> logits);
// d metric / d those logits.
std::vector<double> slope_of(const Metric& metric, std::span<const double> logits);

}  // namespace rapt
