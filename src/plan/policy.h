#ifndef COMMSCHED_SRC_PLAN_POLICY_H_
#define COMMSCHED_SRC_PLAN_POLICY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/types.h"

namespace commsched {

// A collective, or a launch of several, as a policy sees it. Positions count
// compute ops in host order; kNever: none of this step.
struct PolicyItem {
  static constexpr uint32_t kNever = ~uint32_t{0};

  OpId op;                 // the first member
  absl::string_view name;  // of `op`; valid during the call
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  absl::string_view group;   // name; valid during the call
  uint32_t group_size = 1;   // ranks
  uint32_t num_members = 1;  // collectives
  uint64_t bytes = 0;        // payload (I3)
  int64_t link_ns = 0;       // predicted time on the link
  int priority = 0;          // hint of the graph, the highest of the members
  // Due once that many compute ops have had their `after`.
  uint32_t ready = 0;
  // The first compute op of the step that needs it.
  uint32_t first_need = kNever;
};

// Whether `next` joins the launch `open`, its predecessor in key order.
struct MergeQuestion {
  PolicyItem open;
  PolicyItem next;
  uint64_t limit_bytes = 0;  // PlanOptions::coalesce_bytes; by cost 0
  // Whether kJoin may be answered: kind, group, dtype and reduction agree,
  // `next` does not depend on `open`, and nothing needs `open` before `next` is
  // ready. The limit is not among these: it is a wish, and the policy's to
  // grant.
  bool legal = false;
  bool ours = false;  // what we would do
};

enum class MergeAnswer : uint8_t { kOurs, kJoin, kSplit };

// A launch that waits for its place in key order.
struct PolicyLaunch {
  PolicyItem item;
  uint32_t role = 0;  // whose positions `item` gives: the first that takes part
  // Of a collective that was split: which part this is, and of how many.
  uint32_t piece = 0;
  uint32_t num_pieces = 1;
  // When it could start at the earliest, and when its first consumer could, of
  // this step or the next, if communication took no time. From the beginning of
  // the step; INT64_MAX: nobody needs it.
  int64_t earliest_ns = 0;
  int64_t need_ns = 0;
  // Indices of launches that it depends on directly, in this step.
  absl::Span<const uint32_t> after;
};

// Replaces decisions of coalesce and prioritize (PlanOptions::policy).
//
// A policy decides from what it is given alone: equal questions have equal
// answers, on every rank and in every run (I1, I8). A decision that would break
// the plan is no plan but an error, kInvalidArgument, naming the policy and the
// ops; a Status that the policy returns is passed on with its name in front.
//
// Thread-safe: planning of several graphs may ask at once.
class Policy {
 public:
  virtual ~Policy() = default;

  // How messages call it.
  virtual absl::string_view name() const = 0;

  // Asked for every two neighbours in key order, in that order. kJoin where
  // `question.legal` is false is an error.
  virtual absl::StatusOr<MergeAnswer> Merge(
      const MergeQuestion& question) const {
    (void)question;
    return MergeAnswer::kOurs;
  }

  // Asked once per plan, of all roles together: result[i] is the index, in
  // `launches`, of the launch that goes i-th; empty: ours. `launches` are in
  // the order in which they get ready. The result must name each launch once,
  // put none before one in its `after`, and hold up no op: where an op needs a
  // launch, no launch up to that one may be due only after the op itself, so
  // none whose `ready` is above that one's `first_need`.
  virtual absl::StatusOr<std::vector<uint32_t>> Order(
      absl::Span<const PolicyLaunch> launches) const {
    (void)launches;
    return std::vector<uint32_t>();
  }
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_POLICY_H_
