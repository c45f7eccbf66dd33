// SPDX-License-Identifier: Apache-2.0
// What several views of `rapt inspect` share: names of tokens and rows, grids of numbers for programs.
#pragma once
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/look.h"

namespace rapt::cli {

// The tokens that run through a stack, readable: the source in an encoder of two stacks, else the text.
std::vector<std::string> words_of(const Subject& subject, Stack stack);
std::optional<Stack> stack_arg(Args& args);  // --stack encoder | decoder
std::string word_of(const Checkpoint& checkpoint, std::int32_t id);
std::vector<std::string> row_names(int rows);                        // "embed", "0", "1", …
std::string stack_prefix(const Model& model, Stack stack);           // "encoder " or "decoder " where a model has both, else ""
std::string model_name(const OpenModel& model);                      // its file or folder, without the path
std::string model_line(const Subject& subject);                      // "model.gguf, 28 tokens"
std::string times(double ratio);                                     // "1,234 times"

// Numbers as [rows][columns]; null where one is not finite.
template <class T>
Json grid_json(const std::vector<T>& values, std::size_t columns) {
  Json::Array rows;
  for (std::size_t i = 0; columns > 0 && i + columns <= values.size(); i += columns) {
    Json::Array row;
    for (std::size_t j = 0; j < columns; ++j) {
      const auto v = static_cast<double>(values[i + j]);
      row.push_back(std::isfinite(v) ? Json(v) : Json());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace rapt::cli
