#include "comm/hosts.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "control/roster.h"

namespace commsched {

absl::StatusOr<std::vector<int32_t>> HostsOf(World* world) {
  ASSIGN_OR_RETURN(const Roster roster, world->WaitForRoster());
  std::vector<int32_t> hosts(static_cast<size_t>(world->spec().size), 0);
  if (roster.hosts.empty()) return hosts;
  std::map<std::pair<std::string, std::string>, int32_t> numbers;
  int32_t next = 0;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    std::pair<std::string, std::string> place = {roster.hosts[rank],
                                                 roster.networks[rank]};
    if (place.first.empty()) place = {"", absl::StrCat("rank ", rank)};
    const auto [at, is_new] = numbers.try_emplace(std::move(place), next);
    if (is_new) ++next;
    hosts[rank] = at->second;
  }
  return hosts;
}

}  // namespace commsched
