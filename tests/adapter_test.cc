// SPDX-License-Identifier: Apache-2.0
// LoRA adapters: values of PEFT (tests/golden/adapters) from both forms of files, the matrices merged by
// hand, bits beside other adapters and none, what an engine shares between requests, files that are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "rapt/io/gguf.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/adapter.h"
#include "rapt/tensor/formats.h"
#include "tests/adapter_tools.h"
#include "tests/engine_world.h"
#include "tests/memory_checkpoint.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

const std::vector<std::string>& peft_toys() {
  static const std::vector<std::string> names = {"llama", "gpt2", "qwen2", "phi3", "gemma3", "t5", "bert"};
  return names;
}

// As llama.cpp's converter writes it, with one alpha for the whole file.
void write_adapter_gguf(const PeftToy& toy, const Checkpoint& c, const std::string& path, double alpha) {
  const Family* family = nullptr;
  for (const Family& f : families())
    if (f.name == c.family) family = &f;
  ASSERT_NE(family, nullptr);
  std::map<std::string, std::string> names, ours;  // of a folder -> of a GGUF file, and our own
  for (const Weight& w : c.model->weights)
    for (const std::string& theirs : family->tensor_names(Form::folder, w.name))
      if (const auto gguf = family->tensor_names(Form::gguf, w.name); !gguf.empty())
        names.emplace(theirs, gguf[0]), ours.emplace(theirs, w.name);
  std::vector<ToyTensor> tensors;
  for (ToyTensor t : toy.adapter.tensors) {
    const bool b = t.name.find(".lora_B.") != std::string::npos;
    std::string module = t.name.substr(0, t.name.find(b ? ".lora_B." : ".lora_A."));
    module = module.substr(std::string("base_model.model.").size()) + ".weight";
    ASSERT_TRUE(names.contains(module)) << module;
    if (b && family->name == "llama" && (holds(module, "q_proj") || holds(module, "k_proj"))) {
      const Dim rank = t.shape[1], head = 8, half = head / 2;
      const std::vector<float> from = t.values;
      for (Dim r = 0; r < t.shape[0]; ++r)  // row 2i + j of a head was row i + j * half
        for (Dim i = 0; i < rank; ++i)
          t.values[static_cast<std::size_t>(r * rank + i)] = from[static_cast<std::size_t>(
              (r / head * head + r % head % 2 * half + r % head / 2) * rank + i)];
    }
    t.name = names[module] + (b ? ".lora_b" : ".lora_a");
    tensors.push_back(std::move(t));
  }
  std::vector<GgufTensorPlan> plan;
  for (const ToyTensor& t : tensors)
    plan.push_back({t.name, DType::f32, t.shape,
                    [&t](FileWriter& out) { out.write(std::as_bytes(std::span(t.values))); }});
  const std::vector<std::pair<std::string, GgufValue>> keys = {
      {"general.architecture", GgufValue::text(family->gguf_arch())},
      {"general.type", GgufValue::text("adapter")},
      {"adapter.type", GgufValue::text("lora")},
      {"adapter.lora.alpha", GgufValue::f32(static_cast<float>(alpha))}};
  write_gguf(path, keys, plan, true);
}

Tensor run_batch(rapt::Run& run, const Model& model, const Toy& toy, std::size_t s,
                 std::span<const AdapterUse> uses) {
  const Json *types = toy.json.find("types"), *sources = toy.json.find("source_sequences");
  const auto tokens = ids_of(need(toy.json, "sequences").array()[s]);
  const auto kinds = types ? ids_of(types->array()[s]) : std::vector<std::int32_t>{};
  const auto source = sources ? ids_of(sources->array()[s]) : std::vector<std::int32_t>{};
  const Batch batch{.tokens = tokens,
                    .sequences = {{.first = 0, .count = static_cast<Dim>(tokens.size()), .adapters = uses}},
                    .types = kinds};
  const Batch from{.tokens = source,
                   .sequences = {{.first = 0, .count = static_cast<Dim>(source.size()), .adapters = uses}}};
  return forward(run, model, batch, source.empty() ? nullptr : &from);
}

