// SPDX-License-Identifier: Apache-2.0
// Training step by step: the same run, files and bits as `rapt train`, with Python's loop around its steps.
#include <filesystem>

#include "rapt/apps/python/train.h"
#include "rapt/base/text.h"
#include "rapt/use/metrics_file.h"
#include "rapt/use/train_options.h"

namespace rapt::python {
namespace {

namespace fs = std::filesystem;

// ------------------------------------------------------------------------------------------------- the plan
template <class E>
E word(const Json& value, const std::string& key) {
  constexpr auto names = names_of(E{});
  const std::string text = value.is_string() ? std::string(value.string()) : value.dump(0);
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<E>(found - names.begin());
  const std::vector<std::string> all(names.begin(), names.end());
  fail_usage("train: ", key, ": '", text, "' is none of ", join(all), "; ", name_hint(text, all));
}

struct DataKey {
  const char* name;
  void (*set)(TrainingPlan& plan, const Json& value);
};
Dim whole(const Json& v, const char* key) {
  if (!v.is_integer()) fail_usage("train: ", key, ": wants a whole number, has ", v.dump(0));
  return v.integer();
}
bool yes(const Json& v, const char* key) {
  if (!v.is_bool()) fail_usage("train: ", key, ": wants true or false, has ", v.dump(0));
  return v.boolean();
}
double share(const Json& v, const char* key) {
  if (!v.is_number()) fail_usage("train: ", key, ": wants a number, has ", v.dump(0));
  return v.number();
}
std::string text(const Json& v, const char* key) {
  if (!v.is_string()) fail_usage("train: ", key, ": wants a text, has ", v.dump(0));
  return std::string(v.string());
}

// The flags of `rapt train` that say what is learned, in Python's spelling.
const DataKey kDataKeys[] = {
    {"held_out", [](TrainingPlan& p, const Json& v) { p.data.held_out = text(v, "held_out"); }},
    {"share", [](TrainingPlan& p, const Json& v) { p.data.share = share(v, "share"); }},
    {"objective", [](TrainingPlan& p, const Json& v) { p.objective = word<Objective>(v, "objective"); }},
    {"tokenizer", [](TrainingPlan& p, const Json& v) { p.data.tokenizer = text(v, "tokenizer"); }},
    {"vocab", [](TrainingPlan& p, const Json& v) { p.data.vocab.kind = word<VocabKind>(v, "vocab"); }},
    {"vocab_size", [](TrainingPlan& p, const Json& v) { p.data.vocab.size = whole(v, "vocab_size"); }},
    {"lower", [](TrainingPlan& p, const Json& v) { p.data.vocab.lower = yes(v, "lower"); }},
    {"batch", [](TrainingPlan& p, const Json& v) { p.batch = whole(v, "batch"); }},
    {"length", [](TrainingPlan& p, const Json& v) { p.length = whole(v, "length"); }},
    {"batch_tokens", [](TrainingPlan& p, const Json& v) { p.data.batch_tokens = whole(v, "batch_tokens"); }},
    {"windows",
     [](TrainingPlan& p, const Json& v) { p.data.windows = word<DataOptions::Windows>(v, "windows"); }},
    {"documents", [](TrainingPlan& p, const Json& v) { p.data.documents = yes(v, "documents"); }},
    {"begin", [](TrainingPlan& p, const Json& v) { p.data.begin = yes(v, "begin"); }},
    {"mask_share", [](TrainingPlan& p, const Json& v) { p.data.mask_share = share(v, "mask_share"); }},
};

std::pair<std::vector<std::string>, std::vector<std::string>> train_keys() {
  std::pair<std::vector<std::string>, std::vector<std::string>> out;
  for (const DataKey& k : kDataKeys) out.first.emplace_back(k.name);
  TrainOptions o;
  train_fields(o, [&](std::string_view key, const auto&...) { out.second.emplace_back(key); });
  return out;
}

// What is wrong with arguments is the caller's to mean.
template <class F>
auto of_arguments(const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.kind() != Error::Kind::failure) throw;
    const bool name = std::string_view(e.what()).find(": unknown key; ") != std::string_view::npos;
    throw Error(e.what(), name ? Error::Kind::name : Error::Kind::usage);
  }
}

