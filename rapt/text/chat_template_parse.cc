// SPDX-License-Identifier: Apache-2.0
// Recursive descent, one function per rule of the grammar in the header. Nesting and arguments are limited.
#include "rapt/text/chat_template_parse.h"

#include <algorithm>
#include <array>

#include "rapt/text/chat_template_lex.h"

namespace rapt::chat {
namespace {

class Parser {
 public:
  Parser(const Source& source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}

  Body run() {
    Body body = block({});
    if (now().kind != Token::Kind::end)
      source_.fail(now().at, "'", tokens_[next_ + 1].text, "' closes nothing that is open");
    return body;
  }

 private:
  using Kind = Token::Kind;
  using Names = std::vector<std::string_view>;

  const Token& now() const { return tokens_[next_]; }
  const Token& peek() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool is_mark(std::string_view text) const { return now().kind == Kind::mark && now().text == text; }
  bool is_name(std::string_view text) const { return now().kind == Kind::name && now().text == text; }
  bool skip_mark(std::string_view text) { return is_mark(text) ? (take(), true) : false; }
  bool skip_name(std::string_view text) { return is_name(text) ? (take(), true) : false; }
  std::string shown() const {
    switch (now().kind) {
      case Kind::end: return "the end of the template";
      case Kind::print_end: return "'}}'";
      case Kind::tag_end: return "'%}'";
      case Kind::string: return "a string";
      default: return "'" + shown_name(now().text) + "'";
    }
  }
  void want_mark(std::string_view text, std::string_view why) {
    if (!skip_mark(text)) source_.fail(now().at, "'", text, "' is expected ", why, ", found ", shown());
  }
  std::string want_name(std::string_view what) {
    if (now().kind != Kind::name) source_.fail(now().at, what, " is expected, found ", shown());
    return take().text;
  }
  void want_tag_end(std::string_view after) {
    if (now().kind != Kind::tag_end)
      source_.fail(now().at, "'%}' is expected after ", after, ", found ", shown());
    take();
  }

  struct Deeper {  // one level of nesting
    Deeper(Parser& parser) : p(parser) {
      if (++p.depth_ > kParseDepth) p.source_.fail(p.now().at, "nested deeper than ", kParseDepth);
      if (p.stack_.spent()) p.source_.fail(p.now().at, "nested too deeply for the stack");
    }
    ~Deeper() { --p.depth_; }
    Parser& p;
  };

  // Statements up to a tag with one of these names, which stays (its "{%" is taken: now() is the name).
  Body block(const Names& until, std::string_view opened = {}, std::size_t opened_at = 0) {
    const Deeper deeper(*this);
    Body body;
    while (true) {
      const Token& token = now();
      if (token.kind == Kind::end) {
        if (until.empty()) return body;
        source_.fail(opened_at, "'", opened, "' begins here and never ends: '{% ", until.back(),
                     " %}' is missing");
      }
      if (token.kind == Kind::text) {
        body.push_back(make(Statement::Kind::text));
        body.back().text = take().text;
      } else if (token.kind == Kind::print_begin) {
        take();
        body.push_back(make(Statement::Kind::print));
        body.back().exprs.push_back(tuple());
        if (now().kind != Kind::print_end)
          source_.fail(now().at, "'}}' is expected after the expression, found ", shown());
        take();
      } else {
        if (peek().kind == Kind::name && std::find(until.begin(), until.end(), peek().text) != until.end()) {
          take();
          return body;
        }
        if (until.empty() && peek().kind == Kind::name &&
            (peek().text.starts_with("end") || peek().text == "else" || peek().text == "elif"))
          source_.fail(token.at, "'", peek().text, "' closes nothing that is open");
        take();
        body.push_back(statement());
      }
    }
  }
  Statement make(Statement::Kind kind) const { return {kind, now().at, {}, {}, {}, {}, {}, false, false}; }

  Statement statement() {
    if (now().kind != Kind::name) source_.fail(now().at, "a statement's name is expected, found ", shown());
    const std::string& name = now().text;
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro_statement();
    if (name == "call") return call_statement();
    if (name == "filter") return filter_statement();
    if (name == "with") return with_statement();
    if (name == "generation") {
      Statement s = make(Statement::Kind::group);
      take();
      want_tag_end("generation");
      s.bodies.push_back(block({"endgeneration"}, "generation", s.at));
      close("endgeneration");
      return s;
    }
    if (name == "break" || name == "continue") {
      Statement s = make(name == "break" ? Statement::Kind::stop : Statement::Kind::next);
      if (loops_ == 0) source_.fail(now().at, "'", name, "' stands outside of a loop");
      const std::string word = take().text;
      want_tag_end(word);
      return s;
    }
    source_.fail(now().at, "the statement '", shown_name(name), "' is not one chat templates may use");
  }
  void close(std::string_view name) {
    take();
    want_tag_end(name);
  }

