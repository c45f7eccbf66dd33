// SPDX-License-Identifier: Apache-2.0
// Cached keys and values in every format. The reference is the attention over a plain buffer that holds what
// the format returns (tensor/formats.h): a cache must give its bits, however the rows came in. Plain
// attention by value: attention_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rapt/ops/attention.h"
#include "rapt/ops/op_test.h"
#include "rapt/ops/rope.h"
#include "rapt/tensor/formats.h"

namespace rapt::test {
namespace {

constexpr DType kFormats[] = {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0};

std::vector<std::string> float_isas() {
  std::vector<std::string> isas;
  for (const std::string& isa : available_isas())
    if (isa != "f64") isas.push_back(isa);
  return isas;
}

std::vector<float> floats(std::size_t n, std::uint64_t seed, double scale = 1) {
  const std::vector<double> x = normals(n, seed, scale);
  return {x.begin(), x.end()};
}

// Rows of `d` numbers as the format gives them back.
std::vector<float> rounded(DType format, std::vector<float> x, Dim d) {
  if (format == DType::f32) return x;
  const auto n = static_cast<std::size_t>(d);
  for (std::size_t at = 0; at < x.size(); at += n) {
    std::vector<std::byte> blocks(bytes_of(format, d, "a row"));
    quantize(format, std::span(x).subspan(at, n), blocks);
    dequantize(format, blocks, std::span(x).subspan(at, n));
  }
  return x;
}

bool same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// One sequence of `length` keys and the last `rows` queries of it.
struct KvScene {
  AttentionSpec spec;
  Mask mask{.right = 0};
  Dim length = 0, rows = 1;
  bool q_kept = false;
  Dim slots = 0, buckets = 0;
  bool dense = false;
};
AttentionSpec spec_of(Dim heads, Dim kv_heads, Dim d, Dim dv) {
  AttentionSpec s;
  s.heads = heads, s.kv_heads = kv_heads, s.head_dim = d, s.v_dim = dv;
  s.scale = 1 / std::sqrt(static_cast<double>(d));
  return s;
}

// Pages in a slab in which every second one is somebody else's, there is room between two, and the order is
// not that of the sequence. NaN wherever nothing was written, also where page -1 would be.
struct Pages {
  KvLayout layout;
  Dim stride;
  std::vector<std::byte> memory;
  std::byte* slab;
  std::vector<std::int32_t> list;
  Pages(KvLayout l, Dim length) : layout(l), stride(l.page_bytes + 192) {
    const Dim count = (length + kPageKeys - 1) / kPageKeys;
    memory.resize(static_cast<std::size_t>((2 * count + 2) * stride + 64), std::byte{0xff});
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    slab = memory.data() + (64 - at % 64) % 64 + stride;
    for (Dim i = 0; i < count; ++i)
      list.push_back(static_cast<std::int32_t>(2 * (i % 2 ? i / 2 : count - 1 - i / 2) + 1));
  }
  std::byte* page(Dim i) const { return slab + list[static_cast<std::size_t>(i)] * stride; }
  KvView view() const { return {layout, slab, stride, {list}}; }
  void write(Device& device, const AttentionPart& part, const void* k, const void* v) const {
    device.kernels.kv_write(device.queue(), {.layout = layout,
                                             .part_count = 1,
                                             .parts = &part,
                                             .k = k,
                                             .v = v,
                                             .slab = slab,
                                             .page_stride = stride});
  }
};

struct Keys {  // a scene's numbers on one device
  KvScene s;
  Device device;
  std::vector<float> q, kept, k, v, dense;
  std::vector<Weight> weights;

  Keys(const KvScene& scene, const std::string& isa, int threads)
      : s(scene), device({.threads = threads, .isa = isa}) {
    const AttentionSpec& a = s.spec;
    auto n = [](Dim x) { return static_cast<std::size_t>(x); };
    q = floats(n(s.rows * a.heads * a.head_dim), 1);
    kept = floats(n(s.rows * a.heads * a.head_dim), 2);
    k = floats(n(s.length * a.kv_heads * a.head_dim), 3);
    v = floats(n(s.length * a.kv_heads * a.v_dim), 4);
    if (s.dense) dense = floats(n(s.rows * s.length), 5);
    auto add = [&](Dim rows, Dim cols, std::uint64_t seed) {
      Weight x = make_weight("w", rows, cols, device.real, Packing::rows);
      const std::vector<float> values = floats(static_cast<std::size_t>(rows * cols), seed);
      std::memcpy(x.data.get(), values.data(), values.size() * sizeof(float));
      weights.push_back(std::move(x));
    };
    const Dim slots = std::max<Dim>(1, s.slots);
    add(slots, s.spec.kv_heads * s.spec.head_dim, 6);
    add(slots, s.spec.kv_heads * s.spec.v_dim, 7);
    add(s.spec.heads, s.spec.head_dim, 8);
    add(1, s.spec.heads, 9);
    add(std::max<Dim>(2, s.buckets), s.spec.heads, 10);
  }

