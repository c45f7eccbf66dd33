// SPDX-License-Identifier: Apache-2.0
// rapt lab gate MODEL: how far the gates on attention are open, layer by layer, with sink and largest
// activation beside, and what the model is when its gates no longer look at the token.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/gates.h"
#include "rapt/inspect/massive.h"
#include "rapt/lab/real.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr GateRecipe::At kPlaces[] = {GateRecipe::At::sdpa, GateRecipe::At::q, GateRecipe::At::k,
                                      GateRecipe::At::v, GateRecipe::At::out};

// Before its activation a gate becomes its mean over the tokens: the same for every one of them.
void same_for_all_tokens(Taps& taps) {
  for (const GateRecipe::At at : kPlaces)
    taps.edit(site::gate_in(at), [](const Tapped& t) {
      const Dim rows = t.value[0], width = t.value.elements() / rows;
      for (Dim c = 0; c < width; ++c) {
        double mean = 0;
        for (Dim r = 0; r < rows; ++r) mean += t.value.at(r * width + c) / static_cast<double>(rows);
        for (Dim r = 0; r < rows; ++r) t.value.set(r * width + c, mean);
      }
    });
}

struct GateLayers {
  std::vector<double> mean, closed, least;  // least: mean of the head that is least open
};

}  // namespace

LabResult real_gate(const Lab& lab, const RealSubject& s) {
  const Checkpoint checkpoint = s.open({});
  const Model& model = predictor(checkpoint, s);
  const auto progress = [&](std::string_view what, double done) {
    if (lab.progress) lab.progress(what, done, 4);
  };
  progress("gates", 0);
  const std::vector<TokenIds> windows =
      framed_pieces(s, s.prose, 256, std::max<Dim>(2, (s.tokens > 0 ? s.tokens : 1024) / 256));
  const std::vector<GateStats> all = gates(lab.device, model, windows[0]);
  const auto depth = static_cast<std::size_t>(model.decoder->depth());
  GateLayers g;
  g.mean.resize(depth), g.closed.resize(depth), g.least.assign(depth, NAN);
  std::vector<double> values(depth);
  double mean = 0, closed = 0, count = 0;
  bool constant = true;
  for (const GateStats& one : all) {
    const auto l = static_cast<std::size_t>(one.layer);
    const auto n = static_cast<double>(one.values);
    g.mean[l] += one.mean * n, g.closed[l] += one.closed * n, values[l] += n;
    g.least[l] = std::isnan(g.least[l]) ? one.mean : std::min(g.least[l], one.mean);
    mean += one.mean * n, closed += one.closed * n, count += n;
    constant = constant && one.constant;
  }
  mean /= count, closed /= count;
  for (std::size_t l = 0; l < depth; ++l)
    for (std::vector<double>* v : {&g.mean, &g.closed}) (*v)[l] = values[l] > 0 ? (*v)[l] / values[l] : NAN;
  progress("sink", 1);
  const std::vector<double> sink = first_weights(lab, model, std::span(windows).first(2));
  progress("massive", 2);
  const Massive m = massive(lab.device, model, windows[0]).front();
  std::vector<double> peak;
  for (int r = 1; r < m.rows; ++r) {
    const auto first = m.largest.begin() + static_cast<std::ptrdiff_t>(r) * m.tokens;
    peak.push_back(static_cast<double>(*std::max_element(first, first + m.tokens)));
  }
  progress("loss", 3);
  const double plain = mean_loss(lab, model, windows),
               fixed_loss =
                   mean_loss(lab, model, windows, [](std::size_t, Taps& taps) { same_for_all_tokens(taps); });

  Chart chart{.title = say("lab.real-gate.c.layers", s.name),
              .x_label = say("lab.layer"),
              .y_label = say("lab.real-gate.c.share"),
              .curves = {by_layer(say("lab.real-gate.c.mean"), g.mean),
                         by_layer(say("lab.real-gate.c.closed"), g.closed),
                         by_layer(say("lab.real.first_weight"), sink)},
              .share = true};
  Chart peaks{.title = say("lab.real-gate.c.peaks"),
              .x_label = say("lab.layer"),
              .y_label = "|x|",
              .curves = {by_layer(say("lab.real-gate.c.largest"), peak),
                         by_layer(say("lab.real-massive.c.median"),
                                  std::vector<double>(m.median.begin() + 1, m.median.end()))},
              .log_y = true};
  Table table{.title = say("lab.real-gate.t.layers"),
              .columns = {say("lab.layer"), say("lab.real-gate.c.mean"), say("lab.real-gate.c.closed"),
                          say("lab.real-gate.t.least"), say("lab.real.first_weight"),
                          say("lab.real-gate.c.largest")}};
  for (std::size_t l = 0; l < depth; ++l)
    table.rows.push_back({Cell(static_cast<double>(l), 0), Cell(g.mean[l]), Cell(g.closed[l]),
                          Cell(g.least[l]), Cell(sink[l]), Cell(peak[l], 1)});

  const double weight = mean_of(sink), cost = fixed_loss - plain;
  LabResult out;
  out.findings = {
      below(say("lab.real-gate.f.mean"), mean, 0.5, "", say("lab.real-gate.p.mean"), false),
      above(say("lab.real-gate.f.closed"), 100 * closed, 10, "%", "", false),
      below(say("lab.real-gate.f.sink"), weight, 0.3, "", say("lab.real-gate.p.sink"), false),
      below(say("lab.real-gate.f.peak"), mean_of(peak), 100, "", say("lab.real-gate.p.peak"), false),
      above(say("lab.real-gate.f.fixed"), cost, 0.01, "nats", "", false),
  };
  out.verdict = sentences(
      {mean < 0.5 && closed > 0.1 ? say("lab.real-gate.v.sparse", digits(mean, 3), digits(100 * closed, 1))
                                  : say("lab.real-gate.v.open", digits(mean, 3), digits(100 * closed, 1)),
       weight < 0.3 ? say("lab.real-gate.v.no_sink", digits(weight, 3))
                    : say("lab.real-gate.v.sink", digits(weight, 3)),
       m.found ? say("lab.real-gate.v.massive", thousands(most_of(peak)))
               : say("lab.real-gate.v.not_massive", thousands(most_of(peak))),
       constant      ? say("lab.real-gate.v.constant")
       : cost > 0.01 ? say("lab.real-gate.v.looks", digits(plain, 3), digits(fixed_loss, 3))
                     : say("lab.real-gate.v.does_not_look", digits(plain, 3), digits(fixed_loss, 3))});
  out.document.parts = {model_words(s, model), chart, table, peaks};
  return out;
}

}  // namespace rapt
