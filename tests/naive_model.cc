// SPDX-License-Identifier: Apache-2.0
#include "tests/naive_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "rapt/ops/disentangle.h"

namespace rapt::test {
namespace {

struct Matrix {
  Dim rows = 0, cols = 0;
  std::vector<double> v;
  Matrix(Dim r, Dim c) : rows(r), cols(c), v(static_cast<std::size_t>(r * c)) {}
  double& at(Dim r, Dim c) { return v[static_cast<std::size_t>(r * cols + c)]; }
  double at(Dim r, Dim c) const { return v[static_cast<std::size_t>(r * cols + c)]; }
};

double act_of(Act a, double x, double c = 1) {
  const double s = 1 / (1 + std::exp(-x));
  switch (a) {
    case Act::relu: return x > 0 ? x : 0;
    case Act::relu2: return x > 0 ? x * x : 0;
    case Act::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Act::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Act::silu: return x * s;
    case Act::quick_gelu: return x / (1 + std::exp(-1.702 * x));
    case Act::sigmoid: return s;
    case Act::ns_sigmoid: return 0.5 + 0.5 * s;
    case Act::softplus: return std::log1p(std::exp(x));
    case Act::tanh: return std::tanh(x);
    case Act::softcap: return c * std::tanh(x / c);
    case Act::scale: return c * x;
    case Act::clip: return std::clamp(x, -c, c);
  }
  return 0;
}

class Naive {
 public:
  Naive(const Model& m, NaiveWeights* seen) : recipe_(m.recipe), seen_(seen) {
    for (const Weight& w : m.weights) weights_[w.name] = &w;
  }

  std::vector<double> run(const NaiveSequence& s) {
    Matrix memory(0, recipe_.width);
    if (recipe_.encoder && recipe_.decoder)
      memory = stack(*recipe_.encoder, "encoder", embedding(s.source, {}, 0, true), memory, 0);
    const Dim sinks = recipe_.embed.sink_tokens;
    Matrix x = embedding(s.tokens, s.types, sinks);
    x = stack(recipe_.decoder ? *recipe_.decoder : *recipe_.encoder, recipe_.decoder ? "decoder" : "encoder",
              x, memory, s.prefix > 0 ? s.prefix + sinks : 0);
    Matrix seen(x.rows - sinks, x.cols);
    for (Dim t = 0; t < seen.rows; ++t)
      for (Dim c = 0; c < x.cols; ++c) seen.at(t, c) = x.at(t + sinks, c);
    return head(seen).v;
  }

 private:
  const Weight* find(const std::string& name) const {
    const auto it = weights_.find(name);
    return it == weights_.end() ? nullptr : it->second;
  }

  Matrix linear(const Matrix& x, const std::string& name, const Weight* w = nullptr) const {
    if (!w) w = find(name + ".weight");
    const Weight* b = find(name + ".bias");
    Matrix y(x.rows, w->rows);
    for (Dim t = 0; t < x.rows; ++t)
      for (Dim n = 0; n < w->rows; ++n) {
        double sum = b ? b->get(0, n) : 0;
        for (Dim k = 0; k < x.cols; ++k) sum += x.at(t, k) * w->get(n, k);
        y.at(t, n) = sum;
      }
    return y;
  }

  // Norm over `size` columns at a time; the weight covers one group or all of them.
  Matrix norm(Matrix x, const std::optional<NormRecipe>& n, const std::string& name, Dim size = 0) const {
    if (!n) return x;
    if (size == 0) size = x.cols;
    const Weight *w = find(name + ".weight"), *b = find(name + ".bias"), *running = find(name + ".running");
    for (Dim t = 0; t < x.rows; ++t)
      for (Dim begin = 0; begin < x.cols; begin += size) {
        double mean = 0, square = 0;
        if (n->kind == NormRecipe::Kind::layer)
          for (Dim c = 0; c < size; ++c) mean += x.at(t, begin + c) / static_cast<double>(size);
        for (Dim c = 0; c < size; ++c) square += (x.at(t, begin + c) - mean) * (x.at(t, begin + c) - mean);
        if (n->kind != NormRecipe::Kind::l2) square /= static_cast<double>(size);
        for (Dim c = 0; c < size; ++c) {
          double& v = x.at(t, begin + c);
          if (n->kind == NormRecipe::Kind::batch)
            v = (v - running->get(0, c)) / std::sqrt(running->get(0, size + c) + n->eps);
          else v = (v - mean) / std::sqrt(square + n->eps);
          const Dim at = w ? (begin + c) % w->size() : begin + c;
          if (w) v *= w->get(0, at) + (n->weight == NormRecipe::Gain::plus_one ? 1 : 0);
          if (b) v += b->get(0, at);
        }
      }
    return x;
  }

