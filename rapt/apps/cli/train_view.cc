// SPDX-License-Identifier: Apache-2.0
// Losses and speeds are smoothed (0.95).
#include "rapt/apps/cli/train_view.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/clock.h"
#include "rapt/base/terminal.h"
#include "rapt/base/text.h"
#include "rapt/base/text_width.h"

namespace rapt::cli {
namespace {

std::string time_text(double seconds) {
  const auto s = static_cast<Dim>(std::llround(seconds));
  if (s < 60) return concat(s, " s");
  if (s < 3600) return concat(s / 60, " min ", s % 60, " s");
  return concat(s / 3600, " h ", s / 60 % 60, " min");
}

std::string brief(double x) {  // 0.00123 -> 1.23e-3
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

std::string little_curve(const std::vector<double>& values, std::size_t width) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.size() < 2) return "";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::size_t n = std::min(width, values.size());
  std::string out;
  for (std::size_t i = 0; i < n; ++i) {
    const double v = values[i * (values.size() - 1) / (n - 1 > 0 ? n - 1 : 1)];
    out += kBars[*high > *low
                     ? std::min<std::size_t>(7, static_cast<std::size_t>((v - *low) / (*high - *low) * 8))
                     : 0];
  }
  return out;
}

// Printable, one line, at most `most` columns.
std::string one_line(const std::string& text, Dim most) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = read_utf8(text, i);
    if (c.code == '\n') out += " ⏎ ";
    else if (c.valid && c.code >= 0x20 && !(c.code >= 0x7F && c.code < 0xA0)) out += text.substr(i, c.length);
    i += c.length;
  }
  return cut_text(out, most);
}

// Parts beside each other, as many as fit into a line.
void flow(std::vector<std::string>& lines, const std::vector<std::string>& parts, Dim width) {
  std::string line;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!line.empty() && text_width(line) + 3 + text_width(part) > width)
      lines.push_back(std::exchange(line, ""));
    line += (line.empty() ? "  " : "   ") + part;
  }
  lines.push_back(line);
}

}  // namespace

TrainView::TrainView(Dim steps, bool quiet)
    : steps_(steps), quiet_(quiet), panel_(has_escapes(STDERR_FILENO)) {}

void TrainView::step(const StepReport& r) {
  ++seen_;
  last_ = r;
  if (!r.health.empty()) health_ = r.health;
  if (r.fate != StepReport::Fate::done) {
    ++skipped_;
    return;
  }
  const bool first = rate_ == 0;
  smooth_ = first ? r.loss : 0.95 * smooth_ + 0.05 * r.loss;
  const double now = static_cast<double>(r.tokens) / std::max(r.seconds, 1e-9);
  rate_ = first ? now : 0.95 * rate_ + 0.05 * now;
  curve_.push_back(smooth_);
  if (quiet_) return;
  if (panel_) {
    if (seconds_since(drawn_) >= 0.2) draw();
    return;
  }
  const Dim every = std::max<Dim>(1, steps_ / 50);  // plain lines: fifty in all, and the last
  if (r.step / every == printed_ / every && r.step != steps_ && printed_ > 0) return;
  printed_ = r.step;
  const double seconds = seconds_since(begin_);
  const double left = seconds / static_cast<double>(seen_) * static_cast<double>(steps_ - r.step);
  std::fprintf(stderr, "step %s/%s  loss %.4f  rate %s  norm %s  %s tokens/s  %s left\n",
               with_commas(r.step).c_str(), with_commas(steps_).c_str(), smooth_, brief(r.rate).c_str(),
               brief(r.norm).c_str(), with_commas(static_cast<Dim>(rate_)).c_str(), time_text(left).c_str());
}

void TrainView::draw() {
  const Dim width = std::max<Dim>(16, terminal_size(STDERR_FILENO).columns) - 1;  // a full row might wrap
  drawn_ = Clock::now();
  const double seconds = std::chrono::duration<double>(drawn_ - begin_).count();
  const double left =
      seconds / static_cast<double>(std::max<Dim>(1, seen_)) * static_cast<double>(steps_ - last_.step);
  const auto cells = static_cast<Dim>(std::clamp<Dim>(width / 3, 8, 30));
  std::string bar;
  for (Dim i = 0; i < cells; ++i) bar += i < cells * last_.step / std::max<Dim>(1, steps_) ? "█" : "·";
  std::vector<std::string> lines;
  flow(lines,
       {concat("[", bar, "]"), concat("step ", with_commas(last_.step), " of ", with_commas(steps_)),
        concat(with_commas(static_cast<Dim>(rate_)), " tokens/s"), time_text(left) + " left"},
       width);
  flow(
      lines,
      {"loss " + fixed(smooth_, 4), judged_.empty() ? "" : "held out " + judged_, "rate " + brief(last_.rate),
       "norm " + brief(last_.norm), skipped_ > 0 ? concat("skipped ", skipped_) : ""},
      width);
  lines.push_back("  " + little_curve(curve_, static_cast<std::size_t>(std::min<Dim>(70, width - 4))));
  if (!health_.empty()) {
    std::string sinks = "sink", entropies = "entropy";
    double logit = 0, massive = 0;
    for (const LayerHealth& h : health_) {
      massive = std::max(massive, h.massive);
      if (!h.attends) continue;
      sinks += " " + fixed(h.sink, 2);
      entropies += " " + fixed(h.entropy, 1);
      logit = std::max(logit, h.max_logit);
    }
    flow(lines,
         {"attention by layer:", sinks, entropies, "max logit " + brief(logit), "massive " + brief(massive)},
         width);
    std::string busiest = "busiest", balance = "balance";
    for (const LayerHealth& h : health_)
      if (h.balance >= 0) busiest += " " + fixed(h.load_largest, 1), balance += " " + fixed(h.balance, 2);
    if (balance.size() > 7) flow(lines, {"experts by layer:", busiest, balance}, width);
    std::string stays = "stays";
    for (const LayerHealth& h : health_)
      if (h.state_stays >= 0) stays += " " + fixed(h.state_stays, 3);
    if (stays.size() > 5) flow(lines, {"states by layer:", stays}, width);
  }
  if (!sample_.empty()) lines.push_back("  " + one_line(sample_, width - 2));
  clear();
  std::string text;
  for (const std::string& line : lines) {
    const std::string fits = cut_text(line, width);
    widths_.push_back(text_width(fits));
    text += fits + "\033[K\n";
  }
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void TrainView::clear() {
  if (widths_.empty()) return;
  const Dim width = std::max<Dim>(1, terminal_size(STDERR_FILENO).columns);
  Dim rows = 0;  // of a window that became narrower: lines take more of them
  for (Dim w : widths_) rows += std::max<Dim>(1, (w + width - 1) / width);
  std::fprintf(stderr, "\033[%dA\r\033[J", static_cast<int>(rows));
  widths_.clear();
}

void TrainView::judged(Dim step, const Judgement& j) {
  judged_ = concat(fixed(j.loss, 4), " (", with_commas(step), ")");
  if (quiet_) return;
  if (panel_) return draw();
  std::fprintf(stderr, "held out after %s steps: loss %.4f, accuracy %.2f %% (%s targets)\n",
               with_commas(step).c_str(), j.loss, 100 * j.accuracy, with_commas(j.counted).c_str());
}

void TrainView::sample(const std::string& text) {
  sample_ = text;
  if (!quiet_ && !panel_ && !text.empty()) std::fprintf(stderr, "sample: %s\n", one_line(text, 160).c_str());
}

void TrainView::say(const std::string& text) {
  clear();
  if (!quiet_) note(text);
}

}  // namespace rapt::cli
