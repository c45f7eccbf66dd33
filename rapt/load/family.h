// SPDX-License-Identifier: Apache-2.0
// Model families as data (load/families/*.json; their grammar: docs/families.md) and the interpreter that
// turns the keys of a config.json or of a GGUF file into a recipe. What a mechanism does is code elsewhere;
// nothing here knows a family by name.
#pragma once
#include <map>
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
// A folder may hold two models, one for texts and one for pictures (CLIP, SigLIP): which is meant.
enum class Tower { text, vision };

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
  // Weights that share a tensor lie in it group by group, each with its share of a group: the word that says
  // how many groups there are ("kv_heads", "rows"); "": one weight after the other.
  std::string grouped(Form form, std::string_view ours) const;
  Dim first_row(Form form, std::string_view ours) const;  // rows of a table before the first that is read
  // Rows of a head ordered for RoPE in pairs (GGUF's Llama).
  bool permuted(Form form, std::string_view ours) const;
  // The matrices of heads (latent attention) lie in this tensor one after the other, without an axis for
  // them; and whether a weight's rows are columns there.
  bool joined(std::string_view tensor) const;
  bool turned(std::string_view ours) const;
  bool ignored(Form form, std::string_view tensor) const;  // known buffers and heads nobody reads
  // A layer behind the last: weights that predict further tokens, which nobody reads.
  bool beyond(Form form, std::string_view tensor, Dim layers) const;
  bool leading_one(std::string_view ours) const;  // an axis of one stands before the others
  bool flat(std::string_view ours) const;  // one row, stored as a vector
  bool conv(std::string_view ours) const;  // [C, channels, size, size], our columns in this order
  bool middle_one(std::string_view ours) const;  // rows stored with an axis of one in between (convolutions)
  // Stored as -e^x (GGUF: rates of forgetting).
  bool negated_exp(Form form, std::string_view ours) const;
  bool offset_gain(Form form) const;  // norm weights are stored minus one …
  bool plain_gain(std::string_view ours) const;  // … but for these
  // Value heads of a delta rule stand in turns there, and not as neighbours (DeltaRecipe::Share).
  bool heads_in_turns(Form form) const;
  std::string gguf_arch() const;  // "": there is no GGUF form
 private:
  bool listed(std::string_view list, std::string_view ours) const;
};

const std::vector<Family>& families();
const Family& own_family();  // "rapt"; none of families()
// `tower`: of those that a folder with two holds.
const Family& family_of_config(const Json& config, const std::string& where, Tower tower = Tower::text);
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
  std::string where;  // for messages: the config.json or the GGUF file
  std::string arch;  // GGUF: general.architecture
  Json keys;  // config.json, or GGUF's keys (without the vocabulary) as one object
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

// "scale_depth*layers^-0.5": a product of values and numbers.
struct Factor {
  std::string name;  // "": a number, which is `power` then
  double power = 1;
};
std::vector<Factor> factors_of(std::string_view product);
// A whole number of ours is the file's, divided by `over`, and `plus`.
struct Shift {
  Dim plus = 0, over = 1;
};
Shift shift_of(const Json& row, Form form);
// How often a layer is of the axis's full kind: every n-th; nothing where they come otherwise.
std::optional<Dim> period_of(const Json& axis, std::string_view letters);
// Keys of a list with one entry per layer, where a pattern's axis has such; the first is what we write.
std::vector<std::string> axis_list_keys(const Json& axis, Form form);

// Hugging Face's name of an activation to ours and back.
std::optional<std::string> act_from_words(std::string_view theirs);
std::string act_to_words(std::string_view ours);

// RoPE of a config.json (old and new spellings) or of a GGUF file, as the recipe writes it; `row`: the
// family's line.
Json rope_from_source(const Source& source, const Json& row, Dim head_dim, Dim context);

