// SPDX-License-Identifier: Apache-2.0
// Sums over the leaves of a step. A leaf is one of its batches, numbered from 0; its gradient begins at zero.
// Sums follow the aligned binary tree over these numbers: node (k, j) covers the leaves k 2^j to
// (k+1) 2^j - 1 and is its left child plus its right one. Where the number of leaves is no power of two, what
// is left over at the end is added from the right. The order depends on the number of leaves alone, not on
// who computed which (decision 0036).
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "rapt/nn/model.h"
#include "rapt/run/tape.h"

namespace rapt {

// The nodes of the tree that wait for their sibling, largest first: a binary counter.
template <class T>
class LeafTree {
 public:
  struct Node {
    Dim first = 0, count = 1;  // its leaves
    T value;
  };

  // `node` follows the last one. `add(left, right)`: left becomes left + right, right is not needed any more.
  template <class Add>
  void push(Node node, const Add& add) {
    nodes_.push_back(std::move(node));
    while (nodes_.size() > 1) {
      Node &left = nodes_[nodes_.size() - 2], &right = nodes_.back();
      if (left.count != right.count || left.first % (2 * left.count) != 0) return;
      add(left.value, right.value);
      left.count *= 2;
      nodes_.pop_back();
    }
  }
  // What is left over, from the right: at most one node stays.
  template <class Add>
  void finish(const Add& add) {
    for (; nodes_.size() > 1; nodes_.pop_back()) {
      Node &left = nodes_[nodes_.size() - 2], &right = nodes_.back();
      add(left.value, right.value);
      left.count += right.count;
    }
  }
  // How many of the nodes that wait are added to a single leaf when it is pushed.
  std::size_t sums_of_next() const {
    std::size_t sums = 0;
    Dim count = 1;
    for (auto left = nodes_.rbegin();
         left != nodes_.rend() && left->count == count && left->first % (2 * count) == 0; ++left)
      ++sums, count *= 2;
    return sums;
  }
  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::vector<Node> nodes_;
};

// Gradients that the tree holds at once, with the one that is being computed: 1 + floor(log2(leaves)).
int leaf_gradients(Dim leaves);

// Layers become complete one after the other. A bucket is a layer; several where that is less than
// `bucket_bytes` / 25, several buckets where it is more than `bucket_bytes`. A weight is never cut.
GradientLayout gradient_layout(const Model& model, std::size_t bucket_bytes);

// into += from, weight by weight, of the weights [first, end). A weight without a gradient adds nothing, not
// even a zero. Both of one layout, or of none.
void add_gradients(Device& device, const Model& model, Gradients& into, const Gradients& from, int first,
                   int end);

// The gradients of a step's leaves, summed as they come: those of a layer where backward is done with it,
// while they are in the cache. Memory is kept from step to step.
class LeafGradients {
 public:
  // Both must outlive it.
  LeafGradients(Device& device, const Model& model, std::shared_ptr<const GradientLayout> layout = nullptr)
      : device_(device), model_(model), layout_(std::move(layout)) {}
  // A step, with this leaf; 0 without it. `leaf` is where leaves are computed; empty where one begins.
  void begin(Dim first) { next_ = first; }
  // The next leaf has all of its gradients of the weights from `first` on: they are added to what waits.
  void pass(Gradients& leaf, int first);
  // The next leaf's, which are taken; afterwards `leaf` is empty.
  void push(Gradients& leaf);
  // All of them, into `sum`, which is empty before; ready for the next step.
  void finish(Gradients& sum);
  void clear();  // forgets what was pushed
  // The nodes that there are when the next leaf, which is `leaf`, was passed to its end: where each begins.
  struct Node {
    Dim first, count;
    Gradients* sum;
  };
  std::vector<Node> nodes_with(Gradients& leaf);

 private:
  void keep(Gradients& memory);

  Device& device_;
  const Model& model_;
  const std::shared_ptr<const GradientLayout> layout_;
  Dim next_ = 0;
  int passed_ = -1;  // of the next leaf: all weights from this one on; -1: none yet
  LeafTree<Gradients> tree_;
  std::vector<Gradients> free_;
};

}  // namespace rapt
