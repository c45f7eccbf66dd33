// SPDX-License-Identifier: Apache-2.0
// A verb's flags are learned by running it with Args::probe up to operands(); meanings come from its help.
#include "rapt/apps/cli/manual.h"

#include <algorithm>

#include "rapt/apps/cli/help_text.h"
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/base/text.h"
#include "rapt/lab/experiment.h"
#include "rapt/recipe/recipe.h"

namespace rapt::cli {
namespace {

// Words that may stand where the first operand does; empty where it is a model or a file.
std::vector<std::string> first_words(const std::string& verb) {
  if (verb == "inspect") return view_names();
  if (verb == "show" || verb == "train") return preset_names();
  if (verb == "completions") return {"bash", "zsh", "fish"};
  std::vector<std::string> out;
  if (verb == "lab")
    for (const Experiment& e : experiments()) out.emplace_back(e.name);
  if (verb == "help") {
    for (const Verb* v : verbs()) out.emplace_back(v->name);
    out.emplace_back("flags");
  }
  return out;
}

// What the help says behind a flag, up to the next clause; "" where it only names it.
std::string meaning_of(std::string_view help, const std::string& flag) {
  const std::string name = "--" + flag;
  for (const std::string& line : lines_of(help)) {
    const std::size_t at = line.find(name);
    if (!line.starts_with("  ") || at == std::string::npos || at > 6) continue;
    if (at + name.size() < line.size() && line[at + name.size()] != ' ' && line[at + name.size()] != ',')
      continue;
    const std::size_t gap = line.find("  ", at);
    if (gap == std::string::npos) return "";
    std::string text = line.substr(std::min(line.find_first_not_of(' ', gap), line.size()));
    if (text.starts_with("--")) return "";
    return text.substr(0, text.find(';'));
  }
  return "";
}

std::string letter_of(const std::string& flag) {
  for (const FlagName& f : flag_names())
    if (f.name == flag) return std::string(f.letter);
  return "";
}

// ------------------------------------------------------------------------------------------------ man page

std::string man_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '\'') out += "\\(aq";
    else if (c == '`') out += "\\(ga";
    else if (c == '^') out += "\\(ha";
    else if (c == '~') out += "\\(ti";
    else out += c;
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string literal(const std::vector<std::string>& lines) {
  std::string out = ".PP\n.RS 4\n.nf\n";
  for (const std::string& line : lines) out += man_text(line) + "\n";
  return out + ".fi\n.RE\n";
}

// A line of flags: each a term, two spaces and its meaning, or several terms without one.
std::string man_items(std::string_view line) {
  std::string out, terms;
  auto flush_terms = [&] {
    if (!terms.empty()) out += concat(".PP\n\\fB", terms, "\\fR\n");
    terms.clear();
  };
  while (!line.empty()) {
    std::size_t end = line.find("  -", 1);  // the next flag of the line
    while (end != std::string_view::npos && line.substr(end + 2, 2) == "- ") end = line.find("  -", end + 1);
    const std::string_view item = line.substr(0, end);
    line.remove_prefix(std::min(line.find_first_not_of(' ', std::min(end, line.size())), line.size()));
    const std::size_t gap = item.find("  "),
                      text = std::min(item.find_first_not_of(' ', std::min(gap, item.size())), item.size());
    if (text == item.size()) {
      terms += (terms.empty() ? "" : "   ") + man_text(item.substr(0, gap));
      continue;
    }
    flush_terms();
    out += concat(".TP\n\\fB", man_text(item.substr(0, gap)), "\\fR\n", man_text(item.substr(text)), "\n");
  }
  flush_terms();
  return out;
}

// A help text: "Usage:" and "Examples:" are shown as they are, lines of flags become items, the rest
// paragraphs.
std::string man_help(std::string_view help) {
  std::string out;
  std::vector<std::string> fixed;
  bool examples = false, usage = false, items = false, fresh = true;  // fresh: a paragraph begins
  auto flush_fixed = [&] {
    if (!fixed.empty()) out += literal(fixed);
    fixed.clear();
  };
  for (const std::string& line : lines_of(help)) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (indent == line.size()) {
      if (usage) flush_fixed();
      usage = false, fresh = true;
    } else if (line == "Examples:") {
      examples = true;
      out += ".PP\nExamples:\n";
    } else if (examples || usage || line.starts_with("Usage: ")) {
      usage = !examples;
      fixed.push_back(line.substr(examples                      ? indent
                                  : line.starts_with("Usage: ") ? 7
                                                                : std::min<std::size_t>(indent, 7)));
    } else if ((indent > 0 && indent < 6) || line.starts_with("--")) {
      out += man_items(line.substr(indent));
      fresh = false, items = true;
    } else {
      if (fresh || (indent == 0 && items)) out += ".PP\n", items = false;
      fresh = indent == 0 && line.ends_with(':');
      out += man_text(line.substr(indent)) + "\n";
    }
  }
  flush_fixed();
  return out;
}

