// SPDX-License-Identifier: Apache-2.0
// What backward needs: the ops of a pass in order, each with the views it saved. Gradients of activations
// belong to their buffers, gradients of weights to a table by weight index. Every backward ADDS to the
// gradients it finds; where nothing is there yet, it may write instead (Run::grad with `write`).
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "rapt/tensor/tensor.h"
#include "rapt/tensor/weight.h"

namespace rapt {

class Run;

// Where the gradients of a model's weights lie in one piece of memory: those of weights that the forward uses
// last in front, so that backward fills it from the front. A model makes its weights in the order in which
// its forward first uses them, so this is their order by index, reversed.
struct GradientLayout {
  struct Bucket {  // weights that are handed on together
    int first = 0, end = 0;  // [first, end) by index
    Dim begin = 0, size = 0;  // their numbers
  };
  std::vector<Dim> place;  // by weight: its first number; -1 for buffers, which have none
  std::vector<Bucket> buckets;  // in the order in which backward is done with them, and of their numbers
  Dim size = 0;  // numbers of all
};

// Gradients of all weights of a model, in the same order of elements as the weights themselves, as f32 (f64
// on the reference).
class Gradients {
 public:
  // Without a layout each weight's lie somewhere.
  explicit Gradients(DType real, std::shared_ptr<const GradientLayout> layout = nullptr)
      : real_(real), layout_(std::move(layout)) {}
  std::byte* of(const Weight& weight);  // zeroed when first asked for
  // For an op that can write all of a gradient: `write` where nothing has been added so far. The memory is
  // then not zeroed, and the op writes every element instead of adding to it.
  std::byte* of(const Weight& weight, bool& write);
  // nullptr where nothing was added since the last zero()
  const std::byte* find(const Weight& weight) const;
  double get(const Weight& weight, Dim row, Dim col) const;
  void zero();  // forget all, keep the memory
  // From here on of() fails for weights with the index `first` and later ones, until open(): others were told
  // that nothing more is added to these.
  void close(int first) { closed_ = first; }
  void open() { closed_ = std::numeric_limits<int>::max(); }
  DType real() const { return real_; }
  const GradientLayout* layout() const { return layout_.get(); }
  // With a layout: all of the memory, taken where there is none yet.
  std::byte* slab();

 private:
  struct Slot {
    std::shared_ptr<std::byte> data;
    std::size_t bytes = 0;
    bool live = false;
  };
  DType real_;
  std::shared_ptr<const GradientLayout> layout_;
  std::shared_ptr<std::byte> slab_;
  std::vector<Slot> slots_;
  int closed_ = std::numeric_limits<int>::max();
};

class Tape {
 public:
  explicit Tape(Gradients& into) : gradients(into) {}

  Gradients& gradients;
  // Called on the way back where nothing more is added to the gradients of weights with this index and later
  // ones, if it is there. What was told never grows again, and the end of a pass is not told.
  std::function<void(int first)> passed;
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
