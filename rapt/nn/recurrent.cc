// SPDX-License-Identifier: Apache-2.0
// Steps lays out the order of rows, Cells runs one layer in one direction; encoder and decoder (DecoderPass)
// use both.
#include "rapt/nn/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "rapt/nn/kv_pool.h"
#include "rapt/nn/sites.h"
#include "rapt/ops/align.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/recurrent.h"

namespace rapt {
namespace {

using Rows = std::vector<std::int32_t>;
std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

// Rows in the order in which they are computed: step after step, longer sequences first. A "place" is a row
// in this order. States lie in buffers of B + R rows: the first states of the B sequences, then the state
// after each of the R places.
struct Steps {
  Dim B = 0, R = 0;
  std::vector<Dim> first, active;  // of each step: its first place, how many sequences still run
  Rows order;                      // sequences, longest first
  Rows rows, place;                // the batch's row at each place, and back
  // The place of the word that is read at this place when reading from the end.
  Rows mirror;
  Rows last;                       // of each sequence of the batch: its last place
  Rows before;                     // of each place: where the state before it lies among the B + R

  explicit Steps(std::span<const Sequence> sequences)
      : B(static_cast<Dim>(sequences.size())), order(sequences.size()), last(sequences.size()) {
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      const Dim x = sequences[at(a)].count, y = sequences[at(b)].count;
      return x != y ? x > y : a < b;
    });
    for (const Sequence& s : sequences) R += s.count;
    place.resize(at(R));
    mirror.resize(at(R));
    Dim still = B, next = 0;
    for (Dim t = 0; next < R; ++t) {
      while (sequences[at(order[at(still - 1)])].count <= t) --still;
      for (Dim i = 0; i < still; ++i) {
        const Sequence& s = sequences[at(order[at(i)])];
        rows.push_back(static_cast<std::int32_t>(s.first + t));
        place[at(s.first + t)] = static_cast<std::int32_t>(next + i);
        before.push_back(static_cast<std::int32_t>(t == 0 ? i : B + first.back() + i));
      }
      first.push_back(next);
      active.push_back(still);
      next += still;
    }
    for (const Sequence& s : sequences)
      for (Dim t = 0; t < s.count; ++t)
        mirror[at(place[at(s.first + t)])] = place[at(s.first + s.count - 1 - t)];
    for (Dim i = 0; i < B; ++i) last[at(i)] = place[at(sequences[at(i)].first + sequences[at(i)].count - 1)];
  }
  Dim count() const { return static_cast<Dim>(first.size()); }
  Tensor of(Dim t, const Tensor& x) const { return x.slice(first[at(t)], active[at(t)]); }  // x [R,..]
  // h [B+R,..]
  Tensor after(Dim t, const Tensor& h) const { return h.slice(B + first[at(t)], active[at(t)]); }
  Tensor prior(Dim t, const Tensor& h) const {
    return h.slice(t == 0 ? 0 : B + first[at(t - 1)], active[at(t)]);
  }
};

// Names of rows in random numbers follow them into their places, and back.
struct PlacedIds {
  Run& run;
  const std::span<const std::uint64_t> batch;
  std::span<const std::uint64_t> placed;
  PlacedIds(Run& r, const Steps& steps) : run(r), batch(r.row_ids) {
    if (static_cast<Dim>(batch.size()) != steps.R) return;
    auto* ids = run.arena.take_array<std::uint64_t>(steps.R);
    for (Dim i = 0; i < steps.R; ++i) ids[i] = batch[at(steps.rows[at(i)])];
    placed = {ids, at(steps.R)};
    run.row_ids = placed;
  }
  void step(Dim first, Dim count) const {
    if (!placed.empty()) run.row_ids = placed.subspan(at(first), at(count));
  }
  ~PlacedIds() { run.row_ids = batch; }
};

void zero(const Tensor& x) { std::memset(x.data, 0, at(x.elements()) * size_of(x.dtype)); }

// The cells of one layer and direction, over all steps.
struct Cells {
  const CellLayer& w;
  const bool gru, lstm;
  const Steps& steps;
  Tensor h, c, gates;  // [B+R,n] [B+R,n] [R,Gn]; gates: of the state (GRU), or of input and state together

