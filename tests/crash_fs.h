// SPDX-License-Identifier: Apache-2.0
// A file system in memory that remembers every operation and can say what a disk may hold after the power
// went at any of them.
//
// What survives for certain: contents that a sync of the file followed, and names that a sync of their
// folder followed. Everything else may be there or not, each operation alone (so also in another order than
// it was made), and unsynced contents may be there in part, by sectors. A sync of a file does not make its
// name durable, a sync of a folder not what is in its files or in folders below. A rename happens or does
// not: journaling file systems promise that much, and a rename by halves would be two names for one folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rapt/io/fs.h"

namespace rapt::test {

// Files and folders by number; 0 is the root.
struct DiskImage {
  struct Node {
    bool folder = false;
    std::map<std::string, int> names;  // of a folder
    std::vector<std::byte> bytes;  // of a file
  };
  std::vector<Node> nodes{Node{.folder = true}};
  int find(const std::string& path) const;  // -1: not there
  std::uint64_t digest() const;  // of all that can be reached from the root: names and bytes
};

class CrashFs : public Fs {
 public:
  enum class Kind { link, unlink, rename, resize, write, sync, promise };
  struct Op {
    Kind kind;
    std::string path;  // for messages
    int node = -1;  // folder of link, unlink, rename; file of resize, write; either of sync
    int child = -1;  // what is linked, unlinked or renamed
    std::string name, to;  // of link, unlink, rename; new name
    std::vector<std::byte> bytes;  // of write, from `at` on
    std::size_t at = 0;
    std::size_t size = 0;  // of resize
    std::int64_t promised = -1;
  };
  // What becomes of an operation that was not synced. torn: sectors of a write, each by the toss of a
  // seeded coin; the rest stays as it was.
  struct Fate {
    enum { lost, kept, torn } what = kept;
    std::size_t sector = 512;
    std::uint64_t seed = 0;
  };

  CrashFs() = default;
  explicit CrashFs(DiskImage after_crash) : start_(std::move(after_crash)), live_(start_) {}

  void make_folder(const std::string& path) override;
  // Link, resize; then a write for each piece, and a sync.
  std::unique_ptr<NewFile> open_new(const std::string& path, std::uint64_t bytes) override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_all(const std::string& path) override;  // one unlink after the other, the folder last
  bool exists(const std::string& path) const override { return live_.find(path) >= 0; }
  std::vector<std::string> list(const std::string& folder) const override;
  std::vector<std::byte> read(const std::string& path) const override;
  std::uint64_t size(const std::string& path) const override { return read(path).size(); }
  std::uint64_t free_bytes(const std::string&) const override { return free; }
  std::shared_ptr<void> lock(const std::string& path) override;

  // What careless savers do.
  // In place, not synced; made where it is not there.
  void overwrite(const std::string& path, std::span<const std::byte> bytes);
  void sync_file(const std::string& path);
  // The n-th save was reported as done: from here on no crash may lose it.
  void promise(std::int64_t n);

  const std::vector<Op>& ops() const { return ops_; }
  std::size_t tried() const { return tried_; }  // operations, the failed ones included
  const DiskImage& live() const { return live_; }  // what a process that is killed leaves
  // Operations among the first `end` that no sync had made durable by then.
  std::vector<std::size_t> pending(std::size_t end) const;
  // The disk after a crash behind the first `end` operations: what was synced, and of the pending ones
  // what their fate says (in their order).
  DiskImage crash(std::size_t end, const std::vector<std::size_t>& pending,
                  const std::vector<Fate>& fates) const {
    return crash(start_, 0, end, pending, fates);
  }
  // The same from a disk on which the first `begin` operations, none of them pending, have been
  // settled before.
  DiskImage crash(const DiskImage& settled, std::size_t begin, std::size_t end,
                  const std::vector<std::size_t>& pending, const std::vector<Fate>& fates) const;
  void settle(DiskImage& disk, std::size_t begin, std::size_t end) const;
  const DiskImage& start() const { return start_; }
  // Contents, to be changed behind everybody's back.
  std::vector<std::byte>& damage(const std::string& path) {
    return live_.nodes[static_cast<std::size_t>(need(path))].bytes;
  }
  // Ways for the pending operations to go: all or none, names without contents and contents without names,
  // torn at 512 and at 4096 bytes, every single one lost or kept alone, and `random` seeded mixtures.
  std::vector<std::vector<Fate>> fates(const std::vector<std::size_t>& pending, int random,
                                       std::uint64_t seed) const;

