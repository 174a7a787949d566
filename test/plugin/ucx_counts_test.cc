// What ranks of a real communicator send and allocate, beside what is counted
// of launches as they are built (bench/messages); and what they make of what
// another build sends.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/messages/counts.h"
#include "comm/plugin_registry.h"
#include "comm/world.h"
#include "control/server.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/tags.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace {

constexpr int kCountedRanks = 8;

// Of a rank, by UCX: data of collectives.
struct Sent {
  std::atomic<int64_t> messages{0};
  std::atomic<uint64_t> bytes{0};
};
std::array<Sent, kCountedRanks> g_sent;
// The largest block that backends have allocated.
std::atomic<uint64_t> g_most_allocated{0};

// Whether each notice comes behind a longer one.
std::atomic<bool> g_sends_longer_notices{false};
std::array<char, 2048> g_longer_notice;

uint64_t TypeOf(uint64_t tag) {
  return tag & ((uint64_t{1} << commsched::ucx::kTypeBits) - 1);
}

void CountSend(uint64_t tag, size_t bytes) {
  using commsched::ucx::kRankBits;
  using commsched::ucx::kTypeBits;
  const uint64_t type = TypeOf(tag);
  const uint64_t rank = tag >> kTypeBits & ((uint64_t{1} << kRankBits) - 1);
  if (type >= commsched::ucx::kCardsType || rank >= g_sent.size()) return;
  g_sent[rank].messages.fetch_add(1);
  g_sent[rank].bytes.fetch_add(bytes);
}

}  // namespace

// In place of those of the libraries.
extern "C" {

// With UCX's handles as plain addresses: its headers are the plugin's.
__attribute__((visibility("default"))) void* ucp_tag_send_nbx(
    void* endpoint, const void* data, size_t bytes, uint64_t tag,
    const void* param) {
  static void* const ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD);
  static const auto send = reinterpret_cast<decltype(&ucp_tag_send_nbx)>(
      dlsym(ucp, "ucp_tag_send_nbx"));
  static const auto free_request =
      reinterpret_cast<void (*)(void*)>(dlsym(ucp, "ucp_request_free"));
  CountSend(tag, bytes);
  if (g_sends_longer_notices && TypeOf(tag) == commsched::ucx::kNoticeType) {
    const std::array<uint64_t, 64> no_param = {};
    void* const longer = send(endpoint, g_longer_notice.data(),
                              g_longer_notice.size(), tag, no_param.data());
    if (longer != nullptr) free_request(longer);
  }
  return send(endpoint, data, bytes, tag, param);
}

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

constexpr int kPerHost = 4;
constexpr uint64_t kMostScratchBytes = 64 << 20;
constexpr int64_t kLimitNs = int64_t{60} * 1000 * 1000 * 1000;

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
  UcxCountsTest() {
    EXPECT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_PLUGINS
                                             "/commsched_ucx.so"));
    ControlServerSpec server;
    server.size = kCountedRanks;
    server_ = *ControlServer::Start(server);
    WorldSpec spec;
    spec.backend = "ucx";
    spec.backend_config = GetParam();
    for (int rank = 0; rank < kCountedRanks; ++rank) {
      JobSpec job;
      job.environment.rank = rank;
      job.environment.size = kCountedRanks;
      job.environment.local_size = kCountedRanks;
      job.environment.server_host = "127.0.0.1";
      job.environment.server_port = server_->port();
      job.environment.rank_0_serves = false;
      job.environment.host_id = absl::StrCat("host", rank / kPerHost);
      auto world = World::Join(spec, job);
      EXPECT_OK(world);
      worlds_.push_back(*std::move(world));
    }
  }
  ~UcxCountsTest() override {
    EXPECT_OK(RunAllRanks(kCountedRanks, [&](int rank) {
      worlds_[static_cast<size_t>(rank)].reset();
      return absl::OkStatus();
    }));
  }

  bool is_all_by_ucx() const { return *GetParam() != '\0'; }

  absl::Status Meet(const std::string& key, int rank) {
    return worlds_[static_cast<size_t>(rank)]
        ->meeting()
        ->AllGather(key, rank, "here", kLimitNs)
        .status();
  }

  // Launches `launch` on all ranks, and looks at what has been sent.
  absl::Status LaunchCounted(CommDriver* comm, int rank,
                             const commsched_launch_t& launch,
                             uint64_t array_bytes) {
    const std::string key = absl::StrCat(launch.kind, " of ", array_bytes);
    absl::Status status = comm->LaunchAndWait(launch);
    if (status.ok()) status = Meet(key + " is done", rank);
    if (rank == 0 && status.ok()) Compare(launch, array_bytes);
    return status.ok() ? Meet(key + " is counted", rank) : status;
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
      Sent& sent = g_sent[static_cast<size_t>(rank)];
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

  std::unique_ptr<ControlServer> server_;
  std::vector<std::shared_ptr<World>> worlds_;
  uint64_t most_scratch_bytes_ = 0;  // Of the table.
};

TEST_P(UcxCountsTest, RanksSendAndAllocateWhatTheTableCounts) {
  g_most_allocated = 0;
  // Other tests of this process have sent, too.
  for (Sent& sent : g_sent) sent.messages = 0, sent.bytes = 0;
  EXPECT_OK(RunAllRanks(kCountedRanks, [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status status =
        comm.Create(worlds_[static_cast<size_t>(rank)].get(), {}, rank);
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
    const absl::Status met = Meet("end", rank);
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
    absl::Status status =
        comm.Create(worlds_[static_cast<size_t>(rank)].get(), {}, rank);
    commsched_member_t member = {};
    member.count = (uint64_t{1} << 30) / sizeof(float);
    std::vector<commsched_launch_t> launches;
    for (const commsched_collective_t kind :
         {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE}) {
      launches.push_back(
          LaunchOf(kind, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member));
    }
    if (status.ok()) status = comm.Expect(launches);
    const absl::Status met = Meet("end", rank);
    return status.ok() ? met : status;
  }));
  EXPECT_GT(g_most_allocated, 0U);
  EXPECT_LE(g_most_allocated, kMostScratchBytes);
}

TEST_P(UcxCountsTest, WhoHearsALongerNoticeOfAnotherBuildHearsTheNextOne) {
  constexpr uint64_t kCount = 5;
  constexpr int64_t kLimitS = 60;
  g_sends_longer_notices = true;
  const auto body = [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status status =
        comm.Create(worlds_[static_cast<size_t>(rank)].get(), {}, rank);
    std::vector<float> values(kCount, 1);
    const commsched_member_t member = {
        values.data(), values.data(), kCount, nullptr, 0, 0, 0, 0};
    const commsched_launch_t launch = LaunchOf(
        COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
    if (status.ok()) status = comm.LaunchAndWait(launch);
    if (status.ok()) {
      EXPECT_EQ(values, std::vector<float>(kCount, kCountedRanks));
    }
    const absl::Status met = Meet("end", rank);
    return status.ok() ? met : status;
  };
  EXPECT_OK(RunAllRanks(kCountedRanks, body, kLimitS));
  g_sends_longer_notices = false;
}

INSTANTIATE_TEST_SUITE_P(Ways, UcxCountsTest, testing::Values("", "local=net"),
                         [](const auto& way) {
                           return *way.param == '\0' ? "Segments" : "Ucx";
                         });

}  // namespace
}  // namespace commsched
