// SPDX-License-Identifier: Apache-2.0
// The trace-event format: complete events ("X"), microseconds.
#include "rapt/use/timeline.h"

#include <chrono>

#include "rapt/base/error.h"
#include "rapt/base/json.h"

namespace rapt {

double Timeline::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Timeline::add(Lane lane, std::string name, double begin) {
  const double end = now();
  const std::lock_guard hold(lock_);
  spans_.push_back({lane, std::move(name), begin, end});
}

std::vector<Timeline::Span> Timeline::spans() const {
  const std::lock_guard hold(lock_);
  return spans_;
}

std::string Timeline::json(int rank) const {
  Json::Array events;
  const auto named = [&](const char* what, int lane, const std::string& name) {
    Json args = Json::Object{}, event = Json::Object{};
    args.set("name", name);
    event.set("name", what);
    event.set("ph", "M");
    event.set("pid", rank);
    event.set("tid", lane);
    event.set("args", args);
    events.push_back(event);
  };
  named("process_name", 0, concat("rank ", rank));
  named("thread_name", 0, "compute");
  named("thread_name", 1, "exchange");
  for (const Span& s : spans()) {
    Json event = Json::Object{};
    event.set("name", s.name);
    event.set("ph", "X");
    event.set("pid", rank);
    event.set("tid", s.lane == Lane::compute ? 0 : 1);
    event.set("ts", 1e6 * s.begin);
    event.set("dur", 1e6 * (s.end - s.begin));
    events.push_back(event);
  }
  Json out = Json::Object{};
  out.set("traceEvents", events);
  return out.dump(0) + "\n";
}

}  // namespace rapt
