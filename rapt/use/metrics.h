// SPDX-License-Identifier: Apache-2.0
// How good a translation is: BLEU and chrF as sacrebleu computes them (its defaults: tokenizer 13a,
// exponential smoothing; chrF2 with character 6-grams). Corpus figures, one reference per sentence.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// 100 * brevity * (p1 p2 p3 p4)^(1/4). p_n: share of the translations' n-grams that their references hold
// too, each counted at most as often as there, over the whole corpus; the first p_n without a match counts
// as half a match, the next as a quarter … (exponential smoothing). brevity: exp(1 - reference_length /
// length) where the translations are shorter.
struct Bleu {
  double score = 0;  // 0 … 100
  std::array<double, 4> precisions = {};  // percent
  double brevity = 1;
  Dim length = 0, reference_length = 0;  // in words
};
Bleu bleu(std::span<const std::string> translations, std::span<const std::string> references,
          bool lower = false);

// The words BLEU counts, as mteval-v13a finds them. "<skipped>" goes, a hyphen at a line's end joins, &quot;
// &amp; &lt; &gt; are read. Then in this order, each over the whole line, from the left, no character twice:
//   every ASCII sign but ' , - .     stands alone
//   a period or comma                stands alone unless a digit is before it
//   … likewise                       unless a digit follows
//   a hyphen after a digit           stands alone
// and the line is split at white space, Unicode's and the separators 1C to 1F.
std::vector<std::string> tokenize_13a(std::string_view text);

// Characters without white space. Over the orders that occur in both sides: the mean precision p and recall
// r of the corpus, then 100 (1 + beta^2) p r / (beta^2 p + r). What a translation says where its reference
// is too short for an order does not count.
double chrf(std::span<const std::string> translations, std::span<const std::string> references, int order = 6,
            double beta = 2, bool lower = false);

}  // namespace rapt
