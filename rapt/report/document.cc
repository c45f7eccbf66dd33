// SPDX-License-Identifier: Apache-2.0
// Helpers of each output first, most of them for tables in narrow windows; the writers stand at the end.
#include "rapt/report/document.h"

#include <algorithm>
#include <cstdio>

#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/base/unicode.h"

namespace rapt {
namespace {

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

void check(const Table& t) {
  for (const std::vector<Cell>& row : t.rows)
    if (row.size() != t.columns.size())
      fail("table '", t.title, "': a row has ", row.size(), " cells, there are ", t.columns.size(),
           " columns");
}

std::string spaces(Dim n) { return std::string(static_cast<std::size_t>(std::max<Dim>(0, n)), ' '); }

// Lines of at most `width` columns, broken between words; nothing in them moves a cursor.
std::vector<std::string> wrapped(std::string_view text, Dim width) {
  std::string words;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \n\t", i);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \n\t", begin), text.size());
    words += (words.empty() ? "" : " ") + terminal_text(text.substr(begin, end - begin), 1 << 20);
    i = end;
  }
  return fold_text(words, width);
}

// Columns that stand to the right: every cell is a number or empty.
std::vector<bool> numeric(const Table& t) {
  std::vector<bool> all(t.columns.size(), true);
  for (std::size_t c = 0; c < all.size(); ++c) {
    bool some = false;
    for (const std::vector<Cell>& row : t.rows) {
      some = some || std::isfinite(row[c].number);
      if (!std::isfinite(row[c].number) && !row[c].text.empty()) all[c] = false;
    }
    all[c] = all[c] && some;
  }
  return all;
}

constexpr Dim kGap = 2;  // between columns

Dim total(const std::vector<Dim>& widths) {
  Dim sum = kGap * (static_cast<Dim>(widths.size()) - 1);
  for (Dim w : widths) sum += w;
  return sum;
}

// The columns `which`, in these widths.
std::string columns_text(const Table& t, const std::vector<std::size_t>& which,
                         const std::vector<Dim>& width) {
  const std::vector<bool> right = numeric(t);
  std::string out;
  auto put = [&](const auto& text_of) {
    std::vector<std::vector<std::string>> lines;
    std::size_t height = 1;
    for (std::size_t c : which)
      lines.push_back(wrapped(text_of(c), width[c])), height = std::max(height, lines.back().size());
    for (std::size_t l = 0; l < height; ++l) {
      std::string line;
      for (std::size_t i = 0; i < which.size(); ++i) {
        const std::string cell = l < lines[i].size() ? lines[i][l] : "";
        const std::string room = spaces(width[which[i]] - text_width(cell));
        line += (i ? spaces(kGap) : "") + (right[which[i]] ? room + cell : cell + room);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  };
  put([&](std::size_t c) { return t.columns[c]; });
  std::string rule;
  for (std::size_t i = 0; i < which.size(); ++i) {
    rule += i ? spaces(kGap) : "";
    for (Dim k = 0; k < width[which[i]]; ++k) rule += "\xE2\x94\x80";  // ─
  }
  out += rule + "\n";
  for (const std::vector<Cell>& row : t.rows) put([&](std::size_t c) { return row[c].text; });
  return out;
}

// Row by row, a line for each column: name and value.
std::string rows_text(const Table& t, Dim width) {
  Dim names = 0;
  for (const std::string& c : t.columns) names = std::max(names, text_width(c));
  names = std::min(names, width / 2);
  std::string out;
  for (const std::vector<Cell>& row : t.rows) {
    if (&row != &t.rows.front()) out += "\n";
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (row[c].text.empty()) continue;
      const std::vector<std::string> name = wrapped(t.columns[c], names),
                                     value = wrapped(row[c].text, width - names - kGap);
      for (std::size_t l = 0; l < std::max(name.size(), value.size()); ++l) {
        std::string line =
            padded(l < name.size() ? name[l] : "", names + kGap) + (l < value.size() ? value[l] : "");
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + "\n";
      }
    }
  }
  return out;
}

// The widest columns of words give way. Where that does not do: of a table of numbers, some columns after
// the others, each time behind the first; of a table of words, its rows one by one.
std::string table_text(const Table& t, bool color, Dim most) {
  check(t);
  const std::size_t n = t.columns.size();
  const std::vector<bool> number = numeric(t);
  std::vector<Dim> width(n), least(n), slice(n);
  bool narrow = true;  // all columns but the first hold numbers or little words
  for (std::size_t c = 0; c < n; ++c) {
    width[c] = text_width(t.columns[c]);
    Dim numbers = 1;
    for (const std::vector<Cell>& row : t.rows) {
      width[c] = std::max(width[c], text_width(row[c].text));
      if (std::isfinite(row[c].number)) numbers = std::max(numbers, text_width(row[c].text));
    }
    least[c] = std::max<Dim>(width[c] > 40 ? 24 : 10, numbers);  // prose wants room
    if (number[c]) least[c] = std::max<Dim>(6, numbers);  // words stand only in its head
    slice[c] = number[c] ? std::max(numbers, std::min<Dim>(width[c], 12)) : width[c];
    if (c > 0 && slice[c] > 16) narrow = false;
  }
  while (total(width) > most) {
    std::size_t widest = n;
    for (std::size_t c = 0; c < n; ++c)
      if (width[c] > least[c] && (widest == n || width[c] > width[widest])) widest = c;
    if (widest == n) break;
    --width[widest];
  }
  std::string out;
  if (!t.title.empty())
    out += concat(color ? "\033[1m" : "", join(wrapped(t.title, most), "\n"), color ? "\033[0m" : "", "\n");
  std::vector<std::size_t> which;
  if (total(width) <= most) {
    for (std::size_t c = 0; c < n; ++c) which.push_back(c);
    return out + columns_text(t, which, width);
  }
  if (!narrow) return out + rows_text(t, most);
  width = slice;
  width[0] = std::min(width[0], most / 3);
  for (std::size_t c = 1; c < n;) {
    which = {0};
    Dim used = width[0];
    while (c < n && (which.size() == 1 || used + kGap + width[c] <= most))
      used += kGap + width[c], which.push_back(c++);
    out += (which[1] > 1 ? "\n" : "") + columns_text(t, which, width);
  }
  return out;
}

// Text between Markdown's own marks: what would end a cell or begin a tag does not.
std::string markdown_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += "\\|";
    else if (c == '<') out += "&lt;";
    else if (c == '\n' || c == '\r') out += ' ';
    else out += c;
  }
  return out;
}

