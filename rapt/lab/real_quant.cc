// SPDX-License-Identifier: Apache-2.0
// rapt lab quant MODEL: what int8 activations cost, with one step for a tensor or one for each token, and who
// is to blame: massive activations (a token or two, huge) or outlier features (channels, large at many
// tokens).
#include <algorithm>
#include <array>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/massive.h"
#include "rapt/inspect/outliers.h"
#include "rapt/lab/real.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kWindow = 256;
constexpr double kOutlier = 6;  // LLM.int8: columns with a number of this size stay as they are

// What linear layers read.
constexpr std::array kInputs = {site::attn_in, site::z, site::ffn_in, site::ffn_hidden};
constexpr const char* kInputNames[] = {"attn_in", "z", "ffn_in", "ffn_hidden"};

struct Rounding {
  bool per_token = false;  // a step for each row; else one for the whole tensor
  bool columns_apart = false;  // columns with |x| >= 6 are not rounded, and no step covers them
  bool rows_apart = false;  // the same of rows whose residual stream holds massive activations
  bool residual = false;  // of the residual stream before every part, instead of what linear layers read
  int only = -1;  // of this one of kInputs
};

struct RoundingLayer {
  double error = 0, size = 0;  // squares, of rows without massive activations
  double largest_massive = 0, largest_others = 0;  // |x|
  double relative() const { return size > 0 ? std::sqrt(error / size) : std::nan(""); }
};

// Rounds x [T,C] to multiples of largest / 127.
template <class Real>
void round_rows(std::span<Real> x, std::size_t width, const Rounding& how, const std::vector<bool>& massive,
                RoundingLayer& seen) {
  const std::size_t rows = x.size() / width;
  std::vector<bool> apart(width);
  const auto row_apart = [&](std::size_t r) { return how.rows_apart && r < massive.size() && massive[r]; };
  if (how.columns_apart)
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!row_apart(i / width) && std::abs(static_cast<double>(x[i])) >= kOutlier) apart[i % width] = true;
  std::vector<double> most(rows);
  double most_of_all = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    double any = 0;
    for (std::size_t c = 0; c < width; ++c) {
      const double size = std::abs(static_cast<double>(x[r * width + c]));
      any = std::max(any, size);
      if (!apart[c]) most[r] = std::max(most[r], size);
    }
    double& largest = r < massive.size() && massive[r] ? seen.largest_massive : seen.largest_others;
    largest = std::max(largest, any);
    if (!row_apart(r)) most_of_all = std::max(most_of_all, most[r]);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const double step = (how.per_token ? most[r] : most_of_all) / 127;
    const bool counted = !(r < massive.size() && massive[r]);
    for (std::size_t c = 0; c < width; ++c) {
      Real& at = x[r * width + c];
      const auto v = static_cast<double>(at);
      if (counted) seen.size += v * v;
      if (apart[c] || row_apart(r) || !(step > 0)) continue;
      const double y = std::nearbyint(v / step) * step;
      at = static_cast<Real>(y);
      if (counted) seen.error += (v - y) * (v - y);
    }
  }
}

struct Rounded {
  double loss = 0;
  std::vector<RoundingLayer> layers;
};

Rounded rounded_loss(const Lab& lab, const Model& model, std::span<const TokenIds> windows,
                     const std::vector<std::vector<bool>>& massive, const Rounding& how) {
  Rounded out;
  out.layers.resize(static_cast<std::size_t>(model.decoder->depth()));
  out.loss = mean_loss(lab, model, windows, [&](std::size_t w, Taps& taps) {
    const auto round = [&, w](const Tapped& t) {
      const auto width = static_cast<std::size_t>(t.value.elements() / t.value[0]);
      RoundingLayer& layer = out.layers[static_cast<std::size_t>(t.layer)];
      if (t.value.dtype == DType::f64) round_rows(t.value.as<double>(), width, how, massive[w], layer);
      else round_rows(t.value.as<float>(), width, how, massive[w], layer);
    };
    if (how.residual) taps.edit(site::resid_in, round);
    for (std::size_t i = 0; i < kInputs.size() && !how.residual; ++i)
      if (how.only < 0 || how.only == static_cast<int>(i)) taps.edit(kInputs[i], round);
  });
  return out;
}

