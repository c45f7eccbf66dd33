// SPDX-License-Identifier: Apache-2.0
// Texts with who wrote them; equality and order as in Python; values written as repr or JSON; UTF-8.
#include "rapt/text/chat_template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rapt::chat {

std::string Source::place(std::size_t at) const {
  std::size_t line = 1, start = 0;
  at = std::min(at, text.size());
  for (std::size_t i = 0; i < at; ++i)
    if (text[i] == '\n') {
      ++line;
      start = i + 1;
    }
  return concat(where, ":", line, ":", at - start + 1);
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t kMost = 60;
  if (name.size() <= kMost) return std::string(name);
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return std::string(name.substr(0, end)) + "…";
}

void Meter::out_of_fuel() const {
  fail("the template needs too many steps (is there a loop that does not end?)");
}

void Text::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().trusted == trusted) runs_.back().end = bytes_.size();
  else runs_.push_back({bytes_.size(), trusted});
}

void Text::append(const Text& text, std::size_t from, std::size_t to) {
  to = std::min(to, text.size());
  if (from >= to) return;
  auto run = std::upper_bound(text.runs_.begin(), text.runs_.end(), from,
                              [](std::size_t at, const Run& r) { return at < r.end; });
  for (; from < to; ++run) {
    const std::size_t end = std::min(run->end, to);
    append(std::string_view(text.bytes_).substr(from, end - from), run->trusted);
    from = end;
  }
}

bool Text::trusted_at(std::size_t at) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), at,
                              [](std::size_t place, const Run& r) { return place < r.end; });
  return run == runs_.end() || run->trusted;
}

bool Text::trusted() const { return runs_.empty() || (runs_.size() == 1 && runs_[0].trusted); }

void Text::distrust() {
  if (!bytes_.empty()) runs_ = {{bytes_.size(), false}};
}

// Values.

double Value::number() const {
  if (is_bool()) return std::get<bool>(v) ? 1 : 0;
  if (is_integer()) return static_cast<double>(std::get<std::int64_t>(v));
  return std::get<double>(v);
}

std::optional<std::int64_t> Value::integer() const {
  if (is_bool()) return std::get<bool>(v) ? 1 : 0;
  if (is_integer()) return std::get<std::int64_t>(v);
  return {};
}

bool Value::truth() const {
  switch (v.index()) {
    case 0:
    case 1: return false;
    case 2: return std::get<bool>(v);
    case 3: return std::get<std::int64_t>(v) != 0;
    case 4: return std::get<double>(v) != 0;
    case 5: return text().size() > 0;
    case 6: return !list().items.empty();
    case 7: return !map().items.empty();
    default: return true;
  }
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"an undefined value", "none",       "a boolean", "an integer",
                                           "a number",           "a string",   "a list",    "a mapping",
                                           "a namespace",        "a function", "the loop",  "a method"};
  if (is_list() && list().tuple) return "a tuple";
  return kNames[v.index()];
}

int Value::depth() const { return is_list() ? list().depth : is_map() ? map().depth : 0; }

namespace {

std::string key_of(const Value& key) {  // equal keys have equal texts
  if (key.is_text()) return "s" + key.text().bytes();
  if (auto n = key.integer()) return "n" + std::to_string(*n);
  if (key.is_real()) {
    const double x = key.number();
    if (std::abs(x) < 1e15 && x == std::floor(x)) return "n" + std::to_string(static_cast<std::int64_t>(x));
    return "n" + real_text(x);
  }
  if (key.is_none()) return "0";
  return "";
}

}  // namespace

const Value* Map::find(const Value& key) const {
  const auto it = index.find(key_of(key));
  return it == index.end() ? nullptr : &items[it->second].second;
}

const Value* Map::find(std::string_view key) const {
  const auto it = index.find("s" + std::string(key));
  return it == index.end() ? nullptr : &items[it->second].second;
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : items)
    if (key == name) return &value;
  return nullptr;
}

Value make_list(Meter& meter, std::vector<Value> items, bool tuple) {
  meter.pay_items(items.size());
  auto list = std::make_shared<List>();
  for (const Value& item : items) list->depth = std::max(list->depth, item.depth() + 1);
  if (list->depth > kValueDepth) meter.fail("lists nested deeper than ", kValueDepth);
  list->items = std::move(items);
  list->tuple = tuple;
  return ListPtr(std::move(list));
}

