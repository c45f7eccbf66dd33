// SPDX-License-Identifier: Apache-2.0
// What each attention head does on a text: figures from the statistics of the fused kernel and, where it has
// none, from rows computed anew; and a name for what a head does.
#pragma once
#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "rapt/inspect/attention_map.h"
#include "rapt/report/text.h"

namespace rapt {

// Means over the rows of a text. Weights of sigmoid attention are divided by their row's sum.
struct HeadMetrics {
  AttentionPlace place;
  int head = 0;
  // Weight on the first keys (RecordOptions::first_keys), over the rows that see the first one.
  double first = 0;
  // The same over all rows: one that does not see the first key gives it nothing (Gu et al. 2025).
  double sink = 0;
  // On the row's own token; on the one before it, over the rows that have one; of cross-attention these
  // and `induction` compare places of two texts and mean nothing.
  double self = 0, previous = 0;
  double entropy = 0;  // nats
  double distance = 0, variance = 0;  // |row - key|, weighted
  // On the tokens after earlier occurrences of the row's token, those of at least 0.01; over rows that
  // have some.
  double induction = 0;
  double strongest = 0;  // largest weight outside the first row and the first key
  double max_logit = 0;  // largest scaled score
  // Of the gate on the head's result: mean, share of values below 0.1; -1: no such gate.
  double gate = -1, gate_closed = -1;
  // Of the text; those that `variance`, `induction` and `strongest` are made of.
  Dim rows = 0, sampled = 0;
  // What sink, self, previous and induction would be, were all that a row sees of equal weight.
  double even_sink = 0, even_self = 0, even_previous = 0, even_induction = 0;
  std::string label;  // "previous token 0.92", "sink 0.88"; empty where nothing stands out
};

// What a head can be called after. It is called so where it gives at least 0.3 there, and at least 0.2 more
// than equal weights would.
struct HeadKind {
  const char* name;
  double HeadMetrics::*share, HeadMetrics::*even;
  double beyond(const HeadMetrics& m) const { return m.*share - m.*even; }
};
std::span<const HeadKind> head_kinds();

// Every head that was kept, in order. Of more than `most_rows` rows that many are computed anew,
// evenly spread. Throws Cancelled (run/run.h) between two layers once `gone` is set.
std::vector<HeadMetrics> head_metrics(const AttentionRecord& record, Dim most_rows = 2048,
                                      const std::atomic<bool>* gone = nullptr);

// Names of the figures above that a picture can show, and one of them.
struct HeadMetric {
  const char* key;
  bool share;  // 0 … 1
  double (*of)(const HeadMetrics& m);  // NaN where the head has none
  Text name() const { return say(concat("page.names.", key)); }
};
std::span<const HeadMetric> head_metric_list();

}  // namespace rapt
