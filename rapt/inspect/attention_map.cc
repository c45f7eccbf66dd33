// SPDX-License-Identifier: Apache-2.0
// The pass keeps inputs; rows() makes keys, then queries block by block. A pixel shows its largest weight.
#include "rapt/inspect/attention_map.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "rapt/base/text.h"
#include "rapt/inspect/look.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

constexpr Dim kKeyRows = 2048;       // rows whose keys are computed at a time
constexpr Dim kRowBytes = 16 << 20;  // about what the weights of some rows may take at a time

struct Memory {  // a table that grows by rows, as the device computes
  std::vector<std::byte> bytes;
  Dim width = 0, rows = 0;

  void add(const Tensor& t, Dim all_rows) {  // [n, …]
    width = t.elements() / t[0];
    const std::size_t row = static_cast<std::size_t>(width) * size_of(t.dtype);
    if (bytes.empty()) bytes.resize(row * static_cast<std::size_t>(all_rows));
    if (t[0] > all_rows - rows || row * static_cast<std::size_t>(all_rows) != bytes.size())
      fail("inspect: rows ", rows, " to ", rows + t[0], " of ", width,
           " values came, and the table was made for ", all_rows, " rows and ", bytes.size(), " bytes");
    std::memcpy(bytes.data() + row * static_cast<std::size_t>(rows), t.data,
                row * static_cast<std::size_t>(t[0]));
    rows += t[0];
  }
  Tensor gather(Run& run, std::span<const Dim> which) const {
    const Tensor t = run.make({static_cast<Dim>(which.size()), width}).constant();
    const std::size_t row = static_cast<std::size_t>(width) * size_of(t.dtype);
    for (std::size_t i = 0; i < which.size(); ++i)
      std::memcpy(t.data + i * row, bytes.data() + row * static_cast<std::size_t>(which[i]), row);
    return t;
  }
};

std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> out(static_cast<std::size_t>(t.elements()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(t.at(static_cast<Dim>(i)));
  return out;
}

// Rows may pass in pieces where each sees only what came before it, nobody changes values by row number, and
// there is one stack.
bool in_pieces(const Model& model, const Taps* taps) {
  if (model.encoder || !model.decoder || model.decoder->recurrent || (taps && taps->edits_anything()))
    return false;
  if (model.recipe.head.pools()) return false;
  for (const Layer& layer : model.decoder->layers)
    for (const Part& part : layer.parts)
      if (const Attention* a = part.attention(); a && (a->mask.right != 0 || a->mask.prefix)) return false;
  return true;
}

template <class F>
void each_attention(const Model& model, const F& f) {
  const std::pair<Stack, const std::optional<LayerStack>*> stacks[] = {{Stack::encoder, &model.encoder},
                                                                       {Stack::decoder, &model.decoder}};
  for (const auto& [which, stack] : stacks)
    for (int l = 0; *stack && l < static_cast<int>((*stack)->layers.size()); ++l)
      for (const Part& part : (*stack)->layers[static_cast<std::size_t>(l)].parts)
        if (const Attention* a = part.attention())
          f(AttentionPlace{which, l, a->spec.cross, part_number(part)}, *a);
}

// "encoder layers 0 to 5, decoder layers 0 to 5, cross-attention"
std::string what_there_is(std::span<const AttentionPlace> all) {
  int last[] = {-1, -1};
  bool cross = false;
  for (const AttentionPlace& p : all) {
    int& deepest = last[static_cast<int>(p.stack)];
    deepest = std::max(deepest, p.layer);
    cross = cross || p.cross;
  }
  std::string text;
  if (last[0] >= 0) text += concat("encoder layers 0 to ", last[0], ", ");
  if (last[1] >= 0) text += concat("decoder layers 0 to ", last[1], ", ");
  return text + (cross ? "cross-attention" : "no cross-attention");
}

Dim seen_keys(const RowPlan& plan, const RowPlan::Part& part, std::size_t r) {
  const Dim kept = std::clamp<Dim>(plan.high[r], 0, part.keep);
  return kept + std::max<Dim>(0, plan.high[r] - std::max<Dim>(plan.low[r], kept));
}

template <class Real>
void add_rows(const Tapped& t, Dim before, std::vector<HeadSums>& sums, Dim learned) {
  const Dim heads = t.value[1], columns = t.value[2];
  const RowPlan& plan = *t.plan;
  for (const RowPlan::Part& part : plan.parts)
    for (Dim i = part.q_first; i < part.q_first + part.q_count; ++i) {
      const auto r = static_cast<std::size_t>(i);
      const bool first = plan.high[r] > 0 && (plan.low[r] <= 0 || part.keep > 0);
      const Dim seen = seen_keys(plan, part, r);
      if (seen == 0 || plan.position[r] < before) continue;
      const double even = std::log(static_cast<double>(seen + learned));
      for (Dim h = 0; h < heads; ++h) {
        const Real* s = t.value.as<Real>().data() + (i * heads + h) * columns;
        HeadSums& to = sums[static_cast<std::size_t>(h)];
        to.entropy += static_cast<double>(s[AttentionStat::entropy]);
        to.self += static_cast<double>(s[AttentionStat::self]);
        to.previous += static_cast<double>(s[AttentionStat::previous]);
        to.distance += static_cast<double>(s[AttentionStat::distance]);
        to.even += even;
        const auto logit = static_cast<double>(s[AttentionStat::max_logit]);
        to.max_logit = to.rows == 0 ? logit : std::max(to.max_logit, logit);
        if (first) to.first += static_cast<double>(s[AttentionStat::first]), ++to.seeing;
        ++to.rows;
      }
    }
}

}  // namespace