  Matrix embedding(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& types, Dim sinks,
                   bool source = false) const {
    const EmbedRecipe& e = recipe_.embed;
    const Dim C = recipe_.width, narrow = e.width > 0 ? e.width : C;
    const Weight* table = find(source && e.source_vocab > 0 ? "embed.source_tokens" : "embed.tokens");
    const std::string own = source && e.own_source ? "embed.source_" : "embed.";
    Matrix x(static_cast<Dim>(tokens.size()) + sinks, narrow);
    for (Dim t = 0; t < x.rows; ++t)
      for (Dim c = 0; c < narrow; ++c)
        x.at(t, c) = (t < sinks ? find("embed.sinks")->get(t, c)
                                : table->get(tokens[static_cast<std::size_t>(t - sinks)], c)) *
                     e.scale * (e.scale_sqrt_width ? std::sqrt(static_cast<double>(C)) : 1);
    if (narrow != C && e.project == EmbedRecipe::Project::tokens) x = linear(x, "embed.project");
    const Dim W = x.cols;
    for (Dim t = 0; t < x.rows; ++t)
      for (Dim c = 0; c < W; ++c) {
        double& v = x.at(t, c);
        if (e.pos == EmbedRecipe::Pos::learned) v += find(own + "positions")->get(t, c);
        if (e.types > 0)
          v += find("embed.types")
                   ->get(t < sinks || types.empty() ? 0 : types[static_cast<std::size_t>(t - sinks)], c);
        if (e.pos == EmbedRecipe::Pos::sinusoid) {
          const bool pairs = e.layout == SinusoidLayout::pairs;
          const Dim i = pairs ? c / 2 : c % (W / 2);
          const bool cosine = pairs ? c % 2 == 1 : c >= W / 2;
          const double rate = e.table == SinusoidTable::paper
                                  ? 2.0 * static_cast<double>(i) / static_cast<double>(W)
                                  : static_cast<double>(i) / (static_cast<double>(W) / 2 - 1);
          const double angle = static_cast<double>(t + e.first) * std::pow(10000.0, -rate);
          v += cosine ? std::cos(angle) : std::sin(angle);
        }
      }
    x = norm(x, e.norm, own + "norm");
    return narrow != C && e.project == EmbedRecipe::Project::sum ? linear(x, "embed.project") : x;
  }

  Matrix gate(const AttnRecipe& a, GateRecipe::At at, const std::string& name, const Matrix& input, Matrix x,
              Dim heads, Dim d) const {
    static constexpr const char* kNames[] = {".gate_sdpa", ".gate_q", ".gate_k", ".gate_v", ".gate_out"};
    for (const GateRecipe& g : a.gate) {
      if (g.at != at) continue;
      const std::string n = name + kNames[static_cast<int>(at)];
      const Matrix logits = g.from == GateRecipe::From::input ? linear(input, n) : Matrix(0, 0);
      for (Dim t = 0; t < x.rows; ++t)
        for (Dim h = 0; h < heads; ++h)
          for (Dim c = 0; c < d; ++c) {
            const bool own = g.heads == GateRecipe::Heads::own;
            const Dim i = g.grain == GateGrain::element ? (own ? h * d + c : c) : (own ? h : 0);
            const double value = act_of(
                g.act, g.from == GateRecipe::From::input ? logits.at(t, i) : find(n + ".value")->get(0, i));
            double& v = x.at(t, h * d + c);
            v = g.op == GateRecipe::Op::mul ? v * value : v + value;
          }
    }
    return x;
  }

