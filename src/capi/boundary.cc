#include "capi/boundary.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

// A last error that always has a text: `shown` is `text` or a literal.
struct LastError {
  std::string text;
  const char* shown = "";
  uint64_t count = 0;
};

LastError& ThisThreadsError() {
  thread_local LastError error;
  return error;
}

#define ASSERT_SAME_CODE(ours, abseils)                                \
  static_assert(static_cast<int>(absl::StatusCode::abseils) == (ours), \
                "status codes are numerically Abseil's")
ASSERT_SAME_CODE(COMMSCHED_OK, kOk);
ASSERT_SAME_CODE(COMMSCHED_CANCELLED, kCancelled);
ASSERT_SAME_CODE(COMMSCHED_UNKNOWN, kUnknown);
ASSERT_SAME_CODE(COMMSCHED_INVALID_ARGUMENT, kInvalidArgument);
ASSERT_SAME_CODE(COMMSCHED_DEADLINE_EXCEEDED, kDeadlineExceeded);
ASSERT_SAME_CODE(COMMSCHED_NOT_FOUND, kNotFound);
ASSERT_SAME_CODE(COMMSCHED_ALREADY_EXISTS, kAlreadyExists);
ASSERT_SAME_CODE(COMMSCHED_PERMISSION_DENIED, kPermissionDenied);
ASSERT_SAME_CODE(COMMSCHED_RESOURCE_EXHAUSTED, kResourceExhausted);
ASSERT_SAME_CODE(COMMSCHED_FAILED_PRECONDITION, kFailedPrecondition);
ASSERT_SAME_CODE(COMMSCHED_ABORTED, kAborted);
ASSERT_SAME_CODE(COMMSCHED_OUT_OF_RANGE, kOutOfRange);
ASSERT_SAME_CODE(COMMSCHED_UNIMPLEMENTED, kUnimplemented);
ASSERT_SAME_CODE(COMMSCHED_INTERNAL, kInternal);
ASSERT_SAME_CODE(COMMSCHED_UNAVAILABLE, kUnavailable);
ASSERT_SAME_CODE(COMMSCHED_DATA_LOSS, kDataLoss);
ASSERT_SAME_CODE(COMMSCHED_UNAUTHENTICATED, kUnauthenticated);
#undef ASSERT_SAME_CODE

}  // namespace

void SetLastError(absl::string_view message) noexcept {
  LastError& error = ThisThreadsError();
  try {
    error.text.assign(message.data(), message.size());
    error.shown = error.text.c_str();
  } catch (const std::exception&) {
    error.shown = "out of host memory; the message is lost";
  }
}

commsched_status_t ReportFailure(commsched_status_t code,
                                 absl::string_view message) noexcept {
  ++ThisThreadsError().count;
  SetLastError(message);
  return code;
}

commsched_status_t CodeOf(const std::error_code& error) noexcept {
  const bool is_scarcity = error == std::errc::resource_unavailable_try_again ||
                           error == std::errc::too_many_files_open ||
                           error == std::errc::too_many_files_open_in_system ||
                           error == std::errc::not_enough_memory;
  return is_scarcity ? COMMSCHED_RESOURCE_EXHAUSTED : COMMSCHED_INTERNAL;
}

uint64_t NumFailuresReported() noexcept { return ThisThreadsError().count; }

commsched_status_t ReportFailure(const absl::Status& status) noexcept {
  return ReportFailure(static_cast<commsched_status_t>(status.code()),
                       status.message());
}

absl::Status StatusFromCode(commsched_status_t code,
                            absl::string_view message) {
  if (code < COMMSCHED_OK || code > COMMSCHED_UNAUTHENTICATED) {
    return absl::UnknownError(absl::StrCat(message, " (code ", code, ")"));
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

absl::Status RequireNonNull(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (argument.value == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument '", argument.name, "' is NULL"));
    }
  }
  return absl::OkStatus();
}

absl::Status RequireArray(const char* name, const void* array, uint64_t count) {
  if (array != nullptr || count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("array '", name, "' is NULL, but has ", count, " entries"));
}

absl::Status RequireArrayField(const char* name, const void* array,
                               const char* count_name, uint64_t count) {
  if (array == nullptr || count != 0) return RequireArray(name, array, count);
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is given, but '", count_name, "' is 0: set both or none"));
}

absl::StatusOr<char*> DuplicateString(absl::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a text of ", text.size(), " bytes"));
  }
  // An empty string_view may have no data.
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace commsched

const char* commsched_last_error(void) {
  return commsched::ThisThreadsError().shown;
}

void commsched_set_last_error(const char* message) {
  commsched::SetLastError(message == nullptr ? "" : message);
}
