// SPDX-License-Identifier: Apache-2.0
// Edits that a handle of a model carries (Model.edited): every call of that handle puts them on its passes.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rapt/inspect/edits.h"

namespace rapt::python {

struct Edits {
  std::vector<Edit> list;
  std::vector<std::string> texts;  // as they were given; of an array its sizes in the value's place
  std::string key;                 // for Request::edits: equal keys are equal edits, values and all
};

// Taps of one call, with edits on them. Must outlive the passes.
class Edited {
 public:
  // `edits` may be absent; Passes::many for what an Engine reads in pieces.
  Edited(const Model& model, const Edits* edits, Passes passes) {
    if (edits) check_ = install_edits(taps_, model, edits->list, passes);
  }
  Edited(const Edited&) = delete;
  Edited& operator=(const Edited&) = delete;
  Taps& taps() { return taps_; }                       // for further observers
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
