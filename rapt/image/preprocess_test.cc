// SPDX-License-Identifier: Apache-2.0
// Prepared pictures are those of transformers' processors to the last bit, for pictures drawn by a rule
// (tests/golden/images/processors.json); fields of files are read or refused.
#include "rapt/image/preprocess.h"

#include <gtest/gtest.h>

#include "tests/image_files.h"

namespace rapt {
namespace {

using test::error_of, test::holds, test::need;

TEST(Preprocess, EqualsTransformers) {
  const Json& golden = test::image_golden("processors.json");
  const Json::Array& cases = need(golden, "cases").array();
  EXPECT_GE(cases.size(), 45u);
  for (const Json& c : cases) {
    const std::string config = need(c, "config").string();
    const Dim width = need(c, "width").integer(), height = need(c, "height").integer();
    const std::string where = concat(config, " of ", width, " x ", height);
    const ImageProcess process = parse_image_process(need(need(golden, "configs"), config), config);
    const PreparedImage out = preprocess(
        process, test::drawn_picture(width, height, static_cast<std::uint64_t>(need(c, "seed").integer())));
    const Json::Array& shape = need(c, "shape").array();
    ASSERT_EQ(out.height, shape[1].integer()) << where;
    ASSERT_EQ(out.width, shape[2].integer()) << where;
    const std::size_t n = out.pixels.size(), plane = n / 3;
    ASSERT_EQ(static_cast<Dim>(n), 3 * out.height * out.width) << where;
    const Json::Array& values = need(c, "values").array();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = values[i].number();
      const auto got = static_cast<double>(out.pixels[(i * 2654435761u + 12345) % n]);
      EXPECT_NEAR(got, expected, 1e-5 * std::max(1.0, std::abs(expected))) << where << ", value " << i;
    }
    for (std::size_t channel = 0; channel < 3; ++channel) {
      double sum = 0;
      for (std::size_t i = 0; i < plane; ++i) sum += static_cast<double>(out.pixels[channel * plane + i]);
      EXPECT_NEAR(sum, need(c, "sums").array()[channel].number(), 1e-3) << where << ", channel " << channel;
    }
    const auto* bytes = reinterpret_cast<const Bytef*>(out.pixels.data());
    EXPECT_EQ(::crc32(0, bytes, static_cast<uInt>(4 * n)), static_cast<uLong>(need(c, "crc").integer()))
        << where << ": some bit differs";
  }
}

// DINOv3's processor wants torchvision; torch alone computes the same (make_images.py). No bits: torch adds
// in another order.
TEST(Preprocess, NumbersAreResizedAsTorchDoes) {
  const Json& golden = test::image_golden("processors.json");
  const Json::Array& cases = need(golden, "numbers").array();
  EXPECT_GE(cases.size(), 8u);
  for (const Json& c : cases) {
    const Dim width = need(c, "width").integer(), height = need(c, "height").integer();
    const ImageProcess process = parse_image_process(need(c, "fields"), "dinov3");
    EXPECT_TRUE(process.rescale_first);
    const PreparedImage out = preprocess(
        process, test::drawn_picture(width, height, static_cast<std::uint64_t>(need(c, "seed").integer())));
    const Json::Array &shape = need(c, "shape").array(), &values = need(c, "values").array();
    ASSERT_EQ(out.height, shape[1].integer());
    ASSERT_EQ(out.width, shape[2].integer());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(static_cast<double>(out.pixels[(i * 2654435761u + 12345) % out.pixels.size()]),
                  values[i].number(), 1e-5)
          << width << " x " << height << ", value " << i;
  }
}

TEST(Preprocess, NothingToDoChangesNothing) {
  const Image image = test::drawn_picture(5, 3, 1);
  ImageProcess p;
  p.resize = p.rescale = p.normalize = false;
  const PreparedImage out = preprocess(p, image);
  ASSERT_EQ(out.pixels.size(), 45u);
  for (std::size_t i = 0; i < 15; ++i)
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(out.pixels[c * 15 + i], image.rgb[3 * i + c]);
}

TEST(Preprocess, AFlatPictureStaysFlat) {
  for (const Resample r : {Resample::nearest, Resample::lanczos, Resample::bilinear, Resample::bicubic,
                           Resample::box, Resample::hamming})
    for (const auto& [height, width] : {std::pair<Dim, Dim>{1, 1}, {5, 40}, {33, 7}, {64, 64}}) {
      const Image out = resize_image({19, 11, std::vector<std::uint8_t>(3 * 19 * 11, 77)}, height, width, r);
      EXPECT_EQ(out.rgb, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * height * width), 77));
    }
}

