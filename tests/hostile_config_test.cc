// SPDX-License-Identifier: Apache-2.0
// Config files, indexes and GGUF keys that lie, contradict each other or are no such files: every one ends
// in an error with the right words, without memory for what it claims.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>

#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

std::string outcome_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another exception: ") + e.what();
  }
  return "no error";
}

struct WordTable {
  std::vector<const char*> all;
  WordTable(std::initializer_list<const char*> words) : all(words) {}
};
void expect_words(const std::string& what, const std::string& message, const WordTable& words) {
  for (const char* w : words.all)
    EXPECT_NE(message.find(w), std::string::npos) << what << ": '" << w << "' is not in: " << message;
  EXPECT_LT(message.size(), 2000u) << what;
}

long peak_kib() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss;
}

// ---------------------------------------------------------------------------------- config.json, key by key
struct Edit {
  const char *toy, *key, *value;  // value: JSON; "" removes the key
  WordTable words;
};

const std::vector<Edit>& edits() {
  static const std::vector<Edit> all = {
      {"llama1", "model_type", "\"llamma\"", {"model_type", "llamma", "llama"}},
      {"llama1", "model_type", "7", {"model_type", "string"}},
      {"llama1", "model_type", "\"mamba\"", {"model_type", "mamba", "known"}},
      {"llama1", "hidden_size", "", {"hidden_size", "missing"}},
      {"llama1", "hidden_size", "null", {"hidden_size", "missing"}},
      {"llama1", "hidden_size", "\"36\"", {"hidden_size", "whole number", "string"}},
      {"llama1", "hidden_size", "36.5", {"hidden_size", "whole number", "36.5"}},
      {"llama1", "hidden_size", "-36", {"hidden_size", "negative", "-36"}},
      {"llama1", "hidden_size", "0", {"width", "at least 1"}},
      {"llama1", "hidden_size", "9223372036854775807", {"hidden_size", "larger"}},
      {"llama1", "hidden_size", "1e300", {"hidden_size"}},
      {"llama1", "hidden_size", "[36]", {"hidden_size", "whole number"}},
      {"llama1", "hidden_size", "37", {"shape", "asks for"}},
      {"llama1", "hidden_size", "2147483648", {"width"}},
      {"llama1", "num_hidden_layers", "0", {"layers", "at least 1"}},
      {"llama1", "num_hidden_layers", "-1", {"num_hidden_layers", "negative"}},
      {"llama1", "num_hidden_layers", "10001", {"layers", "at most"}},
      {"llama1", "num_hidden_layers", "10000", {"missing", "model.layers.2."}},
      {"llama1", "num_hidden_layers", "2000000000", {"layers", "at most"}},
      {"llama1", "num_hidden_layers", "true", {"num_hidden_layers", "whole number"}},
      {"llama1", "num_attention_heads", "0", {"heads", "at least 1"}},
      {"llama1", "num_attention_heads", "5", {"kv_heads"}},
      {"llama1", "num_attention_heads", "2147483647", {"heads"}},
      {"llama1", "num_attention_heads", "{}", {"num_attention_heads", "object"}},
      {"llama1", "num_key_value_heads", "3", {"kv_heads", "divisor"}},
      {"llama1", "num_key_value_heads", "8", {"kv_heads"}},
      {"llama1", "num_key_value_heads", "2", {"shape", "k_proj"}},
      {"llama1", "head_dim", "13", {"head_dim", "pairs"}},
      {"llama1", "head_dim", "-12", {"head_dim", "negative"}},
      {"llama1", "head_dim", "10", {"shape", "asks for"}},
      {"llama1", "intermediate_size", "53", {"shape", "mlp"}},
      {"llama1", "intermediate_size", "1073741824", {"shape", "1073741824"}},
      {"llama1", "vocab_size", "62", {"shape", "embed_tokens", "[62,36]", "[61,36]"}},
      {"llama1", "vocab_size", "0", {"vocab"}},
      {"llama1", "vocab_size", "1000000000000", {"vocab_size", "larger"}},
      {"llama1", "max_position_embeddings", "0", {"context", "at least 1"}},
      {"llama1", "max_position_embeddings", "\"long\"", {"max_position_embeddings", "whole number"}},
      {"llama1", "rms_norm_eps", "-1e-5", {"eps"}},
      {"llama1", "rms_norm_eps", "\"1e-5\"", {"rms_norm_eps", "number"}},
      {"llama1", "rms_norm_eps", "1e999", {"config.json"}},
      {"llama1", "hidden_act", "\"swiglu\"", {"hidden_act", "swiglu", "silu"}},
      {"llama1", "hidden_act", "3", {"hidden_act", "activation"}},
      {"llama1", "tie_word_embeddings", "\"yes\"", {"tie_word_embeddings", "true or false"}},
      {"llama1", "attention_bias", "true", {"attention_bias", "agree"}},
      {"llama1", "mlp_bias", "1", {"mlp_bias", "true or false"}},
      {"llama1", "rope_parameters", "[]", {"rope_parameters", "object"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "spiral", "rope_theta": 10000})",
       {"rope_type", "spiral", "known"}},
      {"llama1", "rope_parameters", R"({"rope_type": 3})", {"rope_type", "string"}},
      {"llama1", "rope_parameters", R"({"rope_theta": -1})", {"theta", "above 0"}},
      {"llama1", "rope_parameters", R"({"rope_theta": "big"})", {"rope_theta", "number"}},
      {"llama1", "rope_parameters", R"({"rope_type": "linear", "rope_theta": 10000})", {"linear", "factor"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "linear", "rope_theta": 10000, "factor": 0})",
       {"factor", "above 0"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "llama3", "rope_theta": 10000, "factor": 8})",
       {"llama3", "original_max_position_embeddings"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "llama3", "rope_theta": 1e4, "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 64})",
       {"high_freq", "above low_freq"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1], "long_factor": [1], "original_max_position_embeddings": 32})",
       {"short_factor", "entries", "6"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "longrope", "rope_theta": 1e4, "short_factor": 1, "long_factor": [1]})",
       {"short_factor", "list"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "longrope", "rope_theta": 1e4, "short_factor": ["a"], "long_factor": [1]})",
       {"short_factor", "numbers"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4, "beta_fast": 1, "beta_slow": 32})",
       {"beta_fast", "beta_slow"}},
      {"llama1",
       "rope_parameters",
       R"({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4, "truncate": 1})",
       {"truncate", "true or false"}},
      {"llama1", "quantization_config", R"({"quant_method": "gptq"})", {"quantization_config", "GGUF"}},
      {"llama1", "partial_rotary_factor", "2", {"part"}},
      {"gemma3", "layer_types", R"(["full_attention"])", {"layer_types", "1 entries", "7 layers"}},
      {"gemma3", "layer_types", "\"full_attention\"", {"layer_types", "list"}},
      {"gemma3",
       "layer_types",
       R"(["a","a","a","a","a","a","a"])",
       {"layer_types", "\"a\"", "sliding_attention"}},
      {"gemma3", "layer_types", "[1,2,3,4,5,6,7]", {"layer_types", "known"}},
      {"gemma3", "sliding_window", "-5", {"sliding_window", "negative"}},
      {"gemma3", "query_pre_attn_scalar", "0", {"scalar", "above 0"}},
      {"gemma3", "query_pre_attn_scalar", "-4", {"scalar", "above 0"}},
      {"gemma3", "model_type", "\"gemma3n\"", {"model_type", "gemma3n"}},
      {"gemma2", "attn_logit_softcapping", "-1", {"cap"}},
      {"qwen2-window", "use_sliding_window", "\"no\"", {"use_sliding_window", "true or false"}},
      {"qwen3", "head_dim", "null", {"shape", "asks for"}},  // 128 is the library's default
      {"bert",
       "position_embedding_type",
       "\"relative_key\"",
       {"position_embedding_type", "relative_key", "absolute"}},
      {"bert", "is_decoder", "true", {"is_decoder"}},
      {"bert", "type_vocab_size", "3", {"shape", "token_type_embeddings"}},
      {"bert", "max_position_embeddings", "41", {"shape", "position_embeddings"}},
      {"gpt2", "scale_attn_by_inverse_layer_idx", "true", {"scale_attn_by_inverse_layer_idx"}},
      {"gpt2", "n_head", "5", {"heads"}},
      {"gpt2", "n_positions", "127", {"shape", "wpe"}},
      {"gpt2", "activation_function", "\"gelu_gelu\"", {"activation_function", "gelu"}},
      {"t5", "feed_forward_proj", "\"gated-\"", {"feed_forward_proj", "gated-"}},
      {"t5", "feed_forward_proj", "\"gated-gelu\"", {"missing", "wi_0"}},
      {"t5", "relative_attention_num_buckets", "1", {"bucket"}},
      {"t5", "relative_attention_max_distance", "2", {"bucket.max"}},
      {"t5", "d_kv", "0", {"heads", "divisible"}},
      {"t5", "decoder_start_token_id", "\"pad\"", {"decoder_start_token_id", "token id"}},
      {"llama1", "eos_token_id", "{\"id\": 2}", {"eos_token_id", "token id"}},
      {"marian", "share_encoder_decoder_embeddings", "false", {"model.decoder.embed_tokens", "missing"}},
      // two tables, offsets, shared layers, narrow vectors
      {"roberta", "max_position_embeddings", "39", {"position_embeddings", "[40,36]", "[39,36]"}},
      {"roberta", "max_position_embeddings", "1", {"max_position_embeddings", "negative"}},
      {"roberta", "pad_token_id", "0", {"pad_token_id", "not built"}},
      {"roberta", "type_vocab_size", "3", {"token_type_embeddings", "asks for [3,36]"}},
      {"xlm-roberta",
       "position_embedding_type",
       "\"relative_key\"",
       {"position_embedding_type", "not built"}},
      {"distilbert", "n_heads", "5", {"heads", "36"}},
      {"distilbert", "sinusoidal_pos_embds", "true", {"sinusoidal_pos_embds", "not built"}},
      {"mpnet", "relative_attention_num_buckets", "31", {"bucket", "odd"}},
      {"mpnet", "relative_attention_num_buckets", "16", {"relative_attention_bias", "asks for [16,4]"}},
      {"albert", "num_hidden_groups", "4", {"groups", "4 groups of weights for 3 layers"}},
      {"albert", "num_hidden_groups", "2", {"albert_layer_groups.1", "missing"}},
      {"albert", "inner_group_num", "2", {"inner_group_num", "not built"}},
      {"albert", "embedding_size", "36", {"embeddings", "asks for"}},
      {"electra-small", "embedding_size", "-3", {"embedding_size", "negative"}},
      {"modernbert", "local_attention", "\"all\"", {"local_attention", "whole number"}},
      {"modernbert", "layer_types", "[\"full_attention\"]", {"layer_types", "1 entries for 5 layers"}},
      {"modernbert",
       "layer_types",
       R"(["sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention"])",
       {"layer 0", "no modernbert model has"}},
      {"modernbert", "norm_bias", "true", {"norm_bias", "not built"}},
      {"opt", "max_position_embeddings", "100", {"embed_positions", "asks for [102,36]"}},
      {"opt", "enable_bias", "false", {"enable_bias", "not built"}},
      {"opt-350m", "word_embed_proj_dim", "21", {"embed_tokens", "asks for [61,21]"}},
      // grouped rows, patterns, factors
      {"gpt-neox", "num_attention_heads", "5", {"heads", "48"}},
      {"gpt-neox", "use_parallel_residual", "\"no\"", {"use_parallel_residual", "true or false"}},
      {"bloom", "apply_residual_connection_post_layernorm", "true", {"post_layernorm", "not built"}},
      {"falcon", "multi_query", "false", {"multi_query", "not built"}},
      {"falcon-40b", "num_kv_heads", "3", {"kv_heads", "divisor of 4"}},
      {"falcon-40b", "num_ln_in_parallel_attn", "1", {"num_ln_in_parallel_attn", "not built"}},
      {"falcon-rw", "parallel_attn", "true", {"parallel_attn", "not built"}},
      {"smollm3", "no_rope_layers", "[1, 1]", {"no_rope_layers", "2 entries for 5 layers"}},
      {"smollm3", "no_rope_layers", "[1, 1, 2, 0, 1]", {"no_rope_layers", "unknown kind of layer", "2"}},
      {"smollm3", "no_rope_layers", "[1, 1, 1.5, 0, 1]", {"no_rope_layers", "numbers"}},
      {"exaone4", "layer_types", "{}", {"layer_types", "list"}},
      {"olmo", "clip_qkv", "\"none\"", {"clip_qkv", "number"}},
      {"olmo", "clip_qkv", "-1", {"clip", "at least 0"}},
      {"cohere", "use_qk_norm", "false", {"use_qk_norm", "agree"}},
      {"cohere", "logit_scale", "0", {"scale", "must not be 0"}},
      {"granite", "logits_scaling", "0", {"divisor", "above 0"}},
      {"granite", "residual_multiplier", "0", {"residual_scale", "must not be 0"}},
      {"glm", "attention_bias", "false", {"attention_bias", "agree"}},
      {"gptj", "rotary_dim", "5", {"rope", "pairs"}},
      {"gptj", "rotary_dim", "400", {"rope.part", "at most 1"}},
      {"mpt", "attn_config", "3", {"alibi", "an object holds it"}},
      {"mpt", "d_model", "{}", {"d_model", "whole number"}},
      {"stablelm-12b", "qk_layernorm", "false", {"qk_layernorm", "agree"}},
      {"stablelm-12b", "num_attention_heads", "8", {"k_proj", "asks for"}},
      {"bart", "decoder_attention_heads", "7", {"heads", "36"}},
      {"bart", "scale_embedding", "1", {"scale_embedding", "true or false"}},
      {"m2m100", "pad_token_id", "0", {"pad_token_id", "not built"}},
      {"marian-two", "decoder_vocab_size", "60", {"decoder.embed_tokens", "asks for [60,36]"}},
      // experts
      {"mixtral", "num_experts_per_tok", "6", {"used", "6", "5"}},
      {"mixtral", "num_experts_per_tok", "0", {"used", "at least 1"}},
      {"mixtral", "num_local_experts", "6", {"experts.5", "missing"}},
      {"mixtral", "num_local_experts", "4", {"block_sparse_moe.gate", "asks for [4,36]"}},
      {"mixtral", "num_local_experts", "1e30", {"num_local_experts", "whole number"}},
      {"mixtral", "num_local_experts", "2147483000", {"experts"}},
      {"mixtral", "num_local_experts", "\"all\"", {"num_local_experts", "whole number"}},
      {"qwen2-moe", "mlp_only_layers", "[7]", {"mlp_only_layers", "7 is no layer of 3"}},
      {"qwen2-moe", "mlp_only_layers", "true", {"mlp_only_layers", "list of layer numbers"}},
      {"qwen2-moe", "mlp_only_layers", "[]", {"layers.1.mlp", "missing"}},
      {"qwen2-moe", "decoder_sparse_step", "0", {"missing"}},
      {"qwen2-moe", "norm_topk_prob", "3", {"norm_topk_prob", "true or false"}},
      {"qwen2-moe", "shared_expert_intermediate_size", "31", {"shared_expert", "asks for"}},
      {"granitemoe", "num_local_experts", "7", {"router.layer", "[5,40]", "[7,40]"}},
      {"ernie4_5-moe", "moe_layer_start_index", "0", {"layers.0.mlp", "missing"}},
      {"ernie4_5-moe", "moe_num_shared_experts", "3", {"shared_experts", "asks for [78,40]"}},
      {"glm4-moe", "n_group", "3", {"groups", "8"}},
      {"glm4-moe", "topk_group", "3", {"groups", "used"}},
      {"glm4-moe", "first_k_dense_replace", "2", {"layers.1.mlp", "missing"}},
      {"llama4", "moe_layers", "[1, 99]", {"moe_layers", "99 is no layer of 5"}},
      {"llama4", "attention_chunk_size", "0", {"chunk"}},
      {"llama4", "no_rope_layers", "[0, 0, 0, 0]", {"no_rope_layers", "4 entries for 5 layers"}},
      {"gpt-oss", "swiglu_limit", "-7", {"clamp", "at least 0"}},
      {"gpt-oss", "layer_types", "[\"x\", \"x\", \"x\"]", {"layer_types", "unknown kind of layer"}},
      {"hunyuan-moe", "moe_topk", "[2, 3]", {"moe_topk", "differs from layer to layer"}},
      {"hunyuan-moe", "num_shared_expert", "2", {"num_shared_expert", "not built"}},
      {"deberta-v3", "position_buckets", "1", {"buckets", "at least 2"}},
      {"deberta-v3", "position_buckets", "-1", {"position_buckets", "negative"}},
      {"deberta-v3", "position_buckets", "9", {"shape", "rel_embeddings"}},
      {"deberta-v3", "max_relative_positions", "5", {"relative.max", "beyond"}},
      {"deberta-v3", "max_relative_positions", "-2", {"relative.max"}},
      {"deberta-v3", "pos_att_type", "[\"c2p\"]", {"pos_att_type", "not built"}},
      {"deberta-v3", "pos_att_type", "null", {"pos_att_type", "missing"}},
      {"deberta-v3", "position_biased_input", "null", {"position_biased_input", "missing"}},
      {"deberta-v3", "position_biased_input", "true", {"position_biased_input"}},
      {"deberta-v3", "share_att_key", "false", {"share_att_key"}},
      {"deberta-v3", "conv_kernel_size", "3", {"conv_kernel_size"}},
      {"deberta-v3", "norm_rel_ebd", "\"none\"", {"norm_rel_ebd"}},
      {"deberta-v3", "type_vocab_size", "2", {"type_vocab_size"}},
      {"marian", "normalize_before", "true", {"normalize_before"}},
      {"marian", "decoder_attention_heads", "7", {"heads", "divisible"}},
  };
  return all;
}

