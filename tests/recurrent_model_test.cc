// SPDX-License-Identifier: Apache-2.0
// Recurrent stacks as whole models: gradients, bits, the cache, beams, what observers see, and which recipes
// are refused. Values against PyTorch: golden_test.cc (bahdanau and luong-*).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/base/rng.h"
#include "rapt/load/model_folder.h"
#include "rapt/nn/model.h"
#include "rapt/ops/loss.h"
#include "rapt/use/generate.h"
#include "rapt/use/optimizer.h"
#include "tests/build_kind.h"
#include "tests/memory_checkpoint.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

Recipe recurrent(const std::string& json) {
  Recipe r = parse_recipe(json);
  r.vocab = 23;
  r.context = 40;
  return r;
}

// Presets, and what no preset has.
std::vector<std::pair<std::string, Recipe>> recipes() {
  std::vector<std::pair<std::string, Recipe>> all;
  all.emplace_back(
      "bahdanau",
      recurrent(R"({ "preset": "bahdanau", "width": 10, "encoder": { "recurrent": { "width": 7 } },
    "decoder": { "recurrent": { "width": 9, "attention": { "width": 5 } } } })"));
  for (const char* name : {"dot", "general", "concat", "local-m", "local-p"}) {
    Recipe r = preset(concat("luong-", name));
    r.width = 11;
    r.vocab = 23;
    r.context = 40;
    AlignRecipe& a = *r.decoder->recurrent->attention;
    if (a.window != AlignRecipe::Window::none) a.reach = 2;
    all.emplace_back(r.name, r);
  }
  auto more = [&](const char* name, const char* json) { all.emplace_back(name, recurrent(json)); };
  more("lstm both ways, last states, previous, general, place", R"({ "width": 6,
    "encoder": { "recurrent": { "cell": "lstm", "layers": 2, "width": 4, "both_ways": true, "dropout": 0.2 } },
    "decoder": { "recurrent": { "cell": "lstm", "layers": 2, "width": 8, "dropout": 0.2,
      "attention": { "at": "previous", "score": "general", "width": 3, "window": { "predictive": { "reach": 2 } }, "readout": "tanh" } } } })");
  more("gru, current, maxout, fed", R"({ "width": 6, "encoder": { "recurrent": { "layers": 3, "width": 5 } },
    "decoder": { "dropout": 0.1, "recurrent": { "width": 5, "start": "projected", "layers": 2,
      "attention": { "score": "dot", "feed": true, "readout": "maxout" } } } })");
  more("no attention", R"({ "width": 6, "encoder": { "recurrent": { "both_ways": true, "width": 3 } },
    "decoder": { "recurrent": { "layers": 1 } } })");
  more("language model",
       R"({ "width": 6, "decoder": { "recurrent": { "cell": "lstm", "layers": 2, "dropout": 0.3 } } })");
  more("plain cells",
       R"({ "width": 6, "decoder": { "recurrent": { "cell": "rnn", "layers": 2, "dropout": 0.3 } } })");
  more("plain cells both ways, last states, fed",
       R"({ "width": 6, "encoder": { "recurrent": { "cell": "rnn", "width": 4, "both_ways": true } },
    "decoder": { "recurrent": { "cell": "rnn", "width": 8, "attention": { "score": "dot", "feed": true } } } })");
  more(
      "encoder alone",
      R"({ "width": 6, "encoder": { "recurrent": { "both_ways": true, "width": 3, "layers": 2, "dropout": 0.1 } } })");
  more("recurrent encoder, decoder of layers",
       R"({ "width": 8, "encoder": { "recurrent": { "both_ways": true, "width": 4 } },
    "decoder": { "kinds": { "L": { "parts": [ { "self": { "heads": 2 } }, { "cross": { "heads": 2 } } ] } } } })");
  more("encoder of layers, recurrent decoder", R"({ "width": 8,
    "encoder": { "kinds": { "L": { "parts": [ { "self": { "heads": 2, "mask": "full" } } ] } } },
    "decoder": { "recurrent": { "width": 5, "start": "zero", "attention": { "score": "concat", "width": 4 } } } })");
  return all;
}

constexpr Dim kLengths[] = {5, 9, 1, 6};

std::vector<std::int32_t> targets_of(const PackedBatch& p, Dim vocab) {
  std::vector<std::int32_t> t;
  for (std::size_t i = 0; i < p.tokens.size(); ++i)
    t.push_back(static_cast<std::int32_t>((p.tokens[i] * 7 + static_cast<Dim>(i)) % vocab));
  return t;
}

