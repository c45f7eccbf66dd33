// SPDX-License-Identifier: Apache-2.0
// In this order: tasks, models, what a look measures through taps, training, and words for the reports.
#include "rapt/lab/toy.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "rapt/base/rng.h"
#include "rapt/inspect/attention_map.h"
#include "rapt/lab/lab_text.h"
#include "rapt/ops/loss.h"
#include "rapt/use/optimizer.h"

namespace rapt {

// ------------------------------------------------------------------------------------------------ tasks
ToyTask copy_task(std::uint64_t seed, bool begin) {
  return [task = CopyTask(seed), begin](std::uint64_t step, Dim count, Dim length) {
    if (begin) return task.sample(step, count, length);
    const CopyTask::Batch whole = task.sample(step, count, length + 1);
    CopyTask::Batch out;
    for (Dim n = 0; n < count; ++n)
      for (Dim t = 1; t <= length; ++t) {
        const auto at = static_cast<std::size_t>(n * (length + 1) + t);
        out.tokens.push_back(whole.tokens[at]);
        out.targets.push_back(whole.targets[at]);
        out.floor.push_back(whole.floor[at]);
        out.kind.push_back(t == 1 ? -1 : whole.kind[at]);
      }
    return out;
  };
}

ToyTask lookup_task(std::uint64_t seed, int asked) {
  return [key = mix_key(seed, 0x100C), asked](std::uint64_t step, Dim count, Dim length) {
    constexpr std::int32_t kKeys = 8, kValues = 8;
    CopyTask::Batch out;
    for (Dim n = 0; n < count; ++n) {
      const std::uint64_t own = mix_key(mix_key(key, step + 1), static_cast<std::uint64_t>(n));
      auto draw = [&](std::uint32_t below_this, Dim at, std::uint64_t use) {
        return static_cast<std::int32_t>(random_below(below_this, own, static_cast<std::uint64_t>(at), use));
      };
      std::vector<std::int32_t> shown;  // keys, in the order they were shown
      for (Dim t = 0; t < length; ++t) {
        const bool question = static_cast<int>(shown.size()) >= 3 && draw(2, t, 1) == 0;
        auto value = [&](std::int32_t k) { return draw(kValues, k, 2); };
        if (question) {
          auto some = [&](std::uint64_t use) {
            return shown[static_cast<std::size_t>(draw(static_cast<std::uint32_t>(shown.size()), t, use))];
          };
          const std::int32_t a = some(3), b = asked == 2 ? some(4) : a;
          out.tokens.push_back(kKeys * kValues + a * kKeys + b);
          out.targets.push_back(asked == 2 ? value(a) * kValues + value(b) : value(a));
        } else {
          const std::int32_t k = draw(kKeys, t, 5);
          if (std::find(shown.begin(), shown.end(), k) == shown.end()) shown.push_back(k);
          out.tokens.push_back(k * kValues + value(k));
          out.targets.push_back(-1);
        }
        out.floor.push_back(0);
        out.kind.push_back(t == 0 ? -1 : question);
      }
    }
    return out;
  };
}

ToyTask delay_task(std::uint64_t seed, Dim delay) {
  return [key = mix_key(seed, 0xDE1A), delay](std::uint64_t step, Dim count, Dim length) {
    CopyTask::Batch out;
    for (Dim n = 0; n < count; ++n) {
      const std::uint64_t own = mix_key(mix_key(key, step + 1), static_cast<std::uint64_t>(n));
      for (Dim t = 0; t < length; ++t) {
        out.tokens.push_back(
            static_cast<std::int32_t>(random_below(kDelayVocab, own, static_cast<std::uint64_t>(t))));
        out.targets.push_back(
            t < delay ? -1 : out.tokens[out.tokens.size() - 1 - static_cast<std::size_t>(delay)]);
        out.floor.push_back(0);
        out.kind.push_back(t == 0 ? -1 : t >= delay);
      }
    }
    return out;
  };
}

TextTask text_task(const Lab& lab, bool begin, Dim characters) {
  std::string_view text = lab.text.empty() ? lab_texts()[0].text : std::string_view(lab.text);
  if (characters > 0) text = text.substr(0, static_cast<std::size_t>(characters));
  std::array<std::int32_t, 256> id;
  id.fill(-1);
  std::int32_t known = 0;
  std::vector<std::int32_t> ids;
  for (const char c : text) {
    std::int32_t& i = id[static_cast<unsigned char>(c)];
    if (i < 0) i = known++;
    ids.push_back(i);
  }
  const auto all = static_cast<Dim>(ids.size()), learned = all - all / 10;
  auto sample = [key = mix_key(lab.seed, 0x7E87), ids = std::move(ids), learned, all, begin, known](
                    std::uint64_t step, Dim count, Dim length) {
    const bool look = step >> 63;
    const Dim first = look ? learned : 0, last = look ? all : learned, own = begin ? length - 1 : length;
    if (last - first <= own)
      fail("the text has ", all, " bytes; windows of ", length, " want at least ", 20 * length);
    CopyTask::Batch out;
    for (Dim n = 0; n < count; ++n) {
      const Dim at = first + static_cast<Dim>(random_below(static_cast<std::uint32_t>(last - first - own),
                                                           mix_key(look ? 0 : key, step),
                                                           static_cast<std::uint64_t>(n)));
      if (begin) {
        out.tokens.push_back(known), out.targets.push_back(-1);
        out.floor.push_back(0), out.kind.push_back(-1);
      }
      for (Dim t = at; t < at + own; ++t) {
        out.tokens.push_back(ids[static_cast<std::size_t>(t)]);
        out.targets.push_back(ids[static_cast<std::size_t>(t) + 1]);
        out.floor.push_back(0);
        out.kind.push_back(t == at && !begin ? -1 : 0);
      }
    }
    return out;
  };
  return {.vocab = known + begin, .task = std::move(sample)};
}

// ------------------------------------------------------------------------------------------------ models
Recipe toy_recipe(Dim layers, Dim heads, Dim vocab) {
  AttnRecipe attn{.heads = heads};
  attn.pos.kind = PosRecipe::Kind::rope;
  const NormRecipe rms{};
  Recipe r;
  r.name = "toy";
  r.width = 48;
  r.vocab = vocab;
  r.context = 32;
  r.init.std = 0.083;  // 1 / sqrt(3 * 48)
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = rms, .body = attn});
  r.decoder = StackRecipe{.layers = layers, .kinds = {{"L", layer}}, .final_norm = rms};
  return r;
}

