#include "test/gpu_check/job.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/cuda_device.h"
#include "session/backend_model.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/step_graph.h"
#include "test/support/rank_group.h"

namespace commsched::gpu_check {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kTimeoutNs = int64_t{40} * 1000 * 1000 * 1000;

double Seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What a session calls back.
struct Job::Running {
  const Job* job;
  const Rank* rank;
  const RunSpec* spec;
  Session* session;

  static absl::Status Compute(void* user, OpId op, Stream* stream) {
    return static_cast<const Running*>(user)->Enqueue(op, stream);
  }
  // What Session::Run() does between the calls that begin and end a step.
  absl::Status EnqueueStep(
      const std::function<absl::Status()>& between = nullptr) const {
    for (const ComputeNode& node : job->plan_->nodes) {
      RETURN_IF_ERROR(session->Before(node.op, rank->lane.get()));
      RETURN_IF_ERROR(Enqueue(node.op, rank->lane.get()));
      RETURN_IF_ERROR(session->After(node.op, rank->lane.get()));
      if (between != nullptr) RETURN_IF_ERROR(between());
    }
    return absl::OkStatus();
  }
  absl::Status Enqueue(OpId op, Stream* stream) const {
    if (spec->moves_data) RETURN_IF_ERROR(Copy(op, stream));
    if (spec->work == nullptr || op == job->update_) return absl::OkStatus();
    return spec->work(rank->device,
                      static_cast<cudaStream_t>(stream->handle().native));
  }
  absl::Status Copy(OpId op, Stream* stream) const {
    for (size_t i = 0; i < job->given_.size(); ++i) {
      if (op == job->update_) {
        ASSIGN_OR_RETURN(const void* result,
                         session->Address(op, job->results_[i]));
        stream->Copy({.to = rank->memory[job->copies_[i].value()],
                      .from = result,
                      .row_bytes = job->ResultElements() * sizeof(float)});
        if (job->shape_.feeds_back) FeedBack(i, result, stream);
      } else if (op == job->backward_[i]) {
        ASSIGN_OR_RETURN(void* gradient,
                         session->Address(op, job->gradients_[i]));
        stream->Copy({.to = gradient,
                      .from = rank->memory[job->given_[i].value()],
                      .row_bytes = job->shape_.elements * sizeof(float)});
      }
    }
    return absl::OkStatus();
  }
  void FeedBack(size_t bucket, const void* result, Stream* stream) const {
    const uint64_t bytes = job->shape_.elements * sizeof(float);
    const auto next_rank =
        static_cast<uint64_t>((rank->rank + 1) % job->shape_.ranks);
    const bool gathers = job->shape_.kind == CollectiveKind::kAllGather;
    const size_t next_bucket = (bucket + 1) % job->given_.size();
    stream->Copy({.to = rank->memory[job->given_[next_bucket].value()],
                  .from = static_cast<const std::byte*>(result) +
                          (gathers ? next_rank * bytes : 0),
                  .row_bytes = bytes});
  }
};

Job::Job(const StepShape& shape) : shape_(shape) {
  const GroupId group = graph_.AddGroup(shape.axis, shape.ranks).value();
  const bool gathers = shape.kind == CollectiveKind::kAllGather;
  Op update;
  update.name = "update";
  for (int i = 0; i < shape.buckets; ++i) {
    const auto add = [&](const char* name, Ownership ownership,
                         uint64_t count) {
      Buffer buffer;
      buffer.name = absl::StrCat(name, i);
      buffer.ownership = ownership;
      buffer.count = count;
      return graph_.AddBuffer(buffer).value();
    };
    given_.push_back(add("given", Ownership::kBound, shape.elements));
    gradients_.push_back(add("gradient", Ownership::kOwned, shape.elements));
    results_.push_back(gathers
                           ? add("whole", Ownership::kOwned, ResultElements())
                           : gradients_.back());
    copies_.push_back(add("copy", Ownership::kBound, ResultElements()));
    Op backward;
    backward.name = absl::StrCat("backward", i);
    backward.accesses = {{given_.back(), AccessMode::kRead, {}},
                         {gradients_.back(), AccessMode::kWrite, {}}};
    backward_.push_back(graph_.AddOp(backward).value());
    Op collective;
    collective.name = absl::StrCat("collective", i);
    collective.kind = OpKind::kCollective;
    collective.collective.kind = shape.kind;
    collective.collective.group = group;
    collective.collective.input = {gradients_.back(), AccessMode::kRead, {}};
    collective.collective.output = {results_.back(), AccessMode::kWrite, {}};
    (void)graph_.AddOp(collective).value();
    update.accesses.push_back({results_.back(), AccessMode::kRead, {}});
    update.accesses.push_back({copies_.back(), AccessMode::kWrite, {}});
    if (shape.feeds_back) {
      update.accesses.push_back({given_.back(), AccessMode::kWrite, {}});
    }
  }
  update_ = graph_.AddOp(update).value();
}

Job::~Job() {
  for (Rank& rank : ranks_) {
    for (void* memory : rank.memory) {
      if (memory != nullptr) world_->device(rank.rank)->Free(memory);
    }
  }
}

uint64_t Job::ResultElements() const {
  return shape_.kind == CollectiveKind::kAllGather
             ? shape_.elements * static_cast<uint64_t>(shape_.ranks)
             : shape_.elements;
}

absl::Status Job::MakePlan(const PlanOptions& options) {
  ASSIGN_OR_RETURN(cuda_, CudaRuntime::Get());
  ASSIGN_OR_RETURN(const commsched_backend_t* nccl, Nccl());
  PlanOptions for_nccl = options;
  for_nccl.backend = ModelOf(*nccl);
  ASSIGN_OR_RETURN(plan_, BuildPlan(graph_, for_nccl, CostProfile{}));
  return absl::OkStatus();
}

absl::Status Job::Make(const PlanOptions& options,
                       std::shared_ptr<World> world) {
  RETURN_IF_ERROR(MakePlan(options));
  world_ = std::move(world);
  if (world_ == nullptr) RETURN_IF_ERROR(MakeWorld());
  if (world_->own_rank() != World::kAllRanks) {
    return AddRank(world_->own_rank());
  }
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    RETURN_IF_ERROR(AddRank(rank));
  }
  return absl::OkStatus();
}

