// SPDX-License-Identifier: Apache-2.0
// The bits do not depend on company: a text's logits are equal by memcmp alone and in any batch, at any
// place in it, with any number of threads, in one piece or in chunks through a cache, with or without tape,
// taps and recomputation. The same comparisons run over two deliberately broken tables of kernels, and must
// catch both.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "rapt/base/rng.h"
#include "rapt/ops/linear.h"
#include "tests/bits_tools.h"
#include "tests/build_kind.h"
#include "tests/model_tools.h"

namespace rapt::test {
namespace {

constexpr Site kSites[] = {site::tokens,
                           site::positions,
                           site::embed,
                           site::resid_in,
                           site::part_out,
                           site::resid_sum,
                           site::resid_out,
                           site::final_norm,
                           site::unembed,
                           site::logits,
                           site::attn_in,
                           site::q_proj,
                           site::k_proj,
                           site::v_proj,
                           site::q_normed,
                           site::k_normed,
                           site::q,
                           site::k,
                           site::v,
                           site::z,
                           site::attn_out,
                           site::attn_stats,
                           site::attn_weights,
                           site::ffn_in,
                           site::ffn_pre,
                           site::ffn_linear,
                           site::ffn_hidden,
                           site::ffn_out,
                           site::router,
                           site::expert_weights,
                           site::expert_indices,
                           site::gate_in(GateRecipe::At::sdpa),
                           site::gate(GateRecipe::At::sdpa)};

struct Subject {
  Recipe recipe;
  Dim length;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  AttnRecipe llama{.heads = 4, .kv_heads = 2, .head_dim = 16};
  llama.pos.kind = PosRecipe::Kind::rope;
  all.push_back({small_decoder("llama type", 40, llama, {.width = 72}, {}), 150});

  AttnRecipe gpt{.heads = 5, .bias = {true, true, true, true}};
  Recipe g = small_decoder("gpt type", 40, gpt,
                           {.kind = FfnRecipe::Kind::mlp, .act = Act::gelu_tanh, .width = 600, .bias = true},
                           {.kind = NormRecipe::Kind::layer, .bias = true});
  g.embed.pos = EmbedRecipe::Pos::learned;
  g.head.tied = true;
  all.push_back({g, 70});  // its feed-forward has more inputs than one chain of products

  AttnRecipe gated{.heads = 4, .kv_heads = 1, .head_dim = 12, .window = 20, .keep = 4, .cap = 30};
  gated.pos.kind = PosRecipe::Kind::rope;
  gated.qk_norm = QkNormRecipe{};
  gated.gate.push_back({});
  gated.extra.kind = ExtraRecipe::Kind::learned_logit;
  Recipe w = small_decoder("gated, streaming", 40, gated, {.width = 48}, {});
  for (PartRecipe& p : w.decoder->kinds["L"].parts) p.residual_scale = 0.7;
  all.push_back({w, 90});

  AttnRecipe slots{.heads = 2, .head_dim = 8};
  slots.pos.kind = PosRecipe::Kind::alibi;
  slots.extra = {.kind = ExtraRecipe::Kind::kv_slots, .slots = 3};
  Recipe s = small_decoder("long, slots", 40, slots, {.width = 24}, {});
  s.decoder->layers = 1;
  all.push_back({s, 1100});  // more than one split of keys

  AttnRecipe routed{.heads = 4, .head_dim = 16};
  routed.pos.kind = PosRecipe::Kind::rope;
  Recipe m = small_decoder("experts", 40, routed, {}, {});
  m.decoder->kinds["L"].parts[1].body = MoeRecipe{.experts = 7,
                                                  .used = 3,
                                                  .width = 24,
                                                  .router = {.renormalise = false},
                                                  .shared = SharedExpertRecipe{.gated = true}};
  m.decoder->pattern = "LM";
  m.decoder->kinds["M"] = m.decoder->kinds["L"];
  m.decoder->kinds["M"].parts[1].body = MoeRecipe{.experts = 3,
                                                  .used = 1,
                                                  .width = 600,
                                                  .bias = true,
                                                  .router = {.score = RouterRecipe::Score::sigmoid,
                                                             .choice_bias = true,
                                                             .renormalise = false,
                                                             .weight_at = RouterRecipe::WeightAt::input}};
  all.push_back({m, 130});