Recipe with_ffn(Recipe recipe, Dim width) {
  recipe.decoder->kinds.at("L").parts.push_back({.norm_in = NormRecipe{}, .body = FfnRecipe{.width = width}});
  return recipe;
}

AttnRecipe& self_attn(Recipe& recipe) { return *recipe.decoder->kinds.at("L").parts.at(0).self(); }
FfnRecipe& ffn_of(Recipe& recipe) { return *recipe.decoder->kinds.at("L").parts.at(1).ffn(); }

void set_norms(Recipe& recipe, const NormRecipe& norm) {
  for (PartRecipe& p : recipe.decoder->kinds.at("L").parts) p.norm_in = norm;
  recipe.decoder->final_norm = norm;
}

Batch toy_batch(const CopyTask::Batch& data, Dim length) {
  Batch b{.tokens = data.tokens};
  const auto rows = static_cast<Dim>(data.tokens.size());
  for (Dim first = 0; first < rows; first += length)
    b.sequences.push_back(
        {.first = first, .count = length, .id = static_cast<std::uint64_t>(first / length)});
  return b;
}

std::unique_ptr<Model> with_weights(const Model& from, const Recipe& recipe) {
  auto to = std::make_unique<Model>(recipe, from.real);
  init(*to, 0);
  for (Weight& w : to->weights)
    for (const Weight& f : from.weights)
      if (f.name == w.name && f.rows == w.rows && f.cols == w.cols)
        std::memcpy(w.data.get(), f.data.get(), w.bytes());
  return to;
}

