// SPDX-License-Identifier: Apache-2.0
// What the attention of one request's own rows looked like: statistics that the fused kernel hands out, so
// nothing of size T x T is made (`rapt.look`), and the same by layer for the server's metrics.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/nn/model.h"
#include "rapt/run/taps.h"

namespace rapt::server {

class AnswerLook {
 public:
  // "layers": means by layer; "heads": by head; "tokens": by position, over all heads.
  struct Wanted {
    bool layers = false, heads = false, tokens = false;
    bool any() const { return layers || heads || tokens; }
  };
  // Of `rapt.look`; fails with an ApiError that names what there is.
  static Wanted wanted(const std::vector<Json>& look);

  // Watches every self-attention of the decoder; both must outlive the request.
  AnswerLook(Taps& taps, const Model& model, Wanted wanted);

  // Members of an object, once the request is done: "\"look\":{…}". Rows that were found in the cache were
  // not seen: `reused_positions` says how many.
  std::string json(Dim reused) const;

  struct Sums {
    double rows = 0, entropy = 0, sink = 0, self = 0, previous = 0, distance = 0;
    double max_logit = -1e300;
    void add(const Sums& other);
  };
  const std::vector<std::vector<Sums>>& heads() const { return heads_; }  // [layer][head]

 private:
  void see(const Tapped& t);

  Wanted wanted_;
  std::vector<std::vector<Sums>> heads_;
  std::vector<Sums> tokens_;  // by position
};

}  // namespace rapt::server
