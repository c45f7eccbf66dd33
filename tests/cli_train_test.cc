// SPDX-License-Identifier: Apache-2.0
// rapt train as people use it: a run, its files, stopping it in every way, going on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>

#include <chrono>
#include <thread>

#include "rapt/base/json.h"
#include "rapt/base/rng.h"
#include "rapt/recipe/recipe_set.h"
#include "tests/build_kind.h"
#include "tests/cli.h"
#include "tests/tools.h"

extern char** environ;

namespace rapt::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class CliTrain : public Cli {
 protected:
  TempFolder folder;
  const std::string text = folder / "text.txt";

  void SetUp() override {
    Cli::SetUp();
    std::string words;
    const char* const list[] = {"the ", "cat ", "sat ", "on ", "a ", "mat.\n", "dog ", "ran ", "far\n"};
    for (std::uint64_t i = 0; i < 4000; ++i) words += list[random_below(9, 7, i)];
    put_file(text, words);
  }

  std::vector<std::string> words(const std::string& out, Dim steps) const {
    return {"train",
            "gpt-char",
            "--data",
            text,
            "--out",
            out,
            "--vocab",
            "characters",
            "--length",
            "16",
            "--batch",
            "4",
            "--steps",
            std::to_string(steps),
            "--set",
            "width=16",
            "--set",
            "heads=2",
            "--set",
            "layers=2",
            "--set",
            "dropout=0.1",
            "--save-every",
            "5",
            "--eval-batches",
            "2",
            "--seed",
            "3",
            "-t",
            "1",
            "-q",
            "--json"};
  }
  static std::string joined(const std::vector<std::string>& list) {
    std::string out;
    for (const std::string& w : list) out += "'" + w + "' ";
    return out;
  }

