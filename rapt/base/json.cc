// SPDX-License-Identifier: Apache-2.0
#include "rapt/base/json.h"

#include <charconv>
#include <cmath>
#include <set>

#include "rapt/base/text.h"

namespace rapt {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark is no character of the text
  }

  Json whole() {
    Json v = value(0);
    space();
    if (at_ < text_.size()) bad("text after the end of the value");
    return v;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(where_, ":", line_, ":", column_, ": ", parts...);
  }
  std::string here() const {  // what stands here, for messages
    if (at_ >= text_.size()) return "the end of the text";
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20 || c == 0x7F) return concat("control character ", int{c});
    if (c >= 0x80) return "a character that is not ASCII";
    return concat("'", text_[at_], "'");
  }

  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  void step() {  // over one byte; columns count characters
    if (text_[at_] == '\n') ++line_, column_ = 1;
    else if ((static_cast<unsigned char>(text_[at_]) & 0xC0) != 0x80) ++column_;
    ++at_;
  }
  void space() {
    while (more() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) step();
  }
  void expect(char c, const char* what) {
    if (!more() || peek() != c) bad("expected ", what, ", found ", here());
    step();
  }

  Json value(int depth) {
    space();
    if (depth > Json::kDepth) bad("nested deeper than ", Json::kDepth, " levels");
    const int line = line_, column = column_;
    Json v;
    switch (peek()) {
      case '{': v = object(depth); break;
      case '[': v = array(depth); break;
      case '"': v = Json(string()); break;
      case 't': word("true"), v = Json(true); break;
      case 'f': word("false"), v = Json(false); break;
      case 'n': word("null"); break;
      default: v = number(); break;
    }
    v.line = line;
    v.column = column;
    return v;
  }

  void word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) bad("expected a value, found a word that is none (strings stand in double quotes)");
    for (std::size_t i = 0; i < w.size(); ++i) step();
  }

  Json object(int depth) {
    step();
    Json::Object out;
    std::set<std::string> seen;
    space();
    if (peek() == '}') return step(), Json(std::move(out));
    for (;;) {
      space();
      if (peek() != '"') bad("expected a key in double quotes, found ", here());
      const int line = line_, column = column_;
      std::string key = string();
      if (!seen.insert(key).second)
        fail(where_, ":", line, ":", column, ": the key ", json_quote(key), " stands twice in one object; keep one of them");
      space();
      expect(':', "':' after the key");
      Json v = value(depth + 1);
      out.push_back({std::move(key), std::move(v)});
      space();
      if (peek() == '}') return step(), Json(std::move(out));
      expect(',', "',' or '}'");
      space();
      if (peek() == '}') bad("a comma before '}': the last member has none");
    }
  }

  Json array(int depth) {
    step();
    Json::Array out;
    space();
    if (peek() == ']') return step(), Json(std::move(out));
    for (;;) {
      out.push_back(value(depth + 1));
      space();
      if (peek() == ']') return step(), Json(std::move(out));
      expect(',', "',' or ']'");
      space();
      if (peek() == ']') bad("a comma before ']': the last element has none");
    }
  }

  static bool digit(char c) { return c >= '0' && c <= '9'; }
  Json number() {
    const std::size_t first = at_;
    bool whole = true;
    if (peek() == '-') step();
    if (!digit(peek())) {
      if (at_ > first) bad("expected a digit after '-', found ", here());
      bad("expected a value, found ", here());
    }
    const bool zero = peek() == '0';
    step();
    if (zero && digit(peek())) bad("a number does not begin with 0");
    while (digit(peek())) step();
    if (peek() == '.') {
      whole = false;
      step();
      if (!digit(peek())) bad("expected a digit after '.', found ", here());
      while (digit(peek())) step();
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      step();
      if (peek() == '+' || peek() == '-') step();
      if (!digit(peek())) bad("expected a digit in the exponent, found ", here());
      while (digit(peek())) step();
    }
    const std::string_view s = text_.substr(first, at_ - first);
    if (whole && s != "-0") {
      std::int64_t n;
      if (std::from_chars(s.data(), s.data() + s.size(), n).ec == std::errc{}) return Json(n);
    }
    double x;
    if (std::from_chars(s.data(), s.data() + s.size(), x).ec != std::errc{}) bad("the number before this is beyond the range of a double");
    return Json(x);
  }

  std::string string() {
    step();
    std::string out;
    for (;;) {
      if (!more()) bad("a string without its closing quote");
      const auto c = static_cast<unsigned char>(peek());
      if (c == '"') return step(), out;
      if (c == '\\') escape(out);
      else if (c < 0x20) bad("control character ", int{c}, " inside a string; write it as an escape (\\n, \\t, \\u0000 …)");
      else if (c < 0x80) out += peek(), step();
      else character(out);
    }
  }

  void character(std::string& out) {  // two to four bytes of UTF-8
    const auto lead = static_cast<unsigned char>(peek());
    const int size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    std::uint32_t code = lead & (0xFF >> (size + 1));
    bool good = lead >= 0xC2 && lead <= 0xF4;
    for (int i = 1; good && i < size; ++i) {
      const auto c =
          at_ + static_cast<std::size_t>(i) < text_.size() ? static_cast<unsigned char>(text_[at_ + static_cast<std::size_t>(i)]) : 0;
      good = (c & 0xC0) == 0x80;
      code = code << 6 | (c & 0x3Fu);
    }
    const std::uint32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
    if (!good || code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      bad("bytes that are not UTF-8; save the file as UTF-8");
    for (int i = 0; i < size; ++i) out += peek(), step();
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      const int d = digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (d < 0) bad("expected four hexadecimal digits after \\u, found ", here());
      code = code * 16 + static_cast<std::uint32_t>(d);
      step();
    }
    return code;
  }

  void escape(std::string& out) {
    step();
    const char c = peek();
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const auto i = more() ? kNames.find(c) : kNames.npos; i != kNames.npos) {
      step();
      out += kMeanings[i];
      return;
    }
    if (c != 'u') bad("unknown escape: after '\\' stands ", here());
    step();
    std::uint32_t code = hex4();
    if (code >= 0xDC00 && code < 0xE000) bad("\\u escape: the second half of a surrogate pair without the first");
    if (code >= 0xD800 && code < 0xDC00) {
      const char* lone = "\\u escape: the first half of a surrogate pair without the second";
      if (peek() != '\\') bad(lone);
      step();
      if (peek() != 'u') bad(lone);
      step();
      const std::uint32_t low = hex4();
      if (low < 0xDC00 || low >= 0xE000) bad(lone);
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    auto byte = [&](std::uint32_t b) { out += static_cast<char>(b); };
    if (code < 0x80) byte(code);
    else if (code < 0x800) byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F));
    else if (code < 0x10000) byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F));
    else byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F));
  }

  std::string_view text_, where_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
};

