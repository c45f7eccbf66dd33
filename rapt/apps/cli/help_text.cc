// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/cli/help_text.h"

#include <algorithm>
#include <vector>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"

namespace rapt::cli {
namespace {

std::string spaces(Dim n) { return std::string(static_cast<std::size_t>(std::max<Dim>(0, n)), ' '); }
Dim indent_of(std::string_view line) { return static_cast<Dim>(std::min(line.find_first_not_of(' '), line.size())); }

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
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

// A flag and what it means: beside each other where there is room, else below each other. Several short flags in one line fill it.
std::string entry(std::string_view line, Dim width) {
  const Dim indent = indent_of(line);
  line.remove_prefix(static_cast<std::size_t>(indent));
  if (indent + text_width(line) <= width) return spaces(indent) + std::string(line) + "\n";
  const std::vector<std::string> parts = parts_of(line, 2);
  const auto flags = std::ranges::count_if(parts, [](const std::string& p) { return p.starts_with('-'); });
  if (flags > 1) {
    std::string out, row;
    auto end_row = [&] { out += spaces(indent) + (indent + text_width(row) <= width ? row + "\n" : hung(row, indent + 4, width)); };
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
  const Dim column = indent + text_width(line.substr(0, line.find(parts[1], parts[0].size())));
  std::vector<std::string> rest(parts.begin() + 1, parts.end());
  const std::string meaning = join(rest, "   ");
  if (width - column >= 36) return spaces(indent) + padded(parts[0], column - indent) + hung(meaning, column, width);
  return spaces(indent) + hung(parts[0], indent + 4, width) + spaces(indent + 4) + hung(meaning, indent + 4, width);
}

std::string command(std::string_view line, Dim width) {
  const Dim indent = indent_of(line);
  if (text_width(line) <= width) return std::string(line) + "\n";
  const std::vector<std::string> lines = fold_text(line.substr(static_cast<std::size_t>(indent)), std::max<Dim>(16, width - indent - 6));
  return spaces(indent) + join(lines, " \\\n" + spaces(indent + 4)) + "\n";
}

}  // namespace

std::string folded_lines(std::string_view text, Dim width) {
  std::string out;
  for (const std::string& line : lines_of(text)) {
    const Dim indent = std::min<Dim>(indent_of(line), width / 2);
    out += (out.empty() ? "" : "\n") + spaces(indent);
    out += join(fold_text(std::string_view(line).substr(static_cast<std::size_t>(indent_of(line))), std::max<Dim>(8, width - indent)),
                "\n" + spaces(indent));
  }
  return out;
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
      out += line.substr(0, static_cast<std::size_t>(from)) + hung(line.substr(static_cast<std::size_t>(from)), from + 4, width);
    } else if (examples) {
      while (line.ends_with(" \\") && i < lines.size())
        line.resize(line.size() - 1), line += lines[i].substr(lines[i].find_first_not_of(' ')), ++i;
      out += command(line, width);
    } else if (indent == 0) {
      while (i < lines.size() && !lines[i].empty() && lines[i][0] != ' ') line += " " + lines[i++];
      out += hung(line, 0, width);
      examples = line == "Examples:" || line == "Example:";
    } else {
      const std::vector<std::string> parts = parts_of(line.substr(static_cast<std::size_t>(indent)), 2);
      const Dim column =
          parts.size() > 1 ? static_cast<Dim>(line.find(parts[1], static_cast<std::size_t>(indent) + parts[0].size())) : 1000;
      while (i < lines.size() && !lines[i].empty() && indent_of(lines[i]) >= std::min(column, indent + 6) && indent_of(lines[i]) > indent)
        line += " " + lines[i].substr(lines[i].find_first_not_of(' ')), ++i;
      out += entry(line, width);
    }
  }
  return out;
}

}  // namespace rapt::cli