TEST(Preprocess, AStripThatWouldBeTooLargeIsRefused) {
  const ImageProcess clip = *usual_image_process("clip");
  const Image strip{60000, 1, std::vector<std::uint8_t>(180000)};
  const std::string message = error_of([&] { preprocess(clip, strip, "strip.png"); });
  EXPECT_TRUE(holds(
      message, "strip.png: a picture of 60000 x 1 whose shorter side becomes 224 would be 13440000 x 224"))
      << message;
  EXPECT_TRUE(holds(error_of([&] { preprocess(clip, Image{}, "none"); }), "none: the picture is 0 x 0"));
}

TEST(Preprocess, UsualForFamilies) {
  const ImageProcess vit = *usual_image_process("vit", 384);
  EXPECT_EQ(vit.height, 384);
  EXPECT_FALSE(vit.center_crop);
  EXPECT_EQ(vit.mean[0], 0.5);
  const ImageProcess deit = *usual_image_process("deit");
  EXPECT_EQ(deit.width, 256);
  EXPECT_EQ(deit.crop_width, 224);
  EXPECT_EQ(deit.std[2], 0.225);
  const ImageProcess dino = *usual_image_process("dinov2", 518);
  EXPECT_EQ(dino.shortest_edge, 256);
  EXPECT_EQ(dino.crop_height, 224);
  EXPECT_EQ(usual_image_process("clip_vision_model", 336)->shortest_edge, 336);
  EXPECT_EQ(usual_image_process("siglip")->resample, Resample::bicubic);
  EXPECT_FALSE(usual_image_process("bert"));
}

TEST(Preprocess, FoldersByTheirFiles) {
  const test::TempFolder temp;
  EXPECT_EQ(read_image_process(temp.path(), "vit", 30).height, 30);
  const std::string missing = error_of([&] { read_image_process(temp.path(), "swin"); });
  EXPECT_TRUE(holds(missing, "has no preprocessor_config.json") && holds(missing, "'swin'")) << missing;
  test::put_file(temp / "preprocessor_config.json", R"({"size": 99, "image_mean": null})");  // no class
  EXPECT_EQ(read_image_process(temp.path(), "vit").height, 99);
  EXPECT_EQ(read_image_process(temp.path(), "clip").shortest_edge, 99);
  test::put_file(temp / "processor_config.json", R"({"processor_class": "CLIPProcessor"})");
  EXPECT_EQ(read_image_process(temp.path(), "vit").height, 99);  // of 2023: names only
  test::put_file(
      temp / "processor_config.json",
      R"({"image_processor": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 7, "width": 8}}})");
  const ImageProcess nested = read_image_process(temp.path(), "vit");
  EXPECT_EQ(nested.type, "SiglipImageProcessor");
  EXPECT_EQ(nested.width, 8);
}

TEST(Preprocess, OldNamesOfClasses) {
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    const std::string json = concat("{\"", key, "\": \"ViTFeatureExtractor\", \"size\": 30}");
    const ImageProcess old = parse_image_process(parse_json(json), "old", "");
    EXPECT_EQ(old.type, "ViTImageProcessor") << key;
    EXPECT_EQ(old.height, 30);
    EXPECT_EQ(old.resample, Resample::bilinear);
    EXPECT_EQ(old.mean[0], 0.5);
  }
}

TEST(Preprocess, PreparedFromAFile) {
  const test::TempFolder temp;
  test::put_file(temp / "a", test::golden_image("png-palette-alpha"));
  const ImageProcess p = *usual_image_process("siglip");
  EXPECT_EQ(read_prepared_image(p, temp / "a").pixels, preprocess(p, read_image(temp / "a")).pixels);
}

