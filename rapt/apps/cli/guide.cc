// SPDX-License-Identifier: Apache-2.0
// rapt guide: what people write about attention, and what the laboratory measured. The data and how it is
// shown: rapt/lab/guide.h.
#include "rapt/lab/guide.h"

#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/apps/cli/verb.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt::cli {
namespace {

Text title_of(const GuideTopic& t) { return say(concat("guide.", t.name, ".title")); }

void list(bool json, Language language) {
  Json::Array all;
  Table table{.columns = {say("guide.topic"), say("guide.about"), say("guide.sentences")}};
  for (const GuideTopic& t : guide_topics()) {
    all.push_back(Json::Object{
        {"name", t.name}, {"title", title_of(t)}, {"questions", static_cast<Dim>(t.questions.size())}});
    table.rows.push_back({t.name, title_of(t), Cell(static_cast<double>(t.questions.size()), 0)});
  }
  const Document d{.parts = {table, Words{say("guide.list_end")}}};
  print(json ? Json(std::move(all)).dump() + "\n"
             : document_text(d, color_on_stdout(), columns_of_stdout(), language));
}

// Nothing is written where one of the files could not be.
void write_pages(const std::string& folder, bool force) {
  const auto files = guide_files();
  for (const auto& [path, text] : files) {
    const std::filesystem::path to = std::filesystem::path(folder) / path;
    std::error_code error;
    std::filesystem::create_directories(to.parent_path(), error);
    if (error) fail("--pages: ", to.parent_path().string(), ": ", error.message());
    check_can_write(to.string(), force);
  }
  for (const auto& [path, text] : files) {
    FileWriter out((std::filesystem::path(folder) / path).string(), force);
    out.write(text);
    out.commit();
  }
  note(concat(files.size(), " files in ", folder));
}

int run(Args& args) {
  const bool json = args.flag("json"), force = args.flag("force");
  const Language language = language_of(args);
  const auto html = args.value("html"), pages = args.value("pages");
  const std::vector<std::string> words = args.operands(0, 1, "one topic of the guide, or none");
  if (pages) {
    if (html || json || !words.empty()) fail_usage("--pages writes the whole guide and takes --force only");
    write_pages(*pages, force);
    return 0;
  }
  std::vector<Document> documents;
  for (const GuideTopic& t : guide_topics())
    if (words.empty() || &find_topic(words[0]) == &t) documents.push_back(guide_document(t));
  if (html) {
    FileWriter out(*html, force);
    out.write(documents_html(say("guide.title"), documents, language));
    out.commit();
  } else if (words.empty()) {
    list(json, language);
  } else {
    print(json ? document_json(documents[0]).dump() + "\n"
               : document_text(documents[0], color_on_stdout(), columns_of_stdout(), language));
  }
  return 0;
}

}  // namespace

extern const Verb kGuide;
const Verb kGuide = {
    "guide", "what people write about attention: right, imprecise or wrong",
    "Usage: rapt guide [TOPIC] [--lang zh] [--html FILE] [--json]\n"
    "       rapt guide --pages FOLDER [--force]\n"
    "\n"
    "Statements of the kind found in study notes, each marked right, imprecise or wrong, with the reason,\n"
    "the command that shows it, a picture, and the papers' numbers beside those that rapt lab measured.\n"
    "Without a topic: the list of topics.\n"
    "\n"
    "  --lang LANGUAGE  en or zh (RAPT_LANG, LC_ALL, LC_MESSAGES, LANG; en)\n"
    "  --html FILE      one page that needs no network, in both languages\n"
    "  --pages FOLDER   the whole guide as Markdown and pictures in both languages (docs/guide)\n"
    "  --force          write over files that exist\n"
    "  --json           as JSON\n"
    "\n"
    "Examples:\n"
    "  rapt guide\n"
    "  rapt guide norms --lang zh\n"
    "  rapt guide --html guide.html\n",
    run};

}  // namespace rapt::cli
