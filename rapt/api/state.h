// SPDX-License-Identifier: Apache-2.0
// What the public handles stand for. For the sources of this folder and its tests; not installed. Here
// rapt::Model is the inside, and rapt::api::Model the handle (rapt/export.h).
#pragma once
#include <atomic>
#include <memory>

#include "rapt/inspect/edits.h"
#include "rapt/load/checkpoint.h"
#include "rapt/rapt.h"
#include "rapt/use/generate.h"
#include "rapt/use/training.h"

namespace rapt::api {

struct DeviceState : std::enable_shared_from_this<DeviceState> {
  explicit DeviceState(const rapt::DeviceOptions& options = {}) : device(options) {}
  rapt::Device device;
};

struct ModelState : std::enable_shared_from_this<ModelState> {
  std::shared_ptr<DeviceState> device;
  std::shared_ptr<const Checkpoint> checkpoint;
  Stream stream = {};
  // Made and trained models: what a folder of them has besides weights; `data` keeps alive what `extras`
  // points into. A model that was opened is converted from its files instead.
  bool opened = true;
  FolderExtras extras;
  std::shared_ptr<const TrainData> data;
  // Of every pass of this handle; another handle of the same weights has others, or none.
  std::shared_ptr<const EditSet> edits;

  rapt::Device& on() const { return device->device; }
  const rapt::Model& net() const { return *checkpoint->model; }
};

struct SessionState {
  std::shared_ptr<const ModelState> model;
  Taps taps;  // edits; the session looks at them
  std::function<void()> check_edits;
  std::unique_ptr<rapt::Session> session;
  std::atomic<bool> cancel{false};
};

struct TrainingState {
  std::shared_ptr<DeviceState> device;
  std::unique_ptr<TrainingRun> run;
  std::string folder;
};

// Handles to what they stand for, and back.
struct Access {
  static std::shared_ptr<DeviceState> of(const Device& device);
  static Device handle(std::shared_ptr<DeviceState> state);
  static const ModelState& of(const Model& model) { return *model.state_; }
  static std::shared_ptr<const ModelState> share(const Model& model) { return model.state_; }
  static Model handle(std::shared_ptr<const ModelState> state) { return Model(std::move(state)); }
  static SessionState& of(Session& session) { return *session.state_; }
  static TrainingState& of(Training& training) { return *training.state_; }
};

// Edits as users write them: texts, or JSON that begins with a brace.
std::vector<Edit> edits_of(const std::vector<std::string>& texts);
// A tensor of the inside as numbers.
Tensor copy_tensor(std::string name, const rapt::Tensor& t);

}  // namespace rapt::api
