// SPDX-License-Identifier: Apache-2.0
// Vocabularies worked out by hand, and merges against those of Hugging Face's BpeTrainer (golden file).
#include "rapt/text/tokenizer/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "rapt/base/rng.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/train_bpe.h"
#include "tests/data.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;

std::shared_ptr<const Tokenizer> make(std::string_view text, const VocabOptions& options) {
  const TokenizerFiles files = train_vocabulary({&text, 1}, options);
  return tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json, "test");
}

using Ids = std::vector<std::int32_t>;

TEST(TrainVocabulary, CharactersInCodePointOrder) {
  const auto t = make("hello wörld\n", {.kind = VocabKind::characters});
  EXPECT_EQ(t->size(), 10);
  const char* const expected[] = {"\n", " ", "d", "e", "h", "l", "o", "r", "w", "ö"};
  for (std::int32_t i = 0; i < 10; ++i) EXPECT_EQ(t->text_of(i), expected[i]);
  EXPECT_EQ(t->encode("held"), (Ids{4, 3, 5, 2}));
  EXPECT_EQ(t->decode(t->encode("wölle old\n")), "wölle old\n");
  const std::string unknown = error_of([&] { t->encode("help"); });
  EXPECT_TRUE(holds(unknown, "the character 'p' (byte 3 of the text) is not in the vocabulary of characters"))
      << unknown;
}

TEST(TrainVocabulary, CharactersThatMeanSomethingElsewhere) {
  const std::string text = std::string(
                               "a\xE2\x96\x81"
                               "b \t\"\\\x01 <s>",
                               15) +
                           std::string(1, '\0') + "\xF0\x9F\x98\x80";
  const auto t = make(text, {.kind = VocabKind::characters, .pad = "<pad>", .unk = "<unk>"});
  EXPECT_EQ(t->decode(t->encode(text)), text);  // U+2581 stays itself
  EXPECT_EQ(t->decode(t->encode("  aa  ")), "  aa  ");
  EXPECT_EQ(t->pad, 0);
  EXPECT_EQ(t->unk, 1);
  EXPECT_EQ(t->encode("zaz"), (Ids{1, t->encode("a")[0], 1}));
  EXPECT_TRUE(holds(error_of([] { make("broken \xFF", {.kind = VocabKind::characters}); }),
                    "byte 7 of a text is not UTF-8"));
  EXPECT_TRUE(holds(error_of([] { make("", {.kind = VocabKind::characters}); }), "no text"));
}

TEST(TrainVocabulary, BytesSpellEverything) {
  const auto t = make("", {.kind = VocabKind::bytes});
  EXPECT_EQ(t->size(), 256);
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const Ids ids = t->encode(all);
  EXPECT_EQ(ids.size(), 256u);
  EXPECT_EQ(t->decode(ids), all);
  EXPECT_EQ(t->encode("!"), Ids{0});  // '!' is the first printable character
  const auto with = make("", {.kind = VocabKind::bytes, .bos = "<|endoftext|>", .eos = "<|endoftext|>"});
  EXPECT_EQ(with->size(), 257);
  EXPECT_EQ(with->eos, 0);
  EXPECT_EQ(with->bos, 0);
  EXPECT_EQ(with->frame({5}), Ids{5});
}

TEST(TrainVocabulary, GgufHoldsBytesAndPairsOnly) {
  EXPECT_TRUE(holds(error_of([] { tokenizer_metadata(*make("abc", {.kind = VocabKind::characters})); }),
                    "no place for a vocabulary of characters"));
  for (const VocabKind kind : {VocabKind::bytes, VocabKind::bpe}) {
    const auto t = make("some words, some more words", {.kind = kind, .size = 280, .eos = "<|endoftext|>"});
    for (const auto& [key, value] : tokenizer_metadata(*t)) {
      if (key != "tokenizer.ggml.pre") continue;
      EXPECT_EQ(std::get<std::string>(value.value), "gpt-2");
    }
  }
}

