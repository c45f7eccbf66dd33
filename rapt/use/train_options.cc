// SPDX-License-Identifier: Apache-2.0
// JSON is flattened to keys with dots; one visitor over the table reads and checks it, another writes it.
#include "rapt/use/train_options.h"

#include <algorithm>
#include <type_traits>

#include "rapt/base/text.h"

namespace rapt {
namespace {

// {"optimizer": {"rate": 1}} as "optimizer.rate" -> 1.
void flatten(const Json& json, const std::string& before,
             std::vector<std::pair<std::string, const Json*>>& out) {
  for (const Json::Member& m : json.object()) {
    const std::string key = before.empty() ? std::string(m.key) : before + "." + m.key;
    if (m.value.is_object()) flatten(m.value, key, out);
    else out.emplace_back(key, &m.value);
  }
}

struct Read {
  const std::vector<std::pair<std::string, const Json*>>& given;
  const std::string& where;
  std::vector<std::string> known = {};

  template <class T>
  void operator()(std::string_view key, T& out, double least, double most, std::string_view meaning) {
    known.emplace_back(key);
    const auto it = std::find_if(given.begin(), given.end(), [&](const auto& g) { return g.first == key; });
    if (it == given.end()) return;
    const Json& j = *it->second;
    const auto bad = [&](const auto&... why) { fail(where, ": ", key, ": ", why..., " (", meaning, ")"); };
    if constexpr (std::is_same_v<T, bool>) {
      if (!j.is_bool()) bad("wants true or false, has ", j.dump(0));
      out = j.boolean();
    } else if constexpr (std::is_enum_v<T>) {
      const auto all = names_of(T{});
      const std::vector<std::string> names(all.begin(), all.end());
      const auto at = std::find(names.begin(), names.end(), j.is_string() ? j.string() : "");
      if (at == names.end()) bad("wants one of ", join(names), ", has ", j.dump(0));
      out = static_cast<T>(at - names.begin());
    } else {
      if (!j.is_number() || (std::is_integral_v<T> && !j.is_integer()))
        bad("wants a ", std::is_integral_v<T> ? "whole " : "", "number, has ", j.dump(0));
      if (j.number() < least || j.number() > most)
        bad("must lie between ", shortest(least), " and ", shortest(most), ", is ", j.dump(0));
      if constexpr (std::is_integral_v<T>) out = static_cast<T>(j.integer());
      else out = j.number();
    }
  }
};

}  // namespace

TrainOptions parse_train_options(const Json& json, const std::string& where) {
  if (!json.is_object()) fail(where, ": wants an object, has ", json.type_name());
  std::vector<std::pair<std::string, const Json*>> given;
  flatten(json, "", given);
  TrainOptions o;
  Read read{given, where};
  train_fields(o, read);
  for (const auto& [key, value] : given)
    if (std::find(read.known.begin(), read.known.end(), key) == read.known.end())
      fail(where, ": ", key, ": unknown key; ", name_hint(key, read.known));
  o.schedule.total = o.steps;
  return o;
}

Json train_options_json(const TrainOptions& options) {
  Json out = Json::Object{};
  train_fields(options, [&](std::string_view key, const auto& value, double, double, std::string_view) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_enum_v<T>)
      out.set(std::string(key), Json(names_of(T{})[static_cast<std::size_t>(value)]));
    else if constexpr (std::is_same_v<T, bool>) out.set(std::string(key), Json(value));
    else if constexpr (std::is_integral_v<T>)
      out.set(std::string(key), Json(static_cast<std::int64_t>(value)));
    else out.set(std::string(key), Json(value));
  });
  return out;
}

}  // namespace rapt
