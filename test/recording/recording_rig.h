// Ranks of one process whose eager programs are recorded.
#ifndef COMMSCHED_TEST_RECORDING_RECORDING_RIG_H_
#define COMMSCHED_TEST_RECORDING_RECORDING_RIG_H_

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/world.h"
#include "device/host_device.h"
#include "recording/recording.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched::test {

// Progress threads of the ranks of this process.
inline int NumProgressThreads() {
  int num = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    num += absl::StartsWith(name, "commsched/") ? 1 : 0;
  }
  return num;
}

// `modules` modules on each rank. Per module m, on integers:
//   bwd.m  grad.m = f(weight.m, grad.m, step, rank)
//   ar.m   sums grad.m over the ranks, in place
//   opt.m  weight.m = g(weight.m, grad.m)
// Ids are equal on all ranks.
struct ModulesSpec {
  int ranks = 3;
  int modules = 4;
  uint64_t count = 5;
  bool alternative = false;  // the all-reduces are
  bool early = false;        // the all-reduces are
  uint32_t segments = 1;     // module m is in segment m % segments
  uint32_t steps_to_record = 2;
  uint32_t max_recorded_steps = 16;
  uint64_t coalesce_bytes = 0;
  uint64_t partition_bytes = 0;
  std::string backend = "inproc";
  int64_t launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
  std::function<void(int rank)> on_take_instance = [](int) {};
  // What else is to be different, on the rank that the spec names.
  std::function<void(RecordingSpec*)> adjust = [](RecordingSpec*) {};
};

// What the ops of a module do, for the rank's program and for a reference.
inline int32_t Backward(int32_t weight, int32_t grad, int step, int rank) {
  return (weight + 3 * grad + 17 * step + 5 * rank) % 1000;
}
inline int32_t Optimize(int32_t weight, int32_t grad) {
  return (weight * 7 + grad) % 10007;
}

class ModulesRank {
 public:
  static absl::StatusOr<std::unique_ptr<ModulesRank>> Create(
      const ModulesSpec& spec, std::shared_ptr<World> world,
      std::atomic<uint64_t>* instances, int rank) {
    auto made = std::make_unique<ModulesRank>();
    made->rank_ = rank;
    RecordingSpec recording;
    recording.world = std::move(world);
    recording.world_rank = rank;
    recording.take_instance = [instances, rank, on = spec.on_take_instance] {
      on(rank);
      return (*instances)++;
    };
    GroupSpec group;
    group.axis = "dp";
    for (int r = 0; r < spec.ranks; ++r) group.ranks.push_back(r);
    group.rank = rank;
    recording.groups.push_back(group);
    recording.options.coalesce_bytes = spec.coalesce_bytes;
    recording.options.partition_bytes = spec.partition_bytes;
    recording.steps_to_record = spec.steps_to_record;
    recording.max_recorded_steps = spec.max_recorded_steps;
    recording.launch_timeout_ns = spec.launch_timeout_ns;
    spec.adjust(&recording);
    ASSIGN_OR_RETURN(made->recording_, Recording::Create(std::move(recording)));
    made->weight_.assign(spec.modules, std::vector<int32_t>(spec.count));
    made->grad_.assign(spec.modules, std::vector<int32_t>(spec.count));
    for (uint32_t s = 1; s < spec.segments; ++s) {
      RETURN_IF_ERROR(
          made->recording_->AddSegment(absl::StrCat("s", s)).status());
    }
    for (int m = 0; m < spec.modules; ++m) {
      RETURN_IF_ERROR(made->Declare(spec, m));
    }
    return made;
  }

  // `inside`: what else the program does between `before` and `after`.
  absl::Status Backward(
      int m, int step, const std::function<absl::Status()>& inside = [] {
        return absl::OkStatus();
      }) {
    RETURN_IF_ERROR(recording_->Before(bwd_[m], CallerStream()));
    for (size_t i = 0; i < grad_[m].size(); ++i) {
      grad_[m][i] = test::Backward(weight_[m][i], grad_[m][i], step, rank_);
    }
    RETURN_IF_ERROR(inside());
    return recording_->After(bwd_[m], CallerStream());
  }
  absl::Status Reduce(int m) { return recording_->Submit(ar_[m]); }
  absl::Status Optimize(int m) {
    RETURN_IF_ERROR(recording_->Before(opt_[m], CallerStream()));
    for (size_t i = 0; i < grad_[m].size(); ++i) {
      weight_[m][i] = test::Optimize(weight_[m][i], grad_[m][i]);
    }
    return recording_->After(opt_[m], CallerStream());
  }
  // Backward and reduction of each module of `order`, then its optimizer.
  absl::Status Step(const std::vector<int>& order, int step) {
    RETURN_IF_ERROR(recording_->StepBegin());
    for (int m : order) {
      RETURN_IF_ERROR(Backward(m, step));
      RETURN_IF_ERROR(Reduce(m));
    }
    for (int m : order) RETURN_IF_ERROR(Optimize(m));
    return recording_->StepEnd();
  }

