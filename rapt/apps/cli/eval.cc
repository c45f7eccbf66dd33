// SPDX-License-Identifier: Apache-2.0
// rapt eval: how good a model is: perplexity, loss and accuracy on held-out text, BLEU and chrF of
// translations, accuracy of classes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/apps/cli/model_args.h"
#include "rapt/apps/cli/translate.h"
#include "rapt/base/clock.h"
#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/inspect/edits.h"
#include "rapt/io/gzip.h"
#include "rapt/use/evaluate_text.h"
#include "rapt/use/metrics.h"

namespace rapt::cli {
namespace {

constexpr std::uint64_t kMostText = std::uint64_t{1} << 30;

// ----------------------------------------------------------------------------------------------- perplexity
int eval_perplexity(const std::string& name, const std::string& file, const CommonArgs& common, Dim context,
                    Dim chunks, const std::vector<std::string>& edits) {
  const std::string text = file == "-" ? read_stdin(kMostText) : read_text_file(file, kMostText);
  const OpenModel m = open_model(name, common);
  const Tokenizer& tokenizer = tokenizer_of(m.checkpoint);
  const auto started = Clock::now();
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  const double seconds_tokens = seconds_since(started);
  if (tokenizer.add_bos && tokenizer.bos >= 0) ids.insert(ids.begin(), tokenizer.bos);
  if (context > m.checkpoint.model->recipe.context)
    note(concat("note: a context of ", context, " tokens is more than the model was made for (",
                m.checkpoint.model->recipe.context, ")"));
  Taps taps;
  const auto check_edits = install_edits(taps, *m.checkpoint.model, parse_edits(edits), Passes::many);
  Progress bar("perplexity", common.quiet);
  const auto start = Clock::now();
  const Perplexity p = perplexity(
      *m.device, m.checkpoint, ids, context, chunks,
      [&](Dim done, Dim of, double so_far) {
        bar.step(static_cast<double>(done), static_cast<double>(of), fixed(so_far, 4));
      },
      edits.empty() ? nullptr : &taps);
  check_edits();
  const double seconds = seconds_since(start);
  bar.clear();
  const double rate = static_cast<double>(p.chunks * context) / seconds;
  if (common.json) {
    Json j = Json::Object{};
    j.set("model", name);
    j.set("perplexity", p.perplexity);
    j.set("error", p.error);
    j.set("nll", p.nll);
    j.set("context", context);
    j.set("chunks", p.chunks);
    j.set("tokens", p.tokens);
    j.set("text_tokens", static_cast<Dim>(ids.size()));
    j.set("seconds", seconds);
    j.set("tokens_per_second", rate);
    print(j.dump() + "\n");
    return 0;
  }
  print(concat("perplexity ", fixed(p.perplexity, 4), " ± ", fixed(p.error, 4), "  (",
               counted(p.chunks, "window"), " of ", context, " tokens, ", with_commas(p.tokens),
               " tokens counted)\n"));
  if (common.verbose)
    note(concat("loaded in ", fixed(m.seconds, 2), " s, ", ids.size(), " tokens made in ",
                fixed(seconds_tokens, 2), " s, computed in ", fixed(seconds, 1), " s: ", fixed(rate, 0),
                " tokens/s on ", counted(m.device->threads(), "thread"), " (", m.device->kernels.isa, ")"));
  return 0;
}

// ---------------------------------------------------------------------------------------- loss and accuracy
Json count_json(const std::string& name, const std::string& objective, const Evaluation& c, double seconds) {
  Json j = Json::Object{};
  j.set("model", name);
  j.set("objective", objective);
  j.set("loss", c.mean());
  if (objective != "classification") j.set("perplexity", std::exp(c.mean()));
  j.set("accuracy", c.accuracy());
  j.set("counted", c.counted);
  j.set("seconds", seconds);
  return j;
}

int eval_loss(const std::string& name, const std::string& file, const CommonArgs& common,
              std::optional<Dim> context, Dim batches, Dim seed) {
  const OpenModel m = open_model(name, common);
  const std::string objective = name_of(text_objective(*m.checkpoint.model));
  Progress reading("reading", common.quiet);
  std::optional<Progress> bar;
  const TextLoss count =
      text_loss(*m.device, m.checkpoint, file,
                {.context = context,
                 .batches = std::max<Dim>(batches, 0),
                 .seed = static_cast<std::uint64_t>(seed),
                 .reading = [&](double done) { reading.step(done, 1); },
                 .progress =
                     [&](Dim done, Dim of, const Evaluation& sofar) {
                       reading.clear();
                       if (!bar) bar.emplace(objective == "translation" ? "loss" : objective, common.quiet);
                       bar->step(static_cast<double>(done), static_cast<double>(of),
                                 sofar.counted > 0 ? fixed(sofar.mean(), 4) : "");
                     }});
  bar.reset();
  if (common.json) {
    Json j = count_json(name, objective, count, count.seconds);
    j.set("commonest", count.commonest);
    j.set("context", count.context);
    if (count.drawn) j.set("seed", seed);
    print(j.dump() + "\n");
    return 0;
  }
  print(concat("loss ", fixed(count.mean(), 4), "   perplexity ", fixed(std::exp(count.mean()), 3),
               "   accuracy ", fixed(100 * count.accuracy(), 2), " %  (", objective, ", ",
               with_commas(count.counted),
               count.objective == Objective::translation ? " target tokens"
               : count.objective == Objective::masked    ? " hidden tokens"
                                                         : " tokens",
               "; always the commonest: ", fixed(100 * count.commonest, 2), " %)\n"));
  if (common.verbose)
    note(concat(count.batches, " batches, windows of ", count.context, " tokens, computed in ",
                fixed(count.seconds, 1), " s on ", counted(m.device->threads(), "thread")));
  return 0;
}

// ------------------------------------------------------------------------------------------------ classes
int eval_classes(const std::string& name, const std::vector<std::string>& wanted, const CommonArgs& common) {
  const OpenModel m = open_model(name, common);
  tokenizer_of(m.checkpoint);
  const std::vector<std::string> names = class_names_of(m.checkpoint);

  struct Label {
    std::string name;
    std::int32_t index;
    Dim lines = 0, right = 0;
  };
  std::vector<Label> labels;
  std::vector<std::string> lines;
  std::vector<std::size_t> label_of;  // each line
  std::vector<std::int32_t> classes;  // … as a class of the model
  for (const std::string& list : wanted)
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      const std::string entry = list.substr(at, comma - at);
      at = comma + 1;
      const std::size_t equal = entry.find('=');
      if (equal == std::string::npos || equal == 0 || equal + 1 == entry.size())
        fail_usage("--classify: '", entry, "' is not LABEL=FILE, as in de=test.de,en=test.en");
      const std::string label = entry.substr(0, equal);
      const auto known = std::find(names.begin(), names.end(), label);
      if (known == names.end())
        fail_usage("--classify: ", name, " knows no class '", label, "'; ", name_hint(label, names));
      labels.push_back({label, static_cast<std::int32_t>(known - names.begin())});
      for (std::string& text : text_lines(read_text_or_gz(entry.substr(equal + 1), kMostText))) {
        if (text.find_first_not_of(" \t") == std::string::npos) continue;
        lines.push_back(std::move(text));
        label_of.push_back(labels.size() - 1);
        classes.push_back(labels.back().index);
        ++labels.back().lines;
      }
      if (labels.back().lines == 0) fail("eval: ", entry.substr(equal + 1), " holds no lines");
    }
  Progress bar("classes", common.quiet);
  const auto started = Clock::now();
  Dim cut = 0;
  const ClassEvaluation count = evaluate_classes(
      *m.device, m.checkpoint, lines, classes,
      [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); }, &cut);
  for (std::size_t i = 0; i < lines.size(); ++i) labels[label_of[i]].right += count.said[i] == classes[i];
  bar.clear();
  if (cut > 0 && !common.quiet)
    note(concat("note: ", cut, " of ", lines.size(),
                " lines are longer than the model reads; their ends were left out"));
  const double seconds = seconds_since(started);
  if (common.json) {
    Json j = count_json(name, "classification", count, seconds);
    Json::Array each;
    for (const Label& l : labels) {
      Json one = Json::Object{};
      one.set("label", l.name);
      one.set("lines", l.lines);
      one.set("accuracy", static_cast<double>(l.right) / static_cast<double>(l.lines));
      each.push_back(std::move(one));
    }
    j.set("labels", std::move(each));
    print(j.dump() + "\n");
    return 0;
  }
  print(concat("accuracy ", fixed(100 * count.accuracy(), 2), " %   loss ", fixed(count.mean(), 4), "  (",
               with_commas(count.counted), " lines)\n"));
  Dim wide = 0;
  for (const Label& l : labels) wide = std::max(wide, text_width(l.name));
  for (const Label& l : labels)
    print(concat("  ", padded(l.name, wide), "  ",
                 fixed(100 * static_cast<double>(l.right) / static_cast<double>(l.lines), 2), " %  (",
                 with_commas(l.right), " of ", with_commas(l.lines), ")\n"));
  return 0;
}

