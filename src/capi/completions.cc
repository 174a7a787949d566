#include "commsched/completions.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

// What is taken at once, without memory for it: a caller who has room for more
// gets it by the next call.
constexpr size_t kAtOnce = 64;

absl::Status Next(Completions& completions, commsched_completion_t* out,
                  uint64_t num_out, int64_t timeout_ns, uint64_t* out_count) {
  if (num_out == 0) return absl::InvalidArgumentError("num_out is 0");
  if (timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_ns is ", timeout_ns, ", below 0"));
  }
  int64_t deadline_ns = DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns);
  uint64_t count = 0;
  Completion taken[kAtOnce];
  while (count < num_out) {
    const size_t most = std::min<uint64_t>(kAtOnce, num_out - count);
    const size_t num = completions.Next({taken, most}, deadline_ns);
    for (size_t i = 0; i < num; ++i) {
      out[count++] = {.key = taken[i].key,
                      .request = taken[i].request,
                      .user = taken[i].user,
                      .status = static_cast<commsched_status_t>(taken[i].code),
                      .reserved = 0};
    }
    if (num < most) break;
    deadline_ns = 0;  // More only if it is there.
  }
  *out_count = count;
  return absl::OkStatus();
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_completions_create(
    uint64_t capacity, commsched_completions_t** out_completions) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"out_completions", out_completions}}));
    if (capacity < 1 || capacity > COMMSCHED_MAX_COMPLETIONS) {
      return absl::InvalidArgumentError(
          absl::StrCat("capacity is ", capacity, ", outside 1..",
                       int{COMMSCHED_MAX_COMPLETIONS}));
    }
    *out_completions = new commsched_completions{
        std::make_shared<commsched::Completions>(capacity)};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_completions_next(
    commsched_completions_t* completions, commsched_completion_t* out,
    uint64_t num_out, int64_t timeout_ns, uint64_t* out_count) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"completions", completions},
                                    {"out", out},
                                    {"out_count", out_count}}));
    return commsched::Next(*completions->completions, out, num_out, timeout_ns,
                           out_count);
  });
}

commsched_status_t commsched_completions_wake(
    commsched_completions_t* completions) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"completions", completions}}));
    completions->completions->Wake();
    return absl::OkStatus();
  });
}

void commsched_completions_destroy(commsched_completions_t* completions) {
  AtVoidBoundary([&] { delete completions; });
}
