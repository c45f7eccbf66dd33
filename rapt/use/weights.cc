// SPDX-License-Identifier: Apache-2.0
// A weight that gets other numbers gets other memory: its own may be a file's, or a part of a larger piece.
#include "rapt/use/weights.h"

#include <algorithm>
#include <cstring>

#include "rapt/base/text.h"
#include "rapt/tensor/pack.h"

namespace rapt {
namespace {

Weight like(const Weight& w, DType format) {
  Weight out = make_weight(w.name, w.rows, w.cols, format, w.packing);
  out.index = w.index;
  out.decay = w.decay;
  return out;
}

void fill_numbers(Weight& w, std::span<const float> numbers) {
  if (w.format == DType::f32) return fill_row_major(w, std::as_bytes(numbers));
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) w.set(r, c, numbers[static_cast<std::size_t>(r * w.cols + c)]);
}

// A weight's place in the table of gradients, as a weight: its numbers lie in the same order.
Weight as_weight(const Weight& w, DType real, const std::byte* data) {
  Weight g = w;
  g.format = real;
  g.gain = 1;
  g.data = std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), const_cast<std::byte*>(data));
  return g;
}

void check_count(const Weight& w, std::span<const float> numbers) {
  if (static_cast<Dim>(numbers.size()) != w.size())
    fail_usage("weight ", w.name, ": got ", numbers.size(), " numbers, its shape [", w.rows, ",", w.cols,
               "] takes ", w.size());
}

}  // namespace

const Weight& find_weight(const Model& model, std::string_view name) {
  std::vector<std::string> names;
  for (const Weight& w : model.weights) {
    if (w.name == name) return w;
    names.push_back(w.name);
  }
  fail_name("there is no weight '", name, "'; ", name_hint(name, names));
}

std::vector<float> weight_numbers(const Weight& w) {
  std::vector<float> out(static_cast<std::size_t>(w.size()));
  if (w.format == DType::f32) {
    const std::vector<std::byte> bytes = row_major(w);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  for (Dim r = 0; r < w.rows; ++r) {
    const auto row =
        std::span(out).subspan(static_cast<std::size_t>(r * w.cols), static_cast<std::size_t>(w.cols));
    if (is_block(w.format)) unpack_row(w, r, row);
    else
      for (Dim c = 0; c < w.cols; ++c) row[static_cast<std::size_t>(c)] = static_cast<float>(w.get(r, c));
  }
  return out;
}

void set_weight(Device& device, Model& model, std::string_view name, std::span<const float> numbers) {
  Weight& w = model.weight(name);
  check_count(w, numbers);
  if (is_block(w.format))
    fail_usage("weight ", w.name, ": is stored as blocks of ", name_of(w.format),
               ", in which single numbers have no place; open the model with exact numbers");
  Weight fresh = like(w, w.format);
  fill_numbers(fresh, numbers);
  const Lease lease(device.team());
  w.data = std::move(fresh.data);
  ++model.changes;
}

std::vector<float> gradient_numbers(const Weight& w, const Gradients& gradients) {
  const std::byte* data = gradients.find(w);
  return data ? weight_numbers(as_weight(w, gradients.real(), data)) : std::vector<float>();
}

void set_gradient(const Weight& w, Gradients& gradients, std::span<const float> numbers) {
  check_count(w, numbers);
  Weight g = as_weight(w, gradients.real(), gradients.of(w));
  fill_numbers(g, numbers);
}

Checkpoint copy_checkpoint(const Checkpoint& from, DType real) {
  Checkpoint out;
  out.path = from.path;
  out.family = from.family;
  out.format = from.format;
  out.tokenizer = from.tokenizer;
  out.chat_template = from.chat_template;
  out.pool = from.pool;
  out.normalize = from.normalize;
  out.dense = from.dense;
  out.max_tokens = from.max_tokens;
  out.decoder_start = from.decoder_start;
  out.stops = from.stops;
  out.bad_words = from.bad_words;
  out.renormalize = from.renormalize;
  out.class_names = from.class_names;
  out.logit_scale = from.logit_scale, out.logit_bias = from.logit_bias;
  out.preprocessor = from.preprocessor;
  out.pad_to = from.pad_to;
  out.pad = from.pad;
  out.file_bytes = from.file_bytes;
  out.model = std::make_unique<Model>(from.model->recipe, real);
  for (Weight& w : out.model->weights) {
    const Weight& old = find_weight(*from.model, w.name);
    if (old.rows != w.rows || old.cols != w.cols)
      fail("weight ", w.name, ": has the shape [", old.rows, ",", old.cols, "], its recipe wants [", w.rows,
           ",", w.cols, "]");
    fill_numbers(w, weight_numbers(old));
  }
  return out;
}

}  // namespace rapt
