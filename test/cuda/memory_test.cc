// Where the memory of sessions on devices comes from, and what is counted.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "comm/backend_rank.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::ReductionStep;

constexpr int kRanks = 2;
constexpr uint64_t kCount = ReductionStep::kCount;

// Writes and all-reduces a buffer of the plan's own.
ReductionStep MakeStep() { return {kRanks, Ownership::kOwned}; }

class CudaMemoryTest : public testing::Test {
 protected:
  ~CudaMemoryTest() override { fake_gpu_fail("", 0, 0); }

  // Runs two steps on all ranks, whose sessions `change` may have changed, and
  // calls `check` with each session.
  template <typename Change, typename Check>
  std::vector<absl::Status> Run(const ReductionStep& step, GpuRig* rig,
                                const Change& change, const Check& check) {
    return RunRanks(kRanks, [&](int rank) -> absl::Status {
      SessionSpec spec = rig->Spec(rank);
      change(&spec, rank);
      ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
      RETURN_IF_ERROR(RunSteps(session.get(), step, rig->lane(rank, 0), 2));
      check(*session);
      return absl::OkStatus();
    });
  }
};

const auto kUnchanged = [](SessionSpec*, int) {};
const auto kUnchecked = [](const Session&) {};

// The caller's memory, and what became of it.
struct Lender {
  explicit Lender(int rank) : device(test::FakeDevice(rank)) {}

  Allocator Table() {
    return {.allocate = [this](uint64_t bytes) -> absl::StatusOr<void*> {
              ++num_asked;
              if (num_refused > 0 && num_refused-- > 0) {
                return absl::ResourceExhaustedError("all lent");
              }
              ASSIGN_OR_RETURN(void* const address,
                               device->Allocate(bytes + offset));
              lent_bytes += bytes;
              return static_cast<char*>(address) + offset;
            },
            .release =
                [this](void* address, uint64_t bytes) {
                  device->Free(static_cast<char*>(address) - offset);
                  lent_bytes -= bytes;
                },
            .trim = [this] { ++num_trimmed; }};
  }

  const std::shared_ptr<Device> device;
  uint64_t offset = 0;
  int num_refused = 0;  // Calls to come that fail.
  int num_asked = 0;
  int num_trimmed = 0;
  uint64_t lent_bytes = 0;
};

TEST_F(CudaMemoryTest, ArenasAreOfTheBackend) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  const uint64_t before = fake_gpu_num_calls("ncclMemAlloc");
  const uint64_t freed_before = fake_gpu_num_calls("ncclMemFree");
  test::ExpectAllOk(Run(step, &rig, kUnchanged, [&](const Session& session) {
    const SessionCounters counters = session.counters();
    EXPECT_EQ(counters.arena_bytes, rig.plan().arena_bytes);
    EXPECT_GE(counters.arena_bytes, kCount * sizeof(float));
    EXPECT_EQ(counters.registered_bytes, 0u);
    EXPECT_EQ(counters.allocation_retries, 0u);
    EXPECT_GE(counters.backend_peak_bytes, sizeof(float));
    EXPECT_EQ(counters.launch_allocations, 0u);
  }));
  EXPECT_EQ(fake_gpu_num_calls("ncclMemAlloc") - before, uint64_t{kRanks});
  EXPECT_EQ(fake_gpu_num_calls("ncclMemFree") - freed_before, uint64_t{kRanks});
}

TEST_F(CudaMemoryTest, NothingIsRegisteredUnlessThatIsAskedFor) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  const uint64_t before = fake_gpu_num_calls("ncclCommRegister");
  test::ExpectAllOk(Run(step, &rig, kUnchanged, kUnchecked));
  EXPECT_EQ(fake_gpu_num_calls("ncclCommRegister"), before);
}

// A world that registers memory.
std::shared_ptr<World> RegisteringWorld() {
  WorldSpec spec;
  spec.size = kRanks;
  spec.table = test::NcclTable();
  spec.backend_config = "register=1";
  for (int r = 0; r < kRanks; ++r) {
    spec.devices.push_back(test::FakeDevice(r));
  }
  return World::Create(spec).value();
}

// On the thread of rank 1 device 0 is the current one.
TEST_F(CudaMemoryTest, MemoryIsRegisteredOnTheDeviceOfItsRank) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  const auto world = RegisteringWorld();
  const auto in_world = [&](SessionSpec* spec, int) { spec->world = world; };
  const uint64_t before = fake_gpu_num_calls("ncclCommDeregister");
  const uint64_t registers_before = fake_gpu_num_calls("ncclCommRegister");
  const uint64_t registered_before = fake_nccl_num_registered();
  test::ExpectAllOk(Run(step, &rig, in_world, [](const Session& session) {
    EXPECT_EQ(session.counters().registered_bytes,
              session.counters().arena_bytes);
  }));
  EXPECT_EQ(fake_gpu_num_calls("ncclCommRegister") - registers_before,
            uint64_t{kRanks});
  // Only what was registered is taken back.
  EXPECT_EQ(fake_gpu_num_calls("ncclCommDeregister") - before,
            uint64_t{kRanks});
  EXPECT_EQ(fake_nccl_num_registered(), registered_before);
}

