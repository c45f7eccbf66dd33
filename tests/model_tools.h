// SPDX-License-Identifier: Apache-2.0
// What tests of whole models share: random weights, batches, passes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rapt/nn/kv_pool.h"
#include "rapt/nn/model.h"

namespace rapt::test {

// Every weight random, also biases and norms, in a range where nothing saturates. Equal numbers for f32 and
// f64 models.
void randomise(Model& model, std::uint64_t seed, double gain = 1);

struct SomeText {  // one sequence
  std::vector<std::int32_t> tokens, types, source;
  Dim prefix = 0;
  std::uint64_t id = 0;
};
std::vector<SomeText> some_texts(const Recipe& recipe, std::span<const Dim> lengths, std::uint64_t seed);

// Texts as a batch; owns what the batch looks at.
struct PackedBatch {
  std::vector<std::int32_t> tokens, types, source_tokens;
  Batch batch, source;
  bool has_source = false;
  explicit PackedBatch(std::span<const SomeText> texts);
  PackedBatch(const PackedBatch&) = delete;
  const Batch* source_or_null() const { return has_source ? &source : nullptr; }
};

// A share of the taps for every sequence of a batch, with the rows that are its own; its observers are yet to
// be named.
std::vector<TapShare> shares_of(const Model& model, const Batch& batch, const Batch* source = nullptr);
KvPool make_cache(const Model& model);

std::vector<double> all_values(const Tensor& t);
// Logits of all texts in one pass; of one text in pieces of `chunk` through a cache (the first piece holds
// the whole prefix).
std::vector<double> logits_of(Device& device, const Model& model, std::span<const SomeText> texts);
std::vector<double> logits_cached(Device& device, const Model& model, const SomeText& text, Dim chunk,
                                  KvPool& cache);

}  // namespace rapt::test
