// SPDX-License-Identifier: Apache-2.0
// Windows, documents and masks of a text against the text itself; shuffles, gzip, errors, known corpora.
#include "rapt/use/data.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <map>

#include "rapt/use/data_parts.h"
#include "tests/data.h"
#include "tests/training_data.h"

namespace rapt {
namespace {

using namespace test;

TEST(Permutation, HoldsEveryNumberOnce) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 7, 64, 65, 1000, 4097}) {
    std::vector<bool> seen(n);
    const data::Permutation order(n, 42);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t k = order(i);
      ASSERT_LT(k, n);
      EXPECT_FALSE(seen[k]);
      seen[k] = true;
    }
  }
  // It looks like chance: where a number goes, and how often neighbours stay neighbours.
  std::map<std::uint64_t, int> first;
  int neighbours = 0;
  for (std::uint64_t key = 0; key < 3000; ++key) {
    const data::Permutation order(10, key);
    ++first[order(0)];
    neighbours += order(3) + 1 == order(4);
  }
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_NEAR(first[i], 300, 70) << i;
  EXPECT_NEAR(neighbours, 300, 70);  // 9 of 90 pairs
}

TEST(TextData, RandomWindowsOfCharacters) {
  TempFolder folder;
  const std::string text = long_text(300);
  put_file(folder / "a.txt", text);
  const DataOptions o{.path = folder / "a.txt",
                      .vocab = {.kind = VocabKind::characters},
                      .seed = 5,
                      .batch = 3,
                      .length = 16};
  const auto d = open_data(o);
  check_data(*d, o);
  const std::set<std::uint32_t> characters = [&] {
    std::set<std::uint32_t> out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if ((text[i] & 0xC0) != 0x80)
        out.insert(static_cast<std::uint8_t>(text[i]) << 8 |
                   static_cast<std::uint8_t>(text[i] & 0x80 ? text[i + 1] : 0));
    }
    return out;
  }();
  EXPECT_EQ(d->vocab, static_cast<Dim>(characters.size()));  // no special tokens: as nanoGPT has it
  const Ids all = d->tokenizer->encode(text);
  Dim highest = 0;
  std::set<std::string> windows;
  for (std::uint64_t n = 0; n < 400; ++n) {
    const TrainBatch b = d->batch(n);
    ASSERT_EQ(b.sequences.size(), 3u);
    for (std::size_t s = 0; s < 3; ++s) {
      Ids both = row(b, s);
      ASSERT_EQ(both.size(), 16u);
      both.push_back(targets_of(b, s).back());
      const std::string piece = d->tokenizer->decode(both);
      EXPECT_EQ(d->tokenizer->decode(targets_of(b, s)),
                d->tokenizer->decode(Ids(both.begin() + 1, both.end())));
      const std::size_t at = text.find(piece);
      ASSERT_NE(at, std::string::npos) << piece;
      windows.insert(piece);
      highest = std::max(highest, static_cast<Dim>(at));
    }
  }
  EXPECT_GT(windows.size(), 1000u);  // of 1200
  EXPECT_LT(highest, static_cast<Dim>(0.9 * static_cast<double>(text.size())));
  EXPECT_NEAR(d->epochs(100), 100.0 * 3 * 16 / (0.9 * static_cast<double>(all.size())), 0.05);

  // The held-out part, in order, is the end of the text: every token but the first is a target once.
  std::string end;
  for (Dim i = 0; i < d->held_out(); ++i) {
    const TrainBatch b = d->held_out_batch(i);
    if (i == 0) end = d->tokenizer->decode(Ids{b.tokens[0]});
    end += d->tokenizer->decode(b.targets);
  }
  EXPECT_TRUE(text.ends_with(end));
  std::size_t cut = static_cast<std::size_t>(static_cast<double>(text.size()) * 0.9);
  while ((text[cut] & 0xC0) == 0x80) --cut;
  EXPECT_EQ(end.size(), text.size() - cut);
}

