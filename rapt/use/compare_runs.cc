// SPDX-License-Identifier: Apache-2.0
// Differences and names first, then notes, tables and charts of the document.
#include "rapt/use/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/recipe/recipe_diff.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

constexpr const char *kUnknown = "not known", *kSeed = "train.seed";

// Of two runs, under the names that run_differences() gives.
std::vector<Difference> differences_of(const RunRecord& a, const RunRecord& b) {
  std::vector<Difference> out;
  const auto take = [&](const std::vector<Difference>& from, std::string_view prefix) {
    for (const Difference& d : from) out.push_back({concat(prefix, d.path), d.a, d.b});
  };
  if (a.recipe && b.recipe) take(diff_recipes(*a.recipe, *b.recipe), "");
  if (!a.options.object().empty() && !b.options.object().empty())
    take(diff_values(a.options, b.options), "train.");
  if (!a.data.object().empty() && !b.data.object().empty()) take(diff_values(a.data, b.data), "--");
  return out;
}

bool knows(const RunRecord& run, std::string_view key) {
  if (key.starts_with("train.")) return !run.options.object().empty();
  if (key.starts_with("--")) return !run.data.object().empty();
  return run.recipe.has_value();
}

// "decoder.kinds.L.parts[0].self.kv_heads": "kv_heads"
std::string last_name(std::string_view key) {
  if (key.starts_with("--")) return std::string(key.substr(2));
  const std::size_t dot = key.rfind('.');
  return std::string(dot == std::string_view::npos ? key : key.substr(dot + 1));
}

// A JSON string without its quotes.
std::string bare(const std::string& value) {
  return value.size() > 1 && value.front() == '"' && value.back() == '"' ? value.substr(1, value.size() - 2)
                                                                         : value;
}

// How often a run looks and saves makes it no other run.
bool only_looks(std::string_view key) {
  static constexpr std::string_view kKeys[] = {"train.eval_every", "train.eval_batches", "train.save_every",
                                               "train.save_minutes", "train.health_every"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

bool all_differ(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

// The ends of their paths, as long as it takes to tell them apart.
std::vector<std::string> folder_names(std::span<const RunRecord> runs) {
  for (int parts = 1;; ++parts) {
    std::vector<std::string> out;
    bool whole = true;
    for (const RunRecord& run : runs) {
      std::filesystem::path rest = std::filesystem::path(run.folder).lexically_normal(), name;
      if (!rest.has_filename()) rest = rest.parent_path();  // a slash at its end
      for (int i = 0; i < parts && rest.has_filename(); ++i, rest = rest.parent_path())
        name = name.empty() ? rest.filename() : rest.filename() / name;
      whole = whole && !rest.has_filename();
      out.push_back(name.empty() ? run.folder : name.string());
    }
    if (whole || all_differ(out)) return out;
  }
}

double last_of(const Curve& c) { return c.y.empty() ? std::numeric_limits<double>::quiet_NaN() : c.y.back(); }

// The step of the lowest value; nothing where there is none.
std::optional<std::size_t> lowest(const Curve& c) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < c.y.size(); ++i)
    if (std::isfinite(c.y[i]) && (!best || c.y[i] < c.y[*best])) best = i;
  return best;
}

// One figure of all runs: what its chart and its column are called.
struct Figure {
  const char *key, *title, *axis, *column;
  bool largest = false, share = false;
};
constexpr Figure kFigures[] = {
    {"entropy", "Entropy of the attention weights, mean over layers", "nats", "entropy"},
    {"max_logit", "Largest logit (scaled score before the softmax), largest over layers", "logit",
     "largest logit", true},
    {"sink", "Attention sink: heads whose mean weight on the first key is above 0.3, mean over layers",
     "share of heads", "sink", false, true},
    {"gate_mean", "Mean of the gates, mean over layers", "gate", "gate mean", false, true},
    {"gate_sparsity", "Gates below 0.1, mean over layers", "share of gate values", "gates < 0.1", false,
     true},
    {"massive", "Largest activation over the median, largest over layers", "ratio", "massive", true},
};

// Values that go over more than a decade and a bit are drawn by their logarithms.
bool wants_log(const std::vector<Curve>& curves) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Curve& c : curves)
    for (double y : c.y) {
      if (!std::isfinite(y)) continue;
      if (y <= 0) return false;
      low = std::min(low, y), high = std::max(high, y);
    }
  return high > 20 * low;
}

