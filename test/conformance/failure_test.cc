// A backend never hangs and never computes nonsense: what cannot be done is an
// error at every member.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

using testing::HasSubstr;

// An all-reduce of memory of its own, to be made wrong by a test.
struct Posted {
  explicit Posted(int size) : in(64 * size, 1.0f), out(64 * size, 0.0f) {
    member = {in.data(), out.data(), 64, nullptr, 0, 0, 0, 0};
    launch = LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1,
                      1, &member);
  }
  Posted(const Posted&) = delete;

  std::vector<float> in, out;
  commsched_member_t member;
  commsched_launch_t launch;
};

// Memory that ends the process that touches it once it is forbidden.
class GuardedFloats {
 public:
  GuardedFloats() = default;
  ~GuardedFloats() { Free(); }
  GuardedFloats(const GuardedFloats&) = delete;

  // Instead of what it has been.
  void Allocate(size_t count) {
    Free();
    bytes_ = count * sizeof(float);
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    data_ = static_cast<float*>(memory);
    std::fill(data_, data_ + count, 1.0f);
  }
  void Forbid() {
    if (data_ == nullptr) return;
    EXPECT_EQ(mprotect(data_, bytes_, PROT_NONE), 0);
  }
  float* data() const { return data_; }

 private:
  void Free() {
    if (data_ != nullptr) munmap(data_, bytes_);
    data_ = nullptr;
  }

  float* data_ = nullptr;
  size_t bytes_ = 0;
};

class FailureTest : public BackendTest {
 protected:
  // The last rank posts what `change` makes of a launch that all others post as
  // `prepare` makes it. All must get INVALID_ARGUMENT with `text`.
  void ExpectMismatch(const std::function<void(Posted&)>& prepare,
                      const std::function<void(Posted&)>& change,
                      const std::string& text) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      Posted good(size());
      if (auto first = comm.LaunchAndWait(good.launch); !first.ok()) {
        return first;
      }
      Posted posted(size());
      prepare(posted);
      if (rank == size() - 1) change(posted);
      return comm.LaunchAndWait(posted.launch);
    });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kInvalidArgument, "axis 'dp'"));
      const std::string message(status.message());
      EXPECT_THAT(message, HasSubstr("launch #1"));
      EXPECT_THAT(message, HasSubstr(text));
      EXPECT_THAT(message,
                  HasSubstr(absl::StrCat(", rank ", size() - 1, " has ")));
    }
  }

  // Every rank posts; the last one what `change` made. It gets `code` and
  // `text`, and all the others fail too.
  void ExpectRefusal(const std::function<void(Posted&)>& change,
                     absl::StatusCode code, const std::string& text) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      Posted posted(size());
      if (rank == size() - 1) change(posted);
      return comm.LaunchAndWait(posted.launch);
    });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(code, text));
      EXPECT_THAT(status, StatusIs(code, absl::StrCat("of rank ", size() - 1)));
    }
  }
};

// Of backends that look at launches.
class RefusalTest : public FailureTest {};
class StridedRefusalTest : public FailureTest {};
class MismatchTest : public FailureTest {};

class PolledFailureTest : public FailureTest {};
class ReadFailureTest : public FailureTest {};
class OneProcessFailureTest : public FailureTest {};
class SeveralMembersTest : public FailureTest {
 protected:
  static constexpr int64_t kLateNs = int64_t{200} * 1000 * 1000;

  static int64_t NowNs() { return SystemClock::Get().NowNs(); }
  static void StandStillUntil(int64_t ns) {
    EXPECT_TRUE(test::Await([&] { return NowNs() >= ns; }));
  }

