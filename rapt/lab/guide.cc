// SPDX-License-Identifier: Apache-2.0
// The guide's data read, then shown as documents and as pages in two languages.
#include "rapt/lab/guide.h"

#include <algorithm>
#include <map>

#include "rapt/base/text.h"
#include "rapt/report/document_data.h"

namespace rapt {
namespace {

const Json& data(const char* name) {
  static const std::map<std::string, Json, std::less<>> all = [] {
    std::map<std::string, Json, std::less<>> read;
    for (const GuideFile& f : guide_data())
      read.emplace(f.name, parse_json(f.text, concat("guide/", f.name)));
    return read;
  }();
  return all.at(name);
}

constexpr const char* kMarks[] = {"right", "imprecise", "wrong"};

// What the tables take for known; explained on the first page (guide.reading.NAME).
constexpr const char* kTerms[] = {"marks",    "columns",   "seed",    "ratio",  "nats",
                                  "held_out", "excess",    "copying", "lookup", "parameters",
                                  "spikes",   "streaming", "names",   "recipe"};

Mark mark_of(const Json& json) {
  for (std::size_t i = 0; i < std::size(kMarks); ++i)
    if (json.string() == kMarks[i]) return static_cast<Mark>(i);
  fail("guide: '", json.string(), "' is no mark; right, imprecise and wrong are");
}

Text said(const GuideTopic& t, const GuideQuestion& q, const char* what) {
  return say(concat("guide.", t.name, ".", q.name, ".", what));
}

using Figure = std::variant<Words, Table, HeatMap, Chart>;
bool is_figure(const Figure& part) {
  return std::holds_alternative<Chart>(part) || std::holds_alternative<HeatMap>(part);
}

// The picture of a question; null where it has none.
const Figure* figure_of(const GuideQuestion& q) {
  const GuideResult* r = q.figure ? guide_result(q.experiment) : nullptr;
  if (!r || r->results.empty()) return nullptr;
  for (const Figure& part : r->results[0].document.parts)
    if (is_figure(part)) return &part;
  return nullptr;
}

std::string figure_svg(const Figure& figure, Language language) {
  if (const auto* c = std::get_if<Chart>(&figure)) return chart_svg(in_language(*c, language));
  return heat_svg(in_language(std::get<HeatMap>(figure), language));
}

std::string figure_path(const GuideTopic& t, const GuideQuestion& q, Language language) {
  return concat("images/", t.name, "-", q.name, ".", language_name(language), ".svg");
}

// What was measured for a question. One whose experiment another question tells (no picture) shows only the
// findings it names.
const GuideResult* numbers_for(const GuideQuestion& q) {
  const GuideResult* r = guide_result(q.experiment);
  return r && !r->results.empty() && (q.figure || !q.findings.empty()) ? r : nullptr;
}

// The columns of a question's table: one for each seed, or one for each model that has a name.
struct Columns {
  std::vector<Text> names;
  std::vector<const LabResult*> results;
};
Columns columns_of(const GuideQuestion& q, const GuideResult& r) {
  Columns c;
  const auto model = [&](const std::string& experiment, const GuideResult& of) {
    c.names.push_back(say("guide.ours_model", experiment.substr(experiment.find('@') + 1)));
    c.results.push_back(&of.results[0]);
  };
  if (q.experiment.find('@') != std::string::npos) {
    model(q.experiment, r);
    for (const std::string& other : q.beside)
      if (const GuideResult* of = guide_result(other); of && !of->results.empty()) model(other, *of);
    return c;
  }
  for (std::size_t s = 0; s < r.results.size(); ++s) {
    c.names.push_back(r.seeds.size() == 1 ? say("guide.ours") : say("guide.ours_seed", r.seeds[s]));
    c.results.push_back(&r.results[s]);
  }
  return c;
}

// The name of a row. Where columns say it with other values (a channel, a layer), it has them all.
Text row_name(const std::vector<const LabResult*>& columns, std::size_t row) {
  const Json first = columns[0]->findings[row].what.json();
  if (!first.is_object()) return columns[0]->findings[row].what;
  Json::Array values;
  for (std::size_t v = 0; v < first.find("with")->array().size(); ++v) {
    std::string all;
    bool same = true;
    for (const LabResult* r : columns) {
      const Json what = r->findings.at(row).what.json(), &value = what.find("with")->array()[v];
      if (!value.is_string()) return columns[0]->findings[row].what;
      same = same && value.string() == first.find("with")->array()[v].string();
      all += concat(all.empty() ? "" : " / ", value.string());
    }
    values.push_back(same ? first.find("with")->array()[v] : Json(all));
  }
  return Text::of(Json::Object{{"say", first.find("say")->string()}, {"with", std::move(values)}});
}

void add_rows(Table& t, const std::vector<const LabResult*>& columns,
              const std::vector<std::size_t>& findings) {
  const std::vector<Finding>& first = columns[0]->findings;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!findings.empty() && std::find(findings.begin(), findings.end(), i) == findings.end()) continue;
    std::vector<Cell> row = {row_name(columns, i)};
    for (const LabResult* r : columns)
      row.push_back(i < r->findings.size() ? Cell(measured_text(r->findings[i])) : Cell("–"));
    row.resize(t.columns.size() - 1, Cell("–"));
    row.push_back(first[i].paper);
    t.rows.push_back(std::move(row));
  }
}

