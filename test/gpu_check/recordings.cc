// Eager programs on a device that are recorded and replayed: what a rank leaves
// out, memory that moves, and buckets that are cut anew. Ops copy from and to
// pinned memory, on a stream of the program's; the host looks at the end.
#include "test/gpu_check/recordings.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/cuda_device.h"
#include "recording/recording.h"
#include "test/gpu_check/gpu_check.h"
#include "test/support/rank_group.h"

namespace commsched::gpu_check {
namespace {

constexpr uint64_t kCount = 1 << 14;
constexpr uint64_t kBytes = kCount * sizeof(int32_t);
constexpr int kSteps = 24;
constexpr int64_t kTimeoutNs = int64_t{20} * 1000 * 1000 * 1000;

// Of this process: each recording takes one, and one for each of its plans, on
// all ranks alike. Ranks that are threads have one each.
struct Instances {
  std::atomic<uint64_t> next{uint64_t{1} << 20};
};

// Memory of the device, or of the host, that goes with it.
class Memory {
 public:
  Memory(Device* device, bool is_pinned)
      : device_(device), is_pinned_(is_pinned) {}
  ~Memory() {
    for (void* address : all_) {
      if (is_pinned_) {
        device_->FreeOnHost(address);
      } else {
        device_->Free(address);
      }
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  absl::StatusOr<int32_t*> Add() {
    ASSIGN_OR_RETURN(void* const address, is_pinned_
                                              ? device_->AllocateOnHost(kBytes)
                                              : device_->Allocate(kBytes));
    all_.push_back(address);
    return static_cast<int32_t*>(address);
  }

 private:
  Device* const device_;
  const bool is_pinned_;
  std::vector<void*> all_;
};

int32_t ValueOf(int step, int rank, uint64_t i) {
  return 1000 * step + 100 * rank + static_cast<int32_t>(i % 89);
}

// A rank's eager program: writes a gradient, all-reduces it, and reads it.
class Program {
 public:
  Program(std::shared_ptr<World> world, int rank, Instances* instances)
      : world_(std::move(world)),
        rank_(rank),
        instances_(*instances),
        device_(world_->device(rank)),
        on_device_(device_, /*is_pinned=*/false),
        on_host_(device_, /*is_pinned=*/true) {}

  absl::Status Make() {
    ASSIGN_OR_RETURN(stream_, device_->CreateSideStream());
    RecordingSpec spec;
    spec.world = world_;
    spec.world_rank = rank_;
    spec.take_instance = [this] { return instances_.next++; };
    GroupSpec group;
    group.axis = "dp";
    for (int r = 0; r < size(); ++r) group.ranks.push_back(r);
    group.rank = rank_;
    spec.groups.push_back(group);
    spec.lanes = {stream_.get()};
    spec.launch_timeout_ns = kTimeoutNs;
    ASSIGN_OR_RETURN(recording_, Recording::Create(std::move(spec)));
    for (int t = 0; t < kSteps; ++t) {
      ASSIGN_OR_RETURN(int32_t* const input, on_host_.Add());
      ASSIGN_OR_RETURN(int32_t* const output, on_host_.Add());
      for (uint64_t i = 0; i < kCount; ++i) input[i] = ValueOf(t, rank_, i);
      inputs_.push_back(input);
      outputs_.push_back(output);
    }
    return absl::OkStatus();
  }

  // `name`: of the buffer. LATE_BOUND if `address` is null.
  absl::Status Declare(const std::string& name, int32_t* address) {
    Buffer buffer;
    buffer.name = name;
    buffer.dtype = DType::kI32;
    buffer.ownership =
        address == nullptr ? Ownership::kLateBound : Ownership::kBound;
    buffer.count = kCount;
    ASSIGN_OR_RETURN(buffer_, recording_->AddBuffer(buffer, address));
    const auto add_op = [&](const char* what, AccessMode mode) {
      Op op;
      op.name = absl::StrCat(what, name);
      op.accesses = {{buffer_, mode, {}}};
      return recording_->AddCompute(op, 0);
    };
    ASSIGN_OR_RETURN(write_, add_op("write ", AccessMode::kWrite));
    Op reduce;
    reduce.name = absl::StrCat("reduce ", name);
    reduce.kind = OpKind::kCollective;
    reduce.collective.group = GroupId(0);
    reduce.collective.input = {buffer_, AccessMode::kRead, {}};
    reduce.collective.output = {buffer_, AccessMode::kWrite, {}};
    ASSIGN_OR_RETURN(reduce_, recording_->AddCollective(reduce, 0, {}));
    ASSIGN_OR_RETURN(read_, add_op("read ", AccessMode::kRead));
    bound_ = address;
    return absl::OkStatus();
  }

  absl::Status Remove() {
    for (const OpId op : {write_, reduce_, read_}) {
      RETURN_IF_ERROR(recording_->RemoveOp(op.value()));
    }
    return recording_->RemoveBuffer(buffer_);
  }

  // `moved`: where the buffer is in this step; null: where it was declared.
  absl::Status Step(int t, bool reduces, int32_t* moved) {
    int32_t* const memory = moved == nullptr ? bound_ : moved;
    RETURN_IF_ERROR(recording_->StepBegin());
    RETURN_IF_ERROR(recording_->Before(write_.value(), stream_.get()));
    stream_->Copy({.to = memory, .from = inputs_[At(t)], .row_bytes = kBytes});
    RETURN_IF_ERROR(recording_->After(write_.value(), stream_.get()));
    if (reduces) {
      const LateBinding late = {buffer_, moved, kCount, {}};
      RETURN_IF_ERROR(recording_->Submit(
          reduce_.value(), moved == nullptr ? absl::Span<const LateBinding>()
                                            : absl::MakeConstSpan(&late, 1)));
    }
    RETURN_IF_ERROR(recording_->Before(read_.value(), stream_.get()));
    stream_->Copy({.to = outputs_[At(t)], .from = memory, .row_bytes = kBytes});
    RETURN_IF_ERROR(recording_->After(read_.value(), stream_.get()));
    return recording_->StepEnd();
  }

  // Once all is drained: step `t`, in which ranks from `num_reducing` on have
  // left the reduction out.
  absl::Status Check(int t, int num_reducing) const {
    for (uint64_t i = 0; i < kCount; ++i) {
      int32_t expected = 0;
      for (int r = 0; r < num_reducing; ++r) expected += ValueOf(t, r, i);
      if (rank_ >= num_reducing) expected = ValueOf(t, rank_, i);
      if (outputs_[At(t)][i] == expected) continue;
      return absl::InternalError(absl::StrCat("step ", t, ": element ", i,
                                              " is ", outputs_[At(t)][i],
                                              ", not ", expected));
    }
    return absl::OkStatus();
  }

  int size() const { return world_->spec().size; }
  int rank() const { return rank_; }
  Recording& recording() { return *recording_; }
  Memory& on_device() { return on_device_; }

 private:
  static size_t At(int t) { return static_cast<size_t>(t); }

  const std::shared_ptr<World> world_;
  const int rank_;
  Instances& instances_;
  Device* const device_;
  Memory on_device_, on_host_;
  std::vector<int32_t*> inputs_, outputs_;  // by step
  int32_t* bound_ = nullptr;
  std::unique_ptr<Stream> stream_;
  BufferId buffer_;
  OpId write_, reduce_, read_;
  std::unique_ptr<Recording> recording_;  // goes before its memory
};

// In three steps the last rank reduces nothing.
absl::Status Deviate(Program* program) {
  constexpr int kFirst = 6;
  constexpr int kEnd = 9;
  RETURN_IF_ERROR(program->Make());
  ASSIGN_OR_RETURN(int32_t* const memory, program->on_device().Add());
  RETURN_IF_ERROR(program->Declare("grad", memory));
  const int last = program->size() - 1;
  const auto leaves_out = [](int t) { return t >= kFirst && t < kEnd; };
  for (int t = 0; t < kSteps; ++t) {
    RETURN_IF_ERROR(
        program->Step(t, !(leaves_out(t) && program->rank() == last), nullptr));
  }
  RETURN_IF_ERROR(program->recording().Drain());
  for (int t = 0; t < kSteps; ++t) {
    RETURN_IF_ERROR(program->Check(t, leaves_out(t) ? last : last + 1));
  }
  const RecordingInfo info = program->recording().info();
  if (info.deviating_rank == last && info.deviating_step == kEnd - 1 &&
      info.rerecordings == 1) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "rank ", info.deviating_rank, " is said to have deviated in step ",
      info.deviating_step, ", and ", info.rerecordings,
      " times steps were recorded again; it was rank ", last, " in step ",
      kEnd - 1, ", and once"));
}

absl::Status Move(Program* program) {
  RETURN_IF_ERROR(program->Make());
  RETURN_IF_ERROR(program->Declare("grad", nullptr));
  std::vector<int32_t*> places;
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(int32_t* const place, program->on_device().Add());
    places.push_back(place);
  }
  for (int t = 0; t < kSteps; ++t) {
    RETURN_IF_ERROR(
        program->Step(t, true, places[static_cast<size_t>(t) % places.size()]));
  }
  RETURN_IF_ERROR(program->recording().Drain());
  for (int t = 0; t < kSteps; ++t) {
    RETURN_IF_ERROR(program->Check(t, program->size()));
  }
  return absl::OkStatus();
}

absl::Status DeclareAnew(Program* program) {
  RETURN_IF_ERROR(program->Make());
  ASSIGN_OR_RETURN(int32_t* const memory, program->on_device().Add());
  RETURN_IF_ERROR(program->Declare("grad", memory));
  for (int t = 0; t < kSteps; ++t) {
    if (t == 1 || t == kSteps / 2) {
      RETURN_IF_ERROR(program->Remove());
      ASSIGN_OR_RETURN(int32_t* const other, program->on_device().Add());
      RETURN_IF_ERROR(program->Declare(absl::StrCat("grad ", t), other));
    }
    RETURN_IF_ERROR(program->Step(t, true, nullptr));
  }
  RETURN_IF_ERROR(program->recording().Drain());
  for (int t = 0; t < kSteps; ++t) {
    RETURN_IF_ERROR(program->Check(t, program->size()));
  }
  const uint64_t plans = program->recording().info().plans;
  if (plans == 2) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(plans, " plans were made, not 2"));
}

