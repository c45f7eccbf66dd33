// SPDX-License-Identifier: Apache-2.0
// Keys of a file -> named values -> recipe. The grammar of the lines and expressions: docs/families.md.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "rapt/base/text.h"
#include "rapt/load/family.h"

namespace rapt {
namespace {

constexpr std::pair<const char*, const char*> kActs[] = {{"silu", "silu"},
                                                         {"swish", "silu"},
                                                         {"gelu", "gelu"},
                                                         {"gelu_new", "gelu_tanh"},
                                                         {"gelu_pytorch_tanh", "gelu_tanh"},
                                                         {"gelu_fast", "gelu_tanh"},
                                                         {"gelu_accurate", "gelu_tanh"},
                                                         {"gelu_python", "gelu"},
                                                         {"relu", "relu"},
                                                         {"relu2", "relu2"},
                                                         {"quick_gelu", "quick_gelu"},
                                                         {"sigmoid", "sigmoid"},
                                                         {"tanh", "tanh"}};

bool is_number(std::string_view s) {
  return !s.empty() && (s[0] == '-' || s[0] == '.' || (s[0] >= '0' && s[0] <= '9'));
}

}  // namespace

std::vector<Factor> factors_of(std::string_view product) {
  std::vector<Factor> out;
  for (std::size_t at = 0; at <= product.size();) {
    const std::size_t end = std::min(product.find('*', at), product.size());
    const std::string_view one = product.substr(at, end - at);
    const std::size_t hat = one.find('^');
    if (is_number(one)) out.push_back({"", std::stod(std::string(one))});
    else if (hat == std::string_view::npos) out.push_back({std::string(one), 1});
    else out.push_back({std::string(one.substr(0, hat)), std::stod(std::string(one.substr(hat + 1)))});
    at = end + 1;
  }
  return out;
}

Shift shift_of(const Json& row, Form form) {
  Shift out;
  const auto read = [&](const char* key, Dim& to) {
    const Json* j = row.find(key);
    if (j && j->is_array()) j = &j->array()[form == Form::gguf ? 1 : 0];
    if (j) to = j->integer();
  };
  read("plus", out.plus);
  read("over", out.over);
  return out;
}

std::vector<std::string> axis_list_keys(const Json& axis, Form form) {
  if (!axis.find("types")) return {};
  const Json* keys = axis.find(form == Form::gguf ? "gguf_list" : "list");
  if (!keys && form == Form::folder) return {"layer_types"};
  std::vector<std::string> out;
  if (keys && keys->is_string()) out.push_back(keys->string());
  if (keys && keys->is_array())
    for (const Json& k : keys->array()) out.push_back(k.string());
  return out;
}

std::optional<Dim> period_of(const Json& axis, std::string_view letters) {
  const char full = axis.find("full")->string()[0];
  const Dim layers = static_cast<Dim>(letters.size());
  const Json* phase = axis.find("phase");
  for (Dim n = 1; n <= layers + 1; ++n) {
    bool all = true;
    for (Dim i = 0; i < layers; ++i)
      all = all &&
            (letters[static_cast<std::size_t>(i)] == full) == (i % n == (phase ? phase->integer() : n - 1));
    if (all) return n;
  }
  return std::nullopt;
}

namespace {

// One line of "values", and what its expressions may look at.
class Interpreter {
 public:
  Interpreter(const Source& source, FamilyValues& values) : s_(source), values_(values) {}

  void read_all() {
    const Json* rows = s_.family->json.find("values");
    for (const Json::Member& m : rows->object()) read_line(m.key, m.value);
    values_.set("pattern", pattern());
  }

