// SPDX-License-Identifier: Apache-2.0
// Weights by name, their starting values, then forward(): checks, encoder, decoder, rows asked for, head.
#include "rapt/nn/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "rapt/nn/adapted.h"
#include "rapt/nn/block.h"
#include "rapt/nn/pool.h"
#include "rapt/nn/recurrent.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/recurrent.h"

namespace rapt {
namespace {

PoolLayer build_pool(WeightTable& table, const Recipe& recipe) {
  const PoolAttention& a = recipe.head.attend;
  const Dim D = recipe.width / a.heads;
  PoolLayer out;
  out.query = table.table("head.pool.query", 1, recipe.width);
  PartBuilder builder{table, recipe, "head"};
  builder.name = "head.pool";
  AttnRecipe attention{.cross = true, .heads = a.heads, .kv_heads = a.heads, .head_dim = D, .v_dim = D};
  attention.bias = {true, true, true, true};
  out.attention = build(builder, attention);
  out.norm = build_norm(table, a.norm, "head.pool.norm", recipe.width);
  out.ffn =
      build(builder, FfnRecipe{.kind = FfnRecipe::Kind::mlp, .act = a.act, .width = a.ffn, .bias = true});
  return out;
}

}  // namespace

Model::Model(const Recipe& from, DType real_type, DType matrices)
    : Model(from, real_type, [=](std::string name, Dim rows, Dim cols, WeightRole role) {
        const bool panels = role == WeightRole::matrix;
        Weight w = without_storage(std::move(name), rows, cols, role);
        w.format = panels && !stays_real(w.name) ? matrices : real_type;
        w.packing = panels ? Packing::panels : Packing::rows;
        return w;
      }) {
  // Storage comes last: a model too large to be meant fails before any is taken.
  for (Weight& w : weights) w.data = std::move(make_weight(w.name, w.rows, w.cols, w.format, w.packing).data);
}

Model::Model(const Recipe& from, DType real_type, const WeightMaker& make)
    : recipe(resolve(from)), real(real_type) {
  WeightTable table(weights, starts, make);
  const Dim C = recipe.width;
  const EmbedRecipe& e = recipe.embed;
  const Dim narrow = e.width > 0 ? e.width : C;  // of token vectors and the output matrix
  const Dim summed = e.project == EmbedRecipe::Project::sum ? narrow : C;  // of positions, types, norm
  // A tied table is also the output matrix, so it lies in panels.
  if (recipe.vocab > 0)
    tokens = recipe.head.tied ? table.matrix("embed.tokens", recipe.vocab, narrow)
                              : table.table("embed.tokens", recipe.vocab, narrow);
  target.tokens = source.tokens = tokens;
  if (e.patches) patches = build_patches(table, recipe);
  if (e.source_vocab > 0) source.tokens = table.table("embed.source_tokens", e.source_vocab, narrow);
  if (e.pos == EmbedRecipe::Pos::learned && !e.patches)
    target.positions = table.table("embed.positions", recipe.context + e.sink_tokens, summed);
  if (e.types > 0) types = table.table("embed.types", e.types, summed);
  if (e.sink_tokens > 0) sinks = table.table("embed.sinks", e.sink_tokens, C);
  target.norm = build_norm(table, e.norm, "embed.norm", summed);
  source.positions = target.positions;
  source.norm = target.norm;
  if (e.own_source) {
    if (e.pos == EmbedRecipe::Pos::learned)
      source.positions = table.table("embed.source_positions", recipe.context, summed);
    source.norm = build_norm(table, e.norm, "embed.source_norm", summed);
  }
  if (narrow != C) project = build_linear(table, "embed.project", C, narrow, e.project_bias);
  if (recipe.encoder) encoder = build_stack(table, recipe, *recipe.encoder, "encoder");
  if (recipe.decoder) decoder = build_stack(table, recipe, *recipe.decoder, "decoder");
  const HeadRecipe& h = recipe.head;
  if (h.kind == HeadRecipe::Kind::none) return;
  const bool pools = h.pools();
  const std::string out = h.kind == HeadRecipe::Kind::classes  ? "head.classes"
                          : h.kind == HeadRecipe::Kind::vector ? "head.vector"
                                                               : "head";
  const Dim results = h.kind == HeadRecipe::Kind::classes  ? h.classes
                      : h.kind == HeadRecipe::Kind::vector ? h.width
                                                           : recipe.vocab;
  const Dim width = h.pool == HeadRecipe::Pool::both ? 2 * C : h.transform && !pools ? narrow : C;
  if (h.pool == HeadRecipe::Pool::attention) pool = build_pool(table, recipe);
  pool_norm = build_norm(table, h.pool_norm, "head.pool_norm", C);
  if (h.transform) {
    transform = build_linear(table, pools ? "head.pooler" : "head.transform", width, C, h.transform->bias);
    head_norm = build_norm(table, h.transform->norm, "head.norm", width);
  }
  if (results > 0) head.w = h.tied ? tokens : table.matrix(out + ".weight", results, width);
  if (h.bias) head.b = table.vector(out + ".bias", results);
  if (h.distilled) distilled = build_linear(table, "head.distilled", results, C, h.bias);
}

Weight& Model::weight(std::string_view name) {
  std::vector<std::string> names;
  for (Weight& w : weights) {
    if (w.name == name) return w;
    names.push_back(w.name);
  }
  fail("model ", recipe.name, " has no weight '", name, "'; the nearest is '", nearest(name, names), "'");
}

Dim Model::parameters() const {
  Dim n = 0;
  for (const Weight& w : weights)
    if (is_parameter(w)) n += w.size();
  return n;
}

// ------------------------------------------------------------------------------------------ starting values
namespace {

std::uint64_t name_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t h = 14695981039346656037u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return mix_key(seed, h);
}

bool ends(std::string_view s, std::string_view with) { return s.ends_with(with); }

}  // namespace

