// SPDX-License-Identifier: Apache-2.0
#include "tests/attack/mutate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rapt::attack {
namespace {

constexpr std::int64_t kIntegers[] = {
    0,       1,          -1,         2,          3,         7,         8,         63,       64,    65,
    127,     128,        255,        256,        1023,      4096,      32767,     65535,    65536, 1 << 20,
    1 << 24, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, INT64_MAX, INT64_MIN, 1ll << 40, 1ll << 62};
constexpr double kReals[] = {0.0, -0.0, 0.5, -1.5, 1e-30, 1e30, 3.4e38, 1e300, -1e300, 5e-324, 1e18, 9.3e18};

Json other_value(Rng& rng, const Json& json) {
  if (json.is_number() && !rng.chance(4)) {
    const std::int64_t n =
        json.is_integer() ? std::clamp<std::int64_t>(json.integer(), INT64_MIN + 1, INT64_MAX - 1) : 1;
    switch (rng.below(6)) {
      case 0: return n + 1;
      case 1: return n - 1;
      case 2: return n / 2;
      case 3: return n > 0 && n < (1 << 20) ? n * 3 : n;
      case 4: return Json(rng.any(kIntegers));
      default: return Json(rng.any(kReals));
    }
  }
  static constexpr std::string_view kTexts[] = {"",     "x",    "llama",        "linear", "yarn",
                                                "gelu", "none", "\xE2\x96\x81", "<0x41>", "a/../../b"};
  switch (rng.below(8)) {
    case 0: return Json();
    case 1: return Json(rng.chance(2));
    case 2: return Json(rng.any(kIntegers));
    case 3: return Json(rng.any(kReals));
    case 4: return Json(Json::Array{});
    case 5: return Json(Json::Object{});
    default: return Json(rng.any(kTexts));
  }
}

std::size_t count(const Json& json) {
  std::size_t n = 1;
  if (json.is_array())
    for (const Json& item : json.array()) n += count(item);
  if (json.is_object())
    for (const Json::Member& member : json.object()) n += count(member.value);
  return n;
}

// The value at number `at` (itself is 0) replaced; `at` counts down on the way.
Json replaced(Rng& rng, const Json& json, std::size_t& at) {
  if (at-- == 0) return other_value(rng, json);
  if (json.is_array()) {
    Json::Array out;
    for (const Json& item : json.array()) out.push_back(replaced(rng, item, at));
    return out;
  }
  if (json.is_object()) {
    Json::Object out;
    for (const Json::Member& member : json.object())
      out.push_back({member.key, replaced(rng, member.value, at)});
    return out;
  }
  return json;
}

}  // namespace

std::uint64_t Rng::next() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

namespace {

void overwrite(Rng& rng, std::string& bytes, std::size_t at) {
  switch (rng.below(3)) {
    case 0: bytes[at] = static_cast<char>(bytes[at] ^ 1 << rng.below(8)); break;
    case 1: bytes[at] = static_cast<char>(rng.next()); break;
    default: {
      const std::int64_t value =
          rng.chance(3) ? static_cast<std::int64_t>(rng.below(100)) : rng.any(kIntegers);
      std::memcpy(bytes.data() + at, &value, std::min(bytes.size() - at, std::size_t{1} << rng.below(4)));
    }
  }
}

void move_piece(Rng& rng, std::string& bytes, std::size_t at) {
  switch (rng.below(5)) {
    case 0:
    case 1: bytes.erase(at, 1 + rng.below(rng.chance(3) ? 64 : 4)); break;
    case 2:
    case 3: bytes.insert(at, bytes.substr(rng.below(bytes.size()), 1 + rng.below(16))); break;
    default:
      if (rng.chance(4)) bytes.resize(at);
  }
}

}  // namespace

void mutate_bytes(Rng& rng, std::string& bytes, std::span<const std::string_view> words) {
  for (std::size_t n = 1 + rng.below(rng.chance(2) ? 2 : 8); n > 0 && !bytes.empty(); --n) {
    // Headers stand in front and are where it matters.
    const std::size_t at =
        rng.below(words.empty() && rng.chance(2) ? std::min<std::size_t>(bytes.size(), 256) : bytes.size());
    if (!words.empty() && !rng.chance(8)) {
      const std::string_view word = rng.any(words);
      if (rng.chance(3)) move_piece(rng, bytes, at);
      else if (rng.chance(2)) bytes.insert(at, word);
      else bytes.replace(at, std::min(word.size(), bytes.size() - at), word);
    } else {
      rng.chance(3) ? move_piece(rng, bytes, at) : overwrite(rng, bytes, at);
    }
  }
}

void overwrite_bytes(Rng& rng, std::string& bytes, std::size_t from, std::size_t to) {
  to = std::min(to, bytes.size());
  for (std::size_t n = 1 + rng.below(4); n > 0 && from < to; --n)
    overwrite(rng, bytes, from + rng.below(to - from));
}

Json mutate_json(Rng& rng, const Json& json) {
  Json out = json;
  for (std::size_t n = 1 + rng.below(rng.chance(2) ? 1 : 4); n > 0; --n) {
    // A key goes, or another one takes its value.
    if (out.is_object() && !out.object().empty() && rng.chance(5)) {
      const Json::Object& all = out.object();
      const std::size_t at = rng.below(all.size());
      const bool goes = rng.chance(2);
      const Json& instead = rng.any(all).value;
      Json::Object rest;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (i != at) rest.push_back(all[i]);
        else if (!goes) rest.push_back(all[i].key, instead);
      out = std::move(rest);
      continue;
    }
    std::size_t at = rng.below(count(out));
    out = replaced(rng, out, at);
  }
  return out;
}

Scale any_scale(Rng& rng) {
  static constexpr Dim kFrom[] = {2, 3, 4, 6, 8, 8, 12, 16, 24, 32};
  Scale s;
  s.from = rng.any(kFrom);
  s.to = 1 + static_cast<Dim>(rng.below(static_cast<std::size_t>(s.from) + 4));
  return s;
}

Json scaled(const Json& json, const Scale& scale) {
  if (json.is_array()) {
    Json::Array out;
    for (const Json& item : json.array()) out.push_back(scaled(item, scale));
    return out;
  }
  if (json.is_object()) {
    Json::Object out;
    for (const Json::Member& member : json.object()) out.push_back({member.key, scaled(member.value, scale)});
    return out;
  }
  return json.is_integer() && !json.is_real() ? Json(scale(json.integer())) : json;
}

}  // namespace rapt::attack