  Recording& recording() { return *recording_; }
  int rank() const { return rank_; }
  const std::vector<int32_t>& weight(int m) const { return weight_[m]; }
  const std::vector<int32_t>& grad(int m) const { return grad_[m]; }
  uint32_t bwd(int m) const { return bwd_[m]; }
  uint32_t ar(int m) const { return ar_[m]; }
  uint32_t opt(int m) const { return opt_[m]; }

 private:
  absl::Status Declare(const ModulesSpec& spec, int m) {
    const uint32_t segment = static_cast<uint32_t>(m) % spec.segments;
    for (size_t i = 0; i < spec.count; ++i) {
      weight_[m][i] = static_cast<int32_t>(31 * m + 7 * i);
    }
    Buffer buffer;
    buffer.dtype = DType::kI32;
    buffer.ownership = Ownership::kBound;
    buffer.count = spec.count;
    buffer.name = absl::StrCat("weight.", m);
    ASSIGN_OR_RETURN(const BufferId weight,
                     recording_->AddBuffer(buffer, weight_[m].data()));
    buffer.name = absl::StrCat("grad.", m);
    ASSIGN_OR_RETURN(const BufferId grad,
                     recording_->AddBuffer(buffer, grad_[m].data()));
    Op op;
    op.name = absl::StrCat("bwd.", m);
    op.accesses = {{weight, AccessMode::kRead, {}},
                   {grad, AccessMode::kReadWrite, {}}};
    ASSIGN_OR_RETURN(OpId id, recording_->AddCompute(op, segment));
    bwd_.push_back(id.value());
    op = Op();
    op.name = absl::StrCat("ar.", m);
    op.kind = OpKind::kCollective;
    op.collective.group = GroupId(0);
    op.collective.input = {grad, AccessMode::kRead, {}};
    op.collective.output = {grad, AccessMode::kWrite, {}};
    ASSIGN_OR_RETURN(
        id, recording_->AddCollective(
                op, segment,
                {.alternative = spec.alternative, .early = spec.early}));
    ar_.push_back(id.value());
    op = Op();
    op.name = absl::StrCat("opt.", m);
    op.accesses = {{grad, AccessMode::kRead, {}},
                   {weight, AccessMode::kReadWrite, {}}};
    ASSIGN_OR_RETURN(id, recording_->AddCompute(op, segment));
    opt_.push_back(id.value());
    return absl::OkStatus();
  }

  int rank_ = 0;
  std::vector<std::vector<int32_t>> weight_, grad_;
  std::vector<uint32_t> bwd_, ar_, opt_;
  std::unique_ptr<Recording> recording_;  // goes before its memory
};

// What sequential ranks compute: in `calls[step][rank]`, the modules that the
// rank takes part in, in any order; a module left out contributes zeros and
// keeps its memory.
class ModulesReference {
 public:
  explicit ModulesReference(const ModulesSpec& spec)
      : weight_(spec.ranks,
                std::vector<std::vector<int32_t>>(
                    spec.modules, std::vector<int32_t>(spec.count))),
        grad_(weight_) {
    for (auto& rank : weight_) {
      for (size_t m = 0; m < rank.size(); ++m) {
        for (size_t i = 0; i < rank[m].size(); ++i) {
          rank[m][i] = static_cast<int32_t>(31 * m + 7 * i);
        }
      }
    }
  }

  struct Takes {
    bool backward = true, reduce = true, optimize = true;
  };
  // `takes[rank]` for module `m`.
  void Step(size_t m, int step, const std::vector<Takes>& takes) {
    for (size_t i = 0; i < weight_[0][m].size(); ++i) {
      int32_t sum = 0;
      for (size_t r = 0; r < takes.size(); ++r) {
        int32_t& grad = grad_[r][m][i];
        if (takes[r].backward) {
          grad =
              test::Backward(weight_[r][m][i], grad, step, static_cast<int>(r));
        }
        if (takes[r].reduce) sum += grad;
      }
      for (size_t r = 0; r < takes.size(); ++r) {
        if (takes[r].reduce) grad_[r][m][i] = sum;
        if (!takes[r].optimize) continue;
        weight_[r][m][i] = test::Optimize(weight_[r][m][i], grad_[r][m][i]);
      }
    }
  }

  const std::vector<int32_t>& weight(int rank, int m) const {
    return weight_[rank][m];
  }
  const std::vector<int32_t>& grad(int rank, int m) const {
    return grad_[rank][m];
  }

 private:
  std::vector<std::vector<std::vector<int32_t>>> weight_, grad_;
};

// Runs `body` on a thread per rank, each with its recording.
inline std::vector<absl::Status> RunModules(
    const ModulesSpec& spec,
    const std::function<absl::Status(ModulesRank&)>& body) {
  WorldSpec world_spec;
  world_spec.size = spec.ranks;
  world_spec.backend = spec.backend;
  std::shared_ptr<World> world = World::Create(world_spec).value();
  std::vector<std::atomic<uint64_t>> instances(spec.ranks);
  return RunRanks(spec.ranks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<ModulesRank> made,
                     ModulesRank::Create(spec, world, &instances[rank], rank));
    return body(*made);
  });
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_RECORDING_RECORDING_RIG_H_
