// SPDX-License-Identifier: Apache-2.0
// Short names change the recipe itself; any other key is set in its JSON, which is then parsed anew.
#include "rapt/recipe/recipe_set.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "rapt/base/text.h"

namespace rapt {
namespace {

Dim whole(const Setting& s, Dim least) {
  if (!s.value.is_integer() || s.value.integer() < least)
    fail_usage("--set ", s.key, ": wants a whole number of at least ", least, ", has ", s.value.dump(0));
  return s.value.integer();
}
double share(const Setting& s) {
  if (!s.value.is_number() || s.value.number() < 0 || s.value.number() >= 1)
    fail_usage("--set ", s.key, ": wants a number from 0 to below 1, has ", s.value.dump(0));
  return s.value.number();
}

void each_part(Recipe& r, const std::function<void(PartRecipe&)>& f) {
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack)
      for (auto& [letter, layer] : (*stack)->kinds)
        for (PartRecipe& p : layer.parts) f(p);
}

using Change = void (*)(Recipe&, const Setting&);
// What a resolved recipe has filled in must be worked out again where the number it follows from changes: 0
// stands for that.
const std::pair<const char*, Change> kShort[] = {
    {"width",
     [](Recipe& r, const Setting& s) {
       const Dim before = std::exchange(r.width, whole(s, 1));
       each_part(r, [&](PartRecipe& p) {
         if (FfnRecipe* f = p.ffn(); f && f->width == 4 * before) f->width = 0;
         if (MoeRecipe* m = p.moe(); m && m->width == 4 * before) m->width = 0;
         if (AttnRecipe* a = p.attention(); a && a->head_dim * a->heads == before) a->head_dim = a->v_dim = 0;
       });
     }},
    {"layers",
     [](Recipe& r, const Setting& s) {
       for (auto* stack : {&r.encoder, &r.decoder})
         if (*stack) (*stack)->layers = whole(s, 1);
     }},
    {"heads",
     [](Recipe& r, const Setting& s) {
       each_part(r, [&](PartRecipe& p) {
         AttnRecipe* a = p.attention();
         if (!a) return;
         if (a->kv_heads == a->heads) a->kv_heads = 0;
         if (a->head_dim * a->heads == r.width) a->head_dim = a->v_dim = 0;
         a->heads = whole(s, 1);
       });
     }},
    {"kv_heads",
     [](Recipe& r, const Setting& s) {
       each_part(r, [&](PartRecipe& p) {
         if (AttnRecipe* a = p.attention()) a->kv_heads = whole(s, 1);
       });
     }},
    {"head_dim",
     [](Recipe& r, const Setting& s) {
       each_part(r, [&](PartRecipe& p) {
         if (AttnRecipe* a = p.attention()) a->head_dim = a->v_dim = whole(s, 1);
       });
     }},
    {"ffn",
     [](Recipe& r, const Setting& s) {
       each_part(r, [&](PartRecipe& p) {
         if (FfnRecipe* f = p.ffn()) f->width = whole(s, 1);
         if (MoeRecipe* m = p.moe()) m->width = whole(s, 1);
       });
     }},
    {"window",
     [](Recipe& r, const Setting& s) {
       each_part(r, [&](PartRecipe& p) {
         if (AttnRecipe* a = p.self()) a->window = whole(s, 0);
       });
     }},
    {"dropout",
     [](Recipe& r, const Setting& s) {
       const double p = share(s);
       r.embed.dropout = p;
       for (auto* stack : {&r.encoder, &r.decoder})
         if (*stack && (*stack)->dropout > 0) (*stack)->dropout = p;
       each_part(r, [&](PartRecipe& part) {
         part.dropout = p;
         std::visit([&](auto& body) { body.dropout = p; }, part.body);
       });
     }},
};

// json with `value` at a path like "a.b[0].c"; what lies on the way is made where it is missing.
Json with_value(const Json& json, std::string_view path, const Json& value, std::string_view whole_path) {
  if (path.empty()) return value;
  if (path[0] == '[') {
    const std::size_t end = path.find(']');
    std::size_t index = 0;
    const bool number = end != std::string_view::npos && end > 1 && end < 8 &&
                        std::all_of(
                            path.begin() + 1, path.begin() + static_cast<std::ptrdiff_t>(end),
                            [](char c) { return c >= '0' && c <= '9'; });
    if (number) index = static_cast<std::size_t>(std::stoul(std::string(path.substr(1, end - 1))));
    if (!number || !json.is_array() || index >= json.array().size())
      fail_usage("--set ", whole_path, ": '", path, "' is no place of a list that the recipe has (",
                 json.is_array() ? concat(json.array().size(), " entries") : "no list", ")");
    Json::Array items = json.array();
    std::string_view rest = path.substr(end + 1);
    if (!rest.empty() && rest[0] == '.') rest.remove_prefix(1);
    items[index] = with_value(items[index], rest, value, whole_path);
    return items;
  }
  const std::size_t end = std::min(path.find('.'), path.find('['));
  const std::string key(path.substr(0, end));
  if (key.empty()) fail_usage("--set ", whole_path, ": an empty name in the path");
  std::string_view rest =
      end == std::string_view::npos ? std::string_view{} : path.substr(path[end] == '.' ? end + 1 : end);
  if (end != std::string_view::npos && rest.empty())
    fail_usage("--set ", whole_path, ": the path ends in a dot");
  Json out = json.is_object() ? json : Json(Json::Object{});
  const Json* there = out.find(key);
  out.set(key, with_value(there ? *there : Json(), rest, value, whole_path));
  return out;
}

// A key of one word: a short name, or a field of the recipe itself.
void check_word(const Recipe& r, const std::string& key, const std::string& text) {
  std::vector<std::string> names = {"preset"};
  for (const auto& [name, change] : kShort) names.emplace_back(name);
  const Json all = parse_json(recipe_json(r, true));
  for (const Json::Member& m : all.object()) names.emplace_back(m.key);
  if (std::find(names.begin(), names.end(), key) != names.end()) return;
  names.erase(names.begin());
  fail("--set ", text, ": ", key, ": unknown key; ", name_hint(key, names));
}

}  // namespace

Setting parse_setting(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == 0 || at == std::string::npos) fail_usage("--set ", text, ": wants KEY=VALUE, e.g. width=128");
  Setting s{text.substr(0, at), {}};
  const std::string value = text.substr(at + 1);
  try {
    s.value = parse_json(value, "value");
  } catch (const Error&) {
    s.value = Json(value);  // a word
  }
  return s;
}

Recipe with_settings(const Recipe& recipe, std::span<const std::string> settings) {
  Recipe r = recipe;
  for (const std::string& text : settings) {
    const Setting s = parse_setting(text);
    const auto it =
        std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& k) { return k.first == s.key; });
    if (it != std::end(kShort)) {
      it->second(r, s);
      continue;
    }
    if (s.key.find_first_of(".[") == std::string::npos) check_word(r, s.key, text);
    const Json json = with_value(parse_json(recipe_json(r)), s.key, s.value, s.key);
    r = parse_recipe(json.dump(), concat("--set ", text));
  }
  return resolve(r);
}

}  // namespace rapt
