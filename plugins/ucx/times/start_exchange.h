// Tells the other members of a communicator when this one issues launches, and
// hears when all had.
#ifndef COMMSCHED_PLUGINS_UCX_TIMES_START_EXCHANGE_H_
#define COMMSCHED_PLUGINS_UCX_TIMES_START_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/layout.h"
#include "ucx/network/network.h"
#include "ucx/times/issue_times.h"

namespace commsched::ucx {

// The messages of IssueTimes. A few are under way at once; others wait for
// them.
//
// With the network's mutex. It stays until none is under way.
class StartExchange final : public Receiver {
 public:
  struct Spec {
    const std::vector<int32_t>* ranks = nullptr;  // Of the world; outlive it,
    const Layout* layout = nullptr;               // as does this.
    int rank = 0;
    uint64_t tags = 0;      // The communicator's.
    bool is_asked = false;  // Whether Take() will be called.
  };

  // Begins to connect with those that it tells. Not for callbacks.
  StartExchange(Network* network, const Spec& spec);

  // As IssueTimes.
  void Issued(uint64_t step, uint64_t key, int64_t now_ns);
  uint32_t Take(commsched_launch_start_t* out_starts, uint32_t capacity) {
    return times_.Take(out_starts, capacity);
  }

  void OnDone(Message* message, ucs_status_t status, uint64_t bytes) override;
  void OnHeard(Message* message, const void* data, uint64_t bytes) override;

  // The communicator is left: nothing more is told.
  void End();
  bool IsUnderWay() const;

 private:
  static constexpr size_t kNumSent = 8;

  struct Sent {
    TimesMessage times;
    Message message;
    bool is_under_way = false;
  };

  int64_t NowNs() const;
  void Send();
  void Receive();
  void Hear(const TimesMessage& times);

  Network* const network_;
  const Spec spec_;
  IssueTimes times_;
  std::array<Sent, kNumSent> sent_;
  TimesMessage heard_;
  Message heard_message_;
  bool has_ended_ = false;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TIMES_START_EXCHANGE_H_
