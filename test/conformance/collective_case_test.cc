// The cases that collectives are tested with.
#include "test/conformance/collective_case.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace commsched {
namespace {

using Values = CollectiveCase::Values;

constexpr uint64_t kCount = 400;

std::vector<Bytes> InputsOf(const CollectiveCase& drawn, const Shape& shape) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < shape.size; ++rank) {
    const auto* const data =
        static_cast<const std::byte*>(drawn.launch(rank).members[0].input);
    inputs.emplace_back(data, data + kCount * ElementBytes(shape.dtype));
  }
  return inputs;
}

uint64_t NumDifferent(const Bytes& a, const Bytes& b, uint64_t element) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < a.size(); i += element) {
    count += std::memcmp(a.data() + i, b.data() + i, element) == 0 ? 0 : 1;
  }
  return count;
}

// Also of types that are rounded to 16 bits at the end.
TEST(CollectiveCaseTest, AnotherOrderOfSumsShowsInCancellingValues) {
  std::mt19937_64 random(1);
  for (const int size : {3, 4, 5, 8}) {
    for (const commsched_dtype_t dtype :
         {COMMSCHED_F32, COMMSCHED_F64, COMMSCHED_F16, COMMSCHED_BF16}) {
      for (const auto op : {COMMSCHED_SUM, COMMSCHED_AVG}) {
        const Shape shape = {.kind = COMMSCHED_ALL_REDUCE,
                             .dtype = dtype,
                             .reduce_op = op,
                             .size = size};
        const MemberCase member = {kCount, {}, 0};
        const CollectiveCase drawn(shape, {member}, false, true, random,
                                   Values::kCancelling);
        std::vector<Bytes> inputs = InputsOf(drawn, shape);
        const Bytes sum = ReferenceOutputs(shape, member, inputs)[0];
        std::rotate(inputs.begin(), inputs.begin() + 1, inputs.end());
        const Bytes other = ReferenceOutputs(shape, member, inputs)[0];
        EXPECT_GT(NumDifferent(sum, other, ElementBytes(dtype)), kCount / 8)
            << "dtype " << dtype << ", op " << op << ", " << size << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace commsched
