// SPDX-License-Identifier: Apache-2.0
// Workers: from a body to requests of an engine. What can be refused is refused here, before anything was
// sent.
#include <algorithm>
#include <random>

#include "rapt/apps/server/service_state.h"
#include "rapt/use/read_texts.h"

namespace rapt::server {
namespace {

// Rows of answers whose attention counts in the metrics: one request in so many.
constexpr std::uint64_t kWatched = 8;
constexpr int kMostLooks = 2, kMostLooksInAll = 8;  // texts at a time: of a client, of all

std::uint64_t drawn_seed() {
  std::random_device device;
  return ((std::uint64_t{device()} << 32) | device()) & ((std::uint64_t{1} << 53) - 1);
}

}  // namespace

void Service::State::push(Work& queue, std::function<void()> f) {
  {
    const std::lock_guard hold(work_lock);
    queue.push_back(std::move(f));
  }
  work_there.notify_all();  // of either queue
}

void Service::State::run_worker(Work& queue) {
  while (true) {
    std::function<void()> f;
    {
      std::unique_lock hold(work_lock);
      work_there.wait(hold, [&] { return quit || !queue.empty(); });
      if (quit) return;
      f = std::move(queue.front());
      queue.pop_front();
    }
    f();
  }
}

std::string Service::State::names() const {
  std::string out;
  for (const auto& m : models) {
    out += (out.empty() ? "" : ", ") + m->name;
    for (const NamedAdapter& a : m->adapters) out += ", " + a.name;
  }
  return out.empty() ? "none" : out;
}

ServedModel& Service::State::find_model(std::string_view name, const NamedAdapter** adapter) {
  for (const auto& m : models)
    if (m->name == name) return *m;
  for (const auto& m : models)
    for (const NamedAdapter& a : m->adapters)
      if (a.name == name || concat(m->name, ":", a.name) == name) {
        if (adapter) *adapter = &a;
        return *m;
      }
  if (name.ends_with(":latest"))
    return find_model(name.substr(0, name.size() - 7), adapter);  // Ollama's clients
  if (models.size() == 1) return *models[0];  // clients name models of other servers
  throw model_error(name, names());
}

void Service::State::prepare(const JobPtr& job, const http::Request& request) {
  if (job->gone) return;
  try {
    if (job->route == "/replay/{id}") return prepare_replay(job, request);
    const Json body = read_body(request.body);
    if (job->task == Task::workshop) {
      std::string text = workshop->answer(job->route, body, job->key);
      return server->post([this, job, text = std::move(text)] { reply(job, 200, text); });
    }
    const Json* name = body.find("model");
    if (!name && job->task == Task::show) name = body.find("name");
    const NamedAdapter* adapter = nullptr;
    ServedModel& model =
        find_model(name && name->is_string() ? std::string_view(name->string()) : "", &adapter);
    {
      const std::lock_guard hold(lock);
      job->model = &model;
      job->adapter = adapter;
      job->headers.push_back({"rapt-model", job->model_name()});
    }
    switch (job->task) {
      case Task::completion: prepare_completion(job, body); break;
      case Task::embeddings:
      case Task::rerank:
      case Task::classify: prepare_vectors(job, body); break;
      case Task::look: prepare_look(job, body); break;
      default: {
        std::string text = answer_text(job, body);
        server->post([this, job, text = std::move(text)] { reply(job, 200, text); });
      }
    }
  } catch (...) {
    const ApiError error = api_error(std::current_exception(), true);
    server->post([this, job, error] { fail(job, error); });
  }
}

void Service::State::make_parts(Job& job, std::size_t count) {
  const std::lock_guard hold(lock);
  job.parts.resize(count);
}

// --------------------------------------------------------------------------------------------- completions
void Service::State::prepare_completion(const JobPtr& job, const Json& body) {
  ServedModel& m = *job->model;
  if (!m.writes())
    throw ApiError(400, "invalid_value",
                   concat("model '", m.name, "' writes no text; it is for ",
                          m.classifies() ? "/v1/classify" : "/v1/embeddings"),
                   "model");
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  if (vendor_of(job->route) == Vendor::ollama)
    if (std::string loaded = ollama_load_reply(job->form, body, m.name, now); !loaded.empty()) {
      server->post([this, job, loaded = std::move(loaded)] { reply(job, 200, loaded); });
      return;
    }
  job->asked = dialect(job->form).read(body, m.read);
  CompletionRequest& asked = job->asked;
  if (vendor_of(job->route) == Vendor::ollama && m.answers && !m.answers->knows_thoughts())
    if (const Json* think = asked.variables.find("enable_thinking"); think && think->boolean())
      throw ApiError(400, "unsupported_parameter",
                     concat("'think': model '", m.name, "' does not; its chat template has no words for it."),
                     "think");
  job->head = {.id = concat(dialect(job->form).id, random_id()),
               .created = now,
               .model = job->model_name(),
               .fingerprint = job->adapter ? job->adapter->fingerprint : m.fingerprint};
  const bool endless = asked.endless.window > 0;
  if (endless) check_streams(m.recipe(), asked.endless);
  const ReplayRecord* const again = job->again.get();
  if (again) asked.generate.sampler.seed = again->seed, asked.generate.ignore_eos = again->ignore_eos;
  else if (!asked.seeded) asked.generate.sampler.seed = drawn_seed();

  // Prompts as tokens. A repetition has those of then: a template may know the date.
  std::vector<std::vector<std::int32_t>> prompts;
  if (again) {
    prompts = again->prompts;
    if (!m.fits(prompts) || prompts.size() != (asked.chat ? 1 : asked.prompts.size()))
      throw ApiError(409, "replay_damaged", "what was kept of that answer does not fit the model");
    if (asked.chat) m.set_form(asked, prompts[0]);
  } else if (asked.chat) {
    prompts.push_back(m.chat_prompt(asked));
  } else {
    for (const TextOrIds& p : asked.prompts) prompts.push_back(m.prompt_ids(p, asked.add_special_tokens));
  }
  const Dim context = m.engine->context();
  Dim most = asked.generate.max_tokens, tokens = 0;
  const bool bounds =
      job->form == Form::messages || job->form == Form::ollama_chat || job->form == Form::ollama_generate;
  // What Anthropic's and Ollama's clients name is a bound (the first must name one, and name tens of
  // thousands): the answer ends where the context does, and says so.
  if (bounds && !endless && !m.translates() && most > context - static_cast<Dim>(prompts[0].size()))
    asked.generate.max_tokens = most = -1;
  for (const std::vector<std::int32_t>& p : prompts) {
    const auto n = static_cast<Dim>(p.size());
    tokens += n;
    if (n == 0)
      throw ApiError(400, "invalid_value", "the prompt has no tokens; give it at least one word", "prompt");
    if (endless || m.translates()) continue;
    if (n + std::max<Dim>(most, most == 0 ? 0 : 1) > context) throw context_error(n, most, context);
  }
  if (asked.compare && job->form != Form::chat && job->form != Form::text)
    throw ApiError(400, "unsupported_parameter",
                   "rapt.compare: two answers are told by /v1/chat/completions and /v1/completions alone",
                   "rapt.compare");
  if (asked.compare && m.translates())
    throw ApiError(400, "unsupported_parameter", "rapt.compare: translations cannot be compared",
                   "rapt.compare");
  if (asked.continued) {
    prepare_continued(*job, prompts);
    for (const auto& ids : asked.continued->ids) tokens += static_cast<Dim>(ids.size());
  }
  const Dim both = asked.compare ? 2 : 1;
  const Dim answers = static_cast<Dim>(prompts.size()) * asked.generate.samples;
  admit(job, both * answers, both * tokens);
  job->keeps = options.replay && asked.replay && !again && !asked.compare;
  if (job->keeps) job->body = body.dump(0);

  const std::shared_ptr<const Constraint> constraint = m.constraint(asked);
  if (again && constraint && again->chat_template != m.template_hash)
    throw ApiError(409, "template_changed",
                   "the chat template is another one than then, and what the answer may be follows from it");

  // Observers and edits.
  const AnswerLook::Wanted wanted = AnswerLook::wanted(asked.look);
  const std::vector<Edit> edits = read_edits(asked.edits, *m.checkpoint.model, "rapt.edits");
  if (!edits.empty()) {
    try {
      job->edits_touched = install_edits(job->taps, *m.checkpoint.model, edits, Passes::many);
    } catch (const Error& e) {
      throw ApiError(400, "invalid_value", concat("rapt.edits: ", e.what()), "rapt.edits");
    }
  }
  job->shows_look = wanted.any();
  static std::atomic<std::uint64_t> number = 0;
  // Rows that are watched come one by one; what is known would not be read faster than it was written.
  const bool goes_on = asked.continued && asked.continued->any();
  if (wanted.any() || (!goes_on && number++ % kWatched == 0))
    job->look.emplace(job->taps, *m.checkpoint.model, wanted);
  if (wanted.live) {
    if (!asked.stream || goes_on || answers != 1 || m.translates() || asked.prompt_logprobs >= 0 ||
        (job->form != Form::chat && job->form != Form::text))
      throw ApiError(
          400, "invalid_value",
          "rapt.look: \"live\" needs stream: true, one prompt, n: 1, no echoed log-probabilities and no "
          "rapt.continue with ids, on /v1/chat/completions or /v1/completions",
          "rapt.look");
    job->live.emplace(job->taps, *m.checkpoint.model);
  }

  std::vector<Request> requests;
  make_parts(*job, prompts.size() + (asked.compare ? 1 : 0));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Job::Part& part = job->parts[i];
    part.prompt = std::move(prompts[i]);
    part.last.resize(static_cast<std::size_t>(asked.generate.samples));
    if (asked.echo)
      part.prompt_text =
          asked.prompts[i].is_ids ? m.checkpoint.tokenizer->decode(part.prompt, true) : asked.prompts[i].text;
    Request r = m.request(asked, part.prompt, constraint);
    if (again) m.end_with_context(r, again->context);
    if (job->look || job->live || !edits.empty()) r.taps = &job->taps;
    r.speculate = asked.speculate;
    set_known(*job, i, r);
    r.space =
        asked.cache_prompt ? concat(job->key, "|", asked.cache_salt) : concat("alone|", job->request_id);
    // What was found in the cache is not seen; who looks at an answer of before wants all of it.
    if (again && job->shows_look) r.space = concat("look|", job->request_id, "|", random_id());
    r.client = job->client;
    if (job->adapter) r.adapters = {job->adapter->use};
    requests.push_back(std::move(r));
  }
  if (asked.compare) add_compared(job, requests, edits);
  add(job, std::move(requests));
}

