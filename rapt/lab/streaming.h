// SPDX-License-Identifier: Apache-2.0
// The experiment behind `rapt lab streaming`: StreamingLLM's table on a real model. A long text streams
// through a cache of the first `keep` keys and the last `window`; at many positions the next token's
// probability is looked at, and compared with reading the same number of last tokens anew. Memory and time
// per token are measured while the text runs by.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"

namespace rapt {

struct StreamingOptions {
  // By themselves so few that a small model takes a minute; the paper's are 1020, 100,000 and more.
  Dim window = 252;                     // keys that slide, for every keep
  std::vector<Dim> keep = {0, 1, 4};
  Dim tokens = 4096;                    // of the text
  Dim samples = 100;                    // positions looked at; all rows use the same ones
  // Read anew with recompute + window tokens; -1: not at all (it costs most of the time).
  Dim recompute = 4;
  DType cache = DType::f32;
  Dim timed = 64;                       // tokens one by one at the beginning, in the middle and at the end
};

struct StreamingRow {
  Dim keep = 0;
  double nll = 0;                          // mean over the samples
  double perplexity = 0;
  // Held by the cache at the beginning (it is full), in the middle, at the end.
  std::size_t pages[3] = {}, bytes[3] = {};
  double token_seconds[3] = {};            // median of the timed tokens there
  double seconds = 0;                      // the whole text
};

struct StreamingReport {
  std::vector<StreamingRow> rows;
  Dim tokens = 0, samples = 0, window = 0;
  Dim recomputed = 0;                      // tokens read anew at each sample; 0: not done
  double recomputed_nll = 0, recomputed_perplexity = 0, recomputed_seconds = 0;
};

// What is being done ("keep 4", "reading anew"), how far, and the perplexity so far.
using StreamingProgress = std::function<void(const std::string& what, Dim done, Dim of, double perplexity)>;
// `ids`: the text; as many of its tokens as the options say are used. Opens the model once per keep: its
// windows are part of the recipe.
StreamingReport run_streaming(Device& device, const std::string& model, std::span<const std::int32_t> ids,
                              const StreamingOptions& options, const StreamingProgress& progress = {});

// One row on a model that is open and whose recipe has the windows already (keep, window): what
// run_streaming does for each keep.
StreamingRow stream_text(Device& device, const Model& model, std::span<const std::int32_t> ids, Dim keep,
                         const StreamingOptions& options, const StreamingProgress& progress = {});
// The positions whose next token is looked at.
std::vector<Dim> streaming_samples(const StreamingOptions& options);

}  // namespace rapt
