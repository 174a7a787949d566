#include "test/gpu_check/engine_training.h"

#include <numeric>
#include <thread>

#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/toy_model.h"
#include "test/engine/update_call.h"

namespace commsched::gpu_check {
namespace {

using engine::Message;
using engine::ToyModules;
using engine::ToyParameters;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

// Where a rank computes: on a stream of its device, or here.
class Place {
 public:
  ~Place() {
    if (launcher_ == nullptr) return;
    if (stream_ != nullptr) launcher_->cuda().StreamDestroy(stream_);
    if (memory_ != nullptr) (void)launcher_->cuda().driver.Free(memory_);
  }

  std::string Make(const Launcher* launcher, int device) {
    launcher_ = launcher;
    device_ = device;
    host_.resize(kSums + 1);
    memory_ = host_.data();
    if (launcher == nullptr) return "";
    memory_ = nullptr;
    const kernels::CudaApi& cuda = launcher->cuda();
    std::string why = cuda.Check("cudaSetDevice", cuda.SetDevice(device));
    if (why.empty()) {
      why = cuda.Check(
          "cudaStreamCreateWithPriority",
          cuda.StreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0));
    }
    if (why.empty()) {
      why = cuda.Check("cuMemAlloc", cuda.driver.Allocate(Bytes(), &memory_));
    }
    if (why.empty()) {
      why = cuda.Check("cudaMemsetAsync",
                       cuda.MemsetAsync(memory_, 0, Bytes(), stream_));
    }
    return why;
  }

  commsched_stream_t stream() const {
    if (launcher_ == nullptr) return commsched_stream_caller();
    return {COMMSCHED_STREAM_CUDA, 0, stream_};
  }

  template <typename Kernel>
  std::string Run(const typename Kernel::Args& args) const {
    if (launcher_ != nullptr) {
      return MessageOf(launcher_->Launch<Kernel>(device_, args, stream_));
    }
    const uint64_t count = Kernel::Count(args);
    for (uint64_t i = 0; i < count; ++i) Kernel::Run(args, i);
    return "";
  }

  // Checksums of parameters, and how many differed.
  double* sum(uint32_t parameter) const {
    return static_cast<double*>(memory_) + parameter;
  }
  uint64_t* num_differ() const {
    return reinterpret_cast<uint64_t*>(static_cast<double*>(memory_) + kSums);
  }
  std::string CheckNoneDiffered() {
    std::vector<uint64_t> found(1, *reinterpret_cast<uint64_t*>(&host_[kSums]));
    if (launcher_ != nullptr) {
      const kernels::CudaApi& cuda = launcher_->cuda();
      std::string why = cuda.Check(
          "cudaMemcpyAsync",
          cuda.MemcpyAsync(found.data(), num_differ(), sizeof(uint64_t),
                           cudaMemcpyDeviceToHost, stream_));
      if (why.empty()) {
        why = cuda.Check("cudaStreamSynchronize",
                         cuda.StreamSynchronize(stream_));
      }
      if (!why.empty()) return why;
    }
    if (found[0] == 0) return "";
    return std::to_string(found[0]) +
           " backwards read other parameters than their forwards";
  }

 private:
  static constexpr size_t kSums = 64;  // At least as many as parameters.
  static size_t Bytes() { return (kSums + 1) * sizeof(double); }

  const Launcher* launcher_ = nullptr;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  std::vector<double> host_;
  void* memory_ = nullptr;  // Of host_, or the device's.
};

class Trainer {
 public:
  Trainer(const TrainingSpec& spec, commsched_world_t* world, int32_t rank)
      : spec_(spec), world_(world), rank_(rank) {}
  ~Trainer() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }

