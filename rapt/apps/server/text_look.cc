// SPDX-License-Identifier: Apache-2.0
// Observers of one text, and the JSON of what they saw. Row t of anything is of token t: it predicts t + 1.
#include "rapt/apps/server/text_look.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/base/clock.h"
#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/device/device.h"
#include "rapt/inspect/edits.h"
#include "rapt/inspect/heads.h"
#include "rapt/inspect/massive.h"
#include "rapt/inspect/subject.h"
#include "rapt/ops/attention.h"
#include "rapt/tensor/dtype.h"

namespace rapt::server {
namespace {

using Encoding = LookRequest::Encoding;

constexpr Dim kMostWhole = 2048;         // tokens, of `heads` and `massive`
constexpr Dim kMostRows = 2048;          // rows of a map that are computed
constexpr Dim kMostMaps = 512, kMostMapPixels = 64;  // tokens and cells of `maps`
constexpr double kMostBytes = 256 << 20;  // kept while the text is read
constexpr Dim kMostValues = Dim{1} << 20, kMostNumbers = Dim{1} << 18;  // of a reply: in base64, as text
constexpr double kSink = 0.3;  // mean weight on the first token from which a head counts as a sink
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr const char* kColumns[AttentionStat::count] = {"entropy",  "first",     "self",      "previous",
                                                        "distance", "strongest", "max_logit", "sum"};

template <class Real>
void append_number(std::string& out, Real x) {
  if (!std::isfinite(x)) {
    out += "null";
    return;
  }
  char digits[40];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, x).ptr);
}

// [f(0),f(1),…]
template <class F>
void append_list(std::string& out, std::size_t count, const F& f) {
  out += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    f(i);
  }
  out += ']';
}

template <class Real>
void append_numbers(std::string& out, std::span<const Real> values) {
  append_list(out, values.size(), [&](std::size_t i) { append_number(out, values[i]); });
}

void append_strings(std::string& out, std::span<const std::string> values) {
  append_list(out, values.size(), [&](std::size_t i) { append_quoted(out, values[i]); });
}

void append_key(std::string& out, std::string_view name) {
  if (out.back() != '{') out += ',';
  out += '"';
  out += name;
  out += "\":";
}

bool is_whole_text(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const unicode::Char c = unicode::read(bytes, i);
    if (!c.valid) return false;
    i += c.length;
  }
  return true;
}

[[noreturn]] void too_much(std::string_view field, const std::string& why) {
  throw ApiError(400, "invalid_value", concat("'", field, "': ", why, "."), field);
}

void check_going(const std::atomic<bool>& gone) {
  if (gone) throw Cancelled();
}

}  // namespace

TextLook::TextLook(ServedModel& model, LookRequest asked, std::vector<std::int32_t> ids)
    : model_(model),
      asked_(std::move(asked)),
      ids_(std::move(ids)),
      tokens_(static_cast<Dim>(ids_.size())),
      token_(asked_.token < 0 ? tokens_ + asked_.token : asked_.token) {
  const Model& m = *model_.checkpoint.model;
  if (!m.decoder || m.encoder || m.decoder->recurrent || !model_.writes())
    throw ApiError(
        400, "invalid_value",
        concat("model '", model_.name, "' is no decoder of text; only those can be looked at here"), "model");
  before_ = m.recipe.embed.sink_tokens;
  layers_ = static_cast<Dim>(m.decoder->layers.size());
  for (int l = 0; l < static_cast<int>(layers_); ++l) {
    int first = 0, part = 0;
    for (const Part& p : m.decoder->layers[static_cast<std::size_t>(l)].parts) {
      if (const Attention* a = p.attention(); a && !a->spec.cross) {
        lines_.push_back({l, part, first, static_cast<int>(a->spec.heads), part_number(p)});
        first += static_cast<int>(a->spec.heads);
      }
      ++part;
    }
    heads_ = std::max<Dim>(heads_, first);
  }
  if (heads_ == 0 && (asked_.heads || asked_.map || asked_.row || asked_.maps || asked_.token_stats))
    too_much("want", concat("model '", model_.name, "' has no attention to look at"));
  check_sizes();

  std::vector<Edit> edits;
  for (const Json& e : asked_.edits) edits.push_back(e.is_string() ? parse_edit(e.string()) : read_edit(e));
  // Learned tokens stand before the first piece alone; edits may need the text's end.
  one_piece_ = before_ > 0 || (!edits.empty() && needs_whole(m, edits));
  if (!edits.empty())
    edits_touched_ = install_edits(taps_, m, edits, one_piece_ ? Passes::one : Passes::many);
  if (asked_.heads)
    record_ = std::make_unique<AttentionRecord>(
        *model_.device, m, ids_, Ids{},
        RecordOptions{
            .first_keys = asked_.first_keys, .taps = &taps_, .most_bytes = kMostBytes, .elsewhere = true});
  taps_.first_keys = asked_.first_keys;
  if (asked_.norms || asked_.token_stats) norms_ = std::make_unique<NormReader>(taps_, m);
  if (asked_.token_stats) watch_gates();
  if (asked_.token_stats || asked_.map || asked_.row || asked_.maps) watch_attention();
  if (asked_.massive || asked_.lens) watch_residual_rows();
  if (asked_.tokens) next_.resize(ids_.size());
}

