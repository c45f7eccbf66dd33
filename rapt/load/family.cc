// SPDX-License-Identifier: Apache-2.0
// The table of families, and how a weight of ours is called in their files.
#include "rapt/load/family.h"

#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/recipe/presets.h"

namespace rapt {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias";

void remove(Json& object, std::string_view key) {
  Json::Object rest;
  for (const Json::Member& m : object.object())
    if (m.key != key) rest.push_back(m);
  object = std::move(rest);
}

// Objects merge, null removes, everything else replaces. The lines of "values" are replaced whole, and so is
// "=key".
void merge(Json& base, const Json& over, bool lines) {
  for (const Json::Member& m : over.object()) {
    const Json* old = base.find(m.key);
    if (m.key.starts_with('=')) {
      base.set(m.key.substr(1), m.value);
    } else if (m.value.is_null()) {
      remove(base, m.key);
    } else if (!lines && old && old->is_object() && m.value.is_object()) {
      Json both = *old;
      merge(both, m.value, m.key == "values");
      base.set(m.key, std::move(both));
    } else {
      base.set(m.key, m.value);
    }
  }
}

const PresetFile& family_file(std::string_view name) {
  for (const PresetFile& f : family_files())
    if (f.name == name) return f;
  fail("family ", name, ": no such file in load/families");
}

Json load(std::string_view name, int depth = 0) {
  const PresetFile& file = family_file(name);
  Json own = parse_json(file.json, concat("family ", name));
  const Json* base = own.find("extends");
  if (!base || depth > 8) return own;
  Json out = load(base->string(), depth + 1);
  merge(out, own, false);
  return out;
}

// '*' stands for any text.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') star = p++, from = t;
    else if (p < pattern.size() && pattern[p] == text[t]) ++p, ++t;
    else if (star != std::string_view::npos) p = star + 1, t = ++from;
    else return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// "decoder.3.self.q.weight" -> stack "decoder", layer "3", rest "self.q.weight"; of others only rest.
struct OurName {
  std::string_view stack, layer, rest;
};
OurName split(std::string_view ours) {
  for (const std::string_view stack : {"encoder", "decoder"}) {
    if (!ours.starts_with(stack) || ours.size() < stack.size() + 2) continue;
    const std::string_view after = ours.substr(stack.size() + 1);
    const std::size_t digits = std::min(after.find_first_not_of("0123456789"), after.size());
    if (digits > 0 && digits < after.size() && after[digits] == '.')
      return {stack, after.substr(0, digits), after.substr(digits + 1)};
  }
  return {"", "", ours};
}

std::string_view without_suffix(std::string_view name) {
  if (name.ends_with(kWeight)) return name.substr(0, name.size() - kWeight.size());
  if (name.ends_with(kBias)) return name.substr(0, name.size() - kBias.size());
  return name;
}

std::string with_number(std::string text, std::string_view mark, std::string_view number) {
  if (const std::size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), number);
  return text;
}

// "moe.experts.3.gate.weight" -> "moe.experts.{e}.gate.weight" and "3".
std::pair<std::string, std::string> without_expert(std::string_view rest) {
  const auto [from, to] = expert_number(rest);
  if (from == std::string_view::npos) return {std::string(rest), ""};
  return {concat(rest.substr(0, from), "{e}", rest.substr(to)), std::string(rest.substr(from, to - from))};
}

// An entry is [in a folder, in a GGUF file], each a name or a list of names; a bare string is the folder's.
std::vector<std::string> entry_names(const Json& entry, Form form) {
  const Json* side = &entry;
  if (entry.is_array()) {
    const std::size_t i = form == Form::gguf ? 1 : 0;
    if (i >= entry.array().size()) return {};
    side = &entry.array()[i];
  } else if (form == Form::gguf) {
    return {};
  }
  std::vector<std::string> out;
  if (side->is_string()) out.push_back(side->string());
  if (side->is_array())
    for (const Json& name : side->array()) out.push_back(name.string());
  return out;
}

