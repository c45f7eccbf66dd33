// SPDX-License-Identifier: Apache-2.0
// Toy models, the draw of a schedule, a witness for each request, and the comparison.
#include "tests/schedules.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "rapt/base/rng.h"
#include "rapt/nn/parts/attention.h"
#include "rapt/nn/parts/conv.h"
#include "rapt/nn/parts/delta.h"
#include "rapt/nn/parts/ffn.h"
#include "rapt/nn/parts/moe.h"
#include "tests/adapter_tools.h"
#include "tests/memory_checkpoint.h"

namespace rapt::test {
namespace {

using End = PlannedRequest::End;
using Which = Request::Rows::Which;
std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

constexpr Dim kVocab = 40;
constexpr Dim kContext = 256;

// Points that edits scale. Of recurrent decoders the first two alone: their layers hand on step by step.
const Site kEditSites[] = {site::embed,   site::logits, site::resid_out, site::attn_out,  site::v,
                           site::ffn_out, site::router, site::delta_v,   site::conv_mixed};
const Site kLookSites[] = {site::embed,
                           site::resid_in,
                           site::resid_out,
                           site::q,
                           site::k,
                           site::v,
                           site::z,
                           site::ffn_out,
                           site::final_norm,
                           site::router,
                           site::expert_indices,
                           site::delta_k,
                           site::delta_read,
                           site::delta_state_norm,
                           site::conv_mixed};

// Layers with a window and kept keys, and layers that see everything: two groups of pages.
Recipe windows() {
  Recipe r = small_decoder(40, kContext, kVocab);
  for (PartRecipe& p : r.decoder->kinds["W"].parts)
    if (AttnRecipe* a = p.self()) a->keep = 3;
  return r;
}
Recipe alibi() {
  Recipe r = small_decoder(0, kContext, kVocab);
  for (auto& [name, layer] : r.decoder->kinds)
    for (PartRecipe& p : layer.parts)
      if (AttnRecipe* a = p.self()) a->pos = {.kind = PosRecipe::Kind::alibi};
  return r;
}
Recipe prefixed() {
  Recipe r = small_decoder(0, kContext, kVocab);
  r.decoder->layers = 2;
  for (auto& [name, layer] : r.decoder->kinds)
    for (PartRecipe& p : layer.parts)
      if (AttnRecipe* a = p.self()) a->mask = AttnRecipe::MaskKind::prefix;
  return r;
}
Recipe described(const std::string& name, const char* json) {
  Recipe r = parse_recipe(json);
  r.name = name, r.vocab = kVocab, r.context = kContext;
  return r;
}
// Heads of 32 channels, for caches in blocks; keys with a bias, which such caches keep apart.
Recipe sinks() {
  return described("sinks", R"({"width":32,"embed":{"sink_tokens":2},
    "decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
      {"self":{"norm_in":"rms","heads":4,"kv_heads":2,"head_dim":32,"bias":"qkv","pos":{"rope":{}}}},
      {"ffn":{"norm_in":"rms","width":40}}]}}}})");
}
// Every row goes to experts of its own, whoever is in its pass.
Recipe experts() {
  return described("experts",
                   R"({"width":24,"decoder":{"layers":3,"pattern":"LLM","final_norm":"rms","kinds":{
    "L":{"parts":[{"self":{"norm_in":"rms","heads":4,"kv_heads":2,"pos":{"rope":{}}}},
      {"moe":{"norm_in":"rms","experts":6,"used":2,"width":20,"shared":{"gated":true}}}]},
    "M":{"parts":[{"self":{"norm_in":"rms","heads":4,"window":40,"pos":{"rope":{}}}},
      {"moe":{"norm_in":"rms","experts":8,"used":3,"width":12,"bias":true,"router":{"score":"sigmoid",
        "choice_bias":true,"groups":{"count":4,"used":2},"eps":1e-20,"scale":2.5}}}]}}}})");
}
// Keys and values of one latent: one kv head for all, whose values are in the keys.
Recipe latent() {
  return described("latent",
                   R"({"width":24,"decoder":{"layers":2,"pattern":"LM","final_norm":"rms","kinds":{
    "L":{"parts":[{"self":{"norm_in":"rms","heads":4,"head_dim":40,"v_dim":12,"pos":{"rope":{"layout":"pairs"}},
        "latent":{"rank":32,"q_rank":20,"rope_dim":32}}},
      {"moe":{"norm_in":"rms","experts":4,"used":2,"width":12,"shared":{}}}]},
    "M":{"parts":[{"self":{"norm_in":"rms","heads":3,"head_dim":9,"window":40,"latent":{"rank":64,"rope_dim":0}}},
      {"ffn":{"norm_in":"rms","width":40}}]}}}})");
}
// States between layers with keys of all tokens; a learned token stands before the first.
Recipe delta() {
  return described("delta", R"({"width":24,"embed":{"sink_tokens":1},
    "decoder":{"layers":3,"pattern":"DLD","final_norm":"rms","kinds":{
      "D":{"parts":[{"delta":{"norm_in":"rms","key_heads":2,"value_heads":4,"key_dim":6,"value_dim":5}},
        {"ffn":{"norm_in":"rms","width":40}}]},
      "L":{"parts":[{"self":{"norm_in":"rms","heads":4,"kv_heads":2,"pos":{"rope":{}}}},
        {"ffn":{"norm_in":"rms","width":40}}]}}}})");
}
Recipe convolutions() {
  return described("conv", R"({"width":24,"decoder":{"layers":3,"pattern":"CLC","final_norm":"rms","kinds":{
      "C":{"parts":[{"conv":{"norm_in":"rms","kernel":3}},{"ffn":{"norm_in":"rms","width":40}}]},
      "L":{"parts":[{"self":{"norm_in":"rms","heads":4,"kv_heads":2,"window":40,"pos":{"rope":{}}}},
        {"ffn":{"norm_in":"rms","width":40}}]}}}})");
}
Recipe translator() {
  return described("translator", R"({"width":24,"embed":{"pos":"sinusoid"},
    "encoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
      {"self":{"norm_in":"rms","heads":4,"mask":"full"}},{"ffn":{"norm_in":"rms","width":40}}]}}},
    "decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[{"self":{"norm_in":"rms","heads":4}},
      {"cross":{"norm_in":"rms","heads":4,"kv_heads":2}},{"ffn":{"norm_in":"rms","width":40}}]}}}})");
}
Recipe lstm() {
  return described("lstm", R"({"width":16,"decoder":{"recurrent":{"cell":"lstm","layers":2}}})");
}
Recipe gru_attention() {
  return described("gru-attention", R"({"width":12,
    "encoder":{"recurrent":{"both_ways":true,"width":7}},
    "decoder":{"recurrent":{"width":9,"start":"projected",
      "attention":{"at":"previous","score":"additive","width":5,"readout":"maxout"}}}})");
}
Recipe lstm_attention() {
  return described("lstm-attention", R"({"width":12,
    "encoder":{"recurrent":{"cell":"lstm","layers":2,"width":8}},
    "decoder":{"recurrent":{"cell":"lstm","layers":2,"width":8,
      "attention":{"score":"general","feed":true}}}})");
}
Recipe encoder(bool classes) {
  Recipe r = described(classes ? "classifier" : "encoder", R"({"width":24,"embed":{"pos":"sinusoid"},
    "encoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
      {"self":{"norm_in":"rms","heads":4,"mask":"full"}},{"ffn":{"norm_in":"rms","width":40}}]}}}})");
  if (classes) r.head = {.kind = HeadRecipe::Kind::classes, .classes = 3, .pool = HeadRecipe::Pool::mean};
  return r;
}

