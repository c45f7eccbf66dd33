// SPDX-License-Identifier: Apache-2.0
// Beam search: the definition stands in decoder.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/use/decoder.h"

namespace rapt {

double length_divisor(const GenerateOptions& o, Dim length) {
  const auto n = static_cast<double>(length);
  return std::pow(o.penalty_form == GenerateOptions::PenaltyForm::gnmt ? (5 + n) / 6 : n, o.length_penalty);
}

BeamSearch::BeamSearch(const DecodeJob& job, Dim vocab, std::uint64_t root)
    : job_(&job), vocab_(vocab), live_(1) {
  live_[0].id = root;
}

std::vector<Decoder::Piece> BeamSearch::pieces() const {
  std::vector<Decoder::Piece> out;
  for (const Beam& b : live_) out.push_back({b.id, std::span(b.ids).last(1)});
  return out;
}

std::string BeamSearch::text_of(std::span<const std::int32_t> ids) const {
  if (!job_->tokenizer) return {};
  TextStream stream(*job_->tokenizer);
  if (!job_->prompt.empty()) stream.push(job_->prompt.back());  // the first word keeps its space
  std::string text;
  for (std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void BeamSearch::finish(const Beam& beam, Dim length, Finish why) {
  Generated g{.ids = beam.ids,
              .text = {},
              .tokens = beam.tokens,
              .finish = why,
              .score = beam.sum / length_divisor(job_->options, length)};
  // Best first, equal ones as they came.
  auto better = [](double x, const Generated& y) { return x > y.score; };
  finished_.insert(std::upper_bound(finished_.begin(), finished_.end(), g.score, better), std::move(g));
}

void BeamSearch::advance(KvCache& cache, std::span<const float> logits, std::uint64_t& next_id) {
  struct Candidate {
    double sum;
    std::size_t parent;
    std::int32_t id;
  };
  const GenerateOptions& o = job_->options;
  const auto B = static_cast<std::size_t>(o.beams), V = static_cast<std::size_t>(vocab_);
  auto ends = [&](std::int32_t id) {
    return !o.ignore_eos && std::find(job_->stops.begin(), job_->stops.end(), id) != job_->stops.end();
  };
  const Dim wide =
      static_cast<Dim>(std::max<std::size_t>(2, 1 + (o.ignore_eos ? 0 : job_->stops.size())) * B);
  ++length_;

  std::vector<Candidate> candidates;
  std::vector<double> whole;
  // log-probabilities are not made to sum to one again, unless the options say so
  auto biased = [&](std::size_t b) {
    const std::span<const float> row = logits.subspan(b * V, V);
    row_.assign(row.begin(), row.end());
    for (const auto& [id, value] : o.sampler.bias) {
      if (id < 0 || id >= vocab_)
        fail_usage("beam search: bias for token ", id, ", but the vocabulary has ", vocab_, " tokens");
      // The largest number, not infinity: that would be no number to add up.
      float& logit = row_[static_cast<std::size_t>(id)];
      logit = std::min(logit + value, std::numeric_limits<float>::max());
    }
    forbid(o.bad_words, live_[b].ids, row_, -std::numeric_limits<float>::infinity());
    if (o.ignore_eos)
      for (std::int32_t id : job_->stops)
        row_[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  };
  for (std::size_t b = 0; b < live_.size(); ++b) {
    const std::span<const float> row = logits.subspan(b * V, V);
    for (float x : row)
      if (!std::isfinite(x))
        fail("beam search: a logit is ", x, "; the model computed something that is no number");
    biased(b);
    whole.push_back(log_sum_exp(o.renormalize ? std::span<const float>(row_) : row));
    for (const auto& [logit, id] : largest(row_, wide))
      if (std::isfinite(logit)) candidates.push_back({live_[b].sum + logit - whole[b], b, id});
  }
  if (candidates.empty()) fail("beam search: bias and bad words forbid every token of the vocabulary");
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
    return x.sum != y.sum ? x.sum > y.sum : x.parent != y.parent ? x.parent < y.parent : x.id < y.id;
  });
  if (candidates.size() > static_cast<std::size_t>(wide)) candidates.resize(static_cast<std::size_t>(wide));

  std::vector<Beam> next;
  std::vector<std::size_t> parents;
  for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& c = candidates[rank];
    const bool end = ends(c.id), full = length_ >= job_->most;
    if ((end || full) ? rank >= B : next.size() >= B) continue;
    Beam beam = live_[c.parent];
    beam.sum = c.sum;
    if (!end) {
      beam.ids.push_back(c.id);
      if (o.logprobs || o.top_logprobs > 0) {
        biased(c.parent);
        TokenChoice t{.id = c.id, .logprob = static_cast<float>(c.sum - live_[c.parent].sum), .top = {}};
        for (const auto& [logit, id] : largest(row_, o.top_logprobs))
          t.top.emplace_back(id, static_cast<float>(logit - whole[c.parent]));
        beam.tokens.push_back(std::move(t));
      }
    }
    const bool said_stop = !end && !o.stops.empty() && [&] {
      StopText check(o.stops);
      check.push(text_of(beam.ids));
      return check.found();
    }();
    if (end || said_stop || full) {
      if (rank < B) finish(beam, length_, end || said_stop ? Finish::stop : Finish::length);
    } else {
      next.push_back(std::move(beam));
      parents.push_back(c.parent);
    }
  }
  if (finished_.size() > B) finished_.resize(B);
  over_ = length_ >= job_->most || next.empty() ||
          (finished_.size() == B &&
           (B == 1 || next[0].sum / length_divisor(o, length_) <= finished_.back().score));

  // Children take over their parents' pages; the parents go.
  const Dim cached = cache.length(live_[0].id);
  if (!over_)
    for (std::size_t i = 0; i < next.size(); ++i) {
      next[i].id = next_id++;
      cache.share(live_[parents[i]].id, next[i].id, cached);
    }
  for (const Beam& b : live_) cache.drop(b.id);
  if (over_) next.clear();
  live_ = std::move(next);
}

void BeamSearch::cancel(KvCache& cache) {
  for (const Beam& b : live_) {
    if (!b.ids.empty()) finish(b, static_cast<Dim>(b.ids.size()), Finish::cancelled);
    cache.drop(b.id);
  }
  if (finished_.empty()) finished_.push_back({.finish = Finish::cancelled});
  live_.clear();
  over_ = true;
}

std::vector<Generated> BeamSearch::answers() {
  std::vector<Generated> out = std::move(finished_);
  if (out.size() > static_cast<std::size_t>(job_->options.samples))
    out.resize(static_cast<std::size_t>(job_->options.samples));
  for (std::size_t i = 0; i < out.size(); ++i) {
    StopText cut(job_->options.stops);
    out[i].text = cut.push(text_of(out[i].ids));
    out[i].text += cut.finish();
    if (job_->on_token) job_->on_token(static_cast<int>(i), -1, out[i].text);
  }
  return out;
}

std::vector<Generated> beam_search(Decoder& decoder, std::uint64_t root, std::span<const float> logits,
                                   const DecodeJob& job, Dim& decoded) {
  BeamSearch search(job, decoder.vocab, root);
  std::uint64_t next_id = root + 1;
  for (std::span<const float> rows = logits; !search.over();) {
    if (job.cancelled()) {
      search.cancel(decoder.cache);
      break;
    }
    search.advance(decoder.cache, rows, next_id);
    if (search.over()) break;
    const std::vector<Decoder::Piece> pieces = search.pieces();
    rows = decoder.step(pieces);
    decoded += static_cast<Dim>(pieces.size());
  }
  return search.answers();
}

}  // namespace rapt