absl::Status Job::MakeRank(const PlanOptions& options,
                           std::shared_ptr<World> world, int rank) {
  RETURN_IF_ERROR(MakePlan(options));
  world_ = std::move(world);
  return AddRank(rank);
}

absl::Status Job::MakeWorld() {
  ASSIGN_OR_RETURN(const commsched_backend_t* nccl, Nccl());
  WorldSpec spec;
  spec.size = shape_.ranks;
  spec.table = nccl;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    ASSIGN_OR_RETURN(std::shared_ptr<Device> device, OpenCudaDevice(rank));
    spec.devices.push_back(std::move(device));
  }
  ASSIGN_OR_RETURN(world_, World::Create(spec));
  return absl::OkStatus();
}

absl::Status Job::AddRank(int rank) {
  Device* const device = world_->device(rank);
  RETURN_IF_ERROR(
      cuda_->Check("cudaSetDevice", cuda_->SetDevice(device->ordinal())));
  ranks_.push_back({.rank = rank,
                    .device = device->ordinal(),
                    .lane = nullptr,
                    .origin = nullptr,
                    .memory = std::vector<void*>(graph_.buffers().size())});
  Rank& added = ranks_.back();
  ASSIGN_OR_RETURN(added.lane, device->CreateSideStream());
  ASSIGN_OR_RETURN(added.origin, device->CreateSideStream());
  for (size_t b = 0; b < graph_.buffers().size(); ++b) {
    const Buffer& buffer = graph_.buffers()[b];
    if (buffer.ownership != Ownership::kBound) continue;
    ASSIGN_OR_RETURN(added.memory[b], device->Allocate(buffer.bytes()));
  }
  return Fill(added);
}

