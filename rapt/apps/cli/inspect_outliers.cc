// SPDX-License-Identifier: Apache-2.0
// rapt inspect outliers: channels that spoil int8 rounding. Not massive activations: see inspect_massive.cc.
#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/outliers.h"

namespace rapt::cli {
namespace {

Table feature_table(std::string title, const std::vector<OutlierFeature>& features) {
  Table t{.title = std::move(title),
          .columns = {"channel", "in layers %", "in rows %", "largest |x|"},
          .rows = {}};
  for (const OutlierFeature& f : features)
    t.rows.push_back({Cell(static_cast<double>(f.channel), 0), Cell(100 * f.layers, 1),
                      Cell(100 * f.tokens, 1), Cell(f.largest, 1)});
  return t;
}

Json features_json(const std::vector<OutlierFeature>& features) {
  Json::Array out;
  for (const OutlierFeature& f : features) {
    Json j = Json::Object{};
    j.set("channel", f.channel);
    j.set("layers", f.layers);
    j.set("rows", f.tokens);
    j.set("largest", f.largest);
    out.push_back(std::move(j));
  }
  return out;
}

Document view(const Subject& s, const OutlierOptions& o) {
  Document d{.name = "outliers", .title = concat("Outlier features: ", model_line(s)), .parts = {}};
  const std::string rule = concat("|x| of ", shortest(o.magnitude), " or more in at least ",
                                  shortest(100 * o.layers), " % of the layers and ", shortest(100 * o.tokens),
                                  " % of the rows that linear layers read (after the norm)");
  Json::Array stacks;
  for (const Outliers& x : outliers(s.device(), s.net(), s.ids, s.source, o)) {
    const std::string prefix = stack_prefix(s.net(), x.stack);
    d.parts.push_back(Words{concat(
        prefix.empty() ? "" : concat("In the ", prefix, "stack: "), x.features.size(), " of ", x.width,
        " channels ", x.features.size() == 1 ? "is an outlier feature: " : "are outlier features: ", rule,
        " (Dettmers et al. 2022). These are not massive activations, "
        "which are single numbers of the residual "
        "stream: for those see `rapt inspect massive`.")});
    if (!x.features.empty()) d.parts.push_back(feature_table(concat(prefix, "outlier features"), x.features));
    if (!x.next.empty())
      d.parts.push_back(feature_table(concat(prefix, "closest channels that do not meet the rule"), x.next));
    Table t{.title = concat(
                prefix,
                "Each row rounded to int8 with one scale: error of the other channels in % of their size"),
            .columns = {"layer", "read by", "large channels", "largest |x|", "error %", "outliers apart %"},
            .rows = {}};
    Chart chart{.title = concat(prefix, "int8 error of the other channels"),
                .x_label = "layer",
                .y_label = "error %",
                .curves = {{.name = "attention", .x = {}, .y = {}},
                           {.name = "attention, outliers apart", .x = {}, .y = {}},
                           {.name = "feed-forward", .x = {}, .y = {}},
                           {.name = "feed-forward, outliers apart", .x = {}, .y = {}}}};
    Json::Array inputs;
    for (const OutlierInput& in : x.inputs) {
      t.rows.push_back({std::to_string(in.layer), in.ffn ? "feed-forward" : "attention",
                        Cell(static_cast<double>(in.large), 0), Cell(in.largest, 1), Cell(100 * in.error, 2),
                        Cell(100 * in.apart, 2)});
      for (int apart = 0; apart < 2; ++apart) {
        Curve& curve = chart.curves[static_cast<std::size_t>(2 * in.ffn + apart)];
        curve.x.push_back(in.layer);
        curve.y.push_back(100 * (apart ? in.apart : in.error));
      }
      Json j = Json::Object{};
      j.set("layer", in.layer);
      j.set("ffn", in.ffn);
      j.set("large_channels", in.large);
      j.set("largest", in.largest);
      j.set("int8_error", in.error);
      j.set("int8_error_outliers_apart", in.apart);
      inputs.push_back(std::move(j));
    }
    d.parts.push_back(std::move(t));
    if (x.layers > 1) d.parts.push_back(std::move(chart));
    Json j = Json::Object{};
    j.set("stack", stack_name(x.stack));
    j.set("features", features_json(x.features));
    j.set("next", features_json(x.next));
    j.set("inputs", std::move(inputs));
    stacks.push_back(std::move(j));
  }
  d.facts.set("stacks", std::move(stacks));
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  OutlierOptions o;
  o.magnitude = args.real("above").value_or(o.magnitude);
  o.layers = args.real("layers").value_or(o.layers);
  o.tokens = args.real("rows").value_or(o.tokens);
  for (double share : {o.layers, o.tokens})
    if (share < 0 || share > 1) fail_usage("--layers and --rows are shares between 0 and 1");
  return [o](const ViewRequest& s) { return view(s, o); };
}

}  // namespace

extern const View kOutliersView;
const View kOutliersView = {"outliers",
                            "channels that are large everywhere and spoil int8 (not massive activations)",
                            "  --above X            |x| from which on a number is large (6)\n"
                            "  --layers X           share of the layers in which a channel must be\n"
                            "                       large (0.25)\n"
                            "  --rows X             share of the rows in which it must be large (0.06)\n",
                            parse};

}  // namespace rapt::cli