// ------------------------------------------------------------------------------------------------- vectors
void Service::State::prepare_vectors(const JobPtr& job, const Json& body) {
  ServedModel& m = *job->model;
  const bool classes = job->task == Task::classify;
  if (classes ? !m.classifies() : !m.embeds())
    throw ApiError(400, "invalid_value",
                   concat("model '", m.name, classes ? "' is no classifier" : "' gives no embeddings"),
                   "model");
  std::vector<TextOrIds> inputs;
  if (job->task == Task::embeddings) {
    job->embeddings = vendor_of(job->route) == Vendor::ollama ? read_ollama_embed(body, m.read)
                                                              : read_embeddings(body, m.read);
    inputs = std::move(job->embeddings.inputs);
  } else if (job->task == Task::rerank) {
    job->rerank = read_rerank(body, m.read);
    inputs.push_back({job->rerank.query, {}, false});
    for (const std::string& d : job->rerank.documents) inputs.push_back({d, {}, false});
  } else {
    for (std::string& text : read_classify(body, m.read).inputs)
      inputs.push_back({std::move(text), {}, false});
  }
  const Tokenizer& t = *m.checkpoint.tokenizer;
  const Dim most = m.checkpoint.max_tokens > 0 ? std::min(m.recipe().context, m.checkpoint.max_tokens)
                                               : m.recipe().context;
  make_parts(*job, inputs.size());
  Dim tokens = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<std::int32_t>& ids = job->parts[i].prompt;
    ids = inputs[i].is_ids ? std::move(inputs[i].ids) : t.frame(t.encode(inputs[i].text));
    if (ids.empty()) throw ApiError(400, "invalid_value", concat("input ", i, " has no tokens"), "input");
    if (static_cast<Dim>(ids.size()) > most) throw context_error(static_cast<Dim>(ids.size()), -1, most);
    tokens += static_cast<Dim>(ids.size());
  }
  admit(job, static_cast<Dim>(inputs.size()), tokens);
  std::vector<Request> requests;
  for (Job::Part& part : job->parts) {
    Request r = classes ? classify_request(m.checkpoint, part.prompt, part.vector)
                        : embed_request(m.checkpoint, part.prompt, part.vector);
    r.client = job->client;
    if (job->adapter) r.adapters = {job->adapter->use};
    r.background = inputs.size() > 16;
    requests.push_back(std::move(r));
  }
  add(job, std::move(requests));
}