void init(Model& model, std::uint64_t seed) {
  const InitRecipe& in = model.recipe.init;
  Dim layers = 0;
  if (model.recipe.encoder) layers = std::max(layers, model.recipe.encoder->layers);
  if (model.recipe.decoder) layers = std::max(layers, model.recipe.decoder->layers);
  const bool xavier = in.scheme == InitRecipe::Scheme::xavier, t5 = in.scheme == InitRecipe::Scheme::t5;
  for (Weight& w : model.weights) {
    const std::string_view name = w.name;
    const std::uint64_t key = name_key(seed, name);
    const double fan_in = static_cast<double>(w.cols), fan_out = static_cast<double>(w.rows);
    // A constant, or normal with std, or uniform in [-reach, reach].
    double constant = 0, std = 0, reach = 0;
    const auto start = model.starts.find(w.index);
    if (start != model.starts.end()) {
      constant = start->second;
    } else if (ends(name, ".bias") || ends(name, ".value") || ends(name, ".extra_logit")) {
    } else if (ends(name, "_conv") || ends(name, ".mix")) {
      reach = 1 / std::sqrt(fan_in);
    } else if (xavier && w.packing == Packing::panels && name != "embed.tokens") {
      reach = std::sqrt(6 / (fan_in + fan_out));
    } else if (t5 && name.starts_with("embed")) {
      std = 1;
    } else if (t5 || (xavier && name == "embed.tokens")) {
      std = 1 / std::sqrt(fan_in);
    } else {
      std = in.std;
      if (in.scale_residual &&
          (ends(name, ".o.weight") || ends(name, ".down.weight") || ends(name, ".out.weight")))
        std /= std::sqrt(2.0 * static_cast<double>(layers));
    }
    const bool running = ends(name, ".running");
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c) {
        const auto at = static_cast<std::uint64_t>(r * w.cols + c);
        double v = constant;
        if (std > 0) v = std * random_normal(key, at);
        if (reach > 0) v = reach * (2 * random_uniform(key, at) - 1);
        if (running) v = c >= w.cols / 2 ? 1 : 0;  // mean 0, variance 1
        w.set(r, c, v);
      }
  }
}

