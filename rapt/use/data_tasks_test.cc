// SPDX-License-Identifier: Apache-2.0
// Answers of copy, sort and date against their questions; weekdays against a calendar counted day by day.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <map>

#include "tests/training_data.h"

namespace rapt {
namespace {

using namespace test;

TEST(TaskData, QuestionsAndAnswers) {
  for (const std::string task : {"copy", "sort", "date"}) {
    for (const bool both : {false, true}) {
      const DataOptions o{.path = task, .seed = 2, .batch = 6, .length = 44, .encoder_decoder = both};
      const auto d = open_data(o);
      EXPECT_EQ(d->objective, both ? Objective::translation : Objective::causal);
      check_data(*d, o);
      const Tokenizer& t = *d->tokenizer;
      std::set<std::string> learned, held;
      const auto read = [&](const TrainBatch& b, std::set<std::string>& into) {
        for (std::size_t s = 0; s < b.sequences.size(); ++s) {
          const Ids in = row(b, s), out = targets_of(b, s);
          std::string question, answer;
          Ids counted;
          for (const std::int32_t x : out) {
            if (x >= 0) counted.push_back(x);
          }
          EXPECT_EQ(counted.back(), d->stop);
          answer = t.decode(counted);
          if (both) {
            question = t.decode(source_of(b, s));
            EXPECT_EQ(source_of(b, s).back(), d->stop);
            EXPECT_EQ(in.front(), d->start);
            EXPECT_EQ(t.decode(in), answer);
          } else {
            const std::string whole = t.decode(in);
            question = whole.substr(0, whole.find('='));
            EXPECT_EQ(whole, question + "=" + answer);
            for (std::size_t i = 0; i < out.size(); ++i)
              EXPECT_EQ(out[i] >= 0, i >= question.size()) << whole;
          }
          std::string expected = question;
          if (task == "sort") std::sort(expected.begin(), expected.end());
          if (task != "date") {
            EXPECT_EQ(answer, expected);
          } else {
            ASSERT_EQ(answer.size(), 10u) << answer;
            EXPECT_TRUE(answer >= "1950-01-01" && answer <= "2049-12-31") << answer;
            // The year's last digits.
            EXPECT_NE(question.find(answer.substr(2, 2)), std::string::npos) << question << " " << answer;
          }
          into.insert(task == "date" ? answer : question);
        }
      };
      for (std::uint64_t n = 0; n < 150; ++n) read(d->batch(n), learned);
      EXPECT_EQ(d->held_out(), (1024 + 5) / 6);
      for (Dim n = 0; n < d->held_out(); ++n) read(d->held_out_batch(n), held);
      for (const std::string& q : held) EXPECT_FALSE(learned.contains(q)) << q;
      EXPECT_GT(learned.size(), 600u);
    }
  }
  EXPECT_TRUE(
      holds(error_of([] { open_data({.path = "date", .length = 20}); }), "needs a length of at least 41"));
  EXPECT_TRUE(holds(error_of([] { open_data({.path = "copy", .objective = Objective::masked}); }),
                    "causal or translation"));
  EXPECT_TRUE(holds(error_of([] { write_packed("x.bin", {.path = "copy"}, false); }), "nothing to pack"));
}

TEST(TaskData, DatesAreRight) {
  // Weekdays against a calendar counted day by day from Sunday, 1 January 1950.
  std::map<std::string, std::string> weekday;
  static const char* const kDays[] = {"sunday",   "monday", "tuesday", "wednesday",
                                      "thursday", "friday", "saturday"};
  static const char* const kMonths[] = {"jan", "feb", "mar", "apr", "may", "jun",
                                        "jul", "aug", "sep", "oct", "nov", "dec"};
  int day = 0;
  for (int y = 1950; y < 2050; ++y) {
    for (int m = 1; m <= 12; ++m) {
      const int n = m == 2 ? (y % 4 == 0 ? 29 : 28) : m == 4 || m == 6 || m == 9 || m == 11 ? 30 : 31;
      for (int d = 1; d <= n; ++d) {
        char iso[32];
        std::snprintf(iso, sizeof iso, "%04d-%02d-%02d", y, m, d);
        weekday[iso] = kDays[day++ % 7];
      }
    }
  }
  const auto d = open_data({.path = "date", .batch = 10, .length = 41, .encoder_decoder = true});
  int named = 0, styles = 0;
  for (std::uint64_t n = 0; n < 200; ++n) {
    const TrainBatch b = d->batch(n);
    for (std::size_t s = 0; s < b.sequences.size(); ++s) {
      std::string question = d->tokenizer->decode(source_of(b, s)),
                  answer = d->tokenizer->decode(targets_of(b, s));
      std::transform(question.begin(), question.end(), question.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      ASSERT_TRUE(weekday.contains(answer)) << answer;
      for (const char* w : kDays) {
        if (question.find(w) == std::string::npos) continue;
        EXPECT_EQ(weekday[answer], w) << question << " " << answer;
        ++named;
      }
      const int month = std::stoi(answer.substr(5, 2)), in_month = std::stoi(answer.substr(8, 2));
      for (int m = 0; m < 12; ++m) {
        // Short names begin the long ones; "mon" of Monday is left out of it.
        if (question.find(kMonths[m]) != std::string::npos && question.find("mon") == std::string::npos) {
          EXPECT_EQ(m + 1, month) << question << " " << answer;
          ++styles;
        }
      }
      const std::string dotted = std::to_string(in_month) + "." + std::to_string(month) + ".";
      if (question.find('/') != std::string::npos) {
        EXPECT_TRUE(question.starts_with(std::to_string(month) + "/" + std::to_string(in_month) + "/"))
            << question;
      }
      if (question.find('.') != std::string::npos) {
        EXPECT_TRUE(question.starts_with(dotted) ||
                    question.starts_with(answer.substr(8, 2) + "." + answer.substr(5, 2)))
            << question;
      }
    }
  }
  EXPECT_GT(named, 200);
  EXPECT_GT(styles, 800);
}

}  // namespace
}  // namespace rapt