// Numbers one after the other.
struct Draw {
  std::uint64_t key, next = 0;
  Dim below(Dim n) {
    return static_cast<Dim>(random_below(static_cast<std::uint32_t>(std::max<Dim>(1, n)), key, next++));
  }
  Dim between(Dim first, Dim last) { return first + below(last - first + 1); }  // both included
  bool chance(int percent) { return below(100) < percent; }
  std::int32_t token() { return static_cast<std::int32_t>(below(kVocab)); }
};

std::uint64_t hash(std::uint64_t h, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  for (; bytes >= 4; bytes -= 4, from += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, from, 4);
    h = (h ^ word) * 1099511628211u;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace

std::uint64_t hash_of_row(const Tensor& value, Dim row) {
  const std::size_t bytes = at(value.elements() / value[0]) * size_of(value.dtype);
  return hash(14695981039346656037u, value.data + at(row) * bytes, bytes);
}

bool ToyModel::streams() const {
  try {
    check_streams(recipe(), {.keep = 1, .window = 10});
  } catch (const Error&) {
    return false;
  }
  return !recurrent();
}

Device& toy_device() {
  static Device device({.threads = 2});
  return device;
}

const std::vector<ToyModel>& toy_models() {
  static const std::vector<ToyModel> models = [] {
    std::vector<ToyModel> list;
    const auto add = [&](const char* name, const Recipe& recipe) -> ToyModel& {
      ToyModel& m = list.emplace_back();
      m.name = name;
      m.checkpoint = memory_checkpoint(recipe, 5 + list.size());
      m.checkpoint.decoder_start = 0;
      return m;
    };
    add("gqa", small_decoder(0, kContext, kVocab));
    add("windows", windows());
    ToyModel& s = add("sinks", sinks());
    s.cache = DType::q8_0, s.blocks = true;
    add("alibi", alibi());
    add("experts", experts());
    add("latent", latent()).blocks = true;
    add("delta", delta());
    add("conv", convolutions());
    add("translator", translator());
    add("lstm", lstm());
    add("gru-attention", gru_attention());
    add("lstm-attention", lstm_attention());
    add("prefix", prefixed()).prefix = true;
    add("encoder", encoder(false));
    add("classifier", encoder(true));
    for (ToyModel& m : list) {
      if (m.recurrent()) continue;
      const Model& model = *m.checkpoint.model;
      const auto one = drawn_adapter(model, 1, 3), twin = drawn_adapter(model, 3, 3);
      twin->hash = one->hash;
      m.adapters = {one, drawn_adapter(model, 2, 5, DType::bf16), twin};
    }
    return list;
  }();
  return models;
}

const ToyModel& toy_model(std::string_view name) {
  for (const ToyModel& m : toy_models())
    if (m.name == name) return m;
  fail("there is no toy model '", name, "'");
}

bool PlannedRequest::resting(int step) const {
  return std::ranges::any_of(rests, [&](const auto& r) { return r.first <= step && step < r.second; });
}
Dim PlannedRequest::most_tokens() const { return std::max<Dim>(0, request.generate.max_tokens); }

// ------------------------------------------------------------------------------------------------ the draw
namespace {

struct Texts {  // beginnings that requests share
  std::vector<std::vector<std::int32_t>> of;
};

std::vector<std::int32_t> draw_text(Draw& d, const Texts& texts, Dim length) {
  const std::vector<std::int32_t>& from = texts.of[at(d.below(static_cast<Dim>(texts.of.size())))];
  std::vector<std::int32_t> text(from.begin(), from.begin() + length);
  if (d.chance(50))  // goes on in its own way
    for (Dim i = d.chance(85) ? std::min<Dim>(length, d.between(60, 140)) : d.below(length + 1); i < length;
         ++i)
      text[at(i)] = d.token();
  return text;
}

void draw_rows(Draw& d, Request& r, bool hidden) {
  const Dim length = static_cast<Dim>(r.tokens.size());
  r.rows.which = d.chance(50) ? Which::all : Which::chosen;
  r.rows.hidden = hidden;
  if (r.rows.which == Which::all) return;
  const int percent = static_cast<int>(d.between(5, 60));
  for (Dim i = 0; i < length; ++i)
    if (d.chance(percent)) r.rows.chosen.push_back(i);
  if (r.rows.chosen.empty()) r.rows.chosen.push_back(d.below(length));
}

// Two thirds of the vocabulary, others behind every answer.
void mask(std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
  const Dim salt = static_cast<Dim>(answer.size()) + (answer.empty() ? 0 : answer.back());
  for (Dim t = 0; t < kVocab; ++t)
    if ((t * 7 + salt) % 3 == 0) allowed[at(t / 64)] &= ~(std::uint64_t{1} << t % 64);
}

void draw_answer(Draw& d, Request& r, const Focus& focus, bool many) {
  GenerateOptions& o = r.generate;
  o.max_tokens = many ? d.between(72, 100) : d.chance(8) ? 0 : d.between(1, focus.edits ? 8 : 18);
  o.logprobs = d.chance(60);
  o.top_logprobs = d.chance(40) ? static_cast<int>(d.between(1, 3)) : 0;
  o.ignore_eos = many || d.chance(40);
  if (!many && d.chance(15)) o.stops = {d.chance(50) ? "a" : "bc", "q"};
  if (d.chance(10)) o.bad_words = {{d.token()}, {d.token(), d.token()}};
  if (d.chance(10)) o.sampler.bias = {{d.token(), 3.f}, {d.token(), -4.f}};
  o.sampler.seed = static_cast<std::uint64_t>(d.below(1000));
  o.sampler.temperature = d.chance(40) ? 0 : 0.9;
  if (d.chance(25)) o.sampler.repeat_penalty = 1.3, o.sampler.frequency_penalty = 0.4;
  if (d.chance(10)) o.sampler.mirostat = 2;
  if (d.chance(20)) r.mask = mask;
  if (!many && d.chance(focus.samples ? 40 : 20)) {
    o.beams = static_cast<int>(d.between(1, 4));
    o.samples = static_cast<int>(d.between(1, o.beams));
    o.length_penalty = d.chance(50) ? 1 : 0.5;
    o.renormalize = d.chance(20);
  } else {
    o.samples = d.chance(focus.samples ? 80 : many ? 5 : 40) ? static_cast<int>(d.between(1, 3)) : 1;
    if (d.chance(15))
      for (Dim i = d.between(0, o.max_tokens); i > 0; --i) r.forced.push_back(d.token());
  }
  if (d.chance(20)) r.prompt_logprobs = static_cast<int>(d.between(0, 3));
  if (d.chance(25)) draw_rows(d, r, false);
}

// pressing: most answers fill two pages more than their prompts. Several side by side, and room runs out.
PlannedRequest draw_request(Draw& d, const ToyModel& m, const Texts& texts, const Focus& focus,
                            bool pressing) {
  const bool many = pressing && d.chance(70);
  PlannedRequest p;
  Request& r = p.request;
  const Dim length = many || d.chance(20) ? 64 * d.between(1, d.chance(70) ? 1 : 2) - d.below(8)
                     : d.chance(30)       ? d.between(1, 20)
                                          : d.between(60, 150);
  r.tokens = draw_text(d, texts, m.reads_whole() ? std::min<Dim>(length, 70) : length);
  if (m.translates()) {
    r.source = draw_text(d, texts, d.between(1, d.chance(20) ? 100 : 40));
    r.tokens.resize(at(d.chance(70) ? 0 : d.between(1, 6)));
    if (r.tokens.empty()) r.tokens = {0};
  }
  if (m.reads_whole() || (!many && d.chance(8))) {
    r.whole = true;
    r.generate.max_tokens = 0;
    if (m.recipe().head.kind == HeadRecipe::Kind::classes && d.chance(60)) r.rows.which = Which::all;
    else draw_rows(d, r, d.chance(40) || m.recipe().head.kind == HeadRecipe::Kind::classes);
  } else if (!many && d.chance(6)) {
    r.one_piece = true;
    r.generate.max_tokens = 0;
    draw_rows(d, r, false);
    if (d.chance(50)) r.prompt_logprobs = 1;
  } else {
    draw_answer(d, r, focus, many);
  }
  if (!r.whole && m.streams() && d.chance(many ? 5 : 25))
    r.stream = {.keep = d.chance(50) ? 0 : 4, .window = d.chance(50) ? 21 : 70};
  if (m.prefix && d.chance(60)) r.prefix = d.between(0, static_cast<Dim>(r.tokens.size()));
  if (d.chance(15)) r.space = "other";
  p.looks = d.chance(40);
  if (d.chance(focus.edits ? 60 : 25)) {
    const Dim sites = m.recurrent() ? 2 : static_cast<Dim>(std::size(kEditSites));
    p.edit = static_cast<int>(d.below(sites));
    if (r.rows.hidden && p.edit == 1) p.edit = 0;
    p.factor = d.chance(50) ? 0.5 : 1.25;
    if (d.chance(60)) r.edits = concat("scale ", kEditSites[at(p.edit)].name(), " by ", p.factor);
  }
  p.arrives = static_cast<int>(d.chance(40) ? 0 : d.below(many ? 5 : pressing ? 15 : 30));
  return p;
}

void draw_end(Draw& d, PlannedRequest& p, std::size_t index, std::size_t requests, const Focus& focus) {
  const bool many = p.most_tokens() > 70;
  if (!d.chance(focus.cancelled_holds && p.request.hold != 0 ? 70 : many ? 10 : 30)) return;
  constexpr End kEnds[] = {End::step, End::sample, End::seen, End::flag, End::other, End::throws};
  p.end = focus.cancelled_holds ? End::seen : kEnds[d.below(6)];
  p.whom = static_cast<int>(d.below(p.request.generate.samples));
  p.when = p.end == End::step || p.end == End::sample ? p.arrives + static_cast<int>(d.below(20))
                                                      : static_cast<int>(d.between(1, 25));
  if (p.end == End::sample && (p.request.generate.beams > 0 || p.request.generate.max_tokens == 0))
    p.end = End::step;
  if (p.end != End::other) return;
  p.whom = static_cast<int>(d.below(static_cast<Dim>(requests)));
  if (static_cast<std::size_t>(p.whom) == index) p.end = End::seen;
}

// Bytes with which a request surely comes to its end, when it is alone.
std::size_t ample_bytes(const KvPool& pool, const PlannedRequest& p) {
  const Request& r = p.request;
  if (r.whole) return 0;
  const Dim rows = std::max(r.generate.beams, r.generate.samples), most = p.most_tokens(),
            length = static_cast<Dim>(r.tokens.size()) + pool.hidden(),
            // Pages that answers do not share; each gets a copy before the first one goes.
      own = (length + most) / kPageKeys + 1 - length / kPageKeys;
  const Dim memory = static_cast<Dim>(r.source.size());
  return std::max(pool.bytes_of(length + most + 1, memory, r.stream),
                  r.one_piece || r.prefix > 0 ? pool.bytes_at_once(length, memory) : 0) +
         at(r.generate.beams > 0 ? (rows + rows / 2 + 1) * own
            : rows > 1           ? rows * own
                                 : 0) *
             pool.page_bytes() +
         at(4 * rows) * pool.state_bytes();
}

// Whether tokens are guessed, and how well. A number of its own: what else is drawn stays what it was.
void draw_guesses(Schedule& s) {
  Draw d{mix_key(s.seed, 0x6E55)};
  constexpr int kRight[] = {0, 50, 80, 95, 100};
  if (d.chance(50)) s.guesses = kRight[d.below(5)];
}

// Who asks, and who reads slowly. Numbers of their own: what else is drawn stays what it was.
void draw_clients(Schedule& s) {
  Draw d{mix_key(s.seed, 0xC11E)};
  const bool clients = d.chance(60), rests = d.chance(60);
  constexpr const char* kNames[] = {"", "a", "b", "c"};
  for (PlannedRequest& p : s.requests) {
    if (clients) p.request.client = kNames[d.below(4)];
    p.request.background = clients && d.chance(25);
    if (!rests || !d.chance(40)) continue;
    int step = p.arrives;
    for (Dim n = d.between(1, 3); n > 0; --n) {
      const int from = step + static_cast<int>(d.below(12));
      step = from + static_cast<int>(d.between(1, d.chance(20) ? 90 : 15));
      p.rests.emplace_back(from, step);
    }
  }
}

// What answers must be; numbers of their own as well.
void draw_constraints(Schedule& s) {
  Draw d{mix_key(s.seed, 0xC045)};
  for (PlannedRequest& p : s.requests)
    if (d.chance(30) && !p.request.whole && p.request.generate.max_tokens != 0)
      p.request.constraint = std::make_shared<SaltedConstraint>(static_cast<std::uint64_t>(d.below(1000)));
}

}  // namespace

void SaltedConstraint::mask(std::span<std::uint64_t> allowed) {
  for (Dim t = 0; t < vocab_; ++t)
    if (!allows(static_cast<std::int32_t>(t))) allowed[at(t / 64)] &= ~(std::uint64_t{1} << t % 64);
}
bool SaltedConstraint::allows(std::int32_t id) {
  return mix_key(state_, static_cast<std::uint64_t>(id)) % 5 < 2;
}
void SaltedConstraint::accept(std::int32_t id) {
  if (!allows(id)) fail("the constraint was told a token that it forbids: ", id);
  state_ = mix_key(state_, static_cast<std::uint64_t>(id));
}

Schedule draw_schedule(std::uint64_t seed, const Focus& focus) {
  Draw d{mix_key(seed, 0x5C4ED)};
  Schedule s;
  s.seed = seed;
  const auto& models = toy_models();
  // Models that keep nothing have less to get wrong.
  s.model = &models[at(d.chance(90) ? d.below(11) : d.between(11, 12))];
  if (!focus.model.empty()) s.model = &toy_model(focus.model);
  const ToyModel& m = *s.model;
  constexpr DType kFormats[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};
  s.options.cache = d.chance(50) ? m.cache : kFormats[d.below(m.blocks ? 5 : 3)];
  s.options.prefixes = d.chance(65);
  s.options.rows = focus.edits ? 8 : d.between(1, 8);
  s.options.chunk = d.chance(50) ? 512 : d.between(1, 80);
  s.options.step_seconds = d.chance(50) ? 0 : 1e9;  // what was measured does not matter then
  s.options.context = d.chance(30) ? 176 : 0;

  Texts texts;
  for (int i = 0; i < 2; ++i) {
    auto& text = texts.of.emplace_back();
    for (int n = 0; n < 160; ++n) text.push_back(d.token());
  }
  const bool pressing = !m.reads_whole() && !m.recurrent() && !m.translates() && !focus.edits && d.chance(45);
  const bool slow = pressing && d.chance(50);  // some are still being read when room runs out
  if (pressing) s.options.rows = d.between(4, 8);
  const Dim count = d.between(pressing ? 4 : 2, focus.edits ? 5 : pressing ? 6 : 8);
  for (Dim i = 0; i < count; ++i) {
    PlannedRequest p = draw_request(d, m, texts, focus, pressing);
    if (slow && p.most_tokens() < 70 && !p.request.whole && !p.request.one_piece) {
      p.request.tokens = draw_text(d, texts, d.between(110, 150));
      p.request.prefix = std::min<Dim>(p.request.prefix, 40);
      p.request.rows = {}, p.request.prompt_logprobs = d.chance(40) ? 1 : -1;
      if (d.chance(40)) draw_rows(d, p.request, false);
      p.looks = d.chance(60);
      p.arrives = static_cast<int>(d.between(5, 50));
    }
    // From numbers of its own: what else a seed draws stays.
    Draw adapters{mix_key(mix_key(seed, 0xADA), static_cast<std::uint64_t>(i))};
    if (!m.adapters.empty() && adapters.chance(45)) {
      p.request.adapters.emplace();
      const bool both = adapters.chance(25);
      for (const Dim which : {Dim{0}, Dim{1}})
        if (both || adapters.chance(50))
          p.request.adapters->push_back({m.adapters[at(which)], adapters.chance(70) ? 1.f : 0.5f});
    }
    // One that goes on from an earlier one: its text to somewhere, and something new.
    if (!p.request.whole && i > 0 && d.chance(focus.cancelled_holds ? 70 : pressing ? 10 : 25)) {
      const std::size_t from = at(d.below(i));
      PlannedRequest& first = s.requests[from];
      if (!first.request.whole && !first.request.one_piece) {
        if (first.request.hold == 0) first.request.hold = 100 + from;
        p.request.hold = first.request.hold;
        p.after = d.chance(80) ? static_cast<int>(from) : -1;
        p.arrives = first.arrives;
        if (d.chance(80)) {  // what is held was read in the same way
          p.edit = first.edit, p.factor = first.factor;
          p.request.edits = first.request.edits, p.request.space = first.request.space;
          p.request.stream = first.request.stream, p.request.prefix = first.request.prefix;
          p.request.source = first.request.source;
          p.request.adapters = first.request.adapters;
        }
        // The rest is known when the first has an answer (fill_texts).
        p.request.rows = {}, p.request.one_piece = false;
        if (p.request.generate.max_tokens == 0) p.request.generate.max_tokens = 3;
      }
    }
    s.requests.push_back(std::move(p));
  }
  // Texts of those that continue: of the first one's answer, too, which it has alone.
  for (std::size_t i = 0; i < s.requests.size(); ++i) {
    PlannedRequest& p = s.requests[i];
    if (p.request.hold == 0) continue;
    const auto first =
        std::find_if(s.requests.begin(), s.requests.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const PlannedRequest& q) { return q.request.hold == p.request.hold; });
    if (first == s.requests.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    std::vector<std::int32_t> text = first->request.tokens;
    const RequestOutcome before = answer_alone(s, *first);
    if (!before.samples.empty() && first->request.generate.beams == 0)
      text.insert(text.end(), before.samples[0].ids.begin(), before.samples[0].ids.end());
    if (d.chance(40)) text.resize(at(d.between(1, static_cast<Dim>(text.size()))));
    text.resize(std::min<std::size_t>(text.size(), 150));
    for (Dim n = d.below(6); n > 0; --n) text.push_back(d.token());
    p.request.tokens = std::move(text);
    p.request.prefix = std::min<Dim>(p.request.prefix, static_cast<Dim>(p.request.tokens.size()));
    std::erase_if(p.request.rows.chosen,
                  [&](Dim r) { return r >= static_cast<Dim>(p.request.tokens.size()); });
  }
  for (std::size_t i = 0; i < s.requests.size(); ++i) draw_end(d, s.requests[i], i, s.requests.size(), focus);

  const KvPool pool(*m.checkpoint.model, s.options.cache);
  std::size_t ample = 0, together = 0;
  for (const PlannedRequest& p : s.requests) {
    const std::size_t bytes = ample_bytes(pool, p);
    ample = std::max(ample, bytes);
    together += bytes;
  }
  if (ample > 0 && d.chance(pressing ? 90 : 50)) {
    s.options.budget = ample;
    s.tiny = d.chance(pressing ? 10 : 30);
    if (s.tiny) {
      const std::size_t least = pool.bytes_of(1) + 1;
      s.options.budget = std::max(least, ample * at(d.between(10, 90)) / 100);
    } else if (pressing) {  // room for all to begin, not for all to end
      s.options.budget = std::max(ample, together * at(d.between(25, 60)) / 100);
    } else if (d.chance(50)) {
      s.options.budget += at(d.below(8)) * std::max<std::size_t>(pool.page_bytes(), 64);
    }
  }
  for (int i = 0; i < 7; ++i)
    s.prompt_rows.push_back(slow           ? d.between(1, 3)
                            : d.chance(20) ? 0
                            : d.chance(30) ? 200
                                           : d.between(1, 40));
  draw_clients(s);
  draw_constraints(s);
  draw_guesses(s);
  return s;
}

// ------------------------------------------------------------------------------------------------ witnesses
namespace {

// Watches one request: its observers, its rows, its events.
class Witness {
 public:
  Witness(const Schedule& schedule, const PlannedRequest& planned, bool disturbed)
      : planned_(planned), leaks_(schedule.leaks && disturbed) {
    request_ = planned.request;
    if (planned.looks)
      for (const Site s : kLookSites) taps_.see(s, [this](const Tapped& t) { look(t); });
    if (planned.looks) taps_.see(site::attn_stats, [this](const Tapped& t) { look_at_stats(t); });
    if (planned.edit >= 0) taps_.edit(kEditSites[at(planned.edit)], [this](const Tapped& t) { change(t); });
    const bool acts = disturbed && (planned.end == End::seen || planned.end == End::flag ||
                                    planned.end == End::other || planned.end == End::throws);
    if (acts) taps_.see(site::resid_out, [this](const Tapped&) { count(); });
    if (planned.looks || planned.edit >= 0 || acts) request_.taps = &taps_;
    if (disturbed && planned.end == End::flag) request_.cancel = &flag_;
    if (request_.rows.which != Which::none)
      request_.rows.see = [this](std::span<const Dim> positions, const Tensor& rows) {
        see(positions, rows);
      };
    out.ids.resize(at(planned.request.generate.samples));
    out.choices.resize(at(planned.request.generate.samples));
    out.texts.resize(at(planned.request.generate.samples));
  }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  const Request& request() const { return request_; }

  void hear(const Event& e) {
    switch (e.kind) {
      case Event::Kind::prompt:
        out.reused = std::max(out.reused, e.reused);
        read_ = e.read;
        if (e.read > e.of || e.of != static_cast<Dim>(request_.tokens.size()))
          complain(concat("an event says ", e.read, " of ", e.of, " tokens were read"));
        break;
      case Event::Kind::token:
        if (e.sample < 0 || at(e.sample) >= out.ids.size()) {
          complain(concat("an event of sample ", e.sample));
          break;
        }
        if (e.id >= 0) out.ids[at(e.sample)].push_back(e.id);
        if (e.choice.id >= 0) out.choices[at(e.sample)].push_back(e.choice);
        out.texts[at(e.sample)] += e.text;
        break;
      case Event::Kind::paused:
        ++out.paused_events;
        out.paused_reading += read_ < static_cast<Dim>(request_.tokens.size());
        break;
      case Event::Kind::done:
        if (out.done) complain("it is done twice");
        out.done = true;
        if (e.error) {
          try {
            std::rethrow_exception(e.error);
          } catch (const std::exception& error) {
            out.error = error.what();
          }
        }
        if (!e.answer) {
          complain("it ends without an answer");
          break;
        }
        out.samples = e.answer->samples;
        out.prompt = e.answer->prompt;
        out.pauses = e.answer->pauses;
        break;
    }
  }

  RequestOutcome out;
  std::vector<std::string> complaints;
  std::function<void()> act;    // by the observer, once
  std::atomic<bool> acted{false};

  void set_flag() { flag_.store(true); }

 private:
  void complain(std::string what) { complaints.push_back(std::move(what)); }

  template <class T>
  static std::span<std::vector<T>> rows_of(std::map<RequestOutcome::Point, std::vector<std::vector<T>>>& all,
                                           const Tapped& t) {
    auto& list = all[{std::string(t.site.name()), t.stack, t.layer, t.part, t.rows, t.cross}];
    if (list.size() < at(t.position + t.value[0])) list.resize(at(t.position + t.value[0]));
    return std::span(list).subspan(at(t.position), at(t.value[0]));
  }
  void look(const Tapped& t) {
    const auto list = rows_of(out.looks, t);
    for (std::size_t row = 0; row < list.size(); ++row) {
      const std::uint64_t h = hash_of_row(t.value, static_cast<Dim>(row));
      list[row].insert(std::upper_bound(list[row].begin(), list[row].end(), h), h);
    }
  }
  void look_at_stats(const Tapped& t) {
    const std::span<const float> all = t.value.as<const float>();
    const auto list = rows_of(out.stats, t);
    const std::size_t width = all.size() / list.size();
    for (std::size_t row = 0; row < list.size(); ++row) {
      const auto mine = all.subspan(row * width, width);
      list[row].insert(list[row].end(), mine.begin(), mine.end());
    }
  }
  void change(const Tapped& t) {
    const Dim rows = t.value[0], width = t.value.elements() / rows;
    for (Dim row = 0; row < rows; ++row) {  // a row too far would show
      const Dim place = t.rows == Tapped::Rows::wanted ? 0 : t.position + row;
      const double by = planned_.factor * (1 + 0.05 * static_cast<double>(place % 5));
      for (Dim i = row * width; i < (row + 1) * width; ++i) t.value.set(i, t.value.at(i) * by);
    }
    if (!leaks_ || !t.value.buffer) return;
    const Buffer& all = *t.value.buffer;
    std::byte* next = t.value.data + at(rows * width) * size_of(t.value.dtype);
    if (next + at(width) * size_of(t.value.dtype) > all.data + all.bytes) return;
    for (Dim i = 0; i < width; ++i) reinterpret_cast<float*>(next)[i] *= 1.5f;
  }
  void see(std::span<const Dim> positions, const Tensor& rows) {
    if (positions.empty()) out.rows[-1].push_back(hash_of_row(rows, 0));
    for (std::size_t i = 0; i < positions.size(); ++i)
      out.rows[positions[i]].push_back(hash_of_row(rows, static_cast<Dim>(i)));
  }
  void count() {
    if (++calls_ != planned_.when) return;
    acted = true;
    if (planned_.end == End::throws) fail("the observer has seen enough");
    if (planned_.end == End::flag) flag_.store(true);
    else if (act) act();
  }

  const PlannedRequest& planned_;
  const bool leaks_;
  Request request_;
  Taps taps_;
  std::atomic<bool> flag_{false};
  int calls_ = 0;
  Dim read_ = 0;
};

// ------------------------------------------------------------------------------------------------ comparing
bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }
bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }
bool same(const TokenChoice& a, const TokenChoice& b) {
  return a.id == b.id && same_bits(a.logprob, b.logprob) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), [](const auto& x, const auto& y) {
           return x.first == y.first && same_bits(x.second, y.second);
         });
}
template <class T, class Same>
bool begins(const std::vector<T>& whole, const std::vector<T>& part, const Same& equal) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin(), equal);
}

