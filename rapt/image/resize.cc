// SPDX-License-Identifier: Apache-2.0
// Two passes, one changes the width and one the height, each a weighted sum over the pixels that a filter
// reaches:
//
//   out[x] = clip((2^21 + Σ k[x][i] · in[i]) >> 22)       k: weights with 22 bits behind the point
//   weight = f((i + ½ − centre) / s) / Σ f,  centre = (x + ½) · in/out,  s = max(1, in/out)
//
// The result of the first is rounded to bytes; a pass that would not change the size is left out. The width
// is changed first, unless the height loses more than twice as many pixels (Pillow 13; up to 12 the width
// always was, which changes a value here and there by 1). `nearest` takes the pixel below the centre; the
// centres are added up one by one, and so are their rounding errors.
#include "rapt/image/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rapt {
namespace {

constexpr int kBits = 22;

double sinc(double x) { return x == 0 ? 1 : std::sin(x * std::numbers::pi) / (x * std::numbers::pi); }

double filter_value(Resample resample, double x) {
  const double r = std::abs(x);
  constexpr double a = -0.5;
  switch (resample) {
    case Resample::box: return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Resample::bilinear: return r < 1 ? 1 - r : 0;
    case Resample::hamming: {
      if (r == 0) return 1;
      if (r >= 1) return 0;
      const double t = r * std::numbers::pi;
      return std::sin(t) / t * (0.54 + 0.46 * std::cos(t));
    }
    case Resample::bicubic:
      if (r < 1) return ((a + 2) * r - (a + 3)) * r * r + 1;
      return r < 2 ? (((r - 5) * r + 8) * r - 4) * a : 0;
    case Resample::lanczos: return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Resample::nearest: break;
  }
  return 0;
}
double filter_support(Resample resample) {
  switch (resample) {
    case Resample::box: return 0.5;
    case Resample::bicubic: return 2;
    case Resample::lanczos: return 3;
    default: return 1;
  }
}

// For each place of the result, where its pixels begin, how many they are, and their weights.
struct Weights {
  struct Window {
    Dim first, count;
    std::size_t at;
  };
  std::vector<Window> windows;
  std::vector<double> values;
};

Weights make_weights(Dim in, Dim out, Resample resample) {
  const double scale = static_cast<double>(in) / static_cast<double>(out), s = std::max(scale, 1.0);
  const double support = filter_support(resample) * s, inverse = 1.0 / s;
  Weights w;
  w.windows.reserve(static_cast<std::size_t>(out));
  std::vector<double> row;
  for (Dim x = 0; x < out; ++x) {
    const double centre = (static_cast<double>(x) + 0.5) * scale;
    const Dim first = std::max<Dim>(static_cast<Dim>(centre - support + 0.5), 0);
    const Dim count = std::min<Dim>(static_cast<Dim>(centre + support + 0.5), in) - first;
    row.assign(static_cast<std::size_t>(count), 0);
    double sum = 0;
    for (Dim i = 0; i < count; ++i)
      sum += row[static_cast<std::size_t>(i)] =
          filter_value(resample, (static_cast<double>(i + first) - centre + 0.5) * inverse);
    w.windows.push_back({first, count, w.values.size()});
    for (const double v : row) w.values.push_back(sum != 0 ? v / sum : v);
  }
  return w;
}

std::vector<int> fixed_point(const Weights& w) {
  std::vector<int> out;
  out.reserve(w.values.size());
  for (const double v : w.values) out.push_back(static_cast<int>((v < 0 ? -0.5 : 0.5) + v * (1 << kBits)));
  return out;
}

std::uint8_t clip(int sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

Image resize_columns(const Image& in, Dim width, Resample resample) {
  const Weights w = make_weights(in.width, width, resample);
  const std::vector<int> values = fixed_point(w);
  Image out{width, in.height, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * width * in.height))};
  std::uint8_t* to = out.rgb.data();
  for (Dim y = 0; y < in.height; ++y) {
    const std::uint8_t* row = in.rgb.data() + 3 * y * in.width;
    for (const Weights::Window& window : w.windows) {
      int sum[3] = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
      const int* k = values.data() + window.at;
      const std::uint8_t* from = row + 3 * window.first;
      for (Dim i = 0; i < window.count; ++i)
        for (int c = 0; c < 3; ++c) sum[c] += from[3 * i + c] * k[i];
      for (const int s : sum) *to++ = clip(s);
    }
  }
  return out;
}

