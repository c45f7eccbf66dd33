// SPDX-License-Identifier: Apache-2.0
// The HTTP server in a thread of its own: models that are open already, without copies of their weights. What
// `rapt serve` does for a process as a whole (signals, sandbox) is not done here.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <tuple>

#include "rapt/apps/python/model.h"
#include "rapt/apps/server/service.h"
#include "rapt/base/memory.h"

namespace rapt::python {
namespace {

template <class T>
T given(const nb::dict& options, const char* name) {
  try {
    return nb::cast<T>(options[name]);
  } catch (const nb::cast_error&) {
    fail_usage(name, ": ", nb::cast<std::string>(nb::repr(options[name])), " cannot be meant");
  }
}

class Serving {
 public:
  // `log`: a callable that hears a line of JSON for every request, or None; `warn` hears what whoever runs it
  // should know.
  Serving(const std::vector<std::pair<std::string, ModelPtr>>& models, const nb::dict& options,
          nb::object log, nb::object warn)
      : log_(std::move(log)), warn_(std::move(warn)) {
    const std::string host = given<std::string>(options, "host");
    const int port = given<int>(options, "port");
    if (port < 0 || port > 65535) fail_usage("port: ", port, "; a number from 0 (any) to 65535");
    server::ServiceOptions service;
    service.access.keys = given<std::vector<std::string>>(options, "keys");
    service.access.hosts = given<std::vector<std::string>>(options, "allow_hosts");
    service.access.origins = given<std::vector<std::string>>(options, "allow_origins");
    const bool local = server::is_loopback(
        server::host_name(host.find(':') == std::string::npos ? host : concat("[", host, "]")));
    if (!local && service.access.keys.empty() && !given<bool>(options, "insecure"))
      fail_usage(
          "host ", host,
          ": can be reached from other machines, and there is no key: everybody there could use it. Give "
          "key=, or insecure=True where that is meant");
    for (const std::string& key : service.access.keys)
      if (key.size() < 8) fail_usage("key: a key has at least 8 characters");
    service.access.reachable = !local;
    service.page = given<bool>(options, "page");
    service.workshop.on = given<bool>(options, "lab");
    service.workshop.folder = given<std::string>(options, "lab_dir");
    if (!service.workshop.folder.empty()) {
      std::error_code error;
      std::filesystem::create_directories(service.workshop.folder, error);
      if (error) fail(service.workshop.folder, ": the folder cannot be made: ", error.message());
    }
    service.replay = given<bool>(options, "replay");
    service.replay_log = given<std::string>(options, "replay_log");
    service.version = concat("rapt ", RAPT_VERSION);
    const std::optional<DType> cache = dtype_named(given<std::string>(options, "cache"));
    const DType known[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};
    if (!cache || std::find(std::begin(known), std::end(known), *cache) == std::end(known))
      fail_usage("cache: keys and values are kept as f32, f16, bf16, q8_0 or q4_0, not as '",
                 given<std::string>(options, "cache"), "'");
    const Dim pool = given<Dim>(options, "pool");
    server::ModelOptions each;
    each.cache = *cache;
    each.context = given<Dim>(options, "context");
    each.rows = given<Dim>(options, "parallel");
    each.chat_template = given<std::string>(options, "chat_template");
    each.draft = given<std::string>(options, "draft");
    each.speculate = given<std::string>(options, "speculate") == "off" ? Speculate::off
                     : each.draft.empty()                              ? Speculate::lookup
                                                                       : Speculate::draft;
    if (!each.draft.empty()) each.draft = find_model(each.draft);
    const auto lora = given<std::vector<std::tuple<std::string, std::string, std::string>>>(options, "lora");
    const auto tells = [](const nb::object& to) {
      return [&to](const std::string& line) {
        const InPython in;
        try {
          call_python(to, nb::make_tuple(line));
        } catch (nb::python_error& e) {
          e.discard_as_unraisable("rapt.serve: log");
        }
      };
    };
    if (!log_.is_none()) service.log = tells(log_);
    service.warn = tells(warn_);
    try {
      without_gil([&] { start(models, each, lora, pool, host, port, service); });
    } catch (...) {
      close();
      throw;
    }
  }
  ~Serving() { close(); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  const std::string& url() const { return url_; }
  bool open() const { return thread_.joinable(); }

  // What runs is ended.
  void close() {
    if (!thread_.joinable()) return;
    if (process_ != getpid()) {  // a child of fork() has none of the threads: nobody to wait for
      thread_.detach();
      (void)server_.release();
      (void)service_.release();
      return;
    }
    const OutOfPython out(on_main_thread());
    service_->drain();
    service_->drain();
    thread_.join();
    service_->stop();
    server_.reset();
    service_.reset();
  }

 private:
  // `lora`: (name of its model, its own, file)
  void start(const std::vector<std::pair<std::string, ModelPtr>>& models, server::ModelOptions o,
             const std::vector<std::tuple<std::string, std::string, std::string>>& lora, Dim pool,
             const std::string& host, int port, const server::ServiceOptions& service) {
    std::vector<std::unique_ptr<server::ServedModel>> served;
    const std::uint64_t free = available_memory();
    for (const auto& [name, model] : models) {
      if (model->edits) fail_usage("serve: edits belong to requests there; serve the model without them");
      if (!model->checkpoint->adapters.empty())
        fail_usage(
            "serve: adapters are served under names of their own there, serve(…, lora={name: path}); "
            "load the model without lora=");
      o.path = model->checkpoint->path;
      o.name = name;
      o.weights = model->checkpoint;
      o.budget = pool > 0
                     ? static_cast<std::size_t>(pool) / models.size()
                     : static_cast<std::size_t>(free > 0 ? free / 4 / models.size() : std::uint64_t{1} << 30);
      served.push_back(server::serve_model(model->on(), o, service.version));
      devices_.push_back(model->device);
      for (const auto& [of, called, file] : lora)
        if (of == served.back()->name) server::add_adapter(*served.back(), called, file);
    }
    service_ = std::make_unique<server::Service>(std::move(served), service);
    server_ = std::make_unique<http::Server>(*service_, http::Limits{});
    const int got = server_->listen(host, port);
    url_ = concat("http://", host.find(':') == std::string::npos ? host : concat("[", host, "]"), ":", got);
    service_->start(*server_);
    thread_ = std::thread([this] { server_->run(); });
  }

  nb::object log_, warn_;
  std::vector<DevicePtr> devices_;
  std::unique_ptr<server::Service> service_;
  std::unique_ptr<http::Server> server_;
  std::string url_;
  std::thread thread_;
  const pid_t process_ = getpid();
};

}  // namespace

void add_serve(nb::module_& m) {
  nb::class_<Serving>(m, "Serving")
      .def(nb::init<const std::vector<std::pair<std::string, ModelPtr>>&, const nb::dict&, nb::object,
                    nb::object>(),
           "models"_a, "options"_a, "log"_a.none(), "warn"_a)
      .def_prop_ro("url", &Serving::url)
      .def_prop_ro("open", &Serving::open)
      .def("close", &Serving::close);
}

}  // namespace rapt::python
