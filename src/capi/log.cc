#include "commsched/log.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/mutex.h"
#include "capi/boundary.h"

namespace commsched {
namespace {

static_assert(static_cast<int>(LogLevel::kDebug) == COMMSCHED_LOG_DEBUG);
static_assert(static_cast<int>(LogLevel::kInfo) == COMMSCHED_LOG_INFO);
static_assert(static_cast<int>(LogLevel::kWarning) == COMMSCHED_LOG_WARNING);
static_assert(static_cast<int>(LogLevel::kError) == COMMSCHED_LOG_ERROR);

struct Callback {
  commsched_log_fn fn = nullptr;
  void* user = nullptr;
};

// Two places, used in turn: the sink that is being replaced may still be
// running, the one before it is not.
struct Registration {
  Mutex mu;
  Callback callbacks[2] ABSL_GUARDED_BY(mu);
  int current ABSL_GUARDED_BY(mu) = 0;
};

Registration& TheRegistration() {
  static Registration* const registration = new Registration;
  return *registration;
}

void WriteToCallback(void* context, LogLevel level, absl::string_view line) {
  const Callback& callback = *static_cast<const Callback*>(context);
  const std::string text(line);  // Ends with a NUL; `line` need not.
  callback.fn(callback.user, static_cast<int32_t>(level), text.c_str());
}

void SetCallback(commsched_log_fn fn, void* user, int32_t min_level) {
  const int level =
      std::clamp(min_level, static_cast<int32_t>(LogLevel::kDebug),
                 static_cast<int32_t>(LogLevel::kOff));
  Registration& registration = TheRegistration();
  MutexLock lock(&registration.mu);
  SetMinLogLevel(static_cast<LogLevel>(level));
  if (fn == nullptr) {
    SetLogSink({nullptr, nullptr});
    return;
  }
  registration.current = 1 - registration.current;
  Callback& next = registration.callbacks[registration.current];
  next = {fn, user};
  SetLogSink({&WriteToCallback, &next});
}

}  // namespace
}  // namespace commsched

void commsched_set_log_callback(commsched_log_fn fn, void* user,
                                int32_t min_level) {
  commsched::AtVoidBoundary(
      [&] { commsched::SetCallback(fn, user, min_level); });
}
