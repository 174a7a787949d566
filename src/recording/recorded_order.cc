#include "recording/recorded_order.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

// A call, as the key of a map.
using Instance = std::pair<uint32_t, uint32_t>;  // op, occurrence

// The occurrence of each call of `order`.
std::vector<Instance> InstancesOf(const CallOrder& order) {
  absl::flat_hash_map<uint32_t, uint32_t> seen;
  std::vector<Instance> instances;
  instances.reserve(order.size());
  for (uint32_t op : order) instances.emplace_back(op, seen[op]++);
  return instances;
}

// Merges orders into one: a call that is new goes behind the call that came
// before it where it was seen.
class Merger {
 public:
  explicit Merger(const RecordedOps& recorded) : recorded_(recorded) {
    order_.loose.resize(recorded.num_segments);
  }

  // Calls that stay as they are, in their order.
  void Keep(const FrozenCall& call) {
    calls_.push_back(call);
    place_[{call.op, call.occurrence}] = std::prev(calls_.end());
  }
  void KeepLoose(const std::vector<bool>& loose) {
    std::copy(loose.begin(), loose.end(), order_.loose.begin());
  }
  void SetLoose(uint32_t segment, bool loose) { order_.loose[segment] = loose; }

  // `segment`: whose calls may be added; all if it is empty.
  void Add(const CallOrder& seen, std::optional<uint32_t> segment) {
    auto behind = calls_.begin();  // new calls go in front of it
    for (const Instance& call : InstancesOf(seen)) {
      auto found = place_.find(call);
      if (found == place_.end()) {
        if (segment && recorded_.segment[call.first] != *segment) continue;
        place_[call] = calls_.insert(behind, {call.first, call.second, false});
        continue;
      }
      behind = std::next(found->second);
    }
  }

  // An alternative that nobody called goes behind the op that was declared
  // before it, or the nearest before that which is called.
  void AddAlternatives() {
    auto behind = calls_.begin();
    absl::flat_hash_map<uint32_t, std::list<FrozenCall>::iterator> last;
    for (auto it = calls_.begin(); it != calls_.end(); ++it) last[it->op] = it;
    for (uint32_t op = 0; op < recorded_.alternative.size(); ++op) {
      auto found = last.find(op);
      if (found != last.end()) {
        behind = std::next(found->second);
        continue;
      }
      if (!recorded_.alternative[op]) continue;
      place_[{op, 0}] = calls_.insert(behind, {op, 0, true});
    }
  }

  // Which calls of `segment` (all if empty) some step did without, and which
  // segments were called in several orders. Call it when all are added.
  FrozenOrder Finish(const ShownSteps& shown, std::optional<uint32_t> segment) {
    absl::flat_hash_map<Instance, uint32_t> index;
    for (const FrozenCall& call : calls_) {
      index[{call.op, call.occurrence}] =
          static_cast<uint32_t>(order_.calls.size());
      order_.calls.push_back(call);
    }
    std::vector<uint32_t> times(order_.calls.size());
    uint32_t num_shown = 0;
    for (const std::vector<CallOrder>& steps : shown) {
      for (const CallOrder& step : steps) {
        CountCalls(step, index, &times);
        ++num_shown;
      }
    }
    for (size_t i = 0; i < times.size(); ++i) {
      FrozenCall& call = order_.calls[i];
      if (segment && recorded_.segment[call.op] != *segment) continue;
      call.optional = times[i] < num_shown || recorded_.alternative[call.op];
    }
    return std::move(order_);
  }

 private:
  void CountCalls(const CallOrder& step,
                  const absl::flat_hash_map<Instance, uint32_t>& index,
                  std::vector<uint32_t>* times) {
    std::optional<uint32_t> highest;
    for (const Instance& call : InstancesOf(step)) {
      auto found = index.find(call);
      if (found == index.end()) continue;
      ++(*times)[found->second];
      if (highest && found->second < *highest) {
        order_.loose[recorded_.segment[call.first]] = true;
      } else {
        highest = found->second;
      }
    }
  }

  const RecordedOps& recorded_;
  std::list<FrozenCall> calls_;
  absl::flat_hash_map<Instance, std::list<FrozenCall>::iterator> place_;
  FrozenOrder order_;
};

