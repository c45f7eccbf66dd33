// SPDX-License-Identifier: Apache-2.0
// What is said of heads, against full matrices of weights that the plain model computes in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>

#include "rapt/base/json.h"
#include "rapt/inspect/headvis.h"
#include "rapt/io/reader.h"
#include "rapt/load/checkpoint.h"
#include "tests/build_kind.h"
#include "tests/data.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt {
namespace {

constexpr const char* kToys[] = {"gpt2",         "llama3",   "bert",         "t5",
                                 "gemma2",       "gemma3",   "palm",         "qwen3-gate-g1",
                                 "llama3+sinks", "t5+sinks", "gemma3+sinks", "bert+relative"};
constexpr Dim kSinks = 2;

struct Toy {
  Device device;
  Model model;
  std::vector<std::int32_t> ids, source;
  test::NaiveWeights dense, whole;  // without and with the rows and keys of learned sink tokens

  static Recipe recipe(std::string name) {
    std::vector<std::string> settings;
    if (name.starts_with("gemma3")) settings.push_back("decoder.kinds.L.parts[0].self.window=9");
    if (name.ends_with("+sinks")) settings.push_back("embed.sink_tokens=" + std::to_string(kSinks));
    if (name.ends_with("+relative"))
      settings.push_back(R"(encoder.kinds.L.parts[0].self.pos={"relative": {"buckets": 8, "max": 20}})");
    name = name.substr(0, name.find('+'));
    return with_settings(test::toy_recipe(name, name == "gemma3" ? 6 : 2), settings);
  }
  Toy(const std::string& name, const char* isa, Dim tokens = 37)
      : device({.threads = 2, .isa = isa}), model(recipe(name), device.real) {
    test::randomise(model, 3, 1.6);
    // tokens come again
    for (Dim i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>((i * i) % 11 + 3));
    if (model.encoder && model.decoder) source.assign(ids.begin() + 2, ids.begin() + 19);
    test::naive_forward(model, {.tokens = ids, .types = {}, .source = source}, &whole);
    for (const auto& [part, all] : whole) {
      const bool decoder = part.starts_with("decoder"), cross = part.ends_with("cross");
      const Dim skip = decoder ? model.recipe.embed.sink_tokens : 0, from = static_cast<Dim>(source.size());
      const Dim rows = skip + (decoder || from == 0 ? tokens : from), keys = cross ? from : rows;
      for (Dim i = 0; i < static_cast<Dim>(all.size()); ++i)
        if (i / keys % rows >= skip && (cross || i % keys >= skip))
          dense[part].push_back(all[static_cast<std::size_t>(i)]);
    }
  }
  static std::string name_of(const AttentionPlace& p) {
    return (p.stack == Stack::encoder ? "encoder." : "decoder.") + std::to_string(p.layer) +
           (p.cross ? ".cross" : ".self");
  }
  const std::vector<double>& dense_of(const AttentionPlace& p) const { return dense.at(name_of(p)); }
  Dim before(const AttentionPlace& p) const {
    return p.stack == Stack::decoder ? model.recipe.embed.sink_tokens : 0;
  }
};

std::vector<Dim> all_rows(Dim n) {
  std::vector<Dim> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), Dim{0});
  return rows;
}