Image resize_rows(const Image& in, Dim height, Resample resample) {
  const Weights w = make_weights(in.height, height, resample);
  const std::vector<int> values = fixed_point(w);
  const Dim bytes = 3 * in.width;
  Image out{in.width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(bytes * height))};
  std::vector<int> sums(static_cast<std::size_t>(bytes));
  std::uint8_t* to = out.rgb.data();
  for (const Weights::Window& window : w.windows) {
    std::fill(sums.begin(), sums.end(), 1 << (kBits - 1));
    for (Dim i = 0; i < window.count; ++i) {
      const int k = values[window.at + static_cast<std::size_t>(i)];
      const std::uint8_t* from = in.rgb.data() + (window.first + i) * bytes;
      for (std::size_t b = 0; b < sums.size(); ++b) sums[b] += from[b] * k;
    }
    for (const int s : sums) *to++ = clip(s);
  }
  return out;
}

std::vector<Dim> nearest_places(Dim in, Dim out) {
  const double step = static_cast<double>(in) / static_cast<double>(out);
  std::vector<Dim> places(static_cast<std::size_t>(out));
  double at = step * 0.5;
  for (Dim& p : places) p = std::min(static_cast<Dim>(at), in - 1), at += step;
  return places;
}

Image resize_nearest(const Image& in, Dim height, Dim width) {
  const std::vector<Dim> columns = nearest_places(in.width, width), rows = nearest_places(in.height, height);
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<std::size_t>(3 * width * height));
  for (const Dim y : rows)
    for (const Dim x : columns) {
      const std::uint8_t* from = in.rgb.data() + 3 * (y * in.width + x);
      out.rgb.insert(out.rgb.end(), from, from + 3);
    }
  return out;
}

}  // namespace

Image resize_image(const Image& image, Dim height, Dim width, Resample resample) {
  if (height == image.height && width == image.width) return image;
  if (resample == Resample::nearest) return resize_nearest(image, height, width);
  if (width == image.width) return resize_rows(image, height, resample);
  if (height == image.height) return resize_columns(image, width, resample);
  const bool rows_first = height < image.height && 2 * (image.width - width) < image.height - height;
  return rows_first ? resize_columns(resize_rows(image, height, resample), width, resample)
                    : resize_rows(resize_columns(image, width, resample), height, resample);
}

Plane resize_plane(const Plane& plane, Dim height, Dim width, Resample resample) {
  const auto at = [](const Plane& p, Dim y, Dim x) {
    return static_cast<double>(p.values[static_cast<std::size_t>(y * p.width + x)]);
  };
  Plane half{width, plane.height, {}}, out{width, height, {}};
  const Weights columns = make_weights(plane.width, width, resample),
                rows = make_weights(plane.height, height, resample);
  const auto sum = [](const Weights& w, const Weights::Window& window, auto value) {
    double total = 0;
    for (Dim i = 0; i < window.count; ++i)
      total += w.values[window.at + static_cast<std::size_t>(i)] * value(window.first + i);
    return static_cast<float>(total);
  };
  for (Dim y = 0; y < plane.height; ++y)
    for (const Weights::Window& window : columns.windows)
      half.values.push_back(sum(columns, window, [&](Dim x) { return at(plane, y, x); }));
  for (const Weights::Window& window : rows.windows)
    for (Dim x = 0; x < width; ++x)
      out.values.push_back(sum(rows, window, [&](Dim y) { return at(half, y, x); }));
  return out;
}

}  // namespace rapt
