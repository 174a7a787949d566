// Ranks that are processes and share one device, which NCCL takes only if it is
// told to, or does not notice.
#include "test/gpu_check/processes.h"

#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "control/launch_environment.h"
#include "control/server.h"
#include "device/cuda_device.h"
#include "test/gpu_check/by_hand.h"
#include "test/gpu_check/channels.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/job.h"
#include "test/gpu_check/lanes.h"
#include "test/gpu_check/launcher.h"
#include "test/gpu_check/recordings.h"

namespace commsched::gpu_check {
namespace {

constexpr int kRanks = kProcesses;
constexpr int64_t kMeetingNs = int64_t{20} * 1000 * 1000 * 1000;
constexpr std::chrono::seconds kJobTimeout{120};
// Of NCCL's that takes several ranks on a device.
constexpr int kMultiRankVersion = 23003;

using Environment = std::vector<std::pair<std::string, std::string>>;

// NCCL's variables for ranks that share a device.
const Environment& Common() {
  // Between "hosts" of one machine: TCP over the loopback device.
  static const auto* const common =
      new Environment{{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_NET_GDR_LEVEL", "LOC"},
                      {"NCCL_MAX_CTAS", "4"},    {"NCCL_IB_DISABLE", "1"},
                      {"NCCL_NET", "Socket"},    {"NCCL_SOCKET_IFNAME", "lo"}};
  return *common;
}

struct Way {
  const char* name;
  std::vector<ChildEnvironment> environments;  // By rank.
};

std::vector<Way> WaysOf(int nccl_version) {
  std::vector<Way> ways = {{"NCCL_HOSTID", HostsOnOneDevice()}};
  if (nccl_version >= kMultiRankVersion) {
    const char* const name = "NCCL_MULTI_RANK_GPU_ENABLE";
    Environment environment = Common();
    environment.emplace_back(name, "1");
    ways.push_back({name, std::vector<ChildEnvironment>(kRanks, environment)});
  }
  return ways;
}

// Ranks that meet, and do not communicate.
absl::Status MeetMembers() {
  WorldSpec spec;
  spec.backend = "null";
  JobSpec job;
  ASSIGN_OR_RETURN(job.environment,
                   ReadLaunchEnvironment(Env::ProcessLookup()));
  const int rank = job.environment.rank;
  ASSIGN_OR_RETURN(const auto world, World::Join(spec, job));
  ASSIGN_OR_RETURN(
      const std::vector<std::string> shown,
      world->meeting()->AllGather("gpu_check", rank,
                                  absl::StrCat("rank ", rank), kMeetingNs));
  for (int i = 0; i < kRanks; ++i) {
    if (shown.size() == kRanks &&
        shown[size_t(i)] == absl::StrCat("rank ", i)) {
      continue;
    }
    return absl::InternalError(
        absl::StrCat(shown.size(), " ranks met, not ", kRanks));
  }
  return absl::OkStatus();
}

absl::Status TrainMembers(const std::shared_ptr<World>& world,
                          std::string* figures) {
  Job job({.ranks = kRanks});
  RETURN_IF_ERROR(job.Make(PlanOptions{}, world));
  Times times;
  RETURN_IF_ERROR(job.Run({.warm_up = 2, .steps = 10}, &times));
  *figures = absl::StrCat(job.num_launches(), " launches per step");
  return job.CheckResults();
}

void InMs(std::string* out, double seconds) {
  absl::StrAppend(out, static_cast<int64_t>(seconds * 1000));
}

absl::Status AbortMembers(const std::shared_ptr<World>& world,
                          std::string* figures) {
  Job job({.ranks = kRanks});
  RETURN_IF_ERROR(job.Make(PlanOptions{}, world));
  std::vector<double> ended_s;
  RETURN_IF_ERROR(job.Abort(&ended_s));
  *figures = absl::StrCat("ms: ", absl::StrJoin(ended_s, ", ", InMs));
  return absl::OkStatus();
}

}  // namespace

std::vector<ChildEnvironment> HostsOnOneDevice() {
  std::vector<ChildEnvironment> environments(kRanks, Common());
  for (size_t rank = 0; rank < environments.size(); ++rank) {
    environments[rank].emplace_back("NCCL_HOSTID",
                                    absl::StrCat("commsched-", rank));
  }
  return environments;
}

std::vector<std::string> Beside(absl::string_view program,
                                const std::vector<std::string>& arguments) {
  const std::string own = OwnPath();
  std::vector<std::string> command = {
      absl::StrCat(own.substr(0, own.rfind('/') + 1), program)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

absl::StatusOr<std::shared_ptr<World>> JoinOnDevice0() {
  WorldSpec spec;
  ASSIGN_OR_RETURN(spec.table, Nccl());
  ASSIGN_OR_RETURN(auto device, OpenCudaDevice(0));
  spec.devices.push_back(std::move(device));
  JobSpec job;
  ASSIGN_OR_RETURN(job.environment,
                   ReadLaunchEnvironment(Env::ProcessLookup()));
  return World::Join(spec, job);
}

void Merge(const std::vector<ChildEnd>& ends, absl::string_view prefix,
           Results* results) {
  std::vector<std::string> order;
  std::map<std::string, Result> merged;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    for (const Result& result : ends[rank].results) {
      const auto [found, is_new] = merged.emplace(result.check, result);
      if (is_new) order.push_back(result.check);
      if (result.status.ok() || (!is_new && !found->second.status.ok())) {
        continue;
      }
      found->second.status = absl::Status(
          result.status.code(),
          absl::StrCat("rank ", rank, ": ", result.status.message()));
    }
  }
  for (const std::string& check : order) {
    Result& result = merged[check];
    result.check = absl::StrCat(prefix, result.check);
    results->Add(result);
  }
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank].status.ok()) continue;
    results->Add(absl::StrCat(prefix, "rank ", rank), ends[rank].status);
  }
}

