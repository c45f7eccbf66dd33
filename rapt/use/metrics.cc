// SPDX-License-Identifier: Apache-2.0
// Lines become words (BLEU) or characters (chrF); one template counts their n-grams; sums over the corpus.
#include "rapt/use/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "rapt/base/unicode.h"

namespace rapt {
namespace {

using Codes = std::u32string;

bool is_space(char32_t c) { return unicode::is_space(c) || (c >= 0x1C && c <= 0x1F); }
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

Codes codes_of(std::string_view text) {
  Codes out;
  for (std::uint32_t c : unicode::codes(text)) out += static_cast<char32_t>(c);
  return out;
}

std::string text_of(const Codes& codes) {
  std::string out;
  for (char32_t c : codes) unicode::append(out, c);
  return out;
}

// Signs that stand inside a word without ending it, for the question whether a sigma is its last letter
// (Unicode's Case_Ignorable).
bool is_ignorable(char32_t c) {
  switch (unicode::category(c)) {
    case unicode::Mn:
    case unicode::Me:
    case unicode::Cf:
    case unicode::Lm:
    case unicode::Sk: return true;
    default: break;
  }
  static constexpr char32_t kInside[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                         0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                         0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kInside), std::end(kInside), c) != std::end(kInside);
}
bool is_cased(char32_t c) { return unicode::category(c) <= unicode::Lt; }

// Python's str.lower(): the full mapping, and a capital sigma at the end of a word becomes the final one.
Codes lower_of(const Codes& from) {
  Codes out;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 0x3A3) {
      std::size_t before = i, after = i + 1;
      while (before > 0 && is_ignorable(from[before - 1])) --before;
      while (after < from.size() && is_ignorable(from[after])) ++after;
      const bool last =
          before > 0 && is_cased(from[before - 1]) && (after == from.size() || !is_cased(from[after]));
      out += last ? char32_t{0x3C2} : char32_t{0x3C3};
      continue;
    }
    std::vector<std::uint32_t> lowered;
    unicode::lower(lowered, from[i]);
    for (std::uint32_t c : lowered) out += static_cast<char32_t>(c);
  }
  return out;
}

void replace(Codes& text, const Codes& what, const Codes& with) {
  Codes out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(what, at)) != Codes::npos; at = found + what.size())
    out.append(text, at, found - at) += with;
  text = out.append(text, at);
}

// Neighbours a and b that match become "a b " or, with `before`, " a b"; no character is part of two pairs.
template <class Matches>
void split_pairs(Codes& text, const Matches& matches, bool before) {
  Codes out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      if (before) out += U' ';
      out += text[i];
      out += U' ';
      out += text[++i];
      if (!before) out += U' ';
    } else {
      out += text[i];
    }
  }
  text = std::move(out);
}

std::vector<std::string> words_13a(Codes text) {
  replace(text, U"<skipped>", U"");
  replace(text, U"-\n", U"");
  replace(text, U"\n", U" ");
  replace(text, U"&quot;", U"\"");
  replace(text, U"&amp;", U"&");
  replace(text, U"&lt;", U"<");
  replace(text, U"&gt;", U">");
  Codes apart = U" ";
  for (char32_t c : text) {
    const bool alone =
        c < 0x80 && unicode::is_ascii_punctuation(c) && c != '\'' && c != ',' && c != '-' && c != '.';
    if (alone) apart += U' ';
    apart += c;
    if (alone) apart += U' ';
  }
  apart += U' ';
  auto is_point = [](char32_t c) { return c == '.' || c == ','; };
  split_pairs(apart, [&](char32_t a, char32_t b) { return !is_digit(a) && is_point(b); }, false);
  split_pairs(apart, [&](char32_t a, char32_t b) { return is_point(a) && !is_digit(b); }, true);
  split_pairs(apart, [&](char32_t a, char32_t b) { return is_digit(a) && b == '-'; }, false);
  std::vector<std::string> out;
  Codes word;
  for (char32_t c : apart) {
    if (!is_space(c)) {
      word += c;
    } else if (!word.empty()) {
      out.push_back(text_of(word));
      word.clear();
    }
  }
  return out;
}

std::vector<std::string> bleu_words(std::string_view text, bool lower) {
  Codes codes = codes_of(text);
  if (lower) codes = lower_of(codes);
  while (!codes.empty() && is_space(codes.back())) codes.pop_back();
  return words_13a(std::move(codes));
}