// A launch of memory that some members have registered waits for the others.
TEST_F(CudaMemoryTest, WhatOneMemberCannotRegisterNoneDoes) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  const auto world = RegisteringWorld();
  const auto in_world = [&](SessionSpec* spec, int) { spec->world = world; };
  const uint64_t before = fake_nccl_num_registered();
  fake_gpu_fail("ncclCommRegister", 1, /*ncclUnhandledCudaError*/ 1);
  test::ExpectAllOk(Run(step, &rig, in_world, [&](const Session&) {
    EXPECT_EQ(fake_nccl_num_registered(), before);
  }));
}

// Lanes are of axes, and each axis has made the inputs of its sums.
TEST_F(CudaMemoryTest, LaunchesInOrderOnTwoLanesAllocateNothing) {
  const ReductionStep step(kRanks, Ownership::kOwned, {"dp", "tp"});
  PlanOptions options;
  options.num_comm_lanes = 2;
  options.deterministic = true;
  GpuRig rig(kRanks, step.graph(), options);
  ASSERT_EQ(rig.plan().launches.size(), 2u);
  ASSERT_NE(rig.plan().launches[0].lane, rig.plan().launches[1].lane);
  test::ExpectAllOk(Run(step, &rig, kUnchanged, [](const Session& session) {
    EXPECT_EQ(session.counters().launch_allocations, 0u);
  }));
}

TEST_F(CudaMemoryTest, ArenasAreOfCudaWhereNcclHasNoMemory) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  // Scratch stays with the world.
  test::ExpectAllOk(Run(step, &rig, kUnchanged, kUnchecked));
  const uint64_t before = fake_gpu_allocated_bytes();
  const uint64_t freed_before = fake_gpu_num_calls("ncclMemFree");
  fake_gpu_fail("ncclMemAlloc", 1, /*ncclUnhandledCudaError*/ 1);
  test::ExpectAllOk(Run(step, &rig, kUnchanged, kUnchecked));
  // Each goes back to where it came from.
  EXPECT_EQ(fake_gpu_num_calls("ncclMemFree") - freed_before,
            uint64_t{kRanks - 1});
  EXPECT_EQ(fake_gpu_allocated_bytes(), before);
}

TEST_F(CudaMemoryTest, ArenasAreOfTheCallersAllocator) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  const uint64_t before = fake_gpu_num_calls("ncclMemAlloc");
  Lender lenders[kRanks] = {Lender(0), Lender(1)};
  test::ExpectAllOk(Run(
      step, &rig,
      [&](SessionSpec* spec, int rank) {
        spec->allocator = lenders[rank].Table();
      },
      [&](const Session& session) {
        EXPECT_EQ(session.counters().arena_bytes, rig.plan().arena_bytes);
      }));
  for (const Lender& lender : lenders) {
    EXPECT_EQ(lender.num_asked, 1);
    EXPECT_EQ(lender.lent_bytes, 0u);
  }
  EXPECT_EQ(fake_gpu_num_calls("ncclMemAlloc"), before);
}

TEST_F(CudaMemoryTest, WithoutMemoryTheCallerIsAskedOnceMoreAfterATrim) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  Lender lenders[kRanks] = {Lender(0), Lender(1)};
  lenders[1].num_refused = 1;
  uint64_t retries = 0;
  test::ExpectAllOk(Run(
      step, &rig,
      [&](SessionSpec* spec, int rank) {
        spec->allocator = lenders[rank].Table();
      },
      [&](const Session& session) {
        if (session.counters().allocation_retries != 0) {
          retries = session.counters().allocation_retries;
        }
      }));
  EXPECT_EQ(retries, 1u);
  EXPECT_EQ(lenders[0].num_trimmed, 0);
  EXPECT_EQ(lenders[1].num_trimmed, 1);
  EXPECT_EQ(lenders[1].num_asked, 2);
}

// The caller has no memory to give, but some to give back.
TEST_F(CudaMemoryTest, ATrimHelpsTheBackendsMemoryToo) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;  // A device has 256 of them.
  const ReductionStep step(kRanks, Ownership::kOwned, {"dp"},
                           16 * kMiB / sizeof(float));
  GpuRig rig(kRanks, step.graph(), {});
  auto cached = std::make_unique<test::DeviceMemory>(test::FakeDevice(1),
                                                     uint64_t{244} * kMiB);
  uint64_t retries[kRanks] = {};
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    SessionSpec spec = rig.Spec(rank);
    if (rank == 1) spec.allocator.trim = [&] { cached.reset(); };
    ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
    retries[rank] = session->counters().allocation_retries;
    return RunSteps(session.get(), step, rig.lane(rank, 0), 2);
  }));
  EXPECT_EQ(retries[0], 0u);
  EXPECT_EQ(retries[1], 1u);
  EXPECT_EQ(cached, nullptr);
}

