// SPDX-License-Identifier: Apache-2.0
// Observers of a pass. They ask beforehand, so a fused kernel can hand out what it would otherwise never store, and a pass
// that nobody watches does no extra work.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "rapt/tensor/tensor.h"

namespace rapt {

struct RowPlan;  // batch.h

// clang-format off
enum class Site {
  tokens,        // rows of the token table, scaled                   [T,C]
  positions,     // what is added to them for their places: learned or sinusoid [T,C]
  embed,         // what enters the stack                             [T,C]
  resid_in,      // residual stream before a part (attention, cross, ffn); of a parallel layer once [T,C]
  q_proj, k_proj, v_proj,  // projected, with their bias              [T,H,D] [S,K,D] [S,K,Dv]
  q_normed, k_normed,      // after their norm, where it stands before the rotation
  q, k, v,       // as the attention reads them                       [T,H,D] [S,K,D] [S,K,Dv]
  gate_in,       // gate values before their activation               [T,…]
  gate,          // gate values after their activation; an edit has no effect here [T,…]
  z,             // attention result after its gate or norm           [T,H,Dv]
  attn_out,      // after the output projection                       [T,C]
  attn_stats,    // AttentionStat per row and head                    [T,H,AttentionStat::count]
  attn_weights,  // chosen rows only, see Taps::want_weights          [keys]
  ffn_in,        // what a feed-forward part reads, after its norm    [T,C]
  ffn_pre,       // before the activation                             [T,F]
  ffn_linear,    // of a gated unit: the factor without activation    [T,F]
  ffn_hidden,    // [T,F]
  ffn_out,       // [T,C]
  part_out,      // attn_out or ffn_out after the part's own norm: what the residual stream gains [T,C]
  resid_sum,     // residual stream after a part whose norm stands on the sum, before that norm [T,C]
  resid_out,     // residual stream after a layer                     [T,C]
  final_norm,    // [T,C]
  unembed,       // logits before their cap                           [T,V]
  logits,        // [T,V]
  attn_in,       // what an attention projects, after its norm        [T,C]
  count
};
// clang-format on

enum class Stack : int { encoder, decoder };

// The columns of attn_stats, all taken over the row's weights before dropout.
struct AttentionStat {
  enum { entropy, first, self, previous, distance, strongest, max_logit, sum, count };
};

struct Tapped {
  Site site;
  Stack stack;
  int layer;
  Tensor value;
  bool cross = false;                // of cross-attention
  Dim head = -1, row = -1;           // attn_weights only: which row; value then starts with the learned slots, if any
  const RowPlan* plan = nullptr;     // attn_stats only: the sequences of the rows, and which keys each may see
  int part = -1;                     // resid_in, resid_sum, part_out, gates: which part of the layer
};

class Taps {
 public:
  using See = std::function<void(const Tapped&)>;
  using Edit = std::function<void(const Tapped&)>;  // may change value's elements; the gradient passes as if it had not
  struct HeadRow {
    Dim head, row;
  };
  using Choose = std::function<std::vector<HeadRow>(Stack, int layer, bool cross)>;

  void see(Site site, See f) { at(site).see.push_back(std::move(f)); }
  void edit(Site site, Edit f) { at(site).edit.push_back(std::move(f)); }
  void want_weights(Choose f, See see_them) {
    choose_ = std::move(f);
    see(Site::attn_weights, std::move(see_them));
  }

  bool sees(Site site) const { return !muted && !at(site).see.empty(); }
  bool edits(Site site) const { return !at(site).edit.empty(); }
  void show(const Tapped& t) const {
    for (const See& f : at(t.site).see) f(t);
  }
  void change(const Tapped& t) const {
    for (const Edit& f : at(t.site).edit) f(t);
  }
  std::vector<HeadRow> chosen(Stack stack, int layer, bool cross) const {
    return choose_ && !muted ? choose_(stack, layer, cross) : std::vector<HeadRow>{};
  }

  Dim first_keys = 4;  // how many keys "the first tokens" are in attn_stats
  bool muted = false;  // while a segment is recomputed: nobody sees a value twice, edits still apply

 private:
  struct Both {
    std::vector<See> see;
    std::vector<Edit> edit;
  };
  const Both& at(Site s) const { return sites_[static_cast<std::size_t>(s)]; }
  Both& at(Site s) { return sites_[static_cast<std::size_t>(s)]; }
  std::array<Both, static_cast<std::size_t>(Site::count)> sites_;
  Choose choose_;
};

}  // namespace rapt