std::string list(const std::vector<std::int32_t>& ids) {
  std::string s = "[";
  for (const std::int32_t id : ids) s += concat(s.size() > 1 ? " " : "", id);
  return s + "]";
}

// One request: what it said, beside what it says alone.
class Judge {
 public:
  Judge(const Schedule& s, const PlannedRequest& p, const RequestOutcome& alone, const RequestOutcome& mixed,
        bool cancelled)
      : s_(s), p_(p), alone_(alone), mixed_(mixed), cancelled_(cancelled) {}

  std::vector<std::string> said;
  bool early = false, was_cancelled = false;

  void judge() {
    if (!mixed_.refused.empty()) {
      if (!s_.tiny || mixed_.refused.find("bytes of the pool") == std::string::npos)
        say("refused: ", mixed_.refused);
      return;
    }
    if (!mixed_.done) {
      say("never done");
      return;
    }
    const bool threw = p_.end == End::throws && mixed_.error.find("seen enough") != std::string::npos;
    if (mixed_.error != alone_.error && !threw) say("error '", mixed_.error, "', alone '", alone_.error, "'");
    if (mixed_.pauses != mixed_.paused_events)
      say(mixed_.pauses, " pauses, ", mixed_.paused_events, " were told");
    if (mixed_.error.empty()) judge_samples();
    const bool whole = mixed_.error.empty() && !early && !was_cancelled;
    judge_prompt(whole);
    judge_rows(whole);
    judge_looks(whole);
    judge_stats(whole);
  }

