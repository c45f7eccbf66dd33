// SPDX-License-Identifier: Apache-2.0
// Values on their way to a function and back; functions that stay on the passes of an answer.
#include "rapt/apps/python/hooks.h"

#include <algorithm>

#include "rapt/apps/python/arrays.h"
#include "rapt/base/text.h"
#include "rapt/inspect/subject.h"

namespace rapt::python {
namespace {

// The function gets a copy: arrays of it may outlive the pass, whose memory is used again. What it leaves in
// the copy, or returns, is written back.
template <class Real>
void change_value(const nb::callable& f, const Asked& a, const Tapped& t, Dim before) {
  const std::span<Real> values = t.value.as<Real>();
  const auto copy = std::make_shared<std::vector<Real>>(values.begin(), values.end());
  const std::vector<std::int64_t> shape(t.value.size.begin(), t.value.size.begin() + t.value.rank);
  end_if_ending();
  const InPython in;
  const bool placed = t.share < 0 || t.rows != Tapped::Rows::wanted;
  const nb::object got = call_hook(f, array_of(copy, copy->data(), shape), a, t.stack, before - t.position,
                                   placed ? t.value[0] : -1);
  if (got.is_none()) {
    std::copy(copy->begin(), copy->end(), values.begin());
    return;
  }
  nb::ndarray<const Real, nb::c_contig, nb::device::cpu> array;
  if (!nb::try_cast(got, array))
    throw nb::type_error(concat("the function at '", a.name, "' returned ",
                                nb::cast<std::string>(nb::repr(got.type())),
                                "; it returns nothing, or an array of numbers")
                             .c_str());
  std::vector<std::int64_t> given;
  for (std::size_t i = 0; i < array.ndim(); ++i) given.push_back(static_cast<std::int64_t>(array.shape(i)));
  if (given != shape) {
    const auto text = [](const std::vector<std::int64_t>& sizes) {
      std::string out;
      for (const std::int64_t n : sizes) out += concat(out.empty() ? "" : ", ", n);
      return concat("(", out, ")");
    };
    fail_usage("the function at '", a.name, "' returned an array of shape ", text(given),
               "; the value there has ", text(shape));
  }
  std::copy(array.data(), array.data() + values.size(), values.begin());
}

}  // namespace

nb::object call_hook(const nb::callable& f, nb::object x, const Asked& a, Stack stack, Dim before, Dim rows) {
  const AroundPass around;
  return call_python(
      f, nb::make_tuple(std::move(x), a.name, a.point.name, a.point.layer, stack_name(stack), before, rows));
}

void end_if_ending() {
  if (OutOfPython::ending()) throw Cancelled();
}

Dim rows_before(const Model& model, const Point& p) {
  return p.stack == last_stack(model) && !p.shape.empty() && p.shape[0] == Point::kRows
             ? model.recipe.embed.sink_tokens
             : 0;
}

Functions functions_of(const Model& model, const NamedFunctions& given) {
  Functions out;
  for (const auto& [name, f] : given)
    for (Asked& a : ask_points(model, {&name, 1})) {
      out.asked.push_back(std::move(a));
      out.calls.push_back(f);
    }
  return out;
}

std::function<void()> install(Taps& taps, const Model& model, const Functions& functions) {
  return edit_points(taps, functions.asked, [&model, &functions](std::size_t i, const Tapped& t) {
    const Asked& a = functions.asked[i];
    const Dim before = rows_before(model, a.point);
    if (t.value.dtype == DType::f64) change_value<double>(functions.calls[i], a, t, before);
    else change_value<float>(functions.calls[i], a, t, before);
  });
}

RequestHooks::RequestHooks(const ModelPtr& model, const NamedFunctions& given)
    : functions_(functions_of(model->net(), given)),
      edited_(*model, Passes::many),
      came_(install(edited_.taps(), model->net(), functions_)) {}

void RequestHooks::check() const {
  edited_.check();
  came_();
}

std::shared_ptr<RequestHooks> request_hooks(const ModelPtr& model, const NamedFunctions& given) {
  if (given.empty()) return nullptr;
  return {new RequestHooks(model, given), [](RequestHooks* p) {
            if (OutOfPython::ending()) return;  // the process ends
            const InPython in;
            delete p;
          }};
}

}  // namespace rapt::python