  static void rotate(const RopeSpec& spec, const RopeFrequencies& f, double position, double* x) {
    const std::size_t half = f.inverse.size();
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = position * f.inverse[i], c = std::cos(angle) * f.magnitude,
                   s = std::sin(angle) * f.magnitude;
      double& a = spec.layout == RopeLayout::halves ? x[i] : x[2 * i];
      double& b = spec.layout == RopeLayout::halves ? x[i + half] : x[2 * i + 1];
      const double a0 = a, b0 = b;
      a = a0 * c - b0 * s;
      b = b0 * c + a0 * s;
    }
  }

  // Latent attention as the paper writes it: keys and values of every head are formed, and the shared key
  // that turns stands behind each head's own.
  Matrix latent_queries(const AttnRecipe& a, const std::string& name, const Matrix& x) const {
    if (a.latent->q_rank == 0) return linear(x, name + ".q");
    return linear(norm(linear(x, name + ".q_a"), a.latent->q_norm, name + ".q_a_norm"), name + ".q_b");
  }
  void expand_latent(const AttnRecipe& a, const std::string& name, const Matrix& source, Matrix& k,
                     Matrix& v) const {
    const LatentRecipe& l = *a.latent;
    const Dim S = source.rows, H = a.heads, D = a.head_dim, n = D - l.rope_dim;
    const Matrix all = linear(source, name + ".kv_a");
    Matrix c(S, l.rank);
    for (Dim t = 0; t < S; ++t)
      for (Dim i = 0; i < l.rank; ++i) c.at(t, i) = all.at(t, i);
    c = norm(c, l.norm, name + ".kv_a_norm");
    k = Matrix(S, H * D);
    v = Matrix(S, H * a.v_dim);
    for (Dim h = 0; h < H; ++h) {
      const Weight *wk = find(concat(name, ".k.heads.", h, ".weight")),
                   *wv = find(concat(name, ".v.heads.", h, ".weight"));
      for (Dim t = 0; t < S; ++t) {
        for (Dim j = 0; j < D; ++j)
          for (Dim i = 0; i < l.rank && j < n; ++i) k.at(t, h * D + j) += wk->get(i, j) * c.at(t, i);
        for (Dim j = n; j < D; ++j) k.at(t, h * D + j) = all.at(t, l.rank + j - n);
        for (Dim j = 0; j < a.v_dim; ++j)
          for (Dim i = 0; i < l.rank; ++i) v.at(t, h * a.v_dim + j) += wv->get(j, i) * c.at(t, i);
      }
    }
  }

