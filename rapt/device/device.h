// SPDX-License-Identifier: Apache-2.0
// A place to compute: threads (later a stream), and the constant table of kernels for its instruction set.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/team.h"
#include "rapt/device/kernels.h"

namespace rapt {

struct Queue {
  Team* team;
};

struct DeviceOptions {
  int threads = 0;       // 0: as many as the process may use
  std::string isa = "";  // "": RAPT_ISA from the environment, else the best this machine has. "f64" is the reference in double
  bool pin = false;      // bind threads to processors; for a program that has the machine to itself
};

class Device {
 public:
  explicit Device(const DeviceOptions& options = {});
  Device(const Kernels& table, const DeviceOptions& options);  // a table of one's own: tests put broken kernels into one

  const Kernels& kernels;
  const DType real;
  Queue& queue() { return queue_; }
  int threads() const { return team_->threads(); }

 private:
  std::unique_ptr<Team> team_;
  Queue queue_;
};

// Instruction sets compiled in that this machine can run, best last: scalar, avx2, avx512 … ("f64" is never among them).
std::vector<std::string> available_isas();
const Kernels& kernels_for(std::string_view isa);  // fails with the list of names

}  // namespace rapt
