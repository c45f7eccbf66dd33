// SPDX-License-Identifier: Apache-2.0
// Recipes: a Recipe in Python is the JSON of a resolved recipe, and these functions make one, compare two and
// draw one.
#include "rapt/apps/python/wait.h"
#include "rapt/base/text.h"
#include "rapt/inspect/show.h"
#include "rapt/load/checkpoint.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe_diff.h"
#include "rapt/recipe/recipe_schema.h"
#include "rapt/recipe/recipe_set.h"

namespace rapt::python {
namespace {

// What was given as arguments is the caller's to mean: a recipe that cannot be is a usage error there, and a
// key that it does not have a name. Words of the command line are left out.
template <class F>
auto of_arguments(const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    std::string text = e.what();
    if (text.starts_with("--set ")) text.erase(0, 6);
    const bool name = text.find(": unknown key; ") != text.npos || text.find("unknown part ") != text.npos;
    throw Error(text, name                               ? Error::Kind::name
                      : e.kind() == Error::Kind::failure ? Error::Kind::usage
                                                         : e.kind());
  }
}

Recipe read(const std::string& json) { return resolve(parse_recipe(json)); }

// A preset's name, a recipe's file, or a model, of which the headers are read.
std::string named_recipe(const std::string& name, const std::vector<std::string>& settings) {
  const OutOfPython out(on_main_thread());
  const std::string model = find_model_unless_recipe(name);
  const Recipe r = model.empty() ? find_recipe(name) : checkpoint_recipe(model);
  return of_arguments([&] { return recipe_json(with_settings(r, settings)); });
}
std::string parsed_recipe(const std::string& json, const std::vector<std::string>& settings) {
  return of_arguments([&] { return recipe_json(with_settings(parse_recipe(json), settings)); });
}

std::vector<std::tuple<std::string, std::string, std::string>> differences(const std::string& a,
                                                                           const std::string& b) {
  std::vector<std::tuple<std::string, std::string, std::string>> out;
  for (Difference& d : diff_recipes(read(a), read(b)))
    out.emplace_back(std::move(d.path), std::move(d.a), std::move(d.b));
  return out;
}

std::map<std::string, Dim> sizes(const std::string& json) {
  const Recipe r = read(json);
  const ParameterCount count = count_parameters(r);
  std::map<std::string, Dim> out(count.groups.begin(), count.groups.end());
  out["biases"] = count.biases;
  out["active"] = count.active;
  out["total"] = count.total;
  return out;
}

Language language(const std::string& name) {
  const std::optional<Language> found = find_language(name);
  if (!found) fail_name("language: '", name, "' is none of en, zh");
  return *found;
}

std::vector<std::pair<std::string, std::string>> presets() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& name : preset_names()) out.emplace_back(name, preset(name).note);
  return out;
}

}  // namespace

void add_recipe(nb::module_& m) {
  m.def("recipe_named", &named_recipe);
  m.def("recipe_parsed", &parsed_recipe);
  m.def("recipe_whole", [](const std::string& json) { return recipe_json(read(json), true); });
  m.def("recipe_diff", &differences);
  m.def("recipe_sizes", &sizes);
  m.def("recipe_drawing",
        [](const std::string& json, Dim width) { return draw_recipe(read(json), false, width); });
  m.def("recipe_svg", [](const std::string& json, const std::string& lang) {
    return recipe_svg(read(json), language(lang));
  });
  m.def("recipe_latex", [](const std::string& json, const std::string& lang) {
    return recipe_latex(read(json), language(lang));
  });
  m.def("recipe_schema",
        [](const std::string& lang) { return recipe_schema_data(language_name(language(lang))).dump(0); });
  m.def("presets", &presets);
}

}  // namespace rapt::python
