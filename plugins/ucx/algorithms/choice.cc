#include "ucx/algorithms/choice.h"

#include <limits>

#include "ucx/algorithms/collectives.h"

namespace commsched::ucx {
namespace {

constexpr size_t kNumRemembered = 256;

size_t HashOf(const LaunchShape& shape) {
  uint64_t hash = shape.kind;
  for (const uint64_t value :
       {static_cast<uint64_t>(shape.root), uint64_t{shape.num_arrays},
        shape.element_bytes, shape.partial_bytes, shape.elements}) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash % kNumRemembered;
}

const char* KindName(commsched_collective_t kind) {
  constexpr std::array kNames = {"all-reduce", "reduce-scatter", "all-gather",
                                 "all-to-all", "broadcast",      "reduce",
                                 "barrier"};
  return kind < kNames.size() ? kNames[kind] : "send and receive";
}

const Algorithm* FindAlgorithm(const std::string& name) {
  for (const Algorithm* const algorithm : kAlgorithms) {
    if (name == algorithm->name) return algorithm;
  }
  return nullptr;
}

std::string ForcedText(const ChoiceOptions& options) {
  if (options.forced == nullptr) return "auto";
  return std::string(options.forced->name) +
         (options.or_by_cost ? ",auto" : "");
}

std::string LevelText(const LinkLevel& link) {
  return std::to_string(link.latency_ns) + "ns+" +
         std::to_string(WholeRate(link)) + "B/s+" +
         std::to_string(link.message_ns) + "ns";
}

Choice ChooseByCost(const CostContext& context) {
  const bool is_small = context.shape.bytes() <= kSmallBytes;
  const int64_t most_messages = is_small
                                    ? MostSmallMessages(context.layout.size())
                                    : std::numeric_limits<int64_t>::max();
  Choice best;
  bool keeps_limit = false;
  for (const Algorithm* const algorithm : kAlgorithms) {
    if (!algorithm->fits(context.shape, context.layout)) continue;
    const Cost cost = algorithm->cost(context);
    const bool keeps = cost.messages <= most_messages;
    if (best.algorithm != nullptr && keeps_limit && !keeps) continue;
    const bool is_better = best.algorithm == nullptr ||
                           (keeps && !keeps_limit) ||
                           cost.ns < best.predicted_ns;
    if (!is_better) continue;
    best = {algorithm, cost.ns};
    keeps_limit = keeps;
  }
  return best;
}

// Groups of up to so many ranks are counted by what the ranks would do.
constexpr int kMostCounted = 64;

int64_t MessagesOf(const Algorithm& algorithm, const commsched_launch_t& launch,
                   const CostContext& context) {
  if (context.layout.size() > kMostCounted) {
    return algorithm.cost(context).messages;
  }
  Operation operation;
  size_t most = 0;
  for (int rank = 0; rank < context.layout.size(); ++rank) {
    const LaunchTask task = {launch, context.layout, rank, context.chunk_bytes,
                             /*measures=*/true};
    BuildNowhere(algorithm, task, &operation);
    most = std::max(most, operation.messages.size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

Choice Choose(const CostContext& context, const ChoiceOptions& options) {
  const Algorithm* const forced = options.forced;
  if (forced != nullptr && forced->fits(context.shape, context.layout)) {
    return {forced, forced->cost(context).ns};
  }
  if (forced != nullptr && !options.or_by_cost) return {};
  return ChooseByCost(context);
}

Outcome ReadAlgorithm(const std::string& value, ChoiceOptions* options) {
  constexpr char kOrByCost[] = ",auto";
  const size_t end = value.find(',');
  const std::string name = value.substr(0, end);
  const bool has_more = end != std::string::npos;
  options->forced = FindAlgorithm(name);
  options->or_by_cost = has_more;
  if (value == "auto" || (options->forced != nullptr &&
                          (!has_more || value.substr(end) == kOrByCost))) {
    return {};
  }
  std::string names = "auto";
  for (const Algorithm* const algorithm : kAlgorithms) {
    names += std::string(", ") + algorithm->name;
  }
  return {COMMSCHED_INVALID_ARGUMENT,
          "configuration: algorithm is '" + value + "', not one of " + names +
              ", or such as " + kAlgorithms.back()->name + kOrByCost};
}

Choices::Choices(const Layout& layout, const ChoiceOptions& options)
    : layout_(layout), options_(options), remembered_(kNumRemembered) {
  loads_.reserve(static_cast<size_t>(layout.num_hosts()));
}

Choice Choices::Of(const commsched_launch_t& launch) {
  const LaunchShape shape = ShapeOf(launch, layout_.size());
  Remembered& remembered = remembered_[HashOf(shape)];
  if (remembered.choice.algorithm == nullptr || remembered.shape != shape) {
    remembered.shape = shape;
    remembered.choice = Choose(ContextOf(shape, &loads_), options_);
  }
  return remembered.choice;
}

Estimate Choices::EstimateOf(const commsched_launch_t& launch) const {
  const LaunchShape shape = WholeShapeOf(launch, layout_.size());
  std::vector<HostLoad> loads;
  const CostContext context = ContextOf(shape, &loads);
  Estimate estimate;
  estimate.choice = Choose(context, options_);
  if (estimate.choice.algorithm == nullptr) return estimate;
  estimate.messages = MessagesOf(*estimate.choice.algorithm, launch, context);
  if (layout_.num_hosts() > 1) {
    estimate.crossing = estimate.choice.algorithm->crossing(context);
  }
  return estimate;
}

Outcome Choices::Refusal(const commsched_launch_t& launch,
                         const Choice& choice) const {
  if (choice.algorithm != nullptr) return {};
  const LaunchShape shape = WholeShapeOf(launch, layout_.size());
  const std::string name = options_.forced->name;
  return {COMMSCHED_INVALID_ARGUMENT,
          std::string(KindName(shape.kind)) + " of " +
              std::to_string(shape.bytes()) + " bytes on " +
              std::to_string(layout_.size()) + " ranks: algorithm=" + name +
              " does " + options_.forced->does + "; algorithm=" + name +
              ",auto does the rest by cost"};
}

std::string Choices::Text() const {
  uint64_t hosts = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    hosts = (hosts + static_cast<uint64_t>(layout_.HostOf(rank)) + 1) *
            0x9e3779b97f4a7c15;
    hosts ^= hosts >> 29;
  }
  return "algorithms " + std::to_string(kAlgorithmsVersion) +
         ", algorithm=" + ForcedText(options_) +
         ", chunk_bytes=" + std::to_string(options_.chunk_bytes) + ", " +
         std::to_string(layout_.num_hosts()) + " hosts (" +
         std::to_string(hosts % 1'000'000) + "), links of " +
         LevelText(options_.links.host) + " and " +
         LevelText(options_.links.network);
}

}  // namespace commsched::ucx
