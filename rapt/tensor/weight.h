// SPDX-License-Identifier: Apache-2.0
// A parameter: logical shape, storage format, and how the elements lie in memory. Packing is declared here,
// so that nobody has to guess; gradients and optimizer state of a weight lie in the same order as the
// weight itself.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

enum class Packing : std::uint8_t {
  rows,    // [rows][cols]
  // [ceil(rows/32)][cols][32]: 32 output rows side by side, zero rows at the end. What `linear` reads.
  // Block formats: as panel_kind.h says; made by pack_rows, read by unpack_row (pack.h).
  panels,
};
constexpr Dim kPanel = 32;

struct Weight {
  std::string name;
  int index = -1;  // place in the model's table of weights, and of gradients
  Dim rows = 1, cols = 0;
  DType format = DType::f32;
  Packing packing = Packing::rows;
  // Block formats: every number is multiplied by this. nvfp4 keeps it beside the tensor.
  float gain = 1;
  bool decay = true;  // weight decay applies (matrices yes, norms and biases no)
  std::shared_ptr<std::byte> data;

  Dim size() const { return rows * cols; }
  Dim stored() const {
    return (packing == Packing::panels ? (rows + kPanel - 1) / kPanel * kPanel : rows) * cols;
  }
  std::size_t bytes() const;
  Dim offset(Dim row, Dim col) const {  // of one element in the stored order; not for block formats
    return packing == Packing::rows ? row * cols + col : (row / kPanel * cols + col) * kPanel + row % kPanel;
  }
  double get(Dim row, Dim col) const;
  void set(Dim row, Dim col, double value);
};

// Zeroed storage, aligned for vectors.
Weight make_weight(std::string name, Dim rows, Dim cols, DType format, Packing packing = Packing::rows);
// Elements row by row in the weight's own format, whatever its packing; not for block formats.
std::vector<std::byte> row_major(const Weight& weight);
void fill_row_major(Weight& weight, std::span<const std::byte> bytes);
// Row-major values in.
void fill(Weight& weight, std::span<const double> values);

}  // namespace rapt
