// SPDX-License-Identifier: Apache-2.0
// A part says which of its matrices are met by whole rows (a kind that lacks this does not compile).
#include "rapt/nn/adapted.h"

#include <variant>

namespace rapt {
namespace {

using Rows = Adapter::Rows;

struct Adaptable {
  std::map<const Weight*, Rows>& weights;
  void add(const Weight* w, Rows rows = Rows::own) const {
    if (w) weights.emplace(w, rows);
  }

  void operator()(const Attention& a) const {
    const Rows keys = a.spec.cross ? Rows::memory : Rows::own;
    // Vectors of distances meet q and k, too, for all sequences at once (DeBERTa).
    const bool distances = a.relative && (a.relative->recipe.keys || a.relative->recipe.queries);
    if (!distances) add(a.q.w), add(a.k.w, keys);
    add(a.v.w, keys);
    add(a.o.w);
    if (a.latent) add(a.latent->q_a.w);
    for (const std::optional<GateLayer>& gate : a.gate)
      if (gate) {
        const bool of_keys = gate->at == GateRecipe::At::k || gate->at == GateRecipe::At::v;
        add(gate->w, of_keys ? keys : Rows::own);
      }
  }
  void operator()(const Ffn& f) const {
    for (const LinearLayer* l : {&f.gate, &f.up, &f.down}) add(l->w);
  }
  void operator()(const Moe& m) const {
    add(m.router.w);
    (*this)(m.shared);
    add(m.shared_gate);
  }
  void operator()(const Delta& d) const {
    for (const LinearLayer* l : {&d.q, &d.k, &d.v, &d.z, &d.b, &d.a, &d.out}) add(l->w);
  }
  void operator()(const Conv& c) const {
    for (const LinearLayer* l : {&c.b, &c.c, &c.u, &c.out}) add(l->w);
  }
};

}  // namespace

std::map<const Weight*, Rows> adaptable_weights(const Model& model) {
  std::map<const Weight*, Rows> out;
  const Adaptable of{out};
  for (const auto* stack : {&model.encoder, &model.decoder})
    if (*stack)
      for (const Layer& layer : (*stack)->layers)
        for (const Part& part : layer.parts) std::visit(of, part.body);
  if (model.recipe.head.kind == HeadRecipe::Kind::vocab) of.add(model.head.w, Rows::wanted);
  return out;
}

AdaptedRows::List adapted_list(std::span<const Sequence> sequences) {
  AdaptedRows::List out;
  for (const Sequence& s : sequences) out.rows = s.first + s.count;
  bool more = true;
  for (std::size_t i = 0; more; ++i) {  // the first of every sequence, the second, …
    more = false;
    const std::size_t begin = out.ranges.size();
    for (const Sequence& s : sequences) {
      if (s.adapters.size() <= i) continue;
      more = true;
      const AdapterUse& use = s.adapters[i];
      if (out.ranges.size() > begin) {
        AdaptedRows::Range& last = out.ranges.back();
        if (last.adapter == use.adapter.get() && last.scale == use.scale &&
            last.first + last.count == s.first) {
          last.count += s.count;
          continue;
        }
      }
      out.ranges.push_back({s.first, s.count, use.adapter.get(), use.scale});
    }
  }
  return out;
}

}  // namespace rapt
