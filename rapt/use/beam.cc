// SPDX-License-Identifier: Apache-2.0
// Candidates of all beams are ranked together; a beam that may not live any more leaves its answer.
#include "rapt/use/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/text/stop_text.h"

namespace rapt {

double length_divisor(const GenerateOptions& o, Dim length) {
  const auto n = static_cast<double>(length);
  return std::pow(o.penalty_form == GenerateOptions::PenaltyForm::gnmt ? (5 + n) / 6 : n, o.length_penalty);
}

BeamSearch::BeamSearch(const GenerateOptions& options, std::span<const std::int32_t> stops,
                       const Tokenizer* tokenizer, std::int32_t before, Dim most, Dim vocab,
                       const TokenMask& mask, const Constraint* constraint)
    : options_(options),
      stops_(stops),
      tokenizer_(tokenizer),
      before_(before),
      most_(most),
      vocab_(vocab),
      mask_(mask),
      live_(1) {
  live_[0].bound = Bound(constraint);
}

std::string BeamSearch::text_of(std::span<const std::int32_t> ids) const {
  if (!tokenizer_) return {};
  TextStream stream(*tokenizer_, false, options_.shown_ids);
  if (before_ >= 0) stream.push(before_);  // the first word keeps its space
  std::string text;
  for (std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void BeamSearch::finish(const Beam& beam, Dim length, Finish why) {
  Generated g{.ids = beam.ids,
              .text = {},
              .tokens = beam.tokens,
              .finish = why,
              .score = beam.sum / length_divisor(options_, length),
              .hash = beam.hash};
  // Best first, equal ones as they came.
  auto better = [](double x, const Generated& y) { return x > y.score; };
  finished_.insert(std::upper_bound(finished_.begin(), finished_.end(), g.score, better), std::move(g));
}

std::vector<std::size_t> BeamSearch::advance(std::span<const float> logits) {
  struct Candidate {
    double sum;
    std::size_t parent;
    std::int32_t id;
  };
  const GenerateOptions& o = options_;
  const auto B = static_cast<std::size_t>(o.beams), V = static_cast<std::size_t>(vocab_);
  auto ends = [&](std::int32_t id) {
    return !o.ignore_eos && std::find(stops_.begin(), stops_.end(), id) != stops_.end();
  };
  const Dim wide = static_cast<Dim>(std::max<std::size_t>(2, 1 + (o.ignore_eos ? 0 : stops_.size())) * B);
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
    if (!o.bad_words.empty() || mask_ || live_[b].bound.of) {
      std::vector<std::uint64_t> allowed = all_tokens(V);
      if (live_[b].bound.of) live_[b].bound.of->mask(allowed);
      apply_mask(mask_, live_[b].ids, allowed);
      forbid(o.bad_words, live_[b].ids, allowed);
      keep_allowed(row_, allowed, -std::numeric_limits<float>::infinity());
    }
    if (o.ignore_eos)
      for (std::int32_t id : stops_)
        row_[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  };
  for (std::size_t b = 0; b < live_.size(); ++b) {
    const std::span<const float> row = logits.subspan(b * V, V);
    for (float x : row)
      if (!std::isfinite(x))
        fail("beam search: a logit is ", x, "; the model computed something that is no number");
    biased(b);
    whole.push_back(log_sum_exp(o.renormalize ? std::span<const float>(row_) : row));
    Constraint* const bound = live_[b].bound.of.get();
    for (const auto& [logit, id] : largest(row_, wide))
      if (std::isfinite(logit) && (!bound || bound->allows(id)))
        candidates.push_back({live_[b].sum + logit - whole[b], b, id});
  }
  if (candidates.empty()) fail("beam search: bias, bad words and mask forbid every token of the vocabulary");
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
    return x.sum != y.sum ? x.sum > y.sum : x.parent != y.parent ? x.parent < y.parent : x.id < y.id;
  });
  if (candidates.size() > static_cast<std::size_t>(wide)) candidates.resize(static_cast<std::size_t>(wide));

  std::vector<Beam> next;
  std::vector<std::size_t> parents;
  for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& c = candidates[rank];
    const bool end = ends(c.id), full = length_ >= most_;
    if ((end || full) ? rank >= B : next.size() >= B) continue;
    Beam beam = live_[c.parent];
    beam.sum = c.sum;
    add_choice(beam.hash, c.id, logits[c.parent * V + static_cast<std::size_t>(c.id)]);
    if (!end) {
      if (beam.bound.of) beam.bound.of->accept(c.id);
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
  over_ = length_ >= most_ || next.empty() ||
          (finished_.size() == B &&
           (B == 1 || next[0].sum / length_divisor(o, length_) <= finished_.back().score));

  if (over_) next.clear(), parents.clear();
  live_ = std::move(next);
  return parents;
}

void BeamSearch::cut_off(Finish why) {
  for (const Beam& b : live_)
    if (!b.ids.empty()) finish(b, static_cast<Dim>(b.ids.size()), why);
  if (finished_.empty()) finished_.push_back({.finish = why});
  live_.clear();
  over_ = true;
}

std::vector<Generated> BeamSearch::answers() {
  std::vector<Generated> out = std::move(finished_);
  if (out.size() > static_cast<std::size_t>(options_.samples))
    out.resize(static_cast<std::size_t>(options_.samples));
  for (std::size_t i = 0; i < out.size(); ++i) {
    StopText cut(options_.stops);
    out[i].text = cut.push(text_of(out[i].ids));
    out[i].text += cut.finish();
  }
  return out;
}

}  // namespace rapt
