// SPDX-License-Identifier: Apache-2.0
// Observers of a pass. They ask beforehand, so a fused kernel can hand out what it would otherwise never
// store, and a pass that nobody watches does no extra work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/tensor/tensor.h"

namespace rapt {

struct RowPlan;  // batch.h

// A place of a pass that observers can ask for. Whoever computes there defines it, in namespace site; there
// is no list of all. Equal names are the same place.
class Site {
 public:
  consteval explicit Site(std::string_view name) : name_(name), id_(14695981039346656037u) {
    for (const char c : name) id_ = (id_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  constexpr std::string_view name() const { return name_; }
  constexpr bool operator==(const Site& other) const { return id_ == other.id_; }

 private:
  std::string_view name_;
  std::uint64_t id_;  // of the name: comparing is one instruction
};

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
  // attn_weights only: which row; value then starts with the learned slots, if any
  Dim head = -1, row = -1;
  // attn_stats only: the sequences of the rows, and which keys each may see
  const RowPlan* plan = nullptr;
  int part = -1;                     // which part of the layer; -1: outside of parts
};

class Taps {
 public:
  using See = std::function<void(const Tapped&)>;
  // May change value's elements; the gradient passes as if it had not.
  using Edit = std::function<void(const Tapped&)>;
  struct HeadRow {
    Dim head, row;
  };
  // Stack, layer, part and cross; no value yet.
  using Choose = std::function<std::vector<HeadRow>(const Tapped& where)>;

  void see(Site site, See f) { make(site).see.push_back(std::move(f)); }
  void edit(Site site, Edit f) { make(site).edit.push_back(std::move(f)); }
  // Rows of attention weights, at `weights`.
  void want_weights(Site weights, Choose f, See see_them) {
    choose_ = std::move(f);
    see(weights, std::move(see_them));
  }

  bool sees(Site site) const {
    const Observers* o = muted ? nullptr : find(site);
    return o && !o->see.empty();
  }
  bool edits(Site site) const {
    const Observers* o = find(site);
    return o && !o->edit.empty();
  }
  bool edits_anything() const {
    for (const Observers& o : observers_)
      if (!o.edit.empty()) return true;
    return false;
  }
  void show(const Tapped& t) const {
    if (const Observers* o = find(t.site))
      for (const See& f : o->see) f(t);
  }
  void change(const Tapped& t) const {
    if (const Observers* o = find(t.site))
      for (const Edit& f : o->edit) f(t);
  }
  std::vector<HeadRow> chosen(const Tapped& where) const {
    return choose_ && !muted ? choose_(where) : std::vector<HeadRow>{};
  }

  Dim first_keys = 4;  // how many keys "the first tokens" are in attn_stats
  bool muted = false;  // while a segment is recomputed: nobody sees a value twice, edits still apply

 private:
  struct Observers {
    Site site;
    std::vector<See> see = {};
    std::vector<Edit> edit = {};
  };
  const Observers* find(Site site) const {  // few sites are watched at a time
    for (const Observers& o : observers_)
      if (o.site == site) return &o;
    return nullptr;
  }
  Observers& make(Site site) {
    for (Observers& o : observers_)
      if (o.site == site) return o;
    return observers_.emplace_back(Observers{site});
  }
  std::vector<Observers> observers_;
  Choose choose_;
};

}  // namespace rapt