// --------------------------------------------------------------------------------------------- translations
int report_translation(const std::string& name, const std::vector<std::string>& translations,
                       const std::vector<std::string>& references, const std::string& what,
                       const std::string& reference, const CommonArgs& common, bool lower, double seconds) {
  if (translations.size() != references.size())
    fail("eval: ", what, " has ", with_commas(static_cast<Dim>(translations.size())), " lines, ", reference,
         " has ", with_commas(static_cast<Dim>(references.size())),
         "; line i of the one must be the reference of line i of the other");
  if (translations.empty()) fail("eval: ", what, " holds no lines");
  const Bleu b = bleu(translations, references, lower);
  const double c = chrf(translations, references, 6, 2, lower);
  if (common.json) {
    Json j = Json::Object{};
    if (!name.empty()) j.set("model", name);
    j.set("lines", static_cast<Dim>(translations.size()));
    j.set("bleu", b.score);
    Json::Array p;
    for (double x : b.precisions) p.emplace_back(x);
    j.set("precisions", std::move(p));
    j.set("brevity", b.brevity);
    j.set("length", b.length);
    j.set("reference_length", b.reference_length);
    j.set("chrf", c);
    j.set("lower", lower);
    j.set("tokenizer", "13a");
    if (seconds > 0) j.set("seconds", seconds);
    print(j.dump() + "\n");
    return 0;
  }
  print(concat("BLEU ", fixed(b.score, 2), "   chrF2 ", fixed(c, 2), "  (",
               with_commas(static_cast<Dim>(translations.size())), " lines; precisions ",
               fixed(b.precisions[0], 1), " / ", fixed(b.precisions[1], 1), " / ", fixed(b.precisions[2], 1),
               " / ", fixed(b.precisions[3], 1), ", brevity ", fixed(b.brevity, 3), ", ",
               with_commas(b.length), " words for ", with_commas(b.reference_length), ")\n"));
  return 0;
}

