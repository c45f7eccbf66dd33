// SPDX-License-Identifier: Apache-2.0
// A state's small values, and back from its files: what a resumed run needs, whether it may go on, the
// averages at a run's end.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "rapt/base/text.h"
#include "rapt/io/safetensors.h"
#include "rapt/use/train_options.h"
#include "rapt/use/train_parts.h"

namespace rapt {
namespace {

// Tensors of a saved state, by name, one file in memory at a time: model.safetensors or, where it was cut,
// the one that model.safetensors.index.json says.
class StateTensors {
 public:
  StateTensors(const Store& store, const Stored& stored, const std::string& stem)
      : store_(store), stored_(stored), one_(stem + ".safetensors") {
    const std::vector<std::string> names = store.names(stored);
    if (std::find(names.begin(), names.end(), one_) != names.end()) return;
    const std::string name = one_ + ".index.json", where = stored.folder + "/" + name;
    const std::vector<std::byte> bytes = store.file(stored, name);
    const Json index = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where);
    const Json* map = index.find("weight_map");
    if (!map || !map->is_object()) fail(where, ": has no \"weight_map\"");
    for (const Json::Member& m : map->object()) file_of_[m.key] = m.value.string();
  }

  void read(const std::string& name, Weight& into) {
    std::string file = one_;
    if (!file_of_.empty()) {
      const auto it = file_of_.find(name);
      if (it == file_of_.end())
        fail(stored_.folder, "/", one_, ".index.json: has no tensor ", quote_name(name),
             "; the state belongs to another recipe or optimizer");
      file = it->second;
    }
    if (file != open_) {
      tensors_.reset();
      bytes_ = store_.file(stored_, file);
      tensors_ = SafetensorsFile::parse(bytes_, stored_.folder + "/" + file);
      open_ = file;
    }
    const std::string where = stored_.folder + "/" + file;
    const TensorView* view = tensors_->tensors.find(name);
    if (!view)
      fail(where, ": has no tensor ", quote_name(name), "; the state belongs to another recipe or optimizer");
    if (view->dtype() != into.format ||
        view->bytes().size() != static_cast<std::size_t>(into.size()) * size_of(into.format))
      fail(where, ": tensor ", quote_name(name),
           " has another type or shape than this run; the state belongs to another recipe");
    fill_row_major(into, view->bytes());
  }

 private:
  const Store& store_;
  const Stored& stored_;
  const std::string one_;
  std::map<std::string, std::string> file_of_;  // empty: all in the one
  std::string open_;
  std::vector<std::byte> bytes_;
  std::optional<SafetensorsFile> tensors_;
};

// How the batches of a step are added (leaves.h). States of runs that accumulate say so; those without it are
// of versions that added each batch to the sum of those before it.
constexpr const char* kLeafOrder = "tree";

// A recipe without the words about it, which may have been written better while a run waited.
Json without_note(const Json& recipe) {
  Json out = Json::Object{};
  for (const Json::Member& m : recipe.object())
    if (m.key != "note") out.set(m.key, m.value);
  return out;
}

}  // namespace

Json Trainer::state() const {
  const State& s = *state_;
  Json j = Json::Object{};
  j.set("step", s.step);
  j.set("cursor", static_cast<std::int64_t>(s.cursor));
  j.set("attempts", static_cast<std::int64_t>(s.attempts));
  j.set("optimizer_steps", s.optimizer.steps());
  j.set("slow", s.slow);
  j.set("rewinds", s.rewinds);
  Json::Array skips;
  for (std::uint64_t n : s.skips) skips.emplace_back(static_cast<std::int64_t>(n));
  j.set("skips", skips);
  j.set("losses", s.losses.json());
  j.set("norms", s.norms.json());
  j.set("isa", std::string(s.device.kernels.isa));
  if (s.options.accumulate > 1) j.set("order", kLeafOrder);
  j.set("options", train_options_json(s.options));
  j.set("recipe", parse_json(recipe_json(s.model.recipe)));
  j.set("data", s.data.about());
  j.set("data_identity", std::to_string(s.data.identity));
  return j;
}

