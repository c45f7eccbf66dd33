// SPDX-License-Identifier: Apache-2.0
// Experiments on a model of one's own: what the laboratory asks of models that it trains, asked of a released
// one. `rapt lab massive MODEL [TEXT]`. Each composes observers of rapt/inspect into findings and a verdict;
// its sentences are lab.real-NAME.* of the dictionary.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/inspect/look.h"
#include "rapt/lab/experiment.h"
#include "rapt/lab/streaming.h"
#include "rapt/load/checkpoint.h"

namespace rapt {

using TokenIds = std::vector<std::int32_t>;

struct RealText {
  enum class Kind { natural, random, repeated };
  Text name;
  Kind kind = Kind::natural;
  TokenIds ids;  // without what the tokenizer puts before a text
};

// What is asked, and of whom.
struct RealSubject {
  std::string name, path;  // of the model, for people and for those who open it themselves
  // The model with its matrices in that format; absent: as its file stores them.
  std::function<Checkpoint(std::optional<DType> matrices)> open;
  TokenIds prose;  // the text that losses are measured on, without a frame
  std::vector<RealText> texts;  // short ones of many kinds
  TokenIds before;  // what the tokenizer puts before a text
  Dim vocab = 0;
  std::function<std::string(std::int32_t id)> word;  // of a token
  Dim tokens = 0;  // of `prose` that are read; 0: as many as the experiment takes by itself
  StreamingOptions streaming;
};

struct RealOptions {
  std::string model;  // a path or a name
  std::string text;  // what losses are measured on; empty: prose of our own
  Dim tokens = 0;
  StreamingOptions streaming;
};
// Opens the model's tokenizer; the weights are read by the experiments.
RealSubject real_subject(const Lab& lab, const RealOptions& options);

struct RealExperiment {
  const char* asked;  // "massive"
  Experiment shown;  // its name in results and dictionary, "real-massive"; run is not called
  LabResult (*run)(const Lab& lab, const RealSubject& subject);
};
std::span<const RealExperiment> real_experiments();
const RealExperiment* find_real(std::string_view asked);  // nullptr: none is asked so of a model

LabResult real_massive(const Lab& lab, const RealSubject& subject);
LabResult real_sink(const Lab& lab, const RealSubject& subject);
LabResult real_quant(const Lab& lab, const RealSubject& subject);
LabResult real_heads(const Lab& lab, const RealSubject& subject);
LabResult real_gate(const Lab& lab, const RealSubject& subject);
LabResult real_streaming(const Lab& lab, const RealSubject& subject);
LabResult streaming_result(const StreamingReport& report, const std::string& model);

// ------------------------------------------------------------------------------------------- what they share
// The model; fails where it does not predict the next token of a text.
const Model& predictor(const Checkpoint& checkpoint, const RealSubject& subject);
// The model, its matrices as f32 whatever the file holds: products of blocks round what they read to int8, and
// what that moves by itself (0.7 % of SmolLM2's perplexity) would be taken for an effect. Above this many
// parameters they stay as they are: numbers would take too much memory.
constexpr Dim kMostNumbers = 600'000'000;
Checkpoint open_numbers(const RealSubject& subject);
// The first `count` pieces of `ids`, `length` tokens each with the frame; fails where there is none.
std::vector<TokenIds> framed_pieces(const RealSubject& subject, const TokenIds& ids, Dim length, Dim count);
TokenIds first_tokens(TokenIds ids, Dim most);
TokenIds framed(const RealSubject& subject, const TokenIds& ids);
// Mean loss in nats over all tokens that are predicted. `edits`: puts its edits on the pass of window number
// w.
using WindowEdits = std::function<void(std::size_t w, Taps& taps)>;
double mean_loss(const Lab& lab, const Model& model, std::span<const TokenIds> windows,
                 const WindowEdits& edits = {});
// By layer: mean weight of the decoder's self-attention on the first token, over heads, rows and windows.
std::vector<double> first_weights(const Lab& lab, const Model& model, std::span<const TokenIds> windows,
                                  const WindowEdits& edits = {});
Words model_words(const RealSubject& subject, const Model& model);  // what the document is about
Curve by_layer(Text name, const std::vector<double>& values, double first = 0);  // x: first, first + 1 …
std::string thousands(double x);  // 24,200; 12.3; 0.041
Text change_text(double after, double before);  // "+0.25 %", "291,135 times"

}  // namespace rapt
