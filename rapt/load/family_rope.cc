// SPDX-License-Identifier: Apache-2.0
// RoPE as released files spell it, old and new, into the recipe's words. transformers 5 writes
// rope_parameters { rope_type, rope_theta, … } (Gemma 3: one such object per layer type); before, rope_theta
// stood beside rope_scaling { type or rope_type, … }. A GGUF file has keys for linear and yarn, and tensors
// of factors for Llama 3 (rope_freqs) and longrope (rope_factors_long, rope_factors_short).
#include <algorithm>
#include <cmath>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/load/family.h"

namespace rapt {
namespace {

struct Block {  // an object of numbers; messages name its keys
  const Source& source;
  const Json* json;
  std::string name;

  const Json* get(std::string_view key) const {
    const Json* j = json ? json->find(key) : nullptr;
    return j && !j->is_null() ? j : nullptr;
  }
  std::optional<double> number(std::string_view key) const {
    const Json* j = get(key);
    if (!j) return std::nullopt;
    if (!j->is_number()) fail(source.where, ": ", name, ".", key, ": wants a number, has ", j->type_name());
    return j->number();
  }
  double need(std::string_view key, std::string_view why) const {
    const auto x = number(key);
    if (!x) fail(source.where, ": ", name, ": ", why, " needs \"", key, "\"");
    return *x;
  }
  void copy(Json& out, const char* ours, std::string_view key) const {
    if (const auto x = number(key)) out.set(ours, *x);
  }
  void copy_list(Json& out, const char* ours, std::string_view key) const {
    const Json* j = get(key);
    if (!j) fail(source.where, ": ", name, ": longrope needs \"", key, "\"");
    if (!j->is_array())
      fail(source.where, ": ", name, ".", key, ": wants a list of numbers, has ", j->type_name());
    for (const Json& x : j->array())
      if (!x.is_number()) fail(source.where, ": ", name, ".", key, ": wants numbers, has ", x.type_name());
    out.set(ours, *j);
  }
};

std::optional<double> config_number(const Source& s, std::string_view key) {
  const Json* j = s.find(key);
  if (!j) return std::nullopt;
  const std::string full = (key.starts_with('.') ? s.arch : "") + std::string(key);
  if (!j->is_number()) fail(s.where, ": ", full, ": wants a number, has ", j->type_name());
  if (!std::isfinite(j->number())) fail(s.where, ": ", full, ": must be a finite number");
  return j->number();
}

Json named(const char* kind, Json inside) {
  Json out = Json::Object{};
  out.set(kind, std::move(inside));
  return out;
}

Json from_config(const Source& s, const Json& row, Dim head_dim, Dim context) {
  Json out = Json::Object{};
  const Json* text = row.find("layer_type");
  const Json* scaled = row.find("scaling");
  const bool may_scale = !scaled || scaled->boolean();
  Block b{s, s.find("rope_parameters"), "rope_parameters"};
  if (b.json && !b.json->is_object())
    fail(s.where, ": rope_parameters: wants an object, has ", b.json->type_name());
  if (b.json && text && b.get(text->string())) {
    b.name += "." + text->string();
    b.json = b.get(text->string());
    if (!b.json->is_object()) fail(s.where, ": ", b.name, ": wants an object, has ", b.json->type_name());
  }
  const bool modern = b.json != nullptr;
  if (!modern) b.json = s.find("rope_scaling"), b.name = "rope_scaling";
  if (!modern && b.json && !b.json->is_object())
    fail(s.where, ": rope_scaling: wants an object, has ", b.json->type_name());

  const std::string& theta_key = row.find("theta_key")->string();
  const auto inner = modern ? b.number("rope_theta") : std::nullopt;
  const auto outer = config_number(s, theta_key);
  out.set("theta", inner ? *inner : outer ? *outer : row.find("theta")->number());
  auto part = b.number("partial_rotary_factor");
  const Json *part_key = row.find("part_key"), *dim_key = row.find("dim_key"), *usual = row.find("part");
  if (!part) part = config_number(s, part_key ? part_key->string() : "partial_rotary_factor");
  if (dim_key && head_dim > 0)  // GPT-J: so many channels
    if (const auto turned = config_number(s, dim_key->string()))
      part = *turned / static_cast<double>(head_dim);
  if (!part && usual) part = usual->number();
  if (part && *part != 1) out.set("part", *part);
  if (const Json* layout = row.find("layout")) out.set("layout", *layout);
  if (!may_scale && !modern) return out;

  const Json* type = b.get("rope_type");
  if (!type) type = b.get("type");
  if (!type) {
    if (b.json && !modern) fail(s.where, ": rope_scaling: has neither \"rope_type\" nor \"type\"");
    return out;
  }
  if (!type->is_string()) fail(s.where, ": ", b.name, ".rope_type: wants a string, has ", type->type_name());
  std::string kind = type->string();
  if (const Json* names = row.find("longrope_names"))
    for (const Json& n : names->array())
      if (n.string() == kind) kind = "longrope";
  const auto original = [&]() -> std::optional<double> {
    if (const auto top = config_number(s, "original_max_position_embeddings")) return top;
    return b.number("original_max_position_embeddings");
  };
  Json in = Json::Object{};
  if (kind == "default" || kind == "none") return out;
  if (kind == "linear") {
    in.set("factor", b.need("factor", "linear scaling"));
  } else if (kind == "dynamic" && b.number("alpha").value_or(0) > 0) {  // Hunyuan: a fixed, larger base
    const double turned = static_cast<double>(head_dim);
    if (head_dim < 4) fail(s.where, ": ", b.name, ": alpha needs heads of at least 4 channels");
    out.set("theta", out.find("theta")->number() * std::pow(*b.number("alpha"), turned / (turned - 2)));
    return out;
  } else if (kind == "dynamic") {
    in.set("factor", b.need("factor", "dynamic scaling"));
    in.set("original", b.number("original_max_position_embeddings").value_or(static_cast<double>(context)));
  } else if (kind == "yarn") {
    const double from = original().value_or(static_cast<double>(context));
    const auto factor = b.number("factor");
    if (!factor && !(from > 0)) fail(s.where, ": ", b.name, ": yarn scaling needs \"factor\"");
    in.set("factor", factor ? *factor : static_cast<double>(context) / from);
    in.set("original", from);
    b.copy(in, "beta_fast", "beta_fast");
    b.copy(in, "beta_slow", "beta_slow");
    b.copy(in, "attention_factor", "attention_factor");
    b.copy(in, "mscale", "mscale");
    b.copy(in, "mscale_all_dim", "mscale_all_dim");
    if (const Json* t = row.find("truncate"); t && !b.get("truncate")) in.set("truncate", *t);
    if (const Json* t = b.get("truncate")) {
      if (!t->is_bool()) fail(s.where, ": ", b.name, ".truncate: wants true or false, has ", t->type_name());
      in.set("truncate", *t);
    }
  } else if (kind == "llama3") {
    in.set("factor", b.need("factor", "llama3 scaling"));
    in.set("original", b.need("original_max_position_embeddings", "llama3 scaling"));
    in.set("low_freq", b.need("low_freq_factor", "llama3 scaling"));
    in.set("high_freq", b.need("high_freq_factor", "llama3 scaling"));
  } else if (kind == "longrope" || kind == "su") {
    kind = "longrope";
    const auto from = original();
    b.copy(in, "attention_factor", "attention_factor");
    b.copy_list(in, "short_factor", "short_factor");
    b.copy_list(in, "long_factor", "long_factor");
    if (from) {
      in.set("original", *from);
      in.set("max_context", static_cast<double>(context));
    } else {
      in.set("original", static_cast<double>(context));
      if (const auto factor = b.number("factor"))
        in.set("max_context", *factor * static_cast<double>(context));
    }
  } else {
    fail(s.where, ": ", b.name, ".rope_type: unknown scaling ", json_quote(kind), "; ",
         name_hint(kind,
                   std::vector<std::string>{"default", "linear", "dynamic", "yarn", "llama3", "longrope"}));
  }
  out.set("scaling", named(kind.c_str(), std::move(in)));
  return out;
}

Json list_of(const TensorView& t) {
  Json::Array out;
  if (t.elements() > 65536)
    fail("tensor '", t.name(), "' ", t.shape_text(), ": far too long for factors of RoPE frequencies");
  for (const float x : t.values()) out.push_back(static_cast<double>(x));
  return out;
}

Json from_gguf(const Source& s, const Json& row, Dim head_dim, Dim context) {
  Json out = Json::Object{};
  const Json* own_key = row.find("gguf_key");
  const auto theta = config_number(s, own_key ? own_key->string() : ".rope.freq_base");
  const Json* fallback = row.find("gguf_theta");
  out.set("theta", theta ? *theta : (fallback ? fallback : row.find("theta"))->number());
  if (const auto turned = config_number(s, ".rope.dimension_count");
      turned && whole_number(*turned) != head_dim) {
    if (head_dim <= 0 || *turned <= 0 || *turned > static_cast<double>(head_dim))
      fail(s.where, ": ", s.arch, ".rope.dimension_count: ", *turned, " channels cannot turn in heads of ",
           head_dim);
    out.set("part", *turned / static_cast<double>(head_dim));
  }
  if (const Json* layout = row.find("layout")) out.set("layout", *layout);
  if (own_key) return out;  // local layers are not scaled

  const Json* type = s.find(".rope.scaling.type");
  if (type && !type->is_string())
    fail(s.where, ": ", s.arch, ".rope.scaling.type: wants a string, has ", type->type_name());
  std::string kind = type ? type->string() : "none";
  const TensorView *freqs = s.tensors->find("rope_freqs.weight"),
                   *longs = s.tensors->find("rope_factors_long.weight"),
                   *shorts = s.tensors->find("rope_factors_short.weight");
  const double original =
      config_number(s, ".rope.scaling.original_context_length").value_or(static_cast<double>(context));
  const auto attn = config_number(s, ".rope.scaling.attn_factor");
  auto factor = config_number(s, ".rope.scaling.factor");
  if (!factor && !type) {
    factor = config_number(s, ".rope.scale_linear");  // before there were types
    if (factor && *factor != 1) kind = "linear";
  }
  Json in = Json::Object{};
  if (longs || shorts) {
    if (!longs || !shorts)
      fail(s.where, ": tensor '", longs ? "rope_factors_short" : "rope_factors_long",
           ".weight' is missing beside its partner");
    kind = "longrope";
    in.set("original", original);
    in.set("max_context", static_cast<double>(context));
    if (attn) in.set("attention_factor", *attn);
    in.set("short_factor", list_of(*shorts));
    in.set("long_factor", list_of(*longs));
  } else if (freqs) {  // one list for all lengths
    if (kind != "none" && kind != "linear")
      fail(s.where, ": rope_freqs.weight beside RoPE scaling ", json_quote(kind), ": two scalings at once");
    kind = "longrope";
    in.set("original", std::max(original, 2.0));
    in.set("attention_factor", 1.0);
    in.set("short_factor", list_of(*freqs));
    in.set("long_factor", list_of(*freqs));
  } else if (kind == "none") {
    return out;
  } else if (kind == "linear") {
    if (!factor)
      fail(s.where, ": ", s.arch, ".rope.scaling.factor is missing beside rope.scaling.type \"linear\"");
    in.set("factor", *factor);
  } else if (kind == "yarn") {
    if (!factor)
      fail(s.where, ": ", s.arch, ".rope.scaling.factor is missing beside rope.scaling.type \"yarn\"");
    in.set("factor", *factor);
    in.set("original", original);
    for (const auto& [ours, key] : {std::pair{"beta_fast", ".rope.scaling.yarn_beta_fast"},
                                    std::pair{"beta_slow", ".rope.scaling.yarn_beta_slow"}})
      if (const auto x = config_number(s, key)) in.set(ours, *x);
    if (const Json* t = row.find("truncate")) in.set("truncate", *t);  // no key says it
    // DeepSeek; an f32 has seven digits.
    const auto log = config_number(s, ".rope.scaling.yarn_log_multiplier"),
               own = config_number(s, ".rope.scaling.yarn_mscale");
    const double all = log ? std::round(*log * 1e7) / 1e6 : 0;
    if (all > 0) in.set("mscale_all_dim", all);
    if (const double mscale = own ? std::round(*own * 1e6) / 1e6 : all; mscale > 0) in.set("mscale", mscale);
    auto times = config_number(s, ".rope.scaling.yarn_attn_factor");
    if (!times) times = attn;
    if (times && *times != 1)
      in.set("attention_factor", *times * (*factor > 1 ? 0.1 * std::log(*factor) + 1 : 1));
  } else {
    fail(s.where, ": ", s.arch, ".rope.scaling.type: unknown scaling ", json_quote(kind),
         "; known: none, linear, yarn, longrope");
  }
  out.set("scaling", named(kind.c_str(), std::move(in)));
  return out;
}

}  // namespace

Json rope_from_source(const Source& source, const Json& row, Dim head_dim, Dim context) {
  return source.form == Form::folder ? from_config(source, row, head_dim, context)
                                     : from_gguf(source, row, head_dim, context);
}

}  // namespace rapt
