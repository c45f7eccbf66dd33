// SPDX-License-Identifier: Apache-2.0
// Routes, who may come in, deadlines, and what the server tells about itself. Runs on the server's thread.
#include "rapt/apps/server/service.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "rapt/apps/server/service_state.h"
#include "rapt/apps/server/workshop_parts.h"
#include "rapt/apps/server/workshop_recipe.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

constexpr double kSweep = 0.25;           // seconds between two looks at deadlines
constexpr std::size_t kMostWork = 512;    // requests that wait for a worker
constexpr std::ptrdiff_t kMostMonitorsOfOne = 4;
constexpr std::size_t kMostMonitors = 16, kMonitorUnsent = 64 << 10, kMostToldRequests = 64;

struct Path {
  std::string_view method, path;  // without /v1
  bool open = false;              // without a key
  std::optional<Task> task = {};
  Form form = Form::chat;
  bool lab = false;  // with --lab alone
  bool refused = false;  // another server's, of what this one never does
};
constexpr Path kPaths[] = {
    {"GET", "/health", true},
    {"GET", "/ping", true},
    {"GET", "/", true},
    {"GET", "/page/{file}", true},
    {"GET", "/models"},
    {"GET", "/models/{id}"},
    {"GET", "/props"},
    {"GET", "/slots"},
    {"GET", "/limits"},
    {"GET", "/metrics"},
    {"GET", "/openapi.json"},
    {"GET", "/tokenizer_info"},
    {"POST", "/chat/completions", false, Task::completion, Form::chat},
    {"POST", "/completions", false, Task::completion, Form::text},
    {"POST", "/responses", false, Task::completion, Form::responses},
    {"POST", "/responses/input_tokens", false, Task::input_tokens, Form::responses},
    {"POST", "/messages", false, Task::completion, Form::messages},
    {"POST", "/messages/count_tokens", false, Task::input_tokens, Form::messages},
    {"GET", "/api/version"},
    {"GET", "/api/tags"},
    {"GET", "/api/ps"},
    {"POST", "/api/show", false, Task::show, Form::ollama_chat},
    {"POST", "/api/chat", false, Task::completion, Form::ollama_chat},
    {"POST", "/api/generate", false, Task::completion, Form::ollama_generate},
    {"POST", "/api/embed", false, Task::embeddings, Form::ollama_chat},
    {"POST", "/api/pull", false, {}, Form::ollama_chat, false, true},
    {"POST", "/api/push", false, {}, Form::ollama_chat, false, true},
    {"POST", "/api/create", false, {}, Form::ollama_chat, false, true},
    {"POST", "/api/copy", false, {}, Form::ollama_chat, false, true},
    {"DELETE", "/api/delete", false, {}, Form::ollama_chat, false, true},
    {"POST", "/api/blobs/{digest}", false, {}, Form::ollama_chat, false, true},
    {"GET", "/api/blobs/{digest}", false, {}, Form::ollama_chat, false, true},
    {"POST", "/embeddings", false, Task::embeddings},
    {"POST", "/rerank", false, Task::rerank},
    {"POST", "/reranking", false, Task::rerank},
    {"POST", "/classify", false, Task::classify},
    {"POST", "/look", false, Task::look},
    {"POST", "/replay/{id}", false, Task::completion},
    {"GET", "/replay/{id}"},
    {"GET", "/monitor"},
    {"GET", "/stream/{id}"},
    {"DELETE", "/stream/{id}"},
    {"POST", "/tokenize", false, Task::tokenize},
    {"POST", "/detokenize", false, Task::detokenize},
    {"POST", "/apply-template", false, Task::apply_template},
    {"POST", "/chat/completions/input_tokens", false, Task::input_tokens},
    {"POST", "/train/run", false, Task::workshop, Form::chat, true},
    {"GET", "/recipe", false, {}, Form::chat, true},
    {"POST", "/recipe/show", false, Task::workshop, Form::chat, true},
    {"POST", "/recipe/diff", false, Task::workshop, Form::chat, true},
    {"GET", "/train/events", false, {}, Form::chat, true},
    {"GET", "/lab", false, {}, Form::chat, true},
    {"GET", "/lab/questions/{id}", false, {}, Form::chat, true},
    {"GET", "/lab/experiments/{name}", false, {}, Form::chat, true},
    {"POST", "/lab/run", false, Task::workshop, Form::chat, true},
    {"GET", "/runs", false, {}, Form::chat, true},
    {"GET", "/runs/{id}", false, {}, Form::chat, true},
    {"DELETE", "/runs/{id}", false, {}, Form::chat, true},
};

std::string_view without_version(std::string_view path) {
  return path.starts_with("/v1/") ? path.substr(3) : path;
}