  Statement if_statement() {
    Statement s = make(Statement::Kind::choose);
    take();
    s.exprs.push_back(tuple(false));
    want_tag_end("the condition");
    while (true) {
      s.bodies.push_back(block({"elif", "else", "endif"}, "if", s.at));
      if (skip_name("elif")) {
        s.exprs.push_back(tuple(false));
        want_tag_end("the condition");
        continue;
      }
      if (skip_name("else")) {
        want_tag_end("else");
        s.bodies.push_back(block({"endif"}, "if", s.at));
      }
      close("endif");
      return s;
    }
  }

  Statement for_statement() {
    Statement s = make(Statement::Kind::loop);
    take();
    s.targets.push_back(target(false));
    if (!skip_name("in"))
      source_.fail(now().at, "'in' is expected after the names of a loop, found ", shown());
    s.exprs.push_back(tuple(false));
    if (skip_name("if")) s.exprs.push_back(expression());
    if (is_name("recursive"))
      source_.fail(now().at, "recursive loops are not something chat templates may use");
    want_tag_end("the loop's head");
    ++loops_;
    s.bodies.push_back(block({"else", "endfor"}, "for", s.at));
    --loops_;
    if (skip_name("else")) {
      want_tag_end("else");
      s.bodies.push_back(block({"endfor"}, "for", s.at));
    }
    close("endfor");
    return s;
  }

  Target target(bool attributes) {
    Target first = one_target();
    if (attributes && !first.tuple && skip_mark(".")) {
      first.attribute = want_name("an attribute's name");
      return first;
    }
    return is_mark(",") ? several(std::move(first)) : first;
  }
  Target one_target() {  // a, or (a, b)
    const Deeper deeper(*this);
    if (skip_mark("(")) {
      Target inner = one_target();
      if (is_mark(",")) inner = several(std::move(inner));
      want_mark(")", "after the names");
      return inner;
    }
    Target t;
    t.at = now().at;
    t.name = target_name();
    return t;
  }
  Target several(Target first) {
    Target all;
    all.at = first.at;
    all.tuple = true;
    all.parts.push_back(std::move(first));
    while (skip_mark(",")) {
      if (!is_mark("(") && (now().kind != Kind::name || is_name("in"))) break;
      all.parts.push_back(one_target());
    }
    return all;
  }
  std::string target_name() {
    const std::size_t at = now().at;
    std::string name = want_name("a name");
    static constexpr std::string_view kTaken[] = {"true", "false", "none", "True", "False", "None", "not",
                                                  "and",  "or",    "in",   "is",   "if",    "else"};
    if (std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken))
      source_.fail(at, "'", name, "' cannot be set");
    return name;
  }

  Statement set_statement() {
    Statement s = make(Statement::Kind::set);
    take();
    s.targets.push_back(target(true));
    if (skip_mark("=")) {
      s.exprs.push_back(tuple());
      want_tag_end("the value");
      return s;
    }
    s.kind = Statement::Kind::set_block;
    if (s.targets[0].tuple) source_.fail(now().at, "'=' is expected after the names, found ", shown());
    if (is_mark("|")) s.exprs.push_back(filters_on_nothing());
    want_tag_end("the name");
    s.bodies.push_back(block({"endset"}, "set", s.at));
    close("endset");
    return s;
  }

  // A chain of filters whose argument comes later: a postfix expression with an empty first child.
  ExprPtr filters_on_nothing() {
    ExprPtr e = node(Expr::Kind::postfix, now().at);
    e->children.push_back(nullptr);
    while (is_mark("|")) step(*e, true);
    return e;
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> all;
    want_mark("(", "before the parameters");
    while (!skip_mark(")")) {
      if (!all.empty()) want_mark(",", "between parameters");
      if (all.size() >= kMostArguments)
        source_.fail(now().at, "a macro has more than ", kMostArguments, " parameters");
      Parameter p;
      p.name = target_name();
      for (const Parameter& other : all)
        if (other.name == p.name)
          source_.fail(now().at, "two parameters are called '", shown_name(p.name), "'");
      if (skip_mark("=")) p.fallback = expression();
      all.push_back(std::move(p));
    }
    return all;
  }