void add_stats(const Tapped& t, Dim before, std::vector<HeadSums>& sums, Dim learned) {
  sums.resize(static_cast<std::size_t>(t.value[1]));
  if (t.value.dtype == DType::f64) add_rows<double>(t, before, sums, learned);
  else add_rows<float>(t, before, sums, learned);
}

Dim learned_keys(const Attention& a) {
  return (a.slot_k ? a.slot_k->rows : 0) + (a.spec.extra != Extra::none);
}

double share_unit(const AttentionSpec& spec, std::span<const float> w) {
  if (spec.normal != Normal::sigmoid) return 1;
  return 1 / std::max(std::accumulate(w.begin(), w.end(), 0.0), 1e-37);
}

AttentionPlace place_of(const Model& model, const Tapped& t) {
  return {t.stack, t.layer, t.cross, t.part < 0 ? 0 : part_number(part_of(model, t))};
}

struct AttentionRecord::Kept {
  const Attention* a = nullptr;
  bool whole = false;         // q and k are kept, not what they are made of
  Memory x, q, k;
  Dim before = 0;             // rows before the text's (learned sink tokens)
  Dim rows = 0, keys = 0;     // with them
  RowPlan plan;
  std::vector<HeadSums> sums;
  bool counted = false;       // sums are of the text's keys alone
  std::vector<float> stats;   // [AttentionStat::count][heads][tokens], where they are asked for

  void add_row_stats(const Tapped& t, Dim tokens) {
    const Dim heads = t.value[1], columns = t.value[2];
    stats.resize(static_cast<std::size_t>(columns * heads * tokens), std::nanf(""));
    with_values(t.value, [&](auto values) {
      for (Dim i = 0; i < t.value[0]; ++i) {
        const Dim row = t.plan->position[static_cast<std::size_t>(i)] - before;
        if (row < 0 || row >= tokens) continue;
        for (Dim h = 0; h < heads; ++h)
          for (Dim c = 0; c < columns; ++c)
            stats[static_cast<std::size_t>((c * heads + h) * tokens + row)] =
                static_cast<float>(values[static_cast<std::size_t>((i * heads + h) * columns + c)]);
      }
    });
  }

