// The COMMSCHED_* environment variables: one table with the type, range,
// default and meaning of each.
#ifndef COMMSCHED_SRC_BASE_ENV_H_
#define COMMSCHED_SRC_BASE_ENV_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace commsched {

struct EnvVariable {
  enum class Type { kInt, kChoice, kText };

  const char* name;
  Type type;
  // Of an integer, both inclusive. Unused otherwise.
  int64_t min;
  int64_t max;
  // Of a choice, joined by '|', the first having index 0. Unused otherwise.
  const char* choices;
  // As it would be written in the environment.
  const char* default_text;
  const char* doc;
};

// Every variable the library reads, by name.
absl::Span<const EnvVariable> EnvTable();

// Reads variables of the table. Thread-safe if `lookup` is.
class Env {
 public:
  // The text of a variable, or nullptr if it is not set.
  using Lookup = std::function<const char*(const char* name)>;

  Env(absl::Span<const EnvVariable> table, Lookup lookup);

  // Reads the environment of the process.
  static Lookup ProcessLookup();

  // The table above over that.
  static const Env& Process();

  // The value of an integer variable; of a choice, its index. An unset or
  // empty variable has its default. InvalidArgument, naming the variable, the
  // text and what is allowed, for any other text; Internal if `name` is not in
  // the table.
  absl::StatusOr<int64_t> Get(absl::string_view name) const;

  // The value of a text variable: whatever is there. Internal if `name` is not
  // one.
  absl::StatusOr<std::string> GetText(absl::string_view name) const;

  // The text of `variable`, or its default: what Get would read.
  std::string TextOf(const EnvVariable& variable) const;

 private:
  const absl::Span<const EnvVariable> table_;
  const Lookup lookup_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_ENV_H_