  // Rows [first, first + count) of the scene's queries; keys from `view`, or from plain buffers.
  std::vector<float> attend(Dim first, Dim count, const KvView* view, std::span<const float> keys = {},
                            std::span<const float> values = {}) {
    rapt::Run run(device);
    const AttentionSpec& a = s.spec;
    auto upload = [&](std::span<const float> x, Dim rows, Dim heads, Dim d, Dim from) {
      const Tensor t = run.make({rows, heads, d});
      std::memcpy(t.data, x.data() + from * heads * d,
                  static_cast<std::size_t>(rows * heads * d) * sizeof(float));
      return t;
    };
    AttentionInputs in;
    in.q = upload(q, count, a.heads, a.head_dim, first);
    if (s.q_kept) in.q_kept = upload(kept, count, a.heads, a.head_dim, first);
    const Dim length = s.length - s.rows + first + count;  // keys up to the last row
    if (view) in.cache = view;
    else {
      in.k = upload(keys, length, a.kv_heads, a.head_dim, 0);
      if (!a.values_in_keys) in.v = upload(values, length, a.kv_heads, a.v_dim, 0);
    }
    if (s.slots) in.slot_k = &weights[0], in.slot_v = &weights[1];
    if (a.score == Score::additive) in.score_weight = &weights[2];
    if (a.extra == Extra::learned_logit) in.extra_logit = &weights[3];
    if (a.bias == Bias::bucket) in.buckets = &weights[4];
    if (s.dense)
      in.dense_bias =
          upload(std::span(dense).subspan(static_cast<std::size_t>(first * s.length)), 1, count, s.length, 0);
    const Sequence sequence{.first = 0, .count = count, .past = length - count};
    RowPlan plan = plan_rows(s.mask, {&sequence, 1});
    const Tensor z = attention(run, a, in, plan);
    return {z.as<float>().begin(), z.as<float>().end()};
  }
  void write(Pages& pages, Dim first, Dim count) {
    pages.write(device, {first, count, 0, first + count, pages.list.data()}, k.data(),
                s.spec.values_in_keys ? nullptr : v.data());
  }
};

// Every row of the scene: rounded keys in a plain buffer = a cache, all rows at once = `few` rows at a time.
void expect_equal_bits(const KvScene& s, DType format, const std::string& isa, int threads,
                       std::initializer_list<Dim> few) {
  SCOPED_TRACE(concat(name_of(format), " on ", isa, ", ", threads, " threads, ", s.spec.heads, "/",
                      s.spec.kv_heads, " heads of ", s.spec.head_dim, "/", s.spec.v_dim, ", ", s.length,
                      " keys"));
  Keys x(s, isa, threads);
  const std::vector<float> plain =
      x.attend(0, s.rows, nullptr, rounded(format, x.k, s.spec.head_dim), rounded(format, x.v, s.spec.v_dim));
  Pages pages(kv_layout(format, s.spec.kv_heads, s.spec.head_dim, s.spec.v_dim, s.spec.values_in_keys),
              s.length);
  x.write(pages, 0, s.length - s.rows);
  const KvView view = pages.view();
  for (Dim count : few) {
    std::vector<float> pieces;
    for (Dim at = 0; at < s.rows; at += count) {
      const Dim n = std::min(count, s.rows - at);
      x.write(pages, s.length - s.rows + at, n);
      for (float y : x.attend(at, n, &view)) pieces.push_back(y);
    }
    EXPECT_TRUE(same(plain, pieces)) << count << " rows at a time";
  }
}

TEST(Kv, EveryFormatGivesTheBitsOfItsRoundedKeys) {
  for (const std::string& isa : float_isas())
    for (DType format : kFormats) {
      for (Dim group : {1, 3, 4, 8})
        expect_equal_bits({.spec = spec_of(2 * group, 2, 64, 64), .length = 150, .rows = 40}, format, isa, 1,
                          {1, 2, 40});
      for (Dim d : {32, 128, 256})
        expect_equal_bits({.spec = spec_of(6, 2, d, d), .length = 131, .rows = 9}, format, isa, 2, {1, 9});
      expect_equal_bits({.spec = spec_of(3, 1, 64, 32), .length = 70, .rows = 12}, format, isa, 1, {1, 12});
      expect_equal_bits({.spec = spec_of(40, 1, 32, 96), .length = 70, .rows = 3}, format, isa, 1, {1, 3});
    }
}

AttentionSpec latent_of(Dim heads, Dim kv_heads, Dim d, Dim dv) {
  AttentionSpec s = spec_of(heads, kv_heads, d, dv);
  s.values_in_keys = true;
  return s;
}

// Pages without values: the first channels of a key are its value, in both kernels and every format.
TEST(Kv, ValuesInKeysGiveTheBitsOfTheirRoundedKeys) {
  for (const std::string& isa : float_isas())
    for (DType format : kFormats) {
      for (Dim heads : {1, 5, 16, 40})
        expect_equal_bits({.spec = latent_of(heads, 1, 96, 64), .length = 150, .rows = 11}, format, isa, 1,
                          {1, 2, 11});
      expect_equal_bits({.spec = latent_of(130, 1, 32, 32), .length = 70, .rows = 3}, format, isa, 2, {1, 3});
      expect_equal_bits({.spec = latent_of(6, 2, 64, 32), .length = 131, .rows = 9}, format, isa, 2, {1, 9});
      if (isa != "scalar")
        expect_equal_bits({.spec = latent_of(16, 1, 576, 512), .length = 300, .rows = 9}, format, isa, 2,
                          {1, 9});
      if (is_block(format)) continue;
      for (Dim d : {1, 7, 20, 83})
        expect_equal_bits({.spec = latent_of(6, 1, d + 2, d), .length = 130, .rows = 20}, format, isa, 1,
                          {1, 3, 20});
    }
}

TEST(Kv, ValuesInKeysTakeNoRoom) {
  const KvLayout with = kv_layout(DType::f32, 1, 576, 512),
                 without = kv_layout(DType::f32, 1, 576, 512, true);
  EXPECT_EQ(with.head_bytes - without.head_bytes, kPageKeys * 512 * 4);
  EXPECT_EQ(without.head_bytes, kPageKeys * 576 * 4);
  EXPECT_EQ(kv_layout(DType::q8_0, 1, 576, 512, true).head_bytes, kPageKeys * 576 / 32 * 34);
  EXPECT_THROW(kv_layout(DType::q8_0, 1, 44, 32, true), Error);
}

TEST(Kv, AroundPagesAndSplits) {
  for (const std::string& isa : float_isas())
    for (DType format : kFormats)
      for (Dim length : {1, 2, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 2050}) {
        if (isa == "scalar" && length > 100 && format != DType::q4_0) continue;
        expect_equal_bits(
            {.spec = spec_of(3, 1, 32, 32), .length = length, .rows = std::min<Dim>(length, 12)}, format, isa,
            1 + static_cast<int>(length % 3), {1, 5, 12});
      }
}

TEST(Kv, OddSizesInFloatFormats) {
  for (const std::string& isa : float_isas())
    for (DType format : {DType::f32, DType::bf16, DType::f16})
      for (Dim d : {1, 5, 20, 80})
        expect_equal_bits({.spec = spec_of(6, 2, d, d + 3), .length = 130, .rows = 20}, format, isa, 1,
                          {1, 3, 20});
}

TEST(Kv, EveryOption) {
  std::vector<std::pair<const char*, KvScene>> scenes;
  auto add = [&](const char* name, auto change) {
    KvScene s{.spec = spec_of(6, 2, 32, 64), .length = 300, .rows = 30};
    change(s);
    scenes.emplace_back(name, s);
  };
  add("cap", [](KvScene& s) { s.spec.cap = 2; });
  add("alibi", [](KvScene& s) { s.spec.bias = Bias::alibi; });
  add("buckets", [](KvScene& s) { s.spec.bias = Bias::bucket, s.buckets = 8, s.spec.bucket_max = 40; });
  add("dense bias", [](KvScene& s) { s.spec.bias = Bias::dense, s.dense = true; });
  add("zero logit", [](KvScene& s) { s.spec.extra = Extra::zero_logit; });
  add("learned logit", [](KvScene& s) { s.spec.extra = Extra::learned_logit; });
  add("slots", [](KvScene& s) { s.slots = 3; });
  add("sigmoid", [](KvScene& s) { s.spec.normal = Normal::sigmoid; });
  add("l2", [](KvScene& s) { s.spec.score = Score::l2; });
  add("additive", [](KvScene& s) { s.spec.score = Score::additive, s.rows = 5; });
  add("window", [](KvScene& s) { s.mask.left = 70; });
  add("chunks", [](KvScene& s) { s.mask.chunk = 90; });
  add("streaming", [](KvScene& s) { s.mask = {.left = 70, .right = 0, .keep = 4}, s.q_kept = true; });
  add("streaming, many kept",
      [](KvScene& s) { s.mask = {.left = 20, .right = 0, .keep = 130}, s.q_kept = true; });
  add("streaming far", [](KvScene& s) {
    s.mask = {.left = 70, .right = 0, .keep = 4}, s.q_kept = true, s.length = 2500, s.rows = 12;
  });
  add("everything", [](KvScene& s) {
    s.mask = {.left = 70, .right = 0, .keep = 5}, s.q_kept = true, s.spec.cap = 3, s.spec.bias = Bias::bucket,
    s.buckets = 8;
    s.spec.extra = Extra::learned_logit;
  });
  add("values in keys, streaming, cap and buckets", [](KvScene& s) {
    s.spec = latent_of(6, 1, 96, 64), s.mask = {.left = 70, .right = 0, .keep = 5}, s.q_kept = true;
    s.spec.cap = 3, s.spec.bias = Bias::bucket, s.buckets = 8, s.spec.extra = Extra::learned_logit;
  });
  add("values in keys, sigmoid",
      [](KvScene& s) { s.spec = latent_of(6, 1, 64, 64), s.spec.normal = Normal::sigmoid; });
  add("streaming alibi",
      [](KvScene& s) { s.mask = {.left = 70, .right = 0, .keep = 5}, s.spec.bias = Bias::alibi; });
  for (const auto& [name, scene] : scenes)
    for (const std::string& isa : float_isas())
      for (DType format : kFormats) {
        if (format == DType::f16 || (isa == "scalar" && format != DType::q8_0)) continue;
        SCOPED_TRACE(name);
        expect_equal_bits(scene, format, isa, 1, {1, 4, 30});
      }
}

// Two sequences in one slab, their pages between each other's, the first one shared; nothing is written
// outside a page, and order and distance of pages change no bit.
TEST(Kv, PagesLieAnywhereInASharedSlab) {
  const KvScene s{.spec = spec_of(6, 2, 32, 64), .length = 300, .rows = 20};
  for (DType format : kFormats) {
    SCOPED_TRACE(name_of(format));
    Keys x(s, available_isas().back(), 2);
    const KvLayout layout = kv_layout(format, 2, 32, 64);
    Pages own(layout, s.length);
    own.stride = layout.page_bytes;  // one behind the other
    for (std::size_t i = 0; i < own.list.size(); ++i) own.list[i] = static_cast<std::int32_t>(i);
    x.write(own, 0, s.length);
    const KvView plain = own.view();
    Pages slab(layout, 2 * s.length);  // 10 pages, for 5 and 4 more
    const std::vector<std::int32_t> a = {7, 2, 9, 0, 5}, b = {7, 1, 8, 3, 6};
    const AttentionPart parts[] = {{0, 300, 0, 300, a.data()}, {64, 236, 0, 300, b.data()}};
    x.device.kernels.kv_write(x.device.queue(), {.layout = layout,
                                                 .part_count = 2,
                                                 .parts = parts,
                                                 .k = x.k.data(),
                                                 .v = x.v.data(),
                                                 .slab = slab.slab,
                                                 .page_stride = slab.stride});
    auto untouched = [&](Dim page, Dim from) {
      const std::byte* p = slab.slab + page * slab.stride;
      return std::all_of(p + from, p + slab.stride, [](std::byte x) { return x == std::byte{0xff}; });
    };
    for (Dim page = -1; page < 12; ++page) {
      const bool used = page >= 0 && page < 10 && page != 4;
      EXPECT_TRUE(untouched(page, used ? layout.page_bytes : 0)) << "page " << page;
      EXPECT_EQ(untouched(page, 0), !used) << "page " << page;
    }
    for (const auto* list : {&a, &b}) {
      const KvView view{layout, slab.slab, slab.stride, {*list}};
      for (Dim count : {1, 20}) EXPECT_TRUE(same(x.attend(0, count, &plain), x.attend(0, count, &view)));
    }
  }
}

// Pages hold the same bytes however the rows were cut, and dequantize to what the format defines: checked
// above through the bits.
TEST(Kv, ThreadsAndCompanyChangeNothing) {
  const KvScene s{.spec = spec_of(9, 3, 64, 64), .length = 2100, .rows = 1};
  for (DType format : kFormats) {
    std::vector<std::vector<float>> all;
    for (int threads : {1, 2, 3}) {
      Keys x(s, available_isas().back(), threads);
      Pages pages(kv_layout(format, 3, 64, 64), s.length);
      x.write(pages, 0, 1000 * threads % 1700);
      x.write(pages, 1000 * threads % 1700, s.length - 1000 * threads % 1700);
      const KvView view = pages.view();
      all.push_back(x.attend(0, 1, &view));
      // the same sequence between others of other lengths
      rapt::Run run(x.device);
      const Tensor q = run.make({5, 9, 64});
      for (std::size_t i = 0; i < 5; ++i)
        std::memcpy(q.as<float>().data() + i * 576, x.q.data(), 576 * sizeof(float));
      const Sequence batch[] = {{.first = 0, .count = 1, .past = 100},
                                {.first = 1, .count = 1, .past = 2099},
                                {.first = 2, .count = 3, .past = 1500}};
      KvView three = pages.view();
      three.pages = {pages.list, pages.list, pages.list};
      const Tensor z = attention(run, s.spec, {.q = q, .cache = &three}, plan_rows(s.mask, batch));
      EXPECT_TRUE(same(all[0], z.as<float>().subspan(576, 576)))
          << name_of(format) << ", " << threads << " threads, in a batch";
    }
    EXPECT_TRUE(same(all[0], all[1])) << name_of(format);
    EXPECT_TRUE(same(all[0], all[2])) << name_of(format);
  }
}

// By value, in double: softmax(q k / sqrt(d)) v over rounded keys, and how far that is from the
// unrounded one.
TEST(Kv, ValuesAndErrorsOfTheFormats) {
  const KvScene s{.spec = spec_of(3, 1, 64, 64), .length = 500, .rows = 1};
  auto plain = [&](const Keys& x, const std::vector<float>& k, const std::vector<float>& v) {
    std::vector<double> out;
    for (std::size_t h = 0; h < 3; ++h) {
      std::vector<double> p(500), o(64);
      double sum = 0;
      for (std::size_t j = 0; j < 500; ++j) {
        double z = 0;
        for (std::size_t d = 0; d < 64; ++d) z += static_cast<double>(x.q[h * 64 + d]) * k[j * 64 + d];
        sum += p[j] = std::exp(z / 8);
      }
      for (std::size_t j = 0; j < 500; ++j)
        for (std::size_t d = 0; d < 64; ++d) o[d] += p[j] / sum * v[j * 64 + d];
      out.insert(out.end(), o.begin(), o.end());
    }
    return out;
  };
  const double allowed[] = {1e-13, 1e-4, 1e-6, 5e-4, 0.15};
  for (std::size_t f = 0; f < std::size(kFormats); ++f) {
    Keys x(s, available_isas().back(), 1);
    Pages pages(kv_layout(kFormats[f], 1, 64, 64), s.length);
    x.write(pages, 0, s.length);
    const KvView view = pages.view();
    const std::vector<float> got = x.attend(0, 1, &view);
    const std::vector<double> values(got.begin(), got.end());
    EXPECT_LT(nmse(values, plain(x, rounded(kFormats[f], x.k, 64), rounded(kFormats[f], x.v, 64))), 1e-12)
        << name_of(kFormats[f]);
    const double error = nmse(values, plain(x, x.k, x.v));
    EXPECT_LT(error, allowed[f]) << name_of(kFormats[f]);
    EXPECT_TRUE(f == 0 || error > 1e-12) << name_of(kFormats[f]) << " did not round";
  }
}

TEST(Kv, WeightsOfARowComeFromTheCache) {
  for (DType format : kFormats) {
    Keys x({.spec = spec_of(4, 2, 32, 32), .length = 100, .rows = 1}, available_isas().back(), 1);
    Pages pages(kv_layout(format, 2, 32, 32), 100);
    x.write(pages, 0, 100);
    const KvView view = pages.view();
    rapt::Run run(x.device);
    Taps taps;
    run.taps = &taps;
    std::vector<double> weights;
    taps.want_weights(
        site::attn_weights, [](const Tapped&) { return std::vector<Taps::HeadRow>{{.head = 3, .row = 0}}; },
        [&](const Tapped& t) { weights = values_of(t.value); });
    const Tensor q = run.make({1, 4, 32});
    std::memcpy(q.data, x.q.data(), x.q.size() * sizeof(float));
    const Sequence one{.first = 0, .count = 1, .past = 99};
    const Tensor z = attention(run, x.s.spec, {.q = q, .cache = &view}, plan_rows(x.s.mask, {&one, 1}));
    ASSERT_EQ(weights.size(), 100u);
    const std::vector<float> v = rounded(format, x.v, 32);
    for (std::size_t d = 0; d < 32; ++d) {
      double sum = 0;
      for (std::size_t j = 0; j < 100; ++j) sum += weights[j] * v[(j * 2 + 1) * 32 + d];
      EXPECT_NEAR(z.as<float>()[3 * 32 + d], sum, 1e-5) << name_of(format);
    }
  }
}

// Values of changed rows, too: the page that has no weight any more may be gone.
TEST(Kv, ChangedRowsReadTheirValuesFromTheCache) {
  for (const std::string& isa : float_isas())
    for (const bool latent : {false, true})
      for (DType format : kFormats) {
        if (latent && is_block(format)) continue;
        SCOPED_TRACE(concat(name_of(format), " on ", isa, latent ? ", values in keys" : ""));
        const Dim K = latent ? 1 : 2, D = latent ? 96 : 64;
        Keys x({.spec = latent ? latent_of(4, 1, D, 64) : spec_of(4, K, D, 64), .length = 200, .rows = 1},
               isa, 1);
        Pages pages(kv_layout(format, K, D, 64, latent), 200);
        x.write(pages, 0, 200);
        const KvView view = pages.view();
        rapt::Run run(x.device);
        Taps taps;
        run.taps = &taps;
        std::vector<double> weights;
        taps.edit_rows(
            site::attn_weights, [](const Tapped& t) { return t.head == 3; },
            [&](const Tapped& t) {
              for (Dim i = 64; i < 128; ++i) t.value.set(i, 0);
              weights = values_of(t.value);
            });
        const Tensor q = run.make({1, 4, D});
        std::memcpy(q.data, x.q.data(), x.q.size() * sizeof(float));
        const Sequence one{.first = 0, .count = 1, .past = 199};
        const Tensor z = attention(run, x.s.spec, {.q = q, .cache = &view}, plan_rows(x.s.mask, {&one, 1}));
        ASSERT_EQ(weights.size(), 200u);
        const std::vector<float> v = rounded(format, latent ? x.k : x.v, latent ? D : 64);
        for (std::size_t d = 0; d < 64; ++d) {
          double sum = 0;
          for (std::size_t j = 0; j < 200; ++j)
            sum += weights[j] * static_cast<double>(latent ? v[j * 96 + d] : v[(j * 2 + 1) * 64 + d]);
          EXPECT_NEAR(static_cast<double>(z.as<float>()[3 * 64 + d]), sum, 1e-5);
        }
      }
}

// ----------------------------------------------------------------------------- streams of several sequences
// One pass: each sequence has the keys it keeps, its window and its pages. Every one has the bits of plain
// buffers and a mask of its own, alone.
struct Member {
  Dim length, rows;
  Stream stream = {};
  bool evicted = false;  // pages nobody sees are gone
};

void expect_streams_alone(KvScene scene, const std::vector<Member>& members, DType format,
                          const std::string& isa, int threads) {
  SCOPED_TRACE(concat(name_of(format), " on ", isa, ", ", threads, " threads"));
  const AttentionSpec& spec = scene.spec;
  const KvLayout layout = kv_layout(format, spec.kv_heads, spec.head_dim, spec.v_dim);
  const Dim wide = spec.heads * spec.head_dim;
  Dim rows = 0, longest = 0;
  for (const Member& m : members) rows += m.rows, longest = std::max(longest, m.length);
  // Keys and values of the longest are everybody's; queries are their own.
  scene.length = longest, scene.rows = rows;
  Keys x(scene, isa, threads);
  Pages pages(layout, longest);
  x.write(pages, 0, longest);
  const std::vector<float> k = rounded(format, x.k, spec.head_dim), v = rounded(format, x.v, spec.v_dim);

  auto inputs = [&](rapt::Run& run, Dim first, Dim count, bool kept) {
    auto upload = [&](const std::vector<float>& from) {
      const Tensor t = run.make({count, spec.heads, spec.head_dim});
      std::memcpy(t.data, from.data() + first * wide, static_cast<std::size_t>(count * wide) * sizeof(float));
      return t;
    };
    AttentionInputs in{.q = upload(x.q)};
    if (kept) in.q_kept = upload(x.kept);
    if (scene.slots) in.slot_k = &x.weights[0], in.slot_v = &x.weights[1];
    if (spec.score == Score::additive) in.score_weight = &x.weights[2];
    if (spec.extra == Extra::learned_logit) in.extra_logit = &x.weights[3];
    if (spec.bias == Bias::bucket) in.buckets = &x.weights[4];
    return in;
  };
  auto watch = [](rapt::Run& run, Taps& taps, std::vector<double>& stats, Dim weights_of) {
    run.taps = &taps;
    taps.see(site::attn_stats, [&stats](const Tapped& t) { stats = values_of(t.value); });
    taps.want_weights(
        site::attn_weights,
        [weights_of](const Tapped&) { return std::vector<Taps::HeadRow>{{.head = 1, .row = weights_of}}; },
        [&stats](const Tapped& t) {
          const std::vector<double> w = values_of(t.value);
          stats.insert(stats.end(), w.begin(), w.end());
        });
  };

  KvView view{layout, pages.slab, pages.stride, {}};
  std::vector<std::vector<std::int32_t>> lists;
  std::vector<Sequence> batch;
  Dim first = 0;
  for (const Member& m : members) {
    lists.emplace_back(pages.list.begin(), pages.list.begin() + (m.length + kPageKeys - 1) / kPageKeys);
    const Dim low = m.length - m.rows - m.stream.window + 1;  // what the first row still sees
    for (std::size_t i = 0; m.evicted && i < lists.back().size(); ++i) {
      const Dim begin = static_cast<Dim>(i) * kPageKeys;
      if (begin >= m.stream.keep && begin + kPageKeys <= low) lists.back()[i] = -1;
    }
    EXPECT_EQ(std::count(lists.back().begin(), lists.back().end(), -1) > 0, m.evicted);
    batch.push_back({.first = first, .count = m.rows, .past = m.length - m.rows, .stream = m.stream});
    first += m.rows;
  }
  for (const auto& list : lists) view.pages.emplace_back(list);

  for (bool watched : {false, true}) {
    rapt::Run run(x.device);
    Taps taps;
    std::vector<double> stats;
    if (watched) watch(run, taps, stats, 0);
    AttentionInputs in = inputs(run, 0, rows, true);
    in.cache = &view;
    const Tensor all = attention(run, spec, in, plan_rows({.right = 0}, batch));
    const auto out = static_cast<std::size_t>(spec.heads * spec.v_dim);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Member& m = members[i];
      const bool on = m.stream.window > 0;
      const Mask mask{
          .left = on ? m.stream.window - 1 : Mask::kAll, .right = 0, .keep = on ? m.stream.keep : 0};
      const Sequence one{.count = m.rows, .past = m.length - m.rows};
      rapt::Run alone(x.device);
      AttentionInputs own = inputs(alone, batch[i].first, m.rows, mask.keep > 0);
      own.k = alone.make({m.length, spec.kv_heads, spec.head_dim});
      own.v = alone.make({m.length, spec.kv_heads, spec.v_dim});
      std::memcpy(own.k.data, k.data(), own.k.as<float>().size_bytes());
      std::memcpy(own.v.data, v.data(), own.v.as<float>().size_bytes());
      const Tensor z = attention(alone, spec, own, plan_rows(mask, {&one, 1}));
      EXPECT_TRUE(same(z.as<float>(), all.as<float>().subspan(static_cast<std::size_t>(batch[i].first) * out,
                                                              static_cast<std::size_t>(m.rows) * out)))
          << "sequence " << i << (watched ? ", watched" : "");
    }
    if (!watched) continue;
    // Statistics and the weights of one row: those of the sequence alone, through the same pages.
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<double> company;
      rapt::Run again(x.device), alone(x.device);
      Taps taps_again, taps_alone;
      watch(again, taps_again, company, batch[i].first);
      AttentionInputs with = inputs(again, 0, rows, true);
      with.cache = &view;
      attention(again, spec, with, plan_rows({.right = 0}, batch));
      std::vector<double> own_stats;
      watch(alone, taps_alone, own_stats, 0);
      AttentionInputs own = inputs(alone, batch[i].first, members[i].rows, members[i].stream.keep > 0);
      KvView own_view = view;
      own_view.pages = {lists[i]};
      own.cache = &own_view;
      Sequence one = batch[i];
      one.first = 0;
      attention(alone, spec, own, plan_rows({.right = 0}, {&one, 1}));
      const auto row = static_cast<std::size_t>(spec.heads * AttentionStat::count);
      const auto at = company.begin() + static_cast<std::ptrdiff_t>(row) * batch[i].first;
      std::vector<double> expected(at, at + static_cast<std::ptrdiff_t>(row) * members[i].rows);
      expected.insert(expected.end(), company.begin() + static_cast<std::ptrdiff_t>(row) * rows,
                      company.end());
      EXPECT_EQ(own_stats, expected) << "sequence " << i;
    }
  }
}