// Everything that grows with what was asked for, before any of it is there.
void TextLook::check_sizes() {
  const Recipe& recipe = model_.recipe();
  const Dim most = std::min(kMostLookTokens, model_.engine->context());
  if (tokens_ > most)
    too_much("ids", concat("the text has ", tokens_, " tokens; at most ", most, " are looked at"));
  if (token_ < 0 || token_ >= tokens_)
    too_much("token", concat("it is ", asked_.token, "; the text has ", tokens_, " tokens"));
  if ((asked_.heads || asked_.massive) && tokens_ > kMostWhole)
    too_much("want",
             concat("heads and massive are of at most ", kMostWhole, " tokens, the text has ", tokens_));
  if (asked_.layer >= layers_)
    too_much("layer", concat("there is no layer ", asked_.layer, "; the model has 0 to ", layers_ - 1));
  Dim values = 0;
  if (asked_.map) {
    const auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) {
      return l.layer == asked_.layer && asked_.head >= l.first && asked_.head < l.first + l.heads;
    });
    if (line == lines_.end())
      too_much("head", concat("layer ", asked_.layer, " has no attention head ", asked_.head));
    if (std::max(asked_.row_end, asked_.key_end) > tokens_)
      too_much(asked_.row_end > tokens_ ? "rows" : "keys",
               concat("it ends behind the text, which has ", tokens_, " tokens"));
    pooling_.emplace(MapWindow{.row_begin = asked_.row_begin,
                               .row_end = asked_.row_end,
                               .key_begin = asked_.key_begin,
                               .key_end = asked_.key_end,
                               .pixels = asked_.pixels,
                               .most_rows = kMostRows},
                     tokens_, tokens_);
    values += pooling_->high * pooling_->wide;
  }
  if (asked_.maps) {
    if (tokens_ > kMostMaps)
      too_much("want", concat("maps are of at most ", kMostMaps, " tokens, the text has ", tokens_));
    small_.emplace(MapWindow{.pixels = std::min(asked_.pixels, kMostMapPixels), .most_rows = kMostMaps},
                   tokens_, tokens_);
    values += layers_ * heads_ * (small_->high * small_->wide + 2);
  }
  row_layers_ = asked_.layer >= 0 ? 1 : layers_;
  if (asked_.row) values += row_layers_ * heads_ * tokens_;
  if (asked_.norms) values += (3 * layers_ + 1) * tokens_;
  if (asked_.massive) values += (layers_ + 1) * tokens_;
  if (asked_.token_stats) values += layers_ * heads_ * (AttentionStat::count + 1);
  const Dim most_values = asked_.encoding == Encoding::json ? kMostNumbers : kMostValues;
  if (values > most_values)
    too_much("want", concat("the arrays of the reply would have ", values, " values; at most ", most_values,
                            asked_.encoding == Encoding::json
                                ? " are written as JSON (more with encoding f16, or of one layer)"
                                : " are allowed (ask for one layer, or a shorter text)"));
  const auto streams =
      static_cast<double>(layers_ + 1) * static_cast<double>(tokens_) * static_cast<double>(recipe.width) * 4;
  const double bytes =
      (asked_.heads ? streams : 0) + (asked_.massive ? streams : 0) + static_cast<double>(values) * 4;
  if (bytes > kMostBytes)
    too_much("want", concat("this takes ", byte_count(bytes), " while it is made; ", byte_count(kMostBytes),
                            " are allowed: ask for less at once, or of a shorter text"));
  if (pooling_) map_ = pooling_->empty();
  if (asked_.row) row_.assign(static_cast<std::size_t>(row_layers_ * heads_ * tokens_), kNone);
  if (small_) {
    maps_.assign(static_cast<std::size_t>(layers_ * heads_), {});
    received_.assign(static_cast<std::size_t>(layers_ * heads_ * tokens_), 0);
  }
  if (asked_.map || asked_.row || asked_.maps) weights_.resize(static_cast<std::size_t>(tokens_));
  if (asked_.token_stats) {
    stats_.assign(static_cast<std::size_t>(layers_ * heads_ * AttentionStat::count), kNone);
    gates_.assign(static_cast<std::size_t>(layers_ * heads_), kNone);
  }
}

