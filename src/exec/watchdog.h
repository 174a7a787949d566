// When a launch has taken too long, and who is missing.
#ifndef COMMSCHED_SRC_EXEC_WATCHDOG_H_
#define COMMSCHED_SRC_EXEC_WATCHDOG_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "commsched/plugin.h"
#include "exec/program.h"

namespace commsched {

// "0-2, 5": ranks in increasing order, at most 16 ranges.
std::string RankList(const std::vector<int>& ranks);

// "; rank 3 does not answer", or nothing.
std::string SilentText(const std::vector<int>& ranks);

// A launch that has been issued and is not complete.
struct PendingLaunch {
  uint32_t launch = 0;
  uint64_t step = 0;  // as the program counts it
  int64_t waited_ns = 0;
  std::vector<int> missing;  // world ranks known not to have issued it
  std::vector<int> silent;   // asked, and have not answered
};

// A launch has `timeout_ns` from its predecessor's completion, not from its
// issue: hosts run ahead. Completions are seen per communication lane. Times
// are those of base/running_clock.h.
//
// A backend may have to ask the other ranks what they have issued. They are
// asked a second before the deadline, so that who does not answer is known at
// the deadline: whoever waits for that rank must not fail after those that wait
// for the waiting. Who has answered is asked again at the deadline, and is
// given a second: so only a rank that had not issued the launch in time is
// named.
//
// Owned by the issuer.
class Watchdog {
 public:
  struct Spec {
    const Program* program = nullptr;  // outlives the watchdog
    const commsched_backend_t* backend = nullptr;
    std::vector<std::vector<int>> group_ranks;  // by GroupId: world ranks
    int world_rank = 0;
    int64_t timeout_ns = 0;
  };

  explicit Watchdog(Spec spec);

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
  bool HasExpired(uint32_t launch, uint32_t request, int64_t now_ns);
  int64_t NextLookNs(uint32_t lane) const {
    const Lane& of = lanes_[lane];
    return of.asked == Asked::kNobody ? AskNs(lane) : of.next_look_ns;
  }

  // Has ranks asked anew about a launch in flight, if the backend has to ask.
  void Ask(uint32_t launch, uint32_t request) const;
  // What Expired() would be about, for who asks: as is known.
  PendingLaunch Pending(uint32_t launch, uint64_t step, uint32_t request,
                        int64_t now_ns) const;

  // The error for such a launch. Names the ranks that have not issued it, and
  // those that do not say, if the backend knows them.
  absl::Status Expired(uint32_t launch, uint64_t step, uint32_t request,
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
  bool HasAnswers(Lane* lane, uint32_t launch, uint32_t request,
                  int64_t now_ns) const;
  // World ranks, ascending; none if the backend has no `list`.
  std::vector<int> RanksOf(ListRanks list, const LaunchProgram& launch,
                           uint32_t request) const;
  std::vector<int> MissingRanks(const LaunchProgram& launch,
                                uint32_t request) const;
  std::vector<int> SilentRanks(const LaunchProgram& launch,
                               uint32_t request) const;
  // Of its group, those that are known to wait for it.
  std::vector<int> WaitingRanks(const LaunchProgram& launch,
                                const std::vector<int>& missing,
                                const std::vector<int>& silent) const;

  static constexpr int64_t kRestarted = std::numeric_limits<int64_t>::max();

  const Spec spec_;
  const int64_t answer_ns_;  // how long answers may take
  std::vector<Lane> lanes_;  // by communication lane
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_WATCHDOG_H_
