// In which order ranks launch what two queues have, compared.
#ifndef COMMSCHED_SRC_CONTROL_ORDER_TABLE_H_
#define COMMSCHED_SRC_CONTROL_ORDER_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"

namespace commsched {

// What a rank says of its order of two queues, A and B, each of which all its
// ranks launch in one order: launches `first`, `first` + 1, ... of A, counted
// from 1, which are of one block of kBlock, and how many of B came before each.
struct OrderSlice {
  static constexpr uint64_t kBlock = 64;
  static constexpr size_t kMaxTopicBytes = 64;

  // Which A and B: equal on all ranks, and no other pair's.
  std::string topic;
  uint64_t first = 1;
  uint64_t base = 0;            // Launches of B before `first`.
  std::vector<int32_t> before;  // By launch: how many more. At most kBlock.
  // Launches of B so far, which are before all that is to come of A.
  uint64_t then = 0;

  uint64_t next() const { return first + before.size(); }
  // Launches of B before `number`, one of `first` .. next() - 1.
  uint64_t BeforeOf(uint64_t number) const {
    return base + static_cast<uint64_t>(before[number - first]);
  }
  // kInvalidArgument: anybody may have sent it.
  absl::Status Check() const;
};

// `a_first` launches number `a_number` of A before number `b_number` of B,
// `b_first` the other way around.
struct OrderDifference {
  std::string topic;
  uint64_t a_number = 0;
  uint64_t b_number = 0;
  int a_first = 0;
  int b_first = 0;
};

// Finds ranks that launch in another order. Keeps of each topic what was said
// of its latest blocks, and of topics the latest. Thread-compatible.
class OrderTable {
 public:
  static constexpr size_t kMaxTopics = 1024;
  static constexpr size_t kMaxBlocks = 64;  // Of a topic.

  // What `rank` says, which holds Check(). Returns where it differs from what
  // another rank has said, unless that was returned for `rank` before.
  absl::optional<OrderDifference> Say(int rank, const OrderSlice& slice);

 private:
  // Of a launch of A: how many of B came before it, and who has said so.
  struct Said {
    int rank = -1;  // Nobody has.
    uint64_t before = 0;
  };
  using Block = std::array<Said, OrderSlice::kBlock>;
  // What is to come of A begins with `next`, and has `then` of B before it.
  struct Open {
    uint64_t next = 0;
    uint64_t then = 0;
  };
  struct Topic {
    std::map<uint64_t, Block> blocks;
    absl::flat_hash_map<int, Open> open;  // By rank.
    absl::flat_hash_set<int> told;
  };

  Topic* Find(const std::string& name);
  static absl::optional<OrderDifference> Compare(const Topic& topic, int rank,
                                                 const OrderSlice& slice);
  static const Said* Find(const Topic& topic, uint64_t number);
  static void Keep(Topic* topic, int rank, const OrderSlice& slice);

  absl::flat_hash_map<std::string, Topic> topics_;
  std::deque<std::string> in_order_;  // Of when they were first said.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_ORDER_TABLE_H_
