#ifndef COMMSCHED_SRC_PLAN_LAUNCH_REASON_H_
#define COMMSCHED_SRC_PLAN_LAUNCH_REASON_H_

#include <cstdint>

#include "graph/graph.h"

namespace commsched {

// Why a launch has the members that it has and travels as it does. Facts only:
// a plan has many launches, and few are ever explained.
struct LaunchReason {
  // What decided the way of the members.
  enum class How : uint8_t {
    kAlone,       // there is one
    kOneRange,    // they make up one range
    kListIsLess,  // copies would cost more than the list
    kPackIsLess,  // copies cost less
    kUneven,      // uneven counts are not packed
    kTick,        // sends and receives that are due together
    kTile,        // the rows of a tile are copied to be dense
    kLateBound,   // what is bound late is not packed
    kCoded,       // goes through the codec
    kNoLists,     // the backend takes one member in a launch
  };
  // Why the collective that is next in key order did not join.
  enum class End : uint8_t {
    kNone,        // it did
    kLast,        // there is none
    kMergingOff,  // PlanOptions::coalesce_bytes is 0
    kKind,
    kGroup,
    kDType,
    kReduction,
    kRoot,
    kLimit,        // the launch would pass `limit_bytes`
    kNeeded,       // `needer` needs a member before `next` is ready
    kDependent,    // `next` depends on a member
    kPolicy,       // the policy said so
    kLater,        // of a pipeline tick: `next` is due later
    kWanted,       // of a pipeline tick: `next` is needed later
    kOtherRole,    // another role of the group keeps them apart
    kTile,         // one is a tile, which is copied; or an uneven tile
    kCodec,        // one goes through the codec
    kNoLists,      // what cannot be packed would make a list
    kUnknownCost,  // by cost: an op between them has none
    kTooLittle,    // by cost: it would save nothing to speak of
    kCosts,        // by cost: steps could get longer by more than it saves
    kNotShorter,   // by cost: no merge of the plan makes its step shorter
    kNoRoom,       // by cost: merged launches do not fit the arena
  };
  // Why a collective above PlanOptions::partition_bytes was not split.
  enum class Whole : uint8_t {
    kNone,     // it was, or is not above it
    kKind,     // barrier, send, receive
    kStaged,   // travels through staging memory
    kMembers,  // has several members
    kUneven,   // parts of uneven size
    kGroupOfOne,
    kTooSmall,  // one element per part
    kLateBound,
    kNoStrides,  // the backend moves dense parts only
  };

  How how = How::kAlone;
  End end = End::kNone;
  Whole whole = Whole::kNone;
  OpId next;
  OpId needer;
  uint64_t limit_bytes = 0;
  int64_t pack_ns = 0;
  int64_t list_ns = 0;
  // Merged by cost: the link is free so much earlier than if each member had
  // its launch, and its consumers would start so much later than steps allow.
  bool by_cost = false;
  int64_t saved_ns = 0;
  int64_t late_ns = 0;
  // The same of `next`, and what the launch would take with it, of kTooLittle
  // and kCosts.
  int64_t next_saved_ns = 0;
  int64_t next_late_ns = 0;
  int64_t next_merged_ns = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_LAUNCH_REASON_H_
