// SPDX-License-Identifier: Apache-2.0
// rapt serve: flags, configuration and the life of the process around the server (apps/server).
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>

#include "rapt/apps/cli/model_args.h"
#include "rapt/apps/server/sandbox.h"
#include "rapt/apps/server/service.h"
#include "rapt/base/memory.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt::cli {
namespace {

// Flags that a configuration file and the environment know too: --ctx-size is RAPT_SERVE_CTX_SIZE and
// "ctx-size".
constexpr const char* kValues[] = {
    "host",       "port",       "unix",          "key-file",   "allow-host", "allow-origin", "ctx-size",
    "pool",       "cache-type", "chat-template", "parallel",   "itl-target", "queue",        "queue-tokens",
    "queue-wait", "timeout",    "first-token",   "drain",      "tls-cert",   "tls-key",      "threads",
    "log",        "body-limit", "lab-dir",       "replay-log", "lora",       "speculate",    "draft"};
constexpr const char* kSwitches[] = {"no-prefix-cache", "no-page", "no-sandbox", "insecure",
                                     "quiet",           "lab",     "no-replay"};

std::string variable_of(std::string_view flag) {
  std::string out = "RAPT_SERVE_";
  for (const char c : flag) out += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return out;
}

bool is_on(std::string_view text) { return text == "1" || text == "on" || text == "true" || text == "yes"; }

std::vector<std::string> words_of_environment() {
  std::vector<std::string> words;
  for (const char* name : kValues)
    if (const char* value = std::getenv(variable_of(name).c_str()); value && *value)
      words.push_back(concat("--", name, "=", value));
  for (const char* name : kSwitches)
    if (const char* value = std::getenv(variable_of(name).c_str()); value && is_on(value))
      words.push_back(concat("--", name));
  return words;
}

// {"models": ["a.gguf", "chat=b.gguf"], "port": 8642, "allow-host": ["a", "b"], "quiet": true}
std::vector<std::string> words_of_file(const std::string& path, std::vector<std::string>& models) {
  const Json json = parse_json(read_text_file(path, 1 << 20), path);
  if (!json.is_object()) fail(path, ": an object of flags is wanted, as in {\"port\": 8642}");
  const auto text_of = [&](const Json& v, std::string_view key) {
    if (v.is_string()) return std::string(v.string());
    if (v.is_number()) return v.is_integer() ? std::to_string(v.integer()) : shortest(v.number());
    fail(path, ":", Dim{v.line}, ": ", key, " is ", v.type_name(), "; a text or a number is wanted");
  };
  std::vector<std::string> words, names = {"models"};
  for (const char* n : kValues) names.emplace_back(n);
  for (const char* n : kSwitches) names.emplace_back(n);
  for (const auto& [key, value] : json.object()) {
    const std::string name(key);
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(path, ":", Dim{value.line}, ": '", name, "' is no flag of rapt serve; ", name_hint(name, names));
    if (name == "models") {
      if (!value.is_array()) fail(path, ":", Dim{value.line}, ": models is a list of names");
      for (const Json& m : value.array()) models.push_back(text_of(m, key));
    } else if (std::find_if(std::begin(kSwitches), std::end(kSwitches),
                            [&](const char* s) { return name == s; }) != std::end(kSwitches)) {
      if (!value.is_bool()) fail(path, ":", Dim{value.line}, ": ", name, " is true or false");
      if (value.boolean()) words.push_back(concat("--", name));
    } else if (value.is_array()) {
      for (const Json& v : value.array()) words.push_back(concat("--", name, "=", text_of(v, key)));
    } else {
      words.push_back(concat("--", name, "=", text_of(value, key)));
    }
  }
  return words;
}

// "512M", "4GiB", "1e9": bytes.
std::size_t bytes_of(const std::string& text, const char* flag) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double factor = 0;
  for (const auto& [name, f] : {std::pair<const char*, double>{"", 1},
                                {"b", 1},
                                {"k", 1024},
                                {"kib", 1024},
                                {"kb", 1e3},
                                {"m", 1048576},
                                {"mib", 1048576},
                                {"mb", 1e6},
                                {"g", 1073741824},
                                {"gib", 1073741824},
                                {"gb", 1e9}})
    if (unit == name) factor = f;
  if (end == text.c_str() || factor == 0 || !(number > 0) || number * factor > 1e15)
    fail_usage(flag, ": '", text, "' is no size; write 512M, 4GiB or a number of bytes");
  return static_cast<std::size_t>(number * factor);
}