constexpr const char* kScales[] = {"linear", "root", "both_signs"};  // HeatMap::Scale

Json number_json(double x) { return std::isfinite(x) ? Json(x) : Json(); }
Json numbers(const std::vector<double>& values) {
  Json::Array a;
  for (double v : values) a.push_back(number_json(v));
  return a;
}
Json finite(const Json& j) {
  if (j.is_array()) {
    Json::Array out;
    for (const Json& x : j.array()) out.push_back(finite(x));
    return out;
  }
  if (j.is_object()) {
    Json out = Json::Object{};
    for (const Json::Member& m : j.object()) out.set(m.key, finite(m.value));
    return out;
  }
  return j.is_number() && !std::isfinite(j.number()) ? Json() : j;
}
Json texts(const std::vector<Text>& values) {
  Json::Array a;
  for (const std::string& v : values) a.emplace_back(valid_text(v));
  return a;
}

// ------------------------------------------------------------------------------------------------ HTML
constexpr std::string_view kStyle =
    ":root{color-scheme:light dark;--page:#fff;--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--link:#0969da}\n"
    "@media "
    "(prefers-color-scheme:dark){:root{--page:#0d1117;--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;"
    "--link:#58a6ff}}\n"
    "body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:60rem;background:var(--page);color:var(--ink);"
    "font:1rem/1.55 system-ui,sans-serif}\n"
    "h1{font-size:1.7rem}h2{font-size:1.35rem;margin-top:3rem;border-top:1px solid "
    "var(--line);padding-top:1.2rem}h3{font-size:1.1rem}\n"
    "a{color:var(--link)}nav ol{columns:2 24rem;column-gap:3rem}nav li{break-inside:avoid}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;margin:.8rem 0}\n"
    "caption{text-align:left;font-weight:600;padding:.3rem 0}\n"
    "th,td{padding:.25rem .7rem .25rem 0;border-bottom:1px solid "
    "var(--line);text-align:left;vertical-align:top}th{color:var(--soft)}\n"
    "code{font:.92em ui-monospace,monospace}\n"
    ".n{text-align:right;font-variant-numeric:tabular-nums}\n"
    "figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}\n";

// The style inside a picture goes into the page's one style, once: a policy that knows the style by its hash
// allows no other.
std::string picture_html(std::string svg, std::vector<std::string>& styles) {
  const std::size_t begin = svg.find("<style>"), end = svg.find("</style>");
  if (begin != std::string::npos && end != std::string::npos) {
    const std::string style = svg.substr(begin + 7, end - begin - 7);
    if (std::find(styles.begin(), styles.end(), style) == styles.end()) styles.push_back(style);
    svg.erase(begin, end + 8 - begin);
  }
  return "<figure>\n" + svg + "</figure>\n";
}

// `Words` between backticks are code.
std::string code_markup(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('`', at),
                      close = open == text.npos ? text.npos : text.find('`', open + 1);
    if (close == text.npos) return out + markup_text(text.substr(at));
    out += concat(markup_text(text.substr(at, open - at)), "<code>",
                  markup_text(text.substr(open + 1, close - open - 1)), "</code>");
    at = close + 1;
  }
  return out;
}

