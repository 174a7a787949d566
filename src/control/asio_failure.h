// What Asio throws.
#ifndef COMMSCHED_SRC_CONTROL_ASIO_FAILURE_H_
#define COMMSCHED_SRC_CONTROL_ASIO_FAILURE_H_

#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "boost/system/error_code.hpp"
#include "boost/system/system_error.hpp"

namespace commsched {

// Whether the process, or the machine, has no more of what was asked for:
// descriptors, threads, memory.
inline bool IsScarcity(const boost::system::error_code& error) {
  switch (error.value()) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
      return error.category() == boost::system::system_category() ||
             error.category() == boost::system::generic_category();
    default:
      return false;
  }
}

// `std::make_unique<T>(arguments)` of what has an io_context, which needs
// descriptors: kResourceExhausted, "`what`: ...", if there are none.
template <typename T, typename... Arguments>
absl::StatusOr<std::unique_ptr<T>> MakeWithAsio(absl::string_view what,
                                                Arguments&&... arguments) {
  try {
    return std::make_unique<T>(std::forward<Arguments>(arguments)...);
  } catch (const boost::system::system_error& e) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": ", e.what()));
  }
}

// The status of what a handler has thrown, with which its thread ends. Within a
// catch clause.
inline absl::Status CaughtOnThread(absl::string_view what) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": out of host memory"));
  } catch (const boost::system::system_error& e) {
    const absl::StatusCode code = IsScarcity(e.code())
                                      ? absl::StatusCode::kResourceExhausted
                                      : absl::StatusCode::kInternal;
    return absl::Status(code, absl::StrCat(what, ": ", e.what()));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(what, ": ", e.what()));
  }
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_ASIO_FAILURE_H_
