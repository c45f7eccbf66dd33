// SPDX-License-Identifier: Apache-2.0
// Routing of a mixture of experts: which experts a row uses, the rows of each expert side by side, and the
// sum of their results. The experts' products: grouped_linear.h.
//
//   s = softmax(z) or sigmoid(z), row by row        z [T,E], the router's logits
//   S = the k largest of s + choice, the lowest index where two are equal; with groups, of the experts of the
//       best groups alone. Without choice and groups the order is that of z, which no rounding blurs.
//   w = scale * s_i / (sum over S of s + eps), or / max(sum, eps), or scale * s_i; over the chosen:
//       softmax of z over S
//   y = sum over S of w_i * expert_i(x)             in ascending order of i: part of the result
// A row's choice, weights and sum depend on that row alone.
//
// A row has k slots, its experts in ascending order: slot row * k + j. The T k slots are sorted by expert,
// and by row within an expert: *packed* rows, which the products read. Lists and counts stay where the
// numbers are.
#pragma once
#include <cstdint>

#include "rapt/run/run.h"

namespace rapt {

struct RouteSpec {
  enum class Score : int { softmax, sigmoid, chosen };  // chosen: softmax over the chosen logits
  enum class GroupScore : int { max, top2 };
  std::int64_t experts = 0, used = 0;
  Score score = Score::softmax;
  std::int64_t groups = 1, groups_used = 1;
  GroupScore group_score = GroupScore::top2;  // of max, experts outside count as 0, else as minus infinity
  bool renormalise = true;  // of softmax and sigmoid
  double eps = 0, scale = 1;
  bool eps_least = false;  // max(sum, eps) instead of sum + eps
};

// The auxiliary loss factor * E * sum over e of f_e P_e, which keeps experts evenly used: f_e the share of
// rows that chose e, a constant to the gradient, P_e the mean of softmax(z)_e. Only its gradient is computed
// here; it goes into that of z. `load`: how often each expert was chosen so far in the layers that are
// balanced together; nullptr: this layer alone.
struct Balance {
  double factor = 0;
  std::int64_t* load = nullptr;  // [E]
  bool counted = false;  // this layer's rows are in `load` already (a second run of the layer)
};

struct Routing {
  Tensor weights;  // [T,k]
  std::int64_t rows, used, experts;
  const std::int32_t* chosen;  // [T,k], ascending
  const std::int32_t* begin;  // [E+1]: where the packed rows of each expert begin
  const std::int32_t* slots;  // [T k]: of each packed row
  const std::int32_t* places;  // [T k]: the packed row of each slot
};
// choice [E], in real, or nullptr; it gets no gradient.
Routing route(Run& run, const RouteSpec& spec, const Tensor& z, const Weight* choice, const Balance& balance);

struct RouteArgs {
  RouteSpec spec;
  std::int64_t rows;
  const void *z, *choice;
  void* weights;
  std::int32_t *chosen, *begin, *slots, *places;
  std::int64_t* load;  // [E], added to; or nullptr
};
struct RouteBackwardArgs {
  RouteSpec spec;
  std::int64_t rows;
  const void* z;
  const std::int32_t* chosen;
  const void* dweights;
  void* dz;
  double balance;  // factor; load: how often each expert was chosen
  const std::int64_t* load;
};

// x [T,C] -> [T k, C]: the packed rows, each times its weight where `weighted`.
Tensor dispatch(Run& run, const Tensor& x, const Routing& routing, bool weighted);
// x [T k, C] -> [T,C]: sum over the slots of a row, times their weights where `weighted`.
Tensor combine(Run& run, const Tensor& x, const Routing& routing, bool weighted);

struct DispatchArgs {
  std::int64_t rows, used, cols;  // rows: T
  const std::int32_t *slots, *places;
  const void *x, *weights;  // weights: nullptr for ones
  void* y;
};
struct DispatchBackwardArgs {
  std::int64_t rows, used, cols;
  const std::int32_t *slots, *places;
  const void *x, *weights, *dy;
  void *dx, *dweights;
};
struct CombineArgs {
  std::int64_t rows, used, cols;
  const std::int32_t* places;
  const void *x, *weights;
  void* y;
};
struct CombineBackwardArgs {
  std::int64_t rows, used, cols;
  const std::int32_t* places;
  const void *x, *weights, *dy;
  void *dx, *dweights;
  bool write_dx;
};

// A key per packed row for dropout, from those of the rows and the expert (elementwise.h).
const std::uint32_t* slot_keys(Run& run, const Routing& routing, const std::uint32_t* row_keys);

struct SlotKeysArgs {
  std::int64_t slots, used;
  const std::int32_t *order, *chosen;
  const std::uint32_t* row_keys;
  std::uint32_t* keys;
};

}  // namespace rapt