// A path as the table has it.
std::string_view pattern_of(std::string_view path) {
  if (path.starts_with("/page/")) return "/page/{file}";
  path = without_version(path);
  if (path.starts_with("/models/") && path.size() > 8) return "/models/{id}";
  if (path.starts_with("/stream/") && path.size() > 8) return "/stream/{id}";
  if (path.starts_with("/replay/") && path.size() > 8) return "/replay/{id}";
  if (path.starts_with("/runs/") && path.size() > 6) return "/runs/{id}";
  if (path.starts_with("/api/blobs/") && path.size() > 11) return "/api/blobs/{digest}";
  if (path.starts_with("/lab/questions/") && path.size() > 15) return "/lab/questions/{id}";
  if (path.starts_with("/lab/experiments/") && path.size() > 17) return "/lab/experiments/{name}";
  return path;
}

const Path* find_path(std::string_view path, std::string_view method, bool& known) {
  path = pattern_of(path);
  known = false;
  const Path* found = nullptr;
  for (const Path& p : kPaths)
    if (p.path == path) {
      known = true;
      if (p.method == method || (p.method == "GET" && method == "HEAD")) found = &p;
    }
  return found;
}

// A page of another site can send text without asking first, JSON it cannot. Ollama's clients send no type at
// all; a page's request would have an origin.
bool is_json(const http::Request& request) {
  const std::string* type = request.find("content-type");
  if (!type)
    return vendor_of(request.path) == Vendor::ollama && !request.find("origin") &&
           !request.find("sec-fetch-site");
  std::string lower;
  for (const char c : type->substr(0, type->find(';')))
    if (c != ' ') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower == "application/json";
}

// A path as the metrics name it: there are as many names as routes, whatever strangers ask for.
std::string label_of(const http::Request& request, bool known) {
  if (!known) return "other";
  const std::string_view pattern = pattern_of(request.path);
  return pattern.ends_with('}') ? std::string(pattern) : request.path;
}

std::string id_of(const http::Request& request) {
  if (const std::string* id = request.find("x-request-id"))
    if (!id->empty() && id->size() <= 128 &&
        std::all_of(id->begin(), id->end(), [](char c) { return c > 0x20 && c < 0x7f; }))
      return *id;
  return "req-" + random_id();
}

std::string quote(std::string_view text) { return in_quotes(text); }

}  // namespace

std::string random_id() {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  thread_local std::random_device device;
  std::string out;
  for (int i = 0; i < 24; ++i) out += kLetters[device() % 62];  // 142 bits
  return out;
}

// ------------------------------------------------------------------------------------------------- service
Service::State::State(std::vector<std::unique_ptr<ServedModel>> m, ServiceOptions o)
    : models(std::move(m)), options(std::move(o)), access(options.access), status(models.size()) {
  for (const auto& model : models) metrics.models[model->name];
  std::vector<Route> there;
  for (const Route& route : protocol_routes()) {
    bool known = false;
    const Path* path = find_path(route.path, route.method, known);
    if (options.workshop.on || !path || !path->lab) there.push_back(route);
  }
  openapi = openapi_json(there, options.version);
  if (options.page) page.emplace();
  if (options.workshop.on) workshop.emplace(options.workshop);
  if (!options.replay_log.empty()) read_replay_log();
}

Service::Service(std::vector<std::unique_ptr<ServedModel>> models, ServiceOptions options)
    : state_(std::make_unique<State>(std::move(models), std::move(options))) {}
Service::~Service() { stop(); }

void Service::start(http::Server& server) {
  State& s = *state_;
  s.server = &server;
  for (int i = 0; i < s.options.workers; ++i) s.threads.emplace_back([&s] { s.run_worker(s.work); });
  s.threads.emplace_back([&s] { s.run_worker(s.looking); });
  s.threads.emplace_back([&s] { s.run_engines(); });
  server.post([&s] { s.sweep(); });
}

void Service::drain() {
  state_->draining.fetch_add(1);
  if (state_->server) state_->server->drain();
}

Workshop& Service::workshop() { return state_->workshop.value(); }

void Service::reload() { state_->reload = true; }

void Service::stop() {
  State& s = *state_;
  {
    const std::scoped_lock hold(s.work_lock, s.lock);
    s.quit = true;
  }
  s.work_there.notify_all();
  s.engine_wakes.notify_all();
  for (const auto& [exchange, job] : s.jobs) job->gone = true;  // what workers still do may end
  for (std::thread& t : s.threads) t.join();
  s.threads.clear();
}

