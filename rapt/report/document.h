// SPDX-License-Identifier: Apache-2.0
// What a view of a model or an experiment has to say, as data: sentences, tables, maps, curves. One writer
// per kind of output turns it into text for a terminal, JSON, or one HTML file that asks the network for
// nothing. The same document always gives the same bytes.
#pragma once
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/report/picture.h"

namespace rapt {

struct Cell {  // of a table: words, or a number with the digits it is shown with (JSON has all of them)
  Cell(std::string words) : text(std::move(words)) {}
  Cell(const char* words) : text(words) {}
  Cell(double value, int digits = 3);
  std::string text;
  double number = std::numeric_limits<double>::quiet_NaN();
};
struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as `columns`
};
struct Words {
  std::string text;      // one paragraph
  bool heading = false;
};

struct Document {
  std::string name, title;                                 // name: of the view or experiment
  std::vector<std::variant<Words, Table, HeatMap, Chart>> parts;
  Json facts = Json::Object{};                             // values that a program wants and no part shows
};

// As UTF-8, which JSON must be: half characters become U+FFFD.
std::string valid_text(std::string_view text);
// In columns of a terminal.
std::string document_text(const Document& document, bool color, Dim width = 100);
std::string document_markdown(const Document& document);  // maps and charts are left out
// {name, title, parts: [{kind, …}], facts}; numbers that are not finite become null. `shown`: cells of
// tables as they are shown.
Json document_json(const Document& document, bool shown = false);
// One file: charts and maps as inline SVG, tables, light and dark, a list of contents where there are
// several. Strict content policy.
std::string documents_html(std::string_view title, std::span<const Document> documents);

}  // namespace rapt
