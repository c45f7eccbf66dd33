// SPDX-License-Identifier: Apache-2.0
// The file is report/page/index.html with its {{places}} filled in. Two blocks that browsers do not run hold
// the data: JSON for names and texts, and for the numbers zlib in base64 of these arrays, little-endian, one
// after the other:
//   f32 metrics[][layers][heads]
//   f32 grids[][rows][tokens]
//   u32 texts[of grids that have them][rows][tokens], places in the grid's list
//   u16 strongest keys[][rank][token], 65535: none
//   u16 their weights[][rank][token], thousandths
//   u8 maps[][rows][keys]
#include "rapt/report/page.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "rapt/base/sha256.h"
#include "rapt/base/unicode.h"
#include "rapt/report/colors.h"
#include "rapt/report/page_files.h"

namespace rapt {
namespace {

constexpr const char* kScripts[] = {"dom.js",   "numbers.js", "signs.js",     "words.js", "colours.js",
                                    "heat.js",  "plot.js",    "documents.js", "spans.js", "heads.js",
                                    "map.js",   "arcs.js",    "grid.js",      "store.js", "i18n.js",
                                    "views.js", "strip.js",   "main.js"};

std::string_view file(std::string_view name) {
  for (const PageFile& f : page_files())
    if (f.name == name) return f.text;
  fail("page: the program was built without ", name);
}

// A part that is a module elsewhere (the page of `rapt serve` imports it), as a piece of the one script:
// without its imports and the word "export", each at the beginning of a line.
std::string script_part(std::string_view name) {
  std::string out;
  std::string_view rest = file(name);
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.size());
    if (line.starts_with("import ")) continue;
    if (line.starts_with("export ")) line.remove_prefix(7);
    out += line;
  }
  return out;
}

void check_size(std::string_view what, std::size_t has, std::size_t wants) {
  if (has != wants) fail("page: ", what, " has ", has, " values, and there should be ", wants);
}

void check(const Page& p) {
  const std::size_t tokens = p.tokens.size();
  if (tokens == 0 || tokens > Page::kMostTokens)
    fail("page: a text of 1 to ", Page::kMostTokens, " tokens can be shown, and this one has ", tokens);
  if (p.layers < 1 || p.heads < 1)
    fail("page: there is nothing to show of ", p.layers, " layers with ", p.heads, " heads");
  const std::size_t cells = static_cast<std::size_t>(p.layers) * static_cast<std::size_t>(p.heads);
  const auto place = [&](std::string_view what, int layer, int head) {
    if (layer < 0 || layer >= p.layers || head < 0 || head >= p.heads)
      fail("page: a ", what, " is of layer ", layer, ", head ", head);
  };
  check_size("list of token ids", p.ids.size(), tokens);
  if (!p.labels.empty()) check_size("list of labels", p.labels.size(), cells);
  for (const Page::Metric& m : p.metrics) check_size(concat("metric ", m.key), m.values.size(), cells);
  for (const Page::Map& m : p.maps) {
    place("map", m.layer, m.head);
    if (m.rows < 1 || m.keys < 1) fail("page: a map has ", m.rows, " x ", m.keys, " pixels");
    check_size("map", m.pixels.size(), static_cast<std::size_t>(m.rows) * static_cast<std::size_t>(m.keys));
  }
  for (const Page::Strongest& s : p.strongest) {
    place("list of strongest keys", s.layer, s.head);
    check_size("list of strongest keys", s.keys.size(), tokens * static_cast<std::size_t>(s.count));
    check_size("list of their weights", s.weights.size(), s.keys.size());
    for (const std::int32_t k : s.keys)
      if (k < -1 || k >= static_cast<std::int32_t>(tokens))
        fail("page: ", k, " is among the strongest keys of a text of ", tokens, " tokens");
  }
  for (const Page::Grid& g : p.grids) {
    if (g.rows.size() < static_cast<std::size_t>(p.layers))
      fail("page: grid ", g.key, " has ", g.rows.size(), " rows, less than the ", p.layers, " layers");
    check_size(concat("grid ", g.key), g.values.size(), g.rows.size() * tokens);
    if (!g.texts.empty()) check_size(concat("texts of grid ", g.key), g.texts.size(), g.values.size());
  }
}

