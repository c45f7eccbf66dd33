// SPDX-License-Identifier: Apache-2.0
// Names are checked before anything is computed; each file that was written is a line of standard error.
#include "rapt/apps/cli/document_files.h"

#include <filesystem>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt::cli {
namespace {

bool is_picture(const auto& part) {
  return std::holds_alternative<HeatMap>(part) || std::holds_alternative<Chart>(part);
}

void write_part(const auto& part, const std::string& path, bool force) {
  if (const auto* map = std::get_if<HeatMap>(&part)) write_picture(*map, path, force);
  else write_picture(std::get<Chart>(part), path, force);
}

bool is_folder(const std::string& out) { return out.ends_with('/') || std::filesystem::is_directory(out); }

}  // namespace

void write_pictures(const Document& d, const std::string& out, bool force, bool quiet) {
  const bool folder = is_folder(out);
  if (folder) std::filesystem::create_directories(out);
  int n = 0;
  for (const auto& part : d.parts) {
    if (!is_picture(part)) continue;
    ++n;
    const std::string path =
        folder ? concat(out, out.ends_with('/') ? "" : "/", d.name, "-", n, ".svg") : out;
    write_part(part, path, force);
    if (!quiet)
      note(concat(path, ": ",
                  std::visit(
                      [](const auto& p) -> std::string {
                        if constexpr (requires { p.title; }) return p.title;
                        else return "";
                      },
                      part)));
    if (!folder) return;
  }
  if (n == 0) fail(d.name, ": has no map or chart for ", out, "; use --json or --html");
}

void check_document_files(const std::optional<std::string>& out, const std::optional<std::string>& html,
                          bool force, bool maps) {
  if (html) check_can_write(*html, force);
  if (!out) return;
  if (is_folder(*out)) {
    std::filesystem::path up = std::filesystem::absolute(*out);
    while (!up.empty() && up.has_parent_path() && !std::filesystem::exists(up)) up = up.parent_path();
    return check_can_write((up / "rapt-picture").string(), true);
  }
  check_picture_name(*out, maps);
  check_can_write(*out, force);
}

void write_page(const Document& d, const std::string& path, bool force, bool quiet) {
  FileWriter file(path, force);
  file.write(documents_html(d.title, std::span(&d, 1)));
  file.commit();
  if (!quiet) note(concat(path, ": ", d.title));
}

}  // namespace rapt::cli
