// SPDX-License-Identifier: Apache-2.0
// Steps lays out the order of rows, Cells runs one layer in one direction; encoder and decoder use both.
#include "rapt/nn/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "rapt/nn/kv_cache.h"
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

// Rows in the order in which they are computed: step after step, longer sequences first. A "place" is a row in this order. States lie in
// buffers of B + R rows: the first states of the B sequences, then the state after each of the R places.
struct Steps {
  Dim B = 0, R = 0;
  std::vector<Dim> first, active;  // of each step: its first place, how many sequences still run
  Rows order;                      // sequences, longest first
  Rows rows, place;                // the batch's row at each place, and back
  Rows mirror;                     // the place of the word that is read at this place when reading from the end
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
      for (Dim t = 0; t < s.count; ++t) mirror[at(place[at(s.first + t)])] = place[at(s.first + s.count - 1 - t)];
    for (Dim i = 0; i < B; ++i) last[at(i)] = place[at(sequences[at(i)].first + sequences[at(i)].count - 1)];
  }
  Dim count() const { return static_cast<Dim>(first.size()); }
  Tensor of(Dim t, const Tensor& x) const { return x.slice(first[at(t)], active[at(t)]); }                    // x [R,..]
  Tensor after(Dim t, const Tensor& h) const { return h.slice(B + first[at(t)], active[at(t)]); }              // h [B+R,..]
  Tensor prior(Dim t, const Tensor& h) const { return h.slice(t == 0 ? 0 : B + first[at(t - 1)], active[at(t)]); }
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
  const bool lstm;
  const Steps& steps;
  Tensor h, c, gates;  // [B+R,n] [B+R,n] [R,Gn]; gates: of the state (GRU), or all (LSTM)

  Cells(Run& run, const RecurrentRecipe& r, const CellLayer& weights, const Steps& s)
      : w(weights), lstm(r.cell == RecurrentRecipe::Cell::lstm), steps(s) {
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
    if (lstm) {
      linear_step(run, prior, {{{w.h.w, nullptr, mine, x_gates}}});
      rapt::lstm(run, mine, steps.prior(t, c), {steps.after(t, h), steps.after(t, c)});
    } else {
      linear_step(run, prior, {{{w.h.w, w.h.b, mine}}});
      gru(run, x_gates, mine, prior, steps.after(t, h));
    }
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
Tensor run_recurrent_encoder(Run& run, const LayerStack& stack, const Tensor& x, std::span<const Sequence> sequences, LastStates* last) {
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
struct Looked {
  std::vector<AlignResult> steps;
};

void show_weights(Run& run, const Steps& steps, std::span<const Sequence> sequences, const std::vector<std::vector<AlignRow>>& seen,
                  const Looked& looked) {
  const bool stats = run.wants(site::attn_stats), weights = run.wants(site::attn_weights);
  if (!stats && !weights) return;
  auto find = [&](Dim row) {  // step, and which of its sequences
    const Dim place = steps.place[at(row)];
    const auto t = std::upper_bound(steps.first.begin(), steps.first.end(), place) - steps.first.begin() - 1;
    return std::pair<Dim, Dim>{t, place - steps.first[at(t)]};
  };
  if (stats) {
    const Tensor value = run.make({steps.R, 1, AttentionStat::count}).constant();
    RowPlan plan;
    for (const Sequence& q : sequences) {
      Dim keys = 0;
      for (Dim i = 0; i < q.count; ++i) {
        const auto [t, b] = find(q.first + i);
        const AlignResult& a = looked.steps[at(t)];
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
          if (j < run.taps->first_keys) stat[AttentionStat::first] += w;
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
    run.taps->show({.site = site::attn_stats, .stack = run.stack, .layer = run.layer, .value = value, .cross = true, .plan = &plan});
  }
  if (!weights) return;
  Tapped shown{.site = site::attn_weights, .stack = run.stack, .layer = run.layer, .value = {}, .cross = true};
  for (const Taps::HeadRow& want : run.taps->chosen(shown)) {
    if (want.head != 0 || want.row < 0 || want.row >= steps.R)
      fail("attention: weights of head ", want.head, ", row ", want.row, " were asked for; a recurrent decoder has one head and ", steps.R,
           " rows");
    const auto [t, b] = find(want.row);
    const Tensor& all = looked.steps[at(t)].weights;
    Tensor row = all.slice(b, 1).reshape({all[1]});
    row = row.slice(0, seen[at(t)][at(b)].count);
    shown.value = row;
    shown.head = 0;
    shown.row = want.row;
    run.taps->show(shown);
  }
}

std::vector<std::byte> bytes_of(const Tensor& x) { return {x.data, x.data + at(x.elements()) * size_of(x.dtype)}; }

}  // namespace

Tensor run_recurrent_decoder(Run& run, const LayerStack& stack, const Tensor& x, std::span<const Sequence> sequences,
                             const RecurrentSource& source, KvCache* cache) {
  const RecurrentStack& s = *stack.recurrent;
  const RecurrentRecipe& r = s.recipe;
  const AlignRecipe* a = r.attention ? &*r.attention : nullptr;
  const bool previous = a && a->at == AlignRecipe::At::previous, predictive = a && a->window == AlignRecipe::Window::predictive;
  const bool feed = a && a->feed, squashed = a && a->readout == AlignRecipe::Readout::tanh;
  const bool drops = run.training && r.dropout > 0;
  if (r.layers > 1 && run.taps && run.taps->edits(site::resid_out))
    fail("tap: resid_out of a recurrent decoder of ", r.layers, " layers cannot be changed: a layer hands on one step at a time");
  const Steps steps(sequences);
  const Dim B = steps.B, R = steps.R, n = r.width, top = r.layers - 1;
  Tensor result;
  {
    const PlacedIds ids(run, steps);

    // What is looked at: keys once per source.
    Tensor keys;
    std::vector<std::shared_ptr<const RecurrentMemory>> memory(at(B));  // with a cache; by order
    std::vector<AlignRow> whole(at(B));
    if (a && source.memory) keys = s.k ? linear(run, source.memory, *s.k) : source.memory;
    for (Dim i = 0; a && i < B; ++i) {
      const Dim sequence = steps.order[at(i)];
      AlignRow& row = whole[at(i)];
      if (source.memory) {
        const Sequence& from = source.sequences[at(sequence)];
        row = {.first = from.first, .count = from.count, .high = from.count};
        if (!cache) continue;
        auto kept = std::make_shared<RecurrentMemory>();
        kept->keys = from.count;
        kept->v = bytes_of(source.memory.slice(from.first, from.count));
        if (s.k) kept->k = bytes_of(keys.slice(from.first, from.count));
        memory[at(i)] = std::move(kept);
      } else {
        const RecurrentEntry* kept = cache ? cache->recurrent(sequences[at(sequence)].id) : nullptr;
        if (!kept || !kept->memory) fail("forward: the cache holds no source of sequence ", sequences[at(sequence)].id);
        const RecurrentMemory& m = *(memory[at(i)] = kept->memory);
        row = {.count = m.keys, .high = m.keys, .k = s.k ? m.k.data() : m.v.data(), .v = m.v.data()};
      }
    }

    // First states.
    std::vector<Cells> layers;
    for (Dim l = 0; l < r.layers; ++l) {
      const Cells& c = layers.emplace_back(run, r, s.cells[at(l)], steps);
      Tensor h0, c0;
      if (source.last && r.start == RecurrentRecipe::Start::last) {
        h0 = take_rows(run, source.last->h[at(l)], steps.order);
        if (c.lstm) c0 = take_rows(run, source.last->c[at(l)], steps.order);
      } else if (source.last && r.start == RecurrentRecipe::Start::projected) {
        const LinearLayer& w = s.start[at(l)];
        h0 = activation(run, Act::tanh, linear(run, take_rows(run, source.last->back, steps.order), *w.w, w.b));
      }
      c.start(run, h0, c0);
    }
    Tensor out;  // [B+R,C]: readouts, and the one before the first step
    if (a) out = run.make({B + R, s.out_context.w->rows / (squashed ? 1 : 2)});
    if (feed) zero(out.slice(0, B));
    std::vector<Tensor> state;  // of the buffers of B + R rows, in the order of the cache
    for (const Cells& c : layers) state.push_back(c.h);
    for (const Cells& c : layers)
      if (c.lstm) state.push_back(c.c);
    if (feed) state.push_back(out);
    auto gather = [&](Dim row) {  // of all states, one row
      std::vector<std::byte> bytes;
      for (const Tensor& t : state) {
        const std::vector<std::byte> part = bytes_of(t.slice(row, 1));
        bytes.insert(bytes.end(), part.begin(), part.end());
      }
      return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    };
    std::vector<std::shared_ptr<const std::vector<std::byte>>> begins(at(B));
    for (Dim i = 0; cache && i < B; ++i) {
      const Sequence& q = sequences[at(steps.order[at(i)])];
      const RecurrentEntry* kept = cache->recurrent(q.id);
      const bool fresh = q.past == 0 && (source.last || source.memory || !kept || !kept->state);
      if (fresh) {
        begins[at(i)] = gather(i);
        continue;
      }
      if (!kept || !kept->state) fail("forward: sequence ", q.id, " continues after ", q.past, " tokens, but the cache has no state of it");
      begins[at(i)] = kept->start;
      const std::byte* from = kept->state->data();
      for (const Tensor& t : state) {
        const Tensor row = t.slice(i, 1);
        const std::size_t size = at(row.elements()) * size_of(row.dtype);
        std::memcpy(row.data, from, size);
        from += size;
      }
    }

    // What waits for no state, and room for what does.
    const Tensor input = take_rows(run, x, steps.rows);                                      // [R,C]
    const Tensor x_gates = linear(run, input, *s.cells[0].x.w, s.cells[0].x.b);              // [R,Gn]
    std::vector<Tensor> inputs(at(r.layers)), gates(at(r.layers));  // of the layers above the first
    for (Dim l = 1; l < r.layers; ++l) {
      const LinearLayer& w = s.cells[at(l)].x;
      inputs[at(l)] = drops ? run.make({R, n}) : layers[at(l - 1)].states();
      gates[at(l)] = run.make({R, w.w->rows});
      weights_later(run, inputs[at(l)], {}, *w.w, w.b, gates[at(l)]);
    }
    const Tensor asking = layers[at(top)].h;
    const Rows none;
    const auto asks = [&](const Tensor& buffer, const Weight& w) {  // products with the state that asks
      weights_later(run, previous ? asking : layers[at(top)].states(), previous ? steps.before : none, w, nullptr, buffer);
    };
    Tensor context, mixed, query, hidden;  // mixed: x_gates with the context or the fed readout
    if (a) context = run.make({R, s.memory});
    if (const Weight* w = previous ? s.context : s.feed) {
      mixed = run.make({R, w->rows});
      weights_later(run, previous ? context : out, previous ? none : steps.before, *w, nullptr, mixed);
    }
    if (s.q) asks(query = run.make({R, s.q->rows}), *s.q);
    if (predictive) asks(hidden = run.make({R, s.place->rows}), *s.place);

    // Readout: tanh(W[c; h]), or the larger of two of W[h; x; c].
    Tensor from_input, from_context, from_both;
    auto plan_readout = [&](const Tensor& h, const Rows& rows) {
      if (s.out_input.w) from_input = linear(run, input, *s.out_input.w);
      from_context = run.make({R, s.out_context.w->rows});
      from_both = run.make({R, s.out_state.w->rows});
      weights_later(run, context, {}, *s.out_context.w, nullptr, from_context);
      weights_later(run, h, rows, *s.out_state.w, s.out_state.b, from_both);
    };
    auto read_out = [&](const Tensor& h, Dim first, Dim count) {
      auto cut = [&](const Tensor& t) { return t ? t.slice(first, count) : Tensor{}; };
      linear_step(run, cut(context), {{{s.out_context.w, nullptr, cut(from_context), cut(from_input)}}});
      linear_step(run, h, {{{s.out_state.w, s.out_state.b, cut(from_both), cut(from_context)}}});
      const Tensor into = out.slice(B + first, count);
      if (squashed) activation(run, Act::tanh, cut(from_both), into);
      else maxout(run, cut(from_both), into);
    };
    if (feed) plan_readout(layers[at(top)].states(), none);

    Looked looked;
    std::vector<std::vector<AlignRow>> seen;
    auto look = [&](Dim t, const Tensor& h) {
      std::vector<AlignRow>& rows = seen.emplace_back(whole.begin(), whole.begin() + steps.active[at(t)]);
      if (a->window == AlignRecipe::Window::monotonic)
        for (Dim i = 0; i < steps.active[at(t)]; ++i) {
          AlignRow& row = rows[at(i)];
          const Dim here = sequences[at(steps.order[at(i)])].past + t;
          row.high = std::min<Dim>(row.count, here + a->reach + 1);
          row.low = std::min<Dim>(row.high, std::max<Dim>(0, here - a->reach));
        }
      AlignInputs in{.q = h, .k = keys, .v = source.memory, .m = s.memory, .score = s.score};
      if (s.q) linear_step(run, h, {{{s.q, nullptr, in.q = steps.of(t, query)}}});
      if (predictive) {
        const Tensor wide = steps.of(t, hidden);
        linear_step(run, h, {{{s.place, nullptr, wide}}});
        in.place = linear(run, activation(run, Act::tanh, wide), *s.place_score);
      }
      looked.steps.push_back(
          align(run, {.additive = s.score != nullptr, .reach = static_cast<double>(a->reach)}, in, rows, steps.of(t, context)));
    };

    for (Dim t = 0; t < steps.count(); ++t) {
      ids.step(steps.first[at(t)], steps.active[at(t)]);
      run.layer = static_cast<int>(top);
      if (previous) look(t, steps.prior(t, asking));
      Tensor g = steps.of(t, x_gates);
      if (mixed) {
        const Tensor with = previous ? steps.of(t, context) : steps.prior(t, out), sum = steps.of(t, mixed);
        linear_step(run, with, {{{previous ? s.context : s.feed, nullptr, sum, g}}});
        g = sum;
      }
      layers[0].step(run, t, g);
      for (Dim l = 1; l < r.layers; ++l) {
        run.layer = static_cast<int>(l - 1);
        const Tensor in = steps.of(t, inputs[at(l)]);
        if (drops) dropout(run, steps.after(t, layers[at(l - 1)].h), r.dropout, 0, in);
        linear_step(run, in, {{{s.cells[at(l)].x.w, s.cells[at(l)].x.b, steps.of(t, gates[at(l)])}}});
        layers[at(l)].step(run, t, steps.of(t, gates[at(l)]));
      }
      run.layer = static_cast<int>(top);
      if (a && !previous) look(t, steps.after(t, asking));
      if (feed) read_out(steps.after(t, asking), steps.first[at(t)], steps.active[at(t)]);
    }
    ids.step(0, R);
    if (a && !feed) {
      const Tensor h = previous ? take_rows(run, asking, steps.before) : layers[at(top)].states();
      plan_readout(h, none);
      read_out(h, 0, R);
    }
    for (Dim l = 0; l < top; ++l) {
      run.layer = static_cast<int>(l);
      show(run, steps, layers[at(l)].states());
    }
    run.layer = static_cast<int>(top);
    if (a) show_weights(run, steps, sequences, seen, looked);
    result = take_rows(run, a ? out.slice(B, R) : layers[at(top)].states(), steps.place);
    for (Dim i = 0; cache && i < B; ++i) {
      const Dim sequence = steps.order[at(i)];
      cache->set_recurrent(sequences[at(sequence)].id, {memory[at(i)], begins[at(i)], gather(B + steps.last[at(sequence)])});
    }
  }
  result = tap(run, site::resid_out, result);
  run.layer = -1;
  return dropout(run, result, stack.dropout, 0);
}

}  // namespace rapt
