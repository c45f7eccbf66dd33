// SPDX-License-Identifier: Apache-2.0
// Everything one pass carries, by reference, never global: where it computes, its scratch memory, and who
// watches. Training hands it a tape, inspection hands it taps; the ops are the same. One thread at a time
// uses a Run; several Runs may share a device.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "rapt/base/arena.h"
#include "rapt/device/device.h"
#include "rapt/run/adapter.h"
#include "rapt/run/cancel.h"
#include "rapt/run/tape.h"
#include "rapt/run/taps.h"
#include "rapt/tensor/tensor.h"

namespace rapt {

// Randomness of a pass. A number is keyed by (seed, step, site, sequence, position): see random_key.
struct RandomState {
  std::uint64_t seed = 0, step = 0;
};

// What the two factors of a product of linear are rounded to before they are multiplied (linear.h); f32: not
// at all.
enum class Precision { f32, bf16 };

// Thrown by a pass that Run::cancel ended.
class Cancelled : public Error {
 public:
  Cancelled() : Error("cancelled") {}
};

class Run {
 public:
  explicit Run(Device& where) : device(where) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Device& device;
  Arena arena;
  Tape* tape = nullptr;
  Taps* taps = nullptr;
  bool training = false;  // dropout and batch statistics; independent of the tape
  // With a tape: keep each layer's input only and run the layer again on the way back.
  bool recompute = false;
  bool recomputing = false;  // such a second run is under way: running statistics stay as they are
  RandomState random;
  Stack stack = Stack::decoder;
  int layer = -1, part = -1;
  // Per row of the batch: its sequence and position, for random numbers.
  std::span<const std::uint64_t> row_ids;
  // Which rows of the pass use which adapters: what linear adds to its products. Set by forward().
  const AdaptedRows* adapted = nullptr;
  Precision products = Precision::f32;  // of linear, forward and backward
  // What the pass's loss counts in that of the step: losses that parts add in their backward (route.h) are
  // multiplied by it.
  double loss_share = 1;
  // Set by any thread: the pass ends before its next layer or its head, and what it belongs to is as it was.
  const std::atomic<bool>* cancel = nullptr;
  // … which a CancelScope of the thread that computes does, too.
  void check_cancelled() const {
    const auto set = [](const std::atomic<bool>* flag) {
      return flag && flag->load(std::memory_order_relaxed);
    };
    if (set(cancel) || set(CancelScope::now())) throw Cancelled();
  }

  const Kernels& kernels() const { return device.kernels; }
  Queue& queue() const { return device.queue(); }
  template <class Args>
  void call(void (*Kernels::*kernel)(Queue&, const Args&) noexcept, const std::type_identity_t<Args>& args) {
    device.call(kernel, args);
  }

  Tensor make(std::initializer_list<Dim> sizes) { return make(sizes, device.real); }  // uninitialised
  Tensor make(std::initializer_list<Dim> sizes, DType dtype);
  Tensor like(const Tensor& t);
  Tensor upload(std::initializer_list<Dim> sizes, std::span<const double> values);

  // A list that ops and their backward read, in the arena: the caller's own may be gone by then.
  template <class T, std::size_t N>
  const T* copy_of(std::span<const T, N> list) {
    T* copy = arena.take_array<T>(static_cast<Dim>(list.size()));
    std::copy(list.begin(), list.end(), copy);
    return copy;
  }

  // The gradient of a view: zeroed memory of the buffer's size when first asked for, nullptr for a
  // constant.
  void* grad(const Tensor& t);
  // The gradient of a weight, nullptr for an absent weight.
  void* grad(const Weight* w) { return w ? tape->gradients.of(*w) : nullptr; }
  // The same for an op that can write all of it: `write` where nothing has been added yet (tape.h).
  void* grad(const Tensor& t, bool& write);
  void* grad(const Weight* w, bool& write) { return w ? tape->gradients.of(*w, write) : nullptr; }

  // Remember how to go back: backward(run, saved) will be called in reverse order. Nothing happens without
  // a tape. What an op saves is a plain struct named after it (NormTape).
  template <class OpTape>
  void record(void (*backward)(Run&, const OpTape&), const OpTape& saved) {
    static_assert(std::is_trivially_copyable_v<OpTape> && alignof(OpTape) <= Arena::kAlign);
    if (!tape) return;
    struct Entry {
      void (*backward)(Run&, const OpTape&);
      OpTape saved;
    };
    auto* e = new (arena.take(sizeof(Entry))) Entry{backward, saved};
    tape->push(
        [](Run& run, const void* p) {
          static_cast<const Entry*>(p)->backward(run, static_cast<const Entry*>(p)->saved);
        },
        e);
  }

  // Here the forward first uses the weights with this index and later ones: see Tape::passed.
  void first_use(int weight);

  bool wants(Site site) const { return taps && taps->sees(site); }
  // A key for random numbers at one site of the model; `site` tells apart the uses inside one layer.
  std::uint64_t random_key(std::uint64_t site) const;

  void reset() {  // ready for the next pass; memory is kept
    arena.reset();
    layer = part = -1;
  }
};

// Stands at the beginning of a pass. When an exception leaves the pass (a tap may throw, memory may be out),
// the run is what it was: every field that passes change, the scratch memory, the length of the tape. The
// next pass has the bits it would have had.
class RunGuard {
 public:
  explicit RunGuard(Run& run);
  ~RunGuard();
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;

 private:
  Run& run_;
  const int exceptions_;  // under way when the pass began
  Tape* const tape_;
  Taps* const taps_;
  const bool muted_, recomputing_;
  const Stack stack_;
  const int layer_, part_;
  const std::span<const std::uint64_t> row_ids_;
  const AdaptedRows* const adapted_;
  const Arena::Mark arena_;
  const Tape::Mark tape_mark_;
};

// y's gradient is set to one (a scalar loss) and the tape is played back. After an exception the tape is
// empty, and the gradients of weights are a part of a sum: zero them.
void backward(Run& run, const Tensor& loss);

}  // namespace rapt