// --cache-type T for all models, NAME=T for one.
struct CacheTypes {
  explicit CacheTypes(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const std::size_t equals = word.find('=');
      const DType type = cache_type_named(equals == std::string::npos ? word : word.substr(equals + 1));
      if (equals == std::string::npos) all = type;
      else of[word.substr(0, equals)] = type;
    }
  }
  void check(const std::vector<std::string>& models) const {
    for (const auto& [name, type] : of)
      if (std::find(models.begin(), models.end(), name) == models.end())
        fail_usage("--cache-type ", name, "=", name_of(type), ": no model is served as '", name, "', but ",
                   join(models));
  }
  DType operator[](const std::string& name) const {
    const auto it = of.find(name);
    return it == of.end() ? all : it->second;
  }

  DType all = DType::f16;
  std::map<std::string, DType> of;
};

// Of the process: signals reach the server through them.
server::Service* running_service = nullptr;
extern "C" void on_end_signal(int) {
  if (running_service) running_service->drain();
}
extern "C" void on_reload_signal(int) {
  if (running_service) running_service->reload();
}

void handle_signals() {
  struct sigaction action{};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  action.sa_handler = on_end_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = on_reload_signal;
  sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

int run(Args& args) {
  std::vector<std::string> models_of_file;
  const std::optional<std::string> config = args.value("config");
  {
    std::vector<std::string> words;
    if (config) words = words_of_file(*config, models_of_file);
    const std::vector<std::string> more = words_of_environment();
    words.insert(words.end(), more.begin(), more.end());
    args.prepend(words);
  }
  const CommonArgs common = common_args(args);
  const std::string host = args.value("host").value_or("127.0.0.1");
  const Dim port = args.number("port", 0, 65535).value_or(8642);
  const std::optional<std::string> socket = args.value("unix");
  server::ServiceOptions service;
  const std::optional<std::string> key_file = args.value("key-file");
  service.access.hosts = args.values("allow-host");
  service.access.origins = args.values("allow-origin");
  const Dim context = args.number("ctx-size", 0, Dim{1} << 40).value_or(0);
  const std::optional<std::string> pool = args.value("pool");
  const CacheTypes caches(args.values("cache-type"));
  const std::vector<std::string> lora = args.values("lora");
  const std::optional<std::string> chat_template = args.value("chat-template");
  const SpeculateArgs speculate = speculate_args(args);
  const Dim rows = args.number("parallel", 1, 4096).value_or(0);
  const double target = args.real("itl-target").value_or(50);
  service.most_waiting = args.number("queue", 1, 1 << 20).value_or(service.most_waiting);
  service.most_waiting_tokens =
      args.number("queue-tokens", 1, Dim{1} << 40).value_or(service.most_waiting_tokens);
  service.most_wait = args.real("queue-wait").value_or(service.most_wait);
  service.queue_seconds = std::max(service.queue_seconds, service.most_wait);
  service.request_seconds = args.real("timeout").value_or(service.request_seconds);
  service.first_token_seconds = args.real("first-token").value_or(service.first_token_seconds);
  service.drain_seconds = args.real("drain").value_or(service.drain_seconds);
  const std::optional<std::string> certificate = args.value("tls-cert"), tls_key = args.value("tls-key");
  const std::string log = args.value("log").value_or(common.quiet ? "off" : "text");
  const bool prefixes = !args.flag("no-prefix-cache"), sandbox = !args.flag("no-sandbox"),
             insecure = args.flag("insecure");
  service.page = !args.flag("no-page");
  service.replay = !args.flag("no-replay");
  service.replay_log = args.value("replay-log").value_or("");
  service.workshop.folder = args.value("lab-dir").value_or("");
  service.workshop.on = args.flag("lab") || !service.workshop.folder.empty();
  service.workshop.threads = common.threads;
  http::Limits limits;
  if (const auto most = args.value("body-limit")) limits.body_bytes = bytes_of(*most, "--body-limit");
  std::vector<std::string> names = args.operands();
  if (names.empty()) names = models_of_file;
  if (names.empty()) names = {"default"};
  if (!service.workshop.folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(service.workshop.folder, error);
    if (error || !std::filesystem::is_directory(service.workshop.folder))
      fail_usage("--lab-dir ", service.workshop.folder,
                 ": the folder cannot be made: ", error ? error.message() : "a file of that name is there");
    service.workshop.folder = std::filesystem::canonical(service.workshop.folder).string();
  }
  if (!(target > 0)) fail_usage("--itl-target: ", target, "; give milliseconds above 0");
  if (!service.replay_log.empty() && !service.replay)
    fail_usage("--replay-log and --no-replay: answers are kept, or they are not");
  if (log != "text" && log != "json" && log != "off")
    fail_usage("--log: '", log, "' is none of text, json, off");
  if (certificate.has_value() != tls_key.has_value()) fail_usage("--tls-cert and --tls-key come together");
  if (key_file) service.access.keys = server::read_keys(*key_file);
  if (char* key = std::getenv("RAPT_API_KEY"); key && *key) {
    service.access.keys.emplace_back(key);
    std::fill(key, key + std::strlen(key), 'x');  // /proc/PID/environ shows the bytes themselves
    unsetenv("RAPT_API_KEY");  // children and /proc need not know it
  }
  const bool local = socket || server::is_loopback(server::host_name(
                                   host.find(':') == std::string::npos ? host : concat("[", host, "]")));
  if (!local && service.access.keys.empty() && !insecure)
    fail_usage("--host ", host,
               " can be reached from other machines, and there is no key: everybody there could use it. "
               "Give --key-file FILE or RAPT_API_KEY, or --insecure where that is meant");
  service.access.reachable = !local;

  // Models.
  Device device(DeviceOptions{.threads = common.threads});
  note_threads(device, common);
  const std::string version = version_line();
  std::vector<std::unique_ptr<server::ServedModel>> models;
  std::string template_text;
  if (chat_template) template_text = read_text_file(*chat_template, 4 << 20);
  std::vector<server::ModelOptions> wanted;
  std::vector<std::string> served;
  for (const std::string& word : names) {
    const std::size_t equals = word.find('=');
    server::ModelOptions o;
    o.path = find_model(equals == std::string::npos ? word : word.substr(equals + 1));
    o.name = equals == std::string::npos ? server::name_of_file(o.path) : word.substr(0, equals);
    if (std::find(served.begin(), served.end(), o.name) != served.end())
      fail_usage("two models are called '", o.name, "'; give one another name: NAME=", o.path);
    served.push_back(o.name);
    wanted.push_back(std::move(o));
  }
  caches.check(served);
  const std::vector<NamedAdapterFile> adapters = named_adapters(lora, served);
  if (!speculate.draft.empty() && wanted.size() > 1)
    fail_usage("--draft is for one model; ", wanted.size(), " are served");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    server::ModelOptions& o = wanted[i];
    o.cache = caches[o.name];
    o.context = context;
    o.step_seconds = target / 1000;
    o.rows = rows;
    o.prefixes = prefixes;
    o.speculate = speculate.how;
    o.draft = speculate.draft;
    o.chat_template = template_text;
    const std::uint64_t free = available_memory();
    o.budget = pool ? bytes_of(*pool, "--pool") / names.size()
                    : static_cast<std::size_t>(free > 0 ? free / 4 / names.size() : std::uint64_t{1} << 30);
    for (std::size_t k = 0; k < i && !o.weights; ++k)
      if (wanted[k].path == o.path) o.weights = models[k]->weights;
    Progress bar(concat("loading ", names[i]), common.quiet);
    models.push_back(server::serve_model(device, o, version, [&](std::uint64_t done, std::uint64_t of) {
      bar.step(static_cast<double>(done), static_cast<double>(of));
    }));
    for (std::size_t k = i; k-- > 0;)
      if (models[k]->weights == models[i]->weights)
        models[i]->card.root = models[k]->name;  // the first of them
    for (const NamedAdapterFile& a : adapters)
      if (a.model == models[i]->name) server::add_adapter(*models[i], a.name, a.file);
  }
  const auto note_line = [&](const std::string& text) {
    if (!common.quiet) note(text);
  };
  for (const auto& m : models) {
    std::string about = concat(m->name, ": ", short_count(static_cast<double>(m->card.parameters)),
                               " parameters, context ", with_commas(m->engine->context()));
    if (m->writes())
      about += concat(", ", m->card.cache_type, " cache, pool of ",
                      byte_count(static_cast<double>(m->engine->status().budget)), ", ",
                      counted(m->rows, "answer"), " side by side");
    if (m->speed.useful_rows > 1)
      about += concat(" (measured: up to ", m->speed.useful_rows, " a step costs little more than for one)");
    if (const auto first = std::find_if(models.begin(), models.end(),
                                        [&](const auto& one) { return one->weights == m->weights; });
        *first != m)
      about += concat("; the weights are those of ", (*first)->name);
    note_line(about);
    for (const server::NamedAdapter& a : m->adapters)
      note_line(concat(a.name, ": the adapter ", a.use.adapter->path, " of ", m->name));
    if (m->writes() && !m->translates() && !m->chat)
      note_line(concat("note: ", m->name,
                       " has no chat template; the texts of a conversation are read one after the "
                       "other (--chat-template FILE gives one)"));
  }

  // The server.
  if (log != "off")
    service.log = [log](const std::string& line) {
      std::string out = line;
      if (log == "text") {
        const Json j = parse_json(line);
        const auto text = [&](const char* key) {
          const Json* v = j.find(key);
          return v && v->is_string() ? std::string(v->string())
                 : v && v->is_null() ? "-"
                 : v                 ? v->dump(0)
                                     : "-";
        };
        const std::time_t now = std::time(nullptr);
        char clock[32] = "";
        std::tm local_time{};
        std::strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local_time));
        out = concat(clock, " ", text("status"), " ", text("route"), " ", text("model"), ": ",
                     text("prompt_tokens"), " + ", text("tokens"), " tokens, ", text("seconds"), " s ",
                     text("finish"), " [", text("id"), "]");
      }
      note(out);
    };
  service.version = version;
  service.warn = [](const std::string& text) { note(concat("warning: ", text)); };
  server::Service handler(std::move(models), service);
  http::Server server(handler, limits);
  if (certificate) server.use_tls(*certificate, *tls_key);
  std::string address;
  if (socket) {
    server.listen_unix(*socket);
    address = *socket;
  } else {
    const int got = server.listen(host, static_cast<int>(port));
    address = concat(certificate ? "https://" : "http://",
                     host.find(':') == std::string::npos ? host : concat("[", host, "]"), ":", got);
  }
  running_service = &handler;
  handle_signals();
  if (sandbox) {
    std::vector<std::string> readable;
    if (certificate) readable = {*certificate, *tls_key};
    const server::Sandbox s = server::enter_sandbox(readable, service.workshop.folder);
    note_line(concat("sandbox: files ", s.files ? "closed" : "open (the kernel has no Landlock)",
                     ", system calls ", s.calls ? "limited" : "not limited"));
  }
  handler.start(server);
  note_line(concat("limits: ", service.most_waiting, " answers and ",
                   with_commas(service.most_waiting_tokens), " prompt tokens may wait; ",
                   byte_count(static_cast<double>(limits.body_bytes)), " a request; ",
                   service.access.keys.empty() ? "no key is asked for" : "a key is asked for"));
  // The line that scripts wait for.
  if (socket) print(concat("listening on ", address, "\n"));
  else
    print(concat("listening at ", address,
                 service.page ? "  (open it in a browser; clients: " : "  (clients: ", address, "/v1)\n"));
  flush();
  server.run();
  running_service = nullptr;
  handler.stop();
  if (socket) unlink(socket->c_str());
  note_line("stopped");
  return 0;
}

}  // namespace

