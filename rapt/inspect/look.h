// SPDX-License-Identifier: Apache-2.0
// What the views share: one pass over one text with somebody watching, and the head applied to rows of the
// residual stream a few at a time, so that no [T,V] is ever stored.
//
// Rows of a view: 0 is what enters the stack (the embedding), row l + 1 the residual stream after layer l.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/nn/model.h"

namespace rapt {

// Tokens of a text; of a picture the numbers of its rows, and the picture.
struct TextIds : std::vector<std::int32_t> {
  TextIds() = default;
  TextIds(std::vector<std::int32_t> ids) : std::vector<std::int32_t>(std::move(ids)) {}
  TextIds(std::initializer_list<std::int32_t> ids) : std::vector<std::int32_t>(ids) {}
  std::optional<Picture> picture = {};
};
// The same, belonging to somebody else: any list of ids is one.
class Ids : public std::span<const std::int32_t> {
  using Span = std::span<const std::int32_t>;

 public:
  Ids() = default;
  Ids(const TextIds& ids) : Span(ids), picture(ids.picture ? &*ids.picture : nullptr) {}
  template <class List>
    requires std::convertible_to<List&&, Span> && (!std::derived_from<std::remove_cvref_t<List>, TextIds>) &&
             (!std::same_as<std::remove_cvref_t<List>, Ids>)
  Ids(List&& ids) : Span(ids) {}
  const Picture* picture = nullptr;
};
// One sequence of a pass: these tokens, or this picture.
Batch batch_of(const Model& model, Ids ids);

std::string row_name(int row);              // "embed", "0", "1", …
Stack last_stack(const Model& model);       // the one that the head reads
const LayerStack& stack_of(const Model& model, Stack stack);
// The rows of a tapped value that belong to the text: without the learned sink tokens before them.
Tensor text_rows(const Model& model, Stack stack, const Tensor& value);

// The part that shows a value, and how its layer is written: "5", or "5.2" for the second of its kind there.
const Part& part_of(const Model& model, const Tapped& t);
int part_number(const Part& part);                // 0: the only one of its kind in its layer; else 1, 2, …
std::string layer_label(int layer, int number);  // number: as above

// One pass over one text. The head is applied to the last row only.
void look(Device& device, const Model& model, Taps& taps, Ids ids, Ids source = {});

// Hands out rows 0 … layers of every stack, [tokens of the text, C] each. Fails where there is no residual
// stream (recurrent cells).
using SeeRow = std::function<void(Stack stack, int row, const Tensor& x)>;
void watch_residual(Taps& taps, const Model& model, const SeeRow& see);

// Rows of the residual stream x [n,C] through the final norm and the head, at most kHeadRows at a time:
// see(first row, logits [m,V]). What forward() does with its last rows, bit for bit.
constexpr Dim kHeadRows = 32;
void through_head(Device& device, const Model& model, const Tensor& x,
                  const std::function<void(Dim first, const Tensor& logits)>& see);
// Fails with the reason where the head gives no tokens.
void need_vocabulary(const Model& model, std::string_view view);

// What each row should say: the next token (-1 behind the last), in an encoder the token itself.
std::vector<std::int32_t> truth_of(const Model& model, Ids ids);
// -log p of it, for every row that has one.
std::vector<double> token_losses(Device& device, const Model& model, Taps& taps, Ids ids, Ids source = {});

// f(elements of t), as what they are.
template <class F>
void with_values(const Tensor& t, const F& f) {
  if (t.dtype == DType::f64) f(t.as<const double>());
  else f(t.as<const float>());
}

}  // namespace rapt
