// SPDX-License-Identifier: Apache-2.0
// The program: finds the verb, prints help and version, turns errors into a message and an exit code (2
// usage, 1 failure).
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "rapt/apps/cli/help_text.h"
#include "rapt/apps/cli/manual.h"
#include "rapt/apps/cli/verb.h"
#include "rapt/base/text.h"
#include "rapt/device/device.h"

#ifndef RAPT_VERSION
#define RAPT_VERSION "unknown"
#endif

namespace rapt::cli {

extern const Verb kBench, kCheck, kClassify, kCompare, kCompletions, kConvert, kData, kEmbed, kEval, kFill,
    kGuide, kHelpVerb, kInspect, kLab, kList, kLogits, kQuantize, kReplay, kRun, kSchema, kServe, kShow,
    kTokenize,
    kTrain, kTranslate;
extern const char* const kCommit;  // written at build time: cmake/version.cmake

namespace {

const Verb* const kVerbs[] = {&kRun,    &kServe,  &kTranslate, &kEmbed, &kFill,        &kClassify,
                              &kTrain,  &kCompare, &kData,      &kEval,  &kBench,       &kTokenize,
                              &kSchema, &kLogits, &kConvert,   &kQuantize, &kCheck,    &kList,
                              &kShow,   &kReplay, &kInspect,   &kLab,   &kGuide,       &kCompletions,
                              &kHelpVerb};

std::string overview() {
  std::string out =
      "rapt: one engine for Transformers: train, run, look inside\n\nUsage: rapt VERB [...]\n\n";
  for (const Verb* v : kVerbs) out += concat("  ", padded(v->name, 13), v->summary, "\n");
  out +=
      "\n  help VERB, VERB --help   what a verb does, with examples\n"
      "  --version                version, commit, instruction sets\n"
      "\n"
      "Environment: RAPT_MODELS names folders of models (a:b:c), RAPT_ISA chooses the instruction set,\n"
      "RAPT_THREADS the number of threads, NO_COLOR turns colours off, COLUMNS gives the width of what\n"
      "goes into pipes, RAPT_HISTORY the file that keeps what is typed in conversations (off: none does).\n"
      "\n"
      "Exit codes: 0 done, 1 something failed (a file is missing, too), 2 wrong usage, 130 stopped\n"
      "by Ctrl-C.\n";
  return folded_help(out, columns_of_stdout());
}

std::string help_of(const Verb& v) {
  return folded_help(concat("rapt ", v.name, ": ", v.summary, "\n\n", help_text(v)), columns_of_stdout());
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb* v : kVerbs) {
    if (name == v->name) return *v;
    names.emplace_back(v->name);
  }
  if (name.starts_with('-'))
    fail_usage("unknown flag '", name, "'; ",
               name_hint(name, std::vector<std::string>{"--help", "--version"}));
  fail_usage("unknown verb '", name, "'; ", name_hint(name, names));
}

std::string version() {
  const std::vector<std::string> available = available_isas();
  const char* forced = std::getenv("RAPT_ISA");
  const std::string used = forced && *forced ? forced : available.back();
  kernels_for(used);  // refuses a name that is none
  return concat(version_line(), "\ninstruction set: ", used, "; available: ", join(available), "\n");
}

// The names of flags that all verbs share, with their other spellings.
std::string flags_text() {
  std::string out = "One name for one thing in every verb; other spellings work as well:\n\n";
  for (const FlagName& f : flag_names()) {
    std::string also;
    for (std::string_view s : f.also)
      if (!s.empty()) also += concat(also.empty() ? " (also " : ", ", s);
    out += concat("  ", padded(concat(f.letter.empty() ? "" : concat(f.letter, ", "), "--", f.name), 20),
                  f.meaning, also, also.empty() ? "\n" : ")\n");
  }
  return out;
}

int help(Args& args) {
  const bool man = args.flag("man"), wants_version = args.flag("version");
  const std::vector<std::string> words = args.operands(0, 1, "one verb, or none");
  if (man) print(man_page());
  else if (wants_version) print(version());
  else if (words.empty()) print(overview());
  else if (words[0] == "flags") print(flags_text());
  else print(help_of(find_verb(words[0])));
  return 0;
}

int run(const std::vector<std::string>& words) {
  auto is_help = [](const std::string& w) { return w == "--help" || w == "-h"; };
  if (words.empty() || is_help(words[0])) return print(overview()), 0;
  if (words[0] == "--version" || words[0] == "-V") return print(version()), 0;
  const Verb& verb = find_verb(words[0]);
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i)
    if (is_help(words[i])) return print(help_of(verb)), 0;
  Args args({words.begin() + 1, words.end()}, verb.name);
  try {
    return verb.run(args);
  } catch (const Error& e) {
    if (!e.is_usage()) throw;
    throw Error(concat("rapt ", verb.name, ": ", e.what()), e.kind());
  }
}

}  // namespace

std::span<const Verb* const> verbs() { return kVerbs; }

std::string help_text(const Verb& v) { return v.make_help ? v.make_help() : std::string(v.help); }

std::string version_line() {
#if defined(__clang__)
  const std::string compiler = concat("clang ", __clang_major__, ".", __clang_minor__);
#elif defined(__GNUC__)
  const std::string compiler = concat("g++ ", __GNUC__, ".", __GNUC_MINOR__);
#else
  const std::string compiler = "another compiler";
#endif
  return concat("rapt ", RAPT_VERSION, " (",
                *kCommit ? concat("commit ", kCommit) : "not built from a git checkout", ", ", compiler, ")");
}

extern const Verb kHelpVerb;
const Verb kHelpVerb = {"help", "what a verb does",
                        "Usage: rapt help [VERB]\n"
                        "       rapt help flags\n"
                        "       rapt help --man\n"
                        "\n"
                        "The text that VERB --help prints. flags: the names of flags that verbs share,\n"
                        "with other spellings that work.\n"
                        "\n"
                        "  --man       the man page, as it is installed: rapt help --man | man -l -\n"
                        "  --version   version, commit, instruction sets\n"
                        "\n"
                        "Examples:\n"
                        "  rapt help run\n"
                        "  rapt help flags\n",
                        help};

}  // namespace rapt::cli

namespace {
void print_error(const char* what) {
  try {
    rapt::cli::note(rapt::concat("error: ", what));
  } catch (const std::bad_alloc&) {  // not even for the message
    std::fputs("error: out of memory\n", stderr);
  }
}
}  // namespace

// Apart from main(), so that tests can run the program in a process of theirs.
int rapt_main(int argc, char** argv);
int rapt_main(int argc, char** argv) {
  int code = 1;
  // A file that may not become larger is an error with a message, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    code = rapt::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
    if (std::fflush(stdout) != 0) {
      if (errno == EPIPE) return 0;  // the reader has seen enough
      rapt::fail("standard output: ", std::strerror(errno));
    }
  } catch (const rapt::Error& e) {
    print_error(e.what());
    code = e.is_usage() ? 2 : 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n");
  } catch (const std::exception& e) {
    print_error(e.what());
  }
  return code;
}
