// SPDX-License-Identifier: Apache-2.0
// Nodes are added in place, on the left; the right one's memory is that of a later leaf.
#include "rapt/use/leaves.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "rapt/nn/weight_table.h"
#include "rapt/ops/elementwise.h"

namespace rapt {
namespace {

// Numbers of a weight in the slab: its own, to the end of a cache line.
Dim padded(const Weight& w) { return (w.stored() + 15) / 16 * 16; }

}  // namespace

int leaf_gradients(Dim leaves) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(leaves)));
}

GradientLayout gradient_layout(const Model& model, std::size_t bucket_bytes) {
  GradientLayout out;
  out.place.assign(model.weights.size(), -1);
  std::set<int> ends = {0};  // of what becomes complete together, from the back: first weights of layers
  for (const auto* stack : {&model.encoder, &model.decoder})
    if (*stack)
      for (const Layer& layer : (*stack)->layers) ends.insert(layer.first_weight);
  const auto most = static_cast<Dim>(bucket_bytes / size_of(model.real)), least = most / 25;
  int end = static_cast<int>(model.weights.size());
  Dim begin = 0;
  for (int i = end - 1; i >= 0; --i) {
    const Weight& w = model.weights[static_cast<std::size_t>(i)];
    if (is_parameter(w)) {
      out.place[static_cast<std::size_t>(i)] = out.size;
      out.size += padded(w);
    }
    const Dim size = out.size - begin;
    if (i > 0 && size < (ends.contains(i) ? least : most)) continue;
    if (size > 0) out.buckets.push_back({.first = i, .end = end, .begin = begin, .size = size});
    begin = out.size, end = i;
  }
  return out;
}

void add_gradients(Device& device, const Model& model, Gradients& into, const Gradients& from, int first,
                   int end) {
  const Lease lease(device.team());
  // In a slab neighbours that both have are one run of numbers.
  std::byte* left = nullptr;
  const std::byte* right = nullptr;
  Dim elements = 0, next = -1;
  const auto add = [&] {
    if (elements > 0)
      device.call(&Kernels::add, {.elements = elements, .scale = 1, .a = left, .b = right, .y = left});
    elements = 0;
  };
  for (int i = end - 1; i >= first; --i) {
    const Weight& w = model.weights[static_cast<std::size_t>(i)];
    const std::byte* g = from.find(w);
    if (!g) continue;
    bool write = false;
    std::byte* sum = into.of(w, write);
    if (write) {
      std::memcpy(sum, g, static_cast<std::size_t>(w.stored()) * size_of(into.real()));
      continue;
    }
    const Dim place = into.layout() ? into.layout()->place[static_cast<std::size_t>(i)] : -1;
    if (elements == 0 || place < 0 || place != next) {
      add();
      left = sum, right = g;
    }
    elements = (sum - left) / static_cast<Dim>(size_of(into.real())) + w.stored();
    next = place < 0 ? -1 : place + padded(w);
  }
  add();
}

std::vector<LeafGradients::Node> LeafGradients::nodes_with(Gradients& leaf) {
  auto& waiting = tree_.nodes();
  const std::size_t sums = tree_.sums_of_next();
  std::vector<Node> out;
  for (std::size_t i = 0; i < waiting.size() - sums; ++i)
    out.push_back({waiting[i].first, waiting[i].count, &waiting[i].value});
  if (sums == 0) {
    out.push_back({next_, 1, &leaf});
  } else {
    auto& left = waiting[waiting.size() - sums];
    out.push_back({left.first, 2 * left.count, &left.value});
  }
  return out;
}

void LeafGradients::pass(Gradients& leaf, int first) {
  const int end = passed_ < 0 ? static_cast<int>(model_.weights.size()) : passed_;
  if (first >= end) return;
  passed_ = first;
  leaf.close(first);
  auto& waiting = tree_.nodes();
  const Gradients* right = &leaf;
  std::size_t at = waiting.size();
  for (std::size_t sums = tree_.sums_of_next(); sums > 0; --sums) {
    Gradients& left = waiting[--at].value;
    add_gradients(device_, model_, left, *right, first, end);
    right = &left;
  }
}

void LeafGradients::keep(Gradients& memory) {
  memory.zero();
  free_.push_back(std::move(memory));
}

void LeafGradients::push(Gradients& leaf) {
  pass(leaf, 0);
  passed_ = -1;
  leaf.open();
  tree_.push({.first = next_++, .value = std::exchange(leaf, Gradients(leaf.real(), layout_))},
             [&](Gradients&, Gradients& right) { keep(right); });
  if (free_.empty()) return;
  leaf = std::move(free_.back());
  free_.pop_back();
}

void LeafGradients::finish(Gradients& sum) {
  tree_.finish([&](Gradients& left, Gradients& right) {
    add_gradients(device_, model_, left, right, 0, static_cast<int>(model_.weights.size()));
    keep(right);
  });
  if (!tree_.nodes().empty()) {
    keep(sum);
    sum = std::move(tree_.nodes().front().value);
    tree_.nodes().clear();
  }
  clear();
}

void LeafGradients::clear() {
  for (auto& node : tree_.nodes()) keep(node.value);
  tree_.nodes().clear();
  next_ = 0;
  passed_ = -1;
}

}  // namespace rapt