// From what PEFT computed.
double peft_distance(const PeftToy& toy, const Checkpoint& c, std::shared_ptr<const Adapter> adapter,
                     Device& device) {
  const std::vector<AdapterUse> uses = {{std::move(adapter), 1}};
  double worst = 0;
  for (std::size_t s = 0; s < need(toy.adapter.json, "sequences").array().size(); ++s) {
    rapt::Run run(device);
    const Tensor y = run_batch(run, *c.model, toy.adapter, s, uses);
    const auto rows = ids_of(need(toy.adapter.json, "rows").array()[s]);
    const auto& want = need(toy.adapter.json, "logits").array()[s].array();
    if (want.size() != rows.size() * static_cast<std::size_t>(y.last())) return INFINITY;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto V = static_cast<std::size_t>(y.last());
      const double d = std::abs(y.at(rows[i / V] * y.last() + static_cast<Dim>(i % V)) - want[i].number());
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
  }
  return worst;
}

// ------------------------------------------------------------------------------------------------ values
TEST(Adapter, ToysGivePeftsLogitsFromBothForms) {
  for (const std::string& name : peft_toys()) {
    SCOPED_TRACE(name);
    const PeftToy toy = read_peft_toy(name);
    const TempFolder temp;
    write_folder(toy.model, temp / "toy");
    const Checkpoint c = open_checkpoint(temp / "toy", {.device = &toy_device()});
    write_adapter_folder(toy.adapter, temp / "adapter");
    const auto adapter = load_adapter(temp / "adapter", c);
    EXPECT_LE(peft_distance(toy, c, adapter, toy_device()), 1e-4);
    EXPECT_GT(peft_distance(toy, c, drawn_adapter(*c.model, 9, 2), toy_device()), 0.1);
    // Of half the digits, kept as they are stored.
    write_adapter_folder(toy.adapter, temp / "half", DType::f16);
    const auto half = load_adapter(temp / "half", c);
    EXPECT_EQ(half->terms[0].b.format, DType::f16);
    EXPECT_LE(peft_distance(toy, c, half, toy_device()), 0.02);
    EXPECT_NE(half->hash, adapter->hash);
    EXPECT_EQ(load_adapter(temp / "adapter/adapter_model.safetensors", c)->hash, adapter->hash);
    // One alpha for all: alpha / r, and here alpha / sqrt(r) by another alpha.
    const bool patterned = toy.adapter.config.find("alpha_pattern")->object().begin() !=
                           toy.adapter.config.find("alpha_pattern")->object().end();
    if (patterned || name == "t5") continue;
    const double r = need(toy.adapter.config, "r").number();
    const bool stable = need(toy.adapter.config, "use_rslora").boolean();
    write_adapter_gguf(toy, c, temp / "adapter.gguf",
                       need(toy.adapter.config, "lora_alpha").number() * (stable ? std::sqrt(r) : 1));
    EXPECT_LE(peft_distance(toy, c, load_adapter(temp / "adapter.gguf", c), toy_device()), 1e-4);
    if (name == "bert") continue;  // its head has no GGUF form
    // The model from a GGUF file, the adapter from a folder.
    write_checkpoint(temp / "toy", temp / "toy.gguf", {});
    const Checkpoint gguf = open_checkpoint(temp / "toy.gguf", {.device = &toy_device()});
    EXPECT_LE(peft_distance(toy, gguf, load_adapter(temp / "adapter", gguf), toy_device()), 1e-4);
    EXPECT_LE(peft_distance(toy, gguf, load_adapter(temp / "adapter.gguf", gguf), toy_device()), 1e-4);
  }
}