// ---------------------------------------------------------------------------------------------------- look
LookSlot::LookSlot(std::shared_ptr<LookCounts> counts, std::string client)
    : counts_(std::move(counts)), client_(std::move(client)) {
  const std::lock_guard hold(counts_->lock);
  int& mine = counts_->of[client_];
  if (mine >= kMostLooks || counts_->all >= kMostLooksInAll) {
    const int there = mine;
    if (there == 0) counts_->of.erase(client_);
    throw ApiError(429, "queue_full",
                   there >= kMostLooks ? concat("busy: ", there, " of your texts are looked at already")
                                       : "busy: too many texts are looked at",
                   "", 1);
  }
  ++mine, ++counts_->all;
}

LookSlot::~LookSlot() {
  const std::lock_guard hold(counts_->lock);
  --counts_->all;
  if (--counts_->of[client_] == 0) counts_->of.erase(client_);
}

void Service::State::prepare_look(const JobPtr& job, const Json& body) {
  ServedModel& m = *job->model;
  if (job->adapter)
    throw ApiError(
        400, "invalid_value",
        concat("'", job->adapter->name, "' is an adapter; a text is looked at in the model itself, '", m.name,
               "' (answers are looked at with adapters, too: rapt.look)"),
        "model");
  LookRequest asked = read_look(body, m.read);
  std::vector<std::int32_t> ids = std::move(asked.ids);
  if (asked.chat) {
    ids = m.chat_ids(*asked.chat);
    const std::vector<std::int32_t> answer = m.checkpoint.tokenizer->encode(asked.answer);
    ids.insert(ids.end(), answer.begin(), answer.end());
  } else if (ids.empty()) {
    ids = m.prompt_ids({asked.text, {}, false}, true);
  }
  if (ids.empty()) throw ApiError(400, "invalid_value", "the text has no tokens", "text");
  make_parts(*job, 1);
  Job::Part& part = job->parts[0];
  part.prompt = ids;
  part.last.resize(1);
  job->look_slot.emplace(looks, job->client);
  job->text_look = std::make_unique<TextLook>(m, std::move(asked), std::move(ids));
  admit(job, 1, static_cast<Dim>(part.prompt.size()));
  Request r = job->text_look->request();
  r.space = concat("look|", job->request_id, "|", random_id());  // nothing is found: every row is to be seen
  r.client = job->client;
  std::vector<Request> requests;
  requests.push_back(std::move(r));
  add(job, std::move(requests));
}