TEST(Heads, StatisticsOfEveryRowAreThoseOfThePlainModel) {
  for (const char* name : kToys) {
    Toy toy(name, "f64");
    for (const Dim chunk : {Dim{1024}, Dim{5}}) {
      const AttentionRecord record(toy.device, toy.model, toy.ids, toy.source,
                                   {.chunk = chunk, .first_keys = 2, .row_stats = true});
      for (const AttentionPlace& p : record.places()) {
        const std::vector<double>& dense = toy.dense_of(p);
        const auto T = record.row_ids(p).size(), S = record.key_ids(p).size();
        const auto H = static_cast<std::size_t>(record.heads(p));
        const std::vector<float> stats = record.row_stats(p);
        ASSERT_EQ(stats.size(), AttentionStat::count * H * T) << name;
        double worst = 0, least = 1e9;
        for (std::size_t h = 0; h < H; ++h)
          for (std::size_t r = 0; r < T; ++r) {
            const double* w = &dense[(h * T + r) * S];
            const auto got = [&](std::size_t stat) {
              return static_cast<double>(stats[(stat * H + h) * T + r]);
            };
            double first = 0, distance = 0, sum = 0, entropy = 0;
            for (std::size_t k = 0; k < S; ++k) {
              if (k < 2) first += w[k];
              sum += w[k], distance += w[k] * std::abs(static_cast<double>(r) - static_cast<double>(k));
              if (w[k] > 0) entropy -= w[k] * std::log(w[k]);
            }
            const auto compare = [&](std::size_t stat, double want) {
              worst = std::max(worst, std::abs(got(stat) - want) / std::max(1.0, want));
            };
            compare(AttentionStat::first, first);
            const auto top = static_cast<std::size_t>(got(AttentionStat::strongest));
            least = std::min(least, w[top] - *std::max_element(w, w + S));
            if (!p.cross) {
              compare(AttentionStat::self, w[r]);
              compare(AttentionStat::previous, r > 0 ? w[r - 1] : 0);
              compare(AttentionStat::distance, distance);
            }
            if (toy.before(p) > 0) continue;  // those count learned tokens, too
            compare(AttentionStat::sum, sum);
            compare(AttentionStat::entropy, entropy);
          }
        EXPECT_LT(worst, 1e-5) << name << " " << Toy::name_of(p) << " chunk " << chunk;
        EXPECT_GT(least, -1e-9) << name << " " << Toy::name_of(p);
      }
    }
    const AttentionRecord without(toy.device, toy.model, toy.ids, toy.source);
    EXPECT_NE(test::error_of([&] { without.row_stats(without.places()[0]); }).find("not asked"),
              std::string::npos);
  }
}

TEST(Heads, RowsComputedAnewAreThoseOfThePlainModel) {
  for (const char* isa : {"f64", ""})
    for (const char* name : kToys) {
      Toy toy(name, isa);
      for (const Dim chunk : {Dim{1024}, Dim{5}}) {
        const AttentionRecord record(toy.device, toy.model, toy.ids, toy.source, {.chunk = chunk});
        EXPECT_EQ(record.places().size(), toy.dense.size()) << name;
        for (const AttentionPlace& p : record.places()) {
          const std::vector<double>& dense = toy.dense_of(p);
          const Dim T = static_cast<Dim>(record.row_ids(p).size()),
                    S = static_cast<Dim>(record.key_ids(p).size());
          ASSERT_EQ(static_cast<Dim>(dense.size()), record.heads(p) * T * S) << name;
          double worst = 0;
          Dim rows = 0;
          record.rows(p, -1, all_rows(T), [&](Dim row, int head, std::span<const float> w) {
            ++rows;
            for (Dim k = 0; k < S; ++k) {
              const double is = w[static_cast<std::size_t>(k)],
                           should = dense[static_cast<std::size_t>((head * T + row) * S + k)];
              worst = std::max(worst, std::abs(is - should));
              if (should > 0) {
                EXPECT_TRUE(record.sees(p, row, k));
              }
            }
          });
          EXPECT_EQ(rows, T * record.heads(p));
          EXPECT_LT(worst, *isa ? 1e-7 : 2e-5)
              << name << " layer " << p.layer << (p.cross ? " cross" : "") << " chunk " << chunk;
        }
      }
    }
}

