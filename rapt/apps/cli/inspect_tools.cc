// SPDX-License-Identifier: Apache-2.0
// Small texts for titles and tables, and --stack. name_axes notes in "shapes" what the axes of a grid are.
#include "rapt/apps/cli/inspect_tools.h"

#include <cmath>

#include "rapt/base/text.h"
#include "rapt/text/words.h"

namespace rapt::cli {

std::optional<Stack> stack_arg(Args& args) {
  const std::optional<std::string> name = args.value("stack");
  if (!name) return {};
  for (Stack stack : {Stack::encoder, Stack::decoder})
    if (*name == stack_name(stack)) return stack;
  fail_usage("--stack is encoder or decoder, not '", *name, "'");
}

std::vector<std::string> words_of(const Subject& subject, Stack stack) {
  const bool source = stack == Stack::encoder && !subject.source.empty();
  std::vector<std::string> words = token_texts(subject.model.checkpoint.tokenizer.get(), source ? subject.source : subject.ids);
  for (std::string& w : words) w = visible_text(std::move(w));
  return words;
}

std::vector<std::string> row_names(int rows) {
  std::vector<std::string> names;
  for (int r = 0; r < rows; ++r) names.push_back(row_name(r));
  return names;
}

std::string stack_prefix(const Model& model, Stack stack) { return model.encoder && model.decoder ? stack_name(stack) + " " : ""; }

std::string model_name(const OpenModel& model) {
  const std::string& path = model.checkpoint.path;
  return path.substr(path.find_last_of('/', path.size() > 1 ? path.size() - 2 : 0) + 1);
}

std::string model_line(const Subject& subject) {
  const std::size_t tokens = subject.ids.size();
  return concat(model_name(subject.model), ", ",
                subject.source.empty() ? "" : concat(counted(static_cast<Dim>(subject.source.size()), "token"), " of the source, "),
                counted(static_cast<Dim>(tokens), "token"), subject.source.empty() ? "" : " of the target");
}

std::string times(double ratio) { return concat(with_commas(static_cast<Dim>(std::llround(std::min(ratio, 9e15)))), " times"); }

void name_axes(Document& d, const char* key, std::initializer_list<const char*> axes) {
  Json shapes = d.facts.find("shapes") ? *d.facts.find("shapes") : Json(Json::Object{});
  Json::Array names;
  for (const char* axis : axes) names.emplace_back(axis);
  shapes.set(key, std::move(names));
  d.facts.set("shapes", std::move(shapes));
}

}  // namespace rapt::cli
