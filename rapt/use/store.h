// SPDX-License-Identifier: Apache-2.0
// Where a training run keeps its states: folders step-N that are whole or not there.
//
//   save:  DIR/.tmp-step-N-PID: every file written and synced, then manifest.json with each one's bytes and
//          sums and a sum of its own, synced; folder synced; renamed to step-N; DIR synced (the commit
//          point); only then older ones are removed, two verified ones always kept: renamed to .tmp-del-…,
//          DIR synced, unlinked
//   load:  the newest step-N whose manifest and sums all hold, else the one before it, with a message; what
//          a crash left is removed
//
// A name is never used twice: saving step N again writes step-N.g2. Newest: the highest step, of one step
// the highest generation. manifest.json: docs/formats.md. Who saves holds a lock on DIR/.lock meanwhile, so
// nothing of a living process is taken for a leftover; reading needs no lock and disturbs nobody. One thread
// at a time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/io/fs.h"

namespace rapt {

struct StoredFile {
  std::string name;  // a plain name
  std::vector<std::byte> bytes;
};

struct Stored {
  std::int64_t step = 0;
  std::string folder;  // its path
  Json state;  // what save() was given
};

class Store {
 public:
  // keep: states that stay, at least 2
  explicit Store(std::string folder, Fs& fs = real_fs(), int keep = 2);
  // From now on nobody else saves here, until this Store is gone; fails where somebody does. Without it
  // the lock is held during each save only: two runs in one folder would not damage each other's states,
  // but mix them.
  void claim();
  void release();  // … or of this call
  // Commits before it returns; where it throws, all that was saved before is untouched, and a later save
  // may succeed. Older states that could not be removed are no failure: the next save tries again.
  // Refused: a step below a valid one that stands.
  // `state`: small values (counters, options), stored in the manifest.
  Stored save(std::int64_t step, std::span<const StoredFile> files, const Json& state);
  // The newest valid one. `say` hears about every state that had to be passed over, and why.
  std::optional<Stored> latest(const std::function<void(const std::string&)>& say = {});
  // Checked against the manifest again.
  std::vector<std::byte> file(const Stored& stored, const std::string& name) const;
  std::vector<Stored> all() const;  // valid ones, oldest first
  const std::string& folder() const { return folder_; }

 private:
  void make_folders();
  std::shared_ptr<void> hold();
  void clean();
  bool verified(const std::string& name);
  void prune(const std::string& saved);
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  Fs& fs_;
  int keep_;
  bool rooted_ = false;  // the folder and the way to it are there and synced
  std::shared_ptr<void> lock_;  // after claim()
  // States that this object saved or checked, and the names in them.
  std::map<std::string, std::vector<std::string>> known_;
  std::set<std::string> doubtful_;  // whose commit failed: they stand, perhaps only until a power cut
};

}  // namespace rapt