  void gate_values(const Tapped& t, Dim skip) {  // skip: rows before the text's
    const Dim heads = a->spec.heads, width = t.value.elements() / t.value[0];
    const bool shared = a->gate_at(GateRecipe::At::sdpa)->spec.shared;
    for (Dim i = skip * width; i < t.value.elements(); ++i) {
      const double g = t.value.at(i);
      for (Dim h = shared ? 0 : i % width * heads / width, end = shared ? heads : h + 1; h < end; ++h) {
        HeadSums& s = sums[static_cast<std::size_t>(h)];
        s.gate += g;
        s.closed += g < kClosedGate;
        ++s.gates;
      }
    }
  }
  // Rows of the plan, keys as they are.
  RowPlan plan_of(std::span<const Dim> which) const {
    RowPlan p;
    p.parts = {{0, static_cast<Dim>(which.size()), 0, keys, plan.parts[0].keep}};
    for (Dim r : which) {
      const auto at = static_cast<std::size_t>(r);
      p.low.push_back(plan.low[at]);
      p.high.push_back(plan.high[at]);
      p.position.push_back(plan.position[at]);
      p.kept_position.push_back(plan.kept_position[at]);
    }
    return p;
  }
  RopeTable table(Run& run, std::span<const std::int32_t> positions) const {
    if (!a->rope) return {};
    return rope_table(run, *a->rope, a->turned(), positions, std::vector<Dim>(positions.size(), rows));
  }
  Tensor queries_of(Run& run, std::span<const Dim> which, const RowPlan& p, Tensor* q_kept) const {
    const Dim n = static_cast<Dim>(which.size());
    if (whole) return q.gather(run, which).reshape({n, a->spec.heads, a->spec.head_dim});
    const Tensor in = x.gather(run, which);
    const RopeTable kept = p.position != p.kept_position ? table(run, p.kept_position) : RopeTable{};
    return finish_queries(run, *a, in, project_queries(run, *a, in), p.position, table(run, p.position), kept,
                          q_kept);
  }
  const Memory& keys_of(Device& device) {  // computed when first asked for
    if (k.rows > 0) return k;
    Run run(device);
    for (Dim first = 0; first < keys; first += kKeyRows) {
      run.reset();
      std::vector<Dim> which(static_cast<std::size_t>(std::min(kKeyRows, keys - first)));
      std::iota(which.begin(), which.end(), first);
      const Tensor in = x.gather(run, which);
      k.add(finish_keys(run, *a, in, project_keys(run, *a, in), table(run, plan_of(which).position)), keys);
    }
    return k;
  }
};

struct AttentionRecord::Passing {
  bool elsewhere = false, row_stats = false;
  Dim fed = 0, now = 0;  // tokens that have passed, and of this piece; elsewhere: not counted
};