  // Calls `launched` after each launch.
  static absl::Status LaunchUntilFailed(CommDriver* comm,
                                        const std::function<void()>& launched) {
    absl::Status status;
    while (status.ok()) {
      std::vector<float> data(300'000, 1.0f);
      const commsched_member_t member{
          data.data(), data.data(), data.size(), nullptr, 0, 0, 0, 0};
      const commsched_launch_t launch = LaunchOf(
          COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
      status = comm->Launch(launch);
      launched();
      if (status.ok()) status = comm->Wait().status();
    }
    return status;
  }

  void ExpectToMeet() {
    const auto statuses = OnComm([&](int /*rank*/, CommDriver& comm) {
      Posted posted(size());
      return comm.LaunchAndWait(posted.launch);
    });
    for (const absl::Status& status : statuses) EXPECT_OK(status);
  }
};
class LaterFailureTest : public SeveralMembersTest {};
// Of members that see each other's descriptions when they are made.
class SharedMembersTest : public FailureTest {};
// Of those that learn of them later.
class DistantMembersTest : public FailureTest {};

void Nothing(Posted&) {}

TEST_P(MismatchTest, DifferentKindsAreNamed) {
  ExpectMismatch(
      Nothing, [](Posted& p) { p.launch.kind = COMMSCHED_BROADCAST; },
      "rank 0 has kind all_reduce");
}

TEST_P(MismatchTest, DifferentTypesAreNamed) {
  ExpectMismatch(
      Nothing, [](Posted& p) { p.launch.dtype = COMMSCHED_I32; },
      "rank 0 has dtype f32");
}

TEST_P(MismatchTest, DifferentReductionsAreNamed) {
  ExpectMismatch(
      Nothing, [](Posted& p) { p.launch.reduce_op = COMMSCHED_MAX; },
      "rank 0 has reduction sum");
}

TEST_P(MismatchTest, DifferentRootsAreNamed) {
  ExpectMismatch([](Posted& p) { p.launch.kind = COMMSCHED_REDUCE; },
                 [](Posted& p) { p.launch.root = 1; }, "rank 0 has root 0");
}

TEST_P(MismatchTest, DifferentMemberCountsAreNamed) {
  commsched_member_t two[2];
  ExpectMismatch(
      Nothing,
      [&](Posted& p) {
        two[0] = p.member;
        two[0].count = 1;
        two[1] = {p.in.data() + 1, p.out.data() + 1, 1, nullptr, 0, 0, 0, 0};
        p.launch.num_members = 2;
        p.launch.members = two;
      },
      "rank 0 has number of members 1");
}

TEST_P(MismatchTest, DifferentElementCountsAreNamed) {
  ExpectMismatch(
      Nothing, [](Posted& p) { p.member.count = 63; },
      "rank 0 has count of member 0 equal parts of 64");
}

TEST_P(MismatchTest, DifferentPartsAreNamed) {
  const std::vector<uint64_t> ones(size(), 1);
  std::vector<uint64_t> other = ones;
  other.back() = 2;
  ExpectMismatch(
      [&](Posted& p) {
        p.launch.kind = COMMSCHED_REDUCE_SCATTER;
        p.member.counts = ones.data();
      },
      [&](Posted& p) { p.member.counts = other.data(); },
      "rank 0 has counts of member 0 parts of 1");
}

TEST_P(MismatchTest, OneSummingInOrderAndOneNotIsNamed) {
  ExpectMismatch(
      Nothing, [](Posted& p) { p.launch.deterministic = 0; },
      "rank 0 has deterministic 1");
}

TEST_P(RefusalTest, ANullInputIsRefused) {
  ExpectRefusal([](Posted& p) { p.member.input = nullptr; },
                absl::StatusCode::kInvalidArgument,
                "all_reduce member 0: its input of 256 bytes is NULL");
}

TEST_P(RefusalTest, ANullOutputIsRefused) {
  ExpectRefusal([](Posted& p) { p.member.output = nullptr; },
                absl::StatusCode::kInvalidArgument, "its output of 256 bytes");
}

TEST_P(RefusalTest, AMisalignedAddressIsRefused) {
  ExpectRefusal(
      [](Posted& p) {
        p.member.input = reinterpret_cast<const char*>(p.in.data()) + 2;
        p.member.count = 8;
      },
      absl::StatusCode::kInvalidArgument, "not aligned to 4 bytes");
}

TEST_P(RefusalTest, APartialOverlapIsRefused) {
  ExpectRefusal([](Posted& p) { p.member.output = p.in.data() + 1; },
                absl::StatusCode::kInvalidArgument, "overlap");
}

TEST_P(RefusalTest, CountsThatOverflowAreRefused) {
  ExpectRefusal([](Posted& p) { p.member.count = uint64_t{1} << 62; },
                absl::StatusCode::kInvalidArgument, "overflow");
}

TEST_P(RefusalTest, AnUnknownTypeIsRefused) {
  ExpectRefusal([](Posted& p) { p.launch.dtype = 8; },
                absl::StatusCode::kInvalidArgument, "8");
}

TEST_P(RefusalTest, ARootOutsideTheGroupIsRefused) {
  ExpectRefusal(
      [this](Posted& p) {
        p.launch.kind = COMMSCHED_BROADCAST;
        p.launch.root = size();
      },
      absl::StatusCode::kInvalidArgument, "is not in 0..");
}

TEST_P(RefusalTest, MoreMembersThanAnnouncedAreRefused) {
  ExpectRefusal([](Posted& p) { p.launch.num_members = 17; },
                absl::StatusCode::kInvalidArgument, "1..16");
}

TEST_P(RefusalTest, CountsWithoutPartsAreRefused) {
  const uint64_t counts[] = {64};
  ExpectRefusal([&](Posted& p) { p.member.counts = counts; },
                absl::StatusCode::kInvalidArgument, "all_reduce has no parts");
}

TEST_P(StridedRefusalTest, AStrideShorterThanAPartIsRefused) {
  ExpectRefusal(
      [](Posted& p) {
        p.launch.kind = COMMSCHED_REDUCE_SCATTER;
        p.member.input_stride = 63;
      },
      absl::StatusCode::kInvalidArgument,
      "its input has a stride of 63 elements, less than its parts of 64");
}

TEST_P(StridedRefusalTest, AStrideOfUnevenPartsIsRefused) {
  const std::vector<uint64_t> ones(size(), 1);
  ExpectRefusal(
      [&](Posted& p) {
        p.launch.kind = COMMSCHED_ALL_GATHER;
        p.member.counts = ones.data();
        p.member.output_stride = 2;
      },
      absl::StatusCode::kInvalidArgument, "both a stride (2) and counts");
}

TEST_P(RefusalTest, AReceiveIsNoKindOfLaunch) {
  ExpectRefusal([](Posted& p) { p.launch.kind = COMMSCHED_RECV; },
                absl::StatusCode::kInvalidArgument, "recv is not a kind");
}

TEST_P(PolledFailureTest, ARequestInUseIsRefused) {
  const auto statuses = OnComm([&](int /*rank*/, CommDriver& comm) {
    Posted first(size()), second(size());
    if (auto ok = comm.Launch(first.launch, 1); !ok.ok()) return ok;
    if (comm.is_inline()) return absl::InvalidArgumentError("request 1");
    const absl::Status refused = comm.Launch(second.launch, 1);
    // Memory stays until nobody works on it.
    return comm.Wait(1).ok() ? refused : comm.Wait(1).status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInvalidArgument, "request 1"));
  }
}

TEST_P(FailureTest, AnAbortReachesEveryMemberInFlightAndSticks) {
  // NCCL connects members in the launch that nobody was told to expect, where
  // the loss of one may be seen before the reason.
  std::barrier connected(GetParam().on_cuda ? size() : 1);
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    Posted posted(size());
    if (GetParam().on_cuda) {
      EXPECT_OK(comm.LaunchAndWait(posted.launch));
      connected.arrive_and_wait();
    }
    // The last rank never comes, so the others cannot finish.
    if (rank == size() - 1) {
      comm.Abort(COMMSCHED_UNAVAILABLE, "the cable is out");
      comm.Abort(COMMSCHED_INTERNAL, "a later failure");
    } else {
      const absl::Status first = comm.LaunchAndWait(posted.launch);
      EXPECT_THAT(first,
                  StatusIs(absl::StatusCode::kUnavailable, "the cable is out"));
    }
    return comm.LaunchAndWait(posted.launch);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable, "the cable is out"));
  }
}

