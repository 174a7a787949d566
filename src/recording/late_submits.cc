#include "recording/late_submits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/collective_shape.h"

namespace commsched {

BufferId LateBoundOf(const Graph& ops, const Op& op) {
  for (const Access& access : op.accesses) {
    if (ops.buffer(access.buffer).ownership == Ownership::kLateBound) {
      return access.buffer;
    }
  }
  return BufferId();
}

absl::Status CheckSubmittedWith(const Graph& ops, OpId id, bool tells_counts,
                                absl::Span<const LateBinding> late) {
  const Op& op = ops.op(id);
  const BufferId uses = LateBoundOf(ops, op);
  if (!uses.valid() && !late.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("submit: collective '", op.name,
                     "' uses no late-bound buffer, but binds buffer ",
                     late.front().buffer.value()));
  }
  if (uses.valid() && late.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "submit: collective '", op.name, "' uses late-bound buffer '",
        ops.buffer(uses).name, "' and must bind it"));
  }
  if (tells_counts) return absl::OkStatus();
  for (const LateBinding& binding : late) {
    if (binding.buffer.value() >= ops.buffers().size()) continue;
    const Buffer& buffer = ops.buffer(binding.buffer);
    const bool counts_differ =
        !binding.counts.empty() && binding.counts != op.collective.counts;
    if (binding.count == buffer.count && !counts_differ) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "submit: collective '", op.name, "' binds buffer '", buffer.name, "' ",
        counts_differ
            ? std::string("with counts of this step")
            : absl::StrCat("to ", binding.count,
                           " elements; it was declared with ", buffer.count),
        ", and the collective does not tell its counts at each submit"));
  }
  return absl::OkStatus();
}

std::string AmountText(const Graph& ops, OpId id,
                       absl::Span<const LateBinding> late) {
  if (late.empty()) return "";
  const CollectiveSpec& spec = ops.op(id).collective;
  if (!spec.counts.empty()) {
    absl::Span<const uint64_t> counts = spec.counts;
    for (const LateBinding& binding : late) {
      if (!binding.counts.empty()) counts = binding.counts;
    }
    return absl::StrCat(" with counts ", absl::StrJoin(counts, ","));
  }
  // All bind the same side, by which the other one goes.
  const LateBinding* says = &late.front();
  for (const LateBinding& binding : late) {
    if (HasInput(spec.kind) && binding.buffer == spec.input.buffer) {
      says = &binding;
    }
  }
  return absl::StrCat(" of ", says->count, " elements");
}

}  // namespace commsched
