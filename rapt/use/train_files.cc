// SPDX-License-Identifier: Apache-2.0
// The files of a state: model.safetensors and optimizer.safetensors, cut into several where they are large,
// by the tensors and their order alone, so that their bytes do not depend on the ranks. They are made in
// pieces of whole rows: what ranks keep of a piece (each has all weights, and the moments of some) meets at
// the rank that writes it.
#include <algorithm>
#include <cstring>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/family.h"
#include "rapt/use/train_parts.h"

namespace rapt {
namespace {

// Numbers of rows [first, end) of a weight that lie in its stored order from `stored` on, row by row.
void put_rows(const Weight& w, Dim first, Dim end, const std::byte* stored, std::byte* out) {
  const std::size_t size = size_of(w.format);
  if (w.packing == Packing::rows) {
    std::memcpy(out, stored, static_cast<std::size_t>((end - first) * w.cols) * size);
    return;
  }
  const Dim begin = w.offset(first, 0);
  for (Dim r = first; r < end; ++r)
    for (Dim c = 0; c < w.cols; ++c, out += size)
      std::memcpy(out, stored + static_cast<std::size_t>(w.offset(r, c) - begin) * size, size);
}

// Rows that a piece can be cut at, and how many make a piece.
Dim rows_of_piece(Dim rows, Dim cols, DType real, Packing packing) {
  const Dim least = packing == Packing::panels ? kPanel : 1,
            bytes = std::max<Dim>(1, cols) * static_cast<Dim>(size_of(real)),
            fit = static_cast<Dim>(kStatePiece) / bytes / least * least;
  return std::clamp<Dim>(fit, least, std::max(least, rows));
}

class TrainFiles final : public StateFiles {
 public:
  TrainFiles(Trainer::State& s, std::vector<StoredFile> extra, std::uint64_t most) : s_(s) {
    std::vector<Tensor> tensors;
    const std::vector<WeightShape> shapes = weight_shapes(s.model.recipe);
    for (const Weight& w : s.model.weights)
      tensors.push_back(
          {.name = w.name, .of = &w, .vector = shapes[static_cast<std::size_t>(w.index)].vector});
    add("model", std::move(tensors), most);
    tensors.clear();
    s.optimizer.each_part([&](const Weight& of, const std::string& name, Weight& part, Dim begin) {
      tensors.push_back({.name = name, .of = &of, .part = &part, .begin = begin});
    });
    add("optimizer", std::move(tensors), most);
    for (StoredFile& f : extra) add_text(std::move(f.name), std::move(f.bytes));
    // Of each weight what each rank keeps moments of.
    kept_.assign(s.model.weights.size(), std::vector<ShardRange>(static_cast<std::size_t>(s.comm.size())));
    if (s.one_rank())
      for (const Weight& w : s.model.weights) kept_[static_cast<std::size_t>(w.index)][0].end = w.stored();
    else
      for (std::size_t r = 0; r < s.deal.shards.size(); ++r)
        for (const ShardRange& range : s.deal.shards[r])
          kept_[static_cast<std::size_t>(range.weight)][r] = range;
  }

  const std::vector<File>& files() const override { return files_; }

  std::span<const std::byte> get(std::span<const std::optional<Piece>> wanted) override {
    const auto ranks = static_cast<std::size_t>(s_.comm.size()),
               me = static_cast<std::size_t>(s_.comm.rank());
    std::vector<Comm::Bytes> send(ranks);
    std::vector<Comm::Space> receive(ranks);
    bool moments = false;
    for (std::size_t r = 0; r < ranks; ++r) {
      const Part* part = wanted[r] ? &part_of(*wanted[r]) : nullptr;
      if (!part || !part->tensor || !part->tensor->part) continue;
      moments = true;
      const Tensor& t = *part->tensor;
      const Dim begin = t.of->offset(part->first, 0), end = end_of(*part);
      const auto meets = [&](const ShardRange& kept) {
        return std::pair(std::max(begin, kept.begin), std::min(end, kept.end));
      };
      const std::vector<ShardRange>& kept = kept_[static_cast<std::size_t>(t.of->index)];
      if (const auto [from, to] = meets(kept[me]); from < to)
        send[r] = {t.part->data.get() + bytes(from - t.begin), bytes(to - from)};
      if (r != me) continue;
      gathered_.resize(bytes(end - begin));
      for (std::size_t q = 0; q < ranks; ++q)
        if (const auto [from, to] = meets(kept[q]); from < to)
          receive[q] = {gathered_.data() + bytes(from - begin), bytes(to - from)};
    }
    if (moments) s_.comm.all_to_all(send, receive);
    if (!wanted[me]) return {};
    const Part& part = part_of(*wanted[me]);
    if (!part.tensor) return part.text;
    const Weight& w = *part.tensor->of;
    out_.resize(bytes((part.end - part.first) * w.cols));
    put_rows(w, part.first, part.end,
             part.tensor->part ? gathered_.data() : w.data.get() + bytes(w.offset(part.first, 0)),
             out_.data());
    return out_;
  }