  pid_t start(std::vector<std::string> list) const {
    list.insert(list.begin(), program);
    std::vector<char*> argv;
    for (std::string& w : list) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }
  static int wait_for(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
};

TEST_F(CliTrain, MakesAModelThatRuns) {
  const std::string out = folder / "out";
  const Outcome o = run(joined(words(out, 30)));
  ASSERT_EQ(o.code, 0) << o.err;
  const Json j = parse_json(o.out);
  EXPECT_EQ(j.find("steps")->integer(), 30);
  EXPECT_LT(j.find("held_out_loss")->number(), 3.2);
  for (const char* name : {"model/config.json", "model/model.safetensors", "model/tokenizer.json",
                           "model/recipe.json", "metrics.jsonl", "loss.svg", "attention.svg"})
    EXPECT_TRUE(fs::exists(fs::path(out) / name)) << name;
  // metrics.jsonl: every step once, the health of the attention among them, the judgement.
  std::istringstream lines(read_file(out + "/metrics.jsonl"));
  Dim steps = 0, healthy = 0, judged = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json m = parse_json(line);
    if (m.find("loss")) EXPECT_EQ(m.find("step")->integer(), ++steps);
    healthy += m.find("attention") != nullptr;
    judged += m.find("held_out_loss") != nullptr;
  }
  EXPECT_EQ(steps, 30);
  EXPECT_GE(healthy, 1);
  EXPECT_EQ(judged, 1);
  const Outcome text_out = run("run '" + out + "/model' 'the ' -n 8 --temp 0 -q");
  EXPECT_EQ(text_out.code, 0) << text_out.err;
  EXPECT_FALSE(text_out.out.empty());
  // A saved state is a model too.
  const Outcome state = run("run '" + out + "/step-30' 'the ' -n 8 --temp 0 -q");
  EXPECT_EQ(state.code, 0) << state.err;
  EXPECT_EQ(state.out, text_out.out);
  // The folder of the run leads to its model.
  const Outcome folder_out = run("run '" + out + "' 'the ' -n 8 --temp 0 -q");
  EXPECT_EQ(folder_out.code, 0) << folder_out.err;
  EXPECT_EQ(folder_out.out, text_out.out);
  fs::rename(out + "/model", out + "/elsewhere");
  EXPECT_EQ(run("run '" + out + "' 'the ' -n 8 --temp 0 -q").out, text_out.out);  // or to its newest state
  fs::rename(out + "/elsewhere", out + "/model");
  const Outcome again = run(joined(words(out, 30)));  // nothing left to do
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(CliTrain, StopsOnASignalAndGoesOnBitForBit) {
  const std::string straight = folder / "straight", stopped = folder / "stopped";
  ASSERT_EQ(run(joined(words(straight, 60))).code, 0);
  int resumed = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGTERM}) {
    const pid_t pid = start(words(stopped, 60));
    for (int i = 0; i < 2000; ++i) {  // until it has begun to step
      if (read_file(stopped + "/metrics.jsonl").find("\"step\": " + std::to_string(5 + 15 * resumed) + ",") !=
          std::string::npos)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    kill(pid, signal);
    const int status = wait_for(pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    ++resumed;
  }
  const Outcome last = run(joined(words(stopped, 60)));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(read_file(straight + "/model/model.safetensors"),
            read_file(stopped + "/model/model.safetensors"));
}

// SIGKILL at random times, again and again, until the run is through: nothing is lost, and the bits are
// those of a run nobody touched.
TEST_F(CliTrain, SurvivesKills) {
  const char* asked = std::getenv("RAPT_KILLS");
  const int kills = asked ? std::atoi(asked) : 25;
  const std::string straight = folder / "straight", killed = folder / "killed";
  const Dim steps = 200;
  ASSERT_EQ(run(joined(words(straight, steps))).code, 0);
  int done = 0, through = 0;
  const auto newest = [&] {  // as a reader sees it
    Dim step = -1;
    std::error_code ignored;
    for (const auto& e : fs::directory_iterator(killed, ignored))
      if (const std::string name = e.path().filename(); name.starts_with("step-"))
        step = std::max<Dim>(step, std::atol(name.c_str() + 5));
    return step;
  };
  Dim before = -1;
  while (done < kills) {
    const pid_t pid = start(words(killed, steps));
    std::this_thread::sleep_for(
        std::chrono::microseconds(2000 + random_below(200000, 11, static_cast<std::uint64_t>(done))));
    kill(pid, SIGKILL);
    const int status = wait_for(pid);
    ++done;
    const Dim now = newest();
    ASSERT_GE(now, before) << "a saved state was lost after kill " << done;
    before = now;
    if (WIFEXITED(status)) {  // it was faster: compare, and begin anew
      ASSERT_EQ(read_file(straight + "/model/model.safetensors"),
                read_file(killed + "/model/model.safetensors"));
      ++through;
      fs::remove_all(killed);
      before = -1;
    }
  }
  const Outcome last = run(joined(words(killed, steps)));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(read_file(straight + "/model/model.safetensors"), read_file(killed + "/model/model.safetensors"));
  RecordProperty("kills", done);
  RecordProperty("finished_between", through);
  std::printf("%d kills, %d runs came through in between, the last one had come to step %ld; 0 states lost\n",
              done, through, static_cast<long>(before));
}

// The header of this model's file has 640 bytes or another length that begins like a pickle; it runs and
// goes on all the same.
TEST_F(CliTrain, EveryLengthOfAHeaderIsReadAgain) {
  const std::string recipe = folder / "c.json", out = folder / "c";
  put_file(
      recipe,
      R"({"width":64,"vocab":256,"context":64,"decoder":{"kinds":{"L":{"parts":[{"self":{"heads":4}},{"self":{"heads":4}}]}}}})");
  const std::string train = "train '" + recipe + "' --data '" + text +
                            "' --vocab bytes --length 32 --batch 1 --eval-batches 1 -t 1 -q --out '" + out +
                            "' --steps ";
  ASSERT_EQ(run(train + "1").code, 0);
  const std::string header = read_file(out + "/model/model.safetensors").substr(0, 2);
  EXPECT_TRUE(header[0] == '\x80' && header[1] >= 2 && header[1] <= 5)
      << "another header than this test needs";
  EXPECT_EQ(run("run '" + out + "/model' hi -n 1 -q").code, 0);
  const Outcome more = run(train + "2");
  EXPECT_EQ(more.code, 0) << more.err;
}

TEST_F(CliTrain, TextsThatDoNotFitAreRefusedAtOnce) {
  RAPT_NOT_SANITIZED("it needs more addresses than the limit leaves");
  const std::string large = folder / "large.txt";
  put_file(large, "");
  fs::resize_file(large, std::uintmax_t{1} << 30);  // takes no room
  const Outcome o =
      run("data '" + large + "' --vocab bytes --out '" + (folder / "x.bin") + "' -q", "ulimit -v 3000000;");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(
      o.err,
      HasSubstr("large.txt: has 1 GiB, and learning from a text takes up to 10 times its size of memory"));
}

// `rapt data` and training from its file: the same vocabulary, windows and bits as from the text itself.
TEST_F(CliTrain, PackedDataTrainsToTheSameBits) {
  const std::string packed = folder / "text.bin", plain = folder / "plain", from = folder / "from";
  ASSERT_EQ(run("data '" + text + "' --vocab characters --out '" + packed + "' -q").code, 0);
  const Outcome shown = run("data '" + packed + "' --json");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Json j = parse_json(shown.out);
  EXPECT_EQ(j.find("kind")->string(), "text");
  EXPECT_EQ(j.find("tokens")->integer(), static_cast<Dim>(fs::file_size(text)));
  std::vector<std::string> list = words(plain, 10);
  ASSERT_EQ(run(joined(list)).code, 0);
  list = words(from, 10);
  std::erase(list, "--vocab"), std::erase(list, "characters");
  *(std::find(list.begin(), list.end(), "--data") + 1) = packed;
  const Outcome trained = run(joined(list));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(read_file(plain + "/model/model.safetensors") == read_file(from + "/model/model.safetensors"));

  const Outcome refused = run("data '" + text + "' --vocab characters --out '" + packed + "'");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  put_file(packed, read_file(packed).substr(0, 200));
  const Outcome cut = run("data '" + packed + "'");
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.err, HasSubstr("text.bin"));
}