TrainingPlan read_plan(const std::string& name, const std::string& recipe, const ModelPtr& start,
                       const std::string& data, const std::string& data_options, const DataPtr& own,
                       const std::string& options) {
  TrainingPlan plan{
      .recipe = name,
      .settings = {},
      .data = {},
      .objective = {},
      .batch = {},
      .length = {},
      .options = of_arguments([&] { return parse_train_options(parse_json(options), "train"); })};
  if (!recipe.empty()) plan.own = resolve(parse_recipe(recipe));
  if (start) plan.start = start->checkpoint;
  plan.data.path = data;
  plan.data.vocab.kind = VocabKind::bpe;
  plan.data.vocab.size = 4096;
  const Json given = parse_json(data_options);
  for (const Json::Member& m : given.object())
    for (const DataKey& k : kDataKeys)
      if (m.key == k.name) k.set(plan, m.value);
  plan.own_data = own;
  return plan;
}

// ------------------------------------------------------------------------------------------------- the run
// What happened in a call besides its result, for Python's callbacks, log and metrics.
struct Happened {
  enum class Kind { said, saved, judged } kind;
  std::string text;  // said; the folder
  Dim step = 0;
  Judgement held_out = {};
};

class Training {
 public:
  Training(DevicePtr device, TrainingPlan plan, const std::string& folder, bool anew,
           const std::function<void(double)>& progress)
      : device_(std::move(device)), folder_(folder) {
    const Json described = plan_json(plan);
    plan.data.progress = progress;
    const auto say = [&](const std::string& text) { happened_.push_back({Happened::Kind::said, text, 0}); };
    run_ = std::make_unique<TrainingRun>(device_->device, std::move(plan), say);
    if (folder.empty()) {
      run_->open_memory();
    } else {
      const Dim resumed = run_->open_folder(folder, anew, say);
      metrics_.emplace((fs::path(folder) / "metrics.jsonl").string(), resumed);
      metrics_->begin(std::max<Dim>(0, resumed), described, run_->checkpoint->model->recipe,
                      run_->data->about());
    }
    TrainEvents events;
    events.step = [this](const StepReport& r) {
      if (metrics_) metrics_->step(r);
    };
    events.judged = [this](Dim step, const Judgement& j) {
      if (metrics_) metrics_->judged(step, j);
      happened_.push_back({Happened::Kind::judged, "", step, j});
    };
    events.saved = [this](const Stored& s) {
      if (metrics_) metrics_->event(s.step, "saved " + s.folder);
      happened_.push_back({Happened::Kind::saved, folder_.empty() ? "" : s.folder, s.step});
    };
    events.say = [this](const std::string& text) {
      if (metrics_) metrics_->event(steps(), text);
      happened_.push_back({Happened::Kind::said, text, steps()});
    };
    loop_ = run_->begin(std::move(events));
  }

  StepReport step() {
    const Turn turn(busy_, kWhat);
    check_open();
    if (loop_->done()) fail_usage("train: all ", steps(), " steps are done; give more of them (steps=)");
    return finishing([&] { return loop_->step(); });
  }
  // A step with gradients that Python made, with the loss that belongs to them.
  StepReport apply(const Gradients& gradients, double loss) {
    const Turn turn(busy_, kWhat);
    check_open();
    return finishing([&] {
      StepReport r = run_->trainer->apply(gradients);
      r.loss = loss;
      if (metrics_) metrics_->step(r);
      return r;
    });
  }
  void save() {
    const Turn turn(busy_, kWhat);
    check_open();
    to_its_end([&] {
      loop_->save();
      if (metrics_) metrics_->write_curves(folder_);
      return true;
    });
  }
  Judgement judge(Dim batches) {
    const Turn turn(busy_, kWhat);
    return without_gil([&] { return run_->trainer->judge(batches); });
  }
  // After the last step; once.
  TrainingRun::Finished finish() {
    const Turn turn(busy_, kWhat);
    if (!finished_) {
      check_open();
      finished_ = to_its_end([&] {
        loop_->end();
        TrainingRun::Finished done = run_->finish();
        if (metrics_) {
          metrics_->event(steps(), "finished");
          metrics_->write_curves(folder_);
        }
        return done;
      });
    }
    return *finished_;
  }
  // Saves, and lets go of the folder: another training may go on with it.
  void close() {
    const Turn turn(busy_, kWhat);
    if (closed_) return;
    if (!finished_)
      to_its_end([&] {
        loop_->save();
        return true;
      });
    closed_ = true;
    metrics_.reset();
    run_->leave_folder();
  }
  // What failed is noted where others look for it.
  void failed(const std::string& why) {
    const Turn turn(busy_, kWhat);
    if (metrics_) metrics_->event(steps(), "failed: " + why);
  }
  TrainBatch batch(std::uint64_t number) {
    const Turn turn(busy_, kWhat);
    return without_gil([&] { return run_->data->batch(number); });
  }
  std::vector<Happened> take_happened() { return std::exchange(happened_, {}); }

