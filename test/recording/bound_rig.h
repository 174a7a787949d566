// Ranks of one process that declare what they record themselves.
#ifndef COMMSCHED_TEST_RECORDING_BOUND_RIG_H_
#define COMMSCHED_TEST_RECORDING_BOUND_RIG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "comm/world.h"
#include "device/host_device.h"
#include "recording/recording.h"
#include "test/support/rank_group.h"

namespace commsched::test {

// What each rank declares, and its recording.
struct BoundRank {
  int rank = 0;
  std::unique_ptr<Recording> recording;

  absl::StatusOr<BufferId> Late(const std::string& name, uint64_t count) {
    return AddBuffer(name, count, Ownership::kLateBound, nullptr);
  }
  absl::StatusOr<BufferId> AddBuffer(const std::string& name, uint64_t count,
                                     Ownership ownership, void* address) {
    Buffer buffer;
    buffer.name = name;
    buffer.dtype = DType::kI32;
    buffer.ownership = ownership;
    buffer.count = count;
    return recording->AddBuffer(buffer, address);
  }
  absl::StatusOr<uint32_t> Compute(const std::string& name,
                                   std::vector<Access> accesses) {
    Op op;
    op.name = name;
    op.accesses = std::move(accesses);
    ASSIGN_OR_RETURN(const OpId id, recording->AddCompute(op, 0));
    return id.value();
  }
  absl::StatusOr<uint32_t> Collective(const std::string& name,
                                      CollectiveKind kind, BufferId input,
                                      BufferId output,
                                      RecordedCollective how = {},
                                      std::vector<uint64_t> counts = {}) {
    Op op;
    op.name = name;
    op.kind = OpKind::kCollective;
    op.collective.kind = kind;
    op.collective.group = GroupId(0);
    op.collective.input = {input, AccessMode::kRead, {}};
    op.collective.output = {output, AccessMode::kWrite, {}};
    op.collective.counts = std::move(counts);
    ASSIGN_OR_RETURN(const OpId id, recording->AddCollective(op, 0, how));
    return id.value();
  }
  absl::Status Call(uint32_t op) {
    RETURN_IF_ERROR(recording->Before(op, CallerStream()));
    return recording->After(op, CallerStream());
  }
  absl::Status Submit(uint32_t op, BufferId buffer,
                      std::vector<int32_t>* memory) {
    return recording->Submit(op,
                             {{buffer, memory->data(), memory->size(), {}}});
  }
  absl::Status Wait(uint32_t op) {
    return recording->Wait(op, int64_t{20} * 1000 * 1000 * 1000);
  }
};

// On a thread per rank of `world`.
inline std::vector<absl::Status> RunBoundIn(
    const std::shared_ptr<World>& world,
    const std::function<absl::Status(BoundRank&)>& body,
    const std::function<void(RecordingSpec*)>& adjust = [](RecordingSpec*) {}) {
  const int ranks = world->spec().size;
  std::vector<std::atomic<uint64_t>> instances(ranks);
  return RunRanks(ranks, [&](int rank) -> absl::Status {
    RecordingSpec spec;
    spec.world = world;
    spec.world_rank = rank;
    spec.take_instance = [&instances, rank] { return instances[rank]++; };
    GroupSpec group;
    group.axis = "dp";
    group.ranks.resize(ranks);
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    group.rank = rank;
    spec.groups.push_back(group);
    spec.launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
    adjust(&spec);
    BoundRank bound;
    bound.rank = rank;
    ASSIGN_OR_RETURN(bound.recording, Recording::Create(std::move(spec)));
    return body(bound);
  });
}

inline std::vector<absl::Status> RunBound(
    int ranks, const std::function<absl::Status(BoundRank&)>& body,
    const std::function<void(RecordingSpec*)>& adjust = [](RecordingSpec*) {}) {
  WorldSpec world_spec;
  world_spec.size = ranks;
  world_spec.backend = "inproc";
  return RunBoundIn(World::Create(world_spec).value(), body, adjust);
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_RECORDING_BOUND_RIG_H_