// The models that come with the program are found, are small, and know their text: lines of our own in its
// manner cost far less than guessing. They differ by the gate alone.
TEST_F(CliTrain, TheDefaultModelsKnowTheirManner) {
  const std::string lines = folder / "lines.txt";
  put_file(lines,
           "KING RICHARD III:\nMy lord, I will not stay to hear thee speak;\n"
           "The hour is late, and all my friends are gone.\n\n"
           "QUEEN:\nThen go, and let no more be said of this.\n");
  for (const std::string name : {"default", "default-gated"}) {
    EXPECT_LE(fs::file_size(fs::path(program).parent_path() / (name + ".gguf")), std::uintmax_t{4} << 20);
    const Outcome o = run("eval " + name + " --loss '" + lines + "' --json");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_LT(parse_json(o.out).find("loss")->number(), 3.2) << name;  // 512 tokens: 6.2 by guessing
  }
  const Recipe plain = checkpoint_recipe(find_model(fs::path(program).parent_path() / "default.gguf"));
  Recipe gated = checkpoint_recipe(find_model(fs::path(program).parent_path() / "default-gated.gguf"));
  Dim gates = 0;
  for (auto& [kind, layer] : gated.decoder->kinds)
    for (auto& part : layer.parts)
      if (auto* self = part.attention()) gates += static_cast<Dim>(self->gate.size()), self->gate.clear();
  EXPECT_EQ(gates, 1);
  // A file of Llama's kind has no dropout in it.
  gated = with_settings(gated, std::vector<std::string>{"dropout=0"});
  gated.name = plain.name, gated.note = plain.note;
  EXPECT_EQ(recipe_json(gated), recipe_json(plain));
}

// No machine has room for this one; it is refused before the data is read.
TEST_F(CliTrain, WhatDoesNotFitIsRefusedAtOnce) {
  const std::string out = " --out '" + (folder / "out") + "'";
  const Outcome o = run("train llama3 --data /nowhere.txt --set width=65536 --set layers=60" + out);
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("weights take"), HasSubstr("are available"), HasSubstr("--set width=")));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST_F(CliTrain, ALengthAboveTheContextIsSaid) {
  std::vector<std::string> list = words(folder / "out", 1);
  std::erase(list, "-q");
  list.insert(list.end(), {"--set", "context=8"});
  const Outcome o = run(joined(list));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("--length 16 is above the recipe's context of 8"));
}