// Loss, and gradients of all weights one after the other.
struct Trained {
  double loss = 0;
  std::vector<double> gradients;
  std::vector<double> logits;
};
Trained train(Device& device, const Model& model, std::span<const SomeText> texts, bool recompute = false,
              Taps* taps = nullptr) {
  const PackedBatch p(texts);
  Gradients gradients(model.real);
  Tape tape(gradients);
  rapt::Run run(device);
  run.tape = &tape;
  run.training = true;
  run.recompute = recompute;
  run.taps = taps;
  const Tensor logits = forward(run, model, p.batch, p.source_or_null());
  const Loss loss = cross_entropy(run, logits, targets_of(p, model.recipe.vocab));
  Trained out{loss.mean.at(0), {}, all_values(logits)};
  backward(run, loss.mean);
  for (const Weight& w : model.weights)
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c) out.gradients.push_back(gradients.get(w, r, c));
  return out;
}

TEST(RecurrentModel, GradientsAreFiniteDifferences) {
  Device device({.threads = 2, .isa = "f64"});
  for (const auto& [name, recipe] : recipes()) {
    SCOPED_TRACE(name);
    Model model(recipe, DType::f64);
    randomise(model, 3);
    const std::vector<SomeText> texts = some_texts(model.recipe, kLengths, 1);
    const Trained base = train(device, model, texts);
    const double step = 1e-5;
    std::size_t at = 0;
    for (Weight& w : model.weights) {
      bool moved = false;
      for (Dim i = 0; i < w.size(); ++i)
        moved = moved || base.gradients[at + static_cast<std::size_t>(i)] != 0;
      EXPECT_TRUE(moved) << w.name << " gets no gradient";
      for (const Dim i : {Dim{0}, w.size() / 2, w.size() - 1}) {
        const Dim r = i / w.cols, c = i % w.cols;
        const double before = w.get(r, c);
        w.set(r, c, before + step);
        const double up = train(device, model, texts).loss;
        w.set(r, c, before - step);
        const double down = train(device, model, texts).loss;
        w.set(r, c, before);
        EXPECT_NEAR(base.gradients[at + static_cast<std::size_t>(i)], (up - down) / (2 * step), 2e-8)
            << w.name << " [" << r << "," << c << "]";
      }
      at += static_cast<std::size_t>(w.size());
    }
  }
}

// The whole model as a loop in double: h = tanh(W x + U h + b), layer by layer, then the head.
TEST(RecurrentModel, PlainCellsAreTheirFormula) {
  constexpr Dim n = 6, V = 23;
  Model model(recurrent(R"({ "width": 6, "decoder": { "recurrent": { "cell": "rnn", "layers": 2 } } })"),
              DType::f64);
  randomise(model, 4);
  const std::vector<SomeText> texts = some_texts(model.recipe, kLengths, 1);
  std::vector<double> want;
  for (const SomeText& text : texts) {
    std::vector<double> state[2] = {std::vector<double>(n), std::vector<double>(n)};
    for (const std::int32_t token : text.tokens) {
      std::vector<double> x;
      for (Dim c = 0; c < n; ++c) x.push_back(model.weight("embed.tokens").get(token, c));
      for (Dim l = 0; l < 2; ++l) {
        const auto weight = [&](const char* name, Dim r, Dim c) {
          return model.weight(concat("decoder.", l, ".", name)).get(r, c);
        };
        std::vector<double>& h = state[l];
        std::vector<double> next;
        for (Dim r = 0; r < n; ++r) {
          double sum = weight("x.bias", 0, r);
          for (Dim c = 0; c < n; ++c)
            sum += weight("x.weight", r, c) * x[static_cast<std::size_t>(c)] +
                   weight("h.weight", r, c) * h[static_cast<std::size_t>(c)];
          next.push_back(std::tanh(sum));
        }
        x = h = next;
      }
      for (Dim v = 0; v < V; ++v) {
        double sum = 0;
        for (Dim c = 0; c < n; ++c)
          sum += model.weight("head.weight").get(v, c) * x[static_cast<std::size_t>(c)];
        want.push_back(sum);
      }
    }
  }
  Device device({.threads = 2, .isa = "f64"});
  const std::vector<double> got = logits_of(device, model, texts);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12);
}