  // A part of the recipe with its variables filled in; nothing where an absent value stood.
  std::optional<Json> fill(const Json& t) const {
    if (t.is_string()) return word(t);
    if (t.is_array()) {
      Json::Array out;
      for (const Json& e : t.array())
        if (auto v = fill(e)) out.push_back(std::move(*v));
      return out;
    }
    if (!t.is_object()) return t;
    if (const Json* condition = t.find("if")) {
      const auto v = fill(*condition);
      const bool yes = v && !is_no(*v);
      const Json* chosen = t.find(yes ? "then" : "else");
      return chosen ? fill(*chosen) : std::nullopt;
    }
    Json out = Json::Object{};
    for (const Json::Member& m : t.object()) {
      if (m.key == "kinds") out.set(m.key, kinds(m.value));
      else if (auto v = fill(m.value)) out.set(m.key, std::move(*v));
    }
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(std::string_view key, const Parts&... parts) const {
    fail(s_.where, ": ", key.starts_with('.') ? s_.arch : "", key, ": ", parts...);
  }

  // Only the kinds the pattern uses; "like": a copy of another kind, changed.
  Json kinds(const Json& all) const {
    const std::string& letters = values_.find("pattern")->string();
    Json out = Json::Object{};
    for (const Json::Member& m : all.object()) {
      if (letters.find(m.key) == std::string::npos) continue;
      const Json* like = m.value.find("like");
      Json layer = *fill(like ? *all.find(like->string()) : m.value);
      if (like) {
        Json parts = Json::Array{};
        Json::Array changed;
        for (const Json& part : layer.find("parts")->array()) {
          Json::Member one = part.object()[0];
          if (const Json* over = m.value.find(one.key)) {
            const Json filled = *fill(*over);
            for (const Json::Member& x : filled.object()) one.value.set(x.key, x.value);
          }
          Json p = Json::Object{};
          p.set(one.key, one.value);
          changed.push_back(std::move(p));
        }
        layer.set("parts", std::move(changed));
      }
      out.set(m.key, std::move(layer));
    }
    return out;
  }

  Dim rows_of(std::string_view ours) const {
    if (s_.weights)
      for (const WeightShape& w : *s_.weights)
        if (w.name == ours) return w.rows;
    const TensorView* t = s_.tensors ? s_.tensor(ours) : nullptr;
    if (!t) {
      const auto names = s_.family->tensor_names(s_.form, ours);
      fail(s_.where, ": tensor '", names.empty() ? std::string(ours) : names[0], "' is missing");
    }
    if (t->shape().size() != 2)
      fail(s_.where, ": tensor '", t->name(), "' ", t->shape_text(), ": a table of vectors has two axes");
    return t->shape()[0];
  }

  std::optional<Json> variable(std::string_view name) const {
    const std::size_t dot = name.find('.');
    if (const Json* row = s_.family->json.find("values")->find(name.substr(0, dot)))
      read_line(std::string(name.substr(0, dot)), *row);
    const Json* v = values_.find(name.substr(0, dot));
    if (v && dot != std::string_view::npos) v = v->find(name.substr(dot + 1));
    if (v) return *v;
    if (const Json* let = s_.family->json.find("let"))
      if (const Json* t = let->find(name)) return fill(*t);
    return std::nullopt;
  }

  // "$x", "$x^-0.5", "$x*y^-0.5", "$x/y", "$x-y", "$x+y", "$x=46"; "?weight" and "!weight": a tensor is there
  // or not; "#rows weight".
  std::optional<Json> word(const Json& t) const {
    const std::string_view w = t.string();
    if (w.starts_with('?')) return s_.has(w.substr(1));
    if (w.starts_with('!')) return !s_.has(w.substr(1));
    if (w.starts_with("#rows")) return rows_of(w.size() > 6 ? w.substr(6) : "embed.tokens");
    if (!w.starts_with('$')) return t;
    if (w.find('*') != std::string_view::npos) {
      double product = 1;
      for (const Factor& f : factors_of(w.substr(1))) {
        const auto x = f.name.empty() ? Json(f.power) : variable(f.name);
        if (!x) return std::nullopt;
        product *= f.name.empty() ? f.power : power(f.name, x->number(), f.power);
      }
      return Json(product);
    }
    const std::size_t op = w.find_first_of("^/=-+");
    auto left = variable(w.substr(1, op == std::string_view::npos ? op : op - 1));
    if (op == std::string_view::npos || !left) return left;
    const std::string right(w.substr(op + 1));
    const double a = left->number(),
                 b = is_number(right) ? std::stod(right) : variable(right).value_or(Json(0)).number();
    if (w[op] == '=') return a == b;
    if (w[op] == '-') return a - b;
    if (w[op] == '+') return a + b;
    if (w[op] == '/') return b == 0 ? 0 : std::floor(a / b);
    return power(w.substr(1, op - 1), a, b);
  }

  double power(std::string_view name, double a, double b) const {
    if (b == 1) return a;
    if (!(a > 0)) fail(s_.where, ": ", name, " is ", a, "; its power is needed, so it must be above 0");
    return std::pow(a, b);
  }

  const Json* lookup(const Json& row, std::string& key) const {
    const Json* keys = row.find(s_.form == Form::gguf ? "gguf" : "config");
    if (!keys) return nullptr;
    if (keys->is_string()) return s_.find(key = keys->string());
    for (const Json& k : keys->array())
      if (const Json* j = s_.find(k.string())) {
        key = k.string();
        return j;
      }
    key = keys->array()[0].string();
    return nullptr;
  }

  // A line may ask for one that stands below it.
  void read_line(const std::string& name, const Json& row) const {
    if (row.is_null() || !begun_.insert(name).second) return;
    values_.set(name, read(name, row));
  }

  Json read(const std::string& name, const Json& row) const {
    const Json* type = row.find("type");
    const std::string_view kind = type ? std::string_view(type->string()) : "integer";
    if (kind == "rope") return rope_from_source(s_, row, integer("head_dim"), integer("context"));
    std::string key;
    const Json* j = lookup(row, key);
    if (const Json* entry = row.find("entry"); entry && j && j->is_array()) {  // [height, width]
      if (j->array().size() != 2) bad(key, "wants a number, or a height and a width, has ", j->dump(0));
      j = &j->array()[static_cast<std::size_t>(entry->integer())];
    }
    Json value;
    if (j && kind == "integer" && j->is_integer()) {
      const auto [plus, over] = shift_of(row, s_.form);
      value = j->integer() / over + plus;
    } else if (j && kind == "list") {
      return list(key, *j);
    } else if (j) {
      value = *j;
      if (row.find("layers_without") && value.is_array()) value = one_of(key, value);
      if (value.is_array() && s_.form == Form::folder && !row.find("per_layer"))
        bad(key, "wants a whole number, has ", value.type_name());
    } else {
      const Json* fallback = row.find(s_.form == Form::gguf ? "gguf_or" : "config_or");
      if (!fallback) fallback = row.find("or");
      if (!fallback) {
        if (key.empty()) fail(s_.where, ": family ", s_.family->name, " gives no ", name, " for this form");
        bad(key, "is missing; a ", s_.family->name, " model needs it");
      }
      const auto filled = fill(*fallback);
      if (!filled || filled->is_null()) return {};
      value = *filled;
      if (kind == "list") return value;
      key = name;
    }
    return checked(kind, key, value);
  }

  // Whole numbers; zeros behind them mean nothing.
  Json list(const std::string& key, const Json& v) const {
    if (!v.is_array()) bad(key, "wants a list of whole numbers, has ", v.type_name());
    std::size_t last = 0;
    for (std::size_t i = 0; i < v.array().size(); ++i) {
      const Json& e = v.array()[i];
      if (!e.is_integer() || e.integer() < 0 || e.integer() > (Dim{1} << 31))
        bad(key, "wants whole numbers, has ", e.dump(0));
      if (e.integer() != 0) last = i + 1;
    }
    Json::Array out;
    for (std::size_t i = 0; i < last; ++i) out.push_back(v.array()[i]);
    return out;
  }
  // A number for every layer, 0 for those that have no such thing.
  Json one_of(const std::string& key, const Json& v) const {
    Json::Array some;
    for (const Json& e : v.array())
      if (!(e == Json(0))) some.push_back(e);
    if (some.empty()) bad(key, "is 0 in every layer");
    return some;
  }

  Json checked(std::string_view kind, const std::string& key, const Json& v) const {
    if (kind == "integer") {
      // Per-layer lists exist; only equal entries make one model of ours.
      if (v.is_array()) {
        for (const Json& e : v.array())
          if (!(e == v.array()[0])) bad(key, "differs from layer to layer; such models cannot be read yet");
        if (v.array().empty()) bad(key, "is an empty list");
        return checked(kind, key, v.array()[0]);
      }
      if (!v.is_number()) bad(key, "wants a whole number, has ", v.type_name());
      if (!v.is_integer()) bad(key, "wants a whole number, has ", shortest(v.number()));
      if (v.integer() < 0) bad(key, "must not be negative, is ", v.integer());
      if (v.integer() > (Dim{1} << 31)) bad(key, v.integer(), " is larger than any model's");
      return v.integer();
    }
    if (kind == "number" || kind == "float") {
      if (!v.is_number()) bad(key, "wants a number, has ", v.type_name());
      if (!std::isfinite(v.number())) bad(key, "must be a finite number");
      return v;
    }
    if (kind == "boolean") {
      if (!v.is_bool()) bad(key, "wants true or false, has ", v.type_name());
      return v;
    }
    if (kind == "act") {
      if (!v.is_string()) bad(key, "wants the name of an activation, has ", v.type_name());
      const auto ours = act_from_words(v.string());
      if (!ours) {
        std::vector<std::string> known;
        for (const auto& [theirs, unused] : kActs) known.emplace_back(theirs);
        bad(key, "unknown activation ", json_quote(v.string()), "; ", name_hint(v.string(), known));
      }
      return *ours;
    }
    if (kind == "feed") {  // T5: "relu", "gated-gelu"; a GGUF file only shows whether there is a gate
      Json out = Json::Object{};
      const bool gated = v.is_bool() ? v.boolean() : v.is_string() && v.string().starts_with("gated-");
      if (!v.is_bool() && !v.is_string()) bad(key, "wants the name of an activation, has ", v.type_name());
      std::string act = v.is_bool() ? (gated ? "gelu_new" : "relu") : v.string().substr(gated ? 6 : 0);
      if (gated && act == "gelu") act = "gelu_new";
      const auto ours = act_from_words(act);
      if (!ours)
        bad(key, "unknown activation ", json_quote(act),
            "; known: relu, gated-gelu, gated-silu and other activations, plain or gated-");
      out.set("kind", gated ? "glu" : "mlp");
      out.set("act", *ours);
      return out;
    }
    if (!v.is_string()) bad(key, "wants a string, has ", v.type_name());
    return v;
  }

  Dim integer(std::string_view name) const {
    const Json* v = values_.find(name);
    if (v && v->integer() > 0) return v->integer();
    if (name != "head_dim") return 0;
    const Dim width = integer("width"), heads = integer("heads");
    return heads > 0 ? width / heads : 0;
  }

  // The letters of the layers' kinds, as short as they repeat.
  Json pattern() const {
    const Json* spec = s_.family->json.find("pattern");
    const Dim layers = integer("layers");
    if (!spec || spec->is_null() || layers < 1 || layers > 10000) return "L";
    std::string out;
    if (const Json* axes = spec->find("axes")) {
      std::vector<std::string> letters;
      for (const Json& axis : axes->array()) letters.push_back(axis_letters(axis, layers));
      for (Dim i = 0; i < layers; ++i) {
        std::string key;
        for (const std::string& l : letters) key += l[static_cast<std::size_t>(i)];
        const Json* kind = spec->find("kinds")->find(key);
        if (!kind)
          fail(s_.where, ": layer ", i, " is of kind ", key, ", which no ", s_.family->name, " model has");
        out += kind->string();
      }
    } else {
      out = axis_letters(*spec, layers);
    }
    for (std::size_t n = 1; n < out.size(); ++n) {
      bool repeats = true;
      for (std::size_t i = n; i < out.size() && repeats; ++i) repeats = out[i] == out[i - n];
      if (repeats) return out.substr(0, n);
    }
    return out;
  }

  // One letter for each layer, by one of its properties.
  std::string axis_letters(const Json& axis, Dim layers) const {
    const char full = axis.find("full")->string()[0], local = axis.find("local")->string()[0];
    auto on = [&](const char* what) {
      const Json* name = axis.find(what);
      return name && name->is_string() ? values_.find(name->string()) : nullptr;
    };
    const Json* otherwise = axis.find("otherwise");  // where the condition does not hold
    if (const Json* may = on("only_if"); axis.find("only_if") && (!may || is_no(*may)))
      return std::string(static_cast<std::size_t>(layers), otherwise ? otherwise->string()[0] : full);
    std::string out(static_cast<std::size_t>(layers), full), key;
    const Json* list = nullptr;
    for (const std::string& k : axis_list_keys(axis, s_.form))
      if (!list) key = k, list = s_.find(k);
    const Json *period = on("period"), *from = on("from");
    Dim every = period ? period->integer() : 0;
    if (list && list->is_integer()) every = list->integer(), list = nullptr;  // every n-th, said by its key
    if (list) return listed_letters(axis, key, *list, layers);
    const Json* phase = axis.find("phase");
    for (Dim i = 0; i < layers; ++i) {
      char& letter = out[static_cast<std::size_t>(i)];
      if (from) letter = i >= from->integer() ? local : full;
      else if (every > 0 || period)
        letter = every > 0 && i % every == (phase ? phase->integer() : every - 1) ? full : local;
    }
    if (const Json* start = on("start"))
      for (Dim i = 0; i < std::min(layers, start->integer()); ++i) out[static_cast<std::size_t>(i)] = local;
    if (const Json* end = on("end"); end && end->number() >= 0)
      for (Dim i = layers - 1; i > end->number(); --i) out[static_cast<std::size_t>(i)] = local;
    if (const Json* members = axis.find("members"))
      if (const Json* those = s_.form == Form::folder ? s_.find(members->find("key")->string()) : nullptr) {
        const std::string& name = members->find("key")->string();
        if (!those->is_array()) bad(name, "wants a list of layer numbers, has ", those->type_name());
        if (const Json* others = members->find("else")) out.assign(out.size(), others->string()[0]);
        for (const Json& n : those->array()) {
          if (!n.is_integer() || n.integer() < 0 || n.integer() >= layers)
            bad(name, n.dump(0), " is no layer of ", layers);
          out[static_cast<std::size_t>(n.integer())] = members->find("is")->string()[0];
        }
      }
    return out;
  }

  static bool is_no(const Json& v) { return v == Json(false) || v == Json(0); }

  std::string listed_letters(const Json& axis, const std::string& key, const Json& list, Dim layers) const {
    std::string out;
    const Json* types = axis.find("types");
    const auto add = [&](const std::string& word) {
      const Json* letter = types->find(word);
      if (!letter) letter = types->find("*");
      if (!letter) {
        std::vector<std::string> known;
        for (const Json::Member& m : types->object()) known.push_back(m.key);
        bad(key, "unknown kind of layer ", json_quote(word), "; known: ", join(known));
      }
      out += letter->string();
    };
    if (list.is_string() && types->find(std::string(list.string()).substr(0, 1))) {  // "LLLG", repeated
      for (Dim i = 0; i < layers; ++i)
        add(std::string(1, list.string()[static_cast<std::size_t>(i) % list.string().size()]));
      return out;
    }
    if (!list.is_array()) bad(key, "wants a list with one entry per layer, has ", list.type_name());
    if (static_cast<Dim>(list.array().size()) != layers)
      bad(key, "has ", list.array().size(), " entries for ", layers, " layers");
    for (const Json& t : list.array()) {
      if (!t.is_string() && !t.is_bool() && !t.is_integer())
        bad(key, "wants words, true and false, or numbers, has ", t.type_name());
      add(t.is_string() ? std::string(t.string()) : std::string(t.dump(0)));
    }
    return out;
  }

  const Source& s_;
  FamilyValues& values_;
  mutable std::set<std::string> begun_;
};

void check_words(const Source& s) {
  if (s.form != Form::folder) return;
  if (const Json* needs = s.family->json.find("needs"); needs && needs->is_array())
    for (const Json& key : needs->array())
      if (!s.find(key.string()))
        fail(s.where, ": ", key.string(), ": is missing; a ", s.family->name, " model needs it");
  const Json* require = s.family->json.find("require");
  if (!require) return;
  for (const Json::Member& m : require->object()) {
    const Json* j = s.find(m.key);
    if (!j) continue;
    bool fine = false;
    for (const Json& v : m.value.array()) fine = fine || v == *j;
    if (!fine)
      fail(s.where, ": ", m.key, ": ", j->dump(0), " is a variant of ", s.family->name,
           " that is not built; ", m.value.array()[0].dump(0), " is");
  }
}

// ----------------------------------------------------------------------------------- what only tensors tell
struct TensorFacts {
  const Source& s;
  Recipe& r;

