// SPDX-License-Identifier: Apache-2.0
// Parts of a layer as blocks of a diagram. The whole: show_picture.cc.
#pragma once
#include <string>
#include <vector>

#include "rapt/recipe/recipe.h"
#include "rapt/report/diagram.h"
#include "rapt/report/text.h"

namespace rapt {

// Says things of the dictionary's part "show" in one language.
class ShowWords {
 public:
  explicit ShowWords(Language language) : language_(language) {}
  template <class... Values>
  std::string operator()(std::string_view key, Values&&... values) const {
    return say(concat("show.", key), std::forward<Values>(values)...).in(language_);
  }

 private:
  Language language_;
};

Block norm_block(const ShowWords& words, const NormRecipe& norm, std::string more = "");
Block part_block(const ShowWords& words, const PartRecipe& part, Dim width);
// Query heads over their key and value heads; `reads`: where Q, and where K and V come from.
struct HeadsPanel {
  std::string title, q_from, kv_from;
};
Block heads_panel(const ShowWords& words, const AttnRecipe& attention, const HeadsPanel& panel);
Block heads_panel(const ShowWords& words, const DeltaRecipe& delta, const std::string& title);
std::string act_word(Act act);                       // "SiLU"
std::string size_text(Dim from, Dim to, bool bias);  // "768 → 3,072 + b"

}  // namespace rapt
