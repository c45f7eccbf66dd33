// SPDX-License-Identifier: Apache-2.0
// One weight is one task, and its sum goes from the first row to the last, so that threads change no bit.
#include "rapt/load/weight_sizes.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "rapt/load/checkpoint_files.h"
#include "rapt/nn/model.h"
#include "rapt/tensor/formats.h"

namespace rapt {
namespace {

void add(WeightSize& size, std::span<const float> values, double gain, double plus) {
  for (const float v : values) {
    const double x = static_cast<double>(v) * gain + plus;
    size.squares += x * x;
    size.largest = std::max(size.largest, std::abs(x));
  }
}

void read(WeightSize& size, const TensorUse& use, double plus) {
  const double gain = static_cast<double>(use.gain);
  std::vector<float> values;
  if (size.vector) {
    const std::vector<float> all = vector_numbers(use);
    for (Dim c = 0; c < size.cols; ++c)
      values.push_back(number_from(use, all[static_cast<std::size_t>(use.row(c))]));
    return add(size, values, gain, plus);
  }
  if (use.transposed) {
    const std::vector<float> all = slice_numbers(use, size.cols);
    for (Dim c = 0; c < size.cols; ++c)
      for (Dim r = 0; r < size.rows; ++r)
        values.push_back(all[static_cast<std::size_t>(c * use.last() + use.row(r))]);
    return add(size, values, gain, plus);
  }
  constexpr Dim kAtOnce = 1 << 16;  // numbers: what a core's cache holds
  const Dim most = use.plain() ? std::max<Dim>(1, kAtOnce / size.cols) : 1;
  std::vector<std::byte> room;
  for (Dim r = 0; r < size.rows; r += most) {
    const Dim count = std::min(most, size.rows - r);
    values.resize(static_cast<std::size_t>(count * size.cols));
    dequantize(use.dtype(), use.read_rows(use.row(r), count, room), values);
    add(size, values, gain, plus);
  }
}

}  // namespace

CheckpointSizes checkpoint_sizes(const std::string& path, Device& device) {
  const auto files = open_files(path);
  const Source& source = files->source;
  const auto [model, plan] = plan_model(source, translate_files(*files).recipe, DType::f32);
  CheckpointSizes out{.path = files->path, .family = source.family->name, .weights = {}};
  std::vector<std::size_t> planned;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!is_parameter(model->weights[i])) continue;
    const auto& [shape, use] = plan[i];
    out.weights.push_back({.name = shape.name,
                           .rows = shape.rows,
                           .cols = shape.cols,
                           .vector = shape.vector,
                           .stored = use.dtype()});
    planned.push_back(i);
  }
  device.team().each(static_cast<Dim>(planned.size()), [&](Dim task) {
    const std::size_t i = planned[static_cast<std::size_t>(task)];
    WeightSize& size = out.weights[static_cast<std::size_t>(task)];
    const auto start = model->starts.find(static_cast<int>(i));
    const bool minus_one = is_norm_weight(size.name) && start != model->starts.end() && start->second == 0;
    read(size, plan[i].second, minus_one ? 1 : 0);
    if (std::isnan(size.squares)) size.largest = size.squares;
  });
  source.tensors->check_unchanged();
  return out;
}

}  // namespace rapt