 private:
  template <class... Parts>
  void say(const Parts&... parts) {
    said.push_back(concat(parts...));
  }

  void judge_samples() {
    const std::size_t n = mixed_.samples.size();
    const bool beams = p_.request.generate.beams > 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Generated& m = mixed_.samples[i];
      if (m.finish == Finish::cancelled) {
        was_cancelled = true;
        if (!cancelled_ && !(p_.end == End::sample && at(p_.whom) == i))
          say("sample ", i, " is cancelled, nobody asked for it");
      }
    }
    // A search that is cut off has other answers; of those that were finished before, none says so.
    was_cancelled = was_cancelled || (beams && cancelled_);
    if (beams && was_cancelled) return;
    if (beams && s_.tiny) {
      early = true;
      return;
    }
    if (n != alone_.samples.size()) {
      if (!was_cancelled) say(n, " samples, alone ", alone_.samples.size());
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const Generated &m = mixed_.samples[i], &a = alone_.samples[i];
      const bool part =
          m.finish == Finish::cancelled || (s_.tiny && m.finish == Finish::length &&
                                            (m.ids.size() < a.ids.size() || a.finish == Finish::stop));
      early = early || (part && m.finish == Finish::length);
      const auto equal_ids = [](std::int32_t x, std::int32_t y) { return x == y; };
      const auto equal_choices = [](const TokenChoice& x, const TokenChoice& y) { return same(x, y); };
      if (part ? !begins(a.ids, m.ids, equal_ids) : a.ids != m.ids)
        say("sample ", i, ": ids ", list(m.ids), part ? " (to an early end), alone " : ", alone ",
            list(a.ids));
      else if (!begins(a.tokens, m.tokens, equal_choices) || (!part && m.tokens.size() != a.tokens.size()))
        say("sample ", i, ": log-probabilities differ");
      if (!part && m.finish != a.finish)
        say("sample ", i, ": finish ", static_cast<int>(m.finish), ", alone ", static_cast<int>(a.finish));
      if (!part && m.text != a.text) say("sample ", i, ": text '", m.text, "', alone '", a.text, "'");
      if (!part && m.hash != a.hash) say("sample ", i, ": another hash than alone");
      if (!part && !same_bits(m.score, a.score)) say("sample ", i, ": score ", m.score, ", alone ", a.score);
      if (p_.request.constraint) {
        const std::unique_ptr<Constraint> kept = p_.request.constraint->copy();
        for (std::size_t t = p_.request.forced.size(); t < m.ids.size(); ++t) {
          if (!kept->allows(m.ids[t])) {
            say("sample ", i, ": token ", t, " is one that its constraint forbids");
            break;
          }
          kept->accept(m.ids[t]);
        }
      }
      if (mixed_.texts[i] != m.text)
        say("sample ", i, ": events tell '", mixed_.texts[i], "', the answer '", m.text, "'");
      if (!beams && mixed_.ids[i] != m.ids)
        say("sample ", i, ": events tell ", list(mixed_.ids[i]), ", the answer ", list(m.ids));
      if (!beams && !std::equal(m.tokens.begin(), m.tokens.end(), mixed_.choices[i].begin(),
                                mixed_.choices[i].end(), equal_choices))
        say("sample ", i, ": events tell other log-probabilities than the answer");
    }
  }

  void judge_prompt(bool whole) {
    const auto equal = [](const TokenChoice& x, const TokenChoice& y) { return same(x, y); };
    if (!begins(alone_.prompt, mixed_.prompt, equal) ||
        (whole && mixed_.prompt.size() != alone_.prompt.size()))
      say("log-probabilities of the prompt differ: ", mixed_.prompt.size(), " of ", alone_.prompt.size());
  }

  void judge_rows(bool whole) {
    for (const auto& [position, hashes] : mixed_.rows) {
      const auto it = alone_.rows.find(position);
      if (it == alone_.rows.end()) say("row ", position, " was told, alone it is not");
      else if (hashes != it->second)
        say("row ", position, " was told ", hashes.size(), " times, or has other numbers");
    }
    if (whole && mixed_.rows.size() != alone_.rows.size())
      say(mixed_.rows.size(), " rows were told, alone ", alone_.rows.size());
  }

  // f(name, position, seen, alone, reused) for every row that was seen here or alone.
  template <class T, class F>
  void each_row(const std::map<RequestOutcome::Point, std::vector<std::vector<T>>>& mixed,
                const std::map<RequestOutcome::Point, std::vector<std::vector<T>>>& alone, const F& f) {
    const Dim from = mixed_.reused > 0 ? mixed_.reused + s_.model->recipe().embed.sink_tokens : 0;
    const std::vector<T> none;
    const auto rows = [&](const RequestOutcome::Point& point, const std::vector<std::vector<T>>* m,
                          const std::vector<std::vector<T>>* a) {
      const auto& [site, stack, layer, part, kind, cross] = point;
      const bool own = stack == Stack::decoder && kind == Tapped::Rows::own;
      for (std::size_t i = 0; i < std::max(m ? m->size() : 0, a ? a->size() : 0); ++i) {
        // A source may be held, too.
        const bool reused = own ? static_cast<Dim>(i) < from : mixed_.reused > 0 && (!m || (*m)[i].empty());
        f(concat(site, stack == Stack::encoder ? " of the encoder" : "", ", layer ", layer), i,
          m && i < m->size() ? (*m)[i] : none, a && i < a->size() ? (*a)[i] : none, reused);
      }
    };
    for (const auto& [point, list] : mixed) {
      const auto it = alone.find(point);
      rows(point, &list, it == alone.end() ? nullptr : &it->second);
    }
    for (const auto& [point, list] : alone)
      if (!mixed.contains(point)) rows(point, nullptr, &list);
  }

  void judge_looks(bool whole) {
    int told = 0;
    using Hashes = std::vector<std::uint64_t>;
    each_row(mixed_.looks, alone_.looks,
             [&](const std::string& where, std::size_t i, const Hashes& m, const Hashes& a, bool reused) {
               const char* what = nullptr;
               if (reused && !m.empty()) what = "seen, but said to be reused";
               else if (reused || m == a) return;
               else if (m.size() > a.size()) what = "seen too often";
               else if (!std::includes(a.begin(), a.end(), m.begin(), m.end())) what = "other numbers";
               else if (whole) what = "not seen, but not reused either";
               if (what && ++told <= 3) say(where, ", position ", i, " (reused ", mixed_.reused, "): ", what);
             });
  }

  // Of several answers only how many there are: whose is which cannot be told.
  void judge_stats(bool whole) {
    const bool several = p_.request.generate.samples > 1 || p_.request.generate.beams > 1;
    int told = 0;
    using Numbers = std::vector<float>;
    each_row(mixed_.stats, alone_.stats,
             [&](const std::string& where, std::size_t i, const Numbers& m, const Numbers& a, bool reused) {
               const bool right = reused ? m.empty() : whole ? m.size() == a.size() : m.size() <= a.size();
               if (!right && ++told <= 3)
                 say(where, ", position ", i, ": seen more or less often than alone");
               if (!right || several) return;
               for (std::size_t n = 0; n < m.size(); ++n) {
                 if (n % AttentionStat::count == AttentionStat::strongest)
                   continue;  // two may be nearly equal
                 if (std::abs(m[n] - a[n]) < 1e-4f * (1 + std::abs(a[n]))) continue;
                 if (++told <= 3) say(where, ", position ", i, ", number ", n, ": ", m[n], ", alone ", a[n]);
               }
             });
  }

  const Schedule& s_;
  const PlannedRequest& p_;
  const RequestOutcome &alone_, &mixed_;
  const bool cancelled_;
};

