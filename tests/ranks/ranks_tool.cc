// SPDX-License-Identifier: Apache-2.0
// One rank of several that a launcher started: moves bytes through every call and compares each with what
// it should be, or does what ends a job. Run by tests/ranks/ranks_test.py.
//   ranks_tool move | disagree | lengths | early | fail | abort | large | times
// Without a launcher, a training whose ranks are threads:
//   ranks_tool train RANKS RECIPE --data … (the words of rapt train)
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "rapt/apps/cli/train.h"
#include "rapt/base/error.h"
#include "rapt/base/rng.h"
#include "rapt/comm/job.h"

namespace rapt {
namespace {

using ByteVector = std::vector<std::byte>;

// What rank `from` sends to rank `to` in a round; every third piece is empty, lengths are odd.
ByteVector message(int from, int to, int round) {
  const std::uint64_t key = mix_key(mix_key(static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to)),
                                    static_cast<std::uint64_t>(round));
  const std::uint64_t most = round % 5 == 0 ? 300'000 : 5000;
  ByteVector out((from + to + round) % 3 == 0 ? 0 : random_below(most, key, 0) | 1);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(mix_key(key, i));
  return out;
}

void check(bool same, const char* what, int round) {
  if (!same) fail(what, ": wrong bytes in round ", round);
}

void move_everything(Comm& comm) {
  const int n = comm.size(), me = comm.rank();
  const auto size = static_cast<std::size_t>(n);
  for (int round = 0; round < 20; ++round) {
    std::vector<ByteVector> out(size), in(size), all(size);
    std::vector<Comm::Bytes> send;
    std::vector<Comm::Space> receive, gathered;
    for (int r = 0; r < n; ++r) {
      const auto i = static_cast<std::size_t>(r);
      out[i] = message(me, r, round);
      in[i].resize(message(r, me, round).size());
      all[i].resize(message(r, r, round).size());
      send.emplace_back(out[i]), receive.emplace_back(in[i]), gathered.emplace_back(all[i]);
    }
    comm.all_to_all(send, receive);
    for (int r = 0; r < n; ++r)
      check(in[static_cast<std::size_t>(r)] == message(r, me, round), "all_to_all", round);

    const ByteVector mine = message(me, me, round);
    const bool in_place = round % 2 == 1;
    if (in_place) all[static_cast<std::size_t>(me)] = mine;
    comm.all_gather(in_place ? Comm::Bytes(all[static_cast<std::size_t>(me)]) : Comm::Bytes(mine), gathered);
    for (int r = 0; r < n; ++r)
      check(all[static_cast<std::size_t>(r)] == message(r, r, round), "all_gather", round);

    const int from = round % n;
    ByteVector news = message(from, 99, round);
    if (me != from) news.assign(news.size(), std::byte{7});
    comm.broadcast(news, from);
    check(news == message(from, 99, round), "broadcast", round);
    comm.barrier();
  }
}

// Longer than a message may be.
void move_large(Comm& comm) {
  ByteVector bytes((std::size_t{1} << 30) + 12345);
  const auto at = [](std::size_t i) { return static_cast<std::byte>(i * 2654435761u >> 13); };
  if (comm.rank() == 1)
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = at(i);
  comm.broadcast(bytes, 1);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != at(i)) fail("broadcast: wrong byte ", i);
}

void show_times(Comm& comm) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1000}, std::size_t{100'000}, std::size_t{4'000'000}}) {
    std::vector<ByteVector> all(static_cast<std::size_t>(comm.size()), ByteVector(bytes));
    std::vector<Comm::Space> spaces(all.begin(), all.end());
    const int calls = bytes > 1'000'000 ? 20 : 200;
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) comm.all_gather(all[static_cast<std::size_t>(comm.rank())], spaces);
    const double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
    if (comm.rank() == 0)
      std::printf("all_gather of %zu bytes each, %d ranks: %.0f us\n", bytes, comm.size(), us);
  }
}

void run(const std::string& what, Comm& comm) {
  std::byte b{};
  ByteVector bytes(3);
  const bool odd = comm.rank() == 1;
  if (what == "move") move_everything(comm);
  else if (what == "large") move_large(comm);
  else if (what == "times") show_times(comm);
  else if (what == "disagree" && odd) comm.broadcast({&b, 1}, 0);
  else if (what == "disagree") comm.barrier();
  else if (what == "lengths") comm.broadcast(odd ? Comm::Space(&b, 1) : Comm::Space(bytes), 0);
  else if (what == "early" && odd) return;
  else if (what == "early") comm.barrier();
  else if (what == "fail" && odd) fail("the disk is full");
  else if (what == "abort" && odd) comm.abort("the disk is full");
  else if (what == "fail" || what == "abort")
    for (;;) comm.barrier();
  else fail("unknown: ", what);
}

void train_in_threads(int ranks, const std::vector<std::string>& words) {
  run_ranks(ranks, [&](Comm& comm) {
    cli::Args args(words, "train");
    const cli::TrainArgs a = cli::train_args(args);
    Device device(DeviceOptions{.threads = 1});
    TrainingRun training(device, a.plan, {}, &comm);
    training.open_folder(a.out, a.force, [](const std::string&) {});
    const std::atomic<int> never{0};
    training.run({}, never);
    training.finish();
  });
}

}  // namespace
}  // namespace rapt

int main(int argc, char** argv) {
  try {
    if (argc > 3 && std::string(argv[1]) == "train") {
      rapt::train_in_threads(std::stoi(argv[2]), {argv + 3, argv + argc});
      return 0;
    }
    const rapt::Launch launch = rapt::find_launch();
    const std::string what = argc > 1 ? argv[1] : "";
    rapt::run_job(launch, [&](rapt::Comm& comm) { rapt::run(what, comm); });
    if (launch.rank == 0) std::printf("%s: %d ranks, done\n", what.c_str(), launch.ranks);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