const TextLook::Line* TextLook::line_of(const Tapped& t) const {
  for (const Line& l : lines_)
    if (!t.cross && l.layer == t.layer && l.part == t.part) return &l;
  return nullptr;
}

// ----------------------------------------------------------------------------------------------- observers
void TextLook::watch_attention() {
  // Comes before the weights of the same rows, and says which they are.
  taps_.see(site::attn_stats, [this](const Tapped& t) {
    piece_position_ = t.position, piece_rows_ = t.value[0];
    const Line* line = line_of(t);
    const Dim row = token_ + before_ - t.position;
    if (!line || !asked_.token_stats || row < 0 || row >= t.value[0]) return;
    for (Dim h = 0; h < line->heads; ++h)
      for (Dim c = 0; c < AttentionStat::count; ++c)
        stats_[at(line->layer, line->first + h) * AttentionStat::count + static_cast<std::size_t>(c)] =
            static_cast<float>(t.value.at((row * line->heads + h) * AttentionStat::count + c));
  });
  if (!asked_.map && !asked_.row && !asked_.maps) return;
  taps_.want_weights(
      site::attn_weights,
      [this](const Tapped& t) {
        std::vector<Taps::HeadRow> rows;
        const Line* line = line_of(t);
        if (!line) return rows;
        const auto want = [&](Dim head, Dim token) {
          const Dim row = token + before_ - piece_position_;
          if (row >= 0 && row < piece_rows_) rows.push_back({head, row});
        };
        const bool mapped = asked_.map && line->layer == asked_.layer && asked_.head >= line->first &&
                            asked_.head < line->first + line->heads;
        if (asked_.maps) {
          for (Dim h = 0; h < line->heads; ++h)
            for (Dim token = 0; token < tokens_; ++token) want(h, token);
          return rows;
        }
        if (mapped)
          for (const Dim token : pooling_->which) want(asked_.head - line->first, token);
        if (asked_.row && (asked_.layer < 0 || line->layer == asked_.layer))
          for (Dim h = 0; h < line->heads; ++h)
            if (!mapped || h != asked_.head - line->first ||
                !std::binary_search(pooling_->which.begin(), pooling_->which.end(), token_))
              want(h, token_);
        return rows;
      },
      [this](const Tapped& t) {
        const Line* line = line_of(t);
        if (!line) return;
        const Part& part = part_of(*model_.checkpoint.model, t);
        // Learned slots and tokens stand first and are no keys of the text.
        const Dim slots = (part.attention()->slot_k ? part.attention()->slot_k->rows : 0) + before_;
        const Dim keys = std::clamp<Dim>(t.value.elements() - slots, 0, tokens_);
        std::fill(weights_.begin(), weights_.end(), 0.0F);
        for (Dim k = 0; k < keys; ++k)
          weights_[static_cast<std::size_t>(k)] = static_cast<float>(t.value.at(slots + k));
        const Dim token = t.row + piece_position_ - before_, head = line->first + t.head;
        if (asked_.map && line->layer == asked_.layer && head == asked_.head) {
          const auto it = std::lower_bound(pooling_->which.begin(), pooling_->which.end(), token);
          if (it != pooling_->which.end() && *it == token)
            pooling_->add(it - pooling_->which.begin(), weights_, map_);
        }
        if (asked_.maps) {
          std::vector<float>& small = maps_[at(line->layer, head)];
          if (small.empty()) small = small_->empty();
          small_->add(token, weights_, small);
          double* const sums = &received_[at(line->layer, head) * static_cast<std::size_t>(tokens_)];
          for (Dim k = 0; k < tokens_; ++k) sums[k] += double{weights_[static_cast<std::size_t>(k)]};
        }
        if (asked_.row && token == token_ && (asked_.layer < 0 || line->layer == asked_.layer)) {
          const Dim layer = asked_.layer >= 0 ? 0 : line->layer;
          std::copy(weights_.begin(), weights_.end(),
                    row_.begin() + static_cast<std::ptrdiff_t>(at(layer, head)) * tokens_);
        }
      });
}

