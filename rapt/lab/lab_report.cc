// SPDX-License-Identifier: Apache-2.0
// Results of experiments as documents (one run, a report over seeds, its Markdown), and as data to keep.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/text.h"
#include "rapt/lab/experiment.h"
#include "rapt/report/document_data.h"

namespace rapt {
namespace {

std::string without_numbers(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789", kOfNumbers = "0123456789+-.";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool exponent = text[i] == 'e' && i > 0 && kDigits.find(text[i - 1]) != kDigits.npos;  // 2.6e-10
    if (!exponent && kOfNumbers.find(text[i]) == kOfNumbers.npos) out += text[i];
  }
  return out;
}

// A verdict is written for the full number of steps and samples. `seed`: where there are several.
Text verdict_of(double effort, const std::string& seed, const Text& verdict) {
  const char* key = effort < 1 ? (seed.empty() ? "lab.verdict_effort" : "lab.verdict_effort_seed")
                               : (seed.empty() ? "lab.verdict" : "lab.verdict_seed");
  return say(key, verdict, shortest(effort), seed);
}

// Words of the tables, each explained where it stands in what was said: in the dictionary lab.terms, under
// the same name.
struct Term {
  const char* name;
  std::vector<const char*> seen;
};
Text explained(std::string_view said) {
  static const Term kTerms[] = {
      {"copying", {"copying row", "copying rows", "opying task", "opy task", "idle"}},
      {"excess", {"xcess loss", "xcess of"}},
      {"spikes", {"spike", "Spike"}},
      {"gates", {"G1", "G2", "G3", "G4", "G5"}},
      {"z", {" z ", " z,", " z.", "|z|"}},
      {"biases", {"b_q", "b_k", "b_v", "b_o", "W_O"}},
      {"sizes", {" d ", " d,", " d=", "d =", "(d)", " L ", " L,", "L ="}},
  };
  std::vector<Text> out;
  for (const Term& t : kTerms)
    if (std::any_of(t.seen.begin(), t.seen.end(),
                    [&](const char* word) { return said.find(word) != said.npos; }))
      out.push_back(say(concat("lab.terms.", t.name)));
  return sentences(std::move(out));
}

// Everything a document says, in one text.
std::string words_of(const Document& d) {
  std::string out = document_markdown(d);
  for (const auto& part : d.parts) {
    if (const auto* c = std::get_if<Chart>(&part)) {
      out += concat("\n", c->title, " ", c->x_label, " ", c->y_label);
      for (const Curve& k : c->curves) out += " " + k.name;
    }
    if (const auto* m = std::get_if<HeatMap>(&part)) out += concat("\n", m->title);
  }
  return out;
}

Text mark(const Finding& f) { return say(f.holds ? "lab.yes" : "lab.no"); }
Text expected(const Finding& f) { return f.every_seed ? f.expected : say("lab.either_way", f.expected); }

Json finding_json(const Finding& f) {
  return Json::Object{{"what", f.what},
                      {"measured", std::isfinite(f.measured) ? Json(f.measured) : Json()},
                      {"unit", f.unit},
                      {"expected", f.expected},
                      {"holds", f.holds},
                      {"paper", f.paper},
                      {"every_seed", f.every_seed}};
}

}  // namespace

Text measured_text(const Finding& f) {  // "0.53 x": four significant digits are enough to compare seeds
  char text[64];
  const double size = std::abs(f.measured);
  const bool power = size != 0 && (size < 1e-3 || size >= 1e6);
  std::snprintf(text, sizeof text, power ? "%.1e" : size >= 9999.5 ? "%.0f" : "%.4g", f.measured);
  if (f.unit.empty() || f.unit == "%") return Text(text + f.unit);
  if (f.unit == "x") return say("lab.times", text);
  if (f.unit == "points") return say("lab.points", text);
  return f.unit == "nats" ? say("lab.nats", text) : Text(concat(text, " ", f.unit));
}

Document lab_document(const Experiment& experiment, const LabResult& result, const Lab& lab, double seconds,
                      const LabOrigin& origin) {
  Document d{.name = experiment.name, .title = question_of(experiment)};
  d.parts.push_back(Words{say("lab.story", claim_of(experiment))});
  Table t{.title = say("lab.measured"),
          .columns = {say("lab.what"), say("lab.measured"), say("lab.expected"), say("lab.so"),
                      say("lab.papers")},
          .rows = {}};
  Json::Array findings;
  for (const Finding& f : result.findings) {
    t.rows.push_back({f.what, measured_text(f), expected(f), mark(f), f.paper});
    findings.push_back(finding_json(f));
  }
  d.parts.push_back(std::move(t));
  d.parts.push_back(Words{verdict_of(lab.effort, "", result.verdict)});
  d.parts.insert(d.parts.end(), result.document.parts.begin(), result.document.parts.end());
  char time[32];
  std::snprintf(time, sizeof time, "%.1f", seconds);
  d.parts.push_back(
      Words{say(lab.effort < 1 ? "lab.ran_effort" : "lab.ran", lab.seed, time,
                say(lab.device.threads() == 1 ? "lab.thread" : "lab.threads", lab.device.threads()),
                lab.device.kernels.isa, shortest(lab.effort))});
  d.facts = result.document.facts;
  d.facts.set("seed", static_cast<Dim>(lab.seed));
  d.facts.set("effort", lab.effort);
  for (const auto& [key, value] :
       {std::pair{"command", &origin.command}, std::pair{"program", &origin.program},
        std::pair{"machine", &origin.machine}, std::pair{"date", &origin.date}})
    if (!value->empty()) d.facts.set(key, *value);
  d.facts.set("seconds", seconds);
  d.facts.set("verdict", result.verdict);
  d.facts.set("findings", std::move(findings));
  return d;
}

