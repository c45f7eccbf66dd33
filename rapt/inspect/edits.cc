// SPDX-License-Identifier: Apache-2.0
// Text or JSON becomes an Edit, choose() finds head and rows, change() does it inside a tap.
#include "rapt/inspect/edits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/io/npy.h"
#include "rapt/io/safetensors.h"

namespace rapt {
namespace {

using Op = Edit::Op;

const std::pair<const char*, Op> kOps[] = {{"zero", Op::zero},       {"mean", Op::mean},
                                           {"scale", Op::scale},     {"add", Op::add},
                                           {"replace", Op::replace}, {"project_out", Op::project_out},
                                           {"swap", Op::swap},       {"mask", Op::mask}};

template <class T>
std::optional<T> number_of(std::string_view text) {
  T n{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty() ? std::optional<T>(n)
                                                                                   : std::nullopt;
}

Op op_of(std::string_view name, std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [known, op] : kOps) {
    if (name == known) return op;
    names.push_back(known);
  }
  fail_usage("edit '", text, "': '", name, "' is nothing that can be done; ", name_hint(name, names));
}

void check_values(const Edit& e) {
  const bool needs = e.op != Op::zero && e.op != Op::mean && e.op != Op::mask;
  if (needs && e.values.empty())
    fail_usage("edit '", e.text, "' needs a value: a number or a file, behind a =");
  if (!needs && !e.values.empty()) fail_usage("edit '", e.text, "': zero, mean and mask take no value");
  if (e.op == Op::scale && !e.shape.empty()) fail_usage("edit '", e.text, "': scale takes one number");
  if ((e.op == Op::project_out || e.op == Op::swap) && e.shape.empty())
    fail_usage("edit '", e.text, "' needs a file with ", e.op == Op::swap ? "two directions" : "a direction");
  // Captured scores hold -infinity where a row does not see a key.
  const bool scores = e.point.find("scores") != std::string::npos && e.op == Op::replace;
  for (float v : e.values)
    if (!std::isfinite(v) && !(scores && v < 0))
      fail_usage("edit '", e.text, "': its value holds a number that is not finite");
}

void read_value(Edit& e, std::string_view value) {
  if (const std::optional<double> n = number_of<double>(value)) {
    e.values = {static_cast<float>(*n)};
    return;
  }
  const std::size_t hash = value.find('#');
  const std::string path(value.substr(0, hash));
  const std::string name(hash == std::string_view::npos ? "" : value.substr(hash + 1));
  if (path.ends_with(".npy")) {
    NpyArray array = read_npy(path);
    e.values = std::move(array.values), e.shape = std::move(array.shape);
  } else if (path.ends_with(".safetensors")) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const TensorView* t = file.tensors.find(name.empty() ? e.point : name);
    if (!t && name.empty() && file.tensors.all().size() == 1) t = &file.tensors.all()[0];
    if (!t) {
      std::vector<std::string> names;
      for (const TensorView& v : file.tensors.all()) names.push_back(v.name());
      fail_usage("edit '", e.text, "': ", path, " has no tensor '", name.empty() ? e.point : name, "'; ",
                 name_hint(name.empty() ? e.point : name, names), " (write FILE#TENSOR)");
    }
    e.values = t->values(), e.shape.assign(t->shape().begin(), t->shape().end());
  } else {
    fail_usage("edit '", e.text, "': '", value, "' is neither a number nor a .npy or .safetensors file");
  }
  if (e.values.empty()) fail_usage("edit '", e.text, "': ", path, " holds no numbers");
}

bool is_layer(std::string_view text) {  // 5, or 5.2 for the second of two
  const std::size_t dot = text.find('.');
  return number_of<Dim>(text.substr(0, dot)) &&
         (dot == std::string_view::npos || number_of<Dim>(text.substr(dot + 1)));
}

void finish(Edit& e) {
  // L5H3: head 3 of layer 5.
  if (const std::size_t h = e.point.find('H'); e.point.starts_with('L') && h != std::string::npos)
    if (is_layer(std::string_view(e.point).substr(1, h - 1)) &&
        number_of<Dim>(std::string_view(e.point).substr(h + 1))) {
      e.where.insert(e.where.begin(), "h" + e.point.substr(h + 1));
      e.point = "z." + e.point.substr(1, h - 1);
    }
  check_values(e);
  // What was captured of one token is a vector for every position.
  if (e.shape.size() > 1 && e.shape[0] == 1) e.shape = {static_cast<Dim>(e.values.size())};
}

// ------------------------------------------------------------------------------------------------ where
struct Span {  // both included; negative: from the end
  Dim first = 0, last = -1;
};

bool is_pattern(const Point& point) {
  return point.kind == Point::Kind::weights || point.kind == Point::Kind::scores;
}

struct Chosen {
  Point point;
  std::optional<Dim> head, channel;
  Span rows, keys;
  bool all_rows = true, all_keys = true;
  bool pattern() const { return is_pattern(point); }
};

Span span_of(const Edit& e, std::string_view w, const char* what) {
  const std::size_t dots = w.find("..");
  const std::optional<Dim> first = number_of<Dim>(w.substr(0, dots));
  const std::optional<Dim> last = dots == std::string_view::npos ? first : number_of<Dim>(w.substr(dots + 2));
  if (!first || !last)
    fail_usage("edit '", e.text, "': '", w, "' is no ", what, "; write 3, -1, 2..5 or all");
  return {*first, *last};
}

void check_pattern(const Edit& e, const Point& point) {
  const bool scores = point.kind == Point::Kind::scores;
  if (e.op == Op::mask && !scores)
    fail_usage("edit '", e.text, "': mask takes a key away before the softmax, at attn_scores.", point.layer,
               "; at ", point.name, " zero takes its weight, and the others stay as they are");
  if (e.op == Op::mean || e.op == Op::project_out || e.op == Op::swap)
    fail_usage("edit '", e.text, "': ", point.name, " takes zero, scale, add and replace",
               scores ? ", and mask" : "");
}

Chosen choose(const Edit& e, Point point) {
  Chosen c{.point = std::move(point)};
  const bool pattern = c.pattern();
  if (pattern) check_pattern(e, c.point);
  else if (e.op == Op::mask)
    fail_usage("edit '", e.text, "': mask takes keys away, at attn_scores.L; ", c.point.name, " has none");
  bool head_done = !c.point.heads() && !pattern, row_done = false;
  for (std::string_view w : e.where) {
    const bool is_head = w.starts_with('h'), is_row = w.starts_with('p');
    if (w.starts_with('k') ||
        (pattern && head_done && row_done && !is_head && !is_row && !w.starts_with('c'))) {
      if (!pattern)
        fail_usage("edit '", e.text, "': ", c.point.name, " ", shape_text(c.point),
                   " has no keys; attn_weights.L "
                   "and attn_scores.L have");
      if (w.starts_with('k')) w.remove_prefix(1);
      if (w == "all") continue;
      c.keys = span_of(e, w, "key");
      c.all_keys = false;
      continue;
    }
    if (pattern && w.starts_with('c'))
      fail_usage("edit '", e.text, "': ", c.point.name, " has keys, no channels; write @k", w.substr(1));
    if (w.starts_with('c')) {
      const std::optional<Dim> n = number_of<Dim>(w.substr(1));
      if (!n || *n < 0 || *n >= c.point.shape.back())
        fail_usage("edit '", e.text, "': there is no channel '", w.substr(1), "' at ", c.point.name,
                   "; it has ", c.point.shape.back(), " (counted from 0)");
      if (!e.shape.empty())
        fail_usage("edit '", e.text, "': one channel takes one number, no vector or tensor");
      if (c.channel) fail_usage("edit '", e.text, "' has more than one channel");
      c.channel = n;
      continue;
    }
    if (is_head || is_row) w.remove_prefix(1);
    if (is_head && !c.point.heads() && !pattern)
      fail_usage("edit '", e.text, "': ", c.point.name, " ", shape_text(c.point), " has no heads");
    if (is_head || (!is_row && !head_done)) {
      head_done = true;
      if (w == "all") continue;
      const std::optional<Dim> h = number_of<Dim>(w);
      const Dim heads = c.point.shape[pattern ? 0 : 1];
      if (!h || *h < 0 || *h >= heads)
        fail_usage("edit '", e.text, "': there is no head '", w, "' at ", c.point.name, "; it has ", heads,
                   " (counted from 0)");
      c.head = h;
      continue;
    }
    if (row_done)
      fail_usage("edit '", e.text, "' has more than a head and a position for ", c.point.name, " ",
                 shape_text(c.point));
    row_done = true;
    if (w == "all") continue;
    c.rows = span_of(e, w, "position");
    c.all_rows = false;
  }
  return c;
}

// ----------------------------------------------------------------------------------------------- the change
// Values [rows, heads, width]: which of them an element takes.
struct Given {
  const std::vector<float>& values;
  Dim row = 0, head = 0, channel = 0;  // strides
  float operator()(Dim r, Dim h, Dim c) const {
    return values[static_cast<std::size_t>(r * row + h * head + c * channel)];
  }
};

Given lay_out(const Edit& e, const Point& point, Dim rows, Dim heads, Dim width, bool one_head) {
  const Dim n = static_cast<Dim>(e.values.size());
  if (e.shape.empty()) return {e.values};
  if (e.shape.size() == 1 && n == width) return {e.values, 0, 0, 1};
  if (e.shape.size() == 1 && n == heads * width) return {e.values, 0, width, 1};
  if (e.shape[0] == rows && n == rows * heads * width) return {e.values, heads * width, width, 1};
  if (e.shape[0] == rows && n == rows * width && one_head) return {e.values, width, 0, 1};
  std::string shape;
  for (Dim s : e.shape) shape += concat(shape.empty() ? "" : ",", s);
  fail("edit '", e.text, "': the value has shape [", shape, "], ", point.name, " has ", rows, " rows of ",
       heads > 1 ? concat(heads, " x ") : "", width, " here; a vector of ", width,
       " or a tensor of just this shape fits (a text to patch from needs as many tokens)");
}

// Rows of a whole text that an edit names, learned tokens (`skip`) before it.
Span rows_of_text(const Edit& e, const Chosen& c, Dim rows, Dim skip) {
  if (c.all_rows) return {0, rows - 1};
  const Span found = {c.rows.first < 0 ? rows + c.rows.first : c.rows.first + skip,
                      c.rows.last < 0 ? rows + c.rows.last : c.rows.last + skip};
  if (found.first < skip || found.last >= rows || found.first > found.last)
    fail("edit '", e.text, "': ", c.point.name, " has positions 0 to ", rows - skip - 1, " in this pass");
  return found;
}

// Rows of a piece whose first stands at `position`, learned tokens counted; first > last: it has none.
Span rows_of_piece(const Chosen& c, Dim rows, Dim skip, Dim position) {
  if (c.all_rows) return {0, rows - 1};
  return {std::max<Dim>(0, c.rows.first + skip - position),
          std::min(rows - 1, c.rows.last + skip - position)};
}

template <class Real>
void change(const Edit& e, const Chosen& c, const Tensor& t, Span at, Dim skip) {
  const Dim rows = t[0], heads = t.rank == 3 ? t[1] : 1, width = t.last();
  Real* x = t.as<Real>().data();
  const Dim h0 = c.head.value_or(0), h1 = c.head ? *c.head : heads - 1;
  const Dim c0 = c.channel.value_or(0), c1 = c.channel ? *c.channel + 1 : width;
  const auto each = [&](const auto& f) {
    for (Dim r = at.first; r <= at.last; ++r)
      for (Dim h = h0; h <= h1; ++h) f(r, h, x + (r * heads + h) * width);
  };
  switch (e.op) {
    case Op::mask: break;  // of scores only: change_row
    case Op::zero: each([&](Dim, Dim, Real* v) { std::fill(v + c0, v + c1, Real{0}); }); break;
    case Op::scale:
      each([&](Dim, Dim, Real* v) {
        for (Dim i = c0; i < c1; ++i) v[i] *= static_cast<Real>(e.values[0]);
      });
      break;
    case Op::mean: {
      std::vector<double> mean(static_cast<std::size_t>(heads * width));
      for (Dim r = skip; r < rows; ++r)
        for (Dim i = 0; i < heads * width; ++i)
          mean[static_cast<std::size_t>(i)] +=
              static_cast<double>(x[r * heads * width + i]) / static_cast<double>(rows - skip);
      each([&](Dim, Dim h, Real* v) {
        for (Dim i = c0; i < c1; ++i) v[i] = static_cast<Real>(mean[static_cast<std::size_t>(h * width + i)]);
      });
      break;
    }
    case Op::add:
    case Op::replace: {
      const Given given = lay_out(e, c.point, rows, heads, width, c.head.has_value());
      const bool add = e.op == Op::add;
      each([&](Dim r, Dim h, Real* v) {
        for (Dim i = c0; i < c1; ++i)
          v[i] = add ? v[i] + static_cast<Real>(given(r, h, i)) : static_cast<Real>(given(r, h, i));
      });
      break;
    }
    case Op::project_out:
    case Op::swap: {
      const Dim n = e.op == Op::swap ? 2 : 1;
      if (static_cast<Dim>(e.values.size()) != n * width)
        fail("edit '", e.text, "': the value has ", e.values.size(), " numbers, ",
             n == 2 ? "two directions" : "a direction", " of ", width, " at ", c.point.name, " have ",
             n * width);
      double length[2] = {};
      for (Dim i = 0; i < n * width; ++i)
        length[i / width] += std::pow(double{e.values[static_cast<std::size_t>(i)]}, 2);
      if (length[0] == 0 || (n == 2 && length[1] == 0)) fail("edit '", e.text, "': a direction of length 0");
      const auto unit = [&](Dim d, Dim i) {
        return e.values[static_cast<std::size_t>(d * width + i)] / std::sqrt(length[d]);
      };
      double apart = 1;  // of two directions: 1 - their cosine
      for (Dim i = 0; n == 2 && i < width; ++i) apart -= unit(0, i) * unit(1, i);
      if (apart < 1e-6) fail("edit '", e.text, "': the two directions are one and the same");
      each([&](Dim, Dim, Real* v) {
        double along[2] = {};
        for (Dim d = 0; d < n; ++d)
          for (Dim i = 0; i < width; ++i) along[d] += unit(d, i) * static_cast<double>(v[i]);
        for (Dim i = 0; i < width; ++i)
          v[i] += static_cast<Real>(n == 1 ? -along[0] * unit(0, i)
                                           : (along[1] - along[0]) / apart * (unit(0, i) - unit(1, i)));
      });
      break;
    }
  }
}

// ------------------------------------------------------------------------------ rows of attention weights
constexpr const char* kNobody = "': nobody says at which position of its text a row of this pass stands";

// Whether a row belongs to this point; the site of scores names what they are captured from, not theirs.
bool is_of(const Tapped& t, const Point& p) {
  return t.stack == p.stack && t.layer == p.layer && t.part == p.part;
}

// Rows of the pass that an edit touches. `skip`: learned tokens before the text.
bool touches_row(const Edit& e, const Chosen& c, const Tapped& t, Dim skip, bool pieces) {
  if (!is_of(t, c.point) || (c.head && *c.head != t.head)) return false;
  if (c.all_rows) return true;
  const Span at = pieces ? Span{c.rows.first + skip - t.position, c.rows.last + skip - t.position}
                         : rows_of_text(e, c, t.attention->rows, skip);
  return t.row >= at.first && t.row <= at.last;
}

// Changes one row [slots + keys] where it sees a key; whether it saw one. `skip`: learned tokens before the
// text that the keys belong to.
bool change_row(const Edit& e, const Chosen& c, const Tapped& t, Dim skip) {
  const AttentionRow& sight = *t.attention;
  const Dim keys = t.value.elements() - sight.slots, heads = c.point.shape[0];
  Span at = c.all_keys ? Span{0, keys - 1}
                       : Span{c.keys.first < 0 ? keys + c.keys.first : c.keys.first + skip,
                              c.keys.last < 0 ? keys + c.keys.last : c.keys.last + skip};
  const bool text = t.share < 0;  // read in one piece, so a key that is not there never comes
  if (!c.all_keys && text && (at.first < skip || at.last >= keys || at.first > at.last))
    fail("edit '", e.text, "': ", c.point.name, " has keys 0 to ", keys - skip - 1, " in this pass");
  at.last = std::min(at.last, keys - 1);
  // A number, a vector of keys, [T,keys] of one head, [H,T,keys].
  Dim from = 0, stride = 0;
  if (!e.shape.empty()) {
    const Dim n = static_cast<Dim>(e.values.size()), rank = static_cast<Dim>(e.shape.size());
    const bool vector = rank == 1 && n == keys, one = rank == 2 && c.head && n == sight.rows * keys,
               all = rank == 3 && n == heads * sight.rows * keys;
    if ((!vector && !one && !all) || e.shape.back() != keys) {
      std::string shape;
      for (Dim s : e.shape) shape += concat(shape.empty() ? "" : ",", s);
      fail("edit '", e.text, "': the value has shape [", shape, "], ", c.point.name, " is [", heads, ",",
           sight.rows, ",", keys, "] here; a vector of ", keys, ", [", sight.rows, ",", keys,
           "] of one head or a tensor of just this shape fits (a pattern of another text needs as "
           "many tokens)");
    }
    stride = 1;
    from = vector ? 0 : one ? t.row * keys : (t.head * sight.rows + t.row) * keys;
  }
  const auto given = [&](Dim key) {
    return static_cast<double>(e.values[static_cast<std::size_t>(from + stride * key)]);
  };
  bool saw = false;
  for (Dim key = std::max<Dim>(0, at.first); key <= at.last; ++key) {
    if (!sight.sees(key)) {
      if (e.op == Op::replace && stride > 0 && given(key) != 0 && std::isfinite(given(key)))
        fail("edit '", e.text, "': the value gives position ", t.row + t.position - skip, " a weight on key ",
             key - skip, ", which it does not see");
      continue;
    }
    saw = true;
    const Dim i = sight.slots + key;
    switch (e.op) {
      case Op::zero: t.value.set(i, 0); break;
      case Op::scale: t.value.set(i, t.value.at(i) * static_cast<double>(e.values[0])); break;
      case Op::add: t.value.set(i, t.value.at(i) + given(key)); break;
      case Op::replace: t.value.set(i, given(key)); break;
      default: t.value.set(i, -std::numeric_limits<double>::infinity()); break;  // mask
    }
  }
  return saw;
}

// What of an edit needs the whole text in one piece; empty: nothing does.
std::string whole_for(const Edit& e, const Chosen& c) {
  if (e.op == Op::mean) return "the mean of a text";
  if (c.pattern() && !e.shape.empty()) return "a pattern of one text";
  if (c.keys.first < 0 || (!c.all_keys && c.keys.last < 0)) return "a key from the end";
  if (e.shape.size() > 1 && (e.op == Op::add || e.op == Op::replace)) return "a tensor of one text";
  if (c.all_rows) return "";
  if (c.rows.first < 0 || c.rows.last < 0) return "a position from the end";
  // The head reads rows that a pass wants: all of a text in one, only the last in the next.
  if (c.point.shape[0] == Point::kResults) return "a position of what the head gives";
  return "";
}

}  // namespace

