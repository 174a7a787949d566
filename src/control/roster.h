// Where the ranks of a job are.
#ifndef COMMSCHED_SRC_CONTROL_ROSTER_H_
#define COMMSCHED_SRC_CONTROL_ROSTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

// Where a process is. Texts that are compared and not read; "" is not known.
struct RankPlace {
  std::string host;     // Equal where the kernel is the same.
  std::string network;  // Of one host: equal in one network namespace.
  // What it says of links (Roster::links); up to kMaxLinksBytes.
  std::string links = {};
};

// Of this process. Those with another `host_id` are on another host.
RankPlace OwnPlace(const std::string& host_id);

// The places of all ranks, by rank.
struct Roster {
  std::vector<std::string> hosts;
  std::vector<std::string> networks;
  // What rank 0 has said of the job's links (comm/link_profile.h); "": nothing.
  std::string links;

  std::string Encode() const;
  // kInvalidArgument for bytes that are no roster of `size` ranks.
  static absl::StatusOr<Roster> Decode(absl::string_view bytes, int size);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_ROSTER_H_
