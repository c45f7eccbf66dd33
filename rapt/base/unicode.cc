// SPDX-License-Identifier: Apache-2.0
// Tables are spread out on first use. Normal forms: decompose, sort marks, compose; Hangul by arithmetic.
#include "rapt/base/unicode.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "rapt/base/unicode_tables.h"

namespace rapt::unicode {
namespace {

constexpr std::uint32_t kCodes = 0x110000;
constexpr std::uint32_t kHangulS = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr std::uint32_t kHangulLs = 19, kHangulVs = 21, kHangulTs = 28,
                        kHangulSs = kHangulLs * kHangulVs * kHangulTs;

// The runs spread out once, 2 MiB: one load per character instead of a search.
struct Tables {
  std::vector<std::uint8_t> category, combining;
  std::unordered_map<std::uint32_t, std::uint32_t> lower, upper, decomposition;
  std::unordered_map<std::uint64_t, std::uint32_t> composition;

  Tables() : category(kCodes), combining(kCodes) {
    for (std::size_t i = 0; i < kCategoryRunsCount; ++i) {
      const std::uint32_t end = i + 1 < kCategoryRunsCount ? kCategoryRuns[i + 1] >> 5 : kCodes;
      std::fill(category.begin() + (kCategoryRuns[i] >> 5), category.begin() + end,
                static_cast<std::uint8_t>(kCategoryRuns[i] & 31));
    }
    for (std::size_t i = 0; i < kCombiningRunsCount; ++i) {
      const std::uint32_t end = i + 1 < kCombiningRunsCount ? kCombiningRuns[i + 1] >> 8 : kCodes;
      std::fill(combining.begin() + (kCombiningRuns[i] >> 8), combining.begin() + end,
                static_cast<std::uint8_t>(kCombiningRuns[i] & 255));
    }
    for (std::size_t i = 0; i < kLowerRunsCount; i += 4) {
      for (std::int32_t c = kLowerRuns[i]; c <= kLowerRuns[i + 1]; c += kLowerRuns[i + 2]) {
        const auto from = static_cast<std::uint32_t>(c),
                   to = static_cast<std::uint32_t>(c + kLowerRuns[i + 3]);
        lower[from] = to;
        // Of several capitals the first: K before the sign of kelvin.
        const auto [place, fresh] = upper.emplace(to, from);
        if (!fresh) place->second = std::min(place->second, from);
      }
    }
    // Small letters that no capital leads to.
    static constexpr std::uint32_t kMoreUpper[][2] = {
        {0xB5, 0x39C},    {0x131, 'I'},    {0x17F, 'S'},    {0x1C5, 0x1C4},  {0x1C8, 0x1C7},
        {0x1CB, 0x1CA},   {0x1F2, 0x1F1},  {0x345, 0x399},  {0x3C2, 0x3A3},  {0x3D0, 0x392},
        {0x3D1, 0x398},   {0x3D5, 0x3A6},  {0x3D6, 0x3A0},  {0x3F0, 0x39A},  {0x3F1, 0x3A1},
        {0x3F5, 0x395},   {0x1C80, 0x412}, {0x1C81, 0x414}, {0x1C82, 0x41E}, {0x1C83, 0x421},
        {0x1C84, 0x422},  {0x1C85, 0x422}, {0x1C86, 0x42A}, {0x1C87, 0x462}, {0x1C88, 0xA64A},
        {0x1E9B, 0x1E60}, {0x1FBE, 0x399}};
    for (const auto& [from, to] : kMoreUpper) upper[from] = to;
    upper.erase(0xDF);  // two letters: the caller's matter
    std::uint32_t place = 0;
    for (std::size_t i = 0; i < kDecompositionsCount; ++i) {
      decomposition[kDecompositions[i] >> 8] = place << 8 | (kDecompositions[i] & 255);
      place += kDecompositions[i] & 127;
    }
    for (std::size_t i = 0; i < kCompositionsCount; i += 3) {
      composition[std::uint64_t{kCompositions[i]} << 32 | kCompositions[i + 1]] = kCompositions[i + 2];
    }
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

void decompose_one(const Tables& t, std::uint32_t c, bool compatible, std::vector<std::uint32_t>& out) {
  if (c < 0xA0) return out.push_back(c);
  if (c - kHangulS < kHangulSs) {
    const std::uint32_t s = c - kHangulS;
    out.push_back(kHangulL + s / (kHangulVs * kHangulTs));
    out.push_back(kHangulV + s % (kHangulVs * kHangulTs) / kHangulTs);
    if (s % kHangulTs) out.push_back(kHangulT + s % kHangulTs);
    return;
  }
  const auto found = t.decomposition.find(c);
  if (found == t.decomposition.end() || ((found->second & 128) && !compatible)) return out.push_back(c);
  const std::uint32_t first = found->second >> 8, count = found->second & 127;
  // At most a few deep.
  for (std::uint32_t i = 0; i < count; ++i) decompose_one(t, kDecompositionPool[first + i], compatible, out);
}

std::uint32_t compose_two(const Tables& t, std::uint32_t a, std::uint32_t b) {  // 0: they stay two
  if (a - kHangulL < kHangulLs && b - kHangulV < kHangulVs) {
    return kHangulS + ((a - kHangulL) * kHangulVs + (b - kHangulV)) * kHangulTs;
  }
  if (a - kHangulS < kHangulSs && (a - kHangulS) % kHangulTs == 0 && b - kHangulT - 1 < kHangulTs - 1)
    return a + (b - kHangulT);
  const auto found = t.composition.find(std::uint64_t{a} << 32 | b);
  return found == t.composition.end() ? 0 : found->second;
}

std::vector<std::uint32_t> compose(const std::vector<std::uint32_t>& in) {
  const Tables& t = tables();
  std::vector<std::uint32_t> out;
  out.reserve(in.size());
  std::size_t starter = SIZE_MAX;
  int last = -1;  // class of the last character kept after the starter; -1: none
  for (const std::uint32_t c : in) {
    const int ccc = t.combining[c];
    // Nothing between blocks it (last == -1 lets a following starter join too).
    if (starter != SIZE_MAX && last < ccc) {
      if (const std::uint32_t joined = compose_two(t, out[starter], c)) {
        out[starter] = joined;
        continue;
      }
    }
    if (ccc == 0) {
      starter = out.size();
      last = -1;
    } else {
      last = ccc;
    }
    out.push_back(c);
  }
  return out;
}

// Characters that stay in the cluster of the one before them.
bool extends(std::uint32_t c) {
  if (c < 0x300) return false;
  switch (c) {
    case 0x102B:
    case 0x102C:
    case 0x1038:
    case 0x1083:
    case 0x108F:
    case 0x1A61:
    case 0x1A63:
    case 0x1A64:
    case 0xAA7B:
    case 0xAA7D:
    case 0x11720:
    case 0x11721: return false;
    case 0x200C:
    case 0x200D:
    case 0xE33:
    case 0xEB3:
    case 0xFF9E:
    case 0xFF9F: return true;
    default: break;
  }
  if ((c >= 0x1062 && c <= 0x1064) || (c >= 0x1067 && c <= 0x106D) || (c >= 0x1087 && c <= 0x108C) ||
      (c >= 0x109A && c <= 0x109C))
    return false;
  return is_mark(c) || (c >= 0x1F3FB && c <= 0x1F3FF) || (c >= 0xE0020 && c <= 0xE007F);
}
bool breaks(std::uint32_t c) {  // controls, format characters, line ends: a cluster of their own
  const Category k = category(c);
  return (k == Cc || k == Zl || k == Zp ||
          (k == Cf && c != 0x200C && c != 0x200D && !(c >= 0xE0020 && c <= 0xE007F))) &&
         !((c >= 0x600 && c <= 0x605) || c == 0x6DD || c == 0x70F || c == 0x8E2 || c == 0x890 || c == 0x891 ||
           c == 0x110BD || c == 0x110CD);
}
bool prepends(std::uint32_t c) {
  return (c >= 0x600 && c <= 0x605) || c == 0x6DD || c == 0x70F || c == 0x8E2 || c == 0x890 || c == 0x891 ||
         c == 0x110BD || c == 0x110CD;
}

}  // namespace

Char read(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[at + i]); };
  const std::uint8_t b = byte(0);
  if (b < 0x80) return {b, 1, true};
  const std::uint32_t length = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : 2;
  const Char broken{kReplacement, 1, false};
  if (b < 0xC2 || b > 0xF4 || text.size() - at < length) return broken;
  std::uint32_t c = b & (0xFFu >> (length + 1));
  for (std::uint32_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return broken;
    c = c << 6 | (byte(i) & 0x3F);
  }
  if (c < (length == 2   ? 0x80u
           : length == 3 ? 0x800u
                         : 0x10000u) ||
      c >= kCodes || (c >= 0xD800 && c <= 0xDFFF))
    return broken;
  return {c, length, true};
}

void append(std::string& out, std::uint32_t c) {
  if (c >= kCodes || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacement;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::vector<std::uint32_t> codes(std::string_view text) {
  std::vector<std::uint32_t> out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Char c = read(text, i);
    out.push_back(c.code);
    i += c.length;
  }
  return out;
}

std::string text(const std::vector<std::uint32_t>& in) {
  std::string out;
  out.reserve(in.size());
  for (const std::uint32_t c : in) append(out, c);
  return out;
}

Category category(std::uint32_t code) {
  return code < kCodes ? static_cast<Category>(tables().category[code]) : Cn;
}

namespace {
// First, last, first, last, … sorted.
bool in_spans(const std::uint32_t* spans, std::size_t count, std::uint32_t c) {
  const std::size_t after = static_cast<std::size_t>(std::upper_bound(spans, spans + count, c) - spans);
  return after % 2 == 1 || (after > 0 && spans[after - 1] == c);
}
}  // namespace

Category category8(std::uint32_t c) {
  if (c == 0x166D || c == 0x111C9) return Po;
  if (c == 0x1734 || c == 0x1171E) return Mn;
  const Category k = category(c);
  return (k == Mn || k == Cf || (k >= Pc && k <= Po)) && in_spans(kNewerThan8, kNewerThan8Count, c) ? Cn : k;
}

bool is_mark9(std::uint32_t c) {
  return (is_mark(c) && !in_spans(kNewerThan9, kNewerThan9Count, c)) || c == 0x1CF2 || c == 0x1CF3;
}

bool is_space(std::uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(std::uint32_t c) {
  const Category k = category(c);
  return k <= Nl || k == Pc || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

void lower(std::vector<std::uint32_t>& out, std::uint32_t c) {
  if (c < 0x80) return out.push_back(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (c == 0x130) {
    out.push_back('i');
    return out.push_back(0x307);
  }
  const Tables& t = tables();
  const auto found = t.lower.find(c);
  out.push_back(found == t.lower.end() ? c : found->second);
}

std::uint32_t upper(std::uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  const Tables& t = tables();
  const auto found = t.upper.find(c);
  return found == t.upper.end() ? c : found->second;
}

int digit(std::uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9' ? static_cast<int>(c - '0') : -1;
  if (category(c) != Nd) return -1;
  std::uint32_t zero = c;  // every run of digits begins with a zero
  while (category(zero - 1) == Nd) --zero;
  return static_cast<int>((c - zero) % 10);
}

std::vector<std::uint32_t> decompose(const std::vector<std::uint32_t>& in, bool compatible) {
  const Tables& t = tables();
  std::vector<std::uint32_t> out;
  out.reserve(in.size());
  for (const std::uint32_t c : in) decompose_one(t, c < kCodes ? c : kReplacement, compatible, out);
  std::vector<std::tuple<std::uint8_t, std::size_t, std::uint32_t>> order;  // class, place, character
  // Marks in canonical order: a stable sort of every stretch whose classes are not zero.
  for (std::size_t i = 0; i < out.size();) {
    if (t.combining[out[i]] == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < out.size() && t.combining[out[end]] != 0) ++end;
    if (end - i > 1) {
      order.clear();
      for (std::size_t k = i; k < end; ++k) order.push_back({t.combining[out[k]], k, out[k]});
      std::sort(order.begin(), order.end());
      for (std::size_t k = i; k < end; ++k) out[k] = std::get<2>(order[k - i]);
    }
    i = end;
  }
  return out;
}

std::string normalize(std::string_view in, Form form) {
  bool ascii = true;
  for (const char c : in) ascii = ascii && static_cast<signed char>(c) >= 0;
  if (ascii) return std::string(in);
  auto out = decompose(codes(in), form == Form::nfkc || form == Form::nfkd);
  if (form == Form::nfc || form == Form::nfkc) out = compose(out);
  return text(out);
}

std::size_t grapheme_end(std::string_view in, std::size_t at) {
  Char c = read(in, at);
  std::size_t end = at + c.length;
  if (c.code == '\r' && end < in.size() && in[end] == '\n') return end + 1;
  if (breaks(c.code)) return end;
  while (end < in.size()) {
    const Char next = read(in, end);
    if (breaks(next.code)) break;
    if (!extends(next.code) && !prepends(c.code)) break;
    c = next;
    end += next.length;
  }
  return end;
}

}  // namespace rapt::unicode
