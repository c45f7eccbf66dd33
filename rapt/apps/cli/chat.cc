// SPDX-License-Identifier: Apache-2.0
// Settings, how an answer is shown, the chat with its commands.
#include "rapt/apps/cli/chat.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>

#include "rapt/apps/cli/help_text.h"
#include "rapt/apps/cli/line_editor.h"
#include "rapt/apps/cli/word_wrap.h"
#include "rapt/base/checked.h"
#include "rapt/base/terminal.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/text/channels.h"

namespace rapt::cli {

// ------------------------------------------------------------------------------------------------ settings

#define RAPT_SETTING(name, meaning, field, type, whole)                                \
  NumberSetting {                                                                      \
    name, meaning, [](GenerateOptions& o, double x) { o.field = saturated<type>(x); }, \
        [](const GenerateOptions& o) { return static_cast<double>(o.field); }, whole   \
  }

std::span<const NumberSetting> number_settings() {
  static const NumberSetting kSettings[] = {
      RAPT_SETTING("temp", "temperature; 0: always the most probable token", sampler.temperature, double,
                   false),
      RAPT_SETTING("top-k", "only the K most probable tokens; 0: all", sampler.top_k, Dim, true),
      RAPT_SETTING("top-p", "the most probable tokens that make up P", sampler.top_p, double, false),
      RAPT_SETTING("min-p", "tokens with at least P times the largest probability", sampler.min_p, double,
                   false),
      RAPT_SETTING("typical", "locally typical sampling with P; 1: off", sampler.typical_p, double, false),
      RAPT_SETTING("repeat-penalty", "logits of repeated tokens divided by it; 1: off",
                   sampler.repeat_penalty, double, false),
      RAPT_SETTING("repeat-last-n", "tokens the penalties look back at; -1: all", sampler.penalty_last, Dim,
                   true),
      RAPT_SETTING("frequency-penalty", "taken off per repetition", sampler.frequency_penalty, double, false),
      RAPT_SETTING("presence-penalty", "taken off once repeated", sampler.presence_penalty, double, false),
      RAPT_SETTING("mirostat", "1 or 2 instead of the cuts above; 0: off", sampler.mirostat, int, true),
      RAPT_SETTING("mirostat-tau", "its target surprise", sampler.mirostat_tau, double, false),
      RAPT_SETTING("mirostat-eta", "its learning rate", sampler.mirostat_eta, double, false),
      RAPT_SETTING("max-tokens", "most tokens of an answer; -1: no limit", max_tokens, Dim, true),
  };
  return kSettings;
}
#undef RAPT_SETTING

std::optional<ChatTemplate> template_unless_raw(const Checkpoint& checkpoint, bool raw) {
  if (raw) return std::nullopt;
  try {
    return open_chat_template(checkpoint);
  } catch (const Error& e) {
    fail(e.what(), "\n--raw runs the model without its template");
  }
}

// ----------------------------------------------------------------------------------------------- one answer

namespace {
std::atomic<bool> interrupted = false;
struct sigaction before_interrupt;
}  // namespace

std::atomic<bool>& Interrupt::flag() { return interrupted; }

Interrupt::Interrupt(bool second_ends, bool reads) {
  interrupted = false;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = true; };
  // A terminal that is slow to take what is printed must not see the write break off; who waits for a line
  // wants to be woken.
  action.sa_flags = (reads ? 0 : SA_RESTART) | (second_ends ? SA_RESETHAND : 0);
  sigaction(SIGINT, &action, &before_interrupt);
}
Interrupt::~Interrupt() { sigaction(SIGINT, &before_interrupt, nullptr); }

AnswerStream make_answer_stream() {
  if (!has_escapes(STDOUT_FILENO)) return [](std::string_view text) { print(for_stdout(text)), flush(); };
  return [wrap = WordWrap()](std::string_view text) mutable {
    print(wrap.add(visible(text), terminal_size(STDOUT_FILENO).columns));
    flush();
  };
}