TEST(TrainVocabulary, FramesAsTheObjectiveExpects) {
  const VocabOptions bert{
      .size = 300, .pad = "[PAD]", .unk = "[UNK]", .cls = "[CLS]", .sep = "[SEP]", .mask = "[MASK]"};
  const auto b = make("some words, some more words", bert);
  EXPECT_EQ(b->frame({9}), (Ids{2, 9, 3}));
  EXPECT_EQ(b->mask, 4);
  EXPECT_EQ(b->role(4), Tokenizer::Role::control);
  EXPECT_EQ(b->decode(b->encode("[MASK]")), "[MASK]");  // in a text it is text
  EXPECT_EQ(b->encode("[MASK]", true), Ids{4});
  const auto m =
      make("some words, some more words", {.size = 300, .pad = "<pad>", .eos = "</s>", .add_eos = true});
  EXPECT_EQ(m->frame({9}), (Ids{9, 1}));
  EXPECT_TRUE(holds(error_of([] { make("x", {.size = 300, .add_eos = true}); }), "eos, which is not given"));
  EXPECT_TRUE(
      holds(error_of([] { make("x", {.kind = VocabKind::characters, .pad = "x"}); }), "one character"));
  EXPECT_TRUE(holds(error_of([] { make("x", {.size = 200}); }), "between 256"));
}

TEST(TrainVocabulary, BpeByHand) {
  // ab 4 times; then (ab, ab) would have 1, below 2.
  const auto t = make("abab ab ab", {.size = 1000});
  // pieces: "abab", " ab", " ab": (a,b) 4, (b,a) 1, (space,a) 2 → ab; then (space,ab) 2, (ab,ab) 1.
  EXPECT_EQ(t->size(), 258);
  EXPECT_EQ(t->text_of(256), "ab");
  EXPECT_EQ(t->text_of(257),
            "\xC4\xA0"
            "ab");
  EXPECT_EQ(t->encode("abab ab"), (Ids{256, 256, 257}));
  EXPECT_EQ(make("abab ab ab", {.size = 257})->size(), 257);
  EXPECT_EQ(make("abab ab ab", {.size = 1000, .least = 1})->size(), 259);
  EXPECT_EQ(make("abab ab ab", {.size = 1000, .least = 5})->size(), 256);
  const auto lower = make("AB ab Ab aB", {.size = 1000, .lower = true});
  EXPECT_EQ(lower->text_of(256), "ab");
  EXPECT_EQ(lower->decode(lower->encode("AbAB")), "abab");
}

TEST(TrainVocabulary, EqualsBpeTrainer) {
  const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/tokenizers/bpe.json";
  const Json golden = parse_json(read_text_file(path), path);
  std::vector<std::string_view> texts;
  for (const Json& t : golden.find("texts")->array()) texts.push_back(t.string());
  ASSERT_GE(golden.find("cases")->array().size(), 5u);
  for (const Json& c : golden.find("cases")->array()) {
    VocabOptions o{.size = c.find("size")->integer(),
                   .least = c.find("least")->integer(),
                   .lower = c.find("lower")->boolean()};
    std::string* const roles[] = {&o.pad, &o.unk, &o.cls, &o.sep, &o.mask};
    const Json::Array& special = c.find("special")->array();
    for (std::size_t i = 0; i < special.size(); ++i) *roles[i] = special[i].string();
    const TokenizerFiles files = train_vocabulary(texts, o);
    const Json ours = parse_json(files.tokenizer_json);
    const Json* model = ours.find("model");
    const Json::Object& vocab = model->find("vocab")->object();
    EXPECT_EQ(static_cast<Dim>(vocab.size()), c.find("tokens")->integer());
    EXPECT_EQ(vocab.back().key, c.find("last")->string());
    std::map<std::string, Dim> ids;
    for (const auto& [text, id] : vocab) ids[text] = id.integer();
    for (std::size_t i = 0; i < special.size(); ++i)
      EXPECT_EQ(ids.at(special[i].string()), static_cast<Dim>(i));
    const Json::Array &merges = model->find("merges")->array(), &made = c.find("made")->array();
    ASSERT_EQ(merges.size(), made.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::string &a = merges[i].array()[0].string(), &b = merges[i].array()[1].string();
      const Json::Array& m = made[i].array();
      ASSERT_EQ(ids.at(a), m[0].integer()) << "merge " << i << " of size " << o.size;
      ASSERT_EQ(ids.at(b), m[1].integer()) << "merge " << i << " of size " << o.size;
      ASSERT_EQ(ids.at(a + b), m[2].integer()) << "merge " << i << " of size " << o.size;
    }
    const auto t = tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json, "test");
    if (o.lower) continue;
    for (const std::string_view text : texts) EXPECT_EQ(t->decode(t->encode(text)), text);
  }
}