std::string describe(const Schedule& s, std::size_t i) {
  const PlannedRequest& p = s.requests[i];
  const Request& r = p.request;
  return concat(
      "seed ", s.seed, ", ", s.model->name, ", ", name_of(s.options.cache), ", budget ", s.options.budget,
      s.guesses < 0 ? "" : concat(", guesses ", s.guesses), s.tiny ? " (tiny)" : "",
      s.options.prefixes ? ", prefixes" : "", ", request ", i, " of ", s.requests.size(), " (",
      r.tokens.size(), " tokens, ", r.generate.max_tokens, " to say, samples ", r.generate.samples,
      ", beams ", r.generate.beams, r.constraint ? ", constraint" : "", r.whole ? ", whole" : "",
      r.one_piece ? ", one piece" : "",
      r.stream.window > 0 ? concat(", stream ", r.stream.keep, "+", r.stream.window) : "",
      r.prefix > 0 ? concat(", prefix ", r.prefix) : "", r.hold != 0 ? concat(", hold ", r.hold) : "",
      p.looks ? ", looks" : "", p.edit >= 0 ? concat(", edit ", p.edit, " '", r.edits, "'") : "",
      r.client.empty() ? "" : ", client " + r.client, r.background ? ", background" : "",
      p.rests.empty() ? "" : ", rests", r.prompt_logprobs >= 0 ? ", prompt log-probabilities" : "",
      r.rows.which == Which::none ? "" : ", rows", ", end ", static_cast<int>(p.end), " at ", p.when, "): ");
}