// The mean of a head's gate at the chosen token.
void TextLook::watch_gates() {
  taps_.see(site::gate(GateRecipe::At::sdpa), [this](const Tapped& t) {
    const Line* line = line_of(t);
    const Dim row = token_ + before_ - t.position;
    if (!line || row < 0 || row >= t.value[0]) return;
    gated_ = true;
    const Dim width = t.value.elements() / t.value[0];
    const bool shared =
        part_of(*model_.checkpoint.model, t).attention()->gate_at(GateRecipe::At::sdpa)->spec.shared;
    const Dim each = shared ? width : width / line->heads;
    for (Dim h = 0; h < line->heads; ++h) {
      double sum = 0;
      for (Dim i = 0; i < each; ++i) sum += t.value.at(row * width + (shared ? 0 : h * each) + i);
      gates_[at(line->layer, line->first + h)] = static_cast<float>(sum / static_cast<double>(each));
    }
  });
}

void TextLook::watch_residual_rows() {
  residual_.resize(static_cast<std::size_t>(layers_) + 1);
  const auto keep = [this](int row, const Tapped& t) {
    if (t.stack != Stack::decoder) return;
    std::vector<float>& to = residual_[static_cast<std::size_t>(row)];
    const Dim C = t.value.last();
    to.reserve(static_cast<std::size_t>((asked_.massive ? tokens_ : 1) * C));  // as check_sizes counts
    for (Dim i = 0; i < t.value[0]; ++i) {
      const Dim token = t.position + i - before_;
      if (token < 0 || (!asked_.massive && token != token_)) continue;
      for (Dim c = 0; c < C; ++c) to.push_back(static_cast<float>(t.value.at(i * C + c)));
    }
  };
  taps_.see(site::embed, [keep](const Tapped& t) { keep(0, t); });
  taps_.see(site::resid_out, [keep](const Tapped& t) { keep(t.layer + 1, t); });
}

void TextLook::take_logits(std::span<const Dim> positions, const Tensor& logits) {
  const auto V = static_cast<std::size_t>(logits[1]);
  model_.device->team().each(static_cast<Dim>(positions.size()), [&](Dim i) {
    const auto token = static_cast<std::size_t>(positions[static_cast<std::size_t>(i)]);
    next_[token] = next_token(logits.as<const float>().subspan(static_cast<std::size_t>(i) * V, V),
                              token + 1 < ids_.size() ? ids_[token + 1] : -1, asked_.top);
  });
}

Request TextLook::request() {
  Request r;
  r.tokens = ids_;
  r.generate.max_tokens = 0;
  r.taps = &taps_;
  r.background = true;
  r.one_piece = one_piece_;
  if (asked_.tokens) {
    r.rows.which = Request::Rows::Which::all;
    r.rows.see = [this](std::span<const Dim> positions, const Tensor& rows) { take_logits(positions, rows); };
  }
  return r;
}

