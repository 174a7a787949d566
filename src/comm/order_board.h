// Where the ranks of a job compare in which order they launch.
#ifndef COMMSCHED_SRC_COMM_ORDER_BOARD_H_
#define COMMSCHED_SRC_COMM_ORDER_BOARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "base/mutex.h"
#include "control/order_table.h"

namespace commsched {

// Of a job, or of threads: one for all worlds that were split from one.
//
// Thread-safe.
class OrderBoard {
 public:
  // Of threads: what they say is compared here.
  OrderBoard() = default;
  OrderBoard(const OrderBoard&) = delete;
  OrderBoard& operator=(const OrderBoard&) = delete;

  // From now on `say` has it compared elsewhere; OnDiffer() is the answer. Null
  // in the end: what is said is not heard any more. Never blocks.
  void SayBy(std::function<void(const OrderSlice&)> say);

  // `id`, and how often `rank` has asked by it: equal on all ranks that use it
  // as often.
  std::string Numbered(int rank, const std::string& id);

  // `rank`, of the world that all others were split from, launches so.
  void Say(int rank, const OrderSlice& slice);
  void OnDiffer(const OrderDifference& difference);

  // The first that was found for a topic. `num_found` says when to look.
  absl::optional<OrderDifference> Find(const std::string& topic);
  uint64_t num_found() const {
    return num_found_.load(std::memory_order_acquire);
  }

 private:
  void KeepLocked(const OrderDifference& difference)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::function<void(const OrderSlice&)> say_ ABSL_GUARDED_BY(mu_);
  bool is_elsewhere_ ABSL_GUARDED_BY(mu_) = false;
  OrderTable table_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, OrderDifference> found_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::pair<int, std::string>, uint64_t> num_asked_
      ABSL_GUARDED_BY(mu_);
  // Released with mu_ held, acquired in num_found().
  std::atomic<uint64_t> num_found_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_ORDER_BOARD_H_
