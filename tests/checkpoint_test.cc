// SPDX-License-Identifier: Apache-2.0
// Checkpoints as files: llama2.c, names in RAPT_MODELS, untied tables in blocks, and the real models where
// they are.
#include "rapt/load/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "rapt/tensor/pack.h"
#include "tests/data.h"
#include "tests/tools.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class Variable {  // of the environment, for as long as it lives
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_) ::setenv(name_, old_->c_str(), 1);
    else ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

template <class T>
void put(std::string& out, const T* values, std::size_t count) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

// The toy SmolLM2 as llama2.c writes models: rows of each head in pairs order, all layers of one kind
// together.
std::string as_llama2c(Toy& toy, bool own_head) {
  const std::int32_t header[7] = {32, 52, 2, 4, 2, own_head ? -61 : 61, 128};
  std::string out;
  put(out, header, 7);
  auto tensor = [&](const std::string& name) {
    const auto& v = toy.tensor(name).values;
    put(out, v.data(), v.size());
  };
  auto layers = [&](const char* name) {
    for (int i = 0; i < 2; ++i) tensor(concat("model.layers.", i, ".", name, ".weight"));
  };
  auto turned = [&](const char* name) {
    for (int i = 0; i < 2; ++i) {
      const ToyTensor& t = toy.tensor(concat("model.layers.", i, ".", name, ".weight"));
      for (Dim r = 0; r < t.shape[0]; ++r) {
        const Dim head = r / 8, d = r % 8, ours = head * 8 + (d % 2 == 0 ? d / 2 : 4 + d / 2);
        put(out, t.values.data() + ours * 32, 32);
      }
    }
  };
  tensor("model.embed_tokens.weight");
  layers("input_layernorm");
  turned("self_attn.q_proj");
  turned("self_attn.k_proj");
  layers("self_attn.v_proj");
  layers("self_attn.o_proj");
  layers("post_attention_layernorm");
  layers("mlp.gate_proj");
  layers("mlp.down_proj");
  layers("mlp.up_proj");
  tensor("model.norm.weight");
  out.append(128 * 8 * 4, '\0');
  if (own_head) tensor("model.embed_tokens.weight");
  return out;
}

TEST(Checkpoint, Llama2cFilesAreTheSameModel) {
  Toy toy = read_toy("smollm2");
  Device device({.threads = 1});
  const TempFolder temp;
  for (const bool own_head : {false, true}) {
    put_file(temp / "model.bin", as_llama2c(toy, own_head));
    // llama2.c has one theta for all
    const Checkpoint c = open_checkpoint(temp / "model.bin", {.change = [](Recipe& r) {
                                           for (auto& [letter, layer] : r.decoder->kinds)
                                             layer.parts[0].self()->pos.rope.theta = 1e5;
                                         }});
    EXPECT_EQ(c.format, "llama2.c");
    EXPECT_EQ(c.family, "llama");
    EXPECT_LE(toy_distance(toy, c, device), 1e-4);
    EXPECT_TRUE(c.model->recipe.head.tied);  // the second matrix is the first
  }
  write_checkpoint(temp / "model.bin", temp / "model.gguf", {});
  write_checkpoint(temp / "model.bin", temp / "folder", {});
  for (const char* name : {"model.gguf", "folder"}) {
    const Checkpoint a = open_checkpoint(temp / "model.bin"), b = open_checkpoint(temp / name);
    ASSERT_EQ(a.model->weights.size(), b.model->weights.size());
    for (std::size_t i = 0; i < a.model->weights.size(); ++i)
      EXPECT_EQ(std::memcmp(a.model->weights[i].data.get(), b.model->weights[i].data.get(),
                            a.model->weights[i].bytes()),
                0)
          << a.model->weights[i].name;
  }
}

