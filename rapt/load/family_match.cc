// SPDX-License-Identifier: Apache-2.0
// From a recipe back to a family's values. The family's "recipe" is laid over the JSON of ours, and every
// "$name" in it takes what it meets there; nothing else is compared. Whether the family can say the recipe
// is then seen from the other side: the values become a config.json, that is read as a stranger's would be,
// and what comes out must be the recipe again.
#include <cmath>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/load/family_write.h"

namespace rapt {
namespace {

class Matcher {
 public:
  Matcher(const Family& family, const std::vector<WeightShape>& weights, FamilyValues& values)
      : family_(family), values_(values), there_{.weights = &weights, .family = &family} {}

  void meet(const Json& t, const Json* v) {
    if (!v || v->is_null()) return;
    if (t.is_string()) return meet_word(t.string(), *v);
    if (t.is_array() && v->is_array()) {
      for (std::size_t i = 0; i < std::min(t.array().size(), v->array().size()); ++i)
        meet(t.array()[i], &v->array()[i]);
      return;
    }
    if (!t.is_object()) return;
    if (t.find("if")) return meet_choice(t, *v);
    for (const Json::Member& m : t.object()) {
      if (m.key == "kinds") meet_kinds(m.value, v->find(m.key));
      else meet(m.value, v->find(m.key));
    }
  }

 private:
  const Json* row(std::string_view name) const { return family_.json.find("values")->find(name); }
  void bind(std::string_view name, Json value) {
    const Json *line = row(name), *absent = line ? line->find("or") : nullptr;
    if (absent && absent->is_null() && value == Json(0)) return;  // a cap of 0 is none
    if (!values_.find(name)) values_.set(std::string(name), std::move(value));
  }

  void meet_word(std::string_view w, const Json& v) {
    if (!w.starts_with('$')) return;
    w.remove_prefix(1);
    const std::size_t op = w.find_first_of("^/=*+");
    const std::string_view name = w.substr(0, op);
    if (op != std::string_view::npos) {
      if ((w[op] == '^' || w[op] == '*') && v.is_number()) products_.emplace_back(w, v.number());
      if (w[op] == '/' && v.is_number())  // rows of patches: the picture's size is a multiple
        products_.emplace_back(concat(name, "*", w.substr(op + 1), "^-1"), v.number());
      if (w[op] == '+' && v.is_integer()) sums_.emplace_back(w, v.integer());
      return;
    }
    if (const std::size_t dot = name.find('.'); dot != std::string_view::npos) {  // a member of a value
      const std::string_view outer = name.substr(0, dot);
      const Json* old = values_.find(outer);
      Json both = old ? *old : Json(Json::Object{});
      if (!both.find(name.substr(dot + 1))) both.set(std::string(name.substr(dot + 1)), v);
      values_.set(std::string(outer), std::move(both));
      return;
    }
    const Json* let = family_.json.find("let");
    if (const Json* longer = let ? let->find(name) : nullptr; longer && !row(name)) return meet(*longer, &v);
    const Json* type = row(name) ? row(name)->find("type") : nullptr;
    bind(name, type && type->string() == "rope" ? short_rope(v) : v);
  }

  // The first value of a product is what the others leave.
  void solve(const std::string& product, double value) {
    const std::vector<Factor> factors = factors_of(product);
    for (std::size_t i = 1; i < factors.size(); ++i) {
      const Json* x = factors[i].name.empty() ? nullptr : values_.find(factors[i].name);
      if (!factors[i].name.empty() && !x) return;
      value /= x ? std::pow(x->number(), factors[i].power) : factors[i].power;
    }
    if (value > 0) bind(factors[0].name, whole(std::pow(value, 1 / factors[0].power)));
  }

 public:
  // What stood in products, when all else is known; then what values that have no key are made of.
  void solve_products() {
    for (const auto& [sum, value] : sums_)  // the first term is what the second leaves
      if (const std::size_t plus = sum.find('+'); const Json* x = values_.find(sum.substr(plus + 1)))
        bind(sum.substr(0, plus), value - x->integer());
    for (const auto& [product, value] : products_) solve(product, value);
    for (const Json::Member& m : family_.json.find("values")->object()) {
      const Json *meant = m.value.find("config_or"), *x = values_.find(m.key);
      if (meant && meant->is_string() && meant->string().find('*') != std::string::npos && x)
        solve(std::string(meant->string()).substr(1), x->number());
    }
  }

