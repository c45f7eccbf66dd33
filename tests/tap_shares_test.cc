// SPDX-License-Identifier: Apache-2.0
// Passes that mix texts, each with a share of the taps: what a share sees and what its edits do is, bit for
// bit, what its text gives alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "rapt/inspect/edits.h"
#include "tests/model_tools.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt::test {
namespace {

using At = GateRecipe::At;

// GQA, RoPE with a window and kept keys, learned tokens, a gate at every place.
Recipe gated_decoder() {
  return parse_recipe(R"({"name":"gated","width":24,"vocab":31,"context":80,"embed":{"sink_tokens":2},
    "decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
      {"self":{"norm_in":"rms","heads":4,"kv_heads":2,"window":5,"keep":2,"pos":{"rope":{}},"qk_norm":{"norm":"rms"},
        "gate":[{"at":"sdpa"},{"at":"q"},{"at":"k"},{"at":"v"},{"at":"out"}]}},
      {"ffn":{"norm_in":"rms"}}]}}}})");
}
// Both stacks, and gates on what is looked at.
Recipe translator() {
  return parse_recipe(
      R"({"name":"both","width":24,"vocab":31,"context":40,"embed":{"sink_tokens":1,"pos":"sinusoid"},
    "encoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
      {"self":{"norm_in":"rms","heads":4,"mask":"full"}},{"ffn":{"norm_in":"rms"}}]}}},
    "decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[{"self":{"norm_in":"rms","heads":4}},
      {"cross":{"norm_in":"rms","heads":4,"kv_heads":2,"qk_norm":{"norm":"rms"},"gate":[{"at":"q"},{"at":"k"},{"at":"v"}]}},
      {"ffn":{"norm_in":"rms"}}]}}}})");
}
Recipe recurrent(Dim layers) {
  Recipe r = parse_recipe(
      concat(R"({"width":10,"encoder":{"recurrent":{"layers":2,"both_ways":true,"width":7}},
    "decoder":{"recurrent":{"layers":)",
             layers, R"(,"width":9,"start":"zero","attention":{"score":"concat","width":5}}}})"));
  r.vocab = 31;
  r.context = 40;
  return r;
}
Recipe classifier() {
  Recipe r = toy_recipe("bert", 2);
  r.head = {.kind = HeadRecipe::Kind::classes, .classes = 3, .pool = HeadRecipe::Pool::mean};
  return resolve(r);
}

const Site kSites[] = {site::tokens,
                       site::positions,
                       site::embed,
                       site::resid_in,
                       site::part_out,
                       site::resid_sum,
                       site::resid_out,
                       site::final_norm,
                       site::unembed,
                       site::logits,
                       site::attn_in,
                       site::q_proj,
                       site::k_proj,
                       site::v_proj,
                       site::q_normed,
                       site::k_normed,
                       site::q,
                       site::k,
                       site::v,
                       site::z,
                       site::attn_out,
                       site::attn_stats,
                       site::ffn_in,
                       site::ffn_pre,
                       site::ffn_hidden,
                       site::ffn_out,
                       site::gate_in(At::sdpa),
                       site::gate_in(At::q),
                       site::gate_in(At::k),
                       site::gate_in(At::v),
                       site::gate_in(At::out),
                       site::gate(At::sdpa),
                       site::gate(At::q),
                       site::gate(At::k),
                       site::gate(At::v),
                       site::gate(At::out)};

// All that observers were shown, in order, but where it stood in the pass.
struct Shown {
  std::string what;
  std::vector<double> values;
  bool operator==(const Shown&) const = default;
};
std::string plan_text(const RowPlan& plan) {
  std::string s;
  for (const RowPlan::Part& p : plan.parts)
    s += concat(" [", p.q_first, " ", p.q_count, " ", p.k_first, " ", p.k_count, " ", p.keep, "]");
  for (const auto* list : {&plan.low, &plan.high, &plan.position, &plan.kept_position}) {
    s += " |";
    for (const std::int32_t n : *list) s += concat(" ", n);
  }
  return s;
}
void note(std::vector<Shown>& all, const Tapped& t) {
  all.push_back({concat(t.site.name(), " ", t.stack == Stack::encoder ? "encoder" : "decoder", " ", t.layer,
                        " ", t.part, " ", t.cross, " ", t.head, " ", t.row, " ", static_cast<int>(t.rows),
                        " ", t.value.shape(), t.plan ? plan_text(*t.plan) : ""),
                 all_values(t.value)});
}

void scale_rows(const Tensor& x, double by) {  // each row by another factor: a row too far would show
  const Dim width = x.elements() / x[0];
  for (Dim i = 0; i < x.elements(); ++i) x.set(i, x.at(i) * (by + 0.1 * static_cast<double>(i / width)));
}

// The observers and edits of one text; who: none, or one of two ways to change the pass.
void watch(Taps& taps, std::vector<Shown>& shown, std::size_t who, bool weights, bool stream = true) {
  for (const Site s : kSites) taps.see(s, [&shown](const Tapped& t) { note(shown, t); });
  if (weights)
    taps.want_weights(
        site::attn_weights,
        [who](const Tapped& t) {
          std::vector<Taps::HeadRow> rows = {{0, 0}};
          if (who % 2) rows.push_back({0, t.stack == Stack::encoder ? 2 : 1});
          return rows;
        },
        [&shown](const Tapped& t) { note(shown, t); });
  taps.first_keys = who % 2 ? 4 : 2;
  const auto edit = [&](Site s, double by) {
    taps.edit(s, [by](const Tapped& t) { scale_rows(t.value, by); });
  };
  if (who % 3 == 1)
    for (const Site s : {site::k_proj, site::v, site::gate_in(At::k), site::logits, site::embed})
      edit(s, 0.7);
  if (who % 3 == 2) {
    if (stream) edit(site::resid_out, 0.5);
    for (const Site s : {site::k, site::gate_in(At::v), site::ffn_pre, site::unembed}) edit(s, 1.2);
  }
}

constexpr Dim kLengths[] = {5, 9, 3, 12, 6};

struct Made {
  Device device{{.threads = 2}};
  Model model;
  std::vector<SomeText> texts;
  explicit Made(const Recipe& recipe) : model(recipe, device.real) {
    randomise(model, 3);
    texts = some_texts(model.recipe, kLengths, 7);
    for (SomeText& t : texts)  // sources longer than texts: their rows are others
      if (!t.source.empty()) t.source.insert(t.source.end(), t.tokens.begin(), t.tokens.end());
  }
  std::vector<double> pass(std::span<const SomeText> some, Taps& taps, const Want& want) {
    rapt::Run run(device);
    run.taps = &taps;
    PackedBatch packed(some);
    packed.batch.want = want;
    return all_values(forward(run, model, packed.batch, packed.source_or_null()));
  }
  std::vector<TapShare> shares(const Want& want) const {
    PackedBatch packed(texts);
    packed.batch.want = want;
    return shares_of(model, packed.batch, packed.source_or_null());
  }
};

void expect_equal(const std::vector<Shown>& mixed, const std::vector<Shown>& alone) {
  ASSERT_EQ(mixed.size(), alone.size());
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    ASSERT_EQ(mixed[i].what, alone[i].what) << i;
    ASSERT_TRUE(mixed[i].values == alone[i].values) << mixed[i].what;
  }
}