 private:
  struct Tensor {
    std::string name;
    const Weight* of = nullptr;  // whose shape and order it has
    const Weight* part = nullptr;  // of moments: what this rank keeps, from the number `begin` on
    Dim begin = 0;
    bool vector = false;
  };
  struct Part {  // a piece: a text, or rows of a tensor
    std::vector<std::byte> text = {};
    const Tensor* tensor = nullptr;
    Dim first = 0, end = 0;
  };

  std::size_t bytes(Dim numbers) const { return static_cast<std::size_t>(numbers) * size_of(s_.model.real); }
  const Part& part_of(const Piece& p) const { return parts_[p.file][p.piece]; }
  // In the stored order, of what lies from its first row to its last.
  static Dim end_of(const Part& part) {
    const Weight& w = *part.tensor->of;
    return part.end < w.rows ? w.offset(part.end, 0) : w.stored();
  }

  void add_text(std::string name, std::vector<std::byte> text) {
    files_.push_back({std::move(name), {text.size()}});
    parts_.emplace_back().push_back({.text = std::move(text)});
  }
  void add_text(std::string name, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    add_text(std::move(name), std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  void add(const std::string& stem, std::vector<Tensor> list, std::uint64_t most) {
    const std::pair<std::string, std::string> format[] = {{"format", "pt"}};
    const std::vector<Tensor>& tensors = lists_.emplace_back(std::move(list));
    std::vector<SafetensorPlan> plans;
    std::vector<std::uint64_t> sizes;
    std::uint64_t total = 0;
    for (const Tensor& t : tensors) {
      // Vectors have one dimension, as in a model folder: a state is one.
      std::vector<Dim> shape{t.of->rows, t.of->cols};
      if (t.vector) shape = {t.of->size()};
      plans.push_back({t.name, s_.model.real, std::move(shape), {}});
      sizes.push_back(bytes(t.of->size()));
      total = checked_add(total, sizes.back(), "bytes of a state");
    }
    const std::vector<std::size_t> cuts = safetensors_cuts(sizes, most);
    std::vector<std::pair<std::string, std::string>> file_of;
    for (std::size_t n = 0; n < cuts.size(); ++n) {
      const std::size_t from = cuts[n], to = n + 1 < cuts.size() ? cuts[n + 1] : tensors.size();
      const std::string name = safetensors_name(stem, n, cuts.size());
      add_text(name, safetensors_header(std::span(plans).subspan(from, to - from), format));
      for (std::size_t i = from; i < to; ++i) {
        const Tensor& t = tensors[i];
        file_of.emplace_back(t.name, name);
        const Dim step = rows_of_piece(t.of->rows, t.of->cols, s_.model.real, t.of->packing);
        for (Dim row = 0; row < t.of->rows; row += step) {
          const Dim end = std::min(row + step, t.of->rows);
          files_.back().pieces.push_back(bytes((end - row) * t.of->cols));
          parts_.back().push_back({.tensor = &t, .first = row, .end = end});
        }
      }
    }
    if (cuts.size() > 1) add_text(stem + ".safetensors.index.json", safetensors_index(file_of, total));
  }

  Trainer::State& s_;
  std::deque<std::vector<Tensor>> lists_;
  std::vector<File> files_;
  std::vector<std::vector<Part>> parts_;  // of each file
  std::vector<std::vector<ShardRange>> kept_;
  std::vector<std::byte> gathered_, out_;
};

}  // namespace

double saving_bytes(const std::vector<WeightShape>& shapes, DType real) {
  double most = 0;
  for (const WeightShape& w : shapes) {
    const Dim rows = std::min(w.rows, rows_of_piece(w.rows, w.cols, real, Packing::panels));
    most = std::max(most, static_cast<double>(size_of(real)) * static_cast<double>(rows * w.cols));
  }
  return 2 * most;
}

std::unique_ptr<StateFiles> Trainer::state_files(std::vector<StoredFile> extra, std::uint64_t most) const {
  return std::make_unique<TrainFiles>(*state_, std::move(extra), most);
}

std::vector<StoredFile> Trainer::files(std::uint64_t most) const {
  const std::unique_ptr<StateFiles> source = state_files({}, most);
  std::vector<StoredFile> out;
  for (std::size_t f = 0; f < source->files().size(); ++f) {
    const StateFiles::File& file = source->files()[f];
    out.push_back({file.name, {}});
    for (std::size_t p = 0; p < file.pieces.size(); ++p) {
      const std::vector<std::optional<StateFiles::Piece>> wanted(
          static_cast<std::size_t>(state_->comm.size()), StateFiles::Piece{f, p});
      const std::span<const std::byte> bytes = source->get(wanted);
      out.back().bytes.insert(out.back().bytes.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

}  // namespace rapt
