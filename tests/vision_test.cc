// SPDX-License-Identifier: Apache-2.0
// Models that read pictures, against what transformers computed (tests/golden/vision): every stored number,
// both towers, other sizes of pictures; folders and GGUF files written and read again; gradients; a block of
// ViT-22B against a plain loop; tokenizers; and a small model that learns what the test draws.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>

#include "rapt/base/rng.h"
#include "rapt/load/model_folder.h"
#include "rapt/nn/patches.h"
#include "rapt/ops/loss.h"
#include "rapt/text/tokenizer/from_files.h"
#include "rapt/text/tokenizer/write.h"
#include "rapt/use/picture_files.h"
#include "rapt/use/read_pictures.h"
#include "rapt/use/training.h"
#include "tests/build_kind.h"
#include "tests/image_files.h"
#include "tests/model_tools.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

constexpr double kTolerance = 1e-4;

Device& device() {
  static Device one({.threads = 2});
  return one;
}

std::vector<std::string> vision_toys() {
  std::vector<std::string> out;
  const auto folder = std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden" / "vision";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}
Toy vision_toy(const std::string& name) {
  Toy toy = read_toy("../vision/" + name);
  toy.name = name;
  return toy;
}

// Pixels of a case by the rule of the tensors' values.
ToyTensor pixels_of(const Json& test) {
  Json::Array tensors;
  tensors.push_back(need(test, "pixels"));
  Json json = Json::Object{};
  json.set("config", Json::Object{});
  json.set("tensors", std::move(tensors));
  return toy_from("pixels", json).tensors[0];
}
std::vector<Picture> pictures_of(const ToyTensor& t) {
  std::vector<Picture> out;
  const auto size = static_cast<std::size_t>(t.shape[1] * t.shape[2] * t.shape[3]);
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.shape[0]); ++i)
    out.push_back({std::span(t.values).subspan(i * size, size), t.shape[2], t.shape[3]});
  return out;
}

using Rows = std::vector<std::vector<float>>;

// Of texts, each on its own, as they are.
Rows read_ids(Device& on, const Model& model, const Json& test, bool hidden) {
  Rows out;
  for (const Json& list : need(test, "sequences").array()) {
    const std::vector<std::int32_t> ids = ids_of(list);
    rapt::Run run(on);
    Batch batch{.tokens = ids, .sequences = {{.first = 0, .count = static_cast<Dim>(ids.size())}}};
    batch.want.hidden = hidden;
    const Tensor y = forward(run, model, batch);
    std::vector<float>& row = out.emplace_back();
    for (Dim i = 0; i < y.elements(); ++i) row.push_back(static_cast<float>(y.at(i)));
  }
  return out;
}
std::vector<double> joined(const Rows& rows) {
  std::vector<double> out;
  for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}
Rows unit(Rows rows) {
  for (auto& row : rows) {
    double squares = 0;
    for (const float x : row) squares += static_cast<double>(x) * static_cast<double>(x);
    for (float& x : row) x = static_cast<float>(static_cast<double>(x) / std::sqrt(squares));
  }
  return rows;
}

// The largest difference to a stored array, or infinity.
double distance_to(const Json& want, const std::vector<double>& got) {
  const auto& values = need(want, "values").array();
  if (values.size() != got.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = std::fabs(got[i] - values[i].number());
    worst = std::isnan(off) ? INFINITY : std::max(worst, off);
  }
  return worst;
}

// The rows of the hidden states that a file keeps.
std::vector<double> kept_rows(const Json& want, const Rows& hidden, Dim width) {
  std::vector<double> out;
  for (const auto& picture : hidden)
    for (const Json& row : need(want, "rows").array())
      for (Dim c = 0; c < width; ++c)
        out.push_back(static_cast<double>(picture[static_cast<std::size_t>(row.integer() * width + c)]));
  return out;
}

