// SPDX-License-Identifier: Apache-2.0
// rapt inspect attention: one head's map, any part of it, at any length.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/alignment.h"
#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/edits.h"

namespace rapt::cli {
namespace {

std::optional<Dim> whole_text(std::string_view text) {
  Dim n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 0) return {};
  return n;
}

struct Options {
  std::optional<std::string> row;  // of a picture: whose weights
  std::optional<Dim> layer, number, head;  // number: which of a layer's attentions
  std::optional<Stack> stack;
  bool cross = false;
  MapWindow window;
  std::vector<std::string> edits;
  HeatMap::Scale scale = HeatMap::Scale::root;
};

HeatMap::Scale scale_arg(Args& args) {
  const std::string name = args.value("scale").value_or("sqrt");
  if (name == "sqrt") return HeatMap::Scale::root;
  if (name != "linear") fail_usage("--scale is sqrt or linear, not '", name, "'");
  return HeatMap::Scale::linear;
}

// "A:B", ":B", "A:" or nothing.
void parse_range(const std::optional<std::string>& text, const char* flag, Dim& begin, Dim& end) {
  if (!text) return;
  const std::size_t colon = text->find(':');
  const auto read = [&](std::string_view part, Dim fallback) {
    if (part.empty()) return fallback;
    Dim n = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc{} || stop != part.data() + part.size() || n < 0)
      fail_usage(flag, ": '", *text, "' is no range such as 100:200");
    return n;
  };
  if (colon == std::string::npos) fail_usage(flag, ": '", *text, "' is no range such as 100:200");
  begin = read(std::string_view(*text).substr(0, colon), 0);
  end = read(std::string_view(*text).substr(colon + 1), -1);
}

// What a pixel stands for: a word, or the first of several by its number.
std::vector<std::string> labels(const std::vector<std::string>& words, Dim begin, Dim end, Dim pixels) {
  std::vector<std::string> out;
  const Dim n = end - begin;
  for (Dim i = 0; i < pixels; ++i) {
    const Dim at = begin + i * n / pixels;
    out.push_back(pixels == n && n <= 200 ? words[static_cast<std::size_t>(at)] : std::to_string(at));
  }
  return out;
}

// The attention of a recurrent decoder (Bahdanau, Luong): one, to the source; row t holds the weights with
// which token t was said.
Document recurrent_view(const Subject& s, const Options& o) {
  if (!o.cross)
    fail_usage("the layers of ", model_name(s.checkpoint),
               " are recurrent cells; their one attention is --cross");
  if (!o.edits.empty() || o.window.row_begin > 0 || o.window.row_end >= 0 || o.window.key_begin > 0 ||
      o.window.key_end >= 0)
    fail_usage("--edit, --rows and --keys do not reach the attention of a recurrent decoder");
  if ((o.layer && *o.layer != s.net().decoder->depth() - 1) || (o.head && *o.head != 0))
    fail_usage("a recurrent decoder has one attention: layer ", s.net().decoder->depth() - 1, ", head 0");
  if (s.ids.size() < 2)
    fail("inspect: the model says nothing to this text; give what its decoder should read with --target");
  const Alignment a =
      alignment(s.device(), s.checkpoint, s.source, std::span(s.ids).subspan(1), {.words = false});
  Document d{.name = "attention", .title = concat("The attention of ", model_line(s)), .parts = {}};
  HeatMap map = heat_map(a, "cross-attention: which token of the source each token was said from");
  map.scale = o.scale;
  d.facts.set("stack", "decoder");
  d.facts.set("layer", a.layers.at(0));
  d.facts.set("cross", true);
  d.facts.set("head", 0);
  d.facts.set("rows", Json::Array{1, static_cast<std::int64_t>(s.ids.size())});
  d.facts.set("keys", Json::Array{0, static_cast<std::int64_t>(s.source.size())});
  d.facts.set("weights", grid_json(a.weights, a.source.size()));
  name_axes(d, "weights", {"token said", "key"});
  d.parts.push_back(std::move(map));
  return d;
}

// ------------------------------------------------------------------------------------------- over a picture
// Weights of one row in every head of a layer, as shares: [heads][rows of the picture].
using LayerWeights = std::vector<std::vector<double>>;

struct PictureRows {
  const PatchRecipe& patches;
  PatchGrid grid;
  std::vector<std::string> names;
  std::vector<Dim> chosen;  // whose weights are shown: their mean where there are several
  std::string title;
};