void check_mixed(const Recipe& recipe, const Want& want, bool stream = true) {
  Made m(recipe);
  Taps pass;
  pass.shares = m.shares(want);
  std::vector<Taps> taps(m.texts.size());
  std::vector<std::vector<Shown>> mixed(m.texts.size());
  for (std::size_t i = 0; i < m.texts.size(); ++i) {
    watch(taps[i], mixed[i], i, true, stream);
    pass.shares[i].taps = &taps[i];
  }
  const std::vector<double> all = m.pass(m.texts, pass, want);
  std::vector<double> one_by_one;
  for (std::size_t i = 0; i < m.texts.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_FALSE(pass.shares[i].error);
    Taps own, nobody;
    std::vector<Shown> alone;
    watch(own, alone, i, true, stream);
    const std::vector<double> result = m.pass({&m.texts[i], 1}, own, want),
                              plain = m.pass({&m.texts[i], 1}, nobody, want);
    EXPECT_GT(alone.size(), 10u);
    expect_equal(mixed[i], alone);
    EXPECT_EQ(result == plain, i % 3 == 0);  // edits do something
    one_by_one.insert(one_by_one.end(), result.begin(), result.end());
  }
  EXPECT_EQ(all, one_by_one);
}

TEST(TapShares, ADecoderShowsAndChangesEachTextAsAlone) {
  check_mixed(gated_decoder(), {});
  check_mixed(gated_decoder(), kWantLast);
}