// Rows of a window whose residual stream holds a massive activation after some layer.
std::vector<bool> massive_rows(const Lab& lab, const Model& model, const TokenIds& ids) {
  std::vector<bool> rows(ids.size());
  for (const Massive& m : massive(lab.device, model, ids, {}, {.top = 16}))
    for (const Activation& a : m.top)
      if (a.row > 0 && a.massive) rows[static_cast<std::size_t>(a.token)] = true;
  return rows;
}

Curve error_curve(Text name, const Rounded& r) {
  std::vector<double> percent;
  for (const RoundingLayer& l : r.layers) percent.push_back(100 * l.relative());
  return by_layer(std::move(name), percent);
}

}  // namespace

LabResult real_quant(const Lab& lab, const RealSubject& s) {
  Checkpoint checkpoint = open_numbers(s);
  const Model& model = *checkpoint.model;
  const bool numbers = model.parameters() <= kMostNumbers;
  const std::vector<TokenIds> windows =
      framed_pieces(s, s.prose, kWindow, std::max<Dim>(2, (s.tokens > 0 ? s.tokens : 1024) / kWindow));
  Dim predicted = 0;
  for (const TokenIds& w : windows) predicted += static_cast<Dim>(w.size()) - 1;
  double done = 0;
  const auto progress = [&](std::string_view what) {
    if (lab.progress) lab.progress(what, done++, 15);
  };

  progress("massive, outliers");
  std::vector<std::vector<bool>> massive;
  Dim massive_tokens = 0;
  for (const TokenIds& w : windows) {
    massive.push_back(massive_rows(lab, model, w));
    massive_tokens += std::count(massive.back().begin(), massive.back().end(), true);
  }
  const Outliers found = outliers(lab.device, model, windows[0]).front();

  progress("plain");
  const double plain = mean_loss(lab, model, windows);
  Table table{.title = say("lab.real-quant.t.loss", predicted),
              .columns = {say("lab.real-quant.t.what"), say("lab.real.perplexity"), say("lab.real.change"),
                          say("lab.real.nats_added"), say("lab.real-quant.t.error")}};
  const auto add_row = [&](const Text& what, double loss, double error) {
    table.rows.push_back({what, thousands(std::exp(loss)), change_text(std::exp(loss), std::exp(plain)),
                          Cell(loss - plain, 4), Cell(100 * error, 2)});
  };
  const auto rounded = [&](const char* what, const Rounding& how) {
    progress(what);
    Rounded r = rounded_loss(lab, model, windows, massive, how);
    RoundingLayer all;
    for (const RoundingLayer& l : r.layers) all.error += l.error, all.size += l.size;
    add_row(say(concat("lab.real-quant.t.", what)), r.loss, all.relative());
    return r;
  };
  add_row(say(numbers ? "lab.real-quant.t.plain" : "lab.real-quant.t.plain_stored"), plain, std::nan(""));
  const Rounded tensor = rounded("tensor", {}), tensor_rows = rounded("tensor_rows", {.rows_apart = true}),
                tensor_columns = rounded("tensor_columns", {.columns_apart = true}),
                tensor_both = rounded("tensor_both", {.columns_apart = true, .rows_apart = true}),
                token = rounded("token", {.per_token = true}),
                token_columns = rounded("token_columns", {.per_token = true, .columns_apart = true}),
                residual = rounded("residual", {.residual = true});
  std::size_t worst = 0;
  double worst_loss = 0;
  for (std::size_t i = 0; i < kInputs.size(); ++i) {
    const Rounded only = rounded(concat("only_", kInputNames[i]).c_str(), {.only = static_cast<int>(i)});
    if (i == 0 || only.loss > worst_loss) worst = i, worst_loss = only.loss;
  }
  const Words model_of = model_words(s, model);
  checkpoint = {};  // one model in memory at a time
  double weights[2] = {};
  for (const auto& [i, type] : {std::pair<std::size_t, DType>{0, DType::q8_0}, {1, DType::q4_0}}) {
    progress(info_of(type).name);
    const Checkpoint blocks = s.open(type);
    weights[i] = mean_loss(lab, *blocks.model, windows);
    add_row(say(concat("lab.real-quant.t.weights_", info_of(type).name)), weights[i], std::nan(""));
  }

  Chart errors{.title = say("lab.real-quant.c.errors"),
               .x_label = say("lab.layer"),
               .y_label = say("lab.real-quant.c.percent"),
               .curves = {error_curve(say("lab.real-quant.t.tensor"), tensor),
                          error_curve(say("lab.real-quant.t.tensor_rows"), tensor_rows),
                          error_curve(say("lab.real-quant.t.tensor_columns"), tensor_columns),
                          error_curve(say("lab.real-quant.t.token"), token)},
               .log_y = true};
  Chart largest{.title = say("lab.real-quant.c.largest"),
                .x_label = say("lab.layer"),
                .y_label = say("lab.real-quant.c.size"),
                .log_y = true};
  std::vector<double> of_massive, of_others;
  for (const RoundingLayer& l : tensor.layers) {
    of_massive.push_back(l.largest_massive);
    of_others.push_back(l.largest_others);
  }
  if (massive_tokens > 0) largest.curves.push_back(by_layer(say("lab.real-quant.c.massive"), of_massive));
  largest.curves.push_back(by_layer(say("lab.real-quant.c.others"), of_others));

  // Who did it: the share of what one step costs that goes away.
  const double cost = tensor.loss - plain, per_token = token.loss - plain;
  const double by_rows = (tensor.loss - tensor_rows.loss) / cost,
               by_columns = (tensor.loss - tensor_columns.loss) / cost,
               by_both = (tensor.loss - tensor_both.loss) / cost;
  LabResult out;
  out.findings = {
      above(say("lab.real-quant.f.tensor"), cost, 0.1, "nats", "", false),
      below(say("lab.real-quant.f.token"), per_token, 0.1, "nats", say("lab.real-quant.p.token"), false),
      above(say("lab.real-quant.f.rows"), 100 * by_rows, 50, "%", say("lab.real-quant.p.massive"), false),
      above(say("lab.real-quant.f.columns"), 100 * by_columns, 50, "%", say("lab.real-quant.p.outliers"),
            false),
      below(say("lab.real-quant.f.q8"), weights[0] - plain, 0.02, "nats"),
      above(say("lab.real-quant.f.q4"), weights[1] - weights[0], 0, "nats"),
  };
  std::vector<Text> v;
  v.push_back(cost > 0.05 ? say("lab.real-quant.v.tensor", thousands(std::exp(plain)),
                                thousands(std::exp(tensor.loss)), digits(cost, 3))
                          : say("lab.real-quant.v.harmless", thousands(std::exp(plain)),
                                thousands(std::exp(tensor.loss)), digits(cost, 3)));
  if (cost > 0.05) {
    const auto percent = [](double x) { return digits(100 * x, 0); };
    v.push_back(say(by_rows > 0.5 && by_columns > 0.5 ? "lab.real-quant.v.either"
                    : by_rows > 0.5                   ? "lab.real-quant.v.massive"
                    : by_columns > 0.5                ? "lab.real-quant.v.outliers"
                    : by_both > 0.5                   ? "lab.real-quant.v.only_both"
                                                      : "lab.real-quant.v.nobody",
                    massive_tokens, percent(by_rows), percent(by_columns), percent(by_both)));
    v.push_back(say("lab.real-quant.v.worst", say(concat("lab.real-quant.in.", kInputNames[worst])),
                    digits(worst_loss - plain, 3)));
  }
  v.push_back(per_token < 0.1 * cost || per_token < 0.02
                  ? say("lab.real-quant.v.token", digits(per_token, 3), thousands(std::exp(token.loss)))
                  : say("lab.real-quant.v.token_too", digits(per_token, 3), thousands(std::exp(token.loss)),
                        digits(token_columns.loss - plain, 3)));
  v.push_back(say("lab.real-quant.v.residual", thousands(std::exp(residual.loss))));
  v.push_back(found.features.empty()
                  ? say("lab.real-quant.v.no_features")
                  : say("lab.real-quant.v.features", static_cast<Dim>(found.features.size()), found.width));
  v.push_back(say("lab.real-quant.v.weights", digits(weights[0] - plain, 3), digits(weights[1] - plain, 3)));
  out.verdict = sentences(std::move(v));
  out.document.parts = {model_of, errors, table, largest, Words{say("lab.real-quant.how")}};
  return out;
}

}  // namespace rapt
