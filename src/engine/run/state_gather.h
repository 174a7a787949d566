#ifndef COMMSCHED_SRC_ENGINE_RUN_STATE_GATHER_H_
#define COMMSCHED_SRC_ENGINE_RUN_STATE_GATHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/channel.h"
#include "commsched/world.h"
#include "engine/state/memory.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// Collects on one rank, between steps, what the ranks of an engine keep in
// pieces: over a channel of its own, which is made when it is first needed.
//
// Thread-compatible.
class StateGather {
 public:
  // Both outlive it.
  StateGather(const Memory* memory, const Kernels* kernels)
      : memory_(*memory), kernels_(*kernels) {}

  // All ranks of the group call this alike, the first time and ever after.
  // `timeout_ns` as in commsched_channel_desc_t.
  Status Open(commsched_context_t* context, commsched_group_t* group,
              int64_t timeout_ns);

  // What a rank has of it.
  struct Pieces {
    std::vector<uint64_t> counts;  // By rank; they lie one behind the other.
    // Copies those of this rank to memory of the device or host on which it
    // computes.
    std::function<Status(float* out)> read;
  };
  // All pieces come to `out` on `root`.
  Status Gather(const Pieces& pieces, uint32_t root, float* out);

 private:
  struct ChannelDelete {
    void operator()(commsched_channel_t* channel) const {
      commsched_channel_destroy(channel);
    }
  };

  const Memory& memory_;
  const Kernels& kernels_;
  uint32_t rank_ = 0;
  bool on_host_ = false;  // Where what arrives needs no copy.
  std::unique_ptr<commsched_channel_t, ChannelDelete> channel_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_STATE_GATHER_H_