using Witnesses = std::deque<Witness>;

std::vector<RequestOutcome> all_alone(const Schedule& s) {
  std::vector<RequestOutcome> all;
  for (const PlannedRequest& p : s.requests) all.push_back(answer_alone(s, p));
  return all;
}

// What answers say alone, right or wrong, here and there with what is no token. `alone` must outlive it.
Engine::Options with_guesses(const Schedule& s, const std::vector<RequestOutcome>& alone) {
  Engine::Options options = s.options;
  if (s.guesses < 0) return options;
  options.guess = [&s, &alone, d = Draw{mix_key(s.seed, 0x6E56)}](std::span<const std::int32_t> prompt,
                                                                  std::span<const std::int32_t> answer,
                                                                  Dim most) mutable {
    std::vector<std::int32_t> out;
    std::span<const std::int32_t> rest;
    for (std::size_t i = 0; i < s.requests.size(); ++i)
      if (std::ranges::equal(prompt, s.requests[i].request.tokens))
        for (const Generated& g : alone[i].samples)
          if (g.ids.size() > answer.size() && std::equal(answer.begin(), answer.end(), g.ids.begin()))
            rest = std::span(g.ids).subspan(answer.size());
    for (Dim n = d.between(0, d.chance(20) ? most + 2 : std::min<Dim>(most, 6)); n > 0; --n)
      out.push_back(out.size() < rest.size() && d.chance(s.guesses) ? rest[out.size()] : d.token());
    if (d.chance(5)) out.push_back(d.chance(50) ? -1 : kVocab);
    return out;
  };
  return options;
}

