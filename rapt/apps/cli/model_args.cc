// SPDX-License-Identifier: Apache-2.0
// open_model makes the device first, since loading needs it. Texts: words, a file (--in) or standard input.
#include "rapt/apps/cli/model_args.h"

#include <algorithm>

#include "rapt/base/clock.h"
#include "rapt/base/text.h"
#include "rapt/io/gzip.h"
#include "rapt/load/adapter.h"
#include "rapt/use/translate.h"

namespace rapt::cli {

CommonArgs common_args(Args& args) {
  CommonArgs c;
  c.threads = static_cast<int>(args.number("threads", 1, 1024).value_or(0));
  c.json = args.flag("json");
  c.quiet = args.flag("quiet");
  if (c.quiet) silence_notes();
  c.verbose = args.flag("verbose");
  return c;
}

void lora_args(Args& args, CommonArgs& common) { common.lora = args.values("lora"); }

void note_threads(const Device& device, const CommonArgs& common) {
  if (device.threads() < common.threads && !common.quiet)
    note(concat("note: ", common.threads, " threads were asked for, the system gave ", device.threads()));
}

OpenModel open_model(const std::string& name, const CommonArgs& common, LoadOptions options) {
  const auto start = Clock::now();
  const std::string path = find_model(name);
  OpenModel m;
  m.device = std::make_unique<Device>(DeviceOptions{.threads = common.threads});
  note_threads(*m.device, common);
  Progress bar("loading", common.quiet);
  options.real = m.device->real;
  options.device = m.device.get();
  options.progress = [&](std::uint64_t done, std::uint64_t of) {
    bar.step(static_cast<double>(done), static_cast<double>(of));
  };
  m.checkpoint = open_checkpoint(path, options);
  for (const std::string& words : common.lora)
    m.checkpoint.adapters.push_back(load_adapter_use(words, m.checkpoint));
  bar.clear();
  m.seconds = seconds_since(start);
  return m;
}

std::vector<std::string> given_texts(std::span<const std::string> words,
                                     const std::optional<std::string>& in) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  if (in && !words.empty()) fail_usage("--in names the texts already; leave the words after the model away");
  std::vector<std::string> texts(words.begin(), words.end());
  if (in && *in != "-") texts = text_lines(read_text_or_gz(*in, kMost));
  else if (in || texts.empty() || (texts.size() == 1 && texts[0] == "-"))
    texts = text_lines(read_stdin(kMost));
  if (texts.empty()) fail_usage("no text: give texts after the model, or lines on standard input");
  return texts;
}

void refuse_texts_for_pictures(const Checkpoint& checkpoint, const char* verb) {
  if (checkpoint.model->recipe.embed.patches)
    fail_usage(verb, ": ", checkpoint.path, " (", checkpoint.family,
               ") reads pictures, not texts: --image FILE");
}

Checkpoint open_text_tower(const std::string& path, const OpenModel& vision) {
  constexpr std::string_view kVision = ":vision";
  const bool named = path.ends_with(kVision);
  return open_checkpoint(named ? path.substr(0, path.size() - kVision.size()) : path,
                         {.device = vision.device.get(), .tower = Tower::text});
}

SpeculateArgs speculate_args(Args& args) {
  SpeculateArgs s;
  const std::optional<std::string> how = args.value("speculate"), draft = args.value("draft");
  if (draft) s.draft = *draft, s.how = Speculate::draft;
  if (!how) return s;
  if (*how == "off") s = {.how = Speculate::off};
  else if (*how == "lookup") s = {};
  else if (*how != "draft") fail_usage("--speculate: '", *how, "' is none of off, lookup, draft");
  else if (!draft) fail_usage("--speculate draft: give the smaller model, --draft MODEL");
  if (draft && *how != "draft") fail_usage("--draft names a model, and --speculate ", *how, " asks none");
  return s;
}

Checkpoint open_draft(const std::string& path, const OpenModel& model, const CommonArgs& common) {
  Progress bar("loading the draft model", common.quiet);
  LoadOptions options{.real = model.device->real, .device = model.device.get()};
  options.progress = [&](std::uint64_t done, std::uint64_t of) {
    bar.step(static_cast<double>(done), static_cast<double>(of));
  };
  return open_checkpoint(path, options);
}

DType cache_type(Args& args, DType unsaid) {
  const std::optional<std::string> name = args.value("cache-type");
  return name ? cache_type_named(*name) : unsaid;
}

DType cache_type_named(const std::string& name) {
  for (DType known : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0})
    if (dtype_named(name) == known) return known;
  fail_usage("--cache-type: keys and values are kept as f32, f16, bf16, q8_0 or q4_0, not as '", name, "'");
}

std::vector<NamedAdapterFile> named_adapters(const std::vector<std::string>& words,
                                             const std::vector<std::string>& models) {
  std::vector<NamedAdapterFile> out;
  std::vector<std::string> taken = models;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
      fail_usage("--lora ", word, ": write NAME=FILE, the name by which clients ask for it");
    NamedAdapterFile one{.model = models[0], .name = word.substr(0, equals), .file = word.substr(equals + 1)};
    const std::size_t colon = one.name.find(':');
    if (colon != std::string::npos) one.model = one.name.substr(0, colon), one.name.erase(0, colon + 1);
    if (colon == std::string::npos && models.size() > 1)
      fail_usage("--lora ", word, ": of which model? Write MODEL:", word, " with one of ", join(models));
    if (std::find(models.begin(), models.end(), one.model) == models.end())
      fail_usage("--lora ", word, ": no model is served as '", one.model, "', but ", join(models));
    if (one.name.empty() || std::find(taken.begin(), taken.end(), one.name) != taken.end())
      fail_usage("--lora ", word, ": '", one.name, "' is taken; give the adapter another name");
    taken.push_back(one.name);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace rapt::cli
