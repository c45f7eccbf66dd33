// SPDX-License-Identifier: Apache-2.0
// Names of states, then the manifest and its sums, then saving, pruning and finding the newest that holds.
#include "rapt/use/store.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <thread>
#include <tuple>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

constexpr std::string_view kManifest = "manifest.json", kLeftover = ".tmp-";
constexpr std::int64_t kFormat = 1;
constexpr std::uint64_t kMostManifest = std::uint64_t{64} << 20;

// ------------------------------------------------------------------------------------------ names of states
struct StateName {
  std::int64_t step = 0, generation = 1;
  std::string text;
  bool operator<(const StateName& other) const {
    return std::tie(step, generation) < std::tie(other.step, other.generation);
  }
};

std::string name_of(std::int64_t step, std::int64_t generation) {
  return generation == 1 ? concat("step-", step) : concat("step-", step, ".g", generation);
}

// step-N or step-N.gK, K from 2; exactly as name_of writes it, anything else is not ours.
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

std::vector<StateName> states_in(const Fs& fs, const std::string& folder) {  // oldest first
  std::vector<StateName> out;
  if (!fs.exists(folder)) return out;
  for (const std::string& name : fs.list(folder))
    if (auto state = parse_name(name)) out.push_back(std::move(*state));
  std::sort(out.begin(), out.end());
  return out;
}

// --------------------------------------------------------------------------------------------- the manifest
struct Entry {
  std::string name;
  std::uint64_t bytes = 0, hash = 0;
  std::uint32_t crc = 0;
};

struct Manifest {
  std::int64_t step = 0;
  std::vector<Entry> files;
  Json state;
};