PictureRows picture_rows(const ViewRequest& s, const std::optional<std::string>& asked) {
  const PatchRecipe& p = *s.net().recipe.embed.patches;
  PictureRows out{p, patch_grid(p, s.ids.picture->height, s.ids.picture->width), s.words(), {}, {}};
  const std::string name = asked.value_or(p.cls ? "cls" : "all");
  for (std::size_t i = 0; i < out.names.size(); ++i)
    if (out.names[i] == name || out.names[i] == "patch " + name ||
        (name == "all" && static_cast<Dim>(i) >= p.before()))
      out.chosen.push_back(static_cast<Dim>(i));
  if (out.chosen.empty())
    fail_usage("--row: '", name, "' is no row of the picture; rows are ", name_hint(name, out.names),
               ", or all: the mean of the patches");
  out.title = name == "all" ? "all patches together" : out.names[static_cast<std::size_t>(out.chosen[0])];
  return out;
}

LayerWeights weights_of(const AttentionRecord& record, const AttentionPlace& place, const PictureRows& rows) {
  LayerWeights out(static_cast<std::size_t>(record.heads(place)), std::vector<double>(rows.names.size()));
  const AttentionSpec& spec = record.attention(place).spec;
  record.rows(place, -1, rows.chosen, [&](Dim, int head, std::span<const float> w) {
    const double unit = share_unit(spec, w) / static_cast<double>(rows.chosen.size());
    for (std::size_t k = 0; k < w.size(); ++k)
      out[static_cast<std::size_t>(head)][k] += unit * static_cast<double>(w[k]);
  });
  return out;
}

// Tiles beside and below each other, each the patches of the picture.
HeatMap tiled(const ViewRequest& s, const PictureRows& rows, const std::vector<LayerWeights>& tiles,
              HeatMap::Scale scale, std::string title, const std::vector<std::string>& down,
              const std::string& across) {
  const auto R = static_cast<std::size_t>(rows.grid.rows), C = static_cast<std::size_t>(rows.grid.columns),
             before = static_cast<std::size_t>(rows.patches.before());
  std::size_t wide = 0;
  for (const LayerWeights& t : tiles) wide = std::max(wide, t.size());
  HeatMap map{.title = std::move(title), .rows = {}, .columns = {}, .values = {}};
  map.top = 0, map.scale = scale, map.value_name = "weight, of a tile the strongest 1";
  map.row_name = tiles.size() == 1 ? "patch, down" : "layer",
  map.column_name = wide == 1 ? "patch, across" : across;
  for (std::size_t t = 0; t < tiles.size(); ++t)
    for (std::size_t r = 0; r < R; ++r) {
      map.rows.push_back(tiles.size() == 1 ? std::to_string(r) : r == R / 2 ? down[t] : "");
      for (std::size_t h = 0; h < wide; ++h)
        for (std::size_t c = 0; c < C; ++c) {
          double most = 0;  // each tile by its own strongest patch
          if (h < tiles[t].size())
            for (std::size_t k = before; k < tiles[t][h].size(); ++k) most = std::max(most, tiles[t][h][k]);
          map.values.push_back(most > 0 ? tiles[t][h][before + r * C + c] / most : 0);
        }
    }
  for (std::size_t h = 0; h < wide; ++h)
    for (std::size_t c = 0; c < C; ++c)
      map.columns.push_back(wide == 1 ? std::to_string(c) : c == C / 2 ? concat(across, " ", h) : "");
  map.backdrop = s.shown;
  map.backdrop.across = static_cast<int>(wide), map.backdrop.down = static_cast<int>(tiles.size());
  return map;
}

