// SPDX-License-Identifier: Apache-2.0
// Streams that outlive their reader: what was sent is kept in a ring, and whoever knows the id reads on from
// any event that is still there. Runs on the server's thread.
#include <algorithm>
#include <charconv>

#include "rapt/apps/server/service_state.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

constexpr std::size_t kMostRings = 32, kMostRingsOfOne = 8;
constexpr std::size_t kRingBytes = 1 << 20, kEventOverhead = 64;
constexpr std::ptrdiff_t kMostRunReaders = 8;  // of a key
constexpr std::size_t kRunUnsent = 256 << 10;  // bytes
constexpr double kKept = 60;  // seconds without a reader, and after the end

// The number behind ?from=; 0 where there is none.
Dim from_of(std::string_view query) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (!one.starts_with("from=")) continue;
    Dim n = 0;
    const auto [last, error] = std::from_chars(one.data() + 5, one.data() + one.size(), n);
    if (error != std::errc{} || last != one.data() + one.size() || n < 0)
      throw ApiError(400, "invalid_value", "'from': the number of an event, 0 or more, is wanted", "from");
    return n;
  }
  return 0;
}

}  // namespace

void Ring::add(std::string_view wire) {
  while (!wire.empty()) {
    const std::size_t end = std::min(wire.find("\n\n"), wire.size() - 2) + 2;
    if (!wire.starts_with(":")) {
      events.emplace_back(wire.substr(0, end));
      bytes += end + kEventOverhead;
    }
    wire.remove_prefix(end);
  }
  while (bytes > kRingBytes && !events.empty()) {
    bytes -= events.front().size() + kEventOverhead;
    events.pop_front();
    ++first;
  }
}

bool Service::State::attached(const Job& job) const { return jobs.contains(job.exchange); }

void Service::State::begin_stream(const JobPtr& job) {
  if (job->streams || !attached(*job)) return;
  job->streams = true;
  std::vector<http::Header> headers = stream_headers(*job);
  if (job->asked.resume && open_ring(job)) headers.push_back({"rapt-stream", job->ring->id});
  if (job->keeps) headers.push_back({"rapt-replay", job->head.id});
  server->begin(job->exchange, 200, headers);
}

// Where there is room for no more, the oldest that has ended goes; else the stream is one like any other.
bool Service::State::open_ring(const JobPtr& job) {
  const auto full = [&](bool own) {
    const auto n = std::count_if(rings.begin(), rings.end(),
                                 [&](const auto& r) { return !own || r.second->client == job->client; });
    return static_cast<std::size_t>(n) >= (own ? kMostRingsOfOne : kMostRings);
  };
  for (const bool own : {true, false}) {
    if (!full(own)) continue;
    auto oldest = rings.end();
    for (auto it = rings.begin(); it != rings.end(); ++it)
      if (it->second->ended && (!own || it->second->client == job->client) &&
          (oldest == rings.end() || it->second->since < oldest->second->since))
        oldest = it;
    if (oldest == rings.end()) return false;
    rings.erase(oldest);
  }
  job->ring = std::make_shared<Ring>();
  job->ring->id = random_id();
  job->ring->key = job->key;
  job->ring->client = job->client;
  job->ring->job = job;
  rings.emplace(job->ring->id, job->ring);
  return true;
}

void Service::State::close_ring(Job& job) {
  if (!job.ring) return;
  job.ring->ended = true;
  job.ring->since = Clock::now();
  job.ring->job.reset();  // the caller holds the job
  job.ring.reset();
}

// Its reader has left; it goes on.
void Service::State::detach(const JobPtr& job) {
  jobs.erase(job->exchange);
  job->exchange = 0;
  job->ring->since = Clock::now();
  detached.insert(job);
  go_on(*job);
}

// Answers that waited for a slow reader.
void Service::State::go_on(Job& job) {
  job.unsent = 0;
  for (Job::Part& p : job.parts)
    if (p.suspended) {
      p.suspended = false;
      job.model->engine->suspend(p.id, false);
    }
  const std::lock_guard hold(lock);
  engine_signal = true;
  engine_wakes.notify_one();
}

