// What UCX is told to do otherwise than it would by itself.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_UCX_SETTINGS_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_UCX_SETTINGS_H_

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>

namespace commsched::ucx {

// What settings depend on.
struct UcxUse {
  std::string tls;  // NetworkOptions::tls and net_devices.
  std::string net_devices;
  uint64_t eager_bytes = 0;  // EagerBytes().
  bool one_machine = false;  // All ranks are on one.
  int world_size = 0;
};

// Up to here UCX shall send without asking. 0: it decides that itself, as the
// environment says how, or there are devices for RDMA.
uint64_t EagerBytes(uint64_t chunk_bytes, bool one_machine);

// Writes all settings to `config` but those that the environment has. Returns
// what UCX says of the first one that it does not take.
ucs_status_t Configure(const UcxUse& use, ucp_config_t* config);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_UCX_SETTINGS_H_
