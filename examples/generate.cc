// SPDX-License-Identifier: Apache-2.0
// Opens a model (GGUF file, Hugging Face folder, llama2.c file) and continues a text:  example_generate MODEL "Once upon a time"
#include <iostream>

#include "rapt/use/generate.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::cout << "usage: example_generate MODEL PROMPT\n", 0;
  try {
    rapt::Device device;                                                            // all threads, the best instruction set
    const rapt::Checkpoint model = rapt::open_checkpoint(argv[1], {.device = &device});
    rapt::Session session(device, model, {});                                       // keeps what was read: the next turn is cheap
    rapt::GenerateOptions options;
    options.max_tokens = 100;
    options.sampler.temperature = 0;                                                // always the most probable token
    const auto prompt = model.tokenizer->frame(model.tokenizer->encode(argv[2]));
    session.generate(prompt, options, [](int, std::int32_t, std::string_view text) {
      std::cout << text << std::flush;
      return true;                                                                  // false would stop the answer
    });
    std::cout << "\n" << session.times().decoded_tokens / session.times().decode_seconds << " tokens/s\n";
  } catch (const rapt::Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
}