  AttnRecipe latent{.heads = 5, .head_dim = 17, .v_dim = 7};
  latent.pos.kind = PosRecipe::Kind::rope;
  latent.latent = LatentRecipe{.rank = 21, .q_rank = 19, .rope_dim = 6};
  all.push_back({small_decoder("latent", 40, latent, {.width = 24}, {}), 130});
  Recipe d = small_decoder("states", 40, llama, {.width = 48}, {});
  d.decoder->layers = 3, d.decoder->pattern = "DLC";
  d.decoder->kinds["D"] = d.decoder->kinds["C"] = d.decoder->kinds["L"];
  d.decoder->kinds["D"].parts[0].body =
      DeltaRecipe{.key_heads = 2, .value_heads = 6, .key_dim = 20, .value_dim = 35};
  d.decoder->kinds["C"].parts[0].body = ConvRecipe{.kernel = 5, .bias = true};
  all.push_back({d, 200});
  return all;
}

Count compare_everything(const Kernels& table) {
  Count count;
  std::uint64_t seed = 1;
  for (const Subject& subject : subjects()) {
    Model model(subject.recipe, table.real);
    randomise(model, seed);
    const bool big = subject.length > 500;
    Device one(table, {.threads = 1});
    const Dim length[] = {subject.length};
    const SomeText text = some_texts(model.recipe, length, seed)[0];
    const std::vector<double> alone = logits_of(one, model, {&text, 1});
    const std::size_t cols = alone.size() / text.tokens.size();

    for (int threads = 1; threads <= 4; ++threads) {
      Device device(table, {.threads = threads});
      // In batches of every size, first, in the middle and last.
      for (Dim batch : {1, 2, 3, 5, 8, 13, 16, 32, 64})
        for (int place = 0; place < 3; ++place) {
          if (big && batch > 8) continue;
          std::vector<Dim> lengths;
          for (Dim i = 0; i < batch; ++i)
            lengths.push_back(
                1 + static_cast<Dim>(random_below(23, seed, static_cast<std::uint64_t>(batch * 100 + i))));
          std::vector<SomeText> texts = some_texts(model.recipe, lengths, seed + 17);
          const auto at = static_cast<std::size_t>(place == 0 ? 0 : place == 1 ? batch / 2 : batch - 1);
          texts[at] = text;
          texts[at].id = 7777;
          std::size_t before = 0;
          for (std::size_t i = 0; i < at; ++i) before += texts[i].tokens.size();
          const std::vector<double> together = logits_of(device, model, texts);
          count.compare(alone, together.data() + before * cols);
        }
      // In chunks through a cache.
      for (Dim chunk : {Dim{1}, Dim{7}, Dim{64}, subject.length}) {
        if (big && chunk == 1 && threads > 2) continue;
        KvPool cache(model);
        count.compare(alone, logits_cached(device, model, text, chunk, cache).data());
      }
      // With a tape, with recomputation, with taps at every site, with edits that change nothing.
      for (int mode = 0; mode < 4; ++mode) {
        Run run(device);
        Gradients gradients(device.real);
        Tape tape(gradients);
        Taps taps;
        if (mode < 2) run.tape = &tape;
        run.recompute = mode == 1;
        if (mode >= 2) run.taps = &taps;
        for (const Site site : kSites) {
          if (mode == 2) taps.see(site, [](const Tapped&) {});
          if (mode == 3) taps.edit(site, [](const Tapped&) {});
        }
        if (mode == 2)
          taps.want_weights(
              site::attn_weights, [](const Tapped&) { return std::vector<Taps::HeadRow>{{0, 3}, {1, 5}}; },
              [](const Tapped&) {});
        const PackedBatch packed({&text, 1});
        count.compare(alone, all_values(forward(run, model, packed.batch)).data());
      }
    }
    ++seed;
  }
  return count;
}

TEST(Bits, DoNotDependOnBatchPlaceThreadsChunksTapeOrTaps) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  for (const std::string& isa : available_isas()) {
    if (isa == "scalar") continue;  // same source; a minute of its own
    const Count count = compare_everything(kernels_for(isa));
    std::printf("%s: %d comparisons, %d differ\n", isa.c_str(), count.compared, count.different);
    EXPECT_GE(count.compared, 500);
    EXPECT_EQ(count.different, 0) << isa;
  }
}

// ---------------------------------------------------------------------------------------- broken on purpose
// Threads split the inner dimension and their sums are added.
void linear_split_over_threads(Queue& queue, const LinearArgs& a) noexcept {
  const Dim pieces = threads_of(queue);
  for (int n = 0; n < a.count; ++n) {
    const LinearPart& p = a.parts[n];
    for (Dim r = 0; r < a.rows; ++r)
      for (Dim o = 0; o < p.n; ++o) {
        float total = 0;
        for (Dim t = 0; t < pieces; ++t) {
          float sum = 0;
          for (Dim k = t * a.k / pieces; k < (t + 1) * a.k / pieces; ++k)
            sum += static_cast<const float*>(a.x)[r * a.k + k] *
                   static_cast<const float*>(p.w)[(o / kPanel * a.k + k) * kPanel + o % kPanel];
          total += sum;
        }
        if (p.bias) total += static_cast<const float*>(p.bias)[o];
        const float residual = p.residual ? static_cast<const float*>(p.residual)[r * p.n + o] : 0;
        static_cast<float*>(p.y)[r * p.n + o] = residual + static_cast<float>(p.scale) * total;
      }
  }
}

// Key blocks and splits are counted from the start of the buffer instead of the sequence: all sequences
// become one.
void (*right_attention)(Queue&, const AttentionArgs&) noexcept = nullptr;
void attention_counted_from_buffer(Queue& queue, const AttentionArgs& args) noexcept {
  AttentionArgs a = args;
  AttentionPart all{0, a.shape.rows, 0, 0, nullptr};
  std::vector<std::int32_t> low(a.shape.low, a.shape.low + a.shape.rows),
      high(a.shape.high, a.shape.high + a.shape.rows), position(low.size());
  for (Dim p = 0; p < a.shape.part_count; ++p) {
    const AttentionPart& part = a.shape.parts[p];
    if (part.pages || part.keep > 0) return right_attention(queue, args);
    all.k_count = std::max(all.k_count, part.k_first + part.k_count);
    for (Dim r = part.q_first; r < part.q_first + part.q_count; ++r) {
      low[static_cast<std::size_t>(r)] += static_cast<std::int32_t>(part.k_first);
      high[static_cast<std::size_t>(r)] += static_cast<std::int32_t>(part.k_first);
      position[static_cast<std::size_t>(r)] = a.shape.position[r] + static_cast<std::int32_t>(part.k_first);
    }
  }
  a.shape.parts = &all;
  a.shape.part_count = 1;
  a.shape.low = low.data();
  a.shape.high = high.data();
  a.shape.position = a.shape.kept_position = position.data();
  right_attention(queue, a);
}

TEST(Bits, ThreadsThatSplitTheInnerDimensionAreCaught) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  Kernels broken = kernels_for(available_isas().back());
  broken.linear = linear_split_over_threads;
  const Count count = compare_everything(broken);
  std::printf("linear split over threads: %d of %d differ\n", count.different, count.compared);
  EXPECT_GT(count.different, 0);
}

TEST(Bits, SplitsCountedFromTheBufferAreCaught) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  Kernels broken = kernels_for(available_isas().back());
  right_attention = broken.attention;
  broken.attention = attention_counted_from_buffer;
  const Count count = compare_everything(broken);
  std::printf("splits counted from the buffer: %d of %d differ\n", count.different, count.compared);
  EXPECT_GT(count.different, 0);
}

}  // namespace
}  // namespace rapt::test
