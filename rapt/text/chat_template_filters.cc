// SPDX-License-Identifier: Apache-2.0
// Filters (x | name) and tests (x is name).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/text/chat_template_builtins.h"

namespace rapt::chat {
namespace {

// "a.b" or 0: the attribute a list's items are looked at by.
Value by_path(Meter& meter, const Value& self, const Value& path) {
  if (!path.is_text()) return item(meter, self, path);
  Value value = self;
  const std::string& s = path.text().bytes();
  meter.pay_bytes(s.size());
  for (std::size_t from = 0; from <= s.size();) {
    const std::size_t dot = std::min(s.find('.', from), s.size());
    const std::string part = s.substr(from, dot - from);
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    const bool number = error == std::errc() && end == part.data() + part.size() && n >= 0;
    value = item(meter, value, number ? Value(n) : Value(Text(part, true)));
    meter.pay(2);
    from = dot + 1;
  }
  return value;
}

// What sorting and uniqueness compare.
Value folded(Meter& meter, const Value& value, bool case_sensitive) {
  return value.is_text() && !case_sensitive ? make_text(meter, change_case(meter, value.text(), false))
                                            : value;
}

struct Keyed {
  Value key, value;
};
std::vector<Keyed> keyed(Meter& meter, const Value& self, const Value* path, bool case_sensitive) {
  std::vector<Keyed> all;
  for (Value& value : iterate(meter, self)) {
    meter.pay();
    Value key =
        folded(meter, path && !path->is_none() ? by_path(meter, value, *path) : value, case_sensitive);
    all.push_back({std::move(key), std::move(value)});
  }
  return all;
}

void sort_keyed(Meter& meter, std::vector<Keyed>& all, bool reverse, std::string_view name) {
  merge_sort(all, [&](const Keyed& a, const Keyed& b) {
    const int order = compare(meter, a.key, b.key, name);
    return reverse ? order > 0 : order < 0;
  });
}

Value values_of(Meter& meter, std::vector<Keyed> all) {
  std::vector<Value> items;
  for (Keyed& k : all) items.push_back(std::move(k.value));
  return make_list(meter, std::move(items));
}

// Filters that take a name of another filter or test and its arguments: what stands after the first `n`
// positions.
Arguments rest_of(const Arguments& given, std::size_t n) {
  Arguments rest;
  rest.by_position.assign(
      given.by_position.begin() + static_cast<std::ptrdiff_t>(std::min(n, given.by_position.size())),
      given.by_position.end());
  rest.by_name = given.by_name;
  return rest;
}

const std::string& name_argument(Meter& meter, const std::string& filter, const Value& v) {
  if (!v.is_text()) meter.fail("'", filter, "' wants the name of a filter or test, not ", v.type_name());
  return v.text().bytes();
}

Value map_filter(Meter& meter, const Value& self, const Arguments& given) {
  std::vector<Value> out;
  if (!self.truth()) return make_list(meter, {});  // none counts as empty here
  if (given.by_position.empty()) {
    const Taken t(meter, "map", given, {"attribute", "default"}, 1);
    for (const Value& one : iterate(meter, self)) {
      Value value = by_path(meter, one, *t[0]);
      out.push_back(value.is_undefined() && t[1] ? *t[1] : std::move(value));
    }
  } else {
    const std::string name = name_argument(meter, "map", given.by_position[0]);
    const Arguments rest = rest_of(given, 1);
    for (const Value& one : iterate(meter, self)) out.push_back(apply_filter(meter, name, one, rest));
  }
  return make_list(meter, std::move(out));
}

// select, reject, selectattr, rejectattr
Value select_filter(Meter& meter, const std::string& name, const Value& self, const Arguments& given) {
  if (!self.truth()) return make_list(meter, {});
  const bool attributes = name.ends_with("attr"), keep = name.starts_with("select");
  const std::size_t at = attributes ? 1 : 0;  // of the test's name
  if (given.by_position.size() < at) meter.fail("'", name, "' wants the name of an attribute");
  const bool test = given.by_position.size() > at;
  const std::string test_name = test ? shown_name(name_argument(meter, name, given.by_position[at])) : "";
  const Arguments rest = rest_of(given, at + 1);
  std::vector<Value> out;
  for (Value& one : iterate(meter, self)) {
    const Value value = attributes ? by_path(meter, one, given.by_position[0]) : one;
    if ((test ? apply_test(meter, test_name, value, rest) : value.truth()) == keep)
      out.push_back(std::move(one));
  }
  return make_list(meter, std::move(out));
}

JsonStyle json_style(Meter& meter, const Arguments& given) {
  const Taken t(meter, "tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = t.flag(0);
  style.sorted = t.flag(3);
  if (t[1] && !t[1]->is_none()) {
    if (t[1]->is_text()) style.indent = to_text(meter, *t[1]).bytes();
    else
      style.indent =
          std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(t.integer(1, 0), 0, 64)), ' ');
    style.between = ",";
  }
  if (t[2] && !t[2]->is_none()) {
    if (!t[2]->is_list() || t[2]->list().items.size() != 2 || !t[2]->list().items[0].is_text() ||
        !t[2]->list().items[1].is_text())
      meter.fail("'tojson': separators are two strings");
    style.between = to_text(meter, t[2]->list().items[0]).bytes();
    style.after_key = to_text(meter, t[2]->list().items[1]).bytes();
  }
  return style;
}

Text indent(Meter& meter, const Text& text, const Text& by, bool first, bool blank) {
  meter.pay_text(text);
  Text with_end = text;
  with_end.append("\n", true);
  const std::vector<Value> lines = split_lines(meter, with_end);
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Text& line = lines[i].text();
    if (i > 0) out.append("\n", true);
    if (i > 0 ? blank || line.size() > 0 : first) out.append(by);
    out.append(line);
    meter.pay();
    meter.check_size(out.cost());
  }
  return out;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && is_space(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && is_space(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

// Digits of any script as ASCII ones, and none of the '_' that may stand between two: what int() and float()
// of Python read. A text that is longer than any number is none.
std::optional<std::string> number_text(Meter& meter, const Text& text) {
  constexpr std::size_t kMost = 4096;
  meter.pay_characters(text.size());
  std::string out;
  const std::string_view s = trimmed(text.bytes());
  if (s.size() > kMost) return {};
  for (std::size_t at = 0; at < s.size();) {
    const auto [code, n] = character(s, at);
    const bool between = at > 0 && at + 1 < s.size() && std::isalnum(static_cast<unsigned char>(s[at - 1])) &&
                         std::isalnum(static_cast<unsigned char>(s[at + 1]));
    if (const int digit = unicode::digit(code); digit >= 0) out += static_cast<char>('0' + digit);
    else if (code != '_' || !between) out += s.substr(at, n);
    at += n;
  }
  return out;
}

std::optional<double> read_real(std::string_view s) {
  if (s.starts_with('+')) {
    s.remove_prefix(1);
    if (s.starts_with('-')) return {};
  }
  double x = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
  if (s.empty() || error != std::errc() || end != s.data() + s.size()) return {};
  return x;
}

// "0x1f" in base 16 or 0, "-0b11", "12".
std::optional<std::int64_t> read_integer(std::string_view s, std::int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return {};
  const bool minus = s.starts_with('-');
  if (minus || s.starts_with('+')) s.remove_prefix(1);
  static constexpr std::pair<char, int> kPrefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
  bool named = false;
  for (const auto& [letter, value] : kPrefixes) {
    if (s.size() < 3 || s[0] != '0' || (s[1] | 32) != letter || (base != 0 && base != value)) continue;
    s.remove_prefix(2);
    base = value;
    named = true;
    break;
  }
  if (base == 0) {
    base = 10;
    if (!named && s.size() > 1 && s[0] == '0' && s.find_first_not_of('0') != std::string_view::npos)
      return {};
  }
  if (s.empty() || s[0] == '-' || s[0] == '+') return {};
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n, static_cast<int>(base));
  if (error != std::errc() || end != s.data() + s.size() || n > (std::uint64_t{1} << 63) - !minus) return {};
  return minus ? static_cast<std::int64_t>(-n) : static_cast<std::int64_t>(n);
}

Value int_filter(Meter& meter, const Value& self, const Arguments& given) {
  const Taken t(meter, "int", given, {"default", "base"});
  const Value fallback = t[0] ? *t[0] : Value(std::int64_t{0});
  if (const auto n = self.integer()) return *n;
  std::optional<double> x;
  if (self.is_real()) {
    x = self.number();
  } else if (self.is_text()) {
    if (const auto s = number_text(meter, self.text())) {
      if (const auto n = read_integer(*s, t.integer(1, 10))) return *n;
      x = read_real(*s);
    }
  }
  if (!x || !(std::abs(*x) < 9.2e18)) return fallback;
  return static_cast<std::int64_t>(*x);
}

// Python's round(x, digits): of the decimal numbers with that many digits the nearest to the exact value of
// x; ties go to the even one.
double round_decimal(double x, std::int64_t digits) {
  if (!std::isfinite(x) || digits > 323) return x;
  if (digits >= 0) {
    char buffer[800];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), x);
    return std::strtod(buffer, nullptr);
  }
  if (digits < -308) return std::copysign(0.0, x);
  const long double scale = std::pow(10.0L, static_cast<long double>(-digits));
  return static_cast<double>(std::nearbyint(static_cast<long double>(x) / scale) * scale);
}

