// SPDX-License-Identifier: Apache-2.0
// rapt tokenize: text to ids and back.
#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

std::string id_line(std::span<const std::int32_t> ids) {
  std::string line;
  for (std::int32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return line + "\n";
}

int run(Args& args) {
  const bool json = args.flag("json"), special = args.flag("special"), decode = args.flag("decode"),
             frame = args.flag("frame");
  args.flag("quiet");
  const std::vector<std::string> words =
      args.operands(1, std::size_t{1} << 20, "a model, and a text in quotes");
  if (!decode && words.size() > 2)
    fail_usage("one text, please: put it in quotes (got ", words.size() - 1, " words)");
  std::string text = words.size() > 1 ? words[1] : "-";
  if (decode)
    for (std::size_t i = 2; i < words.size(); ++i) text += " " + words[i];
  if (text == "-") text = read_stdin(std::size_t{1} << 30);

  const std::string path = find_model(words[0]);
  // A llama2.c tokenizer does not know how many of its pieces the model has; the model (small, in this
  // format) tells.
  const std::shared_ptr<const Tokenizer> tokenizer =
      path.ends_with(".bin") ? open_checkpoint(path).tokenizer : open_tokenizer(path);
  if (!tokenizer) fail(words[0], " has no tokenizer");
  if (decode) {
    const std::vector<std::int32_t> ids = parse_ids(text, "--decode");
    for (std::int32_t id : ids)
      if (id >= tokenizer->size())
        fail_usage("--decode: token ", id, " is outside the vocabulary of ", tokenizer->size());
    const std::string out = tokenizer->decode(ids, special);
    print(json ? bytes_json(out).dump() + "\n" : for_stdout(out) + "\n");
    return 0;
  }
  std::vector<std::int32_t> ids = tokenizer->encode(text, special);
  if (frame) ids = tokenizer->frame(std::move(ids));
  if (!json) {
    print(id_line(ids));
    return 0;
  }
  Json::Array rows;
  for (std::int32_t id : ids) {
    Json row = Json::Object{};
    row.set("id", static_cast<Dim>(id));
    row.set("token", bytes_json(tokenizer->text_of(id)));
    row.set("text", bytes_json(tokenizer->bytes_of(id)));
    rows.push_back(std::move(row));
  }
  print(Json(std::move(rows)).dump() + "\n");
  return 0;
}

}  // namespace

extern const Verb kTokenize;
const Verb kTokenize = {
    "tokenize", "text to token ids, and back",
    "Usage: rapt tokenize MODEL [TEXT] [--special] [--frame] [--json]\n"
    "       rapt tokenize MODEL --decode [IDS…] [--special] [--json]\n"
    "\n"
    "Ids on one line with spaces between them, without beginning- or end-of-text. TEXT - (or none) reads\n"
    "standard input as one text, its last newline included. Only the tokenizer is read, not the weights.\n"
    "\n"
    "  --special   the names of special tokens inside TEXT become these tokens (otherwise they are text\n"
    "              like any other); with --decode: special tokens are written out\n"
    "  --frame     with what the model expects around a text: <s>, [CLS] … [SEP]\n"
    "  --decode    ids to text\n"
    "  --json      a list of id, token and text\n"
    "  --quiet     no notes\n"
    "\n"
    "Examples:\n"
    "  rapt tokenize model.gguf 'Hello, world'\n"
    "  rapt tokenize model.gguf - < book.txt | wc -w\n"
    "  rapt tokenize model.gguf --decode 19556 28 905\n",
    run};

}  // namespace rapt::cli
