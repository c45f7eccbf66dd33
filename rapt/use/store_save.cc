// SPDX-License-Identifier: Apache-2.0
// Saving, by one process or by the ranks of a job:
//   rank 0 refuses what cannot be saved, takes the lock and makes a folder whose name was never used before;
//   whoever sees that name sees rank 0's folder: the files are dealt to these ranks, one after the other;
//   each writes, syncs and measures its files, and syncs the folder;
//   rank 0 hears of their bytes and sums, looks at each by name and size, writes the manifest and commits;
//   all hear that the state stands, or why it does not. Nobody learns it by looking.
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <random>
#include <set>
#include <utility>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/use/ranks.h"
#include "rapt/use/store.h"
#include "rapt/use/store_parts.h"
#include "rapt/use/together.h"

namespace rapt {
namespace {

constexpr std::uint64_t kBlock = 4096;

std::uint64_t bytes_of(const StateFiles::File& file) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t piece : file.pieces) bytes = checked_add(bytes, piece, "bytes of a file");
  return bytes;
}

// Files that are there as a whole, for one rank.
class WholeFiles final : public StateFiles {
 public:
  explicit WholeFiles(std::span<const StoredFile> files) : whole_(files) {
    for (const StoredFile& f : files) files_.push_back({f.name, {f.bytes.size()}});
  }
  const std::vector<File>& files() const override { return files_; }
  std::span<const std::byte> get(std::span<const std::optional<Piece>> wanted) override {
    return whole_[wanted[0]->file].bytes;
  }

 private:
  const std::span<const StoredFile> whole_;
  std::vector<File> files_;
};

// What a rank says about a file that it wrote.
struct Written {
  std::uint64_t bytes = 0, hash = 0, crc = 0;
};

// One rank's files, as they are written: the first failure ends the writing, and is told at the end.
class Writer {
 public:
  Writer(Fs& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}

  void add(const StateFiles::File& file, std::size_t piece, std::span<const std::byte> bytes) {
    if (!why.empty()) return;
    try {
      const std::string path = folder_ + "/" + file.name;
      if (piece == 0) {
        now_ = {.bytes = bytes_of(file)};
        hash_ = {};
        out_ = fs_.open_new(path, now_.bytes);
      }
      out_->write(bytes);
      now_.crc = crc32(bytes, static_cast<std::uint32_t>(now_.crc));
      hash_.add(bytes);
      if (piece + 1 < file.pieces.size()) return;
      out_->finish();
      out_.reset();
      if (const std::uint64_t there = fs_.size(path); there != now_.bytes)
        fail(path, ": has ", there, " bytes after ", now_.bytes, " were written and synced");
      now_.hash = hash_.value();
      written.push_back(now_);
    } catch (const Error& e) {
      give_up(e.what());
    }
  }
  void sync_folder() {
    if (why.empty()) try {
        fs_.sync_folder(folder_);
      } catch (const Error& e) {
        give_up(e.what());
      }
  }

  std::vector<Written> written;
  std::string why;  // it failed

 private:
  void give_up(const std::string& reason) {
    why = reason;
    out_.reset();
  }

  Fs& fs_;
  const std::string folder_;
  std::unique_ptr<NewFile> out_;
  Written now_;
  Hash64 hash_;
};

}  // namespace

// What rank 0 holds while a state is saved.
struct Store::Saving {
  Fs& fs;
  std::shared_ptr<void> lock;
  Manifest manifest;
  std::string name;                 // step-N
  std::string folder, target;       // paths: where the files are written, and as what they will stand
  bool renamed = false;

  Saving(Fs& of, std::shared_ptr<void> held, Manifest m)
      : fs(of), lock(std::move(held)), manifest(std::move(m)) {}
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  ~Saving() {
    if (renamed || folder.empty()) return;
    try {
      fs.remove_all(folder);
    } catch (const std::exception&) {  // the next save or load clears it away
    }
  }
};

std::unique_ptr<Store::Saving> Store::begin(std::int64_t step, const std::vector<StateFiles::File>& files,
                                            const Json& state, bool several) {
  if (step < 0) fail(folder_, ": cannot save step ", step, "; steps count from 0");
  // What can be refused is refused before the disk is touched.
  Manifest m{.step = step, .files = {}, .state = state};
  std::set<std::string_view> seen;
  std::uint64_t need = 0;
  for (const StateFiles::File& f : files) {
    if (const auto why = bad_name(f.name); !why.empty())
      fail(folder_, ": cannot save a file named ", quote_name(f.name), ": the name ", why);
    if (!seen.insert(f.name).second) fail(folder_, ": cannot save two files named ", quote_name(f.name));
    m.files.push_back({.name = f.name, .bytes = bytes_of(f)});
    need = checked_add(need, (m.files.back().bytes / kBlock + 1) * kBlock, "bytes to save");
  }
  const std::string text = write_manifest(m);  // as long as it will be
  if (text.size() > kMostManifest)
    fail(folder_, ": the state is too large for a manifest (", text.size(), " bytes); save it as a file");
  if (parse_manifest(text, path(std::string(kManifest))).state.dump(0) !=
      state.dump(0))  // bytes that are no text, keys that stand twice
    fail(folder_, ": the state of step ", step, " would not be read back as it is");
  need += (text.size() / kBlock + 4) * kBlock;

  auto lock = hold();
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

  auto saving = std::make_unique<Saving>(fs_, std::move(lock), std::move(m));
  saving->name = name_of(step, generation);
  saving->target = path(saving->name);
  std::string temporary = path(concat(".tmp-step-", step, "-", ::getpid()));
  if (several) {  // another machine's folder must not have it
    std::random_device random;
    for (int i = 0; i < 2; ++i) temporary += concat("-", random());
  }
  const std::string plain = temporary;
  for (int i = 2; fs_.exists(temporary); ++i) temporary = concat(plain, "-", i);  // could not be cleaned
  saving->folder = temporary;
  return saving;
}

