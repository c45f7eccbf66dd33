// SPDX-License-Identifier: Apache-2.0
// folded_help tells the kind of each line; hung, entry and filled lay it out, for at most 100 columns.
#include "rapt/apps/cli/help_text.h"

#include <algorithm>
#include <vector>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"

namespace rapt::cli {
namespace {

std::string spaces(Dim n) { return std::string(static_cast<std::size_t>(std::max<Dim>(0, n)), ' '); }
Dim indent_of(std::string_view line) {
  return static_cast<Dim>(std::min(line.find_first_not_of(' '), line.size()));
}

// `text` folded into the columns from `from` on; the first line stands behind what is already there.
std::string hung(std::string_view text, Dim from, Dim width) {
  const std::vector<std::string> lines = fold_text(text, std::max<Dim>(8, width - from));
  return join(lines, "\n" + spaces(from)) + "\n";
}

// Parts of a line between runs of `gap` spaces and more.
std::vector<std::string> parts_of(std::string_view line, std::size_t gap) {
  std::vector<std::string> parts;
  while (!line.empty()) {
    std::size_t end = line.find(std::string(gap, ' '));
    if (end == std::string_view::npos) end = line.size();
    parts.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
  }
  return parts;
}

// A flag and what it means: beside each other where there is room, else below each other. Several short
// flags in one line fill it.
std::string entry(std::string_view line, Dim width) {
  const Dim indent = indent_of(line);
  line.remove_prefix(static_cast<std::size_t>(indent));
  if (indent + text_width(line) <= width) return spaces(indent) + std::string(line) + "\n";
  const std::vector<std::string> parts = parts_of(line, 2);
  const auto flags = std::ranges::count_if(parts, [](const std::string& p) { return p.starts_with('-'); });
  if (flags > 1) {
    std::string out, row;
    auto end_row = [&] {
      out += spaces(indent) + (indent + text_width(row) <= width ? row + "\n" : hung(row, indent + 4, width));
    };
    for (std::size_t i = 0; i < parts.size();) {
      std::string one = parts[i++];  // a flag with its meaning
      while (i < parts.size() && !parts[i].starts_with('-')) one += "   " + parts[i++];
      if (!row.empty() && indent + text_width(row) + 3 + text_width(one) > width) end_row(), row.clear();
      row += (row.empty() ? "" : "   ") + one;
    }
    end_row();
    return out;
  }
  if (parts.size() < 2) return spaces(indent) + hung(line, indent + 4, width);
  // A short word between the two, a default say, stands with the name.
  const std::size_t last = parts.size() > 2 && parts[1].find(' ') == std::string::npos ? 2 : 1;
  std::size_t from = parts[0].size();
  for (std::size_t i = 1; i <= last; ++i) from = line.find(parts[i], from) + (i < last ? parts[i].size() : 0);
  const Dim column = indent + text_width(line.substr(0, from));
  const std::string meaning =
      join(std::vector<std::string>(parts.begin() + static_cast<std::ptrdiff_t>(last), parts.end()), "   ");
  if (width - column >= 24)
    return spaces(indent) + std::string(line.substr(0, from)) + hung(meaning, column, width);
  const std::string name = last == 2 ? concat(parts[0], "  ", parts[1]) : parts[0];
  return spaces(indent) + hung(name, indent + 4, width) + spaces(indent + 4) +
         hung(meaning, indent + 4, width);
}

// Parts of a command that stay together: words in quotes or brackets, a flag with its value.
std::vector<std::string> units_of(std::string_view text) {
  std::vector<std::string> words(1);
  char quote = 0;
  int depth = 0;
  for (char c : text) {
    if (c == ' ' && quote == 0 && depth == 0) {
      if (!words.back().empty()) words.emplace_back();
      continue;
    }
    if (c == quote) quote = 0;
    else if (quote == 0 && (c == '\'' || c == '"') && (words.back().empty() || words.back().back() == '='))
      quote = c;
    depth += quote == 0 ? (c == '[') - (c == ']') : 0;
    words.back() += c;
  }
  if (words.back().empty()) words.pop_back();
  std::vector<std::string> units;
  for (const std::string& w : words) {
    const bool value = !units.empty() && units.back().starts_with("--") &&
                       units.back().find_first_of(" =") == std::string::npos;
    if (value && !w.starts_with('-')) units.back() += " " + w;
    else units.push_back(w);
  }
  return units;
}

// Units from column `from` on, further lines from `hang` on; `sign` ends a line that goes on.
std::string filled(std::string_view text, Dim from, Dim hang, Dim width, std::string_view sign) {
  std::string out;
  Dim column = from;
  bool first = true;
  for (const std::string& unit : units_of(text)) {
    if (!first && column + 1 + text_width(unit) + text_width(sign) > width) {
      out += concat(sign, "\n", spaces(hang));
      column = hang;
    } else if (!first) {
      out += ' ', ++column;
    }
    const std::string lines =
        unit.starts_with('[') ? join(fold_text(unit, std::max<Dim>(8, width - column)), "\n" + spaces(hang))
                              : unit;
    out += lines;
    column += text_width(unit);
    first = false;
  }
  return out + "\n";
}

}  // namespace

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string folded_lines(std::string_view text, Dim width) {
  std::string out;
  for (const std::string& line : lines_of(text)) {
    const Dim indent = std::min<Dim>(indent_of(line), width / 2);
    out += (out.empty() ? "" : "\n") + spaces(indent);
    out += join(fold_text(std::string_view(line).substr(static_cast<std::size_t>(indent_of(line))),
                          std::max<Dim>(8, width - indent)),
                "\n" + spaces(indent));
  }
  return text.ends_with('\n') ? out + "\n" : out;
}

std::string folded_help(std::string_view text, Dim width) {
  width = std::min<Dim>(width, 100);  // longer lines are hard to read
  const std::vector<std::string> lines = lines_of(text);
  std::string out;
  bool examples = false, usage = false;
  for (std::size_t i = 0; i < lines.size();) {
    std::string line = lines[i++];
    const Dim indent = indent_of(line);
    if (line.empty()) {
      out += "\n";
      examples = usage = false;
      continue;
    }
    if (line.starts_with("Usage:")) usage = true;
    if (usage) {
      const Dim from = line.starts_with("Usage:") ? 7 : indent;
      out += line.substr(0, static_cast<std::size_t>(from));
      out += filled(std::string_view(line).substr(static_cast<std::size_t>(from)), from, from + 4, width, "");
    } else if (examples) {
      while (line.ends_with(" \\") && i < lines.size())
        line.resize(line.size() - 1), line += lines[i].substr(lines[i].find_first_not_of(' ')), ++i;
      out += spaces(indent) + filled(line, indent, indent + 4, width, " \\");
    } else if (indent == 0) {
      while (i < lines.size() && !lines[i].empty() && lines[i][0] != ' ') line += " " + lines[i++];
      out += hung(line, 0, width);
      examples = line == "Examples:" || line == "Example:";
    } else {
      const std::vector<std::string> parts = parts_of(line.substr(static_cast<std::size_t>(indent)), 2);
      const Dim column =
          parts.size() > 1
              ? static_cast<Dim>(line.find(parts[1], static_cast<std::size_t>(indent) + parts[0].size()))
              : 1000;
      while (i < lines.size() && !lines[i].empty() && indent_of(lines[i]) >= std::min(column, indent + 6) &&
             indent_of(lines[i]) > indent)
        line += " " + lines[i].substr(lines[i].find_first_not_of(' ')), ++i;
      out += entry(line, width);
    }
  }
  return out;
}

}  // namespace rapt::cli
