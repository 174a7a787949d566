#include "ucx/host/doorbell.h"

#include <sys/eventfd.h>

namespace commsched::ucx {

uint64_t Bell::Tell() const {
  const uint64_t bit = uint64_t{1} << (from_ % 64);
  state_->news[from_ / 64].fetch_or(bit, std::memory_order_seq_cst);
  return state_->sleeps.load(std::memory_order_seq_cst);
}

// The sleep is ended first and marked so afterwards: whoever is stopped in
// between leaves it to the next one, and does not mark a later sleep.
void Bell::Wake(uint64_t sleep) const {
  if (sleep == 0) return;
  eventfd_write(event_fd_, 1);
  state_->sleeps.compare_exchange_strong(sleep, 0, std::memory_order_seq_cst);
}

bool BellEar::Arm() {
  state_->sleeps.store(++num_sleeps_, std::memory_order_seq_cst);
  for (int word = 0; word < num_words_; ++word) {
    if (state_->news[word].load(std::memory_order_seq_cst) == 0) continue;
    Disarm();
    return false;
  }
  return true;
}

void BellEar::Disarm() { state_->sleeps.store(0, std::memory_order_relaxed); }

}  // namespace commsched::ucx
