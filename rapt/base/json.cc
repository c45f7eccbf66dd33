// SPDX-License-Identifier: Apache-2.0
// Lists, objects with a hashed index, a first look that counts memory, the parser, values, the writer.
#include "rapt/base/json.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <new>

#include "rapt/base/text.h"

namespace rapt {
namespace {

// What an allocator takes for a block of n bytes: a word beside it, multiples of 16, 32 at least.
constexpr std::size_t block_bytes(std::size_t n) { return std::max<std::size_t>(32, (n + 8 + 15) / 16 * 16); }
constexpr std::size_t list_bytes(std::size_t n, std::size_t item) {
  return n == 0 ? 0 : block_bytes(8 + n * item);
}

constexpr std::size_t kIndexed = 16;  // an object with more members has an index
constexpr std::size_t slots_for(std::size_t members) { return members + members / 2 + 1; }

// Keys come from files: without a secret, somebody could choose keys that all share a slot.
std::uint64_t mix(std::uint64_t x) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(x) * 0x9E3779B97F4A7C15u;
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}
std::uint64_t hash_of(std::string_view s) {
  static const std::uint64_t secret = [] {
    const int here = 0;
    return mix(reinterpret_cast<std::uintptr_t>(&here) ^
               mix(static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())));
  }();
  std::uint64_t h = secret ^ s.size(), x = 0;
  for (; s.size() >= 8; s.remove_prefix(8)) std::memcpy(&x, s.data(), 8), h = mix(h ^ x);
  x = 0;
  if (!s.empty()) std::memcpy(&x, s.data(), s.size());
  return mix(h ^ x) ^ h;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ lists
template <class T>
JsonList<T>::JsonList(std::initializer_list<T> items) {
  JsonList made;  // whole before it becomes this one: what a failed allocation leaves is freed
  made.reserve(items.size());
  for (const T& x : items) made.push_back(x);
  std::swap(block_, made.block_);
}
template <class T>
JsonList<T>::JsonList(const JsonList& other) {
  JsonList made;
  made.reserve(other.size());
  for (const T& x : other) made.push_back(x);
  std::swap(block_, made.block_);
}
template <class T>
JsonList<T>::~JsonList() {
  if (!block_) return;
  for (T& x : *this) x.~T();
  ::operator delete(block_);
}
template <class T>
void JsonList<T>::reserve(std::size_t n) {
  if (n <= capacity()) return;
  if (n > std::numeric_limits<std::uint32_t>::max()) fail("json: a list of ", n, " values is too long");
  static_assert(alignof(T) <= sizeof(Block));
  auto* larger = static_cast<Block*>(::operator new(sizeof(Block) + n * sizeof(T)));
  *larger = {static_cast<std::uint32_t>(size()), static_cast<std::uint32_t>(n)};
  for (std::size_t i = 0; i < size(); ++i) {
    new (larger->items() + i) T(std::move((*this)[i]));
    (*this)[i].~T();
  }
  ::operator delete(block_);
  block_ = larger;
}
template <class T>
void JsonList<T>::push_back(T value) {
  if (size() == capacity()) reserve(std::max<std::size_t>(4, 2 * size()));
  new (end()) T(std::move(value));
  ++block_->size;
}
template <class T>
bool JsonList<T>::operator==(const JsonList& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}
template class JsonList<Json>;
template class JsonList<JsonMember<Json>>;

// ------------------------------------------------------------------------------------------------ objects
struct JsonObject::Body {
  struct Chars {  // of keys; never moved, since members point into it
    Chars* before;
    char* data() { return reinterpret_cast<char*>(this + 1); }
  };
  JsonList<Member> members;
  std::unique_ptr<std::uint32_t[]> slots;  // place of a member + 1; 0: free
  std::uint32_t slot_count = 0, left = 0;  // slots; free characters in the newest block
  char* next = nullptr;
  Chars* chars = nullptr;