std::vector<std::string> judge_all(const Schedule& s, const Witnesses& witnesses,
                                   const std::vector<RequestOutcome>& all_alone, Coverage* coverage) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < s.requests.size(); ++i) {
    const PlannedRequest& p = s.requests[i];
    bool cancelled = p.end == End::step || p.end == End::seen || p.end == End::flag;
    for (const PlannedRequest& q : s.requests)
      cancelled = cancelled || (q.end == End::other && at(q.whom) == i);
    const RequestOutcome &mixed = witnesses[i].out, &alone = all_alone[i];
    Judge judge(s, p, alone, mixed, cancelled);
    judge.judge();
    for (const std::string& what : witnesses[i].complaints) judge.said.push_back(what);
    for (const std::string& what : judge.said) all.push_back(describe(s, i) + what);
    if (!coverage) continue;
    ++coverage->requests;
    coverage->refused += !mixed.refused.empty();
    coverage->early += judge.early;
    coverage->cancelled += judge.was_cancelled;
    coverage->failed += !mixed.error.empty();
    coverage->pauses += static_cast<std::size_t>(mixed.pauses);
    coverage->paused_reading += static_cast<std::size_t>(mixed.paused_reading);
    coverage->reused += at(mixed.reused);
    for (const auto& [point, rows] : mixed.looks) coverage->looks += rows.size();
    coverage->rows += mixed.rows.size();
    for (const Generated& g : mixed.samples) coverage->tokens += g.ids.size();
  }
  return all;
}

void check_empty(const Schedule& s, Engine& engine, std::vector<std::string>& all, Coverage* coverage) {
  for (const PlannedRequest& p : s.requests)
    if (p.request.hold != 0) engine.release(p.request.hold);
  const Engine::Status held = engine.status();
  if (coverage) coverage->guessed += held.guessed_tokens, coverage->right += held.right_guesses;
  if (!s.options.prefixes && held.pages + held.bytes > 0)
    all.push_back(concat("seed ", s.seed, ", ", s.model->name, ": ", held.pages, " pages, ", held.bytes,
                         " bytes are left without prefixes"));
  engine.drop_prefixes();
  const Engine::Status after = engine.status();
  if (after.pages + after.bytes + after.prefixes > 0 || after.waiting + after.running + after.rows > 0)
    all.push_back(concat("seed ", s.seed, ", ", s.model->name, ": ", after.pages, " pages, ", after.bytes,
                         " bytes, ", after.waiting, " waiting and ", after.running, " running are left"));
}

}  // namespace

RequestOutcome answer_alone(const Schedule& schedule, const PlannedRequest& planned) {
  Engine engine(toy_device(), schedule.model->checkpoint,
                {.cache = schedule.options.cache, .context = schedule.options.context});
  Witness witness(schedule, planned, false);
  engine.add(witness.request());
  while (!engine.idle())
    for (const Event& e : engine.step()) witness.hear(e);
  return std::move(witness.out);
}

