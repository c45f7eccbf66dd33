// SPDX-License-Identifier: Apache-2.0
// Attributes, items, slices, and the methods of strings, lists and mappings.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/text/chat_template_builtins.h"

namespace rapt::chat {

Taken::Taken(Meter& meter, std::string_view of, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t least)
    : meter_(meter), of_(of), names_(names), values_(names.size(), nullptr) {
  if (arguments.by_position.size() > names_.size())
    meter.fail("'", of, "' takes at most ", names_.size(), " arguments, not ", arguments.by_position.size());
  for (std::size_t i = 0; i < arguments.by_position.size(); ++i) values_[i] = &arguments.by_position[i];
  for (const auto& [name, value] : arguments.by_name) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) meter.fail("'", of, "' has no argument '", shown_name(name), "'");
    const Value*& place = values_[static_cast<std::size_t>(it - names_.begin())];
    if (place) meter.fail("'", of, "' gets its argument '", name, "' twice");
    place = &value;
  }
  for (std::size_t i = 0; i < least; ++i)
    if (!values_[i]) meter.fail("'", of, "' wants its argument '", names_[i], "'");
}

std::int64_t Taken::integer(std::size_t i, std::int64_t fallback) const {
  if (!values_[i] || values_[i]->is_none()) return fallback;
  const auto n = values_[i]->integer();
  if (!n) meter_.fail("'", of_, "': ", names_[i], " is ", values_[i]->type_name(), ", not an integer");
  return *n;
}

const Text& Taken::text(std::size_t i) const {
  if (!values_[i] || !values_[i]->is_text())
    meter_.fail("'", of_, "': ", names_[i], " is ", values_[i] ? values_[i]->type_name() : "absent",
                ", not a string");
  return values_[i]->text();
}