// Ours beside the papers': a row a finding, a column a seed or a model.
Table numbers_of(const GuideQuestion& q, const GuideResult& r) {
  const Columns columns = columns_of(q, r);
  Table t{.columns = {say("guide.measured")}};
  t.columns.insert(t.columns.end(), columns.names.begin(), columns.names.end());
  t.columns.push_back(say("guide.papers"));
  add_rows(t, columns.results, q.findings);
  for (const auto& [experiment, findings] : q.below)
    if (const GuideResult* of = guide_result(experiment); of && of->seeds == r.seeds) {
      std::vector<const LabResult*> results;
      for (const LabResult& one : of->results) results.push_back(&one);
      add_rows(t, results, findings);
    }
  return t;
}

Text quoted(const GuideTopic& t, const GuideQuestion& q) {
  return say("guide.says", said(t, q, "says"), say(concat("guide.", kMarks[static_cast<int>(q.mark)])));
}

std::string topic_markdown(const GuideTopic& t, Language language) {
  Document head{.name = t.name, .title = say(concat("guide.", t.name, ".title"))};
  head.parts.push_back(Words{say(concat("guide.", t.name, ".about"))});
  std::string out = document_markdown(head, language).substr(1);  // a page's title, not a part's
  for (const GuideQuestion& q : t.questions) {
    Document d{.name = q.name, .title = quoted(t, q)};
    d.parts.push_back(Words{said(t, q, "why")});
    out += concat("\n", document_markdown(d, language),
                  "\n<!-- run: no (the laboratory has tests of its own) -->\n```sh\n", q.command, "\n```\n");
    if (const Figure* f = figure_of(q)) {
      const Text title = std::visit(
          [](const auto& p) -> Text {
            if constexpr (requires { p.title; }) return p.title;
            else return {};
          },
          *f);
      out += concat("\n![", title.in(language), "](../", figure_path(t, q, language), ")\n");
    }
    if (const GuideResult* r = numbers_for(q))
      out += document_markdown({.parts = {numbers_of(q, *r)}}, language);
  }
  return out;
}

std::string index_markdown(Language language) {
  std::string out =
      concat("# ", say("guide.title").in(language), "\n\n", say("guide.intro").in(language), "\n\n");
  for (const GuideTopic& t : guide_topics()) {
    std::size_t marks[3] = {};
    for (const GuideQuestion& q : t.questions) ++marks[static_cast<int>(q.mark)];
    out += concat("- [", say(concat("guide.", t.name, ".title")).in(language), "](", t.name, ".md)",
                  say("guide.count", t.questions.size(), marks[0], marks[1], marks[2]).in(language), "\n");
  }
  out += concat("\n## ", say("guide.reading.title").in(language), "\n\n");
  for (const char* term : kTerms) out += concat("- ", say(concat("guide.reading.", term)).in(language), "\n");
  return out;
}

// Every item of the notes that the guide began with, and where it is answered.
std::string items_markdown() {
  std::string out =
      "# Item by item\n\nWhat five study notes on attention state, use or ask, and the question of the guide "
      "that answers it.\n\n| item | what the notes have | answered in | mark | command |\n"
      "|---|---|---|---|---|\n";
  for (const Json::Member& item : data("items.json").object())
    for (const GuideTopic& t : guide_topics())
      for (const GuideQuestion& q : t.questions)
        if (std::find(q.items.begin(), q.items.end(), std::stoi(std::string(item.key))) != q.items.end())
          out += concat("| ", item.key, " | ", item.value.string(), " | [", t.name, "](en/", t.name,
                        ".md): ", q.name, " | ", kMarks[static_cast<int>(q.mark)], " | ", q.command, " |\n");
  return out;
}

}  // namespace

