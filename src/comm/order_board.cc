#include "comm/order_board.h"

#include "absl/strings/str_cat.h"

namespace commsched {

void OrderBoard::SayBy(std::function<void(const OrderSlice&)> say) {
  MutexLock lock(&mu_);
  say_ = std::move(say);
  is_elsewhere_ = true;
}

std::string OrderBoard::Numbered(int rank, const std::string& id) {
  MutexLock lock(&mu_);
  return absl::StrCat(id, " #", num_asked_[{rank, id}]++);
}

void OrderBoard::Say(int rank, const OrderSlice& slice) {
  MutexLock lock(&mu_);
  if (is_elsewhere_) {
    if (say_) say_(slice);
    return;
  }
  const absl::optional<OrderDifference> found = table_.Say(rank, slice);
  if (found.has_value()) KeepLocked(*found);
}

void OrderBoard::OnDiffer(const OrderDifference& difference) {
  MutexLock lock(&mu_);
  KeepLocked(difference);
}

absl::optional<OrderDifference> OrderBoard::Find(const std::string& topic) {
  MutexLock lock(&mu_);
  const auto found = found_.find(topic);
  if (found == found_.end()) return absl::nullopt;
  return found->second;
}

void OrderBoard::KeepLocked(const OrderDifference& difference) {
  if (!found_.try_emplace(difference.topic, difference).second) return;
  num_found_.fetch_add(1, std::memory_order_release);
}

}  // namespace commsched