// --------------------------------------------------------------------------------------------------- reply
std::string TextLook::text_of(std::int32_t id) const {
  const Tokenizer& t = *model_.checkpoint.tokenizer;
  return id >= 0 && id < t.size() ? t.bytes_of(id) : concat("<", id, ">");
}

void TextLook::append_array(std::string& out, std::string_view name, std::span<const float> values,
                            std::initializer_list<Dim> shape) const {
  append_key(out, name);
  out += "{\"shape\":";
  append_list(out, shape.size(), [&](std::size_t i) { out += std::to_string(shape.begin()[i]); });
  const auto encoded = [&](std::string_view encoding, const auto& bytes) {
    out += concat(",\"encoding\":\"", encoding, "\",\"data\":\"", base64(std::as_bytes(std::span(bytes))),
                  "\"}");
  };
  switch (asked_.encoding) {
    case Encoding::json:
      out += ",\"encoding\":\"json\",\"data\":";
      append_numbers(out, values);
      out += '}';
      return;
    case Encoding::f32: return encoded("f32", values);
    case Encoding::f16: {
      std::vector<std::uint16_t> halves;
      halves.reserve(values.size());
      for (const float x : values) halves.push_back(to_f16(x));
      return encoded("f16", halves);
    }
    case Encoding::u8: {
      float scale = 0;
      for (const float x : values)
        if (std::isfinite(x)) scale = std::max(scale, x);
      std::vector<std::uint8_t> bytes;
      bytes.reserve(values.size());
      for (const float x : values)
        bytes.push_back(scale > 0 && x > 0
                            ? static_cast<std::uint8_t>(std::lround(255 * std::min(1.0F, x / scale)))
                            : std::uint8_t{0});
      out += ",\"scale\":";
      append_number(out, scale);
      return encoded("u8", bytes);
    }
  }
}

void TextLook::append_tokens(std::string& out) const {
  const Tokenizer& t = *model_.checkpoint.tokenizer;
  const std::size_t n = ids_.size();
  std::vector<std::string> texts;
  for (const std::int32_t id : ids_) texts.push_back(text_of(id));
  const auto tops = [&](const NextToken& next) {
    append_list(out, next.top.size(), [&](std::size_t i) {
      out += concat("{\"id\":", next.top[i].first, ",\"text\":");
      append_quoted(out, text_of(next.top[i].first));
      out += ",\"logprob\":";
      append_number(out, next.top[i].second);
      out += '}';
    });
  };
  // Of token i from the row before it.
  const auto before = [&](const char* name, const auto& write) {
    append_key(out, name);
    append_list(out, n, [&](std::size_t i) {
      if (i == 0) out += "null";
      else write(next_[i - 1]);
    });
  };
  append_key(out, "tokens");
  out += "{\"ids\":";
  append_list(out, n, [&](std::size_t i) { out += std::to_string(ids_[i]); });
  append_key(out, "text");
  append_strings(out, texts);
  append_key(out, "bytes");
  append_list(out, n, [&](std::size_t i) {
    if (is_whole_text(texts[i])) out += "null";
    else
      append_list(out, texts[i].size(),
                  [&](std::size_t b) { out += std::to_string(static_cast<unsigned char>(texts[i][b])); });
  });
  append_key(out, "special");
  std::vector<std::size_t> special;
  for (std::size_t i = 0; i < n; ++i)
    if (ids_[i] < t.size() && t.role(ids_[i]) == Tokenizer::Role::control) special.push_back(i);
  append_list(out, special.size(), [&](std::size_t i) { out += std::to_string(special[i]); });
  before("logprob", [&](const NextToken& x) { append_logprob(out, x.logprob); });
  before("rank", [&](const NextToken& x) { out += std::to_string(x.rank); });
  before("entropy", [&](const NextToken& x) { append_number(out, x.entropy); });
  append_key(out, "top");
  append_list(out, n, [&](std::size_t i) {
    if (i == 0) out += "[]";
    else tops(next_[i - 1]);
  });
  // As `rapt inspect massive` and `rapt eval` count: every token but the first, natural logarithms.
  double loss = 0;
  for (std::size_t i = 1; i < n; ++i) loss -= double{next_[i - 1].logprob} / static_cast<double>(n - 1);
  append_key(out, "loss");
  append_number(out, n > 1 ? loss : double{kNone});
  append_key(out, "perplexity");
  append_number(out, n > 1 ? std::exp(loss) : double{kNone});
  append_key(out, "next");
  out += "{\"entropy\":";
  append_number(out, next_.back().entropy);
  out += ",\"top\":";
  tops(next_.back());
  out += "}}";
}