  ~Body() {
    while (chars) ::operator delete(std::exchange(chars, chars->before));
  }
  void make_room(std::size_t bytes) {
    if (bytes <= left) return;
    if (bytes > std::numeric_limits<std::uint32_t>::max())
      fail("json: a key of ", bytes, " bytes is too long");
    auto* block = static_cast<Chars*>(::operator new(sizeof(Chars) + bytes));
    block->before = chars;
    chars = block;
    next = block->data();
    left = static_cast<std::uint32_t>(bytes);
  }
  JsonText store(std::string_view key) {
    if (key.size() > left) make_room(std::max<std::size_t>(key.size(), 48));
    key.copy(next, key.size());
    const std::string_view stored(next, key.size());
    next += key.size();
    left -= static_cast<std::uint32_t>(key.size());
    return stored;
  }
  std::uint32_t& slot_of(std::string_view key) const {  // where it stands, or the free one where it would
    std::uint64_t i = (hash_of(key) >> 32) * slot_count >> 32;
    while (slots[i] != 0 && members[slots[i] - 1].key != key) i = i + 1 == slot_count ? 0 : i + 1;
    return slots[i];
  }
  void enter(std::size_t i) {
    if (std::uint32_t& slot = slot_of(members[i].key); slot == 0) slot = static_cast<std::uint32_t>(i + 1);
  }
  void index() {  // after a member was added
    if (members.size() <= kIndexed) return;
    const std::size_t wanted = slots_for(members.capacity());
    if (slots && slot_count == wanted) return enter(members.size() - 1);
    slots = std::make_unique<std::uint32_t[]>(wanted);
    slot_count = static_cast<std::uint32_t>(wanted);
    for (std::size_t i = 0; i < members.size(); ++i) enter(i);
  }
};

JsonObject::JsonObject(std::initializer_list<Member> members) {
  JsonObject made;
  for (const Member& m : members) made.push_back(m);
  std::swap(body_, made.body_);
}
JsonObject::JsonObject(const JsonObject& other) {
  if (!other.body_) return;
  std::size_t bytes = 0;
  for (const Member& m : other) bytes += m.key.size();
  JsonObject made;
  made.reserve(other.size(), bytes);
  for (const Member& m : other) made.push_back(m);
  std::swap(body_, made.body_);
}
JsonObject::~JsonObject() { delete body_; }
std::size_t JsonObject::size() const { return body_ ? body_->members.size() : 0; }
const JsonObject::Member* JsonObject::begin() const {
  return body_ ? std::as_const(body_->members).begin() : nullptr;
}
const JsonObject::Member* JsonObject::end() const {
  return body_ ? std::as_const(body_->members).end() : nullptr;
}
const JsonObject::Member& JsonObject::operator[](std::size_t i) const { return begin()[i]; }
const JsonObject::Member& JsonObject::back() const { return end()[-1]; }
Json& JsonObject::value(std::size_t i) { return body_->members[i].value; }
bool JsonObject::operator==(const JsonObject& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

const Json* JsonObject::find(std::string_view key) const {
  if (!body_) return nullptr;
  if (body_->slots) {
    const std::uint32_t place = body_->slot_of(key);
    return place == 0 ? nullptr : &body_->members[place - 1].value;
  }
  for (const Member& m : *this)
    if (m.key == key) return &m.value;
  return nullptr;
}

void JsonObject::reserve(std::size_t members, std::size_t key_bytes) {
  if (members == 0) return;
  if (!body_) body_ = new Body;
  body_->members.reserve(members);
  body_->make_room(key_bytes);
}
void JsonObject::push_back(const Member& member) { push_back(member.key, member.value); }
void JsonObject::push_back(std::string_view key, Json value) {
  if (!body_) body_ = new Body;
  body_->members.push_back({body_->store(key), std::move(value)});
  body_->index();
}

std::size_t JsonObject::memory() const {
  if (!body_) return 0;
  std::size_t bytes = 0;
  for (const Member& m : *this) bytes += m.key.size();
  return block_bytes(sizeof(Body)) + list_bytes(body_->members.capacity(), sizeof(Member)) +
         block_bytes(8 + bytes + body_->left) +
         (body_->slots ? block_bytes(4 * std::size_t{body_->slot_count}) : 0);
}

namespace {

// ------------------------------------------------------------------------------------------------ reading
// What the lists and objects of a text hold, in the order they begin: one look over the text, which trusts
// nothing and decides nothing. Ends where the text is none; the parser says why.
class Sizes {
 public:
  struct Size {
    std::uint32_t items = 0, key_bytes = 0;
  };

  Sizes(std::string_view text, std::string_view where) {
    const std::size_t most = Json::kSpare + Json::kTimes * text.size();
    struct Open {
      std::size_t number;
      bool object, any, value;  // any: something stands in it; value: after a ':'
    };
    Open open[Json::kDepth + 2];
    std::size_t depth = 0, bytes = 0;
    const auto spend = [&](std::size_t n) {
      bytes += n;
      if (bytes > most)
        fail(where, ": the values of this text would take more than ", byte_count(static_cast<double>(most)),
             " of memory (", byte_count(static_cast<double>(Json::kSpare)), " and ", Json::kTimes,
             " times the ", byte_count(static_cast<double>(text.size())),
             " that it has); no real file does, so it is not read");
    };
    for (std::size_t at = 0; at < text.size(); ++at) {
      Open* in = depth > 0 ? &open[depth - 1] : nullptr;
      switch (text[at]) {
        case ' ':
        case '\t':
        case '\n':
        case '\r': break;
        case '"': {
          const std::size_t first = ++at;
          for (; at < text.size() && text[at] != '"'; ++at)
            if (text[at] == '\\') ++at;
          const std::size_t size = std::min(at, text.size()) - first;
          if (in && in->object && !in->value)
            sizes_[in->number].key_bytes += static_cast<std::uint32_t>(size);
          else if (size > 7) spend(block_bytes(4 + size));
          if (in) in->any = true;
          break;
        }
        case '[':
        case '{':
          if (in) in->any = true;
          if (depth == std::size(open)) return;
          open[depth++] = {sizes_.size(), text[at] == '{', false, false};
          sizes_.push_back({});
          spend(sizeof(Size) + 1);
          break;
        case ']':
        case '}': {
          if (!in) return;
          Size& s = sizes_[in->number];
          const std::size_t item = in->object ? sizeof(Json::Member) : sizeof(Json);
          if (!in->object && in->any) ++s.items, spend(item);
          if (s.items > 0) spend(list_bytes(s.items, item) - s.items * item);
          if (in->object && s.items > 0)
            spend(block_bytes(48) + block_bytes(8 + s.key_bytes) +
                  (s.items > kIndexed ? block_bytes(4 * slots_for(s.items)) : 0));
          if (--depth == 0) return;
          break;
        }
        case ':':
          if (in && in->object) ++sizes_[in->number].items, in->value = true, spend(sizeof(Json::Member));
          break;
        case ',':
          if (in && !in->object) ++sizes_[in->number].items, spend(sizeof(Json));
          if (in) in->value = false;
          break;
        default:
          if (in) in->any = true;
      }
    }
  }
  Size next() { return at_ < sizes_.size() ? sizes_[at_++] : Size{}; }

 private:
  std::deque<Size> sizes_;
  std::size_t at_ = 0;
};

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where), sizes_(text, where) {
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
    const std::int64_t line = line_, column = column_;
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
    constexpr std::int64_t kLast = (1 << 29) - 1;  // what the fields hold
    v.line = std::min(line, kLast);
    v.column = std::min(column, kLast);
    return v;
  }

  void word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w)
      bad("expected a value, found a word that is none (strings stand in double quotes)");
    for (std::size_t i = 0; i < w.size(); ++i) step();
  }

  Json object(int depth) {
    step();
    Json::Object out;
    const Sizes::Size size = sizes_.next();
    out.reserve(size.items, size.key_bytes);
    space();
    if (peek() == '}') return step(), Json(std::move(out));
    for (;;) {
      space();
      if (peek() != '"') bad("expected a key in double quotes, found ", here());
      const std::int64_t line = line_, column = column_;
      const std::string_view key = string();
      if (out.find(key))
        fail(where_, ":", line, ":", column, ": the key ", json_quote(key),
             " stands twice in one object; keep one of them");
      out.push_back(key, Json());
      space();
      expect(':', "':' after the key");
      out.value(out.size() - 1) = value(depth + 1);
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
    out.reserve(sizes_.next().items);
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
    if (std::from_chars(s.data(), s.data() + s.size(), x).ec != std::errc{})
      bad("the number before this is beyond the range of a double");
    return Json(x);
  }

  // The characters: a piece of the text, or of `made_` where escapes changed them; until the next string.
  std::string_view string() {
    step();
    const std::size_t first = at_;
    bool changed = false;
    for (;;) {
      const std::size_t from = at_;
      while (more() && plain(text_[at_])) ++at_;
      column_ += static_cast<std::int64_t>(at_ - from);
      if (changed) made_.append(text_, from, at_ - from);
      if (!more()) bad("a string without its closing quote");
      const auto c = static_cast<unsigned char>(peek());
      if (c == '"') {
        const std::string_view out = changed ? std::string_view(made_) : text_.substr(first, at_ - first);
        return step(), out;
      }
      if (c == '\\') {
        if (!changed) made_.assign(text_, first, at_ - first);
        changed = true;
        escape(made_);
      } else if (c < 0x20) {
        bad("control character ", int{c}, " inside a string; write it as an escape (\\n, \\t, \\u0000 …)");
      } else {
        const std::size_t at = at_;
        character();
        if (changed) made_.append(text_, at, at_ - at);
      }
    }
  }
  static bool plain(char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 && c != '"' &&
           c != '\\';
  }

  void character() {  // two to four bytes of UTF-8
    const auto lead = static_cast<unsigned char>(peek());
    const int size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    std::uint32_t code = lead & (0xFF >> (size + 1));
    bool good = lead >= 0xC2 && lead <= 0xF4;
    for (int i = 1; good && i < size; ++i) {
      const auto c = at_ + static_cast<std::size_t>(i) < text_.size()
                         ? static_cast<unsigned char>(text_[at_ + static_cast<std::size_t>(i)])
                         : 0;
      good = (c & 0xC0) == 0x80;
      code = code << 6 | (c & 0x3Fu);
    }
    const std::uint32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
    if (!good || code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      bad("bytes that are not UTF-8; save the file as UTF-8");
    at_ += static_cast<std::size_t>(size);
    ++column_;
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      const int d = digit(c)               ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
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
    if (code >= 0xDC00 && code < 0xE000)
      bad("\\u escape: the second half of a surrogate pair without the first");
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
    else if (code < 0x10000)
      byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F));
    else
      byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)),
          byte(0x80 | (code & 0x3F));
  }

  std::string_view text_, where_;
  Sizes sizes_;
  std::string made_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1, column_ = 1;
};

