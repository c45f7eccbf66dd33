// SPDX-License-Identifier: Apache-2.0
// A view of `rapt inspect`: a new one is one file that defines a View and one line in inspect.cc. A view
// takes its flags first and then makes a document from the model and the text; text, JSON, pictures and HTML
// are made from the document for all of them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/apps/cli/model_args.h"
#include "rapt/image/preprocess.h"
#include "rapt/inspect/subject.h"
#include "rapt/report/document.h"

namespace rapt::cli {

// A subject, and what else was asked of a view.
struct ViewRequest : Subject {
  ViewRequest(const OpenModel& of, const CommonArgs& args)
      : Subject(*of.device, of.checkpoint), common(args) {}
  const CommonArgs& common;
  // The second model, of a view that takes two: compare makes sure that it reads the same tokens.
  const OpenModel* other = nullptr;
  // --image: what the model reads, and the same as colours, for maps that lie over it.
  PreparedImage prepared = {};
  HeatMap::Backdrop shown = {};
  std::string html = {};  // --html, and --force: for a view that makes its own page
  bool force = false;
};

struct View {
  const char *name, *summary;
  const char* flags;  // help text of its own flags, or ""
  std::function<Document(const ViewRequest&)> (*parse)(Args& args);  // takes its flags
  int models = 1;  // operands before the text (compare: 2)
  // text: a model reads a text. recipe: no text, and a preset's name will do: the checkpoint has a path and
  // no model then. files: a checkpoint's files, which the view opens itself; there is only a path.
  enum class Needs { text, recipe, files } needs = Needs::text;
  bool page = false;  // --html is this view's own business
  bool file = false;  // --out too
};

std::vector<std::string> view_names();

}  // namespace rapt::cli
