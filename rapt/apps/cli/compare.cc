// SPDX-License-Identifier: Apache-2.0
// rapt compare: trainings side by side.
#include "rapt/use/compare_runs.h"

#include "rapt/apps/cli/document_files.h"
#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

int run(Args& args) {
  const std::optional<std::string> out = args.value("out"), html = args.value("html");
  const bool force = args.flag("force"), json = args.flag("json"), quiet = args.flag("quiet");
  const std::vector<std::string> named = args.operands(1, 1000, "folders that `rapt train` wrote");
  check_document_files(out, html, force, false);
  std::vector<RunRecord> runs;
  for (const std::string& name : named)
    for (const std::string& folder : run_folders(name)) runs.push_back(read_run(folder));
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (runs[i].folder == runs[j].folder) fail_usage(runs[i].folder, ": stands there twice");
  const Document d = compare_runs(runs);
  if (out) write_pictures(d, *out, force, quiet);
  if (html) write_page(d, *html, force, quiet);
  if (json) print(document_json(d).find("facts")->dump() + "\n");
  else if (!out && !html) print(document_text(d, color_on_stdout(), columns_of_stdout()));
  return 0;
}

}  // namespace

extern const Verb kCompare;
const Verb kCompare = {
    "compare", "several trainings side by side: curves, last numbers, what differs",
    "Usage: rapt compare OUT... [--html FILE] [--out FILE | FOLDER/] [--json]\n"
    "\n"
    "OUT is the folder of a training (its --out), running, stopped or done, or a folder of such ones, as\n"
    "rapt train --sweep makes it. Shown are what differs between their recipes, options and data; how each\n"
    "ended; and curves of all of them in one picture each: training loss (smoothed), held-out loss, and of\n"
    "the attention its entropy, largest score, sink, gates, and the largest activations. A figure that each\n"
    "layer has is the mean over layers (entropy, sink, gates) or the largest of them (scores, activations).\n"
    "Runs are called by what differs between them where that is short, else by their folders.\n"
    "\n"
    "  --html FILE        one page that needs no network\n"
    "  --out FILE         the first chart, training loss, as .svg or .txt; FOLDER/: all of them\n"
    "  --json             all numbers and curves, differences, notes\n"
    "  --force            replaces files\n"
    "  -q, --quiet        does not name the files that were written\n"
    "\n"
    "Examples:\n"
    "  rapt compare out/plain out/gated\n"
    "  rapt compare out/rates --html rates.html\n"
    "  rapt compare out/rates/* --out charts/\n",
    run};

}  // namespace rapt::cli