std::vector<std::string> strings(const Json* list) {
  std::vector<std::string> out;
  if (list && list->is_array())
    for (const Json& s : list->array()) out.push_back(s.string());
  return out;
}

}  // namespace

std::vector<std::string> Family::tensor_names(Form form, std::string_view ours) const {
  if (own) return {std::string(ours)};
  const OurName n = split(ours);
  const Json* group = json.find("tensors");
  std::string at;
  if (!n.stack.empty()) {
    const Json* layers = json.find("layers");
    group = layers ? layers->find(n.stack) : nullptr;
    if (!group) return {};
    const std::vector<std::string> places = entry_names(*group->find("at"), form);
    if (places.empty()) return {};
    at = with_number(places[0], "{i}", n.layer);
  }
  const auto [rest, expert] = without_expert(n.rest);
  const Json* entry = group ? group->find(rest) : nullptr;
  if (!entry && group) entry = group->find(without_suffix(rest));
  if (!entry || entry->is_null()) return {};
  const bool bias = ours.ends_with(kBias);
  std::vector<std::string> out;
  for (const std::string& theirs : entry_names(*entry, form)) {
    // "name_*": weight and bias are told apart by the end of the word ("gate_up_proj", "gate_up_proj_bias")
    std::string full = theirs.starts_with('=') ? with_number(theirs.substr(1), "{i}", n.layer)
                       : theirs.ends_with('*')
                           ? concat(at, theirs.substr(0, theirs.size() - 1), bias ? "_bias" : "")
                           : concat(at, theirs, bias ? kBias : kWeight);
    out.push_back(with_number(std::move(full), "{e}", expert));
  }
  if (form == Form::gguf) return out;
  const Json* old = json.find("old_norm_names");  // gamma and beta of TensorFlow days
  if (old && old->is_bool() && old->boolean() && n.rest.find("norm") != std::string_view::npos)
    for (std::size_t i = 0, count = out.size(); i < count; ++i)
      out.push_back(std::string(without_suffix(out[i])) + (bias ? ".beta" : ".gamma"));
  if (const Json* prefix = json.find("prefix"); prefix && prefix->is_string())
    for (std::size_t i = 0, count = out.size(); i < count; ++i)
      if (out[i].starts_with(prefix->string())) out.push_back(out[i].substr(prefix->string().size()));
  for (const std::string& more : strings(json.find("more_prefixes")))  // in front of every name
    for (std::size_t i = 0, count = out.size(); i < count; ++i) out.push_back(more + out[i]);
  return out;
}

