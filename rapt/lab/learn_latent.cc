// SPDX-License-Identifier: Apache-2.0
// Keys and values made of one short vector per token, against keys and values shared among heads: what each
// leaves of the cache and of the quality, at equal size.
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "rapt/nn/size.h"

namespace rapt {
namespace {

// Heads so small that what is shared among them is short of room.
constexpr Dim kQueryHeads = 4, kSmallHead = 4, kLatent = 2 * kSmallHead, kHalfLatent = kSmallHead;

Recipe two_key_lookup() {
  Recipe r = with_ffn(toy_recipe(1, kQueryHeads, kLookupVocab));
  self_attn(r).pos.kind = PosRecipe::Kind::none;  // items are found by what they are
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
  const auto add = [&](std::string name, const Recipe& recipe) {
    toys.push_back({.name = std::move(name),
                    .recipe = recipe,
                    .task = task,
                    .seed = lab.seed,
                    .steps = 1000,
                    .cosine = true});
  };
  add(concat("MHA, ", kQueryHeads, " heads"), sharing_heads(kQueryHeads));
  add("GQA, 2", sharing_heads(2));
  add("MQA, 1", sharing_heads(1));
  add(concat("MLA, latent of ", kLatent), of_latent(kLatent));
  add(concat("MLA, latent of ", kHalfLatent), of_latent(kHalfLatent));
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{.title =
                  "equal size (a wider feed-forward part makes up for smaller matrices); two-key lookup, "
                  "guessing is 4.159 nats",
              .columns = {"variant", "parameters", "numbers cached per token", "loss"},
              .rows = {}};
  for (const Trained& t : runs)
    table.rows.push_back({t.name, Cell(static_cast<double>(t.model->parameters()), 0),
                          Cell(numbers_cached(t.model->recipe), 0), Cell(t.end().trigger_loss)});
  out.document.parts = {table, loss_chart("loss", runs)};
  const auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  const auto cache = [&](std::size_t i) { return numbers_cached(runs[i].model->recipe); };
  out.findings = {
      below("numbers cached, latent against MHA", cache(3) / cache(0), 0.3, "x",
            "as much as GQA with 2.25 groups (DeepSeek-V2 2024)"),
      below("loss, latent minus MQA with the same cache", loss(3) - loss(2), 0, "nats",
            "MLA above MHA, GQA and MQA below it (DeepSeek-V2 2024)", false),
      below("loss, latent minus GQA with twice its cache", loss(3) - loss(1), 0, "nats", "", false),
      below("loss, latent minus MHA with four times its cache", loss(3) - loss(0), 0.01, "nats",
            "stronger than MHA (DeepSeek-V2 2024)", false),
      above("loss with half the latent minus the whole one", loss(4) - loss(3), 0.1, "nats"),
  };
  out.verdict = concat(
      "At equal size MHA ends at ", digits(loss(0), 3), " nats with ", digits(cache(0), 0),
      " numbers cached per token, GQA at ", digits(loss(1), 3), " with ", digits(cache(1), 0), ", MQA at ",
      digits(loss(2), 3), " with ", digits(cache(2), 0), ", keys and values of one latent at ",
      digits(loss(3), 3), " with ", digits(cache(3), 0), " and at ", digits(loss(4), 3), " with ",
      digits(cache(4), 0), ". ",
      loss(3) < loss(2) ? "With MQA's cache each head still has keys and values of its own, and it shows."
                        : "Keys and values of its own for every head gained nothing over MQA's here.");
  return out;
}

}  // namespace rapt
