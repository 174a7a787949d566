// Ranks of a job with the backend `ucx`, which are threads of a test.
#ifndef COMMSCHED_TEST_PLUGIN_UCX_RANKS_H_
#define COMMSCHED_TEST_PLUGIN_UCX_RANKS_H_

#include <string>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "test/support/joined_ranks.h"

namespace commsched {

// They join with this configuration of the backend; `per_host` as there.
inline absl::Status JoinUcx(const std::string& config, int size,
                            JoinedRanks* ranks, int per_host = 0) {
  RETURN_IF_ERROR(PluginRegistry::Process().Load(COMMSCHED_TEST_PLUGINS
                                                 "/commsched_ucx.so"));
  WorldSpec spec;
  spec.backend = "ucx";
  spec.backend_config = config;
  return ranks->Join(spec, size, per_host);
}

}  // namespace commsched

#endif  // COMMSCHED_TEST_PLUGIN_UCX_RANKS_H_
