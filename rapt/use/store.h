// SPDX-License-Identifier: Apache-2.0
// Where a training run keeps its states: folders step-N that are whole or not there.
//
//   save:  DIR/.tmp-step-N-PID: every file written and synced, then manifest.json with each one's bytes and
//          sums and a sum of its own, synced; folder synced; renamed to step-N; DIR synced (the commit
//          point); only then older ones are removed, two verified ones always kept: renamed to .tmp-del-…,
//          DIR synced, unlinked. Of several ranks, those that see rank 0's folder share its files
//          (store_save.cc)
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
#include "rapt/comm/comm.h"
#include "rapt/io/fs.h"

namespace rapt {

struct StoredFile {
  std::string name;  // a plain name
  std::vector<std::byte> bytes;
};

// The files of a state as they are made, piece by piece, so that saving takes the memory of a piece and not
// of a state. Of several ranks each has one, and files() is alike on all.
class StateFiles {
 public:
  struct File {
    std::string name;
    std::vector<std::uint64_t> pieces;  // bytes of each in their order, at least one
  };
  struct Piece {
    std::size_t file = 0, piece = 0;
  };
  virtual ~StateFiles() = default;
  virtual const std::vector<File>& files() const = 0;
  // A call of all ranks: rank r asks for wanted[r]. What this one asked for, until the next call.
  virtual std::span<const std::byte> get(std::span<const std::optional<Piece>> wanted) = 0;
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
  // The same by all ranks of a job, each with a store of its own: the files are dealt to those that see rank
  // 0's folder, and rank 0 commits when all of them are written. Where it fails on one, it throws on all, for
  // the same reason.
  Stored save(std::int64_t step, StateFiles& files, const Json& state, Comm& comm);
  // Ranks that did not see rank 0's folder when the last state was saved: others wrote their files.
  const std::vector<int>& blind() const { return blind_; }
  // The newest valid one. `say` hears about every state that had to be passed over, and why.
  std::optional<Stored> latest(const std::function<void(const std::string&)>& say = {});
  // Checked against the manifest again.
  std::vector<std::byte> file(const Stored& stored, const std::string& name) const;
  std::vector<std::string> names(const Stored& stored) const;  // of its files
  std::vector<Stored> all() const;  // valid ones, oldest first
  const std::string& folder() const { return folder_; }

 private:
  void make_folders();
  std::shared_ptr<void> hold();
  void clean();
  bool verified(const std::string& name);
  struct Saving;
  std::unique_ptr<Saving> begin(std::int64_t step, const std::vector<StateFiles::File>& files,
                                const Json& state, bool several);
  void commit(Saving& saving);
  void prune(const std::string& saved);
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  Fs& fs_;
  int keep_;
  bool rooted_ = false;  // the folder and the way to it are there and synced
  std::shared_ptr<void> lock_;  // after claim()
  // States that this object saved or checked, and the names in them.
  std::map<std::string, std::vector<std::string>> known_;
  std::vector<int> blind_;
  std::set<std::string> doubtful_;  // whose commit failed: they stand, perhaps only until a power cut
};

}  // namespace rapt
