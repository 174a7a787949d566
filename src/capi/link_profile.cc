#include "commsched/link_profile.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "comm/hosts.h"
#include "comm/link_profile.h"
#include "trace/trace_file.h"

using commsched::AtBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

constexpr char kProfile[] = "commsched_link_profile_t";

absl::StatusOr<commsched_link_profile_t> ReadProfile(
    const commsched_link_profile_t* profile) {
  ASSIGN_OR_RETURN(const commsched_link_profile_t ours,
                   ReadStruct(profile, kProfile));
  RETURN_IF_ERROR(CheckLinkProfile(ours));
  return ours;
}

// Whether all of it is a text of whole characters; what is not would come back
// as another one.
bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    const int more = std::countl_one(first);
    if (more == 0) continue;
    if (more == 1 || more > 4) return false;
    for (int k = 1; k < more; ++k, ++i) {
      if (i == text.size() ||
          (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
        return false;
      }
    }
  }
  return true;
}

absl::StatusOr<std::string> ToJson(const commsched_link_profile_t* profile,
                                   const char* note) {
  ASSIGN_OR_RETURN(const commsched_link_profile_t ours, ReadProfile(profile));
  const absl::string_view text = note == nullptr ? "" : note;
  if (text.size() > kMaxLinkNoteBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "note has ", text.size(), " bytes; at most ", kMaxLinkNoteBytes));
  }
  if (!IsUtf8(text)) return absl::InvalidArgumentError("note is not UTF-8");
  return LinkProfileToJson(ours, text);
}

// What a rank's rate has to be so that a collective of all ranks, which moves
// (n - 1) / n of its bytes over a rank's link, takes as long as
// (H - 1) / H of them over a host's.
double RatePerRank(const commsched_link_profile_t& links, double num_ranks,
                   double num_hosts) {
  const double of_rank = (num_ranks - 1) / num_ranks;
  const double of_host = (num_hosts - 1) / num_hosts;
  return std::min(links.host.bytes_per_s,
                  links.network.bytes_per_s * of_rank / of_host);
}

int64_t RoundsOf(int32_t num) {
  return num <= 1 ? 0 : std::bit_width(static_cast<uint32_t>(num - 1));
}

void SetLinks(const commsched_link_profile_t& links, int32_t num_ranks,
              int32_t num_hosts, commsched_cost_profile_t* costs) {
  const int32_t ranks_per_host = (num_ranks - 1) / num_hosts + 1;
  costs->link_bytes_per_s = num_hosts == 1 ? links.host.bytes_per_s
                            : ranks_per_host == 1
                                ? links.network.bytes_per_s
                                : RatePerRank(links, num_ranks, num_hosts);
  int64_t latency_ns = 0;
  int64_t messages_ns = 0;
  for (const auto& [level, ranks] : {std::pair{&links.host, ranks_per_host},
                                     std::pair{&links.network, num_hosts}}) {
    if (ranks > 1) latency_ns += 2 * level->latency_ns;
    messages_ns += 2 * RoundsOf(ranks) * level->message_ns;
  }
  costs->link_latency_ns = latency_ns;
  // 0 would be the default.
  costs->launch_ns = std::max<int64_t>(1, messages_ns);
}

absl::Status CheckLayout(int32_t num_ranks, int32_t num_hosts) {
  if (num_hosts >= 1 && num_hosts <= num_ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("num_hosts is ", num_hosts, " for ", num_ranks,
                   " ranks; it must be 1 to as many"));
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_link_profile_from_json(
    const char* json, uint64_t length, commsched_link_profile_t* out_profile) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"json", json}, {"out_profile", out_profile}}));
    ASSIGN_OR_RETURN(const auto profile,
                     commsched::LinkProfileFromJson({json, length}));
    return commsched::WriteStruct(profile, out_profile, commsched::kProfile);
  });
}

commsched_status_t commsched_link_profile_to_json(
    const commsched_link_profile_t* profile, const char* note,
    char** out_json) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"profile", profile}, {"out_json", out_json}}));
    ASSIGN_OR_RETURN(const std::string text, commsched::ToJson(profile, note));
    ASSIGN_OR_RETURN(*out_json, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_link_profile_read(
    const char* path, commsched_link_profile_t* out_profile) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"path", path}, {"out_profile", out_profile}}));
    ASSIGN_OR_RETURN(const auto profile, commsched::ReadLinkProfile(path));
    return commsched::WriteStruct(profile, out_profile, commsched::kProfile);
  });
}

commsched_status_t commsched_link_profile_write(
    const commsched_link_profile_t* profile, const char* note,
    const char* path) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"profile", profile}, {"path", path}}));
    ASSIGN_OR_RETURN(const std::string text, commsched::ToJson(profile, note));
    return commsched::WriteTraceFile(
        path, /*rank=*/0, [&](commsched::TraceSink sink) { sink(text); },
        "profile of links");
  });
}

commsched_status_t commsched_cost_profile_set_links(
    const commsched_link_profile_t* links, int32_t num_ranks, int32_t num_hosts,
    commsched_cost_profile_t* costs) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"links", links}, {"costs", costs}}));
    ASSIGN_OR_RETURN(const auto ours, commsched::ReadProfile(links));
    RETURN_IF_ERROR(commsched::CheckLayout(num_ranks, num_hosts));
    ASSIGN_OR_RETURN(auto filled,
                     commsched::ReadStruct(costs, "commsched_cost_profile_t"));
    commsched::SetLinks(ours, num_ranks, num_hosts, &filled);
    return commsched::WriteStruct(filled, costs, "commsched_cost_profile_t");
  });
}

commsched_status_t commsched_context_link_profile(
    commsched_context_t* context, commsched_link_profile_t* out_profile,
    int32_t* out_given) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"context", context}, {"out_profile", out_profile}}));
    const commsched::WaitingCall waiting(context->context->rank(),
                                         "asks for the job's links");
    ASSIGN_OR_RETURN(const auto links, context->context->world()->Links());
    RETURN_IF_ERROR(
        commsched::WriteStruct(links.value_or(commsched_link_profile_init()),
                               out_profile, commsched::kProfile));
    if (out_given != nullptr) *out_given = links.has_value() ? 1 : 0;
    return absl::OkStatus();
  });
}

commsched_status_t commsched_context_hosts(commsched_context_t* context,
                                           int32_t* out_hosts,
                                           int32_t num_ranks,
                                           int32_t* out_num_hosts) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"context", context}, {"out_num_hosts", out_num_hosts}}));
    const int size = context->context->world_size();
    if (num_ranks != (out_hosts == nullptr ? 0 : size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("num_ranks is ", num_ranks, "; it must be ",
                       out_hosts == nullptr ? 0 : size,
                       out_hosts == nullptr ? ", as out_hosts is NULL"
                                            : ", the size of the world"));
    }
    const commsched::WaitingCall waiting(context->context->rank(),
                                         "asks for the job's hosts");
    ASSIGN_OR_RETURN(const std::vector<int32_t> hosts,
                     commsched::HostsOf(context->context->world().get()));
    if (out_hosts != nullptr) {
      std::copy(hosts.begin(), hosts.end(), out_hosts);
    }
    *out_num_hosts = 1 + *std::max_element(hosts.begin(), hosts.end());
    return absl::OkStatus();
  });
}
