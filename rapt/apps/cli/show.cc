// SPDX-License-Identifier: Apache-2.0
// rapt show: what a recipe means.
#include <algorithm>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/nn/checkpoint.h"
#include "rapt/nn/recipe.h"
#include "rapt/nn/show.h"

namespace rapt::cli {
namespace {

Recipe load(const std::string& name) {
  if (name == "-") return resolve(parse_recipe(read_stdin(std::size_t{1} << 20), "standard input"));
  const std::string model = find_model_unless_recipe(name);
  return resolve(model.empty() ? find_recipe(name) : checkpoint_recipe(model));
}

void list(bool json) {
  Json::Array rows;
  std::string table;
  std::size_t widest = 0;
  for (const std::string& n : preset_names()) widest = std::max(widest, n.size());
  for (const std::string& n : preset_names()) {
    const Recipe r = load(n);
    const Dim parameters = count_parameters(r).total;
    Json row = Json::Object{};
    row.set("name", n);
    row.set("parameters", parameters);
    row.set("note", r.note);
    rows.push_back(std::move(row));
    table += concat(padded(n, static_cast<Dim>(widest) + 2), padded(short_count(static_cast<double>(parameters)), 9), r.note, "\n");
  }
  print(json ? Json(std::move(rows)).dump() + "\n" : table);
}

void diff(const std::string& a, const std::string& b, bool json) {
  const std::vector<Difference> all = diff_recipes(load(a), load(b));
  if (!json) {
    for (const Difference& d : all) print(concat(d.path, ": ", d.a, " → ", d.b, "\n"));
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
  const bool json = args.flag("json"), all = args.flag("all"), schema = args.flag("schema"), compare = args.flag("diff");
  if (schema) {
    args.operands(0, 0, "recipes with --schema");
    print(recipe_schema());
  } else if (compare) {
    const auto names = args.operands(2, 2, "recipes with --diff");
    if (names[0] == "-" && names[1] == "-") fail_usage("--diff: standard input can be one of the two recipes, not both");
    diff(names[0], names[1], json);
  } else if (const auto names = args.operands(0, 1, "recipe"); names.empty()) {
    list(json);
  } else if (json || all) {
    print(recipe_json(load(names[0]), all));
  } else {
    print(draw_recipe(load(names[0]), color_on_stdout()));
  }
  return 0;
}

}  // namespace

extern const Verb kShow;
const Verb kShow = {
    "show", "draw a model from its recipe, with sizes and costs",
    "Usage: rapt show [RECIPE] [--json] [--all]\n"
    "       rapt show --diff A B [--json]\n"
    "       rapt show --schema\n"
    "\n"
    "RECIPE is the name of a preset, a JSON file, a model (GGUF file, Hugging Face folder, llama2.c file; only its headers are read),\n"
    "or - for standard input. Without one the presets are listed.\n"
    "\n"
    "  --json     the recipe as JSON, sizes filled in, defaults left out\n"
    "  --all      as JSON with every default spelt out\n"
    "  --diff     what differs between two recipes\n"
    "  --schema   every field of a recipe, with its default and meaning (docs/recipe.md)\n"
    "\n"
    "Examples:\n"
    "  rapt show\n"
    "  rapt show llama3\n"
    "  rapt show SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  rapt show --diff llama3 qwen3-gate-g1\n"
    "  echo '{\"preset\": \"gpt2\", \"decoder\": {\"layers\": 2}}' | rapt show -\n",
    run};

}  // namespace rapt::cli