// ------------------------------------------------------------------------------------------------ looking
namespace {

// Means by kind of row, layer by layer.
class Means {
 public:
  void add(int layer, int kind, double value, double count = 1) {
    while (sums_.size() <= static_cast<std::size_t>(layer)) sums_.push_back({});
    sums_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(kind)] += value;
    counts_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(kind)] += count;
  }
  std::vector<double> of(int kind) const {
    std::vector<double> out;
    for (std::size_t l = 0; l < sums_.size(); ++l) {
      const double n = counts_[l][static_cast<std::size_t>(kind)];
      out.push_back(n > 0 ? sums_[l][static_cast<std::size_t>(kind)] / n : 0);
    }
    return out;
  }

 private:
  using Kinds = std::array<double, 2>;
  std::vector<Kinds> sums_, counts_ = std::vector<Kinds>(64);
};

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(b[i] > 0 ? a[i] / b[i] : 0);
  return out;
}

double row_norm(const Tensor& t, Dim row) {
  const Dim width = t.elements() / t[0];
  double square = 0;
  for (Dim c = 0; c < width; ++c) square += t.at(row * width + c) * t.at(row * width + c);
  return std::sqrt(square);
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

ToyLook look_at(Device& device, const Model& model, const ToyTask& task, Dim sequences, Dim length,
                std::uint64_t number) {
  const CopyTask::Batch data = task(number, sequences, length);
  Run run(device);
  Taps taps;
  run.taps = &taps;
  // learned tokens stand before the first
  const Dim learned = model.recipe.embed.sink_tokens, stride = length + learned;
  taps.first_keys = 1 + learned;
  const bool sigmoid = !model.recipe.decoder->recurrent &&
                       model.recipe.decoder->layer(0).parts[0].self()->normal == Normal::sigmoid;
  constexpr int kLearned = -2;
  auto kind_of = [&](Dim row) {
    const Dim at = row % stride - learned;
    return at < 0 ? kLearned : data.kind[static_cast<std::size_t>(row / stride * length + at)];
  };
  ToyLook look;
  // keys, values, cosines: kind 0 are first tokens, 1 the others
  Means first, of_sum, gates, keys, values, cosines, entropy;
  Tensor q;
  taps.see(site::q, [&](const Tapped& t) { q = t.value; });
  look.max_logit = -INFINITY;
  taps.see(site::attn_stats, [&](const Tapped& t) {
    for (Dim r = 0; r < t.value[0]; ++r)
      for (Dim h = 0; h < t.value[1]; ++h) {
        const Dim at = (r * t.value[1] + h) * t.value[2];
        const auto layer = static_cast<std::size_t>(t.layer);
        if (look.logits.size() <= layer) look.logits.resize(layer + 1, -INFINITY);
        look.logits[layer] = std::max(look.logits[layer], t.value.at(at + AttentionStat::max_logit));
        look.max_logit = std::max(look.max_logit, look.logits[layer]);
        entropy.add(t.layer, 0, t.value.at(at + AttentionStat::entropy));
        if (kind_of(r) < 0) continue;
        const double share = t.value.at(at + AttentionStat::first);
        of_sum.add(t.layer, kind_of(r), share);
        first.add(t.layer, kind_of(r), sigmoid ? share * t.value.at(at + AttentionStat::sum) : share);
      }
  });
  taps.see(site::k, [&](const Tapped& t) {
    for (Dim r = 0; r < t.value[0]; ++r)
      if (kind_of(r) != kLearned) keys.add(t.layer, kind_of(r) >= 0, row_norm(t.value, r));
    const Dim rows = std::min<Dim>(t.value[0], 8 * stride), q_row = q[1] * q[2],
              k_row = t.value[1] * t.value[2];
    for (Dim r = 0; r < rows; ++r)
      for (Dim j = r / stride * stride + learned; kind_of(r) == 0 && j <= r; ++j) {
        double dot = 0, qq = 0, kk = 0;
        for (Dim c = 0; c < q[2]; ++c) {
          const double x = q.at(r * q_row + c), y = t.value.at(j * k_row + c);
          dot += x * y, qq += x * x, kk += y * y;
        }
        cosines.add(t.layer, j % stride != learned, qq * kk > 0 ? dot / std::sqrt(qq * kk) : 0);
      }
  });
  taps.see(site::v, [&](const Tapped& t) {
    for (Dim r = 0; r < t.value[0]; ++r)
      if (kind_of(r) != kLearned) values.add(t.layer, kind_of(r) >= 0, row_norm(t.value, r));
  });
  double gate_low = 0, gate_values = 0, gate_least = INFINITY;
  see_gates(taps, [&](const Tapped& t) {
    const Dim width = t.value.elements() / t.value[0];
    for (Dim r = 0; r < t.value[0]; ++r) {
      if (kind_of(r) < 0) continue;
      for (Dim c = 0; c < width; ++c) {
        const double g = t.value.at(r * width + c);
        gates.add(t.layer, kind_of(r), g);
        gate_low += g < kClosedGate, gate_values += 1, gate_least = std::min(gate_least, g);
      }
    }
  });
  taps.see(site::resid_out, [&](const Tapped& t) {
    double peak[2] = {};
    std::vector<double> all;
    for (Dim r = 0; r < t.value[0]; ++r)
      for (Dim c = 0; kind_of(r) != kLearned && c < t.value[1]; ++c) {
        all.push_back(std::abs(t.value.at(r * t.value[1] + c)));
        double& p = peak[kind_of(r) >= 0];
        p = std::max(p, all.back());
      }
    look.first_peak.push_back(peak[0]);
    look.other_peak.push_back(peak[1]);
    look.median.push_back(median_of(std::move(all)));
  });
  const Loss loss = cross_entropy(run, forward(run, model, toy_batch(data, length)), data.targets);
  look.loss = loss.mean.at(0);
  if (!std::isfinite(look.max_logit)) look.max_logit = 0;  // no attention
  double floor = 0, counted = 0, by_kind[2] = {}, rows[2] = {};
  for (std::size_t r = 0; r < data.targets.size(); ++r) {
    if (data.targets[r] < 0) continue;
    floor += data.floor[r];
    counted += 1;
    if (data.kind[r] < 0) continue;
    const auto k = static_cast<std::size_t>(data.kind[r]);
    by_kind[k] += loss.rows.at(static_cast<Dim>(r)) - data.floor[r];
    rows[k] += 1;
  }
  look.excess = look.loss - floor / std::max(counted, 1.0);
  look.idle_excess = by_kind[0] / std::max(rows[0], 1.0);
  look.trigger_loss = by_kind[1] / std::max(rows[1], 1.0);
  look.idle = first.of(0);
  look.trigger = first.of(1);
  look.entropy = entropy.of(0);
  look.idle_of_sum = of_sum.of(0);
  look.key_ratio = ratios(keys.of(0), keys.of(1));
  look.value_ratio = ratios(values.of(0), values.of(1));
  look.first_cosine = cosines.of(0);
  look.other_cosine = cosines.of(1);
  look.gate_idle = gates.of(0);
  look.gate_active = gates.of(1);
  if (gate_values > 0) look.gate_low = gate_low / gate_values, look.gate_least = gate_least;
  if (learned > 0) {  // what was seen above is the weight on the learned tokens and the first together
    Means before;
    Taps of_learned;
    of_learned.first_keys = learned;
    of_learned.see(site::attn_stats, [&](const Tapped& t) {
      for (Dim r = 0; r < t.value[0]; ++r)
        for (Dim h = 0; kind_of(r) >= 0 && h < t.value[1]; ++h)
          before.add(t.layer, kind_of(r),
                     t.value.at((r * t.value[1] + h) * t.value[2] + AttentionStat::first));
    });
    run.reset();
    run.taps = &of_learned;
    forward(run, model, toy_batch(data, length));
    look.idle_learned = before.of(0);
    for (std::size_t l = 0; l < look.idle.size(); ++l) {
      look.idle[l] -= before.of(0)[l];
      look.idle_of_sum[l] -= before.of(0)[l];
      look.trigger[l] -= before.of(1)[l];
    }
  }
  return look;
}

HeatMap attention_picture(Device& device, const Model& model, const ToyTask& task, Dim length, int layer,
                          Text title) {
  const CopyTask::Batch data = task(~std::uint64_t{3}, 1, length);
  HeatMap map{.title = std::move(title),
              .scale = HeatMap::Scale::root,
              .row_name = say("lab.query"),
              .column_name = say("lab.key"),
              .value_name = say("lab.weight")};
  for (Dim r = 0; r < length; ++r) {
    const auto at = static_cast<std::size_t>(r);
    map.columns.push_back(data.tokens[at] == CopyTask::kBegin ? "BOS" : concat(data.tokens[at]));
    map.rows.push_back(map.columns.back() + (data.kind[at] == 1 ? "*" : ""));
  }
  map.values.resize(static_cast<std::size_t>(length * length));
  Run run(device);
  Taps taps;
  run.taps = &taps;
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped& where) {
        std::vector<Taps::HeadRow> rows;
        for (Dim r = 0; where.layer == layer && r < length; ++r) rows.push_back({0, r});
        return rows;
      },
      [&](const Tapped& t) {
        for (Dim c = 0; c < t.value.elements(); ++c)
          map.values[static_cast<std::size_t>(t.row * length + c)] = t.value.at(c);
      });
  forward(run, model, toy_batch(data, length));
  return map;
}