  std::uint64_t free = std::uint64_t{1} << 40;
  // Operations of these numbers (from, below) fail and change nothing.
  std::size_t fail_at = ~std::size_t{0}, fail_until = 0;
  std::function<bool(const Op&)> omit;  // true: left out, as if the saver did not know that it is needed
  std::function<void(const Op&)> after;  // watches

 private:
  int need(const std::string& path) const;
  std::pair<int, std::string> place(const std::string& path) const;  // folder and name
  void record(Op op);
  void link(const std::string& path, bool folder);

  DiskImage start_, live_;
  std::vector<Op> ops_;
  std::size_t tried_ = 0;
  std::set<std::string> locked_;
};

// Hands everything on, after `before` has seen it: to fail or to die there.
class HookFs : public Fs {
 public:
  HookFs(Fs& under, std::function<void(const char* what, const std::string& path)> before)
      : under_(under), before_(std::move(before)) {}
  void make_folder(const std::string& path) override {
    before_("make_folder", path), under_.make_folder(path);
  }
  std::unique_ptr<NewFile> open_new(const std::string& path, std::uint64_t bytes) override {
    before_("create", path);
    return std::make_unique<File>(*this, path, under_.open_new(path, bytes));
  }
  void sync_folder(const std::string& path) override {
    before_("sync_folder", path), under_.sync_folder(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    before_("rename", from), under_.rename(from, to);
  }
  void remove_all(const std::string& path) override { before_("remove_all", path), under_.remove_all(path); }
  bool exists(const std::string& path) const override { return before_("exists", path), under_.exists(path); }
  std::vector<std::string> list(const std::string& folder) const override {
    return before_("list", folder), under_.list(folder);
  }
  std::vector<std::byte> read(const std::string& path) const override {
    return before_("read", path), under_.read(path);
  }
  std::uint64_t size(const std::string& path) const override {
    return before_("size", path), under_.size(path);
  }
  std::uint64_t free_bytes(const std::string& folder) const override {
    return before_("free_bytes", folder), under_.free_bytes(folder);
  }
  std::shared_ptr<void> lock(const std::string& path) override {
    return before_("lock", path), under_.lock(path);
  }

 private:
  class File : public NewFile {
   public:
    File(HookFs& fs, std::string path, std::unique_ptr<NewFile> under)
        : fs_(fs), path_(std::move(path)), under_(std::move(under)) {}
    void write(std::span<const std::byte> bytes) override {
      fs_.before_("write", path_), under_->write(bytes);
    }
    void finish() override { fs_.before_("finish", path_), under_->finish(); }

   private:
    HookFs& fs_;
    const std::string path_;
    const std::unique_ptr<NewFile> under_;
  };

  Fs& under_;
  std::function<void(const char*, const std::string&)> before_;
};

// One loader's answer about a disk.
struct Found {
  std::int64_t newest = -1;  // the number of the save; -1: none
  std::int64_t valid = 0;  // whole states, as the loader sees them
  bool right = true;  // all bytes of the newest are those that were saved
  std::vector<std::string> said;  // what it complained about
};

// Counts over all disks that crashes may leave.
struct Verdict {
  std::size_t prefixes = 0, disks = 0, distinct = 0;
  std::size_t lost = 0;  // a promised save is gone, and nothing newer is there
  std::size_t invalid = 0;  // wrong bytes were handed out as good ones
  std::size_t few = 0;  // two states were promised before, now there are fewer than two
  std::size_t half = 0;  // a state is to be seen that is not whole
  std::size_t stuck = 0;  // `go_on` failed
  std::string example;
  std::size_t failures() const { return lost + invalid + few + half + stuck; }
  std::string text() const;
};

struct Replay {
  std::function<Found(Fs&)> load;
  // On every distinct disk, after loading: throws where the store cannot be used any more.
  std::function<void(CrashFs&)> go_on;
  int random = 6;
  std::uint64_t seed = 1;
  // What had been promised before the recording began, and how many states.
  std::int64_t promised = -1, kept = 0;
};

Verdict replay_crashes(const CrashFs& recorded, const Replay& how);

}  // namespace rapt::test