Document picture_view(const ViewRequest& s, const Options& o) {
  const Model& model = s.net();
  const PictureRows rows = picture_rows(s, o.row);
  Taps taps;
  const auto check_edits = install_edits(taps, model, parse_edits(o.edits));
  const auto wanted = [&](const AttentionPlace& p) { return !o.layer || p.layer == *o.layer; };
  const AttentionRecord record(s.device(), model, s.ids, {}, {.keep = wanted, .taps = &taps});
  check_edits();
  std::vector<LayerWeights> layers, means;
  std::vector<std::string> labels;
  Table shares{
      .title = concat("Where ", rows.title, " looks: mean of the heads"), .columns = {"layer"}, .rows = {}};
  if (rows.patches.cls) shares.columns.emplace_back("cls");
  if (rows.patches.distill) shares.columns.emplace_back("distill");
  if (rows.patches.registers > 0) shares.columns.emplace_back("registers");
  for (const char* name : {"patches", "strongest patch", "its share"}) shares.columns.emplace_back(name);
  Json::Array weights;
  for (const AttentionPlace& place : record.places()) {
    LayerWeights all = weights_of(record, place, rows);
    if (o.head && *o.head >= static_cast<Dim>(all.size()))
      fail_usage("--head: there is no head ", *o.head, "; layers have ", all.size());
    std::vector<double> mean(rows.names.size());
    Json::Array heads;
    for (const auto& head : all) {
      Json::Array one;
      for (std::size_t k = 0; k < head.size(); ++k)
        mean[k] += head[k] / static_cast<double>(all.size()), one.emplace_back(head[k]);
      heads.emplace_back(std::move(one));
    }
    weights.emplace_back(std::move(heads));
    const auto sum = [&](Dim from, Dim to) {
      return std::accumulate(mean.begin() + from, mean.begin() + to, 0.0);
    };
    const PatchRecipe& p = rows.patches;
    std::vector<Cell> cells{layer_label(place.layer, place.number)};
    if (p.cls) cells.emplace_back(sum(0, 1), 3);
    if (p.distill) cells.emplace_back(sum(p.named() - 1, p.named()), 3);
    if (p.registers > 0) cells.emplace_back(sum(p.named(), p.before()), 3);
    cells.emplace_back(sum(p.before(), static_cast<Dim>(mean.size())), 3);
    const auto best = std::max_element(mean.begin() + p.before(), mean.end());
    cells.emplace_back(rows.names[static_cast<std::size_t>(best - mean.begin())]);
    cells.emplace_back(*best, 3);
    shares.rows.push_back(std::move(cells));
    labels.push_back(concat("layer ", layer_label(place.layer, place.number)));
    means.push_back({std::move(mean)});
    if (o.head) all = {all[static_cast<std::size_t>(*o.head)]};
    layers.push_back(std::move(all));
  }
  Document d{.name = "attention", .title = concat("Attention over a picture: ", model_line(s)), .parts = {}};
  if (!o.edits.empty()) d.parts.push_back(Words{concat("The pass was changed: ", join(o.edits), ".")});
  d.parts.push_back(
      tiled(s, rows, layers, o.scale,
            concat("What ", rows.title, " looks at, ", o.layer ? concat("layer ", *o.layer, ", ") : "",
                   o.head ? concat("head ", *o.head) : "every head"),
            labels, "head"));
  if (!o.head)
    d.parts.push_back(
        tiled(s, rows, means, o.scale, "The same, mean of the heads of each layer", labels, ""));
  d.parts.push_back(std::move(shares));
  d.facts.set("row", rows.title);
  d.facts.set("grid", Json::Array{rows.grid.rows, rows.grid.columns});
  d.facts.set("weights", std::move(weights));
  name_axes(d, "weights", {"layer", "head", "key"});
  return d;
}

