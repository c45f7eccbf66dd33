// SPDX-License-Identifier: Apache-2.0
// The diagram from the recipe, part by part, then the numbers from what is built.
#include "rapt/inspect/show.h"

#include <algorithm>
#include <cstdio>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/drawing.h"
#include "rapt/recipe/recipe_diff.h"
#include "rapt/recipe/recipe_fields.h"

namespace rapt {
namespace {

// Layers of each kind: pattern "LLG" over 7 layers gives L 5, G 2.
std::vector<std::pair<std::string, Dim>> kinds_in_order(const StackRecipe& s) {
  std::vector<std::pair<std::string, Dim>> out;
  const Dim whole = s.layers / static_cast<Dim>(s.pattern.size()),
            left = s.layers % static_cast<Dim>(s.pattern.size());
  for (std::size_t i = 0; i < s.pattern.size(); ++i) {
    const std::string name(1, s.pattern[i]);
    const Dim n = whole + (static_cast<Dim>(i) < left ? 1 : 0);
    const auto it = std::find_if(out.begin(), out.end(), [&](const auto& e) { return e.first == name; });
    if (it == out.end()) out.emplace_back(name, n);
    else it->second += n;
  }
  return out;
}

void draw_layer(Drawing& d, const LayerRecipe& l, const std::string& stack, Dim C) {
  if (l.parallel)
    d.on_stream(l.norm_in ? "h = norm" : "parallel", l.norm_in ? norm_text(*l.norm_in) + "; all parts read h"
                                                               : "all parts read the layer's input");
  for (const PartRecipe& p : l.parts) {
    d.branch(concat(part_name(p).title, l.parallel ? (l.norm_in ? " of h" : " of the layer's input") : ""));
    if (p.norm_in) d.inside("norm_in", norm_text(*p.norm_in));
    const std::string reads =
        l.parallel && l.norm_in ? "h" : concat("the ", stack, "'s stream", p.norm_in ? " after norm_in" : "");
    std::visit([&](const auto& body) { draw(d, body, C, reads); }, p.body);
    if (p.norm_out) d.inside("norm_out", norm_text(*p.norm_out));
    std::string sum;
    if (p.dropout > 0) sum = dropout_text(p.dropout);
    if (p.layer_scale != 0) sum = concat("times a learned factor per channel", sum.empty() ? "" : ", ", sum);
    if (p.residual_scale != 1)
      sum = concat("times ", shortest(p.residual_scale), sum.empty() ? "" : ", ", sum);
    d.join_up(sum);
    if (p.norm_sum) d.on_stream("norm_sum", norm_text(*p.norm_sum));
  }
}

void draw_recurrent(Drawing& d, const Recipe& r, const StackRecipe& s, const std::string& name) {
  const RecurrentRecipe& c = *s.recurrent;
  const AlignRecipe* a = c.attention ? &*c.attention : nullptr;
  const bool previous = a && a->at == AlignRecipe::At::previous;
  static constexpr const char* kCells[] = {"GRU", "LSTM", "plain"};
  d.wire();
  d.box_top(concat(name, ": ", c.layers, c.layers == 1 ? " layer" : " layers", " of ",
                   kCells[static_cast<std::size_t>(c.cell)], " cells",
                   c.both_ways ? ", reading both ways" : ""));
  if (name == "decoder" && r.encoder) {
    static constexpr const char* kStarts[] = {"the encoder's last states",
                                              "tanh(W s + b), s the encoder's last state", "zeros"};
    const bool back = c.start == RecurrentRecipe::Start::projected && r.encoder->recurrent->both_ways;
    d.on_stream("start",
                concat(kStarts[static_cast<std::size_t>(c.start)], back ? " of the backward cells" : ""));
  }
  std::string in = with_commas(r.width);
  if (previous) in += " + context";
  if (a && a->feed) in += " + the readout before";
  d.on_stream("cell", concat(in, " → state ", with_commas(c.width), c.both_ways ? " each way" : "",
                             c.cell == RecurrentRecipe::Cell::lstm ? " and memory cell" : ""));
  if (c.layers > 1) d.on_stream("between", c.dropout > 0 ? dropout_text(c.dropout) : "no dropout");
  if (a) {
    static constexpr const char* kScores[] = {"h·s", "h·W s", "v·tanh(W h + U s)", "v·tanh(W [h; s])"};
    d.branch("attention");
    std::string score = kScores[static_cast<std::size_t>(a->score)];
    if (a->score == AlignRecipe::Score::additive || a->score == AlignRecipe::Score::concat)
      score += concat(", hidden ", with_commas(a->width));
    d.inside("from", concat("Q: the decoder's state h ", previous ? "before" : "after",
                            " the step; K and V: the encoder's states s"));
    d.inside("weights", concat("softmax(", score, ")"));
    d.inside("sees", a->window == AlignRecipe::Window::none ? "all of the encoder's result"
                     : a->window == AlignRecipe::Window::monotonic
                         ? concat("words t − ", a->reach, " … t + ", a->reach)
                         : concat("words within ", a->reach,
                                  " of p = S·sigmoid(v·tanh(W h)), times a Gaussian around p"));
    d.inside("readout",
             a->readout == AlignRecipe::Readout::tanh
                 ? concat("tanh(W [c; h])  → ", with_commas(r.width))
                 : concat("maxout(W [h; x; c])  ", with_commas(2 * r.width), " → ", with_commas(r.width)));
  }
  d.box_bottom();
  if (s.dropout > 0) d.on_stream("dropout", shortest(s.dropout));
}

void draw_stack(Drawing& d, const StackRecipe& s, const std::string& name, Dim C) {
  const auto kinds = kinds_in_order(s);
  std::string title = concat(name, ": ", s.layers, s.layers == 1 ? " layer" : " layers");
  if (kinds.size() > 1) {
    title += concat(" ", s.pattern, "…, ");
    for (std::size_t i = 0; i < kinds.size(); ++i)
      title += concat(i ? " + " : "", kinds[i].second, " ", kinds[i].first);
  }
  if (s.groups > 0)
    title += s.groups == 1 ? ", all with the same weights" : concat(", ", s.groups, " sets of weights");
  d.wire();
  d.box_top(kinds.size() > 1 ? concat(title, "; this is ", kinds[0].first) : title);
  const LayerRecipe& first = s.kinds.at(kinds[0].first);
  draw_layer(d, first, name, C);
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    const LayerRecipe& l = s.kinds.at(kinds[i].first);
    Recipe one, other;  // only to compare two layers by the names of their fields
    one.decoder.emplace().kinds["x"] = first;
    other.decoder.emplace().kinds["x"] = l;
    const std::vector<Difference> changes = diff_recipes(one, other);
    // Parts of another kind, or too much to list.
    bool whole = changes.size() > 8 || l.parts.size() != first.parts.size();
    for (std::size_t p = 0; p < l.parts.size() && !whole; ++p)
      whole = l.parts[p].body.index() != first.parts[p].body.index();
    d.box_bottom();
    d.box_top(concat(kinds[i].first, whole ? "" : concat(": like ", kinds[0].first, ", but")));
    if (whole) {
      draw_layer(d, l, name, C);
      continue;
    }
    for (const Difference& c : changes) {
      std::string path = c.path.substr(std::string_view("decoder.kinds.x.").size());
      if (path.starts_with("parts[")) path.erase(0, path.find("].") + 2);
      d.on_stream("", concat(path, ": ", c.a, " → ", c.b));
    }
  }
  d.box_bottom();
  if (s.final_norm || s.dropout > 0)
    d.on_stream("norm", concat(s.final_norm ? norm_text(*s.final_norm) : "none",
                               s.dropout > 0 ? ", " + dropout_text(s.dropout) : ""));
}

void draw_patches(Drawing& d, const Recipe& r) {
  const EmbedRecipe& e = r.embed;
  const PatchRecipe& p = *e.patches;
  d.on_stream("patches", concat(p.size, " × ", p.size, " pixels of ", p.channels, " channels, ",
                                with_commas(p.channels * p.size * p.size), " → ", with_commas(r.width),
                                p.bias ? " + bias" : "", "; ", p.rows, " × ", p.columns, " of a picture of ",
                                p.columns * p.size, " × ", p.rows * p.size));
  if (p.named() > 0)
    d.on_stream("+ tokens", p.distill ? "cls and distill, before the patches" : "cls, before the patches");
  if (e.pos == EmbedRecipe::Pos::learned)
    d.on_stream("+ position", concat(with_commas(p.positions()), " × ", with_commas(r.width), ", learned; ",
                                     p.resample == PatchRecipe::Resample::antialias
                                         ? "resampled with a filter for other sizes"
                                         : "resampled for other sizes"));
  if (p.registers > 0)
    d.on_stream("+ regs", concat(p.registers, " registers: learned tokens without a position"));
  if (e.norm) d.on_stream("norm", norm_text(*e.norm));
  if (e.dropout > 0) d.on_stream("dropout", shortest(e.dropout));
}

void draw_embedding(Drawing& d, const Recipe& r, bool source) {
  const EmbedRecipe& e = r.embed;
  const Dim narrow = e.width > 0 ? e.width : r.width,
            summed = e.project == EmbedRecipe::Project::sum ? narrow : r.width;
  const auto project = [&](EmbedRecipe::Project at) {
    if (narrow != r.width && e.project == at)
      d.on_stream("project",
                  concat(with_commas(narrow), " → ", with_commas(r.width), e.project_bias ? " + bias" : ""));
  };
  const char* own = e.own_source ? source ? ", the encoder's own" : ", the decoder's own" : "";
  if (e.patches) return draw_patches(d, r);
  if (r.vocab > 0) {
    d.on_stream("embed", concat(with_commas(source && e.source_vocab > 0 ? e.source_vocab : r.vocab), " × ",
                                with_commas(narrow),
                                e.scale_sqrt_width ? concat(", times √", r.width)
                                : e.scale != 1     ? concat(", times ", shortest(e.scale))
                                                   : ""));
  }
  project(EmbedRecipe::Project::tokens);
  if (e.sink_tokens > 0)
    d.on_stream("+ sinks", concat(e.sink_tokens, " learned tokens before every sequence"));
  if (e.pos == EmbedRecipe::Pos::learned)
    d.on_stream("+ position", concat(with_commas(r.context), " × ", with_commas(summed), ", learned", own));
  if (e.pos == EmbedRecipe::Pos::sinusoid)
    d.on_stream("+ position", concat("sinusoids, ",
                                     e.layout == SinusoidLayout::pairs ? "sine and cosine alternating"
                                                                       : "sines before cosines",
                                     e.table == SinusoidTable::marian ? ", marian's frequencies" : "",
                                     e.first > 0 ? concat(", from ", e.first, " on") : ""));
  if (e.types > 0) d.on_stream("+ type", concat(e.types, " × ", with_commas(summed)));
  if (e.norm) d.on_stream("norm", norm_text(*e.norm) + own);
  if (e.dropout > 0) d.on_stream("dropout", shortest(e.dropout));
  project(EmbedRecipe::Project::sum);
}

std::string percent(Dim part, Dim whole) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%5.1f %%",
                100 * static_cast<double>(part) / static_cast<double>(std::max<Dim>(whole, 1)));
  return buffer;
}