namespace {

constexpr std::string_view kTextMethods[] = {
    "strip",     "lstrip",     "rstrip",  "split",   "rsplit",    "splitlines",   "startswith",
    "endswith",  "replace",    "upper",   "lower",   "title",     "capitalize",   "find",
    "rfind",     "index",      "count",   "join",    "format",    "isdigit",      "isalpha",
    "isalnum",   "isspace",    "isupper", "islower", "isnumeric", "removeprefix", "removesuffix",
    "partition", "rpartition", "zfill",   "ljust",   "rjust"};
constexpr std::string_view kMapMethods[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kChanging[] = {"append", "extend",  "insert", "pop",        "remove", "clear",
                                          "sort",   "reverse", "update", "setdefault", "popitem"};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_method(const Value& self, std::string_view name) {
  if (self.is_text()) return among(kTextMethods, name);
  if (self.is_map()) return among(kMapMethods, name) || among(kChanging, name);
  if (self.is_list()) return among(kListMethods, name) || (!self.list().tuple && among(kChanging, name));
  return std::holds_alternative<const Loop*>(self.v) && name == "cycle";
}

Value method_of(const Value& self, const std::string& name) {
  return Method{std::make_shared<const Value>(self), name};
}

Value whole(std::size_t n) { return static_cast<std::int64_t>(n); }

// The byte that stands `characters` after the byte `at`.
std::size_t byte_place(const Text& text, std::size_t at, std::int64_t characters) {
  for (; characters > 0 && at < text.size(); --characters) at += character(text.bytes(), at).bytes;
  return at;
}

Value loop_attribute(const Loop& loop, const std::string& name) {
  if (name == "index") return whole(loop.index0 + 1);
  if (name == "index0") return whole(loop.index0);
  if (name == "revindex") return whole(loop.length - loop.index0);
  if (name == "revindex0") return whole(loop.length - loop.index0 - 1);
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return loop.index0 + 1 == loop.length;
  if (name == "length") return whole(loop.length);
  if (name == "depth") return whole(1);  // of recursive loops, which there are none of
  if (name == "depth0") return whole(0);
  if (name == "previtem") return loop.previous;
  if (name == "nextitem") return loop.next;
  return Value::undefined(concat("the loop has no '", shown_name(name), "'"));
}

}  // namespace

Value attribute(Meter& meter, const Value& self, const std::string& name) {
  meter.pay();
  meter.pay_bytes(name.size());
  if (const auto* undefined = std::get_if<Undefined>(&self.v))
    meter.fail(undefined->what ? *undefined->what : std::string("the value is undefined"), ", so it has no '",
               shown_name(name), "'");
  if (is_method(self, name)) return method_of(self, name);
  if (self.is_map()) {
    if (const Value* value = self.map().find(name)) return *value;
    return Value::undefined(concat("the mapping has no '", shown_name(name), "'"));
  }
  if (self.is_namespace()) {
    meter.pay(std::get<Namespace*>(self.v)->items.size() / 8);
    if (const Value* value = std::get<Namespace*>(self.v)->find(name)) return *value;
    return Value::undefined(concat("the namespace has no '", shown_name(name), "'"));
  }
  if (const auto* loop = std::get_if<const Loop*>(&self.v)) return loop_attribute(**loop, name);
  return Value::undefined(concat(self.type_name(), " has no '", shown_name(name), "'"));
}

Value item(Meter& meter, const Value& self, const Value& key) {
  meter.pay();
  if (self.is_map()) {
    if (key.is_text()) meter.pay_bytes(key.text().size());
    if (const Value* value = self.map().find(key)) return *value;
  } else if (const auto n = key.integer(); n && self.is_list()) {
    const auto& items = self.list().items;
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t i = *n < 0 ? *n + size : *n;
    if (i >= 0 && i < size) return items[static_cast<std::size_t>(i)];
    return Value::undefined(concat("the list has ", size, " items and none at ", *n));
  } else if (n && self.is_text()) {
    const Text& text = self.text();
    const auto size = static_cast<std::int64_t>(length(meter, self));
    std::int64_t i = *n < 0 ? *n + size : *n;
    if (i < 0 || i >= size)
      return Value::undefined(concat("the string has ", size, " characters and none at ", *n));
    std::size_t at = 0;
    for (; i > 0; --i) at += character(text.bytes(), at).bytes;
    Text one;
    one.append(text, at, at + character(text.bytes(), at).bytes);
    return one;
  }
  if (key.is_text()) return attribute(meter, self, key.text().bytes());
  if (self.is_undefined()) return attribute(meter, self, "[…]");
  return Value::undefined(concat(self.type_name(), " has no such item"));
}

Value slice(Meter& meter, const Value& self, const Value& from, const Value& to, const Value& step) {
  if (!self.is_list() && !self.is_text())
    meter.fail("a slice of ", self.type_name(), "; lists and strings have slices");
  const auto number = [&](const Value& v, std::int64_t fallback) {
    if (v.is_none()) return fallback;
    const auto n = v.integer();
    if (!n) meter.fail("a slice's bounds are integers, not ", v.type_name());
    return *n;
  };
  const std::int64_t by = number(step, 1);
  if (by == 0) meter.fail("a slice's step cannot be 0");
  const auto size = static_cast<std::int64_t>(length(meter, self));
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto bound = [&](const Value& v, std::int64_t fallback) {
    if (v.is_none()) return fallback;
    const std::int64_t n = number(v, 0);
    return std::clamp(n < 0 ? std::max(n, -size - 1) + size : n, low, high);
  };
  const std::int64_t a = bound(from, by > 0 ? low : high), b = bound(to, by > 0 ? high : low);
  if (self.is_list()) {
    std::vector<Value> items;
    for (std::int64_t i = a; by > 0 ? i < b : i > b;) {
      items.push_back(self.list().items[static_cast<std::size_t>(i)]);
      if (by > 0 ? b - i <= by : b - i >= by) break;  // the next one is outside; i + by may not even fit
      i += by;
    }
    return make_list(meter, std::move(items), self.list().tuple);
  }
  const Text& text = self.text();
  Text out;
  if (by == 1) {
    const std::size_t begin = byte_place(text, 0, a);
    if (a < b) out.append(text, begin, byte_place(text, begin, b - a));
  } else {
    meter.pay(static_cast<std::size_t>(size) / 8);
    std::vector<std::size_t> starts;  // of characters, and the end
    starts.reserve(static_cast<std::size_t>(size) + 1);
    for (std::size_t at = 0; at < text.size(); at += character(text.bytes(), at).bytes) starts.push_back(at);
    starts.push_back(text.size());
    for (std::int64_t i = a; by > 0 ? i < b : i > b;) {
      out.append(text, starts[static_cast<std::size_t>(i)], starts[static_cast<std::size_t>(i) + 1]);
      if (by > 0 ? b - i <= by : b - i >= by) break;
      i += by;
    }
  }
  return make_text(meter, std::move(out));
}

// Strings.

namespace {

// Every character through `change`, which appends what it becomes; who wrote it stays.
template <class Change>
Text each_character(Meter& meter, const Text& text, Change change) {
  meter.pay_characters(text.cost());
  Text out;
  std::size_t at = 0;
  std::string one;
  for (const Text::Run& run : text.runs())
    while (at < run.end) {
      const auto [code, n] = character(text.bytes(), at);
      one.clear();
      if (code == 0xfffd) one = text.bytes().substr(at, n);
      else change(code, at, one);
      out.append(one, run.trusted);
      at += n;
    }
  return out;
}

void put_upper(std::string& out, std::uint32_t code) {
  if (code == 0xdf) out += "SS";
  else put_character(out, unicode::upper(code));
}

void put_title(std::string& out, std::uint32_t code) {
  const std::uint32_t big = unicode::upper(code);
  // Dž, Lj, Nj, Dz: one character
  if (big == 0x1c4 || big == 0x1c7 || big == 0x1ca || big == 0x1f1) put_character(out, big + 1);
  else if (code == 0xdf) out += "Ss";
  else put_character(out, code >= 0x10d0 && code <= 0x10ff ? code : big);  // Georgian titles stay small
}

bool has_case(std::uint32_t code) {
  std::vector<std::uint32_t> small;
  unicode::lower(small, code);
  return code == 0xdf || small.size() > 1 || small[0] != code || unicode::upper(code) != code;
}

void put_lower(std::string& out, const Text& text, std::size_t at, std::uint32_t code) {
  if (code == 0x3a3) {  // a sigma at the end of a word has a form of its own
    std::size_t before = at;
    while (before > 0 && at - before < 4 &&
           (static_cast<unsigned char>(text.bytes()[--before]) & 0xc0) == 0x80) {}
    const bool inside = at > 0 && has_case(character(text.bytes(), before).code);
    const bool more = at + 2 < text.size() && has_case(character(text.bytes(), at + 2).code);
    return put_character(out, inside && !more ? 0x3c2 : 0x3c3);
  }
  std::vector<std::uint32_t> small;
  unicode::lower(small, code);
  for (const std::uint32_t c : small) put_character(out, c);
}

}  // namespace

Text change_case(Meter& meter, const Text& text, bool up) {
  return each_character(meter, text, [&](std::uint32_t code, std::size_t at, std::string& one) {
    if (code < 0x80)
      put_character(one, up ? unicode::upper(code) : code >= 'A' && code <= 'Z' ? code + 32 : code);
    else if (up) put_upper(one, code);
    else put_lower(one, text, at, code);
  });
}

Text capitalize(Meter& meter, const Text& text) {
  return each_character(meter, text, [&](std::uint32_t code, std::size_t at, std::string& one) {
    at == 0 ? put_title(one, code) : put_lower(one, text, at, code);
  });
}

Text title_case(Meter& meter, const Text& text, bool whole, bool (*starts_after)(std::uint32_t)) {
  bool start = true;
  return each_character(meter, text, [&](std::uint32_t code, std::size_t at, std::string& one) {
    if (!start) put_lower(one, text, at, code);
    else whole ? put_upper(one, code) : put_title(one, code);
    start = starts_after(code);
  });
}

Text replace_text(Meter& meter, const Text& text, const Text& old, const Text& by, std::int64_t count) {
  Text out;
  std::size_t at = 0;
  meter.pay_characters(text.cost());
  for (std::int64_t i = 0; count < 0 || i < count; ++i) {
    std::size_t found = find_bytes(text.bytes(), old.bytes(), at);
    std::size_t after = found + old.size();
    if (old.size() == 0) {  // between all characters
      if (at > text.size()) break;
      found = at;
      after = at < text.size() ? at + character(text.bytes(), at).bytes : at + 1;
      out.append(by);
      out.append(text, at, after);
      at = after;
    } else {
      if (found == std::string::npos) break;
      out.append(text, at, found);
      out.append(by);
      at = after;
    }
    meter.pay();
    meter.check_size(out.cost());
  }
  out.append(text, at);
  return out;
}

Text strip_text(Meter& meter, const Text& text, const Text* characters, bool left, bool right) {
  const std::string& s = text.bytes();
  std::vector<std::uint32_t> set;
  if (characters) {
    meter.pay(characters->size());
    for (std::size_t at = 0; at < characters->size();) {
      const auto [code, n] = character(characters->bytes(), at);
      set.push_back(code);
      at += n;
    }
    std::sort(set.begin(), set.end());
  }
  const auto goes = [&](std::uint32_t code) {
    return characters ? std::binary_search(set.begin(), set.end(), code) : is_space(code);
  };
  std::size_t from = 0, to = s.size();
  while (left && from < to) {
    const auto [code, n] = character(s, from);
    if (!goes(code)) break;
    from += n;
  }
  while (right && to > from) {
    std::size_t start = to - 1;
    while (start > from && to - start < 4 && (static_cast<unsigned char>(s[start]) & 0xc0) == 0x80) --start;
    if (start + character(s, start).bytes != to) start = to - 1;
    if (!goes(character(s, start).code)) break;
    to = start;
  }
  meter.pay_characters(s.size() - (to - from));
  meter.pay_text(text);
  Text out;
  out.append(text, from, to);
  return out;
}

Text join_texts(Meter& meter, const std::vector<Value>& items, const Text& between) {
  Text out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(between);
    out.append(to_text(meter, items[i]));
    meter.pay();
    meter.check_size(out.cost());
  }
  return out;
}

