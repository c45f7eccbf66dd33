// SPDX-License-Identifier: Apache-2.0
// One walk over the text, which knows where texts, expressions and templates begin and end, and no more.
#include "rapt/apps/server/lean_text.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace rapt::server {
namespace {

bool in_name(char c) {
  const auto u = static_cast<unsigned char>(c);
  return std::isalnum(u) != 0 || c == '_' || c == '$' || u >= 0x80;
}
bool one_of(char c, std::string_view list) { return list.find(c) != std::string_view::npos; }

// Behind the character at `from` up to the first unescaped `end`, which is included.
std::size_t behind(std::string_view text, std::size_t from, char end) {
  std::size_t i = from + 1;
  while (i < text.size() && text[i] != end) i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

std::size_t behind_expression(std::string_view text, std::size_t from) {
  bool in_class = false;
  std::size_t i = from + 1;
  for (; i < text.size() && (text[i] != '/' || in_class); ++i) {
    if (text[i] == '\\') ++i;
    else if (text[i] == '[') in_class = true;
    else if (text[i] == ']') in_class = false;
  }
  return std::min(i + 1, text.size());
}

// From a backtick, or the brace that ends a value in a template, to the template's end or its next value.
std::size_t behind_template(std::string_view text, std::size_t from, bool& value) {
  std::size_t i = from + 1;
  while (i < text.size() && text[i] != '`' && text.substr(i, 2) != "${") i += text[i] == '\\' ? 2 : 1;
  value = i < text.size() && text[i] == '$';
  return std::min(i + (value ? 2 : 1), text.size());
}

bool begins_expression(std::string_view before) {
  if (before.empty() || one_of(before.back(), "(,=:[!&|?{;+-*%~^<>\n")) return true;
  std::size_t from = before.size();
  while (from > 0 && in_name(before[from - 1])) --from;
  const std::string_view word = before.substr(from);
  return word == "return" || word == "typeof" || word == "case" || word == "of" || word == "in";
}

}  // namespace

std::string lean_script(std::string_view text) {
  std::string out;
  std::vector<int> values;  // of templates we are in: braces that are open in each
  std::size_t i = 0;
  const auto take = [&](std::size_t end) {
    out += text.substr(i, end - i);
    i = end;
  };
  while (i < text.size()) {
    const char c = text[i];
    const std::string_view two = text.substr(i, 2);
    if (c == '"' || c == '\'') {
      take(behind(text, i, c));
    } else if (c == '`' || (c == '}' && !values.empty() && values.back() == 0)) {
      if (c == '}') values.pop_back();
      bool value = false;
      take(behind_template(text, i, value));
      if (value) values.push_back(0);
    } else if (two == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (two == "/*") {
      i = std::min(text.find("*/", i), text.size() - 2) + 2;
    } else if (c == '/' && begins_expression(out)) {
      take(behind_expression(text, i));
    } else if (c == ' ') {
      i = std::min(text.find_first_not_of(' ', i), text.size());
      const char before = out.empty() ? '\n' : out.back(), after = i < text.size() ? text[i] : '\n';
      if ((in_name(before) && in_name(after)) || (one_of(before, "+-") && after == before)) out += ' ';
    } else if (c == '\n') {
      ++i;
      if (!out.empty() && (out.ends_with("++") || !one_of(out.back(), "\n,{(;[=&|?:+"))) out += '\n';
    } else if (in_name(c)) {
      std::size_t end = i;
      while (end < text.size() && in_name(text[end])) ++end;
      take(end);
    } else {
      if (!values.empty()) values.back() += c == '{' ? 1 : c == '}' ? -1 : 0;
      take(i + 1);
    }
  }
  return out;
}

std::string lean_style(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const std::size_t end = behind(text, i, c);
      out += text.substr(i, end - i);
      i = end;
    } else if (text.substr(i, 2) == "/*") {
      i = std::min(text.find("*/", i), text.size() - 2) + 2;
    } else if (c == ' ' || c == '\n') {
      i = std::min(text.find_first_not_of(" \n", i), text.size());
      const char before = out.empty() ? '{' : out.back(), after = i < text.size() ? text[i] : '}';
      if (!one_of(before, "{};,") && !one_of(after, "{};,")) out += ' ';
    } else {
      out += c;
      ++i;
    }
  }
  return out;
}

std::string lean_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    out += line;
  }
  return out;
}

}  // namespace rapt::server