AttentionRecord::AttentionRecord(Device& device, const Model& model, Ids ids, Ids source,
                                 const RecordOptions& options)
    : device_(device),
      model_(model),
      first_keys_(options.first_keys),
      ids_(ids.begin(), ids.end()),
      source_(source.begin(), source.end()) {
  if (ids.empty()) fail("inspect: the text has no tokens");
  Taps own;
  Taps& taps = options.taps ? *options.taps : own;
  const Dim n = static_cast<Dim>(ids.size());
  double need = 0;
  std::vector<AttentionPlace> there;
  each_attention(model, [&](const AttentionPlace& place, const Attention& a) {
    there.push_back(place);
    if (options.keep && !options.keep(place)) return;
    places_.push_back(place);
    auto kept = std::make_shared<Kept>();
    kept->a = &a;
    kept->whole = place.cross || a.grid || taps.edits(site::q) || taps.edits(site::k) ||
                  taps.edits(site::latent) || taps.edits(site::q_latent);
    if (kept->whole && a.mask.keep > 0 && a.rope)
      fail(
          "inspect: queries and keys of a model that keeps its first keys cannot be "
          "edited and looked at again");
    kept->sums.resize(static_cast<std::size_t>(a.spec.heads));
    const Dim width =
        kept->whole ? a.spec.heads * a.spec.head_dim + a.spec.kv_heads * a.spec.head_dim : model.recipe.width;
    need += static_cast<double>(row_ids(place).size()) *
            (static_cast<double>(width) * static_cast<double>(size_of(device.real)) +
             (options.row_stats ? static_cast<double>(a.spec.heads * 4 * int{AttentionStat::count}) : 0));
    kept_.emplace(place, std::move(kept));
  });
  if (there.empty() && model.decoder && model.decoder->recurrent &&
      model.decoder->recurrent->recipe.attention)
    fail("inspect: model ", model.recipe.name,
         " has no layers with heads: its one attention is its recurrent decoder's look at the source, which "
         "`rapt inspect attention --cross` "
         "and `rapt translate --alignment` show");
  if (there.empty()) fail("inspect: model ", model.recipe.name, " has no attention layer to look at");
  if (places_.empty())
    fail("inspect: none of the attentions asked for is there; model ", model.recipe.name, " has ",
         what_there_is(there));
  if (need > options.most_bytes)
    fail("inspect: to look at all of these layers again takes ", byte_count(need), " for ", n, " tokens, ",
         byte_count(options.most_bytes), " are allowed; choose one layer (--layer) or a shorter text");

  const auto passing = std::make_shared<Passing>();
  passing->elsewhere = options.elsewhere, passing->row_stats = options.row_stats;
  taps.first_keys = options.first_keys;
  if (options.elsewhere) {
    if (!options.taps || model.encoder || !model.decoder)
      fail("inspect: another's pass can be recorded of a decoder alone");
    for (auto& [place, kept] : kept_) {
      kept->before = model.recipe.embed.sink_tokens;
      kept->rows = kept->keys = kept->before + n;
    }
    watch(taps, passing);
    plan();
    return;
  }
  watch(taps, passing);
  Dim &fed = passing->fed, &now = passing->now;
  Run run(device);
  run.taps = &taps;
  const Batch from{.tokens = source_, .sequences = {{.first = 0, .count = static_cast<Dim>(source_.size())}}};
  const Dim piece = in_pieces(model, options.taps) ? std::max<Dim>(1, options.chunk) : n;
  KvPool cache(model);
  for (; fed < n; fed += now) {
    now = std::min(piece, n - fed);
    run.reset();
    Batch batch = batch_of(model, ids);
    if (!ids.picture) {
      batch.tokens = ids.subspan(static_cast<std::size_t>(fed), static_cast<std::size_t>(now));
      batch.sequences = {{.first = 0, .count = now, .past = fed, .opened = n}};
    }
    if (!model.recipe.head.pools()) batch.want = kWantLast;
    forward(run, model, batch, source_.empty() ? nullptr : &from, now < n ? &cache : nullptr);
  }
  plan();
}

