// SPDX-License-Identifier: Apache-2.0
// Answers from one engine for each model: requests in Python's words, events as they come, the answer.
#include <atomic>
#include <limits>
#include <utility>

#include "rapt/apps/python/arrays.h"
#include "rapt/apps/python/model.h"
#include "rapt/apps/python/shared_engine.h"
#include "rapt/text/prompt.h"
#include "rapt/use/answer_spec.h"
#include "rapt/use/conversation.h"

namespace rapt::python {
namespace {

// --------------------------------------------------------------------------------------------- options
double number(nb::handle value, const char* name) {
  const double x = PyFloat_AsDouble(value.ptr());
  if (x == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    fail_usage(name, ": ", nb::cast<std::string>(nb::repr(value)), " is no number");
  }
  return x;
}

Dim whole(nb::handle value, const char* name) {
  PyObject* index = PyNumber_Index(value.ptr());
  if (!index) {
    PyErr_Clear();
    fail_usage(name, ": ", nb::cast<std::string>(nb::repr(value)), " is no whole number");
  }
  const nb::object held = nb::steal(index);
  const Dim n = PyLong_AsLongLong(index);
  if (n == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    fail_usage(name, ": ", nb::cast<std::string>(nb::repr(value)), " has more than 64 bits");
  }
  return n;
}

int small(nb::handle value, const char* name) {
  const Dim n = whole(value, name);
  if (n < std::numeric_limits<int>::min() || n > std::numeric_limits<int>::max())
    fail_usage(name, ": ", n, " is out of all range");
  return static_cast<int>(n);
}

void set_option(GenerateOptions& o, const std::string& text, nb::handle value) {
  SamplerOptions& s = o.sampler;
  const char* name = text.c_str();
  if (text == "max_tokens") o.max_tokens = whole(value, name);
  else if (text == "temperature") s.temperature = number(value, name);
  else if (text == "top_k") s.top_k = whole(value, name);
  else if (text == "top_p") s.top_p = number(value, name);
  else if (text == "min_p") s.min_p = number(value, name);
  else if (text == "typical") s.typical_p = number(value, name);
  else if (text == "repeat_penalty") s.repeat_penalty = number(value, name);
  else if (text == "repeat_last_n") s.penalty_last = whole(value, name);
  else if (text == "frequency_penalty") s.frequency_penalty = number(value, name);
  else if (text == "presence_penalty") s.presence_penalty = number(value, name);
  else if (text == "mirostat") s.mirostat = small(value, name);
  else if (text == "mirostat_tau") s.mirostat_tau = number(value, name);
  else if (text == "mirostat_eta") s.mirostat_eta = number(value, name);
  else if (text == "seed") s.seed = static_cast<std::uint64_t>(whole(value, name));
  else if (text == "samples") o.samples = small(value, name);
  else if (text == "beams") o.beams = small(value, name);
  else if (text == "length_penalty") o.length_penalty = number(value, name);
  else if (text == "ignore_eos") o.ignore_eos = nb::cast<bool>(value);
  else if (text == "logprobs") o.logprobs = true, o.top_logprobs = small(value, name);
  else if (text == "chunk") o.chunk = whole(value, name);
  else if (text == "stop") o.stops = nb::cast<std::vector<std::string>>(value);
  else if (text == "logit_bias")
    for (const auto& [id, bias] : nb::cast<nb::dict>(value))
      s.bias.emplace_back(static_cast<std::int32_t>(small(id, name)), static_cast<float>(number(bias, name)));
  else fail_name("generate: there is no option '", text, "'");
}

// What an answer is asked for with; no options of the engine.
struct AskOptions {
  AnswerSpec spec;
  std::optional<std::vector<AdapterUse>> lora = {};
  bool speculate = true;
  bool messages = false;  // the prompt was written by the chat template
  bool take(const std::string& name, nb::handle value) {
    if (name == "messages") messages = nb::cast<bool>(value);
    else if (name == "speculate") speculate = nb::cast<bool>(value);
    else if (name == "lora") lora = nb::cast<std::vector<AdapterUse>>(value);
    else if (name == "grammar") spec.grammar = nb::cast<std::string>(value);
    else if (name == "schema") spec.schema = parse_json(nb::cast<std::string>(value), "schema");
    else return false;
    return true;
  }
};

// Names are checked in Python, too; what is None stays as it is.
GenerateOptions options_of(const nb::dict& options, AskOptions& more) {
  GenerateOptions o;
  for (const auto& [key, value] : options) {
    const std::string name = nb::cast<std::string>(key);
    try {
      if (value.is_none() || more.take(name, value)) continue;
      set_option(o, name, value);
    } catch (const nb::cast_error&) {
      fail_usage(name, ": ", nb::cast<std::string>(nb::repr(value)), " cannot be meant");
    }
  }
  for (const std::string& stop : o.stops)
    if (stop.empty()) fail_usage("stop: an empty text would stop every answer at once");
  check(o);
  return o;
}

// ---------------------------------------------------------------------------------------------- answers
const char* name_of(Finish f) {
  return f == Finish::stop ? "stop" : f == Finish::length ? "length" : "cancelled";
}

nb::object choice_of(const TokenChoice& t) {  // (id, log-probability, [(id, log-probability), …])
  nb::list top;
  for (const auto& [id, logprob] : t.top) top.append(nb::make_tuple(id, logprob));
  return nb::make_tuple(t.id, t.logprob, top);
}
nb::list choices_of(std::span<const TokenChoice> all) {
  nb::list out;
  for (const TokenChoice& t : all) out.append(choice_of(t));
  return out;
}

nb::dict sample_of(const Generated& g) {
  nb::dict d;
  d["text"] = text_of(g.text);
  d["ids"] = nb::cast(g.ids);
  d["finish"] = name_of(g.finish);
  d["stop_text"] = g.stop_text;
  d["score"] = g.score;
  d["hash"] = g.hash;
  d["choices"] = choices_of(g.tokens);
  return d;
}

nb::dict answer_of(const Answer& a) {
  nb::dict d;
  nb::list samples;
  for (const Generated& g : a.samples) samples.append(sample_of(g));
  d["samples"] = samples;
  d["prompt"] = choices_of(a.prompt);
  d["times"] = nb::make_tuple(a.times.queue_seconds, a.times.prompt_seconds, a.times.decode_seconds,
                              a.times.prompt_tokens, a.times.reused_tokens, a.times.decoded_tokens,
                              a.times.dropped_tokens, a.times.guessed_tokens, a.times.right_guesses);
  return d;
}

// A request under way, as Python holds it. Left when it goes.
class Ask {
 public:
  Ask(std::shared_ptr<SharedEngine> engine, std::shared_ptr<SharedEngine::Asked> asked)
      : engine_(std::move(engine)), asked_(std::move(asked)) {}
  ~Ask() { close(); }
  Ask(const Ask&) = delete;
  Ask& operator=(const Ask&) = delete;

