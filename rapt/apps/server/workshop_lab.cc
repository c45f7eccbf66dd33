// SPDX-License-Identifier: Apache-2.0
// Experiments for the page: what the guide says, what was measured for it, and runs with another seed.
// Events of a run: {"kind":"progress","what","done","of","seconds"}, at most five a second, and
// {"kind":"result","experiment","seed","effort","seconds","findings","verdict","documents"}. What is said is
// there in both languages: {"en","zh"}, or one string where they are the same.
// Experiments on a model of one's own (rapt/lab/real.h) are not among them: they read files, and the server
// has closed them to itself.
#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/protocol_request.h"
#include "rapt/apps/server/workshop_parts.h"
#include "rapt/base/text.h"
#include "rapt/lab/guide.h"

namespace rapt::server {
namespace {

constexpr double kBetween = 0.2;  // seconds between two signs of progress

Json both(const Text& text) {
  const std::string zh = text.in(Language::zh);
  if (zh == text) return valid_text(text);
  return Json::Object{{"en", valid_text(text)}, {"zh", valid_text(zh)}};
}
Json both(const Document& document) {
  return Json::Object{{"en", document_json(document, true)},
                      {"zh", document_json(in_language(document, Language::zh), true)}};
}

Json findings_of(const LabResult& result) {
  Json::Array all;
  for (const Finding& f : result.findings)
    all.push_back(Json::Object{{"what", both(f.what)},
                               {"measured", std::isfinite(f.measured) ? Json(f.measured) : Json()},
                               {"shown", both(measured_text(f))},
                               {"expected", both(f.expected)},
                               {"holds", f.holds},
                               {"every_seed", f.every_seed},
                               {"paper", both(f.paper)}});
  return all;
}

Json about_question(const GuideTopic& t, const GuideQuestion& q) {
  constexpr const char* kMarks[] = {"right", "imprecise", "wrong"};
  const auto said = [&](const char* what) {
    return both(say(concat("guide.", t.name, ".", q.name, ".", what)));
  };
  Json out = Json::Object{{"id", concat(t.name, ".", q.name)},
                          {"mark", kMarks[static_cast<int>(q.mark)]},
                          {"says", said("says")},
                          {"why", said("why")},
                          {"command", q.command}};
  for (const Experiment& e : experiments())
    if (e.name == q.experiment) out.set("experiment", e.name);
  return out;
}

Json whole_guide() {
  Json::Array topics, all;
  for (const GuideTopic& t : guide_topics()) {
    Json::Array questions;
    for (const GuideQuestion& q : t.questions) questions.push_back(about_question(t, q));
    topics.push_back(Json::Object{{"name", t.name},
                                  {"title", both(say(concat("guide.", t.name, ".title")))},
                                  {"about", both(say(concat("guide.", t.name, ".about")))},
                                  {"questions", std::move(questions)}});
  }
  for (const Experiment& e : experiments())
    all.push_back(Json::Object{{"name", e.name},
                               {"question", both(question_of(e))},
                               {"claim", both(claim_of(e))},
                               {"minutes", e.minutes}});
  Json marks;
  for (const char* mark : {"right", "imprecise", "wrong"}) marks.set(mark, both(say(concat("guide.", mark))));
  return Json::Object{
      {"topics", std::move(topics)}, {"experiments", std::move(all)}, {"marks", std::move(marks)}};
}

[[noreturn]] void none_of(std::string_view what, std::string_view name,
                          const std::vector<std::string>& names) {
  throw ApiError(
      404, "not_found",
      concat("there is no ", what, " '", name.substr(0, 64), "'; ", name_hint(name.substr(0, 64), names)));
}

Json question_reply(std::string_view id) {
  std::vector<std::string> names;
  for (const GuideTopic& t : guide_topics())
    for (const GuideQuestion& q : t.questions) {
      names.push_back(concat(t.name, ".", q.name));
      if (names.back() != id) continue;
      Json out = about_question(t, q);
      out.set("documents", both(question_document(t, q)));
      return out;
    }
  none_of("question", id, names);
}

Json experiment_reply(std::string_view name) {
  std::vector<std::string> names;
  for (const Experiment& e : experiments()) {
    names.push_back(e.name);
    if (name != e.name) continue;
    Json::Array results;
    if (const GuideResult* r = guide_result(name))
      for (std::size_t s = 0; s < r->results.size(); ++s)
        results.push_back(Json::Object{{"seed", static_cast<Dim>(r->seeds[s])},
                                       {"findings", findings_of(r->results[s])},
                                       {"verdict", both(r->results[s].verdict)}});
    return Json::Object{{"name", e.name},
                        {"question", both(question_of(e))},
                        {"claim", both(claim_of(e))},
                        {"minutes", e.minutes},
                        {"results", std::move(results)}};
  }
  none_of("experiment", name, names);
}

// The figures and tables, and last how it was computed: what the page does not say in its own way.
Document shown_document(const Experiment& e, const LabResult& result, const Lab& lab, double seconds) {
  Document whole = lab_document(e, result, lab, seconds);
  Document out{.name = whole.name, .title = whole.title, .parts = result.document.parts};
  out.parts.push_back(std::move(whole.parts.back()));
  return out;
}

void carry_out(const Experiment& e, const LabRunRequest& asked, int threads, Workshop::Bench& bench) {
  bench.check();
  Device device({.threads = threads});  // not bound to processors, as in `rapt lab`
  Lab lab{.device = device, .seed = asked.seed, .effort = asked.effort, .text = asked.text};
  const auto start = Clock::now();
  double told = -1;
  lab.progress = [&](const Text& what, double done, double of) {
    bench.check();
    const double seconds = seconds_since(start);
    if (told >= 0 && seconds < told + kBetween) return;
    told = seconds;
    bench.tell(Json::Object{
        {"kind", "progress"}, {"what", both(what)}, {"done", done}, {"of", of}, {"seconds", seconds}});
  };
  const LabResult result = e.run(lab);
  const double seconds = seconds_since(start);
  bench.tell(Json::Object{{"kind", "result"},
                          {"experiment", e.name},
                          {"seed", static_cast<Dim>(asked.seed)},
                          {"effort", asked.effort},
                          {"seconds", seconds},
                          {"findings", findings_of(result)},
                          {"verdict", both(result.verdict)},
                          {"documents", both(shown_document(e, result, lab, seconds))}});
}

}  // namespace

std::string lab_reply(std::string_view pattern, std::string_view name) {
  static const std::string guide = whole_guide().dump(0);
  if (pattern == "/lab") return guide;
  return (pattern == "/lab/questions/{id}" ? question_reply(name) : experiment_reply(name)).dump(0);
}

std::string run_experiment(Workshop& workshop, const Json& body, std::size_t key) {
  const LabRunRequest asked = read_lab_run(body);
  std::vector<std::string> names;
  const Experiment* found = nullptr;
  for (const Experiment& e : experiments()) {
    names.push_back(e.name);
    if (asked.experiment == e.name) found = &e;
  }
  if (!found)
    bad_field("experiment",
              concat("there is no '", asked.experiment, "'; ", name_hint(asked.experiment, names)));
  const std::string id = workshop.begin(
      "lab", {{"experiment", found->name}, {"seed", static_cast<Dim>(asked.seed)}, {"effort", asked.effort}},
      key, [found, asked, threads = workshop.options().threads](Workshop::Bench& bench) {
        carry_out(*found, asked, threads, bench);
      });
  return Json(Json::Object{{"id", id}}).dump(0);
}

}  // namespace rapt::server