void AttentionRecord::watch(Taps& taps, const std::shared_ptr<Passing>& passing) {
  const auto find = [this](const Tapped& t) -> Kept* {
    const auto it = kept_.find(place_of(model_, t));
    return it == kept_.end() ? nullptr : it->second.get();
  };
  taps.see(site::attn_in, [this, find, passing](const Tapped& t) {
    Kept* kept = find(t);
    if (!kept) return;
    const Dim text = static_cast<Dim>(row_ids(place_of(model_, t)).size());
    if (!passing->elsewhere && passing->fed == 0) {
      kept->before = t.value[0] - (t.stack == Stack::encoder && model_.decoder ? text : passing->now);
      kept->rows = kept->before + text;
      kept->keys = t.cross ? 0 : kept->rows;
    }
    if (!kept->whole) kept->x.add(t.value, kept->rows);
  });
  taps.see(site::q, [find](const Tapped& t) {
    if (Kept* kept = find(t); kept && kept->whole) kept->q.add(t.value, kept->rows);
  });
  taps.see(site::k, [find, passing](const Tapped& t) {
    Kept* kept = find(t);
    if (!kept || !kept->whole) return;
    if (!passing->elsewhere) kept->keys = t.value[0];
    kept->k.add(t.value, kept->keys);
  });
  taps.see(site::attn_stats, [this, find, passing](const Tapped& t) {
    Kept* kept = find(t);
    if (!kept) return;
    add_stats(t, kept->before, kept->sums, learned_keys(*kept->a));
    if (passing->row_stats) kept->add_row_stats(t, static_cast<Dim>(row_ids(place_of(model_, t)).size()));
  });
  taps.see(site::gate(GateRecipe::At::sdpa), [this, find, passing](const Tapped& t) {
    Tapped whose = t;
    whose.cross = part_of(model_, t).attention()->spec.cross;
    const bool first = passing->elsewhere ? t.position == 0 : passing->fed == 0;
    if (Kept* kept = find(whose)) kept->gate_values(t, first ? kept->before : 0);
  });
}

void AttentionRecord::plan() {
  for (auto& [place, kept] : kept_) {
    const std::vector<Sequence> all{{.first = 0, .count = kept->rows}};
    kept->plan = place.cross ? plan_cross(all, std::vector<Sequence>{{.first = 0, .count = kept->keys}})
                             : plan_rows(kept->a->mask, all);
  }
}

const Attention& AttentionRecord::attention(const AttentionPlace& place) const { return *kept(place).a; }

const std::vector<HeadSums>& AttentionRecord::sums(const AttentionPlace& place) const {
  Kept& k = kept(place);
  if (k.before == 0 || k.counted) return k.sums;
  for (HeadSums& s : k.sums) s.seeing = 0, s.first = s.self = s.previous = s.distance = 0;
  std::vector<Dim> all(row_ids(place).size());
  std::iota(all.begin(), all.end(), Dim{0});
  rows(place, -1, all, [&](Dim row, int head, std::span<const float> w) {
    HeadSums& s = k.sums[static_cast<std::size_t>(head)];
    const double unit = share_unit(k.a->spec, w);
    const bool sees_first = sees(place, row, 0);
    s.seeing += sees_first;
    for (Dim key = 0; key < static_cast<Dim>(w.size()); ++key) {
      const double x = static_cast<double>(w[static_cast<std::size_t>(key)]) * unit;
      if (sees_first && key < first_keys_) s.first += x;
      if (key == row) s.self += x;
      if (key == row - 1) s.previous += x;
      s.distance += x * static_cast<double>(std::abs(row - key));
    }
  });
  k.counted = true;
  return k.sums;
}

std::vector<float> AttentionRecord::row_stats(const AttentionPlace& place) const {
  const Kept& k = kept(place);
  if (k.stats.empty()) fail("inspect: the statistics of each row were not asked for");
  std::vector<float> out = k.stats;
  if (k.before == 0 || place.cross) return out;
  std::vector<Dim> all(row_ids(place).size());
  std::iota(all.begin(), all.end(), Dim{0});
  const std::size_t T = all.size(), heads = k.sums.size();
  rows(place, -1, all, [&](Dim row, int head, std::span<const float> w) {
    const double unit = share_unit(k.a->spec, w);
    double first = 0, self = 0, previous = 0, distance = 0;
    for (Dim key = 0; key < static_cast<Dim>(w.size()); ++key) {
      const double x = static_cast<double>(w[static_cast<std::size_t>(key)]) * unit;
      if (key < first_keys_) first += x;
      if (key == row) self += x;
      if (key == row - 1) previous += x;
      distance += x * static_cast<double>(std::abs(row - key));
    }
    const auto put = [&](int stat, double x) {
      out[(static_cast<std::size_t>(stat) * heads + static_cast<std::size_t>(head)) * T +
          static_cast<std::size_t>(row)] = static_cast<float>(x);
    };
    put(AttentionStat::first, first), put(AttentionStat::self, self);
    put(AttentionStat::previous, previous), put(AttentionStat::distance, distance);
    put(AttentionStat::strongest, static_cast<double>(std::max_element(w.begin(), w.end()) - w.begin()));
  });
  return out;
}

