// SPDX-License-Identifier: Apache-2.0
// Items of their own: pairs of lines (translation) and lines with a label (classification).
#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>

#include "rapt/base/text.h"
#include "rapt/use/data_parts.h"

namespace rapt::data {
namespace {

bool blank(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

// Two files with as many lines each.
struct ParallelTexts {
  std::string source, target;
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
};
void read_parallel(const std::string& path, const DataOptions& o, ParallelTexts& out, Dim& empty) {
  const std::vector<std::string> files = split_list(path, ',');
  if (files.size() != 2 || files[0].empty() || files[1].empty())
    fail_usage("data: '", path,
               "': translation reads two files of parallel lines, SOURCE,TARGET (train.de,train.en)");
  out.source = text_file(files[0], o);
  out.target = text_file(files[1], o);
  const auto a = lines_of(out.source), b = lines_of(out.target);
  if (a.size() != b.size())
    fail("data: ", files[0], " has ", with_commas(static_cast<Dim>(a.size())), " lines, ", files[1], " has ",
         with_commas(static_cast<Dim>(b.size())),
         "; line i of the one must be the translation of line i of the other");
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (blank(a[i]) || blank(b[i])) ++empty;
    else out.pairs.emplace_back(a[i], b[i]);
  }
  if (out.pairs.empty()) fail("data: ", path, ": holds no pair of lines");
}

Dim kept_share(std::size_t n, double share) {  // how many of n are learned from
  if (share == 0) return static_cast<Dim>(n);
  return std::max<Dim>(1, static_cast<Dim>(static_cast<double>(n) * (1 - share)));
}

// Which items of an epoch stand together: similar lengths, about as many tokens each; every item once.
struct Plan {
  std::vector<std::uint32_t> items, first;  // batch k holds items[first[k]] … items[first[k + 1] - 1]
};

class ItemsData final : public TrainData {
 public:
  ItemsData(Corpus corpus, const DataOptions& o) : corpus_(std::move(corpus)), o_(o) {
    o_.progress = nullptr;
    take_corpus(*this, corpus_, o_);
    pairs_ = corpus_.kind == Corpus::Kind::pairs;
    const Tokenizer& t = *tokenizer;
    before_ = t.before;
    after_ = t.after;
    if (pairs_) {
      if (stop < 0) fail(o.path, ": the vocabulary has no end-of-text token (eos), which translation needs");
      if (after_.empty() || after_.back() != stop) after_.push_back(stop);
    }
    room_ = o.length - static_cast<Dim>(before_.size() + after_.size());
    if (room_ < 1)
      fail_usage("data: a length of ", o.length, " leaves no place for text between the tokens around it");
    const Dim all = pairs_ ? corpus_.items() / 2 : corpus_.items();
    for (Dim i = 0; i < corpus_.split; ++i) {
      // A pair that is too long would end in the middle of a sentence: left out. A line still says
      // what it is: cut.
      if (pairs_ && too_long(i)) ++left_out_;
      else train_.push_back(static_cast<std::uint32_t>(i));
      if (!pairs_ && too_long(i)) ++cut_;
    }
    for (Dim i = corpus_.split; i < all; ++i) {
      held_.push_back(static_cast<std::uint32_t>(i));
      cut_ += too_long(i);
    }
    if (train_.empty())
      fail(o.path, ": nothing to learn from is left: ", with_commas(left_out_),
           " pairs are longer than length ", o.length);
    Dim longest = 0;
    for (const std::uint32_t i : train_) {
      tokens_ += cost(i);
      longest = std::max(longest, cost(i));
    }
    // So many batches that none is empty: each holds at least as many tokens as the longest item.
    if (o.batch_tokens > 0)
      batches_ = std::clamp<Dim>((tokens_ + o.batch_tokens / 2) / o.batch_tokens, 1, tokens_ / longest);
    held_first_ = {0};
    for (std::size_t i = 0, begin = 0, sum = 0; i < held_.size(); ++i) {
      sum += static_cast<std::size_t>(cost(held_[i]));
      const bool full = o.batch_tokens > 0 ? sum >= static_cast<std::size_t>(o.batch_tokens)
                                           : i + 1 - begin == static_cast<std::size_t>(o.batch);
      if (!full && i + 1 < held_.size()) continue;
      held_first_.push_back(i + 1);
      begin = i + 1;
      sum = 0;
    }
  }