void Service::State::stream(http::Exchange exchange, const http::Request& request) {
  const std::string_view path = request.path;
  const auto it = rings.find(std::string(path.substr(path.find("/stream/") + 8)));
  // Another's is not there.
  if (it == rings.end() || it->second->key != access.key_of(request).value_or(0))
    throw ApiError(404, "stream_not_found", "there is no such stream, or it ended more than a minute ago");
  const std::shared_ptr<Ring> ring = it->second;
  const JobPtr job = ring->job;
  if (request.method == "DELETE") {
    if (job) {
      const std::lock_guard hold(lock);
      for (const Job::Part& p : job->parts)
        if (p.id != 0 && !p.done) job->model->engine->cancel(p.id);
      engine_signal = true;
      engine_wakes.notify_one();
    }
    return reply(exchange, request, {.status = 204});
  }
  const Dim from = from_of(request.query), next = ring->first + static_cast<Dim>(ring->events.size());
  if (from > next)
    throw ApiError(400, "invalid_value", concat("'from': it is ", from, "; the stream has ", next, " events"),
                   "from");
  if (from < ring->first)
    throw ApiError(
        410, "stream_trimmed",
        concat("event ", from, " is kept no more; the first that is there is number ", ring->first), "from");
  std::vector<http::Header> headers = {{"Content-Type", "text/event-stream; charset=utf-8"},
                                       {"Cache-Control", "no-cache"}};
  if (request.method == "HEAD") return reply(exchange, request, {.headers = std::move(headers)});
  headers.push_back({"X-Accel-Buffering", "no"});
  headers.push_back({"X-Content-Type-Options", "nosniff"});
  headers.push_back({"rapt-stream", ring->id});
  for (http::Header& h : access.cors(request)) headers.push_back(std::move(h));
  ++metrics.replies[{"/stream/{id}", 200}];
  if (job) {  // a new reader takes over
    if (const http::Exchange old = job->exchange; jobs.erase(old) > 0) server->end(old);
    detached.erase(job);
    job->exchange = exchange;
    jobs.emplace(exchange, job);
    go_on(*job);
  }
  server->begin(exchange, 200, headers);
  std::string out;
  for (Dim i = from; i < next; ++i) out += ring->events[static_cast<std::size_t>(i - ring->first)];
  const std::size_t unsent = server->write(exchange, out);
  if (job) job->unsent = unsent, job->wrote = Clock::now();
  else server->end(exchange);
}

void Service::State::sweep_streams() {
  const std::vector<JobPtr> left(detached.begin(), detached.end());
  for (const JobPtr& job : left)
    if (draining > 0 || seconds_since(job->ring->since) > kKept) {
      const std::shared_ptr<Ring> ring = job->ring;
      ++metrics.models[job->model->name].cancelled[job->first_token ? "writing" : "reading"];
      cancel(job);
      log(*job, 499, "client left");
      forget(job);
      rings.erase(ring->id);
    }
  std::erase_if(rings,
                [](const auto& r) { return r.second->ended && seconds_since(r.second->since) > kKept; });
}

// ----------------------------------------------------------------------------------- runs of the workshop
void Service::State::run_events(http::Exchange exchange, const http::Request& request) {
  const std::size_t key = access.key_of(request).value_or(0), at = request.path.find("/runs/");
  const std::string id =
      at == std::string::npos ? workshop->newest("train", key) : request.path.substr(at + 6);
  if (id.empty()) throw ApiError(404, "run_not_found", "no training was begun here yet");
  if (request.method == "DELETE") {
    workshop->stop(id, key);
    return reply(exchange, request, {.status = 204});
  }
  const Dim from = from_of(request.query);
  const Workshop::Part part = workshop->events(id, key, from);
  std::vector<http::Header> headers = {{"Cache-Control", "no-cache"}};
  if (request.query.find("once=1") != std::string::npos) {
    std::string out = "[";
    for (const std::string& event : part.events) out += concat(out.size() > 1 ? "," : "", event);
    headers.push_back({"Content-Type", "application/json"});
    return reply(exchange, request, {.headers = std::move(headers), .body = out + "]"});
  }
  const auto own = std::count_if(run_readers.begin(), run_readers.end(),
                                 [&](const auto& r) { return r.second.key == key; });
  if (own >= kMostRunReaders)
    throw ApiError(429, "queue_full", concat("busy: you follow ", own, " runs already"), "", 5);
  headers.push_back({"Content-Type", "text/event-stream; charset=utf-8"});
  if (request.method == "HEAD") return reply(exchange, request, {.headers = std::move(headers)});
  headers.push_back({"X-Accel-Buffering", "no"});
  headers.push_back({"X-Content-Type-Options", "nosniff"});
  for (http::Header& h : access.cors(request)) headers.push_back(std::move(h));
  ++metrics.replies[{"/runs/{id}", 200}];
  server->begin(exchange, 200, headers);
  run_readers[exchange] = {id, key, from};
  tell_run_readers();
}

// Who is behind waits: the events are kept (and where the oldest are gone, it goes on with what is there).
void Service::State::tell_run_readers() {
  for (auto it = run_readers.begin(); it != run_readers.end();) {
    const http::Exchange exchange = it->first;
    RunReader& r = it->second;
    bool over = draining > 0;
    if (!over && server->write(exchange, "") < kRunUnsent) {
      try {
        const Workshop::Part part = workshop->events(r.id, r.key, r.next, kRunUnsent);
        std::string out;
        for (const std::string& event : part.events) out += sse(event);
        r.next = part.next;
        over = part.ended;
        if (out.empty() && !over && seconds_since(r.wrote) > options.ping_seconds) out = kSsePing;
        if (!out.empty()) server->write(exchange, out), r.wrote = Clock::now();
      } catch (const ApiError&) {  // kept no more
        over = true;
      }
    }
    if (!over) {
      ++it;
      continue;
    }
    it = run_readers.erase(it);
    server->end(exchange);
  }
}

std::string Service::State::streams_text() const {
  std::size_t bytes = 0;
  for (const auto& [id, ring] : rings) bytes += ring->bytes;
  return concat(",\"streams\":{\"detached\":", detached.size(), ",\"kept\":", rings.size(),
                ",\"bytes\":", bytes, "}");
}

}  // namespace rapt::server
