// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before they train: who they are, what they compute with, which processors they
// share.
#include "rapt/apps/cli/train_ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "rapt/base/text.h"
#include "rapt/use/ranks.h"
#include "rapt/use/together.h"

namespace rapt::cli {
namespace {

namespace fs = std::filesystem;

// Every rank's text, in the order of ranks.
std::vector<std::string> texts_of_ranks(Comm& comm, const std::string& mine) {
  const std::uint64_t length = mine.size();
  const std::vector<std::size_t> one(static_cast<std::size_t>(comm.size()), 1);
  const auto lengths = gather<std::uint64_t>(comm, {&length, 1}, one);
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  const std::vector<char> all = gather<char>(comm, mine, counts);
  std::vector<std::string> out;
  std::size_t at = 0;
  for (const std::size_t n : counts) out.emplace_back(all.data() + at, n), at += n;
  return out;
}

// "rank 3", "ranks 0, 1 and 5", "ranks 0, 1, 2 … (64 of them)"
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks[0]);
  std::string out = "ranks ";
  const std::size_t shown = std::min<std::size_t>(ranks.size(), 8);
  for (std::size_t i = 0; i < shown; ++i)
    out += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return shown < ranks.size() ? concat(out, " … (", ranks.size(), " of them)") : out;
}

// "ranks 0 and 1: avx512; rank 2: avx2"; "" where all say the same.
std::string differences(const std::vector<std::string>& said) {
  std::vector<std::pair<std::string, std::vector<int>>> by;  // in the order of ranks
  for (std::size_t r = 0; r < said.size(); ++r) {
    auto same = std::find_if(by.begin(), by.end(), [&](const auto& one) { return one.first == said[r]; });
    if (same == by.end()) same = by.insert(by.end(), {said[r], {}});
    same->second.push_back(static_cast<int>(r));
  }
  if (by.size() == 1) return "";
  std::string out;
  for (const auto& [text, ranks] : by) out += concat(out.empty() ? "" : "; ", ranks_text(ranks), ": ", text);
  return out;
}

// The processors that this process may use, as a word: processes of one machine with equal ones share them.
std::string own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string out = host.data();
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  out += ' ';
  for (int i = 0; i < CPU_SETSIZE; i += 4) {
    int digit = 0;
    for (int b = 0; b < 4; ++b) digit |= CPU_ISSET(i + b, &set) ? 1 << b : 0;
    out += "0123456789abcdef"[digit];
  }
  return out;
}

}  // namespace

TrainRank::TrainRank(Comm& comm, const Launch& launch, TrainArgs& args) : launch_(launch), comm_(&comm) {
  threads_ = args.common.threads;
  if (comm.size() == 1) return;
  if (comm.rank() > 0) {
    args.common.quiet = true, args.common.json = false, args.watch = args.stay = false;
    silence_notes();
  }
  if (const std::string mixed = differences(texts_of_ranks(comm, version_line())); !mixed.empty())
    fail("train: the ranks are not one program (", mixed, "): install the same build on every machine");
  if (const std::string mixed = differences(texts_of_ranks(comm, args.out)); !mixed.empty())
    fail("train: --out differs (", mixed, "): all ranks save into one folder, which all of them see");
  folder_ = (fs::path(args.out) / ".ranks").string();
  on_rank_0(comm, [&] {
    if (const std::string words = last_words(folder_); !words.empty() && !args.force) note(words);
    std::error_code error;
    fs::remove_all(folder_, error);
    fs::create_directories(folder_, error);
    if (error) fail(folder_, ": the folder cannot be made: ", error.message());
    return "";
  });
  heartbeat_ = std::make_unique<Heartbeat>(
      folder_, comm.rank(), comm.size(),
      Heartbeat::Options{.patience = rank_patience(), .say = [](const std::string& text) { note(text); }});
  watched_ = watched(comm, *heartbeat_);
  comm_ = watched_.get();
  threads_ = share_processors(args.common);
}

TrainRank::~TrainRank() = default;