std::vector<Value> split_lines(Meter& meter, const Text& text) {
  std::vector<Value> lines;
  const std::string& s = text.bytes();
  meter.pay_characters(text.cost());
  std::size_t from = 0;
  for (std::size_t at = 0; at < s.size();) {
    auto [code, n] = character(s, at);
    const std::size_t end = at;
    at += n;
    if (!((code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
          code == 0x2029))
      continue;
    if (code == '\r' && at < s.size() && s[at] == '\n') ++at;
    Text line;
    line.append(text, from, end);
    meter.pay(2);
    lines.emplace_back(std::move(line));
    from = at;
  }
  if (from < s.size()) {
    Text line;
    line.append(text, from);
    lines.emplace_back(std::move(line));
  }
  return lines;
}

namespace {

std::vector<Value> split(Meter& meter, const Text& text, const Text* by, std::int64_t most) {
  std::vector<Value> parts;
  const std::string& s = text.bytes();
  meter.pay_characters(text.cost());
  const auto put = [&](std::size_t from, std::size_t to) {
    Text part;
    part.append(text, from, to);
    meter.pay(2);
    parts.emplace_back(std::move(part));
  };
  const auto room = [&] { return most < 0 || static_cast<std::int64_t>(parts.size()) < most; };
  if (by) {
    if (by->size() == 0) meter.fail("'split': the separator is empty");
    std::size_t from = 0;
    while (room()) {
      const std::size_t found = find_bytes(s, by->bytes(), from);
      if (found == std::string::npos) break;
      put(from, found);
      from = found + by->size();
    }
    put(from, s.size());
    return parts;
  }
  std::size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < s.size()) {
      const auto [code, n] = character(s, at);
      if (is_space(code) != spaces) break;
      at += n;
    }
  };
  for (skip(true); at < s.size(); skip(true)) {
    const std::size_t from = at;
    if (room()) {
      skip(false);
      put(from, at);
    } else {  // the rest in one piece, without the spaces at its end
      Text rest;
      rest.append(text, from);
      parts.emplace_back(strip_text(meter, rest, nullptr, false, true));
      break;
    }
  }
  return parts;
}

