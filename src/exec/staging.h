// Copies between user memory and the staging memory of packed launches.
#ifndef COMMSCHED_SRC_EXEC_STAGING_H_
#define COMMSCHED_SRC_EXEC_STAGING_H_

#include <cstdint>

#include "absl/types/span.h"

namespace commsched {

// One copy: `rows` rows of `row_bytes` each. Strides are in bytes, from row to
// row; a dense copy is one row.
struct StagingStep {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t to_stride = 0;
  uint64_t from_stride = 0;
};

// Runs the steps in order, on the calling thread.
void RunStaging(absl::Span<const StagingStep> steps);

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_STAGING_H_