// Members' memory goes away as soon as they see the failure: whoever touches it
// then ends the process. In every other round it is freed, and the address and
// thread sanitizers watch.
TEST_P(PolledFailureTest, MemoryIsNotTouchedOnceAMemberHasSeenTheFailure) {
  constexpr size_t kCount = 300'000;
  for (int round = 0; round < 20; ++round) {
    std::vector<GuardedFloats> guarded(static_cast<size_t>(size()));
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      absl::Status status;
      for (int i = 0; status.ok() && i < 100'000; ++i) {
        std::vector<float> freed(round % 2 == 0 ? kCount : 0, 1.0f);
        GuardedFloats& kept = guarded[static_cast<size_t>(rank)];
        if (freed.empty()) kept.Allocate(kCount);
        float* const data = freed.empty() ? kept.data() : freed.data();
        const commsched_member_t member{data, data, kCount, nullptr,
                                        0,    0,    0,      0};
        const commsched_launch_t launch =
            LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1,
                     1, &member);
        status = comm.Launch(launch);
        if (rank == round % size()) {
          YieldSometimes(static_cast<uint64_t>(round));
          comm.Abort(COMMSCHED_CANCELLED, "enough");
        }
        if (status.ok()) status = comm.Wait().status();
      }
      guarded[static_cast<size_t>(rank)].Forbid();
      return status;
    });
    if (round > 0 && AnyWorldHasEnded(statuses)) return;
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(absl::IsCancelled(status) ||
                  (round > 0 && absl::IsUnavailable(status)))
          << status;
    }
  }
}

