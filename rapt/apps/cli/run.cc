// SPDX-License-Identifier: Apache-2.0
// rapt run: a prompt and its answer, or a conversation.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "rapt/apps/cli/chat.h"
#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/inspect/edits.h"
#include "rapt/io/reader.h"
#include "rapt/text/answer_parts.h"
#include "rapt/text/channels.h"
#include "rapt/text/prompt.h"
#include "rapt/use/answer_spec.h"

namespace rapt::cli {
namespace {

constexpr std::size_t kMostInput = std::size_t{1} << 28;
constexpr std::uint64_t kMostSpec = 1 << 20;  // bytes of a schema's or a grammar's file

GenerateOptions generate_args(Args& args) {
  GenerateOptions o;
  for (const NumberSetting& n : number_settings()) {
    std::optional<double> x = args.real(n.name);
    if (!x) continue;
    if (n.whole && !whole_number(*x)) fail_usage("--", n.name, ": ", *x, " is no whole number");
    n.set(o, *x);
  }
  const Dim seed = args.number("seed", -1, std::numeric_limits<Dim>::max()).value_or(-1);
  o.sampler.seed = seed >= 0 ? static_cast<std::uint64_t>(seed) : std::random_device{}();
  o.stops = args.values("stop");
  for (const std::string& s : o.stops)
    if (s.empty()) fail_usage("--stop: an empty text would stop every answer at once");
  for (const std::string& text : args.values("logit-bias")) {
    const std::size_t equals = text.find('=');
    const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
    const std::vector<std::int32_t> id = parse_ids(text.substr(0, equals), "--logit-bias");
    float x = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
    if (id.size() != 1 || error != std::errc{} || end != value.data() + value.size())
      fail_usage("--logit-bias: '", text, "' is not ID=VALUE, as in 15043=-1.5 or 1=-inf");
    o.sampler.bias.emplace_back(id[0], x);
  }
  o.ignore_eos = args.flag("ignore-eos");
  o.samples = static_cast<int>(args.number("samples", 1, 4096).value_or(1));
  o.beams = static_cast<int>(args.number("beams", 0, 4096).value_or(0));
  if (const auto x = args.real("length-penalty")) o.length_penalty = *x;
  if (const auto n = args.number("logprobs", 0, 1000))
    o.logprobs = true, o.top_logprobs = static_cast<int>(*n);
  o.chunk = args.number("chunk", 1, 1 << 20).value_or(512);
  check(o.sampler);
  return o;
}

// --schema FILE|JSON, --grammar FILE, --json-object
AnswerSpec spec_args(Args& args) {
  AnswerSpec spec;
  const std::optional<std::string> schema = args.value("schema"), grammar = args.value("grammar");
  spec.json = args.flag("json-object");
  if ((schema ? 1 : 0) + (grammar ? 1 : 0) + (spec.json ? 1 : 0) > 1)
    fail_usage("--schema, --grammar and --json-object: give one of them");
  if (schema) {
    const std::size_t first = schema->find_first_not_of(" \t\r\n");
    const bool written = first != std::string::npos && (*schema)[first] == '{';
    spec.schema =
        parse_json(written ? *schema : read_text_file(*schema, kMostSpec), written ? "--schema" : *schema);
  }
  if (grammar) {
    spec.grammar = read_text_file(*grammar, kMostSpec);
    if (spec.grammar.empty()) fail_usage("--grammar: ", *grammar, " is empty");
  }
  return spec;
}

// What such an answer says, without what the model thought.
std::string said(const SpecifiedAnswer& form, std::string_view text) {
  AnswerParser parser(form.form, {.thinks = form.thought == PromptThought::begun});
  AnswerMessage message;
  for (const AnswerPart& part : parser.push(text)) message.add(part);
  for (const AnswerPart& part : parser.finish()) message.add(part);
  return message.text;
}

const char* name_of(Finish f) {
  return f == Finish::stop ? "stop" : f == Finish::length ? "length" : "cancelled";
}

Json token_json(const Tokenizer* t, std::int32_t id, float logprob) {
  Json j = Json::Object{};
  j.set("id", static_cast<Dim>(id));
  if (t) j.set("token", bytes_json(t->bytes_of(id)));
  j.set("logprob", static_cast<double>(logprob));
  return j;
}

std::string as_json(const std::string& name, const Checkpoint& c, const Session& session,
                    const std::vector<Generated>& all, const ChatSettings& s, Dim prompt) {
  Json j = Json::Object{};
  j.set("model", name);
  j.set("seed", static_cast<Dim>(s.generate.sampler.seed & 0x7fffffffffffffff));
  j.set("prompt_tokens", prompt);
  Json::Array samples;
  for (const Generated& g : all) {
    Json one = Json::Object{};
    one.set("text", bytes_json(g.text));
    one.set("finish", std::string(name_of(g.finish)));
    Json::Array ids;
    for (std::int32_t id : g.ids) ids.emplace_back(static_cast<Dim>(id));
    one.set("ids", std::move(ids));
    if (s.generate.beams > 0) one.set("score", g.score);
    if (s.generate.logprobs) {
      Json::Array rows;
      for (const TokenChoice& t : g.tokens) {
        Json row = token_json(c.tokenizer.get(), t.id, t.logprob);
        Json::Array top;
        for (const auto& [id, logprob] : t.top) top.push_back(token_json(c.tokenizer.get(), id, logprob));
        if (!top.empty()) row.set("top", std::move(top));
        rows.push_back(std::move(row));
      }
      one.set("logprobs", std::move(rows));
    }
    samples.push_back(std::move(one));
  }
  j.set("samples", std::move(samples));
  const GenerateTimes& t = session.times();
  Json times = Json::Object{};
  times.set("load_seconds", s.load_seconds);
  times.set("cache_n", t.reused_tokens);
  times.set("prompt_n", t.prompt_tokens);
  times.set("prompt_seconds", t.prompt_seconds);
  times.set("predicted_n", t.decoded_tokens);
  times.set("predicted_seconds", t.decode_seconds);
  if (t.guessed_tokens > 0) {
    times.set("draft_n", t.guessed_tokens);
    times.set("draft_n_accepted", t.right_guesses);
  }
  j.set("timings", std::move(times));
  j.set("dropped_tokens", t.dropped_tokens);
  return j.dump() + "\n";
}

// What was typed, with standard input in the place of -, a line break between the two.
std::string prompt_text(std::span<const std::string> typed) {
  if (typed.size() == 1 && typed[0] != "-") {
    if (stdin_waits())
      note(
          "note: standard input is not read where there is a prompt; a - beside it says where it goes: rapt "
          "run MODEL - 'PROMPT' < FILE");
    return typed[0];
  }
  std::string in = read_stdin(kMostInput);
  if (in.empty())
    fail_usage(typed.size() < 2
                   ? "no prompt: standard input is empty; give the prompt behind the model, in quotes"
                   : "standard input is empty, and - stands for it");
  if (typed.size() < 2) return in;
  if (typed[0] != "-") return typed[0] + "\n" + in;
  return in + (in.ends_with('\n') ? "" : "\n") + typed[1];
}

std::string id_text(std::span<const std::int32_t> ids) {
  std::string out;
  for (std::int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

int run(Args& args) {
  CommonArgs common = common_args(args);
  lora_args(args, common);
  ChatSettings s;
  s.generate = generate_args(args);
  const AnswerSpec spec = spec_args(args);
  s.quiet = common.quiet, s.verbose = common.verbose;
  s.raw = args.flag("raw");
  s.special = args.flag("special");
  s.system = args.value("system").value_or("");
  Session::Options session_options;
  session_options.cache = cache_type(args);
  session_options.context = args.number("ctx-size", 0, Dim{1} << 40).value_or(0);
  bool stream = args.flag("stream");
  if (const auto overflow = args.value("overflow")) {
    if (*overflow != "error" && *overflow != "stream")
      fail_usage("--overflow: '", *overflow, "' is neither error nor stream");
    stream = stream || *overflow == "stream";
  }
  const std::optional<Dim> keep = args.number("keep", 0, Dim{1} << 30),
                           window = args.number("window", 1, Dim{1} << 40);
  if ((keep || window) && !stream)
    fail_usage(keep ? "--keep" : "--window", " belongs to --stream (or --overflow stream)");
  const SpeculateArgs speculate = speculate_args(args);
  const std::vector<std::string> edits = args.values("edit");
  const std::optional<std::string> ids_text = args.value("ids");
  std::vector<std::int32_t> ids;
  if (ids_text) ids = parse_ids(*ids_text, "--ids");
  const std::vector<std::string> words = args.operands(1, 3, "a model, and a prompt in quotes");
  const std::span<const std::string> typed = std::span(words).subspan(1);
  const auto dashes = std::count(typed.begin(), typed.end(), "-");
  if (typed.size() > 1 && dashes != 1)
    fail_usage(dashes == 0 ? "one prompt, please: put it in quotes (- beside it stands for standard input)"
                           : "standard input is read once: one - will do");
  if (ids_text && !typed.empty()) fail_usage("--ids is the prompt already; leave the text away");
  if (s.generate.logprobs && !common.json)
    fail_usage("--logprobs: log-probabilities are part of the JSON; add --json");

  // Standard input is read where - stands, or where there is no prompt at all; a loop that reads lines for
  // us keeps its own.
  const bool interactive = typed.empty() && !ids_text && is_terminal_stdin();
  std::string prompt;
  if (!interactive && !ids_text) prompt = prompt_text(typed);
  if (interactive && common.json) fail_usage("--json needs a prompt");
  if (interactive && (s.generate.samples > 1 || s.generate.beams > 0))
    fail_usage("--samples and --beams need a prompt");
  if (interactive && spec.any()) fail_usage("--schema, --grammar and --json-object need a prompt");

  OpenModel m = open_model(words[0], common);
  const Checkpoint& c = m.checkpoint;
  s.load_seconds = m.seconds;
  const Recipe& r = c.model->recipe;
  std::optional<Checkpoint> draft;
  if (!speculate.draft.empty()) draft = open_draft(speculate.draft, m, common);
  session_options.speculate = speculate.how;
  session_options.draft = draft ? &*draft : nullptr;
  if (stream) {
    const Dim kept = keep.value_or(4),
              context = session_options.context > 0 ? session_options.context : r.context;
    if (!window && context <= kept)
      fail_usage("--stream: a context of ", context, " tokens leaves no window beside ", kept, " kept ones");
    session_options.stream = {kept, window.value_or(context - kept)};
    if (!common.quiet && remembers_by_state(r))
      note(
          "note: layers with a state (delta rule, short convolution) remember all of the text; "
          "only attention forgets what leaves the window");
  }
  if (session_options.context > r.context && !stream)
    note(concat("note: a context of ", session_options.context,
                " tokens is more than the model was made for (", r.context, "): answers may become worse"));
  Taps taps;
  const auto check_edits = install_edits(taps, *c.model, parse_edits(edits), Passes::many);
  if (!edits.empty()) session_options.taps = &taps;
  const bool translates = r.encoder && r.decoder;
  if (interactive && !translates) return chat(*m.device, c, session_options, s);
  if (interactive) fail_usage(words[0], " translates: give it a text");
  Session session(*m.device, c, session_options);

  std::optional<ChatTemplate> chat_template;
  if (!ids_text && !translates) chat_template = template_unless_raw(c, s.raw);
  if (ids_text) {
  } else if (chat_template) {
    std::vector<ChatMessage> messages;
    if (!s.system.empty()) messages.push_back({"system", s.system});
    messages.push_back({"user", prompt});
    ids = chat_ids(tokenizer_of(c), *chat_template, messages);
  } else {
    if (!s.system.empty())
      fail_usage("--system: ", words[0],
                 s.raw ? " runs without its chat template (--raw)" : " has no chat template",
                 "; put the text into the prompt");
    ids = prompt_ids(c, prompt, s.special);
  }

  SpecifiedAnswer specified;
  if (spec.any()) {
    if (translates) fail_usage(words[0], " translates; what it says has no other form");
    specified = specify_answer(c, spec, chat_template ? &*chat_template : nullptr, ids, session.stops());
    session.constrain(specified.constraint);
    s.generate.shown_ids = specified.shown_ids;
  }
  const bool told_apart = specified.form.channels || !specified.form.think_begin.empty();

  const Interrupt interrupt(true);
  const bool one = s.generate.samples == 1;
  std::vector<Generated> all;
  const bool streams = !common.json && one && c.tokenizer && !told_apart;
  if (translates) {
    all = session.translate(
        ids, s.generate,
        [&](int, std::int32_t, std::string_view text) {
          if (streams) print(for_stdout(text)), flush();
          return true;
        },
        &Interrupt::flag());
  } else {
    const ReplyHooks hooks =
        show_answer(s, streams ? make_answer_stream() : AnswerStream{}, c.tokenizer.get());
    all = session.generate(ids, s.generate, hooks.on_token, hooks.on_prompt, hooks.cancel);
  }
  check_edits();
  if (told_apart)
    for (Generated& g : all) g.text = said(specified, g.text);
  if (common.json) print(as_json(words[0], c, session, all, s, static_cast<Dim>(ids.size())));
  else if (streams) print("\n");
  else
    for (std::size_t i = 0; i < all.size(); ++i)
      print(concat(one ? "" : concat("[", i + 1, "] "),
                   told_apart    ? for_stdout(all[i].text)
                   : c.tokenizer ? for_stdout(answer_text(*c.tokenizer, all[i].ids, all[i].text))
                                 : id_text(all[i].ids),
                   "\n"));
  flush();
  const Dim limit = s.generate.max_tokens;
  if (!common.quiet && all[0].finish == Finish::length &&
      (limit < 0 || static_cast<Dim>(all[0].ids.size()) < limit))
    note(concat("note: the answer ends because the context of ", session.context(),
                " tokens is full; --ctx-size or --overflow stream go further"));
  report_dropped(session);
  if (s.verbose) report_times(session, s);
  return all[0].finish == Finish::cancelled ? 130 : 0;
}

}  // namespace

extern const Verb kRun;
const Verb kRun = {
    "run", "answer a prompt, or chat",
    "Usage: rapt run MODEL [PROMPT] [flags]\n"
    "\n"
    "MODEL is a GGUF file, a Hugging Face folder, a llama2.c file, or the name of one in a folder of\n"
    "RAPT_MODELS; the beginning of a name, in any case, will do where only one begins so (rapt list shows\n"
    "them). Without a PROMPT it is a conversation on a terminal (Ctrl-C stops the answer, Ctrl-D leaves,\n"
    "/help tells the rest); elsewhere standard input is the prompt. A - before or behind the PROMPT stands\n"
    "for standard input, which is not read otherwise. A model with a chat template answers; one without\n"
    "continues the text.\n"
    "\n"
    "  --system TEXT            the system message of the chat template\n"
    "  --raw                    no chat template: continue the text; --special: names of special tokens in\n"
    "                           it become these tokens\n"
    "  --ids \"1 2 3\"            the prompt as token ids\n"
    "  -n, --max-tokens N       at most N tokens (until the model stops)\n"
    "  -c, --ctx-size N         tokens of prompt and answer together (the model's own)\n"
    "  --overflow error|stream  a prompt that is too long: an error, or forget what lies between the first\n"
    "                           tokens and the last (error)\n"
    "  --stream --keep 4 --window N   the same from the start: the first 4 tokens and the last N are seen,\n"
    "                                 without end\n"
    "  --cache-type T           how keys and values are kept: f32, f16, bf16, q8_0, q4_0 (f32)\n"
    "  --stop TEXT              the answer ends before TEXT; may be given many times\n"
    "  --ignore-eos             never end by itself\n"
    "\n"
    "  The form of the answer, which every token keeps to:\n"
    "  --schema FILE|JSON       JSON of this schema\n"
    "  --json-object            any JSON object\n"
    "  --grammar FILE           a text of this grammar (GBNF)\n"
    "\n"
    "  Choice of tokens, in this order:\n"
    "  --logit-bias ID=V        added to a token's logit; -inf forbids it\n"
    "  --repeat-penalty X (1)   --frequency-penalty X (0)   --presence-penalty X (0)\n"
    "  --repeat-last-n N (64)\n"
    "  --top-k N (40)   --typical P (1)   --top-p P (0.95)   --min-p P (0.05)\n"
    "  --mirostat 1|2 (0)   --mirostat-tau X (5)   --mirostat-eta X (0.1)      instead of the line above\n"
    "  --temp T                 (0.8); 0: always the most probable token\n"
    "  -s, --seed N             (another one each time)\n"
    "  --samples N              N answers to one prompt, computed together\n"
    "  --beams N                beam search instead; --length-penalty X (1): score = sum of\n"
    "                           log-probabilities / length^X\n"
    "\n"
    "  --speculate off|lookup|draft   tokens are guessed and checked several at a time where it is faster;\n"
    "                           no bit of the answer depends on it (lookup: from what the text said before)\n"
    "  --draft MODEL            … guesses are what this smaller model of the same vocabulary says\n"
    "\n"
    "  --edit SPEC              changes what the model computes while it answers, may come many times:\n"
    "                           L5H3:zero switches a head off, resid_post.8:add=FILE.npy steers; rapt help\n"
    "                           inspect has the whole form\n"
    "\n"
    "  --lora FILE[=SCALE]      an adapter (LoRA) beside the model's weights: a folder of PEFT, or a GGUF\n"
    "                           file; may come many times, and they add up\n"
    "\n"
    "  --json                   text, ids, times as JSON; --logprobs N adds each token's log-probability\n"
    "                           and the N most probable\n"
    "  -b, --chunk N            prompt tokens per pass (512)\n"
    "  --verbose                times on standard error\n"
    "  -t, --threads N          threads (as many as the process may use)\n"
    "  -q, --quiet              no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt run smollm2\n"
    "  rapt run model.gguf 'Why is the sky blue?' --temp 0 -n 100\n"
    "  rapt run model.gguf 'Sum this up in one line:' - < article.txt\n"
    "  rapt run stories260K.bin 'Once upon a time' --seed 7 --verbose\n"
    "  rapt run model.gguf 'A person:' --schema '{\"properties\": {\"name\": {\"type\": \"string\"}}}'\n"
    "  rapt run model.gguf --json --samples 3 --logprobs 5 'Two plus two is' --raw\n",
    run};

}  // namespace rapt::cli
