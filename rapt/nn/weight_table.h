// SPDX-License-Identifier: Apache-2.0
// Every weight of a model, made in a fixed order by whoever names it.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rapt/tensor/weight.h"

namespace rapt {

// matrix: for `linear`, in panels, decays. table: vectors by number (tokens, positions), in rows or blocks
// in panels, decays. vector: norms, biases; in rows, does not decay.
enum class WeightRole { matrix, table, vector };
// Small matrices that decide or open something are kept as they are whatever the others become: routers,
// short convolutions.
bool stays_real(std::string_view name);
// Buffers are weights that no gradient reaches and that are not counted: running statistics of a batch norm,
// and what is added to the scores of experts for their choice.
bool is_parameter(const Weight& w);
bool is_norm_weight(std::string_view name);  // the gain of a norm
// Makes a weight's storage in the format it shall have; a loader keeps that of its file.
using WeightMaker = std::function<Weight(std::string name, Dim rows, Dim cols, WeightRole role)>;
// A maker: names and sizes, to count and to plan.
Weight without_storage(std::string name, Dim rows, Dim cols, WeightRole role);

// Pointers to the weights stay valid. Fails before a weight is made with which the model would be larger
// than any model is.
class WeightTable {
 public:
  // `starts`: by index, weights that start from one number whatever the scheme (norms, scales).
  WeightTable(std::deque<Weight>& weights, std::map<int, double>& starts, WeightMaker make)
      : weights_(weights), starts_(starts), make_(std::move(make)) {}
  const Weight* matrix(const std::string& name, Dim rows, Dim cols);
  const Weight* table(const std::string& name, Dim rows, Dim cols);
  const Weight* vector(const std::string& name, Dim size, std::optional<double> start = {});
  int count() const { return static_cast<int>(weights_.size()); }

 private:
  const Weight* add(const std::string& name, Dim rows, Dim cols, WeightRole role);
  std::deque<Weight>& weights_;
  std::map<int, double>& starts_;
  WeightMaker make_;
  Dim parameters_ = 0;
};

}  // namespace rapt