TEST(TextData, ShuffledWindowsComeOncePerEpoch) {
  TempFolder folder;
  put_file(folder / "a.txt", long_text(100));
  const DataOptions o{.path = folder / "a.txt",
                      .share = 0,
                      .vocab = {.size = 300},
                      .batch = 4,
                      .length = 11,
                      .windows = DataOptions::Windows::shuffled};
  const auto d = open_data(o);
  check_data(*d, o);
  EXPECT_EQ(d->held_out(), 0);
  const Ids all = d->tokenizer->encode(long_text(100));
  const std::size_t windows = (all.size() - 1 + 10) / 11;
  std::vector<std::vector<Ids>> epochs(3);
  std::vector<Ids> seen;
  for (std::uint64_t n = 0; seen.size() < 3 * windows; ++n) {
    const TrainBatch b = d->batch(n);
    for (std::size_t s = 0; s < b.sequences.size(); ++s) {
      Ids whole = row(b, s);
      whole.push_back(targets_of(b, s).back());
      seen.push_back(whole);
    }
  }
  std::vector<Ids> expected;
  for (std::size_t w = 0; w < windows; ++w) {
    expected.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(w * 11),
                          all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), w * 11 + 12)));
  }
  std::sort(expected.begin(), expected.end());
  for (std::size_t e = 0; e < 3; ++e) {
    epochs[e].assign(seen.begin() + static_cast<std::ptrdiff_t>(e * windows),
                     seen.begin() + static_cast<std::ptrdiff_t>((e + 1) * windows));
    std::vector<Ids> sorted = epochs[e];
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, expected) << "epoch " << e;
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_DOUBLE_EQ(d->epochs(static_cast<std::uint64_t>(windows)), 4.0);
}

// Each window begins with the begin token, whose target is the window's first token; the tokenizer then
// begins texts alike.
TEST(TextData, WindowsBeginWithABeginToken) {
  const TempFolder folder;
  put_file(folder / "a.txt", long_text(100));
  for (const auto windows : {DataOptions::Windows::random, DataOptions::Windows::shuffled}) {
    DataOptions o{.path = folder / "a.txt",
                  .vocab = {.kind = VocabKind::characters},
                  .batch = 3,
                  .length = 12,
                  .windows = windows,
                  .begin = true};
    const auto d = open_data(o);
    check_data(*d, o);
    const Tokenizer& t = *d->tokenizer;
    ASSERT_GE(t.bos, 0);
    EXPECT_EQ(t.before, Ids{t.bos});
    for (const TrainBatch& b : {d->batch(0), d->batch(7), d->held_out_batch(0)})
      for (std::size_t s = 0; s < b.sequences.size(); ++s) {
        const Ids in = row(b, s), out = targets_of(b, s);
        EXPECT_LE(in.size(), 12u);
        EXPECT_EQ(in[0], t.bos);
        EXPECT_EQ(Ids(in.begin() + 1, in.end()), Ids(out.begin(), out.end() - 1));
        Ids text = out;
        EXPECT_NE(long_text(100).find(t.decode(text)), std::string::npos);
      }
    o.begin = false;
    EXPECT_NE(open_data(o)->identity, d->identity);
  }
  EXPECT_TRUE(holds(error_of([&] {
                      open_data({.path = folder / "a.txt",
                                 .vocab = {.kind = VocabKind::characters},
                                 .documents = true,
                                 .begin = true});
                    }),
                    "--begin"));
}

TEST(TextData, ATextThatIsNoFileIsTheSameText) {
  const TempFolder folder;
  const std::string text = "\xEF\xBB\xBF" + long_text(60);
  put_file(folder / "a.txt", text);
  DataOptions o{.path = folder / "a.txt", .vocab = {.kind = VocabKind::characters}, .batch = 3, .length = 12};
  const auto file = open_data(o);
  o.path = "copy";  // its name, whatever else is called so
  o.text = std::make_shared<const std::string>(text);
  const auto own = open_data(o);
  EXPECT_EQ(own->identity, file->identity);
  EXPECT_EQ(own->batch(5).tokens, file->batch(5).tokens);
  EXPECT_EQ(own->held_out_batch(0).targets, file->held_out_batch(0).targets);
  o.objective = Objective::translation;
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "translation"));
  o.objective = Objective::causal;
  o.text = std::make_shared<const std::string>("\xFF\xFE is no text");
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "UTF-8"));
}

