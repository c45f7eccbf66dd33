// SPDX-License-Identifier: Apache-2.0
// One pass over the pieces of some sequences; stop strings held back while they may go on; forbidden words.
#include "rapt/use/decoder.h"

#include <algorithm>
#include <utility>

namespace rapt {

Decoder::Decoder(Device& device, const Model& model, DType cache_format, Dim opened, Taps* taps)
    : cache(model.real, cache_format),
      vocab(model.recipe.vocab),
      model_(model),
      opened_(opened),
      run_(device) {
  run_.taps = taps;
}

std::span<const float> Decoder::step(std::span<const Piece> pieces, const Batch* source) {
  std::vector<std::int32_t> tokens;
  Batch batch;
  batch.want = kWantLast;
  for (const Piece& p : pieces) {
    const Dim past = cache.length(p.id), count = static_cast<Dim>(p.tokens.size());
    batch.sequences.push_back({.first = static_cast<Dim>(tokens.size()),
                               .count = count,
                               .past = past,
                               .id = p.id,
                               .opened = std::max(opened_, past + count)});
    tokens.insert(tokens.end(), p.tokens.begin(), p.tokens.end());
  }
  batch.tokens = tokens;
  run_.reset();
  const Tensor out = forward(run_, model_, batch, source, &cache);
  if (out.dtype == DType::f32) return logits_ = out.as<float>();
  wide_.resize(static_cast<std::size_t>(out.elements()));
  for (std::size_t i = 0; i < wide_.size(); ++i) wide_[i] = static_cast<float>(out.at(static_cast<Dim>(i)));
  return logits_ = wide_;
}

std::string StopText::push(std::string_view text) {
  if (found_) return {};
  held_ += text;
  std::size_t cut = std::string::npos;
  for (const std::string& s : stops_)
    if (!s.empty()) cut = std::min(cut, held_.find(s));
  if (cut != std::string::npos) {
    found_ = true;
    held_.resize(cut);
    return std::exchange(held_, {});
  }
  std::size_t hold = 0;  // the longest end of the text that begins a stop string
  for (const std::string& s : stops_)
    for (std::size_t n = s.empty() ? 0 : std::min(s.size() - 1, held_.size()); n > hold; --n)
      if (held_.ends_with(std::string_view(s).substr(0, n))) hold = n;
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopText::finish() { return found_ ? std::string{} : std::exchange(held_, {}); }

void forbid(std::span<const std::vector<std::int32_t>> words, std::span<const std::int32_t> ids,
            std::span<float> row, float logit) {
  for (const std::vector<std::int32_t>& word : words) {
    if (word.empty() || word.back() < 0 || static_cast<std::size_t>(word.back()) >= row.size()) continue;
    const std::size_t before = word.size() - 1;
    if (before > ids.size() ||
        !std::equal(word.begin(), word.end() - 1, ids.end() - static_cast<std::ptrdiff_t>(before)))
      continue;
    row[static_cast<std::size_t>(word.back())] = logit;
  }
}

}  // namespace rapt
