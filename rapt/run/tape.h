// SPDX-License-Identifier: Apache-2.0
// What backward needs: the ops of a pass in order, each with the views it saved. Gradients of activations
// belong to their buffers, gradients of weights to a table by weight index. Every backward ADDS to the
// gradients it finds; where nothing is there yet, it may write instead (Run::grad with `write`).
#pragma once
#include <memory>
#include <vector>

#include "rapt/tensor/tensor.h"
#include "rapt/tensor/weight.h"

namespace rapt {

class Run;

// Gradients of all weights of a model, in the same order of elements as the weights themselves, as f32 (f64
// on the reference).
class Gradients {
 public:
  explicit Gradients(DType real) : real_(real) {}
  std::byte* of(const Weight& weight);  // zeroed when first asked for
  // For an op that can write all of a gradient: `write` where nothing has been added so far. The memory is
  // then not zeroed, and the op writes every element instead of adding to it.
  std::byte* of(const Weight& weight, bool& write);
  // nullptr where nothing was added since the last zero()
  const std::byte* find(const Weight& weight) const;
  double get(const Weight& weight, Dim row, Dim col) const;
  void zero();  // forget all, keep the memory
  DType real() const { return real_; }

 private:
  struct Slot {
    std::shared_ptr<std::byte> data;
    std::size_t bytes = 0;
    bool live = false;
  };
  DType real_;
  std::vector<Slot> slots_;
};

class Tape {
 public:
  explicit Tape(Gradients& into) : gradients(into) {}

  Gradients& gradients;
  void push(void (*backward)(Run&, const void*), const void* saved) { nodes_.push_back({backward, saved}); }
  void play_back(Run& run);  // every op's backward, last op first; empties the tape
  void clear() { nodes_.clear(), held_.clear(); }  // forgets a pass that nobody will play back
  struct Mark {
    std::size_t nodes = 0, held = 0;
  };
  Mark mark() const { return {nodes_.size(), held_.size()}; }
  void release(Mark m);  // forgets what came after
  std::size_t size() const { return nodes_.size(); }
  // Alive until the tape is played back or dropped.
  void hold(std::shared_ptr<const void> what) { held_.push_back(std::move(what)); }

 private:
  struct Node {
    void (*backward)(Run&, const void*);
    const void* saved;
  };
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const void>> held_;
};

}  // namespace rapt
