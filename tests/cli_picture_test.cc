// SPDX-License-Identifier: Apache-2.0
// rapt classify and rapt embed on files of pictures: what transformers says about them
// (tests/golden/use/pictures.json), folders of many, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/base/text.h"
#include "rapt/io/npy.h"
#include "tests/cli.h"
#include "tests/image_files.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

const Json& expected() {
  static const Json json = [] {
    const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/pictures.json";
    return parse_json(read_text_file(path), path);
  }();
  return json;
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(parse_json(line));
  return out;
}

class CliPicture : public Cli {
 protected:
  // A toy of tests/golden/vision with what stands beside a model's weights.
  std::string model(const std::string& name) const {
    const Json& toy = need(need(expected(), "toys"), name);
    const std::string folder = temp / name;
    write_folder(read_toy("../vision/" + name), folder);
    if (const Json& processor = need(toy, "processor"); !processor.is_null())
      put_file(folder + "/preprocessor_config.json", processor.dump());
    if (const Json* tokenizer = toy.find("tokenizer"))
      put_file(folder + "/tokenizer.json", tokenizer->dump());
    return folder;
  }
  // The pictures of the expected values, in their order.
  std::vector<std::string> pictures() const {
    std::vector<std::string> out;
    for (const Json& name : need(expected(), "pictures").array()) {
      const std::string file =
          std::string(name.string()) + (name.string().starts_with("png") ? ".png" : ".JPG");
      put_file(temp / file, golden_image(name.string()));
      out.push_back(temp / file);
    }
    return out;
  }
  static std::string labels() {
    std::string out;
    for (const Json& label : need(expected(), "labels").array())
      out += (out.empty() ? "" : ", ") + std::string(label.string());
    return out;
  }
  static const Json& results(const std::string& name, std::string_view key, std::size_t picture) {
    return need(need(need(expected(), "toys"), name), key).array()[picture];
  }
  // Every class of every picture, by its name.
  static void check_classes(const std::vector<Json>& got, const std::string& name,
                            const std::vector<std::string>& names, const std::vector<std::string>& paths) {
    ASSERT_EQ(got.size(), paths.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(need(got[i], "index").integer(), static_cast<Dim>(i));
      EXPECT_EQ(need(got[i], "image").string(), paths[i]);
      const Json::Array& classes = need(got[i], "classes").array();
      ASSERT_EQ(classes.size(), names.size());
      double before = 1;
      for (const Json& c : classes) {
        const auto at = static_cast<std::size_t>(
            std::find(names.begin(), names.end(), std::string(need(c, "label").string())) - names.begin());
        ASSERT_LT(at, names.size()) << need(c, "label").string();
        const double p = need(c, "probability").number();
        EXPECT_NEAR(p, results(name, "probabilities", i).array()[at].number(), 1e-4)
            << name << " " << paths[i];
        EXPECT_LE(p, before);
        before = p;
      }
    }
  }

  const TempFolder temp;
};

std::string quoted(const std::vector<std::string>& paths) {
  std::string out;
  for (const std::string& path : paths) out += " '" + path + "'";
  return out;
}

TEST_F(CliPicture, ClassesAreThoseOfTransformers) {
  const std::vector<std::string> paths = pictures();
  for (const char* name : {"vit", "dinov2"}) {
    const Outcome o = run("classify '" + model(name) + "' --json --image" + quoted(paths));
    ASSERT_EQ(o.code, 0) << o.err;
    check_classes(lines_of(o.out), name, {"red", "green", "blue", "grey", "teal"}, paths);
  }
}

TEST_F(CliPicture, HowPicturesArePreparedGoesAlong) {
  const std::string vit = model("vit"), image = " --json --image '" + pictures()[0] + "'",
                    file = temp / "v.gguf", back = temp / "back";
  const std::string want = run("classify '" + vit + "'" + image).out;
  ASSERT_EQ(run("convert '" + vit + "' '" + file + "'").code, 0);
  EXPECT_EQ(run("classify '" + file + "'" + image).out, want);
  ASSERT_EQ(run("convert '" + file + "' '" + back + "'").code, 0);
  EXPECT_EQ(run("classify '" + back + "'" + image).out, want);
}

