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
  Cell(Text words) : text(std::move(words)) {}
  Cell(std::string words) : text(std::move(words)) {}
  Cell(const char* words) : text(words) {}
  Cell(double value, int digits = 3);
  Text text;
  double number = std::numeric_limits<double>::quiet_NaN();
};
struct Table {
  Text title;
  std::vector<Text> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as `columns`
};
struct Words {
  Text text;             // one paragraph
  bool heading = false;
};

struct Document {
  std::string name;                                        // of the view or experiment
  Text title = {};
  std::vector<std::variant<Words, Table, HeatMap, Chart>> parts;
  Json facts = Json::Object{};                             // values that a program wants and no part shows
};

// As UTF-8, which JSON must be: half characters become U+FFFD.
std::string valid_text(std::string_view text);
// Every text in that language. Writers that do not ask for a language write English.
Document in_language(Document document, Language language);
// In columns of a terminal.
std::string document_text(const Document& document, bool color, Dim width = 100,
                          Language language = Language::en);
// Maps and charts are left out.
std::string document_markdown(const Document& document, Language language = Language::en);
// {name, title, parts: [{kind, …}], facts}; numbers that are not finite become null. `shown`: cells of
// tables as they are shown.
Json document_json(const Document& document, bool shown = false);
// One file: charts and maps as inline SVG, tables, light and dark, a list of contents where there are
// several. Where something is said in Chinese too, both languages are there and the reader chooses; the
// program's language is chosen at first. Strict content policy, no scripts.
std::string documents_html(const Text& title, std::span<const Document> documents,
                           Language language = Language::en);

}  // namespace rapt