  Matrix attention(const AttnRecipe& a, bool cross, const std::string& stack_name, const std::string& name,
                   const Matrix& x, const Matrix& source, Dim prefix) const {
    using ScoreKind = AttnRecipe::ScoreKind;
    const Dim T = x.rows, S = source.rows, H = a.heads, K = a.kv_heads, D = a.head_dim, Dv = a.v_dim,
              group = H / K;
    const bool rope = !cross && a.pos.kind == PosRecipe::Kind::rope,
               after = a.qk_norm && a.qk_norm->at == QkNormRecipe::At::after_pos;
    const bool made = a.latent.has_value();
    const Dim still = made ? D - a.latent->rope_dim : 0;  // channels before those that turn
    Matrix q =
        gate(a, GateRecipe::At::q, name, x, made ? latent_queries(a, name, x) : linear(x, name + ".q"), H, D);
    Matrix k(0, 0), v(0, 0);
    if (made) {
      expand_latent(a, name, source, k, v);
    } else {
      k = gate(a, GateRecipe::At::k, name, source, linear(source, name + ".k"), K, D);
      v = gate(a, GateRecipe::At::v, name, source, linear(source, name + ".v"), K, Dv);
    }
    if (a.score == ScoreKind::general) {
      Matrix p(T, H * D);
      const Weight* w = find(name + ".general.weight");
      for (Dim t = 0; t < T; ++t)
        for (Dim h = 0; h < H; ++h)
          for (Dim i = 0; i < D; ++i)
            for (Dim j = 0; j < D; ++j) p.at(t, h * D + i) += w->get(i, j) * q.at(t, h * D + j);
      q = p;
    }
    auto unit = [&](Matrix& m) {
      for (Dim t = 0; t < m.rows; ++t)
        for (Dim b = 0; b < m.cols; b += D) {
          double sum = 0;
          for (Dim c = 0; c < D; ++c) sum += m.at(t, b + c) * m.at(t, b + c);
          for (Dim c = 0; c < D; ++c) m.at(t, b + c) /= std::sqrt(sum + 1e-12);
        }
    };
    if (a.score == ScoreKind::cosine) unit(q), unit(k);
    auto qk_norm = [&](Matrix m, const char* which) {
      return a.qk_norm ? norm(m, a.qk_norm->norm, name + which,
                              a.qk_norm->span == QkNormRecipe::Span::full ? m.cols : D)
                       : m;
    };
    if (!after) q = qk_norm(q, ".q_norm"), k = qk_norm(k, ".k_norm");
    v = norm(v, a.v_norm, name + ".v_norm", Dv);
    for (Matrix* m : {&q, &k, &v})
      if (a.clip > 0)
        for (double& value : m->v) value = std::clamp(value, -a.clip, a.clip);
    Matrix q_kept = q;
    if (rope) {
      const RopeFrequencies f = rope_frequencies(a.pos.rope, D - still, T);
      for (Dim t = 0; t < T; ++t)
        for (Dim h = 0; h < H; ++h) {
          rotate(a.pos.rope, f, static_cast<double>(t), &q.at(t, h * D + still));
          rotate(a.pos.rope, f, static_cast<double>(a.keep > 0 ? std::min(t, a.keep + a.window - 1) : t),
                 &q_kept.at(t, h * D + still));
          if (h < K) rotate(a.pos.rope, f, static_cast<double>(t), &k.at(t, h * D + still));
        }
    }
    if (after) q = qk_norm(q, ".q_norm"), q_kept = qk_norm(q_kept, ".q_norm"), k = qk_norm(k, ".k_norm");
    if (!rope) q_kept = q;

    const bool additive = a.score == ScoreKind::additive || a.score == ScoreKind::concat;
    const Weight *learned_scale = find(name + ".scale"), *score_weight = find(name + ".score.weight"),
                 *slots_k = find(name + ".slots.k"), *slots_v = find(name + ".slots.v");
    const Weight* buckets = a.pos.bucket.shared ? find(stack_name + ".buckets") : find(name + ".buckets");
    const Dim slots = slots_k ? slots_k->rows : 0;
    const bool relative = a.pos.kind == PosRecipe::Kind::relative;
    const RelativeRecipe& r = a.pos.relative;
    const Dim terms = relative ? 1 + (r.keys ? 1 : 0) + (r.queries ? 1 : 0) : 1;
    Matrix far_keys(0, 0), far_queries(0, 0);  // of distances
    if (relative) {
      const Weight* table = find(stack_name + ".relative");
      Matrix rows(table->rows, table->cols);
      for (Dim i = 0; i < rows.rows; ++i)
        for (Dim c = 0; c < rows.cols; ++c) rows.at(i, c) = table->get(i, c);
      rows = norm(rows, r.norm, stack_name + ".relative_norm");
      far_keys = linear(rows, name + ".k");
      far_queries = linear(rows, name + ".q");
    }
    const bool xl = a.pos.kind == PosRecipe::Kind::xl;
    const Weight *of_distance = find(name + ".distance.weight"), *u = find(name + ".content.bias"),
                 *v_of = find(name + ".distance.bias");
    const auto far_key = [&](Dim distance, Dim row) {  // W r, r the sines and then the cosines
      double sum = 0;
      const Dim half = of_distance->cols / 2;
      for (Dim i = 0; i < half; ++i) {
        const double angle = static_cast<double>(distance) *
                             std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        sum += of_distance->get(row, i) * std::sin(angle) + of_distance->get(row, half + i) * std::cos(angle);
      }
      return sum;
    };
    std::vector<double> slopes = alibi_slopes(H, a.pos.alibi_max);
    for (double& slope : slopes) slope *= a.pos.alibi_factor;
    Matrix z(T, H * Dv);
    if (seen_) (*seen_)[name].resize(static_cast<std::size_t>(H * T * S));
    for (Dim t = 0; t < T; ++t)
      for (Dim h = 0; h < H; ++h) {
        const Dim g = h / group;
        double scale = a.scale.kind == ScaleRecipe::Kind::number ? a.scale.number
                       : additive || a.score == ScoreKind::cosine
                           ? 1
                           : 1 / std::sqrt(static_cast<double>(D * terms));
        double query_gain = 1;
        if (learned_scale) {
          scale = 1;
          query_gain = learned_scale->get(0, learned_scale->size() > 1 ? h : 0);
          if (a.scale.max > 0) query_gain = std::min(query_gain, a.scale.max);
        }
        if (a.temperature)
          query_gain *= 1 + a.temperature->factor *
                                std::log(1 + std::floor(static_cast<double>(t + a.temperature->first) /
                                                        static_cast<double>(a.temperature->length)));
        std::vector<double> logits, weights;
        std::vector<bool> visible;
        for (Dim j = -slots; j < S; ++j) {
          const bool slot = j < 0, kept = !slot && !cross && j < a.keep;
          const Matrix& query = kept ? q_kept : q;
          double dot = 0, difference = 0, tanh_sum = 0;
          for (Dim c = 0; c < D; ++c) {
            const double qv = query.at(t, h * D + c) * query_gain + (xl ? u->get(0, h * D + c) : 0),
                         kv = slot ? slots_k->get(j + slots, g * D + c) : k.at(j, g * D + c);
            dot += qv * kv;
            difference += (qv - kv) * (qv - kv);
            if (additive) tanh_sum += score_weight->get(h, c) * std::tanh(qv + kv);
          }
          double s = scale * (additive ? tanh_sum : a.score == ScoreKind::l2 ? -difference : dot);
          if (a.cap > 0) s = a.cap * std::tanh(s / a.cap);
          const Dim from = kept ? std::min(t, a.keep + a.window - 1) : t;
          if (!slot && !cross && a.pos.kind == PosRecipe::Kind::alibi)
            s -= slopes[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(from - j));
          if (!slot && !cross && a.pos.kind == PosRecipe::Kind::bucket) {
            const bool both = a.mask == AttnRecipe::MaskKind::full || a.mask == AttnRecipe::MaskKind::prefix;
            s += buckets->get(relative_bucket(j - from, a.pos.bucket.count, a.pos.bucket.max, both), h);
          }
          if (!slot && relative) {
            const Dim row = relative_row(t - j, r.buckets, r.max);
            for (Dim c = 0; c < D; ++c) {
              if (r.keys) s += scale * q.at(t, h * D + c) * far_keys.at(row, g * D + c);
              if (r.queries) s += scale * k.at(j, g * D + c) * far_queries.at(row, h * D + c);
            }
          }
          if (!slot && xl)
            for (Dim c = 0; c < D; ++c)
              s += scale * (q.at(t, h * D + c) + v_of->get(0, h * D + c)) * far_key(t - j, g * D + c);
          bool sees = true;
          if (!slot && !cross) {
            using MaskKind = AttnRecipe::MaskKind;
            sees = a.mask == MaskKind::full || j <= t ||
                   (a.mask == MaskKind::prefix && t < prefix && j < prefix);
            if (a.mask == MaskKind::chunk) sees = sees && j / a.chunk == t / a.chunk;
            if (a.window > 0)
              sees = sees && j > t - a.window && (a.mask != MaskKind::full || j < t + a.window);
            sees = sees || (j < a.keep && j <= t);
          }
          logits.push_back(s);
          visible.push_back(sees);
        }
        double top = -1e300, sum = 0;
        for (std::size_t j = 0; j < logits.size(); ++j)
          if (visible[j]) top = std::max(top, logits[j]);
        double extra = -1e300;
        if (a.extra.kind == ExtraRecipe::Kind::zero_logit) extra = 0;
        if (a.extra.kind == ExtraRecipe::Kind::learned_logit) extra = find(name + ".extra_logit")->get(0, h);
        top = std::max(top, extra);
        if (extra > -1e299) sum += std::exp(extra - top);
        for (std::size_t j = 0; j < logits.size(); ++j) {
          weights.push_back(!visible[j]                   ? 0
                            : a.normal == Normal::sigmoid ? 1 / (1 + std::exp(-logits[j]))
                                                          : std::exp(logits[j] - top));
          sum += weights.back();
        }
        for (std::size_t j = 0; j < weights.size(); ++j) {
          const double p = a.normal == Normal::sigmoid ? weights[j] : sum > 0 ? weights[j] / sum : 0;
          const Dim key = static_cast<Dim>(j) - slots;
          if (seen_ && key >= 0) (*seen_)[name][static_cast<std::size_t>((h * T + t) * S + key)] = p;
          for (Dim c = 0; c < Dv; ++c)
            z.at(t, h * Dv + c) +=
                p * (key < 0 ? slots_v->get(key + slots, g * Dv + c) : v.at(key, g * Dv + c));
        }
      }
    z = norm(gate(a, GateRecipe::At::sdpa, name, x, z, H, Dv), a.z_norm, name + ".z_norm", Dv);
    return gate(a, GateRecipe::At::out, name, x, linear(z, name + ".o"), 1, recipe_.width);
  }

