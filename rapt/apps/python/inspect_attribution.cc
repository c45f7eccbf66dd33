// SPDX-License-Identifier: Apache-2.0
// Why a model says what it says, as one number that a pass ends in (inspect/metric.h): its parts, what brings
// it back in a corrupted text, and its gradient at points.
#include "rapt/apps/python/inspect.h"
#include "rapt/inspect/attribution.h"
#include "rapt/inspect/patching.h"
#include "rapt/inspect/point_gradients.h"

namespace rapt::python {
namespace {

Metric metric_of(const ModelPtr& m, const std::string& text) {
  if (m->edits) fail_usage("this looks at the model as it is; use the handle without edits");
  refuse_adapters(*m);
  if (text.empty()) return {.kind = Metric::Kind::difference};  // of what either text would go on with
  return parse_metric(text, m->checkpoint->tokenizer.get());
}

nb::dict metric_dict(const Metric& metric, const ModelPtr& m) {
  nb::dict out;
  out["kind"] = std::string(metric_name(metric.kind));
  out["token"] = metric.token, out["other"] = metric.other, out["position"] = metric.position;
  out["text"] = metric_text(metric, m->checkpoint->tokenizer.get()).in(Language::en);
  return out;
}

nb::dict contributions(const std::vector<Contribution>& all) {
  nb::dict out;
  const auto column = [&](const char* name, const auto& of) {
    nb::list values;
    for (const Contribution& c : all) values.append(of(c));
    out[name] = std::move(values);
  };
  column("name", [](const Contribution& c) { return c.name; });
  column("layer", [](const Contribution& c) { return c.layer; });
  column("number", [](const Contribution& c) { return c.number; });
  column("head", [](const Contribution& c) { return c.head; });
  column("cross", [](const Contribution& c) { return c.cross; });
  std::vector<double> values;
  for (const Contribution& c : all) values.push_back(c.value);
  out["value"] = array_of(std::move(values));
  return out;
}

nb::dict inspect_attribution(const ModelPtr& m, const TokenIds& ids, const TokenIds& source,
                             const std::string& metric) {
  const Metric of = metric_of(m, metric);
  const Attribution a = without_gil([&] { return attribution(m->on(), m->net(), of, ids, source); });
  nb::dict out;
  out["metric"] = metric_dict(a.metric, m);
  out["logit"] = a.logit, out["capped"] = a.capped, out["rest"] = a.rest;
  out["parts"] = contributions(a.parts), out["heads"] = contributions(a.heads);
  out["gated"] = a.gated, out["normed"] = a.normed;
  return out;
}

nb::dict inspect_patching(const ModelPtr& m, const TokenIds& clean, const TokenIds& corrupted,
                          const std::string& metric, const std::vector<std::string>& what,
                          nb::object listener) {
  const Metric of = metric_of(m, metric);
  Progress progress(std::move(listener));
  PatchingOptions o{.what = what};
  if (progress.is_on())
    o.progress = [&](Dim done, Dim all) {
      progress.set(static_cast<double>(done), static_cast<double>(all));
    };
  const Patching p =
      without_gil(progress, [&] { return patching(m->on(), m->net(), of, clean, corrupted, o); });
  nb::list grids;
  for (const PatchedGrid& g : p.grids) {
    nb::dict grid;
    const Sizes shape{static_cast<Dim>(g.layers.size()), g.columns};
    grid["what"] = g.what, grid["layers"] = g.layers;
    grid["value"] = array_of(std::vector<double>(g.value), shape);
    grid["recovered"] = array_of(std::vector<double>(g.recovered), shape);
    grids.append(std::move(grid));
  }
  nb::dict out;
  out["metric"] = metric_dict(p.metric, m);
  out["clean"] = p.clean, out["corrupted"] = p.corrupted;
  out["grids"] = std::move(grids);
  return out;
}

// (metric, value, [(name as asked, our name, gradient)])
nb::tuple inspect_gradients(const ModelPtr& m, const std::vector<std::string>& names, const TokenIds& ids,
                            const TokenIds& source, const std::string& metric, double limit) {
  const Metric of = metric_of(m, metric);
  const std::vector<Asked> asked = ask_points(m->net(), names);
  const auto got = std::make_shared<const PointGradients>(
      without_gil([&] { return point_gradients(m->on(), m->net(), asked, of, ids, source, limit); }));
  nb::list tensors;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Captured& t = got->tensors.tensors[i];
    tensors.append(nb::make_tuple(t.name, asked[i].point.name,
                                  array_of(got, t.values.data(), Sizes(t.shape.begin(), t.shape.end()))));
  }
  return nb::make_tuple(metric_dict(got->metric, m), got->value, std::move(tensors));
}

}  // namespace

void add_inspect_attribution(nb::module_& m) {
  m.def("inspect_attribution", &inspect_attribution, "model"_a, "ids"_a, "source"_a, "metric"_a);
  m.def("inspect_patching", &inspect_patching, "model"_a, "clean"_a, "corrupted"_a, "metric"_a, "what"_a,
        "listener"_a.none());
  m.def("inspect_gradients", &inspect_gradients, "model"_a, "names"_a, "ids"_a, "source"_a, "metric"_a,
        "limit"_a);
}

}  // namespace rapt::python