// Everything a case expects; `seen` counts what was compared by name.
double case_distance(const Json& test, Device& on, const Checkpoint* vision, const Checkpoint* text,
                     std::map<std::string, int>* seen = nullptr) {
  Rows pictures, hidden, words, text_hidden;
  ToyTensor pixels;
  if (test.find("pixels") && vision) {
    pixels = pixels_of(test);
    pictures = read_pictures(on, *vision, pictures_of(pixels), "test");
    hidden = read_pictures(on, *vision, pictures_of(pixels), "test", true);
  }
  if (test.find("sequences") && text) {
    words = read_ids(on, *text->model, test, false);
    text_hidden = read_ids(on, *text->model, test, true);
  }
  double worst = 0;
  for (const Json::Member& m : need(test, "expect").object()) {
    std::vector<double> got;
    if (m.key == "logits_per_image") {
      if (!vision || !text) continue;
      got = joined(match_vectors(*vision, pictures, words).logits);
    } else if (m.key.starts_with("text_")) {
      if (!text) continue;
      got = joined(m.key == "text_hidden_state" ? text_hidden : m.key == "text_embeds" ? unit(words) : words);
    } else {
      if (!vision) continue;
      const Dim C = vision->model->recipe.width;
      if (m.key == "last_hidden_state") got = kept_rows(m.value, hidden, C);
      else if (m.key == "image_embeds") got = joined(unit(pictures));
      else if (m.key == "pooler_output") got = joined(embed_pictures(on, *vision, pictures_of(pixels)));
      else if (m.key == "logits" || m.key == "image_features") got = joined(pictures);
      else continue;  // DeiT's two classifiers apart
    }
    if (seen) ++(*seen)[m.key];
    worst = std::max(worst, distance_to(m.value, got));
  }
  return worst;
}

struct Towers {
  std::optional<Checkpoint> vision, text;
  const Checkpoint* v() const { return vision ? &*vision : nullptr; }
  const Checkpoint* t() const { return text ? &*text : nullptr; }
};
// Of a folder, what its cases ask for.
Towers open_towers(const Toy& toy, const std::string& folder, LoadOptions options) {
  Towers out;
  const Json& first = need(toy.json, "cases").array()[0];
  options.tower = Tower::vision;
  if (first.find("pixels")) out.vision = open_checkpoint(folder, options);
  options.tower = Tower::text;
  if (first.find("sequences")) out.text = open_checkpoint(folder, options);
  return out;
}
double toy_vision_distance(const Toy& toy, const Towers& towers, Device& on,
                           std::map<std::string, int>* seen = nullptr) {
  double worst = 0;
  for (const Json& test : need(toy.json, "cases").array())
    worst = std::max(worst, case_distance(test, on, towers.v(), towers.t(), seen));
  return worst;
}

TEST(Vision, EveryToyGivesTheLibrarysNumbers) {
  std::map<std::string, int> seen;
  const auto names = vision_toys();
  EXPECT_GE(names.size(), 20u);
  for (const std::string& name : names) {
    const Toy toy = vision_toy(name);
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    EXPECT_LE(
        toy_vision_distance(toy, open_towers(toy, temp / "toy", {.device = &device()}), device(), &seen),
        kTolerance)
        << name;
  }
  for (const char* key :
       {"logits", "last_hidden_state", "pooler_output", "image_features", "image_embeds", "text_features",
        "text_embeds", "text_hidden_state", "text_pooler_output", "logits_per_image"})
    EXPECT_GE(seen[key], 1) << key;
}

TEST(Vision, InDoublePrecisionTheStoredDigitsAreMet) {
  Device reference({.threads = 1, .isa = "f64"});
  for (const char* name : {"vit", "deit", "dinov2", "dinov2-registers", "clip", "siglip"}) {
    const Toy toy = vision_toy(name);
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    EXPECT_LE(toy_vision_distance(toy, open_towers(toy, temp / "toy", {.real = DType::f64}), reference), 1e-5)
        << name;
  }
}

TEST(Vision, EveryToyIsWrittenBackAsItsFamily) {
  for (const std::string& name : vision_toys()) {
    const Toy toy = vision_toy(name);
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    const Towers before = open_towers(toy, temp / "toy", {.device = &device()});
    for (const Checkpoint* c : {before.v(), before.t()}) {
      if (!c) continue;
      const std::string to = temp / (c == before.v() ? "vision" : "text");
      write_model_folder(*c->model, {}, to, false);
      Checkpoint again = open_checkpoint(to, {.device = &device()});
      EXPECT_EQ(again.family, c->family) << name;
      again.logit_scale = c->logit_scale, again.logit_bias = c->logit_bias;
      for (const Json& test : need(toy.json, "cases").array())
        EXPECT_LE(case_distance(test, device(), c == before.v() ? &again : nullptr,
                                c == before.t() ? &again : nullptr),
                  kTolerance)
            << name;
    }
  }
}

// No other program reads these as GGUF: our names, and the recipe inside.
TEST(Vision, GgufFilesOfOurOwnFormGiveTheSame) {
  for (const std::string& name : vision_toys()) {
    const Toy toy = vision_toy(name);
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    const Json& first = need(toy.json, "cases").array()[0];
    Towers towers;
    if (first.find("pixels")) {
      write_checkpoint(temp / "toy:vision", temp / "vision.gguf", {});
      towers.vision = open_checkpoint(temp / "vision.gguf");
    }
    if (first.find("sequences")) {
      write_checkpoint(temp / "toy:text", temp / "text.gguf", {});
      towers.text = open_checkpoint(temp / "text.gguf");
    }
    EXPECT_LE(toy_vision_distance(toy, towers, device()), kTolerance) << name;
  }
}

