// SPDX-License-Identifier: Apache-2.0
// The engines' thread, and what becomes of its events on the server's thread: chunks, replies, metrics.
#include <algorithm>
#include <cmath>

#include "rapt/apps/server/service_state.h"
#include "rapt/use/read_texts.h"

namespace rapt::server {
namespace {

constexpr std::size_t kLiveUnsent = 64 << 10;

// Where an answer ended, in more words than the protocol has.
std::string_view finish_detail(const Job& job, const Generated& g) {
  if (g.finish == Finish::cancelled)
    return job.deadline.empty() ? "cancelled" : std::string_view(job.deadline);
  if (g.finish == Finish::length) {
    const Dim most = job.asked.generate.max_tokens;
    return most >= 0 && static_cast<Dim>(g.ids.size()) >= most ? "length" : "context";
  }
  return g.stop_text ? "stop_string" : "eos";
}

// Which of the stops ended an answer.
std::string stop_of(const Job& job, const Generated& g) {
  return g.stop_text ? job.asked.generate.stops.at(static_cast<std::size_t>(g.stop_number)) : "";
}

}  // namespace

AnswerWriter& writer_of(Job& job) {
  if (!job.writer)
    job.writer = dialect(job.form).writer(job.asked, job.head, job.model->checkpoint.tokenizer.get());
  return *job.writer;
}

std::vector<http::Header> stream_headers(Job& job) {
  std::vector<http::Header> headers = job.headers;
  headers.push_back({"Content-Type", std::string(writer_of(job).content_type())});
  headers.push_back({"Cache-Control", "no-cache"});
  headers.push_back({"X-Accel-Buffering", "no"});
  return headers;
}

// ------------------------------------------------------------------------------------ the engines' thread
void Service::State::run_engines() {
  while (true) {
    bool worked = false;
    for (std::size_t i = 0; i < models.size(); ++i) {
      Engine& engine = *models[i]->engine;
      if (!engine.runnable()) continue;
      worked = true;
      const auto began = Clock::now();
      std::vector<Event> events;
      try {
        events = engine.step();
      } catch (...) {  // no memory, most likely: who runs is told, the server goes on
        drop_all(i, std::current_exception());
        continue;
      }
      Batch batch{
          .model = i, .events = {}, .status = engine.status(), .seconds = seconds_since(began), .rows = 0};
      batch.events.reserve(events.size());
      {
        const std::lock_guard hold(lock);
        for (Event& e : events) {
          const auto it = live.find({i, e.request});
          if (it == live.end()) continue;
          const bool done = e.kind == Event::Kind::done;
          Job& job = *it->second.first;
          const bool seen = job.live && e.kind == Event::Kind::token && e.id >= 0;
          batch.events.push_back({it->second.first, it->second.second, std::move(e)});
          if (seen) batch.events.back().live = job.live->take();
          if (done) live.erase(it);
        }
      }
      server->post([this, batch = std::move(batch)]() mutable { deliver(batch); });
    }
    std::unique_lock hold(lock);
    if (quit) return;
    if (!worked) engine_wakes.wait(hold, [&] { return engine_signal || quit; });
    engine_signal = false;
    if (quit) return;
  }
}

// A step failed as a whole: every request of the model ends with the reason.
void Service::State::drop_all(std::size_t model, const std::exception_ptr& thrown) {
  std::vector<JobPtr> dropped;
  {
    const std::lock_guard hold(lock);
    for (const auto& [key, part] : live)
      if (key.first == model) {
        models[model]->engine->cancel(key.second);
        if (std::find(dropped.begin(), dropped.end(), part.first) == dropped.end())
          dropped.push_back(part.first);
      }
  }
  server->post([this, dropped = std::move(dropped), error = api_error(thrown)] {
    for (const JobPtr& job : dropped) fail(job, error);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

// ------------------------------------------------------------------------------------- the server's thread
void Service::State::deliver(Batch& batch) {
  ServedModel& model = *models[batch.model];
  ModelMetrics& m = metrics.models[model.name];
  const Engine::Status& before = status[batch.model];
  m.step.add(batch.seconds);
  m.step_seconds += batch.seconds;
  m.choose_seconds = batch.status.total.choose;
  const auto rows = static_cast<double>(batch.status.decoded_tokens - before.decoded_tokens +
                                        batch.status.prompt_tokens - before.prompt_tokens);
  if (rows > 0) m.step_rows.add(rows);
  m.prompt_tokens = batch.status.prompt_tokens;
  m.cached_tokens = batch.status.reused_tokens;
  m.generated_tokens = batch.status.decoded_tokens;
  m.guessed_tokens = batch.status.guessed_tokens;
  m.right_guesses = batch.status.right_guesses;
  m.paused = batch.status.pauses;
  status[batch.model] = batch.status;

  // Events of one request stand together in its output: one write a step.
  struct Output {
    JobPtr job;
    std::string wire, kept;  // kept: for who comes back
  };
  std::vector<Output> outputs;
  const auto output = [&](const JobPtr& job) -> Output& {
    for (Output& o : outputs)
      if (o.job == job) return o;
    return outputs.emplace_back(job);
  };
  for (Delivery& d : batch.events) {
    Job& job = *d.job;
    Job::Part& part = job.parts[d.part];
    const Event& e = d.event;
    if (e.kind == Event::Kind::prompt && !part.begun) {
      part.begun = job.begun = true;
      release(job, job.task == Task::completion ? job.asked.generate.samples : 1,
              static_cast<Dim>(part.prompt.size()));
    }
    if (e.kind == Event::Kind::done && !part.begun) {
      part.begun = job.begun = true;
      release(job, job.task == Task::completion ? job.asked.generate.samples : 1,
              static_cast<Dim>(part.prompt.size()));
    }
    if (job.gone || job.broken) {
      if (e.kind == Event::Kind::done && --job.open_parts == 0) release(job, job.counted, job.counted_tokens);
      continue;
    }
    std::string out;
    switch (e.kind) {
      case Event::Kind::prompt:
        part.reused = e.reused;
        if (job.task == Task::completion && job.asked.stream && job.asked.return_progress)
          writer_of(job).progress(out, e.read, e.of, e.reused, seconds_since(job.arrived));
        break;
      case Event::Kind::token:
      case Event::Kind::done:
        if (const std::optional<ApiError> other = differs(job, d.part, e)) {
          if (e.kind == Event::Kind::done) part.done = true, --job.open_parts;
          fail(d.job, *other);
        } else if (e.kind == Event::Kind::token) {
          take_token(job, d.part, e, out);
        } else {
          take_done(d.job, d.part, e, out);
        }
        break;
      case Event::Kind::paused: break;
    }
    Output& all = output(d.job);
    all.wire += out;
    if (job.asked.resume) all.kept += out;
    // Who is behind loses these, never text; nobody gets them twice.
    if (!d.live.empty() && job.writer && job.unsent < kLiveUnsent) job.writer->aside(all.wire, d.live);
  }
  for (const auto& [job, wire, kept] : outputs) {
    if (job->gone || wire.empty()) continue;
    begin_stream(job);
    if (job->ring) job->ring->add(kept);
    if (!attached(*job)) continue;
    job->wrote = Clock::now();
    const std::size_t unsent = job->unsent = server->write(job->exchange, wire);
    if (unsent < 256 << 10 || job->open_parts == 0) continue;
    // A reader that does not keep up: its answers wait, with their pages.
    for (Job::Part& p : job->parts)
      if (!p.done && !p.suspended) {
        p.suspended = true;
        model.engine->suspend(p.id, true);
      }
  }
  for (const Output& o : outputs)
    if (const JobPtr& job = o.job; !job->gone && job->open_parts == 0 && job->streams) {
      if (attached(*job)) server->end(job->exchange);
      forget(job);
    }
}

void Service::State::take_token(Job& job, std::size_t p, const Event& e, std::string& out) {
  ModelMetrics& m = metrics.models[job.model->name];
  Job::Part& part = job.parts[p];
  if (e.id >= 0) {
    const double now = e.seconds;  // by the engine's clock: what the step took counts, the way here does not
    double& last = part.last[static_cast<std::size_t>(e.sample)];
    if (last > 0) m.between_tokens.add(now - last);
    else m.first_token.add(seconds_since(job.arrived));
    last = now;
    job.first_token = true;
    ++job.written;
  }
  if (!job.asked.stream || job.task != Task::completion) return;
  AnswerWriter& writer = writer_of(job);
  if (job.asked.prompt_logprobs >= 0) {  // those of the prompt come first, and with the end
    job.held.push_back(e);
    job.held.back().read = static_cast<Dim>(p);
    return;
  }
  if ((job.asked.echo || job.asked.return_token_ids) && job.written == 1 && e.id >= 0)
    for (std::size_t i = 0; i < job.parts.size(); ++i)
      writer.prompt(out, static_cast<int>(i), job.parts[i].prompt_text, job.parts[i].prompt, {});
  const Usage so_far{.prompt_tokens = static_cast<Dim>(part.prompt.size()),
                     .completion_tokens = job.written,
                     .cached_tokens = part.reused};
  writer.token(out, static_cast<int>(p) * job.asked.generate.samples + e.sample, e.text, e.id,
               job.asked.generate.logprobs ? &e.choice : nullptr, {.usage = &so_far});
}

void Service::State::take_done(const JobPtr& pointer, std::size_t p, const Event& e, std::string& out) {
  Job& job = *pointer;
  Job::Part& part = job.parts[p];
  const bool compares = job.compare && job.compare->reads();  // both answers are there
  part.done = true;
  if (!compares) part.answer = e.answer;
  --job.open_parts;
  ModelMetrics& m = metrics.models[job.model->name];
  if (e.error) {
    ++m.finished["error"];
    fail(pointer, api_error(e.error));
    return;
  }
  if (compares) {
    if (job.open_parts == 0) finish_completion(pointer, out);
    return;
  }
  const GenerateTimes& t = e.answer->times;
  m.queue.add(t.queue_seconds);
  m.prefill.add(t.prompt_seconds);
  if (job.task == Task::completion) m.decode.add(t.decode_seconds);
  for (const Generated& g : e.answer->samples)
    ++m.finished[g.finish == Finish::stop ? "stop" : g.finish == Finish::length ? "length" : "cancelled"];
  if (job.open_parts > 0) return;
  m.whole.add(seconds_since(job.arrived));
  if (job.task == Task::completion) finish_completion(pointer, out);
  else if (job.task == Task::look) finish_look(pointer);
  else finish_vectors(pointer);
}

// ------------------------------------------------------------------------------------------------- replies
Usage Service::State::usage(const Job& job) const {
  Usage u;
  for (const Job::Part& p : job.parts) {
    u.prompt_tokens += static_cast<Dim>(p.prompt.size());
    if (!p.answer) continue;
    u.cached_tokens += p.answer->times.reused_tokens;
    for (const Generated& g : p.answer->samples) u.completion_tokens += static_cast<Dim>(g.ids.size());
  }
  return u;
}

std::vector<ReplyChoice> Service::State::choices(const Job& job) const {
  std::vector<ReplyChoice> out;
  for (const Job::Part& p : job.parts)
    for (const Generated& g : p.answer->samples)
      out.push_back({.index = static_cast<int>(out.size()),
                     .text = g.text,
                     .finish = g.finish,
                     .finish_detail = finish_detail(job, g),
                     .hash = g.hash,
                     .ids = g.ids,
                     .tokens = g.tokens,
                     .prompt_text = p.prompt_text,
                     .prompt_ids = p.prompt,
                     .prompt = p.answer->prompt,
                     .stop = stop_of(job, g)});
  return out;
}

RaptInfo Service::State::info(const Job& job) const {
  RaptInfo i{.seed = job.asked.generate.sampler.seed, .sampling = &job.asked.generate.sampler};
  for (const Job::Part& p : job.parts) {
    i.paused += p.answer->pauses;
    i.reused += p.answer->times.reused_tokens;
    if (job.asked.endless.window > 0)
      for (const Generated& g : p.answer->samples)
        i.dropped = std::max(i.dropped, static_cast<Dim>(p.prompt.size() + g.ids.size()) -
                                            job.asked.endless.window - job.asked.endless.keep);
  }
  const auto add = [&](const std::string& members) { i.more += concat(i.more.empty() ? "" : ",", members); };
  if (job.look && job.shows_look) add(job.look->json(i.reused));
  if (job.again && !job.asked.stream) add(replay_text(job));
  if (job.compare) add(job.compare->json());
  return i;
}

void Service::State::finish_completion(const JobPtr& pointer, std::string& out) {
  Job& job = *pointer;
  if (job.compare && job.deadline.empty() && (!job.compare->reads() || job.compare->left()))
    return read_compared(pointer);
  if (job.look) {
    ModelMetrics& m = metrics.models[job.model->name];
    const auto& heads = job.look->heads();
    m.layers.resize(std::max(m.layers.size(), heads.size()));
    for (std::size_t l = 0; l < heads.size(); ++l) {
      AnswerLook::Sums all;
      for (const AnswerLook::Sums& s : heads[l]) all.add(s);
      if (all.rows == 0) continue;
      ModelMetrics::Layer& layer = m.layers[l];
      // Of the latest: what was measured long ago fades.
      const double share = layer.rows == 0 ? 1 : 0.1;
      layer.entropy += share * (all.entropy / all.rows - layer.entropy);
      layer.sink += share * (all.sink / all.rows - layer.sink);
      layer.rows += static_cast<std::uint64_t>(all.rows);
    }
  }
  if (job.edits_touched) {
    try {
      job.edits_touched();
    } catch (const Error& e) {
      fail(pointer, ApiError(400, "invalid_value", concat("rapt.edits: ", e.what()), "rapt.edits"));
      return;
    }
  }
  if (job.compare && !job.deadline.empty()) {
    fail(pointer, ApiError(504, "deadline", "the comparison took longer than a request may"));
    return;
  }
  if (!job.deadline.empty() && job.written == 0) {
    fail(pointer,
         ApiError(job.deadline == "queue" ? 503 : 504, job.deadline == "queue" ? "queue_timeout" : "deadline",
                  concat("the request was not begun or answered in time (", job.deadline, ")"), "",
                  job.deadline == "queue" ? 5 : 0));
    return;
  }
  const Usage u = usage(job);
  const RaptInfo i = info(job);
  const std::vector<ReplyChoice> all = choices(job);
  const GenerateTimes& times = job.parts[0].answer->times;
  if (job.keeps) keep(job);
  if (job.again) ++metrics.replays[job.edited ? "edited" : replay_equal(job) ? "equal" : "different"];
  AnswerWriter& writer = writer_of(job);
  if (!job.asked.stream) {
    if (job.keeps) {
      const std::lock_guard hold(lock);
      job.headers.push_back({"rapt-replay", job.head.id});
    }
    reply(pointer, 200, writer.whole(all, u, &times, i),
          finish_reason(all.empty() ? Finish::stop : all[0].finish));
    return;
  }
  if (job.asked.prompt_logprobs >= 0 ||
      ((job.asked.echo || job.asked.return_token_ids) && job.written == 0)) {
    for (std::size_t p = 0; p < job.parts.size(); ++p)
      writer.prompt(out, static_cast<int>(p), job.parts[p].prompt_text, job.parts[p].prompt,
                    job.parts[p].answer->prompt);
    for (const Event& e : job.held)
      writer.token(out, static_cast<int>(e.read) * job.asked.generate.samples + e.sample, e.text, e.id,
                   job.asked.generate.logprobs ? &e.choice : nullptr, {});
  }
  for (const ReplyChoice& c : all) {
    RaptInfo own = i;
    if (job.again) own.more += concat(own.more.empty() ? "" : ",", replay_text(job, c.index));
    writer.finish(out, c, own, {.times = &times});
  }
  writer.done(out, u, &times);
  log(job, 200, finish_reason(all.empty() ? Finish::stop : all[0].finish));
}

// The pass is over; what follows from it is another thread's.
void Service::State::finish_look(const JobPtr& job) {
  if (!job->deadline.empty() || job->parts[0].answer->samples.empty() ||
      job->parts[0].answer->samples[0].finish == Finish::cancelled) {
    fail(job, ApiError(504, "deadline", "the request took longer than it may"));
    return;
  }
  push(looking, [this, job] {
    if (job->gone) return;
    try {
      const GenerateTimes& t = job->parts[0].answer->times;
      std::string text = job->text_look->reply(t.queue_seconds, t.prompt_seconds, job->gone);
      server->post([this, job, text = std::move(text)] { reply(job, 200, text); });
    } catch (const Cancelled&) {
    } catch (...) {
      server->post([this, job, error = api_error(std::current_exception(), true)] { fail(job, error); });
    }
  });
}

void Service::State::finish_vectors(const JobPtr& pointer) {
  Job& job = *pointer;
  const Usage u = usage(job);
  std::vector<std::vector<float>> vectors;
  for (Job::Part& p : job.parts) vectors.push_back(std::move(p.vector));
  switch (job.task) {
    case Task::embeddings: {
      const auto width = static_cast<Dim>(vectors[0].size());
      if (job.embeddings.dimensions > width) {
        fail(pointer, ApiError(400, "invalid_value",
                               concat("dimensions: ", job.embeddings.dimensions,
                                      " are asked for, the model gives ", width),
                               "dimensions"));
        return;
      }
      if (job.embeddings.dimensions > 0)
        for (std::vector<float>& v : vectors) {
          v.resize(static_cast<std::size_t>(job.embeddings.dimensions));
          double squares = 0;
          for (const float x : v) squares += static_cast<double>(x) * x;
          for (float& x : v) x = static_cast<float>(x / std::max(std::sqrt(squares), 1e-12));
        }
      reply(pointer, 200,
            vendor_of(job.route) == Vendor::ollama
                ? ollama_embed_reply(job.model_name(), vectors, u.prompt_tokens, seconds_since(job.arrived))
                : embeddings_reply(job.model_name(), vectors, job.embeddings.base64, u.prompt_tokens));
      return;
    }
    case Task::rerank: {
      const auto cosine = [&](const std::vector<float>& a, const std::vector<float>& b) {
        double ab = 0, aa = 0, bb = 0;
        for (std::size_t i = 0; i < a.size(); ++i)
          ab += double(a[i]) * b[i], aa += double(a[i]) * a[i], bb += double(b[i]) * b[i];
        return ab / std::max(std::sqrt(aa * bb), 1e-24);
      };
      std::vector<RerankScore> scores;
      for (std::size_t i = 1; i < vectors.size(); ++i)
        scores.push_back({static_cast<int>(i) - 1, cosine(vectors[0], vectors[i])});
      reply(pointer, 200, rerank_reply(job.rerank, job.model_name(), std::move(scores), u.prompt_tokens));
      return;
    }
    default: {
      std::vector<ClassScores> items;
      for (std::vector<float>& v : vectors) {
        ClassScores c;
        for (std::size_t i = 0; i < v.size(); ++i) c.labels.push_back(class_name(job.model->checkpoint, i));
        const auto best = std::max_element(v.begin(), v.end()) - v.begin();
        c.label = c.labels[static_cast<std::size_t>(best)];
        c.probabilities = std::move(v);
        items.push_back(std::move(c));
      }
      reply(pointer, 200, classify_reply(job.model_name(), items, u.prompt_tokens));
    }
  }
}

}  // namespace rapt::server