 private:
  // "$flag": true unless the other branch is what stands there; "?weight": as it is.
  void meet_choice(const Json& t, const Json& v) {
    const std::string_view condition = t.find("if")->string();
    const Json *then = t.find("then"), *otherwise = t.find("else");
    bool yes = true;
    if (condition.starts_with('?')) yes = there_.has(condition.substr(1));
    else if (condition.starts_with('$')) {
      const bool fixed =
          then && !then->is_object() && !(then->is_string() && then->string().starts_with('$'));
      yes = !then ? false : fixed ? *then == v : !(otherwise && *otherwise == v);
      if (const Json* known = values_.find(condition.substr(1)); known && known->is_bool())
        yes = known->boolean();
      if (const std::size_t is = condition.find('='); is != std::string_view::npos && yes && fixed)
        bind(condition.substr(1, is - 1), Json(std::stod(std::string(condition.substr(is + 1)))));
      const Json *line = row(condition.substr(1)), *type = line ? line->find("type") : nullptr;
      if (type && type->string() == "boolean") bind(condition.substr(1), yes);
    }
    if (const Json* chosen = yes ? then : otherwise) meet(*chosen, &v);
  }

  void meet_kinds(const Json& all, const Json* v) {
    if (!v) return;
    for (const bool like : {false, true})  // a kind of its own first: a copy only adds what it changes
      for (const Json::Member& m : all.object()) {
        const Json* from = m.value.find("like");
        if ((from != nullptr) != like) continue;
        const Json* ours = v->find(m.key);
        if (!ours) continue;
        if (!from) {
          meet(m.value, ours);
          continue;
        }
        const Json *parts = ours->find("parts"), *base = all.find(from->string())->find("parts");
        for (std::size_t i = 0; i < std::min(parts->array().size(), base->array().size()); ++i) {
          Json::Member part = base->array()[i].object()[0];
          if (const Json* over = m.value.find(part.key))
            for (const Json::Member& x : over->object()) part.value.set(x.key, x.value);
          meet(part.value, parts->array()[i].find(part.key));
        }
      }
  }

  static Json whole(double x) {
    const double near = std::round(x);
    return near > 0 && std::fabs(near - x) <= 1e-6 * near && whole_number(near) ? Json(*whole_number(near))
                                                                                : Json(x);
  }

  // As rope_from_source gives it: without what is at its default or says nothing.
  static Json short_rope(const Json& v) {
    Json out = Json::Object{};
    if (!v.is_object()) return out;
    for (const Json::Member& m : v.object()) {
      if (m.key == "theta" || (m.key == "part" && !(m.value == Json(1))) ||
          (m.key == "layout" && m.value == Json("pairs")))
        out.set(m.key, m.value);
      if (m.key != "scaling" || !m.value.is_object()) continue;
      const Json::Member& kind = m.value.object()[0];
      Json in = Json::Object{}, scaling = Json::Object{};
      for (const Json::Member& x : kind.value.object())
        if (!(x.value == Json(0)) && !(kind.key == "longrope" && x.key == "factor" && x.value == Json(1)))
          in.set(x.key, x.value);
      scaling.set(kind.key, std::move(in));
      out.set("scaling", std::move(scaling));
    }
    return out;
  }

  const Family& family_;
  FamilyValues& values_;
  const Source there_;
  std::vector<std::pair<std::string, double>> products_;
  std::vector<std::pair<std::string, Dim>> sums_;
};

// What only the order of layers tells.
void pattern_values(const Family& family, const Recipe& r, FamilyValues& values) {
  for (const auto& [axis, letters] : axes_of(family, r)) {
    const char full = axis->find("full")->string()[0], local = axis->find("local")->string()[0];
    const std::size_t first = letters.find(local);
    const Dim layers = static_cast<Dim>(letters.size());
    const Json* flag = axis->find("only_if");
    const Json* row = flag ? family.json.find("values")->find(flag->string()) : nullptr;
    const Json* type = row ? row->find("type") : nullptr;
    if (flag && type && type->string() == "boolean") values.set(flag->string(), first != std::string::npos);
    if (const Json* from = axis->find("from"))
      values.set(from->string(), first == std::string::npos ? layers : static_cast<Dim>(first));
    const Json* period = axis->find("period");
    if (!period || !axis_list_keys(*axis, Form::folder).empty()) continue;
    if (axis->find("members") || axis->find("start")) {  // the exceptions are listed
      const std::size_t begin = letters.find(full);
      values.set(period->string(), 1);
      if (const Json* start = axis->find("start"))
        values.set(start->string(), begin == std::string::npos ? layers : static_cast<Dim>(begin));
      continue;
    }
    if (const auto n = period_of(*axis, letters)) values.set(period->string(), *n);
  }
}

void each_part(Recipe& r, const auto& f) {
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack)
      for (auto& [letter, layer] : (*stack)->kinds)
        for (PartRecipe& p : layer.parts) f(p);
}

// Biases that a key of the config switches on for all projections, or all matrices of the FFN.
void add_agreed(const Family& family, const Json& config, Recipe& r) {
  const Json* agree = family.json.find("agree");
  if (!agree || !agree->is_object()) return;
  for (const Json::Member& m : agree->object()) {
    const Json* on = config.find(m.key);
    if (!on || !on->is_bool() || !on->boolean()) continue;
    const Json::Array names = m.value.is_array() ? m.value.array() : Json::Array{m.value};
    for (const Json& name : names) {
      const std::string& w = name.string();
      if (!w.ends_with(".bias")) continue;
      const auto is = [&](const char* which) { return names.size() == 1 || w.find(which) != w.npos; };
      each_part(r, [&](PartRecipe& p) {
        if (w.find(".self.") != w.npos && p.self()) {
          BiasRecipe& b = p.self()->bias;
          const auto& latent = p.self()->latent;
          b = {b.q || is(".q.") || (latent && latent->q_rank > 0 && is(".q_a.")),
               b.k || is(".k.") || (latent && is(".kv_a.")), b.v || is(".v."), b.o || is(".o.")};
        }
        if (w.find(".ffn.") != w.npos && p.ffn()) p.ffn()->bias = true;
        if (w.find(".conv.") != w.npos && p.conv()) p.conv()->bias = true;
      });
    }
  }
}

}  // namespace