// A preset's name means the preset, whatever folder lies about; an empty folder of a model's name hides
// no model.
TEST_F(CliTrain, FoldersThatAreNoModelsHideNothing) {
  const std::string here = folder / "here";
  for (const char* name : {"llama3", "default", "models/default"})
    fs::create_directories(fs::path(here) / name);
  EXPECT_THAT(run("show llama3", "cd '" + here + "';").out, HasSubstr("llama3"));
  EXPECT_THAT(run("train llama3", "cd '" + here + "';").err, HasSubstr("--data"));
  for (const char* models : {"RAPT_MODELS= ", "RAPT_MODELS=models "}) {
    const Outcome o = run("run default ROMEO: -n 2 -q", "cd '" + here + "'; " + models);
    EXPECT_EQ(o.code, 0) << models << o.err;
  }
  put_file(here + "/models/default/default.gguf",
           read_file(fs::path(program).parent_path() / "default.gguf"));
  EXPECT_EQ(run("run default ROMEO: -n 2 -q", "cd '" + here + "'; RAPT_MODELS=models").code, 0);
  EXPECT_EQ(run("check models/default -q", "cd '" + here + "';").code, 0);
}

// A sweep: a folder each with the bits of the run alone; once more, nothing is computed; compared.
TEST_F(CliTrain, SweepsAndCompares) {
  const std::string out = folder / "sweep", alone = folder / "alone";
  std::vector<std::string> list = words(out, 12);
  list.insert(list.end(), {"--set", "train.health_every=4", "--eval-every", "6", "--sweep", "rate=0.001,0.01",
                           "--sweep", "decoder.kinds.L.parts[0].self.kv_heads=2,1"});
  const Outcome first = run(joined(list));
  ASSERT_EQ(first.code, 0) << first.err;
  const Json facts = parse_json(first.out);
  const Json::Array& runs = facts.find("runs")->array();
  ASSERT_EQ(runs.size(), 4u);
  const char* const names[] = {"rate=0.001,kv_heads=2", "rate=0.001,kv_heads=1", "rate=0.01,kv_heads=2",
                               "rate=0.01,kv_heads=1"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(runs[i].find("folder")->string(), out + "/" + names[i]);
    EXPECT_EQ(runs[i].find("steps")->integer(), 12);
    EXPECT_TRUE(runs[i].find("finished")->boolean());
    EXPECT_EQ(runs[i].find("curves")->find("held_out_loss")->find("step")->array().size(), 2u);
    EXPECT_EQ(runs[i].find("curves")->find("entropy")->find("value")->array().size(), 3u);
  }
  EXPECT_EQ(runs[1].find("name")->string(), "kv_heads=1 rate=0.001");
  EXPECT_LT(runs[1].find("parameters")->integer(), runs[0].find("parameters")->integer());
  EXPECT_LT(runs[2].find("held_out_loss")->number(), runs[0].find("held_out_loss")->number());
  EXPECT_THAT(read_file(out + "/compare.html"), HasSubstr("4 runs side by side"));

  list = words(alone, 12);
  list.insert(list.end(), {"--rate", "0.01", "--set", "decoder.kinds.L.parts[0].self.kv_heads=1"});
  ASSERT_EQ(run(joined(list)).code, 0);
  EXPECT_TRUE(read_file(alone + "/model/model.safetensors") ==
              read_file(out + "/rate=0.01,kv_heads=1/model/model.safetensors"));

  // Once more: what is finished stays as it is; a run that was stopped goes on.
  list = words(out, 12);
  list.insert(list.end(), {"--set", "train.health_every=4", "--eval-every", "6", "--sweep", "rate=0.001,0.01",
                           "--sweep", "decoder.kinds.L.parts[0].self.kv_heads=2,1"});
  const auto before = fs::last_write_time(out + "/rate=0.01,kv_heads=1/metrics.jsonl");
  fs::remove_all(out + "/rate=0.001,kv_heads=1/model");
  const Outcome again = run(joined(list));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(parse_json(again.out).find("runs")->array()[3], runs[3]);
  EXPECT_TRUE(fs::exists(out + "/rate=0.001,kv_heads=1/model"));
  EXPECT_EQ(fs::last_write_time(out + "/rate=0.01,kv_heads=1/metrics.jsonl"), before);

  // rapt compare says the same; text fits 80 columns; pictures and the page are written.
  const Outcome same = run("compare '" + out + "' --json");
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(parse_json(same.out).find("runs")->array().size(), 4u);
  const Outcome text_out = run("compare '" + out + "'/*=1 '" + alone + "'", "COLUMNS=80");
  ASSERT_EQ(text_out.code, 0) << text_out.err;
  EXPECT_THAT(text_out.out, AllOf(HasSubstr("3 runs side by side"), HasSubstr("train.optimizer.rate"),
                                  HasSubstr("Training loss, smoothed"), HasSubstr("mean over layers")));
  const Outcome files = run("compare '" + out + "' '" + alone + "' --out '" + (folder / "charts/") +
                            "' --html '" + (folder / "c.html") + "'");
  ASSERT_EQ(files.code, 0) << files.err;
  EXPECT_EQ(files.out, "");
  EXPECT_THAT(read_file(folder / "charts/compare-1.svg"), HasSubstr("Training loss, smoothed"));
  EXPECT_THAT(read_file(folder / "c.html"), HasSubstr("5 runs side by side"));
  EXPECT_EQ(run("compare '" + out + "' --html '" + (folder / "c.html") + "'").code, 1);  // it is there
  EXPECT_EQ(run("compare '" + out + "' '" + out + "'").code, 2);
  EXPECT_EQ(run("compare").code, 2);
  EXPECT_THAT(run("compare '" + alone + "/model'").err, HasSubstr("holds no metrics.jsonl"));
}