TEST(HostileConfig, EveryFalseValueIsRefusedByName) {
  const long before = peak_kib();
  ASSERT_GE(edits().size(), 60u);
  std::map<std::string, Toy> toys;
  const TempFolder temp;
  for (const Edit& e : edits()) {
    auto [it, fresh] = toys.try_emplace(e.toy);
    const std::string folder = temp / e.toy;
    if (fresh) {
      it->second = read_toy(e.toy);
      write_folder(it->second, folder);
    }
    // A value JSON itself cannot hold goes into the text as it is.
    Json config = it->second.config;
    std::string text;
    if (*e.value == '\0') {
      remove_key(config, e.key);
      text = config.dump(0);
    } else {
      config.set(e.key, "@here@");
      text = config.dump(0);
      text.replace(text.find("\"@here@\""), 8, e.value);
    }
    put_file(folder + "/config.json", text);
    const std::string what = concat(e.toy, ": ", e.key, " = ", e.value);
    expect_words(what, outcome_of([&] { open_checkpoint(folder); }), e.words);
    const std::string checked = outcome_of([&] { check_checkpoint(folder); });
    EXPECT_NE(checked, "no error") << what;
  }
  EXPECT_LT(peak_kib() - before, 512 * 1024);
}

// ---------------------------------------------------------------------------------------------- whole files
TEST(HostileConfig, TextsThatAreNoConfig) {
  const TempFolder temp;
  const Toy toy = read_toy("llama1");
  write_folder(toy, temp / "toy");
  const std::pair<std::string, WordTable> cases[] = {
      {"", {"config.json"}},
      {"[]", {"object"}},
      {"null", {"object"}},
      {"{", {"config.json:1"}},
      {"{\"hidden_size\": NaN}", {"config.json:1:17"}},
      {"{\"hidden_size\": Infinity}", {"config.json:1:17"}},
      {"{\"hidden_size\": 36, \"hidden_size\": 36}", {"hidden_size", "twice"}},
      {"{\"a\": \"\xff\"}", {"UTF-8"}},
      {std::string(100, '['), {"config.json:1"}},
      {"{}", {"model_type"}},
      {"{\"architectures\": \"LlamaForCausalLM\"}", {"architectures", "list"}},
      {"{\"architectures\": [\"NobodyForCausalLM\"]}", {"model_type", "known"}},
      {"{\"model_type\": \"gemma3\", \"text_config\": {}}", {"pictures"}},
  };
  for (const auto& [text, words] : cases) {
    put_file(temp / "toy/config.json", text);
    expect_words(text.substr(0, 40), outcome_of([&] { open_checkpoint(temp / "toy"); }), words);
  }
}

