#ifndef COMMSCHED_SRC_CHECKPOINT_STATUS_H_
#define COMMSCHED_SRC_CHECKPOINT_STATUS_H_

#include <cmath>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "commsched/status.h"

namespace commsched::engine {

// The outcome of a call: a code of the C ABI and, if it failed, the message.
// The engine is a client of the C ABI, so it carries that ABI's codes rather
// than Abseil's. Success holds no memory.
//
// Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(commsched_status_t code, std::string message)
      : code_(code), message_(std::move(message)) {}

  // What the C ABI just returned on this thread, with its message; `context`
  // says what the engine was doing.
  static Status FromCall(commsched_status_t code, const char* context) {
    if (code == COMMSCHED_OK) return Status();
    return Status(code, std::string(context) + ": " + commsched_last_error());
  }

  bool ok() const { return code_ == COMMSCHED_OK; }
  commsched_status_t code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  commsched_status_t code_ = COMMSCHED_OK;
  std::string message_;
};

// Puts commsched_last_error() back as it was, for calls that may fail though
// what they are part of does not.
class LastErrorKeeper {
 public:
  LastErrorKeeper() : message_(commsched_last_error()) {}
  ~LastErrorKeeper() { commsched_set_last_error(message_.c_str()); }
  LastErrorKeeper(const LastErrorKeeper&) = delete;
  LastErrorKeeper& operator=(const LastErrorKeeper&) = delete;

 private:
  const std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return Status(COMMSCHED_INVALID_ARGUMENT, std::move(message));
}

// Refuses a negative or infinite number of the caller's.
inline Status CheckNotNegative(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return Status();
  return InvalidArgument(std::string("engine: ") + field + " is " +
                         std::to_string(value) + "; it must be 0 or more");
}

inline Status FailedPrecondition(std::string message) {
  return Status(COMMSCHED_FAILED_PRECONDITION, std::move(message));
}

// Runs `body`, of whose failure other ranks must hear: also if it throws.
template <typename Body>
Status Caught(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& e) {
    return Status(COMMSCHED_INTERNAL, e.what());
  }
}

}  // namespace commsched::engine

// Returns from the enclosing function if `expression`, a Status, failed.
#define ENGINE_RETURN_IF_ERROR(expression)                        \
  do {                                                            \
    if (auto engine_status = (expression); !engine_status.ok()) { \
      return engine_status;                                       \
    }                                                             \
  } while (false)

#endif  // COMMSCHED_SRC_CHECKPOINT_STATUS_H_
