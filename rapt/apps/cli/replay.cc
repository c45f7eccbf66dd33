// SPDX-License-Identifier: Apache-2.0
// rapt replay: every answer of a log that `rapt serve --replay-log` wrote, given again and compared.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "rapt/apps/cli/model_args.h"
#include "rapt/apps/server/replay_store.h"
#include "rapt/apps/server/served_model.h"
#include "rapt/base/memory.h"
#include "rapt/base/text.h"
#include "rapt/device/device.h"
#include "rapt/io/reader.h"

namespace rapt::cli {
namespace {

constexpr std::size_t kSideBySide = 32;

struct ReplayCounts {
  Dim lines = 0, damaged = 0, without_model = 0, elsewhere = 0;  // elsewhere: another fingerprint
  Dim equal = 0, different = 0, failed = 0;                      // answers
};

// An answer that is being given again.
struct Repeated {
  server::ReplayRecord record;
  server::ServedModel* model = nullptr;
  const server::NamedAdapter* adapter = nullptr;
  Taps taps;
  std::function<void()> edits_touched;
  std::vector<Engine::Id> ids;  // of each prompt
  std::vector<std::shared_ptr<Answer>> answers;
  std::string error;
  std::size_t open = 0;
};

void begin(Repeated& r) {
  server::ServedModel& m = *r.model;
  server::CompletionRequest asked =
      server::dialect(r.record.form).read(server::read_body(r.record.body), m.read);
  asked.generate.sampler.seed = r.record.seed;
  asked.generate.ignore_eos = r.record.ignore_eos;
  if (const auto edits = server::read_edits(asked.edits, *m.checkpoint.model, "rapt.edits"); !edits.empty())
    r.edits_touched = install_edits(r.taps, *m.checkpoint.model, edits, Passes::many);
  if (!m.fits(r.record.prompts)) fail("its prompt has ids that are not of the model's vocabulary");
  if (asked.chat) m.set_form(asked, r.record.prompts[0]);
  const std::shared_ptr<const Constraint> constraint = m.constraint(asked);
  if (constraint && r.record.chat_template != m.template_hash)
    fail("the chat template is another one than then; give that of then (--chat-template)");
  for (const std::vector<std::int32_t>& prompt : r.record.prompts) {
    Request one = m.request(asked, prompt, constraint);
    m.end_with_context(one, r.record.context);
    if (r.edits_touched) one.taps = &r.taps;
    if (r.adapter) one.adapters = {r.adapter->use};
    r.answers.emplace_back();  // the next prompt may be refused: what runs then ends all the same
    r.ids.push_back(m.engine->add(std::move(one)));
    ++r.open;
  }
}

// Where it parts from the answer of then; "" where it does not.
std::string parting(const Repeated& r) {
  std::size_t i = 0;
  for (const std::shared_ptr<Answer>& a : r.answers)
    for (const Generated& g : a->samples) {
      if (i >= r.record.choices.size()) return "more answers than then";
      const server::ReplayRecord::Choice& then = r.record.choices[i];
      if (g.hash != then.hash) {
        const auto at = std::mismatch(then.ids.begin(), then.ids.end(), g.ids.begin(), g.ids.end()).first -
                        then.ids.begin();
        const bool same = then.ids == g.ids;
        return concat("choice ", i,
                      same ? ": the same tokens, other logits" : concat(": parts at token ", at));
      }
      ++i;
    }
  return i < r.record.choices.size() ? "fewer answers than then" : "";
}

void repeat(std::vector<std::unique_ptr<Repeated>>& batch, ReplayCounts& counts, Json::Array& told,
            const CommonArgs& common) {
  for (const auto& r : batch) try {
      begin(*r);
    } catch (const std::exception& e) {
      r->error = e.what();
    }
  const auto waits = [&] {
    return std::any_of(batch.begin(), batch.end(), [](const auto& r) { return r->open > 0; });
  };
  while (waits()) {
    std::set<server::ServedModel*> busy;
    for (const auto& r : batch)
      if (r->open > 0) busy.insert(r->model);
    for (server::ServedModel* const model : busy)
      for (const Event& e : model->engine->step()) {
        if (e.kind != Event::Kind::done) continue;
        for (const auto& r : batch)
          for (std::size_t i = 0; i < r->ids.size(); ++i) {
            if (r->model != model || r->ids[i] != e.request) continue;
            --r->open;
            r->answers[i] = e.answer;
            if (e.error) r->error = server::api_error(e.error, true).message;
          }
      }
  }
  for (const auto& r : batch) {
    std::string why = r->error;
    if (why.empty()) why = parting(*r);
    ++(!r->error.empty() ? counts.failed : why.empty() ? counts.equal : counts.different);
    if (why.empty()) continue;
    if (common.json)
      told.push_back(Json::Object{{"id", r->record.id}, {"model", r->record.model}, {"why", why}});
    else print(for_stdout(concat(r->record.id, " (", r->record.model, "): ", why, "\n")));
  }
  batch.clear();
}

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const Dim context = args.number("ctx-size", 0, Dim{1} << 40).value_or(0);
  const DType cache = cache_type(args, DType::f16);
  const std::vector<std::string> lora = args.values("lora");
  const std::optional<std::string> chat_template = args.value("chat-template");
  std::vector<std::string> names = args.operands(1, 64, "a log and its models");
  const std::string log = names[0];
  names.erase(names.begin());
  if (names.empty()) names = {"default"};

