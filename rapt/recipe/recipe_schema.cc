// SPDX-License-Identifier: Apache-2.0
// A visitor over the fields that writes Markdown.
#include "rapt/recipe/recipe_schema.h"

#include <cmath>
#include <functional>
#include <set>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/recipe/recipe_fields.h"

namespace rapt {
namespace {

template <class T>
class Docs;

struct Book {
  std::string text;
  std::set<std::string> written;
  // Structs met in fields, written after the one that names them.
  std::vector<std::function<void()>> waiting;
};

std::string range_text(const Range& r) {
  std::string s;
  const bool low = std::isfinite(r.low), high = std::isfinite(r.high) && r.high != kMostSize;
  if (low && high)
    s = concat(shortest(r.low), r.above ? " < x " : " ≤ x ", r.below ? "< " : "≤ ", shortest(r.high));
  else if (low) s = concat(r.above ? "> " : "≥ ", shortest(r.low));
  else if (high) s = concat(r.below ? "< " : "≤ ", shortest(r.high));
  if (r.nonzero) s = "not 0";
  return s.empty() ? "" : " " + s;
}

// The name of a struct's section, and the section itself later.
template <class T>
std::string section(Book& book);

std::string code(std::string_view s) { return concat("`", s, "`"); }

template <class E>
std::string words() {
  std::string s;
  for (const std::string_view n : names_of(E{})) s += concat(s.empty() ? "" : " · ", code(n));
  return s;
}

// What a value looks like.
template <class M>
struct Looks {
  static std::string text(Book& book, const Range& range) {
    if constexpr (std::is_same_v<M, bool>) return "`true` · `false`";
    else if constexpr (std::is_same_v<M, Dim>) return "whole number" + range_text(range);
    else if constexpr (std::is_same_v<M, double>) return "number" + range_text(range);
    else if constexpr (std::is_same_v<M, std::string>) return "string";
    else if constexpr (std::is_enum_v<M>) return words<M>();
    else return section<M>(book);
  }
};
template <class T>
struct Looks<std::optional<T>> {
  static std::string text(Book& book, const Range&) { return section<T>(book) + " or `null`"; }
};
template <class T>
struct Looks<std::vector<T>> {
  static std::string text(Book& book, const Range& range) { return "list of " + Looks<T>::text(book, range); }
};
template <>
struct Looks<std::map<std::string, LayerRecipe>> {
  static std::string text(Book& book, const Range&) {
    return "`{ letter: `" + section<LayerRecipe>(book) + "` }`";
  }
};

template <class M>
std::string default_text(const M& v) {
  if constexpr (std::is_same_v<M, bool>) return code(v ? "true" : "false");
  else if constexpr (std::is_same_v<M, Dim>) return code(std::to_string(v));
  else if constexpr (std::is_same_v<M, double>) return code(shortest(v));
  else if constexpr (std::is_same_v<M, std::string>) return v.empty() ? "" : code("\"" + v + "\"");
  else if constexpr (std::is_enum_v<M>) return code(name_text(v));
  else return "";
}
template <class T>
std::string default_text(const std::optional<T>& v) {
  return v ? default_text(*v) : "absent";
}
template <class T>
std::string default_text(const std::vector<T>&) {
  return "`[]`";
}
inline std::string default_text(const std::map<std::string, LayerRecipe>&) { return "`{}`"; }
inline std::string default_text(const PosRecipe&) { return "`none`"; }
inline std::string default_text(const ScaleRecipe&) { return "`auto`"; }
inline std::string default_text(const ExtraRecipe&) { return "`none`"; }
inline std::string default_text(const BiasRecipe&) { return "`none`"; }

struct TitleOf {  // only the title of a struct
  std::string title;
  void about(std::string_view t, std::string_view) { title = t; }
  template <class... Rest>
  void field(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}
};

template <class T>
struct InLine {  // the fields of a group, one after the other
  Book& book;
  std::string out = {};
  template <class M>
  void field(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
    static const T kDefault{};
    out += concat(out.empty() ? "" : "<br>", code(name), ": ", Looks<M>::text(book, range), ", default ",
                  default_text(kDefault.*member), ": ", meaning);
  }
};

template <class T>
class Docs {
 public:
  explicit Docs(Book& book) : book_(book) {}
  void about(std::string_view title, std::string_view meaning) {
    book_.text += concat("\n## ", title, "\n\n", join(fold_text(meaning, 110), "\n"), "\n\n");
    book_.text += kIsChoice<T> ? "| one of | with | meaning |\n|---|---|---|\n"
                               : "| field | value | default | meaning |\n|---|---|---|---|\n";
  }
  template <class M>
  void field(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
    static const T kDefault{};
    bool required = false;  // the default is outside the range
    if constexpr (std::is_same_v<M, Dim> || std::is_same_v<M, double>)
      required = static_cast<double>(kDefault.*member) < range.low ||
                 (range.above && static_cast<double>(kDefault.*member) == range.low);
    line(name, Looks<M>::text(book_, range), required ? "required" : default_text(kDefault.*member), meaning);
  }
  template <class E, class... Options>
  void choice(std::string_view name, E T::* kind, std::string_view meaning, const Options&... options) {
    if (name.empty()) {
      (alone(options), ...);
      return;
    }
    static const T kDefault{};
    std::string forms, standard;
    std::size_t i = 0;
    ((forms += concat(forms.empty() ? "" : " · ", form(options)),
      i++ == static_cast<std::size_t>(kDefault.*kind) ? void(standard = standard_of(options)) : void()),
     ...);
    line(name, forms, standard, meaning);
    (below(name, options), ...);
  }

