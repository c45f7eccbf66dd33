// SPDX-License-Identifier: Apache-2.0
// int8 activations: massive activations of the residual stream against outlier features of what matrices
// read, each planted, so that what the rounding loses can be told apart.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/loss.h"

namespace rapt {
namespace {

constexpr Dim kRows = 32;  // of a sequence
constexpr Dim kChannel = 0;  // where things are planted

enum class Grain { tensor, row, channel };
enum class Where { stream, input };  // the residual stream; what attention reads, after the norm

// Rounds to int8 with one step for the tensor, for each row or for each channel.
class Int8 {
 public:
  Int8(Taps& taps, Where where, Grain grain) {
    taps.edit(where == Where::stream ? site::resid_in : site::attn_in, [this, grain](const Tapped& t) {
      const Dim rows = t.value[0], C = t.value[1];
      std::vector<double> of_row(static_cast<std::size_t>(rows)), of_channel(static_cast<std::size_t>(C));
      for (Dim r = 0; r < rows; ++r)
        for (Dim c = 0; c < C; ++c) {
          const double x = std::abs(t.value.at(r * C + c));
          double &a = of_row[static_cast<std::size_t>(r)], &b = of_channel[static_cast<std::size_t>(c)];
          a = std::max(a, x), b = std::max(b, x);
        }
      const double most = most_of(of_row);
      for (Dim r = 0; r < rows; ++r)
        for (Dim c = 0; c < C; ++c) {
          const double covers = grain == Grain::tensor ? most
                                : grain == Grain::row  ? of_row[static_cast<std::size_t>(r)]
                                                       : of_channel[static_cast<std::size_t>(c)];
          if (!(covers > 0)) continue;
          const double step = covers / 127, x = t.value.at(r * C + c), y = std::nearbyint(x / step) * step;
          t.value.set(r * C + c, y);
          if (r % kRows == 0 || c == kChannel) continue;
          error_ += (x - y) * (x - y);
          size_ += x * x;
        }
    });
  }
  // Of the tokens after the first and the channels in which nothing was planted, as a share of their size.
  double error() const { return size_ > 0 ? std::sqrt(error_ / size_) : 0; }

