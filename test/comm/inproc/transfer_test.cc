#include "comm/inproc/transfer.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

// A launch that all ranks posted with the same members.
class Posted {
 public:
  Posted(commsched_collective_t kind, int size,
         std::vector<commsched_member_t> members)
      : members_(std::move(members)) {
    const commsched_launch_t launch =
        LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, 0, 1,
                 static_cast<uint32_t>(members_.size()), members_.data());
    launches_.assign(size, launch);
    transfer_ = {.size = size, .first_rank = 0, .launches = launches_.data()};
  }
  Posted(const Posted&) = delete;

  const Transfer& transfer() const { return transfer_; }

 private:
  std::vector<commsched_member_t> members_;
  std::vector<commsched_launch_t> launches_;
  Transfer transfer_;
};

commsched_member_t MemberOf(uint64_t count, const uint64_t* counts = nullptr) {
  return {nullptr, nullptr, count, counts, 0, 0, 0, 0};
}

TEST(BlockCursorTest, BlocksCoverEveryElementOnceInOrder) {
  const uint64_t counts[] = {100'000, 0, 5, 70'000};
  Posted posted(COMMSCHED_REDUCE_SCATTER, 4,
                {MemberOf(0, counts), MemberOf(0), MemberOf(3)});
  BlockCursor cursor(posted.transfer());
  std::vector<std::vector<uint64_t>> covered(3, std::vector<uint64_t>(4, 0));
  for (uint64_t b = 0; b < NumBlocks(posted.transfer()); ++b) {
    const TransferBlock block = cursor.At(b);
    EXPECT_GT(block.count, 0u);
    EXPECT_EQ(block.offset, covered[block.member][block.part]);
    covered[block.member][block.part] += block.count;
  }
  EXPECT_EQ(covered, (std::vector<std::vector<uint64_t>>{
                         {100'000, 0, 5, 70'000}, {0, 0, 0, 0}, {3, 3, 3, 3}}));
}

TEST(BlockCursorTest, ACursorMaySkipBlocksThatOthersTook) {
  const uint64_t counts[] = {50'000, 7, 0, 90'000};
  Posted posted(COMMSCHED_ALL_GATHER, 4, {MemberOf(0, counts), MemberOf(11)});
  const uint64_t num_blocks = NumBlocks(posted.transfer());
  for (uint64_t step = 1; step <= num_blocks; ++step) {
    BlockCursor all(posted.transfer()), some(posted.transfer());
    for (uint64_t b = 0; b < num_blocks; ++b) {
      const TransferBlock expected = all.At(b);
      if (b % step != 0) continue;
      const TransferBlock block = some.At(b);
      EXPECT_EQ(block.member, expected.member);
      EXPECT_EQ(block.part, expected.part);
      EXPECT_EQ(block.offset, expected.offset);
      EXPECT_EQ(block.input_base, expected.input_base);
    }
  }
}

TEST(BlockCursorTest, PartsOfAllToAllLieAsTheCountsSay) {
  // Row s: what s sends to 0, 1.
  const uint64_t counts[] = {1, 2, 3, 4};
  Posted posted(COMMSCHED_ALL_TO_ALL, 2, {MemberOf(0, counts)});
  BlockCursor cursor(posted.transfer());
  const uint64_t input_bases[] = {0, 1, 0, 3};
  const uint64_t output_bases[] = {0, 0, 1, 2};
  for (uint64_t b = 0; b < 4; ++b) {
    const TransferBlock block = cursor.At(b);
    EXPECT_EQ(block.part, static_cast<int64_t>(b));
    EXPECT_EQ(block.count, counts[b]);
    EXPECT_EQ(block.input_base, input_bases[b]);
    EXPECT_EQ(block.output_base, output_bases[b]);
  }
}

TEST(BlockCursorTest, ABarrierHasNoBlocks) {
  Posted posted(COMMSCHED_BARRIER, 4, {});
  EXPECT_EQ(NumBlocks(posted.transfer()), 0u);
}

TEST(WireBytesTest, AreWhatOneDirectionOfAMemberCarries) {
  const auto bytes = [](commsched_collective_t kind) {
    Posted posted(kind, 4, {MemberOf(100)});
    return WireBytes(posted.transfer());
  };
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_ALL_REDUCE), 2 * 0.75 * 400);
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_REDUCE_SCATTER), 0.75 * 4 * 400);
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_ALL_GATHER), 0.75 * 4 * 400);
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_ALL_TO_ALL), 0.75 * 4 * 400);
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_BROADCAST), 0.75 * 400);
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_REDUCE), 0.75 * 400);
  EXPECT_DOUBLE_EQ(bytes(COMMSCHED_BARRIER), 0);
}

TEST(WireBytesTest, AGroupCarriesTheSumOfItsMembers) {
  Posted posted(COMMSCHED_ALL_REDUCE, 2, {MemberOf(100), MemberOf(50)});
  EXPECT_DOUBLE_EQ(WireBytes(posted.transfer()), 2 * 0.5 * 600);
}

TEST(WireBytesTest, UnevenPartsCountAsTheyAre) {
  const uint64_t gather[] = {10, 30};
  Posted gathered(COMMSCHED_ALL_GATHER, 2, {MemberOf(0, gather)});
  EXPECT_DOUBLE_EQ(WireBytes(gathered.transfer()), 0.5 * 160);
  // Rank 0 receives 100, the most of any; what it keeps crosses no link.
  const uint64_t exchange[] = {1000, 2, 100, 0};
  Posted exchanged(COMMSCHED_ALL_TO_ALL, 2, {MemberOf(0, exchange)});
  EXPECT_DOUBLE_EQ(WireBytes(exchanged.transfer()), 100 * 4);
}

}  // namespace
}  // namespace commsched
