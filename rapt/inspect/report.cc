// SPDX-License-Identifier: Apache-2.0
// Maps, links and grids are sized so that a page of a small model and a long text stays near 5 MB.
#include "rapt/inspect/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "rapt/base/text.h"
#include "rapt/inspect/documents.h"
#include "rapt/inspect/experts.h"
#include "rapt/inspect/heads.h"
#include "rapt/inspect/lens.h"
#include "rapt/inspect/norms.h"
#include "rapt/inspect/states.h"
#include "rapt/text/words.h"

namespace rapt {
namespace {

// Before packing: maps take one byte a pixel and pack to a quarter, links four and pack to half; base64 adds
// a third. SmolLM2 (270 heads) with 1,000 tokens gets 110 pixels a side, 3 keys a token, and with its grids
// a file of 4.5 MB.
constexpr double kMapBytes = 3.3e6, kLinkBytes = 3.3e6;
constexpr std::size_t kLongTable = 64, kLargeMap = 4096;  // rows, cells: more belongs to the view itself

Dim map_pixels(Dim tokens, std::size_t heads) {
  return std::min({tokens, Dim{512},
                   std::max(Dim{24}, static_cast<Dim>(std::sqrt(kMapBytes / static_cast<double>(heads))))});
}
int link_count(Dim tokens, std::size_t heads) {
  return static_cast<int>(
      std::clamp(kLinkBytes / 4 / static_cast<double>(heads) / static_cast<double>(tokens), 2.0, 12.0));
}

// Where a head stands in its layer's row: heads of several attentions of one layer stand one after
// the other.
int column_of(const AttentionRecord& record, const AttentionPlace& place, int head) {
  for (const AttentionPlace& p : record.places())
    if (p.layer == place.layer && p.number < place.number) head += record.heads(p);
  return head;
}

void add_heads(Page& page, const AttentionRecord& record, const ReportOptions& options) {
  const auto at = [&](const AttentionPlace& place, int head) {
    return static_cast<std::size_t>(place.layer * page.heads + column_of(record, place, head));
  };
  const std::vector<HeadMetrics> metrics = head_metrics(record);
  options.step(2);
  const auto cells = static_cast<std::size_t>(page.layers * page.heads);
  page.labels.resize(cells);
  for (const HeadMetrics& m : metrics) page.labels[at(m.place, m.head)] = m.label;
  for (const HeadMetric& figure : head_metric_list()) {
    Page::Metric out{.key = figure.key,
                     .name = figure.name(),
                     .values = std::vector<float>(cells, std::nanf("")),
                     .share = figure.share};
    for (const HeadMetrics& m : metrics) out.values[at(m.place, m.head)] = static_cast<float>(figure.of(m));
    if (std::any_of(out.values.begin(), out.values.end(), [](float v) { return !std::isnan(v); }))
      page.metrics.push_back(std::move(out));
  }
  const auto tokens = static_cast<Dim>(page.tokens.size());
  const Dim pixels = options.pixels > 0 ? options.pixels : map_pixels(tokens, metrics.size());
  for (const HeadMap& m : head_maps(record, {.pixels = pixels, .most_rows = std::max(pixels, Dim{2048})})) {
    Page::Map out{.layer = m.place.layer,
                  .head = column_of(record, m.place, m.head),
                  .rows = static_cast<int>(m.rows),
                  .keys = static_cast<int>(m.keys)};
    for (const float v : m.values)
      out.pixels.push_back(static_cast<std::uint8_t>(std::lround(255 * std::clamp(v, 0.0f, 1.0f))));
    page.maps.push_back(std::move(out));
  }
  options.step(3);
  for (StrongestKeys& s : strongest_keys(
           record, options.keys > 0 ? static_cast<int>(options.keys) : link_count(tokens, metrics.size())))
    page.strongest.push_back({.layer = s.place.layer,
                              .head = column_of(record, s.place, s.head),
                              .count = s.count,
                              .keys = std::move(s.keys),
                              .weights = std::move(s.weights)});
  options.step(4);
}

void add_grids(Page& page, const Subject& s, Stack stack, const ReportOptions& options) {
  const std::vector<std::string> rows = row_names(page.layers + 1), layers(rows.begin() + 1, rows.end());
  for (const Massive& m : massive(s.device(), s.net(), s.ids, s.source)) {
    if (m.stack != stack) continue;
    Page::Grid grid{.key = "massive", .name = say("page.names.massive"), .rows = rows};
    for (int r = 0; r < m.rows; ++r)
      for (Dim t = 0; t < m.tokens; ++t) grid.values.push_back(static_cast<float>(m.log_ratio(r, t)));
    page.grids.push_back(std::move(grid));
  }
  const auto lengths = [&]() -> std::vector<NormGrid> {
    try {
      return norms(s.device(), s.net(), s.ids, s.source).grids;
    } catch (const Error&) {  // not every model has everything: below, its own view says why
      return {};
    }
  };
  for (const NormGrid& n : lengths()) {
    if (n.stack != stack) continue;
    page.grids.push_back({.key = "residual",
                          .name = say("page.names.residual"),
                          .rows = rows,
                          .values = n.residual,
                          .log_scale = true});
    page.grids.push_back({.key = "attn_out",
                          .name = say("page.names.attn_out"),
                          .rows = layers,
                          .values = n.attn_out,
                          .log_scale = true});
    page.grids.push_back({.key = "ffn_out",
                          .name = say("page.names.ffn_out"),
                          .rows = layers,
                          .values = n.ffn_out,
                          .log_scale = true});
  }
  if (!options.lens || last_stack(s.net()) != stack || s.net().recipe.head.kind != HeadRecipe::Kind::vocab)
    return;
  const Lens l = lens(s.device(), s.net(), s.ids, s.source);
  Page::Grid top{.key = "lens", .name = say("page.names.lens"), .rows = rows, .values = l.probabilities};
  for (std::size_t i = 0; i < l.ids.size(); ++i) {  // one for each cell: a token as it would stand there
    const std::size_t before = i % static_cast<std::size_t>(l.tokens) + (l.own ? 0 : 1);
    top.texts.push_back(
        visible_text(next_token_text(s.tokenizer(), std::span(s.ids).first(before), l.ids[i])));
  }
  Page::Grid truth{
      .key = "lens_truth", .name = say("page.names.lens_truth"), .rows = rows, .values = l.truth};
  for (std::size_t i = 0; i < truth.values.size(); ++i)
    if (l.rank[i] == 0) truth.values[i] = std::nanf("");
  page.grids.insert(page.grids.begin(), std::move(top));
  page.grids.push_back(std::move(truth));
  page.grids.push_back(
      {.key = "lens_entropy", .name = say("page.names.lens_entropy"), .rows = rows, .values = l.entropy});
}

// A document without the parts that are too long to be read here.
Document shortened(const char* name, const char* summary, const std::function<Document()>& make,
                   std::size_t tokens) {
  try {
    Document d = make();
    const bool by_token = d.name != "sinks";  // a map with a column for each token is a grid of the page
    std::erase_if(d.parts, [&](const auto& part) {
      if (const auto* t = std::get_if<Table>(&part)) return t->rows.size() > kLongTable;
      const auto* m = std::get_if<HeatMap>(&part);
      return m && (m->values.size() > kLargeMap || (by_token && m->columns.size() == tokens));
    });
    return d;
  } catch (const Error& e) {  // not every model has everything
    return {.name = name, .title = summary, .parts = {Words{e.what()}}};
  }
}

}  // namespace

Table head_kinds(const Page& page) {
  struct Kind {
    double heads = 0, strongest = -1;
    std::size_t at = 0;
  };
  std::map<std::string, Kind> found;
  for (std::size_t i = 0; i < page.labels.size(); ++i) {
    const std::string& label = page.labels[i];
    const std::size_t space = label.find_last_of(' ');
    Kind& kind = found[label.empty() ? "nothing stands out" : label.substr(0, space)];
    const double value = label.empty() ? 0 : std::atof(label.c_str() + space);
    kind.heads += 1;
    if (value > kind.strongest) kind.strongest = value, kind.at = i;
  }
  Table t{.title = "What the heads do on this text", .columns = {"kind", "heads", "clearest"}, .rows = {}};
  for (const auto& [name, kind] : found) {
    const auto heads = static_cast<std::size_t>(page.heads);
    const bool named = !page.labels[kind.at].empty();
    t.rows.push_back(
        {name, Cell(kind.heads, 0),
         named ? concat("layer ", kind.at / heads, ", head ", kind.at % heads, ": ", fixed(kind.strongest, 2))
               : ""});
  }
  return t;
}

std::string report_name(const Checkpoint& checkpoint) {
  const std::string& path = checkpoint.path;
  return std::filesystem::path(path.ends_with('/') ? path.substr(0, path.size() - 1) : path)
      .filename()
      .string();
}

Page report_page(const Subject& s, const ReportOptions& options) {
  const std::string& path = s.checkpoint.path;
  const bool both = !s.source.empty();
  const Stack stack = both ? options.stack.value_or(Stack::encoder) : last_stack(s.net());
  if (options.stack && *options.stack != stack)
    fail_usage("--stack: ", path, " has a ", stack_name(stack), " only");
  const bool of_source = both && stack == Stack::encoder;
  if (const std::size_t n = (of_source ? s.source : s.ids).size(); n > Page::kMostTokens)
    fail_usage("a page can show ", Page::kMostTokens, " tokens, and the text has ", n,
               "; --tokens takes fewer");
  options.step(0);
  const AttentionRecord record(s.device(), s.net(), s.ids, s.source, {.keep = [&](const AttentionPlace& p) {
                                 return p.stack == stack && !p.cross;
                               }});
  if (record.places().empty()) fail(path, " has no self-attention to make a report of");
  options.step(1);

  Page page{.title = report_name(s.checkpoint), .tokens = both && !of_source ? s.words_of(stack) : s.words()};
  page.ids = of_source ? s.source : s.ids;
  for (const AttentionPlace& p : record.places())
    page.heads = std::max(page.heads, column_of(record, p, record.heads(p)));
  page.layers = static_cast<int>(stack_of(s.net(), stack).layers.size());
  page.model = concat(s.checkpoint.family, ", ", stack_prefix(s.net(), stack), page.layers, " layers, ",
                      page.heads, " heads, width ", s.net().recipe.width, " \xC2\xB7 ",
                      with_commas(static_cast<Dim>(page.tokens.size())), " tokens");
  if (record.places().back().number > 0)
    page.model += " \xC2\xB7 heads of a layer's attentions stand one after the other";
  add_heads(page, record, options);
  add_grids(page, s, stack, options);
  options.step(5);
  const std::size_t tokens = page.tokens.size();
  page.documents = {
      shortened(
          "sinks", kSinksSummary, [&] { return sinks_document(s, {.note = options.note}); }, tokens),
      shortened(
          "massive", kMassiveSummary, [&] { return massive_document(s); }, tokens),
      shortened("norms", kNormsSummary, [&] { return norms_document(s); }, tokens)};
  if (has_experts(s.net()))
    page.documents.push_back(
        shortened("experts", kExpertsSummary, [&] { return experts_document(s); }, tokens));
  if (has_states(s.net()))
    page.documents.push_back(shortened("state", kStatesSummary, [&] { return states_document(s); }, tokens));
  return page;
}

}  // namespace rapt
