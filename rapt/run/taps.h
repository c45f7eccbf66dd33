// SPDX-License-Identifier: Apache-2.0
// Observers of a pass. They ask beforehand, so a fused kernel can hand out what it would otherwise never
// store, and a pass that nobody watches does no extra work. A pass may mix the rows of many requests: each
// then has a share, whose observers see and change its rows only, as if they were the whole pass.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
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

// A row of attention: which keys it sees.
struct AttentionRow {
  Dim slots = 0;  // learned, before the keys: always seen
  Dim low = 0, high = 0, keep = 0;  // keys [low, high), and below `keep`
  Dim rows = 0;  // of the pass, or the share
  bool sees(Dim key) const { return key < high && (key >= low || key < keep); }
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
  // Which rows value has: those of the running stack, those of the memory (k, v of cross-attention), or
  // those that the head reads.
  enum class Rows { own, memory, wanted } rows = Rows::own;
  // Of value's first row in its sequence, learned tokens included (attn_weights: of row 0); shares only, and
  // not of wanted rows.
  Dim position = 0;
  int share = -1;  // which share is shown this, or asked for it; -1: the pass's own observers
  Dim first_keys = -1;  // attn_stats only: how many keys "the first tokens" are here
  const AttentionRow* attention = nullptr;  // of a row that may be changed (Taps::edit_rows)
};

class Taps;

// The rows of a pass that belong to one request, with who watches and changes them. Of `taps` its own
// observers count, not its shares.
struct TapShare {
  struct Range {
    Dim first = 0, count = 0;
  };
  Taps* taps = nullptr;
  Range rows;  // of the stack that reads the request's tokens (learned sink tokens included)
  // Of the encoder's rows and of the memory a decoder looks at; an encoder-only model: the same as rows.
  Range source;
  Range wanted;  // among the rows that Batch::want names (what the head reads)
  Dim position = 0;  // of the first of `rows` in its sequence, learned tokens included
  bool muted = false;  // these rows were shown before: edits still apply, nobody sees
  // What an observer threw: it is not called again in this pass, the pass goes on for the others.
  std::exception_ptr error = {};
};

class Taps {
 public:
  using See = std::function<void(const Tapped&)>;
  // May change value's elements; the gradient passes as if it had not.
  using Edit = std::function<void(const Tapped&)>;
  struct HeadRow {
    Dim head, row;
    int share = -1;  // who asks (Tapped::share); chosen() fills it in
  };
  // Stack, layer, part and cross; no value yet.
  using Choose = std::function<std::vector<HeadRow>(const Tapped& where)>;

  void see(Site site, See f) { make(site).see.push_back(std::move(f)); }
  void edit(Site site, Edit f) {
    make(site).edit.push_back(std::move(f));
    stamp_ = next_stamp();
  }
  // Rows of attention weights or scores, at `rows`, in one head: `touches` is asked of every head and row
  // beforehand (no value yet), and `f` may then change value's elements where the row sees their key. Rows
  // that nobody touches are never formed.
  using Touches = std::function<bool(const Tapped& where)>;
  void edit_rows(Site rows, Touches touches, Edit f) {
    rows_.push_back({rows, std::move(touches), std::move(f)});
    stamp_ = next_stamp();
  }
  // Of its edits: no others have this number, but copies of them.
  std::uint64_t stamp() const { return stamp_; }
  // Rows of attention weights, at `weights`.
  void want_weights(Site weights, Choose f, See see_them) {
    choose_ = std::move(f);
    see(weights, std::move(see_them));
  }

  bool sees(Site site) const {
    return !muted && (sees_itself(site) || (!shares.empty() && share_sees(site)));
  }
  bool edits(Site site) const { return edits_itself(site) || (!shares.empty() && share_edits(site)); }
  bool edits_anything() const;
  bool edits_rows() const;
  // Whether somebody changes this row (Tapped::head, row, attention) at its site; and the change.
  bool touches_row(const Tapped& where);
  void change_row(const Tapped& t);
  // Own observers first, and what they throw ends the pass; then every share that asks, with its rows.
  void show(const Tapped& t) {
    if (muted) return;
    if (t.share < 0 && (t.first_keys < 0 || t.first_keys == first_keys)) show_itself(t);
    if (!shares.empty()) show_shares(t);
  }
  void change(const Tapped& t) {
    change_itself(t);
    if (!shares.empty()) change_shares(t);
  }
  // Rows of attention weights that are asked for, of a pass with so many heads and rows: hand each to show(),
  // with its head, row and share.
  std::vector<HeadRow> chosen(const Tapped& where, Dim heads, Dim rows);
  // attn_stats: each number of first keys that an observer of `stats` counts with, once.
  std::vector<Dim> first_keys_asked(Site stats) const;
  // `site` cannot be changed in this pass: an error for those who would.
  void refuse_edits(Site site, const std::string& why);

  Dim first_keys = 4;  // how many keys "the first tokens" are in attn_stats
  bool muted = false;  // while a segment is recomputed: nobody sees a value twice, edits still apply
  std::vector<TapShare> shares;

 private:
  static std::uint64_t next_stamp();
  std::uint64_t stamp_ = 0;
  struct Observers {
    Site site;
    std::vector<See> see = {};
    std::vector<Edit> edit = {};
  };
  bool sees_itself(Site site) const {
    const Observers* o = muted ? nullptr : find(site);
    return o && !o->see.empty();
  }
  bool edits_itself(Site site) const {
    const Observers* o = find(site);
    return o && !o->edit.empty();
  }
  void show_itself(const Tapped& t) const {
    if (const Observers* o = find(t.site))
      for (const See& f : o->see) f(t);
  }
  void change_itself(const Tapped& t) const {
    if (const Observers* o = find(t.site))
      for (const Edit& f : o->edit) f(t);
  }
  struct RowEdit {
    Site site;
    Touches touches;
    Edit change;
  };
  bool touches_row_itself(const Tapped& where) const {
    for (const RowEdit& e : rows_)
      if (e.site == where.site && e.touches(where)) return true;
    return false;
  }
  void change_row_itself(const Tapped& t) const {
    for (const RowEdit& e : rows_)
      if (e.site == t.site && e.touches(t)) e.change(t);
  }
  std::vector<HeadRow> chosen_itself(const Tapped& where, Dim heads, Dim rows) const;
  bool share_sees(Site site) const;
  bool share_edits(Site site) const;
  void show_shares(const Tapped& t);
  void change_shares(const Tapped& t);

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
  std::vector<RowEdit> rows_;
  Choose choose_;
};

}  // namespace rapt
