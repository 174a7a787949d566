// The calls of a step that one thread makes in the same order every time.
#ifndef COMMSCHED_SRC_EXEC_SCRIPT_H_
#define COMMSCHED_SRC_EXEC_SCRIPT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/program.h"

namespace commsched {

struct ScriptedCall {
  enum class Kind : uint8_t { kBefore, kAfter, kSubmit };
  Kind kind = Kind::kBefore;
  bool opens_gates = false;  // kSubmit: whether launches wait for it
  OpId op;
  uint32_t node = 0;  // of a compute op, in Program::nodes
  uint32_t due = 0;   // launches of the step that are due once it is made
};

// Proves that a step of `calls` is legal and whole, so that whoever makes them
// need neither check nor count, and fills in `node` and `due`. kInternal,
// naming the call, if it is not.
absl::Status WriteScript(const Program& program,
                         absl::Span<ScriptedCall> calls);

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_SCRIPT_H_