void TextLook::append_heads(std::string& out, const std::atomic<bool>& gone) const {
  check_going(gone);
  const std::vector<HeadMetrics> all = head_metrics(*record_, asked_.sample, &gone);
  std::vector<const HeadMetrics*> cells(static_cast<std::size_t>(layers_ * heads_));
  for (const HeadMetrics& m : all)
    for (const Line& l : lines_)
      if (l.layer == m.place.layer && l.number == m.place.number) cells[at(l.layer, l.first + m.head)] = &m;
  const auto grid = [&](const auto& write) {
    append_list(out, static_cast<std::size_t>(layers_), [&](std::size_t l) {
      append_list(out, static_cast<std::size_t>(heads_),
                  [&](std::size_t h) { write(cells[at(static_cast<Dim>(l), static_cast<Dim>(h))]); });
    });
  };
  append_key(out, "heads");
  out += "{\"metrics\":[";
  for (const HeadMetric& metric : head_metric_list()) out += concat("\"", metric.key, "\",");
  out += "\"sink\"],\"values\":{";
  for (const HeadMetric& metric : head_metric_list()) {
    append_key(out, metric.key);
    grid([&](const HeadMetrics* m) { append_number(out, m ? metric.of(*m) : double{kNone}); });
  }
  append_key(out, "sink");
  grid([&](const HeadMetrics* m) { append_number(out, m ? m->sink : double{kNone}); });
  out += "},\"labels\":";
  grid([&](const HeadMetrics* m) { append_quoted(out, m ? std::string_view(m->label) : ""); });
  std::vector<double> mean(static_cast<std::size_t>(layers_)), sinks(mean), of(mean);
  for (std::size_t l = 0; l < mean.size(); ++l) {
    for (Dim h = 0; h < heads_; ++h)
      if (const HeadMetrics* m = cells[at(static_cast<Dim>(l), h)])
        mean[l] += m->sink, sinks[l] += m->sink > kSink, of[l] += 1;
    mean[l] = of[l] > 0 ? mean[l] / of[l] : double{kNone};
  }
  out += ",\"sinks\":{\"mean\":";
  append_numbers(out, std::span<const double>(mean));
  out += ",\"heads\":";
  append_numbers(out, std::span<const double>(sinks));
  out += ",\"of\":";
  append_numbers(out, std::span<const double>(of));
  out += concat("},\"sampled\":", all.empty() ? Dim{0} : all[0].sampled, "}");
}

void TextLook::append_token(std::string& out) const {
  append_key(out, "token");
  out += concat("{\"index\":", token_, ",\"columns\":");
  append_list(out, AttentionStat::count, [&](std::size_t c) { out += concat("\"", kColumns[c], "\""); });
  append_array(out, "stats", stats_, {layers_, heads_, AttentionStat::count});
  if (gated_) {
    append_array(out, "gate", gates_, {layers_, heads_});
  } else {
    append_key(out, "gate");
    out += "null";
  }
  const NormGrid g = norms_->grids().at(0);
  const auto column = [&](const char* name, const std::vector<float>& grid, Dim rows) {
    append_key(out, name);
    append_list(out, static_cast<std::size_t>(rows), [&](std::size_t r) {
      append_number(out, grid[r * static_cast<std::size_t>(g.tokens) + static_cast<std::size_t>(token_)]);
    });
  };
  append_key(out, "norms");
  out += '{';
  column("residual", g.residual, layers_ + 1);
  column("attn_out", g.attn_out, layers_);
  column("ffn_out", g.ffn_out, layers_);
  out += "}}";
}

