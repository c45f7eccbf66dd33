// SPDX-License-Identifier: Apache-2.0
// Clean activations are captured once; then copies of the corrupted text go through in batches, and an edit
// puts into each copy the rows that are its own.
#include "rapt/inspect/patching.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/capture.h"

namespace rapt {
namespace {

struct What {
  const char *name, *point;
};
constexpr What kWhat[] = {
    {"resid_pre", "resid_pre"}, {"attn_out", "attn_out_post"}, {"ffn_out", "mlp_out_post"}, {"heads", "z"}};

struct Patch {  // one run: where, and which row or head
  std::size_t grid, cell;
  const Asked* at;
  const Captured* clean;
  Dim index;
};

// Rows of the pass for each copy: the text behind the learned tokens.
struct Layout {
  Dim before, tokens;
  Dim rows() const { return before + tokens; }
};

std::vector<double> row(const Tensor& y, Dim at) {
  std::vector<double> out(static_cast<std::size_t>(y.last()));
  for (Dim i = 0; i < y.last(); ++i) out[static_cast<std::size_t>(i)] = y.at(at * y.last() + i);
  return out;
}

// The logits at `position` of copies of a text, each with its patch.
std::vector<std::vector<double>> run_patched(Device& device, const Model& model, Ids ids, Dim position,
                                             Dim copies, std::span<const Patch> patches) {
  const Layout layout{model.recipe.embed.sink_tokens, static_cast<Dim>(ids.size())};
  Batch batch;
  std::vector<std::int32_t> tokens, wanted;
  for (Dim i = 0; i < copies; ++i) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    batch.sequences.push_back(
        {.first = i * layout.tokens, .count = layout.tokens, .id = static_cast<std::uint64_t>(i)});
    wanted.push_back(static_cast<std::int32_t>(i * layout.tokens + position));
  }
  batch.tokens = tokens;
  batch.want = {.rows = Want::Rows::chosen, .chosen = wanted};
  Taps taps;
  std::vector<Site> sites;
  for (const Patch& p : patches)
    if (std::find(sites.begin(), sites.end(), p.at->point.site) == sites.end())
      sites.push_back(p.at->point.site);
  for (const Site site : sites)
    taps.edit(site, [&, layout](const Tapped& t) {
      for (std::size_t i = 0; i < patches.size(); ++i) {
        const Patch& p = patches[i];
        if (!is_at(t, p.at->point)) continue;
        const bool heads = p.at->point.heads();
        const Dim n = t.value.elements() / t.value[0], width = heads ? t.value[2] : n,
                  from = static_cast<Dim>(i) * layout.rows();
        const auto put = [&](Dim r, Dim first) {
          for (Dim c = first; c < first + width; ++c)
            t.value.set((from + r) * n + c,
                        static_cast<double>(p.clean->values[static_cast<std::size_t>(r * n + c)]));
        };
        if (heads)
          for (Dim r = 0; r < layout.rows(); ++r) put(r, p.index * width);
        else put(layout.before + p.index, 0);
      }
    });
  Run run(device);
  run.taps = &taps;
  const Tensor y = forward(run, model, batch);
  std::vector<std::vector<double>> out;
  for (Dim i = 0; i < copies; ++i) out.push_back(row(y, i));
  return out;
}

}  // namespace