// --------------------------------------------------------------------------------------------- small tasks
std::string Service::State::answer_text(const JobPtr& job, const Json& body) {
  const ServedModel& m = *job->model;
  const Tokenizer& t = *m.checkpoint.tokenizer;
  switch (job->task) {
    case Task::tokenize: {
      const TokenizeRequest asked = read_tokenize(body, m.read);
      std::vector<std::int32_t> ids;
      if (asked.chat) ids = m.chat_ids(*asked.chat);
      else ids = t.encode(asked.text, asked.parse_special);
      if (asked.add_special && !asked.chat) ids = t.frame(std::move(ids));
      return tokenize_reply(asked, ids, t, m.engine->context());
    }
    case Task::detokenize: return detokenize_reply(t.decode(read_detokenize(body, m.read).ids, true));
    case Task::apply_template: return template_reply(m.chat_text(read_template(body, m.read)));
    case Task::show: check_ollama_show(body); return ollama_show_reply(ollama_model(m));
    default: {
      const auto n = static_cast<Dim>(m.chat_ids(dialect(job->form).read_prompt(body, m.read)).size());
      return job->form == Form::messages ? count_tokens_reply(n) : input_tokens_reply(n);
    }
  }
}

// ----------------------------------------------------------------------------------------------- the queue
// Counted when a request arrives, by its bytes, and once more when its tokens are known.
void Service::State::admit(const JobPtr& job, Dim answers, Dim tokens) {
  const double wait = job->model->engine->estimate_wait(tokens);
  const std::lock_guard hold(lock);
  const Dim more = answers - job->counted, more_tokens = tokens - job->counted_tokens;
  const auto refuse = [&](const char* code, const std::string& why) {
    throw ApiError(429, code, why, "", std::max(1.0, wait));
  };
  if (waiting + more > options.most_waiting && waiting > job->counted)
    refuse("queue_full", concat("busy: ", waiting, " answers wait already, ", options.most_waiting,
                                " may; try again later"));
  if (waiting_tokens + more_tokens > options.most_waiting_tokens && waiting > job->counted)
    refuse("queue_full", concat("busy: ", waiting_tokens, " tokens of prompts wait already, ",
                                options.most_waiting_tokens, " may; try again later"));
  if (wait > options.most_wait)
    refuse("queue_full",
           concat("busy: this request would begin in about ", static_cast<Dim>(wait), " seconds; ",
                  static_cast<Dim>(options.most_wait), " are allowed; try again later"));
  waiting += more, waiting_tokens += more_tokens;
  job->counted = answers, job->counted_tokens = tokens;
}

