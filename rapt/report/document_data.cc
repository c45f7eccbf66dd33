// SPDX-License-Identifier: Apache-2.0
// Documents in another language, and as data to keep.
#include "rapt/report/document_data.h"

#include <cstdio>
#include <cstdlib>

namespace rapt {
namespace {

void turn(Text& text, Language language) {
  if (!text.plain()) text = Text(text.in(language));
}
void turn(std::vector<Text>& texts, Language language) {
  for (Text& t : texts) turn(t, language);
}

void turn(Words& words, Language language) { turn(words.text, language); }
void turn(Table& table, Language language) {
  turn(table.title, language);
  turn(table.columns, language);
  for (auto& row : table.rows)
    for (Cell& c : row) turn(c.text, language);
}
void turn(Chart& chart, Language language) {
  for (Text* t : {&chart.title, &chart.x_label, &chart.y_label}) turn(*t, language);
  for (Curve& c : chart.curves) turn(c.name, language);
}
void turn(HeatMap& map, Language language) {
  for (Text* t : {&map.title, &map.row_name, &map.column_name, &map.value_name}) turn(*t, language);
  turn(map.rows, language);
  turn(map.columns, language);
}

// ------------------------------------------------------------------------------------------------ as data
// Six digits: what a picture shows, and a file that is not three times as long.
Json number_data(double x) {
  if (!std::isfinite(x)) return Json();
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return Json(std::strtod(text, nullptr));
}
Json numbers_data(const std::vector<double>& values) {
  Json::Array out;
  for (double v : values) out.push_back(number_data(v));
  return out;
}
Json texts_data(const std::vector<Text>& texts) {
  Json::Array out;
  for (const Text& t : texts) out.push_back(t.json());
  return out;
}

const Json& at(const Json& data, const char* key) {
  const Json* found = data.find(key);
  if (!found) fail("a document as data: '", key, "' is missing");
  return *found;
}
Text text_of(const Json& data, const char* key) { return Text::of(at(data, key)); }
std::vector<Text> texts_of(const Json& data, const char* key) {
  std::vector<Text> out;
  for (const Json& t : at(data, key).array()) out.push_back(Text::of(t));
  return out;
}
double number_of(const Json& j) { return j.is_null() ? std::nan("") : j.number(); }
std::vector<double> numbers_of(const Json& data, const char* key) {
  std::vector<double> out;
  for (const Json& x : at(data, key).array()) out.push_back(number_of(x));
  return out;
}

Json data_of(const Words& w) {
  return Json::Object{{"kind", "words"}, {"text", w.text.json()}, {"heading", w.heading}};
}
Json data_of(const Table& t) {
  Json::Array rows;
  for (const auto& row : t.rows) {
    Json::Array cells;
    for (const Cell& c : row) {
      Json cell = Json::Object{{"text", c.text.json()}};
      if (std::isfinite(c.number)) cell.set("number", number_data(c.number));
      cells.push_back(std::move(cell));
    }
    rows.push_back(std::move(cells));
  }
  return Json::Object{{"kind", "table"},
                      {"title", t.title.json()},
                      {"columns", texts_data(t.columns)},
                      {"rows", std::move(rows)}};
}
Json data_of(const Chart& c) { return chart_data(c); }
Json data_of(const HeatMap& m) { return heat_data(m); }

Table table_from(const Json& data) {
  Table t{.title = text_of(data, "title"), .columns = texts_of(data, "columns"), .rows = {}};
  for (const Json& row : at(data, "rows").array()) {
    t.rows.emplace_back();
    for (const Json& c : row.array()) {
      Cell cell(text_of(c, "text"));
      if (const Json* n = c.find("number")) cell.number = number_of(*n);
      t.rows.back().push_back(std::move(cell));
    }
  }
  return t;
}
Chart chart_from(const Json& data) {
  Chart c{.title = text_of(data, "title"),
          .x_label = text_of(data, "x_label"),
          .y_label = text_of(data, "y_label"),
          .curves = {},
          .log_y = at(data, "log_y").boolean(),
          .share = at(data, "share").boolean()};
  for (const Json& k : at(data, "curves").array())
    c.curves.push_back({.name = text_of(k, "name"), .x = numbers_of(k, "x"), .y = numbers_of(k, "y")});
  return c;
}
HeatMap heat_from(const Json& data) {
  HeatMap m{.title = text_of(data, "title"),
            .rows = {},
            .columns = {},
            .values = numbers_of(data, "values"),
            .top = at(data, "top").number(),
            .scale = static_cast<HeatMap::Scale>(at(data, "scale").integer()),
            .row_name = text_of(data, "row_name"),
            .column_name = text_of(data, "column_name"),
            .value_name = text_of(data, "value_name")};
  for (Text& t : texts_of(data, "rows")) m.rows.push_back(std::move(t));
  for (Text& t : texts_of(data, "columns")) m.columns.push_back(std::move(t));
  for (const Json& c : at(data, "cells").array()) m.cells.emplace_back(c.string());
  return m;
}

}  // namespace

Chart in_language(Chart chart, Language language) { return turn(chart, language), chart; }
HeatMap in_language(HeatMap map, Language language) { return turn(map, language), map; }
Document in_language(Document document, Language language) {
  if (language == Language::en) return document;
  turn(document.title, language);
  for (auto& part : document.parts) std::visit([&](auto& p) { turn(p, language); }, part);
  return document;
}

Json chart_data(const Chart& c) {
  Json::Array curves;
  for (const Curve& k : c.curves)
    curves.push_back(
        Json::Object{{"name", k.name.json()}, {"x", numbers_data(k.x)}, {"y", numbers_data(k.y)}});
  return Json::Object{{"kind", "chart"},
                      {"title", c.title.json()},
                      {"x_label", c.x_label.json()},
                      {"y_label", c.y_label.json()},
                      {"log_y", c.log_y},
                      {"share", c.share},
                      {"curves", std::move(curves)}};
}

Json heat_data(const HeatMap& m) {
  Json::Array cells;
  for (const std::string& c : m.cells) cells.emplace_back(c);
  return Json::Object{{"kind", "map"},
                      {"title", m.title.json()},
                      {"rows", texts_data(m.rows)},
                      {"columns", texts_data(m.columns)},
                      {"values", numbers_data(m.values)},
                      {"top", m.top},
                      {"scale", static_cast<int>(m.scale)},
                      {"row_name", m.row_name.json()},
                      {"column_name", m.column_name.json()},
                      {"value_name", m.value_name.json()},
                      {"cells", std::move(cells)}};
}

Json document_data(const Document& d) {
  Json::Array parts;
  for (const auto& part : d.parts)
    parts.push_back(std::visit([](const auto& p) { return data_of(p); }, part));
  return Json::Object{
      {"name", d.name}, {"title", d.title.json()}, {"parts", std::move(parts)}, {"facts", d.facts}};
}

Document document_from(const Json& data) {
  Document d{.name = std::string(at(data, "name").string()), .title = text_of(data, "title")};
  for (const Json& part : at(data, "parts").array()) {
    const std::string kind(at(part, "kind").string());
    if (kind == "words") d.parts.push_back(Words{text_of(part, "text"), at(part, "heading").boolean()});
    else if (kind == "table") d.parts.push_back(table_from(part));
    else if (kind == "chart") d.parts.push_back(chart_from(part));
    else if (kind == "map") d.parts.push_back(heat_from(part));
    else fail("a document as data: '", kind, "' is no kind of part");
  }
  d.facts = at(data, "facts");
  return d;
}

}  // namespace rapt
