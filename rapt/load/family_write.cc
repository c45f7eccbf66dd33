// SPDX-License-Identifier: Apache-2.0
// Walks a family's table of values and writes each under its key; RoPE and its scalings are cases apart.
#include "rapt/load/family_write.h"
#include "rapt/base/checked.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"

namespace rapt {
namespace {

constexpr std::string_view kFloat = "float:";  // marks a whole number that must be written with its point

std::vector<std::string> keys_of(const Json& row, const char* side) {
  std::vector<std::string> out;
  const Json* keys = row.find(side);
  if (keys && keys->is_string()) out.push_back(keys->string());
  if (keys && keys->is_array())
    for (const Json& k : keys->array()) out.push_back(k.string());
  return out;
}

bool is_rope(const Json& row) {
  const Json* type = row.find("type");
  return type && type->string() == "rope";
}

double number_in(const Json& j, std::string_view key, double otherwise) {
  const Json* x = j.find(key);
  return x ? x->number() : otherwise;
}

// {"theta": …, "scaling": {"yarn": {…}}} -> kind and what is inside.
std::pair<std::string, Json> scaling_of(const Json& rope) {
  const Json* s = rope.find("scaling");
  if (!s || !s->is_object() || s->object().empty()) return {"none", Json::Object{}};
  return {s->object()[0].key, s->object()[0].value};
}

const AttnRecipe& first_attention(const Recipe& r) {
  for (const auto& [letter, layer] : (r.decoder ? *r.decoder : *r.encoder).kinds)
    for (const PartRecipe& p : layer.parts)
      if (p.self()) return *p.self();
  fail("recipe ", r.name, " has no self-attention");
}

// A base model: nothing behind it, or only a pooler.
bool has_no_matrix(const HeadRecipe& h) {
  return h.kind == HeadRecipe::Kind::none || (h.kind == HeadRecipe::Kind::vector && h.width == 0);
}

// A value as the resolved recipe has it where 0 stood for "what follows from the others".
Json settled(const std::string& name, const Json& value, const Recipe& r) {
  // Of latent attention: the channels that turn, by which RoPE counts.
  if (name == "head_dim" && first_attention(r).head_dim > 0) return first_attention(r).rope_channels();
  if (name == "tied") return r.head.tied;
  if (name == "ffn_width" && value.is_integer() && value.integer() == 0) return 4 * r.width;
  return value;
}

std::vector<float> list_in(const Json& j, std::string_view key) {
  std::vector<float> out;
  if (const Json* list = j.find(key))
    for (const Json& x : list->array()) out.push_back(static_cast<float>(x.number()));
  return out;
}

void rope_keys(GgufKeys& out, std::vector<RopeFactors>& factors, const std::string& arch, const Json& row,
               const Json& rope, const AttnRecipe& a) {
  auto set = [&](const char* key, double x) {
    out.emplace_back(arch + key, GgufValue::f32(static_cast<float>(x)));
  };
  const double theta = number_in(rope, "theta", 10000);
  if (const Json* own = row.find("gguf_key")) return set(std::string(own->string()).c_str(), theta);
  set(".rope.freq_base", theta);
  const Dim turned = static_cast<Dim>(number_in(rope, "part", 1) * static_cast<double>(a.rope_channels()));
  out.emplace_back(arch + ".rope.dimension_count", GgufValue::u32(static_cast<std::uint32_t>(turned)));
  const auto [kind, in] = scaling_of(rope);
  const double factor = number_in(in, "factor", 1), original = number_in(in, "original", 0);
  auto word = [&](const char* w) { out.emplace_back(arch + ".rope.scaling.type", GgufValue::text(w)); };
  auto from = [&] {
    out.emplace_back(arch + ".rope.scaling.original_context_length",
                     GgufValue::u32(static_cast<std::uint32_t>(original)));
  };
  if (kind == "none") return;
  if (kind == "linear") {
    word("linear");
    set(".rope.scaling.factor", factor);
  } else if (kind == "yarn") {
    word("yarn");
    set(".rope.scaling.factor", factor);
    from();
    for (const auto& [ours, key] : {std::pair{"beta_fast", ".rope.scaling.yarn_beta_fast"},
                                    std::pair{"beta_slow", ".rope.scaling.yarn_beta_slow"}})
      if (const Json* x = in.find(ours)) set(key, x->number());
    if (const double own = number_in(in, "attention_factor", 0); own > 0)
      set(".rope.scaling.yarn_attn_factor", own / (factor > 1 ? 0.1 * std::log(factor) + 1 : 1));
    const double mscale = number_in(in, "mscale", 0), all = number_in(in, "mscale_all_dim", 0);
    if (!a.latent && (mscale > 0 || all > 0)) fail("yarn with mscale has no keys in a GGUF ", arch, " file");
    if (all > 0) set(".rope.scaling.yarn_log_multiplier", 0.1 * all);
    if (mscale != all) set(".rope.scaling.yarn_mscale", mscale);  // ours: llama.cpp takes them as equal
  } else if (kind == "llama3") {  // as llama.cpp's converter does: the scaling becomes a list of divisors
    const double low = number_in(in, "low_freq", 1), high = number_in(in, "high_freq", 4);
    RopeSpec plain{.theta = theta}, scaled = plain;
    scaled.scaling = RopeScaling::llama3;
    scaled.factor = factor;
    scaled.original = original;
    scaled.low_freq = low;
    scaled.high_freq = high;
    const auto before = rope_frequencies(plain, turned, 1).inverse,
               after = rope_frequencies(scaled, turned, 1).inverse;
    RopeFactors list{"rope_freqs.weight", {}};
    for (std::size_t i = 0; i < before.size(); ++i)
      list.values.push_back(static_cast<float>(before[i] / after[i]));
    factors.push_back(std::move(list));
  } else if (kind == "longrope") {
    const auto longs = list_in(in, "long_factor"), shorts = list_in(in, "short_factor");
    if (longs == shorts && number_in(in, "attention_factor", 0) == 1) {
      factors.push_back({"rope_freqs.weight", longs});
      return;
    }
    word("longrope");
    from();
    const double stretch = number_in(in, "max_context", original) / std::max(original, 1.0);
    double attn = number_in(in, "attention_factor", 0);
    if (!(attn > 0)) attn = stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(original)) : 1;
    set(".rope.scaling.attn_factor", attn);
    factors.push_back({"rope_factors_long.weight", longs});
    factors.push_back({"rope_factors_short.weight", shorts});
  } else {
    fail("RoPE scaling \"", kind, "\" has no place in a GGUF file; linear, yarn, llama3 and longrope have");
  }
}

void rope_config(Json& out, const Json& row, const Json& rope, Dim head_dim) {
  out.set(row.find("theta_key")->string(), rope.find("theta") ? *rope.find("theta") : Json(10000));
  const Json *part = rope.find("part"), *part_key = row.find("part_key"), *dim_key = row.find("dim_key");
  const double share = part ? part->number() : 1;
  if (dim_key) out.set(dim_key->string(), saturated<Dim>(share * static_cast<double>(head_dim)));
  else if (part || row.find("part")) out.set(part_key ? part_key->string() : "partial_rotary_factor", share);
  const Json* may = row.find("scaling");
  if (may && !may->boolean()) return;
  const auto [kind, in] = scaling_of(rope);
  if (kind == "none") {
    out.set("rope_scaling", Json());
    return;
  }
  Json s = Json::Object{};
  s.set("rope_type", kind);
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"factor", "factor"},
      {"original", "original_max_position_embeddings"},
      {"low_freq", "low_freq_factor"},
      {"high_freq", "high_freq_factor"},
      {"beta_fast", "beta_fast"},
      {"beta_slow", "beta_slow"},
      {"attention_factor", "attention_factor"},
      {"mscale", "mscale"},
      {"mscale_all_dim", "mscale_all_dim"},
      {"truncate", "truncate"},
      {"short_factor", "short_factor"},
      {"long_factor", "long_factor"}};
  for (const auto& [ours, theirs] : kNames)
    if (const Json* x = in.find(ours)) {
      const bool whole = std::string_view(ours) == "original";
      s.set(theirs, whole ? Json(saturated<Dim>(x->number())) : *x);
    }
  if (kind == "longrope" && in.find("original"))
    out.set("original_max_position_embeddings", saturated<Dim>(in.find("original")->number()));
  out.set("rope_scaling", std::move(s));
}

