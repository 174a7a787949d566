// When a launch of a lane has taken too long, and who is missing.
#ifndef COMMSCHED_SRC_EXEC_LANE_WATCHDOG_H_
#define COMMSCHED_SRC_EXEC_LANE_WATCHDOG_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "commsched/plugin.h"

namespace commsched {

// "0-2, 5": ranks in increasing order, at most 16 ranges.
std::string RankList(const std::vector<int>& ranks);

// "; rank 3 does not answer", or nothing.
std::string SilentText(const std::vector<int>& ranks);

// "; ranks 1, 3 have not issued it", or nothing.
std::string MissingText(const std::vector<int>& ranks);

// A launch in flight.
struct WatchedLaunch {
  uint32_t lane = 0;
  uint32_t request = 0;
  void* comm = nullptr;
  commsched_collective_t kind = COMMSCHED_BARRIER;
  const std::vector<int>* ranks = nullptr;  // world ranks of its group
};

// What is known of one, for who asks.
struct LaunchWait {
  int64_t waited_ns = 0;
  std::vector<int> missing;  // world ranks known not to have issued it
  std::vector<int> silent;   // asked, and have not answered
};

// A launch has `timeout_ns` from its predecessor's completion, not from its
// issue: hosts run ahead. Completions are seen per lane. Times are those of
// base/running_clock.h.
//
// A backend may have to ask the other ranks what they have issued. They are
// asked a second before the deadline, so that who does not answer is known at
// the deadline: whoever waits for that rank must not fail after those that wait
// for the waiting. Who has answered is asked again at the deadline, and is
// given a second: so only a rank that had not issued the launch in time is
// named.
//
// Owned by who issues.
class LaneWatchdog {
 public:
  struct Spec {
    const commsched_backend_t* backend = nullptr;  // outlives the watchdog
    uint32_t num_lanes = 1;
    int world_rank = 0;
    int64_t timeout_ns = 0;
  };

  explicit LaneWatchdog(const Spec& spec);

  // A launch of `lane` has become its oldest in flight. Its time runs from the
  // next Look(): launches that come and go in between cost no clock.
  void Restart(uint32_t lane) {
    lanes_[lane].since_ns = kRestarted;
    lanes_[lane].asked = Asked::kNobody;
  }
  void Look(int64_t now_ns);

  // When the oldest launch in flight of `lane` has taken too long; never before
  // it has been looked at.
  int64_t DeadlineNs(uint32_t lane) const;

  // When ranks are asked about the oldest launch in flight of `lane`: the
  // deadline, or before.
  int64_t AskNs(uint32_t lane) const;
  // Whether Expired() is to be called of its lane's oldest launch in flight: it
  // has taken too long, and who may still answer has. Has ranks asked. To be
  // called at NextLookNs(), and when answers may have come.
  bool HasExpired(const WatchedLaunch& launch, int64_t now_ns);
  int64_t NextLookNs(uint32_t lane) const {
    const Lane& of = lanes_[lane];
    return of.asked == Asked::kNobody ? AskNs(lane) : of.next_look_ns;
  }

  // Has ranks asked anew about a launch in flight, if the backend has to ask.
  void Ask(const WatchedLaunch& launch) const;
  // What Expired() would be about, for who asks: as is known.
  LaunchWait WaitOf(const WatchedLaunch& launch, int64_t now_ns) const;

  // The error for such a launch, which is `what`: "#3 all_reduce 'g' on axis dp
  // of step 7". Names the ranks that have not issued it, and those that do not
  // say, if the backend knows them.
  absl::Status Expired(const WatchedLaunch& launch, absl::string_view what,
                       int64_t now_ns) const;

 private:
  enum class Asked { kNobody, kBefore, kAgain };  // the deadline; at it
  struct Lane {
    int64_t since_ns = 0;
    Asked asked = Asked::kNobody;  // about its oldest launch in flight
    // Unless kNobody:
    int64_t answers_by_ns = 0;
    int64_t next_look_ns = 0;
    std::vector<int> silent;  // who was not seen to answer before the deadline
  };
  using ListRanks = uint32_t (*)(void* comm, uint32_t request,
                                 int32_t* out_ranks, uint32_t capacity);
  // Whether all have answered, or have had their time.
  bool HasAnswers(Lane* lane, const WatchedLaunch& launch,
                  int64_t now_ns) const;
  // World ranks, ascending; none if the backend has no `list`.
  static std::vector<int> RanksOf(ListRanks list, const WatchedLaunch& launch);
  std::vector<int> MissingRanks(const WatchedLaunch& launch) const;
  std::vector<int> SilentRanks(const WatchedLaunch& launch) const;
  // Of its group, those that are known to wait for it.
  std::vector<int> WaitingRanks(const WatchedLaunch& launch,
                                const std::vector<int>& missing,
                                const std::vector<int>& silent) const;

  static constexpr int64_t kRestarted = std::numeric_limits<int64_t>::max();

  const Spec spec_;
  const int64_t answer_ns_;  // how long answers may take
  std::vector<Lane> lanes_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_LANE_WATCHDOG_H_
