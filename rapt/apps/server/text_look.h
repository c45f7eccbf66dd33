// SPDX-License-Identifier: Apache-2.0
// /v1/look: what a model did inside while it read one text. The text is a request of the engine like any
// other, in the background; observers (those of inspect/, and rows of weights that the op hands out) see its
// rows as they come, in whatever pieces. What takes a further computation (figures of heads from rows
// computed anew, the logit lens) follows on a worker, between the engine's steps. Values are those of
// `rapt inspect`.
//
//   TextLook look(model, asked, ids);   checks sizes, installs observers; fails before it allocates
//   engine.add(look.request())
//   look.reply(…)                       after its last event
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/apps/server/served_model.h"
#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/lens.h"
#include "rapt/inspect/norms.h"

namespace rapt::server {

class TextLook {
 public:
  // Fails with an ApiError 400 that names what is too much, or is not there.
  TextLook(ServedModel& model, LookRequest asked, std::vector<std::int32_t> ids);
  TextLook(const TextLook&) = delete;
  TextLook& operator=(const TextLook&) = delete;

  Request request();  // tokens, observers, rows; who asks is the caller's to say
  // The reply. Ends with Cancelled where `gone` is set meanwhile. Seconds: in the queue, of the pass.
  std::string reply(double queue_seconds, double pass_seconds, const std::atomic<bool>& gone);

 private:
  struct Line {  // one attention of a layer: its heads are columns from `first` on
    int layer = 0, part = 0, first = 0, heads = 0, number = 0;
  };
  const Line* line_of(const Tapped& t) const;
  void check_sizes();
  void watch_attention();
  void watch_gates();
  void watch_residual_rows();
  void take_logits(std::span<const Dim> positions, const Tensor& logits);
  void append_array(std::string& out, std::string_view name, std::span<const float> values,
                    std::initializer_list<Dim> shape) const;
  void append_tokens(std::string& out) const;
  void append_heads(std::string& out, const std::atomic<bool>& gone) const;
  void append_token(std::string& out) const;
  void append_maps(std::string& out) const;
  void append_massive(std::string& out) const;
  void append_lens(std::string& out) const;
  std::string text_of(std::int32_t id) const;
  std::size_t at(Dim layer, Dim head) const { return static_cast<std::size_t>(layer * heads_ + head); }

  ServedModel& model_;
  LookRequest asked_;
  std::vector<std::int32_t> ids_;
  Dim tokens_ = 0, token_ = 0, layers_ = 0, heads_ = 0, before_ = 0;  // before: learned tokens
  std::vector<Line> lines_;
  bool one_piece_ = false;
  Taps taps_;
  std::function<void()> edits_touched_;

  std::unique_ptr<AttentionRecord> record_;
  std::unique_ptr<NormReader> norms_;
  std::vector<NextToken> next_;  // by token
  std::vector<float> stats_, gates_;  // of the chosen token: [L][H][8], [L][H]
  bool gated_ = false;
  std::optional<MapPooling> pooling_;  // map
  std::optional<MapPooling> small_;  // maps: all heads, small
  std::vector<std::vector<float>> maps_;  // [L H]: pixels of each
  std::vector<double> received_;  // [L][H][T]: sum over rows of the weight on a key
  std::vector<float> map_, row_, weights_;  // row: [layers][H][T]; weights: of one row, on every key
  Dim row_layers_ = 0;
  Dim piece_position_ = 0, piece_rows_ = 0;  // of the attention under way
  std::vector<std::vector<float>> residual_;  // [L + 1], all tokens or the chosen one
};

}  // namespace rapt::server
