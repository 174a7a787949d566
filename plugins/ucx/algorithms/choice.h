// Which algorithm a launch takes.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_CHOICE_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "support/outcome.h"
#include "ucx/algorithms/algorithm.h"

namespace commsched::ucx {

// Grows when ranks would no longer choose the same, build what fits, or know
// each other's notices.
inline constexpr int kAlgorithmsVersion = 12;

// What all ranks of a group must have in common, since choices depend on it.
struct ChoiceOptions {
  uint64_t chunk_bytes = 1 << 20;
  const Algorithm* forced = nullptr;  // Null: by cost.
  // What `forced` does not fit is done by cost, instead of being refused.
  bool or_by_cost = false;
  LinkProfile links = DefaultLinkProfile();
};

// Reads the value of the option "algorithm": auto, a name, or "name,auto".
Outcome ReadAlgorithm(const std::string& value, ChoiceOptions* options);

// With a prediction, for those who ask why.
struct Choice {
  const Algorithm* algorithm = nullptr;  // Null: the forced one does not fit.
  int64_t predicted_ns = 0;
};

// Launches whose time is that of their messages: MostSmallMessages().
inline constexpr uint64_t kSmallBytes = 16 << 10;

// The algorithm that is forced or, by cost, the one that costs least of those
// that fit and, if the launch is small, keep to that limit. One fits every
// launch.
Choice Choose(const CostContext& context, const ChoiceOptions& options);

// What is said of a launch to those who ask.
struct Estimate {
  Choice choice;
  // Of the rank with most of them; on more than 64 ranks predicted, by what
  // choices are made by.
  int64_t messages = 0;
  Crossing crossing;
};

// Choices of a communicator, which are remembered by the launch's shape.
// Allocates nothing after it is made. Thread-compatible.
class Choices {
 public:
  // `layout` must outlive it.
  Choices(const Layout& layout, const ChoiceOptions& options);

  Choice Of(const commsched_launch_t& launch);
  // INVALID_ARGUMENT, with what is refused and why, if Of() finds none.
  Outcome Check(const commsched_launch_t& launch) {
    return Refusal(launch, Of(launch));
  }
  // Of a launch for which `choice` is none.
  Outcome Refusal(const commsched_launch_t& launch, const Choice& choice) const;
  // Of the one that Of() gives, if that is one. Allocates; thread-safe.
  Estimate EstimateOf(const commsched_launch_t& launch) const;
  uint64_t chunk_bytes() const { return options_.chunk_bytes; }
  // All that choices depend on, and what is built: ranks with one text have the
  // same.
  std::string Text() const;

 private:
  CostContext ContextOf(const LaunchShape& shape,
                        std::vector<HostLoad>* loads) const {
    return {.shape = shape,
            .layout = layout_,
            .links = options_.links,
            .chunk_bytes = options_.chunk_bytes,
            .loads = loads};
  }

  struct Remembered {
    LaunchShape shape;
    Choice choice;
  };

  const Layout& layout_;
  const ChoiceOptions options_;
  std::vector<HostLoad> loads_;
  std::vector<Remembered> remembered_;  // By hash; the last one of a hash.
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_CHOICE_H_