  const int file = open(log.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_missing(log, ": it cannot be opened: ", std::strerror(errno));
  const std::unique_ptr<const int, void (*)(const int*)> closes(&file, [](const int* f) { close(*f); });

  Device device(DeviceOptions{.threads = common.threads});
  note_threads(device, common);
  const std::string version = version_line();
  std::vector<std::unique_ptr<server::ServedModel>> models;
  for (const std::string& word : names) {
    const std::size_t equals = word.find('=');
    server::ModelOptions o;
    o.path = find_model(equals == std::string::npos ? word : word.substr(equals + 1));
    o.name = equals == std::string::npos ? server::name_of_file(o.path) : word.substr(0, equals);
    o.cache = cache;
    o.context = context;
    if (chat_template) o.chat_template = read_text_file(*chat_template, 4 << 20);
    const std::uint64_t free = available_memory();
    o.budget = static_cast<std::size_t>(free > 0 ? free / 4 / names.size() : std::uint64_t{1} << 30);
    Progress bar(concat("loading ", word), common.quiet);
    models.push_back(server::serve_model(device, o, version, [&](std::uint64_t done, std::uint64_t of) {
      bar.step(static_cast<double>(done), static_cast<double>(of));
    }));
  }

  std::vector<std::string> served;
  for (const auto& m : models) served.push_back(m->name);
  for (const NamedAdapterFile& a : named_adapters(lora, served))
    for (const auto& m : models)
      if (a.model == m->name) server::add_adapter(*m, a.name, a.file);

  ReplayCounts counts;
  Json::Array told;
  std::string first_damage;
  std::vector<std::unique_ptr<Repeated>> batch;
  struct stat about{};
  const double size = fstat(file, &about) == 0 ? static_cast<double>(about.st_size) : 0;
  double done = 0;
  Progress bar("replaying", common.quiet);
  server::read_lines(file, 0, [&](std::string_view line, Dim number) {
    ++counts.lines;
    done += static_cast<double>(line.size()) + 1;
    auto r = std::make_unique<Repeated>();
    try {
      if (line.empty()) fail("it is too long");
      r->record = server::read_record(line);
    } catch (const Error& e) {
      if (counts.damaged++ == 0) first_damage = concat("line ", number, ": ", e.what());
      return;
    }
    const auto find = [&](auto&& is) {
      for (const auto& m : models) {
        if (!r->model && is(m->fingerprint, m->name)) r->model = m.get();
        for (const server::NamedAdapter& a : m->adapters)
          if (!r->model && is(a.fingerprint, a.name)) r->model = m.get(), r->adapter = &a;
      }
    };
    find([&](const std::string& fingerprint, const std::string&) {
      return fingerprint == r->record.fingerprint;
    });
    if (!r->model) {
      find([&](const std::string&, const std::string& name) { return name == r->record.model; });
      if (!r->model) return void(++counts.without_model);
      ++counts.elsewhere;
    }
    batch.push_back(std::move(r));
    if (batch.size() == kSideBySide) repeat(batch, counts, told, common);
    bar.step(std::min(done, size), size);
  });
  repeat(batch, counts, told, common);
  bar.clear();

  if (counts.damaged > 0)
    note(concat("warning: ", counted(counts.damaged, "line"), " left out that cannot be read; ",
                first_damage));
  if (counts.without_model > 0)
    note(concat("warning: ", counted(counts.without_model, "answer"),
                " left out: their model is not among those given; name it, as in chat=FILE"));
  if (counts.elsewhere > 0 && !common.quiet)
    note(concat("note: ", counted(counts.elsewhere, "answer"),
                " came of another build, instruction set, cache or file (their fingerprint says so)"));
  const Dim all = counts.equal + counts.different + counts.failed;
  if (common.json) {
    Json j = Json::Object{};
    j.set("answers", all);
    j.set("equal", counts.equal);
    j.set("different", counts.different);
    j.set("failed", counts.failed);
    j.set("damaged", counts.damaged);
    j.set("without_model", counts.without_model);
    j.set("other_fingerprint", counts.elsewhere);
    j.set("differences", std::move(told));
    print(j.dump() + "\n");
  } else {
    print(concat(counted(all, "answer"), ": ", with_commas(counts.equal), " equal, ",
                 with_commas(counts.different), " different",
                 counts.failed > 0 ? concat(", ", with_commas(counts.failed), " could not be given") : "",
                 "\n"));
  }
  if (all == 0) fail(log, ": holds no answer that could be given again");
  return counts.different + counts.failed > 0 ? 1 : 0;
}

}  // namespace

extern const Verb kReplay;
const Verb kReplay = {
    "replay", "give a server's logged answers again and compare their bits",
    "Usage: rapt replay LOG [NAME=]MODEL… [flags]\n"
    "\n"
    "LOG is what rapt serve --replay-log wrote. Every answer in it is written once more and its hash, over\n"
    "the tokens chosen and their logits, compared with that of then. A model is found by its fingerprint\n"
    "(program, instruction set, cache and file), else by the name it was served under. Lines that cannot\n"
    "be read are left out. Exit code 1 where an answer differs.\n"
    "\n"
    "  -c, --ctx-size N   tokens of prompt and answer (the model's)\n"
    "  --cache-type T     as the server kept keys and values: f32, f16, bf16, q8_0, q4_0 (f16)\n"
    "  --lora [MODEL:]NAME=FILE[=SCALE]   an adapter, as it was served\n"
    "  --chat-template F  as it was served: calls of functions are told apart by it\n"
    "  --json             counts, and each answer that differs\n"
    "  -t, --threads N    threads (as many as the process may use)\n"
    "  -q, --quiet        no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt replay answers.jsonl model.gguf\n"
    "  rapt replay answers.jsonl chat=qwen.gguf de-en=opus-mt-de-en --json\n",
    run};

}  // namespace rapt::cli
