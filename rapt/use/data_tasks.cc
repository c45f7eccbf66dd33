// SPDX-License-Identifier: Apache-2.0
// Tasks made in code, without end: a question, and the answer that a model is to find. Letters, so that
// people can ask a trained model.
//   copy   qwerty → qwerty
//   sort   qwerty → eqrtwy
//   date   7th of March 1999 → 1999-03-07
// For an encoder-decoder the question is the source; for one stack the sequence is question, '=', answer,
// and only the answer counts.
#include <algorithm>
#include <array>

#include "rapt/base/text.h"
#include "rapt/use/data_parts.h"

namespace rapt::data {
namespace {

struct Example {
  std::string question, answer;
};

class Dice {  // numbers of one example, one after the other
 public:
  Dice(std::uint64_t key, std::uint64_t example, std::uint64_t attempt)
      : key_(mix_key(key, attempt)), example_(example) {}
  std::uint32_t below(std::uint32_t n) { return random_below(n, key_, example_, next_++); }

 private:
  std::uint64_t key_, example_, next_ = 0;
};

Example letters(Dice& dice, Dim longest, bool sorted) {
  Example e;
  const Dim n = 1 + dice.below(static_cast<std::uint32_t>(longest));
  for (Dim i = 0; i < n; ++i) e.question += static_cast<char>('a' + dice.below(26));
  e.answer = e.question;
  if (sorted) std::sort(e.answer.begin(), e.answer.end());
  return e;
}

constexpr std::array<const char*, 12> kMonths = {"January",   "February", "March",    "April",
                                                 "May",       "June",     "July",     "August",
                                                 "September", "October",  "November", "December"};
constexpr std::array<const char*, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                              "Thursday", "Friday", "Saturday"};
constexpr int kStyles = 12;

int weekday(int y, int m, int d) {  // 0: Sunday; the Gregorian calendar, months counted from March
  if (m < 3) --y, m += 12;
  return (d + (13 * (m + 1)) / 5 + y + y / 4 - y / 100 + y / 400 + 6) % 7;
}

std::string two(int n) { return (n < 10 ? "0" : "") + std::to_string(n); }

// 1950 … 2049, so that two digits of a year say which. Day before month with dots, month before day with
// slashes: a sign says which.
Example date(Dice& dice) {
  const int y = 1950 + static_cast<int>(dice.below(100)), m = 1 + static_cast<int>(dice.below(12));
  const bool leap = y % 4 == 0;  // 2000 was one too
  const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const int d = 1 + static_cast<int>(dice.below(static_cast<std::uint32_t>(days[m - 1])));
  const std::string month = kMonths[static_cast<std::size_t>(m - 1)], shorter = month.substr(0, 3),
                    day = kDays[static_cast<std::size_t>(weekday(y, m, d))];
  const std::string year = std::to_string(y), number = std::to_string(d);
  const std::string ordinal = number + (d / 10 == 1   ? "th"
                                        : d % 10 == 1 ? "st"
                                        : d % 10 == 2 ? "nd"
                                        : d % 10 == 3 ? "rd"
                                                      : "th");
  Example e;
  switch (dice.below(kStyles)) {
    case 0: e.question = number + " " + month + " " + year; break;
    case 1: e.question = month + " " + number + ", " + year; break;
    case 2: e.question = day + ", " + month + " " + number + ", " + year; break;
    case 3: e.question = day + " " + number + " " + shorter + " " + year; break;
    case 4: e.question = ordinal + " of " + month + " " + year; break;
    case 5: e.question = month + " the " + ordinal + ", " + year; break;
    case 6: e.question = number + "-" + shorter + "-" + two(y % 100); break;
    case 7: e.question = shorter + " " + number + " '" + two(y % 100); break;
    case 8: e.question = number + "." + std::to_string(m) + "." + year; break;
    case 9: e.question = two(d) + "." + two(m) + "." + two(y % 100); break;
    case 10: e.question = std::to_string(m) + "/" + number + "/" + year; break;
    default: e.question = year + " " + shorter + " " + number; break;
  }
  if (dice.below(4) == 0) {
    for (char& c : e.question) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  e.answer = year + "-" + two(m) + "-" + two(d);
  return e;
}
constexpr Dim kLongestDate = 30;  // Wednesday, September 30, 2020: 29

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t h = 0xCBF29CE484222325u;
  for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 0x100000001B3u;
  return h ^ h >> 32;
}

class TaskData final : public TrainData {
 public:
  explicit TaskData(const DataOptions& o) : o_(o) {
    o_.progress = nullptr;
    both_ = o.encoder_decoder || o.objective == Objective::translation;
    if (o.objective == Objective::masked || o.objective == Objective::classification)
      fail_usage("data: the task ", o.path, " is learned with the objective causal or translation, not ",
                 name_of(o.objective));
    date_ = o.path == "date";
    // source: question, stop; target: start, answer. One stack: question, '=', answer (its stop is a
    // target only).
    const Dim around = both_ ? 1 : 1 + (date_ ? 10 : 0);
    longest_ = date_ ? kLongestDate : both_ ? o.length - around : (o.length - around) / 2;
    if (longest_ < 1 || (date_ && longest_ + around > o.length))
      fail_usage("data: the task ", o.path, " needs a length of at least ", date_ ? kLongestDate + around : 3,
                 ", it is ", o.length);
    VocabOptions v{
        .kind = VocabKind::characters, .pad = "<pad>", .unk = "<unk>", .eos = "</s>", .add_eos = both_};
    const std::string alphabet = std::string("abcdefghijklmnopqrstuvwxyz") +
                                 (date_ ? "ADFJMNOSTW0123456789 ,.-/'" : "") + (both_ ? "" : "=");
    const std::string_view text = alphabet;
    tokenizer_files = train_vocabulary({&text, 1}, v);
    tokenizer = tokenizer_from_json(tokenizer_files->tokenizer_json, tokenizer_files->tokenizer_config_json,
                                    "vocabulary");
    objective = both_ ? Objective::translation : Objective::causal;
    vocab = tokenizer->size();
    pad = tokenizer->pad;
    stop = tokenizer->eos;
    if (both_) start = start_of(*tokenizer);
    identity = hash_of(o.path);
    for (const std::uint64_t p : {o.seed, static_cast<std::uint64_t>(o.batch),
                                  static_cast<std::uint64_t>(o.length), std::uint64_t{both_}}) {
      identity = mix_key(identity, p);
    }
  }

