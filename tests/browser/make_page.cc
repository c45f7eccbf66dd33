// SPDX-License-Identifier: Apache-2.0
// Writes a small page whose every value follows from a formula, so that page_test.py knows what each pixel
// must be.
#include <cstdio>
#include <fstream>
#include <limits>

#include "rapt/report/page.h"

namespace {

constexpr int kLayers = 3, kHeads = 4, kTokens = 24;

rapt::Page sample() {
  using rapt::Page;
  Page p{.title = "Sample <b>page</b> & \"more\"",
         .model = "toy, 3 layers x 4 heads",
         .layers = kLayers,
         .heads = kHeads};
  p.tokens = {"<s>",
              "<img src=x onerror=alert(1)>",
              "</script><script>alert(2)</script>",
              "<!--",
              "\"quotes\" 'and' &amp;",
              "\xFF\xFE broken \xE2\x82",
              "\xE2\x80\xAE"
              "over",            // right-to-left override
              "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D",  // Hebrew
              "\xF0\x9F\x99\x82",               // emoji
              "\n",
              " the",
              "",
              "\xE2\x80\xA8",                   // line separator
              std::string("a\0b", 3),
              "\xE4\xBD\xA0\xE5\xA5\xBD"};      // Chinese
  while (p.tokens.size() < kTokens) p.tokens.push_back(" w" + std::to_string(p.tokens.size()));
  for (int t = 0; t < kTokens; ++t) p.ids.push_back(100 + t);

  Page::Metric sink{.key = "first", .name = "weight on the first token"},
      entropy{.key = "entropy", .name = "entropy (nats)", .share = false};
  for (int l = 0; l < kLayers; ++l)
    for (int h = 0; h < kHeads; ++h) {
      const bool none = l == 2 && h == 3;  // a layer with fewer heads
      const auto n = static_cast<float>(l * kHeads + h);
      sink.values.push_back(none ? std::numeric_limits<float>::quiet_NaN() : n / 11);
      entropy.values.push_back(none ? std::numeric_limits<float>::quiet_NaN() : 3 - n / 5);
      p.labels.push_back(none ? "" : n == 5 ? "previous token 0.92" : n == 10 ? "sink 0.91" : "");
      if (none) continue;
      const int side = l == 0 && h == 0 ? 12 : kTokens;  // one map is pooled
      Page::Map map{.layer = l, .head = h, .rows = side, .keys = side, .top = 1};
      for (int r = 0; r < side; ++r)
        for (int k = 0; k < side; ++k)
          map.pixels.push_back(
              static_cast<std::uint8_t>(k <= r ? (37 * l + 59 * h + 11 * r + 7 * k) % 256 : 0));
      p.maps.push_back(std::move(map));
      Page::Strongest strongest{.layer = l, .head = h, .count = 3};
      for (int t = 0; t < kTokens; ++t)
        for (int r = 0; r < 3; ++r) {
          const int key = t - r * (h + 1);
          strongest.keys.push_back(key < 0 ? -1 : key);
          strongest.weights.push_back(key < 0 ? 0.0f : 0.5f / static_cast<float>(r + 1));
        }
      p.strongest.push_back(std::move(strongest));
    }
  p.metrics = {std::move(sink), std::move(entropy)};

  Page::Grid massive{.key = "massive", .name = "massive activations"},
      lens{.key = "lens", .name = "logit lens"};
  for (int row = 0; row <= kLayers; ++row) {
    massive.rows.push_back(row == 0 ? "embed" : std::to_string(row - 1));
    for (int t = 0; t < kTokens; ++t) {
      massive.values.push_back(static_cast<float>(row * 10 + t));
      lens.values.push_back(static_cast<float>((row * kTokens + t) % 50) / 49);
      lens.texts.push_back(t == 3 ? "<i>say</i>" : " say" + std::to_string(row * 100 + t));
    }
  }
  lens.rows = massive.rows;
  p.grids = {std::move(massive), std::move(lens)};

  rapt::Document d{.name = "sample", .title = "A document"};
  d.parts.emplace_back(rapt::Words{"Words with <b>markup</b>."});
  d.parts.emplace_back(
      rapt::Table{"A table",
                  {"layer", "value"},
                  {{rapt::Cell("0"), rapt::Cell(0.25)}, {rapt::Cell("1"), rapt::Cell(1234.5)}}});
  d.parts.emplace_back(rapt::HeatMap{
      .title = "A map", .rows = {"a", "b"}, .columns = {"x", "y", "z"}, .values = {0, 0.5, 1, 1, 0.25, 0}});
  d.parts.emplace_back(rapt::Chart{.title = "A chart",
                                   .x_label = "step",
                                   .y_label = "loss",
                                   .curves = {{"one", {0, 1, 2}, {3, 2, 1}}, {"two", {0, 1, 2}, {1, 4, 2}}}});
  p.documents.push_back(std::move(d));
  return p;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_page FILE\n");
    return 2;
  }
  std::ofstream(argv[1], std::ios::binary) << rapt::page_html(sample());
  return 0;
}
