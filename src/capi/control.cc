#include "commsched/control.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/structs.h"
#include "control/server.h"
#include "control/token.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

struct commsched_control_server {
  std::unique_ptr<commsched::ControlServer> server;
};

namespace commsched {
namespace {

constexpr int64_t kMinSilenceNs = 10 * 1000 * 1000;
// Beats per limit of silence.
constexpr int64_t kBeats = 10;

absl::StatusOr<ControlServerSpec> SpecOf(
    const commsched_control_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_control_desc_t desc,
                   ReadStruct(caller_desc, "commsched_control_desc_t"));
  RETURN_IF_ERROR(
      CheckAbiVersion("commsched_control_desc_t", desc.abi_version));
  if (desc.port > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.port is ", desc.port, ", above 65535"));
  }
  if (desc.silence_ns != 0 && desc.silence_ns < kMinSilenceNs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "desc.silence_ns is ", desc.silence_ns, ", below ", kMinSilenceNs));
  }
  ControlServerSpec spec;
  spec.size = desc.size;
  spec.epoch = desc.epoch;
  if (desc.address != nullptr) spec.address = desc.address;
  spec.port = static_cast<uint16_t>(desc.port);
  if (desc.token != nullptr) spec.token = desc.token;
  if (desc.silence_ns != 0) {
    spec.silence_ns = desc.silence_ns;
    spec.beat_ns = std::min(spec.beat_ns, desc.silence_ns / kBeats);
  }
  void* const user = desc.user;
  if (desc.on_lost != nullptr) {
    spec.on_lost = [user, call = desc.on_lost](int rank,
                                               const std::string& why) {
      call(user, rank, why.c_str());
    };
  }
  if (desc.on_departed != nullptr) {
    spec.on_departed = [user, call = desc.on_departed](int present,
                                                       int joined) {
      call(user, present, joined);
    };
  }
  return spec;
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_control_server_start(
    const commsched_control_desc_t* desc,
    commsched_control_server_t** out_server) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"desc", desc}, {"out_server", out_server}}));
    ASSIGN_OR_RETURN(auto spec, commsched::SpecOf(desc));
    ASSIGN_OR_RETURN(auto server,
                     commsched::ControlServer::Start(std::move(spec)));
    *out_server = new commsched_control_server{std::move(server)};
    return absl::OkStatus();
  });
}

uint32_t commsched_control_server_port(
    const commsched_control_server_t* server) {
  return server == nullptr ? 0 : server->server->port();
}

commsched_status_t commsched_control_server_report_exit(
    commsched_control_server_t* server, int32_t rank, const char* what) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"server", server}, {"what", what}}));
    return server->server->ReportExit(rank, what);
  });
}

void commsched_control_server_destroy(commsched_control_server_t* server) {
  AtVoidBoundary([&] { delete server; });
}

commsched_status_t commsched_token_create(char* out_token) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"out_token", out_token}}));
    ASSIGN_OR_RETURN(const std::string token, commsched::MakeToken());
    out_token[token.copy(out_token, COMMSCHED_TOKEN_SIZE - 1)] = '\0';
    return absl::OkStatus();
  });
}
