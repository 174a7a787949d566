#include "test/processes/random_launches.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "test/conformance/collective_case.h"
#include "test/support/comm_driver.h"
#include "test/support/rank_group.h"

namespace commsched::test {
namespace {

using Random = std::mt19937_64;

constexpr int kLaunches = 24;

// The launches of one communicator.
struct Launches {
  CommSpec comm;  // Of ranks of the job.
  std::vector<std::unique_ptr<CollectiveCase>> cases;
};

std::unique_ptr<CollectiveCase> DrawCase(int size, Random& random) {
  const Shape shape = RandomShape(size, random);
  const bool is_large = random() % 6 == 0;
  // Of an all-gather enough for hosts with more to have it relayed.
  const uint64_t large = shape.kind == COMMSCHED_ALL_GATHER ? 240'000 : 60'000;
  const uint64_t most = is_large ? large / static_cast<uint64_t>(size) : 200;
  std::vector<MemberCase> members;
  const uint64_t num_members = is_large ? 1 : 1 + random() % 4;
  for (uint64_t m = 0; m < num_members; ++m) {
    members.push_back(RandomMember(shape, most, random));
    const bool is_strided = random() % 3 == 0 && members.back().counts.empty();
    if (is_strided) members.back().gap = 1 + random() % 50;
  }
  const bool in_place = random() % 2 == 0;
  const bool deterministic = random() % 4 != 0;
  return std::make_unique<CollectiveCase>(
      shape, std::move(members), in_place, deterministic, random,
      deterministic ? CollectiveCase::Values::kCancelling
                    : CollectiveCase::Values::kModerate);
}

Launches Draw(uint64_t seed, const std::string& id,
              std::vector<int32_t> ranks) {
  Random random(seed);
  Launches drawn;
  drawn.comm.id = absl::StrCat(id, seed);
  drawn.comm.ranks = std::move(ranks);
  const int size = static_cast<int>(drawn.comm.ranks.size());
  for (int i = 0; i < kLaunches; ++i) {
    drawn.cases.push_back(DrawCase(size, random));
  }
  return drawn;
}

// Of all ranks in their order, and of two or more in another one.
std::vector<Launches> DrawAll(uint64_t seed, int size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<Launches> all;
  all.push_back(Draw(seed, "all", ranks));
  Random random(seed ^ 0x5eed);
  std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(2 + random() % static_cast<uint64_t>(size - 1));
  all.push_back(Draw(seed, "some", ranks));
  return all;
}

absl::Status RunAs(int rank, World* world, const Launches& launches) {
  const std::vector<int32_t>& ranks = launches.comm.ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return absl::OkStatus();
  const auto position = static_cast<int>(found - ranks.begin());
  CommDriver comm;
  RETURN_IF_ERROR(comm.Create(world, launches.comm, rank));
  for (size_t i = 0; i < launches.cases.size(); ++i) {
    const CollectiveCase& one = *launches.cases[i];
    absl::Status done = comm.LaunchAndWait(one.launch(position));
    if (done.ok()) done = one.Check(position);
    if (done.ok()) continue;
    return absl::Status(
        done.code(),
        absl::StrCat("launch #", i, " of communicator '", launches.comm.id,
                     "' (", one.Describe(), "): ", done.message()));
  }
  return absl::OkStatus();
}

absl::Status RunInproc(uint64_t seed, int size) {
  const std::vector<Launches> all = DrawAll(seed, size);
  WorldSpec spec;
  spec.size = size;
  spec.backend = "inproc";
  ASSIGN_OR_RETURN(const std::shared_ptr<World> world, World::Create(spec));
  return RunAllRanks(size, [&](int rank) -> absl::Status {
    for (const Launches& launches : all) {
      RETURN_IF_ERROR(RunAs(rank, world.get(), launches));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status RunRandomLaunches(uint64_t seed, World* world) {
  const int size = world->spec().size;
  for (const Launches& launches : DrawAll(seed, size)) {
    RETURN_IF_ERROR(RunAs(world->own_rank(), world, launches));
  }
  if (static_cast<uint64_t>(world->own_rank()) !=
      seed % static_cast<uint64_t>(size)) {
    return absl::OkStatus();
  }
  const absl::Status status = RunInproc(seed, size);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("on inproc: ", status.message()));
}

}  // namespace commsched::test
