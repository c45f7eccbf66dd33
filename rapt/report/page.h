// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML file about one model on one text: linked views (a click on a token or a head moves
// all of them), canvas drawing, no network, strict content policy, keyboard, light and dark, English and
// Chinese. The parts of the page lie in report/page/.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "rapt/report/document.h"

namespace rapt {

struct Page {
  static constexpr std::size_t kMostTokens = 65535;
  std::string title, model;             // model: one line about it (name, layers, heads, format)
  std::vector<std::string> tokens;      // of the text, as readable strings
  std::vector<std::int32_t> ids;
  // Of the self-attention shown (layers that have fewer heads leave cells empty).
  int layers = 0, heads = 0;

  struct Metric {                       // layers x heads
    std::string key, name;              // "sink", "Weight on the first token"
    std::vector<float> values;          // [layers][heads]; NaN: no such head
    bool share = true;                  // 0 … 1; otherwise scaled by its largest
  };
  std::vector<Metric> metrics;
  // [layers][heads]: "sink 0.92", "previous token 0.88", "" where nothing stands out
  std::vector<std::string> labels;

  // Weights of one head, rows and keys pooled to pixels by their largest value.
  struct Map {
    int layer = 0, head = 0, rows = 0, keys = 0;
    float top = 1;                   // weight of pixel 255; pixel = round(255 * weight / top)
    // [rows][keys]; as head_map() pools: row r of T lies in pixel floor(r rows / T), and pixel x of a
    // line holds the keys floor(x T / keys) … floor((x + 1) T / keys) - 1
    std::vector<std::uint8_t> pixels;
  };
  std::vector<Map> maps;
  struct Strongest {                 // for arcs: the strongest keys of each token, exact weights
    int layer = 0, head = 0, count = 0;  // count per token
    std::vector<std::int32_t> keys;  // [tokens][count]; -1: none
    std::vector<float> weights;      // 0 … 1, kept in thousandths
  };
  std::vector<Strongest> strongest;

  struct Grid {                         // layers x tokens: log of massive ratio, norms, lens
    std::string key, name;
    std::vector<std::string> rows;      // labels, first row at the top; the last ones are the layers
    std::vector<float> values;          // [rows][tokens]
    // [rows][tokens] or empty: what a cell says (the lens's most probable token)
    std::vector<std::string> texts;
    bool log_scale = false;
  };
  std::vector<Grid> grids;
  std::vector<Document> documents;      // tables and charts of the other views, below
};

std::string page_html(const Page& page);

// What every page of ours draws with: {"en": {"page": {…}}, "zh": …}, parts of the dictionaries (`page`, and
// `web` where they have one); and 256 colours each of "light", "dark", "light_signed", "dark_signed".
Json page_words();
Json page_colours();

}  // namespace rapt