// Who may not come in: told at the head, before a body is read.
std::optional<http::Reply> Service::on_head(const http::Request& request) {
  State& s = *state_;
  std::optional<ApiError> error;
  bool known = false;
  const Path* path = find_path(request.path, request.method, known);
  if (!s.access.host_allowed(request))
    error.emplace(
        403, "host_not_allowed",
        "this server does not answer to that name (a page may have led you here); see --allow-host");
  else if (!s.access.origin_allowed(request))
    error.emplace(403, "origin_not_allowed",
                  "pages of that origin may not ask this server; see --allow-origin");
  else if (request.method == "OPTIONS") return s.access.preflight(request);
  else if (!known)
    error.emplace(404, "route_not_found",
                  concat("there is no ", request.path.substr(0, 100), "; /openapi.json lists what there is"));
  else if (!path)
    error.emplace(405, "method_not_allowed", concat(request.path, " does not take ", request.method));
  else if (path->lab && !s.workshop)
    error.emplace(404, "route_not_found",
                  concat(request.path.substr(0, 100), " is there under rapt serve --lab alone"));
  else if (!path->open && !s.access.key_of(request))
    error.emplace(401, "invalid_api_key", "a valid key is needed: Authorization: Bearer KEY");
  else if (path->refused)
    error.emplace(403, "not_allowed",
                  concat(path->path,
                         " is not for strangers: the models here are those that the server was "
                         "started with"));
  else if (request.method == "POST" && !is_json(request))
    error.emplace(415, "invalid_content_type", "the body must be JSON: Content-Type: application/json");
  else if (path->task && s.draining > 0)
    error.emplace(503, "draining", "the server is shutting down; try again in a moment", "", 5);
  if (!error) return {};
  ++s.metrics.refused[error->code];
  ++s.metrics.replies[{label_of(request, known), error->status}];
  const std::string id = id_of(request);
  http::Reply reply = error_reply(*error, vendor_of(request.path), id);
  if (error->status == 405) reply.headers.push_back({"Allow", "GET, POST, HEAD, DELETE, OPTIONS"});
  for (http::Header& h : s.access.cors(request)) reply.headers.push_back(std::move(h));
  reply.headers.push_back({"x-request-id", id});
  return reply;
}

http::Reply Service::on_refused(int status, std::string_view why, std::string_view path) {
  State& s = *state_;
  ++s.metrics.refused[concat("http_", status)];
  return error_reply(
      ApiError(status, status == 413 ? "request_too_large" : "invalid_request", std::string(why)),
      vendor_of(path), "req-" + random_id());
}

void Service::on_request(http::Exchange exchange, http::Request request) {
  state_->route(exchange, std::move(request));
}

void Service::on_gone(http::Exchange exchange) {
  State& s = *state_;
  s.monitors.erase(exchange);
  s.run_readers.erase(exchange);
  const auto it = s.jobs.find(exchange);
  if (it == s.jobs.end()) return;
  const JobPtr job = it->second;
  if (job->ring && s.draining == 0) return s.detach(job);
  const ServedModel* model = nullptr;
  {
    const std::lock_guard hold(s.lock);
    model = job->model;
  }
  if (model)
    ++s.metrics.models[model->name].cancelled[job->first_token ? "writing"
                                              : job->begun     ? "reading"
                                                               : "waiting"];
  s.cancel(job);
  s.log(*job, 499, "client left");
  s.forget(job);
}

void Service::on_room(http::Exchange exchange) {
  State& s = *state_;
  const auto it = s.jobs.find(exchange);
  if (it == s.jobs.end()) return;
  s.go_on(*it->second);
}

// -------------------------------------------------------------------------------------------------- routes
void Service::State::route(http::Exchange exchange, http::Request request) {
  bool known = false;
  const Path* path = find_path(request.path, request.method, known);
  if (!path)
    return server->reply(exchange, error_reply(ApiError(404, "route_not_found", "there is no such route")));
  if (path->task)
    return accept(exchange, std::move(request), *path->task, path->form, std::string(path->path));
  answer_now(exchange, request, path->path);
}

void Service::State::reply(http::Exchange exchange, const http::Request& request, http::Reply r) {
  ++metrics.replies[{label_of(request, true), r.status}];
  for (http::Header& h : access.cors(request)) r.headers.push_back(std::move(h));
  r.headers.push_back({"x-request-id", id_of(request)});
  r.headers.push_back({"X-Content-Type-Options", "nosniff"});
  server->reply(exchange, r);
}

