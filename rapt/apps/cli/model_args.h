// SPDX-License-Identifier: Apache-2.0
// What the verbs that open a model share: flags, loading with a bar.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/apps/cli/verb.h"
#include "rapt/load/checkpoint.h"
#include "rapt/text/words.h"
#include "rapt/use/generate.h"

namespace rapt::cli {

struct CommonArgs {
  int threads = 0;  // 0: as many as the process may use
  bool json = false, quiet = false, verbose = false;
  std::vector<std::string> lora = {};  // FILE or FILE=SCALE, of verbs that call lora_args()
};
CommonArgs common_args(Args& args);  // -t/--threads --json --quiet --verbose
void lora_args(Args& args, CommonArgs& common);  // --lora, which open_model() loads with the model
// Where the system gave fewer than were asked for.
void note_threads(const Device& device, const CommonArgs& common);

// A model on its device; shows how far loading is.
struct OpenModel {
  std::unique_ptr<Device> device;
  Checkpoint checkpoint;
  double seconds = 0;
};
OpenModel open_model(const std::string& path, const CommonArgs& common, LoadOptions options = {});

// Texts to read: the words after the model; else the lines of --in FILE (may be .gz), or of standard input
// ("-", or no word). Fails where there is none.
std::vector<std::string> given_texts(std::span<const std::string> words,
                                     const std::optional<std::string>& in);

// Fails where a model that reads pictures is given texts.
void refuse_texts_for_pictures(const Checkpoint& checkpoint, const char* verb);
// The half of a folder that reads texts (CLIP, SigLIP), on the device of the half that reads pictures.
Checkpoint open_text_tower(const std::string& path, const OpenModel& vision);

// --speculate and --draft.
struct SpeculateArgs {
  Speculate how = Speculate::lookup;
  std::string draft;  // a model; "": none
};
SpeculateArgs speculate_args(Args& args);
Checkpoint open_draft(const std::string& path, const OpenModel& model, const CommonArgs& common);

DType cache_type(Args& args, DType unsaid = DType::f32);  // --cache-type
DType cache_type_named(const std::string& name);          // its value

// --lora [MODEL:]NAME=FILE[=SCALE] of what serves models under names.
struct NamedAdapterFile {
  std::string model, name, file;
};
std::vector<NamedAdapterFile> named_adapters(const std::vector<std::string>& words,
                                             const std::vector<std::string>& models);

}  // namespace rapt::cli