  bool any(const std::string& stack, const StackRecipe& st, const LayerRecipe& kind,
           const std::string& rest) const {
    for (Dim i = 0; i < st.layers; ++i)
      if (&st.layer(i) == &kind && s.tensor(concat(stack, ".", i, ".", rest))) return true;
    return false;
  }
  const TensorView* first(const std::string& stack, const StackRecipe& st, const LayerRecipe& kind,
                          const std::string& rest) const {
    for (Dim i = 0; i < st.layers; ++i)
      if (&st.layer(i) == &kind)
        if (const TensorView* t = s.tensor(concat(stack, ".", i, ".", rest))) return t;
    return nullptr;
  }

  void stack(std::optional<StackRecipe>& st, const std::string& name) const {
    if (!st) return;
    for (auto& [letter, layer] : st->kinds)
      for (PartRecipe& p : layer.parts) {
        const std::string part(part_name(p).word);
        auto has = [&, &kind = layer](const char* what) { return any(name, *st, kind, part + what); };
        if (layer.norm_in) layer.norm_in->bias = any(name, *st, layer, "norm_in.bias");
        for (auto* n : {&p.norm_in, &p.norm_out, &p.norm_sum})
          if (*n)
            (*n)->bias = has(n == &p.norm_in    ? ".norm_in.bias"
                             : n == &p.norm_out ? ".norm_out.bias"
                                                : ".norm_sum.bias");
        if (FfnRecipe* f = p.ffn()) f->bias = has(".up.bias") || has(".down.bias");
        if (MoeRecipe* m = p.moe()) {
          m->bias = has(".experts.0.up.bias") || has(".experts.0.down.bias");
          m->router.bias = has(".router.bias");
          m->router.choice_bias = has(".router.choice");
        }
        if (ConvRecipe* c = p.conv()) c->bias = has(".b.bias");
        AttnRecipe* a = p.attention();
        if (!a) continue;
        a->bias = {has(".q.bias"), has(".k.bias"), has(".v.bias"), has(".o.bias")};
        if (a->latent) a->bias.q = a->bias.q || has(".q_a.bias"), a->bias.k = has(".kv_a.bias");
        if (!a->qk_norm) continue;
        a->qk_norm->norm.bias = has(".q_norm.bias");
        const TensorView* t = first(name, *st, layer, part + ".q_norm.weight");
        const Dim D = a->head_dim > 0 ? a->head_dim : a->heads > 0 ? r.width / a->heads : 0;
        if (!t) continue;
        if (t->elements() == D && D != D * a->heads) a->qk_norm->span = QkNormRecipe::Span::head;
        else if (t->elements() == D * a->heads && a->qk_norm->span == QkNormRecipe::Span::head &&
                 a->heads > 1)
          a->qk_norm->weights = QkNormRecipe::Weights::per_head;
      }
    if (st->final_norm) st->final_norm->bias = s.tensor(name + ".norm.bias") != nullptr;
  }

