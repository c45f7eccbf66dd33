// SPDX-License-Identifier: Apache-2.0
// rapt data: training data packed into one file, and what such a file holds.
#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/use/data.h"

namespace rapt::cli {
namespace {

template <class T>
T choice(const std::string& word, std::string_view flag,
         std::initializer_list<std::pair<const char*, T>> known) {
  std::vector<std::string> names;
  for (const auto& [name, value] : known) {
    if (word == name) return value;
    names.emplace_back(name);
  }
  fail_usage(flag, ": '", word, "' is not known; ", name_hint(word, names));
}

void show(const Json& j) {
  const auto number = [&](const char* key) {
    const Json* v = j.find(key);
    return v ? v->integer() : Dim{0};
  };
  const std::string kind = j.find("kind")->string();
  const std::string what = kind == "text" ? "documents" : kind == "pairs" ? "pairs" : "lines";
  std::string out = concat("kind         ", kind, "\n", "tokens       ", with_commas(number("tokens")), "\n");
  if (number(what.c_str()) > 1) out += concat(padded(what, 13), with_commas(number(what.c_str())), "\n");
  out += concat("held out     ", with_commas(number("held_out")), kind == "text" ? " tokens" : "", "\n");
  if (number("left_out_empty") > 0)
    out += concat("empty        ", with_commas(number("left_out_empty")), " left out\n");
  out += concat("vocabulary   ", with_commas(number("vocabulary")), "\n");
  std::vector<std::string> words;
  for (const auto& [role, text] : j.find("special")->object()) words.push_back(role + " " + text.string());
  if (!words.empty()) out += "special      " + join(words) + "\n";
  words.clear();
  if (const Json* classes = j.find("classes"))
    for (const Json& name : classes->array()) words.push_back(name.string());
  if (!words.empty()) out += "classes      " + join(words) + "\n";
  words.clear();
  for (const Json& name : j.find("objectives")->array()) words.push_back(name.string());
  out += "objective    " + join(words, " or ") + "\n";
  print(out);
}

Objective guess(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) || path.find(',') == std::string::npos) return Objective::causal;
  return path.find('=') != std::string::npos ? Objective::classification : Objective::translation;
}

int run(Args& args) {
  const CommonArgs common = common_args(args);
  DataOptions o;
  const auto out = args.value("out");
  const auto objective = args.value("objective"), vocab = args.value("vocab"),
             tokenizer = args.value("tokenizer");
  const auto size = args.number("vocab-size", 257, Dim{1} << 24),
             least = args.number("least", 1, Dim{1} << 40);
  o.vocab.lower = args.flag("lower");
  o.documents = args.flag("documents");
  o.held_out = args.value("held-out").value_or("");
  const auto share = args.real("share");
  const bool force = args.flag("force");
  o.path = args.operands(1, 1,
                         "one thing to pack or to look at: a text, a folder, SOURCE,TARGET, "
                         "LABEL=FILE,LABEL=FILE, or a packed file")[0];

  if (!out) {
    if (!is_packed(o.path)) {
      std::error_code ignored;
      if (!std::filesystem::exists(o.path, ignored) && guess(o.path) == Objective::causal)
        fail_missing(o.path, ": no such file; check the name and the folder");
      fail_usage(o.path, ": is not packed yet; --out FILE.bin says where to pack it");
    }
    const Json j = packed_summary(o.path);
    if (common.json) print(j.dump() + "\n");
    else show(j);
    return 0;
  }
  o.objective = objective ? choice<Objective>(*objective, "--objective",
                                              {{"causal", Objective::causal},
                                               {"masked", Objective::masked},
                                               {"translation", Objective::translation},
                                               {"classification", Objective::classification}})
                          : guess(o.path);
  if (vocab)
    o.vocab.kind = choice<VocabKind>(
        *vocab, "--vocab",
        {{"bpe", VocabKind::bpe}, {"bytes", VocabKind::bytes}, {"characters", VocabKind::characters}});
  if (tokenizer && (vocab || size || least || o.vocab.lower))
    fail_usage(
        "--tokenizer names a vocabulary that is there; --vocab, --vocab-size, "
        "--least and --lower say how to make one");
  if (o.vocab.kind != VocabKind::bpe && (size || least))
    fail_usage("--vocab-size and --least belong to --vocab bpe");
  if (o.vocab.kind == VocabKind::bytes && o.vocab.lower)
    fail_usage("--lower belongs to --vocab bpe or characters");
  o.tokenizer = tokenizer.value_or("");
  o.vocab.size = size.value_or(o.vocab.size);
  o.vocab.least = least.value_or(o.vocab.least);
  if (share && !(*share >= 0 && *share < 1))
    fail_usage("--share: ", shortest(*share), " is no share; write a number from 0 to below 1");
  if (share && !o.held_out.empty())
    fail_usage(
        "--held-out names what is held out; --share takes it from the end of the text: give one of them");
  o.share = share.value_or(o.share);

  Progress bar("packing", common.quiet);
  o.progress = [&](double done) { bar.step(done, 1, done < 0.5 ? "vocabulary" : "ids"); };
  write_packed(*out, o, force);
  bar.clear();
  Json j = packed_summary(*out);
  std::error_code ignored;
  j.set("bytes", static_cast<Dim>(std::filesystem::file_size(*out, ignored)));
  if (common.json) {
    print(j.dump() + "\n");
  } else if (!common.quiet) {
    show(j);
    note(concat(*out, ": ", byte_count(j.find("bytes")->number())));
  }
  return 0;
}

}  // namespace

