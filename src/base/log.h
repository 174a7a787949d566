// Levelled lines to the caller's sink, or to stderr while there is none.
//
// Only the layer that decides an error logs it (or nobody does and it is
// returned); never on the path of a steady-state step (I6).
#ifndef COMMSCHED_SRC_BASE_LOG_H_
#define COMMSCHED_SRC_BASE_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace commsched {

enum class LogLevel { kDebug = 0, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error", "off".
absl::string_view LogLevelName(LogLevel level);

// Where lines go. `write` may be called from any thread, one call at a time. It
// is the one callback that runs with a lock of ours held, which is what makes
// both true; so it must not log. The line has no newline at its end and lives
// for the call.
struct LogSink {
  void (*write)(void* context, LogLevel level, absl::string_view line);
  void* context;
};

// Replaces the sink; a null `write` brings stderr back. Blocks until a call of
// the previous sink has returned: its context may be freed afterwards.
void SetLogSink(LogSink sink);

// The least severe level that is written. COMMSCHED_LOG until set; a bad value
// there is reported once as a warning, and means its default.
LogLevel MinLogLevel();
void SetMinLogLevel(LogLevel level);

// Writes one line if `level` is severe enough. kOff is not a line's level.
void LogLine(LogLevel level, absl::string_view line);

// Writes a line that was asked for, whatever the level: as kInfo.
void LogAnswer(absl::string_view line);

// Builds the line from pieces, as absl::StrCat does, only if it is written.
template <typename... Pieces>
void Log(LogLevel level, const Pieces&... pieces) {
  if (level < MinLogLevel()) return;
  LogLine(level, absl::StrCat(pieces...));
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_LOG_H_