  void close() { engine_->leave(*asked_); }

  // (text, id or None, sample, choice or None); None at the end.
  nb::object next() {
    Event event;
    if (!wait(event)) return nb::none();
    return token_of(event);
  }

  // To its end; on_token(text, id, sample, choice) for each, unless it is None. A result that is False ends
  // its sample.
  nb::object finish(nb::object on_token) {
    const CallsPython here(on_main_thread());
    Event event;
    try {
      while (wait(event)) {
        if (on_token.is_none()) continue;
        const nb::object result = call_python(on_token, token_of(event));
        if (result.is(nb::handle(Py_False))) engine_->stop_sample(*asked_, event.sample);
      }
    } catch (...) {
      close();
      throw;
    }
    return answer();
  }

  // None before the end, or where it was closed.
  nb::object answer() const {
    if (asked_->error) std::rethrow_exception(asked_->error);
    return asked_->answer ? nb::object(answer_of(*asked_->answer)) : nb::none();
  }

 private:
  bool wait(Event& event) {
    const bool main = on_main_thread();
    bool more;
    {
      const OutOfPython out(main);
      more = engine_->next(*asked_, event, main);
    }
    if (!more && asked_->error) std::rethrow_exception(asked_->error);
    return more;
  }
  static nb::tuple token_of(const Event& e) {
    return nb::make_tuple(text_of(e.text), e.id >= 0 ? nb::object(nb::int_(e.id)) : nb::none(), e.sample,
                          e.choice.id >= 0 ? choice_of(e.choice) : nb::none());
  }

