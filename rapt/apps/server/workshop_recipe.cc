// SPDX-License-Identifier: Apache-2.0
// What is asked is bounded and read; the answers are those of recipe/, nn/size and inspect/show.
#include "rapt/apps/server/workshop_recipe.h"

#include <algorithm>

#include "rapt/apps/server/protocol_request.h"
#include "rapt/base/text.h"
#include "rapt/inspect/show.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe_diff.h"
#include "rapt/recipe/recipe_schema.h"
#include "rapt/recipe/recipe_set.h"

namespace rapt::server {
namespace {

// Costs and drawings grow with layers and kinds.
constexpr Dim kMostLayers = 1024;
constexpr std::size_t kMostKinds = 26;

// The place that a message about a recipe names: recipe:3:14: PLACE: reason, or recipe "name": PLACE: reason.
std::string place_of(std::string_view message) {
  if (!message.starts_with("recipe")) return "";
  std::size_t at = message.find(message.substr(6).starts_with(" \"") ? "\": " : ": ");
  if (at == std::string_view::npos) return "";
  at = message.find(' ', at) + 1;
  const std::size_t end = message.find(": ", at);
  const std::string_view place = end == std::string_view::npos ? "" : message.substr(at, end - at);
  const bool path = std::all_of(place.begin(), place.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '[' || c == ']';
  });
  return path ? std::string(place) : "";
}

struct Read {
  Recipe written, resolved;  // as it was given, and with its sizes filled in
  Language language;
};

Read read(const RecipeRequest& a, std::string_view path) {
  try {
    Read r{.written = !a.preset.empty() ? preset(a.preset) : parse_recipe(a.text + a.recipe),
           .resolved = {},
           .language = a.chinese ? Language::zh : Language::en};
    for (const auto* stack : {&r.written.encoder, &r.written.decoder})
      if (*stack && ((*stack)->depth() > kMostLayers || (*stack)->kinds.size() > kMostKinds))
        fail("recipe: ", stack == &r.written.encoder ? "encoder" : "decoder", ": ", (*stack)->depth(),
             " layers of ", (*stack)->kinds.size(), " kinds; up to ", kMostLayers, " of ", kMostKinds,
             " are shown here (`rapt show` has no such limit)");
    if (!a.settings.empty()) r.written = with_settings(r.written, a.settings);
    r.resolved = resolve(r.written);
    for (const auto* stack : {&r.resolved.encoder, &r.resolved.decoder})  // settings may have changed it
      if (*stack && (*stack)->depth() > kMostLayers)
        fail("recipe: ", (*stack)->depth(), " layers; up to ", kMostLayers, " are shown here");
    return r;
  } catch (const Error& e) {
    std::string place = place_of(e.what());
    throw ApiError(400, "invalid_value", e.what(), concat(path, place));
  }
}

std::string operations(double n) {  // 15.0 G, as rapt show writes it
  std::string s = short_count(n);
  if (s.ends_with('B')) s.back() = 'G';
  return s;
}
Json pass(const Cost::Pass& p) {
  return Json::Object{{"matrices", p.matrices},
                      {"attention", p.attention},
                      {"short", Json::Array{operations(p.matrices), operations(p.attention)}}};
}
// A number of values: how many, and their bytes as f32 and as bf16.
Json values(Dim n) {
  const auto x = static_cast<double>(n);
  return Json::Object{{"count", n}, {"short", Json::Array{byte_count(4 * x), byte_count(2 * x)}}};
}

// What `rapt show` says below its drawing.
Json facts(const Recipe& r) {
  const ParameterCount count = count_parameters(r);
  const Cost cost = count_cost(r, r.context);
  Json::Array groups;
  for (const auto& [name, n] : count.groups) groups.push_back(Json::Object{{"name", name}, {"count", n}});
  Json out = Json::Object{{"name", r.name},
                          {"parameters", count.total},
                          {"short", short_count(static_cast<double>(count.total))},
                          {"active", count.active},
                          {"biases", count.biases},
                          {"context", r.context}};
  out.set("groups", std::move(groups));
  out.set("weights", values(count.total));
  if (r.decoder && !r.decoder->recurrent) out.set("kv", values(cost.kv_values));
  if (cost.kv_forgotten > 0) out.set("kv_forgotten", values(cost.kv_forgotten));
  if (cost.memory_values > 0) out.set("kv_source", values(cost.memory_values));
  if (cost.state_values > 0) out.set("state", values(cost.state_values));
  out.set("flops", pass(cost.token));
  if (r.encoder && r.decoder) out.set("flops_source", pass(cost.source));
  return out;
}

}  // namespace

const std::string& recipe_catalogue(bool chinese) {
  const auto make = [](std::string_view lang) {
    Json::Array presets;
    for (const std::string& name : preset_names()) {
      const Recipe r = resolve(preset(name));
      presets.push_back(
          Json::Object{{"name", name}, {"parameters", count_parameters(r).total}, {"note", r.note}});
    }
    return Json(Json::Object{{"presets", std::move(presets)}, {"schema", recipe_schema_data(lang)}}).dump(0);
  };
  static const std::string kEnglish = make("en"), kChinese = make("zh");
  return chinese ? kChinese : kEnglish;
}

std::string recipe_show(const Json& body) {
  const Read r = read(read_recipe(body), "");
  Json out = Json::Object{{"name", r.resolved.name}, {"note", r.resolved.note}};
  out.set("written", recipe_json(r.written));
  out.set("recipe", parse_json(recipe_json(r.resolved)));
  out.set("whole", parse_json(recipe_json(r.resolved, true)));
  try {
    out.set("facts", facts(r.resolved));
    out.set("drawing", draw_recipe(r.resolved));
    out.set("svg", recipe_svg(r.resolved, r.language));
  } catch (const Error& e) {  // more parameters than a model can have
    throw ApiError(400, "invalid_value", e.what(), "width");
  }
  return out.dump(0);
}

std::string recipe_diff(const Json& body) {
  const RecipePair pair = read_recipe_pair(body);
  const Read a = read(pair.a, "a."), b = read(pair.b, "b.");
  Json::Array rows;
  for (const Difference& d : diff_recipes(a.resolved, b.resolved))
    rows.push_back(Json::Object{{"path", d.path}, {"a", d.a}, {"b", d.b}});
  Json out = Json::Object{{"differences", std::move(rows)}};
  try {
    out.set("a", facts(a.resolved));
    out.set("b", facts(b.resolved));
  } catch (const Error& e) {
    throw ApiError(400, "invalid_value", e.what(), "b");
  }
  return out.dump(0);
}

}  // namespace rapt::server