  ModelPtr model() {
    auto model = std::make_shared<api::ModelState>();
    model->device = device_;
    model->checkpoint = run_->checkpoint;
    model->opened = false;
    model->extras = run_->extras();
    model->data = run_->data;
    return model;
  }
  Optimizer& optimizer() { return run_->trainer->optimizer(); }
  Dim steps() const { return run_->trainer->steps(); }
  bool done() const { return loop_->done(); }
  const Trainer& trainer() const { return *run_->trainer; }
  const TrainData& data() const { return *run_->data; }
  const Model& net() const { return *run_->checkpoint->model; }
  Device& device() const { return device_->device; }
  std::string sample(const std::string& prompt) {
    const Turn turn(busy_, kWhat);
    return without_gil([&] { return run_->sample(device_->device, prompt, steps()); });
  }

 private:
  static constexpr const char* kWhat = "trainer";

  void check_open() const {
    if (closed_)
      fail_usage("trainer: is closed; the same call with the same out= goes on from its last state");
  }

  // A step is finished whatever is pressed; then its state is saved before KeyboardInterrupt goes on.
  template <class F>
  StepReport finishing(const F& f) {
    try {
      return to_its_end(f);
    } catch (nb::python_error& e) {
      if (e.matches(PyExc_KeyboardInterrupt)) {
        const OutOfPython out(on_main_thread());
        loop_->save();
      }
      throw;
    }
  }

  DevicePtr device_;
  std::string folder_;
  std::unique_ptr<TrainingRun> run_;
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<TrainLoop> loop_;
  std::optional<TrainingRun::Finished> finished_;
  std::vector<Happened> happened_;
  bool closed_ = false;
  std::atomic<bool> busy_{false};
};

std::shared_ptr<Training> open_training(const DevicePtr& device, const std::string& name,
                                        const std::string& recipe, const ModelPtr& start,
                                        const std::string& data, const std::string& data_options,
                                        const DataPtr& own, const std::string& options,
                                        const std::string& folder, bool anew, nb::object listener) {
  Progress progress(std::move(listener));
  std::atomic<bool> cancel{false};
  return without_gil(cancel, progress.tick(), [&] {
    return std::make_shared<Training>(device ? device : shared_device(),
                                      read_plan(name, recipe, start, data, data_options, own, options),
                                      folder, anew, [&](double done) {
                                        if (cancel.load(std::memory_order_relaxed)) throw Cancelled();
                                        progress.set(done, 1);
                                      });
  });
}

// ----------------------------------------------------------------------------------------------- for Python
nb::tuple report_tuple(const StepReport& r) {
  static constexpr const char* kFates[] = {"done", "skipped", "rewound"};
  return nb::make_tuple(r.step, r.batch, r.loss, r.norm, r.rate, r.tokens, r.seconds,
                        kFates[static_cast<int>(r.fate)], text_of(r.why),
                        r.health.empty() ? std::string() : health_json(r.health).dump(0));
}
nb::tuple judgement_tuple(const Judgement& j) { return nb::make_tuple(j.loss, j.accuracy, j.counted); }