// 640 begins like a pickle: 0x80 0x02.
TEST(Checkpoint, Llama2cFilesOfEveryWidth) {
  const TempFolder temp;
  const std::string path = temp / "model.bin";
  for (const std::int32_t C : {640, 896}) {
    constexpr std::int32_t F = 4, L = 1, V = 3, T = 2;
    const std::int32_t header[7] = {C, F, L, 64, 1, V, T};
    std::string out;
    put(out, header, 7);
    const std::int32_t D = C / 64,
                       numbers = V * C + C + C * C + 2 * D * C + C * C + C + 3 * F * C + C + T * D;
    out.append(static_cast<std::size_t>(numbers) * 4, '\0');
    put_file(path, out);
    EXPECT_EQ(checkpoint_recipe(path).width, C);
    put_file(path, out.substr(0, 2) + std::string("}q\x01.......", 11));
    EXPECT_TRUE(holds(error_of([&] { checkpoint_recipe(path); }), "a pickle or PyTorch file"));
  }
}

TEST(Checkpoint, CheckLooksAtEveryNumber) {
  const TempFolder temp;
  Toy toy = read_toy("smollm2");
  for (const DType type : {DType::f32, DType::bf16}) {
    write_folder(toy, temp / "good", type);
    EXPECT_TRUE(holds(check_checkpoint(temp / "good")[1], "every number finite"));
    EXPECT_FALSE(holds(check_checkpoint(temp / "good", false)[1], "finite"));
    Toy bad = toy;
    bad.tensor("model.layers.1.mlp.up_proj.weight").values[32 * 5 + 7] =
        type == DType::f32 ? std::nanf("") : -INFINITY;
    write_folder(bad, temp / "bad", type);
    const std::string said = error_of([&] { check_checkpoint(temp / "bad"); });
    EXPECT_TRUE(holds(said, "tensor 'model.layers.1.mlp.up_proj.weight' [52,32]: row 5, column 7 is"))
        << said;
    EXPECT_FALSE(check_checkpoint(temp / "bad", false).empty());
    std::filesystem::remove_all(temp / "good");
    std::filesystem::remove_all(temp / "bad");
  }
}

// Words that have no row in the table of tokens show before the first text does; special tokens may.
TEST(Checkpoint, ATokenizerLargerThanTheModelIsFound) {
  const TempFolder temp;
  const std::string folder = temp / "toy";
  const Toy toy = read_toy("smollm2");  // 61 rows
  write_folder(toy, folder);
  const auto vocabulary = [&](int words, const std::string& added) {
    std::string text = R"({"version":"1.0","added_tokens":[)" + added +
                       R"(],"normalizer":null,"pre_tokenizer":null,"post_processor":null,)"
                       R"("decoder":null,"model":{"type":"BPE","merges":[],"vocab":{)";
    for (int i = 0; i < words; ++i)
      text += concat(i ? "," : "", "\"", static_cast<char>('A' + i % 26), static_cast<char>('a' + i / 26),
                     "\":", i);
    put_file(folder + "/tokenizer.json", text + "}}}");
  };
  vocabulary(61, "");
  EXPECT_EQ(error_of([&] { check_checkpoint(folder), open_checkpoint(folder); }), "");
  vocabulary(
      61,
      R"({"id":61,"content":"<image>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})");
  bool told = false;
  for (const std::string& line : check_checkpoint(folder))
    told = told || holds(line, "the last 1 of them are special and have no row");
  EXPECT_TRUE(told);
  EXPECT_EQ(error_of([&] { open_checkpoint(folder); }), "");
  vocabulary(63, "");
  for (const std::string& said :
       {error_of([&] { check_checkpoint(folder); }), error_of([&] { open_checkpoint(folder); })})
    EXPECT_TRUE(holds(said, "the tokenizer has 63 tokens, the model's table 61 rows: token 61 (")) << said;
}

