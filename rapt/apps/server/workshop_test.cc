// SPDX-License-Identifier: Apache-2.0
// Runs of the workshop: their events and their ends, whatever is thrown, and who may see them. What they
// compute is tested by tests/serve/lab_test.py.
#include "rapt/apps/server/workshop.h"

#include <gtest/gtest.h>

#include <dirent.h>

#include <chrono>
#include <future>
#include <new>
#include <stdexcept>

#include "rapt/apps/server/protocol_error.h"

namespace rapt::server {
namespace {

using Bench = Workshop::Bench;

std::string line(std::string_view json) { return parse_json(json).dump(0); }
Json said(int n) { return Json::Object{{"kind", "said"}, {"n", n}}; }

// Everything from `from` on, once the run has ended.
std::vector<std::string> all_of(const Workshop& shop, const std::string& id, std::size_t key = 0,
                                Dim from = 0) {
  for (int i = 0; i < 5000; ++i) {
    const Workshop::Part part = shop.events(id, key, from);
    if (part.ended) return part.events;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ADD_FAILURE() << "the run does not end";
  return {};
}
Json last_of(const Workshop& shop, const std::string& id) { return parse_json(all_of(shop, id).back()); }

int refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const ApiError& error) {
    return error.status;
  }
  return 0;
}

std::size_t threads_of_process() {
  std::size_t count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

TEST(Workshop, EventsComeInOrderAndFromANumberOn) {
  Workshop shop({.on = true});
  const std::string id = shop.begin("test", {{"about", 7}}, 0, [](Bench& bench) {
    for (int i = 0; i < 5; ++i) bench.tell(said(i));
  });
  const std::vector<std::string> all = all_of(shop, id);
  ASSERT_EQ(all.size(), 6u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], said(i).dump(0));
  EXPECT_EQ(all[5], line(R"({"kind":"end","how":"done"})"));
  EXPECT_EQ(all_of(shop, id, 0, 4), (std::vector<std::string>{all[4], all[5]}));

  // A piece at a time: at least one event, then as many as fit.
  const Workshop::Part part = shop.events(id, 0, 1, all[1].size() + 1);
  EXPECT_EQ(part.events, (std::vector<std::string>{all[1], all[2]}));
  EXPECT_EQ(part.next, 3);
  EXPECT_FALSE(part.ended);
  // A number that is still to come is waited for: what is before it is not sent again.
  EXPECT_EQ(shop.events(id, 0, 90).next, 90);
  EXPECT_TRUE(shop.events(id, 0, 90).events.empty());

  const Json list = parse_json(shop.list(0));
  const Json& one = list.find("data")->array()[0];
  EXPECT_EQ(one.find("id")->string(), id);
  EXPECT_EQ(one.find("about")->integer(), 7);
  EXPECT_EQ(one.find("how")->string(), "done");
  EXPECT_FALSE(one.find("running")->boolean());
  EXPECT_EQ(shop.newest("test", 0), id);
}

TEST(Workshop, TheOldestEventsGoTheNewestStays) {
  Workshop shop({.on = true, .event_bytes = 400});
  const std::string id = shop.begin("test", {}, 0, [](Bench& bench) {
    for (int i = 0; i < 100; ++i) bench.tell(said(i));
    bench.tell(Json::Object{{"kind", "long"}, {"text", std::string(1000, 'x')}});
  });
  const std::vector<std::string> all = all_of(shop, id);
  EXPECT_EQ(all, (std::vector<std::string>{line(R"({"kind":"end","how":"done"})")}))
      << "the long one had to go";
  const Workshop::Part part = shop.events(id, 0, 0);
  EXPECT_EQ(part.next, 102) << "numbers stay what they were";

  Workshop room({.on = true, .event_bytes = 2000});
  const std::string with = room.begin("test", {}, 0, [](Bench& bench) {
    for (int i = 0; i < 500; ++i) bench.tell(said(i));
  });
  const std::vector<std::string> kept = all_of(room, with);
  std::size_t bytes = 0;
  for (const std::string& event : kept) bytes += event.size();
  EXPECT_LE(bytes, 2000u);
  EXPECT_GT(bytes, 1900u);
  EXPECT_EQ(kept[kept.size() - 2], said(499).dump(0));
}

TEST(Workshop, OneAtATime) {
  Workshop shop({.on = true});
  std::promise<void> go;
  const std::string id = shop.begin("test", {}, 0, [&](Bench&) { go.get_future().wait(); });
  EXPECT_EQ(refusal([&] { shop.begin("test", {}, 0, [](Bench&) {}); }), 429);
  EXPECT_EQ(refusal([&] { shop.begin("other", {}, 5, [](Bench&) {}); }), 429) << "whoever asks";
  go.set_value();
  all_of(shop, id);
  EXPECT_EQ(refusal([&] { shop.begin("test", {}, 0, [](Bench&) {}); }), 0);
}

TEST(Workshop, StopHoldsAtTheNextCheck) {
  Workshop shop({.on = true});
  std::promise<void> begun;
  const std::string id = shop.begin("test", {}, 3, [&](Bench& bench) {
    begun.set_value();
    while (true) {
      bench.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  begun.get_future().wait();
  EXPECT_EQ(refusal([&] { shop.stop(id, 4); }), 404) << "another key's";
  EXPECT_EQ(refusal([&] { shop.stop("nonsense", 3); }), 404);
  EXPECT_FALSE(shop.events(id, 3, 0).ended);
  shop.stop(id, 3);
  EXPECT_EQ(all_of(shop, id, 3).back(), line(R"({"kind":"end","how":"stopped"})"));
  shop.stop(id, 3);  // once more, after its end: nothing
  EXPECT_EQ(all_of(shop, id, 3).size(), 1u);
}

TEST(Workshop, WhateverIsThrownEndsTheRunWithWords) {
  Workshop shop({.on = true});
  const auto end_of = [&](auto thrown) {
    const Json end = last_of(shop, shop.begin("test", {}, 0, [&](Bench&) { throw thrown; }));
    EXPECT_EQ(end.find("how")->string(), "failed");
    return std::string(end.find("code")->string()) + ": " + std::string(end.find("error")->string());
  };
  EXPECT_EQ(end_of(std::runtime_error("a matrix is upside down")), "failed: a matrix is upside down");
  EXPECT_EQ(end_of(std::bad_alloc()), "out_of_memory: there is not enough memory for it");
  EXPECT_EQ(end_of(42), "failed: something was thrown that says nothing of itself");
  EXPECT_EQ(end_of(Error("no UTF-8: \xff")), "failed: no UTF-8: \xEF\xBF\xBD");
}

TEST(Workshop, AnotherKeysRunIsNotThere) {
  Workshop shop({.on = true});
  const std::string id = shop.begin("test", {}, 1, [](Bench&) {});
  all_of(shop, id, 1);
  EXPECT_EQ(refusal([&] { (void)shop.events(id, 2, 0); }), 404);
  EXPECT_EQ(shop.list(2), line(R"({"data":[]})"));
  EXPECT_EQ(shop.newest("test", 2), "");
}

TEST(Workshop, TheLastEightAreKeptAndFinishedThreadsAreGone) {
  Workshop shop({.on = true});
  std::vector<std::string> ids;
  const std::size_t before = threads_of_process();
  for (int i = 0; i < 10; ++i) {
    ids.push_back(shop.begin("test", {}, 0, [](Bench&) {}));
    all_of(shop, ids.back());
  }
  EXPECT_LE(threads_of_process(), before + 1) << "the last one's thread may still be leaving";
  EXPECT_EQ(parse_json(shop.list(0)).find("data")->array().size(), 8u);
  EXPECT_EQ(refusal([&] { (void)shop.events(ids[1], 0, 0); }), 404);
  EXPECT_EQ(shop.newest("test", 0), ids[9]);
}

TEST(Workshop, WhatIsToldOfElsewhereStaysUntilItEnds) {
  Workshop shop({.on = true});
  Bench& first = shop.open("train", {{"number", 0}});
  const std::string id = shop.newest("train", 0);
  for (int i = 1; i < 12; ++i) shop.close(shop.open("train", {{"number", i}}), "done");
  first.tell(said(1));  // others came and went
  EXPECT_EQ(refusal([&] { shop.begin("test", {}, 0, [](Bench&) {}); }), 429);
  shop.close(first, "failed", "the disk is full");
  EXPECT_EQ(all_of(shop, id),
            (std::vector<std::string>{
                said(1).dump(0),
                line(R"({"kind":"end","how":"failed","code":"failed","error":"the disk is full"})")}));
  shop.begin("test", {}, 0, [](Bench&) {});
  EXPECT_EQ(refusal([&] { (void)shop.events(id, 0, 0); }), 404) << "it was the oldest";
}

TEST(Workshop, ShuttingStopsWhatRunsAndLetsNothingBegin) {
  auto shop = std::make_unique<Workshop>(WorkshopOptions{.on = true});
  std::promise<void> begun;
  std::atomic<bool> unwound = false;
  shop->begin("test", {}, 0, [&](Bench& bench) {
    struct AtEnd {
      std::atomic<bool>& flag;
      ~AtEnd() { flag = true; }
    } at_end{unwound};
    begun.set_value();
    while (!bench.stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    bench.check();
  });
  begun.get_future().wait();
  shop->shut();
  EXPECT_EQ(refusal([&] { shop->begin("test", {}, 0, [](Bench&) {}); }), 503);
  shop.reset();  // waits
  EXPECT_TRUE(unwound);
}

}  // namespace
}  // namespace rapt::server