// A run that cannot go on is noted, the others are computed; Ctrl-C stops all of it, and it goes on.
TEST_F(CliTrain, ASweepSurvivesItsRuns) {
  const std::string out = folder / "sweep";
  std::vector<std::string> list = words(out, 40);
  std::erase(list, "--json");
  list.insert(list.end(), {"--optimizer", "sgd", "--set", "train.optimizer.clip=0", "--set",
                           "train.guard.rewinds=1", "--sweep", "rate=1e6,0.01"});
  const Outcome o = run(joined(list));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("[1/2] rate=1e6 failed: train: went back"),
                           HasSubstr("the sweep goes on"), HasSubstr("1 of 2 runs failed: rate=1e6")));
  EXPECT_THAT(o.out, AllOf(HasSubstr("rate=1000000 failed after"), HasSubstr("What differs")));
  EXPECT_TRUE(fs::exists(out + "/rate=0.01/model"));
  EXPECT_FALSE(fs::exists(out + "/rate=1e6/model"));

  const std::string stopped = folder / "stopped";
  list = words(stopped, 3000);
  list.insert(list.end(), {"--sweep", "seed=0,1"});
  const pid_t pid = start(list);
  for (int i = 0;
       i < 2000 && read_file(stopped + "/seed=0/metrics.jsonl").find("\"step\": 5,") == std::string::npos;
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill(pid, SIGINT);
  const int status = wait_for(pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(fs::exists(stopped + "/seed=1"));
  EXPECT_FALSE(fs::exists(stopped + "/compare.html"));
  const Outcome shown = run("compare '" + stopped + "' --json");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Json half = parse_json(shown.out);
  EXPECT_FALSE(half.find("runs")->array()[0].find("finished")->boolean());
  EXPECT_EQ(half.find("runs")->array()[0].find("planned_steps")->integer(), 3000);
  const Dim reached = half.find("runs")->array()[0].find("steps")->integer();
  // The same sweep of fewer steps cannot go on; with as many it does, where it stopped.
  *(std::find(list.begin(), list.end(), "--steps") + 1) = std::to_string(reached + 5);
  list.insert(list.end(), {"--schedule", "constant"});
  const Outcome refused = run(joined(list));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("was saved by a run with schedule.kind"));
}