// A chart says something where some run has two points; one look stands in the table.
void add_chart(Document& d, Chart chart) {
  std::erase_if(chart.curves, [](const Curve& c) { return c.y.empty(); });
  const bool moves = std::any_of(chart.curves.begin(), chart.curves.end(), [](const Curve& c) {
    return std::count_if(c.y.begin(), c.y.end(), [](double y) { return std::isfinite(y); }) > 1;
  });
  if (moves) d.parts.push_back(std::move(chart));
}

Cell size_cell(double x) { return {x, std::abs(x) >= 100 ? 0 : 2}; }
Cell count_cell(Dim n) {
  Cell c(static_cast<double>(n), 0);
  c.text = with_commas(n);
  return c;
}

Dim planned(const RunRecord& run) {
  const Json* steps = run.options.find("steps");
  return steps && steps->is_integer() ? steps->integer() : 0;
}
bool unfinished(const RunRecord& run) { return run.log.steps < planned(run); }

// Columns of numbers, one row a run; a column in which no run has anything to say is left out.
class RunTable {
 public:
  RunTable(const char* title, const std::vector<std::string>& names)
      : table_{.title = title, .columns = {"run"}, .rows = {}} {
    for (const std::string& name : names) table_.rows.push_back({name});
  }
  void add(const char* column, const std::function<Cell(std::size_t run)>& cell) {
    std::vector<Cell> cells;
    for (std::size_t i = 0; i < table_.rows.size(); ++i) cells.push_back(cell(i));
    if (std::all_of(cells.begin(), cells.end(), [](const Cell& c) { return c.text.empty(); })) return;
    table_.columns.emplace_back(column);
    for (std::size_t i = 0; i < cells.size(); ++i) table_.rows[i].push_back(cells[i]);
  }
  void put_into(Document& d) {
    if (table_.columns.size() > 1) d.parts.push_back(std::move(table_));
  }

 private:
  Table table_;
};

void add_end(Document& d, std::span<const RunRecord> runs, const std::vector<std::string>& names,
             const std::vector<std::vector<Curve>>& figures) {
  const auto count_or_none = [](Dim n) { return n > 0 ? count_cell(n) : Cell(""); };
  const auto last_cell = [](const Curve& c) { return c.y.empty() ? Cell("") : Cell(c.y.back(), 4); };
  RunTable losses("Loss and cost at the end", names);
  losses.add("steps", [&](std::size_t i) {
    Cell c = count_cell(runs[i].log.steps);
    return unfinished(runs[i]) ? Cell(concat(c.text, " of ", with_commas(planned(runs[i])))) : c;
  });
  losses.add("training", [&](std::size_t i) { return last_cell(runs[i].log.loss); });
  losses.add("held out", [&](std::size_t i) { return last_cell(runs[i].log.held_out); });
  const auto best = [&](std::size_t i, const auto& of) {
    const std::optional<std::size_t> at = lowest(runs[i].log.held_out);
    return at ? of(runs[i].log.held_out, *at) : Cell("");
  };
  losses.add("lowest", [&](std::size_t i) {
    return best(i, [](const Curve& c, std::size_t at) { return Cell(c.y[at], 4); });
  });
  losses.add("at step", [&](std::size_t i) {
    return best(i, [](const Curve& c, std::size_t at) { return count_cell(static_cast<Dim>(c.x[at])); });
  });
  losses.add("steps skipped", [&](std::size_t i) { return count_or_none(runs[i].log.skipped); });
  losses.add("seconds",
             [&](std::size_t i) { return Cell(runs[i].log.seconds, runs[i].log.seconds < 10 ? 2 : 1); });
  losses.add("weights", [&](std::size_t i) { return count_or_none(runs[i].parameters); });
  losses.put_into(d);
  RunTable attention("Attention at the last look", names);
  for (std::size_t f = 0; f < std::size(kFigures); ++f)
    attention.add(kFigures[f].column, [&](std::size_t i) {
      if (figures[f][i].y.empty()) return Cell("");
      const double last = figures[f][i].y.back();
      return kFigures[f].share ? Cell(last, 3) : size_cell(last);
    });
  attention.put_into(d);
}