bool Service::State::answer_now(http::Exchange exchange, const http::Request& request,
                                std::string_view path) {
  const auto json = [&](std::string body) {
    reply(exchange, request, {.headers = {{"Content-Type", "application/json"}}, .body = std::move(body)});
  };
  try {
    // Which model a question without a body is about: ?model=NAME, else the first.
    ServedModel* model = models.empty() ? nullptr : models[0].get();
    if (const std::size_t at = request.query.find("model="); at != std::string::npos)
      model = &find_model(request.query.substr(at + 6, request.query.find('&', at) - at - 6));
    if (path == "/health" || path == "/ping") {
      const bool well = draining == 0;
      reply(exchange, request,
            {.status = well ? 200 : 503,
             .headers = {{"Content-Type", "application/json"}},
             .body = well ? R"({"status":"ok"})" : R"({"status":"draining"})"});
    } else if (path == "/page/{file}" || (path == "/" && page)) {
      if (!page) throw ApiError(404, "route_not_found", "this server has no page (--no-page)");
      reply(exchange, request, page->reply(request));
    } else if (path == "/") {
      reply(exchange, request,
            {.headers = {{"Content-Type", "text/plain; charset=utf-8"},
                         {"Content-Security-Policy", "default-src 'none'"}},
             .body = concat(options.version,
                            "\n\nAn OpenAI-compatible server. Point a client at /v1; "
                            "/openapi.json lists the routes.\n")});
    } else if (path == "/models") {
      std::vector<ModelCard> cards;
      for (const auto& m : models) {
        cards.push_back(m->card);
        for (const NamedAdapter& a : m->adapters) cards.push_back(a.card);
      }
      json(models_reply(cards));
    } else if (path == "/models/{id}") {
      std::string name(without_version(request.path).substr(8));
      for (std::size_t at; (at = name.find("%2F")) != std::string::npos;) name.replace(at, 3, "/");
      const ModelCard* card = nullptr;
      for (const auto& m : models) {
        if (m->name == name) card = &m->card;
        for (const NamedAdapter& a : m->adapters)
          if (!card && a.name == name) card = &a.card;
      }
      if (!card) throw model_error(name, names());
      json(model_reply(*card));
    } else if (path == "/props") {
      json(model ? props(*model)
                 : concat("{\"watch\":", workshop && workshop->options().watch ? "true" : "false",
                          ",\"lab\":null,\"build_info\":", quote(options.version), "}"));
    } else if (path == "/slots") {
      if (model && request.query.find("fail_on_no_slot=1") != std::string::npos &&
          status[index_of(*model)].rows >= model->rows)
        throw ApiError(503, "queue_full", "no slot is free", "", 1);
      json(slots());
    } else if (path == "/limits") {
      json(limits());
    } else if (path == "/monitor") {
      watch_monitor(exchange, request);
    } else if (path == "/stream/{id}") {
      stream(exchange, request);
    } else if (path == "/replay/{id}") {
      json(record_reply(*find_replay(request.path, access.key_of(request).value_or(0)),
                        request.query.find("text=1") != std::string::npos));
    } else if (path.starts_with("/lab")) {
      json(lab_reply(path, request.path.substr(request.path.rfind('/') + 1)));
    } else if (path == "/runs") {
      json(workshop->list(access.key_of(request).value_or(0)));
    } else if (path == "/runs/{id}" || path == "/train/events") {
      run_events(exchange, request);
    } else if (path == "/recipe") {
      json(recipe_catalogue(request.query.find("lang=zh") != std::string::npos));
    } else if (path == "/api/version") {
      const std::string_view line = options.version;  // "rapt 0.2.0 (…)"
      const std::size_t from = std::min(line.find(' '), line.size() - 1) + 1;
      json(concat("{\"version\":", in_quotes(line.substr(from, line.find(' ', from) - from)), "}"));
    } else if (path == "/api/tags" || path == "/api/ps") {
      std::vector<OllamaModel> list;
      for (const auto& m : models) list.push_back(ollama_model(*m));
      json(path == "/api/tags" ? ollama_tags_reply(list) : ollama_ps_reply(list));
    } else if (path == "/openapi.json") {
      json(openapi);
    } else if (path == "/tokenizer_info") {
      if (!model) throw model_error("", "none");
      const Tokenizer& t = *model->checkpoint.tokenizer;
      const auto token = [&](std::int32_t id) {
        return id >= 0 ? quote(t.text_of(id)) : std::string("null");
      };
      json(concat("{\"tokenizer_class\":", quote(t.name), ",\"bos_token\":", token(t.bos), ",\"eos_token\":",
                  token(t.eos >= 0                       ? t.eos
                        : model->engine->stops().empty() ? -1
                                                         : model->engine->stops()[0]),
                  ",\"pad_token\":", token(t.pad), ",\"unk_token\":", token(t.unk),
                  ",\"vocab_size\":", t.size(), ",\"chat_template\":",
                  model->template_source.empty() ? "null" : quote(model->template_source), "}"));
    } else {
      reply(exchange, request,
            {.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
             .body = metrics_text()});
    }
  } catch (...) {
    reply(exchange, request,
          error_reply(api_error(std::current_exception()), vendor_of(request.path), id_of(request)));
  }
  return true;
}