TEST(Heads, FiguresFollowFromFullMatrices) {
  for (const char* name : kToys) {
    Toy toy(name, "f64");
    const AttentionRecord record(toy.device, toy.model, toy.ids, toy.source, {.chunk = 8});
    const std::vector<HeadMetrics> all = head_metrics(record);
    std::size_t heads = 0;
    for (const AttentionPlace& p : record.places()) heads += static_cast<std::size_t>(record.heads(p));
    ASSERT_EQ(all.size(), heads) << name;
    for (const HeadMetrics& m : all) {
      const std::vector<double>& dense = toy.dense_of(m.place);
      const std::span<const std::int32_t> ids = record.row_ids(m.place);
      const Dim T = static_cast<Dim>(ids.size()), S = static_cast<Dim>(record.key_ids(m.place).size());
      double first = 0, seeing = 0, self = 0, previous = 0, entropy = 0, distance = 0, square = 0,
             induction = 0, repeats = 0, strongest = 0;
      const Dim before = toy.before(m.place), wide = S + (m.place.cross ? 0 : before);
      for (Dim q = 0; q < T; ++q) {
        const double* row = &dense[static_cast<std::size_t>((m.head * T + q) * S)];
        const double* every = &toy.whole.at(
            Toy::name_of(m.place))[static_cast<std::size_t>((m.head * (T + before) + q + before) * wide)];
        for (Dim k = 0; k < wide; ++k) entropy -= every[k] > 0 ? every[k] * std::log(every[k]) : 0;
        if (record.sees(m.place, q, 0)) first += row[0], seeing += 1;
        bool repeat = false;
        for (Dim k = 0; k < S; ++k) {
          const double d = static_cast<double>(std::abs(q - k));
          distance += row[k] * d;
          square += row[k] * d * d;
          if (q == k) self += row[k];
          if (q == k + 1) previous += row[k];
          if (q > 0 && k > 0) strongest = std::max(strongest, row[k]);
          if (!m.place.cross && k > 0 && k <= q &&
              ids[static_cast<std::size_t>(k - 1)] == ids[static_cast<std::size_t>(q)]) {
            repeat = true;
            if (row[k] >= 0.01) induction += row[k];
          }
        }
        repeats += repeat;
      }
      const auto n = static_cast<double>(T);
      EXPECT_NEAR(m.first, first / seeing, 1e-6) << name;
      EXPECT_NEAR(m.self, self / n, 1e-6) << name;
      EXPECT_NEAR(m.previous, previous / (n - 1), 1e-6) << name;
      EXPECT_NEAR(m.entropy, entropy / n, 1e-6) << name;
      EXPECT_NEAR(m.distance, distance / n, 1e-5) << name;
      EXPECT_NEAR(m.variance, square / n - distance / n * distance / n, 1e-3) << name;
      EXPECT_NEAR(m.strongest, strongest, 1e-6) << name;
      EXPECT_NEAR(m.induction, repeats > 0 ? induction / repeats : 0, 1e-6) << name;
      EXPECT_EQ(m.gate >= 0, std::string(name) == "qwen3-gate-g1") << name;
    }
  }
}

TEST(Heads, GatesOfEachHead) {
  for (const std::string name : {"qwen3-gate-g1", "qwen3-gate-g1+sinks"}) {
    Toy toy(name, "f64");
    std::vector<double> gate;  // [37][4 heads][6]
    Taps taps;
    see_gates(taps, [&](const Tapped& t) {
      if (t.layer != 1) return;
      const std::vector<double> some = test::all_values(t.value);
      gate.insert(gate.end(), some.begin() + (gate.empty() ? toy.model.recipe.embed.sink_tokens * 24 : 0),
                  some.end());
    });
    const AttentionRecord record(toy.device, toy.model, toy.ids, {}, {.chunk = 8, .taps = &taps});
    ASSERT_EQ(gate.size(), 37u * 24);
    for (const HeadMetrics& m : head_metrics(record)) {
      if (m.place.layer != 1) continue;
      double sum = 0, closed = 0;
      for (std::size_t i = 0; i < gate.size(); ++i)
        if (static_cast<int>(i % 24 / 6) == m.head) sum += gate[i], closed += gate[i] < 0.1;
      EXPECT_NEAR(m.gate, sum / (37 * 6), 1e-12) << name;
      EXPECT_NEAR(m.gate_closed, closed / (37 * 6), 1e-12) << name;
      EXPECT_TRUE(sum > 0 && closed > 0);
    }
  }
}