  void head() const {
    if (r.embed.norm) r.embed.norm->bias = s.tensor("embed.norm.bias") != nullptr;
    if (r.embed.patches) r.embed.patches->bias = s.tensor("embed.patches.bias") != nullptr;
    if (r.head.pool_norm) r.head.pool_norm->bias = s.tensor("head.pool_norm.bias") != nullptr;
    if (r.embed.width > 0 && r.embed.width != r.width)
      r.embed.project_bias = s.tensor("embed.project.bias") != nullptr;
    if (r.head.transform) {
      const bool classes = r.head.pools();
      r.head.transform->bias = s.tensor(classes ? "head.pooler.bias" : "head.transform.bias") != nullptr;
      if (r.head.transform->norm) r.head.transform->norm->bias = s.tensor("head.norm.bias") != nullptr;
    }
    if (r.head.kind == HeadRecipe::Kind::none) return;
    if (r.head.kind == HeadRecipe::Kind::classes) {
      r.head.bias = s.tensor("head.classes.bias") != nullptr;
      return;
    }
    if (r.head.kind == HeadRecipe::Kind::vector) {
      r.head.bias = s.tensor("head.vector.bias") != nullptr;
      return;
    }
    r.head.bias = s.tensor("head.bias") != nullptr;
    const TensorView *out = s.tensor("head.weight"), *in = s.tensor("embed.tokens");
    if (!out) return;  // tied as the file says; where it says untied, the missing tensor is named later
    r.head.tied = in && same_tensor(*in, *out);
  }
};

void check_agreement(const Source& s, const Recipe& r) {
  const Json* agree = s.family->json.find("agree");
  if (!agree || !agree->is_object() || s.form != Form::folder) return;
  for (const Json::Member& m : agree->object()) {
    const Json* said = s.find(m.key);
    if (!said) continue;
    if (!said->is_bool()) fail(s.where, ": ", m.key, ": wants true or false, has ", said->type_name());
    const std::string pattern = (m.value.is_array() ? m.value.array()[0] : m.value).string();
    const auto in_layer = [&](Dim i) {
      std::string ours = pattern;
      return ours.replace(ours.find("{i}"), 3, std::to_string(i));
    };
    bool there = false;  // in some layer: kinds of layers differ
    for (Dim i = 0; i < (r.decoder ? *r.decoder : *r.encoder).layers && !there; ++i)
      there = s.tensor(in_layer(i)) != nullptr;
    const auto names = s.family->tensor_names(s.form, in_layer(0));
    if (there != said->boolean())
      fail(s.where, ": ", m.key, " is ", said->boolean() ? "true" : "false", ", but tensor '", names[0],
           "' is ", there ? "there" : "missing", "; config and tensors must agree");
  }
}

// "llama:1:230: decoder.layers: …": line and column of a text nobody wrote are left out.
std::string without_place(const std::string& message) {
  std::size_t i = message.find(":1:");
  if (i == std::string::npos) return message;
  std::size_t end = i + 3;
  while (end < message.size() && message[end] >= '0' && message[end] <= '9') ++end;
  return end > i + 3 && end < message.size() && message[end] == ':'
             ? message.substr(0, i) + message.substr(end)
             : message;
}

}  // namespace

std::optional<std::string> act_from_words(std::string_view theirs) {
  for (const auto& [a, b] : kActs)
    if (theirs == a) return b;
  for (const auto& [a, b] : kActs)
    if (theirs == b) return b;
  return std::nullopt;
}
std::string act_to_words(std::string_view ours) {
  if (ours == "gelu_tanh") return "gelu_pytorch_tanh";
  return std::string(ours);
}

Translation translate_keys(const Source& source) {
  Translation out;
  check_words(source);
  Interpreter in(source, out.values);
  in.read_all();
  const Json recipe = *in.fill(*source.family->json.find("recipe"));
  try {
    out.recipe = parse_recipe(recipe.dump(0), source.family->name);
    out.recipe.name = source.family->name;
    resolve(out.recipe);  // ranges and rules first: what follows may trust the sizes
  } catch (const Error& e) {
    fail(source.where, ": ", without_place(e.what()));
  }
  return out;
}

Translation translate(const Source& source) {
  Translation out = translate_keys(source);
  try {
    const TensorFacts tensors{source, out.recipe};
    tensors.stack(out.recipe.encoder, "encoder");
    tensors.stack(out.recipe.decoder, "decoder");
    tensors.head();
    out.recipe = resolve(out.recipe);
  } catch (const Error& e) {
    fail(source.where, ": ", without_place(e.what()));
  }
  check_agreement(source, out.recipe);
  return out;
}

}  // namespace rapt