TEST(TrainVocabulary, PartsOfATextHaveItsPieces) {
  // Every place where a long text would be cut gives the pieces of the whole.
  const std::string text =
      "one two\nthree\n\nfour \nfive\n six,\nseven's\n8\t\nnine\xC2\xA0\nten\n\xC3\xBC\neleven\n";
  const auto words = [](std::initializer_list<std::string_view> parts) {
    WordCounts counts;
    for (const std::string_view p : parts) counts.add(p);
    auto out = counts.words();
    std::sort(out.begin(), out.end());
    return out;
  };
  const auto whole = words({text});
  int cuts = 0;
  for (std::size_t most = 1; most < text.size(); ++most) {
    const std::size_t at = cut_for_gpt2(text, most);
    ASSERT_LE(at, text.size());
    EXPECT_EQ(words({std::string_view(text).substr(0, at), std::string_view(text).substr(at)}), whole) << at;
    cuts += at < text.size();
  }
  EXPECT_GT(cuts, 20);
}

TEST(TrainVocabulary, ProgressEndsAtTheEnd) {
  std::vector<std::pair<Dim, Dim>> seen;
  VocabOptions o{.size = 400};
  o.progress = [&](Dim done, Dim of) { seen.emplace_back(done, of); };
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word" + std::to_string(i * i % 977) + " ";
  make(text, o);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), (std::pair<Dim, Dim>(400, 400)));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

// Against std::map, while it grows.
TEST(TokenIds, FindsWhatWentInAndNothingElse) {
  std::deque<std::string> texts;  // views stay valid
  std::map<std::string_view, std::int32_t> want;
  TokenIds ids;
  EXPECT_EQ(ids.find("a"), ids.end());
  // Up to 40 bytes of two letters: prefixes of each other, and doubles.
  for (std::int32_t i = 0; i < 3000; ++i) {
    const std::uint64_t bits = mix_key(1, static_cast<std::uint64_t>(i));
    std::string text;
    for (std::uint64_t n = 0; n < bits % 41; ++n) text += bits >> (n % 7 + 8) & 1 ? 'a' : '\0';
    texts.push_back(std::move(text));
    const bool fresh = want.emplace(texts.back(), i).second;
    const auto [entry, is_new] = ids.emplace(texts.back(), i);
    ASSERT_EQ(is_new, fresh) << i;
    ASSERT_EQ(entry->second, want.at(texts.back())) << i;
    if (i % 3 == 0) {  // the last of equals
      want[texts.back()] = i;
      ids.insert_or_assign(texts.back(), i);
    }
  }
  for (const auto& [text, id] : want) {
    ASSERT_NE(ids.find(text), ids.end());
    EXPECT_EQ(ids.find(text)->first, text);
    EXPECT_EQ(ids.at(text), id);
    const std::string longer = std::string(text) + "b";
    EXPECT_EQ(ids.find(longer), ids.end());
  }
  EXPECT_THROW((void)ids.at("no such text"), Error);
}

}  // namespace
}  // namespace rapt