// "a.b": inside an object of that name.
void set_inside(Json& out, std::string_view key, Json value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return out.set(std::string(key), std::move(value));
  const Json* old = out.find(key.substr(0, dot));
  Json inner = old && old->is_object() ? *old : Json(Json::Object{});
  set_inside(inner, key.substr(dot + 1), std::move(value));
  out.set(std::string(key.substr(0, dot)), std::move(inner));
}

// As the file counts it.
Json shifted(const Json& row, Form form, const Json& v) {
  const auto [plus, over] = shift_of(row, form);
  return v.is_integer() && (plus != 0 || over != 1) ? Json((v.integer() - plus) * over) : v;
}

Json own_config(const Recipe& r) {
  Json out = Json::Object{};
  out.set("architectures", own_family().json.find("architectures")->array());
  out.set("model_type", own_family().name);
  out.set("vocab_size", r.vocab);
  out.set("hidden_size", r.width);
  out.set("max_position_embeddings", r.context);
  if (r.encoder && r.decoder) out.set("is_encoder_decoder", true);
  return out;
}

}  // namespace

std::vector<std::pair<const Json*, std::string>> axes_of(const Family& family, const Recipe& recipe) {
  std::vector<std::pair<const Json*, std::string>> out;
  const Json* spec = family.json.find("pattern");
  if (!spec || spec->is_null()) return out;
  const StackRecipe& stack = recipe.decoder ? *recipe.decoder : *recipe.encoder;
  std::string letters;
  for (Dim i = 0; i < stack.layers; ++i)
    letters += stack.pattern[static_cast<std::size_t>(i) % stack.pattern.size()];
  const Json* axes = spec->find("axes");
  if (!axes) return {{spec, letters}};
  for (std::size_t a = 0; a < axes->array().size(); ++a) {
    std::string own;
    for (const char letter : letters)
      for (const Json::Member& m : spec->find("kinds")->object())
        if (m.value.string()[0] == letter) {
          own += m.key[a];
          break;
        }
    if (own.size() != letters.size()) fail("family ", family.name, " has no kinds of layers like these");
    out.emplace_back(&axes->array()[a], own);
  }
  return out;
}