// ------------------------------------------------------------------------------------------------ shells

std::string bash_script() {
  std::string verb_list, cases;
  for (const Verb* v : verbs()) {
    verb_list += concat(verb_list.empty() ? "" : " ", v->name);
    std::string flags;
    for (const Args::Flag& k : flags_of(*v)) {
      const std::string letter = letter_of(k.name);
      flags += concat(letter.empty() ? "" : letter + " ", "--", k.name, " ");
    }
    cases += concat("    ", v->name, ")\n      flags='", flags, "--help'\n      words='",
                    join(first_words(v->name), " "), "' ;;\n");
  }
  return concat(
      "# bash completion of rapt; made by `rapt completions bash`\n"
      "_rapt() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} flags='' words='' folder IFS=$' \\t\\n'\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '",
      verb_list,
      " --help --version' -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n",
      cases,
      "  esac\n"
      "  if [[ $cur == -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  [ \"$COMP_CWORD\" -eq 2 ] || words=''\n"
      "  # models by name: what lies in the folders of RAPT_MODELS\n"
      "  if [ \"$COMP_CWORD\" -lt 4 ]; then\n"
      "    IFS=:\n"
      "    for folder in $RAPT_MODELS; do words+=\" $(ls \"$folder\" 2>/dev/null | tr '\\n' ' ')\"; done\n"
      "    IFS=$' \\t\\n'\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"; compgen -f -- \"$cur\")\n"
      "}\n"
      "complete -o filenames -F _rapt rapt\n");
}

std::string in_quotes(std::string_view text) {  // for zsh and fish, inside '…'
  std::string out;
  for (char c : text)
    if (c == '\'') out += "’";
    else if (c == '\\') out += "\\\\";
    else out += c;
  return out;
}

std::string zsh_script() {
  std::string all, cases;
  auto item = [](std::string_view name, std::string_view text) {
    return concat(" '", in_quotes(name), text.empty() ? "" : ":", in_quotes(text), "'");
  };
  for (const Verb* v : verbs()) {
    all += item(v->name, v->summary);
    std::string flags, words;
    const std::string help = help_text(*v);
    for (const Args::Flag& k : flags_of(*v)) {
      const std::string letter = letter_of(k.name), text = meaning_of(help, k.name);
      if (!letter.empty()) flags += item(letter, text);
      flags += item("--" + k.name, text);
    }
    for (const std::string& w : first_words(v->name)) words += " " + w;
    cases += concat("    ", v->name, ")\n      flags=(", flags, " '--help:how it is used')\n      names=(",
                    words, ") ;;\n");
  }
  return concat(
      "#compdef rapt\n"
      "# zsh completion of rapt; made by `rapt completions zsh`\n"
      "_rapt() {\n"
      "  local -a verbs flags names\n"
      "  local folder\n"
      "  verbs=(",
      all,
      ")\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe verb verbs\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n",
      cases,
      "  esac\n"
      "  if [[ $words[CURRENT] == -* ]]; then\n"
      "    _describe flag flags\n"
      "    return\n"
      "  fi\n"
      "  (( CURRENT == 3 )) || names=()\n"
      "  for folder in ${(s.:.)RAPT_MODELS}; do names+=($folder/*(N:t)); done\n"
      "  compadd -a names\n"
      "  _files\n"
      "}\n"
      "_rapt \"$@\"\n");
}

std::string fish_script() {
  std::string out = "# fish completion of rapt; made by `rapt completions fish`\n";
  for (const Verb* v : verbs()) {
    out += concat("complete -c rapt -n __fish_use_subcommand -a ", v->name, " -d '", in_quotes(v->summary),
                  "'\n");
    const std::string help = help_text(*v);
    const std::string when = concat("complete -c rapt -n '__fish_seen_subcommand_from ", v->name, "'");
    for (const Args::Flag& k : flags_of(*v)) {
      const std::string letter = letter_of(k.name), text = meaning_of(help, k.name);
      out +=
          concat(when, " -l ", k.name, letter.empty() ? "" : " -s " + letter.substr(1),
                 k.takes_value ? " -r" : "", text.empty() ? "" : concat(" -d '", in_quotes(text), "'"), "\n");
    }
    if (const std::vector<std::string> words = first_words(v->name); !words.empty())
      out += concat(when, " -a '", join(words, " "), "'\n");
  }
  return out;
}