TEST(TextData, DocumentsDoNotSeeEachOther) {
  TempFolder folder;
  put_file(
      folder / "a.txt",
      "first one\nof two lines\n\n\nsecond\n   \nthird, longer than a window is long, so that it is cut\n\n"
      "fourth\n\nfifth and last\n");
  const DataOptions o{.path = folder / "a.txt",
                      .share = 0.1,
                      .vocab = {.kind = VocabKind::characters},
                      .batch = 2,
                      .length = 24,
                      .windows = DataOptions::Windows::shuffled,
                      .documents = true};
  const auto d = open_data(o);
  check_data(*d, o);
  const Tokenizer& t = *d->tokenizer;
  ASSERT_GE(t.eos, 0);
  EXPECT_EQ(t.text_of(t.eos), "<|endoftext|>");
  std::string stream;  // what the training part is: documents with their ends
  for (const char* doc : {"first one\nof two lines\n", "second\n",
                          "third, longer than a window is long, so that it is cut\n", "fourth\n"})
    stream += doc + std::string("|");
  EXPECT_EQ(d->about(), "96 tokens, 16 held out, 5 documents");
  ASSERT_EQ(stream.size(), 96u);
  std::map<std::string, int> pieces;
  for (std::uint64_t n = 0; n < 2; ++n) {  // 4 windows: one epoch
    const TrainBatch b = d->batch(n);
    for (std::size_t s = 0; s < b.sequences.size(); ++s) {
      const Ids in = row(b, s), out = targets_of(b, s);
      std::string text;
      for (std::size_t i = 0; i < in.size(); ++i) {
        text += in[i] == t.eos ? "|" : t.decode(Ids{in[i]});
        if (in[i] == t.eos) {
          EXPECT_EQ(i + 1, in.size()) << "a document's end stands inside a sequence";
          EXPECT_EQ(out[i], -1);
        } else {
          ASSERT_GE(out[i], 0);
          EXPECT_TRUE(i + 1 == in.size() || out[i] == in[i + 1]);
        }
      }
      if (in.back() != t.eos) text += out.back() == t.eos ? "|" : t.decode(Ids{out.back()});
      EXPECT_NE(stream.find(text), std::string::npos) << text;
      ++pieces[text];
    }
  }
  // Windows of 24 begin at 0, 24, 48 and 72; what follows the last token of a piece is its last target.
  const std::map<std::string, int> expected = {
      {"first one\nof two lines\n|", 1}, {"second\n|", 1},         {"third, longer tha", 1},
      {"an a window is long, so t", 1},  {"that it is cut\n|", 1}, {"fourth\n|", 1}};
  EXPECT_EQ(pieces, expected);

  // A folder: every file a document.
  std::filesystem::create_directory(folder / "texts");
  put_file(folder / "texts/b.txt", "bbb\n\nbbb");
  put_file(folder / "texts/a.txt", "aaaaaa");
  put_file(folder / "texts/.hidden", "hidden");
  DataOptions f{.path = folder / "texts",
                .share = 0,
                .vocab = {.kind = VocabKind::characters},
                .batch = 1,
                .length = 32,
                .windows = DataOptions::Windows::shuffled,
                .documents = true};
  const TrainBatch b = open_data(f)->batch(0);
  ASSERT_EQ(b.sequences.size(), 2u);
  EXPECT_EQ(b.sequences[0].count, 7);
  EXPECT_EQ(b.sequences[1].count, 8);  // the last token is a target only
  f.documents = false;
  f.vocab.eos = "<eos>";
  const TrainBatch one = open_data(f)->batch(0);
  ASSERT_EQ(one.sequences.size(), 1u);
  EXPECT_EQ(one.sequences[0].count, 15);
  EXPECT_EQ(one.counted, 15);
}

TEST(TextData, MaskedHidesAsBert) {
  TempFolder folder;
  put_file(folder / "a.txt", long_text(400));
  const DataOptions o{.path = folder / "a.txt",
                      .objective = Objective::masked,
                      .vocab = {.size = 320},
                      .seed = 3,
                      .batch = 4,
                      .length = 64};
  const auto d = open_data(o);
  check_data(*d, o, 12);
  const Tokenizer& t = *d->tokenizer;
  const Ids all = t.encode(long_text(400));
  double places = 0, chosen = 0, masks = 0, stays = 0, others = 0;
  for (std::uint64_t n = 0; n < 200; ++n) {
    const TrainBatch b = d->batch(n);
    for (std::size_t s = 0; s < b.sequences.size(); ++s) {
      Ids in = row(b, s);
      const Ids out = targets_of(b, s);
      ASSERT_EQ(in.size(), 64u);
      EXPECT_EQ(in.front(), t.cls);
      EXPECT_EQ(in.back(), t.sep);
      EXPECT_EQ(out.front(), -1);
      EXPECT_EQ(out.back(), -1);
      for (std::size_t i = 1; i + 1 < in.size(); ++i) {
        ++places;
        if (out[i] < 0) {
          EXPECT_NE(in[i], t.mask);
          continue;
        }
        ++chosen;
        masks += in[i] == t.mask;
        stays += in[i] == out[i];
        if (in[i] != t.mask && in[i] != out[i]) {
          ++others;
          EXPECT_EQ(t.role(in[i]), Tokenizer::Role::normal);
        }
        in[i] = out[i];
      }
      EXPECT_NE(std::search(all.begin(), all.end(), in.begin() + 1, in.end() - 1), all.end());
    }
  }
  EXPECT_NEAR(chosen / places, 0.15, 0.01);
  EXPECT_NEAR(masks / chosen, 0.8, 0.02);
  EXPECT_NEAR(stays / chosen, 0.1, 0.02);
  EXPECT_NEAR(others / chosen, 0.1, 0.02);

  DataOptions tiny = o;  // one place is always chosen
  tiny.length = 4;
  tiny.mask_share = 1e-9;
  const TrainBatch b = open_data(tiny)->batch(7);
  EXPECT_EQ(b.counted, 4);
  DataOptions none = o;
  none.length = 2;
  EXPECT_TRUE(holds(error_of([&] { open_data(none); }), "leaves no place"));
}