  std::shared_ptr<SharedEngine> engine_;
  std::shared_ptr<SharedEngine::Asked> asked_;
};

std::shared_ptr<Ask> ask(const std::shared_ptr<SharedEngine>& engine, std::vector<std::int32_t> ids,
                         const nb::dict& options, std::uint64_t hold, bool listens,
                         const NamedFunctions& hooks) {
  OutOfPython::stay_if_ending();
  const Checkpoint& c = *engine->model().checkpoint;
  const Recipe& recipe = c.model->recipe;
  std::shared_ptr<RequestHooks> changes = request_hooks(engine->state(), hooks);
  Request r;
  AskOptions more;
  GenerateOptions generate = options_of(options, more);
  if (recipe.encoder && recipe.decoder) {
    if (more.spec.any()) fail_usage("schema and grammar: they are for models that go on with a text");
    r = translation_request(c, engine->stops(), ids, generate);
  } else {
    r.tokens = std::move(ids);
    r.generate = std::move(generate);
    if (more.spec.schema && !more.spec.grammar.empty()) fail_usage("schema and grammar: give one of them");
    if (more.spec.any()) {
      const std::optional<ChatTemplate> chat = more.messages ? open_chat_template(c) : std::nullopt;
      SpecifiedAnswer specified =
          specify_answer(c, more.spec, chat ? &*chat : nullptr, r.tokens, engine->stops());
      r.constraint = std::move(specified.constraint);
      r.generate.shown_ids = std::move(specified.shown_ids);
    }
    r.stream = engine->model().stream;
    r.hold = hold;
  }
  r.adapters = std::move(more.lora);
  r.speculate = more.speculate;
  return std::make_shared<Ask>(engine, engine->ask(std::move(r), listens, std::move(changes)));
}

// Log-probabilities of a text's tokens, each with `top` others; nothing is written.
std::shared_ptr<Ask> ask_score(const std::shared_ptr<SharedEngine>& engine, std::vector<std::int32_t> ids,
                               int top) {
  OutOfPython::stay_if_ending();
  Request r;
  r.tokens = std::move(ids);
  r.generate.max_tokens = 0;
  r.stream = engine->model().stream;
  r.prompt_logprobs = top;
  return std::make_shared<Ask>(engine, engine->ask(std::move(r), false));
}

std::shared_ptr<SharedEngine> open_engine(const ModelPtr& model, const std::string& cache, Dim context,
                                          const std::string& speculate, const ModelPtr& draft) {
  const std::optional<DType> type = dtype_named(cache);
  const DType known[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};
  if (!type || std::find(std::begin(known), std::end(known), *type) == std::end(known))
    fail_usage("cache: keys and values are kept as f32, f16, bf16, q8_0 or q4_0, not as '", cache, "'");
  check_writes(*model->checkpoint, context, model->stream);
  Engine::Options o;
  o.cache = *type;
  o.context = context;
  o.prefixes = true;
  o.idle_prefix_bytes = std::size_t{256} << 20;
  o.speculate = speculate == "off" ? Speculate::off : draft ? Speculate::draft : Speculate::lookup;
  o.draft = draft ? draft->checkpoint.get() : nullptr;
  return std::make_shared<SharedEngine>(model, o, draft);
}

// ---------------------------------------------------------------------------------------- conversations
Json messages_json(const std::string& text) { return parse_json(text, "messages"); }

std::vector<std::int32_t> chat_prompt(const ModelPtr& model, const std::string& messages,
                                      const std::string& variables) {
  const Checkpoint& c = *model->checkpoint;
  const std::optional<ChatTemplate> chat = open_chat_template(c);
  if (!chat)
    fail_usage(c.path.empty() ? "the model" : c.path,
               " has no chat template; give the conversation as one text, written as the model knows it");
  const Tokenizer& t = tokenizer_of(c);
  ChatOptions o = chat_options(t);
  if (!variables.empty()) o.variables = parse_json(variables, "variables");
  return chat_ids(t, chat->render(messages_json(messages), o));
}

// The turns of one conversation; whoever answers is in Python.
class Turns {
 public:
  explicit Turns(ModelPtr model)
      : model_(std::move(model)), talk_(*model_->checkpoint, open_chat_template(*model_->checkpoint)) {}