TEST_F(CudaMemoryTest, ARefusalByTheAllocatorIsTheSessionsOfAllRanks) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  Lender lenders[kRanks] = {Lender(0), Lender(1)};
  lenders[0].num_refused = 2;
  const auto statuses = Run(
      step, &rig,
      [&](SessionSpec* spec, int rank) {
        spec->allocator = lenders[rank].Table();
      },
      kUnchecked);
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kResourceExhausted, "all lent"));
  EXPECT_THAT(std::string(statuses[1].message()), testing::HasSubstr("rank 0"));
  EXPECT_EQ(lenders[0].num_trimmed, 1);
  EXPECT_EQ(lenders[1].lent_bytes, 0u);
}

TEST_F(CudaMemoryTest, MemoryThatIsNotAlignedIsRefusedAndGoesBack) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  Lender lenders[kRanks] = {Lender(0), Lender(1)};
  lenders[1].offset = 64;
  const auto statuses = Run(
      step, &rig,
      [&](SessionSpec* spec, int rank) {
        spec->allocator = lenders[rank].Table();
      },
      kUnchecked);
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kInvalidArgument,
                                    "which is not aligned to 256 bytes"));
  EXPECT_EQ(lenders[1].lent_bytes, 0u);
}

TEST_F(CudaMemoryTest, MemoryOfAnotherDeviceIsRefusedAndGoesBack) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  Lender lenders[kRanks] = {Lender(1), Lender(1)};
  const auto statuses = Run(
      step, &rig,
      [&](SessionSpec* spec, int rank) {
        spec->allocator = lenders[rank].Table();
      },
      kUnchecked);
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "is not memory of CUDA device 0 but of device 1"));
  EXPECT_EQ(lenders[0].lent_bytes, 0u);
}

// A communicator of both ranks, without a session.
class BareComm {
 public:
  // `expected`: elements of an all-reduce in order; 0: nothing is.
  BareComm(World* world, int rank, uint64_t expected = 0)
      : rank_(world->Rank(rank).value()) {
    const int32_t ranks[kRanks] = {0, 1};
    commsched_comm_desc_t desc = {};
    desc.struct_size = sizeof(desc);
    desc.id = "bare";
    desc.axis = "dp";
    desc.ranks = ranks;
    desc.size = kRanks;
    desc.rank = rank;
    desc.max_in_flight = 1;
    desc.max_members = 1;
    desc.num_lanes = 1;
    const BackendRank::Turn turn(rank_);
    EXPECT_EQ(table().comm_create(rank_->handle(), &desc, &comm_, nullptr, 0),
              COMMSCHED_OK);
    AwaitReady();
    if (expected == 0) return;
    commsched_member_t member = {};
    const commsched_launch_t launch = SumOf(nullptr, expected, &member);
    EXPECT_EQ(table().comm_expect(comm_, &launch, 1, nullptr, 0), COMMSCHED_OK);
    AwaitReady();
  }
  ~BareComm() {
    const BackendRank::Turn turn(rank_);
    EXPECT_EQ(table().comm_destroy(comm_, INT64_MAX, nullptr, 0), COMMSCHED_OK);
  }

  void AllReduceInOrder(void* data, uint64_t count, Stream* stream) {
    EXPECT_EQ(TryAllReduceInOrder(data, count, stream), COMMSCHED_OK);
  }
  commsched_status_t TryAllReduceInOrder(void* data, uint64_t count,
                                         Stream* stream) {
    commsched_member_t member = {};
    const commsched_launch_t launch = SumOf(data, count, &member);
    const BackendRank::Turn turn(rank_);
    return table().launch(comm_, &launch, 0, stream->handle(), nullptr, 0);
  }
  void Abort() {
    table().abort(rank_->handle(), &comm_, 1, COMMSCHED_ABORTED, "enough");
  }
  commsched_backend_memory_t Stats() const {
    commsched_backend_memory_t stats = {};
    stats.struct_size = sizeof(stats);
    table().mem_stats(rank_->handle(), &stats);
    return stats;
  }