// Both models of a folder become narrower, not only the one that was named.
TEST(Vision, AFolderWithTwoModelsIsConvertedAsAWhole) {
  const Toy toy = vision_toy("clip");
  const TempFolder temp;
  write_folder(toy, temp / "toy");
  write_checkpoint(temp / "toy", temp / "narrow", {.type = DType::bf16});
  const Towers towers = open_towers(toy, temp / "narrow", {.device = &device()});
  for (const Checkpoint* c : {towers.v(), towers.t()}) {
    EXPECT_EQ(c->model->weight("encoder.0.self.q.weight").format, DType::bf16) << c->family;
    EXPECT_EQ(c->model->weight("head.vector.weight").format, DType::bf16) << c->family;
    EXPECT_TRUE(c->logit_scale);
  }
  const double off = toy_vision_distance(toy, towers, device());
  EXPECT_GT(off, 0);
  EXPECT_LT(off, 0.3);
}

TEST(Vision, QuantizedCopiesStayNear) {
  const Toy toy = vision_toy("vit");
  const TempFolder temp;
  write_folder(toy, temp / "toy");
  write_checkpoint(temp / "toy", temp / "q.gguf", {.type = DType::q8_0});
  Towers towers;
  towers.vision = open_checkpoint(temp / "q.gguf");
  const double off = toy_vision_distance(toy, towers, device());
  EXPECT_GT(off, 0);
  EXPECT_LT(off, 0.5);
}

TEST(Vision, BatchesAndNeighboursChangeNoBit) {
  const Toy toy = vision_toy("dinov2-registers");
  const TempFolder temp;
  write_folder(toy, temp / "toy");
  const Checkpoint c = open_checkpoint(temp / "toy", {.tower = Tower::vision});
  const auto& cases = need(toy.json, "cases").array();
  const ToyTensor a = pixels_of(cases[0]), b = pixels_of(cases[1]);  // pictures of two sizes in one pass
  std::vector<Picture> all = pictures_of(a);
  for (const Picture& p : pictures_of(b)) all.push_back(p);
  Device one({.threads = 1});
  const Rows together = read_pictures(device(), c, all, "test", true);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(together[i], read_pictures(one, c, {&all[i], 1}, "test", true)[0]) << i;
}

TEST(Vision, MutationsFailTheComparison) {
  struct Mutation {
    const char* toy;
    const char* what;
    void (*change)(Recipe&);
  };
  const Mutation all[] = {
      {"vit", "resampled with a filter",
       [](Recipe& r) { r.embed.patches->resample = PatchRecipe::Resample::antialias; }},
      {"dinov2-registers", "resampled without a filter",
       [](Recipe& r) { r.embed.patches->resample = PatchRecipe::Resample::bicubic; }},
      {"clip", "another activation",
       [](Recipe& r) { r.encoder->kinds.at("L").parts[1].ffn()->act = Act::gelu; }},
      {"siglip", "eps of the pooled norm", [](Recipe& r) { r.head.attend.norm.eps = 1e-2; }},
      {"siglip", "heads of the pool", [](Recipe& r) { r.head.attend.heads = 2; }},
  };
  for (const Mutation& m : all) {
    const Toy toy = vision_toy(m.toy);
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    Towers towers;
    towers.vision = open_checkpoint(temp / "toy", {.change = m.change, .tower = Tower::vision});
    EXPECT_GT(toy_vision_distance(toy, towers, device()), 2 * kTolerance) << m.toy << ": " << m.what;
  }
}

