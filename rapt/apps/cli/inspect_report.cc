// SPDX-License-Identifier: Apache-2.0
// rapt inspect report: all of it on one page that a browser opens without a network.
#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/inspect/report.h"
#include "rapt/io/reader.h"

namespace rapt::cli {

extern const View kReportView;

namespace {

Document view(const ViewRequest& s, ReportOptions options) {
  const std::string file = s.html.empty() ? report_name(s.checkpoint) + ".html" : s.html;
  check_can_write(file, s.force);  // before the work, not after it
  Progress bar("looking inside", s.common.quiet);
  options.progress = [&](int done, int of) { bar.step(done, of); };
  options.note = [](const std::string& text) { note("note: " + text); };
  const Page page = report_page(s, options);
  bar.clear();

  const std::string html = page_html(page);
  FileWriter out(file, s.force);
  out.write(html);
  out.commit();
  Document d{.name = "report", .title = concat("Report: ", model_line(s)), .parts = {}};
  d.parts.emplace_back(Words{concat(file, " (", byte_count(static_cast<double>(html.size())),
                                    ") opens in any browser and needs no network.")});
  d.parts.emplace_back(head_kinds(page));
  d.facts.set("file", file);
  d.facts.set("bytes", static_cast<std::int64_t>(html.size()));
  return d;
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  ReportOptions f{.pixels = args.number("pixels", 1, 4096).value_or(0),
                  .keys = args.number("keys", 1, 64).value_or(0),
                  .lens = !args.flag("no-lens"),
                  .stack = stack_arg(args)};
  return [f](const ViewRequest& s) { return view(s, f); };
}

}  // namespace

const View kReportView = {
    .name = "report",
    .summary = "all of it on one page: linked maps, arcs, lens, norms (MODEL.html, or --html FILE)",
    .flags =
        "  --pixels N           side of each head's map (of 1,000 tokens what fits a\n"
        "                       file of about 5 MB)\n"
        "  --keys N             strongest keys kept of each token and head\n"
        "                       (likewise)\n"
        "  --stack NAME         of an encoder-decoder: encoder (default) or decoder\n"
        "  --no-lens            without the logit lens, which takes most of the time\n",
    .parse = parse,
    .page = true};

}  // namespace rapt::cli