std::vector<Value> split_right(Meter& meter, const Text& text, const Text* by, std::int64_t most) {
  if (most < 0) return split(meter, text, by, most);
  if (!by) meter.fail("'rsplit' with a limit wants a separator");
  if (by->size() == 0) meter.fail("'rsplit': the separator is empty");
  std::vector<Value> parts;
  std::size_t to = text.size();
  meter.pay_text(text);
  const auto put = [&](std::size_t from, std::size_t end) {
    Text part;
    part.append(text, from, end);
    meter.pay(2);
    parts.emplace_back(std::move(part));
  };
  while (static_cast<std::int64_t>(parts.size()) < most) {
    meter.pay_bytes(to + 128);
    meter.pay(by->size() / 16 * (to / 128));  // searching backwards compares the separator at every place
    const std::size_t found =
        to < by->size() ? std::string::npos : text.bytes().rfind(by->bytes(), to - by->size());
    if (found == std::string::npos) break;
    put(found + by->size(), to);
    to = found;
  }
  put(0, to);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// "{} is {name}".format(…): places by order, number or name; of the ways to write a value only ":d".
Text format(Meter& meter, const Text& pattern, const Arguments& arguments) {
  const std::string& p = pattern.bytes();
  meter.pay_characters(pattern.cost());
  std::size_t next = 0;
  Text out;
  for (std::size_t at = 0; at < p.size();) {
    const std::size_t mark = p.find_first_of("{}", at);
    out.append(pattern, at, mark);
    if (mark == std::string::npos) break;
    if (mark + 1 < p.size() && p[mark + 1] == p[mark]) {
      out.append(pattern, mark, mark + 1);
      at = mark + 2;
      continue;
    }
    const std::size_t close = p[mark] == '{' ? p.find('}', mark) : std::string::npos;
    if (close == std::string::npos) meter.fail("'format': a single '", p[mark], "' in the pattern");
    std::string field = p.substr(mark + 1, close - mark - 1);
    if (field.size() > 100)
      meter.fail("'format': '{", shown_name(field), "}' is more than chat templates may use");
    const bool integer = field.ends_with(":d");
    if (integer) field.resize(field.size() - 2);
    if (field.find_first_of("!:.[{") != std::string::npos)
      meter.fail("'format': '{", field, "}' is more than chat templates may use");
    const Value* value = nullptr;
    if (field.empty() || field.find_first_not_of("0123456789") == std::string::npos) {
      const std::size_t i = field.empty()      ? next++
                            : field.size() > 4 ? 99999
                                               : static_cast<std::size_t>(std::stoi(field));
      if (i < arguments.by_position.size()) value = &arguments.by_position[i];
    } else {
      for (const auto& [name, v] : arguments.by_name)
        if (name == field) value = &v;
    }
    if (!value) meter.fail("'format': there is no value for '{", field, "}'");
    if (integer && !value->is_integer())
      meter.fail("'format': ':d' wants an integer, not ", value->type_name());
    out.append(to_text(meter, *value));
    meter.pay();
    meter.check_size(out.cost());
    at = close + 1;
  }
  return out;
}

// The stretch of a string that the arguments `i` and `i + 1` of find(), startswith() and their kind leave:
// bytes, and the character it begins with. None: the start lies behind the end of the string, where not even
// "" is found.
struct Window {
  std::size_t from, to;
  std::int64_t first;
};
std::optional<Window> window(Meter& meter, const Text& text, const Taken& t, std::size_t i) {
  const bool whole_text = (!t[i] || t[i]->is_none()) && (!t[i + 1] || t[i + 1]->is_none());
  if (whole_text) return Window{0, text.size(), 0};
  meter.pay_characters(text.size());
  const auto size = static_cast<std::int64_t>(count_characters(text.bytes()));
  const auto bound = [&](std::int64_t n) { return n < 0 ? std::max(n + size, std::int64_t{0}) : n; };
  const std::int64_t first = bound(std::max(t.integer(i, 0), -size)),
                     last = std::min(bound(std::max(t.integer(i + 1, size), -size)), size);
  if (first > size || last < first) return std::nullopt;
  const std::size_t from = byte_place(text, 0, first);
  return Window{from, byte_place(text, from, last - first), first};
}

bool begins_or_ends(Meter& meter, std::string_view text, const Value& with, bool begins) {
  if (with.is_list() && with.list().tuple) {
    for (const Value& one : with.list().items) {
      meter.pay();
      if (one.is_list())
        meter.fail("'", begins ? "startswith" : "endswith", "' wants strings, not ", one.type_name());
      if (begins_or_ends(meter, text, one, begins)) return true;
    }
    return false;
  }
  if (!with.is_text())
    meter.fail("'", begins ? "startswith" : "endswith", "' wants a string, not ", with.type_name());
  meter.pay_bytes(with.text().size());
  return begins ? text.starts_with(with.text().bytes()) : text.ends_with(with.text().bytes());
}

template <class Test>
bool all_characters(Meter& meter, const Text& text, Test test) {
  meter.pay_characters(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, n] = character(text.bytes(), at);
    if (!test(code)) return false;
    at += n;
  }
  return text.size() > 0;
}