AttentionRecord::Kept& AttentionRecord::kept(const AttentionPlace& place) const {
  const auto it = kept_.find(place);
  if (it == kept_.end())
    fail("inspect: model ", model_.recipe.name, " has no ",
         place.cross ? "cross-attention" : "self-attention", " in layer ", place.layer, " of its ",
         place.stack == Stack::encoder ? "encoder" : "decoder", ", or it was not kept");
  return *it->second;
}

std::span<const std::int32_t> AttentionRecord::row_ids(const AttentionPlace& place) const {
  return place.stack == Stack::encoder && model_.decoder ? source_ : ids_;
}
std::span<const std::int32_t> AttentionRecord::key_ids(const AttentionPlace& place) const {
  return place.cross ? source_ : row_ids(place);
}

bool AttentionRecord::sees(const AttentionPlace& place, Dim row, Dim key) const {
  return row_sight(place, row).sees(key);
}

std::pair<Dim, Dim> AttentionRecord::sight(const AttentionPlace& place, Dim row) const {
  const Kept& k = kept(place);
  const auto at = static_cast<std::size_t>(row + k.before);
  const Dim before = place.cross ? 0 : k.before, low = k.plan.parts[0].keep > 0 ? 0 : k.plan.low[at];
  return {std::max<Dim>(0, low - before), std::max<Dim>(0, k.plan.high[at] - before)};
}

RowSight AttentionRecord::row_sight(const AttentionPlace& place, Dim row) const {
  const Kept& k = kept(place);
  const auto at = static_cast<std::size_t>(row + k.before);
  const Dim before = place.cross ? 0 : k.before;
  return {k.plan.parts[0].keep - before, k.plan.low[at] - before, k.plan.high[at] - before,
          seen_keys(k.plan, k.plan.parts[0], at) + learned_keys(*k.a)};
}

std::size_t AttentionRecord::bytes() const {
  std::size_t sum = 0;
  for (const auto& [place, k] : kept_) sum += k->x.bytes.size() + k->q.bytes.size() + k->k.bytes.size();
  return sum;
}

