// SPDX-License-Identifier: Apache-2.0
// A model in memory as a folder: config.json, model.safetensors, tokenizer.json, recipe.json. Where a family
// says the same as the recipe (GPT-2, Llama, BERT, Marian …), config.json and tensors are that family's, so
// the folder opens in transformers; else config.json says "rapt", tensors have our names, and recipe.json is
// what describes them. open_checkpoint() opens both.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/nn/model.h"
#include "rapt/text/tokenizer/write.h"

namespace rapt {

struct FolderExtras {
  std::shared_ptr<const TokenizerFiles> tokenizer = nullptr;
  std::int32_t bos = -1, eos = -1, pad = -1, decoder_start = -1;
  std::vector<std::string> class_names;
  std::string preprocessor = {};  // preprocessor_config.json of a model that reads pictures
  bool own = false;  // our own form even where a family says the same: what the saved states of a run are
};

// The family that can say everything this recipe says ("gpt2"), or "".
std::string family_for(const Recipe& resolved);
// The files as bytes, in the order they should be written: what the training store and a plain writer share.
std::vector<std::pair<std::string, std::vector<std::byte>>> model_folder_files(const Model& model,
                                                                               const FolderExtras& extras);
// All of them but model.safetensors.
std::vector<std::pair<std::string, std::vector<std::byte>>> model_folder_description(
    const Model& model, const FolderExtras& extras);
// Written beside its place and renamed; an existing folder is refused unless `force`.
void write_model_folder(const Model& model, const FolderExtras& extras, const std::string& folder,
                        bool force);

}  // namespace rapt
