// What ranks of a real communicator send and allocate, beside what is counted
// of launches as they are built (bench/messages); and what they make of what
// another build sends.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/messages/counts.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/tags.h"
#include "test/plugin/ucx_ranks.h"
#include "test/plugin/ucx_sends.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace {

// The largest block that backends have allocated.
std::atomic<uint64_t> g_most_allocated{0};

}  // namespace

// In place of the C library's.
extern "C" {

void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  uint64_t most = g_most_allocated.load();
  while (bytes > most && !g_most_allocated.compare_exchange_weak(most, bytes)) {
  }
  void* block = nullptr;
  return posix_memalign(&block, alignment, bytes) == 0 ? block : nullptr;
}

}  // extern "C"

namespace commsched {
namespace {

constexpr int kCountedRanks = 8;
constexpr int kPerHost = 4;
constexpr uint64_t kMostScratchBytes = 64 << 20;

struct CountedKind {
  commsched_collective_t kind;
  uint64_t input_parts;
  uint64_t output_parts;
};
constexpr CountedKind kCountedKinds[] = {
    {COMMSCHED_ALL_REDUCE, 1, 1},
    {COMMSCHED_REDUCE, 1, 1},
    {COMMSCHED_BROADCAST, 1, 1},
    {COMMSCHED_ALL_GATHER, 1, kCountedRanks},
    {COMMSCHED_REDUCE_SCATTER, kCountedRanks, 1},
    {COMMSCHED_ALL_TO_ALL, kCountedRanks, kCountedRanks},
};
// Small ones by the tree, large ones by levels, whose sums take scratch.
constexpr uint64_t kArrays[] = {4 << 10, 1 << 20, 3 << 20};

struct BuiltSends {
  int64_t messages = 0;
  uint64_t bytes = 0;
};

// What `rank` sends to those that it reaches by UCX.
BuiltSends SendsOf(const commsched_launch_t& launch, const ucx::Layout& layout,
                   int rank, bool is_all_by_ucx) {
  const ucx::ChoiceOptions options;
  ucx::Operation operation;
  ucx::BuildNowhere(
      *ucx::Choices(layout, options).Of(launch).algorithm,
      {launch, layout, rank, options.chunk_bytes, /*measures=*/true},
      &operation);
  BuiltSends sends;
  for (const ucx::Message& message : operation.messages) {
    if (message.is_receive) continue;
    if (!is_all_by_ucx && layout.ShareHost(rank, message.peer)) continue;
    ++sends.messages;
    sends.bytes += message.bytes;
  }
  return sends;
}

// Ranks on two hosts of four, who reach each other within a host as the
// parameter says.
class UcxCountsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK(JoinUcx(GetParam(), kCountedRanks, &ranks_, kPerHost));
  }

  bool is_all_by_ucx() const { return *GetParam() != '\0'; }

  // Launches `launch` on all ranks, and looks at what has been sent.
  absl::Status LaunchCounted(CommDriver* comm, int rank,
                             const commsched_launch_t& launch,
                             uint64_t array_bytes) {
    const std::string key = absl::StrCat(launch.kind, " of ", array_bytes);
    absl::Status status = comm->LaunchAndWait(launch);
    if (status.ok()) status = ranks_.Meet(key + " is done", rank);
    if (rank == 0 && status.ok()) Compare(launch, array_bytes);
    return status.ok() ? ranks_.Meet(key + " is counted", rank) : status;
  }

  void Compare(const commsched_launch_t& launch, uint64_t array_bytes) {
    const std::string what =
        absl::StrCat("kind ", launch.kind, ", ", array_bytes, " bytes");
    const LaunchCounts table = CountLaunch({.kind = launch.kind,
                                            .size = kCountedRanks,
                                            .per_host = kPerHost,
                                            .array_bytes = array_bytes},
                                           {});
    const ucx::Layout layout({0, 0, 0, 0, 1, 1, 1, 1});
    uint64_t host_bytes[2] = {};
    for (int rank = 0; rank < kCountedRanks; ++rank) {
      const BuiltSends built = SendsOf(launch, layout, rank, is_all_by_ucx());
      Sent& sent = sent_[static_cast<size_t>(rank)];
      host_bytes[rank / kPerHost] += sent.bytes;
      EXPECT_EQ(sent.messages.exchange(0), built.messages)
          << what << ", rank " << rank;
      EXPECT_EQ(sent.bytes.exchange(0), built.bytes)
          << what << ", rank " << rank;
      EXPECT_LE(built.messages, table.messages) << what << ", rank " << rank;
    }
    if (!is_all_by_ucx()) {
      EXPECT_EQ(std::max(host_bytes[0], host_bytes[1]), table.link_bytes)
          << what;
    }
    most_scratch_bytes_ = std::max(most_scratch_bytes_, table.scratch_bytes);
  }

