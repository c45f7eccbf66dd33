// SPDX-License-Identifier: Apache-2.0
// Where models compute: threads, and the instruction set they use.
#pragma once
#include <memory>
#include <string>

#include "rapt/export.h"

namespace rapt::RAPT_FACE {

// "0.2.0", of the library that runs; headers of one minor version fit.
RAPT_API std::string version();

struct DeviceOptions {
  int threads = 0;  // 0: RAPT_THREADS, else as many as the process may use
  // "avx512", "avx2", "scalar"; "": RAPT_ISA, else the best of this machine. "f64": the reference,
  // in double
  std::string isa{};
};

class RAPT_API Device {
 public:
  Device();  // the one that everybody shares who asks for nothing else; made with the first use
  explicit Device(const DeviceOptions& options);
  int threads() const;
  std::string isa() const;

 private:
  friend struct Access;
  mutable std::shared_ptr<struct DeviceState> state_;
};

}  // namespace rapt::RAPT_FACE