// Who has given up on a member that stands still has its memory back, whatever
// that member finds there when it goes on.
TEST_P(ReadFailureTest, WhatIsReadAfterItsSenderHasGivenUpIsNoResult) {
  constexpr uint64_t kCount = 100'000;
  std::atomic<bool> has_met{false};
  std::atomic<bool> is_reused{false};
  std::atomic<bool> is_over{false};
  const auto statuses = OnRanks([&](int rank) -> absl::Status {
    CommDriver comm;
    CommSpec spec;
    spec.scope = static_cast<uint64_t>(rank) + 1;  // None tells the other.
    if (auto ok = comm.Create(WorldOf(rank), spec, rank); !ok.ok()) return ok;
    Posted met(size());
    if (auto ok = comm.LaunchAndWait(met.launch); !ok.ok()) return ok;
    std::vector<float> data(kCount, 1.0f);
    const commsched_member_t member{data.data(), data.data(), kCount, nullptr,
                                    0,           0,           0,      0};
    const commsched_launch_t launch = LaunchOf(
        COMMSCHED_BROADCAST, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
    if (rank != 0) {
      has_met = true;
      EXPECT_TRUE(test::Await([&] { return is_reused.load(); }));
      const absl::Status status = comm.LaunchAndWait(launch);
      is_over = true;
      return status;
    }
    EXPECT_TRUE(test::Await([&] { return has_met.load(); }));
    if (auto ok = comm.Launch(launch); !ok.ok()) return ok;
    comm.Abort(COMMSCHED_CANCELLED, "enough");
    const absl::Status status = comm.Wait().status();
    std::fill(data.begin(), data.end(), 2.0f);
    is_reused = true;
    EXPECT_TRUE(test::Await([&] { return is_over.load(); }));
    return status;
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_FALSE(statuses[1].ok());
}

// On a busy machine a member may come to leave long after the others have.
TEST_P(SeveralMembersTest, AMemberThatLeavesLateAfterAFailureCanMeetAgain) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    const absl::Status status = LaunchUntilFailed(&comm, [&] {
      if (rank == 0) comm.Abort(COMMSCHED_CANCELLED, "enough");
    });
    if (rank == size() - 1) StandStillUntil(NowNs() + kLateNs);
    return status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  }
  ExpectToMeet();
}

// Nor does it matter that others have failed shortly before.
TEST_P(LaterFailureTest, AMemberThatStopsLateCanMeetAgain) {
  // More than failures that belong together have in common.
  constexpr int64_t kApartNs = int64_t{1500} * 1000 * 1000;
  const int64_t begin_ns = NowNs();
  for (int round = 0; round < 2; ++round) {
    const auto statuses = OnComm([&](int rank, CommDriver& comm) {
      return LaunchUntilFailed(&comm, [&] {
        const int64_t fails_ns = round == 0 ? NowNs() : begin_ns + kApartNs;
        if (rank == 0) {
          StandStillUntil(fails_ns);
          comm.Abort(COMMSCHED_CANCELLED, "enough");
        }
        if (rank == size() - 1) StandStillUntil(fails_ns + kLateNs);
      });
    });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, "enough"));
    }
  }
  ExpectToMeet();
}

