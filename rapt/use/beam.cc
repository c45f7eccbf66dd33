// SPDX-License-Identifier: Apache-2.0
// Beam search: the definition stands in decoder.h.
#include <algorithm>
#include <cmath>

#include "rapt/use/decoder.h"

namespace rapt {
namespace {

struct Beam {
  std::vector<std::int32_t> ids;
  std::vector<TokenChoice> tokens;
  double sum = 0;
  std::uint64_t id = 0;  // in the cache
};

struct Candidate {
  double sum;
  std::size_t parent;
  std::int32_t id;
};

std::string text_of(const Tokenizer* tokenizer, std::int32_t last_prompt, std::span<const std::int32_t> ids) {
  if (!tokenizer) return {};
  TextStream stream(*tokenizer);
  if (last_prompt >= 0) stream.push(last_prompt);  // the first word keeps its space
  std::string text;
  for (std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

}  // namespace

std::vector<Generated> beam_search(Decoder& decoder, std::uint64_t root, std::span<const float> logits, const DecodeJob& job,
                                   Dim& decoded) {
  const GenerateOptions& o = job.options;
  const auto B = static_cast<std::size_t>(o.beams);
  const std::int32_t last_prompt = job.prompt.empty() ? -1 : job.prompt.back();
  auto ends = [&](std::int32_t id) { return !o.ignore_eos && std::find(job.stops.begin(), job.stops.end(), id) != job.stops.end(); };
  auto normal = [&](double sum, Dim length) { return sum / std::pow(static_cast<double>(length), o.length_penalty); };
  const Dim wide = static_cast<Dim>(std::max<std::size_t>(2, 1 + (o.ignore_eos ? 0 : job.stops.size())) * B);

  std::vector<Generated> finished;
  auto finish = [&](const Beam& beam, double score, Finish why) {
    Generated g{
        .ids = beam.ids, .text = text_of(job.tokenizer, last_prompt, beam.ids), .tokens = beam.tokens, .finish = why, .score = score};
    StopText cut(o.stops);
    g.text = cut.push(g.text) + cut.finish();
    auto better = [](double x, const Generated& y) { return x > y.score; };  // best first, equal ones as they came
    finished.insert(std::upper_bound(finished.begin(), finished.end(), score, better), std::move(g));
  };

  std::vector<Beam> live(1);
  live[0].id = root;
  std::uint64_t next_id = root + 1;
  std::vector<float> rows(logits.begin(), logits.end());  // [live,V]
  bool cancelled = false;
  for (Dim length = 1; !live.empty(); ++length) {
    cancelled = job.cancelled();
    if (cancelled) break;
    std::vector<Candidate> candidates;
    std::vector<double> whole;
    for (std::size_t b = 0; b < live.size(); ++b) {
      const std::span<float> row =
          std::span(rows).subspan(b * static_cast<std::size_t>(decoder.vocab), static_cast<std::size_t>(decoder.vocab));
      for (float x : row)
        if (!std::isfinite(x)) fail("beam search: a logit is ", x, "; the model computed something that is no number");
      whole.push_back(log_sum_exp(row));
      for (const auto& [id, value] : o.sampler.bias) {
        if (id >= decoder.vocab) fail_usage("beam search: bias for token ", id, ", but the vocabulary has ", decoder.vocab, " tokens");
        row[static_cast<std::size_t>(id)] += value;  // log-probabilities are not made to sum to one again
      }
      if (o.ignore_eos)
        for (std::int32_t id : job.stops) row[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
      for (const auto& [logit, id] : largest(row, wide))
        if (std::isfinite(logit)) candidates.push_back({live[b].sum + logit - whole[b], b, id});
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
      return x.sum != y.sum ? x.sum > y.sum : x.parent != y.parent ? x.parent < y.parent : x.id < y.id;
    });
    if (candidates.size() > static_cast<std::size_t>(wide)) candidates.resize(static_cast<std::size_t>(wide));

    std::vector<Beam> next;
    std::vector<std::size_t> parents;
    for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
      const Candidate& c = candidates[rank];
      Beam beam = live[c.parent];
      beam.sum = c.sum;
      const bool end = ends(c.id);
      if (!end) {
        beam.ids.push_back(c.id);
        if (o.logprobs || o.top_logprobs > 0) {
          const std::span<const float> row =
              std::span(rows).subspan(c.parent * static_cast<std::size_t>(decoder.vocab), static_cast<std::size_t>(decoder.vocab));
          TokenChoice t{.id = c.id, .logprob = static_cast<float>(c.sum - live[c.parent].sum), .top = {}};
          for (const auto& [logit, id] : largest(row, o.top_logprobs)) t.top.emplace_back(id, static_cast<float>(logit - whole[c.parent]));
          beam.tokens.push_back(std::move(t));
        }
      }
      const bool said_stop = !end && !o.stops.empty() && [&] {
        StopText check(o.stops);
        check.push(text_of(job.tokenizer, last_prompt, beam.ids));
        return check.found();
      }();
      if (end || said_stop || length >= job.most) {
        if (rank < B) finish(beam, normal(c.sum, length), end || said_stop ? Finish::stop : Finish::length);
      } else if (next.size() < B) {
        next.push_back(std::move(beam));
        parents.push_back(c.parent);
      }
    }
    if (finished.size() > B) finished.resize(B);
    const bool over = length >= job.most || next.empty() || (finished.size() == B && normal(next[0].sum, length) <= finished.back().score);

    // Children take over their parents' pages; the parents go.
    const Dim cached = decoder.cache.length(live[0].id);
    if (!over)
      for (std::size_t i = 0; i < next.size(); ++i) {
        const std::uint64_t from = live[parents[i]].id;
        next[i].id = next_id++;
        decoder.cache.share(from, next[i].id, cached);
      }
    for (const Beam& b : live) decoder.cache.drop(b.id);
    live = std::move(next);
    if (over) break;
    std::vector<Decoder::Piece> pieces;
    for (const Beam& b : live) pieces.push_back({b.id, std::span(b.ids).last(1)});
    const std::span<const float> out = decoder.step(pieces);
    rows.assign(out.begin(), out.end());
    decoded += static_cast<Dim>(live.size());
  }
  if (cancelled) {
    for (const Beam& b : live) {
      if (!b.ids.empty()) finish(b, normal(b.sum, static_cast<Dim>(b.ids.size())), Finish::cancelled);
      decoder.cache.drop(b.id);
    }
    if (finished.empty()) finished.push_back({.finish = Finish::cancelled});
  }
  if (finished.size() > static_cast<std::size_t>(o.samples)) finished.resize(static_cast<std::size_t>(o.samples));
  if (job.on_token)
    for (std::size_t i = 0; i < finished.size(); ++i) job.on_token(static_cast<int>(i), -1, finished[i].text);
  return finished;
}

}  // namespace rapt