// A text with every piece once, and which of them each is.
struct Dictionary {
  std::vector<std::string> texts;
  std::vector<std::uint32_t> places;
};
Dictionary dictionary(const std::vector<std::string>& all) {
  Dictionary d;
  std::map<std::string_view, std::uint32_t> seen;
  for (const std::string& text : all) {
    const auto [at, fresh] = seen.try_emplace(text, static_cast<std::uint32_t>(seen.size()));
    if (fresh) d.texts.push_back(text);
    d.places.push_back(at->second);
  }
  return d;
}

class Bytes {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    const auto* begin = reinterpret_cast<const unsigned char*>(values.data());
    bytes_.insert(bytes_.end(), begin, begin + values.size() * sizeof(T));
  }
  std::string packed() const {
    uLongf size = compressBound(static_cast<uLong>(bytes_.size()));
    std::vector<std::byte> out(size);
    if (compress2(reinterpret_cast<Bytef*>(out.data()), &size, bytes_.data(),
                  static_cast<uLong>(bytes_.size()), 9) != Z_OK)
      fail("page: the numbers could not be compressed");
    return base64(std::span(out).first(size));
  }

 private:
  std::vector<unsigned char> bytes_;
};

// [token][rank] as [rank][token]: neighbours are alike, which packs better.
template <class From, class F>
std::vector<std::uint16_t> by_rank(const std::vector<From>& values, int count, F&& f) {
  std::vector<std::uint16_t> out;
  for (std::size_t r = 0, n = static_cast<std::size_t>(count); r < n; ++r)
    for (std::size_t at = r; at < values.size(); at += n) out.push_back(f(values[at]));
  return out;
}

std::string packed_numbers(const Page& p, const std::vector<Dictionary>& texts) {
  Bytes b;
  for (const Page::Metric& m : p.metrics) b.add(m.values);
  for (const Page::Grid& g : p.grids) b.add(g.values);
  for (const Dictionary& d : texts) b.add(d.places);
  for (const Page::Strongest& s : p.strongest)
    b.add(by_rank(s.keys, s.count,
                  [](std::int32_t k) { return static_cast<std::uint16_t>(k < 0 ? 65535 : k); }));
  for (const Page::Strongest& s : p.strongest)
    b.add(by_rank(s.weights, s.count, [](float w) {
      return static_cast<std::uint16_t>(std::lround(1000 * std::clamp(w, 0.0f, 1.0f)));
    }));
  for (const Page::Map& m : p.maps) b.add(m.pixels);
  return b.packed();
}

template <class T>
Json list(const std::vector<T>& values) {
  Json::Array a;
  for (const T& v : values) a.emplace_back(v);
  return a;
}

// 256 colours one after the other, six hexadecimal digits each.
std::string color_table(Rgb (*of)(double, bool), double least, bool dark) {
  std::string out;
  for (int i = 0; i < 256; ++i) out += hex_of(of(least + (1 - least) * i / 255, dark));
  return out;
}

