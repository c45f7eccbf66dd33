// SPDX-License-Identifier: Apache-2.0
// Edits that a handle of a model carries (Model.edited; ModelState::edits): every call of that handle puts
// them on its passes. For a Request: taps = edited.edits(), edits = the set's key.
#pragma once
#include <functional>

#include "rapt/apps/python/model.h"
#include "rapt/inspect/edits.h"

namespace rapt::python {

// Taps of one call, with the handle's edits on them. Must outlive the passes.
class Edited {
 public:
  // Passes::many for what an Engine reads in pieces.
  Edited(const api::ModelState& model, Passes passes) {
    if (model.edits) check_ = install_edits(taps_, model.net(), model.edits->list, passes);
  }
  Edited(const Edited&) = delete;
  Edited& operator=(const Edited&) = delete;
  Taps& taps() { return taps_; }  // for further observers
  Taps* edits() { return check_ ? &taps_ : nullptr; }  // for a pass that nobody else watches
  // After the passes: fails where an edit touched nothing.
  void check() const {
    if (check_) check_();
  }

 private:
  Taps taps_;
  std::function<void()> check_;
};

}  // namespace rapt::python
