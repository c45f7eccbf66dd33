// SPDX-License-Identifier: Apache-2.0
// A state that several ranks write together: power cuts at any moment, in any order that the ranks' calls may
// fall in, and what one of them cannot write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <mutex>

#include "rapt/comm/comm.h"
#include "rapt/io/memory_fs.h"
#include "tests/build_kind.h"
#include "tests/crash_fs.h"
#include "tests/store_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kShared = "/runs/one";

// The n-th save's files (store_tools.h) and some more, in pieces of at most `piece` bytes.
class PieceFiles final : public StateFiles {
 public:
  explicit PieceFiles(std::int64_t n, std::size_t piece = 700, std::size_t rank = 0) : rank_(rank) {
    whole_ = files_of(n, 2600);
    for (const StoredFile& f : whole_) {
      files_.push_back({f.name, {}});
      for (std::size_t at = 0; at < f.bytes.size() || at == 0; at += piece)
        files_.back().pieces.push_back(std::min(piece, f.bytes.size() - at));
    }
  }
  const std::vector<File>& files() const override { return files_; }
  std::span<const std::byte> get(std::span<const std::optional<Piece>> wanted) override {
    if (!wanted[rank_]) return {};
    const auto [file, piece] = *wanted[rank_];
    std::size_t at = 0;
    for (std::size_t p = 0; p < piece; ++p) at += files_[file].pieces[p];
    return std::span(whole_[file].bytes).subspan(at, files_[file].pieces[piece]);
  }

 private:
  const std::size_t rank_;
  std::vector<StoredFile> whole_;
  std::vector<File> files_;
};

// What a rank did: calls of its file system that change it, and calls between ranks, in its order.
struct Event {
  enum class Kind { folder, open, write, finish, sync, rename, remove, gather, tell } kind;
  std::string path, to;
  std::vector<std::byte> bytes;
  std::uint64_t size = 0;
};

// One file system for all ranks, of which each has a view that notes what it did.
class NotingFs : public Fs {
 public:
  NotingFs(CrashFs& under, std::mutex& lock, std::vector<Event>& events)
      : under_(under), lock_(lock), events_(events) {}
  void make_folder(const std::string& path) override {
    const std::lock_guard hold(lock_);
    under_.make_folder(path), note({Event::Kind::folder, path});
  }
  std::unique_ptr<NewFile> open_new(const std::string& path, std::uint64_t bytes) override {
    const std::lock_guard hold(lock_);
    auto file = std::make_unique<File>(*this, path, under_.open_new(path, bytes));
    note({.kind = Event::Kind::open, .path = path, .to = {}, .bytes = {}, .size = bytes});
    return file;
  }
  void sync_folder(const std::string& path) override {
    const std::lock_guard hold(lock_);
    under_.sync_folder(path), note({Event::Kind::sync, path});
  }
  void rename(const std::string& from, const std::string& to) override {
    const std::lock_guard hold(lock_);
    under_.rename(from, to), note({Event::Kind::rename, from, to});
  }
  void remove_all(const std::string& path) override {
    const std::lock_guard hold(lock_);
    under_.remove_all(path), note({Event::Kind::remove, path});
  }
  bool exists(const std::string& path) const override {
    const std::lock_guard hold(lock_);
    return under_.exists(path);
  }
  std::vector<std::string> list(const std::string& folder) const override {
    const std::lock_guard hold(lock_);
    return under_.list(folder);
  }
  std::vector<std::byte> read(const std::string& path) const override {
    const std::lock_guard hold(lock_);
    return under_.read(path);
  }
  std::uint64_t size(const std::string& path) const override {
    const std::lock_guard hold(lock_);
    return under_.size(path);
  }
  std::uint64_t free_bytes(const std::string& folder) const override { return under_.free_bytes(folder); }
  std::shared_ptr<void> lock(const std::string& path) override {
    const std::lock_guard hold(lock_);
    if (!under_.exists(path)) {
      note({.kind = Event::Kind::open, .path = path, .to = {}, .bytes = {}, .size = 0});
      note({Event::Kind::finish, path});  // a lock's file need not be synced; it may be
    }
    return under_.lock(path);
  }

