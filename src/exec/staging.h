// Copies between user memory and the staging memory of packed launches.
#ifndef COMMSCHED_SRC_EXEC_STAGING_H_
#define COMMSCHED_SRC_EXEC_STAGING_H_

#include "absl/types/span.h"
#include "device/device.h"

namespace commsched {

using StagingStep = RowCopy;

// Runs the steps in order, on the calling thread.
void RunStaging(absl::Span<const StagingStep> steps);

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_STAGING_H_