  Statement macro_statement() {
    Statement s = make(Statement::Kind::macro);
    take();
    s.text = target_name();
    s.parameters = parameters();
    want_tag_end("the parameters");
    const int loops = std::exchange(loops_, 0);
    const std::size_t varargs = varargs_, kwargs = kwargs_;
    s.bodies.push_back(block({"endmacro"}, "macro", s.at));
    s.more_by_position = varargs_ > varargs;
    s.more_by_name = kwargs_ > kwargs;
    loops_ = loops;
    close("endmacro");
    return s;
  }

  Statement call_statement() {
    Statement s = make(Statement::Kind::call);
    take();
    if (is_mark("(")) s.parameters = parameters();
    ExprPtr e = unary(false);
    if (e->kind != Expr::Kind::postfix || e->steps.back().kind != Expr::Step::Kind::call)
      source_.fail(s.at, "'call' wants the call of a macro");
    s.exprs.push_back(std::move(e));
    want_tag_end("the call");
    const int loops = std::exchange(loops_, 0);
    s.bodies.push_back(block({"endcall"}, "call", s.at));
    loops_ = loops;
    close("endcall");
    return s;
  }

  Statement filter_statement() {
    Statement s = make(Statement::Kind::filter);
    take();
    ExprPtr e = node(Expr::Kind::postfix, now().at);
    e->children.push_back(nullptr);
    filter_step(*e);
    while (is_mark("|")) step(*e, true);
    s.exprs.push_back(std::move(e));
    want_tag_end("the filter");
    s.bodies.push_back(block({"endfilter"}, "filter", s.at));
    close("endfilter");
    return s;
  }

  Statement with_statement() {
    Statement s = make(Statement::Kind::with);
    take();
    while (now().kind != Kind::tag_end) {
      if (!s.targets.empty()) want_mark(",", "between names");
      const std::size_t at = now().at;
      s.targets.push_back({target_name(), {}, {}, false, at});
      want_mark("=", "after the name");
      s.exprs.push_back(expression());
    }
    take();
    s.bodies.push_back(block({"endwith"}, "with", s.at));
    close("endwith");
    return s;
  }

  // Expressions.

  ExprPtr node(Expr::Kind kind, std::size_t at) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->at = at;
    return e;
  }
  ExprPtr literal(std::size_t at, Value value) const {
    ExprPtr e = node(Expr::Kind::literal, at);
    e->value = std::move(value);
    return e;
  }

  // a, b, c without brackets, or just a.
  ExprPtr tuple(bool conditional = true) {
    const std::size_t at = now().at;
    ExprPtr first = conditional ? expression() : either();
    if (!is_mark(",")) return first;
    ExprPtr all = node(Expr::Kind::tuple, at);
    all->children.push_back(std::move(first));
    while (skip_mark(",")) {
      if (now().kind == Kind::print_end || now().kind == Kind::tag_end || is_mark(")")) break;
      all->children.push_back(conditional ? expression() : either());
    }
    return all;
  }

  ExprPtr expression() {
    const Deeper deeper(*this);
    ExprPtr e = either();
    int count = 0;
    while (is_name("if")) {
      if (++count > kParseDepth) source_.fail(now().at, "nested deeper than ", kParseDepth);
      ExprPtr c = node(Expr::Kind::conditional, take().at);
      c->children.push_back(std::move(e));
      c->children.push_back(either());
      if (skip_name("else")) c->children.push_back(expression());
      e = std::move(c);
    }
    return e;
  }

  template <class Part>
  ExprPtr logic(Expr::Kind kind, std::string_view word, Part part) {
    ExprPtr e = part();
    if (!is_name(word)) return e;
    ExprPtr all = node(kind, e->at);
    all->children.push_back(std::move(e));
    while (skip_name(word)) all->children.push_back(part());
    return all;
  }
  ExprPtr either() {
    return logic(Expr::Kind::either, "or", [&] { return both(); });
  }
  ExprPtr both() {
    return logic(Expr::Kind::both, "and", [&] { return inverted(); });
  }
  ExprPtr inverted() {
    std::size_t at = now().at;
    bool not_it = false, any = false;
    while (skip_name("not")) {
      not_it = !not_it;
      any = true;
    }
    ExprPtr e = comparison();
    if (!any) return e;
    for (int i = not_it ? 1 : 2; i > 0; --i) {  // not not x is a boolean too
      ExprPtr n = node(Expr::Kind::invert, at);
      n->children.push_back(std::move(e));
      e = std::move(n);
    }
    return e;
  }

