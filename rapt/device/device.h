// SPDX-License-Identifier: Apache-2.0
// A place to compute: threads (later a stream), and the constant table of kernels for its instruction set.
//
// Threads of a program share a device: any of them may compute on it, whoever made it, and a child of fork()
// too. They take turns: forward(), backward() and a step of an optimizer hold a Lease (rapt/base/team.h)
// from beginning to end, everything else for one kernel. No bit depends on it. A Run, a Session, a Trainer
// and what else holds a pass's memory is used by one thread at a time. What a tap calls runs inside the
// pass: it may compute on the same device, but must not wait for another thread that does.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rapt/base/team.h"
#include "rapt/device/kernels.h"

namespace rapt {

struct Queue {
  Team* team;
};

struct DeviceOptions {
  int threads = 0;       // 0: as many as the process may use
  // "": RAPT_ISA from the environment, else the best this machine has. "f64" is the reference in double
  std::string isa = "";
  bool pin = false;      // bind threads to processors; for a program that has the machine to itself
};

class Device {
 public:
  explicit Device(const DeviceOptions& options = {});
  // A table of one's own: tests put broken kernels into one.
  Device(const Kernels& table, const DeviceOptions& options);

  const Kernels& kernels;
  const DType real;
  Queue& queue() { return queue_; }
  Team& team() { return *team_; }
  // Those there are: the system may have given fewer than were asked for.
  int threads() const { return team_->threads(); }

  // Runs a kernel: call(&Kernels::norm, {.kind = …}). Fails where it found no memory for its scratch.
  template <class Args>
  void call(void (*Kernels::*kernel)(Queue&, const Args&) noexcept, const std::type_identity_t<Args>& args) {
    const Lease lease(*team_);
    (kernels.*kernel)(queue_, args);
    if (const std::size_t bytes = team_->starved()) fail_starved(bytes);
  }

 private:
  [[noreturn]] void fail_starved(std::size_t bytes) const;

  std::unique_ptr<Team> team_;
  Queue queue_;
};

// Instruction sets compiled in that this machine can run, best last: scalar, avx2, avx512 … ("f64" is never
// among them).
std::vector<std::string> available_isas();
const Kernels& kernels_for(std::string_view isa);  // fails with the list of names

}  // namespace rapt
