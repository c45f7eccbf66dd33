// SPDX-License-Identifier: Apache-2.0
// A JSON schema as a document: its places by number, where references lead, the keywords that are known, and
// errors that name a keyword and its place.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rapt/base/text.h"
#include "rapt/text/grammar/char_dfa.h"

namespace rapt {

class SchemaDocument {
 public:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  // Schema and budget must outlive it. Number 0 is the whole; the others follow in the order of the text.
  SchemaDocument(const Json& schema, std::string_view where, GrammarBudget& budget);

  std::uint32_t number(const Json& value) const { return number_of_.at(&value); }
  const Json& at(std::uint32_t schema) const { return *places_[schema].value; }
  const Json* keyword(std::uint32_t schema, std::string_view name) const { return at(schema).find(name); }
  std::string path(std::uint32_t place) const;  // a JSON pointer
  int count(std::uint32_t schema, std::string_view name, const Json& value) const;  // its value
  const Json::Array& schema_list(std::uint32_t schema, std::string_view name) const;
  std::uint32_t target(std::uint32_t schema) const;  // of its $ref
  void check_keywords(std::uint32_t schema);  // fails where one of them is not supported

  // `what` follows the name of the keyword: "must be a number".
  [[noreturn]] void wrong(std::uint32_t schema, std::string_view keyword, std::string_view what) const;
  // What parts of a grammar complain about, with the keyword that asked for them.
  template <class F>
  auto named(std::uint32_t schema, std::string_view keyword, const F& make) const {
    try {
      return make();
    } catch (const GrammarError& e) {
      if (!e.path().empty() || !e.keyword().empty()) throw;
      wrong(schema, keyword, concat("cannot be done: ", e.what()));
    }
  }

 protected:
  GrammarBudget& budget_;
  const std::string where_;

 private:
  struct Place {
    const Json* value;
    std::uint32_t parent;
    std::string key;
    std::uint32_t resource;  // the schema whose $id holds here; 0: the whole
    std::string base = {};  // that $id, of a schema that has one
  };
  // data: inside of const and its like, where nothing is a schema.
  void scan(const Json& value, std::uint32_t parent, std::string key, int depth, std::uint32_t resource,
            bool data);

  std::vector<Place> places_;
  std::unordered_map<const Json*, std::uint32_t> number_of_;
  std::map<std::string, std::uint32_t> resources_;  // by $id
  std::size_t nodes_ = 0;
  std::set<std::uint32_t> checked_;
};

}  // namespace rapt