namespace {

// A number for every layer, 0 for layers of these letters.
GgufValue per_layer(const Recipe& r, const std::string& without, Dim value) {
  std::vector<std::int32_t> numbers;
  for (Dim i = 0; i < r.decoder->layers; ++i) {
    const char letter = r.decoder->pattern[static_cast<std::size_t>(i) % r.decoder->pattern.size()];
    numbers.push_back(without.find(letter) == std::string::npos ? static_cast<std::int32_t>(value) : 0);
  }
  return GgufValue::i32s(numbers);
}

// The values as a GGUF file says them: where layers may be listed or counted, every n-th.
FamilyValues counted(const Family& family, const Translation& model) {
  FamilyValues out = model.values;
  for (const auto& [axis, letters] : axes_of(family, model.recipe))
    if (const Json* period = axis->find("gguf_period") ? axis->find("period") : nullptr)
      if (const auto n = period_of(*axis, letters)) out.set(period->string(), *n);
  return out;
}

}  // namespace

GgufKeys gguf_keys(const Family& family, const Translation& given, std::vector<RopeFactors>& factors) {
  if (family.own) return {{kOwnRecipeKey, GgufValue::text(recipe_json(given.recipe))}};
  const Translation model{counted(family, given), given.recipe};
  const std::string arch = family.gguf_arch();
  GgufKeys out;
  for (const Json::Member& m : family.json.find("values")->object()) {
    const Json* value = model.values.find(m.key);
    if (!value) continue;
    if (is_rope(m.value)) {
      rope_keys(out, factors, arch, m.value, *value, first_attention(model.recipe));
      continue;
    }
    // Keys that llama.cpp does not know are written where they matter.
    if (const Json* only = m.value.find("gguf_if")) {
      const Json* holds = model.values.find(only->string());
      if (!holds || *holds == Json(false) || *holds == Json(0)) continue;
    }
    const Json v = shifted(m.value, Form::gguf, settled(m.key, *value, model.recipe));
    for (const std::string& key : keys_of(m.value, "gguf")) {
      const std::string full = key.starts_with('.') ? arch + key : key;
      const Json* type = m.value.find("type");
      if (v.is_array()) {
        std::vector<std::int32_t> numbers;
        for (const Json& e : v.array()) numbers.push_back(static_cast<std::int32_t>(e.integer()));
        numbers.resize(4);  // sections of positions
        out.emplace_back(full, GgufValue::i32s(numbers));
      } else if (const Json* without = m.value.find("layers_without"); without && v.is_integer())
        out.emplace_back(full, per_layer(model.recipe, without->string(), v.integer()));
      else if (type && (type->string() == "number" || type->string() == "float"))
        out.emplace_back(full, GgufValue::f32(static_cast<float>(v.number())));
      else if (v.is_bool()) out.emplace_back(full, GgufValue::boolean(v.boolean()));
      else if (v.is_integer())
        out.emplace_back(full, GgufValue::u32(static_cast<std::uint32_t>(v.integer())));
    }
  }
  for (const auto& [axis, letters] : axes_of(family, model.recipe))
    for (const std::string& key : axis_list_keys(*axis, Form::gguf)) {
      const Json* only = axis->find("only_if");
      const Json* holds = only ? model.values.find(only->string()) : nullptr;
      if (only && (!holds || *holds == Json(false) || *holds == Json(0))) continue;
      // Said otherwise: by a number for every layer, or by their period.
      if (axis->find("gguf_list_read") || (axis->find("gguf_period") && period_of(*axis, letters))) continue;
      GgufValue list;
      list.type = GgufValue::Type::array;
      list.element = GgufValue::Type::boolean;
      GgufValue::Integers flags;
      for (const char letter : letters) {
        const Json* yes = axis->find("types")->find("1");
        flags.push_back(yes && yes->string()[0] == letter ? 1 : 0);
      }
      list.value = std::move(flags);
      out.emplace_back((key.starts_with('.') ? arch : "") + key, std::move(list));
    }
  if (const Json* constants = family.json.find("gguf_constants"))
    for (const Json::Member& m : constants->object())
      out.emplace_back((m.key.starts_with('.') ? arch : "") + m.key,
                       m.value.is_bool() ? GgufValue::boolean(m.value.boolean())
                                         : GgufValue::u32(static_cast<std::uint32_t>(m.value.integer())));
  return out;
}