const std::vector<GuideTopic>& guide_topics() {
  static const std::vector<GuideTopic> topics = [] {
    std::vector<GuideTopic> read;
    for (const Json::Member& t : data("topics.json").object()) {
      GuideTopic topic{.name = std::string(t.key)};
      for (const Json::Member& q : t.value.object()) {
        GuideQuestion question{.name = std::string(q.key)};
        for (const Json::Member& m : q.value.object()) {
          if (m.key == "mark") question.mark = mark_of(m.value);
          else if (m.key == "command") question.command = m.value.string();
          else if (m.key == "experiment") question.experiment = m.value.string();
          else if (m.key == "figure") question.figure = m.value.boolean();
          else if (m.key == "findings")
            for (const Json& i : m.value.array())
              question.findings.push_back(static_cast<std::size_t>(i.integer()));
          else if (m.key == "beside")
            for (const Json& other : m.value.array()) question.beside.emplace_back(other.string());
          else if (m.key == "below")
            for (const Json::Member& other : m.value.object()) {
              auto& rows =
                  question.below.emplace_back(std::string(other.key), std::vector<std::size_t>{}).second;
              for (const Json& i : other.value.array()) rows.push_back(static_cast<std::size_t>(i.integer()));
            }
          else if (m.key == "items")
            for (const Json& i : m.value.array()) question.items.push_back(static_cast<int>(i.integer()));
          else fail("guide: ", t.key, ".", q.key, " has a field '", m.key, "' that means nothing");
        }
        topic.questions.push_back(std::move(question));
      }
      read.push_back(std::move(topic));
    }
    return read;
  }();
  return topics;
}

const GuideTopic& find_topic(std::string_view name) {
  std::vector<std::string> names;
  for (const GuideTopic& t : guide_topics()) {
    if (t.name == name) return t;
    names.push_back(t.name);
  }
  fail_name("the guide has no topic '", name, "'; ", name_hint(name, names));
}

const GuideResult* guide_result(std::string_view experiment) {
  static const std::map<std::string, GuideResult, std::less<>> all = [] {
    std::map<std::string, GuideResult, std::less<>> read;
    const Json* experiments = data("results.json").find("experiments");
    if (!experiments) return read;
    for (const Json::Member& e : experiments->object()) {
      GuideResult& r = read[std::string(e.key)];
      for (const Json& one : e.value.array()) {
        r.seeds.push_back(static_cast<std::uint64_t>(one.find("seed")->integer()));
        r.results.push_back(lab_result(one));
      }
    }
    return read;
  }();
  const auto found = all.find(experiment);
  return found == all.end() ? nullptr : &found->second;
}

Json guide_results_json(std::span<const std::string> names, std::span<const std::uint64_t> seeds,
                        const std::vector<std::vector<LabResult>>& results, const LabOrigin& origin) {
  Json all = Json::Object{};
  for (std::size_t e = 0; e < results.size(); ++e) {
    Json::Array by_seed;
    for (std::size_t s = 0; s < results[e].size(); ++s) {
      LabResult kept = results[e][s];
      // A picture tells it; tables and more pictures are in the laboratory's own report.
      auto& parts = kept.document.parts;
      const auto figure = std::find_if(parts.begin(), parts.end(), is_figure);
      if (s == 0 && figure != parts.end()) parts = {*figure};
      else parts.clear();
      kept.document.facts = Json::Object{};
      Json one = lab_data(kept);
      one.set("seed", static_cast<Dim>(seeds[s]));
      by_seed.push_back(std::move(one));
    }
    all.set(names[e], std::move(by_seed));
  }
  return Json::Object{{"command", origin.command},
                      {"program", origin.program},
                      {"machine", origin.machine},
                      {"date", origin.date},
                      {"experiments", std::move(all)}};
}

Document guide_document(const GuideTopic& t) {
  Document d{.name = t.name, .title = say(concat("guide.", t.name, ".title"))};
  d.parts.push_back(Words{say(concat("guide.", t.name, ".about"))});
  for (const GuideQuestion& q : t.questions) {
    d.parts.push_back(Words{quoted(t, q), true});
    d.parts.push_back(Words{said(t, q, "why")});
    d.parts.push_back(Words{say("guide.command", q.command)});
    if (const Figure* f = figure_of(q)) d.parts.push_back(*f);
    if (const GuideResult* r = numbers_for(q)) d.parts.push_back(numbers_of(q, *r));
  }
  return d;
}

Document question_document(const GuideTopic& t, const GuideQuestion& q) {
  Document d{.name = concat(t.name, ".", q.name), .title = quoted(t, q)};
  GuideQuestion alone = q;
  alone.figure = true;
  if (const Figure* f = figure_of(alone)) d.parts.push_back(*f);
  if (const GuideResult* r = numbers_for(alone)) d.parts.push_back(numbers_of(q, *r));
  return d;
}

std::vector<std::pair<std::string, std::string>> guide_files() {
  std::vector<std::pair<std::string, std::string>> out = {{"items.md", items_markdown()}};
  for (Language l : kLanguages) {
    const std::string folder = concat(language_name(l), "/");
    out.emplace_back(folder + "README.md", index_markdown(l));
    for (const GuideTopic& t : guide_topics()) {
      out.emplace_back(folder + t.name + ".md", topic_markdown(t, l));
      for (const GuideQuestion& q : t.questions)
        if (const Figure* f = figure_of(q)) out.emplace_back(figure_path(t, q, l), figure_svg(*f, l));
    }
  }
  return out;
}

}  // namespace rapt
