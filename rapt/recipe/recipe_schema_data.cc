// SPDX-License-Identifier: Apache-2.0
// A visitor over the fields that writes data: what a form for recipes is made of.
#include <cmath>
#include <functional>
#include <set>

#include "rapt/base/text.h"
#include "rapt/recipe/presets.h"
#include "rapt/recipe/recipe_fields.h"
#include "rapt/recipe/recipe_schema.h"

namespace rapt {
namespace {

struct Book {
  Json structs = Json::Object{};
  std::set<std::string> written;
  std::vector<std::function<void()>> waiting;  // structs met in fields
  Json help = {};  // of another language

  std::string meaning(std::string_view title, std::string_view name, std::string_view english) const {
    // A mixture's experts are feed-forward nets.
    for (const std::string_view of : {title, title == "Moe" ? std::string_view("Ffn") : title})
      if (const Json* text = help.find(concat(of, ".", name))) return text->string();
    return std::string(english);
  }
};

template <class T>
std::string section(Book& book);  // the name of a struct, which is described later

void put_range(Json& out, const Range& r) {
  if (std::isfinite(r.low)) out.set("low", r.low);
  if (std::isfinite(r.high)) out.set("high", r.high);
  if (r.above) out.set("above", true);
  if (r.below) out.set("below", true);
  if (r.nonzero) out.set("nonzero", true);
}

// What a value looks like.
template <class M>
struct Shape {
  static Json of(Book& book, const Range& range) {
    Json out = Json::Object{};
    if constexpr (std::is_same_v<M, bool>) {
      out.set("kind", "bool");
    } else if constexpr (std::is_same_v<M, Dim> || std::is_same_v<M, double>) {
      out.set("kind", std::is_same_v<M, Dim> ? "whole" : "number");
      put_range(out, range);
    } else if constexpr (std::is_same_v<M, std::string>) {
      out.set("kind", "text");
    } else if constexpr (std::is_enum_v<M>) {
      out.set("kind", "word");
      Json::Array words;
      for (const std::string& n : names<M>()) words.push_back(n);
      out.set("words", std::move(words));
    } else {
      out.set("kind", "struct");
      out.set("of", section<M>(book));
    }
    return out;
  }
};
template <class T>
struct Shape<std::optional<T>> {
  static Json of(Book& book, const Range& range) {
    Json out = Shape<T>::of(book, range);
    out.set("absent", true);  // null
    return out;
  }
};
template <class T>
struct Shape<std::vector<T>> {
  static Json of(Book& book, const Range& range) {
    return Json::Object{{"kind", "list"}, {"of", Shape<T>::of(book, range)}};
  }
};
template <>
struct Shape<std::map<std::string, LayerRecipe>> {
  static Json of(Book& book, const Range&) {
    return Json::Object{{"kind", "letters"}, {"of", section<LayerRecipe>(book)}};
  }
};

// The value of a field that is not written; a struct's is that of its fields.
template <class M>
Json standard(const M& v) {
  if constexpr (std::is_same_v<M, bool> || std::is_same_v<M, Dim>) return v;
  else if constexpr (std::is_same_v<M, double>) return v;
  else if constexpr (std::is_same_v<M, std::string>) return v;
  else if constexpr (std::is_enum_v<M>) return name_text(v);
  else return {};
}

template <class T>
class Describe {
 public:
  Describe(Book& book, std::string title) : book_(book), title_(std::move(title)) {}
  void about(std::string_view, std::string_view meaning) { about_ = meaning; }
  template <class M>
  void field(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
    static const T kDefault{};
    Json out = Shape<M>::of(book_, range);
    if (Json value = standard(kDefault.*member); !value.is_null()) out.set("default", std::move(value));
    if constexpr (std::is_same_v<M, Dim> || std::is_same_v<M, double>)
      if (!breaks(range, static_cast<double>(kDefault.*member)).empty()) out.set("required", true);
    add(name, meaning, std::move(out));
  }
  template <class E, class... Options>
  void choice(std::string_view name, E T::* kind, std::string_view meaning, const Options&... options) {
    static const T kDefault{};
    Json::Array list;
    (list.push_back(option(options)), ...);
    if (name.empty()) {
      options_ = std::move(list);
      return;
    }
    Json out = Json::Object{{"kind", "choice"}};
    out.set("default", list[static_cast<std::size_t>(kDefault.*kind)].find("name")->string());
    out.set("options", std::move(list));
    add(name, meaning, std::move(out));
  }
  Json::Array fields_of() { return std::move(fields_); }
  Json whole() {
    Json out = Json::Object{{"about", about_}};
    Json::Array words;
    for (const auto& [name, value] : shorthands(Of<T>{})) words.push_back(std::string(name));
    if (!words.empty()) out.set("words", std::move(words));
    if (!options_.empty()) out.set("options", std::move(options_));
    else out.set("fields", std::move(fields_));
    return out;
  }

 private:
  void add(std::string_view name, std::string_view meaning, Json shape) {
    shape.set("name", std::string(name));
    shape.set("meaning", book_.meaning(title_, name, meaning));
    fields_.push_back(std::move(shape));
  }
  Json named(std::string_view name, std::string_view meaning, std::string_view form) const {
    return Json::Object{{"name", std::string(name)},
                        {"meaning", book_.meaning(title_, name, meaning)},
                        {"form", std::string(form)}};
  }
  Json option(const Word& o) { return named(o.name, o.meaning, "word"); }
  template <class M>
  Json option(const Bare<T, M>& o) {
    Json out = named(o.name, o.meaning, "number");
    out.set("inside", Shape<M>::of(book_, o.range));
    return out;
  }
  template <class M>
  Json option(const Body<T, M>& o) {
    Json out = named(o.name, o.meaning, "body");
    out.set("inside", Shape<M>::of(book_, o.range));
    return out;
  }
  template <class F>
  Json option(const Group<F>& o) {
    Describe inner(book_, title_);
    o.fields(inner);
    Json out = named(o.name, o.meaning, "group");
    out.set("fields", inner.fields_of());
    return out;
  }

  Book& book_;
  std::string title_, about_;
  Json::Array fields_, options_;
};

struct TitleOf {
  std::string title;
  void about(std::string_view t, std::string_view) { title = t; }
  template <class... Rest>
  void field(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}
};

template <class T>
std::string section(Book& book) {
  TitleOf t;
  fields(Of<T>{}, t);
  if (book.written.insert(t.title).second)
    book.waiting.emplace_back([&book, name = t.title] {
      Describe<T> d(book, name);
      fields(Of<T>{}, d);
      book.structs.set(name, d.whole());
    });
  return t.title;
}

}  // namespace

Json recipe_schema_data(std::string_view lang) {
  Book book;
  for (const PresetFile& f : recipe_help_files())
    if (f.name == lang) book.help = parse_json(f.json, concat("help in ", f.name));
  Json parts = Json::Object{};
  section<Recipe>(book);
  [&]<class... X>(std::variant<X...>*) {
    const auto one = [&]<class P>(Of<P> of) {
      for (const PartName& name : part_names(of)) parts.set(std::string(name.word), section<P>(book));
    };
    (one(Of<X>{}), ...);
  }(static_cast<AnyPartRecipe*>(nullptr));
  while (!book.waiting.empty()) {
    const std::function<void()> next = std::move(book.waiting.back());
    book.waiting.pop_back();
    next();
  }
  return Json::Object{{"structs", std::move(book.structs)}, {"parts", std::move(parts)}};
}

}  // namespace rapt
