// SPDX-License-Identifier: Apache-2.0
// Taps copy what comes by; scores are made in double, from queries and keys. Then: files.
#include "rapt/inspect/capture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/npy.h"
#include "rapt/io/safetensors.h"

namespace rapt {
namespace {

using Kind = Point::Kind;

std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

std::vector<float> floats(const Tensor& t) {
  std::vector<float> out;
  with_values(t, [&](auto values) { out.assign(values.begin(), values.end()); });
  return out;
}

// (x - mean) / scale or scale, row by row; RMSNorm takes no mean away.
std::vector<float> normalized(const NormRecipe& norm, const Tensor& x, bool scale_only) {
  const Dim rows = x[0], C = x[1];
  std::vector<float> out;
  out.reserve(at(scale_only ? rows : rows * C));
  for (Dim r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    if (norm.kind == NormRecipe::Kind::layer)
      for (Dim c = 0; c < C; ++c) mean += x.at(r * C + c) / static_cast<double>(C);
    for (Dim c = 0; c < C; ++c)
      square += (x.at(r * C + c) - mean) * (x.at(r * C + c) - mean) / static_cast<double>(C);
    const double scale = std::sqrt(square + norm.eps);
    if (scale_only) out.push_back(static_cast<float>(scale));
    else
      for (Dim c = 0; c < C; ++c) out.push_back(static_cast<float>((x.at(r * C + c) - mean) / scale));
  }
  return out;
}

// What the softmax (or sigmoid) of an attention reads, from its queries and keys: ops/attention.h has the
// formula.
void make_scores(const Attention& a, const std::vector<float>& q, const std::vector<float>& k,
                 Captured& out) {
  const AttentionSpec& s = a.spec;
  const Dim rows = out.shape[1], keys = out.shape[2], D = s.head_dim;
  const Sequence whole{.first = 0, .count = rows}, memory{.first = 0, .count = keys};
  const RowPlan plan = s.cross ? plan_cross({&whole, 1}, {&memory, 1}) : plan_rows(a.mask, {&whole, 1});
  const std::vector<double> slopes = s.bias == Bias::alibi ? alibi_slopes(s.heads) : std::vector<double>{};
  for (Dim h = 0; h < s.heads; ++h)
    for (Dim r = 0; r < rows; ++r)
      for (Dim j = 0; j < keys; ++j) {
        const float* x = &q[at((r * s.heads + h) * D)];
        const float* y = &k[at((j * s.kv_heads + h / (s.heads / s.kv_heads)) * D)];
        double sum = 0;
        for (Dim d = 0; d < D; ++d) switch (s.score) {
            case Score::dot: sum += double{x[d]} * y[d]; break;
            case Score::l2: sum -= (double{x[d]} - y[d]) * (double{x[d]} - y[d]); break;
            case Score::additive: sum += a.score->get(h, d) * std::tanh(double{x[d]} + y[d]); break;
          }
        sum *= s.scale;
        if (s.cap > 0) sum = s.cap * std::tanh(sum / s.cap);
        const Dim position = plan.position[at(r)];
        if (s.bias == Bias::alibi) sum -= slopes[at(h)] * static_cast<double>(std::abs(position - j));
        if (s.bias == Bias::bucket)
          sum +=
              a.buckets->get(relative_bucket(j - position, a.buckets->rows, s.bucket_max, s.bucket_both), h);
        const bool seen = j < plan.high[at(r)] && (j >= plan.low[at(r)] || j < plan.parts[0].keep);
        out.values[at((h * rows + r) * keys + j)] =
            seen ? static_cast<float>(sum) : -std::numeric_limits<float>::infinity();
      }
}

}  // namespace

std::vector<Asked> ask_points(const Model& model, std::span<const std::string> names) {
  std::vector<Asked> asked;
  for (const std::string& name : names)
    for (Point& p : find_points(model, name)) {
      std::string full = name;
      if (const std::size_t star = full.find('*'); star != std::string::npos)
        full.replace(star, 1, p.name.substr(p.name.find(concat(".", p.layer)) + 1));
      if (std::any_of(asked.begin(), asked.end(), [&](const Asked& a) { return a.name == full; }))
        fail_usage("'", full, "' is asked for twice");
      asked.push_back({std::move(full), std::move(p)});
    }
  return asked;
}

const Captured& Capture::of(std::string_view name) const {
  for (const Captured& t : tensors)
    if (t.name == name) return t;
  fail("the capture has no '", name, "'");
}

void watch_points(Taps& taps, const Model& model, std::span<const Asked> asked, Dim rows, Dim source,
                  SeeCaptured see) {
  struct State {
    std::vector<Asked> asked;
    SeeCaptured see;
    std::vector<Captured> made;  // of scores and weights, until they are whole
    std::vector<std::vector<float>> queries, keys;
    std::vector<Dim> rows;  // of weights: how many have come
  };
  const auto state = std::make_shared<State>();
  state->asked.assign(asked.begin(), asked.end());
  state->see = std::move(see);
  state->queries.resize(asked.size()), state->keys.resize(asked.size()), state->rows.resize(asked.size());
  for (const Asked& a : asked) state->made.push_back({a.name, point_shape(model, a.point, rows, source), {}});
  // Scores are made when both of what they are made of have come.
  const auto scores = [](State& s, std::size_t i) {
    if (s.queries[i].empty() || s.keys[i].empty()) return;
    Captured& to = s.made[i];
    to.values.resize(at(to.shape[0] * to.shape[1] * to.shape[2]));
    make_scores(*s.asked[i].point.attention, s.queries[i], s.keys[i], to);
    s.queries[i] = {}, s.keys[i] = {};
    s.see(i, std::move(to));
  };
  bool weights = false;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Point& p = asked[i].point;
    weights = weights || p.kind == Kind::weights;
    if (p.kind == Kind::weights) continue;
    taps.see(p.site, [state, scores, i](const Tapped& t) {
      State& s = *state;
      const Point& point = s.asked[i].point;
      if (!is_at(t, point)) return;
      switch (point.kind) {
        case Kind::scores:
          s.queries[i] = floats(t.value);
          scores(s, i);
          break;
        case Kind::normalized:
        case Kind::norm_scale:
          s.see(i, {s.asked[i].name, s.made[i].shape,
                    normalized(point.norm->recipe, t.value, point.kind == Kind::norm_scale)});
          break;
        default:
          s.see(i, {s.asked[i].name,
                    {t.value.size.begin(), t.value.size.begin() + t.value.rank},
                    floats(t.value)});
      }
    });
    if (p.kind == Kind::scores)
      taps.see(site::k, [state, scores, i](const Tapped& t) {
        Point key = state->asked[i].point;
        key.site = site::k;
        if (!is_at(t, key)) return;
        state->keys[i] = floats(t.value);
        scores(*state, i);
      });
  }
  if (!weights) return;
  const auto is_weights = [](const State& s, std::size_t i, const Tapped& t) {
    return s.asked[i].point.kind == Kind::weights && is_at(t, s.asked[i].point);
  };
  taps.want_weights(
      site::attn_weights,
      [state, is_weights](const Tapped& where) {
        std::vector<Taps::HeadRow> list;
        for (std::size_t i = 0; i < state->asked.size() && list.empty(); ++i)
          if (is_weights(*state, i, where))
            for (Dim h = 0; h < state->made[i].shape[0]; ++h)
              for (Dim r = 0; r < state->made[i].shape[1]; ++r) list.push_back({h, r});
        return list;
      },
      [state, is_weights](const Tapped& t) {
        for (std::size_t i = 0; i < state->asked.size(); ++i) {
          if (!is_weights(*state, i, t)) continue;
          Captured& to = state->made[i];
          // Learned slots stand first and are left out.
          const Dim all = to.shape[0] * to.shape[1], n = to.shape[2], slots = t.value.elements() - n;
          to.values.resize(at(all * n));
          for (Dim j = 0; j < n; ++j)
            to.values[at((t.head * to.shape[1] + t.row) * n + j)] = static_cast<float>(t.value.at(slots + j));
          if (++state->rows[i] == all) state->see(i, std::move(to));
        }
      });
}