TEST_P(SeveralMembersTest, AMemberThatLeavesEarlyIsNamed) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    Posted posted(size());
    if (auto first = comm.LaunchAndWait(posted.launch); !first.ok()) {
      return first;
    }
    if (rank == 0) {
      comm.Destroy();
      return absl::OkStatus();
    }
    return comm.LaunchAndWait(posted.launch);
  });
  EXPECT_OK(statuses[0]);
  for (int rank = 1; rank < size(); ++rank) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kAborted,
                         "rank 0 left axis 'dp' before launch #1"));
  }
}

TEST_P(SeveralMembersTest, LeavingWithALaunchInFlightFailsTheOthers) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) {
    Posted posted(size());
    if (rank == 0) {
      const absl::Status launched = comm.Launch(posted.launch);
      comm.Destroy();
      return launched;
    }
    Posted next(size());
    if (auto first = comm.LaunchAndWait(posted.launch); !first.ok()) {
      return first;
    }
    return comm.LaunchAndWait(next.launch);
  });
  for (int rank = 1; rank < size(); ++rank) {
    EXPECT_FALSE(statuses[rank].ok());
    EXPECT_THAT(std::string(statuses[rank].message()),
                HasSubstr("rank 0 left axis 'dp'"));
  }
}

// Whoever comes first or last, the communicator lives until its last member
// lets go, and the same id can then be used for another one.
TEST_P(FailureTest, MembersMayComeAndGoInAnyOrder) {
  for (int round = 0; round < 20; ++round) {
    EXPECT_OK(OnRanksAll([&](int rank) -> absl::Status {
      YieldSometimes(static_cast<uint64_t>(round * 100 + rank));
      CommDriver comm;
      CommSpec spec;
      spec.id = absl::StrCat("round", round % 2);
      if (auto ok = comm.Create(WorldOf(rank), spec, rank); !ok.ok()) return ok;
      Posted posted(size());
      if (auto ok = comm.LaunchAndWait(posted.launch); !ok.ok()) return ok;
      EXPECT_EQ(posted.out[63], static_cast<float>(size()));
      YieldSometimes(static_cast<uint64_t>(round * 100 + 50 + rank));
      return absl::OkStatus();
    }));
  }
}

TEST_P(SharedMembersTest, MembersMustDescribeTheSameCommunicator) {
  CommDriver first, second;
  ASSERT_OK(first.Create(WorldOf(0), {.max_in_flight = 2}, 0));
  EXPECT_THAT(second.Create(WorldOf(1), {.max_in_flight = 3}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "gave 3 launches in flight"));
  EXPECT_THAT(second.Create(WorldOf(1), {.ranks = {1, 0}}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "gave ranks 1,0"));
  EXPECT_THAT(
      second.Create(WorldOf(0), {.max_in_flight = 2}, 0),
      StatusIs(absl::StatusCode::kAlreadyExists, "rank 0 has already joined"));
}

