// SPDX-License-Identifier: Apache-2.0
// rapt inspect steps: attention of one query, step by step.
#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/inspect/steps.h"
#include "rapt/io/reader.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args& args) {
  StepsOptions o;
  constexpr Dim kMost = Dim{1} << 40;
  o.layer = static_cast<int>(args.number("layer", -65536, 65536).value_or(0));
  o.head = static_cast<int>(args.number("head", 0, 65536).value_or(0));
  o.token = args.number("token", -kMost, kMost).value_or(-1);
  const auto out = args.value("out");
  const Language language = language_of(args);
  return [=](const ViewRequest& s) {
    if (out && !out->ends_with(".svg"))
      fail_usage("--out: the steps are a picture in SVG, and '", *out, "' does not end in .svg");
    if (out) check_can_write(*out, s.force);
    const AttentionSteps steps = attention_steps(s.device(), s.net(), s.ids, o, s.source);
    const Document d = steps_document(s, steps);
    if (out) {
      std::vector<std::string> words = s.words_of(last_stack(s.net()));
      while (words.size() < steps.keys.size()) words.insert(words.begin(), "sink");
      FileWriter file(*out, s.force);
      file.write(steps_svg(steps, words, language));
      file.commit();
      if (!s.common.quiet) note(concat(*out, ": ", d.title.in(language)));
    }
    return in_language(d, language);
  };
}

}  // namespace

extern const View kStepsView;
const View kStepsView = {.name = "steps",
                         .summary = "attention of one query in its three steps, with numbers",
                         .flags =
                             "  --layer L, --head H  whose (0 and 0); --layer -1: the last one\n"
                             "  --token N            the query, from 0; -1 (default): the last token\n"
                             "  --out FILE.svg       the three steps as one picture\n"
                             "  --lang L             its words: en or zh\n",
                         .parse = parse,
                         .file = true};

}  // namespace rapt::cli