TEST(Heads, AGateForAllHeadsIsEveryHeads) {
  Device device({.threads = 1});
  // As many as channels of a head.
  Recipe recipe =
      with_settings(test::toy_recipe("llama3-gate-g1", 1), std::vector<std::string>{"heads=6", "head_dim=6"});
  recipe.decoder->kinds["L"].parts[0].self()->gate = {
      {.at = GateRecipe::At::sdpa, .heads = GateRecipe::Heads::shared}};
  Model model(recipe, device.real);
  test::randomise(model, 3, 1.6);
  std::vector<double> gate;
  Taps taps;
  see_gates(taps, [&](const Tapped& t) { gate = test::all_values(t.value); });
  const AttentionRecord record(device, model, test::toy_ids(11), {}, {.taps = &taps});
  ASSERT_EQ(gate.size(), 11u * 6);
  const std::vector<HeadMetrics> all = head_metrics(record);
  ASSERT_EQ(all.size(), 6u);
  for (const HeadMetrics& m : all)
    EXPECT_NEAR(m.gate, std::accumulate(gate.begin(), gate.end(), 0.0) / 66, 1e-12);
}

TEST(Heads, SampledRowsAreSpreadEvenly) {
  Toy toy("llama3", "f64");
  const AttentionRecord record(toy.device, toy.model, toy.ids);
  const HeadMetrics all = head_metrics(record)[0], some = head_metrics(record, 7)[0];
  EXPECT_EQ(all.sampled, 37);
  EXPECT_EQ(some.sampled, 7);
  EXPECT_EQ(some.rows, 37);
  EXPECT_DOUBLE_EQ(all.entropy, some.entropy);  // of every row, from the kernel
}

TEST(Heads, AHeadIsNamedAfterWhatItDoes) {
  // Queries and keys of equal length 1 in one direction per token: scores are decided by the biases alone,
  // so weights are equal.
  for (const char* name : {"gpt2", "gpt2+sinks"}) {
    Toy toy(name, "f64", 24);
    for (Weight& w : toy.model.weights)
      if (w.name.find(".self.q.") != std::string::npos)
        for (Dim i = 0; i < w.rows; ++i)
          for (Dim j = 0; j < w.cols; ++j) w.set(i, j, 0);
    const AttentionRecord record(toy.device, toy.model, toy.ids);
    for (const HeadMetrics& m : head_metrics(record)) EXPECT_EQ(m.label, "uniform 1.00") << name;
  }
}

// Equal weights are called so whatever the text, and give what `even_…` says: with windows, learned slots
// and learned sink tokens too.
TEST(Heads, NoHeadIsNamedForWhatEqualWeightsGive) {
  for (const std::string name : {"gpt2", "gpt2+sinks", "gemma3", "llama3+slots", "bert"})
    for (const bool repeated : {false, true}) {
      Device device({.threads = 1, .isa = "f64"});
      Recipe recipe = Toy::recipe(name == "llama3+slots" ? "llama3" : name);
      if (name == "llama3+slots")
        recipe = with_settings(
            recipe, std::vector<std::string>{"decoder.kinds.L.parts[0].self.extra={\"kv_slots\":3}"});
      Model model(recipe, device.real);
      test::randomise(model, 3, 1.6);
      for (Weight& w : model.weights)
        if (w.name.find(".self.q") != std::string::npos)
          for (Dim i = 0; i < w.rows; ++i)
            for (Dim j = 0; j < w.cols; ++j) w.set(i, j, 0);
      std::vector<std::int32_t> ids;
      for (Dim i = 0; i < 24; ++i) ids.push_back(repeated ? 7 : static_cast<std::int32_t>(i * i % 11 + 3));
      const AttentionRecord record(device, model, ids);
      for (const HeadMetrics& m : head_metrics(record)) {
        EXPECT_EQ(m.label, "uniform 1.00") << name;
        for (const HeadKind& kind : head_kinds()) {
          EXPECT_NEAR(m.*kind.share, m.*kind.even, 1e-6) << name << " " << kind.name;
          EXPECT_NEAR(kind.beyond(m), 0, 1e-5) << name << " " << kind.name;
        }
      }
    }
}