Value make_map(Meter& meter, std::vector<std::pair<Value, Value>> items) {
  meter.pay(2 * items.size());  // a pair of values and a node of the index
  auto map = std::make_shared<Map>();
  for (auto& [key, value] : items) {
    std::string text = key_of(key);
    if (text.empty()) meter.fail(key.type_name(), " cannot be a key of a mapping");
    meter.pay_bytes(text.size());
    map->depth = std::max(map->depth, value.depth() + 1);
    if (map->depth > kValueDepth) meter.fail("mappings nested deeper than ", kValueDepth);
    const auto [it, fresh] = map->index.emplace(std::move(text), map->items.size());
    if (fresh) map->items.emplace_back(std::move(key), std::move(value));
    else map->items[it->second].second = std::move(value);
  }
  return MapPtr(std::move(map));
}

Value make_text(Meter& meter, Text text) {
  meter.check_size(text.cost());
  meter.pay_text(text);
  text.shrink();
  return Value(std::move(text));
}

Value from_json(Meter& meter, const Json& json, bool trusted) {
  if (json.is_null()) return None{};
  if (json.is_bool()) return json.boolean();
  if (json.is_string()) return Text(json.string(), trusted);
  if (json.is_array()) {
    auto list = std::make_shared<List>();
    for (const Json& item : json.array()) {
      list->items.push_back(from_json(meter, item, trusted));
      list->depth = std::max(list->depth, list->items.back().depth() + 1);
    }
    if (list->depth > kValueDepth) meter.fail("a variable nests deeper than ", kValueDepth);
    return ListPtr(std::move(list));
  }
  if (json.is_object()) {
    auto map = std::make_shared<Map>();
    for (const Json::Member& member : json.object()) {
      Value value = from_json(meter, member.value, trusted);
      map->depth = std::max(map->depth, value.depth() + 1);
      map->index.emplace("s" + member.key, map->items.size());
      map->items.emplace_back(Text(member.key, trusted), std::move(value));
    }
    if (map->depth > kValueDepth) meter.fail("a variable nests deeper than ", kValueDepth);
    return MapPtr(std::move(map));
  }
  if (json.is_real()) return json.number();  // 2.0 stays one, as Python reads it
  return json.integer();
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  meter.pay();
  meter.check_stack();
  if (a.is_number() && b.is_number()) {
    const auto m = a.integer(), n = b.integer();
    return m && n ? *m == *n : a.number() == b.number();
  }
  if (a.v.index() != b.v.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_text()) {
    if (a.text().size() != b.text().size()) return false;
    meter.pay_bytes(a.text().size());
    return a.text().bytes() == b.text().bytes();
  }
  if (a.is_list()) {
    const List &x = a.list(), &y = b.list();
    if (x.tuple != y.tuple || x.items.size() != y.items.size()) return false;
    for (std::size_t i = 0; i < x.items.size(); ++i)
      if (!equal(meter, x.items[i], y.items[i])) return false;
    return true;
  }
  if (a.is_map()) {
    const Map &x = a.map(), &y = b.map();
    if (x.items.size() != y.items.size()) return false;
    for (const auto& [key, value] : x.items) {
      if (key.is_text()) meter.pay_bytes(key.text().size());
      const Value* other = y.find(key);
      if (!other || !equal(meter, value, *other)) return false;
    }
    return true;
  }
  if (const auto* n = std::get_if<Namespace*>(&a.v)) return *n == std::get<Namespace*>(b.v);
  if (const auto* c = std::get_if<const Callable*>(&a.v)) return *c == std::get<const Callable*>(b.v);
  if (const auto* l = std::get_if<const Loop*>(&a.v)) return *l == std::get<const Loop*>(b.v);
  return false;
}

int compare(Meter& meter, const Value& a, const Value& b, std::string_view what) {
  meter.pay();
  meter.check_stack();
  if (a.is_number() && b.is_number()) {
    const auto m = a.integer(), n = b.integer();
    if (m && n) return *m < *n ? -1 : *m > *n;
    const double x = a.number(), y = b.number();
    return x < y ? -1 : x > y;
  }
  if (a.is_text() && b.is_text()) {
    meter.pay_bytes(std::min(a.text().size(), b.text().size()));
    return a.text().bytes().compare(b.text().bytes());  // UTF-8 sorts as its code points do
  }
  if (a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    const auto &x = a.list().items, &y = b.list().items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(meter, x[i], y[i])) return compare(meter, x[i], y[i], what);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  meter.fail(what, ": ", a.type_name(), " and ", b.type_name(), " have no order");
}

bool contains(Meter& meter, const Value& in, const Value& what) {
  if (in.is_text()) {
    if (!what.is_text()) meter.fail("'in' a string wants a string on its left, not ", what.type_name());
    meter.pay_characters(in.text().size());
    return find_bytes(in.text().bytes(), what.text().bytes(), 0) != std::string::npos;
  }
  if (in.is_map()) {
    if (what.is_list() || what.is_map()) meter.fail(what.type_name(), " cannot be a key of a mapping");
    if (what.is_text()) meter.pay_bytes(what.text().size());
    return in.map().find(what) != nullptr;
  }
  if (in.is_list()) {
    for (const Value& item : in.list().items)
      if (equal(meter, item, what)) return true;
    return false;
  }
  if (in.is_undefined()) return false;
  meter.fail("'in' wants a string, a list or a mapping on its right, not ", in.type_name());
}

