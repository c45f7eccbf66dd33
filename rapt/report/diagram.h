// SPDX-License-Identifier: Apache-2.0
// Diagrams of boxes and lines as SVG, in the look of the other pictures. A diagram is put together from
// blocks, which know their size before anything is drawn, so that nothing lies over anything else.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rapt {

// The width of a line of text, at most: that of a wide font (DejaVu Sans), which readers may have.
double text_pixels(std::string_view text, double size);

class Diagram {
 public:
  struct Spot {
    double x, y;
  };
  enum class Anchor { start, middle, end };
  // Looks: matrix, norm, position, gate, core, plain, frame, part (docs/using.md names what they stand for).
  void box(double x, double y, double width, double height, std::string_view look, double radius = 4);
  void text(double x, double y, std::string_view text, double size = 12, std::string_view look = "ink",
            Anchor anchor = Anchor::start, bool bold = false);
  // The same with h_t, h_{t-1} and e^g as subscripts and a superscript.
  void formula(double x, double y, std::string_view text, double size, std::string_view look, Anchor anchor);
  void wire(const std::vector<Spot>& way, bool arrow = false, bool dashed = false);
  void circle(double x, double y, std::string_view sign);  // an operation on the flow: +, ×
  // Places that something outside leads to; whoever draws that reads them.
  std::vector<Spot> entries;

  double width() const { return width_; }
  double height() const { return height_; }
  std::string svg(std::string_view title) const;

 private:
  void reach(double x, double y);
  void put(double x, double y, std::string_view text, const std::string& markup, double size,
           std::string_view look, Anchor anchor, bool bold);
  double width_ = 0, height_ = 0;
  std::string out_;
};

// A piece of a diagram: the flow enters at the top, `port` from the left, and leaves at the bottom at `exit`.
struct Block {
  double width = 0, height = 0, port = 0, exit = 0;
  std::function<void(Diagram&, double x, double y)> draw = {};
  bool tip = true;  // the line that comes to it ends in an arrow; false: it goes on inside
};

// Lines of text in a box: the first one large, those below soft.
Block box_block(std::vector<std::string> lines, std::string look, double least_width = 0);
Block words_block(std::string text);
// The flow goes through, nothing stands there.
Block gap_block(double height);
// At the given distance from the left (`from_right`: from the right), where the block is wide enough.
Block moved_port(Block block, double port, bool from_right = false);
// One below the other, arrows between them.
Block column(std::vector<Block> blocks, double gap = 16);
// Side by side, all as wide as the widest, then `below` over their whole width, which all lead to. The flow
// enters the lanes from `first` on; those before it are entered from outside (Diagram::entries).
Block fan(std::vector<Block> lanes, const std::vector<std::string>& below, const std::string& look,
          std::size_t first = 0);
// Side by side, each reading the flow, their results joined by an operation.
Block beside(std::vector<Block> lanes, const std::string& joined);
// A frame around it with a title, which keeps clear of the flow.
Block framed(const std::string& title, Block inner, const std::string& look);

}  // namespace rapt