std::vector<ChildEnd> RunProcesses(const std::vector<std::string>& command,
                                   const std::vector<ChildEnvironment>& more) {
  const int size = static_cast<int>(more.size());
  std::vector<ChildEnd> ends(more.size());
  ControlServerSpec server;
  server.size = size;
  const auto started = ControlServer::Start(server);
  if (!started.ok()) {
    ends[0].status = started.status();
    return ends;
  }
  std::vector<absl::StatusOr<std::unique_ptr<Child>>> children;
  for (int rank = 0; rank < size; ++rank) {
    ChildSpec spec;
    spec.command = command;
    spec.environment = {
        {"COMMSCHED_RANK", absl::StrCat(rank)},
        {"COMMSCHED_WORLD_SIZE", absl::StrCat(size)},
        {"COMMSCHED_LOCAL_RANK", absl::StrCat(rank)},
        {"COMMSCHED_LOCAL_WORLD_SIZE", absl::StrCat(size)},
        {"COMMSCHED_CONTROL", absl::StrCat("127.0.0.1:", (*started)->port())}};
    const ChildEnvironment& own = more[static_cast<size_t>(rank)];
    spec.environment.insert(spec.environment.end(), own.begin(), own.end());
    children.push_back(Child::Start(spec));
  }
  const auto deadline = std::chrono::steady_clock::now() + kJobTimeout;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    if (children[rank].ok()) {
      ends[rank] = (*children[rank])->Wait(deadline);
    } else {
      ends[rank].status = children[rank].status();
    }
  }
  return ends;
}

void RunMember(absl::string_view task, const Options& options,
               Results* results) {
  if (task == "meet") {
    return results->Add("processes are started and meet", MeetMembers());
  }
  const auto world = JoinOnDevice0();
  if (!world.ok()) return results->Add("join", world.status());
  if (task == "lanes" || task == "channels") {
    const auto body = task == "lanes" ? LanesOf : ChannelsOf;
    for (const Result& each : body(*world, (*world)->own_rank())) {
      results->Add(each);
    }
    return;
  }
  for (const bool in_rank_order : {true, false}) {
    std::string figures;
    const absl::Status status = RunCollectives(
        world->get(), (*world)->own_rank(), options, in_rank_order, &figures);
    results->Add(absl::StrCat("collectives",
                              in_rank_order ? " in the tree's order" : ""),
                 status, figures);
    if (!status.ok()) return;  // The communicator has failed.
  }
  std::string figures;
  const absl::Status status = TrainMembers(*world, &figures);
  results->Add("training", status, figures);
  if (!status.ok()) return;  // The ranks are no longer at one.
  for (const Result& each : RecordingsOf(*world, (*world)->own_rank())) {
    results->Add(each);
    if (!each.status.ok()) return;
  }
  std::string times;
  const absl::Status aborted = AbortMembers(*world, &times);
  results->Add("after a failure launches of a graph end", aborted, times);
}

void CheckProcesses(const Options& /*options*/, Results* results) {
  Merge(RunProcesses(Beside("gpu_check", {"--member", "meet"}),
                     std::vector<ChildEnvironment>(kRanks)),
        "", results);
  const auto launcher = Launcher::Get();
  const auto nccl = NcclByHand::Get();
  if (!launcher.ok()) return results->Add("processes", launcher.status());
  if (!nccl.ok()) return results->Add("processes", nccl.status());
  if ((*launcher)->on_stand_ins()) {
    return results->Skip("processes that share a device",
                         "the ranks of the stand-in are threads");
  }
  for (const Way& way : WaysOf((*nccl)->version)) {
    const std::string prefix =
        absl::StrCat("2 processes, 1 device, by ", way.name, ": ");
    Merge(RunProcesses(Beside("gpu_check", {"--member", "train"}),
                       way.environments),
          prefix, results);
    Merge(RunProcesses(Beside("gpu_check_engine", {"--member", "train"}),
                       way.environments),
          prefix, results);
  }
}

}  // namespace commsched::gpu_check
