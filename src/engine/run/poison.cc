#include "engine/run/poison.h"

#include <vector>

#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

Status Poison::RefuseBuffer(const std::string& name,
                            commsched_buffer_id_t buffer) const {
  if (failure.ok()) return Status();
  uint32_t poisoned = 0;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_buffer_poisoned(session, buffer, &poisoned),
      "asking for a buffer's state"));
  if (poisoned == 0) return Status();
  return Status(failure.code(), "engine: " + call + " refuses buffer '" + name +
                                    "', which a failed step has left poisoned" +
                                    ": " + failure.message());
}

Status Poison::Refuse(uint32_t bucket, BufferKind kind) const {
  const std::vector<BucketBuffer> rows = plan->BuffersOf(bucket);
  const BucketBuffer* const row = FindBuffer(rows, kind);
  if (row == nullptr) return Status();
  const std::string name = Indexed(row->name, bucket);
  const BucketIds& ids = plan->graph().buckets[bucket];
  for (uint32_t mb = 0; mb < ids.all(kind).size(); ++mb) {
    if (ids.of(kind, mb) == kNoId) continue;
    ENGINE_RETURN_IF_ERROR(
        RefuseBuffer(row->by_micro_batch ? Indexed(name.c_str(), mb) : name,
                     ids.of(kind, mb)));
  }
  return Status();
}

// Reduced gradients come first, since what a failure leaves in them is what
// spoils the rest. kAccumulated and kSent are missing here: the optimizer reads
// what a reduction makes of them.
Status Poison::RefuseAll() const {
  const StepGraph& graph = plan->graph();
  for (uint32_t b = 0; b < graph.buckets.size(); ++b) {
    for (const BufferKind kind :
         {BufferKind::kShard, BufferKind::kSummand, BufferKind::kGradients,
          BufferKind::kParameters, BufferKind::kMasters, BufferKind::kState}) {
      ENGINE_RETURN_IF_ERROR(Refuse(b, kind));
    }
  }
  for (uint32_t slot = 0; slot < graph.staging.size(); ++slot) {
    ENGINE_RETURN_IF_ERROR(
        RefuseBuffer(Indexed("staging", slot), graph.staging[slot]));
  }
  for (uint32_t slot = 0; slot < graph.gradient_staging.size(); ++slot) {
    ENGINE_RETURN_IF_ERROR(RefuseBuffer(Indexed("gradient_staging", slot),
                                        graph.gradient_staging[slot]));
  }
  return Status();
}

}  // namespace commsched::engine
