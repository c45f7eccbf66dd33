// SPDX-License-Identifier: Apache-2.0
// rapt schema: does a schema (or grammar) compile, what does it accept, what do texts of it look like?
#include <iostream>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/text/grammar/grammar.h"
#include "rapt/text/grammar/sample.h"

namespace rapt::cli {
namespace {

constexpr Dim kMostSamples = 10000;

Json error_json(const Error& e) {
  Json out = Json::Object{};
  out.set("error", std::string(e.what()));
  if (const auto* grammar = dynamic_cast<const GrammarError*>(&e)) {
    out.set("keyword", grammar->keyword());
    out.set("path", grammar->path());
  }
  return out;
}

// {"schema": … or "gbnf": "…", "texts": […], "samples": n, "seed": s} → {"accepted": […], "samples": […]}
Json answer(const Json& asked) {
  try {
    const Json* gbnf = asked.find("gbnf");
    const Json* schema = asked.find("schema");
    if (!gbnf && !schema) fail_usage("a line wants \"schema\" or \"gbnf\"");
    if (gbnf && !gbnf->is_string()) fail_usage("\"gbnf\" must be a string");
    const auto grammar = gbnf ? grammar_from_gbnf(gbnf->string()) : grammar_from_schema(*schema);
    Json out = Json::Object{};
    out.set("states", static_cast<Dim>(grammar->states.size()));
    out.set("steps", static_cast<Dim>(grammar->steps));
    if (const Json* texts = asked.find("texts"); texts && texts->is_array()) {
      Json::Array yes;
      for (const Json& t : texts->array()) yes.push_back(t.is_string() && accepts(*grammar, t.string()));
      out.set("accepted", std::move(yes));
    }
    if (const Json* n = asked.find("samples"); n && n->is_integer()) {
      const Json* seed = asked.find("seed");
      Json::Array samples;
      for (Dim i = 0; i < std::min(n->integer(), kMostSamples); ++i)
        samples.push_back(sample_text(
            *grammar, static_cast<std::uint64_t>((seed && seed->is_integer() ? seed->integer() : 0) + i)));
      out.set("samples", std::move(samples));
    }
    return out;
  } catch (const Error& e) {
    return error_json(e);
  }
}

int run(Args& args) {
  const bool gbnf = args.flag("gbnf"), lines = args.flag("lines");
  const Dim samples = args.number("samples", 0, kMostSamples).value_or(0);
  const Dim seed = args.number("seed", 0, Dim{1} << 53).value_or(0);
  const std::vector<std::string> words =
      lines ? args.operands(0, 0, "nothing beside --lines") : args.operands(1, 10000, "a schema, and texts");
  if (lines) {
    for (std::string line; std::getline(std::cin, line);) {
      Json out;
      try {
        out = answer(parse_json(line, "line"));
      } catch (const Error& e) {
        out = error_json(e);
      }
      print(out.dump(0) + "\n");
      flush();
    }
    return 0;
  }
  const std::string text =
      words[0] == "-" ? read_stdin(std::size_t{1} << 20) : read_text_file(words[0], std::uint64_t{1} << 20);
  const auto grammar = gbnf ? grammar_from_gbnf(text, words[0]) : grammar_from_schema_text(text, words[0]);
  if (words.size() == 1 && samples == 0)
    print(concat(words[0], " can be followed: ", counted(static_cast<Dim>(grammar->states.size()), "state"),
                 "\n"));
  for (Dim i = 0; i < samples; ++i)
    print(for_stdout(sample_text(*grammar, static_cast<std::uint64_t>(seed + i))) + "\n");
  bool all = true;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool yes = accepts(*grammar, words[i]);
    all &= yes;
    print(concat(yes ? "accepted  " : "refused   ", for_stdout(words[i]), "\n"));
  }
  return all ? 0 : 1;
}

}  // namespace

extern const Verb kSchema;
const Verb kSchema = {
    "schema", "whether a JSON schema can be followed, and what it allows",
    "Usage: rapt schema FILE [TEXT…] [--gbnf] [--samples N] [--seed S]\n"
    "\n"
    "Compiles a JSON schema (docs/schema.md) as answers that must follow it are compiled, and says which of\n"
    "the texts it accepts: members in the order of the schema, at most one space behind ',' and ':'. What\n"
    "is not supported is named. FILE - reads standard input.\n"
    "\n"
    "  --gbnf        FILE is a grammar in the format of llama.cpp\n"
    "  --samples N   N texts of it, by chance\n"
    "  --seed S      other ones\n"
    "  --lines       standard input holds a question on each line, standard output gets the answers:\n"
    "                {\"schema\": …, \"texts\": […], \"samples\": N}\n"
    "                {\"accepted\": […], \"samples\": […]}\n"
    "\n"
    "Exit code 1: a text was refused.\n"
    "\n"
    "Examples:\n"
    "  echo '{\"type\": \"integer\", \"minimum\": 5}' > five.json\n"
    "  rapt schema five.json 7 12 1\n"
    "  rapt schema five.json --samples 3\n",
    run};

}  // namespace rapt::cli