void Service::State::accept(http::Exchange exchange, http::Request request, Task task, Form form,
                            std::string route) {
  const auto job = std::make_shared<Job>();
  job->exchange = exchange;
  job->task = task;
  job->form = form;
  job->route = std::move(route);
  job->request_id = id_of(request);
  job->headers = access.cors(request);
  job->headers.push_back({"x-request-id", job->request_id});
  if (form == Form::messages) job->headers.push_back({"request-id", job->request_id});
  job->headers.push_back({"X-Content-Type-Options", "nosniff"});
  job->key = access.key_of(request).value_or(0);
  job->client = access.keyed() ? concat("key ", job->key) : request.peer;
  job->seconds = options.request_seconds;
  if (const std::string* asked = request.find("x-request-timeout")) {
    double seconds = 0;
    const auto [end, error] = std::from_chars(asked->data(), asked->data() + asked->size(), seconds);
    if (error == std::errc{} && seconds > 0) job->seconds = std::min(job->seconds, seconds);
  }
  jobs.emplace(exchange, job);
  const bool computes = task == Task::completion || task == Task::embeddings || task == Task::rerank ||
                        task == Task::classify || task == Task::look;
  const Dim tokens = static_cast<Dim>(request.body.size() / 3);
  std::optional<ApiError> refused;
  if (computes && models.empty()) return fail(job, model_error("", "none"));
  {
    const std::lock_guard hold(lock);
    if (computes && waiting > 0 && waiting + 1 > options.most_waiting)
      refused.emplace(429, "queue_full", concat("busy: ", waiting, " answers wait already; try again later"),
                      "", std::max(1.0, status.empty() ? 1.0 : models[0]->engine->estimate_wait(tokens)));
    else if (computes && waiting > 0 && waiting_tokens + tokens > options.most_waiting_tokens)
      refused.emplace(429, "queue_full",
                      concat("busy: ", waiting_tokens, " tokens of prompts wait already; try again later"),
                      "", std::max(1.0, models[0]->engine->estimate_wait(tokens)));
    else if (computes) job->counted = 1, job->counted_tokens = tokens, ++waiting, waiting_tokens += tokens;
  }
  if (!refused) {
    const std::lock_guard hold(work_lock);
    if (work.size() >= kMostWork)
      refused.emplace(429, "queue_full", "busy: too many requests wait to be read", "", 1);
  }
  if (refused) return fail(job, *refused);
  push([this, job, request = std::move(request)] { prepare(job, request); });
}

// ------------------------------------------------------------------------------------------- ends of a job
void Service::State::forget(const JobPtr& pointer) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): what is erased may hold the caller's
  const JobPtr job = pointer;
  job->gone = true;
  jobs.erase(job->exchange);
  detached.erase(job);
  close_ring(*job);
  // What the engine still holds of it is counted down when it is done there.
  if (job->open_parts == 0) release(*job, job->counted, job->counted_tokens);
}

void Service::State::cancel(const JobPtr& job) {
  job->gone = true;
  bool any = false;
  {
    const std::lock_guard hold(lock);
    for (const Job::Part& p : job->parts)
      if (p.id != 0 && !p.done) {
        job->model->engine->cancel(p.id);
        any = true;
      }
    engine_signal = true;
  }
  if (any) engine_wakes.notify_one();
}

void Service::State::reply(const JobPtr& job, int code, std::string body, std::string_view finish) {
  if (job->gone || !jobs.contains(job->exchange)) return;
  ++metrics.replies[{job->route, code}];
  http::Reply r{.status = code, .headers = job->headers, .body = std::move(body)};
  r.headers.push_back({"Content-Type", "application/json"});
  server->reply(job->exchange, r);
  log(*job, code, finish);
  forget(job);
}

void Service::State::fail(const JobPtr& job, const ApiError& error) {
  if (job->gone || !(attached(*job) || detached.contains(job))) {
    if (job->open_parts == 0) release(*job, job->counted, job->counted_tokens);
    return;
  }
  ++metrics.refused[error.code.empty() ? concat("status_", error.status) : error.code];
  ++metrics.replies[{job->route, error.status}];
  if (job->streams) {
    const std::string event = writer_of(*job).error(error);
    if (job->ring) job->ring->add(event);
    if (attached(*job)) {
      server->write(job->exchange, event);
      server->end(job->exchange);
    }
  } else {
    http::Reply r = error_reply(error, vendor_of(job->route), job->request_id);
    {
      const std::lock_guard hold(lock);
      r.headers.insert(r.headers.end(), job->headers.begin(), job->headers.end());
    }
    server->reply(job->exchange, r);
  }
  log(*job, error.status, error.code);
  cancel(job);
  forget(job);
}

void Service::State::log(const Job& job, int code, std::string_view finish) {
  if (!options.log) return;
  Dim prompt = 0, reused = 0;
  if (job.begun)
    for (const Job::Part& p : job.parts) {  // before that they are a worker's
      prompt += static_cast<Dim>(p.prompt.size());
      if (p.answer) reused += p.answer->times.reused_tokens;
    }
  options.log(concat("{\"id\":", quote(job.request_id), ",\"route\":", quote(job.route),
                     ",\"model\":", job.model ? quote(job.model_name()) : "null", ",\"key\":", job.key,
                     ",\"status\":", code, ",\"finish\":", quote(finish), ",\"prompt_tokens\":", prompt,
                     ",\"cached_tokens\":", reused, ",\"tokens\":", job.written,
                     ",\"seconds\":", fixed(seconds_since(job.arrived), 3), "}"));
}

