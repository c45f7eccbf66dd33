// SPDX-License-Identifier: Apache-2.0
// Every batch is checked before anything computes with it.
#include "rapt/use/own_data.h"

#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/io/fs.h"
#include "rapt/load/checkpoint.h"
#include "rapt/report/document.h"
#include "rapt/text/tokenizer/write.h"
#include "rapt/use/data_parts.h"

namespace rapt {
namespace {

void check_ids(const std::vector<std::int32_t>& ids, Dim least, Dim below, const char* what,
               const std::string& where) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < least || ids[i] >= below)
      fail_usage(where, ": ", what, " ", ids[i], " at place ", i, " is outside 0 … ", below - 1,
                 least < 0 ? " (-1: does not count)" : "");
}

std::vector<Sequence> sequences_of(const std::vector<Dim>& lengths, std::size_t tokens, std::uint64_t number,
                                   const char* what, const std::string& where) {
  std::vector<Sequence> out;
  Dim first = 0;
  for (const Dim length : lengths) {
    if (length < 1) fail_usage(where, ": a ", what, " of ", length, " tokens; each has at least one");
    if (length > static_cast<Dim>(tokens) - first) {
      fail_usage(where, ": the lengths of ", what, "s are more than the ", tokens, " tokens there are");
    }
    out.push_back({.first = first, .count = length, .id = data::sequence_name(number, out.size())});
    first += length;
  }
  if (first != static_cast<Dim>(tokens))
    fail_usage(where, ": the lengths of ", what, "s sum up to ", first, ", the tokens are ", tokens);
  return out;
}

// What comes after each token of its sequence.
std::vector<std::int32_t> next_tokens(const OwnBatch& b, const std::vector<Sequence>& sequences) {
  std::vector<std::int32_t> targets(b.tokens.begin() + 1, b.tokens.end());
  targets.push_back(-1);
  for (const Sequence& s : sequences) targets[static_cast<std::size_t>(s.first + s.count - 1)] = -1;
  return targets;
}

class OwnData final : public TrainData {
 public:
  explicit OwnData(OwnDataOptions options) : o_(std::move(options)) {
    objective = o_.objective;
    vocab = o_.vocab;
    classes = o_.classes;
    class_names = o_.class_names;
    if (!o_.tokenizer.empty()) {
      tokenizer = open_tokenizer(find_model(o_.tokenizer));
      if (!tokenizer) fail(o_.tokenizer, ": has no tokenizer");
      if (tokenizer->size() > vocab)
        fail_usage("data: vocab is ", vocab, ", the tokenizer of ", o_.tokenizer, " has ", tokenizer->size(),
                   " tokens");
      tokenizer_files = rapt::tokenizer_files(*tokenizer);
      pad = tokenizer->pad;
      stop = tokenizer->eos;
      if (objective == Objective::translation) start = data::start_of(*tokenizer);
    }
    identity = mix_key(crc32(std::as_bytes(std::span(o_.identity))), o_.identity.size());
    for (const std::uint64_t part :
         {static_cast<std::uint64_t>(objective), static_cast<std::uint64_t>(vocab),
          static_cast<std::uint64_t>(classes), static_cast<std::uint64_t>(o_.held_out)})
      identity = mix_key(identity, part);
  }

  TrainBatch batch(std::uint64_t number) const override {
    return as_train_batch(o_.batch(number), o_, number, concat("data: batch ", number));
  }
  Dim held_out() const override { return o_.held_out; }
  TrainBatch held_out_batch(Dim number) const override {
    return as_train_batch(o_.held_out_batch(number), o_,
                          data::kHeldOutName >> 20 | static_cast<std::uint64_t>(number),
                          concat("data: held-out batch ", number));
  }
  double epochs(std::uint64_t) const override { return 0; }  // nobody knows
  std::string about() const override {
    return concat("batches of a program, '", valid_text(o_.identity), "', ", o_.held_out, " held out");
  }

 private:
  const OwnDataOptions o_;
};

}  // namespace

TrainBatch as_train_batch(OwnBatch b, const OwnDataOptions& o, std::uint64_t number,
                          const std::string& where) {
  const bool translates = o.objective == Objective::translation,
             classifies = o.objective == Objective::classification;
  if (b.tokens.empty()) fail_usage(where, ": has no tokens");
  if (b.lengths.empty()) fail_usage(where, ": has no lengths of its sequences");
  if (static_cast<Dim>(b.lengths.size()) >= data::kMostSequences)
    fail_usage(where, ": ", b.lengths.size(), " sequences; ", data::kMostSequences - 1, " are possible");
  TrainBatch out;
  check_ids(b.tokens, 0, o.vocab, "token", where);
  out.sequences = sequences_of(b.lengths, b.tokens.size(), number, "sequence", where);
  if (b.targets.empty()) {
    if (o.objective != Objective::causal)
      fail_usage(where, ": has no targets; only of the causal objective they follow from the tokens");
    b.targets = next_tokens(b, out.sequences);
  }
  const std::size_t wanted = classifies ? b.lengths.size() : b.tokens.size();
  if (b.targets.size() != wanted)
    fail_usage(where, ": ", b.targets.size(), " targets, wants ", wanted,
               classifies ? ", one for each sequence" : ", one for each token");
  check_ids(b.targets, -1, classifies ? o.classes : o.vocab, "target", where);
  if (b.source.empty() == translates)
    fail_usage(where, translates ? ": has no source, and the objective is translation"
                                 : ": has a source, and the objective is not translation");
  if (translates) {
    check_ids(b.source, 0, o.vocab, "source token", where);
    out.source_sequences = sequences_of(b.source_lengths, b.source.size(), number, "source", where);
    if (out.source_sequences.size() != out.sequences.size())
      fail_usage(where, ": ", b.source_lengths.size(), " sources for ", b.lengths.size(), " sequences");
  }
  out.counted = static_cast<Dim>(std::ranges::count_if(b.targets, [](std::int32_t t) { return t >= 0; }));
  out.tokens = std::move(b.tokens), out.targets = std::move(b.targets), out.source = std::move(b.source);
  return out;
}

std::unique_ptr<TrainData> own_data(OwnDataOptions o) {
  if (o.vocab < 1) fail_usage("data: vocab is ", o.vocab, "; how many tokens are there?");
  if (o.objective == Objective::classification && o.classes < 1)
    fail_usage("data: classes is ", o.classes, "; how many are there to tell apart?");
  if (o.identity.empty())
    fail_usage(
        "data: identity is empty; a name for what the function gives, so that a run goes on with the same "
        "data only");
  if (!o.class_names.empty() && static_cast<Dim>(o.class_names.size()) != o.classes)
    fail_usage("data: ", o.class_names.size(), " names of ", o.classes, " classes");
  return std::make_unique<OwnData>(std::move(o));
}

}  // namespace rapt