// A folder holds the cell's name and its weights: what comes back is the same model.
TEST(RecurrentModel, PlainCellsComeBackFromAFolder) {
  const TempFolder temp;
  for (const auto& [name, recipe] : recipes()) {
    if (!name.starts_with("plain")) continue;
    Model model(recipe);
    randomise(model, 8);
    write_model_folder(model, {}, temp / name, false);
    const Checkpoint back = open_checkpoint(temp / name);
    EXPECT_TRUE(back.model->recipe == model.recipe);
    Device device({.threads = 1});
    const std::vector<SomeText> texts = some_texts(model.recipe, kLengths, 2);
    EXPECT_EQ(logits_of(device, *back.model, texts), logits_of(device, model, texts));
  }
}

// Alone, in company, token by token, in pieces, with a tape, watched: the same bits. Threads change no bit
// of a gradient.
TEST(RecurrentModel, BitsDependOnTheSequenceOnly) {
  Device one({.threads = 1}), two({.threads = 2});
  for (const auto& [name, recipe] : recipes()) {
    SCOPED_TRACE(name);
    Model model(recipe);
    randomise(model, 5);
    const std::vector<SomeText> texts = some_texts(model.recipe, kLengths, 2);
    const std::vector<double> all = logits_of(two, model, texts);
    const auto V = static_cast<std::size_t>(recipe.vocab);
    std::size_t at = 0;
    KvPool cache(model);
    for (const SomeText& t : texts) {
      const std::vector<double> mine(all.begin() + static_cast<std::ptrdiff_t>(at * V),
                                     all.begin() + static_cast<std::ptrdiff_t>((at + t.tokens.size()) * V));
      EXPECT_EQ(logits_of(one, model, {&t, 1}), mine);
      for (const Dim chunk : {1, 3}) {
        if (!recipe.decoder) break;
        EXPECT_EQ(logits_cached(one, model, t, chunk, cache), mine) << "pieces of " << chunk;
      }
      at += t.tokens.size();
    }
    const Trained a = train(one, model, texts), b = train(two, model, texts),
                  c = train(two, model, texts, true);
    EXPECT_EQ(a.gradients, b.gradients);
    EXPECT_EQ(a.logits, c.logits);
    // recompute: a recurrent stack keeps its steps, so nothing changes
    EXPECT_EQ(a.gradients, c.gradients);
    Taps taps;
    int seen = 0;
    for (const Site site : {site::embed, site::resid_out, site::attn_stats, site::logits})
      taps.see(site, [&](const Tapped&) { ++seen; });
    EXPECT_EQ(train(two, model, texts, false, &taps).gradients, a.gradients);
    EXPECT_GE(seen, 3);
  }
}

TEST(RecurrentModel, DropoutGoesByCounter) {
  Device device({.threads = 2});
  for (const auto& [name, recipe] : recipes()) {
    const bool drops =
        recipe.embed.dropout > 0 ||
        (recipe.decoder && (recipe.decoder->dropout > 0 ||
                            (recipe.decoder->recurrent && recipe.decoder->recurrent->dropout > 0)));
    if (!drops) continue;
    SCOPED_TRACE(name);
    Model model(recipe);
    randomise(model, 5);
    const std::vector<SomeText> texts = some_texts(model.recipe, kLengths, 2);
    const std::vector<double> all = train(device, model, texts).logits;
    EXPECT_NE(all, logits_of(device, model, texts));
    std::size_t at = 0;
    for (const SomeText& t : texts) {  // a sequence drops the same numbers in any company
      const std::vector<double> mine = train(device, model, {&t, 1}).logits;
      EXPECT_EQ(std::memcmp(mine.data(), all.data() + at, mine.size() * sizeof(double)), 0);
      at += mine.size();
    }
  }
}

// ------------------------------------------------------------------------------------------------ the cache
struct Step {
  std::uint64_t id;
  std::vector<std::int32_t> tokens;
};
std::vector<double> step(Device& device, const Model& model, KvPool& cache, std::span<const Step> steps,
                         const std::vector<std::int32_t>& source = {}) {
  rapt::Run run(device);
  std::vector<std::int32_t> tokens, sources;
  Batch batch, from;
  for (const Step& s : steps) {
    batch.sequences.push_back({.first = static_cast<Dim>(tokens.size()),
                               .count = static_cast<Dim>(s.tokens.size()),
                               .past = cache.length(s.id),
                               .id = s.id});
    tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
    from.sequences.push_back(
        {.first = static_cast<Dim>(sources.size()), .count = static_cast<Dim>(source.size()), .id = s.id});
    sources.insert(sources.end(), source.begin(), source.end());
  }
  batch.tokens = tokens;
  from.tokens = sources;
  return all_values(forward(run, model, batch, source.empty() ? nullptr : &from, &cache));
}

