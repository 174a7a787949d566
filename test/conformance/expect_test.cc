// Launches that a backend was told to expect, at any time.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "test/conformance/backend_fixture.h"
#include "test/support/alloc_counter.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

// One member of any kind with its memory.
class Shape {
 public:
  Shape(commsched_collective_t kind, int size, int rank, uint64_t count,
        uint32_t flags = 0)
      : kind_(kind), size_(size), rank_(rank), flags_(flags) {
    Resize(count);
  }
  Shape(const Shape&) = delete;

  // Smaller than it was made.
  void Resize(uint64_t count) {
    const auto n = static_cast<uint64_t>(size_);
    in_.resize(std::max(in_.size(), count * n), 1);
    out_.resize(std::max(out_.size(), count * n), 0);
    counts_.assign(2 * n, count);
    members_[0] = {};
    members_[0].input = in_.data();
    members_[0].output = out_.data();
    members_[0].count = count;
    if ((flags_ & COMMSCHED_LAUNCH_OWN_COUNTS) != 0) {
      members_[0].counts = counts_.data();
    }
    launch_ =
        LaunchOf(kind_, COMMSCHED_I32, COMMSCHED_SUM, 0, 1, 1, members_.data());
    launch_.flags = flags_;
    if (kind_ != COMMSCHED_SEND) return;
    launch_.num_members = 2;
    members_[1] = members_[0];
    members_[0].direction = COMMSCHED_SEND;
    members_[0].output = nullptr;
    members_[0].peer = (rank_ + 1) % size_;
    members_[1].direction = COMMSCHED_RECV;
    members_[1].input = nullptr;
    members_[1].peer = (rank_ + size_ - 1) % size_;
  }
  commsched_launch_t& launch() { return launch_; }

 private:
  const commsched_collective_t kind_;
  const int size_;
  const int rank_;
  const uint32_t flags_;
  std::vector<int32_t> in_, out_;
  std::vector<uint64_t> counts_;
  std::vector<commsched_member_t> members_ = std::vector<commsched_member_t>(2);
  commsched_launch_t launch_ = {};
};

class ExpectTest : public BackendTest {
 protected:
  struct Kind {
    commsched_collective_t kind;
    uint32_t flags;
  };
  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds = {{COMMSCHED_ALL_REDUCE, 0},
                               {COMMSCHED_BROADCAST, 0},
                               {COMMSCHED_REDUCE_SCATTER, 0},
                               {COMMSCHED_ALL_GATHER, 0},
                               {COMMSCHED_REDUCE, 0},
                               {COMMSCHED_ALL_TO_ALL, 0},
                               {COMMSCHED_SEND, 0}};
    if (Can(COMMSCHED_BACKEND_OWN_COUNTS)) {
      kinds.push_back({COMMSCHED_ALL_TO_ALL, COMMSCHED_LAUNCH_OWN_COUNTS});
    }
    if (Can(COMMSCHED_BACKEND_TAGS)) {
      kinds.push_back({COMMSCHED_SEND, COMMSCHED_LAUNCH_TAGGED});
    }
    return kinds;
  }
};

// Of each kind some elements are expected while a launch of another kind is
// under way, and then as many and fewer are launched. Threads that have nothing
// to do with it may allocate meanwhile: so there are several tries, each with
// more elements than ever.
TEST_P(ExpectTest, WhatIsExpectedLaterAllocatesNothing) {
  constexpr int kTries = 4;
  std::barrier<> meet(size());
  std::vector<uint64_t> fewest(Kinds().size(), UINT64_MAX);
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    uint32_t slot = 0;
    for (int number = 0; number < kTries; ++number) {
      const auto most = static_cast<uint64_t>(20'000 + 7000 * number);
      for (size_t k = 0; k < Kinds().size(); ++k) {
        Shape before(COMMSCHED_ALL_REDUCE, size(), rank, 300'000);
        Shape shape(Kinds()[k].kind, size(), rank, most, Kinds()[k].flags);
        std::vector<commsched_launch_t> expected = {shape.launch()};
        if (auto ok = comm.Launch(before.launch(), 3); !ok.ok()) return ok;
        expected[0].slot = slot++;
        if (auto ok = comm.Expect(expected); !ok.ok()) return ok;
        if (auto ok = comm.Wait(3); !ok.ok()) return ok.status();
        uint64_t allocations = 0;
        meet.arrive_and_wait();
        if (rank == 0) allocations = HeapAllocations();
        meet.arrive_and_wait();
        for (const uint64_t count :
             {most, most, most / 2, uint64_t{100}, uint64_t{0}}) {
          shape.Resize(count);
          shape.launch().slot = expected[0].slot;
          if (auto ok = comm.LaunchAndWait(shape.launch()); !ok.ok()) return ok;
        }
        meet.arrive_and_wait();
        if (rank == 0) {
          fewest[k] = std::min(fewest[k], HeapAllocations() - allocations);
        }
        meet.arrive_and_wait();
      }
    }
    return absl::OkStatus();
  }));
  for (size_t k = 0; k < fewest.size(); ++k) {
    EXPECT_EQ(fewest[k], 0)
        << "kind " << Kinds()[k].kind << ", flags " << Kinds()[k].flags;
  }
}

bool ExpectsOnTheHost(const BackendCase& one) {
  return IsOneProcess(one) && IsPolled(one) &&
         one.wrap == BackendCase::Wrap::kNone &&
         (one.backend == "inproc" || one.backend == "ucx" ||
          one.backend == "fault");
}

COMMSCHED_INSTANTIATE_CONFORMANCE(ExpectTest,
                                  BackendsWith(0, 2, ExpectsOnTheHost));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExpectTest);

}  // namespace
}  // namespace commsched