// Deadlines, signs of life in silent streams, and the end of the server.
void Service::State::sweep() {
  if (reload.exchange(false)) {
    try {
      server->reload_tls();
    } catch (const Error& e) {  // the old ones stay
      if (options.log) options.log(concat("{\"error\":", quote(e.what()), "}"));
    }
  }
  tell_monitors();
  tell_run_readers();
  sweep_streams();
  std::vector<JobPtr> all(detached.begin(), detached.end());
  for (const auto& [exchange, job] : jobs) all.push_back(job);
  for (const JobPtr& job : all) {
    const double age = seconds_since(job->arrived);
    const char* late =
        age > job->seconds                           ? "deadline"
        : !job->begun && age > options.queue_seconds ? "queue"
        : !job->first_token && job->task == Task::completion && age > options.first_token_seconds
            ? "first_token"
            : nullptr;
    if (late && job->deadline.empty()) {
      job->deadline = late;
      if (job->written == 0) {
        fail(job, std::string_view(late) == "queue"
                      ? ApiError(503, "queue_timeout", "the request waited too long for its turn", "", 5)
                      : ApiError(504, "deadline", "the request took longer than it may"));
        continue;
      }
      // What there is is the answer.
      const std::lock_guard hold(lock);
      for (const Job::Part& p : job->parts)
        if (!p.done) job->model->engine->cancel(p.id);
      engine_signal = true;
      engine_wakes.notify_one();
    }
    if (job->streams && attached(*job) && seconds_since(job->wrote) > options.ping_seconds) {
      job->wrote = Clock::now();
      server->write(job->exchange, writer_of(*job).ping());
    }
  }
  if (draining > 0) {
    if (workshop) workshop->shut();
    if (drain_began == Clock::time_point{}) drain_began = Clock::now();
    if (draining > 1 || seconds_since(drain_began) > options.drain_seconds)
      for (const JobPtr& job : all)
        fail(job, ApiError(503, "draining", "the server is shutting down", "", 5));
    if (jobs.empty()) return server->after(0.2, [this] { server->stop(); }), void();
  }
  server->after(kSweep, [this] { sweep(); });
}

// ------------------------------------------------------------------------------------------------- monitor
void Service::State::watch_monitor(http::Exchange exchange, const http::Request& request) {
  const std::string client =
      access.keyed() ? concat("key ", access.key_of(request).value_or(0)) : request.peer;
  std::vector<http::Header> headers = {{"Cache-Control", "no-cache"}};
  if (request.query.find("once=1") != std::string::npos) {
    headers.push_back({"Content-Type", "application/json"});
    return reply(exchange, request, {.headers = std::move(headers), .body = monitor(client)});
  }
  const auto own = std::count_if(monitors.begin(), monitors.end(),
                                 [&](const auto& m) { return m.second.client == client; });
  if (own >= kMostMonitorsOfOne)
    throw ApiError(429, "queue_full", concat("busy: you watch this server ", own, " times already"), "", 5);
  if (monitors.size() >= kMostMonitors)
    throw ApiError(429, "queue_full", concat("busy: ", monitors.size(), " monitors are open already"), "", 5);
  headers.push_back({"Content-Type", "text/event-stream; charset=utf-8"});
  if (request.method == "HEAD") return reply(exchange, request, {.headers = std::move(headers)});
  headers.push_back({"X-Accel-Buffering", "no"});
  headers.push_back({"X-Content-Type-Options", "nosniff"});
  headers.push_back({"x-request-id", id_of(request)});
  for (http::Header& h : access.cors(request)) headers.push_back(std::move(h));
  ++metrics.replies[{"/monitor", 200}];
  server->begin(exchange, 200, headers);
  monitors[exchange] = {client, server->write(exchange, sse(monitor(client)))};
}

void Service::State::tell_monitors() {
  const auto moment = Clock::now();
  if (moment - taken < std::chrono::milliseconds(450)) return;
  earlier = std::move(latest), taken_earlier = taken, taken = moment;
  latest.clear();
  for (std::size_t i = 0; i < models.size(); ++i)
    latest.push_back({status[i], metrics.models[models[i]->name].step_seconds});
  for (auto it = monitors.begin(); it != monitors.end();) {
    const http::Exchange exchange = it->first;
    Monitor& m = it->second;
    if (draining > 0) {
      it = monitors.erase(it);
      server->end(exchange);
      continue;
    }
    // Who is behind loses moments: what is unsent is all that is kept. An empty write says how much that is.
    m.unsent = server->write(exchange, "");
    if (m.unsent < kMonitorUnsent) m.unsent = server->write(exchange, sse(monitor(m.client)));
    ++it;
  }
}