constexpr double kExact = 9007199254740992.0;  // 2^53

}  // namespace

Json parse_json(std::string_view text, std::string_view where) { return Parser(text, where).whole(); }

// ------------------------------------------------------------------------------------------------ values
// Copies are made by hand: a std::variant of libstdc++ 12 whose copy throws jumps to nowhere.
Json::Json(std::string_view s) : line(0), column(0), kind_(kShort), integer_(0) {
  if (s.size() <= kShortest) {
    if (!s.empty()) std::memcpy(short_, s.data(), s.size());
    short_[kShortest] = static_cast<char>(s.size());
    return;
  }
  if (s.size() > std::numeric_limits<std::uint32_t>::max())
    fail("json: a string of ", s.size(), " bytes is too long");
  auto* text = static_cast<Text*>(::operator new(sizeof(Text) + s.size()));
  text->size = static_cast<std::uint32_t>(s.size());
  std::memcpy(text + 1, s.data(), s.size());
  text_ = text;
  kind_ = kText;
}

Json::Json(const Json& other) : Json() {  // null until what it holds is made
  switch (other.kind_) {
    case kText: *this = Json(std::string_view(other.string())); break;
    case kList: *this = Json(Array(other.list_)); break;
    case kObject: *this = Json(Object(other.object_)); break;
    default: std::memcpy(short_, other.short_, sizeof short_);
  }
  kind_ = other.kind_;
  line = other.line;
  column = other.column;
}
Json::Json(Json&& other) noexcept : Json() { take(other); }
Json& Json::operator=(Json other) noexcept {
  if (kind_ >= kText) clear();
  take(other);
  return *this;
}
void Json::take(Json& other) noexcept {  // every kind is its eight bytes: what it holds stays where it is
  static_assert(sizeof(Array) == 8 && sizeof(Object) == 8 && sizeof(short_) == 8);
  std::memcpy(short_, other.short_, sizeof short_);
  kind_ = other.kind_;
  line = other.line;
  column = other.column;
  other.kind_ = kNull;
}
void Json::clear() noexcept {
  if (kind_ == kText) ::operator delete(text_);
  else if (kind_ == kList) list_.~JsonList();
  else if (kind_ == kObject) object_.~JsonObject();
  kind_ = kNull;
}

