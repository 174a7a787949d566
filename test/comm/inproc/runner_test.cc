#include "comm/inproc/runner.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/launch_check.h"
#include "graph/collective_shape.h"
#include "gtest/gtest.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

constexpr int kSize = 5;
constexpr uint64_t kMaxElements = 4 * kSize * kSize;

// A list of small members that all ranks posted, with the memory of all ranks:
// even and uneven parts, strides, nothing at all.
class SmallMembers {
 public:
  explicit SmallMembers(commsched_collective_t kind) {
    const bool has_parts = NumParts(KindOf(kind), kSize) > 1;
    for (uint64_t i = 0; i < kSize * kSize; ++i) counts_.push_back(i % 4);
    for (int rank = 0; rank < kSize; ++rank) {
      std::vector<commsched_member_t>& members = members_.emplace_back();
      for (uint64_t m = 0; m < 40; ++m) {
        const uint64_t strided = has_parts && m % 3 == 1 ? 4 : 0;
        members.push_back({NewInput(rank, m), NewOutput(), m % 4,
                           has_parts && m % 5 == 0 ? counts_.data() : nullptr,
                           m % 5 == 0 ? 0 : strided, m % 5 == 0 ? 0 : strided,
                           0, 0});
      }
      launches_.push_back(LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, 1, 1,
                                   static_cast<uint32_t>(members.size()),
                                   members.data()));
    }
    transfer_ = {.size = kSize, .first_rank = 0, .launches = launches_.data()};
  }
  SmallMembers(const SmallMembers&) = delete;

  // All outputs once the blocks are run, `per_claim` at a time, each claim by
  // whichever of two threads' runners has the turn.
  std::vector<std::vector<float>> Run(uint64_t per_claim) {
    for (auto& output : outputs_) std::fill(output.begin(), output.end(), -1);
    TransferScratch scratches[] = {TransferScratch(kSize),
                                   TransferScratch(kSize)};
    BlockRunner first(transfer_, &scratches[0]);
    BlockRunner second(transfer_, &scratches[1]);
    const uint64_t num_blocks = NumBlocks(transfer_);
    for (uint64_t begin = 0; begin < num_blocks; begin += per_claim) {
      const uint64_t end = std::min(begin + per_claim, num_blocks);
      BlockRunner& runner = begin / per_claim % 3 == 0 ? first : second;
      for (uint64_t b = begin; b < end; ++b) runner.Run(b, end);
    }
    return outputs_;
  }

 private:
  const float* NewInput(int rank, uint64_t member) {
    std::vector<float>& input = inputs_.emplace_back(kMaxElements);
    for (uint64_t e = 0; e < kMaxElements; ++e) {
      input[e] = static_cast<float>(1000 * (rank + 1) + member * 10 + e);
    }
    return input.data();
  }
  float* NewOutput() { return outputs_.emplace_back(kMaxElements).data(); }

  std::vector<uint64_t> counts_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<std::vector<commsched_member_t>> members_;
  std::vector<commsched_launch_t> launches_;
  Transfer transfer_;
};

// One block at a time there is no next one to look at.
TEST(BlockRunnerTest, ABlockDoesTheSameWhateverFollowsIt) {
  for (commsched_collective_t kind = 0; kind <= COMMSCHED_REDUCE; ++kind) {
    SmallMembers members(kind);
    const auto alone = members.Run(1);
    for (const uint64_t per_claim : {2, 7, 1000}) {
      EXPECT_EQ(members.Run(per_claim), alone)
          << CollectiveName(kind) << " " << per_claim;
    }
  }
}

}  // namespace
}  // namespace commsched
