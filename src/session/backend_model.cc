#include "session/backend_model.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "graph/collective_shape.h"
#include "plan/coding.h"

namespace commsched {
namespace {

// Of what graphs have. What is for channels alone is of no matter to a plan,
// and to its fingerprint: all of it is set.
uint32_t MaskOf(uint32_t mask, uint32_t of_graphs) {
  return mask == 0 ? UINT32_MAX : mask | ~of_graphs;
}

template <typename Enum>
bool Has(uint32_t mask, Enum bit) {
  return (mask >> static_cast<uint32_t>(bit) & 1) != 0;
}

// What `backend` lacks for `launch`; empty: nothing.
std::string LackOf(const BackendModel& backend, const Plan& plan,
                   const Launch& launch) {
  if (IsPointToPoint(launch.kind)) {
    if (!backend.point_to_point) {
      return "send and receive (COMMSCHED_BACKEND_P2P)";
    }
    // What was proved may rest on launches that are under way side by side.
    return backend.serial_lanes && !plan.options.backend.serial_lanes
               ? "have sends under way beside later launches "
                 "(COMMSCHED_BACKEND_STREAM_ORDERED)"
               : "";
  }
  const CollectiveKind kind =
      launch.coded ? CodedKind(launch.kind) : launch.kind;
  if (!Has(backend.kinds, kind)) {
    return absl::StrCat("do ", CollectiveKindName(kind));
  }
  if (kind == CollectiveKind::kBarrier) return "";
  const DType dtype = launch.coded ? DType::kU8 : launch.dtype;
  if (!Has(backend.dtypes, dtype)) {
    return absl::StrCat("move ", DTypeName(dtype));
  }
  if (launch.way == Way::kGroup && !backend.lists) {
    return "take several members (COMMSCHED_BACKEND_VECTORED)";
  }
  if (!IsReducing(kind)) return "";
  if (!Has(backend.reductions, launch.reduce_op)) {
    return absl::StrCat("reduce by ", ReduceOpName(launch.reduce_op));
  }
  if (plan.options.deterministic && !backend.deterministic) {
    return "sum in the order of the tree (COMMSCHED_BACKEND_TREE_SUMS)";
  }
  return "";
}

}  // namespace

BackendModel ModelOf(const commsched_backend_t& backend) {
  const auto can = [&](uint32_t capability) {
    return (backend.capabilities & capability) != 0;
  };
  return {.lists = can(COMMSCHED_BACKEND_VECTORED),
          .deterministic = can(COMMSCHED_BACKEND_TREE_SUMS),
          .strided = can(COMMSCHED_BACKEND_STRIDED),
          .point_to_point = can(COMMSCHED_BACKEND_P2P),
          .serial_lanes = can(COMMSCHED_BACKEND_STREAM_ORDERED),
          .host_sums = can(COMMSCHED_BACKEND_HOST_SUMS),
          .kinds = MaskOf(backend.kinds, (2u << COMMSCHED_RECV) - 1),
          .dtypes = MaskOf(backend.dtypes, (1u << kNumComputedDTypes) - 1),
          .reductions =
              MaskOf(backend.reductions, COMMSCHED_BACKEND_BASIC_REDUCTIONS)};
}

absl::Status CheckBackend(const Plan& plan,
                          const commsched_backend_t& backend) {
  const BackendModel model = ModelOf(backend);
  for (const Launch& launch : plan.launches) {
    const std::string& name = plan.graph->op(launch.members.front()).name;
    if (!model.strided && launch.piece.of > 1 && HasParts(launch.kind)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "session: partition_bytes ", plan.options.partition_bytes,
          " splits '", name, "', but backend '", backend.name,
          "' cannot move strided parts (COMMSCHED_BACKEND_STRIDED); plan with "
          "options.backend"));
    }
    const std::string lack = LackOf(model, plan, launch);
    if (lack.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "session: the launch of '", name, "': backend '", backend.name,
        "' cannot ", lack, "; plan with options.backend"));
  }
  return absl::OkStatus();
}

}  // namespace commsched