int completions(Args& args) {
  const std::string shell = args.operands(1, 1, "one shell: bash, zsh or fish")[0];
  const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  if (shell == "bash") print(bash_script());
  else if (shell == "zsh") print(zsh_script());
  else if (shell == "fish") print(fish_script());
  else fail_usage("no completions for '", shell, "'; ", name_hint(shell, shells));
  return 0;
}

}  // namespace

std::vector<Args::Flag> flags_of(const Verb& verb) {
  std::vector<Args::Flag> out;
  auto ask = [&](std::vector<std::string> words) {
    Args args = Args::probe(std::move(words));
    try {
      verb.run(args);
    } catch (const Error&) {  // operands() ends the probe; a verb that misses something says so earlier
    }
    for (const Args::Flag& k : args.flags())
      if (std::find(out.begin(), out.end(), k) == out.end()) out.push_back(k);
  };
  if (std::string_view(verb.name) != "inspect") ask({});
  else
    for (const std::string& view : view_names()) ask({view});
  return out;
}

std::string man_page() {
  std::string out =
      concat("'\\\" -*- coding: UTF-8 -*-\n.\\\" Made by `rapt help --man`.\n.TH RAPT 1 \"\" \"rapt ",
             RAPT_VERSION, "\" \"\"\n",
             ".SH NAME\nrapt \\- train, run and look inside Transformers\n"
             ".SH SYNOPSIS\n.B rapt\n.I VERB\n[...]\n.br\n.B rapt help\n[\\fIVERB\\fR]\n.br\n.B rapt\n"
             "\\-\\-version .SH DESCRIPTION\nResults go to standard output, progress and notes to\n"
             "standard error.\n"
             "Flags may stand anywhere behind the verb; after\n.B \\-\\-\nnothing is a flag.\n");
  for (const Verb* v : verbs())
    out += concat(".TP\n\\fB", man_text(v->name), "\\fR\n", man_text(v->summary), "\n");
  out += ".SH VERBS\n";
  for (const Verb* v : verbs())
    out += concat(".SS \"rapt ", v->name, "\"\n", man_text(v->summary), "\n", man_help(help_text(*v)));
  out += ".SH FLAGS OF MANY VERBS\nOne name for one thing; other spellings work as well.\n";
  for (const FlagName& f : flag_names()) {
    std::string also;
    for (std::string_view s : f.also)
      if (!s.empty()) also += concat(also.empty() ? " (also " : ", ", s);
    out += concat(".TP\n\\fB", man_text(concat(f.letter.empty() ? "" : concat(f.letter, ", "), "--", f.name)),
                  "\\fR\n", man_text(concat(f.meaning, also, also.empty() ? "" : ")")), "\n");
  }
  return out +
         ".SH ENVIRONMENT\n"
         ".TP\n.B RAPT_MODELS\nfolders of models, with colons between them\n"
         ".TP\n.B RAPT_ISA\ninstruction set: scalar, avx2, avx512; f64 is the reference in double\n"
         ".TP\n.B RAPT_THREADS\nnumber of threads\n"
         ".TP\n.B NO_COLOR\nno colours\n"
         ".SH EXIT STATUS\n"
         ".TP\n.B 0\ndone\n.TP\n.B 1\nsomething failed; the reason is on standard error\n"
         ".TP\n.B 2\nwrong usage\n.TP\n.B 130\nstopped by Ctrl\\-C\n";
}

extern const Verb kCompletions;
const Verb kCompletions = {
    "completions", "completions for a shell",
    "Usage: rapt completions bash|zsh|fish\n"
    "\n"
    "Prints a script with every verb and flag; names of models come from RAPT_MODELS. cmake --install puts\n"
    "all three in their places.\n"
    "\n"
    "Examples:\n"
    "  source <(rapt completions bash)\n"
    "  rapt completions fish > ~/.config/fish/completions/rapt.fish\n",
    completions};

}  // namespace rapt::cli