TEST(Vision, ErrorsSayWhatIsMissing) {
  const TempFolder temp;
  write_folder(vision_toy("clip"), temp / "clip");
  const Checkpoint text = open_checkpoint(temp / "clip"), vision = open_checkpoint(temp / "clip:vision");
  EXPECT_EQ(text.family, "clip_text");
  EXPECT_EQ(vision.family, "clip_vision");
  EXPECT_TRUE(vision.logit_scale.has_value() && !vision.logit_bias);
  const std::vector<float> pixels(3 * 18 * 18);
  const Picture picture{pixels, 18, 18}, small{std::span(pixels).first(3 * 5 * 5), 5, 5},
      wrong{std::span(pixels).first(5), 18, 18};
  EXPECT_TRUE(holds(error_of([&] { embed_pictures(device(), text, {&picture, 1}); }), ":vision"));
  EXPECT_TRUE(holds(error_of([&] { embed_pictures(device(), vision, {&small, 1}); }), "no whole patch"));
  EXPECT_TRUE(holds(error_of([&] { embed_pictures(device(), vision, {&wrong, 1}); }), "5 were given"));
  EXPECT_TRUE(
      holds(error_of([] { patch_grid({.size = 7}, 4096, 4096); }), "more than 16384 patches of 7 x 7"));
  EXPECT_TRUE(holds(error_of([&] { classify_pictures(device(), vision, {&picture, 1}); }), "no classifier"));
  rapt::Run run(device());
  const std::vector<std::int32_t> ids = {1, 2};
  EXPECT_TRUE(holds(error_of([&] {
                      forward(run, *vision.model, {.tokens = ids, .sequences = {{.first = 0, .count = 2}}});
                    }),
                    "reads pictures"));
}

// ------------------------------------------------------------------------------------------------ gradients
Recipe picture_recipe(const std::string& head, const std::string& patches, const std::string& more = "",
                      const std::string& attention = "") {
  return resolve(
      parse_recipe(concat(R"({ "name": "pictures", "width": 12, "embed": { "pos": "learned", )", more,
                          R"("patches": { "size": 3, "rows": 3, "columns": 2, )", patches,
                          R"(} }, "encoder": { "layers": 1, "kinds": { "L": { "parts": [
    { "self": { "heads": 3, )",
                          attention,
                          R"("mask": "full", "bias": "all", "norm_in": { "kind": "layer", "bias": true } } },
    { "ffn": { "kind": "mlp", "act": "gelu", "width": 10, "bias": true, "norm_in": "layer",
               "layer_scale": 0.5 } } ] } },
    "final_norm": "layer" }, "head": )",
                          head, " }"),
                   "pictures"));
}

std::vector<float> noise(std::size_t n, std::uint64_t seed) {
  std::vector<float> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(static_cast<float>(random_normal(seed, i)));
  return out;
}

// Σ of the results times fixed numbers, for pictures of the model's own size and of two others.
struct PictureLoss {
  std::vector<float> a = noise(3 * 9 * 6, 1), b = noise(3 * 13 * 11, 2), c = noise(3 * 3 * 12, 3);
  std::vector<Picture> pictures{{a, 9, 6}, {b, 13, 11}, {c, 3, 12}};

  Tensor operator()(rapt::Run& run, const Model& model) const {
    const Tensor y = forward(run, model, picture_batch(model.recipe, pictures));
    const auto targets = std::vector<std::int32_t>{1, 0, 2};
    return cross_entropy(run, y, targets).mean;
  }
};

TEST(Vision, GradientsReachPatchesPositionsTokensAndHeads) {
  Device reference({.threads = 1, .isa = "f64"});
  const std::pair<const char*, const char*> kinds[] = {
      {R"({ "kind": "classes", "classes": 4, "bias": true })", R"("registers": 2)"},
      {R"({ "kind": "classes", "classes": 4, "pool": "both" })",
       R"("registers": 1, "resample": "antialias")"},
      {R"({ "kind": "classes", "classes": 4, "bias": true, "distilled": true })", R"("distill": true)"},
      {R"({ "kind": "vector", "width": 5, "pool_norm": { "kind": "layer", "bias": true } })",
       R"("bias": false)"},
      {R"({ "kind": "classes", "classes": 4, "pool": "mean", "transform": { "act": "tanh", "norm": null } })",
       R"("cls": false)"},
      {R"({ "kind": "vector", "width": 4, "pool": { "attention": { "heads": 2, "ffn": 9 } } })",
       R"("cls": false)"},
  };
  for (const auto& [head, patches] : kinds) {
    const bool turned = std::string_view(patches).find("resample") != std::string_view::npos;
    Model model(picture_recipe(head, patches, R"("norm": "layer", )",
                               turned ? R"("pos": { "grid": { "theta": 10 } }, )" : ""),
                DType::f64);
    randomise(model, 7);
    const PictureLoss loss;
    Gradients gradients(DType::f64);
    {
      rapt::Run run(reference);
      Tape tape(gradients);
      run.tape = &tape;
      backward(run, loss(run, model));
    }
    const auto value = [&] {
      rapt::Run run(reference);
      return loss(run, model).at(0);
    };
    for (Weight& w : model.weights)
      for (Dim n = 0; n < std::min<Dim>(w.size(), 3); ++n) {
        const Dim at = n * 7919 % w.size(), r = at / w.cols, c = at % w.cols;
        const double x = w.get(r, c), h = 1e-5;
        w.set(r, c, x + h);
        const double up = value();
        w.set(r, c, x - h);
        const double down = value();
        w.set(r, c, x);
        const double want = (up - down) / (2 * h), got = gradients.get(w, r, c);
        EXPECT_NEAR(got, want, 1e-7 + 1e-5 * std::fabs(want))
            << head << " " << w.name << " " << r << "," << c;
      }
  }
}