std::string table_html(const Table& t) {
  check(t);
  const std::vector<bool> right = numeric(t);
  std::string out = "<div class=\"wide\"><table>\n";
  if (!t.title.empty()) out += concat("<caption>", markup_text(t.title), "</caption>\n");
  out += "<thead><tr>";
  auto kind = [&](std::size_t c) { return right[c] ? " class=\"n\"" : ""; };
  for (std::size_t c = 0; c < t.columns.size(); ++c)
    out += concat("<th scope=\"col\"", kind(c), ">", markup_text(t.columns[c]), "</th>");
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : t.rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c)
      out += concat("<td", kind(c), ">", code_markup(row[c].text), "</td>");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string body_html(const Document& d, std::vector<std::string>& styles) {
  std::string out;
  for (const auto& part : d.parts)
    out += std::visit(Cases{[](const Words& w) {
                              return concat(w.heading ? "<h3>" : "<p>", code_markup(w.text),
                                            w.heading ? "</h3>\n" : "</p>\n");
                            },
                            [](const Table& t) { return table_html(t); },
                            [&](const HeatMap& m) { return picture_html(heat_svg(m), styles); },
                            [&](const Chart& c) { return picture_html(chart_svg(c), styles); }},
                      part);
  return out;
}

}  // namespace

std::string valid_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::read(text, i);
    out += c.valid ? text.substr(i, c.length) : std::string_view(unicode::kReplacementText);
    i += c.length;
  }
  return out;
}

Cell::Cell(double value, int digits) : number(value) {
  char shown[64];
  const double size = std::abs(value), half = 0.5 * std::pow(10.0, -digits);
  if (!std::isfinite(value)) std::snprintf(shown, sizeof shown, "\xE2\x80\x93");  // –
  else if (size != 0 && (size < half || size >= 1e9)) std::snprintf(shown, sizeof shown, "%.1e", value);
  else std::snprintf(shown, sizeof shown, "%.*f", digits, value);
  text = shown;
}

std::string document_text(const Document& document, bool color, Dim width, Language language) {
  const Document d = in_language(document, language);
  width = std::max<Dim>(20, width);
  const Dim prose = std::min<Dim>(width, 100);  // longer lines are hard to read
  const std::string bold = color ? "\033[1m" : "", plain = color ? "\033[0m" : "";
  std::string out;
  if (!d.title.empty()) out += bold + join(wrapped(d.title, prose), "\n") + plain + "\n";
  for (const auto& part : d.parts) {
    if (!out.empty()) out += "\n";
    out +=
        std::visit(Cases{[&](const Words& w) {
                           const std::string lines = join(wrapped(w.text, prose), "\n") + "\n";
                           return w.heading ? bold + lines + plain : lines;
                         },
                         [&](const Table& t) { return table_text(t, color, width); },
                         [&](const HeatMap& m) { return heat_text(m, color, width); },
                         [&](const Chart& c) {
                           return chart_text(c, color, static_cast<int>(std::clamp<Dim>(width - 4, 24, 140)));
                         }},
                   part);
  }
  return out;
}

std::string document_markdown(const Document& document, Language language) {
  const Document d = in_language(document, language);
  std::string out = d.title.empty() ? "" : concat("## ", markdown_text(d.title), "\n");
  for (const auto& part : d.parts) {
    if (const auto* w = std::get_if<Words>(&part))
      out += concat("\n", w->heading ? "### " : "", markdown_text(w->text), "\n");
    const auto* t = std::get_if<Table>(&part);
    if (!t) continue;
    check(*t);
    out += "\n";
    if (!t->title.empty()) out += concat("**", markdown_text(t->title), "**\n\n");
    for (const std::string& c : t->columns) out += concat("| ", markdown_text(c), " ");
    out += "|\n";
    for (bool number : numeric(*t)) out += number ? "|---:" : "|---";
    out += "|\n";
    for (const std::vector<Cell>& row : t->rows) {
      for (const Cell& c : row) out += concat("| ", markdown_text(c.text), " ");
      out += "|\n";
    }
  }
  return out;
}

