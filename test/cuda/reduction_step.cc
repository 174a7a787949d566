#include "test/cuda/reduction_step.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched::test {

ReductionStep::ReductionStep(int num_ranks, Ownership ownership,
                             const std::vector<std::string>& axes,
                             uint64_t count) {
  for (const std::string& axis : axes) {
    const GroupId group = graph_.AddGroup(axis, num_ranks).value();
    Buffer buffer;
    buffer.name = absl::StrCat("gradient of ", axis);
    buffer.count = count;
    buffer.ownership = ownership;
    const BufferId gradient = graph_.AddBuffer(buffer).value();
    Op write;
    write.name = absl::StrCat("write ", axis);
    write.accesses = {{gradient, AccessMode::kWrite, {}}};
    writes_.push_back(graph_.AddOp(write).value());
    Op reduce;
    reduce.name = absl::StrCat("reduce ", axis);
    reduce.kind = OpKind::kCollective;
    reduce.collective.kind = CollectiveKind::kAllReduce;
    reduce.collective.group = group;
    reduce.collective.input = {gradient, AccessMode::kRead, {}};
    reduce.collective.output = {gradient, AccessMode::kWrite, {}};
    (void)graph_.AddOp(reduce).value();
  }
}

absl::Status RunStep(Session* session, const ReductionStep& step,
                     Stream* lane) {
  RETURN_IF_ERROR(session->StepBegin());
  for (OpId op : step.writes()) {
    RETURN_IF_ERROR(session->Before(op, lane));
    RETURN_IF_ERROR(session->After(op, lane));
  }
  return session->StepEnd();
}

absl::Status RunSteps(Session* session, const ReductionStep& step, Stream* lane,
                      int num_steps) {
  for (int i = 0; i < num_steps; ++i) {
    RETURN_IF_ERROR(RunStep(session, step, lane));
  }
  return session->Drain();
}

}  // namespace commsched::test
