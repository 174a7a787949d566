#include "commsched/world.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::Status CheckAbiVersion(uint32_t version) {
  if (version == 0) {
    return absl::InvalidArgumentError(
        "commsched_world_desc_t.abi_version is 0; make the desc with its "
        "_init()");
  }
  if (version > COMMSCHED_ABI_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the caller was compiled for ABI ", version, ", the library (",
        commsched_version(), ") has ABI ", int{COMMSCHED_ABI_VERSION}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<World>> CreateWorld(
    const commsched_world_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_world_desc_t desc,
                   ReadStruct(caller_desc, "commsched_world_desc_t"));
  RETURN_IF_ERROR(CheckAbiVersion(desc.abi_version));
  WorldSpec spec;
  spec.size = desc.size;
  if (desc.backend != nullptr) spec.backend = desc.backend;
  if (desc.backend_config != nullptr) spec.backend_config = desc.backend_config;
  return World::Create(spec);
}

}  // namespace
}  // namespace commsched

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