// Recomputed layers and a second thread give the same gradients, to the bit.
TEST(Vision, GradientsDependOnNeitherThreadsNorRecomputing) {
  const PictureLoss loss;
  std::vector<std::vector<double>> all;
  for (const auto& [threads, recompute] : {std::pair{1, false}, std::pair{2, false}, std::pair{2, true}}) {
    Device on({.threads = threads});
    Model model(
        picture_recipe(R"({ "kind": "classes", "classes": 4, "pool": { "attention": { "heads": 3 } } })",
                       R"("registers": 2)"));
    randomise(model, 7);
    Gradients gradients(DType::f32);
    rapt::Run run(on);
    Tape tape(gradients);
    run.tape = &tape;
    run.recompute = recompute;
    backward(run, loss(run, model));
    std::vector<double>& out = all.emplace_back();
    for (const Weight& w : model.weights)
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) out.push_back(gradients.get(w, r, c));
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

// ------------------------------------------------------------------------------------------------ ViT-22B
using Matrix = std::vector<std::vector<double>>;  // rows

// The block as the paper has it, written out: one LayerNorm without bias for both branches, q and k normed in
// each head, no bias on q, k and v, biases on the output and in the MLP; then the query that pools.
struct PlainVit22b {
  const Model& model;
  const Weight& at(const std::string& name) const { return const_cast<Model&>(model).weight(name); }

  Matrix times(const Matrix& x, const std::string& name, bool bias) const {
    const Weight& w = at(name + ".weight");
    Matrix y;
    for (const auto& row : x) {
      y.emplace_back();
      for (Dim r = 0; r < w.rows; ++r) {
        double sum = bias ? at(name + ".bias").get(0, r) : 0;
        for (Dim c = 0; c < w.cols; ++c) sum += w.get(r, c) * row[static_cast<std::size_t>(c)];
        y.back().push_back(sum);
      }
    }
    return y;
  }
  // Over each `width` numbers of a row.
  Matrix normed(Matrix x, const std::string& name, std::size_t width) const {
    for (auto& row : x)
      for (std::size_t from = 0; from < row.size(); from += width) {
        double mean = 0, square = 0;
        for (std::size_t i = 0; i < width; ++i) mean += row[from + i] / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i)
          square += (row[from + i] - mean) * (row[from + i] - mean) / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i)
          row[from + i] = (row[from + i] - mean) / std::sqrt(square + 1e-6) *
                          at(name + ".weight").get(0, static_cast<Dim>(i));
      }
    return x;
  }
  static Matrix gelu(Matrix x) {
    for (auto& row : x)
      for (double& v : row) v = 0.5 * v * (1 + std::erf(v / std::numbers::sqrt2));
    return x;
  }
  static void add(Matrix& x, const Matrix& y) {
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t c = 0; c < x[t].size(); ++c) x[t][c] += y[t][c];
  }
  static Matrix attend(const Matrix& q, const Matrix& k, const Matrix& v, std::size_t heads) {
    const std::size_t D = q[0].size() / heads;
    Matrix z(q.size(), std::vector<double>(q[0].size()));
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < q.size(); ++t) {
        std::vector<double> p;
        double sum = 0;
        for (const auto& key : k) {
          double dot = 0;
          for (std::size_t i = h * D; i < (h + 1) * D; ++i) dot += q[t][i] * key[i];
          p.push_back(std::exp(dot / std::sqrt(static_cast<double>(D))));
          sum += p.back();
        }
        for (std::size_t s = 0; s < k.size(); ++s)
          for (std::size_t i = h * D; i < (h + 1) * D; ++i) z[t][i] += p[s] / sum * v[s][i];
      }
    return z;
  }

  std::vector<double> logits(const Picture& picture) const {
    const PatchRecipe& p = *model.recipe.embed.patches;
    const auto C = static_cast<std::size_t>(model.recipe.width);
    Matrix pixels;
    for (Dim row = 0; row < p.rows; ++row)
      for (Dim column = 0; column < p.columns; ++column) {
        pixels.emplace_back();
        for (Dim channel = 0; channel < 3; ++channel)
          for (Dim y = row * p.size; y < (row + 1) * p.size; ++y)
            for (Dim x = column * p.size; x < (column + 1) * p.size; ++x)
              pixels.back().push_back(static_cast<double>(picture.pixels[static_cast<std::size_t>(
                  (channel * picture.height + y) * picture.width + x)]));
      }
    Matrix x = times(pixels, "embed.patches", true);
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t c = 0; c < C; ++c)
        x[t][c] += at("embed.positions").get(static_cast<Dim>(t), static_cast<Dim>(c));
    for (Dim layer = 0; layer < model.recipe.encoder->layers; ++layer) {
      const std::string name = concat("encoder.", layer);
      const auto heads = static_cast<std::size_t>(model.recipe.encoder->layer(layer).parts[0].self()->heads);
      const Matrix h = normed(x, name + ".norm_in", C);
      const Matrix q = normed(times(h, name + ".self.q", false), name + ".self.q_norm", C / heads),
                   k = normed(times(h, name + ".self.k", false), name + ".self.k_norm", C / heads);
      add(x, times(attend(q, k, times(h, name + ".self.v", false), heads), name + ".self.o", true));
      add(x, times(gelu(times(h, name + ".ffn.up", true)), name + ".ffn.down", true));
    }
    x = normed(x, "encoder.norm", C);
    Matrix query(1);
    for (std::size_t c = 0; c < C; ++c) query[0].push_back(at("head.pool.query").get(0, static_cast<Dim>(c)));
    Matrix y =
        times(attend(times(query, "head.pool.q", true), times(x, "head.pool.k", true),
                     times(x, "head.pool.v", true), static_cast<std::size_t>(model.recipe.head.attend.heads)),
              "head.pool.o", true);
    add(y, times(gelu(times(normed(y, "head.pool.norm", C), "head.pool.up", true)), "head.pool.down", true));
    return times(y, "head.classes", true)[0];
  }
};