ReplyHooks show_answer(const ChatSettings& settings, AnswerStream show, const Tokenizer* tokenizer) {
  if (show && tokenizer && AnswerChannels(*tokenizer).active()) {
    // Thoughts are shown to who sits before it, apart from the answer; a file gets the answer alone.
    using Part = AnswerChannels::Part;
    const bool sees = has_escapes(STDOUT_FILENO);
    auto shown = std::make_shared<Part>(Part::header);
    auto channels = std::make_shared<AnswerChannels>(*tokenizer);
    ReplyHooks hooks = show_answer(settings, std::move(show));
    hooks.on_token = [=, next = std::move(hooks.on_token)](int sample, std::int32_t id,
                                                           std::string_view text) {
      const Part part = channels->push(id, text);
      const bool says = part == Part::answer || (sees && part != Part::header);
      std::string lead;
      if (says && !text.empty() && part != *shown) {
        if (sees && *shown != Part::header) lead = "\n\n";
        if (part != Part::answer) lead += part == Part::thinking ? "(thinking) " : "(call) ";
        *shown = part;
      }
      return next(sample, id, says ? lead + std::string(text) : std::string());
    };
    return hooks;
  }
  // One bar for each prompt that is read: an answer that fills the context begins another.
  auto bar = std::make_shared<std::optional<Progress>>();
  return {.on_token =
              [bar, show = std::move(show)](int sample, std::int32_t, std::string_view text) {
                bar->reset();
                if (show && sample == 0 && !text.empty()) show(text);
                return true;
              },
          .on_prompt =
              [bar, quiet = settings.quiet](Dim done, Dim of) {
                if (!*bar) bar->emplace("reading the prompt", quiet);
                (*bar)->step(static_cast<double>(done), static_cast<double>(of));
              },
          .cancel = &Interrupt::flag()};
}

void report_times(const Session& session, const ChatSettings& settings) {
  const GenerateTimes& t = session.times();
  // No rate where nothing was computed.
  auto line = [](const char* what, Dim tokens, double seconds, Dim computed) {
    return concat(what, counted(tokens, "token"), ", ", fixed(seconds, 2), " s",
                  computed > 0 && seconds > 0
                      ? concat(", ", fixed(static_cast<double>(computed) / seconds, 1), " tokens/s")
                      : "");
  };
  // An answer's first token falls out of the prompt; the time is that of the others. (Beams count the rows
  // they computed.)
  const GenerateOptions& o = settings.generate;
  const Dim computed =
      o.beams > 0 ? t.decoded_tokens : t.decoded_tokens - std::min<Dim>(o.samples, t.decoded_tokens);
  note(concat("load      ", fixed(settings.load_seconds, 2), " s\n",
              line("prompt    ", t.prompt_tokens, t.prompt_seconds, t.prompt_tokens),
              t.reused_tokens > 0 ? concat(" (", t.reused_tokens, " more were in the cache)") : "", "\n",
              line("answer    ", t.decoded_tokens, t.decode_seconds, computed),
              t.guessed_tokens > 0
                  ? concat(" (", t.right_guesses, " of ", t.guessed_tokens, " guesses were right)")
                  : "",
              "\n", "total     ", fixed(settings.load_seconds + t.prompt_seconds + t.decode_seconds, 2),
              " s, seed ", settings.generate.sampler.seed));
}

void report_dropped(const Session& session) {
  if (session.times().dropped_tokens > 0)
    note(concat("note: streaming: ", session.times().dropped_tokens,
                " tokens between the kept first ones and the window are no longer seen"));
}

// --------------------------------------------------------------------------------------------- conversation