TEST(RecurrentModel, CachedSequencesAreSharedAndCut) {
  Device device({.threads = 2});
  for (const auto& [name, recipe] : recipes()) {
    if (!recipe.decoder || !recipe.decoder->recurrent) continue;
    SCOPED_TRACE(name);
    Model model(recipe);
    randomise(model, 6);
    const std::vector<std::int32_t> source =
        recipe.encoder ? std::vector<std::int32_t>{3, 1, 4, 1, 5, 9, 2} : std::vector<std::int32_t>{};
    const auto V = static_cast<std::size_t>(recipe.vocab);
    auto plain = [&](std::vector<std::int32_t> tokens) {  // the last row of a plain pass
      KvPool fresh(model);
      const Step s{7, std::move(tokens)};
      const std::vector<double> all = step(device, model, fresh, {&s, 1}, source);
      return std::vector<double>(all.end() - static_cast<std::ptrdiff_t>(V), all.end());
    };
    KvPool cache(model, DType::q8_0);  // states are kept as they are computed, whatever the format
    const Step first{1, {2, 7, 1}};
    step(device, model, cache, {&first, 1}, source);
    EXPECT_EQ(cache.length(1), 3);
    cache.share(1, 2, 3);
    cache.share(1, 3, 3);
    const std::vector<Step> next = {{1, {8}}, {2, {5}}, {3, {8}}};  // three beams go on together
    std::vector<double> got = step(device, model, cache, next);
    auto row = [&](std::size_t i) {
      return std::vector<double>(got.begin() + static_cast<std::ptrdiff_t>(i * V),
                                 got.begin() + static_cast<std::ptrdiff_t>((i + 1) * V));
    };
    EXPECT_EQ(row(0), plain({2, 7, 1, 8}));
    EXPECT_EQ(row(1), plain({2, 7, 1, 5}));
    EXPECT_EQ(row(0), row(2));
    cache.drop(1);
    const std::vector<Step> rest = {{3, {6}}, {2, {6}}};  // and in another order, without their parent
    got = step(device, model, cache, rest);
    EXPECT_EQ(row(0), plain({2, 7, 1, 8, 6}));
    EXPECT_EQ(row(1), plain({2, 7, 1, 5, 6}));

    // There is no way back but to the start.
    EXPECT_TRUE(holds(error_of([&] { cache.truncate(2, 4); }), "only the state after the last one is kept"));
    EXPECT_TRUE(holds(error_of([&] { cache.share(2, 9, 1); }), "only the state after the last one is kept"));
    EXPECT_NO_THROW(cache.truncate(2, 5));
    cache.truncate(2, 0);
    const Step again{2, {4, 4}};
    got = step(device, model, cache, {&again, 1});
    EXPECT_EQ(row(1), plain({4, 4}));
    cache.share(3, 4, 0);
    const Step begin{4, {4, 4}};
    got = step(device, model, cache, {&begin, 1});
    EXPECT_EQ(row(1), plain({4, 4}));
    if (recipe.encoder) {
      const Step unknown{77, {1}};
      EXPECT_TRUE(holds(error_of([&] { step(device, model, cache, {&unknown, 1}); }),
                        "begins without a source batch"));
    }
  }
}