  TrainBatch batch(std::uint64_t number) const override {
    TrainBatch out;
    if (batches_ > 0) {
      const auto n = static_cast<std::uint64_t>(batches_);
      const std::shared_ptr<const Plan> plan = plan_of(number / n);
      const std::uint64_t k = Permutation(n, mix_key(key_of(o_.seed, kOrder), number / n))(number % n);
      for (std::uint32_t i = plan->first[k]; i < plan->first[k + 1]; ++i) add(out, plan->items[i], number);
      return out;
    }
    const auto n = static_cast<std::uint64_t>(train_.size());
    for (Dim j = 0; j < o_.batch; ++j) {
      const std::uint64_t s = number * static_cast<std::uint64_t>(o_.batch) + static_cast<std::uint64_t>(j);
      add(out, train_[Permutation(n, mix_key(key_of(o_.seed, kOrder), s / n))(s % n)], number);
    }
    return out;
  }

  Dim held_out() const override { return static_cast<Dim>(held_first_.size()) - 1; }

  TrainBatch held_out_batch(Dim number) const override {
    if (number < 0 || number >= held_out())
      fail("data: there is no held-out batch ", number, "; there are ", held_out());
    TrainBatch out;
    const auto n = static_cast<std::size_t>(number);
    for (std::size_t i = held_first_[n]; i < held_first_[n + 1]; ++i)
      add(out, held_[i], kHeldOutName >> 20 | static_cast<std::uint64_t>(number));
    return out;
  }

  double epochs(std::uint64_t batches) const override {
    if (batches_ > 0) return static_cast<double>(batches) / static_cast<double>(batches_);
    return static_cast<double>(batches) * static_cast<double>(o_.batch) / static_cast<double>(train_.size());
  }

  std::string about() const override {
    const char* what = pairs_ ? " pairs" : " lines";
    std::string out = concat(with_commas(static_cast<Dim>(train_.size())), what, " with ",
                             with_commas(tokens_), pairs_ ? " target tokens, " : " tokens, ",
                             with_commas(static_cast<Dim>(held_.size())), " held out");
    if (left_out_ > 0) out += concat("; left out, longer than ", o_.length, ": ", with_commas(left_out_));
    if (cut_ > 0) out += concat("; cut to ", o_.length, ": ", with_commas(cut_));
    if (corpus_.empty > 0) out += concat("; empty: ", with_commas(corpus_.empty));
    return out;
  }

 private:
  Dim source_length(Dim item) const { return corpus_.length(pairs_ ? 2 * item : item); }
  Dim target_length(Dim item) const { return corpus_.length(2 * item + 1); }
  bool too_long(Dim item) const {
    return source_length(item) > room_ || (pairs_ && target_length(item) + 1 > o_.length);
  }
  // Tokens that a batch counts: targets with their stop, or the tokens of a line.
  Dim cost(Dim item) const {
    return pairs_ ? std::min(target_length(item) + 1, o_.length)
                  : std::min(source_length(item), room_) + o_.length - room_;
  }

  std::shared_ptr<const Plan> plan_of(std::uint64_t epoch) const {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [e, plan] : plans_) {
        if (plan && e == epoch) return plan;
      }
    }
    auto plan = std::make_shared<Plan>();
    const std::uint64_t key = mix_key(key_of(o_.seed, kJitter), epoch);
    std::vector<std::pair<double, std::uint32_t>> order;
    order.reserve(train_.size());
    for (const std::uint32_t i : train_) {
      const double length = static_cast<double>(source_length(i) + (pairs_ ? target_length(i) : 0) + 1);
      // Neighbours change from epoch to epoch.
      order.emplace_back(length * (0.95 + 0.1 * (philox(key, i)[0] * 0x1p-32)), i);
    }
    std::sort(order.begin(), order.end());
    Dim before = 0;
    for (const auto& [length, item] : order) {
      const auto k = static_cast<std::size_t>(static_cast<double>(before) * static_cast<double>(batches_) /
                                              static_cast<double>(tokens_));
      while (plan->first.size() <= std::min(k, static_cast<std::size_t>(batches_) - 1))
        plan->first.push_back(static_cast<std::uint32_t>(plan->items.size()));
      plan->items.push_back(item);
      before += cost(item);
    }
    while (plan->first.size() <= static_cast<std::size_t>(batches_))
      plan->first.push_back(static_cast<std::uint32_t>(plan->items.size()));
    const std::lock_guard lock(mutex_);
    plans_[epoch % plans_.size()] = {epoch, plan};
    return plan;
  }