 private:
  class File : public NewFile {
   public:
    File(NotingFs& fs, std::string path, std::unique_ptr<NewFile> under)
        : fs_(fs), path_(std::move(path)), under_(std::move(under)) {}
    void write(std::span<const std::byte> bytes) override {
      const std::lock_guard hold(fs_.lock_);
      under_->write(bytes);
      fs_.note({Event::Kind::write, path_, "", {bytes.begin(), bytes.end()}});
    }
    void finish() override {
      const std::lock_guard hold(fs_.lock_);
      under_->finish(), fs_.note({Event::Kind::finish, path_});
    }

   private:
    NotingFs& fs_;
    const std::string path_;
    const std::unique_ptr<NewFile> under_;
  };
  void note(Event e) { events_.push_back(std::move(e)); }

  CrashFs& under_;
  std::mutex& lock_;
  std::vector<Event>& events_;
};

class NotingComm : public Comm {
 public:
  NotingComm(Comm& under, std::vector<Event>& events) : under_(under), events_(events) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  void barrier() override { under_.barrier(), events_.push_back({Event::Kind::gather}); }
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    under_.all_to_all(send, receive), events_.push_back({Event::Kind::gather});
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    under_.all_gather(mine, all), events_.push_back({Event::Kind::gather});
  }
  void broadcast(Space bytes, int from) override {
    EXPECT_EQ(from, 0);
    under_.broadcast(bytes, from), events_.push_back({Event::Kind::tell});
  }
  [[noreturn]] void abort(const std::string& why) override { under_.abort(why); }

 private:
  Comm& under_;
  std::vector<Event>& events_;
};

// What each rank does in some saves.
std::vector<std::vector<Event>> saves_of(int ranks, std::int64_t saves) {
  std::vector<std::vector<Event>> events(static_cast<std::size_t>(ranks));
  CrashFs disk;
  std::mutex lock;
  run_ranks(ranks, [&](Comm& under) {
    const auto me = static_cast<std::size_t>(under.rank());
    NotingFs fs(disk, lock, events[me]);
    NotingComm comm(under, events[me]);
    Store store(kShared, fs);
    for (std::int64_t n = 1; n <= saves; ++n) {
      PieceFiles files(n, 700, me);
      const Stored stored = store.save(n * 10, files, state_of(n), comm);
      EXPECT_EQ(stored.folder, concat(kShared, "/step-", n * 10));
    }
    EXPECT_TRUE(store.blind().empty());
  });
  return events;
}

