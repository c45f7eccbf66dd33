// SPDX-License-Identifier: Apache-2.0
// Recipes from JSON and back (visitors over recipe_fields.h), and presets.
#include "rapt/recipe/recipe.h"

#include <algorithm>
#include <filesystem>

#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/recipe/presets.h"
#include "rapt/recipe/recipe_fields.h"

namespace rapt {
namespace {

// ------------------------------------------------------------------------------------------- JSON -> recipe

// Reads onto what is there: absent keys leave a value as it is, so a preset can lie below.
class Source {
 public:
  explicit Source(std::string_view where) : where_(where) {}
  template <class... Parts>
  [[noreturn]] void bad(const Json& at, const std::string& path, const Parts&... parts) const {
    if (at.line > 0)
      fail(where_, ":", at.line, ":", at.column, ": ", path.empty() ? "" : path + ": ", parts...);
    fail(where_, ": ", path.empty() ? "" : path + ": ", parts...);
  }

 private:
  std::string where_;
};

struct Keys {  // one object being read
  const Source& source;
  const Json& json;
  std::string path;
  std::vector<std::string> known = {};

  const Json* take(std::string_view name) {
    known.emplace_back(name);
    return json.find(name);
  }
  void finish() const {
    for (const Json::Member& m : json.object())
      if (std::find(known.begin(), known.end(), m.key) == known.end())
        source.bad(m.value, under(path, m.key), "unknown key; ", name_hint(m.key, known));
  }
};

template <class T>
class Reader;

void read(const Source& s, bool& out, const Json& j, const std::string& path, const Range&,
          std::string_view) {
  if (!j.is_bool()) s.bad(j, path, "wants true or false, has ", j.type_name());
  out = j.boolean();
}
void read(const Source& s, double& out, const Json& j, const std::string& path, const Range& range,
          std::string_view meaning) {
  if (!j.is_number()) s.bad(j, path, "wants a number, has ", j.type_name());
  if (const std::string why = breaks(range, j.number()); !why.empty())
    s.bad(j, path, why, ", is ", shortest(j.number()), " (", meaning, ")");
  out = j.number();
}
void read(const Source& s, Dim& out, const Json& j, const std::string& path, const Range& range,
          std::string_view meaning) {
  if (!j.is_number()) s.bad(j, path, "wants a whole number, has ", j.type_name());
  if (!j.is_integer()) s.bad(j, path, "wants a whole number, has ", shortest(j.number()));
  if (const std::string why = breaks(range, j.number()); !why.empty())
    s.bad(j, path, why, ", is ", j.integer(), " (", meaning, ")");
  out = j.integer();
}
void read(const Source& s, std::string& out, const Json& j, const std::string& path, const Range&,
          std::string_view) {
  if (!j.is_string()) s.bad(j, path, "wants a string, has ", j.type_name());
  out = j.string();
}
template <Enum E>
void read(const Source& s, E& out, const Json& j, const std::string& path, const Range&, std::string_view) {
  if (!j.is_string()) s.bad(j, path, "wants one of ", join(names<E>()), ", has ", j.type_name());
  const std::vector<std::string> all = names<E>();
  const auto it = std::find(all.begin(), all.end(), j.string());
  if (it == all.end())
    s.bad(j, path, "unknown value ", json_quote(j.string()), "; ", name_hint(j.string(), all));
  out = static_cast<E>(it - all.begin());
}
void read(const Source& s, std::vector<double>& out, const Json& j, const std::string& path,
          const Range& range, std::string_view meaning) {
  if (!j.is_array()) s.bad(j, path, "wants a list of numbers, has ", j.type_name());
  out.assign(j.array().size(), 0);
  for (std::size_t i = 0; i < out.size(); ++i)
    read(s, out[i], j.array()[i], concat(path, "[", i, "]"), range, meaning);
}

template <class T>
  requires std::is_class_v<T>
void read(const Source& s, T& out, const Json& j, const std::string& path, const Range& = {},
          std::string_view = {}) {
  if constexpr (!kIsChoice<T>) {
    std::vector<std::string> words;
    for (const auto& [name, value] : shorthands(Of<T>{})) {
      if (j.is_string() && j.string() == name) {
        out = value;
        return;
      }
      words.emplace_back(name);
    }
    if (j.is_string() && !words.empty())
      s.bad(j, path, "unknown value ", json_quote(j.string()), "; ", name_hint(j.string(), words),
            " An object spells everything out");
    if (!j.is_object())
      s.bad(j, path, "wants an object", words.empty() ? "" : " or one of ", join(words), ", has ",
            j.type_name());
  }
  Keys keys{s, j, path};
  Reader<T> reader{out, keys};
  fields(Of<T>{}, reader);
  if constexpr (!kIsChoice<T>) keys.finish();
}

template <class T>
void read(const Source& s, std::optional<T>& out, const Json& j, const std::string& path, const Range& range,
          std::string_view meaning) {
  if (j.is_null()) {
    out.reset();
    return;
  }
  T value = out.value_or(T{});
  read(s, value, j, path, range, meaning);
  out = std::move(value);
}

void read(const Source& s, std::vector<GateRecipe>& out, const Json& j, const std::string& path, const Range&,
          std::string_view) {
  if (!j.is_array()) s.bad(j, path, "wants a list of gates ([] for none), has ", j.type_name());
  out.assign(j.array().size(), {});
  for (std::size_t i = 0; i < out.size(); ++i) read(s, out[i], j.array()[i], concat(path, "[", i, "]"));
}

void read_part(const Source& s, PartRecipe& out, const Json& j, const std::string& path);

// f(Of<X>, index) for every kind of part X and each of its names.
template <class F>
void each_part_name(const F& f) {
  const auto all = [&]<class... X>(std::variant<X...>*) {
    const auto one = [&](auto of) {
      const auto names = part_names(of);
      for (std::size_t i = 0; i < names.size(); ++i) f(of, i, names[i].word);
    };
    (one(Of<X>{}), ...);
  };
  all(static_cast<AnyPartRecipe*>(nullptr));
}

// {"self": {…}}, {"cross": {…}} or {"ffn": {…}}
std::string part_examples() {
  std::vector<std::string> all;
  each_part_name(
      [&](auto, std::size_t, std::string_view word) { all.push_back(concat("{\"", word, "\": {…}}")); });
  return join(all, " or ");
}

// The part of that name, with every field at its default.
template <class X>
X named(Of<X>, std::size_t index) {
  X x;
  set_name(x, index);
  return x;
}
AnyPartRecipe part_called(const Source& s, const Json& at, const std::string& name, const std::string& path) {
  std::optional<AnyPartRecipe> found;
  std::vector<std::string> words;
  each_part_name([&](auto of, std::size_t i, std::string_view word) {
    words.emplace_back(word);
    if (word == name) found = named(of, i);
  });
  if (!found) s.bad(at, path, "unknown part ", json_quote(name), "; ", name_hint(name, words));
  return *found;
}

void read(const Source& s, std::vector<PartRecipe>& out, const Json& j, const std::string& path, const Range&,
          std::string_view) {
  if (j.is_array()) {
    out.assign(j.array().size(), {});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Json& part = j.array()[i];
      const std::string at = concat(path, "[", i, "]");
      if (!part.is_object() || part.object().size() != 1)
        s.bad(part, at, "wants an object with one key, the name of the part: ", part_examples());
      const Json::Member& m = part.object()[0];
      out[i].body = part_called(s, m.value, m.key, at);
      read_part(s, out[i], m.value, under(at, m.key));
    }
    return;
  }
  if (!j.is_object()) s.bad(j, path, "wants a list of parts, has ", j.type_name());
  for (const Json::Member& m : j.object()) {  // changes to parts that are there
    part_called(s, m.value, m.key, path);  // fails where there is no such part at all
    bool found = false;
    for (PartRecipe& p : out)
      if (part_name(p).word == m.key) read_part(s, p, m.value, under(path, m.key)), found = true;
    if (!found)
      s.bad(m.value, under(path, m.key), "this layer has no such part to change; a list [{\"", m.key,
            "\": {…}}, …] defines parts");
  }
}

void read(const Source& s, std::map<std::string, LayerRecipe>& out, const Json& j, const std::string& path,
          const Range&, std::string_view) {
  if (!j.is_object()) s.bad(j, path, "wants an object with one layer per letter, has ", j.type_name());
  for (const Json::Member& m : j.object())
    if (m.value.is_null()) out.erase(m.key);
    else read(s, out[m.key], m.value, under(path, m.key));
}

// Puts the members of every option of a choice back to their defaults.
template <class T>
struct Reset {
  T& out;
  template <class M>
  void field(std::string_view, M T::* member, std::string_view, Range = {}) {
    static const T kDefault{};
    out.*member = kDefault.*member;
  }
  void option(const Word&) {}
  template <class M>
  void option(const Bare<T, M>& o) {
    field({}, o.member, {});
  }
  template <class M>
  void option(const Body<T, M>& o) {
    field({}, o.member, {});
  }
  template <class F>
  void option(const Group<F>& o) {
    o.fields(*this);
  }
};

template <class T>
class Reader {
 public:
  Reader(T& out, Keys& keys) : out_(out), keys_(keys) {}
  void about(std::string_view, std::string_view) {}

