// SPDX-License-Identifier: Apache-2.0
// rapt inspect lens: what the model would say if it stopped after a layer.
#include <algorithm>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/lens.h"
#include "rapt/text/words.h"

namespace rapt::cli {
namespace {

constexpr Dim kWord = 7;  // columns of a word in the table, so that seven layers fit 100

struct Flags {
  int top = 1;
  Dim last = 64, columns = 7;
};

std::string what_is_applied(const Model& model) {
  const HeadRecipe& h = model.recipe.head;
  const LayerStack& stack = stack_of(model, last_stack(model));
  std::string text = stack.final_norm
                         ? "the final norm"
                         : "no norm (this model norms every layer's result, so it has no final one)";
  if (h.transform) text += ", the head's own dense layer, activation and norm";
  text += h.tied ? ", the output matrix (the embedding table)" : ", the output matrix";
  if (h.cap > 0) text += concat(", the cap of ", fixed(h.cap, 0));
  return text;
}

// Rows to show as columns: evenly spread, the first and the last among them.
std::vector<int> some_rows(int rows, Dim most) {
  std::vector<int> out;
  const int n = static_cast<int>(std::min<Dim>(most, rows));
  for (int i = 0; i < n; ++i) out.push_back(n == 1 ? rows - 1 : i * (rows - 1) / (n - 1));
  return out;
}

// A token of the vocabulary as it would stand at a place of the text.
std::string said(const Subject& s, const Lens& l, Dim token, std::int32_t id) {
  const auto before = static_cast<std::size_t>(l.first + token + (l.own ? 0 : 1));
  return next_token_text(s.checkpoint.tokenizer.get(), std::span(s.ids).first(before), id);
}

Table words_table(const Subject& s, const Lens& lens, const std::vector<std::string>& words,
                  const std::vector<int>& shown, int place) {
  const std::string which =
      place == 0 ? "Most probable token" : concat("Token number ", place + 1, " by probability");
  Table t{.title = concat(which, " after some layers, with its probability in %"),
          .columns = {"token"},
          .rows = {}};
  for (int r : shown) t.columns.push_back(r == 0 ? "embed" : concat("layer ", row_name(r)));
  for (Dim i = 0; i < lens.tokens; ++i) {
    std::vector<Cell> row = {terminal_text(words[static_cast<std::size_t>(lens.first + i)], 12)};
    for (int r : shown) {
      const std::size_t c =
          lens.cell(r, i) * static_cast<std::size_t>(lens.top) + static_cast<std::size_t>(place);
      row.push_back(concat(terminal_text(visible_text(said(s, lens, i, lens.ids[c])), kWord), " ",
                           fixed(100 * static_cast<double>(lens.probabilities[c]), 0)));
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

// Means over the tokens, layer by layer.
Table layer_table(const Lens& lens) {
  Table t{.title =
              "Layer by layer, over the tokens: where the truth stands, and how far the layer is from the "
              "answer, KL(answer || layer) in nats",
          .columns = {"layer", "truth first %", "median rank", "mean p(truth) %", "entropy", "KL"},
          .rows = {}};
  for (int r = 0; r < lens.rows; ++r) {
    double hits = 0, known = 0, truth = 0, entropy = 0, kl = 0;
    std::vector<std::int32_t> ranks;
    for (Dim i = 0; i < lens.tokens; ++i) {
      const std::size_t c = lens.cell(r, i);
      entropy += static_cast<double>(lens.entropy[c]) / static_cast<double>(lens.tokens);
      kl += static_cast<double>(lens.kl[c]) / static_cast<double>(lens.tokens);
      if (lens.rank[c] == 0) continue;
      known += 1, hits += lens.rank[c] == 1, truth += static_cast<double>(lens.truth[c]);
      ranks.push_back(lens.rank[c]);
    }
    std::sort(ranks.begin(), ranks.end());
    std::vector<Cell> row = {row_name(r), "", "", ""};
    if (known > 0)
      row = {row_name(r), Cell(100 * hits / known, 1), Cell(static_cast<double>(ranks[ranks.size() / 2]), 0),
             Cell(100 * truth / known, 2)};
    row.insert(row.end(), {Cell(entropy, 3), Cell(kl, 3)});
    t.rows.push_back(std::move(row));
  }
  return t;
}

Document view(const Subject& s, const Flags& flags) {
  LensOptions options{.top = flags.top};
  options.first = std::max<Dim>(0, static_cast<Dim>(s.ids.size()) - flags.last);
  const Lens l = lens(s.device(), s.net(), s.ids, s.source, options);
  const std::vector<std::string> words = s.words_of(l.stack);
  Document d{.name = "lens", .title = concat("Logit lens: ", model_line(s)), .parts = {}};
  d.parts.push_back(Words{
      concat("What the model would say if it stopped after a layer: ", what_is_applied(s.net()),
             " applied to the residual stream there. The last layer is the model's own answer. The truth is ",
             l.own ? "the token itself: an encoder says what stands at each place."
                   : "the next token of the text.")});
  if (l.first > 0)
    d.parts.push_back(
        Words{concat("Shown are the last ", l.tokens, " of ", s.ids.size(), " tokens: --last N for more.")});
  for (int i = 0; i < l.top; ++i)
    d.parts.push_back(words_table(s, l, words, some_rows(l.rows, flags.columns), i));
  d.parts.push_back(layer_table(l));
  HeatMap map{.title = "Probability of the most probable token",
              .rows = row_names(l.rows),
              .columns = {},
              .values = {},
              .top = 1};
  for (Dim i = 0; i < l.tokens; ++i) map.columns.push_back(words[static_cast<std::size_t>(l.first + i)]);
  map.row_name = "layer", map.column_name = "token", map.value_name = "probability of the word in the cell";
  for (std::size_t c = 0; c < l.entropy.size(); ++c) {
    map.values.push_back(static_cast<double>(l.probabilities[c * static_cast<std::size_t>(l.top)]));
    const Dim token = static_cast<Dim>(c) % l.tokens;
    map.cells.push_back(visible_text(said(s, l, token, l.ids[c * static_cast<std::size_t>(l.top)])));
  }
  d.parts.push_back(std::move(map));
  const auto columns = static_cast<std::size_t>(l.tokens);
  d.facts.set("first_token", l.first);
  const auto top = static_cast<std::size_t>(l.top);
  d.facts.set("top_ids", cube_json(l.ids, columns, top));
  Json::Array tokens;  // [row][token][rank], as top_ids
  for (int r = 0; r < l.rows; ++r) {
    Json::Array row;
    for (Dim t = 0; t < l.tokens; ++t) {
      Json::Array cell;
      for (std::size_t k = 0; k < top; ++k) cell.emplace_back(said(s, l, t, l.ids[l.cell(r, t) * top + k]));
      row.push_back(std::move(cell));
    }
    tokens.push_back(std::move(row));
  }
  d.facts.set("top_tokens", std::move(tokens));
  d.facts.set("top_probabilities", cube_json(l.probabilities, columns, top));
  d.facts.set("entropy", grid_json(l.entropy, columns));
  d.facts.set("kl", grid_json(l.kl, columns));
  d.facts.set("rank", grid_json(l.rank, columns));
  d.facts.set("truth_probability", grid_json(l.truth, columns));
  for (const char* key : {"top_ids", "top_tokens", "top_probabilities"})
    name_axes(d, key, {"row", "token", "rank"});
  for (const char* key : {"entropy", "kl", "rank", "truth_probability"}) name_axes(d, key, {"row", "token"});
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  Flags f;
  f.top = static_cast<int>(args.number("top", 1, 100).value_or(1));
  f.last = args.number("last", 1, 1 << 24).value_or(f.last);
  f.columns = args.number("columns", 2, 1000).value_or(f.columns);
  return [f](const ViewRequest& s) { return view(s, f); };
}

}  // namespace

extern const View kLensView;
const View kLensView = {"lens", "what the model would say if it stopped after each layer (logit lens)",
                        "  --top N              the N most probable tokens (1)\n"
                        "  --last N             the last N tokens of the text (64)\n"
                        "  --columns N          how many layers stand side by side in the table (7)\n",
                        parse};

}  // namespace rapt::cli