TEST(HostileConfig, FoldersThatAreNoCheckpoint) {
  const TempFolder temp;
  auto expect = [&](const std::string& path, const WordTable& words) {
    expect_words(path, outcome_of([&] { open_checkpoint(path); }), words);
  };
  expect(temp / "nothing", {"no such file"});
  std::filesystem::create_directories(temp / "empty");
  expect(temp / "empty", {"config.json"});
  put_file(temp / "empty/params.json", "{}");
  expect(temp / "empty", {"params.json", "Hugging Face"});
  std::filesystem::create_directories(temp / "bare");
  put_file(temp / "bare/config.json", read_toy("llama1").config.dump());
  expect(temp / "bare", {"safetensors"});
  put_file(temp / "bare/pytorch_model.bin", "PK");
  expect(temp / "bare", {"safetensors"});
  put_file(temp / "bare/model.safetensors", "");
  expect(temp / "bare", {"model.safetensors"});
  expect(temp / "bare/model.safetensors", {"folder"});
  expect(temp / "bare/config.json", {"folder"});
  put_file(temp / "x.gguf", "GGUF");
  expect(temp / "x.gguf", {"x.gguf"});
  put_file(temp / "y.bin", std::string(28, '\1'));
  expect(temp / "y.bin", {"y.bin"});
  put_file(temp / "z.bin",
           std::string("\x40\0\0\0\x40\0\0\0\1\0\0\0\4\0\0\0\4\0\0\0\x10\0\0\0\x10\0\0\0", 28));
  expect(temp / "z.bin", {"token_embd", "bytes"});
  put_file(temp / "v1.bin", std::string("24ka\1\0\0\0", 8) + std::string(248, '\1'));
  expect(temp / "v1.bin", {"version"});
}

