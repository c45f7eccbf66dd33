// SPDX-License-Identifier: Apache-2.0
// Place i of an answer is where its token i was chosen: the row of position prompt - 1 + i.
#include "rapt/apps/server/answer_compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/base/text.h"
#include "rapt/device/device.h"

namespace rapt::server {
namespace {

constexpr Dim kSliceBytes = Dim{32} << 20;  // of logits that are kept

std::vector<float> copy_of(const Tensor& rows, Dim row) {
  const Dim V = rows[1];
  std::vector<float> out(static_cast<std::size_t>(V));
  if (rows.dtype == DType::f32) {
    const auto from = rows.as<const float>().subspan(static_cast<std::size_t>(row * V), out.size());
    std::copy(from.begin(), from.end(), out.begin());
  } else {
    for (Dim i = 0; i < V; ++i) out[static_cast<std::size_t>(i)] = static_cast<float>(rows.at(row * V + i));
  }
  return out;
}

// Nats; of distributions as the logits give them, in double.
double divergence(std::span<const float> a, std::span<const float> b) {
  const double whole_a = log_sum_exp(a), whole_b = log_sum_exp(b);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log_a = a[i] - whole_a, p = std::exp(log_a);
    if (p > 0) sum += p * (log_a - (b[i] - whole_b));
  }
  return std::max(sum, 0.0);  // equal ones may differ from 0 by a rounding
}

}  // namespace

AnswerCompare::AnswerCompare(ServedModel& model, const std::vector<Edit>& a, const std::vector<Edit>& b)
    : model_(model) {
  for (const int side : {0, 1})
    if (const std::vector<Edit>& edits = side == 0 ? a : b; !edits.empty())
      touched_[at(side)] = install_edits(taps_[at(side)], *model_.checkpoint.model, edits, Passes::many);
}

void AnswerCompare::check_touched() const {
  if (touched_[1]) touched_[1]();
}

void AnswerCompare::set_answers(const Generated& a, const Generated& b, Dim prompt) {
  reading_ = true;
  prompt_ = prompt;
  for (const int side : {0, 1}) {
    const Generated& g = side == 0 ? a : b;
    chosen_[at(side)] = g.ids;
    if (g.stop_id >= 0) chosen_[at(side)].push_back(g.stop_id);
    hashes_[at(side)] = g.hash;
  }
  const auto [x, y] =
      std::mismatch(chosen_[0].begin(), chosen_[0].end(), chosen_[1].begin(), chosen_[1].end());
  same_ = x - chosen_[0].begin();
  const bool part = x != chosen_[0].end() && y != chosen_[1].end();
  places_ = std::min<Dim>(same_ + (part ? 1 : 0), kMostPlaces);
  kl_.assign(static_cast<std::size_t>(places_), 0);
}

std::array<Request, 2> AnswerCompare::next_slice(const std::array<Request, 2>& answers) {
  const Dim V = model_.recipe().vocab,
            rows = std::clamp<Dim>(kSliceBytes / (V * static_cast<Dim>(sizeof(float))), 1, places_ - done_);
  std::array<Request, 2> out = answers;
  rows_.clear();
  for (const int side : {0, 1}) {
    Request& r = out[at(side)];
    // Before place i stand i tokens, and they are A's as much as B's.
    r.tokens.insert(r.tokens.end(), chosen_[0].begin(), chosen_[0].begin() + done_ + rows - 1);
    r.generate = {};
    r.generate.max_tokens = 0;
    r.mask = {};
    r.constraint = {};
    r.taps = taps(side);
    r.background = true;
    r.rows.which = Request::Rows::Which::chosen;
    r.rows.chosen.resize(static_cast<std::size_t>(rows));
    std::iota(r.rows.chosen.begin(), r.rows.chosen.end(), prompt_ - 1 + done_);
    r.rows.see = [this, side](std::span<const Dim> positions, const Tensor& t) { see(side, positions, t); };
  }
  done_ += rows;
  return out;
}

// On the engines' thread, one side after the other.
void AnswerCompare::see(int side, std::span<const Dim> positions, const Tensor& rows) {
  struct Pair {
    Dim place, row;
    std::vector<float> other;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const Dim place = positions[i] - (prompt_ - 1), row = static_cast<Dim>(i);
    if (const auto it = rows_.find(place); it != rows_.end()) {
      pairs.push_back({place, row, std::move(it->second)});
      rows_.erase(it);
    } else {
      rows_.emplace(place, copy_of(rows, row));
    }
  }
  model_.device->team().each(static_cast<Dim>(pairs.size()), [&](Dim i) {
    const Pair& p = pairs[static_cast<std::size_t>(i)];
    const std::vector<float> own = copy_of(rows, p.row);
    if (side == 0) meet(p.place, own, p.other);
    else meet(p.place, p.other, own);
  });
}

void AnswerCompare::meet(Dim place, std::span<const float> a, std::span<const float> b) {
  kl_[static_cast<std::size_t>(place)] = divergence(a, b);
  if (place != same_) return;
  const double whole[2] = {log_sum_exp(a), log_sum_exp(b)};
  for (const int whose : {0, 1}) {
    const auto id = static_cast<std::size_t>(chosen_[at(whose)][static_cast<std::size_t>(place)]);
    logprobs_[at(whose)] = {static_cast<float>(a[id] - whole[0]), static_cast<float>(b[id] - whole[1])};
  }
}

std::string AnswerCompare::json() const {
  const auto place = static_cast<std::size_t>(same_);
  const bool part = place < chosen_[0].size() && place < chosen_[1].size();
  const bool ends = !part && chosen_[0].size() != chosen_[1].size();
  std::string out = concat("\"compare\":{\"equal\":", hashes_[0] == hashes_[1] ? "true" : "false",
                           ",\"same_tokens\":", same_, ",\"parts_at\":");
  out += part || ends ? std::to_string(same_) : "null";
  out += ",\"tokens\":";
  if (part && same_ < places_) {
    const Tokenizer& t = *model_.checkpoint.tokenizer;
    for (const int whose : {0, 1}) {
      const std::int32_t id = chosen_[at(whose)][place];
      out += concat(whose == 0 ? "[" : ",", "{\"id\":", id, ",\"token\":");
      append_quoted(out, id < t.size() ? t.bytes_of(id) : concat("<", id, ">"));
      out += ",\"logprobs\":[";
      append_logprob(out, logprobs_[at(whose)][0]);
      out += ',';
      append_logprob(out, logprobs_[at(whose)][1]);
      out += "]}";
    }
    out += ']';
  } else {
    out += "null";
  }
  const auto most = std::max_element(kl_.begin(), kl_.end());
  const auto number = [](double x) { return std::isfinite(x) ? shortest(x) : std::string("null"); };
  out += concat(",\"places\":", places_, ",\"mean_kl\":",
                kl_.empty()
                    ? "null"
                    : number(std::accumulate(kl_.begin(), kl_.end(), 0.0) / static_cast<double>(kl_.size())),
                ",\"max_kl\":", kl_.empty() ? "null" : number(*most),
                ",\"max_kl_at\":", kl_.empty() ? "null" : std::to_string(most - kl_.begin()), ",\"kl\":[");
  for (const double x : kl_) out += concat(out.back() == '[' ? "" : ",", number(x));
  return out + "]}";
}

}  // namespace rapt::server
