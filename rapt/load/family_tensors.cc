// SPDX-License-Identifier: Apache-2.0
// Every weight of a recipe finds its tensor, every tensor its reader. Weights that share a tensor (q, k, v
// in one matrix) lie in it row after row, in the order of the model's weights.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "rapt/base/text.h"
#include "rapt/load/family.h"
#include "rapt/nn/model.h"

namespace rapt {
namespace {

std::string shape_text(std::span<const Dim> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += concat(i ? "," : "", shape[i]);
  return out + "]";
}

Dim head_dim_of(const Recipe& r, const std::string& name) {
  const auto& stack = name.starts_with("encoder") ? r.encoder : r.decoder;
  for (const PartRecipe& p : stack->layer(std::atol(name.c_str() + 8)).parts)
    if (p.self()) return p.self()->head_dim;
  return 0;
}

// GGUF: NAME.scale beside NAME.weight multiplies all of it (nvfp4, BitNet), or has a number for each of its
// experts; NAME.input_scale is for those who round activations as well, and nothing here reads it.
struct Gains {
  const TensorView* tensor = nullptr;
  std::vector<float> of{};  // the whole tensor, or each expert
};
Gains gains_of(const Source& s, const TensorView& view, std::set<std::string_view>& read) {
  constexpr std::string_view kEnd = ".weight";
  const std::string& name = view.name();
  if (s.form != Form::gguf || !name.ends_with(kEnd)) return {};
  const std::string stem = name.substr(0, name.size() - kEnd.size());
  if (const TensorView* t = s.tensors->find(stem + ".input_scale")) read.insert(t->name());
  const TensorView* t = s.tensors->find(stem + ".scale");
  if (!t) return {};
  read.insert(t->name());
  const Dim experts = view.shape().size() == 3 ? view.shape()[0] : 1;
  if (t->shape().size() != 1 || (t->shape()[0] != 1 && t->shape()[0] != experts))
    fail(s.where, ": tensor ", quote_name(t->name()), " has shape ", t->shape_text(),
         "; it multiplies the numbers of ", quote_name(name), " and has [1]",
         experts > 1 ? concat(" or [", experts, "]") : "");
  if (!is_float(t->dtype()))
    fail(s.where, ": tensor ", quote_name(t->name()), " holds ", name_of(t->dtype()),
         "; what multiplies a matrix is f32");
  Gains out{t, t->values()};
  for (const float gain : out.of)
    if (!std::isfinite(gain))
      fail(s.where, ": tensor ", quote_name(t->name()), " is ", gain, "; it multiplies every number of ",
           quote_name(name), ": the file is damaged");
  return out;
}

}  // namespace

bool same_tensor(const TensorView& a, const TensorView& b) {
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape())) return false;
  constexpr Dim kRows = 1024;
  std::vector<std::byte> x, y;
  for (Dim r = 0; r < a.rows(); r += kRows) {
    const Dim n = std::min(kRows, a.rows() - r);
    if (!std::ranges::equal(a.read_rows(r, n, x), b.read_rows(r, n, y))) return false;
  }
  return true;
}

namespace {

std::unique_ptr<Model> model_without_storage(const Recipe& resolved, DType real,
                                             std::vector<WeightShape>& shapes) {
  return std::make_unique<Model>(resolved, real, [&](std::string name, Dim rows, Dim cols, WeightRole role) {
    shapes.push_back({name, rows, cols, role == WeightRole::vector});
    Weight w = without_storage(std::move(name), rows, cols, role);
    w.packing = role == WeightRole::matrix ? Packing::panels : Packing::rows;
    return w;
  });
}

}  // namespace

std::vector<WeightShape> weight_shapes(const Recipe& resolved) {
  std::vector<WeightShape> out;
  model_without_storage(resolved, DType::f32, out);
  return out;
}

TensorPlan plan_tensors(const Source& s, const Recipe& r, bool all) {
  return plan_model(s, r, DType::f32, all).tensors;
}