extern const Verb kServe;
const Verb kServe = {
    "serve", "answer clients over HTTP, as OpenAI's API does",
    "Usage: rapt serve [NAME=]MODEL… [flags]\n"
    "\n"
    "Without a model: the one that comes with the program. Chat, completions (echo, log-probabilities),\n"
    "embeddings, rerank, classify, models, tokenize; /openapi.json lists all, docs/serving.md explains.\n"
    "Every answer has the bits it would have alone, whatever else runs.\n"
    "\n"
    "  --host ADDRESS      where to listen (127.0.0.1); others than loopback need a key\n"
    "  --port N            (8642); 0: any that is free\n"
    "  --unix PATH         a UNIX socket instead\n"
    "  --key-file FILE     keys, one a line (mode 600); or RAPT_API_KEY\n"
    "  --allow-host NAME   answer to this name too (Host header); may come many times\n"
    "  --allow-origin URL  pages of this origin may ask; may come many times\n"
    "  --insecure          a public address without a key\n"
    "  --tls-cert FILE  --tls-key FILE   TLS (builds with -DRAPT_TLS=ON)\n"
    "\n"
    "  -c, --ctx-size N    tokens of prompt and answer (the model's)\n"
    "  --pool SIZE         memory for keys and values, 512M, 4G (a quarter of what is free)\n"
    "  --cache-type [NAME=]T   f32, f16, bf16, q8_0, q4_0 (f16); with a name, of this model alone\n"
    "  --lora [MODEL:]NAME=FILE[=SCALE]   an adapter (LoRA); clients ask for the model NAME; may come often\n"
    "  --parallel N        answers side by side (by a measurement at the start)\n"
    "  --itl-target MS     time between tokens that reading prompts may cost others (50)\n"
    "  --no-prefix-cache   every prompt is read anew\n"
    "  --replay-log FILE   answers are kept in this file, too (mode 600; prompts are in it): rapt replay\n"
    "  --no-replay         no answer is kept in memory to be given again (/v1/replay)\n"
    "  --speculate off|lookup|draft   tokens are guessed and checked several at a time where it is faster;\n"
    "                      no bit of an answer depends on it (lookup)\n"
    "  --draft MODEL       guesses are what this smaller model of the same vocabulary says\n"
    "  --no-page           no page for browsers at /\n"
    "  --chat-template F   instead of the model's own\n"
    "  --lab               experiments and trainings can be started from the page; they write no file\n"
    "  --lab-dir DIR       … and trainings are kept in this folder\n"
    "\n"
    "  --queue N           answers that may wait (128)\n"
    "  --queue-tokens N    tokens of prompts that may wait (262144)\n"
    "  --queue-wait S      seconds that a request may have to wait (30)\n"
    "  --first-token S     until the first token (120)     --timeout S  a whole request (600)\n"
    "  --drain S           to finish what runs after SIGTERM (30)\n"
    "  --body-limit SIZE   of a request (2M)\n"
    "  --config FILE       flags as JSON: {\"models\": [\"a.gguf\"], \"port\": 8642}\n"
    "  --log FORM          text, json or off: a line a request, never what it said (text)\n"
    "  --no-sandbox        leave files and system calls open to the process\n"
    "  -t, --threads N     threads (as many as the process may use)\n"
    "  -q, --quiet         only the address\n"
    "\n"
    "Every flag has a twin in the environment: --ctx-size is RAPT_SERVE_CTX_SIZE. Flags count before\n"
    "the environment, and that before the file.\n"
    "\n"
    "Examples:\n"
    "  rapt serve model.gguf\n"
    "  rapt serve chat=qwen.gguf embed=all-MiniLM-L6-v2 --port 8080\n"
    "  rapt serve a=model.gguf b=model.gguf --cache-type b=q8_0     one file, two caches, to be compared\n"
    "  curl http://127.0.0.1:8642/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "      -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 50}'\n",
    run};

}  // namespace rapt::cli