void AttentionRecord::rows(const AttentionPlace& place, int head, std::span<const Dim> which,
                           const See& see) const {
  Kept& k = kept(place);
  const AttentionSpec& spec = k.a->spec;
  if (head >= spec.heads)
    fail("inspect: head ", head, " was asked for; layer ", place.layer, " has ", spec.heads);
  forget_keys(&k);
  const Memory& keys = k.keys_of(device_);
  Run run(device_);
  AttentionInputs in{.k = tensor_over(const_cast<std::byte*>(keys.bytes.data()), nullptr, device_.real,
                                      std::array{k.keys, spec.kv_heads, spec.head_dim}),
                     .extra_logit = k.a->extra_logit,
                     .buckets = k.a->buckets,
                     .slot_k = k.a->slot_k,
                     .slot_v = k.a->slot_v,
                     .score_weight = k.a->score};
  const Dim text = static_cast<Dim>(row_ids(place).size()),
            skip = (k.a->slot_k ? k.a->slot_k->rows : 0) + (place.cross ? 0 : k.before);
  const Dim most = std::clamp<Dim>(kRowBytes / (4 * (k.keys + 1)), 16, 1024) / 16 * 16;
  std::vector<float> weights(static_cast<std::size_t>(key_ids(place).size()));
  for (std::size_t first = 0; first < which.size(); first += static_cast<std::size_t>(most)) {
    std::vector<Dim> some(which.begin() + static_cast<std::ptrdiff_t>(first),
                          which.begin() + static_cast<std::ptrdiff_t>(std::min(
                                              which.size(), first + static_cast<std::size_t>(most))));
    for (Dim& r : some) {
      if (r < 0 || r >= text) fail("inspect: row ", r, " was asked for; the text has ", text);
      r += k.before;
    }
    run.reset();
    const RowPlan plan = k.plan_of(some);
    in.q_kept = {};
    in.q = k.queries_of(run, some, plan, &in.q_kept);
    in.dense_bias = relative_bias(run, *k.a, in.q, in.k, plan);
    in.q = content_queries(run, *k.a, in.q);
    for (int h = std::max(0, head); h < (head < 0 ? static_cast<int>(spec.heads) : head + 1); ++h) {
      const Arena::Mark mark = run.arena.mark();
      const Tensor w = attention_weights(run, spec, in, plan, h);
      for (std::size_t i = 0; i < some.size(); ++i) {
        const Dim at = static_cast<Dim>(i) * w[1] + skip;
        if (device_.real == DType::f32) {
          see(some[i] - k.before, h, {w.as<float>().data() + at, weights.size()});
          continue;
        }
        for (std::size_t j = 0; j < weights.size(); ++j)
          weights[j] = static_cast<float>(w.at(at + static_cast<Dim>(j)));
        see(some[i] - k.before, h, weights);
      }
      run.arena.release(mark);
    }
  }
}

// Keys computed anew are kept for the layer that was asked for last only.
void AttentionRecord::forget_keys(const Kept* but) const {
  for (const auto& [place, k] : kept_)
    if (k.get() != but && !k->whole) k->k = {};
}