extern const Verb kData;
const Verb kData = {
    "data", "pack training data into one file",
    "Usage: rapt data IN --out FILE.bin [--vocab bpe|bytes|characters] [--vocab-size N] [--tokenizer PATH] "
    "[--held-out IN] [--force]\n"
    "       rapt data FILE.bin [--json]\n"
    "\n"
    "Makes a vocabulary from IN, turns IN into token ids and writes both into one file, which\n"
    "`rapt train --data FILE.bin` maps. Without --out: checks a packed file and prints what it holds. IN\n"
    "is one of\n"
    "  TEXT or FOLDER           a text, or all texts of a folder (UTF-8; .gz is unpacked): objective\n"
    "                           causal or masked\n"
    "  SOURCE,TARGET            two files of parallel lines: translation\n"
    "  LABEL=FILE,LABEL=FILE    lines of each kind: classification\n"
    "\n"
    "  --out FILE        where to write\n"
    "  --objective O     causal, masked, translation, classification (causal, or what IN looks like)\n"
    "  --vocab KIND      bpe (byte-level, as GPT-2), bytes, characters\n"
    "  --vocab-size N    bpe: tokens in all (4096)\n"
    "  --least N         bpe: a pair seen less often is not merged (2)\n"
    "  --lower           text in lower case\n"
    "  --tokenizer PATH  the tokenizer of a model (folder or GGUF) instead of a new vocabulary\n"
    "  --documents       a folder's files, or what empty lines part, are documents of their own\n"
    "  --held-out IN     another text to judge by\n"
    "  --share X         without it: this share of the end is held out (0.1; 0: nothing)\n"
    "  --force           overwrite FILE\n"
    "  --json            what the file holds as JSON\n"
    "  -q, --quiet       no progress, no message\n"
    "\n"
    "Examples:\n"
    "  rapt data shakespeare.txt --vocab characters --out shakespeare.bin\n"
    "  rapt data train.de.gz,train.en.gz --held-out val.de.gz,val.en.gz --vocab-size 8000 --out de-en.bin\n"
    "  rapt data books/ --documents --tokenizer ./SmolLM2-135M --out books.bin\n"
    "  rapt data de-en.bin\n",
    run};

}  // namespace rapt::cli
