// SPDX-License-Identifier: Apache-2.0
// A training on several ranks: who computes which leaves of a step, who moves which numbers of the model, and
// what they hand each other. Sums are those of leaves.h: ranks hold nodes of one tree, so no bit depends on
// how many they are.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/comm/comm.h"
#include "rapt/use/leaves.h"

namespace rapt {

struct LeafRange {
  Dim first = 0, end = 0;
};
// Even, consecutive ranges; empty ones where there are more ranks than leaves.
LeafRange leaves_of(Dim leaves, int rank, int ranks);

// Numbers of one weight, in its stored order.
struct ShardRange {
  int weight = 0;  // its index
  Dim begin = 0, end = 0;
};
using Shard = std::vector<ShardRange>;  // of one rank; at most one range of a weight
// What each rank moves: consecutive ranges of all parameters in their order, cut where the optimizer's pieces
// begin (kOptimizePiece) and as even as they are long; `whole`: a weight that is not cut.
std::vector<Shard> shards_of(const Model& model, int ranks, const std::function<bool(const Weight&)>& whole);

// Every rank's list, in the order of ranks; rank r's has counts[r] values.
template <class T>
std::vector<T> gather(Comm& comm, std::span<const T> mine, std::span<const std::size_t> counts) {
  std::size_t total = 0;
  for (const std::size_t n : counts) total += n;
  std::vector<T> out(total);
  std::vector<Comm::Space> all;
  std::size_t at = 0;
  for (const std::size_t n : counts) {
    all.push_back(std::as_writable_bytes(std::span(out).subspan(at, n)));
    at += n;
  }
  comm.all_gather(std::as_bytes(mine), all);
  return out;
}

// Fails, on every rank, where ranks do not say the same.
void check_alike(Comm& comm, const std::string& what);

class RankSum {
 public:
  // All must outlive it.
  RankSum(Comm& comm, Device& device, const Model& model, const std::vector<Shard>& shards)
      : comm_(comm), device_(device), model_(model), shards_(shards) {}

  // The sum of all leaves' gradients. `nodes`: of this rank's leaves; their memory is used. Afterwards `at`
  // has, by weight, the numbers of it that this rank moves (nullptr: none, or no leaf has a gradient of it),
  // valid as long as `nodes`, and until the next call; `live`, by weight, whether any leaf has.
  void add(std::vector<LeafTree<Gradients>::Node>& nodes, Dim leaves);
  std::vector<const std::byte*> at;
  std::vector<bool> live;

 private:
  Comm& comm_;
  Device& device_;
  const Model& model_;
  const std::vector<Shard>& shards_;
  std::vector<std::vector<std::byte>> sent_, received_;  // by rank
};

// A number of state for each of a weight's: `part` has those of this rank's range, the result all of them.
Weight gather_state(Comm& comm, const Model& model, const std::vector<Shard>& shards, const Weight& of,
                    const std::string& name, const Weight& part);

// What each rank moved, to all.
void gather_weights(Comm& comm, Model& model, const std::vector<Shard>& shards);

}  // namespace rapt