  void add(TrainBatch& out, Dim item, std::uint64_t batch) const {
    std::vector<std::int32_t>& into = pairs_ ? out.source : out.tokens;
    std::vector<Sequence>& sequences = pairs_ ? out.source_sequences : out.sequences;
    const std::uint64_t name = sequence_name(batch, out.sequences.size());
    const auto begin = static_cast<Dim>(into.size());
    const Dim at = corpus_.start(pairs_ ? 2 * item : item), n = std::min(source_length(item), room_);
    into.insert(into.end(), before_.begin(), before_.end());
    corpus_.ids.append_to(into, at, n);
    into.insert(into.end(), after_.begin(), after_.end());
    sequences.push_back({.first = begin, .count = static_cast<Dim>(into.size()) - begin, .id = name});
    if (!pairs_) {
      out.targets.push_back(corpus_.labels[static_cast<std::size_t>(item)]);
      ++out.counted;
      return;
    }
    // start a b c → a b c stop
    const Dim first = corpus_.start(2 * item + 1), whole = target_length(item),
              rows = std::min(whole + 1, o_.length);
    out.sequences.push_back({.first = static_cast<Dim>(out.tokens.size()), .count = rows, .id = name});
    out.tokens.push_back(start);
    corpus_.ids.append_to(out.tokens, first, rows - 1);
    corpus_.ids.append_to(out.targets, first, std::min(rows, whole));
    if (rows > whole) out.targets.push_back(stop);
    out.counted += rows;
  }

  Corpus corpus_;
  DataOptions o_;
  bool pairs_ = false;
  std::vector<std::int32_t> before_, after_;
  Dim room_ = 0;                      // tokens of a text between these
  std::vector<std::uint32_t> train_, held_;
  std::vector<std::size_t> held_first_;
  Dim left_out_ = 0, cut_ = 0, tokens_ = 0, batches_ = 0;
  mutable std::mutex mutex_;
  // Recent epochs; a plan is a function of its epoch.
  mutable std::array<std::pair<std::uint64_t, std::shared_ptr<const Plan>>, 4> plans_;
};

}  // namespace

Corpus read_pairs(const DataOptions& o) {
  Corpus corpus;
  corpus.kind = Corpus::Kind::pairs;
  ParallelTexts train, held;
  read_parallel(o.path, o, train, corpus.empty);
  if (!o.held_out.empty()) {
    read_parallel(o.held_out, o, held, corpus.empty);
  } else {
    const auto kept = kept_share(train.pairs.size(), o.share);
    held.pairs.assign(train.pairs.begin() + kept, train.pairs.end());
    train.pairs.resize(static_cast<std::size_t>(kept));
  }
  const auto both = [](const ParallelTexts& texts) {
    std::vector<std::string_view> out;
    for (const auto& [a, b] : texts.pairs) out.push_back(a), out.push_back(b);
    return out;
  };
  const std::vector<std::string_view> train_texts = both(train), held_texts = both(held);
  choose_tokenizer(corpus, o, train_texts, held_texts);
  std::vector<std::int32_t> ids;
  std::size_t done = 0;
  for (const auto* texts : {&train_texts, &held_texts}) {
    for (const std::string_view text : *texts) {
      corpus.starts.push_back(ids.size());
      const std::vector<std::int32_t> own = corpus.tokenizer->encode(text);
      ids.insert(ids.end(), own.begin(), own.end());
      if (o.progress && ++done % 1024 == 0)
        o.progress(0.5 + 0.5 * static_cast<double>(done) /
                             static_cast<double>(train_texts.size() + held_texts.size()));
    }
  }
  corpus.starts.push_back(ids.size());
  corpus.split = static_cast<Dim>(train.pairs.size());
  corpus.ids = Ids(std::move(ids));
  return corpus;
}

