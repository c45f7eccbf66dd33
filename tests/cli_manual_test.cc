// SPDX-License-Identifier: Apache-2.0
// Man page, completions and the names of flags: made from the verbs, so all of them must be there.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/cli.h"

namespace rapt::test {
namespace {

// Verbs and their flags, as fish is told them.
std::map<std::string, std::set<std::string>> verbs_of(const std::string& fish) {
  std::map<std::string, std::set<std::string>> out;
  std::istringstream in(fish);
  const std::string verb = "complete -c rapt -n __fish_use_subcommand -a ",
                    flag = "complete -c rapt -n '__fish_seen_subcommand_from ";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(verb)) out[line.substr(verb.size(), line.find(' ', verb.size()) - verb.size())];
    const std::size_t at = line.find("' -l ");
    if (!line.starts_with(flag) || at == std::string::npos) continue;
    const std::size_t end = std::min(line.find(' ', at + 5), line.size());
    out[line.substr(flag.size(), at - flag.size())].insert(line.substr(at + 5, end - at - 5));
  }
  return out;
}

bool names(const std::string& text, const std::string& flag) {  // "--keep", not "--keep-going"
  const std::string word = "--" + flag;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const char next = at + word.size() < text.size() ? text[at + word.size()] : ' ';
    if (!std::isalnum(static_cast<unsigned char>(next)) && next != '-') return true;
  }
  return false;
}

std::string plain(std::string text) {  // of a man page: without fonts and escapes
  for (const char* font : {"\\fB", "\\fR", "\\fI"})
    for (std::size_t at = text.find(font); at != std::string::npos; at = text.find(font)) text.erase(at, 3);
  std::erase(text, '\\');
  return text;
}

TEST_F(Cli, EveryVerbAndFlagIsInHelpManPageAndCompletions) {
  const Outcome fish = run("completions fish"), bash = run("completions bash"), zsh = run("completions zsh"),
                man = run("help --man");
  for (const Outcome& o : {fish, bash, zsh, man}) {
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.err, "");
  }
  const std::string page = plain(man.out), overview = run("help").out;
  const auto verbs = verbs_of(fish.out);
  EXPECT_GE(verbs.size(), 18u);
  for (const char* verb : {"run", "train", "inspect", "lab", "list", "help", "completions"})
    EXPECT_TRUE(verbs.contains(verb)) << verb;
  EXPECT_TRUE(verbs.at("run").contains("max-tokens"));
  EXPECT_TRUE(verbs.at("inspect").contains("points"));  // of one view
  EXPECT_TRUE(verbs.at("convert").contains("shard-size"));
  EXPECT_FALSE(verbs.at("quantize").contains("shard-size"));
  // Taken everywhere, told where they matter.
  const std::set<std::string> shared = {"threads", "json", "quiet", "verbose"};
  for (const auto& [verb, flags] : verbs) {
    EXPECT_TRUE(has(overview, "  " + verb + " ")) << verb;
    EXPECT_TRUE(has(page, ".SS \"rapt " + verb + "\"")) << verb;
    EXPECT_TRUE(has(bash.out, "    " + verb + ")")) << verb;
    EXPECT_TRUE(has(zsh.out, "    " + verb + ")")) << verb;
    const std::string help = run("help " + verb).out;
    for (const std::string& flag : flags) {
      EXPECT_TRUE(names(bash.out, flag) && names(zsh.out, flag)) << verb << " --" << flag;
      if (!shared.contains(flag))
        EXPECT_TRUE(names(help, flag)) << verb << " --" << flag << " is not in its help";
      if (!shared.contains(flag))
        EXPECT_TRUE(names(page, flag)) << verb << " --" << flag << " is not in the man page";
    }
  }
}

TEST_F(Cli, ManPageAndCompletionsAreWellFormed) {
  const std::string bash = testing::TempDir() + "rapt_completion." + std::to_string(getpid());
  EXPECT_EQ(run("completions bash > '" + bash + "'").code, 0);
  EXPECT_EQ(std::system(("bash -n '" + bash + "'").c_str()), 0);
  // What a shell would offer.
  const std::string ask =
      "bash -c 'cd /; source \"$0\"; COMP_WORDS=(rapt \"$@\"); COMP_CWORD=$#; _rapt; printf \"%s \" "
      "\"${COMPREPLY[@]}\"' '" +
      bash + "' ";
  auto offered = [&](const std::string& words) {
    FILE* pipe = popen((ask + words).c_str(), "r");
    std::string out;
    char buffer[4096];
    while (const std::size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
    pclose(pipe);
    return out;
  };
  EXPECT_EQ(offered("tra"), "translate train ");
  EXPECT_EQ(offered("run m --max"), "--max-tokens ");
  EXPECT_EQ(offered("inspect hea"), "heads ");
  EXPECT_EQ(offered("show llama3."), "llama3.1 ");
  std::filesystem::remove(bash);
  if (std::system("command -v man >/dev/null && command -v groff >/dev/null") == 0) {
    const Outcome o = run("help --man | man --warnings -E UTF-8 -l - 2>&1 >/dev/null", "MANWIDTH=80");
    EXPECT_EQ(o.out, "");
  }
}

TEST_F(Cli, HelpKnowsItself) {
  EXPECT_TRUE(has(run("help help").out, "Usage: rapt help"));
  EXPECT_TRUE(has(run("help --version").out, "instruction set"));
  EXPECT_TRUE(has(run("help flags").out, "-n, --max-tokens"));
  EXPECT_TRUE(has(run("--version").out, "commit ") ||
              has(run("--version").out, "not built from a git checkout"));
  const Outcome two = run("help run show");
  EXPECT_EQ(two.code, 2);
}

// The table of docs/using.md has every name that `rapt help flags` has.
TEST_F(Cli, TheVocabularyIsDocumented) {
  std::stringstream text;
  text << std::ifstream(std::string(RAPT_SOURCE_DIR) + "/docs/using.md").rdbuf();
  const std::string flags = run("help flags").out;
  int n = 0;
  for (std::size_t at = flags.find("--"); at != std::string::npos; at = flags.find("--", at + 2), ++n) {
    const std::size_t end = flags.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    EXPECT_TRUE(has(text.str(), "`" + flags.substr(at, end - at) + "`")) << flags.substr(at, end - at);
  }
  EXPECT_GT(n, 25);
}

}  // namespace
}  // namespace rapt::test
