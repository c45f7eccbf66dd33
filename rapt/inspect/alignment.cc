// SPDX-License-Identifier: Apache-2.0
// Weights are averaged over layers and heads; per word, columns of tokens are added and rows averaged.
#include "rapt/inspect/alignment.h"

#include <algorithm>

#include "rapt/base/unicode.h"
#include "rapt/inspect/look.h"
#include "rapt/text/words.h"

namespace rapt {
namespace {

// Decoder layers with cross-attention and the heads of each. A recurrent decoder has one attention, whatever
// its layers.
struct Attending {
  int layer, part;
  Dim heads;
};

std::vector<Attending> attending(const Model& model) {
  std::vector<Attending> out;
  if (model.decoder->recurrent) {
    if (model.decoder->recurrent->recipe.attention) out.push_back({-1, -1, 1});
    return out;
  }
  for (std::size_t i = 0; i < model.decoder->layers.size(); ++i)
    for (std::size_t p = 0; p < model.decoder->layers[i].parts.size(); ++p)
      if (const Attention* a = model.decoder->layers[i].parts[p].attention(); a && a->spec.cross)
        out.push_back({static_cast<int>(i), static_cast<int>(p), a->spec.heads});
  return out;
}

std::vector<Attending> chosen(const std::vector<Attending>& all, const AlignmentOptions& o,
                              const std::string& path) {
  const int n = static_cast<int>(all.size());
  if (o.layers == AlignmentOptions::Layers::all) return all;
  if (o.layers == AlignmentOptions::Layers::usual) return {all[static_cast<std::size_t>(std::max(0, n - 2))]};
  const int at = o.layer < 0 ? n + o.layer : o.layer;
  if (at < 0 || at >= n)
    fail_usage("alignment: layer ", o.layer, "; the decoder of ", path, " looks at its source in ", n,
               n == 1 ? " layer" : " layers");
  return {all[static_cast<std::size_t>(at)]};
}

bool without_spaces(std::uint32_t c) {
  return (c >= 0x2E80 && c < 0xAC00) || (c >= 0xF900 && c <= 0xFAFF) || c >= 0x20000;
}  // Han, kana
bool sign(std::uint32_t c) {
  return (unicode::is_punctuation(c) || unicode::is_symbol(c)) && c != '\'' && c != '-' && c != '_' &&
         c != 0x2019;
}

// Text of a word for people: without the spaces around it, control tokens by their name.
std::string word_text(const Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
  if (!tokenizer) {
    std::string out;
    for (std::int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
    return out;
  }
  std::string bytes;
  for (std::int32_t id : ids)
    bytes += id < tokenizer->size() ? tokenizer->role(id) == Tokenizer::Role::control
                                          ? tokenizer->text_of(id)
                                          : tokenizer->bytes_of(id)
                                    : concat("[", id, "]");
  const std::string out = readable_bytes(bytes);
  const std::size_t first = out.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    return out.find('\n') != std::string::npos ? "\xE2\x86\xB5" : "\xE2\x90\xA3";  // ↵ ␣
  return out.substr(first, out.find_last_not_of(" \t\r\n") + 1 - first);
}

}  // namespace

std::vector<std::size_t> word_starts(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  std::vector<std::size_t> starts;
  std::uint32_t last = 0;  // the character before
  // A character is complete; the word so far is nothing but white space.
  bool whole = true, only_space = false;
  bool control = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool known = ids[i] >= 0 && ids[i] < tokenizer.size();
    const bool is_control = !known || tokenizer.role(ids[i]) == Tokenizer::Role::control;
    const std::string bytes = known ? tokenizer.bytes_of(ids[i]) : "";
    const unicode::Char c = bytes.empty() ? unicode::Char{} : unicode::read(bytes, 0);
    bool begins = i == 0 || control || is_control;
    if (!begins && !bytes.empty() && whole && c.valid) {
      if (unicode::is_space(c.code)) begins = !only_space;
      else if (!only_space)
        begins = sign(c.code) != sign(last) || without_spaces(c.code) || without_spaces(last);
    }
    if (begins) starts.push_back(i), only_space = true;
    control = is_control;
    if (bytes.empty()) continue;
    for (std::size_t at = 0; at < bytes.size();) {
      const unicode::Char k = unicode::read(bytes, at);
      at += k.length;
      whole = k.valid;
      if (k.valid) last = k.code;
      only_space = only_space && k.valid && unicode::is_space(k.code);
    }
  }
  return starts;
}

Alignment alignment(Device& device, const Checkpoint& c, std::span<const std::int32_t> source,
                    std::span<const std::int32_t> target, const AlignmentOptions& o) {
  const Model& model = *c.model;
  if (!model.encoder || !model.decoder)
    fail("alignment: ", c.path, " (", c.family,
         ") has no encoder and decoder, so no attention from one text to another");
  const std::vector<Attending> all = attending(model);
  if (all.empty()) fail("alignment: the decoder of ", c.path, " has no attention to its source");
  if (source.empty() || target.empty())
    fail_usage("alignment: ", source.empty() ? "the source" : "the target", " has no tokens");
  if (c.decoder_start < 0)
    fail("alignment: ", c.path, " does not say which token its answers start from (decoder_start_token_id)");
  const std::vector<Attending> looked = chosen(all, o, c.path);
  for (const Attending& a : looked)
    if (o.head >= static_cast<int>(a.heads))
      fail_usage("alignment: head ", o.head, "; layer ", a.layer, " of ", c.path, " has ", a.heads,
                 a.heads == 1 ? " head" : " heads");

  const auto T = target.size(), S = source.size();
  const Dim hidden = model.recipe.embed.sink_tokens;  // rows before the first
  Alignment out;
  std::vector<double> weights(T * S);
  double shares = 0;
  for (const Attending& a : looked) shares += o.head >= 0 ? 1 : static_cast<double>(a.heads);
  auto find = [&](const Tapped& t) -> const Attending* {
    if (t.stack != Stack::decoder || !t.cross) return nullptr;
    for (const Attending& a : looked)
      if ((a.layer == t.layer && a.part == t.part) || a.layer < 0) return &a;
    return nullptr;
  };
  Taps taps;
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped& where) {
        std::vector<Taps::HeadRow> wanted;
        if (const Attending* a = find(where))
          for (Dim row = 0; row < static_cast<Dim>(T); ++row)
            for (Dim head = 0; head < a->heads; ++head)
              if (o.head < 0 || head == o.head) wanted.push_back({head, hidden + row});
        return wanted;
      },
      [&](const Tapped& t) {
        if (!find(t)) return;
        // Learned slots stand first.
        const Dim keys = t.value.elements(), slots = keys - static_cast<Dim>(S);
        for (std::size_t j = 0; j < S; ++j)
          weights[static_cast<std::size_t>(t.row - hidden) * S + j] +=
              t.value.at(slots + static_cast<Dim>(j)) / shares;
      });

  std::vector<std::int32_t> given = {c.decoder_start};
  given.insert(given.end(), target.begin(), target.end() - 1);
  Batch batch{.tokens = given}, from{.tokens = source};
  batch.sequences.push_back({.first = 0, .count = static_cast<Dim>(T), .adapters = c.adapters});
  from.sequences.push_back({.first = 0, .count = static_cast<Dim>(S), .adapters = c.adapters});
  Run run(device);
  run.taps = &taps;
  forward(run, model, batch, &from);

  // Groups of tokens on both sides.
  auto group = [&](std::span<const std::int32_t> ids) {
    std::vector<std::size_t> starts;
    if (o.words && c.tokenizer) starts = word_starts(*c.tokenizer, ids);
    else
      for (std::size_t i = 0; i < ids.size(); ++i) starts.push_back(i);
    starts.push_back(ids.size());
    return starts;
  };
  auto name = [&](std::span<const std::int32_t> ids, const std::vector<std::size_t>& starts,
                  std::vector<std::string>& names, std::vector<std::vector<std::int32_t>>& which) {
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const auto part = ids.subspan(starts[i], starts[i + 1] - starts[i]);
      names.push_back(word_text(c.tokenizer.get(), part));
      which.emplace_back(part.begin(), part.end());
    }
  };
  const std::vector<std::size_t> rows = group(target), columns = group(source);
  name(target, rows, out.target, out.target_ids);
  name(source, columns, out.source, out.source_ids);
  for (const Attending& a : looked) out.layers.push_back(std::max(0, a.layer));
  out.weights.resize(out.target.size() * out.source.size());
  for (std::size_t r = 0; r + 1 < rows.size(); ++r)
    for (std::size_t k = 0; k + 1 < columns.size(); ++k) {
      double sum = 0;
      for (std::size_t i = rows[r]; i < rows[r + 1]; ++i)
        for (std::size_t j = columns[k]; j < columns[k + 1]; ++j) sum += weights[i * S + j];
      out.weights[r * out.source.size() + k] = sum / static_cast<double>(rows[r + 1] - rows[r]);
    }
  return out;
}

HeatMap heat_map(const Alignment& a, std::string title) {
  return {.title = std::move(title),
          .rows = a.target,
          .columns = a.source,
          .values = a.weights,
          .top = 1,
          .scale = HeatMap::Scale::root,
          .row_name = "target",
          .column_name = "source",
          .value_name = "attention weight"};
}

}  // namespace rapt