// Ranks that may use the same processors of a machine share them.
int TrainRank::share_processors(const CommonArgs& common) {
  const std::vector<std::string> all = texts_of_ranks(*comm_, own_processors());
  const std::string& own = all[static_cast<std::size_t>(comm_->rank())];
  const int sharing = static_cast<int>(std::count(all.begin(), all.end(), own));
  const std::string machine = own.substr(0, own.find(' '));
  const auto here = std::count_if(all.begin(), all.end(),
                                  [&](const std::string& s) { return s.starts_with(machine + " "); });
  const long there = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int allowed = processors();
  const bool bound = allowed == 1 && there > here;
  const auto ones = std::vector<std::size_t>(all.size(), 1);
  const auto all_bound = gather<char>(*comm_, std::array{static_cast<char>(bound)}, ones);
  if (const auto n = std::count(all_bound.begin(), all_bound.end(), 1); n > 0 && speaks())
    note(concat(
        "note: ", n == 1 ? "a rank" : concat(n, " ranks"), " may use one processor only of more that ",
        n == 1 ? "its machine has" : "their machines have", ": the launcher binds ", n == 1 ? "it" : "them",
        launch_.by == Launcher::openmpi ? "; give mpirun --bind-to none, or --map-by with PE=N"
        : launch_.by == Launcher::slurm ? "; give srun --cpus-per-task N, or --cpu-bind=none"
                                        : ""));
  const char* set = std::getenv("RAPT_THREADS");
  if (common.threads > 0 || (set && *set)) return common.threads;
  return std::max(1, allowed / sharing);
}

void TrainRank::compare(const Device& device) const {
  if (comm_->size() == 1) return;
  const std::vector<std::string> isas = texts_of_ranks(*comm_, std::string(device.kernels.isa));
  const std::vector<std::string> can = texts_of_ranks(*comm_, join(available_isas(), " "));
  const std::string mixed = differences(isas);
  if (mixed.empty()) return;
  std::string common = "scalar";
  for (const std::string& isa : available_isas())
    if (std::all_of(can.begin(), can.end(), [&](const std::string& list) {
          return concat(" ", list, " ").find(concat(" ", isa, " ")) != std::string::npos;
        }))
      common = isa;
  fail("train: the ranks compute with different instruction sets (", mixed,
       "), and the bits of the run would depend on who computes what; RAPT_ISA=", common,
       " for all of them is what all have");
}

std::string TrainRank::about(const Device& device, const TrainingRun& training, const TrainOptions& o) const {
  if (comm_->size() == 1) return "";
  const auto ranks = static_cast<double>(comm_->size());
  Dim least = o.accumulate, most = 0;
  std::size_t nodes = 0;  // sums of its leaves that a rank sends, at most
  for (int r = 0; r < comm_->size(); ++r) {
    const LeafRange range = leaves_of(o.accumulate, r, comm_->size());
    least = std::min(least, range.end - range.first), most = std::max(most, range.end - range.first);
    nodes = std::max(nodes, nodes_of(range).nodes().size());
  }
  const TrainMemory m =
      train_memory(training.checkpoint->model->recipe, o.optimizer, device.real, std::max<Dim>(most, 1));
  const double memory = m.weights + m.gradients + m.moments / ranks;
  const double sent = (static_cast<double>(nodes) + 1) * m.weights * (1 - 1 / ranks);
  std::string out =
      concat(comm_->size(), " ranks by ", name_of(launch_.by), launch_.mpi.empty() ? " over sockets" : "",
             ", ", counted(device.threads(), "thread"), " each; ", with_commas(o.accumulate),
             o.accumulate > 1 ? " batches" : " batch", " a step, ",
             least == most ? concat(most) : concat(least, " to ", most),
             " a rank; weights, gradients and moments of a rank ", byte_count(memory),
             ", sent by it in a step at most ", byte_count(sent));
  if (least == 0)
    out += concat("; ", static_cast<Dim>(ranks) - o.accumulate, " of ", comm_->size(),
                  " ranks have no batch to compute: --accumulate ", comm_->size(), " would give each one");
  return out;
}

void TrainRank::failed(const std::string& why) {
  if (heartbeat_) heartbeat_->failed(why);
}

void TrainRank::done() {
  if (!heartbeat_) return;
  heartbeat_->done();
  comm_->barrier();
  if (!speaks()) return;
  std::error_code error;  // what stays does no harm
  fs::remove_all(folder_, error);
}

}  // namespace rapt::cli
