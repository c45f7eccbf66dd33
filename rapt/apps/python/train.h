// SPDX-License-Identifier: Apache-2.0
// What the files about training share: steps that Ctrl-C does not cut off, batches from Python.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "rapt/apps/python/arrays.h"
#include "rapt/apps/python/model.h"
#include "rapt/use/own_data.h"
#include "rapt/use/training.h"
#include "rapt/use/weights.h"

namespace rapt::python {

using DataPtr = std::shared_ptr<const TrainData>;

// f() without the GIL, to its end: Ctrl-C arrives behind it, as the KeyboardInterrupt that is thrown.
template <class F>
auto to_its_end(F&& f) -> std::invoke_result_t<F> {
  using Result = std::invoke_result_t<F>;
  if (!on_main_thread()) {
    const OutOfPython out(false);
    return f();
  }
  std::atomic<bool> pressed{false};
  std::optional<Result> out;
  run_elsewhere([&] { out.emplace(f()); }, pressed);
  return std::move(*out);
}

using Ints = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// One of them at a time, or a UsageError: what belongs to one thread.
class Turn {
 public:
  Turn(std::atomic<bool>& busy, const char* what) : busy_(busy) {
    if (busy_.exchange(true))
      fail_usage(what, ": is at work in another thread; it belongs to one thread at a time");
  }
  ~Turn() { busy_ = false; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& busy_;
};

// Gradients of a model's weights, with the loss they belong to.
struct BatchGradients {
  ModelPtr model;
  double loss = 0;
  Gradients values;
  explicit BatchGradients(ModelPtr of) : model(std::move(of)), values(model->on().real) {}
};

OwnBatch own_batch(const nb::handle& tokens, const nb::handle& lengths, const nb::handle& targets,
                   const nb::handle& source, const nb::handle& source_lengths);

void add_gradients(nb::module_& m);  // train_by_hand.cc
void add_data(nb::module_& m);       // train_data.cc

}  // namespace rapt::python