std::vector<Value> iterate(Meter& meter, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_list()) {
    meter.pay_items(value.list().items.size());
    return value.list().items;
  }
  if (value.is_map()) {
    meter.pay_items(value.map().items.size());
    for (const auto& item : value.map().items) items.push_back(item.first);
    return items;
  }
  if (value.is_text()) {
    const Text& text = value.text();
    for (std::size_t at = 0; at < text.size();) {
      meter.pay(2);  // a string of its own
      const std::size_t n = character(text.bytes(), at).bytes;
      Text one;
      one.append(text, at, at + n);
      items.emplace_back(std::move(one));
      at += n;
    }
    return items;
  }
  meter.fail(value.type_name(), " cannot be gone through; a list, a mapping or a string can");
}

std::size_t length(Meter& meter, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_list()) return value.list().items.size();
  if (value.is_map()) return value.map().items.size();
  if (value.is_text()) {
    meter.pay_characters(value.text().size());
    return count_characters(value.text().bytes());
  }
  meter.fail(value.type_name(), " has no length");
}

// Python's repr of a real number: the shortest digits that read back; an exponent below 1e-4 and from
// 1e16 on.
std::string real_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific).ptr;
  std::string s(buffer, end);
  const std::size_t e = s.find('e');
  const int exponent = std::atoi(s.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return s;  // both write at least two digits of exponent
  std::string digits;
  for (char c : s.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  std::string out = x < 0 || (x == 0 && std::signbit(x)) ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

std::string hex(std::uint32_t n, int digits) {
  std::string s;
  for (int i = digits - 1; i >= 0; --i) s += "0123456789abcdef"[n >> (4 * i) & 15];
  return s;
}

// Python's str.isprintable, near enough: controls, spaces but ' ', format and private characters
bool is_printable(std::uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad) return false;
  if (c < 0x600) return true;
  if (is_space(c) || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
      (c >= 0x2060 && c <= 0x206f) || c == 0xfeff)
    return false;
  return !((c >= 0xd800 && c <= 0xf8ff) || c == 0xfffe || c == 0xffff || c >= 0xe0000);
}

std::string python_string(std::string_view s) {  // as Python writes a string inside a list
  const char quote =
      s.find('\'') != std::string_view::npos && s.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < s.size();) {
    const auto [c, n] = character(s, at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') (out += '\\') += static_cast<char>(c);
    else if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (is_printable(c)) out += s.substr(at, n);
    else if (c < 0x100) out += "\\x" + hex(c, 2);
    else if (c < 0x10000) out += "\\u" + hex(c, 4);
    else out += "\\U" + hex(c, 8);
    at += n;
  }
  return out += quote;
}

std::string json_string(std::string_view s, bool ascii) {
  std::string out = "\"";
  for (std::size_t at = 0; at < s.size();) {
    const auto [c, n] = character(s, at);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) out += "\\u" + hex(c, 4);
        else if (ascii && c >= 0x10000)
          out += "\\u" + hex(0xd7c0 + (c >> 10), 4) + "\\u" + hex(0xdc00 + (c & 0x3ff), 4);
        else out += s.substr(at, n);
    }
    at += n;
  }
  return out += '"';
}

// Writes a value as Python's repr() or as JSON. Once a user's string went in, the whole result is
// the user's.
class Writer {
 public:
  Writer(Meter& meter, const JsonStyle* json) : meter_(meter), json_(json) {}

  void write(const Value& value, std::size_t level) {
    meter_.pay();
    meter_.check_stack();
    if (value.is_none()) put(json_ ? "null" : "None");
    else if (value.is_bool())
      put(std::get<bool>(value.v) ? json_ ? "true" : "True" : json_ ? "false" : "False");
    else if (value.is_integer()) put(concat(std::get<std::int64_t>(value.v)));
    else if (value.is_real()) put(json_ ? json_real(value.number()) : real_text(value.number()));
    else if (value.is_text()) write_text(value.text());
    else if (value.is_list()) write_list(value.list(), level);
    else if (value.is_map()) write_map(value.map(), level);
    else if (value.is_undefined() && !json_) put("Undefined");
    else meter_.fail(value.type_name(), json_ ? " cannot be written as JSON" : " cannot be printed");
  }
  Text take() { return Text(std::move(out_), trusted_); }