std::int64_t round_integer(Meter& meter, std::int64_t n, std::int64_t digits) {
  if (digits >= 0) return n;
  if (digits < -19) return 0;
  __int128 scale = 1;
  for (; digits < 0; ++digits) scale *= 10;
  __int128 whole = n / scale, rest = n % scale;
  if (rest < 0) rest = -rest;
  if (2 * rest > scale || (2 * rest == scale && whole % 2 != 0)) whole += n < 0 ? -1 : 1;
  const __int128 result = whole * scale;
  if (result > INT64_MAX || result < INT64_MIN)
    meter.fail("'round': the result does not fit an integer of 64 bits");
  return static_cast<std::int64_t>(result);
}

Value round_filter(Meter& meter, const Value& self, const Arguments& given) {
  const Taken t(meter, "round", given, {"precision", "method"});
  const std::string method = t[1] ? t.text(1).bytes() : "common";
  const std::int64_t digits = std::clamp<std::int64_t>(t.integer(0, 0), -400, 400);
  if (!self.is_number()) meter.fail("'round' wants a number, not ", self.type_name());
  const double scale = std::pow(10.0, static_cast<double>(digits)), x = self.number();
  if (method == "ceil") return std::ceil(x * scale) / scale;
  if (method == "floor") return std::floor(x * scale) / scale;
  if (method != "common")
    meter.fail("'round': the method is 'common', 'ceil' or 'floor', not '", shown_name(method), "'");
  if (self.integer()) return round_integer(meter, *self.integer(), digits);
  return round_decimal(x, digits);
}