std::vector<Document> lab_report(std::span<const Experiment* const> ran, std::span<const std::uint64_t> seeds,
                                 const std::vector<std::vector<LabResult>>& results,
                                 const LabOrigin& origin) {
  Document top{.title = say("lab.report_title")};
  top.parts.push_back(Words{say("lab.made_by", origin.command, origin.program, origin.machine, origin.date)});
  if (origin.effort < 1) top.parts.push_back(Words{say("lab.made_with_effort", shortest(origin.effort))});
  Table summary{.columns = {say("lab.experiment"), say("lab.question"), say("lab.held")}};
  for (std::size_t e = 0; e < ran.size(); ++e) {
    std::size_t held[2] = {}, all[2] = {};  // either way, promised
    const std::size_t findings = results[e].empty() ? 0 : results[e][0].findings.size();
    for (std::size_t i = 0; i < findings; ++i) {
      const bool promised = results[e][0].findings[i].every_seed;
      all[promised] += 1;
      held[promised] += std::all_of(results[e].begin(), results[e].end(), [&](const LabResult& r) {
        return i < r.findings.size() && r.findings[i].holds;
      });
    }
    const Text promised = all[1] ? say("lab.of", held[1], all[1]) : Text("–");
    summary.rows.push_back({ran[e]->name, question_of(*ran[e]),
                            all[0] ? say("lab.of_either", promised, held[0], all[0]) : promised});
  }
  top.parts.push_back(std::move(summary));
  std::vector<Document> out = {std::move(top)};
  for (std::size_t e = 0; e < ran.size(); ++e) {
    const std::vector<LabResult>& of = results[e];
    Document d{.name = ran[e]->name, .title = question_of(*ran[e])};
    d.parts.push_back(Words{say("lab.story", claim_of(*ran[e]))});
    Table t{.columns = {say("lab.what"), say("lab.expected")}};
    for (std::uint64_t s : seeds) t.columns.push_back(say("lab.seed", s));
    t.columns.push_back(say("lab.papers"));
    const std::size_t rows = of.empty() ? 0 : of[0].findings.size();
    for (std::size_t i = 0; i < rows; ++i) {
      const Finding& f = of[0].findings[i];
      std::vector<Cell> row = {f.what, expected(f)};
      for (const LabResult& r : of) {
        if (r.findings.size() != rows)
          fail("lab: ", ran[e]->name, " has ", r.findings.size(), " findings with one seed, ", rows,
               " with another");
        row.push_back(say("lab.marked", measured_text(r.findings[i]), mark(r.findings[i])));
      }
      row.push_back(f.paper);
      t.rows.push_back(std::move(row));
    }
    d.parts.push_back(std::move(t));
    const bool one =
        std::all_of(of.begin(), of.end(), [&](const LabResult& r) { return r.verdict == of[0].verdict; });
    // Seeds whose verdict differs from the first one's in its numbers only.
    std::vector<Text> alike;
    for (std::size_t s = 0; s < of.size() && (s == 0 || !one); ++s) {
      if (s > 0 && without_numbers(of[s].verdict) == without_numbers(of[0].verdict))
        alike.push_back(concat(seeds[s]));
      else d.parts.push_back(Words{verdict_of(origin.effort, one ? "" : concat(seeds[s]), of[s].verdict)});
    }
    if (!alike.empty())
      d.parts.push_back(Words{say(alike.size() == 1 ? "lab.alike_one" : "lab.alike", listed(alike))});
    if (!of.empty()) d.parts.insert(d.parts.end(), of[0].document.parts.begin(), of[0].document.parts.end());
    out.push_back(std::move(d));
  }
  std::string said;
  for (std::size_t i = 1; i < out.size(); ++i) said += words_of(out[i]);
  if (Text terms = explained(said); !terms.empty()) out[0].parts.push_back(Words{std::move(terms)});
  return out;
}

std::string lab_markdown(std::vector<Document> report, Language language) {
  std::string out = concat("# ", say("lab.title").in(language), "\n");
  for (std::size_t i = 0; i < report.size(); ++i) {
    if (i > 0) report[i].title = say("lab.named", report[i].name, report[i].title);
    out += "\n" + document_markdown(report[i], language);
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ as data
Json lab_data(const LabResult& r) {
  Json::Array findings;
  for (const Finding& f : r.findings)
    findings.push_back(Json::Object{{"what", f.what.json()},
                                    {"measured", std::isfinite(f.measured) ? Json(f.measured) : Json()},
                                    {"unit", f.unit},
                                    {"expected", f.expected.json()},
                                    {"holds", f.holds},
                                    {"paper", f.paper.json()},
                                    {"every_seed", f.every_seed}});
  return Json::Object{{"findings", std::move(findings)},
                      {"verdict", r.verdict.json()},
                      {"document", document_data(r.document)}};
}

LabResult lab_result(const Json& data) {
  auto at = [](const Json& j, const char* key) -> const Json& {
    const Json* found = j.find(key);
    if (!found) fail("a result of the laboratory: '", key, "' is missing");
    return *found;
  };
  LabResult r;
  for (const Json& f : at(data, "findings").array())
    r.findings.push_back({.what = Text::of(at(f, "what")),
                          .measured = at(f, "measured").is_null() ? NAN : at(f, "measured").number(),
                          .unit = std::string(at(f, "unit").string()),
                          .expected = Text::of(at(f, "expected")),
                          .holds = at(f, "holds").boolean(),
                          .paper = Text::of(at(f, "paper")),
                          .every_seed = at(f, "every_seed").boolean()});
  r.verdict = Text::of(at(data, "verdict"));
  r.document = document_from(at(data, "document"));
  return r;
}

}  // namespace rapt
