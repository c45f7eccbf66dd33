// SPDX-License-Identifier: Apache-2.0
// Looking inside a model while it reads a picture: attention that is computed again is that of the pass, rows
// have names, maps lie over the picture.
#include <cmath>

#include "rapt/image/image.h"
#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/massive.h"
#include "rapt/inspect/subject.h"
#include "rapt/nn/patches.h"
#include "rapt/report/picture.h"
#include "tests/cli.h"
#include "tests/image_files.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class InspectPicture : public Cli {
 protected:
  const TempFolder temp;
  Device device{DeviceOptions{.threads = 2}};
  std::vector<float> pixels;
  Picture picture;

  Checkpoint open(const std::string& name) {
    write_folder(read_toy("../vision/" + name), temp / name);
    return open_checkpoint(temp / name, {.tower = Tower::vision});
  }
  // A picture that is not the model's own size, and the numbers of its rows.
  TextIds rows_of(const Model& model) {
    const PatchRecipe& p = *model.recipe.embed.patches;
    const Dim height = 2 * p.size, width = 5 * p.size + 1;
    for (Dim i = 0; i < 3 * height * width; ++i)
      pixels.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(i * i % 1000))));
    picture = {pixels, height, width};
    TextIds ids;
    for (Dim i = 0; i < p.before() + 10; ++i) ids.push_back(static_cast<std::int32_t>(i));
    ids.picture = picture;
    return ids;
  }
};

// Registers and a table of positions; positions that turn queries and keys; no learned tokens at all.
TEST_F(InspectPicture, AttentionComputedAgainIsThatOfThePass) {
  for (const char* name : {"dinov2-registers-model", "dinov3", "siglip"}) {
    pixels.clear();
    const Checkpoint c = open(name);
    const Model& model = *c.model;
    const TextIds ids = rows_of(model);
    std::map<std::tuple<int, Dim, Dim>, std::vector<float>> passed;  // layer, row, head
    Taps taps;
    taps.want_weights(
        site::attn_weights,
        [&](const Tapped&) {
          std::vector<Taps::HeadRow> out;
          for (Dim head = 0; head < model.recipe.encoder->layer(0).parts[0].self()->heads; ++head)
            for (const Dim row : {0, 4}) out.push_back({head, row});
          return out;
        },
        [&](const Tapped& t) {
          std::vector<float>& w = passed[{t.layer, t.row, t.head}];
          for (Dim k = 0; k < t.value.elements(); ++k) w.push_back(static_cast<float>(t.value.at(k)));
        });
    look(device, model, taps, ids);
    const AttentionRecord record(device, model, ids);
    std::size_t compared = 0;
    for (const AttentionPlace& place : record.places()) {
      const std::vector<Dim> some = {0, 4};
      record.rows(place, -1, some, [&](Dim row, int head, std::span<const float> w) {
        const std::vector<float>& want = passed[{place.layer, row, head}];
        ASSERT_EQ(w.size(), ids.size());
        ASSERT_EQ(want.size(), w.size()) << name;
        for (std::size_t k = 0; k < w.size(); ++k) EXPECT_NEAR(w[k], want[k], 2e-6f) << name;
        ++compared;
      });
    }
    EXPECT_EQ(compared, 2u * 2 * static_cast<std::size_t>(record.heads(record.places()[0])));
  }
}

TEST_F(InspectPicture, RowsHaveNames) {
  const Checkpoint c = open("dinov2-registers-model");
  Subject s(device, c);
  s.ids = rows_of(*c.model);
  const std::vector<std::string> words = s.words();
  ASSERT_EQ(words.size(), 14u);
  EXPECT_EQ(words[0], "cls");
  EXPECT_EQ(words[3], "register 2");
  EXPECT_EQ(words[4], "patch 0,0");
  EXPECT_EQ(words[13], "patch 1,4");
}

TEST_F(InspectPicture, TheProgramLaysAttentionOverAPicture) {
  open("dinov2-registers-model");
  put_file(temp / "dinov2-registers-model/preprocessor_config.json",
           R"({"image_processor_type": "BitImageProcessor", "do_resize": true, "do_center_crop": false,
               "size": {"height": 24, "width": 30}})");
  put_file(temp / "a.png", golden_image("png-2-8"));
  const std::string model = temp / "dinov2-registers-model", image = " --image '" + (temp / "a.png") + "'";
  const Outcome json = run("inspect attention '" + model + "'" + image + " --json");
  ASSERT_EQ(json.code, 0) << json.err;
  const Json j = parse_json(json.out);
  const Json& data = need(j, "data");
  EXPECT_EQ(need(need(j, "picture"), "rows").array()[1].string(), "register 0");
  EXPECT_EQ(need(data, "row").string(), "cls");
  EXPECT_EQ(need(data, "grid").array()[1].integer(), 5);
  const auto& layers = need(data, "weights").array();
  ASSERT_EQ(layers.size(), 2u);
  for (const Json& layer : layers)
    for (const Json& head : layer.array()) {
      double sum = 0;
      for (const Json& w : head.array()) sum += w.number();
      EXPECT_EQ(head.array().size(), 1u + 3 + 4 * 5);
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  const Outcome png =
      run("inspect attention '" + model + "'" + image + " --row 3,4 --out '" + (temp / "m.png") + "'");
  ASSERT_EQ(png.code, 0) << png.err;
  const Image drawn = read_image(temp / "m.png");
  EXPECT_GT(drawn.width, 300);
  EXPECT_TRUE(
      has(run("inspect attention '" + model + "'" + image + " --row nose").err, "no row of the picture"));
  EXPECT_TRUE(has(run("inspect attention '" + model + "' 'a text'").err, "--image"));
  const Outcome massive = run("inspect massive '" + model + "'" + image);
  ASSERT_EQ(massive.code, 0) << massive.err;
  EXPECT_TRUE(has(massive.out, "patch 1,2") && has(massive.out, "register 1")) << massive.out;
  EXPECT_EQ(run("inspect outliers '" + model + "'" + image).code, 0);
  EXPECT_EQ(run("inspect norms '" + model + "'" + image).code, 0);
}

// What lies below a map is seen through it: more of the colour where the value is larger.
TEST(HeatMapBackdrop, IsSeenThroughTheCells) {
  HeatMap map{.title = "t", .rows = {"a", "b"}, .columns = {"c", "d"}, .values = {0, 1, 0, 0}};
  map.backdrop = {.width = 1, .height = 1, .rgb = {200, 200, 200}};
  const PngLayout l = heat_png_layout(map);
  const Image image = decode_image(heat_png(map), "map");
  const auto at = [&](int row, int column) {
    const auto i = static_cast<std::size_t>((l.top + l.cell * row + l.cell / 2) * l.width + l.left +
                                            l.cell * column + l.cell / 2) *
                   3;
    return std::array<int, 3>{image.rgb[i], image.rgb[i + 1], image.rgb[i + 2]};
  };
  EXPECT_EQ(at(0, 0), (std::array<int, 3>{110, 110, 110}));  // grey, dimmed
  EXPECT_GT(at(0, 1)[0], at(0, 1)[2] + 100);  // it glows
}

}  // namespace
}  // namespace rapt::test