Json config_of(const Family& family, const Translation& model) {
  if (family.own) return own_config(model.recipe);
  Json out = Json::Object{};
  const auto& classes = family.json.find("architectures")->array();
  const bool headless = has_no_matrix(model.recipe.head) && classes.size() > 1;
  const Json* classifier = model.recipe.head.kind == HeadRecipe::Kind::classes
                               ? family.json.find(model.recipe.head.distilled ? "distilled" : "classifier")
                               : nullptr;
  out.set("architectures", Json::Array{classifier ? *classifier : classes[headless ? 1 : 0]});
  out.set("model_type", family.json.find("model_type")->array()[0]);
  for (const Json::Member& m : family.json.find("values")->object()) {
    const Json* value = model.values.find(m.key);
    if (!value) {  // where absent means something it is said, or the library's own default would come back
      const Json* absent = m.value.find("or");
      const auto keys = keys_of(m.value, "config");
      if (absent && absent->is_null() && !keys.empty()) set_inside(out, keys[0], Json());
      continue;
    }
    if (is_rope(m.value)) {
      rope_config(out, m.value, *value, first_attention(model.recipe).rope_channels());
      continue;
    }
    auto keys = keys_of(m.value, "config");
    if (const auto written = keys_of(m.value, "config_written"); !written.empty()) keys = written;
    if (keys.empty()) continue;
    const Json v = shifted(m.value, Form::folder, settled(m.key, *value, model.recipe));
    const Json* type = m.value.find("type");
    const std::string_view kind = type ? std::string_view(type->string()) : "";
    if (kind == "float" && v.number() == std::floor(v.number()))
      set_inside(out, keys[0], concat(kFloat, shortest(v.number())));
    else if (kind == "act") set_inside(out, keys[0], act_to_words(v.string()));
    else if (kind == "feed") {
      const bool gated = v.find("kind")->string() == "glu", tanh = v.find("act")->string() == "gelu_tanh";
      out.set(keys[0], concat(gated ? "gated-" : "", gated && tanh ? "gelu" : v.find("act")->string()));
    } else if (const Json* entry = m.value.find("entry"); entry && entry->integer() == 1) {
      const Json* height = out.find(keys[0]);  // one number where both are the same
      if (height && !(*height == v)) set_inside(out, keys[0], Json::Array{*height, v});
    } else if (m.key == "window" && v.is_integer() && v.integer() == 0) {
      set_inside(out, keys[0], Json());
    } else {
      set_inside(out, keys[0], v);
    }
  }
  for (const auto& [axis, letters] : axes_of(family, model.recipe)) {
    if (const auto keys = axis_list_keys(*axis, Form::folder); !keys.empty()) {
      Json::Array list;
      for (const char letter : letters)
        for (const Json::Member& m : axis->find("types")->object())
          if (m.value.string()[0] == letter) {  // of several words the first
            const bool number = keys[0] != "layer_types" && (m.key == "0" || m.key == "1");
            list.push_back(number ? Json(static_cast<std::int64_t>(m.key == "1")) : Json(m.key));
            break;
          }
      set_inside(out, keys[0], std::move(list));
    }
    if (const Json* members = axis->find("members")) {
      Json::Array list;
      for (std::size_t i = 0; i < letters.size(); ++i)
        if (letters[i] == members->find("is")->string()[0]) list.push_back(static_cast<std::int64_t>(i));
      set_inside(out, members->find("key")->string(), std::move(list));
    }
  }
  for (const char* words : {"when", "config_constants"})
    if (const Json* fixed = family.json.find(words); fixed && fixed->is_object())
      for (const Json::Member& m : fixed->object()) set_inside(out, m.key, m.value);
  if (const Json* agree = family.json.find("agree"); agree && agree->is_object()) {
    const std::vector<WeightShape> weights = weight_shapes(model.recipe);
    for (const Json::Member& m : agree->object()) {
      const std::string name = (m.value.is_array() ? m.value.array()[0] : m.value).string();
      const std::string before = name.substr(0, name.find("{i}")), behind = name.substr(name.find("{i}") + 3);
      bool there = false;  // in some layer
      for (const WeightShape& w : weights)
        there = there || (w.name.starts_with(before) && w.name.ends_with(behind));
      out.set(m.key, there);
    }
  }
  if (model.recipe.encoder && model.recipe.decoder) out.set("is_encoder_decoder", true);
  return out;
}