TEST(Heads, LabelsFollowWhatIsBeyondEqualWeights) {
  Toy toy("llama3", "f64", 24);
  for (std::int32_t& id : toy.ids) id = 7;  // every key but the first stands behind the same token
  const AttentionRecord record(toy.device, toy.model, toy.ids);
  int high = 0;
  for (const HeadMetrics& m : head_metrics(record)) {
    high += m.induction > 0.8;
    EXPECT_FALSE(m.label.starts_with("induction")) << m.label;
  }
  EXPECT_GT(high, 0);
}

// The first key is seen by nine rows of 37: what they give it is no sink.
TEST(Heads, AWindowIsNoSink) {
  Toy toy("gemma3", "f64");
  const AttentionRecord record(toy.device, toy.model, toy.ids);
  for (const HeadMetrics& m : head_metrics(record)) {
    const std::vector<double>& dense = toy.dense_of(m.place);
    double sum = 0;
    for (std::size_t r = 0; r < 37; ++r) sum += dense[(static_cast<std::size_t>(m.head) * 37 + r) * 37] / 37;
    EXPECT_NEAR(m.sink, sum, 1e-6);
  }
}

TEST(Heads, MapsArePooledByTheLargestWeight) {
  for (const char* name : {"llama3", "gemma3", "t5"}) {
    Toy toy(name, "f64");
    const AttentionRecord record(toy.device, toy.model, toy.ids, toy.source);
    const AttentionPlace p = record.places().back();
    const std::vector<double>& dense = toy.dense_of(p);
    const Dim T = static_cast<Dim>(record.row_ids(p).size()), S = static_cast<Dim>(record.key_ids(p).size());
    const MapWindow window{
        .row_begin = 3, .row_end = T - 1, .key_begin = 2, .key_end = S, .pixels = 6, .most_rows = 1000};
    const HeadMap map = head_map(record, p, 1, window);
    ASSERT_EQ(map.rows, 6);
    ASSERT_EQ(map.keys, 6);
    std::vector<double> want(36);
    const Dim rows = T - 4, keys = S - 2;
    for (Dim r = 0; r < rows; ++r)
      for (Dim x = 0; x < 6; ++x)
        for (Dim k = x * keys / 6; k < (x + 1) * keys / 6; ++k) {
          double& to = want[static_cast<std::size_t>(r * 6 / rows * 6 + x)];
          to = std::max(to, dense[static_cast<std::size_t>((T + r + 3) * S + k + 2)]);
        }
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(map.values[i], want[i], 1e-6) << name << " pixel " << i;
    // Every head at once says the same; a sample of rows has the rows it took.
    for (const HeadMap& m : head_maps(record, {.pixels = 7}))
      EXPECT_EQ(m.values, head_map(record, m.place, m.head, {.pixels = 7}).values);
    const HeadMap sampled = head_map(record, p, 0, {.pixels = 100, .most_rows = 5});
    ASSERT_EQ(sampled.rows, 5);
    for (Dim i = 0; i < 5; ++i)
      EXPECT_NEAR(sampled.values[static_cast<std::size_t>(i * S)],
                  dense[static_cast<std::size_t>(i * T / 5 * S)], 1e-6);
  }
  Toy toy("llama3", "f64");
  const AttentionRecord record(toy.device, toy.model, toy.ids, {},
                               {.keep = [](const AttentionPlace& p) { return p.layer == 1; }});
  EXPECT_EQ(record.places().size(), 1u);
  EXPECT_EQ(record.bytes(), 37u * 24 * 8);
  EXPECT_THROW(head_map(record, {Stack::decoder, 0, false}, 0), Error);
  EXPECT_THROW(head_map(record, record.places()[0], 4), Error);
  EXPECT_THROW(head_map(record, record.places()[0], 0, {.row_begin = 5, .row_end = 5}), Error);
  EXPECT_THROW(head_map(record, record.places()[0], 0, {.key_end = 38}), Error);
  EXPECT_THROW(AttentionRecord(toy.device, toy.model, toy.ids, {}, {.most_bytes = 1000}), Error);
  const auto none = [](Toy& of) {
    return test::error_of([&] {
      AttentionRecord(of.device, of.model, of.ids, of.source,
                      {.keep = [](const AttentionPlace&) { return false; }});
    });
  };
  EXPECT_TRUE(test::holds(none(toy), "none of the attentions asked for is there"));
  EXPECT_TRUE(test::holds(none(toy), "has decoder layers 0 to 1, no cross-attention"));
  Toy both("t5", "f64");
  EXPECT_TRUE(test::holds(none(both), "has encoder layers 0 to 1, decoder layers 0 to 1, cross-attention"));
}

