// SPDX-License-Identifier: Apache-2.0
// rapt inspect positions: how a model tells places apart.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/positions.h"

namespace rapt::cli {
namespace {

std::vector<std::string> numbers(Dim n, Dim step = 1) {
  std::vector<std::string> out;
  for (Dim i = 0; i < n; ++i) out.push_back(std::to_string(i * step));
  return out;
}

std::string layer_list(const std::vector<int>& layers) {  // "0-4, 6"
  std::string out;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t j = i;
    while (j + 1 < layers.size() && layers[j + 1] == layers[j] + 1) ++j;
    out += concat(out.empty() ? "" : ", ", layers[i], j > i ? concat("-", layers[j]) : "");
    i = j + 1;
  }
  return out;
}

// Every n-th channel, n odd so that sines and cosines take turns.
HeatMap table_map(const Positions& p, Dim most) {
  Dim step = (p.width + most - 1) / most;
  if (step > 1 && step % 2 == 0) ++step;
  HeatMap map{.title = concat(p.sinusoid ? "Sinusoids" : "Learned position vectors", ": place by channel",
                              step > 1 ? concat(", one channel in ", step) : ""),
              .rows = numbers(p.shown),
              .columns = numbers((p.width + step - 1) / step, step),
              .values = {},
              .top = p.sinusoid ? 1.0 : 0.0,
              .scale = HeatMap::Scale::both_signs,
              .row_name = "place (tokens)",
              .column_name = "channel",
              .value_name = "added to the embedding"};
  for (Dim r = 0; r < p.shown; ++r)
    for (Dim c = 0; c < p.width; c += step)
      map.values.push_back(p.table[static_cast<std::size_t>(r * p.width + c)]);
  return map;
}

HeatMap similarity_map(const Positions& p) {
  return {.title = "Cosine of two places' vectors",
          .rows = numbers(p.shown),
          .columns = numbers(p.shown),
          .values = p.similarity,
          .top = 1,
          .scale = HeatMap::Scale::both_signs,
          .row_name = "place",
          .column_name = "place",
          .value_name = "cosine"};
}

void add_absolute(Document& d, const Positions& p, const Recipe& recipe, Dim channels) {
  if (!p.sinusoid && !p.learned) return;
  d.parts.push_back(Words{
      p.sinusoid ? "Sinusoids are added to the embeddings: sines and cosines of the place, "
                   "a frequency per pair of channels."
                 : concat("A learned vector per place is added to the embedding; there are ",
                          recipe.context + recipe.embed.sink_tokens, " of them",
                          recipe.embed.sink_tokens > 0
                              ? concat(", the first ", recipe.embed.sink_tokens, " for learned sink tokens")
                              : "",
                          ".")});
  if (p.table.empty()) {
    d.parts.push_back(Words{"Their values are weights: give a model instead of a preset to see them."});
    return;
  }
  d.parts.push_back(table_map(p, channels));
  d.parts.push_back(similarity_map(p));
  if (p.norms.size() > 1) {
    Chart chart{.title = "Length of each place's vector",
                .x_label = "place",
                .y_label = "length",
                .curves = {{.name = "length", .x = {}, .y = p.norms}}};
    for (std::size_t i = 0; i < p.norms.size(); ++i) chart.curves[0].x.push_back(static_cast<double>(i));
    d.parts.push_back(std::move(chart));
  }
  d.facts.set("table", grid_json(p.table, static_cast<std::size_t>(p.width)));
  d.facts.set("similarity", grid_json(p.similarity, static_cast<std::size_t>(p.shown)));
  name_axes(d, "table", {"place", "channel"});
  name_axes(d, "similarity", {"place", "place"});
}

void add_rope(Document& d, const Positions& p, const Model* model, Dim positions) {
  Json::Array facts;
  for (const RopePairs& r : p.rope) {
    const std::string where =
        concat(model ? stack_prefix(*model, r.stack) : "", "layers ", layer_list(r.layers));
    const Dim turned = static_cast<Dim>(r.radians.size());
    d.parts.push_back(
        Words{concat("RoPE in ", where, ": ", turned, " pairs of ", r.head_dim, " channels turn, theta ",
                     shortest(r.spec.theta), ", scaling ", name_of(r.spec.scaling),
                     r.spec.scaling == RopeScaling::none ? "" : concat(" by ", shortest(r.spec.factor)),
                     r.magnitude != 1 ? concat(", cos and sin times ", fixed(r.magnitude, 4)) : "",
                     ", for a text of ", with_commas(r.length), " tokens.")});
    const bool scaled = r.spec.scaling != RopeScaling::none;
    Table t{.title = concat("Pairs, ", where),
            .columns = {"pair", "radians per place", "places per turn", "turns in the text"},
            .rows = {}};
    if (scaled) t.columns.push_back("places per turn, unscaled");
    const Dim step = std::max<Dim>(1, (turned + 15) / 16);
    for (Dim i = 0; i < turned; i += step) {
      const auto n = static_cast<std::size_t>(i);
      const double wave = places_per_turn(r.radians[n]);
      t.rows.push_back({Cell(static_cast<double>(i), 0), Cell(r.radians[n], 9), Cell(wave, 1),
                        Cell(static_cast<double>(r.length) / wave, 2)});
      if (scaled) t.rows.back().push_back(Cell(places_per_turn(r.unscaled[n]), 1));
    }
    d.parts.push_back(std::move(t));
    Chart chart{.title = concat("Places for a full turn, ", where),
                .x_label = "pair",
                .y_label = "places",
                .curves = {{.name = "as the model has it", .x = {}, .y = {}}},
                .log_y = true};
    if (scaled) chart.curves.push_back({.name = "without scaling", .x = {}, .y = {}});
    for (std::size_t i = 0; i < r.radians.size(); ++i) {
      chart.curves[0].x.push_back(static_cast<double>(i));
      chart.curves[0].y.push_back(places_per_turn(r.radians[i]));
      if (chart.curves.size() < 2) continue;
      chart.curves[1].x.push_back(static_cast<double>(i));
      chart.curves[1].y.push_back(places_per_turn(r.unscaled[i]));
    }
    d.parts.push_back(std::move(chart));
    HeatMap map{.title = concat("cos(place * angle), ", where, ": place by pair"),
                .rows = numbers(positions),
                .columns = numbers((turned + step - 1) / step, step),
                .values = {},
                .top = 1,
                .scale = HeatMap::Scale::both_signs,
                .row_name = "place",
                .column_name = "pair",
                .value_name = "cosine"};
    for (Dim place = 0; place < positions; ++place)
      for (Dim i = 0; i < turned; i += step)
        map.values.push_back(std::cos(static_cast<double>(place) * r.radians[static_cast<std::size_t>(i)]));
    d.parts.push_back(std::move(map));
    Json j = Json::Object{};
    j.set("layers", layer_list(r.layers));
    j.set("theta", r.spec.theta);
    j.set("scaling", name_of(r.spec.scaling));
    j.set("magnitude", r.magnitude);
    j.set("length", r.length);
    j.set("radians", list_json(r.radians));
    j.set("radians_without_scaling", list_json(r.unscaled));
    facts.push_back(std::move(j));
  }
  if (facts.empty()) return;
  d.facts.set("rope", std::move(facts));
  for (const char* key : {"rope[].radians", "rope[].radians_without_scaling"}) name_axes(d, key, {"pair"});
}

void add_biases(Document& d, const Positions& p) {
  Json::Array slopes, biases;
  for (const AlibiSlopes& a : p.alibi) {
    Table t{.title = concat("ALiBi, layers ", layer_list(a.layers),
                            ": a score falls by this for every place between query and key"),
            .columns = {"head", "slope", "halves the weight every"},
            .rows = {}};
    for (std::size_t h = 0; h < a.slopes.size(); ++h)
      t.rows.push_back({std::to_string(h), Cell(a.slopes[h], 6),
                        concat(fixed(std::log(2.0) / a.slopes[h], 1), " places")});
    d.parts.push_back(std::move(t));
    slopes.push_back(Json::Object{{"layers", layer_list(a.layers)}, {"slopes", list_json(a.slopes)}});
  }
  for (const BucketTable& b : p.buckets) {
    const std::string title = concat("Buckets, ", stack_name(b.stack), " layers ", layer_list(b.layers), ": ",
                                     b.count, " of them, ", b.both_ways ? "both ways" : "backwards only",
                                     ", all from ", b.max, " places on share the last");
    if (b.bias.empty()) {
      Table t{.title = title, .columns = {"bucket", "nearest place (key - query)"}, .rows = {}};
      for (std::size_t i = 0; i < b.bucket.size(); ++i)
        t.rows.push_back({Cell(b.bucket[i], 0), Cell(static_cast<double>(b.distances[i]), 0)});
      d.parts.push_back(std::move(t));
    } else {
      HeatMap map{.title = concat(title, ". What it adds to a score, by distance (key - query) and head"),
                  .rows = {},
                  .columns = numbers(b.heads),
                  .values = b.bias,
                  .top = 0,
                  .scale = HeatMap::Scale::both_signs,
                  .row_name = "key - query",
                  .column_name = "head",
                  .value_name = "added to the score"};
      for (Dim distance : b.distances) map.rows.push_back(std::to_string(distance));
      d.parts.push_back(std::move(map));
      biases.push_back(Json::Object{{"stack", stack_name(b.stack)},
                                    {"layers", layer_list(b.layers)},
                                    {"distances", list_json(b.distances)},
                                    {"bias", grid_json(b.bias, static_cast<std::size_t>(b.heads))}});
    }
  }
  if (!slopes.empty()) {
    d.facts.set("alibi", std::move(slopes));
    name_axes(d, "alibi[].slopes", {"head"});
  }
  if (!biases.empty()) {
    d.facts.set("buckets", std::move(biases));
    name_axes(d, "buckets[].bias", {"distance", "head"});
  }
}

Document view(const Subject& s, PositionOptions options, Dim channels) {
  const Checkpoint& c = s.checkpoint;
  const Model* model = c.model.get();
  const Recipe recipe = model ? model->recipe : resolve(preset(c.path));
  const Positions p = positions(s.device(), recipe, model, options);
  Document d{.name = "positions",
             .title = concat("How ", model_name(s.checkpoint), " tells places apart"),
             .parts = {}};
  add_absolute(d, p, recipe, channels);
  add_rope(d, p, model, options.positions);
  add_biases(d, p);
  Json::Array relative;
  for (const RelativeVectors& r : p.relative) {
    d.parts.push_back(
        Words{concat("Vectors of distances, ", stack_name(r.stack), " layers ", layer_list(r.layers), ": ",
                     r.recipe.buckets, " to each side, one for each distance up to ", r.recipe.buckets / 2,
                     ", then by the logarithm up to ", r.recipe.max,
                     ". Each layer makes its own keys and queries of them.")});
    relative.push_back(Json::Object{{"stack", stack_name(r.stack)},
                                    {"layers", layer_list(r.layers)},
                                    {"buckets", r.recipe.buckets},
                                    {"max", r.recipe.max}});
  }
  if (!relative.empty()) d.facts.set("relative", std::move(relative));
  Json::Array xl;
  for (const DistanceSinusoids& x : p.xl) {
    d.parts.push_back(
        Words{concat("Sinusoids of distances, ", stack_name(x.stack), " layers ", layer_list(x.layers),
                     ": r of ", with_commas(recipe.width),
                     " sines and cosines, wavelengths from 6.3 to about 63,000 tokens. Each layer "
                     "makes its own keys of them, W r, and queries add a vector u before they "
                     "meet keys of tokens, v before those (Transformer-XL).")});
    xl.push_back(Json::Object{{"stack", stack_name(x.stack)}, {"layers", layer_list(x.layers)}});
  }
  if (!xl.empty()) d.facts.set("xl", std::move(xl));
  if (!p.none.empty() && (!p.rope.empty() || !p.alibi.empty() || !p.buckets.empty() || !p.relative.empty() ||
                          !p.xl.empty() || (!p.sinusoid && !p.learned)))
    d.parts.push_back(Words{concat("No sign of place inside the attention of: ", join(p.none), ".")});
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  PositionOptions o;
  o.positions = args.number("positions", 1, 4096).value_or(64);
  o.length = args.number("length", 1, Dim{1} << 40).value_or(0);
  const Dim channels = args.number("channels", 1, 1 << 20).value_or(30);
  return [o, channels](const ViewRequest& s) { return view(s, o, channels); };
}

}  // namespace

extern const View kPositionsView;
const View kPositionsView = {
    "positions",
    "how a model tells places apart: sinusoids, learned vectors, RoPE angles, ALiBi, buckets",
    "  --positions N        how many places are drawn (64)\n"
    "  --channels N         at most so many channels of a table (30)\n"
    "  --length N           of the text, for RoPE scalings that depend on it (the\n"
    "                       model's context)\n",
    parse,
    1,
    View::Needs::recipe};

}  // namespace rapt::cli