TEST(Data, GzippedAndBroken) {
  TempFolder folder;
  const std::string text = long_text(60), packed = folder / "a.txt.gz";
  gzFile out = gzopen(packed.c_str(), "wb");
  ASSERT_TRUE(out);
  ASSERT_EQ(gzwrite(out, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(out);
  put_file(folder / "a.txt", "\xEF\xBB\xBF" + text);  // a byte order mark says nothing
  DataOptions o{.path = packed, .vocab = {.kind = VocabKind::characters}, .batch = 2, .length = 30};
  const auto zipped = open_data(o);
  o.path = folder / "a.txt";
  const auto plain = open_data(o);
  for (std::uint64_t n = 0; n < 8; ++n) EXPECT_TRUE(same(zipped->batch(n), plain->batch(n)));

  put_file(folder / "latin", "gr\xFC\xDF dich\n");
  o.path = folder / "latin";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "is no UTF-8 text; convert it"));
  o.vocab.kind = VocabKind::bytes;
  EXPECT_EQ(open_data(o)->vocab, 257);
  put_file(folder / "empty", "");
  o.path = folder / "empty";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "holds no text"));
  put_file(folder / "short", "x");
  o.path = folder / "short";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "too few"));
  o.path = folder / "nowhere";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "no such file"));
  o.path = "";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "nothing to learn from"));
  o.path = "copy";
  o.batch = 0;
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "a batch of 0"));
  o.batch = 1;
  o.share = 1;
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "between 0 and 1"));
  // Characters that only the held-out part has are in the vocabulary; with `unk` they are not.
  put_file(folder / "late", "aaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbz!");
  DataOptions late{
      .path = folder / "late", .vocab = {.kind = VocabKind::characters}, .batch = 2, .length = 8};
  EXPECT_EQ(open_data(late)->vocab, 4);
  late.vocab.unk = "<unk>";
  EXPECT_EQ(open_data(late)->vocab, 3);
}

TEST(Data, ATextInPartsIsTheWholeText) {
  std::string text;
  while (text.size() < (std::size_t{1} << 20) + 1000) text += long_text(200);
  for (const VocabKind kind : {VocabKind::bpe, VocabKind::characters}) {
    const std::string_view view = text;
    const TokenizerFiles files = train_vocabulary({&view, 1}, {.kind = kind, .size = 290});
    const auto t = tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json, "test");
    EXPECT_EQ(data::encode_long(*t, text), t->encode(text));
  }
}

TEST(Data, TinyShakespeareAsNanoGptHasIt) {
  const auto file = test::data_file("text/tinyshakespeare.txt");
  if (!file) GTEST_SKIP() << test::no_data("text/tinyshakespeare.txt");
  const auto d = open_data(
      {.path = file->string(), .vocab = {.kind = VocabKind::characters}, .batch = 12, .length = 64});
  EXPECT_EQ(d->vocab, 65);
  EXPECT_EQ(d->about(), "1,003,854 tokens, 111,540 held out");
  EXPECT_EQ(d->held_out(), 146);
}

TEST(Data, Multi30k) {
  const auto de = test::data_file("multi30k/val.de.gz"), en = test::data_file("multi30k/val.en.gz");
  if (!de || !en) GTEST_SKIP() << test::no_data("multi30k/val.de.gz");
  const DataOptions o{.path = de->string() + "," + en->string(),
                      .objective = Objective::translation,
                      .vocab = {.size = 2000},
                      .length = 64,
                      .batch_tokens = 1000};
  const auto d = open_data(o);
  check_data(*d, o, 20);
  EXPECT_TRUE(holds(d->about(), "102 held out")) << d->about();
}

}  // namespace
}  // namespace rapt