TEST(RecurrentModel, TranslatesGreedilyAndWithBeams) {
  Device device({.threads = 2});
  for (const char* name : {"bahdanau", "luong-general", "luong-local-p"})
    for (const std::uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(concat(name, " ", seed));
      Recipe r = preset(name);
      r.width = 12, r.vocab = 7, r.context = 32;
      if (r.encoder->recurrent->width > 0) r.encoder->recurrent->width = r.decoder->recurrent->width = 8;
      Checkpoint c = memory_checkpoint(r, seed);
      c.decoder_start = 0;
      const std::vector<std::int32_t> source = {3, 5, 2, 6, 4, 1};
      // After the start token and these, without a cache.
      auto logits = [&](const std::vector<std::int32_t>& answer) {
        SomeText t{.tokens = {0}, .types = {}, .source = source};
        t.tokens.insert(t.tokens.end(), answer.begin(), answer.end());
        const std::vector<double> all = logits_of(device, *c.model, {&t, 1});
        std::vector<double> last(all.end() - 7, all.end());
        return last;
      };
      std::vector<std::int32_t> want;
      while (want.size() < 8) {
        std::vector<double> l = logits(want);
        l[0] = -1e30;
        const auto id = static_cast<std::int32_t>(std::max_element(l.begin(), l.end()) - l.begin());
        if (id == 1) break;
        want.push_back(id);
      }
      Session session(device, c, {});
      GenerateOptions o;
      o.max_tokens = 8;
      o.sampler.temperature = 0;
      EXPECT_EQ(session.translate(source, o)[0].ids, want);
      o.beams = 4;
      o.length_penalty = 0;
      const Generated best = session.translate(source, o)[0];
      // Its score is what a plain pass over its own tokens gives.
      double sum = 0;
      std::vector<std::int32_t> said;
      std::vector<std::int32_t> ids = best.ids;
      if (best.finish == Finish::stop) ids.push_back(1);
      for (const std::int32_t id : ids) {
        const std::vector<double> l = logits(said);
        double whole = 0;
        for (double x : l) whole += std::exp(x);
        sum += l[static_cast<std::size_t>(id)] - std::log(whole);
        said.push_back(id);
      }
      EXPECT_NEAR(best.score, sum, 1e-4);
    }
}

// ------------------------------------------------------------------------------------------------ observers
TEST(RecurrentModel, ShowsItsAlignment) {
  Device device({.threads = 1});
  for (const auto& [name, recipe] : recipes()) {
    if (!recipe.decoder || !recipe.decoder->recurrent || !recipe.decoder->recurrent->attention) continue;
    SCOPED_TRACE(name);
    const AlignRecipe& a = *recipe.decoder->recurrent->attention;
    Model model(recipe);
    randomise(model, 7);
    const std::vector<SomeText> texts = some_texts(model.recipe, kLengths, 3);
    const PackedBatch p(texts);
    Taps taps;
    std::vector<std::vector<double>> rows(p.tokens.size());
    std::vector<double> stats;
    int outs = 0;
    taps.want_weights(
        site::attn_weights,
        [&](const Tapped& where) {
          std::vector<Taps::HeadRow> all;
          if (where.stack == Stack::decoder && where.cross &&
              where.layer == recipe.decoder->recurrent->layers - 1)
            for (std::size_t i = 0; i < p.tokens.size(); ++i) all.push_back({0, static_cast<Dim>(i)});
          return all;
        },
        [&](const Tapped& t) { rows[static_cast<std::size_t>(t.row)] = all_values(t.value); });
    taps.see(site::attn_stats, [&](const Tapped& t) {
      if (t.cross) stats = all_values(t.value);
    });
    taps.see(site::resid_out, [&](const Tapped& t) {
      outs += t.stack == Stack::decoder;
      EXPECT_EQ(t.value[0],
                static_cast<Dim>(t.stack == Stack::decoder ? p.tokens.size() : p.source_tokens.size()));
    });
    rapt::Run run(device);
    run.taps = &taps;
    forward(run, model, p.batch, p.source_or_null());
    EXPECT_EQ(outs, recipe.decoder->recurrent->layers);
    ASSERT_EQ(stats.size(), p.tokens.size() * AttentionStat::count);
    for (std::size_t s = 0; s < texts.size(); ++s)
      for (Dim t = 0; t < p.batch.sequences[s].count; ++t) {
        const auto r = static_cast<std::size_t>(p.batch.sequences[s].first + t);
        ASSERT_EQ(rows[r].size(), texts[s].source.size());
        double sum = 0, entropy = 0;
        Dim low = static_cast<Dim>(rows[r].size()), high = -1;
        for (std::size_t j = 0; j < rows[r].size(); ++j) {
          sum += rows[r][j];
          if (rows[r][j] > 0) {
            entropy -= rows[r][j] * std::log(rows[r][j]);
            low = std::min(low, static_cast<Dim>(j)), high = static_cast<Dim>(j);
          }
        }
        if (a.window == AlignRecipe::Window::none) {
          EXPECT_NEAR(sum, 1, 1e-6);
        }
        if (a.window == AlignRecipe::Window::monotonic && high >= 0) {
          EXPECT_EQ(low, std::max<Dim>(0, t - a.reach));
          EXPECT_EQ(high, std::min<Dim>(static_cast<Dim>(rows[r].size()) - 1, t + a.reach));
        }
        if (a.window == AlignRecipe::Window::predictive) {
          EXPECT_LE(sum, 1 + 1e-6);
          EXPECT_LE(high - low, 2 * a.reach);
        }
        EXPECT_NEAR(stats[r * AttentionStat::count + AttentionStat::sum], sum, 1e-5);
        EXPECT_NEAR(stats[r * AttentionStat::count + AttentionStat::entropy], entropy, 1e-5);
      }
    // An edit of the result reaches the logits; one between the steps of layers is refused.
    Taps edits;
    edits.edit(site::resid_out, [](const Tapped& t) {
      for (float& x : t.value.as<float>()) x = 0;
    });
    rapt::Run changed(device);
    changed.taps = &edits;
    auto edited = [&] { return all_values(forward(changed, model, p.batch, p.source_or_null())); };
    if (recipe.decoder->recurrent->layers > 1) {
      EXPECT_TRUE(holds(error_of(edited), "one step at a time"));
    } else {
      const std::vector<double> flat = edited();
      for (Dim v = 0; v < recipe.vocab; ++v)
        EXPECT_EQ(flat[static_cast<std::size_t>(v)], flat[static_cast<std::size_t>(recipe.vocab + v)]);
    }
  }
}

