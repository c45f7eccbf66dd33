// SPDX-License-Identifier: Apache-2.0
// What tests of training share: data made by a rule, a small recipe, options, weights as bytes.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/nn/model.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/train.h"

namespace rapt::test {

// Sequences in which each token follows from the one before it; every twelfth is drawn.
class Chain : public TrainData {
 public:
  explicit Chain(Dim sequences = 6, Dim length = 17) : sequences_(sequences), length_(length) {
    vocab = kVocab;
  }
  static constexpr Dim kVocab = 13;

  TrainBatch batch(std::uint64_t number) const override { return make(number + 1); }
  Dim held_out() const override { return 2; }
  TrainBatch held_out_batch(Dim number) const override { return make(~static_cast<std::uint64_t>(number)); }
  double epochs(std::uint64_t) const override { return 0; }
  std::string about() const override { return "a chain"; }

 private:
  TrainBatch make(std::uint64_t key) const {
    TrainBatch b;
    for (Dim n = 0; n < sequences_; ++n) {
      const Dim length = length_ - n % 3;  // odd lengths side by side
      b.sequences.push_back({.first = static_cast<Dim>(b.tokens.size()),
                             .count = length,
                             .id = key * 1000 + static_cast<std::uint64_t>(n)});
      std::int32_t last = 0;
      for (Dim i = 0; i <= length; ++i) {
        const std::int32_t next =
            i % 12 == 0
                ? static_cast<std::int32_t>(random_below(kVocab, mix_key(key, static_cast<std::uint64_t>(n)),
                                                         static_cast<std::uint64_t>(i)))
                : static_cast<std::int32_t>((3 * last + 1) % kVocab);
        if (i < length) b.tokens.push_back(next);
        if (i > 0) b.targets.push_back(next);
        last = next;
      }
    }
    b.counted = static_cast<Dim>(b.targets.size());
    return b;
  }
  Dim sequences_, length_;
};

inline Recipe small(const std::string& preset_name = "gpt-char", std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"width=24", "layers=2", "heads=3", "ffn=40", concat("vocab=", Chain::kVocab), "context=32"});
  return with_settings(preset(preset_name), more);
}

inline TrainOptions options(Dim steps) {
  TrainOptions o;
  o.steps = steps;
  o.schedule = {.kind = Schedule::Kind::cosine, .warmup = 5, .total = steps};
  o.optimizer.rate = 1e-2;
  o.health_every = 7;
  return o;
}

inline std::vector<std::byte> weights_of(const Model& m) {
  std::vector<std::byte> out;
  for (const Weight& w : m.weights) {
    const std::vector<std::byte> bytes = row_major(w);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

inline const std::atomic<int> kNever{0};

// Batches of different size; of every seventh no target counts.
class Uneven : public Chain {
 public:
  TrainBatch batch(std::uint64_t number) const override {
    TrainBatch b = Chain(1 + static_cast<Dim>(number * 5 % 4)).batch(number);
    if (number % 7 == 3) b.targets.assign(b.targets.size(), -1), b.counted = 0;
    return b;
  }
};

}  // namespace rapt::test