 private:
  void line(std::string_view name, const std::string& value, const std::string& standard,
            std::string_view meaning) {
    std::string escaped(meaning);
    // |x| in a table
    for (std::size_t i = 0; (i = escaped.find('|', i)) != std::string::npos; i += 2) escaped.insert(i, "\\");
    book_.text +=
        concat("| ", code(concat(prefix_, name)), " | ", value, " | ", standard, " | ", escaped, " |\n");
  }
  static std::string form(const Word& o) { return code(concat("\"", o.name, "\"")); }
  template <class M>
  static std::string form(const Bare<T, M>&) {
    return "number";
  }
  template <class M>
  static std::string form(const Body<T, M>& o) {
    return code(concat("{\"", o.name, "\": …}"));
  }
  template <class F>
  static std::string form(const Group<F>& o) {
    return code(concat("{\"", o.name, "\": {…}}"));
  }
  static std::string standard_of(const Word& o) { return code(o.name); }
  template <class M>
  static std::string standard_of(const Bare<T, M>& o) {
    static const T kDefault{};
    return default_text(kDefault.*(o.member));
  }
  template <class O>
  static std::string standard_of(const O& o) {
    return code(o.name);
  }

  // A struct that is a choice: one line per option, then the fields of a group.
  void alone(const Word& o) { book_.text += concat("| ", form(o), " | | ", o.meaning, " |\n"); }
  template <class M>
  void alone(const Bare<T, M>& o) {
    book_.text += concat("| number | ", Looks<M>::text(book_, o.range), " | ", o.meaning, " |\n");
  }
  template <class M>
  void alone(const Body<T, M>& o) {
    book_.text += concat("| ", form(o), " | ", Looks<M>::text(book_, o.range), " | ", o.meaning, " |\n");
  }
  template <class F>
  void alone(const Group<F>& o) {
    InLine<T> list{book_};
    o.fields(list);
    book_.text += concat("| ", form(o), " | ", list.out, " | ", o.meaning, " |\n");
  }

  // Options of a choice that is one field among others: a line each where there is something to say.
  void below(std::string_view name, const Word& o) { line(concat(name, " = ", o.name), "", "", o.meaning); }
  template <class M>
  void below(std::string_view, const Bare<T, M>&) {}
  template <class M>
  void below(std::string_view name, const Body<T, M>& o) {
    line(concat(name, ".", o.name), Looks<M>::text(book_, o.range), "", o.meaning);
  }
  template <class F>
  void below(std::string_view name, const Group<F>& o) {
    line(concat(name, ".", o.name), "object", "", o.meaning);
    Docs inner(book_);
    inner.prefix_ = concat(prefix_, name, ".", o.name, ".");
    o.fields(inner);
  }

  Book& book_;
  std::string prefix_;
};

template <class T>
std::string title() {
  TitleOf t;
  fields(Of<T>{}, t);
  return t.title;
}

std::string anchor(std::string s) {
  for (char& c : s) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return s;
}

template <class T>
void write_section(Book& book) {
  Docs<T> docs(book);
  fields(Of<T>{}, docs);
  if constexpr (std::is_same_v<T, PartRecipe>)
    [&]<class... X>(std::variant<X...>*) { (section<X>(book), ...); }(static_cast<AnyPartRecipe*>(nullptr));
}

template <class T>
std::string section(Book& book) {
  const std::string t = title<T>();
  if (book.written.insert(t).second) book.waiting.emplace_back([&book] { write_section<T>(book); });
  return concat("[", t, "](#", anchor(t), ")");
}

}  // namespace

std::string recipe_schema() {
  Book book;
  book.text =
      "# The recipe\n"
      "\n"
      "<!-- Written by `rapt show --schema` from rapt/recipe/recipe_fields.h. A test compares the two. -->\n"
      "\n"
      "A recipe describes a model as one JSON object. Every field has a default, so a recipe says only\n"
      "what is particular about a model; an unknown key is an error that names the nearest known one, and\n"
      "so is a combination that cannot work, with the reason. `rapt show FILE` draws what a recipe means,\n"
      "`rapt show --json FILE` prints it with sizes filled in, `rapt show --diff A B` compares two.\n"
      "\n"
      "```json\n"
      "{ \"preset\": \"llama3\", \"name\": \"small-gated\", \"width\": 512, \"vocab\": 8192, "
      "\"context\": 1024,\n"
      "  \"decoder\": { \"layers\": 8, \"kinds\": { \"L\": { \"parts\": {\n"
      "    \"self\": { \"heads\": 8, \"kv_heads\": 2, \"gate\": [{ \"at\": \"sdpa\" }] },\n"
      "    \"ffn\": { \"width\": 1408 } } } } } }\n"
      "```\n"
      "\n"
      "Where a field is one of several things, a plain one is its name, one with settings is an object\n"
      "with the name as its only key: `\"pos\": \"alibi\"`,\n"
      "`\"pos\": { \"rope\": { \"theta\": 500000 } }`.\n";
  section<Recipe>(book);
  while (!book.waiting.empty()) {
    // Depth first, so that a struct follows the one that uses it.
    const std::function<void()> next = book.waiting.front();
    book.waiting.erase(book.waiting.begin());
    std::vector<std::function<void()>> later;
    std::swap(later, book.waiting);
    next();
    book.waiting.insert(book.waiting.end(), later.begin(), later.end());
  }
  book.text += "\n## Presets\n\n| name | note |\n|---|---|\n";
  for (const std::string& name : preset_names())
    book.text += concat("| ", code(name), " | ", preset(name).note, " |\n");
  return std::move(book.text);
}

}  // namespace rapt