Corpus read_lines(const DataOptions& o) {
  Corpus corpus;
  corpus.kind = Corpus::Kind::lines;
  struct Line {
    std::string_view text;
    std::int32_t label;
  };
  std::vector<std::unique_ptr<std::string>> files;
  const auto read = [&](const std::string& list, bool first) {
    std::vector<std::vector<Line>> out;  // by file
    for (const std::string& entry : split_list(list, ',')) {
      const std::size_t equal = entry.find('=');
      if (equal == std::string::npos || equal == 0 || equal + 1 == entry.size())
        fail_usage("data: '", entry, "' of '", list,
                   "': classification reads files of lines with their label, LABEL=FILE,LABEL=FILE "
                   "(de=train.de,en=train.en)");
      const std::string label = entry.substr(0, equal);
      auto known = std::find(corpus.class_names.begin(), corpus.class_names.end(), label);
      if (known == corpus.class_names.end()) {
        if (!first)
          fail_usage("data: label '", label, "' is held out, but nothing is learned about it; ",
                     name_hint(label, corpus.class_names));
        known = corpus.class_names.insert(known, label);
      }
      files.push_back(std::make_unique<std::string>(text_file(entry.substr(equal + 1), o)));
      out.emplace_back();
      for (const std::string_view line : lines_of(*files.back())) {
        if (blank(line)) ++corpus.empty;
        else out.back().push_back({line, static_cast<std::int32_t>(known - corpus.class_names.begin())});
      }
      if (out.back().empty()) fail("data: ", entry.substr(equal + 1), ": holds no lines");
    }
    return out;
  };
  std::vector<Line> train, held;
  const auto parts = read(o.path, true);
  if (corpus.class_names.size() < 2)
    fail_usage("data: '", o.path, "' names one label; classification tells at least two apart");
  for (const std::vector<Line>& lines : parts) {
    const auto kept = o.held_out.empty() ? kept_share(lines.size(), o.share) : static_cast<Dim>(lines.size());
    train.insert(train.end(), lines.begin(), lines.begin() + kept);
    held.insert(held.end(), lines.begin() + kept, lines.end());
  }
  if (!o.held_out.empty()) {
    for (const std::vector<Line>& lines : read(o.held_out, false))
      held.insert(held.end(), lines.begin(), lines.end());
  }
  // Labels mixed, so that the first batches of the held-out part already say something about all of it.
  std::vector<Line> mixed;
  const Permutation order(std::max<std::size_t>(held.size(), 1), key_of(0, kOrder));
  for (std::size_t i = 0; i < held.size(); ++i) mixed.push_back(held[order(i)]);

  std::vector<std::string_view> train_texts, held_texts;
  for (const Line& l : train) train_texts.push_back(l.text);
  for (const Line& l : mixed) held_texts.push_back(l.text);
  choose_tokenizer(corpus, o, train_texts, held_texts);
  std::vector<std::int32_t> ids;
  for (const auto* part : {&train, &mixed}) {
    for (const Line& l : *part) {
      corpus.starts.push_back(ids.size());
      const std::vector<std::int32_t> own = corpus.tokenizer->encode(l.text);
      ids.insert(ids.end(), own.begin(), own.end());
      corpus.labels.push_back(l.label);
      if (o.progress && corpus.labels.size() % 1024 == 0)
        o.progress(0.5 + 0.5 * static_cast<double>(corpus.labels.size()) /
                             static_cast<double>(train.size() + mixed.size()));
    }
  }
  corpus.starts.push_back(ids.size());
  corpus.split = static_cast<Dim>(train.size());
  corpus.ids = Ids(std::move(ids));
  return corpus;
}

std::unique_ptr<TrainData> items_data(Corpus corpus, const DataOptions& options) {
  return std::make_unique<ItemsData>(std::move(corpus), options);
}

}  // namespace rapt::data
