// SPDX-License-Identifier: Apache-2.0
// Sums of statistics by layer, head and position, and their JSON.
#include "rapt/apps/server/answer_look.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rapt/apps/server/protocol_error.h"
#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/inspect/look.h"
#include "rapt/ops/attention.h"
#include "rapt/run/batch.h"
#include "rapt/tensor/dtype.h"

namespace rapt::server {
namespace {

void append_number_member(std::string& out, std::string_view name, double value) {
  if (out.back() != '{') out += ',';
  out += concat("\"", name, "\":", shortest(static_cast<double>(static_cast<float>(value))));
}

std::string sums_json(const AnswerLook::Sums& s) {
  std::string out = "{";
  const double n = std::max(1.0, s.rows);
  append_number_member(out, "entropy", s.entropy / n);
  append_number_member(out, "sink", s.sink / n);
  append_number_member(out, "self", s.self / n);
  append_number_member(out, "previous", s.previous / n);
  append_number_member(out, "distance", s.distance / n);
  append_number_member(out, "max_logit", s.rows > 0 ? s.max_logit : 0);
  return out + "}";
}

}  // namespace

void AnswerLook::Sums::add(const Sums& o) {
  rows += o.rows, entropy += o.entropy, sink += o.sink, self += o.self;
  previous += o.previous, distance += o.distance;
  max_logit = std::max(max_logit, o.max_logit);
}

AnswerLook::Wanted AnswerLook::wanted(const std::vector<Json>& look) {
  Wanted w;
  for (const Json& one : look) {
    const std::string name = one.is_string() ? std::string(one.string()) : "";
    if (name == "layers") w.layers = true;
    else if (name == "heads") w.heads = true;
    else if (name == "tokens") w.tokens = true;
    else if (name == "live") w.live = true;
    else
      throw ApiError(
          400, "invalid_value",
          concat(
              "rapt.look: ", name.empty() ? "a list of names is wanted" : concat("'", name, "' is not known"),
              "; there are \"layers\" (by layer), \"heads\" (by head), \"tokens\" (by position) and \"live\" "
              "(row by row, in a stream)"),
          "rapt.look");
  }
  return w;
}

AnswerLook::AnswerLook(Taps& taps, const Model& model, Wanted w) : wanted_(w) {
  if (model.recipe.decoder) heads_.resize(static_cast<std::size_t>(model.recipe.decoder->layers));
  taps.first_keys = 1;
  taps.see(site::attn_stats, [this](const Tapped& t) { see(t); });
}

void AnswerLook::see(const Tapped& t) {
  if (t.cross || t.stack != Stack::decoder || t.layer < 0) return;
  const Dim rows = t.value[0], heads = t.value[1], columns = t.value[2];
  if (static_cast<std::size_t>(t.layer) >= heads_.size()) return;
  std::vector<Sums>& layer = heads_[static_cast<std::size_t>(t.layer)];
  layer.resize(std::max(layer.size(), static_cast<std::size_t>(heads)));
  with_values(t.value, [&](const auto& stats) {
    for (Dim r = 0; r < rows; ++r)
      for (Dim h = 0; h < heads; ++h) {
        const auto* x = stats.data() + (r * heads + h) * columns;
        Sums s;
        s.rows = 1;
        s.entropy = static_cast<double>(x[AttentionStat::entropy]);
        s.sink = static_cast<double>(x[AttentionStat::first]);
        s.self = static_cast<double>(x[AttentionStat::self]);
        s.previous = static_cast<double>(x[AttentionStat::previous]);
        s.distance = static_cast<double>(x[AttentionStat::distance]);
        s.max_logit = static_cast<double>(x[AttentionStat::max_logit]);
        layer[static_cast<std::size_t>(h)].add(s);
        if (!wanted_.tokens) continue;
        const auto position = static_cast<std::size_t>(t.position + r);
        if (tokens_.size() <= position) tokens_.resize(position + 1);
        tokens_[position].add(s);
      }
  });
}

LiveLook::LiveLook(Taps& taps, const Model& model) : before_(model.recipe.embed.sink_tokens) {
  if (!model.decoder) return;
  layers_ = model.decoder->layers.size();
  for (std::size_t l = 0; l < layers_; ++l) {
    std::size_t first = 0;
    int part = 0;
    for (const Part& p : model.decoder->layers[l].parts) {
      if (const Attention* a = p.attention(); a && !a->spec.cross) {
        lines_.push_back({static_cast<int>(l), part, first, static_cast<std::size_t>(a->spec.heads)});
        first += lines_.back().heads;
      }
      ++part;
    }
    heads_ = std::max(heads_, first);
  }
  halves_.assign(layers_ * heads_ * AttentionStat::count, to_f16(std::numeric_limits<float>::quiet_NaN()));
  taps.first_keys = 1;
  taps.see(site::attn_stats, [this](const Tapped& t) { see(t); });
}

void LiveLook::see(const Tapped& t) {
  if (t.cross || t.stack != Stack::decoder || t.value[0] == 0) return;
  for (const Line& line : lines_) {
    if (line.layer != t.layer || line.part != t.part) continue;
    const std::size_t n = line.heads * AttentionStat::count;
    std::uint16_t* to =
        &halves_[(static_cast<std::size_t>(t.layer) * heads_ + line.first) * AttentionStat::count];
    with_values(t.value, [&](const auto& stats) {
      const auto* last = stats.data() + stats.size() - n;
      for (std::size_t i = 0; i < n; ++i) to[i] = to_f16(static_cast<float>(last[i]));
    });
    row_ = t.position + t.value[0] - 1 - before_;
  }
}

std::string LiveLook::take() {
  if (row_ < 0) return "";
  return concat("\"live\":{\"row\":", std::exchange(row_, -1), ",\"shape\":[", layers_, ",", heads_, ",",
                static_cast<int>(AttentionStat::count), "],\"stats\":\"",
                base64(std::as_bytes(std::span(halves_))), "\"}");
}

std::string AnswerLook::json(Dim reused) const {
  std::string out = concat("\"look\":{\"reused_positions\":", reused);
  if (wanted_.layers) {
    out += ",\"layers\":[";
    for (std::size_t l = 0; l < heads_.size(); ++l) {
      Sums all;
      for (const Sums& s : heads_[l]) all.add(s);
      out += (l > 0 ? "," : "") + sums_json(all);
    }
    out += "]";
  }
  if (wanted_.heads) {
    out += ",\"heads\":[";
    for (std::size_t l = 0; l < heads_.size(); ++l) {
      out += l > 0 ? ",[" : "[";
      for (std::size_t h = 0; h < heads_[l].size(); ++h) out += (h > 0 ? "," : "") + sums_json(heads_[l][h]);
      out += "]";
    }
    out += "]";
  }
  if (wanted_.tokens) {
    out += ",\"tokens\":[";
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      out += (i > 0 ? "," : "") + (tokens_[i].rows > 0 ? sums_json(tokens_[i]) : "null");
    out += "]";
  }
  return out + "}";
}

}  // namespace rapt::server