bool Json::operator==(const Json& other) const {
  if (is_string()) return other.is_string() && string() == other.string();
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case kBoolean: return boolean_ == other.boolean_;
    case kInteger: return integer_ == other.integer_;
    case kReal: return real_ == other.real_;
    case kList: return list_ == other.list_;
    case kObject: return object_ == other.object_;
    default: return true;
  }
}

std::size_t Json::memory() const {
  if (kind_ == kText) return block_bytes(sizeof(Text) + text_->size);
  std::size_t bytes = 0;
  if (kind_ == kList) {
    bytes += list_bytes(list_.capacity(), sizeof(Json));
    for (const Json& x : list_) bytes += x.memory();
  } else if (kind_ == kObject) {
    bytes += object_.memory();
    for (const Member& m : object_) bytes += m.value.memory();
  }
  return bytes;
}

bool Json::is_integer() const {
  return kind_ == kInteger || (kind_ == kReal && std::fabs(real_) <= kExact && real_ == std::floor(real_));
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",     "true or false", "a number", "a number",
                                           "a string", "a string",      "a list",   "an object"};
  return kNames[kind_];
}

namespace {
void want(bool is, const Json& j, const char* what) {
  if (!is) fail("json: wanted ", what, ", have ", j.type_name());
}
}  // namespace

