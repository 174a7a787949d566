// Where C++ ends: every public function runs its body through AtBoundary().
#ifndef COMMSCHED_SRC_CAPI_BOUNDARY_H_
#define COMMSCHED_SRC_CAPI_BOUNDARY_H_

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "commsched/status.h"

namespace commsched {

// Keeps `message` as this thread's last error. If there is no memory for it, a
// fixed text stands in.
void SetLastError(absl::string_view message) noexcept;

// The same for a failure of ours, whose `code` it returns.
commsched_status_t ReportFailure(commsched_status_t code,
                                 absl::string_view message) noexcept;

// The same of a status that is not OK.
commsched_status_t ReportFailure(const absl::Status& status) noexcept;

// How many failures this thread has reported: tells whether a call of the
// caller's code, which may call us, left a message.
uint64_t NumFailuresReported() noexcept;

// RESOURCE_EXHAUSTED for what the process, or the machine, has no more of:
// threads, descriptors, memory; else INTERNAL. For what is not a Status yet.
commsched_status_t CodeOf(const std::error_code& error) noexcept;

// Where a Status becomes a code. Success touches nothing but the status.
inline commsched_status_t Report(const absl::Status& status) noexcept {
  if (ABSL_PREDICT_TRUE(status.ok())) return COMMSCHED_OK;
  return ReportFailure(status);
}

// Runs `body`, the C++ side of one public function, which returns a Status.
// This is the only place where a Status becomes a code, and the only one that
// catches.
template <typename Body>
commsched_status_t AtBoundary(Body&& body) noexcept {
  try {
    return Report(std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    return ReportFailure(COMMSCHED_RESOURCE_EXHAUSTED, "out of host memory");
  } catch (const std::system_error& e) {
    return ReportFailure(CodeOf(e.code()), e.what());
  } catch (const std::exception& e) {
    return ReportFailure(COMMSCHED_INTERNAL, e.what());
  } catch (...) {
    return ReportFailure(COMMSCHED_INTERNAL, "an exception of unknown type");
  }
}

// The same for functions that cannot say that they failed; what is caught is
// kept as the last error.
template <typename Body>
void AtVoidBoundary(Body&& body) noexcept {
  AtBoundary([&]() -> absl::Status {
    std::forward<Body>(body)();
    return absl::OkStatus();
  });
}

// The status that a code of the caller's stands for; kUnknown, with the number
// in the message, if it is none of ours.
absl::Status StatusFromCode(commsched_status_t code, absl::string_view message);

// A pointer argument and what the header calls it.
struct Argument {
  const char* name;
  const void* value;
};

// kInvalidArgument naming the first argument that is NULL.
absl::Status RequireNonNull(std::initializer_list<Argument> arguments);

// kInvalidArgument unless `array` is there or `count` is 0.
absl::Status RequireArray(const char* name, const void* array, uint64_t count);

// kInvalidArgument if only one of two fields of a struct is set. Who gives an
// array there has forgotten its count, and would not notice that it is ignored;
// an empty list that is passed to a function is no such mistake.
absl::Status RequireArrayField(const char* name, const void* array,
                               const char* count_name, uint64_t count);

// A copy that commsched_string_free() releases.
absl::StatusOr<char*> DuplicateString(absl::string_view text);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_BOUNDARY_H_