// ------------------------------------------------------------------------------------------------ training
Dim scaled(const Lab& lab, Dim full, Dim least) {
  return std::max(std::min(least, full),
                  static_cast<Dim>(std::lround(static_cast<double>(full) * lab.effort)));
}
Dim scaled_batch(const Lab& lab, Dim full) {
  return std::max(std::min<Dim>(4, full),
                  static_cast<Dim>(std::lround(static_cast<double>(full) * std::min(1.0, 10 * lab.effort))));
}

namespace {

constexpr Dim kLookSequences = 128;

Trained train_toy(const Lab& lab, Device& device, const Toy& toy, const std::function<void()>& on_step) {
  Trained out{.name = toy.name};
  if (toy.start) {
    out.model = with_weights(*toy.start, toy.recipe);
  } else {
    out.model = std::make_unique<Model>(toy.recipe, device.real);
    init(*out.model, toy.seed);
    // Token embeddings start at unit size; what small ones change, the experiment `sink` measures.
    for (Weight& w : out.model->weights)
      if (!toy.small_tokens && (w.name == "embed.tokens" || w.name == "embed.sinks"))
        for (Dim i = 0; i < w.size(); ++i)
          w.set(i / w.cols, i % w.cols, w.get(i / w.cols, i % w.cols) / toy.recipe.init.std);
  }
  Model& model = *out.model;
  if (toy.plant != 0)
    for (Weight& w : model.weights)
      if (w.name == "embed.tokens") w.set(w.rows - 1, 0, toy.plant);
  const Dim steps = scaled(lab, toy.steps), batch = scaled_batch(lab, toy.batch);
  Optimizer optimizer(model, {.rate = toy.rate, .beta2 = toy.beta2, .decay = toy.decay});
  const Schedule schedule{.kind = toy.cosine ? Schedule::Kind::cosine : Schedule::Kind::constant,
                          .warmup = std::min(toy.warmup, steps),
                          .total = steps + 1};
  auto look = [&](Dim step) {
    out.looks.push_back(look_at(device, model, toy.task, scaled_batch(lab, kLookSequences), toy.length));
    out.looks.back().step = step;
  };
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  run.training = true;
  for (Dim step = 0; step < steps; ++step) {
    if (toy.looks > 0 && step % std::max<Dim>(1, steps / toy.looks) == 0) look(step);
    run.reset();
    gradients.zero();
    run.random = {toy.seed, static_cast<std::uint64_t>(step)};
    const CopyTask::Batch data = toy.task(static_cast<std::uint64_t>(step), batch, toy.length);
    const Loss loss = cross_entropy(run, forward(run, model, toy_batch(data, toy.length)), data.targets);
    double floor = 0, counted = 0;
    for (std::size_t r = 0; r < data.targets.size(); ++r)
      if (data.targets[r] >= 0) floor += data.floor[r], counted += 1;
    out.losses.push_back(loss.mean.at(0) - floor / std::max(counted, 1.0));
    backward(run, loss.mean);
    const double norm = optimizer.norm(device, gradients);
    if (!std::isfinite(norm)) {
      out.diverged = true;
      break;
    }
    optimizer.step(device, gradients, norm, schedule.at(step));
    on_step();
  }
  look(steps);
  for (std::size_t i = 100; i < out.losses.size(); ++i)
    out.spikes += out.losses[i] > 0.1 + median_of({out.losses.begin() + static_cast<std::ptrdiff_t>(i) - 31,
                                                   out.losses.begin() + static_cast<std::ptrdiff_t>(i)});
  return out;
}

}  // namespace