bool Json::boolean() const { return want(is_bool(), *this, "true or false"), boolean_; }
double Json::number() const {
  want(is_number(), *this, "a number");
  return kind_ == kInteger ? static_cast<double>(integer_) : real_;
}
std::int64_t Json::integer() const {
  want(is_integer(), *this, "an integer");
  return kind_ == kInteger ? integer_ : static_cast<std::int64_t>(real_);
}
JsonText Json::string() const {
  want(is_string(), *this, "a string");
  return kind_ == kShort ? std::string_view(short_, static_cast<std::size_t>(short_[kShortest]))
                         : std::string_view(text_->chars(), text_->size);
}
const Json::Array& Json::array() const { return want(is_array(), *this, "a list"), list_; }
const Json::Object& Json::object() const { return want(is_object(), *this, "an object"), object_; }

const Json* Json::find(std::string_view key) const { return is_object() ? object_.find(key) : nullptr; }

void Json::set(std::string_view key, Json value) {
  if (!is_object()) *this = Json(Object{});
  if (const Json* old = object_.find(key)) const_cast<Json&>(*old) = std::move(value);
  else object_.push_back(key, std::move(value));
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
        if (byte < 0x20 || byte == 0x7F)
          out += "\\u00", out += "0123456789abcdef"[byte / 16], out += "0123456789abcdef"[byte % 16];
        else out += c;
    }
  }
  return out + '"';
}

void Json::write(std::string& out, int indent, int depth) const {
  if (is_null()) out += "null";
  else if (is_bool()) out += boolean() ? "true" : "false";
  else if (kind_ == kInteger) out += std::to_string(integer_);
  else if (is_string()) out += json_quote(string());
  else if (kind_ == kReal) {
    if (!std::isfinite(real_)) fail("json: ", real_, " cannot be written; JSON has no infinities and no NaN");
    out += shortest(real_);
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
    auto new_line = [&](int levels) {
      out += '\n', out.append(static_cast<std::size_t>(indent * levels), ' ');
    };
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
