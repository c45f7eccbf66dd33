// SPDX-License-Identifier: Apache-2.0
// How large the weights of a checkpoint are, layer by layer. A kind is what a weight is called without its
// stack, its layer and the number of its expert or head: all experts of a layer are one entry.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "rapt/base/text.h"
#include "rapt/inspect/documents.h"
#include "rapt/load/weight_sizes.h"
#include "rapt/nn/weight_table.h"
#include "rapt/report/facts.h"

namespace rapt {
namespace {

constexpr std::array kMeasures = {"Euclidean norm", "root mean square", "largest magnitude"};
constexpr std::array kMeasureKeys = {"norm", "rms", "largest"};
enum class Group { bias, gain, gate, matrix, other };
constexpr std::array kGroups = {"biases", "gains", "gates", "matrices", "other vectors"};

Group group_of(const std::string& kind, bool vector) {
  if (kind.ends_with("bias")) return Group::bias;
  if (is_norm_weight(kind) || kind.ends_with("scale")) return Group::gain;
  // Attention's gates and the shared expert's; the gate of a SwiGLU is a matrix like its other two.
  if (kind.find("gate_") != kind.npos || kind.find("_gate") != kind.npos) return Group::gate;
  return vector ? Group::other : Group::matrix;
}

struct Size {
  double count = 0, squares = 0, largest = 0;
  DType stored = DType::f32;
  void add(const WeightSize& w) {
    stored = w.stored;
    count += static_cast<double>(w.rows) * static_cast<double>(w.cols);
    squares += w.squares;
    largest = std::isnan(w.largest) ? w.largest : std::max(largest, w.largest);
  }
  double norm() const { return std::sqrt(squares); }
  double rms() const { return std::sqrt(squares / count); }
  double of(WeightMeasure m) const {
    return m == WeightMeasure::norm ? norm() : m == WeightMeasure::rms ? rms() : largest;
  }
};

struct Kind {
  std::string name, stack;  // stack: "" of what stands outside the layers
  Group group = Group::matrix;
  std::vector<std::optional<Size>> layers;  // one where it stands outside
};

struct Place {
  std::string stack, kind;
  std::size_t layer = 0;
};
Place place_of(std::string name) {
  if (const auto [from, to] = expert_number(name); from != name.npos) name.replace(from, to - from, "*");
  for (const char* stack : {"encoder", "decoder"}) {
    const std::string start = concat(stack, ".");
    if (!name.starts_with(start)) continue;
    const std::size_t dot = name.find('.', start.size());
    const std::string number = name.substr(start.size(), dot - start.size());
    if (dot == name.npos || number.find_first_not_of("0123456789") != number.npos) break;
    return {stack, name.substr(dot + 1), std::stoul(number)};
  }
  return {"", name, 0};
}

std::vector<Kind> kinds_of(const std::vector<WeightSize>& weights) {
  std::vector<Kind> kinds;
  for (const WeightSize& w : weights) {
    const Place p = place_of(w.name);
    auto it = std::find_if(kinds.begin(), kinds.end(),
                           [&](const Kind& k) { return k.stack == p.stack && k.name == p.kind; });
    if (it == kinds.end()) it = kinds.insert(kinds.end(), {p.kind, p.stack, group_of(p.kind, w.vector), {}});
    if (it->layers.size() <= p.layer) it->layers.resize(p.layer + 1);
    if (!it->layers[p.layer]) it->layers[p.layer] = Size{};
    it->layers[p.layer]->add(w);
  }
  return kinds;
}

std::string types_of(const Kind& k) {  // a mix has several
  std::vector<std::string> all;
  for (const std::optional<Size>& s : k.layers)
    if (s && std::find(all.begin(), all.end(), name_of(s->stored)) == all.end())
      all.emplace_back(name_of(s->stored));
  return join(all, " ");
}

// Where a measure is largest, and how far above the middle of all layers.
struct Peak {
  std::size_t layer = 0;
  double value = -1, median = 0;
  double times() const { return median > 0 ? value / median : 0; }
};
Peak peak_of(const Kind& k, WeightMeasure m) {
  Peak p;
  std::vector<double> all;
  for (std::size_t l = 0; l < k.layers.size(); ++l) {
    if (!k.layers[l]) continue;
    const double v = k.layers[l]->of(m);
    all.push_back(v);
    if (v > p.value) p.value = v, p.layer = l;
  }
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  p.median = n % 2 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2;
  return p;
}

// Without what the title says: "self.k" of the biases, "self.q" of the matrices.
std::string short_name(const Kind& k) {
  for (const std::string_view end : {".weight", ".bias"})
    if (k.name.ends_with(end)) return k.name.substr(0, k.name.size() - end.size());
  return k.name;
}
Cell cell(double x) { return Cell(x, x < 1 ? 4 : x < 100 ? 2 : 0); }

// The largest of a group in words, and the layer that stands out most of all its kinds.
std::string sentence(const std::vector<const Kind*>& kinds, WeightMeasure m, const std::string& name) {
  const Kind *most = nullptr, *apart = nullptr;
  Peak largest, farthest;
  for (const Kind* k : kinds) {
    const Peak p = peak_of(*k, m);
    if (!most || p.value > largest.value) most = k, largest = p;
    if (!apart || p.times() > farthest.times()) apart = k, farthest = p;
  }
  const auto where = [&](const Kind& k, const Peak& p) {
    return concat(k.name, " of layer ", p.layer, " with ", cell(p.value).text, ", ", cell(p.times()).text,
                  " times the median of its layers (", cell(p.median).text, ")");
  };
  std::string text = concat("Of the ", name, " the largest by ", kMeasures[static_cast<std::size_t>(m)],
                            " is ", where(*most, largest), ".");
  if (apart != most) text += concat(" Farthest from its own median is ", where(*apart, farthest), ".");
  if (most->name.ends_with(".k.bias") && largest.times() > 5)
    text +=
        " A key bias is the same in every key of its layer: where keys are rotated it is a learned term of "
        "the distance and must be applied, and keys that are rounded together with it lose the rest. The "
        "cache keeps keys without it.";
  return text;
}

void add_group(Document& d, const std::vector<const Kind*>& kinds, WeightMeasure m,
               const std::string& prefix) {
  const std::string name = concat(prefix, kGroups[static_cast<std::size_t>(kinds[0]->group)]),
                    title = concat(name, ": ", kMeasures[static_cast<std::size_t>(m)]);
  std::size_t layers = 0;
  for (const Kind* k : kinds) layers = std::max(layers, k->layers.size());
  Table table{.title = title, .columns = {"layer"}, .rows = {}};
  Chart chart{.title = title,
              .x_label = "layer",
              .y_label = kMeasures[static_cast<std::size_t>(m)],
              .curves = {},
              .log_y = true};
  for (const Kind* k : kinds) {
    table.columns.push_back(short_name(*k));
    chart.curves.push_back({.name = short_name(*k), .x = {}, .y = {}});
  }
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<Cell> row = {std::to_string(l)};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const bool there = l < kinds[i]->layers.size() && kinds[i]->layers[l];
      row.push_back(there ? cell(kinds[i]->layers[l]->of(m)) : Cell(""));
      if (!there) continue;
      chart.curves[i].x.push_back(static_cast<double>(l));
      chart.curves[i].y.push_back(kinds[i]->layers[l]->of(m));
    }
    table.rows.push_back(std::move(row));
  }
  if (layers > 1) d.parts.push_back(Words{sentence(kinds, m, name)});
  d.parts.push_back(std::move(table));
  if (layers > 1) d.parts.push_back(std::move(chart));
}