TEST_F(CliTrain, ASweepIsRefusedBeforeItStarts) {
  const std::string out = folder / "out";
  const auto refused = [&](const std::string& sweep) {
    std::vector<std::string> list = words(out, 2);
    list.insert(list.end(), {"--sweep", "seed=0,1", "--sweep", sweep});
    const Outcome o = run(joined(list));
    EXPECT_NE(o.code, 0) << sweep;
    EXPECT_FALSE(fs::exists(out)) << sweep;
    return o.err;
  };
  EXPECT_THAT(refused("rate=0.1,abc"), HasSubstr("--rate: 'abc' is no number"));
  EXPECT_THAT(refused("rate=0.1,1e30"),
              AllOf(HasSubstr("rate is 1e+30"), HasSubstr("rate=1e30 of the sweep")));
  EXPECT_THAT(refused("heads=2,3"), HasSubstr("not divisible by 3 heads"));
  EXPECT_THAT(refused("widht=16,32"), HasSubstr("did you mean 'width'?"));
  EXPECT_THAT(refused("lenght=16,32"), HasSubstr("did you mean 'length'?"));
  EXPECT_THAT(refused("optimizer.rate=1,2"), HasSubstr("train.optimizer.rate"));
  EXPECT_THAT(refused("length=16,1"), HasSubstr("at least 2 tokens"));
  EXPECT_THAT(refused("lower=true,false"), HasSubstr("nothing to sweep"));
  EXPECT_THAT(refused("data=/nowhere.txt"), HasSubstr("/nowhere.txt: there is no such file"));
  EXPECT_THAT(refused("seed=2"), HasSubstr("stands there twice"));
}

// A text without line ends, with which samples begin unless --sample says otherwise.
TEST_F(CliTrain, SamplesBeginWithWhatTheDataHas) {
  std::string line = read_file(text);
  std::erase(line, '\n');
  put_file(text, line);
  std::vector<std::string> loud = words(folder / "out", 2);
  std::erase(loud, "-q");
  const Outcome o = run(joined(loud));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::exists(folder / "out/model/model.safetensors"));
  loud[5] = folder / "other";
  loud.insert(loud.end(), {"--sample", "Ж"});
  const Outcome refused = run(joined(loud));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--sample"), HasSubstr("Ж")));
  EXPECT_FALSE(fs::exists(folder / "other/step-0"));
}

TEST_F(CliTrain, SaysWhatIsWrong) {
  const std::string out = " --out '" + (folder / "out") + "'";
  EXPECT_EQ(run("train").code, 2);
  EXPECT_THAT(run("train gpt-char").err, HasSubstr("--data"));
  EXPECT_THAT(run("train gpt-char --data '" + text + "'").err, HasSubstr("--out"));
  EXPECT_THAT(run("train gpt-cahr --data '" + text + "'" + out).err, HasSubstr("gpt-char"));
  EXPECT_THAT(run("train gpt-char --data /nowhere.txt" + out).err, HasSubstr("/nowhere.txt"));
  EXPECT_THAT(run("train gpt-char --data '" + text + "' --objective casual" + out).err, HasSubstr("causal"));
  EXPECT_THAT(run("train gpt-char --data '" + text + "' --set train.optimizer.rat=1" + out).err,
              HasSubstr("optimizer.rate"));
  EXPECT_THAT(run("train gpt-char --data '" + text + "' --set widht=16" + out).err, HasSubstr("width"));
  EXPECT_THAT(run("train gpt-char --data '" + text + "' --rate 1e30" + out).err, HasSubstr("rate is 1e+30"));
  EXPECT_THAT(run("train gpt-char --data '" + text + "' --steps 1e30" + out).err,
              HasSubstr("steps: wants a whole number, has 1e30"));
  const Outcome help = run("train --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("optimizer.rate"), HasSubstr("Examples:")));
}

}  // namespace
}  // namespace rapt::test
