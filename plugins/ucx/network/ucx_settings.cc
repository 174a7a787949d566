#include "ucx/network/ucx_settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace commsched::ucx {
namespace {

// Ranks of a host need none of it (local_links.h), and it would take room in
// /dev/shm, where names stay when a process is killed.
constexpr char kDefaultTls[] = "^sm";

// Over TCP the reply that a large message waits for (rendezvous) queues behind
// the data that goes the other way, chunk after chunk: half of a link's
// bandwidth is lost. So chunks go at once, and what is larger, which asks but
// once, is received where it belongs. Segments of 8 KiB, which is UCX's own
// choice, cost twice the time of the processor.
constexpr char kTcpSegment[] = "64k";
// What a connection to another host may hold that is not out yet. The kernel's
// own choice is several MB, so that what is sent to several peers one after the
// other (pacer.h) would be on its way at once after all.
constexpr char kTcpSendBuffer[] = "256k";
// Between processes of one machine there is no link to be lost: from here on
// the copy that rendezvous saves costs more than its reply.
constexpr uint64_t kLocalEagerBytes = 384 << 10;

// Where there are such devices, UCX knows best how large messages go.
bool HasRdma() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband",
                                                    error);
  return !error && devices != std::filesystem::directory_iterator();
}

ucs_status_t Modify(ucp_config_t* config, TransportNames names,
                    const std::string& name, const std::string& value) {
  const std::string prefix = "TCP_";
  const bool is_transports = name.starts_with(prefix);
  if (is_transports && names == TransportNames::kNone) return UCS_OK;
  const ucs_status_t status =
      ucp_config_modify(config, name.c_str(), value.c_str());
  const bool once = !is_transports || names == TransportNames::kWithPrefix;
  if (status != UCS_OK || once) return status;
  return ucp_config_modify(config, name.c_str() + prefix.size(), value.c_str());
}

}  // namespace

uint64_t EagerBytes(uint64_t chunk_bytes, bool one_machine) {
  if (HasRdma() || getenv("UCX_RNDV_THRESH") != nullptr) return 0;
  const uint64_t bytes = chunk_bytes * 3 / 2;
  return one_machine ? std::min(bytes, kLocalEagerBytes) : bytes;
}

ucs_status_t Configure(const UcxUse& use, TransportNames names,
                       ucp_config_t* config) {
  const bool says_tls = !use.tls.empty() || getenv("UCX_TLS") != nullptr;
  const std::string tls = says_tls ? use.tls : kDefaultTls;
  const std::string threshold =
      use.eager_bytes == 0 ? "" : std::to_string(use.eager_bytes);
  struct Setting {
    const char* name;
    const char* variable;  // What a user says counts.
    std::string value;     // "": it stays as it is.
  };
  const Setting settings[] = {
      {"TLS", "", tls},
      {"NET_DEVICES", "", use.net_devices},
      {"RNDV_THRESH", "", threshold},
      {"TCP_SNDBUF", "UCX_TCP_SNDBUF",
       use.one_machine || use.world_size == 2 ? "" : kTcpSendBuffer},
      // Else who connects to a host that is cut off stands still for minutes.
      {"TCP_CONN_NB", "UCX_TCP_CONN_NB", "y"},
      {"TCP_TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", kTcpSegment},
      {"TCP_RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE", kTcpSegment}};
  for (const auto& [name, variable, value] : settings) {
    if (value.empty() || getenv(variable) != nullptr) continue;
    const ucs_status_t status = Modify(config, names, name, value);
    if (status != UCS_OK) return status;
  }
  return UCS_OK;
}

}  // namespace commsched::ucx