TEST_P(DistantMembersTest, MembersMustDescribeTheSameCommunicator) {
  uint64_t scope = 0;
  const auto expect_refused = [&](CommSpec first, CommSpec second,
                                  const std::string& text) {
    first.scope = second.scope = ++scope;
    const auto statuses = OnRanks([&](int rank) -> absl::Status {
      CommDriver comm;
      const CommSpec& spec = rank == size() - 1 ? second : first;
      if (auto ok = comm.Create(WorldOf(rank), spec, rank); !ok.ok()) return ok;
      Posted posted(size());
      const absl::Status launched = comm.LaunchAndWait(posted.launch);
      // A launch may be complete before the others' descriptions are here.
      while (comm.status().ok()) std::this_thread::yield();
      return comm.status();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, text));
    }
  };
  expect_refused({.id = "a", .max_in_flight = 2},
                 {.id = "a", .max_in_flight = 3}, " launches in flight, rank ");
  std::vector<int32_t> reversed(static_cast<size_t>(size()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  expect_refused({.id = "b"}, {.id = "b", .ranks = reversed}, " gave ranks ");
  CommDriver once, twice;
  ASSERT_OK(once.Create(WorldOf(0), {.id = "c"}, OwnRank()));
  EXPECT_THAT(
      twice.Create(WorldOf(0), {.id = "c"}, OwnRank()),
      StatusIs(absl::StatusCode::kAlreadyExists,
               absl::StrCat("rank ", OwnRank(), " has already joined")));
}

TEST_P(OneProcessFailureTest, DescriptionsThatMakeNoSenseAreRefused) {
  CommDriver comm;
  const auto refuses = [&](CommSpec spec, const std::string& text) {
    EXPECT_THAT(comm.Create(WorldOf(0), std::move(spec), 0),
                StatusIs(absl::StatusCode::kInvalidArgument, text));
  };
  refuses({.ranks = {0, 99}}, size() < 2 ? "the world has 1" : "rank 99");
  if (size() > 1) refuses({.ranks = {0, 0}}, "a member twice");
  refuses({.max_in_flight = 0}, "0 launches in flight");
}

bool IsShared(const BackendCase& one) {
  return !one.processes && IsPolled(one);
}
bool IsDistant(const BackendCase& one) { return one.processes; }
bool ChecksLaunches(const BackendCase& one) { return one.checks_launches; }

COMMSCHED_INSTANTIATE_CONFORMANCE(FailureTest, AllBackends());
COMMSCHED_INSTANTIATE_CONFORMANCE(PolledFailureTest,
                                  BackendsWith(0, 1, IsPolled));
// Where who receives reads the sender's memory.
COMMSCHED_INSTANTIATE_CONFORMANCE(ReadFailureTest,
                                  BackendsWith(0, 2, [](const auto& one) {
                                    return one.name == "ucx_n2";
                                  }));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReadFailureTest);
COMMSCHED_INSTANTIATE_CONFORMANCE(OneProcessFailureTest,
                                  BackendsWith(0, 1, IsOneProcess));
// On a stream others wait for who leaves, until their deadline.
COMMSCHED_INSTANTIATE_CONFORMANCE(SeveralMembersTest,
                                  BackendsWith(0, 2, IsPolled));
// It waits for longer than a second: once per way of the backends.
COMMSCHED_INSTANTIATE_CONFORMANCE(LaterFailureTest,
                                  BackendsWith(0, 2, [](const auto& one) {
                                    return IsPolled(one) &&
                                           (one.size == 3 || one.own_process);
                                  }));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LaterFailureTest);
COMMSCHED_INSTANTIATE_CONFORMANCE(SharedMembersTest,
                                  BackendsWith(0, 2, IsShared));
COMMSCHED_INSTANTIATE_CONFORMANCE(DistantMembersTest,
                                  BackendsWith(0, 2, IsDistant));
// Without UCX there is none such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DistantMembersTest);
COMMSCHED_INSTANTIATE_CONFORMANCE(MismatchTest,
                                  BackendsWith(0, 2, ChecksLaunches));
COMMSCHED_INSTANTIATE_CONFORMANCE(RefusalTest,
                                  BackendsWith(0, 1, ChecksLaunches));
COMMSCHED_INSTANTIATE_CONFORMANCE(StridedRefusalTest,
                                  BackendsWith(COMMSCHED_BACKEND_STRIDED, 1,
                                               ChecksLaunches));

}  // namespace
}  // namespace commsched