  Matrix ffn(const FfnRecipe& f, const std::string& name, const Matrix& x) const {
    Matrix up = linear(x, name + ".up");
    const Matrix gate = f.kind == FfnRecipe::Kind::glu ? linear(x, name + ".gate") : Matrix(0, 0);
    for (Dim t = 0; t < up.rows; ++t)
      for (Dim c = 0; c < up.cols; ++c) {
        double& u = up.at(t, c);
        if (f.kind == FfnRecipe::Kind::mlp) {
          u = act_of(f.act, u);
          continue;
        }
        double g = gate.at(t, c);
        if (f.clamp > 0) g = std::min(g, f.clamp), u = std::clamp(u, -f.clamp, f.clamp);
        const double shaped = f.act == Act::silu ? g / (1 + std::exp(-f.alpha * g)) : act_of(f.act, g);
        u = shaped * (u + f.up_offset);
      }
    return linear(up, name + ".down");
  }

  // Row by row: scores, the best experts one after the other, their sum.
  Matrix moe(const MoeRecipe& m, const std::string& name, const Matrix& x) const {
    const RouterRecipe& r = m.router;
    const Matrix z = linear(x, name + ".router");
    const Weight* choice = find(name + ".router.choice");
    FfnRecipe expert = expert_of(m);
    Matrix y(x.rows, x.cols);
    for (Dim t = 0; t < x.rows; ++t) {
      std::vector<double> score, by;
      double sum = 0, top = z.at(t, 0);
      for (Dim e = 0; e < m.experts; ++e) top = std::max(top, z.at(t, e));
      for (Dim e = 0; e < m.experts; ++e) sum += std::exp(z.at(t, e) - top);
      for (Dim e = 0; e < m.experts; ++e) {
        const double v = z.at(t, e);
        score.push_back(r.score == RouterRecipe::Score::sigmoid ? 1 / (1 + std::exp(-v))
                                                                : std::exp(v - top) / sum);
        by.push_back((r.over == RouterRecipe::Over::chosen ? v : score.back()) +
                     (choice ? choice->get(0, e) : 0));
      }
      if (r.groups) {
        const Dim size = m.experts / r.groups->count;
        std::vector<std::pair<double, Dim>> groups;
        for (Dim g = 0; g < r.groups->count; ++g) {
          std::vector<double> in(by.begin() + g * size, by.begin() + (g + 1) * size);
          std::sort(in.rbegin(), in.rend());
          groups.emplace_back(-(r.groups->score == GroupsRecipe::Score::max ? in[0] : in[0] + in[1]), g);
        }
        std::sort(groups.begin(), groups.end());
        for (std::size_t g = static_cast<std::size_t>(r.groups->used); g < groups.size(); ++g)
          for (Dim i = 0; i < size; ++i)
            by[static_cast<std::size_t>(groups[g].second * size + i)] =
                r.groups->score == GroupsRecipe::Score::max ? 0 : -HUGE_VAL;
      }
      std::vector<std::size_t> chosen;
      double total = 0;
      for (Dim j = 0; j < m.used; ++j) {
        std::size_t best = by.size();
        for (std::size_t e = 0; e < by.size(); ++e)
          if (std::find(chosen.begin(), chosen.end(), e) == chosen.end() &&
              (best == by.size() || by[e] > by[best]))
            best = e;
        chosen.push_back(best);
        total += score[best];
      }
      const double by_sum = !r.renormalise                         ? 1
                            : r.eps_as == RouterRecipe::Eps::least ? std::max(total, r.eps)
                                                                   : total + r.eps;
      for (std::size_t e : chosen) {
        const double weight = r.scale * score[e] / by_sum;
        const bool at_input = r.weight_at == RouterRecipe::WeightAt::input;
        Matrix row(1, x.cols);
        for (Dim c = 0; c < x.cols; ++c) row.at(0, c) = x.at(t, c) * (at_input ? weight : 1);
        const Matrix out = ffn(expert, concat(name, ".experts.", e), row);
        for (Dim c = 0; c < x.cols; ++c) y.at(t, c) += out.at(0, c) * (at_input ? 1 : weight);
      }
    }
    if (!m.shared) return y;
    expert.width = m.shared->width;
    const Matrix shared = ffn(expert, name + ".shared", x),
                 open = m.shared->gated ? linear(x, name + ".shared_gate") : Matrix(0, 0);
    for (Dim t = 0; t < x.rows; ++t)
      for (Dim c = 0; c < x.cols; ++c)
        y.at(t, c) += shared.at(t, c) * (m.shared->gated ? 1 / (1 + std::exp(-open.at(t, 0))) : 1);
    return y;
  }

