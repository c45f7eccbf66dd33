// SPDX-License-Identifier: Apache-2.0
// What a document is about: a model and the tokens it reads; and the names that all documents give to rows,
// stacks and models.
#pragma once
#include <string>
#include <vector>

#include "rapt/inspect/look.h"
#include "rapt/load/checkpoint.h"
#include "rapt/report/text.h"

namespace rapt {

class Subject {
 public:
  // Both must outlive it. A checkpoint without a model will do for documents that ask for none.
  Subject(Device& on, const Checkpoint& of) : checkpoint(of), device_(on) {}

  const Checkpoint& checkpoint;
  // Framed (BOS, CLS … as the tokenizer says). source: of an encoder-decoder, whose ids are what its
  // decoder reads.
  // Of a picture: ids.picture, and the numbers of its rows.
  TextIds ids, source;

  Device& device() const { return device_; }
  const Model& net() const { return *checkpoint.model; }
  const Tokenizer* tokenizer() const { return checkpoint.tokenizer.get(); }
  std::vector<std::string> words() const;  // of the text: the source where there is one, else the ids
  // Of the tokens that run through a stack, white space made visible.
  std::vector<std::string> words_of(Stack stack) const;

 private:
  Device& device_;
};

std::string stack_name(Stack stack);                        // "encoder", "decoder"
// "encoder " or "decoder " where a model has both, else ""
std::string stack_prefix(const Model& model, Stack stack);
std::vector<std::string> row_names(int rows);               // "embed", "0", "1", …
std::string model_name(const Checkpoint& checkpoint);       // its file or folder, without the path
std::string model_line(const Subject& subject);             // "model.gguf, 28 tokens"
Text times_text(double ratio);                              // "1,234 times"
// A title of one of two stacks: "encoder …"; the title itself where the prefix is empty (stack_prefix).
Text in_stack(const std::string& prefix, Text title);

}  // namespace rapt
