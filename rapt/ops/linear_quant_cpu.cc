// SPDX-License-Identifier: Apache-2.0
// y = x W^T for block-quantized W: rows of x become int8 with a scale per 32 inputs, once for all parts of a
// call, then tiles of whole numbers (quant_tile.h). Panels are handed to threads one by one or in
// small runs.
//   up to kStoredTiles tiles    a panel is read as stored, straight from memory; a second tile finds it in a
//                               cache
//   more                        a panel is taken apart once and all rows pass over it
#include "rapt/ops/linear.h"
#include "rapt/ops/linear_groups.h"
#include "rapt/ops/quant_tile.h"

namespace rapt::RAPT_ISA {
namespace {

using Tile = void (*)(const TileArgs&);

template <class S>
struct Tiles {
  Tile at[kTile];
};
template <class S>
constexpr Tiles<S> kTiles = {{
    tile<S, 1>,
    tile<S, 2>,
    tile<S, 3>,
#if !RAPT_IS(avx2)
    tile<S, 4>,
#endif
#if RAPT_IS(avx512)
    tile<S, 5>,
    tile<S, 6>,
#endif
}};

// What the driver must know about a format.
struct Form {
  Fold fold;
  int columns, stride;  // of a stored head with its blocks
  int open_block;       // bytes
  const Tile *stored, *open;
  void (*open_panel)(const uint8_t*, const Meaning&, Dim, uint8_t*);
  Meaning meaning;
};
template <DType F, PanelKind K = tile_kind<F>()>
constexpr Form kForm = {{K.groups(), K.zero}, K.columns(),   K.stride(),     OpenOf<K>::kBlock,
#if RAPT_IS(avx512) || RAPT_IS(avx2)
                        kTiles<Stored<K>>.at,
#else
                        nullptr,
#endif
                        kTiles<OpenOf<K>>.at, open_panel<K>, meaning_of<F>()};

const Form& form_of(DType format) {
  switch (format) {
    case DType::q4_0: return kForm<DType::q4_0>;
    case DType::q4_1: return kForm<DType::q4_1>;
    case DType::q5_0: return kForm<DType::q5_0>;
    case DType::q5_1: return kForm<DType::q5_1>;
    case DType::q2_k: return kForm<DType::q2_k>;
    case DType::q3_k: return kForm<DType::q3_k>;
    case DType::q4_k: return kForm<DType::q4_k>;
    case DType::q5_k: return kForm<DType::q5_k>;
    case DType::q6_k: return kForm<DType::q6_k>;
    case DType::mxfp4: return kForm<DType::mxfp4>;
    case DType::iq4_nl: return kForm<DType::iq4_nl>;
    case DType::iq4_xs: return kForm<DType::iq4_xs>;
    case DType::iq3_s: return kForm<DType::iq3_s>;
    case DType::iq3_xxs: return kForm<DType::iq3_xxs>;
    case DType::iq2_s: return kForm<DType::iq2_s>;
    case DType::iq2_xs: return kForm<DType::iq2_xs>;
    case DType::iq2_xxs: return kForm<DType::iq2_xxs>;
    case DType::iq1_m: return kForm<DType::iq1_m>;
    case DType::iq1_s: return kForm<DType::iq1_s>;
    case DType::tq2_0: return kForm<DType::tq2_0>;
    case DType::tq1_0: return kForm<DType::tq1_0>;
    case DType::nvfp4: return kForm<DType::nvfp4>;
    case DType::q2_0: return kForm<DType::q2_0>;
    case DType::q1_0: return kForm<DType::q1_0>;
    default: return kForm<DType::q8_0>;
  }
}

struct Range {
  Dim begin, end;
};
RAPT_INLINE Range cut(Dim n, Dim pieces, Dim i) { return {n * i / pieces, n * (i + 1) / pieces}; }

// The quantized rows of a call: blocks [tiles][k / 32], then terms [folds][tiles][k / 32].
struct Rows {
  Block* x;
  Terms* terms;
};
struct Plan {
  const QuantLinearArgs& a;
  Dim tiles, blocks;
  int folds;
  Fold fold[4];
  int fold_of[4];  // per part
  const int32_t* from = nullptr;  // row r of the call is row from[r] / per of x; nullptr: r
  Dim per = 1;
  size_t bytes() const { return size_t(tiles * blocks) * (sizeof(Block) + size_t(folds) * sizeof(Terms)); }
};
RAPT_INLINE Rows rows_at(const Plan& p, void* space) {
  Block* x = static_cast<Block*>(space);
  return {x, reinterpret_cast<Terms*>(x + p.tiles * p.blocks)};
}

void quantize_tile(const Plan& p, const Rows& to, Dim tile) {
  const Range rows = cut(p.a.rows, p.tiles, tile);
  for (Dim r = rows.begin; r < rows.end; ++r) {
    const Real* x = static_cast<const Real*>(p.a.x) + (p.from ? p.from[r] / p.per : r) * p.a.k;
    const Dim lane = r - rows.begin;
    for (Dim b = 0; b < p.blocks; ++b) {
      Block& block = to.x[tile * p.blocks + b];
      int32_t sums[2];
      quantize(x + b * 32, block.q[lane], block.d[lane], sums);
      for (int f = 0; f < p.folds; ++f) {
        Terms& t = to.terms[(f * p.tiles + tile) * p.blocks + b];
        const auto [groups, zero] = p.fold[f];
        if (groups == 1) sums[0] += sums[1];
        for (int g = 0; g < groups; ++g) {
          if (zero) t.at[g][lane].start = -zero * sums[g];
          else t.at[g][lane].sum = block.d[lane] * Real(sums[g]);
        }
        if (groups == 1) sums[0] -= sums[1];
      }
    }
  }
}

// Blocks of 32 inputs that a panel is taken apart for at a time: 28 KB, so that it stays in the nearest
// cache while the rows pass over it; the results wait in y. A multiple of 8, the blocks of a two-level head.
constexpr Dim kChunk = 24;
// So many tiles take nibbles apart for themselves before taking the panel apart first is cheaper
// (SmolLM2, Q4_0, Zen 4: 8 rows 684 to 1,120 tokens/s, 32 rows 1,300 to 1,510, 128 rows alike).
constexpr Dim kStoredTiles = RAPT_IS(avx512) ? 8 : 2;

// Rows of tiles [begin, end) times one panel.
void panel_rows(const Plan& p, const Rows& rows, int part_index, Dim panel, Range tiles, uint8_t* open) {
  const LinearPart& part = p.a.parts[part_index];
  const Form& form = form_of(part.format);
  const Dim count = tiles.end - tiles.begin;
  const bool stored = form.stored && count <= kStoredTiles;
  const uint8_t* panel_at =
      static_cast<const uint8_t*>(part.w) + panel * (p.a.k / form.columns) * form.stride;
  const Dim n = panel * kPanel, chunk = stored && count == 1 ? p.blocks : kChunk,
            chunks = ceil_div(p.blocks, chunk);
  for (Dim c = 0; c < chunks; ++c) {
    const Range blocks = {c * chunk, least(p.blocks, (c + 1) * chunk)};
    const uint8_t* w = panel_at + blocks.begin * 32 / form.columns * form.stride;
    if (!stored) form.open_panel(w, form.meaning, blocks.end - blocks.begin, open);
    for (Dim t = tiles.begin; t < tiles.end; ++t) {
      const Range r = cut(p.a.rows, p.tiles, t);
      const Dim at = r.begin * part.n + n;
      (stored ? form.stored : form.open)[r.end - r.begin - 1](
          {.w = stored ? w : open,
           .meaning = &form.meaning,
           .blocks = blocks.end - blocks.begin,
           .x = rows.x + t * p.blocks + blocks.begin,
           .terms = rows.terms + (p.fold_of[part_index] * p.tiles + t) * p.blocks + blocks.begin,
           .y = static_cast<Real*>(part.y) + at,
           .bias = part.bias ? static_cast<const Real*>(part.bias) + n : nullptr,
           .residual = part.residual ? static_cast<const Real*>(part.residual) + at : nullptr,
           .gain = Real(part.gain),
           .scale = Real(part.scale),
           .stride = part.n,
           .left = part.n - n,
           .begin = c == 0,
           .end = c + 1 == chunks});
    }
  }
}

// The first lines of a panel (counted over all parts) are asked for while the rows are quantized.
RAPT_INLINE void ask_for(const QuantLinearArgs& a, Dim panel) {
  for (int i = 0; i < a.count; ++i) {
    const Dim count = ceil_div(a.parts[i].n, kPanel);
    if (panel >= count) {
      panel -= count;
      continue;
    }
    const Form& form = form_of(a.parts[i].format);
    const uint8_t* w = static_cast<const uint8_t*>(a.parts[i].w) + panel * (a.k / form.columns) * form.stride;
    for (Dim at = 0; at < least(4096, (a.k / form.columns) * form.stride); at += 64)
      __builtin_prefetch(w + at);
    return;
  }
}

// Ways of folding that the parts of a call want, each once. A part without a weight has none.
Plan plan_of(const QuantLinearArgs& a) {
  Plan p{.a = a, .tiles = ceil_div(a.rows, kTile), .blocks = a.k / 32, .folds = 0, .fold = {}, .fold_of = {}};
  for (int i = 0; i < a.count; ++i) {
    if (!a.parts[i].w) continue;
    const Fold fold = form_of(a.parts[i].format).fold;
    int f = 0;
    while (f < p.folds && (p.fold[f].groups != fold.groups || p.fold[f].zero != fold.zero)) ++f;
    if (f == p.folds) p.fold[p.folds++] = fold;
    p.fold_of[i] = f;
  }
  return p;
}
// Room for a piece of a panel taken apart.
size_t open_bytes(const QuantLinearArgs& a) {
  size_t open = 0;
  for (int i = 0; i < a.count; ++i)
    if (a.parts[i].w && size_t(form_of(a.parts[i].format).open_block) > open)
      open = size_t(form_of(a.parts[i].format).open_block);
  return open * size_t(kChunk);
}

// Up to so many numbers every worker quantizes the rows for itself: less than a parallel region costs.
constexpr Dim kOwn = 8192;
// multiply-adds below which a task is not worth a thread's while: about a microsecond
constexpr Dim kWorth = 1 << 16;

}  // namespace

void quant_linear(Queue& queue, const QuantLinearArgs& a) noexcept {
  if (a.rows == 0) return;
  const Plan p = plan_of(a);
  Dim panels = 0;
  for (int i = 0; i < a.count; ++i) panels += ceil_div(a.parts[i].n, kPanel);
  const size_t open = open_bytes(a);
  const Dim threads = threads_of(queue);
  const bool own = a.rows * a.k <= kOwn;
  if (!own)
    for_ranges(queue, p.tiles, most(1, kOwn / (kTile * a.k)), [&](Dim begin, Dim end, int) {
      for (Dim t = begin; t < end; ++t) quantize_tile(p, rows_at(p, a.space), t);
    });
  constexpr int kWorkers = 256;
  bool have[kWorkers] = {};  // per worker: it has quantized the rows
  // Rows are split only where there are more threads than panels.
  const Dim row_blocks = threads == 1 ? 1 : most(1, least(p.tiles, ceil_div(4 * threads, panels)));
  const Dim worth = ceil_div(kWorth, ceil_div(a.rows, row_blocks) * a.k * kPanel);
  // As many pieces for one thread as for another: 18 panels in three pieces would leave one of two threads
  // idle for a third of the time.
  const Dim run = most(worth, panels * row_blocks / (16 * threads));
  const Dim pieces = threads == 1 ? 1 : least(panels, ceil_div(ceil_div(panels, run), threads) * threads);
  for_tasks(queue, pieces * row_blocks, [&](Dim task, int worker) {
    const Range range = cut(panels, pieces, task % pieces), tiles = cut(p.tiles, row_blocks, task / pieces);
    const size_t aligned = (open + 63) / 64 * 64;
    uint8_t* scratch = reinterpret_cast<uint8_t*>(scratch_of(queue, worker, aligned + (own ? p.bytes() : 0)));
    if (!scratch) return;
    const Rows rows = rows_at(p, own ? static_cast<void*>(scratch + aligned) : a.space);
    if (own && (worker >= kWorkers || !have[worker])) {
      ask_for(a, range.begin);
      for (Dim t = 0; t < p.tiles; ++t) quantize_tile(p, rows, t);
      if (worker < kWorkers) have[worker] = true;
    }
    Dim first = 0;
    for (int i = 0; i < a.count; ++i) {
      const Dim count = ceil_div(a.parts[i].n, kPanel);
      for (Dim panel = most(range.begin - first, 0); panel < least(range.end - first, count); ++panel)
        panel_rows(p, rows, i, panel, tiles, scratch);
      first += count;
    }
  });
}

// ------------------------------------------------------------------------------------- many groups of rows
namespace {

// One group as a call of its own.
QuantLinearArgs group_args(const GroupedLinearArgs& a, Dim g) {
  const Dim first = a.begin[g];
  QuantLinearArgs q{};
  q.rows = a.begin[g + 1] - first;
  q.k = a.k;
  q.x = static_cast<const Real*>(a.x) + (a.from ? 0 : first * a.k);
  q.count = a.count;
  for (int i = 0; i < a.count; ++i) {
    const GroupedPart& part = a.parts[i];
    const GroupWeight& w = part.weights[g];
    q.parts[i].n = part.n;
    q.parts[i].w = w.w;
    q.parts[i].format = w.format;
    q.parts[i].bias = w.bias;
    q.parts[i].scale = 1;
    q.parts[i].y = static_cast<Real*>(part.y) + first * part.n;
    q.parts[i].gain = w.gain;
  }
  return q;
}
Plan group_plan(const GroupedLinearArgs& a, const QuantLinearArgs& q, Dim g) {
  Plan p = plan_of(q);
  p.from = a.from ? a.from + a.begin[g] : nullptr;
  p.per = a.per;
  return p;
}

}  // namespace

// The rows of a group are quantized where the tiles of the groups before it end: places[g], in bytes. One row
// of x, whoever it is for, is quantized once (`same`).
void grouped_quant_linear(Queue& queue, const GroupedLinearArgs& a) noexcept {
  if (a.rows == 0) return;
  Dim* places = a.plan + a.groups + 1;
  size_t open = 0;
  Dim bytes = 0, one = 0, panels = 0;
  bool same = a.from && a.rows <= a.per;
  int formats[kMostGrouped] = {};  // of the first group with rows: the others may fold in other ways
  for (Dim g = 0; g < a.groups; ++g) {
    places[g] = bytes;
    if (a.begin[g] == a.begin[g + 1]) continue;
    const QuantLinearArgs q = group_args(a, g);
    const Dim mine = Dim(plan_of(q).bytes());
    for (int i = 0; i < a.count; ++i) {
      const int format = q.parts[i].w ? int(q.parts[i].format) : -1;
      if (bytes == 0) formats[i] = format;
      same = same && formats[i] == format;
    }
    bytes += mine;
    one = mine;
    if (open_bytes(q) > open) open = open_bytes(q);
  }
  if (same) {
    bytes = one;
    for (Dim g = 0; g < a.groups; ++g) places[g] = 0;
  }
  for (int i = 0; i < a.count; ++i) panels += ceil_div(a.parts[i].n, kPanel);
  const auto quantize_group = [&](Dim g, uint8_t* space) {
    const QuantLinearArgs q = group_args(a, g);
    const Plan p = group_plan(a, q, g);
    for (Dim t = 0; t < p.tiles; ++t) quantize_tile(p, rows_at(p, space + places[g]), t);
  };
  const bool own = (same ? 1 : a.rows) * a.k <= kOwn;
  if (!own)
    for_tasks(queue, a.groups, [&](Dim g, int) {
      if (a.begin[g] < a.begin[g + 1]) quantize_group(g, static_cast<uint8_t*>(a.space));
    });
  constexpr int kWorkers = 256;
  bool have[kWorkers] = {};  // per worker: it has quantized the rows
  const GroupLine line{.groups = a.groups,
                       .units = panels,
                       .begin = a.begin,
                       .starts = a.plan,
                       .fixed = 6,  // reading or opening a panel
                       .empty = false};
  for_units(queue, line, a.k * kPanel, [&](Dim g, Dim begin, Dim end, int worker) {
    const size_t aligned = (open + 63) / 64 * 64;
    uint8_t* scratch =
        reinterpret_cast<uint8_t*>(scratch_of(queue, worker, aligned + (own ? size_t(bytes) : 0)));
    if (!scratch) return;
    uint8_t* space = own ? scratch + aligned : static_cast<uint8_t*>(a.space);
    if (own && (worker >= kWorkers || !have[worker])) {
      for (Dim i = 0; i < a.groups; ++i)
        if (a.begin[i] < a.begin[i + 1]) {
          quantize_group(i, space);
          if (same) break;
        }
      if (worker < kWorkers) have[worker] = true;
    }
    const QuantLinearArgs q = group_args(a, g);
    const Plan p = group_plan(a, q, g);
    const Rows rows = rows_at(p, space + places[g]);
    Dim first = 0;
    for (int i = 0; i < a.count; ++i) {
      const Dim count = ceil_div(a.parts[i].n, kPanel);
      for (Dim panel = most(begin - first, 0); q.parts[i].w && panel < least(end - first, count); ++panel)
        panel_rows(p, rows, i, panel, {0, p.tiles}, scratch);
      first += count;
    }
  });
}

}  // namespace rapt::RAPT_ISA