  // (ids, how much was left out); `answered`: tokens of an answer that goes on.
  nb::object prompt(const std::string& user, Dim context, Dim most,
                    const std::vector<std::int32_t>& answered) {
    last_ = talk_.prompt(user, context, most, answered);
    return nb::make_tuple(nb::cast(last_.ids), last_.left_out);
  }
  // Behind the last prompt().
  void add(const std::string& user, std::vector<std::int32_t> ids, const std::string& text) {
    Generated g;
    g.ids = std::move(ids);
    g.text = text;
    talk_.add(user, last_, g);
  }
  bool undo() { return talk_.undo(); }
  void clear() { talk_.clear(); }
  std::string messages() const { return talk_.json().dump(0); }
  void load(const std::string& messages) { talk_.load(messages_json(messages)); }
  bool has_template() const { return talk_.has_template(); }
  std::string system() const { return talk_.system; }
  void set_system(const std::string& text) {
    if (!talk_.has_template() && !text.empty())
      fail_usage("system: the model has no chat template, so there is no place for it; put it into the text");
    talk_.system = text;
  }

 private:
  ModelPtr model_;
  Conversation talk_;
  Conversation::Prompt last_;
};

}  // namespace

void add_generate(nb::module_& m) {
  nb::class_<SharedEngine>(m, "SharedEngine")
      .def("context", &SharedEngine::context)
      .def("new_hold", &SharedEngine::new_hold)
      .def("release", &SharedEngine::release)
      .def("status", [](const SharedEngine& e) {
        const Engine::Status s = e.status();
        nb::dict d;
        d["waiting"] = s.waiting, d["running"] = s.running, d["pages"] = s.pages, d["bytes"] = s.bytes;
        d["passes"] = s.passes, d["prompt_tokens"] = s.prompt_tokens;
        d["reused_tokens"] = s.reused_tokens, d["decoded_tokens"] = s.decoded_tokens;
        return d;
      });
  nb::class_<Ask>(m, "Ask")
      .def("next", &Ask::next)
      .def("finish", &Ask::finish, nb::arg().none())
      .def("answer", &Ask::answer)
      .def("close", &Ask::close);
  m.def("open_engine", &open_engine, "model"_a, "cache"_a, "context"_a, "speculate"_a, "draft"_a.none());
  m.def("ask", &ask);
  m.def("ask_score", &ask_score);
  m.def("chat_ids", &chat_prompt);
  nb::class_<Turns>(m, "Turns")
      .def(nb::init<ModelPtr>())
      .def("prompt", &Turns::prompt)
      .def("add", &Turns::add)
      .def("undo", &Turns::undo)
      .def("clear", &Turns::clear)
      .def("messages", &Turns::messages)
      .def("load", &Turns::load)
      .def("has_template", &Turns::has_template)
      .def_prop_rw("system", &Turns::system, &Turns::set_system);
  m.def("end_all", [] {
    const nb::gil_scoped_release released;
    SharedEngine::end_all();
  });
}

}  // namespace rapt::python
