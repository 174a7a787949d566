// An all-to-all whose members were given other counts: what a rank neither
// sends nor gets does not matter to it, all else is named.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

using testing::HasSubstr;

// Members of which rank s sends s * size + r + 1 + m elements to rank r, with
// that number as each, and what a rank was told of it.
class CountedParts {
 public:
  static constexpr size_t kMembers = 3;

  CountedParts(int size, int rank)
      : size_(static_cast<uint64_t>(size)), rank_(static_cast<uint64_t>(rank)) {
    for (uint64_t m = 0; m < kMembers; ++m) {
      for (uint64_t pair = 0; pair < size_ * size_; ++pair) {
        counts_[m].push_back(pair + 1 + m);
      }
    }
  }
  CountedParts(const CountedParts&) = delete;
  CountedParts& operator=(const CountedParts&) = delete;

  uint64_t& count(size_t member, int from, int to) {
    return counts_[member][static_cast<uint64_t>(from) * size_ +
                           static_cast<uint64_t>(to)];
  }

  // Valid until the next count().
  const commsched_launch_t& launch() {
    for (size_t m = 0; m < kMembers; ++m) {
      in_[m].clear();
      uint64_t received = 0;
      for (uint64_t r = 0; r < size_; ++r) {
        const uint64_t sent = counts_[m][rank_ * size_ + r];
        in_[m].insert(in_[m].end(), sent, static_cast<int32_t>(sent));
        received += counts_[m][r * size_ + rank_];
      }
      out_[m].assign(received, -1);
      members_[m] = {
          in_[m].data(), out_[m].data(), 0, counts_[m].data(), 0, 0, 0, 0};
    }
    launch_ = LaunchOf(COMMSCHED_ALL_TO_ALL, COMMSCHED_I32, COMMSCHED_SUM, 0, 0,
                       kMembers, members_);
    return launch_;
  }
  bool IsRight() const {
    for (size_t m = 0; m < kMembers; ++m) {
      size_t at = 0;
      for (uint64_t s = 0; s < size_; ++s) {
        const uint64_t count = counts_[m][s * size_ + rank_];
        for (uint64_t i = 0; i < count; ++i, ++at) {
          if (out_[m][at] != static_cast<int32_t>(count)) return false;
        }
      }
    }
    return true;
  }

 private:
  const uint64_t size_;
  const uint64_t rank_;
  std::vector<uint64_t> counts_[kMembers];
  std::vector<int32_t> in_[kMembers], out_[kMembers];
  commsched_member_t members_[kMembers] = {};
  commsched_launch_t launch_ = {};
};

class CountsTest : public BackendTest {
 protected:
  // What the last rank gets when it was told `change`d counts.
  absl::Status LaunchAll(const std::function<void(CountedParts&)>& change) {
    return OnComm([&](int rank, CommDriver& comm) -> absl::Status {
             CountedParts parts(size(), rank);
             if (rank == size() - 1) change(parts);
             const absl::Status status = comm.LaunchAndWait(parts.launch());
             if (!status.ok() || parts.IsRight()) return status;
             return absl::InternalError("a part is wrong");
           })
        .back();
  }
  void ExpectNamed(const std::function<void(CountedParts&)>& change,
                   const std::string& what) {
    const absl::Status status = LaunchAll(change);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 absl::StrCat("launch #0: rank 0 ", what)));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("rank ", size() - 1)));
  }
};

TEST_P(CountsTest, WhatOtherRanksSendEachOtherDoesNotMatter) {
  EXPECT_OK(LaunchAll([](CountedParts& parts) {
    parts.count(0, 0, 0) = 1'000'000;
    parts.count(1, 0, 1) = 1'000'000;
    parts.count(2, 1, 0) = 0;
  }));
}

TEST_P(CountsTest, OtherCountsOfTheSameSizeAreNamed) {
  ExpectNamed(
      [this](CountedParts& parts) {
        ++parts.count(0, 0, size() - 1);
        --parts.count(1, 0, size() - 1);
      },
      "gave other counts for what it sends to rank ");
}

TEST_P(CountsTest, OtherSizesAreNamed) {
  ExpectNamed([this](CountedParts& parts) { ++parts.count(2, 0, size() - 1); },
              "sent ");
  ExpectNamed(
      [this](CountedParts& parts) {
        parts.count(1, 0, size() - 1) = 1'000'000;
      },
      "sent ");
}

bool ComparesPairs(const BackendCase& one) { return one.backend == "ucx"; }

COMMSCHED_INSTANTIATE_CONFORMANCE(CountsTest,
                                  BackendsWith(0, 3, ComparesPairs));
// Without UCX there is none such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CountsTest);

}  // namespace
}  // namespace commsched