TEST(HostileConfig, IndexesThatLie) {
  const TempFolder temp;
  const Toy toy = read_toy("llama1");
  write_folder(toy, temp / "toy");
  std::filesystem::rename(temp / "toy/model.safetensors", temp / "toy/model-00001-of-00001.safetensors");
  auto expect = [&](const std::string& text, const WordTable& words) {
    put_file(temp / "toy/model.safetensors.index.json", text);
    expect_words(text.substr(0, 80), outcome_of([&] { open_checkpoint(temp / "toy"); }), words);
  };
  expect("", {"index.json"});
  expect("[]", {"index.json"});
  expect("{}", {"weight_map"});
  expect(R"({"weight_map": []})", {"weight_map"});
  expect(R"({"weight_map": {"model.norm.weight": 3}})", {"model.norm.weight"});
  expect(R"({"weight_map": {"model.norm.weight": "../../secret"}})", {"secret"});
  expect(R"({"weight_map": {"model.norm.weight": "/etc/passwd"}})", {"passwd"});
  expect(R"({"weight_map": {"model.norm.weight": "gone.safetensors"}})", {"gone.safetensors"});
  expect(R"({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})", {"index"});
}

// ------------------------------------------------------------------------------------------------ GGUF keys
using Keys = std::vector<std::pair<std::string, GgufValue>>;

