// SPDX-License-Identifier: Apache-2.0
// The module rapt._rapt: errors, versions, the command line.
#include <filesystem>
#include <new>

#include "rapt/apps/python/wait.h"
#include "rapt/device/device.h"
#include "rapt/run/run.h"

int rapt_main(int argc, char** argv);

namespace rapt::python {
namespace {

// Python's classes of our errors (python/rapt/_errors.py); kept for the life of the process.
PyObject* error_class(const char* name) {
  return nb::object(nb::module_::import_("rapt._errors").attr(name)).release().ptr();
}

void translate(const std::exception_ptr& p, void*) {
  static PyObject* const failure = error_class("Error");
  static PyObject* const usage = error_class("UsageError");
  static PyObject* const name = error_class("UnknownName");
  static PyObject* const missing = error_class("NotFound");
  static PyObject* const cancelled = error_class("Cancelled");
  try {
    std::rethrow_exception(p);
  } catch (const Cancelled& e) {
    PyErr_SetString(cancelled, e.what());
  } catch (const Error& e) {
    using Kind = Error::Kind;
    PyObject* const type = e.kind() == Kind::usage     ? usage
                           : e.kind() == Kind::name    ? name
                           : e.kind() == Kind::missing ? missing
                                                       : failure;
    PyErr_SetString(type, e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    PyErr_SetString(failure, concat(e.path1().string(), ": ", e.code().message()).c_str());
  }
}

int main_of(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const OutOfPython out(on_main_thread());
  return rapt_main(static_cast<int>(words.size()), argv.data());
}

}  // namespace

NB_MODULE(_rapt, m) {
  begin_anew_in_children();
  nb::set_leak_warnings(false);  // what lives when the interpreter ends is nobody's fault
  nb::register_exception_translator(translate);
  m.attr("version") = RAPT_VERSION;
  m.def("main", &main_of, "argv"_a);
  m.def("instruction_sets", &available_isas);
  add_model(m);
  add_generate(m);
  add_tokenizer(m);
  add_serve(m);
  add_inspect(m);
  add_recipe(m);
  add_train(m);
  add_lab(m);
}

}  // namespace rapt::python
