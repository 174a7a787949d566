// The description of the flat ABI: names and types are in a table that
// scripts/write-abi-table writes, and the numbers are those of the compiler
// that builds this file.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "capi/boundary.h"
#include "commsched/attention.h"
#include "commsched/checkpoint.h"
#include "commsched/commsched.h"
#include "commsched/engine.h"
#include "commsched/engine_ops.h"
#include "commsched/model.h"
#include "commsched/plugin.h"

namespace commsched {
namespace {

// A size, an enumerator or a default, as JSON writes it.
class AbiNumber {
 public:
  // Implicit, so that the table lists the expressions alone.
  template <typename T>
  constexpr AbiNumber(T value)  // NOLINT(google-explicit-constructor)
      : real_(value),
        integer_(static_cast<uint64_t>(value)),
        kind_(std::is_floating_point_v<T> ? Kind::kReal
              : value < T{}               ? Kind::kNegative
                                          : Kind::kPositive) {}

  void AppendTo(std::string* text) const {
    switch (kind_) {
      case Kind::kReal:
        absl::StrAppendFormat(text, "%.17g", real_);
        break;
      case Kind::kNegative:
        absl::StrAppend(text, static_cast<int64_t>(integer_));
        break;
      case Kind::kPositive:
        absl::StrAppend(text, integer_);
        break;
    }
  }

 private:
  enum class Kind { kReal, kNegative, kPositive };

  double real_;
  uint64_t integer_;
  Kind kind_;
};

// A piece of the text, with a '#' for each of the numbers.
struct AbiPiece {
  const char* text;
  std::initializer_list<AbiNumber> numbers;
};

// Whether `T`, a type of integers or an enum, has negative values.
template <typename T>
constexpr bool IsSigned() {
  if constexpr (std::is_enum_v<T>) {
    return std::is_signed_v<std::underlying_type_t<T>>;
  } else {
    return std::is_signed_v<T>;
  }
}

#define AT(type, field) offsetof(type, field), sizeof(type::field)
constexpr AbiPiece kPieces[] = {
#include "capi/abi_table.inc"
};
#undef AT

std::string WriteAbi() {
  std::string text;
  for (const AbiPiece& piece : kPieces) {
    const AbiNumber* number = piece.numbers.begin();
    for (const char* at = piece.text; *at != '\0'; ++at) {
      if (*at == '#') {
        (number++)->AppendTo(&text);
      } else {
        text += *at;
      }
    }
  }
  return text;
}

// Never destroyed: callers may keep the text until the process ends.
const std::string& AbiText() {
  static const std::string* const text = new std::string(WriteAbi());
  return *text;
}

}  // namespace
}  // namespace commsched

const char* commsched_abi_json(void) {
  const char* text = nullptr;
  commsched::AtVoidBoundary([&] { text = commsched::AbiText().c_str(); });
  return text;
}