// ------------------------------------------------------------------------------------------------ forward
namespace {

// Rows of the batch as they run through a stack: learned sink tokens stand before every sequence that
// begins here.
struct Rows {
  std::vector<std::int32_t> ids, types, positions;
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> visible;  // rows that belong to the caller
  Tensor vectors;                     // given in the place of tokens
  std::span<const Picture> pictures;  // likewise
};

// A picture for each sequence, with as many rows as it has patches and learned tokens before them.
void check_pictures(const Model& model, const Batch& batch) {
  if (!batch.tokens.empty() || batch.rows)
    fail("forward: the batch has pictures and ", batch.rows ? "rows" : "tokens", "; give one of the two");
  if (batch.sequences.size() != batch.pictures.size())
    fail("forward: ", batch.sequences.size(), " sequences for ", batch.pictures.size(),
         " pictures; picture_batch() makes them");
  const Batch made = picture_batch(model.recipe, batch.pictures);
  for (std::size_t i = 0; i < made.sequences.size(); ++i)
    if (batch.sequences[i].count != made.sequences[i].count || batch.sequences[i].past != 0)
      fail("forward: picture ", i, " has ", made.sequences[i].count, " rows, its sequence ",
           batch.sequences[i].count, "; picture_batch() makes them");
}

Rows expand(const Model& model, const Batch& batch, Dim sinks, const Weight* table) {
  Rows rows;
  rows.vectors = batch.rows;
  rows.pictures = batch.pictures;
  if (!batch.pictures.empty()) check_pictures(model, batch);
  const bool tokens = !batch.rows && batch.pictures.empty();
  if (model.patches && batch.pictures.empty())
    fail("forward: model ", model.recipe.name, " reads pictures (Batch::pictures), and there are none");
  if (tokens && !table)
    fail("forward: model ", model.recipe.name,
         " has no vocabulary, so it cannot read tokens; give it rows (Batch::rows)");
  if (batch.rows) {
    if (!batch.tokens.empty()) fail("forward: the batch has tokens and rows; give one of the two");
    if (batch.rows.rank != 2 || batch.rows.last() != model.recipe.width || batch.rows.dtype != model.real ||
        !batch.rows.contiguous())
      fail("forward: rows of the batch are ", batch.rows.shape(), " ", name_of(batch.rows.dtype), ", model ",
           model.recipe.name, " wants [rows,", model.recipe.width, "] ", name_of(model.real));
    if (sinks > 0)
      fail("forward: model ", model.recipe.name,
           " puts learned tokens before every sequence; it reads tokens, not rows");
  }
  const Dim V = table ? table->rows : 0,
            total = batch.rows ? batch.rows[0]
                    : tokens   ? static_cast<Dim>(batch.tokens.size())
                               : batch.sequences.back().first + batch.sequences.back().count;
  if (batch.sequences.empty()) fail("forward: the batch has no sequences");
  if (!batch.types.empty() && static_cast<Dim>(batch.types.size()) != total)
    fail("forward: ", batch.types.size(), " token types for ", total, " tokens");
  if (!batch.types.empty() && model.recipe.embed.types == 0)
    fail("forward: token types were given, but model ", model.recipe.name, " has none (embed.types is 0)");
  Dim next = 0;
  for (const Sequence& s : batch.sequences) {
    if (s.first != next || s.count < 1 || s.past < 0 || s.first + s.count > total)
      fail("forward: a sequence covers rows ", s.first, " to ", s.first + s.count, " of ", total,
           "; sequences must follow each other without gaps, none empty");
    next = s.first + s.count;
    Sequence e = s;
    const Dim added = s.past == 0 ? sinks : 0;
    e.first = static_cast<Dim>(rows.ids.size());
    e.count = s.count + added;
    e.past = s.past == 0 ? 0 : s.past + sinks;
    e.prefix = s.prefix > 0 ? s.prefix + sinks : 0;
    e.opened = s.opened > 0 ? s.opened + sinks : 0;
    rows.sequences.push_back(e);
    for (Dim i = 0; i < e.count; ++i) {
      const bool sink = i < added;
      const auto at = static_cast<std::size_t>(s.first + i - added);
      if (!sink) {
        rows.visible.push_back(static_cast<std::int32_t>(rows.ids.size()));
        if (tokens && (batch.tokens[at] < 0 || batch.tokens[at] >= V))
          fail("forward: token ", batch.tokens[at], " at row ", at, " is outside the vocabulary of ", V);
      }
      rows.ids.push_back(sink ? static_cast<std::int32_t>(V + i) : tokens ? batch.tokens[at] : -1);
      rows.types.push_back(sink || batch.types.empty() ? 0 : batch.types[at]);
      rows.positions.push_back(static_cast<std::int32_t>(e.past + i));
    }
  }
  if (next != total) fail("forward: the sequences cover ", next, " rows, the batch has ", total);
  return rows;
}

Tensor embedding(Run& run, const Model& m, const Model::Embed& of, const Rows& rows) {
  const EmbedRecipe& e = m.recipe.embed;
  const auto projected = [&](const Tensor& x, EmbedRecipe::Project at) {
    return m.project.w && e.project == at ? linear(run, x, *m.project.w, m.project.b) : x;
  };
  const auto finished = [&](const Tensor& x) {
    return tap(run, site::embed,
               projected(dropout(run, apply(run, of.norm, x), e.dropout, 1), EmbedRecipe::Project::sum));
  };
  if (!rows.pictures.empty()) return finished(embed_pictures(run, *m.patches, rows.pictures));
  const double scale = e.scale * (e.scale_sqrt_width ? std::sqrt(static_cast<double>(m.recipe.width)) : 1);
  Tensor x = tap(run, site::tokens,
                 rows.vectors ? rows.vectors : embed(run, rows.ids, *of.tokens, scale, m.sinks));  // [T,C]
  if (!rows.vectors) x = projected(x, EmbedRecipe::Project::tokens);
  if (of.positions) {
    for (std::int32_t p : rows.positions)
      if (p >= of.positions->rows)
        fail("forward: position ", p, " is beyond the model's ", of.positions->rows,
             " learned positions; use a shorter text");
    x = add(run, x, tap(run, site::positions, embed(run, rows.positions, *of.positions)));
  }
  if (m.types) x = add(run, x, embed(run, rows.types, *m.types));
  if (e.pos == EmbedRecipe::Pos::sinusoid) {
    std::vector<std::int32_t> positions = rows.positions;
    for (std::int32_t& p : positions) p += static_cast<std::int32_t>(e.first);
    x = add(run, x, tap(run, site::positions, sinusoid(run, e.layout, e.table, x[1], positions)));
  }
  return finished(x);
}

struct Ids {  // the names of rows in random numbers, for as long as a stack runs
  Run& run;
  std::span<const std::uint64_t> before;
  Ids(Run& r, const Rows& rows) : run(r), before(r.row_ids) {
    auto* ids = run.arena.take_array<std::uint64_t>(static_cast<Dim>(rows.ids.size()));
    for (const Sequence& s : rows.sequences)
      for (Dim i = 0; i < s.count; ++i)
        ids[s.first + i] = s.id * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(s.past + i);
    run.row_ids = {ids, rows.ids.size()};
  }
  ~Ids() { run.row_ids = before; }
};

// `last`: what a recurrent encoder leaves, and a recurrent decoder starts from. `adapted`: where some rows
// use adapters.
Tensor through(Run& run, const Model& m, const LayerStack& stack, Stack which, const Rows& rows,
               Tensor memory, std::vector<Sequence> memory_sequences, KvPass* cache, LastStates* last,
               AdaptedRows* adapted) {
  run.stack = which;
  run.layer = -1;
  if (adapted) {
    adapted->of(Adapter::Rows::own) = adapted_list(rows.sequences);
    adapted->of(Adapter::Rows::memory) = adapted_list(memory_sequences);
  }
  const Ids ids(run, rows);
  const Model::Embed& of = which == Stack::encoder && m.decoder ? m.source : m.target;
  if (stack.recurrent) {
    const Tensor x = embedding(run, m, of, rows);
    if (which == Stack::encoder) return run_recurrent_encoder(run, stack, x, rows.sequences, last);
    return run_recurrent_decoder(run, stack, x, rows.sequences, {memory, std::move(memory_sequences), last},
                                 cache);
  }
  auto pass = std::make_shared<Pass>();
  pass->sequences = rows.sequences;
  pass->memory = memory;
  pass->memory_sequences = std::move(memory_sequences);
  pass->cache = cache;
  if (m.patches) pass->places = picture_places(m.patches->recipe, rows.pictures);
  const Tensor x = embedding(run, m, of, rows);
  prepare(run, *pass, stack);
  return run_stack(run, stack, x, pass);
}

}  // namespace

