// SPDX-License-Identifier: Apache-2.0
// Tokenizers: text to ids and back, vocabularies from texts, files.
#include <filesystem>
#include <map>

#include "rapt/apps/python/model.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/train.h"
#include "rapt/text/words.h"

namespace rapt::python {
namespace {

using Ids = std::vector<std::int32_t>;
namespace fs = std::filesystem;

struct TokenizerHandle {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenizerFiles files;  // of one that was trained or read from JSON; else made when asked for
  std::string path;

  const Tokenizer& get() const { return *tokenizer; }
  TokenizerFiles as_files() const { return files.tokenizer_json.empty() ? tokenizer_files(get()) : files; }
  void check(const Ids& ids) const {
    for (const std::int32_t id : ids)
      if (id < 0 || id >= get().size())
        fail_usage("decode: token ", id, " is outside the vocabulary of ", get().size());
  }
};
using HandlePtr = std::shared_ptr<TokenizerHandle>;

HandlePtr of_model(const ModelPtr& m) {
  tokenizer_of(*m->checkpoint);
  return std::make_shared<TokenizerHandle>(m->checkpoint->tokenizer, TokenizerFiles{}, m->checkpoint->path);
}

HandlePtr open(const std::string& name) {
  const OutOfPython out(on_main_thread());
  const std::string path = fs::exists(name) && fs::is_directory(name) ? name : find_model(name);
  // A llama2.c tokenizer does not know how many of its pieces the model has; the model tells.
  auto found = path.ends_with(".bin") ? open_checkpoint(path).tokenizer : open_tokenizer(path);
  if (!found) fail(name, ": has no tokenizer");
  return std::make_shared<TokenizerHandle>(std::move(found), TokenizerFiles{}, path);
}

HandlePtr of_files(const std::string& json, const std::string& config) {
  auto t = tokenizer_from_json(json, config, "tokenizer");
  return std::make_shared<TokenizerHandle>(std::move(t), TokenizerFiles{json, config}, "");
}

HandlePtr train(const std::vector<std::string>& texts, const std::map<std::string, std::string>& words,
                Dim size, Dim least, bool lower, nb::object listener) {
  VocabOptions o;
  const std::vector<std::string> kinds = {"characters", "bytes", "bpe"};
  const VocabKind values[] = {VocabKind::characters, VocabKind::bytes, VocabKind::bpe};
  for (const auto& [role, word] : words) {
    std::string* const roles[] = {&o.pad, &o.unk, &o.cls, &o.sep, &o.mask, &o.bos, &o.eos};
    const std::vector<std::string> names = {"pad", "unk", "cls", "sep", "mask", "bos", "eos"};
    if (role == "kind") {
      const auto kind = std::find(kinds.begin(), kinds.end(), word);
      if (kind == kinds.end()) fail_name("kind: '", word, "' is no vocabulary; ", name_hint(word, kinds));
      o.kind = values[kind - kinds.begin()];
      continue;
    }
    const auto at = std::find(names.begin(), names.end(), role);
    if (at == names.end()) fail_name("special: '", role, "' is no role of a token; ", name_hint(role, names));
    *roles[at - names.begin()] = word;
  }
  if (o.kind == VocabKind::bpe && size < 257 && size > 0)
    fail_usage("size: a vocabulary of ", size, " tokens; every byte is one, so give at least 257");
  if (size > 0) o.size = size;
  if (least > 0) o.least = least;
  o.lower = lower;
  Progress progress(std::move(listener));
  o.progress = [&](Dim done, Dim of) { progress.set(static_cast<double>(done), static_cast<double>(of)); };
  return without_gil(progress, [&] {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    TokenizerFiles files = train_vocabulary(views, o);
    auto t = tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json, "the new vocabulary");
    return std::make_shared<TokenizerHandle>(std::move(t), std::move(files), "");
  });
}

void save(const TokenizerHandle& t, const std::string& folder, bool replace) {
  const TokenizerFiles files = t.as_files();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    fail(folder, ": the folder cannot be made: ", error ? error.message() : "a file of that name is there");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    if (!replace && fs::exists(fs::path(folder) / name))
      fail(folder, ": has a ", name, " already; replace=True takes its place");
  for (const auto& [name, text] : {std::pair{"tokenizer.json", &files.tokenizer_json},
                                   std::pair{"tokenizer_config.json", &files.tokenizer_config_json}}) {
    FileWriter file((fs::path(folder) / name).string(), replace);
    file.write(*text);
    file.commit();
  }
}

nb::dict describe(const TokenizerHandle& h) {
  const Tokenizer& t = h.get();
  nb::dict d;
  const char* const kinds[] = {"bpe", "spm", "unigram", "wordpiece"};
  d["kind"] = kinds[static_cast<int>(t.kind)];
  d["name"] = t.name, d["size"] = t.size(), d["path"] = h.path;
  const auto id = [&](const char* key, std::int32_t value) {
    d[key] = value >= 0 ? nb::object(nb::int_(value)) : nb::none();
  };
  id("bos", t.bos), id("eos", t.eos), id("unk", t.unk), id("pad", t.pad), id("sep", t.sep), id("cls", t.cls),
      id("mask", t.mask);
  d["stops"] = nb::cast(t.stops);
  d["add_bos"] = t.add_bos, d["add_eos"] = t.add_eos;
  return d;
}

Ids encode(const TokenizerHandle& h, const std::string& text, bool special, bool frame) {
  const auto work = [&] {
    Ids ids = h.get().encode(text, special);
    return frame ? h.get().frame(std::move(ids)) : ids;
  };
  if (text.size() < 4096) return work();
  const OutOfPython out(on_main_thread());
  return work();
}

nb::bytes bytes_of(const std::string& s) { return nb::bytes(s.data(), s.size()); }

}  // namespace