  // Of a rank, by UCX: data of collectives.
  struct Sent {
    std::atomic<int64_t> messages{0};
    std::atomic<uint64_t> bytes{0};
  };
  std::array<Sent, kCountedRanks> sent_;
  const UcxSendWatcher watcher_{[this](const UcxSend& send) {
    if (!send.is_data() || send.rank() >= sent_.size()) return;
    sent_[send.rank()].messages.fetch_add(1);
    sent_[send.rank()].bytes.fetch_add(send.bytes);
  }};
  JoinedRanks ranks_;
  uint64_t most_scratch_bytes_ = 0;  // Of the table.
};

TEST_P(UcxCountsTest, RanksSendAndAllocateWhatTheTableCounts) {
  g_most_allocated = 0;
  EXPECT_OK(RunAllRanks(kCountedRanks, [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status status = comm.Create(ranks_.WorldOf(rank).get(), {}, rank);
    for (const CountedKind& kind : kCountedKinds) {
      for (const uint64_t bytes : kArrays) {
        const uint64_t count = bytes / sizeof(float) /
                               std::max(kind.input_parts, kind.output_parts);
        std::vector<float> input(count * kind.input_parts, 1);
        std::vector<float> output(count * kind.output_parts);
        const commsched_member_t member = {
            input.data(), output.data(), count, nullptr, 0, 0, 0, 0};
        const commsched_launch_t launch =
            LaunchOf(kind.kind, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
        if (status.ok()) status = LaunchCounted(&comm, rank, launch, bytes);
      }
    }
    const absl::Status met = ranks_.Meet("end", rank);
    return status.ok() ? met : status;
  }));
  EXPECT_GT(most_scratch_bytes_, 0U);
  EXPECT_GE(g_most_allocated, most_scratch_bytes_);
  constexpr uint64_t kAlignment = 4096;  // Of what a host allocates, at most.
  EXPECT_LT(g_most_allocated, most_scratch_bytes_ + kAlignment);
}

// Nothing is at their addresses: that a launch will come is enough to have
// scratch for it.
TEST_P(UcxCountsTest, ScratchForLaunchesOf1GiBIsWithinItsLimit) {
  g_most_allocated = 0;
  EXPECT_OK(RunAllRanks(kCountedRanks, [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status status = comm.Create(ranks_.WorldOf(rank).get(), {}, rank);
    commsched_member_t member = {};
    member.count = (uint64_t{1} << 30) / sizeof(float);
    std::vector<commsched_launch_t> launches;
    for (const commsched_collective_t kind :
         {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE}) {
      launches.push_back(
          LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member));
    }
    if (status.ok()) status = comm.Expect(launches);
    const absl::Status met = ranks_.Meet("end", rank);
    return status.ok() ? met : status;
  }));
  EXPECT_GT(g_most_allocated, 0U);
  EXPECT_LE(g_most_allocated, kMostScratchBytes);
}

TEST_P(UcxCountsTest, WhoHearsALongerNoticeOfAnotherBuildHearsTheNextOne) {
  constexpr uint64_t kCount = 5;
  constexpr int64_t kLimitS = 60;
  static const std::array<char, 2048> longer = {};  // UCX may keep it a while.
  const UcxSendWatcher watcher([](const UcxSend& send) {
    if (send.type() == ucx::kNoticeType) {
      send.SendFirst(longer.data(), longer.size());
    }
  });
  const auto body = [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status status = comm.Create(ranks_.WorldOf(rank).get(), {}, rank);
    std::vector<float> values(kCount, 1);
    const commsched_member_t member = {
        values.data(), values.data(), kCount, nullptr, 0, 0, 0, 0};
    const commsched_launch_t launch = LaunchOf(
        COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
    if (status.ok()) status = comm.LaunchAndWait(launch);
    if (status.ok()) {
      EXPECT_EQ(values, std::vector<float>(kCount, kCountedRanks));
    }
    const absl::Status met = ranks_.Meet("end", rank);
    return status.ok() ? met : status;
  };
  EXPECT_OK(RunAllRanks(kCountedRanks, body, kLimitS));
}

INSTANTIATE_TEST_SUITE_P(Ways, UcxCountsTest, testing::Values("", "local=net"),
                         [](const auto& way) {
                           return *way.param == '\0' ? "Segments" : "Ucx";
                         });

}  // namespace
}  // namespace commsched
