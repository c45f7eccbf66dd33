// SPDX-License-Identifier: Apache-2.0
// Bugs that no shape test sees, with values: a decoder without its causal mask, attention across the batch
// instead of along the sequence, a row that may see nothing. Each is run, and a change of one token shows
// who sees whom.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 32, kRows = 10, kSequences = 2, kVocab = 50;

Recipe one_layer(AttnRecipe::MaskKind mask) {
  LayerRecipe layer;
  layer.parts.push_back({.body = AttnRecipe{.heads = 4, .mask = mask}});
  Recipe r;
  r.name = "masks";
  r.width = kWidth;
  r.vocab = kVocab;
  r.context = 64;
  r.head.kind = HeadRecipe::Kind::none;
  r.init.std = 0.3;
  const bool causal = mask == AttnRecipe::MaskKind::causal;
  (causal ? r.decoder : r.encoder) = StackRecipe{.layers = 1, .kinds = {{"L", layer}}};
  return r;
}

// [sequences][rows] tokens through the model. `across`: rows of one position of all sequences are taken for
// a sequence, which is what a module that expects [rows, sequences] does with [sequences, rows]. The output
// has the shape and the order of the input either way.
std::vector<double> outputs(Device& f64, const Model& model, const std::vector<std::int32_t>& tokens,
                            bool across) {
  std::vector<std::int32_t> order;  // place in the pass -> place in `tokens`
  for (Dim i = 0; i < kSequences * kRows; ++i)
    order.push_back(static_cast<std::int32_t>(across ? i % kSequences * kRows + i / kSequences : i));
  std::vector<std::int32_t> fed;
  for (std::int32_t at : order) fed.push_back(tokens[static_cast<std::size_t>(at)]);
  Batch batch{.tokens = fed};
  const Dim length_of = across ? kSequences : kRows;
  for (Dim first = 0; first < kSequences * kRows; first += length_of)
    batch.sequences.push_back({.first = first, .count = length_of, .id = static_cast<std::uint64_t>(first)});
  Run run(f64);
  const std::vector<double> y = values_of(forward(run, model, batch));
  std::vector<double> back(y.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(i * kWidth), kWidth,
                back.begin() + order[i] * kWidth);
  return back;
}

// How much the output of each place changes when one token does.
std::vector<double> seen_by(Device& f64, const Model& model, std::vector<std::int32_t> tokens, Dim changed,
                            bool across) {
  const std::vector<double> before = outputs(f64, model, tokens, across);
  std::int32_t& token = tokens[static_cast<std::size_t>(changed)];
  token = (token + 1) % static_cast<std::int32_t>(kVocab);
  const std::vector<double> after = outputs(f64, model, tokens, across);
  std::vector<double> change;
  for (std::size_t i = 0; i < before.size(); i += kWidth)
    change.push_back(largest_difference({before.data() + i, kWidth}, {after.data() + i, kWidth}));
  return change;
}

// A row that may see nothing, as padding or a window can make it.
double blind_row(Device& f64, std::uint64_t seed, double& gradient) {
  Run run(f64);
  Gradients gradients(f64.real);
  Tape tape(gradients);
  run.tape = &tape;
  const Tensor x = normal_tensor(run, {4, 2, 8}, seed);
  RowPlan plan = plan_rows(Mask{.right = 0}, {{Sequence{.first = 0, .count = 4}}});
  plan.low[2] = plan.high[2] = 0;
  const Tensor y =
      attention(run, {.heads = 2, .kv_heads = 2, .head_dim = 8, .v_dim = 8}, {.q = x, .k = x, .v = x}, plan);
  backward_from(run, y, mix_key(seed, 1));
  gradient = 0;
  for (double g : gradient_of(run, x)) gradient = std::isfinite(g) ? gradient : HUGE_VAL;
  return largest({values_of(y).data() + 2 * 16, 16});
}

