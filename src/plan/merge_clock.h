// Which collectives are merged by cost (coalesce.h): the sum that decides.
#ifndef COMMSCHED_SRC_PLAN_MERGE_CLOCK_H_
#define COMMSCHED_SRC_PLAN_MERGE_CLOCK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "plan/merge_times.h"
#include "plan/roles.h"

namespace commsched {

// A merge saves a launch, which has to be this share of what the merged one
// takes, where it waits for what a prediction may be wrong about: smaller gains
// are below what a prediction can tell. So launches on a link of b bytes/s that
// wait for a member grow up to launch_ns x b x 10.
inline constexpr int64_t kLeastSavedShare = 10;
// Where little can go wrong, it is this share: a launch without end could not
// be hidden. That is where the one to join takes 1 / kTinyShare of the link's
// time for the others at most, or they of its; all are in time for what is
// next; and the open launch does not wait for the last one, nor would it if all
// that it waits for took kWaitMargin times as long as predicted: the merge
// saves more than that, or the launch before keeps the link busy meanwhile.
inline constexpr int64_t kLeastSavedShareOfTiny = 100;
inline constexpr int64_t kTinyShare = 20;
inline constexpr int64_t kWaitMargin = 2;

// What a merge may cost, which is how much later than MergeItem::latest_ns it
// makes a member complete.
enum class MergeRule : uint8_t {
  kNothing,       // nothing
  kLessThanSaved  // no more than is saved
};

// What becomes of the collective that is next in key order.
struct MergeVerdict {
  enum class Why : uint8_t {
    kJoins,
    kUnknownCost,  // an op without a cost is in between
    kTooLittle,    // saves nothing, or less than a share of the launch
    kCosts,        // saves less than it costs
  };
  Why why = Why::kJoins;
  // The processor's time for a launch, less what the merged one arrives later;
  // or what it arrives earlier, if that is more.
  int64_t saved_ns = 0;
  int64_t late_ns = 0;  // a step may get longer by so much
  // kLeastSavedShareOfTiny is enough.
  bool safe = false;
  int64_t merged_ns = 0;  // the merged launch keeps others off for so long
};

// The issuers and links of all roles while launches go in key order, each when
// it is ready (MergeTimes), merged as it was told.
//
// Thread-compatible. `times` outlives it.
class MergeClock {
 public:
  MergeClock(const MergeTimes& times, MergeRule rule, bool takes_lists);

  // Of a collective that may join the last launch of its role. Changes nothing.
  MergeVerdict Ask(RoleOp op) const;
  // `op`, in all roles that take part, has begun a launch, or joined the last.
  void Open(RoleOp op);
  void Join(RoleOp op);

 private:
  // Members of a launch, as far as its time is concerned.
  struct Load {
    int64_t ready_ns = 0;
    int64_t need_ns = MergeItem::kNever;
    int64_t latest_ns = MergeItem::kNever;
    int64_t launch_ns = 0;
    int64_t busy_ns = 0;
    int64_t latency_ns = 0;
    int64_t cpu_ns = 0;
    int64_t copy_ns = 0;
    int64_t num_members = 0;
    bool serial = false;
    bool packed = false;
    bool list_only = false;
  };
  // When an issuer, and a link, is free.
  struct Free {
    int64_t issuer_ns = 0;
    int64_t link_ns = 0;
    // These two are of the launch before.
    int64_t ready_ns = 0;
    int64_t busy_ns = 0;
  };
  struct Ends {
    Free free;
    int64_t done_ns = 0;
  };
  struct OpenLaunch {
    const MergeItem* first = nullptr;
    Load load;
    Free before;
  };

  static Load With(Load load, const MergeItem& item);
  static bool IsSafe(const OpenLaunch& open, const MergeItem& next,
                     const MergeVerdict& verdict);
  static bool IsWorthIt(const MergeVerdict& verdict);
  int64_t OverheadNs(const Load& load) const;
  Ends EndsOf(const Load& load, const Free& free) const;
  void Close(uint32_t role);

  const MergeTimes& times_;
  const MergeRule rule_;
  const bool takes_lists_;
  std::vector<Free> free_;  // by role, before its open launch
  std::vector<OpenLaunch> launches_;
  std::vector<uint32_t> open_;  // by role, in launches_; kNone: none yet
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_MERGE_CLOCK_H_
