#include "commsched/world.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "base/wait_signal.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "comm/link_profile.h"
#include "control/launch_environment.h"
#include "device/cuda_device.h"
#include "device/device.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

// Ranks that share a device share what is behind it. Nothing for the host.
absl::Status AddDevice(commsched_device_kind_t kind, int32_t ordinal,
                       int local_rank,
                       std::vector<std::shared_ptr<Device>>* devices) {
  if (kind == COMMSCHED_DEVICE_HOST) return absl::OkStatus();
  if (kind != COMMSCHED_DEVICE_CUDA || ordinal < -1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "desc.device_kind is ", kind, " and desc.device ", ordinal,
        "; they must be HOST (", COMMSCHED_DEVICE_HOST, ") or CUDA (",
        COMMSCHED_DEVICE_CUDA, "), and -1 or a device"));
  }
  if (ordinal == -1) {
    ASSIGN_OR_RETURN(const int num_devices, NumCudaDevices());
    ordinal = local_rank % num_devices;
  }
  for (size_t i = 0; i < devices->size(); ++i) {
    if ((*devices)[i]->ordinal() != ordinal) continue;
    devices->push_back(std::shared_ptr<Device>((*devices)[i]));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Device> device, OpenCudaDevice(ordinal));
  devices->push_back(std::move(device));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<World>> CreateWorld(
    const commsched_world_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_world_desc_t desc,
                   ReadStruct(caller_desc, "commsched_world_desc_t"));
  RETURN_IF_ERROR(CheckAbiVersion("commsched_world_desc_t", desc.abi_version));
  WorldSpec spec;
  spec.size = desc.size;
  if (desc.backend != nullptr) spec.backend = desc.backend;
  if (desc.backend_config != nullptr) spec.backend_config = desc.backend_config;
  // The world refuses other sizes.
  for (int rank = 0; rank < desc.size && desc.size <= World::kMaxRanks;
       ++rank) {
    RETURN_IF_ERROR(
        AddDevice(desc.device_kind, desc.device, rank, &spec.devices));
  }
  PrintWaitersIfAsked();
  return World::Create(spec);
}

// What the caller says instead of the environment.
absl::StatusOr<LaunchEnvironment> EnvironmentOf(
    const commsched_join_desc_t& desc) {
  if (desc.rank == -1) return ReadLaunchEnvironment(Env::ProcessLookup());
  LaunchEnvironment environment;
  if (desc.size < 1 || desc.rank < 0 || desc.rank >= desc.size) {
    return absl::InvalidArgumentError(absl::StrCat("desc.rank is ", desc.rank,
                                                   ", not in a world of ",
                                                   desc.size, " ranks"));
  }
  environment.rank = desc.rank;
  environment.size = desc.size;
  environment.epoch = desc.epoch;
  if (desc.token != nullptr) environment.token = desc.token;
  if (desc.control != nullptr) {
    RETURN_IF_ERROR(SetControl("desc.control", desc.control, &environment));
  } else if (desc.size > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "desc.control is NULL, but ", desc.size, " ranks need a server"));
  }
  return environment;
}

// `path`: commsched_join_desc_t::link_profile.
absl::Status ReadLinks(const char* path,
                       std::optional<commsched_link_profile_t>* out) {
  std::string file = path == nullptr ? "" : path;
  if (path == nullptr) {
    ASSIGN_OR_RETURN(file, Env::Process().GetText("COMMSCHED_LINK_PROFILE"));
  }
  if (file.empty()) return absl::OkStatus();
  const auto links = ReadLinkProfile(file);
  if (!links.ok()) {
    return absl::Status(
        links.status().code(),
        absl::StrCat("profile of links, ",
                     path == nullptr
                         ? "environment variable COMMSCHED_LINK_PROFILE"
                         : "desc.link_profile",
                     ": ", links.status().message()));
  }
  *out = *links;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> JoinTimeoutNs() {
  ASSIGN_OR_RETURN(const int64_t seconds,
                   Env::Process().Get("COMMSCHED_JOIN_TIMEOUT_S"));
  return seconds * 1000 * 1000 * 1000;
}

absl::StatusOr<std::shared_ptr<World>> JoinWorld(
    const commsched_join_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_join_desc_t desc,
                   ReadStruct(caller_desc, "commsched_join_desc_t"));
  RETURN_IF_ERROR(CheckAbiVersion("commsched_join_desc_t", desc.abi_version));
  if (desc.timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.timeout_ns is ", desc.timeout_ns, ", below 0"));
  }
  WorldSpec spec;
  spec.backend = desc.backend == nullptr ? "ucx" : desc.backend;
  if (desc.backend_config != nullptr) spec.backend_config = desc.backend_config;
  JobSpec job;
  ASSIGN_OR_RETURN(job.environment, EnvironmentOf(desc));
  RETURN_IF_ERROR(AddDevice(desc.device_kind, desc.device,
                            job.environment.local_rank, &spec.devices));
  job.timeout_ns = desc.timeout_ns;
  if (desc.timeout_ns == 0) {
    ASSIGN_OR_RETURN(job.timeout_ns, JoinTimeoutNs());
  }
  if (job.environment.rank == 0) {
    RETURN_IF_ERROR(ReadLinks(desc.link_profile, &spec.links));
  }
  PrintWaitersIfAsked();
  const WaitingCall waiting(job.environment.rank, "joins the job");
  const std::string who =
      absl::StrCat("rank ", job.environment.rank, " of ", job.environment.size);
  ASSIGN_OR_RETURN(auto world, World::Join(spec, std::move(job)));
  Log(LogLevel::kInfo, who, " has joined, with backend '",
      world->backend()->name, "'");
  return world;
}