bool needs_whole(const Model& model, std::span<const Edit> edits) {
  for (const Edit& e : edits)
    for (Point& point : find_points(model, e.point))
      if (!whole_for(e, choose(e, std::move(point))).empty()) return true;
  return false;
}

namespace {

// All but the value, which stands in `value`; absent: there is no "=".
Edit read_edit_text(std::string_view text, std::optional<std::string_view>& value) {
  Edit e;
  e.text = text;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0)
    fail_usage(
        "edit '", text,
        "' is not of the form POINT[@HEAD][@POSITION][@CHANNEL or @KEY]:OP[=VALUE]; for example z.5@3:zero");
  std::string_view place = text.substr(0, colon), what = text.substr(colon + 1);
  const std::size_t at = place.find('@');
  e.point = place.substr(0, at);
  if (at != std::string_view::npos)
    for (std::string_view rest = place.substr(at + 1);;) {
      const std::size_t end = rest.find('@');
      e.where.emplace_back(rest.substr(0, end));
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  if (e.where.size() > 3)
    fail_usage("edit '", text, "' has more than a head, a position and a channel or key");
  const std::size_t equals = what.find('=');
  e.op = op_of(what.substr(0, equals), text);
  if (equals != std::string_view::npos) value = what.substr(equals + 1);
  return e;
}

}  // namespace