constexpr double kExact = 9007199254740992.0;  // 2^53

}  // namespace

Json parse_json(std::string_view text, std::string_view where) { return Parser(text, where).whole(); }

bool Json::is_integer() const {
  if (std::holds_alternative<std::int64_t>(value_)) return true;
  const double* x = std::get_if<double>(&value_);
  return x && std::fabs(*x) <= kExact && *x == std::floor(*x);
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null", "true or false", "a number", "a number", "a string", "a list", "an object"};
  const std::size_t i = value_.index();
  return i < std::size(kNames) ? kNames[i] : kNames[0];  // g++ 12 thinks of a variant that holds nothing
}

namespace {
template <class T, class V>
const T& want(const V& v, const Json& j, const char* what) {
  if (const T* t = std::get_if<T>(&v)) return *t;
  fail("json: wanted ", what, ", have ", j.type_name());
}
}  // namespace

bool Json::boolean() const { return want<bool>(value_, *this, "true or false"); }
double Json::number() const {
  if (const auto* n = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*n);
  return want<double>(value_, *this, "a number");
}
std::int64_t Json::integer() const {
  if (const auto* n = std::get_if<std::int64_t>(&value_)) return *n;
  if (!is_integer()) fail("json: wanted an integer, have ", type_name());
  return static_cast<std::int64_t>(std::get<double>(value_));
}
const std::string& Json::string() const { return want<std::string>(value_, *this, "a string"); }
const Json::Array& Json::array() const { return want<Array>(value_, *this, "a list"); }
const Json::Object& Json::object() const { return want<Object>(value_, *this, "an object"); }

const Json* Json::find(std::string_view key) const {
  if (const Object* o = std::get_if<Object>(&value_))
    for (const Member& m : *o)
      if (m.key == key) return &m.value;
  return nullptr;
}

void Json::set(std::string key, Json value) {
  if (!is_object()) value_ = Object{};
  for (Member& m : std::get<Object>(value_))
    if (m.key == key) {
      m.value = std::move(value);
      return;
    }
  std::get<Object>(value_).push_back({std::move(key), std::move(value)});
}

std::string json_quote(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte < 0x20 || byte == 0x7F) out += "\\u00", out += "0123456789abcdef"[byte / 16], out += "0123456789abcdef"[byte % 16];
        else out += c;
    }
  }
  return out + '"';
}

void Json::write(std::string& out, int indent, int depth) const {
  if (is_null()) out += "null";
  else if (is_bool()) out += boolean() ? "true" : "false";
  else if (const auto* n = std::get_if<std::int64_t>(&value_)) out += std::to_string(*n);
  else if (is_string()) out += json_quote(string());
  else if (const auto* x = std::get_if<double>(&value_)) {
    if (!std::isfinite(*x)) fail("json: ", *x, " cannot be written; JSON has no infinities and no NaN");
    out += shortest(*x);
  } else {
    const bool list = is_array();
    const std::size_t count = list ? array().size() : object().size();
    // What fits stays on its line; only the outermost value is always opened up.
    const bool flat = indent == 0 || count == 0;
    if (!flat && depth > 0) {
      std::string one_line;
      write(one_line, 0, depth);
      if (static_cast<Dim>(one_line.size()) <= 100 - indent * depth) {
        out += one_line;
        return;
      }
    }
    auto new_line = [&](int levels) { out += '\n', out.append(static_cast<std::size_t>(indent * levels), ' '); };
    out += list ? '[' : '{';
    for (std::size_t i = 0; i < count; ++i) {
      if (i) out += flat ? ", " : ",";
      if (!flat) new_line(depth + 1);
      if (!list) out += json_quote(object()[i].key) + ": ";
      (list ? array()[i] : object()[i].value).write(out, indent, depth + 1);
    }
    if (!flat) new_line(depth);
    out += list ? ']' : '}';
  }
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

}  // namespace rapt
