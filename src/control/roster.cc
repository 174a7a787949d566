#include "control/roster.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "control/messages.h"
#include "control/wire.h"

namespace commsched {

RankPlace OwnPlace(const std::string& host_id) {
  RankPlace place;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), place.host);
  char text[kMaxPlaceBytes] = "";
  if (place.host.empty() && gethostname(text, sizeof(text) - 1) == 0) {
    place.host = text;
  }
  const ssize_t n = readlink("/proc/self/ns/net", text, sizeof(text));
  if (n > 0) place.network.assign(text, static_cast<size_t>(n));
  place.host.resize(
      std::min(place.host.size(), kMaxPlaceBytes - kMaxHostIdBytes - 1));
  if (!host_id.empty()) absl::StrAppend(&place.host, "/", host_id);
  return place;
}

std::string Roster::Encode() const {
  WireWriter writer;
  writer(hosts, networks, links);
  return writer.Take();
}

absl::StatusOr<Roster> Roster::Decode(absl::string_view bytes, int size) {
  Roster roster;
  WireReader reader(bytes);
  reader(roster.hosts, roster.networks, roster.links);
  RETURN_IF_ERROR(reader.Finish());
  const auto ranks = static_cast<size_t>(size);
  if (roster.hosts.size() == ranks && roster.networks.size() == ranks) {
    return roster;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a roster of ", roster.hosts.size(), " hosts and ",
      roster.networks.size(), " networks is not one of ", size, " ranks"));
}

}  // namespace commsched