absl::Status Job::Fill(const Rank& rank) {
  RETURN_IF_ERROR(cuda_->Check("cudaSetDevice", cuda_->SetDevice(rank.device)));
  for (BufferId copy : copies_) {
    RETURN_IF_ERROR(cuda_->Check(
        "cudaMemset", cuda_->Memset(rank.memory[copy.value()], 0,
                                    ResultElements() * sizeof(float))));
  }
  std::vector<float> values(shape_.elements, static_cast<float>(rank.rank + 1));
  for (size_t i = 0; i < given_.size(); ++i) {
    for (size_t k = 0; shape_.feeds_back && k < values.size(); ++k) {
      values[k] =
          static_cast<float>(static_cast<size_t>(rank.rank) + 1 + i + k % 5);
    }
    RETURN_IF_ERROR(cuda_->Check(
        "cudaMemcpy",
        cuda_->Memcpy(rank.memory[given_[i].value()], values.data(),
                      values.size() * sizeof(float), cudaMemcpyHostToDevice)));
  }
  // The lane does not wait for the stream of these calls.
  return cuda_->Check("cudaStreamSynchronize",
                      cuda_->StreamSynchronize(nullptr));
}

absl::Status Job::Reset() {
  for (const Rank& rank : ranks_) RETURN_IF_ERROR(Fill(rank));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> Job::ReadMemory() {
  std::vector<uint32_t> bits;
  for (const Rank& rank : ranks_) {
    for (size_t b = 0; b < rank.memory.size(); ++b) {
      if (rank.memory[b] == nullptr) continue;
      const uint64_t bytes = graph_.buffers()[b].bytes();
      const size_t first = bits.size();
      bits.resize(first + bytes / sizeof(uint32_t));
      RETURN_IF_ERROR(cuda_->Check(
          "cudaMemcpy", cuda_->Memcpy(&bits[first], rank.memory[b], bytes,
                                      cudaMemcpyDeviceToHost)));
    }
  }
  return bits;
}

absl::Status Job::Run(const RunSpec& spec, Times* times) {
  *times = {};
  if (ranks_.size() == 1) return RunRank(ranks_[0], spec, times);
  std::vector<Times> of_ranks(ranks_.size());
  const absl::Status status =
      RunAllRanks(static_cast<int>(ranks_.size()), [&](int i) {
        const auto index = static_cast<size_t>(i);
        return RunRank(ranks_[index], spec, &of_ranks[index]);
      });
  *times = of_ranks[0];
  return status;
}

absl::Status Job::RunRank(Rank& rank, const RunSpec& spec, Times* times) {
  RETURN_IF_ERROR(cuda_->Check("cudaSetDevice", cuda_->SetDevice(rank.device)));
  ASSIGN_OR_RETURN(const auto session, Session::Create(Spec(rank)));
  Running running = {this, &rank, &spec, session.get()};
  RETURN_IF_ERROR(session->Run(&Running::Compute, &running, spec.warm_up));
  StepGraph graph(session.get(), rank.origin.get());
  if (spec.captured) {
    RETURN_IF_ERROR(graph.Capture([&] { return running.EnqueueStep(); }));
  }
  RETURN_IF_ERROR(session->Drain());
  RETURN_IF_ERROR(session->Run(&Running::Compute, &running, spec.plain_around));
  const auto begin = SteadyClock::now();
  for (uint64_t step = 0; step < spec.steps; ++step) {
    const auto step_begin = SteadyClock::now();
    RETURN_IF_ERROR(spec.captured
                        ? graph.Launch()
                        : session->Run(&Running::Compute, &running, 1));
    times->enqueue_s.push_back(Seconds(SteadyClock::now() - step_begin));
    if (spec.drains_each_step) RETURN_IF_ERROR(session->Drain());
  }
  RETURN_IF_ERROR(session->Drain());
  times->step_s =
      Seconds(SteadyClock::now() - begin) / static_cast<double>(spec.steps);
  RETURN_IF_ERROR(session->Run(&Running::Compute, &running, spec.plain_around));
  return session->Drain();
}

absl::Status Job::Abort(std::vector<double>* out_ended_s) {
  Rank& rank = ranks_[0];
  RETURN_IF_ERROR(cuda_->Check("cudaSetDevice", cuda_->SetDevice(rank.device)));
  ASSIGN_OR_RETURN(const auto session, Session::Create(Spec(rank)));
  const RunSpec spec;
  Running running = {this, &rank, &spec, session.get()};
  RETURN_IF_ERROR(session->Run(&Running::Compute, &running, spec.warm_up));
  StepGraph graph(session.get(), rank.origin.get());
  RETURN_IF_ERROR(graph.Capture([&] { return running.EnqueueStep(); }));
  RETURN_IF_ERROR(graph.Launch());
  RETURN_IF_ERROR(session->Drain());
  return AbortReplay(rank, session.get(), &graph, out_ended_s);
}

absl::Status Job::AbortReplay(const Rank& rank, Session* session,
                              StepGraph* graph,
                              std::vector<double>* out_ended_s) {
  const auto await_end = [&]() -> absl::Status {
    const auto begin = SteadyClock::now();
    const auto origin = static_cast<cudaStream_t>(rank.origin->handle().native);
    RETURN_IF_ERROR(cuda_->Check("cudaStreamSynchronize",
                                 cuda_->StreamSynchronize(origin)));
    out_ended_s->push_back(Seconds(SteadyClock::now() - begin));
    return absl::OkStatus();
  };
  if (rank.rank == 0) {
    RETURN_IF_ERROR(graph->Launch());
    session->Abort("enough");
  }
  while (session->status().ok()) std::this_thread::yield();
  if (rank.rank == 0) RETURN_IF_ERROR(await_end());
  RETURN_IF_ERROR(graph->LaunchUnheard());
  RETURN_IF_ERROR(await_end());
  const absl::Status status = session->status();
  if (absl::IsAborted(status)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the session says: ", status.ToString()));
}

Job::Steps::Steps(Job* job, std::unique_ptr<Session> session)
    : session_(std::move(session)),
      running_(std::make_unique<Running>(
          Running{job, &job->ranks_[0], &spec_, session_.get()})) {}

Job::Steps::~Steps() = default;

absl::Status Job::Steps::Enqueue(const std::function<absl::Status()>& between) {
  RETURN_IF_ERROR(session_->StepBegin());
  RETURN_IF_ERROR(running_->EnqueueStep(between));
  return session_->StepEnd();
}

absl::Status Job::Steps::Drain() { return session_->Drain(); }

absl::StatusOr<std::unique_ptr<Job::Steps>> Job::Open() {
  Rank& rank = ranks_[0];
  RETURN_IF_ERROR(cuda_->Check("cudaSetDevice", cuda_->SetDevice(rank.device)));
  ASSIGN_OR_RETURN(auto session, Session::Create(Spec(rank)));
  return std::unique_ptr<Steps>(new Steps(this, std::move(session)));
}

absl::Status Job::CheckResults() {
  std::vector<float> expected(
      ResultElements(),
      static_cast<float>(shape_.ranks * (shape_.ranks + 1)) / 2);
  for (uint64_t i = 0;
       shape_.kind == CollectiveKind::kAllGather && i < expected.size(); ++i) {
    expected[i] = static_cast<float>(i / shape_.elements + 1);
  }
  std::vector<float> found(expected.size());
  for (const Rank& rank : ranks_) {
    for (BufferId copy : copies_) {
      RETURN_IF_ERROR(cuda_->Check(
          "cudaMemcpy",
          cuda_->Memcpy(found.data(), rank.memory[copy.value()],
                        found.size() * sizeof(float), cudaMemcpyDeviceToHost)));
      for (size_t i = 0; i < found.size(); ++i) {
        if (found[i] == expected[i]) continue;
        return absl::InternalError(
            absl::StrCat("element ", i, " of a result of rank ", rank.rank,
                         " is ", found[i], ", not ", expected[i]));
      }
    }
  }
  return absl::OkStatus();
}

SessionSpec Job::Spec(Rank& rank) {
  SessionSpec spec;
  spec.world = world_;
  spec.world_rank = rank.rank;
  spec.instance = shape_.first_instance + rank.num_runs++;
  spec.plan = plan_;
  spec.launch_timeout_ns = kTimeoutNs;
  GroupSpec group;
  group.axis = shape_.axis;
  for (int i = 0; i < shape_.ranks; ++i) group.ranks.push_back(i);
  group.rank = rank.rank;
  spec.groups = {group};
  for (uint32_t b = 0; b < rank.memory.size(); ++b) {
    if (rank.memory[b] == nullptr) continue;
    spec.bindings.push_back(
        {BufferId(b), rank.memory[b], graph_.buffers()[b].bytes()});
  }
  spec.lanes.assign(plan_->num_compute_lanes, rank.lane.get());
  return spec;
}

}  // namespace commsched::gpu_check