Finding nothing(const char* what, double measured, const char* paper = "") {
  return {.what = what,
          .measured = measured,
          .unit = "",
          .expected = "exactly 0",
          .holds = measured == 0,
          .paper = paper};
}

}  // namespace

LabResult masks(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  Model causal(one_layer(AttnRecipe::MaskKind::causal), f64.real),
      full(one_layer(AttnRecipe::MaskKind::full), f64.real);
  init(causal, lab.seed);
  init(full, lab.seed);
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < kSequences * kRows; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_below(kVocab, mix_key(lab.seed, 5), i)));

  // Places 0 … 9: the first sample, 10 … 19: the second.
  const std::vector<double> right = seen_by(f64, causal, tokens, 9, false),
                            missing = seen_by(f64, full, tokens, 9, false);
  const std::vector<double> along = seen_by(f64, full, tokens, 5, false),
                            across = seen_by(f64, full, tokens, 5, true);
  auto most = [](const std::vector<double>& v, std::size_t from, std::size_t to, std::size_t but) {
    double m = 0;
    for (std::size_t i = from; i < to; ++i) m = i == but ? m : std::max(m, v[i]);
    return m;
  };
  double blind_gradient = 0;
  const double blind = blind_row(f64, mix_key(lab.seed, 6), blind_gradient);

  LabResult r;
  r.findings = {
      nothing("causal mask: change at positions 0 to 8 when token 9 changes", most(right, 0, 9, 9),
              "0.0 with a causal mask"),
      above("no mask in a decoder: change at position 0 when token 9 changes", missing[0], 1e-6, "",
            "0.14 measured on a tutorial's code"),
      nothing("right batch axis: change of sample 1 when sample 0 changes", most(along, 10, 20, 99)),
      above("wrong axis: change of sample 1 when sample 0 changes", across[15], 1e-6, "",
            "1.22 measured on a tutorial's code"),
      nothing("wrong axis: change of any other position of sample 0", most(across, 0, 10, 5),
              "none: the text is never looked at"),
      nothing("a row that sees nothing: its largest output, and a finite gradient",
              std::isfinite(blind_gradient) ? blind : 1e300),
  };
  r.verdict =
      all_hold(r.findings)
          ? concat(
                "Wrong: every shape is right in every case. Without the mask the first position sees the "
                "last token (its output moves by ",
                digits(missing[0], 2), "); with the batch axis in the wrong place samples see each other (",
                digits(across[15], 2),
                ") and no position sees its own text. Only values show it: "
                "change a token and look who moves.")
          : "The masks did not behave as expected; see the numbers.";
  HeatMap map{.title = "Who moves when one token of sample 0 changes",
              .rows = {},
              .columns = {},
              .values = {},
              .top = 0};
  map.column_name = "sample and place", map.value_name = "largest change of the output";
  Table table{.title = "The largest change of an output when one token of sample 0 changes",
              .columns = {"case", "sample 0 before it", "the token's own", "sample 0 after it", "sample 1"},
              .rows = {}};
  struct Case {
    const char* name;
    const std::vector<double>& moved;
    std::size_t token;
  };
  const Case cases[] = {{"causal, token 9", right, 9},
                        {"no mask, token 9", missing, 9},
                        {"encoder, token 5", along, 5},
                        {"wrong axis, token 5", across, 5}};
  for (const Case& c : cases) {
    map.rows.push_back(c.name);
    map.values.insert(map.values.end(), c.moved.begin(), c.moved.end());
    table.rows.push_back({c.name, Cell(most(c.moved, 0, c.token, 99)), Cell(c.moved[c.token]),
                          c.token == 9 ? Cell("–") : Cell(most(c.moved, c.token + 1, 10, 99)),
                          Cell(most(c.moved, 10, 20, 99))});
  }
  for (Dim i = 0; i < kSequences * kRows; ++i) map.columns.push_back(concat("s", i / kRows, " p", i % kRows));
  r.document.parts.push_back(std::move(table));
  r.document.parts.push_back(std::move(map));
  return r;
}

}  // namespace rapt