Edit parse_edit(std::string_view text) {
  std::optional<std::string_view> value;
  Edit e = read_edit_text(text, value);
  if (value) read_value(e, *value);
  finish(e);
  return e;
}

Edit parse_edit(std::string_view text, std::vector<float> values, std::vector<Dim> shape) {
  std::optional<std::string_view> value;
  Edit e = read_edit_text(text, value);
  if (value) fail_usage("edit '", text, "' has a value in its text, and another beside it");
  if (values.empty()) fail_usage("edit '", text, "': its value holds no numbers");
  e.values = std::move(values), e.shape = std::move(shape);
  finish(e);
  return e;
}

std::vector<Edit> parse_edits(std::span<const std::string> texts) {
  std::vector<Edit> edits;
  for (const std::string& text : texts) edits.push_back(parse_edit(text));
  return edits;
}

Edit read_edit(const Json& json) {
  Edit e;
  e.text = json.dump(0);
  if (!json.is_object())
    fail_usage("an edit is an object like {\"point\": \"z.5\", \"head\": 3, \"op\": \"zero\"}, not ",
               json.type_name());
  std::optional<Op> op;
  for (const Json::Member& m : json.object()) {
    const Json& v = m.value;
    const bool text = v.is_string(), number = v.is_integer();
    if (m.key == "point" && text) e.point = v.string();
    else if (m.key == "op" && text) op = op_of(v.string(), e.text);
    else if ((m.key == "head" || m.key == "pos" || m.key == "channel" || m.key == "key") && (text || number))
      e.where.push_back(
          concat(m.key.substr(0, 1), text ? std::string(v.string()) : std::to_string(v.integer())));
    else if (m.key == "value" && text) continue;
    else if (m.key == "value" && v.is_number()) e.values = {static_cast<float>(v.number())};
    else if (m.key == "value" && v.is_array()) {
      for (const Json& x : v.array()) {
        if (!x.is_number()) fail_usage("edit ", e.text, ": 'value' holds ", x.type_name());
        e.values.push_back(static_cast<float>(x.number()));
      }
      e.shape = {static_cast<Dim>(e.values.size())};
    } else {
      const std::vector<std::string> known = {"point", "head", "pos", "channel", "key", "op", "value"};
      if (std::find(known.begin(), known.end(), m.key) != known.end())
        fail_usage("edit ", e.text, ": '", m.key, "' cannot be ", v.type_name());
      fail_usage("edit ", e.text, ": there is no '", m.key, "'; ", name_hint(m.key, known));
    }
  }
  if (e.point.empty() || !op) fail_usage("edit ", e.text, " needs a \"point\" and an \"op\"");
  e.op = *op;
  if (const Json* value = json.find("value"); value && value->is_string()) read_value(e, value->string());
  finish(e);
  return e;
}

