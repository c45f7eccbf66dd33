// SPDX-License-Identifier: Apache-2.0
// Looking inside through the public face: rapt/inspect, one pass for each question.
#include <numeric>

#include "rapt/api/state.h"
#include "rapt/inspect/capture.h"
#include "rapt/inspect/heads.h"
#include "rapt/inspect/lens.h"

namespace rapt::api {
namespace {

// A recorded pass over the text; `keep`: of which attentions rows will be asked for.
AttentionRecord record_of(const ModelState& m, std::span<const Token> tokens, const LookOptions& options,
                          const std::function<bool(const AttentionPlace&)>& keep) {
  Taps taps;
  const auto check_edits = install_edits(taps, m.net(), edits_of(options.edits));
  AttentionRecord record(m.on(), m.net(), tokens, options.source, {.keep = keep, .taps = &taps});
  check_edits();
  return record;
}

}  // namespace

std::vector<Edit> edits_of(const std::vector<std::string>& texts) {
  std::vector<Edit> edits;
  for (const std::string& text : texts)
    edits.push_back(text.starts_with('{') ? read_edit(parse_json(text, "edit")) : parse_edit(text));
  return edits;
}

std::vector<PointInfo> points(const Model& model) {
  std::vector<PointInfo> out;
  for (const PointLine& line : list_points(Access::of(model).net()))
    out.push_back({.name = line.name,
                   .transformer_lens = line.lens,
                   .shape = shape_text(line.example),
                   .layers = line.first < 0 ? 0 : line.layers,
                   .editable = line.example.fixed.empty()});
  return out;
}

std::vector<Tensor> capture(const Model& model, const std::vector<std::string>& points,
                            std::span<const Token> tokens, const LookOptions& options, double most_bytes) {
  const ModelState& m = Access::of(model);
  const std::vector<Asked> asked = ask_points(m.net(), points);
  Taps taps;
  const auto check_edits = install_edits(taps, m.net(), edits_of(options.edits));
  Capture got = rapt::capture(m.on(), m.net(), asked, tokens, options.source,
                              {.most_bytes = most_bytes, .taps = &taps});
  check_edits();
  std::vector<Tensor> out;
  for (Captured& t : got.tensors)
    out.push_back({.name = std::move(t.name), .shape = std::move(t.shape), .values = std::move(t.values)});
  return out;
}

Tensor attention(const Model& model, const HeadPlace& place, std::span<const Token> tokens,
                 const LookOptions& options) {
  const ModelState& m = Access::of(model);
  const bool encoder = m.net().encoder && (!m.net().decoder || place.encoder);
  const AttentionPlace at{.stack = encoder ? Stack::encoder : Stack::decoder,
                          .layer = place.layer,
                          .cross = place.cross,
                          .number = place.number};
  const AttentionRecord record =
      record_of(m, tokens, options, [&](const AttentionPlace& p) { return p == at; });
  if (place.head < 0 || place.head >= record.heads(at))
    fail_usage("attention: layer ", place.layer, " has no head ", place.head, "; it has ", record.heads(at));
  const Dim T = static_cast<Dim>(record.row_ids(at).size()), S = static_cast<Dim>(record.key_ids(at).size());
  Tensor out{
      .name = "attention", .shape = {T, S}, .values = std::vector<float>(static_cast<std::size_t>(T * S))};
  std::vector<Dim> rows(static_cast<std::size_t>(T));
  std::iota(rows.begin(), rows.end(), Dim{0});
  record.rows(at, place.head, rows, [&](Dim row, int, std::span<const float> weights) {
    std::copy(weights.begin(), weights.end(), out.values.begin() + row * S);
  });
  return out;
}

std::vector<HeadInfo> heads(const Model& model, std::span<const Token> tokens, const LookOptions& options) {
  std::vector<HeadInfo> out;
  for (const HeadMetrics& h : head_metrics(record_of(Access::of(model), tokens, options, {})))
    out.push_back({.place = {.layer = h.place.layer,
                             .head = h.head,
                             .encoder = h.place.stack == Stack::encoder,
                             .cross = h.place.cross,
                             .number = h.place.number},
                   .first = h.first,
                   .self = h.self,
                   .previous = h.previous,
                   .induction = h.induction,
                   .entropy = h.entropy,
                   .distance = h.distance,
                   .label = h.label});
  return out;
}

Lens lens(const Model& model, std::span<const Token> tokens, int top, std::span<const Token> source) {
  const ModelState& m = Access::of(model);
  rapt::Lens l = rapt::lens(m.on(), m.net(), tokens, source, {.top = top});
  return {.rows = l.rows,
          .top = l.top,
          .tokens = l.tokens,
          .ids = std::move(l.ids),
          .probabilities = std::move(l.probabilities),
          .entropy = std::move(l.entropy)};
}

}  // namespace rapt::api
