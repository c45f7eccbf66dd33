// SPDX-License-Identifier: Apache-2.0
// Numbers of a document for programs (Document::facts): grids as JSON, and what their axes are.
#pragma once
#include <initializer_list>
#include <vector>

#include "rapt/report/document.h"

namespace rapt {

// Says in `shapes` of the data what the axes of an array are: name_axes(d, "entropy", {"row", "token"}).
void name_axes(Document& d, const char* key, std::initializer_list<const char*> axes);

// Numbers as [rows][columns].
template <class T>
Json grid_json(const std::vector<T>& values, std::size_t columns) {
  Json::Array rows;
  for (std::size_t i = 0; columns > 0 && i + columns <= values.size(); i += columns) {
    Json::Array row;
    for (std::size_t j = 0; j < columns; ++j) {
      const auto v = static_cast<double>(values[i + j]);
      row.push_back(Json(v));  // what is no number is counted and becomes null when it is written
    }
    rows.push_back(std::move(row));
  }
  return rows;
}
// As one list; and as [a][b][c].
template <class T>
Json list_json(const std::vector<T>& values) {
  return values.empty() ? Json(Json::Array{}) : grid_json(values, values.size()).array()[0];
}
template <class T>
Json cube_json(const std::vector<T>& values, std::size_t b, std::size_t c) {
  Json::Array out;
  for (std::size_t i = 0; i + b * c <= values.size() && b * c > 0; i += b * c)
    out.push_back(grid_json(std::vector<T>(values.begin() + static_cast<std::ptrdiff_t>(i),
                                           values.begin() + static_cast<std::ptrdiff_t>(i + b * c)),
                            c));
  return out;
}

}  // namespace rapt
