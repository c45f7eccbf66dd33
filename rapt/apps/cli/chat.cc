// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/cli/chat.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "rapt/apps/cli/line_editor.h"
#include "rapt/base/text.h"

namespace rapt::cli {

// ------------------------------------------------------------------------------------------------ settings

#define RAPT_SETTING(name, meaning, field, type, whole)                                  \
  NumberSetting {                                                                        \
    name, meaning, [](GenerateOptions& o, double x) { o.field = static_cast<type>(x); }, \
        [](const GenerateOptions& o) { return static_cast<double>(o.field); }, whole     \
  }

std::span<const NumberSetting> number_settings() {
  static const NumberSetting kSettings[] = {
      RAPT_SETTING("temp", "temperature; 0: always the most probable token", sampler.temperature, double, false),
      RAPT_SETTING("top-k", "only the K most probable tokens; 0: all", sampler.top_k, Dim, true),
      RAPT_SETTING("top-p", "the most probable tokens that make up P", sampler.top_p, double, false),
      RAPT_SETTING("min-p", "tokens with at least P times the largest probability", sampler.min_p, double, false),
      RAPT_SETTING("typical", "locally typical sampling with P; 1: off", sampler.typical_p, double, false),
      RAPT_SETTING("repeat-penalty", "logits of repeated tokens divided by it; 1: off", sampler.repeat_penalty, double, false),
      RAPT_SETTING("repeat-last-n", "tokens the penalties look back at; -1: all", sampler.penalty_last, Dim, true),
      RAPT_SETTING("frequency-penalty", "taken off per repetition", sampler.frequency_penalty, double, false),
      RAPT_SETTING("presence-penalty", "taken off once repeated", sampler.presence_penalty, double, false),
      RAPT_SETTING("mirostat", "1 or 2 instead of the cuts above; 0: off", sampler.mirostat, int, true),
      RAPT_SETTING("mirostat-tau", "its target surprise", sampler.mirostat_tau, double, false),
      RAPT_SETTING("mirostat-eta", "its learning rate", sampler.mirostat_eta, double, false),
      RAPT_SETTING("predict", "most tokens of an answer; -1: no limit", max_tokens, Dim, true),
  };
  return kSettings;
}
#undef RAPT_SETTING

// ------------------------------------------------------------------------------------------------ prompts

std::optional<ChatTemplate> chat_template_of(const Checkpoint& checkpoint, bool raw) {
  if (raw || checkpoint.chat_template.empty()) return std::nullopt;
  try {
    return ChatTemplate(checkpoint.chat_template, concat(checkpoint.path, ": chat template"));
  } catch (const Error& e) {
    fail(e.what(), "\n--raw runs the model without its template");
  }
}

std::vector<std::int32_t> chat_ids(const Checkpoint& checkpoint, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  const Tokenizer& t = tokenizer_of(checkpoint);
  ChatOptions options;
  if (t.bos >= 0) options.bos_token = t.text_of(t.bos);
  if (t.eos >= 0) options.eos_token = t.text_of(t.eos);
  const std::time_t now = std::time(nullptr);
  char date[16] = "";
  std::tm local{};
  if (localtime_r(&now, &local)) std::strftime(date, sizeof date, "%Y-%m-%d", &local);
  options.date = date;
  const std::vector<ChatPiece> pieces = chat.render(messages, options);
  std::vector<TextPiece> parts;
  for (const ChatPiece& p : pieces) parts.push_back({p.text, p.trusted});
  std::vector<std::int32_t> ids = t.encode(parts);
  if (t.add_bos && t.bos >= 0 && (ids.empty() || ids[0] != t.bos)) ids.insert(ids.begin(), t.bos);  // many templates write it themselves
  return ids;
}

std::vector<std::int32_t> plain_ids(const Checkpoint& checkpoint, const std::string& text, bool special) {
  const Tokenizer& t = tokenizer_of(checkpoint);
  std::vector<std::int32_t> ids = t.encode(text, special);
  const Recipe& r = checkpoint.model->recipe;
  if (r.encoder && r.decoder) return t.frame(std::move(ids));  // a source text ends
  if (t.bos >= 0 && (t.add_bos || ids.empty()) && (ids.empty() || ids[0] != t.bos)) ids.insert(ids.begin(), t.bos);
  return ids;
}

// ------------------------------------------------------------------------------------------------ one answer

namespace {
std::atomic<bool> interrupted = false;
struct sigaction before_interrupt;
}  // namespace

std::atomic<bool>& Interrupt::flag() { return interrupted; }

Interrupt::Interrupt(bool second_ends) {
  interrupted = false;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = second_ends ? SA_RESETHAND : 0;
  sigaction(SIGINT, &action, &before_interrupt);
}
Interrupt::~Interrupt() { sigaction(SIGINT, &before_interrupt, nullptr); }

std::vector<Generated> answer(Session& session, std::span<const std::int32_t> ids, const ChatSettings& settings, bool stream_text) {
  Progress bar("reading the prompt", settings.quiet);
  auto on_prompt = [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); };
  bool first = true;
  auto on_token = [&](int sample, std::int32_t, std::string_view text) {
    if (first) bar.clear();
    first = false;
    if (!stream_text || sample != 0 || text.empty()) return true;
    print(text);
    flush();
    return true;
  };
  return session.generate(ids, settings.generate, on_token, on_prompt, &Interrupt::flag());
}

