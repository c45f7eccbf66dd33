// SPDX-License-Identifier: Apache-2.0
// A view of `rapt inspect`: a new one is one file that defines a View and one line in inspect.cc. A view takes its flags first and then
// makes a document from the model and the text; text, JSON, pictures and HTML are made from the document for all of them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/apps/cli/model_args.h"
#include "rapt/report/document.h"

namespace rapt::cli {

struct Subject {
  const OpenModel& model;
  std::vector<std::int32_t> ids,
      source;   // framed (BOS, CLS … as the tokenizer says); source: of an encoder-decoder, whose ids are what its decoder reads
  std::vector<std::string> words;          // of the tokens looked at, readable
  const CommonArgs& common;
  const OpenModel* other = nullptr;  // the second model, of a view that takes two: compare makes sure that it reads the same tokens
  std::string html = {};  // --html, and --force: for a view that makes its own page
  bool force = false;
  Device& device() const { return *model.device; }
  const Model& net() const { return *model.checkpoint.model; }
};

struct View {
  const char *name, *summary;
  const char* flags;  // help text of its own flags, or ""
  std::function<Document(const Subject&)> (*parse)(Args& args);  // takes its flags
  int models = 1;  // operands before the text (compare: 2)
  bool preset = false;  // reads no text, and a preset's name will do: model.checkpoint has a path, no model then
  bool page = false;  // --html is this view's own business
  bool file = false;  // --out too
};

std::vector<std::string> view_names();
std::string stack_name(Stack stack);  // "encoder", "decoder"

}  // namespace rapt::cli