// W + scale * B A in the place of W: attention, cross-attention, experts beside a shared one, states,
// convolutions.
TEST(Adapter, EveryPartComputesWhatMergedMatricesDo) {
  for (const ToyModel& toy : toy_models()) {
    if (toy.recurrent()) continue;
    SCOPED_TRACE(toy.name);
    const Checkpoint plain = memory_checkpoint(toy.recipe(), 31),
                     merged = memory_checkpoint(toy.recipe(), 31);
    const auto adapter = drawn_adapter(*plain.model, 4, 3);
    EXPECT_GE(adapter->terms.size(), 3u);
    for (const Adapter::Term& t : adapter->terms) {
      Weight& w = merged.model->weights[static_cast<std::size_t>(t.of->index)];
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) {
          double sum = 0;
          for (Dim i = 0; i < t.a->rows; ++i) sum += t.b.get(r, i) * t.a->get(i, c);
          w.set(r, c, w.get(r, c) + 0.25 * static_cast<double>(t.scale) * sum);
        }
    }
    std::vector<std::int32_t> tokens = prompt_text(30), source = prompt_text(17, 5);
    const auto result = [&](const Model& model, std::span<const AdapterUse> uses) {
      rapt::Run run(toy_device());
      const Batch batch{.tokens = tokens, .sequences = {{.first = 0, .count = 30, .adapters = uses}}},
          from{.tokens = source, .sequences = {{.first = 0, .count = 17, .adapters = uses}}};
      return all_values(forward(run, model, batch, toy.translates() ? &from : nullptr));
    };
    const std::vector<AdapterUse> uses = {{adapter, 0.25f}};
    const std::vector<double> got = result(*plain.model, uses), want = result(*merged.model, {}),
                              without = result(*plain.model, {});
    double worst = 0, moved = 0, largest = 1;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - want[i]));
      moved = std::max(moved, std::abs(without[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    EXPECT_LE(worst, 1e-4 * largest);
    EXPECT_GT(moved, 100 * worst);
  }
}

// ------------------------------------------------------------------------------------------------ bits
struct PassReader {
  const Model& model;
  DType cache = DType::f32;
  // Texts of many lengths, each with its adapters, in one pass; the results' bits, text by text.
  std::vector<std::vector<double>> read(std::span<const std::vector<AdapterUse>> uses,
                                        std::span<const std::size_t> which, Taps* taps = nullptr) const {
    rapt::Run run(toy_device());
    run.taps = taps;
    Batch batch;
    std::vector<std::int32_t> all;
    for (const std::size_t i : which) {
      const auto text = prompt_text(5 + 7 * static_cast<Dim>(i), 40 + i);
      batch.sequences.push_back({.first = static_cast<Dim>(all.size()),
                                 .count = static_cast<Dim>(text.size()),
                                 .id = i,
                                 .adapters = uses[i]});
      all.insert(all.end(), text.begin(), text.end());
    }
    batch.tokens = all;
    const Tensor y = forward(run, model, batch);
    std::vector<std::vector<double>> out;
    for (const Sequence& s : batch.sequences) out.push_back(all_values(y.slice(s.first, s.count)));
    return out;
  }
};

TEST(Adapter, RowsOfManyAdaptersAndOfNoneKeepTheirBits) {
  const TempFolder temp;
  write_folder(read_toy("smollm2"), temp / "toy");
  const Checkpoint blocks = open_checkpoint(temp / "toy", {.matrices = DType::q8_0, .device = &toy_device()});
  std::vector<const Model*> models = {blocks.model.get()};
  for (const char* name : {"gqa", "sinks", "experts", "latent", "delta", "conv"})
    models.push_back(toy_model(name).checkpoint.model.get());
  for (const Model* model : models) {
    SCOPED_TRACE(model->recipe.name);
    const auto a = drawn_adapter(*model, 1, 3), b = drawn_adapter(*model, 2, 40, DType::bf16);
    const std::vector<std::vector<AdapterUse>> uses = {
        {}, {{a, 1}}, {{b, 1}}, {{a, 1}}, {}, {{a, 0.5f}, {b, 1}}, {{a, 0.5f}}};
    const std::vector<std::vector<AdapterUse>> none(uses.size());
    const PassReader reader{*model};
    const std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5, 6}, other = {5, 3, 1, 6, 0, 2, 4};
    const auto together = reader.read(uses, order), again = reader.read(uses, other);
    Taps taps;  // what makes sums be computed by themselves
    int seen = 0;
    for (const Site site : {site::attn_out, site::ffn_out, site::part_out, site::resid_in})
      taps.see(site, [&](const Tapped&) { ++seen; });
    const auto watched = reader.read(uses, order, &taps);
    EXPECT_GT(seen, 0);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const std::size_t one[] = {i};
      const auto alone = reader.read(uses, one)[0], plain = reader.read(none, one)[0];
      EXPECT_EQ(together[i], alone) << i;
      EXPECT_EQ(watched[i], alone) << i;
      EXPECT_EQ(again[static_cast<std::size_t>(std::ranges::find(other, i) - other.begin())], alone) << i;
      EXPECT_EQ(alone == plain, uses[i].empty()) << i;
    }
  }
}

