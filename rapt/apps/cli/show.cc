// SPDX-License-Identifier: Apache-2.0
// rapt show: what a recipe means.
#include <algorithm>
#include <filesystem>

#include "rapt/apps/cli/help_text.h"
#include "rapt/apps/cli/verb.h"
#include "rapt/base/json.h"
#include "rapt/base/terminal.h"
#include "rapt/base/text.h"
#include "rapt/inspect/show.h"
#include "rapt/io/reader.h"
#include "rapt/load/checkpoint.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe.h"
#include "rapt/recipe/recipe_diff.h"
#include "rapt/recipe/recipe_schema.h"
#include "rapt/report/document.h"

namespace rapt::cli {
namespace {

// The model file or folder that a name means; "" where it is a recipe, a preset or standard input.
std::string model_path(const std::string& name) { return name == "-" ? "" : find_model_unless_recipe(name); }

Recipe load(const std::string& name) {
  if (name == "-") return resolve(parse_recipe(read_stdin(std::size_t{1} << 20), "standard input"));
  const std::string model = model_path(name);
  return resolve(model.empty() ? find_recipe(name) : checkpoint_recipe(model));
}

// A model goes by the name of its file.
Recipe named(const std::string& name) {
  Recipe r = load(name);
  if (const std::string path = model_path(name); !path.empty())
    r.name = std::filesystem::path(path).filename().string();
  return r;
}

// A recipe as a drawing; what a model's file itself holds stands below.
void draw(const std::string& name) {
  Recipe r = named(name);
  const std::string path = model_path(name);
  if (path.empty()) return print(draw_recipe(r, color_on_stdout(), columns_of_stdout()));
  if (const std::string own = checkpoint_summary(path).name; !own.empty() && r.note.empty())
    r.note = for_stdout(own);
  print(draw_recipe(r, color_on_stdout(), columns_of_stdout()) + "\n");
  for (const std::string& line : check_checkpoint(path, false)) print(for_stdout(line) + "\n");
}

// As a picture or as formulas, into a file or to standard output ("-").
void write_drawing(const std::string& text, const std::string& path, bool force) {
  if (path == "-") return print(text);
  FileWriter file(path, force);
  file.write(text);
  file.commit();
}

void print_template(const std::string& name) {
  const std::string path = model_path(name);
  if (path.empty()) fail_usage("--template: ", name, " is no model; only models have chat templates");
  const CheckpointSummary s = checkpoint_summary(path);
  if (s.chat_template.empty()) fail(path, " has no chat template: it continues texts");
  print(for_stdout(s.chat_template) + (s.chat_template.ends_with('\n') ? "" : "\n"));
}

void list(bool json) {
  Json::Array rows;
  Table table{.title = "", .columns = {"preset", "parameters", "what it is"}, .rows = {}};
  for (const std::string& n : preset_names()) {
    const Recipe r = load(n);
    const Dim parameters = count_parameters(r).total;
    Json row = Json::Object{};
    row.set("name", n);
    row.set("parameters", parameters);
    row.set("note", r.note);
    rows.push_back(std::move(row));
    table.rows.push_back({n, short_count(static_cast<double>(parameters)), r.note});
  }
  print(json ? Json(std::move(rows)).dump() + "\n"
             : document_text({.parts = {table}}, color_on_stdout(), columns_of_stdout()));
}

void diff(const std::string& a, const std::string& b, bool json) {
  const std::vector<Difference> all = diff_recipes(load(a), load(b));
  if (!json) {
    for (const Difference& d : all) {
      const std::string line = concat(d.path, ": ", d.a, " → ", d.b);
      print((is_terminal(STDOUT_FILENO) ? folded_lines(line, columns_of_stdout()) : line) + "\n");
    }
    if (all.empty()) print("no difference\n");
    return;
  }
  Json::Array rows;
  for (const Difference& d : all) {
    Json row = Json::Object{};
    row.set("path", d.path);
    row.set("a", d.a);
    row.set("b", d.b);
    rows.push_back(std::move(row));
  }
  print(Json(std::move(rows)).dump() + "\n");
}

int run(Args& args) {
  const bool json = args.flag("json"), all = args.flag("all"), schema = args.flag("schema"),
             compare = args.flag("diff"), chat = args.flag("template"), force = args.flag("force"),
             latex = args.flag("latex");
  const auto svg = args.value("svg");
  const Language language = language_of(args);
  if (schema) {
    args.operands(0, 0, "no recipe with --schema");
    print(recipe_schema());
  } else if (compare) {
    const auto names = args.operands(2, 2, "two recipes with --diff");
    if (names[0] == "-" && names[1] == "-")
      fail_usage("--diff: standard input can be one of the two recipes, not both");
    diff(names[0], names[1], json);
  } else if (chat) {
    print_template(args.operands(1, 1, "one model with --template")[0]);
  } else if (const auto names = args.operands(0, 1, "one recipe or model, or none"); names.empty()) {
    list(json);
  } else if (svg) {
    write_drawing(recipe_svg(named(names[0]), language), *svg, force);
  } else if (latex) {
    print(recipe_latex(named(names[0]), language));
  } else if (json || all) {
    print(recipe_json(load(names[0]), all));
  } else {
    draw(names[0]);
  }
  return 0;
}

}  // namespace

extern const Verb kShow;
const Verb kShow = {
    "show", "draw a model or a recipe, with sizes and costs",
    "Usage: rapt show [RECIPE | MODEL] [--json] [--all]\n"
    "       rapt show RECIPE | MODEL --svg FILE [--force] [--lang L]\n"
    "       rapt show RECIPE | MODEL --latex [--lang L]\n"
    "       rapt show MODEL --template\n"
    "       rapt show --diff A B [--json]\n"
    "       rapt show --schema\n"
    "\n"
    "RECIPE is the name of a preset, a JSON file, a model (GGUF file, Hugging Face folder, llama2.c file;\n"
    "only its headers are read), or - for standard input. Without one the presets are listed. Below a\n"
    "model's drawing stands what its file holds: types, sizes, tokenizer, chat template.\n"
    "\n"
    "  --json     the recipe as JSON, sizes filled in, defaults left out\n"
    "  --all      as JSON with every default spelt out\n"
    "  --diff     what differs between two recipes\n"
    "  --svg FILE a block diagram, with the heads and groups of each attention (-: to standard output)\n"
    "  --latex    the recipe as formulas, to paste into a note (amsmath, amssymb)\n"
    "  --lang L   words of picture and formulas: en or zh\n"
    "  --schema   every field of a recipe, with its default and meaning (docs/recipe.md)\n"
    "  --template the chat template of a model, as its files have it\n"
    "\n"
    "Examples:\n"
    "  rapt show\n"
    "  rapt show llama3\n"
    "  rapt show SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  rapt show --diff llama3 qwen3-gate-g1\n"
    "  echo '{\"preset\": \"gpt2\", \"decoder\": {\"layers\": 2}}' | rapt show -\n",
    run};

}  // namespace rapt::cli