TEST(Vision, TheBlockOfVit22bIsThePapers) {
  Recipe r = preset("vit-22b-nano");
  r.width = 24, r.context = 0;
  r.embed.patches->size = 3, r.embed.patches->rows = 2, r.embed.patches->columns = 5;
  r.encoder->layers = 2;
  r.head.classes = 7;
  Device reference({.threads = 1, .isa = "f64"});
  Model model(resolve(r), DType::f64);
  randomise(model, 11);
  const std::vector<float> pixels = noise(3 * 6 * 15, 4);
  const Picture picture{pixels, 6, 15};
  rapt::Run run(reference);
  const Tensor got = forward(run, model, picture_batch(model.recipe, {&picture, 1}));
  const std::vector<double> want = PlainVit22b{model}.logits(picture);
  for (Dim i = 0; i < 7; ++i) EXPECT_NEAR(got.at(i), want[static_cast<std::size_t>(i)], 1e-10) << i;
}

// ------------------------------------------------------------------------------------------------ tokenizers
Json tokenizer_golden(const std::string& name) {
  const auto path =
      std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden" / "tokenizers" / (name + ".json");
  return parse_json(read_text_file(path.string()), path.string());
}

TEST(Vision, ClipsTokenizerGivesTheLibrarysIds) {
  const Json golden = tokenizer_golden("clip");
  const std::string config = R"({"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>",
    "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": "<|endoftext|>"})";
  const TempFolder temp;
  std::filesystem::create_directories(temp / "files");
  put_file(temp / "files/vocab.json", need(golden, "vocab").dump());
  std::string merges;
  for (const Json& line : need(golden, "merges").array()) merges += concat(line.string(), "\n");
  put_file(temp / "files/merges.txt", merges);
  put_file(temp / "files/tokenizer_config.json", config);
  const auto from_json = tokenizer_from_json(need(golden, "json").string(), config, "clip"),
             from_files = tokenizer_from_folder(temp / "files");
  const TokenizerFiles written = tokenizer_files(*from_files);
  const auto again = tokenizer_from_json(written.tokenizer_json, written.tokenizer_config_json, "written");
  const auto& texts = need(golden, "texts").array();
  for (const Tokenizer* t : {from_json.get(), from_files.get(), again.get()})
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string& text = texts[i].string();
      if (text.find("<|") != std::string::npos) continue;  // a user's text never becomes a special token
      const std::vector<std::int32_t> ids = t->encode(text);
      EXPECT_EQ(ids, ids_of(need(golden, "ids").array()[i])) << text;
      EXPECT_EQ(t->frame(ids), ids_of(need(golden, "framed").array()[i])) << text;
      EXPECT_EQ(t->decode(ids, false), need(golden, "decoded").array()[i].string()) << text;
    }
}