void Service::State::release(Job& job, Dim answers, Dim tokens) {
  const std::lock_guard hold(lock);
  answers = std::min(answers, job.counted), tokens = std::min(tokens, job.counted_tokens);
  waiting -= answers, waiting_tokens -= tokens;
  job.counted -= answers, job.counted_tokens -= tokens;
}

void Service::State::add(const JobPtr& job, std::vector<Request> requests) {
  const std::size_t model = index_of(*job->model);
  Engine& engine = *job->model->engine;
  {
    const std::lock_guard hold(lock);
    job->open_parts = static_cast<int>(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      try {
        job->parts[i].id = engine.add(std::move(requests[i]));
      } catch (...) {
        for (std::size_t j = 0; j < i; ++j) engine.cancel(job->parts[j].id);
        job->open_parts = static_cast<int>(i);  // those that the engine knows end there; the rest never began
        job->broken = true;
        if (i > 0) engine_signal = true, engine_wakes.notify_one();
        throw;
      }
      live[{model, job->parts[i].id}] = {job, i};
    }
    engine_signal = true;
  }
  engine_wakes.notify_one();
  // Who left in the meantime was not known to the engine yet.
  if (job->gone) server->post([this, job] { cancel(job); });
  else if (job->asked.stream && job->task == Task::completion)
    server->post([this, job] {
      if (!job->gone) begin_stream(job);
    });
}

}  // namespace rapt::server