std::function<void()> edit_points(Taps& taps, std::span<const Asked> asked,
                                  std::function<void(std::size_t i, const Tapped& value)> edit) {
  struct State {
    std::vector<Asked> asked;
    std::function<void(std::size_t i, const Tapped& value)> edit;
    std::vector<Dim> times;
  };
  const auto state = std::make_shared<State>();
  state->asked.assign(asked.begin(), asked.end());
  state->edit = std::move(edit), state->times.resize(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Point& p = asked[i].point;
    if (!p.fixed.empty()) fail_usage("'", asked[i].name, "' cannot be changed: ", p.fixed);
    if (p.kind != Kind::value)
      fail_usage("'", asked[i].name, "' cannot be changed by a function: rows of it are formed one by one; ",
                 "capture it, and put what you make of it in its place by an edit: ", p.name, ":replace");
    if (p.site == site::q && p.attention->rope && p.attention->mask.keep > 0)
      fail_usage("'", asked[i].name,
                 "' is turned to two places in this model, and a function would see both; ", "change q.",
                 p.layer);
    taps.edit(p.site, [state, i](const Tapped& t) {
      if (!is_at(t, state->asked[i].point)) return;
      ++state->times[i];
      state->edit(i, t);
    });
  }
  return [state] {
    for (std::size_t i = 0; i < state->asked.size(); ++i)
      if (state->times[i] == 0) fail("'", state->asked[i].name, "' did not come by in this pass");
  };
}

