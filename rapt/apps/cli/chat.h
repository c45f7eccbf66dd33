// SPDX-License-Identifier: Apache-2.0
// What `rapt run` is made of: settings that flags and /set share, one answer as it is shown, the
// conversation on a terminal. Prompts and turns are use/conversation.h's.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rapt/apps/cli/model_args.h"
#include "rapt/use/conversation.h"

namespace rapt::cli {

struct ChatSettings {
  GenerateOptions generate;
  std::string system;
  bool raw = false;      // no template
  bool special = false;  // raw: names of special tokens in the prompt become these tokens
  bool verbose = false, quiet = false;
  double load_seconds = 0;
};

// Names of numeric settings as flags and /set spell them: temp, top-k …; nullptr where unknown.
struct NumberSetting {
  const char *name, *meaning;
  void (*set)(GenerateOptions&, double);
  double (*get)(const GenerateOptions&);
  bool whole;
};
std::span<const NumberSetting> number_settings();

// A template as the checkpoint has it; absent with --raw or where there is none.
std::optional<ChatTemplate> template_unless_raw(const Checkpoint& checkpoint, bool raw);

// Ctrl-C during an answer: sets the flag instead of ending the program.
class Interrupt {
 public:
  // second_ends: a second Ctrl-C ends the program; reads: lines of input are waited for meanwhile
  explicit Interrupt(bool second_ends, bool reads = false);
  ~Interrupt();
  static std::atomic<bool>& flag();
};

// Shows an answer's text as it comes, on standard output; words are wrapped on a terminal.
using AnswerStream = std::function<void(std::string_view)>;
AnswerStream make_answer_stream();
// The first sample's text goes to `show` (where there is one), with progress over a long prompt; Ctrl-C
// stops it.
// `tokenizer`: of a model whose answers may have channels (text/channels.h).
ReplyHooks show_answer(const ChatSettings& settings, AnswerStream show, const Tokenizer* tokenizer = nullptr);
void report_times(const Session& session, const ChatSettings& settings);
// Tokens that are no longer seen.
void report_dropped(const Session& session);

// On a terminal, until the user leaves. Makes the session, and makes it anew where /set ctx-size changes it.
int chat(Device& device, const Checkpoint& checkpoint, Session::Options options, ChatSettings& settings);

}  // namespace rapt::cli