TEST(Kv, EverySequenceStreamsByItself) {
  // Steps of decoding, chunks, and both in one pass.
  const std::vector<std::vector<Member>> passes = {
      {{300, 1, {4, 70}}, {280, 1}, {290, 1, {130, 20}}, {600, 1, {3, 100}, true}, {200, 1, {0, 40}, true}},
      {{300, 40, {4, 70}}, {280, 33}, {290, 50, {130, 20}}, {600, 25, {3, 100}, true}, {40, 40, {5, 10}}},
      {{90, 90, {2, 5}}, {700, 3, {70, 30}, true}, {65, 1}, {64, 2, {9, 200}}, {1, 1, {4, 4}}, {530, 20}}};
  std::vector<std::pair<const char*, KvScene>> scenes;
  auto add = [&](const char* name, auto change) {
    KvScene s{.spec = spec_of(6, 2, 32, 64)};
    change(s);
    scenes.emplace_back(name, s);
  };
  add("plain", [](KvScene&) {});
  add("cap and alibi", [](KvScene& s) { s.spec.cap = 3, s.spec.bias = Bias::alibi; });
  add("buckets", [](KvScene& s) { s.spec.bias = Bias::bucket, s.buckets = 8, s.spec.bucket_max = 40; });
  add("l2 with slots", [](KvScene& s) { s.spec.score = Score::l2, s.slots = 3; });
  add("additive", [](KvScene& s) { s.spec.score = Score::additive; });
  for (const auto& [name, scene] : scenes)
    for (const std::vector<Member>& pass : passes)
      for (const std::string& isa : float_isas())
        for (DType format : kFormats) {
          const bool costly = isa == "scalar" || scene.spec.score == Score::additive;
          if (format == DType::f16 || (costly && format != DType::q8_0)) continue;
          SCOPED_TRACE(name);
          expect_streams_alone(scene, pass, format, isa, 1 + static_cast<int>(pass.size() % 2));
        }
}

