// SPDX-License-Identifier: Apache-2.0
// rapt inspect tensors: what a pass computes, by name: listed, summed up, written to files, with edits of
// the pass.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/capture.h"
#include "rapt/inspect/edits.h"
#include "rapt/inspect/point_gradients.h"

namespace rapt::cli {
namespace {

struct Options {
  std::vector<std::string> points, edits;
  std::optional<std::string> save, gradient;
  double most_bytes = 0;
};

Document list(const Subject& s) {
  Document d{.name = "tensors", .title = concat("Points of ", model_name(s.checkpoint)), .parts = {}};
  d.parts.push_back(Words{
      "L is a layer's number, -1 the last layer, * all of them; T are the tokens of the text, S those of the "
      "source. --points shows "
      "some of them, --out writes them, --edit changes the pass where the last column says yes."});
  Table table{.title = "", .columns = {"point", "layers", "shape", "in TransformerLens", "edit"}, .rows = {}};
  Json::Array points;
  for (const PointLine& line : list_points(s.net())) {
    table.rows.push_back({line.name, line.first < 0 ? "" : std::to_string(line.layers),
                          shape_text(line.example), line.lens, line.example.fixed.empty() ? "yes" : "no"});
    points.push_back(Json::Object{{"point", line.name},
                                  {"layers", line.first < 0 ? Json() : Json(line.layers)},
                                  {"shape", shape_text(line.example)},
                                  {"transformer_lens", line.lens.empty() ? Json() : Json(line.lens)},
                                  {"editable", line.example.fixed.empty()}});
  }
  d.facts.set("points", std::move(points));
  d.parts.push_back(std::move(table));
  return d;
}

struct Summary {
  double mean = 0, rms = 0, least = INFINITY, most = -INFINITY;
  Dim hidden = 0;  // scores of keys that are not seen
  Dim broken = 0;  // NaN, or infinite where nothing is hidden
};

Summary summary(const Captured& t, bool scores) {
  Summary s;
  double sum = 0, square = 0;
  Dim n = 0;
  for (float value : t.values) {
    const double v = static_cast<double>(value);
    if (!std::isfinite(v)) {
      ++(scores && v < 0 ? s.hidden : s.broken);
      continue;
    }
    sum += v, square += v * v, ++n;
    s.least = std::min(s.least, v), s.most = std::max(s.most, v);
  }
  const double count = static_cast<double>(std::max<Dim>(1, n));
  s.mean = sum / count, s.rms = std::sqrt(square / count);
  return s;
}

// Nothing is differentiated through matrices in blocks: then the file is read once more, as exact numbers.
PointGradients gradients_of(const ViewRequest& s, const Options& o, std::span<const std::string> points,
                            double most_bytes) {
  const Metric metric = parse_metric(*o.gradient, s.tokenizer());
  const auto& weights = s.net().weights;
  const bool blocks =
      std::any_of(weights.begin(), weights.end(), [](const Weight& w) { return is_block(w.format); });
  if (!blocks)
    return point_gradients(s.device(), s.net(), ask_points(s.net(), points), metric, s.ids, s.source,
                           most_bytes);
  note("note: for gradients the matrices are read as f32, and products are those of floats");
  const Checkpoint floats = open_checkpoint(
      s.checkpoint.path,
      {.matrices = DType::f32, .device = &s.device(), .tower = s.ids.picture ? Tower::vision : Tower::text});
  return point_gradients(s.device(), *floats.model, ask_points(*floats.model, points), metric, s.ids,
                         s.source, most_bytes);
}

Document show(const ViewRequest& s, const Options& o) {
  if (o.points.empty()) return list(s);
  const std::vector<Asked> asked = ask_points(s.net(), o.points);
  if (o.save) check_capture_name(*o.save, asked.size());
  std::vector<Edit> edits;
  for (const std::string& text : o.edits) edits.push_back(parse_edit(text));
  Taps taps;
  const auto check = install_edits(taps, s.net(), edits);
  CaptureOptions options{.taps = &taps};
  if (o.most_bytes > 0) options.most_bytes = o.most_bytes;
  PointGradients gradients;
  if (o.gradient) gradients = gradients_of(s, o, o.points, options.most_bytes);
  const Capture got = o.gradient ? std::move(gradients.tensors)
                                 : capture(s.device(), s.net(), asked, s.ids, s.source, options);
  if (!o.gradient) check();
  if (o.save) write_capture(got, *o.save, s.force);

  Document d{.name = "tensors",
             .title = concat("Tensors of ", model_name(s.checkpoint), " on ",
                             counted(static_cast<Dim>(s.ids.size()), "token")),
             .parts = {}};
  if (o.gradient)
    d.parts.push_back(Words{
        say("inspect.gradient", metric_text(gradients.metric, s.tokenizer()), fixed(gradients.value, 5))});
  if (!o.edits.empty()) d.parts.push_back(Words{concat("The pass was changed: ", join(o.edits), ".")});
  Table table{.title = "", .columns = {"point", "shape", "mean", "rms", "least", "most"}, .rows = {}};
  Json::Array tensors;
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const Captured& t = got.tensors[i];
    const Summary sum = summary(t, asked[i].point.kind == Point::Kind::scores);
    std::string shape;
    Json::Array sizes;
    for (Dim size : t.shape) shape += concat(shape.empty() ? "" : ",", size), sizes.emplace_back(size);
    table.rows.push_back({t.name, concat("[", shape, "]"), Cell(sum.mean, 5), Cell(sum.rms, 5),
                          Cell(sum.least, 4), Cell(sum.most, 4)});
    tensors.push_back(Json::Object{{"point", t.name},
                                   {"shape", std::move(sizes)},
                                   {"mean", sum.mean},
                                   {"rms", sum.rms},
                                   {"least", std::isfinite(sum.least) ? Json(sum.least) : Json()},
                                   {"most", std::isfinite(sum.most) ? Json(sum.most) : Json()},
                                   {"not_finite", sum.broken}});
    if (sum.broken > 0)
      note(concat("warning: ", t.name, " holds ", with_commas(sum.broken),
                  sum.broken == 1 ? " value" : " values", " that are NaN or infinite"));
  }
  d.parts.push_back(std::move(table));
  if (o.save) d.parts.push_back(Words{concat("Written to ", *o.save, ".")});
  d.facts.set("tensors", std::move(tensors));
  Json::Array edits_json;
  for (const std::string& e : o.edits) edits_json.emplace_back(e);
  d.facts.set("edits", std::move(edits_json));
  if (o.save) d.facts.set("file", *o.save);
  if (o.gradient) {
    d.facts.set("gradient_of", metric_json(gradients.metric));
    d.facts.set("metric_value", gradients.value);
  }
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  Options o;
  for (const std::string& list : args.values("points"))
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(',', at), list.size());
      if (end > at) o.points.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  o.edits = args.values("edit");
  o.save = args.value("out");
  o.gradient = args.value("gradient");
  o.most_bytes = 1048576.0 * static_cast<double>(args.number("max-mib", 1, Dim{1} << 30).value_or(0));
  if (o.save && o.points.empty())
    fail_usage("--out writes points: name them with --points (without it all there are is listed)");
  if (o.gradient && o.points.empty())
    fail_usage("--gradient is taken at points: name them with --points (without it all there are is listed)");
  if (o.gradient && !o.edits.empty())
    fail_usage(
        "--gradient and --edit: a gradient passes through an edit as if there were none, so it would not "
        "be that of the changed pass; give one of the two");
  return [o](const ViewRequest& s) { return show(s, o); };
}

}  // namespace