void report_times(const Session& session, const ChatSettings& settings) {
  const GenerateTimes& t = session.times();
  auto line = [](const char* what, Dim tokens, double seconds, Dim computed) {  // no rate where nothing was computed
    return concat(what, tokens, tokens == 1 ? " token, " : " tokens, ", fixed(seconds, 2), " s",
                  computed > 0 && seconds > 0 ? concat(", ", fixed(static_cast<double>(computed) / seconds, 1), " tokens/s") : "");
  };
  // An answer's first token falls out of the prompt; the time is that of the others. (Beams count the rows they computed.)
  const GenerateOptions& o = settings.generate;
  const Dim computed = o.beams > 0 ? t.decoded_tokens : t.decoded_tokens - std::min<Dim>(o.samples, t.decoded_tokens);
  note(concat("load      ", fixed(settings.load_seconds, 2), " s\n", line("prompt    ", t.prompt_tokens, t.prompt_seconds, t.prompt_tokens),
              t.reused_tokens > 0 ? concat(" (", t.reused_tokens, " more were in the cache)") : "", "\n",
              line("answer    ", t.decoded_tokens, t.decode_seconds, computed), "\n", "total     ",
              fixed(settings.load_seconds + t.prompt_seconds + t.decode_seconds, 2), " s, seed ", settings.generate.sampler.seed));
}

void report_dropped(const Session& session) {
  if (session.times().dropped_tokens > 0)
    note(concat("note: streaming: ", session.times().dropped_tokens,
                " tokens between the kept first ones and the window are no longer seen"));
}

// ------------------------------------------------------------------------------------------------ conversation

namespace {

constexpr const char* kHelp =
    "  /set                 what can be set, and its value\n"
    "  /set NAME VALUE      change it: /set temp 0.2, /set system You are brief., /set seed 7\n"
    "  /clear               forget the conversation\n"
    "  /help, /?            this\n"
    "  /bye                 leave (as Ctrl-D does)\n"
    "  \"\"\"                  begins and ends a text of several lines\n"
    "  Ctrl-C               stops the answer\n";

void set_command(const std::string& words, ChatSettings& s) {
  const std::size_t space = words.find(' ');
  const std::string name = words.substr(0, space),
                    value = space == std::string::npos ? "" : words.substr(words.find_first_not_of(' ', space));
  if (name.empty()) {
    std::string list;
    for (const NumberSetting& n : number_settings())
      list += concat("  ", padded(n.name, 20), padded(shortest(n.get(s.generate)), 10), n.meaning, "\n");
    list += concat("  ", padded("seed", 20), s.generate.sampler.seed, "\n  ", padded("system", 20), s.system, "\n");
    print(list);
    return;
  }
  if (name == "system") {
    s.system = value;
    return;
  }
  std::vector<std::string> names = {"system", "seed"};
  for (const NumberSetting& n : number_settings()) names.emplace_back(n.name);
  double number = 0;
  try {
    std::size_t end = 0;
    number = std::stod(value, &end);
    if (end != value.size()) throw Error("");
  } catch (const std::exception&) {
    if (std::find(names.begin(), names.end(), name) != names.end()) fail_usage("/set ", name, ": '", value, "' is no number");
  }
  if (name == "seed") {
    s.generate.sampler.seed = static_cast<std::uint64_t>(std::max(0.0, number));
    return;
  }
  for (const NumberSetting& n : number_settings()) {
    if (name != n.name) continue;
    if (n.whole && number != std::floor(number)) fail_usage("/set ", name, ": '", value, "' is no whole number");
    GenerateOptions changed = s.generate;
    n.set(changed, number);
    check(changed.sampler);
    s.generate = changed;
    return;
  }
  fail_usage("/set: there is no '", name, "'; ", name_hint(name, names));
}

}  // namespace

