// SPDX-License-Identifier: Apache-2.0
// One function per step, applied in the order of the list; the size of the text is checked on the way.
#include "rapt/text/tokenizer/normalize.h"

#include <algorithm>
#include <cstring>

#include "rapt/base/unicode.h"

namespace rapt {
namespace {

using namespace unicode;

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        const EncodeWork& work) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const std::size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    work.check_size(out.size());
    text.remove_prefix(at + from.size());
  }
}

// Runs of two spaces or more; other white space stays.
std::string squeeze(std::string_view text, std::string_view to, const EncodeWork& work) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && text[end] == ' ') ++end;
    if (end - i >= 2) out += to;
    else out += end > i ? text[i] : text[end++];
    work.check_size(out.size());
    i = end;
  }
  return out;
}

// Runs of any white space.
std::string spaces(std::string_view text, std::string_view to, const EncodeWork& work) {
  std::string out;
  out.reserve(text.size());
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const Char c = read(text, i);
    const bool white = is_space(c.code);
    if (!white) out += text.substr(i, c.length);
    else if (!inside) out += to;
    work.check_size(out.size());
    inside = white;
    i += c.length;
  }
  return out;
}

bool is_chinese(std::uint32_t c) {  // the last range begins at 2B920 in the original too
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

template <class Drop>
std::vector<std::uint32_t> without(const std::vector<std::uint32_t>& in, Drop drop) {
  std::vector<std::uint32_t> out;
  out.reserve(in.size());
  for (const std::uint32_t c : in) {
    if (!drop(c)) out.push_back(c);
  }
  return out;
}

std::vector<std::uint32_t> lowered(const std::vector<std::uint32_t>& in) {
  std::vector<std::uint32_t> out;
  out.reserve(in.size());
  for (const std::uint32_t c : in) lower(out, c);
  return out;
}

std::string bert(std::string_view text, const NormalStep& step) {
  std::vector<std::uint32_t> x = codes(text), y;
  if (step.clean) {  // controls go, white space becomes a space
    y.reserve(x.size());
    for (const std::uint32_t c : x) {
      const Category k = category8(c);
      if (c == '\t' || c == '\n' || c == '\r') y.push_back(' ');
      else if (c == 0 || c == kReplacement || k == Cc || k == Cf || k == Co) continue;
      else y.push_back(is_space(c) ? ' ' : c);
    }
    x.swap(y);
  }
  if (step.chinese) {
    y.clear();
    for (const std::uint32_t c : x) {
      if (!is_chinese(c)) {
        y.push_back(c);
        continue;
      }
      y.push_back(' ');
      y.push_back(c);
      y.push_back(' ');
    }
    x.swap(y);
  }
  if (step.accents) x = without(decompose(x, false), [](std::uint32_t c) { return category8(c) == Mn; });
  if (step.lowercase) x = lowered(x);
  return unicode::text(x);
}

std::string strip(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  if (left) {
    while (begin < end) {
      const Char c = read(text, begin);
      if (!is_space(c.code)) break;
      begin += c.length;
    }
  }
  while (right && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<std::uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    const Char c = read(text.substr(0, end), last);
    if (!c.valid || last + c.length != end || !is_space(c.code)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

// Hugging Face's way: clusters below six bytes are looked up as one, by the shortest prefix that has a
// replacement, and replaced whole; else character by character.
std::string apply_charsmap(std::string_view text, const Charsmap& map, const EncodeWork& work) {
  if (map.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::string_view to;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = grapheme_end(text, i);
    work.check_size(out.size());
    if (end - i < 6 && map.match(text.substr(i, end - i), false, to)) {
      out += to;
      i = end;
      continue;
    }
    while (i < end) {
      const Char c = read(text, i);
      const std::string_view one = c.valid ? text.substr(i, c.length) : kReplacementText;
      out += map.match(one, false, to) ? to : one;
      work.check_size(out.size());
      i += c.length;
    }
  }
  return out;
}

std::string sentencepiece(std::string_view text, const NormalStep& step, const Charsmap& map,
                          const PrefixMatcher& user, EncodeWork& work) {
  // The next stretch in its normal form, and how much text it took.
  const auto next = [&](std::string_view rest, std::string_view& to) -> std::size_t {
    if (const std::size_t n = user ? user(rest) : 0) {
      to = rest.substr(0, n);
      return n;
    }
    if (!map.empty()) {
      if (const std::size_t n = map.match(rest, true, to)) return n;
    }
    const Char c = read(rest, 0);
    to = c.valid ? rest.substr(0, c.length) : kReplacementText;
    return c.length;
  };
  std::string_view to;
  if (step.remove_extra) {
    while (!text.empty()) {
      const std::size_t n = next(text, to);
      if (to != " ") break;
      text.remove_prefix(n);
    }
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  const std::string_view space = step.escape ? kMetaSpace : " ";
  if (step.dummy_prefix && !step.suffix) out += space;
  bool after_space = step.remove_extra;
  while (!text.empty()) {
    text.remove_prefix(next(text, to));
    work.check_size(out.size() + to.size());
    work.pay(to.size());
    while (after_space && to.starts_with(' ')) to.remove_prefix(1);
    if (to.empty()) continue;
    for (const char c : to) {
      if (c == ' ') out += space;
      else out += c;
    }
    after_space = step.remove_extra && to.ends_with(' ');
  }
  if (step.remove_extra) {
    while (out.size() >= space.size() && out.ends_with(space)) out.resize(out.size() - space.size());
  }
  if (step.dummy_prefix && step.suffix) out += space;
  return out;
}

}  // namespace

Charsmap::Charsmap(std::string blob, std::string_view where) {
  if (blob.empty()) return;
  std::uint32_t size = 0;
  if (blob.size() >= 4) std::memcpy(&size, blob.data(), 4);
  if (blob.size() < 4 || size > blob.size() - 4 || size % 4 != 0 || size == 0) {
    fail(where, ": the precompiled charsmap says its trie has ", size, " bytes; the table has ", blob.size(),
         " (is the file damaged?)");
  }
  trie_.resize(size / 4);
  std::memcpy(trie_.data(), blob.data() + 4, size);
  replacements_ = blob.substr(4 + size);
  if (replacements_.empty() || replacements_.back() != 0)
    fail(where, ": the replacements of the precompiled charsmap do not end in a zero byte");
}

std::size_t Charsmap::match(std::string_view text, bool longest, std::string_view& replacement) const {
  std::size_t found = 0;
  std::uint32_t best = 0;
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  std::uint32_t at = offset(trie_[0]);
  for (std::size_t i = 0; i < std::min(text.size(), kLongest); ++i) {
    const std::uint8_t c = static_cast<std::uint8_t>(text[i]);
    at ^= c;
    if (c == 0 || at >= trie_.size()) break;
    const std::uint32_t unit = trie_[at];
    if ((unit & (1u << 31 | 255)) != c) break;
    at ^= offset(unit);
    if (at >= trie_.size()) break;
    if ((unit >> 8 & 1) == 0) continue;
    const std::uint32_t place = trie_[at] & 0x7FFFFFFF;
    if (place >= replacements_.size()) break;
    best = place;
    found = i + 1;
    if (!longest) break;
  }
  // Ends at a zero byte: checked when the table was read.
  if (found > 0) replacement = std::string_view(replacements_.data() + best);
  return found;
}

Normalizer::Normalizer(const std::vector<NormalStep>& steps, std::string_view where)
    : steps_(steps), maps_(steps.size()) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const NormalStep& s = steps_[i];
    if (s.kind == NormalStep::Kind::charsmap || s.kind == NormalStep::Kind::sentencepiece)
      maps_[i] = Charsmap(s.from, where);
    if (s.kind == NormalStep::Kind::replace && s.from.empty())
      fail(where, ": a Replace normalizer looks for an empty text");
  }
}

std::string Normalizer::apply(std::string text, const PrefixMatcher& user, EncodeWork& work) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const NormalStep& s = steps_[i];
    work.pay(text.size());
    work.check_size(text.size());
    switch (s.kind) {
      case NormalStep::Kind::prepend:
        if (!text.empty()) text.insert(0, s.to);
        break;
      case NormalStep::Kind::replace: text = replace_all(text, s.from, s.to, work); break;
      case NormalStep::Kind::squeeze: text = squeeze(text, s.to, work); break;
      case NormalStep::Kind::spaces: text = spaces(text, s.to, work); break;
      case NormalStep::Kind::punctuation:
        text = unicode::text(without(codes(text), [](std::uint32_t c) { return is_ascii_punctuation(c); }));
        break;
      case NormalStep::Kind::lower: text = unicode::text(lowered(codes(text))); break;
      case NormalStep::Kind::nfc: text = normalize(text, Form::nfc); break;
      case NormalStep::Kind::nfd: text = normalize(text, Form::nfd); break;
      case NormalStep::Kind::nfkc: text = normalize(text, Form::nfkc); break;
      case NormalStep::Kind::nfkd: text = normalize(text, Form::nfkd); break;
      case NormalStep::Kind::strip_accents: text = unicode::text(without(codes(text), is_mark9)); break;
      case NormalStep::Kind::strip: text = strip(text, s.left, s.right); break;
      case NormalStep::Kind::bert: text = bert(text, s); break;
      case NormalStep::Kind::charsmap: text = apply_charsmap(text, maps_[i], work); break;
      case NormalStep::Kind::sentencepiece: text = sentencepiece(text, s, maps_[i], user, work); break;
    }
  }
  work.check_size(text.size());
  return text;
}

}  // namespace rapt
