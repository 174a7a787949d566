/// Errors as values, and what the handles of commsched/commsched.hpp have in
/// common.
#ifndef COMMSCHED_RESULT_HPP_
#define COMMSCHED_RESULT_HPP_

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commsched/commsched.h"

namespace commsched {
namespace api {

/// A code and, if it is not OK, the message that belongs to it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(commsched_status_t code, std::string message)
      : code_(code), message_(std::move(message)) {}

  /// From what a function of the C ABI has just returned on this thread.
  static Status Of(commsched_status_t code) {
    if (code == COMMSCHED_OK) return Status();
    return Status(code, commsched_last_error());
  }

  bool ok() const { return code_ == COMMSCHED_OK; }
  commsched_status_t code() const { return code_; }
  const std::string& message() const { return message_; }

  /// "OK", or "INVALID_ARGUMENT: buffer 'grad' has 0 elements".
  std::string ToString() const {
    const std::string name = commsched_status_name(code_);
    return ok() ? name : name + ": " + message_;
  }

 private:
  commsched_status_t code_ = COMMSCHED_OK;
  std::string message_;
};

/// A value, or why there is none. Reading the value of a failed one is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit
    assert(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& operator*() & {
    assert(ok());
    return *value_;
  }
  const T& operator*() const& {
    assert(ok());
    return *value_;
  }
  T&& operator*() && {
    assert(ok());
    return *std::move(value_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace internal {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const noexcept {
    kDestroy(handle);
  }
};

/// Owns the C handle `T`.
template <typename T, auto kDestroy>
class Handle {
 public:
  /// For calls that this header does not wrap; stays owned.
  T* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 protected:
  Handle() = default;
  explicit Handle(T* handle) : handle_(handle) {}

 private:
  std::unique_ptr<T, Destroyer<kDestroy>> handle_;
};

/// A result whose value is `make()` if `code` is OK.
template <typename Make>
auto ResultOf(commsched_status_t code, Make make)
    -> Result<std::decay_t<decltype(make())>> {
  if (code != COMMSCHED_OK) return Status::Of(code);
  return make();
}

/// Takes over a string of the library's.
inline Result<std::string> StringOf(commsched_status_t code, char* text) {
  return ResultOf(code, [&] {
    const std::unique_ptr<char, Destroyer<commsched_string_free>> owner(text);
    return std::string(text);
  });
}

/// The data of a vector, NULL if it is empty.
template <typename T>
const T* DataOf(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace internal

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_RESULT_HPP_
