// SPDX-License-Identifier: Apache-2.0
// Small texts for titles and tables.
#include "rapt/inspect/subject.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/text/words.h"

namespace rapt {

namespace {

std::vector<std::string> picture_rows(const Subject& s) {
  const PatchRecipe& p = *s.net().recipe.embed.patches;
  const PatchGrid grid = patch_grid(p, s.ids.picture->height, s.ids.picture->width);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < s.ids.size(); ++i) out.push_back(row_name(p, grid, static_cast<Dim>(i)));
  return out;
}

}  // namespace

std::vector<std::string> Subject::words() const {
  if (ids.picture) return picture_rows(*this);
  return token_texts(tokenizer(), source.empty() ? ids : source);
}

std::vector<std::string> Subject::words_of(Stack stack) const {
  if (ids.picture) return picture_rows(*this);
  std::vector<std::string> words =
      token_texts(tokenizer(), stack == Stack::encoder && !source.empty() ? source : ids);
  for (std::string& w : words) w = visible_text(std::move(w));
  return words;
}

std::string stack_name(Stack stack) { return stack == Stack::encoder ? "encoder" : "decoder"; }

std::string stack_prefix(const Model& model, Stack stack) {
  return model.encoder && model.decoder ? stack_name(stack) + " " : "";
}

std::vector<std::string> row_names(int rows) {
  std::vector<std::string> names;
  for (int r = 0; r < rows; ++r) names.push_back(row_name(r));
  return names;
}

std::string model_name(const Checkpoint& checkpoint) {
  const std::string& path = checkpoint.path;
  return path.substr(path.find_last_of('/', path.size() > 1 ? path.size() - 2 : 0) + 1);
}

std::string model_line(const Subject& subject) {
  const std::size_t tokens = subject.ids.size();
  if (const auto& picture = subject.ids.picture)
    return concat(model_name(subject.checkpoint), ", a picture of ", picture->width, " x ", picture->height,
                  " pixels, ", tokens, " rows");
  return concat(model_name(subject.checkpoint), ", ",
                subject.source.empty()
                    ? ""
                    : concat(counted(static_cast<Dim>(subject.source.size()), "token"), " of the source, "),
                counted(static_cast<Dim>(tokens), "token"), subject.source.empty() ? "" : " of the target");
}

Text times_text(double ratio) {
  return say("inspect.times", with_commas(static_cast<Dim>(std::llround(std::min(ratio, 9e15)))));
}

Text in_stack(const std::string& prefix, Text title) {
  if (prefix.empty()) return title;
  return say(prefix.starts_with("enc") ? "inspect.of_encoder" : "inspect.of_decoder", title);
}

}  // namespace rapt