Value number_filter(Meter& meter, const Value& self) {
  if (const auto n = self.integer()) {
    if (*n == INT64_MIN) meter.fail("'abs': the result does not fit an integer of 64 bits");
    return *n < 0 ? -*n : *n;
  }
  if (!self.is_real()) meter.fail("'abs' wants a number, not ", self.type_name());
  return std::abs(self.number());
}

Value extreme(Meter& meter, const std::string& name, const Value& self, const Arguments& given) {
  const Taken t(meter, name, given, {"case_sensitive", "attribute"});
  std::vector<Keyed> all = keyed(meter, self, t[1], t.flag(0));
  if (all.empty()) return Value::undefined(concat("'", name, "' of nothing"));
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const int order = compare(meter, all[i].key, all[best].key, name);
    if (name == "min" ? order < 0 : order > 0) best = i;
  }
  return all[best].value;
}

Value unique(Meter& meter, const Value& self, const Arguments& given) {
  const Taken t(meter, "unique", given, {"case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> seen;
  std::vector<Value> out;
  for (Keyed& k : keyed(meter, self, t[1], t.flag(0))) {
    bool fresh = true;
    for (const auto& [key, unused] : seen) fresh = fresh && !equal(meter, key, k.key);
    if (!fresh) continue;
    seen.emplace_back(std::move(k.key), None{});
    out.push_back(std::move(k.value));
  }
  return make_list(meter, std::move(out));
}

Value dictsort(Meter& meter, const Value& self, const Arguments& given) {
  const Taken t(meter, "dictsort", given, {"case_sensitive", "by", "reverse"});
  if (!self.is_map()) meter.fail("'dictsort' wants a mapping, not ", self.type_name());
  const std::string by = t[1] ? t.text(1).bytes() : "key";
  if (by != "key" && by != "value")
    meter.fail("'dictsort': by is 'key' or 'value', not '", shown_name(by), "'");
  std::vector<Keyed> all;
  meter.pay(4 * self.map().items.size());
  for (const auto& [key, value] : self.map().items)
    all.push_back(
        {folded(meter, by == "key" ? key : value, t.flag(0)), make_list(meter, {key, value}, true)});
  sort_keyed(meter, all, t.flag(2), "dictsort");
  return values_of(meter, std::move(all));
}

Value reverse(Meter& meter, const Value& self) {
  std::vector<Value> all = iterate(meter, self);
  std::reverse(all.begin(), all.end());
  return self.is_text() ? make_text(meter, join_texts(meter, all, {})) : make_list(meter, std::move(all));
}

constexpr std::string_view kFilters[] = {
    "abs",        "capitalize", "count",  "d",          "default", "dictsort", "first", "float",  "format",
    "indent",     "int",        "items",  "join",       "last",    "length",   "list",  "lower",  "map",
    "max",        "min",        "reject", "rejectattr", "replace", "reverse",  "round", "safe",   "select",
    "selectattr", "sort",       "string", "sum",        "title",   "tojson",   "trim",  "unique", "upper"};
constexpr std::string_view kTests[] = {
    "boolean",  "callable", "defined",     "divisibleby", "eq",        "equalto", "even",     "false",
    "float",    "ge",       "greaterthan", "gt",          "in",        "integer", "iterable", "le",
    "lessthan", "lower",    "lt",          "mapping",     "ne",        "none",    "number",   "odd",
    "sameas",   "sequence", "string",      "true",        "undefined", "upper"};

template <class Names>
std::string hint(const std::string& name, const Names& names) {
  const std::vector<std::string> all(std::begin(names), std::end(names));
  return name_hint(name, all);
}

}  // namespace

Value apply_filter(Meter& meter, const std::string& name, const Value& self, const Arguments& given) {
  meter.pay();
  const auto text = [&] { return to_text(meter, self); };
  if (name == "tojson") return make_text(meter, to_json(meter, self, json_style(meter, given)));
  if (name == "trim") {
    const Taken t(meter, name, given, {"chars"});
    return make_text(meter,
                     strip_text(meter, text(), t[0] && !t[0]->is_none() ? &t.text(0) : nullptr, true, true));
  }
  if (name == "default" || name == "d") {
    const Taken t(meter, name, given, {"default_value", "boolean"});
    if (self.is_undefined() || (t.flag(1) && !self.truth())) return t[0] ? *t[0] : Value(Text());
    return self;
  }
  if (name == "join") {
    const Taken t(meter, name, given, {"d", "attribute"});
    std::vector<Value> items = iterate(meter, self);
    if (t[1] && !t[1]->is_none())
      for (Value& one : items) one = by_path(meter, one, *t[1]);
    return make_text(meter, join_texts(meter, items, t[0] ? to_text(meter, *t[0]) : Text()));
  }
  if (name == "map") return map_filter(meter, self, given);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return select_filter(meter, name, self, given);
  if (name == "indent") {
    const Taken t(meter, name, given, {"width", "first", "blank"});
    Text by;
    if (t[0] && t[0]->is_text()) by = t[0]->text();
    else
      by =
          Text(std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(t.integer(0, 4), 0, 1024)), ' '),
               true);
    return make_text(meter, indent(meter, text(), by, t.flag(1), t.flag(2)));
  }
  if (name == "replace") {
    const Taken t(meter, name, given, {"old", "new", "count"}, 2);
    return make_text(
        meter, replace_text(meter, text(), to_text(meter, *t[0]), to_text(meter, *t[1]), t.integer(2, -1)));
  }
  if (name == "format") {
    Arguments copy = given;
    return format_percent(meter, text(), make_list(meter, std::move(copy.by_position), true));
  }
  if (name == "int") return int_filter(meter, self, given);
  if (name == "float") {
    const Taken t(meter, name, given, {"default"});
    std::optional<double> x;
    if (self.is_number()) x = self.number();
    else if (self.is_text())
      if (const auto s = number_text(meter, self.text())) x = read_real(*s);
    return x ? Value(*x) : t[0] ? *t[0] : Value(0.0);
  }
  if (name == "round") return round_filter(meter, self, given);
  if (name == "sum") {
    const Taken t(meter, name, given, {"attribute", "start"});
    Value sum = t[1] ? *t[1] : Value(std::int64_t{0});
    for (const Value& one : iterate(meter, self))
      sum = binary(meter, Op::add, sum, t[0] && !t[0]->is_none() ? by_path(meter, one, *t[0]) : one);
    return sum;
  }
  if (name == "sort") {
    const Taken t(meter, name, given, {"reverse", "case_sensitive", "attribute"});
    std::vector<Keyed> all = keyed(meter, self, t[2], t.flag(1));
    sort_keyed(meter, all, t.flag(0), name);
    return values_of(meter, std::move(all));
  }
  if (name == "unique") return unique(meter, self, given);
  if (name == "min" || name == "max") return extreme(meter, name, self, given);
  if (name == "dictsort") return dictsort(meter, self, given);

  if (std::find(std::begin(kFilters), std::end(kFilters), name) == std::end(kFilters))
    meter.fail("there is no filter '", shown_name(name), "' for chat templates; ",
               hint(shown_name(name), kFilters));
  const Taken nothing(meter, name, given, {});
  if (name == "length" || name == "count") return static_cast<std::int64_t>(length(meter, self));
  if (name == "string" || name == "safe") return self.is_text() ? self : make_text(meter, text());
  if (name == "upper" || name == "lower")
    return make_text(meter, change_case(meter, text(), name == "upper"));
  if (name == "capitalize") return make_text(meter, capitalize(meter, text()));
  if (name == "title")
    return make_text(meter, title_case(meter, text(), true, [](std::uint32_t c) {
                       return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
                     }));
  if (name == "abs") return number_filter(meter, self);
  if (name == "reverse") return reverse(meter, self);
  if (name == "list") return make_list(meter, iterate(meter, self));
  if (name == "items") {
    if (self.is_undefined()) return make_list(meter, {});
    if (!self.is_map()) meter.fail("'items' wants a mapping, not ", self.type_name());
    return call_method(meter, self, "items", {});
  }
  if ((self.is_list() || self.is_text()) && self.truth())
    return item(meter, self, std::int64_t{name == "first" ? 0 : -1});
  std::vector<Value> items = iterate(meter, self);  // first, last
  if (items.empty()) return Value::undefined(concat("'", name, "' of nothing"));
  return name == "first" ? items.front() : items.back();
}