  // part {op part}, from the left, with the operators of one level.
  template <class Find, class Part>
  ExprPtr chain(Expr::Kind kind, Find find, Part part) {
    ExprPtr e = part();
    ExprPtr all;
    Op op{};
    while (true) {
      const std::size_t at = now().at;
      if (!find(op)) return all ? std::move(all) : std::move(e);
      if (!all) {
        all = node(kind, e->at);
        all->children.push_back(std::move(e));
      }
      all->ops.push_back(op);
      all->places.push_back(at);
      all->children.push_back(part());
    }
  }
  bool one_of(Op& op, std::initializer_list<std::pair<std::string_view, Op>> marks) {
    for (const auto& [text, value] : marks)
      if (skip_mark(text)) {
        op = value;
        return true;
      }
    return false;
  }

  ExprPtr comparison() {
    return chain(
        Expr::Kind::compare,
        [&](Op& op) {
          if (skip_name("in")) return op = Op::in, true;
          if (is_name("not") && peek().kind == Kind::name && peek().text == "in")
            return take(), take(), op = Op::not_in, true;
          return one_of(op, {{"==", Op::equal},
                             {"!=", Op::not_equal},
                             {"<=", Op::less_equal},
                             {"<", Op::less},
                             {">=", Op::greater_equal},
                             {">", Op::greater}});
        },
        [&] { return sum(); });
  }
  ExprPtr sum() {
    return chain(
        Expr::Kind::chain, [&](Op& op) { return one_of(op, {{"+", Op::add}, {"-", Op::subtract}}); },
        [&] { return joined(); });
  }
  ExprPtr joined() {
    return chain(
        Expr::Kind::chain, [&](Op& op) { return one_of(op, {{"~", Op::join}}); }, [&] { return product(); });
  }
  ExprPtr product() {
    return chain(
        Expr::Kind::chain,
        [&](Op& op) {
          return one_of(
              op, {{"*", Op::multiply}, {"//", Op::floor_divide}, {"/", Op::divide}, {"%", Op::modulo}});
        },
        [&] { return power(); });
  }
  ExprPtr power() {
    return chain(
        Expr::Kind::chain, [&](Op& op) { return one_of(op, {{"**", Op::power}}); },
        [&] { return unary(true); });
  }

  ExprPtr unary(bool filters) {
    const std::size_t at = now().at;
    ExprPtr e;
    if (is_mark("-") || is_mark("+")) {
      const Deeper deeper(*this);
      const bool minus = take().text == "-";
      e = node(minus ? Expr::Kind::negate : Expr::Kind::plus, at);
      e->children.push_back(unary(false));
    } else {
      e = primary();
    }
    ExprPtr post = node(Expr::Kind::postfix, at);
    while (step(*post, filters)) {}
    if (post->steps.empty()) return e;
    post->children.push_back(std::move(e));
    return post;
  }

  // One step after an expression; false where there is none.
  bool step(Expr& e, bool filters) {
    using Step = Expr::Step;
    const std::size_t at = now().at;
    if (skip_mark(".")) {
      if (now().kind == Kind::integer) {
        Step s{Step::Kind::index, at, {}, {}, {}};
        s.parts.push_back(literal(at, now().integer));
        take();
        e.steps.push_back(std::move(s));
      } else {
        e.steps.push_back({Step::Kind::attribute, at, want_name("an attribute's name"), {}, {}});
      }
    } else if (skip_mark("[")) {
      e.steps.push_back(subscript(at));
    } else if (is_mark("(")) {
      Step s{Step::Kind::call, at, {}, {}, arguments()};
      e.steps.push_back(std::move(s));
    } else if (filters && skip_mark("|")) {
      filter_step(e);
    } else if (filters && skip_name("is")) {
      test_step(e, at);
    } else {
      return false;
    }
    return true;
  }

  Expr::Step subscript(std::size_t at) {
    using Step = Expr::Step;
    Step s{Step::Kind::index, at, {}, {}, {}};
    ExprPtr first;
    if (!is_mark(":")) first = tuple();
    if (!is_mark(":")) {
      s.parts.push_back(std::move(first));
      want_mark("]", "after the index");
      return s;
    }
    s.kind = Step::Kind::slice;
    s.parts.push_back(std::move(first));
    for (int i = 1; i < 3; ++i) {
      ExprPtr part;
      if (skip_mark(":") && !is_mark(":") && !is_mark("]")) part = expression();
      s.parts.push_back(std::move(part));
    }
    want_mark("]", "after the slice");
    return s;
  }