TEST(TapShares, AnEncoderDecoderDoesToo) {
  check_mixed(translator(), {});
  check_mixed(translator(), kWantLast);
}

TEST(TapShares, RecurrentStacksDoToo) {
  check_mixed(recurrent(1), {});
  check_mixed(recurrent(2), kWantLast, false);
}

TEST(TapShares, AClassifierHasOneWantedRowPerText) { check_mixed(classifier(), {}); }

// Own observers see everything, as they do without shares; only the rows of weights they chose.
TEST(TapShares, OwnObserversSeeTheWholePass) {
  Made m(gated_decoder());
  std::vector<Shown> whole, with_shares, ignored;
  Taps plain, pass, requests;
  watch(plain, whole, 3, true);
  m.pass(m.texts, plain, {});
  watch(pass, with_shares, 3, true);
  watch(requests, ignored, 0, true);
  pass.shares = m.shares({});
  for (TapShare& s : pass.shares) s.taps = &requests;
  m.pass(m.texts, pass, {});
  expect_equal(with_shares, whole);
  EXPECT_FALSE(ignored.empty());
}

// Two samples of a request have the same taps, and each has its place in its text.
TEST(TapShares, TwoSharesMayHaveTheSameTaps) {
  Made m(gated_decoder());
  Taps pass, both;
  std::vector<std::pair<int, Dim>> rows, weights;
  both.see(site::z, [&](const Tapped& t) {
    if (t.layer == 0) rows.emplace_back(t.share, t.value[0]);
    EXPECT_EQ(t.position, t.share == 1 ? 100 : 7);
  });
  both.want_weights(
      site::attn_weights, [](const Tapped& t) { return std::vector<Taps::HeadRow>{{1, t.share}}; },
      [&](const Tapped& t) {
        if (t.layer == 0) weights.emplace_back(t.share, t.row);
      });
  pass.shares = m.shares({});
  pass.shares[1].taps = pass.shares[3].taps = &both;
  pass.shares[1].position = 100;
  pass.shares[3].position = 7;
  m.pass(m.texts, pass, {});
  EXPECT_EQ(rows, (std::vector<std::pair<int, Dim>>{{1, 11}, {3, 14}}));
  EXPECT_EQ(weights, (std::vector<std::pair<int, Dim>>{{1, 1}, {3, 3}}));
}

std::string message_of(const TapShare& s) {
  return s.error ? error_of([&] { std::rethrow_exception(s.error); }) : "";
}

TEST(TapShares, WhatOneThrowsLeavesTheOthersAlone) {
  Made m(gated_decoder());
  Taps nobody;
  const std::vector<double> plain = m.pass(m.texts, nobody, {});
  for (int how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    Taps pass, bad, good;
    std::vector<Shown> seen, alone;
    int after = 0;
    if (how == 0) bad.see(site::q, [](const Tapped&) { fail("no"); });
    if (how == 1) bad.edit(site::ffn_pre, [](const Tapped&) { fail("no"); });
    if (how >= 2)
      bad.want_weights(
          site::attn_weights,
          [&](const Tapped&) {
            if (how == 2) fail("no");
            return std::vector<Taps::HeadRow>{{0, 14}};  // of the neighbour
          },
          [&](const Tapped&) { ++after; });
    bad.see(site::resid_out, [&](const Tapped&) { ++after; });
    watch(good, seen, 0, true);
    pass.shares = m.shares({});
    pass.shares[2].taps = &good;
    pass.shares[3].taps = &bad;
    EXPECT_EQ(m.pass(m.texts, pass, {}), plain);
    EXPECT_TRUE(
        holds(message_of(pass.shares[3]), how < 3 ? "no" : "row 14 were asked for; there are 4 heads"));
    EXPECT_FALSE(pass.shares[2].error);
    EXPECT_EQ(after, 0);
    Taps own;
    watch(own, alone, 0, true);
    m.pass({&m.texts[2], 1}, own, {});
    expect_equal(seen, alone);
    // The pass's own observers end it.
    EXPECT_NE(error_of([&] { m.pass({&m.texts[2], 1}, bad, {}); }), "");
  }
}