TEST(Heads, StrongestKeysAreTheLargestOfEachRow) {
  Toy toy("bert", "f64");
  const AttentionRecord record(toy.device, toy.model, toy.ids);
  for (const StrongestKeys& s : strongest_keys(record, 3)) {
    const std::vector<double>& dense = toy.dense_of(s.place);
    for (Dim q = 0; q < 37; ++q) {
      std::vector<double> row(dense.begin() + (s.head * 37 + q) * 37,
                              dense.begin() + (s.head * 37 + q + 1) * 37);
      for (int i = 0; i < 3; ++i) {
        const auto at = static_cast<std::size_t>(q * 3 + i);
        EXPECT_NEAR(row[static_cast<std::size_t>(s.keys[at])], s.weights[at], 1e-6);
        std::vector<double> sorted = row;
        std::sort(sorted.rbegin(), sorted.rend());
        EXPECT_NEAR(sorted[static_cast<std::size_t>(i)], s.weights[at], 1e-6);
      }
    }
  }
  Toy causal("llama3", "f64", 4);
  const AttentionRecord few(causal.device, causal.model, causal.ids);
  EXPECT_EQ(strongest_keys(few, 3)[0].keys[1], -1);  // the first row sees one key
}

TEST(Heads, EditsOfQueriesShowInTheRows) {
  Toy toy("llama3", "f64");
  Taps taps;
  taps.edit(site::q, [](const Tapped& t) {
    for (double& x : t.value.as<double>()) x = 0;
  });
  const AttentionRecord record(toy.device, toy.model, toy.ids, {}, {.taps = &taps});
  record.rows(record.places()[0], 0, std::vector<Dim>{9}, [](Dim, int, std::span<const float> w) {
    for (std::size_t k = 0; k < 10; ++k) EXPECT_NEAR(w[k], 0.1, 1e-6);
  });
}