std::string right(std::string_view s, Dim width) {
  return std::string(static_cast<std::size_t>(std::max<Dim>(0, width - text_width(s))), ' ') + std::string(s);
}

std::string both_bytes(double values) {
  return concat(byte_count(4 * values), " f32, ", byte_count(2 * values), " bf16");
}

void numbers(Drawing& d, const Recipe& r) {
  const ParameterCount count = count_parameters(r);
  Dim names = 0;
  for (const auto& [group, n] : count.groups) names = std::max(names, text_width(group) + 2);
  // Else with three digits, as the total beside it.
  const bool exact = names + text_width(with_commas(count.total)) + 12 <= d.width();
  auto number = [&](Dim n) { return exact ? with_commas(n) : short_count(static_cast<double>(n)); };
  const Dim digits = std::max<Dim>(6, text_width(number(count.total))) + 2;
  d.text(concat(d.bold("parameters"), right(number(count.total), std::max<Dim>(names - 10, 0) + digits),
                exact ? "   " + short_count(static_cast<double>(count.total)) : ""));
  for (const auto& [group, n] : count.groups)
    d.text(concat("  ", padded(group, names - 2), right(number(n), digits),
                  names + digits + 9 <= d.width() ? "  " + percent(n, count.total) : ""));
  char share[32];  // 0.0056 %: biases are few
  std::snprintf(share, sizeof share, "%.2g %%",
                100 * static_cast<double>(count.biases) / static_cast<double>(std::max<Dim>(count.total, 1)));
  d.pair("of these biases", count.biases == 0 ? "none" : concat(number(count.biases), ", ", share));
  if (count.active != count.total)
    d.pair("active per token",
           concat(with_commas(count.active), "   ", short_count(static_cast<double>(count.active)), ",",
                  percent(count.active, count.total), " of all: a token uses some experts"));
  d.pair("weights", both_bytes(static_cast<double>(count.total)));
  const Cost cost = count_cost(r, r.context);
  if (r.decoder) {
    const auto kv = static_cast<double>(cost.kv_values);
    if (r.decoder->recurrent)
      d.pair("state", concat(both_bytes(static_cast<double>(cost.state_values)), " per sequence"));
    else
      d.pair("KV per token",
             concat(both_bytes(kv), cost.kv_forgotten == cost.kv_values && kv > 0
                                        ? "; forgotten behind the window"
                                    : cost.kv_forgotten > 0
                                        ? concat("; ", byte_count(2 * static_cast<double>(cost.kv_forgotten)),
                                                 " of bf16 forgotten behind windows")
                                        : ""));
    if (!r.decoder->recurrent && cost.state_values > 0)
      d.pair("state", concat(byte_count(4 * static_cast<double>(cost.state_values)),
                             " of f32 per sequence, whatever its length"));
    if (cost.memory_values > 0)
      d.pair("  per source token", both_bytes(static_cast<double>(cost.memory_values)));
  }
  auto operations = [](double n) {  // 15.0 G: nobody says billions of operations
    std::string s = short_count(n);
    if (s.ends_with('B')) s.back() = 'G';
    return s;
  };
  auto flops = [&](const Cost::Pass& p) {
    return concat(operations(p.matrices), " in matrices + ", operations(p.attention), " in attention");
  };
  d.pair("FLOPs per token", concat(flops(cost.token), " at context ", with_commas(r.context)));
  if (r.encoder && r.decoder) d.pair("  per source token", flops(cost.source));
}

}  // namespace

