// Failures of the engine as messages, empty for none.
#ifndef COMMSCHED_TEST_ENGINE_MESSAGES_H_
#define COMMSCHED_TEST_ENGINE_MESSAGES_H_

#include <cstdio>
#include <cstdlib>
#include <string>

#include "commsched/engine.h"

namespace commsched::engine {

inline std::string LastError() { return commsched_engine_last_error(); }

inline std::string Message(commsched_status_t code) {
  return code == COMMSCHED_OK ? "" : LastError();
}
inline std::string Message(std::string message) { return message; }

// What no test is about.
inline void Require(commsched_status_t code) {
  if (code == COMMSCHED_OK) return;
  std::fprintf(stderr, "test model: %s\n", commsched_last_error());
  std::abort();
}

}  // namespace commsched::engine

// Of a status or a message.
#define RETURN_MESSAGE_IF_ERROR(call)                                 \
  do {                                                                \
    std::string message_of_call = ::commsched::engine::Message(call); \
    if (!message_of_call.empty()) return message_of_call;             \
  } while (false)

#endif  // COMMSCHED_TEST_ENGINE_MESSAGES_H_
