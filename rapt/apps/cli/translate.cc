// SPDX-License-Identifier: Apache-2.0
// rapt translate: lines of text through an encoder-decoder, and what it looked at.
#include <filesystem>
#include <iostream>

#include "rapt/apps/cli/chat.h"
#include "rapt/apps/cli/translate.h"
#include "rapt/base/clock.h"
#include "rapt/base/text.h"
#include "rapt/inspect/alignment.h"
#include "rapt/io/gzip.h"

namespace rapt::cli {

TranslateOptions translate_args(Args& args) {
  TranslateOptions o;
  o.generate.sampler.temperature = 0;
  o.generate.beams = static_cast<int>(args.number("beams", 1, 1024).value_or(4));
  o.generate.length_penalty = args.real("length-penalty").value_or(1);
  if (const auto form = args.value("penalty-form")) {
    const std::vector<std::string> names = {"power", "gnmt"};
    if (*form != "power" && *form != "gnmt")
      fail_usage("--penalty-form: '", *form, "' is no form; ", name_hint(*form, names));
    if (*form == "gnmt") o.generate.penalty_form = GenerateOptions::PenaltyForm::gnmt;
  }
  o.generate.max_tokens = args.number("max-tokens", 1, Dim{1} << 30).value_or(256);
  o.side = args.number("batch", 1, 4096).value_or(16);
  o.prefix = args.value("prefix").value_or("");
  return o;
}

namespace {

constexpr std::size_t kMostInput = std::size_t{1} << 30;

struct AlignmentWish {
  std::string place;  // "-", or a file
  AlignmentOptions options;
  bool force = false;
};

std::optional<AlignmentWish> alignment_args(Args& args) {
  const std::optional<std::string> place = args.value("alignment"), layer = args.value("alignment-layer");
  const std::optional<Dim> head = args.number("alignment-head", 0, 100000);
  const bool tokens = args.flag("alignment-tokens");
  if (!place) {
    if (layer || head || tokens)
      fail_usage(
          "--alignment-layer, --alignment-head and --alignment-tokens say how "
          "--alignment looks; give that too");
    return std::nullopt;
  }
  AlignmentWish w{.place = *place, .options = {}};
  if (*place != "-") check_picture_name(*place, true);
  w.options.words = !tokens;
  if (head) w.options.head = static_cast<int>(*head);
  if (layer && *layer == "all") {
    w.options.layers = AlignmentOptions::Layers::all;
  } else if (layer) {
    char* end = nullptr;
    const long n = std::strtol(layer->c_str(), &end, 10);
    if (layer->empty() || *end || n < -100000 || n > 100000)
      fail_usage("--alignment-layer: '", *layer, "' is neither a number nor 'all'");
    w.options.layers = AlignmentOptions::Layers::one;
    w.options.layer = static_cast<int>(n);
  }
  return w;
}

// name.svg for one line, name-17.svg for line 17 of many.
std::string picture_name(const std::string& place, std::size_t line, bool many) {
  if (!many) return place;
  const std::size_t dot = place.rfind('.');
  return concat(place.substr(0, dot), "-", line + 1, place.substr(dot));
}

Json alignment_json(const Alignment& a) {
  Json j = Json::Object{};
  Json::Array source, target, rows;
  for (const std::string& s : a.source) source.emplace_back(bytes_json(s));
  for (const std::string& s : a.target) target.emplace_back(bytes_json(s));
  for (std::size_t t = 0; t < a.target.size(); ++t) {
    Json::Array row;
    for (std::size_t s = 0; s < a.source.size(); ++s) row.emplace_back(a.weights[t * a.source.size() + s]);
    rows.emplace_back(std::move(row));
  }
  j.set("source", std::move(source));
  j.set("target", std::move(target));
  j.set("weights", std::move(rows));
  return j;
}

const char* name_of(Finish f) {
  return f == Finish::stop ? "stop" : f == Finish::length ? "length" : "cancelled";
}

Json line_json(std::size_t index, const std::string& source, const TranslatedLine& t) {
  Json j = Json::Object{};
  j.set("index", static_cast<Dim>(index));
  j.set("source", bytes_json(source));
  j.set("text", bytes_json(t.text));
  Json::Array answers;
  for (const Generated& g : t.answers) {
    Json one = Json::Object{};
    Json::Array ids;
    for (std::int32_t id : g.ids) ids.emplace_back(static_cast<Dim>(id));
    one.set("text", bytes_json(g.text));
    one.set("score", g.score);
    one.set("finish", std::string(name_of(g.finish)));
    one.set("ids", std::move(ids));
    answers.push_back(std::move(one));
  }
  j.set("answers", std::move(answers));
  return j;
}

int run(Args& args) {
  CommonArgs common = common_args(args);
  lora_args(args, common);
  TranslateOptions o = translate_args(args);
  const Dim best = args.number("n-best", 1, 1024).value_or(1);
  if (best > o.generate.beams)
    fail_usage("--n-best ", best, " of ", o.generate.beams,
               " beams; a search gives at most as many answers as it has beams");
  if (best > 1 && !common.json)
    fail_usage("--n-best: several answers to a line are part of the JSON; add --json");
  o.generate.samples = static_cast<int>(best);
  const std::optional<std::string> in = args.value("in"), out = args.value("out");
  std::optional<AlignmentWish> wish = alignment_args(args);
  const bool force = args.flag("force");
  if (wish) wish->force = force;
  const std::vector<std::string> words = args.operands(1, std::size_t{1} << 20, "a model, and texts");
  const bool typed = words.size() > 1 && !(words.size() == 2 && words[1] == "-");
  if (in && words.size() > 1)
    fail_usage("--in names the text already; leave ", words.size() == 2 ? "the word" : "the words",
               " after the model away");
  const bool talk = !in && !typed && is_terminal_stdin() && !out;

  std::vector<std::string> lines;
  if (in) {
    lines = text_lines(*in == "-" ? read_stdin(kMostInput) : read_text_or_gz(*in, kMostInput));
  } else if (typed) {
    for (std::size_t i = 1; i < words.size(); ++i)
      for (std::string& line : text_lines(words[i] + "\n")) lines.push_back(std::move(line));
  } else if (!talk) {
    lines = text_lines(read_stdin(kMostInput));
  }
  if (out && *out != "-" && !force && std::filesystem::exists(*out))
    fail(*out, ": exists already; --force overwrites it");

  const OpenModel m = open_model(words[0], common);
  const Checkpoint& c = m.checkpoint;
  if (!c.model->encoder || !c.model->decoder)
    fail(words[0], " (", c.family,
         ") is no encoder-decoder: it has no source to translate from; use `rapt run`");
  tokenizer_of(c);
  Session session(*m.device, c, {});
  std::optional<FileWriter> file;
  if (out && *out != "-") file.emplace(*out, force);
  auto put = [&](const std::string& text) {
    if (file) file->write(text);
    else print(for_stdout(text));
  };
  const Interrupt interrupt(true, talk);

  auto translate = [&](std::span<const std::string> some, std::size_t first) {
    const bool many = some.size() > 1 || talk;
    Progress bar("translating", common.quiet || talk);
    const bool at_once = !common.json && !wish;  // a line as soon as it is there
    const std::vector<TranslatedLine> done = translate_lines(
        session, c, some, o,
        [&](std::size_t, const TranslatedLine& t) {
          if (!at_once) return;
          bar.clear();
          put(t.text + "\n");
          if (!file) flush();
        },
        [&](std::size_t n) { bar.step(static_cast<double>(n), static_cast<double>(some.size())); },
        &Interrupt::flag());
    bar.clear();
    if (at_once) return;
    for (std::size_t i = 0; i < done.size(); ++i) {
      const TranslatedLine& t = done[i];
      std::optional<Alignment> look;
      if (wish && !t.answers.empty() && !(t.answers[0].ids.empty() && t.answers[0].finish != Finish::stop)) {
        std::vector<std::int32_t> target = t.answers[0].ids;
        const std::int32_t end = c.tokenizer->eos;
        if (t.answers[0].finish == Finish::stop && end >= 0) target.push_back(end);
        if (!target.empty()) look = alignment(*m.device, c, t.source, target, wish->options);
      }
      if (common.json) {
        Json j = line_json(first + i, some[i], t);
        if (look && wish->place == "-") j.set("alignment", alignment_json(*look));
        put(j.dump(0) + "\n");
      } else {
        put(t.text + "\n");
        if (look && wish->place == "-")
          print(heat_text(heat_map(*look, ""), color_on_stdout(), columns_of_stdout()) + (many ? "\n" : ""));
      }
      if (!look || wish->place == "-") continue;
      const std::string name = picture_name(wish->place, first + i, many);
      write_picture(heat_map(*look, ""), name, wish->force);
      if (!common.quiet)
        note(concat(name, ": ", look->target.size(), " words of the translation, ", look->source.size(),
                    " of the source"));
    }
    flush();
  };

  const auto started = Clock::now();
  Dim decoded = 0, sources = 0;
  if (talk) {
    std::size_t n = 0;
    std::cin.exceptions(std::ios::badbit);  // a line there is no memory for is not the end of the text
    for (std::string line; !Interrupt::flag() && std::getline(std::cin, line);)
      translate(std::span(&line, 1), n++);
  } else {
    translate(lines, 0);
    decoded = session.times().decoded_tokens, sources = session.times().prompt_tokens;
  }
  if (file && !Interrupt::flag()) file->commit();
  if (common.verbose && !talk) {
    const double seconds = seconds_since(started);
    note(concat(counted(static_cast<Dim>(lines.size()), "line"), ", ", counted(sources, "source token"), ", ",
                counted(decoded, "row"), " decoded in ", fixed(seconds, 2),
                " s: ", fixed(static_cast<double>(lines.size()) / seconds, 1), " lines/s on ",
                counted(m.device->threads(), "thread")));
  }
  return Interrupt::flag() ? 130 : 0;
}

}  // namespace

extern const Verb kTranslate;
const Verb kTranslate = {
    "translate", "lines of text through an encoder-decoder, with alignments",
    "Usage: rapt translate MODEL [TEXT…] [flags]\n"
    "\n"
    "One translation per TEXT, or per line of --in FILE, or of standard input where there is no TEXT (or\n"
    "it is -). An empty line stays empty. MODEL is an encoder-decoder: Marian, T5, or one that\n"
    "`rapt train` made, recurrent ones included. Many lines are decoded side by side; each gets the\n"
    "translation it would get alone.\n"
    "\n"
    "  --in FILE            lines to translate (.gz is unpacked)\n"
    "  --out FILE           where the translations go (standard output); --force overwrites\n"
    "  --beams N            beams (4); 1: greedy\n"
    "  --length-penalty P   what an answer's log-probability is divided by (1); 0: nothing, larger:\n"
    "                       longer answers\n"
    "  --penalty-form F     power: length^P, as Hugging Face; gnmt: ((5 + length) / 6)^P\n"
    "  -n, --max-tokens N   longest answer, in tokens (256)\n"
    "  --prefix TEXT        stands before every line, as T5 wants it: 'translate English to German: '\n"
    "  --batch N            lines side by side (16)\n"
    "  --alignment FILE     which source words each word was said from: .svg, .png or .txt; - prints it.\n"
    "                       Several lines: FILE-1, FILE-2 …\n"
    "  --alignment-layer L  of the decoder, from 0, or from the end (-1: the last), or all (the last but\n"
    "                       one; recurrent models have one)\n"
    "  --alignment-head H   one head instead of the mean of all; --alignment-tokens: tokens instead\n"
    "                       of words\n"
    "  --lora FILE[=S]      an adapter (LoRA) beside the model's weights, times S; may come many times\n"
    "  --json               one JSON object per line: index, source, text, answers (text, score, finish,\n"
    "                       ids); --n-best N answers\n"
    "  --verbose            times\n"
    "  -t, --threads N      threads (as many as the process may use)\n"
    "  -q, --quiet          no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt translate opus-mt-de-en 'Ein Hund läuft durch den Schnee.'\n"
    "  rapt translate opus-mt-de-en --in test.de --out test.en --beams 6\n"
    "  rapt translate out/de-en 'Zwei Kinder spielen im Garten.' --alignment garden.svg\n"
    "  rapt translate out/de-en 'Zwei Kinder spielen im Garten.' --alignment -\n",
    run};

}  // namespace rapt::cli
