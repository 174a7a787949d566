#ifndef COMMSCHED_PLUGINS_NCCL_WARM_UP_H_
#define COMMSCHED_PLUGINS_NCCL_WARM_UP_H_

#include <cstdint>
#include <functional>
#include <set>
#include <unordered_set>
#include <vector>

#include "commsched/plugin.h"

namespace commsched::nccl {

// What the launches of a plan have NCCL connect. It connects members in the
// first call that needs it, and waits for them there: those of a collective for
// each algorithm that it picks, by kind, size, type and reduction; two ranks in
// the first message from one to the other. So one launch of each is made before
// the first step, on scratch memory.
//
// Constant after Of(), but for what one learns.
class WarmUp {
 public:
  // Launches that are larger are done as those of this size are: no algorithm
  // is picked above it only.
  static constexpr uint64_t kMostBytes = uint64_t{32} << 20;

  // Of `num_launches` of a communicator of `size` members, but for what `known`
  // has connected before. `in_order`: the launch is a sum in the order of the
  // tree (deterministic.cc). The same on all members, but for sends and
  // receives, of which each has its own.
  static WarmUp Of(
      const commsched_launch_t* launches, uint32_t num_launches, int size,
      const std::function<bool(const commsched_launch_t&)>& in_order,
      const WarmUp& known);
  // Whether what `launch` needs is connected, as far as this knows. Allocates
  // nothing.
  bool Has(const commsched_launch_t& launch, int size, bool in_order) const;
  // Knows from now on what `other` connects, and has none of it to do.
  void Learn(const WarmUp& other);

  // A launch of each class, with counts up to kMostBytes. Its addresses are
  // within `bytes()` from `scratch`, which inputs and outputs share alike.
  struct Representative {
    commsched_launch_t launch;
    std::vector<commsched_member_t> members;
    std::vector<std::vector<uint64_t>> counts;  // By member; empty: even.
    bool in_order = false;
  };
  std::vector<Representative> Launches(void* scratch) const;
  // Of the memory that these need.
  uint64_t bytes() const { return 2 * half_bytes_; }
  // Members to which, and from which, something is sent by itself.
  const std::set<int>& receivers() const { return receivers_; }
  const std::set<int>& senders() const { return senders_; }
  bool empty() const {
    return representatives_.empty() && receivers_.empty() && senders_.empty();
  }

 private:
  // The kind, sizes, type and reduction of a collective, in one word.
  static uint64_t ClassOf(const commsched_launch_t& launch, int size,
                          bool in_order);
  void AddTransfers(const commsched_launch_t& launch);
  void AddAllPeers(int size);
  void AddLaunch(const commsched_launch_t& launch, int size, bool in_order);

  std::vector<Representative> representatives_;
  std::unordered_set<uint64_t> classes_;  // Of collectives.
  std::set<int> receivers_, senders_;
  uint64_t half_bytes_ = 0;  // Of inputs, and of outputs.
};

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_WARM_UP_H_