std::vector<float> AttentionRecord::queries(const AttentionPlace& place) const {
  const Kept& k = kept(place);
  Run run(device_);
  std::vector<float> out;
  for (Dim first = k.before; first < k.rows; first += kKeyRows) {
    run.reset();
    std::vector<Dim> which(static_cast<std::size_t>(std::min(kKeyRows, k.rows - first)));
    std::iota(which.begin(), which.end(), first);
    Tensor unused;
    const std::vector<float> some = floats_of(k.queries_of(run, which, k.plan_of(which), &unused));
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

std::vector<float> AttentionRecord::keys(const AttentionPlace& place) const {
  Kept& k = kept(place);
  forget_keys(&k);
  const Memory& keys = k.keys_of(device_);
  const Dim skip = place.cross ? 0 : k.before;
  const Tensor all = tensor_over(const_cast<std::byte*>(keys.bytes.data()), nullptr, device_.real,
                                 std::array{k.keys, keys.width});
  return floats_of(all.slice(skip, k.keys - skip));
}

// ------------------------------------------------------------------------------------------------ maps
namespace {

MapWindow filled(MapWindow w, Dim rows, Dim keys) {
  if (w.row_end < 0) w.row_end = rows;
  if (w.key_end < 0) w.key_end = keys;
  if (w.row_begin < 0 || w.row_begin >= w.row_end || w.row_end > rows || w.key_begin < 0 ||
      w.key_begin >= w.key_end || w.key_end > keys)
    fail("inspect: rows ", w.row_begin, ":", w.row_end, " and keys ", w.key_begin, ":", w.key_end,
         " were asked for; the text has ", rows, " rows and ", keys, " keys");
  if (w.pixels < 1 || w.most_rows < 1) fail("inspect: a map needs at least one pixel and one row");
  return w;
}

std::vector<HeadMap> maps_of(const AttentionRecord& record, const AttentionPlace& place, int head,
                             const MapWindow& asked) {
  const MapPooling pool(asked, static_cast<Dim>(record.row_ids(place).size()),
                        static_cast<Dim>(record.key_ids(place).size()));
  std::vector<HeadMap> maps;
  for (int h = std::max(0, head); h < (head < 0 ? record.heads(place) : head + 1); ++h)
    maps.push_back({place, h, pool.window, pool.high, pool.wide, pool.empty()});
  const Dim heads = static_cast<Dim>(maps.size());
  std::vector<Dim> seen(maps.size());  // rows of each head that were seen
  record.rows(place, head, pool.which, [&](Dim, int h, std::span<const float> weights) {
    const auto at = static_cast<std::size_t>(heads == 1 ? 0 : h);
    pool.add(seen[at]++, weights, maps[at].values);
  });
  return maps;
}

}  // namespace

MapPooling::MapPooling(const MapWindow& asked, Dim all_rows, Dim all_keys)
    : window(filled(asked, all_rows, all_keys)) {
  const Dim rows = window.row_end - window.row_begin, keys = window.key_end - window.key_begin;
  const Dim taken = std::min(rows, window.most_rows);
  high = std::min(taken, window.pixels), wide = std::min(keys, window.pixels);
  for (Dim i = 0; i < taken; ++i) which.push_back(window.row_begin + i * rows / taken);
}

void MapPooling::add(Dim i, std::span<const float> weights, std::vector<float>& values) const {
  const Dim keys = window.key_end - window.key_begin, taken = static_cast<Dim>(which.size());
  float* const line = &values[static_cast<std::size_t>(i * high / taken * wide)];
  const float* const from = weights.data() + window.key_begin;
  for (Dim x = 0; x < wide; ++x) {
    float top = line[x];
    for (Dim k = x * keys / wide; k < (x + 1) * keys / wide && !std::isnan(top); ++k)
      top = from[k] <= top ? top : from[k];  // NaN stays
    line[x] = top;
  }
}

HeadMap head_map(const AttentionRecord& record, const AttentionPlace& place, int head, MapWindow window) {
  if (head < 0) fail("inspect: a map is of one head");
  return maps_of(record, place, head, window).at(0);
}

std::vector<HeadMap> head_maps(const AttentionRecord& record, const MapWindow& window) {
  std::vector<HeadMap> all;
  for (const AttentionPlace& place : record.places())
    for (HeadMap& map : maps_of(record, place, -1, window)) all.push_back(std::move(map));
  return all;
}

std::vector<StrongestKeys> strongest_keys(const AttentionRecord& record, int count) {
  std::vector<StrongestKeys> all;
  for (const AttentionPlace& place : record.places()) {
    const std::size_t first = all.size(), rows = record.row_ids(place).size(),
                      n = rows * static_cast<std::size_t>(count);
    for (int h = 0; h < record.heads(place); ++h)
      all.push_back({place, h, count, std::vector<std::int32_t>(n, -1), std::vector<float>(n)});
    std::vector<Dim> which(rows);
    std::iota(which.begin(), which.end(), Dim{0});
    std::vector<std::int32_t> order;
    record.rows(place, -1, which, [&](Dim row, int head, std::span<const float> w) {
      order.clear();
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(w.size()); ++k)
        if (w[static_cast<std::size_t>(k)] > 0) order.push_back(k);
      const auto take = std::min(order.size(), static_cast<std::size_t>(count));
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(take), order.end(),
                        [&](std::int32_t a, std::int32_t b) {
                          const float x = w[static_cast<std::size_t>(a)], y = w[static_cast<std::size_t>(b)];
                          return x > y || (x == y && a < b);
                        });
      StrongestKeys& s = all[first + static_cast<std::size_t>(head)];
      for (std::size_t i = 0; i < take; ++i) {
        const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(count) + i;
        s.keys[at] = order[i];
        s.weights[at] = w[static_cast<std::size_t>(order[i])];
      }
    });
  }
  return all;
}

}  // namespace rapt
