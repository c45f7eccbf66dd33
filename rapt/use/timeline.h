// SPDX-License-Identifier: Apache-2.0
// When what was done in a step: spans of two lanes (what computes, what moves bytes), as a file that
// chrome://tracing and ui.perfetto.dev draw.
#pragma once
#include <mutex>
#include <string>
#include <vector>

namespace rapt {

class Timeline {
 public:
  enum class Lane { compute, exchange };
  struct Span {
    Lane lane;
    std::string name;
    double begin, end;  // seconds of the machine's steady clock
  };
  static double now();
  void add(Lane lane, std::string name, double begin);  // which ends now; any thread
  std::vector<Span> spans() const;
  // {"traceEvents": …}; a process for each rank.
  std::string json(int rank) const;

 private:
  mutable std::mutex lock_;
  std::vector<Span> spans_;
};

// A span from here to the end of the scope; nothing without a timeline.
class TimedScope {
 public:
  TimedScope(Timeline* into, Timeline::Lane lane, std::string name)
      : into_(into), lane_(lane), name_(into ? std::move(name) : ""), begin_(into ? Timeline::now() : 0) {}
  ~TimedScope() {
    if (into_) into_->add(lane_, std::move(name_), begin_);
  }
  TimedScope(const TimedScope&) = delete;
  TimedScope& operator=(const TimedScope&) = delete;

 private:
  Timeline* into_;
  Timeline::Lane lane_;
  std::string name_;
  double begin_;
};

}  // namespace rapt