 private:
  double error_ = 0, size_ = 0;
};

// The largest magnitude over the median, of the layer where that is most.
double peak_over_median(Device& device, const Model& model, const CopyTask::Batch& data, Where where) {
  double most = 0;
  Taps taps;
  taps.see(where == Where::stream ? site::resid_in : site::attn_in, [&](const Tapped& t) {
    std::vector<double> all;
    for (Dim i = 0; i < t.value.elements(); ++i) all.push_back(std::abs(t.value.at(i)));
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    const double median = *middle;
    if (median > 0) most = std::max(most, most_of(all) / median);
  });
  Run run(device);
  run.taps = &taps;
  forward(run, model, toy_batch(data, kRows));
  return most;
}

double loss_of(Device& device, const Model& model, const CopyTask::Batch& data, Taps* taps = nullptr) {
  Run run(device);
  run.taps = taps;
  return cross_entropy(run, forward(run, model, toy_batch(data, kRows)), data.targets).mean.at(0);
}

struct Lost {
  double error = 0, loss = 0;  // relative error; nats added
};
struct Rounded {
  Text name;
  double stream = 0, input = 0;  // peak over median
  double loss = 0;  // without rounding
  Lost stream_tensor, stream_row, input_tensor, input_row, input_channel;
};
Rounded round_all(Device& device, const Model& model, const CopyTask::Batch& data, Text name) {
  Rounded out{.name = std::move(name),
              .stream = peak_over_median(device, model, data, Where::stream),
              .input = peak_over_median(device, model, data, Where::input),
              .loss = loss_of(device, model, data)};
  auto lost = [&](Where where, Grain grain) {
    Taps taps;
    const Int8 rounding(taps, where, grain);
    const double loss = loss_of(device, model, data, &taps);
    return Lost{rounding.error(), loss - out.loss};
  };
  out.stream_tensor = lost(Where::stream, Grain::tensor);
  out.stream_row = lost(Where::stream, Grain::row);
  out.input_tensor = lost(Where::input, Grain::tensor);
  out.input_row = lost(Where::input, Grain::row);
  out.input_channel = lost(Where::input, Grain::channel);
  return out;
}

// An outlier feature of that size in what every attention reads: the norm's gain of one channel times the
// factor, its column in the matrices divided by it. The function stays the same.
std::unique_ptr<Model> with_outlier(const Model& from, double factor) {
  std::unique_ptr<Model> to = with_weights(from, from.recipe);
  for (Weight& w : to->weights) {
    if (w.name.find(".self.") == std::string::npos) continue;
    if (w.name.ends_with("norm_in.weight")) w.set(0, kChannel, w.get(0, kChannel) * factor);
    else if (!w.name.ends_with(".o.weight") && w.cols == from.recipe.width)
      for (Dim r = 0; r < w.rows; ++r) w.set(r, kChannel, w.get(r, kChannel) / factor);
  }
  return to;
}

// A massive activation of that size: the vector of the token that begins, in one channel.
std::unique_ptr<Model> with_massive(const Model& from, double size) {
  std::unique_ptr<Model> to = with_weights(from, from.recipe);
  for (Weight& w : to->weights)
    if (w.name == "embed.tokens") w.set(CopyTask::kBegin, kChannel, size);
  return to;
}

std::string nats(double x) { return digits(std::abs(x) < 5e-5 ? 0 : x, 4); }

}  // namespace

LabResult quant(const Lab& lab) {
  constexpr double kMassive = 1000, kOutlier = 64;
  const ToyTask task = copy_task(lab.seed);
  auto toy = [&](Text name, double plant) {
    return Toy{
        .name = std::move(name), .recipe = toy_recipe(), .task = task, .seed = lab.seed, .plant = plant};
  };
  const std::vector<Trained> runs =
      train_toys(lab, {toy("softmax", 0), toy(say("lab.quant.n.planted"), kMassive)});
  const CopyTask::Batch data = task(~std::uint64_t{2}, scaled_batch(lab, 128), kRows);

  LabResult out;
  Table table{
      .title = say("lab.quant.table"),
      .columns = {say("lab.quant.model"), say("lab.quant.stream_ratio"), say("lab.quant.input_ratio"),
                  say("lab.quant.unrounded"), say("lab.quant.stream_tensor"), say("lab.quant.stream_row"),
                  say("lab.quant.input_tensor"), say("lab.quant.input_row"), say("lab.quant.input_channel")}};
  Chart chart{.title = say("lab.quant.chart"),
              .x_label = say("lab.quant.size_axis"),
              .y_label = say("lab.quant.error_axis"),
              .log_y = true};
  for (const char* key : {"lab.quant.c.massive_stream", "lab.quant.c.massive_input",
                          "lab.quant.c.outlier_row", "lab.quant.c.outlier_channel"})
    chart.curves.push_back({.name = say(key)});
  auto put = [&](std::size_t curve, double ratio, double error) {
    chart.curves[curve].x.push_back(std::log10(ratio));
    chart.curves[curve].y.push_back(100 * error);
  };
  auto show = [&](const Rounded& r) {
    std::vector<Cell> row = {r.name, Cell(r.stream, 0), Cell(r.input, 0), Cell(r.loss, 4)};
    for (const Lost& l : {r.stream_tensor, r.stream_row, r.input_tensor, r.input_row, r.input_channel})
      row.push_back(concat(digits(100 * l.error, 2), "% / ", nats(l.loss)));
    table.rows.push_back(std::move(row));
  };
  const Rounded plain = round_all(lab.device, *runs[0].model, data, "softmax");
  show(plain);
  Rounded massive, outlier;
  for (double size : {10.0, 100.0, kMassive, 10000.0}) {
    const Rounded r = round_all(lab.device, *with_massive(*runs[1].model, size), data,
                                say("lab.quant.n.massive", digits(size, 0)));
    show(r);
    put(0, r.stream, r.stream_tensor.error);
    put(1, r.stream, r.input_tensor.error);
    if (size == kMassive) massive = r;
  }
  for (double factor : {4.0, 16.0, kOutlier, 256.0, 1024.0}) {
    const Rounded r = round_all(lab.device, *with_outlier(*runs[0].model, factor), data,
                                say("lab.quant.n.outlier", digits(factor, 0)));
    show(r);
    put(2, r.input, r.input_row.error);
    put(3, r.input, r.input_channel.error);
    if (factor == kOutlier) outlier = r;
  }
  out.document.parts = {toy_words(), chart, table};

  const double stream = massive.stream_tensor.error / plain.stream_tensor.error,
               stream_row = massive.stream_row.error / plain.stream_row.error,
               input = massive.input_tensor.error / plain.input_tensor.error,
               by_row = outlier.input_row.error / plain.input_row.error,
               by_channel = outlier.input_channel.error / plain.input_channel.error;
  out.findings = {
      below(say("lab.quant.f.same"), std::abs(outlier.loss - plain.loss), 1e-4, "nats"),
      above(say("lab.quant.f.criterion"), massive.stream, 1000, "x", say("lab.massive.p.criterion"), false),
      above(say("lab.quant.f.massive_stream"), stream, 10, "x"),
      between(say("lab.quant.f.massive_stream_row"), stream_row, 0.5, 2, "x"),
      between(say("lab.quant.f.massive_input"), input, 0.5, 3, "x"),
      between(say("lab.quant.f.outlier_stream"), outlier.stream / plain.stream, 0.99, 1.01, "x"),
      above(say("lab.quant.f.outlier_row"), by_row, 5, "x", say("lab.quant.p.outlier")),
      between(say("lab.quant.f.outlier_channel"), by_channel, 0.9, 1.1, "x"),
      above(say("lab.quant.f.outlier_loss"), outlier.input_row.loss - plain.input_row.loss, 0.001, "nats", "",
            false),
      below(say("lab.quant.f.massive_loss"), massive.input_tensor.loss, 0.001, "nats", "", false),
  };
  out.verdict = sentences(
      {say("lab.quant.v.plain", digits(100 * plain.input_tensor.error, 2), nats(plain.input_tensor.loss)),
       say(stream > 3 ? "lab.quant.v.stream" : "lab.quant.v.stream_not", digits(massive.stream, 0),
           digits(stream, 1), digits(massive.stream_tensor.loss, 3)),
       say(input < 3 ? "lab.quant.v.input_not" : "lab.quant.v.input", digits(input, 2),
           nats(massive.input_tensor.loss)),
       say(by_row > 3 ? "lab.quant.v.outlier" : "lab.quant.v.outlier_not", digits(kOutlier, 0),
           digits(by_row, 1), nats(outlier.input_row.loss), digits(outlier.stream, 0)),
       say(by_channel < 1.1 ? "lab.quant.v.channel" : "lab.quant.v.channel_not", digits(by_channel, 2)),
       say(input < 3 && by_row > 3 ? "lab.quant.v.enemy" : "lab.quant.v.enemy_open"),
       say("lab.quant.v.ask")});
  return out;
}

}  // namespace rapt