 private:
  void put(std::string_view s) {
    meter_.pay_bytes(s.size());
    meter_.check_size(out_.size() + s.size());
    out_ += s;
  }
  void write_text(const Text& text) {
    meter_.pay_characters(text.size());
    if (!text.trusted()) trusted_ = false;
    put(json_ ? json_string(text.bytes(), json_->ascii) : python_string(text.bytes()));
  }
  static std::string json_real(double x) {
    return std::isnan(x) ? "NaN" : std::isinf(x) ? x < 0 ? "-Infinity" : "Infinity" : real_text(x);
  }

  void separate(std::size_t i, std::size_t level) {
    if (i > 0) put(json_ ? std::string_view(json_->between) : ", ");
    line(level + 1);
  }
  void line(std::size_t level) {
    if (!json_ || !json_->indent) return;
    put("\n");
    for (std::size_t i = 0; i < level; ++i) put(*json_->indent);
  }
  void write_list(const List& list, std::size_t level) {
    if (!list.printed.empty() && !json_) return put(list.printed);
    put(list.tuple && !json_ ? "(" : "[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separate(i, level);
      write(list.items[i], level + 1);
    }
    if (!list.items.empty()) line(level);
    if (list.tuple && !json_) put(list.items.size() == 1 ? ",)" : ")");
    else put("]");
  }
  void write_map(const Map& map, std::size_t level) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : map.items) items.push_back(&item);
    if (json_ && json_->sorted)
      merge_sort(items,
                 [&](auto* a, auto* b) { return compare(meter_, a->first, b->first, "sort_keys") < 0; });
    put("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i, level);
      const Value& key = items[i]->first;
      if (json_ && !key.is_text()) {
        put("\"");
        write(key, level);
        put("\"");
      } else {
        write(key, level);
      }
      put(json_ ? std::string_view(json_->after_key) : ": ");
      write(items[i]->second, level + 1);
    }
    if (!items.empty()) line(level);
    put("}");
  }

  Meter& meter_;
  const JsonStyle* json_;
  std::string out_;
  bool trusted_ = true;
};

}  // namespace

Text to_text(Meter& meter, const Value& value) {
  if (value.is_text()) {
    meter.pay_text(value.text());
    return value.text();
  }
  if (value.is_undefined()) return {};
  Writer writer(meter, nullptr);
  writer.write(value, 0);
  return writer.take();
}

Text to_json(Meter& meter, const Value& value, const JsonStyle& style) {
  Writer writer(meter, &style);
  writer.write(value, 0);
  return writer.take();
}

// Characters.

Character character(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const std::uint32_t a = byte(at);
  const auto more = [&](std::size_t n) {
    if (n >= s.size() - at) return false;
    for (std::size_t i = 1; i <= n; ++i)
      if ((byte(at + i) & 0xc0) != 0x80) return false;
    return true;
  };
  if (a < 0x80) return {a, 1};
  if (a >= 0xc2 && a < 0xe0 && more(1)) return {(a & 31) << 6 | (byte(at + 1) & 63u), 2};
  if (a >= 0xe0 && a < 0xf0 && more(2)) {
    const std::uint32_t c = (a & 15) << 12 | (byte(at + 1) & 63u) << 6 | (byte(at + 2) & 63u);
    if (c >= 0x800 && (c < 0xd800 || c > 0xdfff)) return {c, 3};
  }
  if (a >= 0xf0 && a < 0xf5 && more(3)) {
    const std::uint32_t c =
        (a & 7) << 18 | (byte(at + 1) & 63u) << 12 | (byte(at + 2) & 63u) << 6 | (byte(at + 3) & 63u);
    if (c >= 0x10000 && c <= 0x10ffff) return {c, 4};
  }
  return {0xfffd, 1};
}

void put_character(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 63));
    put(0x80 | (c & 63));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 63));
    put(0x80 | (c >> 6 & 63));
    put(0x80 | (c & 63));
  }
}

std::size_t count_characters(std::string_view s) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < s.size(); ++n) at += character(s, at).bytes;
  return n;
}

bool is_space(std::uint32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

std::size_t find_bytes(std::string_view s, std::string_view what, std::size_t from) {
  if (what.size() <= 16) return s.find(what, from);
  if (from > s.size() || what.size() > s.size() - from) return std::string_view::npos;
  // Knuth, Morris, Pratt: nothing in s is looked at twice
  std::vector<std::size_t> border(what.size(), 0);
  for (std::size_t i = 1, k = 0; i < what.size(); ++i) {
    while (k > 0 && what[i] != what[k]) k = border[k - 1];
    if (what[i] == what[k]) ++k;
    border[i] = k;
  }
  for (std::size_t i = from, k = 0; i < s.size(); ++i) {
    while (k > 0 && s[i] != what[k]) k = border[k - 1];
    if (s[i] == what[k]) ++k;
    if (k == what.size()) return i + 1 - k;
  }
  return std::string_view::npos;
}

}  // namespace rapt::chat
