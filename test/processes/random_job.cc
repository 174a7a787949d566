// One rank of random jobs of processes: random_job SEED COUNT
//
// Joins the job that its environment states and runs COUNT random jobs, those
// of SEED, SEED + 1 ..., over the backend ucx, with options of collectives that
// are drawn, too. Each is a random run (test/support/random_run.h) with a
// session of its own, and random launches (random_launches.h), on which the
// order of sums shows. Exits with 0 if its memory is always what the references
// say, with 3 if it differs, and with 1 on an error.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/world.h"
#include "control/launch_environment.h"
#include "test/processes/random_launches.h"
#include "test/support/random_run.h"

namespace commsched::test {
namespace {

// "" or how the memory of the own rank differs.
absl::StatusOr<std::string> RunSession(uint64_t seed,
                                       const std::shared_ptr<World>& world) {
  const int size = world->spec().size;
  const int rank = world->own_rank();
  const RandomRun run = DrawRandomRun(seed, size, size);
  const auto plan = run.BuildPlans()[run.job.role_of_rank[rank]];
  RankMemory memory;
  RETURN_IF_ERROR(RunAsRank(run, world, plan, rank, &memory));
  const auto expected = RunSequentially(run.job.step, RandomRun::kSteps);
  const std::string buffer = FindDifference(run, memory, expected[rank]);
  return buffer.empty() ? "" : absl::StrCat("buffer '", buffer, "' is wrong");
}

absl::StatusOr<std::string> RunOne(uint64_t seed,
                                   const std::shared_ptr<World>& world) {
  ASSIGN_OR_RETURN(std::string wrong, RunSession(seed, world));
  if (!wrong.empty()) return wrong;
  const absl::Status launches = RunRandomLaunches(seed, world.get());
  if (absl::IsInternal(launches)) return std::string(launches.message());
  RETURN_IF_ERROR(launches);
  return wrong;
}

// Equal on all ranks.
std::string DrawConfig(uint64_t seed) {
  constexpr const char* kAlgorithms[] = {"auto", "exchange,auto", "levels,auto",
                                         "tree,auto", "bruck,auto"};
  std::mt19937_64 random(seed);
  return absl::StrCat("algorithm=", kAlgorithms[random() % 5],
                      ";chunk_bytes=", random() % 2 == 0 ? 1024 : 1 << 20,
                      ";window_bytes=", random() % 3 == 0 ? 1 : 8 << 20,
                      random() % 2 == 0 ? "" : ";read_bytes=4096");
}

absl::StatusOr<std::shared_ptr<World>> Join(uint64_t seed) {
  JobSpec job;
  ASSIGN_OR_RETURN(job.environment, ReadLaunchEnvironment([](const char* name) {
                     return getenv(name);
                   }));
  WorldSpec spec;
  spec.backend = "ucx";
  spec.backend_config = DrawConfig(seed);
  return World::Join(spec, std::move(job));
}

int Main(uint64_t seed, uint64_t count) {
  const absl::StatusOr<std::shared_ptr<World>> world = Join(seed);
  if (!world.ok()) {
    std::fprintf(stderr, "join: %s\n", world.status().ToString().c_str());
    return 1;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const absl::StatusOr<std::string> wrong = RunOne(seed + i, *world);
    if (wrong.ok() && wrong->empty()) continue;
    std::fprintf(
        stderr, "rank %d, seed %llu: %s\n", (*world)->own_rank(),
        static_cast<unsigned long long>(seed + i),
        wrong.ok() ? wrong->c_str() : wrong.status().ToString().c_str());
    return wrong.ok() ? 3 : 1;
  }
  std::printf("rank %d of %d: %llu runs are right\n", (*world)->own_rank(),
              (*world)->spec().size, static_cast<unsigned long long>(count));
  return 0;
}

}  // namespace
}  // namespace commsched::test

int main(int argc, char** argv) {
  uint64_t seed = 0;
  uint64_t count = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[1], &seed) ||
      !absl::SimpleAtoi(argv[2], &count)) {
    std::fprintf(stderr, "usage: random_job SEED COUNT\n");
    return 2;
  }
  return commsched::test::Main(seed, count);
}
