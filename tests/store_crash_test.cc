// SPDX-License-Identifier: Apache-2.0
// Power cuts: several saves are recorded, then every disk that a crash could leave is made and loaded from.
// The same harness must catch savers with one thing wrong; without that, its silence about ours would mean
// nothing.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/build_kind.h"
#include "tests/crash_fs.h"
#include "tests/store_tools.h"

namespace rapt::test {
namespace {

const std::string kFolder = "/runs/one";

// A state as our Store writes it, for savers that write it wrongly: name and bytes, the manifest last.
std::vector<StoredFile> whole_state(std::int64_t n) {
  CrashFs fs;
  const Stored stored = Store("/x", fs).save(n, files_of(n), state_of(n));
  std::vector<StoredFile> files = files_of(n);
  files.push_back({"manifest.json", fs.read(stored.folder + "/manifest.json")});
  return files;
}

// A loader that believes a manifest without looking at sums: what is there is what was saved.
Found load_trusting(Fs& fs) {
  Found found;
  if (!fs.exists(kFolder)) return found;
  for (const std::string& name : fs.list(kFolder)) {
    const std::string folder = kFolder + "/" + name;
    if (!name.starts_with("step-") || !fs.exists(folder + "/manifest.json")) continue;
    const std::int64_t n = std::stoll(name.substr(5));
    ++found.valid;
    if (n < found.newest) continue;
    found.newest = n;
    found.right = true;
    for (const StoredFile& f : files_of(n)) {
      const std::string path = folder + "/" + f.name;
      found.right = found.right && fs.exists(path) && fs.read(path) == f.bytes;
    }
  }
  return found;
}

// The real store saves `steps` one after the other; a save is promised at its commit point, before anything
// is pruned.
void record_store(CrashFs& fs, const std::vector<std::int64_t>& steps, std::int64_t first = 1, int keep = 2) {
  std::int64_t n = first;
  bool renamed = false;
  fs.after = [&](const CrashFs::Op& op) {
    if (op.kind == CrashFs::Kind::rename && op.to.starts_with("step-")) renamed = true;
    if (op.kind == CrashFs::Kind::sync && op.path == kFolder && renamed) renamed = false, fs.promise(n);
  };
  Store store(kFolder, fs, keep);
  for (const std::int64_t step : steps) {
    store.save(step, files_of(n), state_of(n));
    fs.promise(n++);
  }
  fs.after = {};
}

Replay checked() {
  return {.load = [](Fs& fs) { return load_checked(kFolder, fs); }, .go_on = {}};
}

// After a crash the run goes on: its next save must stand, and nothing may be left lying around.
void go_on(CrashFs& fs) {
  Store store(kFolder, fs);
  const auto newest = store.latest();
  const std::int64_t n = newest ? number_of(*newest) + 1 : 1, step = newest ? newest->step + 1 : 1;
  store.save(step, files_of(n), state_of(n));
  const Found found = load_checked(kFolder, fs);
  if (found.newest != n || !found.right) fail("the save after the crash is not there");
  for (const std::string& name : fs.list(kFolder))
    if (name.starts_with(".tmp-")) fail("left over: ", name);
}

void report(const char* what, const Verdict& v) {
  testing::Test::RecordProperty("counts", concat(what, ": ", v.text()));
  std::printf("[  COUNTS  ] %s: %s\n", what, v.text().c_str());
}

// Steps with one saved twice, with gaps, and enough of them that pruning happens under way.
const std::vector<std::int64_t> kSteps{0,   10,  20,  20,  30,  40,  100, 110, 110,
                                       110, 120, 130, 140, 200, 201, 202, 300};

TEST(StoreCrash, NoPowerCutLosesASavedState) {
  RAPT_NOT_SANITIZED("thousands of power cuts");
  CrashFs fs;
  record_store(fs, kSteps);
  Replay how = checked();
  how.go_on = go_on;
  how.random = 16;
  const Verdict v = replay_crashes(fs, how);
  report("power cuts", v);
  EXPECT_GE(v.distinct, 2000u);
  EXPECT_EQ(0u, v.failures()) << v.text();
}

TEST(StoreCrash, NorWhereMoreAreKeptOrLargerFilesTorn) {
  CrashFs fs;
  record_store(fs, {1, 2, 3, 4, 5, 6}, 1, 4);
  const Verdict v = replay_crashes(
      fs, {.load = [](Fs& f) { return load_checked(kFolder, f); }, .go_on = go_on, .random = 20, .seed = 7});
  report("power cuts, four kept", v);
  EXPECT_EQ(0u, v.failures()) << v.text();
}

// The power goes again while the run that follows cleans up and saves.
TEST(StoreCrash, NorASecondPowerCutDuringRecovery) {
  RAPT_NOT_SANITIZED("thousands of power cuts");
  CrashFs first;
  record_store(first, {1, 2, 3, 4});
  Verdict sum;
  std::size_t number = 0;
  std::int64_t promised = -1, kept = 0;
  for (std::size_t end = 0; end <= first.ops().size(); ++end) {
    if (end > 0)
      if (const auto& op = first.ops()[end - 1]; op.promised > promised) promised = op.promised, ++kept;
    const auto pending = first.pending(end);
    for (const auto& fates : first.fates(pending, 2, end)) {
      if (number++ % 41 != 0) continue;  // a sample
      CrashFs second(first.crash(end, pending, fates));
      Store store(kFolder, second);
      const auto newest = store.latest();
      const std::int64_t n = newest ? number_of(*newest) + 1 : 1;
      store.save(newest ? newest->step + 1 : 1, files_of(n), state_of(n));
      second.promise(n);
      Replay how = checked();
      how.random = 2, how.promised = promised, how.kept = kept;
      const Verdict v = replay_crashes(second, how);
      sum.prefixes += v.prefixes, sum.disks += v.disks, sum.distinct += v.distinct, sum.lost += v.lost,
          sum.invalid += v.invalid, sum.few += v.few;
      sum.half += v.half;
      if (sum.example.empty()) sum.example = v.example;
    }
  }
  report("second power cut", sum);
  EXPECT_GE(sum.distinct, 1000u);
  EXPECT_EQ(0u, sum.failures()) << sum.text();
}

// A process that is killed and leaves unsynced names behind, then one that goes on, then the power: what the
// second promised counts.
TEST(StoreCrash, NorAPowerCutAfterAKill) {
  CrashFs whole;
  record_store(whole, {1, 2, 3});
  Verdict sum;
  for (std::size_t stop = 0; stop < whole.ops().size(); ++stop) {
    CrashFs fs;  // its unsynced operations stay unsynced
    fs.fail_at = stop, fs.fail_until = ~std::size_t{0};
    try {
      record_store(fs, {1, 2, 3});
    } catch (const Error&) {}
    fs.after = {};
    fs.fail_at = ~std::size_t{0};
    Store store(kFolder, fs);
    const auto newest = store.latest();
    const std::int64_t n = newest ? number_of(*newest) + 1 : 1;
    store.save(newest ? newest->step + 1 : 1, files_of(n), state_of(n));
    fs.promise(n);
    const auto pending = fs.pending(fs.ops().size());
    for (const auto& fates : fs.fates(pending, 6, stop)) {
      CrashFs disk(fs.crash(fs.ops().size(), pending, fates));
      const Found found = load_checked(kFolder, disk);
      ++sum.disks, sum.lost += found.newest < n, sum.invalid += !found.right, sum.half += !found.said.empty();
      if (found.newest < n && sum.example.empty()) sum.example = concat("killed at operation ", stop);
    }
    ++sum.prefixes;
  }
  report("kill, then power cut", sum);
  EXPECT_EQ(0u, sum.failures()) << sum.text();
}

// ----------------------------------------------------------------------------------- savers that are caught
// Our store on a file system that leaves something out.
Verdict without(const std::function<bool(const CrashFs&, const CrashFs::Op&)>& omit,
                const std::function<Found(Fs&)>& load) {
  CrashFs fs;
  fs.omit = [&](const CrashFs::Op& op) { return op.kind == CrashFs::Kind::sync && omit(fs, op); };
  Store store(kFolder, fs);
  for (std::int64_t n = 1; n <= 4; ++n) {
    store.save(n, files_of(n), state_of(n));
    fs.promise(n);
  }
  return replay_crashes(fs, {.load = load, .go_on = {}});
}
bool is_file(const CrashFs& fs, const CrashFs::Op& op) {
  return !fs.live().nodes[static_cast<std::size_t>(op.node)].folder;
}
Found load_ours(Fs& fs) { return load_checked(kFolder, fs); }

TEST(StoreCrash, CatchesFilesThatAreNotSynced) {
  const Verdict v =
      without([](const CrashFs& fs, const CrashFs::Op& op) { return is_file(fs, op); }, load_ours);
  report("caught: files not synced", v);
  EXPECT_GT(v.lost, 0u);
  EXPECT_EQ(0u, v.invalid);  // the sums hold the line: what is broken is never handed out
}

TEST(StoreCrash, CatchesOneFileThatIsNotSynced) {
  RAPT_NOT_SANITIZED("thousands of power cuts");
  for (const StoredFile& file : whole_state(1)) {
    if (file.bytes.empty()) continue;
    const Verdict v = without(
        [&](const CrashFs&, const CrashFs::Op& op) { return op.path.ends_with("/" + file.name); }, load_ours);
    report(("caught: not synced: " + file.name).c_str(), v);
    EXPECT_GT(v.lost, 0u) << file.name;
  }
}

TEST(StoreCrash, CatchesAFolderThatIsNotSyncedBeforeItsRename) {
  const Verdict v = without(
      [](const CrashFs&, const CrashFs::Op& op) { return op.path.starts_with(kFolder + "/.tmp-step-"); },
      load_ours);
  report("caught: folder not synced before the rename", v);
  EXPECT_GT(v.lost, 0u);
}

TEST(StoreCrash, CatchesAParentThatIsNotSyncedBeforePruningAndReporting) {
  const Verdict v =
      without([](const CrashFs&, const CrashFs::Op& op) { return op.path == kFolder; }, load_ours);
  report("caught: parent not synced", v);
  EXPECT_GT(v.lost, 0u);
}

// An old name comes back with half its files.
TEST(StoreCrash, CatchesPruningWithoutASyncBeforeTheUnlinks) {
  bool renamed_away = false;
  CrashFs fs;
  fs.after = [&](const CrashFs::Op& op) {
    if (op.kind == CrashFs::Kind::rename) renamed_away = op.to.starts_with(".tmp-del-");
  };
  fs.omit = [&](const CrashFs::Op& op) {
    return op.kind == CrashFs::Kind::sync && op.path == kFolder && renamed_away;
  };
  Store store(kFolder, fs);
  for (std::int64_t n = 1; n <= 4; ++n) {
    store.save(n, files_of(n), state_of(n));
    fs.promise(n);
  }
  const auto count_broken = [](Fs& disk) {  // also those older than the newest valid one
    Found found = load_checked(kFolder, disk);
    for (const std::string& name : disk.list(kFolder)) found.valid -= name.starts_with("step-");
    if (found.valid != 0) found.said.push_back("an older state is broken");
    found.valid = 2;
    return found;
  };
  const auto safe = [&](Fs& disk) { return disk.exists(kFolder) ? count_broken(disk) : Found{.valid = 2}; };
  const Verdict v = replay_crashes(fs, {.load = safe, .go_on = {}});
  report("caught: pruning not synced", v);
  EXPECT_GT(v.half, 0u);
  CrashFs good;
  record_store(good, {1, 2, 3, 4});
  // Ours leaves no broken one of any age.
  EXPECT_EQ(0u, replay_crashes(good, {.load = safe, .go_on = {}}).half);
}

TEST(StoreCrash, CatchesWayToTheFolderThatIsNotSynced) {
  const Verdict v =
      without([](const CrashFs&, const CrashFs::Op& op) { return op.path == "/runs"; }, load_ours);
  report("caught: folder above not synced", v);
  EXPECT_GT(v.lost, 0u);
}

// Savers with another order of steps. All sync every file and folder they touch.
Verdict by_hand(const std::function<void(CrashFs&, std::int64_t, const std::vector<StoredFile>&)>& save,
                const std::function<Found(Fs&)>& load) {
  CrashFs fs;
  fs.make_folder("/runs");
  fs.make_folder(kFolder);
  fs.sync_folder("/");
  fs.sync_folder("/runs");
  for (std::int64_t n = 1; n <= 6; ++n) {
    save(fs, n, whole_state(n));
    fs.promise(n);
  }
  return replay_crashes(fs, {.load = load, .go_on = {}});
}
std::string folder_of(std::int64_t n) { return concat(kFolder, "/step-", n); }
void write_folder(CrashFs& fs, const std::string& folder, const std::vector<StoredFile>& files) {
  fs.make_folder(folder);
  for (const StoredFile& f : files) fs.create(folder + "/" + f.name, f.bytes);
  fs.sync_folder(folder);
}

// Or the next ones would be caught for something else.
TEST(StoreCrash, TheHandMadeSaverWithTheRightOrderPasses) {
  const auto save = [](CrashFs& fs, std::int64_t n, const std::vector<StoredFile>& files) {
    write_folder(fs, kFolder + "/.tmp-x", files);
    fs.rename(kFolder + "/.tmp-x", folder_of(n));
    fs.sync_folder(kFolder);
  };
  const Verdict ours = by_hand(save, load_ours), trusting = by_hand(save, load_trusting);
  EXPECT_EQ(0u, ours.failures()) << ours.text();
  EXPECT_EQ(0u, trusting.failures()) << trusting.text();
}

TEST(StoreCrash, CatchesDeletingBeforeRenaming) {
  const Verdict v = by_hand(
      [](CrashFs& fs, std::int64_t n, const std::vector<StoredFile>& files) {
        write_folder(fs, kFolder + "/.tmp-x", files);
        fs.remove_all(folder_of(n - 1));
        fs.rename(kFolder + "/.tmp-x", folder_of(n));
        fs.sync_folder(kFolder);
      },
      load_ours);
  report("caught: delete before rename", v);
  EXPECT_GT(v.lost, 0u);
}

// Into the final folder: a manifest is no sign that the rest is there.
TEST(StoreCrash, CatchesTheManifestWrittenFirst) {
  const auto save = [](CrashFs& fs, std::int64_t n, std::vector<StoredFile> files) {
    std::rotate(files.begin(), files.end() - 1, files.end());
    write_folder(fs, folder_of(n), files);
    fs.sync_folder(kFolder);
  };
  const Verdict trusting = by_hand(save, load_trusting), ours = by_hand(save, load_ours);
  report("caught: manifest first", trusting);
  EXPECT_GT(trusting.invalid, 0u);
  EXPECT_GT(ours.half, 0u);
  EXPECT_EQ(0u, ours.invalid);
}

TEST(StoreCrash, CatchesWritingInPlace) {
  const auto save = [](CrashFs& fs, std::int64_t n, const std::vector<StoredFile>& files) {
    const std::string folder = kFolder + "/step-1";
    if (!fs.exists(folder)) return write_folder(fs, folder, files), fs.sync_folder(kFolder);
    std::vector<StoredFile> same_step = files;  // the manifest says step 1, as the folder does
    CrashFs other;
    const Stored stored = Store("/x", other).save(1, files_of(n), state_of(n));
    same_step.back().bytes = other.read(stored.folder + "/manifest.json");
    for (const StoredFile& f : same_step)
      fs.overwrite(folder + "/" + f.name, f.bytes), fs.sync_file(folder + "/" + f.name);
  };
  const Verdict v = by_hand(save, load_ours);
  report("caught: in place", v);
  EXPECT_GT(v.lost, 0u);
  EXPECT_EQ(0u, v.invalid);
}

// Together with a lazy sync: wrong bytes are handed out; with sums they are not (above).
TEST(StoreCrash, CatchesALoaderWithoutSums) {
  const auto data = [](const CrashFs& fs, const CrashFs::Op& op) {
    return is_file(fs, op) && !op.path.ends_with("manifest.json");
  };
  const Verdict v = without(data, load_trusting);
  report("caught: no sums", v);
  EXPECT_GT(v.invalid, 0u);
}

// ------------------------------------------------------------------------------------- operations that fail
TEST(StoreFault, AnyFailingOperationLeavesWhatWasSaved) {
  std::size_t failed = 0, late = 0;
  for (const bool forever : {false, true})
    for (std::size_t k = 0, through = 0; !through; ++k) {
      CrashFs fs;
      Store store(kFolder, fs);
      for (std::int64_t n = 1; n <= 3; ++n) store.save(n, files_of(n), state_of(n));
      fs.fail_at = fs.tried() + k, fs.fail_until = forever ? ~std::size_t{0} : 0;
      std::string why;
      try {
        store.save(4, files_of(4), state_of(4));
        through = fs.tried() <= fs.fail_at;
      } catch (const Error& e) {
        why = e.what();
      }
      fs.fail_at = ~std::size_t{0};
      CrashFs killed(fs.live());
      const Found found = load_checked(kFolder, killed);
      ASSERT_TRUE(found.right && found.said.empty()) << k << ": " << why;
      ASSERT_GE(found.valid, 2) << k;
      if (!why.empty()) {
        ++failed;
        EXPECT_TRUE(found.newest == 3 || found.newest == 4) << k;
        EXPECT_NE(why.find("step 4"), why.npos) << why;
        EXPECT_NE(why.find("nothing that was saved before is lost: step-2, step-3"), why.npos) << why;
      } else {
        EXPECT_EQ(4, found.newest) << k;  // committed; only pruning can have failed
        ++late;
      }
      ASSERT_NO_THROW(store.save(5, files_of(5), state_of(5))) << k;  // the same object goes on
      EXPECT_EQ(5, load_checked(kFolder, fs).newest);
      for (const std::string& name : fs.list(kFolder)) EXPECT_FALSE(name.starts_with(".tmp-")) << name;
    }
  std::printf("[  COUNTS  ] failing operations: %zu saves failed, %zu committed all the same\n", failed,
              late);
  EXPECT_GT(failed, 40u);
}

// The same at the level of calls, reading ones included, on the real file system's rules (a HookFs
// over ours).
TEST(StoreFault, AnyFailingCallLeavesWhatWasSaved) {
  for (long k = 0, through = 0; !through; ++k) {
    CrashFs fs;
    long count = -1;
    HookFs hook(fs, [&](const char* what, const std::string& path) {
      if (count >= 0 && count++ == k) fail(path, ": ", what, " fails on purpose");
    });
    Store store(kFolder, hook);
    for (std::int64_t n = 1; n <= 3; ++n) store.save(n, files_of(n), state_of(n));
    count = 0;
    try {
      store.save(4, files_of(4), state_of(4));
      through = count <= k;
    } catch (const Error&) {}
    count = -1;
    const Found found = load_checked(kFolder, fs);
    EXPECT_TRUE(found.newest >= 3 && found.right && found.said.empty() && found.valid >= 2) << "call " << k;
    EXPECT_NO_THROW(store.save(5, files_of(5), state_of(5)));
    EXPECT_EQ(5, load_checked(kFolder, fs).newest);
  }
}

// A folder whose sync failed after the rename may vanish with the power: it does not count as kept, so older
// ones stay.
TEST(StoreFault, AStateWhoseCommitFailedDoesNotCountAsKept) {
  CrashFs fs;
  Store store(kFolder, fs);
  for (std::int64_t n = 1; n <= 2; ++n) store.save(n, files_of(n), state_of(n));
  bool armed = true;
  HookFs hook(fs, [&](const char* what, const std::string& path) {
    if (armed && std::string(what) == "sync_folder" && path == kFolder) fail(path, ": fails on purpose");
  });
  Store careful(kFolder, hook);
  EXPECT_THROW(careful.save(3, files_of(3), state_of(3)), Error);
  armed = false;
  careful.save(4, files_of(4), state_of(4));
  EXPECT_TRUE(fs.exists(kFolder + "/step-2"));
  EXPECT_TRUE(fs.exists(kFolder + "/step-4"));
  EXPECT_FALSE(fs.exists(kFolder + "/step-1"));
}

}  // namespace
}  // namespace rapt::test