void add_tokenizer(nb::module_& m) {
  nb::class_<TokenizerHandle>(m, "TokenizerHandle")
      .def("describe", &describe)
      .def("encode", &encode)
      .def("frame", [](const TokenizerHandle& h, Ids ids) { return h.get().frame(std::move(ids)); })
      .def("decode",
           [](const TokenizerHandle& h, const Ids& ids, bool special) {
             h.check(ids);
             return text_of(h.get().decode(ids, special));
           })
      .def("decode_bytes",
           [](const TokenizerHandle& h, const Ids& ids, bool special) {
             h.check(ids);
             return bytes_of(h.get().decode(ids, special));
           })
      .def("texts",  // each readable for itself; whole characters
           [](const TokenizerHandle& h, const Ids& ids) {
             nb::list out;
             for (const std::string& s : token_texts(h.tokenizer.get(), ids)) out.append(text_of(s));
             return out;
           })
      .def("bytes",
           [](const TokenizerHandle& h, std::int32_t id) {
             h.check({id});
             return bytes_of(h.get().bytes_of(id));
           })
      .def("spelled",
           [](const TokenizerHandle& h, std::int32_t id) {
             h.check({id});
             return text_of(h.get().text_of(id));
           })
      .def("id_of", [](const TokenizerHandle& h, const std::string& text) { return h.get().id_of(text); })
      .def("role",
           [](const TokenizerHandle& h, std::int32_t id) {
             h.check({id});
             const char* const roles[] = {"normal", "unknown", "control", "user", "unused", "byte"};
             return roles[static_cast<int>(h.get().role(id))];
           })
      .def("save",
           [](const TokenizerHandle& h, const std::string& folder, bool replace) {
             const OutOfPython out(on_main_thread());
             save(h, folder, replace);
           })
      .def("files", [](const TokenizerHandle& h) {
        const TokenizerFiles f = h.as_files();
        return nb::make_tuple(text_of(f.tokenizer_json), text_of(f.tokenizer_config_json));
      });
  m.def("tokenizer_of_model", &of_model);
  m.def("open_tokenizer", &open);
  m.def("tokenizer_of_files", &of_files);
  m.def("train_tokenizer", &train, "texts"_a, "words"_a, "size"_a, "least"_a, "lower"_a, "progress"_a.none());
}

}  // namespace rapt::python
