// SPDX-License-Identifier: Apache-2.0
// What following a schema takes: compiling it, the first mask, and a mask for every token of real answers.
//
//   bench_schema VOCABULARY [--schemas FILE] [--rounds N] [--each]
//
// VOCABULARY: a model or a GGUF file with a tokenizer. FILE: a list of {name, schema, documents}. Documents
// are tokenized as models write them, and each token must be allowed. "first": the first answer with a
// schema, all of whose masks are new (those that all schemas share have been made by the schema before: only
// the very first request of a server pays them, see "shared"); "later": the same document once more.
// Choosing a token is drawing it from random logits, mask and all: a list that hardly ends, of which no
// likely token fits, so it is the worst case of greedy answers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/io/reader.h"
#include "rapt/text/grammar/constraint.h"
#include "rapt/text/grammar/grammar.h"
#include "rapt/text/tokenizer/tokenizer.h"
#include "rapt/use/sampler.h"

namespace {

using namespace rapt;

// Of this thread's own work: what else the machine does hardly counts.
double micros() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

void row(const char* name, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double t : times) sum += t;
  const auto at = [&](double q) {
    return times[std::min(times.size() - 1, static_cast<std::size_t>(q * static_cast<double>(times.size())))];
  };
  std::printf("| %-24s | %6zu | %8.1f | %8.1f | %8.1f | %8.1f | %8.1f |\n", name, times.size(),
              sum / static_cast<double>(times.size()), at(0.5), at(0.95), at(0.99), times.back());
}

constexpr const char* kPeople =
    R"({"type": "array", "minItems": 900, "items": {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "mood": {"enum": ["glad", "sad", "tired"]}, "zip": {"type": "string", "pattern": "^\\d{5}$"}},
    "required": ["name", "age", "mood", "zip"], "additionalProperties": false}})";

void choosing(const Tokenizer& tokenizer, const std::shared_ptr<const TokenTrie>& trie) {
  const auto grammar = make_token_grammar(grammar_from_schema_text(kPeople), trie);
  std::mt19937 draw(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<std::vector<float>> logits(16, std::vector<float>(static_cast<std::size_t>(tokenizer.size())));
  for (auto& row : logits)
    for (float& x : row) x = normal(draw);
  for (const double temperature : {0.0, 1.0})
    for (const bool form : {false, true}) {
      SamplerOptions options;
      options.temperature = temperature, options.top_k = 0, options.top_p = 1, options.min_p = 0;
      Sampler sampler(options, 0);
      const auto constraint = make_constraint(grammar, tokenizer.stops);
      std::vector<double> times;
      for (Dim i = 0; i < 600; ++i) {
        const double start = micros();
        const auto chosen = sampler.choose(logits[static_cast<std::size_t>(i % 16)], {}, i, -1,
                                           {.allowed = {}, .constraint = form ? constraint.get() : nullptr});
        if (form) constraint->accept(chosen.id);
        times.push_back(micros() - start);
      }
      row((std::string(temperature > 0 ? "choose, T=1, " : "choose, greedy, ") + (form ? "form" : "free"))
              .c_str(),
          times);
    }
}

}  // namespace

int main(int argc, char** argv) {
  std::string vocabulary, file = "bench/schemas.json";
  int rounds = 5;
  bool each = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--schemas" && i + 1 < argc) file = argv[++i];
    else if (word == "--rounds" && i + 1 < argc) rounds = std::atoi(argv[++i]);
    else if (word == "--each") each = true;
    else vocabulary = word;
  }
  try {
    const auto tokenizer = open_tokenizer(vocabulary);
    if (!tokenizer) fail(vocabulary, " has no tokenizer");
    double begin = micros();
    const auto trie = make_token_trie(*tokenizer);
    std::printf("%lld tokens; the tree of their bytes: %.0f ms\n", static_cast<long long>(tokenizer->size()),
                (micros() - begin) / 1000);
    const Json list = parse_json(read_text_file(file), file);
    std::vector<std::uint64_t> all((static_cast<std::size_t>(tokenizer->size()) + 63) / 64,
                                   ~std::uint64_t{0}),
        bits;
    const auto answer = [&](const std::shared_ptr<const TokenGrammar>& grammar, const Json& document,
                            const std::string& name, std::vector<double>& masks, std::vector<double>* first) {
      const auto constraint = make_constraint(grammar, tokenizer->stops);
      bool begun = false;
      for (const std::int32_t id : tokenizer->encode(document.dump(0))) {
        bits = all;
        const double start = micros();
        constraint->mask(bits);
        masks.push_back(micros() - start);
        if (first && !begun) first->push_back(masks.back());
        begun = true;
        const auto at = static_cast<std::size_t>(id);
        if (!(bits[at / 64] >> at % 64 & 1))
          fail(name, ": token ", id, " ('", tokenizer->bytes_of(id), "') is refused in ", document.dump(0));
        constraint->accept(id);
      }
      if (!constraint->may_end()) fail(name, ": ", document.dump(0), " may not end");
    };
    // Masks of states that all schemas share: a server's first request makes them.
    std::vector<double> shared, compile, first, cold, warm;
    answer(make_token_grammar(
               grammar_from_schema(list.array()[0].find("schema") ? *list.array()[0].find("schema") : list),
               trie),
           *list.array()[0].find("documents")->array().begin(), "shared", shared, nullptr);
    for (int r = 0; r < rounds; ++r) {
      for (const Json& one : list.array()) {
        const std::string name = one.find("name")->string();
        std::shared_ptr<const TokenGrammar> grammar;
        begin = micros();
        const auto compiled = grammar_from_schema(*one.find("schema"));
        compile.push_back(micros() - begin);
        std::vector<double> here_cold, here_warm;
        for (const Json& document : one.find("documents")->array()) {
          grammar = make_token_grammar(compiled, trie);
          answer(grammar, document, name, here_cold, &first);
          answer(grammar, document, name, here_warm, nullptr);
        }
        if (each && r == 0) {
          std::printf("%-20s %6zu states, compiled in %7.0f us\n", name.c_str(), compiled->states.size(),
                      compile.back());
          row("  first", here_cold);
          row("  later", here_warm);
        }
        cold.insert(cold.end(), here_cold.begin(), here_cold.end());
        warm.insert(warm.end(), here_warm.begin(), here_warm.end());
      }
    }
    std::printf(
        "| us                       | number |     mean |      p50 |      p95 |      p99 |      max |\n"
        "|---|---:|---:|---:|---:|---:|---:|\n");
    row("compile", compile);
    row("first mask", first);
    row("mask, shared", shared);
    row("mask, first answer", cold);
    row("mask, later answers", warm);
    choosing(*tokenizer, trie);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_schema: %s\n", e.what());
    return 1;
  }
}
