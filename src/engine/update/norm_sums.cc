#include "engine/update/norm_sums.h"

#include <algorithm>
#include <utility>

namespace commsched::engine {
namespace {

constexpr uint64_t kGroupBlocks = 256;

using Runs = std::vector<commsched_run_t>;

// The blocks of `part`, kGroupBlocks at a time.
std::vector<Runs> Groups(const Runs& part) {
  std::vector<Runs> groups;
  uint64_t room = 0;
  for (commsched_run_t run : part) {
    while (run.count > 0) {
      if (room == 0) {
        groups.emplace_back();
        room = kGroupBlocks;
      }
      const uint64_t now = std::min(room, run.count);
      groups.back().push_back({run.begin, now});
      run.begin += now;
      run.count -= now;
      room -= now;
    }
  }
  return groups;
}

template <typename T>
Status CopyOf(RankState* state, const Kernels& kernels,
              const std::vector<T>& values, T** out) {
  ENGINE_RETURN_IF_ERROR(state->Keep(values.size(), out));
  if (values.empty()) return Status();
  return kernels.Copy(*out, values.data(), values.size() * sizeof(T));
}

}  // namespace

Status NormSums::Init(RankState* state, const Kernels& kernels,
                      const std::vector<Runs>& parts) {
  std::vector<Runs> groups;
  std::vector<Runs> of_parts;
  for (const Runs& part : parts) {
    std::vector<Runs> more = Groups(part);
    of_parts.push_back({{groups.size(), more.size()}});
    groups.insert(groups.end(), more.begin(), more.end());
  }
  ENGINE_RETURN_IF_ERROR(MakeLevel(state, kernels, groups, &groups_));
  ENGINE_RETURN_IF_ERROR(MakeLevel(state, kernels, of_parts, &parts_));
  return state->Keep(groups_.count, &group_sums_);
}

Status NormSums::MakeLevel(RankState* state, const Kernels& kernels,
                           const std::vector<Runs>& sums, Level* out) {
  Runs runs;
  std::vector<uint64_t> first_run = {0};
  for (const Runs& each : sums) {
    runs.insert(runs.end(), each.begin(), each.end());
    first_run.push_back(runs.size());
  }
  out->count = sums.size();
  ENGINE_RETURN_IF_ERROR(CopyOf(state, kernels, runs, &out->runs));
  return CopyOf(state, kernels, first_run, &out->first_run);
}

Status NormSums::Add(const Kernels& kernels, const double* sums,
                     double* out) const {
  commsched_sum_runs_args_t args = {};
  args.values = sums;
  args.runs = groups_.runs;
  args.first_run = groups_.first_run;
  args.out = group_sums_;
  args.count = groups_.count;
  ENGINE_RETURN_IF_ERROR(kernels.SumRuns(args));
  args.values = group_sums_;
  args.runs = parts_.runs;
  args.first_run = parts_.first_run;
  args.out = out;
  args.count = parts_.count;
  return kernels.SumRuns(args);
}

}  // namespace commsched::engine