extern const View kTensorsView;
const View kTensorsView = {
    "tensors",
    "any tensor of the pass by name (also TransformerLens's names), into files; edits of the pass",
    "  --points A,B,…       which: resid_post.5, attn_weights.*, blocks.3.attn.hook_z, k6 … (without it:\n"
    "                       lists all there are)\n"
    "  --out FILE           into FILE.safetensors, FILE.npy (one point) or a folder of .npy (a name\n"
    "                       without an ending)\n"
    "  --gradient METRIC    d METRIC / d each number of the points instead of the numbers: loss (of the\n"
    "                       text), logit=TOKEN, difference=TOKEN,TOKEN or logprob=TOKEN; TOKEN and\n"
    "                       @POSITION as in attribution; quantized matrices are read as f32\n"
    "  --edit SPEC          changes the pass, may come many times: POINT[@HEAD][@POSITION]:OP[=VALUE] with\n"
    "                       OP zero, mean, scale, add, replace, project_out or swap and VALUE a number,\n"
    "                       .npy or .safetensors[#TENSOR] @3 is a head at points with heads (q, k, value,\n"
    "                       z …), a position elsewhere; @h3 and @p3 make it certain, @-1 is the last\n"
    "                       position. attn_weights.L@HEAD@POSITION@KEY:zero takes a weight away,\n"
    "                       attn_scores.L@HEAD@POSITION@KEY:mask the key. Every operation with examples:\n"
    "                       docs/edits.md\n"
    "  --max-mib N          the most that the tensors may take (1024)\n",
    parse,
    1,
    View::Needs::text,
    false,
    true};

}  // namespace rapt::cli
