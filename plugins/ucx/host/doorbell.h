// How ranks of a host tell each other that there is news, and wake who sleeps.
#ifndef COMMSCHED_PLUGINS_UCX_HOST_DOORBELL_H_
#define COMMSCHED_PLUGINS_UCX_HOST_DOORBELL_H_

#include <atomic>
#include <cstdint>

namespace commsched::ucx {

inline constexpr int kMostBellRanks = 4096;

// In the memory of who is told. Right when all zeros.
struct BellState {
  static constexpr int kWords = kMostBellRanks / 64;

  // Who tells sets its bit and then looks at `sleeps`; who sleeps does it the
  // other way round. So one sees the other.
  alignas(64) std::atomic<uint64_t> news[kWords];
  // The number of the sleep that nobody has ended; 0: none.
  alignas(64) std::atomic<uint64_t> sleeps;
};

// Tells a rank. `event_fd` is an eventfd of that rank, which only one who
// sleeps is woken by. Thread-safe.
class Bell {
 public:
  Bell() = default;
  // `from`: the number of who tells, below kMostBellRanks.
  Bell(BellState* state, int from, int event_fd)
      : state_(state), from_(from), event_fd_(event_fd) {}

  void Ring() const { Wake(Tell()); }

  // The two steps of Ring(). The first returns the sleep that is to be ended.
  uint64_t Tell() const;
  void Wake(uint64_t sleep) const;

 private:
  BellState* state_ = nullptr;
  int from_ = 0;
  int event_fd_ = -1;
};

// Of the rank that is told. One thread at a time, but for the sleep itself:
// between Arm() and Disarm().
class BellEar {
 public:
  BellEar() = default;
  // News of ranks 0 to `num_ranks` - 1.
  BellEar(BellState* state, int num_ranks)
      : state_(state), num_words_((num_ranks + 63) / 64) {}

  // Calls visit(rank) for those who have told since they were visited.
  template <typename Visit>
  void VisitNews(const Visit& visit) {
    for (int word = 0; word < num_words_; ++word) {
      std::atomic<uint64_t>& news = state_->news[word];
      if (news.load(std::memory_order_relaxed) == 0) continue;
      uint64_t bits = news.exchange(0, std::memory_order_acquire);
      for (; bits != 0; bits &= bits - 1) {
        visit(word * 64 + __builtin_ctzll(bits));
      }
    }
  }

  // From now on the eventfd is written to. False, and nothing has changed, if
  // there are news.
  bool Arm();
  void Disarm();

 private:
  BellState* state_ = nullptr;
  int num_words_ = 0;
  uint64_t num_sleeps_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_DOORBELL_H_