std::vector<Trained> train_toys(const Lab& lab, std::vector<Toy> toys) {
  std::vector<Trained> out(toys.size());
  std::vector<std::exception_ptr> errors(toys.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;  // one has: none of the others begins
  std::mutex lock;
  double done = 0, of = 0;
  for (Toy& t : toys)
    if (lab.change) lab.change(t.name, t.recipe);
  for (const Toy& t : toys) of += static_cast<double>(scaled(lab, t.steps));
  auto work = [&] {
    std::optional<Device> device;
    for (std::size_t i = next++; i < toys.size() && !failed; i = next++) {
      try {
        if (!device) device.emplace(lab.device.kernels, DeviceOptions{.threads = 1});
        out[i] = train_toy(lab, *device, toys[i], [&] {
          const std::lock_guard hold(lock);
          done += 1;
          if (lab.progress) lab.progress(toys[i].name, done, of);
        });
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(toys.size());
  try {
    for (int i = 1; i < lab.device.threads() && static_cast<std::size_t>(i) < toys.size(); ++i)
      threads.emplace_back(work);
  } catch (const std::exception&) {  // no more to be had: those there are do it
  }
  work();
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  return out;
}

// ---------------------------------------------------------------------------------------- words and numbers
double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}
double most_of(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}
double equal_share(Dim length) {
  double sum = 0;
  for (Dim t = 2; t <= length; ++t) sum += 1.0 / static_cast<double>(t);
  return sum / static_cast<double>(std::max<Dim>(1, length - 1));
}

std::string digits(double x, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, x);
  return text;
}
std::string joined(const std::vector<double>& values, int decimals) {
  std::string out;
  for (double v : values) out += (out.empty() ? "" : " / ") + digits(v, decimals);
  return out;
}

Finding below(Text what, double measured, double limit, std::string unit, Text paper, bool every_seed) {
  return {std::move(what),  measured,         std::move(unit), say("lab.below", concat(limit)),
          measured < limit, std::move(paper), every_seed};
}
Finding above(Text what, double measured, double limit, std::string unit, Text paper, bool every_seed) {
  return {std::move(what),  measured,         std::move(unit), say("lab.above", concat(limit)),
          measured > limit, std::move(paper), every_seed};
}
Finding between(Text what, double measured, double low, double high, std::string unit, Text paper,
                bool every_seed) {
  return {std::move(what),
          measured,
          std::move(unit),
          say("lab.between", concat(low), concat(high)),
          low < measured && measured < high,
          std::move(paper),
          every_seed};
}

Words toy_words() { return {say("lab.toy")}; }

Curve loss_curve(const Trained& run) {
  Curve c{.name = run.name};
  const std::size_t n = run.losses.size(), part = std::max<std::size_t>(1, n / 50);
  for (std::size_t i = 0; i < n; i += part) {
    const std::size_t end = std::min(n, i + part);
    double sum = 0;
    for (std::size_t j = i; j < end; ++j) sum += run.losses[j];
    c.x.push_back(static_cast<double>(end));
    c.y.push_back(sum / static_cast<double>(end - i));
  }
  return c;
}

Chart loss_chart(Text title, const std::vector<Trained>& runs) {
  Chart chart{.title = std::move(title),
              .x_label = say("lab.step"),
              .y_label = say("lab.nats_above"),
              .curves = {},
              .log_y = true};
  for (const Trained& r : runs) chart.curves.push_back(loss_curve(r));
  return chart;
}

}  // namespace rapt
