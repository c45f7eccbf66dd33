// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: a text cut into the pieces that a model sees one by one. Written by hand for each
// published pattern; every one reads the text once (no engine, nothing backtracks over more than it then
// consumes).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "rapt/text/tokenizer/spec.h"
#include "rapt/text/tokenizer/work.h"

namespace rapt {

struct Span {
  std::size_t begin = 0, end = 0;  // bytes
};

// Pieces of a working text. A step may rewrite the text (a prefix, visible spaces); the spans always speak
// of the text beside them.
struct Pieces {
  std::string text;
  std::vector<Span> spans;
  bool first = true;  // the text begins where the caller's text begins
};

void split(Pieces& pieces, const SplitStep& step, EncodeWork& work);

}  // namespace rapt
