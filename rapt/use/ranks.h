// SPDX-License-Identifier: Apache-2.0
// A training on several ranks: who computes which leaves of a step, who moves which numbers of the model, and
// what they hand each other, but for gradients (exchange.h). Sums are those of leaves.h: ranks hold nodes of
// one tree, so no bit depends on how many they are.
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
// The nodes of the tree that a range of leaves leaves.
LeafTree<char> nodes_of(LeafRange range);

// Numbers of one weight, in its stored order.
struct ShardRange {
  int weight = 0;  // its index
  Dim begin = 0, end = 0;
};
using Shard = std::vector<ShardRange>;  // of one rank, by weight; at most one range of a weight

// Who moves what: of each bucket of gradients every rank a range, in the order of ranks, cut where the
// optimizer's pieces begin (kOptimizePiece) and such that all have moved as much as evenly as can be.
struct Deal {
  std::vector<Shard> shards;  // by rank
  std::vector<std::vector<Dim>> cuts;  // by bucket: rank r's range of the slab is from cuts[b][r] to [r + 1]
};
// `whole`: a weight that is not cut. One rank moves all.
Deal deal_weights(const Model& model, const GradientLayout& layout, int ranks,
                  const std::function<bool(const Weight&)>& whole);

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

// What each rank moved, to all, bucket by bucket.
void gather_weights(Comm& comm, Model& model, const GradientLayout& layout, const Deal& deal);

}  // namespace rapt