// ------------------------------------------------------------------------------------------------ the engine
TEST(Adapter, RequestsWithOthersAndWithoutShareAPass) {
  for (const char* model : {"gqa", "windows", "translator", "delta"}) {
    SCOPED_TRACE(model);
    const ToyModel& toy = toy_model(model);
    std::vector<Request> asked;
    for (std::uint64_t i = 0; i < 6; ++i) {
      Request r = asks(prompt_text(toy.translates() ? 3 : 70, i / 3), 12);
      if (toy.translates()) r.source = prompt_text(20, i / 3);
      r.adapters.emplace();
      if (i % 3 != 2) r.adapters->push_back({toy.adapters[i % 3], 1});
      asked.push_back(std::move(r));
    }
    // A pool with room for few, so that some pause.
    const KvPool pool(*toy.checkpoint.model);
    for (const std::size_t budget : {std::size_t{0}, 7 * std::max(pool.page_bytes(), pool.state_bytes())}) {
      EngineWorld w({.budget = budget, .prefixes = true}, model);
      std::vector<Engine::Id> ids;
      for (const Request& r : asked) ids.push_back(w.engine.add(r));
      w.finish_all();
      for (std::size_t i = 0; i < asked.size(); ++i)
        EXPECT_TRUE(same_answer(w.answer(ids[i]), said_alone(asked[i], model))) << i;
    }
    EXPECT_FALSE(same_answer(said_alone(asked[0], model), said_alone(asked[2], model)));
    EXPECT_FALSE(same_answer(said_alone(asked[0], model), said_alone(asked[1], model)));
  }
}

TEST(Adapter, PrefixesAreThoseOfOneAdapterAndScale) {
  EngineWorld w({.prefixes = true});
  const auto& list = w.toy.adapters;
  const auto reused = [&](std::vector<AdapterUse> uses) {
    Request r = asks(prompt_text(140), 2);
    r.adapters = std::move(uses);
    const Engine::Id id = w.engine.add(std::move(r));
    w.finish_all();
    return w.reused(id);
  };
  EXPECT_EQ(reused({}), 0);
  EXPECT_EQ(reused({}), 128);
  EXPECT_EQ(reused({{list[0], 0}}), 128);  // nothing is added
  EXPECT_EQ(reused({{list[0], 1}}), 0);
  EXPECT_EQ(reused({{list[0], 1}}), 128);
  EXPECT_EQ(reused({{list[0], 0.5f}}), 0);
  EXPECT_EQ(reused({{list[1], 1}}), 0);
  EXPECT_EQ(reused({{list[0], 1}, {list[1], 1}}), 0);
  EXPECT_EQ(reused({{list[1], 1}, {list[0], 1}}), 0);
  EXPECT_EQ(reused({{list[1], 1}}), 128);
}

TEST(Adapter, TheCheckpointsOwnIsUsedWhereNothingElseIsSaid) {
  Checkpoint c = memory_checkpoint(toy_model("gqa").recipe(), 6);
  const auto answer = [&](const Request& r) {
    Engine engine(toy_device(), c, {});
    return engine.finish(engine.add(r)).samples[0];
  };
  Request r = asks(prompt_text(20), 8);
  const Generated plain = answer(r);
  const AdapterUse use{drawn_adapter(*c.model, 1, 3), 1};
  r.adapters = {use};
  const Generated with = answer(r);
  EXPECT_NE(with.hash, plain.hash);
  c.adapters = {use};
  r.adapters.reset();
  EXPECT_EQ(answer(r).hash, with.hash);
  r.adapters.emplace();
  EXPECT_EQ(answer(r).hash, plain.hash);
}

