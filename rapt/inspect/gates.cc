// SPDX-License-Identifier: Apache-2.0
// Gates that are computed come by in a pass; constant ones come from weights.
#include "rapt/inspect/gates.h"

#include <algorithm>
#include <tuple>

#include "rapt/inspect/attention_map.h"
#include "rapt/ops/activation.h"

namespace rapt {
namespace {

using At = GateRecipe::At;
constexpr At kOrder[] = {At::q, At::k, At::v, At::sdpa, At::out};

// One entry per head from rows of gate values [T, n].
void add(std::vector<GateStats>& out, const Attention& a, At at, GateStats g, const Tensor& rows) {
  const GateSpec& spec = a.gate_at(at)->spec;
  const Dim width = rows.last();
  const Dim heads = spec.shared || at == At::out ? 1
                    : at == At::k || at == At::v ? a.spec.kv_heads
                                                 : a.spec.heads;
  const Dim each = width / heads;
  g.at = at;
  for (Dim h = 0; h < heads; ++h) {
    GateStats s = g;
    s.head = spec.shared || at == At::out ? -1 : static_cast<int>(h);
    with_values(rows, [&](auto values) {
      for (Dim r = 0; r < rows[0]; ++r)
        for (Dim i = 0; i < each; ++i) {
          const auto v = static_cast<double>(values[static_cast<std::size_t>(r * width + h * each + i)]);
          s.mean += v;
          s.closed += v < kClosedGate;
          const double bin = std::clamp(v * static_cast<double>(GateStats::kBins), 0.0,
                                        static_cast<double>(GateStats::kBins - 1));
          ++s.histogram[static_cast<std::size_t>(bin)];
        }
    });
    s.values = rows[0] * each;
    s.mean /= static_cast<double>(s.values);
    s.closed /= static_cast<double>(s.values);
    out.push_back(s);
  }
}

}  // namespace

const char* gate_name(At at) {
  static constexpr const char* kNames[] = {"sdpa", "q", "k", "v", "out"};
  return kNames[static_cast<std::size_t>(at)];
}

std::vector<GateStats> gates(Device& device, const Model& model, Ids ids, Ids source, const Taps* edits) {
  std::vector<GateStats> out;
  Run run(device);
  Taps taps = edits ? *edits : Taps{};
  for (const At at : kOrder)
    taps.see(site::gate(at), [&, at](const Tapped& t) {
      const Part& p = part_of(model, t);
      const Attention& a = *p.attention();
      const bool of_memory = a.spec.cross && (at == At::k || at == At::v);  // rows of the encoder
      add(out, a, at, {.stack = t.stack, .layer = t.layer, .number = part_number(p), .cross = a.spec.cross},
          of_memory ? t.value : text_rows(model, t.stack, t.value));
    });
  look(device, model, taps, ids, source);
  for (Stack stack : {Stack::encoder, Stack::decoder}) {
    if (!(stack == Stack::encoder ? model.encoder : model.decoder)) continue;
    const std::vector<Layer>& layers = stack_of(model, stack).layers;
    for (std::size_t l = 0; l < layers.size(); ++l)
      for (const Part& p : layers[l].parts)
        for (At at : kOrder) {
          const Attention* a = p.attention();
          if (!a || !a->gate_at(at) || !a->gate_at(at)->value) continue;
          const std::optional<GateLayer>& g = a->gate_at(at);
          std::vector<double> weights;
          for (Dim i = 0; i < g->value->size(); ++i) weights.push_back(g->value->get(0, i));
          run.reset();
          const Tensor values = activation(
              run, g->spec.act, run.upload({1, static_cast<Dim>(weights.size())}, weights).constant());
          const GateStats place{.stack = stack,
                                .layer = static_cast<int>(l),
                                .number = part_number(p),
                                .cross = a->spec.cross,
                                .constant = true};
          add(out, *a, at, place, values);
        }
  }
  if (out.empty())
    fail("gates: the attention of model ", model.recipe.name,
         " has no gates (presets with one: llama3-gate-g1, "
         "qwen3-gate-g1, …); the gate inside a feed-forward part, as in SwiGLU, is another thing");
  std::sort(out.begin(), out.end(), [](const GateStats& a, const GateStats& b) {
    return std::tuple(a.stack, a.layer, a.cross, a.number, a.at, a.head) <
           std::tuple(b.stack, b.layer, b.cross, b.number, b.at, b.head);
  });
  return out;
}

}  // namespace rapt
