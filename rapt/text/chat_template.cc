// SPDX-License-Identifier: Apache-2.0
// The interpreter. Grammar and tree: chat_template_parse.h; values: chat_template_value.h; filters, tests,
// methods: chat_template_builtins.h.
#include "rapt/text/chat_template.h"

#include <array>
#include <deque>
#include <span>
#include <unordered_map>

#include "rapt/text/chat_template_builtins.h"
#include "rapt/text/chat_template_parse.h"

namespace rapt {

namespace chat {

struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string_view, Value> names;
  bool held = false;  // by a macro that was defined here: lives as long as the rendering
};

struct Callable {
  enum class Kind { macro, range, raise, now, make_namespace, dict };
  Kind kind;
  std::string_view name;
  const Statement* body = nullptr;  // macro
  Scope* scope = nullptr;
};

namespace {

// Date arithmetic and names for strftime_now; the time of day is not known to a template.
class Date {
 public:
  Date(Meter& meter, const std::string& iso) {
    const auto number = [&](std::size_t at, std::size_t digits) {
      int n = 0;
      for (std::size_t i = at; i < at + digits; ++i) {
        if (i >= iso.size() || iso[i] < '0' || iso[i] > '9')
          meter.fail("strftime_now: the date '", iso, "' is not like 2026-11-15");
        n = n * 10 + (iso[i] - '0');
      }
      return n;
    };
    year = number(0, 4), month = number(5, 2), day = number(8, 2);
    if (iso.size() != 10 || iso[4] != '-' || iso[7] != '-' || month < 1 || month > 12 || day < 1 || day > 31)
      meter.fail("strftime_now: the date '", iso, "' is not like 2026-11-15");
  }
  std::string format(Meter& meter, std::string_view pattern) const {
    static constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                              "May",       "June",     "July",     "August",
                                              "September", "October",  "November", "December"};
    static constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                            "Thursday", "Friday", "Saturday"};
    std::string out;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      meter.pay();
      if (pattern[i] != '%' || i + 1 == pattern.size()) {
        out += pattern[i];
        continue;
      }
      bool plain = false;
      char kind = pattern[++i];
      if (kind == '-' && i + 1 < pattern.size()) {
        plain = true;
        kind = pattern[++i];
      }
      const auto two = [&](int n) { out += n < 10 && !plain ? concat("0", n) : concat(n); };
      switch (kind) {
        case 'Y': out += concat(year); break;
        case 'y': two(year % 100); break;
        case 'm': two(month); break;
        case 'd': two(day); break;
        case 'e': out += concat(day < 10 ? " " : "", day); break;
        case 'B': out += kMonths[month - 1]; break;
        case 'b': out += std::string_view(kMonths[month - 1]).substr(0, 3); break;
        case 'A': out += kDays[weekday()]; break;
        case 'a': out += std::string_view(kDays[weekday()]).substr(0, 3); break;
        case 'H':
        case 'M':
        case 'S': out += "00"; break;
        case '%': out += '%'; break;
        default:
          meter.fail("strftime_now: '%", kind, "' is not a part of a date that chat templates may use");
      }
    }
    return out;
  }

 private:
  int weekday() const {  // Zeller's rule by way of Sakamoto's table; 0 is Sunday
    static constexpr int kShift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
    const int y = month < 3 ? year - 1 : year;
    return (y + y / 4 - y / 100 + y / 400 + kShift[month - 1] + day) % 7;
  }
  int year, month, day;
};

enum class Flow { on, stop, next };

class Rendering {
 public:
  // What a rendering may spend grows with what it is given: a long conversation is no attack.
  Rendering(const Source& source, const ChatOptions& options, std::size_t messages, std::size_t bytes)
      : meter_{source, ChatTemplate::kFuel + static_cast<std::int64_t>(1000 * messages + bytes / 2),
               std::max(static_cast<std::size_t>(ChatTemplate::kMostOutput), 4 * bytes)},
        options_(options) {
    globals_.names.reserve(32);
    using Kind = Callable::Kind;
    static constexpr std::pair<std::string_view, Kind> kFunctions[] = {{"range", Kind::range},
                                                                       {"raise_exception", Kind::raise},
                                                                       {"strftime_now", Kind::now},
                                                                       {"namespace", Kind::make_namespace},
                                                                       {"dict", Kind::dict}};
    for (const auto& [name, kind] : kFunctions) globals_.names[name] = hold(kind, name);
  }

  void give(std::string_view name, Value value) { globals_.names[name] = std::move(value); }
  Meter& meter() { return meter_; }

