#include "comm/plugin/table_support.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace commsched {
namespace {

// Bounds the memory of a communicator: slots are made for every launch and
// member at creation.
constexpr uint32_t kMaxInFlight = 4096;

bool IsFailure(commsched_status_t code) {
  return code >= COMMSCHED_CANCELLED && code <= COMMSCHED_UNAUTHENTICATED;
}

absl::Status CheckRanks(const commsched_comm_desc_t& desc, int world_size) {
  std::vector<bool> seen(world_size, false);
  for (int i = 0; i < desc.size; ++i) {
    const int rank = desc.ranks[i];
    if (rank < 0 || rank >= world_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("communicator '", desc.id, "': member ", i, " is rank ",
                       rank, " of a world of ", world_size));
    }
    if (seen[rank]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "communicator '", desc.id, "': rank ", rank, " is a member twice"));
    }
    seen[rank] = true;
  }
  return absl::OkStatus();
}

}  // namespace

commsched_status_t ToTable(const absl::Status& status, char* message,
                           uint64_t message_size) {
  if (status.ok()) return COMMSCHED_OK;
  if (message != nullptr && message_size > 0) {
    const absl::string_view text = status.message();
    const size_t length = std::min<size_t>(text.size(), message_size - 1);
    std::memcpy(message, text.data(), length);
    message[length] = '\0';
  }
  return static_cast<commsched_status_t>(status.code());
}

absl::Status FailureFromTable(commsched_status_t code, const char* message) {
  return absl::Status(IsFailure(code) ? static_cast<absl::StatusCode>(code)
                                      : absl::StatusCode::kUnknown,
                      message == nullptr ? "" : message);
}

absl::string_view PluginMessage::text() const {
  return absl::string_view(text_, strnlen(text_, kSize));
}

absl::Status PluginFailure(absl::string_view plugin, absl::string_view call,
                           commsched_status_t code,
                           const PluginMessage& message) {
  const absl::string_view text = message.text();
  if (!IsFailure(code)) {
    return absl::InternalError(absl::StrCat(
        plugin, ": ", call, "() returned ", code,
        ", which is not a status code", text.empty() ? "" : ": ", text));
  }
  const auto known = static_cast<absl::StatusCode>(code);
  if (!text.empty()) return absl::Status(known, text);
  return absl::Status(
      known, absl::StrCat(plugin, " gave no reason why ", call, " failed"));
}

absl::Status BackendFailure(const commsched_backend_t& backend,
                            absl::string_view call, commsched_status_t code,
                            const PluginMessage& message) {
  return PluginFailure(absl::StrCat("backend '", backend.name, "'"), call, code,
                       message);
}

absl::Status CheckLaunchResult(const commsched_backend_t& backend,
                               const commsched_launch_result_t& result) {
  if (result.done <= 1) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("backend '", backend.name, "' set done to ", result.done,
                   ", which is neither 0 nor 1, in poll"));
}

absl::Status CheckReady(const commsched_backend_t& backend, uint32_t ready) {
  if (ready <= 1) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("backend '", backend.name, "' set out_ready to ", ready,
                   ", which is neither 0 nor 1, in comm_ready"));
}

commsched_status_t ExpectLaunches(const commsched_backend_t& backend,
                                  void* comm,
                                  absl::Span<const commsched_launch_t> launches,
                                  char* message, uint64_t message_size) {
  const auto num_launches = static_cast<uint32_t>(launches.size());
  const uint64_t bytes = backend.launch_bytes;
  if (bytes == sizeof(commsched_launch_t)) {
    return backend.comm_expect(comm, launches.data(), num_launches, message,
                               message_size);
  }
  // The plugin is older than this library, or newer.
  std::vector<char> apart(bytes * launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    commsched_launch_t launch = launches[i];
    launch.struct_size = std::min<uint64_t>(sizeof(launch), bytes);
    std::memcpy(apart.data() + i * bytes, &launch, launch.struct_size);
  }
  return backend.comm_expect(
      comm, reinterpret_cast<const commsched_launch_t*>(apart.data()),
      num_launches, message, message_size);
}

absl::Status CheckInstanceDesc(const commsched_instance_desc_t* desc) {
  if (desc == nullptr || desc->config == nullptr || desc->world_size < 1) {
    return absl::InvalidArgumentError(
        "an instance needs a description with a world and a configuration");
  }
  return absl::OkStatus();
}

absl::Status CheckNoConfig(const commsched_instance_desc_t& desc) {
  if (desc.config[0] == '\0') return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("takes no configuration; it was given '", desc.config, "'"));
}

absl::Status CheckCommDesc(const commsched_comm_desc_t* desc, int world_size,
                           int world_rank) {
  if (desc == nullptr || desc->id == nullptr || desc->axis == nullptr ||
      desc->ranks == nullptr) {
    return absl::InvalidArgumentError(
        "a communicator needs a description with id, axis and ranks");
  }
  if (desc->size < 1 || desc->size > world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", desc->id, "' has ", desc->size,
                     " members; the world has ", world_size));
  }
  if (desc->rank < 0 || desc->rank >= desc->size) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", desc->id, "': rank ", desc->rank,
                     " is not in 0..", desc->size - 1));
  }
  if (absl::Status ranks = CheckRanks(*desc, world_size); !ranks.ok()) {
    return ranks;
  }
  if (desc->ranks[desc->rank] != world_rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        "communicator '", desc->id, "': member ", desc->rank, " is world rank ",
        desc->ranks[desc->rank], ", not ", world_rank));
  }
  if (desc->max_in_flight < 1 || desc->max_in_flight > kMaxInFlight) {
    return absl::InvalidArgumentError(absl::StrCat(
        "communicator '", desc->id, "' asks for ", desc->max_in_flight,
        " launches in flight; it must be 1..", kMaxInFlight));
  }
  return absl::OkStatus();
}

}  // namespace commsched