  template <class M>
  void field(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
    if (const Json* j = keys_.take(name))
      read(keys_.source, out_.*member, *j, under(keys_.path, name), range, meaning);
  }

  template <class E, class... Options>
  void choice(std::string_view name, E T::* kind, std::string_view, const Options&... options) {
    const Json* j = name.empty() ? &keys_.json : keys_.take(name);
    if (!j) return;
    const std::string path = name.empty() ? keys_.path : under(keys_.path, name);
    const Source& s = keys_.source;
    const std::vector<std::string> all{std::string(options.name)...};
    const bool has_bare = (is_bare(options) || ...);
    const std::vector<std::string> words = words_of(options...);
    const std::string wants =
        concat("wants ", has_bare ? "a number or " : "", words.size() > 1 ? "one of " : "", join(words));
    std::string chosen;
    const Json* inside = nullptr;
    if (j->is_number() && has_bare) {
      ((is_bare(options) ? void(chosen = options.name) : void()), ...);
      inside = j;
    } else if (j->is_string()) {
      chosen = j->string();
    } else if (j->is_object()) {
      if (j->object().size() != 1) s.bad(*j, path, wants, "; an object has exactly one key, the chosen name");
      chosen = j->object()[0].key;
      inside = &j->object()[0].value;
    } else {
      s.bad(*j, path, wants, ", has ", j->type_name());
    }
    const auto it = std::find(all.begin(), all.end(), chosen);
    if (it == all.end() || (inside != j && std::find(words.begin(), words.end(), chosen) == words.end()))
      s.bad(*j, path, "unknown value ", json_quote(chosen), "; ", name_hint(chosen, words));
    const auto index = it - all.begin();
    if (out_.*kind != static_cast<E>(index)) {
      Reset<T> reset{out_};
      (reset.option(options), ...);
      out_.*kind = static_cast<E>(index);
    }
    std::ptrdiff_t i = 0;
    ((i++ == index ? option(options, *j, inside, inside == j ? path : under(path, chosen)) : void()), ...);
  }