Patching patching(Device& device, const Model& model, const Metric& metric, Ids clean, Ids corrupted,
                  const PatchingOptions& options) {
  need_vocabulary(model, "patching");
  if (model.encoder && model.decoder)
    fail("patching: ", model.recipe.name,
         " has an encoder and a decoder, and it is not settled here which of its two texts is corrupted; "
         "edits with replace do it by hand (docs/edits.md)");
  if (clean.size() != corrupted.size())
    fail_usage("patching: the clean text has ", counted(static_cast<Dim>(clean.size()), "token"),
               ", the corrupted one ", corrupted.size(),
               "; each activation takes the place of its like, so the "
               "texts need equally many");
  if (clean.empty()) fail_usage("patching: the texts have no tokens");
  if (std::equal(clean.begin(), clean.end(), corrupted.begin()))
    fail_usage("patching: the clean and the corrupted text are the same");
  if (metric.kind == Metric::Kind::loss)
    fail_usage("patching: the loss is of texts that differ; take logit, difference or logprob");
  Metric asked = metric;
  const bool choose = asked.kind == Metric::Kind::difference && asked.token < 0;
  if (choose) asked.token = 0, asked.other = 1;  // named below
  Patching out{.metric = placed(asked, model, static_cast<Dim>(clean.size()))};
  const std::vector<double> of_clean = run_patched(device, model, clean, out.metric.position, 1, {})[0],
                            of_corrupted =
                                run_patched(device, model, corrupted, out.metric.position, 1, {})[0];
  if (choose) {
    Metric best{.kind = Metric::Kind::logit};
    out.metric.token = named(best, of_clean).token, out.metric.other = named(best, of_corrupted).token;
    if (out.metric.token == out.metric.other)
      fail_usage("patching: after both texts the most probable token is ", out.metric.token,
                 "; name two tokens that tell them apart: difference=A,B");
  }
  out.metric = named(out.metric, of_clean);
  out.clean = value_of(out.metric, of_clean), out.corrupted = value_of(out.metric, of_corrupted);
  const double apart = out.clean - out.corrupted;
  if (std::abs(apart) < 1e-6 * std::max(1.0, std::abs(out.clean)))
    fail_usage("patching: the metric is ", out.clean,
               " after both texts, so there is nothing to bring back; "
               "choose another metric, or texts that end differently");

  const Dim T = static_cast<Dim>(clean.size());
  std::vector<Asked> points;
  std::vector<std::size_t> grid_of;
  for (const std::string& what : options.what) {
    const auto known =
        std::find_if(std::begin(kWhat), std::end(kWhat), [&](const What& w) { return what == w.name; });
    std::vector<std::string> names;
    for (const What& w : kWhat) names.emplace_back(w.name);
    if (known == std::end(kWhat))
      fail_usage("patching: '", what, "' is nothing to patch; ", name_hint(what, names));
    if (std::any_of(out.grids.begin(), out.grids.end(), [&](const PatchedGrid& g) { return g.what == what; }))
      fail_usage("patching: '", what, "' is asked for twice");
    const std::string name = concat(known->point, ".*");
    PatchedGrid grid{.what = what};
    for (Asked& a : ask_points(model, {&name, 1})) {
      const Dim columns = a.point.heads() ? a.point.shape[1] : T;
      if (grid.columns != 0 && grid.columns != columns)
        fail("patching: the layers of ", model.recipe.name, " differ in their number of heads");
      grid.columns = columns;
      grid.layers.push_back(a.point.name.substr(a.point.name.find('.') + 1));
      points.push_back(std::move(a));
      grid_of.push_back(out.grids.size());
    }
    grid.value.resize(grid.layers.size() * static_cast<std::size_t>(grid.columns));
    out.grids.push_back(std::move(grid));
  }
  const Capture held = capture(device, model, points, clean);
  std::vector<Patch> patches;
  std::vector<std::size_t> next(out.grids.size());
  for (std::size_t i = 0; i < points.size(); ++i)
    for (Dim c = 0; c < out.grids[grid_of[i]].columns; ++c)
      patches.push_back({grid_of[i], next[grid_of[i]]++, &points[i], &held.tensors[i], c});

  const Dim rows = T + model.recipe.embed.sink_tokens;
  const auto together = static_cast<std::size_t>(std::max<Dim>(1, options.rows / rows));
  for (std::size_t first = 0; first < patches.size(); first += together) {
    const auto some = std::span(patches).subspan(first, std::min(together, patches.size() - first));
    const auto logits =
        run_patched(device, model, corrupted, out.metric.position, static_cast<Dim>(some.size()), some);
    for (std::size_t i = 0; i < some.size(); ++i)
      out.grids[some[i].grid].value[some[i].cell] = value_of(out.metric, logits[i]);
    if (options.progress)
      options.progress(static_cast<Dim>(first + some.size()), static_cast<Dim>(patches.size()));
  }
  for (PatchedGrid& g : out.grids)
    for (double v : g.value) g.recovered.push_back((v - out.corrupted) / apart);
  return out;
}

}  // namespace rapt