EditSet::EditSet(std::vector<Edit> edits) : list(std::move(edits)) {
  std::string all;
  for (const Edit& e : list) {
    all += concat(e.text.size(), ":", e.text, ":", e.shape.size());
    for (const Dim n : e.shape) all += concat(",", n);
    all += concat(":", e.values.size(), ":");
    all.append(reinterpret_cast<const char*>(e.values.data()), e.values.size() * sizeof(float));
  }
  key = base64(sha256(all));
}

std::function<void()> install_edits(Taps& taps, const Model& model, std::span<const Edit> edits,
                                    Passes passes) {
  struct State {
    Edit edit;
    Dim hits = 0;
    std::optional<Span> asked, came;  // positions, where a text comes in pieces
  };
  std::vector<std::shared_ptr<State>> states;
  for (const Edit& e : edits) {
    const auto state = std::make_shared<State>(State{e});
    states.push_back(state);
    for (Point& point : find_points(model, e.point)) {
      if (!point.fixed.empty())
        fail_usage("edit '", e.text, "': ", point.name, " cannot be changed: ", point.fixed);
      if (point.site == site::q && (e.op == Op::add || e.op == Op::replace) && point.attention->rope &&
          point.attention->mask.keep > 0)
        fail_usage("edit '", e.text, "': ", point.name,
                   " is turned to two places in this model, so one value does not fit both; edit q.",
                   point.layer);
      const bool last = point.stack == (model.decoder ? Stack::decoder : Stack::encoder);
      // Learned tokens stand before the text.
      const Dim skip =
          last && point.shape[is_pattern(point) ? 1 : 0] == Point::kRows ? model.recipe.embed.sink_tokens : 0;
      Chosen chosen = choose(e, point);
      const bool pieces = passes == Passes::many;
      if (const std::string what = whole_for(e, chosen); pieces && !what.empty())
        fail_usage("edit '", e.text, "': a text is read and written in pieces here, and ", what,
                   " needs all of it in one; rapt inspect does it on one text");
      if (pieces && !chosen.all_rows) {
        if (chosen.rows.first > chosen.rows.last)
          fail_usage("edit '", e.text, "': positions ", chosen.rows.first, " to ", chosen.rows.last,
                     " are none; the smaller one comes first");
        state->asked = chosen.rows;
      }
      const auto came = [state](Span here) {
        ++state->hits;
        if (!state->asked) return;
        if (!state->came) state->came = here;
        state->came->first = std::min(state->came->first, here.first);
        state->came->last = std::max(state->came->last, here.last);
      };
      if (chosen.pattern()) {
        const bool own_keys = !point.attention->spec.cross;  // those of a memory are another text's
        taps.edit_rows(
            point.kind == Point::Kind::scores ? site::attn_scores : site::attn_weights,
            [state, c = chosen, skip, pieces](const Tapped& t) {
              if (pieces && !c.all_rows && t.share < 0 && is_of(t, c.point))
                fail("edit '", state->edit.text, kNobody);
              return touches_row(state->edit, c, t, skip, pieces);
            },
            [state, c = chosen, skip, own_keys, came](const Tapped& t) {
              if (!change_row(state->edit, c, t, own_keys ? skip : 0)) return;
              const Dim row = t.row + t.position - skip;
              came({row, row});
            });
        continue;
      }
      const Site site = point.site;
      taps.edit(site, [state, c = std::move(chosen), skip, pieces, came](const Tapped& t) {
        if (!is_at(t, c.point)) return;
        const Edit& edit = state->edit;
        if (pieces && !c.all_rows && t.share < 0) fail("edit '", edit.text, kNobody);
        const Span at =
            pieces ? rows_of_piece(c, t.value[0], skip, t.position) : rows_of_text(edit, c, t.value[0], skip);
        if (at.first > at.last) return;
        if (t.value.dtype == DType::f64) change<double>(edit, c, t.value, at, skip);
        else change<float>(edit, c, t.value, at, skip);
        came({at.first + t.position - skip, at.last + t.position - skip});
      });
    }
  }
  return [states] {
    for (const auto& s : states) {
      if (s->asked && (!s->came || s->came->first > s->asked->first || s->came->last < s->asked->last))
        fail("edit '", s->edit.text, "' ",
             s->came ? concat("touched positions ", s->came->first, " to ", s->came->last, " only")
                     : "touched nothing",
             ": the text has no position ",
             s->came && s->came->first <= s->asked->first ? s->asked->last : s->asked->first, " here");
      if (s->hits == 0)
        fail("edit '", s->edit.text, "' touched nothing: its point did not come by in this pass");
    }
  };
}

}  // namespace rapt