std::vector<std::string> lines_of_file(const std::string& path) {
  return text_lines(path == "-" ? read_stdin(kMostText) : read_text_or_gz(path, kMostText));
}

int eval_translation(const std::string& name, const std::string& source, const std::string& reference,
                     const TranslateOptions& o, const CommonArgs& common, bool lower,
                     const std::optional<std::string>& out, bool force) {
  const std::vector<std::string> lines = lines_of_file(source), references = lines_of_file(reference);
  if (lines.size() != references.size())
    fail("eval: ", source, " has ", with_commas(static_cast<Dim>(lines.size())), " lines, ", reference,
         " has ", with_commas(static_cast<Dim>(references.size())),
         "; line i of the one must be the translation of line i of the other");
  const OpenModel m = open_model(name, common);
  const Checkpoint& c = m.checkpoint;
  if (!c.model->encoder || !c.model->decoder)
    fail(name, " (", c.family, ") is no encoder-decoder: it does not translate");
  Session session(*m.device, c, {});
  std::optional<FileWriter> file;
  if (out) file.emplace(*out, force);
  Progress bar("translating", common.quiet);
  const auto started = Clock::now();
  std::vector<std::string> translations;
  for (const TranslatedLine& t : translate_lines(session, c, lines, o, {}, [&](std::size_t n) {
         bar.step(static_cast<double>(n), static_cast<double>(lines.size()));
       })) {
    translations.push_back(t.text);
    if (file) file->write(t.text + "\n");
  }
  bar.clear();
  const double seconds = seconds_since(started);
  if (file) file->commit();
  if (common.verbose)
    note(concat(counted(static_cast<Dim>(lines.size()), "line"), " translated in ", fixed(seconds, 1),
                " s on ", counted(m.device->threads(), "thread")));
  return report_translation(name, translations, references, "the translation", reference, common, lower,
                            seconds);
}