  Cells(Run& run, const RecurrentRecipe& r, const CellLayer& weights, const Steps& s)
      : w(weights),
        gru(r.cell == RecurrentRecipe::Cell::gru),
        lstm(r.cell == RecurrentRecipe::Cell::lstm),
        steps(s) {
    h = run.make({s.B + s.R, r.width});
    if (lstm) c = run.make({s.B + s.R, r.width});
    gates = run.make({s.R, w.h.w->rows});
    weights_later(run, h, s.before, *w.h.w, w.h.b, gates);
  }
  void start(Run& run, const Tensor& h0, const Tensor& c0) const {
    if (h0) copy(run, h0, h.slice(0, steps.B));
    else zero(h.slice(0, steps.B));
    if (!lstm) return;
    if (c0) copy(run, c0, c.slice(0, steps.B));
    else zero(c.slice(0, steps.B));
  }
  void step(Run& run, Dim t, const Tensor& x_gates) const {
    const Tensor prior = steps.prior(t, h), mine = steps.of(t, gates);
    linear_step(run, prior, {{{w.h.w, w.h.b, mine, gru ? Tensor{} : x_gates}}});
    if (gru) rapt::gru(run, x_gates, mine, prior, steps.after(t, h));
    else if (lstm) rapt::lstm(run, mine, steps.prior(t, c), {steps.after(t, h), steps.after(t, c)});
    else activation(run, Act::tanh, mine, steps.after(t, h));  // h' = tanh(W x + b + U h)
  }
  Tensor states() const { return h.slice(steps.B, steps.R); }
  Tensor cell_states() const { return c.slice(steps.B, steps.R); }
};

// Shows a layer's result in the order of the batch; nothing is computed where nobody looks.
void show(Run& run, const Steps& steps, const Tensor& x) {
  if (!run.wants(site::resid_out)) return;
  Tape* tape = std::exchange(run.tape, nullptr);
  const Tensor rows = take_rows(run, x, steps.place);
  run.tape = tape;
  run.taps->show({.site = site::resid_out, .stack = run.stack, .layer = run.layer, .value = rows});
}

}  // namespace

// ------------------------------------------------------------------------------------------------ encoder
Tensor run_recurrent_encoder(Run& run, const LayerStack& stack, const Tensor& x,
                             std::span<const Sequence> sequences, LastStates* last) {
  const RecurrentStack& s = *stack.recurrent;
  const RecurrentRecipe& r = s.recipe;
  const Steps steps(sequences);
  Tensor result;
  {
    const PlacedIds ids(run, steps);
    Rows straight(at(steps.R)), mirrored(at(steps.R));
    std::iota(straight.begin(), straight.end(), 0);
    for (Dim i = 0; i < steps.R; ++i) mirrored[at(i)] = steps.mirror[at(steps.place[at(i)])];
    auto read = [&](const CellLayer& w, const Tensor& input) {
      const Cells cells(run, r, w, steps);
      cells.start(run, {}, {});
      const Tensor x_gates = linear(run, input, *w.x.w, w.x.b);                              // [R,Gn]
      for (Dim t = 0; t < steps.count(); ++t) cells.step(run, t, steps.of(t, x_gates));
      return cells;
    };
    Tensor input = take_rows(run, x, steps.rows);
    for (Dim l = 0; l < r.layers; ++l) {
      run.layer = static_cast<int>(l);
      const bool top = l + 1 == r.layers;
      const Cells forward = read(s.cells[at(l)], input);
      Tensor h = forward.states(), c = forward.lstm ? forward.cell_states() : Tensor{};
      if (!r.both_ways) {
        if (last) {
          last->h.push_back(take_rows(run, h, steps.last));
          if (c) last->c.push_back(take_rows(run, c, steps.last));
          if (top) last->back = last->h.back();
        }
        result = top ? take_rows(run, h, steps.place) : h;
      } else {
        const Cells backward = read(s.back[at(l)], take_rows(run, input, steps.mirror));
        const Tensor bh = backward.states();
        if (last) {
          last->h.push_back(beside(run, h, steps.last, bh, steps.last));
          if (c) last->c.push_back(beside(run, c, steps.last, backward.cell_states(), steps.last));
          if (top) last->back = take_rows(run, bh, steps.last);
        }
        result = top ? beside(run, h, steps.place, bh, mirrored) : beside(run, h, straight, bh, steps.mirror);
      }
      if (top) break;
      if (run.taps && run.taps->edits(site::resid_out))
        result = take_rows(run, tap(run, site::resid_out, take_rows(run, result, steps.place)), steps.rows);
      else show(run, steps, result);
      input = rapt::dropout(run, result, r.dropout, 0);
    }
  }
  result = tap(run, site::resid_out, result);
  run.layer = -1;
  return dropout(run, result, stack.dropout, 0);
}

