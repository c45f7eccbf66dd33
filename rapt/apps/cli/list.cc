// SPDX-License-Identifier: Apache-2.0
// rapt list: the models that names can mean.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/nn/size.h"

namespace rapt::cli {
namespace {

namespace fs = std::filesystem;

int run(Args& args) {
  const CommonArgs common = common_args(args);
  args.operands(0, 0, "no words: it lists the folders of RAPT_MODELS");
  Json::Array rows;
  std::vector<std::vector<std::string>> table = {{"NAME", "SIZE", "PARAMS", "TYPE", "FAMILY", "CONTEXT"}};
  for (const std::string& path : model_paths()) {
    const std::string name = fs::path(path).filename().string();
    Json row = Json::Object{};
    row.set("name", bytes_json(name));
    row.set("path", bytes_json(path));
    try {
      const CheckpointSummary s = checkpoint_summary(path);
      const Dim parameters = count_parameters(s.recipe).total;
      row.set("bytes", static_cast<Dim>(s.bytes));
      row.set("parameters", parameters);
      row.set("type", types_text(s));
      row.set("family", s.family);
      row.set("context", s.recipe.context);
      row.set("chat", !s.chat_template.empty());
      table.push_back({name, byte_count(static_cast<double>(s.bytes)),
                       short_count(static_cast<double>(parameters)), types_text(s), s.family,
                       std::to_string(s.recipe.context)});
    } catch (const Error& e) {
      row.set("error", std::string(e.what()));
      table.push_back({name, concat("cannot be read: rapt check ", name, " says why")});
    }
    rows.push_back(std::move(row));
  }
  if (common.json) {
    print(Json(std::move(rows)).dump() + "\n");
    return 0;
  }
  std::vector<Dim> widths(6, 0);
  for (const auto& line : table)
    for (std::size_t i = 0; line.size() == widths.size() && i < line.size(); ++i)
      widths[i] = std::max(widths[i], text_width(line[i]));
  Dim whole = 0;
  for (Dim w : widths) whole += w + 2;
  // A name has a line of its own then, the rest stands below it.
  const bool narrow = whole - 2 > columns_of_stdout();
  std::string out;
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string cell = for_stdout(line[i]);
      if (narrow && i == 0) out += cell + "\n  ";
      else out += i + 1 < line.size() ? padded(cell, widths[i] + 2) : cell + "\n";
    }
  }
  print(out);
  if (const char* set = std::getenv("RAPT_MODELS"); !set || !*set)
    note(
        "note: RAPT_MODELS is not set; it names the folders (a:b:c) whose models are listed. "
        "scripts/get-models FOLDER brings three");
  return 0;
}

}  // namespace

extern const Verb kList;
const Verb kList = {
    "list", "the models that can be called by name",
    "Usage: rapt list [--json]\n"
    "\n"
    "The GGUF files, llama2.c files and Hugging Face folders in the folders of RAPT_MODELS (a:b:c), and\n"
    "the models that come with the program. Only headers are read. Every verb takes such a name instead of\n"
    "a path: whole, without .gguf, or its beginning in any case where only one begins so. Nothing is\n"
    "fetched from anywhere.\n"
    "\n"
    "  --json        as JSON, with paths\n"
    "  -q, --quiet   no notes\n"
    "\n"
    "Examples:\n"
    "  RAPT_MODELS=~/models rapt list\n"
    "  rapt run smollm2 'Hello'\n",
    run};

}  // namespace rapt::cli