// The same calls on a new disk in another order: any that the ranks could have fallen in. A gather lets
// nobody pass before all have come; what rank 0 tells waits for rank 0 only. `turn`: of the ranks that could
// go on, the one that does. `waits`: false leaves rank 0 out of the first rule, as if it did not wait for the
// others.
void play(const std::vector<std::vector<Event>>& events, CrashFs& fs,
          const std::function<std::size_t(const std::vector<std::size_t>&)>& turn, bool waits = true) {
  std::vector<std::size_t> at(events.size()), gathers(events.size()), tells(events.size());
  std::map<std::string, std::unique_ptr<NewFile>> open;
  std::int64_t saved = 0;
  bool renamed = false;
  // The commit point: what rank 0 renamed is there for good.
  fs.after = [&](const CrashFs::Op& op) {
    if (op.kind == CrashFs::Kind::rename && op.to.starts_with("step-")) renamed = true;
    if (op.kind == CrashFs::Kind::sync && op.path == kShared && renamed) renamed = false, fs.promise(++saved);
  };
  const auto make = [&](const Event& e) {
    switch (e.kind) {
      case Event::Kind::folder: fs.make_folder(e.path); break;
      case Event::Kind::open: open[e.path] = fs.open_new(e.path, e.size); break;
      case Event::Kind::write: open.at(e.path)->write(e.bytes); break;
      case Event::Kind::finish: open.at(e.path)->finish(), open.erase(e.path); break;
      case Event::Kind::sync: fs.sync_folder(e.path); break;
      case Event::Kind::rename: fs.rename(e.path, e.to); break;
      case Event::Kind::remove: fs.remove_all(e.path); break;
      case Event::Kind::gather:
      case Event::Kind::tell: break;
    }
  };
  for (;;) {
    std::vector<std::size_t> ready;
    bool left = false;
    for (std::size_t r = 0; r < events.size(); ++r) {
      if (at[r] == events[r].size()) continue;
      left = true;
      const Event& e = events[r][at[r]];
      bool may = true;
      if (e.kind == Event::Kind::gather && (waits || r > 0))
        for (std::size_t q = 0; q < events.size(); ++q)  // all stand at it, or are past it
          may = may && (gathers[q] > gathers[r] || (gathers[q] == gathers[r] && at[q] < events[q].size() &&
                                                    events[q][at[q]].kind == Event::Kind::gather));
      if (e.kind == Event::Kind::tell && r > 0) may = tells[0] > tells[r];
      if (may) ready.push_back(r);
    }
    if (!left) break;
    if (ready.empty()) fail("nobody can go on");
    const std::size_t r = turn(ready);
    const Event& e = events[r][at[r]++];
    gathers[r] += e.kind == Event::Kind::gather, tells[r] += e.kind == Event::Kind::tell;
    try {
      make(e);
    } catch (const std::exception&) {
      if (waits) throw;  // else it is too late for what this rank does
    }
  }
  fs.after = {};
}

// Rank 0 whenever it can, never before all others wait, in turns, and as the seed says.
std::function<std::size_t(const std::vector<std::size_t>&)> order(std::uint64_t seed) {
  return [seed, n = std::uint64_t{0}](const std::vector<std::size_t>& ready) mutable {
    ++n;
    if (seed == 0) return ready.front();
    if (seed == 1) return ready.back();
    if (seed == 2) return ready[static_cast<std::size_t>(n) % ready.size()];
    return ready[static_cast<std::size_t>(random_below(static_cast<Dim>(ready.size()), seed, n))];
  };
}

Found load_shared(Fs& fs) { return load_checked(kShared, fs, 2600); }

// The run goes on, on one rank.
void go_on_alone(CrashFs& fs) {
  Store store(kShared, fs);
  const auto newest = store.latest();
  const std::int64_t n = newest ? number_of(*newest) + 1 : 1, step = newest ? newest->step + 1 : 1;
  store.save(step, files_of(n, 2600), state_of(n));
  const Found found = load_shared(fs);
  if (found.newest != n || !found.right) fail("the save after the crash is not there");
  for (const std::string& name : fs.list(kShared))
    if (name.starts_with(".tmp-")) fail("left over: ", name);
}

void report_ranks(const std::string& what, const Verdict& v) {
  testing::Test::RecordProperty("counts", concat(what, ": ", v.text()));
  std::printf("[  COUNTS  ] %s: %s\n", what.c_str(), v.text().c_str());
}

TEST(StoreRanks, NoPowerCutLosesAStateThatSeveralWrote) {
  RAPT_NOT_SANITIZED("thousands of power cuts");
  for (const int ranks : {2, 3, 5}) {
    const auto events = saves_of(ranks, 4);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      CrashFs fs;
      play(events, fs, order(seed));
      const Verdict v =
          replay_crashes(fs, {.load = load_shared, .go_on = go_on_alone, .random = 3, .seed = seed});
      report_ranks(concat(ranks, " ranks, order ", seed), v);
      EXPECT_GE(v.distinct, 300u);
      EXPECT_EQ(v.failures(), 0u) << v.text();
    }
  }
}