  // Every channel by itself: the last rows, weighted.
  Matrix convolved(const Matrix& x, const std::string& name) const {
    const Weight *w = find(name), *bias = find(name + ".bias");
    Matrix y(x.rows, x.cols);
    for (Dim t = 0; t < x.rows; ++t)
      for (Dim c = 0; c < x.cols; ++c) {
        y.at(t, c) = bias ? bias->get(0, c) : 0;
        for (Dim back = 0; back < w->cols && back <= t; ++back)
          y.at(t, c) += w->get(c, w->cols - 1 - back) * x.at(t - back, c);
      }
    return y;
  }

  // The recurrence, row by row.
  Matrix delta(const DeltaRecipe& r, const std::string& name, const Matrix& x) const {
    const auto mixed = [&](const std::string& which) {
      Matrix y = convolved(linear(x, name + which), name + which + "_conv");
      for (double& v : y.v) v = act_of(r.act, v);
      return y;
    };
    const NormRecipe length{.kind = NormRecipe::Kind::l2, .eps = r.eps, .weight = NormRecipe::Gain::none};
    const Matrix q = norm(mixed(".q"), length, "", r.key_dim), k = norm(mixed(".k"), length, "", r.key_dim),
                 v = mixed(".v"), z = linear(x, name + ".z"), b = linear(x, name + ".b"),
                 a = linear(x, name + ".a");
    Matrix o(x.rows, r.value_heads * r.value_dim);
    for (Dim h = 0; h < r.value_heads; ++h) {
      Matrix S(r.key_dim, r.value_dim);
      const Dim at = r.key_dim * (r.share == DeltaRecipe::Share::turns ? h % r.key_heads
                                                                       : h / (r.value_heads / r.key_heads));
      for (Dim t = 0; t < x.rows; ++t) {
        const double step = a.at(t, h) + find(name + ".dt_bias")->get(0, h),
                     keep =
                         std::exp(-std::exp(find(name + ".a_log")->get(0, h)) * std::log1p(std::exp(step))),
                     beta = 1 / (1 + std::exp(-b.at(t, h)));
        for (double& s : S.v) s *= keep;
        for (Dim c = 0; c < r.value_dim; ++c) {
          double told = 0;
          for (Dim d = 0; d < r.key_dim; ++d) told += S.at(d, c) * k.at(t, at + d);
          for (Dim d = 0; d < r.key_dim; ++d) {
            S.at(d, c) += beta * k.at(t, at + d) * (v.at(t, h * r.value_dim + c) - told);
            o.at(t, h * r.value_dim + c) +=
                S.at(d, c) * q.at(t, at + d) / std::sqrt(static_cast<double>(r.key_dim));
          }
        }
      }
    }
    o = norm(o, r.norm, name + ".norm", r.value_dim);
    for (std::size_t i = 0; i < o.v.size(); ++i) o.v[i] *= act_of(r.gate, z.v[i]);
    return linear(o, name + ".out");
  }