struct WrongFields {
  const char *json, *words;
};
constexpr WrongFields kWrong[] = {
    {"[]", "instead of an object"},
    {"{}", "'image_processor_type' is missing"},
    {R"({"image_processor_type": 3})", "instead of a name"},
    {R"({"image_processor_type": "ViTImageProcesor"})", "did you mean 'ViTImageProcessor'"},
    {R"({"image_processor_type": "DonutImageProcessor"})", "'DonutImageProcessor', which is not known"},
    {R"({"feature_extractor_type": "WhisperFeatureExtractor"})", "not known"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": 0})", "'size' is 0 pixels"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": -224})", "'size' is -224 pixels"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": 1e9})",
     "'size' is 1000000000 pixels; 1 to 4,096"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": 99999999999999999999})",
     "instead of a whole number"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": 22.4})", "instead of a whole number"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": "224"})", "instead of a size"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": true})", "instead of a size"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": []})", "has 0 numbers"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": [1, 2, 3]})", "has 3 numbers"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": {}})", "must have height and width"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": {"height": 3}})", "must have height and width"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": {"height": 3, "width": null}})",
     "'size.width' is null"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": {"height": 3, "width": 0}})",
     "'size.width' is 0"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": {"longest_edge": 3}})",
     "must have height and width"},
    {R"({"image_processor_type": "ViTImageProcessor", "size": {"shortest_edge": 3, "longest_edge": 4}})",
     "nothing else"},
    {R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 5000}})",
     "shortest_edge' is 5000"},
    {R"({"image_processor_type": "CLIPImageProcessor", "size": 1e18})", "a whole number of pixels"},
    {R"({"image_processor_type": "CLIPImageProcessor", "crop_size": {"shortest_edge": 5}})",
     "'crop_size' must have"},
    {R"({"image_processor_type": "CLIPImageProcessor", "crop_size": {"height": 1e9, "width": 1}})",
     "crop_size.height"},
    {R"({"image_processor_type": "ViTImageProcessor", "do_center_crop": true})", "there is no crop_size"},
    {R"({"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 1})", "knows 2 and 3"},
    {R"({"image_processor_type": "DINOv3ViTImageProcessor", "crop_size": 5, "do_center_crop": true})",
     "not known of a DINOv3"},
    {R"({"image_processor_type": "ViTImageProcessor", "do_resize": 1})", "instead of true or false"},
    {R"({"image_processor_type": "ViTImageProcessor", "do_normalize": "yes"})", "instead of true or false"},
    {R"({"image_processor_type": "ViTImageProcessor", "do_pad": true})", "padding"},
    {R"({"image_processor_type": "ViTImageProcessor", "resample": 6})", "'resample' is 6; known: 0 nearest"},
    {R"({"image_processor_type": "ViTImageProcessor", "resample": -1})", "'resample' is -1"},
    {R"({"image_processor_type": "ViTImageProcessor", "resample": "bicubic"})", "'resample' is a string"},
    {R"({"image_processor_type": "ViTImageProcessor", "rescale_factor": "1/255"})",
     "'rescale_factor' is a string"},
    {R"({"image_processor_type": "ViTImageProcessor", "rescale_factor": 1e300})", "beyond a million"},
    {R"({"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5]})",
     "has 2 numbers instead of three"},
    {R"({"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5, "x"]})",
     "'image_mean' is a string"},
    {R"({"image_processor_type": "ViTImageProcessor", "image_mean": {"r": 1}})", "'image_mean' is an object"},
    {R"({"image_processor_type": "ViTImageProcessor", "image_std": [0.5, 0, 0.5]})", "'image_std' is 0"},
    {R"({"image_processor_type": "ViTImageProcessor", "image_std": -1})", "'image_std' is -1"},
    {R"({"image_processor_type": "ViTImageProcessor", "image_std": 1e-300})", "divides every pixel"},
};

TEST(Preprocess, WrongFieldsAreRefused) {
  for (const WrongFields& w : kWrong) {
    const std::string message = error_of([&] { parse_image_process(parse_json(w.json), "p.json"); });
    EXPECT_TRUE(holds(message, w.words) && message.starts_with("p.json: ")) << w.json << ": " << message;
  }
  const test::TempFolder temp;
  for (const char* text :
       {"", "{", R"({"size": NaN})", R"({"image_mean": [Infinity, 0, 0]})", "\xFF\xFE{}"}) {
    test::put_file(temp / "preprocessor_config.json", text);
    const std::string message = error_of([&] { read_image_process(temp.path(), "vit"); });
    EXPECT_TRUE(holds(message, "preprocessor_config.json:")) << text << ": " << message;
  }
}

}  // namespace
}  // namespace rapt