bool Family::listed(std::string_view list, std::string_view ours) const {
  const std::string all = without_expert(split(ours).rest).first;
  const std::string_view stem = without_suffix(all);
  for (const std::string& s : strings(json.find(list)))
    if (s == stem) return true;
  return false;
}
std::string Family::grouped(Form form, std::string_view ours) const {
  const Json* words = json.find(form == Form::folder ? "grouped" : "gguf_grouped");
  if (!words || words->is_null()) return "";
  const Json* word = words->find(without_suffix(without_expert(split(ours).rest).first));
  return word ? word->string() : "";
}
Dim Family::first_row(Form form, std::string_view ours) const {
  const Json* rows = form == Form::folder ? json.find("first_row") : nullptr;
  const Json* n = rows ? rows->find(ours) : nullptr;
  return n ? n->integer() : 0;
}
bool Family::transposed(Form form, std::string_view ours) const {
  return form == Form::folder && ours.ends_with(kWeight) && listed("transposed", ours);
}
bool Family::permuted(Form form, std::string_view ours) const {
  return form == Form::gguf && listed("permuted", ours);
}
bool Family::joined(std::string_view tensor) const {
  for (const std::string& part : strings(json.find("joined")))
    if (tensor.find(part) != std::string_view::npos) return true;
  return false;
}
bool Family::turned(std::string_view ours) const { return listed("turned", ours); }
bool Family::ignored(Form form, std::string_view tensor) const {
  const Json* ignore = json.find("ignore");
  for (const std::string& pattern :
       strings(ignore ? ignore->find(form == Form::gguf ? "gguf" : "folder") : nullptr))
    if (matches(pattern, tensor)) return true;
  return false;
}
bool Family::beyond(Form form, std::string_view tensor, Dim layers) const {
  const Json *extra = json.find("extra_layers"), *all = json.find("layers");
  if (!extra || !extra->boolean()) return false;
  for (const Json::Member& stack : all->object())
    for (const std::string& at : entry_names(*stack.value.find("at"), form)) {
      const std::string_view before = std::string_view(at).substr(0, at.find("{i}"));
      if (!tensor.starts_with(before)) continue;
      Dim n = 0;
      const std::string_view rest = tensor.substr(before.size());
      for (std::size_t i = 0; i < std::min<std::size_t>(rest.size(), 6) && rest[i] >= '0' && rest[i] <= '9';
           ++i)
        n = 10 * n + (rest[i] - '0');
      if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9' && n >= layers) return true;
    }
  return false;
}
bool Family::middle_one(std::string_view ours) const { return listed("middle_one", ours); }
bool Family::negated_exp(Form form, std::string_view ours) const {
  return form == Form::gguf && listed("gguf_negated_exp", ours);
}
bool Family::plain_gain(std::string_view ours) const { return listed("plain_gain", ours); }
bool Family::heads_in_turns(Form form) const { return form == Form::gguf && json.find("gguf_turns"); }
bool Family::leading_one(std::string_view ours) const { return listed("leading_one", ours); }
bool Family::flat(std::string_view ours) const { return listed("flat", ours); }
bool Family::conv(std::string_view ours) const { return ours.ends_with(kWeight) && listed("conv", ours); }
bool Family::offset_gain(Form form) const { return form == Form::folder && json.find("gain"); }
std::string Family::gguf_arch() const {
  const Json* arch = json.find("gguf");
  return arch && arch->is_string() ? arch->string() : "";
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> out;
    for (const PresetFile& f : family_files()) out.push_back({std::string(f.name), load(f.name), false});
    return out;
  }();
  return all;
}

const Family& own_family() {
  static const Family own{
      "rapt",
      parse_json(R"({"model_type": ["rapt"], "architectures": ["RaptModel"], "gguf": "rapt"})",
                 "family rapt"),
      true};
  return own;
}

const Family& family_of_config(const Json& config, const std::string& where, Tower tower) {
  const Json* type = config.find("model_type");
  const Json* classes = config.find("architectures");
  if (type && !type->is_null() && !type->is_string())
    fail(where, ": model_type: wants a string, has ", type->type_name());
  if (classes && !classes->is_null() && !classes->is_array())
    fail(where, ": architectures: wants a list of names, has ", classes->type_name());
  std::vector<std::string> known;
  if (type && type->is_string() && type->string() == own_family().name) return own_family();
  // One model_type, several families: keys tell them apart; the family without such keys is the usual one.
  const auto answers = [&](const Family& f) {
    const std::vector<std::string> names = strings(f.json.find("model_type"));
    return type && type->is_string() && std::find(names.begin(), names.end(), type->string()) != names.end();
  };
  const char* word = tower == Tower::vision ? "vision" : "text";
  const auto meant = [&](const Family& f) {
    const Json* its = f.json.find("tower");
    return its && its->string() == word;
  };
  // Where a family of the tower that is wanted answers, the others are not meant.
  const bool towers = std::any_of(families().begin(), families().end(),
                                  [&](const Family& f) { return answers(f) && meant(f); });
  const auto fits = [&](const Family& f) {
    if (towers && !meant(f)) return false;
    const Json* when = f.json.find("when");
    if (!when || when->is_null()) return true;
    for (const Json::Member& m : when->object()) {
      const Json* said = config.find(m.key);
      if (!(said ? *said == m.value : m.value.is_null())) return false;
    }
    return true;
  };
  const Family* usual = nullptr;
  for (const Family& f : families())
    for (const std::string& name : strings(f.json.find("model_type"))) {
      if (type && type->is_string() && type->string() == name && fits(f)) {
        if (f.json.find("when") && !f.json.find("when")->is_null()) return f;
        usual = &f;
      }
      known.push_back(name);
    }
  if (usual) return *usual;
  if (type && type->is_string()) {
    if (type->string() == "gemma3" && config.find("text_config"))
      fail(where,
           ": model_type \"gemma3\" with a text_config is the model that also reads pictures; only text "
           "models are read: take the text-only "
           "checkpoint or a GGUF file");
    fail(where, ": model_type ", json_quote(type->string()), " is no family that can be read; ",
         name_hint(type->string(), known));
  }
  std::vector<std::string> classes_known;
  if (classes && classes->is_array())
    for (const Json& c : classes->array())
      for (const Family& f : families())
        for (const std::string& name : strings(f.json.find("architectures")))
          if (c.is_string() && c.string() == name && fits(f)) return f;
  fail(where, ": has no model_type, and its architectures name no known family; known: ", join(known));
}