TEST(Heads, HeadVisFiles) {
  Toy toy("llama3", "f64");
  const AttentionRecord record(toy.device, toy.model, toy.ids);
  const std::vector<HeadMetrics> all = head_metrics(record);
  std::vector<std::string> words;
  for (std::int32_t id : toy.ids) words.push_back("t" + std::to_string(id));
  const test::TempFolder temp;
  const std::string folder = temp / "headvis";
  write_headvis(record, all, "toy", words, folder, false);
  EXPECT_THROW(write_headvis(record, all, "toy", words, folder, false), Error);  // files are there
  const auto read = [&](const std::string& name) {
    return parse_json(read_text_file(folder + "/" + name), name);
  };
  const auto keys = [](const Json& j) {
    std::set<std::string> out;
    for (const auto& m : j.object()) out.insert(m.key);
    return out;
  };
  const Json config = read("config.json");
  EXPECT_EQ(keys(config),
            (std::set<std::string>{"model_name", "heads", "n_layers", "n_heads", "n_intervals", "metrics",
                                   "metric_descriptions", "head_data_pattern", "has_umap", "custom_plots",
                                   "custom_tables", "statistics_display"}));
  EXPECT_EQ(config.find("heads")->array().size(), 8u);
  EXPECT_TRUE(read("server_config.json").object().empty());
  const Json scatter = read("scatter_data.json");
  ASSERT_EQ(scatter.array().size(), 8u);
  EXPECT_NEAR(scatter.array()[5].find("induction_score")->number(), all[5].induction, 5.1e-5);
  EXPECT_NEAR(scatter.array()[5].find("qk_distance_variance")->number(), all[5].variance, 5.1e-5);
  const Json head = read("heads/L1H2.json");
  EXPECT_EQ(keys(head), (std::set<std::string>{"sequences", "qk_distance_histogram", "top_query_tokens",
                                               "top_key_tokens", "histogram", "statistics"}));
  const Json& sequence = head.find("sequences")->array()[0];
  EXPECT_EQ(keys(sequence), (std::set<std::string>{"sequence_id", "interval", "tokens", "attention_indices",
                                                   "attention_values", "seq_len", "max_activation"}));
  const std::vector<double>& dense = toy.dense_of({Stack::decoder, 1, false});
  const Json::Array &indices = sequence.find("attention_indices")->array(),
                    &values = sequence.find("attention_values")->array();
  ASSERT_EQ(indices.size(), values.size());
  ASSERT_GT(indices.size(), 37u);
  std::map<std::int64_t, int> per_row;
  double mass = 0, binned = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t at = indices[i].integer();
    EXPECT_NEAR(values[i].number(), dense[static_cast<std::size_t>(2 * 37 * 37 + at)], 5.1e-5);
    EXPECT_GE(values[i].number(), 0.005);
    EXPECT_LE(++per_row[at / 37], 8);
    if (i > 0) {
      EXPECT_LT(indices[i - 1].integer(), at);
    }
    mass += values[i].number();
  }
  for (const Json& bin : head.find("qk_distance_histogram")->find("bin_values")->array())
    binned += bin.number();
  EXPECT_NEAR(mass, binned, 1e-2);
  EXPECT_EQ(head.find("qk_distance_histogram")->find("bin_edges")->array().size(), 14u);
}

