// SPDX-License-Identifier: Apache-2.0
// What the attention of one request's own rows looked like: statistics that the fused kernel hands out, so
// nothing of size T x T is made (`rapt.look`), and the same by layer for the server's metrics.
#pragma once
#include <cstdint>
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
    bool live = false;  // LiveLook
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

// The rows of attention statistics that came last, while an answer is written ("live"): what the model looked
// at when it chose a token. Seen on the thread that steps, which also takes it.
class LiveLook {
 public:
  // Watches every self-attention of the decoder; both must outlive the request.
  LiveLook(Taps& taps, const Model& model);
  LiveLook(const LiveLook&) = delete;
  LiveLook& operator=(const LiveLook&) = delete;
  // "\"live\":{…}" of the last row; "" where none was seen since.
  std::string take();

 private:
  void see(const Tapped& t);

  struct Line {  // of an attention: its heads are columns from `first` on
    int layer = 0, part = 0;
    std::size_t first = 0, heads = 0;
  };
  std::vector<Line> lines_;
  std::size_t layers_ = 0, heads_ = 0;
  Dim before_ = 0, row_ = -1;  // learned tokens before the text
  std::vector<std::uint16_t> halves_;  // f16 [L,H,8]; NaN: no such head
};

}  // namespace rapt::server