std::string hex(std::uint64_t value, int digits) {
  std::string out(static_cast<std::size_t>(digits), '0');
  for (std::size_t i = out.size(); i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The text is that of the object without its closing brace, then this line with the sum of all bytes before
// it. So every byte counts.
std::string ending(std::string_view body) {
  return concat(",\n  \"sum\": \"", hex(hash64(bytes_of(body)), 16), "\"\n}\n");
}

std::string write_manifest(const Manifest& m) {
  Json::Array files;
  for (const Entry& e : m.files) {
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

// Why a name cannot be one of a file in a state; "" where it can.
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
    Entry e;
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

// Both sums of bytes that come in pieces, against what was saved.
class Check {
 public:
  Check(const Entry& entry, std::string where) : entry_(entry), where_(std::move(where)) {}
  void add(std::span<const std::byte> part) {
    bytes_ += part.size();
    if (bytes_ > entry_.bytes) fail(where_, ": has more than the ", entry_.bytes, " bytes that were saved");
    crc_ = crc32(part, crc_);
    hash_.add(part);
  }
  void finish() const {
    if (bytes_ != entry_.bytes)
      fail(where_, ": has ", bytes_, " bytes, ", entry_.bytes, " were saved: it was cut short");
    if (crc_ != entry_.crc || hash_.value() != entry_.hash)
      fail(where_, ": is damaged: its bytes have other sums than those that were saved");
  }

 private:
  const Entry& entry_;
  std::string where_;
  std::uint64_t bytes_ = 0;
  std::uint32_t crc_ = 0;
  Hash64 hash_;
};

// Every byte of a state; fails with the first thing that is wrong.
Manifest check_state(const Fs& fs, const std::string& folder, std::int64_t step) {
  Manifest m = read_manifest(fs, folder, step);
  for (const Entry& e : m.files) {
    const std::string where = folder + "/" + e.name;
    Check check(e, where);
    fs.visit(where, [&](std::span<const std::byte> part) { check.add(part); });
    check.finish();
  }
  return m;
}

std::vector<std::string> names_in(const Manifest& m) {
  std::vector<std::string> names{std::string(kManifest)};
  for (const Entry& e : m.files) names.push_back(e.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> parent_of(const std::string& path) {
  if (path == "/" || path == ".") return std::nullopt;
  const auto slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// What a failed save leaves to the reader of its message.
std::string what_stands(const Fs& fs, const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (const StateName& s : states_in(fs, folder)) names.push_back(s.text);
  } catch (const Error&) {}
  return names.empty() ? "nothing was saved in this folder before"
                       : concat("nothing that was saved before is lost: ", join(names), " in ", folder);
}

}  // namespace

Store::Store(std::string folder, Fs& fs, int keep) : folder_(std::move(folder)), fs_(fs), keep_(keep) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  if (folder_.empty()) fail_usage("a store of states wants the name of a folder");
  if (keep_ < 2)
    fail_usage(folder_, ": keeps ", keep_,
               " states; at least 2 stay, so that one damaged file never costs the whole run");
}

// The names on the way to the folder are synced each time a store is first used: a process that was killed
// between making and syncing them cannot be told from one that was not. Folders of others that may not be
// opened are left to them.
void Store::make_folders() {
  if (rooted_) return;
  std::vector<std::string> missing;
  for (std::optional<std::string> at = folder_; at && !fs_.exists(*at); at = parent_of(*at))
    missing.push_back(*at);
  std::set<std::string> changed;
  for (; !missing.empty(); missing.pop_back()) {
    try {
      fs_.make_folder(missing.back());
    } catch (const Error&) {
      if (!fs_.exists(missing.back())) throw;  // else somebody was faster
    }
    changed.insert(parent_of(missing.back()).value_or("/"));
  }
  for (std::optional<std::string> at = parent_of(folder_); at; at = parent_of(*at)) {
    try {
      fs_.sync_folder(*at);
    } catch (const Error&) {
      if (changed.count(*at)) throw;
    }
  }
  rooted_ = true;
}

std::shared_ptr<void> Store::hold() {
  make_folders();
  if (lock_) return lock_;
  // A reader that clears leftovers away holds it for a moment, too.
  for (int tries = 0; tries < 25; ++tries) {
    if (auto lock = fs_.lock(path(".lock"))) return lock;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fail(folder_, ": somebody else saves here (", path(".lock"),
       " is locked); let that run end, or give this one a folder of its own");
}

void Store::release() { lock_.reset(); }

void Store::claim() {
  lock_ = hold();
  clean();
}

// Only with the lock: whoever made these is dead, or is us.
void Store::clean() {
  for (const std::string& name : fs_.list(folder_)) {
    if (!name.starts_with(kLeftover)) continue;
    try {
      fs_.remove_all(path(name));
    } catch (const Error&) {  // it is in nobody's way
    }
  }
}

// Read once by this object, or written by it; later only the names are looked at.
bool Store::verified(const std::string& name) {
  const auto state = parse_name(name);
  if (!state || doubtful_.count(name)) return false;
  try {
    if (const auto known = known_.find(name); known != known_.end()) {
      const std::vector<std::string> there = fs_.list(path(name));
      if (std::includes(there.begin(), there.end(), known->second.begin(), known->second.end())) return true;
    }
    known_[name] = names_in(check_state(fs_, path(name), state->step));
    return true;
  } catch (const Error&) {
    known_.erase(name);
    return false;
  }
}

Stored Store::save(std::int64_t step, std::span<const StoredFile> files, const Json& state) {
  if (step < 0) fail(folder_, ": cannot save step ", step, "; steps count from 0");
  // What can be refused is refused before the disk is touched.
  Manifest m{.step = step, .files = {}, .state = state};
  std::set<std::string_view> seen;
  std::uint64_t need = 0;
  constexpr std::uint64_t kBlock = 4096;
  for (const StoredFile& f : files) {
    if (const auto why = bad_name(f.name); !why.empty())
      fail(folder_, ": cannot save a file named ", quote_name(f.name), ": the name ", why);
    if (!seen.insert(f.name).second) fail(folder_, ": cannot save two files named ", quote_name(f.name));
    m.files.push_back(
        {.name = f.name, .bytes = f.bytes.size(), .hash = hash64(f.bytes), .crc = crc32(f.bytes)});
    need = checked_add(need, (f.bytes.size() / kBlock + 1) * kBlock, "bytes to save");
  }
  const std::string manifest = write_manifest(m);
  if (manifest.size() > kMostManifest)
    fail(folder_, ": the state is too large for a manifest (", manifest.size(), " bytes); save it as a file");
  if (parse_manifest(manifest, path(std::string(kManifest))).state.dump(0) !=
      state.dump(0))  // bytes that are no text, keys that stand twice
    fail(folder_, ": the state of step ", step, " would not be read back as it is");
  need += (manifest.size() / kBlock + 4) * kBlock;

  const auto lock = hold();
  clean();
  std::int64_t generation = 1;
  for (const StateName& s : states_in(fs_, folder_)) {
    if (s.step == step) generation = s.generation + 1;  // they come in order
    if (s.step > step && verified(s.text))
      fail(folder_, ": cannot save step ", step, ": ", s.text,
           " stands there and is newer; a run that starts over wants a folder of its own");
  }
  // A little more than is needed stays free, for logs and for whoever else writes there.
  const std::uint64_t want = checked_add(need, need / 16 + (std::uint64_t{1} << 20), "bytes to save"),
                      free = fs_.free_bytes(folder_);
  if (free < want)
    fail(folder_, ": no room to save step ", step, ": it takes ", byte_count(static_cast<double>(want)), ", ",
         byte_count(static_cast<double>(free)), " are free, ", byte_count(static_cast<double>(want - free)),
         " are missing; ", what_stands(fs_, folder_), ". Make room, then it can be saved again");

  const std::string name = name_of(step, generation), target = path(name);
  std::string temporary = path(concat(".tmp-step-", step, "-", ::getpid()));
  for (int i = 2; fs_.exists(temporary); ++i)
    temporary = path(concat(".tmp-step-", step, "-", ::getpid(), "-", i));  // could not be cleaned
  bool renamed = false;
  try {
    fs_.make_folder(temporary);
    for (const StoredFile& f : files) fs_.create(temporary + "/" + f.name, f.bytes);
    fs_.create(concat(temporary, "/", kManifest), bytes_of(manifest));
    fs_.sync_folder(temporary);
    fs_.rename(temporary, target);
    renamed = true;
    fs_.sync_folder(folder_);  // the commit point
  } catch (const Error& e) {
    if (renamed) doubtful_.insert(name);
    else try {
        fs_.remove_all(temporary);
      } catch (const Error&) {  // the next save or load clears it away
      }
    fail("saving step ", step, " failed: ", e.what(), "; ", what_stands(fs_, folder_),
         renamed ? concat(" (", name, " is whole but may be gone after a power cut)") : "");
  }
  known_[name] = names_in(m);
  try {
    prune(name);
  } catch (const Error&) {
    // The state is safe; what could not be removed is tried again after the next one.
  }
  return {step, target, state};
}

// Removes what is older than the `keep` newest valid states. With fewer valid ones nothing goes: a damaged
// one does not count as kept.
void Store::prune(const std::string& saved) {
  const std::vector<StateName> states = states_in(fs_, folder_);
  std::size_t oldest = states.size();  // of those that stay
  int kept = 0;
  while (kept < keep_ && oldest > 0)
    if (const std::string& name = states[--oldest].text; name == saved || verified(name)) ++kept;
  if (kept < keep_ || oldest == 0) return;
  std::vector<std::string> gone;
  for (std::size_t i = 0; i < oldest; ++i) {
    gone.push_back(path(concat(".tmp-del-", states[i].text, "-", ::getpid())));
    fs_.rename(path(states[i].text), gone.back());
    known_.erase(states[i].text);
  }
  // Before anything is unlinked: else a crash could bring the old name back with half its files.
  fs_.sync_folder(folder_);
  for (const std::string& folder : gone) fs_.remove_all(folder);
}

std::optional<Stored> Store::latest(const std::function<void(const std::string&)>& say) {
  if (!fs_.exists(folder_)) return std::nullopt;
  const std::vector<std::string> names = fs_.list(folder_);
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& name) { return name.starts_with(kLeftover); }))
    try {
      if (const auto lock = lock_ ? lock_ : fs_.lock(path(".lock"))) clean();
    } catch (const Error&) {  // a folder for reading only
    }
  for (int tries = 0;; ++tries) {
    bool moved = false;
    std::vector<StateName> states = states_in(fs_, folder_);
    for (; !states.empty() && !moved; states.pop_back()) {
      const StateName& s = states.back();
      try {
        Manifest m = check_state(fs_, path(s.text), s.step);
        known_[s.text] = names_in(m);
        if (say)
          for (const std::string& name : fs_.list(path(s.text)))
            if (!std::binary_search(known_[s.text].begin(), known_[s.text].end(), name))
              say(concat(path(s.text), ": holds ", quote_name(name),
                         ", which was not saved with it; it is not read"));
        return Stored{s.step, path(s.text), std::move(m.state)};
      } catch (const Error& e) {
        known_.erase(s.text);
        // A run that is still going removed it meanwhile: then newer ones stand.
        moved = tries < 8 && !fs_.exists(path(s.text));
        if (!moved && say)
          say(concat("WARNING: ", e.what(), ". ", s.text, " is passed over, the state before it is taken"));
      }
    }
    if (!moved) return std::nullopt;
  }
}

std::vector<std::byte> Store::file(const Stored& stored, const std::string& name) const {
  const Manifest m = read_manifest(fs_, stored.folder, stored.step);
  std::vector<std::string> names;
  for (const Entry& e : m.files) {
    names.push_back(e.name);
    if (e.name != name) continue;
    const std::string where = stored.folder + "/" + name;
    std::vector<std::byte> bytes = fs_.read(where);
    Check check(e, where);
    check.add(bytes);
    check.finish();
    return bytes;
  }
  fail(stored.folder, ": has no file ", quote_name(name), "; ", name_hint(name, names));
}

std::vector<Stored> Store::all() const {
  std::vector<Stored> out;
  for (const StateName& s : states_in(fs_, folder_)) {
    try {
      out.push_back({s.step, path(s.text), check_state(fs_, path(s.text), s.step).state});
    } catch (const Error&) {}
  }
  return out;
}

}  // namespace rapt
