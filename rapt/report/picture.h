// SPDX-License-Identifier: Apache-2.0
// Pictures of numbers: curves and heat maps, as SVG, PNG or text. One look for all of them: SVG follows the
// reader's light or dark theme, text marks the same values with shades where there are no colours. The same
// numbers always give the same bytes.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/base/text_width.h"
#include "rapt/report/text.h"

namespace rapt {

struct Curve {
  Text name;
  std::vector<double> x, y;     // equal lengths; a y that is not finite leaves a gap
};
struct Chart {
  Text title, x_label, y_label;
  std::vector<Curve> curves;
  bool log_y = false;           // a y that is not above 0 leaves a gap
  bool share = false;           // y is a share: its axis is 0 … 1, whatever there is
};
std::string chart_svg(const Chart& chart, int width = 720, int height = 400);
// In characters; curves in dots of Braille, told apart by colours, or by letters on them where there
// are none.
std::string chart_text(const Chart& chart, bool color, int width = 72, int height = 16);

struct Labels : std::vector<Text> {  // of the rows or columns of a map
  using std::vector<Text>::vector;
  Labels(const std::vector<std::string>& plain) : std::vector<Text>(plain.begin(), plain.end()) {}
};
struct HeatMap {
  Text title;
  Labels rows, columns;  // labels (target words, source words)
  // [rows][columns], 0 … 1 (`top`: the value that is darkest; 0: the largest there is)
  std::vector<double> values;
  double top = 1;
  // root: the colour follows the square root, so that small weights are seen; both_signs: from -top to
  // top, zero is the paper.
  enum class Scale { linear, root, both_signs } scale = Scale::linear;
  // What the sides and the values are: "query", "key", "weight".
  Text row_name = {}, column_name = {}, value_name = {};
  std::vector<std::string> cells = {};               // [rows][columns] or empty: a word in each cell (SVG)
  // What the cells lie over, seen through them in PNG: all of them, or each block of so many tiles.
  struct Backdrop {
    int width = 0, height = 0;
    std::vector<unsigned char> rgb;  // [height][width][3]
    int across = 1, down = 1;        // how often it is repeated
  };
  Backdrop backdrop = {};
};
// Every text in that language.
Chart in_language(Chart chart, Language language);
HeatMap in_language(HeatMap map, Language language);

std::string heat_svg(const HeatMap& map);
// The same with a font of 5 x 7 dots; `cell`: pixels of a cell, 0: so that the picture has about 900. Grey
// where a value is no number.
std::vector<std::byte> heat_png(const HeatMap& map, int cell = 0);
struct PngLayout {  // in pixels: where the cells begin, their size, that of all of them and of the picture
  int left = 0, top = 0, cell = 0, wide = 0, high = 0, width = 0, height = 0;
  // Pixels of a letter's dot; every so many labels; lines of the title.
  int letter = 1, row_step = 1, column_step = 1, title = 0;
};
PngLayout heat_png_layout(const HeatMap& map, int cell = 0);
// Shades, labels at the left, numbered columns, and what the shades mean. Where `width` columns are too few,
// cells become narrower, and then neighbours share one that shows the largest of them, which the title says.
std::string heat_text(const HeatMap& map, bool color, Dim width = 100);

// Into a file, by its ending: .svg, .png (heat maps) or .txt. An existing file is refused unless `force`.
void write_picture(const HeatMap& map, const std::string& path, bool force);
void write_picture(const Chart& chart, const std::string& path, bool force);
// Fails where `path` has another ending than these: ask before the numbers are computed.
void check_picture_name(std::string_view path, bool heat);

// Fails where no file could be written at `path`, likewise; leaves nothing there.
void check_can_write(const std::string& path, bool force);

// A label for a terminal: nothing in it moves the cursor or changes colours; at most `most` columns.
std::string terminal_text(std::string_view text, Dim most);
// A label as XML and HTML want it: characters they have no room for (controls) and broken bytes
// become U+FFFD.
std::string markup_text(std::string_view text);

}  // namespace rapt
