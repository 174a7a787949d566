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

// How settings of a transport are named. UCX 1.13 takes them without their
// prefix, later versions with it. Names that it does not know it ignores; 1.22
// and later do not, nor those of a transport that is not used: ucp_init() then
// says that a parameter is invalid, and what comes next here is to be tried.
enum class TransportNames { kBoth, kWithPrefix, kNone };
inline constexpr TransportNames kTransportNames[] = {
    TransportNames::kBoth, TransportNames::kWithPrefix, TransportNames::kNone};

// Writes all settings to `config` but those that the environment has. Returns
// what UCX says of the first one that it does not take.
ucs_status_t Configure(const UcxUse& use, TransportNames names,
                       ucp_config_t* config);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_UCX_SETTINGS_H_
