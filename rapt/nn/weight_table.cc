// SPDX-License-Identifier: Apache-2.0
// Weights by name and role; sizes are added with checked arithmetic.
#include "rapt/nn/weight_table.h"

#include "rapt/base/checked.h"
#include "rapt/base/text.h"

namespace rapt {

Weight without_storage(std::string name, Dim rows, Dim cols, WeightRole) {
  Weight w;
  w.name = std::move(name);
  w.rows = rows;
  w.cols = cols;
  return w;
}

bool stays_real(std::string_view name) {
  return name.ends_with(".router.weight") || name.ends_with(".shared_gate.weight") ||
         name.ends_with("_conv") || name.ends_with(".mix");
}

bool is_parameter(const Weight& w) {
  return !w.name.ends_with(".running") && !w.name.ends_with(".router.choice");
}

bool is_norm_weight(std::string_view name) {
  return name.ends_with(".weight") && name.find("norm") != name.npos;
}

const Weight* WeightTable::add(const std::string& name, Dim rows, Dim cols, WeightRole role) {
  constexpr Dim kMostParameters = Dim{1} << 40;
  parameters_ = checked_add(parameters_, checked_mul(rows, cols, name), name);
  if (parameters_ > kMostParameters)
    fail("the model would have more than ", short_count(static_cast<double>(kMostParameters)),
         " parameters (", name, " alone ", short_count(static_cast<double>(rows * cols)),
         "), surely a mistake: check width, vocab, layers and heads");
  Weight w = make_(name, rows, cols, role);
  w.index = static_cast<int>(weights_.size());
  w.decay = role == WeightRole::matrix || (role == WeightRole::table && rows > 1);
  weights_.push_back(std::move(w));
  return &weights_.back();
}
const Weight* WeightTable::matrix(const std::string& name, Dim rows, Dim cols) {
  return add(name, rows, cols, WeightRole::matrix);
}
const Weight* WeightTable::table(const std::string& name, Dim rows, Dim cols) {
  return add(name, rows, cols, WeightRole::table);
}
const Weight* WeightTable::vector(const std::string& name, Dim size, std::optional<double> start) {
  const Weight* w = add(name, 1, size, WeightRole::vector);
  if (start) starts_[w->index] = *start;
  return w;
}

}  // namespace rapt
