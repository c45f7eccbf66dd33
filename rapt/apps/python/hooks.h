// SPDX-License-Identifier: Apache-2.0
// Python's functions at points of a pass: of one pass (run_with_hooks), and of all passes of an answer.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rapt/apps/python/edits.h"
#include "rapt/inspect/capture.h"

namespace rapt::python {

using NamedFunctions = std::vector<std::pair<std::string, nb::callable>>;  // points, as people write them

struct Functions {
  std::vector<Asked> asked;
  std::vector<nb::callable> calls;  // of each
};
Functions functions_of(const Model& model, const NamedFunctions& given);

// f(array, name, our name, layer, stack, rows before the text, rows), with the GIL. `rows` is -1 of rows that
// the head reads, of a pass that is shared: nobody knows their places.
nb::object call_hook(const nb::callable& f, nb::object x, const Asked& a, Stack stack, Dim before, Dim rows);
// Rows of a value before those of its text: learned tokens.
Dim rows_before(const Model& model, const Point& p);
// The interpreter must not be entered any more once it ends.
void end_if_ending();

// Lets the functions change the passes of `taps`, which they must outlive. What comes back fails where a
// point did not come by.
std::function<void()> install(Taps& taps, const Model& model, const Functions& functions);

// What an answer's passes are changed by: the handle's edits, then functions.
class RequestHooks {
 public:
  RequestHooks(const ModelPtr& model, const NamedFunctions& given);
  Taps* taps() { return &edited_.taps(); }
  void check() const;  // behind the answer

 private:
  const Functions functions_;
  Edited edited_;
  std::function<void()> came_;
};
// Let go of with the GIL, from any thread; nullptr where no function is given.
std::shared_ptr<RequestHooks> request_hooks(const ModelPtr& model, const NamedFunctions& given);

}  // namespace rapt::python