absl::StatusOr<std::shared_ptr<Context>> Split(
    Context* context, absl::Span<const int32_t> members,
    const std::string& name) {
  int64_t timeout_ns = context->world()->join_timeout_ns();
  if (timeout_ns == 0) {
    ASSIGN_OR_RETURN(timeout_ns, JoinTimeoutNs());
  }
  const WaitingCall waiting(
      context->rank(),
      absl::StrCat("makes the world '", name, "' with others"));
  ASSIGN_OR_RETURN(auto part, context->Split(members, name, timeout_ns));
  Log(LogLevel::kInfo, "rank ", context->rank(), " of ", context->world_size(),
      " is rank ", part->rank(), " of ", part->world_size(), " of world '",
      name, "'");
  return part;
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_world_join(const commsched_join_desc_t* desc,
                                        commsched_world_t** out_world) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"desc", desc}, {"out_world", out_world}}));
    ASSIGN_OR_RETURN(auto world, commsched::JoinWorld(desc));
    *out_world = new commsched_world{
        std::make_shared<commsched::RankedWorld>(std::move(world))};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_world_create_inproc(
    const commsched_world_desc_t* desc, commsched_world_t** out_world) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"desc", desc}, {"out_world", out_world}}));
    ASSIGN_OR_RETURN(auto world, commsched::CreateWorld(desc));
    *out_world = new commsched_world{
        std::make_shared<commsched::RankedWorld>(std::move(world))};
    return absl::OkStatus();
  });
}

void commsched_world_destroy(commsched_world_t* world) {
  AtVoidBoundary([&] { delete world; });
}

int32_t commsched_world_size(const commsched_world_t* world) {
  return world == nullptr ? 0 : world->world->size();
}

int32_t commsched_world_rank(const commsched_world_t* world) {
  return world == nullptr ? -1 : world->world->world()->own_rank();
}

commsched_status_t commsched_context_create(commsched_world_t* world,
                                            int32_t rank,
                                            commsched_context_t** out_context) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"world", world}, {"out_context", out_context}}));
    ASSIGN_OR_RETURN(auto context,
                     commsched::Context::Create(world->world, rank));
    *out_context = new commsched_context{std::move(context)};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_context_split(commsched_context_t* context,
                                           const int32_t* members,
                                           uint32_t num_members,
                                           const char* name,
                                           commsched_context_t** out_context) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"context", context}, {"name", name}, {"out_context", out_context}}));
    RETURN_IF_ERROR(commsched::RequireArray("members", members, num_members));
    ASSIGN_OR_RETURN(auto part, commsched::Split(context->context.get(),
                                                 {members, num_members}, name));
    *out_context = new commsched_context{std::move(part)};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_context_duplicate(
    const commsched_context_t* context, commsched_context_t** out_context) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"context", context}, {"out_context", out_context}}));
    *out_context = new commsched_context{context->context};
    return absl::OkStatus();
  });
}

void commsched_context_destroy(commsched_context_t* context) {
  AtVoidBoundary([&] { delete context; });
}

int32_t commsched_context_rank(const commsched_context_t* context) {
  return context == nullptr ? -1 : context->context->rank();
}

int32_t commsched_context_world_size(const commsched_context_t* context) {
  return context == nullptr ? 0 : context->context->world_size();
}

int32_t commsched_context_local_size(const commsched_context_t* context) {
  return context == nullptr ? 0 : context->context->world()->local_size();
}

commsched_device_kind_t commsched_context_device(
    const commsched_context_t* context, int32_t* out_device) {
  if (out_device != nullptr) *out_device = 0;
  if (context == nullptr) return COMMSCHED_DEVICE_HOST;
  const commsched::Device* const device =
      context->context->world()->device(context->context->rank());
  if (out_device != nullptr && device->kind() != COMMSCHED_DEVICE_HOST) {
    *out_device = device->ordinal();
  }
  return device->kind();
}

const char* commsched_context_backend(const commsched_context_t* context) {
  return context == nullptr ? nullptr
                            : context->context->world()->backend()->name;
}