// A row for each run or for each difference, whichever are more.
Table differences_table(const std::vector<std::string>& names, std::span<const RunDifference> differences) {
  Table t{.title = "What differs", .columns = {}, .rows = {}};
  if (differences.size() < names.size()) {
    t.columns.emplace_back("run");
    for (const RunDifference& d : differences) t.columns.push_back(d.key);
    for (std::size_t i = 0; i < names.size(); ++i) {
      t.rows.push_back({names[i]});
      for (const RunDifference& d : differences) t.rows.back().push_back(d.values[i]);
    }
    return t;
  }
  t.columns.emplace_back("key");
  t.columns.insert(t.columns.end(), names.begin(), names.end());
  for (const RunDifference& d : differences) {
    t.rows.push_back({d.key});
    for (const std::string& value : d.values) t.rows.back().push_back(value);
  }
  return t;
}

// The name of a run without its seed; "" where it is not in the name.
std::string without_seed(const std::string& name, const std::string& seed) {
  const std::string word = concat("seed=", seed);
  const std::size_t at = name.find(word);
  if (at == std::string::npos) return "";
  std::string out = name.substr(0, at > 0 ? at - 1 : 0) + name.substr(at + word.size());
  if (out.starts_with(',') || out.starts_with(' ')) out.erase(0, 1);
  return out.empty() ? "all" : out;
}

// Mean, lowest and highest of the runs that differ in nothing but their seed.
void add_seeds(Document& d, std::span<const RunRecord> runs, const std::vector<std::string>& names,
               std::span<const RunDifference> differences) {
  const auto seeds = std::find_if(differences.begin(), differences.end(),
                                  [](const RunDifference& x) { return x.key == kSeed; });
  if (seeds == differences.end()) return;
  std::vector<std::vector<std::size_t>> groups;
  const auto twins = [&](std::size_t a, std::size_t b) {
    return std::all_of(differences.begin(), differences.end(), [&](const RunDifference& x) {
      return x.key == kSeed || only_looks(x.key) || x.values[a] == x.values[b];
    });
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!std::isfinite(last_of(runs[i].log.held_out)) || unfinished(runs[i])) continue;
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return twins(g[0], i); });
    if (group == groups.end()) groups.push_back({i});
    else group->push_back(i);
  }
  if (std::all_of(groups.begin(), groups.end(), [](const auto& g) { return g.size() < 2; })) return;
  Table t{
      .title = "Held-out loss over seeds", .columns = {"", "seeds", "mean", "lowest", "highest"}, .rows = {}};
  for (const std::vector<std::size_t>& group : groups) {
    double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
    for (std::size_t i : group) {
      const double y = last_of(runs[i].log.held_out);
      sum += y, low = std::min(low, y), high = std::max(high, y);
    }
    const auto n = static_cast<double>(group.size());
    const std::string name = without_seed(names[group[0]], seeds->values[group[0]]);
    t.rows.push_back({name.empty() ? concat("as ", names[group[0]]) : name, Cell(n, 0), Cell(sum / n, 4),
                      Cell(low, 4), Cell(high, 4)});
  }
  d.parts.push_back(std::move(t));
}