void set_class_names(Json& config, const std::vector<std::string>& names, Dim count) {
  Json labels = Json::Object{}, ids = Json::Object{};
  for (Dim i = 0; i < count; ++i) {
    const std::string name = names.empty() ? concat("LABEL_", i) : names[static_cast<std::size_t>(i)];
    if (ids.find(name))
      fail("model folder: two classes are called ", json_quote(name), "; give each its own name");
    labels.set(std::to_string(i), name);
    ids.set(name, i);
  }
  config.set("id2label", std::move(labels));
  config.set("label2id", std::move(ids));
}

std::string config_text(const Json& config) {
  std::string text = config.dump() + "\n";
  const std::string mark = concat('"', kFloat);
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.erase(at, mark.size());
    text.replace(text.find('"', at), 1, ".0");
  }
  return text;
}

std::string written_name(const Family& family, Form form, const std::string& ours, const Recipe& recipe) {
  const std::vector<std::string> names = family.tensor_names(form, ours);
  if (names.empty())
    fail(ours, " has no name in the ", form == Form::gguf ? "GGUF" : "Hugging Face", " form of ", family.name,
         ", so the model cannot be written there",
         ours.starts_with("head.") && form == Form::gguf
             ? " (GGUF keeps BERT as an encoder only, and no classifiers)"
             : "");
  std::string name = names[0];
  // Two names of which the second belongs to gated FFNs (T5: wi, but wi_1 beside wi_0; DINOv2).
  if (names.size() > 1 && (ours.find(".ffn.up.") != ours.npos || ours.find(".ffn.down.") != ours.npos) &&
      !names[0].ends_with(names[1])) {
    const StackRecipe& stack = ours.starts_with("encoder") ? *recipe.encoder : *recipe.decoder;
    for (const PartRecipe& p : stack.layer(0).parts)
      if (p.ffn() && p.ffn()->kind == FfnRecipe::Kind::glu) name = names[1];
  }
  if (recipe.head.distilled && names.size() > 1 && ours.starts_with("head.classes."))
    name = names[1];  // DeiT
  const Json* prefix = family.json.find("prefix");
  if (form == Form::folder && has_no_matrix(recipe.head) && prefix && prefix->is_string() &&
      name.starts_with(prefix->string()))
    name = name.substr(prefix->string().size());
  return name;
}

std::vector<Dim> written_shape(const Family& family, const std::string& name, const WeightShape& first,
                               std::vector<Dim> shape, const Recipe& recipe) {
  if (family.own) return shape;
  if (!name.starts_with("blk.") && family.middle_one(first.name)) shape.insert(shape.begin() + 1, 1);
  if (name == "final_logits_bias" || family.leading_one(first.name)) shape.insert(shape.begin(), 1);  // [1,V]
  if (family.flat(first.name)) shape.erase(shape.begin());  // [C]
  if (family.conv(first.name)) {
    const PatchRecipe& p = *recipe.embed.patches;
    return {shape[0], p.channels, p.size, p.size};
  }
  const bool q = first.name.ends_with(".q_norm.weight"), k = first.name.ends_with(".k_norm.weight");
  if ((q || k) && shape.size() == 1) {
    const StackRecipe& stack = first.name.starts_with("encoder") ? *recipe.encoder : *recipe.decoder;
    for (const PartRecipe& p : stack.layer(std::atol(first.name.c_str() + 8)).parts)
      if (p.self() && p.self()->qk_norm && p.self()->qk_norm->weights == QkNormRecipe::Weights::per_head)
        return {q ? p.self()->heads : p.self()->kv_heads, p.self()->head_dim};
  }
  return shape;
}

}  // namespace rapt
