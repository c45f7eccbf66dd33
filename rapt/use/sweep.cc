// SPDX-License-Identifier: Apache-2.0
// Combinations are counted like the digits of a number.
#include "rapt/use/sweep.h"

#include <algorithm>
#include <map>

#include "rapt/base/error.h"
#include "rapt/base/sha256.h"
#include "rapt/base/text.h"

namespace rapt {
namespace {

// At commas outside of quotes and brackets.
std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> out(1);
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    else if (c == '\\' && quoted && i + 1 < text.size()) out.back() += text[i++];
    else if (!quoted && (c == '{' || c == '[')) ++depth;
    else if (!quoted && (c == '}' || c == ']')) --depth;
    if (c == ',' && depth <= 0 && !quoted) out.emplace_back();
    else out.back() += text[i];
  }
  return out;
}

constexpr std::size_t kLongest = 60;  // of one key's share in the name of a folder

// Letters, digits, brackets and . _ + - stay; what parts them becomes -, all else goes.
std::string safe(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '[' || c == ']' || c == '{' || c == '}' || c == '.' || c == '_' || c == '+' ||
                       c == '-';
    if (plain) out += c;
    else if ((c == ':' || c == '/' || c == ',' || c == ' ') && !out.empty() && out.back() != '-') out += '-';
  }
  return out;
}

std::string last_part(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

// "kv_heads=8" of every value of a key; unlike each other.
std::vector<std::string> value_names(const SweepKey& key, const std::string& shown) {
  std::vector<std::string> out;
  std::map<std::string, int> uses;
  for (const std::string& value : key.values) out.push_back(concat(safe(shown), "=", safe(value)));
  for (const std::string& name : out) ++uses[name];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool bare = out[i].ends_with('='), clear = uses[out[i]] == 1 && !bare && out[i].size() <= kLongest;
    if (clear) continue;
    constexpr char kDigits[] = "0123456789abcdef";
    out[i] = out[i].substr(0, kLongest - 9) + (bare ? "" : "-");
    for (std::size_t b = 0; b < 4; ++b) {
      const auto byte = static_cast<unsigned>(sha256(key.values[i])[b]);
      out[i] += kDigits[byte >> 4];
      out[i] += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace

SweepKey parse_sweep(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    fail_usage("--sweep ", text, ": wants KEY=VALUE,VALUE, e.g. rate=0.01,0.03");
  SweepKey out{text.substr(0, equals), split_values(std::string_view(text).substr(equals + 1))};
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    if (out.values[i].empty())
      fail_usage("--sweep ", text, ": value ", i + 1, " is empty; write KEY=VALUE,VALUE");
    if (std::find(out.values.begin(), out.values.begin() + static_cast<std::ptrdiff_t>(i), out.values[i]) !=
        out.values.begin() + static_cast<std::ptrdiff_t>(i))
      fail_usage("--sweep ", text, ": ", out.values[i], " stands there twice");
  }
  return out;
}

std::vector<SweepRun> sweep_runs(std::span<const SweepKey> keys) {
  std::size_t count = 1;
  std::map<std::string, int> ends;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    for (std::size_t j = 0; j < k; ++j)
      if (keys[j].key == keys[k].key)
        fail_usage("--sweep ", keys[k].key, ": stands there twice; write all its values behind one =");
    ++ends[last_part(keys[k].key)];
    count *= keys[k].values.size();
    if (count > kMostSweepRuns)
      fail_usage("--sweep: more than ", kMostSweepRuns, " runs; leave values out, or sweep in several parts");
  }
  std::vector<std::vector<std::string>> names;
  for (const SweepKey& key : keys) {
    const std::string end = last_part(key.key);
    names.push_back(value_names(key, ends[end] == 1 ? end : key.key));
  }
  std::vector<SweepRun> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i, block = count;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      block /= keys[k].values.size();
      const std::size_t at = rest / block;
      rest %= block;
      out[i].values.push_back(keys[k].values[at]);
      out[i].name += concat(k > 0 ? "," : "", names[k][at]);
    }
    if (out[i].name.size() > 200)
      fail_usage("--sweep: '", out[i].name,
                 "' is too long for the name of a folder; sweep fewer keys at once");
  }
  return out;
}

}  // namespace rapt
