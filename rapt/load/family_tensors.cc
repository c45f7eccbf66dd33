// SPDX-License-Identifier: Apache-2.0
// Every weight of a recipe finds its tensor, every tensor its reader. Weights that share a tensor (q, k, v
// in one matrix) lie in it row after row, in the order of the model's weights.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "rapt/base/text.h"
#include "rapt/load/family.h"
#include "rapt/nn/model.h"
#include "rapt/tensor/formats.h"

namespace rapt {
namespace {

std::string shape_text(std::span<const Dim> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += concat(i ? "," : "", shape[i]);
  return out + "]";
}

// The part that a weight belongs to, or nullptr.
const PartRecipe* part_of(const Recipe& r, const std::string& name) {
  const auto& stack = name.starts_with("encoder") ? r.encoder : r.decoder;
  if (!stack || stack->recurrent || name.size() < 9) return nullptr;
  for (const PartRecipe& p : stack->layer(std::atol(name.c_str() + 8)).parts)
    if (name.find(concat(".", part_name(p).word, ".")) != std::string::npos) return &p;
  return nullptr;
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

float number_from(const TensorUse& use, float theirs) { return use.negated_exp ? std::log(-theirs) : theirs; }
float number_to(const TensorUse& use, float ours) { return use.negated_exp ? -std::exp(ours) : ours; }

std::vector<float> vector_numbers(const TensorUse& use) {
  std::vector<float> out = use.view->values();
  for (const TensorView* piece : use.more) {
    const std::vector<float> more = piece->values();
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

std::vector<float> slice_numbers(const TensorUse& use, Dim cols) {
  std::vector<std::byte> room;
  std::vector<float> out(static_cast<std::size_t>(cols * use.view->last()));
  dequantize(use.view->dtype(), use.view->read_rows(use.slice, cols, room), out);  // numbers, not blocks
  return out;
}

std::string of_head(std::string name, Dim head) {
  const std::size_t at = name.find(kEachHead);
  if (at != std::string::npos) name.replace(at, kEachHead.size(), std::to_string(head));
  return name;
}

std::pair<std::size_t, std::size_t> expert_number(std::string_view ours) {
  for (const std::string_view mark : {".experts.", ".heads."}) {
    const std::size_t at = ours.find(mark);
    if (at == std::string_view::npos) continue;
    const std::size_t from = at + mark.size();
    return {from, std::min(ours.find('.', from), ours.size())};
  }
  return {std::string_view::npos, std::string_view::npos};
}

Dim expert_of(std::string_view ours) {
  const auto [from, to] = expert_number(ours);
  if (from == std::string_view::npos) return -1;
  Dim n = 0;
  for (std::size_t i = from; i < to && ours[i] >= '0' && ours[i] <= '9'; ++i) n = 10 * n + (ours[i] - '0');
  return n;
}

std::span<const std::byte> TensorUse::read_rows(Dim from, Dim count, std::vector<std::byte>& room) const {
  if (!scales) return view->read_rows(from * fold, count * fold, room);
  const Dim n = scales->last();  // blocks in a row
  std::vector<std::byte> pairs, exponents;
  const auto a = view->read_rows(from * n, count * n, pairs);
  const auto b = scales->read_rows(from, count, exponents);
  room.resize(bytes_of(DType::mxfp4, count * n * 32, view->name()));
  mxfp4_from_pairs(a, b, room);
  return room;
}

void TensorLayout::add(const std::string& key, const WeightShape& w, bool blocks) {
  const auto [it, fresh] = tensors_.emplace(key, Tensor{});
  Tensor& t = it->second;
  if (fresh) {
    order_.push_back(key);
    t.vector = w.vector;
    t.transposed = !blocks && family_.transposed(form_, w.name);
    t.before = family_.first_row(form_, w.name);
    t.joined = family_.joined(key);
    cols_[key] = w.cols;
  }
  const bool turned = t.joined && family_.turned(w.name);
  if (turned) cols_[key] = w.rows;
  // A tensor that holds several experts has an axis for them.
  const Dim expert = t.joined ? -1 : expert_of(w.name), rows = w.vector || turned ? w.cols : w.rows;
  Dim& filled = filled_[key][expert];
  t.users.push_back(uses_.size());
  uses_.push_back({key, w.name, rows, expert, filled, {}, turned});
  filled += rows;
}

void TensorLayout::finish() {
  for (auto& [key, t] : tensors_) {
    const std::map<Dim, Dim>& slices = filled_[key];
    // One expert alone: where another would lie in the same tensor, that has an axis for them.
    const auto shared = [&](std::string ours) {
      const auto [from, to] = expert_number(ours);
      if (from == std::string::npos || expert_of(ours) != 0) return false;
      const auto names = family_.tensor_names(form_, ours.replace(from, to - from, "1"));
      return std::find(names.begin(), names.end(), key) != names.end();
    };
    const bool several = !t.joined && (slices.size() > 1 || shared(uses_[t.users[0]].name));
    const Dim rows = slices.begin()->second + t.before, cols = cols_[key];
    if (several) t.shape.push_back(static_cast<Dim>(slices.size()));
    if (t.vector) t.shape.push_back(rows);
    else if (t.transposed) t.shape.insert(t.shape.end(), {cols, rows});
    else t.shape.insert(t.shape.end(), {rows, cols});
    for (const std::size_t u : t.users) {
      Use& w = uses_[u];
      TensorUse& use = w.use;
      use.transposed = t.transposed && !t.vector;
      const PartRecipe* part = part_of(recipe_, w.name);
      const AttnRecipe* attention = part ? part->attention() : nullptr;
      const DeltaRecipe* delta = part ? part->delta() : nullptr;
      const std::string word = family_.grouped(form_, w.name);
      const Dim groups = word == "rows"                    ? w.rows
                         : word == "kv_heads" && attention ? attention->kv_heads
                         : word == "heads" && attention    ? attention->heads
                         : word == "key_heads" && delta    ? delta->key_heads
                                                           : 0;
      use.first = w.offset;
      if (groups > 1 && w.rows % groups == 0 && (rows - t.before) % groups == 0) {
        use.first = w.offset / groups;
        use.chunk = w.rows / groups;
        use.stride = (rows - t.before) / groups;
      }
      use.first += t.before;
      if (w.turned) {
        use.transposed = true;
        use.slice = std::exchange(use.first, 0);
        continue;
      }
      const Dim slice = several ? w.slice : 0;
      if (use.transposed) use.slice = slice * cols;
      else use.first += slice * rows;
      if (family_.permuted(form_, w.name) && attention) use.head_dim = attention->head_dim;
      use.negated_exp = family_.negated_exp(form_, w.name);
    }
  }
}

TensorPlan plan_tensors(const Source& s, const Recipe& r, bool all) {
  return plan_model(s, r, DType::f32, all).tensors;
}

ModelPlan plan_model(const Source& s, const Recipe& r, DType real, bool all) {
  TensorLayout layout(*s.family, s.form, r);
  std::map<const TensorView*, Gains> gains;
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
    for (std::size_t n = 0; n < names.size() && !use.view && w.vector; ++n)
      for (Dim h = 0; names[n].find(kEachHead) != std::string::npos; ++h) {
        const TensorView* t = s.tensors->find(of_head(names[n], h));
        if (!t) break;
        read.insert(t->name());
        if (!use.view) use.view = t;
        else use.more.push_back(t);
      }
    for (std::size_t n = 0; n < names.size() && !use.view && s.form == Form::folder; ++n) {
      const TensorView *blocks = s.tensors->find(names[n] + "_blocks"),
                       *scales = s.tensors->find(names[n] + "_scales");
      if (!blocks || !scales) continue;
      read.insert(blocks->name()), read.insert(scales->name());
      use.view = blocks, use.scales = scales;
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
    layout.add(use.view->name(), w, use.scales != nullptr);
    plan.emplace_back(w, std::move(use));
  }
  layout.finish();
  for (std::size_t i = 0; i < plan.size(); ++i) {
    auto& [w, use] = plan[i];
    const TensorView* view = use.view;
    TensorUse place = layout.use(i);
    place.view = view, place.scales = use.scales;
    place.more = std::move(use.more);
    use = std::move(place);
    if (use.head_dim % 2 != 0)
      fail(s.where, ": tensor '", use.view->name(), "' keeps the channels of a head in pairs, and heads of ",
           use.head_dim, " channels have none; the sizes in the header are wrong: convert the model again");
    const TensorLayout::Tensor& t = layout.tensor(view->name());
    if (!w.vector) {
      if (t.users[0] == i) gains[view] = gains_of(s, *view, read);
      const std::vector<float>& of = gains[view].of;
      const Dim expert = std::max<Dim>(expert_of(w.name), 0);
      if (!of.empty()) use.gain = of[of.size() > 1 ? static_cast<std::size_t>(expert) % of.size() : 0];
    }
    if (t.users[0] != i) continue;
    std::vector<Dim> want = t.shape;
    std::span<const Dim> have = view->shape();
    while (w.vector && have.size() > 1 && have[0] == 1) have = have.subspan(1);  // Marian: [1,V]
    if (use.scales) {  // [E,rows,blocks,16] and [E,rows,blocks]
      want.back() = (want.back() + 31) / 32;
      if (!std::ranges::equal(use.scales->shape(), want) || use.scales->dtype() != DType::i8)
        fail(s.where, ": tensor '", use.scales->name(), "' has shape ", use.scales->shape_text(),
             "; the scales beside '", view->name(), "' are bytes of shape ", shape_text(want));
      if (w.cols % 32 != 0 || view->dtype() != DType::i8)
        fail(s.where, ": tensor '", view->name(), "' ", view->shape_text(),
             " should hold bytes, each two of ", w.cols, " columns in blocks of 32");
      want.push_back(16);
    }
    if (use.negated_exp)
      for (const float x : view->values())
        if (!(x < 0))
          fail(s.where, ": tensor '", view->name(), "' holds ", x,
               "; it is minus a rate of forgetting, so all of it is below 0: the file is damaged");
    if (have.size() == want.size() + 1 && have[1] == 1 && s.family->middle_one(w.name))  // [D,1,K]
      want.insert(want.begin() + 1, 1);
    bool fits = std::ranges::equal(have, want);
    if (!w.vector && !fits && have.size() == 4 && s.family->conv(w.name) && have[0] == want[0] &&
        have[1] * have[2] * have[3] == want[1]) {
      fits = true;
      use.fold = have[1] * have[2];
    }
    // Learned tokens of pictures, and their positions: [1,1,C], [1,n,C], [C].
    if (!w.vector && !fits && (s.family->leading_one(w.name) || s.family->flat(w.name))) {
      while (have.size() > want.size() && have[0] == 1) have = have.subspan(1);
      fits = std::ranges::equal(have, want) || (want[0] == 1 && have.size() == 1 && have[0] == want[1]);
    }
    // A gain for each channel of each head may have an axis for heads (Cohere), or a tensor for each.
    if (w.vector && !use.more.empty()) {
      Dim numbers = view->elements();
      for (const TensorView* piece : use.more) numbers += piece->elements();
      fits = numbers == w.cols;
    } else if (w.vector && have.size() == 2 && w.name.find("_norm") != std::string::npos) {
      fits = have[0] * have[1] == want[0];
    }
    if (!fits) {
      std::string ours;
      for (const std::size_t u : t.users) {
        if (ours.size() > 200) {
          ours += " + …";
          break;
        }
        ours += (ours.empty() ? "" : " + ") + plan[u].first.name;
      }
      fail(s.where, ": tensor '", view->name(), "' has shape ", view->shape_text(), "; the config asks for ",
           shape_text(want), " (", ours, ")");
    }
    if (!use.scales && !is_float(view->dtype()) && !is_block(view->dtype()))
      fail(s.where, ": tensor '", view->name(), "' holds ", name_of(view->dtype()),
           "; weights are numbers with a point or blocks");
    if (use.transposed && !t.joined && is_block(view->dtype()))
      fail(s.where, ": tensor '", view->name(), "' is transposed and in blocks of ", name_of(view->dtype()),
           "; that cannot be read");
  }
  // nothing is missing: its layers have no weights
  if (cut) model = model_without_storage(r, real, shapes);
  if (!all) return {std::move(model), std::move(plan)};
  // A head that repeats the table of a tied model was compared with it and is the same.
  if (r.head.kind == HeadRecipe::Kind::vocab && r.head.tied)
    if (const TensorView* t = s.tensor("head.weight")) read.insert(t->name());
  for (const TensorView& t : s.tensors->all())
    if (!read.contains(t.name()) && !s.family->ignored(s.form, t.name()) &&
        !s.family->beyond(s.form, t.name(), r.decoder ? r.decoder->layers : r.encoder->layers))
      fail(s.where, ": tensor '", t.name(), "' ", t.shape_text(), " is read by nothing in a ", s.family->name,
           " model of ", r.decoder ? r.decoder->layers : r.encoder->layers,
           " layers; the nearest expected name: '", nearest(t.name(), expected), "'");
  return {std::move(model), std::move(plan)};
}

}  // namespace rapt
