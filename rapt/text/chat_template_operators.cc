// SPDX-License-Identifier: Apache-2.0
// Arithmetic as Python does it, in 64 bits; joining; "%s" % values with Python's widths, signs and digits.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "rapt/text/chat_template_builtins.h"

namespace rapt::chat {

namespace {

const char* sign(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::subtract: return "-";
    case Op::multiply: return "*";
    case Op::divide: return "/";
    case Op::floor_divide: return "//";
    case Op::modulo: return "%";
    case Op::power: return "**";
    default: return "~";
  }
}

Value integers(Meter& meter, Op op, std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  bool over = false;
  switch (op) {
    case Op::add: over = __builtin_add_overflow(a, b, &r); break;
    case Op::subtract: over = __builtin_sub_overflow(a, b, &r); break;
    case Op::multiply: over = __builtin_mul_overflow(a, b, &r); break;
    case Op::floor_divide:
    case Op::modulo:
      if (b == 0) meter.fail("division by zero");
      if (b == -1) {
        over = op == Op::floor_divide && __builtin_sub_overflow(std::int64_t{0}, a, &r);
        if (op == Op::modulo) r = 0;
      } else {
        // Towards minus infinity.
        const std::int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
        r = op == Op::floor_divide ? a / b - down : rest + (down ? b : 0);
      }
      break;
    default: {  // power
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      r = 1;
      for (std::int64_t base = a, n = b; n > 0 && !over; n /= 2) {
        if (n % 2) over = __builtin_mul_overflow(r, base, &r);
        if (n > 1 && !over) over = __builtin_mul_overflow(base, base, &base);
      }
    }
  }
  if (over) meter.fail("'", sign(op), "': the result does not fit an integer of 64 bits");
  return r;
}

Value reals(Meter& meter, Op op, double a, double b) {
  switch (op) {
    case Op::add: return a + b;
    case Op::subtract: return a - b;
    case Op::multiply: return a * b;
    case Op::power: return std::pow(a, b);
    default: break;
  }
  if (b == 0) meter.fail("division by zero");
  if (op == Op::divide) return a / b;
  if (op == Op::floor_divide) return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value repeat(Meter& meter, const Value& what, std::int64_t times) {
  const std::size_t n = times > 0 ? static_cast<std::size_t>(times) : 0;
  if (what.is_text()) {
    const std::size_t cost = what.text().cost();
    if (n > 0) meter.check_size(cost > meter.most_bytes / n ? meter.most_bytes + 1 : cost * n);
    if (cost > 0) meter.pay(n / 8);
    Text out;
    for (std::size_t i = 0; i < n && what.text().size() > 0; ++i) out.append(what.text());
    return make_text(meter, std::move(out));
  }
  const auto& items = what.list().items;
  if (items.empty()) return what;
  if (n > 1'000'000 / items.size()) meter.out_of_fuel();
  meter.pay(items.size() * n);
  std::vector<Value> all;
  for (std::size_t i = 0; i < n; ++i) all.insert(all.end(), items.begin(), items.end());
  return make_list(meter, std::move(all), what.list().tuple);
}

}  // namespace

Value binary(Meter& meter, Op op, const Value& a, const Value& b) {
  meter.pay();
  if (op == Op::join || (op == Op::add && a.is_text() && b.is_text())) {
    Text out = to_text(meter, a);
    out.append(to_text(meter, b));
    return make_text(meter, std::move(out));
  }
  for (const Value* v : {&a, &b})
    if (const auto* undefined = std::get_if<Undefined>(&v->v))
      meter.fail("'", sign(op),
                 "': ", undefined->what ? *undefined->what : std::string("a value is undefined"));
  if (a.is_number() && b.is_number()) {
    const auto m = a.integer(), n = b.integer();
    return m && n && op != Op::divide ? integers(meter, op, *m, *n)
                                      : reals(meter, op, a.number(), b.number());
  }
  if (op == Op::add && a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    std::vector<Value> all = a.list().items;
    all.insert(all.end(), b.list().items.begin(), b.list().items.end());
    return make_list(meter, std::move(all), a.list().tuple);
  }
  if (op == Op::modulo && a.is_text()) return format_percent(meter, a.text(), b);
  if (op == Op::multiply && (a.is_text() || a.is_list()) && b.integer())
    return repeat(meter, a, *b.integer());
  if (op == Op::multiply && (b.is_text() || b.is_list()) && a.integer())
    return repeat(meter, b, *a.integer());
  meter.fail("'", sign(op), "' has no meaning for ", a.type_name(), " and ", b.type_name());
}

namespace {

// One place of a pattern: %[(name)][flags][width][.precision]kind, as in Python.
struct Place {
  std::optional<std::string> name;
  bool left = false, plus = false, blank = false, zero = false, other = false;
  std::int64_t width = 0, precision = -1;
  char kind = ' ';
};

Place read_place(Meter& meter, std::string_view p, std::size_t& at) {
  Place f;
  const auto now = [&] { return at < p.size() ? p[at] : ' '; };
  const auto number = [&] {
    std::int64_t n = 0;
    for (; now() >= '0' && now() <= '9'; ++at) {
      n = n * 10 + (now() - '0');
      if (n > 100'000) meter.fail("a pattern asks for more than 100,000 characters");
    }
    return n;
  };
  if (now() == '(') {
    const std::size_t close = p.find(')', at);
    if (close == std::string_view::npos || close - at > 1000)
      meter.fail("'%(' in a pattern: the ')' is missing");
    f.name = std::string(p.substr(at + 1, close - at - 1));
    at = close + 1;
  }
  for (; std::string_view("-+ 0#").find(now()) != std::string_view::npos && at < p.size(); ++at) {
    f.left |= now() == '-';
    f.plus |= now() == '+';
    f.blank |= now() == ' ';
    f.zero |= now() == '0';
    f.other |= now() == '#';
  }
  f.width = number();
  if (now() == '.') {
    ++at;
    f.precision = number();
  }
  f.kind = now();
  ++at;
  return f;
}

std::string number_digits(Meter& meter, const Place& f, const Value& value, bool& minus) {
  const bool real = std::string_view("eEfFgG").find(f.kind) != std::string_view::npos;
  if (!value.is_number()) meter.fail("'%", f.kind, "' wants a number, not ", value.type_name());
  if (real) {
    const double x = value.number();
    minus = std::signbit(x) && !std::isnan(x);
    if (f.precision > 1000) meter.fail("'%", f.kind, "': more than 1,000 digits");
    const std::string pattern = concat(f.other ? "%#.*" : "%.*", f.kind);
    char buffer[1500];
    const int n = std::snprintf(buffer, sizeof buffer, pattern.c_str(),
                                static_cast<int>(f.precision < 0 ? 6 : f.precision), std::abs(x));
    return {buffer, static_cast<std::size_t>(n)};
  }
  std::int64_t n = 0;
  if (const auto whole = value.integer()) {
    n = *whole;
  } else {
    if (f.kind != 'd' && f.kind != 'i' && f.kind != 'u')
      meter.fail("'%", f.kind, "' wants an integer, not ", value.type_name());
    if (!(std::abs(value.number()) < 9e18)) meter.fail("'%", f.kind, "': the number is too large");
    n = static_cast<std::int64_t>(value.number());
  }
  minus = n < 0;
  const std::uint64_t size = minus ? -static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
  char buffer[80];
  const int base = f.kind == 'x' || f.kind == 'X' ? 16 : f.kind == 'o' ? 8 : 10;
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof buffer, size, base).ptr);
  if (f.kind == 'X')
    for (char& c : digits) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  if (static_cast<std::int64_t>(digits.size()) < f.precision)
    digits.insert(0, static_cast<std::size_t>(f.precision) - digits.size(), '0');
  return digits;
}

Text written(Meter& meter, const Place& f, const Value& value) {
  Text body;
  std::string sign;
  const bool number = std::string_view("diuxXoeEfFgG").find(f.kind) != std::string_view::npos;
  if (number) {
    bool minus = false;
    std::string digits = number_digits(meter, f, value, minus);
    sign = minus ? "-" : f.plus ? "+" : f.blank ? " " : "";
    if (f.other && (f.kind == 'x' || f.kind == 'X' || f.kind == 'o')) (sign += '0') += f.kind;
    const std::size_t width = static_cast<std::size_t>(f.width);
    if (f.zero && !f.left && sign.size() + digits.size() < width)
      digits.insert(0, width - sign.size() - digits.size(), '0');
    body = Text(sign + digits, true);
  } else if (f.kind == 's') {
    body = to_text(meter, value);
  } else if (f.kind == 'r') {
    body = to_text(meter, make_list(meter, {value}));  // [x], without the brackets
    Text inner;
    inner.append(body, 1, body.size() - 1);
    body = std::move(inner);
  } else {
    meter.fail("'%", f.kind, "' in a pattern: known are s r d i u x X o e E f F g G and %%");
  }
  meter.pay_characters(body.size());
  if (!number && f.precision >= 0) {
    std::size_t end = 0;
    for (std::int64_t i = 0; i < f.precision && end < body.size(); ++i)
      end += character(body.bytes(), end).bytes;
    Text cut;
    cut.append(body, 0, end);
    body = std::move(cut);
  }
  const auto size = static_cast<std::int64_t>(count_characters(body.bytes()));
  if (f.width <= size) return body;
  meter.pay_bytes(static_cast<std::size_t>(f.width));
  const Text fill(std::string(static_cast<std::size_t>(f.width - size), ' '), true);
  Text out = f.left ? body : fill;
  out.append(f.left ? fill : body);
  return out;
}

}  // namespace

