// SPDX-License-Identifier: Apache-2.0
// Two recipes are compared as JSON with every default written out.
#include "rapt/recipe/recipe_diff.h"

#include <algorithm>

#include "rapt/base/text.h"

namespace rapt {
namespace {

std::string brief(const Json* j) {
  if (!j || j->is_null()) return "absent";
  std::string s = j->dump(0);
  constexpr std::size_t kMost = 100;
  if (s.size() <= kMost) return s;
  std::size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(s[cut]) & 0xC0) == 0x80) --cut;
  return s.substr(0, cut) + "…";
}

void diff_json(const Json* a, const Json* b, const std::string& path, std::vector<Difference>& out) {
  if (a && b && *a == *b) return;
  if (a && b && a->is_object() && b->is_object()) {
    bool common = a->object().empty() || b->object().empty();
    for (const auto& m : a->object()) common = common || b->find(m.key);
    if (common) {  // else: two different choices, shown whole
      auto under = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
      for (const auto& m : a->object()) diff_json(&m.value, b->find(m.key), under(m.key), out);
      for (const auto& m : b->object())
        if (!a->find(m.key)) diff_json(nullptr, &m.value, under(m.key), out);
      return;
    }
  }
  if (a && b && a->is_array() && b->is_array()) {
    const auto &x = a->array(), &y = b->array();
    for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i)
      diff_json(i < x.size() ? &x[i] : nullptr, i < y.size() ? &y[i] : nullptr, concat(path, "[", i, "]"),
                out);
    return;
  }
  out.push_back({path, brief(a), brief(b)});
}

}  // namespace

std::vector<Difference> diff_values(const Json& a, const Json& b) {
  std::vector<Difference> out;
  diff_json(&a, &b, "", out);
  return out;
}

std::vector<Difference> diff_recipes(const Recipe& a, const Recipe& b) {
  Recipe x = a, y = b;
  x.name = y.name;
  x.note = y.note;
  return diff_values(parse_json(recipe_json(x, true)), parse_json(recipe_json(y, true)));
}

}  // namespace rapt
