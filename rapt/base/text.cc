// SPDX-License-Identifier: Apache-2.0
// Edit distance ignores case and counts a swap of neighbours once; a hint allows a third of the letters.
#include "rapt/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "rapt/base/text_width.h"

namespace rapt {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string three_digits(double x) {  // 1.23, 12.3, 123
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
  return buffer;
}

}  // namespace

Dim edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<Dim> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<Dim>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<Dim>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> names) {
  name = name.substr(0, 256);  // the table grows with the product of the lengths
  const std::string* best = nullptr;
  Dim least = 0;
  for (const std::string& n : names) {
    const Dim d = edit_distance(name, n);
    if (!best || d < least) best = &n, least = d;
  }
  return best ? *best : "";
}

std::string name_hint(std::string_view name, std::span<const std::string> names) {
  const std::string best = nearest(name, names);
  const Dim length = static_cast<Dim>(std::max(name.size(), best.size()));
  // A third of the letters may differ; beyond that a guess confuses more than it helps.
  if (!best.empty() && edit_distance(name.substr(0, 256), best) <= std::max<Dim>(1, length / 3))
    return concat("did you mean '", best, "'?");
  std::vector<std::string> begins;
  for (const std::string& n : names)
    if (name.size() >= 2 && (n.starts_with(name) || name.starts_with(n))) begins.push_back(n);
  if (begins.size() == 1) return concat("did you mean '", begins[0], "'?");
  const std::span<const std::string> shown = begins.empty() ? names : std::span<const std::string>(begins);
  constexpr std::size_t kMost = 24;
  if (shown.size() <= kMost) return concat("known: ", join(shown));
  return concat("known: ", join(shown.first(kMost)), " and ", shown.size() - kMost, " more");
}

std::string join(std::span<const std::string> words, std::string_view between) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) out += (i ? std::string(between) : "") + words[i];
  return out;
}

std::string with_commas(Dim n) {
  const std::string digits = std::to_string(n);
  const std::size_t sign = n < 0;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string short_count(double n) {
  if (n < 0) return "-" + short_count(-n);
  if (n < 999.5) return concat(std::round(n));
  static constexpr std::array kUnits{" K", " M", " B", " T", " P", " E"};
  std::size_t unit = 0;
  for (n /= 1000; n >= 999.5 && unit + 1 < kUnits.size(); n /= 1000) ++unit;
  return three_digits(n) + kUnits[unit];
}

std::string byte_count(double n) {
  if (n < 0) return "-" + byte_count(-n);
  if (n < 1024) return concat(std::round(n), " B");
  static constexpr std::array kUnits{" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  std::size_t unit = 0;
  for (n /= 1024; n >= 1023.5 && unit + 1 < kUnits.size(); n /= 1024) ++unit;
  std::string out = three_digits(n);
  if (out.find('.') != std::string::npos) {
    while (out.ends_with('0')) out.pop_back();
    if (out.ends_with('.')) out.pop_back();
  }
  return out + kUnits[unit];
}

std::string shortest(double x) {
  char buffer[64];
  const double size = std::fabs(x);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e15);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string out(buffer, end);
  const std::size_t e = out.find('e');  // 1e-06, 1e+20 -> 1e-6, 1e20
  if (e == std::string::npos) return out;
  std::string power = out.substr(e + 1);
  const bool minus = power.starts_with('-');
  power.erase(0, power.find_first_not_of("+-0"));
  return out.substr(0, e + 1) + (minus ? "-" : "") + power;
}

std::string counted(Dim n, std::string_view noun) {
  return concat(with_commas(n), " ", noun, n == 1 ? "" : "s");
}

std::string padded(std::string_view text, Dim width) {
  std::string out(text);
  const Dim missing = width - text_width(text);
  if (missing > 0) out.append(static_cast<std::size_t>(missing), ' ');
  return out;
}

std::string fixed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

}  // namespace rapt