Json names(const Page& p, const std::vector<Dictionary>& texts) {
  Json::Array metrics, maps, strongest, grids;
  for (const Page::Metric& m : p.metrics)
    metrics.push_back(Json::Object{{"key", m.key}, {"name", m.name}, {"share", m.share}});
  for (const Page::Map& m : p.maps)
    maps.push_back(Json::Object{{"l", m.layer},
                                {"h", m.head},
                                {"rows", m.rows},
                                {"keys", m.keys},
                                {"top", static_cast<double>(m.top)}});
  for (const Page::Strongest& s : p.strongest)
    strongest.push_back(Json::Object{{"l", s.layer}, {"h", s.head}, {"count", s.count}});
  for (std::size_t i = 0; i < p.grids.size(); ++i) {
    const Page::Grid& g = p.grids[i];
    grids.push_back(Json::Object{{"key", g.key},
                                 {"name", g.name},
                                 {"rows", list(g.rows)},
                                 {"log", g.log_scale},
                                 {"texts", list(texts[i].texts)}});
  }
  Json documents = Json::Object{}, words = Json::Object{};
  for (Language l : kLanguages) {
    Json::Array said;
    for (const Document& d : p.documents) {
      Json j = document_json(in_language(d, l), true);
      j.set("facts", Json());  // for programs
      said.push_back(std::move(j));
    }
    documents.set(language_name(l), std::move(said));
    words.set(language_name(l), dictionary_part(l, "page"));
  }
  return Json::Object{{"words", std::move(words)}, {"colours", page_colours()},
                      {"title", p.title},          {"model", p.model},
                      {"tokens", list(p.tokens)},  {"ids", list(p.ids)},
                      {"layers", p.layers},        {"heads", p.heads},
                      {"labels", list(p.labels)},  {"metrics", std::move(metrics)},
                      {"maps", std::move(maps)},   {"strongest", std::move(strongest)},
                      {"grids", std::move(grids)}, {"documents", std::move(documents)}};
}

// JSON inside a script element: nothing in it ends the element or begins a comment, and broken bytes are
// no more.
std::string block(std::string_view json) {
  std::string out;
  for (std::size_t i = 0; i < json.size();) {
    const unicode::Char c = unicode::read(json, i);
    if (!c.valid) out += unicode::kReplacementText;
    else if (c.code == '<') out += "\\u003c";
    else if (c.code == 0x2028) out += "\\u2028";
    else if (c.code == 0x2029) out += "\\u2029";
    else out += json.substr(i, c.length);
    i += c.length;
  }
  return out;
}

}  // namespace

Json page_colours() {
  Json::Object colours;
  for (const bool dark : {false, true}) {
    const std::string name = dark ? "dark" : "light";
    colours.push_back({name, color_table(heat_color, 0, dark)});
    colours.push_back({name + "_signed", color_table(signed_color, -1, dark)});
  }
  return colours;
}

Json page_words() {
  Json all = Json::Object{};
  for (const Language l : kLanguages) {
    Json parts = Json::Object{{"page", dictionary_part(l, "page")}};
    if (const Json* web = find_dictionary_part(l, "web")) parts.set("web", *web);
    all.set(language_name(l), std::move(parts));
  }
  return all;
}

std::string page_html(const Page& page) {
  check(page);
  std::vector<Dictionary> texts;
  for (const Page::Grid& g : page.grids) texts.push_back(dictionary(g.texts));

  std::string script = "'use strict';\n(() => {\n";
  for (const char* name : kScripts) script += script_part(name);
  script += "})();\n";
  const std::string style = concat(file("base.css"), file("figures.css"), file("style.css"));
  const auto hash = [](std::string_view text) { return concat("'sha256-", base64(sha256(text)), "'"); };
  const std::map<std::string_view, std::string> places = {
      {"policy", concat("default-src 'none'; script-src ", hash(script), "; style-src ", hash(style),
                        "; img-src data:; base-uri 'none'; form-action 'none'")},
      {"title", markup_text(page.title)},
      {"style", style},
      {"script", script},
      {"data", block(names(page, texts).dump(0))},
      {"bytes", packed_numbers(page, texts)}};

  std::string out;
  std::string_view rest = file("index.html");
  for (std::size_t at; (at = rest.find("{{")) != std::string_view::npos;) {
    const std::size_t end = rest.find("}}", at);
    out += concat(rest.substr(0, at), places.at(rest.substr(at + 2, end - at - 2)));
    rest.remove_prefix(end + 2);
  }
  return out + std::string(rest);
}

}  // namespace rapt