namespace {

void draw_pool(Drawing& d, const Recipe& r) {
  const HeadRecipe& h = r.head;
  const char* what = r.embed.patches ? "a picture" : "a sequence";
  switch (h.pool) {
    case HeadRecipe::Pool::mean:
      d.on_stream("pool",
                  r.embed.patches ? "the mean of a picture's patches" : "the mean of a sequence's rows");
      break;
    case HeadRecipe::Pool::both: d.on_stream("pool", "the first row, beside the mean of the patches"); break;
    case HeadRecipe::Pool::token:
      d.on_stream("pool", h.token > 0 ? concat("the first row with token ", h.token)
                                      : "the row with the highest token id");
      break;
    case HeadRecipe::Pool::attention:
      d.on_stream("pool", concat("a learned query over all rows of ", what, ", ", h.attend.heads,
                                 " heads; then x + ffn(norm(x)), hidden ", with_commas(h.attend.ffn)));
      break;
    default: d.on_stream("pool", concat("the ", name_text(h.pool), " row of ", what));
  }
  if (h.pool_norm) d.on_stream("norm", norm_text(*h.pool_norm));
}

}  // namespace

std::string draw_recipe(const Recipe& r, bool color, Dim width) {
  Drawing d(color, width);
  d.words(r.name, r.note.empty() ? "" : "  " + r.note, 2);
  d.text("");
  const bool both = r.encoder && r.decoder;
  auto source = [&](const char* what, bool encoder) {
    d.text(concat("  ", what));
    d.wire();
    draw_embedding(d, r, encoder && both);
  };
  if (r.encoder) {
    source(both ? "source tokens" : r.vocab > 0 ? "tokens" : r.embed.patches ? "pictures" : "vectors", true);
    if (r.encoder->recurrent) draw_recurrent(d, r, *r.encoder, "encoder");
    else draw_stack(d, *r.encoder, "encoder", r.width);
  }
  if (both) {
    d.text("  ▼");
    d.words("",
            r.decoder->recurrent ? "  memory: what the decoder looks at"
                                 : "  memory: keys and values of cross-attention",
            2);
    d.text("");
  }
  if (r.decoder) {
    source(both ? "target tokens" : r.vocab > 0 ? "tokens" : "vectors", false);
    if (r.decoder->recurrent) draw_recurrent(d, r, *r.decoder, "decoder");
    else draw_stack(d, *r.decoder, "decoder", r.width);
  }
  const HeadRecipe& h = r.head;
  const bool classes = h.kind == HeadRecipe::Kind::classes, pools = h.pools();
  if (pools) draw_pool(d, r);
  if (h.kind != HeadRecipe::Kind::none) {
    const Dim wide = h.pool == HeadRecipe::Pool::both             ? 2 * r.width
                     : h.transform && !pools && r.embed.width > 0 ? r.embed.width
                                                                  : r.width;
    if (h.transform) {
      const std::string matrix =
          concat(with_commas(r.width), " → ", with_commas(wide), h.transform->bias ? " + bias" : "");
      d.on_stream("transform", concat(h.transform->linear ? matrix : act_text(h.transform->act, matrix),
                                      h.transform->norm ? ", norm " + norm_text(*h.transform->norm) : ""));
    }
    std::string what = concat(with_commas(wide), " → ",
                              with_commas(classes ? h.classes
                                          : pools ? h.width
                                                  : r.vocab),
                              classes ? " classes" : "",
                              h.distilled ? ", and another of the second row: the mean of both" : "",
                              h.tied ? ", the table of the embedding" : "", h.bias ? " + bias" : "");
    if (h.scale != 1) what += concat(", input times ", shortest(h.scale));
    if (h.cap > 0) what += concat(", capped at ", shortest(h.cap));
    if (!pools || classes || h.width > 0) d.on_stream("head", what);
  }
  d.text("  ▼");
  d.text(classes                             ? "  logits, one row per sequence"
         : pools                             ? "  vectors, one per sequence"
         : h.kind == HeadRecipe::Kind::vocab ? "  logits"
                                             : "  hidden states");
  d.text("");
  numbers(d, r);
  return d.take();
}

}  // namespace rapt
