// SPDX-License-Identifier: Apache-2.0
#include "rapt/lab/sink.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "rapt/inspect/sinks.h"
#include "rapt/lab/copy_task.h"
#include "rapt/nn/model.h"
#include "rapt/ops/loss.h"
#include "rapt/use/optimizer.h"

namespace rapt {

Recipe sink_recipe(const SinkOptions& o) {
  AttnRecipe attn{.heads = 1};
  attn.pos.kind = PosRecipe::Kind::rope;
  if (o.gate) attn.gate.push_back({});
  if (o.sigmoid) attn.normal = Normal::sigmoid;
  const NormRecipe rms{};
  Recipe r;
  r.name = "backcopy";
  r.width = 48;
  r.vocab = CopyTask::kVocab;
  r.context = o.length;
  r.init.std = 0.083;  // 1 / sqrt(3 * 48)
  LayerRecipe layer;
  layer.parts.push_back({.kind = PartRecipe::Kind::self, .norm_in = rms, .attn = attn});
  layer.parts.push_back({.kind = PartRecipe::Kind::ffn, .norm_in = rms, .ffn = {.width = 4 * r.width}});
  r.decoder = StackRecipe{.layers = o.layers, .kinds = {{"L", layer}}, .final_norm = rms};
  return resolve(r);
}

namespace {

Batch as_batch(const CopyTask::Batch& data, Dim count, Dim length) {
  Batch b{.tokens = data.tokens};
  for (Dim n = 0; n < count; ++n) b.sequences.push_back({.first = n * length, .count = length, .id = static_cast<std::uint64_t>(n)});
  return b;
}

SinkSnapshot measure(Device& device, const Model& model, const CopyTask& task, const SinkOptions& o, int step) {
  constexpr Dim kSequences = 128;
  const CopyTask::Batch data = task.sample(~std::uint64_t{0} - 1, kSequences, o.length);
  Run run(device);
  Taps taps;
  run.taps = &taps;
  SinkMeter meter(taps, Stack::decoder, data.kind, 2);
  const Tensor logits = forward(run, model, as_batch(data, kSequences, o.length));
  SinkSnapshot s{.step = step};
  s.loss = cross_entropy(run, logits, data.targets).mean.at(0);
  double floor = 0;
  for (double f : data.floor) floor += f;
  s.excess = s.loss - floor / static_cast<double>(data.floor.size());
  for (int l = 0; l < meter.layers(); ++l) {
    s.idle.push_back(meter.first(l, 0));
    s.trigger.push_back(meter.first(l, 1));
    s.value_ratio.push_back(meter.value_ratio(l));
    s.largest.push_back(meter.largest_first(l));
  }
  return s;
}

}  // namespace

SinkReport run_sink(Device& device, const SinkOptions& o, const std::function<void(int, double)>& progress,
                    const std::function<void(const SinkSnapshot&)>& on_snapshot) {
  const auto start = std::chrono::steady_clock::now();
  const CopyTask task(o.seed);
  Model model(sink_recipe(o), device.real);
  init(model, o.seed);
  // Token embeddings start at unit size: with everything small the residual stream soon forgets which token it stands on, and what
  // forms then is a preference for similar tokens instead of a sink.
  Weight& tokens = model.weight("embed.tokens");
  for (Dim i = 0; i < tokens.size(); ++i)
    tokens.set(i / tokens.cols, i % tokens.cols, tokens.get(i / tokens.cols, i % tokens.cols) / model.recipe.init.std);
  Optimizer optimizer(model, {.rate = o.rate, .beta2 = 0.999, .decay = 0.01});
  const Schedule schedule{.warmup = 50, .total = o.steps};
  SinkReport report;
  report.parameters = model.parameters();
  auto snapshot = [&](int step) {
    report.snapshots.push_back(measure(device, model, task, o, step));
    if (on_snapshot) on_snapshot(report.snapshots.back());
  };
  snapshot(0);
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  run.training = true;
  for (int step = 0; step < o.steps; ++step) {
    run.reset();
    gradients.zero();
    run.random = {o.seed, static_cast<std::uint64_t>(step)};
    const CopyTask::Batch data = task.sample(static_cast<std::uint64_t>(step), o.batch, o.length);
    const Loss loss = cross_entropy(run, forward(run, model, as_batch(data, o.batch, o.length)), data.targets);
    const double value = loss.mean.at(0);
    backward(run, loss.mean);
    const double norm = optimizer.norm(device, gradients);
    if (!std::isfinite(norm)) fail("lab sink: the gradient is not finite at step ", step, "; try a lower --rate");
    optimizer.step(device, gradients, norm, schedule.at(step));
    progress(step + 1, value);
    if ((step + 1) % std::max(1, o.steps / 8) == 0 || step + 1 == o.steps) snapshot(step + 1);
  }

  Run look(device);
  Taps taps;
  look.taps = &taps;
  const CopyTask::Batch one = task.sample(~std::uint64_t{0} - 2, 1, o.length);
  report.tokens = one.tokens;
  const auto L = static_cast<std::size_t>(o.length);
  report.maps.assign(static_cast<std::size_t>(o.layers), std::vector<double>(L * L));
  taps.want_weights(
      [&](Stack, int, bool) {
        std::vector<Taps::HeadRow> rows;
        for (Dim r = 0; r < o.length; ++r) rows.push_back({0, r});
        return rows;
      },
      [&](const Tapped& t) {
        for (Dim c = 0; c < t.value.elements(); ++c)
          report.maps[static_cast<std::size_t>(t.layer)][static_cast<std::size_t>(t.row) * L + static_cast<std::size_t>(c)] = t.value.at(c);
      });
  forward(look, model, as_batch(one, 1, o.length));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string draw_maps(const SinkReport& report) {
  static constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
  const std::size_t L = report.tokens.size();
  std::string out = "     ";
  for (std::size_t l = 0; l < report.maps.size(); ++l) {
    const std::string title = "layer " + std::to_string(l);
    out += title + std::string(L + 3 > title.size() ? L + 3 - title.size() : 1, ' ');
  }
  out += "\n";
  for (std::size_t r = 0; r < L; ++r) {
    const std::int32_t token = report.tokens[r];
    const bool trigger = r > 1 && token < CopyTask::kTriggers;
    char label[16];
    std::snprintf(label, sizeof label, token == CopyTask::kBegin ? " BOS " : trigger ? "%3d* " : "%3d  ", token);
    out += label;
    for (const std::vector<double>& map : report.maps) {
      for (std::size_t c = 0; c < L; ++c)
        out += c > r ? " " : kShades[std::min<std::size_t>(4, static_cast<std::size_t>(map[r * L + c] * 5))];
      out += "   ";
    }
    out += "\n";
  }
  return out;
}

}  // namespace rapt
