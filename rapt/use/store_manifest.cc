// SPDX-License-Identifier: Apache-2.0
// Names of states, then the manifest and its sums.
#include <algorithm>
#include <charconv>
#include <set>

#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/use/store_parts.h"

namespace rapt {

std::string name_of(std::int64_t step, std::int64_t generation) {
  return generation == 1 ? concat("step-", step) : concat("step-", step, ".g", generation);
}

std::optional<StateName> parse_name(const std::string& text) {
  StateName name{.text = text};
  if (!text.starts_with("step-")) return std::nullopt;
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data() + 5, end, name.step);
  if (read.ec == std::errc{} && end - read.ptr > 2)
    read = std::from_chars(read.ptr + 2, end, name.generation);  // what stands between: below
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  if (name.step < 0 || name.generation < 1 || name_of(name.step, name.generation) != text)
    return std::nullopt;
  return name;
}

std::vector<StateName> states_in(const Fs& fs, const std::string& folder) {
  std::vector<StateName> out;
  if (!fs.exists(folder)) return out;
  for (const std::string& name : fs.list(folder))
    if (auto state = parse_name(name)) out.push_back(std::move(*state));
  std::sort(out.begin(), out.end());
  return out;
}

// --------------------------------------------------------------------------------------------- the manifest
namespace {

constexpr std::int64_t kFormat = 1;

std::string hex(std::uint64_t value, int digits) {
  std::string out(static_cast<std::size_t>(digits), '0');
  for (std::size_t i = out.size(); i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

// The text is that of the object without its closing brace, then this line with the sum of all bytes before
// it. So every byte counts.
std::string ending(std::string_view body) {
  return concat(",\n  \"sum\": \"", hex(hash64(bytes_of(body)), 16), "\"\n}\n");
}

}  // namespace

std::string write_manifest(const Manifest& m) {
  Json::Array files;
  for (const ManifestEntry& e : m.files) {
    Json file = Json::Object{};
    file.set("name", e.name);
    file.set("bytes", static_cast<std::int64_t>(e.bytes));
    file.set("crc32", hex(e.crc, 8));
    file.set("hash64", hex(e.hash, 16));
    files.push_back(std::move(file));
  }
  Json json = Json::Object{};
  json.set("format", kFormat);
  json.set("step", m.step);
  json.set("files", std::move(files));
  json.set("state", m.state);
  std::string text = json.dump();
  text.resize(text.size() - 2);  // "\n}"
  return text + ending(text);
}

std::string_view bad_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name == kManifest) return "is that of the manifest";
  if (name == "." || name == ".." || name.find('/') != name.npos) return "is not a plain name";
  if (name.size() > 200) return "is longer than 200 bytes";
  if (!valid_utf8(name) ||
      std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
    return "holds characters that are not text";
  return "";
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const std::size_t tail = ending("").size();
  if (text.size() <= tail ||
      text.substr(text.size() - tail) != ending(std::string_view(text).substr(0, text.size() - tail)))
    fail(where, ": is damaged or cut short: its own sum does not hold");
  const Json json = parse_json(text, where);
  const auto bad = [&](const Json& at, const auto&... parts) {
    fail(where, ":", at.line, ":", at.column, ": ", parts...);
  };
  const auto member = [&](const Json& of, std::string_view key, bool (Json::*is)() const,
                          const char* what) -> const Json& {
    const Json* value = of.find(key);
    if (!value) bad(of, "there is no \"", key, "\"");
    if (!(value->*is)()) bad(*value, "\"", key, "\" is ", value->type_name(), ", not ", what);
    return *value;
  };
  const auto whole = [&](const Json& of, std::string_view key) {
    const Json& value = member(of, key, &Json::is_integer, "an integer");
    if (value.integer() < 0) bad(value, "\"", key, "\" is negative");
    return value.integer();
  };
  const auto sum = [&](const Json& of, std::string_view key, int digits) {
    const Json& value = member(of, key, &Json::is_string, "a string");
    std::uint64_t n = 0;
    const std::string& s = value.string();
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n, 16);
    if (error != std::errc{} || end != s.data() + s.size() || s != hex(n, digits))
      bad(value, "\"", key, "\" is not ", digits, " hexadecimal digits");
    return n;
  };
  if (!json.is_object()) bad(json, "is ", json.type_name(), ", not an object");
  if (const std::int64_t format = whole(json, "format"); format != kFormat)
    fail(where, ": has format ", format, ", this program reads ", kFormat, "; it was written by a newer one");
  Manifest m;
  m.step = whole(json, "step");
  std::set<std::string> seen;
  for (const Json& file : member(json, "files", &Json::is_array, "a list").array()) {
    if (!file.is_object()) bad(file, "is ", file.type_name(), ", not a file");
    ManifestEntry e;
    e.name = member(file, "name", &Json::is_string, "a string").string();
    if (const auto why = bad_name(e.name); !why.empty()) bad(file, "the name ", quote_name(e.name), " ", why);
    if (!seen.insert(e.name).second) bad(file, quote_name(e.name), " stands twice");
    e.bytes = static_cast<std::uint64_t>(whole(file, "bytes"));
    e.crc = static_cast<std::uint32_t>(sum(file, "crc32", 8));
    e.hash = sum(file, "hash64", 16);
    if (file.object().size() != 4) bad(file, "a file has name, bytes, crc32 and hash64, and nothing else");
    m.files.push_back(std::move(e));
  }
  const Json* state = json.find("state");
  if (!state) bad(json, "there is no \"state\"");
  m.state = *state;
  if (json.object().size() != 5)
    bad(json, "a manifest has format, step, files, state and sum, and nothing else");
  return m;
}

