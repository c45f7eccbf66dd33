// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: every byte arrives where it should, whatever its length; a rank that fails, disagrees or
// ends early ends the others with a message that names it.
#include "rapt/comm/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/base/rng.h"

namespace rapt {
namespace {

using testing::HasSubstr;
using ByteVector = std::vector<std::byte>;

// What rank `from` sends to rank `to` in a round; every third piece is empty, lengths are odd.
ByteVector message(int from, int to, int round) {
  const std::uint64_t key = mix_key(mix_key(static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to)),
                                    static_cast<std::uint64_t>(round));
  ByteVector out((from + to + round) % 3 == 0 ? 0 : random_below(5000, key, 0) | 1);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(random_below(256, key, i + 1));
  return out;
}

std::string job_error(int ranks, const std::function<void(Comm&)>& f) {
  try {
    run_ranks(ranks, f);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
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
    for (int r = 0; r < n; ++r) EXPECT_EQ(in[static_cast<std::size_t>(r)], message(r, me, round));

    const ByteVector mine = message(me, me, round);
    const bool in_place = round % 2 == 1;
    if (in_place) all[static_cast<std::size_t>(me)] = mine;
    comm.all_gather(in_place ? Comm::Bytes(all[static_cast<std::size_t>(me)]) : Comm::Bytes(mine), gathered);
    for (int r = 0; r < n; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], message(r, r, round));

    const int from = round % n;
    ByteVector news = message(from, 99, round);
    if (me != from) news.assign(news.size(), std::byte{7});
    comm.broadcast(news, from);
    EXPECT_EQ(news, message(from, 99, round));
  }
}

TEST(Comm, MovesEveryByteAndNoOther) {
  move_everything(*alone());
  for (const int ranks : {1, 2, 3, 5, 8}) EXPECT_EQ(job_error(ranks, move_everything), "");
}

TEST(Comm, ABarrierHoldsUntilAllAreThere) {
  std::atomic<int> before{0};
  run_ranks(5, [&](Comm& comm) {
    for (int round = 1; round <= 50; ++round) {
      ++before;
      comm.barrier();
      EXPECT_EQ(before, 5 * round);
      comm.barrier();
    }
  });
}

TEST(Comm, ARankThatFailsEndsTheOthersWithItsMessage) {
  for (const bool by_abort : {false, true}) {
    std::atomic<int> ended{0};
    const std::string error = job_error(4, [&](Comm& comm) {
      comm.barrier();
      try {
        if (comm.rank() == 2) {
          if (by_abort) comm.abort("the disk is full");
          fail("the disk is full");
        }
        for (;;) comm.barrier();
      } catch (const Error& e) {
        if (comm.rank() != 2 || by_abort) EXPECT_STREQ(e.what(), "rank 2 of 4: the disk is full");
        ++ended;
        throw;
      }
    });
    EXPECT_EQ(error, "rank 2 of 4: the disk is full");
    EXPECT_EQ(ended, 4);
  }
  EXPECT_EQ(job_error(3,
                      [](Comm& comm) {
                        if (comm.rank() == 1) throw 5;
                        comm.barrier();
                      }),
            "rank 1 of 3: an exception");
  try {
    alone()->abort("no reason");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank 0 of 1: no reason");
  }
}

TEST(Comm, RanksThatDisagreeAreNotLeftWaiting) {
  const auto two = [](const std::function<void(Comm&)>& f) { return job_error(2, f); };
  EXPECT_EQ(two([](Comm& comm) {
              std::byte b{};
              if (comm.rank() == 0) comm.barrier();
              else comm.broadcast({&b, 1}, 0);
            }),
            "comm: rank 0 calls barrier, rank 1 broadcast");
  EXPECT_EQ(two([](Comm& comm) {
              std::byte b{};
              comm.broadcast({&b, 1}, comm.rank());
            }),
            "comm: broadcast: rank 0 expects it from rank 0, rank 1 from rank 1");
  EXPECT_EQ(two([](Comm& comm) {
              ByteVector bytes(comm.rank() == 0 ? 3 : 4);
              comm.broadcast(bytes, 0);
            }),
            "comm: broadcast: rank 0 sends 3 bytes to rank 1, which expects 4");
  EXPECT_EQ(two([](Comm& comm) {
              ByteVector a(2), b(comm.rank() == 0 ? 2 : 1);
              const Comm::Space all[] = {a, b};
              comm.all_gather(a, all);
            }),
            "comm: all_gather: rank 1 sends 2 bytes to rank 1, which expects 1");
  EXPECT_EQ(two([](Comm& comm) {
              if (comm.rank() == 1) return;
              comm.barrier();
            }),
            "comm: rank 1 of 2 has ended while others wait for it");
  EXPECT_THAT(two([](Comm& comm) {
                const Comm::Bytes one[1] = {};
                const Comm::Space none[2] = {};
                comm.all_to_all(one, none);
              }),
              HasSubstr("comm: all_to_all sends 1 pieces; there are 2 ranks"));
  EXPECT_THAT(two([](Comm& comm) { comm.broadcast({}, 2); }), HasSubstr("there are ranks 0 to 1"));
  EXPECT_THAT(job_error(0, [](Comm&) {}), HasSubstr("at least one"));
}

}  // namespace
}  // namespace rapt