// Savers with one thing wrong, which the same replay must catch.
TEST(StoreRanks, CatchesAFileOfOneRankThatIsNotSynced) {
  const auto events = saves_of(3, 4);
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/note"}) {  // of ranks 0, 1, 2
    CrashFs fs;
    fs.omit = [&](const CrashFs::Op& op) {
      return op.kind == CrashFs::Kind::sync && op.path.ends_with(file);
    };
    play(events, fs, order(5));
    const Verdict v = replay_crashes(fs, {.load = load_shared, .go_on = {}});
    report_ranks(concat("caught: ", file, " not synced"), v);
    EXPECT_GT(v.lost, 0u) << file;
    EXPECT_EQ(v.invalid, 0u);
  }
}

TEST(StoreRanks, CatchesACommitThatDoesNotWaitForTheOthers) {
  const auto events = saves_of(3, 4);
  std::size_t lost = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    CrashFs fs;
    play(events, fs, order(seed), false);
    const Verdict v = replay_crashes(fs, {.load = load_shared, .go_on = {}});
    report_ranks(concat("caught: rank 0 does not wait, order ", seed), v);
    lost += v.lost;
    EXPECT_EQ(v.invalid, 0u);
  }
  EXPECT_GT(lost, 0u);
}

TEST(StoreRanks, CatchesAFolderThatIsNotSyncedBeforeItsRename) {
  const auto events = saves_of(3, 4);
  CrashFs fs;
  fs.omit = [&](const CrashFs::Op& op) {
    return op.kind == CrashFs::Kind::sync && op.path.starts_with(kShared + "/.tmp-step-") &&
           op.path.rfind('/') == kShared.size();
  };
  play(events, fs, order(4));
  const Verdict v = replay_crashes(fs, {.load = load_shared, .go_on = {}});
  report_ranks("caught: folder not synced", v);
  EXPECT_GT(v.lost, 0u);
}

// ------------------------------------------------------------------------------------- operations that fail
// Saves 1, then 2 with a file system of one's own for each rank: the errors of all ranks.
std::vector<std::string> errors_of(int ranks, const std::function<std::unique_ptr<Fs>(int rank)>& fs_of,
                                   const std::function<std::string(int rank)>& folder_of,
                                   const std::function<void(int rank)>& before_second = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Comm& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    const std::unique_ptr<Fs> fs = fs_of(comm.rank());
    Store store(folder_of(comm.rank()), *fs);
    PieceFiles first(1, 700, me), second(2, 700, me);
    store.save(10, first, state_of(1), comm);
    if (before_second) before_second(comm.rank());
    comm.barrier();
    try {
      store.save(20, second, state_of(2), comm);
    } catch (const Error& e) {
      errors[me] = e.what();
    }
  });
  return errors;
}

// A disk that is full for one of them, a folder that it may only read, a file that is shorter than it was
// written: all hear why, nothing is to be seen of the state, and the one before it stands.
TEST(StoreRanks, WhatOneCannotWriteAllHear) {
  struct Case {
    const char *at, *why;
  };
  for (const Case c : {Case{"create", "reading only"},
                       {"write", "the disk is full"},
                       {"finish", "cannot sync"},
                       {"sync_folder", "cannot sync this folder"}})
    for (const int bad : {0, 1, 2}) {
      const TempFolder folder;
      std::array<bool, 3> armed{};
      const auto errors = errors_of(
          3,
          [&](int rank) -> std::unique_ptr<Fs> {
            return std::make_unique<HookFs>(real_fs(), [&, rank](const char* what, const std::string& path) {
              if (armed[static_cast<std::size_t>(rank)] && std::string_view(what) == c.at &&
                  path.find(".tmp-step-20") != path.npos)
                fail(path, ": ", c.why);
            });
          },
          [&](int) { return folder.path(); },
          [&](int rank) { armed[static_cast<std::size_t>(rank)] = rank == bad; });
      for (const std::string& why : errors) {
        EXPECT_EQ(why, errors[0]) << c.at;
        EXPECT_THAT(why, AllOf(HasSubstr("saving step 20 failed"), HasSubstr(c.why),
                               HasSubstr("nothing that was saved before is lost: step-10")))
            << c.at << " " << bad;
        if (bad > 0 || std::string_view(c.at) != "sync_folder") {
          EXPECT_THAT(why, HasSubstr(concat("rank ", bad, " of 3")));
        }
      }
      const std::vector<std::string> left = real_fs().list(folder.path());
      EXPECT_EQ(left, (std::vector<std::string>{".lock", "step-10"})) << c.at << " " << bad;
      EXPECT_EQ(load_checked(folder.path(), real_fs(), 2600).newest, 1);
    }
}