  std::string Run(TrainingEnd* out) {
    RETURN_MESSAGE_IF_ERROR(Register());
    RETURN_MESSAGE_IF_ERROR(Create());
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_loss_scale_address(engine_, &loss_scale_));
    RETURN_MESSAGE_IF_ERROR(SetInitialValues());
    for (uint32_t step = 0; step < spec_.steps; ++step) {
      RETURN_MESSAGE_IF_ERROR(Step(step));
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(engine_));
    if (spec_.engine.clip_norm > 0) {
      RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine_, &out->norm));
    }
    RETURN_MESSAGE_IF_ERROR(Weights(&out->weights));
    return place_.CheckNoneDiffered();
  }

 private:
  std::string Create() {
    if (commsched_context_create(world_, rank_, &context_) != COMMSCHED_OK) {
      return commsched_last_error();
    }
    int32_t device = 0;
    commsched_context_device(context_, &device);
    RETURN_MESSAGE_IF_ERROR(place_.Make(spec_.launcher, device));
    std::vector<int32_t> all(static_cast<size_t>(spec_.ranks));
    std::iota(all.begin(), all.end(), 0);
    if (commsched_group_create(context_, "dp_shard", all.data(),
                               static_cast<uint32_t>(all.size()),
                               &group_) != COMMSCHED_OK) {
      return commsched_last_error();
    }
    commsched_plan_options_t plan = commsched_plan_options_init();
    plan.deterministic = 1;
    commsched_engine_desc_t desc = spec_.engine;
    desc.context = context_;
    desc.group = group_;
    desc.compute_stream = place_.stream();
    commsched_step_plan_options_t options = spec_.options;
    options.plan = &plan;
    return Message(engine::CreateEngine(desc, model_.get(), options, &engine_));
  }

  std::string Register() {
    uint32_t id = 0;
    for (const engine::ToyModule& module : ToyModules()) {
      RETURN_MESSAGE_IF_ERROR(
          commsched_model_add_module(model_.get(), module.name, 1e6, 2e6, &id));
    }
    for (const engine::ToyParameter& p : ToyParameters()) {
      RETURN_MESSAGE_IF_ERROR(
          engine::AddParameter(model_.get(), p.module, p.name, p.dims.data(),
                               static_cast<uint32_t>(p.dims.size()), &id));
    }
    return Message(
        commsched_model_use_parameter(model_.get(), engine::kHead, 1));
  }

  std::string SetInitialValues() {
    for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
      uint64_t offset = 0;
      uint64_t count = 0;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_range(engine_, p, &offset, &count));
      std::vector<float> initial(count + 1);
      for (uint64_t i = 0; i < count; ++i) {
        initial[i] = engine::ToyInitialValue(p, offset + i);
      }
      RETURN_MESSAGE_IF_ERROR(commsched_engine_set_parameter_range(
          engine_, p, offset, initial.data(), count));
    }
    return "";
  }

  std::string Step(uint32_t step) {
    const uint32_t micro_batches =
        spec_.options.micro_batches == 0 ? 1 : spec_.options.micro_batches;
    const auto num_modules = static_cast<uint32_t>(ToyModules().size());
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    for (uint32_t mb = 0; mb < micro_batches; ++mb) {
      for (uint32_t m = 0; m < num_modules; ++m) {
        RETURN_MESSAGE_IF_ERROR(Forward(m, mb));
      }
      for (uint32_t m = num_modules; m-- > 0;) {
        RETURN_MESSAGE_IF_ERROR(
            Backward(m, mb, uint64_t{step} * micro_batches + mb));
      }
    }
    RETURN_MESSAGE_IF_ERROR(
        commsched::engine::UpdateWith(engine_, engine::kToyLearningRate));
    return Message(commsched_engine_step_end(engine_));
  }

  std::string Forward(uint32_t module, uint32_t mb) {
    RETURN_MESSAGE_IF_ERROR(engine::ForwardBegin(engine_, module, mb));
    RETURN_MESSAGE_IF_ERROR(Checksums(module, nullptr));
    return Message(engine::ForwardEnd(engine_, module, mb));
  }

  std::string Backward(uint32_t module, uint32_t mb, uint64_t pass) {
    RETURN_MESSAGE_IF_ERROR(engine::BackwardBegin(engine_, module, mb));
    RETURN_MESSAGE_IF_ERROR(Checksums(module, place_.num_differ()));
    for (uint32_t p : ToyModules()[module].used) {
      const void* values = nullptr;
      void* gradients = nullptr;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_address(engine_, p, &values, &gradients));
      const uint64_t where =
          ((pass * 64 + static_cast<uint64_t>(rank_)) * 8 + module) * 8 + p;
      RETURN_MESSAGE_IF_ERROR(place_.Run<AddGradient>(
          {values, gradients, loss_scale_, where, ToyParameters()[p].count(),
           spec_.options.parameter_dtype}));
    }
    return Message(engine::BackwardEnd(engine_, module, mb));
  }

  std::string Checksums(uint32_t module, uint64_t* num_differ) {
    for (uint32_t p : ToyModules()[module].used) {
      const void* values = nullptr;
      void* gradients = nullptr;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_address(engine_, p, &values, &gradients));
      RETURN_MESSAGE_IF_ERROR(place_.Run<Checksum>(
          {values, place_.sum(p), num_differ, ToyParameters()[p].count(),
           spec_.options.parameter_dtype}));
    }
    return "";
  }

  std::string Read(uint32_t parameter, std::vector<float>* out) {
    out->resize(ToyParameters()[parameter].count());
    return Message(commsched_engine_get_parameter(engine_, parameter,
                                                  out->data(), out->size()));
  }

  // Of all parameters, end to end; in stage 3 by an evaluation.
  std::string Weights(std::vector<float>* out) {
    std::vector<std::vector<float>> values(ToyParameters().size());
    if (spec_.options.zero_stage == 3) {
      RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine_));
      for (uint32_t m = 0; m < ToyModules().size(); ++m) {
        RETURN_MESSAGE_IF_ERROR(engine::ForwardBegin(engine_, m, 0));
        for (uint32_t p : ToyModules()[m].used) {
          RETURN_MESSAGE_IF_ERROR(Read(p, &values[p]));
        }
        RETURN_MESSAGE_IF_ERROR(engine::ForwardEnd(engine_, m, 0));
      }
      RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_end(engine_));
    } else {
      for (uint32_t p = 0; p < values.size(); ++p) {
        RETURN_MESSAGE_IF_ERROR(Read(p, &values[p]));
      }
    }
    for (const std::vector<float>& each : values) {
      out->insert(out->end(), each.begin(), each.end());
    }
    return "";
  }

  const TrainingSpec& spec_;
  commsched_world_t* const world_;
  const int32_t rank_;
  Place place_;  // Outlives the engine, which uses its stream.
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const engine::ModelHandle model_ = engine::NewModel();
  commsched_engine_t* engine_ = nullptr;
  const double* loss_scale_ = nullptr;
};

}  // namespace

TrainingEnd TrainRank(const TrainingSpec& spec, commsched_world_t* world,
                      int32_t rank) {
  TrainingEnd end;
  Trainer trainer(spec, world, rank);
  end.error = trainer.Run(&end);
  return end;
}

std::vector<TrainingEnd> TrainAll(const TrainingSpec& spec) {
  std::vector<TrainingEnd> ends(static_cast<size_t>(spec.ranks));
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = spec.ranks;
  if (spec.launcher != nullptr) {
    desc.backend = "nccl";
    desc.device_kind = COMMSCHED_DEVICE_CUDA;
  }
  commsched_world_t* world = nullptr;
  if (commsched_world_create_inproc(&desc, &world) != COMMSCHED_OK) {
    ends[0].error = commsched_last_error();
    return ends;
  }
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < spec.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ends[static_cast<size_t>(rank)] = TrainRank(spec, world, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  commsched_world_destroy(world);
  return ends;
}

}  // namespace commsched::gpu_check