bool apply_test(Meter& meter, const std::string& name, const Value& self, const Arguments& given) {
  meter.pay();
  struct Comparison {
    std::string_view names[3];
    Op op;
  };
  static constexpr Comparison kComparisons[] = {
      {{"eq", "equalto", "=="}, Op::equal},      {{"ne", "ne", "!="}, Op::not_equal},
      {{"lt", "lessthan", "<"}, Op::less},       {{"le", "le", "<="}, Op::less_equal},
      {{"gt", "greaterthan", ">"}, Op::greater}, {{"ge", "ge", ">="}, Op::greater_equal}};
  for (const Comparison& c : kComparisons) {
    if (std::find(std::begin(c.names), std::end(c.names), name) == std::end(c.names)) continue;
    const Taken t(meter, name, given, {"other"}, 1);
    if (c.op == Op::equal || c.op == Op::not_equal) return equal(meter, self, *t[0]) == (c.op == Op::equal);
    const int order = compare(meter, self, *t[0], name);
    return c.op == Op::less         ? order < 0
           : c.op == Op::less_equal ? order <= 0
           : c.op == Op::greater    ? order > 0
                                    : order >= 0;
  }
  if (name == "in") {
    const Taken t(meter, name, given, {"seq"}, 1);
    return contains(meter, *t[0], self);
  }
  if (name == "divisibleby") {
    const Taken t(meter, name, given, {"num"}, 1);
    return !binary(meter, Op::modulo, self, *t[0]).truth();
  }
  if (name == "sameas") {
    const Taken t(meter, name, given, {"other"}, 1);
    return self.v.index() == t[0]->v.index() && equal(meter, self, *t[0]);
  }
  if (std::find(std::begin(kTests), std::end(kTests), name) == std::end(kTests))
    meter.fail("there is no test '", shown_name(name), "' for chat templates; ",
               hint(shown_name(name), kTests));
  const Taken nothing(meter, name, given, {});
  if (name == "defined") return !self.is_undefined();
  if (name == "undefined") return self.is_undefined();
  if (name == "none") return self.is_none();
  if (name == "string") return self.is_text();
  if (name == "mapping") return self.is_map();
  if (name == "sequence") return self.is_text() || self.is_list() || self.is_map() || self.is_undefined();
  if (name == "iterable") return self.is_text() || self.is_list() || self.is_map() || self.is_undefined();
  if (name == "number") return self.is_number();
  if (name == "boolean") return self.is_bool();
  if (name == "integer") return self.is_integer();
  if (name == "float") return self.is_real();
  if (name == "true" || name == "false") return self.is_bool() && self.truth() == (name == "true");
  if (name == "callable")
    return self.is_undefined() || std::holds_alternative<const Callable*>(self.v) ||
           std::holds_alternative<Method>(self.v);
  if (name == "even" || name == "odd")
    return binary(meter, Op::modulo, self, std::int64_t{2}).truth() == (name == "odd");
  const Text text = to_text(meter, self);  // lower, upper
  return call_method(meter, Value(text), name == "lower" ? "islower" : "isupper", {}).truth();
}

}  // namespace rapt::chat
