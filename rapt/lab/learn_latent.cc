// SPDX-License-Identifier: Apache-2.0
// Keys and values made of one short vector per token, against keys and values shared among heads: what each
// leaves of the cache and of the quality, at equal size.
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/lookup.h"
#include "rapt/nn/size.h"

namespace rapt {
namespace {

// Heads so small that what is shared among them is short of room.
constexpr Dim kQueryHeads = 4, kSmallHead = 4, kLatent = 2 * kSmallHead, kHalfLatent = kSmallHead;

Recipe two_key_lookup() {
  Recipe r = lookup_recipe(1, kQueryHeads);
  self_attn(r).head_dim = kSmallHead;
  return r;
}

// A wider feed-forward part makes up for what the attention has less.
Recipe at_equal_size(const Recipe& full, Recipe r) {
  ffn_of(r).width += (Model(full).parameters() - Model(r).parameters()) / (3 * r.width);
  return r;
}
Recipe sharing_heads(Dim kv_heads) {
  Recipe r = two_key_lookup();
  self_attn(r).kv_heads = kv_heads;
  return at_equal_size(two_key_lookup(), r);
}
Recipe of_latent(Dim rank) {
  Recipe r = two_key_lookup();
  self_attn(r).latent = LatentRecipe{.rank = rank, .rope_dim = 0};
  return at_equal_size(two_key_lookup(), r);
}

double numbers_cached(const Recipe& r) { return static_cast<double>(count_cost(resolve(r), 32).kv_values); }

}  // namespace

LabResult mla(const Lab& lab) {
  const ToyTask task = lookup_task(lab.seed, 2);
  std::vector<Toy> toys;
  const auto add = [&](Text name, const Recipe& recipe) {
    toys.push_back({.name = std::move(name),
                    .recipe = recipe,
                    .task = task,
                    .seed = lab.seed,
                    .steps = 1000,
                    .cosine = true});
  };
  add("MHA", sharing_heads(kQueryHeads));
  add("GQA-2", sharing_heads(2));
  add("MQA", sharing_heads(1));
  add(say("lab.mla.latent", kLatent), of_latent(kLatent));
  add(say("lab.mla.latent", kHalfLatent), of_latent(kHalfLatent));
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{
      .title = say("lab.gqa.equal"),
      .columns = {say("lab.variant"), say("lab.heads.parameters"), say("lab.gqa.cached"), say("lab.loss")},
      .rows = {}};
  for (const Trained& t : runs)
    table.rows.push_back({t.name, Cell(static_cast<double>(t.model->parameters()), 0),
                          Cell(numbers_cached(t.model->recipe), 0), Cell(t.end().trigger_loss)});
  out.document.parts = {table, loss_chart(say("lab.gqa.losses"), runs)};
  const auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  const auto cache = [&](std::size_t i) { return numbers_cached(runs[i].model->recipe); };
  out.findings = {
      below(say("lab.mla.f.cache"), cache(3) / cache(0), 0.3, "x", say("lab.mla.p.groups")),
      below(say("lab.mla.f.mqa"), loss(3) - loss(2), 0, "nats", say("lab.mla.p.below"), false),
      below(say("lab.mla.f.gqa"), loss(3) - loss(1), 0, "nats", "", false),
      below(say("lab.mla.f.mha"), loss(3) - loss(0), 0.01, "nats", say("lab.mla.p.stronger"), false),
      above(say("lab.mla.f.half"), loss(4) - loss(3), 0.1, "nats"),
  };
  const Text of_latent_said = cache(3) > 0.3 * cache(0)
                                  ? say("lab.mla.v.no_smaller", digits(cache(3), 0), digits(cache(0), 0))
                                  : say("lab.mla.v.smaller", digits(cache(3), 0), digits(cache(0), 0),
                                        digits(cache(1), 0), digits(cache(2), 0));
  out.verdict = sentences({of_latent_said,
                           say("lab.mla.v.losses", digits(loss(0), 3), digits(loss(1), 3), digits(loss(2), 3),
                               digits(loss(3), 3)),
                           loss(3) < loss(2) ? say("lab.mla.v.own") : say("lab.mla.v.nothing"),
                           loss(3) < loss(0) + 0.01 ? say("lab.mla.v.mha_too") : say("lab.mla.v.mha_not"),
                           say("lab.mla.v.half", digits(cache(4), 0), digits(loss(4), 3))});
  return out;
}

}  // namespace rapt