TEST(Vision, SiglipsTokenizerGivesTheLibrarysIdsAndFillsTextsUp) {
  const Json golden = tokenizer_golden("siglip");
  const TempFolder temp;
  std::filesystem::create_directories(temp / "files");
  put_file(temp / "files/spiece.model", from_base64(need(golden, "model").string()));
  put_file(temp / "files/tokenizer_config.json", need(golden, "config").dump());
  const auto tokenizer = tokenizer_from_folder(temp / "files");
  const TokenizerFiles written = tokenizer_files(*tokenizer);
  const auto again = tokenizer_from_json(written.tokenizer_json, written.tokenizer_config_json, "written");
  const auto& texts = need(golden, "texts").array();
  for (const Tokenizer* t : {tokenizer.get(), again.get()})
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(t->frame(t->encode(texts[i].string())), ids_of(need(golden, "framed").array()[i]))
          << texts[i].string();

  Toy toy = vision_toy("siglip-text");  // 61 tokens, 16 of them a text
  write_folder(toy, temp / "siglip");
  Checkpoint c = open_checkpoint(temp / "siglip");
  EXPECT_EQ(c.pad_to, 16);
  EXPECT_EQ(c.pad, 1);
  c.tokenizer = tokenizer;
  const std::vector<std::string> short_one = {"a photo"};
  const FramedTexts framed = frame_texts(c, short_one, "test");
  std::vector<std::int32_t> want = tokenizer->frame(tokenizer->encode("a photo"));
  want.resize(16, 1);
  EXPECT_EQ(framed.ids[0], want);
}

// ------------------------------------------------------------------------------------------------ training
// Shapes on a noisy ground, anywhere and of any colour: discs, squares, crosses.
Image drawn_shape(int shape, std::uint64_t seed) {
  constexpr int kSide = 24;
  Image image{kSide, kSide, {}};
  std::uint64_t next = 0;
  const auto below = [&](std::uint32_t n) { return static_cast<int>(random_below(n, seed, next++)); };
  const int cx = 8 + below(9), cy = 8 + below(9), r = 4 + below(4);
  int ground[3], colour[3];
  for (int& c : ground) c = below(100);
  for (int& c : colour) c = 156 + below(100);
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x) {
      const int dx = x - cx, dy = y - cy;
      const bool disc = dx * dx + dy * dy <= r * r, square = std::max(std::abs(dx), std::abs(dy)) <= r - 1,
                 cross = (std::abs(dx) <= 1 && std::abs(dy) <= r) || (std::abs(dy) <= 1 && std::abs(dx) <= r);
      const bool inside = shape == 0 ? disc : shape == 1 ? square : cross;
      for (int c = 0; c < 3; ++c)
        image.rgb.push_back(static_cast<std::uint8_t>((inside ? colour[c] - 20 : ground[c]) + below(20)));
    }
  return image;
}
void put_png(const Image& image, const std::string& path) {
  std::string rows;
  const auto row = static_cast<std::size_t>(3 * image.width);
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y)
    rows += '\0' + std::string(reinterpret_cast<const char*>(image.rgb.data()) + y * row, row);
  put_file(path,
           kPngStart +
               png_header(static_cast<std::uint64_t>(image.width), static_cast<std::uint64_t>(image.height)) +
               png_pixels(rows) + png_chunk("IEND", ""));
}
void put_shapes(const TempFolder& temp, const std::string& folder, int each, std::uint64_t seed) {
  const char* names[] = {"cross", "disc", "square"};  // by name: classes 0, 1, 2
  const int shapes[] = {2, 0, 1};
  for (int c = 0; c < 3; ++c) {
    std::filesystem::create_directories(temp / concat(folder, "/", names[c]));
    for (int i = 0; i < each; ++i)
      put_png(drawn_shape(shapes[c], seed + static_cast<std::uint64_t>(3 * i + c)),
              temp / concat(folder, "/", names[c], "/", 1000 + i, ".png"));
  }
}

