#include "exec/staging.h"

#include <cstring>

namespace commsched {

void RunStaging(absl::Span<const StagingStep> steps) {
  for (const StagingStep& step : steps) {
    if (step.row_bytes == 0) continue;
    char* to = static_cast<char*>(step.to);
    const char* from = static_cast<const char*>(step.from);
    for (uint64_t row = 0; row < step.rows; ++row) {
      std::memcpy(to, from, step.row_bytes);
      to += step.to_stride;
      from += step.from_stride;
    }
  }
}

}  // namespace commsched