  TrainBatch batch(std::uint64_t number) const override {
    return make(number, number, key_of(o_.seed, kTask), false, o_.batch);
  }

  Dim held_out() const override { return o_.share > 0 ? (kHeldOut + o_.batch - 1) / o_.batch : 0; }

  TrainBatch held_out_batch(Dim number) const override {
    if (number < 0 || number >= held_out())
      fail("data: there is no held-out batch ", number, "; there are ", held_out());
    const auto n = static_cast<std::uint64_t>(number);
    return make(n, kHeldOutName >> 20 | n, key_of(0, kHeldTask), true,
                std::min(o_.batch, kHeldOut - number * o_.batch));
  }

  double epochs(std::uint64_t) const override { return 0; }

  std::string about() const override {
    return concat("the task ", o_.path, ", made in code without end, ",
                  held_out() > 0 ? with_commas(kHeldOut) : "0", " examples held out");
  }

 private:
  static constexpr Dim kHeldOut = 1024;

  // One of 16 examples, by its question (dates: by the day), is never learned from.
  Example example(std::uint64_t key, std::uint64_t number, bool held) const {
    for (std::uint64_t attempt = 0;; ++attempt) {
      Dice dice(key, number, attempt);
      Example e = date_ ? date(dice) : letters(dice, longest_, o_.path == "sort");
      if ((hash_of(date_ ? e.answer : e.question) % 16 == 0) == held || attempt == 10000) return e;
    }
  }

  TrainBatch make(std::uint64_t number, std::uint64_t name, std::uint64_t key, bool held, Dim count) const {
    TrainBatch out;
    for (Dim j = 0; j < count; ++j) {
      const std::uint64_t s = number * static_cast<std::uint64_t>(o_.batch) + static_cast<std::uint64_t>(j);
      const Example e = example(key, s, held);
      const std::vector<std::int32_t> question = tokenizer->encode(e.question + (both_ ? "" : "=")),
                                      answer = tokenizer->encode(e.answer);
      const std::uint64_t id = sequence_name(name, out.sequences.size());
      const auto first = static_cast<Dim>(out.tokens.size());
      if (both_) {
        out.source_sequences.push_back({.first = static_cast<Dim>(out.source.size()),
                                        .count = static_cast<Dim>(question.size()) + 1,
                                        .id = id});
        out.source.insert(out.source.end(), question.begin(), question.end());
        out.source.push_back(stop);
        out.tokens.push_back(start);
      } else {
        out.tokens.insert(out.tokens.end(), question.begin(), question.end());
        out.targets.resize(out.tokens.size() - 1, -1);  // the sign '=' asks for the answer
      }
      out.tokens.insert(out.tokens.end(), answer.begin(), answer.end());
      out.targets.insert(out.targets.end(), answer.begin(), answer.end());
      out.targets.push_back(stop);
      out.sequences.push_back(
          {.first = first, .count = static_cast<Dim>(out.tokens.size()) - first, .id = id});
      out.counted += static_cast<Dim>(answer.size()) + 1;
    }
    return out;
  }

  DataOptions o_;
  bool both_ = false, date_ = false;
  Dim longest_ = 0;
};

}  // namespace

bool is_task(const std::string& path) { return path == "copy" || path == "sort" || path == "date"; }

std::unique_ptr<TrainData> task_data(const DataOptions& options) {
  return std::make_unique<TaskData>(options);
}

}  // namespace rapt::data
