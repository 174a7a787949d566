#include "plan/explain/launch_reason_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plan/coding.h"
#include "plan/plan.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

std::string HowText(const LaunchReason& reason) {
  const std::string costs =
      absl::StrCat(": copies ", reason.pack_ns, " ns, list overhead ",
                   reason.list_ns, " ns");
  switch (reason.how) {
    case LaunchReason::How::kAlone:
      return "alone";
    case LaunchReason::How::kOneRange:
      return "pieces of one range";
    case LaunchReason::How::kListIsLess:
      return absl::StrCat("list", costs);
    case LaunchReason::How::kPackIsLess:
      return absl::StrCat("pack", costs);
    case LaunchReason::How::kUneven:
      return "list: uneven counts are not packed";
    case LaunchReason::How::kTick:
      return "sends and receives of one pipeline tick";
    case LaunchReason::How::kTile:
      return "pack: the rows of a tile are copied";
    case LaunchReason::How::kLateBound:
      return "list: late-bound buffers are not packed";
    case LaunchReason::How::kCoded:
      return "encoded";
    case LaunchReason::How::kNoLists:
      return "pack: the backend takes no lists";
  }
  return "";
}

std::string NsText(int64_t ns) { return absl::StrCat(ns, " ns"); }

// Of a launch that was merged by cost.
std::string SavedText(const LaunchReason& reason) {
  if (!reason.by_cost) return "";
  return absl::StrCat("; merged: saves ", NsText(reason.saved_ns),
                      reason.late_ns == 0
                          ? " and keeps nobody waiting"
                          : absl::StrCat(", and keeps ops waiting for ",
                                         NsText(reason.late_ns)));
}

// Of one that was not.
std::string NextCostText(const LaunchReason& reason) {
  if (reason.end == LaunchReason::End::kTooLittle) {
    return absl::StrCat(": ",
                        NsText(std::max<int64_t>(0, reason.next_saved_ns)),
                        " of ", NsText(reason.next_merged_ns));
  }
  if (reason.end == LaunchReason::End::kCosts) {
    return absl::StrCat(" than it costs: ", NsText(reason.next_saved_ns),
                        " for ", NsText(reason.next_late_ns),
                        " that ops would wait");
  }
  return "";
}

const char* WholeText(LaunchReason::Whole whole) {
  switch (whole) {
    case LaunchReason::Whole::kNone:
      return "";
    case LaunchReason::Whole::kKind:
      return "; not split: of its kind there are no parts";
    case LaunchReason::Whole::kStaged:
      return "; not split: goes through staging memory";
    case LaunchReason::Whole::kMembers:
      return "; not split: several members";
    case LaunchReason::Whole::kUneven:
      return "; not split: uneven counts";
    case LaunchReason::Whole::kGroupOfOne:
      return "; not split: a group of one moves nothing";
    case LaunchReason::Whole::kTooSmall:
      return "; not split: too few elements";
    case LaunchReason::Whole::kLateBound:
      return "; not split: late-bound";
    case LaunchReason::Whole::kNoStrides:
      return "; not split: the backend moves dense parts only";
  }
  return "";
}

// Of a launch that the codec could take.
std::string UncodedText(const Plan& plan, const Launch& launch) {
  uint64_t plain = 0;
  uint64_t coded = 0;
  for (OpId op : launch.members) {
    const auto left =
        LeftUncoded(*plan.graph, plan.graph->op(op).collective, plan.options);
    if (!left.has_value()) continue;
    plain += left->plain;
    coded += left->coded;
  }
  if (coded == 0) return "";
  return absl::StrCat(", not encoded: a host's link carries ", plain,
                      " bytes, by '", plan.options.codec.name, "' ", coded);
}

}  // namespace

std::string EndText(const Graph& graph, LaunchReason::End end, OpId next,
                    OpId needer, uint64_t limit_bytes) {
  auto name = [&](OpId op) {
    return op.valid() ? absl::StrCat("'", graph.op(op).name, "'") : "";
  };
  auto other = [&](const char* what) {
    return absl::StrCat(name(next), " is of another ", what);
  };
  switch (end) {
    case LaunchReason::End::kNone:
      return "";
    case LaunchReason::End::kLast:
      return "last in key order";
    case LaunchReason::End::kMergingOff:
      return "merging is off";
    case LaunchReason::End::kKind:
      return other("kind");
    case LaunchReason::End::kGroup:
      return other("group");
    case LaunchReason::End::kDType:
      return other("dtype");
    case LaunchReason::End::kReduction:
      return other("reduction");
    case LaunchReason::End::kRoot:
      return other("root");
    case LaunchReason::End::kLimit:
      return absl::StrCat("with ", name(next), " it would exceed ", limit_bytes,
                          " bytes");
    case LaunchReason::End::kNeeded:
      return absl::StrCat(name(needer), " needs it before ", name(next),
                          " is ready");
    case LaunchReason::End::kDependent:
      return absl::StrCat(name(next), " depends on it");
    case LaunchReason::End::kPolicy:
      return absl::StrCat("the policy keeps it apart from ", name(next));
    case LaunchReason::End::kLater:
      return absl::StrCat(name(next), " is due later");
    case LaunchReason::End::kWanted:
      return absl::StrCat(name(next), " is needed later");
    case LaunchReason::End::kOtherRole:
      return absl::StrCat("another role keeps it apart from ", name(next));
    case LaunchReason::End::kTile:
      return absl::StrCat("it and ", name(next),
                          " are not both tiles of equal parts");
    case LaunchReason::End::kCodec:
      return absl::StrCat("of it and ", name(next), " only one is encoded");
    case LaunchReason::End::kNoLists:
      return absl::StrCat("with ", name(next),
                          " it would be a list, which the backend does not "
                          "take");
    case LaunchReason::End::kUnknownCost:
      return absl::StrCat("between it and ", name(next),
                          " is an op whose cost is not known");
    case LaunchReason::End::kTooLittle:
      return absl::StrCat("with ", name(next), " it would save too little");
    case LaunchReason::End::kCosts:
      return absl::StrCat("with ", name(next), " it would save less");
    case LaunchReason::End::kNotShorter:
      return "no merge makes the step shorter";
    case LaunchReason::End::kNoRoom:
      return "merged launches do not fit the arena";
  }
  return "";
}

std::string ReasonText(const Plan& plan, const Launch& launch) {
  const LaunchReason& reason = launch.reason;
  std::string text = HowText(reason);
  if (launch.coded) {
    uint64_t bytes = 0;
    for (OpId op : launch.members) {
      bytes += PayloadBytes(*plan.graph, plan.graph->op(op).collective);
    }
    absl::StrAppend(&text, " by '", plan.options.codec.name,
                    "': ", launch.payload_bytes, " bytes travel for ", bytes);
  } else {
    absl::StrAppend(&text, UncodedText(plan, launch));
  }
  absl::StrAppend(&text, SavedText(reason));
  if (reason.end != LaunchReason::End::kNone) {
    absl::StrAppend(&text,
                    reason.how == LaunchReason::How::kAlone ? ": " : "; ends: ",
                    EndText(*plan.graph, reason.end, reason.next, reason.needer,
                            reason.limit_bytes),
                    NextCostText(reason));
  }
  if (launch.piece.of > 1) {
    absl::StrAppend(&text, "; piece ", launch.piece.index + 1, " of ",
                    launch.piece.of, ": the whole is above ",
                    plan.options.partition_bytes, " bytes");
  }
  return absl::StrCat(text, WholeText(reason.whole));
}

}  // namespace commsched