Manifest read_manifest(const Fs& fs, const std::string& folder, std::int64_t step) {
  const std::string where = concat(folder, "/", kManifest);
  std::string text;
  fs.visit(where, [&](std::span<const std::byte> part) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    if (text.size() > kMostManifest)
      fail(where, ": has more than ", kMostManifest, " bytes; no manifest is so long");
  });
  Manifest m = parse_manifest(text, where);
  if (m.step != step) fail(where, ": is that of step ", m.step, ", not of step ", step);
  return m;
}

void ManifestCheck::add(std::span<const std::byte> part) {
  bytes_ += part.size();
  if (bytes_ > entry_.bytes) fail(where_, ": has more than the ", entry_.bytes, " bytes that were saved");
  crc_ = crc32(part, crc_);
  hash_.add(part);
}

void ManifestCheck::finish() const {
  if (bytes_ != entry_.bytes)
    fail(where_, ": has ", bytes_, " bytes, ", entry_.bytes, " were saved: it was cut short");
  if (crc_ != entry_.crc || hash_.value() != entry_.hash)
    fail(where_, ": is damaged: its bytes have other sums than those that were saved");
}

Manifest check_state(const Fs& fs, const std::string& folder, std::int64_t step) {
  Manifest m = read_manifest(fs, folder, step);
  for (const ManifestEntry& e : m.files) {
    const std::string where = folder + "/" + e.name;
    ManifestCheck check(e, where);
    fs.visit(where, [&](std::span<const std::byte> part) { check.add(part); });
    check.finish();
  }
  return m;
}

std::vector<std::string> names_in(const Manifest& m) {
  std::vector<std::string> names{std::string(kManifest)};
  for (const ManifestEntry& e : m.files) names.push_back(e.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string what_stands(const Fs& fs, const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (const StateName& s : states_in(fs, folder)) names.push_back(s.text);
  } catch (const Error&) {}
  return names.empty() ? "nothing was saved in this folder before"
                       : concat("nothing that was saved before is lost: ", join(names), " in ", folder);
}

}  // namespace rapt