Json kinds_json(const std::vector<Kind>& kinds) {
  Json::Array out;
  for (const Kind& k : kinds)
    for (std::size_t l = 0; l < k.layers.size(); ++l) {
      if (!k.layers[l]) continue;
      Json j = Json::Object{{"kind", k.name}, {"group", kGroups[static_cast<std::size_t>(k.group)]}};
      if (!k.stack.empty()) j.set("stack", k.stack), j.set("layer", static_cast<std::int64_t>(l));
      j.set("stored", std::string(name_of(k.layers[l]->stored)));
      j.set("numbers", static_cast<std::int64_t>(k.layers[l]->count));
      for (std::size_t m = 0; m < kMeasures.size(); ++m)
        j.set(kMeasureKeys[m], k.layers[l]->of(static_cast<WeightMeasure>(m)));
      out.push_back(std::move(j));
    }
  return out;
}

}  // namespace

Document weights_document(const std::string& path, Device& device, WeightMeasure measure) {
  const CheckpointSizes sizes = checkpoint_sizes(path, device);
  const std::vector<Kind> kinds = kinds_of(sizes.weights);
  const std::string name = std::filesystem::path(sizes.path).filename().string();
  Document d{.name = "weights", .title = concat("Sizes of weights: ", name), .parts = {}};
  d.parts.push_back(Words{
      "As the file stores them, no text is read. Gains are what a norm multiplies by. A layer's experts, or "
      "the "
      "heads of latent keys and values, are counted together."});
  Table outside{.title = "outside the layers",
                .columns = {"weight", "stored as", "numbers", "Euclidean norm", "root mean square",
                            "largest magnitude"},
                .rows = {}};
  Table all{.title =
                "each kind over its layers: Euclidean norm (the median, the largest, their ratio), and "
                "the largest magnitude of a number",
            .columns = {"weight", "stored", "numbers", "median", "largest", "layer", "ratio", "largest |x|",
                        "layer"},
            .rows = {}};
  const auto prefix = [&](const std::string& stack) -> std::string {  // only where there are two
    const bool both = std::any_of(kinds.begin(), kinds.end(),
                                  [&](const Kind& k) { return !k.stack.empty() && k.stack != stack; });
    return both ? stack + " " : "";
  };
  for (const Kind& k : kinds) {
    const Peak norm = peak_of(k, WeightMeasure::norm), x = peak_of(k, WeightMeasure::largest);
    const Size& size = *k.layers[norm.layer];
    const std::string numbers = with_commas(static_cast<Dim>(size.count));
    if (k.stack.empty())
      outside.rows.push_back(
          {k.name, types_of(k), numbers, cell(size.norm()), cell(size.rms()), cell(size.largest)});
    else
      all.rows.push_back({prefix(k.stack) + k.name, types_of(k), numbers, cell(norm.median), cell(norm.value),
                          std::to_string(norm.layer), cell(norm.times()), cell(x.value),
                          std::to_string(x.layer)});
  }
  if (!all.rows.empty()) d.parts.push_back(std::move(all));
  for (const char* stack : {"encoder", "decoder"})
    for (std::size_t g = 0; g < kGroups.size(); ++g) {
      std::vector<const Kind*> of;
      for (const Kind& k : kinds)
        if (k.stack == stack && static_cast<std::size_t>(k.group) == g) of.push_back(&k);
      if (!of.empty()) add_group(d, of, measure, prefix(stack));
    }
  if (!outside.rows.empty()) d.parts.push_back(std::move(outside));
  d.facts.set("family", sizes.family);
  d.facts.set("weights", kinds_json(kinds));
  return d;
}

}  // namespace rapt