void write_with_keys(const GgufFile& from, const Keys& keys, const std::string& path) {
  std::vector<GgufTensorPlan> plan;
  for (const TensorView& t : from.tensors.all())
    plan.push_back({t.name(), t.dtype(), {t.shape().begin(), t.shape().end()}, [&t](FileWriter& out) {
                      out.write(t.bytes());
                    }});
  write_gguf(path, keys, plan, true);
}

TEST(HostileConfig, GgufKeysThatLie) {
  const TempFolder temp;
  struct Case {
    const char *toy, *key;
    std::optional<GgufValue> value;
    WordTable words;
  };
  using V = GgufValue;
  const std::vector<Case> cases = {
      {"llama1", "general.architecture", {}, {"general.architecture"}},
      {"llama1", "general.architecture", V::text("llamma"), {"llamma", "llama"}},
      {"llama1", "general.architecture", V::u32(3), {"general.architecture"}},
      {"llama1", "general.architecture", V::text("gpt2"), {"gpt2."}},
      {"llama1", "general.type", V::text("adapter"), {"general.type", "adapter"}},
      {"llama1", "llama.embedding_length", {}, {"llama.embedding_length", "missing"}},
      {"llama1", "llama.embedding_length", V::u32(0), {"width", "at least 1"}},
      {"llama1", "llama.embedding_length", V::u32(4294967295u), {"llama.embedding_length", "larger"}},
      {"llama1", "llama.embedding_length", V::i32(-36), {"llama.embedding_length", "negative"}},
      {"llama1", "llama.embedding_length", V::text("36"), {"llama.embedding_length", "whole number"}},
      {"llama1", "llama.embedding_length", V::u32(35), {"shape", "asks for"}},
      {"llama1", "llama.block_count", V::u32(4000000), {"layers", "at most"}},
      {"llama1", "llama.block_count", V::u32(9999), {"missing", "blk.2."}},
      {"llama1", "llama.block_count", V::u32(1), {"read by nothing", "blk.1."}},
      {"llama1", "llama.attention.head_count", V::u32(0), {"heads", "at least 1"}},
      {"llama1",
       "llama.attention.head_count",
       V::i32s({4, 2}),
       {"llama.attention.head_count", "layer to layer"}},
      {"llama1", "llama.attention.head_count", V::i32s({}), {"llama.attention.head_count"}},
      {"llama1", "llama.attention.head_count_kv", V::u32(3), {"kv_heads"}},
      {"llama1", "llama.attention.key_length", V::u32(7), {"dimension_count"}},
      {"llama1",
       "llama.attention.layer_norm_rms_epsilon",
       {},
       {"llama.attention.layer_norm_rms_epsilon", "missing"}},
      {"llama1", "llama.attention.layer_norm_rms_epsilon", V::f32(-1), {"eps"}},
      {"llama1",
       "llama.attention.layer_norm_rms_epsilon",
       V::f32(__builtin_nanf("")),
       {"llama.attention.layer_norm_rms_epsilon", "finite"}},
      {"llama1",
       "llama.attention.layer_norm_rms_epsilon",
       V::text("x"),
       {"llama.attention.layer_norm_rms_epsilon", "number"}},
      {"llama1", "llama.rope.freq_base", V::f32(0), {"theta", "above 0"}},
      {"llama1", "llama.rope.freq_base", V::f32(__builtin_inff()), {"freq_base", "finite"}},
      {"llama1", "llama.rope.freq_base", V::text("x"), {"freq_base", "number"}},
      {"llama1", "llama.rope.dimension_count", V::u32(100), {"dimension_count"}},
      {"llama1", "llama.rope.dimension_count", V::u32(0), {"dimension_count"}},
      {"llama1", "llama.rope.scaling.type", V::text("spiral"), {"spiral", "yarn"}},
      {"llama1", "llama.rope.scaling.type", V::text("yarn"), {"rope.scaling.factor", "missing"}},
      {"llama1", "llama.rope.scaling.type", V::u32(2), {"rope.scaling.type", "string"}},
      {"llama1", "llama.vocab_size", V::u32(60), {"shape", "token_embd", "[60,36]"}},
      {"llama1", "llama.context_length", V::u32(0), {"context", "at least 1"}},
      {"gemma3", "gemma3.attention.sliding_window", V::i32(-1), {"sliding_window", "negative"}},
      {"t5", "t5.attention.relative_buckets_count", V::u32(0), {"bucket"}},
      {"t5", "t5.decoder_start_token_id", V::text("pad"), {"decoder_start_token_id"}},
      {"minilm", "bert.pooling_type", V::u32(9), {"pooling_type"}},
      {"minilm", "bert.pooling_type", V::u32(4), {"pooling_type", "rank"}},
      {"minilm", "tokenizer.ggml.token_type_count", V::u32(9), {"shape", "token_types"}},
  };
  std::map<std::string, GgufFile> files;
  for (const Case& c : cases) {
    if (!files.contains(c.toy)) {
      write_folder(read_toy(c.toy), temp / c.toy);
      write_checkpoint(temp / c.toy, temp / concat(c.toy, ".gguf"), {});
      files.emplace(c.toy, GgufFile::open(temp / concat(c.toy, ".gguf")));
    }
    const GgufFile& file = files.at(c.toy);
    Keys keys;
    for (const auto& [key, value] : file.metadata())
      if (key != c.key) keys.emplace_back(key, value);
    if (c.value) keys.emplace_back(c.key, *c.value);
    write_with_keys(file, keys, temp / "bad.gguf");
    expect_words(concat(c.toy, ": ", c.key), outcome_of([&] { open_checkpoint(temp / "bad.gguf"); }),
                 c.words);
  }
}

}  // namespace
}  // namespace rapt::test
