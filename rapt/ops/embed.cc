// SPDX-License-Identifier: Apache-2.0
// embed, take_rows, mean_rows. Tables in blocks are unpacked here, means added here; the rest are kernels.
#include "rapt/ops/embed.h"

#include <algorithm>
#include <vector>

#include "rapt/tensor/pack.h"

namespace rapt {
namespace {

struct EmbedTape {
  Tensor y;
  const std::int32_t* ids;
  const Weight *table, *more;
  double scale;
};

// dtable[id] += scale * dy, row after row.
void embed_backward(Run& run, const EmbedTape& s) {
  run.call(&Kernels::embed_backward, {.rows = s.y.rows(),
                                      .cols = s.y.last(),
                                      .vocab = s.table->rows,
                                      .ids = s.ids,
                                      .panels = s.table->packing == Packing::panels,
                                      .scale = s.scale,
                                      .dy = run.grad(s.y),
                                      .dtable = run.grad(s.table),
                                      .dmore = run.grad(s.more),
                                      .more_rows = s.more ? s.more->rows : 0});
}

struct TakeRowsTape {
  Tensor x, y;
  const std::int32_t* which;
};

// dx[which] += dy, row after row: a row that was taken twice gets both.
void take_rows_backward(Run& run, const TakeRowsTape& s) {
  void* dx = run.grad(s.x);
  if (!dx) return;
  run.call(&Kernels::take_rows_backward, {.rows = s.y.rows(),
                                          .cols = s.y.last(),
                                          .x_rows = s.x.rows(),
                                          .which = s.which,
                                          .dy = run.grad(s.y),
                                          .dx = dx});
}

void check_format(const Run& run, const Weight& w) {
  if (w.format != run.device.real && w.format != DType::bf16 && w.format != DType::f16)
    fail("embed: table ", w.name, " is ", name_of(w.format), "; this device reads ", name_of(run.device.real),
         ", bf16 and f16 (and block formats in panels): convert it when loading");
}

// Rows of a table in blocks, as exactly the numbers its blocks stand for; ids from table.rows on are rows
// of `more`.
struct BlockRows {
  std::span<const std::int32_t> ids;
  const Weight *table, *more;
  double scale;
  Tensor y;
  float* numbers;  // of y in double: room for as many floats
};
void embed_blocks(Run& run, const BlockRows& rows) {
  run_tasks(
      run.queue(), static_cast<Dim>(rows.ids.size()),
      [](void* context, Dim row, int worker) noexcept {
        (void)worker;
        const auto& [ids, table, more, scale, y, all] = *static_cast<const BlockRows*>(context);
        const Dim id = ids[static_cast<std::size_t>(row)], cols = table->cols;
        if (y.dtype == DType::f32) {
          const std::span<float> out{reinterpret_cast<float*>(y.data) + row * cols,
                                     static_cast<std::size_t>(cols)};
          if (id < table->rows) unpack_row(*table, id, out);
          else
            for (Dim c = 0; c < cols; ++c)
              out[static_cast<std::size_t>(c)] = static_cast<float>(more->get(id - table->rows, c));
          for (float& v : out) v *= static_cast<float>(scale);
          return;
        }
        auto* out = reinterpret_cast<double*>(y.data) + row * cols;
        const std::span<float> numbers{all + row * cols,
                                       static_cast<std::size_t>(id < table->rows ? cols : 0)};
        if (id < table->rows) unpack_row(*table, id, numbers);
        for (Dim c = 0; c < cols; ++c)
          out[c] = scale *
                   (id < table->rows ? numbers[static_cast<std::size_t>(c)] : more->get(id - table->rows, c));
      },
      const_cast<BlockRows*>(&rows));
}

}  // namespace

Tensor embed(Run& run, std::span<const std::int32_t> ids, const Weight& table, double scale,
             const Weight* more) {
  const bool blocks = is_block(table.format) && table.packing == Packing::panels;
  if (!blocks) check_format(run, table);
  if (blocks && run.tape)
    fail("embed: table ", table.name, " is stored as ", name_of(table.format),
         ", through which nothing is differentiated; to train or to take gradients, "
         "load the model with float matrices");
  if (more) {
    check_format(run, *more);
    if (more->cols != table.cols)
      fail("embed: ", more->name, " has rows of ", more->cols, " elements, table ", table.name, " of ",
           table.cols, ": both must be the model's width");
    if (more->packing != Packing::rows)
      fail("embed: ", more->name, " is packed in panels; rows added to a table are packed in rows");
  }
  const Dim all = table.rows + (more ? more->rows : 0);
  for (std::size_t r = 0; r < ids.size(); ++r)
    if (ids[r] < 0 || ids[r] >= all)
      fail("embed: id ", ids[r], " at row ", r, " is outside table ", table.name, " of ", table.rows, " rows",
           more ? concat(" and the ", more->rows, " rows of ", more->name) : "", ": ids go from 0 to ",
           all - 1, " (wrong tokenizer, or a position beyond the context?)");
  Tensor y = run.make({static_cast<Dim>(ids.size()), table.cols});
  if (blocks) {
    const Arena::Mark mark = run.arena.mark();
    embed_blocks(run, {ids, &table, more, scale, y,
                       y.dtype == DType::f64 ? run.arena.take_array<float>(y.elements()) : nullptr});
    run.arena.release(mark);
    return y;
  }
  const std::int32_t* copied = run.copy_of(ids);
  run.call(&Kernels::embed, {.rows = y.rows(),
                             .cols = table.cols,
                             .vocab = table.rows,
                             .ids = copied,
                             .table = table.data.get(),
                             .more = more ? more->data.get() : nullptr,
                             .format = table.format,
                             .more_format = more ? more->format : run.device.real,
                             .panels = table.packing == Packing::panels,
                             .scale = scale,
                             .y = y.data});
  run.record(embed_backward, EmbedTape{y, copied, &table, more, scale});
  return y;
}

Tensor take_rows(Run& run, const Tensor& x, std::span<const std::int32_t> rows) {
  if (!x.contiguous()) fail("take_rows: x ", x.shape(), " is not contiguous");
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (rows[r] < 0 || rows[r] >= x.rows())
      fail("take_rows: row ", rows[r], " (entry ", r, " of the list) is outside x ", x.shape(),
           ", which has ", x.rows(), " rows");
  Tensor y = run.make({static_cast<Dim>(rows.size()), x.last()});
  const std::int32_t* which = run.copy_of(rows);
  run.call(&Kernels::take_rows,
           {.rows = y.rows(), .cols = x.last(), .which = which, .x = x.data, .y = y.data});
  run.record(take_rows_backward, TakeRowsTape{x, y, which});
  return y;
}

namespace {

struct MeanRowsTape {
  Tensor x, y;
  const RowRange* ranges;
};

template <class Real>
void mean_of(const Real* x, RowRange range, std::span<double> mean) {
  const auto C = static_cast<Dim>(mean.size());
  std::fill(mean.begin(), mean.end(), 0.0);
  for (Dim r = range.first; r < range.first + range.count; ++r)
    for (Dim c = 0; c < C; ++c) mean[static_cast<std::size_t>(c)] += static_cast<double>(x[r * C + c]);
  for (double& m : mean) m /= static_cast<double>(range.count);
}

template <class Real>
void means(const MeanRowsTape& s) {
  const Dim C = s.x.last();
  auto* y = reinterpret_cast<Real*>(s.y.data);
  std::vector<double> mean(static_cast<std::size_t>(C));
  for (Dim i = 0; i < s.y.rows(); ++i) {
    mean_of(reinterpret_cast<const Real*>(s.x.data), s.ranges[i], mean);
    for (Dim c = 0; c < C; ++c) y[i * C + c] = static_cast<Real>(mean[static_cast<std::size_t>(c)]);
  }
}

void check_range(const Tensor& x, RowRange range, std::size_t number) {
  if (range.first < 0 || range.count < 1 || range.first > x.rows() - range.count)
    fail("mean_rows: range ", number, ", ", range.count, " rows from ", range.first, " on, is outside x ",
         x.shape(), ", which has ", x.rows(), " rows (and a mean needs at least one)");
}

// dx[row] += dy / count.
template <class Real>
void means_backward(const MeanRowsTape& s, const Real* dy, Real* dx) {
  const Dim C = s.x.last();
  for (Dim i = 0; i < s.y.rows(); ++i) {
    const auto [first, count] = s.ranges[i];
    const Real share = Real(1) / static_cast<Real>(count);
    for (Dim r = first; r < first + count; ++r)
      for (Dim c = 0; c < C; ++c) dx[r * C + c] += share * dy[i * C + c];
  }
}

void mean_rows_backward(Run& run, const MeanRowsTape& s) {
  void* dx = run.grad(s.x);
  if (!dx) return;
  if (s.x.dtype == DType::f64)
    means_backward(s, static_cast<const double*>(run.grad(s.y)), static_cast<double*>(dx));
  else means_backward(s, static_cast<const float*>(run.grad(s.y)), static_cast<float*>(dx));
}

}  // namespace

Tensor mean_rows(Run& run, const Tensor& x, std::span<const RowRange> ranges) {
  if (!x.contiguous()) fail("mean_rows: x ", x.shape(), " is not contiguous");
  for (std::size_t i = 0; i < ranges.size(); ++i) check_range(x, ranges[i], i);
  const MeanRowsTape tape{x, run.make({static_cast<Dim>(ranges.size()), x.last()}), run.copy_of(ranges)};
  if (x.dtype == DType::f64) means<double>(tape);
  else means<float>(tape);
  run.record(mean_rows_backward, tape);
  return tape.y;
}

void mean_of_rows(const Tensor& x, RowRange range, std::span<double> mean) {
  if (!x.contiguous() || static_cast<Dim>(mean.size()) != x.last())
    fail("mean_of_rows: x ", x.shape(), " is not contiguous, or its rows are not ", mean.size(), " wide");
  check_range(x, range, 0);
  if (x.dtype == DType::f64) mean_of(x.as<const double>().data(), range, mean);
  else mean_of(x.as<const float>().data(), range, mean);
}

}  // namespace rapt