  Text run(const Body& body) {
    Text out;
    Scope top{&globals_, {}, true};
    execute(body, top, out);
    return out;
  }

 private:
  // Trees inside macros inside macros: what the C++ stack has to carry.
  static constexpr int kEvalDepth = 512;

  struct Deeper {
    Deeper(Rendering& rendering) : r(rendering) {
      if (++r.depth_ > kEvalDepth || r.meter_.stack.spent())
        r.meter_.fail("macros and expressions nested too deeply (does a macro call itself without end?)");
    }
    ~Deeper() { --r.depth_; }
    Rendering& r;
  };

  const Callable* hold(Callable::Kind kind, std::string_view name, const Statement* body = nullptr,
                       Scope* scope = nullptr) {
    meter_.pay(4);  // kept, and its scope with it
    callables_.push_back({kind, name, body, scope});
    for (Scope* s = scope; s && !s->held; s = s->parent) s->held = true;
    return &callables_.back();
  }

  // A scope below another; taken back at the end unless a macro holds it.
  class Inner {
   public:
    Inner(Rendering& rendering, Scope* parent) : r_(rendering) {
      if (r_.spare_.empty()) {
        r_.scopes_.emplace_back();
        scope_ = &r_.scopes_.back();
      } else {
        scope_ = r_.spare_.back();
        r_.spare_.pop_back();
      }
      scope_->parent = parent;
    }
    ~Inner() {
      if (scope_->held) return;
      // Clearing costs as much as there are buckets.
      if (scope_->names.bucket_count() > 64) scope_->names = {};
      else scope_->names.clear();
      r_.spare_.push_back(scope_);
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;
    Scope& operator*() { return *scope_; }
    Scope* operator->() { return scope_; }

   private:
    Rendering& r_;
    Scope* scope_;
  };

  // Statements.

  Flow execute(const Body& body, Scope& scope, Text& out) {
    const Deeper deeper(*this);
    for (const Statement& s : body)
      if (const Flow flow = execute(s, scope, out); flow != Flow::on) return flow;
    return Flow::on;
  }

  void put(Text& out, const Text& text) {
    meter_.pay_text(text);
    if (out.cost() + text.cost() > meter_.most_bytes)
      meter_.fail("the result is longer than ", meter_.most_bytes, " bytes");
    out.append(text);
  }

  Flow execute(const Statement& s, Scope& scope, Text& out) {
    using Kind = Statement::Kind;
    meter_.at = s.at;
    meter_.pay();
    switch (s.kind) {
      case Kind::text: put(out, Text(s.text, true)); return Flow::on;
      case Kind::print: {
        const Value value = evaluate(*s.exprs[0], scope);
        meter_.at = s.exprs[0]->at;
        put(out, to_text(meter_, value));
        return Flow::on;
      }
      case Kind::choose:
        for (std::size_t i = 0; i < s.bodies.size(); ++i)
          if (i >= s.exprs.size() || evaluate(*s.exprs[i], scope).truth())
            return execute(s.bodies[i], scope, out);
        return Flow::on;
      case Kind::loop: return loop(s, scope, out);
      case Kind::set: assign(s.targets[0], evaluate(*s.exprs[0], scope), scope, scope); return Flow::on;
      case Kind::set_block: {
        Text text;
        {
          Inner inner(*this, &scope);
          if (const Flow flow = execute(s.bodies[0], *inner, text); flow != Flow::on) return flow;
        }
        Value value = make_text(meter_, std::move(text));
        if (!s.exprs.empty()) value = postfix(*s.exprs[0], std::move(value), scope);
        assign(s.targets[0], std::move(value), scope, scope);
        return Flow::on;
      }
      case Kind::macro:
        scope.names[s.text] = hold(Callable::Kind::macro, s.text, &s, &scope);
        return Flow::on;
      case Kind::call: {
        const Callable* caller = hold(Callable::Kind::macro, "caller", &s, &scope);
        put(out,
            to_text(meter_, postfix(*s.exprs[0], evaluate(*s.exprs[0]->children[0], scope), scope, caller)));
        return Flow::on;
      }
      case Kind::filter: {
        Text text;
        {
          Inner inner(*this, &scope);
          if (const Flow flow = execute(s.bodies[0], *inner, text); flow != Flow::on) return flow;
        }
        put(out, to_text(meter_, postfix(*s.exprs[0], make_text(meter_, std::move(text)), scope)));
        return Flow::on;
      }
      case Kind::with: {
        Inner inner(*this, &scope);
        for (std::size_t i = 0; i < s.targets.size(); ++i)
          assign(s.targets[i], evaluate(*s.exprs[i], scope), *inner, scope);
        return execute(s.bodies[0], *inner, out);
      }
      case Kind::group: {
        Inner inner(*this, &scope);
        return execute(s.bodies[0], *inner, out);
      }
      case Kind::stop: return Flow::stop;
      case Kind::next: return Flow::next;
    }
    return Flow::on;
  }