std::string Service::State::monitor(const std::string& client) const {
  std::string out =
      concat("{\"seconds\":", fixed(seconds_since(started), 3), ",\"connections\":", server->counts().open);
  {
    const std::lock_guard hold(const_cast<std::mutex&>(lock));
    out += concat(",\"waiting\":", waiting, ",\"waiting_tokens\":", waiting_tokens);
  }
  out += concat(",\"draining\":", draining > 0 ? "true" : "false", streams_text(), ",\"refused\":{");
  for (const auto& [code, n] : metrics.refused)
    out += concat(out.back() == '{' ? "" : ",", quote(code), ":", n);
  out += "},\"models\":[";
  for (std::size_t i = 0; i < models.size(); ++i) {
    const ServedModel& m = *models[i];
    const Engine::Status& s = status[i];
    const auto asked = s.prompt_tokens + s.reused_tokens;
    out += concat(
        i > 0 ? "," : "", "{\"id\":", quote(m.name), ",\"running\":", s.running, ",\"waiting\":", s.waiting,
        ",\"paused\":", s.paused, ",\"suspended\":", s.suspended, ",\"rows\":", s.rows,
        ",\"pages\":{\"used\":", s.pages, ",\"shared\":", s.shared_pages,
        ",\"private\":", s.pages - std::min(s.pages, s.shared_pages), ",\"free_bytes\":", s.free_bytes,
        ",\"bytes\":", s.bytes, ",\"budget\":", s.budget, ",\"idle_bytes\":", s.idle_bytes,
        "},\"prefixes\":", s.prefixes, ",\"prefix_hit_rate\":",
        asked > 0 ? fixed(static_cast<double>(s.reused_tokens) / static_cast<double>(asked), 4) : "null",
        ",\"prompt_tokens\":", s.prompt_tokens, ",\"cached_tokens\":", s.reused_tokens,
        ",\"generated_tokens\":", s.decoded_tokens, ",\"draft_tokens\":", s.guessed_tokens,
        ",\"draft_accepted\":", s.right_guesses, ",\"pauses\":", s.pauses, ",\"last\":");
    const double between = std::chrono::duration<double>(taken - taken_earlier).count();
    if (i < earlier.size() && i < latest.size() && between > 0) {
      const Engine::Status &a = earlier[i].status, &b = latest[i].status;
      const auto steps = static_cast<double>(b.passes - a.passes);
      const double all = 1000 * (b.total.all - a.total.all),
                   compute = 1000 * (b.total.compute - a.total.compute),
                   choose = 1000 * (b.total.choose - a.total.choose);
      out += concat(
          "{\"steps\":", b.passes - a.passes, ",\"seconds\":", fixed(between, 3), ",\"tokens_per_second\":",
          fixed(static_cast<double>(b.decoded_tokens - a.decoded_tokens) / between, 1),
          ",\"prompt_tokens_per_second\":",
          fixed(static_cast<double>(b.prompt_tokens - a.prompt_tokens) / between, 1), ",\"step_ms\":");
      if (steps > 0)
        out += concat("{\"all\":", fixed(all / steps, 3), ",\"compute\":", fixed(compute / steps, 3),
                      ",\"choose\":", fixed(choose / steps, 3),
                      ",\"other\":", fixed(std::max(0.0, all - compute - choose) / steps, 3), "}}");
      else out += "null}";
    } else {
      out += "null";
    }
    out += ",\"requests\":[";
    std::size_t told = 0;
    for (const Engine::JobStatus& j : m.engine->jobs()) {
      if (told == kMostToldRequests) break;
      out += concat(told++ > 0 ? "," : "", "{\"id\":", j.id,
                    ",\"yours\":", j.client == client ? "true" : "false", ",\"phase\":", quote(j.phase),
                    ",\"prompt_tokens\":", j.prompt_tokens, ",\"read_tokens\":", j.read_tokens,
                    ",\"reused_tokens\":", j.reused_tokens, ",\"written_tokens\":", j.written_tokens,
                    ",\"pauses\":", j.pauses, ",\"seconds\":", fixed(j.seconds, 3), "}");
    }
    out += "]}";
  }
  return out + "]}";
}

// --------------------------------------------------------------------------------------- about the server
std::size_t Service::State::index_of(const ServedModel& model) const {
  std::size_t i = 0;
  while (models[i].get() != &model) ++i;
  return i;
}

std::string Service::State::props(const ServedModel& m) const {
  const SamplerOptions& s = m.read.sampling;
  const Tokenizer& t = *m.checkpoint.tokenizer;
  const auto token = [&](std::int32_t id) { return id >= 0 ? quote(t.text_of(id)) : std::string("\"\""); };
  return concat("{\"default_generation_settings\":{\"n_ctx\":", m.engine->context(),
                ",\"params\":{\"temperature\":", shortest(s.temperature), ",\"top_p\":", shortest(s.top_p),
                ",\"top_k\":", s.top_k, ",\"min_p\":", shortest(s.min_p),
                ",\"typical_p\":", shortest(s.typical_p), ",\"repeat_penalty\":", shortest(s.repeat_penalty),
                "}},\"total_slots\":", m.rows, ",\"model_alias\":", quote(m.name),
                ",\"model_path\":", quote(m.card.root), ",\"chat_template\":", quote(m.template_source),
                ",\"has_chat_template\":", m.chat ? "true" : "false", ",\"bos_token\":", token(t.bos),
                ",\"eos_token\":", token(t.eos), ",\"build_info\":", quote(options.version),
                ",\"system_fingerprint\":", quote(m.fingerprint), ",\"useful_batch\":", m.speed.useful_rows,
                ",\"lab\":",
                !workshop                            ? "null"
                : workshop->options().folder.empty() ? "{\"saves\":false}"
                                                     : "{\"saves\":true}",
                ",\"modalities\":{\"vision\":false,\"audio\":false}}");
}

