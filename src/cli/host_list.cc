#include "cli/host_list.h"

#include <algorithm>
#include <charconv>

namespace commsched::cli {
namespace {

struct HostText {
  std::string name;
  int slots = 0;  // 0: it does not say.
};

// An address of IPv6 has colons of its own, so that slots need brackets there.
bool Parse(const std::string& text, HostText* host) {
  std::string slots;
  const size_t colon = text.rfind(':');
  if (!text.empty() && text.front() == '[') {
    const size_t bracket = text.find(']');
    if (bracket == std::string::npos) return false;
    host->name = text.substr(1, bracket - 1);
    const std::string rest = text.substr(bracket + 1);
    if (rest.empty()) return !host->name.empty();
    if (rest.front() != ':') return false;
    slots = rest.substr(1);
  } else if (colon == std::string::npos || text.find(':') != colon) {
    host->name = text;
    return !text.empty();
  } else {
    host->name = text.substr(0, colon);
    slots = text.substr(colon + 1);
  }
  const char* const end = slots.data() + slots.size();
  const auto [at, error] = std::from_chars(slots.data(), end, host->slots);
  return !host->name.empty() && error == std::errc() && at == end &&
         host->slots >= 1 && host->slots <= HostList::kMaxSlots;
}

}  // namespace

bool HostList::Build(const std::vector<std::string>& texts, int ranks,
                     std::string* why) {
  std::vector<HostText> hosts;
  for (const std::string& text : texts) {
    HostText host;
    if (!Parse(text, &host)) {
      *why = "--hosts has '" + text +
             "', which is neither a host nor host:slots with 1 to " +
             std::to_string(kMaxSlots) + " slots";
      return false;
    }
    names_.push_back(host.name);
    hosts.push_back(std::move(host));
  }
  host_of_.assign(static_cast<size_t>(ranks), 0);
  const bool has_slots =
      std::any_of(hosts.begin(), hosts.end(),
                  [](const HostText& host) { return host.slots != 0; });
  if (!has_slots) {
    for (int rank = 0; rank < ranks && !hosts.empty(); ++rank) {
      host_of_[static_cast<size_t>(rank)] =
          static_cast<size_t>(rank) * hosts.size() / static_cast<size_t>(ranks);
    }
    return true;
  }
  int slots = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    for (int slot = 0; slot < std::max(hosts[i].slots, 1); ++slot, ++slots) {
      if (slots < ranks) host_of_[static_cast<size_t>(slots)] = i;
    }
  }
  if (slots >= ranks) return true;
  *why = "--hosts has " + std::to_string(slots) + " slots, but there are " +
         std::to_string(ranks) + " ranks";
  return false;
}

bool HostList::AreTogether(int rank, int other) const {
  const size_t here = HostOf(rank);
  const size_t there = HostOf(other);
  return here == there || names_[here] == names_[there];
}

int HostList::LocalRank(int rank) const {
  int before = 0;
  for (int other = 0; other < rank; ++other) {
    if (AreTogether(rank, other)) ++before;
  }
  return before;
}

int HostList::LocalSize(int rank) const {
  int size = 0;
  for (int other = 0; other < static_cast<int>(host_of_.size()); ++other) {
    if (AreTogether(rank, other)) ++size;
  }
  return size;
}

}  // namespace commsched::cli
