// SPDX-License-Identifier: Apache-2.0
// The laboratory: experiments of the list, on a model of one's own too, and documents of those that a program
// made itself.
#include <mutex>

#include "rapt/apps/python/model.h"
#include "rapt/base/clock.h"
#include "rapt/base/text.h"
#include "rapt/lab/experiment.h"
#include "rapt/lab/real.h"
#include "rapt/report/document_data.h"
#include "rapt/run/run.h"

namespace rapt::python {
namespace {

Language language(const std::string& name) {
  const std::optional<Language> found = find_language(name);
  if (!found) fail_name("language: '", name, "' is none of en, zh");
  return *found;
}

nb::tuple row_of(const Experiment& e, const char* name, bool of_model, Language lang) {
  return nb::make_tuple(name, text_of(question_of(e).in(lang)), text_of(claim_of(e).in(lang)), e.minutes,
                        of_model);
}
nb::list list_experiments(const std::string& lang) {
  nb::list out;
  const Language l = language(lang);
  for (const Experiment& e : experiments()) out.append(row_of(e, e.name, false, l));
  for (const RealExperiment& e : real_experiments()) out.append(row_of(e.shown, e.asked, true, l));
  return out;
}

// What an experiment is at, from its threads to the one that waits; a Python callable hears of it.
class Teller {
 public:
  explicit Teller(nb::object listener) : listener_(std::move(listener)) {}
  void tell(std::string_view what, double done, double of) {
    const std::lock_guard hold(mutex_);
    what_ = what, done_ = done, of_ = of, news_ = true;
  }
  std::function<void()> tick() {
    if (listener_.is_none()) return {};
    return [this] {
      std::string what;
      double done, of;
      {
        const std::lock_guard hold(mutex_);
        if (!std::exchange(news_, false)) return;
        what = what_, done = done_, of = of_;
      }
      call_python(listener_, nb::make_tuple(text_of(what), done, of));
    };
  }

 private:
  nb::object listener_;
  std::mutex mutex_;
  std::string what_;
  double done_ = 0, of_ = 0;
  bool news_ = false;
};

LabOrigin origin(const std::string& command, double effort, Device& device) {
  return {.command = command,
          .program = "rapt " RAPT_VERSION,
          .machine = concat(counted(device.threads(), "thread"), " (", device.kernels.isa, ")"),
          .date = {},
          .effort = effort};
}

// (result, document), both as JSON that lab_result and document_from read, and seconds.
nb::tuple run_experiment(const std::string& name, const std::string& model, std::uint64_t seed, double effort,
                         const std::string& text, const std::string& command, const DevicePtr& device,
                         nb::object listener) {
  if (!(effort > 0 && effort <= 1)) fail_usage("lab: effort is ", effort, "; it lies above 0 and up to 1");
  Teller teller(std::move(listener));
  std::atomic<bool> cancel{false};
  const DevicePtr on = device ? device : shared_device();
  struct Out {
    std::string result, document;
    double seconds;
  };
  const Out out = without_gil(cancel, teller.tick(), [&] {
    const RealExperiment* real = model.empty() ? nullptr : find_real(name);
    if (!model.empty() && !real) {
      std::vector<std::string> names;
      for (const RealExperiment& e : real_experiments()) names.push_back(e.asked);
      fail_name("lab: '", name, "' is not asked of a model; ", name_hint(name, names));
    }
    const Experiment& e = real ? real->shown : find_experiment(name);
    Lab lab{.device = on->device, .seed = seed, .effort = effort, .text = text};
    lab.progress = [&](const Text& what, double done, double of) {
      if (cancel.load(std::memory_order_relaxed)) throw Cancelled();
      teller.tell(what, done, of);
    };
    const auto start = Clock::now();
    const LabResult result =
        real ? real->run(lab, real_subject(lab, {.model = model, .text = text})) : e.run(lab);
    const double seconds = seconds_since(start);
    const Document d = lab_document(e, result, lab, seconds, origin(command, effort, on->device));
    return Out{lab_data(result).dump(0), document_data(d).dump(0), seconds};
  });
  return nb::make_tuple(out.result, out.document, out.seconds);
}

// The document of an experiment that a program carried out; `result` as lab_data writes it.
std::string own_document(const std::string& name, const std::string& question, const std::string& claim,
                         const std::string& result, std::uint64_t seed, double effort, double seconds,
                         const DevicePtr& device) {
  const OwnWords words{question, claim};
  const Experiment e{name.c_str(), 0, nullptr, &words};
  const DevicePtr on = device ? device : shared_device();
  const Lab lab{.device = on->device, .seed = seed, .effort = effort};
  return document_data(
             lab_document(e, lab_result(parse_json(result)), lab, seconds, origin("", effort, on->device)))
      .dump(0);
}

nb::list findings(const std::string& result, const std::string& lang) {
  nb::list out;
  const Language l = language(lang);
  for (const Finding& f : lab_result(parse_json(result)).findings)
    out.append(nb::make_tuple(text_of(f.what.in(l)), f.measured, text_of(f.unit), text_of(f.expected.in(l)),
                              f.holds, text_of(f.paper.in(l)), f.every_seed));
  return out;
}

std::string shown(const std::string& document, const std::string& as, const std::string& lang, Dim width) {
  const Document d = document_from(parse_json(document));
  const Language l = language(lang);
  if (as == "text") return document_text(d, false, width, l);
  if (as == "markdown") return document_markdown(d, l);
  if (as == "html") return documents_html(d.title, {&d, 1}, l);
  if (as == "json") return document_json(l == Language::en ? d : in_language(d, l)).dump();
  fail_usage("document: '", as, "' is none of text, markdown, html, json");
}

}  // namespace

void add_lab(nb::module_& m) {
  m.def("lab_experiments", &list_experiments);
  m.def("lab_run", &run_experiment, "name"_a, "model"_a, "seed"_a, "effort"_a, "text"_a, "command"_a,
        "device"_a.none(), "progress"_a.none());
  m.def("lab_document", &own_document, "name"_a, "question"_a, "claim"_a, "result"_a, "seed"_a, "effort"_a,
        "seconds"_a, "device"_a.none());
  m.def("lab_findings", &findings);
  m.def("lab_verdict", [](const std::string& result, const std::string& lang) {
    return text_of(lab_result(parse_json(result)).verdict.in(language(lang)));
  });
  m.def("lab_shown", &shown);
}

}  // namespace rapt::python