TEST(TapShares, ARecurrentDecoderRefusesOnlyWhoChangesItsLayers) {
  Made m(recurrent(2));
  Taps nobody, pass, bad;
  bad.edit(site::resid_out, [](const Tapped& t) {
    if (t.stack == Stack::decoder) scale_rows(t.value, 2);
  });
  const std::vector<double> plain = m.pass(m.texts, nobody, {});
  pass.shares = m.shares({});
  pass.shares[1].taps = &bad;
  EXPECT_EQ(m.pass(m.texts, pass, {}), plain);
  EXPECT_TRUE(holds(message_of(pass.shares[1]), "cannot be changed"));
}

TEST(TapShares, MutedSharesAreChangedButNotSeen) {
  Made m(gated_decoder());
  std::vector<Shown> seen;
  Taps pass, taps;
  watch(taps, seen, 1, true);
  pass.shares = m.shares({});
  pass.shares[3].taps = &taps;
  const std::vector<double> open = m.pass(m.texts, pass, {});
  EXPECT_FALSE(seen.empty());
  seen.clear();
  pass.shares[3].muted = true;
  EXPECT_FALSE(pass.sees(site::q));
  EXPECT_TRUE(pass.edits(site::v) && pass.edits_anything());
  EXPECT_EQ(m.pass(m.texts, pass, {}), open);
  pass.shares[3].muted = false;
  pass.muted = true;
  EXPECT_EQ(m.pass(m.texts, pass, {}), open);
  EXPECT_TRUE(seen.empty());
  // Without rows nobody is called.
  pass.muted = false;
  pass.shares[3].rows = pass.shares[3].wanted = {};
  EXPECT_NE(m.pass(m.texts, pass, {}), open);
  EXPECT_TRUE(seen.empty());
}

// ------------------------------------------------------------------------------------------- edits in pieces
std::vector<double> in_one(Made& m, const SomeText& text, std::span<const Edit> edits) {
  Taps taps;
  const auto check = install_edits(taps, m.model, edits);
  const std::vector<double> result = m.pass({&text, 1}, taps, {});
  check();
  return result;
}

// Texts side by side through a cache, `piece` tokens of each at a time; each with taps of its own.
std::vector<std::vector<double>> in_pieces(Made& m, std::span<Taps> taps, Dim piece) {
  KvPool cache = make_cache(m.model);
  rapt::Run run(m.device);
  std::vector<std::vector<double>> results(m.texts.size());
  for (Dim past = 0;; past += piece) {
    std::vector<std::int32_t> tokens, source_tokens;
    Batch batch, source;
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < m.texts.size(); ++i) {
      const SomeText& t = m.texts[i];
      const Dim count = std::min(piece, static_cast<Dim>(t.tokens.size()) - past);
      if (count <= 0) continue;
      batch.sequences.push_back(
          {.first = static_cast<Dim>(tokens.size()), .count = count, .past = past, .id = t.id});
      tokens.insert(tokens.end(), t.tokens.begin() + past, t.tokens.begin() + past + count);
      source.sequences.push_back({.first = static_cast<Dim>(source_tokens.size()),
                                  .count = static_cast<Dim>(t.source.size()),
                                  .id = t.id});
      source_tokens.insert(source_tokens.end(), t.source.begin(), t.source.end());
      who.push_back(i);
    }
    if (who.empty()) return results;
    batch.tokens = tokens;
    source.tokens = source_tokens;
    const Batch* from = past == 0 && !source_tokens.empty() ? &source : nullptr;
    Taps pass;
    pass.shares = shares_of(m.model, batch, from);
    for (std::size_t n = 0; n < who.size(); ++n) pass.shares[n].taps = &taps[who[n]];
    run.reset();
    run.taps = &pass;
    const Tensor logits = forward(run, m.model, batch, from, &cache);
    for (std::size_t n = 0; n < who.size(); ++n) {
      if (pass.shares[n].error) std::rethrow_exception(pass.shares[n].error);
      const std::vector<double> rows =
          all_values(logits.slice(batch.sequences[n].first, batch.sequences[n].count));
      results[who[n]].insert(results[who[n]].end(), rows.begin(), rows.end());
    }
  }
}

