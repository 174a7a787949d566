#ifndef COMMSCHED_EXAMPLES_TRAINER_ADDRESS_RANGE_H_
#define COMMSCHED_EXAMPLES_TRAINER_ADDRESS_RANGE_H_

#include <algorithm>
#include <cstdint>

namespace commsched::trainer {

// From the lowest to the highest byte of all memory that it is shown.
//
// Thread-compatible.
class AddressRange {
 public:
  void Include(const void* memory, uint64_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    begin_ = std::min(begin_, begin);
    end_ = std::max(end_, begin + bytes);
  }

  // 0 before there was any.
  uint64_t bytes() const { return begin_ < end_ ? end_ - begin_ : 0; }

 private:
  uintptr_t begin_ = UINTPTR_MAX;
  uintptr_t end_ = 0;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_ADDRESS_RANGE_H_
