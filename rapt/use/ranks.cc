// SPDX-License-Identifier: Apache-2.0
// Leaves and weights are dealt by numbers that all ranks know, so nobody asks.
#include "rapt/use/ranks.h"

#include <algorithm>
#include <cstring>

#include "rapt/nn/weight_table.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/optimize.h"
#include "rapt/report/document.h"

namespace rapt {

LeafRange leaves_of(Dim leaves, int rank, int ranks) {
  return {leaves * rank / ranks, leaves * (rank + 1) / ranks};
}

LeafTree<char> nodes_of(LeafRange range) {
  LeafTree<char> tree;
  for (Dim n = range.first; n < range.end; ++n) tree.push({.first = n, .value = 0}, [](char&, char) {});
  return tree;
}

Deal deal_weights(const Model& model, const GradientLayout& layout, int ranks,
                  const std::function<bool(const Weight&)>& whole) {
  const auto n = static_cast<std::size_t>(ranks);
  Deal out;
  out.shards.resize(n);
  std::vector<double> have(n);  // numbers of the buckets so far, by rank
  double all = 0;
  for (const GradientLayout::Bucket& bucket : layout.buckets) {
    // What each still lacks of an even part of everything up to here; the bucket is cut in proportion.
    all += static_cast<double>(bucket.size);
    std::vector<double> ends;  // by rank, of the bucket
    double lacking = 0;
    for (const double h : have) ends.push_back(lacking += std::max(0.0, all / ranks - h));
    std::vector<Dim> cuts = {bucket.begin};
    for (int i = bucket.end - 1; i >= bucket.first; --i) {
      const Weight& w = model.weights[static_cast<std::size_t>(i)];
      const Dim place = layout.place[static_cast<std::size_t>(i)];
      if (place < 0) continue;
      const Dim piece = whole(w) ? std::max<Dim>(w.stored(), 1) : Dim{kOptimizePiece};
      for (Dim begin = 0; begin < w.stored(); begin += piece) {
        const Dim end = std::min(w.stored(), begin + piece);
        // The rank in whose part the middle of the piece lies.
        const double middle =
                         static_cast<double>(place - bucket.begin) + static_cast<double>(begin + end) / 2,
                     at = middle / static_cast<double>(bucket.size) * lacking;
        while (cuts.size() < n && at >= ends[cuts.size() - 1]) cuts.push_back(place + begin);
        const std::size_t rank = cuts.size() - 1;
        Shard& shard = out.shards[rank];
        if (!shard.empty() && shard.back().weight == i) shard.back().end = end;
        else shard.push_back({i, begin, end});
        have[rank] += static_cast<double>(end - begin);
      }
    }
    cuts.resize(n + 1, bucket.begin + bucket.size);
    out.cuts.push_back(std::move(cuts));
  }
  for (Shard& shard : out.shards) std::ranges::reverse(shard);  // weights came last one first
  return out;
}

void check_alike(Comm& comm, const std::string& what) {
  const std::vector<std::size_t> one(static_cast<std::size_t>(comm.size()), 1);
  const std::uint64_t length = what.size();
  const std::vector<std::uint64_t> lengths = gather<std::uint64_t>(comm, {&length, 1}, one);
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  const std::vector<char> texts = gather<char>(comm, what, counts);
  std::size_t at = 0;
  for (std::size_t r = 0; r < counts.size(); at += counts[r], ++r) {
    const std::string_view first(texts.data(), counts[0]), other(texts.data() + at, counts[r]);
    if (first == other) continue;
    const auto same = std::mismatch(first.begin(), first.end(), other.begin(), other.end()).first;
    const auto from = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, same - first.begin() - 20));
    const auto part = [&](std::string_view text) {
      return valid_text(text.substr(std::min(from, text.size()), 60));
    };
    fail("train: rank ", r, " trains otherwise than rank 0: … ", part(other), " …, there … ", part(first),
         " …; give every rank the same command, data and RAPT_ISA");
  }
}

void gather_weights(Comm& comm, Model& model, const GradientLayout& layout, const Deal& deal) {
  if (comm.size() == 1) return;
  const std::size_t number = size_of(model.real);
  // A bucket as it lies in the slab of gradients; f(where a weight's numbers are, in it, bytes).
  const auto each_range = [&](const GradientLayout::Bucket& bucket, Dim from, Dim to, const auto& f) {
    for (int i = bucket.end - 1; i >= bucket.first; --i) {
      const Weight& w = model.weights[static_cast<std::size_t>(i)];
      const Dim place = layout.place[static_cast<std::size_t>(i)];
      const Dim begin = std::max(place, from), end = std::min(place + w.stored(), to);
      if (place < 0 || begin >= end) continue;
      f(w.data.get() + static_cast<std::size_t>(begin - place) * number,
        static_cast<std::size_t>(begin - bucket.begin) * number,
        static_cast<std::size_t>(end - begin) * number);
    }
  };
  const auto me = static_cast<std::size_t>(comm.rank());
  std::vector<std::byte> moved;
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    const GradientLayout::Bucket& bucket = layout.buckets[b];
    moved.resize(static_cast<std::size_t>(bucket.size) * number);
    each_range(bucket, deal.cuts[b][me], deal.cuts[b][me + 1],
               [&](const std::byte* weights, std::size_t at, std::size_t bytes) {
                 std::memcpy(moved.data() + at, weights, bytes);
               });
    std::vector<Comm::Space> all;
    for (std::size_t r = 0; r + 1 < deal.cuts[b].size(); ++r)
      all.push_back(
          std::span(moved).subspan(static_cast<std::size_t>(deal.cuts[b][r] - bucket.begin) * number,
                                   static_cast<std::size_t>(deal.cuts[b][r + 1] - deal.cuts[b][r]) * number));
    comm.all_gather(all[me], all);
    each_range(bucket, bucket.begin, bucket.begin + bucket.size,
               [&](std::byte* weights, std::size_t at, std::size_t bytes) {
                 std::memcpy(weights, moved.data() + at, bytes);
               });
  }
}

}  // namespace rapt
