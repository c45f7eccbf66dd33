// SPDX-License-Identifier: Apache-2.0
// What a Python Model stands on, for all files of the module: `model._state` in Python is a ModelState, which
// functions of _rapt take as `const ModelPtr&`. Python's Model._of(state) makes a Model of one.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rapt/api/state.h"
#include "rapt/apps/python/wait.h"

namespace rapt::python {

using ModelPtr = std::shared_ptr<api::ModelState>;  // checkpoint, device; weights: state->net()
using DevicePtr = std::shared_ptr<api::DeviceState>;  // `_rapt.Device`; device: ->device

// The device that everybody shares who asks for no other.
DevicePtr shared_device();

}  // namespace rapt::python
