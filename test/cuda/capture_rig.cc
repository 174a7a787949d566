#include "test/cuda/capture_rig.h"

#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched::test {
namespace {

absl::Status CudaStatus(const char* call, cudaError_t code) {
  if (code == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", static_cast<int>(code)));
}

}  // namespace

CaptureStep::CaptureStep(int num_ranks) : ranks(num_ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::shared_ptr<Device> device = FakeDevice(rank);
    origins.push_back(device->CreateSideStream().value());
    others.push_back(device->CreateSideStream().value());
    devices.push_back(device);
  }
  const GroupId group = graph.AddGroup("dp", ranks).value();
  Region shard;
  shard.kind = RegionKind::kShard;
  shard.group = group;
  const auto compute = [&](std::string name, uint32_t lane,
                           std::vector<Access> accesses) {
    Op op;
    op.name = std::move(name);
    op.accesses = std::move(accesses);
    op.compute.lane = lane;
    return graph.AddOp(op).value();
  };
  const auto collective = [&](std::string name, CollectiveKind kind,
                              Access input, Access output) {
    Op op;
    op.name = std::move(name);
    op.kind = OpKind::kCollective;
    op.collective.kind = kind;
    op.collective.group = group;
    op.collective.input = input;
    op.collective.output = output;
    (void)graph.AddOp(op).value();
  };
  const auto count = [&](std::string name, std::vector<OpId> after) {
    Buffer buffer;
    buffer.name = absl::StrCat("counter of ", name);
    buffer.count = 2;
    buffer.ownership = Ownership::kBound;
    counters.push_back(graph.AddBuffer(buffer).value());
    Op op;
    op.name = std::move(name);
    op.accesses = {{counters.back(), AccessMode::kReadWrite, {}}};
    op.compute.lane = 1;
    op.after = std::move(after);
    counts.push_back(graph.AddOp(op).value());
  };
  count("count first", {});
  for (int i = 0; i < kBuckets; ++i) {
    Buffer buffer;
    buffer.count = kElements;
    buffer.name = absl::StrCat("parameter", i);
    buffer.ownership = Ownership::kBound;
    const BufferId parameter = graph.AddBuffer(buffer).value();
    buffer.name = absl::StrCat("gradient", i);
    buffer.ownership = Ownership::kOwned;
    const BufferId gradient = graph.AddBuffer(buffer).value();
    parameters.push_back(parameter);
    gradients.push_back(gradient);
    backward.push_back(compute(absl::StrCat("backward", i), 0,
                               {{parameter, AccessMode::kRead, {}},
                                {gradient, AccessMode::kWrite, {}}}));
    collective(absl::StrCat("scatter", i), CollectiveKind::kReduceScatter,
               {gradient, AccessMode::kRead, {}},
               {gradient, AccessMode::kWrite, shard});
    step.push_back(compute(absl::StrCat("step", i), 1,
                           {{gradient, AccessMode::kRead, shard},
                            {parameter, AccessMode::kReadWrite, shard}}));
    collective(absl::StrCat("gather", i), CollectiveKind::kAllGather,
               {parameter, AccessMode::kRead, shard},
               {parameter, AccessMode::kWrite, {}});
  }
  count("count last", step);
}

CaptureRank::CaptureRank(const CaptureStep& step, Session* session, GpuRig* rig,
                         int rank)
    : step_(step), session_(*session), rig_(*rig), rank_(rank) {}

// Graphs go first, then what they call.
CaptureRank::~CaptureRank() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(native(), &status);
  if (status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    (void)EndStream(&graph);
    cudaGraphDestroy(graph);
  }
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  session_.Drain().IgnoreError();
  for (uint32_t lane = 0; lane < rig_.plan().num_compute_lanes; ++lane) {
    rig_.lane(rank_, lane)->Synchronize();
  }
  origin()->Synchronize();
  other()->Synchronize();
}

absl::Status CaptureRank::RunPlain(int num_steps) {
  for (int t = 0; t < num_steps; ++t) {
    RETURN_IF_ERROR(session_.StepBegin());
    RETURN_IF_ERROR(EnqueueStep());
    RETURN_IF_ERROR(session_.StepEnd());
  }
  return absl::OkStatus();
}

absl::Status CaptureRank::EnqueueStep() {
  for (const ComputeNode& node : rig_.plan().nodes) {
    Stream* const stream = rig_.lane(rank_, node.lane);
    RETURN_IF_ERROR(session_.Before(node.op, stream));
    RETURN_IF_ERROR(Compute(node.op, stream));
    RETURN_IF_ERROR(session_.After(node.op, stream));
  }
  return absl::OkStatus();
}

absl::Status CaptureRank::BeginStream(cudaStreamCaptureMode mode) {
  return CudaStatus("cudaStreamBeginCapture",
                    cudaStreamBeginCapture(native(), mode));
}

absl::Status CaptureRank::EndStream(cudaGraph_t* out_graph) {
  return CudaStatus("cudaStreamEndCapture",
                    cudaStreamEndCapture(native(), out_graph));
}

