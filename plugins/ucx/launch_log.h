// What a rank has launched on a communicator lately, to be compared with what
// other members have. Messages show how many bytes the others mean, and nothing
// else: of another type, reduction or root of the same size all get a result,
// and of another kind they may wait for each other.
#ifndef COMMSCHED_PLUGINS_UCX_LAUNCH_LOG_H_
#define COMMSCHED_PLUGINS_UCX_LAUNCH_LOG_H_

#include <array>
#include <cstdint>
#include <string>

#include "commsched/plugin.h"
#include "support/launch_entry.h"

namespace commsched::ucx {

// Some collectives in a row, as members tell each other (Notice).
struct LaunchReport {
  static constexpr uint32_t kMost = 48;

  uint64_t begin = 0;  // The number of the first.
  uint32_t count = 0;
  uint32_t launches[kMost] = {};  // LaunchEntry

  uint64_t end() const { return begin + count; }
};

// Collectives are numbered from 0. The last kKept are known.
class LaunchLog {
 public:
  static constexpr uint64_t kKept = 256;

  void Add(const commsched_launch_t& launch) {
    entries_[num_++ % kKept] = LaunchEntry::Of(launch);
  }
  uint64_t num() const { return num_; }

  // Those from `begin` on that are known, or the first of them.
  LaunchReport ReportFrom(uint64_t begin) const;
  // The newest.
  LaunchReport Report() const {
    return ReportFrom(
        num_ - (num_ < LaunchReport::kMost ? num_ : LaunchReport::kMost));
  }
  // Whether the launch that was added last is one of those after which a member
  // tells: the first ones, and then one of 32.
  bool IsToBeTold() const {
    constexpr uint64_t kEvery = 32;
    return num_ % kEvery == 0 || (num_ < kEvery && (num_ & (num_ - 1)) == 0);
  }

  // The first launch of `other`'s report that is another one here, and how they
  // differ: "launch #3: rank 1 has kind barrier, rank 0 has kind all_reduce".
  // Empty: there is none among those that both know.
  std::string DifferenceFrom(const LaunchReport& report,
                             const std::string& other,
                             const std::string& self) const;

 private:
  std::array<uint32_t, kKept> entries_ = {};
  uint64_t num_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_LAUNCH_LOG_H_