 private:
  static bool is_bare(const Word&) { return false; }
  template <class M>
  static bool is_bare(const Bare<T, M>&) {
    return true;
  }
  template <class M>
  static bool is_bare(const Body<T, M>&) {
    return false;
  }
  template <class F>
  static bool is_bare(const Group<F>&) {
    return false;
  }
  template <class... Options>
  static std::vector<std::string> words_of(const Options&... options) {
    std::vector<std::string> words;
    auto add = [&](bool number, std::string_view name) {
      if (!number) words.emplace_back(name);
    };
    (add(is_bare(options), options.name), ...);
    return words;
  }

  void option(const Word& o, const Json& j, const Json* inside, const std::string& path) {
    if (inside && !(inside->is_object() && inside->object().empty()))
      keys_.source.bad(j, path, json_quote(o.name), " has nothing inside: write just the name");
  }
  template <class M>
  void option(const Bare<T, M>& o, const Json&, const Json* inside, const std::string& path) {
    read(keys_.source, out_.*(o.member), *inside, path, o.range, o.meaning);
  }
  template <class M>
  void option(const Body<T, M>& o, const Json& j, const Json* inside, const std::string& path) {
    if (inside) read(keys_.source, out_.*(o.member), *inside, path, o.range, o.meaning);
    else if constexpr (!std::is_class_v<M>)
      keys_.source.bad(j, path, "wants a number: {", json_quote(o.name), ": n}");
  }
  template <class F>
  void option(const Group<F>& o, const Json&, const Json* inside, const std::string& path) {
    if (!inside) return;
    if (!inside->is_object()) keys_.source.bad(*inside, path, "wants an object, has ", inside->type_name());
    Keys keys{keys_.source, *inside, path};
    Reader<T> reader{out_, keys};
    o.fields(reader);
    keys.finish();
  }

