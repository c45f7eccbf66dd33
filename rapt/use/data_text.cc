// SPDX-License-Identifier: Apache-2.0
// One long text: next tokens (causal), or hidden ones (masked).
#include <algorithm>
#include <filesystem>

#include "rapt/base/text.h"
#include "rapt/io/folder.h"
#include "rapt/use/data_parts.h"

namespace rapt::data {
namespace {

// Files of a folder by name, those of folders inside it too; hidden ones are left out.
void add_files(const std::filesystem::path& folder, std::vector<std::string>& out) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const fs::path& p : paths_in(folder, error)) {
    if (p.filename().string().starts_with('.')) continue;
    if (fs::is_directory(fs::symlink_status(p))) add_files(p, out);
    else if (fs::is_regular_file(p)) out.push_back(p.string());
  }
  if (error) fail(folder.string(), ": cannot be listed: ", error.message());
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> out;
  add_files(folder, out);
  if (out.empty()) fail(folder, ": holds no files");
  std::sort(out.begin(), out.end());
  return out;
}

// Documents of a text: what stands between empty lines.
void split_documents(std::string_view text, std::vector<std::string_view>& out) {
  std::size_t begin = 0, line = 0;
  const auto close = [&](std::size_t end) {
    if (end > begin) out.push_back(text.substr(begin, end - begin));
  };
  while (line < text.size()) {
    const std::size_t end = std::min(text.find('\n', line), text.size()),
                      next = std::min(end + 1, text.size());
    const std::string_view content = text.substr(line, end - line);
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) {
      close(line);
      begin = next;
    }
    line = next;
  }
  close(text.size());
}

struct Texts {
  std::vector<std::string> files;
  std::vector<std::string_view> documents;  // views of files; without documents: one per file
};

void read_texts(const std::string& path, const DataOptions& o, Texts& out) {
  std::error_code ignored;
  const bool folder = !o.text && std::filesystem::is_directory(path, ignored);
  if (o.text) out.files.push_back(checked_text(*o.text, path, o));
  else
    for (const std::string& file : folder ? files_of(path) : std::vector{path})
      out.files.push_back(text_file(file, o));
  for (const std::string& text : out.files) {
    if (o.documents && !folder) split_documents(text, out.documents);
    else if (!text.empty()) out.documents.push_back(text);
  }
  if (out.documents.empty()) fail(path, ": holds no text");
}

// The last `share` of the bytes: whole documents, or from the character on where that share begins.
std::vector<std::string_view> cut_share(std::vector<std::string_view>& documents, const DataOptions& o) {
  std::size_t total = 0, before = 0;
  for (const std::string_view d : documents) total += d.size();
  const auto cut = static_cast<std::size_t>(static_cast<double>(total) * (1 - o.share));
  std::vector<std::string_view> held;
  std::size_t i = 0;
  while (i < documents.size() && before + documents[i].size() <= cut) before += documents[i++].size();
  if (i == documents.size()) return held;
  if (o.documents) {
    if (i == 0) ++i;  // the first one is longer than all that may be learned from
    if (i == documents.size())
      fail(o.path,
           ": is one document, of which no share can be held out; name another file with --held-out, or hold "
           "out nothing (share 0)");
  } else if (std::size_t inside = cut - before; inside > 0) {
    const std::string_view whole = documents[i];
    while (inside > 0 && (static_cast<std::uint8_t>(whole[inside]) & 0xC0) == 0x80) --inside;
    held.push_back(whole.substr(inside));
    documents[i++] = whole.substr(0, inside);
  }
  held.insert(held.end(), documents.begin() + static_cast<std::ptrdiff_t>(i), documents.end());
  documents.resize(i);
  std::erase_if(documents, [](std::string_view d) { return d.empty(); });
  return held;
}

class TextData final : public TrainData {
 public:
  TextData(Corpus corpus, const DataOptions& o) : corpus_(std::move(corpus)), o_(o) {
    o_.progress = nullptr;
    o_.text = nullptr;
    take_corpus(*this, corpus_, o_);
    masked_ = o.objective == Objective::masked;
    const Tokenizer& t = *tokenizer;
    if (masked_) {
      if (t.mask < 0)
        fail(o.path,
             ": the vocabulary has no mask token, which the masked objective needs; make it with that "
             "objective, or choose another tokenizer");
      for (std::int32_t id = 0; id < t.size(); ++id) {
        if (t.role(id) == Tokenizer::Role::normal || t.role(id) == Tokenizer::Role::byte)
          others_.push_back(id);
      }
      if (others_.empty()) fail(o.path, ": the vocabulary has special tokens only");
      frame_ = static_cast<Dim>(t.before.size() + t.after.size());
      if (o.length <= frame_)
        fail_usage("data: a length of ", o.length, " leaves no place for text between the ", frame_,
                   " tokens around it");
    }
    if (o.begin) {
      if (t.bos < 0)
        fail(o.path,
             ": the vocabulary has no begin token, which --begin puts before every window; make it "
             "with --begin, or choose another tokenizer");
      frame_ = 1;
    }
    if (o.documents && corpus_.items() < 2)
      fail(o.path, ": holds one document only (a packed file made without --documents is one long text)");
    train_ = part(0, corpus_.split);
    held_ = part(corpus_.split, corpus_.ids.size());
    if (train_.windows == 0) fail(o.path, ": ", train_.size, " tokens to learn from are too few");
  }