// What a stream may not see may be gone; what it sees may not.
TEST(Kv, AStreamNeedsThePagesItSees) {
  Device device({.threads = 1});
  rapt::Run run(device);
  Pages pages(kv_layout(DType::f32, 1, 32, 32), 300);
  std::memset(pages.memory.data(), 0, pages.memory.size());
  auto passes = [&](Stream stream, Dim gone) {
    KvView view = pages.view();
    std::vector<std::int32_t> list = pages.list;
    list[static_cast<std::size_t>(gone)] = -1;
    view.pages = {pages.list, list};
    // the first one streams too, and keeps more: that is its own matter
    const Sequence two[] = {{.first = 0, .count = 1, .past = 299, .stream = {.keep = 250, .window = 1}},
                            {.first = 1, .count = 1, .past = 299, .stream = stream}};
    try {
      attention(run, spec_of(1, 1, 32, 32), {.q = run.make({2, 1, 32}), .cache = &view},
                plan_rows({.right = 0}, two));
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  EXPECT_TRUE(passes({4, 40}, 1));
  EXPECT_TRUE(passes({4, 40}, 3));
  EXPECT_FALSE(passes({4, 40}, 0));
  EXPECT_FALSE(passes({4, 45}, 3));  // key 255
  EXPECT_FALSE(passes({4, 40}, 4));
  EXPECT_TRUE(passes({0, 40}, 0));
  EXPECT_FALSE(passes({65, 40}, 1));
  EXPECT_FALSE(passes({4, 0}, 1));
}

// ---------------------------------------------------------------------------------- keys without their bias
struct Biased {
  Dim K = 2, H = 6, D = 64, length = 200;
  RopeSpec rope;
  double norm = 300;  // of a kv head's bias
  DType values = DType::f32;  // V holds numbers that this format returns unchanged
};

// Attention of the last `rows` rows, `few` at a time. Full: keys with their bias in `format`. Apart:
// without, and the bias beside.
std::vector<double> biased(const Biased& b, DType format, bool apart, Dim rows, Dim few,
                           const std::string& isa, bool kept = false) {
  Device device({.threads = 2, .isa = isa});
  rapt::Run run(device);
  auto n = [](Dim x) { return static_cast<std::size_t>(x); };
  std::vector<double> bias = normals(n(b.K * b.D), 20);
  for (Dim h = 0; h < b.K; ++h) {
    double sum = 0;
    for (Dim d = 0; d < b.D; ++d) sum += bias[n(h * b.D + d)] * bias[n(h * b.D + d)];
    for (Dim d = 0; d < b.D; ++d)
      bias[n(h * b.D + d)] = static_cast<float>(bias[n(h * b.D + d)] * b.norm / std::sqrt(sum));
  }
  std::vector<double> raw = normals(n(b.length * b.K * b.D), 21);
  if (!apart)
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += bias[i % bias.size()];
  std::vector<std::int32_t> positions(n(b.length));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  const Dim lengths[] = {b.length};
  const RopeTable table = rope_table(run, b.rope, b.D, positions, lengths);
  const std::vector<float> values = rounded(b.values, floats(n(b.length * b.K * b.D), 22), b.D);
  const Tensor k = rapt::rope(run, run.upload({b.length, b.K, b.D}, raw), table),
               v = run.make({b.length, b.K, b.D});
  std::memcpy(v.data, values.data(), values.size() * sizeof(float));
  const Tensor bias_tensor = run.upload({b.K, b.D}, bias);
  const Tensor q = run.upload({rows, b.H, b.D}, normals(n(rows * b.H * b.D), 23)),
               q2 = run.upload({rows, b.H, b.D}, normals(n(rows * b.H * b.D), 24));

  Pages pages(kv_layout(format, b.K, b.D, b.D), b.length);
  pages.write(device, {0, b.length, 0, b.length, pages.list.data()}, k.data, v.data);
  KvView view = pages.view();
  const Dim half = table.cos[1], bias_channels = 2 * half + (2 * half < b.D);
  Pages angles({.page_bytes = bias_channels * kPageKeys * static_cast<Dim>(size_of(device.real))}, b.length);
  if (apart) {
    for (Dim j = 0; j < b.length; ++j) {
      auto* to = reinterpret_cast<float*>(angles.page(j / kPageKeys)) + j % kPageKeys;
      for (Dim i = 0; i < half; ++i) {
        to[i * kPageKeys] = table.cos.as<float>()[n(j * half + i)];
        to[(half + i) * kPageKeys] = table.sin.as<float>()[n(j * half + i)];
      }
      if (bias_channels > 2 * half) to[2 * half * kPageKeys] = 1;
    }
    view.bias = {.bias = bias_tensor.data,
                 .half = half,
                 .rows = bias_channels,
                 .neighbours = b.rope.layout == RopeLayout::pairs,
                 .slab = angles.slab,
                 .stride = angles.stride,
                 .angles = {angles.list}};
  }
  AttentionSpec spec = spec_of(b.H, b.K, b.D, b.D);
  // Trained queries keep such logits in range.
  spec.scale = 1 / std::sqrt(static_cast<double>(b.D)) / std::max(1.0, b.norm / 30);
  std::vector<double> out;
  for (Dim at = 0; at < rows; at += few) {
    const Dim count = std::min(few, rows - at);
    auto some = [&](const Tensor& t) {
      const Tensor s = run.make({count, b.H, b.D});
      std::memcpy(s.data, t.as<float>().data() + at * b.H * b.D, n(count * b.H * b.D) * sizeof(float));
      return s;
    };
    const Sequence one{.first = 0, .count = count, .past = b.length - rows + at};
    const Tensor z =
        attention(run, spec, {.q = some(q), .q_kept = kept ? some(q2) : Tensor{}, .cache = &view},
                  plan_rows({.left = kept ? 90 : Mask::kAll, .right = 0, .keep = kept ? 5 : 0}, {&one, 1}));
    for (double x : values_of(z)) out.push_back(x);
  }
  return out;
}

TEST(Kv, AKeyBiasBesideTheCacheIsTheKeyBias) {
  for (RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (double part : {1.0, 0.5})
      for (bool kept : {false, true})
        for (const std::string& isa : float_isas()) {
          const Biased b{.rope = {.part = part, .layout = layout}, .norm = 20};
          EXPECT_LT(nmse(biased(b, DType::f32, true, 3, 1, isa, kept),
                         biased(b, DType::f32, false, 3, 1, isa, kept)),
                    1e-10)
              << isa << ", part " << part << (layout == RopeLayout::pairs ? ", pairs" : ", halves")
              << (kept ? ", streaming" : "");
          for (DType format : kFormats)
            EXPECT_EQ(biased(b, format, true, 12, 1, isa, kept), biased(b, format, true, 12, 12, isa, kept))
                << name_of(format);
        }
}

TEST(Kv, AQuantizedCacheNeedsTheKeyBiasBesideIt) {
  for (DType format : {DType::q8_0, DType::q4_0}) {
    const Biased b{.values = format};
    const std::vector<double> exact = biased(b, DType::f32, false, 8, 1, available_isas().back());
    const double whole = nmse(biased(b, format, false, 8, 1, available_isas().back()), exact),
                 apart = nmse(biased(b, format, true, 8, 1, available_isas().back()), exact);
    std::printf("key bias of norm 300, %s: error %.2e with the bias in the cache, %.2e beside it\n",
                name_of(format), whole, apart);
    EXPECT_LT(apart, whole / 100) << name_of(format);
  }
}

TEST(Kv, RefusesWhatDoesNotFit) {
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message([] { kv_layout(DType::q8_0, 2, 80, 80); }).find("f32, bf16 and f16 fit"),
            std::string::npos);
  EXPECT_NE(message([] { kv_layout(DType::q4_0, 2, 64, 48); }).find("64 (keys) and 48 (values)"),
            std::string::npos);
  EXPECT_NE(message([] { kv_layout(DType::q4_k, 2, 256, 256); }).find("cannot be q4_k"), std::string::npos);
  EXPECT_EQ(message([] { kv_layout(DType::q8_0, 2, 96, 32); }), "");
  // A cache of another real type
  Device exact({.threads = 1, .isa = "f64"});
  rapt::Run run(exact);
  Pages pages(kv_layout(DType::q8_0, 1, 32, 32), 1);
  const KvView view = pages.view();
  const Sequence one{.first = 0, .count = 1};
  EXPECT_NE(message([&] {
              attention(run, spec_of(1, 1, 32, 32), {.q = run.make({1, 1, 32}), .cache = &view},
                        plan_rows({.right = 0}, {&one, 1}));
            }).find("the cache is q8_0"),
            std::string::npos);
  // Angles that are gone, or do not fit
  Device device({.threads = 1});
  rapt::Run floats_run(device);
  Pages whole(kv_layout(DType::f32, 1, 32, 32), 100), angles({.page_bytes = 32 * kPageKeys * 4}, 100);
  std::vector<std::int32_t> list = angles.list;
  KvView biased_view = whole.view();
  const Tensor bias = floats_run.upload({1, 32}, normals(32, 1));
  biased_view.bias = {.bias = bias.data,
                      .half = 16,
                      .rows = 32,
                      .slab = angles.slab,
                      .stride = angles.stride,
                      .angles = {list}};
  const Sequence last{.first = 0, .count = 1, .past = 99};
  auto run_it = [&] {
    attention(floats_run, spec_of(1, 1, 32, 32), {.q = floats_run.make({1, 1, 32}), .cache = &biased_view},
              plan_rows({.right = 0}, {&last, 1}));
  };
  EXPECT_EQ(message(run_it), "");
  list[1] = -1;
  EXPECT_NE(message(run_it).find("evicted"), std::string::npos);
  biased_view.bias.angles = {std::span<const std::int32_t>(list).first(1)};
  EXPECT_NE(message(run_it).find("evicted"), std::string::npos);
  list = angles.list;
  biased_view.bias.angles = {list};
  biased_view.bias.stride = 31 * kPageKeys * 4;
  EXPECT_NE(message(run_it).find("pages of angles"), std::string::npos);
}

}  // namespace
}  // namespace rapt::test
