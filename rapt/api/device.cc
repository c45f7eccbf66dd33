// SPDX-License-Identifier: Apache-2.0
// Devices of the public face; those who ask for nothing share one, which is made when the first of them
// computes.
#include "rapt/api/state.h"

namespace rapt::api {

std::string version() { return RAPT_VERSION; }

Device::Device() = default;
Device::Device(const DeviceOptions& options)
    : state_(std::make_shared<DeviceState>(
          rapt::DeviceOptions{.threads = options.threads, .isa = options.isa})) {}

int Device::threads() const { return Access::of(*this)->device.threads(); }
std::string Device::isa() const { return std::string(Access::of(*this)->device.kernels.isa); }

std::shared_ptr<DeviceState> Access::of(const Device& device) {
  if (device.state_) return device.state_;
  static const std::shared_ptr<DeviceState> shared = std::make_shared<DeviceState>();
  return shared;
}

Device Access::handle(std::shared_ptr<DeviceState> state) {
  Device device;
  device.state_ = std::move(state);
  return device;
}

}  // namespace rapt::api
