// SPDX-License-Identifier: Apache-2.0
// Model families as data (load/families/*.json; their grammar: docs/families.md) and the interpreter that
// turns the keys of a config.json or of a GGUF file into a recipe. What a mechanism does is code elsewhere;
// nothing here knows a family by name.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/io/tensor_file.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

struct Model;  // rapt/nn/model.h

enum class Form { folder, gguf };  // whose keys and tensor names are meant

class Family {
 public:
  std::string name;
  Json json;  // with what it extends already merged in
  // Our own form: tensors have the names of our weights, and recipe.json beside them says what they are.
  bool own = false;

  // The names a weight of ours ("decoder.3.self.q.weight") may have in a file, the usual one first; empty
  // where the family has no such.
  std::vector<std::string> tensor_names(Form form, std::string_view ours) const;
  bool transposed(Form form, std::string_view ours) const;  // stored in x out (GPT-2)
  // Rows of a head ordered for RoPE in pairs (GGUF's Llama).
  bool permuted(Form form, std::string_view ours) const;
  bool ignored(Form form, std::string_view tensor) const;   // known buffers and heads nobody reads
  bool offset_gain(Form form) const;                        // norm weights are stored minus one
  std::string gguf_arch() const;                            // "": there is no GGUF form
 private:
  bool listed(std::string_view list, std::string_view ours) const;
};

const std::vector<Family>& families();
const Family& own_family();  // "rapt"; none of families()
const Family& family_of_config(const Json& config, const std::string& where);
const Family& family_of_gguf(const Json& keys, const std::string& arch, const std::string& where);

struct WeightShape {
  std::string name;
  Dim rows, cols;
  bool vector;
};
std::vector<WeightShape> weight_shapes(const Recipe& resolved);

// What the files of a checkpoint say, whatever their form.
struct Source {
  Form form = Form::folder;
  std::string where;       // for messages: the config.json or the GGUF file
  std::string arch;        // GGUF: general.architecture
  Json keys;               // config.json, or GGUF's keys (without the vocabulary) as one object
  const TensorTable* tensors = nullptr;
  // Instead of tensors: a model in memory that shall become files.
  const std::vector<WeightShape>* weights = nullptr;
  const Family* family = nullptr;

  // "a.b": inside; GGUF: ".b" is "<arch>.b". null counts as absent
  const Json* find(std::string_view key) const;
  // The tensor a weight of ours comes from; nullptr where there is none.
  const TensorView* tensor(std::string_view ours) const;
  bool has(std::string_view ours) const;  // a tensor, or a weight in memory
};

// Named values of a model ("width", "rope"), as the family's "values" gives them.
class FamilyValues {
 public:
  const Json* find(std::string_view name) const;
  const std::vector<std::pair<std::string, Json>>& all() const { return values_; }
  void set(std::string name, Json value);

 private:
  std::vector<std::pair<std::string, Json>> values_;
};

struct Translation {
  FamilyValues values;
  Recipe recipe;  // resolved; biases, tying and the span of QK-norm as the tensors show them
};
Translation translate(const Source& source);
// The keys alone: biases, tying and QK-norm as the family usually has them.
Translation translate_keys(const Source& source);

// Hugging Face's name of an activation to ours and back.
std::optional<std::string> act_from_words(std::string_view theirs);
std::string act_to_words(std::string_view ours);

// RoPE of a config.json (old and new spellings) or of a GGUF file, as the recipe writes it; `row`: the
// family's line.
Json rope_from_source(const Source& source, const Json& row, Dim head_dim, Dim context);

// One weight of ours in a file.
struct TensorUse {
  const TensorView* view = nullptr;
  Dim first = 0;          // its first row (column where transposed)
  bool transposed = false;
  Dim head_dim = 0;       // > 0: rows of each head are in pairs order
  float gain = 1;         // every number is multiplied by it: the tensor NAME.scale beside NAME.weight
  Dim row(Dim r) const {  // our row r in the file's order
    if (head_dim == 0) return first + r;
    const Dim half = head_dim / 2, d = r % head_dim, theirs = d < half ? 2 * d : 2 * (d - half) + 1;
    if (theirs >= head_dim) fail("heads of ", head_dim, " channels have no order in pairs");
    return first + r - d + theirs;
  }
};

bool same_tensor(const TensorView& a, const TensorView& b);  // type, shape and every byte

// Which tensor every weight comes from. Fails with a missing or misshapen tensor; with `all`, also with one
// that nothing reads.
using TensorPlan = std::vector<std::pair<WeightShape, TensorUse>>;  // in the order of the model's weights
TensorPlan plan_tensors(const Source& source, const Recipe& resolved, bool all = true);
// The same, and the model itself: its weights have names, shapes and packing (matrices in panels), and no
// storage yet.
struct ModelPlan {
  std::unique_ptr<Model> model;
  TensorPlan tensors;
};
ModelPlan plan_model(const Source& source, const Recipe& resolved, DType real, bool all = true);

}  // namespace rapt
