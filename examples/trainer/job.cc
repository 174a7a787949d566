#include "examples/trainer/job.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/c_api.h"

namespace commsched::trainer {

namespace {

// The configuration of the backend: `config`, or, with --fault, that of the
// library's backend which injects faults into it.
std::string BackendConfig(const Options& options, std::string config,
                          const char** backend) {
  if (options.faults.empty()) return config;
  *backend = "fault";
  std::string text =
      absl::StrCat("inner=", options.backend, ";seed=", options.seed);
  for (const std::string& fault : options.faults) {
    absl::StrAppend(&text, ";fault=", fault);
  }
  return absl::StrCat(text, ";inner_config=", config);
}

// What the join reads where ranks are processes.
absl::Status ReadLinks(const Options& options, commsched_link_profile_t* links,
                       int32_t* given) {
  constexpr char kVariable[] = "COMMSCHED_LINK_PROFILE";
  std::string path = options.link_profile;
  std::string whose;
  if (path.empty()) {
    const char* const variable = std::getenv(kVariable);
    if (variable == nullptr || *variable == '\0') return absl::OkStatus();
    path = variable;
    whose = absl::StrCat("environment variable ", kVariable, ": ");
  }
  const absl::Status status =
      FromC(commsched_link_profile_read(path.c_str(), links));
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("profile of links, ", whose,
                                                    status.message()));
  }
  *given = 1;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> Job::OfThreads(const Options& options) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = static_cast<int32_t>(options.ranks);
  std::string config;
  if (options.link.bytes_per_s > 0) {
    config = absl::StrFormat("link_bytes_per_s=%.17g,link_latency_ns=%d",
                             options.link.bytes_per_s, options.link.latency_ns);
  }
  config = BackendConfig(options, std::move(config), &desc.backend);
  if (!config.empty()) desc.backend_config = config.c_str();
  WorldHandle world;
  TRAINER_CALL(commsched_world_create_inproc(&desc, Out(world)));
  return Job(std::move(world), options);
}

absl::StatusOr<Job> Job::OfProcesses(const Options& options) {
  commsched_join_desc_t desc = commsched_join_desc_init();
  desc.backend = options.backend.c_str();
  if (!options.link_profile.empty()) {
    desc.link_profile = options.link_profile.c_str();
  }
  const std::string config = BackendConfig(options, "", &desc.backend);
  if (!config.empty()) desc.backend_config = config.c_str();
  WorldHandle world;
  TRAINER_CALL(commsched_world_join(&desc, Out(world)));
  return Job(std::move(world), options);
}

absl::Status Job::TakeFromRank0(std::string* text) const {
  if (!has_processes()) return absl::OkStatus();
  Handle<commsched_context_t, commsched_context_destroy> context;
  TRAINER_CALL(commsched_context_create(world(), static_cast<int32_t>(first()),
                                        Out(context)));
  TRAINER_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      Gather(context.get(), "of rank 0", *text, timeout()));
  *text = all.front();
  return absl::OkStatus();
}

int64_t NumSharing(const Options& options, commsched_context_t* context) {
  return options.sharing != 0 ? options.sharing
                              : commsched_context_local_size(context);
}

void SetCores(const Options& options, commsched_context_t* context,
              commsched_cost_profile_t* costs) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  const int64_t sharing = NumSharing(options, context);
  costs->num_ranks_sharing = static_cast<uint32_t>(sharing);
  costs->num_cores =
      static_cast<uint32_t>(std::clamp<int64_t>(CPU_COUNT(&cpus), 1, sharing));
}

absl::StatusOr<bool> SetLinks(const Options& options,
                              commsched_context_t* context,
                              commsched_cost_profile_t* costs) {
  if (options.link.bytes_per_s > 0) {
    costs->link_bytes_per_s = options.link.bytes_per_s;
    costs->link_latency_ns = options.link.latency_ns;
    return true;
  }
  commsched_link_profile_t links = commsched_link_profile_init();
  int32_t given = 0;
  TRAINER_CALL(commsched_context_link_profile(context, &links, &given));
  if (!options.has_processes()) {
    TRAINER_RETURN_IF_ERROR(ReadLinks(options, &links, &given));
  }
  if (given == 0) return false;
  int32_t num_hosts = 0;
  TRAINER_CALL(commsched_context_hosts(context, nullptr, 0, &num_hosts));
  TRAINER_CALL(commsched_cost_profile_set_links(
      &links, commsched_context_world_size(context), num_hosts, costs));
  return true;
}

absl::StatusOr<std::vector<std::string>> Gather(
    commsched_context_t* context, const char* name, absl::string_view mine,
    std::chrono::nanoseconds timeout) {
  std::vector<std::string> all;
  commsched_gather_desc_t desc = commsched_gather_desc_init();
  desc.name = name;
  desc.data = mine.data();
  desc.bytes = mine.size();
  desc.timeout_ns = timeout.count();
  desc.take = [](void* user, int32_t /*rank*/, const void* data,
                 uint64_t bytes) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(
        static_cast<const char*>(data), bytes);
  };
  desc.user = &all;
  TRAINER_CALL(commsched_context_gather(context, &desc));
  return all;
}

}  // namespace commsched::trainer