// ------------------------------------------------------------------------------------------------ learning
// Words written backwards: after a few steps of training the loss has fallen far, and the strongest weights
// run from the last word to the first. (Luong's window around a predicted word has to learn where that is.)
TEST(RecurrentModel, LearnsToReverseAndLooksWhereItShould) {
  RAPT_NOT_SANITIZED("a long training");
  Device device({.threads = 1});
  for (const char* name : {"bahdanau", "luong-general", "luong-local-p"}) {
    SCOPED_TRACE(name);
    Recipe r = preset(name);
    r.width = 32, r.vocab = 12;
    r.embed.dropout = r.decoder->dropout = 0;
    for (auto* stack : {&*r.encoder, &*r.decoder}) {
      stack->recurrent->width = 32;
      stack->recurrent->layers = 1;
      stack->recurrent->dropout = 0;
    }
    Model model(r);
    init(model, 1);
    Optimizer optimizer(model, {.rate = 0.01, .beta2 = 0.98, .decay = 0});
    auto batch_of = [&](std::uint64_t step, std::vector<SomeText>& texts, std::vector<std::int32_t>& want) {
      for (std::uint64_t i = 0; i < 16; ++i) {
        SomeText t;
        t.id = i;
        t.tokens = {0};
        const Dim n = 3 + static_cast<Dim>(random_below(4, 7, 100 * step + i));
        for (Dim j = 0; j < n; ++j)
          t.source.push_back(
              2 + static_cast<std::int32_t>(random_below(10, 100 * step + i, static_cast<std::uint64_t>(j))));
        t.tokens.insert(t.tokens.end(), t.source.rbegin(), t.source.rend());
        want.insert(want.end(), t.tokens.begin() + 1, t.tokens.end());
        want.push_back(1);
        texts.push_back(std::move(t));
      }
    };
    double first = 0, last = 0;
    Gradients gradients(DType::f32);
    rapt::Run run(device);
    run.training = true;
    for (std::uint64_t step = 0; step < 160; ++step) {
      std::vector<SomeText> texts;
      std::vector<std::int32_t> want;
      batch_of(step, texts, want);
      const PackedBatch p(texts);
      gradients.zero();
      run.reset();
      Tape tape(gradients);
      run.tape = &tape;
      const Loss loss = cross_entropy(run, forward(run, model, p.batch, &p.source), want);
      (step == 0 ? first : last) = loss.mean.at(0);
      backward(run, loss.mean);
      optimizer.step(device, gradients, optimizer.norm(device, gradients));
    }
    run.tape = nullptr;
    EXPECT_NEAR(first, std::log(12.0), 0.1);
    EXPECT_LT(last, 0.25);

    std::vector<SomeText> texts;
    std::vector<std::int32_t> want;
    batch_of(1000, texts, want);
    const PackedBatch p(texts);
    Dim right = 0, rows = 0;
    Taps taps;
    taps.see(site::attn_stats, [&](const Tapped& t) {
      for (std::size_t s = 0; t.cross && s < texts.size(); ++s) {
        const auto n = static_cast<Dim>(texts[s].source.size());
        for (Dim i = 0; i < n; ++i, ++rows)
          right += t.value.at((p.batch.sequences[s].first + i) * AttentionStat::count +
                              AttentionStat::strongest) == static_cast<double>(n - 1 - i);
      }
    });
    run.reset();
    run.taps = &taps;
    forward(run, model, p.batch, &p.source);
    EXPECT_GT(rows, 16 * 3 - 1);
    EXPECT_GT(5 * right, 4 * rows);  // seen: 80 of 81
  }
}