int run(Args& args) {
  CommonArgs common = common_args(args);
  lora_args(args, common);
  const std::optional<std::string> perplexity_of = args.value("perplexity"), loss_of = args.value("loss"),
                                   accuracy_of = args.value("accuracy");
  const std::vector<std::string> classes = args.values("classify");
  const std::optional<std::string> source = args.value("translate");
  std::optional<std::string> reference = args.value("reference");
  const std::optional<std::string> hypothesis = args.value("hypothesis"), out = args.value("out");
  const bool lower = args.flag("lower"), force = args.flag("force");
  const std::optional<Dim> context = args.number("ctx-size", 4, Dim{1} << 30);
  const Dim chunks = args.number("chunks", -1, Dim{1} << 40).value_or(-1);
  const Dim seed = args.number("seed", 0, std::numeric_limits<Dim>::max()).value_or(0);
  const TranslateOptions translate = translate_args(args);
  const std::vector<std::string> edits = args.values("edit");
  if (!edits.empty() && !perplexity_of) fail_usage("--edit belongs to --perplexity");

  const int measures = perplexity_of.has_value() + (loss_of || accuracy_of) + !classes.empty() +
                       source.has_value() + hypothesis.has_value();
  if (measures == 0)
    fail_usage(
        "what to measure? --perplexity FILE, --loss FILE, --classify LABEL=FILE,…, --translate SOURCE "
        "--reference FILE, or --hypothesis FILE --reference FILE");
  if (measures > 1 || (loss_of && accuracy_of))
    fail_usage(
        "one measure at a time: --perplexity, --loss (or --accuracy, which is the same), --classify, "
        "--translate or --hypothesis");
  if (hypothesis) {
    args.operands(0, 0, "no model: two files are compared without one");
    if (!reference) fail_usage("--hypothesis FILE is compared with --reference FILE; give that too");
    return report_translation("", lines_of_file(*hypothesis), lines_of_file(*reference), *hypothesis,
                              *reference, common, lower, 0);
  }
  const std::vector<std::string> words =
      args.operands(1, source && !reference ? 2 : 1, source ? "one model, and the reference" : "one model");
  if (words.size() > 1) reference = words[1];
  if (reference && !source) fail_usage("--reference belongs to --translate or --hypothesis");
  if (perplexity_of)
    return eval_perplexity(words[0], *perplexity_of, common, context.value_or(512), chunks, edits);
  if (loss_of || accuracy_of)
    return eval_loss(words[0], loss_of ? *loss_of : *accuracy_of, common, context, chunks, seed);
  if (!classes.empty()) return eval_classes(words[0], classes, common);
  if (!reference) fail_usage("--translate SOURCE wants a reference to compare with: --reference FILE");
  return eval_translation(words[0], *source, *reference, translate, common, lower, out, force);
}

}  // namespace