Tensor head_logits(Run& run, const Model& m, Tensor x) {
  const HeadRecipe& h = m.recipe.head;
  if (h.kind == HeadRecipe::Kind::none) return x;
  if (h.transform) {
    x = linear(run, x, *m.transform.w, m.transform.b);
    x = apply(run, m.head_norm, h.transform->linear ? x : activation(run, h.transform->act, x));
  }
  if (h.scale != 1) x = activation(run, Act::scale, x, h.scale);
  if (!m.head.w) return x;
  // [T,V]; classes: [sequences,classes]
  Tensor logits = tap(run, site::unembed, linear(run, x, *m.head.w, m.head.b), false, Tapped::Rows::wanted);
  if (h.cap > 0) logits = activation(run, Act::softcap, logits, h.cap);
  return tap(run, site::logits, logits, false, Tapped::Rows::wanted);
}

namespace {

// What a learned query sees of each sequence: x = attention, then x + ffn(norm(x)) [sequences,C].
Tensor attended(Run& run, const PoolLayer& pool, const Tensor& x, const Rows& rows) {
  auto pass = std::make_shared<Pass>();
  const auto n = static_cast<Dim>(rows.sequences.size());
  for (Dim i = 0; i < n; ++i)
    pass->sequences.push_back({.first = i, .count = 1, .id = rows.sequences[static_cast<std::size_t>(i)].id});
  pass->memory = x;
  pass->memory_sequences = rows.sequences;
  if (run.tape) run.tape->hold(pass);
  // No layer's points: nobody is shown what looks like theirs.
  const bool muted = run.taps && run.taps->muted;
  if (run.taps) run.taps->muted = true;
  prepare(run, *pass, pool.attention);
  const Tensor query = embed(run, std::vector<std::int32_t>(static_cast<std::size_t>(n)), *pool.query);
  Sum alone{query};
  const Tensor seen = run_part(run, pool.attention, query, *pass, alone);
  Sum sum{seen, 1, true};
  const Tensor y = run_part(run, pool.ffn, apply(run, pool.norm, seen), *pass, sum);
  if (run.taps) run.taps->muted = muted;
  return sum.done ? y : add(run, seen, y);
}

// The first row of each sequence that holds the token, else the first of all; token 0: that of the
// highest id.
std::vector<std::int32_t> rows_with(Dim token, const Rows& rows, Dim added) {
  std::vector<std::int32_t> out;
  for (const Sequence& s : rows.sequences) {
    const auto begin = rows.ids.begin() + s.first + added, end = rows.ids.begin() + s.first + s.count;
    auto found = token == 0 ? std::max_element(begin, end) : std::find(begin, end, token);
    if (found == end) found = begin;
    out.push_back(static_cast<std::int32_t>(found - rows.ids.begin()));
  }
  return out;
}

// One row for each sequence, of those that belong to the caller (learned sink tokens stand before them).
Tensor pooled(Run& run, const Model& m, const Tensor& x, const Rows& rows) {
  const HeadRecipe& h = m.recipe.head;
  const Dim added = m.recipe.embed.sink_tokens, before = m.patches ? m.patches->recipe.before() : added;
  std::vector<RowRange> all, patches;
  for (const Sequence& s : rows.sequences) {
    all.push_back({s.first + added, s.count - added});
    patches.push_back({s.first + before, s.count - before});
  }
  switch (h.pool) {
    case Pool::mean: return apply(run, m.pool_norm, mean_rows(run, x, patches));
    case Pool::both: {
      std::vector<std::int32_t> each(all.size());
      std::iota(each.begin(), each.end(), 0);
      return beside(run, pool_rows(run, Pool::first, x, all), each, mean_rows(run, x, patches), each);
    }
    case Pool::token: return apply(run, m.pool_norm, take_rows(run, x, rows_with(h.token, rows, added)));
    case Pool::attention: return apply(run, m.pool_norm, attended(run, *m.pool, x, rows));
    default: return apply(run, m.pool_norm, pool_rows(run, h.pool, x, all));
  }
}

// DeiT: each of the first two rows has a classifier.
Tensor distilled_logits(Run& run, const Model& m, const Tensor& x, const Rows& rows) {
  std::vector<std::int32_t> first, second;
  for (const Sequence& s : rows.sequences) {
    first.push_back(static_cast<std::int32_t>(s.first));
    second.push_back(static_cast<std::int32_t>(s.first + 1));
  }
  const Tensor a = linear(run, take_rows(run, x, first), *m.head.w, m.head.b),
               b = linear(run, take_rows(run, x, second), *m.distilled.w, m.distilled.b);
  const Tensor logits =
      tap(run, site::unembed, activation(run, Act::scale, add(run, a, b), 0.5), false, Tapped::Rows::wanted);
  return tap(run, site::logits, logits, false, Tapped::Rows::wanted);
}

// The rows of the stack's result that the caller wants.
std::vector<std::int32_t> wanted_rows(const Want& want, const Rows& rows) {
  if (want.rows == Want::Rows::all) return rows.visible;
  std::vector<std::int32_t> out;
  if (want.rows == Want::Rows::last) {
    for (const Sequence& s : rows.sequences) out.push_back(static_cast<std::int32_t>(s.first + s.count - 1));
    return out;
  }
  if (want.chosen.empty()) fail("forward: Batch::want names no row; choose at least one");
  for (const std::int32_t row : want.chosen) {
    if (row < 0 || static_cast<std::size_t>(row) >= rows.visible.size())
      fail("forward: row ", row, " is wanted, the batch has rows 0 to ", rows.visible.size() - 1);
    out.push_back(rows.visible[static_cast<std::size_t>(row)]);
  }
  return out;
}

// A cache continues sequences: each once, from where it stands, and rows that look ahead must come with all
// they look at.
void check_continuation(const Model& m, const Batch& batch, const KvPool& pool) {
  if (!m.decoder)
    fail("forward: model ", m.recipe.name,
         " is an encoder: its rows look ahead, so a cache has nothing to continue; run whole sequences");
  bool prefix = false;
  for (const Layer& layer : m.decoder->layers)
    for (const Part& p : layer.parts) prefix = prefix || (p.attention() && p.attention()->mask.prefix);
  std::set<std::uint64_t> ids;
  for (const Sequence& s : batch.sequences) {
    if (!ids.insert(s.id).second)
      fail("forward: two sequences of the batch have id ", s.id, "; with a cache each needs its own");
    if (pool.length(s.id) != s.past)
      fail("forward: sequence ", s.id, " is said to have ", s.past, " tokens in the cache, it has ",
           pool.length(s.id));
    if (prefix && s.past < s.prefix && s.past + s.count < s.prefix)
      fail("forward: sequence ", s.id, " has a prefix of ", s.prefix,
           " tokens that see each other, and only ", s.past + s.count,
           " of them have come; give the whole prefix in one piece");
    if (prefix && s.past > 0 && s.past < s.prefix)
      fail("forward: sequence ", s.id, " has its prefix of ", s.prefix,
           " tokens in two pieces; give it in one");
  }
}

// Whether some sequence uses an adapter; all must be of this model.
bool uses_adapters(const Run& run, const Model& m, const Batch& batch) {
  bool any = false;
  for (const Sequence& s : batch.sequences)
    for (const AdapterUse& use : s.adapters) {
      if (!use.adapter) fail("forward: sequence ", s.id, " names an adapter that is none");
      if (use.adapter->model != &m)
        fail("forward: the adapter ", use.adapter->path, " was made for another model than ", m.recipe.name,
             "; load it for this one (load_adapter)");
      any = true;
    }
  if (any && run.tape)
    fail("forward: a tape and an adapter together: nothing is differentiated through adapters");
  return any;
}

// Of the rows that the head reads.
AdaptedRows::List adapted_wanted(const Rows& rows, std::span<const std::int32_t> wanted) {
  std::vector<Sequence> each;
  std::size_t s = 0;
  for (const std::int32_t row : wanted) {
    const auto holds = [&](const Sequence& q) { return row >= q.first && row < q.first + q.count; };
    if (!holds(rows.sequences[s]))  // they mostly come in order
      s = static_cast<std::size_t>(std::ranges::find_if(rows.sequences, holds) - rows.sequences.begin());
    each.push_back(
        {.first = static_cast<Dim>(each.size()), .count = 1, .adapters = rows.sequences[s].adapters});
  }
  return adapted_list(each);
}

}  // namespace