std::vector<std::string> Trainer::restore(const Store& store, const Stored& stored) {
  State& s = *state_;
  const std::string where = stored.folder;
  const auto need = [&](const char* key) -> const Json& {
    const Json* j = stored.state.find(key);
    if (!j) fail(where, ": the state has no \"", key, "\"");
    return *j;
  };
  if (!(without_note(need("recipe")) == without_note(parse_json(recipe_json(s.model.recipe)))))
    fail(where, ": was saved by a run with another recipe; give another --out, or the recipe it began with");
  if (!(need("data") == Json(s.data.about())) ||
      !(need("data_identity") == Json(std::to_string(s.data.identity))))
    fail(where, ": was saved by a run on other data (", need("data").string(), "; now: ", s.data.about(),
         "), or with another seed, batch or length");
  std::vector<std::string> notes;
  if (const Json* isa = stored.state.find("isa");
      isa && isa->is_string() && isa->string() != s.device.kernels.isa)
    notes.push_back(concat("note: ", where, " was computed with ", isa->string(), ", this run computes with ",
                           s.device.kernels.isa,
                           ": it goes on, but not to the bits of a run with one of them (RAPT_ISA chooses)"));
  // What a run may change without becoming another one: how often it looks and saves, and that it is
  // longer. Where the rate depends on the number of steps, that is said.
  const bool by_length =
      s.options.schedule.kind == Schedule::Kind::cosine || s.options.schedule.kind == Schedule::Kind::wsd;
  const Dim steps_before = parse_train_options(need("options"), where).steps;
  const bool longer = s.options.steps > steps_before;
  if (by_length && longer)
    notes.push_back(concat("note: steps = ", steps_before, " before, ", s.options.steps, " now: from step ",
                           stored.step + 1, " on the rate is that of a schedule over ", s.options.steps,
                           " steps; a run begun with ", s.options.steps,
                           " would have had other rates before, and ends in other bits"));
  const auto essence = [&](const Json& options) {
    TrainOptions o = parse_train_options(options, where);
    const TrainOptions plain;
    o.eval_every = plain.eval_every, o.eval_batches = plain.eval_batches, o.save_every = plain.save_every,
    o.save_minutes = plain.save_minutes, o.health_every = plain.health_every, o.average = plain.average;
    if (longer || !by_length) o.steps = plain.steps, o.schedule.total = plain.schedule.total;
    return train_options_json(o);
  };
  if (const Json before = essence(need("options")), now = essence(train_options_json(s.options));
      !(before == now))
    for (const Json::Member& m : now.object())
      if (const Json* old = before.find(m.key); !old || !(*old == m.value))
        fail(where, ": was saved by a run with ", m.key, " = ", old ? old->dump(0) : "nothing",
             ", now it is ", m.value.dump(0), "; use the same options to go on, or another --out");
  if (s.options.accumulate > 1 && s.options.steps > stored.step) {  // batches are still to be added
    const Json* order = stored.state.find("order");
    if (!order || !(*order == Json(kLeafOrder)))
      fail(where, ": the ", s.options.accumulate, " batches of a step were added ",
           order ? concat("in an order this version does not know (", order->dump(0), ")")
                 : "one after the other by the version that saved it",
           ", this version adds them in a tree, and the run would end in the bits of neither; finish it with "
           "the version that began it, or begin another run from its weights: rapt train ",
           where, " … --out FOLDER");
  }
  const Lease lease(s.device.team());  // others may run the model
  // Rank 0 reads: no other need see its folder.
  std::optional<StateTensors> from;
  const auto open = [&](const char* stem) {
    if (s.comm.rank() == 0) from.emplace(store, stored, stem);
  };
  const auto read = [&](const std::string& name, Weight& into) {
    if (from) from->read(name, into);
    if (!s.one_rank()) s.comm.broadcast({into.data.get(), into.bytes()}, 0);
  };
  open("model");
  for (Weight& w : s.model.weights) read(w.name, w);
  ++s.model.changes;
  open("optimizer");
  s.optimizer.each_part([&](const Weight& of, const std::string& name, Weight& part, Dim begin) {
    if (s.one_rank()) return read(name, part);
    Weight whole = make_weight(name, of.rows, of.cols, s.model.real, of.packing);
    read(name, whole);
    if (part.data)
      std::memcpy(part.data.get(), whole.data.get() + static_cast<std::size_t>(begin) * size_of(s.model.real),
                  part.bytes());
  });
  s.optimizer.set_steps(need("optimizer_steps").integer());
  s.step = need("step").integer();
  s.cursor = static_cast<std::uint64_t>(need("cursor").integer());
  s.attempts = static_cast<std::uint64_t>(need("attempts").integer());
  s.slow = need("slow").integer();
  s.rewinds = need("rewinds").integer();
  s.skips.clear();
  for (const Json& n : need("skips").array()) s.skips.push_back(static_cast<std::uint64_t>(n.integer()));
  s.losses.read(need("losses"));
  s.norms.read(need("norms"));
  return notes;
}

Dim Trainer::rewind(const Store& store, const Stored& stored) {
  State& s = *state_;
  const std::uint64_t cursor = s.cursor, attempts = s.attempts;
  const Dim rewinds = s.rewinds + 1;
  restore(store, stored);
  s.cursor = cursor;  // past the batches that did it
  s.attempts = attempts;
  s.skips.clear();
  s.rewinds = rewinds;
  s.slow = s.options.guard.slow;
  return rewinds;
}

void Trainer::finish(const Store& store) {
  State& s = *state_;
  const Lease lease(s.device.team());  // others may run the model
  if (s.optimizer.has_ema() && !s.optimizer.averaged()) s.swap_averages();
  if (s.options.average < 2) return;
  if (s.comm.rank() == 0) average_states(store);
  ++s.model.changes;
  if (s.one_rank()) return;
  for (Weight& w : s.model.weights) s.comm.broadcast({w.data.get(), w.bytes()}, 0);
}

// The mean of the last ones for the weights, where there are two.
void Trainer::average_states(const Store& store) {
  State& s = *state_;
  const std::vector<Stored> states = store.all();
  const Dim n = std::min<Dim>(s.options.average, static_cast<Dim>(states.size()));
  if (n < 2) return;
  std::vector<std::vector<double>> sums;
  for (const Weight& w : s.model.weights) sums.emplace_back(static_cast<std::size_t>(w.size()));
  for (Dim i = 0; i < n; ++i) {
    const Stored& stored = states[states.size() - static_cast<std::size_t>(n - i)];
    StateTensors from(store, stored, "model");
    for (Weight& w : s.model.weights) {
      from.read(w.name, w);
      std::vector<double>& sum = sums[static_cast<std::size_t>(w.index)];
      for (Dim e = 0; e < w.size(); ++e) sum[static_cast<std::size_t>(e)] += w.get(e / w.cols, e % w.cols);
    }
  }
  for (Weight& w : s.model.weights)
    for (Dim e = 0; e < w.size(); ++e)
      w.set(e / w.cols, e % w.cols,
            sums[static_cast<std::size_t>(w.index)][static_cast<std::size_t>(e)] / static_cast<double>(n));
}

}  // namespace rapt