// ------------------------------------------------------------------------------------------------ decoder
namespace {

// Weights of a decoder's attention as its steps made them.
void show_weights(Run& run, const Steps& steps, std::span<const Sequence> sequences,
                  const std::vector<std::vector<AlignRow>>& seen, std::span<const AlignResult> looked) {
  std::vector<Dim> first_keys;
  if (run.wants(site::attn_stats)) first_keys = run.taps->first_keys_asked(site::attn_stats);
  const bool weights = run.wants(site::attn_weights);
  if (first_keys.empty() && !weights) return;
  auto find = [&](Dim row) {  // step, and which of its sequences
    const Dim place = steps.place[at(row)];
    const auto t = std::upper_bound(steps.first.begin(), steps.first.end(), place) - steps.first.begin() - 1;
    return std::pair<Dim, Dim>{t, place - steps.first[at(t)]};
  };
  for (const Dim first : first_keys) {
    const Tensor value = run.make({steps.R, 1, AttentionStat::count}).constant();
    RowPlan plan;
    for (const Sequence& q : sequences) {
      Dim keys = 0;
      for (Dim i = 0; i < q.count; ++i) {
        const auto [t, b] = find(q.first + i);
        const AlignResult& a = looked[at(t)];
        const AlignRow& r = seen[at(t)][at(b)];
        keys = r.count;
        const Dim position = q.past + i;
        plan.low.push_back(static_cast<std::int32_t>(r.low));
        plan.high.push_back(static_cast<std::int32_t>(r.high));
        plan.position.push_back(static_cast<std::int32_t>(position));
        double stat[AttentionStat::count] = {}, best = -1;
        for (Dim j = 0; j < r.count; ++j) {
          const double w = a.weights.at(b * a.weights[1] + j);
          if (w > 0) stat[AttentionStat::entropy] -= w * std::log(w);
          if (j < first) stat[AttentionStat::first] += w;
          if (j == position) stat[AttentionStat::self] = w;
          if (j == position - 1) stat[AttentionStat::previous] = w;
          stat[AttentionStat::distance] += w * static_cast<double>(std::abs(j - position));
          stat[AttentionStat::sum] += w;
          if (w > best) best = w, stat[AttentionStat::strongest] = static_cast<double>(j);
        }
        stat[AttentionStat::max_logit] = a.max_score.at(b);
        for (Dim c = 0; c < AttentionStat::count; ++c) {
          const auto to = at((q.first + i) * AttentionStat::count + c);
          if (value.dtype == DType::f64) value.as<double>()[to] = stat[c];
          else value.as<float>()[to] = static_cast<float>(stat[c]);
        }
      }
      plan.parts.push_back({q.first, q.count, 0, keys});
    }
    plan.kept_position = plan.position;
    run.taps->show({.site = site::attn_stats,
                    .stack = run.stack,
                    .layer = run.layer,
                    .value = value,
                    .cross = true,
                    .plan = &plan,
                    .first_keys = first});
  }
  if (!weights) return;
  Tapped shown{
      .site = site::attn_weights, .stack = run.stack, .layer = run.layer, .value = {}, .cross = true};
  for (const Taps::HeadRow& want : run.taps->chosen(shown, 1, steps.R)) {
    const auto [t, b] = find(want.row);
    const Tensor& all = looked[at(t)].weights;
    Tensor row = all.slice(b, 1).reshape({all[1]});
    row = row.slice(0, seen[at(t)][at(b)].count);
    shown.value = row;
    shown.head = 0;
    shown.row = want.row;
    shown.share = want.share;
    run.taps->show(shown);
  }
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.data, x.data + at(x.elements()) * size_of(x.dtype)};
}

// One pass of a decoder: what is looked at, first states, what waits for no state; then step after step.
class DecoderPass {
 public:
  DecoderPass(Run& run, const RecurrentStack& stack, std::span<const Sequence> sequences,
              const RecurrentSource& source, KvPass* cache)
      : run_(run),
        s_(stack),
        r_(stack.recipe),
        a_(r_.attention ? &*r_.attention : nullptr),
        sequences_(sequences),
        source_(source),
        cache_(cache),
        steps_(sequences),
        ids_(run, steps_) {}