  Flow loop(const Statement& s, Scope& scope, Text& out) {
    meter_.pay(2);  // its state is kept
    std::vector<Value> items = iterate_at(*s.exprs[0], scope);
    if (s.exprs.size() > 1) {  // for … if …: the loop counts only what passes
      std::vector<Value> kept;
      for (Value& one : items) {
        Inner inner(*this, &scope);
        assign(s.targets[0], one, *inner, scope);
        if (evaluate(*s.exprs[1], *inner).truth()) kept.push_back(std::move(one));
      }
      items = std::move(kept);
    }
    if (items.empty()) return s.bodies.size() > 1 ? execute(s.bodies[1], scope, out) : Flow::on;
    loops_.emplace_back();
    Loop& state = loops_.back();
    state.length = items.size();
    state.previous = Value::undefined("there is no item before the first");
    for (std::size_t i = 0; i < items.size(); ++i) {
      meter_.at = s.at;
      meter_.pay();
      state.index0 = i;
      state.next = i + 1 < items.size() ? items[i + 1] : Value::undefined("there is no item after the last");
      Inner inner(*this, &scope);
      inner->names["loop"] = static_cast<const Loop*>(&state);
      assign(s.targets[0], items[i], *inner, scope);
      if (execute(s.bodies[0], *inner, out) == Flow::stop) break;
      state.previous = items[i];
    }
    return Flow::on;
  }
  std::vector<Value> iterate_at(const Expr& e, Scope& scope) {
    const Value value = evaluate(e, scope);
    meter_.at = e.at;
    return iterate(meter_, value);
  }

  void assign(const Target& target, Value value, Scope& scope, Scope& lookup) {
    meter_.at = target.at;
    meter_.pay(2);  // a node of a scope
    if (!target.attribute.empty()) {
      const Value* found = find(target.name, lookup);
      if (!found || !found->is_namespace())
        meter_.fail("'", shown_name(target.name), "' is no namespace: only those have attributes to set");
      Namespace& space = *std::get<Namespace*>(found->v);
      meter_.pay(space.items.size() / 8);
      if (Value* place = space.find(target.attribute)) *place = std::move(value);
      else space.items.emplace_back(target.attribute, std::move(value));
      return;
    }
    if (!target.tuple) {
      scope.names[target.name] = std::move(value);
      return;
    }
    std::vector<Value> parts = iterate(meter_, value);
    if (parts.size() != target.parts.size())
      meter_.fail(target.parts.size(), " names for ", parts.size(), " values");
    for (std::size_t i = 0; i < parts.size(); ++i)
      assign(target.parts[i], std::move(parts[i]), scope, lookup);
  }

  const Value* find(std::string_view name, const Scope& scope) {
    for (const Scope* s = &scope; s; s = s->parent) {
      meter_.pay();
      if (const auto it = s->names.find(name); it != s->names.end()) return &it->second;
    }
    return nullptr;
  }

  // Expressions.