std::string NameAt(const RecordedOps& recorded, const CallOrder& order,
                   size_t position) {
  if (position >= order.size()) return "ended the step";
  const Op& op = recorded.ops->op(OpId(order[position]));
  return absl::StrCat(
      op.kind == OpKind::kCollective ? "submitted '" : "called '", op.name,
      "'");
}

// The first step and call in which two ranks differ.
absl::Status DifferenceOf(const RecordedOps& recorded,
                          const ShownSteps& shown) {
  for (size_t step = 0; step < shown[0].size(); ++step) {
    for (size_t rank = 1; rank < shown.size(); ++rank) {
      const CallOrder& first = shown[0][step];
      const CallOrder& other = shown[rank][step];
      if (first == other) continue;
      size_t at = 0;
      while (at < first.size() && at < other.size() && first[at] == other[at]) {
        ++at;
      }
      return absl::FailedPreconditionError(
          absl::StrCat("recording: the ranks' steps differ at call ", at,
                       " of the last ", shown[0].size() - step,
                       ". step recorded: rank 0 ", NameAt(recorded, first, at),
                       ", rank ", rank, " ", NameAt(recorded, other, at)));
    }
  }
  return absl::OkStatus();
}

FrozenOrder MergeAll(const RecordedOps& recorded, const ShownSteps& shown) {
  Merger merger(recorded);
  for (const std::vector<CallOrder>& steps : shown) {
    for (const CallOrder& step : steps) merger.Add(step, std::nullopt);
  }
  merger.AddAlternatives();
  return merger.Finish(shown, std::nullopt);
}

}  // namespace

std::string EncodeSteps(const std::vector<CallOrder>& steps) {
  std::vector<uint32_t> words = {static_cast<uint32_t>(steps.size())};
  for (const CallOrder& step : steps) {
    words.push_back(static_cast<uint32_t>(step.size()));
    words.insert(words.end(), step.begin(), step.end());
  }
  return std::string(reinterpret_cast<const char*>(words.data()),
                     words.size() * sizeof(uint32_t));
}

absl::StatusOr<std::vector<CallOrder>> DecodeSteps(absl::string_view text) {
  const absl::Status malformed = absl::InvalidArgumentError(absl::StrCat(
      "recording: ", text.size(), " bytes are not recorded steps"));
  std::vector<uint32_t> words(text.size() / sizeof(uint32_t));
  if (words.empty() || text.size() % sizeof(uint32_t) != 0) return malformed;
  std::memcpy(words.data(), text.data(), text.size());
  std::vector<CallOrder> steps;
  size_t at = 1;
  for (uint32_t i = 0; i < words[0]; ++i) {
    if (at >= words.size() || words[at] > words.size() - at - 1) {
      return malformed;
    }
    const auto begin = words.begin() + static_cast<ptrdiff_t>(at) + 1;
    steps.emplace_back(begin, begin + words[at]);
    at += 1 + words[at];
  }
  if (at != words.size()) return malformed;
  return steps;
}

absl::StatusOr<std::optional<FrozenOrder>> OrderToFreeze(
    const RecordedOps& recorded, const ShownSteps& shown, bool last_chance) {
  const absl::Status difference = DifferenceOf(recorded, shown);
  const std::vector<CallOrder>& steps = shown[0];
  const bool steady =
      std::all_of(steps.begin(), steps.end(),
                  [&](const CallOrder& step) { return step == steps[0]; });
  if (difference.ok() && (steady || last_chance)) {
    return std::optional<FrozenOrder>(MergeAll(recorded, shown));
  }
  if (!last_chance) return std::optional<FrozenOrder>();
  return difference;
}

FrozenOrder Rerecorded(const RecordedOps& recorded, const FrozenOrder& frozen,
                       const ShownSteps& shown, uint32_t segment) {
  Merger merger(recorded);
  merger.KeepLoose(frozen.loose);
  merger.SetLoose(segment, false);
  for (const FrozenCall& call : frozen.calls) {
    if (recorded.segment[call.op] != segment) merger.Keep(call);
  }
  for (const std::vector<CallOrder>& steps : shown) {
    for (const CallOrder& step : steps) merger.Add(step, segment);
  }
  merger.AddAlternatives();
  return merger.Finish(shown, segment);
}

}  // namespace commsched