// Every row looks at the first of 4100 tokens; some of these are halves of a character.
TEST(Heads, HeadVisFilesOfFarKeysHalfCharactersAndFiguresThatAreNotFinite) {
  Device device({.threads = 2});
  Model model(with_settings(test::toy_recipe("llama3", 1),
                            std::vector<std::string>{"heads=1", "kv_heads=1", "context=4100"}),
              device.real);
  test::randomise(model, 3);
  Taps taps;
  taps.edit(site::q, [](const Tapped& t) {
    for (float& x : t.value.as<float>()) x = 1;
  });
  taps.edit(site::k, [](const Tapped& t) {
    for (float& x : t.value.as<float>()) x = 0;
    for (float& x : t.value.as<float>().first(6)) x = 20;
  });
  const std::vector<std::int32_t> ids = test::toy_ids(4100);
  const AttentionRecord record(device, model, ids, {}, {.taps = &taps});
  std::vector<HeadMetrics> all = head_metrics(record, 1);
  ASSERT_EQ(all.size(), 1u);
  all[0].entropy = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> words(4100, "x");
  words[0] = "\xe2\x82", words[1] = "\x82\xac";  // the euro sign, cut
  const test::TempFolder temp;
  const std::string folder = temp / "headvis";
  write_headvis(record, all, "toy", words, folder, false);
  const auto read = [&](const std::string& name) {
    return parse_json(read_text_file(folder + "/" + name), name);
  };
  EXPECT_TRUE(read("scatter_data.json").array()[0].find("pattern_entropy")->is_null());
  const Json head = read("heads/L0H0.json");
  const Json::Array& bins = head.find("qk_distance_histogram")->find("bin_values")->array();
  ASSERT_EQ(bins.size(), 13u);
  EXPECT_NEAR(bins[11].number(), 1024, 0.1);         // from 1024 on
  EXPECT_NEAR(bins[12].number(), 4100 - 2048, 0.1);  // all from 2048 on
  EXPECT_EQ(head.find("sequences")->array()[0].find("tokens")->array()[0].string(),
            "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(head.find("top_key_tokens")->array()[0].find("token")->string(), "\xef\xbf\xbd\xef\xbf\xbd");
}

// The weights, entropies and first columns of a released model against the definition in double, from the
// queries and keys of its pass.
TEST(Heads, SmolLM2AgainstTheDefinition) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto path = test::model_file("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << test::no_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  Device device({.threads = 2});
  const Checkpoint c = open_checkpoint(path->string(), {.real = device.real, .device = &device});
  const std::vector<std::int32_t> ids =
      c.tokenizer->encode("The cat sat on the mat, and the cat sat on the hat.");
  const auto T = ids.size();
  std::map<int, std::vector<double>> q, k;
  Taps taps;
  const auto keep = [](std::map<int, std::vector<double>>& to) {
    return [&to](const Tapped& t) { to[t.layer] = test::all_values(t.value); };
  };
  taps.see(site::q, keep(q));
  taps.see(site::k, keep(k));
  const AttentionRecord record(device, *c.model, ids, {}, {.taps = &taps});
  const std::vector<HeadMetrics> metrics = head_metrics(record);
  for (const AttentionPlace& p : record.places()) {
    const AttentionSpec& s = record.attention(p).spec;
    const auto H = static_cast<std::size_t>(s.heads), K = static_cast<std::size_t>(s.kv_heads),
               D = static_cast<std::size_t>(s.head_dim);
    std::vector<double> dense(H * T * T), entropy(H), first(H);
    for (std::size_t h = 0; h < H; ++h)
      for (std::size_t r = 0; r < T; ++r) {
        double* row = &dense[(h * T + r) * T];
        double sum = 0, top = -1e300;
        for (std::size_t j = 0; j <= r; ++j) {
          for (std::size_t d = 0; d < D; ++d)
            row[j] += q[p.layer][(r * H + h) * D + d] * k[p.layer][(j * K + h / (H / K)) * D + d];
          top = std::max(top, row[j] *= s.scale);
        }
        for (std::size_t j = 0; j <= r; ++j) sum += row[j] = std::exp(row[j] - top);
        for (std::size_t j = 0; j <= r; ++j)
          entropy[h] -= (row[j] /= sum) > 0 ? row[j] * std::log(row[j]) : 0;
        first[h] += row[0];
      }
    record.rows(p, -1, all_rows(static_cast<Dim>(T)), [&](Dim row, int head, std::span<const float> w) {
      for (std::size_t j = 0; j < T; ++j)
        ASSERT_NEAR(w[j], dense[(static_cast<std::size_t>(head) * T + static_cast<std::size_t>(row)) * T + j],
                    1e-4)
            << "layer " << p.layer;
    });
    for (const HeadMetrics& m : metrics)
      if (m.place == p) {
        EXPECT_NEAR(m.entropy, entropy[static_cast<std::size_t>(m.head)] / static_cast<double>(T), 1e-4);
        EXPECT_NEAR(m.first, first[static_cast<std::size_t>(m.head)] / static_cast<double>(T), 1e-4);
      }
  }
}

}  // namespace
}  // namespace rapt
