// SPDX-License-Identifier: Apache-2.0
// The language of chat templates, as a tree.
//
//   template  = { text | "{{" tuple "}}" | "{%" statement "%}" | "{#" … "#}" }
//   statement = if … elif … else … endif | for targets in or [if expr] … else … endfor
//             | set targets = tuple | set name filters … endset
//             | macro name(params) … endmacro | call[(params)] postfix … endcall
//             | filter name … endfilter | with a = expr, … endwith
//             | generation … endgeneration | raw … endraw | break | continue
//   expr      = or ["if" or ["else" expr]]
//   or        = and {"or" and}
//   and       = not {"and" not}
//   not       = {"not"} compare
//   compare   = sum {("=="|"!="|"<"|"<="|">"|">="|"in"|"not in") sum}
//   sum       = join {("+"|"-") join}
//   join      = product {"~" product}
//   product   = power {("*"|"/"|"//"|"%") power}
//   power     = unary {"**" unary}
//   unary     = ("-"|"+") unary
//             | primary {".name" | "[index]" | "[a:b:c]" | "(args)" | "|" filter | "is" ["not"] test}
//
// "-" inside a tag eats white space on that side; the newline after a "%}" and the blanks before a "{%" go
// in any case.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rapt/text/chat_template_value.h"

namespace rapt::chat {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  std::string name;  // "": by position
  ExprPtr value;
};

enum class Op {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  join,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Expr {
  enum class Kind {
    literal,  // value
    name,  // text
    list,
    tuple,  // children
    map,  // children: key, value, key, value …
    negate,
    plus,
    invert,  // children[0]; invert is "not"
    chain,  // children[0] ops[0] children[1] ops[1] …, from the left
    compare,  // the same as comparisons: a < b < c is a < b and b < c
    both,
    either,  // children: "and", "or"
    conditional,  // children: then, condition, [else]
    postfix  // children[0], then steps
  };
  struct Step {
    enum class Kind { attribute, index, slice, call, filter, test, not_test };
    Kind kind;
    std::size_t at;
    std::string name;  // attribute, filter, test
    std::vector<ExprPtr> parts;  // index: one; slice: three, absent ones null
    std::vector<Argument> arguments;
  };
  Kind kind;
  std::size_t at;
  Value value;
  std::string text;
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::vector<std::size_t> places;  // of ops
  std::vector<Step> steps;
};

struct Target {  // of set and for: one name, one attribute of a namespace, or several targets: a, (b, c)
  std::string name;
  std::string attribute;  // of name
  std::vector<Target> parts;
  bool tuple = false;
  std::size_t at = 0;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind { text, print, choose, loop, set, set_block, macro, call, filter, with, group, stop, next };
  Kind kind;
  std::size_t at;
  std::string text;  // text; name of a macro
  // Print, set: one; choose: conditions (one fewer than bodies: else); loop: what to go through,
  // [condition].
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;  // choose: one per branch; loop: body, else; others: one
  std::vector<Target> targets;  // loop, set: one; with: one per expr
  std::vector<Parameter> parameters;  // macro, call
  // The body speaks of `varargs`, `kwargs`: what has no parameter goes there.
  bool more_by_position = false, more_by_name = false;
};

struct Parsed {
  Source source;
  Body body;
};

Parsed parse(std::string_view source, std::string_view where);

}  // namespace rapt::chat
