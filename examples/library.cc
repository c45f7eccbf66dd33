// SPDX-License-Identifier: Apache-2.0
// The example of docs/library.md: trains a small model on a text, lets it write, and looks inside.
//   example_library [TEXT.txt FOLDER]
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "rapt/rapt.h"

namespace {

// docs: train
rapt::Model train(const std::string& text, const std::string& folder) {
  rapt::TrainOptions options{.data = text, .folder = folder, .steps = 60};
  options.vocabulary = rapt::Vocabulary::characters;
  options.batch = 8, options.length = 32;
  options.recipe = {"width=32", "layers=2", "heads=2", "context=64"};  // as rapt train --set
  options.settings = {"optimizer.rate=1e-2", "save_every=20"};  // as rapt train --set train.
  rapt::Training training("gpt-char", options);
  const bool finished = training.run({.step = [](const rapt::TrainStep& step) {
    if (step.step % 20 == 0) std::cout << "step " << step.step << ": loss " << step.loss << "\n";
    return true;  // false saves the state and stops; the same program goes on from there
  }});
  std::cout << (finished ? "finished" : "stopped") << ", held out: loss " << training.judge().loss << "\n";
  return training.model();
}
// docs: end

// docs: run
void run(const std::string& name) {
  const rapt::Model model = rapt::Model::open(name);
  rapt::Session session(model);
  const rapt::GenerateOptions options{.max_tokens = 40, .sampling = {.temperature = 0}};
  const rapt::Answer answer = session.generate("the cat", options, [](const rapt::Piece& piece) {
    std::cout << piece.text << std::flush;  // text as it comes
    return true;  // false stops the answer
  });
  const std::string text = "the cat sat on the mat.\na dog saw the cat and ran.\n";
  const rapt::Perplexity perplexity = model.perplexity(text, {.window = 16});
  std::cout << "\n" << answer.tokens.size() << " tokens; perplexity of a text: " << perplexity.value << "\n";
}
// docs: end

// docs: look
void look(const rapt::Model& model) {
  const std::vector<rapt::Token> tokens = model.tokenize("the cat sat on the mat.");
  for (const rapt::HeadInfo& head : rapt::heads(model, tokens))
    std::cout << "L" << head.place.layer << "H" << head.place.head << " " << head.label << "\n";
  const rapt::Tensor map = rapt::attention(model, {.layer = 1, .head = 0}, tokens);  // [rows, keys]
  std::cout << "the last token gives the first " << map.row(map.rows() - 1)[0] << "\n";
  // Tensors of a pass by name, here with one head switched off; rapt::points(model) lists names.
  const rapt::LookOptions without_a_head{.edits = {"L0H1:zero"}};
  for (const rapt::Tensor& t : rapt::capture(model, {"resid_post.*", "logits"}, tokens, without_a_head))
    std::cout << t.name << " [" << t.rows() << "," << t.columns() << "]\n";
  const rapt::Lens lens = rapt::lens(model, tokens);  // after each layer …
  for (int row = 0; row < lens.rows; ++row) {  // … it would go on with
    std::cout << "'" << model.token_text(lens.best(row, lens.tokens - 1)) << "' ";
  }
  std::cout << "\n";
}
// docs: end

// Without arguments: a text of our own in a folder that goes away again.
struct Place {
  const std::string name = "rapt-library-" + std::to_string(std::random_device{}());
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / name;
  Place() {
    std::filesystem::create_directories(folder);
    std::ofstream out(folder / "text.txt");
    for (int i = 0; i < 400; ++i)
      out << (i % 3 ? "a dog saw the cat and ran.\n" : "the cat sat on the mat.\n");
  }
  ~Place() { std::filesystem::remove_all(folder); }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Place place;
    const std::string text = argc > 2 ? argv[1] : (place.folder / "text.txt").string();
    const std::string folder = argc > 2 ? argv[2] : (place.folder / "out").string();
    look(train(text, folder));
    run(folder);
  } catch (const rapt::Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
}