TEST(Adapter, AnothersModelAndATapeAreRefused) {
  EngineWorld w;
  Request r = asks(prompt_text(10), 5);
  r.adapters = {{toy_model("windows").adapters[0], 1}};
  EXPECT_TRUE(holds(error_of([&] { w.engine.add(r); }), "was not loaded for this model"));
  r.adapters = {{w.toy.adapters[0], NAN}};
  EXPECT_TRUE(holds(error_of([&] { w.engine.add(r); }), "has the scale nan"));
  const std::vector<AdapterUse> uses = {{w.toy.adapters[0], 1}},
                                wrong = {{toy_model("windows").adapters[0], 1}};
  const std::vector<std::int32_t> tokens = prompt_text(4);
  rapt::Run run(toy_device());
  Batch batch{.tokens = tokens, .sequences = {{.first = 0, .count = 4, .adapters = wrong}}};
  const Model& model = *w.toy.checkpoint.model;
  EXPECT_TRUE(holds(error_of([&] { forward(run, model, batch); }), "made for another model"));
  batch.sequences[0].adapters = uses;
  Gradients gradients(DType::f32);
  Tape tape(gradients);
  run.tape = &tape;
  EXPECT_TRUE(holds(error_of([&] { forward(run, model, batch); }), "nothing is differentiated"));
}

