// What descs of sessions and of recordings have in common.
#ifndef COMMSCHED_SRC_CAPI_RANK_DESC_H_
#define COMMSCHED_SRC_CAPI_RANK_DESC_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capi/handles.h"
#include "session/session_spec.h"

namespace commsched {

// A rank's groups, streams and trace, as a caller describes them.
struct RankDesc {
  const commsched_context_t* context = nullptr;
  commsched_group_t* const* groups = nullptr;
  uint32_t num_groups = 0;
  const commsched_stream_t* lanes = nullptr;
  uint32_t num_lanes = 0;
  const commsched_trace_t* trace = nullptr;
  int64_t launch_timeout_ns = 0;
};

template <typename Desc>
RankDesc RankDescOf(const Desc& desc) {
  return {.context = desc.context,
          .groups = desc.groups,
          .num_groups = desc.num_groups,
          .lanes = desc.lanes,
          .num_lanes = desc.num_lanes,
          .trace = desc.trace,
          .launch_timeout_ns = desc.launch_timeout_ns};
}

// kInvalidArgument, naming the field, for a missing context or array, a
// negative timeout, a trace of another context.
absl::Status CheckRankDesc(const RankDesc& desc);

// kInvalidArgument for a group that is NULL or of another context.
absl::StatusOr<std::vector<GroupSpec>> GroupsOf(const RankDesc& desc);

// Fails as StreamError() says.
absl::StatusOr<std::vector<Stream*>> LanesOf(const RankDesc& desc);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_RANK_DESC_H_
