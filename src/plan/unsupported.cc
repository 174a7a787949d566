#include "plan/unsupported.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

absl::Status Unsupported(const Op& op, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("op '", op.name, "': ", what, " cannot be run yet"));
}

absl::Status CheckAccess(const Graph& graph, const Op& op,
                         const Access& access) {
  const Buffer& buffer = graph.buffer(access.buffer);
  if (buffer.ownership == Ownership::kLateBound) {
    return Unsupported(
        op, absl::StrCat("access to late-bound buffer '", buffer.name, "'"));
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const Graph& graph, const Op& op) {
  for (const Access& access : op.accesses) {
    RETURN_IF_ERROR(CheckAccess(graph, op, access));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSupported(const Graph& graph) {
  for (const Op& op : graph.ops()) RETURN_IF_ERROR(CheckOp(graph, op));
  return absl::OkStatus();
}

}  // namespace commsched