// Every head's map, small, and the token that gets most of its weight, all rows taken together.
void TextLook::append_maps(std::string& out) const {
  const auto cells = static_cast<std::size_t>(small_->high * small_->wide),
             T = static_cast<std::size_t>(tokens_);
  std::vector<float> all;
  for (const std::vector<float>& m : maps_) {  // a layer with fewer heads has empty ones
    if (m.empty()) all.resize(all.size() + cells, kNone);
    else all.insert(all.end(), m.begin(), m.end());
  }
  append_key(out, "maps");
  out += '{';
  const auto most = [&](std::size_t head) {
    const auto from = received_.begin() + static_cast<std::ptrdiff_t>(head * T);
    return std::max_element(from, from + static_cast<std::ptrdiff_t>(T)) - from;
  };
  const auto grid = [&](const char* name, const auto& write) {
    append_key(out, name);
    append_list(out, static_cast<std::size_t>(layers_), [&](std::size_t l) {
      append_list(out, static_cast<std::size_t>(heads_), [&](std::size_t h) {
        const std::size_t head = at(static_cast<Dim>(l), static_cast<Dim>(h));
        if (maps_[head].empty()) out += "null";
        else write(head);
      });
    });
  };
  grid("most", [&](std::size_t head) { out += std::to_string(most(head)); });
  grid("share", [&](std::size_t head) {
    append_number(out, received_[head * T + static_cast<std::size_t>(most(head))] / static_cast<double>(T));
  });
  append_array(out, "weights", all, {layers_, heads_, small_->high, small_->wide});
  out += '}';
}

void TextLook::append_massive(std::string& out) const {
  std::vector<Tensor> rows;
  const Dim sizes[] = {tokens_, model_.recipe().width};
  for (const std::vector<float>& x : residual_)
    rows.push_back(
        tensor_over(reinterpret_cast<std::byte*>(const_cast<float*>(x.data())), nullptr, DType::f32, sizes));
  const Massive m = massive_of(Stack::decoder, rows);
  append_key(out, "massive");
  out += "{\"rows\":";
  append_strings(out, row_names(m.rows));
  append_key(out, "median");
  append_numbers(out, std::span<const double>(m.median));
  append_array(out, "largest", m.largest, {layers_ + 1, tokens_});
  out += concat(",\"found\":", m.found ? "true" : "false", ",\"first_row\":", m.first_row, ",\"top\":");
  append_list(out, m.top.size(), [&](std::size_t i) {
    const Activation& a = m.top[i];
    out += "{\"row\":";
    append_quoted(out, row_name(a.row));
    out += concat(",\"token\":", a.token, ",\"channel\":", a.channel, ",\"value\":");
    append_number(out, a.value);
    out += ",\"ratio\":";
    append_number(out, a.ratio);
    out += concat(",\"massive\":", a.massive ? "true" : "false", "}");
  });
  append_key(out, "channels");
  append_list(out, m.channels.size(), [&](std::size_t i) { out += std::to_string(m.channels[i]); });
  append_key(out, "trace");
  append_list(out, m.channels.size(), [&](std::size_t i) {
    append_numbers(out, std::span(m.trace).subspan(i * residual_.size(), residual_.size()));
  });
  out += '}';
}

