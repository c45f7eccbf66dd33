// SPDX-License-Identifier: Apache-2.0
// Answers that another server began: rapt.continue. Nothing of them is kept anywhere. The request is answered
// from its beginning, and what the client has is known (Request::known): its rows come many in a pass, every
// token is chosen all the same, and one that is not the client's is an error. So the rest has the bits that
// the first server would have given, whatever decides them (seed, penalties, grammar, stops), and ids that a
// client makes up lead nowhere.
#include <algorithm>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/service_state.h"
#include "rapt/base/rng.h"

namespace rapt::server {
namespace {

// What an answer follows from beside seed, body and fingerprint.
std::string basis_of(const ServedModel& m, const std::vector<std::vector<std::int32_t>>& prompts) {
  std::uint64_t hash = static_cast<std::uint64_t>(m.engine->context());
  for (const char c : m.template_hash) hash = mix_key(hash, static_cast<unsigned char>(c));
  for (const std::vector<std::int32_t>& prompt : prompts) {
    hash = mix_key(hash, prompt.size());
    for (const std::int32_t id : prompt) hash = mix_key(hash, static_cast<std::uint64_t>(id));
  }
  return hash_text(hash);
}

}  // namespace

void Service::State::prepare_continued(Job& job, const std::vector<std::vector<std::int32_t>>& prompts) {
  const ServedModel& m = *job.model;
  const Continued& c = *job.asked.continued;
  if (job.form != Form::chat && job.form != Form::text)
    throw ApiError(400, "unsupported_parameter",
                   "rapt.continue: answers of /v1/chat/completions and /v1/completions can be gone on with",
                   "rapt.continue");
  job.head.basis = basis_of(m, prompts);
  if (!c.any()) return;
  if (c.fingerprint != job.head.fingerprint)
    throw ApiError(409, "model_changed",
                   concat("the answer was begun with the fingerprint ", in_quotes(c.fingerprint),
                          " (of program, instruction set, cache and files); here it is ",
                          job.head.fingerprint, ", whose bits may differ; ask for the whole answer"));
  if (!c.basis.empty() && c.basis != job.head.basis)
    throw ApiError(409, "prompt_changed",
                   "the prompt, the chat template or the context is another one than where the answer was "
                   "begun (a template may tell the date); ask for the whole answer");
  const auto samples = static_cast<std::size_t>(job.asked.generate.samples);
  if (c.ids.size() > prompts.size() * samples)
    bad_field("rapt.continue.ids", concat("it has lists for ", c.ids.size(), " choices; ",
                                          prompts.size() * samples, " are asked for"));
  const Dim most = job.asked.generate.max_tokens, context = m.engine->context();
  for (std::size_t i = 0; i < c.ids.size(); ++i) {
    const auto n = static_cast<Dim>(c.ids[i].size()),
               room = job.asked.endless.window > 0 ? n
                      : m.translates()             ? context
                                                   : context - static_cast<Dim>(prompts[i / samples].size()),
               limit = most < 0 ? room : std::min(room, most);
    if (n > limit)
      bad_field("rapt.continue.ids",
                concat("choice ", i, " has ", n, " ids; its answer has at most ", limit, " tokens"));
  }
}

// The part's share of what is known.
void Service::State::set_known(const Job& job, std::size_t part, Request& request) {
  if (!job.asked.continued) return;
  const int samples = job.asked.generate.samples;
  for (int s = 0; s < samples; ++s) {
    const auto ids = job.asked.continued->of(static_cast<int>(part) * samples + s);
    request.known.emplace_back(ids.begin(), ids.end());
  }
}

// Where the answer is not the one that the client has: a token, or its end.
std::optional<ApiError> Service::State::differs(Job& job, std::size_t part, const Event& e) const {
  if (!job.asked.continued) return std::nullopt;
  const int samples = job.asked.generate.samples;
  const auto error = [&](int sample, std::size_t at, const std::string& now) {
    const int index = static_cast<int>(part) * samples + sample;
    return ApiError(409, "continue_differs",
                    concat("choice ", index, " is not the answer of this request: at its token ", at,
                           " stands ", job.asked.continued->of(index)[at], " in rapt.continue.ids, and here ",
                           now, "; ask for the whole answer"),
                    "rapt.continue.ids");
  };
  if (e.kind == Event::Kind::token && e.id >= 0) {
    std::vector<std::size_t>& counts = job.parts[part].written;
    counts.resize(static_cast<std::size_t>(samples));
    const std::size_t at = counts[static_cast<std::size_t>(e.sample)]++;
    const auto had = job.asked.continued->of(static_cast<int>(part) * samples + e.sample);
    if (at < had.size() && had[at] != e.id) return error(e.sample, at, concat("comes ", e.id));
  }
  if (e.kind == Event::Kind::done && e.answer && !e.error)
    for (std::size_t s = 0; s < e.answer->samples.size(); ++s) {
      const Generated& g = e.answer->samples[s];
      const auto had = job.asked.continued->of(static_cast<int>(part) * samples + static_cast<int>(s));
      if (g.finish != Finish::cancelled && g.ids.size() < had.size())
        return error(static_cast<int>(s), g.ids.size(), "it has ended");
    }
  return std::nullopt;
}

}  // namespace rapt::server
