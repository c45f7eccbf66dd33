// SPDX-License-Identifier: Apache-2.0
// The folder and its lock, pruning, and finding the newest that holds.
#include "rapt/use/store.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/use/store_parts.h"

namespace rapt {
namespace {

std::optional<std::string> parent_of(const std::string& path) {
  if (path == "/" || path == ".") return std::nullopt;
  const auto slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
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

std::vector<std::string> Store::names(const Stored& stored) const {
  std::vector<std::string> out;
  for (const ManifestEntry& e : read_manifest(fs_, stored.folder, stored.step).files) out.push_back(e.name);
  return out;
}

std::vector<std::byte> Store::file(const Stored& stored, const std::string& name) const {
  const Manifest m = read_manifest(fs_, stored.folder, stored.step);
  std::vector<std::string> names;
  for (const ManifestEntry& e : m.files) {
    names.push_back(e.name);
    if (e.name != name) continue;
    const std::string where = stored.folder + "/" + name;
    std::vector<std::byte> bytes = fs_.read(where);
    ManifestCheck check(e, where);
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