Codes chrf_text(std::string_view text, bool lower) {
  Codes codes = codes_of(text);
  if (lower) codes = lower_of(codes);
  std::erase_if(codes, is_space);
  return codes;
}

void check(const char* what, std::size_t translations, std::size_t references) {
  if (translations != references)
    fail(what, ": ", translations, " translations for ", references, " references; each line needs its own");
  if (translations == 0) fail(what, ": there is nothing to compare");
}

struct Counts {
  Dim of_translation = 0, of_reference = 0, both = 0;
};

// n-grams of n items; an item's runs are compared as whole values. Sequence: std::u32string or vector of
// numbers.
template <class Sequence>
Counts count(const Sequence& translation, const Sequence& reference, std::size_t n) {
  Counts out;
  std::map<Sequence, Dim> there;
  for (std::size_t i = 0; i + n <= reference.size(); ++i, ++out.of_reference)
    ++there[Sequence(reference.begin() + static_cast<std::ptrdiff_t>(i),
                     reference.begin() + static_cast<std::ptrdiff_t>(i + n))];
  for (std::size_t i = 0; i + n <= translation.size(); ++i, ++out.of_translation) {
    const auto found = there.find(Sequence(translation.begin() + static_cast<std::ptrdiff_t>(i),
                                           translation.begin() + static_cast<std::ptrdiff_t>(i + n)));
    if (found != there.end() && found->second > 0) --found->second, ++out.both;
  }
  return out;
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view text) { return words_13a(codes_of(text)); }

Bleu bleu(std::span<const std::string> translations, std::span<const std::string> references, bool lower) {
  check("bleu", translations.size(), references.size());
  constexpr std::size_t kOrders = 4;
  Bleu out;
  std::array<Counts, kOrders> sums;
  // Words as numbers: n-grams are then short and quick to compare.
  std::map<std::string, std::int32_t> numbers;
  auto numbered = [&](const std::string& text) {
    std::vector<std::int32_t> words;
    for (const std::string& w : bleu_words(text, lower))
      words.push_back(numbers.emplace(w, static_cast<std::int32_t>(numbers.size())).first->second);
    return words;
  };
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const std::vector<std::int32_t> t = numbered(translations[i]), r = numbered(references[i]);
    out.length += static_cast<Dim>(t.size());
    out.reference_length += static_cast<Dim>(r.size());
    for (std::size_t n = 0; n < kOrders; ++n) {
      const Counts c = count(t, r, n + 1);
      sums[n].of_translation += c.of_translation;
      sums[n].both += c.both;
    }
  }
  if (out.length < out.reference_length)
    out.brevity =
        out.length > 0
            ? std::exp(1 - static_cast<double>(out.reference_length) / static_cast<double>(out.length))
            : 0;
  if (sums[0].both == 0) return out;  // then longer ones have no match either
  double smooth = 1, logs = 0;
  for (std::size_t n = 0; n < kOrders; ++n) {
    const double all = static_cast<double>(sums[n].of_translation), both = static_cast<double>(sums[n].both);
    if (all == 0) return out;  // no translation is that long: the score is 0
    out.precisions[n] = both > 0 ? 100 * both / all : 100 / ((smooth *= 2) * all);
    logs += std::log(out.precisions[n]);
  }
  out.score = out.brevity * std::exp(logs / kOrders);
  return out;
}

double chrf(std::span<const std::string> translations, std::span<const std::string> references, int order,
            double beta, bool lower) {
  check("chrf", translations.size(), references.size());
  if (order < 1) fail("chrf: n-grams of up to ", order, " characters were asked for; at least 1 is needed");
  std::vector<Counts> sums(static_cast<std::size_t>(order));
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const Codes t = chrf_text(translations[i], lower), r = chrf_text(references[i], lower);
    for (std::size_t n = 0; n < sums.size(); ++n) {
      const Counts c = count(t, r, n + 1);
      sums[n].of_translation += c.of_reference > 0 ? c.of_translation : 0;
      sums[n].of_reference += c.of_reference;
      sums[n].both += c.both;
    }
  }
  double precision = 0, recall = 0, orders = 0;
  for (const Counts& c : sums) {
    if (c.of_translation == 0 || c.of_reference == 0) continue;
    precision += static_cast<double>(c.both) / static_cast<double>(c.of_translation);
    recall += static_cast<double>(c.both) / static_cast<double>(c.of_reference);
    orders += 1;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  const double factor = beta * beta;
  return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

}  // namespace rapt
