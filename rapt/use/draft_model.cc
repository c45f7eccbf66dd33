// SPDX-License-Identifier: Apache-2.0
// Passes of its own over the texts that are asked about: what is not read, then a token of each at a time.
#include "rapt/use/draft_model.h"

#include <algorithm>

#include "rapt/base/clock.h"
#include "rapt/use/generate.h"

namespace rapt {
namespace {

std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

// Of the first ones the least: weights are read for the first time, or something is in the way.
void average(double& value, int& count, double now) {
  constexpr int kFew = 4;
  if (++count <= kFew) value = count == 1 ? now : std::min(value, now);
  else value = 0.9 * value + 0.1 * std::min(now, 2 * value);
}

}  // namespace

void check_same_tokens(const Checkpoint& draft, const Checkpoint& model) {
  const Tokenizer &a = tokenizer_of(draft), &b = tokenizer_of(model);
  const auto differ = [&](const auto&... what) {
    fail("draft model ", draft.path, " does not have the tokens of ", model.path, ": ", what...,
         "; a draft must be of the same family of models");
  };
  if (a.size() != b.size()) differ("it has ", a.size(), " of them, the model ", b.size());
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(a.size()); ++id)
    if (a.bytes_of(id) != b.bytes_of(id) || a.text_of(id) != b.text_of(id))
      differ("token ", id, " is '", a.text_of(id), "', of the model '", b.text_of(id), "'");
}

DraftModel::DraftModel(Device& device, const Checkpoint& draft, DType cache, std::size_t budget)
    : model_(*draft.model), pool_(model_, cache, budget), run_(device) {
  const Recipe& r = model_.recipe;
  check_writes(draft, 0, {});
  if (r.encoder || remembers_by_state(r) || pool_.has_states())
    fail("draft model ", draft.path, " (", draft.family, ") ",
         r.encoder ? "translates" : "remembers the text in a state, which cannot go back",
         "; give a decoder with attention alone");
}

std::int32_t DraftModel::token(const Question& q, Dim i) {
  const auto n = static_cast<Dim>(q.prompt.size());
  return i < n ? q.prompt[at(i)] : q.answer[at(i - n)];
}

Dim DraftModel::unread(const Question& q) const {
  const auto it = texts_.find(q.sequence);
  return q.length() - (it == texts_.end() ? 0 : std::min(q.length() - 1, it->second.sure));
}

void DraftModel::drop(std::uint64_t sequence) {
  pool_.drop(sequence);
  texts_.erase(sequence);
}

void DraftModel::ask(std::span<const Question> questions, Dim rows) noexcept {
  try {
    answer(questions, rows);
  } catch (...) {  // nothing is guessed; what the failure was about is not known
    for (const Question& q : questions) drop(q.sequence);
  }
}

// What was guessed and came true is read; the rest goes.
void DraftModel::settle(const Question& q) {
  Text& t = texts_[q.sequence];
  std::size_t right = 0;
  while (right < t.guessed.size() && t.sure + static_cast<Dim>(right) < q.length() - 1 &&
         t.guessed[right] == token(q, t.sure + static_cast<Dim>(right)))
    ++right;
  t.sure += static_cast<Dim>(right);
  t.guessed.clear();
  if (pool_.has(q.sequence)) pool_.truncate(q.sequence, t.sure);
}

// Reads tokens of texts, or what was guessed last. Those that find no room are left out.
void DraftModel::pass(std::vector<Part>& parts) {
  std::vector<std::int32_t> tokens, wanted;
  Batch batch;
  std::vector<KvGrowth> growths;
  std::erase_if(parts, [&](const Part& p) {
    const Text& t = texts_[p.question->sequence];
    const Dim past = t.sure + static_cast<Dim>(t.guessed.size()),
              guessed = p.guessed.empty() ? 0 : past + 1 - t.sure;
    growths.push_back({.id = p.question->sequence, .tokens = p.count});
    bool fits = past + p.count <= model_.recipe.context && pool_.room(growths);
    const std::size_t first = tokens.size();
    for (Dim i = 0; i < p.count; ++i)
      tokens.push_back(p.guessed.empty() ? token(*p.question, past + i) : p.guessed.back());
    for (std::size_t i = first; i < tokens.size(); ++i) fits = fits && tokens[i] < model_.recipe.vocab;
    if (!fits) {
      growths.pop_back();
      tokens.resize(first);
      return true;
    }
    batch.sequences.push_back({.first = static_cast<Dim>(first),
                               .count = p.count,
                               .past = past,
                               .id = p.question->sequence,
                               .opened = model_.recipe.context});
    pool_.guess(p.question->sequence, guessed);
    if (p.last) wanted.push_back(static_cast<std::int32_t>(tokens.size() - 1));
    return false;
  });
  if (parts.empty()) return;
  batch.tokens = tokens;
  batch.want = {.rows = wanted.empty() ? Want::Rows::none : Want::Rows::chosen, .chosen = wanted};
  run_.reset();
  const auto started = Clock::now();
  logits_ = forward(run_, model_, batch, nullptr, &pool_);
  const double seconds = seconds_since(started);
  if (tokens.size() == parts.size()) average(pass_seconds_, passes_, seconds);
  else if (tokens.size() >= 16) average(row_seconds_, reads_, seconds / static_cast<double>(tokens.size()));
  for (const Part& p : parts) {
    Text& t = texts_[p.question->sequence];
    if (p.guessed.empty()) t.sure += p.count;
    else t.guessed.push_back(p.guessed.back());
  }
}

// The next token of each text. False: no text wants another.
bool DraftModel::take(std::vector<Part>& parts) {
  const Dim V = model_.recipe.vocab;
  Dim row = 0;
  std::erase_if(parts, [&](Part& p) {
    if (!p.last) return true;
    const Tensor one = logits_.slice(row++, 1);
    std::span<const float> numbers;
    if (one.dtype == DType::f32) {
      numbers = one.as<const float>();
    } else {
      wide_.resize(at(V));
      for (Dim i = 0; i < V; ++i) wide_[at(i)] = static_cast<float>(one.at(i));
      numbers = wide_;
    }
    const std::int32_t id = p.question->take(numbers);
    if (id < 0) return true;
    p.guessed.push_back(id);
    p.count = 1;
    return static_cast<Dim>(p.guessed.size()) >= p.question->most;
  });
  return !parts.empty();
}

void DraftModel::answer(std::span<const Question> questions, Dim rows) {
  std::vector<Part> parts;
  for (const Question& q : questions) {
    settle(q);
    const Dim left = unread(q), count = std::min(left, rows);
    parts.push_back({&q, count, count == left});
  }
  pass(parts);
  while (take(parts)) pass(parts);
}

}  // namespace rapt