std::vector<Result> RunAll(const std::shared_ptr<World>& world, int rank,
                           Instances* instances) {
  struct Check {
    const char* name;
    absl::Status (*run)(Program*);
  };
  constexpr Check kChecks[] = {
      {"a recorded program leaves a reduction out on one rank", Deviate},
      {"memory of a recorded program moves", Move},
      {"a recorded program is declared anew", DeclareAnew}};
  std::vector<Result> results;
  for (const Check& check : kChecks) {
    absl::Status status;
    {
      Program program(world, rank, instances);
      status = check.run(&program);
    }
    const bool holds = status.ok();
    results.push_back({check.name, std::move(status),
                       holds ? absl::StrCat(kSteps, " steps") : ""});
    if (!holds) break;  // The ranks are no longer at one.
  }
  return results;
}

}  // namespace

std::vector<Result> RecordingsOf(const std::shared_ptr<World>& world,
                                 int rank) {
  Instances instances;
  return RunAll(world, rank, &instances);
}

void CheckRecordings(int ranks, Results* results) {
  const auto make_world = [&]() -> absl::StatusOr<std::shared_ptr<World>> {
    WorldSpec spec;
    spec.size = ranks;
    ASSIGN_OR_RETURN(spec.table, Nccl());
    for (int rank = 0; rank < ranks; ++rank) {
      ASSIGN_OR_RETURN(std::shared_ptr<Device> device, OpenCudaDevice(rank));
      spec.devices.push_back(std::move(device));
    }
    return World::Create(spec);
  };
  const auto world = make_world();
  if (!world.ok()) return results->Add("recordings", world.status());
  std::vector<std::vector<Result>> of_rank(static_cast<size_t>(ranks));
  (void)RunRanks(ranks, [&](int rank) {
    of_rank[static_cast<size_t>(rank)] = RecordingsOf(*world, rank);
    return absl::OkStatus();
  });
  for (size_t i = 0; i < of_rank[0].size(); ++i) {
    Result result = of_rank[0][i];
    for (size_t rank = 1; rank < of_rank.size(); ++rank) {
      if (!result.status.ok() || i >= of_rank[rank].size()) break;
      result = of_rank[rank][i];
    }
    result.figures = absl::StrCat(RanksText(ranks), ", ", result.figures);
    results->Add(result);
  }
}

}  // namespace commsched::gpu_check