TEST(TapShares, EditsOfPositionsFindThemInPieces) {
  for (const bool both : {false, true}) {
    Made m(both ? translator() : gated_decoder());
    const std::string stack = both ? "decoder." : "";
    std::vector<std::vector<Edit>> edits(m.texts.size());
    const auto add = [&](std::size_t i, const std::string& text) {
      edits[i].push_back(parse_edit(stack + text));
    };
    add(1, "resid_post.0@p3..6:scale=0.5");
    add(1, "z.1@h1@p0:zero");
    add(3, "value.0@p11:add=0.3");
    add(3, "full_embeddings@p2:add=1");
    add(4, "resid_post.1:add=0.2");
    add(1, "attn_weights.0@h0@p4..5@k3..4:scale=0.25");
    add(3, "attn_weights.1@h3@p1@k0..1:replace=0.5");
    if (both) {
      add(1, "cross_attn_scores.1@h1@k2:add=1");
      add(3, "attn_scores.1@h2@p3@k2:mask");
      edits[3].push_back(parse_edit("encoder.resid_post.0@p1..3:zero"));
      add(4, "cross_value.0@p4:scale=3");
    }
    for (const std::vector<Edit>& e : edits) EXPECT_FALSE(needs_whole(m.model, e));
    for (const Dim piece : {1, 3, 64}) {
      SCOPED_TRACE(piece);
      std::vector<Taps> taps(m.texts.size());
      std::vector<std::function<void()>> checks;
      for (std::size_t i = 0; i < taps.size(); ++i)
        checks.push_back(install_edits(taps[i], m.model, edits[i], Passes::many));
      const auto results = in_pieces(m, taps, piece);
      for (std::size_t i = 0; i < taps.size(); ++i) {
        checks[i]();
        EXPECT_EQ(results[i], in_one(m, m.texts[i], edits[i])) << i;
        EXPECT_EQ(results[i] == in_one(m, m.texts[i], {}), edits[i].empty()) << i;
      }
    }
  }
}

TEST(TapShares, EditsOfPositionsSayWhatIsWrong) {
  Made m(gated_decoder());
  for (const char* text : {"z.0@h1@p-1:zero", "z.0@h1@p2..-1:zero", "z.0:mean", "logits@2:zero"}) {
    Taps taps;
    const std::vector<Edit> edits = {parse_edit("z.1:zero"), parse_edit(text)};
    EXPECT_TRUE(needs_whole(m.model, edits)) << text;
    EXPECT_TRUE(
        holds(error_of([&] { install_edits(taps, m.model, edits, Passes::many); }), "all of it in one"))
        << text;
  }
  Taps own;
  const std::vector<Edit> third = {parse_edit("resid_post.0@p3:zero")},
                          backwards = {parse_edit("resid_post.0@p3..2:zero")};
  EXPECT_TRUE(holds(error_of([&] { install_edits(own, m.model, backwards, Passes::many); }),
                    "smaller one comes first"));
  // A pass without shares does not know positions.
  install_edits(own, m.model, third, Passes::many);
  EXPECT_TRUE(holds(error_of([&] { m.pass(m.texts, own, {}); }), "nobody says at which position"));
  // Positions that never came.
  for (const auto& [text, said] :
       {std::pair{"resid_post.0@p40:zero", "touched nothing: the text has no position 40"},
        {"resid_post.0@p3..40:zero", "touched positions 3 to 4 only"}}) {
    std::vector<Taps> taps(m.texts.size());
    const auto check = install_edits(taps[0], m.model, std::vector{parse_edit(text)}, Passes::many);
    in_pieces(m, taps, 2);
    EXPECT_TRUE(holds(error_of(check), said)) << error_of(check);
  }
}

}  // namespace
}  // namespace rapt::test