Tensor forward(Run& run, const Model& m, const Batch& batch, const Batch* source, KvPool* pool) {
  const Lease lease(run.device.team());
  const RunGuard guard(run);
  if (run.device.real != m.real)
    fail("forward: the model's weights are ", name_of(m.real), ", the device computes in ",
         name_of(run.device.real));
  if (pool && run.tape)
    fail("forward: a tape and a cache together: training reads whole sequences, give one of the two");
  const bool both = m.encoder && m.decoder, classes = m.recipe.head.pools();
  const char* what = m.recipe.head.kind == HeadRecipe::Kind::classes ? "is a classifier" : "gives vectors";
  const Want& want = batch.want;
  if (classes && !want.hidden && want.rows != Want::Rows::all)
    fail("forward: Batch::want names rows, but model ", m.recipe.name, " ", what,
         ": it gives one row per sequence as it is; leave it away, or want hidden rows");
  for (const Sequence& s : batch.sequences)
    if (classes && s.past > 0)
      fail("forward: a model that ", what, " reads whole sequences, and one is said to have ", s.past,
           " tokens before its rows");
  if (classes && pool)
    fail("forward: model ", m.recipe.name, " ", what,
         ": it reads whole sequences, so a cache has nothing to continue");
  if (source && !both)
    fail("forward: model ", m.recipe.name, " has no encoder and decoder, so it takes no source batch");

  if (both && !source && !pool)
    fail("forward: model ", m.recipe.name, " translates from a source batch; none was given");
  const Rows source_rows = source ? expand(m, *source, 0, m.source.tokens) : Rows{};
  if (source && source_rows.sequences.size() != batch.sequences.size())
    fail("forward: ", source_rows.sequences.size(), " source sequences for ", batch.sequences.size(),
         " target sequences");
  const Rows rows = expand(m, batch, m.recipe.embed.sink_tokens, m.target.tokens);
  std::optional<KvPass> cache;
  if (pool) {
    if (&pool->model() != &m) fail("forward: the cache is one of another model, not of ", m.recipe.name);
    check_continuation(m, batch, *pool);
    std::vector<KvGrowth> growths;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      const Sequence& s = batch.sequences[i];
      if (both && !source && !pool->has(s.id))
        fail("forward: sequence ", s.id, " begins without a source batch");
      growths.push_back({s.id, s.count, source ? source_rows.sequences[i].count : 0, s.stream});
    }
    cache.emplace(*pool, growths);
  }

  // Who uses which adapter, while the pass runs.
  AdaptedRows adapted_rows;
  AdaptedRows* adapted = nullptr;
  if (uses_adapters(run, m, batch) || (source && uses_adapters(run, m, *source))) adapted = &adapted_rows;
  struct Restore {
    Run& run;
    const AdaptedRows* before;
    ~Restore() { run.adapted = before; }
  } const restore{run, run.adapted};
  run.adapted = adapted;

  std::vector<Sequence> memory_sequences;
  Tensor memory;
  LastStates last_states;
  LastStates* states = both && source && m.encoder->recurrent ? &last_states : nullptr;
  if (source) {
    memory = through(run, m, *m.encoder, Stack::encoder, source_rows, {}, {}, nullptr, states, adapted);
    memory_sequences = source_rows.sequences;
    for (std::size_t i = 0; i < memory_sequences.size(); ++i) memory_sequences[i].id = batch.sequences[i].id;
  } else if (both) {
    for (const Sequence& s : batch.sequences)
      memory_sequences.push_back({.first = 0, .count = pool->memory(s.id), .id = s.id});
  }
  Tensor x = through(run, m, m.decoder ? *m.decoder : *m.encoder, m.decoder ? Stack::decoder : Stack::encoder,
                     rows, memory, std::move(memory_sequences), cache ? &*cache : nullptr, states, adapted);
  run.check_cancelled();  // before the head, whose matrix may be the largest
  if (classes && !want.hidden)
    return m.recipe.head.distilled ? distilled_logits(run, m, x, rows)
                                   : head_logits(run, m, pooled(run, m, x, rows));
  if (want.rows == Want::Rows::none) {
    if (cache) cache->commit();
    return {};
  }
  const std::vector<std::int32_t> wanted = wanted_rows(want, rows);
  if (want.rows != Want::Rows::all || wanted.size() != rows.ids.size()) x = take_rows(run, x, wanted);
  if (adapted) adapted->of(Adapter::Rows::wanted) = adapted_wanted(rows, wanted);
  if (!want.hidden) x = head_logits(run, m, x);
  if (cache) cache->commit();
  return x;
}

}  // namespace rapt
