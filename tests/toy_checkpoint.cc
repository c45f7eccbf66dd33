// SPDX-License-Identifier: Apache-2.0
#include "tests/toy_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "rapt/io/safetensors.h"
#include "rapt/tensor/formats.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

std::filesystem::path golden_folder() {
  return std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden" / "families";
}

Tensor run_one(rapt::Run& run, const Model& model, const std::vector<std::int32_t>& tokens,
               const std::vector<std::int32_t>& types, const std::vector<std::int32_t>& source, KvPool* cache,
               Dim past) {
  Batch batch{.tokens = tokens,
              .sequences = {{.first = 0, .count = static_cast<Dim>(tokens.size()), .past = past}},
              .types = types};
  Batch from{.tokens = source, .sequences = {{.first = 0, .count = static_cast<Dim>(source.size())}}};
  return forward(run, model, batch, source.empty() ? nullptr : &from, cache);
}

}  // namespace

ToyTensor& Toy::tensor(std::string_view tensor_name) {
  for (ToyTensor& t : tensors)
    if (t.name == tensor_name) return t;
  fail("toy ", name, " has no tensor ", tensor_name);
}
void Toy::rename(std::string_view from, std::string_view to) {
  for (ToyTensor& t : tensors)
    if (t.name.starts_with(from)) t.name = std::string(to) + t.name.substr(from.size());
}
void Toy::remove(std::string_view tensor_name) {
  const auto before = tensors.size();
  std::erase_if(tensors, [&](const ToyTensor& t) { return t.name == tensor_name; });
  if (tensors.size() == before) fail("toy ", name, " has no tensor ", tensor_name);
}

void remove_key(Json& object, std::string_view key) {
  Json::Object rest;
  for (const Json::Member& m : object.object())
    if (m.key != key) rest.push_back(m);
  object = std::move(rest);
}

Toy read_toy(const std::string& name) {
  const auto path = golden_folder() / (name + ".json");
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return toy_from(name, parse_json(text.str(), path.filename().string()));
}

Toy toy_from(const std::string& name, const Json& json) {
  Toy toy;
  toy.name = name;
  toy.json = json;
  toy.config = need(toy.json, "config");
  for (const Json& t : need(toy.json, "tensors").array()) {
    ToyTensor one{t.array()[0].string(), {}, {}};
    Dim n = 1;
    for (const Json& d : t.array()[1].array()) one.shape.push_back(d.integer()), n *= d.integer();
    const double scale = t.array()[2].number(), offset = t.array()[3].number();
    std::uint64_t hash = 14695981039346656037u;
    for (char c : one.name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    for (Dim i = 0; i < n; ++i) {
      std::uint64_t z = hash + static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      z ^= z >> 31;
      one.values.push_back(static_cast<float>(offset + scale * (static_cast<double>(z >> 40) * 0x1p-23 - 1)));
    }
    toy.tensors.push_back(std::move(one));
  }
  return toy;
}

std::vector<std::string> toy_names() {
  std::vector<std::string> out;
  // While one works on some: RAPT_TOYS=" mixtral gpt-oss "
  const char* only = std::getenv("RAPT_TOYS");
  for (const auto& e : std::filesystem::directory_iterator(golden_folder()))
    if (e.path().extension() == ".json" &&
        (!only || std::string(only).find(concat(" ", e.path().stem().string(), " ")) != std::string::npos))
      out.push_back(e.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

void write_folder(const Toy& toy, const std::string& folder, DType type) {
  std::filesystem::create_directories(folder);
  put_file(folder + "/config.json", toy.config.dump());
  std::vector<SafetensorPlan> plan;
  for (const ToyTensor& t : toy.tensors)
    plan.push_back({t.name, type, t.shape, [&t, type](FileWriter& out) {
                      std::vector<std::byte> bytes(bytes_of(type, static_cast<Dim>(t.values.size()), t.name));
                      if (type == DType::f32) std::memcpy(bytes.data(), t.values.data(), bytes.size());
                      else quantize(type, t.values, bytes);
                      out.write(bytes);
                    }});
  write_safetensors(folder + "/model.safetensors", plan, {}, true);
}

double toy_distance(const Toy& toy, const Checkpoint& c, Device& device) {
  double worst = 0;
  const auto& sequences = need(toy.json, "sequences").array();
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const Json *types = toy.json.find("types"), *sources = toy.json.find("source_sequences");
    const auto tokens = ids_of(sequences[s]);
    const auto kinds = types ? ids_of(types->array()[s]) : std::vector<std::int32_t>{};
    const auto source = sources ? ids_of(sources->array()[s]) : std::vector<std::int32_t>{};
    rapt::Run run(device);
    const Tensor y = run_one(run, *c.model, tokens, kinds, source, nullptr, 0);
    const auto rows = ids_of(need(toy.json, "rows").array()[s]);
    const auto& want = need(toy.json, "logits").array()[s].array();
    if (want.size() != rows.size() * static_cast<std::size_t>(y.last()))
      fail(toy.name, ": ", want.size(), " numbers are stored for ", rows.size(), " rows of ", y.last());
    for (std::size_t i = 0; i < want.size(); ++i) {
      const Dim at = rows[i / static_cast<std::size_t>(y.last())] * y.last() + static_cast<Dim>(i) % y.last();
      const double d = std::abs(y.at(at) - want[i].number());
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
  }
  return worst;
}

std::vector<std::int32_t> toy_greedy(const Toy& toy, const Checkpoint& c, Device& device, std::size_t steps) {
  const Json& g = need(toy.json, "greedy");
  const auto source = g.find("source") ? ids_of(*g.find("source")) : std::vector<std::int32_t>{};
  std::vector<std::int32_t> next = ids_of(need(g, "start")), out;
  KvPool cache(*c.model);
  Dim past = 0;
  while (out.size() < steps) {
    rapt::Run run(device);
    const Tensor y =
        run_one(run, *c.model, next, {}, past == 0 ? source : std::vector<std::int32_t>{}, &cache, past);
    past += static_cast<Dim>(next.size());
    const Dim row = y.rows() - 1, V = y.last();
    std::int32_t best = 0;
    for (Dim v = 1; v < V; ++v)
      if (y.at(row * V + v) > y.at(row * V + best)) best = static_cast<std::int32_t>(v);
    out.push_back(best);
    next = {best};
  }
  return out;
}

Checkpoint open_toy(const std::string& name, Device& device) {
  const TempFolder temp;
  write_folder(read_toy(name), temp / "toy");
  return open_checkpoint(temp / "toy", {.device = &device});
}

std::vector<std::int32_t> ids_of(const Json& list) {
  std::vector<std::int32_t> out;
  for (const Json& x : list.array()) out.push_back(static_cast<std::int32_t>(x.integer()));
  return out;
}

}  // namespace rapt::test
