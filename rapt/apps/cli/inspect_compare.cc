// SPDX-License-Identifier: Apache-2.0
// rapt inspect compare: two models on one text, f16 against q4, before against after.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/compare.h"

namespace rapt::cli {
namespace {

// Both models must read the same tokens for their rows to mean the same.
void check_tokens(const ViewRequest& s) {
  const Checkpoint &a = s.checkpoint, &b = s.other->checkpoint;
  if (a.model->recipe.vocab != b.model->recipe.vocab)
    fail("compare: ", a.path, " has a vocabulary of ", a.model->recipe.vocab, ", ", b.path, " one of ",
         b.model->recipe.vocab, "; only models with the same tokenizer can be compared token by token");
  if (!a.tokenizer || !b.tokenizer) return;  // ids were given
  for (const std::vector<std::int32_t>* ids : {&s.source, &s.ids})
    for (std::int32_t id : *ids)
      if (a.tokenizer->text_of(id) != b.tokenizer->text_of(id))
        fail("compare: token ", id, " is '", a.tokenizer->text_of(id), "' in ", a.path, " and '",
             b.tokenizer->text_of(id), "' in ", b.path,
             "; only models with the same tokenizer can be compared token by token");
  const std::string text = a.tokenizer->decode(s.source.empty() ? s.ids : s.source);
  const std::vector<std::int32_t> ours = a.tokenizer->frame(a.tokenizer->encode(text)),
                                  theirs = b.tokenizer->frame(b.tokenizer->encode(text));
  if (ours != theirs)
    fail("compare: the two tokenizers cut the same text differently (", ours.size(), " tokens against ",
         theirs.size(), "); only models with the same tokenizer can be compared token by token");
}

void add_layers(Document& d, const Comparison& c, const Model& model) {
  Table t{.title = "Residual stream, layer by layer",
          .columns = {"layer", "cosine, mean", "cosine, worst token", "relative error %"},
          .rows = {}};
  Chart chart{.title = "Relative error of the residual stream |A - B| / |A|",
              .x_label = "layer",
              .y_label = "error",
              .curves = {},
              .log_y = true};
  for (const ComparedLayer& l : c.layers) {
    const std::string prefix = stack_prefix(model, l.stack);
    t.rows.push_back(
        {concat(prefix, row_name(l.row)), Cell(l.cosine, 6), Cell(l.worst, 6), Cell(100 * l.error, 3)});
    const std::string name = prefix.empty() ? "error" : prefix;
    if (chart.curves.empty() || chart.curves.back().name != name)
      chart.curves.push_back({.name = name, .x = {}, .y = {}});
    chart.curves.back().x.push_back(l.row - 1);
    chart.curves.back().y.push_back(l.error);
  }
  d.parts.push_back(std::move(t));
  if (std::any_of(c.layers.begin(), c.layers.end(), [](const ComparedLayer& l) { return l.error > 0; }))
    d.parts.push_back(std::move(chart));
}

void add_heads(Document& d, const Comparison& c, const Model& model) {
  std::vector<const ComparedHead*> order;
  double first = 0, entropy = 0;
  for (const ComparedHead& h : c.heads) {
    order.push_back(&h);
    first += std::abs(h.first[0] - h.first[1]) / static_cast<double>(c.heads.size());
    entropy += std::abs(h.entropy[0] - h.entropy[1]) / static_cast<double>(c.heads.size());
  }
  std::sort(order.begin(), order.end(), [](const ComparedHead* a, const ComparedHead* b) {
    const double x = std::abs(a->first[0] - a->first[1]), y = std::abs(b->first[0] - b->first[1]);
    return x != y ? x > y : a < b;
  });
  Table t{.title = concat("Heads that differ most in their weight on the first token (all heads: ",
                          fixed(first, 4), " on average, entropy ", fixed(entropy, 4), " nats)"),
          .columns = {"layer", "head", "first token A", "B", "entropy A", "B"},
          .rows = {}};
  for (std::size_t i = 0; i < std::min<std::size_t>(5, order.size()); ++i) {
    const ComparedHead& h = *order[i];
    t.rows.push_back({concat(stack_prefix(model, h.stack), layer_label(h.layer, h.number)),
                      std::to_string(h.head), Cell(h.first[0], 3), Cell(h.first[1], 3), Cell(h.entropy[0], 3),
                      Cell(h.entropy[1], 3)});
  }
  d.parts.push_back(std::move(t));
}

Document view(const ViewRequest& s) {
  check_tokens(s);
  const Model &a = s.net(), &b = *s.other->checkpoint.model;
  const Comparison c = compare(s.device(), a, *s.other->device, b, s.ids, s.source);
  Document d{.name = "compare",
             .title = concat("A: ", model_name(s.checkpoint), ", B: ", model_name(s.other->checkpoint), ", ",
                             counted(c.tokens, "token")),
             .parts = {}};
  if (c.predicts) {
    double mean = 0;
    for (double x : c.kl) mean += x / static_cast<double>(c.kl.size());
    Table t{.title = "Answers", .columns = {"", "value"}, .rows = {}};
    t.rows.push_back({"KL(A || B) of a token's answer, mean, nats", Cell(mean, 6)});
    for (const auto& [name, share] : {std::pair("median", 0.5), std::pair("90 % of the tokens below", 0.9),
                                      std::pair("99 % of the tokens below", 0.99), std::pair("largest", 1.0)})
      t.rows.push_back({concat("KL, ", name), Cell(c.kl_at(share), 6)});
    t.rows.push_back({"same most probable answer, % of the tokens", Cell(100 * c.agree, 1)});
    const bool encoder = !a.decoder;
    t.rows.push_back({encoder ? "perplexity of the tokens themselves, A" : "perplexity of the text, A",
                      Cell(c.perplexity[0], 3)});
    t.rows.push_back({encoder ? "perplexity of the tokens themselves, B" : "perplexity of the text, B",
                      Cell(c.perplexity[1], 3)});
    d.parts.push_back(std::move(t));
    d.facts.set("kl_mean", mean);
    d.facts.set("kl", list_json(c.kl));
    name_axes(d, "kl", {"token"});
    d.facts.set("top1_agreement", c.agree);
    const bool said = c.tokens > 1 || !a.decoder;  // one token has no next
    d.facts.set("perplexity_a", said ? Json(c.perplexity[0]) : Json());
    d.facts.set("perplexity_b", said ? Json(c.perplexity[1]) : Json());
  } else {
    d.parts.push_back(Words{
        "At least one of the two gives no tokens (no vocabulary head), so only the insides are compared."});
  }
  if (c.same_shape) add_layers(d, c, a);
  else
    d.parts.push_back(
        Words{concat("The residual streams have different shapes (", a.recipe.width, " and ", b.recipe.width,
                     " channels, or different layers), so they are not compared.")});
  if (c.same_heads && !c.heads.empty()) add_heads(d, c, a);
  Json::Array layers;
  for (const ComparedLayer& l : c.layers) {
    Json j = Json::Object{};
    j.set("stack", stack_name(l.stack));
    j.set("row", row_name(l.row));
    j.set("cosine", l.cosine);
    j.set("worst_cosine", l.worst);
    j.set("relative_error", l.error);
    layers.push_back(std::move(j));
  }
  d.facts.set("layers", std::move(layers));
  Json::Array heads;
  for (const ComparedHead& h : c.heads) {
    Json j = Json::Object{};
    j.set("stack", stack_name(h.stack));
    j.set("layer", h.layer);
    if (h.number > 0) j.set("number", h.number);
    j.set("head", h.head);
    j.set("first_a", h.first[0]);
    j.set("first_b", h.first[1]);
    j.set("entropy_a", h.entropy[0]);
    j.set("entropy_b", h.entropy[1]);
    heads.push_back(std::move(j));
  }
  d.facts.set("heads", std::move(heads));
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args&) { return view; }

}  // namespace

extern const View kCompareView;
const View kCompareView = {
    "compare", "two models on one text: where they part, layer by layer, and what it does to the answers", "",
    parse, 2};

}  // namespace rapt::cli
