// SPDX-License-Identifier: Apache-2.0
// The report page of a small decoder without any program around it: each field against the observer it
// comes from.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/inspect/documents.h"
#include "rapt/inspect/heads.h"
#include "rapt/inspect/lens.h"
#include "rapt/inspect/norms.h"
#include "rapt/inspect/report.h"
#include "tests/memory_checkpoint.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

class ReportPage : public testing::Test {
 protected:
  Device device{{.threads = 1}};
  Checkpoint checkpoint = memory_checkpoint(small_decoder(), 7);
  Subject subject{device, checkpoint};
  ReportPage() { subject.ids = {0, 2, 3, 28, 4, 3, 28, 5}; }
};

TEST_F(ReportPage, HoldsWhatTheObserversSay) {
  std::vector<int> steps;
  std::string noted;
  const Page page =
      report_page(subject, {.progress = [&](int done, int of) { steps.push_back(done * 10 + of); },
                            .note = [&](const std::string& s) { noted = s; }});
  EXPECT_EQ(steps, (std::vector<int>{6, 16, 26, 36, 46, 56}));
  EXPECT_TRUE(holds(noted, "the text has 8 tokens, fewer than 64")) << noted;
  EXPECT_EQ(page.title, "toy");
  EXPECT_EQ(page.model, "toy, 3 layers, 4 heads, width 32 \xC2\xB7 8 tokens");
  EXPECT_EQ(page.tokens, subject.words());
  EXPECT_EQ(page.ids, subject.ids);

  const Model& model = *checkpoint.model;
  const AttentionRecord record(device, model, subject.ids, {}, {});
  const std::vector<HeadMetrics> metrics = head_metrics(record);
  ASSERT_EQ(metrics.size(), 12u);
  ASSERT_EQ(page.labels.size(), 12u);
  for (const HeadMetrics& m : metrics)
    EXPECT_EQ(page.labels[static_cast<std::size_t>(m.place.layer * 4 + m.head)], m.label);
  for (const HeadMetric& figure : head_metric_list())
    for (const Page::Metric& shown : page.metrics)
      if (shown.key == figure.key)
        for (const HeadMetrics& m : metrics) {
          const float value = shown.values[static_cast<std::size_t>(m.place.layer * 4 + m.head)];
          EXPECT_TRUE(value == static_cast<float>(figure.of(m)) ||
                      (std::isnan(value) && std::isnan(figure.of(m))))
              << figure.key;
        }
  EXPECT_EQ(page.maps.size(), 12u);
  EXPECT_EQ(page.strongest.size(), 12u);

  std::vector<std::string> keys;
  for (const Page::Grid& g : page.grids) keys.push_back(g.key);
  ASSERT_EQ(keys, (std::vector<std::string>{"lens", "massive", "residual", "attn_out", "ffn_out",
                                            "lens_truth", "lens_entropy"}));
  EXPECT_EQ(page.grids[0].values, lens(device, model, subject.ids).probabilities);
  EXPECT_EQ(page.grids[0].rows, (std::vector<std::string>{"embed", "0", "1", "2"}));
  EXPECT_EQ(page.grids[0].texts.size(), 4u * 8u);
  const Massive m = massive(device, model, subject.ids, {}).at(0);
  EXPECT_EQ(page.grids[1].values[8 + 3], static_cast<float>(m.log_ratio(1, 3)));
  EXPECT_EQ(page.grids[2].values, norms(device, model, subject.ids, {}).grids.at(0).residual);
  EXPECT_TRUE(std::isnan(page.grids[5].values[7]));  // the last token has no truth
  ASSERT_EQ(page.documents.size(), 3u);
  EXPECT_EQ(page.documents[0].name + page.documents[1].name + page.documents[2].name, "sinksmassivenorms");
  // What has a column for each token is a grid already; nothing else of these short documents is too long.
  EXPECT_EQ(page.documents[0].parts.size(), sinks_document(subject).parts.size());
  EXPECT_EQ(page.documents[1].parts.size() + 1, massive_document(subject).parts.size());
  EXPECT_EQ(page.documents[2].parts.size() + 1, norms_document(subject).parts.size());

  double heads = 0;
  for (const auto& row : head_kinds(page).rows) heads += row.at(1).number;
  EXPECT_EQ(heads, 12);
}

TEST_F(ReportPage, TakesItsSizesAndRefusesWhatIsNotThere) {
  const Page page = report_page(subject, {.pixels = 4, .keys = 2, .lens = false});
  EXPECT_EQ(page.maps.at(0).rows, 4);
  EXPECT_EQ(page.strongest.at(0).count, 2);
  EXPECT_EQ(page.grids.at(0).key, "massive");
  EXPECT_TRUE(
      holds(error_of([&] { report_page(subject, {.stack = Stack::encoder}); }), "has a decoder only"));
  subject.ids.assign(Page::kMostTokens + 1, 2);
  EXPECT_TRUE(holds(error_of([&] { report_page(subject); }), "a page can show 65535 tokens"));
}

TEST_F(ReportPage, NamesOfModels) {
  EXPECT_EQ(model_line(subject), "toy, 8 tokens");
  checkpoint.path = "some/where/model.gguf";
  EXPECT_EQ(model_name(checkpoint), "model.gguf");
  EXPECT_EQ(report_name(checkpoint), "model.gguf");
  checkpoint.path = "some/folder/";
  EXPECT_EQ(report_name(checkpoint), "folder");
}

}  // namespace
}  // namespace rapt::test
