// SPDX-License-Identifier: Apache-2.0
// The experiments on a model of one's own: their list, their texts, and what they share.
#include "rapt/lab/real.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/subject.h"
#include "rapt/lab/lab_text.h"
#include "rapt/text/words.h"

namespace rapt {
namespace {

constexpr Dim kShort = 128, kRandom = 512;  // tokens of the short texts, and of the random one

constexpr std::string_view kChinese =
    "早上六点，老周推开店门，先把昨晚泡好的黄豆倒进石磨。水要一勺一勺地加，快了豆浆发涩，慢了又出不了沫。"
    "街上还没有人，只有对面修车铺的灯亮着。第一锅豆浆煮开的时候，天边刚刚发白，送报的小伙子照例要一碗热的，"
    "站在门口喝完，把钱压在碗底下就走。老周从来不数，他说二十年了，没有少过一分。后来城里修了新路，许多铺子"
    "都搬走了，他也想过关门，可是每到清早，总有几个老主顾绕远路来，坐在那张缺了角的桌子旁边，说说天气，说说"
    "孩子。他于是把门又开了下去。去年冬天下大雪，公交停了，他以为不会有人来，结果七点不到，门外已经站了五六个"
    "人，跺着脚，哈着白气，问他今天的豆浆还有没有。\n";
constexpr std::string_view kList =
    "Shopping:\n- bread, 2 loaves\n- milk, 1 litre\n- eggs, 12\n- apples, 6\n- rice, 1 kg\n- salt\n"
    "- candles, 4\n- soap\n\nTo do:\n1. water the plants\n2. call the plumber\n3. return the books\n"
    "4. mend the red bicycle\n5. write to Anna\n6. clean "
    "the windows\n7. buy stamps\n8. sharpen the knives\n\n"
    "Trains:\n06:12 platform 3\n07:45 platform 1\n08:30 platform 2\n09:05 platform 3\n11:20 platform 4\n";
constexpr std::string_view kCode =
    "def running_mean(values, width):\n    total = 0.0\n    out = []\n    for i, v in enumerate(values):\n"
    "        total += v\n        if i >= width:\n            total -= values[i - width]\n"
    "        out.append(total / min(i + 1, width))\n    return out\n\n\nclass Counter:\n"
    "    def __init__(self):\n        self.seen = {}\n\n    def add(self, word):\n"
    "        self.seen[word] = self.seen.get(word, 0) + 1\n\n    def most(self, n):\n"
    "        pairs = sorted(self.seen.items(), key=lambda p: -p[1])\n        return pairs[:n]\n\n\n"
    "if __name__ == \"__main__\":\n    print(running_mean([3, 1, 4, 1, 5, 9, 2, 6], 3))\n";

// A token that stands for text, of a vocabulary where some do not.
std::int32_t drawn_token(const Tokenizer* tokenizer, Dim vocab, std::uint64_t key, std::uint64_t at) {
  for (std::uint64_t again = 0;; ++again) {
    const auto id =
        static_cast<std::int32_t>(random_below(static_cast<std::uint32_t>(vocab), key, at, again));
    if (!tokenizer || again > 1000 ||
        (id < tokenizer->size() && tokenizer->role(id) == Tokenizer::Role::normal))
      return id;
  }
}

// Its file or folder; a training's folder holds its model in "model".
std::string name_for_people(const std::string& path) {
  const std::filesystem::path p(path);
  return (p.filename() == "model" ? p.parent_path() : p).filename().string();
}

// clang-format off
const RealExperiment kReal[] = {
    {"massive", {"real-massive", 0.5, nullptr}, real_massive},
    {"sink", {"real-sink", 0.5, nullptr}, real_sink},
    {"quant", {"real-quant", 1, nullptr}, real_quant},
    {"heads", {"real-heads", 0.5, nullptr}, real_heads},
    {"streaming", {"real-streaming", 1, nullptr}, real_streaming},
    {"gate", {"real-gate", 0.2, nullptr}, real_gate},
};
// clang-format on

}  // namespace

std::span<const RealExperiment> real_experiments() { return kReal; }

const RealExperiment* find_real(std::string_view asked) {
  for (const RealExperiment& e : kReal)
    if (e.asked == asked) return &e;
  return nullptr;
}

RealSubject real_subject(const Lab& lab, const RealOptions& o) {
  const std::string path = find_model(o.model);
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(path);
  if (!tokenizer) fail(path, ": no tokenizer, so a text cannot be read");
  RealSubject s{
      .name = name_for_people(path),
      .path = path,
      .open =
          [path, &lab](std::optional<DType> matrices) {
            return open_checkpoint(path,
                                   {.real = lab.device.real, .matrices = matrices, .device = &lab.device});
          },
      .before = tokenizer->before,
      .vocab = checkpoint_recipe(path).vocab,
      .word =
          [tokenizer](std::int32_t id) { return visible_text(token_texts(tokenizer.get(), {&id, 1})[0]); },
      .tokens = o.tokens,
      .streaming = o.streaming};
  s.prose = tokenizer->encode(o.text.empty() ? lab_texts()[0].text : std::string_view(o.text));
  if (static_cast<Dim>(s.prose.size()) < 16)
    fail("the text has ", s.prose.size(), " tokens; give a longer one");
  using Kind = RealText::Kind;
  const auto add = [&](const char* name, TokenIds ids, Kind kind = Kind::natural) {
    s.texts.push_back({say(concat("lab.real.text.", name)), kind, first_tokens(std::move(ids), kRandom)});
  };
  add(o.text.empty() ? "prose" : "given", s.prose);
  add("chinese", tokenizer->encode(kChinese));
  add("list", tokenizer->encode(kList));
  add("code", tokenizer->encode(kCode));
  TokenIds random;
  for (Dim i = 0; i < kRandom; ++i)
    random.push_back(
        drawn_token(tokenizer.get(), s.vocab, mix_key(lab.seed, 1), static_cast<std::uint64_t>(i)));
  add("random", std::move(random), Kind::random);
  const std::int32_t one = drawn_token(tokenizer.get(), s.vocab, mix_key(lab.seed, 2), 0);
  add("repeated", TokenIds(static_cast<std::size_t>(kShort), one), Kind::repeated);
  return s;
}

// ------------------------------------------------------------------------------------------- what they share
const Model& predictor(const Checkpoint& c, const RealSubject& s) {
  const Model& m = *c.model;
  if (!m.decoder || m.encoder || m.recipe.head.kind != HeadRecipe::Kind::vocab)
    fail(s.name,
         ": the laboratory asks models that predict the next token of a text, and this one does not; ",
         "`rapt inspect` looks into it");
  return m;
}

Checkpoint open_numbers(const RealSubject& s) {
  Checkpoint stored = s.open({});
  return predictor(stored, s).parameters() <= kMostNumbers ? s.open(DType::f32) : std::move(stored);
}

TokenIds first_tokens(TokenIds ids, Dim most) {
  if (static_cast<Dim>(ids.size()) > most) ids.resize(static_cast<std::size_t>(most));
  return ids;
}

TokenIds framed(const RealSubject& s, const TokenIds& ids) {
  TokenIds out = s.before;
  out.insert(out.end(), ids.begin(), ids.end());
  return out;
}

std::vector<TokenIds> framed_pieces(const RealSubject& s, const TokenIds& ids, Dim length, Dim count) {
  const Dim step = std::max<Dim>(2, length - static_cast<Dim>(s.before.size()));
  std::vector<TokenIds> out;
  for (Dim at = 0; at + step <= static_cast<Dim>(ids.size()) && static_cast<Dim>(out.size()) < count;
       at += step)
    out.push_back(framed(s, TokenIds(ids.begin() + at, ids.begin() + at + step)));
  if (out.empty()) out.push_back(framed(s, ids));  // shorter than one
  return out;
}

double mean_loss(const Lab& lab, const Model& model, std::span<const TokenIds> windows,
                 const WindowEdits& edits) {
  double sum = 0, count = 0;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    Taps taps;
    if (edits) edits(w, taps);
    for (const double x : token_losses(lab.device, model, taps, windows[w])) sum += x, count += 1;
  }
  return sum / count;
}