// One weight of ours in a tensor of a file, which is a list of rows: the matrices of a tensor with three axes
// lie one after the other, a vector is read number by number.
struct TensorUse {
  const TensorView* view = nullptr;
  std::vector<const TensorView*> more = {};  // a vector in pieces: the others, in their order
  const TensorView* scales = nullptr;  // MXFP4 of a folder: NAME_scales, and view is NAME_blocks
  Dim first = 0;  // its first row (column where transposed)
  Dim chunk = 0, stride = 0;  // chunk > 0: so many rows of it, and the next ones `stride` further on
  bool transposed = false;
  Dim slice = 0;  // transposed: rows of the file before its matrix
  Dim head_dim = 0;  // > 0: rows of each head are in pairs order
  float gain = 1;  // every number is multiplied by it: the tensor NAME.scale beside NAME.weight
  Dim fold = 1;  // rows of the file that make one of ours (a convolution's [C,3,P,P])
  bool negated_exp = false;  // the file holds -e^x
  DType dtype() const { return scales ? DType::mxfp4 : view->dtype(); }
  Dim last() const { return scales ? 32 * scales->last() : fold * view->last(); }  // columns of a row
  // Rows of the file as they are stored in dtype().
  std::span<const std::byte> read_rows(Dim from, Dim count, std::vector<std::byte>& room) const;
  bool plain() const { return head_dim == 0 && chunk == 0; }  // its rows lie one after the other
  Dim row(Dim r) const {  // our row r in the file's order
    if (head_dim > 0) {
      const Dim half = head_dim / 2, d = r % head_dim, theirs = d < half ? 2 * d : 2 * (d - half) + 1;
      if (theirs >= head_dim) fail("heads of ", head_dim, " channels have no order in pairs");
      r += theirs - d;
    }
    return first + (chunk > 0 ? r / chunk * stride + r % chunk : r);
  }
};

// x of what a file holds, and back.
float number_from(const TensorUse& use, float theirs);
float number_to(const TensorUse& use, float ours);
// All numbers of a vector's tensors; of a transposed matrix, its own rows of the file.
std::vector<float> vector_numbers(const TensorUse& use);
std::vector<float> slice_numbers(const TensorUse& use, Dim cols);

// Where weights lie in the tensors of a form, worked out from the first weight to the last: those that share
// a tensor follow each other, in groups where the family says so, the matrices of experts as a third axis.
class TensorLayout {
 public:
  TensorLayout(const Family& family, Form form, const Recipe& recipe)
      : family_(family), form_(form), recipe_(recipe) {}
  // `key`: the tensor's name; `blocks`: it holds rows in MXFP4, whatever the family says of plain numbers.
  void add(const std::string& key, const WeightShape& w, bool blocks = false);
  void finish();

  struct Tensor {
    std::vector<Dim> shape;
    bool vector = false, transposed = false;
    bool joined = false;  // heads without an axis of their own (Family::joined)
    Dim before = 0;  // rows that nobody reads
    std::vector<std::size_t> users;  // numbers of weights, in the order of add()
  };
  const Tensor& tensor(const std::string& key) const { return tensors_.at(key); }
  const std::vector<std::string>& keys() const { return order_; }  // in the order they came
  const TensorUse& use(std::size_t i) const { return uses_[i].use; }

 private:
  struct Use {
    std::string key, name;
    Dim rows, slice, offset;
    TensorUse use;
    bool turned = false;  // rows of ours are columns of a joined tensor
  };
  const Family& family_;
  Form form_;
  const Recipe& recipe_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> order_;
  std::map<std::string, std::map<Dim, Dim>> filled_;  // by tensor and expert: rows so far
  std::map<std::string, Dim> cols_;
  std::vector<Use> uses_;
};
// A name with "{h}" in it: a vector of ours is one tensor for each head (StableLM 2).
inline constexpr std::string_view kEachHead = "{h}";
std::string of_head(std::string name, Dim head);
// The number of the expert, or of the head of latent keys and values, that a weight belongs to, or -1.
Dim expert_of(std::string_view ours);
// Where that number stands in a name, and its end; npos where there is none.
std::pair<std::size_t, std::size_t> expert_number(std::string_view ours);

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
