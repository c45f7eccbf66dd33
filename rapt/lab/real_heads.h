// SPDX-License-Identifier: Apache-2.0
// What a head of a real model is called after. Every kind is measured against equal weights over the keys
// that a row sees: a head counts only where it gives clearly more there.
#pragma once
#include <vector>

#include "rapt/inspect/heads.h"
#include "rapt/lab/real.h"

namespace rapt {

// local: no other name, and a mean distance below a quarter of what equal weights give.
enum class HeadKindName { sink, previous, self, induction, local, uniform, none, count };

struct SeenHead {
  HeadMetrics natural, twice;  // on prose; on random tokens that come a second time
  double even_distance = 0;  // on prose, were all weights equal
  HeadKindName kind = HeadKindName::none;
};
std::vector<SeenHead> see_heads(const Lab& lab, const Model& model, const TokenIds& natural,
                                const TokenIds& twice);
// `even`: mean distance of equal weights on prose.
HeadKindName kind_of(const HeadMetrics& natural, double even, const HeadMetrics& twice);
double strength(HeadKindName kind, const SeenHead& head);  // beyond equal weights

}  // namespace rapt