ModelPlan plan_model(const Source& s, const Recipe& r, DType real, bool all) {
  struct Shared {
    Dim rows = 0;
    std::vector<std::size_t> users;
    Gains gains;
  };
  std::map<const TensorView*, Shared> shared;
  std::set<std::string_view> read;
  std::vector<std::string> expected;
  TensorPlan plan;
  // More layers than the file has tensors: the first that is missing is named, without a list of all
  // the others.
  Recipe bounded = r;
  const Dim most = static_cast<Dim>(s.tensors->all().size()) + 1;
  bool cut = false;
  for (auto* stack : {&bounded.encoder, &bounded.decoder})
    if (*stack && (*stack)->layers > most && static_cast<Dim>((*stack)->pattern.size()) <= most)
      (*stack)->layers = most, cut = true;
  std::vector<WeightShape> shapes;
  std::unique_ptr<Model> model;
  try {
    model = model_without_storage(bounded, real, shapes);
  } catch (const Error& e) {  // larger than any model is
    throw Error(concat(s.where, ": ", e.what()), e.kind());
  }
  for (const WeightShape& w : shapes) {
    const std::vector<std::string> names = s.family->tensor_names(s.form, w.name);
    TensorUse use;
    for (const std::string& name : names) {
      const TensorView* t = s.tensors->find(name);
      if (!t) continue;
      read.insert(t->name());
      if (!use.view) use.view = t;
      else if (!same_tensor(*use.view, *t))
        fail(s.where, ": tensors '", use.view->name(), "' and '", t->name(),
             "' should be the same table and differ; two vocabularies in one model cannot be read yet");
    }
    if (!use.view) {
      std::vector<std::string> have;
      for (const TensorView& t : s.tensors->all())
        if (!read.contains(t.name())) have.push_back(t.name());
      const std::string near = names.empty() ? "" : nearest(names[0], have);
      const std::string shape = w.vector ? concat("[", w.cols, "]")
                                : s.family->transposed(s.form, w.name)
                                    ? concat("[", w.cols, ",", w.rows, "]")
                                    : concat("[", w.rows, ",", w.cols, "]");
      fail(s.where, ": tensor '", names.empty() ? w.name : names[0], "' is missing (", shape, ", our ",
           w.name, ")", near.empty() ? "" : concat("; the nearest that is there: '", near, "'"));
    }
    expected.insert(expected.end(), names.begin(), names.end());
    use.transposed = s.family->transposed(s.form, w.name);
    if (s.family->permuted(s.form, w.name)) use.head_dim = head_dim_of(r, w.name);
    if (use.head_dim % 2 != 0)
      fail(s.where, ": tensor '", use.view->name(), "' keeps the channels of a head in pairs, and heads of ",
           use.head_dim, " channels have none; the sizes in the header are wrong: convert the model again");
    const auto [at, fresh] = shared.try_emplace(use.view);
    Shared& sh = at->second;
    if (fresh && !w.vector) sh.gains = gains_of(s, *use.view, read);
    use.first = sh.rows;
    sh.rows += w.vector ? w.cols : w.rows;
    sh.users.push_back(plan.size());
    plan.emplace_back(w, use);
  }
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto& [w, use] = plan[i];
    const TensorView* view = use.view;
    const Shared& sh = shared[view];
    if (sh.users[0] != i) continue;
    std::vector<Dim> want = w.vector         ? std::vector<Dim>{sh.rows}
                            : use.transposed ? std::vector<Dim>{w.cols, sh.rows}
                                             : std::vector<Dim>{sh.rows, w.cols};
    std::span<const Dim> have = view->shape();
    while (w.vector && have.size() > 1 && have[0] == 1) have = have.subspan(1);  // Marian: [1,V]
    if (!std::ranges::equal(have, want)) {
      std::string ours;
      for (const std::size_t u : sh.users) ours += (ours.empty() ? "" : " + ") + plan[u].first.name;
      fail(s.where, ": tensor '", view->name(), "' has shape ", view->shape_text(), "; the config asks for ",
           shape_text(want), " (", ours, ")");
    }
    if (view->dtype() != DType::f32 && !is_float(view->dtype()) && !is_block(view->dtype()))
      fail(s.where, ": tensor '", view->name(), "' holds ", name_of(view->dtype()),
           "; weights are numbers with a point or blocks");
    if (use.transposed && is_block(view->dtype()))
      fail(s.where, ": tensor '", view->name(), "' is transposed and in blocks of ", name_of(view->dtype()),
           "; that cannot be read");
    if (sh.gains.of.empty()) continue;
    const Dim each = std::max<Dim>(1, sh.rows / static_cast<Dim>(sh.gains.of.size()));  // rows
    for (const std::size_t u : sh.users) {
      auto& [shape, part] = plan[u];
      const Dim expert = part.first / each;
      if (part.first + shape.rows > (expert + 1) * each)
        fail(s.where, ": tensor ", quote_name(sh.gains.tensor->name()), " ", sh.gains.tensor->shape_text(),
             " multiplies parts of ", quote_name(view->name()), ", which ", shape.name, " takes as a whole");
      part.gain = sh.gains.of[static_cast<std::size_t>(expert)];
    }
  }
  // nothing is missing: its layers have no weights
  if (cut) model = model_without_storage(r, real, shapes);
  if (!all) return {std::move(model), std::move(plan)};
  // A head that repeats the table of a tied model was compared with it and is the same.
  if (r.head.kind == HeadRecipe::Kind::vocab && r.head.tied)
    if (const TensorView* t = s.tensor("head.weight")) read.insert(t->name());
  for (const TensorView& t : s.tensors->all())
    if (!read.contains(t.name()) && !s.family->ignored(s.form, t.name()))
      fail(s.where, ": tensor '", t.name(), "' ", t.shape_text(), " is read by nothing in a ", s.family->name,
           " model of ", r.decoder ? r.decoder->layers : r.encoder->layers,
           " layers; the nearest expected name: '", nearest(t.name(), expected), "'");
  return {std::move(model), std::move(plan)};
}

}  // namespace rapt