// Some letter with case, and none of the other case.
bool is_cased(Meter& meter, const Text& text, bool up) {
  bool some = false;
  const bool none_wrong = all_characters(meter, text, [&](std::uint32_t c) {
    if (!has_case(c)) return true;
    some = true;
    return up ? unicode::category(c) == unicode::Lu : unicode::category(c) == unicode::Ll;
  });
  return some && none_wrong;
}

Value partition(Meter& meter, const Text& text, const Text& by, bool right) {
  if (by.size() == 0) meter.fail("'partition': the separator is empty");
  meter.pay_characters(text.cost());
  if (right) meter.pay(by.size() / 16 * (text.size() / 128));
  const std::size_t at = right ? text.bytes().rfind(by.bytes()) : find_bytes(text.bytes(), by.bytes(), 0);
  Text a, b, c;
  if (at != std::string::npos) {
    a.append(text, 0, at);
    b.append(text, at, at + by.size());
    c.append(text, at + by.size());
  } else {
    (right ? c : a) = text;
  }
  return make_list(meter, {std::move(a), std::move(b), std::move(c)}, true);
}

Value text_method(Meter& meter, const Value& self, const std::string& name, const Arguments& given) {
  const Text& text = self.text();
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Taken t(meter, name, given, {"chars"});
    const Text* set = t[0] && !t[0]->is_none() ? &t.text(0) : nullptr;
    return make_text(meter, strip_text(meter, text, set, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    const Taken t(meter, name, given, {"sep", "maxsplit"});
    const Text* by = t[0] && !t[0]->is_none() ? &t.text(0) : nullptr;
    return make_list(meter, name == "split" ? split(meter, text, by, t.integer(1, -1))
                                            : split_right(meter, text, by, t.integer(1, -1)));
  }
  if (name == "startswith" || name == "endswith") {
    const Taken t(meter, name, given, {"prefix", "start", "end"}, 1);
    const auto part = window(meter, text, t, 1);
    if (!part) return false;
    return begins_or_ends(meter, std::string_view(text.bytes()).substr(part->from, part->to - part->from),
                          *t[0], name == "startswith");
  }
  if (name == "replace") {
    const Taken t(meter, name, given, {"old", "new", "count"}, 2);
    return make_text(meter, replace_text(meter, text, t.text(0), t.text(1), t.integer(2, -1)));
  }
  if (name == "format") return make_text(meter, format(meter, text, given));
  if (name == "join") {
    const Taken t(meter, name, given, {"items"}, 1);
    const std::vector<Value> items = iterate(meter, *t[0]);
    for (const Value& one : items)
      if (!one.is_text()) meter.fail("'join' wants strings, not ", one.type_name());
    return make_text(meter, join_texts(meter, items, text));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Taken t(meter, name, given, {"part"}, 1);
    const std::size_t n = t.text(0).size();
    if (!begins_or_ends(meter, text.bytes(), *t[0], name == "removeprefix")) return self;
    Text out;
    name == "removeprefix" ? out.append(text, n) : out.append(text, 0, text.size() - n);
    return make_text(meter, std::move(out));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "count") {
    const Taken t(meter, name, given, {"part", "start", "end"}, 1);
    const std::string& part = t.text(0).bytes();
    meter.pay_characters(text.size());
    if (name == "rfind") meter.pay(part.size() / 16 * (text.size() / 128));
    const auto inside = window(meter, text, t, 1);
    const std::string_view s =
        inside ? std::string_view(text.bytes()).substr(inside->from, inside->to - inside->from)
               : std::string_view();
    if (name == "count") {
      if (part.empty()) return inside ? whole(count_characters(s) + 1) : whole(0);
      std::int64_t n = 0;
      for (std::size_t at = 0; (at = find_bytes(s, part, at)) != std::string::npos; at += part.size()) ++n;
      return n;
    }
    const std::size_t at = !inside           ? std::string::npos
                           : name == "rfind" ? s.rfind(part)
                                             : find_bytes(s, part, 0);
    if (at == std::string::npos && name == "index")
      meter.fail("'index': the string does not hold the other one");
    return at == std::string::npos
               ? std::int64_t{-1}
               : inside->first + static_cast<std::int64_t>(count_characters(s.substr(0, at)));
  }
  if (name == "partition" || name == "rpartition") {
    const Taken t(meter, name, given, {"sep"}, 1);
    return partition(meter, text, t.text(0), name == "rpartition");
  }
  if (name == "zfill" || name == "ljust" || name == "rjust") {
    const Taken t(meter, name, given, {"width", "fill"}, 1);
    const std::int64_t width = t.integer(0, 0), size = static_cast<std::int64_t>(length(meter, self));
    if (width <= size) return self;
    meter.check_size(static_cast<std::size_t>(width));
    const Text fill = name == "zfill" ? Text("0", true) : t[1] ? t.text(1) : Text(" ", true);
    if (fill.size() > 4 || count_characters(fill.bytes()) != 1)
      meter.fail("'", name, "' wants one character to fill with");
    const bool sign =
        name == "zfill" && text.size() > 0 && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
    meter.pay(static_cast<std::size_t>(width - size) / 16);
    Text out;
    if (sign) out.append(text, 0, 1);
    if (name == "ljust") out.append(text);
    for (std::int64_t i = size; i < width; ++i) out.append(fill);
    if (name != "ljust") out.append(text, sign ? 1 : 0);
    return make_text(meter, std::move(out));
  }
  const Taken nothing(meter, name, given, {});
  if (name == "splitlines") return make_list(meter, split_lines(meter, text));
  if (name == "upper" || name == "lower") return make_text(meter, change_case(meter, text, name == "upper"));
  if (name == "title")
    return make_text(meter, title_case(meter, text, false, [](std::uint32_t c) { return !has_case(c); }));
  if (name == "capitalize") return make_text(meter, capitalize(meter, text));
  const auto digit = [](std::uint32_t c) {
    return unicode::digit(c) >= 0 || c == 0xb2 || c == 0xb3 || c == 0xb9;
  };
  if (name == "isdigit") return all_characters(meter, text, digit);
  if (name == "isnumeric") return all_characters(meter, text, unicode::is_number);
  if (name == "isalpha") return all_characters(meter, text, unicode::is_letter);
  if (name == "isalnum")
    return all_characters(meter, text,
                          [](std::uint32_t c) { return unicode::is_number(c) || unicode::is_letter(c); });
  if (name == "isspace") return all_characters(meter, text, is_space);
  if (name == "isupper" || name == "islower") return is_cased(meter, text, name == "isupper");
  meter.fail("strings have no method '", name, "'");
}

Value map_method(Meter& meter, const Map& map, const std::string& name, const Arguments& given) {
  if (name == "get") {
    const Taken t(meter, name, given, {"key", "default"}, 1);
    if (t[0]->is_list() || t[0]->is_map()) meter.fail(t[0]->type_name(), " cannot be a key of a mapping");
    if (t[0]->is_text()) meter.pay_bytes(t[0]->text().size());
    if (const Value* value = map.find(*t[0])) return *value;
    return t[1] ? *t[1] : Value(None{});
  }
  const Taken nothing(meter, name, given, {});
  if (name == "copy") return make_map(meter, map.items);
  std::vector<Value> all;
  meter.pay(map.items.size() * (name == "items" ? 2 : 1));
  for (const auto& [key, value] : map.items)
    all.push_back(name == "keys" ? key : name == "values" ? value : make_list(meter, {key, value}, true));
  return make_list(meter, std::move(all));
}

}  // namespace

Value call_method(Meter& meter, const Value& self, const std::string& name, const Arguments& given) {
  meter.pay();
  if (self.is_text()) return text_method(meter, self, name, given);
  if (among(kChanging, name))
    meter.fail("'", name, "' would change ", self.type_name(),
               "; values of a template never change (use a namespace)");
  if (self.is_map()) return map_method(meter, self.map(), name, given);
  if (self.is_list()) {
    if (name == "copy") return self;
    const Taken t(meter, name, given, {"value"}, 1);
    std::int64_t n = 0, at = -1;
    for (std::size_t i = 0; i < self.list().items.size(); ++i)
      if (equal(meter, self.list().items[i], *t[0])) {
        ++n;
        if (at < 0) at = static_cast<std::int64_t>(i);
      }
    if (name == "index" && at < 0) meter.fail("'index': the list does not hold the value");
    return name == "index" ? at : n;
  }
  const Loop& loop = *std::get<const Loop*>(self.v);  // cycle
  if (given.by_position.empty()) meter.fail("'cycle' wants values");
  return given.by_position[loop.index0 % given.by_position.size()];
}

}  // namespace rapt::chat
