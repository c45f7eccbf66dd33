// SPDX-License-Identifier: Apache-2.0
// rapt lab streaming MODEL TEXT: StreamingLLM's table on a model of one's own.
#include <filesystem>

#include "rapt/apps/cli/lab.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt::cli {
namespace {

std::string cell(const StreamingRow& r, const StreamingReport& all) {
  return concat(r.keep, "+", all.window);
}

void print_table(const StreamingReport& r, const std::string& model, const std::string& text) {
  std::string head = "| keep + window |", line = "|---|", values = "| perplexity |",
              against = "| against reading anew |";
  for (const StreamingRow& row : r.rows) {
    head += concat(" ", cell(row, r), " |");
    line += "---|";
    values += concat(" ", fixed(row.perplexity, 2), " |");
    against += concat(" ", fixed(100 * (row.perplexity / r.recomputed_perplexity - 1), 1), " % |");
  }
  if (r.recomputed > 0) {
    head += concat(" read anew, ", r.recomputed, " |");
    line += "---|";
    values += concat(" ", fixed(r.recomputed_perplexity, 2), " |");
    against += " |";
  }
  print(concat(model, ", ", text, ": ", with_commas(r.tokens), " tokens, the next token's probability at ",
               with_commas(r.samples), " positions.\n\n", head, "\n", line, "\n", values, "\n"));
  if (r.recomputed > 0) print(against + "\n");
  print(
      "\n| keep + window | ms per token: beginning | middle | end | pages: beginning | middle | end |\n"
      "cache | text read in |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const StreamingRow& row : r.rows) {
    std::string cells = concat("| ", cell(row, r), " |");
    for (double seconds : row.token_seconds) cells += concat(" ", fixed(1000 * seconds, 2), " |");
    for (std::size_t pages : row.pages) cells += concat(" ", pages, " |");
    print(concat(cells, " ", byte_count(static_cast<double>(row.bytes[2])), " | ", fixed(row.seconds, 0),
                 " s |\n"));
  }
}

Json streaming_json(const StreamingReport& r, const std::string& model, const std::string& text) {
  Json all = Json::Object{{"experiment", "streaming"}, {"model", model},       {"text", text},
                          {"tokens", r.tokens},        {"samples", r.samples}, {"window", r.window}};
  Json::Array rows;
  for (const StreamingRow& row : r.rows) {
    Json j = Json::Object{
        {"keep", row.keep}, {"nll", row.nll}, {"perplexity", row.perplexity}, {"seconds", row.seconds}};
    Json::Array seconds, pages, bytes;
    for (int i = 0; i < 3; ++i) {
      seconds.emplace_back(row.token_seconds[i]);
      pages.emplace_back(static_cast<Dim>(row.pages[i]));
      bytes.emplace_back(static_cast<Dim>(row.bytes[i]));
    }
    j.set("token_seconds", std::move(seconds));
    j.set("pages", std::move(pages));
    j.set("bytes", std::move(bytes));
    rows.push_back(std::move(j));
  }
  all.set("rows", std::move(rows));
  if (r.recomputed > 0)
    all.set("recomputed", Json::Object{{"tokens", r.recomputed},
                                       {"nll", r.recomputed_nll},
                                       {"perplexity", r.recomputed_perplexity},
                                       {"seconds", r.recomputed_seconds}});
  return all;
}

}  // namespace

int lab_streaming(const StreamingOptions& o, const CommonArgs& common,
                  const std::vector<std::string>& words) {
  const std::string path = find_model(words[1]), name = std::filesystem::path(path).filename().string();
  const std::string text_name = std::filesystem::path(words[2]).filename().string();

  std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(path);
  if (!tokenizer) fail(path, ": no tokenizer, so a text cannot be read");
  std::vector<std::int32_t> ids = tokenizer->encode(read_text_file(words[2], std::uint64_t{1} << 30));
  if (tokenizer->add_bos && tokenizer->bos >= 0) ids.insert(ids.begin(), tokenizer->bos);
  if (static_cast<Dim>(ids.size()) < o.tokens)
    fail(words[2], ": ", with_commas(static_cast<Dim>(ids.size())), " tokens, ", with_commas(o.tokens),
         " are asked for; give a longer text or --tokens");

  Device device({.threads = common.threads, .pin = true});
  note_threads(device, common);
  std::unique_ptr<Progress> bar;
  std::string what;
  const StreamingReport r =
      run_streaming(device, path, ids, o, [&](const std::string& now, Dim done, Dim of, double perplexity) {
        if (now != what) bar = std::make_unique<Progress>(what = now, common.quiet);
        bar->step(static_cast<double>(done), static_cast<double>(of),
                  concat("perplexity ", fixed(perplexity, 2)));
      });
  bar.reset();
  if (common.json) print(streaming_json(r, name, text_name).dump() + "\n");
  else print_table(r, name, text_name);
  return 0;
}

}  // namespace rapt::cli