const Family& family_of_gguf(const Json& keys, const std::string& arch, const std::string& where) {
  std::vector<std::string> known;
  const Family* found = nullptr;
  for (const Family& f : families()) {
    if (f.gguf_arch().empty()) continue;
    if (const Json* reads = f.json.find("gguf_read"); reads && !reads->boolean()) continue;  // another's
    const Json* when = f.json.find("gguf_when");  // one architecture, two families: a key tells them apart
    if (!when) known.push_back(f.gguf_arch());
    if (f.gguf_arch() != arch) continue;
    const bool any = when && when->is_string();  // … by being there, or by not being some value
    const Json* value = when ? keys.find(arch + (any ? *when : *when->find("key")).string()) : nullptr;
    if (when && value && !(*value == (any ? Json(0) : *when->find("not")))) return f;
    if (!when) found = &f;
  }
  if (found) return *found;
  fail(where, ": general.architecture ", json_quote(arch), " is no family that can be read; ",
       name_hint(arch, known));
}

const TensorView* Source::tensor(std::string_view ours) const {
  for (const std::string& name : family->tensor_names(form, ours))
    if (const TensorView* t = tensors->find(of_head(name, 0))) return t;
  return nullptr;
}

bool Source::has(std::string_view ours) const {
  if (!weights) return tensor(ours) != nullptr;
  return std::any_of(weights->begin(), weights->end(), [&](const WeightShape& w) { return w.name == ours; });
}

const Json* Source::find(std::string_view key) const {
  const Json* at = nullptr;
  if (form == Form::gguf) {
    at = keys.find(key.starts_with('.') ? arch + std::string(key) : std::string(key));
  } else {
    const Json* root = family && !family->own ? family->json.find("root") : nullptr;
    const Json* inner = root && root->is_string() ? keys.find(root->string()) : nullptr;
    if (inner && inner->is_object() && inner->find(key.substr(0, std::min(key.find('.'), key.size()))))
      at = inner;  // the text model's part of a larger config
    else at = &keys;
    while (at && !key.empty()) {
      const std::size_t dot = std::min(key.find('.'), key.size());
      if (!at->is_object() && !at->is_null())
        fail(where, ": ", key, " is looked for in ", at->type_name(), "; an object holds it");
      at = at->find(key.substr(0, dot));
      key.remove_prefix(std::min(dot + 1, key.size()));
    }
  }
  return at && !at->is_null() ? at : nullptr;
}

const Json* FamilyValues::find(std::string_view name) const {
  for (const auto& [key, value] : values_)
    if (key == name) return value.is_null() ? nullptr : &value;
  return nullptr;
}
void FamilyValues::set(std::string name, Json value) {
  for (auto& [key, old] : values_)
    if (key == name) {
      old = std::move(value);
      return;
    }
  values_.emplace_back(std::move(name), std::move(value));
}

}  // namespace rapt
