// SPDX-License-Identifier: Apache-2.0
// The program: finds the verb, prints help and version, turns errors into a message and an exit code (2 usage, 1 failure).
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/text.h"
#include "rapt/device/device.h"

#ifndef RAPT_VERSION
#define RAPT_VERSION "unknown"
#endif

namespace rapt::cli {

extern const Verb kBench, kCheck, kClassify, kConvert, kData, kEmbed, kEval, kFill, kInspect, kLab, kLogits, kQuantize, kRun, kShow,
    kTokenize, kTrain, kTranslate;

namespace {

const Verb* const kVerbs[] = {&kRun,      &kTranslate, &kEmbed,   &kFill,     &kClassify, &kTrain, &kData,    &kEval, &kBench,
                              &kTokenize, &kLogits,    &kConvert, &kQuantize, &kCheck,    &kShow,  &kInspect, &kLab};

std::string overview() {
  std::string out = "rapt: one engine for the whole attention family\n\nUsage: rapt VERB [...]\n\n";
  for (const Verb* v : kVerbs) out += concat("  ", padded(v->name, 10), v->summary, "\n");
  out +=
      "\n  help VERB, VERB --help   what a verb does, with examples\n"
      "  --version                version, instruction sets\n"
      "\n"
      "Environment: RAPT_MODELS names folders of models (a:b:c), RAPT_ISA chooses the instruction set, RAPT_THREADS the number of\n"
      "threads, NO_COLOR turns colours off.\n";
  return out;
}

std::string help_of(const Verb& v) { return concat("rapt ", v.name, ": ", v.summary, "\n\n", v.help); }

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names{"help"};
  for (const Verb* v : kVerbs) {
    if (name == v->name) return *v;
    names.emplace_back(v->name);
  }
  if (name.starts_with('-')) fail_usage("unknown flag '", name, "'; ", name_hint(name, std::vector<std::string>{"--help", "--version"}));
  fail_usage("unknown verb '", name, "'; ", name_hint(name, names));
}

std::string version() {
  const std::vector<std::string> available = available_isas();
  const char* forced = std::getenv("RAPT_ISA");
  const std::string used = forced && *forced ? forced : available.back();
  kernels_for(used);  // refuses a name that is none
#if defined(__clang__)
  const std::string compiler = concat("clang ", __clang_major__, ".", __clang_minor__);
#elif defined(__GNUC__)
  const std::string compiler = concat("g++ ", __GNUC__, ".", __GNUC_MINOR__);
#else
  const std::string compiler = "another compiler";
#endif
  return concat("rapt ", RAPT_VERSION, " (", compiler, ")\ninstruction set: ", used, "; available: ", join(available), "\n");
}

int run(const std::vector<std::string>& words) {
  auto is_help = [](const std::string& w) { return w == "--help" || w == "-h"; };
  if (words.empty() || is_help(words[0])) return print(overview()), 0;
  if (words[0] == "--version" || words[0] == "-V") return print(version()), 0;
  if (words[0] == "help") return print(words.size() > 1 ? help_of(find_verb(words[1])) : overview()), 0;
  const Verb& verb = find_verb(words[0]);
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i)
    if (is_help(words[i])) return print(help_of(verb)), 0;
  Args args({words.begin() + 1, words.end()});
  try {
    return verb.run(args);
  } catch (const Error& e) {
    if (e.kind() != Error::Kind::usage) throw;
    throw Error(concat("rapt ", verb.name, ": ", e.what(), "\n`rapt ", verb.name, " --help` shows how it is used"), e.kind());
  }
}

}  // namespace
}  // namespace rapt::cli

int main(int argc, char** argv) {
  int code = 1;
  try {
    code = rapt::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
    if (std::fflush(stdout) != 0) {
      if (errno == EPIPE) return 0;  // the reader has seen enough
      rapt::fail("standard output: ", std::strerror(errno));
    }
  } catch (const rapt::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    code = e.kind() == rapt::Error::Kind::usage ? 2 : 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
  }
  return code;
}