// The manifest, and with it the state.
void Store::commit(Saving& s) {
  for (const ManifestEntry& e : s.manifest.files)
    if (const std::uint64_t there = fs_.size(s.folder + "/" + e.name); there != e.bytes)
      fail(s.folder, "/", e.name, ": rank 0 sees ", there, " bytes of it, ", e.bytes, " were written");
  fs_.create(concat(s.folder, "/", kManifest), rapt::bytes_of(write_manifest(s.manifest)));
  fs_.sync_folder(s.folder);
  fs_.rename(s.folder, s.target);
  s.renamed = true;
  fs_.sync_folder(folder_);  // the commit point
}

Stored Store::save(std::int64_t step, std::span<const StoredFile> files, const Json& state) {
  WholeFiles whole(files);
  const std::unique_ptr<Comm> one = alone();
  return save(step, whole, state, *one);
}

Stored Store::save(std::int64_t step, StateFiles& source, const Json& state, Comm& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  const std::vector<StateFiles::File>& files = source.files();
  std::unique_ptr<Saving> saving;  // rank 0's
  const auto failed = [&](const std::string& why) -> std::string {
    const bool stands = saving && saving->renamed;
    return concat("saving step ", step, " failed: ", why, "; ", what_stands(fs_, folder_),
                  stands ? concat(" (", saving->name, " is whole but may be gone after a power cut)") : "");
  };
  const std::string temporary = on_rank_0(comm, [&] {
    saving = begin(step, files, state, ranks > 1);
    try {
      fs_.make_folder(saving->folder);
    } catch (const Error& e) {
      fail(failed(e.what()));
    }
    return saving->folder.substr(folder_.size() + 1);
  });

  // Who sees it, and who writes what.
  bool sees = true;
  if (me > 0) try {
      sees = fs_.exists(path(temporary));
    } catch (const Error&) {
      sees = false;
    }
  std::vector<std::size_t> writers;
  blind_.clear();
  const std::vector<bool> seen = all_say(comm, sees);
  for (std::size_t r = 0; r < ranks; ++r)
    if (seen[r]) writers.push_back(r);
    else blind_.push_back(static_cast<int>(r));
  std::vector<std::vector<StateFiles::Piece>> pieces(ranks);
  std::vector<std::size_t> counts(ranks);  // of files
  std::size_t rounds = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::size_t writer = writers[f % writers.size()];
    for (std::size_t p = 0; p < files[f].pieces.size(); ++p) pieces[writer].push_back({f, p});
    ++counts[writer];
    rounds = std::max(rounds, pieces[writer].size());
  }

  Writer writer(fs_, path(temporary));
  std::vector<std::optional<StateFiles::Piece>> wanted(ranks);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t r = 0; r < ranks; ++r)
      wanted[r] = round < pieces[r].size() ? std::optional(pieces[r][round]) : std::nullopt;
    const std::span<const std::byte> bytes = source.get(wanted);
    if (wanted[me]) writer.add(files[wanted[me]->file], wanted[me]->piece, bytes);
  }
  if (me > 0 && counts[me] > 0) writer.sync_folder();  // rank 0 does when the manifest is there, too
  const std::vector<std::string> reasons = all_say(comm, writer.why);
  writer.written.resize(counts[me]);
  const std::vector<Written> written = gather<Written>(comm, writer.written, counts);

  const std::string name = on_rank_0(comm, [&] {
    for (std::size_t r = 0; r < ranks; ++r)
      if (!reasons[r].empty())
        fail(failed(ranks == 1 ? reasons[r] : concat("rank ", r, " of ", ranks, ": ", reasons[r])));
    std::vector<std::size_t> next(ranks);  // in `written`, of each rank
    for (std::size_t r = 1; r < ranks; ++r) next[r] = next[r - 1] + counts[r - 1];
    for (std::size_t f = 0; f < files.size(); ++f) {
      const Written& w = written[next[writers[f % writers.size()]]++];
      ManifestEntry& e = saving->manifest.files[f];
      e.bytes = w.bytes, e.hash = w.hash, e.crc = static_cast<std::uint32_t>(w.crc);
    }
    try {
      commit(*saving);
    } catch (const Error& e) {
      if (saving->renamed) doubtful_.insert(saving->name);
      fail(failed(e.what()));
    }
    return saving->name;
  });
  if (me == 0) {
    known_[name] = names_in(saving->manifest);
    try {
      prune(name);
    } catch (const Error&) {
      // The state is safe; what could not be removed is tried again after the next one.
    }
  }
  return {step, path(name), state};
}

}  // namespace rapt
