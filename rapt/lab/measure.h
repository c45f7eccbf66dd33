// SPDX-License-Identifier: Apache-2.0
// What the experiments that measure without training have in common: random arrays, gradients of sums,
// distances, times, and one attention layer in double to turn and look at.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rapt/lab/experiment.h"
#include "rapt/nn/model.h"

namespace rapt {

std::vector<double> normal_values(std::uint64_t key, Dim count, double scale = 1);
Tensor normal_tensor(Run& run, std::initializer_list<Dim> sizes, std::uint64_t key, double scale = 1);
Weight normal_weight(DType real, Dim rows, Dim cols, std::uint64_t key, double scale = 1,
                     Packing packing = Packing::panels);
std::vector<double> values_of(const Tensor& t);
std::vector<double> gradient_of(Run& run, const Tensor& t);
std::vector<double> gradient_of(const Gradients& gradients, const Weight& w);
std::vector<double> values_of(const Weight& w);  // row by row

double length(std::span<const double> x);  // Euclidean
double largest(std::span<const double> x);
double largest_difference(std::span<const double> a, std::span<const double> b);
double relative_difference(std::span<const double> a, std::span<const double> b);  // |a - b| / |b|
double slope(std::span<const double> x, std::span<const double> y);                // of the best line

bool all_hold(const std::vector<Finding>& findings);  // those that are promised for every seed

// The tape is played back from the sum of y times fixed random numbers.
void backward_from(Run& run, const Tensor& y, std::uint64_t key);

// Processor time that this thread has had: other programs on the machine do not count.
double thread_seconds();
// The shortest of `rounds` calls, in seconds, for work on a device of one thread: what disturbs a
// measurement only makes it longer.
template <class F>
double shortest_time(int rounds, const F& f) {
  double best = 0;
  for (int i = 0; i < rounds; ++i) {
    const double start = thread_seconds();
    f();
    const double seconds = thread_seconds() - start;
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

// One attention layer and nothing else, in double, every weight and bias random: 4 heads of 8 that share 2
// key heads, width 32.
class AttentionRig {
 public:
  enum class Place { decoder, encoder, cross };
  AttentionRig(Device& f64, const AttnRecipe& attn, std::uint64_t seed, Place place = Place::decoder,
               EmbedRecipe::Pos pos = EmbedRecipe::Pos::none);

  Weight& weight(std::string_view name);                // "k.bias", "o.weight" of the layer
  std::vector<double> out();                            // [rows][width], two sequences one after the other
  std::vector<double> gradient(std::string_view name);  // of a sum of the outputs with random factors
  std::vector<std::vector<double>> weights(Dim head);   // attention of the first sequence, [rows][keys]
  void fold_value_bias();                               // b_o += W_O b_v, b_v = 0

  static constexpr Dim kWidth = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kRows = 12;
  bool training = false;  // attention dropout

 private:
  Tensor forward_on(Run& run);
  Device& device_;
  std::uint64_t seed_;
  Place place_;
  std::unique_ptr<Model> model_;
  std::vector<std::int32_t> tokens_, source_;
};

}  // namespace rapt