int chat(Session& session, const Checkpoint& checkpoint, ChatSettings& s) {
  const std::optional<ChatTemplate> chat_template = chat_template_of(checkpoint, s.raw);
  if (!s.quiet)
    note(concat(checkpoint.path, chat_template ? "" : " (no chat template: it continues your text)", ". /help for help, Ctrl-D leaves."));
  std::vector<ChatMessage> messages;
  std::vector<std::int32_t> text;  // without a template: everything so far
  LineEditor editor;
  std::uint64_t turn = 0;
  while (true) {
    std::optional<std::string> line = editor.read(">>> ");
    if (!line) break;
    if (line->starts_with("\"\"\"")) {  // until a line that ends with the same
      std::string whole = line->substr(3);
      while (!whole.ends_with("\"\"\"")) {
        const std::optional<std::string> more = editor.read("... ");
        if (!more) break;
        whole += "\n" + *more;
      }
      if (whole.ends_with("\"\"\"")) whole.resize(whole.size() - 3);
      if (whole.starts_with('\n')) whole.erase(0, 1);
      if (whole.ends_with('\n')) whole.pop_back();
      line = whole;
    } else if (line->starts_with('/')) {
      try {
        const std::string command = line->substr(0, line->find(' '));
        const std::string rest = command.size() < line->size() ? line->substr(command.size() + 1) : "";
        if (command == "/bye" || command == "/exit" || command == "/quit") break;
        if (command == "/help" || command == "/?") print(kHelp);
        else if (command == "/clear") messages.clear(), text.clear();
        else if (command == "/set") set_command(rest, s);
        else
          fail_usage("unknown command '", command, "'; ", name_hint(command, std::vector<std::string>{"/help", "/set", "/clear", "/bye"}));
      } catch (const Error& e) {
        note(e.what());
      }
      continue;
    }
    if (line->find_first_not_of(" \t\n") == std::string::npos) continue;
    try {
      std::vector<std::int32_t> ids;
      if (chat_template) {
        std::vector<ChatMessage> all;
        if (!s.system.empty()) all.push_back({"system", s.system});
        all.insert(all.end(), messages.begin(), messages.end());
        all.push_back({"user", *line});
        ids = chat_ids(checkpoint, *chat_template, all);
      } else {
        ids = text;
        const std::vector<std::int32_t> more =
            text.empty() ? plain_ids(checkpoint, *line, s.special) : tokenizer_of(checkpoint).encode(*line, s.special);
        ids.insert(ids.end(), more.begin(), more.end());
      }
      const Interrupt interrupt(false);
      const std::vector<Generated> out = answer(session, ids, s, true);
      print("\n");
      flush();
      if (out[0].finish == Finish::cancelled) note("(stopped)");
      if (out[0].finish == Finish::length)
        note(s.generate.max_tokens >= 0 && static_cast<Dim>(out[0].ids.size()) >= s.generate.max_tokens
                 ? concat("(", s.generate.max_tokens, " tokens: --predict)")
                 : concat("(the context of ", session.context(),
                          " tokens is full; /clear begins anew, --ctx-size and --overflow stream go further)"));
      report_dropped(session);
      if (s.verbose) report_times(session, s);
      messages.push_back({"user", *line});
      messages.push_back({"assistant", out[0].text});
      if (!chat_template) {
        text = ids;
        text.insert(text.end(), out[0].ids.begin(), out[0].ids.end());
      }
      s.generate.sampler.seed += ++turn;
    } catch (const Error& e) {
      note(concat("error: ", e.what()));
    }
  }
  return 0;
}

}  // namespace rapt::cli
