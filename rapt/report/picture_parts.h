// SPDX-License-Identifier: Apache-2.0
// What picture.cc, heat_picture.cc and heat_text.cc share.
#pragma once
#include <string>
#include <string_view>

#include "rapt/report/picture.h"

namespace rapt::picture_parts {

std::string number(double x, int digits);
std::string place(double x);  // a coordinate

// Colours stand in classes, so that one file fits a light and a dark page. `light`, `dark`: rules of the
// picture's own.
std::string svg_head(int width, int height, std::string_view title, std::string_view light,
                     std::string_view dark);

// A heat map's values as shares of its scale: 0 … 1, below 0 where a value is no number.
struct Shares {
  explicit Shares(const HeatMap& map);  // checks it
  double value(std::size_t row, std::size_t column) const {
    return map.values[row * map.columns.size() + column];
  }
  double operator()(std::size_t row, std::size_t column) const { return of(value(row, column)); }
  double of(double value) const;
  double at(double share) const;  // the value there
  bool both_signs() const { return map.scale == HeatMap::Scale::both_signs; }
  const HeatMap& map;
  double top = 0;
};

}  // namespace rapt::picture_parts