  Tensor result(const Tensor& x) {  // [T,C] -> [T,C], in the order of the batch
    find_memories();
    begin();
    resume();
    plan(x);
    for (Dim t = 0; t < steps_.count(); ++t) {
      run_.check_cancelled();
      step(t);
    }
    ids_.step(0, R_);
    if (a_ && !feed_) {
      const Tensor h = previous_ ? take_rows(run_, asking_, steps_.before) : layers_[at(top_)].states();
      plan_readout(h);
      read_out(h, 0, R_);
    }
    for (Dim l = 0; l < top_; ++l) {
      run_.layer = static_cast<int>(l);
      show(run_, steps_, layers_[at(l)].states());
    }
    run_.layer = static_cast<int>(top_);
    if (a_) show_weights(run_, steps_, sequences_, seen_, looked_);
    const Tensor out = take_rows(run_, a_ ? out_.slice(B_, R_) : layers_[at(top_)].states(), steps_.place);
    for (Dim i = 0; cache_ && i < B_; ++i) {
      const Dim sequence = steps_.order[at(i)];
      gather(B_ + steps_.last[at(sequence)], cache_->next_state(at(sequence)));
    }
    return out;
  }

 private:
  // What is looked at: keys once per source.
  void find_memories() {
    whole_.resize(at(B_));
    if (!a_) return;
    if (source_.memory) keys_ = s_.k ? linear(run_, source_.memory, *s_.k) : source_.memory;
    for (Dim i = 0; i < B_; ++i) {
      const Dim sequence = steps_.order[at(i)];
      AlignRow& row = whole_[at(i)];
      if (source_.memory) {
        const Sequence& from = source_.sequences[at(sequence)];
        row = {.first = from.first, .count = from.count, .high = from.count};
        if (!cache_) continue;
        RecurrentMemory kept{
            .keys = from.count, .k = {}, .v = bytes_of(source_.memory.slice(from.first, from.count))};
        if (s_.k) kept.k = bytes_of(keys_.slice(from.first, from.count));
        cache_->set_memory(at(sequence), std::move(kept));
      } else {
        if (!cache_ || !cache_->memory(at(sequence)))
          fail("forward: the cache holds no source of sequence ", sequences_[at(sequence)].id);
        const RecurrentMemory& m = *cache_->memory(at(sequence));
        row = {.count = m.keys, .high = m.keys, .k = s_.k ? m.k.data() : m.v.data(), .v = m.v.data()};
      }
    }
  }

  // First states, and the list of all that is a state.
  void begin() {
    for (Dim l = 0; l < r_.layers; ++l) {
      const Cells& c = layers_.emplace_back(run_, r_, s_.cells[at(l)], steps_);
      Tensor h0, c0;
      if (source_.last && r_.start == RecurrentRecipe::Start::last) {
        h0 = take_rows(run_, source_.last->h[at(l)], steps_.order);
        if (c.lstm) c0 = take_rows(run_, source_.last->c[at(l)], steps_.order);
      } else if (source_.last && r_.start == RecurrentRecipe::Start::projected) {
        const LinearLayer& w = s_.start[at(l)];
        h0 = activation(run_, Act::tanh,
                        linear(run_, take_rows(run_, source_.last->back, steps_.order), *w.w, w.b));
      }
      c.start(run_, h0, c0);
    }
    if (a_) out_ = run_.make({B_ + R_, s_.out_context.w->rows / (squashed_ ? 1 : 2)});
    if (feed_) zero(out_.slice(0, B_));
    for (const Cells& c : layers_) state_.push_back(c.h);
    for (const Cells& c : layers_)
      if (c.lstm) state_.push_back(c.c);
    if (feed_) state_.push_back(out_);
    asking_ = layers_[at(top_)].h;
  }

  // Of all states, one row, as the cache keeps it.
  void gather(Dim row, std::byte* to) const {
    for (const Tensor& t : state_) {
      const Tensor from = t.slice(row, 1);
      const std::size_t size = at(from.elements()) * size_of(from.dtype);
      std::memcpy(to, from.data, size);
      to += size;
    }
  }

  // Sequences that the cache knows go on from their state there.
  void resume() {
    for (Dim i = 0; cache_ && i < B_; ++i) {
      const auto sequence = at(steps_.order[at(i)]);
      const Sequence& q = sequences_[sequence];
      const std::byte* from = cache_->state(sequence);
      if (q.past == 0 && (source_.last || source_.memory || !from)) {
        gather(i, cache_->next_start(sequence));
        continue;
      }
      if (!from)
        fail("forward: sequence ", q.id, " continues after ", q.past,
             " tokens, but the cache has no state of it");
      std::memcpy(cache_->next_start(sequence), cache_->start(sequence),
                  at(recurrent_state_values(s_)) * size_of(run_.device.real));
      for (const Tensor& t : state_) {
        const Tensor row = t.slice(i, 1);
        const std::size_t size = at(row.elements()) * size_of(row.dtype);
        std::memcpy(row.data, from, size);
        from += size;
      }
    }
  }