TEST_F(CliPicture, WhatWasReadBeforeAnUnreadablePictureIsShown) {
  const std::vector<std::string> paths = pictures();
  put_file(temp / "bad.png", "no picture");
  const Outcome o = run("classify '" + model("vit") + "' --json --image" + quoted({paths[0], paths[1]}) +
                        " '" + (temp / "bad.png") + "'" + quoted({paths[2]}));
  EXPECT_NE(o.code, 0);
  EXPECT_EQ(lines_of(o.out).size(), 2u);
  EXPECT_TRUE(holds(o.err, "bad.png")) << o.err;
}

TEST_F(CliPicture, WrongInputsAreNamed) {
  const std::string vit = "'" + model("vit") + "'", image = "'" + pictures()[0] + "'";
  const auto error = [&](const std::string& command) {
    const Outcome o = run(command);
    EXPECT_NE(o.code, 0) << command;
    return o.err;
  };
  EXPECT_TRUE(holds(error("logits " + vit + " --ids 1 -o '" + (temp / "l.npy") + "'"), "reads pictures"));
  EXPECT_TRUE(
      holds(error("inspect attention " + vit + " --image " + image + " --image " + image), "2 are named"));
  EXPECT_TRUE(holds(error("inspect sinks " + vit + " --image " + image), "a picture has none"));
}

TEST_F(CliPicture, LabelsAreComparedAsTransformersDoes) {
  const std::vector<std::string> paths = pictures();
  std::vector<std::string> names;
  for (const Json& label : need(expected(), "labels").array()) names.emplace_back(label.string());
  for (const char* name : {"clip", "siglip"}) {
    const std::string folder = model(name), words = " --labels '" + labels() + "' --json --image";
    const Outcome o = run("classify '" + folder + "'" + words + quoted(paths));
    ASSERT_EQ(o.code, 0) << o.err;
    check_classes(lines_of(o.out), name, names, paths);
    // The name of the half makes no difference, nor does the usual template.
    const Outcome same =
        run("classify '" + folder + ":vision' --template 'This is a photo of {}.'" + words + quoted(paths));
    EXPECT_EQ(same.out, o.out) << same.err;
    const Outcome other =
        run("classify '" + folder + "' --template 'a drawing of {}'" + words + quoted(paths));
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_NE(other.out, o.out);
  }
}

TEST_F(CliPicture, VectorsAreThoseOfTransformers) {
  const std::vector<std::string> paths = pictures();
  for (const char* name : {"clip", "siglip"}) {
    const std::string folder = model(name);
    const Outcome o = run("embed '" + folder + "' --json --image" + quoted(paths));
    ASSERT_EQ(o.code, 0) << o.err;
    const std::vector<Json> got = lines_of(o.out);
    ASSERT_EQ(got.size(), paths.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(need(got[i], "image").string(), paths[i]);
      const Json::Array &values = need(got[i], "embedding").array(),
                        &want = results(name, "vectors", i).array();
      ASSERT_EQ(values.size(), want.size());
      for (std::size_t k = 0; k < want.size(); ++k)
        EXPECT_NEAR(values[k].number(), want[k].number(), 1e-4) << name << " " << paths[i];
    }
    const std::string out = temp / concat(name, ".npy");
    ASSERT_EQ(run("embed '" + folder + "' --normalize --out '" + out + "' --image" + quoted(paths)).code, 0);
    const NpyArray array = rapt::read_npy(out);
    ASSERT_EQ(array.shape[0], static_cast<Dim>(paths.size()));
    double squares = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(array.shape[1]); ++k)
      squares += std::pow(static_cast<double>(array.values[k]), 2);
    EXPECT_NEAR(squares, 1, 1e-5);
  }
  const Outcome texts = run("embed '" + model("clip") + "' 'a cat'");  // its other half reads texts
  EXPECT_EQ(texts.code, 0) << texts.err;
}