void TextLook::append_lens(std::string& out) const {
  const auto C = static_cast<std::size_t>(model_.recipe().width);
  const Dim sizes[] = {1, model_.recipe().width};
  std::vector<Tensor> rows;
  for (const std::vector<float>& x : residual_) {
    const float* row = x.data() + (asked_.massive ? static_cast<std::size_t>(token_) * C : 0);
    rows.push_back(
        tensor_over(reinterpret_cast<std::byte*>(const_cast<float*>(row)), nullptr, DType::f32, sizes));
  }
  const std::int32_t truth[] = {token_ + 1 < tokens_ ? ids_[static_cast<std::size_t>(token_) + 1] : -1};
  const Lens lens = lens_of(*model_.device, *model_.checkpoint.model, rows, truth,
                            {.top = static_cast<int>(std::min<Dim>(asked_.top, model_.recipe().vocab))});
  const auto top = static_cast<std::size_t>(lens.top), n = static_cast<std::size_t>(lens.rows);
  append_key(out, "lens");
  out += concat("{\"token\":", token_, ",\"rows\":");
  append_strings(out, row_names(lens.rows));
  append_key(out, "truth");
  out += truth[0] >= 0 ? std::to_string(truth[0]) : "null";
  const auto cells = [&](const char* name, const auto& write) {
    append_key(out, name);
    append_list(out, n,
                [&](std::size_t r) { append_list(out, top, [&](std::size_t i) { write(r * top + i); }); });
  };
  cells("ids", [&](std::size_t i) { out += std::to_string(lens.ids[i]); });
  cells("text", [&](std::size_t i) { append_quoted(out, text_of(lens.ids[i])); });
  cells("probability", [&](std::size_t i) { append_number(out, lens.probabilities[i]); });
  append_key(out, "entropy");
  append_numbers(out, std::span<const float>(lens.entropy));
  append_key(out, "kl");
  append_numbers(out, std::span<const float>(lens.kl));
  append_key(out, "rank");
  if (truth[0] >= 0) append_list(out, n, [&](std::size_t r) { out += std::to_string(lens.rank[r]); });
  else out += "null";
  append_key(out, "truth_probability");
  if (truth[0] >= 0) append_numbers(out, std::span<const float>(lens.truth));
  else out += "null";
  out += '}';
}

std::string TextLook::reply(double queue_seconds, double pass_seconds, const std::atomic<bool>& gone) {
  if (edits_touched_) try {
      edits_touched_();
    } catch (const Error& e) {
      throw ApiError(400, "invalid_value", concat("edits: ", e.what()), "edits");
    }
  const auto began = Clock::now();
  std::string out = "{\"object\":\"rapt.look\",\"model\":";
  append_quoted(out, model_.name);
  out += ",\"system_fingerprint\":";
  append_quoted(out, model_.fingerprint);
  out += concat(",\"shape\":{\"tokens\":", tokens_, ",\"layers\":", layers_, ",\"heads\":", heads_,
                ",\"width\":", model_.recipe().width, ",\"vocabulary\":", model_.recipe().vocab,
                "},\"usage\":{\"prompt_tokens\":", tokens_, "}");
  if (asked_.tokens) append_tokens(out);
  if (asked_.heads) append_heads(out, gone);
  check_going(gone);
  if (asked_.token_stats) append_token(out);
  if (asked_.map) {
    const MapWindow& w = pooling_->window;
    append_key(out, "map");
    out += concat("{\"layer\":", asked_.layer, ",\"head\":", asked_.head, ",\"rows\":[", w.row_begin, ",",
                  w.row_end, "],\"keys\":[", w.key_begin, ",", w.key_end, "]");
    append_array(out, "weights", map_, {pooling_->high, pooling_->wide});
    out += '}';
  }
  if (asked_.row) {
    append_key(out, "row");
    out += concat("{\"token\":", token_, ",\"layers\":");
    append_list(out, static_cast<std::size_t>(row_layers_), [&](std::size_t i) {
      out += std::to_string(asked_.layer >= 0 ? asked_.layer : static_cast<Dim>(i));
    });
    append_array(out, "weights", row_, {row_layers_, heads_, tokens_});
    out += '}';
  }
  if (asked_.maps) append_maps(out);
  if (asked_.norms) {
    const NormGrid g = norms_->grids().at(0);
    append_key(out, "norms");
    out += "{\"rows\":";
    append_strings(out, row_names(g.rows));
    append_array(out, "residual", g.residual, {layers_ + 1, tokens_});
    append_array(out, "attn_out", g.attn_out, {layers_, tokens_});
    append_array(out, "ffn_out", g.ffn_out, {layers_, tokens_});
    out += '}';
  }
  if (asked_.massive) append_massive(out);
  check_going(gone);
  if (asked_.lens) append_lens(out);
  out += concat(",\"timings\":{\"queue_ms\":", fixed(1000 * queue_seconds, 1),
                ",\"pass_ms\":", fixed(1000 * pass_seconds, 1),
                ",\"after_ms\":", fixed(1000 * seconds_since(began), 1), "}}");
  return out;
}

}  // namespace rapt::server
