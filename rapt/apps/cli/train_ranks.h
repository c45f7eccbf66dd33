// SPDX-License-Identifier: Apache-2.0
// What a training on several ranks adds to one: who speaks, how many threads each rank has, whether all are
// the same program, and the line that says so. Of one rank nothing here does anything.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "rapt/apps/cli/train.h"
#include "rapt/comm/heartbeat.h"
#include "rapt/comm/job.h"

namespace rapt::cli {

// One rank of a training, from when its ranks are connected to when they part.
class TrainRank {
 public:
  // Keeps its heartbeat in a folder inside of `out`, says how a run before this one died, and refuses ranks
  // that are not one program. All but rank 0 become quiet.
  TrainRank(Comm& comm, const Launch& launch, TrainArgs& args);
  ~TrainRank();
  Comm& comm() { return *comm_; }
  bool speaks() const { return comm_->rank() == 0; }
  // Of the device: what was asked for, or this rank's share of the processors that it may use.
  int threads() const { return threads_; }
  // After the device was made: refuses a mix of instruction sets.
  void compare(const Device& device) const;
  // What rank 0 says at the start; "" where there is one rank.
  std::string about(const Device& device, const TrainingRun& training, const TrainOptions& options) const;
  void done();  // the orderly end: nothing is left behind
  void failed(const std::string& why);  // for the next run to say

 private:
  int share_processors(const CommonArgs& common);

  const Launch launch_;
  std::string folder_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Comm> watched_;
  Comm* comm_;
  int threads_ = 0;
};

}  // namespace rapt::cli