Json document_json(const Document& d, bool shown) {
  Json::Array parts;
  for (const auto& part : d.parts)
    parts.push_back(std::visit(
        Cases{[](const Words& w) -> Json {
                return Json::Object{{"kind", "words"}, {"text", valid_text(w.text)}, {"heading", w.heading}};
              },
              [shown](const Table& t) -> Json {
                check(t);
                Json::Array rows;
                for (const std::vector<Cell>& row : t.rows) {
                  Json::Array cells;
                  for (const Cell& c : row)
                    cells.push_back(std::isfinite(c.number) && !shown ? Json(c.number)
                                                                      : Json(valid_text(c.text)));
                  rows.emplace_back(std::move(cells));
                }
                return Json::Object{{"kind", "table"},
                                    {"title", valid_text(t.title)},
                                    {"columns", texts(t.columns)},
                                    {"rows", std::move(rows)}};
              },
              [](const HeatMap& m) -> Json {
                return Json::Object{{"kind", "map"},
                                    {"title", valid_text(m.title)},
                                    {"rows", texts(m.rows)},
                                    {"columns", texts(m.columns)},
                                    {"values", numbers(m.values)},
                                    {"top", m.top},
                                    {"scale", kScales[static_cast<std::size_t>(m.scale)]},
                                    {"row_name", m.row_name},
                                    {"column_name", m.column_name},
                                    {"value_name", m.value_name}};
              },
              [](const Chart& c) -> Json {
                Json::Array curves;
                for (const Curve& k : c.curves)
                  curves.push_back(
                      Json::Object{{"name", valid_text(k.name)}, {"x", numbers(k.x)}, {"y", numbers(k.y)}});
                return Json::Object{{"kind", "chart"},      {"title", valid_text(c.title)},
                                    {"x_label", c.x_label}, {"y_label", c.y_label},
                                    {"log_y", c.log_y},     {"curves", std::move(curves)}};
              }},
        part));
  return Json::Object{{"name", valid_text(d.name)},
                      {"title", valid_text(d.title)},
                      {"parts", std::move(parts)},
                      {"facts", finite(d.facts)}};
}

namespace {

// Everything below the title in one language; `mark` keeps the ids of two languages apart.
std::string documents_body(const std::string& title, std::span<const Document> documents,
                           std::string_view mark, std::string_view contents,
                           std::vector<std::string>& styles) {
  std::string body = concat("<h1>", markup_text(title), "</h1>\n");
  if (documents.size() > 1) {
    body += concat("<nav aria-label=\"", contents, "\"><ol>\n");
    for (std::size_t i = 0; i < documents.size(); ++i)
      body +=
          concat("<li><a href=\"#", mark, "part-", i + 1, "\">",
                 markup_text(documents[i].name.empty() ? documents[i].title : documents[i].name), "</a>",
                 documents[i].name.empty() ? "" : concat(": ", markup_text(documents[i].title)), "</li>\n");
    body += "</ol></nav>\n";
  }
  for (std::size_t i = 0; i < documents.size(); ++i) {
    body += concat("<section id=\"", mark, "part-", i + 1, "\">\n");
    if (!documents[i].title.empty() && (documents.size() > 1 || documents[i].title != title))
      body += concat("<h2>", markup_text(documents[i].title), "</h2>\n");
    body += body_html(documents[i], styles) + "</section>\n";
  }
  return body;
}

// Shows one of two languages; a reader's choice needs no script.
constexpr std::string_view kChoice =
    ".tongue{position:absolute;opacity:0}label{margin-right:1rem;color:var(--soft);cursor:pointer}\n"
    "#show-en:checked~label[for=show-en],#show-zh:checked~label[for=show-zh]{color:var(--ink);"
    "font-weight:600}\n"
    ".tongue:focus-visible+.tongue+label,.tongue:focus-visible+label{outline:2px solid var(--link)}\n"
    "#show-en:checked~.zh,#show-zh:checked~.en{display:none}\n";

}  // namespace

std::string documents_html(const Text& title, std::span<const Document> documents, Language language) {
  std::vector<std::string> styles = {std::string(kStyle)};
  std::vector<Document> chinese;
  bool both = !title.plain();
  for (const Document& d : documents) {
    chinese.push_back(in_language(d, Language::zh));
    both = both || document_json(chinese.back()) != document_json(d);
  }
  std::string body = documents_body(title, documents, "", "Contents", styles);
  if (both) {
    styles.emplace_back(kChoice);
    const char *en = language == Language::en ? " checked" : "", *zh = *en ? "" : " checked";
    body = concat("<input class=\"tongue\" type=\"radio\" name=\"tongue\" id=\"show-en\"", en,
                  "><input class=\"tongue\" type=\"radio\" name=\"tongue\" id=\"show-zh\"", zh,
                  "><label for=\"show-en\">English</label><label for=\"show-zh\" lang=\"zh-Hans\">"
                  "中文</label>\n<div class=\"en\">\n",
                  body, "</div>\n<div class=\"zh\" lang=\"zh-Hans\">\n",
                  documents_body(title.in(Language::zh), chinese, "zh-", "目录", styles), "</div>\n");
  }
  const std::string style = join(styles, "");
  return concat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"",
      "default-src 'none'; style-src 'sha256-", base64(sha256(style)),
      "'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>", markup_text(title),
      "</title>\n<style>", style, "</style>\n</head>\n<body>\n", body, "</body>\n</html>\n");
}

}  // namespace rapt
