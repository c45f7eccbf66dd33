// SPDX-License-Identifier: Apache-2.0
// rapt lab sink with options of its own: one training, how the sink grew, and maps of the attention.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/lab.h"
#include "rapt/base/clock.h"
#include "rapt/base/text.h"
#include "rapt/lab/toy.h"

namespace rapt::cli {
namespace {

std::string share_bar(double share) {
  std::string bar;
  for (int i = 0; i < 20; ++i) bar += i < static_cast<int>(std::lround(share * 20)) ? "█" : "·";
  return concat(bar, " ", fixed(share, 2));
}

Json numbers(const std::vector<double>& values) {
  Json::Array a;
  for (double v : values) a.emplace_back(v);
  return a;
}

Json looks_json(const std::vector<ToyLook>& looks) {
  Json::Array all;
  for (const ToyLook& l : looks)
    all.push_back(Json::Object{{"step", l.step},
                               {"loss", l.loss},
                               {"excess", l.excess},
                               {"idle", numbers(l.idle)},
                               {"trigger", numbers(l.trigger)},
                               {"value_ratio", numbers(l.value_ratio)},
                               {"largest", numbers(l.first_peak)}});
  return all;
}

}  // namespace

int lab_sink(const SinkOptions& o, const CommonArgs& common, Language language) {
  Device device({.threads = common.threads});
  note_threads(device, common);
  Toy toy{.name = "training",
          .recipe = toy_recipe(o.layers),
          .task = copy_task(o.seed),
          .seed = o.seed,
          .steps = o.steps,
          .looks = 8};
  if (o.gate) self_attn(toy.recipe).gate.push_back({});
  if (o.sigmoid) self_attn(toy.recipe).normal = Normal::sigmoid;
  Progress bar("training", common.quiet || common.json);
  const auto start = Clock::now();
  std::vector<Toy> toys = {toy};
  const std::vector<Trained> trained =
      train_toys({.device = device,
                  .seed = o.seed,
                  .progress = [&](std::string_view, double done, double of) { bar.step(done, of); }},
                 toys);
  bar.clear();
  const double seconds = seconds_since(start);
  const Trained& t = trained[0];
  if (common.json) {
    const Json all = Json::Object{{"experiment", "sink"},
                                  {"seed", static_cast<Dim>(o.seed)},
                                  {"parameters", t.model->parameters()},
                                  {"seconds", seconds},
                                  {"snapshots", looks_json(t.looks)}};
    print(all.dump() + "\n");
    return 0;
  }

  Document d;
  d.parts.push_back(Words{say(o.gate      ? "lab.sink.one.gated"
                              : o.sigmoid ? "lab.sink.one.sigmoid"
                                          : "lab.sink.one.training",
                              o.layers)});
  Table growth{.title = say("lab.sink.one.growth"), .columns = {say("lab.step"), say("lab.excess_loss")}};
  for (Dim l = 0; l < o.layers; ++l) growth.columns.push_back(say("lab.sink.one.layer", l));
  for (const ToyLook& look : t.looks) {
    std::vector<Cell> row = {Cell(static_cast<double>(look.step), 0), Cell(look.excess)};
    for (double share : look.idle) row.push_back(share_bar(share));
    growth.rows.push_back(std::move(row));
  }
  d.parts.push_back(std::move(growth));
  for (int l = 0; l < o.layers; ++l)
    d.parts.push_back(
        attention_picture(device, *t.model, toy.task, toy.length, l, say("lab.sink.one.picture", l)));
  const ToyLook& end = t.end();
  Table last{.title = say("lab.sink.one.end"),
             .columns = {say("lab.layer"), say("lab.sink.one.idle"), say("lab.sink.one.trigger"),
                         say("lab.sink.one.value"), say("lab.sink.one.largest")}};
  for (std::size_t l = 0; l < end.idle.size(); ++l)
    last.rows.push_back({Cell(static_cast<double>(l), 0), Cell(end.idle[l]), Cell(end.trigger[l]),
                         Cell(end.value_ratio[l], 2), Cell(end.first_peak[l], 1)});
  d.parts.push_back(std::move(last));
  d.parts.push_back(
      Words{say("lab.sink.one.ran", with_commas(t.model->parameters()), o.steps, fixed(seconds, 0),
                device.kernels.isa, fixed(end.loss, 3), fixed(end.excess, 3))});
  d.parts.push_back(Words{say(most_of(end.idle) > 0.3 ? "lab.sink.one.sink" : "lab.sink.one.no_sink")});
  print(document_text(d, color_on_stdout(), columns_of_stdout(), language));
  return 0;
}

}  // namespace rapt::cli
