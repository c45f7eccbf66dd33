// SPDX-License-Identifier: Apache-2.0
// A released model: what a GGUF file, a Hugging Face folder or a llama2.c file holds, as one recipe and its
// weights. Families are data (load/families/*.json): config keys, tensor names, constants. The tensors
// decide biases, tying and QK-norm span; a tensor nobody read is an error, a missing one is named.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/io/gguf.h"
#include "rapt/load/family.h"
#include "rapt/nn/model.h"
#include "rapt/nn/pool.h"
#include "rapt/run/adapter.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

struct LoadOptions {
  DType real = DType::f32;                   // of the device
  // absent: as the file stores them (f16, bf16, blocks stay packed); f32: exact numbers
  std::optional<DType> matrices;
  std::function<void(Recipe&)> change;       // before weights are made: streaming windows, another context
  // Bytes of tensors; called by the device's threads, one at a time.
  std::function<void(std::uint64_t done, std::uint64_t of)> progress;
  Device* device = nullptr;                  // packs in parallel where given
  // Of a folder with one for texts and one for pictures, where its name does not say (FOLDER:vision).
  Tower tower = Tower::text;
};

// A step of a sentence encoder behind its pooling: act(W x + b) (sentence-transformers' Dense).
struct DenseModule {
  Dim in = 0, out = 0;
  std::vector<float> weight, bias;  // [out,in], [out] or empty
  bool tanh = false;                // else as it is
};

struct Checkpoint {
  // "llama", "qwen2", …; "rapt": described by its own recipe.json
  std::string path, family;
  std::string format;                          // "gguf", "folder", "llama2.c"
  std::unique_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;  // nullptr where the files have none
  std::string chat_template;                   // "": none
  std::optional<Pool> pool;                    // sentence encoders: which rows stand for a text
  bool normalize = false;                      // embeddings of length 1
  std::vector<DenseModule> dense;              // between pooling and that
  Dim max_tokens = 0;                          // a sentence encoder's own limit; 0: the context
  std::int32_t decoder_start = -1;             // encoder-decoders
  std::vector<std::int32_t> stops;             // ids that end a generated text
  // generation_config.json, for translations: bad_words_ids (sequences that no answer holds) and
  // renormalize_logits.
  std::vector<std::vector<std::int32_t>> bad_words;
  bool renormalize = false;
  std::vector<std::string> class_names;        // classifiers; empty where the files have none
  // CLIP, SigLIP: what their training learned for e^scale * cosine + bias of a picture and a text.
  std::optional<double> logit_scale, logit_bias;
  // How pictures are prepared, where the model's files say so: the JSON of its image processor.
  std::string preprocessor;
  // SigLIP's texts always have this length, filled up with this token; 0: as they come.
  Dim pad_to = 0;
  std::int32_t pad = -1;
  std::uint64_t file_bytes = 0;
  // What every request to the model uses that does not say otherwise (load/adapter.h).
  std::vector<AdapterUse> adapters = {};
};
const Tokenizer& tokenizer_of(const Checkpoint& checkpoint);  // fails where there is none

// A GGUF file, a folder with config.json and safetensors, a llama2.c .bin (its tokenizer beside it:
// tokenizer.bin or tok*.bin), or a name for one of these, by find_model().
Checkpoint open_checkpoint(const std::string& path, const LoadOptions& options = {});
// Behind any of these, ":vision" or ":text" chooses between the two models of a folder that holds such.
// One rule for names, in this order:
//   1. a path: a file, a folder with config.json; a folder of a training (its model/, else its newest
//      step-N) or with one GGUF file inside. A folder that is none of these does not stand in the way of
//      a name
//   2. the name of a model in a folder of RAPT_MODELS, ".gguf" may be left out
//   3. the model that comes with the program: "default"
//   4. the beginning of exactly one name in RAPT_MODELS, in any case of letters
std::string find_model(const std::string& name);
// The same where a recipe may be meant too (train, show): "" for a file that is no model, for a preset's
// name (between 2 and 3), and where nothing is called so. find_recipe() takes it then.
std::string find_model_unless_recipe(const std::string& name);

// The models that names can mean: what the folders of RAPT_MODELS hold, each sorted by name, then those that
// come with the program.
std::vector<std::string> model_paths();

// What a model's headers say, without its weights and its vocabulary.
struct CheckpointSummary {
  std::string path, format, family, name;  // name: what a GGUF file calls itself; "" where it does not
  std::string chat_template;
  Recipe recipe;
  std::uint64_t bytes = 0;  // of all tensors
  struct Stored {
    std::size_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  std::map<DType, Stored> types;
};
CheckpointSummary checkpoint_summary(const std::string& path);
// "q4_k", or "q5_0/q4_k/q6_k" of a mixture: that of most tensors first. Norms and biases are f32 in every
// file and do not count.
std::string types_text(const CheckpointSummary& summary);

// Only the recipe: what `show` and `check` need. No weights are read; every tensor's name, type and shape is
// checked.
Recipe checkpoint_recipe(const std::string& path);
// Validates without loading; returns what it found in words (one line each), throws Error with the first
// fault. With `values`, every number of every weight is looked at: NaN and infinities are faults.
std::vector<std::string> check_checkpoint(const std::string& path, bool values = true);

struct QuantMix;  // rapt/load/quant_mix.h

// From one form to the other, tensor by tensor, without loading the model. `type`: of the matrices; absent:
// as they are (a folder has no block types: they become f32, or `type`).
struct ConvertOptions {
  std::optional<DType> type;
  // Block types into GGUF: which matrix takes which; nullptr: the mix of the type's name (q4_k: q4_k_m).
  const QuantMix* mix = nullptr;
  bool force = false;
  std::uint64_t shard_bytes = 0;
  std::function<void(std::size_t done, std::size_t of)> progress;
  // What was done otherwise than asked: rows that are no whole blocks.
  std::function<void(const std::string&)> note;
  // GGUF: nothing is written; every tensor is told, with the type it would have.
  std::function<void(const std::string& name, std::span<const Dim> shape, DType type)> dry_run;
};
// *.gguf, else a folder
void write_checkpoint(const std::string& from, const std::string& to, const ConvertOptions& options);
std::vector<std::string> family_names();

}  // namespace rapt
