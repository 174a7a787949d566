// Integers that do not mix: an OpId is not a BufferId.
#ifndef COMMSCHED_SRC_BASE_STRONG_ID_H_
#define COMMSCHED_SRC_BASE_STRONG_ID_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

namespace commsched {

// An id of kind `Tag`, which is never defined:
//
//   using OpId = StrongId<struct OpIdTag>;
//
// Ids are usually indices into a vector: `ops[id.value()]`. A default id is
// invalid(), the greatest value of Rep. Thread-compatible.
template <typename Tag, typename Rep = uint32_t>
class StrongId {
  static_assert(std::is_unsigned_v<Rep>, "ids are unsigned");

 public:
  using rep = Rep;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}

  static constexpr StrongId invalid() { return StrongId(); }

  constexpr Rep value() const { return value_; }
  constexpr bool valid() const { return value_ != kInvalid; }

  friend constexpr bool operator==(StrongId, StrongId) = default;
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  static constexpr Rep kInvalid = std::numeric_limits<Rep>::max();

  Rep value_ = kInvalid;
};

}  // namespace commsched

template <typename Tag, typename Rep>
struct std::hash<commsched::StrongId<Tag, Rep>> {
  std::size_t operator()(commsched::StrongId<Tag, Rep> id) const {
    return std::hash<Rep>()(id.value());
  }
};

#endif  // COMMSCHED_SRC_BASE_STRONG_ID_H_