// ------------------------------------------------------------------------------------------------ bad files
TEST(Adapter, BadFilesAreRefusedByName) {
  const PeftToy good = read_peft_toy("llama");
  const TempFolder temp;
  write_folder(good.model, temp / "toy");
  const Checkpoint c = open_checkpoint(temp / "toy", {.device = &toy_device()});
  int number = 0;
  const auto refused = [&](const char* words, const std::function<void(Toy&)>& change) {
    Toy bad = good.adapter;
    change(bad);
    const std::string folder = temp / concat("bad", number++);
    write_adapter_folder(bad, folder);
    const std::string said = error_of([&] { load_adapter(folder, c); });
    EXPECT_TRUE(holds(said, words)) << "'" << said << "' does not say '" << words << "'";
  };
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  const auto set = [](const char* key, Json value) {
    return [key, value](Toy& t) { t.config.set(key, value); };
  };
  const auto shape = [&](const std::string& name, std::vector<Dim> to) {
    return [=](Toy& t) {
      ToyTensor& one = t.tensor(name);
      one.shape = to;
      Dim n = 1;
      for (const Dim d : to) n *= d;
      one.values.resize(static_cast<std::size_t>(n));
    };
  };
  const auto rename = [](std::string from, std::string to) { return [=](Toy& t) { t.rename(from, to); }; };
  refused("peft_type is \"LOHA\"", set("peft_type", "LOHA"));
  refused("use_dora is true", set("use_dora", true));
  refused("lora_bias is true", set("lora_bias", true));
  refused("bias is \"all\"", set("bias", "all"));
  refused("init_lora_weights is \"pissa\"", set("init_lora_weights", "pissa"));
  refused("lora_alpha: wants a number", set("lora_alpha", "8"));
  refused("alpha_pattern: \"layers.[0-9]+\" is a regular expression",
          set("alpha_pattern", parse_json(R"({"layers.[0-9]+": 2})", "")));
  refused("its other factor, lora_B, is missing", [&](Toy& t) { t.remove(q + "B.weight"); });
  refused("its other factor, lora_A, is missing", [&](Toy& t) { t.remove(q + "A.weight"); });
  refused("the model's matrix is [32,32]", shape(q + "A.weight", {4, 33}));
  refused("with one rank r", shape(q + "A.weight", {5, 32}));
  refused("the model's matrix is [32,32]", shape(q + "B.weight", {31, 4}));
  refused("has two axes", shape(q + "A.weight", {128}));
  refused("has two axes", shape(q + "B.weight", {32, 2, 2}));
  refused("from 1 to 4096", [&](Toy& t) {
    shape(q + "A.weight", {5000, 32})(t);
    shape(q + "B.weight", {32, 5000})(t);
  });
  refused("element 7 is nan", [&](Toy& t) { t.tensor(q + "A.weight").values[7] = NAN; });
  refused("element 0 is inf", [&](Toy& t) { t.tensor(q + "B.weight").values[0] = INFINITY; });
  refused("does not have; the nearest that it has: 'model.layers.0.self_attn.q_proj.weight'",
          rename(q, "base_model.model.model.layers.0.self_attn.qq_proj.lora_"));
  refused("does not have", rename(q, "base_model.model.model.layers.7.self_attn.q_proj.lora_"));
  refused("which no adapter can change here", rename(q, "base_model.model.model.norm.lora_"));
  refused("which no adapter can change here", rename(q, "base_model.model.model.embed_tokens.lora_"));
  refused("changes a table of embeddings",
          rename(q + "A.weight", "base_model.model.model.embed_tokens.lora_embedding_A"));
  refused("DoRA",
          rename(q + "A.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"));
  refused("biases that came out",
          rename(q + "A.weight", "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias"));
  refused("modules_to_save", rename(q + "A.weight", "base_model.model.lm_head.weight"));
  refused("are the same factor of one matrix", [&](Toy& t) {
    t.tensors.push_back(t.tensor(q + "A.weight"));
    t.tensors.back().name = q + "A.default.weight";
  });
  refused("is not the model's own", [&](Toy& t) {
    t.tensors.push_back(t.tensor(q + "A.weight"));
    t.tensors.back().name = "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight";
  });
  refused("is not the model's own", [&](Toy& t) {
    t.tensors.push_back(Toy(good.model).tensor("model.layers.1.self_attn.q_proj.weight"));
    t.tensors.back().name = "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight";
  });
  refused("there is no tensor in it", [](Toy& t) { t.tensors.clear(); });
  EXPECT_TRUE(holds(error_of([&] { load_adapter(temp / "nothing", c); }), "there is no such file"));
  EXPECT_TRUE(
      holds(error_of([&] { load_adapter(temp / "toy", c); }), "adapter_model.safetensors is missing"));
  put_file(temp / "toy/adapter_model.bin", "x");
  EXPECT_TRUE(holds(error_of([&] { load_adapter(temp / "toy", c); }), "pickle"));
  // A whole model, and another model's adapter.
  write_checkpoint(temp / "toy", temp / "toy.gguf", {});
  EXPECT_TRUE(holds(error_of([&] { load_adapter(temp / "toy.gguf", c); }), "general.type"));
  const PeftToy other = read_peft_toy("phi3");
  write_folder(other.model, temp / "phi");
  const Checkpoint phi = open_checkpoint(temp / "phi", {.device = &toy_device()});
  write_adapter_gguf(other, phi, temp / "phi.gguf", 4);
  EXPECT_TRUE(
      holds(error_of([&] { load_adapter(temp / "phi.gguf", c); }), "general.architecture is \"phi3\""));
  EXPECT_TRUE(holds(error_of([&] { open_checkpoint(temp / "phi.gguf"); }), "no whole model"));
}

TEST(Adapter, AScaleMayFollowTheFile) {
  const PeftToy toy = read_peft_toy("llama");
  const TempFolder temp;
  write_folder(toy.model, temp / "toy");
  const Checkpoint c = open_checkpoint(temp / "toy", {.device = &toy_device()});
  write_adapter_folder(toy.adapter, temp / "a");
  write_adapter_folder(toy.adapter, temp / "b=1");
  EXPECT_EQ(load_adapter_use(temp / "a", c).scale, 1);
  EXPECT_EQ(load_adapter_use(temp / "a=0.5", c).scale, 0.5f);
  EXPECT_EQ(load_adapter_use(temp / "a=-2", c).scale, -2);
  EXPECT_EQ(load_adapter_use(temp / "b=1", c).scale, 1);  // a file that is really called so
  for (const char* bad : {"a=", "a=x", "a=1x", "a=nan", "a=inf"})
    EXPECT_TRUE(holds(error_of([&] { load_adapter_use(temp / bad, c); }), "is no scale")) << bad;
}

}  // namespace
}  // namespace rapt::test