TEST(Checkpoint, ModelsAreFoundByName) {
  const TempFolder temp;
  std::filesystem::create_directories(temp / "one");
  std::filesystem::create_directories(temp / "two/Some-Folder");
  put_file(temp / "two/Some-Folder/config.json", "{}");
  put_file(temp / "one/Alpha-7B.Q4_0.gguf", "GGUF");
  put_file(temp / "one/Alpine.gguf", "GGUF");
  const Variable models("RAPT_MODELS", temp / "one" + ":" + temp / "two");
  EXPECT_EQ(find_model("Alpine"), temp / "one/Alpine.gguf");
  EXPECT_EQ(find_model("Alpha-7B.Q4_0.gguf"), temp / "one/Alpha-7B.Q4_0.gguf");
  EXPECT_EQ(find_model("alpha"), temp / "one/Alpha-7B.Q4_0.gguf");
  EXPECT_EQ(find_model("some"), temp / "two/Some-Folder");
  EXPECT_EQ(find_model(temp / "one/Alpine.gguf"), temp / "one/Alpine.gguf");
  EXPECT_THROW(find_model("alp"), Error);  // two begin so
  try {
    find_model("Alpnie");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::missing);
    EXPECT_NE(std::string(e.what()).find("Alpine"), std::string::npos) << e.what();
  }
}

// The same rule everywhere: what a path leads to, then names, then presets where they count, then
// beginnings.
TEST(Checkpoint, NamesLeadToOneModel) {
  const TempFolder temp;
  for (const char* folder : {"here/Alpine", "here/llama3", "here/run/model", "here/run/step-2",
                             "here/begun/step-9", "here/begun/step-20", "here/begun/step-20.g2",
                             "here/begun/step-30", "here/one", "here/two", "models/default", "models/tiny"})
    std::filesystem::create_directories(temp / folder);
  for (const char* file :
       {"here/run/model/config.json", "here/run/step-2/config.json", "here/begun/step-9/config.json",
        "here/begun/step-20/config.json", "here/begun/step-20.g2/config.json", "models/tiny/config.json"})
    put_file(temp / file, "{}");
  for (const char* file :
       {"here/one/a.gguf", "here/two/a.gguf", "here/two/b.gguf", "models/Alpine.gguf", "models/llama3.gguf",
        "models/gpt2-medium.gguf", "models/qwen2.5.gguf", "models/qwen2.5-coder.gguf"})
    put_file(temp / file, "GGUF");
  put_file(temp / "here/my-recipe", "{}");
  const Variable models("RAPT_MODELS", temp / "models");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(temp / "here");
  EXPECT_EQ(find_model("Alpine"), temp / "models/Alpine.gguf");  // the empty folder Alpine is no model
  EXPECT_EQ(find_model("run"), "run/model");
  EXPECT_EQ(find_model("begun"), "begun/step-20.g2");  // step-30 is no model folder
  EXPECT_EQ(find_model("one"), "one/a.gguf");
  EXPECT_EQ(find_model("two"), "two");  // two files: opening it says what is wrong
  EXPECT_EQ(find_model("tin"), temp / "models/tiny");
  EXPECT_EQ(find_model("gpt2"), temp / "models/gpt2-medium.gguf");
  // A preset's whole name before the beginning of another.
  EXPECT_EQ(find_model_unless_recipe("gpt2"), "");
  EXPECT_EQ(find_model_unless_recipe("llama3"), temp / "models/llama3.gguf");
  EXPECT_EQ(find_model_unless_recipe("run"), "run/model");
  EXPECT_EQ(find_model_unless_recipe("my-recipe"), "");
  EXPECT_EQ(find_model_unless_recipe("nothing"), "");
  EXPECT_THROW(find_model_unless_recipe("nothing.gguf"), Error);
  EXPECT_THROW(find_model(""), Error);
  {
    const Variable none("RAPT_MODELS", "");
    EXPECT_EQ(find_model_unless_recipe("llama3"), "");  // the empty folder llama3 does not hide the preset
    EXPECT_EQ(find_recipe("llama3"), preset("llama3"));
  }
  EXPECT_EQ(find_model("qwen2.5-"), temp / "models/qwen2.5-coder.gguf");
  EXPECT_EQ(
      error_of([] { find_model("qwen2."); }),
      "qwen2.: begins the names of qwen2.5-coder.gguf, qwen2.5.gguf; write more of the one that is meant");
  put_file("gpt2", R"({"name": "mine"})");  // a file is a path, and a path comes first
  EXPECT_EQ(find_recipe("gpt2").name, "mine");
  std::filesystem::current_path(before);
}