// ------------------------------------------------------------------------------------------------ recipes
TEST(RecurrentModel, RefusesRecipesThatCannotWork) {
  const std::string gru = R"("encoder": { "recurrent": { "width": 8 } })";
  auto error = [](const std::string& inside) {
    return error_of(
        [&] { resolve(parse_recipe(concat(R"({ "width": 8, "vocab": 9, "context": 9, )", inside, " }"))); });
  };
  auto decoder = [&](const std::string& r) {
    return error(concat(gru, R"(, "decoder": { "recurrent": )", r, " }"));
  };
  EXPECT_EQ(decoder(R"({ "attention": {} })"), "");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {decoder(R"({ "attention": { "scor": "dot" } })"), "unknown key"},
      {decoder(R"({ "cell": "elman" })"), "unknown value"},
      {decoder(R"({ "attention": { "window": { "monotonic": { "reach": 0 } } } })"), "must be at least 1"},
      {decoder(R"({ "attention": { "window": { "both": {} } } })"), "unknown value"},
      {decoder(R"({ "dropout": 1 })"), "must be below 1"},
      {decoder(R"({ "both_ways": true })"), "belongs to an encoder"},
      {decoder(R"({ "cell": "lstm", "attention": {} })"), "are those of gru cells"},
      {decoder(R"({ "cell": "rnn", "attention": {} })"), "these are rnn"},
      {decoder(R"({ "layers": 2, "attention": {} })"), "1 layers and the decoder 2"},
      {decoder(R"({ "width": 5, "attention": { "score": "general" } })"), "have 8 channels"},
      {decoder(R"({ "width": 5, "start": "zero", "attention": {} })"), "dot multiplies"},
      {decoder(R"({ "width": 5, "start": "projected" })"), "as wide as the model"},
      {decoder(R"({ "start": "zero" })"), "nothing would read the encoder"},
      {decoder(R"({ "attention": { "at": "previous", "feed": true } })"), "already enters the cell"},
      {decoder(R"({ "attention": { "width": 4 } })"), "hidden layer"},
      {error(R"("decoder": { "recurrent": { "attention": {} } })"), "there is no encoder"},
      {error(R"("decoder": { "recurrent": { "start": "projected" } })"), "use zero"},
      {error(R"("decoder": { "layers": 2, "recurrent": {} })"), "counted by recurrent.layers"},
      {error(R"("decoder": { "final_norm": "rms", "recurrent": {} })"), "no norms"},
      {error(R"("embed": { "sink_tokens": 1 }, "decoder": { "recurrent": {} })"), "sink_tokens"},
      {error(R"("decoder": { "recurrent": {}, "kinds": { "L": { "parts": [ { "self": {} } ] } } })"),
       "in the place of layers"},
      {error(R"("encoder": { "recurrent": { "width": 8, "attention": {} } })"), "nothing to look at"},
      {error(R"("encoder": { "recurrent": { "width": 8, "start": "zero" } })"), "starts from zeros"},
      {error(R"("encoder": { "recurrent": { "both_ways": true } })"), "set width 4"},
      {error(
           R"("encoder": { "kinds": { "L": { "parts": [ { "self": { "mask": "full" } } ] } } }, "decoder": { "recurrent": { "attention": {} } })"),
       "leaves no last state"},
  };
  for (const auto& [message, words] : wrong)
    EXPECT_TRUE(holds(message, words)) << message << "\nshould say: " << words;
  for (const auto& [name, recipe] : recipes()) {
    const Recipe full = resolve(recipe);
    EXPECT_EQ(resolve(full), full);
    for (const bool all : {false, true}) EXPECT_EQ(parse_recipe(recipe_json(full, all)), full) << name;
  }
}

}  // namespace
}  // namespace rapt::test