nb::list happened_list(Training& t) {
  nb::list out;
  for (const Happened& h : t.take_happened()) switch (h.kind) {
      case Happened::Kind::said: out.append(nb::make_tuple("said", h.step, text_of(h.text))); break;
      case Happened::Kind::saved: out.append(nb::make_tuple("saved", h.step, text_of(h.text))); break;
      case Happened::Kind::judged: out.append(nb::make_tuple("judged", h.step, judgement_tuple(h.held_out)));
    }
  return out;
}

nb::object ids(std::vector<std::int32_t>&& values) { return array_of(std::move(values)); }
nb::object lengths(const std::vector<Sequence>& sequences) {
  std::vector<std::int32_t> out;
  for (const Sequence& s : sequences) out.push_back(static_cast<std::int32_t>(s.count));
  return array_of(std::move(out));
}
nb::tuple batch_tuple(Training& t, std::uint64_t number) {
  TrainBatch b = t.batch(number);
  if (!b.pictures.empty()) fail_usage("train: batches of pictures are not handed out");
  nb::object source = nb::none(), source_lengths = nb::none();
  if (!b.source.empty()) {
    source_lengths = lengths(b.source_sequences);
    source = ids(std::move(b.source));
  }
  nb::object counts = lengths(b.sequences);
  return nb::make_tuple(ids(std::move(b.tokens)), std::move(counts), ids(std::move(b.targets)),
                        std::move(source), std::move(source_lengths));
}

// {"mean": array, "variance": array …} of a weight.
nb::dict optimizer_state(Training& t, const std::string& name) {
  nb::dict out;
  const Weight& of = find_weight(t.net(), name);
  const std::vector<WeightShape> shapes = weight_shapes(t.net().recipe);
  const bool vector = shapes[static_cast<std::size_t>(of.index)].vector;
  t.optimizer().each_state([&](const std::string& full, Weight& w) {
    if (!full.starts_with(name + ".") || full.find('.', name.size() + 1) != full.npos) return;
    const std::vector<Dim> shape = vector ? std::vector<Dim>{w.size()} : std::vector<Dim>{w.rows, w.cols};
    out[full.substr(name.size() + 1).c_str()] = array_of(weight_numbers(w), shape);
  });
  return out;
}

}  // namespace

void add_train(nb::module_& m) {
  add_data(m);
  add_gradients(m);
  nb::class_<Training>(m, "Training")
      .def("step", [](Training& t) { return report_tuple(t.step()); })
      .def("apply",
           [](Training& t, const BatchGradients& g, double loss) {
             if (g.model->checkpoint->model.get() != &t.net())
               fail_usage("optimizer: these gradients are another model's");
             return report_tuple(t.apply(g.values, loss));
           })
      .def("save", &Training::save)
      .def("close", &Training::close)
      .def("judge", [](Training& t, Dim batches) { return judgement_tuple(t.judge(batches)); })
      .def("finish",
           [](Training& t) {
             const TrainingRun::Finished f = t.finish();
             return nb::make_tuple(judgement_tuple(f.held_out), text_of(f.model));
           })
      .def("failed", &Training::failed)
      .def("happened", &happened_list)
      .def("model", &Training::model)
      .def("sample", [](Training& t, const std::string& prompt) { return text_of(t.sample(prompt)); })
      .def("batch", &batch_tuple)
      .def("optimizer_state", &optimizer_state)
      .def_prop_ro("steps", &Training::steps)
      .def_prop_ro("done", &Training::done)
      .def_prop_ro("next_batch", [](const Training& t) { return t.trainer().next_batch(); })
      .def_prop_ro("parameters", [](const Training& t) { return t.net().parameters(); })
      .def_prop_ro("recipe", [](const Training& t) { return recipe_json(t.net().recipe); })
      .def_prop_ro("data", [](const Training& t) { return text_of(t.data().about()); })
      .def_prop_ro("held_out", [](const Training& t) { return t.data().held_out(); })
      .def_prop_ro("options",
                   [](const Training& t) { return train_options_json(t.trainer().options()).dump(0); });
  m.def("open_training", &open_training, "device"_a.none(), "name"_a, "recipe"_a, "start"_a.none(), "data"_a,
        "data_options"_a, "own"_a.none(), "options"_a, "folder"_a, "anew"_a, "progress"_a.none());
  m.def("train_keys", &train_keys);
}

}  // namespace rapt::python
