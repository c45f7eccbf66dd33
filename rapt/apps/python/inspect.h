// SPDX-License-Identifier: Apache-2.0
// What the files of the module about looking inside share: inspect.cc (points, tensors, hooks, edits),
// inspect_attention.cc (one pass whose attention is asked afterwards), inspect_views.cc (the other views, the
// report), inspect_attribution.cc (what a logit is made of, patching, gradients).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "rapt/apps/python/arrays.h"
#include "rapt/apps/python/edits.h"
#include "rapt/apps/python/model.h"
#include "rapt/inspect/subject.h"

namespace rapt::python {

using TokenIds = std::vector<std::int32_t>;
using Sizes = std::vector<std::int64_t>;

void add_inspect_attention(nb::module_& m);
void add_inspect_views(nb::module_& m);
void add_inspect_attribution(nb::module_& m);

// Views that read the model's own weights.
inline void refuse_adapters(const api::ModelState& model) {
  if (!model.checkpoint->adapters.empty())
    fail_usage(
        "this looks at the model without adapters; load it without lora=, or look with run_with_cache()"
        " and run_with_hooks(), which use them");
}

// Tokens of the encoder's text where a model has encoder and decoder (`source`), and of what is read
// otherwise.
inline Subject subject_of(const api::ModelState& model, const TokenIds& ids, const TokenIds& source) {
  refuse_adapters(model);
  Subject s(model.on(), *model.checkpoint);
  s.ids = ids, s.source = source;
  return s;
}

}  // namespace rapt::python