TEST(Vision, ASmallVitLearnsWhatIsDrawn) {
  RAPT_ONLY_LONG("a training");
  RAPT_NOT_SANITIZED("a training of a small model");
  const TempFolder temp;
  put_shapes(temp, "shapes", 400, 1);
  TrainingPlan plan{.recipe = "vit-nano",
                    .settings = {"width=32", "layers=2", "embed.patches.size=4", "embed.patches.rows=6",
                                 "embed.patches.columns=6", "embed.patches.registers=1"},
                    .batch = 32};
  plan.data.path = temp / "shapes";
  plan.options.steps = 500;
  plan.options.optimizer.rate = 3e-3;
  plan.options.schedule.kind = Schedule::Kind::cosine;
  plan.options.health_every = 200;
  TrainingRun training(device(), plan);
  EXPECT_EQ(training.data->classes, 3);
  EXPECT_EQ(training.data->held_out(), 4);  // 120 pictures
  double first = 0, last = 0;
  std::size_t looked = 0;
  for (int step = 0; step < 500; ++step) {
    const StepReport report = training.trainer->step();
    EXPECT_EQ(report.tokens, 32 * (1 + 1 + 36));
    if (step < 10) first += report.loss / 10;
    if (step >= 490) last += report.loss / 10;
    looked += report.health.size();
  }
  EXPECT_EQ(looked, 3u * 2);  // three steps, two layers
  EXPECT_GT(first, 0.8);
  EXPECT_LT(last, 0.15);
  const Judgement judged = training.trainer->judge();
  EXPECT_EQ(judged.counted, 120);
  EXPECT_GE(judged.accuracy, 0.9);

  // The folder it becomes names its classes and says how pictures are prepared.
  write_model_folder(*training.checkpoint->model, training.extras(), temp / "model", false);
  const Checkpoint c = open_checkpoint(temp / "model", {.device = &device()});
  EXPECT_EQ(c.class_names, (std::vector<std::string>{"cross", "disc", "square"}));
  const ImageProcess process = image_process_of(c, "test");
  EXPECT_EQ(process.height, 24);
  write_checkpoint(temp / "model", temp / "model.gguf", {});  // which says it, too
  const Checkpoint packed = open_checkpoint(temp / "model.gguf");
  EXPECT_EQ(packed.class_names, c.class_names);
  EXPECT_EQ(image_process_of(packed, "test").height, 24);
  EXPECT_EQ(image_process_of(packed, "test").mean, process.mean);
  std::vector<PreparedImage> prepared;
  for (int shape : {2, 0, 1}) prepared.push_back(preprocess(process, drawn_shape(shape, 9999)));
  std::vector<Picture> pictures;
  for (const PreparedImage& p : prepared) pictures.push_back({p.pixels, p.height, p.width});
  const Rows shares = classify_pictures(device(), c, pictures);
  int right = 0;
  for (std::size_t i = 0; i < 3; ++i)
    right += std::max_element(shares[i].begin(), shares[i].end()) - shares[i].begin() == static_cast<long>(i);
  EXPECT_GE(right, 2);
}

TEST(Vision, FoldersOfPicturesAreRefusedInWords) {
  const TempFolder temp;
  std::filesystem::create_directories(temp / "one/cats");
  put_png(drawn_shape(0, 1), temp / "one/cats/a.png");
  const auto open = [&](const std::string& path, const std::string& held = "") {
    DataOptions o{.path = path, .held_out = held, .objective = Objective::classification, .batch = 2};
    o.pictures = {PatchRecipe{.size = 4, .rows = 6, .columns = 6}, ImageProcess{.height = 24, .width = 24}};
    o.pictures->process.std = {1, 1, 1};
    return open_data(o);
  };
  EXPECT_TRUE(holds(error_of([&] { open(temp / "one"); }), "at least two"));
  put_shapes(temp, "shapes", 3, 5);
  put_shapes(temp, "others", 2, 50);
  const auto data = open(temp / "shapes", temp / "others");
  EXPECT_EQ(data->held_out(), 3);
  // A batch is a function of its number; an epoch has every picture once.
  const TrainBatch a = data->batch(7), b = data->batch(7);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_TRUE(std::ranges::equal(a.pictures[0].pixels, b.pictures[0].pixels));
  std::map<std::vector<float>, int> seen;
  for (std::uint64_t i = 0; i < 9; ++i)
    for (const Picture& p : data->batch(i).pictures) ++seen[{p.pixels.begin(), p.pixels.end()}];
  EXPECT_EQ(seen.size(), 9u);
  for (const auto& [pixels, times] : seen) EXPECT_EQ(times, 2);
  std::filesystem::rename(temp / "others/cross", temp / "others/star");
  EXPECT_TRUE(holds(error_of([&] { open(temp / "shapes", temp / "others"); }), "star"));
  put_file(temp / "shapes/disc/0.png", "no picture");
  EXPECT_TRUE(holds(error_of([&] { open(temp / "shapes"); }), "0.png"));
}

}  // namespace
}  // namespace rapt::test