Document view(const ViewRequest& s, const Options& o) {
  const Model& model = s.net();
  if (s.ids.picture) return picture_view(s, o);
  if (o.row) fail_usage("--row names a row of a picture (--image); of a text --rows A:B");
  if (model.decoder && model.decoder->recurrent && model.decoder->recurrent->recipe.attention)
    return recurrent_view(s, o);
  const Stack stack =
      o.stack.value_or(model.encoder && (!model.decoder || !o.cross) ? Stack::encoder : Stack::decoder);
  const auto wanted = [&](const AttentionPlace& p) {
    return p.stack == stack && p.cross == o.cross && (!o.layer || p.layer == *o.layer) &&
           (!o.number || p.number == *o.number);
  };
  Taps taps;
  const auto check_edits = install_edits(taps, model, parse_edits(o.edits));
  const AttentionRecord record(s.device(), model, s.ids, s.source, {.keep = wanted, .taps = &taps});
  check_edits();
  // The head that was asked for, or of those that fit the one with the most weight on the first token.
  AttentionPlace place = record.places()[0];
  int head = -1;
  double best = -1;
  for (const AttentionPlace& p : record.places())
    for (int h = 0; h < record.heads(p); ++h) {
      const HeadSums& sums = record.sums(p)[static_cast<std::size_t>(h)];
      const double first = sums.seeing > 0 ? sums.first / static_cast<double>(sums.seeing) : 0;
      if ((o.head && h != *o.head) || first <= best) continue;
      best = first, place = p, head = h;
    }
  if (head < 0)
    fail_usage("--head: there is no head ", o.head.value_or(0), "; `rapt inspect heads` lists them");
  const HeadMap map = head_map(record, place, head, o.window);
  const HeadSums& sums = record.sums(place)[static_cast<std::size_t>(head)];
  const double rows = std::max(1.0, static_cast<double>(sums.rows));
  const std::vector<std::string> row_words = s.words_of(place.stack),
                                 key_words = place.cross ? s.words() : row_words;
  Document d{.name = "attention", .title = concat("One head of ", model_line(s)), .parts = {}};
  if (!o.edits.empty()) d.parts.push_back(Words{concat("The pass was changed: ", join(o.edits), ".")});
  const MapWindow& w = map.window;
  std::string title =
      concat(stack_prefix(model, place.stack), place.cross ? "cross-attention, " : "", "layer ",
             layer_label(place.layer, place.number), ", head ", head, ": first token ", fixed(best, 2));
  if (!place.cross)
    title += concat(", itself ", fixed(sums.self / rows, 2), ", the one before ",
                    fixed(sums.previous / std::max(1.0, rows - 1), 2));
  title += concat(", entropy ", fixed(sums.entropy / rows, 2));
  if (map.rows < w.row_end - w.row_begin || map.keys < w.key_end - w.key_begin)
    title += concat("; rows ", w.row_begin, " to ", w.row_end, ", keys ", w.key_begin, " to ", w.key_end,
                    ", the largest weight in each cell",
                    w.row_end - w.row_begin > w.most_rows
                        ? concat(" of ", with_commas(w.most_rows), " rows that stand for all")
                        : "");
  HeatMap picture{.title = title,
                  .rows = labels(row_words, w.row_begin, w.row_end, map.rows),
                  .columns = labels(key_words, w.key_begin, w.key_end, map.keys),
                  .values = std::vector<double>(map.values.begin(), map.values.end()),
                  .top = 1,
                  .scale = o.scale,
                  .row_name = place.cross ? "query (target)" : "query",
                  .column_name = place.cross ? "key (source)" : "key",
                  .value_name = "attention weight"};
  d.facts.set("stack", stack_name(place.stack));
  d.facts.set("layer", place.layer);
  if (place.number > 0) d.facts.set("number", place.number);
  d.facts.set("cross", place.cross);
  d.facts.set("head", head);
  d.facts.set("rows",
              Json::Array{static_cast<std::int64_t>(w.row_begin), static_cast<std::int64_t>(w.row_end)});
  d.facts.set("keys",
              Json::Array{static_cast<std::int64_t>(w.key_begin), static_cast<std::int64_t>(w.key_end)});
  d.facts.set("weights", grid_json(map.values, static_cast<std::size_t>(map.keys)));
  name_axes(d, "weights", {"query", "key"});
  Json figures = Json::Object{{"first", best}, {"entropy", sums.entropy / rows}};
  if (!place.cross) {
    figures.set("self", sums.self / rows);
    figures.set("previous", sums.previous / std::max(1.0, rows - 1));
  }
  d.facts.set("figures", std::move(figures));
  d.parts.push_back(std::move(picture));
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  Options o;
  if (const std::optional<std::string> layer = args.value("layer")) {  // 5, or 5.2
    const std::size_t dot = std::min(layer->find('.'), layer->size());
    o.layer = whole_text(layer->substr(0, dot));
    if (dot < layer->size()) o.number = whole_text(layer->substr(dot + 1));
    if (!o.layer || (dot < layer->size() && !o.number))
      fail_usage("--layer: wants a number, or 5.2 for the second of two, has '", *layer, "'");
  }
  o.head = args.number("head", 0, 100000);
  o.row = args.value("row");
  o.stack = stack_arg(args);
  o.cross = args.flag("cross");
  o.edits = args.values("edit");
  o.scale = scale_arg(args);
  parse_range(args.value("rows"), "--rows", o.window.row_begin, o.window.row_end);
  parse_range(args.value("keys"), "--keys", o.window.key_begin, o.window.key_end);
  o.window.pixels = args.number("pixels", 1, 8192).value_or(256);
  o.window.most_rows = std::max<Dim>(1024, o.window.pixels);
  return [o](const ViewRequest& s) { return view(s, o); };
}

}  // namespace

extern const View kAttentionView;
const View kAttentionView = {
    "attention", "one head's map: which token looks at which, any part of it, at any length",
    "  --layer N --head N   the head (the one with the most weight on the first token); N.2: the second of\n"
    "                       two in a layer\n"
    "  --cross --stack NAME cross-attention; encoder or decoder\n"
    "  --rows A:B --keys A:B  a part of the map, in tokens\n"
    "  --pixels N           at most so many cells each way (256); a cell is the largest weight in it\n"
    "                       (of more than 1,024 rows a sample of at least that many is computed)\n"
    "  --scale NAME         of the colours: sqrt (default; small weights are seen) or linear\n"
    "  --row NAME           of a picture (--image): whose weights lie over it: cls, register 0, 3,4 (the\n"
    "                       patch in row 3, column 4), all (the mean of the patches); every head of every\n"
    "                       layer, or of --layer\n"
    "  --edit SPEC          changes the pass, as in tensors (docs/edits.md)\n",
    parse};

}  // namespace rapt::cli