  TrainBatch batch(std::uint64_t number) const override {
    TrainBatch out;
    const std::uint64_t offset_key = key_of(o_.seed, kOffset), order_key = key_of(o_.seed, kOrder);
    for (Dim j = 0; j < o_.batch; ++j) {
      const std::uint64_t s = number * static_cast<std::uint64_t>(o_.batch) + static_cast<std::uint64_t>(j);
      if (o_.windows == DataOptions::Windows::random) {
        const auto places = static_cast<std::uint64_t>(train_.size - ahead() - train_.length + 1);
        window(out, static_cast<Dim>(draw(offset_key, s) % places), train_.length, number, s,
               key_of(o_.seed, kMask));
      } else {
        const auto n = static_cast<std::uint64_t>(train_.windows);
        const auto w = static_cast<Dim>(Permutation(n, mix_key(order_key, s / n))(s % n));
        window(out, w * train_.length, count(train_, w), number, s, key_of(o_.seed, kMask));
      }
    }
    return out;
  }

  Dim held_out() const override { return (held_.windows + o_.batch - 1) / o_.batch; }

  TrainBatch held_out_batch(Dim number) const override {
    if (number < 0 || number >= held_out())
      fail("data: there is no held-out batch ", number, "; there are ", held_out());
    TrainBatch out;
    const Dim last = std::min(held_.windows, (number + 1) * o_.batch);
    for (Dim w = number * o_.batch; w < last; ++w) {
      window(out, held_.first + w * held_.length, count(held_, w),
             kHeldOutName >> 20 | static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(w),
             key_of(0, kHeldMask));
    }
    return out;
  }

  double epochs(std::uint64_t batches) const override {
    const double windows = static_cast<double>(batches) * static_cast<double>(o_.batch);
    if (o_.windows == DataOptions::Windows::shuffled) return windows / static_cast<double>(train_.windows);
    return windows * static_cast<double>(train_.length) / static_cast<double>(train_.size);
  }

  std::string about() const override {
    std::string out = concat(with_commas(train_.size), " tokens, ", with_commas(held_.size), " held out");
    if (o_.documents) out += concat(", ", with_commas(corpus_.items()), " documents");
    return out;
  }

 private:
  struct Part {
    Dim first = 0, size = 0;
    Dim length = 0, windows = 0;  // windows that follow each other; the last may be shorter
  };
  Dim ahead() const { return masked_ ? 0 : 1; }  // the target of the last token stands behind it

  Part part(Dim first, Dim end) const {
    Part p{first, end - first};
    const Dim usable = p.size - ahead();
    p.length = std::min(o_.length - frame_, usable);
    if (p.length > 0) p.windows = (usable + p.length - 1) / p.length;
    return p;
  }
  Dim count(const Part& p, Dim window) const {
    return std::min(p.length, p.size - ahead() - window * p.length);
  }

  std::vector<std::int32_t> tokens(Dim first, Dim count) const {
    std::vector<std::int32_t> out;
    corpus_.ids.append_to(out, first, count);
    return out;
  }

  void window(TrainBatch& out, Dim first, Dim count, std::uint64_t batch, std::uint64_t number,
              std::uint64_t key) const {
    if (masked_) return hide(out, first, count, batch, number, key);
    if (!o_.documents) return follow(out, first, count, batch);
    auto end =
        std::upper_bound(corpus_.starts.begin(), corpus_.starts.end(), static_cast<std::uint64_t>(first));
    for (Dim at = first; at < first + count; ++end) {
      const Dim until = std::min(static_cast<Dim>(*end), first + count);
      if (until == at) continue;  // a document without tokens
      // The last token of a document has nothing to say; alone it is left out.
      const bool nothing = until - at == 1 && until == static_cast<Dim>(*end) &&
                           !(out.tokens.empty() && until == first + count);
      if (!nothing) follow(out, at, until - at, batch, static_cast<Dim>(*end));
      at = until;
    }
  }