// Every matrix, and an untied table of tokens, keeps the blocks of its file; norms are numbers.
TEST(Checkpoint, BlocksStayBlocks) {
  Toy toy = read_toy("smollm2");
  ToyTensor head = toy.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  for (float& x : head.values) x = -x;
  toy.tensors.push_back(head);
  const TempFolder temp;
  write_folder(toy, temp / "toy");
  Device device({.threads = 2});
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1}) {
    const std::string path = temp / concat(name_of(type), ".gguf");
    write_checkpoint(temp / "toy", path, {.type = type});
    const Checkpoint packed = open_checkpoint(path, {.device = &device}),
                     exact = open_checkpoint(path, {.matrices = DType::f32});
    int blocks = 0;
    for (std::size_t i = 0; i < packed.model->weights.size(); ++i) {
      const Weight &a = packed.model->weights[i], &b = exact.model->weights[i];
      if (!is_block(a.format)) continue;
      ++blocks;
      EXPECT_EQ(a.packing, Packing::panels);
      std::vector<float> row(static_cast<std::size_t>(a.cols));
      for (Dim r = 0; r < a.rows; ++r) {
        unpack_row(a, r, row);
        for (Dim c = 0; c < a.cols; ++c)
          ASSERT_EQ(row[static_cast<std::size_t>(c)], static_cast<float>(b.get(r, c)))
              << a.name << " " << r << " " << c;
      }
    }
    EXPECT_EQ(blocks, 2 * 6 + 2) << name_of(type);  // q, k, v, o, gate, up; down has rows of 52
    EXPECT_EQ(packed.model->weight("embed.tokens").format, type);
    EXPECT_EQ(packed.model->weight("decoder.0.self.norm_in.weight").format, DType::f32);
  }
}

TEST(Checkpoint, RealModelsAreUnderstood) {
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf", "all-MiniLM-L6-v2"})
    if (!model_file(name)) GTEST_SKIP() << no_model(name);
  struct Case {
    const char *name, *family;
    Dim width, vocab, layers;
  };
  for (const Case& c : {Case{"SmolLM2-135M-Instruct.Q4_1.gguf", "llama", 576, 49152, 30},
                        Case{"gemma-3-270m-q4_k_m.gguf", "gemma3", 640, 262144, 18},
                        Case{"all-MiniLM-L6-v2", "bert", 384, 30522, 6}}) {
    const Recipe r = checkpoint_recipe(c.name);
    EXPECT_EQ(r.name, c.family);
    EXPECT_EQ(r.width, c.width);
    EXPECT_EQ(r.vocab, c.vocab);
    EXPECT_EQ((r.decoder ? r.decoder : r.encoder)->layers, c.layers);
    EXPECT_FALSE(check_checkpoint(c.name).empty());
  }
  const Recipe gemma = checkpoint_recipe("gemma-3-270m-q4_k_m.gguf");
  EXPECT_EQ(gemma.decoder->pattern, "LLLLLG");
  EXPECT_EQ(gemma.decoder->layer(5).parts[0].self()->pos.rope.theta, 1e6);
  EXPECT_EQ(gemma.decoder->layer(0).parts[0].self()->window, 512);
  // A GGUF has the one added already.
  EXPECT_EQ(gemma.decoder->layer(0).parts[0].norm_in->weight, NormRecipe::Gain::one);
}

}  // namespace
}  // namespace rapt::test