Recipe architecture_of(Recipe r) {
  r.name = r.note = "";
  r.init = {};
  r.embed.dropout = 0;
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack) (*stack)->dropout = 0;
  each_part(r, [](PartRecipe& p) {
    p.dropout = 0;
    p.residual_scale = static_cast<float>(p.residual_scale);
    std::visit([](auto& body) { body.dropout = 0; }, p.body);
    if (MoeRecipe* m = p.moe()) m->balance = 0, m->balance_over = MoeRecipe{}.balance_over;
    AttnRecipe* a = p.attention();
    if (!a) return;
    ScaleRecipe& scale = a->scale;
    const bool product = a->score == AttnRecipe::ScoreKind::dot || a->score == AttnRecipe::ScoreKind::general;
    if (product && scale.kind == ScaleRecipe::Kind::automatic && a->head_dim > 0)
      scale = {.kind = ScaleRecipe::Kind::number,
               .number = yarn_score_factor(*a) / std::sqrt(static_cast<double>(automatic_scale(*a)))};
    if (scale.kind == ScaleRecipe::Kind::number) scale.number = static_cast<float>(scale.number);
  });
  // Roots differ in their last digit, by how they were taken.
  r.head.scale = static_cast<float>(r.head.scale);
  r.embed.scale = static_cast<float>(r.embed.scale);
  return r;
}

std::optional<Translation> family_values(const Family& family, const Recipe& resolved) {
  const std::vector<WeightShape> weights = weight_shapes(resolved);
  for (const WeightShape& w : weights)
    if (family.tensor_names(Form::folder, w.name).empty()) return std::nullopt;
  // Tables that the library makes whether they are used or not.
  if (resolved.embed.types == 0 && !family.tensor_names(Form::folder, "embed.types").empty())
    return std::nullopt;
  if (resolved.head.kind == HeadRecipe::Kind::classes &&
      !family.json.find(resolved.head.distilled ? "distilled" : "classifier"))
    return std::nullopt;
  Translation out{.values = {}, .recipe = resolved};
  const Recipe wanted = architecture_of(resolved);
  const auto says_it = [&]() -> bool {
    const Json config = parse_json(config_text(config_of(family, out)), family.name);
    Recipe back = translate_keys({.form = Form::folder,
                                  .where = family.name,
                                  .keys = config,
                                  .weights = &weights,
                                  .family = &family})
                      .recipe;
    add_agreed(family, config, back);
    return architecture_of(resolve(back)) == wanted;
  };
  try {
    const Json ours = parse_json(recipe_json(wanted, true), resolved.name);
    Matcher matcher(family, weights, out.values);
    matcher.meet(*family.json.find("recipe"), &ours);
    matcher.solve_products();
    pattern_values(family, resolved, out.values);
    if (says_it()) return out;
    // Values that only rounding leads to (DINOv2's ratio of widths): those the family names are tried.
    if (const Json* tries = family.json.find("try"); tries && tries->is_object())
      for (const Json::Member& m : tries->object())
        for (const Json& value : m.value.array()) {
          out.values.set(m.key, value);
          if (says_it()) return out;
        }
  } catch (const Error&) {  // a value that the family needs and the recipe has not
  }
  return std::nullopt;
}

}  // namespace rapt