  // What waits for no state is computed for all steps at once; what does gets its room.
  void plan(const Tensor& x) {
    input_ = take_rows(run_, x, steps_.rows);
    x_gates_ = linear(run_, input_, *s_.cells[0].x.w, s_.cells[0].x.b);
    inputs_.resize(at(r_.layers));
    gates_.resize(at(r_.layers));
    for (Dim l = 1; l < r_.layers; ++l) {
      const LinearLayer& w = s_.cells[at(l)].x;
      inputs_[at(l)] = drops_ ? run_.make({R_, r_.width}) : layers_[at(l - 1)].states();
      gates_[at(l)] = run_.make({R_, w.w->rows});
      weights_later(run_, inputs_[at(l)], {}, *w.w, w.b, gates_[at(l)]);
    }
    const std::span<const std::int32_t> before = steps_.before, none;
    const auto asks = [&](const Tensor& buffer, const Weight& w) {  // products with the state that asks
      weights_later(run_, previous_ ? asking_ : layers_[at(top_)].states(), previous_ ? before : none, w,
                    nullptr, buffer);
    };
    if (a_) context_ = run_.make({R_, s_.memory});
    if (const Weight* w = previous_ ? s_.context : s_.feed) {
      mixed_ = run_.make({R_, w->rows});
      weights_later(run_, previous_ ? context_ : out_, previous_ ? none : before, *w, nullptr, mixed_);
    }
    if (s_.q) asks(query_ = run_.make({R_, s_.q->rows}), *s_.q);
    if (predictive_) asks(hidden_ = run_.make({R_, s_.place->rows}), *s_.place);
    if (feed_) plan_readout(layers_[at(top_)].states());
  }

  // Readout: tanh(W[c; h]), or the larger of two of W[h; x; c].
  void plan_readout(const Tensor& h) {
    if (s_.out_input.w) from_input_ = linear(run_, input_, *s_.out_input.w);
    from_context_ = run_.make({R_, s_.out_context.w->rows});
    from_both_ = run_.make({R_, s_.out_state.w->rows});
    weights_later(run_, context_, {}, *s_.out_context.w, nullptr, from_context_);
    weights_later(run_, h, {}, *s_.out_state.w, s_.out_state.b, from_both_);
  }
  void read_out(const Tensor& h, Dim first, Dim count) {
    const auto cut = [&](const Tensor& t) { return t ? t.slice(first, count) : Tensor{}; };
    linear_step(run_, cut(context_), {{{s_.out_context.w, nullptr, cut(from_context_), cut(from_input_)}}});
    linear_step(run_, h, {{{s_.out_state.w, s_.out_state.b, cut(from_both_), cut(from_context_)}}});
    const Tensor into = out_.slice(B_ + first, count);
    if (squashed_) activation(run_, Act::tanh, cut(from_both_), into);
    else maxout(run_, cut(from_both_), into);
  }

  // The context of a step, asked for by the states h.
  void look(Dim t, const Tensor& h) {
    std::vector<AlignRow>& rows = seen_.emplace_back(whole_.begin(), whole_.begin() + steps_.active[at(t)]);
    if (a_->window == AlignRecipe::Window::monotonic)
      for (Dim i = 0; i < steps_.active[at(t)]; ++i) {
        AlignRow& row = rows[at(i)];
        const Dim here = sequences_[at(steps_.order[at(i)])].past + t;
        row.high = std::min<Dim>(row.count, here + a_->reach + 1);
        row.low = std::min<Dim>(row.high, std::max<Dim>(0, here - a_->reach));
      }
    AlignInputs in{.q = h, .k = keys_, .v = source_.memory, .m = s_.memory, .score = s_.score};
    if (s_.q) linear_step(run_, h, {{{s_.q, nullptr, in.q = steps_.of(t, query_)}}});
    if (predictive_) {
      const Tensor wide = steps_.of(t, hidden_);
      linear_step(run_, h, {{{s_.place, nullptr, wide}}});
      in.place = linear(run_, activation(run_, Act::tanh, wide), *s_.place_score);
    }
    looked_.push_back(align(run_, {.additive = s_.score != nullptr, .reach = static_cast<double>(a_->reach)},
                            in, rows, steps_.of(t, context_)));
  }