namespace {

constexpr const char* kHelp =
    "  /set                 what can be set, and its value\n"
    "  /set NAME VALUE      change it: /set temp 0.2, /set system You are brief., /set ctx-size 4096\n"
    "  /regen               another answer to the last message\n"
    "  /undo                forget the last message and its answer\n"
    "  /clear               forget the conversation\n"
    "  /show                the conversation so far\n"
    "  /save FILE           write it as JSON; /load FILE goes on with it\n"
    "  /help, /?            this\n"
    "  /bye                 leave (as Ctrl-D does)\n"
    "\n"
    "  Alt-Enter            begins a new line; so do pasted ones, and lines between \"\"\" and \"\"\"\n"
    "  Up, Down, Ctrl-R     earlier messages, search in them\n"
    "  Ctrl-C               stops the answer\n";

// What /set did, in words.
std::string set_command(const std::string& words, ChatSettings& s) {
  const std::size_t space = words.find(' ');
  const std::string name = words.substr(0, space),
                    value = space == std::string::npos
                                ? ""
                                : words.substr(std::min(words.find_first_not_of(' ', space), words.size()));
  if (name.empty()) {
    std::string list;
    for (const NumberSetting& n : number_settings())
      list += concat("  ", padded(n.name, 20), padded(shortest(n.get(s.generate)), 10), n.meaning, "\n");
    return concat(list, "  ", padded("seed", 20), s.generate.sampler.seed, "\n  ", padded("system", 20),
                  s.system);
  }
  if (name == "system") {
    s.system = value;
    return value.empty() ? "(no system message)" : concat("(system: ", value, ")");
  }
  std::vector<std::string> names = {"system", "seed", "ctx-size"};
  for (const NumberSetting& n : number_settings()) names.emplace_back(n.name);
  double number = 0;
  try {
    std::size_t end = 0;
    number = std::stod(value, &end);
    if (end != value.size()) throw Error("");
  } catch (const std::exception&) {
    if (std::find(names.begin(), names.end(), name) != names.end())
      fail_usage("/set ", name, ": '", value, "' is no number");
  }
  if (name == "seed") {
    s.generate.sampler.seed = static_cast<std::uint64_t>(std::clamp(number, 0.0, 9e15));
    return concat("(seed: ", s.generate.sampler.seed, ")");
  }
  for (const NumberSetting& n : number_settings()) {
    if (flag_name(name) != n.name) continue;
    if (n.whole && number != std::floor(number))
      fail_usage("/set ", name, ": '", value, "' is no whole number");
    GenerateOptions changed = s.generate;
    n.set(changed, number);
    check(changed.sampler);
    const double before = n.get(s.generate);
    s.generate = changed;
    return concat("(", name, ": ", shortest(before), " → ", shortest(number), ")");
  }
  fail_usage("/set: there is no '", name, "'; ", name_hint(name, names));
}

std::string file_name(const std::string& path) {  // without folders and endings
  std::string name = path.substr(path.find_last_of('/', path.size() > 1 ? path.size() - 2 : 0) + 1);
  while (name.ends_with('/')) name.pop_back();
  return name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name;
}

// One conversation on a terminal: commands, messages, answers.
class Chat {
 public:
  Chat(Device& device, const Checkpoint& checkpoint, Session::Options options, ChatSettings& settings)
      : device_(device),
        checkpoint_(checkpoint),
        options_(options),
        settings_(settings),
        session_(std::make_unique<Session>(device, checkpoint, options)),
        talk_(checkpoint, template_unless_raw(checkpoint, settings.raw)),
        editor_(History::default_path(), STDIN_FILENO,
                is_terminal(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO) {
    talk_.system = settings.system, talk_.special = settings.special;
  }

  int run() {
    if (!settings_.quiet)
      note(concat(file_name(checkpoint_.path), ", ",
                  short_count(static_cast<double>(checkpoint_.model->parameters())),
                  " parameters, context of ", counted(session_->context(), "token"),
                  talk_.has_template() ? "" : ", no chat template: it continues your text",
                  ".\n/help for help, Ctrl-D leaves.\n"));
    while (true) {
      std::optional<std::string> line = read_message();
      if (!line) return 0;
      if (editor_.interrupted()) {
        note("(Ctrl-D or /bye leaves)");
        continue;
      }
      try {
        if (line->starts_with('/') && line->find('\n') == std::string::npos) {
          if (!command(*line)) return 0;
        } else if (line->find_first_not_of(" \t\n") != std::string::npos) {
          reply(*line);
        }
      } catch (const Error& e) {
        note(concat("error: ", e.what(), "\n"));
      }
    }
  }

 private:
  std::optional<std::string> read_message() {
    flush();
    std::optional<std::string> line = editor_.read(">>> ");
    if (!line || !line->starts_with("\"\"\"")) return line;
    std::string whole = line->substr(3);  // until a line that ends with the same
    while (!whole.ends_with("\"\"\"")) {
      const std::optional<std::string> more = editor_.read("... ");
      if (!more || editor_.interrupted()) return more;
      whole += "\n" + *more;
    }
    whole.resize(whole.size() - 3);
    if (whole.starts_with('\n')) whole.erase(0, 1);
    if (whole.ends_with('\n')) whole.pop_back();
    return whole;
  }

  bool command(const std::string& line) {  // false: leave
    const std::string name = line.substr(0, line.find(' '));
    std::string rest = name.size() < line.size() ? line.substr(name.size() + 1) : "";
    rest.erase(rest.find_last_not_of(' ') + 1);
    rest.erase(0, rest.find_first_not_of(' '));
    if (name == "/bye" || name == "/exit" || name == "/quit") return false;
    if (name == "/help" || name == "/?") {
      print(folded_help(kHelp, columns_of_stdout()) + "\n");
    } else if (name == "/clear") {
      talk_.clear();
      note("(the conversation is forgotten)\n");
    } else if (name == "/set" && (rest == "ctx-size" || rest.starts_with("ctx-size "))) {
      set_context(rest.substr(8));
    } else if (name == "/set") {
      note(concat(set_command(rest, settings_),
                  rest.empty() ? concat("\n  ", padded("ctx-size", 20), session_->context()) : "", "\n"));
      talk_.system = settings_.system;
    } else if (name == "/undo") {
      note(talk_.undo() ? "(the last message and its answer are forgotten)\n"
                        : "(there is nothing to forget)\n");
    } else if (name == "/regen") {
      if (talk_.turns().empty()) fail_usage("/regen: there is no answer yet");
      const std::string user = talk_.turns().back().user;
      talk_.undo();
      reply(user);
    } else if (name == "/show") {
      for (const Conversation::Turn& t : talk_.turns()) {
        print(concat(">>> ", for_stdout(t.user), "\n"));
        make_answer_stream()(t.answer);
        print("\n\n");
      }
      if (talk_.turns().empty()) note("(nothing was said yet)\n");
    } else if (name == "/save" || name == "/load") {
      if (rest.empty()) fail_usage(name, " FILE: which file?");
      if (name == "/save") {
        FileWriter out(rest, false);
        out.write(talk_.json().dump() + "\n");
        out.commit();
      } else {
        talk_.load(parse_json(read_text_file(rest), rest));
      }
      note(concat("(", counted(static_cast<Dim>(talk_.turns().size()), "turn"),
                  name == "/save" ? " saved to " : " read from ", rest, ")\n"));
    } else {
      fail_usage("unknown command '", name, "'; ",
                 name_hint(name, std::vector<std::string>{"/help", "/set", "/clear", "/regen", "/undo",
                                                          "/show", "/save", "/load", "/bye"}));
    }
    return true;
  }

  void set_context(const std::string& value) {
    char* end = nullptr;
    const Dim n = std::strtoll(value.c_str(), &end, 10);
    if (*end != 0 || n < 16) fail_usage("/set ctx-size: '", value, "' is no whole number from 16 on");
    if (options_.stream.window > 0)
      fail_usage("/set ctx-size: windows slide (--stream), so there is no end to reach");
    Session::Options changed = options_;
    changed.context = n;
    auto made = std::make_unique<Session>(device_, checkpoint_, changed);
    const Dim before = session_->context();
    session_ = std::move(made);
    options_ = changed;
    note(concat("(ctx-size: ", before, " → ", n, ")\n"));
  }

  void reply(const std::string& user) {
    const Interrupt interrupt(false);
    const Dim context = options_.stream.window > 0 ? 0 : session_->context(),
              limit = settings_.generate.max_tokens;
    ReplyHooks hooks = show_answer(settings_, make_answer_stream(), checkpoint_.tokenizer.get());
    std::size_t left_out = 0;  // in the middle of the answer: said behind it
    bool begun = false;
    hooks.on_token = [&, show = std::move(hooks.on_token)](int sample, std::int32_t id,
                                                           std::string_view text) {
      begun = true;
      return show(sample, id, text);
    };
    hooks.on_left_out = [&](std::size_t n) {
      if (begun) left_out += n;
      else say_left_out(n);
    };
    const Generated all = talk_.reply(*session_, user, settings_.generate, context, hooks);
    print("\n");
    flush();
    say_left_out(left_out);
    if (all.finish == Finish::cancelled) note("(stopped)");
    if (all.finish == Finish::length)
      note(limit >= 0 && static_cast<Dim>(all.ids.size()) >= limit
               ? concat("(", counted(limit, "token"), ": --max-tokens)")
               : concat("(the context of ", counted(context, "token"),
                        " is full, so the answer ends here; /set ctx-size N gives more room)"));
    report_dropped(*session_);
    if (settings_.verbose) report_times(*session_, settings_);
    print("\n");
    settings_.generate.sampler.seed += ++turn_;
  }

  void say_left_out(std::size_t n) const {
    if (n == 0) return;
    note(concat("(the context of ", counted(session_->context(), "token"), " is full: the oldest ",
                counted(static_cast<Dim>(n), talk_.has_template() ? "turn" : "token"),
                n == 1 ? " is" : " are", " no longer read)"));
  }

  Device& device_;
  const Checkpoint& checkpoint_;
  Session::Options options_;
  ChatSettings& settings_;
  std::unique_ptr<Session> session_;
  Conversation talk_;
  LineEditor editor_;
  std::uint64_t turn_ = 0;
};

}  // namespace

int chat(Device& device, const Checkpoint& checkpoint, Session::Options options, ChatSettings& settings) {
  return Chat(device, checkpoint, options, settings).run();
}

}  // namespace rapt::cli
