// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint, opened and mapped but not yet loaded. Used by the loader and the converter.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "rapt/io/gguf.h"
#include "rapt/load/checkpoint.h"
#include "rapt/load/family.h"

namespace rapt {

struct CheckpointFiles {
  std::string path, format;         // "gguf", "folder", "llama2.c"
  std::optional<GgufFile> gguf;
  TensorTable table;                // folder, llama2.c
  Source source;                    // looks at the members above: never moved
  Json generation;                  // generation_config.json; null where absent
  std::optional<Recipe> recipe;     // recipe.json of a folder we wrote
  Tower tower = Tower::text;        // of two
  CheckpointFiles() = default;
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;
};
// A folder with two towers: the one that the path names (FOLDER:vision), else `tower`.
std::unique_ptr<CheckpointFiles> open_files(const std::string& path, Tower tower = Tower::text);
// translate(), and what recipe.json adds: starting values, dropout, a name. Fails where it describes another
// model than config.json and the tensors do. Where config.json says "rapt", recipe.json is the description.
Translation translate_files(const CheckpointFiles& files);
// A JSON object in a file of a folder; null where there is no such file.
Json read_json_file(const std::string& path, std::uint64_t most = std::uint64_t{64} << 20);
// All but the model: tokenizer, chat template, pooling, token ids.
Checkpoint describe_checkpoint(const CheckpointFiles& files, const Recipe& recipe);
std::string chat_template_of(const CheckpointFiles& files);
std::shared_ptr<const Tokenizer> tokenizer_of(const CheckpointFiles& files, Dim vocab);

}  // namespace rapt