  Value evaluate(const Expr& e, Scope& scope) {
    using Kind = Expr::Kind;
    const Deeper deeper(*this);
    meter_.at = e.at;
    meter_.pay();
    switch (e.kind) {
      case Kind::literal: return e.value;
      case Kind::name:
        if (const Value* value = find(e.text, scope)) return *value;
        return Value::undefined(concat("'", shown_name(e.text), "' is undefined"));
      case Kind::list:
      case Kind::tuple: {
        std::vector<Value> items;
        for (const ExprPtr& child : e.children) items.push_back(evaluate(*child, scope));
        meter_.at = e.at;
        return make_list(meter_, std::move(items), e.kind == Kind::tuple);
      }
      case Kind::map: {
        std::vector<std::pair<Value, Value>> items;
        for (std::size_t i = 0; i + 1 < e.children.size(); i += 2) {
          Value key = evaluate(*e.children[i], scope);
          items.emplace_back(std::move(key), evaluate(*e.children[i + 1], scope));
        }
        meter_.at = e.at;
        return make_map(meter_, std::move(items));
      }
      case Kind::negate:
      case Kind::plus: {
        const Value value = evaluate(*e.children[0], scope);
        meter_.at = e.at;
        return binary(meter_, e.kind == Kind::negate ? Op::multiply : Op::add, negatable(value),
                      std::int64_t{e.kind == Kind::negate ? -1 : 0});
      }
      case Kind::invert: return !evaluate(*e.children[0], scope).truth();
      case Kind::chain: {
        Value value = evaluate(*e.children[0], scope);
        for (std::size_t i = 0; i < e.ops.size(); ++i) {
          const Value right = evaluate(*e.children[i + 1], scope);
          meter_.at = e.places[i];
          value = binary(meter_, e.ops[i], value, right);
        }
        return value;
      }
      case Kind::compare: {
        Value left = evaluate(*e.children[0], scope);
        for (std::size_t i = 0; i < e.ops.size(); ++i) {
          Value right = evaluate(*e.children[i + 1], scope);
          meter_.at = e.places[i];
          if (!holds(e.ops[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
      case Kind::both:
      case Kind::either: {
        Value value;
        for (const ExprPtr& child : e.children) {
          value = evaluate(*child, scope);
          if (value.truth() == (e.kind == Kind::either)) break;
        }
        return value;
      }
      case Kind::conditional:
        if (evaluate(*e.children[1], scope).truth()) return evaluate(*e.children[0], scope);
        if (e.children.size() > 2) return evaluate(*e.children[2], scope);
        return Value::undefined("the condition is false and there is no 'else'");
      case Kind::postfix: return postfix(e, evaluate(*e.children[0], scope), scope);
    }
    return {};
  }

  const Value& negatable(const Value& value) {
    if (!value.is_number()) meter_.fail("the sign before ", value.type_name(), " has no meaning");
    return value;
  }

  bool holds(Op op, const Value& a, const Value& b) {
    switch (op) {
      case Op::equal: return equal(meter_, a, b);
      case Op::not_equal: return !equal(meter_, a, b);
      case Op::in: return contains(meter_, b, a);
      case Op::not_in: return !contains(meter_, b, a);
      default: break;
    }
    if (a.is_real() || b.is_real()) {  // nan is neither less nor greater
      if (a.is_number() && b.is_number()) {
        const double x = a.number(), y = b.number();
        return op == Op::less ? x < y : op == Op::less_equal ? x <= y : op == Op::greater ? x > y : x >= y;
      }
    }
    const int order = compare(meter_, a, b, "comparison");
    return op == Op::less         ? order < 0
           : op == Op::less_equal ? order <= 0
           : op == Op::greater    ? order > 0
                                  : order >= 0;
  }

  Arguments arguments(const std::vector<Argument>& from, Scope& scope) {
    Arguments all;
    for (const Argument& a : from) {
      Value value = evaluate(*a.value, scope);
      if (a.name.empty()) all.by_position.push_back(std::move(value));
      else all.by_name.emplace_back(a.name, std::move(value));
    }
    return all;
  }

  // The steps after a value. `caller` goes to the last one, a call.
  Value postfix(const Expr& e, Value value, Scope& scope, const Callable* caller = nullptr) {
    using Kind = Expr::Step::Kind;
    for (const Expr::Step& step : e.steps) {
      const auto part = [&](std::size_t i) {
        return step.parts[i] ? evaluate(*step.parts[i], scope) : Value(None{});
      };
      switch (step.kind) {
        case Kind::attribute:
          meter_.at = step.at;
          value = attribute(meter_, value, step.name);
          break;
        case Kind::index: {
          const Value key = part(0);
          meter_.at = step.at;
          value = item(meter_, value, key);
          break;
        }
        case Kind::slice: {
          const Value from = part(0), to = part(1), by = part(2);
          meter_.at = step.at;
          value = slice(meter_, value, from, to, by);
          break;
        }
        case Kind::call: {
          Arguments given = arguments(step.arguments, scope);
          meter_.at = step.at;
          value = call(value, std::move(given), &step == &e.steps.back() ? caller : nullptr);
          break;
        }
        case Kind::filter: {
          const Arguments given = arguments(step.arguments, scope);
          meter_.at = step.at;
          value = apply_filter(meter_, step.name, value, given);
          break;
        }
        case Kind::test:
        case Kind::not_test: {
          const Arguments given = arguments(step.arguments, scope);
          meter_.at = step.at;
          value = apply_test(meter_, step.name, value, given) == (step.kind == Kind::test);
          break;
        }
      }
    }
    return value;
  }

  Value call(const Value& value, Arguments given, const Callable* caller) {
    meter_.pay();
    if (const auto* method = std::get_if<Method>(&value.v))
      return call_method(meter_, *method->self, method->name, given);
    if (const auto* undefined = std::get_if<Undefined>(&value.v))
      meter_.fail(undefined->what ? *undefined->what : std::string("the value is undefined"),
                  ", so it cannot be called");
    const auto* callable = std::get_if<const Callable*>(&value.v);
    if (!callable) meter_.fail(value.type_name(), " cannot be called");
    const Callable& c = **callable;
    switch (c.kind) {
      case Callable::Kind::macro: return call_macro(c, given, caller);
      case Callable::Kind::range: return range(given);
      case Callable::Kind::raise: {
        const Taken t(meter_, c.name, given, {"message"}, 1);
        meter_.fail("the template refuses: ", to_text(meter_, *t[0]).bytes().substr(0, 4096));
      }
      case Callable::Kind::now: {
        const Taken t(meter_, c.name, given, {"format"}, 1);
        if (options_.date.empty()) meter_.fail("strftime_now: no date was given to the template");
        return make_text(
            meter_, Text(Date(meter_, options_.date).format(meter_, t.text(0).bytes()), t.text(0).trusted()));
      }
      case Callable::Kind::make_namespace: {
        Namespace space;
        for (auto& [name, v] : mapping_from(c.name, given)) {
          if (!name.is_text()) meter_.fail("namespace: names are strings");
          meter_.pay_bytes(name.text().size());
          space.items.emplace_back(name.text().bytes(), std::move(v));
        }
        spaces_.push_back(std::move(space));
        return &spaces_.back();
      }
      case Callable::Kind::dict: return make_map(meter_, mapping_from(c.name, given));
    }
    return {};
  }

  // namespace({'a': 1}, b=2), dict([('a', 1)], b=2)
  std::vector<std::pair<Value, Value>> mapping_from(std::string_view name, Arguments& given) {
    std::vector<std::pair<Value, Value>> items;
    if (given.by_position.size() > 1)
      meter_.fail("'", name, "' takes one mapping and names, not ", given.by_position.size(), " values");
    for (const Value& from : given.by_position) {
      if (from.is_map()) {
        items = from.map().items;
        continue;
      }
      for (const Value& one : iterate(meter_, from)) {
        std::vector<Value> pair = iterate(meter_, one);
        if (pair.size() != 2) meter_.fail("'", name, "' wants pairs of a key and a value");
        items.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
    for (auto& [key, value] : given.by_name) items.emplace_back(Text(key, true), std::move(value));
    meter_.pay(2 * items.size());
    return items;
  }

  Value range(const Arguments& given) {
    const Taken t(meter_, "range", given, {"start", "stop", "step"}, 1);
    const bool one = !t[1];
    const std::int64_t from = one ? 0 : t.integer(0, 0), to = t.integer(one ? 0 : 1, 0),
                       step = t.integer(2, 1);
    if (step == 0) meter_.fail("range: the step cannot be 0");
    std::vector<Value> items;
    for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
      if (items.size() >= 100'000) meter_.fail("range: more than 100,000 numbers");
      meter_.pay();
      items.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    const Value list = make_list(meter_, std::move(items));
    auto named = std::make_shared<List>(list.list());
    named->printed = concat("range(", from, ", ", to, t[2] ? concat(", ", step) : "", ")");
    return ListPtr(std::move(named));
  }

  Value call_macro(const Callable& macro, Arguments& given, const Callable* caller) {
    const Deeper deeper(*this);
    if (++macro_depth_ > ChatTemplate::kDepth)
      meter_.fail("macros call each other deeper than ", ChatTemplate::kDepth);
    const Statement& head = *macro.body;
    const std::vector<Parameter>& parameters = head.parameters;
    meter_.pay(2 * parameters.size() + 4 * given.by_name.size());
    if (given.by_position.size() > parameters.size() && !head.more_by_position)
      meter_.fail("macro '", macro.name, "' takes at most ", parameters.size(), " arguments, not ",
                  given.by_position.size());
    Inner inner(*this, macro.scope);
    std::vector<Value> varargs;
    for (std::size_t i = 0; i < given.by_position.size(); ++i) {
      if (i < parameters.size()) inner->names[parameters[i].name] = std::move(given.by_position[i]);
      else varargs.push_back(std::move(given.by_position[i]));
    }
    std::vector<std::pair<Value, Value>> kwargs;
    for (auto& [name, value] : given.by_name) {
      const auto it = std::find_if(parameters.begin(), parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
      if (it == parameters.end() && head.more_by_name) {
        kwargs.emplace_back(Text(name, true), std::move(value));
        continue;
      }
      if (it == parameters.end())
        meter_.fail("macro '", macro.name, "' has no parameter '", shown_name(name), "'");
      if (!inner->names.emplace(it->name, std::move(value)).second)
        meter_.fail("macro '", macro.name, "' gets '", shown_name(name), "' twice");
    }
    if (head.more_by_position) inner->names["varargs"] = make_list(meter_, std::move(varargs), true);
    if (head.more_by_name) inner->names["kwargs"] = make_map(meter_, std::move(kwargs));
    for (const Parameter& p : parameters)
      if (!inner->names.contains(p.name))
        inner->names[p.name] =
            p.fallback ? evaluate(*p.fallback, *inner)
                       : Value::undefined(concat("parameter '", shown_name(p.name), "' was not given"));
    if (caller) inner->names["caller"] = caller;
    Text out;
    execute(macro.body->bodies[0], *inner, out);
    --macro_depth_;
    return make_text(meter_, std::move(out));
  }

  Meter meter_;
  const ChatOptions& options_;
  Scope globals_;
  std::deque<Callable> callables_;
  std::deque<Namespace> spaces_;
  std::deque<Loop> loops_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> spare_;
  int depth_ = 0;
  std::int64_t macro_depth_ = 0;
};

// Roles everybody knows count as the template's words: several templates make a special token of them
// ('<|' + role + '|>').
bool is_known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 9> kRoles = {
      "system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "tool_response"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

std::size_t bytes_in(const Json& json) {
  if (json.is_string()) return json.string().size();
  std::size_t bytes = 16;
  if (json.is_array())
    for (const Json& item : json.array()) bytes += bytes_in(item);
  if (json.is_object())
    for (const Json::Member& member : json.object()) bytes += member.key.size() + bytes_in(member.value);
  return bytes;
}

Value message_value(Meter& meter, const Json& message) {
  if (!message.is_object())
    rapt::fail("a chat message is an object with role and content, not ", message.type_name());
  std::vector<std::pair<Value, Value>> items;
  for (const Json::Member& m : message.object())
    items.emplace_back(
        Text(m.key, false),
        from_json(meter, m.value, m.key == "role" && m.value.is_string() && is_known_role(m.value.string())));
  return make_map(meter, std::move(items));
}

}  // namespace
}  // namespace chat

struct ChatTemplate::Program {
  chat::Parsed parsed;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string_view where)
    : program_(std::make_unique<Program>(Program{chat::parse(source, where)})) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::vector<ChatPiece> ChatTemplate::render(std::span<const ChatMessage> messages,
                                            const ChatOptions& options) const {
  Json::Array all;
  for (const ChatMessage& m : messages) all.push_back(Json::Object{{"role", m.role}, {"content", m.content}});
  return render(Json(std::move(all)), options);
}

std::vector<ChatPiece> ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  if (!messages.is_array()) fail("chat messages are a list, not ", messages.type_name());
  if (!options.variables.is_null() && !options.variables.is_object())
    fail("a chat template's variables are an object, not ", options.variables.type_name());
  chat::Rendering rendering(program_->parsed.source, options, messages.array().size(),
                            chat::bytes_in(messages) + chat::bytes_in(options.variables));
  chat::Meter& meter = rendering.meter();
  rendering.give("tools", chat::None{});
  rendering.give("documents", chat::None{});
  rendering.give("bos_token", chat::Text(options.bos_token, true));
  rendering.give("eos_token", chat::Text(options.eos_token, true));
  if (options.variables.is_object())
    for (const Json::Member& m : options.variables.object())
      rendering.give(m.key, chat::from_json(meter, m.value, false));
  std::vector<chat::Value> all;
  for (const Json& message : messages.array()) all.push_back(chat::message_value(meter, message));
  rendering.give("messages", chat::make_list(meter, std::move(all)));
  rendering.give("add_generation_prompt", options.add_generation_prompt);

  const chat::Text text = rendering.run(program_->parsed.body);
  std::vector<ChatPiece> pieces;
  std::size_t from = 0;
  for (const chat::Text::Run& run : text.runs()) {
    pieces.push_back({text.bytes().substr(from, run.end - from), run.trusted});
    from = run.end;
  }
  return pieces;
}

}  // namespace rapt
