// SPDX-License-Identifier: Apache-2.0
// Nodes are added in place, on the left; the right one's memory is that of a later leaf.
#include "rapt/use/leaves.h"

#include <bit>
#include <cstring>

#include "rapt/ops/elementwise.h"

namespace rapt {

int leaf_gradients(Dim leaves) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(leaves)));
}

void add_gradients(Device& device, const Model& model, Gradients& into, const Gradients& from) {
  const Lease lease(device.team());
  for (const Weight& w : model.weights) {
    const std::byte* right = from.find(w);
    if (!right) continue;
    bool write = false;
    std::byte* left = into.of(w, write);
    if (write) std::memcpy(left, right, static_cast<std::size_t>(w.stored()) * size_of(into.real()));
    else device.call(&Kernels::add, {.elements = w.stored(), .scale = 1, .a = left, .b = right, .y = left});
  }
}

void LeafGradients::keep(Gradients& memory) {
  memory.zero();
  free_.push_back(std::move(memory));
}

void LeafGradients::push(Device& device, const Model& model, Gradients& leaf) {
  tree_.push({.first = next_++, .value = std::exchange(leaf, Gradients(real_))},
             [&](Gradients& left, Gradients& right) {
               add_gradients(device, model, left, right);
               keep(right);
             });
  if (free_.empty()) return;
  leaf = std::move(free_.back());
  free_.pop_back();
}

void LeafGradients::finish(Device& device, const Model& model, Gradients& sum) {
  tree_.finish([&](Gradients& left, Gradients& right) {
    add_gradients(device, model, left, right);
    keep(right);
  });
  if (!tree_.nodes().empty()) {
    keep(sum);
    sum = std::move(tree_.nodes().front().value);
    tree_.nodes().clear();
  }
  next_ = 0;
}

void LeafGradients::clear() {
  for (auto& node : tree_.nodes()) keep(node.value);
  tree_.nodes().clear();
  next_ = 0;
}

}  // namespace rapt
