// SPDX-License-Identifier: Apache-2.0
// Arithmetic as Python does it, in 64 bits; joining; "%s" % values.
#include <cmath>

#include "rapt/use/chat_template_builtins.h"

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
        const std::int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);  // towards minus infinity
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
    if (n > 0) meter.check_size(what.text().size() > meter.most_bytes / n ? meter.most_bytes + 1 : what.text().size() * n);
    meter.pay(n / 8);
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
      meter.fail("'", sign(op), "': ", undefined->what ? *undefined->what : std::string("a value is undefined"));
  if (a.is_number() && b.is_number()) {
    const auto m = a.integer(), n = b.integer();
    return m && n && op != Op::divide ? integers(meter, op, *m, *n) : reals(meter, op, a.number(), b.number());
  }
  if (op == Op::add && a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    std::vector<Value> all = a.list().items;
    all.insert(all.end(), b.list().items.begin(), b.list().items.end());
    return make_list(meter, std::move(all), a.list().tuple);
  }
  if (op == Op::modulo && a.is_text()) return format_percent(meter, a.text(), b);
  if (op == Op::multiply && (a.is_text() || a.is_list()) && b.integer()) return repeat(meter, a, *b.integer());
  if (op == Op::multiply && (b.is_text() || b.is_list()) && a.integer()) return repeat(meter, b, *a.integer());
  meter.fail("'", sign(op), "' has no meaning for ", a.type_name(), " and ", b.type_name());
}

Value format_percent(Meter& meter, const Text& pattern, const Value& values) {
  const std::string& p = pattern.bytes();
  const bool many = values.is_list() && values.list().tuple;
  const std::size_t count = many ? values.list().items.size() : 1;
  std::size_t used = 0;
  Text out;
  for (std::size_t at = 0; at < p.size();) {
    const std::size_t mark = p.find('%', at);
    out.append(pattern, at, mark);
    if (mark == std::string::npos) break;
    const char kind = mark + 1 < p.size() ? p[mark + 1] : ' ';
    at = mark + 2;
    if (kind == '%') {
      out.append(pattern, mark, mark + 1);
      continue;
    }
    if (kind != 's' && kind != 'd' && kind != 'i') meter.fail("'%", kind, "' in a pattern: only %s, %d and %% are known");
    if (used >= count) meter.fail("the pattern wants more values than the ", count, " there are");
    const Value& value = many ? values.list().items[used] : values;
    ++used;
    if (kind != 's' && !value.is_number()) meter.fail("'%", kind, "' wants a number, not ", value.type_name());
    if (kind != 's' && value.is_real()) {
      const double whole_part = std::trunc(value.number());
      if (!(std::abs(whole_part) < 9e18)) meter.fail("'%", kind, "': the number is too large");
      out.append(concat(static_cast<std::int64_t>(whole_part)), true);
    } else {
      out.append(kind == 's' ? to_text(meter, value) : to_text(meter, *value.integer()));
    }
    meter.check_size(out.size());
    meter.pay();
  }
  if (used < count && (many || !values.is_map())) meter.fail("the pattern uses ", used, " of ", count, " values");
  return make_text(meter, std::move(out));
}

}  // namespace rapt::chat