 private:
  const commsched_backend_t& table() const { return rank_->table(); }
  void AwaitReady() {
    for (uint32_t ready = 0; ready == 0;) {
      EXPECT_EQ(table().comm_ready(comm_, &ready, nullptr, 0), COMMSCHED_OK);
    }
  }
  static commsched_launch_t SumOf(void* data, uint64_t count,
                                  commsched_member_t* member) {
    member->input = data;
    member->output = data;
    member->count = count;
    commsched_launch_t launch = {};
    launch.struct_size = sizeof(launch);
    launch.slot = UINT32_MAX;
    launch.kind = COMMSCHED_ALL_REDUCE;
    launch.dtype = COMMSCHED_F32;
    launch.reduce_op = COMMSCHED_SUM;
    launch.deterministic = 1;
    launch.num_members = 1;
    launch.members = member;
    return launch;
  }

  BackendRank* const rank_;
  void* comm_ = nullptr;
};

// Of launches that were not expected the first takes memory, and again one that
// needs more.
TEST_F(CudaMemoryTest, AllocationsOfLaunchesAreCounted) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  RunRanks(kRanks, [&](int rank) {
    const std::shared_ptr<Device> device = test::FakeDevice(rank);
    const test::DeviceMemory data(device, kCount * sizeof(float));
    const auto stream = device->CreateSideStream().value();
    constexpr uint64_t kHalf = kCount / 2;
    BareComm comm(rig.world().get(), rank);
    const uint64_t bytes_before = comm.Stats().bytes;
    EXPECT_EQ(comm.Stats().launch_allocations, 0u);
    comm.AllReduceInOrder(data.address(), kHalf, stream.get());
    comm.AllReduceInOrder(data.address(), kHalf, stream.get());
    EXPECT_EQ(comm.Stats().launch_allocations, 1u);
    // The inputs of what a rank sums up, from both.
    EXPECT_EQ(comm.Stats().bytes - bytes_before, kHalf * sizeof(float));
    comm.AllReduceInOrder(data.address(), kCount, stream.get());
    comm.AllReduceInOrder(data.address(), kHalf, stream.get());
    EXPECT_EQ(comm.Stats().launch_allocations, 2u);
    EXPECT_EQ(comm.Stats().peak_bytes, comm.Stats().bytes);
    stream->Synchronize();
    return absl::OkStatus();
  });
}

// Whether `happened` within half a minute.
template <typename Happened>
bool Await(const Happened& happened) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!happened()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// I7: rank 1 never launches, and rank 0 waits in cuMemAlloc for the kernel that
// waits for rank 1.
TEST_F(CudaMemoryTest, AnAbortEndsALaunchThatWaitsForMemory) {
  const ReductionStep step = MakeStep();
  GpuRig rig(kRanks, step.graph(), {});
  RunRanks(kRanks, [&](int rank) {
    const std::shared_ptr<Device> device = test::FakeDevice(rank);
    // What the warm-up does as one, and more than it leaves memory for.
    constexpr uint64_t kLarge = (uint64_t{32} << 20) / sizeof(float);
    constexpr uint64_t kMore = 4 * kLarge;
    const test::DeviceMemory data(device, kMore * sizeof(float));
    const auto stream = device->CreateSideStream().value();
    BareComm comm(rig.world().get(), rank, kLarge);
    if (rank == 1) return absl::OkStatus();
    comm.AllReduceInOrder(data.address(), kLarge, stream.get());
    EXPECT_TRUE(Await([] { return fake_nccl_num_running() != 0; }));
    fake_gpu_malloc_waits(1);
    const uint64_t before = fake_gpu_num_calls("cuMemAlloc");
    commsched_status_t launched = COMMSCHED_OK;
    std::thread launching([&] {
      launched = comm.TryAllReduceInOrder(data.address(), kMore, stream.get());
    });
    EXPECT_TRUE(
        Await([&] { return fake_gpu_num_calls("cuMemAlloc") != before; }));
    comm.Abort();
    launching.join();
    fake_gpu_malloc_waits(0);
    EXPECT_EQ(launched, COMMSCHED_ABORTED);
    return absl::OkStatus();
  });
}

// A send to each member and a receive of each, where launches have them.
TEST_F(CudaMemoryTest, TheWarmUpExchangesWithPeersOnlyWhereLaunchesDo) {
  const ReductionStep step = MakeStep();
  for (const bool in_order : {false, true}) {
    PlanOptions options;
    options.deterministic = in_order;
    GpuRig rig(kRanks, step.graph(), options);
    const uint64_t sends = fake_gpu_num_calls("ncclSend");
    const uint64_t receives = fake_gpu_num_calls("ncclRecv");
    test::ExpectAllOk(rig.RunSessions(
        [](Session&, int) -> absl::Status { return absl::OkStatus(); }));
    const uint64_t pairs = in_order ? kRanks * (kRanks - 1) : 0;
    EXPECT_EQ(fake_gpu_num_calls("ncclSend") - sends, pairs);
    EXPECT_EQ(fake_gpu_num_calls("ncclRecv") - receives, pairs);
  }
}

}  // namespace
}  // namespace commsched