TEST(StoreRanks, RankZeroLooksAtWhatOthersWrote) {
  const TempFolder folder;
  bool armed = false;
  const auto errors = errors_of(
      3,
      [&](int rank) -> std::unique_ptr<Fs> {
        return std::make_unique<HookFs>(real_fs(), [&, rank](const char* what, const std::string& path) {
          // The last moment before rank 0 asks for its length: somebody cuts it.
          if (rank == 0 && armed && std::string_view(what) == "size" &&
              path.ends_with("optimizer.safetensors"))
            std::filesystem::resize_file(path, 100);
        });
      },
      [&](int) { return folder.path(); },
      [&](int rank) {
        if (rank == 0) armed = true;
      });
  for (const std::string& why : errors)
    EXPECT_THAT(why, AllOf(HasSubstr("rank 0 sees 100 bytes"), HasSubstr("step-10")));
  EXPECT_EQ(real_fs().list(folder.path()), (std::vector<std::string>{".lock", "step-10"}));
}

// Machines that do not share rank 0's folder: whoever sees it writes, and nobody else touches a disk.
TEST(StoreRanks, WhoDoesNotSeeTheFolderWritesNothing) {
  const TempFolder folder, elsewhere;
  run_ranks(4, [&](Comm& comm) {
    const bool sees = comm.rank() % 2 == 0;
    std::vector<std::string> wrote;
    HookFs fs(real_fs(), [&](const char* what, const std::string& path) {
      if (std::string_view(what) == "create") wrote.push_back(path.substr(path.rfind('/') + 1));
    });
    // The same path in another machine's file system is another path here; one rank has none at all.
    Store store(sees ? folder.path() : elsewhere.path() + (comm.rank() == 1 ? "" : "/absent"), fs);
    PieceFiles files(1, 700, static_cast<std::size_t>(comm.rank()));
    store.save(10, files, state_of(1), comm);
    EXPECT_EQ(store.blind(), (std::vector<int>{1, 3}));
    std::vector<std::string> expected;
    if (comm.rank() == 0) expected = {"model.safetensors", "note", "manifest.json"};
    if (comm.rank() == 2) expected = {"optimizer.safetensors", "empty"};
    EXPECT_EQ(wrote, expected) << comm.rank();
  });
  EXPECT_EQ(load_checked(folder.path(), real_fs(), 2600).newest, 1);
  EXPECT_TRUE(real_fs().list(elsewhere.path()).empty());
}

// Where one process saves, pieces are what the whole files are.
TEST(StoreRanks, PiecesMakeTheFilesThatWereWhole) {
  for (const std::size_t piece : {1, 13, 700, 100000}) {
    CrashFs in_pieces, whole;
    PieceFiles files(3, piece);
    const std::unique_ptr<Comm> one = alone();
    const Stored a = Store(kShared, in_pieces).save(7, files, state_of(3), *one),
                 b = Store(kShared, whole).save(7, files_of(3, 2600), state_of(3));
    EXPECT_EQ(in_pieces.list(a.folder), whole.list(b.folder));
    for (const std::string& name : whole.list(b.folder))
      EXPECT_EQ(in_pieces.read(a.folder + "/" + name), whole.read(b.folder + "/" + name)) << name;
  }
}

}  // namespace
}  // namespace rapt::test