std::vector<std::string> differences(const Schedule& s, Coverage* coverage) {
  std::vector<std::string> all;
  const std::vector<RequestOutcome> alone = all_alone(s);
  Witnesses witnesses;
  std::vector<Engine::Id> ids(s.requests.size(), 0);
  const auto told = [&](std::size_t i, const auto&... what) {
    all.push_back(describe(s, i) + concat(what...));
  };
  {
    Engine engine(toy_device(), s.model->checkpoint, with_guesses(s, alone));
    engine.pool().fault = s.fault;
    std::map<Engine::Id, std::size_t> of;
    std::vector<int> cancelled_at(s.requests.size(), -1), done_at(s.requests.size(), -1);
    std::vector<bool> sample_cancelled(s.requests.size());
    int step = 0;
    for (std::size_t i = 0; i < s.requests.size(); ++i) {
      const PlannedRequest& p = s.requests[i];
      Witness& w = witnesses.emplace_back(s, p, true);
      w.act = [&, i] {
        const std::size_t whom = s.requests[i].end == End::other ? at(s.requests[i].whom) : i;
        if (ids[whom] == 0) return;
        engine.cancel(ids[whom]);
        if (cancelled_at[whom] < 0) cancelled_at[whom] = step + 1;
      };
    }
    const int kMostSteps = 20000;
    std::size_t left = s.requests.size();
    for (; left > 0 && step < kMostSteps; ++step) {
      for (std::size_t i = 0; i < s.requests.size(); ++i) {
        const PlannedRequest& p = s.requests[i];
        const bool ready = p.arrives <= step && (p.after < 0 || witnesses[at(p.after)].out.done ||
                                                 !witnesses[at(p.after)].out.refused.empty());
        if (ids[i] == 0 && witnesses[i].out.refused.empty() && ready) {
          try {
            ids[i] = engine.add(witnesses[i].request());
            of[ids[i]] = i;
          } catch (const Error& e) {
            witnesses[i].out.refused = e.what();
            --left;
          }
        }
        if (ids[i] == 0 || witnesses[i].out.done) continue;
        engine.suspend(ids[i], p.resting(step));
        if (coverage) coverage->rested += p.resting(step);
        if (p.end == End::step && p.when <= step && cancelled_at[i] < 0) {
          engine.cancel(ids[i]);
          cancelled_at[i] = step;
        }
        if (p.end == End::sample && p.when <= step && !sample_cancelled[i]) {
          engine.cancel(ids[i], p.whom);
          sample_cancelled[i] = true;
        }
      }
      std::vector<Event> events;
      try {
        events = engine.step(s.prompt_rows[at(step) % s.prompt_rows.size()]);
      } catch (const std::exception& e) {
        all.push_back(concat("seed ", s.seed, ", ", s.model->name, ": step ", step, " throws: ", e.what()));
        return all;
      }
      for (const Event& e : events) {
        const auto it = of.find(e.request);
        if (it == of.end()) {
          all.push_back(concat("seed ", s.seed, ": an event of request ", e.request, ", which nobody added"));
          continue;
        }
        const std::size_t i = it->second;
        if (witnesses[i].out.done) told(i, "an event after its end");
        const PlannedRequest& p = s.requests[i];
        const bool rows = (e.kind == Event::Kind::token && e.id >= 0) || e.kind == Event::Kind::prompt;
        if (rows && p.resting(step)) told(i, "it has rows in step ", step, " while it is suspended");
        if (e.kind == Event::Kind::token && e.id >= 0 && sample_cancelled[i] && e.sample == p.whom)
          told(i, "sample ", p.whom, " says something after it was cancelled");
        witnesses[i].hear(e);
        if (!witnesses[i].out.done) continue;
        done_at[i] = step;
        --left;
      }
      const Engine::Status now = engine.status();
      if (s.options.budget > 0 && now.bytes > s.options.budget)
        all.push_back(concat("seed ", s.seed, ", ", s.model->name, ": ", now.bytes, " bytes of a budget of ",
                             s.options.budget));
    }
    if (coverage) coverage->steps += static_cast<std::size_t>(step);
    for (std::size_t i = 0; i < s.requests.size(); ++i)
      if (cancelled_at[i] >= 0 && done_at[i] > cancelled_at[i])
        told(i, "cancelled for step ", cancelled_at[i], ", but done at ", done_at[i]);
    if (left == 0) check_empty(s, engine, all, coverage);
  }
  const std::vector<std::string> more = judge_all(s, witnesses, alone, coverage);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Steps of the plan are those that the other thread has counted so far.
std::vector<std::string> threaded_differences(const Schedule& s, Coverage* coverage) {
  std::vector<std::string> all;
  const std::vector<RequestOutcome> alone = all_alone(s);
  Witnesses witnesses;
  for (const PlannedRequest& p : s.requests) witnesses.emplace_back(s, p, true);
  {
    Engine engine(toy_device(), s.model->checkpoint, with_guesses(s, alone));
    std::vector<std::atomic<Engine::Id>> ids(s.requests.size());
    for (std::size_t i = 0; i < s.requests.size(); ++i)
      witnesses[i].act = [&, i] {
        const Engine::Id id = ids[s.requests[i].end == End::other ? at(s.requests[i].whom) : i];
        if (id != 0) engine.cancel(id);
      };
    std::atomic<int> steps{0};
    std::atomic<bool> all_added{false}, ended_stepping{false};
    std::mutex lock;  // of the next two
    std::vector<Event> events;
    std::vector<Engine::Id> done;
    std::thread stepping([&] {
      for (int n = 0; n < 2'000'000 && (!all_added || !engine.idle()); ++n) {
        const std::vector<Event> some = engine.step(s.prompt_rows[at(n) % s.prompt_rows.size()]);
        if (some.empty()) std::this_thread::yield();
        const std::lock_guard hold(lock);
        events.insert(events.end(), some.begin(), some.end());
        for (const Event& e : some)
          if (e.kind == Event::Kind::done) done.push_back(e.request);
        ++steps;
      }
      ended_stepping = true;
    });
    const auto is_done = [&](std::size_t i) {
      const std::lock_guard hold(lock);
      return !witnesses[i].out.refused.empty() || std::find(done.begin(), done.end(), ids[i]) != done.end();
    };
    std::vector<bool> ended(s.requests.size()), counted(s.requests.size());
    for (std::size_t left = s.requests.size(); left > 0 && !ended_stepping; std::this_thread::yield()) {
      // What a server asks meanwhile.
      for (const Engine::JobStatus& j : engine.jobs())
        if (j.read_tokens > j.prompt_tokens || j.reused_tokens > j.prompt_tokens || j.seconds < 0)
          all.push_back(concat("seed ", s.seed, ": job ", j.id, " is said to have read ", j.read_tokens,
                               " of ", j.prompt_tokens, " tokens"));
      const Engine::Status now = engine.status();
      if (!(engine.estimate_wait(100) >= 0) || now.suspended > now.waiting + now.running ||
          (engine.runnable() && engine.idle() && ended_stepping))
        all.push_back(concat("seed ", s.seed, ": a status that cannot be"));
      for (std::size_t i = 0; i < s.requests.size(); ++i) {
        const PlannedRequest& p = s.requests[i];
        if (ids[i] == 0 && witnesses[i].out.refused.empty()) {
          if (p.arrives > steps || (p.after >= 0 && !is_done(at(p.after)))) continue;
          try {
            ids[i] = engine.add(witnesses[i].request());
          } catch (const Error& e) {
            witnesses[i].out.refused = e.what();
          }
        }
        if (ids[i] != 0) engine.suspend(ids[i], p.resting(steps));
        if (ended[i] && !is_done(i)) continue;
        if (ended[i]) {
          left -= counted[i] ? 0 : 1;
          counted[i] = true;
          continue;
        }
        const bool cancels = ids[i] != 0 && (p.end == End::step || p.end == End::sample) && !is_done(i);
        if (cancels && p.when > steps) continue;
        if (cancels) engine.cancel(ids[i], p.end == End::sample ? p.whom : -1);
        ended[i] = true;
      }
    }
    all_added = true;
    stepping.join();
    for (const Event& e : events)
      for (std::size_t i = 0; i < s.requests.size(); ++i)
        if (ids[i] == e.request) witnesses[i].hear(e);
    if (coverage) coverage->steps += static_cast<std::size_t>(steps.load());
    if (engine.idle()) check_empty(s, engine, all, coverage);
  }
  const std::vector<std::string> more = judge_all(s, witnesses, alone, coverage);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace rapt::test