// What a reader must know before the numbers are compared.
std::vector<std::string> notes_of(std::span<const RunRecord> runs, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunLog& log = runs[i].log;
    if (!log.failed.empty())
      out.push_back(concat(names[i], " failed after ", counted(log.steps, "step"), ": ", log.failed));
    else if (log.loss.y.empty()) out.push_back(concat(names[i], ": its log has no step yet"));
    else if (unfinished(runs[i]))
      out.push_back(concat(names[i], " stands at step ", with_commas(log.steps), " of ",
                           with_commas(planned(runs[i]))));
    const auto gaps =
        std::count_if(log.loss.y.begin(), log.loss.y.end(), [](double y) { return !std::isfinite(y); });
    if (gaps > 0)
      out.push_back(concat(names[i], ": the loss of ", counted(gaps, "step"), " was not finite (gaps)"));
    if (log.unread > 0)
      out.push_back(concat(names[i], ": ", counted(log.unread, "line"),
                           " of its log could not be read (cut short?) and ", log.unread == 1 ? "is" : "are",
                           " left out"));
    if (!runs[i].recipe)
      out.push_back(concat(names[i], ": what it was trained with is not known (no whole state, no model)"));
  }
  const auto values = [&](const auto& of) {
    std::set<std::string> all;
    for (const RunRecord& run : runs)
      if (const std::string v = of(run); !v.empty()) all.insert(v);
    return std::vector<std::string>(all.begin(), all.end());
  };
  const auto objective = [](const RunRecord& r) {
    const Json* o = r.data.find("objective");
    return o && o->is_string() ? std::string(o->string()) : "";
  };
  const auto vocabulary = [](const RunRecord& r) {
    return r.recipe && r.recipe->vocab > 0 ? with_commas(r.recipe->vocab) : "";
  };
  const auto data = [](const RunRecord& r) {
    return r.log.data.is_string() ? std::string(r.log.data.string()) : "";
  };
  if (const auto all = values(objective); all.size() > 1)
    out.push_back(concat("They learn different things (", join(all),
                         "): losses of one kind say nothing about the other"));
  else if (const auto sizes = values(vocabulary); sizes.size() > 1)
    out.push_back(concat("Their vocabularies differ (", join(sizes, " and "),
                         " tokens): a loss per token does not mean the same in all of them"));
  else if (const auto texts = values(data); texts.size() > 1)
    out.push_back(concat("They learned from different data (", join(texts, "; "),
                         "): their losses are of different texts"));
  return out;
}

Json curve_json(const Curve& c) { return Json::Object{{"step", list_json(c.x)}, {"value", list_json(c.y)}}; }

Json run_json(const RunRecord& run, const std::string& name, const std::vector<std::vector<Curve>>& figures,
              std::size_t i) {
  const RunLog& log = run.log;
  Json j = Json::Object{{"name", valid_text(name)},
                        {"folder", valid_text(run.folder)},
                        {"steps", log.steps},
                        {"planned_steps", planned(run) > 0 ? Json(planned(run)) : Json()},
                        {"finished", planned(run) > 0 && !unfinished(run)},
                        {"failed", log.failed.empty() ? Json() : Json(valid_text(log.failed))},
                        {"seconds", log.seconds},
                        {"parameters", run.parameters > 0 ? Json(run.parameters) : Json()},
                        {"skipped", log.skipped},
                        {"rewound", log.rewound},
                        {"loss", last_of(log.loss)},
                        {"held_out_loss", last_of(log.held_out)}};
  const std::optional<std::size_t> best = lowest(log.held_out);
  j.set("best_held_out_loss", best ? Json(log.held_out.y[*best]) : Json());
  j.set("best_step", best ? Json(static_cast<Dim>(log.held_out.x[*best])) : Json());
  Json curves = Json::Object{{"loss", curve_json(log.loss)}, {"held_out_loss", curve_json(log.held_out)}};
  for (std::size_t f = 0; f < std::size(kFigures); ++f) {
    j.set(kFigures[f].key, last_of(figures[f][i]));
    curves.set(kFigures[f].key, curve_json(figures[f][i]));
  }
  j.set("curves", std::move(curves));
  return j;
}

}  // namespace

std::vector<RunDifference> run_differences(std::span<const RunRecord> runs) {
  std::vector<RunDifference> out;
  std::vector<std::vector<Difference>> from_first(runs.size());
  for (std::size_t i = 1; i < runs.size(); ++i) {
    from_first[i] = differences_of(runs[0], runs[i]);
    for (const Difference& d : from_first[i])
      if (std::none_of(out.begin(), out.end(), [&](const RunDifference& o) { return o.key == d.path; }))
        out.push_back({d.path, std::vector<std::string>(runs.size(), d.a)});
  }
  const auto seed =
      std::find_if(out.begin(), out.end(), [](const RunDifference& d) { return d.key == kSeed; });
  if (seed != out.end()) std::rotate(seed, seed + 1, out.end());  // what people vary last
  for (RunDifference& row : out)
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!knows(runs[i], row.key)) row.values[i] = kUnknown;
      for (const Difference& d : from_first[i]) {
        if (d.path == row.key) row.values[i] = d.b;
        // It has another choice in this place, which stands in a row of its own.
        else if (row.key.starts_with(d.path + ".") || row.key.starts_with(d.path + "["))
          row.values[i] = "absent";
      }
    }
  return out;
}

