// SPDX-License-Identifier: Apache-2.0
// Sums over the leaves of a step. A leaf is one of its batches, numbered from 0; its gradient begins at zero.
// Sums follow the aligned binary tree over these numbers: node (k, j) covers the leaves k 2^j to
// (k+1) 2^j - 1 and is its left child plus its right one. Where the number of leaves is no power of two, what
// is left over at the end is added from the right. The order depends on the number of leaves alone, not on
// who computed which (decision 0036).
#pragma once
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
  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::vector<Node> nodes_;
};

// Gradients that the tree holds at once, with the one that is being computed: 1 + floor(log2(leaves)).
int leaf_gradients(Dim leaves);

// into += from, weight by weight. A weight without a gradient adds nothing, not even a zero.
void add_gradients(Device& device, const Model& model, Gradients& into, const Gradients& from);

// The gradients of a step's leaves, summed as they come. Memory is kept from step to step.
class LeafGradients {
 public:
  explicit LeafGradients(DType real) : real_(real) {}
  void begin(Dim first) { next_ = first; }  // a step, with this leaf; 0 without it
  // The next leaf's, which are taken; afterwards `leaf` is empty.
  void push(Device& device, const Model& model, Gradients& leaf);
  // All of them, into `sum`, which is empty before; ready for the next step.
  void finish(Device& device, const Model& model, Gradients& sum);
  void clear();  // forgets what was pushed
  std::vector<LeafTree<Gradients>::Node>& nodes() { return tree_.nodes(); }

 private:
  void keep(Gradients& memory);

  DType real_;
  Dim next_ = 0;
  LeafTree<Gradients> tree_;
  std::vector<Gradients> free_;
};

}  // namespace rapt
