// SPDX-License-Identifier: Apache-2.0
// `rapt train --watch`: the page of `rapt serve` beside a training, on loopback and for looking alone.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "rapt/apps/server/train_events.h"

namespace rapt::cli {

class TrainWatch {
 public:
  explicit TrainWatch(std::optional<Dim> port);  // absent: 8642, or any that is free; says the address
  ~TrainWatch();
  TrainWatch(const TrainWatch&) = delete;
  TrainWatch& operator=(const TrainWatch&) = delete;

  // One training after the other: told by what begin() returns, which stays until end().
  server::TrainTeller& begin(Device& device, const TrainingRun& run, const std::string& name, Dim steps);
  void end(std::string_view how, const std::string& error = "");  // nothing where none began
  void stay(const std::atomic<int>& stop) const;  // until that is not 0

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rapt::cli
