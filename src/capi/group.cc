#include "commsched/group.h"

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireArray;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::StatusOr<commsched_group_t*> MakeGroup(
    const std::shared_ptr<Context>& context, absl::string_view axis,
    std::vector<int> ranks) {
  ASSIGN_OR_RETURN(const int rank, RankInGroup(axis, ranks, context->rank(),
                                               context->world_size()));
  return new commsched_group{
      context, GroupSpec{std::string(axis), std::move(ranks), rank}};
}

absl::StatusOr<std::vector<Mesh::Axis>> ReadAxes(const commsched_axis_t* axes,
                                                 uint32_t num_axes) {
  std::vector<Mesh::Axis> result;
  for (uint32_t i = 0; i < num_axes; ++i) {
    RETURN_IF_ERROR(RequireNonNull({{"axes[].name", axes[i].name}}));
    result.push_back({axes[i].name, axes[i].size});
  }
  return result;
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_group_create(commsched_context_t* context,
                                          const char* axis,
                                          const int32_t* ranks,
                                          uint32_t num_ranks,
                                          commsched_group_t** out_group) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"context", context}, {"axis", axis}, {"out_group", out_group}}));
    RETURN_IF_ERROR(RequireArray("ranks", ranks, num_ranks));
    ASSIGN_OR_RETURN(*out_group,
                     commsched::MakeGroup(context->context, axis,
                                          {ranks, ranks + num_ranks}));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_group_duplicate(const commsched_group_t* group,
                                             commsched_group_t** out_group) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"group", group}, {"out_group", out_group}}));
    *out_group = new commsched_group{*group};
    return absl::OkStatus();
  });
}

void commsched_group_destroy(commsched_group_t* group) {
  AtVoidBoundary([&] { delete group; });
}

int32_t commsched_group_size(const commsched_group_t* group) {
  return group == nullptr ? 0 : static_cast<int32_t>(group->spec.ranks.size());
}

int32_t commsched_group_rank(const commsched_group_t* group) {
  return group == nullptr ? -1 : group->spec.rank;
}

int32_t commsched_group_world_rank(const commsched_group_t* group,
                                   int32_t rank) {
  if (rank < 0 || rank >= commsched_group_size(group)) return -1;
  return group->spec.ranks[static_cast<size_t>(rank)];
}

const char* commsched_group_axis(const commsched_group_t* group) {
  return group == nullptr ? nullptr : group->spec.axis.c_str();
}

commsched_status_t commsched_mesh_create(commsched_context_t* context,
                                         const commsched_axis_t* axes,
                                         uint32_t num_axes,
                                         commsched_mesh_t** out_mesh) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"context", context}, {"out_mesh", out_mesh}}));
    RETURN_IF_ERROR(RequireArray("axes", axes, num_axes));
    ASSIGN_OR_RETURN(auto list, commsched::ReadAxes(axes, num_axes));
    ASSIGN_OR_RETURN(auto mesh,
                     commsched::Mesh::Create(std::move(list),
                                             context->context->world_size()));
    *out_mesh = new commsched_mesh{context->context, std::move(mesh)};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_mesh_group(const commsched_mesh_t* mesh,
                                        const char* axis,
                                        commsched_group_t** out_group) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"mesh", mesh}, {"axis", axis}, {"out_group", out_group}}));
    ASSIGN_OR_RETURN(auto ranks,
                     mesh->mesh.RanksAlong(axis, mesh->context->rank()));
    ASSIGN_OR_RETURN(*out_group, commsched::MakeGroup(mesh->context, axis,
                                                      std::move(ranks)));
    return absl::OkStatus();
  });
}

void commsched_mesh_destroy(commsched_mesh_t* mesh) {
  AtVoidBoundary([&] { delete mesh; });
}
