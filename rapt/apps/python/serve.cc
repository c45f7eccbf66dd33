// SPDX-License-Identifier: Apache-2.0
// The HTTP server in a thread of its own: models that are open already, without copies of their weights. What
// `rapt serve` does for a process as a whole (signals, sandbox) is not done here.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "rapt/apps/python/model.h"
#include "rapt/apps/server/service.h"
#include "rapt/base/memory.h"

namespace rapt::python {
namespace {

template <class T>
T given(const nb::dict& options, const char* name) {
  return nb::cast<T>(options[name]);
}

class Serving {
 public:
  // `log`: a callable that hears a line of JSON for every request, or None.
  Serving(const std::vector<std::pair<std::string, ModelPtr>>& models, const nb::dict& options,
          nb::object log)
      : log_(std::move(log)) {
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
    service.version = concat("rapt ", RAPT_VERSION);
    const std::optional<DType> cache = dtype_named(given<std::string>(options, "cache"));
    const DType known[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};
    if (!cache || std::find(std::begin(known), std::end(known), *cache) == std::end(known))
      fail_usage("cache: keys and values are kept as f32, f16, bf16, q8_0 or q4_0, not as '",
                 given<std::string>(options, "cache"), "'");
    const Dim context = given<Dim>(options, "context"), parallel = given<Dim>(options, "parallel"),
              pool = given<Dim>(options, "pool");
    if (!log_.is_none())
      service.log = [this](const std::string& line) {
        const InPython in;
        try {
          call_python(log_, nb::make_tuple(line));
        } catch (nb::python_error& e) {
          e.discard_as_unraisable("rapt.serve: log");
        }
      };
    try {
      without_gil([&] { start(models, *cache, context, parallel, pool, host, port, service); });
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
  void start(const std::vector<std::pair<std::string, ModelPtr>>& models, DType cache, Dim context,
             Dim parallel, Dim pool, const std::string& host, int port,
             const server::ServiceOptions& service) {
    std::vector<std::unique_ptr<server::ServedModel>> served;
    const std::uint64_t free = available_memory();
    for (const auto& [name, model] : models) {
      if (model->edits) fail_usage("serve: edits belong to requests there; serve the model without them");
      server::ModelOptions o;
      o.path = model->checkpoint->path;
      o.name = name;
      o.weights = model->checkpoint;
      o.cache = cache;
      o.context = context;
      o.rows = parallel;
      o.budget = pool > 0
                     ? static_cast<std::size_t>(pool) / models.size()
                     : static_cast<std::size_t>(free > 0 ? free / 4 / models.size() : std::uint64_t{1} << 30);
      served.push_back(server::serve_model(model->on(), o, service.version));
      devices_.push_back(model->device);
    }
    service_ = std::make_unique<server::Service>(std::move(served), service);
    server_ = std::make_unique<http::Server>(*service_, http::Limits{});
    const int got = server_->listen(host, port);
    url_ = concat("http://", host.find(':') == std::string::npos ? host : concat("[", host, "]"), ":", got);
    service_->start(*server_);
    thread_ = std::thread([this] { server_->run(); });
  }

  nb::object log_;
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
      .def(nb::init<const std::vector<std::pair<std::string, ModelPtr>>&, const nb::dict&, nb::object>(),
           "models"_a, "options"_a, "log"_a.none())
      .def_prop_ro("url", &Serving::url)
      .def_prop_ro("open", &Serving::open)
      .def("close", &Serving::close);
}

}  // namespace rapt::python