  Matrix conv(const std::string& name, const Matrix& x) const {
    const Matrix b = linear(x, name + ".b"), c = linear(x, name + ".c");
    Matrix u = linear(x, name + ".u");
    for (std::size_t i = 0; i < u.v.size(); ++i) u.v[i] *= b.v[i];
    u = convolved(u, name + ".mix");
    for (std::size_t i = 0; i < u.v.size(); ++i) u.v[i] *= c.v[i];
    return linear(u, name + ".out");
  }

  Matrix stack(const StackRecipe& s, const std::string& name, Matrix x, const Matrix& memory,
               Dim prefix) const {
    for (Dim i = 0; i < s.layers; ++i) {
      const LayerRecipe& l = s.layer(i);
      const std::string at = name + "." + std::to_string(s.group_of(i));
      const Matrix shared = norm(x, l.norm_in, at + ".norm_in");
      for (const PartRecipe& p : l.parts) {
        const std::string part = concat(at, ".", part_name(p).word);
        const Matrix h = norm(l.parallel ? shared : x, p.norm_in, part + ".norm_in");
        Matrix y = p.ffn()     ? ffn(*p.ffn(), part, h)
                   : p.moe()   ? moe(*p.moe(), part, h)
                   : p.delta() ? delta(*p.delta(), part, h)
                   : p.conv()
                       ? conv(part, h)
                       : attention(*p.attention(), p.cross(), name, part, h, p.cross() ? memory : h, prefix);
        y = norm(y, p.norm_out, part + ".norm_out");
        if (const Weight* gain = find(part + ".layer_scale"))
          for (Dim t = 0; t < y.rows; ++t)
            for (Dim c = 0; c < y.cols; ++c) y.at(t, c) *= gain->get(0, c);
        for (std::size_t n = 0; n < x.v.size(); ++n) x.v[n] += p.residual_scale * y.v[n];
        x = norm(x, p.norm_sum, part + ".norm_sum");
      }
    }
    return norm(x, s.final_norm, name + ".norm");
  }