Value format_percent(Meter& meter, const Text& pattern, const Value& values) {
  const std::string& p = pattern.bytes();
  const bool many = values.is_list() && values.list().tuple;
  const std::size_t count = many ? values.list().items.size() : 1;
  std::size_t used = 0;
  bool by_name = false;
  meter.pay_characters(pattern.cost());
  Text out;
  for (std::size_t at = 0; at < p.size();) {
    const std::size_t mark = p.find('%', at);
    out.append(pattern, at, mark);
    if (mark == std::string::npos) break;
    at = mark + 1;
    const Place f = read_place(meter, p, at);
    meter.pay();
    if (f.kind == '%') {
      out.append(pattern, mark, mark + 1);
      continue;
    }
    const Value* value = nullptr;
    if (f.name) {
      if (!values.is_map())
        meter.fail("'%(", shown_name(*f.name), ")' wants a mapping, not ", values.type_name());
      value = values.map().find(*f.name);
      if (!value) meter.fail("the mapping has no '", shown_name(*f.name), "'");
      by_name = true;
    } else {
      if (used >= count) meter.fail("the pattern wants more values than the ", count, " there are");
      value = many ? &values.list().items[used] : &values;
      ++used;
    }
    out.append(written(meter, f, *value));
    meter.check_size(out.cost());
  }
  if (!by_name && used < count && (many || !values.is_map()))
    meter.fail("the pattern uses ", used, " of ", count, " values");
  return make_text(meter, std::move(out));
}

}  // namespace rapt::chat
