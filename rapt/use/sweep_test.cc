// SPDX-License-Identifier: Apache-2.0
// Values are split as written, combinations come in their order, folders are called unlike each other.
#include "rapt/use/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools.h"

namespace rapt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Sweep, CommasSplitOutsideOfBracketsAndQuotes) {
  EXPECT_THAT(parse_sweep("rate=0.01,0.03").values, ElementsAre("0.01", "0.03"));
  EXPECT_EQ(parse_sweep("a.b[0].c=1").key, "a.b[0].c");
  EXPECT_THAT(
      parse_sweep(R"(n=null,{"norm":"rms","eps":1e-5},[1,[2,3]],"a,b","c\",d",x)").values,
      ElementsAre("null", R"({"norm":"rms","eps":1e-5})", "[1,[2,3]]", R"("a,b")", R"("c\",d")", "x"));
  EXPECT_THAT(parse_sweep("set=a=b,c").values, ElementsAre("a=b", "c"));  // the first = ends the key
}

TEST(Sweep, RefusesWhatIsNoList) {
  for (const char* text : {"", "rate", "=1,2"})
    EXPECT_THAT(test::error_of([&] { parse_sweep(text); }), HasSubstr("KEY=VALUE,VALUE")) << text;
  EXPECT_THAT(test::error_of([] { parse_sweep("rate="); }), HasSubstr("value 1 is empty"));
  EXPECT_THAT(test::error_of([] { parse_sweep("rate=1,,2"); }), HasSubstr("value 2 is empty"));
  EXPECT_THAT(test::error_of([] { parse_sweep("rate=1,2,1"); }), HasSubstr("1 stands there twice"));
  EXPECT_THAT(test::error_of([] { sweep_runs(std::vector<SweepKey>{{"seed", {"0"}}, {"seed", {"1"}}}); }),
              HasSubstr("seed: stands there twice"));
  std::vector<SweepKey> many;
  for (int i = 0; i < 3; ++i)
    many.push_back(parse_sweep(std::string(1, static_cast<char>('a' + i)) + "=1,2,3,4,5"));
  EXPECT_THAT(test::error_of([&] { sweep_runs(many); }), HasSubstr("more than 100 runs"));
}

TEST(Sweep, TheLastKeyGoesFirstThroughItsValues) {
  const std::vector<SweepKey> keys = {parse_sweep("rate=0.01,0.03"), parse_sweep("seed=0,1,2")};
  std::vector<std::string> names;
  for (const SweepRun& run : sweep_runs(keys)) {
    names.push_back(run.name);
    EXPECT_EQ(run.name, "rate=" + run.values[0] + ",seed=" + run.values[1]);
  }
  EXPECT_THAT(names, ElementsAre("rate=0.01,seed=0", "rate=0.01,seed=1", "rate=0.01,seed=2",
                                 "rate=0.03,seed=0", "rate=0.03,seed=1", "rate=0.03,seed=2"));
}

TEST(Sweep, NamesAreSafeForFileSystemsAndUnlike) {
  const std::vector<SweepKey> keys = {
      parse_sweep("decoder.kinds.L.parts[0].self.kv_heads=8,1"),
      parse_sweep(
          R"(decoder.kinds.L.parts[0].self.qk_norm=null,{"norm":"rms"},../../etc/passwd,"?",a:b,a/b)")};
  std::vector<std::string> names;
  for (const SweepRun& run : sweep_runs(keys)) names.push_back(run.name);
  EXPECT_EQ(names[0], "kv_heads=8,qk_norm=null");
  EXPECT_EQ(names[1], "kv_heads=8,qk_norm={norm-rms}");
  for (const std::string& name : names) {
    EXPECT_EQ(
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,=_+-[]{}"),
        std::string::npos)
        << name;
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  // Two ends that are alike are told apart by their whole paths; a long value is cut and summed up.
  const std::vector<SweepKey> twins = {parse_sweep("encoder.layers=1"), parse_sweep("decoder.layers=2")};
  EXPECT_EQ(sweep_runs(twins)[0].name, "encoder.layers=1,decoder.layers=2");
  const std::string longest(300, 'x');
  const std::vector<SweepKey> wide = {parse_sweep("data=" + longest + "1," + longest + "2")};
  EXPECT_LE(sweep_runs(wide)[0].name.size(), 60u);
  EXPECT_NE(sweep_runs(wide)[0].name, sweep_runs(wide)[1].name);
}

}  // namespace
}  // namespace rapt