extern const Verb kEval;
const Verb kEval = {
    "eval", "how good a model is: perplexity, loss, accuracy, BLEU, chrF",
    "Usage: rapt eval MODEL --perplexity FILE [--ctx-size 512] [--chunks N] [flags]\n"
    "       rapt eval MODEL --loss FILE [--ctx-size N] [--seed N]\n"
    "       rapt eval MODEL --classify LABEL=FILE,LABEL=FILE\n"
    "       rapt eval MODEL --translate SOURCE --reference FILE [--beams 4] [--out FILE]\n"
    "       rapt eval --hypothesis FILE --reference FILE\n"
    "\n"
    "--perplexity   the text is cut into windows of --ctx-size tokens, one after the other; in each, the\n"
    "second half counts (each token there\n"
    "               is predicted from at least half a window). A model that wants a beginning-of-text\n"
    "               token gets it in the place of each window's first token. This is llama-perplexity's\n"
    "               definition, so numbers can be compared. FILE may be -.\n"
    "--loss         the model's own objective on held-out text, as training judges it; prints loss (nats),\n"
    "perplexity and accuracy (the most\n"
    "               probable token is right) per token, and the accuracy of always guessing the commonest.\n"
    "                 --accuracy FILE is the same. decoders: every token of the text but the first, in\n"
    "                 windows of --ctx-size tokens (the model's, at most 1,024) encoders (BERT): 15 % of\n"
    "                 the tokens are hidden, as in training; which ones, --seed says (0) encoder-decoders:\n"
    "                 FILE is SOURCE,TARGET, two files of parallel lines\n"
    "               A file made by `rapt data` is measured on its held-out part.\n"
    "--classify     accuracy of a classifier on files of lines, in all and by label.\n"
    "--translate    translates SOURCE line by line and compares with the reference: BLEU and chrF2 of the\n"
    "corpus. --out FILE keeps the translations, --force overwrites it. --hypothesis\n"
    "the same figures for translations that are there already.\n"
    "\n"
    "BLEU is sacrebleu's: words as mteval-v13a finds them (tokenizer 13a: punctuation and symbols stand\n"
    "alone, except a period or comma between digits and the apostrophe; a hyphen after a digit stands\n"
    "alone; case is kept), 1- to 4-grams, exponential smoothing, one reference. The text is compared as it\n"
    "is written: do not tokenise it before. chrF2: character 1- to 6-grams without white space, beta 2.\n"
    "\n"
    "  -c, --ctx-size N   tokens of a window (perplexity: 512)\n"
    "  --chunks N        only the first N windows (--loss: batches)\n"
    "  --edit SPEC       with --perplexity: changes what the model computes, as in `rapt inspect tensors`;\n"
    "                    L5H3:zero switches a head off\n"
    "  --lower           BLEU and chrF of lower-cased text\n"
    "  --beams N, --length-penalty P, --penalty-form F, --max-tokens N, --batch N, --prefix TEXT\n"
    "    as in `rapt translate`\n"
    "  --lora FILE[=S]   an adapter (LoRA) beside the model's weights, times S; may come many times\n"
    "  --json            the figures as JSON\n"
    "  --verbose         times\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress\n"
    "\n"
    "Text files may be compressed (.gz), except for --perplexity.\n"
    "\n"
    "Examples:\n"
    "  rapt eval model.gguf --perplexity wiki.test.raw\n"
    "  rapt eval model.gguf --perplexity wiki.test.raw --chunks 20 --json\n"
    "  rapt eval out/shakespeare --loss valid.txt\n"
    "  rapt eval out/language --classify de=test.de,en=test.en\n"
    "  rapt eval out/de-en --translate test.de --reference test.en --out test.out\n"
    "  rapt eval --hypothesis test.out --reference test.en\n",
    run};

}  // namespace rapt::cli