std::string Service::State::slots() {
  std::string out = "[";
  for (const auto& m : models)
    for (const Engine::JobStatus& j : m->engine->jobs()) {
      if (out.size() > 1) out += ',';
      out += concat("{\"id\":", j.id, ",\"id_task\":", j.id, ",\"model\":", quote(m->name),
                    ",\"n_ctx\":", m->engine->context(),
                    ",\"is_processing\":", std::string_view(j.phase) == "waiting" ? "false" : "true",
                    ",\"state\":", quote(j.phase), ",\"n_prompt_tokens\":", j.prompt_tokens,
                    ",\"n_prompt_tokens_processed\":", j.read_tokens,
                    ",\"n_prompt_tokens_cache\":", j.reused_tokens, ",\"n_decoded\":", j.written_tokens,
                    ",\"seconds\":", fixed(j.seconds, 3), "}");
    }
  return out + "]";
}

std::string Service::State::limits() {
  std::string out = "{";
  {
    const std::lock_guard hold(lock);
    const bool full = waiting >= options.most_waiting || waiting_tokens >= options.most_waiting_tokens;
    out += concat("\"accepting\":", full || draining > 0 ? "false" : "true", ",\"reason\":",
                  draining > 0 ? "\"draining\""
                  : full       ? "\"queue_full\""
                               : "null",
                  ",\"queue\":{\"waiting\":", waiting, ",\"most_waiting\":", options.most_waiting,
                  ",\"waiting_tokens\":", waiting_tokens,
                  ",\"most_waiting_tokens\":", options.most_waiting_tokens,
                  ",\"most_wait_seconds\":", shortest(options.most_wait), "}");
  }
  out += concat(",\"replay\":{\"answers_of_a_key\":", options.replay ? ReplayStore::kAnswers : 0,
                ",\"bytes_of_a_key\":", ReplayStore::kKeyBytes, ",\"bytes\":", ReplayStore::kBytes, "}");
  out += concat(",\"seconds\":{\"queue\":", shortest(options.queue_seconds),
                ",\"first_token\":", shortest(options.first_token_seconds),
                ",\"request\":", shortest(options.request_seconds), "},\"models\":[");
  for (std::size_t i = 0; i < models.size(); ++i) {
    const ServedModel& m = *models[i];
    out += concat(i > 0 ? "," : "", "{\"id\":", quote(m.name), ",\"context\":", m.engine->context(),
                  ",\"answers_side_by_side\":", m.rows, ",\"pool_bytes\":", status[i].budget,
                  ",\"estimated_wait_seconds\":", fixed(m.engine->estimate_wait(1), 3), "}");
  }
  return out + "]}";
}

std::string Service::State::metrics_text() {
  std::string out = prometheus_text(metrics);
  const auto gauge = [&](const char* name, const char* help, const auto& value) {
    write_head(out, name, "gauge", help);
    for (std::size_t i = 0; i < models.size(); ++i)
      write_value(out, name, label("model", models[i]->name), static_cast<double>(value(status[i])));
  };
  gauge("rapt_num_requests_running", "requests that are read or answered", [](auto& s) { return s.running; });
  gauge("rapt_num_requests_waiting", "requests that wait for room", [](auto& s) { return s.waiting; });
  gauge("rapt_answers", "answers that are being written", [](auto& s) { return s.rows; });
  gauge("rapt_kv_cache_usage_perc", "share of the pool that is in use", [](auto& s) {
    return s.budget > 0 ? static_cast<double>(s.bytes) / static_cast<double>(s.budget) : 0;
  });
  gauge("rapt_prefixes", "beginnings of texts that are kept", [](auto& s) { return s.prefixes; });
  const http::Server::Counts c = server->counts();
  write_head(out, "rapt_connections", "gauge", "open connections");
  write_value(out, "rapt_connections", "", c.open);
  write_head(out, "rapt_connections_total", "counter", "connections, by what became of them");
  write_value(out, "rapt_connections_total", label("result", "accepted"), static_cast<double>(c.accepted));
  write_value(out, "rapt_connections_total", label("result", "refused"), static_cast<double>(c.refused));
  out += replays_text();
  write_head(out, "rapt_uptime_seconds", "gauge", "since the start");
  write_value(out, "rapt_uptime_seconds", "", seconds_since(started));
  return with_aliases(out);
}

}  // namespace rapt::server
