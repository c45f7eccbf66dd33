// SPDX-License-Identifier: Apache-2.0
// Opens a model (GGUF file, Hugging Face folder, llama2.c file) and continues a text:
//   example_generate MODEL "Once upon a time"
#include <iostream>

#include "rapt/rapt.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::cout << "usage: example_generate MODEL PROMPT\n", 0;
  try {
    rapt::Session session(rapt::Model::open(argv[1]));  // keeps what was read: the next turn is cheap
    rapt::GenerateOptions options{.max_tokens = 100};
    options.sampling.temperature = 0;  // always the most probable token
    session.generate(argv[2], options, [](const rapt::Piece& piece) {
      std::cout << piece.text << std::flush;
      return true;  // false would stop the answer
    });
    const rapt::Times times = session.times();
    std::cout << "\n" << static_cast<double>(times.answer_tokens) / times.answer_seconds << " tokens/s\n";
  } catch (const rapt::Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return e.is_usage() ? 2 : 1;
  }
}