  Matrix head(Matrix x) const {
    const HeadRecipe& h = recipe_.head;
    if (h.kind == HeadRecipe::Kind::none) return x;
    const bool classes = h.kind == HeadRecipe::Kind::classes;
    if (classes) {
      Matrix one(1, x.cols);
      for (Dim t = 0; t < x.rows; ++t)
        for (Dim c = 0; c < x.cols; ++c) {
          if (h.pool == HeadRecipe::Pool::mean) one.at(0, c) += x.at(t, c) / static_cast<double>(x.rows);
          else if (t == (h.pool == HeadRecipe::Pool::first ? 0 : x.rows - 1)) one.at(0, c) = x.at(t, c);
        }
      x = one;
    }
    if (h.transform) {
      x = linear(x, classes ? "head.pooler" : "head.transform");
      if (!h.transform->linear)
        for (double& v : x.v) v = act_of(h.transform->act, v);
      x = norm(x, h.transform->norm, "head.norm");
    }
    for (double& v : x.v) v *= h.scale;
    x = classes ? linear(x, "head.classes")
                : linear(x, "head", h.tied ? find("embed.tokens") : find("head.weight"));
    if (h.cap > 0)
      for (double& v : x.v) v = h.cap * std::tanh(v / h.cap);
    return x;
  }

  const Recipe& recipe_;
  NaiveWeights* seen_;
  std::map<std::string, const Weight*> weights_;
};

}  // namespace

std::vector<double> naive_forward(const Model& model, const NaiveSequence& sequence, NaiveWeights* weights) {
  return Naive(model, weights).run(sequence);
}

}  // namespace rapt::test