TEST_F(CliPicture, AFolderStandsForItsPictures) {
  const std::string vit = model("vit"), many = temp / "many";
  std::filesystem::create_directories(many);
  for (int i = 0; i < 37; ++i)
    put_file(concat(many, "/", 100 + i, i % 2 ? ".png" : ".jpeg"),
             golden_image(i % 2 ? "png-2-8" : "jpeg-420"));
  put_file(many + "/notes.txt", "no picture");
  const Outcome o = run("classify '" + vit + "' -k 1 --image '" + many + "'");
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_TRUE(line.starts_with(concat(many, "/", 100 + count, count % 2 ? ".png: " : ".jpeg: "))) << line;
  EXPECT_EQ(count, 37);
  // A single picture has no name before it, and every batch says the same.
  const Outcome one = run("classify '" + vit + "' -k 1 --image '" + many + "/136.jpeg'");
  EXPECT_TRUE(has(o.out, "136.jpeg: " + one.out)) << one.out << one.err;
}

TEST_F(CliPicture, SaysWhatItCannotDo) {
  const std::string vit = model("vit"), clip = model("clip"), picture = pictures()[0];
  const std::string bert = temp / "bert";
  write_folder(read_toy("bert"), bert);
  put_file(temp / "broken.png", golden_image("png-2-8").substr(0, 50));
  put_file(temp / "anim.gif", "GIF89a....");
  std::filesystem::create_directories(temp / "empty");
  struct Case {
    std::string args, words;
    int code;
  };
  const Case cases[] = {
      {"classify '" + bert + "' --image '" + picture + "'", "reads texts, not pictures", 2},
      {"embed '" + bert + "' --image '" + picture + "'", "reads texts, not pictures", 2},
      {"classify '" + vit + "' 'a text'", "reads pictures, not texts: --image FILE", 2},
      {"embed '" + vit + "' 'a text'", "reads pictures, not texts: --image FILE", 2},
      {"classify '" + clip + "' --image '" + picture + "'", "--labels 'a cat,a dog'", 2},
      {"classify '" + vit + "' --labels a,b --image '" + picture + "'",
       "does not compare pictures with texts", 2},
      {"classify '" + clip + "' --labels ' , ' --image '" + picture + "'", "no label", 2},
      {"classify '" + clip + "' --labels a --template none --image '" + picture + "'", "has no {}", 2},
      {"classify '" + clip + "' --template '{}' --image '" + picture + "'", "--labels, which are missing", 2},
      {"classify '" + clip + "' --labels a,b 'a text'", "--labels is for pictures", 2},
      {"classify '" + vit + "' --in x --image '" + picture + "'", "a model reads one of the two", 2},
      {"classify '" + vit + "' --image '" + temp.path() + "/none.png'", "none.png: no such file", 1},
      {"classify '" + vit + "' --image '" + temp.path() + "/empty'", "this folder has no pictures", 1},
      {"classify '" + vit + "' --image '" + temp.path() + "/anim.gif'", "is a GIF, which is not read", 1},
      {"embed '" + vit + "' --image '" + temp.path() + "/broken.png'", "broken.png", 1},
  };
  for (const Case& c : cases) {
    const Outcome o = run(c.args, "</dev/null");
    EXPECT_TRUE(has(o.err, c.words)) << c.args << ": " << o.err;
    EXPECT_EQ(o.code, c.code) << c.args;
    EXPECT_EQ(o.out, "") << c.args;
  }
  put_file(vit + "/preprocessor_config.json", R"({"image_processor_type": "ViTImageProcessor", "size": 0})");
  const Outcome o = run("classify '" + vit + "' --image '" + picture + "'");
  EXPECT_TRUE(has(o.err, "preprocessor_config.json: 'size' is 0 pixels")) << o.err;
}

}  // namespace
}  // namespace rapt::test