  void step(Dim t) {
    ids_.step(steps_.first[at(t)], steps_.active[at(t)]);
    run_.layer = static_cast<int>(top_);
    if (previous_) look(t, steps_.prior(t, asking_));
    Tensor g = steps_.of(t, x_gates_);
    if (mixed_) {
      const Tensor with = previous_ ? steps_.of(t, context_) : steps_.prior(t, out_),
                   sum = steps_.of(t, mixed_);
      linear_step(run_, with, {{{previous_ ? s_.context : s_.feed, nullptr, sum, g}}});
      g = sum;
    }
    layers_[0].step(run_, t, g);
    for (Dim l = 1; l < r_.layers; ++l) {
      run_.layer = static_cast<int>(l - 1);
      const Tensor in = steps_.of(t, inputs_[at(l)]);
      if (drops_) dropout(run_, steps_.after(t, layers_[at(l - 1)].h), r_.dropout, 0, in);
      linear_step(run_, in, {{{s_.cells[at(l)].x.w, s_.cells[at(l)].x.b, steps_.of(t, gates_[at(l)])}}});
      layers_[at(l)].step(run_, t, steps_.of(t, gates_[at(l)]));
    }
    run_.layer = static_cast<int>(top_);
    if (a_ && !previous_) look(t, steps_.after(t, asking_));
    if (feed_) read_out(steps_.after(t, asking_), steps_.first[at(t)], steps_.active[at(t)]);
  }

  Run& run_;
  const RecurrentStack& s_;
  const RecurrentRecipe& r_;
  const AlignRecipe* const a_;
  const std::span<const Sequence> sequences_;
  const RecurrentSource& source_;
  KvPass* const cache_;
  const Steps steps_;
  const PlacedIds ids_;
  const Dim B_ = steps_.B, R_ = steps_.R, top_ = r_.layers - 1;
  const bool previous_ = a_ && a_->at == AlignRecipe::At::previous,
             predictive_ = a_ && a_->window == AlignRecipe::Window::predictive, feed_ = a_ && a_->feed,
             squashed_ = a_ && a_->readout == AlignRecipe::Readout::tanh,
             drops_ = run_.training && r_.dropout > 0;

  Tensor keys_;                                                 // [S,d]
  // Of each sequence, by order: all it may look at.
  std::vector<AlignRow> whole_;
  std::vector<Cells> layers_;
  Tensor out_;                 // [B+R,C]: readouts, and the one before the first step
  std::vector<Tensor> state_;  // the buffers of B + R rows, in the order of the cache
  Tensor asking_;                          // states of the last layer [B+R,n]
  Tensor input_, x_gates_;                 // [R,C] [R,Gn]
  std::vector<Tensor> inputs_, gates_;     // of the layers above the first
  Tensor context_, mixed_, query_, hidden_;  // [R,..]; mixed: x_gates with the context or the fed readout
  Tensor from_input_, from_context_, from_both_;  // of the readout
  std::vector<AlignResult> looked_;            // weights of each step
  std::vector<std::vector<AlignRow>> seen_;
};

}  // namespace

Dim recurrent_state_values(const RecurrentStack& s) {
  const RecurrentRecipe& r = s.recipe;
  const bool lstm = r.cell == RecurrentRecipe::Cell::lstm, feed = r.attention && r.attention->feed,
             squashed = r.attention && r.attention->readout == AlignRecipe::Readout::tanh;
  return r.layers * r.width * (lstm ? 2 : 1) + (feed ? s.out_context.w->rows / (squashed ? 1 : 2) : 0);
}
Dim recurrent_memory_values(const RecurrentStack& s) {
  return s.recipe.attention ? s.memory + (s.k ? s.k->rows : 0) : 0;
}

Tensor run_recurrent_decoder(Run& run, const LayerStack& stack, const Tensor& x,
                             std::span<const Sequence> sequences, const RecurrentSource& source,
                             KvPass* cache) {
  const RecurrentRecipe& r = stack.recurrent->recipe;
  if (r.layers > 1 && run.taps && run.taps->edits(site::resid_out))
    run.taps->refuse_edits(site::resid_out,
                           concat("tap: resid_out of a recurrent decoder of ", r.layers,
                                  " layers cannot be changed: a layer hands on one step at a time"));
  Tensor result = DecoderPass(run, *stack.recurrent, sequences, source, cache).result(x);
  result = tap(run, site::resid_out, result);
  run.layer = -1;
  return dropout(run, result, stack.dropout, 0);
}

}  // namespace rapt
