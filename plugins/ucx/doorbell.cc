#include "doorbell.h"

#include <sys/eventfd.h>

namespace commsched::ucx {

void Bell::Ring() const {
  const uint64_t bit = uint64_t{1} << (from_ % 64);
  state_->news[from_ / 64].fetch_or(bit, std::memory_order_seq_cst);
  if (state_->sleeps.load(std::memory_order_seq_cst) == 0) return;
  // Once per sleep.
  if (state_->sleeps.exchange(0, std::memory_order_seq_cst) != 0) {
    eventfd_write(event_fd_, 1);
  }
}

bool BellEar::Arm() {
  state_->sleeps.store(1, std::memory_order_seq_cst);
  for (int word = 0; word < num_words_; ++word) {
    if (state_->news[word].load(std::memory_order_seq_cst) == 0) continue;
    Disarm();
    return false;
  }
  return true;
}

void BellEar::Disarm() { state_->sleeps.store(0, std::memory_order_relaxed); }

}  // namespace commsched::ucx