  T& out_;
  Keys& keys_;
};

void read_part(const Source& s, PartRecipe& out, const Json& j, const std::string& path) {
  if (!j.is_object()) s.bad(j, path, "wants an object, has ", j.type_name());
  Keys keys{s, j, path};
  Reader<PartRecipe> common{out, keys};
  fields(Of<PartRecipe>{}, common);
  std::visit(
      [&]<class X>(X& body) {
        Reader<X> reader{body, keys};
        fields(Of<X>{}, reader);
      },
      out.body);
  keys.finish();
}

// ------------------------------------------------------------------------------------------- recipe -> JSON
template <class T>
class Writer;

Json write(bool v, bool) { return v; }
Json write(double v, bool) {
  // Whole numbers are written without a point either way; this keeps them whole in memory too.
  if (v == std::floor(v) && std::fabs(v) < 1e15 && !(v == 0 && std::signbit(v)))
    return static_cast<std::int64_t>(v);
  return v;
}
Json write(Dim v, bool) { return v; }
Json write(const std::string& v, bool) { return v; }
template <Enum E>
Json write(E v, bool) {
  const auto all = names_of(E{});
  const auto i = static_cast<std::size_t>(v);
  if (i >= all.size())
    fail("recipe: value ", i, " of an enum with the names ", join(names<E>()), " cannot be written");
  return all[i];
}
template <class T>
  requires std::is_class_v<T>
Json write(const T& v, bool all) {
  if constexpr (!kIsChoice<T>)
    if (!all)
      for (const auto& [name, value] : shorthands(Of<T>{}))
        if (v == value) return name;
  Json out = Json::Object{};
  Writer<T> writer{v, all, out};
  fields(Of<T>{}, writer);
  return out;
}
template <class T>
Json write(const std::optional<T>& v, bool all) {
  return v ? write(*v, all) : Json();
}
template <class T>
Json write(const std::vector<T>& v, bool all) {
  Json::Array out;
  for (const T& e : v) out.push_back(write(e, all));
  return out;
}
Json write(const PartRecipe& p, bool all);
Json write(const std::vector<PartRecipe>& v, bool all) {
  Json::Array out;
  for (const PartRecipe& p : v) out.push_back(write(p, all));
  return out;
}
Json write(const std::map<std::string, LayerRecipe>& v, bool all) {
  Json out = Json::Object{};
  for (const auto& [name, layer] : v) out.set(name, write(layer, all));
  return out;
}

template <class T>
class Writer {
 public:
  Writer(const T& in, bool all, Json& out) : in_(in), all_(all), out_(out) {}
  void about(std::string_view, std::string_view) {}
  template <class M>
  void field(std::string_view name, M T::* member, std::string_view, Range = {}) {
    static const T kDefault{};
    if (all_ || !(in_.*member == kDefault.*member)) out_.set(std::string(name), write(in_.*member, all_));
  }
  template <class E, class... Options>
  void choice(std::string_view name, E T::* kind, std::string_view, const Options&... options) {
    Json j = chosen(kind, options...);
    if (name.empty()) {
      out_ = std::move(j);
      return;
    }
    static const T kDefault{};
    if (all_ || !(Writer(kDefault, false, out_).chosen(kind, options...) == j))
      out_.set(std::string(name), std::move(j));
  }

 private:
  template <class E, class... Options>
  Json chosen(E T::* kind, const Options&... options) const {
    Json j;
    std::size_t i = 0;
    ((i++ == static_cast<std::size_t>(in_.*kind) ? void(j = option(options)) : void()), ...);
    return j;
  }
  static Json named(std::string_view name, Json inside) {
    if (inside.is_object() && inside.object().empty()) return name;
    Json j = Json::Object{};
    j.set(std::string(name), std::move(inside));
    return j;
  }
  Json option(const Word& o) const { return o.name; }
  template <class M>
  Json option(const Bare<T, M>& o) const {
    return write(in_.*(o.member), all_);
  }
  template <class M>
  Json option(const Body<T, M>& o) const {
    return named(o.name, write(in_.*(o.member), all_));
  }
  template <class F>
  Json option(const Group<F>& o) const {
    Json inside = Json::Object{};
    Writer writer(in_, all_, inside);
    o.fields(writer);
    return named(o.name, std::move(inside));
  }

