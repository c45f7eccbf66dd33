// SPDX-License-Identifier: Apache-2.0
// A page (report/page.h) filled with what there is to see of a model on a text: maps and metrics of every
// head, the strongest keys, grids of the residual stream, the logit lens, and the documents about sinks,
// massive activations and lengths.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "rapt/inspect/subject.h"
#include "rapt/report/page.h"

namespace rapt {

struct ReportOptions {
  // Side of a head's map, strongest keys of a token; 0: what the page's size allows.
  Dim pixels = 0, keys = 0;
  bool lens = true;            // takes most of the time
  std::optional<Stack> stack;  // of an encoder-decoder, the encoder where absent; else the one there is
  std::function<void(int done, int of)> progress = {};
  std::function<void(const std::string&)> note = {};  // what people should know
  void step(int done) const {
    if (progress) progress(done, 6);
  }
};
Page report_page(const Subject& subject, const ReportOptions& options = {});
std::string report_name(const Checkpoint& checkpoint);  // the page's title: the model's file or folder

// How many heads do what: the page's labels without their numbers.
Table head_kinds(const Page& page);

}  // namespace rapt