  // Tokens and what comes after each; a document's last token predicts nothing.
  void follow(TrainBatch& out, Dim first, Dim count, std::uint64_t batch, Dim document_end = -1) const {
    out.sequences.push_back({.first = static_cast<Dim>(out.tokens.size()),
                             .count = count + o_.begin,
                             .id = sequence_name(batch, out.sequences.size())});
    const bool ends = first + count == document_end;
    const std::vector<std::int32_t> ids = tokens(first, count + !ends);
    if (o_.begin) {
      out.tokens.push_back(tokenizer->bos);
      out.targets.push_back(ids[0]);
      out.counted += 1;
    }
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.begin() + count);
    out.targets.insert(out.targets.end(), ids.begin() + 1, ids.end());
    if (ends) out.targets.push_back(-1);
    out.counted += count - ends;
  }

  // Of the tokens a share counts: of these 80 % are hidden, 10 % are another one, 10 % stay. Special
  // tokens never do; one does at least.
  void hide(TrainBatch& out, Dim first, Dim count, std::uint64_t batch, std::uint64_t number,
            std::uint64_t key) const {
    const Tokenizer& t = *tokenizer;
    const auto begin = out.tokens.size();
    const auto special = [&](std::int32_t token) { return t.role(token) == Tokenizer::Role::control; };
    const std::vector<std::int32_t> ids = tokens(first, count);
    const auto add = [&](std::int32_t token, std::int32_t target) {
      out.tokens.push_back(token);
      out.targets.push_back(target);
      out.counted += target >= 0;
    };
    std::vector<std::size_t> chosen, possible;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (special(ids[i])) continue;
      possible.push_back(i);
      if (philox(key, number, i)[0] * 0x1p-32 < o_.mask_share) chosen.push_back(i);
    }
    if (chosen.empty() && !possible.empty())
      chosen.push_back(possible[draw(key, number, ~std::uint64_t{0}) % possible.size()]);
    for (const std::int32_t token : t.before) add(token, -1);
    auto next = chosen.begin();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (next == chosen.end() || *next != i) {
        add(ids[i], -1);
        continue;
      }
      ++next;
      const Random4 r = philox(key, number, i);
      const double what = r[1] * 0x1p-32;
      const auto other = static_cast<std::size_t>((std::uint64_t{r[2]} * others_.size()) >> 32);
      add(what < 0.8 ? t.mask : what < 0.9 ? others_[other] : ids[i], ids[i]);
    }
    for (const std::int32_t token : t.after) add(token, -1);
    out.sequences.push_back({.first = static_cast<Dim>(begin),
                             .count = static_cast<Dim>(out.tokens.size() - begin),
                             .id = sequence_name(batch, out.sequences.size())});
  }

  Corpus corpus_;
  DataOptions o_;
  Part train_, held_;
  bool masked_ = false;
  Dim frame_ = 0;
  std::vector<std::int32_t> others_;  // tokens that may stand where one was hidden
};

}  // namespace

Corpus read_text(const DataOptions& o) {
  Texts train, held;
  read_texts(o.path, o, train);
  if (!o.held_out.empty()) read_texts(o.held_out, o, held);
  else if (o.share > 0) held.documents = cut_share(train.documents, o);
  Corpus corpus;
  choose_tokenizer(corpus, o, train.documents, held.documents);
  const Tokenizer& t = *corpus.tokenizer;
  std::size_t total = 0, done = 0;
  for (const Texts* part : {&train, &held}) {
    for (const std::string_view d : part->documents) total += d.size();
  }
  std::vector<std::int32_t> ids;
  for (const Texts* part : {&train, &held}) {
    const bool one = !o.documents && part->documents.size() < 2;  // one text: nothing around it
    for (const std::string_view d : part->documents) {
      std::vector<std::int32_t> own = encode_long(t, d);
      done += d.size();
      if (o.progress) o.progress(0.5 + 0.5 * static_cast<double>(done) / static_cast<double>(total));
      if (own.empty()) continue;
      if (!one) {
        if (o.objective == Objective::causal) own = t.frame(std::move(own));
        if (t.eos >= 0 && own.back() != t.eos) own.push_back(t.eos);
      }
      corpus.starts.push_back(ids.size());
      ids.insert(ids.end(), own.begin(), own.end());
    }
    if (part == &train) corpus.split = static_cast<Dim>(ids.size());
  }
  // One text, cut for the split only.
  if (!o.documents && train.documents.size() < 2 && held.documents.size() < 2) corpus.starts = {0};
  corpus.starts.push_back(ids.size());
  corpus.ids = Ids(std::move(ids));
  return corpus;
}

std::unique_ptr<TrainData> text_data(Corpus corpus, const DataOptions& options) {
  return std::make_unique<TextData>(std::move(corpus), options);
}

}  // namespace rapt::data
