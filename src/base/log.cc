#include "base/log.h"

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "absl/status/statusor.h"
#include "base/env.h"
#include "base/mutex.h"

namespace commsched {
namespace {

constexpr int kUnset = -1;

struct State {
  Mutex mu;
  LogSink sink ABSL_GUARDED_BY(mu) = {nullptr, nullptr};
  // A LogLevel, or kUnset until the environment is read.
  std::atomic<int> min_level{kUnset};
};

// Never destroyed: threads may log while the process exits.
State& GlobalState() {
  static State* const state = new State;
  return *state;
}

void WriteToStderr(LogLevel level, absl::string_view line) {
  const absl::string_view name = LogLevelName(level);
  fprintf(stderr, "commsched %.*s: %.*s\n", static_cast<int>(name.size()),
          name.data(), static_cast<int>(line.size()), line.data());
}

void WriteToSink(LogLevel level, absl::string_view line) {
  State& state = GlobalState();
  MutexLock lock(&state.mu);
  if (state.sink.write != nullptr) {
    state.sink.write(state.sink.context, level, line);
  } else {
    WriteToStderr(level, line);
  }
}

// Reads the level from the environment; the thread that comes first decides.
LogLevel InitMinLogLevel(State& state) {
  const absl::StatusOr<int64_t> value = Env::Process().Get("COMMSCHED_LOG");
  int level = static_cast<int>(LogLevel::kWarning);
  if (value.ok()) level = static_cast<int>(*value);
  int expected = kUnset;
  if (!state.min_level.compare_exchange_strong(expected, level)) {
    return static_cast<LogLevel>(expected);
  }
  if (!value.ok()) WriteToSink(LogLevel::kWarning, value.status().message());
  return static_cast<LogLevel>(level);
}

}  // namespace

absl::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "unknown";
}

void SetLogSink(LogSink sink) {
  State& state = GlobalState();
  MutexLock lock(&state.mu);
  state.sink = sink;
}

LogLevel MinLogLevel() {
  State& state = GlobalState();
  const int level = state.min_level.load(std::memory_order_relaxed);
  if (level == kUnset) return InitMinLogLevel(state);
  return static_cast<LogLevel>(level);
}

void SetMinLogLevel(LogLevel level) {
  GlobalState().min_level.store(static_cast<int>(level),
                                std::memory_order_relaxed);
}

void LogAnswer(absl::string_view line) { WriteToSink(LogLevel::kInfo, line); }

void LogLine(LogLevel level, absl::string_view line) {
  if (level < MinLogLevel()) return;
  WriteToSink(level, line);
}

}  // namespace commsched
