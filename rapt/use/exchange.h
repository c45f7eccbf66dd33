// SPDX-License-Identifier: Apache-2.0
// The gradients of a step, summed over ranks while backward goes on: a thread of its own, the courier, hands
// each bucket to the ranks that move its numbers as soon as backward is done with it, and adds what comes in,
// in the tree of leaves. All couriers make the same calls in the same order: losses, then bucket by bucket.
// Where a loss is not finite all of them see it first, and no bucket is sent.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "rapt/comm/comm.h"
#include "rapt/use/leaves.h"
#include "rapt/use/ranks.h"
#include "rapt/use/timeline.h"

namespace rapt {

class Exchange {
 public:
  // All must outlive it.
  Exchange(Comm& comm, Device& device, const Model& model, const GradientLayout& layout, const Deal& deal);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // A step of so many leaves; `losses` are those of this rank's, `nodes` its sums, which may still grow, and
  // `spare` a gradient whose memory nothing else uses until the next step (a node, too). From here to
  // finish() or stop() nobody else calls Comm.
  void start(Dim leaves, std::vector<double> losses, std::vector<LeafGradients::Node> nodes,
             Gradients& spare);
  bool started() const { return courier_.joinable(); }
  // Nodes have all of their gradients of the weights from this one on.
  void pass(int first);
  // When all is there; what went wrong is thrown.
  void finish();
  // For a step that ends otherwise: the courier makes no further call, and is waited for. Others then wait
  // for this rank until its job ends.
  void stop() noexcept;

  std::vector<double> losses;  // of all leaves
  // By weight, where all losses are finite: the numbers of the sum that this rank moves (nullptr: none, or no
  // leaf has a gradient of it), valid until the next step; and whether any leaf has.
  std::vector<const std::byte*> at;
  std::vector<bool> live;

  Timeline* timeline = nullptr;

 private:
  struct RankNode {  // of any rank
    Dim first, count;
    std::size_t rank, number;  // number: which of the rank's
  };
  void carry();
  void add_bucket(std::size_t b);
  bool wait_for(int first);  // false: stopped

  Comm& comm_;
  Device own_;  // the courier's: it does not wait for backward's threads
  const Model& model_;
  const GradientLayout& layout_;
  const Deal& deal_;

  Dim leaves_ = 0;
  std::vector<LeafGradients::Node> nodes_;
  Gradients* spare_ = nullptr;
  std::vector<RankNode> all_;  // the nodes of all ranks, in the order of leaves
  std::vector<std::size_t> counts_;  // how many each rank has
  std::vector<std::vector<std::byte>> received_;  // by node: its part of a bucket

  std::thread courier_;
  std::exception_ptr error_;
  std::mutex lock_;
  std::condition_variable changed_;
  int passed_ = 0;
  bool stopped_ = false;
};

}  // namespace rapt
