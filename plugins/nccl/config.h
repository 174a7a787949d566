#ifndef COMMSCHED_PLUGINS_NCCL_CONFIG_H_
#define COMMSCHED_PLUGINS_NCCL_CONFIG_H_

#include <nccl.h>

#include <cstdint>
#include <string>

#include "support/outcome.h"

namespace commsched::nccl {

// The text of a world's backend_config:
// "max_ctas=16,min_ctas=2,cga=4,register=1".
//
// Kernels of communicators that run side by side must all fit on the device, or
// they may wait for each other for ever. So the lanes of a device share a
// budget of thread blocks (CTAs): `max_ctas`, or one per multiprocessor.
struct Config {
  static constexpr int kMostCtas = 64;  // Of a communicator: NCCL's limit.
  static constexpr int kMostBudget = 1024;
  static constexpr int kMostLanes = 64;
  static constexpr int kMostCga = 8;
  static constexpr int kUnset = -1;

  int max_ctas = kUnset;  // Of all lanes together.
  int lanes = kUnset;     // Of the device, which the host makes.
  int min_ctas = kUnset;  // Of each communicator.
  int cga = kUnset;       // cgaClusterSize
  // 1: what sessions read and write is registered (ncclCommRegister), if all
  // members say so. Off by default: on a node with NVLS each launch of
  // registered memory meets the ranks of the node on the host, where no abort
  // reaches it (NCCL 2.28 to 2.30). What is captured NCCL registers by itself.
  int registration = kUnset;

  bool registers() const { return registration == 1; }

  // kInvalidArgument, naming key, value and limit.
  static Outcome Parse(const std::string& text, Config* out_config);

  // Of a communicator on one of `num_lanes` lanes of a device with
  // `multiprocessors`. kInvalidArgument if the budget is too small for so many.
  Outcome ForLanes(uint32_t num_lanes, int multiprocessors,
                   ncclConfig_t* out_config) const;
};

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_CONFIG_H_