Capture capture(Device& device, const Model& model, std::span<const Asked> asked, Ids ids, Ids source,
                const CaptureOptions& options) {
  if (ids.empty()) fail("the text has no tokens");
  const Dim T = static_cast<Dim>(ids.size()), S = static_cast<Dim>(source.size());
  const bool classes = model.recipe.head.pools();
  Capture out{
      .model = model.recipe.name, .ids = {ids.begin(), ids.end()}, .source = {source.begin(), source.end()}};
  double bytes = 0, largest = 0;
  std::string widest;
  bool results = options.result;
  const auto count = [&](const std::string& name, std::span<const Dim> shape) {
    double size = 4;
    for (Dim n : shape) size *= static_cast<double>(n);
    if (size > largest) largest = size, widest = name;
    bytes += size;
  };
  for (const Asked& a : asked) {
    out.tensors.push_back({a.name, point_shape(model, a.point, T, S), {}});
    count(a.name, out.tensors.back().shape);
    results = results || a.point.site == site::unembed || a.point.site == site::logits;
  }
  if (options.result)
    count("the result", std::array{classes ? 1 : T, model.head.w ? model.head.w->rows : model.recipe.width});
  if (bytes > options.most_bytes)
    fail("these tensors take ", byte_count(bytes), " for ", T, " tokens (", widest, " alone ",
         byte_count(largest), "), more than the ", byte_count(options.most_bytes),
         " allowed; ask for fewer points, take a shorter text, or raise the limit");

  Taps taps = options.taps ? *options.taps : Taps{};
  watch_points(taps, model, asked, T, S, [&](std::size_t i, Captured&& value) {
    if (!out.tensors[i].values.empty())
      fail("capture: '", value.name, "' is computed twice in a layer, so the name is not enough");
    out.tensors[i] = std::move(value);
  });
  Run run(device);
  run.taps = &taps;
  const Batch from{.tokens = source, .sequences = {{.first = 0, .count = S, .adapters = options.adapters}}};
  Batch batch = batch_of(model, ids);
  for (Sequence& s : batch.sequences) s.adapters = options.adapters;
  if (!results && !classes) batch.want = kWantLast;
  const Tensor result = forward(run, model, batch, S > 0 ? &from : nullptr);
  if (options.result)
    out.result = {"result", {result.size.begin(), result.size.begin() + result.rank}, floats(result)};
  for (const Captured& t : out.tensors)
    if (t.values.empty()) fail("capture: '", t.name, "' did not come by in this pass");
  return out;
}

// ------------------------------------------------------------------------------------------------ files
namespace {

std::string words_of(std::span<const std::int32_t> ids) {
  std::string out;
  for (std::int32_t id : ids) out += concat(out.empty() ? "" : " ", id);
  return out;
}

void write_npy(const Captured& t, const std::string& path, bool force) {
  NpyWriter file(path, t.shape, force);
  file.write(t.values);
  file.commit();
}

}  // namespace

void check_capture_name(std::string_view path, std::size_t tensors) {
  if (path.ends_with(".npy") && tensors != 1)
    fail_usage(path, " holds one tensor, ", tensors, " are asked for; write a .safetensors file or a folder");
  const std::string end = std::filesystem::path(path).extension().string();
  if (end != ".npy" && end != ".safetensors" && !end.empty())
    fail_usage(path,
               ": tensors go into a .safetensors file, a .npy file, or a folder (a name without an ending)");
}

void write_capture(const Capture& capture, const std::string& path, bool force) {
  check_capture_name(path, capture.tensors.size());
  if (path.ends_with(".npy")) return write_npy(capture.tensors[0], path, force);
  if (path.ends_with(".safetensors")) {
    std::vector<SafetensorPlan> plans;
    for (const Captured& t : capture.tensors)
      plans.push_back({t.name, DType::f32, t.shape,
                       [&t](FileWriter& out) { out.write(std::as_bytes(std::span(t.values))); }});
    const std::pair<std::string, std::string> metadata[] = {
        {"model", capture.model}, {"tokens", words_of(capture.ids)}, {"source", words_of(capture.source)}};
    return write_safetensors(path, plans, metadata, force);
  }
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(path, ": the folder cannot be made: ", error.message());
  Json index = Json::Object{};
  Json::Array list;
  for (const Captured& t : capture.tensors) {
    write_npy(t, concat(path, "/", t.name, ".npy"), force);
    list.push_back(t.name);
  }
  index.set("model", capture.model);
  index.set("tokens", words_of(capture.ids));
  index.set("source", words_of(capture.source));
  index.set("tensors", std::move(list));
  FileWriter out(concat(path, "/index.json"), force);
  out.write(index.dump() + "\n");
  out.commit();
}

}  // namespace rapt
