// SPDX-License-Identifier: Apache-2.0
// The list of all experiments; then results as documents: one run, a report over seeds, its Markdown.
#include "rapt/lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "rapt/base/text.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/experiments_math.h"

namespace rapt {
namespace {

// What is seen without training, then what training shows.
template <LabResult (*first)(const Lab&), LabResult (*second)(const Lab&)>
LabResult both(const Lab& lab) {
  LabResult a = first(lab), b = second(lab);
  std::move(b.findings.begin(), b.findings.end(), std::back_inserter(a.findings));
  a.verdict += " " + b.verdict;
  std::move(b.document.parts.begin(), b.document.parts.end(), std::back_inserter(a.document.parts));
  for (const Json::Member& m : b.document.facts.object()) a.document.facts.set(m.key, m.value);
  return a;
}

// clang-format off
const Experiment kExperiments[] = {
    // How attention scores
    {"scale", "Why are scores divided by the root of the head's size?",
     "Without the division dot products grow with the size, and gradients explode.", 0.1, scale},
    {"score", "Why the scaled dot product and no other score?",
     "Dot products are cheaper than cosine, distance or an additive score because they take O(d), and they "
     "work better on much data.", 0.5,
     both<score_math, score_quality>},
    {"cost", "What does attention cost, and against what?",
     "A recurrent layer is O(n), attention is O(n^2).", 0.5, cost},
    {"heads", "Why many heads and not one?",
     "Each head looks at something else, so many see more than one.", 0.5, heads},
    {"gqa", "What do fewer key and value heads cost?",
     "Sharing keys and values among heads saves memory at almost no loss; "
     "MQA's heads all attend to the same information.", 0.5,
     both<gqa_math, gqa_quality>},
    {"mla", "What does one latent per token keep that shared heads do not?",
     "A latent for all keys and values takes less cache than GQA and is better than MHA.", 0.3, mla},
    {"distance", "Why does attention reach far?",
     "Between two tokens there is one step in attention and as many as they are "
     "apart in a recurrent network.", 0.5, long_distance},
    {"moe", "What do experts hold that a dense net of the same cost does not?",
     "A mixture has the quality of a dense net as large as all its experts, at the cost of a few.", 0.3, moe},
    {"masks", "What happens when a mask is missing or the batch axis is wrong?",
     "Shapes fit, so the code is right.", 0.1, masks},
    // Positions
    {"positions", "What do position codes really promise?",
     "Sinusoids tell positions apart and extrapolate to longer texts; rotations make scores relative.", 0.5,
     both<positions_math, positions_extrapolation>},
    // Biases
    {"key-bias", "Does a bias on the keys do anything?",
     "The key bias is mathematically redundant.", 0.1, key_bias},
    {"value-bias", "What does a bias on the values do?",
     "The value bias shifts the output and is the most important of the three.", 0.1, value_bias},
    {"query-bias", "What does a bias on the queries do?",
     "The query bias matters less than the others.", 0.1, query_bias},
    {"norm-bias", "Which norm cancels a bias before it?",
     "A LayerNorm usually follows the projections and cancels their bias.", 0.1, norm_bias},
    {"cache-bias", "Why do quantized key caches break models with key biases?",
     "Four bits per key are enough, whatever the model.", 0.2, cache_bias},
    // Norms and depth
    {"norm-place", "Norm before or after the branch?",
     "Post-norm makes gradients explode or vanish; pre-norm needs no warm-up.", 0.5, both<norm_place_math,
     norm_place_training>},
    {"residual", "What would attention be without residual connections?",
     "Residual connections are there for the gradient.", 0.2, residual},
    {"rms-vs-layer", "What is lost when the mean is not subtracted?",
     "RMSNorm saves 10 to 40 % of the computation at equal quality.", 0.5, rms_vs_layer},
    {"batchnorm", "Why is there no BatchNorm in Transformers?",
     "Its parameters generalise badly to texts of other lengths.", 0.5, batchnorm},
    {"qk-norm", "What does a norm on queries and keys prevent?",
     "It keeps mean 0 and variance 1 and so prevents vanishing gradients.", 0.5, qk_norm},
    {"v-norm", "Why are values not normed?",
     "Values must not be normed, or they would lose information.", 0.5, v_norm},
    // Sinks and gates
    {"sink", "Why does attention pile up on the first token?",
     "The first token has a huge norm, so its dot products are large.", 0.5, sink},
    {"massive", "Are massive activations and attention sinks one coin?",
     "Massive activations cause the sink; whatever removes one removes the other.", 0.5, massive},
    {"quant", "What do massive activations cost in int8?",
     "They are the biggest enemy of quantization.", 0.5, quant},
    {"streaming", "Why does a sliding window collapse, and why do a few kept tokens repair it?",
     "Always keep the first four tokens, and the text may be endless.", 0.5, streaming_toy},
    {"gate", "What does a gate after attention do?",
     "Gates make attention sparse and non-linear, so the loss falls.", 0.8, gate},
};
// clang-format on

std::string shown(const Finding& f) {  // "0.53 x": four significant digits are enough to compare seeds
  char text[64];
  const double size = std::abs(f.measured);
  std::snprintf(text, sizeof text, size != 0 && (size < 1e-3 || size >= 1e6) ? "%.1e" : "%.4g", f.measured);
  return f.unit.empty() || f.unit == "x" || f.unit == "%" ? text + f.unit : concat(text, " ", f.unit);
}

std::string without_numbers(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789", kOfNumbers = "0123456789+-.";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool exponent = text[i] == 'e' && i > 0 && kDigits.find(text[i - 1]) != kDigits.npos;  // 2.6e-10
    if (!exponent && kOfNumbers.find(text[i]) == kOfNumbers.npos) out += text[i];
  }
  return out;
}

// A verdict is written for the full number of steps and samples.
std::string verdict_of(double effort, std::string_view more, std::string_view verdict) {
  return concat("Verdict", more,
                effort < 1 ? concat(" (made for effort 1, this was ", shortest(effort), ")") : "", ": ",
                verdict);
}

// Words of the tables, each explained where it stands in what was said.
struct Term {
  std::vector<const char*> seen;
  const char* means;
};
std::string explained(std::string_view said) {
  static const Term kTerms[] = {
      {{"copying row", "copying rows", "opying task", "opy task", "idle"},
       "The copying task: tokens of a random chain after one token that begins; three of them mean \"repeat "
       "the token before\". Rows at "
       "these are copying rows, the others idle: they have nothing to look for."},
      {{"xcess loss", "xcess of"}, "Excess loss: nats above what nobody can go below."},
      {{"spike", "Spike"}, "Spikes: steps whose loss is 0.1 nats above the median of the 31 before."},
      {{"G1", "G2", "G3", "G4", "G5"},
       "G1 to G5: gates on what attention gives, on v, on k, on q, and after the output matrix."},
      {{" z ", " z,", " z.", "|z|"}, "z: what attention gives before the output matrix."},
      {{"b_q", "b_k", "b_v", "b_o", "W_O"},
       "b_q, b_k, b_v, b_o: biases of queries, keys, values and the output matrix W_O."},
      {{" d ", " d,", " d=", "d =", "(d)", " L ", " L,", "L ="},
       "d: size of a head, or of the model where it says width; L: layers."},
  };
  std::string out;
  for (const Term& t : kTerms)
    if (std::any_of(t.seen.begin(), t.seen.end(),
                    [&](const char* word) { return said.find(word) != said.npos; }))
      out += concat(out.empty() ? "" : " ", t.means);
  return out;
}

// Everything a document says, in one text.
std::string words_of(const Document& d) {
  std::string out = document_markdown(d);
  for (const auto& part : d.parts) {
    if (const auto* c = std::get_if<Chart>(&part)) {
      out += concat("\n", c->title, " ", c->x_label, " ", c->y_label);
      for (const Curve& k : c->curves) out += " " + k.name;
    }
    if (const auto* m = std::get_if<HeatMap>(&part)) out += concat("\n", m->title);
  }
  return out;
}

const char* mark(const Finding& f) { return f.holds ? "yes" : "no"; }

Json finding_json(const Finding& f) {
  return Json::Object{{"what", f.what},
                      {"measured", std::isfinite(f.measured) ? Json(f.measured) : Json()},
                      {"unit", f.unit},
                      {"expected", f.expected},
                      {"holds", f.holds},
                      {"paper", f.paper},
                      {"every_seed", f.every_seed}};
}

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

const Experiment& find_experiment(std::string_view name) {
  std::vector<std::string> names;
  for (const Experiment& e : kExperiments) {
    if (e.name == name) return e;
    names.push_back(e.name);
  }
  fail_usage("there is no experiment '", name, "'; ", name_hint(name, names));
}

Document lab_document(const Experiment& experiment, const LabResult& result, const Lab& lab, double seconds,
                      const LabOrigin& origin) {
  Document d{.name = experiment.name, .title = experiment.question};
  d.parts.push_back(Words{concat("The story: ", experiment.claim)});
  Table t{.title = "Measured", .columns = {"what", "measured", "expected", "so", "papers"}};
  Json::Array findings;
  for (const Finding& f : result.findings) {
    t.rows.push_back(
        {f.what, shown(f), f.expected + (f.every_seed ? "" : " (either way)"), mark(f), f.paper});
    findings.push_back(finding_json(f));
  }
  d.parts.push_back(std::move(t));
  d.parts.push_back(Words{verdict_of(lab.effort, "", result.verdict)});
  d.parts.insert(d.parts.end(), result.document.parts.begin(), result.document.parts.end());
  char time[32];
  std::snprintf(time, sizeof time, "%.1f", seconds);
  d.parts.push_back(Words{concat("Seed ", lab.seed, ", ", time, " s on ",
                                 counted(lab.device.threads(), "thread"), " (", lab.device.kernels.isa, ")",
                                 lab.effort < 1 ? concat(", effort ", shortest(lab.effort)) : "", ".")});
  d.facts = result.document.facts;
  d.facts.set("seed", static_cast<Dim>(lab.seed));
  d.facts.set("effort", lab.effort);
  for (const auto& [key, value] :
       {std::pair{"command", &origin.command}, std::pair{"program", &origin.program},
        std::pair{"machine", &origin.machine}, std::pair{"date", &origin.date}})
    if (!value->empty()) d.facts.set(key, *value);
  d.facts.set("seconds", seconds);
  d.facts.set("verdict", result.verdict);
  d.facts.set("findings", std::move(findings));
  return d;
}

std::vector<Document> lab_report(std::span<const Experiment* const> ran, std::span<const std::uint64_t> seeds,
                                 const std::vector<std::vector<LabResult>>& results,
                                 const LabOrigin& origin) {
  Document top{.title = "What was asked, and what held"};
  top.parts.push_back(Words{concat(
      "Made by `", origin.command, "`: ", origin.program, " on ", origin.machine, ", ", origin.date,
      ". Every number is measured by the program; \"yes\" and \"no\" say whether what was "
      "expected held with that seed. Effects marked \"either way\" are known to depend on the seed or on the "
      "machine and are "
      "reported as they came out. The summary counts what held with every seed.")});
  if (origin.effort < 1)
    top.parts.push_back(
        Words{concat("This was effort ", shortest(origin.effort),
                     ": that share of the training steps and samples. What is expected and the verdicts "
                     "are made for 1; with less "
                     "an effect may not have appeared yet, or appear by chance.")});
  Table summary{.columns = {"experiment", "question", "held"}};
  for (std::size_t e = 0; e < ran.size(); ++e) {
    std::size_t held[2] = {}, all[2] = {};  // either way, promised
    const std::size_t findings = results[e].empty() ? 0 : results[e][0].findings.size();
    for (std::size_t i = 0; i < findings; ++i) {
      const bool promised = results[e][0].findings[i].every_seed;
      all[promised] += 1;
      held[promised] += std::all_of(results[e].begin(), results[e].end(), [&](const LabResult& r) {
        return i < r.findings.size() && r.findings[i].holds;
      });
    }
    summary.rows.push_back({ran[e]->name, ran[e]->question,
                            concat(all[1] ? concat(held[1], " of ", all[1]) : "–",
                                   all[0] ? concat("; either way: ", held[0], " of ", all[0]) : "")});
  }
  top.parts.push_back(std::move(summary));
  std::vector<Document> out = {std::move(top)};
  for (std::size_t e = 0; e < ran.size(); ++e) {
    const std::vector<LabResult>& of = results[e];
    Document d{.name = ran[e]->name, .title = ran[e]->question};
    d.parts.push_back(Words{concat("The story: ", ran[e]->claim)});
    Table t{.columns = {"what", "expected"}};
    for (std::uint64_t s : seeds) t.columns.push_back(concat("seed ", s));
    t.columns.push_back("papers");
    const std::size_t rows = of.empty() ? 0 : of[0].findings.size();
    for (std::size_t i = 0; i < rows; ++i) {
      const Finding& f = of[0].findings[i];
      std::vector<Cell> row = {f.what, f.expected + (f.every_seed ? "" : " (either way)")};
      for (const LabResult& r : of) {
        if (r.findings.size() != rows)
          fail("lab: ", ran[e]->name, " has ", r.findings.size(), " findings with one seed, ", rows,
               " with another");
        row.push_back(concat(shown(r.findings[i]), ", ", mark(r.findings[i])));
      }
      row.push_back(f.paper);
      t.rows.push_back(std::move(row));
    }
    d.parts.push_back(std::move(t));
    const bool one =
        std::all_of(of.begin(), of.end(), [&](const LabResult& r) { return r.verdict == of[0].verdict; });
    // Seeds whose verdict differs from the first one's in its numbers only.
    std::vector<std::string> alike;
    for (std::size_t s = 0; s < of.size() && (s == 0 || !one); ++s) {
      if (s > 0 && without_numbers(of[s].verdict) == without_numbers(of[0].verdict))
        alike.push_back(concat(seeds[s]));
      else
        d.parts.push_back(
            Words{verdict_of(origin.effort, one ? "" : concat(" with seed ", seeds[s]), of[s].verdict)});
    }
    if (alike.size() == 1)
      d.parts.push_back(Words{concat("Seed ", alike[0], " says the same with other numbers.")});
    if (alike.size() > 1) {
      const std::string last = alike.back();
      alike.pop_back();
      d.parts.push_back(
          Words{concat("Seeds ", join(alike, ", "), " and ", last, " say the same with other numbers.")});
    }
    if (!of.empty()) d.parts.insert(d.parts.end(), of[0].document.parts.begin(), of[0].document.parts.end());
    out.push_back(std::move(d));
  }
  std::string said;
  for (std::size_t i = 1; i < out.size(); ++i) said += words_of(out[i]);
  if (std::string terms = explained(said); !terms.empty()) out[0].parts.push_back(Words{std::move(terms)});
  return out;
}

std::string lab_markdown(std::vector<Document> report) {
  std::string out = "# The laboratory\n";
  for (std::size_t i = 0; i < report.size(); ++i) {
    if (i > 0) report[i].title = concat(report[i].name, ": ", report[i].title);
    out += "\n" + document_markdown(report[i]);
  }
  return out;
}

}  // namespace rapt