  std::vector<Argument> arguments() {
    std::vector<Argument> all;
    want_mark("(", "before the arguments");
    bool named = false;
    while (!skip_mark(")")) {
      if (!all.empty()) {
        want_mark(",", "between arguments");
        if (skip_mark(")")) break;
      }
      if (all.size() >= kMostArguments)
        source_.fail(now().at, "a call has more than ", kMostArguments, " arguments");
      if (is_mark("*") || is_mark("**"))
        source_.fail(now().at, "arguments from a list ('", now().text,
                     "') are not something chat templates may use");
      Argument a;
      if (now().kind == Kind::name && peek().kind == Kind::mark && peek().text == "=") {
        a.name = take().text;
        take();
        named = true;
      } else if (named) {
        source_.fail(now().at, "an argument by position cannot follow one by name");
      }
      a.value = expression();
      all.push_back(std::move(a));
    }
    return all;
  }

  void filter_step(Expr& e) {
    Expr::Step s{Expr::Step::Kind::filter, now().at, want_name("a filter's name"), {}, {}};
    while (skip_mark(".")) s.name += "." + want_name("a filter's name");
    if (is_mark("(")) s.arguments = arguments();
    e.steps.push_back(std::move(s));
  }

  void test_step(Expr& e, std::size_t at) {
    Expr::Step s{Expr::Step::Kind::test, at, {}, {}, {}};
    if (skip_name("not")) s.kind = Expr::Step::Kind::not_test;
    s.name = want_name("a test's name");
    if (is_mark("(")) {
      s.arguments = arguments();
    } else if (starts_argument()) {
      if (is_name("is")) source_.fail(now().at, "tests with 'is' cannot follow one another");
      Argument a;
      ExprPtr post = node(Expr::Kind::postfix, now().at);
      a.value = primary();
      while (step(*post, false)) {}
      if (!post->steps.empty()) {
        post->children.push_back(std::move(a.value));
        a.value = std::move(post);
      }
      s.arguments.push_back(std::move(a));
    }
    e.steps.push_back(std::move(s));
  }
  bool starts_argument() const {
    switch (now().kind) {
      case Kind::name: {
        static constexpr std::array<std::string_view, 6> kNot = {"else", "or", "and", "if", "in", "not"};
        return std::find(kNot.begin(), kNot.end(), now().text) == kNot.end();
      }
      case Kind::string:
      case Kind::integer:
      case Kind::real: return true;
      default: return is_mark("[") || is_mark("{");
    }
  }

  ExprPtr primary() {
    const Token& token = now();
    const std::size_t at = token.at;
    switch (token.kind) {
      case Kind::name: {
        const std::string& name = token.text;
        take();
        if (name == "true" || name == "True") return literal(at, true);
        if (name == "false" || name == "False") return literal(at, false);
        if (name == "none" || name == "None") return literal(at, None{});
        varargs_ += name == "varargs";
        kwargs_ += name == "kwargs";
        ExprPtr e = node(Expr::Kind::name, at);
        e->text = name;
        return e;
      }
      case Kind::string: {
        std::string text;
        while (now().kind == Kind::string) text += take().text;  // neighbours are one
        return literal(at, Text(std::move(text), true));
      }
      case Kind::integer: take(); return literal(at, token.integer);
      case Kind::real: take(); return literal(at, token.real);
      default: break;
    }
    if (skip_mark("(")) {
      if (skip_mark(")")) return node(Expr::Kind::tuple, at);
      ExprPtr e = tuple();
      want_mark(")", "to close the bracket");
      return e;
    }
    if (skip_mark("[")) {
      ExprPtr e = node(Expr::Kind::list, at);
      while (!skip_mark("]")) {
        if (!e->children.empty()) {
          want_mark(",", "between the items of a list");
          if (skip_mark("]")) break;
        }
        e->children.push_back(expression());
      }
      return e;
    }
    if (skip_mark("{")) {
      ExprPtr e = node(Expr::Kind::map, at);
      while (!skip_mark("}")) {
        if (!e->children.empty()) {
          want_mark(",", "between the items of a mapping");
          if (skip_mark("}")) break;
        }
        e->children.push_back(expression());
        want_mark(":", "between key and value");
        e->children.push_back(expression());
      }
      return e;
    }
    source_.fail(at, "an expression is expected, found ", shown());
  }

  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  std::size_t varargs_ = 0, kwargs_ = 0;  // how often these names were read
  int depth_ = 0, loops_ = 0;
  StackGauge stack_;
};

}  // namespace

Parsed parse(std::string_view source, std::string_view where) {
  if (source.size() > kMostSource)
    fail(where, ": a chat template of ", source.size(), " bytes; more than ", kMostSource, " are refused");
  Parsed parsed;
  parsed.source.where = where;
  std::string& text = parsed.source.text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {  // every kind of line end is one
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  parsed.body = Parser(parsed.source, lex(parsed.source)).run();
  return parsed;
}

}  // namespace rapt::chat
