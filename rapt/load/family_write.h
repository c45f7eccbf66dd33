// SPDX-License-Identifier: Apache-2.0
// The way back: a family's values as the keys of a config.json or of a GGUF file.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rapt/io/gguf.h"
#include "rapt/load/family.h"

namespace rapt {

constexpr const char* kOwnRecipeKey = "rapt.recipe";  // GGUF files of our own form: recipe.json as a text
// Of any sentence encoder: sentence_bert_config.json's, for which GGUF has no key.
constexpr const char* kOwnLengthKey = "rapt.max_seq_length";
// How pictures are prepared: the image processor's JSON.
constexpr const char* kOwnPreprocessorKey = "rapt.preprocessor_json";
// A tokenizer that GGUF has no words for (CLIP's, SigLIP's), in files of our own form: its two JSON texts.
constexpr const char* kOwnTokenizerKey = "rapt.tokenizer_json";
constexpr const char* kOwnTokenizerConfigKey = "rapt.tokenizer_config_json";
constexpr const char* kOwnPadKey = "rapt.pad_texts";  // the token that fills texts up to the context (SigLIP)
constexpr const char* kOwnClassesKey = "rapt.class_names";  // … and a classifier's id2label

using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

// Keys of the architecture. Factors of RoPE frequencies, which GGUF keeps as tensors, go to `factors`.
struct RopeFactors {
  std::string tensor;
  std::vector<float> values;
};
GgufKeys gguf_keys(const Family& family, const Translation& model, std::vector<RopeFactors>& factors);
// config.json without token ids and dtype. Numbers that the library insists on reading as floats stand in it
// as text until config_text writes them: 12.0, where JSON would say 12.
Json config_of(const Family& family, const Translation& model);
std::string config_text(const Json& config);
// id2label and label2id; without names LABEL_0 …, as the library calls them.
void set_class_names(Json& config, const std::vector<std::string>& names, Dim count);

// The values that make a config.json of this family say this recipe; nothing where the family cannot say it.
std::optional<Translation> family_values(const Family& family, const Recipe& resolved);
// A recipe without what files of other libraries do not say: names, starting values, dropout; the scale of
// scores as a number.
Recipe architecture_of(Recipe resolved);
// The axes of the family's pattern, each with the letters of all layers of this recipe.
std::vector<std::pair<const Json*, std::string>> axes_of(const Family& family, const Recipe& recipe);
// What a weight of ours is called in a file we write: of several names the usual one for this recipe.
std::string written_name(const Family& family, Form form, const std::string& ours, const Recipe& recipe);
// The shape of a tensor we write, which for some is not that of its rows: gains of each head [H,D], Marian's
// bias [1,V].
std::vector<Dim> written_shape(const Family& family, const std::string& name, const WeightShape& first,
                               std::vector<Dim> shape, const Recipe& recipe);

}  // namespace rapt
