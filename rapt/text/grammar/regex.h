// SPDX-License-Identifier: Apache-2.0
// Patterns as JSON schemas write them (ECMA-262 with the flag u), as automata: time linear in the text.
//
//   pattern = branch ("|" branch)*          branch = (atom quantifier? | "^" | "$")*
//   quantifier = ("*" | "+" | "?" | "{" m "}" | "{" m "," n? "}") "?"?
//   atom = character | "." | "[" class "]" | "(" pattern ")" | "(?:" pattern ")" | "(?<name>" pattern ")"
//        | \d \w \s \D \W \S \p{L} \P{L} \t \n \r \f \v \0 \cX \xHH \uHHHH \u{…} | "\" punctuation
//
// Refused, since no automaton of bounded size knows them: back-references, look-ahead and look-behind, word
// boundaries. \d, \w and \s are those of ECMA-262: digits and letters are ASCII, blanks are Unicode's.
#pragma once
#include <string_view>

#include "rapt/text/grammar/char_dfa.h"

namespace rapt {

// search: the texts that contain a match, as `pattern` of a schema means it; else those that match as a
// whole.
CharDfa regex_dfa(std::string_view pattern, bool search, GrammarBudget& budget);

}  // namespace rapt
