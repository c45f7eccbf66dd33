// SPDX-License-Identifier: Apache-2.0
// Answers that are given again, and answers that are compared: POST /v1/replay/{id}, rapt.compare.
#include <algorithm>

#include "rapt/apps/server/service_state.h"
#include "rapt/base/text.h"

namespace rapt::server {

// What earlier servers wrote. Lines that say nothing, or of keys that are not there, are left out.
void Service::State::read_replay_log() {
  replay_log.emplace(options.replay_log, options.warn);
  std::vector<std::string> names;
  for (std::size_t i = 0; i == 0 || !access.key_name(i).empty(); ++i) names.push_back(access.key_name(i));
  Dim damaged = 0, others = 0;
  std::string first;
  replay_log->read([&](std::string_view line, Dim number) {
    try {
      if (line.empty()) rapt::fail("it is longer than ", byte_count(static_cast<double>(kMostLine)));
      ReplayRecord record = read_record(line);
      if (std::find(names.begin(), names.end(), record.key) == names.end()) ++others;
      else if (options.replay) replays.add(std::move(record));
    } catch (const Error& e) {
      if (damaged++ == 0) first = concat("line ", number, ": ", e.what());
    }
  });
  if (!options.warn) return;
  if (damaged > 0)
    options.warn(concat("--replay-log ", options.replay_log, ": ", counted(damaged, "line"),
                        " left out that cannot be read; ", first));
  if (others > 0)
    options.warn(concat("--replay-log ", options.replay_log, ": ", counted(others, "answer"),
                        " left out whose key is not among those of this server"));
}

ReplayPtr Service::State::find_replay(std::string_view path, std::size_t key) const {
  ReplayPtr record = replays.find(path.substr(path.rfind('/') + 1), access.key_name(key));
  if (!record)  // another key's is not there
    throw ApiError(404, "replay_not_found",
                   concat("there is no such answer; the last ", ReplayStore::kAnswers,
                          " of a key that came to their end are kept, as far as there is room"));
  return record;
}

void Service::State::prepare_replay(const JobPtr& job, const http::Request& request) {
  const Json asked = request.body.empty() ? Json(Json::Object{}) : read_body(request.body);
  job->again = find_replay(request.path, job->key);
  const ReplayRecord& record = *job->again;
  // The same bits come of the same fingerprint, whatever the model is called now.
  ServedModel* model = nullptr;
  const NamedAdapter* adapter = nullptr;
  std::string there;
  const auto look_at = [&](ServedModel& m, const NamedAdapter* a) {
    const std::string& fingerprint = a ? a->fingerprint : m.fingerprint;
    if (!model && fingerprint == record.fingerprint) model = &m, adapter = a;
    there += concat(there.empty() ? "" : ", ", a ? a->name : m.name, " ", fingerprint);
  };
  for (const auto& m : models) {
    look_at(*m, nullptr);
    for (const NamedAdapter& a : m->adapters) look_at(*m, &a);
  }
  if (!model)
    throw ApiError(409, "model_changed",
                   concat("the answer was given by '", record.model, "' with the fingerprint ",
                          record.fingerprint, " (of program, instruction set, cache and files); here is ",
                          there, ", whose bits may differ"));
  {
    const std::lock_guard hold(lock);
    job->model = model;
    job->adapter = adapter;
    job->headers.push_back({"rapt-model", job->model_name()});
  }
  const bool ours = record.form == Form::chat || record.form == Form::text;
  for (const char* name : {"logprobs", "top_logprobs", "return_token_ids", "stream_options"})
    if (const Json* value = asked.find(name); value && !value->is_null() && !ours)
      throw ApiError(
          400, "unsupported_parameter",
          concat("'", name, "' is of chat and text completions; the answer came of ", record.route), name);
  const ReplayRequest replay = read_replay(asked, read_body(record.body), record.form == Form::chat);
  job->edited = replay.edited;
  job->form = record.form;
  prepare_completion(job, replay.body);
}

// Answers that came to their end by themselves: one that was cut by a deadline would not end there again.
void Service::State::keep(const Job& job) {
  ReplayRecord r{.id = job.head.id,
                 .key = access.key_name(job.key),
                 .model = job.head.model,
                 .fingerprint = job.head.fingerprint,
                 .route = job.route,
                 .chat_template = job.model->template_hash,
                 .body = job.body,
                 .created = job.head.created,
                 .seed = job.asked.generate.sampler.seed,
                 .context = job.model->engine->context(),
                 .form = job.form,
                 .ignore_eos = job.asked.generate.ignore_eos,
                 .prompts = {},
                 .choices = {}};
  for (const Job::Part& p : job.parts) r.prompts.push_back(p.prompt);
  for (const ReplyChoice& c : choices(job)) {
    if (c.finish == Finish::cancelled) return;
    r.choices.push_back({.ids = {c.ids.begin(), c.ids.end()},
                         .hash = c.hash.value_or(0),
                         .finish = std::string(c.finish_detail)});
  }
  if (replay_log) replay_log->append(r);
  replays.add(std::move(r));
}

// "replay":{…} of one choice, or of all. parts_at: the first token that is another one; null where all that
// are there are the same, and logits alone differ.
std::string Service::State::replay_text(const Job& job, int choice) const {
  std::string list;
  bool all = true;
  std::size_t count = 0;
  const std::vector<ReplyChoice> now = choices(job);
  const std::vector<ReplayRecord::Choice>& then = job.again->choices;
  for (std::size_t i = 0; i < then.size() && i < now.size(); ++i) {
    if (choice >= 0 && i != static_cast<std::size_t>(choice)) continue;
    const auto& a = then[i].ids;
    const auto& b = now[i].ids;
    const bool equal = then[i].hash == now[i].hash;
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    const bool part = a.size() != b.size() || static_cast<std::size_t>(at) < a.size();
    all = all && equal;
    list += concat(count++ > 0 ? "},{" : "", "\"hash\":\"", hash_text(then[i].hash),
                   "\",\"equal\":", equal ? "true" : "false");
    if (!equal) list += concat(",\"parts_at\":", part ? std::to_string(at) : "null");
  }
  std::string of;
  append_quoted(of, job.again->id);
  if (count == 1) return concat("\"replay\":{\"of\":", of, ",", list, "}");
  return concat("\"replay\":{\"of\":", of, ",\"equal\":", all && count > 0 ? "true" : "false",
                ",\"choices\":[{", list, "}]}");
}

bool Service::State::replay_equal(const Job& job) const {
  const std::vector<ReplyChoice> now = choices(job);
  for (std::size_t i = 0; i < job.again->choices.size(); ++i)
    if (i >= now.size() || now[i].hash != job.again->choices[i].hash) return false;
  return true;
}

// ------------------------------------------------------------------------------------------------- compare
// A second request for the same prompt, under the edits of `compare`.
void Service::State::add_compared(const JobPtr& job, std::vector<Request>& requests,
                                  const std::vector<Edit>& edits) {
  const CompletionRequest& asked = job->asked;
  const std::vector<Edit> others =
      read_edits(asked.compare_edits, *job->model->checkpoint.model, "rapt.compare.edits");
  try {
    job->compare = std::make_unique<AnswerCompare>(*job->model, edits, others);
  } catch (const Error& e) {
    throw ApiError(400, "invalid_value", concat("rapt.compare.edits: ", e.what()), "rapt.compare.edits");
  }
  Request b = requests.at(0);
  if (!asked.compare_model.empty()) {
    const NamedAdapter* adapter = nullptr;
    if (&find_model(asked.compare_model, &adapter) != job->model)
      throw ApiError(400, "invalid_value",
                     concat("rapt.compare.model: '", asked.compare_model,
                            "' is another model; adapters of one model and the model itself can be compared"),
                     "rapt.compare.model");
    b.adapters.reset();
    if (adapter) b.adapters = {adapter->use};
  }
  b.taps = job->compare->taps(1);
  b.edits = asked.compare_edits_text;
  job->parts[1].prompt = job->parts[0].prompt;
  job->parts[1].last.resize(1);
  job->compared = {requests[0], b};
  requests.push_back(std::move(b));
}

// Both have ended, or have read a slice of rows: the next one.
void Service::State::read_compared(const JobPtr& job) {
  AnswerCompare& c = *job->compare;
  if (!c.reads()) {
    try {
      c.check_touched();
    } catch (const Error& e) {
      fail(job,
           ApiError(400, "invalid_value", concat("rapt.compare.edits: ", e.what()), "rapt.compare.edits"));
      return;
    }
    c.set_answers(job->parts[0].answer->samples.at(0), job->parts[1].answer->samples.at(0),
                  static_cast<Dim>(job->parts[0].prompt.size()));
  }
  if (!c.left()) {  // nothing was written
    std::string none;
    return finish_completion(job, none);
  }
  try {
    std::array<Request, 2> slice = c.next_slice(job->compared);
    std::vector<Request> requests;
    for (Request& r : slice) requests.push_back(std::move(r));
    for (Job::Part& p : job->parts) p.done = false;
    add(job, std::move(requests));
  } catch (...) {
    fail(job, api_error(std::current_exception()));
  }
}

std::string Service::State::replays_text() const {
  std::string out;
  const ReplayStore::Counts kept = replays.counts();
  write_head(out, "rapt_replay_answers", "gauge", "answers that can be given again");
  write_value(out, "rapt_replay_answers", "", static_cast<double>(kept.answers));
  write_head(out, "rapt_replay_bytes", "gauge", "memory of them");
  write_value(out, "rapt_replay_bytes", "", static_cast<double>(kept.bytes));
  write_head(out, "rapt_replays_total", "counter", "answers that were given again, by what came of it");
  for (const auto& [result, n] : metrics.replays)
    write_value(out, "rapt_replays_total", label("result", result), static_cast<double>(n));
  if (!replay_log) return out;
  const ReplayLog::Counts lines = replay_log->counts();
  write_head(out, "rapt_replay_log_lines_total", "counter", "lines for the replay log");
  write_value(out, "rapt_replay_log_lines_total", label("result", "written"),
              static_cast<double>(lines.written));
  write_value(out, "rapt_replay_log_lines_total", label("result", "lost"), static_cast<double>(lines.lost));
  return out;
}

}  // namespace rapt::server
