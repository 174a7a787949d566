// What tables of C functions need of plugins that are written in C++. No state:
// any thread.
#ifndef COMMSCHED_PLUGINS_SUPPORT_TABLE_H_
#define COMMSCHED_PLUGINS_SUPPORT_TABLE_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>

#include "commsched/plugin.h"
#include "support/outcome.h"

namespace commsched {

// Puts `reason`, if there is one, into `message`, cut to `message_size` bytes.
// Takes a text of C: what ran out of memory is told without allocating.
inline void PutReason(const char* reason, char* message,
                      uint64_t message_size) {
  if (*reason == '\0' || message_size == 0) return;
  snprintf(message, message_size, "%s", reason);
}

template <auto body>
struct Guarded;

template <typename Result>
concept NoOutcome = !std::same_as<Result, Outcome>;

// What returns no Outcome cannot say that it failed: 0, or nothing, is returned
// in place of what it throws.
template <NoOutcome Result, typename... Arguments, Result (*body)(Arguments...)>
struct Guarded<body> {
  static Result Call(Arguments... arguments) {
    try {
      return body(arguments...);
    } catch (...) {
      return Result();
    }
  }
};

template <typename... Arguments, Outcome (*body)(Arguments...)>
struct Guarded<body> {
  static commsched_status_t Call(Arguments... arguments, char* message,
                                 uint64_t message_size) {
    try {
      const Outcome outcome = body(arguments...);
      PutReason(outcome.reason.c_str(), message, message_size);
      return outcome.code;
    } catch (const std::bad_alloc&) {
      PutReason("no memory", message, message_size);
      return COMMSCHED_RESOURCE_EXHAUSTED;
    } catch (const std::exception& thrown) {
      PutReason(thrown.what(), message, message_size);
    } catch (...) {
      PutReason("an exception", message, message_size);
    }
    return COMMSCHED_INTERNAL;
  }
};

// The function of a table that calls `body`, out of which no exception comes.
// An Outcome of `body` becomes a code and a message: `body` has no parameters
// `message` and `message_size`, the last two in the table.
template <auto body>
inline constexpr auto kGuarded = &Guarded<body>::Call;

// What the module exports: `list` has static storage. `init` may be null.
template <size_t num_plugins>
constexpr commsched_plugin_list_t PluginList(
    const commsched_plugin_t (&list)[num_plugins],
    decltype(commsched_plugin_list_t::init) init) {
  return {sizeof(commsched_plugin_list_t), COMMSCHED_PLUGIN_LIST_ABI,
          num_plugins, list, init};
}

}  // namespace commsched

#endif  // COMMSCHED_PLUGINS_SUPPORT_TABLE_H_