std::vector<double> first_weights(const Lab& lab, const Model& model, std::span<const TokenIds> windows,
                                  const WindowEdits& edits) {
  std::vector<double> sum(static_cast<std::size_t>(model.decoder->depth())), rows(sum);
  for (std::size_t w = 0; w < windows.size(); ++w) {
    Taps taps;
    if (edits) edits(w, taps);
    const AttentionRecord record(
        lab.device, model, windows[w], {},
        {.keep = [](const AttentionPlace& p) { return !p.cross; }, .chunk = Mask::kAll, .taps = &taps});
    for (const AttentionPlace& place : record.places())
      for (const HeadSums& h : record.sums(place)) {
        sum[static_cast<std::size_t>(place.layer)] += h.first;
        rows[static_cast<std::size_t>(place.layer)] += static_cast<double>(h.rows);
      }
  }
  // A layer without attention has no weights.
  for (std::size_t l = 0; l < sum.size(); ++l) sum[l] = rows[l] > 0 ? sum[l] / rows[l] : std::nan("");
  return sum;
}

Words model_words(const RealSubject& s, const Model& m) {
  return {say("lab.real.model", s.name, with_commas(m.parameters()), m.decoder->depth(), m.recipe.width,
              static_cast<Dim>(s.before.size()))};
}

Curve by_layer(Text name, const std::vector<double>& values, double first) {
  Curve c{.name = std::move(name), .y = values};
  for (std::size_t i = 0; i < values.size(); ++i) c.x.push_back(first + static_cast<double>(i));
  return c;
}

std::string thousands(double x) {
  const double size = std::abs(x);
  if (size >= 1e15) return shortest(x);
  if (size >= 1000) return with_commas(std::llround(x));
  return fixed(x, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

Text change_text(double after, double before) {
  if (after >= 10 * before) return say("lab.real.times", thousands(after / before));
  return Text(concat(after >= before ? "+" : "", fixed(100 * (after / before - 1), 2), "%"));
}

}  // namespace rapt