  const T& in_;
  const bool all_;
  Json& out_;
};

Json write(const PartRecipe& p, bool all) {
  Json inner = Json::Object{}, out = Json::Object{};
  // The branch's norms frame the function: norm_in, f, the rest.
  Writer<PartRecipe> common{p, all, inner};
  fields(Of<PartRecipe>{}, common);
  std::visit(
      [&]<class X>(const X& body) {
        Writer<X> writer{body, all, inner};
        fields(Of<X>{}, writer);
      },
      p.body);
  out.set(std::string(part_name(p).word), std::move(inner));
  return out;
}

// ------------------------------------------------------------------------------------------------ presets
const PresetFile* find_preset(std::string_view name) {
  for (const PresetFile& f : preset_files())
    if (f.name == name) return &f;
  return nullptr;
}

Recipe parse(std::string_view text, std::string_view where, int depth);

Recipe load_preset(std::string_view name, int depth) {
  const PresetFile* file = find_preset(name);
  if (!file) fail_name("no preset is called '", name, "'; ", name_hint(name, preset_names()));
  Recipe r = parse(file->json, concat("preset ", name), depth);
  r.name = name;
  return r;
}

Recipe parse(std::string_view text, std::string_view where, int depth) {
  const Json json = parse_json(text, where);
  const Source source(where);
  if (!json.is_object()) source.bad(json, "", "a recipe is an object { … }, this is ", json.type_name());
  Recipe r;
  Keys keys{source, json, ""};
  if (const Json* base = keys.take("preset"); base && !base->is_null()) {
    if (!base->is_string())
      source.bad(*base, "preset", "wants the name of a preset, has ", base->type_name());
    if (depth > 8) source.bad(*base, "preset", "presets that start from each other in a ring");
    if (!find_preset(base->string()))
      source.bad(*base, "preset", "no preset is called ", json_quote(base->string()), "; ",
                 name_hint(base->string(), preset_names()));
    r = load_preset(base->string(), depth + 1);
    r.name = Recipe{}.name;
    r.note.clear();
  }
  Reader<Recipe> reader{r, keys};
  fields(Of<Recipe>{}, reader);
  keys.finish();
  return r;
}

}  // namespace

PartName part_name(const PartRecipe& part) {
  return std::visit([]<class X>(const X& body) { return part_names(Of<X>{})[name_index(body)]; }, part.body);
}
bool reads_memory(const PartRecipe& part) {
  return std::visit([](const auto& body) { return reads_memory(body); }, part.body);
}
bool remembers_by_state(const Recipe& recipe) {
  if (!recipe.decoder) return false;
  for (const auto& [name, layer] : recipe.decoder->kinds)
    for (const PartRecipe& p : layer.parts)
      if (p.delta() || p.conv()) return true;
  return false;
}
bool is_causal(const LayerRecipe& layer) {
  return std::any_of(layer.parts.begin(), layer.parts.end(), [](const PartRecipe& p) {
    return std::visit([](const auto& body) { return is_causal(body); }, p.body);
  });
}

const LayerRecipe& StackRecipe::layer(Dim i) const {
  if (i < 0 || i >= layers || pattern.empty()) fail("stack: no layer ", i, " among ", layers);
  const auto it = kinds.find(std::string(1, pattern[static_cast<std::size_t>(i) % pattern.size()]));
  if (it == kinds.end()) fail("stack: the pattern \"", pattern, "\" names a kind that is not there");
  return it->second;
}

Recipe parse_recipe(std::string_view json, std::string_view where) { return parse(json, where, 0); }

std::string recipe_json(const Recipe& recipe, bool with_defaults) {
  return write(recipe, with_defaults).dump() + "\n";
}

std::vector<std::string> preset_names() {
  std::vector<std::string> out;
  for (const PresetFile& f : preset_files()) out.emplace_back(f.name);
  std::sort(out.begin(), out.end());
  return out;
}

Recipe preset(std::string_view name) { return load_preset(name, 0); }

Recipe find_recipe(const std::string& name_or_path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(name_or_path, ignored) && find_preset(name_or_path))
    return preset(name_or_path);
  if (std::filesystem::exists(name_or_path, ignored)) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 20;  // a recipe has a few KiB
    return parse_recipe(read_text_file(name_or_path, kMost), name_or_path);
  }
  if (find_preset(name_or_path)) return preset(name_or_path);
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json"))
    fail_missing(name_or_path,
                 ": there is no such file, or it may not be read; give a recipe file or one of the presets "
                 "(`rapt show` lists them)");
  fail_missing("no preset and no file is called '", name_or_path, "'; ",
               name_hint(name_or_path, preset_names()));
}

}  // namespace rapt