std::vector<std::string> run_names(std::span<const RunRecord> runs,
                                   std::span<const RunDifference> differences) {
  constexpr std::size_t kMostKeys = 3;
  constexpr Dim kWidest = 40;
  std::vector<const RunDifference*> telling;
  for (const RunDifference& d : differences) {
    if (only_looks(d.key)) continue;
    const bool said = std::any_of(telling.begin(), telling.end(), [&](const RunDifference* t) {
      return last_name(t->key) == last_name(d.key) && t->values == d.values;
    });
    if (!said) telling.push_back(&d);
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < runs.size() && telling.size() <= kMostKeys; ++i) {
    std::string name;
    for (const RunDifference* d : telling)
      name += concat(name.empty() ? "" : " ", last_name(d->key), "=", bare(d->values[i]));
    if (name.empty() || text_width(name) > kWidest || name.find(kUnknown) != std::string::npos) break;
    out.push_back(std::move(name));
  }
  return out.size() == runs.size() && all_differ(out) ? out : folder_names(runs);
}

Document compare_runs(std::span<const RunRecord> runs) {
  if (runs.empty() || runs.size() > kMostRuns)
    fail_usage("compare: ", counted(static_cast<Dim>(runs.size()), "run"), "; between 1 and ", kMostRuns,
               " fit one picture");
  const std::vector<RunDifference> differences = run_differences(runs);
  const std::vector<std::string> names = run_names(runs, differences);
  // Many long names leave no room for curves: numbers then, which the table explains.
  Dim widest = 0;
  for (const std::string& name : names) widest = std::max(widest, text_width(name));
  const bool numbered = widest > 60 || static_cast<Dim>(names.size()) * (widest + 6) > 500;
  std::vector<std::string> labels = names, rows = names;
  for (std::size_t i = 0; numbered && i < names.size(); ++i)
    labels[i] = concat("#", i + 1), rows[i] = concat("#", i + 1, " ", names[i]);

  Document d{.name = "compare",
             .title = runs.size() == 1 ? concat("One run: ", runs[0].folder)
                                       : concat(runs.size(), " runs side by side"),
             .parts = {}};
  const std::vector<std::string> notes = notes_of(runs, rows);
  for (const std::string& note : notes) d.parts.push_back(Words{note + "."});
  if (!differences.empty()) d.parts.push_back(differences_table(rows, differences));
  else if (runs.size() > 1)
    d.parts.push_back(Words{"Nothing that is known of their recipes, options and data differs."});

  std::vector<std::vector<Curve>> figures;  // [figure][run]
  for (const Figure& f : kFigures) {
    figures.emplace_back();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      figures.back().push_back(over_layers(runs[i].log, f.key, f.largest));
      figures.back().back().name = labels[i];
    }
  }
  add_end(d, runs, rows, figures);
  add_seeds(d, runs, names, differences);

  Chart loss{
      .title = "Training loss, smoothed", .x_label = "step", .y_label = "nats per target", .curves = {}},
      held{.title = "Held-out loss", .x_label = "step", .y_label = "nats per target", .curves = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    loss.curves.push_back(runs[i].log.loss);
    held.curves.push_back(runs[i].log.held_out);
    loss.curves.back().name = held.curves.back().name = labels[i];
  }
  add_chart(d, std::move(loss));
  add_chart(d, std::move(held));
  Json::Array all;
  for (std::size_t i = 0; i < runs.size(); ++i) all.push_back(run_json(runs[i], names[i], figures, i));
  for (std::size_t f = 0; f < std::size(kFigures); ++f)
    add_chart(d, {.title = kFigures[f].title,
                  .x_label = "step",
                  .y_label = kFigures[f].axis,
                  .curves = figures[f],
                  .log_y = kFigures[f].largest && wants_log(figures[f]),
                  .share = kFigures[f].share});

  Json::Array differ, said;
  for (const RunDifference& x : differences) {
    Json::Array values;
    for (const std::string& v : x.values) values.emplace_back(valid_text(v));
    differ.push_back(Json::Object{{"key", x.key}, {"values", std::move(values)}});
  }
  for (const std::string& note : notes) said.emplace_back(valid_text(note));
  d.facts =
      Json::Object{{"runs", std::move(all)}, {"differences", std::move(differ)}, {"notes", std::move(said)}};
  return d;
}

}  // namespace rapt