absl::Status CaptureRank::Capture(cudaStreamCaptureMode mode) {
  RETURN_IF_ERROR(BeginStream(mode));
  absl::Status captured = session_.CaptureBegin(origin());
  captures_ = true;
  if (captured.ok()) captured = EnqueueStep();
  captures_ = false;
  if (captured.ok()) captured = session_.CaptureEnd();
  cudaGraph_t graph = nullptr;
  const absl::Status ended = EndStream(&graph);
  if (captured.ok() && ended.ok()) {
    captured =
        CudaStatus("cudaGraphInstantiate",
                   cudaGraphInstantiate(
                       &exec_, graph, cudaGraphInstantiateFlagUseNodePriority));
  }
  cudaGraphDestroy(graph);
  return captured.ok() ? ended : captured;
}

absl::Status CaptureRank::ReplayOn(Stream* stream, int num_steps) {
  const auto native = static_cast<cudaStream_t>(stream->handle().native);
  for (int t = 0; t < num_steps; ++t) {
    RETURN_IF_ERROR(session_.ReplayBegin(stream));
    RETURN_IF_ERROR(
        CudaStatus("cudaGraphLaunch", cudaGraphLaunch(exec_, native)));
    RETURN_IF_ERROR(session_.ReplayEnd());
  }
  return absl::OkStatus();
}

void CaptureRank::EnqueueOnOrigin(std::function<void()> work) {
  Enqueue(origin(), {}, std::move(work));
}

void CaptureRank::Enqueue(Stream* stream,
                          const std::vector<fake_gpu_range_t>& ranges,
                          std::function<void()> work) {
  fake_gpu_launch_ranges(
      stream->handle().native, "work", ranges.data(), ranges.size(),
      [](void* user) { (*static_cast<std::function<void()>*>(user))(); },
      step_.work->Keep(std::move(work)));
}

void CaptureRank::Count(BufferId buffer, Stream* stream) {
  float* const counter = Peek(rig_.Memory(rank_, buffer));
  const auto before = static_cast<float>(session_.counters().steps);
  const std::vector<fake_gpu_range_t> ranges = {
      {rig_.Memory(rank_, buffer), 2 * sizeof(float), 1}};
  Enqueue(stream, ranges, [counter, before, captures = captures_] {
    // Late, where a graph may come too early.
    for (int i = 0; !captures && i < 500; ++i) std::this_thread::yield();
    if (!captures && counter[0] != before) counter[1] += 1;
    counter[0] += 1;
  });
}

// Gradients are parameter + 1 + rank, and differ from element to element.
absl::Status CaptureRank::Compute(OpId op, Stream* stream) {
  for (size_t i = 0; i < step_.counts.size(); ++i) {
    if (op == step_.counts[i]) Count(step_.counters[i], stream);
  }
  for (int i = 0; i < CaptureStep::kBuckets; ++i) {
    const bool is_step = op == step_.step[i];
    if (!is_step && op != step_.backward[i]) continue;
    ASSIGN_OR_RETURN(void* gradient, session_.Address(op, step_.gradients[i]));
    float* const g = Peek(gradient);
    float* const p = Peek(rig_.Memory(rank_, step_.parameters[i]));
    const auto ranks = static_cast<uint64_t>(step_.ranks);
    const uint64_t shard = CaptureStep::kElements / ranks;
    const uint64_t first = static_cast<uint64_t>(rank_) * shard;
    const float of_rank = 1.f + static_cast<float>(rank_);
    auto* const parameter =
        static_cast<float*>(rig_.Memory(rank_, step_.parameters[i]));
    const size_t bytes = CaptureStep::kElements * sizeof(float);
    if (is_step) {
      const std::vector<fake_gpu_range_t> ranges = {
          {static_cast<float*>(gradient) + first, shard * sizeof(float), 0},
          {parameter + first, shard * sizeof(float), 1}};
      Enqueue(stream, ranges, [=] {
        for (uint64_t k = first; k < first + shard; ++k) {
          p[k] -= g[k] / (7.f * static_cast<float>(ranks));
        }
      });
    } else {
      const std::vector<fake_gpu_range_t> ranges = {{parameter, bytes, 0},
                                                    {gradient, bytes, 1}};
      Enqueue(stream, ranges, [=] {
        for (uint64_t k = 0; k < CaptureStep::kElements; ++k) {
          g[k] = p[k] * 0.9f + of_rank + static_cast<float>(k % 5);
        }
      });
    }
  }
  return absl::OkStatus();
}

std::vector<float> ParametersOf(GpuRig& rig, const CaptureStep& step) {
  std::vector<float> values;
  for (int rank = 0; rank < step.ranks; ++rank) {
    for (BufferId counter : step.counters) {
      const float* first = Peek(rig.Memory(rank, counter));
      values.insert(values.end(), first, first + 2);
    }
    for (BufferId parameter : step.parameters) {
      const float* first = Peek(rig.Memory(rank, parameter));
      values.insert(values.end(), first, first + CaptureStep::kElements);
    }
  }
  return values;
}

}  // namespace commsched::test
